/* In: a run of training, and its folder. Out: checkpoints. See course_folder.h. */
#define _GNU_SOURCE /* flock */
#include "train/course_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "tfm/abi/checkpoint.h"
#include "tfm/abi/train_tables.h"
#include "train/adapter_text.h"
#include "train/epochs.h"
#include "train/journal.h"
#include "train/valid_command.h"

bool course_fails(const Course *c, DiagCode code, const tfm_error *error) {
  diag_error_at(course_diag(c), "train", code, "%s", error->message);
  return false;
}

// ---- what a checkpoint must be of ----

static uint64_t hash_number(uint64_t hash, double number) { return hash_bytes(hash, &number, sizeof number); }

static uint64_t hash_text(uint64_t hash, const char *text) { return hash_bytes(hash, text, strlen(text) + 1); }

static uint64_t hash_patterns(uint64_t hash, const Patterns *patterns) {
  for (size_t i = 0; i < patterns->texts.n; i++) hash = hash_text(hash, patterns->texts.items[i]);
  return hash_number(hash, (double)patterns->texts.n);
}

/* What is as it always was when it is not said: its name stands before it, or two of one value would be one run. */
static uint64_t hash_named(uint64_t hash, const char *name, double number) {
  return hash_number(hash_text(hash, name), number);
}

static uint64_t hash_rates(uint64_t hash, const Rates *rates) {
  for (size_t i = 0; i < rates->n; i++) hash = hash_named(hash, rates->items[i].pattern, rates->items[i].factor);
  return hash;
}

static uint64_t hash_of_settings(const TrainSettings *s) {
  const double numbers[] = {s->optimizer, s->schedule,     s->lr,       s->beta1,     s->beta2,
                            s->eps,       s->weight_decay, s->momentum, s->warmup,    s->steps,
                            s->final_lr,  s->model_size,   s->gamma,    s->clip_norm, s->nesterov};
  uint64_t hash = hash_bytes(HASH_BEGIN, numbers, sizeof numbers);
  hash = hash_patterns(hash, &s->freeze);
  hash = hash_patterns(hash, &s->no_decay);
  if (s->saved) hash = hash_named(hash, "saved", s->saved);
  if (!s->drops) hash = hash_named(hash, "dropout", 0);
  if (s->train_only.texts.n) hash = hash_patterns(hash_text(hash, "train_only"), &s->train_only);
  if (s->rates.n) hash = hash_rates(hash_text(hash, "rates"), &s->rates);
  if (s->average > 0) hash = hash_named(hash, "average", s->average);
  return s->frozen ? hash_named(hash, "frozen", s->frozen) : hash;
}

/* Shards decide how sums are rounded; one is the run without them. */
static uint64_t hash_of_run(const CourseRequest *request) {
  uint64_t hash = hash_of_settings(&request->graphs->objective->settings);
  if (request->best) hash = hash_text(hash_text(hash, "best"), request->best);
  return request->parts.shards > 1 ? hash_named(hash, "shards", request->parts.shards) : hash;
}

static uint64_t hash_of_data(const CourseRequest *request) {
  const int64_t cut[] = {request->order.batch_tokens, request->order.batch_items, request->order.pool};
  const uint64_t hash = hash_bytes(request->data->hash, cut, sizeof cut);
  return request->order.is_given ? hash_number(hash, 1) : hash;
}

tfm_state_head course_first_head(const CourseRequest *request) {
  return (tfm_state_head){.model = request->model,
                          .trained = tfm_trainer_trained(trainer_made(request->trainer)),
                          .settings = hash_of_run(request),
                          .data = hash_of_data(request),
                          .seed = request->order.seed,
                          .best = INFINITY,
                          .best_score = -INFINITY};
}

static bool is_of_this_run(const Course *c, const tfm_state_file *file) {
  const tfm_state_head *now = &c->head, *then = &file->head;
  const CourseRequest *request = c->request;
  const char *what = NULL;
  if (now->model != then->model)
    what = "another model, or another -D";
  else if (now->settings != then->settings && !request->resets_optimizer && !request->resets_schedule)
    what =
        "other settings of the train block, another --set or --best, or other --shards (--reset=schedule or "
        "--reset=optimizer takes new ones)";
  else if (now->seed != then->seed)
    what = "another --seed";
  else if (now->data != then->data && !request->resets_data)
    what =
        "other data, or another --batch-tokens, --batch-items, --pool, --order or --window (--reset=data takes new "
        "ones)";
  if (what) diag_error_at(course_diag(c), file->path, DIAG_STATE, "this checkpoint is of a run with %s", what);
  return !what;
}

// ---- the folder ----

bool course_open_folder(Course *c) {
  const char *folder = c->request->folder;
  if (c->request->resumes && access(folder, F_OK) != 0) {
    diag_error_at(course_diag(c), folder, DIAG_STATE, "there is no checkpoint to resume from: there is no such folder");
    return false;
  }
  if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
    diag_error_at(course_diag(c), folder, DIAG_FILE, "cannot make the folder: %s", strerror(errno));
    return false;
  }
  c->lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (c->lock >= 0 && flock(c->lock, LOCK_EX | LOCK_NB) == 0 && access(folder, W_OK) == 0) return true;
  diag_error_at(course_diag(c), folder, DIAG_FILE, "%s",
                errno == EWOULDBLOCK ? "another process trains in this folder" : strerror(errno));
  return false;
}

/* Where the run goes on from, less what begins anew. The schedule counts epochs of its own: those of new data go on
 * where the old ones were, unless the schedule begins anew too. */
static void go_on_from(Course *c, const tfm_state_head *then) {
  const CourseRequest *request = c->request;
  const tfm_state_head now = c->head;
  c->head = *then;
  c->head.trained = now.trained;
  c->head.settings = now.settings;
  c->head.data = now.data;
  if (request->resets_schedule) c->head.origin.schedule = then->step;
  if (request->resets_schedule) c->head.origin.epoch = then->epoch;
  if (request->resets_optimizer) c->head.origin.optimizer = then->step;
  if (request->resets_data) {
    c->head.origin.epoch -= then->epoch;
    c->head.epoch = c->head.batch = 0;
  }
  trainer_set_steps(request->trainer, c->head.step, &c->head.origin);
}

/* Moments must be of the same weights and of the same optimizer. */
static bool check_moments(const Course *c, const tfm_state_file *file) {
  const tfm_trainer *trainer = trainer_made(c->request->trainer);
  uint64_t bytes[2];
  tfm_trainer_moment_bytes(trainer, bytes);
  if (file->head.trained != tfm_trainer_trained(trainer)) {
    diag_error_at(course_diag(c), file->path, DIAG_STATE,
                  "this checkpoint is of a run with other frozen weights: --reset=optimizer begins with new moments");
    return false;
  }
  if (file->bytes[TFM_STATE_FIRST] == bytes[0] && file->bytes[TFM_STATE_SECOND] == bytes[1]) return true;
  diag_error_at(course_diag(c), file->path, DIAG_STATE,
                "this checkpoint is of a run with another optimizer: --reset=optimizer begins with a new one");
  return false;
}

/* Moments that begin anew are zeroes, which they are already. */
static bool load_blocks(Course *c, const tfm_state_file *file) {
  tfm_error error;
  const bool with_moments = !c->request->resets_optimizer;
  if (with_moments && !check_moments(c, file)) return false;
  return !tfm_trainer_take_state(trainer_made(c->request->trainer), file, with_moments, &error) ||
         course_fails(c, DIAG_STATE, &error);
}

static bool load(Course *c, const char *path) {
  tfm_error error;
  tfm_state_file file;
  if (tfm_state_open(&file, path, &error)) return course_fails(c, DIAG_STATE, &error);
  const bool good = is_of_this_run(c, &file) && load_blocks(c, &file);
  if (good) go_on_from(c, &file.head);
  tfm_state_close(&file);
  return good;
}

/* Goes on from the latest checkpoint, or begins in a folder without one. */
bool course_find_beginning(Course *c) {
  tfm_error error;
  char latest[PATH_MAX];
  const char *folder = c->request->folder;
  if (tfm_checkpoint_latest(folder, latest, sizeof latest, &error)) return course_fails(c, DIAG_FILE, &error);
  if (*latest && !c->request->resumes)
    diag_error_at(course_diag(c), folder, DIAG_STATE,
                  "the folder holds a run already: --resume goes on with it, a new run needs a new folder");
  else if (!*latest && c->request->resumes)
    diag_error_at(course_diag(c), folder, DIAG_STATE, "there is no checkpoint to resume from");
  else
    return !*latest || load(c, arena_printf(c->request->arena, "%s/" TFM_CHECKPOINT_STATE, latest));
  return false;
}

// ---- writing ----

/* The weights that people take: the best by validation, or the newest, and their running mean. */
bool course_write_weights(Course *c) {
  tfm_error error;
  const char *path = arena_printf(c->request->arena, "%s/" TFM_CHECKPOINT_WEIGHTS, c->request->folder);
  const char *mean = arena_printf(c->request->arena, "%s/" TFM_CHECKPOINT_AVERAGE, c->request->folder);
  tfm_trainer *trainer = trainer_made(c->request->trainer);
  if (tfm_trainer_write_weights(trainer, path, false, &error) ||
      (tfm_trainer_has_mean(trainer) && tfm_trainer_write_weights(trainer, mean, true, &error)))
    return course_fails(c, DIAG_FILE, &error);
  if (!trainer_has_adapter(c->request->trainer)) return true;
  const char *folder = arena_printf(c->request->arena, "%s/adapter", c->request->folder), *base = c->request->base;
  if (!base) base = adapter_base(c->request->arena, folder); /* of the run that goes on */
  return trainer_save_adapter(c->request->trainer, folder, base);
}

bool course_save(Course *c) {
  tfm_error error;
  const CourseRequest *request = c->request;
  const Record record = {.kind = RECORD_CHECKPOINT, .step = c->head.step, .epoch = c->head.epoch};
  if (c->saved == c->head.step) return true;
  c->cannot_write = true; /* until it is done */
  if (tfm_trainer_checkpoint(trainer_made(request->trainer), request->folder, &c->head, NULL, &error))
    return course_fails(c, DIAG_FILE, &error);
  tfm_checkpoint_tidy(request->folder, request->keep);
  c->saved = c->head.step;
  journal_write(c->journal, &record);
  if (!request->judge && !course_write_weights(c)) return false;
  c->cannot_write = !journal_draw(c->journal);
  return !c->cannot_write;
}
