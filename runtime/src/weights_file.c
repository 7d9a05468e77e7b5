/* Reading .tfmw files; their form is in tfm/weights_file.h.
 *
 * Refused: what is no regular file, another magic, version or byte order, a header that doesn't have its own hash, a file
 * longer or shorter than its header says, weights of another model or layout. The weights' own hash is compared on
 * request only: it takes as long as reading them. */
#include "weights_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { WEIGHTS_ALIGNMENT = 64 };

static tfm_status refuse(tfm_error *error, const char *path, const char *why) {
  return tfm_fail(error, TFM_E_ENV, TFM_REASON_OTHER, NULL, "%s: %s", path, why);
}

/* --- The header ---------------------------------------------------------------------------------------------------- */

static bool hash_is(const void *bytes, size_t size, const uint8_t expected[16]) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes, size));
  return memcmp(canonical.digest, expected, 16) == 0;
}

/* `page` is the file's first TFM_WEIGHTS_HEADER_BYTES bytes, `size` that of the file. The page's own hash is cleared. */
static tfm_status read_header(char *page, uint64_t size, const char *path, tfm_weights_header *header,
                              tfm_error *error) {
  memcpy(header, page, sizeof *header);
  if (memcmp(header->magic, TFM_WEIGHTS_MAGIC, sizeof header->magic) != 0)
    return refuse(error, path, "this is no file of packed weights (.tfmw)");
  if (header->byte_order != TFM_WEIGHTS_BYTE_ORDER)
    return refuse(error, path, "the weights were packed on a machine of the other byte order, or the file is damaged");
  if (header->version != TFM_WEIGHTS_VERSION)
    return refuse(error, path, "the file has another version than this runtime reads, or is damaged");
  memset(page + offsetof(tfm_weights_header, header), 0, sizeof header->header);
  if (!hash_is(page, TFM_WEIGHTS_HEADER_BYTES, header->header) || header->model[TFM_WEIGHTS_MODEL_BYTES - 1])
    return refuse(error, path, "the file's header is damaged");
  if (size - TFM_WEIGHTS_HEADER_BYTES != header->bytes)
    return refuse(error, path, "the file is longer or shorter than its header says");
  return TFM_OK;
}

static tfm_status matches(const tfm_library *library, const tfm_weights_header *header, const char *path,
                          tfm_error *error) {
  if (memcmp(header->layout, library->layout, sizeof header->layout) == 0 &&
      header->bytes == library->programs[0]->weights_bytes)
    return TFM_OK;
  return tfm_fail(error, TFM_E_ENV, TFM_REASON_OTHER, NULL,
                  "%s: the weights were packed for another library, of the model \"%s\": this one is \"%s\" and needs "
                  "another layout",
                  path, header->model, library->model);
}

/* --- Files --------------------------------------------------------------------------------------------------------- */

/* Opens a regular file; -1 after an error. Something that would make open() wait (a pipe) is refused like a folder. */
static int open_regular(const char *path, uint64_t *size, tfm_error *error) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  struct stat info;
  if (fd < 0 || fstat(fd, &info)) {
    refuse(error, path, strerror(errno));
  } else if (!S_ISREG(info.st_mode)) {
    refuse(error, path, "this is no regular file");
  } else if (info.st_size < TFM_WEIGHTS_HEADER_BYTES) {
    refuse(error, path, "the file is too short to hold packed weights");
  } else {
    *size = (uint64_t)info.st_size;
    return fd;
  }
  if (fd >= 0) close(fd);
  return -1;
}

static tfm_status read_page(int fd, const char *path, char *page, tfm_error *error) {
  for (size_t done = 0; done < TFM_WEIGHTS_HEADER_BYTES;) {
    ssize_t n = pread(fd, page + done, TFM_WEIGHTS_HEADER_BYTES - done, (off_t)done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return refuse(error, path, strerror(errno));
    if (n == 0) return refuse(error, path, "the file became shorter while it was read");
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
  return status ? status : read_header(page, size, path, header, error);
}

static tfm_status map(int fd, const char *path, uint64_t bytes, Weights *weights, tfm_error *error) {
  if (bytes > SIZE_MAX - TFM_WEIGHTS_HEADER_BYTES) return refuse(error, path, "the file is too large for this machine");
  size_t size = (size_t)bytes + TFM_WEIGHTS_HEADER_BYTES;
  void *mapping = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
  if (mapping == MAP_FAILED)
    return tfm_fail(error, errno == ENOMEM ? TFM_E_NOMEM : TFM_E_ENV, TFM_REASON_OTHER, NULL, "%s: cannot be mapped: %s",
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

tfm_status weights_in_memory(const tfm_library *library, const void *bytes, uint64_t size, Weights *weights,
                             tfm_error *error) {
  static const char *const where = "weights in memory";
  char page[TFM_WEIGHTS_HEADER_BYTES];
  tfm_weights_header header;
  if (!bytes) return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "the weights are a null pointer");
  if ((uintptr_t)bytes % WEIGHTS_ALIGNMENT)
    return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "the weights are not aligned to 64 bytes");
  if (size < sizeof page) return refuse(error, where, "there are too few bytes to hold packed weights");
  memcpy(page, bytes, sizeof page);
  tfm_status status = read_header(page, size, where, &header, error);
  if (!status) status = matches(library, &header, where, error);
  if (!status) *weights = (Weights){.packed = (const char *)bytes + TFM_WEIGHTS_HEADER_BYTES};
  return status;
}

/* --- For tools ----------------------------------------------------------------------------------------------------- */

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
    status = refuse(error, path, "the weights are damaged: they don't have the hash that the header says");
  weights_unmap(&weights);
  if (fd >= 0) close(fd);
  return status ? status : tfm_succeed(error);
}
