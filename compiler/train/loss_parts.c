/* How a result is taken apart. See loss_parts.h.
 *
 * From the result down through sums, differences and numbers, which are linear, to quotients and to means along the
 * batch: what is divided by there is taken out, everything else stays in the top; a mean over the batch becomes a sum.
 * A part is good if its top is a sum over items, or of weights alone, and what it is divided by is a sum over items
 * that no weight reaches. Of any other part a formula is tried: operations on single numbers down to such sums. */
#include "train/loss_parts.h"

#include "passes/match.h"

typedef struct Splitter {
  Builder builder;
  LossRequest request;
  LossParts *parts;
  const Node *divides; /* a quotient whose divisor depends on items and weights, where there may be none */
  VEC(LossPart) waiting;
  Map made; /* Node * -> its step of the formulas, plus 1 */
} Splitter;

bool reaches_weight(Arena *scratch, const Map *stopped, const Node *of) {
  VEC(const Node *) waiting = {0};
  Map seen = map_new(scratch);
  vec_push(scratch, &waiting, of);
  while (waiting.n) {
    const Node *node = waiting.items[--waiting.n];
    if (node->op == OP_WEIGHT) return true;
    if (map_find(&seen, &node, sizeof node) || map_find(stopped, &node, sizeof node)) continue;
    map_put_n(&seen, &node, sizeof node, NULL);
    for (size_t i = 0; i < node->inputs.n; i++) vec_push(scratch, &waiting, node->inputs.items[i]);
  }
  return false;
}

static Arena *arena_of(const Splitter *s) { return s->builder.graph->arena; }
static bool is_stopped(const Splitter *s, const Node *node) { return map_find(s->request.stopped, &node, sizeof node); }

// ---- formulas ----

/* Operations that formulas have, and how many operands each takes. */
static const struct {
  OpKind op;
  uint32_t operands;
} formula_ops[] = {
#define OP_STOP OP_RESHAPE /* one that is_stopped knows */
#define FORMULA(Enum, operands, value, slope0, slope1, slope2) [TFM_FORMULA_##Enum] = {OP_##Enum, operands},
#include "tfm/abi/train_formula.def"
#undef FORMULA
#undef OP_STOP
};
enum { N_FORMULA_OPS = sizeof formula_ops / sizeof *formula_ops };

uint32_t formula_operands(uint32_t op) { return op < N_FORMULA_OPS ? formula_ops[op].operands : 0; }

OpKind formula_op_kind(uint32_t op) { return formula_ops[op].op; }

static int32_t add_step(Splitter *s, FormulaStep step) {
  vec_push(arena_of(s), &s->parts->steps, step);
  return (int32_t)s->parts->steps.n - 1;
}

static int32_t add_leaf(Splitter *s, Node *node, bool is_once) {
  if (node->dtype != DTYPE_F32) node = build_unary(&s->builder, OP_TO_F32, node);
  return add_step(s, (FormulaStep){.op = TFM_FORMULA_LEAF, .leaf = node, .is_once = is_once});
}

/* A mean over the items: their sum and their number. */
static int32_t add_average(Splitter *s, Node *node, const Size *over) {
  Node *size = build_size(&s->builder, DTYPE_F32, over);
  const int32_t sum = add_leaf(s, build_binary(&s->builder, OP_MUL, node, size), false);
  const int32_t number = add_leaf(s, size, false);
  return add_step(s, (FormulaStep){.op = TFM_FORMULA_DIV, .operands = {(uint32_t)sum, (uint32_t)number}});
}

/* The operation as one of formulas; N_FORMULA_OPS: it is none. */
static uint32_t formula_op(const Splitter *s, const Node *node) {
  uint32_t op = 0;
  if (node->op == OP_RESHAPE) return is_stopped(s, node) ? TFM_FORMULA_STOP : (uint32_t)N_FORMULA_OPS;
  while (op < N_FORMULA_OPS && formula_ops[op].op != node->op) op++;
  return op;
}

static int32_t add_formula(Splitter *s, Node *node, uint32_t depth);

/* An operation on single numbers; -1: its operands are not all numbers that parts give. */
static int32_t add_operation(Splitter *s, const Node *node, uint32_t depth) {
  const uint32_t op = formula_op(s, node);
  FormulaStep step = {.op = op};
  if (op == TFM_FORMULA_DIV && s->request.is_differentiated &&
      reaches_weight(arena_of(s), s->request.stopped, node->inputs.items[1]) &&
      item_kind(s->request.kinds, node->inputs.items[1]).name != ITEMS_FREE)
    s->divides = node;
  if (s->divides || op == N_FORMULA_OPS || node->inputs.n != formula_ops[op].operands) return -1;
  for (size_t i = 0; i < node->inputs.n; i++) {
    const int32_t operand = add_formula(s, node->inputs.items[i], depth - 1);
    if (operand < 0) return -1;
    step.operands[i] = (uint32_t)operand;
  }
  return add_step(s, step);
}

/* The number that a scalar is known to be. Truths and whole numbers too. */
static bool known_number(const Node *node, double *number) {
  int64_t integer;
  if (match_number(node, number)) return true;
  if (!match_integer(node, &integer)) return false;
  *number = (double)integer;
  return true;
}

static int32_t make_step(Splitter *s, Node *node, uint32_t depth) {
  double number;
  const ItemKind kind = item_kind(s->request.kinds, node);
  if (known_number(node, &number)) return add_step(s, (FormulaStep){.op = TFM_FORMULA_NUMBER, .number = number});
  switch (kind.name) {
    case ITEMS_FREE:
      return add_leaf(s, node, true);
    case ITEMS_TOTAL:
      return add_leaf(s, node, false);
    case ITEMS_AVERAGE:
      return add_average(s, node, kind.over);
    case ITEMS_MIXED:
      return add_operation(s, node, depth);
    default:
      return -1;
  }
}

/* The step that computes the value of the node, of rank 0; -1: there is no such formula. A value that is used twice is
 * computed once. */
static int32_t add_formula(Splitter *s, Node *node, uint32_t depth) {
  if (node->rank || !depth) return -1;
  const MapEntry *found = map_find(&s->made, &node, sizeof node);
  if (found) return (int32_t)(uintptr_t)found->value - 1;
  const int32_t step = make_step(s, node, depth);
  if (step >= 0) map_put_n(&s->made, &node, sizeof node, (void *)((uintptr_t)step + 1));
  return step;
}

// ---- a part that is found ----

enum { MOST_DEPTH = 200 };

/* A sum over items, by another or by a formula over such sums, none of which weights reach: what it is divided by is
 * known before anything is differentiated. */
static bool is_quotient(Splitter *s, LossPart *part) {
  const ItemKindName top = item_kind(s->request.kinds, part->top).name;
  part->is_once = top == ITEMS_FREE && !part->bottom;
  if (part->is_once) return true;
  if (top != ITEMS_TOTAL || (part->bottom && reaches_weight(arena_of(s), s->request.stopped, part->bottom)))
    return false;
  if (!part->bottom || item_kind(s->request.kinds, part->bottom).name == ITEMS_TOTAL) return true;
  part->formula = add_formula(s, part->bottom, MOST_DEPTH);
  return part->formula >= 0;
}

static bool is_formula(Splitter *s, LossPart *part) {
  part->formula = add_formula(s, part->top, MOST_DEPTH);
  if (part->formula < 0 || !part->bottom) return part->formula >= 0;
  const int32_t divisor = add_formula(s, part->bottom, MOST_DEPTH);
  const uint32_t operands[] = {(uint32_t)part->formula, (uint32_t)divisor};
  if (divisor >= 0)
    part->formula = add_step(s, (FormulaStep){.op = TFM_FORMULA_DIV, .operands = {operands[0], operands[1]}});
  return divisor >= 0;
}

/* Where a value that no formula has first mixes items. */
static const Node *mixing(Splitter *s, const Node *node) {
  const ItemKind kind = item_kind(s->request.kinds, node);
  return kind.name == ITEMS_MIXED ? kind.where : node;
}

static void add_part(Splitter *s, double factor, Node *top, Node *bottom) {
  LossPart part = {.factor = factor, .top = top, .bottom = bottom, .formula = -1};
  LossPart as_formula = part;
  if (!is_quotient(s, &part)) {
    part = as_formula;
    if (is_formula(s, &as_formula)) {
      as_formula.top = as_formula.bottom = NULL;
      vec_push(arena_of(s), &s->parts->parts, as_formula);
      return;
    }
    const bool is_top = !bottom || item_kind(s->request.kinds, top).name == ITEMS_MIXED;
    if (!s->parts->is_whole) s->parts->where = s->divides ? s->divides : mixing(s, is_top ? top : bottom);
    if (!s->parts->is_whole) s->parts->divides = s->divides != NULL;
    s->parts->is_whole = true;
  }
  vec_push(arena_of(s), &s->parts->parts, part);
}

// ---- down from the result ----

static Node *times(Splitter *s, Node *a, Node *b) { return a ? build_binary(&s->builder, OP_MUL, a, b) : b; }

static Node *size_node(Splitter *s, const Size *size) { return build_size(&s->builder, DTYPE_F32, size); }

static const Size *reduced_size(const Node *mean) { return mean->inputs.items[0]->dims[mean->attr.axis]; }

static bool is_batch_mean(const Splitter *s, const Node *x) {
  return x->op == OP_MEAN && s->request.kinds->batch >= 0 &&
         size_involves(reduced_size(x), (uint32_t)s->request.kinds->batch);
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
  vec_push(arena_of(s), &s->waiting, ((LossPart){.factor = factor, .top = t, .bottom = bottom}));
}

static void split_quotient(Splitter *s, Node *t, double factor, Node *bottom) {
  Node *divisor = t->inputs.items[1];
  double number;
  if (match_number(divisor, &number))
    later(s, t->inputs.items[0], factor / number, bottom);
  else if (reaches_weight(arena_of(s), s->request.stopped, divisor))
    add_part(s, factor, t, bottom);
  else
    later(s, t->inputs.items[0], factor, times(s, bottom, divisor));
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

static void split_all(Splitter *s, Node *result) {
  later(s, result, 1, NULL);
  while (s->waiting.n) { /* a sum may have as many terms as a graph has nodes, so this does not recurse */
    const LossPart part = s->waiting.items[--s->waiting.n];
    split(s, part.top, part.factor, part.bottom);
  }
}

void loss_parts(const LossRequest *request, Node *result, LossParts *parts) {
  Graph *graph = request->kinds->graph;
  Splitter s = {.builder = {.graph = graph, .origin = result->origin},
                .request = *request,
                .parts = parts,
                .made = map_new(graph->arena)};
  *parts = (LossParts){0};
  split_all(&s, result);
  if (!parts->is_whole) return;
  *parts = (LossParts){.is_whole = true, .divides = parts->divides, .where = parts->where};
  vec_push(arena_of(&s), &parts->parts, ((LossPart){.factor = 1, .top = result, .formula = -1}));
}
