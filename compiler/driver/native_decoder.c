#include "driver/native_decoder.h"

#include <stdlib.h>
#include <string.h>

#include "aot/library_file.h"
#include "driver/decoding_memory.h"
#include "driver/engine_compiled.h"
#include "driver/host.h"
#include "driver/incremental.h"
#include "driver/packing.h"
#include "jit/jit.h"
#include "plan/decoding.h"
#include "plan/share_weights.h"

struct NativeDecoder {
  Session *session;
  Jit *source, *step;
  char *packed;
  tfm_model *model; /* of a library, in place of the three above */
  tfm_decoding decoding;
  tfm_decoder *decoder;
};

void native_decoder_destroy(NativeDecoder *decoder) {
  if (!decoder) return;
  tfm_decoder_destroy(decoder->decoder);
  free(decoder->packed);
  jit_destroy(decoder->source);
  jit_destroy(decoder->step);
  tfm_model_close(decoder->model);
}

// ---- making it ----

static bool compile(NativeDecoder *decoder, const DecodingPlan *plans) {
  Session *session = decoder->session;
  const CodeCache *cache = cache_open(session->arena, cache_default_folder(session->arena), CACHE_MOST_BYTES);
  decoder->step = jit_create_cached(session->arena, &session->diag, plans->step, cache, NULL);
  if (!decoder->step) return false;
  decoder->decoding = plans->decoding;
  decoder->decoding.step = jit_program(decoder->step);
  if (!plans->source) return true;
  decoder->source = jit_create_cached(session->arena, &session->diag, plans->source, cache, NULL);
  if (!decoder->source) return false;
  decoder->decoding.source = jit_program(decoder->source);
  return true;
}

/* The step's weights come first: they are read for every token. */
static bool pack(NativeDecoder *decoder, const DecodingPlan *plans, WeightSource *weights) {
  Plan *const both[] = {plans->step, plans->source};
  uint32_t n = plans->source ? 2 : 1;
  share_weights(decoder->session->arena, both, n);
  decoder->packed = pack_in_memory(decoder->session, both, n, weights);
  weight_source_release(weights);
  return decoder->packed != NULL;
}

static bool open_decoder(NativeDecoder *decoder) {
  tfm_error error;
  tfm_context_options options = compiled_options(decoder->session);
  if (tfm_decoder_create(&decoder->decoding, decoder->packed, decoder->packed, &options, &decoder->decoder, &error) ==
      TFM_OK)
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
  Incremental made;
  if (!make_incremental(session, graph, &made) || !made.step) return NULL;
  const TargetInfo *target = host_choose_target(session, true);
  const DecodingPlan *plans = target ? plan_decoding(session->arena, &session->diag, &made, target) : NULL;
  if (!plans) return NULL;
  NativeDecoder *decoder = ARENA_NEW(session->arena, NativeDecoder);
  decoder->session = session;
  bool packed = pack(decoder, plans, weights);
  if (packed) report_memory(session, graph, &plans->decoding);
  if (packed && compile(decoder, plans) && open_decoder(decoder)) return decoder;
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
