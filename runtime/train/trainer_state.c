/* States of a trainer: it begins with one, and leaves them behind in the folders of its checkpoints.
 *
 * In: a trainer; the path of a state, or the folder of a run and what its caller wants to find again (a note). Out: the
 * trainer as it was when the state was written; a checkpoint. Refused: a state of another model, optimizer or set of
 * trained weights; a folder with checkpoints of another run. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/error.h"
#include "tfm/abi/checkpoint.h"
#include "train/trainer_parts.h"

/* Moments are of what is trained and of the optimizer. A start from `tfmc pack` has none: they are zeroes. */
static tfm_status check_state(const tfm_trainer *t, const tfm_state_file *file, tfm_error *error) {
  const tfm_train_tensor moments[] = {TFM_TENSOR_FIRST, TFM_TENSOR_SECOND};
  bool fits = file->head.model == t->training->model;
  for (int i = 0; i < 2; i++) {
    const uint64_t there = file->bytes[TFM_STATE_FIRST + i];
    const uint64_t here = t->blocks[moments[i]] ? t->training->floats * sizeof(float) : 0;
    const bool begins = !file->head.step && !there;
    fits = fits && (begins || (there == here && file->head.trained == tfm_trainer_trained(t)));
  }
  return fits ? TFM_OK
              : tfm_refuse(error, TFM_E_ENV,
                           "%s: this state is of another model, another -D, another optimizer or other frozen weights",
                           file->path);
}

static tfm_status read_note(tfm_trainer *t, const tfm_state_file *file, tfm_error *error) {
  const int64_t bytes = (int64_t)file->bytes[TFM_STATE_NOTE];
  if (!bytes) return TFM_OK;
  t->note = allocate(&t->allocator, (size_t)bytes, sizeof(void *));
  if (!t->note) return tfm_refuse(error, TFM_E_NOMEM, "no memory for a note of %lld bytes", (long long)bytes);
  t->note_bytes = bytes;
  return tfm_state_read(file, TFM_STATE_NOTE, t->note, error);
}

/* The file is whole when it is open: all of it has been compared with its hashes. */
tfm_status trainer_load(tfm_trainer *t, const char *path, tfm_error *error) {
  tfm_state_file file;
  tfm_status status = tfm_state_open(&file, path, error);
  if (status) return status;
  status = check_state(t, &file, error);
  if (!status) status = tfm_trainer_take_state(t, &file, true, error);
  if (!status) status = read_note(t, &file, error);
  t->head = file.head;
  t->t = file.head.step;
  t->epoch = file.head.epoch;
  t->seed = file.head.seed;
  tfm_state_close(&file);
  return status;
}

tfm_status trainer_load_base(tfm_trainer *t, const char *path, tfm_error *error) {
  tfm_state_file file;
  tfm_status status = tfm_state_open(&file, path, error);
  if (status) return status;
  status = tfm_trainer_take_base(t, &file, error);
  tfm_state_close(&file);
  return status;
}

/* A folder that holds another run's checkpoints: neither of the two could go on from it. One that this trainer's state
 * came from, or that an earlier trainer of the same kind left behind, may be written to. */
static tfm_status check_folder(const tfm_trainer *t, const char *folder, tfm_error *error) {
  char latest[PATH_MAX], path[PATH_MAX + sizeof TFM_CHECKPOINT_STATE + 1];
  tfm_state_head head;
  tfm_status status = tfm_checkpoint_latest(folder, latest, sizeof latest, error);
  if (status || !*latest) return status;
  snprintf(path, sizeof path, "%s/" TFM_CHECKPOINT_STATE, latest);
  status = tfm_state_read_head(path, &head, error);
  if (status) return status;
  const bool is_same = head.model == t->training->model && head.seed == t->seed && head.settings == t->head.settings &&
                       head.data == t->head.data;
  if (is_same && (t->head.model || head.step <= t->t)) return TFM_OK;
  return tfm_refuse(
      error, TFM_E_ENV,
      "%s: the folder holds another run, whose newest checkpoint is of step %lld: save to a folder of its "
      "own, or make the trainer from that checkpoint",
      folder, (long long)head.step);
}

static tfm_status save_state(tfm_trainer *t, const char *folder, const void *note, int64_t note_bytes,
                             tfm_error *error) {
  const tfm_state_bytes bytes = {note, (uint64_t)note_bytes};
  tfm_state_head head = t->head;
  head.model = t->training->model;
  head.seed = t->seed;
  head.step = t->t;
  head.epoch = t->epoch;
  if (!t->head.model) head.best = INFINITY;
  if (!t->head.model) head.best_score = -INFINITY;
  mkdir(folder, 0777); /* it may be there */
  const tfm_status status = check_folder(t, folder, error);
  return status ? status : tfm_trainer_checkpoint(t, folder, &head, note ? &bytes : NULL, error);
}

const void *tfm_trainer_note(const tfm_trainer *t, int64_t *bytes) {
  if (bytes) *bytes = t ? t->note_bytes : 0;
  return t ? t->note : NULL;
}

tfm_status tfm_trainer_save(tfm_trainer *t, const char *folder, const void *note, int64_t note_bytes,
                            tfm_error *error) {
  tfm_status status = training_enter(t, error);
  if (status) return status;
  if (!folder || note_bytes < 0)
    status = tfm_refuse_call(error, "a folder is needed, and a note has no negative number of bytes");
  else
    status = save_state(t, folder, note, note_bytes, error);
  return training_leave(t, status ? status : tfm_succeed(error));
}
