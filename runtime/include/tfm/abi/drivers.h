/* tfm/abi/drivers.h: the loops around kernels that a program needs, as a table of functions. C99.
 *
 * Every step is run by way of this table, and what only some programs have is called by way of it. Nothing else in the
 * runtime refers to these functions: so a library, whose table has those that its programs need (plan_drivers in the
 * compiler chooses them), is linked without the others; see decision 21. */
#ifndef TFM_DRIVERS_H
#define TFM_DRIVERS_H

#include <stdbool.h>

#include "tfm/abi/program.h"
#include "tfm/types.h"

struct Walker; /* runtime/steps/walker.h */
struct Course; /* runtime/walk/walk.h */
struct PageSlice; /* runtime/decode/cache_pages.h */
struct DecoderRow; /* runtime/decode/decoder_state.h */
struct BoundRun; /* runtime/decode/staging.h */
struct tfm_decoder;

typedef struct tfm_driver {
  void (*run)(struct Walker *walker, const tfm_step *step);
  int64_t (*scratch)(const tfm_context *context, const tfm_step *step); /* bytes that a thread needs; NULL: none */
} tfm_driver;

/* A chain of rows: steps [first_step, + n_steps), in each of which a row of the result needs, of what the others write,
 * that row alone. So a thread may take some rows through all of them without a barrier, if no two of their buffers
 * share memory. The rows are those of step number `gemm`. No two chains have a step in common. */
struct tfm_row_chain {
  uint32_t first_step, n_steps, gemm;
};

typedef bool tfm_chain_planner(tfm_context *context); /* widens the lives of buffers if so */
/* false: nothing was done */
typedef bool tfm_chain_taker(struct Walker *walker, const tfm_row_chain *chain, struct Course *course);
typedef void tfm_page_writer(const struct PageSlice *slice, int64_t column, int64_t columns, const char *source,
                             int64_t position_stride, int64_t column_stride);

typedef tfm_status tfm_flat_cutter(struct tfm_decoder *decoder, struct DecoderRow *row, int64_t length,
                                   tfm_error *error);
typedef void tfm_flat_gatherer(struct tfm_decoder *decoder, const struct BoundRun *run, uint32_t input);
typedef void tfm_flat_taker(struct tfm_decoder *decoder, const struct BoundRun *run, uint32_t input);
/* The columns of one position. rates: the angle per position of each pair of columns. */
typedef void tfm_row_filler(const tfm_table_step *table, const double *rates, double position, char *row);

typedef enum tfm_driver_number {
#define DRIVER(NAME, run) TFM_DRIVER_##NAME,
#define SCRATCH_DRIVER(NAME, run, scratch) TFM_DRIVER_##NAME,
#define PART(NAME, Type, member, function)
#include "tfm/abi/drivers.def"
  TFM_STEP_DRIVERS, /* the others follow */
  TFM_DRIVER_BEFORE_PARTS = TFM_STEP_DRIVERS - 1,
#define DRIVER(NAME, run)
#define SCRATCH_DRIVER(NAME, run, scratch)
#define PART(NAME, Type, member, function) TFM_DRIVER_##NAME,
#include "tfm/abi/drivers.def"
  TFM_ALL_DRIVERS
} tfm_driver_number;

struct tfm_drivers { /* NULL in place of functions that no program of the library needs */
  tfm_driver of_step[TFM_STEP_DRIVERS];
#define DRIVER(NAME, run)
#define SCRATCH_DRIVER(NAME, run, scratch)
#define PART(NAME, Type, member, function) Type *member;
#include "tfm/abi/drivers.def"
};

/* Of steps along lines each library has those that it needs: `what` is a TFM_ALONG_*. */
static inline uint32_t tfm_driver_of_along(uint32_t what) {
  switch (what) {
    case TFM_ALONG_POWER: return TFM_DRIVER_ALONG_POWER;
    case TFM_ALONG_TOPK:
    case TFM_ALONG_TAKE:
    case TFM_ALONG_PLACES:
    case TFM_ALONG_BEFORE: return TFM_DRIVER_ALONG_SELECT;
    case TFM_ALONG_LOOK_UP: return TFM_DRIVER_ALONG_LOOK_UP;
    case TFM_ALONG_SCATTER: return TFM_DRIVER_ALONG_SCATTER;
    default: return TFM_DRIVER_ALONG;
  }
}

/* The driver of a step: that of its kind, or the one for what only some steps of the kind are. */
static inline uint32_t tfm_driver_of(const tfm_program *program, const tfm_step *step) {
  static const uint8_t of_kind[] = {
#define STEP(KIND, ...) TFM_DRIVER_##KIND,
#include "tfm/abi/steps.def"
  };
  if (step->kind == TFM_STEP_ALONG) return tfm_driver_of_along(program->alongs[step->index].what);
  if (step->kind == TFM_STEP_GEMM) {
    const tfm_gemm_step *gemm = &program->gemms[step->index];
    if (gemm->k > TFM_CHAIN && !tfm_form_has_whole_rows(gemm->form)) return TFM_DRIVER_GEMM_LONG;
  }
  if (step->kind == TFM_STEP_MATMUL) {
    const tfm_matmul_step *matmul = &program->matmuls[step->index];
    if (matmul->in_order || matmul->direct == TFM_DIRECT_ONE_ROW) return TFM_DRIVER_MATMUL_GRADIENT;
  }
  if (step->kind == TFM_STEP_APPEND && program->caches[program->appends[step->index].cache].form == TFM_FORM_INT8)
    return TFM_DRIVER_APPEND_INT8;
  if (step->kind == TFM_STEP_ATTENTION) {
    const tfm_attention_step *attention = &program->attentions[step->index];
    const bool is_int8 = attention->form == TFM_FORM_INT8;
    if (attention->k_cache != TFM_NONE) return is_int8 ? TFM_DRIVER_ATTENTION_PAGED_INT8 : TFM_DRIVER_ATTENTION_PAGED;
    if (is_int8) return TFM_DRIVER_ATTENTION_INT8;
  }
  return of_kind[step->kind];
}

#define DRIVER(NAME, run) void run(struct Walker *walker, const tfm_step *step);
#define SCRATCH_DRIVER(NAME, run, scratch) \
  DRIVER(NAME, run)                        \
  int64_t scratch(const tfm_context *context, const tfm_step *step);
#define PART(NAME, Type, member, function) Type function;
#include "tfm/abi/drivers.def"

/* All of them, for a process that has the whole runtime. */
extern const tfm_drivers tfm_all_drivers;

#endif
