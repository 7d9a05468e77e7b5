/* One run of the step program: binds its sizes, puts the tensors of its rows together, executes, and takes what caches that
 * are tensors have become. */
#include <string.h>

#include "decoder.h"
#include "run.h"

Parts parts_of(const tfm_tensor_info *info, const int64_t *dims, uint32_t batch_axis, int64_t rows) {
  Parts parts = {1, dtype_size(info->dtype)};
  for (uint32_t i = 0; i < info->rank; i++) {
    if (batch_axis != TFM_NONE && i < batch_axis)
      parts.outer *= dims[i];
    else
      parts.bytes *= i == batch_axis ? dims[i] / greatest_of(1, rows) : dims[i];
  }
  return parts;
}

void decoder_set_symbols(tfm_decoder *decoder, int64_t rows, int64_t past, int64_t fresh, int64_t kept) {
  const tfm_decoding *decoding = decoder->decoding;
  for (uint32_t i = 0; i < decoding->step->n_symbols; i++) {
    if (i == decoding->past) decoder->symbols[i] = past;
    else if (i == decoding->fresh) decoder->symbols[i] = fresh;
    else if (i == decoding->kept) decoder->symbols[i] = kept;
    else if (i == decoding->rows) decoder->symbols[i] = rows;
    else decoder->symbols[i] = decoding->sizes[i] == TFM_NONE ? 0 : decoder->source->symbols[decoding->sizes[i]];
  }
}

/* --- What goes in -------------------------------------------------------------------------------------------------- */

static Parts input_parts(const tfm_decoder *decoder, uint32_t input, int64_t rows) {
  return parts_of(&decoder->decoding->step->inputs[input],
                  decoder->step->input_dims + (size_t)input * TFM_MAX_RANK,
                  decoder->decoding->inputs[input].batch_axis, rows);
}

/* Puts a row's part for each outer index, `stride` bytes apart in `sources`, side by side. */
static void gather(char *target, const Parts *parts, int64_t rows, const char *const *sources, int64_t stride) {
  for (int64_t outer = 0; outer < parts->outer; outer++)
    for (int64_t row = 0; row < rows; row++, target += parts->bytes)
      memcpy(target, sources[row] + outer * stride, (size_t)parts->bytes);
}

static bool items_in_order(const tfm_decoder *decoder, int64_t rows) {
  if (rows != decoder->items) return false;
  for (int64_t i = 0; i < rows; i++)
    if (decoder->run_rows[i]->item != i) return false;
  return true;
}

static bool items_are_gathered(const tfm_decoder *decoder, int64_t rows) {
  if (rows != decoder->n_gathered) return false;
  for (int64_t i = 0; i < rows; i++)
    if (decoder->run_rows[i]->item != decoder->gathered_items[i]) return false;
  return true;
}

/* The sources' tensors, for the rows that read them. They stay as they are from run to run, as long as the items do. */
static void gather_items(tfm_decoder *decoder, int64_t rows) {
  const tfm_decoding *decoding = decoder->decoding;
  decoder->n_gathered = rows;
  for (int64_t i = 0; i < rows; i++) decoder->gathered_items[i] = decoder->run_rows[i]->item;
  for (uint32_t input = 0; input < decoding->step->n_inputs; input++) {
    if (!input_is_of_source(decoding, input) || decoding->inputs[input].batch_axis == TFM_NONE) continue;
    Parts parts = input_parts(decoder, input, rows);
    for (int64_t i = 0; i < rows; i++)
      decoder->parts[i] = decoder->inputs[input].kept + decoder->run_rows[i]->item * parts.bytes;
    gather(decoder->inputs[input].staging, &parts, rows, decoder->parts, decoder->items * parts.bytes);
  }
}

static const char *flat_of(const DecoderRow *row) { return row->next_flat ? row->next_flat : row->flat; }

/* A cache that is a tensor. One that is the same for all rows is read from the first. */
static void gather_flat(tfm_decoder *decoder, uint32_t input, int64_t rows) {
  const StepInput *state = &decoder->inputs[input];
  Parts parts = input_parts(decoder, input, rows);
  if (decoder->decoding->inputs[input].batch_axis == TFM_NONE) rows = 1;
  if (parts.bytes * parts.outer == 0) return; /* no positions yet */
  for (int64_t i = 0; i < rows; i++) decoder->parts[i] = flat_of(decoder->run_rows[i]) + state->flat_offset;
  gather(state->staging, &parts, rows, decoder->parts, parts.bytes);
}

static void *input_address(tfm_decoder *decoder, uint32_t input, int64_t rows, bool in_order) {
  const tfm_decoding *decoding = decoder->decoding;
  if (input == decoding->tokens) return decoder->tokens;
  const StepInput *state = &decoder->inputs[input];
  const tfm_step_input *info = &decoding->inputs[input];
  if (info->is_cache) {
    gather_flat(decoder, input, rows);
    return state->staging;
  }
  return info->batch_axis == TFM_NONE || in_order ? (void *)state->kept : state->staging;
}

static void set_inputs(tfm_decoder *decoder, int64_t rows) {
  tfm_context *step = decoder->step;
  bool in_order = items_in_order(decoder, rows);
  if (!in_order && !items_are_gathered(decoder, rows)) gather_items(decoder, rows);
  for (uint32_t i = 0; i < step->program->n_inputs; i++) {
    const tfm_tensor_info *info = &step->program->inputs[i];
    step->callers[i] = input_address(decoder, i, rows, in_order);
    step->given[i] = (tfm_value){step->callers[i], info->dtype, info->rank, step->input_dims + (size_t)i * TFM_MAX_RANK};
  }
}

/* --- What comes out ------------------------------------------------------------------------------------------------ */

static void set_outputs(tfm_decoder *decoder, const DecoderRun *run) {
  tfm_context *step = decoder->step;
  const tfm_decoding *decoding = decoder->decoding;
  void **outputs = step->callers + step->program->n_inputs;
  for (uint32_t i = 0; i < step->program->n_outputs; i++) outputs[i] = NULL;
  /* The best are taken by the consumer; any address says that the steps which lead to them are wanted. */
  outputs[decoding->scores] = run->best ? (void *)run->best->best : run->scores;
  if (decoding->log_sum != TFM_NONE) outputs[decoding->log_sum] = run->log_sums;
  for (uint32_t i = 0; i < step->program->n_inputs; i++)
    if (input_is_flat_cache(decoding, i))
      outputs[decoding->inputs[i].number] = decoder->inputs[i].result;
}

static void take_flat(tfm_decoder *decoder, uint32_t input, int64_t rows) {
  const tfm_step_input *info = &decoder->decoding->inputs[input];
  const StepInput *state = &decoder->inputs[input];
  Parts parts = parts_of(&decoder->decoding->step->outputs[info->number],
                         decoder->step->output_dims + (size_t)info->number * TFM_MAX_RANK, info->batch_axis, rows);
  bool same = info->batch_axis == TFM_NONE;
  for (int64_t i = 0; i < rows; i++) {
    const char *from = state->result + (same ? 0 : i * parts.bytes);
    char *to = decoder->run_rows[i]->next_flat + state->flat_offset;
    for (int64_t outer = 0; outer < parts.outer; outer++, to += parts.bytes)
      memcpy(to, from + outer * parts.bytes * (same ? 1 : rows), (size_t)parts.bytes);
  }
}

static void take_results(tfm_decoder *decoder, int64_t rows) {
  if (!decoder->flat_bytes) return;
  for (int64_t i = 0; i < rows; i++)
    if (!decoder->run_rows[i]->next_flat) decoder->run_rows[i]->next_flat = page_take(&decoder->flat_pages);
  for (uint32_t i = 0; i < decoder->decoding->step->n_inputs; i++)
    if (input_is_flat_cache(decoder->decoding, i)) take_flat(decoder, i, rows);
}

/* --- The run ------------------------------------------------------------------------------------------------------- */

static void set_pages(tfm_decoder *decoder, int64_t rows) {
  for (int64_t i = 0; i < rows; i++) {
    decoder->own_lists[i] = decoder->run_rows[i]->own.pages;
    decoder->source_lists[i] = decoder->item_pages + decoder->run_rows[i]->item * decoder->pages_per_item;
  }
  decoder->caches = (CacheRows){decoder->own_lists, decoder->source_lists};
  decoder->step->caches = &decoder->caches;
}

tfm_status decoder_run(tfm_decoder *decoder, const DecoderRun *run, tfm_error *error) {
  decoder_set_symbols(decoder, run->rows, run->past, run->fresh, run->kept);
  tfm_status status = context_bind_symbols(decoder->step, decoder->symbols, error);
  if (status) return status;
  set_inputs(decoder, run->rows);
  set_outputs(decoder, run);
  set_pages(decoder, run->rows);
  if ((status = ids_check_inputs(decoder->step, decoder->step->given, error))) return status;
  if (run->best) best_begin(&decoder->best, run->best, run->members, run->rows, decoder->step->threads);
  status = run_steps(decoder->step, error);
  if (run->best) best_end(&decoder->best, run->rows, decoder->step->threads);
  if (status) return status;
  take_results(decoder, run->rows);
  return TFM_OK;
}
