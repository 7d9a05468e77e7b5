/* What a generate block sets: every member of the settings, whatever stood there before. */
#include "../support/compiled_graph.h"
#include "cli/generation_settings.h"

TestSuite(generation_settings, .init = setup, .fini = teardown);

/* Of a model with these entries in its block; read over memory that is not zero. */
static GenerationSettings settings_of(const char *entries) {
  Session session = {.arena = arena, .diag = diag_new(arena)};
  GenerationSettings settings;
  memset(&settings, 0x5a, sizeof settings);
  const Graph *graph = elaborated(arena_printf(arena,
                                               "model M(v = 9) { embed = Embedding(v, 4)\n"
                                               "  forward(ids: i32[batch, time]) {\n"
                                               "    return y = linear(embed(ids), embed.weight) }\n"
                                               "  generate ids from y { %s } }",
                                               entries));
  cr_assert(generation_settings_of_block(&session, graph, &settings));
  return settings;
}

Test(generation_settings, the_token_that_rows_begin_with) {
  cr_expect_eq(settings_of("bos = 3  eos = 2").start, 3);
  cr_expect_eq(settings_of("").start, TFM_NO_TOKEN);
}

Test(generation_settings, what_the_block_leaves_out_has_its_default) {
  tfm_generate_options defaults;
  tfm_generate_defaults(&defaults);
  const tfm_generate_options got = settings_of("max_length = 7  num_beams = 2").options;
  cr_expect_eq(got.max_length, 7);
  cr_expect_eq(got.num_beams, 2);
  cr_expect_eq(got.min_length, defaults.min_length);
  cr_expect_eq(got.pad_token_id, defaults.pad_token_id);
  cr_expect_eq(got.eos_token_ids.n, defaults.eos_token_ids.n);
  cr_expect_eq(got.temperature, defaults.temperature);
}
