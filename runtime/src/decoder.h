/* The decoder: rows of tokens over a tfm_decoding, the memory of what they computed, and its two contexts.
 *
 * All memory is there after begin (decoder_begin.c): tables, pages, room for the tensors of a run. Rows are made, copied and
 * ended in decoder_rows.c; decoder_step.c is a step as a whole; decoder_cut.c cuts it into runs of rows that have the same
 * number of positions; decoder_run.c executes them, as many together as there is room for. */
#ifndef TFM_RUNTIME_DECODER_H
#define TFM_RUNTIME_DECODER_H

#include "cache_pages.h"
#include "decoder_best.h"
#include "tfm/decode.h"

typedef struct DecoderRow {
  bool exists, in_call; /* in_call: the present step has it */
  int64_t item, length;
  PageList own;
  char *flat; /* caches that are tensors, of this row alone; NULL: nothing was written yet */
  char *next_flat; /* what they become when the step succeeds; NULL: as they are */
} DecoderRow;

typedef struct StepInput { /* of the step program, beside tfm_step_input */
  char *staging;           /* where its tensor for a run is put together */
  char *result;            /* is_cache: where a run writes its next value */
  int64_t staging_row, result_row; /* bytes of a row there; of a cache: those of the longest */
  int64_t flat_offset;     /* is_cache: in a row's flat block */
  const char *kept;        /* others: the output of the source program */
} StepInput;

typedef struct DecoderBlock {
  char *memory;
  int64_t bytes;
} DecoderBlock;

enum { BLOCK_TABLES, BLOCK_OWN, BLOCK_SOURCE, BLOCK_FLAT, BLOCK_OUTPUTS, BLOCK_STAGING, N_BLOCKS };

enum {
  RUN_TOKENS = 512, /* most new tokens of a run that has several of one row: bounds the workspace */
  LEAST_KEPT = 16,  /* so many rows of scores per run have their room from the beginning */
  MOST_TOGETHER = 32 /* runs that are executed together */
};

typedef struct Gathered { /* what is in staging at the place of a row: its item's tensors, in a run of these rows */
  int64_t item, first, rows;
} Gathered;

struct tfm_decoder {
  const tfm_decoding *decoding;
  tfm_allocator allocator;
  size_t bytes; /* of the block that holds the decoder and the two arrays behind it */
  BestSearch best; /* if step->consumer is there */
  tfm_context *source, *step; /* source: NULL if there is none; the threads are those of `step` */
  tfm_context *beside[MOST_TOGETHER - 1]; /* for runs together with one of `step`: as many as there may be */
  StepInput *inputs;
  int64_t *symbols; /* of the step */
  DecoderBlock blocks[N_BLOCKS];

  /* Since the last begin. */
  bool begun;
  int64_t items, max_rows, max_length;
  int64_t longest; /* at most max_length: what the checks of the model allow */
  int64_t pages_per_row, pages_per_item, flat_bytes; /* flat_bytes: of a row; 0: no such caches */
  PagePool own_pages, flat_pages;
  DecoderRow *rows, *spare; /* max_rows each; spare: what reorder puts the new rows into */
  float **item_pages;       /* [items][pages_per_item] */
  int64_t most_together;    /* runs */
  /* Of the present step, and of the present runs together. */
  int64_t *members;         /* [max_rows] numbers in the call: rows of a kind follow one another */
  uint8_t *done;            /* [max_rows] of the call */
  DecoderRow **run_rows;    /* [max_rows] */
  const char **parts;       /* [max_rows] for gathering */
  float *const **own_lists, *const **source_lists; /* [max_rows] */
  CacheRows caches[MOST_TOGETHER];
  Gathered *gathered;       /* [max_rows] */
  int32_t *tokens;          /* [most tokens of a run] */
  float *scores;            /* [max_rows][vocab], for rows that are not side by side in the caller's memory */
  float *log_sums;          /* [max_rows] */
  tfm_decoder_row *model_rows; /* [max_rows] for tfm_decoder_model */
};

static inline bool decoder_has_rows(const tfm_decoder *decoder) { return decoder->decoding->rows != TFM_NONE; }
/* The step's inputs are the tokens, caches that are passed on as tensors, and what comes from the source program. */
static inline bool input_is_flat_cache(const tfm_decoding *decoding, uint32_t input) {
  return input != decoding->tokens && decoding->inputs[input].is_cache;
}
static inline bool input_is_of_source(const tfm_decoding *decoding, uint32_t input) {
  return input != decoding->tokens && !decoding->inputs[input].is_cache;
}
/* New tokens per row of a run of n rows, at most. */
static inline int64_t decoder_chunk(int64_t n) { return greatest_of(1, RUN_TOKENS / n); }

/* A tensor in which each of several rows has a part per outer index: [outer][rows][bytes]. */
typedef struct Parts {
  int64_t outer, bytes;
} Parts;
Parts parts_of(const tfm_tensor_info *info, const int64_t *dims, uint32_t batch_axis, int64_t rows);

/* The sizes of a run in decoder->symbols. */
void decoder_set_symbols(tfm_decoder *decoder, int64_t rows, int64_t past, int64_t fresh, int64_t kept);

/* Rows of the call that have the same number of positions, `past`, and get the same number of tokens, `fresh`. */
typedef struct DecoderRun {
  const int64_t *members;  /* their numbers in the call */
  int64_t rows, first;     /* decoder->run_rows[first...first + rows) */
  int64_t first_token;     /* in decoder->tokens: [rows][fresh] */
  int64_t past, fresh, kept;
  float *scores, *log_sums; /* NULL: not wanted */
  const tfm_best_call *best;    /* wanted in place of the scores, or NULL; the same for all runs together */
} DecoderRun;
/* Executes runs whose rows, members and tokens follow one another; the pages are ready. Rows change in their pages behind
 * `past` and in next_flat. */
tfm_status decoder_run(tfm_decoder *decoder, const DecoderRun *runs, int64_t n, tfm_error *error);

/* What tfm_decoder_step is called with. */
typedef struct DecoderCall {
  const tfm_decoder_row *rows;
  int64_t n, kept;
  float *scores, *log_sums;
  const tfm_best_call *best; /* NULL, or in place of the scores and sums: kept is 1 */
} DecoderCall;
/* decoder_cut.c: executes a call that is checked, of rows whose pages have room. */
tfm_status decoder_run_call(tfm_decoder *decoder, const DecoderCall *call, tfm_error *error);
static inline DecoderRow *decoder_row_of(const tfm_decoder *decoder, const DecoderCall *call, int64_t member) {
  return &decoder->rows[call->rows[member].row];
}

/* A step that gives the best token after the last one of each row; the decoder must have it (step->consumer). */
tfm_status decoder_step_best(tfm_decoder *decoder, int64_t n, const tfm_decoder_row *rows, const tfm_best_call *best,
                             tfm_error *error);

tfm_status decoder_refuse(tfm_error *error, tfm_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Refuses a row that does not exist. */
tfm_status decoder_check_row(const tfm_decoder *decoder, int64_t row, tfm_error *error);
void decoder_forget_rows(tfm_decoder *decoder);

#endif
