/* The decoder: rows of tokens over a tfm_decoding, the memory of what they computed, and its two contexts.
 *
 * tfm_decoder_begin (decoder.c) allocates all memory: tables, pages, room for the tensors of a run. The sources are
 * computed in sources.c, by groups of items with the same sizes. Rows join, are copied and leave in decoder_step.c,
 * which also cuts a step into runs of rows that have the same number of positions; lockstep.c executes the runs, as
 * many together as there is room for. */
#ifndef TFM_RUNTIME_DECODER_H
#define TFM_RUNTIME_DECODER_H

#include "decode/cache_pages.h"
#include "decode/best_tokens.h"
#include "machine/tuning.h"
#include "tfm/decode.h"

typedef struct DecoderRow { /* a row of tokens: what it has in caches, not the tokens themselves */
  bool exists, in_call; /* in_call: the step that is being checked names it */
  int64_t item, length;
  PageList own;
  char *flat; /* caches that are tensors (tfm_step_input); NULL: nothing was written yet */
  char *next_flat; /* what they become when the step succeeds; NULL: as they are */
} DecoderRow;

typedef struct StepInput { /* an input of the step program; what tfm_step_input does not say */
  char *staging;           /* where its tensor for a run is put together */
  char *result;            /* is_cache: where a run writes its next value */
  int64_t staging_row, result_row; /* bytes of a row there, at most */
  int64_t flat_offset;     /* is_cache: in a row's flat block */
} StepInput;

typedef struct SourceItem {
  int64_t group, place; /* place: which of the group's items it is */
  float **pages;
} SourceItem;

typedef struct SourceGroup { /* items whose sources have the same sizes; a run has rows of one group */
  int64_t first, n;    /* decoder->order[first...first + n) */
  int64_t *symbols;    /* sizes of the encoder program */
  int64_t pages;       /* of each item */
  int64_t kept_offset; /* of its tensors in BLOCK_OUTPUTS */
  const char **kept;   /* [inputs of the step]: the output of the encoder program that it is */
  int64_t longest;     /* tokens of a row, at most max_length: what the checks of the model allow */
} SourceGroup;

typedef struct DecoderBlock {
  char *memory;
  int64_t bytes;
} DecoderBlock;

enum { BLOCK_ITEMS, BLOCK_TABLES, BLOCK_OWN, BLOCK_SOURCE, BLOCK_FLAT, BLOCK_OUTPUTS, BLOCK_STAGING, N_BLOCKS };

enum {
  LEAST_KEPT = 16,  /* rows of logits of a run whose room is made by tfm_decoder_begin */
  MOST_TOGETHER = 32 /* lockstep runs, at most */
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
  tfm_context *lockstep[MOST_TOGETHER - 1]; /* for lockstep runs beside that of `step` */
  StepInput *inputs;
  int64_t *symbols; /* of the step */
  DecoderBlock blocks[N_BLOCKS];

  /* Since the last begin. */
  bool begun;
  int64_t items, max_rows, max_length;
  SourceItem *item;    /* [items] */
  int64_t *order;      /* [items] numbers of items: those of a group follow one another */
  SourceGroup *groups; /* without an encoder program one, without sizes */
  int64_t n_groups, n_item_pages, passing_bytes; /* passing_bytes: of a group's outputs that only fill pages, at most */
  int64_t longest;     /* of all groups */
  int64_t pages_per_row, flat_bytes; /* flat_bytes: of a row; 0: no such caches */
  PagePool own_pages, flat_pages;
  DecoderRow *rows, *spare; /* max_rows each; spare: what reorder puts the new rows into */
  float **item_pages;       /* [n_item_pages] lists of the items */
  int64_t most_together;    /* lockstep runs of this batch, at most */
  /* Of the present step, and of the present lockstep runs. */
  int64_t *members;         /* [max_rows] numbers in the call: rows of a kind follow one another */
  uint8_t *done;            /* [max_rows] of the call */
  DecoderRow **run_rows;    /* [max_rows] */
  const char **parts;       /* [max_rows] for gathering */
  float *const **own_lists, *const **source_lists; /* [max_rows] */
  CacheRows caches[MOST_TOGETHER];
  Gathered *gathered;       /* [max_rows] */
  int32_t *tokens;          /* [most tokens of a run] */
  float *logits;            /* [max_rows][vocab], for rows that are no neighbours in the caller's memory */
  float *logsumexp;          /* [max_rows] */
  tfm_decoder_row *model_rows; /* [max_rows] for tfm_decoder_model */
};

static inline bool decoder_has_rows(const tfm_decoder *decoder) { return decoder->decoding->rows != TFM_NONE; }
/* An input of the step is the decoder input, a cache that is a tensor, or an output of the encoder program. */
static inline bool input_is_flat_cache(const tfm_decoding *decoding, uint32_t input) {
  return input != decoding->decoder_input && decoding->inputs[input].is_cache;
}
static inline bool input_is_of_encoder(const tfm_decoding *decoding, uint32_t input) {
  return input != decoding->decoder_input && !decoding->inputs[input].is_cache;
}
/* New tokens of each row in a run of n rows, at most. */
static inline int64_t decoder_chunk(int64_t n) { return greatest_of(1, RUN_TOKENS / n); }

/* A tensor in which each of several rows has a part per outer index: [outer][rows][bytes]. */
typedef struct Parts {
  int64_t outer, bytes;
} Parts;
Parts parts_of(const tfm_tensor_info *info, const int64_t *dims, uint32_t batch_axis, int64_t rows);

/* The sizes of a run in decoder->symbols. */
void decoder_set_symbols(tfm_decoder *decoder, const SourceGroup *group, int64_t rows, int64_t past, int64_t fresh,
                         int64_t kept);
static inline const SourceGroup *group_of_row(const tfm_decoder *decoder, const DecoderRow *row) {
  return &decoder->groups[decoder->item[row->item].group];
}

/* Rows of the call that have the same number of positions, `past`, get the same number of tokens, `fresh`, and read
 * sources of the same sizes. */
typedef struct DecoderRun {
  const SourceGroup *group;
  const int64_t *members;  /* their numbers in the call */
  int64_t rows, first;     /* decoder->run_rows[first...first + rows) */
  int64_t first_token;     /* in decoder->tokens: [rows][fresh] */
  int64_t past, fresh, kept;
  float *logits, *logsumexp; /* NULL: not wanted */
  const tfm_best_call *best;    /* wanted in place of the logits, or NULL; the same for all lockstep runs */
} DecoderRun;
/* Executes runs whose rows, members and tokens follow one another, as many in lockstep as there is room for. The pages
 * are ready. Rows change only in their pages from `past` on and in next_flat, so that a failure leaves them as they
 * were. */
tfm_status decoder_run(tfm_decoder *decoder, const DecoderRun *runs, int64_t n, tfm_error *error);

/* What tfm_decoder_step is called with. */
typedef struct DecoderCall {
  const tfm_decoder_row *rows;
  int64_t n, kept;
  float *logits, *logsumexp;
  const tfm_best_call *best; /* NULL, or wanted in place of the logits and sums: kept is 1 */
} DecoderCall;
static inline DecoderRow *decoder_row_of(const tfm_decoder *decoder, const DecoderCall *call, int64_t member) {
  return &decoder->rows[call->rows[member].row];
}

/* A step that gives the best tokens after the last token of each row. The decoder must have a consumer
 * (step->decoding.consumer). */
tfm_status decoder_step_best(tfm_decoder *decoder, int64_t n, const tfm_decoder_row *rows, const tfm_best_call *best,
                             tfm_error *error);

// ---- sources.c ----

/* What tfm_decoder_begin is called with. */
typedef struct SourceInputs {
  const tfm_value *given;
  const int64_t *const *lengths; /* [sizes of the encoder program][items]; NULL: all items have all of it */
} SourceInputs;
/* Forms the groups of items, checks the inputs of every item, and makes room for what the encoder program computes of
 * them. */
tfm_status sources_bind(tfm_decoder *decoder, const SourceInputs *inputs, tfm_error *error);
/* Gives all items their pages, in the room that sources_bind made. decoder->item_pages must be there. */
void sources_place_pages(tfm_decoder *decoder);
/* Runs the encoder program for all groups and fills the pages of the items. */
tfm_status sources_run(tfm_decoder *decoder, const SourceInputs *inputs, tfm_error *error);

/* The error with the item's number in front of its message. */
tfm_status decoder_name_item(tfm_status status, int64_t item, tfm_error *error);

/* Makes a block at least `bytes` long; its contents are lost. False: no memory. */
bool decoder_reserve_block(tfm_decoder *decoder, int block, int64_t bytes);
/* Bytes of an input or an output of a program for the dims that its context has. */
int64_t decoder_input_bytes(const tfm_context *context, uint32_t input);
int64_t decoder_output_bytes(const tfm_context *context, uint32_t output);

/* Refuses a row that does not exist. */
tfm_status decoder_check_row(const tfm_decoder *decoder, int64_t row, tfm_error *error);
/* Removes all rows. */
void decoder_forget_rows(tfm_decoder *decoder);

#endif
