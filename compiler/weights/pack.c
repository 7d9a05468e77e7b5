/* In: weight recipes. Out: packed weights. See pack.h.
 *
 * A recipe is first read as rows of tensors (recipe.h); what that refuses is computed whole, then treated as one
 * piece. Rows are copied (PLAIN) or dealt out as columns of panels (PANELS). */
#include "weights/pack.h"

#include <string.h>

#include "weights/recipe.h"

/* Elements of a row that are handled together while the lines they are written to stay in the cache. */
enum { ROW_PART = 16 };

static float factored(const RecipePiece *piece, float value) {
  for (uint32_t i = 0; i < piece->n_factors; i++) value *= piece->factors[i];
  return value;
}

// ---- plain ----

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

typedef struct PanelColumn {
  const RecipePiece *piece;
  const float *from;
} PanelColumn;

/* Where the next `width` rows are; `piece` and `row` go on. Returns how many there are. */
static uint32_t take_columns(const RecipeRows *rows, uint32_t width, size_t *piece, int64_t *row, PanelColumn *columns) {
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

/* k blocks follow each other without gaps, so a panel is [k][width] whatever the size of a block. */
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

static RecipeRows rows_of_tensor(Arena *arena, const Tensor *tensor) {
  RecipeRows rows = {.columns = tensor->rank > 1 ? tensor->dims[tensor->rank - 1] : 1};
  rows.rows = rows.columns ? tensor_elements(tensor) / rows.columns : 0;
  RecipePiece piece = {.rows = rows.rows, .data = tensor->data, .row_stride = rows.columns, .column_stride = 1};
  vec_push(arena, &rows.pieces, piece);
  return rows;
}

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

bool pack_weights(Arena *arena, Diag *diag, const Plan *plan, WeightLookup weights, void *context, char *packed) {
  (void)arena;
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
