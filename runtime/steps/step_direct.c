/* A direct product is one call of its kernel for many items, or for a unit of a matmul (step_matmul.c), with the
 * addresses and strides of both factors.
 *
 * In: a matmul that is cut. Out: results, and their epilogue if items are whole. Refuses nothing. */
#include "steps/step_direct.h"

/* Of a product with one column the columns of y are the rows: the kernel walks many rows well, but not many columns. */
static void turn(tfm_direct_args *args, int64_t columns) {
  const tfm_direct_args turned = *args;
  args->x = turned.y, args->y = turned.x;
  args->x_item = turned.y_item, args->y_item = turned.x_item;
  args->x_row = turned.y_column, args->x_step = turned.y_step, args->y_step = turned.x_step;
  args->rows = columns, args->columns = 1, args->c_row = sizeof(float);
}

void direct_run(const Walker *walker, const Matmul *m, const DirectWork *work) {
  const tfm_matmul_step *step = m->step;
  const int64_t *xs = m->x->strides, *ys = m->y->strides;
  const int row = step->rank - 2, column = step->rank - 1, item = step->rank - 3;
  tfm_direct_args args = {.x = work->x + work->first_k * xs[column],
                          .y = work->y + work->first_k * ys[row],
                          .c = work->c,
                          .items = work->items,
                          .rows = work->rows,
                          .columns = work->columns,
                          .k = work->end_k - work->first_k,
                          .x_row = xs[row],
                          .x_step = xs[column],
                          .y_step = ys[row],
                          .y_column = ys[column],
                          .c_row = work->c_row};
  if (work->items > 1) args.x_item = xs[item], args.y_item = ys[item], args.c_item = m->c->strides[item];
  if (step->direct == TFM_DIRECT_TURNED) turn(&args, work->columns);
  KERNEL_OF(tfm_direct_kernel, walker->context, step->direct_kernel)(&args);
}

void direct_run_items(const Walker *walker, const Matmul *m, int64_t first, int64_t end) {
  const tfm_matmul_step *step = m->step;
  const tfm_context *context = walker->context;
  const int64_t axis = m->batch.axes > 0 ? m->batch.dims[m->batch.axes - 1] : 1;
  const int64_t c_row = m->c->strides[step->rank - 2];
  while (first < end) {
    const int64_t items = least_of(least_of(end - first, axis - first % axis), ITEMS_TOGETHER);
    char *c = matmul_item(context, m, m->c, first);
    const DirectWork work = {.x = matmul_item(context, m, m->x, first),
                             .y = matmul_item(context, m, m->y, first),
                             .c = c,
                             .c_row = c_row,
                             .items = items,
                             .rows = m->rows,
                             .columns = m->columns,
                             .end_k = m->k};
    direct_run(walker, m, &work);
    /* The kernel wrote the sums alone. */
    for (int64_t item = 0; m->epilogue.kernel && item < items; item++)
      epilogue_run(walker, &m->epilogue, c + (item ? item * m->c->strides[step->rank - 3] : 0), c_row,
                   &(Region){(first + item) * m->rows, m->rows, 0, m->columns});
    first += items;
  }
}
