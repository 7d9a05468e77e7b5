/* In: a .tfm file. Out: what jit_create and the runtime want. */
#define _DEFAULT_SOURCE /* madvise */
#include "compiling.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "diag/render.h"
#include "passes/passes.h"

enum { HUGE_PAGE = 2 * 1024 * 1024 };

Graph *elaborate_file(Arena *arena, Diag *diag, const char *file, const ElaborateOptions *options) {
  Map *names = ARENA_NEW(arena, Map);
  *names = map_new(arena);
  ParsedProgram *program = parse_program(arena, names, diag, arena_printf(arena, "%s/%s", TFM_SOURCE_DIR, file));
  return program ? elaborate(arena, names, diag, program, options) : NULL;
}

const Plan *plan_file(Arena *arena, Diag *diag, const char *file, const TargetInfo *target, const ElaborateOptions *options) {
  Graph *graph = elaborate_file(arena, diag, file, options);
  PassOptions passes = {.level = 2};
  if (!graph || !passes_run(graph, diag, &passes, NULL)) return NULL;
  return plan_graph(arena, diag, graph, target);
}

char *weights_room(const Plan *plan) {
  size_t bytes = (plan->program.weights_bytes / HUGE_PAGE + 1) * HUGE_PAGE;
  char *room = aligned_alloc(HUGE_PAGE, bytes);
  if (!room) return NULL;
  madvise(room, bytes, MADV_HUGEPAGE); /* only faster */
  return memset(room, 0, bytes);
}

void print_messages(const Diag *diag) {
  Arena *scratch = arena_create();
  StrBuf text = strbuf_new(scratch);
  render_text(&text, diag, false);
  fputs(text.text, stderr);
  arena_destroy(scratch);
}

double seconds_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
