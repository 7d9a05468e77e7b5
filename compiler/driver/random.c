#include "driver/random.h"

/* SplitMix64: a counter that is mixed. */
static uint64_t next(Random *random) {
  uint64_t z = random->state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

Random random_new(uint64_t seed, const char *name) {
  Random random = {seed};
  for (; *name; name++) random.state = next(&random) ^ (unsigned char)*name;
  return random;
}

uint64_t random_below(Random *random, uint64_t limit) { return next(random) % limit; }

float random_float(Random *random) { return (float)((int64_t)(next(random) >> 40) - (1 << 23)) * 0x1p-23f; }
