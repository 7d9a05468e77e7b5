/* libtfm: tfm_compile and what belongs to it, and keeping what was compiled in a file.
 *
 * In: the options of a C program, or a .tfmm file. Out: a compiled model, whose code and weights are in the memory of
 * this process; such a file, which is the compiler's answer (parts.h) with a hash. The
 * compiler itself runs in a child process (or, if asked for, in a library of its own), so libtfm is small, does not
 * link LLVM, and survives whatever the compiler does. Refuses contradictory options; errors of the model come back as
 * the compiler's first message. Files that are no such file, cut off, changed, of another version or for another
 * machine are refused. */
#define _GNU_SOURCE /* secure_getenv */
#include "tfm/compile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/api_compile.h"
#include "target/relocations.h"
#include "tfm/generate.h"
#include "tfm/abi/adapts.h"
#include "tfm/abi/drivers.h"
#include "tfm/abi/library.h"
#include "tfm/abi/trainer_weights.h"

/* The functions of the runtime that a compiled model's own functions call, or its tables point to. */
static const OutsideFunction runtime_functions[] = {
#define FUNCTION(suffix, runtime, kind, least, result, parameters, arguments, comment) {#runtime, (AnyFunction)runtime},
#include "aot/library_functions.def"
#define DRIVER(NAME, run) {#run, (AnyFunction)run},
#define SCRATCH_DRIVER(NAME, run, scratch) DRIVER(NAME, run) {#scratch, (AnyFunction)scratch},
#define PART(NAME, Type, member, function) {#function, (AnyFunction)function},
#include "tfm/abi/drivers.def"
    {"tfm_mixer_of_items", (AnyFunction)tfm_mixer_of_items},
    {"tfm_walk_formulas", (AnyFunction)tfm_walk_formulas},
    {"tfm_optimize_sgd", (AnyFunction)tfm_optimize_sgd},
    {"tfm_optimize_adam", (AnyFunction)tfm_optimize_adam},
    {"tfm_average_weights", (AnyFunction)tfm_average_weights},
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

/* Trainers do not copy frozen weights: each maps them for itself. Without a descriptor they do. */
static void keep_file(tfm_compiled *made, int file) {
  const int kept = parts_header(&made->parts)->frozen.size ? fcntl(file, F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR) : 0;
  made->file = kept > 0 ? kept : 0;
}

/* The request holds the nameless files; once the parts are mapped, nothing else of it is needed. */
static tfm_status make_parts(const tfm_compile_options *options, tfm_compiled *made, tfm_error *error) {
  Request request;
  ChildEnd end;
  tfm_status status = request_create(options, &request, error);
  if (status != TFM_OK) return status;
  status = run_compiler(options, &request, &end, error);
  if (status == TFM_OK) status = outcome_read(&request, options, &end, &made->parts, error);
  if (status == TFM_OK) keep_file(made, request.output);
  request_free(&request);
  return status;
}

// ---- what it made ----

/* Weights to begin with are blocks of the trainer: both, or none. */
static tfm_status check_begin(const tfm_compiled *compiled, const PartsHeader *header, tfm_error *error) {
  const tfm_training *training = compiled->training;
  const bool has_none = !header->weights.size && !header->frozen.size;
  const bool fits = header->weights.size == training->floats * sizeof(float) &&
                    header->frozen.size == training->frozen_bytes &&
                    (!header->drawn.size || header->drawn.size == training->n_parameters);
  if (has_none || fits)
    return TFM_OK;
  return api_fault(error, TFM_E_INTERNAL, "the compiler left weights of another model");
}

/* The entry is a function of the loaded code that returns its tables, as the generated function of a shared library
 * does; from there on both are opened in the same way. */
static tfm_status load(tfm_compiled *compiled, tfm_error *error) {
  const char *data = compiled->parts.data;
  const PartsHeader *header = (const PartsHeader *)(const void *)data;
  Object objects[PARTS_MAX_OBJECTS];
  for (uint32_t i = 0; i < header->n_objects; i++)
    objects[i] = (Object){data + header->objects[i].offset, header->objects[i].size};
  const OutsideFunctions outside = {runtime_functions, sizeof runtime_functions / sizeof *runtime_functions};
  tfm_status status =
      objects_load(objects, header->n_objects, outside, data + header->symbol.offset, &compiled->code, error);
  if (status != TFM_OK) return status;
  if (header->trains) {
    const tfm_training *(*training)(void) = (const tfm_training *(*)(void))compiled->code.entry;
    compiled->training = training();
    return check_begin(compiled, header, error);
  }
  const tfm_library *(*library)(void) = (const tfm_library *(*)(void))compiled->code.entry;
  return tfm_library_open_memory(library(), data + header->weights.offset, header->weights.size, &compiled->model,
                                 error);
}

/* The options as this version knows them: what the caller's struct lacks is zero. */
static tfm_status read_options(const tfm_compile_options *given, tfm_compile_options *options, tfm_error *error) {
  if (!given) return api_fault(error, TFM_E_USAGE, "the options are a null pointer");
  const size_t first_version = offsetof(tfm_compile_options, quantize);
  size_t size = given->struct_size ? given->struct_size : first_version;
  if (size < offsetof(tfm_compile_options, model))
    return api_fault(error, TFM_E_USAGE, "struct_size of the options is too small");
  *options = (tfm_compile_options){0};
  memcpy(options, given, size < sizeof *options ? size : sizeof *options);
  return TFM_OK;
}

/* `compiled` is NULL after every error, so that a caller may free it without looking at the status. */
tfm_status tfm_compile(const tfm_compile_options *given, tfm_compiled **compiled, tfm_error *error) {
  if (!compiled) return api_fault(error, TFM_E_USAGE, "the pointer to the compiled model is null");
  *compiled = NULL;
  tfm_compile_options options;
  tfm_status status = read_options(given, &options, error);
  if (status != TFM_OK) return status;
  tfm_compiled *made = calloc(1, sizeof *made);
  if (!made) return api_fault(error, TFM_E_NOMEM, "not enough memory for a model");
  status = make_parts(&options, made, error);
  if (status == TFM_OK) status = load(made, error);
  if (status == TFM_OK) *compiled = made;
  else tfm_compiled_free(made);
  return status;
}

// ---- files ----

/* The header, in place of which the file gets one with the hash, then all else. 0, or an error number. */
static int write_parts(const Mapping *parts, int file) {
  PartsHeader header = *parts_header(parts);
  header.hash = parts_hash(parts);
  int number = file_write(file, &header, sizeof header);
  if (!number) number = file_write(file, parts->data + sizeof header, parts->size - sizeof header);
  return number ? number : fsync(file) ? errno : 0;
}

static tfm_status refuse_file(tfm_error *error, const char *path, const char *what, int number) {
  char text[600];
  snprintf(text, sizeof text, "%.400s %s", path, what);
  return fault_of_system(error, TFM_E_ENV, number, text);
}

/* The name of the file beside is this process's and this call's own. */
tfm_status parts_save(const Mapping *parts, const char *path, tfm_error *error) {
  static _Atomic unsigned calls;
  char beside[MOST_PATH];
  int length = snprintf(beside, sizeof beside, "%s.%ld-%u.tmp", path, (long)getpid(), atomic_fetch_add(&calls, 1u));
  if (length < 0 || (size_t)length >= sizeof beside) return refuse_file(error, path, "cannot be written", ENAMETOOLONG);
  int file = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0) return refuse_file(error, path, "cannot be written", errno);
  int number = write_parts(parts, file);
  if (close(file) && !number) number = errno;
  if (!number && rename(beside, path)) number = errno;
  if (!number) return TFM_OK;
  unlink(beside);
  return refuse_file(error, path, "cannot be written", number);
}

tfm_status tfm_compiled_save(const tfm_compiled *compiled, const char *path, tfm_error *error) {
  if (!compiled || !path) return api_fault(error, TFM_E_USAGE, "the model or the path is a null pointer");
  if (compiled->is_released)
    return api_fault(error, TFM_E_USAGE, "the weights that training begins with were released: "
                                         "tfm_compiled_save_trainer writes those of a trainer");
  return parts_save(&compiled->parts, path, error);
}

/* O_NONBLOCK: opening a pipe must not wait for its other end. */
static tfm_status map_file(const char *path, Mapping *parts, int *kept, tfm_error *error) {
  struct stat info;
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (file < 0) return refuse_file(error, path, "cannot be read", errno);
  tfm_status status = TFM_OK;
  if (fstat(file, &info))
    status = refuse_file(error, path, "cannot be read", errno);
  else if (!S_ISREG(info.st_mode) || (size_t)info.st_size < sizeof(PartsHeader))
    status = api_fault(error, TFM_E_ENV, "%s is no .tfmm file", path);
  void *data = status == TFM_OK ? mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
  if (status == TFM_OK && data == MAP_FAILED) status = refuse_file(error, path, "cannot be mapped", errno);
  if (status == TFM_OK) *parts = (Mapping){data, (size_t)info.st_size};
  if (kept && status == TFM_OK) *kept = fcntl(file, F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR);
  close(file);
  return status;
}

/* A text that is no version is damage: nobody shall read it. */
static bool is_other_version(const char *version) {
  size_t n = 0;
  while (n < PARTS_VERSION_BYTES && version[n] > ' ' && version[n] < 0x7f) n++;
  return n > 0 && n < PARTS_VERSION_BYTES && !version[n] && strcmp(version, TFM_VERSION) != 0;
}

/* Versions before anything that a version may change. */
static tfm_status check_file(const char *path, const Mapping *parts, tfm_error *error) {
  const PartsHeader *header = parts_header(parts);
  if (memcmp(header->magic, PARTS_MAGIC, sizeof header->magic) != 0)
    return api_fault(error, TFM_E_ENV, "%s is no .tfmm file", path);
  if (is_other_version(header->version))
    return api_fault(error, TFM_E_ENV, "%s was made by tfmc %.31s, this is " TFM_VERSION ": compile the model again",
                     path, header->version);
  if (header->form != PARTS_FORM)
    return api_fault(error, TFM_E_ENV,
                     "%s is damaged, or was made by another build of tfmc " TFM_VERSION ": compile the model again",
                     path);
  if (!parts_are_whole(parts) || header->exit_code || header->hash != parts_hash(parts))
    return api_fault(error, TFM_E_ENV, "%s is damaged or was cut off", path);
  return TFM_OK;
}

/* `kept` gets a descriptor of the file; NULL: none is needed. */
static tfm_status map_checked(const char *path, Mapping *parts, int *kept, tfm_error *error) {
  *parts = (Mapping){0};
  tfm_status status = map_file(path, parts, kept, error);
  if (status == TFM_OK) status = check_file(path, parts, error);
  if (status != TFM_OK) mapping_free(parts);
  if (kept && *kept > 0 && (status != TFM_OK || !parts_header(parts)->frozen.size)) {
    close(*kept);
    *kept = 0;
  }
  return status;
}

tfm_status parts_map(const char *path, Mapping *parts, tfm_error *error) {
  return map_checked(path, parts, NULL, error);
}

/* What users call a family, or, `by_target`, what --target= takes for it. */
static const char *family_called(tfm_family family, bool by_target) {
#define FAMILY(name, number, text, machine, llvm, backend, triple) \
  if (family == TFM_FAMILY_##name) return by_target ? triple : text;
#include "tfm/abi/families.def"
  return "another machine";
}

/* Objects say which machine they are for. */
static tfm_status check_machine(const char *path, const Mapping *parts, tfm_error *error) {
  const PartsHeader *header = parts_header(parts);
  if (!header->n_objects || header->objects[0].size < sizeof(Elf64_Ehdr)) return TFM_OK; /* it cannot be loaded */
  const Elf64_Ehdr *object = (const Elf64_Ehdr *)(const void *)(parts->data + header->objects[0].offset);
  const tfm_family family = family_of_elf(object->e_machine), here = cpu_family();
  if (family == here || family == TFM_FAMILY_ANY) return TFM_OK;
  return api_fault(error, TFM_E_ENV, "%s holds code for %s, and this machine is %s; compile it again with --target=%s",
                   path, family_called(family, false), family_called(here, false), family_called(here, true));
}

tfm_status tfm_model_map(const char *path, tfm_compiled **compiled, tfm_error *error) {
  if (!compiled || !path) return api_fault(error, TFM_E_USAGE, "the path or the place for the model is a null pointer");
  *compiled = NULL;
  tfm_compiled *made = calloc(1, sizeof *made);
  if (!made) return api_fault(error, TFM_E_NOMEM, "not enough memory for a model");
  tfm_status status = map_checked(path, &made->parts, &made->file, error);
  if (status == TFM_OK) status = check_machine(path, &made->parts, error);
  if (status == TFM_OK) status = load(made, error);
  if (status == TFM_OK)
    *compiled = made;
  else
    tfm_compiled_free(made);
  return status;
}

// ---- the model ----

tfm_model *tfm_compiled_model(const tfm_compiled *compiled) { return compiled->model; }

/* The model points into the code and the weights, so it is closed first. */
void tfm_compiled_free(tfm_compiled *compiled) {
  if (!compiled) return;
  tfm_model_close(compiled->model);
  objects_unload(&compiled->code);
  mapping_free(&compiled->parts);
  if (compiled->file > 0) close(compiled->file);
  free(compiled);
}

const char *tfm_version(void) { return TFM_VERSION; }
