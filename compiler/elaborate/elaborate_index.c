/* Indices: x[i], x[a:b, ...], x[ids].
 *
 * In: a list, a tensor, and what stands between the brackets. Out: an item, a view of the tensor, or rows of a table.
 * Refuses indices that do not fit, more of them than axes, and steps that the language has not. */
#include "elaborate/elaborate_eval.h"

#include <string.h>

#include "elaborate/lists.h"
#include "elaborate/primitives.h"
#include "elaborate/tensors.h"

typedef enum ItemKind { ITEM_AXIS, ITEM_ELLIPSIS, ITEM_INDEX, ITEM_RANGE } ItemKind;

typedef struct Item {
  ItemKind kind;           /* AXIS: `none` */
  Value first, last, step; /* of a RANGE, MISSING where left out; of an INDEX `first` */
} Item;

/* What the slices make of a tensor: SLICE takes [start, start + dim) of each axis, RESHAPE gives the result. */
typedef struct Slicing {
  const Size *starts[MAX_RANK], *dims[MAX_RANK];
  int64_t steps[MAX_RANK]; /* of what the SLICE leaves; 0 or 1: every element */
  Shape result;
  uint32_t axis; /* of the operand: the next one */
} Slicing;

/* Whether no axis was cut: no SLICE is needed then. */
static bool is_whole(const Slicing *s, const Node *x) {
  for (uint32_t i = 0; i < x->rank; i++) {
    if (s->dims[i] != x->dims[i]) return false;
  }
  return true;
}

/* Sizes are unique per table, so equal ones are equal pointers. */
static bool same_shape(const Shape *shape, uint32_t rank, const Size *const *dims) {
  if (shape->rank != rank) return false;
  for (uint32_t i = 0; i < rank; i++) {
    if (shape->dims[i] != dims[i]) return false;
  }
  return true;
}

/* A bound as a size. A negative number counts from the end; the sign of a run-time size is unknown, so it always
 * counts from the front. NULL after an error. */
static const Size *offset_of(Elaborator *e, Value v, const Size *dim) {
  const Size *size = size_of(e->sizes, v);
  if (v.kind == VALUE_INTEGER && v.as.integer < 0) size = size_add(e->sizes, dim, size);
  if (!size) fail(e, DIAG_LIMIT, "a bound is too large to be computed");
  return size;
}

/* What a message shows: a format that takes up to three sizes; those that it does not mention are ignored. */
typedef struct Shown {
  const char *format;
  const Size *sizes[3];
} Shown;

/* low <= high, now or as a check of the run. */
static bool at_most(Elaborator *e, const Size *low, const Size *high, const Shown *shown) {
  return need(e, value_compare(e->arena, e->sizes, OP_LE, low, high), DIAG_RANGE, shown->format, shown->sizes[0],
              shown->sizes[1], shown->sizes[2]);
}

/* One slice. 0 <= start <= stop <= dim, each checked now or by the run: slices are never clamped, since the size of a
 * clamped slice would be no polynomial of the run-time sizes. */
static bool add_range(Elaborator *e, const Item *item, const Size *dim, Slicing *s) {
  const Size *zero = size_const(e->sizes, 0);
  const Size *start = item->first.kind == VALUE_MISSING ? zero : offset_of(e, item->first, dim);
  const Size *stop = item->last.kind == VALUE_MISSING ? dim : offset_of(e, item->last, dim);
  if (!start || !stop) return false;
  const Shown shown = {"the slice %Z : %Z is not within an axis of %Z", {start, stop, dim}};
  if (!at_most(e, zero, start, &shown) || !at_most(e, start, stop, &shown) || !at_most(e, stop, dim, &shown)) {
    return false;
  }
  int64_t step = item->step.kind == VALUE_MISSING ? 1 : item->step.as.integer;
  if ((start != zero || stop != dim || step != 1) && !within_items(e, "a slice", 1, &dim)) return false;
  s->starts[s->axis] = start;
  s->dims[s->axis] = s->result.dims[s->result.rank] = size_sub(e->sizes, stop, start);
  s->steps[s->axis] = step;
  if (!dims_fit(e, 1, &s->dims[s->axis])) return false;
  if (step > 1) s->result.dims[s->result.rank] = places_of(e, s->dims[s->axis], step);
  return s->result.dims[s->result.rank++] != NULL;
}

/* One index: a slice of one element, whose axis the final reshape drops. The message shows what the user wrote, which
 * may be negative. */
static bool add_index(Elaborator *e, const Item *item, const Size *dim, Slicing *s) {
  const Size *place = offset_of(e, item->first, dim), *one = size_const(e->sizes, 1);
  const Size *after = place ? size_add(e->sizes, place, one) : NULL;
  const Shown shown = {"the index %Z is not within an axis of %Z", {size_of(e->sizes, item->first), dim}};
  if (!after) return false;
  if (!at_most(e, size_const(e->sizes, 0), place, &shown) || !at_most(e, after, dim, &shown) ||
      !within_items(e, "an index", 1, &dim)) {
    return false;
  }
  s->starts[s->axis] = place;
  s->dims[s->axis] = one;
  return true;
}

/* Adds one item of the index. `n_rest` is the number of axes that `...` stands for. */
static bool add_item(Elaborator *e, const Node *x, const Item *item, uint32_t n_rest, Slicing *s) {
  static const Item whole = {.kind = ITEM_RANGE,
                             .first = {.kind = VALUE_MISSING},
                             .last = {.kind = VALUE_MISSING},
                             .step = {.kind = VALUE_MISSING}};
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

/* Counts the items that name an axis, and checks the rank of the result. False after an error. */
static bool count_items(Elaborator *e, Node *x, uint32_t n, const Item *items, uint32_t *n_named, bool *has_ellipsis) {
  uint32_t counts[4] = {0};
  for (uint32_t i = 0; i < n; i++) counts[items[i].kind]++;
  *n_named = counts[ITEM_INDEX] + counts[ITEM_RANGE];
  *has_ellipsis = counts[ITEM_ELLIPSIS] > 0;
  if (*n_named > x->rank)
    fail(e, DIAG_SHAPE, "%d indices for %K, which has %d %s", (int)*n_named, value_tensor(x), (int)x->rank,
         x->rank == 1 ? "axis" : "axes");
  else if (counts[ITEM_ELLIPSIS] > 1)
    fail(e, DIAG_SHAPE, "'...' appears twice in an index");
  else
    return rank_fits(e, "the result", (int64_t)x->rank + counts[ITEM_AXIS] - counts[ITEM_INDEX]);
  return false;
}

/* What the steps leave of x, which was cut already. */
static Node *stepped(Elaborator *e, Node *x, const Slicing *s) {
  uint32_t rank = x ? x->rank : 0;
  for (uint32_t i = 0; i < rank && x; i++) {
    if (s->steps[i] <= 1) continue;
    const Size *dim = places_of(e, x->dims[i], s->steps[i]);
    x = dim ? made(e, build_every(build_here(e), x, s->steps[i], (int32_t)i, dim)) : NULL;
  }
  return x;
}

/* At most one SLICE and one RESHAPE, whatever the number of items. An index without `...` means one at its end. */
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
  x = stepped(e, x, &s);
  if (!x || same_shape(&s.result, x->rank, x->dims)) return value_tensor(x);
  return made_value(e, build_reshape(build_here(e), x, s.result.rank, s.result.dims));
}

/* A bound of a slice, MISSING where it is left out. */
static Value bound(Elaborator *e, const Ast *node, Scope *scope) {
  if (!node) return MISSING;
  Value v = eval(e, node, scope);
  if (is_size(v) || is_poison(v)) return v;
  return fail_no_size(e, node->span, "a bound of a slice", v);
}

/* The step of a slice, MISSING where it is left out. */
static Value step_of(Elaborator *e, const Ast *node, Scope *scope) {
  if (!node) return MISSING;
  Value v = eval(e, node, scope);
  if (is_poison(v) || (v.kind == VALUE_INTEGER && v.as.integer >= 1)) return v;
  return fail_at(e, node->span, DIAG_RANGE,
                 "the step of a slice must be a positive integer known when compiling, not %V", v);
}

/* Evaluates one item; false after an error. */
static bool eval_item(Elaborator *e, const Ast *node, Scope *scope, Item *item) {
  *item = (Item){.kind = ITEM_INDEX, .first = MISSING, .last = MISSING, .step = MISSING};
  if (node->kind == AST_ELLIPSIS) {
    item->kind = ITEM_ELLIPSIS;
  } else if (node->kind == AST_RANGE) {
    item->kind = ITEM_RANGE;
    item->first = bound(e, node->children[0], scope);
    item->last = bound(e, node->children[1], scope);
    item->step = step_of(e, node->children[2], scope);
  } else {
    item->first = eval(e, node, scope);
    if (item->first.kind == VALUE_NONE) item->kind = ITEM_AXIS;
  }
  return !is_poison(item->first) && !is_poison(item->last) && !is_poison(item->step);
}

/* A bound of a slice of a list; `otherwise` where it is left out. False if it is no integer. */
static bool list_bound(Value v, int64_t n, int64_t otherwise, int64_t *bound) {
  *bound = v.kind == VALUE_MISSING ? otherwise : v.kind == VALUE_INTEGER ? v.as.integer : 0;
  if (*bound < 0 && *bound >= -n) *bound += n;
  return v.kind == VALUE_MISSING || v.kind == VALUE_INTEGER;
}

/* layers[2], layers[-1], layers[:6], layers[::2]. */
static Value element_of(Elaborator *e, const List *list, uint32_t n_items, const Item *items) {
  int64_t n = list->n, first, last;
  bool is_one = n_items == 1;
  if (is_one && items[0].kind == ITEM_RANGE && list_bound(items[0].first, n, 0, &first) &&
      list_bound(items[0].last, n, n, &last)) {
    if (first < 0 || first > last || last > n)
      return fail(e, DIAG_RANGE, "the slice %D : %D is not within a list of %D", first, last, n);
    int64_t step = items[0].step.kind == VALUE_MISSING ? 1 : items[0].step.as.integer;
    return list_part(e, list, (uint32_t)first, (uint32_t)last, (uint32_t)(step < n ? step : n ? n : 1));
  }
  Value index = is_one && items[0].kind == ITEM_INDEX ? items[0].first : MISSING;
  if (index.kind == VALUE_INTEGER && index.as.integer >= -n && index.as.integer < n)
    return list->items[index.as.integer < 0 ? index.as.integer + n : index.as.integer];
  const char *needed = arena_printf(e->arena,
                                    "a list of %u is indexed by one integer below %u known when compiling, or by a "
                                    "slice of such",
                                    list->n, list->n);
  if (index.kind == VALUE_INTEGER) return fail(e, DIAG_RANGE, "%s, not %V", needed, index);
  return index.kind == VALUE_MISSING ? fail(e, DIAG_KIND, "%s", needed)
                                     : fail(e, DIAG_KIND, "%s, not %K", needed, index);
}

Value eval_index(Elaborator *e, const Ast *node, Value value, Scope *scope) {
  uint32_t n = node->n_children - 1;
  Item *items = ARENA_ARRAY(e->arena, Item, n);
  bool good = !is_poison(value);
  for (uint32_t i = 0; i < n; i++) good &= eval_item(e, node->children[i + 1], scope, &items[i]);
  if (!good) return POISON;
  const List *list = list_of(e, value);
  if (list) return element_of(e, list, n, items);
  Node *x = tensor_of(e, value, ANY_DTYPE, "what is indexed", "");
  if (!x) return POISON;
  if (n == 1 && is_tensor(items[0].first)) return primitive_gather(e, x, items[0].first);
  for (uint32_t i = 0; i < n; i++) {
    if (items[i].kind == ITEM_INDEX && !is_size(items[i].first)) {
      return fail(e, DIAG_KIND,
                  "an index must be an integer, a slice, none or '...', not %K; a table is indexed by one i32 tensor",
                  items[i].first);
    }
  }
  return sliced(e, x, n, items);
}
