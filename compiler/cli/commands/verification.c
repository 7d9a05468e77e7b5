/* What the ways of tfmc verify share.
 *
 * In: a model, an engine or its kind; two tensors. Out: what the engine computes; whether the tensors agree, printed or
 * reported. Refuses packed weights where tensors are needed by name. See verification.h. */
#include "cli/commands/verification.h"

#include <string.h>

#include "cli/agreement.h"
#include "cli/cli_model.h"
#include "cli/commands/commands.h"
#include "engines/engine.h"

/* The outputs are copied before the engine goes, whose memory they are in. `engine` NULL, and NULL: an error. */
Tensor *verification_outputs(const Verification *v, Engine *engine, size_t n) {
  Session *session = v->session;
  Tensor *outputs = ARENA_ARRAY(session->arena, Tensor, n);
  bool done = engine && engine_run(engine, session->arena, v->inputs, outputs);
  for (size_t i = 0; done && i < n; i++)
    outputs[i].data = arena_copy(session->arena, outputs[i].data,
                                 (size_t)tensor_elements(&outputs[i]) * dtype_bytes[outputs[i].dtype]);
  engine_destroy(engine);
  return done ? outputs : NULL;
}

/* Every engine gets a copy of the graph, since it rewrites what it is given. `kind` NULL: the engine that the command
 * line chose. NULL after an error. */
Tensor *verification_compute(const Verification *v, const EngineKind *kind) {
  Session *session = v->session;
  Graph *graph = graph_clone(session->arena, v->graph);
  Engine *engine =
      kind ? session_engine_of(session, kind, graph, v->weights) : session_engine(session, graph, v->weights);
  return verification_outputs(v, engine, v->graph->outputs.n);
}

static void print_agreement(Session *session, const char *name, const Tensor *got, const Difference *difference) {
  StrBuf text = strbuf_new(session->arena);
  strbuf_printf(&text, "%s: %lld elements agree; the largest difference is %.3g, the largest expected value %.6g\n",
                name, (long long)tensor_elements(got), difference->worst, difference->largest);
  session_print(&text);
  if (difference_is_unseen(&session->options, difference))
    diag_warning_at(&session->diag, name, DIAG_TOLERANCE_WIDE,
                    "the values are at most %.3g, and %.3g would be allowed: set --atol", difference->largest,
                    difference->allowed.absolute);
}

static void report_difference(Session *session, const char *name, const Tensor *got, const Tensor *wanted,
                              const Difference *difference) {
  StrBuf text = strbuf_new(session->arena), allowed = strbuf_new(session->arena);
  difference_print(&text, difference, got, wanted);
  diag_error_at(&session->diag, name, DIAG_DIFFERENCE, "%s", text.text);
  if (tolerance_print(&allowed, &session->options, difference, wanted))
    diag_note(&session->diag, NO_SPAN, "%s", allowed.text);
}

/* Prints or reports how an output compares. True if they agree. */
bool verification_compare(const Verification *v, const char *name, const Tensor *got, const Tensor *wanted,
                    Difference *difference) {
  bool agree = tensors_agree(&v->session->options, got, wanted, difference);
  if (agree) print_agreement(v->session, name, got, difference);
  else report_difference(v->session, name, got, wanted, difference);
  return agree;
}

/* Packed weights are no tensors by name. */
bool verification_has_tensors(const Verification *v, const char *who) {
  if (v->weights->is_packed)
    option_error(&v->session->diag, OPTION_WEIGHTS, "%s needs the file that the library's weights were made from", who);
  return !v->weights->is_packed;
}
