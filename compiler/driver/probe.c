/* In: an instruction set, threads, how much memory. Out: flops and bytes per second. All threads start together. */
#define _DEFAULT_SOURCE /* madvise */
#include "driver/probe.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "driver/probe_loops.h"

enum {
  MOST_BYTES = 512 << 20,
  HUGE_PAGE = 2 << 20,
  MOST_THREADS = 1024,
  ROUNDS = 4,
  PIECE_BYTES = 4 << 20, /* read between two looks at the clock */
  PIECE_STEPS = 50 * 1000,
  FLOP_PIECES = 16,
  LEAST_READ_PIECES = 8,
  MOST_PIECES = MOST_BYTES / PIECE_BYTES
};

typedef struct Start { /* threads begin when all are there, and go home if one could not be started */
  _Atomic int go;      /* 1, or -1; 0: not known yet */
  pthread_barrier_t barrier;
} Start;

typedef struct Prober { /* one thread */
  pthread_t thread;
  Start *start;
  uint32_t lanes;
  bool touched;
  char *bytes;
  size_t n_bytes, at;
  Probe round;
  volatile float float_sink;
  volatile uint64_t word_sink;
} Prober;

struct ProbeSet {
  Prober *probers;
  int32_t n;
  char *bytes;
};

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *seconds, size_t n) {
  qsort(seconds, n, sizeof *seconds, compare_doubles);
  return seconds[n / 2];
}

// ---- one thread ----

/* PIECE_BYTES from where the last piece ended, round the thread's memory. */
static void read_piece(Prober *prober) {
  for (size_t left = PIECE_BYTES; left;) {
    size_t n = prober->n_bytes - prober->at;
    if (n > left) n = left;
    prober->word_sink = probe_read(prober->lanes, prober->bytes + prober->at, n);
    prober->at = (prober->at + n) % prober->n_bytes;
    left -= n;
  }
}

static double measure_flops(Prober *prober) {
  double seconds[FLOP_PIECES];
  for (int i = 0; i < FLOP_PIECES; i++) {
    double start = now();
    prober->float_sink = probe_chains(prober->lanes, PIECE_STEPS);
    seconds[i] = now() - start;
  }
  return 2.0 * PROBE_CHAINS * prober->lanes * PIECE_STEPS / median(seconds, FLOP_PIECES);
}

static double measure_bytes(Prober *prober) {
  double seconds[MOST_PIECES];
  size_t n = prober->n_bytes / PIECE_BYTES;
  if (n < LEAST_READ_PIECES) n = LEAST_READ_PIECES;
  for (size_t i = 0; i < n; i++) {
    double start = now();
    read_piece(prober);
    seconds[i] = now() - start;
  }
  return PIECE_BYTES / median(seconds, n);
}

static void *probe_main(void *argument) {
  Prober *prober = argument;
  if (!prober->touched) memset(prober->bytes, 1, prober->n_bytes); /* by a thread like the one that will read it */
  prober->touched = true;
  int go;
  while ((go = atomic_load(&prober->start->go)) == 0) sched_yield();
  if (go < 0) return NULL;
  pthread_barrier_wait(&prober->start->barrier);
  prober->round.flops = measure_flops(prober);
  pthread_barrier_wait(&prober->start->barrier);
  prober->round.bytes = measure_bytes(prober);
  return NULL;
}

// ---- all of them ----

/* False if a thread could not be started. */
static bool run_probers(Prober *probers, int32_t n) {
  Start start = {.go = 0};
  if (pthread_barrier_init(&start.barrier, NULL, (unsigned)n)) return false;
  int32_t started = 1;
  for (int32_t i = 0; i < n; i++) probers[i].start = &start;
  while (started < n && !pthread_create(&probers[started].thread, NULL, probe_main, &probers[started])) started++;
  atomic_store(&start.go, started == n ? 1 : -1);
  if (started == n) probe_main(&probers[0]);
  for (int32_t i = 1; i < started; i++) pthread_join(probers[i].thread, NULL);
  pthread_barrier_destroy(&start.barrier);
  return started == n;
}

static size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

ProbeSet *probe_open(const TargetInfo *target, int32_t threads, size_t bytes) {
  int32_t n = threads < 1 ? 1 : threads > MOST_THREADS ? MOST_THREADS : threads;
  size_t share = (bytes < MOST_BYTES ? bytes : MOST_BYTES) / (size_t)n / PROBE_LINE * PROBE_LINE;
  if (share < PROBE_LINE) share = PROBE_LINE;
  size_t all = round_up(share * (size_t)n, HUGE_PAGE);
  ProbeSet *set = calloc(1, sizeof *set);
  if (!set) return NULL;
  *set = (ProbeSet){calloc((size_t)n, sizeof *set->probers), n, aligned_alloc(HUGE_PAGE, all)};
  if (!set->probers || !set->bytes) {
    probe_close(set);
    return NULL;
  }
  madvise(set->bytes, all, MADV_HUGEPAGE); /* as packed weights have; only faster */
  for (int32_t i = 0; i < n; i++) {
    set->probers[i].lanes = target->vector_floats;
    set->probers[i].bytes = set->bytes + share * (size_t)i;
    set->probers[i].n_bytes = share;
  }
  return set;
}

bool probe_round(ProbeSet *set, Probe *probe) {
  *probe = (Probe){0, 0};
  if (!run_probers(set->probers, set->n)) return false;
  for (int32_t i = 0; i < set->n; i++) {
    probe->flops += set->probers[i].round.flops;
    probe->bytes += set->probers[i].round.bytes;
  }
  return true;
}

void probe_close(ProbeSet *set) {
  if (!set) return;
  free(set->bytes);
  free(set->probers);
  free(set);
}

bool probe_measure(const TargetInfo *target, int32_t threads, size_t bytes, Probe *probe) {
  ProbeSet *set = probe_open(target, threads, bytes);
  bool done = set != NULL;
  *probe = (Probe){0, 0};
  for (int round = 0; round < ROUNDS && done; round++) {
    Probe one;
    done = probe_round(set, &one);
    if (done && one.flops > probe->flops) probe->flops = one.flops;
    if (done && one.bytes > probe->bytes) probe->bytes = one.bytes;
  }
  probe_close(set);
  return done;
}
