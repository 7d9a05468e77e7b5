/* In: static subgraphs. Out: rows of the tensors they are made of. See recipe.h. */
#include "weights/recipe.h"

typedef struct Reader {
  Arena *arena;
  WeightLookup weights;
  void *context;
} Reader;

static RecipeResult read_rows(const Reader *reader, const Node *node, RecipeRows *rows);

static int64_t dim_of(const Node *node, uint32_t axis) {
  int64_t value = 0;
  size_is_const(node->dims[axis], &value);
  return value;
}

static void shape_rows(const Node *node, RecipeRows *rows) {
  *rows = (RecipeRows){.rows = 1, .columns = 1};
  if (node->rank > 1) rows->columns = dim_of(node, node->rank - 1u);
  for (uint32_t i = 0; i + (node->rank > 1) < node->rank; i++) rows->rows *= dim_of(node, i);
}

static void add_piece(const Reader *reader, RecipeRows *rows, RecipePiece piece) {
  if (piece.rows) vec_push(reader->arena, &rows->pieces, piece);
}

static RecipeResult read_weight(const Reader *reader, const Node *node, RecipeRows *rows) {
  const Tensor *tensor = reader->weights(reader->context, node->attr.name);
  if (!tensor) return RECIPE_FAILED;
  add_piece(reader, rows, (RecipePiece){.rows = rows->rows, .data = tensor->data, .row_stride = rows->columns,
                                        .column_stride = 1});
  return RECIPE_ROWS;
}

static RecipeResult read_full(const Reader *reader, const Node *node, RecipeRows *rows) {
  float *number = ARENA_NEW(reader->arena, float);
  *number = (float)node->attr.number;
  add_piece(reader, rows, (RecipePiece){.rows = rows->rows, .data = number});
  return RECIPE_ROWS;
}

static RecipeResult read_concat(const Reader *reader, const Node *node, RecipeRows *rows) {
  if (node->attr.axis != 0) return RECIPE_REFUSED;
  for (size_t i = 0; i < node->inputs.n; i++) {
    RecipeRows part;
    RecipeResult result = read_rows(reader, node->inputs.items[i], &part);
    if (result != RECIPE_ROWS) return result;
    for (size_t j = 0; j < part.pieces.n; j++) add_piece(reader, rows, part.pieces.items[j]);
  }
  return RECIPE_ROWS;
}

/* Rows [first, first + count) of the pieces, from column `column` on. */
static void cut(const Reader *reader, const RecipeRows *from, int64_t first, int64_t count, int64_t column,
                RecipeRows *rows) {
  for (size_t i = 0; i < from->pieces.n && count > 0; i++) {
    RecipePiece piece = from->pieces.items[i];
    if (first >= piece.rows) {
      first -= piece.rows;
      continue;
    }
    piece.data += first * piece.row_stride + column * piece.column_stride;
    piece.rows = piece.rows - first < count ? piece.rows - first : count;
    count -= piece.rows;
    first = 0;
    add_piece(reader, rows, piece);
  }
}

static RecipeResult read_slice(const Reader *reader, const Node *node, RecipeRows *rows) {
  RecipeRows from;
  RecipeResult result = node->rank > 2 ? RECIPE_REFUSED : read_rows(reader, node->inputs.items[0], &from);
  if (result != RECIPE_ROWS) return result;
  int64_t starts[2] = {0, 0};
  for (uint32_t i = 0; i < node->rank; i++) size_is_const(node->attr.starts[i], &starts[i]);
  cut(reader, &from, starts[0], rows->rows, starts[1], rows);
  return RECIPE_ROWS;
}

static RecipeResult read_permute(const Reader *reader, const Node *node, RecipeRows *rows) {
  RecipeRows from;
  RecipeResult result = node->rank > 2 ? RECIPE_REFUSED : read_rows(reader, node->inputs.items[0], &from);
  if (result != RECIPE_ROWS) return result;
  if (node->rank < 2 || node->attr.axes[0] == 0) {
    rows->pieces.items = from.pieces.items;
    rows->pieces.n = from.pieces.n;
    rows->pieces.cap = from.pieces.cap;
    return RECIPE_ROWS;
  }
  if (from.pieces.n != 1) return RECIPE_REFUSED;
  RecipePiece piece = from.pieces.items[0];
  piece.rows = from.columns;
  piece.row_stride = from.pieces.items[0].column_stride;
  piece.column_stride = from.pieces.items[0].row_stride;
  add_piece(reader, rows, piece);
  return RECIPE_ROWS;
}

static RecipeResult read_product(const Reader *reader, const Node *node, RecipeRows *rows) {
  const Node *x = node->inputs.items[0], *factor = node->inputs.items[1];
  if (x->op == OP_FULL) {
    x = factor;
    factor = node->inputs.items[0];
  }
  if (factor->op != OP_FULL || !node_same_shape(x, node)) return RECIPE_REFUSED;
  RecipeResult result = read_rows(reader, x, rows);
  for (size_t i = 0; result == RECIPE_ROWS && i < rows->pieces.n; i++) {
    RecipePiece *piece = &rows->pieces.items[i];
    if (piece->n_factors == RECIPE_MAX_FACTORS) return RECIPE_REFUSED;
    piece->factors[piece->n_factors++] = (float)factor->attr.number;
  }
  return result;
}

static RecipeResult read_rows(const Reader *reader, const Node *node, RecipeRows *rows) {
  if (node->dtype != DTYPE_F32) return RECIPE_REFUSED;
  shape_rows(node, rows);
  switch (node->op) {
    case OP_WEIGHT: return read_weight(reader, node, rows);
    case OP_FULL: return read_full(reader, node, rows);
    case OP_CONCAT: return read_concat(reader, node, rows);
    case OP_SLICE: return read_slice(reader, node, rows);
    case OP_PERMUTE: return read_permute(reader, node, rows);
    case OP_MUL: return read_product(reader, node, rows);
    default: return RECIPE_REFUSED;
  }
}

RecipeResult recipe_rows(Arena *arena, const Node *node, WeightLookup weights, void *context, RecipeRows *rows) {
  Reader reader = {arena, weights, context};
  return read_rows(&reader, node, rows);
}
