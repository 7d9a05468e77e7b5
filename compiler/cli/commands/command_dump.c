/* tfmc dump and tfmc opt: what the compiler makes of a model, as text.
 *
 * In: a .tfm file, or for opt a graph in text form. Out: one stage of compilation (stages.def), or the graph after some
 * passes. Nothing is run. */
#include "aot/aot.h"
#include "cli/commands/commands.h"
#include "cli/shown.h"
#include "graph/stable_names.h"

// ---- tfmc dump ----

/* Only the main file: what it includes can be dumped by itself. */
static void print_ast(Session *session, StrBuf *text) {
  const ParsedProgram *program = model_parse(session);
  for (size_t i = 0; program && i < program->files.n; i++)
    if (program->files.items[i].is_main) ast_dump(text, session->arena, program->files.items[i].ast);
}

static void print_graph(const Session *session, StrBuf *text, Graph *graph) {
  if (session->names_of_nodes) graph_print_with_names(text, graph, session->names_of_nodes);
  else if (option_given(&session->options, OPTION_VERBOSE)) graph_print_with_origins(text, graph);
  else graph_print(text, graph);
}

/* What a pass changed can be read only if nodes keep their names. False after an error. */
static bool choose_names(Session *session) {
  const Options *options = &session->options;
  const bool is_diff = option_given(options, OPTION_DIFF);
  const bool is_stable = !option_is(options, OPTION_NAMES, "numbers", "numbers");
  if (is_diff && !option_given(options, OPTION_PRINT_AFTER))
    option_error(&session->diag, OPTION_DIFF, "it shows what a pass changed; --print-after says of which");
  else if (is_stable && option_given(options, OPTION_VERBOSE))
    option_error(&session->diag, OPTION_NAMES, "stable names say the module already: leave out --verbose");
  else if (is_diff || is_stable)
    session->names_of_nodes = stable_names_new(session->arena);
  return !diag_has_errors(&session->diag);
}

static void print_plan(Session *session, StrBuf *text, Graph *graph, enum StageForm form) {
  const Plan *plan = shown_plan(session, graph);
  if (!plan) return;
  if (form == FORM_PLAN) plan_print(text, plan);
  else code_text(&session->diag, plan, form == FORM_ASM, text);
}

static void print_stage(Session *session, StrBuf *text) {
  const StageInfo *stage = shown_stage(session);
  if (stage->form == FORM_AST) {
    if (option_given(&session->options, OPTION_REQUIRE_FUSION))
      option_error(&session->diag, OPTION_REQUIRE_FUSION, "--stage=ast has no graph in which something could be fused");
    print_ast(session, text);
    Graph *none = option_given(&session->options, OPTION_REPORT) ? model_load(session) : NULL;
    if (none) report_no_passes(session, none);
    return;
  }
  Graph *graph = shown_graph(session, stage);
  if (!graph) return;
  if (stage->form == FORM_GRAPH || stage->form == FORM_FUSED) print_graph(session, text, graph);
  else print_plan(session, text, graph, stage->form);
}

void command_dump(Session *session) {
  const char *output = option_text(&session->options, OPTION_OUTPUT, NULL);
  if (output && !session_check_output(session, output, &session->options.files.items[0], 1)) return;
  StrBuf text = strbuf_new(session->arena);
  if (!choose_names(session)) return;
  print_stage(session, &text);
  if (!diag_has_errors(&session->diag)) session_write(session, &text);
}

// ---- tfmc opt ----

enum { MAX_GRAPH_BYTES = 256 << 20 };

static Graph *read_graph(Session *session) {
  const char *path = session->options.files.items[0];
  StrBuf text = strbuf_new(session->arena);
  if (!session_read_text(session, path, MAX_GRAPH_BYTES, DIAG_GRAPH_SYNTAX, &text)) return NULL;
  Source *source = source_new(session->arena, session_text_name(path), text.text, (uint32_t)text.length);
  return graph_read(session->arena, &session->diag, source);
}

void command_opt(Session *session) {
  const char *output = option_text(&session->options, OPTION_OUTPUT, NULL);
  if (output && !session_check_output(session, output, &session->options.files.items[0], 1)) return;
  Graph *graph = choose_names(session) ? read_graph(session) : NULL;
  if (!graph || !graph_verify(graph, &session->diag) || !run_passes(session, graph)) return;
  StrBuf text = strbuf_new(session->arena);
  print_graph(session, &text, graph);
  session_write(session, &text);
}
