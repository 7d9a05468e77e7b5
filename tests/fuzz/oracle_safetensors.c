/* A judge of safetensors files: see oracle_safetensors.h. It is written from the format's description and the
 * reader's stated limits, not from the reader.
 *
 * In: the bytes of a file. Out: whether a reader must accept them. Every value of the header is allocated and freed
 * by release(); memory that runs out crashes, which is no finding about the reader. */
#include "oracle_safetensors.h"

#include <stdlib.h>
#include <string.h>

typedef enum Kind { OBJECT, ARRAY, STRING, WHOLE, OTHER } Kind;

typedef struct Value Value;
struct Value {
  Kind kind;
  char *text; /* STRING: `length` bytes; also the key of a member */
  size_t length, n;
  int64_t number;
  Value *items; /* OBJECT: key, value, key, value ...; ARRAY */
};

/* The rest of the header; `bad` stays set once something was wrong. */
typedef struct Text {
  const uint8_t *at, *end;
  bool bad;
} Text;

// ---- JSON ----

/* What JSON calls whitespace. */
static void blanks(Text *t) {
  while (t->at < t->end && (*t->at == ' ' || *t->at == '\t' || *t->at == '\n' || *t->at == '\r')) t->at++;
}

/* The next byte; past the end, -1 and `bad`. */
static int take(Text *t) {
  if (t->at < t->end) return *t->at++;
  t->bad = true;
  return -1;
}

/* Blanks, then the character, if it comes next. */
static bool skip(Text *t, int c) {
  blanks(t);
  if (t->at == t->end || *t->at != c) return false;
  t->at++;
  return true;
}

/* A code point as UTF-8, added to the text. */
static void put(Value *v, uint32_t c) {
  v->text = realloc(v->text, v->length + 4);
  char *to = v->text + v->length;
  if (c < 0x80) to[0] = (char)c, v->length += 1;
  else if (c < 0x800) to[0] = (char)(0xc0 + c / 64), to[1] = (char)(0x80 + c % 64), v->length += 2;
  else if (c < 0x10000)
    to[0] = (char)(0xe0 + c / 4096), to[1] = (char)(0x80 + c / 64 % 64), to[2] = (char)(0x80 + c % 64), v->length += 3;
  else
    to[0] = (char)(0xf0 + c / 262144), to[1] = (char)(0x80 + c / 4096 % 64), to[2] = (char)(0x80 + c / 64 % 64),
    to[3] = (char)(0x80 + c % 64), v->length += 4;
}

/* Four hexadecimal digits of a \u escape. */
static uint32_t hex(Text *t) {
  uint32_t value = 0;
  for (int i = 0; i < 4; i++) {
    int c = take(t);
    const char *digits = "0123456789abcdefABCDEF", *digit = c > 0 ? strchr(digits, c) : NULL;
    if (!digit) t->bad = true;
    else value = value * 16 + (uint32_t)(digit - digits > 15 ? digit - digits - 6 : digit - digits);
  }
  return value;
}

/* One escape. \u escapes of surrogates must come in pairs, high before low. */
static void escape(Text *t, Value *v) {
  int c = take(t);
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  if (c == 'u') {
    uint32_t a = hex(t);
    if (a >= 0xd800 && a <= 0xdbff) {
      if (take(t) != '\\' || take(t) != 'u') t->bad = true;
      uint32_t b = hex(t);
      if (b < 0xdc00 || b > 0xdfff) t->bad = true;
      a = (a - 0xd800) * 1024 + (b - 0xdc00) + 0x10000;
    } else if (a >= 0xdc00 && a <= 0xdfff) {
      t->bad = true;
    }
    if (!t->bad) put(v, a);
  } else if (c > 0 && strchr(from, c)) {
    put(v, (uint32_t)to[strchr(from, c) - from]);
  } else {
    t->bad = true;
  }
}

/* One unescaped character of a string; malformed, overlong and surrogate UTF-8 is bad, and so is a control character.
 */
static void character(Text *t, Value *v, int c) {
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  int bytes = c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xf0 && c < 0xf5 ? 4 : 0;
  uint32_t value = bytes < 2 ? (uint32_t)c : (uint32_t)c & (0x7fu >> bytes);
  for (int i = 1; i < bytes; i++) {
    int next = take(t);
    if (next < 0x80 || next > 0xbf) t->bad = true;
    value = value * 64 + ((uint32_t)next & 63);
  }
  if (!bytes || c < 0x20 || value < least[bytes]) t->bad = true;
  if (value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) t->bad = true;
  if (!t->bad) put(v, value);
}

/* A string up to its closing quote, which `bad` also ends. */
static void string(Text *t, Value *v) {
  v->kind = STRING;
  v->text = malloc(4);
  while (!t->bad) {
    int c = take(t);
    if (c == '"') return;
    if (c == '\\') escape(t, v);
    else character(t, v, c);
  }
}

/* Whole numbers without sign or leading zeros: nothing else that JSON calls a number is of use in this format. */
static void number(Text *t, Value *v) {
  const uint8_t *begin = t->at;
  v->kind = WHOLE;
  while (t->at < t->end && *t->at >= '0' && *t->at <= '9') {
    int digit = *t->at++ - '0';
    if (v->number > (INT64_MAX - digit) / 10) t->bad = true;
    else v->number = v->number * 10 + digit;
  }
  if (t->at == begin || (*begin == '0' && t->at - begin > 1)) t->bad = true;
}

/* An empty value behind the items. It is moved by the next call, as all items are. */
static Value *add(Value *v) {
  v->items = realloc(v->items, (v->n + 1) * sizeof *v->items);
  memset(&v->items[v->n], 0, sizeof *v->items);
  return &v->items[v->n++];
}

static void value(Text *t, Value *v, int depth);

/* The members of an object (key, value, key, value, ...) or the items of an array. */
static void members(Text *t, Value *v, int depth) {
  int close = v->kind == OBJECT ? '}' : ']';
  if (skip(t, close)) return;
  do {
    if (v->kind == OBJECT) {
      value(t, add(v), depth + 1);
      if (t->bad || v->items[v->n - 1].kind != STRING || !skip(t, ':')) t->bad = true;
    }
    if (!t->bad) value(t, add(v), depth + 1);
  } while (!t->bad && skip(t, ','));
  if (!skip(t, close)) t->bad = true;
}

/* Any value. Nesting is bounded because the recursion is; a valid header needs 3 levels. */
static void value(Text *t, Value *v, int depth) {
  blanks(t);
  v->kind = OTHER;
  if (depth > 8 || t->at == t->end) t->bad = true;
  else if (skip(t, '{')) v->kind = OBJECT, members(t, v, depth);
  else if (skip(t, '[')) v->kind = ARRAY, members(t, v, depth);
  else if (skip(t, '"')) string(t, v);
  else number(t, v);
}

/* Frees a value and everything in it. */
static void release(Value *v) {
  for (size_t i = 0; i < v->n; i++) release(&v->items[i]);
  free(v->items);
  free(v->text);
}

// ---- the rules ----

/* Names are compared by bytes, after escapes were resolved. */
static bool same(const Value *a, const Value *b) {
  return a->length == b->length && memcmp(a->text, b->text, a->length) == 0;
}

static bool is(const Value *v, const char *text) {
  return v->kind == STRING && v->length == strlen(text) && memcmp(v->text, text, v->length) == 0;
}

/* All pairs are compared: quadratic, and plainly right. */
static bool keys_differ(const Value *object) {
  for (size_t i = 0; i < object->n; i += 2)
    for (size_t k = 0; k < i; k += 2)
      if (same(&object->items[i], &object->items[k])) return false;
  return true;
}

/* No control characters, 1 to 4096 bytes. */
static bool good_name(const Value *name) {
  for (size_t i = 0; i < name->length; i++)
    if ((unsigned char)name->text[i] < 32 || name->text[i] == 127) return false;
  return name->length >= 1 && name->length <= 4096;
}

/* The value of a key, NULL if the object has none. */
static const Value *member(const Value *object, const char *key) {
  for (size_t i = 0; i < object->n; i += 2)
    if (is(&object->items[i], key)) return &object->items[i + 1];
  return NULL;
}

/* An object of strings. */
static bool good_metadata(const Value *metadata) {
  if (metadata->kind != OBJECT || !keys_differ(metadata)) return false;
  for (size_t i = 0; i < metadata->n; i += 2)
    if (!good_name(&metadata->items[i]) || metadata->items[i + 1].kind != STRING) return false;
  return true;
}

/* The width of every type that the format knows; 0 for one it does not, whose size cannot be judged. */
static int bits_of(const Value *dtype) {
  static const struct {
    const char *name;
    int bits;
  } types[] = {{"BOOL", 8}, {"U8", 8}, {"I8", 8}, {"U16", 16}, {"I16", 16}, {"F16", 16}, {"BF16", 16}, {"U32", 32},
               {"I32", 32}, {"F32", 32}, {"U64", 64}, {"I64", 64}, {"F64", 64}, {"C64", 64}, {"F8_E4M3", 8},
               {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (is(dtype, types[i].name)) return types[i].bits;
  return 0;
}

/* An array with nothing else in it. */
static bool whole_numbers(const Value *array) {
  for (size_t i = 0; i < array->n; i++)
    if (array->items[i].kind != WHOLE) return false;
  return array->kind == ARRAY;
}

/* Exactly dtype, shape and data_offsets, and a size that fits both shape and offsets. */
static bool good_tensor(const Value *tensor, int64_t data_size) {
  if (tensor->kind != OBJECT || tensor->n != 6 || !keys_differ(tensor)) return false;
  const Value *dtype = member(tensor, "dtype"), *shape = member(tensor, "shape");
  const Value *offsets = member(tensor, "data_offsets");
  if (!dtype || !shape || !offsets || dtype->kind != STRING || dtype->length > 64) return false;
  if (!whole_numbers(shape) || !whole_numbers(offsets) || offsets->n != 2) return false;
  int64_t begin = offsets->items[0].number, end = offsets->items[1].number, elements = 1, bits = bits_of(dtype);
  for (size_t i = 0; i < shape->n; i++)
    if (__builtin_mul_overflow(elements, shape->items[i].number, &elements)) return false;
  if (begin > end || end > data_size) return false;
  if (!bits) return true;
  return !__builtin_mul_overflow(elements, bits, &bits) && bits % 8 == 0 && bits / 8 == end - begin;
}

/* Whether the tensors cover the data without gaps and without overlaps: none overlaps another, and their sizes add up
 * to the whole. */
static bool tile(const Value *header, int64_t data_size) {
  int64_t sum = 0;
  for (size_t i = 0; i < header->n; i += 2) {
    if (is(&header->items[i], "__metadata__")) continue;
    const Value *a = member(&header->items[i + 1], "data_offsets");
    int64_t from = a->items[0].number, to = a->items[1].number;
    sum += to - from;
    if (sum > data_size) return false;
    for (size_t k = 0; k < header->n; k += 2) {
      if (k == i || is(&header->items[k], "__metadata__")) continue;
      const Value *b = member(&header->items[k + 1], "data_offsets");
      int64_t other_from = b->items[0].number, other_to = b->items[1].number;
      bool inside = from == to && other_from < from && from < other_to;
      if (inside || (from < other_to && other_from < to && from < to && other_from < other_to)) return false;
    }
  }
  return sum == data_size;
}

/* The number of tensors has the limit of the reader. */
static bool good_header(const Value *header, int64_t data_size) {
  if (header->kind != OBJECT || !keys_differ(header) || header->n / 2 > 1000001) return false;
  for (size_t i = 0; i < header->n; i += 2) {
    const Value *name = &header->items[i], *v = &header->items[i + 1];
    if (is(name, "__metadata__") ? !good_metadata(v) : !good_name(name) || !good_tensor(v, data_size)) return false;
  }
  return tile(header, data_size);
}

/* 8 bytes of length, the header, and the data; the header may be followed by blanks. */
bool oracle_safetensors(const uint8_t *data, size_t size) {
  uint64_t n = 0;
  if (size < 8) return false;
  for (int i = 7; i >= 0; i--) n = n * 256 + data[i];
  if (n > 100000000 || n > size - 8) return false;
  Text text = {data + 8, data + 8 + n, false};
  Value header = {0};
  value(&text, &header, 0);
  blanks(&text);
  bool good = !text.bad && text.at == text.end && good_header(&header, (int64_t)(size - 8 - n));
  release(&header);
  return good;
}
