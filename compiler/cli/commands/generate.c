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
#include "cli/generation_settings.h"
#include "cli/inputs.h"
#include "cli/model.h"
#include "cli/outputs.h"
#include "engines/native_decoder.h"
#include "engines/scorer_steps.h"

typedef struct Generation {
  Session *session;
  Graph *graph; /* its first output: the logits */
  ReturnedOutputs returned;
  WeightSource *weights;
  Scorer *scorer;
  tfm_prompts prompts;
  tfm_generate_options options;
  tfm_generated generated; /* what was written; or, with --first-step-probabilities, these: */
  float *probabilities;
  double seconds;
  bool is_done;
} Generation;

// ---- before ----

/* Only the output that the block names is computed, unless --return-output wants others later; a library computes all
 * of its outputs. With --recompute the whole model gives the logsumexp as the steps would, so that the log
 * probabilities have the same bits; where there are no steps, the loop sums, here as in a library. The incremental
 * form is derived here, once for the whole command. */
static void keep_logits(Session *session, Graph *graph) {
  if (session->library) return;
  size_t i = 0;
  while (strcmp(graph->outputs.items[i].name, graph->generate_output) != 0) i++;
  graph->outputs.items[0] = graph->outputs.items[i];
  graph->outputs.n = 1;
  const CompileRequest request = compile_request(session, NULL);
  session->derived = compile_derive(&request, graph);
  if (option_given(&session->options, OPTION_RECOMPUTE) && session->derived->parts.step)
    incremental_add_logsumexp(graph);
}

/* The outputs for --return-output are read from the whole graph, before the others are cut off. */
static bool load_graph(Generation *g) {
  Session *session = g->session;
  g->graph = model_load(session);
  if (!g->graph) return false;
  if (!g->graph->generate_input) {
    diag_error_at(&session->diag, session->options.files.items[0], DIAG_INPUT_DECLARATION,
                  "the model %s has no generate block: `generate INPUT from OUTPUT { bos = 1  eos = 2 }`",
                  g->graph->name);
    return false;
  }
  if (!returned_outputs_read(session, g->graph, &g->returned)) return false;
  keep_logits(session, g->graph);
  return true;
}

/* Outputs that are returned may need weights that the logits do not, so weights are opened for the graph with all
 * outputs. */
static bool load(Generation *g) {
  Session *session = g->session;
  if (!load_graph(g)) return false;
  g->weights = session_weights(session, g->returned.graph ? g->returned.graph : g->graph);
  const EvalInputs *inputs = g->weights ? inputs_load_except(session, g->graph, g->graph->generate_input) : NULL;
  g->scorer = inputs ? scorer_new(engine_settings(session), g->graph, inputs) : NULL;
  return g->scorer;
}

// ---- prompts ----

/* Padding at the beginning of a decoder-only row is skipped, as other libraries do; the runtime checks lengths, so
 * those out of range are passed on as they are. */
static void read_prompt(Session *session, const Scorer *scorer, int64_t pad, tfm_prompts *prompts) {
  const Tensor *prompt = scorer->prompt, *given = scorer->prompt_lengths;
  int64_t n = prompt->dims[0], width = prompt->dims[1];
  int64_t *lengths = ARENA_ARRAY(session->arena, int64_t, n), *padding = ARENA_ARRAY(session->arena, int64_t, n);
  for (int64_t i = 0; i < n; i++) {
    lengths[i] = given ? ((const int32_t *)given->data)[i] : width;
    bool is_padded = scorer->is_decoder && lengths[i] >= 0 && lengths[i] <= width;
    if (is_padded) padding[i] = tfm_prompt_padding((const int32_t *)prompt->data + i * width, lengths[i], pad);
  }
  *prompts = (tfm_prompts){n, width, prompt->data, lengths, padding};
}

/* What the rows begin with: the decoder input if it was given, else the start token. */
static bool make_prompts(Generation *g, int64_t start) {
  Session *session = g->session;
  const Scorer *scorer = g->scorer;
  if (scorer->prompt) {
    read_prompt(session, scorer, g->options.pad_token_id, &g->prompts);
    return true;
  }
  if (start == TFM_NO_TOKEN) {
    diag_error_at(&session->diag, "generate", DIAG_INPUT_MISSING,
                  "there is nothing to begin with: give the input \"%s\", or set `bos` (decoder_start_token_id)",
                  scorer->decoder_input);
    return false;
  }
  if (start < 0 || start > INT32_MAX) {
    diag_error_at(&session->diag, "generate", DIAG_INPUT_VALUE, "the start token %" PRId64 " does not exist", start);
    return false;
  }
  int32_t *tokens = ARENA_ARRAY(session->arena, int32_t, scorer->batch);
  for (int64_t i = 0; i < scorer->batch; i++) tokens[i] = (int32_t)start;
  g->prompts = (tfm_prompts){.n = scorer->batch, .width = 1, .tokens = tokens};
  return true;
}

/* Everything that can be refused is refused here, before anything is compiled for generation. */
static bool prepare(Generation *g) {
  GenerationSettings settings;
  if (!load(g) || !generation_settings_read(g->session, g->graph, g->scorer->is_decoder, &settings)) return false;
  g->options = settings.options;
  return generation_output_check_names(g->session, &g->options, &g->returned) && make_prompts(g, settings.start) &&
         returned_outputs_place(g->session, &g->returned, g->prompts.n == 1 && g->options.num_return_sequences == 1);
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
  g->probabilities = ARENA_ARRAY(g->session->arena, float, g->prompts.n * model->vocab);
  return tfm_generate_first_step(model, &g->prompts, &g->options, g->probabilities, error);
}

/* The tokens that a message about the decoder input names need not be the user's: the model may have chosen them. */
static void note_tokens(Generation *g) {
  Diag *diag = &g->session->diag;
  const DiagMessage *newest = &diag->messages.items[diag->messages.n - 1];
  const char *named = arena_printf(g->session->arena, "\"%s\"[", g->scorer->decoder_input);
  if (newest->code == DIAG_INPUT_VALUE && strstr(newest->text, named))
    diag_note(diag, NO_SPAN, "in generation \"%s\" is what a row begins with, then the tokens that were chosen for it",
              g->scorer->decoder_input);
}

/* Errors of the model were reported when they were met; those of the loop are reported here. */
static void write_with(Generation *g, const tfm_generate_model *model) {
  tfm_error error;
  double begin = now();
  tfm_status status = wants_first_step(g) ? write_first_step(g, model, &error)
                                          : tfm_generate(model, &g->prompts, &g->options, &g->generated, &error);
  g->seconds = now() - begin;
  g->is_done = status == TFM_OK;
  if (g->is_done) return;
  if (!diag_has_errors(&g->session->diag)) report_runtime_error(&g->session->diag, &error);
  note_tokens(g);
}

/* Whole rows for each token. Under the interpreter the model has been reported, unless --recompute kept
 * generate_by_steps from it. */
static void generate_anew(Generation *g) {
  const Options *options = &g->session->options;
  const bool is_native = g->session->library || option_is(options, OPTION_ENGINE, "native", "native");
  g->scorer->engine = is_native || option_given(options, OPTION_RECOMPUTE)
                          ? session_engine(g->session, g->graph, g->weights)
                          : session_engine_again(g->session, g->graph, g->weights);
  if (!g->scorer->engine) return;
  const tfm_generate_model model = scorer_model(g->scorer);
  write_with(g, &model);
  engine_destroy(g->scorer->engine);
}

/* The incremental form under the interpreter. False: the model is not incremental, or another engine was asked for. */
static bool generate_by_steps(Generation *g) {
  Session *session = g->session;
  bool is_asked_for = !session->library && !option_given(&session->options, OPTION_RECOMPUTE) &&
                      !option_is(&session->options, OPTION_ENGINE, "native", "native");
  if (!is_asked_for) return false;
  const Incremental *parts = &session->derived->parts;
  Graph *reported = parts->step ? parts->step : graph_clone(session->arena, g->graph);
  if (!report_passes(session, reported, &session->derived->log)) return true;
  if (!parts->step || parts->n_ragged) return false; /* the interpreter has no groups of sources */
  StepScorer *steps = step_scorer_new(g->scorer, parts, g->weights);
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
  if (may_decode(session)) decoder = native_decoder_create(engine_settings(session), g->graph, g->weights);
  if (diag_has_errors(&session->diag)) return;
  if (!decoder) {
    generate_anew(g);
    return;
  }
  int64_t beams = g->options.num_beams; /* the loop will say if there cannot be so many */
  beams = beams < 1 ? 1 : beams > TFM_MAX_BEAMS ? TFM_MAX_BEAMS : beams;
  const int64_t max_length = tfm_decoder_longest_row(&g->options, g->prompts.width);
  if (native_decoder_begin(decoder, g->scorer, g->prompts.n * beams, max_length)) {
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
    generation_output_probabilities(g->session, g->prompts.n, g->scorer->vocab, g->probabilities);
    return;
  }
  if (returned_outputs_compute(g->session, &g->returned, g->scorer, g->weights, &g->generated))
    generation_output_rows(g->session, &g->generated, &g->returned);
  if (!diag_has_errors(&g->session->diag)) say_speed(g);
}

void command_generate(Session *session) {
  if (!outputs_check_files(session)) return;
  Generation g = {.session = session};
  if (prepare(&g)) generate(&g);
  if (g.is_done) finish(&g);
  tfm_generated_free(&g.generated);
  scorer_destroy(g.scorer);
  weight_source_close(g.weights);
}
