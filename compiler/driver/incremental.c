#include "driver/incremental.h"

#include "aot/model_text.h"
#include "driver/passes_options.h"

/* What is printed or written between passes is of the model itself. */
static bool run_passes_on(Session *session, Graph *graph) {
  PassOptions options = session->library ? session->model->passes : passes_options(&session->options);
  options.print_to = NULL;
  options.dump_dir = NULL;
  return !graph || passes_run(graph, &session->diag, &options, NULL);
}

bool make_incremental(Session *session, const Graph *graph, Incremental *made) {
  *made = (Incremental){0};
  if (!graph->generate_input) return true;
  *made = incremental_derive(session->arena, &session->diag, graph, NULL);
  return run_passes_on(session, made->source) && run_passes_on(session, made->step);
}
