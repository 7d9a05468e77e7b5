/* What refuses a run before anything is computed: the checks of the model, which are conditions on run-time sizes in
 * postfix form whose messages name the sizes, and ids that are inputs, of which every element must lie in [0, limit).
 * Computed ids have a step of their own (steps/step_ids.c). In: sizes of a run, its inputs. Out: nothing, or what is
 * said of the first that fails.
 *
 * The scan of ids has no branch per element, so that compilers turn it into vector code; the place of a bad id is
 * looked for only when there is one. Input tensors may have any alignment, so ids are read with memcpy. */
#include <stdio.h>
#include <string.h>

#include "context/binding.h"

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
static void fill_message(const tfm_context *context, uint32_t first, uint32_t n, char *text, size_t size) {
  size_t length = 0;
  text[0] = 0;
  for (uint32_t i = 0; i < n && length < size; i++) {
    const tfm_message_part *part = &context->program->parts[first + i];
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
    fill_message(context, check->first_part, check->n_parts, text, sizeof text);
    return tfm_fail(error, TFM_E_INPUT, TFM_REASON_CHECK, check->place, "%s", text);
  }
  return TFM_OK;
}

// ---- ids of inputs ----

/* As unsigned distances from the least, numbers below it are large, so that one comparison checks both ends. The range
 * is never all of 32 bits: a limit beyond them ends where they end, and a model's own range is narrower. */
bool ids_within(const char *ids, int64_t n, int32_t least, int64_t limit) {
  if (limit > (int64_t)INT32_MAX + 1) limit = (int64_t)INT32_MAX + 1;
  const uint32_t first = (uint32_t)least, width = limit <= least ? 0 : (uint32_t)(limit - least);
  uint32_t bad = 0;
  for (int64_t i = 0; i < n; i++) {
    uint32_t id;
    memcpy(&id, ids + 4 * i, 4);
    bad |= id - first >= width;
  }
  return !bad;
}

/* "[2,0,5]" for element number `element` of a row-major tensor; nothing for a scalar. */
void ids_print_coordinates(char *text, size_t size, const int64_t *dims, int32_t rank, int64_t element) {
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
    if (id < rule->least || id >= limit) break;
  }
  char where[TFM_MAX_RANK * 24], why[sizeof error->message];
  ids_print_coordinates(where, sizeof where, value->dims, value->rank, element);
  fill_message(context, rule->first_part, rule->n_parts, why, sizeof why);
  return tfm_fail(error, TFM_E_INPUT, TFM_REASON_VALUE, rule->place,
                  "input \"%s\"%s = %d, legal range is [%d, %lld)%s%s", context->program->inputs[rule->input].name,
                  where, id, rule->least, (long long)limit, *why ? ": " : "", why);
}

/* Of an input that is left out: all of its elements are the same. A table whose size a run decides may be too short. */
static tfm_status check_default(const tfm_context *context, const tfm_id_limit *rule, tfm_error *error) {
  const tfm_tensor_info *info = &context->program->inputs[rule->input];
  const int64_t *dims = context->binding.input_dims + (size_t)rule->input * TFM_MAX_RANK;
  for (uint32_t axis = 0; axis < info->rank; axis++)
    if (dims[axis] == 0) return TFM_OK;
  const tfm_value value = {.data = (void *)(uintptr_t)&info->fill, .dtype = TFM_I32};
  if (ids_within(value.data, 1, rule->least, value_of(context, rule->limit))) return TFM_OK;
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
    if (!ids_within(value->data, n, rule->least, value_of(context, rule->limit)))
      return report_input(context, rule, value, n, error);
  }
  return TFM_OK;
}
