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
    return fail_with_note(e, e->here, DIAG_UNKNOWN_NAME, (OtherPlace){later->span, "it is defined here, after its use"},
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
    show_value(e, node, value);
  }
  while (e->spine.n > base) {
    const Ast *outer = e->spine.items[--e->spine.n];
    e->here = outer->span;
    value = !count_step(e) ? POISON : steps[outer->kind](e, outer, value, scope);
    show_value(e, outer, value);
  }
  e->here = saved;
  e->depth--;
  return value;
}
