/* In: how much work. Out: the time it takes, by way of the caller's clock. */
#include "driver/probe_loops.h"

#if defined(__x86_64__)
#include <immintrin.h>

/* Named variables, since compilers may keep an array in memory. */
#define EACH_CHAIN(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)
#define EACH_LOAD(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)

#define CHAINS_FUNCTION(name, Vector, splat, STEP, first)             \
  static float name(int64_t n) {                                     \
    const Vector x = splat(0.999f), y = splat(1e-6f);                \
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

float probe_chains(uint32_t lanes, int64_t n) {
  return lanes == 16 ? chains_of_16(n) : lanes == 8 ? chains_of_8(n) : chains_of_4(n);
}

uint64_t probe_read(uint32_t lanes, const char *bytes, size_t size) {
  return lanes == 16 ? read_by_16(bytes, size) : lanes == 8 ? read_by_8(bytes, size) : read_by_4(bytes, size);
}

#else

float probe_chains(uint32_t lanes, int64_t n) {
  float sums[PROBE_CHAINS * 16] = {0};
  for (int64_t step = 0; step < n; step++)
    for (uint32_t i = 0; i < PROBE_CHAINS * lanes; i++) sums[i] = sums[i] * 0.999f + 1e-6f;
  return sums[0];
}

uint64_t probe_read(uint32_t lanes, const char *bytes, size_t size) {
  const uint64_t *words = (const uint64_t *)(const void *)bytes;
  uint64_t sums[8] = {lanes};
  for (size_t i = 0; i + 8 <= size / sizeof *words; i += 8)
    for (size_t j = 0; j < 8; j++) sums[j] ^= words[i + j];
  for (size_t j = 1; j < 8; j++) sums[0] ^= sums[j];
  return sums[0];
}

#endif
