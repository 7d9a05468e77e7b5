/* The state of a training run in a file, NAME.tfmt: all that the next step depends on.
 *
 *   320 bytes: the header, little-endian | weights | first moments | second moments | running mean | note |
 *   frozen weights | places
 *
 * In: where the run stands, blocks of numbers. Out: a file that is whole by itself, and from it the same blocks. Each
 * block begins at a multiple of 64 bytes and is filled up with zeros; it has a hash in the header, and the header one
 * of its own, so that no bit of the file can change unnoticed. Refused: a file of another kind or version, one that is
 * longer or shorter than its header says, and one whose hashes are not those of its bytes. */
#ifndef TFM_ABI_STATE_FILE_H
#define TFM_ABI_STATE_FILE_H

#include "tfm/abi/train_tables.h"

enum { TFM_STATE_VERSION = 4, TFM_STATE_HEADER_BYTES = 320, TFM_STATE_ALIGNMENT = 64 };

typedef enum tfm_state_block {
  TFM_STATE_WEIGHTS, /* those that are trained */
  TFM_STATE_FIRST,  /* moments: momentum, m of Adam */
  TFM_STATE_SECOND, /* v of Adam */
  TFM_STATE_MEAN,   /* the running mean of the weights */
  TFM_STATE_NOTE,   /* bytes of the caller */
  TFM_STATE_FROZEN, /* the other weights, each in its form; empty: they are those of a base, which it is apart from */
  TFM_STATE_PLACES, /* a tfm_state_place for each weight, in their order */
  TFM_STATE_BLOCKS
} tfm_state_block;

/* In which block a weight lies, behind those before it: trained ones at multiples of 16 numbers, frozen ones of 64
 * bytes. */
typedef struct tfm_state_place {
  uint64_t hash; /* of the numbers of a frozen weight, as f32; 0: it is trained */
  uint32_t form; /* tfm_form */
  uint32_t is_frozen;
} tfm_state_place;

typedef struct tfm_state_head {
  uint64_t model, settings, data; /* hashes of what is trained, how, on what */
  uint64_t seed;
  int64_t step;             /* steps done */
  int64_t epoch, batch;     /* of the next step, from 0 */
  double best;              /* the least loss of validation; infinite: there was none */
  int64_t best_step, stale; /* when it was; validations since then */
  tfm_trainer_origin origin;
  double best_score; /* the greatest that --valid-command gave; -infinite: there was none */
  uint64_t trained;  /* hash of which weights are: only they have moments */
} tfm_state_head;

typedef struct tfm_state_bytes { /* what a block holds; none: {NULL, 0} */
  const void *bytes;
  uint64_t n;
} tfm_state_bytes;

/* Writes and syncs the file, which must not exist. On an error there may be a part of it: who replaces a file with it
 * does so by a rename. */
tfm_status tfm_state_write(const char *path, const tfm_state_head *head, const tfm_state_bytes blocks[TFM_STATE_BLOCKS],
                           tfm_error *error);

typedef struct tfm_state_file { /* open, and found to be whole */
  const char *path;             /* the caller's */
  int fd;                       /* -1: not open */
  tfm_state_head head;
  uint64_t offsets[TFM_STATE_BLOCKS], bytes[TFM_STATE_BLOCKS], hashes[TFM_STATE_BLOCKS];
} tfm_state_file;

/* Reads all of the file and compares every hash, before the caller changes anything. After an error it is not open. */
tfm_status tfm_state_open(tfm_state_file *file, const char *path, tfm_error *error);
/* The header alone, whose own hash is compared: which run a file is of. */
tfm_status tfm_state_read_head(const char *path, tfm_state_head *head, tfm_error *error);
/* The bytes[block] bytes of a block. */
tfm_status tfm_state_read(const tfm_state_file *file, tfm_state_block block, void *bytes, tfm_error *error);
void tfm_state_close(tfm_state_file *file);

/* The hash of n bytes, a multiple of 64, behind those of which `hash` is; the first time it is 0. Each bit counts. */
uint64_t tfm_state_hash(uint64_t hash, const void *bytes, uint64_t n);

/* "PATH: cannot WHAT: ", and what the system says. */
tfm_status tfm_file_failed(tfm_error *error, const char *path, const char *what);

#endif
