/* libtfm: models from text that write. Each token is followed by the next one, from 5 on by 0. */
#include <string.h>

#include "check.h"
#include "tfm/compile.h"
#include "tfm/decode.h"

enum { VOCAB = 6, ROWS = 2, WIDTH = 2, NEW = 7 };

#define MODEL(result)                                                       \
  "model Successor {\n  table = Embedding(6, 6)\n"                          \
  "  forward(ids: i32[batch, time]) { return scores = " result " }\n"       \
  "  generate ids from scores { max_length = 9 }\n}\n"

static const char incremental[] = MODEL("table(ids)");
static const char whole[] = MODEL("table(ids) + 0 * mean(table(ids), axis = 1, keepdim = true)");

static tfm_status compile(const char *text, int32_t in_process, tfm_compiled **compiled, tfm_error *error) {
  static const int64_t dims[] = {VOCAB, VOCAB};
  float table[VOCAB * VOCAB] = {0};
  for (int i = 0; i < VOCAB; i++) table[i * VOCAB + (i + 1) % VOCAB] = 1;
  const tfm_tensor weights = {"table.weight", "F32", 2, dims, table};
  tfm_compile_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.text = text;
  options.weights = &weights;
  options.n_weights = 1;
  options.in_process = in_process;
  return tfm_compile(&options, compiled, error);
}

static void write_rows(tfm_decoder *decoder) {
  static const int32_t tokens[ROWS * WIDTH] = {0, 3, 5, 1};
  const tfm_prompts prompts = {.n = ROWS, .width = WIDTH, .tokens = tokens};
  tfm_generate_options options;
  tfm_generated written;
  tfm_error error;
  tfm_generate_defaults(&options);
  options.max_new_tokens = NEW;
  tfm_status status = tfm_decoder_begin(decoder, NULL, ROWS, WIDTH + NEW, &error);
  CHECK(status == TFM_OK, "%s", error.message);
  const tfm_generate_model model = tfm_decoder_model(decoder);
  CHECK(model.vocab == VOCAB, "%lld", (long long)model.vocab);
  status = tfm_generate(&model, &prompts, &options, &written, &error);
  CHECK(status == TFM_OK, "%s", error.message);
  if (status != TFM_OK) return;
  CHECK(written.n == ROWS && written.width == WIDTH + NEW, "%lld", (long long)written.width);
  for (int64_t i = 0; i < written.n; i++)
    for (int64_t t = WIDTH; t < written.width; t++) {
      const int32_t *row = written.sequences + i * written.width;
      CHECK(row[t] == (row[t - 1] + 1) % VOCAB, "row %d token %d: %d", (int)i, (int)t, row[t]);
    }
  tfm_generated_free(&written);
}

/* The same with a loop of our own: a decoder that is opened, and a token at a time. */
static void choose_tokens(tfm_decoder *decoder) {
  tfm_decoder_limits limits;
  tfm_generate_options options;
  tfm_chooser *chooser = NULL;
  tfm_error error;
  float logits[VOCAB];
  int32_t tokens[WIDTH + NEW] = {3, 5};
  int64_t row, length = WIDTH;
  memset(&limits, 0, sizeof limits);
  limits.struct_size = sizeof limits;
  limits.rows = 1;
  limits.length = WIDTH + NEW;
  tfm_generate_defaults(&options);
  CHECK(tfm_options_check(&options, VOCAB, WIDTH, &error) == TFM_OK, "%s", error.message);
  CHECK(tfm_decoder_open(decoder, &limits, &error) == TFM_OK, "%s", error.message);
  CHECK(tfm_decoder_join(decoder, 0, &row, &error) == TFM_OK, "%s", error.message);
  CHECK(tfm_chooser_create(VOCAB, &chooser, &error) == TFM_OK, "%s", error.message);
  for (int64_t done = 0; chooser && length < WIDTH + NEW; done = length++) {
    const tfm_decoder_row part = {row, tokens + done, length - done, 0};
    const tfm_choice_row choosing = {.options = &options, .tokens = tokens, .length = length, .start = WIDTH,
                                     .limit = WIDTH + NEW, .logits = logits};
    tfm_choice choice;
    CHECK(tfm_decoder_step(decoder, 1, &part, 1, logits, NULL, &error) == TFM_OK, "%s", error.message);
    CHECK(tfm_choose(chooser, &choosing, &choice, &error) == TFM_OK, "%s", error.message);
    CHECK(choice.token == (tokens[length - 1] + 1) % VOCAB, "token %d: %d", (int)length, choice.token);
    tokens[length] = choice.token;
  }
  CHECK(tfm_decoder_add_source(decoder, NULL, NULL, &row, &error) == TFM_E_USAGE, "it has no sources");
  tfm_chooser_destroy(chooser);
}

static void test_incremental(int32_t in_process) {
  tfm_compiled *compiled = NULL;
  tfm_decoder *decoder = NULL;
  tfm_error error;
  CHECK(compile(incremental, in_process, &compiled, &error) == TFM_OK, "%s", error.message);
  if (!compiled) return;
  tfm_model *model = tfm_compiled_model(compiled);
  CHECK(tfm_model_decoding(model), "it is incremental");
  CHECK(tfm_model_decoder(model, NULL, &decoder, &error) == TFM_OK, "%s", error.message);
  if (decoder) write_rows(decoder);
  if (decoder) choose_tokens(decoder);
  tfm_decoder_destroy(decoder);
  tfm_compiled_free(compiled);
}

static void test_refused(void) {
  tfm_compiled *compiled = NULL;
  tfm_decoder *decoder = (tfm_decoder *)&compiled;
  tfm_error error;
  CHECK(compile(whole, 0, &compiled, &error) == TFM_OK, "%s", error.message);
  if (!compiled) return;
  CHECK(!tfm_model_decoding(tfm_compiled_model(compiled)), "a mean over all tokens");
  CHECK(tfm_model_decoder(tfm_compiled_model(compiled), NULL, &decoder, &error) == TFM_E_USAGE, "%s", error.message);
  CHECK(!decoder && strstr(error.message, "not incremental"), "%s", error.message);
  CHECK(tfm_model_decoder(NULL, NULL, &decoder, &error) == TFM_E_USAGE, "%s", error.message);
  CHECK(tfm_model_decoder(tfm_compiled_model(compiled), NULL, NULL, &error) == TFM_E_USAGE, "%s", error.message);
  CHECK(!tfm_model_decoding(NULL), "no model");
  tfm_compiled_free(compiled);
}

int main(void) {
  test_incremental(0);
  test_incremental(1);
  test_refused();
  return end_of_checks();
}
