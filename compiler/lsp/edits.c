/* Changes of a text that the server proposes: its layout, and cures that messages name. See requests.h. */
#include <string.h>

#include "format/format.h"
#include "format/line_diff.h"
#include "lsp/requests.h"

// ---- layout ----

/* Behind the last line lies the end of the text, whether that ends a line or not. */
static json_t *line_range(uint32_t first, uint32_t n) {
  return json_pack("{s:{s:I, s:i}, s:{s:I, s:i}}", "start", "line", (json_int_t)first, "character", 0, "end", "line",
                   (json_int_t)first + n, "character", 0);
}

/* Only lines that differ, so that an editor keeps its place. A text with other line ends is given whole. */
json_t *request_formatting(const Request *request) {
  Site site;
  if (!request_site(request, &site)) return NULL;
  const NamedText *text = &site.document->text;
  Diag diag = diag_new(request->arena);
  StrBuf old = strbuf_new(request->arena);
  strbuf_add_n(&old, text->text, text->size);
  const StrBuf *made = format_text(request->arena, &diag, site.document->path, &old);
  if (!made) return request_fails(request, FAULT_FAILED, "a text with errors is not laid out");
  json_t *edits = json_array();
  const bool has_returns = memchr(text->text, '\r', text->size) != NULL;
  const LineDiff diff = line_diff(request->arena, &old, made);
  if (has_returns && diff.changes.n) {
    const SrcSpan whole = {site.source, 0, site.source->size};
    json_array_append_new(
        edits, json_pack("{s:o, s:s}", "range", range_of(whole, request->documents->units), "newText", made->text));
  }
  for (size_t i = 0; i < diff.changes.n && !has_returns; i++) {
    const LineChange *change = &diff.changes.items[i];
    const char *begin = diff.new.text + diff.new.starts[change->new_first];
    const size_t size = diff.new.starts[change->new_first + change->new_n] - diff.new.starts[change->new_first];
    json_array_append_new(
        edits, json_pack("{s:o, s:s#}", "range", line_range(change->old_first, change->old_n), "newText", begin, size));
  }
  return edits;
}

// ---- cures ----

/* What a message proposes in place of the word that it is about, or NULL. */
static const char *proposal(Arena *arena, const char *message) {
  static const struct {
    const char *before;
    char end;
  } forms[] = {{"did you mean '", '\''}, {": it is called ", '\0'}, {": write '", '\''}};
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    const char *found = strstr(message, forms[i].before);
    if (!found) continue;
    found += strlen(forms[i].before);
    const size_t n = strspn(found, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");
    const bool ends = forms[i].end ? found[n] == forms[i].end : !found[n] || found[n] == ',' || found[n] == '\n';
    if (n && ends) return arena_strndup(arena, found, n);
  }
  return NULL;
}

/* The quoted word of the message that stands in its span. */
static bool find_word(Arena *arena, const DiagMessage *message, SrcSpan *span) {
  for (const char *open = strchr(message->text, '\''); open; open = strchr(open + 1, '\'')) {
    const char *close = strchr(open + 1, '\'');
    if (!close) return false;
    const char *word = arena_strndup(arena, open + 1, (size_t)(close - open - 1));
    const size_t n = strlen(word);
    for (uint32_t at = message->span.begin; n && at + n <= message->span.end; at++) {
      if (memcmp(message->span.source->text + at, word, n) != 0) continue;
      *span = (SrcSpan){message->span.source, at, at + (uint32_t)n};
      return true;
    }
    open = close;
  }
  return false;
}

static void add_action(const Request *request, json_t *list, const Document *document, SrcSpan span, const char *text) {
  json_t *edit = json_pack("{s:{s:[{s:o, s:s}]}}", "changes", document->uri, "range",
                           range_of(span, request->documents->units), "newText", text);
  json_array_append_new(list, json_pack("{s:o, s:s, s:o, s:b}", "title",
                                        json_text(request->arena, arena_printf(request->arena, "Change to '%s'", text)),
                                        "kind", "quickfix", "edit", edit, "isPreferred", 1));
}

json_t *request_actions(const Request *request) {
  Site site;
  uint32_t begin, end;
  const json_t *range = json_object_get(request->params, "range");
  if (!request_site(request, &site)) return NULL;
  const Analysis *analysis = document_analysis(request->documents, site.document, 0);
  const PlaceUnits units = request->documents->units;
  if (!analysis->source || !offset_of(analysis->source, json_object_get(range, "start"), units, &begin) ||
      !offset_of(analysis->source, json_object_get(range, "end"), units, &end))
    return request_fails(request, FAULT_PARAMS, "no range is named");
  json_t *list = json_array();
  for (size_t i = 0; i < analysis->diag.messages.n; i++) {
    const DiagMessage *message = &analysis->diag.messages.items[i];
    SrcSpan word;
    const bool is_here =
        message->span.source == analysis->source && message->span.begin <= end && message->span.end >= begin;
    const char *text = is_here ? proposal(request->arena, message->text) : NULL;
    if (text && find_word(request->arena, message, &word)) add_action(request, list, site.document, word, text);
  }
  return list;
}
