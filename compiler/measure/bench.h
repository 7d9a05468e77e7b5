/* Bench: how long one run takes, and what that is beside what the machine can do.
 *
 * In: a function that makes one run, how often, and for compiled code the program and its sizes. Out: the sorted times,
 * the work of a run, a probe of the machine taken right after them, and all of it as text or as one JSON object. */
#ifndef TFM_MEASURE_BENCH_H
#define TFM_MEASURE_BENCH_H

#include "base/strbuf.h"
#include "measure/roofline.h"

/* What is run again and again. */
typedef struct Repetition {
  void *context;
  bool (*run)(void *context, size_t i);                         /* run i of all; false after an error, which ends it */
  void (*progress)(void *context, size_t done, size_t all);
  size_t warmup, iterations;
  double warmup_seconds; /* runs that warm up, if there are any, go on until this has passed */
} Repetition;

/* Makes the warm-up runs, the last one again until its time has passed, then the others. `seconds` gets the times of
 * the latter; NULL: they are not wanted. */
bool bench_repeat(const Repetition *repetition, double *seconds);

typedef struct Bench {
  const char *model;
  double *seconds; /* sorted */
  size_t n;
  double flops; /* of one run, as the model is written */
  Work work;    /* of one run, as it is executed; zeroes where that is not known */
  Probe most;   /* what the machine can do; zeroes where that does not apply */
  double least_possible; /* seconds by the roofline */
  bool leaves_rows_out;  /* the work counts rows that a run may leave out, of padding or of experts */
} Bench;

/* Sets `seconds` and `n`. False after an error of a run. */
bool bench_measure(Arena *arena, const Repetition *repetition, Bench *bench);
/* Sets `work`, `most` and `least_possible`: what the machine can do with the same instruction set and threads, when it
 * reads as much memory as the program does, over and over as the program does. */
void bench_probe(Arena *arena, const tfm_program *program, const EvalInputs *inputs, int threads, Bench *bench);

void bench_text(StrBuf *out, const Bench *bench);
void bench_json(StrBuf *out, const Bench *bench);

#endif
