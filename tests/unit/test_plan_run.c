/* Plans are right: every golden model is planned for every target and executed here step by step as program.h says, with
 * kernels interpreted from their specs. The outputs must be those of the interpreter on the same fused graph.
 *
 * Buffers are allocated one by one, filled with NaN before their first and after their last step, so that a wrong
 * lifetime, stride or offset shows. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "../support/elaborate_text.h"
#include "../support/workspace.h"
#include "graph/eval/eval_run.h"
#include "passes/passes.h"
#include "plan/plan.h"
#include "weights/pack.h"

typedef struct Machine {
  Arena *arena;
  const Plan *plan;
  const tfm_program *program;
  int64_t symbols[SIZE_MAX_SYMBOLS];
  char **buffers;
  uint64_t *buffer_bytes;
  char *weights;
  const Tensor *inputs;
  char **outputs;
} Machine;

// ---- memory ----

static int64_t value_of(const Machine *m, tfm_size size) { return plan_evaluate(m->plan, size, m->symbols); }

static char *base_of(const Machine *m, const tfm_operand *operand) {
  int64_t offset = value_of(m, operand->offset) * dtype_bytes[operand->dtype];
  switch (operand->space) {
    case TFM_SPACE_INPUT: return (char *)m->inputs[operand->index].data + offset;
    case TFM_SPACE_OUTPUT: return m->outputs[operand->index] + offset;
    case TFM_SPACE_WEIGHT: return m->weights + m->program->weights[operand->index].offset + offset;
    case TFM_SPACE_BUFFER: return m->buffers[operand->index] + offset;
    default: {
      int64_t value = value_of(m, operand->index);
      char *place = arena_alloc(m->arena, 4);
      if (operand->dtype == TFM_F32) *(float *)place = (float)value;
      else *(int32_t *)place = (int32_t)value;
      return place;
    }
  }
}

typedef struct Loops {
  uint32_t rank;
  int64_t dims[TFM_MAX_RANK], index[TFM_MAX_RANK];
} Loops;

static Loops loops_of(const Machine *m, uint32_t rank, const tfm_size *dims) {
  Loops loops = {.rank = rank};
  for (uint32_t i = 0; i < rank; i++) loops.dims[i] = value_of(m, dims[i]);
  return loops;
}

static int64_t points_of(const Loops *loops, uint32_t rank) {
  int64_t points = 1;
  for (uint32_t i = 0; i < rank; i++) points *= loops->dims[i];
  return points;
}

/* The first `rank` axes at point number `point`. */
static void go_to(Loops *loops, uint32_t rank, int64_t point) {
  for (uint32_t i = rank; i-- > 0; point /= loops->dims[i]) loops->index[i] = point % loops->dims[i];
}

static char *at(const Machine *m, const tfm_operand *operand, const Loops *loops, uint32_t rank) {
  int64_t elements = 0;
  for (uint32_t i = 0; i < rank; i++) elements += loops->index[i] * value_of(m, operand->strides[i]);
  return base_of(m, operand) + elements * dtype_bytes[operand->dtype];
}

// ---- row kernels ----

typedef union Scalar {
  float f32;
  int32_t i32;
  uint8_t boolean;
} Scalar;

typedef struct Block { /* one point of a row kernel */
  const Machine *m;
  const KernelSpec *spec;
  const tfm_operand *operands;
  const Loops *loops;
  float acc;
} Block;

static const char *operand_at(const Block *block, uint32_t number) {
  const tfm_operand *operand = &block->operands[number];
  const RowOperandSpec *spec = &block->spec->operands[number];
  uint32_t last = block->loops->rank - 1;
  int64_t column_stride = value_of(block->m, operand->strides[last]);
  cr_assert_eq((int)spec->dtype, operand->dtype);
  if (spec->access == COLUMN_CONTIGUOUS) cr_assert(column_stride == 1 || block->loops->dims[last] == 1);
  if (spec->access == COLUMN_BROADCAST) cr_assert_eq(column_stride, 0);
  cr_assert_eq(spec->gathered, operand->gathered);
  if (!operand->gathered) return at(block->m, operand, block->loops, block->loops->rank);
  int32_t row = *(const int32_t *)operand_at(block, operand->gathered);
  Loops loops = *block->loops;
  loops.index[last - 1] = row;
  return at(block->m, operand, &loops, loops.rank);
}

static Scalar eval_at(const Block *block, const Expr *expr) {
  Scalar args[3], result = {0};
  RowOperand rows[3];
  switch (expr->kind) {
    case EXPR_OP:
      for (uint32_t i = 0; i < expr->n_args; i++) {
        args[i] = eval_at(block, expr->args[i]);
        rows[i] = (RowOperand){&args[i], 0};
      }
      cr_assert(eval_row(expr->op, expr->args[expr->n_args - 1]->dtype, rows, 1, &result));
      break;
    case EXPR_ACC: result.f32 = block->acc; break;
    case EXPR_INPUT:
    case EXPR_GATHER: memcpy(&result, operand_at(block, expr->input), dtype_bytes[expr->dtype]); break;
    case EXPR_INDEX: result.i32 = (int32_t)block->loops->index[block->loops->rank - 1 - expr->axis]; break;
    case EXPR_CONST:
      if (expr->dtype == DTYPE_F32) result.f32 = (float)expr->number;
      else result.i32 = (int32_t)expr->integer;
      break;
    default: cr_assert_fail("a size in a kernel");
  }
  return result;
}

static void run_pointwise(const Block *block, Loops *loops) {
  for (int64_t point = 0; point < points_of(loops, loops->rank); point++) {
    go_to(loops, loops->rank, point);
    Block here = *block;
    char *target = at(block->m, &block->operands[0], loops, loops->rank);
    here.acc = *(float *)(uintptr_t)(block->operands[0].dtype == TFM_F32 ? target : (char *)&here.acc);
    Scalar value = eval_at(&here, block->spec->expr);
    memcpy(target, &value, dtype_bytes[block->operands[0].dtype]);
  }
}

static Tensor *line_of(const Machine *m, DType dtype, int64_t n) {
  return tensor_new(m->arena, dtype, 2, (const int64_t[]){1, n});
}

/* Weights of a norm as a tensor. */
static Tensor *norm_weights(const Block *block, uint32_t number, Loops *loops) {
  if (!number) return NULL;
  uint32_t last = loops->rank - 1;
  Tensor *w = tensor_new(block->m->arena, DTYPE_F32, 1, &loops->dims[last]);
  for (loops->index[last] = 0; loops->index[last] < loops->dims[last]; loops->index[last]++)
    memcpy((float *)w->data + loops->index[last], operand_at(block, number), sizeof(float));
  return w;
}

/* A reduction along axis `axis` (the last, or the one before it) at the other indexes of `loops`. */
static void reduce_line(const Block *block, Loops *loops, uint32_t axis) {
  const KernelSpec *spec = block->spec;
  bool writes_row = spec->reduction == OP_SOFTMAX || spec->reduction == OP_LOG_SOFTMAX;
  bool is_norm = spec->reduction == OP_LAYER_NORM || spec->reduction == OP_RMS_NORM;
  int64_t n = loops->dims[axis];
  Tensor *x = line_of(block->m, DTYPE_F32, n);
  for (loops->index[axis] = 0; loops->index[axis] < n; loops->index[axis]++)
    ((float *)x->data)[loops->index[axis]] = eval_at(block, spec->expr).f32;
  Tensor *out = line_of(block->m, (DType)block->operands[0].dtype, writes_row || is_norm ? n : 1);
  if (is_norm)
    norm_tensor(spec->reduction, spec->eps, x, norm_weights(block, spec->weight, loops),
                norm_weights(block, spec->bias, loops), out);
  else
    reduce_tensor(spec->reduction, 1, x, out);
  for (int64_t i = 0; i < out->dims[1]; i++) {
    loops->index[axis] = i;
    memcpy(at(block->m, &block->operands[0], loops, loops->rank), (char *)out->data + 4 * i, 4);
  }
  loops->index[axis] = 0;
}

static void run_reduction(const Block *block, Loops *loops, int reduce) {
  uint32_t last = loops->rank - 1, axis = reduce == 1 ? last : last - 1;
  int64_t dim = loops->dims[axis];
  loops->dims[axis] = 1;
  int64_t points = points_of(loops, loops->rank);
  for (int64_t point = 0; point < points; point++) {
    loops->dims[axis] = 1;
    go_to(loops, loops->rank, point);
    loops->dims[axis] = dim;
    reduce_line(block, loops, axis);
  }
}

static void run_kernel(const Machine *m, uint32_t kernel, uint32_t first_operand, int reduce, Loops loops) {
  if (kernel == TFM_NONE) return;
  Block block = {.m = m, .spec = &m->plan->kernels.items[kernel].spec, .operands = &m->program->operands[first_operand],
                 .loops = &loops};
  cr_assert_eq(block.spec->reduce, reduce);
  if (reduce) run_reduction(&block, &loops, reduce);
  else run_pointwise(&block, &loops);
}

// ---- steps ----

static const tfm_live_rows *live_of(const Machine *m, uint32_t number) { return &m->program->live[number - 1]; }

/* A row that is not needed is 0, or has no meaning: NaN, so that who looks at it is found out. `byte` is its mask. */
static void leave_row_out(const tfm_live_rows *needed, const char *byte, char *row, int64_t columns) {
  if ((*byte != 0) != (needed->where != 0)) memset(row, needed->zeroed ? 0 : 0xff, (size_t)columns * sizeof(float));
}

static void run_row(Machine *m, uint32_t index) {
  const tfm_row_step *step = &m->program->rows[index];
  Loops loops = loops_of(m, step->rank, step->dims);
  run_kernel(m, step->kernel, step->first_operand, step->reduce, loops);
  uint32_t last = loops.rank - 1;
  for (int64_t row = 0; step->live && row < points_of(&loops, last); row++) {
    go_to(&loops, last, row);
    leave_row_out(live_of(m, step->live), base_of(m, &live_of(m, step->live)->mask) + row,
                  at(m, &m->program->operands[step->first_operand], &loops, last), loops.dims[last]);
  }
}

static void run_gemm(Machine *m, uint32_t index) {
  const tfm_gemm_step *step = &m->program->gemms[index];
  const KernelSpec *tile = &m->plan->kernels.items[step->tiles[step->tile_rows]].spec;
  const float *panels = (const float *)(m->weights + m->program->weights[step->weight].offset);
  int64_t a_stride = value_of(m, step->a.strides[0]), c_stride = value_of(m, step->c.strides[0]);
  const float *a = (const float *)base_of(m, &step->a);
  float *c = (float *)base_of(m, &step->c);
  cr_assert_eq(tile->a_stride, a_stride);
  cr_assert_eq(tile->b_stride, step->panel);
  cr_assert_eq(step->panel % step->width, 0);
  for (int64_t row = 0; row < value_of(m, step->rows); row++) {
    for (int64_t j = 0; j < step->n; j++) {
      const float *panel = panels + j / step->panel * step->panel * step->k + j % step->panel;
      double sum = 0;
      for (int64_t k = 0; k < step->k; k++) sum += (double)a[row * a_stride + k] * panel[k * step->panel];
      c[row * c_stride + j] = (float)sum;
    }
  }
  run_kernel(m, step->epilogue, step->first_operand, 0, loops_of(m, step->rank, step->dims));
  for (int64_t row = 0; step->live && row < value_of(m, step->rows); row++)
    leave_row_out(live_of(m, step->live), base_of(m, &live_of(m, step->live)->mask) + row, (char *)(c + row * c_stride), step->n);
}

static void run_matmul(Machine *m, uint32_t index) {
  const tfm_matmul_step *step = &m->program->matmuls[index];
  bool exact_zero = !step->direct && m->plan->kernels.items[step->tiles[step->tile_rows]].spec.exact_zero;
  Loops loops = loops_of(m, step->rank, step->dims);
  uint32_t last = loops.rank - 1;
  for (int64_t point = 0; point < points_of(&loops, loops.rank); point++) {
    go_to(&loops, loops.rank, point);
    float *c = (float *)at(m, &step->c, &loops, loops.rank);
    int64_t row = loops.index[last - 1], column = loops.index[last];
    double sum = 0;
    for (int64_t k = 0; k < value_of(m, step->k); k++) {
      Loops x = loops, y = loops;
      x.index[last] = k;
      y.index[last - 1] = k;
      x.index[last - 1] = row;
      y.index[last] = column;
      float p = *(const float *)at(m, &step->x, &x, loops.rank);
      if (p != 0 || !exact_zero) sum += (double)p * *(const float *)at(m, &step->y, &y, loops.rank);
    }
    *c = (float)sum;
  }
  run_kernel(m, step->epilogue, step->first_operand, 0, loops);
}

static void check_hints(const Machine *m, const tfm_attention_step *step, const Loops *loops, float score) {
  uint32_t s = loops->rank - 1;
  if (step->causal && loops->index[s] > loops->index[s - 1]) cr_assert_eq(score, -INFINITY);
  if (!step->padding) return;
  const tfm_operand *padding = &m->program->operands[step->first_operand + step->padding];
  cr_assert_eq(value_of(m, padding->strides[s - 1]), 0);
  if (*at(m, padding, loops, loops->rank) == step->padding_true) cr_assert_eq(score, -INFINITY);
}

static float score_at(const Machine *m, const tfm_attention_step *step, Loops *loops) {
  uint32_t rank = loops->rank;
  Loops keys = *loops;
  keys.index[rank - 2] = loops->index[rank - 1];
  const float *q = (const float *)at(m, &step->q, loops, rank - 1);
  double sum = 0;
  for (int64_t i = 0; i < step->h; i++) {
    keys.index[rank - 1] = i;
    Loops key = keys;
    sum += (double)q[i] * *(const float *)at(m, &step->k, &key, rank);
  }
  if (step->score == TFM_NONE) return (float)sum;
  Block block = {.m = m, .spec = &m->plan->kernels.items[step->score].spec,
                 .operands = &m->program->operands[step->first_operand], .loops = loops, .acc = (float)sum};
  return eval_at(&block, block.spec->expr).f32;
}

static void run_attention(Machine *m, uint32_t index) {
  const tfm_attention_step *step = &m->program->attentions[index];
  Loops loops = loops_of(m, step->rank, step->dims);
  uint32_t s = loops.rank - 1;
  int64_t keys = loops.dims[s];
  for (int64_t row = 0; row < points_of(&loops, s); row++) {
    go_to(&loops, s, row);
    Tensor *scores = line_of(m, DTYPE_F32, keys), *weights = line_of(m, DTYPE_F32, keys);
    for (loops.index[s] = 0; loops.index[s] < keys; loops.index[s]++) {
      float score = ((float *)scores->data)[loops.index[s]] = score_at(m, step, &loops);
      check_hints(m, step, &loops, score);
    }
    reduce_tensor(OP_SOFTMAX, 1, scores, weights);
    float *c = (float *)at(m, &step->c, &loops, s);
    for (int64_t i = 0; i < step->e; i++) {
      double sum = 0;
      for (int64_t key = 0; key < keys; key++) {
        Loops at_key = loops;
        at_key.index[s - 1] = key;
        float p = ((float *)weights->data)[key];
        if (p != 0) sum += (double)p * ((const float *)at(m, &step->v, &at_key, s))[i];
      }
      c[i] = (float)sum;
    }
    for (loops.index[s] = 0; step->has_weights && loops.index[s] < keys; loops.index[s]++)
      *(float *)at(m, &step->weights, &loops, loops.rank) = ((float *)weights->data)[loops.index[s]];
    loops.index[s] = 0;
    if (step->live)
      leave_row_out(live_of(m, step->live), at(m, &live_of(m, step->live)->mask, &loops, s), (char *)c, step->e);
  }
}

static void run_table(Machine *m, uint32_t index) {
  const tfm_table_step *step = &m->program->tables[index];
  Loops loops = loops_of(m, step->rank, step->dims);
  int64_t half = (step->d + 1) / 2;
  for (int64_t point = 0; point < points_of(&loops, loops.rank); point++) {
    go_to(&loops, loops.rank, point);
    const char *at_position = at(m, &step->positions, &loops, loops.rank);
    double position = step->positions.dtype == TFM_F32 ? *(const float *)at_position : *(const int32_t *)at_position;
    float *c = (float *)at(m, &step->c, &loops, loops.rank);
    for (int64_t j = 0; j < step->d; j++) {
      int64_t pair = step->interleaved && !step->rotary ? j / 2 : j % half;
      double angle = position * exp(-2.0 * (double)pair / (double)step->d * log(step->base));
      bool is_sine = step->rotary ? j >= half : step->interleaved ? j % 2 == 0 : j < half;
      c[j] = (float)(is_sine ? sin(angle) : cos(angle));
    }
  }
}

static void run_ids(Machine *m, uint32_t index) {
  const tfm_ids_step *step = &m->program->ids[index];
  Loops loops = loops_of(m, step->rank, step->dims);
  for (int64_t point = 0; point < points_of(&loops, loops.rank); point++) {
    go_to(&loops, loops.rank, point);
    int32_t id = *(const int32_t *)at(m, &step->ids, &loops, loops.rank);
    cr_assert(id >= 0 && id < value_of(m, step->limit));
  }
}

/* Element i along the last axis of an operand, `stride` elements apart. */
static const char *along_at(const char *base, int64_t i, int64_t stride, uint8_t dtype) {
  return base + i * stride * dtype_bytes[dtype];
}

/* An i32 of the whole line. */
static int32_t reduced(const tfm_along_step *step, const char *x, int64_t n, int64_t stride) {
  int32_t total = 0, most = INT32_MIN, least = INT32_MAX;
  for (int64_t i = 0; i < n; i++) {
    int32_t value = *(const int32_t *)along_at(x, i, stride, TFM_I32);
    total += value;
    most = value > most ? value : most;
    least = value < least ? value : least;
  }
  return step->what == TFM_ALONG_SUM ? total : step->what == TFM_ALONG_MAX ? most : least;
}

/* The index of the element before which `rank` others stand. */
static int32_t index_at_rank(const char *x, int64_t n, int64_t stride, int64_t rank) {
  for (int64_t i = 0; i < n; i++) {
    float a = *(const float *)along_at(x, i, stride, TFM_F32);
    int64_t before = 0;
    for (int64_t j = 0; j < n; j++) {
      float b = *(const float *)along_at(x, j, stride, TFM_F32);
      bool is_equal = a == b || (isnan(a) && isnan(b));
      before += is_equal ? j < i : isnan(b) || b > a;
    }
    if (before == rank) return (int32_t)i;
  }
  return -1;
}

static int64_t true_ones(const char *x, int64_t n, int64_t stride) {
  int64_t all = 0;
  for (int64_t i = 0; i < n; i++) all += *along_at(x, i, stride, TFM_BOOL) != 0;
  return all;
}

/* Where the result for element i is written. */
static int64_t place_of_true(const tfm_along_step *step, const char *x, int64_t n, int64_t stride, int64_t i) {
  if (step->what == TFM_ALONG_BEFORE) return i;
  bool is_true = *along_at(x, i, stride, TFM_BOOL) != 0;
  int64_t before = true_ones(x, i, stride);
  return is_true ? before : true_ones(x, n, stride) + i - before;
}

/* One line by the definition of its kind. */
static void run_line(const tfm_along_step *step, const char *x, const char *y, char *c, int64_t n, int64_t count,
                     const int64_t *strides) {
  for (int64_t i = 0; i < count; i++) {
    char *to = c + i * strides[2] * dtype_bytes[step->c.dtype];
    const char *from = along_at(x, i, strides[0], step->x.dtype);
    int32_t id = step->what == TFM_ALONG_TAKE ? *(const int32_t *)along_at(y, i, strides[1], TFM_I32) : 0;
    if (step->what == TFM_ALONG_TAKE) memcpy(to, along_at(x, id, strides[0], step->x.dtype), dtype_bytes[step->c.dtype]);
    else if (step->what == TFM_ALONG_POWER)
      *(float *)to = powf(*(const float *)from, *(const float *)along_at(y, i, strides[1], TFM_F32));
    else if ((step->what == TFM_ALONG_CUMSUM || step->what == TFM_ALONG_TRIANGLE) && step->x.dtype == TFM_F32)
      *(float *)to = *(const float *)from + (i ? *(float *)(to - strides[2] * 4) : 0);
    else if (step->what == TFM_ALONG_CUMSUM)
      *(int32_t *)to = *(const int32_t *)from + (i ? *(int32_t *)(to - strides[2] * 4) : 0);
    else if (step->what == TFM_ALONG_PLACES || step->what == TFM_ALONG_BEFORE)
      *(int32_t *)(c + place_of_true(step, x, n, strides[0], i) * strides[2] * 4) =
          (int32_t)(step->what == TFM_ALONG_BEFORE ? true_ones(x, i, strides[0]) : i);
    else if (step->what == TFM_ALONG_TOPK) *(int32_t *)to = index_at_rank(x, n, strides[0], i);
    else *(int32_t *)to = reduced(step, x, n, strides[0]);
  }
}

static void run_along(Machine *m, uint32_t index) {
  const tfm_along_step *step = &m->program->alongs[index];
  Loops loops = loops_of(m, step->rank, step->dims);
  uint32_t last = step->rank - 1u;
  const int64_t strides[] = {value_of(m, step->x.strides[last]), value_of(m, step->y.strides[last]),
                             value_of(m, step->c.strides[last])};
  int64_t lines = points_of(&loops, last);
  for (int64_t line = 0; line < lines; line++) {
    go_to(&loops, last, line);
    run_line(step, at(m, &step->x, &loops, last), at(m, &step->y, &loops, last), at(m, &step->c, &loops, last),
             value_of(m, step->n), loops.dims[last], strides);
  }
}

typedef void (*RunStep)(Machine *m, uint32_t index);
static const RunStep run_step[] = {
    [TFM_STEP_ROW] = run_row,           [TFM_STEP_GEMM] = run_gemm,   [TFM_STEP_MATMUL] = run_matmul,
    [TFM_STEP_ATTENTION] = run_attention, [TFM_STEP_TABLE] = run_table, [TFM_STEP_CHECK_IDS] = run_ids,
    [TFM_STEP_ALONG] = run_along};

static void forget_dead(Machine *m, uint32_t step) {
  for (uint32_t i = 0; i < m->program->n_buffers; i++) {
    const tfm_buffer *buffer = &m->program->buffers[i];
    if (!buffer->persistent && buffer->last_step + 1 == step) memset(m->buffers[i], 0xff, m->buffer_bytes[i]);
  }
}

static void run_program(Machine *m) {
  m->buffers = ARENA_ARRAY(m->arena, char *, m->program->n_buffers);
  m->buffer_bytes = ARENA_ARRAY(m->arena, uint64_t, m->program->n_buffers);
  for (uint32_t i = 0; i < m->program->n_buffers; i++) {
    const tfm_buffer *buffer = &m->program->buffers[i];
    m->buffer_bytes[i] = (uint64_t)value_of(m, buffer->elements) * dtype_bytes[buffer->dtype];
    m->buffers[i] = malloc(m->buffer_bytes[i] + 1);
    memset(m->buffers[i], 0xff, m->buffer_bytes[i]);
  }
  for (int prepare = 1; prepare >= 0; prepare--) { /* prepared values stay valid through the run that follows */
    for (uint32_t i = 0; i < m->program->n_steps; i++) {
      if (!prepare) forget_dead(m, i);
      const tfm_step *step = &m->program->steps[i];
      if (step->prepare == prepare) run_step[step->kind](m, step->index);
    }
  }
  for (uint32_t i = 0; i < m->program->n_buffers; i++) free(m->buffers[i]);
}

// ---- values ----

static uint32_t seed;
static float random_number(void) {
  seed = seed * 1664525u + 1013904223u;
  return (float)(seed >> 8) / (float)(1 << 24) - 0.5f;
}

typedef struct Weights {
  Arena *arena;
  const Graph *graph;
  Map tensors;
} Weights;

static const Tensor *find_weight(void *context, const char *name) {
  Weights *weights = context;
  Tensor *tensor = map_get(&weights->tensors, name);
  if (tensor) return tensor;
  const Node *node = map_get(&weights->graph->declared_weights, name);
  int64_t dims[MAX_RANK] = {0};
  for (uint32_t i = 0; i < node->rank; i++) size_is_const(node->dims[i], &dims[i]);
  tensor = tensor_new(weights->arena, DTYPE_F32, node->rank, dims);
  for (int64_t i = 0; i < tensor_elements(tensor); i++) ((float *)tensor->data)[i] = random_number();
  map_put(&weights->tensors, name, tensor);
  return tensor;
}

static int64_t id_limit(const Machine *m, uint32_t input) {
  int64_t limit = 6;
  for (uint32_t i = 0; i < m->program->n_id_limits; i++) {
    const tfm_id_limit *entry = &m->program->id_limits[i];
    if (entry->input == input && value_of(m, entry->limit) < limit) limit = value_of(m, entry->limit);
  }
  return limit;
}

static void random_inputs(Machine *m, const Graph *graph) {
  Tensor *inputs = ARENA_ARRAY(m->arena, Tensor, m->program->n_inputs);
  for (uint32_t i = 0; i < m->program->n_inputs; i++) {
    const Node *node = graph->inputs.items[i];
    int64_t dims[MAX_RANK], limit = id_limit(m, i);
    for (uint32_t j = 0; j < node->rank; j++) cr_assert(size_value(node->dims[j], m->symbols, &dims[j]));
    inputs[i] = *tensor_new(m->arena, node->dtype, node->rank, dims);
    for (int64_t j = 0; j < tensor_elements(&inputs[i]); j++) {
      float number = random_number();
      if (node->dtype == DTYPE_F32) ((float *)inputs[i].data)[j] = number;
      else if (node->dtype == DTYPE_I32) ((int32_t *)inputs[i].data)[j] = (int32_t)(seed >> 8) % (int32_t)limit;
      else ((uint8_t *)inputs[i].data)[j] = number > 0.2f;
    }
  }
  m->inputs = inputs;
}

static void expect_same(const char *path, const Tensor *want, const char *got, const char *name) {
  for (int64_t i = 0; i < tensor_elements(want); i++) {
    if (want->dtype == DTYPE_F32) {
      float a = ((const float *)want->data)[i], b = ((const float *)(const void *)got)[i];
      bool same = (isnan(a) && isnan(b)) || a == b || fabsf(a - b) <= 2e-4f * fmaxf(1, fabsf(a));
      cr_assert(same, "%s: %s[%lld] is %g, must be %g", path, name, (long long)i, (double)b, (double)a);
    } else {
      cr_assert_eq(memcmp((const char *)want->data + i * dtype_bytes[want->dtype], got + i * dtype_bytes[want->dtype],
                          dtype_bytes[want->dtype]), 0, "%s: %s[%lld]", path, name, (long long)i);
    }
  }
}

// ---- models ----

static void compare(Machine *m, Diag *diag, Graph *graph, Weights *weights, const char *path) {
  const char **names = ARENA_ARRAY(m->arena, const char *, m->program->n_inputs);
  for (uint32_t i = 0; i < m->program->n_inputs; i++) names[i] = m->program->inputs[i].name;
  EvalInputs inputs = {.names = names, .tensors = m->inputs, .n = m->program->n_inputs};
  Tensor *want = ARENA_ARRAY(m->arena, Tensor, m->program->n_outputs);
  bool evaluated = graph_eval(m->arena, diag, &(EvalCall){graph, find_weight, weights, .inputs = &inputs}, want);
  if (!evaluated) return; /* a check of the model that these sizes do not meet */
  m->outputs = ARENA_ARRAY(m->arena, char *, m->program->n_outputs);
  for (uint32_t i = 0; i < m->program->n_outputs; i++) {
    size_t bytes = (size_t)tensor_elements(&want[i]) * dtype_bytes[want[i].dtype] + 1;
    m->outputs[i] = memset(arena_alloc(m->arena, bytes), 0xff, bytes);
  }
  run_program(m);
  for (uint32_t i = 0; i < m->program->n_outputs; i++)
    expect_same(path, &want[i], m->outputs[i], m->program->outputs[i].name);
}

static void run_model(const char *path, int level, const TargetInfo *target, const int64_t *sizes) {
  Arena *arena = arena_create();
  Diag diag = diag_new(arena);
  Graph *graph = elaborate_file(arena, &diag, path, &(ElaborateOptions){0});
  if (graph && graph->ragged_batch < 0) {
    Graph *fused = graph_clone(arena, graph);
    PassOptions options = {.level = level};
    cr_assert(passes_run(fused, &diag, &options, NULL), "%s", path);
    Plan *plan = plan_graph(arena, &diag, fused, target);
    cr_assert_not_null(plan, "%s: %s", path, first_message(&diag));
    Machine m = {.arena = arena, .plan = plan, .program = &plan->program};
    memcpy(m.symbols, sizes, 8 * sizeof *sizes);
    seed = 7;
    Weights weights = {.arena = arena, .graph = graph, .tensors = map_new(arena)};
    m.weights = arena_alloc(arena, plan->program.weights_bytes);
    cr_assert(pack_weights(&diag, plan, &(WeightReader){.whole = find_weight, .context = &weights}, m.weights), "%s",
              path);
    random_inputs(&m, graph);
    compare(&m, &diag, fused, &weights, path);
  }
  arena_destroy(arena);
}

static void run_goldens(int level, const char *target, const int64_t *sizes) {
  const char *folder = TFM_SOURCE_DIR "/tests/goldens";
  DIR *dir = opendir(folder);
  cr_assert_not_null(dir);
  for (struct dirent *entry; (entry = readdir(dir));) {
    if (strncmp(entry->d_name, "bad-", 4) == 0 || entry->d_name[0] == '.') continue;
    char path[1024];
    snprintf(path, sizeof path, "%s/%s/model.tfm", folder, entry->d_name);
    FILE *file = fopen(path, "r");
    if (!file) continue;
    fclose(file);
    run_model(path, level, target_find(target), sizes);
  }
  closedir(dir);
}

TestSuite(plan_run, .timeout = 600);

Test(plan_run, goldens_fused_for_avx512) { run_goldens(2, "x86-64-v4", (const int64_t[8]){2, 5, 3, 4, 2, 3, 2, 2}); }
Test(plan_run, goldens_fused_for_avx2) { run_goldens(2, "x86-64-v3", (const int64_t[8]){3, 1, 2, 7, 2, 3, 2, 2}); }
Test(plan_run, goldens_unfused_for_sse) { run_goldens(0, "x86-64", (const int64_t[8]){1, 4, 6, 2, 2, 3, 2, 2}); }
