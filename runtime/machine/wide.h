/* Vectors of 2, 4 and 8 numbers of 64 bits, as wide as code for some features may use them: what functions for them are
 * marked with (TARGET_n), and operations that compilers do not find by themselves. MULTIPLY_n gives the products of the
 * low halves of 64-bit words, WIDEN_n words from their halves side by side, NARROW_n the low halves of words,
 * DOUBLES_n f64 of as many f32. MOST_WIDE is how many such numbers the widest have here. */
#ifndef TFM_RUNTIME_WIDE_H
#define TFM_RUNTIME_WIDE_H

#if defined(__x86_64__)
#include "machine/x86_wide.h"
#else
#define MOST_WIDE 2
#define TARGET_2
#define TARGET_4
#define TARGET_8
#define MULTIPLY_2(x, y) (((x) & UINT32_MAX) * (y))
#define WIDEN_2(x) __builtin_convertvector(x, Words_2)
#define NARROW_2(x) __builtin_convertvector(x, Halves_2)
#define DOUBLES_2(x) __builtin_convertvector(x, Doubles_2)
#endif

#endif
