/* Members: submodules and values, weights, require, if, functions, the generate block. */
#include "elaborate/members.h"

#include "base/check.h"
#include "elaborate/eval.h"
#include "elaborate/modules.h"
#include "elaborate/statements.h"
#include "elaborate/tensors.h"

typedef void (*Member)(Elaborator *e, const Ast *node, Module *m);

const char *join_path(Elaborator *e, const char *a, const char *b) {
  return !*a ? b : !*b ? a : arena_printf(e->arena, "%s.%s", a, b);
}

/* A name is defined once in a layer: false (after reporting) if it is already. */
static bool is_new_name(Elaborator *e, const Module *m, const Ast *node) {
  const Binding *other = scope_find(m->scope, node->name);
  if (!other) return true;
  fail_with_note(e, node->span, DIAG_REDEFINED, other->span, "the other one", "'%s' is already defined in %s",
                 node->name, m->layer->name);
  return false;
}

static void define(Elaborator *e, Module *m, const Ast *node, Value v) {
  Binding *binding = scope_put(e->arena, m->scope, node->name, v);
  binding->span = node->span;
  binding->is_member = true;
}

// ---- submodules and values ----

static Value named_module(Elaborator *e, const Ast *node, Module *m, const Template *t) {
  const char *part = node->text ? node->text : node->name;
  const PathPart *taken = map_get(&m->parts, part);
  if (taken && taken->is_inline) {
    return fail(e, DIAG_REDEFINED, "the path '%s' is taken by a module without a name", part);
  }
  if (*part) map_put(&m->parts, part, ARENA_NEW(e->arena, PathPart));
  return make_module(e, t, join_path(e, m->path, part));
}

static void member_value(Elaborator *e, const Ast *node, Module *m) {
  if (!is_new_name(e, m, node)) return;
  Value v = eval(e, node->children[0], m->scope);
  if (v.kind == VALUE_TEMPLATE) v = named_module(e, node, m, v.as.template);
  else if (node->text && !is_poison(v)) {
    v = fail(e, DIAG_KIND, "'as' names the weights of a module made here, not %K", v);
  }
  define(e, m, node, v);
}

// ---- weights ----

static Node *declare_weight(Elaborator *e, const char *path, const SizeList *sizes) {
  const char *name = arena_printf(e->arena, "%s%s", e->weights_prefix, path);
  Node *weight = made(e, build_weight(build_here(e), name, sizes->n, sizes->items));
  map_put(&e->weights, path, weight);
  return weight;
}

static bool same_dims(const Node *weight, const SizeList *sizes) {
  if (weight->rank != sizes->n) return false;
  for (uint32_t i = 0; i < sizes->n; i++) {
    if (weight->dims[i] != sizes->items[i]) return false;
  }
  return true;
}

static bool is_weight_shape(Elaborator *e, const Ast *list, const SizeList *sizes) {
  for (uint32_t i = 0; i < sizes->n; i++) {
    int64_t value;
    if (size_is_const(sizes->items[i], &value) && value >= 0) continue;
    fail_at(e, list->children[i]->span, DIAG_RANGE, "a weight has sizes known when compiling, not %Z", sizes->items[i]);
    return false;
  }
  return rank_fits(e, "a weight", sizes->n) && dims_fit(e, sizes->n, sizes->items);
}

/* One path declared twice is one weight. NULL after an error. */
static Node *weight_of(Elaborator *e, const Ast *node, Module *m, const char *part) {
  const SizeList *sizes = eval_sizes(e, node->children[0], m->scope);
  const char *path = join_path(e, m->path, part);
  if (!sizes || !is_weight_shape(e, node->children[0], sizes)) return NULL;
  if (!*path) {
    fail(e, DIAG_RANGE, "a weight needs a path");
    return NULL;
  }
  if (!map_has(&e->weights, path)) return declare_weight(e, path, sizes);
  Node *weight = map_get(&e->weights, path);
  if (!weight || same_dims(weight, sizes)) return weight;
  fail_with_note(e, node->span, DIAG_SHAPE, weight->origin.span, "the other one",
                 "weight '%s' is %L here and %V elsewhere", path, sizes,
                 (Value){VALUE_LIST, {.list = &(SizeList){weight->rank, weight->dims}}});
  return NULL;
}

static void member_weight(Elaborator *e, const Ast *node, Module *m) {
  if (!is_new_name(e, m, node)) return;
  const char *part = node->text ? node->text : node->name;
  Node *weight = weight_of(e, node, m, part);
  map_put(&m->weights, part, weight);
  define(e, m, node, value_tensor(weight));
}

// ---- others ----

static void member_require(Elaborator *e, const Ast *node, Module *m) {
  if (!run_require(e, node, m->scope)) m->is_refused = true;
}

/* After an error in the condition: what either branch would define is poison. */
static void poison_branches(Elaborator *e, const Ast *node, Module *m) {
  VEC(const Ast *) waiting = {0};
  vec_push(e->arena, &waiting, node);
  while (waiting.n) {
    node = waiting.items[--waiting.n];
    bool defines = node->kind == AST_MEMBER || node->kind == AST_WEIGHT || (node->kind == AST_FN && !node->flag);
    if (defines && !scope_find(m->scope, node->name)) define(e, m, node, POISON);
    if (node->kind != AST_IF && node->kind != AST_BLOCK) continue;
    for (uint32_t i = node->kind == AST_IF; i < node->n_children; i++) {
      if (node->children[i]) vec_push(e->arena, &waiting, node->children[i]);
    }
  }
}

static void member_if(Elaborator *e, const Ast *node, Module *m) {
  const Ast *block;
  if (!chosen_branch(e, node, m->scope, &block)) poison_branches(e, node, m);
  else if (block) run_members(e, block, m);
}

static void member_fn(Elaborator *e, const Ast *node, Module *m) {
  bool good = parameters_differ(e, "parameter", node->children[0]);
  Function *f = ARENA_NEW(e->arena, Function);
  *f = (Function){.name = node->name, .ast = node, .scope = m->scope};
  if (!node->flag) {
    if (is_new_name(e, m, node)) define(e, m, node, good ? (Value){VALUE_FUNCTION, {.function = f}} : POISON);
  } else if (m->forward) {
    fail_with_note(e, node->span, DIAG_REDEFINED, m->forward->ast->span, "the other one", "%s has a forward already",
                   m->layer->name);
  } else if (good) {
    m->forward = f;
  }
}

static void member_generate(Elaborator *e, const Ast *node, Module *m) {
  if (!m->layer->is_model) fail(e, DIAG_INPUT_DECLARATION, "generate is for models, %s is a layer", m->layer->name);
  else if (m->generate) {
    fail_with_note(e, node->span, DIAG_REDEFINED, m->generate->span, "the other one", "a model has one generate");
  } else {
    m->generate = node;
  }
}

static const Member members[N_AST_KINDS] = {
    [AST_MEMBER] = member_value, [AST_WEIGHT] = member_weight, [AST_REQUIRE] = member_require,
    [AST_IF] = member_if,        [AST_FN] = member_fn,         [AST_GENERATE] = member_generate,
};

void run_members(Elaborator *e, const Ast *block, Module *m) {
  for (uint32_t i = 0; i < block->n_children && !e->stopped; i++) {
    const Ast *node = block->children[i];
    SrcSpan saved = e->here;
    e->here = node->span;
    CHECK(members[node->kind], "no member: %s", ast_kind_text(node->kind));
    members[node->kind](e, node, m);
    e->here = saved;
  }
}
