/* Greedy decoding and sampling: one row per item. A row that has ended leaves the batch and costs nothing more.
 *
 * In: processed rows of logits. Out: a token for each, with the log of its probability. Refused: a row all of whose
 * tokens are forbidden.
 *
 * The generator is PCG-XSH-RR 64/32: state = state * 6364136223846793005 + increment; from the old state x the output
 * is (x >> 18 ^ x) >> 27, 32 bits of it, rotated right by x >> 59. Stream number i has the increment 2 i + 1; it
 * starts from state 0 with a step, the seed added, a step. A draw takes two outputs, the first as the upper half; the
 * upper 53 bits make a number u in [0, 1). The token at which the running sum of the probabilities first exceeds u is
 * taken. Each item has a stream of its own, so its tokens do not depend on which other items are in the batch. */
#include <math.h>
#include <string.h>

#include "generate/generation_state.h"
#include "decode/logit_row.h"

// ---- random numbers ----

/* The next 32 bits. */
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

/* 53 bits: every double in [0, 1) with that spacing is equally likely. */
static double stream_uniform(Stream *stream) {
  uint64_t high = stream_next(stream);
  return (double)((high << 32 | stream_next(stream)) >> 11) * 0x1p-53;
}

// ---- what may be drawn ----

/* In double, relative to the largest score, so that a low temperature gives -inf and never overflows to +inf. */
static float tempered(float score, float most, double temperature) {
  return (float)(((double)score - (double)most) / temperature);
}

/* Makes the row a list: the tokens with scores of at least `least`, in their order. */
static void keep_from(Generation *g, RowScores *row, float least) {
  for (int64_t block = 0; block < row->n_blocks; block++) {
    if (row->bounds[block] < least) continue;
    const int64_t first = block * ROW_BLOCK, end = first + ROW_BLOCK < g->vocab ? first + ROW_BLOCK : g->vocab;
    for (int64_t i = first; i < end; i++)
      if (row->scores[i] >= least) g->changed[row->n_changed++] = (ChangedScore){i, row->scores[i]};
  }
  row->n_blocks = 0;
}

/* The k-th largest score. The heap holds the k largest so far, the least of them as its root. */
static float find_kth(Generation *g, const RowScores *row, int64_t k) {
  HeapEntry *heap = g->heap;
  for (int64_t i = 0; i < k; i++) heap[i] = (HeapEntry){-(double)row->scores[i], i};
  heap_order(heap, k);
  float least = (float)-heap[0].key;
  for (int64_t block = k / ROW_BLOCK; block < row->n_blocks; block++) {
    if (row->bounds[block] <= least) continue;
    const int64_t first = block * ROW_BLOCK, end = first + ROW_BLOCK < g->vocab ? first + ROW_BLOCK : g->vocab;
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
static void keep_top_k(Generation *g, RowScores *row, float most) {
  const float kth = find_kth(g, row, g->options.top_k);
  keep_from(g, row, g->options.temperature == 1 ? kth : lowest_equal(kth, most, g->options.temperature));
}

/* exp of the scores of a list, relative to the largest, in the place of its first scores; their sum. */
static double weigh_list(const Generation *g, const RowScores *row) {
  float most = -INFINITY;
  for (int64_t i = 0; i < row->n_changed; i++) {
    row->scores[i] = g->changed[i].score;
    most = row->scores[i] > most ? row->scores[i] : most;
  }
  return row_exp(row->scores, row->n_changed, most, row->scores);
}

/* Nucleus sampling (Holtzman et al., 2020). From the largest down, a token stays while it and all smaller ones have
 * together more than 1 - top_p; of equal ones the higher token counts as larger. `total` is the sum of all weights,
 * including those of tokens that are not in the list. */
static void keep_top_p(Generation *g, RowScores *row, double total) {
  int64_t n = 0, kept = 0;
  for (; n < row->n_changed; n++) g->heap[n] = (HeapEntry){(double)g->changed[n].score, n};
  heap_order(g->heap, n);
  double rest = total;
  HeapEntry last = {0};
  for (bool is_first = true; n && (is_first || rest > (1 - g->options.top_p) * total); is_first = false) {
    last = heap_pop(g->heap, n--);
    rest -= (double)row->scores[last.id];
  }
  for (int64_t i = 0; i < row->n_changed; i++)
    if (!heap_is_before(last, (HeapEntry){(double)g->changed[i].score, i})) g->changed[kept++] = g->changed[i];
  row->n_changed = kept;
}

/* Makes a row of all tokens a short list before it is sorted: tokens below (1 - top_p) * total / vocab have together
 * no more than 1 - top_p, so none of them can stay. The margin of 0.001 covers rounding. */
static double shorten(Generation *g, RowScores *row, float most) {
  const double total = row_exp_sum(row->scores, g->vocab, most);
  keep_from(g, row, most + (float)log((1 - g->options.top_p) * total / (double)g->vocab) - 0.001f);
  weigh_list(g, row);
  return total;
}

/* Temperature, top_k, top_p, in the order of transformers. top_k is applied first here, which gives the same tokens
 * and leaves fewer to scale. */
void sample_restrict(Generation *g, RowScores *row) {
  const tfm_generate_options *o = &g->options;
  if (!row->n_blocks) return; /* one token is forced */
  row_settle(g, row);
  float most = row_max(row->bounds, row->n_blocks); /* taken away first: a low temperature must not overflow */
  if (o->top_k && o->top_k < g->vocab) keep_top_k(g, row, most);
  if (o->temperature != 1) {
    for (int64_t i = 0; i < row->n_changed; i++)
      g->changed[i].score = tempered(g->changed[i].score, most, o->temperature);
    for (int64_t i = 0; row->n_blocks && i < g->vocab; i++)
      row->scores[i] = tempered(row->scores[i], most, o->temperature);
    for (int64_t i = 0; i < row->n_blocks; i++) row->bounds[i] = tempered(row->bounds[i], most, o->temperature);
    most = 0;
  }
  if (o->top_p < 1) keep_top_p(g, row, row->n_blocks ? shorten(g, row, most) : weigh_list(g, row));
}

// ---- the draw ----

/* Overwrites the scores with the weights exp(score - largest), of all tokens or of those of the list; returns their
 * sum. */
static double weigh(const Generation *g, const RowScores *row) {
  if (!row->n_blocks) return weigh_list(g, row);
  return row_exp(row->scores, g->vocab, row_max(row->bounds, row->n_blocks), row->scores);
}

void sample_probabilities(const Generation *g, const RowScores *row, float *probabilities) {
  const double total = weigh(g, row);
  for (int64_t i = 0; i < g->vocab; i++) probabilities[i] = row->n_blocks ? (float)((double)row->scores[i] / total) : 0;
  for (int64_t i = 0; i < row->n_changed; i++)
    probabilities[g->changed[i].token] = (float)((double)row->scores[i] / total);
}

/* Rounding may leave the sum of all weights below `at`; then the last token with a weight is taken. */
int64_t sample_draw(const Generation *g, const RowScores *row, Stream *stream, float *score) {
  const double total = weigh(g, row), at = stream_uniform(stream) * total;
  const int64_t n = row->n_blocks ? g->vocab : row->n_changed;
  double sum = 0;
  int64_t last = 0;
  for (int64_t i = 0; i < n && sum <= at; i++) {
    if (row->scores[i] > 0) last = i;
    sum += (double)row->scores[i];
  }
  *score = (float)log((double)row->scores[last] / total);
  return row->n_blocks ? last : g->changed[last].token;
}

// ---- the loop ----

typedef struct Single {
  TokenRows rows, scores; /* scores: of the tokens, if they are asked for */
  int64_t *lengths;  /* of each item's row */
  Stream *streams;   /* of each item */
  int64_t *running;  /* items, ascending */
  int64_t *parents;  /* their rows in the call before */
  int64_t *chosen;   /* their next tokens */
  float *chosen_scores;
  int64_t n_running;
} Single;

/* The log of the probability of a token among all that are allowed. */
static float log_probability(const Generation *g, RowScores *row, int64_t token) {
  row_settle(g, row);
  const float most = row_max(row->bounds, row->n_blocks);
  return (float)((double)row->scores[token] - (double)most - log(row_exp_sum(row->scores, g->vocab, most)));
}

/* The next token of row `number` of the call, and its score if that is asked for. */
static tfm_status choose(Generation *g, int64_t number, Stream *stream, int64_t *token, float *score) {
  RowScores row;
  tfm_status status = generation_process_row(g, number, &row);
  if (status != TFM_OK) return status;
  *token = row_best(g, &row);
  if (*token == TFM_NO_TOKEN) return generation_refuse_row(g, row.item, g->row_lengths[number]);
  if (g->options.do_sample) {
    sample_restrict(g, &row);
    *token = sample_draw(g, &row, stream, score);
  } else if (g->options.return_token_scores) {
    *score = log_probability(g, &row, *token);
  }
  return TFM_OK;
}

/* Adds a token to a row; false if the row has ended. */
static bool append(Generation *g, Single *s, int64_t item, int64_t token, float score) {
  if (s->scores.tokens) score_row(&s->scores, item)[s->lengths[item]] = score;
  token_row(&s->rows, item)[s->lengths[item]++] = (int32_t)token;
  generation_tell(g, item, (int32_t)token);
  return s->lengths[item] < g->items[item].limit && !generation_is_eos(g, token);
}

/* One call for all rows that are still running. Rows are made longer before their addresses go into the call. */
static tfm_status ask(Generation *g, Single *s) {
  g->n_rows = 0;
  int64_t longest = 0;
  for (int64_t i = 0; i < s->n_running; i++)
    longest = s->lengths[s->running[i]] > longest ? s->lengths[s->running[i]] : longest;
  if (!token_rows_reserve(&s->rows, longest + 1) || !token_rows_reserve(&s->scores, longest + 1))
    return generation_no_memory(g);
  for (int64_t i = 0; i < s->n_running; i++) {
    int64_t item = s->running[i];
    generation_add_row(g, item, s->parents[i], token_row(&s->rows, item), s->lengths[item]);
  }
  tfm_status status = generation_call(g);
  for (int64_t i = 0; i < s->n_running && status == TFM_OK; i++)
    status = choose(g, i, &s->streams[s->running[i]], &s->chosen[i], &s->chosen_scores[i]);
  return status;
}

/* parents[i] is the row of the last call that item i continues, so that a model can continue its caches. */
static tfm_status run(Generation *g, Single *s) {
  while (s->n_running && !g->is_stopped) {
    tfm_status status = ask(g, s);
    if (status != TFM_OK) return status;
    int64_t n = s->n_running;
    s->n_running = 0;
    for (int64_t i = 0; i < n; i++) {
      int64_t item = s->running[i];
      if (!append(g, s, item, s->chosen[i], s->chosen_scores[i])) continue;
      s->running[s->n_running] = item;
      s->parents[s->n_running++] = i;
    }
  }
  return TFM_OK;
}

/* The result is as wide as its longest row. */
static tfm_status collect(Generation *g, const Single *s, tfm_generated *generated) {
  int64_t width = g->n_items ? 0 : g->prompts->width;
  for (int64_t i = 0; i < g->n_items; i++) width = s->lengths[i] > width ? s->lengths[i] : width;
  tfm_status status = generated_make(g, generated, g->n_items, width, false);
  for (int64_t i = 0; i < g->n_items && status == TFM_OK; i++) {
    generated->lengths[i] = s->lengths[i];
    generated->n_tokens += s->lengths[i] - g->items[i].start;
    const size_t n = (size_t)s->lengths[i];
    memcpy(generated->sequences + i * width, token_row(&s->rows, i), n * sizeof(int32_t));
    if (generated->token_scores)
      memcpy(generated->token_scores + i * width, score_row(&s->scores, i), n * sizeof(float));
  }
  return status;
}

static bool make(Generation *g, Single *s) {
  const int64_t length = generation_first_length(g);
  s->lengths = generation_allocate(g, g->n_items, sizeof *s->lengths);
  s->streams = generation_allocate(g, g->n_items, sizeof *s->streams);
  s->running = generation_allocate(g, g->n_items, sizeof *s->running);
  s->parents = generation_allocate(g, g->n_items, sizeof *s->parents);
  s->chosen = generation_allocate(g, g->n_items, sizeof *s->chosen);
  s->chosen_scores = generation_allocate(g, g->n_items, sizeof *s->chosen_scores);
  return s->lengths && s->streams && s->running && s->parents && s->chosen && s->chosen_scores &&
         best_make(g) && token_rows_make(&s->rows, g->n_items, length) &&
         (!g->options.return_token_scores || token_rows_make(&s->scores, g->n_items, length));
}

tfm_status generate_single(Generation *g, tfm_generated *generated) {
  Single s = {.n_running = g->n_items};
  tfm_status status = make(g, &s) ? TFM_OK : generation_no_memory(g);
  for (int64_t i = 0; i < g->n_items && status == TFM_OK; i++) {
    s.lengths[i] = g->items[i].start;
    s.streams[i] = stream_new(g->options.seed, (uint64_t)i);
    s.running[i] = i;
    s.parents[i] = -1;
    generation_copy_prompt(g, i, token_row(&s.rows, i));
  }
  if (status == TFM_OK) status = run(g, &s);
  if (status == TFM_OK) status = collect(g, &s, generated);
  token_rows_free(&s.rows);
  token_rows_free(&s.scores);
  return status;
}
