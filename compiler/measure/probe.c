/* In: an instruction set, threads, bytes. Out: multiply-adds, of floats and of bytes, and bytes read per second of this
 * machine, now. See probe.h for what is measured and why medians of short pieces count.
 *
 * All threads begin a round together and take its three parts together: a core alone may run at a higher clock, and
 * memory is shared, so figures of single threads must not be added up. */
#define _DEFAULT_SOURCE /* madvise */
#include "measure/probe.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
enum {
  PROBE_CHAINS = 12, /* enough to hide the latency of two multiply-add units */
  PROBE_LINE = 512,  /* bytes that one turn of a reading loop takes at most */
  MOST_BYTES = 512 << 20,
  HUGE_PAGE = 2 << 20,
  MOST_THREADS = 1024,
  ROUNDS = 4,
  PIECE_BYTES = 4 << 20, /* read between two looks at the clock */
  PIECE_STEPS = 50 * 1000,
  FLOP_PIECES = 16,
  LEAST_READ_PIECES = 8,
  READ_PLACES = 4, /* of a piece */
  MOST_PIECES = MOST_BYTES / PIECE_BYTES
};

typedef struct Start { /* the threads begin when all of them are there, and end if one could not be started */
  _Atomic int go;      /* 1, or -1; 0: not known yet */
  pthread_barrier_t barrier;
} Start;

typedef enum Dot { DOT_WORDS, DOT_PAIRS, DOT_BYTES } Dot; /* of whole numbers, as the target has it */

typedef struct Prober { /* one thread */
  pthread_t thread;
  Start *start;
  uint32_t lanes;
  Dot dot;
  bool has_tiles, touched;
  char *bytes;
  size_t n_bytes, at;
  Probe round;
  volatile int64_t steps; /* of a piece: volatile, as the sinks are, so that no compiler drops or moves the work */
  volatile float float_sink;
  volatile int32_t whole_sink;
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

// ---- the inner loops, one pair per width of vectors ----

/* `lanes` is the number of floats in a vector, 4, 8 or 16; the CPU must have such vectors.
 *
 * run_chains takes n steps of PROBE_CHAINS chains and returns their sum: each chain is s = s * 0.999 + 1e-6, which
 * converges, so no operand ever becomes infinite or subnormal and slow. The SSE form has no fused multiply-add and
 * counts the two instructions as the two operations that they are.
 *
 * run_dots takes as many steps of chains of whole numbers: four products of bytes in each lane, at once or in pairs, or
 * two of words; those of pairs and words are then added to the chain. CHANGED keeps the compiler from taking these
 * products, of the same operands again and again, out of the loop.
 *
 * read_memory reads `size` bytes, a multiple of PROBE_LINE, once, in order; `bytes` must be 64-byte aligned. The words
 * are combined by XOR, which costs less than the loads and depends on every one of them. */
#if defined(__x86_64__)
#include "measure/probe_x86.h"
#else

enum { TILE_PRODUCTS, TILE_SUMS, TILE_SHARE = 1 };
static int32_t run_tiles(int64_t n) { return (int32_t)n; } /* no target has them */

/* Other machines: plain C, which the compiler vectorises as it can. The figures are lower bounds there. */
static float run_chains(uint32_t lanes, int64_t n) {
  float sums[PROBE_CHAINS * 16] = {0};
  for (int64_t step = 0; step < n; step++)
    for (uint32_t i = 0; i < PROBE_CHAINS * lanes; i++) sums[i] = sums[i] * 0.999f + 1e-6f;
  return sums[0];
}

static int32_t run_dots(uint32_t lanes, Dot dot, int64_t n) {
  uint32_t sums[PROBE_CHAINS * 16] = {0};
  for (int64_t step = 0; step < n; step++)
    for (uint32_t i = 0; i < PROBE_CHAINS * lanes; i++) sums[i] = sums[i] * (dot == DOT_WORDS ? 2u : 4u) + 1u;
  return (int32_t)sums[0];
}

static uint64_t read_memory(uint32_t lanes, const char *bytes, size_t size) {
  const uint64_t *words = (const uint64_t *)(const void *)bytes;
  uint64_t sums[8] = {lanes};
  for (size_t i = 0; i + 8 <= size / sizeof *words; i += 8)
    for (size_t j = 0; j < 8; j++) sums[j] ^= words[i + j];
  for (size_t j = 1; j < 8; j++) sums[0] ^= sums[j];
  return sums[0];
}

#endif

// ---- one thread ----

/* Reads `size` bytes, in several places by turns, what is left of them behind that. */
static void read_places(Prober *prober, const char *bytes, size_t size, size_t places) {
  const size_t part = size / places / PROBE_LINE * PROBE_LINE;
  for (size_t at = 0; places > 1 && at < part; at += PROBE_LINE)
    for (size_t place = 0; place < places; place++)
      prober->word_sink = read_memory(prober->lanes, bytes + place * part + at, PROBE_LINE);
  const size_t done = places > 1 ? places * part : 0;
  prober->word_sink = read_memory(prober->lanes, bytes + done, size - done);
}

/* Reads PIECE_BYTES from where the last piece ended, going round in the thread's memory. */
static void read_piece(Prober *prober, size_t places) {
  for (size_t left = PIECE_BYTES; left;) {
    size_t n = prober->n_bytes - prober->at;
    if (n > left) n = left;
    read_places(prober, prober->bytes + prober->at, n, places);
    prober->at = (prober->at + n) % prober->n_bytes;
    left -= n;
  }
}

/* Two operations for each multiply-add. The median of the pieces counts: a piece during which something else had the
 * CPU is an outlier and does not. */
static double measure_flops(Prober *prober) {
  double seconds[FLOP_PIECES];
  for (int i = 0; i < FLOP_PIECES; i++) {
    double start = now();
    prober->float_sink = run_chains(prober->lanes, prober->steps);
    seconds[i] = now() - start;
  }
  return 2.0 * PROBE_CHAINS * prober->lanes * PIECE_STEPS / median(seconds, FLOP_PIECES);
}

/* Two operations for each product of a lane. */
static double measure_whole(Prober *prober) {
  double seconds[FLOP_PIECES];
  for (int i = 0; i < FLOP_PIECES; i++) {
    double start = now();
    prober->whole_sink = prober->has_tiles ? run_tiles(prober->steps)
                                           : run_dots(prober->lanes, prober->dot, prober->steps);
    seconds[i] = now() - start;
  }
  const double products = prober->has_tiles ? (double)TILE_PRODUCTS * TILE_SUMS / TILE_SHARE
                                            : (prober->dot == DOT_WORDS ? 2.0 : 4.0) * PROBE_CHAINS * prober->lanes;
  return 2 * products * PIECE_STEPS / median(seconds, FLOP_PIECES);
}

static double measure_places(Prober *prober, size_t pieces, size_t places) {
  double seconds[MOST_PIECES];
  for (size_t i = 0; i < pieces; i++) {
    double start = now();
    read_piece(prober, places);
    seconds[i] = now() - start;
  }
  return PIECE_BYTES / median(seconds, pieces);
}

/* As many pieces as it takes to read all of the thread's memory once, so a share that is larger than the caches is
 * never read from them. All is read once before that: what fits into a cache that others use too leaves it while
 * arithmetic is measured, as it does not between the runs of a model. Some CPUs read faster in one place, others in
 * several (bench/notes.md): the faster one counts. */
static double measure_bytes(Prober *prober) {
  size_t n = prober->n_bytes / PIECE_BYTES;
  if (n < LEAST_READ_PIECES) n = LEAST_READ_PIECES;
  for (size_t i = 0; i < n; i++) read_piece(prober, 1);
  const double one = measure_places(prober, n, 1), several = measure_places(prober, n, READ_PLACES);
  return one > several ? one : several;
}

/* Memory is first touched by a thread of this set, so on machines with several memory nodes it lies near the CPUs that
 * read it. The wait for `go` spins: the barrier may only be entered when all threads exist. */
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
  prober->round.whole = measure_whole(prober);
  pthread_barrier_wait(&prober->start->barrier);
  prober->round.bytes = measure_bytes(prober);
  return NULL;
}

// ---- all of them ----

/* The calling thread is the first prober. If a thread cannot be started, the others are told to end. False then. */
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

/* The shares of the threads lie one after another in a single block, on huge pages, as packed weights do. */
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
    set->probers[i].dot = target->dot_bytes ? DOT_BYTES : target->dot_pairs ? DOT_PAIRS : DOT_WORDS;
    set->probers[i].has_tiles = target->matrix.rows > 0;
    set->probers[i].steps = PIECE_STEPS;
    set->probers[i].bytes = set->bytes + share * (size_t)i;
    set->probers[i].n_bytes = share;
  }
  return set;
}

/* The figures of the threads are added up: they ran at the same time. */
bool probe_round(ProbeSet *set, Probe *probe) {
  *probe = (Probe){0};
  if (!run_probers(set->probers, set->n)) return false;
  for (int32_t i = 0; i < set->n; i++) {
    probe->flops += set->probers[i].round.flops;
    probe->whole += set->probers[i].round.whole;
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
  *probe = (Probe){0};
  for (int round = 0; round < ROUNDS && done; round++) {
    Probe one;
    done = probe_round(set, &one);
    if (done && one.flops > probe->flops) probe->flops = one.flops;
    if (done && one.whole > probe->whole) probe->whole = one.whole;
    if (done && one.bytes > probe->bytes) probe->bytes = one.bytes;
  }
  probe_close(set);
  return done;
}
