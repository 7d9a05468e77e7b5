/* In: the graph of a model. Out: the graphs that are computed, fused: the model itself and its incremental form. */
#include <string.h>

#include "compile/compile.h"

Derivation *compile_derive(const CompileRequest *request, const Graph *graph) {
  Derivation *derived = ARENA_NEW(request->arena, Derivation);
  derived->log.arena = request->arena;
  if (graph->generate_input) derived->parts = incremental_derive(request->arena, request->diag, graph, &derived->log);
  return derived;
}

/* A log that can grow without changing the one it begins with. */
static PassLog log_after(const CompileRequest *request, const Derivation *derived) {
  PassLog log = {.arena = request->arena};
  for (size_t i = 0; derived && i < derived->log.records.n; i++)
    vec_push(log.arena, &log.records, derived->log.records.items[i]);
  return log;
}

static bool run_passes(const CompileRequest *request, Graph *graph, const PassOptions *options,
                       const Derivation *derived, bool is_reported) {
  if (!request->report || !is_reported) return passes_run(graph, request->diag, options, NULL);
  PassLog log = log_after(request, derived);
  return passes_run(graph, request->diag, options, &log) && request->report(request->report_context, graph, &log);
}

bool compile_fuse(const CompileRequest *request, Graph *graph, const Derivation *derived) {
  return run_passes(request, graph, &request->passes, derived, true);
}

bool compile_fuse_parts(const CompileRequest *request, Derivation *derived, bool is_reported) {
  const Incremental *parts = &derived->parts;
  PassOptions options = request->passes;
  options.print_to = NULL; /* what is printed or written between passes is of the model itself */
  options.dump_dir = NULL;
  if (parts->source && !run_passes(request, parts->source, &options, NULL, false)) return false;
  return !parts->step || run_passes(request, parts->step, &options, derived, is_reported);
}
