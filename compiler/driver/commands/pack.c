/* tfmc pack: the weights file of a library that was compiled before. */
#include <stdlib.h>

#include "codegen/codegen.h"
#include "driver/commands/commands.h"
#include "driver/packing.h"
#include "driver/passes_options.h"

/* Every instruction set has the same layout of weights, so that of the host does for a .tfm file. */
static const Plan *make_plan(Session *session, Graph *graph) {
  if (session->library) return plan_of_library(session, graph);
  return run_passes(session, graph) ? plan_for_library(session, graph, host_target()) : NULL;
}

static void pack(Session *session, Graph *graph, WeightSource *weights, const char *path) {
  const Plan *plan = make_plan(session, graph);
  char *packed = plan ? pack_in_memory(session, plan, weights) : NULL;
  if (packed && write_packed(session, plan, path, packed)) {
    session->wrote_output = true;
    StrBuf text = strbuf_new(session->arena);
    strbuf_printf(&text, "%s: %llu bytes of weights\n", path, (unsigned long long)plan->program.weights_bytes);
    if (!option_given(&session->options, OPTION_QUIET)) session_print(&text);
  }
  free(packed);
}

void command_pack(Session *session) {
  const char *file = session->options.files.items[0], *given = option_text(&session->options, OPTION_WEIGHTS, NULL);
  const char *path = option_text(&session->options, OPTION_OUTPUT, file_beside(session->arena, file, ".tfmw"));
  if (!given) {
    option_error(&session->diag, OPTION_WEIGHTS, "say which weights are to be packed");
    return;
  }
  if (!session_check_output(session, path, (const char *[]){file, given}, 2)) return;
  Graph *graph = model_load(session);
  WeightSource *weights = graph ? weight_source_open(session, graph) : NULL;
  if (weights) pack(session, graph, weights, path);
  weight_source_close(weights);
}
