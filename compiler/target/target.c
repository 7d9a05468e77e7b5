/* In: a name, or a number of columns. Out: a row of targets.def, one of its tiles, the width of a panel. */
#include "target/target.h"

#include "base/check.h"

#include <stddef.h>
#include <string.h>

enum { N_GEMM_TILES = sizeof ((TargetInfo *)0)->gemm_tiles / sizeof(TileShape) };

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

/* How many of the columns that n is rounded up to are none of n's. */
static int64_t wasted_columns(int64_t n, int64_t width) { return (width - n % width) % width; }

TileShape target_gemm_tile(const TargetInfo *target, int64_t n) {
  TileShape best = target->gemm_tiles[0];
  for (size_t i = 1; i < N_GEMM_TILES && target->gemm_tiles[i].rows; i++)
    if (wasted_columns(n, target->gemm_tiles[i].width) < wasted_columns(n, best.width)) best = target->gemm_tiles[i];
  return best;
}

uint32_t target_panel_width(int64_t n) {
  static const uint32_t widths[] = {48, 64, 32};
  uint32_t best = widths[0];
  for (size_t i = 1; i < sizeof widths / sizeof *widths; i++)
    if (wasted_columns(n, widths[i]) < wasted_columns(n, best)) best = widths[i];
  return best;
}

TileShape target_panel_tile(const TargetInfo *target, uint32_t panel) {
  for (size_t i = 0; i < N_GEMM_TILES && target->gemm_tiles[i].rows; i++)
    if (panel % target->gemm_tiles[i].width == 0) return target->gemm_tiles[i];
  UNREACHABLE("no tile of %s divides a panel of %u", target->name, panel);
}
