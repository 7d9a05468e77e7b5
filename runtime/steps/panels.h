/* Panels: the right factor of a product as its tiles read it, `width` columns at a time, a row of them for each step of
 * k. */
#ifndef TFM_RUNTIME_PANELS_H
#define TFM_RUNTIME_PANELS_H

#include "base/numbers.h"
#include "tfm/abi/kernels.h"

typedef struct PanelJob {
  tfm_pack_kernel pack;
  const char *from;                /* step 0, column 0 */
  int64_t bytes;                   /* of a number */
  int64_t k_stride, column_stride; /* numbers between steps, between columns */
  int64_t k, columns;              /* to be packed */
  int64_t width, panel_floats;     /* columns of a panel; floats from panel to panel */
} PanelJob;

/* All panels, one behind the other; columns beyond the last become zero. */
static inline void panels_pack(const PanelJob *job, float *to) {
  for (int64_t column = 0; column < job->columns; column += job->width, to += job->panel_floats)
    job->pack(job->from + column * job->column_stride * job->bytes, job->k_stride, job->column_stride, job->k,
              least_of(job->width, job->columns - column), to);
}

#endif
