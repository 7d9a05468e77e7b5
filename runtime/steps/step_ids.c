/* Computed ids: every element of a tensor that the program computes and then uses as ids must lie in [0, limit).
 *
 * In: the step's tensor. Out: nothing, or a fault (FAULT_IDS) for which the run ends with the first element that is out
 * of the range; nothing else is refused. Threads share rows. */
#include <string.h>

#include "context/binding.h"
#include "steps/walker.h"

/* The number of the first bad element of rows [first, end) of all axes but the last, or -1. */
static int64_t first_bad(const tfm_context *context, const tfm_step *step, int64_t first, int64_t end) {
  const tfm_ids_step *ids = &context->program->ids[step->index];
  const Operand *operand = &operands_of(context, step)->ids.ids;
  int64_t columns = ids->rank ? value_of(context, ids->dims[ids->rank - 1]) : 1;
  int64_t stride = ids->rank ? operand->strides[ids->rank - 1] : 0, limit = value_of(context, ids->limit);
  const char *base = operand_address(context, operand);
  for (int64_t row = first; row < end; row++) {
    int64_t rest = row, offset = 0;
    for (int axis = ids->rank - 2; axis >= 0; axis--) {
      int64_t dim = value_of(context, ids->dims[axis]);
      offset += rest % dim * operand->strides[axis];
      rest /= dim;
    }
    if (stride == 4 && ids_within(base + offset, columns, 0, limit)) continue;
    for (int64_t column = 0; column < columns; column++) {
      int32_t id;
      memcpy(&id, base + offset + column * stride, 4);
      if (id < 0 || id >= limit) return row * columns + column;
    }
  }
  return -1;
}

/* Rows of all axes but the last, as one axis; threads divide these. */
static int64_t rows_of(const tfm_context *context, const tfm_ids_step *ids) {
  int64_t rows = 1;
  for (int axis = 0; axis < ids->rank - 1; axis++) rows *= value_of(context, ids->dims[axis]);
  return rows;
}

/* Only the number of the step is recorded: several threads may find bad ids at the same time, and the report must not
 * depend on which was first. ids_report_computed looks for the first one again. */
void step_ids(Walker *walker, const tfm_step *step) {
  tfm_context *context = walker->context;
  int64_t rows = rows_of(context, &context->program->ids[step->index]);
  int64_t first = rows * walker->thread / walker->threads, end = rows * (walker->thread + 1) / walker->threads;
  if (first_bad(context, step, first, end) < 0) return;
  atomic_store(&context->run.faulty_step, (uint32_t)(step - context->program->steps));
  atomic_fetch_or(&context->run.faults, FAULT_IDS);
}

tfm_status ids_report_computed(const tfm_context *context, uint32_t number, tfm_error *error) {
  const tfm_step *step = &context->program->steps[number];
  const tfm_ids_step *ids = &context->program->ids[step->index];
  int64_t element = first_bad(context, step, 0, rows_of(context, ids)), dims[TFM_MAX_RANK], rest = element;
  intptr_t offset = 0;
  for (int axis = ids->rank - 1; axis >= 0; axis--) {
    dims[axis] = value_of(context, ids->dims[axis]);
    offset += rest % dims[axis] * operands_of(context, step)->ids.ids.strides[axis];
    rest /= dims[axis];
  }
  int32_t id;
  memcpy(&id, operand_address(context, &operands_of(context, step)->ids.ids) + offset, 4);
  char where[TFM_MAX_RANK * 24];
  ids_print_coordinates(where, sizeof where, dims, ids->rank, element);
  return tfm_fail(error, TFM_E_INPUT, TFM_REASON_VALUE, ids->place, "computed id %s%s%d, legal range is [0, %lld)",
                  where, ids->rank ? " = " : "", id, (long long)value_of(context, ids->limit));
}
