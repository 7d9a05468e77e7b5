/* Trains the model, and then translates with it. usage: train DATA STEPS [FOLDER]
 *
 * In: a file that make_data.py wrote; dates on standard input, one a line. Out: the loss now and then, on standard error;
 * a checkpoint in FOLDER; an ISO date for each line, by the model with the weights that were just trained. It needs the
 * library that `tfmc compile --training` made, and nothing else: not tfmc, no file of weights. Weights are those of
 * `tfmc train --seed 1`, byte for byte, because batches come in the same order, which docs/training.md describes. */
#define _POSIX_C_SOURCE 200809L
#include "translate.h"

enum { SEED = 1, BATCH_TOKENS = 4096, POOL = 100, LOG_EVERY = 50 };

/* Items lie one behind the other: ids[starts[i] .. starts[i] + lengths[i]). */
typedef struct Column {
  int32_t *ids, *lengths;
  int64_t *starts;
  int64_t n_ids, n;
} Column;

typedef struct Range { /* items [first, first + n) of the order */
  int64_t first, n;
} Range;

typedef struct Data {
  Column src, sentence;
  int64_t *items; /* of the epoch, in their order */
  Range *batches;
  int64_t n_batches;
} Data;

static void fail(const char *what, const char *why) {
  fprintf(stderr, "train: %s: %s\n", what, why);
  exit(1);
}

static void *room_for(int64_t n, size_t size) {
  void *room = calloc((size_t)n + 1, size);
  if (!room) fail("memory", "there is not enough");
  return room;
}

/* ---- the file: its header is JSON that make_data.py wrote, with "NAME": { ... "data_offsets": [BEGIN, END]} ---- */

static int32_t *read_numbers(FILE *file, const char *header, int64_t begins, const char *name, int64_t *n) {
  char key[64];
  long long from = 0, to = 0;
  snprintf(key, sizeof key, "\"%s\": {", name);
  const char *entry = strstr(header, key), *offsets = entry ? strstr(entry, "\"data_offsets\": [") : NULL;
  if (!offsets || sscanf(offsets, "\"data_offsets\": [%lld, %lld]", &from, &to) != 2 || to < from) fail(name, "not there");
  *n = (to - from) / 4;
  int32_t *numbers = room_for(*n, sizeof *numbers);
  if (fseek(file, (long)(begins + from), SEEK_SET) != 0 || fread(numbers, 4, (size_t)*n, file) != (size_t)*n)
    fail(name, "the file is too short");
  return numbers;
}

static Column read_column(FILE *file, const char *header, int64_t begins, const char *name) {
  Column column;
  char lengths[64];
  int64_t at = 0;
  snprintf(lengths, sizeof lengths, "%s.lengths", name);
  column.ids = read_numbers(file, header, begins, name, &column.n_ids);
  column.lengths = read_numbers(file, header, begins, lengths, &column.n);
  column.starts = room_for(column.n, sizeof *column.starts);
  for (int64_t i = 0; i < column.n; at += column.lengths[i++]) column.starts[i] = at;
  if (at != column.n_ids) fail(name, "the lengths do not add up to its ids");
  return column;
}

static Data read_data(const char *path) {
  Data data = {0};
  unsigned char size[8];
  int64_t n = 0;
  FILE *file = fopen(path, "rb");
  if (!file || fread(size, 1, sizeof size, file) != sizeof size) fail(path, "cannot be read");
  for (int i = 8; i-- > 0;) n = n << 8 | size[i];
  char *header = n > 0 && n < 100000 ? room_for(n, 1) : NULL;
  if (!header || fread(header, 1, (size_t)n, file) != (size_t)n) fail(path, "this is no file of make_data.py");
  data.src = read_column(file, header, 8 + n, "src");
  data.sentence = read_column(file, header, 8 + n, "sentence");
  if (data.src.n != data.sentence.n || !data.src.n) fail(path, "src and sentence have not equally many items");
  data.items = room_for(data.src.n, sizeof *data.items);
  data.batches = room_for(data.src.n, sizeof *data.batches);
  free(header);
  fclose(file);
  return data;
}

/* ---- the order of batches ---- */

/* Philox4x32-10: the words w0 and w1, as one number. */
static uint64_t draw(uint64_t i, uint32_t epoch, uint32_t what) {
  uint32_t c[4] = {(uint32_t)i, (uint32_t)(i >> 32), epoch, what};
  uint32_t k[2] = {(uint32_t)SEED, (uint32_t)((uint64_t)SEED >> 32) ^ 0xFFFFFFFF};
  for (int round = 0; round < 10; round++, k[0] += 0x9E3779B9, k[1] += 0xBB67AE85) {
    const uint64_t p = (uint64_t)c[0] * 0xD2511F53, q = (uint64_t)c[2] * 0xCD9E8D57;
    const uint32_t next[4] = {(uint32_t)(q >> 32) ^ c[1] ^ k[0], (uint32_t)q, (uint32_t)(p >> 32) ^ c[3] ^ k[1],
                              (uint32_t)p};
    memcpy(c, next, sizeof c);
  }
  return (uint64_t)c[1] << 32 | c[0];
}

/* floor(w (i + 1) / 2^64), for fewer than 2^31 items. */
static int64_t place_of(uint64_t w, int64_t i) {
  const uint64_t n = (uint64_t)i + 1;
  return (int64_t)(((w >> 32) * n + ((w & 0xFFFFFFFF) * n >> 32)) >> 32);
}

static const Data *sorted; /* for qsort, which passes nothing on */
static const int64_t *places;

static int by_length(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  const int32_t s = sorted->src.lengths[x], t = sorted->sentence.lengths[x], u = sorted->src.lengths[y],
                v = sorted->sentence.lengths[y];
  const int32_t longest = s > t ? s : t, other = s > t ? t : s, longest_of_y = u > v ? u : v, other_of_y = u > v ? v : u;
  if (longest != longest_of_y) return longest < longest_of_y ? -1 : 1;
  if (other != other_of_y) return other < other_of_y ? -1 : 1;
  return (places[x] > places[y]) - (places[x] < places[y]);
}

/* How many of n items fit into a batch, padded to the longest. */
static int64_t fitting(const Data *data, const int64_t *items, int64_t n) {
  int64_t source = 0, target = 0;
  for (int64_t i = 0; i < n; i++) {
    if (data->src.lengths[items[i]] > source) source = data->src.lengths[items[i]];
    if (data->sentence.lengths[items[i]] > target) target = data->sentence.lengths[items[i]];
    if (i && (i + 1) * (source + target) > BATCH_TOKENS) return i;
  }
  return n;
}

/* How many of n items make a pool: their lengths count, not their padding. */
static int64_t pool_of(const Data *data, const int64_t *items, int64_t n) {
  int64_t sum = 0;
  for (int64_t i = 0; i < n; i++) {
    sum += data->src.lengths[items[i]] + data->sentence.lengths[items[i]];
    if (i && sum > (int64_t)POOL * BATCH_TOKENS) return i;
  }
  return n;
}

static void order_epoch(Data *data, uint32_t epoch) {
  const int64_t n = data->src.n;
  int64_t *before = room_for(n, sizeof *before);
  data->n_batches = 0;
  for (int64_t i = 0; i < n; i++) data->items[i] = i;
  for (int64_t i = n - 1; i > 0; i--) {
    const int64_t j = place_of(draw((uint64_t)i, epoch, 0), i), held = data->items[i];
    data->items[i] = data->items[j];
    data->items[j] = held;
  }
  for (int64_t i = 0; i < n; i++) before[data->items[i]] = i;
  sorted = data;
  places = before;
  uint32_t what = 1;
  for (int64_t first = 0, size; first < n; first += size, what++) {
    const int64_t begins = data->n_batches;
    size = pool_of(data, data->items + first, n - first);
    qsort(data->items + first, (size_t)size, sizeof *data->items, by_length);
    for (int64_t at = first, taken; at < first + size; at += taken) {
      taken = fitting(data, data->items + at, first + size - at);
      data->batches[data->n_batches++] = (Range){at, taken};
    }
    for (int64_t i = data->n_batches - begins - 1; i > 0; i--) {
      const int64_t j = place_of(draw((uint64_t)i, epoch, what), i);
      const Range held = data->batches[begins + i];
      data->batches[begins + i] = data->batches[begins + j];
      data->batches[begins + j] = held;
    }
  }
  free(before);
}

/* ---- training ---- */

/* [n, *length], padded with 0. */
static int32_t *pad(const Column *column, const int64_t *items, int64_t n, int64_t *length) {
  *length = 0;
  for (int64_t i = 0; i < n; i++)
    if (column->lengths[items[i]] > *length) *length = column->lengths[items[i]];
  int32_t *ids = room_for(n * *length, sizeof *ids);
  for (int64_t i = 0; i < n; i++)
    memcpy(ids + i * *length, column->ids + column->starts[items[i]], (size_t)column->lengths[items[i]] * sizeof *ids);
  return ids;
}

static tfm_status take_step(dates_trainer *trainer, const Data *data, Range batch, tfm_step_result *result,
                            tfm_error *error) {
  const int64_t *items = data->items + batch.first;
  dates_objective_args args = {.struct_size = sizeof args, .batch = batch.n};
  int32_t *src = pad(&data->src, items, batch.n, &args.source);
  int32_t *sentence = pad(&data->sentence, items, batch.n, &args.n);
  args.src = src;
  args.sentence = sentence;
  const tfm_status status = dates_trainer_step(trainer, &args, 1, 0, result, error);
  free(src);
  free(sentence);
  return status;
}

static tfm_status train(dates_trainer *trainer, Data *data, long steps, tfm_error *error) {
  tfm_step_result result = {.struct_size = sizeof result};
  uint32_t epoch = 0;
  int64_t batch = 0;
  order_epoch(data, 0);
  for (long step = 1; step <= steps; step++) {
    dates_trainer_set_epoch(trainer, epoch);
    const tfm_status status = take_step(trainer, data, data->batches[batch], &result, error);
    if (status) return status;
    if (step % LOG_EVERY == 0) fprintf(stderr, "step %ld/%ld  loss %.4f\n", step, steps, result.loss);
    if (++batch < data->n_batches) continue;
    batch = 0;
    order_epoch(data, ++epoch);
  }
  return TFM_OK;
}

int main(int argc, char **argv) {
  if (argc < 3) fail("usage", "train DATA STEPS [FOLDER]");
  Data data = read_data(argv[1]);
  const tfm_trainer_options options = {.struct_size = sizeof options, .seed = SEED};
  dates_trainer *trainer = NULL;
  dates_model *model = NULL;
  tfm_error error;
  tfm_status status = dates_trainer_new(NULL, &options, &trainer, &error);
  if (!status) status = train(trainer, &data, atol(argv[2]), &error);
  if (!status && argc > 3) status = dates_trainer_save(trainer, argv[3], NULL, 0, &error);
  if (!status) status = dates_trainer_model(trainer, &model, &error);
  dates_trainer_free(trainer);
  if (!status) status = translate_lines(model, &error);
  if (status) fprintf(stderr, "train: %s\n", error.message);
  dates_close(model);
  return status;
}
