/* tfmc pack: the weights file of a library that was compiled before. */
#include <stdlib.h>

#include "codegen/codegen.h"
#include "driver/commands/commands.h"
#include "driver/passes_options.h"

/* Every instruction set has the same layout of weights, so that of the host does for a .tfm file. */
static bool make_plans(Session *session, Graph *graph, LibraryPlans *plans) {
  LibraryModel model;
  CompileRequest request = compile_request(session, NULL);
  if (session->library) return plans_of_library(session, graph, plans);
  request.target = host_target();
  return make_library_model(session, graph, &model) && library_model_plan(&request, &model, plans);
}

static void pack(Session *session, Graph *graph, WeightSource *weights, const char *path) {
  LibraryPlans plans;
  const CompileRequest request = compile_request(session, weights);
  char *packed = make_plans(session, graph, &plans) ? compile_pack(&request, &plans) : NULL;
  if (packed && library_write_weights(&request, &plans, path, packed)) {
    session->wrote_output = true;
    StrBuf text = strbuf_new(session->arena);
    strbuf_printf(&text, "%s: %llu bytes of weights\n", path, (unsigned long long)plans.forward->program.weights_bytes);
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
  WeightSource *weights = graph ? session_weights(session, graph) : NULL;
  if (weights) pack(session, graph, weights, path);
  weight_source_close(weights);
}
