/* tfmc generate: rows of tokens that a generative model writes, to files or as JSON lines.
 *
 * In: a model with a generate block (or a library of one), weights, the inputs of its encoder, a prompt, the options
 * of generation. Out: the rows and what was asked for with them; nothing is written before everything has been
 * computed. Three ways lead to the logits of a step: the compiled decoder, the incremental form under the interpreter,
 * and whole rows for each token; tests compare them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/commands/commands.h"
#include "cli/generation_output.h"
#include "cli/generation_start.h"
#include "cli/cli_model.h"
#include "cli/outputs.h"
#include "engines/native_decoder.h"
#include "engines/scorer_steps.h"

typedef struct Generation {
  Session *session;
  GenerationStart start;
  tfm_generate_options options;
  tfm_generated generated; /* what was written; or, with --first-step-probabilities, these: */
  float *probabilities;
  double seconds;
  bool is_done;
} Generation;

/* Everything that can be refused is refused here, before anything is compiled for generation. */
static bool prepare(Generation *g) {
  GenerationSettings settings;
  GenerationStart *start = &g->start;
  if (!generation_load(g->session, start) ||
      !generation_settings_read(g->session, start->graph, start->scorer->is_decoder, &settings))
    return false;
  g->options = settings.options;
  return generation_output_check_names(g->session, &g->options, &start->returned) &&
         generation_make_prompts(start, &settings) &&
         returned_outputs_place(g->session, &start->returned,
                                start->prompts.n == 1 && g->options.num_return_sequences == 1);
}

// ---- the work ----

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static bool wants_first_step(const Generation *g) {
  return option_given(&g->session->options, OPTION_FIRST_STEP_PROBABILITIES);
}

static tfm_status write_first_step(Generation *g, const tfm_generate_model *model, tfm_error *error) {
  g->probabilities = ARENA_ARRAY(g->session->arena, float, g->start.prompts.n * model->vocab);
  return tfm_generate_first_step(model, &g->start.prompts, &g->options, g->probabilities, error);
}

/* The tokens that a message about the decoder input names need not be the user's: the model may have chosen them.
 * `limit`: what the loop says of the length of rows, if the error itself was reported without it. */
static void note_tokens(Generation *g, const char *limit) {
  Diag *diag = &g->session->diag;
  const DiagMessage *newest = &diag->messages.items[diag->messages.n - 1];
  const char *named = arena_printf(g->session->arena, "\"%s\"[", g->start.scorer->decoder_input);
  if (newest->code == DIAG_INPUT_VALUE && strstr(newest->text, named))
    diag_note(diag, NO_SPAN, "in generation \"%s\" is what a row begins with, then the tokens that were chosen for it",
              g->start.scorer->decoder_input);
  if (newest->code == DIAG_RUN_CHECK && *limit) diag_note(diag, NO_SPAN, "%s", limit);
}

/* Errors of the model were reported when they were met; those of the loop are reported here. */
static void write_with(Generation *g, const tfm_generate_model *model) {
  tfm_error error;
  double begin = now();
  tfm_status status = wants_first_step(g) ? write_first_step(g, model, &error)
                                          : tfm_generate(model, &g->start.prompts, &g->options, &g->generated, &error);
  g->seconds = now() - begin;
  g->is_done = status == TFM_OK;
  if (g->is_done) return;
  const bool is_new = !diag_has_errors(&g->session->diag);
  if (is_new) report_runtime_error(&g->session->diag, &error);
  note_tokens(g, is_new ? "" : error.message);
}

/* Whole rows for each token. Under the interpreter the model has been reported, unless --recompute kept
 * generate_by_steps from it. */
static void generate_anew(Generation *g) {
  const Options *options = &g->session->options;
  Scorer *scorer = g->start.scorer;
  const bool is_native = g->session->library || option_is(options, OPTION_ENGINE, "native", "native");
  scorer->engine = is_native || option_given(options, OPTION_RECOMPUTE)
                       ? session_engine(g->session, g->start.graph, g->start.weights)
                       : session_engine_again(g->session, g->start.graph, g->start.weights);
  if (!scorer->engine) return;
  const tfm_generate_model model = scorer_model(scorer);
  write_with(g, &model);
  engine_destroy(scorer->engine);
}

/* The incremental form under the interpreter. False: the model is not incremental, or another engine was asked for. */
static bool generate_by_steps(Generation *g) {
  Session *session = g->session;
  bool is_asked_for = !session->library && !option_given(&session->options, OPTION_RECOMPUTE) &&
                      !option_is(&session->options, OPTION_ENGINE, "native", "native");
  if (!is_asked_for) return false;
  const Incremental *parts = &session->derived->parts;
  Graph *reported = parts->step ? parts->step : graph_clone(session->arena, g->start.graph);
  if (!report_passes(session, reported, &session->derived->log)) return true;
  if (!parts->step || parts->n_ragged) return false; /* the interpreter has no groups of sources */
  StepScorer *steps = step_scorer_new(g->start.scorer, parts, g->start.weights);
  if (!steps) return true;
  const tfm_generate_model model = step_scorer_model(steps);
  write_with(g, &model);
  step_scorer_destroy(steps);
  return true;
}

static bool may_decode(const Session *session) {
  return !option_given(&session->options, OPTION_RECOMPUTE) &&
         (session->library || option_is(&session->options, OPTION_ENGINE, "native", "native"));
}

/* The decoder makes room for all beams at once. The number is clamped for that alone: the loop refuses one that is out
 * of range, with a message. */
static void generate(Generation *g) {
  Session *session = g->session;
  if (generate_by_steps(g)) return;
  NativeDecoder *decoder = NULL;
  if (may_decode(session)) decoder = native_decoder_create(engine_settings(session), g->start.graph, g->start.weights);
  if (diag_has_errors(&session->diag)) return;
  if (!decoder) {
    generate_anew(g);
    return;
  }
  int64_t beams = g->options.num_beams; /* the loop will say if there cannot be so many */
  beams = beams < 1 ? 1 : beams > TFM_MAX_BEAMS ? TFM_MAX_BEAMS : beams;
  const int64_t max_length = tfm_decoder_longest_row(&g->options, g->start.prompts.width);
  if (native_decoder_begin(decoder, g->start.scorer, g->start.prompts.n * beams, max_length)) {
    const tfm_generate_model model = native_decoder_model(decoder);
    write_with(g, &model);
  }
  native_decoder_destroy(decoder);
}

// ---- after ----

/* On stderr, since stdout has the tokens. The unit follows the time, so a small model does not take "0.000 s". */
static void say_speed(const Generation *g) {
  const Options *options = &g->session->options;
  if (option_given(options, OPTION_QUIET) || option_is(options, OPTION_DIAGNOSTICS, "text", "json")) return;
  const double seconds = g->seconds;
  const char *unit = seconds < 1e-3 ? "µs" : seconds < 1 ? "ms" : "s";
  const double scale = seconds < 1e-3 ? 1e6 : seconds < 1 ? 1e3 : 1;
  fprintf(stderr, "%" PRId64 " new tokens in %.*f %s", g->generated.n_tokens, scale == 1 ? 3 : 1, seconds * scale,
          unit);
  if (seconds > 0) fprintf(stderr, ", %.1f tokens/s", (double)g->generated.n_tokens / seconds);
  fputc('\n', stderr);
}

/* Nothing is written before everything is computed. */
static void finish(Generation *g) {
  if (wants_first_step(g)) {
    generation_output_probabilities(g->session, g->start.prompts.n, g->start.scorer->vocab, g->probabilities);
    return;
  }
  if (returned_outputs_compute(g->session, &g->start.returned, g->start.scorer, g->start.weights, &g->generated))
    generation_output_rows(g->session, &g->generated, &g->start.returned);
  if (!diag_has_errors(&g->session->diag)) say_speed(g);
}

void command_generate(Session *session) {
  if (!outputs_check_files(session)) return;
  Generation g = {.session = session};
  if (prepare(&g)) generate(&g);
  if (g.is_done) finish(&g);
  tfm_generated_free(&g.generated);
  generation_close(&g.start);
}
