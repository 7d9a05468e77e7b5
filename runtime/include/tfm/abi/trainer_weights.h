/* tfm/abi/trainer_weights.h: where the weights of a trainer lie, what they are, and what they begin with. C99.
 *
 * Trained ones are the trainer's. Frozen ones may lie in a file that is mapped, or with another trainer, and are kept
 * in the form of their tfm_parameter. */
#ifndef TFM_TRAINER_WEIGHTS_H
#define TFM_TRAINER_WEIGHTS_H

#include "tfm/abi/train_tables.h"

/* n numbers of a weight from number `first` on, whatever form it is kept in; what is set is rounded to it. */
void tfm_trainer_get(const tfm_trainer *trainer, uint32_t parameter, int64_t first, int64_t n, float *to);
void tfm_trainer_set(tfm_trainer *trainer, uint32_t parameter, int64_t first, int64_t n, const float *from);
/* Hash of which are trained: other moments do not fit. */
uint64_t tfm_trainer_trained(const tfm_trainer *trainer);
/* Where a weight lies, in its form; it may lie elsewhere, as long as the trainer lives: with another trainer of the
 * same objective, which moves it. */
void *tfm_trainer_place(const tfm_trainer *trainer, uint32_t parameter);
void tfm_trainer_lend(tfm_trainer *trainer, uint32_t parameter, void *place);
/* Whether it keeps a running mean of what is trained (`average`). */
int tfm_trainer_has_mean(const tfm_trainer *trainer);
/* Both blocks of weights, as they are. */
typedef struct tfm_trainer_weights {
  const void *trained, *frozen;
  uint64_t trained_bytes, frozen_bytes;
} tfm_trainer_weights;
tfm_trainer_weights tfm_trainer_all_weights(const tfm_trainer *trainer);
/* What a run begins with, of a file. */
typedef struct tfm_trainer_begin {
  const float *trained;  /* copied; NULL: initial values, or what a state holds */
  void *frozen;          /* becomes the trainer's, which unmaps it; NULL: the same */
  size_t frozen_mapping; /* its bytes */
} tfm_trainer_begin;
/* The frozen weights are what they shall be: those of a state without them must be the same. */
void tfm_trainer_has_base(tfm_trainer *trainer);
tfm_status tfm_library_trainer_begin(const tfm_training *training, const tfm_trainer_begin *begin, const char *state,
                                     const tfm_trainer_options *options, tfm_trainer **trainer, tfm_error *error);

#endif
