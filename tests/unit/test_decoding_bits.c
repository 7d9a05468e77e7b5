/* What a decoder gives is what the whole forward gives, bit for bit: for every golden model that writes and is
 * incremental, and for models that are written here, scores after every token, however the rows are cut into steps,
 * whichever rows go together, with 1, 2 and 4 threads, on every instruction set of this CPU, in f32 and in 8 bits with
 * caches of 8 bits. TFM_DECODING_CASES names
 * another folder of cases (those that tests/differential/causal.py writes). */
#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "codegen/codegen.h"
#include "compile/quantize.h"
#include "compiled_model.h"
#include "elaborate_text.h"
#include "same_values.h"
#include "tfm/decode.h"
#include "tfm/tfm.h"
#include "weights/safetensors.h"

enum { LENGTH = 19, MAX_ITEMS = 4, MAX_INPUTS = 4 };

typedef struct Model {
  Arena *arena;
  Diag diag;
  const char *rule;             /* of precision, or NULL */
  RandomWeights random_weights; /* of the graph as it was elaborated */
  TensorFile *weights; /* NULL: random ones, and random inputs */
  uint32_t random;
  Compiled whole, made;
  int32_t grows, scores;      /* of the whole program */
  tfm_value inputs[MAX_INPUTS]; /* of the whole program */
  int64_t items, vocab;
  int32_t tokens[2][MAX_ITEMS][LENGTH]; /* two different rows for each item */
  float *expected[2];                   /* [items][LENGTH][vocab] */
} Model;

static void good(const Model *m, bool condition) {
  cr_assert(condition, "%s", first_message(&m->diag));
}
static void ok(tfm_status status, const tfm_error *error) { cr_assert_eq(status, TFM_OK, "%s", error->message); }

// ---- random numbers ----

static uint32_t next_random(Model *m) { return (m->random = m->random * 1664525 + 1013904223) >> 8; }

static void fill_randomly(Model *m, const tfm_value *value) {
  for (int64_t i = 0; i < value_elements(value); i++) {
    uint32_t number = next_random(m);
    if (value->dtype == TFM_F32) ((float *)value->data)[i] = (float)(number % 2001) / 2000 - 0.5f;
    else if (value->dtype == TFM_I32) ((int32_t *)value->data)[i] = (int32_t)(number % 10);
    else ((uint8_t *)value->data)[i] = number % 4 == 0;
  }
}

// ---- reading a case ----

static const Tensor *look_up(void *context, const char *name) {
  Model *m = context;
  if (!m->weights) return random_weight(&m->random_weights, name);
  const FileTensor *tensor = tensor_file_find(m->weights, name);
  cr_assert_not_null(tensor, "no weight '%s'", name);
  Tensor *out = tensor_new(m->arena, DTYPE_F32, tensor->rank, tensor->dims);
  good(m, tensor_file_read(m->weights, &m->diag, tensor, DTYPE_F32, out->data));
  return out;
}

static Graph *elaborate_case(Model *m, const char *folder) {
  Definition definitions[32];
  ElaborateOptions options = {.definitions = definitions};
  json_t *json = json_load_file(arena_printf(m->arena, "%s/case.json", folder), 0, NULL), *value;
  const char *key;
  json_object_foreach(json_object_get(json, "defines"), key, value)
    definitions[options.n_definitions++] =
        (Definition){arena_strdup(m->arena, key), arena_strdup(m->arena, json_string_value(value))};
  json_decref(json);
  Graph *graph = elaborate_file(m->arena, &m->diag, arena_printf(m->arena, "%s/model.tfm", folder), &options);
  good(m, graph);
  return graph;
}

/* Everything but the tokens, which are not those of the case. */
static void read_inputs(Model *m, const char *folder) {
  const tfm_program *p = m->whole.forward;
  TensorFile *file = safetensors_open(m->arena, &m->diag, arena_printf(m->arena, "%s/inputs.safetensors", folder));
  good(m, file && p->n_inputs <= MAX_INPUTS);
  for (uint32_t i = 0; i < p->n_inputs; i++) {
    const FileTensor *tensor = tensor_file_find(file, p->inputs[i].name);
    if (!tensor) continue;
    Tensor *out = tensor_new(m->arena, (DType)p->inputs[i].dtype, tensor->rank, tensor->dims);
    good(m, tensor_file_read(file, &m->diag, tensor, out->dtype, out->data));
    m->inputs[i] = (tfm_value){out->data, (int32_t)out->dtype, (int32_t)out->rank, out->dims};
    m->items = out->dims[0];
  }
  tensor_file_close(file);
  cr_assert(m->items > 0 && m->items <= MAX_ITEMS);
}

enum { LONG_SOURCE = 33000 };

/* 3 items, many positions of a source that is called long, 5 of everything else. */
static void make_inputs(Model *m, const Plan *plan) {
  const tfm_program *p = &plan->program;
  int64_t symbols[SIZE_MAX_SYMBOLS];
  for (uint32_t i = 0; i < p->n_symbols; i++) {
    const char *name = p->symbols[i];
    symbols[i] = strcmp(name, "batch") == 0 ? 3 : strcmp(name, "long_source") == 0 ? LONG_SOURCE : 5;
  }
  m->random = 1;
  zero_inputs(m->arena, plan, symbols, m->inputs);
  for (uint32_t i = 0; i < p->n_inputs; i++) fill_randomly(m, &m->inputs[i]);
  m->items = m->inputs[m->grows].dims[0];
}

// ---- compiling it ----

static const Plan *compile_whole(Model *m, Graph *graph, const TargetInfo *target) {
  const char *grows = graph->generate_input, *scores = graph->generate_output;
  m->whole = compiled_forward(m->arena, &m->diag, graph, &(PassOptions){.level = 2}, target, look_up, m);
  const Plan *plan = m->whole.plans.forward;
  for (uint32_t i = 0; i < plan->program.n_inputs; i++)
    if (strcmp(plan->program.inputs[i].name, grows) == 0) m->grows = (int32_t)i;
  for (uint32_t i = 0; i < plan->program.n_outputs; i++)
    if (strcmp(plan->program.outputs[i].name, scores) == 0) m->scores = (int32_t)i;
  return plan;
}

static void all_caches_have_8_bits(const Compiled *made) {
  const tfm_program *step = made->decoding.step;
  cr_assert_gt(step->n_caches, 0);
  for (uint32_t i = 0; i < step->n_caches; i++) cr_assert_eq(step->caches[i].form, TFM_FORM_INT8);
}

/* NULL for a model that is not incremental; else the plan of the whole. */
static const Plan *compile(Model *m, Graph *graph, const TargetInfo *target) {
  m->random_weights = (RandomWeights){m->arena, graph_clone(m->arena, graph), map_new(m->arena)};
  if (m->rule) good(m, quantize_weights(graph, &m->diag, &m->rule, 1));
  if (!compiled_decoding(&m->made, m->arena, &m->diag, graph, target, look_up, m)) return NULL;
  const Plan *whole = compile_whole(m, graph, target);
  m->vocab = m->made.decoding.vocab;
  if (m->rule && strcmp(m->rule, "int8") == 0) all_caches_have_8_bits(&m->made);
  return whole;
}

static void close_model(Model *m) {
  compiled_free(&m->whole);
  compiled_free(&m->made);
  tensor_file_close(m->weights);
  arena_destroy(m->arena);
}

// ---- the whole forward ----

/* The scores after token `length` - 1 of all rows, to expected. */
static void run_whole(Model *m, tfm_context *context, int set, int64_t length) {
  const tfm_program *p = m->whole.forward;
  int32_t tokens[MAX_ITEMS * LENGTH], rank;
  tfm_error error;
  for (int64_t i = 0; i < m->items; i++)
    memcpy(tokens + i * length, m->tokens[set][i], (size_t)length * sizeof *tokens);
  m->inputs[m->grows] = (tfm_value){tokens, TFM_I32, 2, (int64_t[]){m->items, length}};
  ok(tfm_context_bind(context, m->inputs, &error), &error);
  tfm_value outputs[8] = {0};
  const int64_t *dims = tfm_context_output_dims(context, (uint32_t)m->scores, &rank);
  cr_assert(rank == 3 && p->n_outputs <= 8);
  float *scores = calloc((size_t)(dims[0] * dims[1] * dims[2]), sizeof *scores);
  for (uint32_t i = 0; i < p->n_outputs; i++)
    outputs[i] = (tfm_value){NULL, p->outputs[i].dtype, p->outputs[i].rank, tfm_context_output_dims(context, i, NULL)};
  outputs[m->scores].data = scores;
  ok(tfm_context_run(context, m->inputs, outputs, &error), &error);
  for (int64_t i = 0; i < m->items; i++)
    memcpy(m->expected[set] + (i * LENGTH + length - 1) * m->vocab, scores + (i * dims[1] + dims[1] - 1) * m->vocab,
           (size_t)m->vocab * sizeof *scores);
  free(scores);
}

static void find_expected(Model *m) {
  tfm_context *context;
  tfm_error error;
  tfm_context_options options = {.struct_size = sizeof options, .threads = 1};
  ok(tfm_context_create(m->whole.forward, m->whole.packed, &options, &context, &error), &error);
  m->random = 12345;
  for (int set = 0; set < 2; set++) {
    for (int64_t i = 0; i < m->items; i++)
      for (int64_t t = 0; t < LENGTH; t++)
        m->tokens[set][i][t] = (int32_t)next_random(m) % (int32_t)m->vocab;
    m->expected[set] = arena_alloc(m->arena, (size_t)(m->items * LENGTH * m->vocab) * sizeof(float));
    for (int64_t length = 1; length <= LENGTH; length++) run_whole(m, context, set, length);
  }
  tfm_context_destroy(context);
}

// ---- decoding ----

typedef struct Decoding {
  const Model *m;
  const char *name;
  tfm_decoder *decoder;
} Decoding;

static Decoding begin(const Model *m, const char *name, int32_t threads) {
  Decoding d = {.m = m, .name = name};
  tfm_error error;
  tfm_context_options options = {.struct_size = sizeof options, .threads = threads};
  ok(tfm_decoder_create(&m->made.decoding, m->made.packed, m->made.packed, &options, &d.decoder, &error), &error);
  tfm_value inputs[MAX_INPUTS];
  const tfm_program *whole = m->whole.forward, *source = m->made.decoding.encoder;
  for (uint32_t i = 0; source && i < source->n_inputs; i++)
    for (uint32_t k = 0; k < whole->n_inputs; k++)
      if (strcmp(source->inputs[i].name, whole->inputs[k].name) == 0) inputs[i] = m->inputs[k];
  ok(tfm_decoder_begin(d.decoder, source ? inputs : NULL, 2 * m->items, LENGTH, &error), &error);
  return d;
}

static int64_t join(Decoding *d, int64_t item) {
  tfm_error error;
  int64_t row;
  ok(tfm_decoder_join(d->decoder, item, &row, &error), &error);
  return row;
}

static void compare(const Decoding *d, int set, int64_t item, int64_t position, const float *got) {
  int64_t vocab = d->m->vocab;
  const float *want = d->m->expected[set] + (item * LENGTH + position) * vocab;
  for (int64_t i = 0; i < vocab; i++)
    cr_assert(memcmp(&got[i], &want[i], sizeof *got) == 0,
              "%s: set %d, item %lld, position %lld, score %lld: %.9g, not %.9g",
              d->name, set, (long long)item, (long long)position, (long long)i, (double)got[i], (double)want[i]);
}

static void compare_logsumexp(const Decoding *d, const float *scores, float logsumexp) {
  double most = -INFINITY, sum = 0;
  for (int64_t i = 0; i < d->m->vocab; i++) most = scores[i] > most ? scores[i] : most;
  for (int64_t i = 0; i < d->m->vocab; i++) sum += exp(scores[i] - most);
  cr_assert_float_eq(logsumexp, log(sum) + most, 1e-5 * (1 + fabs(most)), "%s", d->name);
}

/* Appends counts[i] tokens to row first_row + i, where row r is of item r % items and set r / items; compares the scores
 * after the last `kept` of each row. A row that gets none is left out. */
static void step_each(const Decoding *d, int64_t first_row, int64_t n_rows, const int64_t *counts, int64_t kept) {
  const Model *m = d->m;
  tfm_decoder_row rows[2 * MAX_ITEMS];
  tfm_error error;
  size_t places = (size_t)n_rows * (size_t)kept;
  float *scores = calloc(places * (size_t)m->vocab, sizeof *scores);
  float *logsumexp = calloc(places, sizeof *logsumexp);
  int64_t n = 0;
  bool sums = tfm_decoder_length(d->decoder, first_row) % 2;
  for (int64_t row = first_row; row < first_row + n_rows; row++) {
    int64_t length = tfm_decoder_length(d->decoder, row), count = counts[row - first_row];
    if (count) rows[n++] = (tfm_decoder_row){row, m->tokens[row / m->items][row % m->items] + length, count, 0};
  }
  ok(tfm_decoder_step(d->decoder, n, rows, kept, scores, sums ? logsumexp : NULL, &error), &error);
  for (int64_t r = 0; r < n; r++)
    for (int64_t k = 0; k < kept; k++) {
      int64_t row = rows[r].row, length = tfm_decoder_length(d->decoder, row);
      const float *got = scores + (r * kept + k) * m->vocab;
      compare(d, (int)(row / m->items), row % m->items, length - kept + k, got);
      if (sums) compare_logsumexp(d, got, logsumexp[r * kept + k]);
    }
  free(scores);
  free(logsumexp);
}

static void step(const Decoding *d, int64_t first_row, int64_t n_rows, int64_t n, int64_t kept) {
  int64_t counts[2 * MAX_ITEMS];
  for (int64_t i = 0; i < n_rows; i++) counts[i] = n;
  step_each(d, first_row, n_rows, counts, kept);
}

static void join_all(Decoding *d) {
  for (int64_t row = 0; row < 2 * d->m->items; row++) cr_assert_eq(join(d, row % d->m->items), row);
}

/* All rows in chunks of these lengths, until LENGTH. */
static void in_chunks(const Model *m, const char *name, int32_t threads, int64_t chunk, int64_t then, bool together) {
  Decoding d = begin(m, name, threads);
  join_all(&d);
  int64_t group = together ? 2 * m->items : 1;
  for (int64_t length = 0; length < LENGTH;) {
    int64_t n = length ? then : chunk;
    if (n > LENGTH - length) n = LENGTH - length;
    for (int64_t row = 0; row < 2 * m->items; row += group) step(&d, row, group, n, length % 3 ? n : 1);
    length += n;
  }
  tfm_decoder_destroy(d.decoder);
}

/* Rows of different lengths, two of each, that get different numbers of tokens, until all have LENGTH. */
static void staggered(const Model *m, const char *name, int32_t threads) {
  Decoding d = begin(m, name, threads);
  int64_t n = 2 * m->items, counts[2 * MAX_ITEMS], left = 1;
  join_all(&d);
  for (int64_t i = 0; i < n; i++) counts[i] = 2 + 3 * i / 2 % (LENGTH - 2);
  for (int64_t round = 0; left; round++) {
    step_each(&d, 0, n, counts, round ? 1 : 2);
    left = 0;
    for (int64_t row = 0; row < n; row++) {
      int64_t most = LENGTH - tfm_decoder_length(d.decoder, row), wanted = 1 + (row / 2 + round) % 3;
      counts[row] = wanted < most ? wanted : most;
      left += counts[row];
    }
  }
  tfm_decoder_destroy(d.decoder);
}

/* Rows go back, change places and go on. */
static void back_and_forth(const Model *m, const char *name) {
  Decoding d = begin(m, name, 2);
  tfm_error error;
  int64_t n = 2 * m->items, parents[2 * MAX_ITEMS];
  join_all(&d);
  step(&d, 0, n, 17, 1);
  for (int64_t row = 0; row < n; row++) ok(tfm_decoder_truncate(d.decoder, row, 3, &error), &error);
  step(&d, 0, n, 1, 1);
  for (int64_t row = 0; row < n; row++) parents[row] = row < m->items ? row : row - m->items; /* set 0 twice */
  ok(tfm_decoder_reorder(d.decoder, n, parents, &error), &error);
  step(&d, 0, m->items, 4, 2);
  for (int64_t row = 0; row < m->items; row++) parents[row] = row + m->items; /* the copies have 4 tokens */
  ok(tfm_decoder_reorder(d.decoder, m->items, parents, &error), &error);
  cr_assert_eq(tfm_decoder_length(d.decoder, 0), 4);
  step(&d, 0, m->items, 1, 1);
  step(&d, 0, m->items, 14, 14);
  tfm_decoder_destroy(d.decoder);
}

/* Sums of scores that nobody wants, then neither: rows only learn their tokens. */
static void without_scores(const Model *m, const char *name) {
  Decoding d = begin(m, name, 2);
  tfm_decoder_row rows[MAX_ITEMS];
  float logsumexp[MAX_ITEMS];
  tfm_error error;
  join_all(&d);
  for (int64_t i = 0; i < m->items; i++) rows[i] = (tfm_decoder_row){i, m->tokens[0][i], 6, 0};
  ok(tfm_decoder_step(d.decoder, m->items, rows, 1, NULL, logsumexp, &error), &error);
  for (int64_t i = 0; i < m->items; i++)
    compare_logsumexp(&d, m->expected[0] + (i * LENGTH + 5) * m->vocab, logsumexp[i]);
  for (int64_t i = 0; i < m->items; i++) rows[i] = (tfm_decoder_row){i, m->tokens[0][i] + 6, 4, 0};
  ok(tfm_decoder_step(d.decoder, m->items, rows, 1, NULL, NULL, &error), &error);
  step(&d, 0, m->items, 3, 2);
  tfm_decoder_destroy(d.decoder);
}

static void check_decoding(const Model *m, const char *name) {
  for (int32_t threads = 1; threads <= 4; threads *= 2) {
    in_chunks(m, name, threads, 1, 1, true);
    in_chunks(m, name, threads, LENGTH, 1, true);
    in_chunks(m, name, threads, 5, 3, true);
    staggered(m, name, threads);
  }
  in_chunks(m, name, 1, 4, 1, false);
  in_chunks(m, name, 2, 1, 7, false);
  back_and_forth(m, name);
  without_scores(m, name);
}

// ---- cases ----

static const char *cases(void) {
  const char *folder = getenv("TFM_DECODING_CASES");
  return folder ? folder : TFM_SOURCE_DIR "/tests/goldens";
}

static bool check_case(const char *name, const char *rule, const TargetInfo *target) {
  char folder[1024];
  snprintf(folder, sizeof folder, "%s/%s", cases(), name);
  Model m = {.arena = arena_create(), .rule = rule};
  m.diag = diag_new(m.arena);
  m.weights = safetensors_open(m.arena, &m.diag, arena_printf(m.arena, "%s/weights.safetensors", folder));
  good(&m, m.weights);
  bool is_incremental = compile(&m, elaborate_case(&m, folder), target);
  if (is_incremental) {
    read_inputs(&m, folder);
    find_expected(&m);
    check_decoding(&m, name);
  }
  close_model(&m);
  return is_incremental;
}

static void check_text(const char *name, const char *text, const char *rule, const TargetInfo *target) {
  Model m = {.arena = arena_create(), .rule = rule};
  m.diag = diag_new(m.arena);
  Graph *graph = elaborate_text(m.arena, &m.diag, text, &(ElaborateOptions){0});
  good(&m, graph);
  const Plan *whole = compile(&m, graph, target);
  cr_assert_not_null(whole, "%s is not incremental", name);
  make_inputs(&m, whole);
  find_expected(&m);
  check_decoding(&m, name);
  close_model(&m);
}

/* Cases of one model differ in how tokens are chosen. */
static bool is_another_of_a_model(const char *name) {
  static const char *const endings[] = {"-beam-early", "-beam-never", "-forced", "-greedy", "-min", "-ngram", "-no-repeat",
                                        "-repetition", "-sample"};
  if (strncmp(name, "gen-lm-", 7) == 0 || strncmp(name, "gen-seed-", 9) == 0) return strstr(name, "-beam") != NULL;
  for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
    if (strlen(name) > strlen(endings[i]) && strcmp(name + strlen(name) - strlen(endings[i]), endings[i]) == 0) return true;
  return false;
}

static void check_all(const char *rule, const TargetInfo *target) {
  struct dirent **entries;
  int n = scandir(cases(), &entries, NULL, alphasort), n_incremental = 0;
  for (int i = 0; i < n; i++) {
    const char *name = entries[i]->d_name;
    if (strncmp(name, "gen-", 4) == 0 && !is_another_of_a_model(name)) n_incremental += check_case(name, rule, target);
    free(entries[i]);
  }
  free(entries);
  cr_assert_geq(n_incremental, getenv("TFM_DECODING_CASES") ? 1 : 6);
}

Test(decoding_bits, golden_models) {
  for (const TargetInfo *target = targets; target->name; target++)
    if (!host_lacks(target)) check_all(NULL, target);
}

Test(decoding_bits, golden_models_in_8_bits) {
  for (const TargetInfo *target = targets; target->name; target++)
    if (!host_lacks(target)) check_all("int8", target);
}

// ---- models of other shapes ----

#define GENERATES "  generate ids from logits { bos = 1  eos = 2  pad = 0  max_length = 30 }\n}\n"

/* One memory for all rows; heads of 24, which no tile of values divides. */
static const char one_memory[] =
    "model M(vocab = 30, d = 48) {\n"
    "  embed = Embedding(vocab, d)\n"
    "  decoder = Decoder(d, 2, 2, 64)\n"
    "  head = Linear(d, vocab)\n"
    "  forward(memory: f32[source, 48], ids: i32[batch, time]) {\n"
    "    logits = decoder(embed(ids), memory[none], tgt_is_causal = true) -> head\n"
    "    return logits\n"
    "  }\n" GENERATES;

static const char one_row[] =
    "model M(vocab = 30, d = 32) {\n"
    "  embed = Embedding(vocab, d)\n"
    "  encoder = Encoder(d, 2, 2, 64)\n"
    "  head = Linear(d, vocab)\n"
    "  forward(ids: i32[1, time]) {\n"
    "    logits = embed(ids) -> encoder(is_causal = true) -> head\n"
    "    return logits\n"
    "  }\n" GENERATES;

/* One head of keys and values for four of queries, a window of 6 positions, factors on both sides; then sums over
 * earlier positions that are no attention, whose caches are tensors. */
static const char other_attention[] =
    "layer Shared(d, heads) {\n"
    "  q = Linear(d, d)\n"
    "  k = Linear(d, d // heads)\n"
    "  v = Linear(d, d // heads)\n"
    "  out = Linear(d, d)\n"
    "  forward(x) {\n"
    "    place = positions(x, 1)\n"
    "    far = place[none, :] > place[:, none] or place[none, :] < place[:, none] - 5\n"
    "    queries = split_heads(q(x) * 0.6, heads)\n"
    "    keys = (k(x) * 0.6)[:, none]\n"
    "    scores = queries @ transpose(keys, -1, -2)\n"
    "    return out(merge_heads(softmax(where(far, -inf, scores)) @ v(x)[:, none]))\n"
    "  }\n"
    "}\n"
    "layer Summed(d) {\n"
    "  q = Linear(d, d)\n"
    "  k = Linear(d, d)\n"
    "  v = Linear(d, d)\n"
    "  forward(x) = where(causal_mask(x, x), 0, relu(q(x) @ transpose(k(x), -1, -2))) @ v(x)\n"
    "}\n"
    "model M(vocab = 30, d = 32) {\n"
    "  embed = Embedding(vocab, d)\n"
    "  shared = 2 * Shared(d, 4)\n"
    "  summed = Summed(d)\n"
    "  norm = LayerNorm(d)\n"
    "  head = Linear(d, vocab)\n"
    "  forward(ids: i32[batch, time]) {\n"
    "    x = embed(ids)\n"
    "    x = norm(x + shared(x))\n"
    "    logits = head(norm(x + summed(x)))\n"
    "    return logits\n"
    "  }\n" GENERATES;

/* Sums of three chains of products, also in the logits, which are consumed unit by unit. */
static const char long_sums[] =
    "model M(vocab = 30, d = 24) {\n"
    "  embed = Embedding(vocab, d)\n"
    "  up = Linear(d, 32800)\n"
    "  down = Linear(32800, d)\n"
    "  wide = Linear(d, 32800)\n"
    "  head = Linear(32800, vocab)\n"
    "  forward(ids: i32[batch, time]) {\n"
    "    logits = embed(ids) -> up -> relu -> down -> wide -> head\n"
    "    return logits\n"
    "  }\n" GENERATES;

/* Attention over three chains of keys, in pages of the encoder. */
static const char long_memory[] =
    "model M(vocab = 30, d = 16) {\n"
    "  embed = Embedding(vocab, d)\n"
    "  decoder = DecoderLayer(d, 1, 16)\n"
    "  head = Linear(d, vocab)\n"
    "  forward(memory: f32[long_source, 16], ids: i32[batch, time]) {\n"
    "    logits = decoder(embed(ids), memory[none], tgt_is_causal = true) -> head\n"
    "    return logits\n"
    "  }\n" GENERATES;

Test(decoding_bits, long_memory) {
  for (const TargetInfo *target = targets; target->name; target++)
    if (!host_lacks(target)) check_text("long memory", long_memory, NULL, target);
}

Test(decoding_bits, other_models) {
  for (const TargetInfo *target = targets; target->name; target++) {
    if (host_lacks(target)) continue;
    check_text("one memory", one_memory, NULL, target);
    check_text("one row", one_row, NULL, target);
    check_text("other attention", other_attention, NULL, target);
    check_text("long sums", long_sums, NULL, target);
  }
}

/* Heads of 24 and 7 columns, heads that are shared, one row. Of `two forms` one attention is in
 * 8 bits and the other in f32, and each has caches of its own. */
static const char odd_heads[] =
    "model M(vocab = 30, d = 21) {\n"
    "  embed = Embedding(vocab, d)\n"
    "  decoder = Decoder(d, 3, 2, 16)\n"
    "  head = Linear(d, vocab)\n"
    "  forward(memory: f32[batch, source, 21], ids: i32[batch, time]) {\n"
    "    logits = decoder(embed(ids), memory, tgt_is_causal = true) -> head\n"
    "    return logits\n"
    "  }\n" GENERATES;

Test(decoding_bits, other_models_in_8_bits) {
  for (const TargetInfo *target = targets; target->name; target++) {
    if (host_lacks(target)) continue;
    check_text("one memory", one_memory, "int8", target);
    check_text("one row", one_row, "int8", target);
    check_text("other attention", other_attention, "*attention=int8", target);
    check_text("odd heads", odd_heads, "int8", target);
    check_text("two forms", odd_heads, "*self_attn.attention=int8", target);
  }
}

/* Chains are led by code of the runtime, which is the same on all of them. */
Test(decoding_bits, long_memory_in_8_bits) {
  const TargetInfo *best = targets;
  for (const TargetInfo *target = targets; target->name; target++)
    if (!host_lacks(target)) best = target;
  check_text("long memory", long_memory, "*attention=int8", best);
}
