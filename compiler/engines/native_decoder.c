/* A decoder of compiled code: making it, telling what memory it takes, feeding it.
 *
 * In: the incremental form of a model (derived here or inside a library), its weights, the inputs of the encoder.
 * Out: what the decoding loop of the runtime calls. A model without an incremental form gets no decoder, which is no
 * error: the caller computes whole rows then. */
#include "engines/native_decoder.h"

#include <inttypes.h>
#include <string.h>

#include "tfm/abi/pages.h"

struct NativeDecoder {
  const EngineSettings *settings;
  Compiled compiled;
  OpenLibrary library; /* in place of what was compiled */
  tfm_decoding decoding;
  tfm_decoder *decoder;
};

/* The decoder uses the compiled code or the model, so it goes first. Members that were not reached are NULL. */
void native_decoder_destroy(NativeDecoder *decoder) {
  if (!decoder) return;
  tfm_decoder_destroy(decoder->decoder);
  compiled_free(&decoder->compiled);
  library_close(&decoder->library);
}

// ---- memory ----

/* Caches grow by whole pages of TFM_CACHE_PAGE positions. */
static int64_t pages_bytes(int64_t floats, int64_t length) {
  return floats ? (length + TFM_CACHE_PAGE - 1) / TFM_CACHE_PAGE * tfm_page_bytes(floats) : 0;
}

int64_t decoding_row_bytes(const tfm_decoding *decoding, int64_t length) {
  return pages_bytes(decoding->step->own_page_floats, length);
}

int64_t decoding_source_bytes(const tfm_decoding *decoding, int64_t length) {
  return pages_bytes(decoding->step->encoder_page_floats, length);
}

/* The max_length of the generate block, 0 if it has none; the report then tells what a row of that length costs. */
static int64_t max_length_of(const Graph *graph) {
  for (size_t i = 0; i < graph->generate_settings.n; i++) {
    const GenerateSetting *setting = &graph->generate_settings.items[i];
    if (strcmp(setting->name, "max_length") == 0 && setting->values.n) return (int64_t)setting->values.items[0];
  }
  return 0;
}

/* Whether some cache is an ordinary tensor: such caches are not counted in pages. */
static bool has_tensors(const tfm_decoding *decoding) {
  for (uint32_t i = 0; i < decoding->step->n_inputs; i++)
    if (i != decoding->decoder_input && decoding->inputs[i].is_cache) return true;
  return false;
}

void decoding_memory_print(StrBuf *out, const tfm_decoding *decoding, const Graph *graph) {
  int64_t row = decoding_row_bytes(decoding, TFM_CACHE_PAGE), source = decoding_source_bytes(decoding, TFM_CACHE_PAGE);
  int64_t length = max_length_of(graph);
  strbuf_printf(out, "memory: weights %" PRIu64 " bytes\n", decoding->step->weights_bytes);
  strbuf_printf(out, "memory: %d tokens of a row %" PRId64 " bytes", TFM_CACHE_PAGE, row);
  if (length > 0)
    strbuf_printf(out, ", a row of %" PRId64 " tokens %" PRId64, length, decoding_row_bytes(decoding, length));
  strbuf_add(out, has_tensors(decoding) ? ", and the caches that are tensors\n" : "\n");
  if (source) strbuf_printf(out, "memory: %d positions of a source %" PRId64 " bytes\n", TFM_CACHE_PAGE, source);
}

// ---- making it ----

/* The encoder and the step share one block of packed weights, hence the same pointer twice. */
static bool open_decoder(NativeDecoder *decoder) {
  tfm_error error;
  tfm_context_options options = context_options(decoder->settings);
  const char *packed = decoder->compiled.packed;
  decoder->decoding = decoder->compiled.decoding;
  if (tfm_decoder_create(&decoder->decoding, packed, packed, &options, &decoder->decoder, &error) == TFM_OK)
    return true;
  report_runtime_error(decoder->settings->compile.diag, &error);
  return false;
}

static bool open_library(NativeDecoder *decoder, Graph *graph, WeightSource *weights) {
  tfm_error error;
  tfm_context_options options = context_options(decoder->settings);
  if (!library_open(decoder->settings, graph, weights, &decoder->library)) return false;
  decoder->decoding = *tfm_model_decoding(decoder->library.model);
  if (tfm_model_decoder(decoder->library.model, &options, &decoder->decoder, &error) == TFM_OK) return true;
  report_runtime_error(decoder->settings->compile.diag, &error);
  return false;
}

/* Whether a library is incremental was decided when it was made; its description says so without loading it. */
static NativeDecoder *of_library(const EngineSettings *settings, Graph *graph, WeightSource *weights) {
  if (!settings->library->is_incremental) return NULL;
  NativeDecoder *decoder = ARENA_NEW(settings->compile.arena, NativeDecoder);
  decoder->settings = settings;
  if (open_library(decoder, graph, weights)) return decoder;
  native_decoder_destroy(decoder);
  return NULL;
}

static void report_memory(const EngineSettings *settings, const Graph *graph, const tfm_decoding *decoding) {
  if (!settings->print) return;
  StrBuf text = strbuf_new(settings->compile.arena);
  decoding_memory_print(&text, decoding, graph);
  settings->print(&text);
}

/* The derivation belongs to the command and was made before any engine, so that deriving happens once whatever runs
 * afterwards. */
NativeDecoder *native_decoder_create(const EngineSettings *settings, Graph *graph, WeightSource *weights) {
  if (settings->library) return of_library(settings, graph, weights);
  if (!settings->derived->parts.step) return NULL;
  CompileRequest request;
  if (!engine_request(settings, weights, &request)) return NULL;
  NativeDecoder *decoder = ARENA_NEW(settings->compile.arena, NativeDecoder);
  decoder->settings = settings;
  if (!compile_decoder(&request, settings->derived, &decoder->compiled)) return NULL;
  report_memory(settings, graph, &decoder->compiled.decoding);
  if (open_decoder(decoder)) return decoder;
  native_decoder_destroy(decoder);
  return NULL;
}

/* Printed after tfm_decoder_begin: from then on the decoder owns the memory of all rows, and a step allocates
 * nothing. */
static void report_reserved(const NativeDecoder *decoder, int64_t max_rows, int64_t max_length) {
  if (!decoder->settings->print) return;
  StrBuf text = strbuf_new(decoder->settings->compile.arena);
  strbuf_printf(&text, "memory: room for %lld row%s of %lld tokens, with workspaces: %llu bytes\n",
                (long long)max_rows, max_rows == 1 ? "" : "s", (long long)max_length,
                (unsigned long long)tfm_decoder_bytes(decoder->decoder));
  decoder->settings->print(&text);
}

// ---- using it ----

/* The inputs of the encoder in its order, out of what the command line gave. NULL: the model has no encoder. */
static tfm_value *encoder_inputs(const NativeDecoder *decoder, const Scorer *scorer) {
  const tfm_program *encoder = decoder->decoding.encoder;
  if (!encoder) return NULL;
  tfm_value *values = ARENA_ARRAY(decoder->settings->compile.arena, tfm_value, encoder->n_inputs);
  for (uint32_t i = 0; i < encoder->n_inputs; i++)
    for (size_t k = 0; k < scorer->inputs.n; k++) {
      const ScorerInput *input = &scorer->inputs.items[k];
      if (strcmp(encoder->inputs[i].name, input->name) == 0)
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

/* The lengths of each ragged size of the encoder, by symbol, as tfm_decoder_begin_ragged wants them; NULL for sizes
 * that are the same for all items. They are checked here, by the function that the interpreter uses, so that the
 * message is the same. False after an error. */
static bool read_lengths(const NativeDecoder *decoder, const Scorer *scorer, const int64_t *const **lengths) {
  Arena *arena = decoder->settings->compile.arena;
  const tfm_program *encoder = decoder->decoding.encoder;
  *lengths = NULL;
  if (!decoder->decoding.ragged) return true;
  const int64_t **all = ARENA_ARRAY(arena, const int64_t *, encoder->n_symbols);
  for (uint32_t i = 0; i < encoder->n_symbols; i++) {
    const char *name = arena_printf(arena, "%s.lengths", encoder->symbols[i]);
    const Tensor *given = decoder->decoding.ragged[i] ? input_named(scorer, name) : NULL;
    if (!given) continue;
    if (!eval_check_lengths(arena, decoder->settings->compile.diag, name,
                            encoder->symbols[decoder->decoding.encoder_rows], scorer->batch, given))
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
  const tfm_value *inputs = encoder_inputs(decoder, scorer);
  const int64_t *const *lengths;
  if (!read_lengths(decoder, scorer, &lengths)) return false;
  if (tfm_decoder_begin_ragged(decoder->decoder, inputs, lengths, max_rows, max_length, &error) == TFM_OK) {
    report_reserved(decoder, max_rows, max_length);
    return true;
  }
  report_runtime_error(decoder->settings->compile.diag, &error);
  return false;
}

tfm_generate_model native_decoder_model(NativeDecoder *decoder) { return tfm_decoder_model(decoder->decoder); }

const tfm_program *native_decoder_step(const NativeDecoder *decoder) { return decoder->decoding.step; }

tfm_decoder *native_decoder_runtime(const NativeDecoder *decoder) { return decoder->decoder; }
