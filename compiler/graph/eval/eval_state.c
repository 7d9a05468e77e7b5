/* Linear attention by its definition: one step after the other, the state and all sums in double.
 *
 * In: queries, keys, values, factors of the state and of what is written, the state before the first step. Out: what
 * each step reads of the state, and the state behind the last one, rounded once. Refuses nothing: shapes were checked
 * before. */
#include <stdlib.h>

#include "graph/eval/eval_run.h"

typedef struct StateOperand {
  const float *data; /* NULL: there is none */
  int64_t strides[MAX_RANK];
  int64_t step, column; /* along t and along its columns */
} StateOperand;

typedef struct StateLine { /* of one item: where its operands begin */
  const float *q, *k, *v, *decay, *beta;
  float *y;
} StateLine;

typedef struct State {
  StateOperand q, k, v, decay, beta, y;
  int64_t steps, n, d;
  double *s, *row; /* [n][d], [d] */
  const float *initial; /* [items][n][d]; NULL: 0 */
  float *last;          /* likewise; NULL: nobody reads it */
} State;

static StateOperand operand_of(const Tensor *x, uint32_t rank) {
  StateOperand operand = {.data = x->data};
  broadcast_strides(x->rank, x->dims, 1, rank, operand.strides);
  operand.step = operand.strides[rank - 2];
  operand.column = operand.strides[rank - 1];
  return operand;
}

/* What row k reads of the state. */
static void read_row(const State *s, const float *k, int64_t column, double *row) {
  for (int64_t j = 0; j < s->d; j++) row[j] = 0;
  for (int64_t i = 0; i < s->n; i++)
    for (int64_t j = 0; j < s->d; j++) row[j] += (double)k[i * column] * s->s[i * s->d + j];
}

static void do_step(const State *s, const StateLine *line, int64_t t) {
  const float *q = line->q + t * s->q.step, *k = line->k + t * s->k.step, *v = line->v + t * s->v.step;
  const int64_t n = s->n, d = s->d;
  for (int64_t i = 0; line->decay && i < n; i++)
    for (int64_t j = 0; j < d; j++) s->s[i * d + j] *= (double)line->decay[t * s->decay.step + i * s->decay.column];
  if (line->beta) read_row(s, k, s->k.column, s->row);
  for (int64_t j = 0; j < d; j++) {
    const double value = (double)v[j * s->v.column];
    s->row[j] = line->beta ? (double)line->beta[t * s->beta.step + j * s->beta.column] * (value - s->row[j]) : value;
  }
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < d; j++) s->s[i * d + j] += (double)k[i * s->k.column] * s->row[j];
  read_row(s, q, s->q.column, s->row);
  for (int64_t j = 0; j < d; j++) line->y[t * s->y.step + j * s->y.column] = (float)s->row[j];
}

static void do_items(State *s, const Tensor *out) {
  int64_t dims[MAX_RANK];
  for (uint32_t i = 0; i < out->rank; i++) dims[i] = i + 2 < out->rank ? out->dims[i] : 1;
  Grid items = grid_of(out->rank, dims);
  for (int64_t item = 0; item < items.points; item++, grid_next(&items)) {
    const StateLine line = {s->q.data + grid_offset(&items, s->q.strides),
                            s->k.data + grid_offset(&items, s->k.strides),
                            s->v.data + grid_offset(&items, s->v.strides),
                            s->decay.data ? s->decay.data + grid_offset(&items, s->decay.strides) : NULL,
                            s->beta.data ? s->beta.data + grid_offset(&items, s->beta.strides) : NULL,
                            (float *)out->data + grid_offset(&items, s->y.strides)};
    const int64_t numbers = s->n * s->d;
    for (int64_t i = 0; i < numbers; i++) s->s[i] = s->initial ? (double)s->initial[item * numbers + i] : 0;
    for (int64_t t = 0; t < s->steps; t++) do_step(s, &line, t);
    for (int64_t i = 0; s->last && i < numbers; i++) s->last[item * numbers + i] = (float)s->s[i];
  }
}

/* Memory for the state behind the last step, kept for the nodes that read it until the run ends. False: there is no
 * room for it. */
static bool keep_state(const EvalNode *in, const Tensor *out, State *s) {
  for (size_t i = 0; i < in->node->users.n; i++) {
    const Node *user = in->node->users.items[i];
    Tensor *kept = &in->run->probabilities[user->id], part = *out;
    if (user->op != OP_LINEAR_ATTENTION_STATE || kept->data) continue;
    part.dims[out->rank - 2] = s->n;
    if (!eval_allocate(in->run, in->node, &part)) return false;
    *kept = part;
    s->last = part.data;
  }
  return true;
}

bool eval_linear_attention(const EvalNode *in, Tensor *out) {
  const NodeAttr *attr = &in->node->attr;
  const uint32_t rank = out->rank;
  State s = {.q = operand_of(in->inputs[0], rank), .k = operand_of(in->inputs[1], rank),
             .v = operand_of(in->inputs[2], rank), .y = operand_of(out, rank), .steps = out->dims[rank - 2],
             .n = in->inputs[1]->dims[in->inputs[1]->rank - 1], .d = out->dims[rank - 1]};
  if (attr->has_decay) s.decay = operand_of(in->inputs[3], rank);
  if (attr->has_beta) s.beta = operand_of(in->inputs[3 + attr->has_decay], rank);
  if (attr->has_initial) s.initial = in->inputs[in->node->inputs.n - 1]->data;
  if (!keep_state(in, out, &s)) return false;
  if (!tensor_elements(out) && !s.last) return true;
  s.s = malloc((size_t)((s.n + 1) * s.d) * sizeof *s.s);
  if (!s.s)
    return eval_fault(in, DIAG_RUN_CHECK, "there is no memory for a state of %lld x %lld", (long long)s.n,
                      (long long)s.d);
  s.row = s.s + s.n * s.d;
  do_items(&s, out);
  free(s.s);
  return true;
}
