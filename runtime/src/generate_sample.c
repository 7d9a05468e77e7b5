/* Sampling: what may be drawn, and the draw.
 *
 * The generator is PCG-XSH-RR 64/32: state = state * 6364136223846793005 + increment; from the old state x the output
 * is (x >> 18 ^ x) >> 27, 32 bits of it, rotated right by x >> 59. Stream number i has the increment 2 i + 1; it starts
 * from state 0 with a step, the seed added, a step. A draw takes two outputs, the first as the upper half; the upper 53
 * bits make a number u in [0, 1), and the token at which the running sum of the probabilities first exceeds u is
 * taken. */
#include <math.h>

#include "generate_row.h"
#include "generation.h"

// ---- numbers ----

static uint32_t stream_next(Stream *stream) {
  uint64_t x = stream->state;
  stream->state = x * UINT64_C(6364136223846793005) + stream->increment;
  uint32_t shifted = (uint32_t)((x >> 18 ^ x) >> 27), rotation = (uint32_t)(x >> 59);
  return shifted >> rotation | shifted << (-rotation & 31);
}

Stream stream_new(uint64_t seed, uint64_t number) {
  Stream stream = {0, number << 1 | 1};
  stream_next(&stream);
  stream.state += seed;
  stream_next(&stream);
  return stream;
}

static double stream_uniform(Stream *stream) {
  uint64_t high = stream_next(stream);
  return (double)((high << 32 | stream_next(stream)) >> 11) * 0x1p-53;
}

// ---- what may be drawn ----

static int64_t fill_heap(Generation *g, const float *scores) {
  int64_t n = 0;
  for (int64_t i = 0; i < g->vocab; i++)
    if (scores[i] > -INFINITY) g->heap[n++] = (HeapEntry){(double)scores[i], i};
  heap_order(g->heap, n);
  return n;
}

/* The heap holds the k largest so far, the least of them as its root. */
static void keep_top_k(Generation *g, float *scores) {
  const int64_t k = g->options.top_k;
  HeapEntry *heap = g->heap;
  if (k >= g->vocab) return;
  for (int64_t i = 0; i < k; i++) heap[i] = (HeapEntry){-(double)scores[i], i};
  heap_order(heap, k);
  for (int64_t i = k; i < g->vocab; i++) {
    if (-(double)scores[i] >= heap[0].key) continue;
    heap[0] = (HeapEntry){-(double)scores[i], i};
    heap_sink(heap, k, 0);
  }
  const float least = (float)-heap[0].key;
  for (int64_t i = 0; i < g->vocab; i++) scores[i] = scores[i] < least ? -INFINITY : scores[i];
}

/* From the largest down: a token stays while it and all smaller ones have together more than 1 - top_p. */
static void keep_top_p(Generation *g, float *scores) {
  int64_t n = fill_heap(g, scores);
  double most = n ? g->heap[0].key : 0, total = 0;
  for (int64_t i = 0; i < n; i++) total += exp(g->heap[i].key - most);
  double rest = total;
  for (bool is_first = true; n && (is_first || rest > (1 - g->options.top_p) * total); is_first = false)
    rest -= exp(heap_pop(g->heap, n--).key - most);
  for (int64_t i = 0; i < n; i++) scores[g->heap[i].id] = -INFINITY;
}

void sample_restrict(Generation *g, float *scores) {
  const tfm_generate_options *o = &g->options;
  const double most = (double)row_max(scores, g->vocab); /* taken away first: a low temperature must not overflow */
  for (int64_t i = 0; i < g->vocab && o->temperature != 1; i++)
    scores[i] = (float)(((double)scores[i] - most) / o->temperature);
  if (o->top_k) keep_top_k(g, scores);
  if (o->top_p < 1) keep_top_p(g, scores);
}

// ---- the draw ----

void sample_softmax(const float *scores, int64_t vocab, float *probabilities) {
  const double total = row_exp(scores, vocab, row_max(scores, vocab), probabilities);
  for (int64_t i = 0; i < vocab; i++) probabilities[i] = (float)((double)probabilities[i] / total);
}

int64_t sample_draw(float *scores, int64_t vocab, Stream *stream) {
  const double at = stream_uniform(stream) * row_exp(scores, vocab, row_max(scores, vocab), scores);
  double sum = 0;
  int64_t last = 0;
  for (int64_t i = 0; i < vocab && sum <= at; i++) {
    if (scores[i] > 0) last = i;
    sum += (double)scores[i];
  }
  return last;
}
