/* Matmul tiles: the innermost loop of a matmul, a strip of rows of x against all panels of a unit for a block of k.
 *
 * In: a job. Out: its results, in c. Refuses nothing. */
#ifndef TFM_RUNTIME_MATMUL_TILES_H
#define TFM_RUNTIME_MATMUL_TILES_H

#include "steps/matmul_cut.h"

typedef struct Fetch { /* what a tile fetches ahead */
  const char *from;
  int64_t lines; /* per four steps of k */
} Fetch;

/* Rows [row, row + rows) of a unit times its panels, for steps [k, k + block). */
typedef struct MatmulJob {
  const MatmulUnit *unit;
  const float *x, *y;     /* of step k */
  int64_t x_step, y_step; /* floats from step to step */
  int64_t k, block, row, rows;
  float *c;
  int64_t c_stride;   /* floats */
  int64_t accumulate; /* as the kernel takes it */
  bool is_last;       /* no steps of k follow: the epilogue is next */
  float *chain;       /* scratch for results of the strip, where the step adds chains up */
  int64_t chain_stride;
  Fetch fetch;
} MatmulJob;

/* Of the unit, without rows, steps and results. */
MatmulJob matmul_job(const MatmulUnit *unit);
/* Steps [k, end) of the unit's panels, those that are live: [k][width] for each, columns beyond the last zero. */
void matmul_pack_panels(const MatmulUnit *unit, int64_t k, int64_t end, float *packed);
/* The first panel of the group from step k on, packed or where it lies; the next ones follow packed_k steps apart. */
const float *matmul_panels_at(const MatmulUnit *unit, int64_t k, int64_t block);
/* Gives the job its steps [k, k + block) and the rows of x, which are packed unless they stay; y is the caller's. */
void matmul_place_strip(MatmulJob *job, int64_t k, int64_t block);
/* What the job's tiles bring nearer, if strips follow one another: of the next item, or of the next strip. */
Fetch matmul_fetch_strip(const MatmulJob *job);
/* What one of `calls` tiles brings nearer of the block of k after the job's, if blocks follow one another. */
Fetch matmul_fetch_block(const MatmulJob *job, int64_t call, int64_t calls);

/* The steps of the job that are live. */
void matmul_run_tiles(const MatmulJob *job);
/* The kernels for steps [first, first + n) of the job, whose results go to c; `accumulate` as they take it. */
void matmul_some_tiles(const MatmulJob *job, int64_t first, int64_t n, int64_t accumulate, float *c, int64_t c_stride);
/* Of steps [at, end): the next run of live ones; all of them if none are left out. 0: there is none. */
int64_t matmul_live_steps(const MatmulUnit *unit, int64_t at, int64_t end, int64_t *first);

/* What the driver of gradients does itself (gradient_sums.c). */
typedef struct GradientSums {
  void (*one_row)(const Walker *walker, const Matmul *m); /* all of a TFM_DIRECT_ONE_ROW that is the thread's */
  void (*count)(const Walker *walker, const tfm_step *step, Matmul *m); /* sets m->counted; uses scratch */
  void (*add)(const MatmulJob *job); /* the steps of the job */
} GradientSums;
/* All of the step that is the thread's (step_matmul.c). sums NULL: it is no gradient. */
void matmul_run(Walker *walker, const tfm_step *step, const GradientSums *sums);

#endif
