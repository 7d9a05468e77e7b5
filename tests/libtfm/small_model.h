/* A model small enough to know its outputs by heart, with its weights in memory. */
#ifndef TESTS_LIBTFM_SMALL_MODEL_H
#define TESTS_LIBTFM_SMALL_MODEL_H

#include <string.h>

#include "tfm/compile.h"

static const char small_text[] =
    "model Small(n = 3) {\n"
    "  up = Linear(n, 2)\n"
    "  forward(x: f32[batch, n], ids: i32[batch]) {\n"
    "    return y = up(x), twice = ids * 2\n"
    "  }\n"
    "}\n";
static const float small_matrix[] = {1, 2, 3, 4, 5, 6}, small_bias[] = {1, -1};
static const int64_t small_matrix_dims[] = {2, 3}, small_bias_dims[] = {2};
static const tfm_tensor small_weights[] = {
    {"up.weight", "F32", 2, small_matrix_dims, small_matrix},
    {"up.bias", NULL, 1, small_bias_dims, small_bias},
};

static inline tfm_compile_options small_options(void) {
  tfm_compile_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.text = small_text;
  options.weights = small_weights;
  options.n_weights = 2;
  return options;
}

/* y of x = [1, 0, 2] and twice of ids = [21]; 0 if they are right. */
static inline int small_run(const tfm_compiled *compiled, tfm_error *error) {
  static const float x[] = {1, 0, 2};
  static const int32_t ids[] = {21};
  static const int64_t x_dims[] = {1, 3}, ids_dims[] = {1}, y_dims[] = {1, 2};
  float y[2] = {0, 0};
  int32_t twice[1] = {0};
  tfm_context_options context_options;
  memset(&context_options, 0, sizeof context_options);
  context_options.struct_size = sizeof context_options;
  context_options.threads = 1;
  tfm_context *context = NULL;
  if (tfm_model_context(tfm_compiled_model(compiled), &context_options, &context, error)) return 1;
  tfm_value inputs[] = {{(void *)x, 0, 2, x_dims}, {(void *)ids, 1, 1, ids_dims}};
  tfm_value outputs[] = {{y, 0, 2, y_dims}, {twice, 1, 1, ids_dims}};
  int wrong = tfm_context_bind(context, inputs, error) || tfm_context_run(context, inputs, outputs, error);
  tfm_context_destroy(context);
  return wrong || y[0] != 8 || y[1] != 15 || twice[0] != 42;
}

#endif
