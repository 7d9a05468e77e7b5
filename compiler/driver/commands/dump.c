/* tfmc dump: one stage of compilation as text. */
#include "aot/code_text.h"
#include "driver/commands/commands.h"
#include "driver/host.h"
#include "driver/model.h"
#include "driver/passes_options.h"
#include "passes/incremental.h"
#include "plan/plan.h"

typedef enum Stage { STAGE_GRAPH, STAGE_SOURCE, STAGE_STEP, STAGE_FUSED, STAGE_PLAN, STAGE_LLVM, STAGE_ASM } Stage;

static Stage stage_of(const Options *options) {
  static const char *const names[] = {"graph", "source", "step", "fused", "plan", "llvm", "asm"};
  Stage stage = STAGE_GRAPH;
  while (!option_is(options, OPTION_STAGE, "graph", names[stage])) stage++;
  return stage;
}

static void print_ast(Session *session, StrBuf *text) {
  const ParsedProgram *program = model_parse(session);
  for (size_t i = 0; program && i < program->files.n; i++)
    if (program->files.items[i].is_main) ast_dump(text, session->arena, program->files.items[i].ast);
}

static void print_graph(const Session *session, StrBuf *text, Graph *graph) {
  if (option_given(&session->options, OPTION_VERBOSE)) graph_print_with_origins(text, graph);
  else graph_print(text, graph);
}

/* What comes after the passes. */
static void print_plan(Session *session, StrBuf *text, Graph *graph, Stage stage) {
  const TargetInfo *target = host_choose_target(session, false);
  const Plan *plan = target ? plan_graph(session->arena, &session->diag, graph, target) : NULL;
  if (!plan) return;
  if (stage == STAGE_PLAN) plan_print(text, plan);
  else code_text(&session->diag, plan, stage == STAGE_ASM, text);
}

/* The parts of the incremental form, not yet fused. */
static void print_part(Session *session, StrBuf *text, const Graph *graph, Stage stage) {
  PassLog log = {.arena = session->arena};
  const Incremental parts = incremental_derive(session->arena, &session->diag, graph, &log);
  Graph *part = stage == STAGE_SOURCE ? parts.source : parts.step;
  if (option_given(&session->options, OPTION_REPORT)) {
    StrBuf report = strbuf_new(session->arena);
    passes_report(&report, part ? part : graph_clone(session->arena, graph), &log);
    session_print(&report);
  }
  if (part) print_graph(session, text, part);
  else if (parts.step) diag_error_at(&session->diag, "dump", DIAG_REQUIRED_FUSION, "a step reads nothing that depends on other inputs alone");
  else diag_error(&session->diag, parts.origin.span, DIAG_REQUIRED_FUSION, "the model is not incremental: %s", parts.reason);
}

static void print_stage(Session *session, StrBuf *text) {
  Stage stage = stage_of(&session->options);
  Graph *graph = model_load(session);
  if (graph && (stage == STAGE_SOURCE || stage == STAGE_STEP)) {
    print_part(session, text, graph, stage);
    return;
  }
  if (!graph || (stage != STAGE_GRAPH && !run_passes(session, graph))) return;
  if (stage <= STAGE_FUSED) print_graph(session, text, graph);
  else print_plan(session, text, graph, stage);
}

void command_dump(Session *session) {
  const char *output = option_text(&session->options, OPTION_OUTPUT, NULL);
  if (output && !session_check_output(session, output, &session->options.files.items[0], 1)) return;
  StrBuf text = strbuf_new(session->arena);
  if (option_is(&session->options, OPTION_STAGE, "graph", "ast")) print_ast(session, &text);
  else print_stage(session, &text);
  if (!diag_has_errors(&session->diag)) session_write(session, &text);
}
