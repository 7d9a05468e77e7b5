/* Messages as text for a terminal, and as one JSON object a line.
 *
 * In: a Diag. Out: place, severity, text, code, the source line with a caret, notes. Control characters, direction
 * controls and malformed UTF-8 of the user's text are escaped, so neither a model nor a file name can drive the
 * terminal. Nothing is refused. */
#include "diag/render.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "diag/source.h"

/* Units of a source line that are shown, and how many of them stand before the caret if the line is cut there. */
enum { SHOWN_UNITS = 120, SHOWN_BEFORE_CARET = 60 };

static const char *const severity_text[] = {[DIAG_ERROR] = "error", [DIAG_WARNING] = "warning", [DIAG_NOTE] = "note"};
static const char *const severity_color[] = {
    [DIAG_ERROR] = "\033[1;31m", [DIAG_WARNING] = "\033[1;35m", [DIAG_NOTE] = "\033[1;36m"};
#define COLOR_PLACE "\033[1m"
#define COLOR_CARET "\033[1;32m"
#define COLOR_OFF "\033[0m"

typedef struct Renderer {
  StrBuf *out;
  Arena *arena;
  bool with_color;
} Renderer;

static void add_color(Renderer *r, const char *color) {
  if (r->with_color) strbuf_add(r->out, color);
}

// ---- the first line ----

/* A message without a source and without a place is about the command line: the program speaks for itself. */
static void add_place(Renderer *r, SrcSpan span, const char *place) {
  if (span.source) {
    SrcPlace at = source_place(span.source, span.begin);
    utf8_add_escaped(r->out, span.source->path, strlen(span.source->path));
    strbuf_printf(r->out, ":%u:%u: ", at.line, at.column);
  } else {
    const char *text = place ? place : "tfmc";
    utf8_add_escaped(r->out, text, strlen(text));
    strbuf_add(r->out, ": ");
  }
}

static void add_heading(Renderer *r, SrcSpan span, const char *place, DiagSeverity severity) {
  add_color(r, COLOR_PLACE);
  add_place(r, span, place);
  add_color(r, COLOR_OFF);
  add_color(r, severity_color[severity]);
  strbuf_printf(r->out, "%s: ", severity_text[severity]);
  add_color(r, COLOR_OFF);
}

// ---- the source line and the caret ----

typedef struct Window {
  const char *line;
  uint32_t length, begin, caret, end; /* bytes of the line: what is shown, what is marked */
  bool is_cut_before;
} Window;

/* Start of the unit before `at`: of a character, or of a malformed byte. The longest character has 4 bytes; the
 * shortest step back that decodes completely is it. */
static uint32_t unit_before(const char *line, uint32_t at) {
  for (uint32_t back = 1; back <= 4 && back <= at; back++) {
    uint32_t character;
    if (utf8_decode(line + at - back, back, &character) == back) return at - back;
  }
  return at - 1;
}

/* What of the line is shown: from SHOWN_BEFORE_CARET units before the caret. A span that goes on over the line end is
 * marked up to there; an empty one still gets its caret. */
static Window window_around(SrcSpan span) {
  SrcPlace at = source_place(span.source, span.begin);
  Window w = {0};
  w.line = source_line(span.source, at.line, &w.length);
  w.caret = at.column - 1 < w.length ? at.column - 1 : w.length;
  uint32_t marked = span.end > span.begin ? span.end - span.begin : 1;
  w.end = marked < w.length - w.caret ? w.caret + marked : w.length;
  uint32_t units = 0;
  w.begin = w.caret;
  while (w.begin > 0 && units++ < SHOWN_BEFORE_CARET) w.begin = unit_before(w.line, w.begin);
  w.is_cut_before = w.begin > 0;
  return w;
}

static void add_repeated(StrBuf *out, char c, unsigned n) {
  for (unsigned i = 0; i < n; i++) strbuf_add_char(out, c);
}

/* What stands under one unit of the line: a tab under a tab, so that the terminal keeps both lines in step. */
static void add_mark(StrBuf *marks, const Window *w, uint32_t at, unsigned bytes, unsigned width) {
  if (at <= w->caret && w->caret < at + bytes) {
    strbuf_add_char(marks, '^');
    if (w->line[at] == '\t') return;
    add_repeated(marks, '~', width > 1 ? width - 1 : 0);
  } else if (w->line[at] == '\t') {
    strbuf_add_char(marks, '\t');
  } else {
    add_repeated(marks, at > w->caret ? '~' : ' ', width);
  }
}

/* The source line and, below it, the marks. Both are walked unit by unit, because an escaped byte or a wide character
 * takes more columns than one. */
static void add_excerpt(Renderer *r, SrcSpan span) {
  Window w = window_around(span);
  StrBuf marks = strbuf_new(r->arena);
  strbuf_printf(r->out, "%5u | ", source_place(span.source, span.begin).line);
  if (w.is_cut_before) {
    strbuf_add(r->out, "...");
    strbuf_add(&marks, "   ");
  }
  uint32_t i = w.begin;
  for (unsigned units = 0; i < w.length && units < SHOWN_UNITS; units++) {
    unsigned width = 1, bytes = 1;
    if (w.line[i] == '\t')
      strbuf_add_char(r->out, '\t');
    else
      bytes = utf8_add_unit(r->out, w.line + i, w.length - i, &width);
    if (i < w.end) add_mark(&marks, &w, i, bytes, width);
    i += bytes;
  }
  if (i < w.length) strbuf_add(r->out, "...");
  if (w.caret == w.length) strbuf_add_char(&marks, '^');
  strbuf_add(r->out, "\n      | ");
  add_color(r, COLOR_CARET);
  strbuf_add_n(r->out, marks.text, marks.length);
  add_color(r, COLOR_OFF);
  strbuf_add_char(r->out, '\n');
}

// ---- messages ----

/* The excerpt belongs to the message; notes show their place alone, since several of them would bury the message. */
static void add_message(Renderer *r, const DiagMessage *message) {
  add_heading(r, message->span, message->place, message->severity);
  utf8_add_escaped(r->out, message->text, strlen(message->text));
  strbuf_printf(r->out, " [%s]\n", diag_id(message->code));
  if (message->span.source) add_excerpt(r, message->span);
  for (size_t i = 0; i < message->notes.n; i++) {
    const DiagNote *note = &message->notes.items[i];
    add_heading(r, note->span, note->place, DIAG_NOTE);
    utf8_add_escaped(r->out, note->text, strlen(note->text));
    strbuf_add_char(r->out, '\n');
  }
}

void render_text(StrBuf *out, const Diag *diag, bool with_color) {
  Renderer r = {out, diag->arena, with_color};
  for (size_t i = 0; i < diag->messages.n; i++) add_message(&r, &diag->messages.items[i]);
}

void render_summary(StrBuf *out, const Diag *diag, const char *addition) {
  unsigned n_warnings = 0;
  for (size_t i = 0; i < diag->messages.n; i++) n_warnings += diag->messages.items[i].severity == DIAG_WARNING;
  if (!diag->n_errors && !n_warnings) return;
  strbuf_add(out, "tfmc: ");
  if (diag->n_errors > DIAG_MAX_ERRORS)
    strbuf_printf(out, "too many errors, the first %d are shown", DIAG_MAX_ERRORS);
  else if (diag->n_errors)
    strbuf_printf(out, "%d error%s", diag->n_errors, diag->n_errors == 1 ? "" : "s");
  if (n_warnings)
    strbuf_printf(out, "%s%u warning%s", diag->n_errors ? ", " : "", n_warnings, n_warnings == 1 ? "" : "s");
  strbuf_add(out, addition);
  strbuf_add_char(out, '\n');
}

// ---- JSON ----

/* JSON can escape any control character, but it has no spelling for malformed UTF-8. */
static bool is_utf8(const char *text) {
  size_t size = strlen(text);
  uint32_t character;
  for (size_t i = 0; i < size;) {
    unsigned length = utf8_decode(text + i, size - i, &character);
    if (!length) return false;
    i += length;
  }
  return true;
}

/* Malformed text is escaped as on a terminal, so that the line stays valid JSON whatever the file holds. */
static void set_text(Arena *arena, json_t *object, const char *key, const char *text) {
  if (!is_utf8(text)) {
    StrBuf escaped = strbuf_new(arena);
    utf8_add_escaped(&escaped, text, strlen(text));
    text = escaped.text;
  }
  if (json_object_set_new(object, key, json_string(text))) out_of_memory("while writing a message", 0);
}

static void set_number(json_t *object, const char *key, uint32_t number) {
  if (json_object_set_new(object, key, json_integer(number))) out_of_memory("while writing a message", 0);
}

static void set_place(Arena *arena, json_t *object, SrcSpan span, const char *place) {
  if (!span.source) {
    if (place) set_text(arena, object, "file", place);
    return;
  }
  SrcPlace begin = source_place(span.source, span.begin);
  SrcPlace end = source_place(span.source, span.end > span.begin ? span.end : span.begin);
  set_text(arena, object, "file", span.source->path);
  set_number(object, "line", begin.line);
  set_number(object, "column", begin.column);
  set_number(object, "end_line", end.line);
  set_number(object, "end_column", end.column);
}

static json_t *notes_of(Arena *arena, const DiagMessage *message) {
  json_t *notes = json_array();
  for (size_t i = 0; i < message->notes.n; i++) {
    json_t *note = json_object();
    set_text(arena, note, "message", message->notes.items[i].text);
    set_place(arena, note, message->notes.items[i].span, message->notes.items[i].place);
    if (json_array_append_new(notes, note)) out_of_memory("while writing a message", 0);
  }
  return notes;
}

static void add_object(StrBuf *out, json_t *object) {
  char *line = json_dumps(object, JSON_COMPACT);
  if (!line) out_of_memory("while writing a message", 0);
  strbuf_add(out, line);
  strbuf_add_char(out, '\n');
  free(line);
  json_decref(object);
}

void render_json(StrBuf *out, const Diag *diag) {
  static const char *const severities[] = {[DIAG_ERROR] = "error", [DIAG_WARNING] = "warning", [DIAG_NOTE] = "note"};
  for (size_t i = 0; i < diag->messages.n; i++) {
    const DiagMessage *message = &diag->messages.items[i];
    json_t *object = json_object();
    set_text(diag->arena, object, "severity", severities[message->severity]);
    set_text(diag->arena, object, "code", diag_id(message->code));
    set_text(diag->arena, object, "message", message->text);
    set_place(diag->arena, object, message->span, message->place);
    if (message->notes.n && json_object_set_new(object, "notes", notes_of(diag->arena, message)))
      out_of_memory("while writing a message", 0);
    add_object(out, object);
  }
  if (diag->n_errors <= DIAG_MAX_ERRORS) return;
  json_t *object = json_object();
  set_text(diag->arena, object, "severity", "note");
  set_text(diag->arena, object, "message", "too many errors, the first 20 are shown");
  add_object(out, object);
}
