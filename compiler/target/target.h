/* TargetInfo: what code is generated for: vector width, registers, tiles, caches. No LLVM here; the host is read in
 * codegen/host. One row of targets.def per instruction set. */
#ifndef TFM_TARGET_TARGET_H
#define TFM_TARGET_TARGET_H

#include <stdbool.h>
#include <stdint.h>

typedef struct TileShape {
  uint8_t rows, width; /* most rows of a tile, its columns (floats) */
} TileShape;

typedef struct TargetInfo {
  const char *name;          /* "x86-64", "x86-64-v3", "x86-64-v4": what -march= takes */
  const char *llvm_triple;   /* "x86_64-unknown-linux-gnu" */
  const char *llvm_cpu;      /* the baseline that code may rely on */
  const char *llvm_features; /* "+avx512f,..." */
  uint32_t vector_floats;    /* 4, 8, 16: floats in one register */
  uint32_t vector_registers;
  bool has_fma;              /* else products are rounded before they are added */
  TileShape gemm_tiles[3];   /* in order of preference; rows 0: unused */
  TileShape attention_keys;  /* tile of q kT */
  uint32_t attention_value_widths[3]; /* widths of tiles of p v; the first that divides e is taken; 0: unused */
  uint32_t l1_bytes, l2_bytes;
} TargetInfo;

extern const TargetInfo targets[]; /* ends with a row whose name is NULL; from the least to the most */

/* By name; NULL if there is none. */
const TargetInfo *target_find(const char *name);
/* The tile for a product of n columns: the first whose width divides n, else the one that wastes least. */
TileShape target_gemm_tile(const TargetInfo *target, int64_t n);
/* Columns of a panel of packed weights with n columns: the same on every target, so that they share the weights. */
uint32_t target_panel_width(int64_t n);
/* The tile that walks such a panel: the first whose width divides it. */
TileShape target_panel_tile(const TargetInfo *target, uint32_t panel);

#endif
