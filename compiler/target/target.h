/* TargetInfo: what code is generated for. One row of x86.def, aarch64.def, riscv64.def or wasm32.def per instruction
 * set.
 *
 * In: a name, or the number of columns of a product. Out: a row of the table, one of its tiles, the width of a panel.
 * Nothing here knows LLVM but its names; codegen/ looks at the
 * host. Refuses nothing: a name that is not in the table gives NULL. Rows are constants that nobody owns.
 *
 * Whatever plan and kernels must know about an instruction set is a column. They never ask for its name or guess one
 * property from another: a target with 16 floats in a register need not have masks. */
#ifndef TFM_TARGET_TARGET_H
#define TFM_TARGET_TARGET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/strbuf.h"
#include "tfm/abi/cpu.h"

typedef struct TileShape {
  uint8_t rows, width; /* the most rows of a tile; its columns, in floats */
} TileShape;

/* Tile registers: each takes 64 bytes of so many rows. Names are LLVM's. Without setup: products of two rows by two
 * columns, 8 bytes of each, those of columns unsigned, added to four numbers of a vector; tiles have so many rows. */
typedef struct MatrixInfo {
  uint8_t rows;       /* 0: there are none */
  uint8_t least_rows; /* of tiles that take them; 0: more than those in vectors have */
  const char *setup, *zero, *load, *dot, *store;
} MatrixInfo;

typedef struct FamilyInfo { /* a row of tfm/abi/families.def */
  tfm_family family;
  const char *name;
  uint16_t elf_machine;
  const char *llvm_triple;
  const char *triple; /* what users call it by */
} FamilyInfo;

typedef struct TargetInfo {
  const char *name;          /* what -march= takes */
  tfm_family family;
  const char *llvm_cpu;      /* the baseline that code may rely on */
  uint32_t features;         /* what it may rely on besides: bits of the family */
  const char *llvm_features; /* what LLVM is told beside those: "+x,-y"; NULL: nothing */
  bool is_baseline;          /* every CPU of the family runs it */
  bool is_for_libraries;     /* libraries of the family are made for it unless users say otherwise */
  uint32_t vector_floats;    /* floats in one register */
  bool converts_f16;         /* an instruction widens f16; if not, kernels do it with integers */
  bool has_fma;              /* if not, products are rounded before they are added */
  const char *fma_of_register; /* LLVM's name of a product and sum of one register of numbers; NULL: llvm.fma, of any */
  uint8_t masked_bytes[4];   /* sizes of elements that masked loads and stores take; 0: unused */
  const char *dot_bytes;     /* LLVM's name of acc += x w, of four neighbouring bytes each; NULL: there is none */
  bool dot_is_signed;        /* both of dot_bytes are signed; if not, the first one is unsigned */
  const char *dot_pairs;     /* of x w + x w, of two neighbouring bytes each, cut to a word; NULL: there is none */
  const char *dot_words;     /* of x w + x w, of two neighbouring words each; NULL: it is made of their parts */
  TileShape word_tile;       /* of products of words, or of bytes where it is given; its width divides every panel */
  MatrixInfo matrix;
  const char *look_up;       /* of lanes of a register of 16, by the lowest 4 bits of others; NULL: there is none */
  const char *look_up_bytes; /* the same of each 16 bytes of a register, by others below 16; NULL: there is none */
  const char *scalef;        /* LLVM's name of a * 2^n; NULL: there is none */
  const char *reciprocal;    /* of an estimate of 1/a, within 2^-14; NULL: there is none */
  const char *rounded_fma;   /* of a fused product and sum with a rounding mode; NULL: there is none */
  const char *range;         /* of the lesser of two magnitudes; NULL: there is none */
  uint8_t row_unroll, long_row_unroll, softmax_unroll; /* vectors of 16 lanes that are computed together */
  uint8_t exact_tile_vectors; /* registers of a row that an exact tile computes together; 0: all */
  uint8_t tile_turn;          /* steps of k of a tile that are one turn of its loop; 0: TILE_TURN of the tuning */
  bool lacks_prefetch;        /* no instruction asks for a line ahead */
  bool reads_whole_panels; /* tiles of few rows of f32 or INT8 are as wide as their panel: lines follow one another */
  bool fetches_lines;         /* tiles fetch whole lines of a panel TILE_LINES_AHEAD ahead, as measured with AVX-512 */
  uint32_t cache_line;        /* bytes */
  TileShape gemm_tiles[3];    /* in order of preference; rows 0: unused */
  TileShape attention_keys;   /* tile of q kT */
  uint32_t attention_value_widths[3]; /* of tiles of p v: the first that divides e; 0: unused */
} TargetInfo;

extern const TargetInfo targets[]; /* from the least to the most; ends with a row whose name is NULL */

/* By name; NULL if there is none. */
const TargetInfo *target_find(const char *name);
const FamilyInfo *family_info(tfm_family family);
const FamilyInfo *target_family(const TargetInfo *target);
/* The list of features that LLVM takes, "+avx,+avx2". */
void target_llvm_features(const TargetInfo *target, StrBuf *out);
/* The first of the target's features that `features`, a mask of its family, lacks, as LLVM calls it; NULL: none. */
const char *target_lacks(const TargetInfo *target, uint32_t features);
/* The baseline of the target's family. */
const TargetInfo *target_baseline(const TargetInfo *target);
/* The family that users call by this triple; NULL if there is none. The list ends with TFM_FAMILY_ANY. */
const FamilyInfo *family_find(const char *triple);
extern const FamilyInfo cpu_families[];
/* Whether code of the family goes into WebAssembly modules, whose pointers have 4 bytes, and not into ELF files. */
bool family_makes_modules(tfm_family family);
/* What a library of a family is made for unless users say otherwise. */
const TargetInfo *target_for_libraries(tfm_family family);
/* Doubles that functions of the runtime take together in code for the target: a register of x86-64, two elsewhere
 * (runtime/machine/wide.h). */
uint32_t target_wide_doubles(const TargetInfo *target);
/* Whether loads and stores of elements of this size can be masked. */
bool target_masks(const TargetInfo *target, unsigned bytes);
/* Returns the tile for a product of n columns: the first whose width divides n, else the one that computes the fewest
 * columns for nothing. */
TileShape target_gemm_tile(const TargetInfo *target, int64_t n);
/* Returns how many columns a panel of packed weights with n columns has: the same on every target, so that one file of
 * packed weights serves all instruction sets of a library. */
uint32_t target_panel_width(int64_t n);
uint32_t target_mixed_panel_width(int64_t n); /* of mixed forms */
/* Returns the tile that walks such a panel: the first whose width divides the panel. Narrower tiles take turns on
 * it. */
TileShape target_panel_tile(const TargetInfo *target, uint32_t panel);
/* The one with most rows, less a part: for weights whose numbers are made for all rows of a tile at some cost. */
TileShape target_tall_tile(const TargetInfo *target, uint32_t panel);
/* The same for whole numbers of products with weights. */
TileShape target_whole_tile(const TargetInfo *target, uint32_t panel);
/* The same of mixed forms: what numbers of weights are made of is worth it for as many rows as there can be. */
TileShape target_mixed_tile(const TargetInfo *target, uint32_t panel);

#endif
