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
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "tfm/abi/tiles.h"

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

/* Each chain is a variable of its own, since compilers may keep an array in memory. */
#define EACH_CHAIN(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)
#define EACH_LOAD(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)

#define CHANGED(vector) __asm__ volatile("" : "+v"(vector));

#define CHAINS_FUNCTION(name, Number, Vector, splat, a, b, STEP, first) \
  static Number name(int64_t n) {                                    \
    Vector x = splat(a), y = splat(b);                               \
    EACH_CHAIN(DECLARE_##name)                                       \
    for (int64_t step = 0; step < n; step++) { EACH_CHAIN(STEP) }    \
    Vector sum = y;                                                  \
    EACH_CHAIN(SUM_##name)                                           \
    return first(sum);                                               \
  }

#define READ_FUNCTION(name, Vector, zero)                                              \
  static uint64_t name(const char *bytes, size_t size) {                               \
    union {                                                                            \
      Vector vector;                                                                   \
      uint64_t word;                                                                   \
    } result = {zero()};                                                               \
    EACH_LOAD(DECLARE_##name)                                                          \
    for (const char *end = bytes + size; bytes < end; bytes += 8 * sizeof(Vector)) {   \
      const Vector *v = (const Vector *)(const void *)bytes;                           \
      EACH_LOAD(LOAD_##name)                                                           \
    }                                                                                  \
    EACH_LOAD(SUM_##name)                                                              \
    return result.word;                                                                \
  }

#define DECLARE_chains_of_16(i) __m512 s##i = _mm512_set1_ps((float)i);
#define STEP_16(i) s##i = _mm512_fmadd_ps(s##i, x, y);
#define SUM_chains_of_16(i) sum = _mm512_add_ps(sum, s##i);
__attribute__((target("avx512f")))
CHAINS_FUNCTION(chains_of_16, float, __m512, _mm512_set1_ps, 0.999f, 1e-6f, STEP_16, _mm512_cvtss_f32)

#define DECLARE_chains_of_8(i) __m256 s##i = _mm256_set1_ps((float)i);
#define STEP_8(i) s##i = _mm256_fmadd_ps(s##i, x, y);
#define SUM_chains_of_8(i) sum = _mm256_add_ps(sum, s##i);
__attribute__((target("avx2,fma")))
CHAINS_FUNCTION(chains_of_8, float, __m256, _mm256_set1_ps, 0.999f, 1e-6f, STEP_8, _mm256_cvtss_f32)

#define DECLARE_chains_of_4(i) __m128 s##i = _mm_set1_ps((float)i);
#define STEP_4(i) s##i = _mm_add_ps(_mm_mul_ps(s##i, x), y);
#define SUM_chains_of_4(i) sum = _mm_add_ps(sum, s##i);
CHAINS_FUNCTION(chains_of_4, float, __m128, _mm_set1_ps, 0.999f, 1e-6f, STEP_4, _mm_cvtss_f32)

#define DECLARE_bytes_of_16(i) __m512i s##i = _mm512_set1_epi32(i);
#define STEP_bytes_of_16(i) s##i = _mm512_dpbusd_epi32(s##i, x, y);
#define SUM_bytes_of_16(i) sum = _mm512_add_epi32(sum, s##i);
__attribute__((target("avx512f,avx512vnni")))
CHAINS_FUNCTION(bytes_of_16, int32_t, __m512i, _mm512_set1_epi32, 0x01010101, 1, STEP_bytes_of_16, _mm512_cvtsi512_si32)

#define DECLARE_pairs_of_16(i) __m512i s##i = _mm512_set1_epi32(i);
#define STEP_pairs_of_16(i) \
  CHANGED(x) s##i = _mm512_add_epi32(s##i, _mm512_madd_epi16(_mm512_maddubs_epi16(x, y), x)); CHANGED(s##i)
#define SUM_pairs_of_16(i) sum = _mm512_add_epi32(sum, s##i);
__attribute__((target("avx512f,avx512bw")))
CHAINS_FUNCTION(pairs_of_16, int32_t, __m512i, _mm512_set1_epi32, 0x01010101, 1, STEP_pairs_of_16, _mm512_cvtsi512_si32)

#define DECLARE_bytes_of_8(i) __m256i s##i = _mm256_set1_epi32(i);
#define STEP_bytes_of_8(i) s##i = _mm256_dpbusd_avx_epi32(s##i, x, y);
#define SUM_bytes_of_8(i) sum = _mm256_add_epi32(sum, s##i);
__attribute__((target("avx2,avxvnni")))
CHAINS_FUNCTION(bytes_of_8, int32_t, __m256i, _mm256_set1_epi32, 0x01010101, 1, STEP_bytes_of_8, _mm256_cvtsi256_si32)

#define DECLARE_pairs_of_8(i) __m256i s##i = _mm256_set1_epi32(i);
#define STEP_pairs_of_8(i) \
  CHANGED(x) s##i = _mm256_add_epi32(s##i, _mm256_madd_epi16(_mm256_maddubs_epi16(x, y), x)); CHANGED(s##i)
#define SUM_pairs_of_8(i) sum = _mm256_add_epi32(sum, s##i);
__attribute__((target("avx2")))
CHAINS_FUNCTION(pairs_of_8, int32_t, __m256i, _mm256_set1_epi32, 0x01010101, 1, STEP_pairs_of_8, _mm256_cvtsi256_si32)

#define DECLARE_words_of_4(i) __m128i s##i = _mm_set1_epi32(i);
#define STEP_words_of_4(i) CHANGED(x) s##i = _mm_add_epi32(s##i, _mm_madd_epi16(x, y)); CHANGED(s##i)
#define SUM_words_of_4(i) sum = _mm_add_epi32(sum, s##i);
CHAINS_FUNCTION(words_of_4, int32_t, __m128i, _mm_set1_epi32, 0x01010101, 1, STEP_words_of_4, _mm_cvtsi128_si32)

#define DECLARE_read_by_16(i) __m512i s##i = _mm512_setzero_si512();
#define LOAD_read_by_16(i) s##i = _mm512_xor_si512(s##i, _mm512_load_si512(v + i));
#define SUM_read_by_16(i) result.vector = _mm512_xor_si512(result.vector, s##i);
__attribute__((target("avx512f")))
READ_FUNCTION(read_by_16, __m512i, _mm512_setzero_si512)

#define DECLARE_read_by_8(i) __m256i s##i = _mm256_setzero_si256();
#define LOAD_read_by_8(i) s##i = _mm256_xor_si256(s##i, _mm256_load_si256(v + i));
#define SUM_read_by_8(i) result.vector = _mm256_xor_si256(result.vector, s##i);
__attribute__((target("avx2")))
READ_FUNCTION(read_by_8, __m256i, _mm256_setzero_si256)

#define DECLARE_read_by_4(i) __m128i s##i = _mm_setzero_si128();
#define LOAD_read_by_4(i) s##i = _mm_xor_si128(s##i, _mm_load_si128(v + i));
#define SUM_read_by_4(i) result.vector = _mm_xor_si128(result.vector, s##i);
READ_FUNCTION(read_by_4, __m128i, _mm_setzero_si128)

static float run_chains(uint32_t lanes, int64_t n) {
  return lanes == 16 ? chains_of_16(n) : lanes == 8 ? chains_of_8(n) : chains_of_4(n);
}

static int32_t run_dots(uint32_t lanes, Dot dot, int64_t n) {
  if (lanes == 16) return dot == DOT_BYTES ? bytes_of_16(n) : pairs_of_16(n);
  if (lanes == 8) return dot == DOT_BYTES ? bytes_of_8(n) : pairs_of_8(n);
  return words_of_4(n);
}

/* Products of tile registers into four of them: as many steps as take about as long as those of vectors. */
enum { TILE_PRODUCTS = 16 * 16 * 64, TILE_SUMS = 4, TILE_SHARE = 8 };
__attribute__((target("amx-tile,amx-int8")))
static int32_t run_tiles(int64_t n) {
  int32_t sums[16 * 16];
  tfm_tiles_begin();
  _tile_zero(4);
  _tile_zero(5);
  for (int64_t step = 0; step < n / TILE_SHARE; step++) {
    _tile_dpbsud(0, 4, 5);
    _tile_dpbsud(1, 4, 5);
    _tile_dpbsud(2, 4, 5);
    _tile_dpbsud(3, 4, 5);
  }
  _tile_stored(0, sums, 64);
  tfm_tiles_end();
  return sums[0];
}

static uint64_t read_memory(uint32_t lanes, const char *bytes, size_t size) {
  return lanes == 16 ? read_by_16(bytes, size) : lanes == 8 ? read_by_8(bytes, size) : read_by_4(bytes, size);
}

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

/* Reads PIECE_BYTES from where the last piece ended, going round in the thread's memory. */
static void read_piece(Prober *prober) {
  for (size_t left = PIECE_BYTES; left;) {
    size_t n = prober->n_bytes - prober->at;
    if (n > left) n = left;
    prober->word_sink = read_memory(prober->lanes, prober->bytes + prober->at, n);
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

/* As many pieces as it takes to read all of the thread's memory once, so a share that is larger than the caches is
 * never read from them. */
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
