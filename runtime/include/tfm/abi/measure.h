/* tfm/abi/measure.h: what a run takes, for tools that explain programs. C99.
 *
 * In: a program, whose kernels are never called, and the values of its sizes. Out: bytes of workspace. Refused (-1):
 * sizes that the model's checks refuse, or that are too large to count. */
#ifndef TFM_MEASURE_H
#define TFM_MEASURE_H

#include "tfm/abi/program.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tfm_measure tfm_measure;

typedef struct tfm_workspace {
  int64_t bytes;   /* of a new context, as NAME_workspace_bytes of a library says */
  int64_t buffers; /* those of them that are buffers; the others are scratch and inputs that are left out */
} tfm_workspace;

/* For contexts with so many threads. NULL: no memory. */
tfm_measure *tfm_measure_open(const tfm_program *program, int32_t threads);
/* `symbols`: in the order of the program. What is measured does not depend on what was measured before. */
tfm_workspace tfm_measure_at(tfm_measure *measure, const int64_t *symbols);
void tfm_measure_close(tfm_measure *measure); /* NULL is ignored */

#ifdef __cplusplus
}
#endif
#endif
