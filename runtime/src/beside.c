/* In: a bound context and sizes of other runs. Out: a list of contexts, in which each has its part of the first one's
 * memory, and what its steps are when they are done together. */
#include "beside.h"

tfm_context *beside_create(const tfm_context *first) {
  tfm_context *context = context_new(first->program, &first->allocator, first->threads);
  if (!context) return NULL;
  context->weights = first->weights;
  context->pool = first->pool;
  context->cached_steps = first->cached_steps;
  context->consumer = first->consumer;
  return context;
}

void beside_destroy(tfm_context *context) {
  if (!context) return;
  context->workspace = NULL; /* the first one's */
  tfm_context_destroy(context);
}

/* --- Binding ------------------------------------------------------------------------------------------------------- */

void beside_none(tfm_context *first) {
  first->beside = NULL;
  for (uint32_t i = 0; i < first->program->n_buffers; i++) first->buffer_taken[i] = memory_buffer_bytes(first, i);
}

/* Each buffer behind what is taken of it. False: there is not so much room. */
static bool place_buffers(const tfm_context *first, tfm_context *context) {
  for (uint32_t i = 0; i < first->program->n_buffers; i++) {
    int64_t bytes = memory_buffer_bytes(context, i), offset = first->buffer_offsets[i] + first->buffer_taken[i];
    if (bytes < 0 || bytes > first->buffer_bytes[i] - first->buffer_taken[i]) return false;
    if (context->buffer_offsets[i] != offset) context->operands_stale = ALL_SYMBOLS;
    context->buffer_offsets[i] = offset;
  }
  if (context->workspace != first->workspace) context->operands_stale = ALL_SYMBOLS;
  context->workspace = first->workspace;
  return true;
}

tfm_status beside_bind(tfm_context *first, tfm_context *last, tfm_context *context, const int64_t *symbols, bool *fits,
                       tfm_error *error) {
  tfm_status status = context_set_shapes(context, symbols, error);
  if (status) return status;
  int64_t scratch = context_scratch_bytes(context);
  *fits = scratch >= 0 && scratch <= first->scratch_bytes && place_buffers(first, context);
  if (!*fits) return TFM_OK;
  for (uint32_t i = 0; i < first->program->n_buffers; i++) first->buffer_taken[i] += memory_buffer_bytes(context, i);
  resolve_operands(context);
  resolve_threads(context);
  context->beside = NULL;
  last->beside = context;
  return TFM_OK;
}

/* --- Steps --------------------------------------------------------------------------------------------------------- */

int32_t beside_share_steps(tfm_context *first) {
  int64_t total = 0;
  for (uint32_t i = 0; i < first->program->n_steps; i++) {
    StepState *state = &first->steps[i];
    int64_t work = 0;
    state->idle = true;
    for (const tfm_context *context = first; context; context = context->beside) {
      if (context->steps[i].skipped) continue;
      state->idle = false;
      if (__builtin_add_overflow(work, context->steps[i].work, &work)) work = INT64_MAX;
    }
    state->shared = resolve_is_parallel(first, work);
    if (state->shared && __builtin_add_overflow(total, work, &total)) total = INT64_MAX;
  }
  return resolve_active(first, total);
}

/* Whether the matrix of `context` begins where the one of `before` ends. */
static bool continues(const tfm_context *before, const Operand *a, const tfm_context *context, const Operand *b,
                      int64_t rows_before) {
  return a->strides[0] == b->strides[0] &&
         operand_address(before, a) + rows_before * a->strides[0] == operand_address(context, b);
}

bool beside_is_one_product(const tfm_context *first, const tfm_step *step) {
  const tfm_gemm_step *gemm = &first->program->gemms[step->index];
  const ptrdiff_t number = step - first->program->steps;
  if (gemm->needed || first->steps[number].skipped) return false;
  const bool consumed = first->consumer && first->consumer->wanted && first->consumer->step == number;
  for (const tfm_context *before = first, *next; (next = before->beside); before = next) {
    int64_t rows = value_of(before, gemm->rows);
    const struct gemm_operands *own = &operands_of(before, step)->gemm, *others = &operands_of(next, step)->gemm;
    if (next->steps[number].skipped || !continues(before, &own->a, next, &others->a, rows)) return false;
    if (!consumed && !continues(before, &own->c, next, &others->c, rows)) return false;
  }
  return true;
}

void beside_finish_tile(const Walker *walker, const tfm_gemm_step *step, char *tile, int64_t tile_stride, int64_t row,
                        int64_t rows, int64_t column, int64_t columns) {
  Walker own = *walker;
  for (int64_t first = 0; own.context && first < row + rows; own.context = own.context->beside) {
    const int64_t end = first + value_of(own.context, step->rows), begin = greatest_of(first, row);
    const int64_t n = least_of(end, row + rows) - begin;
    if (n > 0) {
      const Epilogue epilogue =
          epilogue_of(own.context, step->epilogue, step->rank, step->n_operands, step->first_operand, step->dims);
      epilogue_run(&own, &epilogue, tile + (begin - row) * tile_stride, tile_stride, begin - first, n, column, columns);
    }
    first = end;
  }
}
