/* Repeat: what a repetition is made of and how it threads its first argument through. */
#include "elaborate/repeat.h"

#include "elaborate/primitives.h"
#include "elaborate/tensors.h"

enum { MAX_REPETITION_DEPTH = 256 };

static Value repeat_template(Elaborator *e, int64_t n, const Template *inner, const Ast *place) {
  Template *t = ARENA_NEW(e->arena, Template);
  *t = (Template){.place = place, .count = n, .inner = inner, .depth = inner->depth + 1};
  if (t->depth > MAX_REPETITION_DEPTH)
    return fail(e, DIAG_LIMIT, "repetitions are nested deeper than %d", (int)MAX_REPETITION_DEPTH);
  return (Value){VALUE_TEMPLATE, {.template = t}};
}

Value repeat_module(Elaborator *e, Value n, Value module, const Ast *place) {
  int64_t count;
  if (!integer_of(e, n, "how often a module is repeated", &count)) return POISON;
  if (count < 0) return fail(e, DIAG_RANGE, "a module can't be repeated %D times", count);
  if (module.kind == VALUE_TEMPLATE) return repeat_template(e, count, module.as.template, place);
  Repetition *r = ARENA_NEW(e->arena, Repetition);
  *r = (Repetition){.count = count, .is_shared = true, .modules = arena_copy(e->arena, &module, sizeof module)};
  r->depth = 1 + (module.kind == VALUE_REPETITION ? module.as.repetition->depth : 0);
  if (r->depth > MAX_REPETITION_DEPTH)
    return fail(e, DIAG_LIMIT, "repetitions are nested deeper than %d", (int)MAX_REPETITION_DEPTH);
  return (Value){VALUE_REPETITION, {.repetition = r}};
}

/* The name of the first parameter of what is repeated, or NULL. */
static const char *first_parameter(const Repetition *r) {
  while (r->count || r->is_shared) {
    Value v = r->modules[0];
    if (v.kind == VALUE_MODULE) {
      const Function *forward = v.as.module->forward;
      bool has_one = forward && forward->ast->children[0]->n_children;
      return has_one ? forward->ast->children[0]->children[0]->name : NULL;
    }
    r = v.as.repetition;
  }
  return NULL;
}

/* The first argument by place, also where it was given by name. False after an error. */
static bool with_first(Elaborator *e, const Repetition *r, const Arguments *given, Arguments *arguments) {
  *arguments = *given;
  arguments->items = ARENA_ARRAY(e->arena, Argument, given->n);
  uint32_t first = 0;
  const char *name = given->n_by_place ? NULL : first_parameter(r);
  if (!given->n_by_place) {
    while (first < given->n && given->items[first].name != name) first++;
    arguments->n_by_place = 1;
  }
  if (first >= given->n) {
    fail(e, DIAG_ARGUMENT, "a repetition needs a first argument");
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

typedef VEC(const Tuple *) Tuples;

/* The first result of all, then each other one stacked. */
static Value stacked(Elaborator *e, Node *first, const Tuples *tuples) {
  uint32_t n = tuples->items[0]->n;
  for (size_t i = 1; i < tuples->n; i++) n = tuples->items[i]->n < n ? tuples->items[i]->n : n;
  Tuple *result = ARENA_NEW(e->arena, Tuple);
  *result = (Tuple){n, ARENA_ARRAY(e->arena, Node *, n)};
  result->items[0] = first;
  Value *column = ARENA_ARRAY(e->arena, Value, tuples->n);
  for (uint32_t k = 1; k < n; k++) {
    for (size_t i = 0; i < tuples->n; i++) column[i] = value_tensor(tuples->items[i]->items[k]);
    result->items[k] =
        stack_tensors(e, "stacking the results of a repetition", (uint32_t)tuples->n, column, value_integer(0));
  }
  return (Value){VALUE_TUPLE, {.tuple = result}};
}

Value call_repetition(Elaborator *e, const Repetition *r, const Arguments *given, const Ast *place, Scope *scope) {
  Arguments arguments;
  Tuples tuples = {0};
  if (!with_first(e, r, given, &arguments)) return POISON;
  Value x = arguments.items[0].value;
  for (int64_t i = 0; i < r->count && !is_poison(x); i++) {
    if (!count_step(e)) return POISON;
    arguments.items[0].value = x;
    x = apply(e, r->modules[r->is_shared ? 0 : i], &arguments, place, scope);
    if (x.kind != VALUE_TUPLE) continue;
    vec_push(e->arena, &tuples, x.as.tuple);
    x = value_tensor(x.as.tuple->items[0]);
  }
  return tuples.n && x.kind == VALUE_TENSOR ? stacked(e, x.as.tensor, &tuples) : x;
}
