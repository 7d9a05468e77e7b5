/* Eval: one function per kind of expression.
 *
 * Operators, calls, indexes and dots nest to the left without brackets, as deep as the file is long, so they are no
 * recursion: eval goes down to the leftmost leaf and then up again, each node of the way (a *step*) turning the value
 * of what stands left of it into its own. What nests through brackets and calls is recursion, of bounded depth. */
#include "elaborate/eval.h"

#include "base/check.h"
#include "elaborate/call.h"
#include "elaborate/operators.h"
#include "elaborate/repeat.h"
#include "elaborate/tensors.h"
#include "elaborate/torch_names.h"

// ---- leaves ----

/* Whether the layer says later what the name is: members are evaluated in order. */
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

Value name_value(Elaborator *e, const char *name, const Scope *scope) {
  Binding *binding = scope_search(scope, name);
  if (binding) return binding->value;
  const Ast *later = later_member(scope, name);
  if (later) {
    return fail_with_note(e, e->here, DIAG_UNKNOWN_NAME, later->span, "it is defined here, after its use",
                          "unknown name '%s'", name);
  }
  const char *hint = torch_name_hint(name);
  if (hint) return fail(e, DIAG_UNKNOWN_NAME, "unknown name '%s': %s", name, hint);
  bool is_crowded = e->diag->n_errors >= DIAG_MAX_ERRORS;
  const char *nearest = is_crowded ? NULL : scope_nearest(e->arena, scope, name);
  return fail(e, DIAG_UNKNOWN_NAME, "unknown name '%s'%s", name, did_you_mean(e, nearest));
}

static Value leaf_name(Elaborator *e, const Ast *node, Scope *scope) { return name_value(e, node->name, scope); }

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

static Value leaf_list(Elaborator *e, const Ast *node, Scope *scope) {
  const SizeList *list = eval_sizes(e, node, scope);
  return list ? (Value){VALUE_LIST, {.list = list}} : POISON;
}

static Value leaf_not(Elaborator *e, const Ast *node, Scope *scope) {
  return operator_not(e, eval(e, node->children[0], scope));
}

static Value leaf_negate(Elaborator *e, const Ast *node, Scope *scope) {
  return operator_negate(e, eval(e, node->children[0], scope));
}

const SizeList *eval_sizes(Elaborator *e, const Ast *node, Scope *scope) {
  SizeList *list = ARENA_NEW(e->arena, SizeList);
  bool failed = false;
  list->n = node->n_children;
  list->items = ARENA_ARRAY(e->arena, const Size *, list->n);
  for (uint32_t i = 0; i < list->n; i++) {
    const Ast *item = node->children[i];
    Value v = eval(e, item, scope);
    if (is_size(v)) list->items[i] = size_of(e->sizes, v);
    else if (!is_poison(v)) {
      fail_at(e, item->span, DIAG_KIND, "a size must be an integer or a run-time size, not %K", v);
    }
    failed |= !is_size(v);
  }
  return failed ? NULL : list;
}

bool eval_decision(Elaborator *e, const Ast *condition, Scope *scope, bool *decision) {
  Value v = eval(e, condition, scope);
  if (v.kind == VALUE_BOOL) *decision = v.as.boolean;
  else if (is_tensor(v)) {
    fail_at(e, condition->span, DIAG_KIND,
            "the condition of 'if' is a tensor: 'if' is decided when compiling; where(c, x, y) selects by a tensor");
  } else if (!is_poison(v)) {
    fail_at(e, condition->span, DIAG_KIND, "the condition of 'if' must be decided when compiling, not %K", v);
  }
  return v.kind == VALUE_BOOL;
}

// ---- steps ----

static Value step_binary(Elaborator *e, const Ast *node, Value left, Scope *scope) {
  Value right = eval(e, node->children[1], scope);
  if (node->name[0] == '*' && is_module(right) && !is_poison(left)) return repeat_module(e, left, right, node);
  return operator_binary(e, node->name, left, right);
}

static Value step_compare(Elaborator *e, const Ast *node, Value left, Scope *scope) {
  return operator_compare(e, node->name, left, eval(e, node->children[1], scope));
}

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

static Value step_call(Elaborator *e, const Ast *node, Value callee, Scope *scope) {
  Arguments arguments;
  bool good = eval_arguments(e, node, MISSING, scope, &arguments);
  return good && !is_poison(callee) ? apply(e, callee, &arguments, node, scope) : POISON;
}

/* x -> f(a): the call is f's, with x put before a; but Name(config) makes a module first. */
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

static const char *nearest_member(Elaborator *e, const Module *m, const char *name) {
  VEC(const char *) known = {0};
  for (size_t i = 0; i < m->scope->bindings.n; i++) vec_push(e->arena, &known, m->scope->bindings.items[i].name);
  for (size_t i = 0; i < m->weights.n; i++) vec_push(e->arena, &known, m->weights.items[i].key);
  return diag_nearest(name, known.items, known.n);
}

/* x.mean(...) is how it is written elsewhere. */
static Value no_member(Elaborator *e, const char *name, Value left, const Scope *scope) {
  const Binding *binding = left.kind == VALUE_TENSOR ? scope_search(scope, name) : NULL;
  bool is_function = binding && (binding->value.kind == VALUE_PRIMITIVE || binding->value.kind == VALUE_FUNCTION);
  if (is_function) return fail(e, DIAG_KIND, "%K has no member '%s'; write %s(...) or -> %s", left, name, name, name);
  return fail(e, DIAG_KIND, "%K has no member '%s'", left, name);
}

static Value step_dot(Elaborator *e, const Ast *node, Value left, Scope *scope) {
  if (is_poison(left)) return POISON;
  if (left.kind == VALUE_REPETITION) {
    return fail(e, DIAG_KIND, "a repetition has no members: take one of its modules with [i]");
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

// ---- tables ----

typedef Value (*Leaf)(Elaborator *e, const Ast *node, Scope *scope);
typedef Value (*Step)(Elaborator *e, const Ast *node, Value left, Scope *scope);

static const Leaf leaves[N_AST_KINDS] = {
    [AST_NAME] = leaf_name, [AST_NUMBER] = leaf_number, [AST_STRING] = leaf_string, [AST_NONE] = leaf_none,
    [AST_TRUE] = leaf_true, [AST_FALSE] = leaf_false,   [AST_LIST] = leaf_list,     [AST_NOT] = leaf_not,
    [AST_NEGATE] = leaf_negate,
};

static const Step steps[N_AST_KINDS] = {
    [AST_BINARY] = step_binary, [AST_COMPARE] = step_compare, [AST_OR] = step_or,     [AST_AND] = step_and,
    [AST_CALL] = step_call,     [AST_PIPE] = step_pipe,       [AST_INDEX] = eval_index, [AST_DOT] = step_dot,
};

static bool enter(Elaborator *e, const Ast *node) {
  if (e->stopped) return false;
  if (e->depth >= MAX_EVALUATION_DEPTH) {
    fail_at(e, node->span, DIAG_LIMIT, "expressions and calls are nested too deep");
    return false;
  }
  e->depth++;
  return true;
}

/* The leaf at the left end, after choosing between branches; what stands above it is on the spine. */
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
