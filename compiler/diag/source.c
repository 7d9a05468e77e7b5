#include "diag/source.h"

#include <string.h>

Source *source_new(Arena *arena, const char *path, const char *text, uint32_t size) {
  Source *source = ARENA_NEW(arena, Source);
  source->arena = arena;
  source->path = path;
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

static void need_lines(Source *source) {
  if (source->line_starts) return;
  source->n_lines = find_lines(source, NULL);
  source->line_starts = ARENA_ARRAY(source->arena, uint32_t, source->n_lines);
  find_lines(source, source->line_starts);
}

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
