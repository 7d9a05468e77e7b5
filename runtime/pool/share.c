/* In: a grid of units, a thread. Out: its next unit. Refuses nothing.
 *
 * Shares of a step: each thread owns a range of units in one atomic word (serial, first, end) and takes from its front;
 * a thread that has none left takes from the end of another's range. A compare-and-swap moves either end, so each unit
 * is taken exactly once. See share.h. */
#include "pool/share.h"

#include "machine/tuning.h"

enum { UNIT_BITS = 20 };

Grid share_grid(int64_t blocks, int64_t groups, int32_t threads) {
  Grid grid = {.blocks = blocks, .groups = groups, .down = 1, .across = threads};
  if (groups >= threads) return grid;
  while (threads % grid.across || grid.across > groups) grid.across--;
  grid.down = threads / grid.across;
  return grid;
}

/* Parts differ by at most one block and one group. */
Share share_of_thread(const Grid *grid, int32_t thread) {
  int64_t column = thread % grid->across, row = thread / grid->across;
  return (Share){.first_block = grid->blocks * row / grid->down,
                .end_block = grid->blocks * (row + 1) / grid->down,
                .first_group = grid->groups * column / grid->across,
                .end_group = grid->groups * (column + 1) / grid->across};
}

int64_t share_coarsen(int64_t units) { return units / SHARE_MAX_UNITS + 1; }

Claimer share_claimer(Claims *claims, uint32_t serial, int32_t thread, int32_t threads, int64_t blocks,
                      int64_t groups) {
  const Grid grid = share_grid(blocks, groups, threads);
  return (Claimer){.claims = claims, .grid = grid, .serial = serial, .thread = thread, .threads = threads,
                   .own = share_of_thread(&grid, thread)};
}

/* Units of a share: blocks times groups. */
static int64_t share_units(const Share *share) {
  return (share->end_block - share->first_block) * (share->end_group - share->first_group);
}

/* Units are numbered block by block, so that a thread uses what it loaded for a block for all its groups. */
static void share_unit(const Share *share, int64_t number, int64_t *block, int64_t *group) {
  int64_t width = share->end_group - share->first_group;
  *block = share->first_block + number / width;
  *group = share->first_group + number % width;
}

/* How many units of a share its owner does without claiming them. Where units are short, claiming each costs more than
 * evening out all of a share gains (bench/notes.md); the last quarter still lets a thread be slower than others. */
static int64_t kept_units(const Claimer *claimer, int64_t units) {
  return !claimer->keeps ? 0 : units < LEAST_SHARED ? units : units - units / 4;
}

/* Takes one unit of `owner`: the first if it is the thread's own, else the last. -1: none is left. */
static int64_t take(Claimer *claimer, int32_t owner, int64_t units) {
  const uint64_t mask = (1u << UNIT_BITS) - 1, from = (uint64_t)kept_units(claimer, units);
  const bool own = owner == claimer->thread;
  if (own && (uint64_t)claimer->next < from) return claimer->next++;
  if (from == (uint64_t)units) return -1;
  _Atomic uint64_t *slot = &claimer->claims->slots[owner].state;
  uint64_t state = atomic_load_explicit(slot, memory_order_relaxed);
  for (;;) {
    bool current = state >> (2 * UNIT_BITS) == claimer->serial;
    uint64_t first = current ? state >> UNIT_BITS & mask : from, end = current ? state & mask : (uint64_t)units;
    if (first + !own >= end) return -1; /* the last one is its owner's */
    uint64_t taken = own ? first++ : --end;
    uint64_t wanted = (uint64_t)claimer->serial << (2 * UNIT_BITS) | first << UNIT_BITS | end;
    if (atomic_compare_exchange_weak_explicit(slot, &state, wanted, memory_order_relaxed, memory_order_relaxed))
      return (int64_t)taken;
  }
}

/* One thread needs no atomics, and walks all units in order. */
static bool claim_alone(Claimer *claimer, int64_t *block, int64_t *group) {
  Share all = {0, claimer->grid.blocks, 0, claimer->grid.groups};
  if (claimer->next >= share_units(&all)) return false;
  share_unit(&all, claimer->next++, block, group);
  return true;
}

/* The thread's own share first (victim 0), then those of the threads after it. A share that was seen empty stays empty
 * for this step, so it is not looked at again. */
bool share_claim(Claimer *claimer, int64_t *block, int64_t *group) {
  if (claimer->threads == 1) return claim_alone(claimer, block, group);
  for (; claimer->victim < claimer->threads; claimer->victim++) {
    int32_t owner = (claimer->thread + claimer->victim) % claimer->threads;
    if (owner >= claimer->grid.across * claimer->grid.down) continue;
    const Share share = claimer->victim ? share_of_thread(&claimer->grid, owner) : claimer->own;
    int64_t units = share_units(&share);
    int64_t unit = units ? take(claimer, owner, units) : -1;
    if (unit < 0) continue;
    share_unit(&share, unit, block, group);
    return true;
  }
  return false;
}
