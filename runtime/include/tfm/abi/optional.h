/* tfm/abi/optional.h: what only some programs have. C99. A part of tfm/abi/program.h, which includes it.
 *
 * A program that needs one of these functions of the runtime points to it, and nothing else refers to them: the linker
 * leaves them out of other libraries. */
#ifndef TFM_OPTIONAL_H
#define TFM_OPTIONAL_H

#include <stdint.h>

/* For attention of form INT8; pages: the same table with what caches of it need. A program has one of the two. */
const struct tfm_whole_attention *tfm_whole_attention(void);
const struct tfm_whole_attention *tfm_whole_pages(void);

/* A chain of rows: steps [first_step, + n_steps), in each of which a row of the result needs, of what the others write,
 * that row alone. So a thread may take some rows through all of them without a barrier, if no two of their buffers
 * share memory. The rows are those of step number `gemm`. No two chains have a step in common. */
typedef struct tfm_row_chain {
  uint32_t first_step, n_steps, gemm;
} tfm_row_chain;

const struct tfm_chain_functions *tfm_chain_functions(void);

#endif
