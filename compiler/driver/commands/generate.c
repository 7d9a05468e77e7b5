/* tfmc generate: rows of tokens that a model writes, to a file or as JSON lines. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "driver/commands/commands.h"
#include "driver/engine_compiled.h"
#include "driver/generation_output.h"
#include "driver/generation_settings.h"
#include "driver/inputs.h"
#include "driver/native_decoder.h"
#include "driver/passes_options.h"
#include "driver/scorer_steps.h"

// ---- before ----

/* Outputs that the block does not name need not be computed; a library computes them all the same. Whole rows in place of
 * steps give the sums of their scores as the steps do; where there are no steps, here as in a library, the loop sums. */
static void keep_scores(Session *session, Graph *graph) {
  if (session->library) return;
  size_t i = 0;
  while (strcmp(graph->outputs.items[i].name, graph->generate_output) != 0) i++;
  graph->outputs.items[0] = graph->outputs.items[i];
  graph->outputs.n = 1;
  if (!option_given(&session->options, OPTION_RECOMPUTE)) return;
  if (incremental_derive(session->arena, &session->diag, graph, NULL).step) incremental_add_log_sum(graph);
}

static Graph *load_graph(Session *session) {
  Graph *graph = model_load(session);
  if (!graph) return NULL;
  if (graph->generate_input) {
    keep_scores(session, graph);
    return graph;
  }
  diag_error_at(&session->diag, session->options.files.items[0], DIAG_INPUT_DECLARATION,
                "the model %s has no generate block: `generate INPUT from OUTPUT { bos = 1  eos = 2 }`", graph->name);
  return NULL;
}

// ---- prompts ----

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

/* What the rows start with: the input that grows, or the start token. */
static bool make_prompts(Session *session, const Scorer *scorer, const GenerationSettings *settings,
                         tfm_prompts *prompts) {
  if (scorer->prompt) {
    read_prompt(session, scorer, settings->options.pad_token_id, prompts);
    return true;
  }
  if (settings->start == TFM_NO_TOKEN) {
    diag_error_at(&session->diag, "generate", DIAG_INPUT_MISSING,
                  "nothing to begin with: give the input \"%s\", or set `bos` (decoder_start_token_id)", scorer->grows);
    return false;
  }
  if (settings->start < 0 || settings->start > INT32_MAX) {
    diag_error_at(&session->diag, "generate", DIAG_INPUT_VALUE, "the start token %" PRId64 " does not exist",
                  settings->start);
    return false;
  }
  int32_t *tokens = ARENA_ARRAY(session->arena, int32_t, scorer->batch);
  for (int64_t i = 0; i < scorer->batch; i++) tokens[i] = (int32_t)settings->start;
  *prompts = (tfm_prompts){.n = scorer->batch, .width = 1, .tokens = tokens};
  return true;
}

// ---- the work ----

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static void say_speed(const Session *session, int64_t n_tokens, double seconds) {
  if (option_given(&session->options, OPTION_QUIET) || option_is(&session->options, OPTION_DIAGNOSTICS, "text", "json"))
    return;
  fprintf(stderr, "%" PRId64 " new tokens in %.3f s, %.1f tokens/s\n", n_tokens, seconds, (double)n_tokens / seconds);
}

/* The model's own errors were reported when they were met. */
static void report(Session *session, const tfm_error *error) {
  if (!diag_has_errors(&session->diag)) compiled_report(session, error);
}

static void write_first_step(Session *session, const tfm_generate_model *model, const tfm_prompts *prompts,
                             const tfm_generate_options *options) {
  tfm_error error;
  float *probabilities = ARENA_ARRAY(session->arena, float, prompts->n * model->vocab);
  if (tfm_generate_first_step(model, prompts, options, probabilities, &error) != TFM_OK) report(session, &error);
  else generation_output_probabilities(session, prompts->n, model->vocab, probabilities);
}

static void write_all(Session *session, const tfm_generate_model *model, const tfm_prompts *prompts,
                      const tfm_generate_options *options) {
  tfm_error error;
  tfm_generated generated;
  double begin = now();
  if (tfm_generate(model, prompts, options, &generated, &error) != TFM_OK) {
    report(session, &error);
    return;
  }
  double end = now();
  generation_output_rows(session, &generated);
  if (!diag_has_errors(&session->diag)) say_speed(session, generated.n_tokens, end - begin);
  tfm_generated_free(&generated);
}

static void write_with(Session *session, const tfm_generate_model *model, const tfm_prompts *prompts,
                       const tfm_generate_options *options) {
  if (option_given(&session->options, OPTION_FIRST_STEP_PROBABILITIES))
    write_first_step(session, model, prompts, options);
  else write_all(session, model, prompts, options);
}

/* Whole rows for each token. */
static void generate_anew(Session *session, Graph *graph, WeightSource *weights, Scorer *scorer,
                          const tfm_prompts *prompts, const tfm_generate_options *options) {
  scorer->engine = engine_create(session, graph, weights);
  if (!scorer->engine) return;
  const tfm_generate_model model = scorer_model(scorer);
  write_with(session, &model, prompts, options);
  engine_destroy(scorer->engine);
}

/* The interpreter with what earlier positions gave. False: the model is not incremental. */
static bool generate_by_steps(Session *session, const Graph *graph, WeightSource *weights, const Scorer *scorer,
                              const tfm_prompts *prompts, const tfm_generate_options *options) {
  bool is_asked_for = !session->library && !option_given(&session->options, OPTION_RECOMPUTE) &&
                      !option_is(&session->options, OPTION_ENGINE, "native", "native");
  if (!is_asked_for) return false;
  PassLog log = {.arena = session->arena};
  const Incremental parts = incremental_derive(session->arena, &session->diag, graph, &log);
  if (!report_passes(session, parts.step ? parts.step : graph_clone(session->arena, graph), &log)) return true;
  if (!parts.step) return false;
  StepScorer *steps = step_scorer_new(scorer, &parts, weights);
  if (!steps) return true;
  const tfm_generate_model model = step_scorer_model(steps);
  write_with(session, &model, prompts, options);
  step_scorer_destroy(steps);
  return true;
}

static bool may_decode(const Session *session) {
  return !option_given(&session->options, OPTION_RECOMPUTE) &&
         (session->library || option_is(&session->options, OPTION_ENGINE, "native", "native"));
}

static void generate(Session *session, Graph *graph, WeightSource *weights, Scorer *scorer) {
  GenerationSettings settings;
  tfm_prompts prompts;
  if (!generation_settings_read(session, graph, scorer->is_decoder, &settings) ||
      !generation_output_check_names(session, &settings.options) ||
      !make_prompts(session, scorer, &settings, &prompts))
    return;
  if (generate_by_steps(session, graph, weights, scorer, &prompts, &settings.options)) return;
  NativeDecoder *decoder = may_decode(session) ? native_decoder_create(session, graph, weights) : NULL;
  if (diag_has_errors(&session->diag)) return;
  if (!decoder) {
    generate_anew(session, graph, weights, scorer, &prompts, &settings.options);
    return;
  }
  int64_t beams = settings.options.num_beams; /* the loop will say if there cannot be so many */
  beams = beams < 1 ? 1 : beams > TFM_MAX_BEAMS ? TFM_MAX_BEAMS : beams;
  if (native_decoder_begin(decoder, scorer, prompts.n * beams, tfm_decoder_longest_row(&settings.options, prompts.width))) {
    const tfm_generate_model model = native_decoder_model(decoder);
    write_with(session, &model, &prompts, &settings.options);
  }
  native_decoder_destroy(decoder);
}

void command_generate(Session *session) {
  if (!generation_output_check_files(session)) return;
  Graph *graph = load_graph(session);
  WeightSource *weights = graph ? weight_source_open(session, graph) : NULL;
  const EvalInputs *inputs = weights ? inputs_load_except(session, graph, graph->generate_input) : NULL;
  Scorer *scorer = inputs ? scorer_new(session, graph, inputs) : NULL;
  if (scorer) generate(session, graph, weights, scorer);
  scorer_destroy(scorer);
  weight_source_close(weights);
}
