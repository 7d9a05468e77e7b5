/* Subjects: what is measured, in rounds, each next to a probe of the machine.
 *
 * In every round each subject gets a probe with its number of threads and about as much memory as it reads, and then
 * its turn: one run that does not count, then runs for some milliseconds (at least one), whose median counts. A figure
 * is reported as the median and the best of the rounds; shares of what is possible are taken within a round and their
 * median is reported, so that a machine that slows down for a while slows both. */
#ifndef TFM_BENCH_SUBJECT_H
#define TFM_BENCH_SUBJECT_H

#include "base/arena.h"
#include "base/vec.h"
#include "measure/probe.h"

enum { MOST_ROUNDS = 200 };

typedef struct Subject {
  const char *group, *name;
  int32_t threads;
  size_t probe_bytes;            /* memory of its probe */
  void (*run)(void *context);    /* NULL: the probe itself is what is measured */
  double (*least)(void *context, const Probe *probe); /* seconds of one run at best */
  void *context;
  double flops, bytes, elements; /* of one run; 0: does not apply */
  const struct Subject *smaller; /* the same work with fewer bytes: how much longer than that it takes is reported */
  const struct Subject *one;     /* the same work for one: how many times as long it takes is reported */
  ProbeSet *probe;
  double seconds[MOST_ROUNDS], shares[MOST_ROUNDS]; /* share: of what was possible in that round */
  Probe probes[MOST_ROUNDS];
} Subject;

typedef struct Bench {
  Arena *arena;
  const TargetInfo *target;
  int32_t threads; /* at most */
  int rounds;
  VEC(Subject *) subjects;
} Bench;

/* A subject, which subject_runs fills in. `name` is copied. */
Subject *subject_add(Bench *bench, const char *group, const char *name, int32_t threads, size_t probe_bytes);
/* What is run with the context, what it takes at best, and what it computes and reads (0: does not apply). */
void subject_runs(Subject *subject, void (*run)(void *), double (*least)(void *, const Probe *), void *context, double flops,
                  double bytes);
/* False if a probe could not run. */
bool subjects_measure(Bench *bench);

typedef struct Spread {
  double median, least, most;
} Spread;

Spread spread_of(const double *values, int n);

/* Growth of one subject over its smaller one, round by round: how much longer it took; how long reading the bytes that
 * it has more took, at the rate of the probe. */
typedef struct Growth {
  Spread seconds, reading;
} Growth;
Growth growth_of(const Bench *bench, const Subject *subject);
/* A subject's time over that of its `one`, round by round; at_best: what the probes of the two allow. */
Spread multiple_of(const Bench *bench, const Subject *subject, bool at_best);

/* bench_report.c */
void report_table(const Bench *bench);
bool report_json(const Bench *bench, const char *path);

/* What is measured: each adds its subjects; false after a message. */
bool machine_subjects(Bench *bench);
bool tile_subjects(Bench *bench);
bool kernel_subjects(Bench *bench); /* cold products, and rows */
bool model_subjects(Bench *bench);
bool decoding_subjects(Bench *bench);
bool step_subjects(Bench *bench); /* of a few tokens of one row */

#endif
