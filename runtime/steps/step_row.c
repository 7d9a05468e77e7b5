/* Steps that work on rows: generated kernels over blocks of rows of a tensor with any number of outer axes, the same
 * kernels as epilogues of products, and the tables of sines and cosines.
 *
 * Pointwise steps and reductions along columns are cut over rows (pointwise ones over columns too when there are
 * fewer rows than threads); reductions along rows are cut over outer axes and columns. Where only some rows are live,
 * threads share these. Rows are computed alike wherever they are cut, so no cut changes a bit. */
#include "steps/live.h"

#include <math.h>
#include <string.h>

#include "machine/features.h"
#include "steps/walker.h"

// ---- live rows: once a step, so what is cold here is small rather than fast ----

LiveRows live_rows_of(const tfm_context *context, const Operand *mask, uint32_t number) {
  return number ? live_rows_at(context, number, operand_address(context, mask), 1) : (LiveRows){0};
}

static bool is_live(const LiveRows *live, int64_t row) {
  return (live->mask[row * live->stride] != 0) == live->where;
}

bool live_all(const char *bytes, int64_t stride, int64_t n, bool value) {
  if (stride == 1) return (*bytes != 0) == value && !memcmp(bytes, bytes + 1, (size_t)n - 1);
  for (int64_t i = 0; i < n; i++)
    if ((bytes[i * stride] != 0) != value) return false;
  return true;
}

void live_unless_all(LiveRows *live, int64_t rows) {
  if (live->mask && rows > 0 && live_all(live->mask, live->stride, rows, live->where)) *live = (LiveRows){0};
}

int64_t live_count(const LiveRows *live, int64_t rows) {
  int64_t n = 0;
  for (int64_t row = 0; row < rows; row++) n += live->mask[row * live->stride] != 0;
  return live->where ? n : rows - n;
}

__attribute__((cold)) int64_t live_run(const LiveRows *live, bool wanted, int64_t row, int64_t end, int64_t *first) {
  while (row < end && is_live(live, row) != wanted) row++;
  *first = row;
  while (row < end && is_live(live, row) == wanted) row++;
  return row - *first;
}

/* The cursor only moves forwards; a number behind it starts again from row 0. */
__attribute__((cold)) void live_seek(const LiveRows *live, LiveCursor *cursor, int64_t rows, int64_t number) {
  if (number < cursor->before) *cursor = (LiveCursor){0};
  while (cursor->before < number) {
    int64_t first;
    live_next(live, cursor, rows, number - cursor->before, &first);
  }
}

int64_t live_next(const LiveRows *live, LiveCursor *cursor, int64_t rows, int64_t most, int64_t *first) {
  int64_t row = cursor->row;
  while (row < rows && !is_live(live, row)) row++;
  *first = row;
  int64_t end = least_of(rows, row + most);
  while (row < end && is_live(live, row)) row++;
  cursor->row = row;
  cursor->before += row - *first;
  return row - *first;
}

/* A step that one thread does alone takes no serial: nobody else looks at its claims. */
Claimer walker_claimer(Walker *walker, int64_t blocks, int64_t groups) {
  if (walker->threads > 1) walker->serial++;
  const Grid grid = share_grid(blocks, groups, walker->threads);
  return (Claimer){.claims = &walker->context->run.claims,
                   .grid = grid,
                   .serial = walker->serial,
                   .thread = walker->thread,
                   .threads = walker->threads,
                   .own = share_part(&grid, walker->thread)};
}

__attribute__((cold)) RowShare rows_of_thread(const Walker *walker, const LiveRows *live, int64_t rows) {
  if (walker->rows) return *walker->rows;
  const int64_t all = live->mask ? live_count(live, rows) : rows, thread = walker->thread, threads = walker->threads;
  RowShare share = {.first = all * thread / threads, .end = all * (thread + 1) / threads,
                    .row = rows * thread / threads, .end_row = rows * (thread + 1) / threads};
  if (live->mask) live_seek(live, &share.cursor, rows, share.first);
  return share;
}

// ---- row steps ----

enum {
  COLUMN_CUT = 64,    /* columns are cut at multiples of this, so that threads share no cache line of a result */
  LONG_CUT = 512      /* of a reduction along rows: what its kernel takes together */
};

/* Points the arguments from operand number `first` on at row `row` of the outer index `outer`, and at column
 * `column`. */
static void place_block(const tfm_context *context, tfm_row_args *args, const Operand *operands, uint8_t first,
                        uint8_t n_operands, const tfm_size *dims, uint8_t rank, int64_t outer, int64_t row,
                        int64_t column) {
  args->coordinates[0] = column;
  args->coordinates[1] = row;
  for (int axis = rank - 3; axis >= 0; axis--) {
    int64_t dim = value_of(context, dims[axis]);
    args->coordinates[rank - 1 - axis] = outer % dim;
    outer /= dim;
  }
  for (uint8_t i = first; i < n_operands; i++) {
    const Operand *operand = &operands[i];
    int64_t offset = column * operand->strides[rank - 1];
    if (!operand->gathered) offset += row * operand->strides[rank - 2];
    for (int axis = rank - 3; axis >= 0; axis--) offset += args->coordinates[rank - 1 - axis] * operand->strides[axis];
    char *base = element_address(context, operand, offset);
    args->operands[i] = (tfm_row_operand){base, operand->strides[rank - 2], operand->strides[rank - 1]};
  }
}

typedef struct RowWork {
  const tfm_row_step *step;
  const Operand *operands;
  tfm_row_kernel kernel;
  int64_t outer, rows, columns;
  LiveRows live;
} RowWork;

/* A block of one outer index; the kernel walks its rows and columns. */
static void run_block(const Walker *walker, const RowWork *work, int64_t outer, int64_t row, int64_t rows,
                      int64_t column, int64_t columns) {
  tfm_row_args args;
  args.rows = rows;
  args.columns = columns;
  args.faults = (int32_t *)&walker->context->run.faults;
  place_block(walker->context, &args, work->operands, 0, work->step->n_operands, work->step->dims, work->step->rank,
              outer, row, column);
  work->kernel(&args);
}

/* Rows [first, end) of all outer axes and the row axis taken as one, columns [column, column + columns). */
static void run_rows(const Walker *walker, const RowWork *work, int64_t first, int64_t end, int64_t column,
                     int64_t columns) {
  while (first < end) {
    int64_t row = first % work->rows, rows = least_of(work->rows - row, end - first);
    run_block(walker, work, first / work->rows, row, rows, column, columns);
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
  place_block(walker->context, &args, work->operands, 0, second + 1u, work->step->dims, work->step->rank,
              row / work->rows, row % work->rows, 0);
  clear_columns(&args.operands[0], work->columns, work->operands[0].bytes);
  if (second) clear_columns(&args.operands[second], work->columns, work->operands[second].bytes);
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
  if (work->operands[0].strides[work->step->rank - 2] == 0) return LONG_CUT;
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
    run_block(walker, work, unit / parts, 0, work->rows, column, columns);
  }
}

void step_row(Walker *walker, const tfm_step *step) {
  const tfm_context *context = walker->context;
  const tfm_row_step *row = &context->program->rows[step->index];
  RowWork work = {.step = row,
                  .operands = &context->run.operands[row->first_operand],
                  .kernel = KERNEL_OF(tfm_row_kernel, context, row->kernel),
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

// ---- epilogues ----

/* TFM_NONE as the kernel gives an epilogue that does nothing. */
Epilogue epilogue_of(const tfm_context *context, uint32_t kernel, uint8_t rank, uint8_t n_operands,
                     uint32_t first_operand, const tfm_size *dims) {
  return (Epilogue){.kernel = KERNEL_OF(tfm_row_kernel, context, kernel),
                    .rank = rank,
                    .n_operands = n_operands,
                    .operands = &context->run.operands[first_operand],
                    .dims = dims};
}

void epilogue_prepare(const Walker *walker, const Epilogue *epilogue, EpilogueCall *call) {
  call->kernel = epilogue->rank == 2 ? epilogue->kernel : NULL;
  if (!call->kernel) return;
  call->n_operands = epilogue->n_operands;
  call->args.faults = (int32_t *)&walker->context->run.faults;
  for (uint8_t i = 1; i < epilogue->n_operands; i++) {
    const Operand *operand = &epilogue->operands[i];
    call->args.operands[i] = (tfm_row_operand){NULL, operand->strides[0], operand->strides[1]};
    call->starts[i] = operand_address(walker->context, operand);
    call->row_steps[i] = operand->gathered ? 0 : operand->strides[0];
  }
}

void epilogue_call(EpilogueCall *call, char *tile, int64_t tile_stride, int64_t row, int64_t rows, int64_t column,
                   int64_t columns) {
  tfm_row_args *args = &call->args;
  args->rows = rows;
  args->columns = columns;
  args->coordinates[0] = column;
  args->coordinates[1] = row;
  args->operands[0] = (tfm_row_operand){tile, tile_stride, sizeof(float)};
  for (uint8_t i = 1; i < call->n_operands; i++)
    args->operands[i].base = call->starts[i] + column * args->operands[i].column_stride + row * call->row_steps[i];
  call->kernel(args);
}

/* A block may cross the end of the row axis: then it is done in pieces, since other operands' strides may jump
 * there. */
void epilogue_run(const Walker *walker, const Epilogue *epilogue, char *tile, int64_t tile_stride, int64_t row,
                  int64_t rows, int64_t column, int64_t columns) {
  if (!epilogue->kernel) return;
  const tfm_context *context = walker->context;
  if (epilogue->rank == 2) {
    EpilogueCall call;
    epilogue_prepare(walker, epilogue, &call);
    epilogue_call(&call, tile, tile_stride, row, rows, column, columns);
    return;
  }
  tfm_row_args args;
  args.columns = columns;
  args.faults = (int32_t *)&context->run.faults;
  args.operands[0] = (tfm_row_operand){tile, tile_stride, sizeof(float)};
  int64_t axis_rows = value_of(context, epilogue->dims[epilogue->rank - 2]);
  while (rows > 0) {
    int64_t inner = row % axis_rows;
    args.rows = least_of(axis_rows - inner, rows);
    place_block(context, &args, epilogue->operands, 1, epilogue->n_operands, epilogue->dims, epilogue->rank,
                row / axis_rows, inner, column);
    epilogue->kernel(&args);
    args.operands[0].base += args.rows * tile_stride;
    row += args.rows;
    rows -= args.rows;
  }
}

void epilogue_fetch(const Walker *walker, const Epilogue *epilogue, int64_t row, int64_t rows, int64_t column,
                    int64_t columns) {
  if (!epilogue->kernel || epilogue->rank != 2) return;
  for (uint8_t i = 1; i < epilogue->n_operands; i++) {
    const Operand *operand = &epilogue->operands[i];
    const int64_t size = operand->strides[1], stride = operand->strides[0];
    if (operand->gathered || !stride || size < 1 || size > (int64_t)sizeof(float)) continue;
    const char *first = element_address(walker->context, operand, row * stride + column * size);
    for (int64_t k = 0; k < rows; k++)
      for (int64_t byte = 0; byte < columns * size; byte += ALIGNMENT)
        __builtin_prefetch(first + k * stride + byte, 0, 2);
  }
}

// ---- tables ----

/* Sinusoid (Vaswani et al., Attention is all you need, 2017) and the angles of rotary (Su et al., RoFormer, 2021),
 * computed in double and rounded to f32 at the end, so that large positions keep their fraction. */

/* Angles per position: the columns that hold a sine (of an odd d, one more than cosines). */
static int64_t angles_of(const tfm_table_step *table) { return table->rotary ? table->d / 2 : (table->d + 1) / 2; }

enum { MOST_TOGETHER = 8 }; /* angles */

int64_t table_scratch_bytes(const tfm_context *context, const tfm_step *step) {
  return round_up(angles_of(&context->program->tables[step->index]), MOST_TOGETHER) * (int64_t)sizeof(double);
}

/* rates[i] = base^(-2 i / d), the angle per position; 0 behind the last. */
static void fill_rates(const tfm_table_step *table, double *rates) {
  double logarithm = log(table->base);
  int64_t angles = angles_of(table), i = 0;
  for (; i < angles; i++) rates[i] = exp(-2.0 * (double)i / (double)table->d * logarithm);
  for (; i % MOST_TOGETHER; i++) rates[i] = 0;
}

/* fill_row_2, _4 and _8: the columns of one position for so many angles together. */
#define TOGETHER 2
#define TARGET
#include "steps/sines.h"
#if defined(__x86_64__)
#define TOGETHER 4
#define TARGET __attribute__((target("avx2")))
#include "steps/sines.h"
#define TOGETHER 8
#define TARGET __attribute__((target("avx512f,avx512dq,avx512vl")))
#include "steps/sines.h"
#endif

typedef void (*RowFiller)(const tfm_table_step *table, const double *rates, double position, char *row);

/* What the kernels may use, this may use too. */
static RowFiller filler_for(const char *isa) {
#if defined(__x86_64__)
  if (!strncmp(isa, "x86-64-v4", 9)) return fill_row_8;
  if (!strncmp(isa, "x86-64-v3", 9)) return fill_row_4;
#endif
  (void)isa;
  return fill_row_2;
}

/* Both types are exact in double. */
static double position_at(const char *address, uint8_t dtype) {
  float number;
  int32_t integer;
  memcpy(&number, address, 4);
  memcpy(&integer, address, 4);
  return dtype == TFM_F32 ? (double)number : (double)integer;
}

void step_table(Walker *walker, const tfm_step *step) {
  const tfm_context *context = walker->context;
  const tfm_table_step *table = &context->program->tables[step->index];
  const struct table_operands *operands = &operands_of(context, step)->table;
  const Operand *positions = &operands->positions, *c = &operands->c;
  int64_t rows = 1;
  for (int axis = 0; axis < table->rank; axis++) rows *= value_of(context, table->dims[axis]);
  double *rates = (double *)walker->scratch;
  fill_rates(table, rates);
  const RowFiller fill = filler_for(context->program->isa);
  int64_t end = rows * (walker->thread + 1) / walker->threads;
  for (int64_t row = rows * walker->thread / walker->threads; row < end; row++) {
    int64_t rest = row, from = 0, to = 0;
    for (int axis = table->rank - 1; axis >= 0; axis--) {
      int64_t dim = value_of(context, table->dims[axis]), coordinate = rest % dim;
      from += coordinate * positions->strides[axis];
      to += coordinate * c->strides[axis];
      rest /= dim;
    }
    double position = position_at(operand_address(context, positions) + from, table->positions.dtype);
    fill(table, rates, position, operand_address(context, c) + to);
  }
}
