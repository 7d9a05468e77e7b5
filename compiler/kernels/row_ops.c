/* ROW: what row kernels compute: pointwise expressions, reductions, softmax, norms.
 *
 * In: a spec of the family ROW, whose expression gives the lines. Out: a tfm_row_kernel. A line is what is reduced;
 * lines lie along the rows or along the columns, and line_passes.h hides which. Refuses nothing. */
#include "base/check.h"
#include "codegen/math.h"
#include "kernels/emit.h"
#include "kernels/line_passes.h"

static void all_lines(RowKernel *k, const LinePass *passes) {
  if (line_is_column(k)) column_lines(k, passes);
  else row_lines(k, passes);
}

// ---- pointwise ----

static void pointwise_body(RowKernel *k, void *context, LLVMValueRef *state) {
  (void)context, (void)state;
  row_store(k, row_values(k));
}

/* What follows a product sees the columns of one tile at a time: a turn of more would never come, and the rest of a
 * turn goes under masks, which AVX2 stores one lane after the other. */
static unsigned pointwise_unroll(const RowKernel *k) {
  const unsigned usual = row_unroll(k), of_tile = k->e->target->gemm_tiles[0].width / LANES;
  for (uint32_t i = 0; i < k->program.n; i++)
    if (k->program.nodes[i]->kind == EXPR_ACC && of_tile > 0 && of_tile < usual) return of_tile;
  return usual;
}

static void emit_pointwise(RowKernel *k) {
  if (row_has_squares(k)) {
    row_squares(k, pointwise_body);
    return;
  }
  Loop rows = loop_begin(k->e, emit_i64(k->e, 0), k->rows, 1);
  row_begin(k, rows.index);
  row_walk(k, pointwise_unroll(k), (RowWalk){.body = pointwise_body});
  loop_end(k->e, &rows);
}

// ---- reductions: SUM MEAN MAX MIN ARGMAX, one number per line ----

static const Reducer *reducer_of(OpKind reduction) {
  switch (reduction) {
    case OP_SUM:
    case OP_MEAN: return &reducer_sum;
    case OP_MAX: return &reducer_max;
    case OP_MIN: return &reducer_min;
    case OP_ARGMAX: return &reducer_argmax;
    default: UNREACHABLE("reduction %d", reduction);
  }
}

static Lanes element(RowKernel *k, const Lanes *values) {
  (void)values;
  return row_values(k);
}

/* The lowest index that any element had; 0 for a line without elements, where the state still holds its first value. */
static LLVMValueRef index_of(Emitter *e, LLVMValueRef index) {
  LLVMValueRef untouched = emit_splat(e, emit_i32(e, INT32_MAX), LANES), zero = emit_splat(e, emit_i32(e, 0), LANES);
  return LLVMBuildSelect(e->builder, emit_icmp(e, LLVMIntEQ, index, untouched), zero, index, "");
}

static LLVMValueRef one_number(RowKernel *k, const LLVMValueRef *state) {
  OpKind reduction = k->spec->reduction;
  LLVMValueRef result = reduction == OP_ARGMAX ? index_of(k->e, state[1]) : state[0];
  return reduction == OP_MEAN ? LLVMBuildFDiv(k->e->builder, result, row_line_length(k), "") : result;
}

// ---- SOFTMAX, LOG_SOFTMAX ----

/* Three passes: the maximum (the values are left in the result), the sum of exp(x - maximum), the result.
 * Subtracting the
 * maximum keeps every power within (0, 1], so nothing overflows. A line of -inf gives zeros, which is what attention
 * over no keys means here (log: NaN); a NaN or +inf in a line makes all of it NaN. */

enum { SOFTMAX_MAXIMUM, SOFTMAX_FACTOR }; /* the values handed to passes; the factor is 1 / sum, or its log */

static Lanes power(RowKernel *k, const Lanes *values) {
  Lanes x = lanes_sub(k->e, row_value_again(k), values[SOFTMAX_MAXIMUM]);
  x = (k->spec->drops_small ? math_exp_dropping : math_exp_nonpositive)(k->e, x);
  row_store(k, x);
  return x;
}

static Lanes scaled(RowKernel *k, const Lanes *values) {
  Lanes x = lanes_mul(k->e, row_load(k, 0), values[SOFTMAX_FACTOR]);
  row_store(k, x);
  return x;
}

static Lanes log_power(RowKernel *k, const Lanes *values) {
  return math_exp_nonpositive(k->e, lanes_sub(k->e, row_value_again(k), values[SOFTMAX_MAXIMUM]));
}

static Lanes shifted(RowKernel *k, const Lanes *values) {
  Lanes x = lanes_sub(k->e, lanes_sub(k->e, row_value_again(k), values[SOFTMAX_MAXIMUM]), values[SOFTMAX_FACTOR]);
  row_store(k, x);
  return x;
}

/* -inf is no shift: the elements of its line would become NaN instead of exp(-inf) = 0. */
static LLVMValueRef finite_maximum(RowKernel *k, const LLVMValueRef *state) {
  Lanes maximum = lanes_same(state[0]), least = lanes_number(k->e, -__builtin_inf());
  Lanes is_least = lanes_compare(k->e, LLVMRealOEQ, maximum, least);
  return lanes_select(k->e, is_least, lanes_number(k->e, 0), maximum).v[0];
}

static LLVMValueRef maximum(RowKernel *k, const LLVMValueRef *state) {
  (void)k;
  return state[0];
}

/* One division per line and a multiplication per element instead of a division per element. */
static LLVMValueRef reciprocal_or_zero(RowKernel *k, const LLVMValueRef *state) {
  Lanes sum = lanes_same(state[0]), zero = lanes_number(k->e, 0);
  Lanes none = lanes_compare(k->e, LLVMRealOEQ, sum, zero);
  return lanes_select(k->e, none, zero, lanes_div(k->e, lanes_number(k->e, 1), sum)).v[0];
}

static LLVMValueRef logarithm(RowKernel *k, const LLVMValueRef *state) {
  return math_log(k->e, lanes_same(state[0])).v[0];
}

static const LinePass softmax[] = {{&reducer_number_max, row_first_value, SOFTMAX_MAXIMUM, finite_maximum, NULL, 0},
                                   {&reducer_sum, power, SOFTMAX_FACTOR, reciprocal_or_zero, NULL, 0},
                                   {NULL, scaled, 0, NULL, NULL, 0}};
static const LinePass log_softmax[] = {{&reducer_number_max, row_first_value, SOFTMAX_MAXIMUM, maximum, NULL, 0},
                                       {&reducer_sum, log_power, SOFTMAX_FACTOR, logarithm, NULL, 0},
                                       {NULL, shifted, 0, NULL, NULL, 0}};

// ---- LAYER_NORM, RMS_NORM ----

/* layer norm: (x - mean) / sqrt(mean of (x - mean)^2 + eps) * w + b
 * rms norm:   x / sqrt(mean of x^2 + eps) * w
 *
 * w and b, if there are any, go by column. The mean is taken first and the squares of what is left then: the
 * difference of two means would cancel. The mean is rounded to f32, too coarse where the line lies far from 0, and has
 * the errors of a sum: 768 equal numbers leave a difference of 4e-8, which is all that is divided by sqrt(eps) then.
 * So the second pass sums mean - x, too: its mean d is what the first one has too much, is taken off the variance, as
 * d^2, and added to the results, as d / sqrt(...). The difference is mean - x and the factor -1 / sqrt(...) because an
 * instruction takes what it subtracts from memory, so that no load stands alone. */

enum { NORM_MEAN, NORM_FACTOR, NORM_SHIFT = LINE_NUMBERS - 1 };

static Lanes centred(RowKernel *k, const Lanes *values) {
  return lanes_sub(k->e, values[NORM_MEAN], row_value_again(k));
}

static Lanes scaled_by_norm(RowKernel *k, Lanes x, const Lanes *values) {
  if (k->spec->reduction == OP_LAYER_NORM) return lanes_fma(k->e, x, values[NORM_FACTOR], values[NORM_SHIFT]);
  return lanes_mul(k->e, x, values[NORM_FACTOR]);
}

static Lanes finish(RowKernel *k, Lanes x, const Lanes *values) {
  Emitter *e = k->e;
  x = scaled_by_norm(k, x, values);
  const KernelSpec *spec = k->spec;
  if (spec->weight && spec->bias) x = lanes_fma(e, x, row_load(k, spec->weight), row_load(k, spec->bias));
  else if (spec->weight) x = lanes_mul(e, x, row_load(k, spec->weight));
  else if (spec->bias) x = lanes_add(e, x, row_load(k, spec->bias));
  row_store(k, x);
  return x;
}

static Lanes normal(RowKernel *k, const Lanes *values) { return finish(k, centred(k, values), values); }

static Lanes rms_normal(RowKernel *k, const Lanes *values) { return finish(k, row_value_again(k), values); }

/* Along rows all lanes of what was reduced are the same, so numbers are computed in one: sixteen divisions and square
 * roots take as long as a tenth of a row. Columns have a number in each lane. */
static LLVMValueRef narrow(RowKernel *k, LLVMValueRef lanes) {
  const bool is_row = k->spec->reduce == 1;
  return is_row ? LLVMBuildExtractElement(k->e->builder, lanes, emit_i32(k->e, 0), "") : lanes;
}

static LLVMValueRef widened(RowKernel *k, LLVMValueRef number) {
  return k->spec->reduce == 1 ? emit_splat(k->e, number, LANES) : number;
}

static LLVMValueRef narrow_number(RowKernel *k, double number) { return narrow(k, lanes_number(k->e, number).v[0]); }

static LLVMValueRef narrow_mean(RowKernel *k, LLVMValueRef sum) {
  return LLVMBuildFDiv(k->e->builder, narrow(k, sum), narrow(k, row_line_length(k)), "");
}

static LLVMValueRef mean(RowKernel *k, const LLVMValueRef *state) { return widened(k, narrow_mean(k, state[0])); }

static LLVMValueRef factor_of(RowKernel *k, LLVMValueRef variance) {
  LLVMBuilderRef b = k->e->builder;
  LLVMValueRef square = LLVMBuildFAdd(b, variance, narrow_number(k, k->spec->eps), "");
  LLVMValueRef divisor = emit_intrinsic(k->e, "llvm.sqrt", LLVMTypeOf(square), 1, &square);
  return widened(k, LLVMBuildFDiv(b, narrow_number(k, 1), divisor, ""));
}

static LLVMValueRef factor(RowKernel *k, const LLVMValueRef *state) { return factor_of(k, narrow_mean(k, state[0])); }

/* What the mean has too much is the mean of the second of the moments. A difference below 0 is what rounding has left
 * of 0. NaN stays. */
static LLVMValueRef negative_factor(RowKernel *k, const LLVMValueRef *state) {
  LLVMBuilderRef b = k->e->builder;
  LLVMValueRef rest = narrow_mean(k, state[1]), zero = narrow_number(k, 0);
  LLVMValueRef variance = LLVMBuildFSub(b, narrow_mean(k, state[0]), LLVMBuildFMul(b, rest, rest, ""), "");
  LLVMValueRef is_below = LLVMBuildFCmp(b, LLVMRealOLT, variance, zero, "");
  return LLVMBuildFNeg(b, factor_of(k, emit_select(k->e, is_below, zero, variance)), "");
}

static LLVMValueRef shift(RowKernel *k, const LLVMValueRef *state, LLVMValueRef negative) {
  LLVMBuilderRef b = k->e->builder;
  LLVMValueRef product = LLVMBuildFMul(b, narrow_mean(k, state[1]), narrow(k, negative), "");
  return widened(k, LLVMBuildFNeg(b, product, ""));
}

static const LinePass layer_norm[] = {{&reducer_sum, row_first_value, NORM_MEAN, mean, NULL, 0},
                                      {&reducer_moments, centred, NORM_FACTOR, negative_factor, shift, NORM_SHIFT},
                                      {NULL, normal, 0, NULL, NULL, 0}};
static const LinePass rms_norm[] = {{&reducer_squares, row_first_value, NORM_FACTOR, factor, NULL, 0},
                                    {NULL, rms_normal, 0, NULL, NULL, 0}};

static const LinePass *norm_passes(const RowKernel *k) {
  return k->spec->reduction == OP_LAYER_NORM ? layer_norm : rms_norm;
}

/* A pass over one row is a chain of additions, each waiting for the one before, so NORM_ROWS rows go side by side. */

typedef struct NormRows {
  LLVMValueRef first, end;
  LLVMValueRef numbers[LINE_NUMBERS]; /* on the stack: those that passes yield for each row */
} NormRows;

/* The numbers of a row, among those of the NORM_ROWS rows of the block. */
static LLVMValueRef address_of_number(RowKernel *k, const NormRows *rows, unsigned number) {
  LLVMValueRef row = emit_sub(k->e, k->row, rows->first);
  return emit_offset(k->e, rows->numbers[number], emit_mul(k->e, row, emit_i64(k->e, 4)));
}

static Lanes load_number(RowKernel *k, const NormRows *rows, unsigned number) {
  return lanes_same(emit_splat(k->e, emit_load(k->e, k->e->f32, address_of_number(k, rows, number), 4), LANES));
}

static void store_number(RowKernel *k, const NormRows *rows, unsigned number, const Lanes *values) {
  emit_store(k->e, narrow(k, values[number].v[0]), address_of_number(k, rows, number), 4);
}

/* The numbers of the passes before pass n, for the row that the builder stands in. */
static void load_numbers(RowKernel *k, const LinePass *passes, unsigned n, const NormRows *rows, Lanes *values) {
  for (unsigned i = 0; i < n; i++) {
    values[passes[i].yields] = load_number(k, rows, passes[i].yields);
    if (passes[i].second) values[passes[i].yields_second] = load_number(k, rows, passes[i].yields_second);
  }
}

static void store_numbers(RowKernel *k, const LinePass *pass, const NormRows *rows, const Lanes *values) {
  if (pass->reducer) store_number(k, rows, pass->yields, values);
  if (pass->second) store_number(k, rows, pass->yields_second, values);
}

static bool reads_table(const KernelSpec *spec) {
  for (uint32_t i = 0; i < spec->n_operands; i++)
    if (spec->operands[i].gathered) return true;
  return false;
}

/* Squares of short rows: a pass waits for its multiply-adds, and with its load and its difference a row fills so much
 * of what the CPU looks ahead that the next one hardly begins. So two rows go side by side. What an expression has
 * computed once per row is kept for one row only. Rows of a table are looked up once a run, at its beginning: their
 * kernel is not worth the code. */
static bool goes_in_pairs(const RowKernel *k, const LinePass *passes, unsigned n) {
  const Reducer *reducer = passes[n].reducer;
  if (reads_table(k->spec)) return false;
  if ((reducer != &reducer_squares && reducer != &reducer_moments) || line_has_chains(k, reducer)) return false;
  return line_is_operand(k) ? !k->program.per_row[0] : n > 0;
}

/* The last one of an odd number of rows is its own neighbour. */
static void run_pass_on_pairs(RowKernel *k, const LinePass *passes, unsigned n, const NormRows *rows) {
  Emitter *e = k->e;
  Lanes values[LINE_NUMBERS], other_values[LINE_NUMBERS];
  RowKernel other = *k;
  Loop loop = loop_begin(e, rows->first, rows->end, 2);
  row_begin(k, loop.index);
  load_numbers(k, passes, n, rows, values);
  LLVMValueRef last = emit_sub(e, rows->end, emit_i64(e, 1));
  row_begin(&other, emit_least(e, emit_add(e, loop.index, emit_i64(e, 1)), last));
  load_numbers(&other, passes, n, rows, other_values);
  row_pass_pair(k, &other, &passes[n], values, other_values);
  store_numbers(k, &passes[n], rows, values);
  store_numbers(&other, &passes[n], rows, other_values);
  loop_end(e, &loop);
}

static void run_pass_on_rows(RowKernel *k, const LinePass *passes, unsigned n, const NormRows *rows) {
  if (goes_in_pairs(k, passes, n)) {
    run_pass_on_pairs(k, passes, n, rows);
    return;
  }
  Emitter *e = k->e;
  Lanes values[LINE_NUMBERS];
  Loop loop = loop_begin(e, rows->first, rows->end, 1);
  row_begin(k, loop.index);
  load_numbers(k, passes, n, rows, values);
  row_pass(k, &passes[n], values);
  store_numbers(k, &passes[n], rows, values);
  loop_end(e, &loop);
}

static void norm_rows(RowKernel *k, const LinePass *passes) {
  Emitter *e = k->e;
  NormRows rows;
  LLVMTypeRef numbers = LLVMArrayType2(e->f32, NORM_ROWS);
  for (unsigned i = 0; i < line_numbers(passes); i++) rows.numbers[i] = emit_stack(e, numbers, 4);
  Loop blocks = loop_begin(e, emit_i64(e, 0), k->rows, NORM_ROWS);
  rows.first = blocks.index;
  rows.end = emit_least(e, emit_add(e, blocks.index, emit_i64(e, NORM_ROWS)), k->rows);
  unsigned n = 0;
  do run_pass_on_rows(k, passes, n, &rows);
  while (passes[n++].reducer);
  loop_end(e, &blocks);
}

// ---- gradients ----

/* Of y = norm(x) w, if y gets g: with q = g w, h = norm(x), and r, the factor of the norm,
 *
 *   x gets r (q - mean q - h mean(q h)), without `mean q` for rms_norm;  each row gives w g h.
 *
 * Both results come from one walk, after the walks that yield the four numbers. Of y = log_softmax(x): x gets
 * g - exp(y) sum g, and exp(y) below 2^-100 is 0. There g is computed twice and not kept, so that the result may lie
 * where y does. */

enum { GRAD_MEAN = NORM_FACTOR + 1, GRAD_PRODUCT, GRAD_SUM = 0 }; /* mean q, mean(q h); log_softmax: sum g */

static Lanes grad_x(RowKernel *k, const Lanes *values) {
  (void)values;
  return row_load(k, k->spec->grad_of);
}

static Lanes grad_centred(RowKernel *k, const Lanes *values) {
  Lanes x = grad_x(k, values);
  return k->spec->reduction == OP_LAYER_NORM ? lanes_sub(k->e, values[NORM_MEAN], x) : x;
}

static Lanes grad_normal(RowKernel *k, const Lanes *values) {
  return scaled_by_norm(k, grad_centred(k, values), values);
}

static Lanes grad_weighted(RowKernel *k, Lanes g) {
  return k->spec->weight ? lanes_mul(k->e, g, row_load(k, k->spec->weight)) : g;
}

static Lanes grad_first(RowKernel *k, const Lanes *values) { return grad_weighted(k, row_first_value(k, values)); }

static Lanes grad_product(RowKernel *k, const Lanes *values) {
  const bool is_first = k->spec->reduction == OP_RMS_NORM;
  Lanes g = is_first ? row_first_value(k, values) : row_value_again(k);
  return lanes_mul(k->e, grad_weighted(k, g), grad_normal(k, values));
}

static Lanes grad_results(RowKernel *k, const Lanes *values) {
  Emitter *e = k->e;
  Lanes g = row_value_again(k), h = grad_normal(k, values);
  Lanes x = lanes_sub(e, grad_weighted(k, g), lanes_mul(e, h, values[GRAD_PRODUCT]));
  if (k->spec->reduction == OP_LAYER_NORM) x = lanes_sub(e, values[GRAD_MEAN], x); /* the factor is negative */
  row_store(k, lanes_mul(e, x, values[NORM_FACTOR]));
  if (k->spec->second) row_store_second(k, lanes_mul(e, g, h));
  return x;
}

static Lanes grad_of_softmax(RowKernel *k, const Lanes *values) {
  Emitter *e = k->e;
  Lanes power = math_exp(e, row_load(k, k->spec->grad_of));
  power = lanes_select(e, lanes_compare(e, LLVMRealOLT, power, lanes_number(e, 0x1p-100)), lanes_number(e, 0), power);
  Lanes x = lanes_sub(e, row_values(k), lanes_mul(e, power, values[GRAD_SUM]));
  row_store(k, x);
  return x;
}

static LLVMValueRef total(RowKernel *k, const LLVMValueRef *state) {
  (void)k;
  return state[0];
}

static const LinePass layer_norm_grad[] = {{&reducer_sum, grad_x, NORM_MEAN, mean, NULL, 0},
                                           {&reducer_moments, grad_centred, NORM_FACTOR, negative_factor, shift,
                                            NORM_SHIFT},
                                           {&reducer_sum, grad_first, GRAD_MEAN, mean, NULL, 0},
                                           {&reducer_sum, grad_product, GRAD_PRODUCT, mean, NULL, 0},
                                           {NULL, grad_results, 0, NULL, NULL, 0}};
static const LinePass rms_norm_grad[] = {{&reducer_squares, grad_centred, NORM_FACTOR, factor, NULL, 0},
                                         {&reducer_sum, grad_product, GRAD_PRODUCT, mean, NULL, 0},
                                         {NULL, grad_results, 0, NULL, NULL, 0}};
static const LinePass log_softmax_grad[] = {{&reducer_sum, element, GRAD_SUM, total, NULL, 0},
                                            {NULL, grad_of_softmax, 0, NULL, NULL, 0}};

static const LinePass *norm_grad_passes(const RowKernel *k) {
  return k->spec->reduction == OP_LAYER_NORM ? layer_norm_grad : rms_norm_grad;
}

static void emit_gradient(RowKernel *k) {
  if (k->spec->reduction == OP_LOG_SOFTMAX) all_lines(k, log_softmax_grad);
  else norm_rows(k, norm_grad_passes(k));
}

// ---- the family ----

static void emit_lines(RowKernel *k) {
  OpKind reduction = k->spec->reduction;
  if (reduction == OP_SOFTMAX) all_lines(k, softmax);
  else if (reduction == OP_LOG_SOFTMAX) all_lines(k, log_softmax);
  else if (reduction == OP_LAYER_NORM || reduction == OP_RMS_NORM) all_lines(k, norm_passes(k));
  else all_lines(k, &(LinePass){reducer_of(reduction), element, LINE_RESULT, one_number, NULL, 0});
}

static void emit_work(RowKernel *k) {
  OpKind reduction = k->spec->reduction;
  bool is_norm = reduction == OP_LAYER_NORM || reduction == OP_RMS_NORM;
  if (reduction == OP_POINTWISE) emit_pointwise(k);
  else if (k->spec->grad_of) emit_gradient(k);
  else if (is_norm && k->spec->reduce == 1) norm_rows(k, norm_passes(k));
  else emit_lines(k);
}

/* Rows of one chain have code of their own, because they are often so short that what chains take would show. Along
 * columns it takes a few branches for all rows. */
void emit_ROW(Emitter *e, const KernelSpec *spec, const char *name) {
  RowKernel k = row_kernel_begin(e, spec, name);
  if (spec->lines == LINES_OF_ANY_LENGTH && spec->reduce == 1) {
    LLVMValueRef is_long = row_line_is_long(&k);
    If one_chain = if_begin(e, LLVMBuildNot(e->builder, is_long, ""));
    k.has_chains = false;
    emit_work(&k);
    if_end(e, &one_chain);
    If chains = if_begin(e, is_long);
    k.has_chains = true;
    emit_work(&k);
    if_end(e, &chains);
  } else {
    emit_work(&k);
  }
  row_kernel_end(&k);
}
