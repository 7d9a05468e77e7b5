/* In: items. Out: whether what the loss is divided by is 0 over them. See divisors.h. */
#include "train/divisors.h"

#include <math.h>
#include <string.h>

#include "graph/eval.h"
#include "tfm/abi/train_formula.h"
#include "train/weight_inputs.h"

struct Divisors {
  Arena *arena;
  const TrainGraphs *graphs;
  const DataSet *data;
  Graph *graph;      /* of the bottoms that no weight is needed for */
  uint32_t *numbers; /* of its outputs among the bottoms */
  uint32_t n, n_bottoms;
  bool *is_known;   /* by bottom */
  double *bottoms;  /* of the items that are looked at */
  double *of_items; /* [items][n] */
  uint8_t *is_seen; /* by item */
  double *values;   /* of the steps of formulas; a NaN is not known */
  bool *is_visited;
};

// ---- formulas ----

static double value_of(const Divisors *d, const ResultStep *step) {
  const uint32_t *in = step->operands;
  if (step->op == TFM_FORMULA_NUMBER) return step->number;
  if (step->op == TFM_FORMULA_BOTTOM) return d->is_known[in[0]] ? d->bottoms[in[0]] : NAN;
  if (step->op == TFM_FORMULA_TOP) return NAN;
  double of[TFM_FORMULA_OPERANDS] = {0};
  for (uint32_t i = 0; i < formula_operands(step->op); i++) {
    of[i] = d->values[in[i]];
    if (isnan(of[i]) && (step->op != TFM_FORMULA_WHERE || i == 0)) return NAN;
  }
  return tfm_formula_value(step->op, of[0], of[1], of[2]);
}

/* Whether the value of a step needs a division by 0; what a `where` does not select is not needed. Steps come behind
 * their operands, so those that are needed are found from the last to the first. */
static bool divides_by_zero(Divisors *d, uint32_t last) {
  const ResultStep *steps = d->graphs->steps.items;
  memset(d->is_visited, 0, last + 1);
  d->is_visited[last] = true;
  for (uint32_t i = last + 1; i-- > 0;) {
    const ResultStep *step = &steps[i];
    if (!d->is_visited[i]) continue;
    if (step->op == TFM_FORMULA_DIV && d->values[step->operands[1]] == 0) return true;
    for (uint32_t k = 0; k < formula_operands(step->op); k++) {
      const double condition = step->op == TFM_FORMULA_WHERE ? d->values[step->operands[0]] : 0;
      const bool is_needed = step->op != TFM_FORMULA_WHERE || k == 0 || (k == 1 ? condition != 0 : condition == 0);
      if (is_needed && !(k && isnan(condition))) d->is_visited[step->operands[k]] = true;
    }
  }
  return false;
}

/* Of the sums that are in `bottoms`. */
static bool loss_lacks(Divisors *d) {
  const ResultParts *loss = &d->graphs->results.items[0];
  for (size_t i = 0; i < d->graphs->steps.n; i++) d->values[i] = value_of(d, &d->graphs->steps.items[i]);
  for (size_t i = 0; i < loss->parts.n; i++) {
    const ResultPart *part = &loss->parts.items[i];
    if (part->bottom != NO_OUTPUT && d->is_known[part->bottom] && d->bottoms[part->bottom] == 0) return true;
    if (part->formula == NO_OUTPUT) continue;
    if (part->top != NO_OUTPUT && d->values[part->formula] == 0) return true;
    if (divides_by_zero(d, part->formula)) return true;
  }
  return false;
}

// ---- items ----

/* The values of the graph for a batch of these items. False after an error. */
static bool look_at(const Divisors *d, const int64_t *items, int64_t n, double *values) {
  Arena *arena = arena_create();
  EvalInputs inputs;
  Tensor *results = ARENA_ARRAY(arena, Tensor, d->n);
  const EvalCall call = {.graph = d->graph, .inputs = &inputs};
  const bool good = data_batch(d->data, arena, items, n, &inputs) &&
                    graph_eval(arena, d->data->request.diag, &call, results);
  for (uint32_t i = 0; i < d->n && good; i++) values[i] = (double)*(const float *)results[i].data;
  arena_destroy(arena);
  return good;
}

static void give(Divisors *d, const double *values, bool adds) {
  for (uint32_t i = 0; i < d->n; i++) {
    const uint32_t bottom = d->numbers[i];
    if (!adds)
      d->bottoms[bottom] = values[i];
    else if (!d->graphs->bottoms_once.items[bottom])
      d->bottoms[bottom] += values[i];
  }
}

/* Most batches have a label that counts in their first item: then no other is looked at. */
bool divisors_lack(Divisors *d, const int64_t *items, int64_t n, bool *lacks) {
  *lacks = true;
  if (d->graphs->whole) { /* items are no sums */
    if (!look_at(d, items, n, d->of_items)) return false;
    give(d, d->of_items, false);
    *lacks = loss_lacks(d);
    return true;
  }
  for (int64_t i = 0; i < n && *lacks; i++) {
    double *values = d->of_items + items[i] * d->n;
    if (!d->is_seen[items[i]] && !look_at(d, &items[i], 1, values)) return false;
    d->is_seen[items[i]] = 1;
    give(d, values, i > 0);
    *lacks = loss_lacks(d);
  }
  return true;
}

bool divisors_may_lack(Divisors *d, bool *may) {
  *may = d->graphs->whole != NULL;
  for (int64_t i = 0; i < d->data->n_items && !*may; i++)
    if (!divisors_lack(d, &i, 1, may)) return false;
  return true;
}

// ---- making ----

static bool needs_another_input(Map *seen, const Graph *graph, uint32_t n_inputs, const Node *node) {
  if (node->op == OP_INPUT) {
    uint32_t i = 0;
    while (i < n_inputs && graph->inputs.items[i] != node) i++;
    return i == n_inputs;
  }
  if (map_find(seen, &node, sizeof node)) return false;
  map_put_n(seen, &node, sizeof node, NULL);
  for (size_t i = 0; i < node->inputs.n; i++)
    if (needs_another_input(seen, graph, n_inputs, node->inputs.items[i])) return true;
  return false;
}

/* Sizes alone are never 0, unless an item has the length 0. */
static bool needs_the_data(Arena *arena, const DataSet *data, const Node *node) {
  Map seen = map_new(arena);
  if (needs_another_input(&seen, data->request.graph, 0, node)) return true;
  for (uint32_t k = 0; k < data->request.n_inputs; k++)
    for (int64_t i = 0; i < data->n_items && data->inputs[k].symbol >= 0; i++)
      if (!data->inputs[k].lengths[i]) return true;
  return false;
}

/* What a batch does not give, weights and masks, goes: no output that is left needs it. */
static void delete_other_inputs(Graph *graph, uint32_t n_inputs) {
  Node **all = graph->inputs.items;
  train_delete_unneeded(graph);
  graph->inputs.items += n_inputs;
  graph->inputs.n -= n_inputs;
  graph_delete_inputs(graph);
  graph->inputs.items = all;
  graph->inputs.n = n_inputs;
  graph_renumber(graph);
}

static void choose_outputs(Divisors *d, bool *needs_data) {
  Graph *graph = d->graph;
  const size_t n = graph->outputs.n;
  GraphOutput *outputs = arena_copy(d->arena, graph->outputs.items, n * sizeof *outputs);
  graph->outputs.n = 0;
  *needs_data = false;
  for (uint32_t i = 0; i < n; i++) {
    Map seen = map_new(d->arena);
    d->is_known[i] = !needs_another_input(&seen, graph, d->graphs->n_inputs, outputs[i].node);
    if (!d->is_known[i]) continue;
    d->numbers[d->n++] = i;
    vec_push(graph->arena, &graph->outputs, outputs[i]);
    *needs_data |= needs_the_data(d->arena, d->data, outputs[i].node);
  }
}

Divisors *divisors_new(Arena *arena, const TrainGraphs *graphs, const Graph *counts, const DataSet *data) {
  bool needs_data;
  if (!counts) return NULL;
  Divisors *d = ARENA_NEW(arena, Divisors);
  *d = (Divisors){.arena = arena, .graphs = graphs, .data = data, .graph = graph_clone(arena, counts)};
  d->n_bottoms = (uint32_t)counts->outputs.n;
  d->numbers = ARENA_ARRAY(arena, uint32_t, d->n_bottoms + 1);
  d->is_known = ARENA_ARRAY(arena, bool, d->n_bottoms + 1);
  d->bottoms = ARENA_ARRAY(arena, double, d->n_bottoms + 1);
  choose_outputs(d, &needs_data);
  if (!needs_data) return NULL;
  delete_other_inputs(d->graph, graphs->n_inputs);
  d->graph->checks.n = 0; /* sizes were checked with the data */
  d->of_items = ARENA_ARRAY(arena, double, (data->n_items + 1) * d->n);
  d->is_seen = ARENA_ARRAY(arena, uint8_t, data->n_items + 1);
  d->values = ARENA_ARRAY(arena, double, graphs->steps.n + 1);
  d->is_visited = ARENA_ARRAY(arena, bool, graphs->steps.n + 1);
  return d;
}
