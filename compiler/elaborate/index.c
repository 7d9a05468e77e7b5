/* Index: x[i, a:b, ..., none], table[ids], layers[2]. */
#include "elaborate/eval.h"
#include "elaborate/primitives.h"
#include "elaborate/tensors.h"

typedef enum ItemKind { ITEM_AXIS, ITEM_ELLIPSIS, ITEM_INDEX, ITEM_RANGE } ItemKind;

typedef struct Item {
  ItemKind kind; /* AXIS: `none` */
  Value first, last; /* of a RANGE, MISSING where left out; of an INDEX `first` */
} Item;

/* What the slices make of a tensor: SLICE takes [start, start + dim) of each axis, RESHAPE gives the result. */
typedef struct Slicing {
  const Size *starts[MAX_RANK], *dims[MAX_RANK];
  Shape result;
  uint32_t axis; /* of the operand: the next one */
} Slicing;

static bool is_whole(const Slicing *s, const Node *x) {
  for (uint32_t i = 0; i < x->rank; i++) {
    if (s->dims[i] != x->dims[i]) return false;
  }
  return true;
}

static bool same_shape(const Shape *shape, uint32_t rank, const Size *const *dims) {
  if (shape->rank != rank) return false;
  for (uint32_t i = 0; i < rank; i++) {
    if (shape->dims[i] != dims[i]) return false;
  }
  return true;
}

/* A bound as a size: negative ones count from the end. NULL after an error. */
static const Size *place_of(Elaborator *e, Value v, const Size *dim) {
  const Size *size = size_of(e->sizes, v);
  if (v.kind == VALUE_INTEGER && v.as.integer < 0) size = size_add(e->sizes, dim, size);
  if (!size) fail(e, DIAG_LIMIT, "a bound is too large to be computed");
  return size;
}

static bool at_most(Elaborator *e, const Size *low, const Size *high, const char *format, const Size *a, const Size *b,
                    const Size *c) {
  return need(e, value_compare(e->arena, e->sizes, OP_LE, low, high), DIAG_RANGE, format, a, b, c);
}

static bool add_range(Elaborator *e, const Item *item, const Size *dim, Slicing *s) {
  static const char *const format = "the slice %Z : %Z is not within an axis of %Z";
  const Size *zero = size_const(e->sizes, 0);
  const Size *start = item->first.kind == VALUE_MISSING ? zero : place_of(e, item->first, dim);
  const Size *stop = item->last.kind == VALUE_MISSING ? dim : place_of(e, item->last, dim);
  if (!start || !stop) return false;
  if (!at_most(e, zero, start, format, start, stop, dim) || !at_most(e, start, stop, format, start, stop, dim) ||
      !at_most(e, stop, dim, format, start, stop, dim)) {
    return false;
  }
  if ((start != zero || stop != dim) && !within_items(e, "a slice", 1, &dim)) return false;
  s->starts[s->axis] = start;
  s->dims[s->axis] = s->result.dims[s->result.rank++] = size_sub(e->sizes, stop, start);
  return dims_fit(e, 1, &s->dims[s->axis]);
}

static bool add_index(Elaborator *e, const Item *item, const Size *dim, Slicing *s) {
  static const char *const format = "the index %Z is not within an axis of %Z";
  const Size *place = place_of(e, item->first, dim), *one = size_const(e->sizes, 1);
  const Size *after = place ? size_add(e->sizes, place, one) : NULL;
  const Size *shown = size_of(e->sizes, item->first);
  if (!after) return false;
  if (!at_most(e, size_const(e->sizes, 0), place, format, shown, dim, dim) ||
      !at_most(e, after, dim, format, shown, dim, dim) || !within_items(e, "an index", 1, &dim)) {
    return false;
  }
  s->starts[s->axis] = place;
  s->dims[s->axis] = one;
  return true;
}

static bool add_item(Elaborator *e, const Node *x, const Item *item, uint32_t n_rest, Slicing *s) {
  static const Item whole = {.kind = ITEM_RANGE, .first = {.kind = VALUE_MISSING}, .last = {.kind = VALUE_MISSING}};
  switch (item->kind) {
    case ITEM_AXIS:
      s->result.dims[s->result.rank++] = size_const(e->sizes, 1);
      return true;
    case ITEM_ELLIPSIS:
      for (uint32_t i = 0; i < n_rest; i++, s->axis++) {
        if (!add_range(e, &whole, x->dims[s->axis], s)) return false;
      }
      return true;
    case ITEM_RANGE:
      if (!add_range(e, item, x->dims[s->axis], s)) return false;
      break;
    case ITEM_INDEX:
      if (!add_index(e, item, x->dims[s->axis], s)) return false;
      break;
  }
  s->axis++;
  return true;
}

/* How many items stand for an axis of x each, and the rank of the result. False after an error. */
static bool count_items(Elaborator *e, Node *x, uint32_t n, const Item *items, uint32_t *n_named, bool *has_ellipsis) {
  uint32_t counts[4] = {0};
  for (uint32_t i = 0; i < n; i++) counts[items[i].kind]++;
  *n_named = counts[ITEM_INDEX] + counts[ITEM_RANGE];
  *has_ellipsis = counts[ITEM_ELLIPSIS] > 0;
  if (*n_named > x->rank) fail(e, DIAG_SHAPE, "%d indices for %K", (int)*n_named, value_tensor(x));
  else if (counts[ITEM_ELLIPSIS] > 1) fail(e, DIAG_SHAPE, "'...' stands twice in an index");
  else return rank_fits(e, "the result", (int64_t)x->rank + counts[ITEM_AXIS] - counts[ITEM_INDEX]);
  return false;
}

static Value sliced(Elaborator *e, Node *x, uint32_t n, const Item *items) {
  static const Item ellipsis = {.kind = ITEM_ELLIPSIS};
  Slicing s = {0};
  uint32_t n_named;
  bool has_ellipsis;
  if (!count_items(e, x, n, items, &n_named, &has_ellipsis)) return POISON;
  for (uint32_t i = 0; i < n; i++) {
    if (!add_item(e, x, &items[i], x->rank - n_named, &s)) return POISON;
  }
  if (!has_ellipsis && !add_item(e, x, &ellipsis, x->rank - n_named, &s)) return POISON;
  if (!is_whole(&s, x)) x = made(e, build_slice(build_here(e), x, s.starts, s.dims));
  if (!x || same_shape(&s.result, x->rank, x->dims)) return value_tensor(x);
  return made_value(e, build_reshape(build_here(e), x, s.result.rank, s.result.dims));
}

// ---- evaluation ----

static Value bound(Elaborator *e, const Ast *node, Scope *scope) {
  if (!node) return MISSING;
  Value v = eval(e, node, scope);
  if (is_size(v) || is_poison(v)) return v;
  return fail_at(e, node->span, DIAG_KIND, "a bound of a slice must be a number, not %K", v);
}

/* False after an error. */
static bool eval_item(Elaborator *e, const Ast *node, Scope *scope, Item *item) {
  *item = (Item){.kind = ITEM_INDEX, .first = MISSING, .last = MISSING};
  if (node->kind == AST_ELLIPSIS) {
    item->kind = ITEM_ELLIPSIS;
  } else if (node->kind == AST_RANGE) {
    item->kind = ITEM_RANGE;
    item->first = bound(e, node->children[0], scope);
    item->last = bound(e, node->children[1], scope);
  } else {
    item->first = eval(e, node, scope);
    if (item->first.kind == VALUE_NONE) item->kind = ITEM_AXIS;
  }
  return !is_poison(item->first) && !is_poison(item->last);
}

static Value one_of(Elaborator *e, const Repetition *r, uint32_t n, const Item *items) {
  int64_t i =
      items[0].kind == ITEM_INDEX && items[0].first.kind == VALUE_INTEGER ? items[0].first.as.integer : r->count;
  if (n != 1 || i < -r->count || i >= r->count) {
    return fail(e, DIAG_RANGE, "a repetition of %D modules is indexed by one number below %D", r->count, r->count);
  }
  return r->modules[r->is_shared ? 0 : i < 0 ? i + r->count : i];
}

Value eval_index(Elaborator *e, const Ast *node, Value value, Scope *scope) {
  uint32_t n = node->n_children - 1;
  Item *items = ARENA_ARRAY(e->arena, Item, n);
  bool good = !is_poison(value);
  for (uint32_t i = 0; i < n; i++) good &= eval_item(e, node->children[i + 1], scope, &items[i]);
  if (!good) return POISON;
  if (value.kind == VALUE_REPETITION) return one_of(e, value.as.repetition, n, items);
  Node *x = tensor_of(e, value, ANY_DTYPE, "what is indexed", "");
  if (!x) return POISON;
  if (n == 1 && is_tensor(items[0].first)) return primitive_gather(e, x, items[0].first);
  for (uint32_t i = 0; i < n; i++) {
    if (items[i].kind == ITEM_INDEX && !is_size(items[i].first)) {
      return fail(e, DIAG_KIND,
                  "an index must be a number, a slice, none or '...', not %K; a table is indexed by one i32 tensor",
                  items[i].first);
    }
  }
  return sliced(e, x, n, items);
}
