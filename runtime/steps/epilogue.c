/* The kernels of rows as epilogues of products, and where the operands of such a kernel are. See epilogue.h. */
#include "steps/epilogue.h"

void row_place_block(const tfm_context *context, tfm_row_args *args, const Epilogue *kernel, uint8_t first,
                     const RowPlace *at) {
  const int rank = kernel->rank;
  int64_t outer = at->outer;
  args->coordinates[0] = at->column;
  args->coordinates[1] = at->row;
  for (int axis = rank - 3; axis >= 0; axis--) {
    int64_t dim = value_of(context, kernel->dims[axis]);
    args->coordinates[rank - 1 - axis] = outer % dim;
    outer /= dim;
  }
  for (uint8_t i = first; i < kernel->n_operands; i++) {
    const Operand *operand = &kernel->operands[i];
    int64_t offset = at->column * operand->strides[rank - 1];
    if (!operand->gathered) offset += at->row * operand->strides[rank - 2];
    for (int axis = rank - 3; axis >= 0; axis--) offset += args->coordinates[rank - 1 - axis] * operand->strides[axis];
    char *base = element_address(context, operand, offset);
    args->operands[i] = (tfm_row_operand){base, operand->strides[rank - 2], operand->strides[rank - 1]};
  }
}

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
  call->args.faults = walker->faults;
  for (uint8_t i = 1; i < epilogue->n_operands; i++) {
    const Operand *operand = &epilogue->operands[i];
    call->args.operands[i] = (tfm_row_operand){NULL, operand->strides[0], operand->strides[1]};
    call->starts[i] = operand_address(walker->context, operand);
    call->row_steps[i] = operand->gathered ? 0 : operand->strides[0];
  }
}

void epilogue_call(EpilogueCall *call, char *tile, int64_t tile_stride, const Region *at) {
  tfm_row_args *args = &call->args;
  args->rows = at->rows;
  args->columns = at->columns;
  args->coordinates[0] = at->column;
  args->coordinates[1] = at->row;
  args->operands[0] = (tfm_row_operand){tile, tile_stride, sizeof(float)};
  for (uint8_t i = 1; i < call->n_operands; i++)
    args->operands[i].base =
        call->starts[i] + at->column * args->operands[i].column_stride + at->row * call->row_steps[i];
  call->kernel(args);
}

/* A block may cross the end of the row axis: then it is done in pieces, since other operands' strides may jump
 * there. */
void epilogue_run(const Walker *walker, const Epilogue *epilogue, char *tile, int64_t tile_stride, const Region *at) {
  if (!epilogue->kernel) return;
  const tfm_context *context = walker->context;
  if (epilogue->rank == 2) {
    EpilogueCall call;
    epilogue_prepare(walker, epilogue, &call);
    epilogue_call(&call, tile, tile_stride, at);
    return;
  }
  tfm_row_args args;
  args.columns = at->columns;
  args.faults = walker->faults;
  args.operands[0] = (tfm_row_operand){tile, tile_stride, sizeof(float)};
  const int64_t axis_rows = value_of(context, epilogue->dims[epilogue->rank - 2]);
  for (int64_t row = at->row, end = row + at->rows; row < end; row += args.rows) {
    const RowPlace place = {row / axis_rows, row % axis_rows, at->column};
    args.rows = least_of(axis_rows - place.row, end - row);
    row_place_block(context, &args, epilogue, 1, &place);
    epilogue->kernel(&args);
    args.operands[0].base += args.rows * tile_stride;
  }
}

void epilogue_fetch(const Walker *walker, const Epilogue *epilogue, const Region *at) {
  if (!epilogue->kernel || epilogue->rank != 2) return;
  for (uint8_t i = 1; i < epilogue->n_operands; i++) {
    const Operand *operand = &epilogue->operands[i];
    const int64_t size = operand->strides[1], stride = operand->strides[0];
    if (operand->gathered || !stride || size < 1 || size > (int64_t)sizeof(float)) continue;
    const char *first = element_address(walker->context, operand, at->row * stride + at->column * size);
    for (int64_t k = 0; k < at->rows; k++)
      for (int64_t byte = 0; byte < at->columns * size; byte += ALIGNMENT)
        __builtin_prefetch(first + k * stride + byte, 0, 2);
  }
}
