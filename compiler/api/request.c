/* A request to the compiler: messages of what went wrong, files in memory, weights in them, the argument list.
 *
 * In: the options of a C program, unchecked. Out: a list of arguments for `tfmc worker` and open files in memory; the
 * caller frees both with request_free. Nothing in this file takes a lock or changes the state of the process for
 * longer than a call: the program around it may have threads, signals and limits of its own. */
#define _GNU_SOURCE /* memfd_create, seals */
#include "api/request.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/whole_io.h"

// ---- what went wrong ----

tfm_status api_fault(tfm_error *error, tfm_status status, const char *format, ...) {
  if (!error) return status;
  *error = (tfm_error){.status = status};
  va_list args;
  va_start(args, format);
  vsnprintf(error->message, sizeof error->message, format, args);
  va_end(args);
  return status;
}

/* strerror is not safe among threads. This is the form of strerror_r that _GNU_SOURCE chooses. */
tfm_status fault_of_system(tfm_error *error, tfm_status status, int number, const char *what) {
  char text[128];
  return api_fault(error, status, "%s: %s", what, strerror_r(number, text, sizeof text));
}

// ---- nameless files ----

/* The descriptor is moved up to FIRST_DESCRIPTOR: the child gets its files at 0 to 4, and a file that happened to be
 * there already would be overwritten while the others are put into place. */
int nameless_create(tfm_error *error) {
  int low = memfd_create("tfm", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  int file = low < 0 ? -1 : fcntl(low, F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR);
  if (file < 0) fault_of_system(error, TFM_E_ENV, errno, "no file can be made in memory");
  if (low >= 0) close(low);
  return file;
}

/* A limit on the size of files (RLIMIT_FSIZE) makes the write fail with EFBIG and sends SIGXFSZ, which would end the
 * host. The signal is blocked around the write and taken out of the queue before the mask is restored. */
int file_write(int file, const void *bytes, size_t size) {
  sigset_t too_large, before;
  sigemptyset(&too_large);
  sigaddset(&too_large, SIGXFSZ);
  pthread_sigmask(SIG_BLOCK, &too_large, &before);
  int number = write_all(file, bytes, size) ? 0 : errno;
  if (number == EFBIG) sigtimedwait(&too_large, NULL, &(struct timespec){0});
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return number;
}

tfm_status nameless_write(int file, const void *bytes, size_t size, tfm_error *error) {
  const int number = file_write(file, bytes, size);
  if (!number) return TFM_OK;
  return fault_of_system(error, number == EFBIG ? TFM_E_ENV : TFM_E_NOMEM, number,
                         "a file in memory cannot be written");
}

/* A page that the kernel is busy with, on its way to another place, makes it refuse the seal for a moment. */
static bool seal(int file) {
  enum { TRIES = 50 };
  for (int i = 0; i < TRIES; i++) {
    if (fcntl(file, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) == 0) return true;
    if (errno != EBUSY) return false;
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
  }
  return false;
}

/* Seals first, then maps: a compiler that is still alive, or a copy of the descriptor anywhere, can no longer change
 * what is about to be checked. */
tfm_status nameless_map(int file, Mapping *mapping, tfm_error *error) {
  *mapping = (Mapping){0};
  struct stat status;
  if (!seal(file) || fstat(file, &status))
    return fault_of_system(error, TFM_E_ENV, errno, "what the compiler made cannot be read");
  if (status.st_size <= 0) return TFM_OK;
  void *data = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
  if (data == MAP_FAILED) return fault_of_system(error, TFM_E_NOMEM, errno, "what the compiler made cannot be mapped");
  *mapping = (Mapping){data, (size_t)status.st_size};
  return TFM_OK;
}

void mapping_free(Mapping *mapping) {
  if (mapping->data) munmap((void *)(uintptr_t)mapping->data, mapping->size);
  *mapping = (Mapping){0};
}

// ---- weights in memory ----

/* The types that a tensor in memory may have, and their bytes. */
static const struct {
  const char *name;
  unsigned bytes;
} types[] = {{"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F64", 8}, {"I64", 8}, {"I32", 4}, {"U8", 1}, {"BOOL", 1}};

enum { N_TYPES = sizeof types / sizeof *types, MAX_TENSOR_RANK = 64 };

static const char *type_of(const tfm_tensor *tensor) { return tensor->dtype ? tensor->dtype : "F32"; }

/* -1: no such type, a bad size, or too many bytes. */
static int64_t bytes_of(const tfm_tensor *tensor) {
  int64_t bytes = -1;
  for (int i = 0; i < N_TYPES; i++)
    if (strcmp(type_of(tensor), types[i].name) == 0) bytes = types[i].bytes;
  if (bytes < 0 || tensor->rank < 0 || tensor->rank > MAX_TENSOR_RANK || (tensor->rank && !tensor->dims)) return -1;
  for (int32_t i = 0; i < tensor->rank; i++)
    if (tensor->dims[i] < 0 || __builtin_mul_overflow(bytes, tensor->dims[i], &bytes)) return -1;
  return bytes;
}

static tfm_status check_tensors(const tfm_tensor *tensors, size_t n, tfm_error *error) {
  int64_t total = 0;
  for (size_t i = 0; i < n; i++) {
    if (!tensors[i].name) return api_fault(error, TFM_E_USAGE, "tensor %zu of the weights has no name", i);
    int64_t bytes = bytes_of(&tensors[i]);
    if (bytes < 0 || __builtin_add_overflow(total, bytes, &total))
      return api_fault(error, TFM_E_USAGE, "weight %s: its type or its dims cannot be used", tensors[i].name);
    if (bytes && !tensors[i].data) return api_fault(error, TFM_E_USAGE, "weight %s has no data", tensors[i].name);
  }
  return TFM_OK;
}

/* A JSON text; bytes beyond ASCII stay as they are. */
static void print_name(FILE *out, const char *name) {
  fputc('"', out);
  for (const unsigned char *c = (const unsigned char *)name; *c; c++) {
    if (*c == '"' || *c == '\\') fprintf(out, "\\%c", *c);
    else if (*c < 0x20) fprintf(out, "\\u%04x", *c);
    else fputc(*c, out);
  }
  fputc('"', out);
}

/* A safetensors header: offsets count from the end of the header, and tensors lie in the order of the list. */
static void print_header(FILE *out, const tfm_tensor *tensors, size_t n) {
  int64_t end = 0;
  fputc('{', out);
  for (size_t i = 0; i < n; i++) {
    if (i) fputc(',', out);
    print_name(out, tensors[i].name);
    fprintf(out, ":{\"dtype\":\"%s\",\"shape\":[", type_of(&tensors[i]));
    for (int32_t k = 0; k < tensors[i].rank; k++) fprintf(out, k ? ",%" PRId64 : "%" PRId64, tensors[i].dims[k]);
    fprintf(out, "],\"data_offsets\":[%" PRId64, end);
    end += bytes_of(&tensors[i]);
    fprintf(out, ",%" PRId64 "]}", end);
  }
  fputc('}', out);
}

/* Eight bytes of length in little endian, the header, the data: the same file that `tfmc --weights` reads, so there is
 * one reader to trust. */
tfm_status tensors_write(int file, const tfm_tensor *tensors, size_t n, tfm_error *error) {
  tfm_status status = check_tensors(tensors, n, error);
  if (status != TFM_OK) return status;
  char *header = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&header, &size);
  if (out) print_header(out, tensors, n);
  bool ok = out && !ferror(out);
  if (out && fclose(out)) ok = false;
  if (!ok) status = api_fault(error, TFM_E_NOMEM, "not enough memory for the names of the weights");
  unsigned char length[8];
  for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)size >> (8 * i));
  if (status == TFM_OK) status = nameless_write(file, length, sizeof length, error);
  if (status == TFM_OK) status = nameless_write(file, header, size, error);
  for (size_t i = 0; status == TFM_OK && i < n; i++)
    status = nameless_write(file, tensors[i].data, (size_t)bytes_of(&tensors[i]), error);
  free(header);
  return status;
}

// ---- the request ----

enum { MOST_FIXED_ARGUMENTS = 28 };

/* Only what would crash this process is checked; everything else is for the compiler, which has the better message. */
static tfm_status check_options(const tfm_compile_options *options, tfm_error *error) {
  if (!options->path && !options->text)
    return api_fault(error, TFM_E_USAGE, "there is neither a path nor a text to compile");
  if (options->n_definitions && !options->definitions)
    return api_fault(error, TFM_E_USAGE, "the definitions are a null pointer");
  for (size_t i = 0; i < options->n_definitions; i++)
    if (!options->definitions[i]) return api_fault(error, TFM_E_USAGE, "definition %zu is a null pointer", i);
  if (options->n_settings && (!options->settings || !options->training))
    return api_fault(error, TFM_E_USAGE, "the settings are a null pointer, or the model is not compiled to be trained");
  for (size_t i = 0; i < options->n_settings; i++)
    if (!options->settings[i]) return api_fault(error, TFM_E_USAGE, "setting %zu is a null pointer", i);
  if ((options->recompute || options->n_new_weights) && !options->training)
    return api_fault(error, TFM_E_USAGE, "recompute and new_weights are for a model that is compiled to be trained");
  for (size_t i = 0; i < options->n_new_weights; i++)
    if (!options->new_weights || !options->new_weights[i])
      return api_fault(error, TFM_E_USAGE, "pattern %zu of new weights is a null pointer", i);
  if (options->n_new_weights && !options->n_weights && !options->weights_path)
    return api_fault(error, TFM_E_USAGE, "without weights all weights are new");
  if (options->n_weights && !options->weights) return api_fault(error, TFM_E_USAGE, "the weights are a null pointer");
  if (options->n_weights && options->weights_path)
    return api_fault(error, TFM_E_USAGE, "weights are given both as a file and in memory");
  if (options->deadline_ms < 0) return api_fault(error, TFM_E_USAGE, "the deadline is negative");
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

/* "--" comes before the path, so a file called "-O0" is a file. The memory limit is for a child only: in this process
 * it would be the host's. */
static void fill_arguments(const tfm_compile_options *options, Request *request) {
  add(request, "tfmc");
  add(request, "worker");
  add_option(request, "--diagnostics", "json");
  add_option(request, "-O", options->no_fusion ? "0" : "2");
  add_option(request, "--model", options->model);
  add_option(request, "-march", options->march);
  add_option(request, "--weights-prefix", options->weights_prefix);
  add_option(request, "--quantize", options->quantize);
  add_option(request, "--weights", options->n_weights ? request->weights : options->weights_path);
  if (options->training) add(request, "--training");
  add_option(request, "--recompute", options->recompute);
  if (options->memory_limit && !options->in_process) add_option(request, "--memory-limit", request->memory_limit);
  for (size_t i = 0; i < options->n_definitions; i++) add_option(request, "-D", options->definitions[i]);
  for (size_t i = 0; i < options->n_settings; i++) add_option(request, "--set", options->settings[i]);
  for (size_t i = 0; i < options->n_new_weights; i++) add_option(request, "--new", options->new_weights[i]);
  add(request, "--");
  add(request, options->path ? options->path : "<text>");
  if (options->text) add(request, "-"); /* the text is in standard input */
  request->arguments[request->n_arguments] = NULL;
}

/* A child finds the weights at a fixed descriptor; in this process they are where they are. */
static tfm_status make_arguments(const tfm_compile_options *options, Request *request, tfm_error *error) {
  int descriptor = options->in_process ? request->tensors : CHILD_TENSORS;
  snprintf(request->weights, sizeof request->weights, "/proc/self/fd/%d", descriptor);
  snprintf(request->memory_limit, sizeof request->memory_limit, "%llu", (unsigned long long)options->memory_limit);
  const size_t most = INT32_MAX / 8;
  if (options->n_definitions > most || options->n_settings > most || options->n_new_weights > most)
    return api_fault(error, TFM_E_USAGE, "too many definitions, settings or patterns");
  const size_t n = MOST_FIXED_ARGUMENTS + 2 * (options->n_definitions + options->n_settings + options->n_new_weights);
  request->arguments = calloc(n, sizeof *request->arguments);
  if (!request->arguments) return api_fault(error, TFM_E_NOMEM, "not enough memory for the request");
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
  tfm_status status = check_options(options, error);
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
