/* Random: numbers that depend on a seed, a name and a position alone, the same on every machine. */
#ifndef TFM_DRIVER_RANDOM_H
#define TFM_DRIVER_RANDOM_H

#include <stdint.h>

typedef struct Random {
  uint64_t state;
} Random;

Random random_new(uint64_t seed, const char *name);
/* In [0, limit); limit > 0. */
uint64_t random_below(Random *random, uint64_t limit);
/* In [-1, 1), a multiple of 2^-23: exact in f32. */
float random_float(Random *random);

#endif
