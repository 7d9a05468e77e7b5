/* Explorer: what is known of a model while its data are made, and how the files of this folder name things to each
 * other. Private to explore/.
 *
 * In: programs with their graphs before and after the passes, and their plans. Out: JSON. Everything lives in the
 * arena, but for the JSON, which belongs to whoever asked for it. Formulas, modules and places in files are numbers, so
 * that what many things have in common stands in the data once. */
#ifndef TFM_EXPLORE_EXPLORER_H
#define TFM_EXPLORE_EXPLORER_H

#include <jansson.h>

#include "explore/explore.h"
#include "explore/tracks.h"
#include "graph/stable_names.h"

typedef struct ExploredProgram {
  const char *name; /* whole, encoder, step, gradients */
  Graph *written;   /* before the passes, a copy; ids are dense */
  Graph *graph;     /* after them */
  const Plan *plan;
  PassLog log;
  Tracks *tracks;
} ExploredProgram;

typedef struct Explorer {
  Arena *arena;
  const ExploreRequest *request;
  VEC(ExploredProgram) programs;
  Map formulas; /* text -> number + 1 */
  json_t *formula_list;
  VEC(Source *) files;
  VEC(uint8_t *) file_lines; /* by file, by line: something refers to it */
  Map modules; /* path -> number + 1 */
  json_t *module_list;
} Explorer;

// ---- explore_data.c ----

/* Whether a page can hold so many operations. */
bool explorer_is_small(Arena *arena, const Graph *graph);
/* Runs the passes on a graph while they are watched; its plan is not made yet. `derived` as in compile_fuse. NULL after
 * an error. */
ExploredProgram *explorer_add_program(Explorer *x, const char *name, Graph *graph, const Derivation *derived);
/* Without a measurement: what such an instruction set does at a moderate clock, in round figures. */
Probe explorer_machine(const TargetInfo *target, int32_t threads);

// ---- formula_data.c ----

int explorer_formula(Explorer *x, const char *text);
int explorer_size(Explorer *x, const Graph *graph, const Size *size);
int explorer_plan_size(Explorer *x, const Plan *plan, tfm_size size);
/* The factor times the sizes, without the last `dropped` of them. */
const char *explorer_term(Explorer *x, const Plan *plan, const WorkTerm *term, uint32_t dropped);
/* The sizes of a term as factors, "*batch*time" if `times` is "*", without its factor and what else is a number: that
 * is multiplied into `factor`. `more` is added to the last size, as " + 1". */
const char *explorer_factors(Arena *arena, const Plan *plan, const WorkTerm *term, const char *times, const char *more,
                             double *factor);
int explorer_flop_written(Explorer *x, const Graph *graph);
/* The number of elements of a tensor. */
const char *explorer_elements(Explorer *x, const Plan *plan, const tfm_tensor_info *tensor);

// ---- source_places.c ----

/* A text as people may see it. */
json_t *explorer_text(Explorer *x, const char *text);
/* [file, line]; null: there is none. */
json_t *explorer_place(Explorer *x, SrcSpan span);
/* [[file, line] ...]: the line, then those of the calls that led there, each once. */
json_t *explorer_lines(Explorer *x, const Origin *origin);
/* Adds the lines of another origin. */
void explorer_add_lines(Explorer *x, json_t *lines, const Origin *origin);
int explorer_module(Explorer *x, const char *path);
/* All modules and weights of the model. */
void explorer_note_modules(Explorer *x, const Graph *graph);
json_t *explorer_files(Explorer *x);

// ---- page.c ----

/* Appends bytes as base64, with `=` at the end where it needs them. */
void base64_add(StrBuf *out, const unsigned char *bytes, size_t size);
/* Appends the text to the list, as raw deflate in base64. Returns its number there. */
int block_add(json_t *blocks, const StrBuf *text);

// ---- the parts of the data ----

json_t *explorer_program(Explorer *x, uint32_t number);            /* program_data.c */
void explorer_add_flow(Explorer *x, const Plan *plan, json_t *steps);   /* flow_data.c */
void explorer_add_operations(Explorer *x, uint32_t number, json_t *to); /* operation_data.c */
/* Numbers of the operations of a graph in their list, by id; -1: no operation. */
int32_t *explorer_operation_numbers(Explorer *x, Graph *graph);
json_t *explorer_sizes(Explorer *x, const ExploredProgram *program);    /* size_data.c */
/* What the page begins with. */
int64_t explorer_default_size(const Explorer *x, const Graph *graph, uint32_t symbol);
void explorer_add_workspace(Explorer *x, const ExploredProgram *program, json_t *to);
json_t *explorer_fusions(Explorer *x);                             /* pass_data.c */
json_t *explorer_passes(Explorer *x);

#endif
