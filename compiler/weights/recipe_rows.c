/* In: recipes. Out: the rows of weights that they are made of, or that they are made of something else. Nothing is
 * read from a file here. See pack.h. */
#include "weights/pack.h"

// ---- recipes as rows of tensors ----

static int64_t dim_of(const Node *node, uint32_t axis) {
  int64_t value = 0;
  size_is_const(node->dims[axis], &value);
  return value;
}

/* All axes but the last are rows; a value of rank 0 or 1 has one column per row, as biases are read. */
static void shape_rows(const Node *node, RecipeRows *rows) {
  *rows = (RecipeRows){.rows = 1, .columns = 1};
  if (node->rank > 1) rows->columns = dim_of(node, node->rank - 1u);
  for (uint32_t i = 0; i + (node->rank > 1) < node->rank; i++) rows->rows *= dim_of(node, i);
}

/* Pieces without rows would only have to be skipped later. */
static void add_piece(Arena *arena, RecipeRows *rows, RecipePiece piece) {
  if (piece.rows) vec_push(arena, &rows->pieces, piece);
}

static bool read_weight(Arena *arena, const Node *node, RecipeRows *rows) {
  add_piece(arena, rows,
            (RecipePiece){.rows = rows->rows,
                          .weight = node->attr.name,
                          .row_stride = rows->columns,
                          .column_stride = 1,
                          .rounding = OP_WEIGHT});
  return true;
}

/* A constant is one number with strides of 0. */
static bool read_full(Arena *arena, const Node *node, RecipeRows *rows) {
  float *number = ARENA_NEW(arena, float);
  *number = (float)node->attr.number;
  add_piece(arena, rows, (RecipePiece){.rows = rows->rows, .data = number, .rounding = OP_WEIGHT});
  return true;
}

/* Concatenating along rows appends pieces; along any other axis each row would be made of several pieces. */
static bool read_concat(Arena *arena, const Node *node, RecipeRows *rows) {
  if (node->attr.axis != 0) return false;
  for (size_t i = 0; i < node->inputs.n; i++) {
    RecipeRows part;
    if (!recipe_rows(arena, node->inputs.items[i], &part)) return false;
    for (size_t j = 0; j < part.pieces.n; j++) add_piece(arena, rows, part.pieces.items[j]);
  }
  return true;
}

/* Takes rows [first, first + count) of the pieces, from column `column` on. */
static void cut(Arena *arena, const RecipeRows *from, int64_t first, int64_t count, int64_t column, RecipeRows *rows) {
  for (size_t i = 0; i < from->pieces.n && count > 0; i++) {
    RecipePiece piece = from->pieces.items[i];
    if (first >= piece.rows) {
      first -= piece.rows;
      continue;
    }
    piece.first += first * piece.row_stride + column * piece.column_stride;
    piece.rows = piece.rows - first < count ? piece.rows - first : count;
    count -= piece.rows;
    first = 0;
    add_piece(arena, rows, piece);
  }
}

static bool read_slice(Arena *arena, const Node *node, RecipeRows *rows) {
  RecipeRows from;
  if (node->rank > 2 || !recipe_rows(arena, node->inputs.items[0], &from)) return false;
  int64_t starts[2] = {0, 0};
  for (uint32_t i = 0; i < node->rank; i++) size_is_const(node->attr.starts[i], &starts[i]);
  cut(arena, &from, starts[0], rows->rows, starts[1], rows);
  return true;
}

/* A transposed matrix swaps the strides, which a single piece can do; of several, each column would lie in all of
 * them. */
static bool read_permute(Arena *arena, const Node *node, RecipeRows *rows) {
  RecipeRows from;
  if (node->rank > 2 || !recipe_rows(arena, node->inputs.items[0], &from)) return false;
  if (node->rank < 2 || node->attr.axes[0] == 0) {
    rows->pieces.items = from.pieces.items;
    rows->pieces.n = from.pieces.n;
    rows->pieces.cap = from.pieces.cap;
    return true;
  }
  if (from.pieces.n != 1) return false;
  RecipePiece piece = from.pieces.items[0];
  piece.rows = from.columns;
  piece.row_stride = from.pieces.items[0].column_stride;
  piece.column_stride = from.pieces.items[0].row_stride;
  add_piece(arena, rows, piece);
  return true;
}

/* What was multiplied before it is rounded is left to the interpreter: elements are rounded first here. */
static bool read_rounded(Arena *arena, const Node *node, RecipeRows *rows) {
  if (!recipe_rows(arena, node->inputs.items[0], rows)) return false;
  for (size_t i = 0; i < rows->pieces.n; i++) {
    if (rows->pieces.items[i].n_factors) return false;
    rows->pieces.items[i].rounding = node->op;
  }
  return true;
}

/* Factors are applied one by one, each product rounded, as the interpreter would: the packed bits must be the same
 * whichever way computed them. */
static bool read_product(Arena *arena, const Node *node, RecipeRows *rows) {
  const Node *x = node->inputs.items[0], *factor = node->inputs.items[1];
  if (x->op == OP_FULL) {
    x = factor;
    factor = node->inputs.items[0];
  }
  if (factor->op != OP_FULL || !node_same_shape(x, node)) return false;
  if (!recipe_rows(arena, x, rows)) return false;
  for (size_t i = 0; i < rows->pieces.n; i++) {
    RecipePiece *piece = &rows->pieces.items[i];
    if (piece->n_factors == RECIPE_MAX_FACTORS) return false;
    piece->factors[piece->n_factors++] = (float)factor->attr.number;
  }
  return true;
}

bool recipe_rows(Arena *arena, const Node *node, RecipeRows *rows) {
  if (node->dtype != DTYPE_F32) return false;
  shape_rows(node, rows);
  switch (node->op) {
    case OP_WEIGHT:
      return read_weight(arena, node, rows);
    case OP_FULL:
      return read_full(arena, node, rows);
    case OP_CONCAT:
      return read_concat(arena, node, rows);
    case OP_SLICE:
      return read_slice(arena, node, rows);
    case OP_PERMUTE:
      return read_permute(arena, node, rows);
    case OP_MUL:
      return read_product(arena, node, rows);
    case OP_TO_BF16:
    case OP_TO_F16:
      return read_rounded(arena, node, rows);
    default:
      return false;
  }
}
