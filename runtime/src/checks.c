/* The checks of a model: conditions on run-time sizes in postfix form, and the messages with the sizes filled in. */
#include <stdio.h>

#include "context.h"

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

static bool check_holds(tfm_context *context, const tfm_check *check) {
  bool *stack = context->condition_stack;
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
