#include "api/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/fault.h"
#include "api/nameless.h"
#include "api/tensors.h"

enum { MOST_FIXED_ARGUMENTS = 24 };

static tfm_status check(const tfm_compile_options *options, tfm_error *error) {
  if (!options->path && !options->text) return fault(error, TFM_E_USAGE, "there is neither a path nor a text to compile");
  if (options->n_definitions && !options->definitions) return fault(error, TFM_E_USAGE, "the definitions are a null pointer");
  for (size_t i = 0; i < options->n_definitions; i++)
    if (!options->definitions[i]) return fault(error, TFM_E_USAGE, "definition %zu is a null pointer", i);
  if (options->n_weights && !options->weights) return fault(error, TFM_E_USAGE, "the weights are a null pointer");
  if (options->n_weights && options->weights_path)
    return fault(error, TFM_E_USAGE, "weights are given both as a file and in memory");
  if (options->deadline_ms < 0) return fault(error, TFM_E_USAGE, "the deadline is negative");
  return TFM_OK;
}

// ---- the argument list ----

/* The list points to the caller's texts; nothing in it is changed. */
static void add(Request *request, const char *text) {
  request->arguments[request->n_arguments++] = (char *)(uintptr_t)text;
}

static void add_option(Request *request, const char *name, const char *value) {
  if (!value) return;
  add(request, name);
  add(request, value);
}

static void fill_arguments(const tfm_compile_options *options, Request *request) {
  add(request, "tfmc");
  add(request, "worker");
  add_option(request, "--diagnostics", "json");
  add_option(request, "-O", options->no_fusion ? "0" : "2");
  add_option(request, "--model", options->model);
  add_option(request, "-march", options->march);
  add_option(request, "--weights-prefix", options->weights_prefix);
  add_option(request, "--weights", options->n_weights ? request->weights : options->weights_path);
  if (options->memory_limit && !options->in_process) add_option(request, "--memory-limit", request->memory_limit);
  for (size_t i = 0; i < options->n_definitions; i++) add_option(request, "-D", options->definitions[i]);
  add(request, "--");
  add(request, options->path ? options->path : "<text>");
  if (options->text) add(request, "-"); /* the text is in standard input */
  request->arguments[request->n_arguments] = NULL;
}

static tfm_status make_arguments(const tfm_compile_options *options, Request *request, tfm_error *error) {
  int descriptor = options->in_process ? request->tensors : CHILD_TENSORS;
  snprintf(request->weights, sizeof request->weights, "/proc/self/fd/%d", descriptor);
  snprintf(request->memory_limit, sizeof request->memory_limit, "%llu", (unsigned long long)options->memory_limit);
  if (options->n_definitions > INT32_MAX / 4) return fault(error, TFM_E_USAGE, "too many definitions");
  request->arguments = calloc(MOST_FIXED_ARGUMENTS + 2 * options->n_definitions, sizeof *request->arguments);
  if (!request->arguments) return fault(error, TFM_E_NOMEM, "not enough memory for the request");
  fill_arguments(options, request);
  return TFM_OK;
}

// ---- the files ----

static tfm_status make_files(const tfm_compile_options *options, Request *request, tfm_error *error) {
  request->text = nameless_create(error);
  request->output = request->text < 0 ? -1 : nameless_create(error);
  request->messages = request->output < 0 ? -1 : nameless_create(error);
  if (request->messages < 0) return TFM_E_ENV;
  if (options->text) {
    size_t size = options->text_size ? options->text_size : strlen(options->text);
    tfm_status status = nameless_write(request->text, options->text, size, error);
    if (status != TFM_OK) return status;
  }
  if (!options->n_weights) return TFM_OK;
  request->tensors = nameless_create(error);
  if (request->tensors < 0) return TFM_E_ENV;
  return tensors_write(request->tensors, options->weights, options->n_weights, error);
}

tfm_status request_create(const tfm_compile_options *options, Request *request, tfm_error *error) {
  *request = (Request){.text = -1, .tensors = -1, .output = -1, .messages = -1};
  tfm_status status = check(options, error);
  if (status == TFM_OK) status = make_files(options, request, error);
  if (status == TFM_OK) status = make_arguments(options, request, error);
  if (status != TFM_OK) request_free(request);
  return status;
}

void request_free(Request *request) {
  const int files[] = {request->text, request->tensors, request->output, request->messages};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++)
    if (files[i] >= 0) close(files[i]);
  free(request->arguments);
}
