/* Statements: what stands in the body of a function, one after the other.
 *
 * In: a block of the tree, the scope that its names go to. Out: what it returns. Refuses what its expressions refuse,
 * requirements that do not hold, conditions that are known only when the model runs.
 *
 * After an error in a statement the next one still runs. Whatever the faulty one would have defined is poison, and
 * poison is silent, so one fault gives one message. */
#include "elaborate/elaborate_statements.h"

#include "base/check.h"
#include "elaborate/elaborate_eval.h"
#include "elaborate/lists.h"
#include "elaborate/modules.h"
#include "elaborate/operators.h"
#include "elaborate/primitives.h"
#include "elaborate/ranges.h"
#include "elaborate/tensors.h"

typedef void (*Statement)(Elaborator *e, const Ast *node, Scope *scope, Result *result);

/* A value keeps the first name that it was bound to; dumps and pictures show it. */
static void name_tensor(Value value, const char *name) {
  if (value.kind == VALUE_TENSOR && !value.as.tensor->origin.name) value.as.tensor->origin.name = name;
}

/* Several names take a tuple apart. After an error each name is poison, so later uses are silent. */
static void run_assign(Elaborator *e, const Ast *node, Scope *scope, Result *result) {
  (void)result;
  const Ast *names = node->children[0];
  Value v = eval(e, node->children[1], scope);
  if (names->n_children == 1) {
    name_tensor(v, names->children[0]->name);
    scope_put(e->arena, scope, names->children[0]->name, v);
    show_value(e, names->children[0], v);
    return;
  }
  uint32_t n = v.kind == VALUE_TUPLE ? v.as.tuple->n : 1;
  if (!is_poison(v) && n != names->n_children) {
    v = fail(e, DIAG_RESULTS, "%d names for %d result%s: write one name for each", (int)names->n_children, (int)n,
             n == 1 ? "" : "s");
  }
  for (uint32_t i = 0; i < names->n_children; i++) {
    Value item = is_poison(v) ? POISON : value_tensor(v.as.tuple->items[i]);
    name_tensor(item, names->children[i]->name);
    scope_put(e->arena, scope, names->children[i]->name, item);
    show_value(e, names->children[i], item);
  }
}

/* `require x in list` without a text. */
static bool require_element(Elaborator *e, const Ast *node, Scope *scope) {
  const Ast *compare = node->children[0];
  Value x = eval(e, compare->children[0], scope), list = eval(e, compare->children[1], scope);
  e->here = compare->span;
  Value holds = operator_compare(e, compare->name, x, list);
  e->here = node->span;
  return is_poison(holds) || holds.as.boolean || need_element(e, compare->children[0], x, list.as.list);
}

/* A poisoned condition counts as holding: its fault has been reported. */
bool run_require(Elaborator *e, const Ast *node, Scope *scope) {
  if (!node->text) return require_element(e, node, scope);
  if (is_range(node->children[0], scope)) return require_range(e, node->children[0], node->text, scope);
  Value condition = truth_of(e, eval(e, node->children[0], scope), "what is required");
  return is_poison(condition) || need_required(e, condition, node->text, scope);
}

static void run_require_statement(Elaborator *e, const Ast *node, Scope *scope, Result *result) {
  (void)result;
  run_require(e, node, scope);
}

/* Follows `else if` in a loop, so a long chain does not recurse. */
bool chosen_branch(Elaborator *e, const Ast *node, Scope *scope, const Ast **block) {
  while (node && node->kind == AST_IF) {
    bool decision;
    e->here = node->span;
    if (!eval_decision(e, node->children[0], scope, &decision)) return false;
    node = node->children[decision ? 1 : 2];
  }
  *block = node;
  return true;
}

/* After an error in a condition: what either branch would define is poison, and so is the result if one of them
 * returns. Of a loop likewise. */
static void poison_branches(Elaborator *e, const Ast *node, Scope *scope, Result *result) {
  VEC(const Ast *) waiting = {0};
  vec_push(e->arena, &waiting, node);
  while (waiting.n) {
    node = waiting.items[--waiting.n];
    if (node->kind == AST_RETURN) *result = (Result){POISON, NULL};
    if (node->kind == AST_ASSIGN) {
      const Ast *names = node->children[0];
      for (uint32_t i = 0; i < names->n_children; i++) scope_put(e->arena, scope, names->children[i]->name, POISON);
    }
    if (node->kind == AST_FOR) scope_put(e->arena, scope, node->name, POISON);
    if (node->kind != AST_IF && node->kind != AST_BLOCK && node->kind != AST_FOR) continue;
    for (uint32_t i = node->kind != AST_BLOCK; i < node->n_children; i++) {
      if (node->children[i]) vec_push(e->arena, &waiting, node->children[i]);
    }
  }
}

static void run_if(Elaborator *e, const Ast *node, Scope *scope, Result *result) {
  const Ast *block;
  if (!chosen_branch(e, node, scope, &block)) poison_branches(e, node, scope, result);
  else if (block) run_block(e, block, scope, result);
}

/* Several results must all be tensors, because a tuple cannot hold anything else. One result may be any value:
 * functions return sizes and modules too. */
static void run_return(Elaborator *e, const Ast *node, Scope *scope, Result *result) {
  result->place = node;
  if (node->n_children == 1) {
    result->value = eval(e, node->children[0]->children[0], scope);
    return;
  }
  Tuple *tuple = ARENA_NEW(e->arena, Tuple);
  tuple->n = node->n_children;
  tuple->items = ARENA_ARRAY(e->arena, Node *, tuple->n);
  for (uint32_t i = 0; i < tuple->n; i++) {
    const Ast *expression = node->children[i]->children[0];
    Value v = eval(e, expression, scope);
    e->here = expression->span;
    tuple->items[i] = tensor_of(e, v, ANY_DTYPE, "each of several results", "");
  }
  result->value = (Value){VALUE_TUPLE, {.tuple = tuple}};
}

/* Unrolled: the block runs once for each value, in the scope around it, and the name keeps its last value. */
static void run_for(Elaborator *e, const Ast *node, Scope *scope, Result *result) {
  const List *rounds = rounds_of(e, node->children[0], scope);
  if (!rounds) poison_branches(e, node, scope, result);
  e->n_loops++;
  for (uint32_t i = 0; rounds && i < rounds->n && result->value.kind == VALUE_MISSING && count_step(e); i++) {
    scope_put(e->arena, scope, node->name, rounds->items[i]);
    show_value(e, node, rounds->items[i]);
    run_block(e, node->children[1], scope, result);
  }
  e->n_loops--;
}

static const Statement statements[N_AST_KINDS] = {[AST_ASSIGN] = run_assign,
                                                  [AST_REQUIRE] = run_require_statement,
                                                  [AST_IF] = run_if,
                                                  [AST_RETURN] = run_return,
                                                  [AST_FOR] = run_for};

/* Ends at the first `return`, whose result is not MISSING then (it may be poison). */
void run_block(Elaborator *e, const Ast *block, Scope *scope, Result *result) {
  for (uint32_t i = 0; i < block->n_children && result->value.kind == VALUE_MISSING && !e->stopped; i++) {
    const Ast *node = block->children[i];
    SrcSpan saved = e->here;
    e->here = node->span;
    CHECK(statements[node->kind], "no statement: %s", ast_kind_text(node->kind));
    statements[node->kind](e, node, scope, result);
    e->here = saved;
  }
}
