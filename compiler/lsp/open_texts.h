/* Documents: the texts that an editor has open, and what is known of each.
 *
 * In: texts as they are opened, changed and closed, settings. Out: an Analysis for each, made when it is asked for and
 * made anew after any text changed, since one may include another; a place in a text with the analysis that knows most
 * of it. */
#ifndef TFM_LSP_OPEN_TEXTS_H
#define TFM_LSP_OPEN_TEXTS_H

#include <jansson.h>

#include "lsp/analysis.h"
#include "lsp/line_cost.h"
#include "lsp/places.h"

enum { MOST_VARIANTS = 8 };

/* Definitions that models are elaborated with: each variant gives messages, the first one values. */
typedef struct Variant {
  const Definition *definitions;
  uint32_t n;
} Variant;

typedef struct Document {
  Arena *arena;     /* of this text */
  char *uri, *path; /* the path without links, if the file exists */
  NamedText text;
  json_t *version;
  bool is_unreported; /* the messages of this text have not been sent */
  Analysis *analyses[MOST_VARIANTS];
  json_t *reported; /* URI -> its messages, as they were sent last; NULL: none */
} Document;

typedef struct Documents {
  Arena *arena; /* lives as long as the server */
  VEC(Document *) all;
  const Names *standard;
  Arena *settings;
  Variant variants[MOST_VARIANTS];
  uint32_t n_variants; /* at least 1 */
  PlaceUnits units;
  bool shows_hints; /* shapes beside names, where the editor asks for them */
  bool hides_costs; /* of lines */
  CostLines *cost_lines; /* NULL: lines have no costs */
  json_t *orphans; /* URIs that a text which was closed has reported on; NULL: none */
} Documents;

/* Where a request points, in the analysis that knows most of the text: its own, or that of an open model which includes
 * it. */
typedef struct Site {
  Document *document;
  Analysis *analysis;
  Source *source;
  const Ast *file; /* NULL: nothing could be read */
  uint32_t offset;
} Site;

void documents_open(Documents *documents);
void documents_close(Documents *documents);
Document *document_find(const Documents *documents, const char *uri);
/* Opens a text or takes a new one for it. NULL: the URI is no file, or the text too long. */
Document *document_put(Documents *documents, const char *uri, const char *text, size_t size, const json_t *version);
void document_remove(Documents *documents, Document *document);
/* Whether a text has messages that have not been sent. */
bool documents_have_news(const Documents *documents);
/* All is made anew: a text or file has changed. */
void documents_forget(Documents *documents);
/* Takes {"variants": [["NAME=VALUE", ...], ...]} or {"define": ["NAME=VALUE", ...]}, and
 * {"hints": true, "costs": false}. */
void documents_configure(Documents *documents, const json_t *settings);

Analysis *document_analysis(Documents *documents, Document *document, uint32_t variant);
/* False if {textDocument, position} names no place of an open text. Without a position the offset is 0. */
bool site_of(Documents *documents, const json_t *params, Site *site);
/* The URI of a source: of the open text, of the file, or of a copy of a standard file. NULL: it has none. */
const char *uri_of_source(const Documents *documents, Arena *arena, const Source *source);
bool is_standard_source(const Source *source);
/* {uri, range} of a span; NULL: it lies in no file. */
json_t *location_of(const Documents *documents, Arena *arena, SrcSpan span);

#endif
