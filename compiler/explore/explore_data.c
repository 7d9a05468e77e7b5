/* In: a model and a request. Out: its programs through passes and plans, and the JSON of all. See explore.h. */
#include <string.h>

#include "explore/code_data.h"
#include "explore/explorer.h"
#include "explore/map_data.h"

enum { MOST_OPERATIONS = 20000 };

// ---- programs ----

static bool keep_log(void *context, Graph *graph, const PassLog *log) {
  (void)graph;
  *(PassLog *)context = *log;
  return true;
}

static uint32_t operations_of(Arena *arena, const Graph *graph) {
  const bool *is_static = graph_static_flags(arena, graph);
  uint32_t n = 0;
  for (const Node *node = graph->first; node; node = node->next) n += !is_static[node->id];
  return n;
}

/* A page of more would be one that nobody can open. */
bool explorer_is_small(Arena *arena, const Graph *graph) { return operations_of(arena, graph) <= MOST_OPERATIONS; }

static bool is_small_enough(const Explorer *x, const Graph *graph) {
  const uint32_t n = operations_of(x->arena, graph);
  if (n <= MOST_OPERATIONS) return true;
  diag_error_at(x->request->compile.diag, NULL, DIAG_LIMIT,
                "the model has %u operations, more than the %d that a page can hold; `tfmc dump` prints them", n,
                MOST_OPERATIONS);
  return false;
}

ExploredProgram *explorer_add_program(Explorer *x, const char *name, Graph *graph, const Derivation *derived) {
  graph_renumber(graph);
  if (!is_small_enough(x, graph)) return NULL;
  ExploredProgram program = {.name = name, .graph = graph, .written = graph_clone(x->arena, graph)};
  program.tracks = tracks_new(x->arena, graph);
  CompileRequest request = x->request->compile;
  request.report = keep_log;
  request.report_context = &program.log;
  request.passes.observer = &program.tracks->observer;
  if (!compile_fuse(&request, graph, derived)) return NULL;
  vec_push(x->arena, &x->programs, program);
  return &x->programs.items[x->programs.n - 1];
}

static const Plan *plan_of(const LibraryPlans *plans, const char *name) {
  if (strcmp(name, "whole") == 0) return plans->forward;
  return strcmp(name, "step") == 0 ? plans->decoding->step : plans->decoding->encoder;
}

/* The model, and its incremental form if it has one. */
static bool add_model(Explorer *x, Graph *graph) {
  CompileRequest request = x->request->compile;
  request.target = x->request->targets[0];
  Derivation *derived = compile_derive(&request, graph);
  LibraryPlans plans;
  if (!explorer_add_program(x, "whole", graph, derived)) return false;
  if (derived->parts.encoder && !explorer_add_program(x, "encoder", derived->parts.encoder, NULL)) return false;
  if (derived->parts.step && !explorer_add_program(x, "step", derived->parts.step, NULL)) return false;
  if (!compile_plans(&request, graph, &derived->parts, &plans)) return false;
  for (size_t i = 0; i < x->programs.n; i++) x->programs.items[i].plan = plan_of(&plans, x->programs.items[i].name);
  return true;
}

static bool add_gradients(Explorer *x) {
  const CompileRequest *request = &x->request->compile;
  if (!x->request->objective) return true;
  const TrainGraphs *graphs = train_graphs(x->arena, request->diag, x->request->objective, true);
  ExploredProgram *program = graphs ? explorer_add_program(x, "gradients", graphs->gradients, NULL) : NULL;
  if (program) program->plan = plan_graph(x->arena, request->diag, graphs->gradients, x->request->targets[0]);
  return program && program->plan;
}

// ---- the whole ----

static json_t *checks_of(Explorer *x) {
  const Graph *graph = x->programs.items[0].written;
  json_t *list = json_array();
  for (size_t i = 0; i < graph->checks.n; i++) {
    const Check *check = &graph->checks.items[i];
    StrBuf condition = strbuf_new(x->arena), text = strbuf_new(x->arena);
    cond_print(&condition, graph->sizes, check->condition);
    for (size_t k = 0; k < check->message.n; k++) {
      strbuf_add(&text, check->message.items[k].text ? check->message.items[k].text : "");
      if (check->message.items[k].size) size_print(&text, graph->sizes, check->message.items[k].size);
    }
    json_array_append_new(list, json_pack("{s:o, s:s, s:o}", "text", explorer_text(x, text.text), "condition",
                                          condition.text, "line", explorer_place(x, origin_place(&check->origin))));
  }
  return list;
}

Probe explorer_machine(const TargetInfo *target, int32_t threads) {
  const double clock = 2.5e9, of_memory = 1e10, most_of_memory = 4e10;
  const double flops = 4.0 * target->vector_floats * clock * threads, bytes = of_memory * threads;
  return (Probe){flops, (target->dot_bytes ? 4 : 2) * flops, bytes < most_of_memory ? bytes : most_of_memory};
}

static json_t *machine_of(const ExploreRequest *request) {
  const TargetInfo *target = request->targets[0];
  const Probe most = explorer_machine(target, request->threads);
  return json_pack("{s:f, s:f, s:f, s:i, s:s, s:b}", "flop_per_second", most.flops, "int8_flop_per_second", most.whole,
                   "bytes_per_second", most.bytes, "threads", request->threads, "isa", target->name, "measured", 0);
}

static json_t *all_data(Explorer *x) {
  json_t *programs = json_array(), *blocks = json_array(), *notes = json_array();
  for (uint32_t i = 0; i < x->programs.n; i++) json_array_append_new(programs, explorer_program(x, i));
  const bool is_whole = !x->request->is_for_comparison;
  json_t *kernels = explorer_kernels(x, programs, blocks, notes);
  json_t *maps = is_whole ? explorer_maps(x, programs, notes) : json_array();
  json_t *checks = checks_of(x), *fusions = explorer_fusions(x), *passes = explorer_passes(x);
  json_t *files = explorer_files(x); /* last: which lines are referred to is known now */
  if (!kernels) return NULL;
  return json_pack("{s:s, s:i, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "format",
                   "tfmc-explore", "version", 1, "tfmc", x->request->version, "model",
                   explorer_text(x, x->programs.items[0].graph->name), "command",
                   explorer_text(x, x->request->command), "files", files, "modules", x->module_list, "checks", checks,
                   "formulas", x->formula_list, "programs", programs, "fusions", fusions, "passes", passes, "kernels",
                   kernels, "machine", machine_of(x->request), "maps", maps, "notes", notes, "blocks", blocks);
}

/* The files of the model come first, the main one before all, as it is what people look at. */
static void note_files(Explorer *x) {
  const ParsedProgram *program = x->request->program;
  for (int pass = 0; pass < 2; pass++)
    for (size_t i = 0; i < program->files.n; i++)
      if (program->files.items[i].is_main == (pass == 0))
        json_decref(explorer_place(x, (SrcSpan){.source = program->files.items[i].source}));
}

json_t *explore_data(const ExploreRequest *request, Graph *graph) {
  Arena *arena = request->compile.arena;
  Explorer x = {.arena = arena, .request = request, .formulas = map_new(arena), .modules = map_new(arena),
                .formula_list = json_array(), .module_list = json_array()};
  note_files(&x);
  explorer_module(&x, "");
  explorer_note_modules(&x, graph);
  return add_model(&x, graph) && add_gradients(&x) ? all_data(&x) : NULL;
}
