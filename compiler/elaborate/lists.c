/* Lists: made element by element or by a comprehension, joined, repeated, called.
 *
 * In: nodes of the tree, values. Out: a list of values, which keeps the paths that `as` gives to elements, or the
 * result of a call that goes from element to element. Refuses rounds that are not known when compiling, `as` after
 * what is no new module, lists nested too deep, and calls of lists that have no name yet.
 *
 * A list whose elements include modules without a name is itself without a name: it becomes a list of modules where a
 * member or a config value names it (modules.c). */
#include "elaborate/lists.h"

#include "elaborate/elaborate_eval.h"
#include "elaborate/modules.h"
#include "elaborate/primitives.h"
#include "elaborate/tensors.h"

// ---- making ----

/* How deep modules without a name and lists are nested in a value. */
static uint32_t depth_of(Value v) {
  return v.kind == VALUE_TEMPLATE ? v.as.template->depth : v.kind == VALUE_LIST ? v.as.list->depth : 0;
}

/* Every element counts as a step: lists that grow in a loop would else take any amount of memory. */
Value list_value(Elaborator *e, uint32_t n, Value *items, const char **paths) {
  List *list = ARENA_NEW(e->arena, List);
  *list = (List){.n = n, .items = items, .paths = paths};
  for (uint32_t i = 0; i < n; i++) {
    if (!count_step(e)) return POISON;
    list->has_new |= is_new_module(items[i]);
    if (depth_of(items[i]) > list->depth) list->depth = depth_of(items[i]);
  }
  if (++list->depth > MAX_LIST_DEPTH)
    return fail(e, DIAG_LIMIT, "lists are nested deeper than %d", (int)MAX_LIST_DEPTH);
  return (Value){VALUE_LIST, {.list = list}};
}

const List *list_of(Elaborator *e, Value v) {
  if (v.kind == VALUE_LIST) return v.as.list;
  if (v.kind != VALUE_TEMPLATE || v.as.template->layer) return NULL;
  const Template *t = v.as.template;
  Value *items = ARENA_ARRAY(e->arena, Value, t->count);
  for (int64_t i = 0; i < t->count; i++) items[i] = (Value){VALUE_TEMPLATE, {.template = t->inner}};
  Value list = list_value(e, (uint32_t)t->count, items, NULL);
  return is_poison(list) ? NULL : list.as.list;
}

const SizeList *sizes_of_list(Elaborator *e, const List *list) {
  SizeList *sizes = ARENA_NEW(e->arena, SizeList);
  *sizes = (SizeList){list->n, ARENA_ARRAY(e->arena, const Size *, list->n)};
  for (uint32_t i = 0; i < list->n; i++) {
    Value v = list->items[i];
    if (!is_size(v)) {
      fail_no_size(e, e->here, "a size", v);
      return NULL;
    }
    sizes->items[i] = size_of(e->sizes, v);
  }
  return sizes;
}

/* Where an element of a list is written; its path too, if it has one. False after an error. */
static bool eval_element(Elaborator *e, const Ast *node, Scope *scope, Value *value, const char **path) {
  const Ast *expression = node->kind == AST_PLACED ? node->children[0] : node;
  *value = eval(e, expression, scope);
  *path = NULL;
  if (node->kind != AST_PLACED || is_poison(*value)) return !is_poison(*value);
  e->here = node->span;
  if (is_new_module(*value)) return (*path = filled_path(e, node->text, scope)) != NULL;
  fail(e, DIAG_KIND, "'as' names the weights of a module made here, not %K", *value);
  return false;
}

/* Every element is evaluated, so that one list reports all of its faults. */
Value eval_list(Elaborator *e, const Ast *node, Scope *scope) {
  Value *items = ARENA_ARRAY(e->arena, Value, node->n_children);
  const char **paths = ARENA_ARRAY(e->arena, const char *, node->n_children);
  bool good = true;
  for (uint32_t i = 0; i < node->n_children; i++) {
    good &= eval_element(e, node->children[i], scope, &items[i], &paths[i]);
  }
  e->here = node->span;
  return good ? list_value(e, node->n_children, items, paths) : POISON;
}

/* The integers from 0 to n - 1, as a list of values. */
static const List *counted(Elaborator *e, int64_t n) {
  List *list = ARENA_NEW(e->arena, List);
  *list = (List){.n = (uint32_t)n, .items = ARENA_ARRAY(e->arena, Value, n)};
  for (int64_t i = 0; i < n; i++) list->items[i] = value_integer(i);
  return list;
}

const List *rounds_of(Elaborator *e, const Ast *over, Scope *scope) {
  Value v = eval(e, over, scope);
  if (is_poison(v)) return NULL;
  const List *list = list_of(e, v);
  if (list || e->stopped) return list;
  if (v.kind == VALUE_INTEGER && v.as.integer >= 0 && v.as.integer <= MAX_ROUNDS) return counted(e, v.as.integer);
  static const char needed[] = "'for' needs a list or an integer from 0 to %d known when compiling";
  const char *what = arena_printf(e->arena, needed, (int)MAX_ROUNDS);
  if (v.kind == VALUE_INTEGER)
    fail_at(e, over->span, DIAG_RANGE, "%s, not %V", what, v);
  else
    fail_at(e, over->span, DIAG_KIND, "%s, not %K", what, v);
  return NULL;
}

/* Each element has a scope of its own, with the name of the `for` alone. After an error in one the others would
 * mostly repeat it. */
Value eval_comprehension(Elaborator *e, const Ast *node, Scope *scope) {
  const List *rounds = rounds_of(e, node->children[1], scope);
  if (!rounds) return POISON;
  Value *items = ARENA_ARRAY(e->arena, Value, rounds->n);
  const char **paths = ARENA_ARRAY(e->arena, const char *, rounds->n);
  bool good = true;
  e->n_loops++;
  for (uint32_t i = 0; good && i < rounds->n; i++) {
    Scope *inner = scope_new(e->arena, scope, NULL);
    scope_put(e->arena, inner, node->name, rounds->items[i]);
    good = eval_element(e, node->children[0], inner, &items[i], &paths[i]);
  }
  e->n_loops--;
  e->here = node->span;
  return good ? list_value(e, rounds->n, items, paths) : POISON;
}

// ---- parts ----

static void copy_element(const List *from, uint32_t i, Value *item, const char **path) {
  *item = from->items[i];
  *path = from->paths ? from->paths[i] : NULL;
}

Value list_join(Elaborator *e, const List *a, const List *b) {
  uint32_t n = a->n + b->n;
  Value *items = ARENA_ARRAY(e->arena, Value, n);
  const char **paths = ARENA_ARRAY(e->arena, const char *, n);
  for (uint32_t i = 0; i < a->n; i++) copy_element(a, i, &items[i], &paths[i]);
  for (uint32_t i = 0; i < b->n; i++) copy_element(b, i, &items[a->n + i], &paths[a->n + i]);
  return list_value(e, n, items, paths);
}

Value list_part(Elaborator *e, const List *list, uint32_t first, uint32_t last, uint32_t step) {
  uint32_t n = (last - first) / step + ((last - first) % step != 0);
  Value *items = ARENA_ARRAY(e->arena, Value, n);
  const char **paths = ARENA_ARRAY(e->arena, const char *, n);
  for (uint32_t i = 0; i < n; i++) copy_element(list, first + i * step, &items[i], &paths[i]);
  return list_value(e, n, items, paths);
}

// ---- repetitions ----

bool is_repeatable(Value v) {
  if (v.kind != VALUE_LIST) return v.kind == VALUE_TEMPLATE || v.kind == VALUE_MODULE;
  for (uint32_t i = 0; i < v.as.list->n; i++) {
    Value item = v.as.list->items[i];
    if (!is_repeatable(item) && item.kind != VALUE_FUNCTION && item.kind != VALUE_PRIMITIVE) return false;
  }
  return v.as.list->n > 0;
}

/* n * Layer(...) stays one value until it is named or applied: a pipe makes it where it stands. */
static Value repeat_template(Elaborator *e, int64_t n, const Template *inner, const Ast *place) {
  Template *t = ARENA_NEW(e->arena, Template);
  *t = (Template){.place = place, .count = n, .inner = inner, .depth = inner->depth + 1, .is_in_loop = e->n_loops > 0};
  if (t->depth > MAX_LIST_DEPTH)
    return fail(e, DIAG_LIMIT, "repetitions are nested deeper than %d", (int)MAX_LIST_DEPTH);
  return (Value){VALUE_TEMPLATE, {.template = t}};
}

Value repeat(Elaborator *e, Value n, Value v, const Ast *place) {
  int64_t count;
  if (!integer_of(e, n, "the number of repetitions", &count)) return POISON;
  if (count < 0 || count > MAX_ROUNDS) {
    return fail(e, count < 0 ? DIAG_RANGE : DIAG_LIMIT,
                "a module cannot be repeated %D times; from 0 to %d are possible", count, (int)MAX_ROUNDS);
  }
  if (v.kind == VALUE_TEMPLATE) return repeat_template(e, count, v.as.template, place);
  Value *items = ARENA_ARRAY(e->arena, Value, count);
  for (int64_t i = 0; i < count; i++) items[i] = v;
  return list_value(e, (uint32_t)count, items, NULL);
}

// ---- calls ----

/* The name of the first parameter of the first module, NULL if it has none. */
static const char *first_parameter(const List *list) {
  while (list->n && list->items[0].kind == VALUE_LIST) list = list->items[0].as.list;
  if (!list->n || list->items[0].kind != VALUE_MODULE) return NULL;
  const Function *forward = list->items[0].as.module->forward;
  bool has_one = forward && forward->ast->children[0]->n_children;
  return has_one ? forward->ast->children[0]->children[0]->name : NULL;
}

/* Puts the argument that travels from element to element first, by position, also where it was given by name: layers(x
 * = ids). False after an error. */
static bool with_first(Elaborator *e, const List *list, const Arguments *given, Arguments *arguments) {
  *arguments = *given;
  arguments->items = ARENA_ARRAY(e->arena, Argument, given->n);
  uint32_t first = 0;
  const char *name = given->n_by_position ? NULL : first_parameter(list);
  if (!given->n_by_position) {
    while (first < given->n && given->items[first].name != name) first++;
    arguments->n_by_position = 1;
  }
  if (first >= given->n) {
    fail(e, DIAG_ARGUMENT, "a list of modules needs a first argument");
    return false;
  }
  uint32_t n = 0;
  arguments->items[n++] = given->items[first];
  arguments->items[0].name = NULL;
  for (uint32_t i = 0; i < given->n; i++) {
    if (i != first) arguments->items[n++] = given->items[i];
  }
  return true;
}

static bool same_type(const Node *a, const Node *b) {
  bool same = a && b && a->dtype == b->dtype && a->rank == b->rank;
  for (uint32_t i = 0; same && i < a->rank; i++) same = a->dims[i] == b->dims[i];
  return same;
}

/* Whether all elements gave as many results, of the same types and sizes; the first ones are not looked at, since they
 * went on to the next element. */
static bool can_stack(uint32_t n, const Tuple *const *tuples) {
  for (uint32_t i = 0; i < n; i++) {
    if (!tuples[i] || tuples[i]->n != tuples[0]->n) return false;
    for (uint32_t k = 1; k < tuples[i]->n; k++) {
      if (!same_type(tuples[i]->items[k], tuples[0]->items[k])) return false;
    }
  }
  return n > 0;
}

/* The first result of all, then each further one stacked along a new axis, one entry an element. */
static Value stacked(Elaborator *e, Node *first, uint32_t n, const Tuple *const *tuples) {
  Tuple *result = ARENA_NEW(e->arena, Tuple);
  *result = (Tuple){tuples[0]->n, ARENA_ARRAY(e->arena, Node *, tuples[0]->n)};
  result->items[0] = first;
  Value *column = ARENA_ARRAY(e->arena, Value, n);
  for (uint32_t k = 1; k < result->n; k++) {
    for (uint32_t i = 0; i < n; i++) column[i] = value_tensor(tuples[i]->items[k]);
    result->items[k] = stack_tensors(e, "stacking the results of a list", n, column, value_integer(0));
  }
  return (Value){VALUE_TUPLE, {.tuple = result}};
}

/* No elements: the argument comes back. Results that cannot be stacked are dropped. */
Value call_list(Elaborator *e, const List *list, const Arguments *given, const Ast *place, Scope *scope) {
  Arguments arguments;
  if (list->has_new) return fail(e, DIAG_KIND, "a list of new modules needs a name: make it a member of the layer");
  if (!with_first(e, list, given, &arguments)) return POISON;
  const Tuple **tuples = ARENA_ARRAY(e->arena, const Tuple *, list->n);
  Value x = arguments.items[0].value;
  for (uint32_t i = 0; i < list->n && !is_poison(x); i++) {
    if (!count_step(e)) return POISON;
    arguments.items[0].value = x;
    x = apply(e, list->items[i], &arguments, place, scope);
    if (x.kind != VALUE_TUPLE) continue;
    tuples[i] = x.as.tuple;
    x = value_tensor(x.as.tuple->items[0]);
  }
  return x.kind == VALUE_TENSOR && can_stack(list->n, tuples) ? stacked(e, x.as.tensor, list->n, tuples) : x;
}
