/* Greedy decoding and sampling: one row per item. A row that has ended leaves the batch and costs nothing more.
 *
 * In: prompts. Out: rows of tokens, each chosen by row_choose, which tfm_choose uses too. Refused: a row all of whose
 * tokens are forbidden. Each item has a stream of random numbers of its own, so its tokens do not depend on which other
 * items are in the batch, nor on what was guessed: each is chosen from the logits behind the tokens before it. */
#include <string.h>

#include "generate/generation_state.h"

typedef struct RowGuesses { /* of one row */
  int64_t failed; /* steps without a right guess, one after the other */
  int64_t pause;  /* the length from which it guesses again */
} RowGuesses;

typedef struct Single {
  TokenRows rows, scores; /* scores: of the tokens, if they are asked for */
  int64_t *lengths;  /* of each item's row */
  tfm_stream *streams; /* of each item */
  int64_t *running;  /* items, ascending */
  int64_t *parents;  /* their rows in the call before */
  int64_t *chosen;   /* their next tokens */
  float *chosen_scores;
  int64_t n_running;
  int64_t *n_guesses;    /* of each row of a call; NULL: nothing is guessed */
  RowGuesses *guesses;   /* of each item */
  int64_t most_guesses;
} Single;

/* The next token of row `number` of the call, and its score if that is asked for. */
static tfm_status choose_next(Generation *g, int64_t number, tfm_stream *stream, int64_t *token, float *score) {
  RowScores row;
  tfm_status status = generation_process_row(g, number, &row);
  if (status != TFM_OK) return status;
  *token = row_choose(&g->chooser, &row, stream, score);
  if (*token != TFM_NO_TOKEN) return TFM_OK;
  return generation_refuse_row(g, g->row_items[number], g->row_lengths[number]);
}

/* Adds a token to a row; false if the row has ended. */
static bool append_token(Generation *g, Single *s, int64_t item, int64_t token, float score) {
  if (s->scores.tokens) score_row(&s->scores, item)[s->lengths[item]] = score;
  token_row(&s->rows, item)[s->lengths[item]++] = (int32_t)token;
  generation_tell(g, item, (int32_t)token);
  return s->lengths[item] < g->items[item].limit && !generation_is_eos(g, token);
}

/* Rows are made longer before their addresses go into the call. */
static bool reserve_single(Single *s) {
  int64_t longest = 0;
  for (int64_t i = 0; i < s->n_running; i++)
    longest = s->lengths[s->running[i]] > longest ? s->lengths[s->running[i]] : longest;
  longest += 1 + s->most_guesses;
  return token_rows_reserve(&s->rows, longest) && token_rows_reserve(&s->scores, longest);
}

/* One call for all rows that are still running. */
static tfm_status ask(Generation *g, Single *s) {
  g->n_rows = 0;
  if (!reserve_single(s)) return generation_no_memory(g);
  for (int64_t i = 0; i < s->n_running; i++) {
    int64_t item = s->running[i];
    generation_add_row(g, item, s->parents[i], token_row(&s->rows, item), s->lengths[item]);
  }
  tfm_status status = generation_call(g);
  for (int64_t i = 0; i < s->n_running && status == TFM_OK; i++)
    status = choose_next(g, i, &s->streams[s->running[i]], &s->chosen[i], &s->chosen_scores[i]);
  return status;
}

// ---- guesses ----

enum {
  LONGEST = 4, SHORTEST = 2, /* tokens at the end of the row that are looked for */
  MOST_FAILED = 3,           /* steps without a right guess, after which it rests */
  REST = 16                  /* tokens */
};

/* The place behind the last occurrence of the row's last `n` tokens, but that at its end; 0: there is none. */
static int64_t place_behind(const int32_t *row, int64_t length, int64_t n) {
  const int32_t *end = row + length - n;
  for (int64_t place = length - 1; place >= n; place--)
    if (row[place - 1] == row[length - 1] && memcmp(row + place - n, end, (size_t)n * sizeof *row) == 0) return place;
  return 0;
}

/* Writes up to `most` guesses behind a row of `length` tokens, what followed when its end stood in it before; how many.
 * Behind the end of the row the guesses themselves go on, as in a repetition. */
static int64_t row_guess(const RowGuesses *guesses, int32_t *row, int64_t length, int64_t most) {
  if (length < guesses->pause) return 0;
  for (int64_t n = LONGEST; n >= SHORTEST; n--) {
    const int64_t place = place_behind(row, length, n);
    for (int64_t i = 0; place && i < most; i++) row[length + i] = row[place + i];
    if (place) return most > 0 ? most : 0;
  }
  return 0;
}

/* After a step with `guessed` guesses, of which the first `right` were right; the row has `length` tokens now. */
static void row_guesses_learn(RowGuesses *guesses, int64_t guessed, int64_t right, int64_t length) {
  if (!guessed) return;
  guesses->failed = right ? 0 : guesses->failed + 1;
  if (guesses->failed < MOST_FAILED) return;
  *guesses = (RowGuesses){.pause = length + REST};
}

// ---- with guesses ----

/* The last token of a row is not given to the model, so guesses stay below the limit. */
static void add_guessed_row(Generation *g, Single *s, int64_t i, int64_t most) {
  const int64_t item = s->running[i], length = s->lengths[item], room = g->items[item].limit - length - 1;
  int32_t *row = token_row(&s->rows, item);
  s->n_guesses[i] = row_guess(&s->guesses[item], row, length, most < room ? most : room);
  generation_add_row(g, item, s->parents[i], row, length + s->n_guesses[i]);
}

/* What the model refuses may be the guesses alone, behind which a row is too long for it: without them the row may end
 * before. The rows of the model are those of the call then, so each continues itself. */
static tfm_status ask_guessed(Generation *g, Single *s) {
  if (!reserve_single(s)) return generation_no_memory(g);
  g->n_rows = 0;
  for (int64_t i = 0; i < s->n_running; i++) add_guessed_row(g, s, i, s->most_guesses);
  const bool is_first = s->parents[0] < 0;
  tfm_status status = generation_call_guessed(g, s->n_guesses);
  if (status != TFM_E_INPUT || !s->most_guesses) return status;
  s->most_guesses = 0;
  g->n_rows = 0;
  for (int64_t i = 0; i < s->n_running; i++) {
    s->parents[i] = is_first ? -1 : i;
    add_guessed_row(g, s, i, 0);
  }
  return generation_call_guessed(g, s->n_guesses);
}

/* Chooses tokens of running row i, whose rows of the call begin at `number`, as long as they are what was guessed: then
 * the next logits are those that the row has. False in *goes_on: the row has ended. */
static tfm_status choose_guessed(Generation *g, Single *s, int64_t i, int64_t number, bool *goes_on) {
  const int64_t item = s->running[i], n = s->n_guesses[i];
  const int32_t *row = token_row(&s->rows, item);
  bool is_right = true;
  int64_t k = 0;
  for (*goes_on = true; k <= n && is_right && *goes_on && !g->is_stopped; k++) {
    int64_t token;
    float score;
    tfm_status status = generation_check_row(g, number + k);
    if (status == TFM_OK) status = choose_next(g, number + k, &s->streams[item], &token, &score);
    if (status != TFM_OK) return status;
    is_right = k < n && row[s->lengths[item]] == token;
    *goes_on = append_token(g, s, item, token, score);
  }
  row_guesses_learn(&s->guesses[item], n, is_right ? k : k - 1, s->lengths[item]);
  return TFM_OK;
}

static tfm_status run_guessed(Generation *g, Single *s) {
  while (s->n_running && !g->is_stopped) {
    tfm_status status = ask_guessed(g, s);
    int64_t n = s->n_running, number = 0;
    s->n_running = 0;
    for (int64_t i = 0; i < n && status == TFM_OK; i++) {
      const int64_t item = s->running[i], rows = s->n_guesses[i] + 1;
      bool goes_on = true;
      status = choose_guessed(g, s, i, number, &goes_on);
      number += rows;
      if (!goes_on) continue;
      s->running[s->n_running] = item;
      s->parents[s->n_running++] = i;
    }
    if (status != TFM_OK) return status;
  }
  return TFM_OK;
}

// ---- the loop ----

/* parents[i] is the row of the last call that item i continues, so that a model can continue its caches. */
static tfm_status run_single(Generation *g, Single *s) {
  if (s->n_guesses) return run_guessed(g, s);
  while (s->n_running && !g->is_stopped) {
    tfm_status status = ask(g, s);
    if (status != TFM_OK) return status;
    int64_t n = s->n_running;
    s->n_running = 0;
    for (int64_t i = 0; i < n; i++) {
      int64_t item = s->running[i];
      if (!append_token(g, s, item, s->chosen[i], s->chosen_scores[i])) continue;
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

static bool make_single(Generation *g, Single *s) {
  const int64_t length = generation_first_length(g);
  s->lengths = generation_allocate(g, g->n_items, sizeof *s->lengths);
  s->streams = generation_allocate(g, g->n_items, sizeof *s->streams);
  s->running = generation_allocate(g, g->n_items, sizeof *s->running);
  s->parents = generation_allocate(g, g->n_items, sizeof *s->parents);
  s->chosen = generation_allocate(g, g->n_items, sizeof *s->chosen);
  s->chosen_scores = generation_allocate(g, g->n_items, sizeof *s->chosen_scores);
  const bool is_guessing = g->row_room > 1;
  if (is_guessing) {
    s->most_guesses = g->options.guesses;
    s->n_guesses = generation_allocate(g, g->n_items, sizeof *s->n_guesses);
    s->guesses = generation_allocate(g, g->n_items, sizeof *s->guesses);
    if (!s->n_guesses || !s->guesses) return false;
  }
  return s->lengths && s->streams && s->running && s->parents && s->chosen && s->chosen_scores &&
         (is_guessing || best_make(g)) && token_rows_make(&s->rows, g->n_items, length) &&
         (!g->options.return_token_scores || token_rows_make(&s->scores, g->n_items, length));
}

tfm_status generate_single(Generation *g, tfm_generated *generated) {
  Single s = {.n_running = g->n_items};
  tfm_status status = make_single(g, &s) ? TFM_OK : generation_no_memory(g);
  for (int64_t i = 0; i < g->n_items && status == TFM_OK; i++) {
    s.lengths[i] = g->items[i].start;
    s.streams[i] = tfm_stream_begin(g->options.seed, (uint64_t)i);
    s.running[i] = i;
    s.parents[i] = -1;
    generation_copy_prompt(g, i, token_row(&s.rows, i));
  }
  if (status == TFM_OK) status = run_single(g, &s);
  if (status == TFM_OK) status = collect(g, &s, generated);
  token_rows_free(&s.rows);
  token_rows_free(&s.scores);
  return status;
}
