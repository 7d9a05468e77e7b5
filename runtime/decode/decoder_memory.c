/* What the parts of a decoder share: blocks of memory that grow, room in the step's context for its runs, errors.
 *
 * In: sizes of runs, bytes. Out: memory, and how long rows can be. Refused: what does not fit into memory, and sizes
 * for which the checks of the model fail. */
#include "decode/decoder_memory.h"

#include <stdio.h>
#include <string.h>

#include "base/allocate.h"
#include "context/binding.h"
#include "pool/pool.h"
#include "steps/walker.h"
#include "tfm/abi/measure.h"

// ---- blocks ----

/* Old contents are not copied. */
bool decoder_reserve_block(const tfm_decoder *decoder, DecoderBlock *block, int64_t bytes) {
  if (bytes <= block->bytes) return true;
  decoder_release_block(decoder, block);
  *block = (DecoderBlock){.bytes = bytes};
  block->memory = allocate_room(&decoder->allocator, &block->bytes);
  if (!block->memory) block->bytes = 0;
  return block->memory;
}

void decoder_release_block(const tfm_decoder *decoder, DecoderBlock *block) {
  release_room(&decoder->allocator, block->memory, block->bytes);
  *block = (DecoderBlock){0};
}

/* Bytes of a tensor of a program for the dims that a context has set. */
static int64_t tensor_bytes(const tfm_tensor_info *info, const int64_t *dims) {
  int64_t bytes = dtype_size(info->dtype);
  for (uint32_t i = 0; i < info->rank; i++) bytes *= dims[i];
  return bytes;
}

int64_t decoder_output_bytes(const tfm_context *context, uint32_t output) {
  return tensor_bytes(&context->program->outputs[output], context->binding.output_dims + (size_t)output * TFM_MAX_RANK);
}

int64_t decoder_input_bytes(const tfm_context *context, uint32_t input) {
  return tensor_bytes(&context->program->inputs[input], context->binding.input_dims + (size_t)input * TFM_MAX_RANK);
}

// ---- errors ----

tfm_status decoder_check_begun(const tfm_decoder *decoder, tfm_error *error) {
  if (!decoder) return tfm_refuse(error, TFM_E_USAGE, "the decoder is a null pointer");
  if (decoder->begun) return TFM_OK;
  return tfm_refuse(error, TFM_E_USAGE, "the decoder has not begun: tfm_decoder_begin comes first");
}

/* "item 3: " and the message as it was, cut at the end if it is too long. */
tfm_status decoder_name_item(tfm_status status, int64_t item, tfm_error *error) {
  if (!error) return status;
  char message[sizeof error->message];
  memcpy(message, error->message, sizeof message);
  const size_t head = (size_t)snprintf(error->message, sizeof message, "item %lld: ", (long long)item);
  snprintf(error->message + head, sizeof message - head, "%.*s", (int)(sizeof message - head - 1), message);
  return status;
}

// ---- runs ----

/* Sizes that are none of the four come from the group's encoder program. */
const int64_t *decoder_set_sizes(tfm_decoder *decoder, const RunSizes *sizes) {
  const tfm_decoding *decoding = decoder->decoding;
  int64_t *symbols = decoder->symbols;
  for (uint32_t i = 0; i < decoding->step->n_symbols; i++) {
    if (i == decoding->past) symbols[i] = sizes->past;
    else if (i == decoding->fresh) symbols[i] = sizes->fresh;
    else if (i == decoding->kept) symbols[i] = sizes->kept;
    else if (i == decoding->rows) symbols[i] = sizes->rows;
    else symbols[i] = decoding->sizes[i] == TFM_NONE ? 0 : sizes->group->symbols[decoding->sizes[i]];
  }
  return symbols;
}

/* Makes room in the step's context for `together` runs of these sizes that end at a row of `length` tokens. */
static tfm_status reserve_run(tfm_decoder *decoder, RunSizes sizes, int64_t length, int64_t together,
                              tfm_error *error) {
  sizes.fresh = least_of(sizes.fresh, length);
  sizes.past = length - sizes.fresh;
  sizes.kept = greatest_of(1, least_of(sizes.kept, sizes.fresh));
  return context_reserve_symbols(decoder->step, decoder_set_sizes(decoder, &sizes), together, error);
}

/* The longest row of at most `length` that the checks of the model allow, by halving. Checks such as `length <=
 * max_positions` are monotonic in the length; a step refuses a longer row with the message of the check. */
static tfm_status find_longest(tfm_decoder *decoder, const SourceGroup *group, int64_t length, int64_t *longest,
                               tfm_error *error) {
  const RunSizes one = {.group = group, .rows = 1, .fresh = 1, .kept = 1};
  tfm_status status = reserve_run(decoder, one, length, 1, error);
  *longest = length;
  if (status != TFM_E_INPUT) return status;
  int64_t least = 0, most = length; /* `least` is allowed or 0, `most` isn't */
  while (most - least > 1) {
    int64_t middle = least + (most - least) / 2;
    tfm_status tried = reserve_run(decoder, one, middle, 1, NULL);
    if (tried && tried != TFM_E_INPUT) return tried;
    if (tried) most = middle;
    else least = middle;
  }
  *longest = least;
  return least ? TFM_OK : status;
}

/* A buffer grows with rows, with new tokens, or with both; their product is bounded by RUN_TOKENS, so every buffer is
 * largest in one of three runs: one row of many tokens, all rows, or the most runs in lockstep. What does not grow
 * with them, each lockstep run has once. */
tfm_status decoder_reserve_group(tfm_decoder *decoder, const SourceGroup *group, int64_t length, int64_t *longest,
                                 tfm_error *error) {
  tfm_status status = find_longest(decoder, group, length, longest, error);
  const int64_t rows = decoder_has_rows(decoder) ? decoder->calls.most_rows : 1, n = decoder->lockstep.most;
  RunSizes sizes = {
      .group = group, .rows = 1, .fresh = RUN_TOKENS, .kept = greatest_of(LEAST_KEPT, decoder->calls.most_kept)};
  if (!status) status = reserve_run(decoder, sizes, *longest, 1, error);
  sizes = (RunSizes){
      .group = group, .rows = rows, .fresh = decoder_chunk(rows), .kept = greatest_of(1, LEAST_KEPT / rows)};
  if (!status) status = reserve_run(decoder, sizes, *longest, 1, error);
  sizes = (RunSizes){.group = group, .rows = 1, .fresh = decoder_chunk(n), .kept = 1};
  if (!status && n > 1) status = reserve_run(decoder, sizes, *longest, n, error);
  return status;
}

// ---- what runs take, for tools (tfm/abi/measure.h) ----

/* A context without a pool is enough to measure. */
tfm_measure *tfm_measure_open(const tfm_program *program, int32_t threads) {
  return (tfm_measure *)context_new(program, &(tfm_allocator){0}, pool_threads_wanted(threads));
}

/* A context keeps its plan of memory as long as every buffer fits into its place: other sizes would then be measured as
 * if they followed the ones before. */
static void measure_forget(tfm_context *context) {
  memset(context->memory.buffer_bytes, 0, sizeof(int64_t) * context->program->n_buffers);
  context->memory.buffers_bytes = 0;
}

tfm_workspace tfm_measure_at(tfm_measure *measure, const int64_t *symbols) {
  tfm_context *context = (tfm_context *)measure;
  measure_forget(context);
  const int64_t bytes = context_measure(context, symbols);
  return (tfm_workspace){.bytes = bytes, .buffers = bytes < 0 ? -1 : context->memory.buffers_bytes};
}

void tfm_measure_close(tfm_measure *measure) { context_end((tfm_context *)measure); }
