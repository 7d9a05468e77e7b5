/* In: recipes. Out: the rows of weights that they are made of, or that they are made of something else; packed weights.
 * See pack.h.
 *
 * A piece is read in blocks that lie together in the file: rows of the recipe, or, where the recipe is transposed,
 * columns. Each block is copied to where it belongs before the next is read, so the largest tensor of a model needs no
 * more memory than the smallest. */
#include "weights/pack.h"

#include <string.h>

#include "base/half.h"
#include "base/int8.h"

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
                          .rounding = TFM_FORM_F32});
  return true;
}

/* A constant is one number with strides of 0. */
static bool read_full(Arena *arena, const Node *node, RecipeRows *rows) {
  float *number = ARENA_NEW(arena, float);
  *number = (float)node->attr.number;
  add_piece(arena, rows, (RecipePiece){.rows = rows->rows, .data = number, .rounding = TFM_FORM_F32});
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
  if (tfm_form_has_scales(node->attr.form)) return false;
  if (!recipe_rows(arena, node->inputs.items[0], rows)) return false;
  for (size_t i = 0; i < rows->pieces.n; i++) {
    if (rows->pieces.items[i].n_factors) return false;
    rows->pieces.items[i].rounding = node->attr.form;
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
    case OP_ROUND_TO:
      return read_rounded(arena, node, rows);
    default:
      return false;
  }
}

/* Elements of a block: 1 MiB stays in the L2 cache between reading and copying. */
enum { BLOCK_ELEMENTS = 1 << 18 };

typedef struct Packer {
  Arena *scratch; /* emptied after each recipe */
  Diag *diag;
  const Plan *plan;
  const WeightReader *weights;
  const WeightRecipe *recipe; /* the one that is packed */
  float *to;                  /* where */
  RecipeRows rows;            /* what */
  Arena *blocks;              /* of the buffer alone */
  float *buffer;              /* of n_buffer elements */
  float *row;                 /* of panels of whole numbers: a row */
  int8_t *whole, *steps;
  int64_t n_buffer;
} Packer;

/* A part of a piece, in memory: rows [row, row + rows) of the recipe, columns [column, column + columns). */
typedef struct Block {
  const RecipePiece *piece;
  const float *data; /* of its first element */
  int64_t first;     /* which element of the weight that is */
  int64_t row, rows, column, columns;
} Block;

static bool is_whole_numbers(const Packer *p) { return tfm_form_is_integer(p->recipe->form); }

// ---- copying blocks ----

static bool is_changed(const RecipePiece *piece) { return piece->n_factors || piece->rounding != TFM_FORM_F32; }

static float changed(const RecipePiece *piece, float value) {
  if (piece->rounding == TFM_FORM_BF16) value = bf16_to_f32(f32_to_bf16(value));
  if (piece->rounding == TFM_FORM_F16) value = f16_to_f32(f32_to_f16(value));
  for (uint32_t i = 0; i < piece->n_factors; i++) value *= piece->factors[i];
  return value;
}

/* Elements that stay as they are and are neighbours are copied as bytes; most weights are such. */
static void copy_row(const RecipePiece *piece, const float *from, int64_t columns, float *to) {
  if (piece->column_stride == 1 && !is_changed(piece)) {
    memcpy(to, from, (size_t)columns * sizeof *to);
    return;
  }
  for (int64_t j = 0; j < columns; j++) to[j] = changed(piece, from[j * piece->column_stride]);
}

static uint16_t narrow(uint8_t form, float value) {
  return form == TFM_FORM_BF16 ? f32_to_bf16(value) : f32_to_f16(value);
}

/* Tables of 16 bits, in which the elements are exact. */
static void put_rows_of_16_bits(const Packer *p, const Block *block) {
  uint16_t *to = (uint16_t *)(void *)p->to + block->row * p->rows.columns + block->column;
  for (int64_t i = 0; i < block->rows; i++, to += p->rows.columns)
    for (int64_t j = 0; j < block->columns; j++)
      to[j] = narrow(p->recipe->form, block->data[i * block->piece->row_stride + j * block->piece->column_stride]);
}

static void put_plain(const Packer *p, const Block *block) {
  float *to = p->to + block->row * p->rows.columns + block->column;
  for (int64_t i = 0; i < block->rows; i++, to += p->rows.columns)
    copy_row(block->piece, block->data + i * block->piece->row_stride, block->columns, to);
}

/* A row of the recipe becomes a column of a panel, so the writes of a row are `width` floats apart. Rows are taken in
 * parts of 16 elements, one cache line of reading; the 16 lines of the panel that they are written to stay in L1 until
 * the part of the last row has filled them. */
enum { ROW_PART = 16 };

static void fill_by_rows(const RecipePiece *piece, const float *data, int64_t rows, int64_t columns, uint32_t width,
                         float *panel) {
  for (int64_t begin = 0; begin < columns; begin += ROW_PART) {
    int64_t end = begin + ROW_PART < columns ? begin + ROW_PART : columns;
    for (int64_t c = 0; c < rows; c++) {
      const float *from = data + c * piece->row_stride;
      float *to = panel + c;
      for (int64_t i = begin; i < end; i++) {
        float value = from[i * piece->column_stride];
        to[i * width] = is_changed(piece) ? changed(piece, value) : value;
      }
    }
  }
}

/* Of a transposed matrix, whole lines of the panel are neighbours in the file too. */
static void fill_by_columns(const RecipePiece *piece, const float *data, int64_t rows, int64_t columns, uint32_t width,
                            float *panel) {
  for (int64_t i = 0; i < columns; i++, data += piece->column_stride, panel += width)
    for (int64_t c = 0; c < rows; c++)
      panel[c] = is_changed(piece) ? changed(piece, data[c * piece->row_stride]) : data[c * piece->row_stride];
}

/* The same in 16 bits, in which the elements are exact: k counts from the beginning of the panel. */
static void fill_16_bits(const Packer *p, const Block *block, const float *data, int64_t rows, uint16_t *panel) {
  const RecipePiece *piece = block->piece;
  const bool is_bf16 = p->recipe->form == TFM_FORM_BF16;
  const uint32_t width = p->recipe->width;
  for (int64_t k = block->column; k < block->column + block->columns; k++, data += piece->column_stride)
    for (int64_t c = 0; c < rows; c++) {
      const float value = data[c * piece->row_stride];
      if (is_bf16)
        panel[(k / 2 * width + c) * 2 + (k % 2 == 0)] = f32_to_bf16(value);
      else
        panel[k * width + c] = f32_to_f16(value);
    }
}

/* The same as whole numbers, of which rows are made as a whole: 128 more than they are, so that they have no sign, and
 * the scales behind them. What is behind the last k counts as 0. */
static void read_row(const Packer *p, const RecipePiece *piece, const float *data) {
  for (int64_t i = 0; i < p->rows.columns; i++) {
    const float value = data[i * piece->column_stride];
    p->row[i] = is_changed(piece) ? changed(piece, value) : value;
  }
}

static void put_scale(const Packer *p, char *panel, int64_t lane, float scale) {
  const int64_t numbers = p->recipe->width * tfm_form_bytes(p->recipe->form, p->rows.columns);
  memcpy(panel + numbers + lane * (int64_t)sizeof scale, &scale, sizeof scale);
}

static void fill_int8(const Packer *p, const RecipePiece *piece, const float *data, int64_t rows, char *panel,
                      int64_t lane) {
  const int64_t k = p->rows.columns, width = p->recipe->width;
  for (int64_t c = lane; c < lane + rows; c++, data += piece->row_stride) {
    read_row(p, piece, data);
    const float scale = int8_round_weight(p->row, k, p->whole);
    for (int64_t i = 0; i < (k + 3) / 4 * 4; i++)
      panel[(i / 4 * width + c) * 4 + i % 4] = (char)(uint8_t)((i < k ? p->whole[i] : 0) + 128);
    put_scale(p, panel, c, scale);
  }
}

/* The same in 4 bits. */
static void fill_int4(const Packer *p, const RecipePiece *piece, const float *data, int64_t rows, char *panel,
                      int64_t lane) {
  const int64_t k = p->rows.columns, width = p->recipe->width;
  for (int64_t c = lane; c < lane + rows; c++, data += piece->row_stride) {
    read_row(p, piece, data);
    int8_rotate_weight(p->row, k);
    const float scale = int4_round(p->row, k, p->whole, p->steps);
    for (int64_t group = 0; group < k / TFM_GROUP; group++) {
      char *to = panel + width * tfm_form_bytes(TFM_FORM_INT4, group / TFM_GROUPS * TFM_GROUPS * TFM_GROUP) + c * 4;
      const int8_t *q = p->whole + group * TFM_GROUP;
      to[group % TFM_GROUPS] = (char)p->steps[group];
      to += width * TFM_GROUPS + group % TFM_GROUPS * width * TFM_GROUP / 2;
      for (int i = 0; i < TFM_GROUP; i += i % 4 == 3 ? 5 : 1)
        to[i / 8 * 4 * width + i % 4] = (char)(uint8_t)(q[i] + 8 + (q[i + 4] + 8) * 16);
    }
    put_scale(p, panel, c, scale);
  }
}

static bool is_transposed(const RecipePiece *piece) { return piece->column_stride > piece->row_stride; }

/* Blocks of k follow each other without gaps, so a panel is [k][width] whatever their size. A panel may be made of
 * rows of several pieces, and of several blocks. */
static void put_panels(const Packer *p, const Block *block) {
  const uint32_t width = p->recipe->width;
  const RecipePiece *piece = block->piece;
  for (int64_t done = 0, n; done < block->rows; done += n) {
    int64_t row = block->row + done, lane = row % width;
    n = width - lane < block->rows - done ? width - lane : block->rows - done;
    const float *data = block->data + done * piece->row_stride;
    char *panel = (char *)p->to + row / width * width * tfm_column_bytes(p->recipe->form, p->rows.columns);
    if (is_whole_numbers(p)) {
      (p->recipe->form == TFM_FORM_INT8 ? fill_int8 : fill_int4)(p, piece, data, n, panel, lane);
      continue;
    }
    if (p->recipe->form != TFM_FORM_F32) {
      fill_16_bits(p, block, data, n, (uint16_t *)panel + lane * (p->recipe->form == TFM_FORM_BF16 ? 2 : 1));
      continue;
    }
    (is_transposed(piece) ? fill_by_columns : fill_by_rows)(piece, data, n, block->columns, width,
                                                            (float *)panel + block->column * width + lane);
  }
}

/* What would become infinite would change the model more than rounding does; what is infinite has no scale. */
static bool fits(const Packer *p, const Block *block) {
  const RecipePiece *piece = block->piece;
  const bool is_whole = is_whole_numbers(p);
  if (piece->rounding != TFM_FORM_F16 && !is_whole) return true;
  for (int64_t i = 0; i < block->rows; i++)
    for (int64_t j = 0; j < block->columns; j++) {
      const float value = block->data[i * piece->row_stride + j * piece->column_stride];
      if (is_whole ? isfinite(value) : f16_holds(value)) continue;
      diag_error_at(p->diag, "--quantize", DIAG_NONFINITE, "%s%s%s has %g as element %lld, which %s",
                    piece->weight ? "weight \"" : "a product's factor", piece->weight ? piece->weight : "",
                    piece->weight ? "\"" : "", (double)value,
                    (long long)(block->first + i * piece->row_stride + j * piece->column_stride),
                    is_whole ? "has no form of 8 bits" : "is too large for f16 (65504)");
      return false;
    }
  return true;
}

static bool put(const Packer *p, const Block *block) {
  if (!fits(p, block)) return false;
  if (p->recipe->layout != WEIGHT_PLAIN)
    put_panels(p, block);
  else
    (p->recipe->form == TFM_FORM_F32 ? put_plain : put_rows_of_16_bits)(p, block);
  return true;
}

// ---- reading blocks ----

static bool read_part(const Packer *p, const char *name, int64_t first, int64_t n, float *to) {
  const WeightReader *weights = p->weights;
  if (weights->part) return weights->part(weights->context, name, first, n, to);
  const Tensor *tensor = weights->whole(weights->context, name);
  if (tensor) memcpy(to, (const float *)tensor->data + first, (size_t)n * sizeof *to);
  return tensor != NULL;
}

/* Rows of the recipe, columns where it is transposed: as many as fit in a block, at least a panel of rows, so that no
 * line of a panel is written in parts. */
static int64_t block_lines(const Packer *p, const RecipePiece *piece, int64_t stride) {
  int64_t lines = BLOCK_ELEMENTS / (stride ? stride : 1), panel = 1;
  if (is_whole_numbers(p) && is_transposed(piece)) return p->rows.columns; /* rows go as a whole */
  if (p->recipe->layout == WEIGHT_PANELS && !is_transposed(piece)) panel = p->recipe->width;
  lines -= lines % panel;
  return lines > panel ? lines : panel;
}

static float *buffer_for(Packer *p, int64_t elements) {
  if (elements > p->n_buffer) {
    p->n_buffer = elements > BLOCK_ELEMENTS ? elements : BLOCK_ELEMENTS;
    arena_reset(p->blocks);
    p->buffer = ARENA_ARRAY(p->blocks, float, p->n_buffer);
  }
  return p->buffer;
}

/* Reads a block with all that lies between its lines: of a slice of columns, the other columns too. */
static bool stream_piece(Packer *p, const RecipePiece *piece, int64_t row) {
  const int64_t columns = p->rows.columns;
  const bool transposed = is_transposed(piece);
  const int64_t stride = transposed ? piece->column_stride : piece->row_stride;
  const int64_t across = transposed ? piece->row_stride * (piece->rows - 1) : piece->column_stride * (columns - 1);
  const int64_t lines = transposed ? columns : piece->rows, step = block_lines(p, piece, stride);
  for (int64_t line = 0, n; line < lines; line += n) {
    n = step < lines - line ? step : lines - line;
    const int64_t elements = (n - 1) * stride + across + 1;
    float *buffer = buffer_for(p, elements);
    if (!read_part(p, piece->weight, piece->first + line * stride, elements, buffer)) return false;
    const Block block = {.piece = piece,
                         .data = buffer,
                         .first = piece->first + line * stride,
                         .row = transposed ? row : row + line,
                         .rows = transposed ? piece->rows : n,
                         .column = transposed ? line : 0,
                         .columns = transposed ? n : columns};
    if (!put(p, &block)) return false;
  }
  return true;
}

/* Whether the packed bytes are those of the file, in its order: they are read to where they belong. */
static bool is_copy(const Packer *p, const RecipePiece *piece) {
  const bool is_plain = p->recipe->layout == WEIGHT_PLAIN && p->recipe->form == TFM_FORM_F32;
  return is_plain && piece->column_stride == 1 && !is_changed(piece) &&
         (piece->row_stride == p->rows.columns || piece->rows == 1);
}

static bool pack_piece(Packer *p, const RecipePiece *piece, int64_t row) {
  const int64_t columns = p->rows.columns;
  if (!columns) return true;
  if (piece->weight && is_copy(p, piece))
    return read_part(p, piece->weight, piece->first, piece->rows * columns, p->to + row * columns);
  if (piece->weight) return stream_piece(p, piece, row);
  return put(p, &(Block){.piece = piece,
                         .data = piece->data + piece->first,
                         .first = piece->first,
                         .row = row,
                         .rows = piece->rows,
                         .columns = columns});
}

// ---- recipes ----

/* A value that the interpreter computed is one piece. */
static RecipeRows rows_of_tensor(Arena *arena, const Tensor *tensor) {
  RecipeRows rows = {.columns = tensor->rank > 1 ? tensor->dims[tensor->rank - 1] : 1};
  rows.rows = rows.columns ? tensor_elements(tensor) / rows.columns : 0;
  RecipePiece piece = {.rows = rows.rows, .data = tensor->data, .row_stride = rows.columns, .column_stride = 1};
  vec_push(arena, &rows.pieces, piece);
  return rows;
}

static bool pack_rows(Packer *p) {
  int64_t row = 0;
  if (is_whole_numbers(p)) {
    p->row = ARENA_ARRAY(p->scratch, float, p->rows.columns + 1);
    p->whole = ARENA_ARRAY(p->scratch, int8_t, p->rows.columns + 1);
    p->steps = ARENA_ARRAY(p->scratch, int8_t, p->rows.columns / TFM_GROUP + 1);
  }
  for (size_t i = 0; i < p->rows.pieces.n; row += p->rows.pieces.items[i++].rows)
    if (!pack_piece(p, &p->rows.pieces.items[i], row)) return false;
  return true;
}

/* Whole weights go with the value that was computed of them, so the peak is one recipe. */
static bool pack_computed(Packer *p) {
  const WeightReader *weights = p->weights;
  Tensor *value =
      graph_eval_static(p->scratch, p->diag, p->plan->graph, p->recipe->node, weights->whole, weights->context);
  const bool is_plain = p->recipe->layout == WEIGHT_PLAIN && p->recipe->form == TFM_FORM_F32;
  if (value && is_plain && p->recipe->bytes) memcpy(p->to, value->data, p->recipe->bytes);
  if (value && !is_plain) {
    p->rows = rows_of_tensor(p->scratch, value); /* rounded already */
    pack_rows(p);
  }
  if (weights->release) weights->release(weights->context);
  return value != NULL;
}

bool pack_weights(Diag *diag, const Plan *plan, const WeightReader *weights, char *packed) {
  Packer p = {.scratch = arena_create(), .blocks = arena_create(), .diag = diag, .plan = plan, .weights = weights};
  bool packed_all = true;
  for (size_t i = 0; i < plan->recipes.n && packed_all; i++) {
    p.recipe = &plan->recipes.items[i];
    if (p.recipe->is_shared) continue;
    p.to = (float *)(packed + p.recipe->offset);
    packed_all = recipe_rows(p.scratch, p.recipe->node, &p.rows) ? pack_rows(&p) : pack_computed(&p);
    arena_reset(p.scratch);
  }
  arena_destroy(p.scratch);
  arena_destroy(p.blocks);
  return packed_all;
}
