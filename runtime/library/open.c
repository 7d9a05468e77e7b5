/* Opening a compiled model: its version, the CPU and the weights are checked, in this order, before generated code
 * runs. In: a tfm_library, where its weights are. Out: a tfm_model.
 *
 * Weights come from a .tfmw file, from the caller's memory, or from the library itself. abi/weights_file.h describes
 * the form of the file. Refused: what is no regular file; another magic, version or byte order; a header that does not
 * have its own hash; a file longer or shorter than its header says; weights of another model or layout. The hash of
 * the weights themselves is compared on request only, because that takes as long as reading them. */
#include "library/open.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "library/unpack.h"
#include "machine/features.h"

// ---- models ----

/* Versions first: nothing else in the table has a known meaning if they differ. */
static tfm_status check_library(const tfm_library *library, tfm_model **model, tfm_error *error) {
  if (!model) return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "the pointer for the model is null");
  *model = NULL;
  if (!library) return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "the library is a null pointer");
  if (library->abi != TFM_LIBRARY_ABI)
    return tfm_fail(error, TFM_E_ENV, TFM_REASON_OTHER, NULL, "the library has the interface %u, this runtime needs %d",
                    library->abi, TFM_LIBRARY_ABI);
  if (!library->n_programs)
    return tfm_fail(error, TFM_E_ENV, TFM_REASON_OTHER, NULL, "the library \"%s\" holds no program", library->model);
  for (uint32_t i = 0; i < library->n_programs; i++)
    if (library->programs[i]->version != TFM_PROGRAM_VERSION)
      return tfm_fail(error, TFM_E_ENV, TFM_REASON_OTHER, NULL,
                      "the program of \"%s\" has version %u, this runtime needs %d", library->model,
                      library->programs[i]->version, TFM_PROGRAM_VERSION);
  return TFM_OK;
}

tfm_status model_choose(const tfm_library *library, uint32_t features, const tfm_program **program, tfm_error *error) {
  const char *missing = NULL, *isa = NULL;
  bool is_ours = false;
  for (uint32_t i = 0; i < library->n_programs; i++) {
    const tfm_program *next = library->programs[i];
    isa = next->isa;
    is_ours = next->family == TFM_FAMILY_ANY || next->family == cpu_family();
    missing = cpu_missing(next->features, features);
    if (!is_ours || missing) continue;
    *program = next;
    return TFM_OK;
  }
  if (!is_ours)
    return tfm_fail(error, TFM_E_ENV, TFM_REASON_OTHER, NULL, "\"%s\" is compiled for %s, which this machine is not",
                    library->model, isa);
  return tfm_fail(error, TFM_E_ENV, TFM_REASON_OTHER, NULL, "\"%s\" is compiled for %s: this CPU lacks %s",
                  library->model, isa, missing);
}

/* Gives the model programs that have their tables, in place of those of the library. */
static void unpack(tfm_model *model, const tfm_packed_tables *packed) {
  tfm_model_programs *made = &model->unpacked;
  made->forward = *model->program;
  model->program = &made->forward;
  if (model->decoding) {
    made->decoding = *model->decoding;
    made->step = *made->decoding.step;
    made->decoding.step = &made->step;
    if (made->decoding.encoder) {
      made->encoder = *made->decoding.encoder;
      made->decoding.encoder = &made->encoder;
    }
    model->decoding = &made->decoding;
  }
  tables_unpack(packed, (char *)model->tables, (char *)made);
}

tfm_status model_new(const tfm_library *library, tfm_model **model, tfm_error *error) {
  const tfm_program *program = NULL;
  tfm_status status = check_library(library, model, error);
  if (!status) status = model_choose(library, cpu_features(), &program, error);
  if (status) return status;
  uint32_t number = 0;
  while (library->programs[number] != program) number++;
  const tfm_packed_tables *packed = library->packed ? &library->packed[number] : NULL;
  tfm_model *made = malloc(sizeof *made + (packed ? packed->bytes : 0));
  if (!made) return tfm_fail(error, TFM_E_NOMEM, TFM_REASON_OTHER, NULL, "no memory for a model");
  *made = (tfm_model){.library = library, .program = program, .users = 1};
  if (library->decodings) made->decoding = library->decodings[number];
  if (packed) unpack(made, packed);
  *model = made;
  return TFM_OK;
}

/* Closes the model again if its weights were refused. */
static tfm_status finish_opening(tfm_model **model, tfm_status status, tfm_error *error) {
  if (!status) return tfm_succeed(error);
  tfm_model_close(*model);
  *model = NULL;
  return status;
}

/* All programs of a library share the packed weights, so the first one tells whether there are any. */
static tfm_status weights_of_library(const tfm_library *library, Weights *weights, tfm_error *error) {
  weights->packed = library->weights;
  if (library->weights || !library->programs[0]->weights_bytes) return TFM_OK;
  return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL,
                  "\"%s\" holds no weights: the path of a .tfmw file is needed", library->model);
}

tfm_status tfm_library_open(const tfm_library *library, const char *path, tfm_model **model, tfm_error *error) {
  tfm_status status = model_new(library, model, error);
  if (status) return status;
  status = path ? weights_map(library, path, &(*model)->weights, error)
                : weights_of_library(library, &(*model)->weights, error);
  return finish_opening(model, status, error);
}

tfm_status tfm_library_open_memory(const tfm_library *library, const void *bytes, uint64_t size, tfm_model **model,
                                   tfm_error *error) {
  tfm_status status = model_new(library, model, error);
  if (status) return status;
  return finish_opening(model, weights_in_memory(library, bytes, size, &(*model)->weights, error), error);
}

tfm_status library_check_layout(const char *model, uint64_t of_library, uint64_t of_header, tfm_error *error) {
  if (of_library == of_header) return TFM_OK;
  return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL,
                  "the program was compiled with a header of \"%s\" whose args are others than those of this library: "
                  "compile it again with the header that was made with the library",
                  model);
}

/* A library of another version is told by the functions below, before anything else of it is read. */
static tfm_status check_caller(const tfm_library *library, uint64_t layout, tfm_model **model, tfm_error *error) {
  if (model) *model = NULL;
  if (!library || library->abi != TFM_LIBRARY_ABI) return TFM_OK;
  return library_check_layout(library->model, library->args.number, layout, error);
}

tfm_status tfm_library_open_as(const tfm_library *library, uint64_t layout, const char *path, tfm_model **model,
                               tfm_error *error) {
  tfm_status status = check_caller(library, layout, model, error);
  return status ? status : tfm_library_open(library, path, model, error);
}

tfm_status tfm_library_open_memory_as(const tfm_library *library, uint64_t layout, const void *bytes, uint64_t size,
                                      tfm_model **model, tfm_error *error) {
  tfm_status status = check_caller(library, layout, model, error);
  return status ? status : tfm_library_open_memory(library, bytes, size, model, error);
}

void model_keep(tfm_model *model) { atomic_fetch_add_explicit(&model->users, 1, memory_order_relaxed); }

/* The release of the last user is ordered after all that the others did with the model. */
void model_release(tfm_model *model) {
  if (atomic_fetch_sub_explicit(&model->users, 1, memory_order_acq_rel) > 1) return;
  weights_unmap(&model->weights);
  if (model->handle) model->unload(model->handle);
  free(model);
}

void tfm_model_close(tfm_model *model) {
  if (model) model_release(model);
}

const tfm_program *tfm_model_program(const tfm_model *model) { return model ? model->program : NULL; }
const tfm_library *tfm_model_library(const tfm_model *model) { return model ? model->library : NULL; }
const char *tfm_library_version(const tfm_library *library) { return library->version; }
const tfm_library *tfm_library_self(const tfm_library *library) { return library; }

// ---- weights ----

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { WEIGHTS_ALIGNMENT = 64 };

// ---- the header ----

/* XXH3-128 in canonical form, which does not depend on the byte order of the machine. */
static bool hash_is(const void *bytes, size_t size, const uint8_t expected[16]) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes, size));
  return memcmp(canonical.digest, expected, 16) == 0;
}

/* `page` is the file's first TFM_WEIGHTS_HEADER_BYTES bytes, `size` that of the file. The page's own hash is
 * cleared. */
static tfm_status read_weights_header(char *page, uint64_t size, const char *path, tfm_weights_header *header,
                                      tfm_error *error) {
  memcpy(header, page, sizeof *header);
  if (memcmp(header->magic, TFM_WEIGHTS_MAGIC, sizeof header->magic) != 0)
    return tfm_refuse_file(error, path, "this is no file of packed weights (.tfmw)");
  if (header->byte_order != TFM_WEIGHTS_BYTE_ORDER)
    return tfm_refuse_file(error, path, "the file has the other byte order, or is damaged");
  if (header->version != TFM_WEIGHTS_VERSION)
    return tfm_refuse_file(error, path, "the file has another version, or is damaged");
  memset(page + offsetof(tfm_weights_header, header), 0, sizeof header->header);
  if (!hash_is(page, TFM_WEIGHTS_HEADER_BYTES, header->header) || header->model[TFM_WEIGHTS_MODEL_BYTES - 1])
    return tfm_refuse_file(error, path, "the file's header is damaged");
  if (size - TFM_WEIGHTS_HEADER_BYTES != header->bytes)
    return tfm_refuse_file(error, path, "the file is longer or shorter than its header says");
  return TFM_OK;
}

/* The layout is a hash over every recipe and offset: equal layouts mean that the packed weights fit. */
static tfm_status matches(const tfm_library *library, const tfm_weights_header *header, const char *path,
                          tfm_error *error) {
  if (memcmp(header->layout, library->layout, sizeof header->layout) == 0 &&
      header->bytes == library->programs[0]->weights_bytes)
    return TFM_OK;
  if (strncmp(header->model, library->model, sizeof header->model) == 0)
    return tfm_fail(error, TFM_E_ENV, TFM_REASON_OTHER, NULL,
                    "%s: the weights were packed for another library of the model \"%s\", of another text or "
                    "precision: `tfmc pack` makes the file of this one",
                    path, library->model);
  return tfm_fail(error, TFM_E_ENV, TFM_REASON_OTHER, NULL,
                  "%s: the weights were packed for another library, of the model \"%s\": this one is \"%s\" and needs "
                  "another layout",
                  path, header->model, library->model);
}

// ---- files ----

/* Opens a regular file; -1 after an error. Something that would make open() wait (a pipe) is refused like a folder. */
static int open_regular(const char *path, uint64_t *size, tfm_error *error) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  struct stat info;
  if (fd < 0 || fstat(fd, &info)) {
    tfm_refuse_file(error, path, strerror(errno));
  } else if (!S_ISREG(info.st_mode)) {
    tfm_refuse_file(error, path, "this is no regular file");
  } else if (info.st_size < TFM_WEIGHTS_HEADER_BYTES) {
    tfm_refuse_file(error, path, "the file is too short to hold packed weights");
  } else {
    *size = (uint64_t)info.st_size;
    return fd;
  }
  if (fd >= 0) close(fd);
  return -1;
}

/* pread may return less than was asked for. */
static tfm_status read_page(int fd, const char *path, char *page, tfm_error *error) {
  for (size_t done = 0; done < TFM_WEIGHTS_HEADER_BYTES;) {
    ssize_t n = pread(fd, page + done, TFM_WEIGHTS_HEADER_BYTES - done, (off_t)done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return tfm_refuse_file(error, path, strerror(errno));
    if (n == 0) return tfm_refuse_file(error, path, "the file became shorter while it was read");
    done += (size_t)n;
  }
  return TFM_OK;
}

/* An open file whose header is good; *fd is to be closed whatever the result. */
static tfm_status open_file(const char *path, int *fd, tfm_weights_header *header, tfm_error *error) {
  uint64_t size = 0;
  char page[TFM_WEIGHTS_HEADER_BYTES];
  *fd = open_regular(path, &size, error);
  if (*fd < 0) return TFM_E_ENV;
  tfm_status status = read_page(*fd, path, page, error);
  return status ? status : read_weights_header(page, size, path, header, error);
}

/* Shared and read-only: processes with the same model share the memory of its weights. */
static tfm_status map(int fd, const char *path, uint64_t bytes, Weights *weights, tfm_error *error) {
  if (bytes > SIZE_MAX - TFM_WEIGHTS_HEADER_BYTES)
    return tfm_refuse_file(error, path, "the file is too large for this machine");
  size_t size = (size_t)bytes + TFM_WEIGHTS_HEADER_BYTES;
  void *mapping = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
  if (mapping == MAP_FAILED)
    return tfm_fail(error, errno == ENOMEM ? TFM_E_NOMEM : TFM_E_ENV, TFM_REASON_OTHER, NULL,
                    "%s: cannot be mapped: %s",
                    path, strerror(errno));
  *weights = (Weights){(char *)mapping + TFM_WEIGHTS_HEADER_BYTES, mapping, size};
  return TFM_OK;
}

tfm_status weights_map(const tfm_library *library, const char *path, Weights *weights, tfm_error *error) {
  int fd;
  tfm_weights_header header;
  tfm_status status = open_file(path, &fd, &header, error);
  if (!status) status = matches(library, &header, path, error);
  if (!status) status = map(fd, path, header.bytes, weights, error);
  if (fd >= 0) close(fd);
  return status;
}

void weights_unmap(Weights *weights) {
  if (weights->mapping) munmap(weights->mapping, weights->mapping_bytes);
}

/* The header is checked in a copy, because its own hash is cleared for that. */
tfm_status weights_in_memory(const tfm_library *library, const void *bytes, uint64_t size, Weights *weights,
                             tfm_error *error) {
  static const char *const where = "weights in memory";
  char page[TFM_WEIGHTS_HEADER_BYTES];
  tfm_weights_header header;
  if (!bytes) return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "the weights are a null pointer");
  if ((uintptr_t)bytes % WEIGHTS_ALIGNMENT)
    return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "the weights are not aligned to 64 bytes");
  if (size < sizeof page) return tfm_refuse_file(error, where, "there are too few bytes to hold packed weights");
  memcpy(page, bytes, sizeof page);
  tfm_status status = read_weights_header(page, size, where, &header, error);
  if (!status) status = matches(library, &header, where, error);
  if (!status) *weights = (Weights){.packed = (const char *)bytes + TFM_WEIGHTS_HEADER_BYTES};
  return status;
}

// ---- for tools ----

tfm_status tfm_weights_file_read(const char *path, tfm_weights_header *header, tfm_error *error) {
  int fd;
  tfm_status status = open_file(path, &fd, header, error);
  if (fd >= 0) close(fd);
  return status ? status : tfm_succeed(error);
}

tfm_status tfm_weights_file_check(const char *path, tfm_weights_header *header, tfm_error *error) {
  int fd;
  Weights weights = {0};
  tfm_status status = open_file(path, &fd, header, error);
  if (!status) status = map(fd, path, header->bytes, &weights, error);
  if (!status && !hash_is(weights.packed, (size_t)header->bytes, header->content))
    status = tfm_refuse_file(error, path, "the weights are damaged: they don't have the hash that the header says");
  weights_unmap(&weights);
  if (fd >= 0) close(fd);
  return status ? status : tfm_succeed(error);
}
