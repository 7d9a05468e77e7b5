/* Analysis: all that is known of one text: trees, names, messages, and the values that its elaboration made.
 *
 * In: the path of a text that is open, the texts that are, definitions in place of -D. Out: trees (around faults too),
 * names, messages, values by node, the graph if there is no error. Everything lives in one arena, until the text or
 * one that it includes changes. A file without a model is parsed alone. */
#ifndef TFM_LSP_ANALYSIS_H
#define TFM_LSP_ANALYSIS_H

#include "elaborate/elaborate.h"
#include "elaborate/values.h"
#include "lsp/names.h"

/* What an expression was, the first time that it was evaluated. */
typedef struct SeenValue {
  Value first;
  uint32_t n;   /* how often it was */
  bool differs; /* later ones are other than the first */
} SeenValue;

typedef struct Analysis {
  Arena *arena;
  Diag diag; /* of all models of the file */
  ParsedProgram *program;
  Names *names;
  Source *source; /* of the text itself */
  const Ast *file;
  Graph *graph; /* of its first model; NULL: there is none, or it has an error */
  Map seen;     /* address of a node -> SeenValue */
  const SizeTable *sizes;
} Analysis;

typedef struct AnalysisRequest {
  const char *path;
  OpenTexts open;
  const Names *standard;
  const Definition *definitions; /* of config values that the model has; others are left out */
  uint32_t n_definitions;
} AnalysisRequest;

Analysis *analysis_new(const AnalysisRequest *request);
void analysis_free(Analysis *analysis);

const SeenValue *analysis_value(const Analysis *analysis, const Ast *node);
/* "f32[batch, time, 768]", "4 modules Linear", "12": a value as people read it. */
void value_describe(StrBuf *out, const Analysis *analysis, const Value *value);
/* The innermost node of a file of the program at the offset whose value is known; NULL: there is none. */
const Ast *analysis_expression(const Analysis *analysis, const Ast *file, uint32_t offset);

#endif
