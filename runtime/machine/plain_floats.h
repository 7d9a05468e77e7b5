/* Operations on four f32 in the language of gcc and clang, for families whose compilers find their instructions. */
#ifndef TFM_RUNTIME_PLAIN_FLOATS_H
#define TFM_RUNTIME_PLAIN_FLOATS_H

#include <stdint.h>

typedef float Floats4 __attribute__((vector_size(16)));
typedef int32_t Ints4 __attribute__((vector_size(16)));

/* a > b ? a : b. A NaN in `a` gives b. */
static inline Floats4 larger_floats(Floats4 a, Floats4 b) {
  const Ints4 of_a = a > b;
  return (Floats4)((of_a & (Ints4)a) | (~of_a & (Ints4)b));
}

#endif
