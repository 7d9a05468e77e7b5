/* Collecting messages, and the nearest known name for "did you mean".
 *
 * In: codes, places, texts. Out: the messages in the order in which they were reported, and the exit code of the
 * first error. Errors beyond DIAG_MAX_ERRORS are counted but not stored, so a file of garbage cannot fill the memory.
 */
#include "diag/diag.h"

#include <stdarg.h>
#include <string.h>

#include "base/check.h"

const DiagInfo diag_table[N_DIAG_CODES] = {
#define DIAG(Enum, id, severity, exit_code, line, explanation, model, command, cure) \
  [DIAG_##Enum] = {#Enum, id, DIAG_##severity, exit_code, line, explanation, model, command, cure},
#include "diag/diag_codes.def"
};

Diag diag_new(Arena *arena) { return (Diag){.arena = arena}; }

// ---- collecting ----

static void add(Diag *diag, DiagMessage message, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

static void add(Diag *diag, DiagMessage message, const char *format, va_list args) {
  CHECK(message.severity == diag_table[message.code].severity, "%s reported as %s", diag_id(message.code),
        message.severity == DIAG_ERROR ? "an error" : "a warning");
  diag->newest_was_dropped = false;
  if (message.severity == DIAG_ERROR) {
    if (diag->n_errors++ == 0) diag->exit_code = diag_table[message.code].exit_code;
    if (diag->n_errors > DIAG_MAX_ERRORS) {
      diag->newest_was_dropped = true;
      return;
    }
  }
  if (message.place) message.place = arena_strdup(diag->arena, message.place);
  message.text = arena_vprintf(diag->arena, format, args);
  vec_push(diag->arena, &diag->messages, message);
}

void diag_error(Diag *diag, SrcSpan span, DiagCode code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  add(diag, (DiagMessage){.severity = DIAG_ERROR, .code = code, .span = span}, format, args);
  va_end(args);
}

void diag_error_at(Diag *diag, const char *place, DiagCode code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  add(diag, (DiagMessage){.severity = DIAG_ERROR, .code = code, .place = place}, format, args);
  va_end(args);
}

void diag_warning(Diag *diag, SrcSpan span, DiagCode code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  add(diag, (DiagMessage){.severity = DIAG_WARNING, .code = code, .span = span}, format, args);
  va_end(args);
}

void diag_warning_at(Diag *diag, const char *place, DiagCode code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  add(diag, (DiagMessage){.severity = DIAG_WARNING, .code = code, .place = place}, format, args);
  va_end(args);
}

/* The note of a dropped message would attach itself to the wrong one, so it is dropped as well. */
void diag_note(Diag *diag, SrcSpan span, const char *format, ...) {
  if (diag->newest_was_dropped || !diag->messages.n) return;
  DiagMessage *newest = &diag->messages.items[diag->messages.n - 1];
  va_list args;
  va_start(args, format);
  DiagNote note = {.span = span, .text = arena_vprintf(diag->arena, format, args)};
  va_end(args);
  vec_push(diag->arena, &newest->notes, note);
}

// ---- did you mean ----

/* Bounds the table on the stack; longer names are generated, and nobody misspells them. */
enum { LONGEST_COMPARED = 255 };

static unsigned smallest_of(unsigned a, unsigned b, unsigned c) {
  unsigned least = a < b ? a : b;
  return least < c ? least : c;
}

/* Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b` (the restricted
 * Damerau-Levenshtein distance); `limit` + 1 if more are needed. A swap looks two rows back, so three rows of the
 * table are enough. A row whose least entry exceeds the limit ends the search: later rows cannot be less. */
static unsigned edit_distance(const char *a, size_t n, const char *b, size_t m, unsigned limit) {
  if ((n > m ? n - m : m - n) > limit || n > LONGEST_COMPARED || m > LONGEST_COMPARED) return limit + 1;
  unsigned rows_of_table[3][LONGEST_COMPARED + 1];
  for (unsigned j = 0; j <= m; j++) rows_of_table[0][j] = j;
  for (unsigned i = 1; i <= n; i++) {
    unsigned *row = rows_of_table[i % 3], *above = rows_of_table[(i + 2) % 3], *above2 = rows_of_table[(i + 1) % 3];
    unsigned least = row[0] = i;
    for (unsigned j = 1; j <= m; j++) {
      row[j] = smallest_of(above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1]));
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && above2[j - 2] + 1 < row[j])
        row[j] = above2[j - 2] + 1;
      if (row[j] < least) least = row[j];
    }
    if (least > limit) return limit + 1;
  }
  return rows_of_table[n % 3][m];
}

/* The limit shrinks with each hit, so later candidates must be strictly nearer. An exact match is skipped: the caller
 * has found the name unusable already, and suggesting it would read as nonsense. */
const char *diag_nearest(const char *name, const char *const *candidates, size_t n) {
  size_t length = strlen(name);
  /* A name that shares no letter with the one meant is no misspelling of it, one that shares half of them seldom. */
  unsigned limit = length <= 1 ? 0 : length <= 4 ? 1 : 2;
  const char *nearest = NULL;
  for (size_t i = 0; i < n; i++) {
    unsigned distance = edit_distance(name, length, candidates[i], strlen(candidates[i]), limit);
    if (distance > limit || distance == 0) continue;
    nearest = candidates[i];
    if (distance == 1) break;
    limit = distance - 1;
  }
  return nearest;
}
