/* The functions behind <model>_begin, _step and the like: a decoder that belongs to a context, with its threads, its
 * memory and its one caller at a time. Refused: steps before <model>_begin, or after something else has used the rows. */
#include <string.h>

#include "library_calls.h"
#include "model.h"
#include "tfm/decode.h"

static void cancel_decoding(tfm_context *context) { tfm_decoder_cancel(context->decoder); }

/* Whoever is just cancelling has finished with the decoder before it goes. */
static void end_decoding(tfm_context *context) {
  atomic_store(&context->cancel_decoding, NULL);
  while (atomic_load(&context->cancelling)) cpu_relax();
  tfm_decoder_destroy(context->decoder);
  context->decoder = NULL;
  context->decodes = false;
  context->end_decoding = NULL;
}

/* With the pool of the context: who calls has the context to itself, so that nobody else's run is in the way. */
static tfm_status make_decoder(tfm_context *context, tfm_error *error) {
  const tfm_context_options options = {
      .struct_size = sizeof options, .pool = context->pool, .allocator = context->allocator};
  const tfm_decoding *decoding = context->model->decoding;
  if (context->decoder) return TFM_OK;
  tfm_status status = tfm_decoder_create(decoding, decoding->source ? context->weights : NULL, context->weights, &options,
                                         &context->decoder, error);
  if (status) return status;
  context->end_decoding = end_decoding;
  atomic_store(&context->cancel_decoding, cancel_decoding);
  return TFM_OK;
}

/* The inputs of the source program: the model's but the one that grows. They replace those of the call. */
static tfm_status source_inputs(tfm_context *context, const void *args, tfm_error *error) {
  const tfm_generation *generation = context->library->generation;
  tfm_status status = library_read_sizes(context, args, error);
  if (!status) status = context_set_symbols(context, context->asked, error);
  if (!status) status = library_read_inputs(context, args, generation->tokens, error);
  if (status) return status;
  const uint32_t behind = context->program->n_inputs - generation->tokens - 1;
  tfm_value *tokens = context->given + generation->tokens;
  memmove(tokens, tokens + 1, behind * sizeof *tokens);
  return TFM_OK;
}

enum { MOST_SIZES = UINT8_MAX + 1 }; /* a term holds the number of a size in a byte */

/* What args say of the sizes that the source program has too; NULL: none has lengths. */
static const int64_t *const *source_lengths(const tfm_context *context, const void *args, const int64_t **lengths) {
  const tfm_program *source = context->model->decoding->source;
  if (!context->library->generation->lengths || !source) return NULL;
  for (uint32_t i = 0; i < source->n_symbols; i++) {
    lengths[i] = NULL;
    for (uint32_t k = 0; k < context->program->n_symbols; k++)
      if (strcmp(source->symbols[i], context->program->symbols[k]) == 0)
        lengths[i] = library_lengths(context->library, args, k);
  }
  return lengths;
}

tfm_status library_begin(tfm_context *context, const void *args, int64_t max_rows, int64_t max_length, tfm_error *error) {
  context->decodes = false;
  tfm_status status = source_inputs(context, args, error);
  if (!status) status = make_decoder(context, error);
  if (status) return status;
  const tfm_value *inputs = context->model->decoding->source ? context->given : NULL;
  const int64_t *places[MOST_SIZES], *const *lengths = source_lengths(context, args, places);
  return tfm_decoder_begin_ragged(context->decoder, inputs, lengths, max_rows, max_length, error);
}

/* --- Calls --------------------------------------------------------------------------------------------------------- */

tfm_status tfm_library_begin(tfm_context *context, const void *args, int64_t max_rows, int64_t max_length,
                             tfm_error *error) {
  tfm_status status = library_enter(context, error);
  if (status) return status;
  status = library_begin(context, args, max_rows, max_length, error);
  context->decodes = !status;
  library_leave(context);
  return status;
}

/* For calls that continue what <model>_begin began. */
static tfm_status enter(tfm_context *context, tfm_error *error) {
  tfm_status status = library_enter(context, error);
  if (status || context->decodes) return status;
  library_leave(context);
  return library_usage(error, "nothing was begun with this context");
}

static tfm_status leave(tfm_context *context, tfm_status status) {
  library_leave(context);
  return status;
}

tfm_status tfm_library_join(tfm_context *context, int64_t item, int64_t *row, tfm_error *error) {
  tfm_status status = enter(context, error);
  return status ? status : leave(context, tfm_decoder_join(context->decoder, item, row, error));
}

tfm_status tfm_library_leave(tfm_context *context, int64_t row, tfm_error *error) {
  tfm_status status = enter(context, error);
  return status ? status : leave(context, tfm_decoder_leave(context->decoder, row, error));
}

tfm_status tfm_library_step(tfm_context *context, int64_t n, const tfm_decoder_row *rows, int64_t kept, float *scores,
                            float *log_sums, tfm_error *error) {
  tfm_status status = enter(context, error);
  return status ? status : leave(context, tfm_decoder_step(context->decoder, n, rows, kept, scores, log_sums, error));
}

tfm_status tfm_library_reorder(tfm_context *context, int64_t n, const int64_t *parents, tfm_error *error) {
  tfm_status status = enter(context, error);
  return status ? status : leave(context, tfm_decoder_reorder(context->decoder, n, parents, error));
}

tfm_status tfm_library_truncate(tfm_context *context, int64_t row, int64_t length, tfm_error *error) {
  tfm_status status = enter(context, error);
  return status ? status : leave(context, tfm_decoder_truncate(context->decoder, row, length, error));
}

int64_t tfm_library_length(const tfm_context *context, int64_t row) {
  return context && context->decodes ? tfm_decoder_length(context->decoder, row) : -1;
}

void tfm_library_end(tfm_context *context) {
  if (library_enter(context, NULL)) return;
  if (context->end_decoding) context->end_decoding(context);
  library_leave(context);
}
