/* The parts of a loss, and the walk backwards. See differentiate.h; what each operation gives its inputs is in
 * differentiate_rules.c.
 *
 * Parts: from the result down through sums, differences and numbers, which are linear, to quotients by something that
 * is no number and to means along the batch. What is divided by there depends on the batch, so it is taken out;
 * everything else stays in the top. A mean over the batch becomes a sum.
 *
 * The walk: nodes that depend on a trained weight in a differentiable way are marked; then every marked node, from the
 * last to the first, hands its cotangent on to its inputs. The nodes of the backward half are appended, so the walk
 * never meets them. What several users give is added in the order of the walk. */
#include "passes/differentiate.h"

#include "passes/match.h"
#include "passes/pass.h"

// ---- parts of a loss ----

typedef struct Splitter {
  Builder builder;
  int32_t batch;
  LossParts *parts;
  VEC(LossPart) waiting;
} Splitter;

/* Whether the value depends on a weight. */
static bool has_weight(Arena *scratch, const Node *of) {
  VEC(const Node *) waiting = {0};
  Map seen = map_new(scratch);
  vec_push(scratch, &waiting, of);
  while (waiting.n) {
    const Node *node = waiting.items[--waiting.n];
    if (node->op == OP_WEIGHT) return true;
    if (map_find(&seen, &node, sizeof node)) continue;
    map_put_n(&seen, &node, sizeof node, NULL);
    for (size_t i = 0; i < node->inputs.n; i++) vec_push(scratch, &waiting, node->inputs.items[i]);
  }
  return false;
}

static Node *times(Splitter *s, Node *a, Node *b) { return a ? build_binary(&s->builder, OP_MUL, a, b) : b; }

static Node *size_node(Splitter *s, const Size *size) { return build_size(&s->builder, DTYPE_F32, size); }

static void add_part(Splitter *s, double factor, Node *top, Node *bottom) {
  vec_push(s->builder.graph->arena, &s->parts->parts, (LossPart){factor, top, bottom});
}

static const Size *reduced_size(const Node *mean) { return mean->inputs.items[0]->dims[mean->attr.axis]; }

static bool is_batch_mean(const Splitter *s, const Node *x) {
  return x->op == OP_MEAN && s->batch >= 0 && size_involves(reduced_size(x), (uint32_t)s->batch);
}

/* A sum, or a mean whose size does not involve the batch: a mean over the batch may stand further down the line. The
 * first one that is found is undone by a factor. */
static void split_sum(Splitter *s, Node *t, double factor, Node *bottom) {
  for (const Node *x = t->inputs.items[0]; x->op == OP_SUM || x->op == OP_MEAN; x = x->inputs.items[0]) {
    if (!is_batch_mean(s, x)) continue;
    Node *size = size_node(s, reduced_size(x));
    add_part(s, factor, times(s, t, size), times(s, bottom, size));
    return;
  }
  add_part(s, factor, t, bottom);
}

/* Later: a part of the formula that is still to be split. */
static void later(Splitter *s, Node *t, double factor, Node *bottom) {
  vec_push(s->builder.graph->arena, &s->waiting, (LossPart){factor, t, bottom});
}

static void split_quotient(Splitter *s, Node *t, double factor, Node *bottom) {
  Node *divisor = t->inputs.items[1];
  double number;
  if (match_number(divisor, &number)) later(s, t->inputs.items[0], factor / number, bottom);
  else if (!has_weight(s->builder.graph->arena, divisor))
    later(s, t->inputs.items[0], factor, times(s, bottom, divisor));
  else {
    if (!s->parts->whole.source) s->parts->whole = origin_place(&t->origin);
    add_part(s, factor, t, bottom);
  }
}

static void split(Splitter *s, Node *t, double factor, Node *bottom) {
  Node *const *in = t->inputs.items;
  double number;
  s->builder.origin = t->origin;
  if ((t->op == OP_ADD || t->op == OP_SUB) && !bottom) {
    later(s, in[1], t->op == OP_SUB ? -factor : factor, NULL);
    later(s, in[0], factor, NULL);
  } else if (t->op == OP_NEG) {
    later(s, in[0], -factor, bottom);
  } else if (t->op == OP_MUL && match_number(in[1], &number)) {
    later(s, in[0], factor * number, bottom);
  } else if (t->op == OP_MUL && match_number(in[0], &number)) {
    later(s, in[1], factor * number, bottom);
  } else if (t->op == OP_DIV) {
    split_quotient(s, t, factor, bottom);
  } else if (is_batch_mean(s, t)) {
    Node *sum = build_reduce(&s->builder, OP_SUM, in[0], t->attr.axis, t->attr.keepdim);
    split_sum(s, sum, factor, times(s, bottom, size_node(s, reduced_size(t))));
  } else if (t->op == OP_SUM || t->op == OP_MEAN) {
    split_sum(s, t, factor, bottom);
  } else {
    add_part(s, factor, t, bottom);
  }
}

void loss_parts(Graph *graph, Node *result, int32_t batch, LossParts *parts) {
  Splitter s = {.builder = {.graph = graph, .origin = result->origin}, .batch = batch, .parts = parts};
  *parts = (LossParts){0};
  later(&s, result, 1, NULL);
  while (s.waiting.n) { /* a sum may have as many terms as a graph has nodes, so this does not recurse */
    const LossPart part = s.waiting.items[--s.waiting.n];
    split(&s, part.top, part.factor, part.bottom);
  }
}

// ---- the walk ----

/* Functions that are flat wherever they have a derivative. */
static bool is_flat(OpKind op) { return op == OP_FLOOR || op == OP_CEIL || op == OP_ROUND; }

static void mark_active(const DifferentiateRequest *request, bool *active) {
  for (const Node *node = request->graph->first; node; node = node->next) {
    if (node->dtype != DTYPE_F32 || is_flat(node->op)) continue;
    if (map_find(request->stopped, &node, sizeof node)) continue;
    if (node->op == OP_WEIGHT) active[node->id] = request->is_trained(request->context, node);
    for (size_t i = 0; i < node->inputs.n; i++) active[node->id] |= active[node->inputs.items[i]->id];
  }
}

static bool report(const DifferentiateRequest *request, const Node *node) {
  diag_error(request->diag, origin_place(&node->origin), DIAG_KIND,
             "%s cannot be differentiated, but a trained weight reaches the loss through it: stop_gradient, or freeze, "
             "says that it need not be",
             op_table[node->op].name);
  return false;
}

/* False after an error. */
static bool walk(const DifferentiateRequest *request, Backward *d, Node *last) {
  for (Node *node = last; node; node = node->prev) {
    Node *g = d->cotangents[node->id];
    if (!g || node->op == OP_WEIGHT) continue;
    BackwardRule rule = backward_rule(node->op);
    if (!rule) return report(request, node);
    int errors = d->diag->n_errors;
    d->builder.origin = node->origin;
    rule(d, node, g);
    if (d->diag->n_errors != errors) return false;
  }
  return true;
}

bool differentiate(const DifferentiateRequest *request, Gradients *gradients) {
  Graph *graph = request->graph;
  Node *last = graph->last;
  graph_renumber(graph);
  const uint32_t n = graph->next_id;
  Backward d = {.builder = {.graph = graph}, .diag = request->diag, .n_forward = n};
  d.cotangents = ARENA_ARRAY(graph->arena, Node *, n);
  d.active = ARENA_ARRAY(graph->arena, bool, n);
  mark_active(request, d.active);
  for (uint32_t i = 0; i < request->n_seeds; i++) {
    d.builder.origin = request->seeds[i].of->origin;
    if (request->seeds[i].of->id < n) backward_give(&d, request->seeds[i].of, request->seeds[i].seed);
  }
  if (!walk(request, &d, last)) return false;
  *gradients = (Gradients){0};
  for (Node *node = graph->first; node && node->id < n; node = node == last ? NULL : node->next)
    if (node->op == OP_WEIGHT && d.cotangents[node->id])
      vec_push(graph->arena, &gradients->items, (Gradient){node, d.cotangents[node->id]});
  return true;
}
