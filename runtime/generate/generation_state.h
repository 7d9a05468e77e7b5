/* Generation: the state that the parts of the decoding loop share while tfm_generate runs.
 *
 * generate.c makes a Generation and calls one of the loops (greedy_and_sampling.c, beam.c). A loop adds rows, asks the
 * model for their logits (generate_call.c), and looks at one row after the other: the options change its logits, then a
 * token is chosen (choose.h). generate_rows.c has memory, refusals and the result, generate_options.c the options.
 * Calls go in this direction only. All memory of a Generation is freed at its end, but for TokenRows, which their loop
 * frees, and the result, which becomes the caller's.
 *
 * All of it computes in the runtime's floating-point mode, so that scores have the same bits whatever the caller's mode
 * is. Functions of the caller, the model's too, run in the caller's mode, which is put back at the end. */
#ifndef TFM_RUNTIME_GENERATION_STATE_H
#define TFM_RUNTIME_GENERATION_STATE_H

#include <stdbool.h>

#include "base/error.h"
#include "generate/loops/choose.h"
#include "tfm/generate.h"

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
  float *scores; /* [n_rows][vocab]: logits, which the options change in place */
  float *bounds; /* [n_rows][blocks]: the largest logit of each ROW_BLOCK tokens */
  float *logsumexp; /* [n_rows], if the model gives it; else NULL */
  double *shifts;   /* [n_rows]: what is taken from each logit: in beam search the logsumexp, else 0 */
  Chooser chooser;  /* for the row that is looked at; its options are those above */
  /* In place of scores and bounds, if `best` is there: see generate_call.c. */
  tfm_best_token *best;    /* [n_rows][n_best] */
  int64_t n_best;
  uint64_t *apart;         /* [n_rows][row_words]; NULL: the options concern no tokens */
  int64_t heap_size; /* entries of chooser.heap */
  bool is_stopped; /* by the caller */
  void *blocks[32];
  int n_blocks;
  tfm_error *error;
} Generation;

/* Around each call of a function of the caller's. A mode that it sets is the caller's from then on. */
static inline void generation_enter_caller(const Generation *g) { chooser_enter_caller(&g->chooser); }
static inline void generation_leave_caller(Generation *g) { chooser_leave_caller(&g->chooser); }

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
/* The same for rows of which the last guesses[i] tokens are guesses. Afterwards the call has guesses[i] + 1 rows in
 * place of row i, each a guess longer, whose logits are not checked yet: most are looked at only if the guesses before
 * are right, and a wrong one may give logits that are no numbers. */
tfm_status generation_call_guessed(Generation *g, const int64_t *guesses);
/* Refuses a row of the call whose logits are NaN or +inf, or all -inf. */
tfm_status generation_check_row(Generation *g, int64_t row);
/* Refusals of a row of the call: logits that are NaN or +inf, or all -inf. */
tfm_status generation_refuse_scores(Generation *g, int64_t row, bool are_numbers);
/* Every token of a row is forbidden, so there is nothing to choose. */
tfm_status generation_refuse_row(Generation *g, int64_t item, int64_t length);
static inline bool generation_is_guessing(const Generation *g) {
  return g->beams == 1 && g->options.guesses && g->model->guessed;
}
static inline float *generation_row_scores(const Generation *g, int64_t row) { return g->scores + row * g->vocab; }
bool generation_is_eos(const Generation *g, int64_t token);

// ---- generate_options.c ----

/* Completes the options and checks them against the vocabulary and the prompts; fills the items. */
tfm_status generation_read_options(Generation *g, const tfm_generate_options *given);
// ---- generate_call.c: the best tokens in place of all logits ----

/* Decides whether the loop asks for the best tokens alone, and makes room for them. False: no memory. */
bool best_make(Generation *g);
/* What the options do to row `number` of the call (choose.h), of either kind of call; all tokens of a row of best
 * tokens are changed ones. The row is valid until the next one is processed. */
tfm_status generation_process_row(Generation *g, int64_t number, RowScores *row);
// ---- the loops ----

/* Both fill `generated`, whose memory is the caller's from then on, even after an error. */
tfm_status generate_single(Generation *g, tfm_generated *generated);
tfm_status generate_beams(Generation *g, tfm_generated *generated);
/* generate_rows.c: memory for n rows of `width` tokens, all padding. */
tfm_status generated_make(Generation *g, tfm_generated *generated, int64_t n, int64_t width, bool has_scores);

#endif
