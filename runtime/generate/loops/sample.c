/* Sampling: which tokens may be drawn, and the draw.
 *
 * In: the scores of a row, of which at least one is above -inf. Out: a token with the log of its probability, or the
 * probabilities of all. Nothing is refused or allocated.
 *
 * The generator is PCG-XSH-RR 64/32: state = state * 6364136223846793005 + increment; from the old state x the output
 * is (x >> 18 ^ x) >> 27, 32 bits of it, rotated right by x >> 59. Stream number i has the increment 2 i + 1; it
 * starts from state 0 with a step, the seed added, a step. A draw takes two outputs, the first as the upper half; the
 * upper 53 bits make a number u in [0, 1). The token at which the running sum of the probabilities first exceeds u is
 * taken. Each row has a stream of its own, so its tokens do not depend on which other rows there are. */
#include <math.h>
#include <string.h>

#include "decode/loops/logit_row.h"
#include "generate/loops/choose.h"
#include "tfm/abi/double_functions.h"

// ---- random numbers ----

/* The next 32 bits. */
static uint32_t stream_next(tfm_stream *stream) {
  uint64_t x = stream->state;
  stream->state = x * UINT64_C(6364136223846793005) + stream->increment;
  uint32_t shifted = (uint32_t)((x >> 18 ^ x) >> 27), rotation = (uint32_t)(x >> 59);
  return shifted >> rotation | shifted << (-rotation & 31);
}

tfm_stream tfm_stream_begin(uint64_t seed, uint64_t number) {
  tfm_stream stream = {0, number << 1 | 1};
  stream_next(&stream);
  stream.state += seed;
  stream_next(&stream);
  return stream;
}

/* 53 bits: every double in [0, 1) with that spacing is equally likely. */
static double stream_uniform(tfm_stream *stream) {
  uint64_t high = stream_next(stream);
  return (double)((high << 32 | stream_next(stream)) >> 11) * 0x1p-53;
}

// ---- what may be drawn ----

/* In double, relative to the largest score, so that a low temperature gives -inf and never overflows to +inf. */
static float tempered(float score, float most, double temperature) {
  return (float)(((double)score - (double)most) / temperature);
}

/* Makes the row a list: the tokens with scores of at least `least`, in their order. */
static void keep_from(Chooser *c, RowScores *row, float least) {
  for (int64_t block = 0; block < row->n_blocks; block++) {
    if (row->bounds[block] < least) continue;
    const int64_t first = block * ROW_BLOCK, end = first + ROW_BLOCK < c->vocab ? first + ROW_BLOCK : c->vocab;
    for (int64_t i = first; i < end; i++)
      if (row->scores[i] >= least) c->changed[row->n_changed++] = (ChangedScore){i, row->scores[i]};
  }
  row->n_blocks = 0;
}

/* The k-th largest score. The heap holds the k largest so far, the least of them as its root. */
static float find_kth(Chooser *c, const RowScores *row, int64_t k) {
  HeapEntry *heap = c->heap;
  for (int64_t i = 0; i < k; i++) heap[i] = (HeapEntry){-(double)row->scores[i], i};
  heap_order(heap, k);
  float least = (float)-heap[0].key;
  for (int64_t block = k / ROW_BLOCK; block < row->n_blocks; block++) {
    if (row->bounds[block] <= least) continue;
    const int64_t first = block * ROW_BLOCK, end = first + ROW_BLOCK < c->vocab ? first + ROW_BLOCK : c->vocab;
    for (int64_t i = first > k ? first : k; i < end; i++) {
      if (!(row->scores[i] > least)) continue;
      heap[0] = (HeapEntry){-(double)row->scores[i], i};
      heap_sink(heap, k, 0);
      least = (float)-heap[0].key;
    }
  }
  return least;
}

/* The number of a float in the order of floats, so that a search can halve intervals of them; +0 and -0 are both 0. */
static int64_t number_of(float x) {
  int32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits < 0 ? (int64_t)INT32_MIN - bits : bits;
}

static float float_of(int64_t number) {
  const int32_t bits = (int32_t)(number < 0 ? INT32_MIN - number : number);
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* The lowest score that the temperature makes equal to `score`: a high temperature rounds neighbours to the same
 * number, and transformers, which applies it first, then keeps all of them. A binary search over all floats takes 32
 * steps. */
static float lowest_equal(float score, float most, double temperature) {
  const float wanted = tempered(score, most, temperature);
  int64_t below = number_of(-INFINITY) - 1, equal = number_of(score);
  while (equal - below > 1) {
    const int64_t middle = below + (equal - below) / 2;
    if (tempered(float_of(middle), most, temperature) >= wanted) equal = middle;
    else below = middle;
  }
  return float_of(equal);
}

/* Keeps the k largest, and all that equal the k-th, also if only the temperature makes them equal. */
static void keep_top_k(Chooser *c, RowScores *row, float most) {
  const float kth = find_kth(c, row, c->options->top_k);
  keep_from(c, row, c->options->temperature == 1 ? kth : lowest_equal(kth, most, c->options->temperature));
}

/* exp of the scores of a list, relative to the largest, in the place of its first scores; their sum. */
static double weigh_list(const Chooser *c, const RowScores *row) {
  float most = -INFINITY;
  for (int64_t i = 0; i < row->n_changed; i++) {
    row->scores[i] = c->changed[i].score;
    most = row->scores[i] > most ? row->scores[i] : most;
  }
  return row_exp(row->scores, row->n_changed, most, row->scores);
}

/* Nucleus sampling (Holtzman et al., 2020). From the largest down, a token stays while it and all smaller ones have
 * together more than 1 - top_p; of equal ones the higher token counts as larger. `total` is the sum of all weights,
 * including those of tokens that are not in the list. */
static void keep_top_p(Chooser *c, RowScores *row, double total) {
  int64_t n = 0, kept = 0;
  for (; n < row->n_changed; n++) c->heap[n] = (HeapEntry){(double)c->changed[n].score, n};
  heap_order(c->heap, n);
  double rest = total;
  HeapEntry last = {0};
  for (bool is_first = true; n && (is_first || rest > (1 - c->options->top_p) * total); is_first = false) {
    last = heap_pop(c->heap, n--);
    rest -= (double)row->scores[last.id];
  }
  for (int64_t i = 0; i < row->n_changed; i++)
    if (!heap_is_before(last, (HeapEntry){(double)c->changed[i].score, i})) c->changed[kept++] = c->changed[i];
  row->n_changed = kept;
}

/* Keeps the tokens that are at least min_p times as likely as the likeliest, which no other restriction has taken. */
static void keep_min_p(Chooser *c, RowScores *row, float most) {
  const float least = (float)((double)most + double_log(c->options->min_p));
  if (row->n_blocks) {
    keep_from(c, row, least);
    return;
  }
  int64_t kept = 0;
  for (int64_t i = 0; i < row->n_changed; i++)
    if (c->changed[i].score >= least) c->changed[kept++] = c->changed[i];
  row->n_changed = kept;
}

/* Makes a row of all tokens a short list before it is sorted: tokens below (1 - top_p) * total / vocab have together
 * no more than 1 - top_p, so none of them can stay. The margin of 0.001 covers rounding. */
static double shorten(Chooser *c, RowScores *row, float most) {
  const double total = row_exp_sum(row->scores, c->vocab, most);
  keep_from(c, row, most + (float)double_log((1 - c->options->top_p) * total / (double)c->vocab) - 0.001f);
  weigh_list(c, row);
  return total;
}

/* Temperature, top_k, top_p, min_p, in the order of transformers. top_k is applied first here, which gives the same
 * tokens and leaves fewer to scale. */
void sample_restrict(Chooser *c, RowScores *row) {
  const tfm_generate_options *o = c->options;
  if (!row->n_blocks) return; /* one token is forced */
  row_settle(c, row);
  float most = row_max(row->bounds, row->n_blocks); /* taken away first: a low temperature must not overflow */
  if (o->top_k && o->top_k < c->vocab) keep_top_k(c, row, most);
  if (o->temperature != 1) {
    for (int64_t i = 0; i < row->n_changed; i++)
      c->changed[i].score = tempered(c->changed[i].score, most, o->temperature);
    for (int64_t i = 0; row->n_blocks && i < c->vocab; i++)
      row->scores[i] = tempered(row->scores[i], most, o->temperature);
    for (int64_t i = 0; i < row->n_blocks; i++) row->bounds[i] = tempered(row->bounds[i], most, o->temperature);
    most = 0;
  }
  if (o->top_p < 1) keep_top_p(c, row, row->n_blocks ? shorten(c, row, most) : weigh_list(c, row));
  if (o->min_p > 0) keep_min_p(c, row, most);
}

// ---- the draw ----

/* Overwrites the scores with the weights exp(score - largest), of all tokens or of those of the list; returns their
 * sum. */
static double weigh(const Chooser *c, const RowScores *row) {
  if (!row->n_blocks) return weigh_list(c, row);
  return row_exp(row->scores, c->vocab, row_max(row->bounds, row->n_blocks), row->scores);
}

void sample_probabilities(const Chooser *c, const RowScores *row, float *probabilities) {
  const double total = weigh(c, row);
  for (int64_t i = 0; i < c->vocab; i++) probabilities[i] = row->n_blocks ? (float)((double)row->scores[i] / total) : 0;
  for (int64_t i = 0; i < row->n_changed; i++)
    probabilities[c->changed[i].token] = (float)((double)row->scores[i] / total);
}

/* Rounding may leave the sum of all weights below `at`; then the last token with a weight is taken. */
int64_t sample_draw(const Chooser *c, const RowScores *row, tfm_stream *stream, float *score) {
  const double total = weigh(c, row), at = stream_uniform(stream) * total;
  const int64_t n = row->n_blocks ? c->vocab : row->n_changed;
  double sum = 0;
  int64_t last = 0;
  for (int64_t i = 0; i < n && sum <= at; i++) {
    if (row->scores[i] > 0) last = i;
    sum += (double)row->scores[i];
  }
  *score = (float)double_log((double)row->scores[last] / total);
  return row->n_blocks ? last : c->changed[last].token;
}
