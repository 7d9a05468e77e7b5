/* Rows that masks take out, and steps of sums: what a model gives is the same, byte for byte, whether they are computed
 * or left out, whatever stands in the padding (NaN too), whatever the mask looks like, with 1, 2 and 4 threads, on every
 * instruction set of this CPU. That rows are left out at all is seen in the plan, and in time. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/codegen.h"
#include "compiled_model.h"
#include "elaborate_text.h"
#include "passes/passes.h"
#include "context/context.h"
#include "same_values.h"
#include "tfm/tfm.h"

enum { MAX_INPUTS = 4, MAX_OUTPUTS = 2 };

typedef struct Model {
  Arena *arena;
  Diag diag;
  const Graph *graph;   /* as it was elaborated */
  Compiled all, live; /* without and with the pass */
  const Plan *plan;     /* of `live` */
  uint32_t random;
} Model;

typedef struct Sizes {
  int64_t batch, time, other;
} Sizes;

static void good(const Model *m, bool condition) { cr_assert(condition, "%s", first_message(&m->diag)); }

static uint32_t next_random(Model *m) { return (m->random = m->random * 1664525 + 1013904223) >> 8; }

// ---- compiling ----

static Compiled compiled(Model *m, const TargetInfo *target, bool only_live) {
  static const char *const pass[] = {"live-rows"};
  const PassOptions options = {.level = 2, .disabled = pass, .n_disabled = !only_live, .verify_each = true};
  RandomWeights weights = {m->arena, m->graph, map_new(m->arena)};
  Graph *graph = graph_clone(m->arena, m->graph);
  return compiled_forward(m->arena, &m->diag, graph, &options, target, random_weight, &weights);
}

static Model model_new(const char *text, const TargetInfo *target) {
  Model m = {.arena = arena_create()};
  m.diag = diag_new(m.arena);
  m.graph = elaborate_text(m.arena, &m.diag, text, &(ElaborateOptions){0});
  good(&m, m.graph);
  m.all = compiled(&m, target, false);
  m.live = compiled(&m, target, true);
  m.plan = m.live.plans.forward;
  return m;
}

static void model_close(Model *m) {
  compiled_free(&m->all);
  compiled_free(&m->live);
  arena_destroy(m->arena);
}

static unsigned steps_with_mask(const tfm_program *p) {
  unsigned n = 0;
  for (uint32_t i = 0; i < p->n_steps; i++) {
    uint32_t index = p->steps[i].index;
    if (p->steps[i].kind == TFM_STEP_GEMM) n += p->gemms[index].live != 0;
    if (p->steps[i].kind == TFM_STEP_ROW) n += p->rows[index].live != 0;
    if (p->steps[i].kind == TFM_STEP_ATTENTION) n += p->attentions[index].live != 0;
  }
  return n;
}

// ---- masks ----

typedef enum Mask {
  EVERYTHING,
  NOTHING,
  ON_THE_RIGHT,
  ON_THE_LEFT,
  ONE_ITEM_IS_EMPTY,
  HERE_AND_THERE,
  RARELY,
  N_MASKS
} Mask;

static bool is_real(Model *m, Mask mask, int64_t item, int64_t position, int64_t length) {
  switch (mask) {
    case NOTHING: return false;
    case ON_THE_RIGHT: return position < length - item * length / 5;
    case ON_THE_LEFT: return position >= item * length / 4;
    case ONE_ITEM_IS_EMPTY: return item != 1 && position != 2;
    case HERE_AND_THERE: return next_random(m) % 3 != 0;
    case RARELY: return next_random(m) % 16 == 0;
    default: return true;
  }
}

// ---- runs ----

/* Inputs: f32 and ids at random; an input whose name begins with "mask" holds 1 at real positions, 0 at padding, one
 * whose name begins with "pad" the opposite. */
static void fill(Model *m, Mask mask, const char *name, const tfm_value *tensor) {
  bool is_mask = strncmp(name, "mask", 4) == 0, is_padding = strncmp(name, "pad", 3) == 0;
  const int64_t n = value_elements(tensor), length = tensor->dims[tensor->rank - 1];
  for (int64_t i = 0; i < n; i++) {
    bool real = is_mask || is_padding ? is_real(m, mask, i / length, i % length, length) == is_mask : false;
    if (tensor->dtype == TFM_F32)
      ((float *)tensor->data)[i] = (float)(next_random(m) % 2001) / 1000 - 1;
    else if (tensor->dtype == TFM_BOOL)
      ((uint8_t *)tensor->data)[i] = real;
    else
      ((int32_t *)tensor->data)[i] = is_mask || is_padding ? real : (int32_t)(next_random(m) % 10);
  }
}

static uint32_t input_named(const tfm_program *p, const char *name) {
  for (uint32_t i = 0; i < p->n_inputs; i++)
    if (strcmp(p->inputs[i].name, name) == 0) return i;
  return UINT32_MAX;
}

/* Rows of x at padding become `number`. */
static void fill_padding(const tfm_program *p, tfm_value *inputs, float number) {
  uint32_t x = input_named(p, "x"), mask = input_named(p, "mask"), pad = input_named(p, "pad");
  if (x == UINT32_MAX || (mask == UINT32_MAX && pad == UINT32_MAX)) return;
  const tfm_value *says = &inputs[mask != UINT32_MAX ? mask : pad];
  int64_t width = inputs[x].dims[2], rows = inputs[x].dims[0] * inputs[x].dims[1];
  for (int64_t row = 0; row < rows; row++) {
    bool truth = says->dtype == TFM_BOOL ? ((const uint8_t *)says->data)[row] : ((const int32_t *)says->data)[row] != 0;
    if (truth == (mask != UINT32_MAX)) continue;
    for (int64_t i = 0; i < width; i++) ((float *)inputs[x].data)[row * width + i] = number;
  }
}

static void make_inputs(Model *m, Mask mask, Sizes sizes, tfm_value *inputs) {
  const tfm_program *p = &m->plan->program;
  int64_t symbols[SIZE_MAX_SYMBOLS];
  for (uint32_t i = 0; i < p->n_symbols; i++)
    symbols[i] = strcmp(p->symbols[i], "batch") == 0  ? sizes.batch
                 : strcmp(p->symbols[i], "time") == 0 ? sizes.time
                                                      : sizes.other;
  zero_inputs(m->arena, m->plan, symbols, inputs);
  for (uint32_t i = 0; i < p->n_inputs; i++) fill(m, mask, p->inputs[i].name, &inputs[i]);
}

/* What a context has not written is NaN. The block of the context itself is zeroed by it. */
static void *allocate_nan(void *user, size_t bytes, size_t alignment) {
  (void)user;
  void *memory = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  return memory ? memset(memory, 0xff, bytes) : NULL;
}

static void release_nan(void *user, void *memory, size_t bytes) {
  (void)user, (void)bytes;
  free(memory);
}

static tfm_context *context_of(const Compiled *c, int32_t threads) {
  tfm_context_options options = {.struct_size = sizeof options, .threads = threads,
                                 .allocator = {.allocate = allocate_nan, .release = release_nan}};
  tfm_context *context;
  tfm_error error;
  cr_assert_eq(tfm_context_create(c->forward, c->packed, &options, &context, &error), TFM_OK, "%s", error.message);
  return context;
}

static size_t bytes_of_output(const tfm_context *context, uint32_t number) {
  int32_t rank;
  const int64_t *dims = tfm_context_output_dims(context, number, &rank);
  size_t bytes = sizeof(float);
  for (int32_t k = 0; k < rank; k++) bytes *= (size_t)dims[k];
  return bytes;
}

/* The outputs, one behind the other; `bytes` gets how many. */
static char *outputs_of(const Model *m, const Compiled *c, const tfm_value *inputs, int32_t threads, size_t *bytes) {
  const tfm_program *p = c->forward;
  tfm_context *context = context_of(c, threads);
  tfm_error error;
  tfm_value outputs[MAX_OUTPUTS];
  cr_assert_eq(tfm_context_bind(context, inputs, &error), TFM_OK, "%s", error.message);
  *bytes = 0;
  for (uint32_t i = 0; i < p->n_outputs; i++) *bytes += bytes_of_output(context, i);
  char *all = memset(arena_alloc(m->arena, *bytes + 1), 0xff, *bytes); /* what is not written is NaN */
  for (uint32_t i = 0, at = 0; i < p->n_outputs; at += (uint32_t)bytes_of_output(context, i++)) {
    int32_t rank;
    const int64_t *dims = tfm_context_output_dims(context, i, &rank);
    outputs[i] = (tfm_value){all + at, p->outputs[i].dtype, rank, dims};
  }
  cr_assert_eq(tfm_context_run(context, inputs, outputs, &error), TFM_OK, "%s", error.message);
  tfm_context_destroy(context);
  return all;
}

static void expect_equal(const char *got, const char *want, size_t bytes, const char *what, Mask mask, Sizes sizes) {
  for (size_t i = 0; i < bytes; i += sizeof(float))
    cr_assert(memcmp(got + i, want + i, sizeof(float)) == 0, "%s: number %zu differs, mask %d, %d x %d", what,
              i / sizeof(float), (int)mask, (int)sizes.batch, (int)sizes.time);
}

static void check_mask(Model *m, Mask mask, Sizes sizes) {
  tfm_value inputs[MAX_INPUTS];
  size_t bytes;
  m->random = 5 + (uint32_t)mask;
  make_inputs(m, mask, sizes, inputs);
  const char *want = outputs_of(m, &m->all, inputs, 1, &bytes);
  for (int32_t threads = 1; threads <= 4; threads *= 2)
    expect_equal(outputs_of(m, &m->live, inputs, threads, &bytes), want, bytes, "rows left out", mask, sizes);
  fill_padding(&m->plan->program, inputs, NAN);
  expect_equal(outputs_of(m, &m->live, inputs, 2, &bytes), want, bytes, "NaN in the padding", mask, sizes);
}

static void check_model(const char *text, unsigned steps) {
  static const Sizes sizes[] = {{5, 23, 7}, {1, 40, 9}, {3, 1, 1}, {2, 531, 3}, {0, 4, 2}};
  for (const TargetInfo *target = targets; target->name; target++) {
    if (host_lacks(target)) continue;
    Model m = model_new(text, target);
    cr_assert_eq(steps_with_mask(&m.plan->program), steps, "%u steps leave rows out",
                 steps_with_mask(&m.plan->program));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
      for (int mask = 0; mask < N_MASKS; mask++) check_mask(&m, (Mask)mask, sizes[i]);
    model_close(&m);
  }
}

// ---- models ----

TestSuite(live_rows, .timeout = 300);

/* Per layer: queries, keys and values; attention; projection; norm; two products; norm. Then the zeros. */
Test(live_rows, an_encoder_with_zeros_at_padding) {
  check_model(
      "model M(d = 32) { layers = 2 * EncoderLayer(d, 2, 48, gelu)\n"
      "  forward(x: f32[batch, time, d], mask: i32[batch, time]) {\n"
      "    y = layers(x, src_key_padding_mask = mask == 0)\n"
      "    return y = where((mask != 0)[:, :, none], y, 0) } }",
      15);
}

/* The norms before, the embedding, and a mean over real tokens. */
Test(live_rows, a_sentence_vector) {
  check_model(
      "model M(d = 24) { embed = Embedding(10, d)  layers = EncoderLayer(d, 3, 40, norm_first = true)\n"
      "  forward(ids: i32[batch, time], mask: bool[batch, time]) {\n"
      "    h = layers(embed(ids), src_key_padding_mask = not mask)\n"
      "    n = sum(f32(mask), axis = 1)\n"
      "    return y = sum(where(mask[:, :, none], h, 0), axis = 1) / n[:, none] } }",
      8);
}

/* All of an encoder is for the keys and values of attentions that see real positions only. */
Test(live_rows, the_encoder_of_a_translator) {
  check_model(
      "model M(d = 32) { encoder = 2 * EncoderLayer(d, 2, 48)  decoder = DecoderLayer(d, 2, 48)\n"
      "  forward(x: f32[batch, time, d], target: f32[batch, length, d], pad: bool[batch, time]) {\n"
      "    memory = encoder(x, src_key_padding_mask = pad)\n"
      "    return y = decoder(target, memory, tgt_is_causal = true, memory_key_padding_mask = pad) } }",
      15);
}

Test(live_rows, rotated_heads) {
  check_model(
      "model M(d = 32) { q = Linear(d, d)  k = Linear(d, d)  v = Linear(d, d)  o = Linear(d, d)\n"
      "  forward(x: f32[batch, time, d], mask: bool[batch, time]) {\n"
      "    at = positions(x, 1)  a = rotary(split_heads(q(x), 4), at)\n"
      "    b = rotary(split_heads(k(x), 4), at)  c = split_heads(v(x), 4)\n"
      "    s = where(mask[:, none, none, :], a @ transpose(b, -1, -2), -inf)\n"
      "    return y = where(mask[:, :, none], x + o(merge_heads(softmax(s) @ c)), 0) } }",
      3);
}

/* What the first layer gives is an output, at padding too: only the second leaves rows out, and the keys of the first. */
Test(live_rows, a_layer_that_is_looked_at_everywhere) {
  check_model("model M(d = 32) { embed = Embedding(10, d)  one = EncoderLayer(d, 2, 48)  two = EncoderLayer(d, 2, 48)\n"
              "  forward(ids: i32[batch, time], mask: bool[batch, time]) {\n"
              "    first = one(embed(ids), src_key_padding_mask = not mask)\n"
              "    y = where(mask[:, :, none], two(first, src_key_padding_mask = not mask), 0)  return first, y } }",
              8);
}

/* `or` is no selection: both sides are read everywhere. */
Test(live_rows, a_given_mask_mixed_with_what_is_computed) {
  check_model(
      "model M() { weight w: [16, 16]\n"
      "  forward(x: f32[batch, time, 16], pad: bool[batch, time]) {\n"
      "    return y = pad[:, :, none] or softmax(linear(x, w)) > 0.06 } }",
      0);
}

/* The product of both weights is behind reductions; only its live rows are computed. */
Test(live_rows, reductions_before_the_selection) {
  check_model(
      "model M() { weight w: [16, 16]  weight u: [16, 16]\n"
      "  forward(x: f32[batch, time, 16], mask: bool[batch, time]) {\n"
      "    h = softmax(linear(x, w))  s = max(linear(x, u), axis = 2, keepdim = true)\n"
      "    return y = where(mask[:, :, none], h * s, 0) } }",
      2);
}

/* Attention stops at the last key of an item that is no padding: of what a projection leaves out, only rows before that
 * one become 0. The others stay as memory was. */
Test(live_rows, rows_behind_the_last_one_of_an_item_stay_as_they_are) {
  enum { BATCH = 3, TIME = 20, WIDTH = 32 };
  static const uint8_t last[BATCH] = {20, 7, 0}; /* rows 2 and 5 are padding as well */
  Model m = model_new("model M(d = 32) { attention = MultiheadAttention(d, 2)\n"
                      "  forward(x: f32[batch, time, d], pad: bool[batch, time]) {\n"
                      "    return y = where(pad[:, :, none], 0, attention(x, key_padding_mask = pad)) } }",
                      &targets[0]);
  const tfm_program *p = m.live.forward;
  tfm_value inputs[MAX_INPUTS];
  make_inputs(&m, (Mask)0, (Sizes){BATCH, TIME, 1}, inputs);
  uint8_t *pad = inputs[input_named(p, "pad")].data;
  for (int i = 0; i < BATCH * TIME; i++) pad[i] = i % TIME >= last[i / TIME] || i % TIME == 2 || i % TIME == 5;
  for (int32_t threads = 1; threads <= 3; threads++) {
    tfm_context *context = context_of(&m.live, threads);
    tfm_error error;
    float y[BATCH * TIME * WIDTH];
    static const int64_t dims[] = {BATCH, TIME, WIDTH};
    const tfm_value output = {y, TFM_F32, 3, dims};
    cr_assert_eq(tfm_context_bind(context, inputs, &error), TFM_OK, "%s", error.message);
    cr_assert_eq(tfm_context_run(context, inputs, &output, &error), TFM_OK, "%s", error.message);
    const tfm_gemm_step *gemm = p->gemms;
    cr_assert(gemm->live && p->live[gemm->live - 1].item, "the first product is that of queries, keys and values");
    const char *workspace = context->memory.workspace;
    const float *c = (const float *)(const void *)(workspace + context->memory.buffer_offsets[gemm->c.index]);
    for (int i = 0; i < BATCH * TIME; i++) {
      const float number = c[i * value_of(context, gemm->c.strides[0])];
      if (pad[i] && i % TIME < last[i / TIME]) cr_assert_eq(number, 0, "row %d, %d threads", i, threads);
      if (i % TIME >= last[i / TIME]) /* 0 if a thread's share ends before the item does */
        cr_assert(isnan(number) || (threads > 1 && number == 0), "row %d is written", i);
      if (!pad[i]) cr_assert(!isnan(number), "row %d is not written", i);
    }
    tfm_context_destroy(context);
  }
  model_close(&m);
}

// ---- steps ----

static Graph *graph_of(Model *m, const char *text) {
  Graph *graph = graph_read(m->arena, &m->diag, source_new(m->arena, "test.graph", text, (uint32_t)strlen(text)));
  good(m, graph && graph_verify(graph, &m->diag));
  return graph;
}

/* A product whose sums leave out what the mask says, which may be NaN, beside the one of all steps with zeros there. */
static void check_steps(const char *all, const char *live, tfm_live_steps how) {
  static const Sizes sizes[] = {{5, 23, 1}, {1, 40, 1}, {2, 531, 1}, {3, 700, 1}};
  const PassOptions options = {.level = 0};
  for (const TargetInfo *target = targets; target->name; target++) {
    if (host_lacks(target)) continue;
    Model m = {.arena = arena_create()};
    m.diag = diag_new(m.arena);
    m.all = compiled_forward(m.arena, &m.diag, graph_of(&m, all), &options, target, NULL, NULL);
    m.live = compiled_forward(m.arena, &m.diag, graph_of(&m, live), &options, target, NULL, NULL);
    m.plan = m.live.plans.forward;
    cr_assert_eq(m.live.forward->matmuls[0].live_steps, how);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
      for (int mask = 0; mask < N_MASKS; mask++) {
        tfm_value inputs[MAX_INPUTS];
        size_t bytes;
        make_inputs(&m, (Mask)mask, sizes[i], inputs);
        fill_padding(&m.plan->program, inputs, 0);
        const char *want = outputs_of(&m, &m.all, inputs, 1, &bytes);
        fill_padding(&m.plan->program, inputs, NAN);
        for (int32_t threads = 1; threads <= 2; threads++)
          expect_equal(outputs_of(&m, &m.live, inputs, threads, &bytes), want, bytes, "steps", (Mask)mask, sizes[i]);
      }
    model_close(&m);
  }
}

#define OF_EACH_ITEM(steps)                                   \
  "graph G(sizes batch, time) {\n"                            \
  "  %0 = input \"x\" : f32[batch, time, 6]\n"                \
  "  %1 = input \"y\" : f32[batch, time, 21]\n"               \
  "  %2 = input \"mask\" : bool[batch, time]\n"               \
  "  %3 = permute %0, axes=[0, 2, 1] : f32[batch, 6, time]\n" \
  "  %4 = matmul %3, %1" steps " : f32[batch, 6, 21]\n"       \
  "  output z = %4\n}\n"

/* Padding of one item is no padding of another, and the first one may have none. */
Test(live_rows, steps_of_each_item) {
  check_steps(OF_EACH_ITEM(""), OF_EACH_ITEM(", %2, steps=$2"), TFM_STEPS_OF_ITEM);
}

#define OF_ALL_ITEMS(steps)                               \
  "graph G(sizes batch, time) {\n"                        \
  "  %0 = input \"x\" : f32[batch, time, 6]\n"            \
  "  %1 = input \"y\" : f32[batch, time, 21]\n"           \
  "  %2 = input \"mask\" : bool[batch, time]\n"           \
  "  %3 = reshape %0 : f32[batch*time, 6]\n"              \
  "  %4 = permute %3, axes=[1, 0] : f32[6, batch*time]\n" \
  "  %5 = reshape %1 : f32[batch*time, 21]\n"             \
  "  %6 = reshape %2 : bool[batch*time]\n"                \
  "  %7 = matmul %4, %5" steps " : f32[6, 21]\n"          \
  "  output z = %7\n}\n"

Test(live_rows, steps_of_all_items) {
  check_steps(OF_ALL_ITEMS(""), OF_ALL_ITEMS(", %6, steps=$2"), TFM_STEPS_SHARED);
}
