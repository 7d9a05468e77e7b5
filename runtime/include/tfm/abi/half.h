/* tfm/abi/half.h: numbers of 16 bits, to and from f32. C99.
 *
 * In: bits of an f16 (IEEE 754 binary16) or bf16 (the upper half of an f32), or an f32. Out: the f32 of the same value,
 * exactly; or the nearest number of 16 bits, of two that are equally near the even one. What is too large becomes
 * infinite, and NaN stays NaN, as in every conversion of IEEE 754. Refuses nothing. Everything is
 * done with integers, so that the result does not depend on the rounding mode or on what the CPU can convert. */
#ifndef TFM_ABI_HALF_H
#define TFM_ABI_HALF_H

#include <stdint.h>
#include <string.h>

static inline float half_float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static inline uint32_t half_bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline int half_is_nan(uint32_t bits) { return (bits & 0x7fffffff) > 0x7f800000; }

static inline int half_is_infinite(float value) { return (half_bits_of(value) & 0x7fffffff) == 0x7f800000; }

/* Drops the low `n` bits, 1 to 24 of them, and rounds to the nearest, in a tie to even. A carry out of the mantissa
 * raises the exponent, which is right, up to infinity. */
static inline uint32_t half_round_off(uint32_t bits, unsigned n) {
  const uint32_t half = 1u << (n - 1), dropped = bits & ((half << 1) - 1), kept = bits >> n;
  return kept + (dropped > half || (dropped == half && (kept & 1)));
}

// ---- bf16 ----

static inline float bf16_to_f32(uint16_t bits) { return half_float_of((uint32_t)bits << 16); }

/* Of a NaN the upper half is kept, with a bit of the mantissa set: else one whose bits are all in the lower half would
 * become infinite. */
static inline uint16_t f32_to_bf16(float value) {
  const uint32_t bits = half_bits_of(value);
  return (uint16_t)(half_is_nan(bits) ? bits >> 16 | 0x40 : half_round_off(bits, 16));
}

// ---- f16 ----

/* The exponent's bias is 15 in f16 and 127 in f32, hence 112. A subnormal is normal in f32: its leading 1 becomes the
 * implicit one, and the exponent falls by the number of places that it was shifted. */
static inline float f16_to_f32(uint16_t bits) {
  const uint32_t sign = (uint32_t)(bits >> 15) << 31, exponent = bits >> 10 & 31, mantissa = bits & 1023;
  if (exponent == 31) return half_float_of(sign | 0x7f800000u | mantissa << 13);
  if (exponent) return half_float_of(sign | (exponent + 112) << 23 | mantissa << 13);
  if (!mantissa) return half_float_of(sign);
  const unsigned shift = (unsigned)__builtin_clz(mantissa) - 21;
  return half_float_of(sign | (113 - shift) << 23 | (mantissa << (shift + 13) & 0x7fffff));
}

/* Below 2^-14 the result is subnormal: a multiple of 2^-24, so the implicit 1 is written out and shifted further the
 * smaller the exponent. Below 2^-25 nothing is left. */
static inline uint16_t f32_to_f16(float value) {
  const uint32_t bits = half_bits_of(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (half_is_nan(bits)) return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
  if (magnitude >= 143u << 23) return (uint16_t)(sign | 0x7c00); /* 2^16 and more, and infinity */
  if (magnitude >= 113u << 23) return (uint16_t)(sign | half_round_off(magnitude - (112u << 23), 13));
  const uint32_t exponent = magnitude >> 23;
  if (exponent < 102) return (uint16_t)sign;
  return (uint16_t)(sign | half_round_off((magnitude & 0x7fffff) | 0x800000, 126 - exponent));
}

/* Whether a finite number stays finite as f16. */
static inline int f16_holds(float value) { return half_is_infinite(value) || (f32_to_f16(value) & 0x7fff) != 0x7c00; }

#endif
