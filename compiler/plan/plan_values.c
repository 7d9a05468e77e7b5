/* In: nodes, their shapes and their users. Out: where every value lies: buffers and their layouts for results, weight
 * recipes for static subgraphs, copies where strides cannot express a view; checks of ids. Refused: weights that no
 * memory can hold.
 *
 * Copies are what this file avoids. A result whose only user is a view gets the layout that suits the view, and one
 * whose only user is a concat is written into the concat's memory. A result that is nothing but an output is written
 * into the caller's memory, if no later step can fail: the outputs of a run that failed must be untouched. */
#include <string.h>

#include "base/checked_size.h"
#include "plan/caches.h"
#include "plan/cost.h"
#include "plan/nest.h"

// ---- memory of results ----

uint32_t plan_buffer(Planner *p, DType dtype, const Size *elements) {
  tfm_buffer buffer = {.elements = plan_size(p, elements), .dtype = (uint8_t)dtype, .persistent = p->prepare,
                       .first_step = TFM_NONE};
  vec_push(p->arena, &p->buffers, buffer);
  vec_push(p->arena, &p->plan->buffer_nodes, p->node);
  return (uint32_t)p->buffers.n - 1;
}

static View default_layout(Planner *p, DType dtype, uint32_t rank, const Size *const *dims, const Size **elements) {
  int64_t n;
  const Size *row = NULL;
  if (dtype == DTYPE_F32 && rank >= 2 && size_is_const(dims[rank - 1], &n))
    row = math_const(&p->math, cost_row_stride(n));
  return view_rows(&p->math, dtype, rank, dims, row, elements);
}

View layout_default(Planner *p, DType dtype, uint32_t rank, const Size *const *dims) {
  return default_layout(p, dtype, rank, dims, NULL);
}

View layout_new(Planner *p, DType dtype, uint32_t rank, const Size *const *dims) {
  const Size *elements;
  View view = default_layout(p, dtype, rank, dims, &elements);
  view.index = plan_buffer(p, dtype, elements);
  return view;
}

bool layout_has_columns(Planner *p, const View *view) {
  (void)p;
  return view_has_contiguous_columns(view);
}

/* A gemm writes rows that are one axis with one stride, whatever axes the result has. */
bool layout_has_rows(Planner *p, const View *view) {
  const Size *rows, *stride;
  return view_has_contiguous_columns(view) && view_collapse(&p->math, view, &rows, &stride);
}

void plan_set_view(Planner *p, const Node *node, const View *view) {
  p->values[node->id].view = *view;
  p->values[node->id].has_view = true;
}

// ---- where a user wants a result ----

static uint32_t count_outputs(const Planner *p, const Node *node) {
  uint32_t n = 0;
  for (size_t i = 0; i < p->outputs.n; i++) n += p->outputs.items[i].node == node;
  return n;
}

/* Returns the only live user, or NULL if there are none or several. `n` gets the number of uses, as an output
 * included. A second result of its step is not a use of its first. */
static const Node *only_user(Planner *p, const Node *node, uint32_t *n) {
  const Node *only = NULL;
  *n = 0;
  for (size_t i = 0; i < node->users.n; i++) {
    const Node *user = node->users.items[i];
    if (!p->values[user->id].is_live || op_is_part(user->op)) continue;
    only = user;
    ++*n;
  }
  *n += count_outputs(p, node);
  return *n == 1 ? only : NULL;
}

static uint32_t output_number(const Planner *p, const Node *node) {
  uint32_t i = 0;
  while (p->outputs.items[i].node != node) i++;
  return i;
}

bool plan_is_gradient(const Planner *p, const View *c) {
  return c->space == TFM_SPACE_OUTPUT && p->outputs.items[c->index].role.kind == ROLE_GRADIENT;
}

/* Whether only pointwise work and reductions read the value. Those read rows in any layout; other steps might need a
 * copy. */
static bool only_rows_read(Planner *p, const Node *node) {
  for (size_t i = 0; i < node->users.n; i++) {
    const Node *user = node->users.items[i];
    if (p->values[user->id].is_live && user->op != OP_POINTWISE && user->op != OP_REDUCE) return false;
  }
  return true;
}

/* A layout and, if no buffer has been made for it yet, how much memory it needs. */
typedef struct Destination {
  View view;
  const Size *elements; /* NULL: the buffer exists */
  const Size *stand_in; /* in an output that is read too: what its stand-in needs; else NULL */
} Destination;

/* Makes the memory that the destination needs. */
static void take_destination(Planner *p, DType dtype, Destination *to) {
  if (to->elements) to->view.index = plan_buffer(p, dtype, to->elements);
  if (to->stand_in) p->stand_ins[to->view.index] = plan_buffer(p, dtype, to->stand_in) + 1;
  to->elements = to->stand_in = NULL;
}

/* A value that is an output and is also read may be computed in the output's memory. A run that does not want the
 * output then computes it in a buffer that stands in for it. */
static bool may_be_in_output(Planner *p, const Node *node, bool is_only_output) {
  if (!p->may_write_outputs || p->values[node->id].is_prepare) return false;
  return is_only_output || (count_outputs(p, node) == 1 && only_rows_read(p, node));
}

/* `is_read`: other steps read the value too, and a run may want their results and not this output. */
static Destination destination_in_output(Planner *p, const Node *node, bool is_read) {
  const Size *elements;
  View whole = view_rows(&p->math, node->dtype, node->rank, (const Size *const *)node->dims, NULL, &elements);
  whole.space = TFM_SPACE_OUTPUT;
  whole.index = output_number(p, node);
  return (Destination){.view = whole, .stand_in = is_read ? elements : NULL};
}

static Destination wanted(Planner *p, const Node *node, bool columns_stay);

/* The memory of a result that an input of it is made in. The first input that asks gives the result its memory, before
 * the result itself is planned. */
static View memory_of(Planner *p, const Node *node) {
  Value *value = &p->values[node->id];
  if (!value->has_view) {
    Destination whole = wanted(p, node, false);
    take_destination(p, node->dtype, &whole);
    plan_set_view(p, node, &whole.view);
  }
  return value->view;
}

/* Returns the part of a concat's memory that is for this input. */
static Destination part_of_concat(Planner *p, const Node *concat, const Node *input) {
  const View whole = memory_of(p, concat);
  const Size *starts[MAX_RANK];
  for (uint32_t i = 0; i < concat->rank; i++) starts[i] = p->math.zero;
  for (size_t i = 0; concat->inputs.items[i] != input; i++) {
    const Node *before = concat->inputs.items[i];
    starts[concat->attr.axis] = math_add(&p->math, starts[concat->attr.axis], before->dims[concat->attr.axis]);
  }
  return (Destination){.view = view_slice(&p->math, &whole, starts, (const Size *const *)input->dims)};
}

/* The layout in which all users see the value without a copy, if they are reshapes: what the first of them would have.
 * In training the heads of an attention are put side by side once for a product and once for its gradient, whose rows
 * are one axis. False: there is no such layout. */
static bool wanted_by_reshapes(Planner *p, const Node *node, Destination *to) {
  View view = {0}, seen;
  bool has_view = false;
  if (count_outputs(p, node)) return false;
  for (size_t i = 0; i < node->users.n; i++) {
    const Node *user = node->users.items[i];
    const Size *const *dims = (const Size *const *)user->dims;
    if (!p->values[user->id].is_live || op_is_part(user->op)) continue;
    if (user->op != OP_RESHAPE || p->values[user->id].is_prepare != p->values[node->id].is_prepare) return false;
    if (!has_view) {
      const View whole = default_layout(p, user->dtype, user->rank, dims, &to->elements);
      has_view = view_reshape(&p->math, &whole, node->rank, (const Size *const *)node->dims, &view);
    }
    if (!has_view || !view_reshape(&p->math, &view, user->rank, dims, &seen)) return false;
  }
  to->view = view;
  return has_view;
}

static bool moves_columns(const Node *permute) {
  return permute->attr.axes[permute->rank - 1] != permute->rank - 1;
}

/* Follows the only user as far as it is a view, a concat or a scatter that adds to the value, and turns its wish back
 * through the view. A value is not placed in memory with another life: prepared values outlive a run, others do not.
 * columns_stay: a view that is turned has no wish, because most steps cannot write columns that lie apart. */
static Destination wanted(Planner *p, const Node *node, bool columns_stay) {
  uint32_t n_uses;
  const Node *user = only_user(p, node, &n_uses);
  if (may_be_in_output(p, node, n_uses == 1 && !user)) return destination_in_output(p, node, n_uses > 1);
  bool same_life = user && p->values[user->id].is_prepare == p->values[node->id].is_prepare;
  if (same_life && user->op == OP_CONCAT && !caches_has(p, user)) return part_of_concat(p, user, node);
  if (same_life && user->op == OP_SCATTER && user->inputs.n > 2 && user->inputs.items[2] == node)
    return (Destination){.view = layout_result(p, user, layout_has_columns, NULL, NULL)}; /* as plan_scatter needs it */
  if (same_life && user->op == OP_PERMUTE && !(columns_stay && moves_columns(user))) {
    Destination to = wanted(p, user, columns_stay);
    to.view = view_unpermute(&to.view, user->attr.axes);
    return to;
  }
  if (same_life && user->op == OP_RESHAPE) {
    Destination to = wanted(p, user, columns_stay);
    if (view_reshape(&p->math, &to.view, node->rank, (const Size *const *)node->dims, &to.view)) return to;
  }
  Destination to = {0};
  if (n_uses > 1 && wanted_by_reshapes(p, node, &to)) return to;
  to.view = default_layout(p, node->dtype, node->rank, (const Size *const *)node->dims, &to.elements);
  return to;
}

View layout_result(Planner *p, const Node *node, LayoutTest test, const View *fallback,
                  const Size *fallback_elements) {
  Value *value = &p->values[node->id];
  Destination to = {.view = value->view};
  if (!value->has_view) {
    to = wanted(p, node, false);
    if (!test(p, &to.view) && !fallback) to = wanted(p, node, true);
    if (!test(p, &to.view)) {
      to = (Destination){0};
      if (fallback) to = (Destination){.view = *fallback, .elements = fallback_elements};
      else to.view = default_layout(p, node->dtype, node->rank, (const Size *const *)node->dims, &to.elements);
    }
    take_destination(p, node->dtype, &to);
    plan_set_view(p, node, &to.view);
  }
  return to.view;
}

// ---- weights ----

/* 2^46 bytes: half of what 47 bits of user addresses on x86-64 can hold. Below it, sums of a few sizes cannot
 * overflow. */
enum { MAX_WEIGHT_BYTES_LOG2 = 46 }; /* what an address can hold */

tfm_form plan_form(const Node *product) {
  return node_product_form(product);
}

/* Computes the size of the packed weight; panels are padded to their full width. False if memory could not hold it. */
static bool recipe_bytes(const WeightRecipe *recipe, uint64_t *bytes) {
  const bool is_f32 = recipe->form == TFM_FORM_F32;
  int64_t elements = is_f32 ? dtype_bytes[recipe->node->dtype] : tfm_form_element_bytes(recipe->form);
  int64_t dim = 0;
  if (recipe->layout == WEIGHT_PANELS) elements = 1;
  for (uint32_t i = 0; i < recipe->node->rank; i++) {
    size_is_const(recipe->node->dims[i], &dim);
    if (recipe->layout == WEIGHT_PANELS && i == 1) {
      if (!checked_mul(dim, sizeof(float), &(int64_t){0})) return false;
      dim = tfm_column_bytes(recipe->form, dim);
    }
    int64_t width = recipe->layout == WEIGHT_PANELS && i == 0 ? recipe->width : 1;
    if (!checked_add(dim, (width - dim % width) % width, &dim) || !checked_mul(elements, dim, &elements)) return false;
  }
  *bytes = (uint64_t)elements;
  return elements <= (int64_t)1 << MAX_WEIGHT_BYTES_LOG2;
}

/* The same node in the same layout is packed once. Weights begin at multiples of 64 bytes, a cache line. */
uint32_t plan_weight(Planner *p, const Node *node, WeightLayout layout, uint32_t width, tfm_form form) {
  uint32_t key[4] = {node->id, layout, width, form};
  MapEntry *known = map_find(&p->recipes, key, sizeof key);
  if (known) return (uint32_t)(uintptr_t)known->value;
  WeightRecipe recipe = {.node = node, .layout = layout, .width = width, .form = (uint8_t)form};
  if (!recipe_bytes(&recipe, &recipe.bytes)) {
    plan_limit(p, "a weight is larger than memory can be");
    recipe.bytes = 0;
  }
  recipe.offset = p->plan->program.weights_bytes;
  p->plan->program.weights_bytes = (recipe.offset + recipe.bytes + 63) / 64 * 64;
  uint32_t index = (uint32_t)p->plan->recipes.n;
  vec_push(p->arena, &p->plan->recipes, recipe);
  map_put_n(&p->recipes, key, sizeof key, (void *)(uintptr_t)index);
  return index;
}
