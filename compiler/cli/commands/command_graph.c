/* tfmc graph: a model as a picture, with its modules as boxes.
 *
 * In: a .tfm file and a stage of compilation that is a graph or a plan (stages.def). Out: Graphviz text, or the picture
 * that the program `dot` makes of it. Refused: stages that are text, pictures with more boxes than anybody can read.
 * A picture that `dot` cannot lay out with curved edges is drawn with straight ones, and a note on stderr says so. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/commands/commands.h"
#include "cli/shown.h"
#include "draw/dot.h"

// ---- the picture ----

/* The first line of what `dot` said, for the message. */
static const char *first_line(const StrBuf *said) {
  if (!said->length) return "";
  return arena_printf(said->arena, " (%.*s)", (int)strcspn(said->text, "\n"), said->text);
}

static void report_failure(Session *session, const DotAttempt *last) {
  if (last->error == ENOENT)
    diag_error_at(&session->diag, NULL, DIAG_TOOL,
                  "the program `dot` was not found; install graphviz, or use --format=dot");
  else if (last->error)
    diag_error_at(&session->diag, NULL, DIAG_TOOL, "cannot run `dot`: %s", strerror(last->error));
  else
    diag_error_at(&session->diag, NULL, DIAG_TOOL, "`dot` failed%s; --format=dot prints what it was given",
                  first_line(&last->said));
}

/* Graphviz 2.43 gives up some large pictures while it bends edges around boxes ("lost edge"); straight edges need no
 * such way. */
static bool draw(Session *session, const StrBuf *text, StrBuf *picture) {
  static const char *const edges[] = {"spline", "line"};
  const char *format = option_text(&session->options, OPTION_FORMAT, "svg");
  DotAttempt attempt = {0};
  for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
    attempt = dot_attempt(session->arena, text, format, edges[i]);
    if (attempt.error) break;
    if (attempt.status) continue;
    *picture = attempt.picture;
    if (i && !option_given(&session->options, OPTION_QUIET))
      fputs("tfmc: note: `dot` could not lay this picture out with curved edges: they are straight lines\n", stderr);
    return true;
  }
  report_failure(session, &attempt);
  return false;
}

// ---- the command ----

static Drawing *draw_stage(Session *session) {
  const StageInfo *stage = shown_stage(session);
  if (stage->form == FORM_AST || stage->form == FORM_LLVM || stage->form == FORM_ASM) {
    option_error(&session->diag, OPTION_STAGE, "%s is text, which `tfmc dump` prints: only graphs and plans are drawn",
                 stage->name);
    return NULL;
  }
  Graph *graph = shown_graph(session, stage);
  if (!graph || diag_has_errors(&session->diag)) return NULL;
  if (stage->form != FORM_PLAN) return drawing_of_graph(session->arena, graph);
  const Plan *plan = shown_plan(session, graph);
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
  Drawing *drawing = draw_stage(session);
  if (!drawing) return;
  StrBuf text = strbuf_new(session->arena), picture = strbuf_new(session->arena);
  uint32_t boxes = drawing_print(&text, drawing, (uint32_t)option_count(&session->options, OPTION_DEPTH, 1));
  if (option_is(&session->options, OPTION_FORMAT, "dot", "dot")) session_write(session, &text);
  else if (is_readable(session, boxes) && draw(session, &text, &picture)) session_write(session, &picture);
}
