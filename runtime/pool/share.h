/* How threads share the units of a step. Each thread owns a contiguous share; one that has finished its own takes units
 * from the end of another's. Exactly one thread does each unit, and no number depends on which one it is.
 *
 * Units form a grid of `blocks` x `groups`, which a grid of threads, `down` x `across`, cuts into shares. A thread
 * walks its share block by block, and keeps most of it without claims where units are short. Claims are not reset
 * between steps: a slot with the serial of an earlier step counts as untouched, which saves a barrier. */
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
  uint32_t next;    /* the same after the present run: a thread on its way into that still begins with `serial` */
} Claims;

typedef struct Grid {
  int64_t blocks, groups;
  int32_t down, across;
} Grid;

typedef struct Share { /* of one thread */
  int64_t first_block, end_block, first_group, end_group;
} Share;

typedef struct Claimer { /* a thread in one step */
  Claims *claims;
  Grid grid;
  uint32_t serial;
  int32_t thread, threads, victim;
  int64_t next; /* of what needs no claims: all units of a thread that is alone, else those that it keeps */
  bool keeps;   /* units are short: owners keep three quarters of their parts, or all if these are small */
  Share own; /* as share_of_thread gives it */
} Claimer;

/* A grid for `threads`: across the groups if there are enough of them, else down the blocks too. */
Grid share_grid(int64_t blocks, int64_t groups, int32_t threads);
Share share_of_thread(const Grid *grid, int32_t thread);
/* How many consecutive units to treat as one, so that no thread's part has more than SHARE_MAX_UNITS. */
int64_t share_coarsen(int64_t units);
/* A thread at its beginning of a step, whose claims have the number `serial`. */
Claimer share_claimer(Claims *claims, uint32_t serial, int32_t thread, int32_t threads, int64_t blocks, int64_t groups);
/* The next unit for this thread; false if none is left. */
bool share_claim(Claimer *claimer, int64_t *block, int64_t *group);


#endif
