/* In: the rows of targets.def. Out: the table, and choices among its tiles. See target.h. */
#include "target/target.h"

#include "base/check.h"

#include <stddef.h>
#include <string.h>

enum { N_GEMM_TILES = sizeof ((TargetInfo *)0)->gemm_tiles / sizeof(TileShape) };

enum { OTHER = false, IS_BASELINE = true };

#define TARGET(Name, Triple, Cpu, Features, baseline, vectors, whole, unroll, line, gemm, keys, values) \
  {.name = Name,                                                                                        \
   .llvm_triple = Triple,                                                                               \
   .llvm_cpu = Cpu,                                                                                     \
   .llvm_features = Features,                                                                           \
   .is_baseline = baseline,                                                                             \
   vectors,                                                                                             \
   whole,                                                                                               \
   unroll,                                                                                              \
   .cache_line = line,                                                                                  \
   .gemm_tiles = gemm,                                                                                  \
   .attention_keys = keys,                                                                              \
   .attention_value_widths = values},

const TargetInfo targets[] = {
#include "target/targets.def"
    {.name = NULL},
};

const TargetInfo *target_find(const char *name) {
  for (const TargetInfo *target = targets; target->name; target++)
    if (strcmp(target->name, name) == 0) return target;
  return NULL;
}

const TargetInfo *target_baseline(const TargetInfo *target) {
  for (const TargetInfo *row = targets; row->name; row++)
    if (row->is_baseline && strcmp(row->llvm_triple, target->llvm_triple) == 0) return row;
  UNREACHABLE("no row for the baseline of %s", target->llvm_triple);
}

bool target_masks(const TargetInfo *target, unsigned bytes) {
  for (size_t i = 0; i < sizeof target->masked_bytes; i++)
    if (target->masked_bytes[i] == bytes) return true;
  return false;
}

/* Columns that are computed for nothing when n is rounded up to a multiple of `width`. */
static int64_t wasted_columns(int64_t n, int64_t width) { return (width - n % width) % width; }

/* Columns that are computed for nothing are the only cost that is compared; a tie goes to the tile that stands first
 * in the table, which is the faster one. */
TileShape target_gemm_tile(const TargetInfo *target, int64_t n) {
  TileShape best = target->gemm_tiles[0];
  for (size_t i = 1; i < N_GEMM_TILES && target->gemm_tiles[i].rows; i++)
    if (wasted_columns(n, target->gemm_tiles[i].width) < wasted_columns(n, best.width)) best = target->gemm_tiles[i];
  return best;
}

/* 48 comes first because the best tile of AVX-512 has that width. Every width here is a multiple of 16, so that the
 * tiles of the other targets walk a panel in whole steps. */
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

TileShape target_whole_tile(const TargetInfo *target, uint32_t panel) {
  return target->dot_bytes || target->dot_pairs ? target_panel_tile(target, panel) : target->word_tile;
}
