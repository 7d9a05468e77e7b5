#include "driver/native_decoder.h"

#include <string.h>

#include "aot/library_file.h"
#include "driver/decoding_memory.h"
#include "driver/engine_compiled.h"
#include "driver/host.h"
#include "driver/passes_options.h"

struct NativeDecoder {
  Session *session;
  Compiled compiled;
  tfm_model *model; /* of a library, in place of what was compiled */
  tfm_decoding decoding;
  tfm_decoder *decoder;
};

void native_decoder_destroy(NativeDecoder *decoder) {
  if (!decoder) return;
  tfm_decoder_destroy(decoder->decoder);
  compiled_free(&decoder->compiled);
  tfm_model_close(decoder->model);
}

// ---- making it ----

static bool open_decoder(NativeDecoder *decoder) {
  tfm_error error;
  tfm_context_options options = compiled_options(decoder->session);
  const char *packed = decoder->compiled.packed;
  decoder->decoding = decoder->compiled.decoding;
  if (tfm_decoder_create(&decoder->decoding, packed, packed, &options, &decoder->decoder, &error) == TFM_OK)
    return true;
  compiled_report(decoder->session, &error);
  return false;
}

static bool open_library(NativeDecoder *decoder, Graph *graph, WeightSource *weights) {
  tfm_error error;
  tfm_context_options options = compiled_options(decoder->session);
  decoder->model = library_open(decoder->session, graph, weights);
  if (!decoder->model) return false;
  decoder->decoding = *tfm_model_decoding(decoder->model);
  if (tfm_model_decoder(decoder->model, &options, &decoder->decoder, &error) == TFM_OK) return true;
  compiled_report(decoder->session, &error);
  return false;
}

static NativeDecoder *of_library(Session *session, Graph *graph, WeightSource *weights) {
  if (!session->library->is_incremental) return NULL;
  NativeDecoder *decoder = ARENA_NEW(session->arena, NativeDecoder);
  decoder->session = session;
  if (open_library(decoder, graph, weights)) return decoder;
  native_decoder_destroy(decoder);
  return NULL;
}

static void report_memory(Session *session, const Graph *graph, const tfm_decoding *decoding) {
  if (!option_given(&session->options, OPTION_REPORT)) return;
  StrBuf text = strbuf_new(session->arena);
  decoding_memory_print(&text, decoding, graph);
  session_print(&text);
}

NativeDecoder *native_decoder_create(Session *session, Graph *graph, WeightSource *weights) {
  if (session->library) return of_library(session, graph, weights);
  if (!session->derived->parts.step) return NULL;
  CompileRequest request = compile_request(session, weights);
  request.target = host_choose_target(session, true);
  if (!request.target) return NULL;
  request.cache = cache_open(session->arena, cache_default_folder(session->arena), CACHE_MOST_BYTES);
  NativeDecoder *decoder = ARENA_NEW(session->arena, NativeDecoder);
  decoder->session = session;
  if (!compile_decoder(&request, session->derived, &decoder->compiled)) return NULL;
  weight_source_release(weights);
  report_memory(session, graph, &decoder->compiled.decoding);
  if (open_decoder(decoder)) return decoder;
  native_decoder_destroy(decoder);
  return NULL;
}

/* Printed once: the decoder has the memory of all rows from then on. */
static void report_reserved(const NativeDecoder *decoder, int64_t max_rows, int64_t max_length) {
  if (!option_given(&decoder->session->options, OPTION_REPORT)) return;
  StrBuf text = strbuf_new(decoder->session->arena);
  strbuf_printf(&text, "memory: room for %lld rows of %lld tokens and their workspaces %llu bytes\n", (long long)max_rows,
                (long long)max_length, (unsigned long long)tfm_decoder_bytes(decoder->decoder));
  session_print(&text);
}

// ---- using it ----

static tfm_value *source_inputs(const NativeDecoder *decoder, const Scorer *scorer) {
  const tfm_program *source = decoder->decoding.source;
  if (!source) return NULL;
  tfm_value *values = ARENA_ARRAY(decoder->session->arena, tfm_value, source->n_inputs);
  for (uint32_t i = 0; i < source->n_inputs; i++)
    for (size_t k = 0; k < scorer->inputs.n; k++) {
      const ScorerInput *input = &scorer->inputs.items[k];
      if (strcmp(source->inputs[i].name, input->name) == 0)
        values[i] = (tfm_value){input->tensor.data, (int32_t)input->tensor.dtype, (int32_t)input->tensor.rank,
                                input->tensor.dims};
    }
  return values;
}

static const Tensor *input_named(const Scorer *scorer, const char *name) {
  for (size_t i = 0; i < scorer->inputs.n; i++)
    if (strcmp(scorer->inputs.items[i].name, name) == 0) return &scorer->inputs.items[i].tensor;
  return NULL;
}

/* As tfm_decoder_begin_ragged takes them. False after an error. */
static bool read_lengths(const NativeDecoder *decoder, const Scorer *scorer, const int64_t *const **lengths) {
  Arena *arena = decoder->session->arena;
  const tfm_program *source = decoder->decoding.source;
  *lengths = NULL;
  if (!decoder->decoding.ragged) return true;
  const int64_t **all = ARENA_ARRAY(arena, const int64_t *, source->n_symbols);
  for (uint32_t i = 0; i < source->n_symbols; i++) {
    const char *name = arena_printf(arena, "%s.lengths", source->symbols[i]);
    const Tensor *given = decoder->decoding.ragged[i] ? input_named(scorer, name) : NULL;
    if (!given) continue;
    if (!eval_check_lengths(arena, &decoder->session->diag, name, source->symbols[decoder->decoding.source_rows],
                            scorer->batch, given))
      return false;
    int64_t *values = ARENA_ARRAY(arena, int64_t, scorer->batch);
    for (int64_t item = 0; item < scorer->batch; item++) values[item] = ((const int32_t *)given->data)[item];
    all[i] = values;
  }
  *lengths = all;
  return true;
}

bool native_decoder_begin(NativeDecoder *decoder, const Scorer *scorer, int64_t max_rows, int64_t max_length) {
  tfm_error error;
  const tfm_value *inputs = source_inputs(decoder, scorer);
  const int64_t *const *lengths;
  if (!read_lengths(decoder, scorer, &lengths)) return false;
  if (tfm_decoder_begin_ragged(decoder->decoder, inputs, lengths, max_rows, max_length, &error) == TFM_OK) {
    report_reserved(decoder, max_rows, max_length);
    return true;
  }
  compiled_report(decoder->session, &error);
  return false;
}

tfm_generate_model native_decoder_model(NativeDecoder *decoder) {
  return tfm_decoder_model(decoder->decoder);
}
