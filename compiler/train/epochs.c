/* In: data and the divisors of the loss. Out: the batches of epochs, without empty ones. See epochs.h. */
#include "train/epochs.h"

static bool is_empty(const EpochsRequest *request, const Order *order, const Batch *batch, bool *empty) {
  *empty = false;
  return !request->divisors || divisors_lack(request->divisors, order->items + batch->first, batch->n, empty);
}

static bool refuse(const EpochsRequest *request, const Order *order, const Batch *batch, int64_t epoch) {
  const char *path;
  int64_t first = order->items[batch->first];
  for (int64_t i = 1; i < batch->n; i++)
    if (order->items[batch->first + i] < first) first = order->items[batch->first + i];
  const int64_t place = data_place(request->data, first, &path);
  diag_error_at(request->diag, path, DIAG_RUN_CHECK,
                "no label counts in a batch of %lld item%s in epoch %lld, whose first is item %lld: what '%s' is "
                "divided by is 0; --empty-batches=skip leaves such batches out, and larger batches have fewer",
                (long long)batch->n, batch->n == 1 ? "" : "s", (long long)epoch, (long long)place, request->loss);
  return false;
}

static bool refuse_epoch(const EpochsRequest *request, int64_t epoch) {
  diag_error_at(request->diag, "--data", DIAG_RUN_CHECK,
                "no label counts in any batch of epoch %lld: what '%s' is divided by is 0", (long long)epoch,
                request->loss);
  return false;
}

bool epochs_order(Arena *arena, const EpochsRequest *request, int64_t epoch, int64_t most, Epoch *made) {
  Order *order = order_of_epoch(arena, request->data, request->order, epoch);
  const size_t n = order->batches.n;
  size_t kept = 0;
  for (size_t i = 0; i < n; i++) {
    const Batch batch = order->batches.items[i];
    bool empty = false;
    if ((request->skips || (int64_t)i < most) && !is_empty(request, order, &batch, &empty)) return false;
    if (empty && !request->skips) return refuse(request, order, &batch, epoch);
    if (!empty) order->batches.items[kept++] = batch;
  }
  order->batches.n = kept;
  *made = (Epoch){order, (int64_t)(n - kept)};
  return kept || refuse_epoch(request, epoch);
}

bool epochs_count_empty(const EpochsRequest *request, const Order *order, int64_t *n) {
  *n = 0;
  for (size_t i = 0; i < order->batches.n; i++) {
    bool empty;
    if (!is_empty(request, order, &order->batches.items[i], &empty)) return false;
    *n += empty;
  }
  return true;
}

/* Whether later epochs may have other batches than this one: where no item is empty by itself, no batch is. A run that
 * leaves empty ones out and ends by its steps need not know. */
static bool must_go_on(const EpochsRequest *request, const EpochsRun *run, bool *must) {
  *must = false;
  return !request->divisors || (request->skips && run->steps) || divisors_may_lack(request->divisors, must);
}

bool epochs_check(const EpochsRequest *request, const EpochsRun *run, int64_t *steps) {
  int64_t step = run->step - run->batch; /* with which the epoch began */
  bool is_over = !run->steps && run->epoch >= run->epochs, must = true;
  for (int64_t epoch = run->epoch; !is_over && must; epoch++) {
    Arena *arena = arena_create();
    Epoch made;
    const bool good = epochs_order(arena, request, epoch, run->steps ? run->steps - step : INT64_MAX, &made);
    const int64_t n = good ? (int64_t)made.order->batches.n : 0;
    arena_destroy(arena);
    if (!good) return false;
    step += n;
    is_over = run->steps ? step >= run->steps : epoch + 1 >= run->epochs;
    if (!is_over && epoch == run->epoch && !must_go_on(request, run, &must)) return false;
    if (!is_over && !must && !run->steps) step += n * (run->epochs - epoch - 1);
  }
  *steps = run->steps ? run->steps : step;
  return true;
}

bool epochs_check_all(const EpochsRequest *request) {
  const DataSet *data = request->data;
  bool empty = false;
  const char *path;
  Arena *arena = arena_create();
  const Order *order = order_of_file(arena, data, request->order);
  const bool good = !request->divisors || divisors_lack(request->divisors, order->items, data->n_items, &empty);
  arena_destroy(arena);
  if (!good || !empty) return good;
  data_place(data, 0, &path);
  diag_error_at(request->diag, path, DIAG_RUN_CHECK, "no label of these data counts: what '%s' is divided by is 0",
                request->loss);
  return false;
}
