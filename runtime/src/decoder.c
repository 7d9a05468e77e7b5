/* Making a decoder and ending it. */
#include "decoder.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "allocate.h"
#include "beside.h"
#include "options.h"
#include "steps.h"

tfm_status decoder_refuse(tfm_error *error, tfm_status status, const char *format, ...) {
  char text[256];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return tfm_fail(error, status, status == TFM_E_INPUT ? TFM_REASON_VALUE : TFM_REASON_OTHER, NULL, "%s", text);
}

/* A decoder without contexts. */
static tfm_decoder *new_decoder(const tfm_decoding *decoding, const tfm_allocator *allocator) {
  int64_t head = round_up(sizeof(tfm_decoder), ALIGNMENT);
  int64_t inputs = round_up((int64_t)sizeof(StepInput) * decoding->step->n_inputs, ALIGNMENT);
  size_t bytes = (size_t)(head + inputs) + sizeof(int64_t) * decoding->step->n_symbols;
  char *block = allocate(allocator, bytes, ALIGNMENT);
  if (!block) return NULL;
  memset(block, 0, bytes);
  tfm_decoder *decoder = (tfm_decoder *)block;
  *decoder = (tfm_decoder){.decoding = decoding,
                           .allocator = *allocator,
                           .bytes = bytes,
                           .inputs = (StepInput *)(block + head),
                           .symbols = (int64_t *)(block + head + inputs)};
  return decoder;
}

/* The source program works with the threads of the step. */
static tfm_status create_contexts(tfm_decoder *decoder, const void *source_weights, const void *step_weights,
                                  const tfm_context_options *options, tfm_error *error) {
  tfm_status status = tfm_context_create(decoder->decoding->step, step_weights, options, &decoder->step, error);
  if (status) return status;
  decoder->step->cached_steps = &cached_steps;
  if (best_create(&decoder->best, decoder->decoding, decoder->step)) decoder->step->consumer = &decoder->best.consumer;
  if (!decoder->decoding->source) return TFM_OK;
  tfm_context_options shared = {.struct_size = sizeof shared,
                                .pool = decoder->step->pool,
                                .allocator = decoder->allocator};
  return tfm_context_create(decoder->decoding->source, source_weights, &shared, &decoder->source, error);
}

tfm_status tfm_decoder_create(const tfm_decoding *decoding, const void *source_weights, const void *step_weights,
                              const tfm_context_options *given, tfm_decoder **decoder, tfm_error *error) {
  if (!decoder) return decoder_refuse(error, TFM_E_USAGE, "there is no place for the decoder");
  *decoder = NULL;
  if (!decoding || !decoding->step) return decoder_refuse(error, TFM_E_USAGE, "the decoding is a null pointer");
  Options options;
  tfm_status status = options_read(given, &options, error);
  if (status) return status;
  tfm_decoder *made = new_decoder(decoding, &options.allocator);
  if (!made) return decoder_refuse(error, TFM_E_NOMEM, "no memory for a decoder");
  if ((status = create_contexts(made, source_weights, step_weights, given, error))) {
    tfm_decoder_destroy(made);
    return status;
  }
  *decoder = made;
  return tfm_succeed(error);
}

void tfm_decoder_destroy(tfm_decoder *decoder) {
  if (!decoder) return;
  tfm_context_destroy(decoder->source);
  for (int i = 0; i < MOST_TOGETHER - 1; i++) beside_destroy(decoder->beside[i]);
  tfm_context_destroy(decoder->step);
  for (int i = 0; i < N_BLOCKS; i++)
    release_room(&decoder->allocator, decoder->blocks[i].memory, decoder->blocks[i].bytes);
  const tfm_allocator allocator = decoder->allocator;
  release(&allocator, decoder, decoder->bytes);
}

void tfm_decoder_cancel(tfm_decoder *decoder) {
  if (!decoder) return;
  tfm_context_cancel(decoder->source);
  tfm_context_cancel(decoder->step);
}

uint64_t tfm_decoder_bytes(const tfm_decoder *decoder) {
  if (!decoder) return 0;
  int64_t bytes = decoder->step->workspace_bytes + (decoder->source ? decoder->source->workspace_bytes : 0);
  for (int i = 0; i < N_BLOCKS; i++) bytes += decoder->blocks[i].bytes;
  for (int i = 0; i < MOST_TOGETHER - 1; i++)
    if (decoder->beside[i]) bytes += (int64_t)decoder->beside[i]->bytes;
  return (uint64_t)bytes;
}

int64_t tfm_decoder_items(const tfm_decoder *decoder) { return decoder && decoder->begun ? decoder->items : 1; }
