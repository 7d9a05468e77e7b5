/* Elaborate: from parsed files to the graph of one model; the order in which the rest of this folder is called.
 *
 * In and out: see elaborate.h. Layers of the standard library and of the files come into scope, the model is chosen, -D
 * definitions are read, the model's module is made and its forward run, and nodes that no output needs are deleted. At
 * the end, members and weights of the user's layers that no text mentions give a warning. */
#include "elaborate/elaborate.h"

#include <string.h>

#include "elaborate/adapters.h"
#include "elaborate/elaborate_inputs.h"
#include "elaborate/modules.h"
#include "elaborate/objective.h"
#include "elaborate/primitives.h"

extern const char std_tfm[], functions_tfm[], losses_tfm[];
extern const unsigned std_tfm_size, functions_tfm_size, losses_tfm_size;

typedef VEC(Layer *) Layers;

// ---- what is in scope ----

/* False (after reporting) if a layer or function of the files has the name. */
static bool is_new_name(Elaborator *e, const char *what, const Ast *node, const Scope *scope) {
  const Binding *other = scope_find(scope, node->name);
  if (!other) return true;
  fail_with_note(e, node->span, DIAG_REDEFINED, (OtherPlace){other->span, "the first one is here"},
                 "%s %s is defined twice", what, node->name);
  return false;
}

/* Layers and functions of all included files share one scope; those of std/ lie in an outer one, so a user's may hide a
 * standard one. */
static void declare_layer(Elaborator *e, const Ast *node, Scope *scope, bool is_main, Layers *models) {
  if (!is_new_name(e, "layer", node, scope)) return;
  parameters_differ(e, "config value", node->children[0]);
  Layer *layer = ARENA_NEW(e->arena, Layer);
  *layer = (Layer){.name = node->name, .ast = node, .scope = scope, .is_model = node->flag, .is_main = is_main};
  scope_put(e->arena, scope, node->name, (Value){VALUE_LAYER, {.layer = layer}})->span = node->span;
  if (layer->is_model) vec_push(e->arena, models, layer);
}

/* A function of a file sees no members of layers. After an error in its parameters the name is poison. */
static void declare_function(Elaborator *e, const Ast *node, Scope *scope, Scope *inside) {
  if (!is_new_name(e, "function", node, scope)) return;
  Function *f = ARENA_NEW(e->arena, Function);
  *f = (Function){.name = node->name, .ast = node, .scope = inside};
  bool good = parameters_differ(e, "parameter", node->children[0]);
  Value v = good ? (Value){VALUE_FUNCTION, {.function = f}} : POISON;
  scope_put(e->arena, scope, node->name, v)->span = node->span;
}

static void declare_file(Elaborator *e, const Ast *file, Scope *scope, bool is_main, Layers *models) {
  for (uint32_t i = 0; i < file->n_children; i++) {
    const Ast *node = file->children[i];
    if (node->kind == AST_LAYER) declare_layer(e, node, scope, is_main, models);
    if (node->kind == AST_FN) declare_function(e, node, scope, scope);
  }
}

/* The names of std/ that begin with `_` are its own: what stands there is evaluated `inside` a scope that has them
 * too. */
static void declare_standard(Elaborator *e, const Ast *file, Scope *scope, Scope *inside) {
  for (uint32_t i = 0; i < file->n_children; i++) {
    const Ast *node = file->children[i];
    if (node->kind == AST_FN) {
      declare_function(e, node, node->name[0] == '_' ? inside : scope, inside);
      continue;
    }
    Layer *layer = ARENA_NEW(e->arena, Layer);
    *layer = (Layer){.name = node->name, .ast = node, .scope = inside};
    scope_put(e->arena, scope, node->name, (Value){VALUE_LAYER, {.layer = layer}})->span = node->span;
  }
}

static Scope *file_scope(Elaborator *e, Scope *parent) {
  Scope *scope = scope_new(e->arena, parent, NULL);
  scope->is_file = true;
  return scope;
}

StandardFile standard_file(uint32_t i) {
  const StandardFile files[N_STANDARD_FILES] = {{"<std>", std_tfm, std_tfm_size},
                                                {"<std/functions>", functions_tfm, functions_tfm_size},
                                                {"<std/losses>", losses_tfm, losses_tfm_size}};
  return files[i];
}

/* Scopes from the outermost inwards: primitives, what is standard, what the files define. False after an error. */
static bool declare_all(Elaborator *e, const ParsedProgram *program, Layers *models) {
  Scope *primitives = file_scope(e, NULL);
  primitives_define(e, primitives);
  for (int i = 0; i < N_DTYPES; i++) {
    e->dtypes[i] = scope_find(primitives, map_intern(e->names, dtype_names[i], strlen(dtype_names[i])))->value;
  }
  Scope *standard = file_scope(e, primitives);
  Scope *inside = file_scope(e, standard);
  for (uint32_t i = 0; i < N_STANDARD_FILES; i++) {
    const StandardFile file = standard_file(i);
    Source *source = source_new(e->arena, file.name, file.text, file.size);
    const Ast *std = parse_file(e->arena, e->names, e->diag, source);
    if (!std) return false;
    declare_standard(e, std, standard, inside);
  }
  e->files = file_scope(e, standard);
  for (size_t i = 0; i < program->files.n; i++) {
    declare_file(e, program->files.items[i].ast, e->files, program->files.items[i].is_main, models);
  }
  return !diag_has_errors(e->diag);
}

// ---- which model ----

/* Where a message points that is about the whole program: the first byte of the main file. */
static SrcSpan start_of(const ParsedProgram *program) {
  for (size_t i = 0; i < program->files.n; i++) {
    if (program->files.items[i].is_main) return (SrcSpan){program->files.items[i].source, 0, 0};
  }
  return NO_SPAN;
}

/* The model of that name in any file, or the only one of the main file: a file that is included for its layers may
 * contain a model of its own. NULL after an error. */
static Layer *choose_model(Elaborator *e, const ParsedProgram *program, const Layers *models, const char *name) {
  Layer *found = NULL;
  VEC(const char *) known = {0};
  uint32_t n_found = 0;
  for (size_t i = 0; i < models->n; i++) {
    Layer *model = models->items[i];
    if (!name && !model->is_main) continue;
    vec_push(e->arena, &known, model->name);
    if (name && strcmp(name, model->name) != 0) continue;
    found = model;
    n_found++;
  }
  if (n_found == 1) return found;
  const char *why = name      ? arena_printf(e->arena, "there is no model %s", name)
                    : known.n ? "there are several models"
                              : "there is no model";
  const char *nearest = name ? diag_nearest(name, known.items, known.n) : NULL;
  const char *list = known.n ? arena_printf(e->arena, " (models: %s)", listed(e, known.items, known.n)) : "";
  fail_at(e, start_of(program), DIAG_NO_MODEL, "%s in the file%s%s%s", why, list,
          known.n > 1 ? "; choose one with --model" : "", did_you_mean(e, nearest));
  return NULL;
}

// ---- definitions ----

/* Parses NAME=EXPRESSION of a -D into an override. The text becomes a source called "-D NAME", so faults in it have a
 * place. */
static bool read_definition(Elaborator *e, const Definition *definition, const Layer *model, Overrides *overrides) {
  const Ast *params = model->ast->children[0];
  const char *const *names = parameter_names(e, params);
  const char *name = map_intern(e->names, definition->name, strlen(definition->name));
  const char *text = arena_strdup(e->arena, definition->expression);
  Source *source = source_new(e->arena, arena_printf(e->arena, "-D %s", name), text, (uint32_t)strlen(text));
  bool is_known = false;
  for (uint32_t i = 0; i < params->n_children; i++) is_known |= names[i] == name;
  if (!is_known) {
    fail_at(e, (SrcSpan){source, 0, source->size}, DIAG_DEFINE, "-D %s: %s has no config value '%s'%s", name,
            model->name, name, nearest_or_all(e, name, "has", names, params->n_children));
    return false;
  }
  const Ast *expression = parse_expression(e->arena, e->names, e->diag, source);
  if (expression) vec_push(e->arena, &overrides->items, (Override){name, expression});
  return expression != NULL;
}

static bool read_definitions(Elaborator *e, const ElaborateOptions *options, const Layer *model, Overrides *overrides) {
  bool good = true;
  for (uint32_t i = 0; i < options->n_definitions; i++) {
    good &= read_definition(e, &options->definitions[i], model, overrides);
  }
  return good;
}

// ---- the model ----

/* The generate block is looked at last, because it refers to inputs and outputs, and only in a model without errors.
 */
static void run_forward(Elaborator *e, Module *model) {
  Arguments arguments;
  SrcSpan saved = e->here;
  e->here = model->forward->ast->span;
  if (declare_inputs(e, model, model->forward, &arguments)) {
    Result result = call_function(e, model->forward, model->layer->name, &arguments, model->forward->ast);
    declare_outputs(e, &result);
    if (!diag_has_errors(e->diag)) declare_generate(e, model);
  }
  e->here = saved;
}

/* The model is made like any other module, with the empty path. */
static void elaborate_model(Elaborator *e, Layer *layer, const Overrides *overrides) {
  const Arguments none = {0};
  e->here = layer->ast->span;
  Value template = configure(e, layer, &none, layer->ast, overrides);
  Value value = is_poison(template) ? POISON : make_module(e, template.as.template, "");
  if (is_poison(value)) return;
  Module *model = value.as.module;
  if (model->is_refused) return;
  if (e->objective && !model->train) return;
  declare_adapters(e, model);
  if (e->objective) declare_objective(e, model);
  else if (model->forward)
    run_forward(e, model);
  else if (!model->is_faulty) fail(e, DIAG_KIND, "model %s has no forward, which declares its inputs and outputs",
                                  layer->name);
  check_adapters(e);
}

// ---- what nothing uses ----

/* A member or weight is unused if no text mentions it: neither its layer, nor `m.name` in any file, nor the text of a
 * `require`. Whether a branch is taken plays no part, so what other config values need gives no warning. */

typedef struct Mentions {
  Map dots; /* names after a dot, in any file */
  Map names; /* names in the layer */
} Mentions;

static bool is_member(const Ast *node) { return node->kind == AST_MEMBER || node->kind == AST_WEIGHT; }

/* Names in the texts of `require` and `as` count as mentions. */
static void read_placeholders(Map *names, const char *text) {
  for (const char *open = strchr(text, '{'); open; open = strchr(open + 1, '{')) {
    size_t n = strcspn(open + 1, "}");
    map_put_n(names, open + 1, n, NULL);
  }
}

/* Collects names, and names after a dot, below `root`; either map may be NULL. */
static void read_mentions(Elaborator *e, const Ast *root, Map *names, Map *dots) {
  VEC(const Ast *) waiting = {0};
  vec_push(e->arena, &waiting, root);
  while (waiting.n) {
    const Ast *node = waiting.items[--waiting.n];
    if (node->kind == AST_CHECKPOINT) continue; /* its names are keys of a file */
    if (node->kind == AST_NAME && names) map_put(names, node->name, NULL);
    if (node->kind == AST_DOT && dots) map_put(dots, node->name, NULL);
    bool has_names = node->kind == AST_REQUIRE || node->kind == AST_PLACED || is_member(node);
    if (has_names && node->text && names) read_placeholders(names, node->text);
    for (uint32_t i = 0; i < node->n_children; i++) {
      if (node->children[i]) vec_push(e->arena, &waiting, node->children[i]);
    }
  }
}

/* As many as DIAG_MAX_ERRORS; warnings have no limit of their own in Diag. */
enum { MAX_WARNINGS = 20 };

/* Members and weights of one layer, in the order of the text, that nothing mentions. `*n` counts the warnings of all
 * layers. */
static void warn_in_layer(Elaborator *e, const Ast *layer, const Map *dots, uint32_t *n) {
  Map names = map_new(e->arena);
  VEC(const Ast *) waiting = {0};
  read_mentions(e, layer, &names, NULL);
  vec_push(e->arena, &waiting, layer->children[1]);
  while (waiting.n) {
    const Ast *node = waiting.items[--waiting.n];
    for (uint32_t i = node->n_children; i-- > 0;) {
      const Ast *child = node->children[i];
      if (child && (child->kind == AST_IF || child->kind == AST_BLOCK || is_member(child))) {
        vec_push(e->arena, &waiting, child);
      }
    }
    if (!is_member(node) || map_has(&names, node->name) || map_has(dots, node->name)) continue;
    if (node->text && map_has(dots, node->text)) continue;
    if (++*n > MAX_WARNINGS) return;
    diag_warning(e->diag, node->span, DIAG_UNUSED, "%s '%s' of %s is not used",
                 node->kind == AST_WEIGHT ? "weight" : "member", node->name, layer->name);
  }
}

static void warn_unused(Elaborator *e, const ParsedProgram *program) {
  Map dots = map_new(e->arena);
  uint32_t n = 0;
  for (size_t i = 0; i < program->files.n; i++) read_mentions(e, program->files.items[i].ast, NULL, &dots);
  for (size_t i = 0; i < program->files.n; i++) {
    const Ast *file = program->files.items[i].ast;
    for (uint32_t k = 0; k < file->n_children; k++) {
      if (file->children[k]->kind == AST_LAYER) warn_in_layer(e, file->children[k], &dots, &n);
    }
  }
}

// ---- entry ----

/* Deletes nodes that no output needs, except inputs: they belong to the interface even if unused. Going backwards,
 * the users of a node are gone before the node itself is looked at. */
static void delete_unneeded(Graph *graph) {
  for (Node *node = graph->last, *prev; node; node = prev) {
    prev = node->prev;
    if (node->op != OP_INPUT && node->users.n == 0 && !graph_is_output(graph, node)) graph_delete(graph, node);
  }
  graph_renumber(graph);
}

static Elaborator elaborator_new(Arena *arena, Map *names, Diag *diag, const char *weights_prefix) {
  return (Elaborator){.arena = arena,
                      .names = names,
                      .diag = diag,
                      .weights_prefix = weights_prefix ? weights_prefix : "",
                      .weights = map_new(arena),
                      .initials = map_new(arena),
                      .reported = map_new(arena),
                      .counted = map_new(arena),
                      .checked = map_new(arena)};
}

/* False after an error. */
static bool elaborate_entry(Elaborator *e, const ParsedProgram *program, const ElaborateOptions *options) {
  Layers models = {0};
  Overrides overrides = {0};
  int errors = e->diag->n_errors;
  if (!declare_all(e, program, &models)) return false;
  Layer *model = choose_model(e, program, &models, options->model);
  if (!model || !read_definitions(e, options, model, &overrides)) return false;
  e->graph = graph_new(e->arena, model->name);
  e->sizes = e->graph->sizes;
  if (e->observer) e->observer->sizes = e->sizes;
  e->builder.graph = e->graph;
  elaborate_model(e, model, &overrides);
  if (e->diag->n_errors != errors) return false;
  delete_unneeded(e->graph);
  return true;
}

/* Warnings need a model without errors: after a fault, what looks unused may be used by the faulty part. */
Graph *elaborate(Arena *arena, Map *names, Diag *diag, const ParsedProgram *program, const ElaborateOptions *options) {
  Elaborator e = elaborator_new(arena, names, diag, options->weights_prefix);
  e.observer = options->observer;
  if (!elaborate_entry(&e, program, options)) return NULL;
  warn_unused(&e, program);
  return e.graph;
}

/* Without warnings: they are those of the model, which its commands have given. */
Objective *elaborate_objective(Arena *arena, Map *names, Diag *diag, const ParsedProgram *program,
                               const ElaborateOptions *options) {
  Elaborator e = elaborator_new(arena, names, diag, options->weights_prefix);
  e.objective = ARENA_NEW(arena, Objective);
  e.is_training = options->is_training;
  e.options = options;
  if (!elaborate_entry(&e, program, options)) return NULL;
  e.objective->graph = e.graph;
  return e.objective;
}
