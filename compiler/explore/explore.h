/* Explore: what the compiler made of a model, as data and as a page to look at.
 *
 * In: the graph of a model as the elaborator made it, and what the command line says about targets and sizes. Out: one
 * JSON value (data.def has a row for each member), or one page of HTML that has it inside and needs nothing else. The
 * same model gives the same bytes each time on one machine. Every graph, plan and kernel comes from the functions that
 * runs and libraries call. Refused (DIAG_LIMIT): programs with more operations than a page can hold. */
#ifndef TFM_EXPLORE_EXPLORE_H
#define TFM_EXPLORE_EXPLORE_H

#include "compile/compile_model.h"
#include "lsp/line_cost.h"
#include "measure/roofline.h"
#include "parse/include.h"
#include "train/graphs.h"

typedef struct ExploreSize { /* a default of a run-time size, in place of that of the page */
  const char *name;
  int64_t value;
} ExploreSize;

typedef struct ExploreRequest {
  CompileRequest compile; /* without report and observer */
  const char *version, *command;
  const ParsedProgram *program;
  Objective *objective;   /* of the train block; NULL: there is none */
  const TargetInfo *const *targets; /* the first is the one that is planned for */
  uint32_t n_targets;
  int32_t threads;        /* that the page begins with */
  const ExploreSize *sizes;
  uint32_t n_sizes;
  bool is_for_comparison; /* no text of kernels and no maps */
} ExploreRequest;

/* The graph becomes the explorer's. NULL after an error; else json_decref when done. */
struct json_t *explore_data(const ExploreRequest *request, Graph *graph);
/* Adds to the data of a model how another differs, whose data were made for comparison. */
void explore_compare(Arena *arena, struct json_t *data, const struct json_t *other);
/* Appends data as text in which no `<` stands, so that it may stand in a script. */
void explore_print(StrBuf *out, const struct json_t *data);
void explore_page(StrBuf *out, const struct json_t *data, const char *title);

/* What lines cost on this machine's instruction set, for the language server: arithmetic as a formula of the sizes, and
 * the share of the time at best with the sizes that a page begins with. A line has what its calls have, too. */
CostLines explore_line_costs;

#endif
