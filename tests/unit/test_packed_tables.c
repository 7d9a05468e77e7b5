/* Tables of programs, and the texts that they name: what the compiler packs, the runtime unpacks. */
#include <criterion/criterion.h>
#include <string.h>

#include "aot/packed_tables.h"
#include "train/trainer_parts.h"

enum { ITEMS = 3000 };

static uint32_t random_word(uint32_t *state) { return *state = *state * 1664525u + 1013904223u; }

/* Items that are like those of the layer before, but for some numbers that rise; `noise`: one in so many words. */
static void fill(void *items, size_t bytes, size_t period, uint32_t noise, uint32_t seed) {
  uint32_t *words = items, state = seed;
  for (size_t i = 0; i < bytes / sizeof *words; i++) {
    words[i] = i < period ? random_word(&state) % 100 : words[i - period] + (i % 7 == 0 ? 3 : 0);
    if (noise && random_word(&state) / 16 % noise == 0) words[i] = random_word(&state);
  }
}

static void check(uint32_t n_buffers, uint32_t n_operands, size_t period, uint32_t noise) {
  static tfm_buffer buffers[ITEMS];
  static tfm_operand operands[ITEMS];
  static const char *const kernels[] = {"one", NULL, "two", "one"};
  static const int32_t room[32] = {0, 64, -4}, *const functions = room + 1;
  static const char *const symbols[] = {"time", "n", ""};
  const tfm_tensor_info inputs[3] = {
      {.name = "x", .shape = "f32[n]", .rank = 1}, {.rank = 2}, {.name = "", .shape = "f32[n]", .rank = 3}};
  const uint64_t texts = packed_text(offsetof(tfm_tensor_info, name)) | packed_text(offsetof(tfm_tensor_info, shape));
  Arena *arena = arena_create();
  PackedTables tables = packed_tables_new(arena);
  fill(buffers, sizeof buffers, period, noise, 1);
  fill(operands, sizeof operands, period, noise, 2);
  pack_table(&tables, offsetof(tfm_program, buffers), (PackedItems){buffers, n_buffers, sizeof *buffers, 0});
  pack_table(&tables, offsetof(tfm_program, operands), (PackedItems){operands, n_operands, sizeof *operands, 0});
  pack_table(&tables, offsetof(tfm_program, inputs), (PackedItems){inputs, 3, sizeof *inputs, texts});
  pack_texts(&tables, offsetof(tfm_program, symbols), symbols, 3, sizeof *symbols);
  pack_functions(&tables, offsetof(tfm_program, kernels), kernels, 4, sizeof *kernels);
  const tfm_program bare = {.version = 5, .n_buffers = n_buffers, .n_operands = n_operands, .isa = "x86-64"};
  const uint64_t of_program = packed_text(offsetof(tfm_program, name)) | packed_text(offsetof(tfm_program, isa));
  pack_table(&tables, TFM_PACKED_ITSELF, (PackedItems){&bare, 1, sizeof bare, of_program});
  cr_assert(tables.functions.n == 2 && tables.functions.items[1] == kernels[2]);
  tfm_packed_tables packed;
  const PackedBytes bytes = pack_tables(&tables, &packed);
  packed.packed = bytes.items;
  packed.functions = functions;
  const tfm_program *made = training_unpack(&packed, &(tfm_allocator){0});
  cr_assert(made && made->version == 5 && !made->name);
  const char *const from = (const char *)functions;
  cr_expect(made->kernels[0] == from + 64 && !made->kernels[1] && made->kernels[2] == from - 4);
  cr_expect(made->kernels[3] == made->kernels[0], "a function stands there once");
  cr_expect_str_eq(made->isa, "x86-64");
  cr_expect(memcmp(made->buffers, buffers, n_buffers * sizeof *buffers) == 0);
  cr_expect(memcmp(made->operands, operands, n_operands * sizeof *operands) == 0);
  cr_expect_str_eq(made->inputs[0].name, "x");
  cr_expect_str_eq(made->inputs[2].name, "");
  cr_expect(!made->inputs[1].name && !made->inputs[1].shape && made->inputs[2].rank == 3);
  cr_expect(made->inputs[0].shape == made->inputs[2].shape, "a text stands there once");
  for (int i = 0; i < 3; i++) cr_expect_str_eq(made->symbols[i], symbols[i]);
  if (period == 300 && !noise && n_operands == ITEMS) cr_expect_lt(bytes.n, packed.bytes / 20);
  training_free_unpacked(made);
  arena_destroy(arena);
}

Test(packed_tables, come_out_as_they_were) {
  check(1, 1, 1, 0);
  check(ITEMS, ITEMS, 1, 0);
  check(ITEMS, ITEMS, 300, 0);
  check(ITEMS, 17, 300, 50);
  check(5, ITEMS, 300, 2);
  check(ITEMS, ITEMS, 11, 1);
}
