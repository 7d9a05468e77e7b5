/* In: subjects. Out: their times and probes, round by round. Every subject has its turn in every round, right after
 * its probe, so that a change of the clock or a neighbour on the machine hits both. */
#include "subject.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiling.h"

static const double turn_seconds = 0.005, piece_seconds = 0.0002;
enum { MOST_PIECES = 25, MOST_REPEATS = 10000 };

/* The bytes of the probe are clamped: below 32 KiB the loop would measure itself, above 128 MiB every machine reads
 * from memory. */
Subject *subject_add(Bench *bench, const char *group, const char *name, int32_t threads, size_t probe_bytes) {
  enum { LEAST_BYTES = 32 << 10, MOST_BYTES = 128 << 20 };
  Subject *subject = ARENA_NEW(bench->arena, Subject);
  subject->group = group;
  subject->name = arena_strdup(bench->arena, name);
  subject->threads = threads;
  subject->probe_bytes = probe_bytes < LEAST_BYTES ? LEAST_BYTES : probe_bytes > MOST_BYTES ? MOST_BYTES : probe_bytes;
  vec_push(bench->arena, &bench->subjects, subject);
  return subject;
}

void subject_runs(Subject *subject, void (*run)(void *), double (*least)(void *, const Probe *), void *context, double flops,
                  double bytes) {
  subject->run = run;
  subject->least = least;
  subject->context = context;
  subject->flops = flops;
  subject->bytes = bytes;
}

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

Spread spread_of(const double *values, int n) {
  double sorted[MOST_ROUNDS];
  memcpy(sorted, values, (size_t)n * sizeof *values);
  qsort(sorted, (size_t)n, sizeof *sorted, compare_doubles);
  return (Spread){sorted[n / 2], sorted[0], sorted[n - 1]};
}

/* Differences are taken within a round, where both subjects met the same machine. */
Growth growth_of(const Bench *bench, const Subject *subject) {
  const Subject *smaller = subject->smaller;
  double seconds[MOST_ROUNDS], reading[MOST_ROUNDS];
  for (int i = 0; i < bench->rounds; i++) {
    seconds[i] = subject->seconds[i] - smaller->seconds[i];
    reading[i] = (subject->bytes - smaller->bytes) / subject->probes[i].bytes;
  }
  return (Growth){spread_of(seconds, bench->rounds), spread_of(reading, bench->rounds)};
}

static double seconds_in(const Subject *subject, int round, bool at_best) {
  return subject->seconds[round] * (at_best ? subject->shares[round] : 1);
}

Spread multiple_of(const Bench *bench, const Subject *subject, bool at_best) {
  double multiples[MOST_ROUNDS];
  for (int i = 0; i < bench->rounds; i++)
    multiples[i] = seconds_in(subject, i, at_best) / seconds_in(subject->one, i, at_best);
  return spread_of(multiples, bench->rounds);
}

/* Subjects with equal probes share one: its memory would be allocated dozens of times otherwise. */
static bool open_probes(Bench *bench) {
  for (size_t i = 0; i < bench->subjects.n; i++) {
    Subject *subject = bench->subjects.items[i];
    for (size_t k = 0; k < i && !subject->probe; k++) {
      const Subject *other = bench->subjects.items[k];
      if (other->threads == subject->threads && other->probe_bytes == subject->probe_bytes)
        subject->probe = other->probe;
    }
    if (!subject->probe) subject->probe = probe_open(bench->target, subject->threads, subject->probe_bytes);
    if (!subject->probe) return false;
  }
  return true;
}

/* Every probe once, though several subjects point to it. */
static void close_probes(Bench *bench) {
  for (size_t i = 0; i < bench->subjects.n; i++) {
    ProbeSet *probe = bench->subjects.items[i]->probe;
    probe_close(probe);
    for (size_t k = i; k < bench->subjects.n; k++)
      if (bench->subjects.items[k]->probe == probe) bench->subjects.items[k]->probe = NULL;
  }
}

/* a / b as a number from 1 to `most`. */
static int times(double a, double b, int most) { return a / b < 1 ? 1 : a / b < most ? (int)(a / b) : most; }

/* Seconds of one run: the median of the pieces of a turn, as in the probe. A piece holds as many runs as the clock
 * needs to be exact, a turn as many pieces as fit into 5 ms, so that a round is short. */
static double take_turn(Subject *subject) {
  double start = seconds_now(), pieces[MOST_PIECES];
  subject->run(subject->context);
  double once = seconds_now() - start + 1e-9;
  int repeats = times(piece_seconds, once, MOST_REPEATS), n = times(turn_seconds, once * repeats, MOST_PIECES);
  for (int i = 0; i < n; i++) {
    start = seconds_now();
    for (int k = 0; k < repeats; k++) subject->run(subject->context);
    pieces[i] = (seconds_now() - start) / repeats;
  }
  return spread_of(pieces, n).median;
}

/* The probe runs right before the turn, for the same number of threads. */
static bool measure_one(Subject *subject, int round) {
  Probe *probe = &subject->probes[round];
  if (!probe_round(subject->probe, probe)) return false;
  if (!subject->run) return true;
  subject->seconds[round] = take_turn(subject);
  subject->shares[round] = subject->least(subject->context, probe) / subject->seconds[round];
  return true;
}

bool subjects_measure(Bench *bench) {
  bool done = open_probes(bench);
  for (int round = 0; round < bench->rounds && done; round++) {
    fprintf(stderr, "round %d of %d\n", round + 1, bench->rounds);
    for (size_t i = 0; i < bench->subjects.n && done; i++) done = measure_one(bench->subjects.items[i], round);
  }
  close_probes(bench);
  if (!done) fputs("a probe of the machine could not run: no memory, or no thread\n", stderr);
  return done;
}
