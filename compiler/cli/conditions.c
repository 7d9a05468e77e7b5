/* In: the checks of a graph. Out: lines and warnings. See conditions.h; nothing is refused here, a run does that.
 *
 * A condition binds if it is an equality: of a size and a number, or of two sizes. What compares only from one side
 * ("time <= 512") leaves sizes their freedom and is no reason for a warning, nor is what is written as a requirement.
 * `a == b` and `b == a` are one condition, wherever they come from. */
#include "cli/conditions.h"

#include <string.h>

// ---- the list ----

static const char *place_of(Arena *arena, const Origin *origin) {
  const SrcSpan span = origin_place(origin);
  if (!span.source) return "-";
  return arena_printf(arena, "%s:%u", span.source->path, source_place(span.source, span.begin).line);
}

/* A condition that is needed in several places has a line for each of them, but not for each module of the same
 * line. */
void conditions_print(StrBuf *out, const Graph *graph) {
  Map seen = map_new(out->arena);
  if (graph->checks.n) strbuf_add(out, "conditions of every run:\n");
  for (size_t i = 0; i < graph->checks.n; i++) {
    const Check *check = &graph->checks.items[i];
    StrBuf line = strbuf_new(out->arena);
    cond_print(&line, graph->sizes, check->condition);
    const char *text = arena_printf(out->arena, "  %-24s %s\n", line.text, place_of(out->arena, &check->origin));
    if (map_has(&seen, text)) continue;
    map_put(&seen, text, NULL);
    strbuf_add(out, text);
  }
}

// ---- warnings ----

/* As many as DIAG_MAX_ERRORS; warnings have no limit of their own in Diag. */
enum { MAX_WARNINGS = 20 };

/* For each check left - right, which is 0 in every run; NULL: it is no equality, or too large to say. */
static const Size **zeros_of(Arena *arena, const Graph *graph) {
  const Size **zeros = ARENA_ARRAY(arena, const Size *, graph->checks.n);
  for (size_t i = 0; i < graph->checks.n; i++) {
    const Cond *c = graph->checks.items[i].condition;
    if (c->kind == COND_COMPARE && c->op == OP_EQ) zeros[i] = size_sub(graph->sizes, c->left, c->right);
  }
  return zeros;
}

/* Whether the model states the condition, in either direction, or a warning about it stands already. */
static bool is_known(const Graph *graph, const Size *const *zeros, size_t index) {
  const Size *negative = size_sub(graph->sizes, size_const(graph->sizes, 0), zeros[index]);
  for (size_t i = 0; i < graph->checks.n; i++) {
    bool is_same = zeros[i] && (zeros[i] == zeros[index] || zeros[i] == negative);
    if (is_same && (i < index || graph->checks.items[i].is_stated)) return true;
  }
  return false;
}

/* With a number on the right, where readers expect it. */
static const char *equation(Arena *arena, const Graph *graph, const Cond *condition) {
  StrBuf out = strbuf_new(arena);
  Cond turned = *condition;
  turned.left = condition->right;
  turned.right = condition->left;
  cond_print(&out, graph->sizes, size_is_const(condition->left, NULL) ? &turned : condition);
  return out.text;
}

/* What the run would say, with the sizes as the model calls them. */
static const char *text_of(Arena *arena, const Graph *graph, const Check *check) {
  StrBuf out = strbuf_new(arena);
  for (size_t i = 0; i < check->message.n; i++) {
    const CheckPart *part = &check->message.items[i];
    if (part->text) strbuf_add(&out, part->text);
    if (part->size) size_print(&out, graph->sizes, part->size);
  }
  return out.text;
}

void conditions_warn(Diag *diag, const Graph *graph) {
  Arena *arena = diag->arena;
  const Size **zeros = zeros_of(arena, graph);
  unsigned n = 0;
  for (size_t i = 0; i < graph->checks.n && n < MAX_WARNINGS; i++) {
    const Check *check = &graph->checks.items[i];
    if (!zeros[i] || is_known(graph, zeros, i)) continue;
    n++;
    diag_warning(diag, origin_place(&check->origin), DIAG_SIZE_BOUND, "every run needs %s; otherwise %s",
                 equation(arena, graph, check->condition), text_of(arena, graph, check));
    for (const Frame *frame = check->origin.frame; frame && frame->caller; frame = frame->caller)
      diag_note(diag, frame->span, "in %s, called here", frame->name);
  }
}
