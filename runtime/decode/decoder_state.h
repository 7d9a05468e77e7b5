/* The state of a decoder: rows of tokens over a tfm_decoding, the memory of what they computed, and its two contexts.
 *
 * It has parts, each with the file that writes it; everybody may read them:
 *   Rows      rows.c        the rows of tokens: they join, are copied, are cut short, leave
 *   Sources   sources.c     the items that rows read, and what the encoder program computed of them
 *   Caches    row_caches.c  the memory of the rows: pages of keys and values, and caches that are tensors
 *   Calls     calls.c       a step while it is under way: cut into runs of rows with the same number of positions
 *   Staging   staging.c     the tensors of a run that are put together from those of its rows
 *   Lockstep  lockstep.c    the contexts that execute several runs together
 *
 * A part's members are assigned in its own file alone, which check_house.py holds. Files call those that stand below
 * them here, and no others; blocks of memory and the sizes of a run are in decoder_memory.c, which all of them call:
 *
 *   decoder.c       a decoder's life          calls.c     a step
 *   rows.c                                    lockstep.c
 *   sources.c (with source_batch.c)
 *   staging.c
 *   row_caches.c */
#ifndef TFM_RUNTIME_DECODER_STATE_H
#define TFM_RUNTIME_DECODER_STATE_H

#include "decode/cache_pages.h"
#include "decode/loops/best_tokens.h"
#include "steps/run_call.h"
#include "tfm/decode.h"

enum {
  LEAST_KEPT = 16,  /* rows of logits of a run whose room is made at the beginning */
  MOST_TOGETHER = 32 /* lockstep runs, at most */
};

typedef struct DecoderBlock { /* memory that grows; what is in it is lost then */
  char *memory;
  int64_t bytes;
} DecoderBlock;

// ---- Sources ----

typedef struct SourceGroup { /* items of a batch whose sources have the same sizes; a run has rows of one group */
  int64_t first, n;    /* batch->order[first...first + n) */
  int64_t *symbols;    /* sizes of the encoder program */
  int64_t pages;       /* of each item */
  int64_t kept_offset; /* of its tensors in batch->outputs */
  const char **kept;   /* [inputs of the step]: the output of the encoder program that it is */
  int64_t longest;     /* tokens of a row: what the checks of the model and the caches allow */
} SourceGroup;

typedef struct SourceItem {
  const SourceGroup *group; /* NULL: there is no such item */
  int64_t place;            /* which of the group's items it is */
  float **pages;
} SourceItem;

typedef struct SourceBatch { /* items that were added together; a list */
  struct SourceBatch *next;
  int64_t first, n, left; /* items [first, first + n) of the decoder; those that were not dropped */
  int64_t *order;         /* [n] numbers of the batch's items: those of a group follow one another */
  SourceItem *item;       /* [n], as the decoder's items are once the batch is complete */
  SourceGroup *groups;    /* without an encoder program one, without sizes */
  float **lists;          /* the pages of all items, one list after the other */
  int64_t n_groups, n_pages, passing_bytes; /* passing_bytes: of a group's outputs that only fill pages, at most */
  DecoderBlock tables, list_block, pages, outputs;
} SourceBatch;

typedef struct Sources {
  int64_t most, n;   /* items there may be, and are */
  SourceItem *item;  /* [most] */
  bool limits;       /* there are: else the sizes are those of the only batch */
  int64_t *sizes;    /* of the encoder program, at most */
  SourceBatch *used, *unused; /* unused: with the memory they had, for the next one */
  DecoderBlock block;
} Sources;

typedef struct RunSizes { /* of a run of the step program */
  const SourceGroup *group;
  int64_t rows, past, fresh, kept;
} RunSizes;

// ---- Rows ----

typedef struct DecoderRow { /* a row of tokens: what it has in caches, not the tokens themselves */
  bool exists, in_call; /* in_call: the step that is being checked names it */
  int64_t item, length;
  PageList own; /* pages of what it computed; those of its source are the item's */
  char *flat; /* caches that are tensors (tfm_step_input); NULL: nothing was written yet */
  char *next_flat; /* what they become when the step succeeds; NULL: as they are */
  char *before;    /* what they were before the last step, of a model with states; NULL: gone, or before_length is 0 */
  int64_t before_length; /* tokens then */
} DecoderRow;

typedef struct Rows {
  int64_t most, length; /* rows there may be; tokens of one, as the caller said */
  DecoderRow *row, *spare; /* [most] each; spare: what reorder puts the new rows into */
  DecoderBlock block;
} Rows;

// ---- Caches ----

typedef struct Caches {
  int64_t longest;       /* tokens of a row that there is room for */
  int64_t pages_per_row; /* of a row at its longest */
  int64_t flat_bytes;    /* of a row; 0: no caches are tensors */
  bool has_states;       /* a row can be cut to few lengths only */
  PagePool own, flat;    /* flat: twice as many as rows, since a step has the old and the next ones */
  DecoderBlock tables, own_block, flat_block;
} Caches;

// ---- Calls ----

typedef struct Calls {
  int64_t most_rows;        /* rows of a call */
  int64_t most_kept;        /* rows of logits of lockstep runs, unless they go straight to the caller */
  int64_t *members;         /* [most_rows] numbers in the call: rows of a kind follow one another */
  int64_t *places;          /* [most_rows] of the call: which row of its logits is the first of each */
  uint8_t *done;            /* [most_rows] of the call */
  DecoderRow **run_rows;    /* [most_rows] */
  int32_t *tokens;          /* [most tokens of a run] */
  float *logits;            /* [most_kept][vocab], for rows that are no neighbours in the caller's memory */
  float *logsumexp;         /* [most_kept] */
  tfm_decoder_row *model_rows; /* [most_rows] for tfm_decoder_model */
  tfm_decoder_row *written;    /* [rows of a tfm_decoder_write], in `writing` */
  DecoderBlock tables, writing; /* writing: what tfm_decoder_write needs, from its first call on */
} Calls;

// ---- Staging ----

typedef struct StepInput { /* an input of the step program; what tfm_step_input does not say */
  char *staging;           /* where its tensor for a run is put together */
  char *result;            /* is_cache: where a run writes its next value */
  int64_t staging_row, result_row; /* bytes of a row there, at most */
  int64_t flat_offset;     /* is_cache: in a row's flat block */
} StepInput;

typedef struct Gathered { /* what is in staging at the place of a row: its item's tensors, in a run of these rows */
  int64_t item, first, rows;
} Gathered;

typedef struct Staging {
  StepInput *inputs;  /* [inputs of the step] */
  const char **parts; /* [rows of a call] for gathering */
  Gathered *gathered; /* [rows of a call] */
  DecoderBlock tables, block;
} Staging;

// ---- Lockstep ----

typedef struct Lockstep {
  int64_t most; /* runs together, at most */
  tfm_context *context[MOST_TOGETHER - 1]; /* for runs beside that of `step` */
  float *const **own_lists, *const **source_lists; /* [rows of a call] pages of the rows of all runs */
  RunPart parts[MOST_TOGETHER]; /* of a call */
  DecoderBlock block;
} Lockstep;

// ---- the decoder ----

struct tfm_decoder {
  const tfm_decoding *decoding;
  tfm_allocator allocator;
  size_t bytes; /* of the block that holds the decoder and the two arrays behind it */
  BestSearch best; /* if it has a step */
  tfm_context *source, *step; /* source: NULL if there is none; the threads are those of `step` */
  int64_t *symbols; /* scratch of decoder_set_sizes */
  bool begun;
  Rows rows;
  Sources sources;
  Caches caches;
  Calls calls;
  Staging staging;
  Lockstep lockstep;
};

static inline bool decoder_has_rows(const tfm_decoder *decoder) { return decoder->decoding->rows != TFM_NONE; }
/* Sizes of the encoder program; 0 if there is none. */
static inline uint32_t source_sizes(const tfm_decoder *decoder) {
  return decoder->source ? decoder->source->program->n_symbols : 0;
}
/* An input of the step is the decoder input, a cache that is a tensor, or an output of the encoder program. */
static inline bool input_is_flat_cache(const tfm_decoding *decoding, uint32_t input) {
  return input != decoding->decoder_input && decoding->inputs[input].is_cache;
}
static inline bool input_is_state(const tfm_decoding *decoding, uint32_t input) {
  return input_is_flat_cache(decoding, input) && decoding->inputs[input].first != TFM_FIRST_NOTHING;
}
static inline bool input_is_of_encoder(const tfm_decoding *decoding, uint32_t input) {
  return input != decoding->decoder_input && !decoding->inputs[input].is_cache;
}
static inline const SourceGroup *group_of_row(const tfm_decoder *decoder, const DecoderRow *row) {
  return decoder->sources.item[row->item].group;
}

#endif
