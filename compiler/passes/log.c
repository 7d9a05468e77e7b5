/* In: what a pass fused or would have liked to fuse. Out: one record per fusion, place and reason. */
#include <stdarg.h>
#include <string.h>

#include "passes/pass.h"

static bool same_record(const FusionRecord *record, const char *fusion, bool done, const Node *node,
                        const char *reason) {
  return record->done == done && !strcmp(record->fusion, fusion) && !strcmp(record->reason, reason) &&
         !strcmp(record->origin.path, node->origin.path) && record->origin.span.source == node->origin.span.source &&
         record->origin.span.begin == node->origin.span.begin;
}

void pass_record(Pass *pass, const char *fusion, bool done, const Node *node, const char *format, ...) {
  PassLog *log = pass->log;
  if (!log) return;
  va_list args;
  va_start(args, format);
  char *reason = arena_vprintf(log->arena, format, args);
  va_end(args);
  for (size_t i = log->records.n; i-- > 0 && !done;)
    if (same_record(&log->records.items[i], fusion, done, node, reason)) return;
  vec_push(log->arena, &log->records,
           (FusionRecord){.fusion = fusion, .done = done, .reason = reason, .origin = node->origin});
}

static bool is_fusion(Diag *diag, const char *name) {
  static const char *const names[] = {"attention", "qkv", "weight-fold", "epilogue", "prologue", "pointwise"};
  enum { N_NAMES = sizeof names / sizeof *names };
  for (unsigned i = 0; i < N_NAMES; i++)
    if (!strcmp(names[i], name)) return true;
  const char *nearest = diag_nearest(name, names, N_NAMES);
  if (nearest)
    diag_error_at(diag, NULL, DIAG_PASS_NAME, "there is no fusion \"%s\"; did you mean \"%s\"?", name, nearest);
  else
    diag_error_at(diag, NULL, DIAG_PASS_NAME,
                  "there is no fusion \"%s\"; there are attention, qkv, weight-fold, epilogue, prologue, pointwise", name);
  return false;
}

bool passes_require(Diag *diag, const PassLog *log, const char *fusion) {
  if (!is_fusion(diag, fusion)) return false;
  bool met = true;
  for (size_t i = 0; i < log->records.n; i++) {
    const FusionRecord *record = &log->records.items[i];
    if (record->done || strcmp(record->fusion, fusion) != 0) continue;
    diag_error(diag, record->origin.span, DIAG_REQUIRED_FUSION, "%s was asked for but not done%s%s: %s", fusion,
               record->origin.path[0] ? " in " : "", record->origin.path, record->reason);
    for (const Frame *frame = record->origin.frame; frame; frame = frame->caller)
      diag_note(diag, frame->span, "in %s, called here", frame->name);
    met = false;
  }
  return met;
}
