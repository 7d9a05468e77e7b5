/* Tiles of bytes on the tile registers of a target that has them (TargetInfo.matrix). */
#ifndef TFM_KERNELS_MATRIX_TILE_H
#define TFM_KERNELS_MATRIX_TILE_H

#include "codegen/emitter.h"
#include "plan/kernel_spec.h"

void emit_matrix_tile(Emitter *e, const KernelSpec *spec, const char *name);

#endif
