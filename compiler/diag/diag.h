/* Diag: where errors, warnings and their notes are collected.
 *
 * In: a code (one row of diag_codes.def), a place and a text. Out: the messages in order, up to 20 errors, and the
 * exit code that they ask for; render.h prints them as text or JSON. Texts are copied into the arena of the Diag,
 * sources are not and must outlive it. A function that reports an error returns failure (false, NULL, a poisoned
 * value); its caller passes the failure on without reporting it again. */
#ifndef TFM_DIAG_DIAG_H
#define TFM_DIAG_DIAG_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/vec.h"
#include "diag/source.h"

typedef enum DiagCode {
#define DIAG(Enum, ...) DIAG_##Enum,
#include "diag/diag_codes.def"
  N_DIAG_CODES
} DiagCode;

typedef enum DiagSeverity { DIAG_ERROR, DIAG_WARNING, DIAG_NOTE } DiagSeverity;

/* A row of diag_codes.def, where each column is described. */
typedef struct DiagInfo {
  const char *name, *id; /* "SYNTAX", "E0101" */
  DiagSeverity severity;
  int exit_code;
  const char *line, *explanation;
  const char *model, *command; /* the example: model.tfm ("" if it needs none) and what to run */
  const char *cure;
} DiagInfo;

extern const DiagInfo diag_table[N_DIAG_CODES];

typedef struct DiagNote {
  SrcSpan span;
  const char *place; /* used if the span has no source: "w.safetensors"; may be NULL */
  const char *text;
} DiagNote;

typedef struct DiagMessage {
  DiagSeverity severity;
  DiagCode code;
  SrcSpan span;
  const char *place;
  const char *text;
  VEC(DiagNote) notes;
} DiagMessage;

typedef struct Diag {
  Arena *arena; /* texts live here */
  VEC(DiagMessage) messages;
  int n_errors;            /* all of them, also those beyond the limit, which are not kept */
  int exit_code;           /* of the first error; 0 as long as there is none */
  bool newest_was_dropped; /* beyond the limit, so its notes are dropped too */
} Diag;

enum { DIAG_MAX_ERRORS = 20 };

/* The id that messages carry, "E0202". */
static inline const char *diag_id(DiagCode code) { return diag_table[code].id; }

Diag diag_new(Arena *arena);

/* Adds an error at a span. The notes that follow belong to it. */
void diag_error(Diag *diag, SrcSpan span, DiagCode code, const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Adds an error about a file or input that has no source text; `place` may be NULL. */
void diag_error_at(Diag *diag, const char *place, DiagCode code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void diag_warning(Diag *diag, SrcSpan span, DiagCode code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void diag_warning_at(Diag *diag, const char *place, DiagCode code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Adds a note to the newest message (dropped if that message was). */
void diag_note(Diag *diag, SrcSpan span, const char *format, ...) __attribute__((format(printf, 3, 4)));

static inline bool diag_has_errors(const Diag *diag) { return diag->n_errors > 0; }

/* "did you mean": the candidate nearest to `name` within an edit distance of 2 (1 for names of up to 3 letters, 0
 * for one letter), or NULL. Candidates are looked at in order, the first of equally near ones wins. */
const char *diag_nearest(const char *name, const char *const *candidates, size_t n);

#endif
