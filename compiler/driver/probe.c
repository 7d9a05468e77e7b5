/* Probes: loops with intrinsics, one per instruction set, run by all threads between two barriers. */
#define _DEFAULT_SOURCE /* madvise */
#include "driver/probe.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { LEAST_BYTES = 64 << 20, MOST_BYTES = 512 << 20, HUGE_PAGE = 2 << 20, MOST_THREADS = 1024, ROUNDS = 4, CHAINS = 12 };

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* --- Arithmetic: CHAINS independent chains of n steps; the result keeps the compiler from dropping them ------------- */

#if defined(__x86_64__)
/* Named variables, since compilers may keep an array in memory. */
#define EACH_CHAIN(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)

#define CHAINS_FUNCTION(name, Vector, splat, STEP, first)             \
  static float name(int64_t n) {                                     \
    const Vector x = splat(0.999f), y = splat(1e-6f);                \
    EACH_CHAIN(DECLARE_##name)                                       \
    for (int64_t step = 0; step < n; step++) { EACH_CHAIN(STEP) }    \
    Vector sum = y;                                                  \
    EACH_CHAIN(SUM_##name)                                           \
    return first(sum);                                               \
  }

#define DECLARE_chains_of_16(i) __m512 s##i = _mm512_set1_ps((float)i);
#define STEP_16(i) s##i = _mm512_fmadd_ps(s##i, x, y);
#define SUM_chains_of_16(i) sum = _mm512_add_ps(sum, s##i);
__attribute__((target("avx512f")))
CHAINS_FUNCTION(chains_of_16, __m512, _mm512_set1_ps, STEP_16, _mm512_cvtss_f32)

#define DECLARE_chains_of_8(i) __m256 s##i = _mm256_set1_ps((float)i);
#define STEP_8(i) s##i = _mm256_fmadd_ps(s##i, x, y);
#define SUM_chains_of_8(i) sum = _mm256_add_ps(sum, s##i);
__attribute__((target("avx2,fma")))
CHAINS_FUNCTION(chains_of_8, __m256, _mm256_set1_ps, STEP_8, _mm256_cvtss_f32)

#define DECLARE_chains_of_4(i) __m128 s##i = _mm_set1_ps((float)i);
#define STEP_4(i) s##i = _mm_add_ps(_mm_mul_ps(s##i, x), y);
#define SUM_chains_of_4(i) sum = _mm_add_ps(sum, s##i);
CHAINS_FUNCTION(chains_of_4, __m128, _mm_set1_ps, STEP_4, _mm_cvtss_f32)

static float chains(uint32_t lanes, int64_t n) {
  return lanes == 16 ? chains_of_16(n) : lanes == 8 ? chains_of_8(n) : chains_of_4(n);
}
#else
static float chains(uint32_t lanes, int64_t n) {
  float sums[CHAINS * 16] = {0};
  for (int64_t step = 0; step < n; step++)
    for (uint32_t i = 0; i < CHAINS * lanes; i++) sums[i] = sums[i] * 0.999f + 1e-6f;
  return sums[0];
}
#endif

/* --- Memory -------------------------------------------------------------------------------------------------------- */

static uint64_t read_all(const uint64_t *words, size_t n) {
  uint64_t sums[8] = {0};
  for (size_t i = 0; i + 8 <= n; i += 8)
    for (size_t j = 0; j < 8; j++) sums[j] ^= words[i + j];
  for (size_t j = 1; j < 8; j++) sums[0] ^= sums[j];
  return sums[0];
}

/* --- Threads ------------------------------------------------------------------------------------------------------- */

typedef struct Prober {
  pthread_t thread;
  pthread_barrier_t *barrier;
  uint32_t lanes;
  uint64_t *words;
  size_t n_words;
  Probe best; /* of all rounds: a neighbour on the machine can only slow them down */
  volatile float float_sink;
  volatile uint64_t word_sink;
} Prober;

static void measure_round(Prober *prober) {
  const int64_t steps = 500 * 1000;
  pthread_barrier_wait(prober->barrier);
  double start = now();
  prober->float_sink = chains(prober->lanes, steps);
  double flops = 2.0 * CHAINS * prober->lanes * (double)steps / (now() - start);
  pthread_barrier_wait(prober->barrier);
  start = now();
  prober->word_sink = read_all(prober->words, prober->n_words);
  double bytes = (double)(prober->n_words * sizeof(uint64_t)) / (now() - start);
  if (flops > prober->best.flops) prober->best.flops = flops;
  if (bytes > prober->best.bytes) prober->best.bytes = bytes;
}

static void *probe_main(void *argument) {
  Prober *prober = argument;
  memset(prober->words, 1, prober->n_words * sizeof(uint64_t)); /* by the thread that will read it */
  for (int round = 0; round < ROUNDS; round++) measure_round(prober);
  return NULL;
}

/* False if a thread could not be started; those that were would wait for ever, so none is started then. */
static bool run_probers(Prober *probers, int32_t n) {
  pthread_barrier_t barrier;
  if (pthread_barrier_init(&barrier, NULL, (unsigned)n)) return false;
  int32_t started = 1;
  for (int32_t i = 0; i < n; i++) probers[i].barrier = &barrier;
  while (started < n && !pthread_create(&probers[started].thread, NULL, probe_main, &probers[started])) started++;
  if (started == n) probe_main(&probers[0]);
  for (int32_t i = 1; i < started; i++) {
    if (started < n) pthread_cancel(probers[i].thread);
    pthread_join(probers[i].thread, NULL);
  }
  pthread_barrier_destroy(&barrier);
  return started == n;
}

bool probe_measure(const TargetInfo *target, int32_t threads, size_t bytes, Probe *probe) {
  int32_t n = threads < 1 ? 1 : threads > MOST_THREADS ? MOST_THREADS : threads;
  bytes = bytes < LEAST_BYTES ? LEAST_BYTES : bytes > MOST_BYTES ? MOST_BYTES : bytes;
  bytes = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
  size_t n_words = bytes / sizeof(uint64_t) / (size_t)n;
  Prober *probers = calloc((size_t)n, sizeof *probers);
  uint64_t *words = aligned_alloc(HUGE_PAGE, bytes);
  bool done = probers && words;
  if (words) madvise(words, bytes, MADV_HUGEPAGE); /* as packed weights have; only faster */
  for (int32_t i = 0; i < n && done; i++) {
    probers[i].lanes = target->vector_floats;
    probers[i].words = words + n_words * (size_t)i;
    probers[i].n_words = n_words;
  }
  done = done && run_probers(probers, n);
  *probe = (Probe){0};
  for (int32_t i = 0; i < n && done; i++) {
    probe->flops += probers[i].best.flops;
    probe->bytes += probers[i].best.bytes;
  }
  free(words);
  free(probers);
  return done;
}
