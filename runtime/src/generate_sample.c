/* Sampling: what may be drawn, and the draw.
 *
 * The generator is PCG-XSH-RR 64/32: state = state * 6364136223846793005 + increment; from the old state x the output
 * is (x >> 18 ^ x) >> 27, 32 bits of it, rotated right by x >> 59. Stream number i has the increment 2 i + 1; it starts
 * from state 0 with a step, the seed added, a step. A draw takes two outputs, the first as the upper half; the upper 53
 * bits make a number u in [0, 1), and the token at which the running sum of the probabilities first exceeds u is
 * taken. */
#include <math.h>

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

static float largest(const float *scores, int64_t vocab) {
  float most = scores[0];
  for (int64_t i = 1; i < vocab; i++) most = scores[i] > most ? scores[i] : most;
  return most;
}

static int64_t fill_heap(Generation *g, const float *scores) {
  int64_t n = 0;
  for (int64_t i = 0; i < g->vocab; i++)
    if (scores[i] > -INFINITY) g->heap[n++] = (HeapEntry){(double)scores[i], i};
  heap_order(g->heap, n);
  return n;
}

static void keep_top_k(Generation *g, float *scores) {
  int64_t n = fill_heap(g, scores);
  if (n <= g->options.top_k) return;
  for (int64_t taken = 1; taken < g->options.top_k; taken++) heap_pop(g->heap, n--);
  float least = (float)g->heap[0].key;
  for (int64_t i = 0; i < g->vocab; i++)
    if (scores[i] < least) scores[i] = -INFINITY;
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
  const double most = (double)largest(scores, g->vocab); /* taken away first: a low temperature must not overflow */
  for (int64_t i = 0; i < g->vocab && o->temperature != 1; i++)
    scores[i] = (float)(((double)scores[i] - most) / o->temperature);
  if (o->top_k) keep_top_k(g, scores);
  if (o->top_p < 1) keep_top_p(g, scores);
}

// ---- the draw ----

void sample_softmax(const float *scores, int64_t vocab, float *probabilities) {
  const double most = (double)largest(scores, vocab);
  double total = 0;
  for (int64_t i = 0; i < vocab; i++) total += exp((double)scores[i] - most);
  for (int64_t i = 0; i < vocab; i++) probabilities[i] = (float)(exp((double)scores[i] - most) / total);
}

int64_t sample_draw(const float *scores, int64_t vocab, Stream *stream) {
  const double most = (double)largest(scores, vocab);
  double total = 0, sum = 0;
  for (int64_t i = 0; i < vocab; i++) total += exp((double)scores[i] - most);
  const double at = stream_uniform(stream) * total;
  int64_t last = 0;
  for (int64_t i = 0; i < vocab && sum <= at; i++) {
    double weight = exp((double)scores[i] - most);
    if (weight > 0) last = i;
    sum += weight;
  }
  return last;
}
