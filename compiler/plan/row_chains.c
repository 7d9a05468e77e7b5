/* Chains of rows: neighbouring steps through which a thread may take some rows without waiting for the others
 * (tfm_row_chain).
 *
 * In: the steps of a plan and their operands. Out: its chains. A step belongs to a chain if it is a product of whole
 * numbers, the rounding of its rows, or pointwise work or a norm on rows that are one axis; if it computes the same
 * rows as the rest of the chain; and if every memory that it shares with another step of the chain, of which one
 * writes, is met row by row by both. Refused: steps before one that can report a fault, after which no output may have
 * been written, and chains without a product. */
#include "plan/row_chains.h"

#include "plan/plan_live.h"

typedef struct Access { /* of a step to memory: rows of it, one for each row of the step */
  uint8_t space;
  uint32_t index;
  bool writes;
  int64_t offset, stride, width; /* bytes; stride 0: not one row for each row of the step */
} Access;

enum { MOST_ACCESSES = TFM_MAX_OPERANDS + 3 };

typedef struct RowStep { /* a step as a chain sees it */
  tfm_size rows;
  uint32_t live;
  bool is_product;
  uint32_t n;
  Access accesses[MOST_ACCESSES];
} RowStep;

// ---- what a step reads and writes ----

/* Rows of `width` elements; 0, or without static distances: it counts as memory of any row. */
static void add_access(const Planner *p, RowStep *step, const tfm_operand *operand, int64_t width, bool writes) {
  if (operand->space != TFM_SPACE_BUFFER && operand->space != TFM_SPACE_OUTPUT) return;
  Access access = {.space = operand->space, .index = operand->index, .writes = writes};
  const int64_t bytes = operand->dtype == TFM_BOOL ? 1 : 4;
  int64_t offset, stride;
  const bool is_static =
      plan_static_size(p, operand->offset, &offset) && plan_static_size(p, operand->strides[0], &stride);
  if (is_static && width > 0 && !operand->gathered) {
    access.offset = offset * bytes;
    access.stride = stride * bytes;
    access.width = width * bytes;
  }
  step->accesses[step->n++] = access;
}

/* Operands of a row kernel over [rows, columns], of which number 0 and number `second` (0: none) are written. */
static bool add_operands(const Planner *p, RowStep *step, uint32_t first, uint8_t n, tfm_size columns, uint8_t second) {
  int64_t width, column;
  if (!plan_static_size(p, columns, &width)) return false;
  for (uint8_t i = 0; i < n; i++) {
    const tfm_operand *operand = &p->operands.items[first + i];
    if (!plan_static_size(p, operand->strides[1], &column)) return false;
    add_access(p, step, operand, column < 0 ? 0 : (width - 1) * column + 1, i == 0 || (second && i == second));
  }
  return true;
}

static bool read_row(const Planner *p, const tfm_row_step *row, RowStep *step) {
  *step = (RowStep){.rows = row->dims[0], .live = row->live};
  return row->rank == 2 && row->reduce != 2 &&
         add_operands(p, step, row->first_operand, row->n_operands, row->dims[1], row->second);
}

static bool read_gemm(const Planner *p, const tfm_gemm_step *gemm, RowStep *step) {
  *step = (RowStep){.rows = gemm->rows, .live = gemm->live, .is_product = true};
  if (!tfm_form_has_whole_rows(gemm->form) || gemm->rank != 2 || gemm->dims[0] != gemm->rows) return false;
  add_access(p, step, &gemm->a, 1, false);
  add_access(p, step, &gemm->c, gemm->n, true);
  return add_operands(p, step, gemm->first_operand, gemm->n_operands, gemm->dims[1], 0);
}

static bool read_quantize(const Planner *p, const tfm_quantize_step *quantize, RowStep *step) {
  *step = (RowStep){.rows = quantize->dims[0], .live = quantize->live};
  add_access(p, step, &quantize->x, quantize->k, false);
  add_access(p, step, &quantize->c, 1, true);
  return true;
}

static bool read_step(const Planner *p, const tfm_step *info, RowStep *step) {
  bool has_rows = false;
  if (info->prepare) return false;
  if (info->kind == TFM_STEP_ROW) has_rows = read_row(p, &p->rows.items[info->index], step);
  if (info->kind == TFM_STEP_GEMM) has_rows = read_gemm(p, &p->gemms.items[info->index], step);
  if (info->kind == TFM_STEP_QUANTIZE) has_rows = read_quantize(p, &p->quantizes.items[info->index], step);
  if (has_rows && step->live) add_access(p, step, &p->live.items[step->live - 1].mask, 0, false); /* as a whole */
  return has_rows;
}

// ---- chains ----

/* Rows of one distance, none of which reaches into the next one. */
static bool are_same_rows(const Access *a, const Access *b) {
  return a->stride > 0 && a->stride == b->stride && a->offset >= 0 && b->offset >= 0 &&
         a->offset + a->width <= a->stride && b->offset + b->width <= b->stride;
}

static bool disturbs(const RowStep *a, const RowStep *b) {
  for (uint32_t i = 0; i < a->n; i++)
    for (uint32_t j = 0; j < b->n; j++) {
      const Access *one = &a->accesses[i], *other = &b->accesses[j];
      const bool is_shared = one->space == other->space && one->index == other->index && (one->writes || other->writes);
      if (is_shared && !are_same_rows(one, other)) return true;
    }
  return false;
}

static bool may_follow(const Planner *p, const RowStep *chain, uint32_t n, const RowStep *step) {
  if (step->rows != chain[0].rows || !live_are_same(p, step->live, chain[0].live)) return false;
  for (uint32_t i = 0; i < n; i++)
    if (disturbs(&chain[i], step)) return false;
  return true;
}

/* Steps [first, first + n): a chain if there are several and one of them is a product. */
static void add_chain(Planner *p, const RowStep *chain, uint32_t first, uint32_t n) {
  uint32_t product = 0;
  while (product < n && !chain[product].is_product) product++;
  if (n < 2 || product == n) return;
  vec_push(p->arena, &p->row_chains, (tfm_row_chain){first, n, first + product});
}

void find_row_chains(Planner *p) {
  RowStep *chain = ARENA_ARRAY(p->arena, RowStep, p->steps.n), step;
  uint32_t n = 0, i = p->first_safe_step;
  for (; i < p->steps.n; i++) {
    const bool has_rows = read_step(p, &p->steps.items[i], &step);
    if (!has_rows || (n && !may_follow(p, chain, n, &step))) {
      add_chain(p, chain, i - n, n);
      n = 0;
    }
    if (has_rows) chain[n++] = step;
  }
  add_chain(p, chain, i - n, n);
}
