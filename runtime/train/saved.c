/* What of a trainer lies in files: which weights, in which block of a state, and from a state the same.
 *
 * In: a trainer; a state that is open. Out: checkpoints, files of weights, states to begin with; a trainer with the
 * weights of a state, and its moments. A checkpoint of a model with adapters has what is trained alone, and a hash of
 * each frozen weight: it belongs to its base. Refused: a state of another model, or of another base. */
#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "base/numbers.h"
#include "tfm/abi/checkpoint.h"
#include "tfm/abi/forms.h"
#include "train/kept.h"
#include "train/trainer_parts.h"

enum { FLOATS = 16, BYTES = 64 }; /* multiples of which weights begin at */

static uint64_t numbers_bytes(uint32_t form, int64_t n) { return (uint64_t)n * (uint64_t)tfm_form_element_bytes(form); }

static uint64_t rounded(uint64_t n, uint64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// ---- hashes ----

uint64_t trainer_weight_hash(const tfm_trainer *t, uint32_t i) {
  enum { PIECE = 4096 };
  const int64_t n = t->training->parameters[i].elements;
  uint64_t hash = 0;
  for (int64_t at = 0; at < n; at += PIECE) {
    float piece[PIECE] = {0};
    tfm_trainer_get(t, i, at, least_of(PIECE, n - at), piece);
    hash = tfm_state_hash(hash, piece, sizeof piece);
  }
  return hash ? hash : 1;
}

// ---- writing ----

typedef struct Saved { /* lists, in one block of memory */
  tfm_state_place *places;
  tfm_named_tensor *tensors[2]; /* weights; the same with the running mean in the place of what is trained */
  int64_t n_tensors;
  size_t bytes;
} Saved;

static bool is_frozen(const tfm_parameter *p) { return p->gradient == TFM_NONE; }

static tfm_status list_saved(tfm_trainer *t, Saved *saved, tfm_error *error) {
  const uint32_t n = t->training->n_parameters;
  const size_t places = (n + 1) * sizeof *saved->places;
  *saved = (Saved){.bytes = places + 2 * (n + 1) * sizeof **saved->tensors};
  saved->places = allocate(&t->allocator, saved->bytes, ALIGNMENT);
  if (!saved->places) return tfm_refuse(error, TFM_E_NOMEM, "no memory for a list of weights");
  saved->tensors[0] = (tfm_named_tensor *)(void *)((char *)saved->places + places);
  saved->tensors[1] = saved->tensors[0] + n + 1;
  for (uint32_t i = 0; i < n; i++) {
    const tfm_parameter *p = &t->training->parameters[i];
    saved->places[i] = (tfm_state_place){is_frozen(p) ? trainer_weight_hash(t, i) : 0, p->form, is_frozen(p)};
    if (is_frozen(p) && t->training->base_is_apart) continue;
    const tfm_named_tensor tensor = {p->path, t->places[i], p->dims, p->rank, p->form};
    saved->tensors[0][saved->n_tensors] = saved->tensors[1][saved->n_tensors] = tensor;
    const float *mean = tfm_trainer_data(t, i, TFM_TENSOR_MEAN);
    if (mean) saved->tensors[1][saved->n_tensors].data = mean;
    saved->n_tensors++;
  }
  return TFM_OK;
}

static void free_saved(tfm_trainer *t, const Saved *saved) { release(&t->allocator, saved->places, saved->bytes); }

static tfm_state_bytes floats_of(const tfm_trainer *t, tfm_train_tensor which) {
  return (tfm_state_bytes){t->blocks[which], t->blocks[which] ? t->training->floats * sizeof(float) : 0};
}

void tfm_trainer_moment_bytes(const tfm_trainer *t, uint64_t bytes[2]) {
  bytes[0] = floats_of(t, TFM_TENSOR_FIRST).n;
  bytes[1] = floats_of(t, TFM_TENSOR_SECOND).n;
}

static void list_saved_blocks(const tfm_trainer *t, const Saved *saved, bool is_whole, tfm_state_bytes *blocks) {
  blocks[TFM_STATE_WEIGHTS] = floats_of(t, TFM_TENSOR_WEIGHT);
  blocks[TFM_STATE_PLACES] = (tfm_state_bytes){saved->places, t->training->n_parameters * sizeof *saved->places};
  if (is_whole) blocks[TFM_STATE_FROZEN] = (tfm_state_bytes){t->frozen, t->training->frozen_bytes};
}

tfm_status tfm_trainer_checkpoint(tfm_trainer *t, const char *folder, const tfm_state_head *given,
                                  const tfm_state_bytes *note, tfm_error *error) {
  Saved saved;
  tfm_state_bytes blocks[TFM_STATE_BLOCKS] = {0};
  tfm_state_head head = *given;
  tfm_status status = list_saved(t, &saved, error);
  if (status) return status;
  list_saved_blocks(t, &saved, !t->training->base_is_apart, blocks);
  blocks[TFM_STATE_FIRST] = floats_of(t, TFM_TENSOR_FIRST);
  blocks[TFM_STATE_SECOND] = floats_of(t, TFM_TENSOR_SECOND);
  blocks[TFM_STATE_MEAN] = floats_of(t, TFM_TENSOR_MEAN);
  const int64_t n = saved.n_tensors;
  const tfm_named_tensors files[2] = {{saved.tensors[0], n}, {saved.tensors[1], blocks[TFM_STATE_MEAN].n ? n : 0}};
  if (note) blocks[TFM_STATE_NOTE] = *note;
  head.trained = tfm_trainer_trained(t);
  status = tfm_checkpoint_save(folder, &head, blocks, files, error);
  free_saved(t, &saved);
  return status;
}

tfm_status tfm_trainer_write_weights(tfm_trainer *t, const char *path, int is_mean, tfm_error *error) {
  Saved saved;
  tfm_status status = list_saved(t, &saved, error);
  if (status) return status;
  status = tfm_write_tensors(path, saved.tensors[is_mean != 0], saved.n_tensors, error);
  free_saved(t, &saved);
  return status;
}

tfm_status tfm_trainer_write_start(tfm_trainer *t, const char *path, const tfm_state_head *given, tfm_error *error) {
  Saved saved;
  tfm_state_bytes blocks[TFM_STATE_BLOCKS] = {0};
  tfm_state_head head = *given;
  tfm_status status = list_saved(t, &saved, error);
  if (status) return status;
  list_saved_blocks(t, &saved, true, blocks);
  head.trained = tfm_trainer_trained(t);
  status = tfm_state_write(path, &head, blocks, error);
  free_saved(t, &saved);
  return status;
}

// ---- reading: where weights lie in a state ----

typedef struct Reader {
  tfm_trainer *t;
  const tfm_state_file *file;
  tfm_state_place *places; /* of the state */
  void *block;             /* one of its blocks, where weights do not lie as the trainer has them */
  tfm_error *error;
} Reader;

static tfm_status refuse_model(const Reader *r) {
  return tfm_refuse(r->error, TFM_E_ENV, "%s: this state is of another model or another -D", r->file->path);
}

/* Takes one behind the other what the state has of each weight, and sees that it is all. */
static tfm_status check_places(const Reader *r) {
  const tfm_training *training = r->t->training;
  uint64_t floats = 0, frozen = 0;
  for (uint32_t i = 0; i < training->n_parameters; i++) {
    const tfm_state_place *place = &r->places[i];
    const int64_t n = training->parameters[i].elements;
    if (place->form != TFM_FORM_F32 && place->form != TFM_FORM_BF16 && place->form != TFM_FORM_F16)
      return refuse_model(r);
    if (place->is_frozen)
      frozen = rounded(frozen + numbers_bytes(place->form, n), BYTES);
    else
      floats = rounded(floats + (uint64_t)n, FLOATS);
  }
  const uint64_t there = r->file->bytes[TFM_STATE_FROZEN];
  const bool fits = r->file->bytes[TFM_STATE_WEIGHTS] == floats * sizeof(float) && (!there || there == frozen);
  return fits ? TFM_OK : refuse_model(r);
}

static tfm_status read_places(Reader *r) {
  const uint64_t bytes = r->t->training->n_parameters * sizeof *r->places;
  if (r->file->head.model != r->t->training->model || r->file->bytes[TFM_STATE_PLACES] != bytes) return refuse_model(r);
  r->places = allocate(&r->t->allocator, bytes + 1, ALIGNMENT);
  if (!r->places) return tfm_refuse(r->error, TFM_E_NOMEM, "no memory for a list of weights");
  const tfm_status status = tfm_state_read(r->file, TFM_STATE_PLACES, r->places, r->error);
  return status ? status : check_places(r);
}

/* Whether all weights lie there as they lie here. */
static bool places_are_alike(const Reader *r) {
  const tfm_training *training = r->t->training;
  for (uint32_t i = 0; i < training->n_parameters; i++) {
    const tfm_parameter *p = &training->parameters[i];
    if (r->places[i].is_frozen != is_frozen(p) || r->places[i].form != p->form) return false;
  }
  return true;
}

// ---- reading: weights ----

/* Sets a weight to n numbers that are kept in a form. */
static void set_from(tfm_trainer *t, uint32_t i, uint32_t form, const void *from) {
  enum { PIECE = 1024 };
  const int64_t n = t->training->parameters[i].elements;
  for (int64_t at = 0; at < n; at += PIECE) {
    const int64_t some = least_of(PIECE, n - at);
    float piece[PIECE];
    kept_read(form, from, at, some, piece);
    tfm_trainer_set(t, i, at, some, piece);
  }
}

/* The weights of one block of the state; with `frozen_only` those that are frozen here too. */
static tfm_status spread_block(Reader *r, tfm_state_block block, bool frozen_only) {
  const tfm_training *training = r->t->training;
  const uint64_t bytes = r->file->bytes[block];
  uint64_t at = 0;
  if (!bytes) return TFM_OK;
  r->block = allocate(&r->t->allocator, bytes, ALIGNMENT);
  if (!r->block)
    return tfm_refuse(r->error, TFM_E_NOMEM, "no memory for %llu bytes of weights", (unsigned long long)bytes);
  const tfm_status status = tfm_state_read(r->file, block, r->block, r->error);
  for (uint32_t i = 0; i < training->n_parameters && !status; i++) {
    const tfm_state_place *place = &r->places[i];
    if (!place->is_frozen != (block == TFM_STATE_WEIGHTS)) continue;
    if (!frozen_only || is_frozen(&training->parameters[i])) set_from(r->t, i, place->form, (char *)r->block + at);
    at = rounded(at + numbers_bytes(place->form, training->parameters[i].elements), BYTES);
  }
  release(&r->t->allocator, r->block, bytes);
  return status;
}

/* What is frozen and the same already stays where it is, such as in a file that is mapped. */
static bool has_same_base(const Reader *r) {
  if (!r->t->has_base) return false;
  for (uint32_t i = 0; i < r->t->training->n_parameters; i++)
    if (r->places[i].is_frozen && trainer_weight_hash(r->t, i) != r->places[i].hash) return false;
  return true;
}

static tfm_status read_weights(Reader *r) {
  if (!places_are_alike(r)) {
    const tfm_status status = spread_block(r, TFM_STATE_FROZEN, false);
    return status ? status : spread_block(r, TFM_STATE_WEIGHTS, false);
  }
  tfm_status status = TFM_OK;
  if (r->file->bytes[TFM_STATE_FROZEN] && !has_same_base(r))
    status = tfm_state_read(r->file, TFM_STATE_FROZEN, r->t->frozen, r->error);
  if (!status && r->t->training->floats)
    status = tfm_state_read(r->file, TFM_STATE_WEIGHTS, r->t->blocks[TFM_TENSOR_WEIGHT], r->error);
  return status;
}

// ---- reading: a base ----

/* A base that no file had has the initial values of the seed. */
static tfm_status draw_base(const Reader *r) {
  tfm_trainer *t = r->t;
  t->seed = r->file->head.seed;
  for (uint32_t i = 0; i < t->training->n_parameters; i++) {
    const tfm_parameter *p = &t->training->parameters[i];
    if (!is_frozen(p)) continue;
    if (p->initial.kind == TFM_INITIAL_NONE)
      return tfm_refuse(r->error, TFM_E_USAGE,
                        "%s: this checkpoint has no frozen weights, such as '%s': give the base that its run began "
                        "with (--weights; weights of the source; `base` of the options)",
                        r->file->path, p->path);
    const tfm_status status = tfm_trainer_draw_one(t, i, r->error);
    if (status) return status;
  }
  t->has_base = true;
  return TFM_OK;
}

static tfm_status check_base(const Reader *r) {
  const tfm_training *training = r->t->training;
  for (uint32_t i = 0; i < training->n_parameters; i++)
    if (r->places[i].is_frozen && trainer_weight_hash(r->t, i) != r->places[i].hash)
      return tfm_refuse(r->error, TFM_E_ENV,
                        "%s: this checkpoint is of another base: its run began with another '%s'; give the weights "
                        "that it began with",
                        r->file->path, training->parameters[i].path);
  return TFM_OK;
}

static bool lacks_base(const Reader *r) {
  bool any = false;
  for (uint32_t i = 0; i < r->t->training->n_parameters; i++) any |= r->places[i].is_frozen != 0;
  return any && !r->file->bytes[TFM_STATE_FROZEN];
}

/* A state without one, or of other weights, is where the mean begins. */
static tfm_status take_mean(Reader *r, bool with_moments) {
  const tfm_trainer *t = r->t;
  float *mean = t->blocks[TFM_TENSOR_MEAN];
  const uint64_t bytes = t->training->floats * sizeof *mean;
  if (!mean || !bytes) return TFM_OK;
  if (with_moments && r->file->bytes[TFM_STATE_MEAN] == bytes && r->file->head.trained == tfm_trainer_trained(t))
    return tfm_state_read(r->file, TFM_STATE_MEAN, mean, r->error);
  memcpy(mean, t->blocks[TFM_TENSOR_WEIGHT], bytes);
  return TFM_OK;
}

static tfm_status take_state(Reader *r, bool with_moments) {
  tfm_trainer *t = r->t;
  tfm_status status = read_places(r);
  const bool lacks = !status && lacks_base(r);
  if (lacks && !t->has_base) status = draw_base(r);
  if (lacks && !status) status = check_base(r);
  if (!status) status = read_weights(r);
  for (int i = TFM_STATE_FIRST; i <= TFM_STATE_SECOND && with_moments && !status; i++)
    if (r->file->bytes[i])
      status = tfm_state_read(r->file, (tfm_state_block)i,
                              t->blocks[i == TFM_STATE_FIRST ? TFM_TENSOR_FIRST : TFM_TENSOR_SECOND], r->error);
  return status ? status : take_mean(r, with_moments);
}

static tfm_status end_reading(Reader *r, tfm_status status) {
  if (r->places) release(&r->t->allocator, r->places, r->t->training->n_parameters * sizeof *r->places + 1);
  return status;
}

tfm_status tfm_trainer_take_state(tfm_trainer *t, const tfm_state_file *file, int with_moments, tfm_error *error) {
  Reader r = {.t = t, .file = file, .error = error};
  return end_reading(&r, take_state(&r, with_moments));
}

tfm_status tfm_trainer_take_base(tfm_trainer *t, const tfm_state_file *file, tfm_error *error) {
  Reader r = {.t = t, .file = file, .error = error};
  tfm_status status = read_places(&r);
  if (!status && lacks_base(&r))
    status = tfm_refuse(error, TFM_E_USAGE, "%s: this state has no frozen weights: it is a checkpoint without its base",
                        file->path);
  if (!status) status = spread_block(&r, TFM_STATE_FROZEN, true);
  if (!status) status = spread_block(&r, TFM_STATE_WEIGHTS, true);
  if (!status) t->has_base = true;
  return end_reading(&r, status);
}
