/* A backtrace from a callback of m_generate reaches main. Usage: unwind WEIGHTS. Prints whether it does. */
#include <stdint.h>
#include <stdio.h>
#include <unwind.h>

#include "m.h"

int main(int n, char **arguments);

static _Unwind_Reason_Code visit(struct _Unwind_Context *context, void *found) {
  void *function = _Unwind_FindEnclosingFunction((void *)(uintptr_t)_Unwind_GetIP(context));
  if ((uintptr_t)function == (uintptr_t)main) *(int *)found = 1;
  return _URC_NO_REASON;
}

static int on_token(void *user, int64_t item, int32_t token) {
  (void)item, (void)token;
  _Unwind_Backtrace(visit, user);
  return 1;
}

int main(int n, char **arguments) {
  static const int32_t sources[3] = {4, 5, 6};
  m_model *model;
  m_context *context;
  tfm_error error;
  tfm_generated generated = {0};
  tfm_generate_options options;
  m_args args = {.struct_size = sizeof args, .batch = 1, .source = 3, .src = sources};
  int found = 0;
  if (n != 2 || m_open(arguments[1], &model, &error) || m_context_new(model, NULL, &context, &error)) return 1;
  m_generate_defaults(&options);
  options.on_token = on_token;
  options.on_token_user = &found;
  if (m_generate(context, &args, NULL, &options, &generated, &error)) return 1;
  puts(found ? "main is reached" : "main is not reached");
  m_generated_free(&generated);
  m_context_free(context);
  m_close(model);
  return 0;
}
