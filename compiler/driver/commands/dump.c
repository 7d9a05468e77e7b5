/* tfmc dump: one stage of compilation as text. */
#include "aot/aot.h"
#include "driver/commands/commands.h"
#include "driver/host.h"
#include "driver/model.h"
#include "driver/passes_options.h"
#include "graph/uniform.h"
#include "plan/plan.h"

static const StageInfo *stage_of(const Options *options) {
  const StageInfo *stage = stage_table;
  while (!option_is(options, OPTION_STAGE, "graph", stage->name)) stage++;
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

/* What comes after the passes; of ragged sizes what is run for each item. */
static void print_plan(Session *session, StrBuf *text, Graph *graph, enum StageForm form) {
  graph_make_uniform(graph);
  const TargetInfo *target = host_choose_target(session, false);
  const Plan *plan = target ? plan_graph(session->arena, &session->diag, graph, target) : NULL;
  if (!plan) return;
  if (form == FORM_PLAN) plan_print(text, plan);
  else code_text(&session->diag, plan, form == FORM_ASM, text);
}

static void refuse_part(Session *session, const Incremental *parts) {
  if (parts->step) {
    diag_error_at(&session->diag, "dump", DIAG_REQUIRED_FUSION, "a step reads nothing that depends on other inputs alone");
    return;
  }
  diag_error(&session->diag, parts->origin.span, DIAG_REQUIRED_FUSION, "the model is not incremental: %s", parts->reason);
  for (const Frame *frame = parts->origin.frame; frame; frame = frame->caller)
    diag_note(&session->diag, frame->span, "in %s, called here", frame->name);
}

/* A part of the incremental form; NULL if there is none, with an error. */
static Graph *find_part(Session *session, const Graph *graph, const StageInfo *stage) {
  const CompileRequest request = compile_request(session, NULL);
  const Derivation *derived = compile_derive(&request, graph);
  Graph *part = stage->part == PART_ENCODER ? derived->parts.source : derived->parts.step;
  if (stage->form == FORM_GRAPH && option_given(&session->options, OPTION_REPORT)) {
    StrBuf report = strbuf_new(session->arena);
    passes_report(&report, part ? part : graph_clone(session->arena, graph), &derived->log);
    session_print(&report);
  }
  if (!part) refuse_part(session, &derived->parts);
  return part;
}

static void print_stage(Session *session, StrBuf *text) {
  const StageInfo *stage = stage_of(&session->options);
  if (stage->form == FORM_AST) {
    print_ast(session, text);
    return;
  }
  Graph *graph = model_load(session);
  if (graph && stage->part != PART_MODEL) graph = find_part(session, graph, stage);
  if (!graph || (stage->form != FORM_GRAPH && !run_passes(session, graph))) return;
  if (stage->form == FORM_GRAPH || stage->form == FORM_FUSED) print_graph(session, text, graph);
  else print_plan(session, text, graph, stage->form);
}

void command_dump(Session *session) {
  const char *output = option_text(&session->options, OPTION_OUTPUT, NULL);
  if (output && !session_check_output(session, output, &session->options.files.items[0], 1)) return;
  StrBuf text = strbuf_new(session->arena);
  print_stage(session, &text);
  if (!diag_has_errors(&session->diag)) session_write(session, &text);
}
