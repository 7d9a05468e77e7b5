/* A compiled library made by hand: hand_linear with an args struct, as the compiler would emit them. It tests the C
 * interface of libraries (offsets of members, capacities, layouts) without compiling anything. */
#ifndef TFM_TESTS_HAND_LIBRARY_H
#define TFM_TESTS_HAND_LIBRARY_H

#include "hand_models.h"
#include "tfm/abi/library.h"

typedef struct LinearArgs {
  size_t struct_size;
  int64_t batch, time;
  const float *x, *r;
  const int32_t *ids;
  float *y;
  int64_t y_capacity;
} LinearArgs;

typedef struct HandLibrary {
  HandProgram hand;
  const tfm_program *programs[1];
  tfm_library library;
} HandLibrary;

/* `weights`: embedded; NULL: none. */
void hand_library(HandLibrary *library, const float *weights);

#endif
