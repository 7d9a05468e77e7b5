/* Half: numbers of 16 bits, to and from f32.
 *
 * In: bits of an f16 (IEEE 754 binary16) or bf16 (the upper half of an f32), or an f32. Out: the f32 of the same value,
 * exactly; or the nearest number of 16 bits, of two that are equally near the even one. What is too large becomes
 * infinite, and NaN stays NaN, as in every conversion of IEEE 754. Refuses nothing. */
#ifndef TFM_BASE_HALF_H
#define TFM_BASE_HALF_H

#include <stdint.h>

float bf16_to_f32(uint16_t bits);
float f16_to_f32(uint16_t bits);
uint16_t f32_to_bf16(float value);
uint16_t f32_to_f16(float value);

#endif
