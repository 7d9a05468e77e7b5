/* In: where a run stands, its blocks of numbers. Out: the file of a state, and from it the same. See state_file.h. */
#include "tfm/abi/state_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/double_bits.h"
#include "base/error.h"
#include "base/fnv.h"

tfm_status tfm_file_failed(tfm_error *error, const char *path, const char *what) {
  return tfm_fail(error, TFM_E_ENV, TFM_REASON_OTHER, NULL, "%s: cannot %s: %s", path, what, strerror(errno));
}

static const char MAGIC[8] = "TFMSTATE";

// ---- the hash ----

enum { LANES = 8, UNIT = LANES * (int)sizeof(uint64_t) };

/* FNV-1a on words in eight lanes, as fast as memory: a single word that differs always gives another hash. */
typedef struct Hash {
  uint64_t lanes[LANES];
} Hash;

static Hash hash_begin(void) {
  Hash hash;
  for (int i = 0; i < LANES; i++) hash.lanes[i] = FNV_BEGIN + (uint64_t)i;
  return hash;
}

/* n is a multiple of UNIT. */
static void hash_add(Hash *hash, const unsigned char *bytes, uint64_t n) {
  uint64_t lanes[LANES], words[LANES];
  memcpy(lanes, hash->lanes, sizeof lanes);
  for (uint64_t at = 0; at < n; at += UNIT) {
    memcpy(words, bytes + at, sizeof words);
    for (int i = 0; i < LANES; i++) lanes[i] = fnv_add(lanes[i], words[i]);
  }
  memcpy(hash->lanes, lanes, sizeof lanes);
}

static uint64_t hash_end(const Hash *hash) {
  uint64_t all = FNV_BEGIN;
  for (int i = 0; i < LANES; i++) all = fnv_add(all, hash->lanes[i]);
  return all;
}

/* Of a block with the zeros behind it. */
static uint64_t bytes_hash(const void *bytes, uint64_t n) {
  Hash hash = hash_begin();
  unsigned char last[UNIT] = {0};
  const uint64_t whole = n / UNIT * UNIT;
  hash_add(&hash, bytes, whole);
  if (n > whole) memcpy(last, (const char *)bytes + whole, n - whole);
  if (n > whole) hash_add(&hash, last, UNIT);
  return hash_end(&hash);
}

uint64_t tfm_state_hash(uint64_t hash, const void *bytes, uint64_t n) {
  return fnv_add(hash, bytes_hash(bytes, n));
}

// ---- the header ----

typedef struct Header {
  unsigned char bytes[TFM_STATE_HEADER_BYTES];
  size_t at;
} Header;

static void put(Header *header, uint64_t value) {
  for (int i = 0; i < 8; i++) header->bytes[header->at++] = (unsigned char)(value >> 8 * i);
}

static uint64_t take_number(Header *header) {
  uint64_t value = 0;
  for (int i = 8; i-- > 0;) value = value << 8 | header->bytes[header->at + (size_t)i];
  header->at += 8;
  return value;
}

static uint64_t padded(uint64_t n) { return (n + TFM_STATE_ALIGNMENT - 1) / TFM_STATE_ALIGNMENT * TFM_STATE_ALIGNMENT; }

/* The hash of the header stands in its last eight bytes, which are zero while it is computed. */
static uint64_t seal(const Header *header) {
  Header copy = *header;
  memset(copy.bytes + TFM_STATE_HEADER_BYTES - 8, 0, 8);
  return bytes_hash(copy.bytes, TFM_STATE_HEADER_BYTES);
}

static void put_head(Header *header, const tfm_state_head *head) {
  const uint64_t values[] = {head->model,
                             head->settings,
                             head->data,
                             head->seed,
                             (uint64_t)head->step,
                             (uint64_t)head->epoch,
                             (uint64_t)head->batch,
                             bits_of_double(head->best),
                             (uint64_t)head->best_step,
                             (uint64_t)head->stale,
                             (uint64_t)head->origin.optimizer,
                             (uint64_t)head->origin.schedule,
                             (uint64_t)head->origin.epoch,
                             bits_of_double(head->best_score),
                             head->trained};
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) put(header, values[i]);
}

static void take_head(Header *header, tfm_state_head *head) {
  head->model = take_number(header);
  head->settings = take_number(header);
  head->data = take_number(header);
  head->seed = take_number(header);
  head->step = (int64_t)take_number(header);
  head->epoch = (int64_t)take_number(header);
  head->batch = (int64_t)take_number(header);
  head->best = double_of_bits(take_number(header));
  head->best_step = (int64_t)take_number(header);
  head->stale = (int64_t)take_number(header);
  head->origin.optimizer = (int64_t)take_number(header);
  head->origin.schedule = (int64_t)take_number(header);
  head->origin.epoch = (int64_t)take_number(header);
  head->best_score = double_of_bits(take_number(header));
  head->trained = take_number(header);
}

// ---- writing ----

static bool write_all(int fd, const void *bytes, uint64_t n) {
  for (uint64_t done = 0; done < n;) {
    const ssize_t written = write(fd, (const char *)bytes + done, (size_t)(n - done));
    if (written < 0 && errno == EINTR) continue;
    if (written == 0) errno = EIO;
    if (written <= 0) return false;
    done += (uint64_t)written;
  }
  return true;
}

static void fill_header(Header *header, const tfm_state_head *head, const tfm_state_bytes blocks[TFM_STATE_BLOCKS]) {
  uint64_t offset = TFM_STATE_HEADER_BYTES;
  *header = (Header){.at = sizeof MAGIC};
  memcpy(header->bytes, MAGIC, sizeof MAGIC);
  put(header, TFM_STATE_VERSION);
  put_head(header, head);
  for (int i = 0; i < TFM_STATE_BLOCKS; i++) {
    put(header, offset);
    put(header, blocks[i].n);
    put(header, bytes_hash(blocks[i].bytes, blocks[i].n));
    offset += padded(blocks[i].n);
  }
  put(header, offset);
  header->at = TFM_STATE_HEADER_BYTES - 8;
  put(header, seal(header));
}

tfm_status tfm_state_write(const char *path, const tfm_state_head *head, const tfm_state_bytes blocks[TFM_STATE_BLOCKS],
                           tfm_error *error) {
  static const char zeros[TFM_STATE_ALIGNMENT];
  Header header;
  const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return tfm_file_failed(error, path, "write the file");
  fill_header(&header, head, blocks);
  bool good = write_all(fd, header.bytes, sizeof header.bytes);
  for (int i = 0; i < TFM_STATE_BLOCKS && good; i++)
    good = write_all(fd, blocks[i].bytes, blocks[i].n) && write_all(fd, zeros, padded(blocks[i].n) - blocks[i].n);
  good = good && fsync(fd) == 0;
  const tfm_status status = good ? tfm_succeed(error) : tfm_file_failed(error, path, "write the file");
  if (close(fd) != 0 && good) return tfm_file_failed(error, path, "write the file");
  return status;
}

// ---- reading ----

static tfm_status read_at(const tfm_state_file *file, uint64_t offset, void *to, uint64_t n, tfm_error *error) {
  for (uint64_t done = 0; done < n;) {
    const ssize_t got = pread(file->fd, (char *)to + done, (size_t)(n - done), (off_t)(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return tfm_file_failed(error, file->path, "read the file");
    if (got == 0) return tfm_refuse_file(error, file->path, "the checkpoint is damaged: it was cut off");
    done += (uint64_t)got;
  }
  return TFM_OK;
}

/* The blocks follow one another, and nothing follows the last: no sum of what the header says can overflow then. */
static tfm_status read_blocks(tfm_state_file *file, Header *header, uint64_t size, tfm_error *error) {
  uint64_t offset = TFM_STATE_HEADER_BYTES;
  for (int i = 0; i < TFM_STATE_BLOCKS; i++) {
    file->offsets[i] = take_number(header);
    file->bytes[i] = take_number(header);
    file->hashes[i] = take_number(header);
    if (file->offsets[i] != offset || file->bytes[i] > size - offset || padded(file->bytes[i]) > size - offset)
      return tfm_refuse_file(error, file->path, "the checkpoint is damaged: it is shorter than its header says");
    offset += padded(file->bytes[i]);
  }
  if (offset != size || take_number(header) != size)
    return tfm_refuse_file(error, file->path, "the checkpoint is damaged: it is longer than its header says");
  return TFM_OK;
}

static tfm_status read_header(tfm_state_file *file, uint64_t size, tfm_error *error) {
  Header header = {.at = 0};
  if (size < TFM_STATE_HEADER_BYTES)
    return tfm_refuse_file(error, file->path, "this is no checkpoint, or it was cut off");
  tfm_status status = read_at(file, 0, header.bytes, TFM_STATE_HEADER_BYTES, error);
  if (status) return status;
  if (memcmp(header.bytes, MAGIC, sizeof MAGIC) != 0)
    return tfm_refuse_file(error, file->path, "this is no checkpoint");
  header.at = TFM_STATE_HEADER_BYTES - 8;
  if (take_number(&header) != seal(&header))
    return tfm_refuse_file(error, file->path, "the header of the checkpoint is damaged");
  header.at = sizeof MAGIC;
  if (take_number(&header) != TFM_STATE_VERSION)
    return tfm_refuse_file(error, file->path, "the checkpoint was written by another version of tfmc");
  take_head(&header, &file->head);
  return read_blocks(file, &header, size, error);
}

/* The zeros behind a block are hashed with it. */
static tfm_status check_block(const tfm_state_file *file, int block, tfm_error *error) {
  enum { PIECE = 1 << 14 };
  unsigned char piece[PIECE];
  Hash hash = hash_begin();
  const uint64_t all = padded(file->bytes[block]);
  for (uint64_t done = 0; done < all;) {
    const uint64_t n = all - done < PIECE ? all - done : PIECE;
    tfm_status status = read_at(file, file->offsets[block] + done, piece, n, error);
    if (status) return status;
    hash_add(&hash, piece, n);
    done += n;
  }
  if (hash_end(&hash) == file->hashes[block]) return TFM_OK;
  return tfm_refuse_file(error, file->path,
                         "the checkpoint is damaged: it does not have the hash that its header says");
}

static tfm_status open_header(tfm_state_file *file, const char *path, tfm_error *error) {
  struct stat about;
  *file = (tfm_state_file){.path = path, .fd = open(path, O_RDONLY | O_CLOEXEC)};
  if (file->fd < 0) return tfm_file_failed(error, path, "read the file");
  return fstat(file->fd, &about) == 0 && S_ISREG(about.st_mode) ? read_header(file, (uint64_t)about.st_size, error)
                                                                : tfm_refuse_file(error, path, "this is no file");
}

tfm_status tfm_state_read_head(const char *path, tfm_state_head *head, tfm_error *error) {
  tfm_state_file file;
  const tfm_status status = open_header(&file, path, error);
  *head = file.head;
  tfm_state_close(&file);
  return status ? status : tfm_succeed(error);
}

tfm_status tfm_state_open(tfm_state_file *file, const char *path, tfm_error *error) {
  tfm_status status = open_header(file, path, error);
  for (int i = 0; i < TFM_STATE_BLOCKS && !status; i++) status = check_block(file, i, error);
  if (status) tfm_state_close(file);
  return status ? status : tfm_succeed(error);
}

tfm_status tfm_state_read(const tfm_state_file *file, tfm_state_block block, void *bytes, tfm_error *error) {
  const tfm_status status = read_at(file, file->offsets[block], bytes, file->bytes[block], error);
  if (status) return status;
  if (bytes_hash(bytes, file->bytes[block]) != file->hashes[block])
    return tfm_refuse_file(error, file->path, "the file changed while it was read");
  return tfm_succeed(error);
}

void tfm_state_close(tfm_state_file *file) {
  if (file->fd >= 0) close(file->fd);
  file->fd = -1;
}
