/* Beam search, as Hugging Face transformers does it. The items of a batch do not influence each other, and an item
 * that is done leaves the batch.
 *
 * In: processed rows of logits. Out: the best num_return_sequences rows of each item, the best first, with their
 * scores. Refused: an item all of whose candidates are forbidden.
 *
 * A step of an item of length L, with K beams:
 *
 *  1. The best candidates, beam's sum + log probability of the token; equal ones: the lower beam, then the lower token.
 *  2. Those of the best K that have ended become finished, with the score sum / (L + 1 - start) ^ length_penalty; the
 *     best K finished are kept.
 *  3. The best K that have not ended run on. (One that has ended counts as if its sum were 1e9 less.)
 *  4. The item is done when all candidates have ended, or K are finished and no running beam can win any more. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "generate/generation_state.h"
#include "decode/loops/logit_row.h"
#include "tfm/abi/double_functions.h"

#define NEVER (-1e9) /* the sum of a beam that does not exist; real ones stay far above it */

typedef struct Candidate {
  double sum;
  int64_t beam, token;
  bool has_ended;
} Candidate;

typedef struct Finished {
  double score;
  int64_t slot, length; /* of its tokens among the item's finished rows */
} Finished;

typedef struct Beams { /* of one item */
  int64_t length, n_finished, first_row; /* first_row: of the last call */
  bool is_done;
  double *sums;       /* K running beams */
  Finished *finished; /* K, the best first */
} Beams;

typedef struct BeamRows { /* K rows per item */
  TokenRows tokens, scores; /* scores: of the tokens, if they are asked for */
} BeamRows;

typedef struct Search {
  Generation *g;
  Beams *items;
  BeamRows running, next, finished;
  int64_t *parents;                  /* of each running beam: its row in the last call */
  Candidate *candidates;             /* of the item that is looked at */
  int64_t n_candidates;              /* in Generation.heap until they are in order */
  Candidate **kept; /* its K best by what runs on */
  bool is_first;    /* all beams of an item are the same row, which is scored once */
} Search;

// ---- 1: candidates ----

/* Of the candidates, numbered beam * vocab + token, the heap holds the best so far, the worst of them as its root. */
static bool is_good(const Search *s, HeapEntry entry) {
  return s->n_candidates < s->g->heap_size || heap_is_before(s->g->chooser.heap[0], entry);
}

/* Until the heap is full, entries are only collected; ordering it once is cheaper than keeping it ordered. */
static void take_entry(Search *s, HeapEntry entry) {
  HeapEntry *heap = s->g->chooser.heap;
  const int64_t size = s->g->heap_size;
  if (s->n_candidates == size) {
    heap[0] = entry;
    heap_sink(heap, size, 0);
    return;
  }
  heap[s->n_candidates++] = entry;
  if (s->n_candidates == size) heap_order(heap, size);
}

/* A bound below which no score is good enough. It is a little lower than need be, by 1e-6 of the magnitudes that were
 * added, because scores are rounded to f32; those above it are compared one by one. */
static float worst_score(const Search *s, const RowScores *row, double sum) {
  if (s->n_candidates < s->g->heap_size) return -INFINITY;
  const double worst = -s->g->chooser.heap[0].key;
  const double error = (fabs(worst) + fabs(sum) + fabs(row->shift)) * 1e-6;
  return (float)(worst - sum + row->shift - error);
}

/* The bound rises with every candidate that is taken, so it is computed again only then. */
static void take_block(Search *s, const RowScores *row, double sum, int64_t first_id, int64_t first) {
  const int64_t end = first + ROW_BLOCK < s->g->vocab ? first + ROW_BLOCK : s->g->vocab;
  float worst = worst_score(s, row, sum);
  for (int64_t token = first; token < end; token++) {
    if (!(row->scores[token] > worst)) continue;
    const HeapEntry entry = {-(sum + (double)row_score(row, token)), first_id + token};
    if (!is_good(s, entry)) continue;
    take_entry(s, entry);
    worst = worst_score(s, row, sum);
  }
}

/* Blocks whose bound cannot win are skipped, which is most of them after the first beam. */
static void take_beam(Search *s, const RowScores *row, double sum, int64_t first_id) {
  const Generation *g = s->g;
  for (int64_t i = 0; i < row->n_changed; i++) {
    const HeapEntry entry = {-(sum + (double)g->chooser.changed[i].score), first_id + g->chooser.changed[i].token};
    if (is_good(s, entry)) take_entry(s, entry);
  }
  for (int64_t block = 0; block < row->n_blocks; block++) {
    const double bound = sum + (double)(float)((double)row->bounds[block] - row->shift);
    if (bound > -INFINITY && is_good(s, (HeapEntry){-bound, first_id + block * ROW_BLOCK}))
      take_block(s, row, sum, first_id, block * ROW_BLOCK);
  }
}

/* Where fewer candidates are possible than the heap holds, impossible ones follow, with -inf, the lower beam and token
 * first, as a sort of all candidates would order them. */
static void fill_up(Search *s) {
  HeapEntry *heap = s->g->chooser.heap;
  const int64_t n_possible = s->n_candidates;
  for (int64_t id = 0; s->n_candidates < s->g->heap_size; id++) {
    int64_t i = 0;
    while (i < n_possible && heap[i].id != id) i++;
    if (i == n_possible) heap[s->n_candidates++] = (HeapEntry){INFINITY, id};
  }
  if (n_possible < s->n_candidates) heap_order(heap, s->n_candidates);
}

/* In the first step all beams of an item are the same row, which was asked for once; the sums of all beams but the
 * first are NEVER. The heap gives the worst candidate first, so the list is filled from its end. */
static tfm_status collect_candidates(Search *s, const Beams *beams) {
  Generation *g = s->g;
  RowScores row;
  s->n_candidates = 0;
  for (int64_t beam = 0; beam < g->beams; beam++) {
    if (!beam || !s->is_first) {
      tfm_status status = generation_process_row(g, beams->first_row + beam, &row);
      if (status != TFM_OK) return status;
    }
    take_beam(s, &row, beams->sums[beam], beam * g->vocab);
  }
  fill_up(s);
  for (int64_t n = s->n_candidates; n > 0; n--) {
    HeapEntry entry = heap_pop(g->chooser.heap, n);
    Candidate *c = &s->candidates[n - 1];
    *c = (Candidate){-entry.key, entry.id / g->vocab, entry.id % g->vocab, false};
    c->has_ended = generation_is_eos(g, c->token);
  }
  return TFM_OK;
}

// ---- 2: finished rows ----

/* Row `from` of the running ones and the token that follows, if there is one. */
static void copy_beam(const Search *s, const Beams *beams, BeamRows *to, int64_t row, int64_t from,
                      const Candidate *last) {
  const size_t n = (size_t)beams->length;
  memcpy(token_row(&to->tokens, row), token_row(&s->running.tokens, from), n * sizeof(int32_t));
  if (last) token_row(&to->tokens, row)[n] = (int32_t)last->token;
  if (!to->scores.tokens) return;
  memcpy(score_row(&to->scores, row), score_row(&s->running.scores, from), n * sizeof(float));
  if (!last) return;
  const double before = beams->sums[last->beam];
  score_row(&to->scores, row)[n] = last->sum == -INFINITY ? -INFINITY : (float)(last->sum - before);
}

/* The power may be infinite or 0 for absurd penalties; the two cases that would give NaN are returned as they are. */
static double score_of(const Generation *g, double sum, int64_t new_length) {
  if (sum == 0 || sum == -INFINITY) return sum;
  return sum / double_pow((double)new_length, g->options.length_penalty);
}

/* The next slot while fewer than K are finished, else that of the worst. */
static int64_t free_slot(const Search *s, const Beams *beams) {
  int64_t n = beams->n_finished;
  return n < s->g->beams ? n : beams->finished[n - 1].slot;
}

/* Adds beam number `beam`, with the token that follows if there is one, to the finished rows if it is among the best
 * K; of equal scores the one that finished first is better. The row that drops out gives its slot. */
static void finish_beam(Search *s, Beams *beams, int64_t item, double score, int64_t beam, const Candidate *last) {
  const int64_t k = s->g->beams;
  int64_t place = beams->n_finished;
  while (place > 0 && beams->finished[place - 1].score < score) place--;
  if (place == k) return;
  int64_t slot = free_slot(s, beams);
  if (beams->n_finished < k) beams->n_finished++;
  memmove(beams->finished + place + 1, beams->finished + place,
          (size_t)(beams->n_finished - 1 - place) * sizeof *beams->finished);
  beams->finished[place] = (Finished){score, slot, beams->length + (last != NULL)};
  copy_beam(s, beams, &s->finished, item * k + slot, item * k + beam, last);
}

/* With early stopping nothing is added once K are finished, as in transformers. */
static void finish_ended(Search *s, Beams *beams, int64_t item) {
  const Generation *g = s->g;
  const int64_t new_length = beams->length + 1 - g->items[item].start;
  if (g->options.early_stopping == TFM_EARLY_TRUE && beams->n_finished == g->beams) return;
  for (int64_t i = 0; i < g->beams; i++) {
    const Candidate *c = &s->candidates[i];
    if (c->has_ended) finish_beam(s, beams, item, score_of(g, c->sum, new_length), c->beam, c);
  }
}

// ---- 3: what runs on ----

static double running_sum(const Candidate *c) { return c->has_ended ? c->sum + NEVER : c->sum; }

/* An insertion into K places; candidates come in order of their sums, so most are appended. */
static void keep_best(Search *s) {
  const int64_t k = s->g->beams;
  int64_t n = 0;
  for (int64_t i = 0; i < s->n_candidates; i++) {
    Candidate *c = &s->candidates[i];
    int64_t place = n;
    while (place > 0 && running_sum(s->kept[place - 1]) < running_sum(c)) place--;
    if (place == k) continue;
    if (n < k) n++;
    memmove(s->kept + place + 1, s->kept + place, (size_t)(n - 1 - place) * sizeof *s->kept);
    s->kept[place] = c;
  }
}

/* Rows are copied from `running` to `next`, because several beams may continue the same one. */
static void run_on(Search *s, Beams *beams, int64_t item) {
  const int64_t k = s->g->beams;
  for (int64_t i = 0; i < k; i++) {
    const Candidate *c = s->kept[i];
    copy_beam(s, beams, &s->next, item * k + i, item * k + c->beam, c);
    s->parents[item * k + i] = beams->first_row + (s->is_first ? 0 : c->beam);
  }
  for (int64_t i = 0; i < k; i++) beams->sums[i] = running_sum(s->kept[i]);
  beams->length++;
}

// ---- 4: the end ----

/* With TFM_EARLY_NEVER and a positive penalty a longer row may score higher, so the best running beam is judged at its
 * greatest length. */
static bool is_done(const Search *s, const Beams *beams, int64_t item) {
  const Generation *g = s->g;
  const Item *row = &g->items[item];
  bool all_ended = true;
  for (int64_t i = 0; i < s->n_candidates; i++) all_ended &= s->candidates[i].has_ended;
  if (all_ended) return true;
  if (beams->n_finished < g->beams) return false;
  if (g->options.early_stopping == TFM_EARLY_TRUE) return true;
  bool is_far = g->options.early_stopping == TFM_EARLY_NEVER && g->options.length_penalty > 0;
  double best = score_of(g, running_sum(s->kept[0]), (is_far ? row->limit : beams->length + 1) - row->start);
  return !(best > beams->finished[g->beams - 1].score);
}

/* At the greatest length every candidate counts as ended. */
static tfm_status advance(Search *s, int64_t item) {
  Generation *g = s->g;
  Beams *beams = &s->items[item];
  tfm_status status = collect_candidates(s, beams);
  if (status != TFM_OK) return status;
  if (s->candidates[0].sum == -INFINITY) return generation_refuse_row(g, item, beams->length);
  for (int64_t i = 0; i < s->n_candidates; i++) s->candidates[i].has_ended |= beams->length + 1 >= g->items[item].limit;
  finish_ended(s, beams, item);
  keep_best(s);
  beams->is_done = is_done(s, beams, item);
  int32_t best = (int32_t)s->kept[0]->token;
  run_on(s, beams, item);
  generation_tell(g, item, best);
  return TFM_OK;
}

// ---- the loop ----

static void add_item_rows(Search *s, int64_t item) {
  Generation *g = s->g;
  Beams *beams = &s->items[item];
  beams->first_row = g->n_rows;
  for (int64_t i = 0; i < (s->is_first ? 1 : g->beams); i++) {
    int64_t row = item * g->beams + i;
    generation_add_row(g, item, s->is_first ? -1 : s->parents[row], token_row(&s->running.tokens, row), beams->length);
  }
}

static bool reserve_rows(BeamRows *rows, int64_t length) {
  return token_rows_reserve(&rows->tokens, length) && token_rows_reserve(&rows->scores, length);
}

static bool reserve_search(Search *s) {
  int64_t longest = 0;
  for (int64_t i = 0; i < s->g->n_items; i++)
    if (!s->items[i].is_done && s->items[i].length > longest) longest = s->items[i].length;
  return reserve_rows(&s->running, longest + 1) && reserve_rows(&s->next, longest + 1) &&
         reserve_rows(&s->finished, longest + 1);
}

/* One call for the rows of all items that are not done. */
static tfm_status step(Search *s) {
  Generation *g = s->g;
  if (!reserve_search(s)) return generation_no_memory(g);
  g->n_rows = 0;
  for (int64_t i = 0; i < g->n_items; i++)
    if (!s->items[i].is_done) add_item_rows(s, i);
  tfm_status status = generation_call(g);
  for (int64_t i = 0; i < g->n_items && status == TFM_OK; i++)
    if (!s->items[i].is_done) status = advance(s, i);
  BeamRows running = s->running;
  s->running = s->next;
  s->next = running;
  s->is_first = false;
  return status;
}

static bool any_running(const Search *s) {
  for (int64_t i = 0; i < s->g->n_items; i++)
    if (!s->items[i].is_done) return true;
  return false;
}

/* After a stop by on_token, running beams are finished as they are. */
static void finish_running(Search *s, int64_t item) {
  const Generation *g = s->g;
  Beams *beams = &s->items[item];
  for (int64_t i = 0; i < g->beams && !beams->is_done; i++)
    finish_beam(s, beams, item, score_of(g, beams->sums[i], beams->length - g->items[item].start), i, NULL);
}

static tfm_status collect_hypotheses(Search *s, tfm_generated *generated) {
  Generation *g = s->g;
  const int64_t k = g->beams, returned = g->options.num_return_sequences;
  int64_t width = g->n_items ? 0 : g->prompts->width;
  for (int64_t i = 0; i < g->n_items * returned; i++) {
    int64_t length = s->items[i / returned].finished[i % returned].length;
    width = length > width ? length : width;
  }
  tfm_status status = generated_make(g, generated, g->n_items * returned, width, true);
  for (int64_t i = 0; i < g->n_items * returned && status == TFM_OK; i++) {
    const Finished *f = &s->items[i / returned].finished[i % returned];
    generated->lengths[i] = f->length;
    generated->n_tokens += f->length - g->items[i / returned].start;
    generated->scores[i] = (float)f->score;
    const int64_t row = i / returned * k + f->slot;
    memcpy(generated->sequences + i * width, token_row(&s->finished.tokens, row), (size_t)f->length * sizeof(int32_t));
    if (generated->token_scores)
      memcpy(generated->token_scores + i * width, score_row(&s->finished.scores, row),
             (size_t)f->length * sizeof(float));
  }
  return status;
}

static bool make_rows(const Generation *g, BeamRows *rows) {
  const int64_t n = g->n_items * g->beams, length = generation_first_length(g);
  return token_rows_make(&rows->tokens, n, length) &&
         (!g->options.return_token_scores || token_rows_make(&rows->scores, n, length));
}

static void free_rows(BeamRows *rows) {
  token_rows_free(&rows->tokens);
  token_rows_free(&rows->scores);
}

/* The first beam of each item has the sum 0, the others NEVER: so the first candidates all come from one row. */
static bool make_search(Search *s) {
  Generation *g = s->g;
  const int64_t rows = g->n_items * g->beams;
  s->items = generation_allocate(g, g->n_items, sizeof *s->items);
  s->parents = generation_allocate(g, rows, sizeof *s->parents);
  s->candidates = generation_allocate(g, g->heap_size, sizeof *s->candidates);
  s->kept = generation_allocate(g, g->beams + 1, sizeof *s->kept);
  double *sums = generation_allocate(g, rows, sizeof *sums);
  Finished *finished = generation_allocate(g, rows + 1, sizeof *finished);
  if (!s->items || !s->parents || !s->candidates || !s->kept || !sums || !finished) return false;
  if (!best_make(g) || !make_rows(g, &s->running) || !make_rows(g, &s->next) || !make_rows(g, &s->finished))
    return false;
  for (int64_t i = 0; i < g->n_items; i++) {
    s->items[i] =
        (Beams){.length = g->items[i].start, .sums = sums + i * g->beams, .finished = finished + i * g->beams};
    for (int64_t beam = 0; beam < g->beams; beam++) {
      s->items[i].sums[beam] = beam ? NEVER : 0;
      generation_copy_prompt(g, i, token_row(&s->running.tokens, i * g->beams + beam));
    }
  }
  return true;
}

tfm_status generate_beams(Generation *g, tfm_generated *generated) {
  Search s = {.g = g, .is_first = true};
  tfm_status status = make_search(&s) ? TFM_OK : generation_no_memory(g);
  while (status == TFM_OK && !g->is_stopped && any_running(&s)) status = step(&s);
  for (int64_t i = 0; i < g->n_items && status == TFM_OK && g->is_stopped; i++) finish_running(&s, i);
  if (status == TFM_OK) status = collect_hypotheses(&s, generated);
  free_rows(&s.running);
  free_rows(&s.next);
  free_rows(&s.finished);
  return status;
}
