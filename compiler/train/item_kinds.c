/* Which values of an objective are made of one item each, and which are sums over items. See item_kinds.h.
 *
 * An axis of items has the size batch, or batch times something that no item decides; then each item has a run of
 * neighbours there, as after a reshape of [batch, time] to [batch * time]. The rule of an operation says when an axis
 * of the result is made of the same axis of the operands, place by place. Rules for totals are those of linear
 * functions. An operation without a rule mixes. */
#include "train/item_kinds.h"

static const Node *input(const Node *node, size_t i) { return node->inputs.items[i]; }

static ItemKind kind_of(const ItemKinds *k, const Node *node) {
  const MapEntry *found = map_find(&k->kinds, &node, sizeof node);
  return *(const ItemKind *)found->value;
}

static ItemKind mixed_at(const Node *node) { return (ItemKind){.name = ITEMS_MIXED, .where = node}; }

static bool is_sum(ItemKind kind) { return kind.name == ITEMS_TOTAL || kind.name == ITEMS_AVERAGE; }

// ---- sizes ----

static bool counts_items(const ItemKinds *k, const Size *size) {
  return k->batch >= 0 && size_involves(size, (uint32_t)k->batch);
}

/* Whether the size is batch times something that does not depend on it. */
static bool is_of_items(const ItemKinds *k, const Size *size) {
  SizeTable *sizes = k->graph->sizes;
  const Size *each = counts_items(k, size) ? size_div(sizes, size, size_symbol(sizes, sizes->symbols[k->batch])) : NULL;
  return each && !counts_items(k, each);
}

static bool has_run_time_size(const Node *node) {
  for (uint32_t i = 0; i < node->rank; i++)
    if (!size_is_const(node->dims[i], NULL)) return true;
  return false;
}

/* How many axes the items decide; the last of them. */
static uint32_t item_axes(const ItemKinds *k, const Node *node, uint32_t *axis) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < node->rank; i++) {
    if (!counts_items(k, node->dims[i])) continue;
    *axis = i;
    n++;
  }
  return n;
}

// ---- sources ----

static ItemKind free_kind(const Node *node) {
  return (ItemKind){.name = has_run_time_size(node) ? ITEMS_SIZED : ITEMS_FREE};
}

/* A value with an axis of items, such as an input; without one it is `otherwise`. */
static ItemKind by_axis(const ItemKinds *k, const Node *node, ItemKind otherwise) {
  uint32_t axis = 0;
  const uint32_t n = item_axes(k, node, &axis);
  if (n == 0) return otherwise;
  return n == 1 && is_of_items(k, node->dims[axis]) ? (ItemKind){.name = ITEMS_EACH, .axis = axis} : mixed_at(node);
}

static bool is_of_batch(const ItemKinds *k, const Node *node) {
  for (uint32_t i = 0; i < k->n_inputs; i++)
    if (k->graph->inputs.items[i] == node) return true;
  return false;
}

static ItemKind source_kind(const ItemKinds *k, const Node *node) {
  uint32_t axis = 0;
  switch (node->op) {
    case OP_INPUT:
      if (k->batch < 0 && is_of_batch(k, node)) return mixed_at(NULL);
      return by_axis(k, node, is_of_batch(k, node) ? (ItemKind){.name = ITEMS_SIZED} : free_kind(node));
    case OP_FULL:
      return by_axis(k, node, free_kind(node));
    case OP_SIZE:
      if (!counts_items(k, node->attr.size))
        return (ItemKind){.name = size_is_const(node->attr.size, NULL) ? ITEMS_FREE : ITEMS_SIZED};
      return is_of_items(k, node->attr.size) ? (ItemKind){.name = ITEMS_TOTAL} : mixed_at(node);
    default: /* positions of items within a part are not those within the batch */
      return item_axes(k, node, &axis) ? mixed_at(node) : free_kind(node);
  }
}

// ---- values of one item each ----

/* Whether operand i, if it is of items, has them at axis `axis` of the result, at which it is aligned from the end. */
static bool is_aligned(const ItemKinds *k, const Node *node, size_t i, uint32_t rank, uint32_t axis) {
  const Node *x = input(node, i);
  const ItemKind kind = kind_of(k, x);
  return kind.name != ITEMS_EACH || (kind.axis + rank == axis + x->rank && x->dims[kind.axis] == node->dims[axis]);
}

static bool all_aligned(const ItemKinds *k, const Node *node, uint32_t axis) {
  for (size_t i = 0; i < node->inputs.n; i++)
    if (!is_aligned(k, node, i, node->rank, axis)) return false;
  return true;
}

/* Only the first operand has items. */
static bool only_first(const ItemKinds *k, const Node *node) {
  for (size_t i = 1; i < node->inputs.n; i++)
    if (kind_of(k, input(node, i)).name == ITEMS_EACH) return false;
  return true;
}

static const Size *elements_before(SizeTable *sizes, const Node *node, uint32_t axis) {
  return sizes_product(sizes, axis, node->dims);
}

/* In row-major order items keep their runs if as many elements stand before them. */
static bool reshape_keeps(const ItemKinds *k, const Node *node, uint32_t from, uint32_t axis) {
  SizeTable *sizes = k->graph->sizes;
  const Size *before = elements_before(sizes, node, axis);
  return before && before == elements_before(sizes, input(node, 0), from) && is_of_items(k, node->dims[axis]);
}

static bool slice_keeps(const Node *node, uint32_t from, uint32_t axis) {
  return from == axis && size_equals(node->attr.starts[axis], 0) && node->dims[axis] == input(node, 0)->dims[axis];
}

/* Columns of x and rows of y are added up. */
static bool matmul_keeps(const ItemKinds *k, const Node *node, uint32_t axis) {
  const Node *x = input(node, 0), *y = input(node, 1);
  const ItemKind of_x = kind_of(k, x), of_y = kind_of(k, y);
  if (node->inputs.n != 2 || !all_aligned(k, node, axis)) return false;
  return !(of_x.name == ITEMS_EACH && of_x.axis + 1u == x->rank) &&
         !(of_y.name == ITEMS_EACH && of_y.axis + 2u == y->rank);
}

static bool gather_keeps(const ItemKinds *k, const Node *node, uint32_t axis) {
  const ItemKind table = kind_of(k, input(node, 0)), ids = kind_of(k, input(node, 1));
  if (table.name != ITEMS_EACH) return ids.axis == axis;
  return ids.name != ITEMS_EACH && table.axis > 0 && axis + 1u == input(node, 1)->rank + table.axis;
}

/* Ids may name anything that is the same for all items, along any axis. */
static bool take_keeps(const ItemKinds *k, const Node *node, uint32_t axis) {
  if (kind_of(k, input(node, 0)).name == ITEMS_EACH && axis == (uint32_t)node->attr.axis) return false;
  return all_aligned(k, node, axis);
}

/* What goes along an axis of its own, whose elements depend on each other: items on any other axis stay apart. */
static bool goes_along_axis(OpKind op) {
  switch (op) {
    case OP_SUM:
    case OP_MEAN:
    case OP_MAX:
    case OP_MIN:
    case OP_ARGMAX:
    case OP_SOFTMAX:
    case OP_LOG_SOFTMAX:
    case OP_CUMSUM:
    case OP_SHIFT:
    case OP_TOPK:
    case OP_PLACES:
    case OP_BEFORE:
    case OP_EVERY:
      return true;
    default:
      return false;
  }
}

/* Whether each element along the axis is made of elements of the same item; `from`: the axis of the first operand. */
static bool keeps_items(const ItemKinds *k, const Node *node, uint32_t from, uint32_t axis) {
  const uint32_t along = (uint32_t)node->attr.axis, last = input(node, 0)->rank - 1u;
  if (op_is_pointwise(node->op) || node->op == OP_POWER) return all_aligned(k, node, axis);
  if (goes_along_axis(node->op)) return from != along;
  switch (node->op) {
    case OP_CONCAT:
      return axis != along && all_aligned(k, node, axis);
    case OP_LAYER_NORM:
    case OP_RMS_NORM:
    case OP_LINEAR:
      return from != last && from == axis && only_first(k, node);
    case OP_ROUND_TO: /* a row has a scale, which all its elements are made with */
      return from == axis && (from != last || !tfm_form_has_scales(node->attr.form));
    case OP_ROTARY:
      return from != last && from == axis && is_aligned(k, node, 1, node->rank - 1u, axis);
    case OP_SINUSOID:
    case OP_ROTARY_TABLE:
      return from == axis;
    case OP_PERMUTE:
      return node->attr.axes[axis] == (int64_t)from;
    case OP_RESHAPE:
      return reshape_keeps(k, node, from, axis);
    case OP_SLICE:
      return slice_keeps(node, from, axis);
    case OP_MATMUL:
      return matmul_keeps(k, node, axis);
    case OP_LINEAR_ATTENTION: /* steps and columns are no items */
      return axis + 2u < node->rank && all_aligned(k, node, axis);
    case OP_GATHER:
      return gather_keeps(k, node, axis);
    case OP_TAKE:
      return take_keeps(k, node, axis);
    default:
      return false;
  }
}

/* x [..., m, items], y [..., items, n]: each element of the result adds up products of one item each. */
static bool adds_products(const ItemKinds *k, const Node *node) {
  if (node->op != OP_MATMUL || node->inputs.n != 2) return false;
  const Node *x = input(node, 0), *y = input(node, 1);
  const ItemKind a = kind_of(k, x), b = kind_of(k, y);
  return a.name == ITEMS_EACH && b.name == ITEMS_EACH && a.axis + 1u == x->rank && b.axis + 2u == y->rank;
}

/* x [items, d], ids [items]: each row of the result adds up rows of one item each. */
static bool adds_rows(const ItemKinds *k, const Node *node) {
  if (node->op != OP_SCATTER || node->inputs.n != 2) return false;
  const ItemKind x = kind_of(k, input(node, 0)), ids = kind_of(k, input(node, 1));
  return x.name == ITEMS_EACH && x.axis == 0 && ids.name == ITEMS_EACH && ids.axis == 0;
}

static ItemKind kind_over_items(const ItemKinds *k, const Node *node) {
  uint32_t axis = 0;
  const ItemKind first = kind_of(k, input(node, 0));
  const uint32_t n = item_axes(k, node, &axis);
  const bool is_reduced = first.name == ITEMS_EACH && (node->op == OP_SUM || node->op == OP_MEAN) &&
                          (uint32_t)node->attr.axis == first.axis;
  if (n > 1) return mixed_at(node);
  if (n == 1)
    return keeps_items(k, node, first.axis, axis) ? (ItemKind){.name = ITEMS_EACH, .axis = axis} : mixed_at(node);
  if (is_reduced && node->op == OP_MEAN)
    return (ItemKind){.name = ITEMS_AVERAGE, .over = input(node, 0)->dims[first.axis]};
  if (is_reduced || adds_products(k, node) || adds_rows(k, node)) return (ItemKind){.name = ITEMS_TOTAL};
  return mixed_at(node);
}

// ---- sums over items ----

static bool is_same_sum(ItemKind a, ItemKind b) { return is_sum(a) && a.name == b.name && a.over == b.over; }

static bool is_number_of(const Node *node, const Size *size) { return node->op == OP_SIZE && node->attr.size == size; }

/* A sum times, or divided by, something that is the same in all parts. An average times the number that it is over is
 * a sum. */
static ItemKind scaled(const ItemKinds *k, const Node *node) {
  const ItemKind a = kind_of(k, input(node, 0)), b = kind_of(k, input(node, 1));
  if (is_sum(a) && b.name == ITEMS_FREE) return a;
  if (is_sum(b) && a.name == ITEMS_FREE && node->op != OP_DIV && node->op != OP_LINEAR) return b;
  if (node->op == OP_MUL && a.name == ITEMS_AVERAGE && is_number_of(input(node, 1), a.over))
    return (ItemKind){.name = ITEMS_TOTAL};
  if (node->op == OP_MUL && b.name == ITEMS_AVERAGE && is_number_of(input(node, 0), b.over))
    return (ItemKind){.name = ITEMS_TOTAL};
  return mixed_at(node);
}

static ItemKind kind_over_sums(const ItemKinds *k, const Node *node) {
  const ItemKind first = kind_of(k, input(node, 0));
  switch (node->op) {
    case OP_ADD:
    case OP_SUB:
    case OP_CONCAT:
      for (size_t i = 1; i < node->inputs.n; i++)
        if (!is_same_sum(first, kind_of(k, input(node, i)))) return mixed_at(node);
      return is_sum(first) ? first : mixed_at(node);
    case OP_NEG:
    case OP_SUM:
    case OP_MEAN:
    case OP_RESHAPE:
    case OP_PERMUTE:
    case OP_SLICE:
    case OP_EVERY:
    case OP_CUMSUM:
    case OP_SHIFT:
    case OP_TO_F32:
      return first;
    case OP_MUL:
    case OP_DIV:
    case OP_MATMUL:
    case OP_LINEAR:
      return node->inputs.n == 2 ? scaled(k, node) : mixed_at(node);
    default:
      return mixed_at(node);
  }
}

// ---- all nodes ----

static ItemKind find_kind(const ItemKinds *k, const Node *node) {
  bool has_each = false, has_sum = false, has_sized = false;
  if (op_table[node->op].category == CATEGORY_SOURCE) return source_kind(k, node);
  for (size_t i = 0; i < node->inputs.n; i++) {
    const ItemKind kind = kind_of(k, input(node, i));
    if (kind.name == ITEMS_MIXED) return kind;
    has_each |= kind.name == ITEMS_EACH;
    has_sum |= is_sum(kind);
    has_sized |= kind.name == ITEMS_SIZED;
  }
  if (has_each && has_sum) return mixed_at(node);
  if (has_each) return kind_over_items(k, node);
  if (has_sum) return kind_over_sums(k, node);
  uint32_t axis = 0;
  if (item_axes(k, node, &axis)) return mixed_at(node);
  return has_sized ? (ItemKind){.name = ITEMS_SIZED} : free_kind(node);
}

static void find_kinds(ItemKinds *k) {
  Arena *arena = k->graph->arena;
  for (const Node *node = k->last ? k->last->next : k->graph->first; node; node = node->next) {
    ItemKind *kind = ARENA_NEW(arena, ItemKind);
    *kind = find_kind(k, node);
    map_put_n(&k->kinds, &node, sizeof node, kind);
    k->last = node;
  }
}

ItemKinds item_kinds_new(Graph *graph, int32_t batch, uint32_t n_inputs) {
  return (ItemKinds){.graph = graph, .batch = batch, .n_inputs = n_inputs, .kinds = map_new(graph->arena)};
}

ItemKind item_kind(ItemKinds *k, const Node *node) {
  find_kinds(k);
  return kind_of(k, node);
}
