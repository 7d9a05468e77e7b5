/* Memory of values, and the rules that only give, make or move them; the ground that all rules of the interpreter stand
 * on.
 *
 * First what the others share: memory, the walk over indexes, errors with the calls they came from, values of sizes.
 * Then the rules without arithmetic on tensors. In: what a run was given, or tensors. Out: constants, positions,
 * masks, tables of angles; the same elements in another shape or order, joined, or picked by ids. Everything is
 * copied: this is the plain definition, not the fast way. Refused: sizes without a value, tensors beyond memory, ids
 * beyond a table. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/checked_size.h"
#include "forms/form.h"
#include "graph/eval/eval_run.h"
#include "tfm/abi/double_functions.h"

// ---- memory of values ----

/* malloc, not an arena, because values are freed during the run. An empty tensor gets a byte, so that NULL means
 * failure. */
bool eval_allocate(EvalRun *run, const Node *node, Tensor *tensor) {
  const EvalNode in = {.run = run, .node = node};
  int64_t bytes = dtype_bytes[tensor->dtype];
  for (uint32_t i = 0; i < tensor->rank; i++) {
    if (!checked_mul(bytes, tensor->dims[i], &bytes)) return eval_fault(&in, DIAG_MEMORY, "a tensor is too large");
  }
  tensor->data = malloc(bytes ? (size_t)bytes : 1);
  if (!tensor->data) return eval_fault(&in, DIAG_MEMORY, "not enough memory for %lld bytes", (long long)bytes);
  return true;
}

// ---- indexes ----

Grid grid_of(uint32_t rank, const int64_t *dims) {
  Grid grid = {.rank = rank, .points = 1};
  for (uint32_t i = 0; i < rank; i++) {
    grid.dims[i] = dims[i];
    grid.points *= dims[i];
  }
  return grid;
}

/* The last index runs fastest. */
void grid_next(Grid *grid) {
  for (uint32_t i = grid->rank; i > 0; i--) {
    if (++grid->index[i - 1] < grid->dims[i - 1]) return;
    grid->index[i - 1] = 0;
  }
}

int64_t grid_offset(const Grid *grid, const int64_t *strides) {
  int64_t offset = 0;
  for (uint32_t i = 0; i < grid->rank; i++) offset += grid->index[i] * strides[i];
  return offset;
}

void broadcast_strides(uint32_t own_rank, const int64_t *dims, int64_t inner, uint32_t rank, int64_t *strides) {
  memset(strides, 0, MAX_RANK * sizeof *strides);
  for (uint32_t i = 1; i <= own_rank; i++) {
    strides[rank - i] = dims[own_rank - i] == 1 ? 0 : inner;
    inner *= dims[own_rank - i];
  }
}

// ---- errors ----

bool eval_fault(const EvalNode *in, DiagCode code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  origin_error(in->run->diag, &in->node->origin, code, "%s", arena_vprintf(in->run->scratch, format, args));
  va_end(args);
  return false;
}

// ---- sizes ----

int64_t eval_size(const EvalRun *run, const Size *size) {
  int64_t value;
  CHECK(size_value(size, run->symbols, &value), "a size was not checked before its use");
  return value;
}

const char *eval_size_fault(const EvalRun *run, const Size *size, int64_t *value) {
  for (uint32_t i = 0; i < run->graph->sizes->n_symbols; i++) {
    if (!run->bound[i] && size_involves(size, i)) {
      return arena_printf(run->scratch, "no input binds the size '%s'", run->graph->sizes->symbols[i]);
    }
  }
  return size_value(size, run->symbols, value) ? NULL : "a size is too large";
}

// ---- inputs and weights ----

/* The lookup may refuse with an error of its own, such as a file that is cut short; then nothing is added to it. */
bool eval_weight(const EvalNode *in, Tensor *out) {
  const char *name = in->node->attr.name;
  const Tensor *weight = in->run->weights ? in->run->weights(in->run->context, name) : NULL;
  if (!weight) {
    if (diag_has_errors(in->run->diag)) return false; /* the lookup said why */
    return eval_fault(in, DIAG_WEIGHT_MISSING, "there is no weight '%s'", name);
  }
  bool fits = weight->dtype == DTYPE_F32 && weight->rank == out->rank &&
              (!weight->rank || memcmp(weight->dims, out->dims, weight->rank * sizeof *weight->dims) == 0);
  if (!fits) return eval_fault(in, DIAG_WEIGHT_SHAPE, "weight '%s' has another type or shape", name);
  out->data = weight->data;
  return true;
}

bool eval_input(const EvalNode *in, Tensor *out) {
  const Graph *graph = in->run->graph;
  size_t i = 0;
  while (i < graph->inputs.n && graph->inputs.items[i] != in->node) i++;
  CHECK(i < graph->inputs.n, "an input is not recorded");
  out->data = in->run->inputs[i]->data;
  return true;
}

// ---- constants ----

static void fill(Tensor *out, double number, int64_t integer) {
  int64_t n = tensor_elements(out);
  for (int64_t i = 0; i < n; i++) {
    if (out->dtype == DTYPE_F32) ((float *)out->data)[i] = (float)number;
    else if (out->dtype == DTYPE_I32) ((int32_t *)out->data)[i] = (int32_t)integer;
    else ((uint8_t *)out->data)[i] = integer != 0;
  }
}

bool eval_full(const EvalNode *in, Tensor *out) {
  fill(out, in->node->attr.number, in->node->attr.integer);
  return true;
}

bool eval_size_node(const EvalNode *in, Tensor *out) {
  int64_t value = eval_size(in->run, in->node->attr.size);
  if (out->dtype == DTYPE_I32 && value != (int32_t)value) {
    return eval_fault(in, DIAG_RUN_CHECK, "the size %lld does not fit an i32", (long long)value);
  }
  fill(out, (double)value, value);
  return true;
}

bool eval_positions(const EvalNode *in, Tensor *out) {
  (void)in;
  for (int64_t i = 0; i < out->dims[0]; i++) ((int32_t *)out->data)[i] = (int32_t)i;
  return true;
}

bool eval_causal_mask(const EvalNode *in, Tensor *out) {
  (void)in;
  for (int64_t q = 0; q < out->dims[0]; q++) {
    for (int64_t k = 0; k < out->dims[1]; k++) ((uint8_t *)out->data)[q * out->dims[1] + k] = k > q;
  }
  return true;
}

// ---- angles ----
//
// In double: an f32 angle would be off by 1e-4 at position 5000.

static double position(const Tensor *pos, int64_t i) {
  return pos->dtype == DTYPE_F32 ? (double)((const float *)pos->data)[i] : ((const int32_t *)pos->data)[i];
}

/* Vaswani et al. 2017, section 3.5, with base for 10000; an odd width has one sine more than cosines. */
bool eval_sinusoid(const EvalNode *in, Tensor *out) {
  int64_t width = out->dims[out->rank - 1], n_sines = (width + 1) / 2, n = tensor_elements(in->inputs[0]);
  bool interleaved = in->node->attr.interleaved;
  for (int64_t row = 0; row < n; row++) {
    float *to = (float *)out->data + row * width;
    for (int64_t i = 0; i < n_sines; i++) {
      double rate = double_exp(-2.0 * (double)i / (double)width * double_log(in->node->attr.base));
      double angle = position(in->inputs[0], row) * rate;
      to[interleaved ? 2 * i : i] = (float)double_sin(angle);
      if (i < width / 2) to[interleaved ? 2 * i + 1 : n_sines + i] = (float)double_cos(angle);
    }
  }
  return true;
}

/* Su et al. 2021 (RoFormer), section 3.2.2. */
static double rotary_angle(double base, double pos, int64_t i, int64_t width) {
  return pos * double_pow(base, -2.0 * (double)i / (double)width);
}

/* Sine and cosine are rounded to f32 first, as the table of angles that compiled code reads holds them. */
static void rotate_pair(const float *x, float *to, int64_t first, int64_t second, double angle) {
  double sine = (double)(float)double_sin(angle), cosine = (double)(float)double_cos(angle);
  double a = (double)x[first], b = (double)x[second];
  to[first] = (float)(a * cosine - b * sine);
  to[second] = (float)(b * cosine + a * sine);
}

/* Halves: element i pairs with i + h/2. Interleaved: 2i with 2i + 1. */
bool eval_rotary(const EvalNode *in, Tensor *out) {
  const Tensor *x = in->inputs[0], *pos = in->inputs[1];
  int64_t width = x->dims[x->rank - 1], half = width / 2, strides[MAX_RANK];
  Grid rows = grid_of(x->rank - 1, x->dims);
  broadcast_strides(pos->rank, pos->dims, 1, rows.rank, strides);
  for (int64_t row = 0; row < rows.points; row++, grid_next(&rows)) {
    double at = position(pos, grid_offset(&rows, strides));
    for (int64_t i = 0; i < half; i++) {
      bool interleaved = in->node->attr.interleaved;
      rotate_pair((const float *)x->data + row * width, (float *)out->data + row * width, interleaved ? 2 * i : i,
                  interleaved ? 2 * i + 1 : i + half, rotary_angle(in->node->attr.base, at, i, width));
    }
  }
  return true;
}

bool eval_rotary_table(const EvalNode *in, Tensor *out) {
  int64_t half = out->dims[out->rank - 1], n = tensor_elements(in->inputs[0]);
  for (int64_t row = 0; row < n; row++) {
    float *to = (float *)out->data + row * 2 * half;
    for (int64_t i = 0; i < half; i++) {
      double angle = rotary_angle(in->node->attr.base, position(in->inputs[0], row), i, 2 * half);
      to[i] = (float)double_cos(angle);
      to[half + i] = (float)double_sin(angle);
    }
  }
  return true;
}

// ---- views and rows of tables ----

/* Copies the element at `base` plus strided indexes for every index of `out`. */
static void copy_strided(const Tensor *x, int64_t base, const int64_t *strides, Tensor *out) {
  size_t bytes = dtype_bytes[out->dtype];
  Grid grid = grid_of(out->rank, out->dims);
  for (int64_t i = 0; i < grid.points; i++, grid_next(&grid)) {
    const char *from = (const char *)x->data + (size_t)(base + grid_offset(&grid, strides)) * bytes;
    memcpy((char *)out->data + (size_t)i * bytes, from, bytes);
  }
}

/* Of a tensor in row-major order. */
static void plain_strides(const Tensor *x, int64_t *strides) {
  int64_t stride = 1;
  for (uint32_t i = x->rank; i > 0; i--) {
    strides[i - 1] = stride;
    stride *= x->dims[i - 1];
  }
}

/* infer_slice saw that start and end lie within the operand, on the actual sizes. */
bool eval_slice(const EvalNode *in, Tensor *out) {
  int64_t strides[MAX_RANK], base = 0;
  plain_strides(in->inputs[0], strides);
  for (uint32_t i = 0; i < out->rank; i++) base += eval_size(in->run, in->node->attr.starts[i]) * strides[i];
  copy_strided(in->inputs[0], base, strides, out);
  return true;
}

bool eval_reshape(const EvalNode *in, Tensor *out) {
  size_t bytes = (size_t)tensor_elements(out) * dtype_bytes[out->dtype];
  if (bytes) memcpy(out->data, in->inputs[0]->data, bytes);
  return true;
}

bool eval_permute(const EvalNode *in, Tensor *out) {
  int64_t own[MAX_RANK], strides[MAX_RANK];
  plain_strides(in->inputs[0], own);
  for (uint32_t i = 0; i < out->rank; i++) strides[i] = own[in->node->attr.axes[i]];
  copy_strided(in->inputs[0], 0, strides, out);
  return true;
}

/* A row is what stands behind the axis in all operands; `inner` is in bytes. */
bool eval_concat(const EvalNode *in, Tensor *out) {
  uint32_t axis = (uint32_t)in->node->attr.axis;
  size_t inner = dtype_bytes[out->dtype], outer = 1;
  for (uint32_t i = 0; i < out->rank; i++) *(i < axis ? &outer : &inner) *= i == axis ? 1u : (size_t)out->dims[i];
  char *to = out->data;
  for (size_t row = 0; row < outer; row++) {
    for (size_t i = 0; i < in->node->inputs.n; i++) {
      size_t bytes = inner * (size_t)in->inputs[i]->dims[axis];
      if (bytes) memcpy(to, (const char *)in->inputs[i]->data + row * bytes, bytes);
      to += bytes;
    }
  }
  return true;
}

bool eval_are_finite(const EvalNode *in, const Tensor *w) {
  const float *numbers = w->data;
  const int64_t n = tensor_elements(w);
  for (int64_t i = 0; i < n; i++)
    if (!isfinite(numbers[i]))
      return eval_fault(in, DIAG_NONFINITE, "%g, number %lld of a weight, has no form of 8 bits", (double)numbers[i],
                        (long long)i);
  return true;
}

static bool are_held(const EvalNode *in, tfm_form form) {
  if (tfm_form_has_scales(form)) return eval_are_finite(in, in->inputs[0]);
  const float *numbers = in->inputs[0]->data;
  const int64_t n = tensor_elements(in->inputs[0]);
  for (int64_t i = 0; i < n; i++) {
    const char *reason = form_refuses(form, numbers[i]);
    if (reason) return eval_fault(in, DIAG_NONFINITE, "%g %s", (double)numbers[i], reason);
  }
  return true;
}

static void round_rows(tfm_form form, int64_t k, Tensor *rows) {
  const int64_t n = tensor_elements(rows);
  float *numbers = rows->data;
  void *work = malloc(form_work_bytes(k));
  if (!work) out_of_memory("for a row of whole numbers", form_work_bytes(k));
  for (int64_t begin = 0; begin < n; begin += k) form_table[tfm_form_of_row(form, k)].round(numbers + begin, k, work);
  free(work);
}

/* A row as the products see it that use the same weight. */
bool eval_round_to(const EvalNode *in, Tensor *out) {
  const int64_t n = tensor_elements(out), k = out->rank ? out->dims[out->rank - 1] : 1;
  if (!are_held(in, in->node->attr.form)) return false;
  if (n) memcpy(out->data, in->inputs[0]->data, (size_t)n * sizeof(float));
  round_rows(in->node->attr.form, k, out);
  return true;
}

/* Ids are checked here too, since those that are computed were not seen before the run. */
bool eval_gather(const EvalNode *in, Tensor *out) {
  const Tensor *table = in->inputs[0], *ids = in->inputs[1];
  size_t bytes = dtype_bytes[table->dtype];
  for (uint32_t i = 1; i < table->rank; i++) bytes *= (size_t)table->dims[i];
  int64_t n = tensor_elements(ids);
  for (int64_t i = 0; i < n; i++) {
    int32_t id = ((const int32_t *)ids->data)[i];
    if (id < 0 || id >= table->dims[0]) {
      return eval_fault(in, DIAG_INPUT_VALUE, "id %d is not in [0, %lld)", id, (long long)table->dims[0]);
    }
    if (bytes) memcpy((char *)out->data + (size_t)i * bytes, (const char *)table->data + (size_t)id * bytes, bytes);
  }
  return true;
}
