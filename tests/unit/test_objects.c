/* The loader of objects: what the code generator makes is loaded; what is damaged gives a status or a harmless image. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "api/objects.h"
#include "api/api_run.h"
#include "cli/worker.h"
#include "tfm/abi/library.h"

enum { N_DAMAGES = 4000 };

static const char text[] =
    "model M(n = 8) {\n  up = Linear(n, 8)\n  forward(x: f32[batch, n]) { return y = softmax(relu(up(x))) }\n}\n";

static int nothing_is_called;

static void not_called(void) { nothing_is_called++; }

/* What is tested does not run the functions: any address will do. */
static const tfm_library *self(const tfm_library *library) { return library; }

static const OutsideFunction outside[] = {
#define FUNCTION(suffix, runtime, kind, least, result, parameters, arguments, comment) {#runtime, not_called},
#include "aot/library_functions.def"
#define DRIVER(NAME, run) {#run, not_called},
#define SCRATCH_DRIVER(NAME, run, scratch) DRIVER(NAME, run) {#scratch, not_called},
#define PART(NAME, Type, member, function) {#function, not_called},
#include "tfm/abi/drivers.def"
};

enum { N_OUTSIDE = sizeof outside / sizeof *outside };
static const OutsideFunctions all_outside = {outside, N_OUTSIDE};

typedef struct Made {
  Mapping parts;
  Object objects[PARTS_MAX_OBJECTS];
  size_t n;
  const char *symbol;
} Made;

static Made make(void) {
  Made made = {0};
  Request request;
  tfm_error error;
  float weights[64] = {0};
  const int64_t dims[] = {8, 8};
  const tfm_tensor tensors[] = {{"up.weight", NULL, 2, dims, weights}, {"up.bias", NULL, 1, dims, weights}};
  tfm_compile_options options = {.text = text, .weights = tensors, .n_weights = 2, .march = "x86-64", .in_process = 1};
  cr_assert_eq(request_create(&options, &request, &error), TFM_OK, "%s", error.message);
  ChildEnd end = {.is_known = true,
                  .wait_status = tfm_worker(request.n_arguments, request.arguments, request.text, request.output, request.messages)};
  cr_assert_eq(outcome_read(&request, &options, &end, &made.parts, &error), TFM_OK, "%s", error.message);
  request_free(&request);
  const PartsHeader *header = (const PartsHeader *)(const void *)made.parts.data;
  made.n = header->n_objects;
  for (size_t i = 0; i < made.n; i++)
    made.objects[i] = (Object){made.parts.data + header->objects[i].offset, header->objects[i].size};
  made.symbol = made.parts.data + header->symbol.offset;
  return made;
}

Test(objects, are_loaded_and_linked) {
  Made made = make();
  OutsideFunction real[N_OUTSIDE];
  memcpy(real, outside, sizeof real);
  for (size_t i = 0; i < N_OUTSIDE; i++)
    if (strcmp(real[i].name, "tfm_library_self") == 0) real[i].address = (AnyFunction)self;
  LoadedCode code;
  tfm_error error;
  const OutsideFunctions outside_now = {real, N_OUTSIDE};
  cr_assert_eq(objects_load(made.objects, made.n, outside_now, made.symbol, &code, &error), TFM_OK, "%s", error.message);
  const tfm_library *library = ((const tfm_library *(*)(void))code.entry)();
  cr_expect_str_eq(library->model, "m");
  cr_expect_eq(library->n_programs, 1);
  cr_expect_str_eq(library->programs[0]->isa, "x86-64");
  const int32_t *functions = library->packed->functions; /* the first ones are kernels */
  for (uint32_t i = 0; i < library->programs[0]->n_kernels; i++) {
    const char *kernel = (const char *)functions + functions[i];
    cr_expect(kernel >= code.memory && kernel < code.memory + code.size, "kernel %u lies outside", i);
  }
  objects_unload(&code);
  cr_expect_null(code.memory);
  objects_unload(&code);
  mapping_free(&made.parts);
}

Test(objects, lacking_what_they_need_are_refused) {
  Made made = make();
  LoadedCode code;
  tfm_error error;
  cr_expect_eq(objects_load(made.objects, made.n, all_outside, "no_such_function", &code, &error), TFM_E_INTERNAL);
  cr_expect_eq(objects_load(made.objects, made.n, (OutsideFunctions){0}, made.symbol, &code, &error), TFM_E_INTERNAL);
  cr_expect(strstr(error.message, "nothing defines"), "%s", error.message);
  cr_expect_eq(objects_load(made.objects + 1, made.n - 1, all_outside, made.symbol, &code, &error), TFM_E_INTERNAL);
  cr_expect_eq(objects_load(NULL, 0, all_outside, made.symbol, &code, &error), TFM_E_INTERNAL);
  cr_expect_null(code.memory);
  mapping_free(&made.parts);
}

/* Loads objects of which number `which` has other bytes; nothing of it is run. */
static tfm_status load_changed(const Made *made, size_t which, const char *bytes, size_t size) {
  Object objects[PARTS_MAX_OBJECTS];
  memcpy(objects, made->objects, sizeof objects);
  objects[which] = (Object){bytes, size};
  LoadedCode code;
  tfm_error error;
  tfm_status status = objects_load(objects, made->n, all_outside, made->symbol, &code, &error);
  objects_unload(&code);
  return status;
}

Test(objects, cut_off_anywhere_are_refused) {
  Made made = make();
  for (size_t which = 0; which < made.n; which++) {
    size_t size = made.objects[which].size;
    for (size_t cut = 0; cut < size; cut += cut < 128 ? 1 : 61) {
      char *bytes = malloc(cut + 1); /* its end is where reading too far is noticed */
      memcpy(bytes, made.objects[which].data, cut);
      cr_expect_eq(load_changed(&made, which, bytes, cut), TFM_E_INTERNAL, "object %zu cut at %zu of %zu", which, cut, size);
      free(bytes);
    }
  }
  mapping_free(&made.parts);
}

static uint32_t next_random(uint32_t *state) {
  *state = *state * 1664525u + 1013904223u;
  return *state >> 8;
}

/* Half of the damages go where the tables are: the first and the last bytes of the file. */
Test(objects, damaged_do_no_harm) {
  Made made = make();
  uint32_t state = 1;
  int n_refused = 0;
  for (int round = 0; round < N_DAMAGES; round++) {
    size_t which = next_random(&state) % made.n, size = made.objects[which].size;
    char *bytes = malloc(size);
    memcpy(bytes, made.objects[which].data, size);
    for (uint32_t n = 1 + next_random(&state) % 4; n > 0; n--) {
      size_t at = next_random(&state) % size;
      if (n % 2) at = next_random(&state) % 2 ? at % 64 : size - 1 - at % (size / 4);
      bytes[at] = (char)next_random(&state);
    }
    n_refused += load_changed(&made, which, bytes, size) != TFM_OK;
    free(bytes);
  }
  cr_expect(n_refused > N_DAMAGES / 20, "only %d of %d were refused", n_refused, N_DAMAGES);
  cr_expect_eq(nothing_is_called, 0);
  mapping_free(&made.parts);
}
