/* What refuses a run: the checks of the model, which are conditions on run-time sizes in postfix form whose messages
 * name the sizes, and ids, of which every element must lie in [0, limit). Ids that are inputs are checked before
 * anything is computed, computed ids in a step of their own. The functions that fill a tfm_error are here too.
 *
 * The scan of ids has no branch per element, so that compilers turn it into vector code; the place of a bad id is
 * looked for only when there is one. Input tensors may have any alignment, so ids are read with memcpy. */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "binding.h"
#include "steps.h"

// ---- errors ----

static void fill_error(tfm_error *error, tfm_status status, tfm_reason reason, const char *place) {
  error->status = status;
  error->reason = reason;
  error->place = place;
}

tfm_status tfm_fail(tfm_error *error, tfm_status status, tfm_reason reason, const char *place, const char *format,
                    ...) {
  if (!error) return status;
  va_list args;
  va_start(args, format);
  vsnprintf(error->message, sizeof error->message, format, args);
  va_end(args);
  fill_error(error, status, reason, place);
  return status;
}

tfm_status tfm_refuse(tfm_error *error, tfm_status status, const char *format, ...) {
  if (!error) return status;
  va_list args;
  va_start(args, format);
  vsnprintf(error->message, sizeof error->message, format, args);
  va_end(args);
  fill_error(error, status, status == TFM_E_INPUT ? TFM_REASON_VALUE : TFM_REASON_OTHER, NULL);
  return status;
}

tfm_status tfm_succeed(tfm_error *error) {
  if (!error) return TFM_OK;
  error->message[0] = 0;
  fill_error(error, TFM_OK, TFM_REASON_OTHER, NULL);
  return TFM_OK;
}

// ---- the checks of a model ----

static bool compare(tfm_test test, int64_t left, int64_t right) {
  switch (test) {
    case TFM_EQ: return left == right;
    case TFM_NE: return left != right;
    case TFM_LT: return left < right;
    case TFM_GT: return left > right;
    case TFM_LE: return left <= right;
    default: return left >= right;
  }
}

/* A stack machine: comparisons push a value, AND, OR and NOT combine. A check without conditions holds. The stack was
 * made for the longest check (deepest_check in context.c). */
static bool check_holds(tfm_context *context, const tfm_check *check) {
  bool *stack = context->binding.condition_stack;
  uint32_t n = 0;
  for (uint32_t i = 0; i < check->n_conditions; i++) {
    const tfm_condition *condition = &context->program->conditions[check->first_condition + i];
    switch (condition->test) {
      case TFM_AND: n--, stack[n - 1] = stack[n - 1] && stack[n]; break;
      case TFM_OR: n--, stack[n - 1] = stack[n - 1] || stack[n]; break;
      case TFM_NOT: stack[n - 1] = !stack[n - 1]; break;
      default:
        stack[n++] = compare(condition->test, value_of(context, condition->left), value_of(context, condition->right));
    }
  }
  return n == 0 || stack[n - 1];
}

/* Each part is a text, and a value where there is one. What does not fit is cut. */
static void fill_message(const tfm_context *context, const tfm_check *check, char *text, size_t size) {
  size_t length = 0;
  text[0] = 0;
  for (uint32_t i = 0; i < check->n_parts && length < size; i++) {
    const tfm_message_part *part = &context->program->parts[check->first_part + i];
    int more = part->value == TFM_NONE
                   ? snprintf(text + length, size - length, "%s", part->text)
                   : snprintf(text + length, size - length, "%s%lld", part->text,
                              (long long)value_of(context, part->value));
    length += more < 0 ? 0 : (size_t)more;
  }
}

tfm_status checks_hold(tfm_context *context, tfm_error *error) {
  const tfm_program *program = context->program;
  for (uint32_t i = 0; i < program->n_checks; i++) {
    const tfm_check *check = &program->checks[i];
    if (check_holds(context, check)) continue;
    char text[sizeof error->message];
    fill_message(context, check, text, sizeof text);
    return tfm_fail(error, TFM_E_INPUT, TFM_REASON_CHECK, check->place, "%s", text);
  }
  return TFM_OK;
}

// ---- ids of inputs ----

/* Read as unsigned numbers, negative ids are large, so that one comparison checks both ends of [0, limit). */
static bool all_below(const char *ids, int64_t n, uint32_t limit) {
  uint32_t bad = 0;
  for (int64_t i = 0; i < n; i++) {
    uint32_t id;
    memcpy(&id, ids + 4 * i, 4);
    bad |= id >= limit;
  }
  return !bad;
}

/* The limit as an unsigned number: 2^31 lets every id pass that is not negative. */
static uint32_t unsigned_limit(int64_t limit) {
  return limit <= 0 ? 0 : limit > INT32_MAX ? (uint32_t)INT32_MAX + 1 : (uint32_t)limit;
}

/* "[2,0,5]" for element number `element` of a row-major tensor; nothing for a scalar. */
static void print_coordinates(char *text, size_t size, const int64_t *dims, int32_t rank, int64_t element) {
  int64_t coordinates[TFM_MAX_RANK];
  for (int32_t i = rank - 1; i >= 0; i--) {
    coordinates[i] = element % dims[i];
    element /= dims[i];
  }
  size_t length = 0;
  text[0] = 0;
  for (int32_t i = 0; i < rank && length < size; i++)
    length += (size_t)snprintf(text + length, size - length, "%s%lld%s", i ? "," : "[", (long long)coordinates[i],
                               i == rank - 1 ? "]" : "");
}

/* Looks for the first bad id: the scan only said that there is one. */
static tfm_status report_input(const tfm_context *context, const tfm_id_limit *rule, const tfm_value *value, int64_t n,
                               tfm_error *error) {
  int64_t limit = value_of(context, rule->limit);
  int32_t id = 0;
  int64_t element = 0;
  for (; element < n; element++) {
    memcpy(&id, (const char *)value->data + 4 * element, 4);
    if (id < 0 || id >= limit) break;
  }
  char where[TFM_MAX_RANK * 24];
  print_coordinates(where, sizeof where, value->dims, value->rank, element);
  return tfm_fail(error, TFM_E_INPUT, TFM_REASON_VALUE, rule->place, "input \"%s\"%s = %d, legal range is [0, %lld)",
                  context->program->inputs[rule->input].name, where, id, (long long)limit);
}

/* Of an input that is left out: all of its elements are the same. A table whose size a run decides may be too short. */
static tfm_status check_default(const tfm_context *context, const tfm_id_limit *rule, tfm_error *error) {
  const tfm_tensor_info *info = &context->program->inputs[rule->input];
  const int64_t *dims = context->binding.input_dims + (size_t)rule->input * TFM_MAX_RANK;
  for (uint32_t axis = 0; axis < info->rank; axis++)
    if (dims[axis] == 0) return TFM_OK;
  const tfm_value value = {.data = (void *)(uintptr_t)&info->fill, .dtype = TFM_I32};
  if (all_below(value.data, 1, unsigned_limit(value_of(context, rule->limit)))) return TFM_OK;
  return report_input(context, rule, &value, 1, error);
}

tfm_status ids_check_inputs(const tfm_context *context, const tfm_value *inputs, tfm_error *error) {
  const tfm_program *program = context->program;
  for (uint32_t i = 0; i < program->n_id_limits; i++) {
    const tfm_id_limit *rule = &program->id_limits[i];
    const tfm_value *value = &inputs[rule->input];
    int64_t n = 1;
    if (input_is_left_out(program, rule->input, inputs)) {
      tfm_status status = check_default(context, rule, error);
      if (status) return status;
      continue;
    }
    for (int32_t axis = 0; axis < value->rank; axis++) n *= value->dims[axis];
    if (!all_below(value->data, n, unsigned_limit(value_of(context, rule->limit))))
      return report_input(context, rule, value, n, error);
  }
  return TFM_OK;
}

// ---- computed ids ----

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
    if (stride == 4 && all_below(base + offset, columns, unsigned_limit(limit))) continue;
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
  print_coordinates(where, sizeof where, dims, ids->rank, element);
  return tfm_fail(error, TFM_E_INPUT, TFM_REASON_VALUE, ids->place, "computed id %s%s%d, legal range is [0, %lld)",
                  where, ids->rank ? " = " : "", id, (long long)value_of(context, ids->limit));
}
