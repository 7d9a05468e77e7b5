/* In: a trainer and data. Out: steps, validations, checkpoints, in their order. See course.h. */
#define _GNU_SOURCE /* flock */
#include "train/course.h"

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
#include "train/course_folder.h"
#include "train/valid_command.h"

#define VALID_WEIGHTS ".valid.safetensors" /* while --valid-command runs */

// ---- a run ----

// ---- signals ----

static atomic_int asked_to_stop; /* the command has a thread of its own, and signals come to the first */

static void on_signal(int number) { atomic_store(&asked_to_stop, number); }

/* The second signal of a kind does what it does without us: it kills. */
static void listen(bool listens) {
  struct sigaction action = {.sa_handler = listens ? on_signal : SIG_DFL, .sa_flags = (int)SA_RESETHAND};
  sigemptyset(&action.sa_mask);
  if (listens) atomic_store(&asked_to_stop, 0);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
}

// ---- validation ----

/* The judge looks at the weights of the trainer, or at their running mean. Its objective is elaborated anew, so their
 * order may be another. */
static void lend_weights(const Course *c) {
  const TrainGraphs *from = c->request->graphs, *to = c->request->judge_graphs;
  tfm_trainer *trainer = trainer_made(c->request->trainer);
  for (uint32_t i = 0; i < to->parameters.n; i++) {
    const Parameter *p = &to->parameters.items[i];
    uint32_t k = 0;
    while (k + 1 < from->parameters.n && strcmp(from->parameters.items[k].path, p->path) != 0) k++;
    float *mean = tfm_trainer_data(trainer, k, TFM_TENSOR_MEAN);
    tfm_trainer_lend(trainer_made(c->request->judge), i, mean ? mean : tfm_trainer_place(trainer, k));
  }
}

/* All batches are made once and stay: they are the same each time. */
static bool make_valid(Course *c) {
  const CourseRequest *request = c->request;
  const Order *order = request->judge ? order_of_file(request->arena, request->valid, &request->order) : NULL;
  if (request->judge) lend_weights(c);
  c->n_valid = order ? (uint32_t)order->batches.n : 0;
  c->valid = ARENA_ARRAY(request->arena, EvalInputs, c->n_valid + 1);
  int64_t least[SIZE_MAX_SYMBOLS] = {0};
  if (c->n_valid > 1)
    data_longest(request->valid, NULL, request->valid->n_items, trainer_common_sizes(request->judge), least);
  for (uint32_t i = 0; i < c->n_valid; i++) {
    const Batch batch = order->batches.items[i];
    if (!data_batch_padded(request->valid, request->arena, order->items + batch.first, batch.n, least, &c->valid[i]))
      return false;
  }
  return true;
}

/* The command sees the weights of this step, which need not be the best. False if they cannot be written. */
static bool run_command(Course *c, double *score) {
  tfm_error error;
  const CourseRequest *request = c->request;
  const char *path = arena_printf(request->arena, "%s/" VALID_WEIGHTS, request->folder);
  tfm_trainer *trainer = trainer_made(request->trainer);
  if (tfm_trainer_write_weights(trainer, path, tfm_trainer_has_mean(trainer), &error))
    return course_fails(c, DIAG_FILE, &error);
  const char *fault = valid_command_run(request->arena, request->valid_command, path, c->head.step, score);
  unlink(path);
  if (fault)
    journal_say(c->journal, "step %lld  --valid-command %s", (long long)c->head.step, fault);
  else
    journal_say(c->journal, "step %lld  score %g", (long long)c->head.step, *score);
  return true;
}

/* With a command its score counts, the greater the better, unless --best names what does; one without a number changes
 * nothing. */
static void judge(Course *c, bool is_better, double score) {
  const bool by_score = c->request->valid_command && !c->request->best;
  if (by_score && isnan(score)) return;
  if (by_score) is_better = score > c->head.best_score;
  if (by_score && is_better) c->head.best_score = score;
  c->head.stale = is_better ? 0 : c->head.stale + 1;
}

/* What of a validation decides whether it is the best: the less, the better. NaN is never better. */
static double rating(const Course *c, double score) {
  const char *best = c->request->best ? c->request->best : "-loss", *name = best + (*best == '-');
  double value = c->judged[0]; /* whatever the loss is called */
  if (strcmp(name, "score") == 0) value = score;
  for (uint32_t i = 0; i < c->n_results; i++)
    if (strcmp(name, c->request->graphs->results.items[i].name) == 0) value = c->judged[i];
  return *best == '-' ? value : -value;
}

static bool validate(Course *c) {
  if (!trainer_evaluate(c->request->judge, c->valid, c->n_valid, c->judged)) return false;
  double score = NAN;
  if (c->request->valid_command && !run_command(c, &score)) return false;
  const Record record = {.kind = RECORD_VALID,
                         .step = c->head.step,
                         .epoch = c->head.epoch,
                         .results = c->judged,
                         .has_score = !isnan(score),
                         .score = score};
  journal_write(c->journal, &record);
  const double rated = rating(c, score);
  const bool is_better = rated < c->head.best;
  Arena *arena = arena_create();
  StrBuf text = strbuf_new(arena);
  journal_results(&text, c->journal, c->judged);
  journal_say(c->journal, "step %lld  epoch %lld  validation  %s%s", (long long)c->head.step, (long long)c->head.epoch,
              text.text, is_better ? "  best" : "");
  arena_destroy(arena);
  judge(c, is_better, score);
  if (is_better) c->head.best = rated;
  if (is_better) c->head.best_step = c->head.step;
  c->has_stopped = c->request->patience && c->head.stale >= c->request->patience;
  return (!is_better || course_write_weights(c)) && journal_draw(c->journal);
}

// ---- steps ----

static EpochsRequest epochs_request(const CourseRequest *request) {
  return (EpochsRequest){.diag = request->diag,
                         .data = request->data,
                         .order = &request->order,
                         .divisors = request->divisors,
                         .loss = request->graphs->results.items[0].name,
                         .skips = request->skips_empty};
}

/* All batches that the run takes were looked at before its first step. */
static bool order_epoch(Course *c) {
  Epoch made;
  if (c->ordered == c->head.epoch) return true;
  arena_destroy(c->epoch);
  c->epoch = arena_create();
  c->ordered = -1;
  if (!epochs_order(c->epoch, &c->epochs, c->head.epoch, 0, &made)) return false;
  c->order = made.order;
  c->ordered = c->head.epoch;
  if (!c->head.batch) c->since.left_out += made.left_out;
  return true;
}

/* Which batches the run takes, and with which step it ends; whether anything counts in the validation. */
static bool check_epochs(Course *c, int64_t *steps) {
  const CourseRequest *request = c->request;
  const EpochsRun run = {c->head.epoch, c->head.batch, c->head.step, request->steps, request->epochs};
  if (!epochs_check(&c->epochs, &run, steps) || !order_epoch(c)) return false;
  if (!request->judge) return true;
  EpochsRequest valid = c->epochs;
  valid.data = request->valid;
  valid.divisors = divisors_new(request->arena, request->judge_graphs, trainer_counts(request->judge), request->valid);
  return epochs_check_all(&valid);
}

/* What the tensors of a part hold beside the items themselves is padding. */
static void count_part(Course *c, const EvalInputs *inputs) {
  for (uint32_t i = 0; i < inputs->n; i++)
    if (c->request->data->inputs[i].symbol >= 0)
      c->since.padding += inputs->tensors[i].dims[0] * inputs->tensors[i].dims[1];
}

static bool take_step(Course *c, Arena *arena, StepResult *result) {
  const CourseRequest *request = c->request;
  const Batch *batch = &c->order->batches.items[c->head.batch];
  Order parts;
  if (!order_cut(arena, request->data, c->order, batch, &request->parts, &parts)) {
    diag_error_at(course_diag(c), "train", DIAG_USAGE,
                  "batch %lld of epoch %lld has %lld items, fewer than --shards=%lld",
                  (long long)c->head.batch, (long long)c->head.epoch, (long long)batch->n,
                  (long long)request->parts.shards);
    return false;
  }
  EvalInputs *inputs = ARENA_ARRAY(arena, EvalInputs, parts.batches.n);
  int64_t least[SIZE_MAX_SYMBOLS] = {0}; /* parts whose items are mixed are padded alike */
  const uint64_t common = trainer_common_sizes(request->trainer);
  data_longest(request->data, c->order->items + batch->first, batch->n, common, least);
  for (size_t i = 0; i < parts.batches.n; i++) {
    const Batch part = parts.batches.items[i];
    if (!data_batch_padded(request->data, arena, parts.items + part.first, part.n, least, &inputs[i])) return false;
    count_part(c, &inputs[i]);
  }
  for (int64_t i = 0; i < batch->n; i++) {
    const int64_t tokens = data_tokens(request->data, c->order->items[batch->first + i]);
    c->since.tokens += tokens;
    c->since.padding -= tokens;
  }
  c->since.items += batch->n;
  return trainer_step(request->trainer, inputs, (uint32_t)parts.batches.n, c->head.epoch, result);
}

/* After an error the weights are those of the last step that was done: nothing of it is lost. Where writing is what
 * failed, it is not tried again. */
static void rescue(Course *c) {
  tfm_error error;
  char latest[PATH_MAX];
  if (!c->cannot_write && c->head.step > c->begun) course_save(c);
  if (!tfm_checkpoint_latest(c->request->folder, latest, sizeof latest, &error) && *latest)
    diag_note(course_diag(c), NO_SPAN, "the last checkpoint is %s", latest);
}

static bool step(Course *c) {
  Arena *arena = arena_create();
  StepResult result = {.results = c->results};
  c->since.epoch = c->head.epoch;
  const bool good = order_epoch(c) && take_step(c, arena, &result);
  arena_destroy(arena);
  if (!good) return false;
  c->head.step++;
  c->ended_epoch = ++c->head.batch == (int64_t)c->order->batches.n;
  if (c->ended_epoch) c->head.epoch++;
  if (c->ended_epoch) c->head.batch = 0;
  c->since.kind = RECORD_STEP;
  c->since.step = c->head.step;
  c->since.results = c->results;
  c->since.rate = result.rate;
  c->since.norm = result.norm;
  journal_show(c->journal, &c->since);
  return true;
}

static bool is_due(const Course *c, int64_t every) { return every ? c->head.step % every == 0 : c->ended_epoch; }

static bool is_over(const Course *c) {
  const CourseRequest *request = c->request;
  return c->has_stopped || (request->steps && c->head.step >= request->steps) ||
         (request->epochs && c->head.epoch >= request->epochs);
}

static bool after_step(Course *c, bool stops) {
  const CourseRequest *request = c->request;
  if (is_due(c, request->log_every) || is_over(c)) {
    journal_write(c->journal, &c->since);
    c->since = (Record){0};
  }
  const bool is_last = is_over(c);
  if (request->judge && (is_due(c, request->valid_every) || is_last) && !validate(c)) return false;
  return !(is_due(c, request->save_every) || is_over(c) || stops) || course_save(c);
}

/* Signals are looked at once a step, so that a run never ends without the checkpoint of its last step. */
static bool go(Course *c, int *signal) {
  bool good = true;
  int stop = 0;
  listen(true);
  while (good && !stop && !is_over(c)) {
    good = step(c);
    stop = atomic_load(&asked_to_stop);
    good = good && after_step(c, stop != 0);
  }
  if (!good) rescue(c);
  listen(false);
  *signal = good && !is_over(c) ? stop : 0;
  return good;
}

/* Whether all batches of the epoch may be cut as they will be. */
static bool may_cut_epoch(const Course *c) {
  const CourseRequest *request = c->request;
  Arena *arena = arena_create();
  bool may = true;
  for (size_t i = 0; i < c->order->batches.n && may && request->graphs->whole; i++) {
    Order parts;
    may = !order_cut(arena, request->data, c->order, &c->order->batches.items[i], &request->parts, &parts) ||
          trainer_may_cut(request->trainer, (uint32_t)parts.batches.n, true);
  }
  arena_destroy(arena);
  return may;
}

/* A rate that falls until `steps`, which the run does not reach. */
static void warn_of_schedule(const Course *c, int64_t steps) {
  const TrainSettings *s = &c->request->graphs->objective->settings;
  const bool falls = s->schedule == SCHEDULE_LINEAR || s->schedule == SCHEDULE_COSINE;
  const int64_t end = (int64_t)s->steps + c->head.origin.schedule;
  if (falls && steps < end)
    diag_warning_at(course_diag(c), "train", DIAG_TRAIN_MEANT,
                    "the schedule goes on to step %lld, but the run ends with step %lld: --set steps=%lld ends both "
                    "together",
                    (long long)end, (long long)steps, (long long)(steps - c->head.origin.schedule));
}

static void warn_of_adapters(const Course *c) {
  const char *why = trainer_no_adapter(c->request->trainer);
  if (why)
    diag_warning_at(course_diag(c), c->request->folder, DIAG_TRAIN_MEANT, "there will be no folder adapter: %s", why);
}

static bool begin(Course *c) {
  const CourseRequest *request = c->request;
  const char **names = ARENA_ARRAY(request->arena, const char *, c->n_results + 1);
  for (uint32_t i = 0; i < c->n_results; i++) names[i] = request->graphs->results.items[i].name;
  if (!course_open_folder(c) || !course_find_beginning(c)) return false;
  tfm_checkpoint_tidy(request->folder, 0);
  c->begun = c->head.step;
  c->epochs = epochs_request(request);
  int64_t steps;
  if (!check_epochs(c, &steps)) return false;
  warn_of_schedule(c, steps);
  warn_of_adapters(c);
  const JournalRequest journal = {request->arena, request->diag,   request->folder,  names, c->n_results, c->head.step,
                                  steps,          request->epochs, request->is_quiet};
  c->journal = journal_open(&journal);
  return c->journal && make_valid(c) && (!request->judge || trainer_may_cut(request->judge, c->n_valid, false)) &&
         may_cut_epoch(c);
}

bool course_run(const CourseRequest *request, int *signal) {
  Course c = {.request = request, .lock = -1, .head = course_first_head(request), .ordered = -1, .saved = -1};
  c.n_results = (uint32_t)request->graphs->results.n;
  c.results = ARENA_ARRAY(request->arena, double, c.n_results + 1);
  c.judged = ARENA_ARRAY(request->arena, double, c.n_results + 1);
  *signal = 0;
  bool good = begin(&c) && go(&c, signal);
  if (good && *signal)
    journal_say(c.journal, "stopped after step %lld: --resume goes on", (long long)c.head.step);
  else if (good)
    journal_say(c.journal, "step %lld  epoch %lld  weights in %s/" TFM_CHECKPOINT_WEIGHTS, (long long)c.head.step,
                (long long)c.head.epoch, request->folder);
  good = journal_close(c.journal) && good;
  if (c.lock >= 0) close(c.lock);
  arena_destroy(c.epoch);
  return good;
}

// ---- for people ----

bool course_describe(StrBuf *out, const CourseRequest *request) {
  Arena *arena = arena_create();
  const DataSet *data = request->data;
  const Order *order = order_of_epoch(arena, data, &request->order, 0);
  int64_t real = 0, all = 0, parts = 0, empty = 0;
  const EpochsRequest epochs = epochs_request(request);
  const bool good = epochs_count_empty(&epochs, order, &empty);
  for (size_t b = 0; b < order->batches.n; b++) {
    Order cut;
    order_cut(arena, data, order, &order->batches.items[b], &request->parts, &cut);
    parts += (int64_t)cut.batches.n;
    for (size_t p = 0; p < cut.batches.n; p++) {
      const Batch part = cut.batches.items[p];
      int64_t longest[SIZE_MAX_SYMBOLS] = {0};
      for (int64_t i = 0; i < part.n; i++) {
        const int64_t item = order->items[part.first + i];
        real += data_tokens(data, item);
        for (uint32_t k = 0; k < data->request.n_inputs; k++) {
          const DataInput *input = &data->inputs[k];
          if (input->symbol >= 0 && input->lengths[item] > longest[input->symbol])
            longest[input->symbol] = input->lengths[item];
        }
      }
      for (uint32_t k = 0; k < data->request.n_inputs; k++)
        if (data->inputs[k].symbol >= 0) all += part.n * longest[data->inputs[k].symbol];
    }
  }
  strbuf_printf(out, "data: %lld item%s", (long long)data->n_items, data->n_items == 1 ? "" : "s");
  if (data->n_skipped) strbuf_printf(out, ", %lld left out as too long", (long long)data->n_skipped);
  strbuf_printf(out, ", %lld token%s\nan epoch: %zu batch%s in %lld part%s", (long long)real, real == 1 ? "" : "s",
                order->batches.n, order->batches.n == 1 ? "" : "es", (long long)parts, parts == 1 ? "" : "s");
  if (all) strbuf_printf(out, ", %.1f %% padding", 100 * (1 - (double)real / (double)all));
  if (empty)
    strbuf_printf(out, "; in %lld of the batches no label counts%s", (long long)empty,
                  request->skips_empty ? ": left out" : "");
  strbuf_add_char(out, '\n');
  arena_destroy(arena);
  return good;
}
