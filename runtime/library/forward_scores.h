/* Scores of the next token by running the whole model on whole rows: for models that are not incremental.
 *
 * In: a context of a library's forward program, the inputs that do not grow. Out: a model for tfm_generate. Rows of one
 * length, of items with the same sizes, are run together, their inputs gathered item by item. */
#ifndef TFM_RUNTIME_FORWARD_SCORES_H
#define TFM_RUNTIME_FORWARD_SCORES_H

#include "context.h"
#include "tfm/generate.h"

typedef struct Block { /* zeroes: none */
  char *memory;
  size_t bytes;
} Block;

typedef struct ForwardScores {
  tfm_context *context;
  const tfm_generation *generation;
  const tfm_value *inputs; /* of the program, as the caller gave them; that of the tokens is not looked at */
  const int64_t *sizes;    /* all run-time sizes as the caller gave them */
  const int64_t *const *lengths; /* by size, NULL: all items have what is in `sizes`; else the lengths of the items */
  int64_t batch;           /* items */
  Block values, order;     /* of one run, of one call; zeroes at first */
} ForwardScores;

tfm_generate_model forward_scores_model(ForwardScores *forward);
void forward_scores_free(ForwardScores *forward); /* what it allocated; not itself */

#endif
