/* The library of hand_library.h. The tables of offsets stand in for those that aot/ emits from the same struct; the
 * layout is a pattern that no other library has by accident. */
#include "hand_library.h"

#include <stddef.h>
#include <string.h>

void hand_library(HandLibrary *made, const float *weights) {
  static const uint32_t symbols[] = {offsetof(LinearArgs, batch), offsetof(LinearArgs, time)};
  static const uint32_t inputs[] = {offsetof(LinearArgs, x), offsetof(LinearArgs, r), offsetof(LinearArgs, ids)};
  static const uint32_t outputs[] = {offsetof(LinearArgs, y)}, capacities[] = {offsetof(LinearArgs, y_capacity)};
  hand_linear(&made->hand);
  made->programs[0] = &made->hand.program;
  made->library = (tfm_library){.abi = TFM_LIBRARY_ABI,
                                .model = "linear",
                                .version = "0.0",
                                .n_programs = 1,
                                .programs = made->programs,
                                .args = {.struct_size = sizeof(LinearArgs), .symbols = symbols, .inputs = inputs,
                                         .outputs = outputs, .capacities = capacities, .number = 11},
                                .weights = weights,
                                .description = "{}"};
  memset(made->library.layout, 0x5a, sizeof made->library.layout);
}
