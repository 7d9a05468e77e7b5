/* A checkpoint: the folder step-XXXXXXXX of a training run.
 *
 *   DIR/step-00004000/state.tfmt            what the run goes on from (state_file.h)
 *   DIR/step-00004000/weights.safetensors   the weights for everybody else, under their names; of a model with adapters
 *                                           those that are trained, as its state has them
 *   DIR/step-00004000/average.safetensors   the same with their running mean, where there is one
 *   DIR/latest                              a text: the name of the newest
 *
 * In: the folder of the run, its state, its weights. Out: a new checkpoint, whole or not at all: it is written to a
 * hidden folder, its files and the folder reach the disk, and then it gets its name; `latest` changes after that, by a
 * rename too. A process that dies at any point leaves the checkpoints that there were, and perhaps the new one. */
#ifndef TFM_ABI_CHECKPOINT_H
#define TFM_ABI_CHECKPOINT_H

#include <stdio.h>

#include "tfm/abi/state_file.h"

#define TFM_CHECKPOINT_STATE "state.tfmt"
#define TFM_CHECKPOINT_WEIGHTS "weights.safetensors"
#define TFM_CHECKPOINT_AVERAGE "average.safetensors"

typedef struct tfm_named_tensor { /* row-major */
  const char *name;
  const void *data;
  const int64_t *dims;
  int32_t rank;
  uint32_t form; /* tfm_form: F32, BF16 or F16 */
} tfm_named_tensor;

typedef struct tfm_named_tensors { /* what a file holds */
  const tfm_named_tensor *items;
  int64_t n;
} tfm_named_tensors;

/* Replaces a safetensors file, whole or not at all. */
tfm_status tfm_write_tensors(const char *path, const tfm_named_tensor *tensors, int64_t n, tfm_error *error);

/* A text as JSON has it, with its quotes; without a file it is only counted. How many bytes. */
uint64_t tfm_write_quoted(FILE *file, const char *text);

/* Writes the checkpoint of head->step below `folder`, which exists, and makes it the latest. One of the same step is
 * replaced. files: the weights; their running mean, without tensors where there is none. */
tfm_status tfm_checkpoint_save(const char *folder, const tfm_state_head *head,
                               const tfm_state_bytes blocks[TFM_STATE_BLOCKS], const tfm_named_tensors files[2],
                               tfm_error *error);

// ---- of a trainer (runtime/train/saved.c) ----

/* The checkpoint of head->step of a trainer, whose note it may have; the hash of what is trained is set. */
tfm_status tfm_trainer_checkpoint(tfm_trainer *trainer, const char *folder, const tfm_state_head *head,
                                  const tfm_state_bytes *note, tfm_error *error);
/* The same weights alone, as a safetensors file; with `is_mean` their running mean, if the trainer has one. */
tfm_status tfm_trainer_write_weights(tfm_trainer *trainer, const char *path, int is_mean, tfm_error *error);
/* A state of all weights without moments, which the trainer's optimizer takes for zeroes. The file must not exist. */
tfm_status tfm_trainer_write_start(tfm_trainer *trainer, const char *path, const tfm_state_head *head,
                                   tfm_error *error);
/* The weights of a state, whatever was trained and in whichever forms they are there, and if asked for its moments,
 * which must be of the same weights and optimizer. Refused: the state of another model; one without frozen weights, if
 * those that the trainer has, or draws with the seed of the state, are others: the first one is named. */
tfm_status tfm_trainer_take_state(tfm_trainer *trainer, const tfm_state_file *file, int with_moments, tfm_error *error);
/* How many bytes of first and of second moments the trainer has. */
void tfm_trainer_moment_bytes(const tfm_trainer *trainer, uint64_t bytes[2]);
/* The frozen weights of a state that has them. */
tfm_status tfm_trainer_take_base(tfm_trainer *trainer, const tfm_state_file *file, tfm_error *error);

/* The path of the latest checkpoint in `folder`, in `path` of `bytes` bytes. Empty: there is none. */
tfm_status tfm_checkpoint_latest(const char *folder, char *path, size_t bytes, tfm_error *error);
/* Removes all but the `keep` newest checkpoints (0: none is removed), and what runs that were killed have left. */
void tfm_checkpoint_tidy(const char *folder, int64_t keep);

#endif
