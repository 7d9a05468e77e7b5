/* The tensors of the runs of a decoder. See staging.c. */
#ifndef TFM_RUNTIME_STAGING_H
#define TFM_RUNTIME_STAGING_H

#include "decode/decoder_state.h"

/* A tensor in which each of several rows has a part per outer index: [outer][rows][bytes]. */
typedef struct Parts {
  int64_t outer, bytes;
} Parts;
Parts parts_of(const tfm_tensor_info *info, const int64_t *dims, uint32_t batch_axis, int64_t rows);

/* Rows of the call that have the same number of positions, `past`, get the same number of tokens, `fresh`, and read
 * sources of the same sizes. */
typedef struct DecoderRun {
  RunSizes sizes;
  const int64_t *members;  /* their numbers in the call */
  int64_t first;           /* calls.run_rows[first...first + sizes.rows) */
  int64_t first_token;     /* in calls.tokens: [rows][fresh] */
  int64_t first_kept;      /* rows of logits of the runs before it */
  bool wants;              /* logits, sums or the best tokens */
  float *logits, *logsumexp; /* NULL: not computed */
  const tfm_best_call *best;    /* wanted in place of the logits, or NULL; the same for all lockstep runs */
} DecoderRun;

void staging_begin(tfm_decoder *decoder); /* no group was measured */
/* Takes note of the bytes that a row of the group needs of each tensor. */
tfm_status staging_measure(tfm_decoder *decoder, const SourceGroup *group, tfm_error *error);
/* Refuses a group of which a row needs more than was made room for. */
tfm_status staging_check(tfm_decoder *decoder, const SourceGroup *group, tfm_error *error);
/* Places a row's flat caches in its block; the bytes of that, -1: too many. */
int64_t staging_place_flat(tfm_decoder *decoder);
tfm_status staging_reserve(tfm_decoder *decoder, tfm_error *error);
void staging_forget(tfm_decoder *decoder); /* items have changed: what was gathered of them is no longer theirs */

typedef struct BoundRun { /* a run and the context that it is bound to */
  const DecoderRun *info;
  tfm_context *context;
  DecoderRow **rows; /* info->sizes.rows of them */
} BoundRun;
/* Where the run reads and writes. */
void staging_set_tensors(tfm_decoder *decoder, const BoundRun *run);
void staging_take_results(tfm_decoder *decoder, const BoundRun *run); /* what caches that are tensors become */

#endif
