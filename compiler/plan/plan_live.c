/* In: nodes with a mask of their rows; all steps, for what is left of the zeros. Out: entries of p->live. See its .h.
 *
 * A step may leave rows out if nothing reads them. If another step reads them all the same, they must at least hold a
 * number: a step that does not leave out the same rows computes with them even if it selects another value afterwards,
 * and attention reads all keys and values up to the last one that is seen. Memory that was never written may hold a
 * NaN, and 0 * NaN is NaN, so those rows are filled with 0 (`zeroed`). Where attention alone reads a product, it stops
 * at the last key of an item that is no padding, and zeros behind that are not needed (`item`). */
#include "plan/plan_live.h"

#include <string.h>

#include "plan/caches.h"

/* Reshapes of one mask are the same mask. */
static const Node *mask_itself(const Node *mask) {
  while (mask->op == OP_RESHAPE) mask = mask->inputs.items[0];
  return mask;
}

/* Of a product with a mask of steps, the rows of a factor that are left out are such steps. Attention over pages
 * computes all of its queries (live_queries), so it never skips rows. */
static bool skips_same_rows(const Planner *p, const Node *node, const Node *user) {
  const Node *mask = user->attr.rows_mask ? user->inputs.items[user->attr.rows_mask - 1] : NULL;
  return mask && mask_itself(mask) == mask_itself(node_rows_mask(node)) &&
         user->attr.rows_where == node->attr.rows_where && !(user->op == OP_ATTENTION && caches_serve(p, user));
}

/* Whether `user`, through its input `i`, reads rows that the node leaves out. Keys and values (inputs 1 and 2) are
 * read whatever the mask of the queries says. */
static bool reads_all_rows(const Planner *p, const Node *node, const Node *user, size_t i) {
  const bool is_attention =
      user->op == OP_ATTENTION || user->op == OP_ATTENTION_KEPT || user->op == OP_ATTENTION_GRAD;
  return (is_attention && (i == 1 || i == 2)) || !skips_same_rows(p, node, user);
}

/* Whether anything reads rows that `node` leaves out. `value` is the node or a view of it. */
static bool others_are_read(const Planner *p, const Node *node, const Node *value) {
  for (size_t i = 0; i < value->users.n; i++) {
    const Node *user = value->users.items[i];
    if (!p->values[user->id].is_live) continue;
    const bool has_same_rows = op_table[user->op].category == CATEGORY_VIEW || user->op == OP_ROW_GRAD_W;
    if (has_same_rows && others_are_read(p, node, user)) return true;
    if (has_same_rows || op_is_part(user->op)) continue; /* what keys and values get is written whole */
    for (size_t j = 0; j < user->inputs.n; j++)
      if (user->inputs.items[j] == value && reads_all_rows(p, node, user, j)) return true;
  }
  return false;
}

/* The runtime reads the mask as one run of bytes when it lists the live rows. */
static bool has_no_gaps(Planner *p, const View *view) {
  const Size *expected = p->math.one;
  for (uint32_t i = view->rank; i-- > 0;) {
    if (size_equals(view->dims[i], 1)) continue;
    if (view->strides[i] != expected) return false;
    expected = math_mul(&p->math, expected, view->dims[i]);
  }
  return true;
}

/* The mask, copied if it must be one run of bytes and is not. */
static View without_gaps(Planner *p, const Node *mask) {
  View view = plan_view(p, mask);
  if (has_no_gaps(p, &view)) return view;
  View copy = layout_new(p, DTYPE_BOOL, mask->rank, (const Size *const *)mask->dims);
  plan_copy(p, &view, &copy, "copy");
  return copy;
}

static bool has_all_rows(const Node *node, const View *mask) {
  if (mask->rank + 1 != node->rank) return false;
  for (uint32_t i = 0; i < mask->rank; i++)
    if (mask->dims[i] != node->dims[i]) return false;
  return true;
}

static bool same_mask(const tfm_operand *a, const tfm_operand *b) {
  bool same = a->space == b->space && a->dtype == b->dtype && a->gathered == b->gathered && a->index == b->index &&
              a->offset == b->offset;
  for (int axis = 0; axis < TFM_MAX_RANK; axis++) same &= a->strides[axis] == b->strides[axis];
  return same;
}

bool live_are_same(const Planner *p, uint32_t a, uint32_t b) {
  if (!a || !b) return a == b;
  const tfm_live_rows *one = &p->live.items[a - 1], *other = &p->live.items[b - 1];
  return one->where == other->where && same_mask(&one->mask, &other->mask);
}

/* Equal entries are shared, so that the runtime lists the rows of one mask once per run. */
uint32_t live_by_operand(Planner *p, const Node *node, const tfm_operand *mask) {
  const bool are_steps = node->attr.rows_are_steps;
  const tfm_live_rows wanted = {.where = node->attr.rows_where,
                                  .zeroed = !are_steps && (node->attr.rows_zero || others_are_read(p, node, node)),
                                  .mask = *mask};
  for (size_t i = 0; i < p->live.n; i++) {
    const tfm_live_rows *known = &p->live.items[i];
    if (known->where == wanted.where && known->zeroed == wanted.zeroed && same_mask(&known->mask, mask))
      return (uint32_t)i + 1;
  }
  vec_push(p->arena, &p->live, wanted);
  return (uint32_t)p->live.n;
}

uint32_t live_rows(Planner *p, const Node *node) {
  const Node *mask = node_rows_mask(node);
  if (!mask) return 0;
  View view = node->attr.rows_zero ? without_gaps(p, mask) : plan_view(p, mask);
  if (!has_all_rows(node, &view) || !has_no_gaps(p, &view)) return 0;
  tfm_operand operand = plan_operand(p, &view);
  return live_by_operand(p, node, &operand);
}

bool live_has_steps_of_items(const Node *node) {
  return node->attr.rows_are_steps && node->inputs.items[node->attr.rows_mask - 1]->rank > 1;
}

uint32_t live_steps(Planner *p, const Node *node, uint8_t *how) {
  const Node *mask = node->inputs.items[node->attr.rows_mask - 1];
  const View view = without_gaps(p, mask);
  *how = live_has_steps_of_items(node) ? TFM_STEPS_OF_ITEM : TFM_STEPS_SHARED;
  tfm_operand operand = plan_operand(p, &view);
  return live_by_operand(p, node, &operand);
}

bool live_queries(Planner *p, const Node *attention, View *mask) {
  const Node *node = node_rows_mask(attention);
  if (!node || caches_serve(p, attention)) return false;
  *mask = plan_view(p, node);
  if (mask->rank + 1 != attention->rank) return false;
  mask->dims[mask->rank] = p->math.one;
  mask->strides[mask->rank++] = p->math.zero;
  return true;
}

// ---- rows behind the last live one of an item ----

static bool lies_in(const tfm_operand *operand, const tfm_operand *result) {
  return operand->space == result->space && operand->index == result->index;
}

/* Whether the step has an operand in the memory of `result`. */
static bool step_touches(const Planner *p, const tfm_step *info, const tfm_operand *result) {
  bool touches = false;
  switch ((tfm_step_kind)info->kind) {
#define READ(member, axes) touches |= lies_in(&step->member, result);
#define WRITE(member, axes) READ(member, axes)
#define WRITE_IF(flag, member, axes) touches |= step->flag && lies_in(&step->member, result);
#define CACHED(cache, member, axes) READ(member, axes)
#define READ_LIST(from)                                        \
  for (uint32_t i = from; i < step->n_operands; i++)           \
    touches |= lies_in(&p->operands.items[step->first_operand + i], result);
#define WRITE_LIST() READ_LIST(0)
#define MASK(axes) touches |= step->live && lies_in(&p->live.items[step->live - 1].mask, result);
#define TEXT(member)
#define STEP(KIND, name, array, fields, operands)         \
  case TFM_STEP_##KIND: {                                          \
    const tfm_##name##_step *step = &p->array.items[info->index];  \
    operands                                                       \
  } break;
#include "tfm/abi/steps.def"
  }
  return touches;
}

/* Whether size `a` is `factor` times size `b`, term by term. */
static bool is_multiple(const Planner *p, tfm_size a, int64_t factor, tfm_size b) {
  const tfm_polynomial *one = &p->polynomial_list.items[a], *other = &p->polynomial_list.items[b];
  if (one->n_terms != other->n_terms) return false;
  for (uint32_t i = 0; i < one->n_terms; i++) {
    tfm_term term = p->terms.items[other->first_term + i];
    if (__builtin_mul_overflow(term.coefficient, factor, &term.coefficient)) return false;
    if (memcmp(&term, &p->terms.items[one->first_term + i], sizeof term)) return false;
  }
  return true;
}

/* 0 if it depends on run-time sizes. */
static int64_t static_size(const Planner *p, tfm_size size) {
  int64_t value;
  return plan_static_size(p, size, &value) ? value : 0;
}

/* Whether rows of the result are keys or values, item behind item: along each axis the padding goes as the rows do, or
 * not at all, where heads lie within a row. */
static bool are_rows(const Planner *p, const tfm_attention_step *attention, const tfm_operand *keys,
                     const tfm_operand *padding, int64_t row) {
  const int last = attention->rank - 1;
  int64_t offset;
  if (!plan_static_size(p, keys->offset, &offset) || offset >= row) return false;
  if (static_size(p, keys->strides[last - 1]) != row || static_size(p, padding->strides[last]) != 1) return false;
  for (int axis = 0; axis < last - 1; axis++) {
    const int64_t within = static_size(p, keys->strides[axis]);
    const bool is_head = padding->strides[axis] == 0 && within > 0 && within < row;
    const bool is_item = axis == 0 && padding->strides[axis] == attention->dims[last];
    if (!is_head && !(is_item && is_multiple(p, keys->strides[axis], row, padding->strides[axis]))) return false;
  }
  return padding->strides[0] != 0;
}

/* Whether the attention reads no row behind the last live one of an item. Queries are left out by themselves. */
static bool stops_at_padding(const Planner *p, const tfm_attention_step *attention, const tfm_live_rows *live,
                             const tfm_operand *result) {
  if (!attention->padding || !attention->live || attention->k_cache != TFM_NONE || attention->has_weights) return false;
  const tfm_operand *padding = &p->operands.items[attention->first_operand + attention->padding];
  const tfm_live_rows *queries = &p->live.items[attention->live - 1];
  const tfm_operand *masks[] = {padding, &queries->mask};
  for (int i = 0; i < 2; i++)
    if (!lies_in(masks[i], &live->mask) || masks[i]->offset != live->mask.offset) return false;
  if (queries->where != live->where || (attention->padding_true != 0) == (live->where != 0)) return false;
  const int64_t row = static_size(p, result->strides[0]);
  const tfm_operand *read[] = {&attention->k, &attention->v};
  for (int i = 0; i < 2; i++)
    if (lies_in(read[i], result) && !are_rows(p, attention, read[i], padding, row)) return false;
  for (uint8_t i = 1; i < attention->n_operands; i++)
    if (lies_in(&p->operands.items[attention->first_operand + i], result)) return false;
  return !lies_in(&attention->c, result);
}

/* The rows of an item of the attention that alone reads what step number `made` writes; 0: there is no such. */
static tfm_size items_read(const Planner *p, uint32_t made, const tfm_gemm_step *gemm) {
  tfm_size item = 0;
  for (uint32_t i = 0; i < p->steps.n; i++) {
    const tfm_step *step = &p->steps.items[i];
    if (i == made || !step_touches(p, step, &gemm->c)) continue;
    if (step->kind != TFM_STEP_ATTENTION) return 0;
    const tfm_attention_step *attention = &p->attentions.items[step->index];
    const tfm_size keys = attention->dims[attention->rank - 1];
    const bool stops = stops_at_padding(p, attention, &p->live.items[gemm->live - 1], &gemm->c);
    if (!stops || (item && item != keys)) return 0;
    item = keys;
  }
  return item;
}

void live_settle(Planner *p) {
  for (uint32_t i = 0; i < p->steps.n; i++) {
    if (p->steps.items[i].kind != TFM_STEP_GEMM) continue;
    tfm_gemm_step *gemm = &p->gemms.items[p->steps.items[i].index];
    if (!gemm->live || !p->live.items[gemm->live - 1].zeroed || gemm->c.space != TFM_SPACE_BUFFER) continue;
    const tfm_size item = items_read(p, i, gemm);
    if (!item) continue;
    tfm_live_rows live = p->live.items[gemm->live - 1];
    live.item = item;
    const tfm_live_rows *last = &p->live.items[p->live.n - 1]; /* of the layer before */
    if (last->item != item || last->where != live.where || !same_mask(&last->mask, &live.mask))
      vec_push(p->arena, &p->live, live);
    gemm->live = (uint32_t)p->live.n;
  }
}
