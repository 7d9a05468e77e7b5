/* Greedy decoding and sampling: one row per item. A row that has ended leaves the batch and costs nothing more.
 *
 * In: prompts. Out: rows of tokens, each chosen by row_choose, which tfm_choose uses too. Refused: a row all of whose
 * tokens are forbidden. Each item has a stream of random numbers of its own, so its tokens do not depend on which other
 * items are in the batch, nor on what was guessed: each is chosen from the logits behind the tokens before it. */
#include <string.h>

#include "base/clock.h"
#include "generate/generation_state.h"
#include "generate/guesses.h"

typedef struct Single {
  TokenRows rows, scores; /* scores: of the tokens, if they are asked for */
  int64_t *lengths;  /* of each item's row */
  tfm_stream *streams; /* of each item */
  int64_t *running;  /* items, ascending */
  int64_t *parents;  /* their rows in the call before */
  int64_t *chosen;   /* their next tokens */
  float *chosen_scores;
  int64_t n_running;
  int64_t *n_guesses; /* of each row of a call; NULL: nothing is guessed */
  Guesser *guessers;  /* of each item */
  TokenRows values;   /* GuessedRow.values */
  int64_t most_guesses; /* of a row */
  bool weighs;          /* as many are made as pay, at most so many in all */
  StepCosts costs;      /* if so */
  int64_t *found;       /* of each row of a call: guesses that there are, */
  double *hopes;        /* and how likely the next one is right, with all before it */
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
  return token_rows_reserve(&s->rows, longest) && token_rows_reserve(&s->scores, longest) &&
         token_rows_reserve(&s->values, longest);
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

// ---- with guesses ----

static const double plain_price = 0.25; /* of a row's guesses in a step, in steps, where it is not measured */

static GuessedRow guessed_row(const Single *s, int64_t item) {
  return (GuessedRow){token_row(&s->rows, item), token_row(&s->values, item), s->lengths[item]};
}

/* The guesses of each row that give the most tokens a second; none as long as it is not known what a step costs. */
static void share_guesses(Single *s) {
  int64_t tokens = s->n_running, next;
  double gain = (double)tokens, best = gain / costs_of(&s->costs, tokens);
  memset(s->n_guesses, 0, (size_t)s->n_running * sizeof *s->n_guesses);
  if (costs_of(&s->costs, tokens) <= 0) return;
  int64_t *taken = s->found + s->n_running; /* behind what was found */
  memset(taken, 0, (size_t)s->n_running * sizeof *taken);
  for (int64_t all = 0; all < s->most_guesses; all++, taken[next]++) {
    next = -1;
    for (int64_t i = 0; i < s->n_running; i++)
      if (taken[i] < s->found[i] && (next < 0 || s->hopes[i] > s->hopes[next])) next = i;
    if (next < 0) return;
    gain += s->hopes[next];
    const Guesser *guesser = &s->guessers[s->running[next]];
    if (taken[next] + 1 < s->found[next]) s->hopes[next] *= guesser_rate(guesser, taken[next] + 1);
    if (gain / costs_of(&s->costs, ++tokens) <= best) continue;
    best = gain / costs_of(&s->costs, tokens);
    memcpy(s->n_guesses, taken, (size_t)s->n_running * sizeof *taken);
    s->n_guesses[next]++;
  }
}

/* Guesses behind each row. The last token of a row is not given to the model, so they stay below the limit. */
static void find_guesses(Generation *g, Single *s) {
  for (int64_t i = 0; i < s->n_running; i++) {
    const int64_t item = s->running[i], room = g->items[item].limit - s->lengths[item] - 1;
    const GuessedRow row = guessed_row(s, item);
    s->found[i] = guesser_guess(&s->guessers[item], &row, s->most_guesses < room ? s->most_guesses : room);
    s->hopes[i] = s->found[i] ? guesser_rate(&s->guessers[item], 0) : 0;
  }
  if (s->weighs) share_guesses(s);
  else memcpy(s->n_guesses, s->found, (size_t)s->n_running * sizeof *s->found);
}

static void add_guessed_rows(Generation *g, Single *s) {
  g->n_rows = 0;
  for (int64_t i = 0; i < s->n_running; i++) {
    const int64_t item = s->running[i];
    generation_add_row(g, item, s->parents[i], token_row(&s->rows, item), s->lengths[item] + s->n_guesses[i]);
  }
}

/* What the model refuses may be the guesses alone, behind which a row is too long for it: without them the row may end
 * before. The rows of the model are those of the call then, so each continues itself. */
static tfm_status call_guessed(Generation *g, Single *s) {
  if (!reserve_single(s)) return generation_no_memory(g);
  find_guesses(g, s);
  add_guessed_rows(g, s);
  const bool is_first = s->parents[0] < 0;
  tfm_status status = generation_call_guessed(g, s->n_guesses);
  if (status != TFM_E_INPUT || !s->most_guesses) return status;
  s->most_guesses = 0;
  find_guesses(g, s);
  for (int64_t i = 0; i < s->n_running; i++) s->parents[i] = is_first ? -1 : i;
  add_guessed_rows(g, s);
  return generation_call_guessed(g, s->n_guesses);
}

/* The call, and in *price what a guess of it cost, in steps of a row. */
static tfm_status ask_guessed(Generation *g, Single *s, double *price) {
  const bool is_first = s->parents[0] < 0; /* which reads prompts, too */
  const int64_t began = now_ns();
  tfm_status status = call_guessed(g, s);
  int64_t guesses = 0, guessing = 0;
  for (int64_t i = 0; i < s->n_running; i++) guesses += s->n_guesses[i], guessing += s->n_guesses[i] > 0;
  if (s->weighs && status == TFM_OK && !is_first)
    costs_learn(&s->costs, s->n_running + guesses, (double)(now_ns() - began));
  *price = s->weighs ? costs_price(&s->costs, s->n_running, guesses)
                     : guesses ? plain_price * (double)guessing / (double)guesses : 0;
  return status;
}

/* Chooses tokens of running row i, whose rows of the call begin at `number`, as long as they are what was guessed: then
 * the next logits are those that the row has. *right: how many were. False in *goes_on: the row has ended. */
static tfm_status choose_guessed(Generation *g, Single *s, int64_t i, int64_t number, int64_t *right, bool *goes_on) {
  const int64_t item = s->running[i], n = s->n_guesses[i];
  bool is_right = true;
  int64_t k = 0;
  for (*goes_on = true; k <= n && is_right && *goes_on && !g->is_stopped; k++) {
    int64_t token;
    float score;
    tfm_status status = generation_check_row(g, number + k);
    if (status == TFM_OK) status = choose_next(g, number + k, &s->streams[item], &token, &score);
    if (status != TFM_OK) return status;
    const GuessedRow row = guessed_row(s, item);
    is_right = k < n && row.tokens[row.length] == token;
    guesser_add(&s->guessers[item], &row, (int32_t)token);
    *goes_on = append_token(g, s, item, token, score);
  }
  *right = is_right ? k : k - 1;
  return TFM_OK;
}

static tfm_status run_guessed(Generation *g, Single *s) {
  while (s->n_running && !g->is_stopped) {
    double price;
    tfm_status status = ask_guessed(g, s, &price);
    int64_t n = s->n_running, number = 0;
    s->n_running = 0;
    for (int64_t i = 0; i < n && status == TFM_OK; i++) {
      const int64_t item = s->running[i], guesses = s->n_guesses[i];
      int64_t right = 0;
      bool goes_on = true;
      status = choose_guessed(g, s, i, number, &right, &goes_on);
      guesser_learn(&s->guessers[item], guesses, right, price);
      number += guesses + 1;
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

static bool make_guesses(Generation *g, Single *s, int64_t length) {
  s->weighs = g->options.guesses < 0;
  s->most_guesses = s->weighs ? MOST_GUESSES : g->options.guesses;
  s->n_guesses = generation_allocate(g, g->n_items, sizeof *s->n_guesses);
  s->found = generation_allocate(g, 2 * g->n_items, sizeof *s->found);
  s->hopes = generation_allocate(g, g->n_items, sizeof *s->hopes);
  s->guessers = generation_allocate(g, g->n_items, sizeof *s->guessers);
  s->costs.most = g->n_items + MOST_GUESSES;
  s->costs.seconds = generation_allocate(g, s->costs.most + 1, sizeof *s->costs.seconds);
  return s->n_guesses && s->found && s->hopes && s->guessers && s->costs.seconds &&
         token_rows_make(&s->values, g->n_items, length);
}

static bool make_single(Generation *g, Single *s) {
  const int64_t length = generation_first_length(g);
  s->lengths = generation_allocate(g, g->n_items, sizeof *s->lengths);
  s->streams = generation_allocate(g, g->n_items, sizeof *s->streams);
  s->running = generation_allocate(g, g->n_items, sizeof *s->running);
  s->parents = generation_allocate(g, g->n_items, sizeof *s->parents);
  s->chosen = generation_allocate(g, g->n_items, sizeof *s->chosen);
  s->chosen_scores = generation_allocate(g, g->n_items, sizeof *s->chosen_scores);
  const bool is_guessing = generation_is_guessing(g);
  if (is_guessing && !make_guesses(g, s, length)) return false;
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
    if (!s.guessers) continue;
    guesser_begin(&s.guessers[i], s.lengths[i]);
    memset(token_row(&s.values, i), 0, (size_t)s.lengths[i] * sizeof(int32_t));
  }
  if (status == TFM_OK) status = run_single(g, &s);
  if (status == TFM_OK) status = collect(g, &s, generated);
  token_rows_free(&s.rows);
  token_rows_free(&s.scores);
  token_rows_free(&s.values);
  return status;
}
