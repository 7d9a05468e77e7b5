/* In: a name, or a number of columns. Out: a row of targets.def, or one of its tiles. */
#include "target/target.h"

#include <stddef.h>
#include <string.h>

#define TARGET(Name, Triple, Cpu, Features, Floats, Registers, Fma, Gemm, Keys, Values, L1, L2)                     \
  {.name = Name,                                                                                                    \
   .llvm_triple = Triple,                                                                                           \
   .llvm_cpu = Cpu,                                                                                                 \
   .llvm_features = Features,                                                                                       \
   .vector_floats = Floats,                                                                                         \
   .vector_registers = Registers,                                                                                   \
   .has_fma = Fma,                                                                                                  \
   .gemm_tiles = Gemm,                                                                                              \
   .attention_keys = Keys,                                                                                          \
   .attention_value_widths = Values,                                                                                \
   .l1_bytes = L1,                                                                                                  \
   .l2_bytes = L2},

const TargetInfo targets[] = {
#include "target/targets.def"
    {.name = NULL},
};

const TargetInfo *target_find(const char *name) {
  for (const TargetInfo *target = targets; target->name; target++)
    if (strcmp(target->name, name) == 0) return target;
  return NULL;
}

TileShape target_gemm_tile(const TargetInfo *target, int64_t n) {
  TileShape best = target->gemm_tiles[0];
  int64_t least = INT64_MAX;
  for (size_t i = 0; i < sizeof target->gemm_tiles / sizeof *target->gemm_tiles; i++) {
    TileShape tile = target->gemm_tiles[i];
    if (!tile.rows) break;
    int64_t wasted = (tile.width - n % tile.width) % tile.width;
    if (wasted < least) {
      least = wasted;
      best = tile;
    }
  }
  return best;
}
