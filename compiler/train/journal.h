/* Journal: what a training run tells while it goes on.
 *
 * In: the folder of the run, what each step and each validation gave. Out: DIR/log.jsonl, one JSON object a line, whose
 * numbers give the doubles back; DIR/curve.svg, loss and validation over the steps; on a terminal a line that is drawn
 * anew. A run that goes on keeps the lines up to the step it goes on from. */
#ifndef TFM_TRAIN_JOURNAL_H
#define TFM_TRAIN_JOURNAL_H

#include "base/strbuf.h"
#include "diag/diag.h"

typedef enum RecordKind { RECORD_STEP, RECORD_VALID, RECORD_CHECKPOINT } RecordKind;

typedef struct Record {
  RecordKind kind;
  int64_t step, epoch;
  const double *results; /* of the objective, the loss first; NULL: none */
  double rate, norm;
  double score; /* that --valid-command gave */
  bool has_score;
  int64_t tokens, items, padding; /* since the last record of steps */
  int64_t left_out;               /* batches of the epochs that began since then, because no label counts in them */
} Record;

typedef struct JournalRequest {
  Arena *arena;
  Diag *diag;
  const char *folder;
  const char *const *names; /* of the results */
  uint32_t n_results;
  int64_t from;          /* the step that the run goes on from; 0: it is new */
  int64_t steps, epochs; /* what the run is to do; 0: not known */
  bool is_quiet;
} JournalRequest;

typedef struct Journal Journal;

/* NULL after an error. */
Journal *journal_open(const JournalRequest *request);
/* Adds a line to the log. */
void journal_write(Journal *journal, const Record *record);
/* Shows a step on the terminal, if there is one. */
void journal_show(Journal *journal, const Record *record);
/* A line of text on stdout; the line of the terminal makes room for it. */
void journal_say(Journal *journal, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "loss 1.23  nll 1.1 (ppl 3)" */
void journal_results(StrBuf *out, const Journal *journal, const double *results);
/* Draws the curve anew. False after an error. */
bool journal_draw(Journal *journal);
/* False if the log could not be written. */
bool journal_close(Journal *journal); /* NULL is ignored */

#endif
