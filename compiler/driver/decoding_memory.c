/* In: sizes of pages. Out: bytes, and lines that say them. */
#include "driver/decoding_memory.h"

#include <inttypes.h>
#include <string.h>

enum { LINE = 64 };

/* The numbers of a page, and what the runtime notes behind them: one word, up to the end of its line. */
static int64_t page_bytes(int64_t floats) {
  int64_t bytes = floats * (int64_t)sizeof(float) + (int64_t)sizeof(uint32_t);
  return (bytes + LINE - 1) / LINE * LINE;
}

static int64_t pages_bytes(int64_t floats, int64_t length) {
  return floats ? (length + TFM_CACHE_PAGE - 1) / TFM_CACHE_PAGE * page_bytes(floats) : 0;
}

int64_t decoding_row_bytes(const tfm_decoding *decoding, int64_t length) {
  return pages_bytes(decoding->step->own_page_floats, length);
}

int64_t decoding_source_bytes(const tfm_decoding *decoding, int64_t length) {
  return pages_bytes(decoding->step->source_page_floats, length);
}

static int64_t max_length_of(const Graph *graph) {
  for (size_t i = 0; i < graph->generate_settings.n; i++) {
    const GenerateSetting *setting = &graph->generate_settings.items[i];
    if (strcmp(setting->name, "max_length") == 0 && setting->values.n) return (int64_t)setting->values.items[0];
  }
  return 0;
}

static bool has_tensors(const tfm_decoding *decoding) {
  for (uint32_t i = 0; i < decoding->step->n_inputs; i++)
    if (i != decoding->tokens && decoding->inputs[i].is_cache) return true;
  return false;
}

void decoding_memory_print(StrBuf *out, const tfm_decoding *decoding, const Graph *graph) {
  int64_t row = decoding_row_bytes(decoding, TFM_CACHE_PAGE), source = decoding_source_bytes(decoding, TFM_CACHE_PAGE);
  int64_t length = max_length_of(graph);
  strbuf_printf(out, "memory: weights %" PRIu64 " bytes\n", decoding->step->weights_bytes);
  strbuf_printf(out, "memory: %d tokens of a row %" PRId64 " bytes", TFM_CACHE_PAGE, row);
  if (length > 0) strbuf_printf(out, ", a row of %" PRId64 " tokens %" PRId64, length, decoding_row_bytes(decoding, length));
  strbuf_add(out, has_tensors(decoding) ? ", and the caches that are tensors\n" : "\n");
  if (source) strbuf_printf(out, "memory: %d positions of a source %" PRId64 " bytes\n", TFM_CACHE_PAGE, source);
}
