/* What an editor tells of its texts, and the messages about them that it gets. See requests.h.
 *
 * A text is sent whole. What a notice lacks is no reason to stop: it is passed over, and the next whole text is right
 * again. A text gives messages about itself and about what it includes; those about one file, of whichever texts, are
 * sent together. What went wrong within a standard layer is shown where the text led there. */
#include <string.h>

#include "lsp/requests.h"

enum { SEVERITY_ERROR = 1, SEVERITY_WARNING = 2 };

// ---- what is told ----

static void put(const Request *request, const json_t *document, const json_t *text) {
  const char *uri = json_string_value(json_object_get(document, "uri"));
  if (uri && json_is_string(text))
    document_put(request->documents, uri, json_string_value(text), json_string_length(text),
                 json_object_get(document, "version"));
}

void notice_opened(const Request *request) {
  const json_t *document = json_object_get(request->params, "textDocument");
  put(request, document, json_object_get(document, "text"));
}

/* The last of several counts. One with a range cannot be taken: the server does not offer that. */
void notice_changed(const Request *request) {
  const json_t *document = json_object_get(request->params, "textDocument");
  const json_t *changes = json_object_get(request->params, "contentChanges");
  const json_t *last = json_array_get(changes, json_array_size(changes) ? json_array_size(changes) - 1 : 0);
  if (!document_find(request->documents, json_string_value(json_object_get(document, "uri")))) return;
  if (!json_object_get(last, "range")) put(request, document, json_object_get(last, "text"));
}

/* Files that texts include may have changed. */
void notice_saved(const Request *request) { documents_forget(request->documents); }

void notice_closed(const Request *request) {
  const json_t *document = json_object_get(request->params, "textDocument");
  Document *found = document_find(request->documents, json_string_value(json_object_get(document, "uri")));
  if (found) document_remove(request->documents, found);
}

void notice_configured(const Request *request) {
  const json_t *settings = json_object_get(request->params, "settings");
  documents_configure(request->documents, json_object_get(settings, "tfmc"));
}

// ---- one message ----

static SrcSpan shown_span(const DiagMessage *message, const Source *own) {
  if (message->span.source && !is_standard_source(message->span.source) && message->span.source->path[0] != '-')
    return message->span;
  for (size_t i = 0; i < message->notes.n; i++) {
    const SrcSpan span = message->notes.items[i].span;
    if (span.source && !is_standard_source(span.source) && span.source->path[0] != '-') return span;
  }
  return (SrcSpan){(Source *)own, 0, 0};
}

static void add_related(const Documents *documents, Arena *arena, json_t *list, SrcSpan span, const char *text) {
  json_t *location = location_of(documents, arena, span);
  if (location)
    json_array_append_new(list, json_pack("{s:o, s:o}", "location", location, "message", json_text(arena, text)));
}

static json_t *message_json(const Documents *documents, Arena *arena, const DiagMessage *message, SrcSpan span) {
  json_t *related = json_array();
  const char *text = message->text;
  if (message->span.source != span.source || message->span.begin != span.begin)
    add_related(documents, arena, related, message->span, "it is found here");
  for (size_t i = 0; i < message->notes.n; i++) {
    const DiagNote *note = &message->notes.items[i];
    if (note->span.source)
      add_related(documents, arena, related, note->span, note->text);
    else
      text = arena_printf(arena, "%s\n%s", text, note->text);
  }
  return json_pack("{s:o, s:i, s:s, s:s, s:o, s:o}", "range", range_of(span, documents->units), "severity",
                   message->severity == DIAG_ERROR ? SEVERITY_ERROR : SEVERITY_WARNING, "code", diag_id(message->code),
                   "source", "tfmc", "message", json_text(arena, text), "relatedInformation", related);
}

// ---- all messages of one text ----

static void add_unique(json_t *list, json_t *item) {
  size_t i;
  const json_t *other;
  bool is_known = false;
  json_array_foreach(list, i, other) is_known = is_known || json_equal(other, item);
  if (is_known)
    json_decref(item);
  else
    json_array_append_new(list, item);
}

/* URI -> list. */
static json_t *messages_of(Documents *documents, Document *document, Arena *arena) {
  json_t *reports = json_object();
  for (uint32_t variant = 0; variant < documents->n_variants; variant++) {
    const Analysis *analysis = document_analysis(documents, document, variant);
    for (size_t i = 0; i < analysis->diag.messages.n; i++) {
      const DiagMessage *message = &analysis->diag.messages.items[i];
      const SrcSpan span = shown_span(message, analysis->source);
      const char *uri = span.source ? uri_of_source(documents, arena, span.source) : document->uri;
      if (!uri) uri = document->uri;
      if (!json_object_get(reports, uri)) json_object_set_new(reports, uri, json_array());
      add_unique(json_object_get(reports, uri), message_json(documents, arena, message, span));
    }
  }
  return reports;
}

/* What all texts say of one file. */
static json_t *publication(const Documents *documents, const char *uri) {
  json_t *list = json_array();
  const Document *document = document_find(documents, uri);
  for (size_t i = 0; i < documents->all.n; i++) {
    const json_t *reported = json_object_get(documents->all.items[i]->reported, uri), *item;
    size_t k;
    json_array_foreach(reported, k, item) add_unique(list, json_incref((json_t *)item));
  }
  json_t *params = json_pack("{s:s, s:o}", "uri", uri, "diagnostics", list);
  if (document && json_is_integer(document->version)) json_object_set(params, "version", document->version);
  return params;
}

/* The files that had messages before are told of too, so that they lose those that are mended. */
static bool report(Documents *documents, Document *document, bool (*send)(void *, json_t *), void *context) {
  Arena *arena = arena_create();
  json_t *reports = messages_of(documents, document, arena), *files = json_object(), *unused;
  const char *uri;
  json_object_set_new(files, document->uri, json_null());
  json_object_update_missing(files, reports);
  if (document->reported) json_object_update_missing(files, document->reported);
  json_decref(document->reported);
  document->reported = reports;
  document->is_unreported = false;
  bool listens = true;
  json_object_foreach(files, uri, unused) listens = listens && send(context, publication(documents, uri));
  json_decref(files);
  arena_destroy(arena);
  return listens;
}

/* Files that only a text which is closed now had messages about. */
static bool report_orphans(Documents *documents, bool (*send)(void *, json_t *), void *context) {
  json_t *orphans = documents->orphans, *unused;
  const char *uri;
  bool listens = true;
  documents->orphans = NULL;
  json_object_foreach(orphans, uri, unused) listens = listens && send(context, publication(documents, uri));
  json_decref(orphans);
  return listens;
}

bool report_next(Documents *documents, bool (*send)(void *context, json_t *params), void *context, bool *is_done) {
  bool listens = report_orphans(documents, send, context);
  for (size_t i = 0; i < documents->all.n && listens; i++) {
    if (!documents->all.items[i]->is_unreported) continue;
    *is_done = false;
    return report(documents, documents->all.items[i], send, context);
  }
  *is_done = true;
  return listens;
}
