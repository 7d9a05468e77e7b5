/* What threads share, and what they share apart: units of a step, each taken once, the last of a part by its owner;
 * buffers, of which small ones lie only where their like lie. */
#include <criterion/criterion.h>

#include "context/binding.h"
#include "machine/processors.h"

enum { BLOCKS = 3, GROUPS = 8 };

static Claimer claimer_of(Claims *claims, int32_t thread) {
  const Grid grid = share_grid(BLOCKS, GROUPS, 2);
  return (Claimer){.claims = claims, .grid = grid, .serial = 1, .thread = thread, .threads = 2,
                   .own = share_of_thread(&grid, thread)};
}

/* Takes all that is left for the thread; counts[block][group] rise. */
static int take_all(Claimer *claimer, int counts[BLOCKS][GROUPS]) {
  int n = 0;
  for (int64_t block, group; share_claim(claimer, &block, &group); n++) counts[block][group]++;
  return n;
}

Test(runtime_shares, each_unit_is_taken_once_and_the_last_of_a_part_by_its_owner) {
  ClaimSlot slots[2] = {0};
  Claims claims = {.slots = slots};
  Claimer first = claimer_of(&claims, 0), second = claimer_of(&claims, 1);
  int counts[BLOCKS][GROUPS] = {{0}};
  cr_assert_eq(take_all(&second, counts), BLOCKS * GROUPS - 1);
  cr_assert_eq(counts[0][0], 0, "a thread that is late has its first unit still");
  cr_assert_eq(take_all(&first, counts), 1);
  for (int block = 0; block < BLOCKS; block++)
    for (int group = 0; group < GROUPS; group++) cr_assert_eq(counts[block][group], 1);
}

/* Of one block: each thread has half of the groups. */
static Claimer keeper_of(Claims *claims, int64_t groups, int32_t thread) {
  const Grid grid = share_grid(1, groups, 2);
  return (Claimer){.claims = claims, .grid = grid, .serial = 1, .thread = thread, .threads = 2, .keeps = true,
                   .own = share_of_thread(&grid, thread)};
}

/* The units that thread 1 gets if thread 0 has not begun yet; then thread 0 gets the others, its own first. Each is
 * taken once. */
static int first_come(int64_t groups) {
  ClaimSlot slots[2] = {0};
  Claims claims = {.slots = slots};
  Claimer first = keeper_of(&claims, groups, 0), second = keeper_of(&claims, groups, 1);
  int counts[64] = {0}, n = 0;
  int64_t block, group, left = 0;
  for (; share_claim(&second, &block, &group); n++) counts[group]++;
  for (; share_claim(&first, &block, &group); left++) {
    cr_assert_eq(group, left);
    counts[group]++;
  }
  for (int64_t i = 0; i < groups; i++) cr_assert_eq(counts[i], 1);
  return n;
}

Test(runtime_shares, a_thread_keeps_most_of_its_short_units) {
  cr_assert_eq(first_come(8), 4, "all four of a small part");
  cr_assert_eq(first_come(14), 7);
  cr_assert_eq(first_come(16), 8 + 1, "of the last two of eight, one");
  cr_assert_eq(first_come(64), 32 + 7);
}

// ---- buffers ----

enum { N_BUFFERS = 4 };

/* Two layers of a product and then a norm, whose results are never live together but with the next one's. */
static const tfm_step steps[] = {{.kind = TFM_STEP_GEMM}, {.kind = TFM_STEP_ROW}, {.kind = TFM_STEP_GEMM},
                                 {.kind = TFM_STEP_ROW}, {.kind = TFM_STEP_GEMM}};
static const tfm_buffer buffers[N_BUFFERS] = {{.elements = 0, .first_step = 0, .last_step = 1},
                                              {.elements = 0, .first_step = 1, .last_step = 2},
                                              {.elements = 0, .first_step = 2, .last_step = 3},
                                              {.elements = 1, .first_step = 3, .last_step = 4}};

/* The offsets of buffers of `floats` floats, the last one of twice as many. Returns the bytes of all. */
static int64_t place(int64_t floats, int32_t threads, int64_t offsets[N_BUFFERS]) {
  int64_t values[] = {floats, 2 * floats}, bytes[N_BUFFERS] = {0};
  uint32_t order[N_BUFFERS];
  BufferLife lives[N_BUFFERS];
  const tfm_program program = {.n_buffers = N_BUFFERS, .buffers = buffers, .n_steps = 5, .steps = steps};
  tfm_context context = {.program = &program, .threads = threads};
  context.binding.values = values;
  context.memory = (Memory){.buffer_bytes = bytes, .buffer_offsets = offsets, .buffer_order = order, .lives = lives};
  cr_assert_geq(memory_measure(&context, 0, 1), 0);
  return context.memory.buffers_bytes;
}

Test(runtime_shares, small_buffers_lie_only_where_their_like_lie) {
  int64_t offsets[N_BUFFERS], apart = place(1024, 2, offsets);
  cr_assert_eq(apart, 4 * 4096);
  cr_assert_eq(offsets[0], offsets[2], "results of products of two layers");
  cr_assert_neq(offsets[0], offsets[1]);
  cr_assert_geq(offsets[0], 8192, "the largest one lies at the front, where none is like it");
  cr_assert_eq(place(1024, 1, offsets), 3 * 4096, "one thread finds all lines near");
}

Test(runtime_shares, large_buffers_share_all_memory) {
  int64_t offsets[N_BUFFERS], floats = cpu_cache_bytes(2) / 4 * 2;
  cr_assert_eq(place(floats, 2, offsets), 3 * 4 * floats);
}
