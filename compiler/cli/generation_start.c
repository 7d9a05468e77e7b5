/* What a generation begins with: the model, its weights and its inputs are read, and prompts made of inputs and
 * settings. In and out, and what is refused: generation_start.h. */
#include "cli/generation_start.h"

#include <inttypes.h>
#include <string.h>

#include "cli/cli_inputs.h"
#include "cli/cli_model.h"

/* Only the output that the block names is computed, unless --return-output wants others later; a library computes all
 * of its outputs. */
static void keep_logits(Session *session, Graph *graph) {
  if (session->library) return;
  size_t i = 0;
  while (strcmp(graph->outputs.items[i].name, graph->generate_output) != 0) i++;
  graph->outputs.items[0] = graph->outputs.items[i];
  graph->outputs.n = 1;
}

/* The incremental form is derived once for the whole command, when it is known in which types the weights are kept.
 * With --recompute the whole model gives the logsumexp as the program of a step does, so log probabilities have the
 * bits of steps by the interpreter (a decoder sums in parts of its own); where there are no steps, the loop sums, here
 * as in a library. */
static void derive(GenerationStart *g) {
  Session *session = g->session;
  Graph *graph = g->graph;
  if (session->library) return;
  if (g->returned.graph) weight_set_note_types(g->weights->set, graph);
  const CompileRequest request = compile_request(session, NULL);
  session->derived = compile_derive(&request, graph);
  if (option_given(&session->options, OPTION_RECOMPUTE) && session->derived->parts.step)
    incremental_add_logsumexp(graph);
}

/* The outputs for --return-output are read from the whole graph, before the others are cut off. */
static bool load_graph(GenerationStart *g) {
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
bool generation_load(Session *session, GenerationStart *g) {
  *g = (GenerationStart){.session = session};
  if (!load_graph(g)) return false;
  g->weights = session_weights(session, g->returned.graph ? g->returned.graph : g->graph);
  if (g->weights) derive(g);
  const EvalInputs *inputs = g->weights ? inputs_load_except(session, g->graph, g->graph->generate_input) : NULL;
  g->scorer = inputs ? scorer_new(engine_settings(session), g->graph, inputs) : NULL;
  return g->scorer;
}

void generation_close(GenerationStart *g) {
  scorer_destroy(g->scorer);
  weight_source_close(g->weights);
}

// ---- the start: prompts ----

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

bool generation_make_prompts(GenerationStart *g, const GenerationSettings *settings) {
  Session *session = g->session;
  const Scorer *scorer = g->scorer;
  const int64_t start = settings->start;
  if (scorer->prompt) {
    read_prompt(session, scorer, settings->options.pad_token_id, &g->prompts);
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
