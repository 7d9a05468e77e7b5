/* In: the rows of families, features and targets. Out: the tables, LLVM's list of features, choices among tiles. See
 * target.h. */
#include "target/target.h"

#include "base/check.h"

#include <elf.h>
#include <stddef.h>
#include <string.h>

enum { N_GEMM_TILES = sizeof ((TargetInfo *)0)->gemm_tiles / sizeof(TileShape) };
enum { N_PANEL_WIDTHS = 3 };

enum { OTHER = 0, IS_BASELINE = 1, IS_FOR_LIBRARIES = 2 };

#define TARGET(Name, Family, Cpu, Features, uses, vectors, whole, unroll, line, gemm, keys, ...) \
  {.name = Name,                                                                                        \
   .family = TFM_FAMILY_##Family,                                                                       \
   .llvm_cpu = Cpu,                                                                                     \
   .features = Features,                                                                                \
   .is_baseline = ((uses) & IS_BASELINE) != 0,                                                          \
   .is_for_libraries = ((uses) & IS_FOR_LIBRARIES) != 0,                                                \
   vectors,                                                                                             \
   whole,                                                                                               \
   unroll,                                                                                              \
   .cache_line = line,                                                                                  \
   .gemm_tiles = gemm,                                                                                  \
   .attention_keys = keys,                                                                              \
   .attention_value_widths = __VA_ARGS__},

const TargetInfo targets[] = {
#include "target/x86.def"
#include "target/wasm32.def"
#include "target/aarch64.def"
#include "target/riscv64.def"
    {.name = NULL},
};
#undef TARGET

const FamilyInfo cpu_families[] = {
#define FAMILY(Name, number, text, machine, llvm, backend, triple) {TFM_FAMILY_##Name, text, machine, llvm, triple},
#include "tfm/abi/families.def"
    {TFM_FAMILY_ANY, "another machine", EM_NONE, "unknown", "unknown"},
};

static const struct {
  tfm_family family;
  uint32_t bit;
  const char *llvm;
} features[] = {
#define FEATURE(Name, bit, text, llvm, ...) {TFM_FAMILY_X86_64, CPU_##Name, llvm},
#include "tfm/abi/features_x86.def"
#define FEATURE(Name, bit, text, llvm, ...) {TFM_FAMILY_AARCH64, CPU_##Name, llvm},
#include "tfm/abi/features_aarch64.def"
#define FEATURE(Name, bit, text, llvm) {TFM_FAMILY_RISCV64, CPU_##Name, llvm},
#include "tfm/abi/features_riscv64.def"
};
enum { N_FEATURES = sizeof features / sizeof *features };

const FamilyInfo *family_info(tfm_family family) {
  const FamilyInfo *row = cpu_families;
  while (row->family != family && row->family != TFM_FAMILY_ANY) row++;
  return row;
}

bool family_makes_modules(tfm_family family) { return family == TFM_FAMILY_WASM32; }

const FamilyInfo *target_family(const TargetInfo *target) { return family_info(target->family); }

void target_llvm_features(const TargetInfo *target, StrBuf *out) {
  const char *comma = "";
  for (size_t i = 0; i < N_FEATURES; i++)
    if (features[i].family == target->family && target->features & features[i].bit) {
      strbuf_printf(out, "%s+%s", comma, features[i].llvm);
      comma = ",";
    }
  if (target->llvm_features) strbuf_printf(out, "%s%s", comma, target->llvm_features);
}

/* A bit that no row has is lacking everywhere. */
const char *target_lacks(const TargetInfo *target, uint32_t present) {
  const uint32_t missing = target->features & ~present;
  for (size_t i = 0; i < N_FEATURES; i++)
    if (features[i].family == target->family && missing & features[i].bit) return features[i].llvm;
  return missing ? "a feature that tfmc does not know" : NULL;
}

const TargetInfo *target_find(const char *name) {
  for (const TargetInfo *target = targets; target->name; target++)
    if (strcmp(target->name, name) == 0) return target;
  return NULL;
}

const TargetInfo *target_baseline(const TargetInfo *target) {
  for (const TargetInfo *row = targets; row->name; row++)
    if (row->is_baseline && row->family == target->family) return row;
  UNREACHABLE("no row for the baseline of %s", target_family(target)->name);
}

const FamilyInfo *family_find(const char *triple) {
  for (const FamilyInfo *row = cpu_families; row->family != TFM_FAMILY_ANY; row++)
    if (strcmp(row->triple, triple) == 0) return row;
  return NULL;
}

const TargetInfo *target_for_libraries(tfm_family family) {
  for (const TargetInfo *row = targets; row->name; row++)
    if (row->is_for_libraries && row->family == family) return row;
  UNREACHABLE("no row for libraries of family %d", (int)family);
}

uint32_t target_wide_doubles(const TargetInfo *target) {
  return target->family == TFM_FAMILY_X86_64 ? target->vector_floats / 2 : 2;
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
static uint32_t panel_of(const uint32_t *widths, int64_t n) {
  uint32_t best = widths[0];
  for (size_t i = 1; i < N_PANEL_WIDTHS; i++)
    if (wasted_columns(n, widths[i]) < wasted_columns(n, best)) best = widths[i];
  return best;
}

uint32_t target_panel_width(int64_t n) { return panel_of((const uint32_t[N_PANEL_WIDTHS]){48, 64, 32}, n); }

/* Tiles of 32 columns have most rows. */
uint32_t target_mixed_panel_width(int64_t n) { return panel_of((const uint32_t[N_PANEL_WIDTHS]){64, 32, 48}, n); }

TileShape target_panel_tile(const TargetInfo *target, uint32_t panel) {
  for (size_t i = 0; i < N_GEMM_TILES && target->gemm_tiles[i].rows; i++)
    if (panel % target->gemm_tiles[i].width == 0) return target->gemm_tiles[i];
  UNREACHABLE("no tile of %s divides a panel of %u", target->name, panel);
}

TileShape target_tall_tile(const TargetInfo *target, uint32_t panel) {
  TileShape most = target_panel_tile(target, panel);
  for (size_t i = 0; i < N_GEMM_TILES && target->gemm_tiles[i].rows; i++)
    if (panel % target->gemm_tiles[i].width == 0 && target->gemm_tiles[i].rows > most.rows)
      most = target->gemm_tiles[i];
  most.rows = (uint8_t)(most.rows - most.rows / 4); /* what makes numbers of a group takes registers too */
  return most;
}

TileShape target_mixed_tile(const TargetInfo *target, uint32_t panel) {
  TileShape most = target_whole_tile(target, panel);
  for (size_t i = 0; i < N_GEMM_TILES && target->gemm_tiles[i].rows && !target->word_tile.rows; i++)
    if (panel % target->gemm_tiles[i].width == 0 && target->gemm_tiles[i].rows > most.rows)
      most = target->gemm_tiles[i];
  return most;
}

TileShape target_whole_tile(const TargetInfo *target, uint32_t panel) {
  if (target->dot_bytes && target->word_tile.rows) return target->word_tile;
  return target->dot_bytes || target->dot_pairs ? target_panel_tile(target, panel) : target->word_tile;
}
