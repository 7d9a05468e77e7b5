/* tfmc dump, tfmc opt and tfmc graph: what the compiler makes of a model, as text or as a picture.
 *
 * In: a .tfm file, or for opt a graph in text form. Out: one stage of compilation (stages.def), the graph after some
 * passes, or a drawing of the model with its modules as boxes. Nothing is run. */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "aot/aot.h"
#include "cli/commands/commands.h"
#include "cli/model.h"
#include "graph/graph.h"
#include "plan/plan.h"
#include "train/graphs.h"
#include "weights/files.h"

// ---- tfmc dump ----

/* --stage was checked against the same table, so the search ends. */
static const StageInfo *stage_of(const Options *options) {
  const StageInfo *stage = stage_table;
  while (!option_is(options, OPTION_STAGE, "graph", stage->name)) stage++;
  return stage;
}

/* Only the main file: what it includes can be dumped by itself. */
static void print_ast(Session *session, StrBuf *text) {
  const ParsedProgram *program = model_parse(session);
  for (size_t i = 0; program && i < program->files.n; i++)
    if (program->files.items[i].is_main) ast_dump(text, session->arena, program->files.items[i].ast);
}

static void print_graph(const Session *session, StrBuf *text, Graph *graph) {
  if (option_given(&session->options, OPTION_VERBOSE)) graph_print_with_origins(text, graph);
  else graph_print(text, graph);
}

/* The plan of a graph after its passes. Of a model with ragged sizes it is the plan of what runs for each item. NULL
 * after an error. */
static const Plan *plan_of(Session *session, Graph *graph) {
  graph_make_uniform(graph);
  const TargetInfo *target = host_choose_target(session, false);
  return target ? plan_graph(session->arena, &session->diag, graph, target) : NULL;
}

static void print_plan(Session *session, StrBuf *text, Graph *graph, enum StageForm form) {
  const Plan *plan = plan_of(session, graph);
  if (!plan) return;
  if (form == FORM_PLAN) plan_print(text, plan);
  else code_text(&session->diag, plan, form == FORM_ASM, text);
}

/* Says why the incremental form or its encoder is missing, with the calls that lead to the operation that prevents
 * it. */
static void refuse_part(Session *session, const Incremental *parts) {
  if (parts->step) {
    diag_error_at(&session->diag, "dump", DIAG_REQUIRED_FUSION,
                  "a step reads nothing that depends on other inputs alone");
    return;
  }
  origin_error(&session->diag, &parts->origin, DIAG_REQUIRED_FUSION, "the model is not incremental: %s",
               parts->reason);
}

/* A part of the incremental form; NULL, with an error, if there is none. A graph stage runs no passes, which would
 * print the report otherwise. */
static Graph *find_part(Session *session, const Graph *graph, const StageInfo *stage) {
  const CompileRequest request = compile_request(session, NULL);
  const Derivation *derived = compile_derive(&request, graph);
  Graph *part = stage->part == PART_ENCODER ? derived->parts.encoder : derived->parts.step;
  if (stage->form == FORM_GRAPH)
    report_passes(session, part ? part : graph_clone(session->arena, graph), &derived->log);
  if (!part) refuse_part(session, &derived->parts);
  return part;
}

/* NULL after an error. */
static Graph *find_gradients(Session *session) {
  Objective *objective = training_objective(session, true);
  const TrainGraphs *graphs = objective ? train_graphs(session->arena, &session->diag, objective, true) : NULL;
  return graphs ? graphs->gradients : NULL;
}

static void print_stage(Session *session, StrBuf *text) {
  const StageInfo *stage = stage_of(&session->options);
  if (stage->form == FORM_AST) {
    if (option_given(&session->options, OPTION_REQUIRE_FUSION))
      option_error(&session->diag, OPTION_REQUIRE_FUSION, "--stage=ast has no graph in which something could be fused");
    print_ast(session, text);
    return;
  }
  Graph *graph = model_load(session);
  if (graph && stage->part == PART_TRAINING)
    graph = find_gradients(session);
  else if (graph && stage->part != PART_MODEL)
    graph = find_part(session, graph, stage);
  if (graph && stage->form == FORM_GRAPH && stage->part <= PART_TRAINING) report_no_passes(session, graph);
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

// ---- tfmc opt ----

enum { MAX_GRAPH_BYTES = 256 << 20 };

/* The size of a pipe is not known, so it is read in pieces up to the limit. */
static bool read_stdin(Session *session, StrBuf *text) {
  char piece[4096];
  size_t n;
  while ((n = fread(piece, 1, sizeof piece, stdin)) > 0 && text->length <= MAX_GRAPH_BYTES)
    strbuf_add_n(text, piece, n);
  if (ferror(stdin)) diag_error_at(&session->diag, "<stdin>", DIAG_FILE, "cannot read: %s", strerror(errno));
  return !ferror(stdin);
}

static bool read_file(Session *session, const char *path, StrBuf *text) {
  InFile file;
  if (!in_file_open(&file, &session->diag, path)) return false;
  size_t size = file.size <= MAX_GRAPH_BYTES ? (size_t)file.size : MAX_GRAPH_BYTES + 1u;
  char *bytes = arena_alloc(session->arena, size);
  bool read = in_file_read(&file, &session->diag, 0, bytes, size);
  strbuf_add_n(text, bytes, size);
  in_file_close(&file);
  return read;
}

static Graph *read_graph(Session *session) {
  const char *path = session->options.files.items[0];
  bool from_stdin = strcmp(path, "-") == 0;
  StrBuf text = strbuf_new(session->arena);
  if (from_stdin ? !read_stdin(session, &text) : !read_file(session, path, &text)) return NULL;
  if (text.length > MAX_GRAPH_BYTES) {
    diag_error_at(&session->diag, path, DIAG_GRAPH_SYNTAX, "the text is larger than 256 MiB");
    return NULL;
  }
  Source *source = source_new(session->arena, from_stdin ? "<stdin>" : path, text.text, (uint32_t)text.length);
  return graph_read(session->arena, &session->diag, source);
}

void command_opt(Session *session) {
  const char *output = option_text(&session->options, OPTION_OUTPUT, NULL);
  if (output && !session_check_output(session, output, &session->options.files.items[0], 1)) return;
  Graph *graph = read_graph(session);
  if (!graph || !graph_verify(graph, &session->diag) || !run_passes(session, graph)) return;
  StrBuf text = strbuf_new(session->arena);
  graph_print(&text, graph);
  session_write(session, &text);
}

// ---- tfmc graph: the program `dot` ----

extern char **environ;

/* Returns a file without a name that holds the text, positioned at its beginning; -1 with errno set. Files and not
 * pipes: `dot` reads everything before it writes, but a pipe in each direction could still block both. */
static int file_of(const StrBuf *text) {
  const char *folder = getenv("TMPDIR");
  char *name = arena_printf(text->arena, "%s/tfmc-XXXXXX", folder && *folder ? folder : "/tmp");
  int fd = mkstemp(name);
  if (fd < 0) return -1;
  unlink(name);
  for (size_t at = 0; at < text->length;) {
    ssize_t n = write(fd, text->text + at, text->length - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      close(fd);
      return -1;
    }
    at += (size_t)n;
  }
  lseek(fd, 0, SEEK_SET);
  return fd;
}

/* Starts `dot -TFORMAT`, reading from `in`, writing to `out`. 0, or an error number. */
static int start_dot(const char *name, int in, int out, pid_t *pid) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  char dot[] = "dot", format[8], *arguments[] = {dot, format, NULL};
  snprintf(format, sizeof format, "-T%s", name);
  int error = posix_spawnp(pid, "dot", &actions, NULL, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

static void read_all(int fd, StrBuf *text) {
  char piece[4096];
  lseek(fd, 0, SEEK_SET);
  for (ssize_t n; (n = read(fd, piece, sizeof piece)) > 0;) strbuf_add_n(text, piece, (size_t)n);
}

/* Runs `dot` and takes its output only if it ended well; a picture that is cut off is worse than none. */
static bool draw(Session *session, const StrBuf *text, StrBuf *picture) {
  StrBuf empty = strbuf_new(session->arena);
  int in = file_of(text), out = file_of(&empty), status = 0;
  pid_t pid;
  const char *format = option_text(&session->options, OPTION_FORMAT, "svg");
  int error = in < 0 || out < 0 ? errno : start_dot(format, in, out, &pid);
  if (!error && waitpid(pid, &status, 0) < 0) error = errno;
  if (!error && status == 0) read_all(out, picture);
  if (in >= 0) close(in);
  if (out >= 0) close(out);
  if (error == ENOENT)
    diag_error_at(&session->diag, NULL, DIAG_TOOL,
                  "the program `dot` was not found; install graphviz, or use --format=dot");
  else if (error)
    diag_error_at(&session->diag, NULL, DIAG_TOOL, "cannot run `dot`: %s", strerror(error));
  else if (status)
    diag_error_at(&session->diag, NULL, DIAG_TOOL, "`dot` failed; --format=dot prints what it was given");
  return !error && status == 0;
}

// ---- tfmc graph ----

static Drawing *draw_stage(Session *session, Graph *graph) {
  const Options *options = &session->options;
  if (option_is(options, OPTION_GRAPH_STAGE, "primitive", "primitive")) return drawing_of_graph(session->arena, graph);
  if (!run_passes(session, graph)) return NULL;
  if (option_is(options, OPTION_GRAPH_STAGE, "primitive", "fused")) return drawing_of_graph(session->arena, graph);
  const Plan *plan = plan_of(session, graph);
  return plan ? drawing_of_plan(plan) : NULL;
}

/* The time of a layout grows faster than the picture, and nobody can read one with more boxes than this. */
static bool is_readable(Session *session, uint32_t boxes) {
  enum { MOST_BOXES = 1500 };
  if (boxes <= MOST_BOXES) return true;
  diag_error_at(&session->diag, NULL, DIAG_LIMIT,
                "the picture would have %u boxes, more than the %d that can be laid out: "
                "use a lower --depth, --stage=fused, or --format=dot",
                boxes, MOST_BOXES);
  return false;
}

void command_graph(Session *session) {
  const char *output = option_text(&session->options, OPTION_OUTPUT, NULL);
  if (output && !session_check_output(session, output, &session->options.files.items[0], 1)) return;
  Graph *graph = model_load(session);
  Drawing *drawing = graph ? draw_stage(session, graph) : NULL;
  if (!drawing) return;
  StrBuf text = strbuf_new(session->arena), picture = strbuf_new(session->arena);
  uint32_t boxes = drawing_print(&text, drawing, (uint32_t)option_count(&session->options, OPTION_DEPTH, 1));
  if (option_is(&session->options, OPTION_FORMAT, "dot", "dot")) session_write(session, &text);
  else if (is_readable(session, boxes) && draw(session, &text, &picture)) session_write(session, &picture);
}
