/* What libraries of generative models export: <model>_begin and <model>_step, and <model>_generate. In: a context, a
 * struct of args. Out: logits, generated tokens.
 *
 * A context has at most one decoder, made when it is first needed, with the threads and the memory of the context and
 * its one caller at a time. <model>_generate takes prompts and options from a call. A model with an incremental form
 * continues from the caches of that decoder; any other runs whole for each token (forward_scores.c). Refused: steps
 * before <model>_begin, or after something else has used the rows; a call with neither a prompt nor a start token;
 * what forward and the options refuse.
 *
 * This file stands apart from exports.c so that libraries of models that do not generate are linked without a
 * decoder. */
#include <string.h>

#include "base/allocate.h"
#include "decode/decoder.h"
#include "library/forward_scores.h"
#include "library/exports.h"
#include "library/open.h"
#include "tfm/decode.h"
#include "tfm/generate.h"

// ---- steps ----

static void end_decoder(LibraryHandle *handle) {
  tfm_decoder_destroy(handle->decoder);
  handle->decoder = NULL;
  handle->decodes = false;
  handle->end_decoder = NULL;
}

/* The decoder shares the pool of the context. The caller has the context to itself, so the two never run at the same
 * time. */
static tfm_status make_decoder(tfm_context *context, tfm_error *error) {
  LibraryHandle *handle = handle_of(context);
  const tfm_context_options options = {
      .struct_size = sizeof options, .pool = context->pool, .allocator = context->allocator};
  const tfm_decoding *decoding = handle->model->decoding;
  if (handle->decoder) return TFM_OK;
  tfm_status status = tfm_decoder_create(decoding, decoding->encoder ? context->weights : NULL, context->weights,
                                         &options, &handle->decoder, error);
  if (status) return status;
  decoder_stop_with(handle->decoder, context->stop);
  handle->end_decoder = end_decoder;
  return TFM_OK;
}

/* The inputs of the encoder program are those of the model without the decoder input. They replace the inputs of the
 * call in context->given. */
static tfm_status source_inputs(tfm_context *context, const void *args, tfm_error *error) {
  const tfm_generation *generation = handle_of(context)->table->generation;
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

/* What args say of the sizes that the encoder program has too, which are found by name; NULL: no size has lengths. */
static const int64_t *const *source_lengths(const tfm_context *context, const void *args, const int64_t **lengths) {
  const tfm_program *source = handle_of(context)->model->decoding->encoder;
  if (!handle_of(context)->table->args.lengths || !source) return NULL;
  for (uint32_t i = 0; i < source->n_symbols; i++) {
    lengths[i] = NULL;
    for (uint32_t k = 0; k < context->program->n_symbols; k++)
      if (strcmp(source->symbols[i], context->program->symbols[k]) == 0)
        lengths[i] = library_lengths(handle_of(context)->table, args, k);
  }
  return lengths;
}

/* decodes is cleared first: after a failure there are no rows to continue. */
tfm_status library_begin(tfm_context *context, const void *args, int64_t max_rows, int64_t max_length,
                         tfm_error *error) {
  handle_of(context)->decodes = false;
  tfm_status status = source_inputs(context, args, error);
  if (!status) status = make_decoder(context, error);
  if (status) return status;
  const tfm_value *inputs = handle_of(context)->model->decoding->encoder ? context->given : NULL;
  const int64_t *places[MOST_SIZES], *const *lengths = source_lengths(context, args, places);
  return tfm_decoder_begin_ragged(handle_of(context)->decoder, inputs, lengths, max_rows, max_length, error);
}

// ---- calls ----

tfm_status tfm_library_begin(tfm_context *context, const void *args, int64_t max_rows, int64_t max_length,
                             tfm_error *error) {
  tfm_status status = library_enter(context, error);
  if (status) return status;
  status = library_begin(context, args, max_rows, max_length, error);
  handle_of(context)->decodes = !status;
  library_leave(context);
  return status;
}

/* library_enter for calls that continue what <model>_begin began. */
static tfm_status enter(tfm_context *context, tfm_error *error) {
  tfm_status status = library_enter(context, error);
  if (status || handle_of(context)->decodes) return status;
  library_leave(context);
  return tfm_refuse_call(error, "nothing was begun with this context");
}

static tfm_status leave_call(tfm_context *context, tfm_status status) {
  library_leave(context);
  return status;
}

tfm_status tfm_library_join(tfm_context *context, int64_t item, int64_t *row, tfm_error *error) {
  tfm_status status = enter(context, error);
  return status ? status : leave_call(context, tfm_decoder_join(handle_of(context)->decoder, item, row, error));
}

tfm_status tfm_library_leave(tfm_context *context, int64_t row, tfm_error *error) {
  tfm_status status = enter(context, error);
  return status ? status : leave_call(context, tfm_decoder_leave(handle_of(context)->decoder, row, error));
}

tfm_status tfm_library_step(tfm_context *context, int64_t n, const tfm_decoder_row *rows, int64_t kept, float *logits,
                            float *logsumexp, tfm_error *error) {
  tfm_status status = enter(context, error);
  if (status) return status;
  return leave_call(context, tfm_decoder_step(handle_of(context)->decoder, n, rows, kept, logits, logsumexp, error));
}

tfm_status tfm_library_reorder(tfm_context *context, int64_t n, const int64_t *parents, tfm_error *error) {
  tfm_status status = enter(context, error);
  return status ? status : leave_call(context, tfm_decoder_reorder(handle_of(context)->decoder, n, parents, error));
}

tfm_status tfm_library_truncate(tfm_context *context, int64_t row, int64_t length, tfm_error *error) {
  tfm_status status = enter(context, error);
  return status ? status : leave_call(context, tfm_decoder_truncate(handle_of(context)->decoder, row, length, error));
}

int64_t tfm_library_keeps(const tfm_context *context, int64_t row, int64_t length) {
  const LibraryHandle *handle = context ? handle_of(context) : NULL;
  return handle && handle->decodes ? tfm_decoder_keeps(handle->decoder, row, length) : -1;
}

int64_t tfm_library_length(const tfm_context *context, int64_t row) {
  const LibraryHandle *handle = context ? handle_of(context) : NULL;
  return handle && handle->decodes ? tfm_decoder_length(handle->decoder, row) : -1;
}

/* Gives the decoder and its memory back; the next call that needs one makes it anew. */
void tfm_library_end(tfm_context *context) {
  if (library_enter(context, NULL)) return;
  if (handle_of(context)->end_decoder) handle_of(context)->end_decoder(handle_of(context));
  library_leave(context);
}

// ---- generation ----

typedef struct Call {
  tfm_context *context;
  const void *args;
  const tfm_generation *generation;
  tfm_generate_options options;
  tfm_prompts prompts;
  tfm_generate_model scorer; /* gives the logits, unless the call is cancelled */
  ForwardScores forward;
  void *memory; /* of the prompts and inputs */
  size_t bytes;
} Call;

/* Options that a shorter struct does not have are those of the generate block. */
static void read_generate_options(Call *call, const tfm_generate_options *given) {
  size_t size = given && given->struct_size ? given->struct_size : sizeof *given;
  call->options = call->generation->defaults;
  if (given) memcpy(&call->options, given, size < sizeof *given ? size : sizeof *given);
  call->options.struct_size = sizeof call->options;
}

// ---- prompts ----

static int64_t count_items(const Call *call) {
  return call->generation->batch == TFM_NONE ? 1 : call->context->asked[call->generation->batch];
}

/* Padding in front of a prompt is no text. A model with other inputs has its padding there, and none in its prompts. */
static int64_t padding_of(const Call *call, const int32_t *tokens, int64_t length) {
  if (call->context->program->n_inputs > 1 || length > call->prompts.width) return 0;
  return tfm_prompt_padding(tokens, length, call->options.pad_token_id);
}

/* Without prompts every row begins with `bos`. */
static void fill_prompts(Call *call, const int32_t *given, const int64_t *lengths, int32_t *tokens, int64_t *padding) {
  tfm_prompts *prompts = &call->prompts;
  for (int64_t i = 0; i < prompts->n && !given; i++) tokens[i] = (int32_t)call->generation->bos;
  for (int64_t i = 0; i < prompts->n && given; i++)
    padding[i] = padding_of(call, given + i * prompts->width, lengths ? lengths[i] : prompts->width);
  prompts->tokens = given ? given : tokens;
  prompts->lengths = lengths;
  prompts->padding = given ? padding : NULL;
}

/* Copies inputs, their dims and the sizes, because runs of the context overwrite its own. */
static void fill_forward(Call *call, tfm_value *inputs, int64_t *dims, int64_t *sizes, const int64_t **lengths) {
  const tfm_context *context = call->context;
  const tfm_program *program = context->program;
  for (uint32_t i = 0; i < program->n_symbols; i++)
    lengths[i] = library_lengths(handle_of(context)->table, call->args, i);
  memcpy(inputs, context->given, program->n_inputs * sizeof *inputs);
  memcpy(dims, context->binding.input_dims, (size_t)program->n_inputs * TFM_MAX_RANK * sizeof *dims);
  memcpy(sizes, context->asked, program->n_symbols * sizeof *sizes);
  for (uint32_t i = 0; i < program->n_inputs; i++) inputs[i].dims = dims + (size_t)i * TFM_MAX_RANK;
  call->forward = (ForwardScores){.context = call->context,
                                  .generation = call->generation,
                                  .inputs = inputs,
                                  .sizes = sizes,
                                  .lengths = lengths,
                                  .batch = count_items(call)};
}

/* Places what a call copies or makes in a block and fills it; returns the size of the block, -1 if it is too large. */
static int64_t lay_out_call(Call *call, char *block, const int32_t *given, const int64_t *lengths) {
  const tfm_program *program = call->context->program;
  const int64_t n = call->prompts.n;
  Layout layout = {.block = block};
  int32_t *tokens = layout_take(&layout, n, sizeof *tokens);
  int64_t *padding = layout_take(&layout, n, sizeof *padding);
  tfm_value *inputs = layout_take(&layout, program->n_inputs, sizeof *inputs);
  int64_t *dims = layout_take(&layout, (int64_t)program->n_inputs * TFM_MAX_RANK, sizeof *dims);
  int64_t *sizes = layout_take(&layout, program->n_symbols, sizeof *sizes);
  const int64_t **of_items = layout_take(&layout, program->n_symbols, sizeof *of_items);
  if (!block) return layout.bytes;
  fill_prompts(call, given, lengths, tokens, padding);
  fill_forward(call, inputs, dims, sizes, of_items);
  return layout.bytes;
}

static tfm_status nothing_to_begin_with(const Call *call, tfm_error *error) {
  return tfm_fail(error, TFM_E_INPUT, TFM_REASON_OTHER, NULL,
                  "nothing to begin with: give the input \"%s\", or set `bos` in the model's generate block",
                  call->context->program->inputs[call->generation->tokens].name);
}

/* Checked here for models without an incremental form too, which the decoder would not see. */
static tfm_status check_call_lengths(const Call *call, tfm_error *error) {
  const tfm_context *context = call->context;
  for (uint32_t symbol = 0; symbol < context->program->n_symbols; symbol++) {
    const int64_t *lengths = library_lengths(handle_of(context)->table, call->args, symbol);
    const int64_t most = context->asked[symbol];
    const char *name = context->program->symbols[symbol];
    for (int64_t i = 0; lengths && i < count_items(call); i++)
      if (lengths[i] < 0 || lengths[i] > most)
        return tfm_fail(error, TFM_E_INPUT, TFM_REASON_VALUE, NULL,
                        "'%s.lengths' has a length of %lld, but %s is %lld", name,
                        (long long)lengths[i], name, (long long)most);
  }
  return TFM_OK;
}

/* Reads sizes, inputs and prompts, and copies them into one block that is freed with the call. */
static tfm_status read_call(Call *call, const int64_t *lengths, tfm_error *error) {
  tfm_context *context = call->context;
  const void *args = call->args;
  const tfm_generation *generation = call->generation;
  tfm_status status = library_read_sizes(context, args, error);
  if (!status) status = check_call_lengths(call, error);
  if (!status) status = context_set_symbols(context, context->asked, error);
  if (!status) status = library_read_inputs(context, args, generation->tokens, error);
  if (status) return status;
  const int32_t *given = library_pointer(args, handle_of(context)->table->args.inputs[generation->tokens]);
  if (!given && lengths) return tfm_refuse_call(error, "there are lengths of prompts, but no prompts");
  if (!given && generation->bos == TFM_NO_TOKEN) return nothing_to_begin_with(call, error);
  call->prompts = (tfm_prompts){.n = count_items(call), .width = given ? context->asked[generation->length] : 1};
  int64_t bytes = lay_out_call(call, NULL, given, lengths);
  call->memory = bytes < 0 ? NULL : allocate(&context->allocator, (uint64_t)bytes, ALIGNMENT);
  if (!call->memory) return tfm_fail(error, TFM_E_NOMEM, TFM_REASON_OTHER, NULL, "not enough memory for generation");
  call->bytes = (size_t)bytes;
  lay_out_call(call, call->memory, given, lengths);
  return TFM_OK;
}

// ---- the model ----

/* A call that is cancelled between two runs is noticed here. */
static tfm_status check_stopped(const Call *call, tfm_error *error) {
  if (!atomic_load(&call->context->stop->call)) return TFM_OK;
  return tfm_fail(error, TFM_E_CANCELLED, TFM_REASON_OTHER, NULL, "the generation was cancelled");
}

static tfm_status logits_of(void *user, const tfm_step_rows *rows, float *logits, float *logsumexp, tfm_error *error) {
  Call *call = user;
  tfm_status status = check_stopped(call, error);
  return status ? status : call->scorer.logits(call->scorer.user, rows, logits, logsumexp, error);
}

static tfm_status decoder_best(void *user, const tfm_step_rows *rows, const tfm_best_call *wanted, tfm_error *error) {
  Call *call = user;
  tfm_status status = check_stopped(call, error);
  return status ? status : call->scorer.best(call->scorer.user, rows, wanted, error);
}

static tfm_status decoder_guessed(void *user, const tfm_step_rows *rows, const int64_t *guesses, float *logits,
                                  tfm_error *error) {
  Call *call = user;
  tfm_status status = check_stopped(call, error);
  return status ? status : call->scorer.guessed(call->scorer.user, rows, guesses, logits, error);
}

/* The decoder of the context if there is an incremental form, else whole runs. Illegal numbers of beams are clamped
 * here and refused by tfm_generate. */
static tfm_status make_scorer(Call *call, tfm_error *error) {
  tfm_context *context = call->context;
  if (!handle_of(context)->model->decoding) {
    call->scorer = forward_scores_model(&call->forward);
    return TFM_OK;
  }
  int64_t beams = least_of(greatest_of(call->options.num_beams, 1), TFM_MAX_BEAMS);
  int64_t longest = tfm_decoder_longest_row(&call->options, call->prompts.width);
  tfm_status status = library_begin(context, call->args, greatest_of(call->prompts.n * beams, 1), longest, error);
  if (!status) call->scorer = tfm_decoder_model(handle_of(context)->decoder);
  return status;
}

/* Work that scans logits needs no check: the next call for logits notices a cancellation. */
static void share(void *user, void (*work)(void *context, int64_t part, int64_t parts), void *context) {
  const Call *call = user;
  if (call->scorer.share) call->scorer.share(call->scorer.user, work, context);
  else work(context, 0, 1);
}

/* `stopped` is cleared first, so that only a cancellation during this call counts. */
static tfm_status generate(Call *call, const int64_t *lengths, tfm_generated *generated, tfm_error *error) {
  atomic_store(&call->context->stop->call, false);
  tfm_status status = read_call(call, lengths, error);
  if (!status) status = make_scorer(call, error);
  if (status) return status;
  const tfm_generate_model model = {.vocab = call->scorer.vocab,
                                    .user = call,
                                    .logits = logits_of,
                                    .gives_logsumexp = call->scorer.gives_logsumexp,
                                    .share = share,
                                    .best = call->scorer.best ? decoder_best : NULL,
                                    .most_best = call->scorer.most_best,
                                    .guessed = call->scorer.guessed ? decoder_guessed : NULL};
  return tfm_generate(&model, &call->prompts, &call->options, generated, error);
}

// ---- calls ----

void tfm_library_generate_defaults(const tfm_library *library, tfm_generate_options *options) {
  if (options) *options = library->generation->defaults;
}

tfm_status tfm_library_generate(tfm_context *context, const void *args, const int64_t *lengths,
                                const tfm_generate_options *options, tfm_generated *generated, tfm_error *error) {
  if (!generated) return tfm_refuse_call(error, "there is no place for what is generated");
  *generated = (tfm_generated){0};
  tfm_status status = library_enter(context, error);
  if (status) return status;
  Call call = {.context = context, .args = args, .generation = handle_of(context)->table->generation};
  read_generate_options(&call, options);
  status = generate(&call, lengths, generated, error);
  if (call.forward.context) forward_scores_free(&call.forward);
  release(&context->allocator, call.memory, call.bytes);
  library_leave(context);
  return status;
}

// ---- decoders for callers that loaded the library by its path ----

const tfm_decoding *tfm_model_decoding(const tfm_model *model) { return model ? model->decoding : NULL; }

tfm_status tfm_model_decoder(tfm_model *model, const tfm_context_options *options, tfm_decoder **decoder,
                             tfm_error *error) {
  if (!decoder) return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "there is no place for the decoder");
  *decoder = NULL;
  if (!model) return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "the model is a null pointer");
  if (!model->decoding)
    return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "the model \"%s\" is not incremental",
                    model->library->model);
  return tfm_decoder_create(model->decoding, model->weights.packed, model->weights.packed, options, decoder, error);
}
