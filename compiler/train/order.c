/* In: items and their lengths. Out: the batches of an epoch: shuffled, sorted by length in pools, cut, shuffled again.
 * See order.h. Refuses nothing: an item that is longer than a batch makes one of its own. */
#include "train/order.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "tfm/abi/train_tables.h"

// ---- shuffling ----

typedef struct Shuffle {
  uint64_t seed;
  uint32_t epoch, what; /* 0: the items; 1 + number of the pool: its batches */
} Shuffle;

/* A number of 0..n-1: 64 random bits times n, the upper half of the 128. */
static uint64_t draw(const Shuffle *shuffle, uint64_t i, uint64_t n) {
  const uint32_t counter[4] = {(uint32_t)i, (uint32_t)(i >> 32), shuffle->epoch, shuffle->what};
  const uint32_t key[2] = {(uint32_t)shuffle->seed, (uint32_t)(shuffle->seed >> 32) ^ 0xFFFFFFFFu};
  uint32_t words[4];
  tfm_philox(counter, key, words);
  __extension__ typedef unsigned __int128 wide;
  return (uint64_t)((wide)(words[0] | (uint64_t)words[1] << 32) * n >> 64);
}

/* Fisher and Yates, from the end. */
static void shuffle_elements(const Shuffle *shuffle, void *elements, size_t size, int64_t n) {
  char held[sizeof(Batch)];
  CHECK(size <= sizeof held, "elements of %zu bytes", size);
  for (int64_t i = n - 1; i > 0; i--) {
    char *one = (char *)elements + size * draw(shuffle, (uint64_t)i, (uint64_t)i + 1);
    char *last = (char *)elements + size * (uint64_t)i;
    memcpy(held, one, size);
    memmove(one, last, size);
    memcpy(last, held, size);
  }
}

// ---- sorting ----

typedef struct Key { /* an item with its lengths, the longest first, and its place before sorting */
  int64_t item, place;
  const int64_t *lengths;
  uint32_t n;
} Key;

static int descending(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x < y) - (x > y);
}

static int by_length(const void *a, const void *b) {
  const Key *x = a, *y = b;
  for (uint32_t i = 0; i < x->n; i++)
    if (x->lengths[i] != y->lengths[i]) return x->lengths[i] < y->lengths[i] ? -1 : 1;
  return (x->place > y->place) - (x->place < y->place);
}

static Key key_of(Arena *arena, const DataSet *data, int64_t item, int64_t place) {
  int64_t *lengths = ARENA_ARRAY(arena, int64_t, data->request.n_inputs + 1);
  uint32_t n = 0;
  for (uint32_t i = 0; i < data->request.n_inputs; i++)
    if (data->inputs[i].symbol >= 0) lengths[n++] = data->inputs[i].lengths[item];
  qsort(lengths, n, sizeof *lengths, descending);
  return (Key){item, place, lengths, n};
}

static void sort_items(const DataSet *data, int64_t *items, int64_t n) {
  Arena *arena = arena_create();
  Key *keys = ARENA_ARRAY(arena, Key, n + 1);
  for (int64_t i = 0; i < n; i++) keys[i] = key_of(arena, data, items[i], i);
  qsort(keys, (size_t)n, sizeof *keys, by_length);
  for (int64_t i = 0; i < n; i++) items[i] = keys[i].item;
  arena_destroy(arena);
}

// ---- cutting ----

/* How many of n items, at least one, fit into `tokens` once they are padded to the longest of them. */
static int64_t fitting(const DataSet *data, const int64_t *items, int64_t n, int64_t tokens) {
  int64_t longest[SIZE_MAX_SYMBOLS] = {0};
  for (int64_t i = 0; i < n; i++) {
    int64_t width = 0;
    bool has_lengths = false;
    for (uint32_t k = 0; k < data->request.n_inputs; k++) {
      const DataInput *input = &data->inputs[k];
      if (input->symbol < 0) continue;
      has_lengths = true;
      if (input->lengths[items[i]] > longest[input->symbol]) longest[input->symbol] = input->lengths[items[i]];
      width += longest[input->symbol];
    }
    if (i && (i + 1) * (has_lengths ? width : 1) > tokens) return i;
  }
  return n;
}

/* How many of n items, at least one, make a pool: their lengths count, not their padding. */
static int64_t pool_size(const DataSet *data, const OrderRequest *request, const int64_t *items, int64_t n) {
  if (request->batch_items) return request->pool <= n / request->batch_items ? request->pool * request->batch_items : n;
  const double most = (double)request->pool * (double)request->batch_tokens;
  double sum = 0;
  for (int64_t i = 0; i < n; i++) {
    sum += (double)data_tokens(data, items[i]);
    if (i && sum > most) return i;
  }
  return n;
}

static void cut_pool(Arena *arena, const DataSet *data, const OrderRequest *request, Order *order, int64_t first,
                     int64_t n) {
  for (int64_t at = 0; at < n;) {
    int64_t taken = request->batch_items < n - at ? request->batch_items : n - at;
    if (!request->batch_items) taken = fitting(data, order->items + first + at, n - at, request->batch_tokens);
    vec_push(arena, &order->batches, ((Batch){first + at, taken}));
    at += taken;
  }
}

static Order *all_items(Arena *arena, const DataSet *data) {
  Order *order = ARENA_NEW(arena, Order);
  order->items = ARENA_ARRAY(arena, int64_t, data->n_items + 1);
  for (int64_t i = 0; i < data->n_items; i++) order->items[i] = i;
  return order;
}

Order *order_of_epoch(Arena *arena, const DataSet *data, const OrderRequest *request, int64_t epoch) {
  Order *order = all_items(arena, data);
  if (request->is_given) {
    cut_pool(arena, data, request, order, 0, data->n_items);
    return order;
  }
  Shuffle shuffle = {request->seed, (uint32_t)epoch, 0};
  shuffle_elements(&shuffle, order->items, sizeof *order->items, data->n_items);
  for (int64_t first = 0; first < data->n_items;) {
    const int64_t n = pool_size(data, request, order->items + first, data->n_items - first);
    const size_t before = order->batches.n;
    sort_items(data, order->items + first, n);
    cut_pool(arena, data, request, order, first, n);
    shuffle.what++;
    shuffle_elements(&shuffle, order->batches.items + before, sizeof(Batch), (int64_t)(order->batches.n - before));
    first += n;
  }
  return order;
}

Order *order_of_file(Arena *arena, const DataSet *data, const OrderRequest *request) {
  Order *order = all_items(arena, data);
  sort_items(data, order->items, data->n_items);
  cut_pool(arena, data, request, order, 0, data->n_items);
  return order;
}

/* As large as the request allows; halves of halves are near enough to what would just fit. */
static void cut_share(Arena *arena, const DataSet *data, const Batch *share, const PartRequest *request, Order *parts) {
  for (int64_t at = 0; at < share->n;) {
    const int64_t *items = parts->items + share->first + at;
    int64_t n = share->n - at;
    if (request->tokens) n = fitting(data, items, n, request->tokens);
    while (request->fits && n > 1 && !request->fits(request->fits_context, items, n)) n = (n + 1) / 2;
    vec_push(arena, &parts->batches, ((Batch){share->first + at, n}));
    at += n;
  }
}

/* Share number i of n: items [n i / shares, n (i + 1) / shares), as ranks take them. */
static Batch share_of(const Batch *batch, int64_t i, int64_t shares) {
  const int64_t from = batch->n * i / shares, to = batch->n * (i + 1) / shares;
  return (Batch){batch->first + from, to - from};
}

/* Shares have equally many parts: as many as the one that needs most, or one for each item of the smallest. */
bool order_cut(Arena *arena, const DataSet *data, const Order *order, const Batch *batch, const PartRequest *request,
               Order *parts) {
  const int64_t shards = request->shards ? request->shards : 1;
  int64_t most = 1;
  *parts = (Order){.items = order->items};
  if (batch->n < shards) return false;
  if (shards == 1) {
    cut_share(arena, data, batch, request, parts);
    return true;
  }
  for (int64_t i = 0; i < shards; i++) {
    const Batch share = share_of(batch, i, shards);
    parts->batches.n = 0;
    cut_share(arena, data, &share, request, parts);
    if ((int64_t)parts->batches.n > most) most = (int64_t)parts->batches.n;
  }
  if (most > batch->n / shards) most = batch->n / shards;
  parts->batches.n = 0;
  for (int64_t i = 0; i < shards; i++) {
    const Batch share = share_of(batch, i, shards);
    for (int64_t k = 0; k < most; k++) vec_push(arena, &parts->batches, share_of(&share, k, most));
  }
  return true;
}

// ---- room ----

/* The run-time sizes of a batch of these items. */
static void sizes_of(const DataSet *data, const int64_t *items, int64_t n, int64_t *sizes) {
  const int32_t batch = data->request.batch;
  for (uint32_t k = 0; k < data->request.n_inputs; k++) {
    const DataInput *input = &data->inputs[k];
    for (int64_t i = 0; i < n && input->symbol >= 0; i++)
      if (input->lengths[items[i]] > sizes[input->symbol]) sizes[input->symbol] = input->lengths[items[i]];
  }
  if (batch >= 0) sizes[batch] = n;
}

/* Parts whose items are mixed are padded alike, to the longest of all at most. */
static int64_t bytes_of(const Trainer *trainer, const DataSet *data, const int64_t *items, int64_t n) {
  int64_t sizes[SIZE_MAX_SYMBOLS] = {0};
  data_longest(data, NULL, data->n_items, trainer_common_sizes(trainer), sizes);
  sizes_of(data, items, n, sizes);
  const int64_t bytes = trainer_part_bytes(trainer, sizes);
  return bytes < 0 ? INT64_MAX : bytes;
}

bool room_has(const Room *room, const int64_t *items, int64_t n) {
  return bytes_of(room->request.trainer, room->request.data, items, n) <= room->left;
}

/* Validation is not cut: its largest batch. */
static int64_t bytes_of_validation(const RoomRequest *request) {
  int64_t most = 0;
  if (!request->judge) return 0;
  Arena *arena = arena_create();
  const Order *order = order_of_file(arena, request->valid, request->order);
  for (size_t i = 0; i < order->batches.n; i++) {
    const Batch *batch = &order->batches.items[i];
    const int64_t bytes = bytes_of(request->judge, request->valid, order->items + batch->first, batch->n);
    if (bytes > most) most = bytes;
  }
  arena_destroy(arena);
  return most;
}

static bool refuse(const Room *room, const char *what, int64_t needed) {
  const long long least = needed, most = room->request.bytes;
  if (room->request.note)
    strbuf_printf(room->request.note, "%s: at least %lld bytes are needed, half of this machine's memory is %lld\n",
                  what, least, most);
  else
    diag_error_at(room->request.diag, "--memory", DIAG_MEMORY, "%s: at least %lld bytes are needed, %lld are allowed",
                  what, least, most);
  return false;
}

/* Most data have no item that is too large: then one of the longest lengths together fits, and no other is looked at.
 */
static bool check_items(const Room *room) {
  const DataSet *data = room->request.data;
  int64_t sizes[SIZE_MAX_SYMBOLS] = {0};
  for (int64_t i = 0; i < data->n_items; i++) sizes_of(data, &i, 1, sizes);
  const int64_t largest = trainer_part_bytes(room->request.trainer, sizes);
  if (largest >= 0 && largest <= room->left) return true;
  for (int64_t i = 0; i < data->n_items; i++) {
    const int64_t bytes = bytes_of(room->request.trainer, data, &i, 1);
    if (bytes <= room->left) continue;
    Arena *arena = arena_create();
    refuse(room, arena_printf(arena, "item %lld by itself, beside the state of the run", (long long)data->places[i]),
           bytes == INT64_MAX ? bytes : room->request.bytes - room->left + bytes);
    arena_destroy(arena);
    return false;
  }
  return true;
}

/* The sizes of the longest items of these data, as many as the largest batch has. */
static void sizes_at_most(const RoomRequest *request, const DataSet *data, bool in_order, int64_t *sizes) {
  int64_t most = 0;
  Arena *arena = arena_create();
  const Order *order =
      in_order ? order_of_file(arena, data, request->order) : order_of_epoch(arena, data, request->order, 0);
  for (size_t i = 0; i < order->batches.n; i++)
    if (order->batches.items[i].n > most) most = order->batches.items[i].n;
  arena_destroy(arena);
  for (int64_t i = 0; i < data->n_items; i++) sizes_of(data, &i, 1, sizes);
  if (data->request.batch >= 0) sizes[data->request.batch] = 2 * most; /* other epochs have other batches */
}

/* With what mixes the items of a batch, or of all that are validated. */
static int64_t bytes_at_most(const RoomRequest *request, const Trainer *trainer, const DataSet *data, bool in_order) {
  int64_t sizes[SIZE_MAX_SYMBOLS] = {0};
  sizes_at_most(request, data, in_order, sizes);
  const int64_t part = trainer_part_bytes(trainer, sizes);
  if (in_order && data->request.batch >= 0) sizes[data->request.batch] = data->n_items;
  const int64_t whole = trainer_whole_bytes(trainer, sizes);
  return part < 0 || whole < 0 ? -1 : part + whole;
}

/* What mixes the items of the largest batch, and of all that are validated, whatever their parts are. */
static int64_t bytes_of_mixtures(const RoomRequest *request) {
  int64_t sizes[SIZE_MAX_SYMBOLS] = {0}, judged[SIZE_MAX_SYMBOLS] = {0};
  sizes_at_most(request, request->data, false, sizes);
  const int64_t step = trainer_whole_bytes(request->trainer, sizes);
  if (step < 0) return INT64_MAX;
  if (!request->judge) return step;
  for (int64_t i = 0; i < request->valid->n_items; i++) sizes_of(request->valid, &i, 1, judged);
  if (request->valid->request.batch >= 0) judged[request->valid->request.batch] = request->valid->n_items;
  const int64_t validation = trainer_whole_bytes(request->judge, judged);
  return validation < 0 ? INT64_MAX : step + validation;
}

bool room_is_ample(const RoomRequest *request) {
  int64_t left = request->bytes - trainer_state_bytes(request->trainer);
  const int64_t part = bytes_at_most(request, request->trainer, request->data, false);
  if (part < 0 || part > left) return false;
  left -= part;
  if (!request->judge) return true;
  const int64_t judged = bytes_at_most(request, request->judge, request->valid, true);
  return judged >= 0 && judged <= left - trainer_state_bytes(request->judge);
}

bool room_make(const RoomRequest *request, Room *room) {
  const int64_t state =
      trainer_state_bytes(request->trainer) + (request->judge ? trainer_state_bytes(request->judge) : 0);
  const int64_t validation = bytes_of_validation(request);
  const int64_t mixtures = bytes_of_mixtures(request);
  *room = (Room){.request = *request, .left = request->bytes - state - validation - mixtures};
  if (state > request->bytes) return refuse(room, "weights, gradients and moments", state);
  if (validation > request->bytes - state)
    return refuse(room, "the largest batch of --valid, beside weights, gradients and moments", state + validation);
  if (mixtures > request->bytes - state - validation)
    return refuse(room, "what mixes the items of a batch, beside weights, gradients and moments",
                  mixtures == INT64_MAX ? mixtures : state + validation + mixtures);
  return check_items(room);
}
