/* In: a matmul step, the sizes of a run. Out: how it is cut. See matmul_cut.h. */
#include "steps/matmul_cut.h"

#include "machine/processors.h"
#include "machine/tuning.h"
#include "steps/partial_sums.h"

_Static_assert(TFM_CHAIN % TFM_KEY_BLOCK == 0, "a chain is whole blocks");

/* Packed panels of a group: with a strip they stay in the second-level cache. */
static int64_t group_bytes(void) { return cpu_cache_bytes(2) / GROUP_PART; }

/* The least number from n to `most` of which `others` times as many can be shared out evenly; n if there is none. */
static int64_t evenly(int64_t n, int64_t others, int64_t most, int32_t threads) {
  for (int64_t i = n; i <= most; i++)
    if (i * others % threads == 0) return i;
  return n;
}

/* Cuts results into groups of panels and units of strips. Each further group reads x once more, each further part of
 * the strips packs y once more; so there are as few as may be, but as many for each thread. Few strips are not cut. */
static void cut_units(Matmul *m, int64_t groups, int64_t parts, int32_t threads) {
  if (threads > 1 && m->items * groups * parts < EVEN_UNITS * (int64_t)threads) {
    const int64_t most = greatest_of(parts, m->strips / LEAST_UNIT_STRIPS);
    const int64_t most_groups = most < threads ? m->panels : least_of(m->panels, MOST_MORE_GROUPS * groups);
    groups = evenly(groups, m->items * parts, most_groups, threads);
    const int64_t units = m->items * groups;
    const int64_t least = (m->by_blocks ? LEAST_PACKING_UNITS : LEAST_UNITS) * (int64_t)threads;
    parts = least_of(most, greatest_of(parts, ceil_div(least, greatest_of(1, units))));
    parts = evenly(parts, units, most, threads);
  }
  m->groups = groups;
  m->panels_per_group = ceil_div(m->panels, groups);
  m->strip_units = parts;
}

/* How many results of a unit may wait; all of them if none do. */
static int64_t most_waiting(const Matmul *m) {
  if (m->k > m->chain) return MOST_WAITING_SUMS;
  return m->step->in_order && m->k > TFM_COUNTED_CHAIN ? MOST_OPEN_SUMS : INT64_MAX;
}

/* The same if k is done block by block: the panels of a unit stay near for a block, and, if there are several chains,
 * not too much waits. */
static void cut_blocks(Matmul *m, int32_t threads) {
  const int64_t near = group_bytes() / (int64_t)sizeof(float) / m->k_block / m->step->width;
  int64_t groups = greatest_of(1, ceil_div(m->panels, greatest_of(1, near))), parts = 1;
  for (const int64_t most = most_waiting(m); most < INT64_MAX;) {
    const int64_t columns = ceil_div(m->panels, groups) * m->step->width;
    const int64_t rows = ceil_div(m->strips, parts) * m->step->tile_rows;
    const bool can_group = groups < m->panels, can_part = m->strips / (parts + 1) >= LEAST_UNIT_STRIPS;
    if (rows * columns <= most || (!can_group && !can_part)) break;
    if (can_group && (!can_part || m->rows * groups < 2 * m->columns * parts))
      groups++;
    else
      parts++;
  }
  cut_units(m, groups, parts, threads);
}

Matmul matmul_of(const tfm_context *context, const tfm_step *step, int32_t threads) {
  const tfm_matmul_step *info = &context->program->matmuls[step->index];
  const struct matmul_operands *operands = &operands_of(context, step)->matmul;
  Matmul m = {.step = info,
              .x = &operands->x,
              .y = &operands->y,
              .c = &operands->c,
              .pack = KERNEL_OF(tfm_pack_kernel, context, info->pack),
              .batch = items_of(context, info->dims, info->rank - 2),
              .rows = value_of(context, info->dims[info->rank - 2]),
              .columns = value_of(context, info->dims[info->rank - 1]),
              .k = value_of(context, info->k)};
  m.items = items_count(&m.batch);
  m.strips = ceil_div(m.rows, info->tile_rows);
  m.panels = greatest_of(1, ceil_div(m.columns, info->width));
  m.is_direct = info->direct > TFM_DIRECT_COLUMNS || (info->direct && m.columns <= info->direct_columns);
  m.chain = info->in_order ? greatest_of(m.k, TFM_CHAIN) : TFM_CHAIN;
  m.goes_on = info->in_order == TFM_ORDER_GOES_ON && context->run.goes_on;
  m.live = live_rows_of(context, &operands->mask, info->live);
  const int64_t near = group_bytes() / (int64_t)sizeof(float), least = LEAST_K_BLOCKS * TFM_KEY_BLOCK;
  m.by_blocks = !m.is_direct &&
                ((m.k >= LONG_K_BLOCKS * TFM_KEY_BLOCK && m.rows * m.columns <= near / NEAR_RESULTS_PART) ||
                 m.k >= greatest_of(least, near / (FEW_PANELS * info->width)));
  /* Scratch is measured before operands have their addresses and distances. */
  m.is_sideways = info->x_stays && value_of(context, info->x.strides[info->rank - 2]) == 1;
  const int64_t block = m.by_blocks && m.is_sideways ? SIDEWAYS_BLOCK : TFM_KEY_BLOCK;
  m.packed_k = m.strips == 1 || m.is_direct || m.by_blocks ? least_of(m.k, block) : m.k;
  m.k_block = info->x_stays && m.packed_k == m.k && m.k <= TFM_K_BLOCK ? m.k : block;
  m.y_stays = info->y_stays || (m.columns == info->width && m.y->bytes == sizeof(float) &&
                                m.y->strides[info->rank - 1] == sizeof(float) &&
                                m.y->strides[info->rank - 2] == info->width * (int64_t)sizeof(float));
  const int64_t panel_bytes = greatest_of(1, m.packed_k * info->width * (int64_t)sizeof(float));
  const int64_t most = greatest_of(1, group_bytes() / panel_bytes); /* panels */
  if (m.by_blocks) cut_blocks(&m, threads);
  else cut_units(&m, info->direct == TFM_DIRECT_LINES ? 1 : ceil_div(m.panels, most), 1, threads);
  m.epilogue = epilogue_of(context, info->epilogue, info->rank, info->n_operands, info->first_operand, info->dims);
  return m;
}

char *matmul_item(const tfm_context *context, const Matmul *m, const Operand *operand, int64_t item) {
  return items_address(context, &m->batch, operand, item);
}

int64_t matmul_waiting_floats(const Matmul *m) {
  const int64_t strips = m->by_blocks ? ceil_div(m->strips, m->strip_units) : 1;
  return strips * m->step->tile_rows * m->panels_per_group * m->step->width;
}

int64_t matmul_chain_floats(const Matmul *m) {
  if (m->step->in_order) return m->k > TFM_COUNTED_CHAIN ? matmul_waiting_floats(m) : 0;
  return m->step->adds_chains ? m->step->tile_rows * m->panels_per_group * m->step->width : 0;
}

int64_t matmul_counted_bytes(const Matmul *m) {
  const int64_t chains = m->k / TFM_COUNTED_CHAIN + 2;
  return m->step->in_order ? round_up(chains * (int64_t)sizeof(CountedChain), ALIGNMENT) : 0;
}

/* A strip of x, a chain, what waits, and the panels of a group; -1 where k is too large to count. */
int64_t matmul_scratch_bytes(const tfm_context *context, const tfm_step *step) {
  Matmul m = matmul_of(context, step, 1);
  if (m.k < 0 || m.k > INT64_MAX / 4096) return -1;
  if (m.step->direct == TFM_DIRECT_ONE_ROW) return 0;
  int64_t panel = round_up(m.packed_k * m.step->width, ALIGNMENT / (int64_t)sizeof(float)), floats;
  if (__builtin_mul_overflow(panel, m.panels_per_group, &floats)) return -1;
  floats += partial_levels(m.k) * matmul_waiting_floats(&m) + matmul_chain_floats(&m);
  return (floats + (int64_t)m.step->tile_rows * TFM_STRIP_STRIDE) * (int64_t)sizeof(float) + matmul_counted_bytes(&m);
}
