/* Logits of the next token by running the whole model on whole rows: for models without an incremental form.
 *
 * In: a context of a library's forward program, and the inputs other than the decoder input. Out: a model for
 * tfm_generate. Rows of one length, of items with the same sizes, are run together, their inputs gathered item by
 * item. The caller owns everything that a ForwardScores points to, and frees the adapter's own blocks with
 * forward_scores_free. */
#ifndef TFM_RUNTIME_FORWARD_SCORES_H
#define TFM_RUNTIME_FORWARD_SCORES_H

#include "context/context.h"
#include "tfm/abi/library.h"
#include "tfm/generate.h"

typedef struct Block { /* zeroes: none */
  char *memory;
  size_t bytes;
} Block;

typedef struct ForwardScores {
  tfm_context *context;
  const tfm_generation *generation;
  const tfm_value *inputs; /* of the program, as the caller gave them; the decoder input is not read */
  const int64_t *sizes;    /* all run-time sizes as the caller gave them */
  const int64_t *const *lengths; /* by size, NULL: all items have what is in `sizes`; else the lengths of the items */
  int64_t batch;           /* items */
  Block values, order;     /* of one run, of one call; zeroes at first */
} ForwardScores;

tfm_generate_model forward_scores_model(ForwardScores *forward);
void forward_scores_free(ForwardScores *forward); /* what it allocated; not itself */

#endif
