/* Sets of rows. See row_sets.h.
 *
 * Terms that lie in another one are left out, and two that differ by one condition and its negation are one without it.
 * Where there are too many terms, the last one keeps what it has in common with those that do not fit. With one term a
 * set is what all users of a value agree on. */
#include "passes/row_sets.h"

#include <math.h>
#include <string.h>

// ---- terms ----

bool rows_same_mask(const RowMask *a, const RowMask *b) {
  return a->node == b->node && a->where == b->where && a->number == b->number && a->start == b->start &&
         a->end == b->end && a->n_axes == b->n_axes && !memcmp(a->axes, b->axes, a->n_axes);
}

static bool term_has(const RowTerm *term, const RowMask *mask) {
  for (uint32_t i = 0; i < term->n; i++)
    if (rows_same_mask(&term->masks[i], mask)) return true;
  return false;
}

/* A mask too many is left out, which is safe: more rows count. */
static void term_add(RowTerm *term, const RowMask *mask) {
  if (term->n < ROWS_MOST_MASKS && !term_has(term, mask)) term->masks[term->n++] = *mask;
}

static bool term_within(const RowTerm *part, const RowTerm *whole) {
  for (uint32_t i = 0; i < whole->n; i++)
    if (!term_has(part, &whole->masks[i])) return false;
  return true;
}

static RowTerm term_common(const RowTerm *a, const RowTerm *b) {
  RowTerm common = {0};
  for (uint32_t i = 0; i < a->n; i++)
    if (term_has(b, &a->masks[i])) term_add(&common, &a->masks[i]);
  return common;
}

/* Whether the terms differ by one mask, which is negated in the other. */
static bool term_completes(const RowTerm *a, const RowTerm *b) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < a->n; i++) {
    if (term_has(b, &a->masks[i])) continue;
    RowMask negated = a->masks[i];
    negated.where = !negated.where;
    if (!negated.node || !term_has(b, &negated)) return false;
    n++;
  }
  return a->n == b->n && n == 1;
}

static void merge(RowSet *set, uint32_t i, const RowTerm *term) {
  set->terms[i] = term_common(&set->terms[i], term);
  if (set->terms[i].n == 0) *set = ROWS_ALL;
}

static void remove_term(RowSet *set, uint32_t i) { set->terms[i] = set->terms[--set->n]; }

static void add_term(RowSet *set, uint32_t most, const RowTerm *term) {
  if (set->all) return;
  if (term->n == 0) {
    *set = ROWS_ALL;
    return;
  }
  for (uint32_t i = 0; i < set->n && most > 1; i++) {
    if (term_within(term, &set->terms[i])) return;
    if (term_completes(term, &set->terms[i])) {
      const RowTerm common = term_common(&set->terms[i], term);
      remove_term(set, i);
      add_term(set, most, &common);
      return;
    }
    if (term_within(&set->terms[i], term)) remove_term(set, i--);
  }
  if (set->n < most && set->n < ROWS_MOST_TERMS) set->terms[set->n++] = *term;
  else merge(set, set->n - 1u, term);
}

// ---- sets ----

RowSet rows_union(uint32_t most, const RowSet *a, const RowSet *b) {
  if (rows_are_none(a)) return *b;
  RowSet joined = *a;
  if (b->all) return ROWS_ALL;
  for (uint32_t i = 0; i < b->n; i++) add_term(&joined, most, &b->terms[i]);
  return joined;
}

RowSet rows_both(uint32_t most, const RowSet *a, const RowSet *b) {
  if (a->all) return *b;
  if (b->all) return *a;
  RowSet both = ROWS_NONE;
  for (uint32_t i = 0; i < a->n; i++)
    for (uint32_t j = 0; j < b->n; j++) {
      RowTerm term = a->terms[i];
      for (uint32_t k = 0; k < b->terms[j].n; k++) term_add(&term, &b->terms[j].masks[k]);
      add_term(&both, most, &term);
    }
  return both;
}

/* False: the other value has no such axis, or is needed along all of it. */
static bool map_mask(RowMask *mask, const int32_t *axes) {
  for (uint32_t i = 0; i < mask->n_axes && i < MAX_RANK; i++) {
    int32_t axis = axes[mask->axes[i]];
    if (axis < 0) return false;
    mask->axes[i] = (uint8_t)axis;
  }
  return true;
}

RowSet rows_map(uint32_t most, const RowSet *set, const int32_t *axes) {
  if (set->all) return ROWS_ALL;
  RowSet mapped = ROWS_NONE;
  for (uint32_t i = 0; i < set->n; i++) {
    RowTerm term = {0};
    for (uint32_t j = 0; j < set->terms[i].n; j++) {
      RowMask mask = set->terms[i].masks[j];
      if (map_mask(&mask, axes)) term_add(&term, &mask);
    }
    add_term(&mapped, most, &term);
  }
  return mapped;
}

RowSet rows_in_range(const RowSet *set, uint32_t axis, const Size *start, const Size *end) {
  const RowMask range = {.start = start, .end = end, .n_axes = 1, .axes = {(uint8_t)axis}};
  const RowSet within = {.n = 1, .terms = {{.n = 1, .masks = {range}}}};
  return rows_both(ROWS_MOST_TERMS, set, &within);
}

bool rows_within(const RowSet *part, const RowSet *whole) {
  if (whole->all || part->all) return whole->all;
  for (uint32_t i = 0; i < part->n; i++) {
    bool found = false;
    for (uint32_t j = 0; j < whole->n; j++) found |= term_within(&part->terms[i], &whole->terms[j]);
    if (!found) return false;
  }
  return true;
}

bool rows_equal(const RowSet *a, const RowSet *b) { return rows_within(a, b) && rows_within(b, a); }

bool rows_have_axis(const RowSet *set, uint32_t axis) {
  for (uint32_t i = 0; i < set->n; i++)
    for (uint32_t j = 0; j < set->terms[i].n; j++)
      if (memchr(set->terms[i].masks[j].axes, (int)axis, set->terms[i].masks[j].n_axes)) return true;
  return false;
}

void rows_aligned_axes(const Node *operand, uint32_t rank, int32_t *axes) {
  for (uint32_t i = 0; i < rank; i++) {
    int32_t own = (int32_t)(i + operand->rank) - (int32_t)rank;
    axes[i] = own < 0 || dim_is_one(operand->dims[own]) ? -1 : own;
  }
}

void rows_widened_axes(const Node *operand, uint32_t rank, int32_t *axes) {
  for (uint32_t i = 0; i < operand->rank; i++)
    axes[i] = dim_is_one(operand->dims[i]) ? -1 : (int32_t)(i + rank) - (int32_t)operand->rank;
}

// ---- reshapes ----

static const Size *elements(SizeTable *sizes, const Node *node, uint32_t from, uint32_t to) {
  return sizes_product(sizes, to - from, node->dims + from);
}

uint32_t rows_merged_axes(SizeTable *sizes, const Node *reshape, uint32_t axis, int32_t *axes) {
  const Node *x = reshape->inputs.items[0];
  const Size *before = elements(sizes, reshape, 0, axis);
  uint32_t first = 0, n = 0;
  while (first < x->rank && (elements(sizes, x, 0, first) != before || dim_is_one(x->dims[first]))) first++;
  for (uint32_t end = first; before && end < x->rank; end++) {
    axes[n++] = (int32_t)end;
    if (elements(sizes, x, first, end + 1) == reshape->dims[axis]) return n;
  }
  return 0;
}

// ---- masks ----

/* Whether two shapes differ by axes of 1 only. */
static bool same_long_axes(const Node *a, const Node *b) {
  uint32_t i = 0, j = 0;
  for (;; i++, j++) {
    while (i < a->rank && dim_is_one(a->dims[i])) i++;
    while (j < b->rank && dim_is_one(b->dims[j])) j++;
    if (i == a->rank || j == b->rank) return i == a->rank && j == b->rank;
    if (a->dims[i] != b->dims[j]) return false;
  }
}

static bool is_negation(const Node *node) {
  return node->op == OP_POINTWISE && node->attr.expr->kind == EXPR_OP && node->attr.expr->op == OP_NOT &&
         node->attr.expr->args[0]->kind == EXPR_INPUT && node->inputs.n == 1;
}

/* The masks without which the given mask does not hold: a conjunction holds only where each of its parts does. Found
 * over the mask's own axes, given over those of the value. */
static RowSet rows_of_parts(uint32_t most, const RowMask *mask, bool holds) {
  const Node *node = mask->node;
  if (node->op != OP_POINTWISE || node->dtype != DTYPE_BOOL) return ROWS_ALL;
  NodeType domain = type_of(node);
  RowSet parts = rows_of_condition(most, node, &domain, node->attr.expr, holds, MAX_RANK);
  int32_t axes[MAX_RANK];
  for (uint32_t i = 0, k = 0; i < node->rank; i++) axes[i] = dim_is_one(node->dims[i]) ? -1 : mask->axes[k++];
  return rows_map(most, &parts, axes);
}

/* Whether the expression compares an i32 input with a number; `is_equal`: or is true where it differs. */
static bool is_comparison(const Expr *expr, int64_t *number, bool *is_equal) {
  if (expr->kind != EXPR_OP || (expr->op != OP_EQ && expr->op != OP_NE)) return false;
  const Expr *input = expr->args[0], *constant = expr->args[1];
  if (input->kind != EXPR_INPUT || input->dtype != DTYPE_I32 || constant->kind != EXPR_CONST) return false;
  *number = constant->integer;
  *is_equal = expr->op == OP_EQ;
  return true;
}

/* A mask that only compares is what it compares, so that it equals a comparison within an expression. */
static void look_behind_comparison(RowMask *mask) {
  const Node *node = mask->node;
  bool is_equal;
  if (node->op != OP_POINTWISE || node->dtype != DTYPE_BOOL || node->inputs.n != 1) return;
  if (!is_comparison(node->attr.expr, &mask->number, &is_equal)) return;
  if (!same_long_axes(node, node->inputs.items[0])) return;
  mask->where = mask->where == is_equal;
  mask->node = node->inputs.items[0];
  while (mask->node->op == OP_RESHAPE && same_long_axes(mask->node, mask->node->inputs.items[0]))
    mask->node = mask->node->inputs.items[0];
}

/* The elements that are read where `operand` (if it is i32: whether it is `number`) is `holds`. The mask is followed
 * behind axes of 1 and negations, so that equal masks are one node. */
static RowSet rows_of_mask(uint32_t most, const Node *operand, int64_t number, const NodeType *domain, bool holds,
                           uint32_t apart) {
  RowMask mask = {.node = operand, .where = holds, .number = number};
  for (uint32_t i = 0; i < operand->rank; i++) {
    if (dim_is_one(operand->dims[i])) continue;
    mask.axes[mask.n_axes++] = (uint8_t)(domain->rank - operand->rank + i);
  }
  while ((mask.node->op == OP_RESHAPE || (mask.node->dtype == DTYPE_BOOL && is_negation(mask.node))) &&
         same_long_axes(mask.node, mask.node->inputs.items[0])) {
    if (mask.node->op != OP_RESHAPE) mask.where = !mask.where;
    mask.node = mask.node->inputs.items[0];
  }
  if (most > 1) look_behind_comparison(&mask);
  if (mask.n_axes == 0 || memchr(mask.axes, (int)apart, mask.n_axes)) return ROWS_ALL;
  RowSet need = {.n = 1, .terms = {{.n = 1, .masks = {mask}}}};
  RowSet parts = rows_of_parts(most, &mask, mask.where);
  return rows_both(most, &need, &parts);
}

RowSet rows_of_condition(uint32_t most, const Node *node, const NodeType *domain, const Expr *condition, bool holds,
                         uint32_t apart) {
  if (condition->kind == EXPR_INPUT && condition->dtype == DTYPE_BOOL)
    return rows_of_mask(most, node->inputs.items[condition->input], 0, domain, holds, apart);
  if (condition->kind != EXPR_OP) return ROWS_ALL;
  int64_t number;
  bool is_equal;
  if (most > 1 && is_comparison(condition, &number, &is_equal))
    return rows_of_mask(most, node->inputs.items[condition->args[0]->input], number, domain, holds == is_equal, apart);
  if (condition->op == OP_NOT) return rows_of_condition(most, node, domain, condition->args[0], !holds, apart);
  if (condition->op != (holds ? OP_AND : OP_OR)) return ROWS_ALL;
  RowSet a = rows_of_condition(most, node, domain, condition->args[0], holds, apart);
  RowSet b = rows_of_condition(most, node, domain, condition->args[1], holds, apart);
  return rows_both(most, &a, &b);
}

static bool is_minus_infinity(const Expr *expr) {
  return expr->kind == EXPR_CONST && expr->dtype == DTYPE_F32 && expr->number == -INFINITY;
}

RowSet rows_of_seen_keys(uint32_t most, const Node *node, const NodeType *scores, const Expr *expr) {
  RowSet seen = ROWS_ALL;
  while (expr && expr->kind == EXPR_OP && expr->op == OP_WHERE) {
    bool masked = is_minus_infinity(expr->args[1]);
    if (!masked && !is_minus_infinity(expr->args[2])) break;
    RowSet need = rows_of_condition(most, node, scores, expr->args[0], !masked, scores->rank - 2);
    seen = rows_both(most, &seen, &need);
    expr = expr->args[masked ? 2 : 1];
  }
  return seen;
}

// ---- sets as masks ----

/* The mask's shape over these axes, 1 where it is the same. */
static void shape_of_mask(RowMasks *r, const RowMask *mask, uint32_t rank, const Size *const *dims,
                          const Size **shape) {
  for (uint32_t i = 0; i < rank; i++)
    shape[i] = memchr(mask->axes, (int)i, mask->n_axes) ? dims[i] : size_const(r->pass->graph->sizes, 1);
}

bool rows_tell_all(const Node *node, const RowMask *mask, uint32_t rank, const Size *const *dims) {
  const bool is_attention =
      node->op == OP_ATTENTION || node->op == OP_ATTENTION_KEPT || node->op == OP_ATTENTION_GRAD;
  for (uint32_t i = is_attention ? rank - 1 : 0; i < rank; i++)
    if (!memchr(mask->axes, (int)i, mask->n_axes) && !dim_is_one(dims[i])) return false;
  return true;
}

Node *rows_mask_view(RowMasks *r, const Node *mask, uint32_t rank, const Size *const *dims) {
  for (size_t i = 0; i < r->views.n; i++) {
    Node *view = r->views.items[i].view;
    if (r->views.items[i].mask == mask && view->rank == rank && !memcmp(view->dims, dims, rank * sizeof *dims))
      return view;
  }
  Node *node = r->pass->graph->first;
  while (node != mask) node = node->next;
  Builder b = pass_builder(r->pass, node->next, node);
  Node *view = match_reshape(&b, node, rank, dims);
  vec_push(r->pass->scratch, &r->views, (MaskView){mask, view});
  return view;
}

static Expr *size_expr(RowMasks *r, const Size *size) {
  int64_t value;
  Arena *arena = r->pass->graph->arena;
  return size_is_const(size, &value) ? expr_integer(arena, DTYPE_I32, value) : expr_size(arena, DTYPE_I32, size);
}

static Expr *both_of(RowMasks *r, OpKind op, Expr *a, Expr *b) {
  return a && b ? expr_op(r->pass->graph->arena, op, DTYPE_BOOL, a, b, NULL) : a ? a : b;
}

typedef VEC(Node *) NodeList;

/* One condition over axes `dims`; what it reads becomes an input. */
static Expr *expr_of_mask(RowMasks *r, const RowMask *mask, uint32_t rank, const Size *const *dims, NodeList *inputs) {
  Arena *arena = r->pass->graph->arena;
  const Size *shape[MAX_RANK];
  if (!mask->node) {
    Expr *index = expr_index(arena, rank - 1u - mask->axes[0]), *from = NULL, *to = NULL;
    if (!size_equals(mask->start, 0))
      from = expr_op(arena, OP_GE, DTYPE_BOOL, index, size_expr(r, mask->start), NULL);
    if (mask->end != dims[mask->axes[0]])
      to = expr_op(arena, OP_LT, DTYPE_BOOL, index, size_expr(r, mask->end), NULL);
    return both_of(r, OP_AND, from, to);
  }
  shape_of_mask(r, mask, rank, dims, shape);
  Node *view = rows_mask_view(r, mask->node, rank, shape);
  uint32_t number = 0;
  while (number < inputs->n && inputs->items[number] != view) number++;
  if (number == inputs->n) vec_push(r->pass->scratch, inputs, view);
  Expr *expr = expr_input(arena, view->dtype, number);
  if (view->dtype == DTYPE_I32) {
    Expr *constant = expr_integer(arena, DTYPE_I32, mask->number);
    return expr_op(arena, mask->where ? OP_EQ : OP_NE, DTYPE_BOOL, expr, constant, NULL);
  }
  return mask->where ? expr : expr_op(arena, OP_NOT, DTYPE_BOOL, expr, NULL, NULL);
}

/* A mask that is true in the rows of the set, before `user`; one for all that need the same. */
static Node *mask_of_set(RowMasks *r, Node *user, const RowSet *rows, uint32_t rank, const Size *const *dims) {
  for (size_t i = 0; i < r->sets.n; i++) {
    Node *mask = r->sets.items[i].mask;
    const bool has_shape = mask->rank == rank && !memcmp(mask->dims, dims, rank * sizeof *dims);
    if (has_shape && rows_equal(&r->sets.items[i].rows, rows)) return mask;
  }
  NodeList inputs = {0};
  Expr *all = NULL;
  for (uint32_t i = 0; i < rows->n; i++) {
    Expr *term = NULL;
    for (uint32_t j = 0; j < rows->terms[i].n; j++)
      term = both_of(r, OP_AND, term, expr_of_mask(r, &rows->terms[i].masks[j], rank, dims, &inputs));
    all = both_of(r, OP_OR, all, term);
  }
  Node *mask = graph_add(r->pass->graph, user, OP_POINTWISE, DTYPE_BOOL, rank, dims, (uint32_t)inputs.n, inputs.items,
                         user->origin);
  mask->attr.expr = all;
  vec_push(r->pass->scratch, &r->sets, (SetMask){*rows, mask});
  return mask;
}

/* The mask as a bool node that stands before `user`; NULL: there is none. */
static const Node *bool_of(const RowMask *mask, const Node *user, bool *where) {
  *where = mask->where;
  if (mask->node->dtype == DTYPE_BOOL) return mask->node;
  for (size_t i = 0; i < mask->node->users.n; i++) {
    const Node *node = mask->node->users.items[i];
    RowMask behind = {.node = node, .where = true};
    if (node->dtype != DTYPE_BOOL || node->id >= user->id) continue;
    look_behind_comparison(&behind);
    if (behind.node != mask->node || behind.number != mask->number) continue;
    *where = mask->where == behind.where;
    return node;
  }
  return NULL;
}

/* A view of the only mask that the set has, if that tells each row and lies as it is told, else a new one. */
Node *rows_as_mask(RowMasks *r, Node *node, const RowSet *rows, uint32_t rank, const Size *const *dims, bool *where) {
  const RowMask *only = &rows->terms[0].masks[0];
  const Size *shape[MAX_RANK];
  *where = true;
  if (rows->n != 1 || rows->terms[0].n != 1 || !only->node) return mask_of_set(r, node, rows, rank, dims);
  const Node *mask = bool_of(only, node, where);
  const bool lies_so = mask && (!r->needs_order || mask->op == OP_POINTWISE || mask->op == OP_INPUT);
  if (lies_so && rows_tell_all(node, only, rank, dims)) {
    shape_of_mask(r, only, rank, dims, shape);
    return rows_mask_view(r, mask, rank, shape);
  }
  *where = true;
  return mask_of_set(r, node, rows, rank, dims);
}
