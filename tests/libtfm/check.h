/* Checks for plain programs: each failed one is said, and counted. */
#ifndef TESTS_LIBTFM_CHECK_H
#define TESTS_LIBTFM_CHECK_H

#include <stdio.h>

static int n_passed, n_failed;

#define CHECK(condition, ...)                                     \
  do {                                                            \
    if (condition) {                                              \
      n_passed++;                                                 \
    } else {                                                      \
      n_failed++;                                                 \
      printf("FAIL %s:%d: %s: ", __FILE__, __LINE__, #condition); \
      printf(__VA_ARGS__);                                        \
      printf("\n");                                               \
    }                                                             \
  } while (0)

/* Prints the sum and gives the exit code. */
static inline int end_of_checks(void) {
  printf("%d passed, %d failed\n", n_passed, n_failed);
  return n_failed > 0;
}

#endif
