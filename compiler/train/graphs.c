/* From an objective to graphs that engines run. See graphs.h. */
#include "train/graphs.h"

#include "base/hash.h"
#include "elaborate/adapters.h"
#include "graph/attributes.h"
#include "train/weight_inputs.h"

#include <string.h>

typedef struct Maker {
  Arena *arena;
  Diag *diag;
  Objective *objective;
  Graph *graph;
  TrainGraphs *made;
  bool has_gradients;
  SrcSpan loss_place;
  Map stopped;        /* nodes behind which nothing flows back */
  const char *result; /* whose outputs are made */
  uint32_t n_named;
  VEC(GraphOutput) tops, bottoms;
  VEC(Seed) seeds;
  ItemKinds kinds;
  CutGraphsRequest cut;
} Maker;

// ---- results ----

/* "sum at 10:19": the operation, and where the text of the user has it. A size is itself. */
static void describe(StrBuf *out, const Graph *graph, const Node *node) {
  const SrcSpan span = origin_place(&node->origin);
  if (node->op == OP_SIZE) {
    strbuf_add_char(out, '(');
    size_print(out, graph->sizes, node->attr.size);
    strbuf_add_char(out, ')');
    return;
  }
  strbuf_add(out, op_table[node->op].name);
  if (!span.source) return;
  const SrcPlace place = source_place(span.source, span.begin);
  strbuf_printf(out, " at %u:%u", place.line, place.column);
}

static const char *formula_name(uint32_t op) {
  return op == TFM_FORMULA_STOP ? "stop_gradient" : op_table[formula_op_kind(op)].name;
}

static void describe_steps(StrBuf *out, const Maker *m, const LossParts *split, uint32_t step, unsigned depth) {
  const FormulaStep *s = &split->steps.items[step];
  if (s->op == TFM_FORMULA_NUMBER) strbuf_printf(out, "%g", s->number);
  if (s->op == TFM_FORMULA_LEAF) describe(out, m->graph, s->leaf);
  if (s->op == TFM_FORMULA_NUMBER || s->op == TFM_FORMULA_LEAF) return;
  strbuf_printf(out, "%s(", formula_name(s->op));
  for (uint32_t i = 0; i < formula_operands(s->op) && depth; i++) {
    if (i) strbuf_add(out, ", ");
    describe_steps(out, m, split, s->operands[i], depth - 1);
  }
  strbuf_add(out, depth ? ")" : "...)");
}

static const char *description(const Maker *m, const LossParts *split, const LossPart *part) {
  enum { DEPTH = 6 };
  StrBuf text = strbuf_new(m->arena);
  if (part->factor != 1) strbuf_printf(&text, "%g * ", part->factor);
  if (part->top) describe(&text, m->graph, part->top);
  if (part->is_once) strbuf_add(&text, " once");
  if (part->top && (part->bottom || part->formula >= 0)) strbuf_add(&text, " / ");
  if (part->formula >= 0)
    describe_steps(&text, m, split, (uint32_t)part->formula, DEPTH);
  else if (part->bottom)
    describe(&text, m->graph, part->bottom);
  return text.text;
}

// ---- results: outputs ----

static uint32_t add_top(Maker *m, Node *node, bool is_once) {
  const char *name = arena_printf(m->arena, "%s.%u", m->result, m->n_named++);
  vec_push(m->arena, &m->tops, ((GraphOutput){.name = name, .node = node}));
  vec_push(m->arena, &m->made->tops_once, is_once);
  return (uint32_t)m->tops.n - 1;
}

static uint32_t add_bottom(Maker *m, Node *node, bool is_once) {
  const char *name = arena_printf(m->arena, "%s.%u", m->result, m->n_named);
  vec_push(m->arena, &m->bottoms, ((GraphOutput){.name = name, .node = node}));
  vec_push(m->arena, &m->made->bottoms_once, is_once);
  return (uint32_t)m->bottoms.n - 1;
}

// ---- results: formulas ----

/* Cotangents need what a loss is a formula of before gradients are made: it is computed with the divisors. */
static ResultStep leaf_step(Maker *m, const FormulaStep *step, bool is_of_loss) {
  const bool is_before = is_of_loss && (m->has_gradients || !reaches_weight(m->arena, &m->stopped, step->leaf));
  ResultStep made = {.op = is_before ? TFM_FORMULA_BOTTOM : TFM_FORMULA_TOP};
  made.operands[0] = (is_before ? add_bottom : add_top)(m, step->leaf, step->is_once);
  return made;
}

static void add_steps(Maker *m, const LossParts *split, bool is_of_loss) {
  const uint32_t first = (uint32_t)m->made->steps.n;
  for (size_t i = 0; i < split->steps.n; i++) {
    const FormulaStep *step = &split->steps.items[i];
    ResultStep made = {.op = step->op, .number = step->number};
    for (uint32_t k = 0; k < formula_operands(step->op); k++) made.operands[k] = first + step->operands[k];
    if (step->op == TFM_FORMULA_LEAF) made = leaf_step(m, step, is_of_loss);
    vec_push(m->arena, &m->made->steps, made);
  }
}

/* The sums that the loss is a formula of once more, to be differentiated. */
static void add_slopes(Maker *m, const LossParts *split, uint32_t first, ResultParts *result) {
  for (size_t i = 0; i < split->steps.n; i++) {
    const FormulaStep *step = &split->steps.items[i];
    if (step->op != TFM_FORMULA_LEAF || !reaches_weight(m->arena, &m->stopped, step->leaf)) continue;
    const ResultPart slope = {.top = add_top(m, step->leaf, step->is_once),
                              .bottom = NO_OUTPUT,
                              .formula = NO_OUTPUT,
                              .slope = first + (uint32_t)i};
    vec_push(m->arena, &result->parts, slope);
  }
}

// ---- results: parts ----

static void add_result(Maker *m, LossRequest *request, const GraphOutput *output) {
  LossParts split;
  ResultParts result = {.name = output->name};
  const bool is_loss = !m->made->results.n;
  const uint32_t first = (uint32_t)m->made->steps.n;
  m->result = output->name;
  m->n_named = 0;
  request->is_differentiated = is_loss && m->has_gradients;
  loss_parts(request, output->node, &split);
  result.is_whole = split.is_whole;
  result.divides = split.divides;
  if (split.where) result.where = origin_place(&split.where->origin);
  add_steps(m, &split, is_loss);
  for (size_t i = 0; i < split.parts.n; i++) {
    const LossPart *part = &split.parts.items[i];
    ResultPart made = {part->factor, description(m, &split, part), NO_OUTPUT, NO_OUTPUT, NO_OUTPUT, NO_OUTPUT};
    if (part->formula >= 0)
      made.formula = first + (uint32_t)part->formula;
    else if (part->bottom)
      made.bottom = add_bottom(m, part->bottom, false);
    if (part->top) made.top = add_top(m, part->top, part->is_once);
    vec_push(m->arena, &result.parts, made);
  }
  if (is_loss && m->has_gradients) add_slopes(m, &split, first, &result);
  vec_push(m->arena, &m->made->results, result);
}

static void find_stopped(Maker *m) {
  m->stopped = map_new(m->arena);
  for (size_t i = 0; i < m->objective->stopped.n; i++) {
    const Node *node = m->objective->stopped.items[i];
    map_put_n(&m->stopped, &node, sizeof node, NULL);
  }
}

static void add_results(Maker *m) {
  const size_t n = m->graph->outputs.n;
  const GraphOutput *results = arena_copy(m->arena, m->graph->outputs.items, n * sizeof *results);
  find_stopped(m);
  ItemKinds kinds = item_kinds_new(m->graph, m->objective->batch, m->made->n_inputs);
  LossRequest request = {.kinds = &kinds, .stopped = &m->stopped};
  for (size_t i = 0; i < n; i++) add_result(m, &request, &results[i]);
  for (size_t i = 0; i < n && !m->made->whole; i++)
    if (m->made->results.items[i].is_whole) m->made->whole = &m->made->results.items[i];
  m->cut = (CutGraphsRequest){.arena = m->arena,
                              .diag = m->diag,
                              .graph = m->graph,
                              .objective = m->objective,
                              .results = results,
                              .n_results = n,
                              .has_gradients = m->has_gradients};
  m->kinds = kinds;
}

/* Graphs for a batch in parts, where a result needs all items at once. False after an error. */
static bool add_cut(Maker *m) {
  CutGraphs *made;
  if (!m->made->whole) return true;
  m->cut.kinds = &m->kinds;
  m->cut.stopped = &m->stopped;
  if (!cut_graphs(&m->cut, &made, &m->made->uncut)) return false;
  m->made->cut = made;
  return true;
}

/* The outputs of the graph from here on. */
static void set_outputs(Graph *graph, const GraphOutput *items, size_t n) {
  graph->outputs.n = 0;
  for (size_t i = 0; i < n; i++) vec_push(graph->arena, &graph->outputs, items[i]);
}

// ---- gradients ----

static bool is_trained(const void *context, const Node *weight) { return objective_trains(context, weight->attr.name); }

static void add_seeds(Maker *m) {
  Builder builder = {.graph = m->graph};
  const ResultParts *loss = &m->made->results.items[0];
  for (size_t i = 0; i < loss->parts.n; i++) {
    if (loss->parts.items[i].top == NO_OUTPUT) continue;
    Node *top = m->tops.items[loss->parts.items[i].top].node;
    builder.origin = top->origin;
    const char *name = arena_printf(m->arena, "train.seed.%zu", m->made->seeds.n);
    Node *seed = build_input(&builder, name, DTYPE_F32, 0, NULL);
    vec_push(m->arena, &m->seeds, ((Seed){top, seed}));
    vec_push(m->arena, &m->made->seeds, seed->attr.name);
  }
}

/* Adds the gradients as outputs behind the tops. False after an error. */
static bool add_gradients(Maker *m) {
  Gradients gradients;
  add_seeds(m);
  const DifferentiateRequest request = {.graph = m->graph,
                                        .diag = m->diag,
                                        .seeds = m->seeds.items,
                                        .n_seeds = (uint32_t)m->seeds.n,
                                        .stopped = &m->stopped,
                                        .is_trained = is_trained,
                                        .context = m->objective};
  if (!differentiate(&request, &gradients)) return false;
  if (!gradients.items.n) {
    diag_error(m->diag, m->loss_place, DIAG_INPUT_DECLARATION,
               "no trained weight reaches the loss '%s': there is nothing to train", m->made->results.items[0].name);
    return false;
  }
  for (size_t i = 0; i < gradients.items.n; i++) {
    const Gradient *g = &gradients.items.items[i];
    for (size_t k = 0; k < m->made->parameters.n; k++)
      if (strcmp(m->made->parameters.items[k].path, g->weight->attr.name) == 0)
        m->made->parameters.items[k].gradient = (uint32_t)m->graph->outputs.n;
    const char *name = arena_printf(m->arena, "grad.%s", g->weight->attr.name);
    vec_push(m->graph->arena, &m->graph->outputs, (GraphOutput){name, g->gradient, {ROLE_GRADIENT, (uint32_t)i}});
  }
  return true;
}

// ---- weights ----

static void list_parameter(Maker *m, const Node *node, bool is_reached) {
  Parameter p = {.path = node->attr.name, .rank = node->rank, .elements = 1, .gradient = NO_OUTPUT};
  p.form = train_kept_form(m->objective, node);
  p.is_reached = is_reached;
  p.input = arena_printf(m->arena, "weight.%s", p.path);
  for (uint32_t i = 0; i < node->rank; i++) {
    size_is_const(node->dims[i], &p.dims[i]);
    p.elements *= p.dims[i];
  }
  vec_push(m->arena, &m->made->parameters, p);
}

/* Those that the objective does not reach come last: they keep their values, and whoever runs the model needs them. */
static void list_parameters(Maker *m) {
  const Map *declared = &m->graph->declared_weights;
  Map listed = map_new(m->arena);
  for (const Node *node = m->graph->first; node; node = node->next) {
    if (node->op != OP_WEIGHT) continue;
    map_put(&listed, node->attr.name, NULL);
    list_parameter(m, node, true);
  }
  for (size_t i = 0; i < declared->n; i++)
    if (!map_has(&listed, declared->items[i].key)) list_parameter(m, declared->items[i].value, false);
}

static Graph *counts_graph(Maker *m) {
  if (!m->bottoms.n) return NULL;
  set_outputs(m->graph, m->bottoms.items, m->bottoms.n);
  graph_renumber(m->graph);
  Graph *counts = graph_clone(m->arena, m->graph);
  train_delete_unneeded(counts); /* with the weights that no divisor depends on */
  train_free_weights(m->arena, m->objective, counts);
  if (m->made->cut) train_drop_checks(counts, m->objective->batch);
  return counts;
}

/* Whatever types a file has its weights in. */
static uint64_t hash_of_text(Arena *arena, const Graph *graph) {
  StrBuf text = strbuf_new(arena);
  Graph *copy = graph_clone(arena, graph);
  for (Node *node = copy->first; node; node = node->next)
    if (node->op == OP_WEIGHT) node->attr.stored = STORED_ANY;
  graph_print(&text, copy);
  return hash_bytes(HASH_BEGIN, text.text, text.length);
}

TrainGraphs *train_graphs(Arena *arena, Diag *diag, Objective *objective, bool has_gradients) {
  Maker m = {.arena = arena, .diag = diag, .objective = objective, .graph = objective->graph};
  m.made = ARENA_NEW(arena, TrainGraphs);
  m.made->model = hash_of_text(arena, objective->graph);
  m.made->objective = objective;
  m.made->n_inputs = (uint32_t)(objective->graph->inputs.n - objective->masks.n);
  m.has_gradients = has_gradients;
  m.loss_place = origin_place(&m.graph->outputs.items[0].node->origin);
  list_parameters(&m);
  add_results(&m);
  if (!add_cut(&m)) return NULL;
  m.made->counts = counts_graph(&m);
  set_outputs(m.graph, m.tops.items, m.tops.n);
  if (has_gradients && !add_gradients(&m)) return NULL;
  train_free_weights(arena, objective, m.graph);
  train_delete_unneeded(m.graph);
  m.made->gradients = m.graph;
  return m.made;
}

// ---- for people ----

const char *train_graphs_whole(Arena *arena, const TrainGraphs *graphs) {
  const ResultParts *whole = graphs->whole;
  if (!whole->where.source)
    return arena_printf(arena,
                        "'%s' cannot be computed in parts: no size counts items, as one called batch does, or the "
                        "first of every input",
                        whole->name);
  const char *uncut = graphs->uncut && graphs->uncut->op == OP_INPUT ? graphs->uncut->attr.name : NULL;
  return arena_printf(arena,
                      "this mixes the items of a batch%s%s%s, so '%s' is no sum or mean over items, nor a formula of "
                      "such sums, and cannot be computed in parts",
                      uncut ? ", and with it '" : "", uncut ? uncut : "",
                      uncut ? "' is needed, whose axes do not follow the items alone" : "", whole->name);
}

static void print_parts(StrBuf *out, const ResultParts *result, bool has_cut) {
  bool is_first = true;
  for (size_t i = 0; i < result->parts.n; i++) {
    if (!result->parts.items[i].what) continue;
    strbuf_printf(out, "%s%s", is_first ? "" : " + ", result->parts.items[i].what);
    is_first = false;
  }
  if (result->is_whole && !has_cut) strbuf_add(out, ", only of a whole batch");
  if (!result->is_whole || !result->where.source) return;
  const SrcPlace place = source_place(result->where.source, result->where.begin);
  strbuf_printf(out, ": %s at %u:%u", result->divides ? "its divisor depends on weights" : "items are mixed",
                place.line, place.column);
}

/* What parts of a batch give to what mixes their items. */
static void print_cut(StrBuf *out, const TrainGraphs *graphs) {
  const ItemCut *cut = &graphs->cut->cut;
  strbuf_add(out, "  parts give the mixture  ");
  for (size_t i = 0; i < cut->values.n; i++) {
    const Node *node = cut->values.items[i].of;
    strbuf_add(out, i ? ", " : " ");
    if (node->op == OP_INPUT) strbuf_add(out, node->attr.name);
    else describe(out, graphs->gradients, node);
    if (node->rank) strbuf_add_char(out, ' ');
    if (node->rank) sizes_print(out, graphs->gradients->sizes, node->rank, (const Size *const *)node->dims);
  }
  strbuf_add_char(out, '\n');
}

static void print_adapters(StrBuf *out, const Adapters *adapters) {
  enum { SHOWN = 8 };
  if (!adapters) return;
  const double scale = adapters_scale(adapters, (double)adapters->rank, adapters_alpha(adapters));
  strbuf_printf(out, "adapters: %zu of rank %lld, times %g:", adapters->weights.n, (long long)adapters->rank, scale);
  for (size_t i = 0; i < adapters->weights.n && i < SHOWN; i++) {
    const AdaptedWeight *of = &adapters->weights.items[i];
    strbuf_printf(out, " %s", text_shown(out->arena, of->module));
    if (of->rank != adapters->rank || of->scale != scale)
      strbuf_printf(out, " (rank %lld, times %g)", (long long)of->rank, of->scale);
  }
  strbuf_add(out, adapters->weights.n > SHOWN ? " ...\n" : "\n");
}

void train_graphs_print(StrBuf *out, const TrainGraphs *graphs) {
  uint32_t n_trained = 0;
  int64_t numbers = 0;
  strbuf_printf(out, "objective %s, each part summed over the batches of a step:\n", graphs->objective->name);
  for (size_t i = 0; i < graphs->results.n; i++) {
    const ResultParts *result = &graphs->results.items[i];
    strbuf_printf(out, "  %-24s ", result->name);
    print_parts(out, result, graphs->cut != NULL);
    strbuf_add_char(out, '\n');
  }
  if (graphs->cut) print_cut(out, graphs);
  for (size_t i = 0; i < graphs->parameters.n; i++) {
    if (graphs->parameters.items[i].gradient == NO_OUTPUT) continue;
    n_trained++;
    numbers += graphs->parameters.items[i].elements;
  }
  print_adapters(out, graphs->objective->adapters);
  strbuf_printf(out, "trained: %u of %zu tensor%s, %lld numbers\n", n_trained, graphs->parameters.n,
                graphs->parameters.n == 1 ? "" : "s", (long long)numbers);
}
