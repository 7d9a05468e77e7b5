/* The tensors of a run: those of its rows side by side, as the step program reads them, and the results cut into the
 * parts of the rows.
 *
 * In: a bound run with its rows. Out: addresses of its inputs and outputs; next_flat of the rows. A run of one row
 * reads and writes its blocks where they are: states are larger than all else that a token moves but weights. A
 * source's tensor is used as it is where the rows of the run read items that follow one another; what was gathered of
 * items stays in staging as long as the same rows ask for it. Refused: sources whose tensors need more room than was
 * made. */
#include <math.h>
#include <string.h>

#include "base/allocate.h"
#include "decode/decoder_memory.h"
#include "decode/row_caches.h"
#include "decode/staging.h"
#include "tfm/abi/drivers.h"

// ---- room ----

void staging_begin(tfm_decoder *decoder) {
  for (uint32_t i = 0; i < decoder->decoding->step->n_inputs; i++)
    decoder->staging.inputs[i].staging_row = decoder->staging.inputs[i].result_row = 0;
}

/* The dims of the step's tensors for one row of the group at its longest. */
static tfm_status set_longest(tfm_decoder *decoder, const SourceGroup *group, tfm_error *error) {
  const RunSizes sizes = {group, 1, group->longest - 1, 1, 1};
  return context_set_shapes(decoder->step, decoder_set_sizes(decoder, &sizes), error);
}

/* Bytes of a cache's next value for these dims. */
static int64_t result_bytes(const tfm_decoder *decoder, uint32_t input) {
  const tfm_step_input *info = &decoder->decoding->inputs[input];
  return info->is_cache ? decoder_output_bytes(decoder->step, info->number) : 0;
}

/* Bytes that a row of the group takes of each tensor, at most: in the run of one row that ends at the longest. */
tfm_status staging_measure(tfm_decoder *decoder, const SourceGroup *group, tfm_error *error) {
  tfm_status status = set_longest(decoder, group, error);
  for (uint32_t i = 0; i < decoder->decoding->step->n_inputs && !status; i++) {
    StepInput *input = &decoder->staging.inputs[i];
    if (i == decoder->decoding->decoder_input) continue;
    input->staging_row = greatest_of(input->staging_row, decoder_input_bytes(decoder->step, i));
    input->result_row = greatest_of(input->result_row, result_bytes(decoder, i));
  }
  return status;
}

tfm_status staging_check(tfm_decoder *decoder, const SourceGroup *group, tfm_error *error) {
  tfm_status status = set_longest(decoder, group, error);
  for (uint32_t i = 0; i < decoder->decoding->step->n_inputs && !status; i++) {
    const StepInput *input = &decoder->staging.inputs[i];
    if (i == decoder->decoding->decoder_input) continue;
    if (decoder_input_bytes(decoder->step, i) > input->staging_row || result_bytes(decoder, i) > input->result_row)
      status = tfm_refuse(error, TFM_E_INPUT, "a source needs more of \"%s\" than sources of the limits",
                          decoder->decoding->step->inputs[i].name);
  }
  return status;
}

/* Offsets of the caches that are tensors in the flat block of a row, sized for the largest of all groups. */
int64_t staging_place_flat(tfm_decoder *decoder) {
  Layout flat = {0};
  for (uint32_t i = 0; i < decoder->decoding->step->n_inputs; i++) {
    if (!input_is_flat_cache(decoder->decoding, i)) continue;
    decoder->staging.inputs[i].flat_offset = flat.bytes;
    layout_take(&flat, decoder->staging.inputs[i].result_row, 1);
  }
  return flat.bytes;
}

/* Room for the tensors of the largest run. An input that all rows share needs staging only if it is a cache. */
static void place_staged(tfm_decoder *decoder, Layout *layout) {
  const tfm_decoding *decoding = decoder->decoding;
  for (uint32_t i = 0; i < decoding->step->n_inputs; i++) {
    if (i == decoding->decoder_input) continue;
    const tfm_step_input *info = &decoding->inputs[i];
    StepInput *input = &decoder->staging.inputs[i];
    int64_t rows = info->batch_axis == TFM_NONE ? 1 : decoder->calls.most_rows;
    if (info->is_cache || info->batch_axis != TFM_NONE) input->staging = layout_take(layout, rows, input->staging_row);
    if (info->is_cache) input->result = layout_take(layout, rows, input->result_row);
  }
}

static void place_tables(tfm_decoder *decoder, Layout *layout) {
  const int64_t rows = decoder->calls.most_rows;
  decoder->staging.parts = layout_take(layout, rows, sizeof *decoder->staging.parts);
  decoder->staging.gathered = layout_take(layout, rows, sizeof *decoder->staging.gathered);
}

tfm_status staging_reserve(tfm_decoder *decoder, tfm_error *error) {
  Staging *staging = &decoder->staging;
  Layout layout = {0}, tables = {0};
  place_staged(decoder, &layout);
  place_tables(decoder, &tables);
  if (layout.bytes < 0 || tables.bytes < 0 || !decoder_reserve_block(decoder, &staging->block, layout.bytes) ||
      !decoder_reserve_block(decoder, &staging->tables, tables.bytes))
    return tfm_no_memory(error, "the tensors of the rows");
  layout = (Layout){.block = staging->block.memory};
  tables = (Layout){.block = staging->tables.memory};
  place_staged(decoder, &layout);
  place_tables(decoder, &tables);
  staging_forget(decoder);
  return TFM_OK;
}

void staging_forget(tfm_decoder *decoder) {
  for (int64_t i = 0; i < decoder->calls.most_rows; i++) decoder->staging.gathered[i] = (Gathered){0};
}

/* The axis of the batch splits a tensor into `outer` indexes before it and the bytes of a row behind it. */
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

// ---- what goes in ----

/* The parts of an input for the sizes that the run is bound to. */
static Parts input_parts(const tfm_decoder *decoder, const BoundRun *run, uint32_t input) {
  return parts_of(&decoder->decoding->step->inputs[input],
                  run->context->binding.input_dims + (size_t)input * TFM_MAX_RANK,
                  decoder->decoding->inputs[input].batch_axis, run->info->sizes.rows);
}

static char *staging_of(const tfm_decoder *decoder, const BoundRun *run, uint32_t input) {
  const StepInput *state = &decoder->staging.inputs[input];
  const int64_t skipped = run->info->first * state->staging_row;
  return skipped ? state->staging + skipped : state->staging; /* a tensor without bytes is NULL */
}

static char *result_of(const tfm_decoder *decoder, const BoundRun *run, uint32_t input) {
  const StepInput *state = &decoder->staging.inputs[input];
  return state->result + run->info->first * state->result_row;
}

/* Puts a row's part for each outer index, `stride` bytes apart in `sources`, side by side. A source without positions
 * has parts without bytes, and no memory. */
static void gather(char *target, const Parts *parts, int64_t rows, const char *const *sources, int64_t stride) {
  if (!parts->bytes) return;
  for (int64_t outer = 0; outer < parts->outer; outer++)
    for (int64_t row = 0; row < rows; row++, target += parts->bytes)
      memcpy(target, sources[row] + outer * stride, (size_t)parts->bytes);
}

/* Which of its group's items a row of the run reads. */
static int64_t place_of_item(const tfm_decoder *decoder, const BoundRun *run, int64_t row) {
  return decoder->sources.item[run->rows[row]->item].place;
}

/* Whether the rows read items of the group that follow one another. */
static bool items_in_order(const tfm_decoder *decoder, const BoundRun *run) {
  for (int64_t i = 1; i < run->info->sizes.rows; i++)
    if (place_of_item(decoder, run, i) != place_of_item(decoder, run, 0) + i) return false;
  return true;
}

/* The tensor of a source as it is, if the rows' part of it is in one piece; else NULL, and the parts must be
 * gathered. */
static void *kept_in_place(const tfm_decoder *decoder, const BoundRun *run, uint32_t input, bool in_order) {
  const SourceGroup *group = run->info->sizes.group;
  if (decoder->decoding->inputs[input].batch_axis == TFM_NONE) return (void *)group->kept[input];
  Parts parts = input_parts(decoder, run, input);
  if (!in_order || (parts.outer > 1 && run->info->sizes.rows < group->n)) return NULL;
  const int64_t skipped = place_of_item(decoder, run, 0) * parts.bytes;
  return (void *)(skipped ? group->kept[input] + skipped : group->kept[input]); /* a tensor without bytes is NULL */
}

/* Whether staging holds the parts of exactly these items from an earlier run: beams read the same source step after
 * step. */
static bool items_are_gathered(const tfm_decoder *decoder, const BoundRun *run) {
  const Gathered *gathered = decoder->staging.gathered + run->info->first;
  for (int64_t i = 0; i < run->info->sizes.rows; i++)
    if (gathered[i].item != run->rows[i]->item || gathered[i].first != run->info->first ||
        gathered[i].rows != run->info->sizes.rows)
      return false;
  return true;
}

/* Puts the encoder's tensors together for the rows that read them. They stay valid from run to run as long as the
 * items do. */
static void gather_items(tfm_decoder *decoder, const BoundRun *run) {
  const tfm_decoding *decoding = decoder->decoding;
  const SourceGroup *group = run->info->sizes.group;
  const int64_t first = run->info->first, rows = run->info->sizes.rows;
  for (int64_t i = 0; i < rows; i++)
    decoder->staging.gathered[first + i] = (Gathered){run->rows[i]->item, first, rows};
  for (uint32_t input = 0; input < decoding->step->n_inputs; input++) {
    if (!input_is_of_encoder(decoding, input) || decoding->inputs[input].batch_axis == TFM_NONE) continue;
    Parts parts = input_parts(decoder, run, input);
    if (!parts.bytes) continue; /* a tensor without bytes is NULL */
    for (int64_t i = 0; i < rows; i++)
      decoder->staging.parts[i] = group->kept[input] + place_of_item(decoder, run, i) * parts.bytes;
    gather(staging_of(decoder, run, input), &parts, rows, decoder->staging.parts, group->n * parts.bytes);
  }
}

/* The chunks of a long beginning continue what the chunk before wrote. */
static const char *flat_of(const DecoderRow *row) { return row->next_flat ? row->next_flat : row->flat; }

/* States of rows without tokens. */
static void fill_first(const tfm_decoder *decoder, const BoundRun *run, uint32_t input, const Parts *parts,
                       int64_t rows) {
  char *to = staging_of(decoder, run, input);
  const int64_t bytes = parts->outer * parts->bytes * rows;
  const float first = decoder->decoding->inputs[input].first == TFM_FIRST_MINUS_ZERO ? -0.0f : 0.0f;
  if (signbit(first))
    for (int64_t i = 0; i < bytes; i += (int64_t)sizeof first) memcpy(to + i, &first, sizeof first);
  else
    memset(to, 0, (size_t)bytes);
}

/* Its parts of the tensors are the tensors. */
static bool is_alone(const BoundRun *run) { return run->info->sizes.rows == 1; }

/* Puts the caches that are tensors together. One that is the same for all rows is read from the first. Either all rows
 * of a run have tokens or none has. */
void staging_gather_flat(tfm_decoder *decoder, const BoundRun *run, uint32_t input) {
  Parts parts = input_parts(decoder, run, input);
  int64_t rows = decoder->decoding->inputs[input].batch_axis == TFM_NONE ? 1 : run->info->sizes.rows;
  if (parts.bytes * parts.outer == 0) return; /* no positions yet */
  if (!flat_of(run->rows[0])) {
    fill_first(decoder, run, input, &parts, rows);
    return;
  }
  const int64_t offset = decoder->staging.inputs[input].flat_offset;
  for (int64_t i = 0; i < rows; i++) decoder->staging.parts[i] = flat_of(run->rows[i]) + offset;
  gather(staging_of(decoder, run, input), &parts, rows, decoder->staging.parts, parts.bytes);
}

/* Where the run reads an input: the tokens, staging, or the encoder's tensor itself. */
static void *input_address(tfm_decoder *decoder, const BoundRun *run, uint32_t input, bool in_order) {
  const tfm_decoding *decoding = decoder->decoding;
  if (input == decoding->decoder_input) return decoder->calls.tokens + run->info->first_token;
  if (decoding->inputs[input].is_cache) {
    DecoderRow *row = run->rows[0];
    /* A chunk behind the first one writes to the block that it reads. */
    if (is_alone(run) && row->flat && !row->next_flat) return row->flat + decoder->staging.inputs[input].flat_offset;
    decoding->step->drivers->gather_flat(decoder, run, input);
    return staging_of(decoder, run, input);
  }
  void *kept = kept_in_place(decoder, run, input, in_order);
  return kept ? kept : staging_of(decoder, run, input);
}

/* One input that is not in one piece decides for all: they are gathered together. */
static bool needs_gathering(const tfm_decoder *decoder, const BoundRun *run, bool in_order) {
  for (uint32_t i = 0; i < decoder->decoding->step->n_inputs; i++)
    if (input_is_of_encoder(decoder->decoding, i) && !kept_in_place(decoder, run, i, in_order))
      return !items_are_gathered(decoder, run);
  return false;
}

static void set_inputs(tfm_decoder *decoder, const BoundRun *run) {
  tfm_context *step = run->context;
  bool in_order = items_in_order(decoder, run);
  if (needs_gathering(decoder, run, in_order)) gather_items(decoder, run);
  for (uint32_t i = 0; i < step->program->n_inputs; i++) {
    const tfm_tensor_info *info = &step->program->inputs[i];
    step->run.callers[i] = input_address(decoder, run, i, in_order);
    step->given[i] = (tfm_value){step->run.callers[i], info->dtype, info->rank,
                                 step->binding.input_dims + (size_t)i * TFM_MAX_RANK};
  }
}

// ---- what comes out ----

/* Where the next value of a cache is written. */
static char *next_of(const tfm_decoder *decoder, const BoundRun *run, uint32_t input) {
  if (is_alone(run)) return run->rows[0]->next_flat + decoder->staging.inputs[input].flat_offset;
  return result_of(decoder, run, input);
}

/* Outputs that are NULL are not computed; caches that are tensors always are. */
static void set_outputs(tfm_decoder *decoder, const BoundRun *run) {
  tfm_context *step = run->context;
  const tfm_decoding *decoding = decoder->decoding;
  void **outputs = step->run.callers + step->program->n_inputs;
  for (uint32_t i = 0; i < step->program->n_outputs; i++) outputs[i] = NULL;
  /* The best are taken by the consumer; any address says that the steps which lead to them are wanted. */
  outputs[decoding->logits] = run->info->best ? (void *)run->info->best->best : run->info->logits;
  if (decoding->logsumexp != TFM_NONE) outputs[decoding->logsumexp] = run->info->logsumexp;
  for (uint32_t i = 0; i < step->program->n_inputs; i++)
    if (input_is_flat_cache(decoding, i)) outputs[decoding->inputs[i].number] = next_of(decoder, run, i);
}

/* Cuts the next value of a cache into the parts of the rows. */
void staging_take_flat(tfm_decoder *decoder, const BoundRun *run, uint32_t input) {
  const tfm_step_input *info = &decoder->decoding->inputs[input];
  const int64_t rows = run->info->sizes.rows;
  Parts parts = parts_of(&decoder->decoding->step->outputs[info->number],
                         run->context->binding.output_dims + (size_t)info->number * TFM_MAX_RANK, info->batch_axis,
                         rows);
  bool same = info->batch_axis == TFM_NONE;
  for (int64_t i = 0; i < rows; i++) {
    const char *from = result_of(decoder, run, input) + (same ? 0 : i * parts.bytes);
    char *to = run->rows[i]->next_flat + decoder->staging.inputs[input].flat_offset;
    for (int64_t outer = 0; outer < parts.outer; outer++, to += parts.bytes)
      memcpy(to, from + outer * parts.bytes * (same ? 1 : rows), (size_t)parts.bytes);
  }
}

/* next_flat becomes `flat` only when the whole step has succeeded. */
void staging_take_results(tfm_decoder *decoder, const BoundRun *run) {
  if (!decoder->caches.flat_bytes || is_alone(run)) return;
  for (int64_t i = 0; i < run->info->sizes.rows; i++)
    caches_take_next(decoder, run->rows[i]);
  const tfm_program *step = decoder->decoding->step;
  for (uint32_t i = 0; i < step->n_inputs; i++)
    if (input_is_flat_cache(decoder->decoding, i)) step->drivers->take_flat(decoder, run, i);
}

void staging_set_tensors(tfm_decoder *decoder, const BoundRun *run) {
  set_inputs(decoder, run);
  if (decoder->caches.flat_bytes && is_alone(run)) caches_take_next(decoder, run->rows[0]);
  set_outputs(decoder, run);
}
