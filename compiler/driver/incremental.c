#include "driver/incremental.h"

#include "aot/description.h"
#include "driver/passes_options.h"

/* What is printed or written between passes is of the model itself. */
static bool run_passes_on(Session *session, Graph *graph, PassLog *log) {
  PassOptions options = session->library ? session->model->passes : passes_options(&session->options);
  options.print_to = NULL;
  options.dump_dir = NULL;
  return !graph || passes_run(graph, &session->diag, &options, log);
}

/* What writes is the step: its fusions are reported in place of the model's. */
bool make_incremental(Session *session, const Graph *graph, Incremental *made) {
  PassLog log = {.arena = session->arena};
  *made = (Incremental){0};
  if (!graph->generate_input) return true;
  *made = incremental_derive(session->arena, &session->diag, graph, &log);
  if (!run_passes_on(session, made->source, NULL) || !run_passes_on(session, made->step, &log)) return false;
  return session->options.verb != VERB_GENERATE || !made->step || report_passes(session, made->step, &log);
}
