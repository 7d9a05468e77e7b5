/* Where the lines of a source begin, and its characters one at a time.
 *
 * In: bytes that may be anything. Out: line and column of an offset; the character at an offset, how wide a terminal
 * shows it, and whether it may be shown at all. Refuses, as malformed, overlong UTF-8, surrogates and what lies
 * beyond U+10FFFF. */
#include "diag/source.h"

#include <string.h>

// ---- lines ----

Source *source_new(Arena *arena, const char *path, const char *text, uint32_t size) {
  Source *source = ARENA_NEW(arena, Source);
  source->arena = arena;
  source->path = source->name = path;
  source->text = text;
  source->size = size;
  return source;
}

/* The byte after the line end at `i`, or `i` if no line ends there. */
static uint32_t after_line_end(const Source *source, uint32_t i) {
  if (source->text[i] == '\n') return i + 1;
  if (source->text[i] != '\r') return i;
  return i + 1 < source->size && source->text[i + 1] == '\n' ? i + 2 : i + 1;
}

/* Offset of the text proper: a byte order mark belongs to no column. */
static uint32_t text_begin(const Source *source) {
  return source->size >= 3 && memcmp(source->text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

/* Counts the lines, and writes where they begin unless `starts` is NULL. The caller runs it twice, first to learn how
 * much memory to ask for. */
static uint32_t find_lines(const Source *source, uint32_t *starts) {
  uint32_t n = 1;
  if (starts) starts[0] = text_begin(source);
  for (uint32_t i = 0; i < source->size;) {
    uint32_t next = after_line_end(source, i);
    if (next == i) {
      i++;
      continue;
    }
    i = next;
    if (starts) starts[n] = i;
    n++;
  }
  return n;
}

/* Most sources never have an error, so the table is made when the first place is asked for. */
static void need_lines(Source *source) {
  if (source->line_starts) return;
  source->n_lines = find_lines(source, NULL);
  source->line_starts = ARENA_ARRAY(source->arena, uint32_t, source->n_lines);
  find_lines(source, source->line_starts);
}

/* Binary search for the last line that begins at or before the offset. An offset inside the byte order mark counts as
 * column 1. */
SrcPlace source_place(Source *source, uint32_t offset) {
  need_lines(source);
  uint32_t low = 0, high = source->n_lines;
  while (high - low > 1) {
    uint32_t middle = low + (high - low) / 2;
    if (source->line_starts[middle] <= offset)
      low = middle;
    else
      high = middle;
  }
  uint32_t start = source->line_starts[low];
  return (SrcPlace){low + 1, offset < start ? 1 : offset - start + 1};
}

const char *source_line(Source *source, uint32_t line, uint32_t *length) {
  need_lines(source);
  if (line < 1 || line > source->n_lines) {
    *length = 0;
    return "";
  }
  uint32_t begin = source->line_starts[line - 1], end = begin;
  while (end < source->size && source->text[end] != '\n' && source->text[end] != '\r') end++;
  *length = end - begin;
  return source->text + begin;
}

// ---- characters ----

typedef struct Interval {
  uint32_t first, last;
} Interval;

/* Combining marks, joiners and variation selectors of the scripts that are likely in a comment. */
static const Interval zero_width[] = {
    {0x0300, 0x036f}, {0x0483, 0x0489}, {0x0591, 0x05bd}, {0x0610, 0x061a},   {0x064b, 0x065f},
    {0x0900, 0x0902}, {0x093c, 0x093c}, {0x0941, 0x0948}, {0x0e31, 0x0e31},   {0x0e34, 0x0e3a},
    {0x0e47, 0x0e4e}, {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff}, {0x200b, 0x200d},   {0x20d0, 0x20ff},
    {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}, {0xfeff, 0xfeff}, {0xe0100, 0xe01ef},
};

/* East Asian wide and fullwidth blocks, emoji. */
static const Interval double_width[] = {
    {0x1100, 0x115f},   {0x231a, 0x231b},   {0x2329, 0x232a},   {0x23e9, 0x23ec},   {0x2614, 0x2615},
    {0x2648, 0x2653},   {0x26a1, 0x26a1},   {0x2705, 0x2705},   {0x274c, 0x274c},   {0x2753, 0x2755},
    {0x2795, 0x2797},   {0x2b1b, 0x2b1c},   {0x2b50, 0x2b50},   {0x2e80, 0x303e},   {0x3041, 0x33ff},
    {0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xa000, 0xa4cf},   {0xa960, 0xa97f},   {0xac00, 0xd7a3},
    {0xf900, 0xfaff},   {0xfe30, 0xfe6f},   {0xff00, 0xff60},   {0xffe0, 0xffe6},   {0x1f004, 0x1f004},
    {0x1f18e, 0x1f19a}, {0x1f200, 0x1f320}, {0x1f32d, 0x1f5ff}, {0x1f600, 0x1f64f}, {0x1f680, 0x1f6ff},
    {0x1f900, 0x1f9ff}, {0x1fa70, 0x1faff}, {0x20000, 0x3fffd},
};

static bool lies_in(const Interval *intervals, size_t n, uint32_t character) {
  for (size_t i = 0; i < n; i++)
    if (intervals[i].first <= character && character <= intervals[i].last) return true;
  return false;
}

/* A lead byte of the form 110xxxxx, 1110xxxx or 11110xxx announces 2, 3 or 4 bytes. `smallest` refuses overlong
 * forms, which would let one character have several spellings. */
unsigned utf8_decode(const char *text, size_t size, uint32_t *character) {
  static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (size == 0) return 0;
  unsigned char lead = (unsigned char)text[0];
  unsigned length = lead < 0x80 ? 1 : lead >> 5 == 0x6 ? 2 : lead >> 4 == 0xe ? 3 : lead >> 3 == 0x1e ? 4 : 0;
  if (length == 0 || length > size) return 0;
  uint32_t value = length == 1 ? lead : lead & (0x7fu >> length);
  for (unsigned i = 1; i < length; i++) {
    unsigned char next = (unsigned char)text[i];
    if (next >> 6 != 2) return 0;
    value = value << 6 | (next & 0x3fu);
  }
  if (value < smallest[length] || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff)) return 0;
  *character = value;
  return length;
}

/* An approximation of wcwidth that does not depend on the locale; a width that is wrong only misplaces a caret. */
unsigned utf8_width(uint32_t character) {
  if (character < 0x300) return 1;
  if (lies_in(zero_width, sizeof zero_width / sizeof *zero_width, character)) return 0;
  return lies_in(double_width, sizeof double_width / sizeof *double_width, character) ? 2 : 1;
}

bool utf8_is_bidi_control(uint32_t character) {
  return character == 0x061c || character == 0x200e || character == 0x200f ||
         (character >= 0x202a && character <= 0x202e) || (character >= 0x2066 && character <= 0x2069);
}

/* C1 controls (0x80 to 0x9f) count as control characters: some terminals obey them. Escapes are ASCII, so their width
 * is their length. */
unsigned utf8_add_unit(StrBuf *out, const char *text, size_t size, unsigned *width) {
  uint32_t character = 0;
  unsigned length = utf8_decode(text, size, &character);
  bool is_control = character < 0x20 || (character >= 0x7f && character < 0xa0);
  size_t before = out->length;
  if (length && !is_control && !utf8_is_bidi_control(character)) {
    strbuf_add_n(out, text, length);
    *width = utf8_width(character);
    return length;
  }
  if (length && character == '\n')
    strbuf_add(out, "\\n");
  else if (length && character == '\t')
    strbuf_add(out, "\\t");
  else if (length > 1)
    strbuf_printf(out, "\\u%04x", character);
  else
    strbuf_printf(out, "\\x%02x", (unsigned char)text[0]);
  *width = (unsigned)(out->length - before);
  return length ? length : 1;
}

void utf8_add_escaped(StrBuf *out, const char *text, size_t size) {
  unsigned width;
  for (size_t i = 0; i < size;) i += utf8_add_unit(out, text + i, size - i, &width);
}

const char *text_shown(Arena *arena, const char *text) {
  StrBuf shown = strbuf_new(arena);
  utf8_add_escaped(&shown, text, strlen(text));
  return strcmp(shown.text, text) ? shown.text : text;
}
