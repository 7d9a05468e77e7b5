/* Linear attention by its definition: one step after the other, the state and all sums in double; and its gradient,
 * from the last step to the first, with the states of all steps kept.
 *
 * In: queries, keys, values, factors of the state and of what is written, the state before the first step; what the
 * result gets. Out: what each step reads of the state, and the state behind the last one, rounded once; what each
 * operand gets. Refuses nothing: shapes were checked before. */
#include <stdlib.h>
#include <string.h>

#include "base/checked_size.h"
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

// ---- the gradient ----

enum { GETS_Q, GETS_K, GETS_V, GETS_DECAY, GETS_BETA, GETTERS };

typedef struct StateGrad {
  State s;           /* y is g, which is read */
  Tensor *results[GETTERS]; /* NULL: nobody reads it */
  double *before;    /* [steps + 1][n][d]: the state before each step, and behind the last one */
  double *g, *faded; /* [n][d]: what the state behind the step gets; the state of the step when it has faded */
  double *r, *u, *du, *dv; /* [d]: what the key reads; what is written, and gets; what v gets */
} StateGrad;

static double number_at(const float *line, const StateOperand *of, int64_t t, int64_t i) {
  return (double)line[t * of->step + i * of->column];
}

/* The state before each step, by the steps themselves, whose results nobody reads. */
static void keep_states(const StateGrad *a, const StateLine *line, int64_t steps, float *unread) {
  const size_t numbers = (size_t)(a->s.n * a->s.d);
  StateLine forward = *line;
  State s = a->s;
  s.y = (StateOperand){.column = 1};
  s.row = a->r;
  forward.y = unread;
  for (size_t i = 0; i < numbers; i++) a->before[i] = a->g[i] = 0;
  for (int64_t t = 0; t < steps; t++) {
    s.s = a->before + (size_t)(t + 1) * numbers;
    memcpy(s.s, s.s - numbers, numbers * sizeof *s.s);
    do_step(&s, &forward, t);
  }
}

/* What the step reads and writes, and what it gets for that. */
static void step_columns(const StateGrad *a, const StateLine *line, const double *before, int64_t t) {
  const int64_t d = a->s.d;
  for (int64_t j = 0; j < d; j++) a->r[j] = a->du[j] = 0;
  for (int64_t i = 0; i < a->s.n; i++) {
    const double k = number_at(line->k, &a->s.k, t, i), q = number_at(line->q, &a->s.q, t, i);
    const double decay = line->decay ? number_at(line->decay, &a->s.decay, t, i) : 1;
    for (int64_t j = 0; j < d; j++) {
      a->faded[i * d + j] = decay * before[i * d + j];
      a->g[i * d + j] += q * number_at(line->y, &a->s.y, t, j);
      a->r[j] += k * a->faded[i * d + j];
      a->du[j] += k * a->g[i * d + j];
    }
  }
  for (int64_t j = 0; j < d; j++) {
    const double beta = line->beta ? number_at(line->beta, &a->s.beta, t, j) : 1;
    const double v = number_at(line->v, &a->s.v, t, j);
    a->u[j] = line->beta ? beta * (v - a->r[j]) : v;
    a->dv[j] = beta * a->du[j];
  }
}

/* Where operand `which` gets what it gets for step t of an item. NULL: nobody reads it. */
static float *row_of(const StateGrad *a, int which, int64_t item, int64_t t) {
  const Tensor *result = a->results[which];
  if (!result) return NULL;
  const int64_t columns = result->dims[result->rank - 1];
  return (float *)result->data + (item * a->s.steps + t) * columns;
}

/* Rows of the state: what q, k and decay get; then what the state before the step gets. */
static void step_rows(const StateGrad *a, const StateLine *line, int64_t item, int64_t t) {
  const int64_t n = a->s.n, d = a->s.d;
  const double *before = a->before + t * n * d, *behind = before + n * d;
  float *q = row_of(a, GETS_Q, item, t), *k = row_of(a, GETS_K, item, t), *decay = row_of(a, GETS_DECAY, item, t);
  double all = 0;
  for (int64_t i = 0; i < n; i++) {
    const double key = number_at(line->k, &a->s.k, t, i);
    double of_q = 0, of_k = 0, of_decay = 0;
    for (int64_t j = 0; j < d; j++) {
      double *g = &a->g[i * d + j];
      of_q += behind[i * d + j] * number_at(line->y, &a->s.y, t, j);
      of_k += *g * a->u[j];
      if (line->beta) of_k -= a->faded[i * d + j] * a->dv[j], *g -= key * a->dv[j];
      of_decay += *g * before[i * d + j];
      if (line->decay) *g *= number_at(line->decay, &a->s.decay, t, i);
    }
    all += of_decay;
    if (q) q[i] = (float)of_q;
    if (k) k[i] = (float)of_k;
    if (decay) decay[a->s.decay.column ? i : 0] = (float)(a->s.decay.column ? of_decay : all);
  }
}

static void step_back(const StateGrad *a, const StateLine *line, int64_t item, int64_t t) {
  step_columns(a, line, a->before + t * a->s.n * a->s.d, t);
  step_rows(a, line, item, t);
  float *v = row_of(a, GETS_V, item, t), *beta = row_of(a, GETS_BETA, item, t);
  double all = 0;
  for (int64_t j = 0; j < a->s.d; j++) {
    const double of_beta = a->du[j] * (number_at(line->v, &a->s.v, t, j) - a->r[j]);
    all += of_beta;
    if (v) v[j] = (float)a->dv[j];
    if (beta) beta[a->s.beta.column ? j : 0] = (float)(a->s.beta.column ? of_beta : all);
  }
}

/* Steps up to the last one that gets something. */
static int64_t live_steps(const StateGrad *a, const float *g) {
  for (int64_t t = a->s.steps; t > 0; t--)
    for (int64_t j = 0; j < a->s.d; j++)
      if (number_at(g, &a->s.y, t - 1, j) != 0) return t;
  return 0;
}

static void give_items(const StateGrad *a, const Tensor *g, float *unread) {
  int64_t dims[MAX_RANK];
  for (uint32_t i = 0; i < g->rank; i++) dims[i] = i + 2 < g->rank ? g->dims[i] : 1;
  Grid items = grid_of(g->rank, dims);
  for (int64_t item = 0; item < items.points; item++, grid_next(&items)) {
    const State *s = &a->s;
    const StateLine line = {s->q.data + grid_offset(&items, s->q.strides),
                            s->k.data + grid_offset(&items, s->k.strides),
                            s->v.data + grid_offset(&items, s->v.strides),
                            s->decay.data ? s->decay.data + grid_offset(&items, s->decay.strides) : NULL,
                            s->beta.data ? s->beta.data + grid_offset(&items, s->beta.strides) : NULL,
                            (float *)g->data + grid_offset(&items, s->y.strides)};
    const int64_t steps = live_steps(a, line.y);
    keep_states(a, &line, steps, unread);
    for (int64_t t = steps; t-- > 0;) step_back(a, &line, item, t);
  }
}

/* Memory for what k, v, decay and beta get, kept for the nodes that read it until the run ends; 0 first. */
static bool keep_results(const EvalNode *in, Tensor *out, StateGrad *a) {
  a->results[GETS_Q] = out;
  for (size_t i = 0; i < in->node->users.n; i++) {
    const Node *user = in->node->users.items[i];
    Tensor *kept = &in->run->probabilities[user->id], part = *out;
    const bool is_part = user->op >= OP_LINEAR_ATTENTION_GRAD_K && user->op <= OP_LINEAR_ATTENTION_GRAD_BETA;
    if (!is_part || kept->data) continue;
    const int which = GETS_K + (int)(user->op - OP_LINEAR_ATTENTION_GRAD_K);
    const size_t of = which == GETS_BETA ? 3u + in->node->attr.has_decay : (size_t)which;
    part.dims[out->rank - 1] = in->inputs[of]->dims[in->inputs[of]->rank - 1];
    if (!eval_allocate(in->run, in->node, &part)) return false;
    *kept = part;
    a->results[which] = kept;
  }
  for (int i = 0; i < GETTERS; i++)
    if (a->results[i]) memset(a->results[i]->data, 0, (size_t)tensor_elements(a->results[i]) * sizeof(float));
  return true;
}

/* Of several nodes that read the same, one was given it. */
static void share_results(const EvalNode *in, const StateGrad *a) {
  for (size_t i = 0; i < in->node->users.n; i++) {
    const Node *user = in->node->users.items[i];
    const Tensor *kept = &in->run->probabilities[user->id];
    if (user->op < OP_LINEAR_ATTENTION_GRAD_K || user->op > OP_LINEAR_ATTENTION_GRAD_BETA || !kept->data) continue;
    const Tensor *given = a->results[GETS_K + (int)(user->op - OP_LINEAR_ATTENTION_GRAD_K)];
    if (given != kept) memcpy(kept->data, given->data, (size_t)tensor_elements(given) * sizeof(float));
  }
}

bool eval_linear_attention_grad(const EvalNode *in, Tensor *out) {
  const NodeAttr *attr = &in->node->attr;
  const uint32_t rank = out->rank;
  const Tensor *g = in->inputs[in->node->inputs.n - 1];
  StateGrad a = {.s = {.q = operand_of(in->inputs[0], rank), .k = operand_of(in->inputs[1], rank),
                       .v = operand_of(in->inputs[2], rank), .y = operand_of(g, rank), .steps = out->dims[rank - 2],
                       .n = out->dims[rank - 1], .d = g->dims[rank - 1]}};
  if (attr->has_decay) a.s.decay = operand_of(in->inputs[3], rank);
  if (attr->has_beta) a.s.beta = operand_of(in->inputs[3 + attr->has_decay], rank);
  if (!keep_results(in, out, &a)) return false;
  const int64_t numbers = a.s.n * a.s.d, states = a.s.steps + 3;
  int64_t all;
  double *memory = checked_mul(numbers, states, &all) && all < INT64_MAX / 16 - 5 * a.s.d
                       ? malloc((size_t)(all + 5 * a.s.d) * sizeof *memory) : NULL;
  if (!memory)
    return eval_fault(in, DIAG_RUN_CHECK, "there is no memory for %lld states of %lld x %lld", (long long)states,
                      (long long)a.s.n, (long long)a.s.d);
  a.before = memory, a.g = memory + (a.s.steps + 1) * numbers, a.faded = a.g + numbers;
  a.r = a.faded + numbers, a.u = a.r + a.s.d, a.du = a.u + a.s.d, a.dv = a.du + a.s.d;
  give_items(&a, g, (float *)(void *)(a.dv + a.s.d));
  share_results(in, &a);
  free(memory);
  return true;
}
