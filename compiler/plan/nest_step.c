/* In: a nest that is simple. Out: what of it a kernel is made for, and its operands and its step in the program.
 * Refuses nothing. See nest_step.h. */
#include "plan/nest_step.h"

#include "plan/cost.h"

/* The only property of strides that generated code depends on: 1 is a vector load, 0 a broadcast, anything else a load
 * per element. But a table whose ids differ from column to column has one column itself. */
static ColumnAccess access_of(const Nest *nest, const NestOperand *operand) {
  const uint32_t columns = nest->rank - 1;
  const Size *stride = operand->strides[columns];
  if (operand->ids && !size_equals(nest->operands[operand->ids].strides[columns], 0)) return COLUMN_LOOKED_UP;
  if (size_equals(stride, 0)) return COLUMN_BROADCAST;
  return size_equals(stride, 1) ? COLUMN_CONTIGUOUS : COLUMN_STRIDED;
}

KernelSpec nest_spec(const Nest *nest) {
  KernelSpec spec = {.family = KERNEL_ROW, .reduction = OP_POINTWISE, .n_operands = (uint8_t)nest->n_operands,
                     .expr = nest->expr};
  for (uint32_t i = 0; i < nest->n_operands; i++) {
    spec.operands[i] = (RowOperandSpec){.dtype = nest->operands[i].dtype,
                                        .form = nest->operands[i].form,
                                        .access = access_of(nest, &nest->operands[i]),
                                        .gathered = (uint8_t)nest->operands[i].ids};
  }
  if (spec.operands[0].access == COLUMN_BROADCAST) spec.operands[0].access = COLUMN_CONTIGUOUS; /* one column */
  return spec;
}

static bool has_sums(OpKind reduction) {
  return reduction != OP_MAX && reduction != OP_MIN && reduction != OP_ARGMAX && reduction != OP_POINTWISE;
}

void nest_reduces(KernelSpec *spec, OpKind reduction, uint8_t reduce, const Size *length) {
  int64_t n;
  spec->reduction = reduction;
  spec->reduce = reduce;
  if (!has_sums(reduction)) spec->lines = LINES_SHORT;
  else if (!size_is_const(length, &n)) spec->lines = LINES_OF_ANY_LENGTH;
  else spec->lines = n > TFM_ROW_CHAIN ? LINES_LONG : LINES_SHORT;
}

/* Whether squares of the operand can be transposed, if `rows` are the rows. */
static bool is_transposed(const Nest *nest, const NestOperand *operand, uint32_t rows) {
  const Size *stride = operand->strides[nest->rank - 1];
  bool is_apart = !size_equals(stride, 0) && !size_equals(stride, 1);
  return is_apart && size_equals(operand->strides[rows], 1) && dtype_bytes[operand->dtype] == 4;
}

static uint32_t count_transposed(const Nest *nest, uint32_t rows) {
  uint32_t n = 0;
  for (uint32_t i = 1; i < nest->n_operands; i++) n += is_transposed(nest, &nest->operands[i], rows);
  return n;
}

/* The columns become those of the result, and the rows the axis along which most of the operands lie that have none
 * there. Rows that a mask or ids choose stay. */
static void turn(Planner *p, Nest *nest) {
  const NestOperand *result = &nest->operands[0];
  uint32_t columns = nest->rank - 1;
  while (columns > 0 && !size_equals(result->strides[columns], 1)) columns--;
  if (size_equals(result->strides[columns], 1)) nest_move_axis(p, nest, columns, 1);
  uint32_t rows = nest->rank - 2;
  for (uint32_t i = nest->rank - 1; i-- > 0;)
    if (count_transposed(nest, i) > count_transposed(nest, rows)) rows = i;
  nest_move_axis(p, nest, rows, 2);
}

KernelSpec nest_pointwise(Planner *p, Nest *nest) {
  bool is_fixed = nest->live;
  for (uint32_t i = 0; i < nest->n_operands; i++) is_fixed |= nest->operands[i].ids != 0;
  if (!is_fixed) turn(p, nest);
  KernelSpec spec = nest_spec(nest);
  for (uint32_t i = 1; i < nest->n_operands && !is_fixed; i++)
    if (is_transposed(nest, &nest->operands[i], nest->rank - 2)) spec.operands[i].access = COLUMN_TRANSPOSED;
  return spec;
}

/* The stride of a table along the rows is what one id is worth, because the kernel multiplies it by the id it loads. */
tfm_operand nest_operand(Planner *p, const Nest *nest, const NestOperand *operand) {
  tfm_operand result = {.space = operand->space,
                        .dtype = (uint8_t)operand->dtype,
                        .index = operand->index,
                        .gathered = (uint8_t)operand->ids,
                        .form = operand->form,
                        .offset = plan_size(p, operand->offset)};
  if (operand->space == TFM_SPACE_SIZE) result.index = plan_size(p, operand->size);
  for (uint32_t i = 0; i < nest->rank; i++) result.strides[i] = plan_size(p, operand->strides[i]);
  if (operand->ids) result.strides[nest->rank - 2] = plan_size(p, operand->table_stride);
  plan_use(p, operand->space, operand->index);
  return result;
}

uint32_t nest_operands(Planner *p, const Nest *nest) {
  uint32_t first = (uint32_t)p->operands.n;
  for (uint32_t i = 0; i < nest->n_operands; i++)
    vec_push(p->arena, &p->operands, nest_operand(p, nest, &nest->operands[i]));
  return first;
}

void nest_dims(Planner *p, const Nest *nest, tfm_size *dims) {
  for (uint32_t i = 0; i < nest->rank; i++) dims[i] = plan_size(p, nest->dims[i]);
}

void plan_row_step(Planner *p, Nest *nest, const KernelSpec *spec, const char *operation) {
  tfm_row_step step = {.kernel = plan_kernel(p, spec),
                       .rank = (uint8_t)nest->rank,
                       .reduce = spec->reduce,
                       .n_operands = (uint8_t)nest->n_operands,
                       .second = spec->second,
                       .first_operand = nest_operands(p, nest),
                       .live = nest->live};
  nest_dims(p, nest, step.dims);
  vec_push(p->arena, &p->rows, step);
  plan_step(p, TFM_STEP_ROW, p->rows.n - 1, cost_rows(p, nest), operation);
}
