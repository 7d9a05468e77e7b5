/* What the tests of the reference interpreter share: giving inputs, running a graph written as text, comparing the first
 * output with values computed by hand. */
#ifndef TFM_TESTS_EVAL_CASE_H
#define TFM_TESTS_EVAL_CASE_H

#include <limits.h>
#include <math.h>
#include <stdint.h>

#include "../support/compiled_graph.h"
#include "graph/eval.h"

enum { MAX_INPUTS = 8 };
static const char *names[MAX_INPUTS];
static Tensor tensors[MAX_INPUTS];
static uint32_t n_inputs;

typedef struct Shape {
  uint32_t rank;
  int64_t dims[MAX_RANK];
} Shape;
#define SHAPE(...) \
  ((Shape){.rank = sizeof((int64_t[]){0, __VA_ARGS__}) / sizeof(int64_t) - 1, .dims = {__VA_ARGS__}})
#define SCALAR ((Shape){0})

static inline void give(const char *name, DType dtype, Shape shape, const void *data) {
  names[n_inputs] = name;
  Tensor *tensor = tensor_new(arena, dtype, shape.rank, shape.dims);
  memcpy(tensor->data, data, (size_t)tensor_elements(tensor) * dtype_bytes[dtype]);
  tensors[n_inputs++] = *tensor;
}
#define F32(name, shape, ...) give(name, DTYPE_F32, shape, (float[]){__VA_ARGS__})
#define I32(name, shape, ...) give(name, DTYPE_I32, shape, (int32_t[]){__VA_ARGS__})
#define BOOL(name, shape, ...) give(name, DTYPE_BOOL, shape, (uint8_t[]){__VA_ARGS__})

static inline Graph *read(const char *header, const char *body) {
  const char *text = arena_printf(arena, "graph G(%s) {\n%s\n}\n", header, body);
  Graph *graph = graph_from_text(text);
  cr_assert(graph && graph_verify(graph, &diag), "%s: %s", body, fault());
  return graph;
}

static Tensor outputs[4];

static inline bool run_sized(const char *header, const char *body) {
  Graph *graph = read(header, body);
  EvalInputs inputs = {.names = names, .tensors = tensors, .n = n_inputs};
  bool ok = graph_eval(arena, &diag, &(EvalCall){.graph = graph, .inputs = &inputs}, outputs);
  n_inputs = 0;
  return ok;
}

static inline void run(const char *body) {
  cr_assert(run_sized("", body), "%s: %s", body, fault());
}

static inline void fails(const char *header, const char *body, DiagCode code, const char *words) {
  diag = diag_new(arena);
  cr_assert_not(run_sized(header, body), "%s", body);
  cr_assert_eq(diag.messages.items[0].code, code, "%s", diag.messages.items[0].text);
  cr_assert(strstr(diag.messages.items[0].text, words), "%s: %s", words, diag.messages.items[0].text);
}

static inline bool near(float a, float b) {
  return (isnan(a) && isnan(b)) || a == b || fabsf(a - b) <= 1e-6f * fabsf(b);
}

static inline void check_f32(Shape shape, const float *want) {
  const Tensor *out = &outputs[0];
  cr_assert(out->dtype == DTYPE_F32 && out->rank == shape.rank);
  for (uint32_t i = 0; i < shape.rank; i++) cr_assert_eq(out->dims[i], shape.dims[i]);
  for (int64_t i = 0; i < tensor_elements(out); i++) {
    float have = ((float *)out->data)[i];
    cr_assert(near(have, want[i]), "element %d is %.9g, not %.9g", (int)i, (double)have, (double)want[i]);
  }
}

static inline void check_i32(Shape shape, const int32_t *want) {
  const Tensor *out = &outputs[0];
  cr_assert(out->rank == shape.rank && out->dtype != DTYPE_F32);
  for (int64_t i = 0; i < tensor_elements(out); i++) {
    int32_t have = out->dtype == DTYPE_I32 ? ((int32_t *)out->data)[i] : ((uint8_t *)out->data)[i];
    cr_assert_eq(have, want[i], "element %d is %d, not %d", (int)i, have, want[i]);
  }
}
#define WANT_F32(shape, ...) check_f32(shape, (float[]){__VA_ARGS__})
#define WANT_I32(shape, ...) check_i32(shape, (int32_t[]){__VA_ARGS__})

#endif
