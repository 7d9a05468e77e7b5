/* Generation: the state that the parts of the decoding loop share while tfm_generate runs.
 *
 * generate.c makes a Generation and calls one of the loops (sample.c, beam.c). A loop adds rows, asks the model for
 * their logits (generate_call.c), and looks at one row after the other: the options change its logits
 * (generate_options.c), then a token is chosen. generate_rows.c has memory, refusals and the result,
 * generate_options.c the options. Calls go in this direction only. All memory of a Generation is freed at its end, but
 * for TokenRows, which their loop frees, and the result, which becomes the caller's.
 *
 * All of it computes in the runtime's floating-point mode, so that scores have the same bits whatever the caller's mode
 * is. Functions of the caller, the model's too, run in the caller's mode, which is put back at the end. */
#ifndef TFM_RUNTIME_GENERATION_STATE_H
#define TFM_RUNTIME_GENERATION_STATE_H

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

// ---- a generation ----

typedef struct Item { /* an item of the batch */
  int64_t start, limit; /* tokens of its prompt; of the whole row, at most */
  int64_t padding;      /* tokens at its beginning that are padding */
} Item;

/* n rows of tokens that grow: row i begins at tokens + i * stride. */
typedef struct TokenRows {
  int32_t *tokens;
  int64_t n, stride;
} TokenRows;

typedef struct ChangedScore { /* a token whose score is not the model's logit less the shift */
  int64_t token;
  float score;
} ChangedScore;

typedef struct Generation {
  const tfm_generate_model *model;
  const tfm_prompts *prompts;
  tfm_generate_options options; /* complete and legal */
  int32_t pad;
  int64_t n_items, vocab, beams;
  int64_t widest; /* the longest prompt */
  Item *items;
  /* The call for logits: rows are added to it, then it is made. */
  int64_t n_rows;
  const int32_t **row_tokens;
  int64_t *row_lengths, *row_items, *row_parents;
  float *scores; /* [n_rows][vocab]: logits, which process_row changes in place */
  float *bounds; /* [n_rows][blocks]: the largest logit of each ROW_BLOCK tokens */
  float *logsumexp; /* [n_rows], if the model gives it; else NULL */
  double *shifts;   /* [n_rows]: what is taken from each logit: in beam search the logsumexp, else 0 */
  ChangedScore *changed;   /* [vocab]: of the row that is looked at */
  uint32_t *stamps, stamp; /* [vocab]: which tokens stand in a row */
  /* In place of scores and bounds, if `best` is there: see generate_call.c. */
  tfm_best_token *best;    /* [n_rows][n_best] */
  int64_t n_best;
  uint64_t *apart;         /* [n_rows][row_words]; NULL: the options concern no tokens */
  HeapEntry *heap;         /* of `heap_size` entries */
  int64_t heap_size;
  bool is_stopped; /* by the caller */
  uint64_t callers_mode; /* of floating-point numbers */
  void *blocks[24];
  int n_blocks;
  tfm_error *error;
} Generation;

/* Around each call of a function of the caller's. A mode that it sets is the caller's from then on. */
static inline void generation_enter_caller(const Generation *g) { fp_mode_leave(g->callers_mode); }
static inline void generation_leave_caller(Generation *g) { g->callers_mode = fp_mode_enter(); }

// ---- generate_rows.c ----

/* Memory that is freed with the generation, filled with zeroes; NULL: there is none. */
void *generation_allocate(Generation *g, int64_t count, size_t size);
tfm_status generation_no_memory(Generation *g);
/* TFM_E_INPUT with this message. */
tfm_status generation_refuse(Generation *g, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The room that rows begin with: the length of the longest row, or enough that a longer one is rare. */
int64_t generation_first_length(const Generation *g);
/* Room for n rows of `length`, which the caller frees with token_rows_free. False: no memory. */
bool token_rows_make(TokenRows *rows, int64_t n, int64_t length);
/* Makes rows longer, if need be. Rows that were not made stay unmade. False: no memory; the rows are as they were. */
bool token_rows_reserve(TokenRows *rows, int64_t length);
void token_rows_free(TokenRows *rows);
static inline int32_t *token_row(const TokenRows *rows, int64_t i) { return rows->tokens + i * rows->stride; }
/* Rows that hold the scores of tokens in place of tokens. */
static inline float *score_row(const TokenRows *rows, int64_t i) { return (float *)(void *)token_row(rows, i); }
void generation_tell(Generation *g, int64_t item, int32_t token); /* on_token, which may stop the generation */
/* Copies the prompt of an item to the beginning of a row. */
void generation_copy_prompt(const Generation *g, int64_t item, int32_t *row);

// ---- generate_call.c ----

/* Adds a row of `length` tokens to the call. `tokens` must stay valid until the call is made. */
void generation_add_row(Generation *g, int64_t item, int64_t parent, const int32_t *tokens, int64_t length);
/* Asks the model for the logits of the rows that were added and finds their bounds, or asks for their best tokens. A
 * row whose logits are NaN or +inf, or all -inf, is an error. */
tfm_status generation_call(Generation *g);
/* Refusals of a row of the call: logits that are NaN or +inf, or all -inf. */
tfm_status generation_refuse_scores(Generation *g, int64_t row, bool are_numbers);
/* Every token of a row is forbidden, so there is nothing to choose. */
tfm_status generation_refuse_row(Generation *g, int64_t item, int64_t length);
static inline float *generation_row_scores(const Generation *g, int64_t row) { return g->scores + row * g->vocab; }
bool generation_is_eos(const Generation *g, int64_t token);

// ---- generate_options.c ----

/* Completes the options and checks them against the vocabulary and the prompts; fills the items. */
tfm_status generation_read_options(Generation *g, const tfm_generate_options *given);
// ---- generate_options.c: what they do to the logits of a row ----

/* The scores of one row, from which a token is chosen. The score of a token is scores[token] - shift, or, for the
 * tokens in Generation.changed, the one there, and scores[token] is then -inf. So only the tokens that the options
 * concern are touched, and not the whole vocabulary. */
typedef struct RowScores {
  float *scores;
  float *bounds;    /* of each block: no score is greater */
  int64_t n_blocks; /* 0: only the changed tokens have scores */
  int64_t item, n_changed;
  double shift;
} RowScores;

static inline float row_score(const RowScores *row, int64_t token) {
  return (float)((double)row->scores[token] - row->shift);
}

/* What the options do to row `number` of the call. The row is valid until the next one is processed. */
tfm_status process_row(Generation *g, int64_t number, RowScores *row);
/* Writes all scores into row->scores: then no token is changed, the shift is 0, and the bounds are exact. */
void row_settle(const Generation *g, RowScores *row);
/* The token with the largest score, the lowest of equal ones, if the shift is 0; TFM_NO_TOKEN: all are forbidden. */
int64_t row_best(const Generation *g, const RowScores *row);
// ---- generate_call.c: the best tokens in place of all logits ----

/* Decides whether the loop asks for the best tokens alone, and makes room for them. False: no memory. */
bool best_make(Generation *g);
/* process_row for a row of either kind of call; all tokens of a row of best tokens are changed ones. */
tfm_status generation_process_row(Generation *g, int64_t number, RowScores *row);
// ---- sample.c: rows without a shift, of which some token is allowed ----

void sample_restrict(Generation *g, RowScores *row); /* temperature, top_k, top_p */
/* What a token is drawn from. Overwrites the scores, as a draw does. */
void sample_probabilities(const Generation *g, const RowScores *row, float *probabilities);

typedef struct Stream { /* PCG-XSH-RR 64/32 (O'Neill, PCG, 2014) */
  uint64_t state, increment;
} Stream;

Stream stream_new(uint64_t seed, uint64_t number);
/* The token that is drawn; *score is the log of its probability. */
int64_t sample_draw(const Generation *g, const RowScores *row, Stream *stream, float *score);

// ---- the loops ----

/* Both fill `generated`, whose memory is the caller's from then on, even after an error. */
tfm_status generate_single(Generation *g, tfm_generated *generated);
tfm_status generate_beams(Generation *g, tfm_generated *generated);
/* generate_rows.c: memory for n rows of `width` tokens, all padding. */
tfm_status generated_make(Generation *g, tfm_generated *generated, int64_t n, int64_t width, bool has_scores);

#endif
