/* Plans of steps of decoding: which values lie in pages, what is appended, what remains a tensor, what a pair of plans
 * tells the decoder. */
#include "../support/compiled_graph.h"
#include "../support/workspace.h"
#include "plan/plan_decoding.h"
#include "tfm/abi/drivers.h"

TestSuite(plan_caches, .init = setup, .fini = teardown);

static const Plan *plan_on(const char *text, const char *target) { return planned(read_graph(text), target); }
static bool needs(const Plan *made, tfm_driver_number driver) { return plan_drivers(made) >> driver & 1; }
/* What caches that are tensors need. */
static bool has_flat_caches(const Plan *made) {
  const bool cuts = needs(made, TFM_DRIVER_CUT_FLAT);
  cr_assert_eq(needs(made, TFM_DRIVER_GATHER_FLAT), cuts);
  cr_assert_eq(needs(made, TFM_DRIVER_TAKE_FLAT), cuts);
  return cuts;
}
static const tfm_program *plan(const char *text) { return &plan_on(text, "x86-64-v4")->program; }

/* A layer of 8 heads of 8: the projection of all three, attention to itself, then `rest`. */
#define HEAD                                                                               \
  "graph S(sizes batch as rows, source, time.past as past, time.fresh as fresh, time.kept as kept) {\n" \
  "  %0 = input \"tgt\" as tokens : i32[batch, time.fresh]\n"                                        \
  "  %1 = input \"cache.0\" as cache 0 : f32[batch, time.past, 64]\n"                                 \
  "  %2 = input \"cache.1\" as cache 1 : f32[batch, time.past, 64]\n"                                 \
  "  %3 = input \"encoded.0\" as encoded 0 : f32[batch, source, 2, 64]\n"                                \
  "  %4 = weight \"embed\" : f32[100, 64]\n"                                               \
  "  %5 = weight \"w\" : f32[192, 64]\n"                                                   \
  "  %6 = pointwise %4, %0, { gather($0, $1) } : f32[batch, time.fresh, 64]\n"             \
  "  %7 = linear %6, %5 : f32[batch, time.fresh, 192]\n"                                   \
  "  %8 = slice %7, starts=[0, 0, 0] : f32[batch, time.fresh, 64]\n"                       \
  "  %9 = slice %7, starts=[0, 0, 64] : f32[batch, time.fresh, 64]\n"                      \
  "  %10 = slice %7, starts=[0, 0, 128] : f32[batch, time.fresh, 64]\n"                    \
  "  %11 = concat %1, %9, axis=1 : f32[batch, time.past + time.fresh, 64]\n"               \
  "  %12 = concat %2, %10, axis=1 : f32[batch, time.past + time.fresh, 64]\n"              \
  "  %13 = reshape %8 : f32[batch, time.fresh, 8, 8]\n"                                    \
  "  %14 = reshape %11 : f32[batch, time.past + time.fresh, 8, 8]\n"                       \
  "  %15 = reshape %12 : f32[batch, time.past + time.fresh, 8, 8]\n"                       \
  "  %16 = permute %13, axes=[0, 2, 1, 3] : f32[batch, 8, time.fresh, 8]\n"                \
  "  %17 = permute %14, axes=[0, 2, 1, 3] : f32[batch, 8, time.past + time.fresh, 8]\n"    \
  "  %18 = permute %15, axes=[0, 2, 1, 3] : f32[batch, 8, time.past + time.fresh, 8]\n"    \
  "  %19 = attention %16, %17, %18, { where(gt(index0, add(index1, size(i32, time.past))), -inf, acc) }" \
  " : f32[batch, 8, time.fresh, 8]\n"                                                      \
  "  %20 = permute %19, axes=[0, 2, 1, 3] : f32[batch, time.fresh, 8, 8]\n"                \
  "  %21 = reshape %20 : f32[batch, time.fresh, 64]\n"
#define CACHE_OUTPUTS "  output \"cache.0\" as cache 0 = %11\n  output \"cache.1\" as cache 1 = %12\n}\n"
#define SELF HEAD "  output scores = %21\n" CACHE_OUTPUTS

Test(plan_caches, keys_and_values_lie_in_pages) {
  for (const TargetInfo *target = targets; target->name; target++) {
    const Plan *made = plan_on(SELF, target->name);
    const tfm_program *p = &made->program;
    cr_assert(!has_flat_caches(made));
    cr_assert_eq(p->n_inputs, 2); /* source.0 is not used: it stays what it is */
    cr_assert_str_eq(p->inputs[0].name, "tgt");
    cr_assert_eq(p->n_outputs, 1);
    cr_assert_eq(p->n_caches, 2);
    cr_assert_eq(p->own_page_floats, 2 * 64 * TFM_CACHE_PAGE + 16);
    cr_assert_eq(p->encoder_page_floats, 0);
    cr_assert_eq(count_steps(p, TFM_STEP_APPEND), 2);
    cr_assert_eq(p->n_steps, 5, "gather, projection, two appends, attention; nothing is copied");
    const tfm_attention_step *attention = &p->attentions[0];
    cr_assert_eq(p->caches[attention->k_cache].kind, TFM_CACHE_KEYS);
    cr_assert_eq(p->caches[attention->v_cache].kind, TFM_CACHE_VALUES);
    cr_assert_eq(p->caches[attention->v_cache].number, 1);
    cr_assert_eq(p->caches[attention->v_cache].offset, 64 * TFM_CACHE_PAGE);
    cr_assert_eq(attention->qk_width, TFM_CACHE_PAGE);
    cr_assert_eq(attention->v_packed, 0);
    cr_assert_eq(attention->rank, 4);
    expect_size(p, attention->k.strides[0], "0");
    expect_size(p, attention->k.strides[1], "8");
    expect_size(p, attention->k.strides[2], "0");
    expect_size(p, attention->dims[0], "batch");
    cr_assert(attention->causal);
    expect_size(p, attention->causal_offset, "time.past");
  }
}

// ---- 8 bits ----

/* The text with `by` in place of its first `what`. */
static const char *with(const char *text, const char *what, const char *by) {
  const char *at = strstr(text, what);
  cr_assert_not_null(at, "%s", what);
  return arena_printf(arena, "%.*s%s%s", (int)(at - text), text, by, at + strlen(what));
}
static const char *in_8_bits(const char *text) {
  return with(text, "attention %16, %17, %18,", "attention %16, %17, %18, form=int8,");
}

/* A byte for each number and a scale for each position and head; the step reads panels of the page. */
Test(plan_caches, pages_have_8_bits_where_attention_has) {
  for (const TargetInfo *target = targets; target->name; target++) {
    const Plan *made = plan_on(in_8_bits(SELF), target->name);
    const tfm_program *p = &made->program;
    const tfm_attention_step *attention = &p->attentions[0];
    cr_assert_eq(p->n_caches, 2);
    cr_assert_eq(p->n_inputs, 2);
    cr_assert_eq(p->own_page_floats, 2 * 8 * (8 + 4) * TFM_CACHE_PAGE / 4 + 16);
    cr_assert_eq(attention->form, TFM_FORM_INT8);
    cr_assert_eq(TFM_CACHE_PAGE % attention->qk_width, 0);
    cr_assert_eq(attention->v_packed, 0);
    for (uint32_t i = 0; i < 2; i++) {
      cr_assert_eq(p->caches[i].form, TFM_FORM_INT8);
      cr_assert_eq(p->caches[i].head, 8);
      cr_assert_eq(p->caches[i].offset % 16, 0);
      const KernelSpec *whole = &made->kernels.items[p->caches[i].round].spec;
      cr_assert(whole->family == KERNEL_QUANTIZE && whole->as_bytes && !whole->is_rotated && whole->k == 8);
    }
    cr_assert_eq(made->kernels.items[attention->qk_tiles[1]].spec.b_stride, TFM_CACHE_PAGE);
    cr_assert_eq(made->kernels.items[attention->pv_tiles[1]].spec.b_stride, 8);
    cr_assert(needs(made, TFM_DRIVER_ATTENTION_PAGED_INT8) && needs(made, TFM_DRIVER_APPEND_INT8));
    cr_assert(!needs(made, TFM_DRIVER_ATTENTION_PAGED) && !needs(made, TFM_DRIVER_APPEND));
    cr_assert(!needs(made, TFM_DRIVER_ATTENTION_INT8) && !needs(made, TFM_DRIVER_WRITE_INT8));
  }
}

/* A page has one form; an attention in f32 and one in 8 bits read a tensor. */
Test(plan_caches, attentions_of_two_forms_share_no_pages) {
  const char *text = with(in_8_bits(SELF), "  %20 = permute %19",
                          "  %22 = attention %16, %17, %18 : f32[batch, 8, time.fresh, 8]\n"
                          "  %20 = permute %19");
  text = with(text, "  output scores = %21\n", "  output scores = %21\n  output others = %22\n");
  const Plan *made = plan_on(text, "x86-64-v4");
  const tfm_program *p = &made->program;
  cr_assert_eq(p->n_caches, 0);
  for (uint32_t i = 0; i < 2; i++) cr_assert_eq(p->attentions[i].k_cache, TFM_NONE);
  cr_assert(needs(made, TFM_DRIVER_ATTENTION_INT8) && needs(made, TFM_DRIVER_ATTENTION) && has_flat_caches(made));
  cr_assert(!needs(made, TFM_DRIVER_ATTENTION_PAGED_INT8) && !needs(made, TFM_DRIVER_APPEND_INT8));
  text = with(text, "attention %16, %17, %18, form=int8,", "attention %16, %17, %18,");
  cr_assert_eq(plan(text)->n_caches, 2);
  text = with(text, "attention %16, %17, %18,", "attention %16, %17, %18, form=int8,");
  text = with(text, "attention %16, %17, %18 :", "attention %16, %17, %18, form=int8 :");
  cr_assert_eq(plan(text)->n_caches, 2);
}

/* Columns are rounded together where they are appended, so every head must be whole there. */
Test(plan_caches, heads_in_8_bits_begin_where_heads_begin) {
  static const char *const starts[] = {"[0, 0, 0, 4]", "[0, 0, 0, 2]"};
  for (int i = 0; i < 2; i++) {
    const char *text = in_8_bits(SELF);
    for (int of = 16; of <= 17; of++) {
      const char *size = of == 16 ? "time.fresh" : "time.past + time.fresh";
      const char *name =
          arena_printf(arena, "  %%%d = permute %%%d, axes=[0, 2, 1, 3] : f32[batch, 8, %s, 8]\n", of, of - 3, size);
      text = with(text, name,
                  arena_printf(arena,
                               "  %%%d = permute %%%d, axes=[0, 2, 1, 3] : f32[batch, 8, %s, 8]\n"
                               "  %%%d = slice %%%d, starts=%s : f32[batch, 8, %s, 4]\n",
                               of + 14, of - 3, size, of, of + 14, starts[i], size));
    }
    cr_assert_eq(plan(text)->n_caches, i ? 0 : 2, "%s", starts[i]);
    cr_assert_eq(plan(with(text, ", form=int8", ""))->n_caches, 2, "%s", starts[i]);
  }
}

// ---- what is appended ----

Test(plan_caches, what_is_appended_is_read_where_the_projection_wrote_it) {
  const tfm_program *p = plan(SELF);
  const tfm_append_step *keys = &p->appends[0], *values = &p->appends[1];
  cr_assert_eq(keys->rank, 3);
  expect_size(p, keys->past, "time.past");
  expect_size(p, keys->dims[1], "time.fresh");
  expect_size(p, keys->x.offset, "64");
  expect_size(p, values->x.offset, "128");
  expect_size(p, values->x.strides[2], "1");
}

Test(plan_caches, memory_does_not_grow_with_earlier_positions) {
  const Plan *plan = plan_on(SELF, "x86-64-v4");
  int64_t sizes[] = {3, 7, 0, 1, 1}, later[] = {3, 7, 1000000, 1, 1};
  cr_assert_eq(workspace_of(plan, sizes, 1).measured, workspace_of(plan, later, 1).measured);
}

/* Keys and values of a source as the two halves of one value. */
#define CROSS                                                                                  \
  HEAD "  %22 = slice %3, starts=[0, 0, 0, 0] : f32[batch, source, 1, 64]\n"                   \
       "  %23 = slice %3, starts=[0, 0, 1, 0] : f32[batch, source, 1, 64]\n"                   \
       "  %24 = reshape %22 : f32[batch, source, 4, 16]\n"                                     \
       "  %25 = reshape %23 : f32[batch, source, 4, 16]\n"                                     \
       "  %26 = permute %24, axes=[0, 2, 1, 3] : f32[batch, 4, source, 16]\n"                  \
       "  %27 = permute %25, axes=[0, 2, 1, 3] : f32[batch, 4, source, 16]\n"                  \
       "  %28 = reshape %21 : f32[batch, time.fresh, 4, 16]\n"                                 \
       "  %29 = permute %28, axes=[0, 2, 1, 3] : f32[batch, 4, time.fresh, 16]\n"              \
       "  %30 = attention %29, %26, %27 : f32[batch, 4, time.fresh, 16]\n"

Test(plan_caches, sources_lie_in_pages_of_their_own) {
  const tfm_program *p = plan(CROSS "  output scores = %30\n" CACHE_OUTPUTS);
  cr_assert_eq(p->n_inputs, 1);
  cr_assert_eq(p->n_caches, 4, "the same value as keys and as values is two caches");
  const tfm_attention_step *attention = &p->attentions[1];
  cr_assert(p->caches[attention->k_cache].of_encoder && p->caches[attention->v_cache].of_encoder);
  cr_assert_eq(p->caches[attention->k_cache].columns, 128);
  expect_size(p, attention->k.offset, "0");
  expect_size(p, attention->v.offset, "64");
  cr_assert_eq(p->encoder_page_floats, 2 * 128 * TFM_CACHE_PAGE + 16);
  cr_assert_eq(count_steps(p, TFM_STEP_APPEND), 2);
  cr_assert_eq(attention->causal_offset, 0);
}

Test(plan_caches, what_is_read_otherwise_stays_a_tensor) {
  const tfm_program *p = plan(HEAD "  %22 = reduce %11, reduction=sum, axis=1, keepdim=false, domain=[batch, time.past "
                                   "+ time.fresh, 64], { $0 } : f32[batch, 64]\n"
                                   "  output scores = %21\n  output sum = %22\n" CACHE_OUTPUTS);
  cr_assert_eq(p->n_caches, 0, "the values go with the keys");
  cr_assert_eq(p->n_inputs, 4);
  cr_assert_eq(p->n_outputs, 4);
  cr_assert_eq(p->attentions[0].k_cache, TFM_NONE);
  cr_assert_eq(count_steps(p, TFM_STEP_APPEND), 0);
  expect_size(p, p->attentions[0].causal_offset, "time.past");
}

Test(plan_caches, only_whole_histories_are_read_in_pages) {
  const tfm_program *p =
      plan("graph S(sizes batch as rows, time.past as past, time.fresh as fresh, time.kept as kept) {\n"
           "  %0 = input \"tgt\" as tokens : i32[batch, time.fresh]\n"
           "  %1 = input \"x\" : f32[batch, 2, time.fresh, 8]\n"
           "  %2 = input \"cache.0\" as cache 0 : f32[batch, 2, time.past, 8]\n"
           "  %3 = concat %2, %1, axis=2 : f32[batch, 2, time.past + time.fresh, 8]\n"
           "  %4 = slice %3, starts=[0, 0, 1, 0] : f32[batch, 2, time.past + time.fresh - 1, 8]\n"
           "  %5 = attention %1, %4, %4 : f32[batch, 2, time.fresh, 8]\n"
           "  output scores = %5\n  output \"cache.0\" as cache 0 = %3\n}\n");
  cr_assert_eq(p->n_caches, 0);
}

Test(plan_caches, a_model_of_one_row_has_an_axis_of_one) {
  const tfm_program *p =
      plan("graph S(sizes time.past as past, time.fresh as fresh, time.kept as kept) {\n"
           "  %0 = input \"tgt\" as tokens : i32[1, time.fresh]\n"
           "  %1 = input \"x\" : f32[1, 2, time.fresh, 8]\n"
           "  %2 = input \"cache.0\" as cache 0 : f32[1, 2, time.past, 8]\n"
           "  %3 = concat %2, %1, axis=2 : f32[1, 2, time.past + time.fresh, 8]\n"
           "  %4 = attention %1, %3, %3 : f32[1, 2, time.fresh, 8]\n"
           "  output scores = %4\n  output \"cache.0\" as cache 0 = %3\n}\n");
  cr_assert_eq(p->n_caches, 2);
  cr_assert_eq(p->attentions[0].rank, 4);
  expect_size(p, p->attentions[0].dims[0], "1");
  expect_size(p, p->attentions[0].k.strides[1], "8");
  expect_size(p, p->appends[0].dims[0], "1");
  cr_assert_eq(p->appends[0].rank, 4);
  expect_size(p, p->appends[0].dims[2], "2"); /* heads and columns in the order of the cache */
}

Test(plan_caches, steps_for_one_output_are_marked) {
  const tfm_program *p = plan(HEAD "  %22 = reduce %21, reduction=max, axis=2, keepdim=false, domain=[batch, "
                                   "time.fresh, 64], { $0 } : f32[batch, time.fresh]\n"
                                   "  output scores = %21\n  output logsumexp = %22\n" CACHE_OUTPUTS);
  uint32_t n_logsumexp = 0;
  for (uint32_t i = 0; i < p->n_steps; i++) {
    const tfm_step *step = &p->steps[i];
    bool is_shared = step->kind == TFM_STEP_GEMM || step->kind == TFM_STEP_APPEND || step->kind == TFM_STEP_ATTENTION;
    if (is_shared && step->kind != TFM_STEP_ATTENTION) cr_assert_eq(step->serves, 0, "%s", step->name);
    if (step->kind == TFM_STEP_ATTENTION) cr_assert_eq(step->serves, 3);
    n_logsumexp += step->serves == 2;
  }
  cr_assert_eq(n_logsumexp, 1);
}

// ---- what the decoder is told ----

#define STEP                                                                                   \
  CROSS                                                                                        \
      "  %31 = permute %30, axes=[0, 2, 1, 3] : f32[batch, time.fresh, 4, 16]\n"               \
      "  %32 = reshape %31 : f32[batch, time.fresh, 64]\n"                                     \
      "  %33 = slice %32, starts=[0, time.fresh - time.kept, 0] : f32[batch, time.kept, 64]\n" \
      "  output scores as logits = %33\n" CACHE_OUTPUTS

Test(plan_caches, a_pair_of_plans_says_what_is_what) {
  Incremental pair = {.step = read_graph(STEP),
                      .encoder = read_graph("graph M(sizes batch as rows, source) {\n"
                                            "  %0 = input \"src\" : f32[batch, source, 2, 64]\n"
                                            "  %1 = pointwise %0, { neg($0) } : f32[batch, source, 2, 64]\n"
                                            "  output \"encoded.0\" as encoded 0 = %1\n}\n")};
  const DecodingPlan *plans = plan_decoding(arena, &diag, &pair, target_find("x86-64-v4"));
  cr_assert_not_null(plans);
  const tfm_decoding *d = &plans->decoding;
  cr_assert_eq(d->decoder_input, 0);
  cr_assert_eq(d->rows, 0);
  cr_assert_eq(d->past, 2);
  cr_assert_eq(d->fresh, 3);
  cr_assert_eq(d->kept, 4);
  cr_assert_eq(d->encoder_rows, 0);
  cr_assert_eq(d->sizes[1], 1);
  cr_assert_eq(d->sizes[2], TFM_NONE);
  cr_assert_eq(d->logits, 0);
  cr_assert_eq(d->logsumexp, TFM_NONE);
  cr_assert_eq(d->vocab, 64);
  cr_assert_eq(d->cache_encoded[0], TFM_NONE);
  cr_assert_eq(d->cache_encoded[2], 0);
  cr_assert_eq(d->cache_encoded[3], 0);
}

/* The items of a batch are not the first size of an encoder whose inputs begin with positions. */
Test(plan_caches, rows_of_the_encoder_are_found_by_their_role) {
  const char *const graphs[] = {
      "graph M(sizes source, batch as rows) {\n"
      "  %0 = input \"src\" : f32[source, batch, 128]\n"
      "  %1 = permute %0, axes=[1, 0, 2] : f32[batch, source, 128]\n"
      "  %2 = reshape %1 : f32[batch, source, 2, 64]\n"
      "  output \"encoded.0\" as encoded 0 = %2\n}\n",
      "graph M(sizes source, batch as rows) {\n"
      "  %0 = input \"src\" : f32[source, 2, 64]\n"
      "  %1 = reshape %0 : f32[1, source, 2, 64]\n"
      "  %2 = full 0.0 : f32[batch, 1, 1, 1]\n"
      "  %3 = add %1, %2 : f32[batch, source, 2, 64]\n"
      "  output \"encoded.0\" as encoded 0 = %3\n}\n"};
  const uint32_t rows[] = {1, TFM_NONE}; /* no input says how many */
  for (int i = 0; i < 2; i++) {
    Graph *encoder = optimized(read_graph(graphs[i]), 2);
    Incremental pair = {.step = read_graph(STEP), .encoder = encoder};
    const DecodingPlan *plans = plan_decoding(arena, &diag, &pair, target_find("x86-64-v4"));
    cr_assert_not_null(plans, "%s", fault());
    cr_expect_eq(plans->decoding.encoder_rows, rows[i]);
  }
}

/* A line that is written through the caches is read first, which a state of 16 MB, read from memory at the next step
 * anyway, can do without; smaller ones are near when they are read. */
Test(plan_caches, large_states_are_written_past_the_caches) {
  static const char *const sets[] = {"x86-64-v3", "x86-64-v4", "armv8-a"};
  for (int i = 0; i < 6; i++) {
    const char *n = i < 3 ? "4096" : "2048";
    StrBuf text = strbuf_new(arena);
    strbuf_printf(&text,
                  "graph S(sizes batch as rows, time.past as past, time.fresh as fresh, time.kept as kept) {\n"
                  "  %%0 = input \"ids\" as tokens : i32[batch, time.fresh]\n"
                  "  %%1 = input \"state.0\" as state 0 : f32[batch, %s, 1024]\n"
                  "  %%2 = weight \"w\" : f32[9, %s]\n"
                  "  %%3 = weight \"v\" : f32[9, 1024]\n"
                  "  %%4 = pointwise %%2, %%0, { gather($0, $1) } : f32[batch, time.fresh, %s]\n"
                  "  %%5 = pointwise %%3, %%0, { gather($0, $1) } : f32[batch, time.fresh, 1024]\n"
                  "  %%6 = linear_attention %%4, %%4, %%5, %%1, initial=true : f32[batch, time.fresh, 1024]\n"
                  "  %%7 = linear_attention_state %%6 : f32[batch, %s, 1024]\n"
                  "  %%8 = slice %%6, starts=[0, time.fresh - time.kept, 0] : f32[batch, time.kept, 1024]\n"
                  "  output y as logits = %%8\n"
                  "  output \"state.0\" as state 0 = %%7\n"
                  "}\n",
                  n, n, n, n);
    const Plan *made = plan_on(text.text, sets[i % 3]);
    const tfm_state_step *step = &made->program.states[0];
    const KernelSpec *one = &made->kernels.items[step->one].spec, *many = &made->kernels.items[step->kernel].spec;
    cr_expect_eq(one->passes_caches, i < 2, "%s, %s", n, sets[i % 3]);
    cr_expect(!many->passes_caches, "%s, %s", n, sets[i % 3]);
  }
}
