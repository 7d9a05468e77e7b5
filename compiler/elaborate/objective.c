/* The train block of a model and the function that it names.
 *
 * In: a model whose members are made. Out: INPUT nodes and outputs of the objective in the graph; its settings,
 * checked; the initial value of each weight. See objective.h. */
#include "elaborate/objective.h"

#include <string.h>

#include "elaborate/adapters.h"
#include "elaborate/elaborate_inputs.h"
#include "elaborate/modules.h"
#include "elaborate/tensors.h"
#include "elaborate/train_settings.h"

// ---- initial values ----

static bool is_below(const char *path, const char *module) {
  size_t n = strlen(module);
  return n == 0 || (strncmp(path, module, n) == 0 && path[n] == '.');
}

/* `weight * = x` holds for matrices only, but not for adapters, of which one must be 0; the outermost such line, whose
 * path is the shortest, wins. */
static const Initial *initial_of_weight(const Elaborator *e, const char *path, const Node *weight) {
  const InitialOfAll *outermost = NULL;
  if (adapters_have(e->adapters, path)) return map_get(&e->initials, path);
  for (size_t i = 0; weight->rank > 1 && i < e->initials_of_all.n; i++) {
    const InitialOfAll *all = &e->initials_of_all.items[i];
    if (is_below(path, all->path) && (!outermost || strlen(all->path) < strlen(outermost->path))) outermost = all;
  }
  return outermost ? outermost->initial : map_get(&e->initials, path);
}

static void note_initials(Elaborator *e, Objective *objective) {
  objective->initials = map_new(e->arena);
  for (size_t i = 0; i < e->weights.n; i++) {
    const Node *weight = e->weights.items[i].value;
    if (!weight) continue;
    const Initial *initial = initial_of_weight(e, e->weights.items[i].key, weight);
    if (initial) map_put(&objective->initials, weight->attr.name, (void *)initial);
  }
}

// ---- the function ----

/* The function of the model that the block names; NULL after an error. */
static Function *function_of(Elaborator *e, const Module *model) {
  const Binding *binding = scope_find(model->scope, model->train->name);
  VEC(const char *) known = {0};
  if (binding && binding->value.kind == VALUE_FUNCTION) return binding->value.as.function;
  for (size_t i = 0; i < model->scope->bindings.n; i++) {
    const Binding *b = &model->scope->bindings.items[i];
    if (b->value.kind == VALUE_FUNCTION) vec_push(e->arena, &known, b->name);
  }
  if (model->is_faulty) return NULL;
  fail(e, DIAG_UNKNOWN_NAME, "train: %s has no function '%s'%s", model->layer->name, model->train->name,
       did_you_mean(e, diag_nearest(model->train->name, known.items, known.n)));
  return NULL;
}

static void check_results(Elaborator *e, const Function *f) {
  const Graph *graph = e->graph;
  e->here = f->ast->span;
  for (size_t i = 0; i < graph->outputs.n; i++) {
    Node *x = graph->outputs.items[i].node;
    const char *what = i ? "the metric" : "the loss", *name = graph->outputs.items[i].name;
    if (x->rank)
      fail(e, DIAG_SHAPE, "%s '%s' must be a scalar, an f32 without axes, not %T", what, name, x);
    else if (x->dtype != DTYPE_F32)
      fail(e, DIAG_DTYPE, "%s '%s' must be f32, not %s", what, name, dtype_names[x->dtype]);
  }
}

/* The size called batch, else the one that is the first axis of every input. */
static int32_t batch_of(const Elaborator *e, size_t n_inputs) {
  int32_t first = -1;
  for (uint32_t i = 0; i < e->sizes->n_symbols; i++)
    if (strcmp(e->sizes->symbols[i], "batch") == 0) return (int32_t)i;
  for (size_t i = 0; i < n_inputs; i++) {
    const Node *x = e->graph->inputs.items[i];
    int32_t symbol = x->rank ? size_symbol_of(x->dims[0]) : -1;
    if (symbol < 0 || (i && symbol != first)) return -1;
    first = symbol;
  }
  return first;
}

static bool refuse_ragged(Elaborator *e, const Function *f) {
  if (e->graph->ragged_batch < 0) return true;
  fail_at(e, f->ast->span, DIAG_RAGGED, "an objective cannot have ragged sizes: pad the inputs and mask the padding");
  return false;
}

void declare_objective(Elaborator *e, Module *model) {
  Objective *objective = e->objective;
  Arguments arguments;
  e->here = model->train->span;
  read_train_settings(e, model->train, model->scope, &objective->settings);
  e->here = model->train->span;
  Function *f = function_of(e, model);
  if (!f) return;
  e->here = f->ast->span;
  objective->name = f->name;
  if (!declare_inputs(e, model, f, &arguments) || !refuse_ragged(e, f)) return;
  objective->batch = batch_of(e, e->graph->inputs.n);
  Result result = call_function(e, f, f->name, &arguments, f->ast);
  declare_outputs(e, &result);
  e->here = model->train->span;
  check_train_patterns(e, objective);
  if (!diag_has_errors(e->diag)) check_results(e, f);
  note_initials(e, objective);
}
