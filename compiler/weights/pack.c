/* In: recipes. Out: packed weights. See pack.h. */
#include "weights/pack.h"

#include <string.h>

// ---- recipes as rows of tensors ----

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

/* All axes but the last are rows; a value of rank 0 or 1 has one column per row, as biases are read. */
static void shape_rows(const Node *node, RecipeRows *rows) {
  *rows = (RecipeRows){.rows = 1, .columns = 1};
  if (node->rank > 1) rows->columns = dim_of(node, node->rank - 1u);
  for (uint32_t i = 0; i + (node->rank > 1) < node->rank; i++) rows->rows *= dim_of(node, i);
}

/* Pieces without rows would only have to be skipped later. */
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

/* A constant is one number with strides of 0. */
static RecipeResult read_full(const Reader *reader, const Node *node, RecipeRows *rows) {
  float *number = ARENA_NEW(reader->arena, float);
  *number = (float)node->attr.number;
  add_piece(reader, rows, (RecipePiece){.rows = rows->rows, .data = number});
  return RECIPE_ROWS;
}

/* Concatenating along rows appends pieces; along any other axis each row would be made of several pieces. */
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

/* Takes rows [first, first + count) of the pieces, from column `column` on. */
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

/* A transposed matrix swaps the strides, which a single piece can do; of several, each column would lie in all of
 * them. */
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

/* Factors are applied one by one, each product rounded, as the interpreter would: the packed bits must be the same
 * whichever way computed them. */
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

// ---- plain rows ----

static float factored(const RecipePiece *piece, float value) {
  for (uint32_t i = 0; i < piece->n_factors; i++) value *= piece->factors[i];
  return value;
}

/* Rows without a factor whose elements are neighbours are copied as bytes; most weights are such. */
static void copy_row(const RecipePiece *piece, int64_t row, int64_t columns, float *to) {
  const float *from = piece->data + row * piece->row_stride;
  if (piece->column_stride == 1 && !piece->n_factors) {
    memcpy(to, from, (size_t)columns * sizeof *to);
    return;
  }
  for (int64_t j = 0; j < columns; j++) to[j] = factored(piece, from[j * piece->column_stride]);
}

static void pack_plain(const RecipeRows *rows, float *to) {
  for (size_t i = 0; i < rows->pieces.n; i++)
    for (int64_t row = 0; row < rows->pieces.items[i].rows; row++, to += rows->columns)
      copy_row(&rows->pieces.items[i], row, rows->columns, to);
}

// ---- panels ----

/* A row of the recipe becomes a column of a panel, so the writes of a row are `width` floats apart. Rows are taken in
 * parts of 16 elements, one cache line of reading; the 16 lines of the panel that they are written to stay in L1 until
 * the part of the last row has filled them. */
enum { ROW_PART = 16 };

typedef struct PanelColumn {
  const RecipePiece *piece;
  const float *from;
} PanelColumn;

/* Finds the next `width` rows, advancing `piece` and `row`. Returns how many there are; the last panel may have
 * fewer. */
static uint32_t take_columns(const RecipeRows *rows, uint32_t width, size_t *piece, int64_t *row,
                             PanelColumn *columns) {
  uint32_t n = 0;
  while (n < width && *piece < rows->pieces.n) {
    const RecipePiece *at = &rows->pieces.items[*piece];
    if (*row == at->rows) {
      *row = 0;
      ++*piece;
      continue;
    }
    columns[n++] = (PanelColumn){at, at->data + (*row)++ * at->row_stride};
  }
  return n;
}

/* Blocks of k follow each other without gaps, so a panel is [k][width] whatever their size. */
static void fill_panel(const PanelColumn *columns, uint32_t n, int64_t k, uint32_t width, float *panel) {
  for (int64_t begin = 0; begin < k; begin += ROW_PART) {
    int64_t end = begin + ROW_PART < k ? begin + ROW_PART : k;
    for (uint32_t c = 0; c < n; c++) {
      const RecipePiece *piece = columns[c].piece;
      const float *from = columns[c].from;
      float *to = panel + c;
      for (int64_t i = begin; i < end; i++) {
        float value = from[i * piece->column_stride];
        to[i * width] = piece->n_factors ? factored(piece, value) : value;
      }
    }
  }
}

static void pack_panels(Arena *arena, const RecipeRows *rows, uint32_t width, float *to) {
  PanelColumn *columns = ARENA_ARRAY(arena, PanelColumn, width);
  size_t piece = 0;
  int64_t row = 0;
  for (uint32_t n; (n = take_columns(rows, width, &piece, &row, columns)) > 0; to += rows->columns * width)
    fill_panel(columns, n, rows->columns, width, to);
}

// ---- recipes ----

static bool evaluate(Arena *arena, Diag *diag, const Plan *plan, const WeightRecipe *recipe, WeightLookup weights,
                     void *context, Tensor **value) {
  *value = graph_eval_static(arena, diag, plan->graph, recipe->node, weights, context);
  return *value != NULL;
}

/* A value that the interpreter computed is one piece. */
static RecipeRows rows_of_tensor(Arena *arena, const Tensor *tensor) {
  RecipeRows rows = {.columns = tensor->rank > 1 ? tensor->dims[tensor->rank - 1] : 1};
  rows.rows = rows.columns ? tensor_elements(tensor) / rows.columns : 0;
  RecipePiece piece = {.rows = rows.rows, .data = tensor->data, .row_stride = rows.columns, .column_stride = 1};
  vec_push(arena, &rows.pieces, piece);
  return rows;
}

/* What is evaluated lives in scratch memory that the caller empties after each recipe, so the peak is one weight. */
static bool pack_recipe(Arena *scratch, Diag *diag, const Plan *plan, const WeightRecipe *recipe, WeightLookup weights,
                        void *context, char *to) {
  RecipeRows rows;
  RecipeResult result = recipe_rows(scratch, recipe->node, weights, context, &rows);
  if (result == RECIPE_FAILED) return false;
  if (result == RECIPE_REFUSED) {
    Tensor *value;
    if (!evaluate(scratch, diag, plan, recipe, weights, context, &value)) return false;
    if (recipe->layout == WEIGHT_PLAIN) {
      if (recipe->bytes) memcpy(to, value->data, recipe->bytes);
      return true;
    }
    rows = rows_of_tensor(scratch, value);
  }
  if (recipe->layout == WEIGHT_PLAIN) pack_plain(&rows, (float *)to);
  else pack_panels(scratch, &rows, recipe->width, (float *)to);
  return true;
}

bool pack_weights(Diag *diag, const Plan *plan, WeightLookup weights, void *context, char *packed) {
  Arena *scratch = arena_create();
  bool packed_all = true;
  for (size_t i = 0; i < plan->recipes.n && packed_all; i++) {
    const WeightRecipe *recipe = &plan->recipes.items[i];
    if (recipe->is_shared) continue;
    packed_all = pack_recipe(scratch, diag, plan, recipe, weights, context, packed + recipe->offset);
    arena_reset(scratch);
  }
  arena_destroy(scratch);
  return packed_all;
}
