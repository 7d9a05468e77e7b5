/* What stands in columns at the ends of lines. See columns.h. */
#include "format/columns.h"

uint32_t text_width(const char *text) {
  uint32_t width = 0;
  for (; *text; text++) width += ((unsigned char)*text & 0xc0) != 0x80;
  return width;
}

typedef struct Ends {   /* of a line: how wide it is so far, and what comes next */
  uint32_t width, next; /* next 0: nothing does */
} Ends;

static bool goes_on(const FormatLine *line, const FormatLine *before) {
  return !line->after_empty && line->indent == before->indent;
}

/* The column at which all of [first, end) can have what comes next; lines that are too wide for it stay as they are. */
static uint32_t common_column(const Ends *ends, size_t first, size_t end) {
  uint32_t column = 0, bound = UINT32_MAX;
  for (;;) {
    bool is_too_wide = false;
    column = 0;
    for (size_t i = first; i < end; i++)
      if (ends[i].width < bound && ends[i].width > column) column = ends[i].width;
    for (size_t i = first; i < end; i++)
      is_too_wide |= ends[i].width <= column && column + 1 + ends[i].next > MOST_COLUMNS;
    if (!is_too_wide || !column) return column;
    bound = column;
  }
}

static bool take_part(const FormatLines *lines, const Ends *ends, size_t i) {
  return i < lines->all.n && ends[i].next > 0;
}

/* Widens lines up to the columns of their runs; `blanks` says by how much. */
static void align(const FormatLines *lines, Ends *ends, uint32_t *blanks) {
  for (size_t first = 0; first < lines->all.n;) {
    size_t end = first + 1;
    while (take_part(lines, ends, first) && take_part(lines, ends, end) &&
           goes_on(&lines->all.items[end], &lines->all.items[end - 1]))
      end++;
    const uint32_t column = common_column(ends, first, end);
    for (size_t i = first; i < end; i++) {
      blanks[i] = !ends[i].next ? 0 : ends[i].width < column ? column - ends[i].width + 1 : 1;
      ends[i].width += blanks[i] + ends[i].next;
    }
    first = end;
  }
}

static void add_blanks(StrBuf *out, uint32_t n) {
  while (n--) strbuf_add_char(out, ' ');
}

void lines_print(StrBuf *out, const FormatLines *lines) {
  const size_t n = lines->all.n;
  Ends *ends = ARENA_ARRAY(out->arena, Ends, n + 1);
  uint32_t *before_path = ARENA_ARRAY(out->arena, uint32_t, n + 1),
           *before_comment = ARENA_ARRAY(out->arena, uint32_t, n + 1);
  for (size_t i = 0; i < n; i++) {
    const FormatLine *line = &lines->all.items[i];
    ends[i] = (Ends){line->indent + text_width(line->text), line->path ? text_width(line->path) : 0};
  }
  align(lines, ends, before_path);
  for (size_t i = 0; i < n; i++)
    ends[i].next = lines->all.items[i].comment ? text_width(lines->all.items[i].comment) : 0;
  align(lines, ends, before_comment);
  for (size_t i = 0; i < n; i++) {
    const FormatLine *line = &lines->all.items[i];
    if (line->after_empty) strbuf_add_char(out, '\n');
    add_blanks(out, line->indent);
    strbuf_add(out, line->text);
    add_blanks(out, before_path[i]);
    if (line->path) strbuf_add(out, line->path);
    add_blanks(out, before_comment[i]);
    if (line->comment) strbuf_add(out, line->comment);
    strbuf_add_char(out, '\n');
  }
}
