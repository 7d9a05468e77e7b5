#define _XOPEN_SOURCE 700 /* realpath */

/* Open texts and their analyses. See open_texts.h. */
#include "lsp/open_texts.h"

#include <stdlib.h>
#include <string.h>

#include "lsp/standard_copies.h"

// ---- texts ----

void documents_open(Documents *documents) {
  Arena *arena = arena_create();
  *documents = (Documents){.arena = arena, .standard = names_standard(arena), .n_variants = 1};
}

void documents_close(Documents *documents) {
  while (documents->all.n) document_remove(documents, documents->all.items[0]);
  json_decref(documents->orphans);
  arena_destroy(documents->settings);
  arena_destroy(documents->arena);
}

Document *document_find(const Documents *documents, const char *uri) {
  for (size_t i = 0; uri && i < documents->all.n; i++)
    if (strcmp(documents->all.items[i]->uri, uri) == 0) return documents->all.items[i];
  return NULL;
}

static void forget(Document *document) {
  for (uint32_t i = 0; i < MOST_VARIANTS; i++) {
    analysis_free(document->analyses[i]);
    document->analyses[i] = NULL;
  }
  document->is_unreported = true;
}

void documents_forget(Documents *documents) {
  for (size_t i = 0; i < documents->all.n; i++) forget(documents->all.items[i]);
}

bool documents_have_news(const Documents *documents) {
  for (size_t i = 0; i < documents->all.n; i++)
    if (documents->all.items[i]->is_unreported) return true;
  return false;
}

/* The real path, since that is how includes name it; a file that is not there yet keeps the path that it will have. */
static char *real_path(Arena *arena, const char *path) {
  char *real = realpath(path, NULL);
  char *copy = arena_strdup(arena, real ? real : path);
  free(real);
  return copy;
}

Document *document_put(Documents *documents, const char *uri, const char *text, size_t size, const json_t *version) {
  Arena *arena = arena_create();
  Document *document = document_find(documents, uri);
  const char *path = path_of_uri(arena, uri);
  if (!path || size > INT32_MAX) {
    arena_destroy(arena);
    return NULL;
  }
  if (!document) {
    document = calloc(1, sizeof *document);
    if (!document) out_of_memory("for a text", sizeof *document);
    vec_push(documents->arena, &documents->all, document);
  }
  documents_forget(documents);
  Arena *old = document->arena;
  document->arena = arena;
  document->uri = arena_strdup(arena, uri);
  document->path = real_path(arena, path);
  document->text = (NamedText){document->path, arena_strndup(arena, text, size), size, true};
  json_decref(document->version);
  document->version = json_deep_copy(version);
  document->is_unreported = true;
  arena_destroy(old);
  return document;
}

void document_remove(Documents *documents, Document *document) {
  size_t n = 0;
  documents_forget(documents); /* others may include it */
  for (size_t i = 0; i < documents->all.n; i++)
    if (documents->all.items[i] != document) documents->all.items[n++] = documents->all.items[i];
  documents->all.n = n;
  if (!documents->orphans) documents->orphans = json_object();
  json_object_set_new(documents->orphans, document->uri, json_null());
  if (document->reported) json_object_update(documents->orphans, document->reported);
  json_decref(document->version);
  json_decref(document->reported);
  arena_destroy(document->arena);
  free(document);
}

// ---- settings ----

static Variant read_variant(Arena *arena, const json_t *list) {
  Definition *definitions = ARENA_ARRAY(arena, Definition, json_array_size(list));
  Variant variant = {definitions, 0};
  size_t i;
  json_t *item;
  json_array_foreach(list, i, item) {
    const char *text = json_string_value(item), *equals = text ? strchr(text, '=') : NULL;
    if (!equals || equals == text) continue;
    definitions[variant.n++] =
        (Definition){arena_strndup(arena, text, (size_t)(equals - text)), arena_strdup(arena, equals + 1)};
  }
  return variant;
}

void documents_configure(Documents *documents, const json_t *settings) {
  const json_t *variants = json_object_get(settings, "variants"), *define = json_object_get(settings, "define");
  Arena *arena = arena_create();
  documents_forget(documents);
  arena_destroy(documents->settings);
  documents->settings = arena;
  documents->n_variants = 0;
  documents->shows_hints = json_is_true(json_object_get(settings, "hints"));
  documents->hides_costs = json_is_false(json_object_get(settings, "costs"));
  for (size_t i = 0; i < json_array_size(variants) && documents->n_variants < MOST_VARIANTS; i++)
    documents->variants[documents->n_variants++] = read_variant(arena, json_array_get(variants, i));
  if (documents->n_variants == 0) documents->variants[documents->n_variants++] = read_variant(arena, define);
}

// ---- analyses ----

static const NamedText *find_open(void *context, const char *resolved) {
  const Documents *documents = context;
  for (size_t i = 0; i < documents->all.n; i++)
    if (strcmp(documents->all.items[i]->path, resolved) == 0) return &documents->all.items[i]->text;
  return NULL;
}

Analysis *document_analysis(Documents *documents, Document *document, uint32_t variant) {
  if (!document->analyses[variant])
    document->analyses[variant] = analysis_new(&(AnalysisRequest){document->path,
                                                                  {documents, find_open},
                                                                  documents->standard,
                                                                  documents->variants[variant].definitions,
                                                                  documents->variants[variant].n});
  return document->analyses[variant];
}

static bool is_source_of(const Source *source, const Document *document) {
  char *real = realpath(source->path, NULL);
  const bool is_same = strcmp(real ? real : source->path, document->path) == 0;
  free(real);
  return is_same;
}

/* The file of the document in another program. */
static bool find_in(Analysis *analysis, Site *site) {
  for (size_t i = 0; i < analysis->program->files.n; i++) {
    const ParsedFile *file = &analysis->program->files.items[i];
    if (!is_source_of(file->source, site->document)) continue;
    site->analysis = analysis;
    site->source = file->source;
    site->file = file->ast;
    return true;
  }
  return false;
}

static void find_site(Documents *documents, Site *site) {
  Analysis *own = site->analysis = document_analysis(documents, site->document, 0);
  site->source = own->source;
  site->file = own->file;
  for (size_t i = 0; !own->sizes && i < documents->all.n; i++) {
    Document *other = documents->all.items[i];
    if (other == site->document) continue;
    Analysis *analysis = document_analysis(documents, other, 0);
    if (analysis->sizes && find_in(analysis, site)) return;
  }
}

bool site_of(Documents *documents, const json_t *params, Site *site) {
  const json_t *text = json_object_get(params, "textDocument"), *position = json_object_get(params, "position");
  *site = (Site){.document = document_find(documents, json_string_value(json_object_get(text, "uri")))};
  if (!site->document) return false;
  find_site(documents, site);
  return site->source && (!position || offset_of(site->source, position, documents->units, &site->offset));
}

// ---- where sources are ----

bool is_standard_source(const Source *source) { return source && source->path[0] == '<'; }

const char *uri_of_source(const Documents *documents, Arena *arena, const Source *source) {
  if (!source) return NULL;
  if (is_standard_source(source)) {
    const char *copy = standard_copy(arena, source->path);
    return copy ? uri_of_path(arena, copy) : NULL;
  }
  for (size_t i = 0; i < documents->all.n; i++)
    if (is_source_of(source, documents->all.items[i])) return arena_strdup(arena, documents->all.items[i]->uri);
  return source->path[0] == '/' ? uri_of_path(arena, source->path) : NULL;
}

json_t *location_of(const Documents *documents, Arena *arena, SrcSpan span) {
  const char *uri = uri_of_source(documents, arena, span.source);
  if (!uri) return NULL;
  return json_pack("{s:s, s:o}", "uri", uri, "range", range_of(span, documents->units));
}
