/* Greedy decoding and sampling: one row per item. A row that has ended leaves the batch and costs nothing more. */
#include "generation.h"

typedef struct Single {
  TokenRows rows;
  int64_t *lengths;  /* of each item's row */
  Stream *streams;   /* of each item */
  int64_t *running;  /* items, ascending */
  int64_t *parents;  /* their rows in the call before */
  int64_t *chosen;   /* their next tokens */
  int64_t n_running;
} Single;

/* The next token of row `number` of the call. */
static tfm_status choose(Generation *g, int64_t number, Stream *stream, int64_t *token) {
  RowScores row;
  tfm_status status = process_row(g, number, &row);
  if (status != TFM_OK) return status;
  *token = row_best(g, &row);
  if (*token == TFM_NO_TOKEN) return generation_refuse_row(g, row.item, g->row_lengths[number]);
  if (!g->options.do_sample) return TFM_OK;
  sample_restrict(g, &row);
  *token = sample_draw(g, &row, stream);
  return TFM_OK;
}

/* Adds a token to a row; false if the row has ended. */
static bool append(Generation *g, Single *s, int64_t item, int64_t token) {
  token_row(&s->rows, item)[s->lengths[item]++] = (int32_t)token;
  if (g->options.on_token && g->options.on_token(g->options.on_token_user, item, (int32_t)token)) g->is_stopped = true;
  return s->lengths[item] < g->items[item].limit && !generation_is_eos(g, token);
}

static tfm_status ask(Generation *g, Single *s) {
  g->n_rows = 0;
  int64_t longest = 0;
  for (int64_t i = 0; i < s->n_running; i++)
    longest = s->lengths[s->running[i]] > longest ? s->lengths[s->running[i]] : longest;
  if (!token_rows_reserve(&s->rows, longest + 1)) return generation_no_memory(g);
  for (int64_t i = 0; i < s->n_running; i++) {
    int64_t item = s->running[i];
    generation_add_row(g, item, s->parents[i], token_row(&s->rows, item), s->lengths[item]);
  }
  tfm_status status = generation_call(g);
  for (int64_t i = 0; i < s->n_running && status == TFM_OK; i++)
    status = choose(g, i, &s->streams[s->running[i]], &s->chosen[i]);
  return status;
}

static tfm_status run(Generation *g, Single *s) {
  while (s->n_running && !g->is_stopped) {
    tfm_status status = ask(g, s);
    if (status != TFM_OK) return status;
    int64_t n = s->n_running;
    s->n_running = 0;
    for (int64_t i = 0; i < n; i++) {
      int64_t item = s->running[i];
      if (!append(g, s, item, s->chosen[i])) continue;
      s->running[s->n_running] = item;
      s->parents[s->n_running++] = i;
    }
  }
  return TFM_OK;
}

static tfm_status collect(Generation *g, const Single *s, tfm_generated *generated) {
  int64_t width = g->n_items ? 0 : g->prompts->width;
  for (int64_t i = 0; i < g->n_items; i++) width = s->lengths[i] > width ? s->lengths[i] : width;
  tfm_status status = generated_make(g, generated, g->n_items, width, false);
  for (int64_t i = 0; i < g->n_items && status == TFM_OK; i++) {
    generated->lengths[i] = s->lengths[i];
    generated->n_tokens += s->lengths[i] - g->items[i].start;
    for (int64_t t = 0; t < s->lengths[i]; t++) generated->sequences[i * width + t] = token_row(&s->rows, i)[t];
  }
  return status;
}

tfm_status generate_single(Generation *g, tfm_generated *generated) {
  Single s = {.n_running = g->n_items};
  s.lengths = generation_allocate(g, g->n_items, sizeof *s.lengths);
  s.streams = generation_allocate(g, g->n_items, sizeof *s.streams);
  s.running = generation_allocate(g, g->n_items, sizeof *s.running);
  s.parents = generation_allocate(g, g->n_items, sizeof *s.parents);
  s.chosen = generation_allocate(g, g->n_items, sizeof *s.chosen);
  if (!s.lengths || !s.streams || !s.running || !s.parents || !s.chosen ||
      !token_rows_make(&s.rows, g->n_items, generation_first_length(g)))
    return generation_no_memory(g);
  for (int64_t i = 0; i < g->n_items; i++) {
    s.lengths[i] = g->items[i].start;
    s.streams[i] = stream_new(g->options.seed, (uint64_t)i);
    s.running[i] = i;
    s.parents[i] = -1;
    generation_copy_prompt(g, i, token_row(&s.rows, i));
  }
  tfm_status status = run(g, &s);
  if (status == TFM_OK) status = collect(g, &s, generated);
  token_rows_free(&s.rows);
  return status;
}
