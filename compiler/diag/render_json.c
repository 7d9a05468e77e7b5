#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "diag/render.h"
#include "diag/utf8.h"

/* JSON holds any control character, but no malformed UTF-8. */
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

static void set_text(Arena *arena, json_t *object, const char *key, const char *text) {
  if (!is_utf8(text)) {
    StrBuf escaped = strbuf_new(arena);
    utf8_add_escaped(&escaped, text, strlen(text));
    text = escaped.text;
  }
  if (json_object_set_new(object, key, json_string(text))) out_of_memory();
}

static void set_number(json_t *object, const char *key, uint32_t number) {
  if (json_object_set_new(object, key, json_integer(number))) out_of_memory();
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
    if (json_array_append_new(notes, note)) out_of_memory();
  }
  return notes;
}

static void add_object(StrBuf *out, json_t *object) {
  char *line = json_dumps(object, JSON_COMPACT);
  if (!line) out_of_memory();
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
    if (message->notes.n && json_object_set_new(object, "notes", notes_of(diag->arena, message))) out_of_memory();
    add_object(out, object);
  }
  if (diag->n_errors <= DIAG_MAX_ERRORS) return;
  json_t *object = json_object();
  set_text(diag->arena, object, "severity", "note");
  set_text(diag->arena, object, "message", "too many errors, the first 20 are shown");
  add_object(out, object);
}
