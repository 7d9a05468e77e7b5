/* How the units of a step are shared by the threads: each has a contiguous part; who has finished takes units from the
 * end of another's. Every unit is done by exactly one thread; which one makes no difference to any number.
 *
 * Units form a grid of `blocks` x `groups`. Threads form a grid too, `down` x `across`, which cuts it. A thread walks its
 * part block by block. Claims need no reset between steps: a slot that carries another serial counts as untouched. */
#ifndef TFM_RUNTIME_SHARE_H
#define TFM_RUNTIME_SHARE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
  SHARE_MAX_UNITS = (1 << 20) - 1, /* of one thread; see share_coarsen */
  SHARE_MAX_SERIAL = (1 << 24) - 1
};

typedef struct ClaimSlot {
  _Alignas(64) _Atomic uint64_t state; /* serial, first unit left, end of the units left */
} ClaimSlot;

typedef struct Claims {
  ClaimSlot *slots; /* one per thread */
  uint32_t serial;  /* of the last step that used them, carried from run to run */
  uint32_t next;    /* the same after the present run: a thread may still be on its way into it, and begins with `serial` */
} Claims;

typedef struct Grid {
  int64_t blocks, groups;
  int32_t down, across;
} Grid;

typedef struct Part { /* of one thread */
  int64_t first_block, end_block, first_group, end_group;
} Part;

typedef struct Claimer { /* a thread in one step */
  Claims *claims;
  Grid grid;
  uint32_t serial;
  int32_t thread, threads, victim;
  int64_t next; /* alone: no claims needed */
} Claimer;

/* A grid for `threads`: across the groups if there are enough of them, else down the blocks too. */
Grid share_grid(int64_t blocks, int64_t groups, int32_t threads);
Part share_part(const Grid *grid, int32_t thread);
/* How many consecutive units must be one so that a thread's part has at most SHARE_MAX_UNITS. */
int64_t share_coarsen(int64_t units);
/* The next unit for this thread; false if none is left. */
bool share_claim(Claimer *claimer, int64_t *block, int64_t *group);

#endif
