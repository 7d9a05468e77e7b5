/* What --report says of memory against what a decoder reserves: the caches of its rows and of its sources, to the byte. */
#include <stdlib.h>

#include "codegen/codegen.h"
#include "compiled_model.h"
#include "engines/native_decoder.h"
#include "elaborate_text.h"
#include "tfm/decode.h"

enum { MOST_BLOCKS = 256 };

/* The memory that a decoder has. */
typedef struct Watched {
  size_t sizes[MOST_BLOCKS];
  void *blocks[MOST_BLOCKS];
} Watched;

static void *watched_allocate(void *user, size_t bytes, size_t alignment) {
  Watched *watched = user;
  int i = 0;
  while (i < MOST_BLOCKS && watched->blocks[i]) i++;
  cr_assert_lt(i, MOST_BLOCKS);
  watched->sizes[i] = bytes;
  return watched->blocks[i] = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void watched_release(void *user, void *memory, size_t bytes) {
  Watched *watched = user;
  for (int i = 0; i < MOST_BLOCKS; i++)
    if (watched->blocks[i] == memory) {
      cr_expect_eq(watched->sizes[i], bytes);
      watched->blocks[i] = NULL;
    }
  free(memory);
}

/* Large blocks are whole huge pages. */
static bool has_block(const Watched *watched, int64_t bytes) {
  const int64_t huge = 2 << 20;
  if (bytes >= huge) bytes = (bytes + huge - 1) / huge * huge;
  for (int i = 0; i < MOST_BLOCKS; i++)
    if (watched->blocks[i] && watched->sizes[i] == (size_t)bytes) return true;
  return false;
}

static int64_t bytes_of_all(const Watched *watched) {
  int64_t sum = 0;
  for (int i = 0; i < MOST_BLOCKS; i++)
    if (watched->blocks[i]) sum += (int64_t)watched->sizes[i];
  return sum;
}

typedef struct Model {
  Arena *arena;
  const Graph *graph;
  Compiled made; /* weights are 0 */
} Model;

static void make_model(Model *m, const char *file, const Definition *definitions, uint32_t n) {
  *m = (Model){.arena = arena_create()};
  Diag diag = diag_new(m->arena);
  const ElaborateOptions options = {.definitions = definitions, .n_definitions = n};
  Graph *graph = elaborate_file(m->arena, &diag, arena_printf(m->arena, TFM_SOURCE_DIR "/%s", file), &options);
  cr_assert(graph, "%s", first_message(&diag));
  cr_assert_eq(diag.n_errors, 0);
  m->graph = graph;
  cr_assert(compiled_decoding(&m->made, m->arena, &diag, graph, host_target(), NULL, NULL));
}

static void free_model(Model *m) {
  compiled_free(&m->made);
  arena_destroy(m->arena);
}

/* A decoder that begins with `rows` rows of `length` tokens reserves what is said of the caches. */
static void check_rows(const Model *m, const tfm_value *source, int64_t rows, int64_t length) {
  Watched watched = {0};
  tfm_error error = {0};
  tfm_decoder *decoder;
  const tfm_context_options options = {.struct_size = sizeof options, .threads = 1,
                                       .allocator = {watched_allocate, watched_release, &watched}};
  cr_assert_eq(tfm_decoder_create(&m->made.decoding, m->made.packed, m->made.packed, &options, &decoder, &error), TFM_OK, "%s", error.message);
  cr_assert_eq(tfm_decoder_begin(decoder, source, rows, length, &error), TFM_OK, "%s", error.message);
  int64_t own = rows * decoding_row_bytes(&m->made.decoding, length);
  cr_expect(has_block(&watched, own), "%lld rows of %lld tokens: %lld bytes", (long long)rows, (long long)length, (long long)own);
  if (source) {
    int64_t read = source->dims[0] * decoding_source_bytes(&m->made.decoding, source->dims[1]);
    cr_expect(has_block(&watched, read), "%lld sources: %lld bytes", (long long)source->dims[0], (long long)read);
    own += read;
  }
  cr_expect_geq((int64_t)tfm_decoder_bytes(decoder), own);
  cr_expect_leq((int64_t)tfm_decoder_bytes(decoder), bytes_of_all(&watched));
  tfm_decoder_destroy(decoder);
  cr_expect_eq(bytes_of_all(&watched), 0);
}

static const int64_t lengths[] = {1, 16, 17, 500, 512};
enum { N_LENGTHS = sizeof lengths / sizeof *lengths };

Test(decoding_memory, a_translator_reserves_what_is_said) {
  const Definition definitions[] = {{"vocab", "101"}, {"d", "32"}, {"heads", "2"}, {"ffn", "64"}, {"encoder_depth", "1"}, {"decoder_depth", "3"}};
  static int32_t ids[3 * 33];
  Model m;
  make_model(&m, "bench/models/nmt.tfm", definitions, 6);
  for (int i = 0; i < N_LENGTHS; i++)
    for (int64_t rows = 1; rows <= 7; rows += 3) {
      const int64_t dims[] = {3, 15 + 9 * (rows / 3)};
      const tfm_value source = {ids, TFM_I32, 2, dims};
      check_rows(&m, &source, rows, lengths[i]);
    }
  int64_t numbers = 3 * 2 * 32 * TFM_CACHE_PAGE * (int64_t)sizeof(float), page = decoding_row_bytes(&m.made.decoding, 1);
  cr_expect(page >= numbers && page <= numbers + 128, "keys and values of three layers");
  free_model(&m);
}

static const char ragged[] =
    "model M(d = 32) {\n"
    "  embed = Embedding(50, d)\n"
    "  decoder = Decoder(d, 2, 3, 24)\n"
    "  forward(src: i32[batch, ragged source], ids: i32[batch, time]) {\n"
    "    logits = linear(decoder(embed(ids), embed(src), tgt_is_causal = true), embed.weight)\n"
    "    return logits\n"
    "  }\n"
    "  generate ids from logits { bos = 1 }\n"
    "}\n";

/* Each source has the pages that it fills, not those of the longest. */
Test(decoding_memory, sources_of_different_lengths_reserve_what_is_said) {
  enum { ITEMS = 5, POSITIONS = 40 };
  static int32_t ids[ITEMS * POSITIONS];
  const int64_t own[ITEMS] = {0, 16, 40, 17, 16}, dims[] = {ITEMS, POSITIONS};
  const tfm_value source = {ids, TFM_I32, 2, dims};
  Model m = {.arena = arena_create()};
  Diag diag = diag_new(m.arena);
  Graph *graph = elaborate_text(m.arena, &diag, ragged, &(ElaborateOptions){0});
  cr_assert(compiled_decoding(&m.made, m.arena, &diag, graph, host_target(), NULL, NULL));
  const int64_t *given[SIZE_MAX_SYMBOLS] = {NULL};
  int64_t said = 0;
  for (uint32_t i = 0; i < m.made.decoding.encoder->n_symbols; i++)
    if (m.made.decoding.ragged[i]) given[i] = own;
  for (int i = 0; i < ITEMS; i++) said += decoding_source_bytes(&m.made.decoding, own[i]);
  cr_expect_eq(said, 7 * decoding_source_bytes(&m.made.decoding, 1));
  Watched watched = {0};
  tfm_error error;
  tfm_decoder *decoder;
  const tfm_context_options options = {.struct_size = sizeof options, .threads = 1,
                                       .allocator = {watched_allocate, watched_release, &watched}};
  cr_assert_eq(tfm_decoder_create(&m.made.decoding, m.made.packed, m.made.packed, &options, &decoder, &error), TFM_OK);
  cr_assert_eq(tfm_decoder_begin_ragged(decoder, &source, given, 3, 20, &error), TFM_OK, "%s", error.message);
  cr_expect(has_block(&watched, said), "sources: %lld bytes", (long long)said);
  cr_expect(has_block(&watched, 3 * decoding_row_bytes(&m.made.decoding, 20)));
  cr_expect_leq((int64_t)tfm_decoder_bytes(decoder), bytes_of_all(&watched));
  tfm_decoder_destroy(decoder);
  cr_expect_eq(bytes_of_all(&watched), 0);
  free_model(&m);
}

Test(decoding_memory, a_language_model_reserves_what_is_said) {
  const Definition definitions[] = {{"vocab", "101"}, {"d", "32"}, {"heads", "2"}, {"depth", "2"}};
  Model m;
  make_model(&m, "examples/gpt2/gpt2.tfm", definitions, 4);
  for (int i = 0; i < N_LENGTHS; i++)
    for (int64_t rows = 1; rows <= 7; rows += 3) check_rows(&m, NULL, rows, lengths[i]);
  StrBuf text = strbuf_new(m.arena);
  decoding_memory_print(&text, &m.made.decoding, m.graph);
  const char *wanted = arena_printf(m.arena, "memory: weights %llu bytes\nmemory: 16 tokens of a row %lld bytes, a row of 1024 tokens %lld\n",
                                    (unsigned long long)m.made.decoding.step->weights_bytes,
                                    (long long)decoding_row_bytes(&m.made.decoding, 16), (long long)decoding_row_bytes(&m.made.decoding, 1024));
  cr_expect_str_eq(text.text, wanted);
  free_model(&m);
}
