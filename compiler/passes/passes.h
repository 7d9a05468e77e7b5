/* Passes: rewriting a graph, in the order of the rows of passes.def.
 *
 * In: a verified graph, which is rewritten in place. Out: the same values computed by fewer, larger operations. What
 * was fused, and what was not and why, is recorded for --report and --require-fusion; the records belong to
 * log->arena. */
#ifndef TFM_PASSES_PASSES_H
#define TFM_PASSES_PASSES_H

#include <stdio.h>

#include "graph/graph.h"

/* What is computed again for the backward half, so that it is not kept from the forward half. */
typedef enum Recompute { RECOMPUTE_CHEAP, RECOMPUTE_NONE, RECOMPUTE_LAYER /* and what is cheap */ } Recompute;

/* Sees the graph before and after each pass that runs. Nodes are known by address: none is freed meanwhile. */
typedef struct PassObserver {
  void *context;
  void (*before)(void *context, Graph *graph, const char *pass);
  void (*after)(void *context, Graph *graph, bool changed, double seconds);
} PassObserver;

typedef struct PassOptions {
  int level;                    /* -O: 0 runs only what later stages need, 2 everything */
  const char *const *only;      /* run these alone; n_only 0: all */
  uint32_t n_only;
  const char *const *disabled;
  uint32_t n_disabled;
  const char *stop_after;       /* NULL: the end */
  const char *print_after;      /* a pass, "all" or "changed"; NULL: nothing */
  FILE *print_to;
  bool time_passes;             /* a table on print_to */
  bool verify_each;
  Recompute recompute;
  const char *dump_dir;         /* NULL, or a folder for NN-pass.graph files */
  const PassObserver *observer; /* NULL: nobody */
  struct StableNames *names;    /* for what is printed; NULL: numbers */
  bool shows_changes;           /* print_after prints what a pass changed, with `names`, in place of the graph */
} PassOptions;

typedef enum Fusion {
#define FUSION(Enum, name, pass, pattern, line) FUSION_##Enum,
#include "passes/fusions.def"
  N_FUSIONS
} Fusion;

typedef struct FusionInfo {
  const char *name;
  const char *pass; /* the row of passes.def that records it; "": something above the passes does */
  const char *pattern, *line;
} FusionInfo;

extern const FusionInfo fusion_table[N_FUSIONS];

typedef struct FusionRecord {
  Fusion fusion;
  bool done;
  const char *reason; /* what was fused into what, or why not */
  Origin origin;
  const Node *witness; /* while the passes run: `more` belongs to the reason as long as this node is in the graph */
  const char *more;
} FusionRecord;

typedef struct PassLog {
  Arena *arena;
  VEC(FusionRecord) records;
  bool looked_for[N_FUSIONS]; /* the pass that records it has run */
  bool happened[N_FUSIONS];   /* here or, if the caller says so, in another part of the same model */
} PassLog;

/* The graph becomes uniform first (graph_make_uniform), whatever the passes are: so it is what runs. False after an
 * error (unknown pass name; a verifier fault is an internal error). `log` may be NULL. */
bool passes_run(Graph *graph, Diag *diag, const PassOptions *options, PassLog *log);
/* The names in the order of the rows, for help and for "did you mean"; a pass that runs again stands there again. */
const char *const *pass_names(uint32_t *n);
/* What the pass of a row does, in one line. */
const char *pass_line(uint32_t row);
/* The report: fused operations, refusals with source lines, FLOPs and bytes as polynomials of the run-time sizes. */
void passes_report(StrBuf *out, Graph *graph, const PassLog *log);
/* Of the report, what products are computed in and why; for a graph before its passes too, which is renumbered. */
void passes_report_numbers(StrBuf *out, Graph *graph);
/* Errors (DIAG_REQUIRED_FUSION) for refusals of a fusion that --require-fusion named, or if it happened nowhere; an
 * error for an unknown name. */
bool passes_require(Diag *diag, const PassLog *log, const char *fusion);

#endif
