/* Vectors of x86-64: SSE2, AVX2, AVX-512. See wide.h. */
#ifndef TFM_RUNTIME_X86_WIDE_H
#define TFM_RUNTIME_X86_WIDE_H

#include <immintrin.h>

#define MOST_WIDE 8

#define TARGET_2
#define MULTIPLY_2(x, y) ((Words_2)_mm_mul_epu32((__m128i)(x), (__m128i)(y)))
#define WIDEN_2(x) __builtin_convertvector(x, Words_2)
#define NARROW_2(x) __builtin_convertvector(x, Halves_2)
#define DOUBLES_2(x) __builtin_convertvector(x, Doubles_2)

#define TARGET_4 __attribute__((target("avx2")))
#define MULTIPLY_4(x, y) ((Words_4)_mm256_mul_epu32((__m256i)(x), (__m256i)(y)))
#define WIDEN_4(x) ((Words_4)_mm256_cvtepu32_epi64((__m128i)(x)))
#define NARROW_4(x) __builtin_convertvector(x, Halves_4)
#define DOUBLES_4(x) __builtin_convertvector(x, Doubles_4)

#define TARGET_8 __attribute__((target("avx512f,avx512dq,avx512vl")))
#define MULTIPLY_8(x, y) ((Words_8)_mm512_mul_epu32((__m512i)(x), (__m512i)(y)))
#define WIDEN_8(x) ((Words_8)_mm512_cvtepu32_epi64((__m256i)(x)))
#define NARROW_8(x) ((Halves_8)_mm512_cvtepi64_epi32((__m512i)(x)))
#define DOUBLES_8(x) ((Doubles_8)_mm512_cvtps_pd((__m256)(x)))

#endif
