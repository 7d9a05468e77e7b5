/* In: the expression of a fused node, its inputs, and acc if the node computes one. Out: its value over the shape of
 * the result, row by row along the last axis. Every operation is rounded as if it were a node of its own, so a fused
 * graph gives the bits of the graph it was made from. */
#include <string.h>

#include "graph/eval_run.h"

/* One different subexpression. */
typedef struct Slot {
  const Expr *expr;
  RowOperand row;             /* its values along the row that is computed */
  void *buffer;               /* of its own, if it has to be computed */
  int64_t strides[MAX_RANK];  /* INPUT: in the domain; GATHER: of the ids, in the domain without its last axis */
} Slot;

typedef struct Body {
  const EvalNode *in;
  ExprList list;
  Slot *slots;
  Grid rows; /* the domain without its last axis */
  int64_t length;
} Body;

static const Tensor *input_of(const Body *body, uint32_t i) { return body->in->inputs[i]; }

static void fill_constant(const Body *body, Slot *slot) {
  const Expr *expr = slot->expr;
  int64_t integer = expr->kind == EXPR_SIZE ? eval_size(body->in->run, expr->size) : expr->integer;
  double number = expr->kind == EXPR_SIZE ? (double)integer : expr->number;
  if (expr->dtype == DTYPE_F32) *(float *)slot->buffer = (float)number;
  else if (expr->dtype == DTYPE_I32) *(int32_t *)slot->buffer = (int32_t)(uint32_t)integer;
  else *(uint8_t *)slot->buffer = integer != 0;
  slot->row = (RowOperand){slot->buffer, 0};
}

static void prepare(Body *body, Slot *slot, Arena *scratch) {
  const Expr *expr = slot->expr;
  uint32_t rank = body->rows.rank + 1;
  slot->buffer = arena_array(scratch, (size_t)body->length + 1, dtype_bytes[expr->dtype]);
  slot->row = (RowOperand){slot->buffer, 1};
  if (expr->kind == EXPR_INPUT) {
    const Tensor *x = input_of(body, expr->input);
    broadcast_strides(x->rank, x->dims, 1, rank, slot->strides);
    slot->row.stride = slot->strides[rank - 1];
  } else if (expr->kind == EXPR_GATHER) {
    const Tensor *ids = input_of(body, expr->ids);
    broadcast_strides(ids->rank, ids->dims, 1, rank - 1, slot->strides);
  } else if (expr->kind == EXPR_CONST || expr->kind == EXPR_SIZE) {
    fill_constant(body, slot);
  } else if (expr->kind == EXPR_INDEX && expr->axis == 0) {
    for (int64_t i = 0; i < body->length; i++) ((int32_t *)slot->buffer)[i] = (int32_t)i;
  } else if (expr->kind == EXPR_INDEX) {
    slot->row.stride = 0;
  }
}

static bool gather_row(const Body *body, Slot *slot) {
  const Tensor *table = input_of(body, slot->expr->input), *ids = input_of(body, slot->expr->ids);
  int32_t id = ((const int32_t *)ids->data)[grid_offset(&body->rows, slot->strides)];
  if (id < 0 || id >= table->dims[0]) {
    return eval_fault(body->in, DIAG_INPUT_VALUE, "id %d is not in [0, %lld)", id, (long long)table->dims[0]);
  }
  slot->row = (RowOperand){(const char *)table->data + (size_t)(id * table->dims[1]) * dtype_bytes[table->dtype], 1};
  return true;
}

static bool op_row(const Body *body, uint32_t i) {
  RowOperand args[3];
  const Expr *expr = body->slots[i].expr;
  for (uint32_t j = 0; j < expr->n_args; j++) args[j] = body->slots[body->list.args[j][i]].row;
  if (eval_row(expr->op, expr->args[expr->n_args - 1]->dtype, args, body->length, body->slots[i].buffer)) return true;
  return eval_fault(body->in, DIAG_RUN_ARITHMETIC, "integer division by zero");
}

static bool compute_row(const Body *body, const float *acc) {
  for (uint32_t i = 0; i < body->list.n; i++) {
    Slot *slot = &body->slots[i];
    if (slot->expr->kind == EXPR_OP && !op_row(body, i)) return false;
    if (slot->expr->kind == EXPR_GATHER && !gather_row(body, slot)) return false;
    if (slot->expr->kind == EXPR_ACC) slot->row.data = acc;
    if (slot->expr->kind == EXPR_INPUT) {
      const Tensor *x = input_of(body, slot->expr->input);
      slot->row.data = (const char *)x->data + (size_t)grid_offset(&body->rows, slot->strides) * dtype_bytes[x->dtype];
    }
    if (slot->expr->kind == EXPR_INDEX && slot->expr->axis > 0) {
      *(int32_t *)slot->buffer = (int32_t)body->rows.index[body->rows.rank - slot->expr->axis];
    }
  }
  return true;
}

static void store_row(const Body *body, void *to, size_t bytes) {
  RowOperand row = body->slots[body->list.n - 1].row;
  for (int64_t i = 0; i < body->length; i++) {
    memcpy((char *)to + (size_t)i * bytes, (const char *)row.data + (size_t)(i * row.stride) * bytes, bytes);
  }
}

static bool compute(Body *body, const Tensor *acc, Tensor *out) {
  size_t bytes = dtype_bytes[out->dtype];
  for (int64_t row = 0; row < body->rows.points; row++, grid_next(&body->rows)) {
    if (!compute_row(body, acc ? (const float *)acc->data + row * body->length : NULL)) return false;
    store_row(body, (char *)out->data + (size_t)(row * body->length) * bytes, bytes);
  }
  return true;
}

bool eval_expr(const EvalNode *in, const Tensor *acc, Tensor *out) {
  Arena *scratch = arena_create();
  Body body = {.in = in, .list = expr_list(scratch, in->node->attr.expr)};
  body.rows = grid_of(out->rank ? out->rank - 1 : 0, out->dims);
  body.length = out->rank ? out->dims[out->rank - 1] : 1;
  body.slots = ARENA_ARRAY(scratch, Slot, body.list.n);
  for (uint32_t i = 0; i < body.list.n; i++) {
    body.slots[i].expr = body.list.items[i];
    prepare(&body, &body.slots[i], scratch);
  }
  bool ok = body.rows.points == 0 || body.length == 0 || compute(&body, acc, out);
  arena_destroy(scratch);
  return ok;
}
