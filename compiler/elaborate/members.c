/* In: the text of a layer's members, and the module that they are of. Out: its submodules, and its weights declared
 * under its path. Refuses names and paths defined twice, and weights whose sizes are not known when compiling. After
 * an error the next member is still evaluated. See modules.h. */
#include "elaborate/modules.h"

#include <string.h>

#include "base/check.h"
#include "elaborate/elaborate_statements.h"
#include "elaborate/elaborate_eval.h"
#include "elaborate/lists.h"
#include "elaborate/objective.h"
#include "elaborate/tensors.h"

typedef void (*Member)(Elaborator *e, const Ast *node, Module *m);

/* A name is defined once in a layer: false (after reporting) if it is already. */
static bool is_new_name(Elaborator *e, const Module *m, const Ast *node) {
  const Binding *other = scope_find(m->scope, node->name);
  if (!other) return true;
  fail_with_note(e, node->span, DIAG_REDEFINED, (OtherPlace){other->span, "the first one is here"},
                 "'%s' is already defined in %s", node->name, m->layer->name);
  return false;
}

/* Binds a member to its value, which may be poison. */
static void define(Elaborator *e, Module *m, const Ast *node, Value v) {
  Binding *binding = scope_put(e->arena, m->scope, node->name, v);
  binding->span = node->span;
  binding->is_member = true;
  show_value(e, node, v);
}

// ---- submodules and values ----

/* Takes a path below the module for a member; false if a module without a name has it. */
static bool take_part(Elaborator *e, Module *m, const char *part) {
  const PathPart *taken = map_get(&m->parts, part);
  if (taken && taken->is_inline) {
    fail(e, DIAG_REDEFINED, "the path '%s' is taken by a module without a name", part);
    return false;
  }
  map_put(&m->parts, part, ARENA_NEW(e->arena, PathPart));
  return true;
}

/* A member that is a module, or a list with some. `as ""` gives it the path of its owner, so its weights, or the
 * elements of the list, join the owner's. */
static Value named_module(Elaborator *e, const Ast *node, Module *m, Value v) {
  const char *part = node->text ? filled_path(e, node->text, m->scope) : node->name;
  if (!part) return POISON;
  const List *list = *part ? NULL : list_of(e, v);
  bool good = !*part || take_part(e, m, part);
  for (uint32_t i = 0; good && list && i < list->n; i++) {
    if (is_new_module(list->items[i])) good = take_part(e, m, list_path(e, list, i));
  }
  return good ? make_new_modules(e, v, join_path(e, m->path, part)) : POISON;
}

/* A value of any kind; only what has no name yet becomes a module here. */
static void member_value(Elaborator *e, const Ast *node, Module *m) {
  if (!is_new_name(e, m, node)) return;
  Value v = eval(e, node->children[0], m->scope);
  if (is_new_module(v)) v = named_module(e, node, m, v);
  else if (node->text && !is_poison(v)) {
    v = fail(e, DIAG_KIND, "'as' names the weights of a module made here, not %K", v);
  }
  define(e, m, node, v);
}

// ---- weights ----

/* The prefix of --weights-prefix is part of the node's name, not of the path: paths are compared within the model. */
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

/* Weights are read before any run, so their sizes are numbers. */
static bool is_weight_shape(Elaborator *e, const Ast *list, const SizeList *sizes) {
  for (uint32_t i = 0; i < sizes->n; i++) {
    int64_t value;
    const bool is_known = size_is_const(sizes->items[i], &value);
    if (is_known && value >= 0) continue;
    const SrcSpan here = list->children[i]->span;
    const char *format = is_known ? "a size of a weight is %Z: it must not be below 0"
                                  : "the sizes of a weight must be known at compile time, not %Z";
    fail_counted(e, here, DIAG_RANGE, format, sizes->items[i]);
    return false;
  }
  return rank_fits(e, "a weight", sizes->n) && dims_fit(e, sizes->n, sizes->items);
}

/* The node of a weight. One path declared twice is one weight, which is how weights are tied; both must have the same
 * shape. NULL after an error. */
static Node *weight_of(Elaborator *e, const Ast *node, Module *m, const char *part) {
  const SizeList *sizes = eval_sizes(e, node->children[0], m->scope);
  const char *path = join_path(e, m->path, part);
  if (!sizes || !is_weight_shape(e, node->children[0], sizes)) return NULL;
  if (!*path) {
    fail(e, DIAG_RANGE, "a weight needs a path, which 'as \"\"' leaves empty here");
    return NULL;
  }
  if (!map_has(&e->weights, path)) return declare_weight(e, path, sizes);
  Node *weight = map_get(&e->weights, path);
  if (!weight || same_dims(weight, sizes)) return weight;
  fail_with_note(e, node->span, DIAG_SHAPE, (OtherPlace){origin_place(&weight->origin), "the first one is here"},
                 "weight '%s' is %L here and %L elsewhere", path, sizes, &(SizeList){weight->rank, weight->dims});
  return NULL;
}

/* Of a weight that is declared twice the first initial value holds. */
static void declare_initial(Elaborator *e, const Ast *node, Module *m, const char *path, const Node *weight) {
  const Initial *initial = node->children[1] ? initial_of(e, node->children[1], m->scope) : NULL;
  if (!initial) return;
  if (initial->kind >= INITIAL_XAVIER_UNIFORM && weight->rank < 2) {
    fail_at(e, node->children[1]->span, DIAG_SHAPE,
            "weight '%s' %T: xavier and kaiming need two axes or more; uniform and normal do not", path, weight);
  } else if (!map_has(&e->initials, path)) {
    map_put(&e->initials, path, (void *)initial);
  }
}

static void member_weight(Elaborator *e, const Ast *node, Module *m) {
  if (!is_new_name(e, m, node)) return;
  const char *part = node->text ? filled_path(e, node->text, m->scope) : node->name;
  Node *weight = part ? weight_of(e, node, m, part) : NULL;
  if (weight) declare_initial(e, node, m, join_path(e, m->path, part), weight);
  if (part) map_put(&m->weights, part, weight);
  define(e, m, node, value_tensor(weight));
}

// ---- others ----

/* A refused module says nothing more: what follows would complain about the values that `require` has just refused. */
static void member_require(Elaborator *e, const Ast *node, Module *m) {
  if (!run_require(e, node, m->scope)) m->is_refused = true;
}

/* After an error in the condition: what either branch would define is poison, unless it is defined already. */
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

/* A function, or the forward (flag). After an error in its parameters the name is poison, so calls of it are silent.
 */
static void member_fn(Elaborator *e, const Ast *node, Module *m) {
  bool good = parameters_differ(e, "parameter", node->children[0]);
  Function *f = ARENA_NEW(e->arena, Function);
  *f = (Function){.name = node->name, .ast = node, .scope = m->scope};
  if (!node->flag) {
    if (is_new_name(e, m, node)) define(e, m, node, good ? (Value){VALUE_FUNCTION, {.function = f}} : POISON);
  } else if (m->forward) {
    fail_with_note(e, node->span, DIAG_REDEFINED, (OtherPlace){m->forward->ast->span, "the first one is here"},
                   "%s has a forward already", m->layer->name);
  } else if (good) {
    m->forward = f;
  }
}

static void member_generate(Elaborator *e, const Ast *node, Module *m) {
  if (!m->layer->is_model) {
    fail(e, DIAG_INPUT_DECLARATION, "only a model can have a generate block; %s is a layer", m->layer->name);
  } else if (m->generate) {
    fail_with_note(e, node->span, DIAG_REDEFINED, (OtherPlace){m->generate->span, "the first one is here"},
                   "a model can have only one generate block");
  } else {
    m->generate = node;
  }
}

static void member_train(Elaborator *e, const Ast *node, Module *m) {
  if (!m->layer->is_model) {
    fail(e, DIAG_INPUT_DECLARATION, "only a model can have a train block; %s is a layer", m->layer->name);
  } else if (m->train) {
    fail_with_note(e, node->span, DIAG_REDEFINED, (OtherPlace){m->train->span, "the first one is here"},
                   "a model can have only one train block");
  } else {
    m->train = node;
  }
}

static void member_adapt(Elaborator *e, const Ast *node, Module *m) {
  if (!m->layer->is_model) {
    fail(e, DIAG_INPUT_DECLARATION, "only a model can have an adapt block; %s is a layer", m->layer->name);
  } else if (m->adapt) {
    fail_with_note(e, node->span, DIAG_REDEFINED, (OtherPlace){m->adapt->span, "the first one is here"},
                   "a model can have only one adapt block");
  } else {
    m->adapt = node;
  }
}

/* Which weights it is for is decided when all modules are made. */
static void member_initial(Elaborator *e, const Ast *node, Module *m) {
  const Initial *initial = initial_of(e, node->children[0], m->scope);
  if (initial) vec_push(e->arena, &e->initials_of_all, (InitialOfAll){m->path, initial});
}

static const Member members[N_AST_KINDS] = {
    [AST_MEMBER] = member_value, [AST_WEIGHT] = member_weight,   [AST_REQUIRE] = member_require,
    [AST_IF] = member_if,        [AST_FN] = member_fn,           [AST_GENERATE] = member_generate,
    [AST_TRAIN] = member_train,  [AST_INITIAL] = member_initial, [AST_ADAPT] = member_adapt,
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
