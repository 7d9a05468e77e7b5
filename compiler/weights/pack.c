/* In: recipes. Out: the rows of weights that they are made of, or that they are made of something else; packed weights.
 * See pack.h.
 *
 * A piece is read in blocks that lie together in the file: rows of the recipe, or, where the recipe is transposed,
 * columns. Each block is copied to where it belongs before the next is read, so the largest tensor of a model needs no
 * more memory than the smallest. */
#include "weights/pack.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "tfm/abi/half.h"
#include "forms/form.h"

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
  void *work;                 /* of form_table, for a row */
  int64_t n_buffer;
} Packer;

/* A part of a piece, in memory: rows [row, row + rows) of the recipe, columns [column, column + columns). */
typedef struct Block {
  const RecipePiece *piece;
  const float *data; /* of its first element */
  int64_t first;     /* which element of the weight that is */
  int64_t row, rows, column, columns;
} Block;

static bool has_scales(const Packer *p) { return tfm_form_has_scales(p->recipe->form); }

// ---- copying blocks ----

static bool is_changed(const RecipePiece *piece) { return piece->n_factors || piece->rounding != TFM_FORM_F32; }

static float changed(const RecipePiece *piece, float value) {
  if (piece->rounding == TFM_FORM_BF16) value = bf16_to_f32(f32_to_bf16(value));
  if (piece->rounding == TFM_FORM_F16) value = f16_to_f32(f32_to_f16(value));
  for (uint32_t i = 0; i < piece->n_factors; i++) value *= piece->factors[i];
  return value;
}

/* The block with its pieces' changes: a weight's where it was read to, a constant in a number of its own. */
static Block changed_block(const Packer *p, const Block *block) {
  const RecipePiece *piece = block->piece;
  Block now = *block;
  if (!is_changed(piece)) return now;
  if (!piece->weight) {
    CHECK(!piece->row_stride && !piece->column_stride, "a computed value that is changed again");
    float *number = ARENA_NEW(p->scratch, float);
    *number = changed(piece, *block->data);
    now.data = number;
    return now;
  }
  for (int64_t i = 0; i < block->rows; i++)
    for (int64_t j = 0; j < block->columns; j++) {
      float *number = &p->buffer[i * piece->row_stride + j * piece->column_stride];
      *number = changed(piece, *number);
    }
  return now;
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

/* Most weights are rows of neighbours. */
static void put_plain(const Packer *p, const Block *block) {
  const RecipePiece *piece = block->piece;
  float *to = p->to + block->row * p->rows.columns + block->column;
  for (int64_t i = 0; i < block->rows; i++, to += p->rows.columns) {
    const float *from = block->data + i * piece->row_stride;
    if (piece->column_stride == 1) memcpy(to, from, (size_t)block->columns * sizeof *to);
    else
      for (int64_t j = 0; j < block->columns; j++) to[j] = from[j * piece->column_stride];
  }
}

static bool is_transposed(const RecipePiece *piece) { return piece->column_stride > piece->row_stride; }

/* Blocks of k follow each other without gaps, so a panel is [k][width] whatever their size. A panel may be made of
 * rows of several pieces, and of several blocks. */
static void put_panels(const Packer *p, const Block *block) {
  const uint8_t form = p->recipe->form;
  FormPart part = {.width = p->recipe->width, .all_k = p->rows.columns, .first_k = block->column, .k = block->columns,
                   .row_stride = block->piece->row_stride, .k_stride = block->piece->column_stride, .work = p->work};
  for (int64_t done = 0; done < block->rows; done += part.columns) {
    const int64_t row = block->row + done, left = block->rows - done;
    part.lane = row % part.width;
    part.columns = part.width - part.lane < left ? part.width - part.lane : left;
    part.data = block->data + done * part.row_stride;
    part.panel = (char *)p->to + row / part.width * part.width * tfm_column_bytes(form, part.all_k);
    form_table[form].pack(&part);
  }
}

/* What the numbers must fit in; F32: anything. */
static tfm_form narrowest(const Packer *p, const Block *block) {
  return has_scales(p) ? (tfm_form)p->recipe->form : block->piece->rounding;
}

static bool takes_all(tfm_form form) { return !form_refuses(form, INFINITY) && !form_refuses(form, FLT_MAX); }

/* What would become infinite would change the model more than rounding does; what is infinite has no scale. */
static bool fits(const Packer *p, const Block *block) {
  const RecipePiece *piece = block->piece;
  const tfm_form form = narrowest(p, block);
  if (takes_all(form)) return true;
  for (int64_t i = 0; i < block->rows; i++)
    for (int64_t j = 0; j < block->columns; j++) {
      const float value = block->data[i * piece->row_stride + j * piece->column_stride];
      const char *reason = form_refuses(form, value);
      if (!reason) continue;
      diag_error_at(p->diag, "--quantize", DIAG_NONFINITE, "%s%s%s has %g as element %lld, which %s",
                    piece->weight ? "weight \"" : "a product's factor", piece->weight ? piece->weight : "",
                    piece->weight ? "\"" : "", (double)value,
                    (long long)(block->first + i * piece->row_stride + j * piece->column_stride), reason);
      return false;
    }
  return true;
}

static bool put(const Packer *p, const Block *read) {
  if (!fits(p, read)) return false;
  const Block block = changed_block(p, read);
  if (p->recipe->layout != WEIGHT_PLAIN) put_panels(p, &block);
  else (p->recipe->form == TFM_FORM_F32 ? put_plain : put_rows_of_16_bits)(p, &block);
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
  if (has_scales(p) && is_transposed(piece)) return p->rows.columns; /* rows go as a whole */
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
  p->work = has_scales(p) ? arena_alloc(p->scratch, form_work_bytes(p->rows.columns)) : NULL;
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
