/* libtfm: tfm_compile and what belongs to it.
 *
 * In: the options of a C program. Out: a compiled model, whose code and weights are in the memory of this process. The
 * compiler itself runs in a child process (or, if asked for, in a library of its own), so libtfm is small, does not
 * link LLVM, and survives whatever the compiler does. Refuses contradictory options; errors of the model come back as
 * the compiler's first message. */
#define _GNU_SOURCE /* secure_getenv */
#include "tfm/compile.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "api/objects.h"
#include "api/run.h"
#include "tfm/generate.h"
#include "tfm/library.h"

struct tfm_compiled {
  Mapping parts; /* the packed weights stay in it */
  LoadedCode code;
  tfm_model *model;
};

/* The functions of the runtime that a compiled model's own functions call, or its programs point to. */
static const OutsideFunction runtime_functions[] = {
#define FUNCTION(suffix, runtime, kind, least, result, parameters, arguments, comment) {#runtime, (AnyFunction)runtime},
#include "aot/library_functions.def"
    {"tfm_whole_attention", (AnyFunction)tfm_whole_attention},
    {"tfm_whole_pages", (AnyFunction)tfm_whole_pages},
};

// ---- asking the compiler ----

/* The option wins over the environment, which wins over the tfmc that was installed with this library. secure_getenv:
 * a program with raised rights must not start what its caller names. */
static const char *command_of(const tfm_compile_options *options, char path[MOST_PATH]) {
  if (options->compiler) return options->compiler;
  const char *chosen = secure_getenv("TFM_COMPILER");
  if (chosen && *chosen) return chosen;
  installed_path(TFM_COMMAND_FROM_LIBRARY, path, MOST_PATH);
  return path;
}

static tfm_status run_compiler(const tfm_compile_options *options, const Request *request, ChildEnd *end,
                               tfm_error *error) {
  if (options->in_process) {
    int exit_code = 0;
    tfm_status status = in_process_run(request, &exit_code, error);
    *end = (ChildEnd){.is_known = true, .wait_status = W_EXITCODE(exit_code, 0)};
    return status;
  }
  char path[MOST_PATH];
  return child_run(command_of(options, path), request, options, end, error);
}

/* The request holds the nameless files; once the parts are mapped, nothing of it is needed. */
static tfm_status make_parts(const tfm_compile_options *options, Mapping *parts, tfm_error *error) {
  Request request;
  ChildEnd end;
  tfm_status status = request_create(options, &request, error);
  if (status != TFM_OK) return status;
  status = run_compiler(options, &request, &end, error);
  if (status == TFM_OK) status = outcome_read(&request, options, &end, parts, error);
  request_free(&request);
  return status;
}

// ---- what it made ----

/* The entry is a function of the loaded code that returns its tables, as the generated function of a shared library
 * does; from there on both are opened in the same way. */
static tfm_status load(tfm_compiled *compiled, tfm_error *error) {
  const char *data = compiled->parts.data;
  const PartsHeader *header = (const PartsHeader *)(const void *)data;
  Object objects[PARTS_MAX_OBJECTS];
  for (uint32_t i = 0; i < header->n_objects; i++)
    objects[i] = (Object){data + header->objects[i].offset, header->objects[i].size};
  tfm_status status = objects_load(objects, header->n_objects, runtime_functions,
                                   sizeof runtime_functions / sizeof *runtime_functions, data + header->symbol.offset,
                                   &compiled->code, error);
  if (status != TFM_OK) return status;
  const tfm_library *(*library)(void) = (const tfm_library *(*)(void))compiled->code.entry;
  return tfm_library_open_memory(library(), data + header->weights.offset, header->weights.size, &compiled->model,
                                 error);
}

/* The options as this version knows them: what the caller's struct lacks is zero. */
static tfm_status read_options(const tfm_compile_options *given, tfm_compile_options *options, tfm_error *error) {
  if (!given) return fault(error, TFM_E_USAGE, "the options are a null pointer");
  const size_t first_version = offsetof(tfm_compile_options, quantize);
  size_t size = given->struct_size ? given->struct_size : first_version;
  if (size < offsetof(tfm_compile_options, model))
    return fault(error, TFM_E_USAGE, "struct_size of the options is too small");
  *options = (tfm_compile_options){0};
  memcpy(options, given, size < sizeof *options ? size : sizeof *options);
  return TFM_OK;
}

/* `compiled` is NULL after every error, so that a caller may free it without looking at the status. */
tfm_status tfm_compile(const tfm_compile_options *given, tfm_compiled **compiled, tfm_error *error) {
  if (!compiled) return fault(error, TFM_E_USAGE, "the pointer to the compiled model is null");
  *compiled = NULL;
  tfm_compile_options options;
  tfm_status status = read_options(given, &options, error);
  if (status != TFM_OK) return status;
  tfm_compiled *made = calloc(1, sizeof *made);
  if (!made) return fault(error, TFM_E_NOMEM, "not enough memory for a model");
  status = make_parts(&options, &made->parts, error);
  if (status == TFM_OK) status = load(made, error);
  if (status == TFM_OK) *compiled = made;
  else tfm_compiled_free(made);
  return status;
}

tfm_model *tfm_compiled_model(const tfm_compiled *compiled) { return compiled->model; }

/* The model points into the code and the weights, so it is closed first. */
void tfm_compiled_free(tfm_compiled *compiled) {
  if (!compiled) return;
  tfm_model_close(compiled->model);
  objects_unload(&compiled->code);
  mapping_free(&compiled->parts);
  free(compiled);
}

const char *tfm_version(void) { return TFM_VERSION; }
