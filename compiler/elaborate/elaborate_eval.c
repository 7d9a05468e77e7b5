/* Eval: one function for each kind of expression.
 *
 * In: a node of the tree and the scope around it. Out: its value. Refuses unknown names, members that do not exist,
 * conditions that only a run could decide, indices that do not fit, and expressions nested too deep.
 *
 * Operators, calls, indices and dots nest to the left without brackets, as deep as the file is long, so recursion would
 * overflow the stack. eval instead goes down to the leftmost leaf and comes back up: each node on the way is a *step*
 * that turns the value of what stands to its left into its own. Only brackets and calls recurse, to a bounded depth. */
#include "elaborate/elaborate_eval.h"

#include <string.h>

#include "base/check.h"
#include "elaborate/elaborate_call.h"
#include "elaborate/lists.h"
#include "elaborate/operators.h"
#include "elaborate/primitives.h"
#include "elaborate/tensors.h"

// ---- leaves ----

/* The member that the layer defines further down under this name, or NULL. Members are evaluated in order, so using
 * one early is an error with a note. */
static const Ast *later_member(const Scope *scope, const char *name) {
  const Module *module = scope->module;
  if (!module) return NULL;
  const Ast *block = module->layer->ast->children[1];
  for (uint32_t i = 0; i < block->n_children; i++) {
    const Ast *member = block->children[i];
    bool defines = member->kind == AST_MEMBER || member->kind == AST_WEIGHT || member->kind == AST_FN;
    if (defines && member->name == name) return member;
  }
  return NULL;
}

/* Whether `//` stands before the place on its line: a comment as in C. */
static bool is_after_slashes(SrcSpan span) {
  const char *text = span.source ? span.source->text : NULL;
  for (uint32_t i = span.begin; text && i >= 2 && text[i - 1] != '\n' && text[i - 1] != '\r'; i--) {
    if (text[i - 1] == '/' && text[i - 2] == '/') return true;
  }
  return false;
}

/* "; a text stands in quotes: -D 'task=\"pooled\"'", as a shell takes it, if all of a -D is this name; else "". The
 * source of a definition is called "-D NAME". */
static const char *quotes_hint(const Elaborator *e, const char *name) {
  const Source *source = e->here.source;
  if (!source || strncmp(source->path, "-D ", 3) != 0 || strcmp(source->text, name) != 0) return "";
  return arena_printf(e->arena, "; a text stands in quotes: -D '%s=\"%s\"'", source->path + 3, name);
}

/* In the order in which a user errs: used before its definition, known from PyTorch, misspelled. The search for the
 * nearest name compares with every name in scope, so it stops once no more errors are shown. */
Value name_value(Elaborator *e, const char *name, const Scope *scope) {
  Binding *binding = scope_search(scope, name);
  if (binding) return binding->value;
  const Ast *later = later_member(scope, name);
  if (later) {
    return fail_with_note(e, e->here, DIAG_UNKNOWN_NAME, later->span, "it is defined here, after its use",
                          "unknown name '%s'", name);
  }
  if (is_after_slashes(e->here)) {
    return fail(e, DIAG_UNKNOWN_NAME, "unknown name '%s'; a comment begins with '#'", name);
  }
  const char *hint = torch_name_hint(name);
  if (hint) return fail(e, DIAG_UNKNOWN_NAME, "unknown name '%s': %s", name, hint);
  bool is_crowded = e->diag->n_errors >= DIAG_MAX_ERRORS;
  const char *nearest = is_crowded ? NULL : scope_nearest(e->arena, scope, name);
  return fail(e, DIAG_UNKNOWN_NAME, "unknown name '%s'%s", name,
              nearest ? did_you_mean(e, nearest) : quotes_hint(e, name));
}

/* `forward` is a word of the language, so no scope has it: it is that of the module whose text says it. */
static Value leaf_name(Elaborator *e, const Ast *node, Scope *scope) {
  if (strcmp(node->name, "forward") != 0) return name_value(e, node->name, scope);
  const Module *m = scope->module;
  if (m && m->forward) return (Value){VALUE_FUNCTION, {.function = m->forward}};
  if (m && m->is_faulty) return POISON;
  return fail(e, DIAG_UNKNOWN_NAME,
              m ? "there is no forward above this line in %s" : "'forward' stands in a layer only",
              m ? m->layer->name : "");
}

static Value leaf_number(Elaborator *e, const Ast *node, Scope *scope) {
  (void)e, (void)scope;
  return node->is_integer ? value_integer(node->integer) : value_number(node->number);
}

static Value leaf_string(Elaborator *e, const Ast *node, Scope *scope) {
  (void)e, (void)scope;
  return value_string(node->text);
}

static Value leaf_none(Elaborator *e, const Ast *node, Scope *scope) {
  (void)e, (void)node, (void)scope;
  return NONE_VALUE;
}

static Value leaf_true(Elaborator *e, const Ast *node, Scope *scope) {
  (void)e, (void)node, (void)scope;
  return value_bool(true);
}

static Value leaf_false(Elaborator *e, const Ast *node, Scope *scope) {
  (void)e, (void)node, (void)scope;
  return value_bool(false);
}

/* Prefix operators are leaves: they stand at the left end, and their operand cannot begin with another one, so
 * recursion is bounded by brackets. */
static Value leaf_not(Elaborator *e, const Ast *node, Scope *scope) {
  return operator_not(e, eval(e, node->children[0], scope));
}

static Value leaf_negate(Elaborator *e, const Ast *node, Scope *scope) {
  return operator_negate(e, eval(e, node->children[0], scope));
}

/* Every item is evaluated, so that one list reports all of its faults. */
const SizeList *eval_sizes(Elaborator *e, const Ast *node, Scope *scope) {
  SizeList *list = ARENA_NEW(e->arena, SizeList);
  bool failed = false;
  list->n = node->n_children;
  list->items = ARENA_ARRAY(e->arena, const Size *, list->n);
  for (uint32_t i = 0; i < list->n; i++) {
    const Ast *item = node->children[i];
    Value v = eval(e, item, scope);
    if (is_size(v))
      list->items[i] = size_of(e->sizes, v);
    else if (!is_poison(v))
      fail_no_size(e, item->span, "a size", v);
    failed |= !is_size(v);
  }
  return failed ? NULL : list;
}

/* The graph has no branches, so a condition must be known now. A tensor gets a message of its own, because the cure
 * differs. */
bool eval_decision(Elaborator *e, const Ast *condition, Scope *scope, bool *decision) {
  Value v = eval(e, condition, scope);
  if (v.kind == VALUE_BOOL)
    *decision = v.as.boolean;
  else if (is_tensor(v)) {
    fail_at(e, condition->span, DIAG_KIND,
            "the condition of 'if' is a tensor: 'if' is decided at compile time; where(c, x, y) selects by a tensor");
  } else if (!is_poison(v)) {
    fail_at(e, condition->span, DIAG_KIND, "the condition of 'if' must be decided at compile time, not %K", v);
  }
  return v.kind == VALUE_BOOL;
}

// ---- steps ----

/* number * module is repetition, and + joins lists: the operators that take what is no number and no tensor. */
static Value step_binary(Elaborator *e, const Ast *node, Value left, Scope *scope) {
  Value right = eval(e, node->children[1], scope);
  bool is_star = strcmp(node->name, "*") == 0, is_plus = node->name[0] == '+';
  if (is_star && is_repeatable(right) && !is_poison(left)) return repeat(e, left, right, node);
  const List *a = is_plus ? list_of(e, left) : NULL, *b = a ? list_of(e, right) : NULL;
  if (b) return list_join(e, a, b);
  return operator_binary(e, node->name, left, right);
}

static Value step_compare(Elaborator *e, const Ast *node, Value left, Scope *scope) {
  return operator_compare(e, node->name, left, eval(e, node->children[1], scope));
}

/* `and` and `or` do not evaluate the right side if the left one decides: `mask != none and rank(mask) == 2` relies on
 * it. */
static Value logic(Elaborator *e, const Ast *node, bool is_or, Value left, Scope *scope) {
  if (!is_tensor(left)) left = truth_of(e, left, "a condition");
  if (is_poison(left) || (left.kind == VALUE_BOOL && left.as.boolean == is_or)) return left;
  return operator_logic(e, is_or, left, eval(e, node->children[1], scope));
}

static Value step_or(Elaborator *e, const Ast *node, Value left, Scope *scope) {
  return logic(e, node, true, left, scope);
}

static Value step_and(Elaborator *e, const Ast *node, Value left, Scope *scope) {
  return logic(e, node, false, left, scope);
}

/* The arguments are evaluated even if the callee is in error: they may have faults of their own. */
static Value step_call(Elaborator *e, const Ast *node, Value callee, Scope *scope) {
  Arguments arguments;
  bool good = eval_arguments(e, node, MISSING, scope, &arguments);
  return good && !is_poison(callee) ? apply(e, callee, &arguments, node, scope) : POISON;
}

/* x -> f(a) is f(x, a); but in x -> Name(config) the brackets hold the configuration, and x goes to the module that
 * this makes. Which of the two it is depends on the value of the callee, not on its spelling. */
static Value step_pipe(Elaborator *e, const Ast *node, Value x, Scope *scope) {
  const Ast *target = node->children[1];
  Arguments arguments = {0};
  e->here = target->span;
  bool is_call = target->kind == AST_CALL && !target->flag; /* not in brackets */
  Value f = eval(e, is_call ? target->children[0] : target, scope);
  if (is_call) {
    bool is_layer = f.kind == VALUE_LAYER;
    if (!eval_arguments(e, target, is_layer ? MISSING : x, scope, &arguments) || is_poison(f)) return POISON;
    if (!is_layer) return apply(e, f, &arguments, target, scope);
    f = apply(e, f, &arguments, target, scope);
  }
  if (is_poison(f) || is_poison(x)) return POISON;
  if (f.kind == VALUE_LAYER) {
    return fail(e, DIAG_ARGUMENT, "the layer %V needs its configuration: %V(...)", f, f);
  }
  arguments_of_one(e, x, &arguments);
  return apply(e, f, &arguments, target, scope);
}

/* Candidates for "did you mean": members and config values first, then weights by the path they have in the file. */
static const char *nearest_member(Elaborator *e, const Module *m, const char *name) {
  VEC(const char *) known = {0};
  for (size_t i = 0; i < m->scope->bindings.n; i++) vec_push(e->arena, &known, m->scope->bindings.items[i].name);
  for (size_t i = 0; i < m->weights.n; i++) vec_push(e->arena, &known, m->weights.items[i].key);
  return diag_nearest(name, known.items, known.n);
}

/* x.mean(...) is how other languages write mean(x); the message says how it is written here. */
static Value no_member(Elaborator *e, const char *name, Value left, const Scope *scope) {
  const Binding *binding = left.kind == VALUE_TENSOR ? scope_search(scope, name) : NULL;
  bool is_function = binding && (binding->value.kind == VALUE_PRIMITIVE || binding->value.kind == VALUE_FUNCTION);
  if (is_function) return fail(e, DIAG_KIND, "%K has no member '%s'; write %s(...) or -> %s", left, name, name, name);
  const char *hint = torch_name_hint(name);
  return fail(e, DIAG_KIND, "%K has no member '%s'%s%s", left, name, hint ? ": " : "", hint ? hint : "");
}

/* Members go before weights by path, and both before config values: std.tfm names a weight `b` with the path "bias"
 * because `bias` is a config value, and m.bias must still be the weight. */
static Value step_dot(Elaborator *e, const Ast *node, Value left, Scope *scope) {
  if (is_poison(left)) return POISON;
  if (left.kind == VALUE_LIST) {
    return fail(e, DIAG_KIND, "%K has no members: take one of its elements with [i]", left);
  }
  if (left.kind == VALUE_TEMPLATE) {
    return fail(e, DIAG_KIND, "a module needs a name before its members can be read: m = ...");
  }
  if (left.kind != VALUE_MODULE) return no_member(e, node->name, left, scope);
  const Module *m = left.as.module;
  const Binding *binding = scope_find(m->scope, node->name);
  if (binding && binding->is_member) return binding->value;
  if (map_has(&m->weights, node->name)) return value_tensor(map_get(&m->weights, node->name));
  if (binding) return binding->value;
  if (m->is_faulty) return POISON;
  return fail(e, DIAG_UNKNOWN_NAME, "%s has no member '%s'%s", m->layer->name, node->name,
              did_you_mean(e, nearest_member(e, m, node->name)));
}

// ---- indices ----

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

/* low <= high, now or as a check of the run. The format takes three sizes; those that it does not mention are
 * ignored. */
static bool at_most(Elaborator *e, const Size *low, const Size *high, const char *format, const Size *a, const Size *b,
                    const Size *c) {
  return need(e, value_compare(e->arena, e->sizes, OP_LE, low, high), DIAG_RANGE, format, a, b, c);
}

/* One slice. 0 <= start <= stop <= dim, each checked now or by the run: slices are never clamped, since the size of a
 * clamped slice would be no polynomial of the run-time sizes. */
static bool add_range(Elaborator *e, const Item *item, const Size *dim, Slicing *s) {
  static const char *const format = "the slice %Z : %Z is not within an axis of %Z";
  const Size *zero = size_const(e->sizes, 0);
  const Size *start = item->first.kind == VALUE_MISSING ? zero : offset_of(e, item->first, dim);
  const Size *stop = item->last.kind == VALUE_MISSING ? dim : offset_of(e, item->last, dim);
  if (!start || !stop) return false;
  if (!at_most(e, zero, start, format, start, stop, dim) || !at_most(e, start, stop, format, start, stop, dim) ||
      !at_most(e, stop, dim, format, start, stop, dim)) {
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
  static const char *const format = "the index %Z is not within an axis of %Z";
  const Size *place = offset_of(e, item->first, dim), *one = size_const(e->sizes, 1);
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

/* One i32 tensor selects rows of a table; everything else slices. */
static Value eval_index(Elaborator *e, const Ast *node, Value value, Scope *scope) {
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

// ---- tables ----

typedef Value (*Leaf)(Elaborator *e, const Ast *node, Scope *scope);
typedef Value (*Step)(Elaborator *e, const Ast *node, Value left, Scope *scope);

/* Expressions without a left operand. */
static const Leaf leaves[N_AST_KINDS] = {
    [AST_NAME] = leaf_name,     [AST_NUMBER] = leaf_number,         [AST_STRING] = leaf_string,  [AST_NONE] = leaf_none,
    [AST_TRUE] = leaf_true,     [AST_FALSE] = leaf_false,           [AST_LIST] = eval_list,      [AST_NOT] = leaf_not,
    [AST_NEGATE] = leaf_negate, [AST_COMPREHENSION] = eval_comprehension,
};

/* Expressions with a left operand, children[0], which eval computes before it calls the step. */
static const Step steps[N_AST_KINDS] = {
    [AST_BINARY] = step_binary, [AST_COMPARE] = step_compare, [AST_OR] = step_or,       [AST_AND] = step_and,
    [AST_CALL] = step_call,     [AST_PIPE] = step_pipe,       [AST_INDEX] = eval_index, [AST_DOT] = step_dot,
};

/* Bounds the recursion of eval; MAX_EVALUATION_DEPTH frames of it fit the stack of 8 MiB. */
static bool enter(Elaborator *e, const Ast *node) {
  if (e->stopped) return false;
  if (e->depth >= MAX_EVALUATION_DEPTH) {
    fail_at(e, node->span, DIAG_LIMIT,
            "expressions and calls are nested deeper than %d: give parts of them names of their own",
            (int)MAX_EVALUATION_DEPTH);
    return false;
  }
  e->depth++;
  return true;
}

/* Goes down to the leaf at the left end and leaves the steps above it on the spine. A choice is decided on the way:
 * only the branch that is taken is evaluated. */
static const Ast *descend(Elaborator *e, const Ast *node, Scope *scope) {
  for (;;) {
    if (steps[node->kind]) {
      vec_push(e->arena, &e->spine, node);
      node = node->children[0];
    } else if (node->kind == AST_CHOICE) {
      bool decision;
      if (!eval_decision(e, node->children[0], scope, &decision)) return NULL;
      node = node->children[decision ? 1 : 2];
    } else {
      return node;
    }
  }
}

/* `base` marks where this call's steps begin on the spine, which nested calls share. Steps run even after an error,
 * with poison on their left, so that their other operands report their own faults. */
Value eval(Elaborator *e, const Ast *node, Scope *scope) {
  if (!enter(e, node)) return POISON;
  SrcSpan saved = e->here;
  size_t base = e->spine.n;
  e->here = node->span;
  node = descend(e, node, scope);
  Value value = POISON;
  if (node && count_step(e)) {
    CHECK(leaves[node->kind], "no expression: %s", ast_kind_text(node->kind));
    e->here = node->span;
    value = leaves[node->kind](e, node, scope);
  }
  while (e->spine.n > base) {
    const Ast *outer = e->spine.items[--e->spine.n];
    e->here = outer->span;
    value = !count_step(e) ? POISON : steps[outer->kind](e, outer, value, scope);
  }
  e->here = saved;
  e->depth--;
  return value;
}
