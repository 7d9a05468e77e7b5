/* Choosing a token from the logits of a row: what the options do to the logits, and the choice itself. tfm_choose
 * (choose.c) and the loops of tfm_generate come through here, so that a row gets the same tokens from both.
 *
 * A Chooser is scratch for one row at a time. The row's scores are looked at in three passes, each in a file of its
 * own: the options forbid tokens and change scores (logit_options.c), sampling keeps the tokens that may be drawn
 * (sample.c), and one is chosen (choose.c). All of it computes in the runtime's floating-point mode; functions of the
 * caller's run in the caller's. */
#ifndef TFM_RUNTIME_CHOOSE_H
#define TFM_RUNTIME_CHOOSE_H

#include <stdbool.h>

#include "base/error.h"
#include "machine/fp_mode.h"
#include "tfm/generate.h"

// ---- a binary heap ----

/* The root has the largest key, and of equal keys the largest id; no key is NaN. Searches for the n best store negative
 * keys: the root is then the worst of the best so far, which the next candidate must beat. */

typedef struct HeapEntry {
  double key;
  int64_t id;
} HeapEntry;

static inline bool heap_is_before(HeapEntry a, HeapEntry b) { return a.key != b.key ? a.key > b.key : a.id > b.id; }

static inline void heap_sink(HeapEntry *heap, int64_t n, int64_t i) {
  const HeapEntry entry = heap[i];
  for (int64_t child; (child = 2 * i + 1) < n; i = child) {
    if (child + 1 < n && heap_is_before(heap[child + 1], heap[child])) child++;
    if (!heap_is_before(heap[child], entry)) break;
    heap[i] = heap[child];
  }
  heap[i] = entry;
}

static inline void heap_order(HeapEntry *heap, int64_t n) {
  for (int64_t i = n / 2; i-- > 0;) heap_sink(heap, n, i);
}

/* Takes the root out of a heap of n > 0 entries. */
static inline HeapEntry heap_pop(HeapEntry *heap, int64_t n) {
  HeapEntry root = heap[0];
  heap[0] = heap[n - 1];
  heap_sink(heap, n - 1, 0);
  return root;
}

// ---- the scratch ----

typedef struct ChangedScore { /* a token whose score is not the model's logit less the shift */
  int64_t token;
  float score;
} ChangedScore;

typedef struct tfm_chooser {
  const tfm_generate_options *options; /* of the row that is looked at: complete and legal */
  int64_t vocab;
  ChangedScore *changed;   /* [vocab]: of the row that is looked at */
  uint32_t *stamps, stamp; /* [vocab]: which tokens stand in a row */
  int32_t *written;        /* [vocab]: how often a row has written a token; only of tokens that are marked */
  HeapEntry *heap;         /* of at least `vocab` entries for sampling */
  float *bounds, *given;   /* of tfm_choose's row: [blocks], and [vocab] logits as given; NULL in a generation */
  uint64_t callers_mode;   /* of floating-point numbers */
  tfm_error *error;
} Chooser;

/* Around each call of a function of the caller's. A mode that it sets is the caller's from then on. */
static inline void chooser_enter_caller(const Chooser *chooser) { fp_mode_leave(chooser->callers_mode); }
static inline void chooser_leave_caller(Chooser *chooser) { chooser->callers_mode = fp_mode_enter(); }

typedef struct RowText { /* the row whose next token is wanted */
  const int32_t *tokens;
  int64_t length, start, limit; /* tokens of it; of its prompt; of it in the end, at most */
  int64_t padding;              /* tokens at its beginning that are padding */
  int64_t item;                 /* for on_scores and messages */
} RowText;

/* The scores of one row, from which a token is chosen. The score of a token is scores[token] - shift, or, for the
 * tokens in Chooser.changed, the one there, and scores[token] is then -inf. So only the tokens that the options
 * concern are touched, and not the whole vocabulary. */
typedef struct RowScores {
  float *scores;
  float *bounds;    /* of each block: no score is greater */
  int64_t n_blocks; /* 0: only the changed tokens have scores */
  int64_t n_changed;
  double shift;
} RowScores;

static inline float row_score(const RowScores *row, int64_t token) {
  return (float)((double)row->scores[token] - row->shift);
}

/* generate_options.c: a complete copy of the options that the caller gave (NULL: the defaults), whose struct may be
 * shorter or longer than this runtime's. With `single` those of beam search are not read. TFM_E_INPUT: a value is out
 * of its range for so many tokens. */
tfm_status options_complete(const tfm_generate_options *given, int64_t vocab, bool single,
                            tfm_generate_options *options, tfm_error *error);

// ---- logit_options.c ----

/* Whether the options change scores of tokens that stand in the row. */
static inline bool options_penalise(const tfm_generate_options *o) {
  return o->repetition_penalty != 1 || o->presence_penalty != 0 || o->frequency_penalty != 0;
}
/* Whether the scores are made log probabilities again. Without beams no token depends on it. */
static inline bool options_renormalise(const tfm_generate_options *o) {
  return o->renormalize_logits && o->num_beams > 1;
}
/* What the options do to the scores of a row, which has no changed tokens yet. */
tfm_status row_apply_options(Chooser *chooser, const RowText *text, RowScores *row);
/* Writes all scores into row->scores: then no token is changed, the shift is 0, and the bounds are exact. */
void row_settle(const Chooser *chooser, RowScores *row);

// ---- sample.c: rows without a shift, of which some token is allowed ----

void sample_restrict(Chooser *chooser, RowScores *row); /* temperature, top_k, top_p, min_p */
/* What a token is drawn from. Overwrites the scores, as a draw does. */
void sample_probabilities(const Chooser *chooser, const RowScores *row, float *probabilities);
/* The token that is drawn; *score is the log of its probability. */
int64_t sample_draw(const Chooser *chooser, const RowScores *row, tfm_stream *stream, float *score);

// ---- choose.c ----

/* The token with the largest score, the lowest of equal ones, if the shift is 0; TFM_NO_TOKEN: all are forbidden. */
int64_t row_best(const Chooser *chooser, const RowScores *row);
/* The next token of a row to which the options were applied, by sampling or the largest score; TFM_NO_TOKEN: all are
 * forbidden. *score is the log of its probability among those it was chosen from, where sampling or
 * return_token_scores asks for it. */
int64_t row_choose(Chooser *chooser, RowScores *row, tfm_stream *stream, float *score);

#endif
