/* Whatever adds up many numbers: reductions, norms, products, attention, alone and in fused nodes.
 *
 * In: f32 tensors; i32 too in sum, max and min. Out: sums in double, in the order of the index, rounded to f32 once, so
 * that the result is an oracle for kernels that add in another order; sums of i32 wrap. NaN wins in max, min and
 * argmax; a row of -inf gives zeros in softmax, NaN in log_softmax. Over no elements: sum 0, mean NaN, max -inf (the
 * smallest i32), min inf (the greatest), argmax 0. A fused node is computed as the operations it was made from. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/eval/eval_products.h"
#include "graph/eval/eval_run.h"
#include "tfm/abi/double_functions.h"

// ---- reductions ----

/* n elements, `stride` apart. */
typedef struct Line {
  const float *data;
  int64_t n, stride;
} Line;

static double at(Line x, int64_t i) { return (double)x.data[i * x.stride]; }

static double sum(Line x) {
  double total = 0;
  for (int64_t i = 0; i < x.n; i++) total += at(x, i);
  return total;
}

/* The index of the extreme element, the lowest of equal ones, the first NaN if there is one; -1 of nothing. */
static int64_t extreme(Line x, double sign) {
  int64_t best = x.n ? 0 : -1;
  for (int64_t i = 0; i < x.n; i++) {
    if (isnan(at(x, i))) return i;
    if (sign * at(x, i) > sign * at(x, best)) best = i;
  }
  return best;
}

/* The neutral element where there is none: -inf for a maximum, inf for a minimum. */
static double extreme_value(Line x, double sign) {
  int64_t i = extreme(x, sign);
  return i < 0 ? -sign * (double)INFINITY : at(x, i);
}

/* exp(x - max) instead of exp(x): no overflow, and the greatest term is exactly 1. A line of -inf has no such shift:
 * its weights are defined as 0, so that a query that sees no key adds nothing. */
static void softmax(Line x, bool logarithm, float *out) {
  double max = extreme_value(x, 1), total = 0;
  bool masked = max == -(double)INFINITY;
  for (int64_t i = 0; i < x.n; i++) total += double_exp(at(x, i) - max);
  for (int64_t i = 0; i < x.n; i++) {
    double shifted = at(x, i) - max;
    out[i * x.stride] = (float)(logarithm ? shifted - double_log(total) : masked ? 0 : double_exp(shifted) / total);
  }
}

/* `out` is where the result of the line, or its first element, goes. */
static void reduce_line(OpKind reduction, Line x, void *out) {
  float *to = out;
  switch (reduction) {
    case OP_SUM: *to = (float)sum(x); break;
    case OP_MEAN: *to = (float)(sum(x) / (double)x.n); break;
    case OP_MAX: *to = (float)extreme_value(x, 1); break;
    case OP_MIN: *to = (float)extreme_value(x, -1); break;
    case OP_ARGMAX: *(int32_t *)out = x.n ? (int32_t)extreme(x, 1) : 0; break;
    default: softmax(x, reduction == OP_LOG_SOFTMAX, to); break;
  }
}

/* A sum of i32 keeps the low 32 bits. Of nothing: sum 0, max the smallest i32, min the greatest. */
static int32_t reduce_integers(OpKind reduction, const int32_t *x, int64_t n, int64_t stride) {
  uint32_t total = 0;
  int32_t least = INT32_MAX, greatest = INT32_MIN;
  for (int64_t i = 0; i < n; i++) {
    int32_t value = x[i * stride];
    total += (uint32_t)value;
    if (value < least) least = value;
    if (value > greatest) greatest = value;
  }
  if (reduction != OP_SUM) return reduction == OP_MAX ? greatest : least;
  int32_t sum_of_all;
  memcpy(&sum_of_all, &total, sizeof total);
  return sum_of_all;
}

/* `outer` lines begin `n * inner` elements apart, and `inner` lines interleave within each. */
void reduce_tensor(OpKind reduction, uint32_t axis, const Tensor *x, Tensor *out) {
  int64_t outer = 1, inner = 1, n = x->dims[axis];
  for (uint32_t i = 0; i < axis; i++) outer *= x->dims[i];
  for (uint32_t i = axis + 1; i < x->rank; i++) inner *= x->dims[i];
  bool keeps_shape = reduction == OP_SOFTMAX || reduction == OP_LOG_SOFTMAX;
  for (int64_t i = 0; i < outer; i++) {
    for (int64_t j = 0; j < inner; j++) {
      if (x->dtype == DTYPE_I32) {
        const int32_t *from = (const int32_t *)x->data + i * n * inner + j;
        ((int32_t *)out->data)[i * inner + j] = reduce_integers(reduction, from, n, inner);
        continue;
      }
      Line line = {(const float *)x->data + i * n * inner + j, n, inner};
      /* f32 and i32 results both have 4 bytes */
      reduce_line(reduction, line, (float *)out->data + (keeps_shape ? i * n * inner + j : i * inner + j));
    }
  }
}

bool eval_reduce(const EvalNode *in, Tensor *out) {
  reduce_tensor(in->node->op, (uint32_t)in->node->attr.axis, in->inputs[0], out);
  return true;
}

// ---- norms ----

/* layer_norm: Ba, Kiros, Hinton 2016, with the biased variance, in two passes. rms_norm: Zhang, Sennrich 2019, the same
 * without the mean. */
static void norm_row(OpKind norm, double eps, Line x, const float *w, const float *b, float *out) {
  double mean = norm == OP_LAYER_NORM ? sum(x) / (double)x.n : 0, squares = 0;
  for (int64_t i = 0; i < x.n; i++) squares += (at(x, i) - mean) * (at(x, i) - mean);
  double scale = 1 / sqrt(squares / (double)x.n + eps);
  for (int64_t i = 0; i < x.n; i++) {
    out[i] = (float)((at(x, i) - mean) * scale * (w ? (double)w[i] : 1) + (b ? (double)b[i] : 0));
  }
}

void norm_tensor(OpKind norm, double eps, const Tensor *x, const Tensor *w, const Tensor *b, Tensor *out) {
  int64_t n = x->dims[x->rank - 1];
  for (int64_t i = 0; n && i < tensor_elements(x); i += n) {
    norm_row(norm, eps, (Line){(const float *)x->data + i, n, 1}, w ? w->data : NULL, b ? b->data : NULL,
             (float *)out->data + i);
  }
}

bool eval_norm(const EvalNode *in, Tensor *out) {
  const NodeAttr *attr = &in->node->attr;
  norm_tensor(in->node->op, attr->eps, in->inputs[0], attr->has_weight ? in->inputs[1] : NULL,
              attr->has_bias ? in->inputs[attr->has_weight ? 2 : 1] : NULL, out);
  return true;
}

// ---- products ----
//
// Loops are arranged so that several sums are under way at a time; no sum is split. Where the left operand of a product
// is a softmax, a weight of exactly 0 contributes 0 whatever the right operand holds there, since the value of a masked
// key may be NaN or infinite.

typedef struct Steps { /* of k, that count; no mask: all of them */
  const uint8_t *mask;
  int64_t stride; /* from step to step */
  bool where;
  int64_t strides[MAX_RANK]; /* of the mask, over the leading axes of the result */
} Steps;

typedef struct MatrixProduct { /* out = x y, of m x k and k x n */
  int64_t m, k, n;
  const float *x, *y;
  bool skip_zeros; /* an element of x that is 0 contributes 0, whatever y holds */
  Steps steps;
  double *sums; /* [n] */
  float *out;
} MatrixProduct;

/* The loop over columns is innermost, so rows of y are read in order; each sum still runs over k ascending. */
static void multiply(const MatrixProduct *p) {
  const int64_t k = p->k, n = p->n;
  const Steps *steps = &p->steps;
  for (int64_t i = 0; i < p->m; i++) {
    for (int64_t j = 0; j < n; j++) p->sums[j] = 0;
    for (int64_t l = 0; l < k; l++) {
      double factor = (double)p->x[i * k + l];
      if (p->skip_zeros && factor == 0) continue;
      if (steps->mask && (steps->mask[l * steps->stride] != 0) != steps->where) continue;
      for (int64_t j = 0; j < n; j++) p->sums[j] += factor * (double)p->y[l * n + j];
    }
    for (int64_t j = 0; j < n; j++) p->out[i * n + j] = (float)p->sums[j];
  }
}

/* x y over the last two axes, for every index of the others, which broadcast. Of the steps of k only those that count
 * are added. */
static void matmul_steps(const Tensor *x, const Tensor *y, bool skip_zeros, const Steps *steps, Tensor *out) {
  MatrixProduct p = {.m = from_last(out, 2), .k = from_last(x, 1), .n = from_last(out, 1), .skip_zeros = skip_zeros};
  int64_t of_x[MAX_RANK], of_y[MAX_RANK];
  lead_strides(x, out, of_x);
  lead_strides(y, out, of_y);
  p.sums = malloc(((size_t)p.n + 1) * sizeof *p.sums);
  if (!p.sums) out_of_memory("for the sums of a product", ((size_t)p.n + 1) * sizeof *p.sums);
  Grid lead = grid_of(out->rank - 2, out->dims);
  for (int64_t i = 0; i < lead.points; i++, grid_next(&lead)) {
    p.x = (const float *)x->data + grid_offset(&lead, of_x);
    p.y = (const float *)y->data + grid_offset(&lead, of_y);
    p.steps = *steps;
    if (steps->mask) p.steps.mask += grid_offset(&lead, steps->strides);
    p.out = (float *)out->data + i * p.m * p.n;
    multiply(&p);
  }
  free(p.sums);
}

static void matmul_tensor(const Tensor *x, const Tensor *y, bool skip_zeros, Tensor *out) {
  matmul_steps(x, y, skip_zeros, &(Steps){0}, out);
}

/* Computes acc straight into the result, or beside it if an expression follows. */
static bool with_epilogue(const EvalNode *in, Tensor *out, void (*product)(const EvalNode *, Tensor *)) {
  if (!in->node->attr.expr) {
    product(in, out);
    return true;
  }
  Tensor acc = *out;
  acc.dtype = DTYPE_F32;
  if (!eval_allocate(in->run, in->node, &acc)) return false;
  product(in, &acc);
  bool ok = eval_expr(in, &acc, out);
  free(acc.data);
  return ok;
}

static Steps steps_of(const EvalNode *in, const Tensor *out) {
  if (!in->node->attr.rows_are_steps) return (Steps){0};
  const Tensor *mask = in->inputs[in->node->attr.rows_mask - 1];
  int64_t dims[MAX_RANK], strides[MAX_RANK];
  const uint32_t lead = out->rank - 2;
  memcpy(dims, out->dims, sizeof dims);
  broadcast_strides(mask->rank, mask->dims, 1, lead + 1, strides);
  Steps steps = {.mask = mask->data, .stride = strides[lead], .where = in->node->attr.rows_where};
  memcpy(steps.strides, strides, lead * sizeof *strides);
  return steps;
}

static void matrix_product(const EvalNode *in, Tensor *out) {
  const Steps steps = steps_of(in, out);
  matmul_steps(in->inputs[0], in->inputs[1], is_probabilities(in->node->inputs.items[0]), &steps, out);
}

bool eval_matmul(const EvalNode *in, Tensor *out) {
  return with_epilogue(in, out, in->node->attr.form != TFM_FORM_F32 ? int8_matrix_product : matrix_product);
}

bool eval_linear(const EvalNode *in, Tensor *out) {
  if (in->node->attr.form == TFM_FORM_F32) return with_epilogue(in, out, linear_product);
  return eval_are_finite(in, in->inputs[1]) && with_epilogue(in, out, int8_product);
}

// ---- fused nodes ----

bool eval_pointwise_node(const EvalNode *in, Tensor *out) { return eval_expr(in, NULL, out); }

bool eval_reduce_node(const EvalNode *in, Tensor *out) {
  const NodeAttr *attr = &in->node->attr;
  Tensor x = {.dtype = DTYPE_F32, .rank = attr->rank_in};
  for (uint32_t i = 0; i < x.rank; i++) x.dims[i] = eval_size(in->run, attr->dims_in[i]);
  if (!eval_allocate(in->run, in->node, &x)) return false;
  bool ok = eval_expr(in, NULL, &x);
  if (ok) reduce_tensor(attr->reduction, (uint32_t)attr->axis, &x, out);
  free(x.data);
  return ok;
}

/* The weights of a fused norm are its last inputs. */
bool eval_norm_node(const EvalNode *in, Tensor *out) {
  const NodeAttr *attr = &in->node->attr;
  size_t n = in->node->inputs.n;
  const Tensor *w = attr->has_weight ? in->inputs[n - 1 - attr->has_bias] : NULL;
  const Tensor *b = attr->has_bias ? in->inputs[n - 1] : NULL;
  Tensor x = *out;
  if (!eval_allocate(in->run, in->node, &x)) return false;
  bool ok = eval_expr(in, NULL, &x);
  if (ok) norm_tensor(attr->reduction, attr->eps, &x, w, b, out);
  free(x.data);
  return ok;
}

/* q kT, the expression over it, and its softmax, each in memory of its own. */
static bool probabilities(const EvalNode *in, Tensor *acc, Tensor *scores, Tensor *weights) {
  if (!eval_allocate(in->run, in->node, acc) || !eval_allocate(in->run, in->node, weights)) return false;
  (in->node->attr.form != TFM_FORM_F32 ? int8_scores : matmul_transposed)(in->inputs[0], in->inputs[1], acc);
  if (!in->node->attr.expr) {
    reduce_tensor(OP_SOFTMAX, acc->rank - 1, acc, weights);
    return true;
  }
  if (!eval_allocate(in->run, in->node, scores) || !eval_expr(in, acc, scores)) return false;
  reduce_tensor(OP_SOFTMAX, acc->rank - 1, scores, weights);
  return true;
}

/* The probabilities are kept for an ATTENTION_WEIGHTS that reads them, until the run ends. */
bool eval_attention(const EvalNode *in, Tensor *out) {
  const Tensor *k = in->inputs[1];
  Tensor acc = *out;
  acc.dims[acc.rank - 1] = k->dims[k->rank - 2];
  acc.data = NULL;
  Tensor scores = acc, weights = acc;
  bool ok = probabilities(in, &acc, &scores, &weights);
  if (ok && in->node->attr.form != TFM_FORM_F32)
    int8_values(&weights, in->inputs[2], out);
  else if (ok)
    matmul_tensor(&weights, in->inputs[2], true, out);
  free(acc.data);
  free(scores.data);
  bool wanted = false;
  for (size_t i = 0; i < in->node->users.n; i++) wanted |= in->node->users.items[i]->op == OP_ATTENTION_WEIGHTS;
  if (ok && wanted) in->run->probabilities[in->node->id] = weights;
  else free(weights.data);
  return ok;
}

bool eval_attention_weights(const EvalNode *in, Tensor *out) {
  const Tensor *kept = &in->run->probabilities[in->node->inputs.items[0]->id];
  size_t bytes = (size_t)tensor_elements(out) * sizeof(float);
  if (bytes) memcpy(out->data, kept->data, bytes);
  return true;
}

// ---- the gradient of attention ----

/* A tensor of the scores' leading axes and these last two; no memory if there is no room for it. */
static Tensor part_of(const EvalNode *in, const Tensor *out, int64_t rows, int64_t columns) {
  Tensor part = *out;
  part.dims[part.rank - 2] = rows;
  part.dims[part.rank - 1] = columns;
  part.data = NULL;
  return eval_allocate(in->run, in->node, &part) ? part : (Tensor){0};
}

static bool eval_term(const EvalNode *in, Expr *term, const Tensor *acc, Tensor *out) {
  Node node = *in->node;
  node.attr.expr = term;
  const EvalNode of = {in->run, &node, in->inputs};
  return eval_expr(&of, acc, out);
}

/* Row by row: p (x - sum of x p). A probability of 0 takes nothing, whatever x is there. */
static void through_softmax(const Tensor *p, Tensor *x) {
  const int64_t n = from_last(p, 1), rows = n ? tensor_elements(p) / n : 0;
  for (int64_t i = 0; i < rows; i++) {
    const float *of_p = (const float *)p->data + i * n;
    float *of_x = (float *)x->data + i * n;
    double sum = 0;
    for (int64_t j = 0; j < n; j++) sum += of_p[j] == 0 ? 0 : (double)of_p[j] * (double)of_x[j];
    for (int64_t j = 0; j < n; j++) of_x[j] = of_p[j] == 0 ? 0 : of_p[j] * (of_x[j] - (float)sum);
  }
}

/* xT y over the last two axes; both have the leading axes of the result, or broadcast. */
static bool transposed_times(const EvalNode *in, const Tensor *x, const Tensor *y, Tensor *out) {
  const int64_t t = from_last(x, 2), s = from_last(x, 1), elements = tensor_elements(x);
  Tensor turned = part_of(in, x, s, t);
  if (!turned.rank) return false;
  for (int64_t i = 0; i < elements; i++)
    ((float *)turned.data)[i / (t * s) * t * s + i % s * t + i / s % t] = ((const float *)x->data)[i];
  matmul_tensor(&turned, y, true, out);
  free(turned.data);
  return true;
}

/* A probability of which nothing is kept takes nothing from its value, whatever that is. */
bool eval_attention_kept(const EvalNode *in, Tensor *out) {
  Expr *terms[ATTENTION_TERMS];
  if (!expr_attention_terms(in->node->attr.expr, ATTENTION_BACK, terms)) return false;
  const int64_t queries = from_last(out, 2), keys = from_last(in->inputs[1], 2);
  Tensor acc = part_of(in, out, queries, keys), p = part_of(in, out, queries, keys);
  bool ok = acc.rank && p.rank;
  if (ok) matmul_transposed(in->inputs[0], in->inputs[1], &acc);
  ok = ok && eval_term(in, terms[ATTENTION_SCORE], &acc, &p);
  if (ok) reduce_tensor(OP_SOFTMAX, p.rank - 1, &p, &acc);
  ok = ok && eval_term(in, terms[ATTENTION_KEEP], &acc, &p);
  if (ok) matmul_tensor(&p, in->inputs[2], true, out);
  free(acc.data);
  free(p.data);
  return ok;
}

typedef struct GradTensors { /* of the shape of the scores */
  Tensor acc, p, kept, back;
} GradTensors;

/* p, what is kept of it, and what q kT gets, in `back`. */
static bool attention_back(const EvalNode *in, Expr *const *terms, GradTensors *t) {
  matmul_transposed(in->inputs[0], in->inputs[1], &t->acc);
  if (!eval_term(in, terms[ATTENTION_SCORE], &t->acc, &t->kept)) return false;
  reduce_tensor(OP_SOFTMAX, t->p.rank - 1, &t->kept, &t->p);
  matmul_transposed(in->inputs[3], in->inputs[2], &t->acc);
  if (!eval_term(in, terms[ATTENTION_KEEP], &t->p, &t->kept)) return false;
  if (!eval_term(in, terms[ATTENTION_KEEP], &t->acc, &t->back)) return false;
  through_softmax(&t->p, &t->back);
  memcpy(t->acc.data, t->back.data, (size_t)tensor_elements(&t->acc) * sizeof(float));
  return eval_term(in, terms[ATTENTION_BACK], &t->acc, &t->back);
}

/* Queries that are not live take and give nothing. */
static void leave_queries_out(const EvalNode *in, GradTensors *t) {
  Node zeroed = *in->node;
  zeroed.attr.rows_zero = true;
  const EvalNode of = {in->run, &zeroed, in->inputs};
  eval_spoil_rows(&of, &t->back);
  eval_spoil_rows(&of, &t->kept);
}

/* The parts for k and v are kept for the nodes that read them, until the run ends. */
static bool give_parts(const EvalNode *in, const GradTensors *t, const Tensor *out) {
  for (size_t i = 0; i < in->node->users.n; i++) {
    const Node *user = in->node->users.items[i];
    const bool is_k = user->op == OP_ATTENTION_GRAD_K;
    if ((!is_k && user->op != OP_ATTENTION_GRAD_V) || in->run->probabilities[user->id].data) continue;
    Tensor part = part_of(in, out, from_last(&t->p, 1), from_last(in->inputs[is_k ? 0 : 3], 1));
    if (!part.rank) return false;
    in->run->probabilities[user->id] = part;
    if (!transposed_times(in, is_k ? &t->back : &t->kept, in->inputs[is_k ? 0 : 3], &part)) return false;
  }
  return true;
}

bool eval_attention_grad(const EvalNode *in, Tensor *out) {
  Expr *terms[ATTENTION_TERMS];
  if (!expr_attention_terms(in->node->attr.expr, ATTENTION_TERMS, terms)) return false;
  const int64_t queries = from_last(out, 2), keys = from_last(in->inputs[1], 2);
  GradTensors t;
  Tensor *const all[] = {&t.acc, &t.p, &t.kept, &t.back};
  bool ok = true;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    *all[i] = part_of(in, out, queries, keys);
    ok &= all[i]->rank != 0;
  }
  ok = ok && attention_back(in, terms, &t);
  if (ok) leave_queries_out(in, &t);
  if (ok) matmul_tensor(&t.back, in->inputs[1], true, out);
  ok = ok && give_parts(in, &t, out);
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]->data);
  return ok;
}

bool eval_second_result(const EvalNode *in, Tensor *out) {
  const Tensor *kept = &in->run->probabilities[in->node->id];
  const size_t bytes = (size_t)tensor_elements(out) * sizeof(float);
  if (bytes) memcpy(out->data, kept->data, bytes);
  return true;
}
