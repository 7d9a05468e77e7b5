/* Tiles: every gemm tile of the instruction set, warm: its panel in the L2 cache, on one thread, against the probe of
 * arithmetic. As in the runtime, one panel of weights is taken through all rows before the next. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiling.h"
#include "jit/jit.h"
#include "subject.h"

enum { ROWS = 96, K = TFM_K_BLOCK, A_STRIDE = K + 16, MOST_WIDTH = 64 };

typedef struct Tile {
  tfm_tile_kernel kernel;
  TileShape shape;
  const float *a, *b;
  float *c;
} Tile;

/* One panel of weights through all rows: the panel stays in the L2 cache, as in a product. */
static void run(void *context) {
  const Tile *tile = context;
  for (int row = 0; row + tile->shape.rows <= ROWS; row += tile->shape.rows)
    tile->kernel(tile->a + row * A_STRIDE, tile->b, tile->c, tile->shape.width, K, 0, tile->shape.width, tile->b, 0);
}

static double flops_of(const Tile *tile) {
  return 2.0 * K * tile->shape.width * tile->shape.rows * (double)(ROWS / tile->shape.rows);
}

static double least(void *context, const Probe *probe) { return flops_of(context) / probe->flops; }

/* The tiles as kernels of a plan that has no graph. */
static Plan *plan_tiles(Arena *arena, const TargetInfo *target) {
  Plan *plan = ARENA_NEW(arena, Plan);
  *plan = (Plan){.arena = arena, .target = target};
  for (size_t i = 0; i < sizeof target->gemm_tiles / sizeof *target->gemm_tiles; i++)
    for (uint8_t rows = target->gemm_tiles[i].rows; rows >= 1; rows--) {
      uint8_t width = target->gemm_tiles[i].width;
      KernelSpec spec = {.family = KERNEL_TILE, .rows = rows, .width = width, .a_stride = A_STRIDE, .b_stride = width,
                         .chain = TFM_SHORT_CHAIN}; /* as products have */
      const char *name = arena_printf(arena, "tile_%dx%d", rows, width);
      vec_push(arena, &plan->kernels, ((PlannedKernel){.spec = spec, .name = name}));
    }
  return plan;
}

/* 64-byte aligned, small and different numbers; the arena aligns to less. */
static float *numbers(Arena *arena, size_t n) {
  float *x = ARENA_ARRAY(arena, float, n + 16);
  x += (64 - (uintptr_t)x % 64) / sizeof *x % 16; /* arenas align to less */
  for (size_t i = 0; i < n; i++) x[i] = (float)(i % 31) / 31 - 0.5f;
  return x;
}

bool tile_subjects(Bench *bench) {
  Diag diag = diag_new(bench->arena);
  const Plan *plan = plan_tiles(bench->arena, bench->target);
  Jit *jit = jit_create(bench->arena, &diag, plan, NULL, NULL); /* until the program ends */
  if (!jit) {
    print_messages(&diag);
    return false;
  }
  const float *a = numbers(bench->arena, ROWS * A_STRIDE), *b = numbers(bench->arena, K * MOST_WIDTH);
  float *c = numbers(bench->arena, 16 * MOST_WIDTH);
  for (size_t i = 0; i < plan->kernels.n; i++) {
    const KernelSpec *spec = &plan->kernels.items[i].spec;
    Tile *tile = ARENA_NEW(bench->arena, Tile);
    *tile = (Tile){.shape = {spec->rows, spec->width}, .a = a, .b = b, .c = c};
    memcpy(&tile->kernel, &jit_program(jit)->kernels[i], sizeof tile->kernel);
    char name[32];
    snprintf(name, sizeof name, "tile %dx%d", spec->rows, spec->width);
    Subject *subject = subject_add(bench, "tiles", name, 1, 0);
    subject_runs(subject, run, least, tile, flops_of(tile), 0);
  }
  return true;
}
