/* Rows of a model with states: what a decoder gives is what the whole forward gives, bit for bit, however rows are cut
 * into steps, whichever rows go together, with any number of threads, on every instruction set of this CPU; and random
 * calls of a decoder, among them guesses and steps that fail, against rows that are computed alone.
 * TFM_STATE_OPERATIONS says how many calls (a few thousand), TFM_STATE_SEED with which numbers. */
#include <stdio.h>
#include <stdlib.h>

#include "codegen/codegen.h"
#include "compiled_model.h"
#include "elaborate_text.h"
#include "same_values.h"
#include "tfm/decode.h"
#include "tfm/tfm.h"
#include "tfm/write.h"

enum { LENGTH = 20, ROWS = 6, VOCAB = 23 };

/* A convolution, its window shared by three shifts; running sums of f32 and i32, a shift of truths; the gated delta rule,
 * with a state that fills no block of columns; linear attention that fades by rows, whose result is a key and a value of
 * an attention; one state for heads that share their keys. */
static const char hybrid[] =
    "layer Mixer(d, n, m) {\n"
    "  conv = CausalConv1d(d, 3, dilation = 2)\n"
    "  q = Linear(d, 2 * n)\n  k = Linear(d, n)\n  v = Linear(d, 2 * m)\n  out = Linear(2 * m, d)\n  b = Linear(d, 2)\n"
    "  forward(x) {\n"
    "    u = silu(conv(x))\n"
    "    keys = k(u)[:, none] * 0.3\n"
    "    beta = sigmoid(split_heads(b(u), 2))\n"
    "    y = linear_attention(split_heads(q(u), 2), keys, split_heads(v(u), 2), decay = sigmoid(beta + 2), beta = beta)\n"
    "    return x + out(merge_heads(y))\n"
    "  }\n"
    "}\n"
    "layer Attended(d) {\n"
    "  q = Linear(d, d)\n  k = Linear(d, d)\n"
    "  forward(x) {\n"
    "    y = linear_attention(q(x), k(x), x, decay = sigmoid(x[..., :1] + k(x)))\n"
    "    scores = where(causal_mask(x, x), -inf, q(x) @ transpose(y, -1, -2) * 0.2)\n"
    "    return x + softmax(scores) @ y\n"
    "  }\n"
    "}\n"
    "model M(d = 16, n = 5, m = 35) {\n"
    "  embed = Embedding(23, d)\n"
    "  mixer = Mixer(d, n, m)\n"
    "  attended = Attended(d)\n"
    "  norm = RMSNorm(d)\n"
    "  head = Linear(d, 23)\n"
    "  forward(ids: i32[batch, time]) {\n"
    "    x = embed(ids)\n"
    "    x = norm(x + cumsum(x, 1) * 0.1 + where(shift(ids == 3, 2, axis = 1), 1, 0.5)[..., none])\n"
    "    x = x + f32(cumsum(ids, 1))[..., none] * 0.01\n"
    "    logits = head(norm(attended(mixer(x))))\n"
    "    return logits\n"
    "  }\n"
    "  generate ids from logits { bos = 1  eos = 2  pad = 0  max_length = 20 }\n"
    "}\n";

typedef struct Model {
  Arena *arena;
  Diag diag;
  RandomWeights weights;
  Compiled whole, made;
} Model;

static void ok(tfm_status status, const tfm_error *error) { cr_assert_eq(status, TFM_OK, "%s", error->message); }

static const Tensor *look_up(void *context, const char *name) { return random_weight(&((Model *)context)->weights, name); }

static void compile(Model *m, const TargetInfo *target) {
  *m = (Model){.arena = arena_create()};
  m->diag = diag_new(m->arena);
  Graph *graph = elaborate_text(m->arena, &m->diag, hybrid, &(ElaborateOptions){0});
  cr_assert_not_null(graph, "%s", first_message(&m->diag));
  m->weights = (RandomWeights){m->arena, graph_clone(m->arena, graph), map_new(m->arena)};
  cr_assert(compiled_decoding(&m->made, m->arena, &m->diag, graph, target, look_up, m), "%s", first_message(&m->diag));
  m->whole = compiled_forward(m->arena, &m->diag, graph, &(PassOptions){.level = 2}, target, look_up, m);
}

static void close_model(Model *m) {
  compiled_free(&m->whole);
  compiled_free(&m->made);
  arena_destroy(m->arena);
}

static tfm_decoder *open_decoder(const Model *m, int32_t threads, int64_t rows) {
  tfm_decoder *decoder;
  tfm_error error;
  tfm_context_options options = {.struct_size = sizeof options, .threads = threads};
  ok(tfm_decoder_create(&m->made.decoding, m->made.packed, m->made.packed, &options, &decoder, &error), &error);
  ok(tfm_decoder_begin(decoder, NULL, rows, LENGTH, &error), &error);
  return decoder;
}

// ---- the whole forward ----

/* Logits [ROWS][LENGTH][VOCAB] after every token. */
static void run_whole(const Model *m, int32_t (*tokens)[LENGTH], float *logits) {
  tfm_context *context;
  tfm_error error;
  tfm_context_options options = {.struct_size = sizeof options, .threads = 1};
  ok(tfm_context_create(m->whole.forward, m->whole.packed, &options, &context, &error), &error);
  const tfm_value input = {tokens, TFM_I32, 2, (int64_t[]){ROWS, LENGTH}};
  ok(tfm_context_bind(context, &input, &error), &error);
  const tfm_value output = {logits, TFM_F32, 3, tfm_context_output_dims(context, 0, NULL)};
  ok(tfm_context_run(context, &input, &output, &error), &error);
  tfm_context_destroy(context);
}

static void make_tokens(int32_t (*tokens)[LENGTH]) {
  uint32_t random = 7;
  for (int row = 0; row < ROWS; row++)
    for (int t = 0; t < LENGTH; t++) tokens[row][t] = (int32_t)((random = random * 1664525 + 1013904223) >> 8) % VOCAB;
}

/* All rows in steps of counts[0], counts[1], ... tokens, the last of them again and again. */
static void check_cut(const Model *m, int32_t threads, const int64_t *counts, int32_t (*tokens)[LENGTH],
                      const float *want) {
  tfm_decoder *decoder = open_decoder(m, threads, ROWS);
  tfm_error error;
  float *got = calloc(ROWS * LENGTH * VOCAB, sizeof *got);
  int64_t row;
  for (int i = 0; i < ROWS; i++) ok(tfm_decoder_join(decoder, 0, &row, &error), &error);
  for (int64_t length = 0, n; length < LENGTH; length += n) {
    n = *counts < LENGTH - length ? *counts : LENGTH - length;
    if (counts[1]) counts++;
    tfm_decoder_row rows[ROWS];
    for (int i = 0; i < ROWS; i++) rows[i] = (tfm_decoder_row){i, tokens[i] + length, n, 0};
    ok(tfm_decoder_step(decoder, ROWS, rows, n, got, NULL, &error), &error);
    for (int i = 0; i < ROWS; i++)
      cr_assert_eq(memcmp(got + i * n * VOCAB, want + (i * LENGTH + length) * VOCAB, (size_t)(n * VOCAB) * sizeof *got),
                   0, "row %d, %lld tokens behind %lld, %d threads", i, (long long)n, (long long)length, (int)threads);
  }
  free(got);
  tfm_decoder_destroy(decoder);
}

Test(decoding_states, whole_rows_however_they_are_cut) {
  static const int64_t cuts[][4] = {{1, 0}, {LENGTH, 0}, {5, 3, 0}, {1, 7, 2, 0}, {2, 1, 0}};
  int32_t tokens[ROWS][LENGTH];
  float *want = calloc(ROWS * LENGTH * VOCAB, sizeof *want);
  make_tokens(tokens);
  for (const TargetInfo *target = targets; target->name; target++) {
    if (host_lacks(target)) continue;
    Model m;
    compile(&m, target);
    run_whole(&m, tokens, want);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++)
      for (int32_t threads = 1; threads <= 3; threads += 2) check_cut(&m, threads, cuts[i], tokens, want);
    close_model(&m);
  }
  free(want);
}

// ---- guesses ----

enum { PROMPT = 4 };

/* The tokens that greedy decoding writes behind the prompt, one step after the other. */
static void write_alone(const Model *m, int32_t *tokens) {
  tfm_decoder *decoder = open_decoder(m, 1, 1);
  float logits[VOCAB];
  tfm_error error;
  int64_t row;
  ok(tfm_decoder_join(decoder, 0, &row, &error), &error);
  for (int64_t length = PROMPT; length < LENGTH; length++) {
    const int64_t known = tfm_decoder_length(decoder, row);
    const tfm_decoder_row part = {row, tokens + known, length - known, 0};
    ok(tfm_decoder_step(decoder, 1, &part, 1, logits, NULL, &error), &error);
    int32_t best = 0;
    for (int32_t i = 1; i < VOCAB; i++)
      if (logits[i] > logits[best]) best = i;
    tokens[length] = best;
  }
  tfm_decoder_destroy(decoder);
}

/* A step with guesses of which `right` are right: the row has all that was chosen but the last, or, if one was wrong,
 * what it had before. Returns how many tokens were chosen. */
static int64_t guess(tfm_decoder *decoder, tfm_chooser *chooser, const int32_t *wanted, int64_t length, int64_t right) {
  int32_t tokens[LENGTH + 4];
  tfm_choice chosen[4];
  tfm_generate_options options;
  tfm_error error;
  const int64_t before = tfm_decoder_length(decoder, 0), guesses = 2;
  memcpy(tokens, wanted, (size_t)length * sizeof *tokens);
  for (int64_t i = 0; i < guesses; i++) tokens[length + i] = (wanted[length + i] + (i < right ? 0 : 1)) % VOCAB;
  tfm_generate_defaults(&options);
  options.eos_token_ids = (tfm_token_list){0};
  tfm_write_row row = {.part = {0, tokens + before, length + guesses - before, 0}, .n_guesses = guesses,
                       .choice = {.options = &options, .tokens = tokens, .length = length + guesses, .start = PROMPT,
                                  .limit = LENGTH}, .chosen = chosen};
  ok(tfm_decoder_write(decoder, &chooser, 1, &row, &error), &error);
  cr_assert_eq(row.status, TFM_OK, "%s", row.message);
  cr_assert_eq(row.n_chosen, 1 + right);
  for (int64_t i = 0; i <= right; i++) cr_assert_eq(chosen[i].token, wanted[length + i]);
  cr_assert_eq(tfm_decoder_length(decoder, 0), right == guesses ? length + guesses : before);
  return row.n_chosen;
}

Test(decoding_states, guesses_that_are_wrong_cost_their_step_alone) {
  Model m;
  tfm_chooser *chooser;
  tfm_error error;
  int32_t tokens[LENGTH + 4] = {3, 1, 4, 1};
  int64_t row;
  compile(&m, targets);
  write_alone(&m, tokens);
  tfm_decoder *decoder = open_decoder(&m, 1, 1);
  ok(tfm_chooser_create(VOCAB, &chooser, &error), &error);
  ok(tfm_decoder_join(decoder, 0, &row, &error), &error);
  for (int64_t length = PROMPT, turn = 0; length + 3 < LENGTH; turn++)
    length += guess(decoder, chooser, tokens, length, (2 * turn) % 3);
  tfm_chooser_destroy(chooser);
  tfm_decoder_destroy(decoder);
  close_model(&m);
}

// ---- random calls ----

typedef struct Row {
  bool exists;
  int64_t length, before; /* before its last step; -1: it cannot go back there */
  int32_t tokens[LENGTH];
} Row;

enum { THREADS = 2, GUESSES = 2 };

typedef struct Play {
  const Model *m;
  tfm_decoder *decoder, *alone;
  tfm_chooser *choosers[THREADS];
  uint32_t random;
  Row rows[ROWS];
} Play;

static int64_t draw(Play *p, int64_t n) {
  return (int64_t)((p->random = p->random * 1664525 + 1013904223) >> 8) % n;
}

static int64_t any_row(Play *p) {
  const int64_t first = draw(p, ROWS);
  for (int64_t i = 0; i < ROWS; i++)
    if (p->rows[(first + i) % ROWS].exists) return (first + i) % ROWS;
  return -1;
}

static int64_t free_row(const Play *p) {
  int64_t row = 0;
  while (row < ROWS && p->rows[row].exists) row++;
  return row;
}

/* The logits behind the row's last tokens, of a row that gets all of them at once. */
static void compare(Play *p, const Row *row, int64_t kept, const float *got) {
  float want[LENGTH * VOCAB];
  int64_t number;
  tfm_error error;
  ok(tfm_decoder_join(p->alone, 0, &number, &error), &error);
  const tfm_decoder_row all = {number, row->tokens, row->length, 0};
  ok(tfm_decoder_step(p->alone, 1, &all, kept, want, NULL, &error), &error);
  ok(tfm_decoder_leave(p->alone, number, &error), &error);
  cr_assert_eq(memcmp(got, want, (size_t)(kept * VOCAB) * sizeof *got), 0);
}

static void join(Play *p) {
  const int64_t row = free_row(p);
  int64_t number = -1;
  tfm_error error;
  const tfm_status status = tfm_decoder_join(p->decoder, 0, &number, &error);
  if (row == ROWS) {
    cr_assert_eq(status, TFM_E_INPUT);
    return;
  }
  ok(status, &error);
  cr_assert_eq(number, row);
  p->rows[row] = (Row){.exists = true, .before = -1};
}

static void leave(Play *p) {
  const int64_t row = any_row(p);
  tfm_error error;
  if (row < 0) return;
  ok(tfm_decoder_leave(p->decoder, row, &error), &error);
  p->rows[row].exists = false;
}

static void fork_row(Play *p) {
  const int64_t row = any_row(p), copy = free_row(p);
  int64_t number = -1;
  tfm_error error;
  if (row < 0 || copy == ROWS) return;
  ok(tfm_decoder_fork(p->decoder, row, &number, &error), &error);
  cr_assert_eq(number, copy);
  p->rows[copy] = p->rows[row];
}

static void reorder(Play *p) {
  Row before[ROWS];
  int64_t parents[ROWS], n = draw(p, ROWS + 1);
  tfm_error error;
  memcpy(before, p->rows, sizeof before);
  for (int64_t i = 0; i < n; i++)
    if ((parents[i] = any_row(p)) < 0) return;
  ok(tfm_decoder_reorder(p->decoder, n, parents, &error), &error);
  for (int64_t i = 0; i < ROWS; i++) {
    if (i < n) p->rows[i] = before[parents[i]];
    else p->rows[i].exists = false;
  }
}

/* Any length; what the row keeps, it goes to, and to nothing else. */
static void cut(Play *p) {
  const int64_t number = any_row(p);
  tfm_error error;
  if (number < 0) return;
  Row *row = &p->rows[number];
  const int64_t wanted = draw(p, row->length + 1);
  int64_t least = row->before > 0 && wanted >= row->before ? row->before : 0;
  if (wanted == row->length) least = wanted;
  const int64_t kept = tfm_decoder_keeps(p->decoder, number, wanted);
  cr_assert_eq(kept, least, "%lld of %lld, before %lld: %lld", (long long)wanted, (long long)row->length,
               (long long)row->before, (long long)kept);
  const int64_t to = draw(p, 2) ? wanted : kept;
  const tfm_status status = tfm_decoder_truncate(p->decoder, number, to, &error);
  cr_assert_eq(status, to == kept ? TFM_OK : TFM_E_INPUT);
  if (status || to == row->length) return;
  row->length = to;
  row->before = -1;
}

/* Some rows get some tokens; `fails`: one of them is no token. */
static void step(Play *p, bool fails) {
  tfm_decoder_row rows[ROWS];
  static float got[ROWS * LENGTH * VOCAB];
  tfm_error error;
  int64_t n = 0, kept = LENGTH;
  for (int64_t i = 0; i < ROWS; i++) {
    Row *row = &p->rows[i];
    const int64_t room = LENGTH - row->length;
    if (!row->exists || room == 0 || draw(p, 3) == 0) continue;
    const int64_t count = draw(p, 4) ? 1 : 1 + draw(p, room < 9 ? room : 9);
    for (int64_t t = 0; t < count; t++) row->tokens[row->length + t] = (int32_t)draw(p, VOCAB);
    rows[n++] = (tfm_decoder_row){i, row->tokens + row->length, count, 0};
    if (count < kept) kept = count;
  }
  if (!n) return;
  if (fails) p->rows[rows[n - 1].row].tokens[p->rows[rows[n - 1].row].length] = VOCAB + 5;
  const tfm_status status = tfm_decoder_step(p->decoder, n, rows, kept, got, NULL, &error);
  cr_assert_eq(status, fails ? TFM_E_INPUT : TFM_OK, "%s", error.message);
  for (int64_t i = 0; i < n; i++) {
    Row *row = &p->rows[rows[i].row];
    row->before = fails || row->length == 0 ? -1 : row->length;
    if (!fails) row->length += rows[i].n_tokens;
    if (!fails) compare(p, row, kept, got + i * kept * VOCAB);
  }
}

/* The token that follows, of a row that gets all of its tokens at once. */
static int32_t next_alone(Play *p, const int32_t *tokens, int64_t length) {
  float logits[VOCAB];
  int64_t number;
  int32_t best = 0;
  tfm_error error;
  ok(tfm_decoder_join(p->alone, 0, &number, &error), &error);
  const tfm_decoder_row all = {number, tokens, length, 0};
  ok(tfm_decoder_step(p->alone, 1, &all, 1, logits, NULL, &error), &error);
  ok(tfm_decoder_leave(p->alone, number, &error), &error);
  for (int32_t i = 1; i < VOCAB; i++)
    if (logits[i] > logits[best]) best = i;
  return best;
}

typedef struct Written { /* a row of a call of tfm_decoder_write */
  int64_t row, n_guesses, n_right;
  int32_t wanted[GUESSES + 1];
  tfm_choice chosen[GUESSES + 1];
} Written;

/* A token behind the row and some guesses, the first of them right; the row's length stays. */
static Written make_guesses(Play *p, int64_t number) {
  Row *row = &p->rows[number];
  Written w = {.row = number, .n_guesses = draw(p, GUESSES + 1)};
  const int64_t right = draw(p, w.n_guesses + 1);
  row->tokens[row->length] = (int32_t)draw(p, VOCAB);
  for (int64_t i = 0; i <= w.n_guesses; i++) {
    const int64_t length = row->length + 1 + i;
    w.wanted[i] = next_alone(p, row->tokens, length);
    if (i == w.n_guesses) break;
    row->tokens[length] = (w.wanted[i] + (i < right ? 0 : 1)) % VOCAB;
  }
  w.n_right = right;
  return w;
}

/* Some rows get a token and guesses of what follows. Those whose guess was wrong have what they had before. */
static void write_rows(Play *p) {
  tfm_write_row rows[ROWS];
  Written written[ROWS];
  tfm_generate_options options;
  tfm_error error;
  int64_t n = 0;
  tfm_generate_defaults(&options);
  options.eos_token_ids = (tfm_token_list){0};
  for (int64_t i = 0; i < ROWS; i++) {
    if (!p->rows[i].exists || p->rows[i].length + GUESSES + 2 > LENGTH || draw(p, 2)) continue;
    written[n] = make_guesses(p, i);
    const Row *row = &p->rows[i];
    const int64_t length = row->length + 1 + written[n].n_guesses;
    rows[n] = (tfm_write_row){.part = {i, row->tokens + row->length, length - row->length, 0},
                              .n_guesses = written[n].n_guesses, .chosen = written[n].chosen,
                              .choice = {.options = &options, .tokens = row->tokens, .length = length,
                                         .start = row->length, .limit = LENGTH}};
    n++;
  }
  if (!n) return;
  ok(tfm_decoder_write(p->decoder, p->choosers, n, rows, &error), &error);
  for (int64_t i = 0; i < n; i++) {
    const Written *w = &written[i];
    Row *row = &p->rows[w->row];
    cr_assert_eq(rows[i].status, TFM_OK, "%s", rows[i].message);
    cr_assert_eq(rows[i].n_chosen, w->n_right + 1);
    for (int64_t j = 0; j <= w->n_right; j++) cr_assert_eq(w->chosen[j].token, w->wanted[j]);
    const bool all = w->n_right == w->n_guesses;
    row->before = all && row->length > 0 ? row->length : -1;
    if (all) row->length += 1 + w->n_guesses;
  }
}

static void play(Play *p) {
  static void (*const calls[])(Play *) = {join, leave, fork_row, reorder, cut, cut, write_rows, write_rows};
  const int64_t call = draw(p, 20);
  if (call < (int64_t)(sizeof calls / sizeof *calls)) calls[call](p);
  else step(p, call == 19);
  for (int64_t i = 0; i < ROWS; i++)
    cr_assert_eq(tfm_decoder_length(p->decoder, i), p->rows[i].exists ? p->rows[i].length : -1);
}

static int64_t number_of(const char *name, int64_t otherwise) {
  const char *text = getenv(name);
  return text ? atoll(text) : otherwise;
}

/* What the states of two rows take is no longer there for pages; what does not hold them is refused with both numbers. */
Test(decoding_states, count_in_cache_bytes) {
  Model m;
  tfm_error error;
  int64_t all, some;
  compile(&m, host_target());
  tfm_decoder *decoder = open_decoder(&m, 1, 2);
  tfm_decoder_pages(decoder, 0, &all);
  cr_assert_gt(all, 0);
  tfm_decoder_limits limits = {.struct_size = sizeof limits, .rows = 2, .length = LENGTH, .cache_bytes = 1};
  cr_assert_eq(tfm_decoder_open(decoder, &limits, &error), TFM_E_NOMEM);
  long long rows, states, given;
  cr_assert_eq(sscanf(error.message, "states of %lld rows take %lld bytes, and there are %lld for all caches", &rows,
                      &states, &given), 3, "%s", error.message);
  cr_assert_eq(rows, 2);
  cr_assert_eq(given, 1);
  limits.cache_bytes = (uint64_t)states;
  cr_assert_eq(tfm_decoder_open(decoder, &limits, &error), TFM_E_NOMEM);
  limits.cache_bytes = (uint64_t)states + 1;
  ok(tfm_decoder_open(decoder, &limits, &error), &error);
  tfm_decoder_pages(decoder, 0, &some);
  cr_assert_eq(some, 0);
  limits.cache_bytes = (uint64_t)states + (1 << 20);
  ok(tfm_decoder_open(decoder, &limits, &error), &error);
  tfm_decoder_pages(decoder, 0, &some);
  cr_assert_eq(some, all);
  tfm_decoder_destroy(decoder);
  close_model(&m);
}

/* Behind it all pages are free again, and rows at their longest have blocks. */
Test(decoding_states, random_calls, .timeout = 36000) {
  Model m;
  int64_t left, pages;
  const TargetInfo *best = targets;
  for (const TargetInfo *target = targets; target->name; target++)
    if (!host_lacks(target)) best = target;
  compile(&m, best);
  Play p = {.m = &m, .decoder = open_decoder(&m, THREADS, ROWS), .alone = open_decoder(&m, 1, 1),
            .random = (uint32_t)number_of("TFM_STATE_SEED", 1)};
  tfm_error error;
  for (int i = 0; i < THREADS; i++) ok(tfm_chooser_create(VOCAB, &p.choosers[i], &error), &error);
  tfm_decoder_pages(p.decoder, 0, &pages);
  for (int64_t i = number_of("TFM_STATE_OPERATIONS", 3000); i > 0; i--) play(&p);
  for (int64_t i = 0; i < ROWS; i++)
    if (p.rows[i].exists) tfm_decoder_leave(p.decoder, i, NULL);
  tfm_decoder_pages(p.decoder, 0, &left);
  cr_assert_eq(left, pages);
  for (int i = 0; i < THREADS; i++) tfm_chooser_destroy(p.choosers[i]);
  tfm_decoder_destroy(p.decoder);
  tfm_decoder_destroy(p.alone);
  close_model(&m);
}
