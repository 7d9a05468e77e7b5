/* Results that mix the items of a batch, where a step has several parts.
 *
 * In: parts of a step. Out: results of the whole batch, and what flows back to each part. First every part gives its
 * values of the cut: such of one item each are joined along the axis of the items, over the parts in their order and
 * over ranks; others are added up in double, in the order of all sums (step.c). Then the mixture runs once, on every
 * rank alike. When parts run again, dropout has the same masks, because those are a function of the place alone.
 * Refused: parts that differ in a size which the mixture depends on. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "train/trainer_parts.h"

typedef struct Room { /* memory that grows */
  char *memory;
  int64_t bytes;
} Room;

typedef struct Piece { /* a value of the cut in a part */
  int64_t at;          /* in `staged` */
  int64_t length, before; /* along the axis of the items; before it, in the whole batch */
  int64_t dims[TFM_MAX_RANK];
} Piece;

typedef struct Whole { /* a value of the cut of all parts */
  tfm_value value, slice; /* slice: what flows back to the part that was aimed at */
  int64_t dims[TFM_MAX_RANK];
  int64_t at, cotangent; /* in `values`; in `cotangents` */
  int64_t before;        /* along the axis: what other ranks gave before */
} Whole;

struct Joined {
  const tfm_train_mixture *mixture;
  Room own, pieces, staged, values, cotangents, slices, gradients, sums, sizes;
  Whole *wholes;
  int64_t n_parts, used; /* used: bytes of `staged` */
};

// ---- memory ----

static tfm_status room_grow(tfm_trainer *t, Room *room, int64_t bytes, bool keeps, tfm_error *error) {
  if (bytes <= room->bytes) return TFM_OK;
  int64_t more = greatest_of(bytes, keeps ? 2 * room->bytes : 0);
  char *memory = allocate_large(&t->allocator, &more);
  if (!memory)
    return tfm_refuse(error, TFM_E_NOMEM, "no memory for %lld bytes of what parts of a step give", (long long)bytes);
  if (keeps && room->bytes) memcpy(memory, room->memory, (size_t)room->bytes);
  release(&t->allocator, room->memory, (size_t)room->bytes);
  *room = (Room){memory, more};
  return TFM_OK;
}

static void give_back(tfm_trainer *t, Room *room) { release(&t->allocator, room->memory, (size_t)room->bytes); }

static void free_joined(tfm_trainer *t) {
  Joined *j = t->joined;
  if (!j) return;
  Room *rooms[] = {&j->pieces, &j->staged, &j->values, &j->cotangents, &j->slices, &j->gradients, &j->sums, &j->sizes};
  for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) give_back(t, rooms[i]);
  Room own = j->own;
  give_back(t, &own);
  t->joined = NULL;
}

static uint32_t most_cuts(const tfm_trainer *t) {
  const uint32_t n = t->training->step.mixture.n_cuts, more = t->training->evaluation.mixture.n_cuts;
  return n > more ? n : more;
}

static tfm_status make_joined(tfm_trainer *t, tfm_error *error) {
  Room own = {0};
  if (t->joined) return TFM_OK;
  const tfm_status status =
      room_grow(t, &own, (int64_t)(sizeof(Joined) + most_cuts(t) * sizeof(Whole)), false, error);
  if (status) return status;
  memset(own.memory, 0, (size_t)own.bytes);
  t->joined = (Joined *)(void *)own.memory;
  t->joined->own = own;
  t->joined->wholes = (Whole *)(void *)(t->joined + 1);
  return TFM_OK;
}

static Piece *piece_of(const Joined *j, int64_t part, uint32_t cut) {
  return (Piece *)(void *)j->pieces.memory + part * j->mixture->n_cuts + cut;
}

static int64_t product(const int64_t *dims, int32_t from, int32_t to) {
  int64_t n = 1;
  for (int32_t i = from; i < to; i++) n *= dims[i];
  return n;
}

static int64_t aligned(int64_t bytes) { return round_up(greatest_of(bytes, 1), ALIGNMENT); }

// ---- forwards: what each part gives ----

/* The run-time sizes of the first part; for the mixture, with the number of all items. */
static int64_t *sizes_of(const Joined *j) { return (int64_t *)(void *)j->sizes.memory; }

static const char *name_of_size(const Run *run, uint32_t size) {
  const tfm_program *program = run->context ? run->context->program : NULL;
  return program && program->symbols && program->symbols[size] ? program->symbols[size] : "";
}

static tfm_status check_sizes(const tfm_trainer *t, const Run *run, tfm_error *error) {
  const Joined *j = t->joined;
  const int64_t *first = sizes_of(j);
  for (uint32_t i = 0; i < t->training->n_sizes && i < 64; i++) {
    if (!(j->mixture->sizes >> i & 1) || first[i] == t->sizes[i]) continue;
    return tfm_fail(error, TFM_E_INPUT, TFM_REASON_SHAPE, NULL,
                    "the items of a step are mixed, so all its parts need the same size %s: it is %lld, and %lld in "
                    "the first part; pad their inputs alike",
                    name_of_size(run, i), (long long)t->sizes[i], (long long)first[i]);
  }
  return TFM_OK;
}

static tfm_status place_values(tfm_trainer *t, const Run *run, tfm_error *error) {
  Joined *j = t->joined;
  for (uint32_t k = 0; k < j->mixture->n_cuts; k++) {
    const tfm_value *value = &t->results[k];
    const uint32_t axis = j->mixture->cuts[k].axis;
    Piece *piece = piece_of(j, run->part, k);
    *piece = (Piece){.at = j->used};
    memcpy(piece->dims, value->dims, (size_t)value->rank * sizeof *piece->dims);
    if (axis != TFM_NONE) piece->length = piece->dims[axis];
    j->wholes[k].value = (tfm_value){.dtype = value->dtype, .rank = value->rank, .dims = j->wholes[k].dims};
    j->used += aligned(product(piece->dims, 0, value->rank) * dtype_size((uint8_t)value->dtype));
  }
  const tfm_status status = room_grow(t, &j->staged, j->used, true, error);
  for (uint32_t k = 0; k < j->mixture->n_cuts && !status; k++)
    t->results[k].data = j->staged.memory + piece_of(j, run->part, k)->at;
  return status;
}

static tfm_status run_vectors(tfm_trainer *t, Run *run, int64_t *items, tfm_error *error) {
  Joined *j = t->joined;
  tfm_status status = run_bind(run, error);
  if (status) return status;
  if (!run->part) memcpy(sizes_of(j), t->sizes, t->training->n_sizes * sizeof *t->sizes);
  status = check_sizes(t, run, error);
  if (!status) status = place_values(t, run, error);
  if (!status) status = run_bound(run, error);
  run->first_item += run->items;
  *items += run->items;
  return status;
}

static tfm_status run_all_vectors(tfm_trainer *t, const JoinedRequest *request, int64_t *items, tfm_error *error) {
  Joined *j = t->joined;
  Run run = {.t = t,
             .graph = &j->mixture->vectors,
             .context = request->vectors,
             .parts = request->parts,
             .first_item = request->first_item};
  *items = 0;
  j->used = 0;
  j->n_parts = request->parts->n;
  tfm_status status = room_grow(t, &j->pieces, j->n_parts * j->mixture->n_cuts * (int64_t)sizeof(Piece), false, error);
  const int64_t sizes = (int64_t)(t->training->n_sizes + 1) * (int64_t)sizeof(int64_t);
  if (!status) status = room_grow(t, &j->sizes, sizes, false, error);
  for (run.part = 0; run.part < j->n_parts && !status; run.part++) {
    status = run_vectors(t, &run, items, error);
    if (status) return step_explain(t, status, run.part, error);
  }
  return status;
}

// ---- over ranks ----

/* n numbers, which become their sums over all ranks. They and room for as many more lie in `sums`. */
static double *cut_sums(const Joined *j) { return (double *)(void *)j->sums.memory; }

static tfm_status make_numbers(tfm_trainer *t, int64_t n, tfm_error *error) {
  const int64_t bytes = 2 * greatest_of(n, 1) * (int64_t)sizeof(double);
  const tfm_status status = room_grow(t, &t->joined->sums, bytes, false, error);
  if (!status) memset(cut_sums(t->joined), 0, (size_t)n * sizeof(double));
  return status;
}

static tfm_status sum_numbers(tfm_trainer *t, int64_t n, tfm_error *error) {
  double *numbers = cut_sums(t->joined);
  return sum_ranks(t, numbers, numbers + n, n, true, error);
}

/* Whether a condition holds on all ranks. */
static tfm_status all_ranks_agree(tfm_trainer *t, bool agrees, const char *why, tfm_error *error) {
  tfm_status status = make_numbers(t, 1, error);
  if (status) return status;
  *cut_sums(t->joined) = !agrees;
  status = sum_numbers(t, 1, error);
  if (!status && *cut_sums(t->joined) != 0) return tfm_refuse(error, TFM_E_INPUT, "%s", why);
  return status;
}

/* How long each value is on each rank: where the own one begins, and how long all are together. */
static tfm_status find_lengths(tfm_trainer *t, int64_t *items, tfm_error *error) {
  Joined *j = t->joined;
  const int64_t ranks = t->ranks.ranks, n = (j->mixture->n_cuts + 1) * ranks;
  tfm_status status = make_numbers(t, n, error);
  if (status) return status;
  double *numbers = cut_sums(j);
  for (uint32_t k = 0; k < j->mixture->n_cuts; k++)
    for (int64_t i = 0; i < j->n_parts; i++) numbers[k * ranks + t->ranks.rank] += (double)piece_of(j, i, k)->length;
  numbers[j->mixture->n_cuts * ranks + t->ranks.rank] = (double)*items;
  status = sum_numbers(t, n, error);
  *items = 0;
  for (int64_t r = 0; r < ranks; r++) *items += (int64_t)numbers[j->mixture->n_cuts * ranks + r];
  for (uint32_t k = 0; k < j->mixture->n_cuts; k++) {
    Whole *whole = &j->wholes[k];
    const uint32_t axis = j->mixture->cuts[k].axis;
    memcpy(whole->dims, piece_of(j, 0, k)->dims, sizeof whole->dims);
    if (axis != TFM_NONE) whole->dims[axis] = 0;
    whole->before = 0;
    for (int64_t r = 0; r < ranks && axis != TFM_NONE; r++) {
      if (r == t->ranks.rank) whole->before = whole->dims[axis];
      whole->dims[axis] += (int64_t)numbers[k * ranks + r];
    }
  }
  return status;
}

/* A rank whose parts have another size than those of the first is found by all. */
static tfm_status compare_sizes(tfm_trainer *t, tfm_error *error) {
  const Joined *j = t->joined;
  const int64_t n = t->training->n_sizes, ranks = t->ranks.ranks;
  if (ranks < 2) return TFM_OK;
  tfm_status status = make_numbers(t, n, error);
  if (status) return status;
  for (int64_t i = 0; i < n; i++) cut_sums(j)[i] = (double)sizes_of(j)[i];
  status = sum_numbers(t, n, error);
  if (status) return status;
  bool agrees = true;
  for (int64_t i = 0; i < n && i < 64; i++)
    if (j->mixture->sizes >> i & 1) agrees &= cut_sums(j)[i] == (double)(sizes_of(j)[i] * ranks);
  return all_ranks_agree(t, agrees,
                         "the items of a step are mixed, and its parts have other sizes on one rank than on another: "
                         "pad their inputs alike",
                         error);
}

// ---- joining ----

static double element_at(const char *data, uint8_t dtype, int64_t i) {
  if (dtype == TFM_F32) return (double)((const float *)(const void *)data)[i];
  return dtype == TFM_I32 ? (double)((const int32_t *)(const void *)data)[i] : (double)((const uint8_t *)data)[i];
}

static void set_number(char *data, uint8_t dtype, int64_t i, double number) {
  if (dtype == TFM_F32) ((float *)(void *)data)[i] = (float)number;
  if (dtype == TFM_I32) ((int32_t *)(void *)data)[i] = (int32_t)number;
  if (dtype == TFM_BOOL) ((uint8_t *)data)[i] = number != 0;
}

/* The elements that lie together in a piece, and in the whole; how many such runs there are. */
typedef struct Runs {
  int64_t n, piece, whole, before;
} Runs;

static Runs runs_of(const Joined *j, const Piece *piece, uint32_t cut) {
  const Whole *whole = &j->wholes[cut];
  const int32_t axis = (int32_t)j->mixture->cuts[cut].axis;
  const int64_t inner = product(whole->dims, axis + 1, whole->value.rank);
  return (Runs){product(whole->dims, 0, axis), piece->length * inner, whole->dims[axis] * inner,
                (whole->before + piece->before) * inner};
}

/* To their place among the numbers of all ranks, of which those of other ranks are 0. Adding 0 makes -0 0, with one
 * rank too. */
static void join_pieces(const Joined *j, uint32_t cut) {
  const uint8_t dtype = (uint8_t)j->wholes[cut].value.dtype;
  double *numbers = cut_sums(j);
  for (int64_t i = 0; i < j->n_parts; i++) {
    const Piece *piece = piece_of(j, i, cut);
    const Runs runs = runs_of(j, piece, cut);
    const char *data = j->staged.memory + piece->at;
    for (int64_t r = 0; r < runs.n; r++)
      for (int64_t e = 0; e < runs.piece; e++)
        numbers[r * runs.whole + runs.before + e] += element_at(data, dtype, r * runs.piece + e);
  }
}

/* As all sums over parts: the parts of a shard in a chain, shards as a tree of neighbours. */
static tfm_status add_up(tfm_trainer *t, uint32_t cut, int64_t n, tfm_error *error) {
  const Joined *j = t->joined;
  const uint8_t dtype = (uint8_t)j->wholes[cut].value.dtype;
  const int64_t shards = t->ranks.shards, each = j->n_parts / shards;
  const tfm_status status = make_numbers(t, n * shards, error);
  if (status) return status;
  double *numbers = cut_sums(j);
  for (int64_t i = 0; i < j->n_parts; i++)
    for (int64_t e = 0; e < n; e++)
      numbers[i / each * n + e] += element_at(j->staged.memory + piece_of(j, i, cut)->at, dtype, e);
  for (int64_t step = 1; step < shards; step *= 2)
    for (int64_t i = 0; i < shards; i += 2 * step)
      for (int64_t e = 0; e < n; e++) numbers[i * n + e] += numbers[(i + step) * n + e];
  return TFM_OK;
}

static tfm_status join_value(tfm_trainer *t, uint32_t cut, tfm_error *error) {
  Joined *j = t->joined;
  Whole *whole = &j->wholes[cut];
  const int64_t n = product(whole->dims, 0, whole->value.rank);
  const bool is_sum = j->mixture->cuts[cut].axis == TFM_NONE;
  tfm_status status = is_sum ? add_up(t, cut, n, error) : make_numbers(t, n, error);
  if (!status && !is_sum) join_pieces(j, cut);
  if (!status) status = sum_numbers(t, n, error);
  for (int64_t e = 0; e < n && !status; e++)
    set_number(j->values.memory + whole->at, (uint8_t)whole->value.dtype, e, cut_sums(j)[e]);
  return status;
}

static tfm_status join_all(tfm_trainer *t, tfm_error *error) {
  Joined *j = t->joined;
  int64_t bytes = 0, cotangents = 0;
  for (uint32_t k = 0; k < j->mixture->n_cuts; k++) {
    Whole *whole = &j->wholes[k];
    const int64_t n = product(whole->dims, 0, whole->value.rank);
    whole->at = bytes;
    whole->cotangent = cotangents;
    bytes += aligned(n * dtype_size((uint8_t)whole->value.dtype));
    if (j->mixture->cuts[k].cotangent != TFM_NONE) cotangents += aligned(n * (int64_t)sizeof(float));
    int64_t before = 0;
    for (int64_t i = 0; i < j->n_parts; i++) {
      piece_of(j, i, k)->before = before;
      before += piece_of(j, i, k)->length;
    }
  }
  tfm_status status = room_grow(t, &j->values, bytes, false, error);
  if (!status) status = room_grow(t, &j->cotangents, cotangents, false, error);
  if (!status) status = room_grow(t, &j->slices, cotangents, false, error);
  for (uint32_t k = 0; k < j->mixture->n_cuts && !status; k++) {
    j->wholes[k].value.data = j->values.memory + j->wholes[k].at;
    status = join_value(t, k, error);
  }
  return status;
}

// ---- the mixture ----

/* Gradients of the mixture's own lie one behind the other, in the order of the weights. */
static int64_t gradients_bytes(const tfm_trainer *t, const tfm_train_mixture *mixture) {
  int64_t bytes = 0;
  for (uint32_t i = 0; i < t->training->n_parameters; i++)
    if (mixture->gradients[i] != TFM_NONE)
      bytes += aligned(t->training->parameters[i].elements * (int64_t)sizeof(float));
  return bytes;
}

static void aim_mixture(tfm_trainer *t, uint32_t n_results) {
  const Joined *j = t->joined;
  int64_t at = 0;
  for (uint32_t k = 0; k < n_results; k++) t->results[k].data = &t->outputs[k];
  for (uint32_t k = 0; k < j->mixture->n_cuts; k++) {
    const uint32_t output = j->mixture->cuts[k].cotangent;
    if (output != TFM_NONE) t->results[output].data = j->cotangents.memory + j->wholes[k].cotangent;
  }
  for (uint32_t i = 0; i < t->training->n_parameters; i++) {
    if (j->mixture->gradients[i] == TFM_NONE) continue;
    t->results[j->mixture->gradients[i]].data = j->gradients.memory + at;
    at += aligned(t->training->parameters[i].elements * (int64_t)sizeof(float));
  }
}

static tfm_status run_mixture(tfm_trainer *t, const JoinedRequest *request, int64_t items, tfm_error *error) {
  Joined *j = t->joined;
  int64_t *sizes = sizes_of(j);
  Run run = {.t = t,
             .graph = &j->mixture->whole,
             .context = request->whole,
             .parts = request->parts,
             .first_item = t->ranks.ranks > 1 ? 0 : request->first_item,
             .sizes = sizes};
  sizes[t->training->batch] = items;
  tfm_status status = room_grow(t, &j->gradients, gradients_bytes(t, j->mixture), false, error);
  if (!status) status = run_bind(&run, error);
  if (status) return status;
  if (run.context) {
    run.context->run.goes_on = run.context->run.waits = false;
    run.context->run.rests = NULL;
  }
  aim_mixture(t, request->objective->n_results);
  return run_bound(&run, error);
}

static tfm_status compute_joined(tfm_trainer *t, const JoinedRequest *request, double *results, tfm_error *error) {
  int64_t items;
  tfm_status status = make_joined(t, error);
  if (status) return status;
  t->joined->mixture = &request->objective->mixture;
  status = run_all_vectors(t, request, &items, error);
  if (!status) status = compare_sizes(t, error);
  if (!status) status = find_lengths(t, &items, error);
  if (!status) status = join_all(t, error);
  if (!status) status = run_mixture(t, request, items, error);
  for (uint32_t k = 0; k < request->objective->n_results && !status; k++) results[k] = (double)t->outputs[k];
  return status;
}

// ---- backwards ----

static const tfm_value *joined_value(const Joined *j, const tfm_train_input *input) {
  const Whole *whole = &j->wholes[input->number];
  return input->source == TFM_FROM_CUT ? &whole->value : &whole->slice;
}

/* What flows back to a part: its items of a cotangent, or all of one that is of a sum. */
static void cut_slice(Joined *j, int64_t part, uint32_t cut) {
  Whole *whole = &j->wholes[cut];
  const Piece *piece = piece_of(j, part, cut);
  const float *from = (const float *)(const void *)(j->cotangents.memory + whole->cotangent);
  whole->slice = (tfm_value){.data = (void *)from, .rank = whole->value.rank, .dims = piece->dims};
  if (j->mixture->cuts[cut].axis == TFM_NONE) return;
  const Runs runs = runs_of(j, piece, cut);
  float *to = (float *)(void *)(j->slices.memory + whole->cotangent);
  for (int64_t r = 0; r < runs.n; r++)
    memcpy(to + r * runs.piece, from + r * runs.whole + runs.before, (size_t)runs.piece * sizeof *to);
  whole->slice.data = to;
}

/* The values of the cut are computed once more, to where they are. */
static void aim_back(tfm_trainer *t, int64_t part) {
  Joined *j = t->joined;
  for (uint32_t k = 0; k < j->mixture->n_cuts; k++) {
    t->results[k] = (tfm_value){.data = j->staged.memory + piece_of(j, part, k)->at};
    if (j->mixture->cuts[k].cotangent != TFM_NONE) cut_slice(j, part, k);
  }
}

static void add_mixed(tfm_trainer *t, float *gradients) {
  const Joined *j = t->joined;
  int64_t at = 0;
  for (uint32_t i = 0; i < t->training->n_parameters; i++) {
    const tfm_parameter *p = &t->training->parameters[i];
    if (j->mixture->gradients[i] == TFM_NONE) continue;
    const float *from = (const float *)(const void *)(j->gradients.memory + at);
    for (int64_t k = 0; k < p->elements && p->gradient != TFM_NONE; k++) gradients[p->offset + (uint64_t)k] += from[k];
    at += aligned(p->elements * (int64_t)sizeof(float));
  }
}

const Mixer *tfm_mixer_of_items(void) {
  static const Mixer mixer = {compute_joined, joined_value, aim_back, add_mixed, free_joined};
  return &mixer;
}
