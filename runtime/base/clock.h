/* The clock of profiles and of waiting. It is monotonic: neither must depend on a clock that is set. */
#ifndef TFM_RUNTIME_CLOCK_H
#define TFM_RUNTIME_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

#endif
