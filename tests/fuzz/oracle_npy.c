/* A judge of npy files: see oracle_npy.h. It is written from the format's description (NEP 1) and the reader's stated
 * limits, not from the reader: a shared mistake would go unseen.
 *
 * In: the bytes of a file. Out: whether a reader must accept them. It allocates nothing. */
#include "oracle_npy.h"

#include <string.h>

/* A token is one byte of punctuation, 's' a string, 'n' a number, 'w' a word. */
typedef struct Token {
  char kind;
  const char *text;
  size_t length;
} Token;

/* Headers are at most 10000 bytes long, so there cannot be more tokens. */
enum { MOST_TOKENS = 10001 };

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/* Splits the header into tokens; -1 if something is none. Strings have at most 31 characters and no escapes, which is
 * all that numpy writes. */
static int tokenize(const char *at, const char *end, Token *tokens) {
  int n = 0;
  while (at < end) {
    if (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r') {
      at++;
      continue;
    }
    const char *begin = at;
    char kind = *at;
    if (strchr("{}(),:", kind) && kind) {
      at++;
    } else if (kind == '\'' || kind == '"') {
      for (at++; at < end && *at != *begin; at++)
        if (*at == '\\' || !*at) return -1;
      if (at == end) return -1;
      at++;
      begin++;
      if (at - 1 - begin > 31) return -1;
      tokens[n++] = (Token){'s', begin, (size_t)(at - 1 - begin)};
      continue;
    } else if (is_digit(kind)) {
      while (at < end && is_digit(*at)) at++;
      kind = 'n';
    } else if (is_letter(kind)) {
      /* The only words are True and False; what follows them directly is another token. */
      size_t length = kind == 'T' ? 4 : 5;
      if ((size_t)(end - at) < length || memcmp(at, kind == 'T' ? "True" : "False", length) != 0) return -1;
      at += length;
      kind = 'w';
    } else {
      return -1;
    }
    tokens[n++] = (Token){kind, begin, (size_t)(at - begin)};
  }
  return n;
}

/* Whether a token is spelled like this. */
static bool is(const Token *token, const char *text) {
  return token->length == strlen(text) && memcmp(token->text, text, token->length) == 0;
}

/* What the dictionary says. */
typedef struct Header {
  int width; /* bytes of an element */
  bool fortran;
  int rank;
  bool overflow, empty; /* empty: some dimension is 0, so there are no elements whatever the others are */
  int64_t elements;
} Header;

/* Decimal without leading zeros, within 64 bits. */
static bool number(const Token *token, int64_t *value) {
  *value = 0;
  if (token->text[0] == '0' && token->length > 1) return false;
  for (size_t i = 0; i < token->length; i++) {
    if (__builtin_mul_overflow(*value, 10, value)) return false;
    if (__builtin_add_overflow(*value, token->text[i] - '0', value)) return false;
  }
  return true;
}

/* The tuple from '(' on: how many tokens it takes, 0 if it is malformed. A tuple of one needs its comma, as in
 * Python. */
static int shape(const Token *tokens, int n, Header *header) {
  int at = 1;
  bool comma = true;
  if (n < 2 || tokens[0].kind != '(') return 0;
  header->elements = 1;
  while (at < n && tokens[at].kind == 'n') {
    int64_t dim;
    if (!comma || !number(&tokens[at++], &dim) || ++header->rank > 32) return 0;
    if (__builtin_mul_overflow(header->elements, dim, &header->elements)) header->overflow = true;
    header->empty |= dim == 0;
    comma = at < n && tokens[at].kind == ',';
    at += comma;
  }
  if (at >= n || tokens[at].kind != ')' || (header->rank == 1 && !comma)) return 0;
  return at + 1;
}

/* The three keys, each once, in any order; a comma may follow the last. */
static bool dictionary(const Token *tokens, int n, Header *header) {
  static const char *const types[] = {"<f4", "<i4", "<i8", "|b1", "|u1"};
  static const int widths[] = {4, 4, 8, 1, 1};
  int at = 1, seen[3] = {0};
  bool comma = true;
  if (n < 2 || tokens[0].kind != '{') return false;
  while (at < n && tokens[at].kind == 's') {
    if (!comma || at + 2 >= n || tokens[at + 1].kind != ':') return false;
    const Token *key = &tokens[at], *value = &tokens[at + 2];
    at += 3;
    if (is(key, "descr") && value->kind == 's') {
      seen[0]++;
      for (int i = 0; i < 5; i++)
        if (is(value, types[i])) header->width = widths[i];
    } else if (is(key, "fortran_order") && value->kind == 'w') {
      seen[1]++;
      header->fortran = is(value, "True");
    } else if (is(key, "shape") && !seen[2]) {
      seen[2]++;
      int length = shape(value, n - at + 1, header);
      if (!length) return false;
      at += length - 1;
    } else {
      return false;
    }
    comma = at < n && tokens[at].kind == ',';
    at += comma;
  }
  return at == n - 1 && tokens[at].kind == '}' && seen[0] == 1 && seen[1] == 1 && seen[2] == 1 && header->width;
}

/* Magic, version, length, header, then exactly the data. Fortran order is accepted where it makes no difference,
 * below two axes. */
bool oracle_npy(const uint8_t *data, size_t size) {
  static Token tokens[MOST_TOKENS];
  if (size < 10 || memcmp(data, "\x93NUMPY", 6) != 0 || data[6] < 1 || data[6] > 3 || data[7]) return false;
  size_t begin = data[6] == 1 ? 10 : 12;
  uint64_t length = data[8] + 256u * data[9];
  if (data[6] > 1) {
    if (size >= 11) length += (uint64_t)data[10] << 16;
    if (size >= 12) length += (uint64_t)data[11] << 24;
  }
  if (size < begin || length > 10000 || length > size - begin) return false;
  const char *text = (const char *)data + begin;
  Header header = {0};
  int n = tokenize(text, text + length, tokens);
  if (n < 0 || !dictionary(tokens, n, &header)) return false;
  if (header.empty) header.elements = 0;
  if ((header.overflow && !header.empty) || (header.fortran && header.rank > 1)) return false;
  uint64_t rest = size - begin - length;
  return rest % (unsigned)header.width == 0 && (uint64_t)header.elements == rest / (unsigned)header.width;
}
