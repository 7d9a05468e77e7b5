/* Steps that work on rows: generated kernels over blocks of rows of a tensor with any number of outer axes; rows that
 * become whole numbers. In: operands over the axes of the step, which rows are live. Out: operand 0, or rows of whole
 * numbers (abi/kernels.h). Refuses nothing.
 *
 * Pointwise steps and reductions along columns are cut over rows (pointwise ones over columns too when there are
 * fewer rows than threads); reductions along rows are cut over outer axes and columns. Where only some rows are live,
 * threads share these. Rows are computed alike wherever they are cut, so no cut changes a bit. */
#include <string.h>

#include "machine/processors.h"
#include "steps/epilogue.h"

enum {
  COLUMN_CUT = 64,    /* columns are cut at multiples of this, so that threads share no cache line of a result */
  LONG_CUT = 512      /* of a reduction along rows: what its kernel takes together */
};

typedef struct RowWork {
  const tfm_row_step *step;
  Epilogue kernel; /* and its operands */
  int64_t outer, rows, columns;
  LiveRows live;
} RowWork;

/* A block of one outer index; the kernel walks its rows and columns. */
static void run_block(const Walker *walker, const RowWork *work, const RowPlace *at, int64_t rows, int64_t columns) {
  tfm_row_args args;
  args.rows = rows;
  args.columns = columns;
  args.faults = walker->faults;
  row_place_block(walker->context, &args, &work->kernel, 0, at);
  work->kernel.kernel(&args);
}

/* Rows [first, end) of all outer axes and the row axis taken as one, columns [column, column + columns). */
static void run_rows(const Walker *walker, const RowWork *work, int64_t first, int64_t end, int64_t column,
                     int64_t columns) {
  while (first < end) {
    const RowPlace at = {first / work->rows, first % work->rows, column};
    const int64_t rows = least_of(work->rows - at.row, end - first);
    run_block(walker, work, &at, rows, columns);
    first += rows;
  }
}

/* Part number `part` of `parts` of the columns: from a multiple of COLUMN_CUT to one, or to the end. */
static int64_t column_cut(int64_t columns, int64_t part, int64_t parts) {
  return part == parts ? columns : columns * part / parts / COLUMN_CUT * COLUMN_CUT;
}

/* Columns are cut only where rows alone would leave threads idle, and never below a reduction along them. */
static void share_rows(const Walker *walker, const RowWork *work) {
  int64_t total = work->outer * work->rows, parts = 1;
  if (work->step->reduce == 0 && total < walker->threads)
    parts = greatest_of(1, least_of(walker->threads / total, work->columns / COLUMN_CUT));
  if (parts == 1) {
    const RowShare share = rows_of_thread(walker, &work->live, total);
    run_rows(walker, work, share.first, share.end, 0, work->columns);
    return;
  }
  int64_t units = total * parts, first = units * walker->thread / walker->threads,
          end = units * (walker->thread + 1) / walker->threads;
  for (int64_t unit = first; unit < end; unit++) {
    int64_t column = column_cut(work->columns, unit % parts, parts);
    int64_t columns = column_cut(work->columns, unit % parts + 1, parts) - column;
    run_rows(walker, work, unit / parts, unit / parts + 1, column, columns);
  }
}

/* Columns need not be neighbours: a result may lie as its reader wants it. */
__attribute__((cold, noinline)) static void clear_columns(const tfm_row_operand *row, int64_t columns, uint8_t bytes) {
  const bool are_neighbours = row->column_stride == bytes;
  for (int64_t i = 0; i < (are_neighbours ? 1 : columns); i++)
    memset(row->base + i * row->column_stride, 0, (size_t)(are_neighbours ? columns * bytes : bytes));
}

/* Row number `row` of all outer axes and the row axis taken as one becomes 0. */
__attribute__((cold)) static void clear_row(const Walker *walker, const RowWork *work, int64_t row) {
  tfm_row_args args;
  const uint8_t second = work->step->second;
  const RowPlace at = {row / work->rows, row % work->rows, 0};
  row_place_block(walker->context, &args, &work->kernel, 0, &at);
  clear_columns(&args.operands[0], work->columns, work->kernel.operands[0].bytes);
  if (second) clear_columns(&args.operands[second], work->columns, work->kernel.operands[second].bytes);
}

/* Rows that are not live are cleared by position, live ones shared by number, so that each thread computes equally
 * many. */
static void share_live_rows(const Walker *walker, const RowWork *work) {
  const int64_t total = work->outer * work->rows;
  RowShare share = rows_of_thread(walker, &work->live, total);
  int64_t row = share.row, first, rows;
  for (; work->live.zeroed && (rows = live_run(&work->live, false, row, share.end_row, &first)) > 0; row = first + rows)
    for (int64_t i = first; i < first + rows; i++) clear_row(walker, work, i);
  while (share.cursor.before < share.end) {
    rows = live_next(&work->live, &share.cursor, total, share.end - share.cursor.before, &first);
    run_rows(walker, work, first, first + rows, 0, work->columns);
  }
}

/* One that writes rows (softmax) reads them again, which should still be in the second-level cache then. */
static int64_t columns_together(const RowWork *work) {
  if (work->kernel.operands[0].strides[work->step->rank - 2] == 0) return LONG_CUT;
  int64_t near = cpu_cache_bytes(2) / 4 / (int64_t)sizeof(float) / greatest_of(1, work->rows);
  return greatest_of(COLUMN_CUT, least_of(LONG_CUT, near / COLUMN_CUT * COLUMN_CUT));
}

/* A reduction along rows is one chain from the first row to the last, so the row axis is never cut. */
__attribute__((cold)) static void share_columns(const Walker *walker, const RowWork *work) {
  int64_t parts = greatest_of(ceil_div(walker->threads, work->outer), ceil_div(work->columns, columns_together(work)));
  parts = greatest_of(1, least_of(parts, work->columns / COLUMN_CUT));
  int64_t units = work->outer * parts, first = units * walker->thread / walker->threads,
          end = units * (walker->thread + 1) / walker->threads;
  for (int64_t unit = first; unit < end; unit++) {
    int64_t column = column_cut(work->columns, unit % parts, parts);
    int64_t columns = column_cut(work->columns, unit % parts + 1, parts) - column;
    run_block(walker, work, &(RowPlace){unit / parts, 0, column}, work->rows, columns);
  }
}

void step_row(Walker *walker, const tfm_step *step) {
  const tfm_context *context = walker->context;
  const tfm_row_step *row = &context->program->rows[step->index];
  RowWork work = {.step = row,
                  .kernel = epilogue_of(context, row->kernel, row->rank, row->n_operands, row->first_operand,
                                        row->dims),
                  .outer = 1,
                  .rows = value_of(context, row->dims[row->rank - 2]),
                  .columns = value_of(context, row->dims[row->rank - 1]),
                  .live = live_rows_of(context, &operands_of(context, step)->row.mask, row->live)};
  for (int axis = 0; axis < row->rank - 2; axis++) work.outer *= value_of(context, row->dims[axis]);
  /* A reduction over nothing still has results. */
  bool empty = work.outer <= 0 || (row->reduce != 2 && work.rows <= 0) || (row->reduce != 1 && work.columns <= 0);
  if (empty) return;
  live_unless_all(&work.live, work.outer * work.rows);
  if (row->reduce == 2)
    share_columns(walker, &work);
  else if (work.live.mask)
    share_live_rows(walker, &work);
  else
    share_rows(walker, &work);
}

// ---- rows of whole numbers ----

int64_t quantize_scratch_bytes(const tfm_context *context, const tfm_step *step) {
  const int64_t columns = context->program->quantizes[step->index].k;
  return ceil_div(columns, ALIGNMENT / (int64_t)sizeof(float)) * ALIGNMENT;
}

/* What products of whole numbers read in place of rows of f32. Threads share rows as those of row steps do, so that
 * such a step may be joined to one. */
void step_quantize(Walker *walker, const tfm_step *step) {
  const tfm_context *context = walker->context;
  const tfm_quantize_step *info = &context->program->quantizes[step->index];
  const struct quantize_operands *operands = &operands_of(context, step)->quantize;
  const char *x = operand_address(context, &operands->x);
  char *c = operand_address(context, &operands->c);
  tfm_quantize_kernel kernel = KERNEL_OF(tfm_quantize_kernel, context, info->kernel);
  const int64_t rows = value_of(context, info->dims[0]);
  LiveRows live = live_rows_of(context, &operands->mask, info->live);
  live_unless_all(&live, rows);
  RowShare share = rows_of_thread(walker, &live, rows);
  int64_t row = share.first, n = share.end - row;
  do {
    if (live.mask) n = live_next(&live, &share.cursor, rows, share.end - share.cursor.before, &row);
    kernel((const float *)(const void *)(x + row * operands->x.strides[0]), operands->x.strides[0], n,
           (float *)(void *)walker->scratch, c + row * operands->c.strides[0], operands->c.strides[0]);
  } while (live.mask && share.cursor.before < share.end);
}
