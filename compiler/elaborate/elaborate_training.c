/* The primitives of training: the loss of a classification, dropout, what stops gradients, initial values.
 *
 * In: the arguments of a call. Out: nodes of operations that there are anyway, so that every pass and kernel knows
 * them; in an objective, notes for the pass that differentiates. Refuses labels that do not fit the scores,
 * probabilities that are none, and initial values that are no numbers. */
#include <math.h>
#include <string.h>

#include "elaborate/elaborate_eval.h"
#include "elaborate/modules.h"
#include "elaborate/objective.h"
#include "elaborate/operators.h"
#include "elaborate/primitives.h"
#include "elaborate/tensors.h"

// ---- arithmetic on nodes; NULL in, NULL out ----

static Node *pointwise(Elaborator *e, OpKind op, Node *x, Node *y) {
  return x && y ? made(e, build_binary(build_here(e), op, x, y)) : NULL;
}

static Node *scaled(Elaborator *e, Node *x, double factor) {
  return pointwise(e, OP_MUL, x, made(e, build_scalar(build_here(e), DTYPE_F32, factor, 0)));
}

static Node *integer(Elaborator *e, int64_t number) {
  return made(e, build_scalar(build_here(e), DTYPE_I32, 0, number));
}

static Node *reshaped(Elaborator *e, Node *x, uint32_t rank, const Size *const *dims) {
  return x ? made(e, build_reshape(build_here(e), x, rank, dims)) : NULL;
}

static Node *summed(Elaborator *e, Node *x) {
  while (x && x->rank) x = made(e, build_reduce(build_here(e), OP_SUM, x, x->rank - 1, false));
  return x;
}

// ---- cross_entropy ----

typedef struct CrossEntropy {
  Node *logits, *labels;
  Node *counts; /* bool: the labels that are not ignored; NULL: all count */
  Node *weight; /* [classes]; NULL: each class weighs 1 */
  double smoothing;
} CrossEntropy;

static bool labels_fit(Elaborator *e, const CrossEntropy *c) {
  if (c->logits->rank < 1 || c->labels->rank != c->logits->rank - 1) {
    fail(e, DIAG_SHAPE, "cross_entropy: labels %T need the shape of logits %T without its last axis, the classes",
         c->labels, c->logits);
    return false;
  }
  for (uint32_t i = 0; i < c->labels->rank; i++) {
    if (!need_same(e, c->logits->dims[i], c->labels->dims[i],
                   "cross_entropy: labels %T need the shape of logits %T without its last axis, the classes", c->labels,
                   c->logits))
      return false;
  }
  return within_items(e, "cross_entropy", 1, &c->logits->dims[c->logits->rank - 1]);
}

/* The label whose rows are left out may lie outside of the classes: 0 is read in its place. */
static bool ignore_label(Elaborator *e, CrossEntropy *c, Value v) {
  int64_t ignored;
  if (v.kind == VALUE_NONE) return true;
  if (!integer_of(e, v, "ignore_index", &ignored)) return false;
  if (ignored != (int32_t)ignored) {
    fail(e, DIAG_RANGE, "ignore_index must be an i32, not %D", ignored);
    return false;
  }
  c->counts = pointwise(e, OP_NE, c->labels, integer(e, ignored));
  Node *zero = integer(e, 0);
  c->labels = c->counts && zero ? made(e, build_where(build_here(e), c->counts, c->labels, zero)) : NULL;
  return c->labels != NULL;
}

static bool take_weight(Elaborator *e, CrossEntropy *c, Value v) {
  const Size *classes = c->logits->dims[c->logits->rank - 1];
  if (v.kind == VALUE_NONE) return true;
  static const char why[] = "cross_entropy: weights %T need one number for each class of logits %T";
  c->weight = tensor_of(e, v, F32, "weights of cross_entropy", "");
  if (!c->weight) return false;
  if (c->weight->rank == 1) return need_same(e, c->weight->dims[0], classes, why, c->weight, c->logits);
  fail(e, DIAG_SHAPE, why, c->weight, c->logits);
  return false;
}

static Node *weight_of_labels(Elaborator *e, const CrossEntropy *c) {
  return made(e, build_gather(build_here(e), c->weight, c->labels));
}

/* A row of the sum over classes that label smoothing adds. */
static Node *spread_over_classes(Elaborator *e, const CrossEntropy *c, Node *logs) {
  Node *of_class = c->weight ? pointwise(e, OP_MUL, logs, c->weight) : logs;
  return of_class ? made(e, build_reduce(build_here(e), OP_MEAN, of_class, (int32_t)logs->rank - 1, false)) : NULL;
}

/* -(1-s) w(label) log p(label) - s/classes sum(w log p): with s = 0 and no weights minus the log of the probability. */
static Node *rows_of(Elaborator *e, const CrossEntropy *c) {
  const uint32_t rank = c->logits->rank;
  const int32_t axis = (int32_t)rank - 1;
  const Size *dims[MAX_RANK];
  memcpy(dims, c->labels->dims, c->labels->rank * sizeof *dims);
  dims[axis] = size_const(e->sizes, 1);
  Node *logs = made(e, build_softmax(build_here(e), OP_LOG_SOFTMAX, c->logits, axis));
  Node *ids = reshaped(e, c->labels, rank, dims);
  Node *picked = logs && ids ? made(e, build_take(build_here(e), logs, ids, axis)) : NULL;
  Node *row = scaled(e, reshaped(e, picked, rank - 1, (const Size *const *)c->labels->dims), c->smoothing - 1);
  if (c->weight) row = pointwise(e, OP_MUL, row, weight_of_labels(e, c));
  if (c->smoothing > 0 && row)
    row = pointwise(e, OP_SUB, row, scaled(e, spread_over_classes(e, c, logs), c->smoothing));
  if (!c->counts || !row) return row;
  Node *zero = made(e, build_scalar(build_here(e), DTYPE_F32, 0, 0));
  return zero ? made(e, build_where(build_here(e), c->counts, row, zero)) : NULL;
}

/* The weights of the labels that count, added up. */
static Node *weight_that_counts(Elaborator *e, const CrossEntropy *c) {
  Node *weights = weight_of_labels(e, c), *zero = made(e, build_scalar(build_here(e), DTYPE_F32, 0, 0));
  if (c->counts && weights && zero) weights = made(e, build_where(build_here(e), c->counts, weights, zero));
  return summed(e, weights);
}

/* How many labels count, as f32. */
static Node *count_of(Elaborator *e, const CrossEntropy *c) {
  if (c->weight) return weight_that_counts(e, c);
  if (c->counts) return summed(e, made(e, build_unary(build_here(e), OP_TO_F32, c->counts)));
  const Size *n = product_of(e, c->labels->rank, (const Size *const *)c->labels->dims);
  return n ? made(e, build_size(build_here(e), DTYPE_F32, n)) : NULL;
}

Value primitive_cross_entropy(Elaborator *e, const PrimitiveCall *call) {
  const Value reduction = call->arguments[4];
  CrossEntropy c = {.logits = tensor_of(e, call->arguments[0], F32, "logits of cross_entropy", "")};
  c.labels = c.logits ? tensor_of(e, call->arguments[1], I32, "labels of cross_entropy", "") : NULL;
  if (!c.labels || !labels_fit(e, &c)) return POISON;
  if (!real_of(e, call->arguments[3], "label_smoothing", &c.smoothing)) return POISON;
  if (!(c.smoothing >= 0 && c.smoothing < 1))
    return fail(e, DIAG_RANGE, "label_smoothing must lie in [0, 1), not %V", call->arguments[3]);
  const char *how = reduction.kind == VALUE_STRING ? reduction.as.string : "";
  if (strcmp(how, "mean") != 0 && strcmp(how, "sum") != 0 && strcmp(how, "none") != 0)
    return fail(e, DIAG_RANGE, "reduction must be \"mean\", \"sum\" or \"none\", not %V", reduction);
  if (!ignore_label(e, &c, call->arguments[2]) || !take_weight(e, &c, call->arguments[5])) return POISON;
  Node *rows = rows_of(e, &c);
  if (how[0] == 'n') return value_tensor(rows);
  Node *sum = summed(e, rows);
  return value_tensor(how[0] == 's' ? sum : pointwise(e, OP_DIV, sum, count_of(e, &c)));
}

// ---- dropout, stop_gradient ----

/* The mask is an input, which the trainer fills before each run: a function of the seed, the step and the place alone.
 * Of p = 1 nothing is left, not even where x is infinite. */
Node *dropped_out(Elaborator *e, Node *x, double p) {
  if (!e->is_training || p == 0 || !e->objective->settings.drops) return x;
  Objective *objective = e->objective;
  const uint32_t number = (uint32_t)objective->masks.n;
  const char *name = arena_printf(e->arena, "train.keep.%u", number);
  const Size *const *dims = (const Size *const *)x->dims;
  Node *kept = made(e, build_input(build_here(e), name, DTYPE_BOOL, x->rank, dims));
  if (!kept) return NULL;
  vec_push(e->arena, &objective->masks, (DropoutMask){kept, number, p});
  if (p == 1) return made(e, build_full(build_here(e), 0, x->rank, dims));
  Node *zero = made(e, build_scalar(build_here(e), DTYPE_F32, 0, 0)), *more = scaled(e, x, 1 / (1 - p));
  return zero && more ? made(e, build_where(build_here(e), kept, more, zero)) : NULL;
}

Value primitive_dropout(Elaborator *e, const PrimitiveCall *call) {
  double p;
  Node *x = tensor_of(e, call->arguments[0], F32, "x of dropout", "");
  if (!x || !real_of(e, call->arguments[1], "p of dropout", &p)) return POISON;
  if (!(p >= 0 && p <= 1)) return fail(e, DIAG_RANGE, "p of dropout must lie in [0, 1], not %V", call->arguments[1]);
  return value_tensor(dropped_out(e, x, p));
}

/* A node of its own marks the place, since x may be used elsewhere too. */
Value primitive_stop_gradient(Elaborator *e, const PrimitiveCall *call) {
  Node *x = tensor_of(e, call->arguments[0], ANY_DTYPE, "x of stop_gradient", "");
  if (!x || !e->objective) return value_tensor(x);
  Node *same = reshaped(e, x, x->rank, (const Size *const *)x->dims);
  if (same) vec_push(e->arena, &e->objective->stopped, same);
  return value_tensor(same);
}

// ---- initial values ----

static const char *const initial_names[] = {
#define INITIAL(Enum, name) name,
    INITIAL_KINDS(INITIAL)
#undef INITIAL
};

Value primitive_initial(Elaborator *e, const PrimitiveCall *call) {
  Initial *initial = ARENA_NEW(e->arena, Initial);
  double *numbers[] = {&initial->a, &initial->b};
  while (strcmp(initial_names[initial->kind], call->primitive->name) != 0) initial->kind++;
  for (uint32_t i = 0; i < call->primitive->n_parameters; i++) {
    if (!real_of(e, call->arguments[i], call->primitive->parameters[i], numbers[i])) return POISON;
    if (!isfinite(*numbers[i]))
      return fail(e, DIAG_RANGE, "%s of %s must be finite, not %V", call->primitive->parameters[i],
                  call->primitive->name, call->arguments[i]);
  }
  return (Value){VALUE_INITIAL, {.initial = initial}};
}

const Initial *initial_of(Elaborator *e, const Ast *expression, Scope *scope) {
  Value v = eval(e, expression, scope);
  if (v.kind == VALUE_INITIAL) return v.as.initial;
  if (is_number(v)) {
    Initial *initial = ARENA_NEW(e->arena, Initial);
    *initial = (Initial){.kind = INITIAL_CONSTANT, .a = number_of(v)};
    return initial;
  }
  if (!is_poison(v))
    fail_at(e, expression->span, DIAG_KIND,
            "an initial value is a number, or what uniform, normal, xavier_uniform, "
            "... give, not %K",
            v);
  return NULL;
}
