/* tfmc verify --compare-with=f32: what numbers of fewer bits do to a model.
 *
 * In: a model with rules for the precision of weights or attentions, weights, inputs. Out: how far they move outputs
 * and modules, and which of them cost most; an error where an output is less like that of f32 than is asked for.
 * Refuses models in which nothing is rounded. */
#include "cli/commands/verification.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/agreement.h"
#include "cli/cli_model.h"
#include "cli/commands/commands.h"
#include "compile/quantize.h"
#include "engines/engine.h"

/* The outputs of another graph. What a command reports is about its model, not about what that is compared with. */
static Tensor *compute_other(const Verification *v, const Graph *graph) {
  EngineSettings *settings = engine_settings(v->session);
  settings->compile.report = NULL;
  settings->print = NULL;
  const bool is_native = option_is(&v->session->options, OPTION_ENGINE, "native", "native");
  Graph *copy = graph_clone(v->session->arena, graph);
  Engine *engine = engine_create(is_native ? &engine_native : &engine_reference, settings, copy, v->weights);
  return verification_outputs(v, engine, graph->outputs.n);
}

/* The graph without what rules did to `name`, or to everything. */
static Tensor *compute_wide(const Verification *v, const Graph *graph, const char *name) {
  Graph *wide = graph_clone(v->session->arena, graph);
  quantize_undo(wide, name);
  return compute_other(v, wide);
}

static void print_likeness(const Verification *v, const char *what, const Graph *graph, const Tensor *got,
                           const Tensor *wanted) {
  StrBuf text = strbuf_new(v->session->arena);
  int width = (int)strlen(what);
  for (size_t i = 0; i < graph->outputs.n; i++) width = (int)fmax(width, (double)strlen(graph->outputs.items[i].name));
  strbuf_printf(&text, "%-*s    cosine     least    largest   distance\n", width, what);
  for (size_t i = 0; i < graph->outputs.n; i++) {
    const Likeness likeness = tensors_likeness(&got[i], &wanted[i]);
    strbuf_printf(&text, "%-*s  %8.6f  %8.6f  %9.3g  %9.3g\n", width, graph->outputs.items[i].name, likeness.cosine,
                  likeness.least, likeness.largest, likeness.distance);
  }
  session_print(&text);
}

/* The last value of each module, in f32, that an output needs. Its name is the module's path. */
static void show_modules(Graph *graph) {
  Map modules = map_new(graph->arena); /* path -> Node * */
  graph_renumber(graph);
  bool *needed = ARENA_ARRAY(graph->arena, bool, graph_count(graph));
  for (size_t i = 0; i < graph->outputs.n; i++) needed[graph->outputs.items[i].node->id] = true;
  for (const Node *node = graph->last; node; node = node->prev)
    for (size_t i = 0; needed[node->id] && i < node->inputs.n; i++) needed[node->inputs.items[i]->id] = true;
  const bool *is_static = graph_static_flags(graph->arena, graph);
  for (Node *node = graph->first; node; node = node->next) {
    const char *path = node->origin.path;
    if (!needed[node->id] || is_static[node->id] || node->dtype != DTYPE_F32 || node->op == OP_INPUT) continue;
    for (size_t n = strcspn(path, "."); *path; n += 1 + strcspn(path + n + 1, ".")) {
      map_put(&modules, arena_strndup(graph->arena, path, n), node);
      if (!path[n]) break;
    }
  }
  graph->outputs.n = 0;
  for (size_t i = 0; i < modules.n; i++)
    vec_push(graph->arena, &graph->outputs,
             (GraphOutput){.name = modules.items[i].key, .node = modules.items[i].value});
}

static void compare_modules(const Verification *v) {
  Graph *graph = graph_clone(v->session->arena, v->graph);
  show_modules(graph);
  const Tensor *wanted = graph->outputs.n ? compute_wide(v, graph, NULL) : NULL;
  const Tensor *got = wanted ? compute_other(v, graph) : NULL;
  if (got) print_likeness(v, "module", graph, got, wanted);
}

/* The mean of the distances of all outputs that are f32. */
static double mean_distance(const Verification *v, const Tensor *got, const Tensor *wanted) {
  double sum = 0;
  size_t n = 0;
  for (size_t i = 0; i < v->graph->outputs.n; i++) {
    if (got[i].dtype != DTYPE_F32) continue;
    sum += tensors_distance(&got[i], &wanted[i]);
    n++;
  }
  return isnan(sum) ? (double)INFINITY : n ? sum / (double)n : 0;
}

typedef struct Cost {
  const char *name;
  double distance; /* if this is left in f32 */
} Cost;

static int by_distance(const void *a, const void *b) {
  const Cost *x = a, *y = b;
  return x->distance < y->distance ? -1 : x->distance > y->distance ? 1 : strcmp(x->name, y->name);
}

/* What costs most comes first: without it the distance is the smallest. */
static void show_sensitivity(const Verification *v, const Tensor *got, const Tensor *wanted) {
  Session *session = v->session;
  Map names = map_new(session->arena);
  for (const Node *node = v->graph->first; node; node = node->next)
    if (quantized_name(v->graph, node)) map_put(&names, quantized_name(v->graph, node), NULL);
  Cost *costs = ARENA_ARRAY(session->arena, Cost, names.n);
  Progress *progress = progress_begin(session, "leaving out one at a time");
  size_t n = 0;
  for (const Tensor *one; n < names.n && (one = compute_wide(v, v->graph, names.items[n].key)); n++) {
    costs[n] = (Cost){names.items[n].key, mean_distance(v, one, wanted)};
    progress_set(progress, n + 1, names.n);
  }
  progress_end(progress);
  if (n < names.n) return; /* the message says why */
  qsort(costs, n, sizeof *costs, by_distance);
  StrBuf text = strbuf_new(session->arena);
  strbuf_printf(&text, "distance from f32 is %.3g; with this alone in f32:\n", mean_distance(v, got, wanted));
  for (size_t i = 0; i < n; i++) strbuf_printf(&text, "  %9.3g  %s\n", costs[i].distance,
                                               text_shown(session->arena, costs[i].name));
  session_print(&text);
}

static void check_likeness(Session *session, const char *name, const Tensor *got, const Tensor *wanted) {
  static const double USUAL_COSINE = 0.99;
  const double least = option_number(&session->options, OPTION_MIN_COSINE, USUAL_COSINE);
  const double cosine = tensors_likeness(got, wanted).cosine;
  if (!(cosine >= least))
    diag_error_at(&session->diag, name, DIAG_UNLIKE,
                  "the mean cosine of its rows with those of f32 is %.6f; %.6g is asked for (--min-cosine)", cosine,
                  least);
}

static bool has_fewer_bits(Graph *graph) {
  for (const Node *node = graph->first; node; node = node->next)
    if (quantized_name(graph, node)) return true;
  return false;
}

void verify_f32(const Verification *v) {
  Session *session = v->session;
  if (!has_fewer_bits(v->graph)) {
    option_error(&session->diag, OPTION_QUANTIZE, "nothing in the model has fewer bits than in f32: give rules");
    return;
  }
  if (!verification_has_tensors(v, "the model in f32")) return;
  const Tensor *wanted = compute_wide(v, v->graph, NULL);
  const Tensor *got = wanted ? verification_compute(v, NULL) : NULL;
  if (!got) return;
  print_likeness(v, "output", v->graph, got, wanted);
  if (option_given(&session->options, OPTION_VERBOSE)) compare_modules(v);
  if (option_given(&session->options, OPTION_SENSITIVITY)) show_sensitivity(v, got, wanted);
  for (size_t i = 0; i < v->graph->outputs.n; i++)
    if (got[i].dtype == DTYPE_F32) check_likeness(session, v->graph->outputs.items[i].name, &got[i], &wanted[i]);
}
