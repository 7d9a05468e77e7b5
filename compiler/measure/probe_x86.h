/* The inner loops of the probe in instructions of x86-64: SSE, AVX, VNNI, AMX. probe.c includes this, and says what
 * each takes and gives. */
#ifndef TFM_MEASURE_PROBE_X86_H
#define TFM_MEASURE_PROBE_X86_H

#include <immintrin.h>

#include "tfm/abi/tiles.h"

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

#endif
