/* Inputs: the boundary of a model: its inputs, run-time sizes, ragged sizes, outputs and generate block.
 *
 * In: the parameters of the model's forward and the values it returns. Out: INPUT nodes, outputs and settings of the
 * graph. A size that stands alone as an axis of some input is bound by that input at each run; every other size must
 * be made of such ones. Refuses inputs without a type, sizes that nothing binds, ragged sizes without a common batch,
 * outputs without a name, and a generate block whose decoder input or logits do not have the shape that generation
 * needs. */
#include "elaborate/elaborate_inputs.h"

#include <string.h>

#include "elaborate/elaborate_eval.h"
#include "elaborate/modules.h"
#include "elaborate/tensors.h"

/* A dimension without the word `ragged`. */
static const Ast *bare(const Ast *dim) { return dim->kind == AST_RAGGED ? dim->children[0] : dim; }

/* The index of a run-time size; -1 if there is none of that name. */
static int32_t symbol_named(const Elaborator *e, const char *name) {
  for (uint32_t i = 0; i < e->sizes->n_symbols; i++) {
    if (strcmp(e->sizes->symbols[i], name) == 0) return (int32_t)i;
  }
  return -1;
}

// ---- sizes ----

/* Makes the run-time sizes that stand alone in this parameter. This runs over all parameters first, so that x: f32[2
 * * n] may come before y: f32[n]. */
static bool bind_sizes(Elaborator *e, const Ast *param, Scope *scope) {
  const Ast *type = param->children[0];
  if (!type) {
    fail_at(e, param->span, DIAG_INPUT_DECLARATION, "input '%s' needs a type such as f32[batch, time]", param->name);
    return false;
  }
  for (uint32_t i = 0; i < type->n_children; i++) {
    const Ast *dim = bare(type->children[i]);
    const char *name = free_size(dim, scope);
    if (!name || dim->flag) continue; /* (batch) is an expression like others */
    if (param->children[1]) continue; /* what may be left out binds nothing (is_bound says so) */
    const Size *size = size_symbol(e->sizes, name);
    if (!size) {
      fail_at(e, type->span, DIAG_LIMIT, "a model can have at most %d run-time sizes", (int)SIZE_MAX_SYMBOLS);
      return false;
    }
    scope_put(e->arena, scope, name, value_size(size));
  }
  return true;
}

/* A ragged size must be a symbol of its own: lengths are given for it by name. */
static bool mark_ragged(Elaborator *e, const Ast *param, const Scope *scope) {
  const Ast *type = param->children[0];
  for (uint32_t i = 0; i < type->n_children; i++) {
    const Ast *dim = type->children[i], *name = bare(dim);
    if (dim->kind != AST_RAGGED) continue;
    const Binding *binding = name->kind == AST_NAME && !name->flag ? scope_find(scope, name->name) : NULL;
    if (!binding) {
      fail_at(e, dim->span, DIAG_INPUT_DECLARATION, "ragged must stand before the name of a run-time size");
      return false;
    }
    e->graph->ragged[symbol_named(e, name->name)] = true;
  }
  return true;
}

/* Whether every run-time size in the expression is bound by some input. A name that is still free here stands alone
 * in none. */
static bool is_bound(Elaborator *e, const Ast *dim, const Scope *scope, bool may_be_left_out) {
  VEC(const Ast *) waiting = {0};
  bool good = true;
  vec_push(e->arena, &waiting, dim);
  while (waiting.n) {
    const Ast *node = waiting.items[--waiting.n];
    const char *name = free_size(node, scope);
    if (name) {
      fail_at(e, node->span, DIAG_INPUT_DECLARATION,
              "no input %shas the run-time size '%s' alone as an axis, so nothing binds it",
              may_be_left_out ? "without a default " : "", name);
      good = false;
    }
    for (uint32_t i = 0; i < node->n_children; i++) {
      if (node->children[i]) vec_push(e->arena, &waiting, node->children[i]);
    }
  }
  return good;
}

/* The size of one axis; NULL after an error. */
static const Size *input_size(Elaborator *e, const Ast *dim, Scope *scope, bool may_be_left_out) {
  if (!is_bound(e, dim, scope, may_be_left_out)) return NULL;
  Value v = eval(e, dim, scope);
  int64_t value = 0;
  if (is_poison(v)) return NULL;
  if (!is_size(v)) fail_no_size(e, dim->span, "a size", v);
  else if (size_is_const(size_of(e->sizes, v), &value) && value < 0) {
    fail_at(e, dim->span, DIAG_RANGE, "negative size %D; sizes are 0 or greater", value);
  } else {
    return size_of(e->sizes, v);
  }
  return NULL;
}

// ---- inputs ----

/* `forward(ids: i32[batch, time], kinds: i32[batch, time] = 0)`: one value, which each element has where the input is
 * left out. It is known when the model is compiled, so that a run without the input is one with it, filled so. */
static bool set_default(Elaborator *e, const Ast *param, Scope *scope, Node *input) {
  Value v = eval(e, param->children[1], scope);
  const Ast *place = param->children[1];
  if (is_poison(v)) return false;
  if (e->objective) {
    fail_at(e, place->span, DIAG_INPUT_DECLARATION, "input '%s' of an objective cannot have a default", param->name);
    return false;
  }
  const bool fits = input->dtype == DTYPE_F32   ? is_number(v)
                    : input->dtype == DTYPE_I32 ? v.kind == VALUE_INTEGER
                                                : v.kind == VALUE_BOOL;
  if (!fits) {
    fail_at(e, place->span, DIAG_KIND, "the default of input '%s' must be %s, not %V", param->name,
            input->dtype == DTYPE_F32 ? "a number" : input->dtype == DTYPE_I32 ? "an integer" : "true or false", v);
    return false;
  }
  if (input->dtype == DTYPE_I32 && (v.as.integer < INT32_MIN || v.as.integer > INT32_MAX)) {
    fail_at(e, place->span, DIAG_RANGE, "the default of input '%s' is no i32: %V", param->name, v);
    return false;
  }
  input->attr.has_default = true;
  if (input->dtype == DTYPE_F32) input->attr.number = number_of(v);
  else input->attr.integer = v.kind == VALUE_BOOL ? v.as.boolean : v.as.integer;
  return true;
}

/* Makes the INPUT node, and the argument by name that forward will be called with. Inputs and sizes share one name
 * space in the text form of graphs and in checks of a run. */
static bool declare_input(Elaborator *e, const Ast *param, Scope *scope, Argument *argument) {
  const Ast *type = param->children[0];
  SizeList list = {type->n_children, ARENA_ARRAY(e->arena, const Size *, type->n_children)};
  DType dtype;
  bool good = dtype_of(e, type, &dtype);
  e->here = param->span;
  for (uint32_t i = 0; i < list.n; i++) {
    list.items[i] = input_size(e, bare(type->children[i]), scope, param->children[1] != NULL);
    good &= list.items[i] != NULL;
  }
  if (!good || !rank_fits(e, "an input", list.n) || !dims_fit(e, list.n, list.items)) return false;
  if (symbol_named(e, param->name) >= 0) {
    fail(e, DIAG_INPUT_DECLARATION, "'%s' is the name of an input and of a run-time size", param->name);
    return false;
  }
  Node *input = made(e, build_input(build_here(e), param->name, dtype, list.n, list.items));
  *argument = (Argument){param->name, value_tensor(input), param->span};
  return input && (!param->children[1] || set_default(e, param, scope, input));
}

static bool is_ragged(const Elaborator *e, const Size *dim) {
  for (uint32_t i = 0; i < e->sizes->n_symbols; i++) {
    if (e->graph->ragged[i] && size_involves(dim, i)) return true;
  }
  return false;
}

static bool has_ragged_size(const Elaborator *e, const Node *x) {
  for (uint32_t i = 0; i < x->rank; i++) {
    if (is_ragged(e, x->dims[i])) return true;
  }
  return false;
}

/* Finds the batch of the ragged inputs: their first axis, one and the same size everywhere. */
static bool find_batch(Elaborator *e) {
  Graph *graph = e->graph;
  for (size_t i = 0; i < graph->inputs.n; i++) {
    const Node *x = graph->inputs.items[i];
    if (!has_ragged_size(e, x)) continue;
    int32_t batch = size_symbol_of(x->dims[0]);
    if (batch < 0 || graph->ragged[batch] || (graph->ragged_batch >= 0 && batch != graph->ragged_batch)) {
      fail_at(e, x->origin.span, DIAG_RAGGED, "input '%s' has a ragged size, so its first axis must be the batch",
              x->attr.name);
      return false;
    }
    graph->ragged_batch = batch;
  }
  return true;
}

/* The batch must not occur elsewhere, alone or in a product: an axis of 2 * batch could not be split into items. */
static bool check_batch(Elaborator *e) {
  for (size_t i = 0; i < e->graph->inputs.n; i++) {
    const Node *x = e->graph->inputs.items[i];
    for (uint32_t k = 0; k < x->rank; k++) {
      if (!involves_items(e, x->dims[k]) || (k == 0 && size_symbol_of(x->dims[0]) == e->graph->ragged_batch)) continue;
      fail_at(e, x->origin.span, DIAG_RAGGED, "'%s' has ragged items, so it must be the first axis of input '%s'",
              e->sizes->symbols[e->graph->ragged_batch], x->attr.name);
      return false;
    }
  }
  return true;
}

/* The order matters: sizes are bound before anything is evaluated, and the batch is known before forward runs, since
 * operations ask which axis must not be mixed. */
bool declare_inputs(Elaborator *e, Module *model, const Function *entry, Arguments *arguments) {
  const Ast *params = entry->ast->children[0];
  Scope *scope = scope_new(e->arena, model->scope, NULL);
  bool good = true;
  *arguments = (Arguments){.n = params->n_children, .items = ARENA_ARRAY(e->arena, Argument, params->n_children)};
  for (uint32_t i = 0; i < params->n_children; i++) good &= bind_sizes(e, params->children[i], scope);
  for (uint32_t i = 0; good && i < params->n_children; i++) good = mark_ragged(e, params->children[i], scope);
  if (!good) return false;
  for (uint32_t i = 0; i < params->n_children; i++) {
    good &= declare_input(e, params->children[i], scope, &arguments->items[i]);
  }
  return good && find_batch(e) && check_batch(e);
}

// ---- outputs ----

/* `return y = f(x)` and `return y` name an output. A name in brackets is an expression and names nothing. */
static const char *name_of_result(const Ast *node) {
  const Ast *expression = node->kind == AST_RESULT ? node->children[0] : node;
  if (node->kind == AST_RESULT && node->name) return node->name;
  return expression->kind == AST_NAME && !expression->flag ? expression->name : NULL;
}

/* Whether results of single items can be put together to this shape: either one axis is the batch itself and no other
 * involves it, or the output depends neither on the batch nor on a ragged size. */
static bool belongs_to_items(Elaborator *e, const Node *x) {
  uint32_t n = 0, n_batch = 0;
  for (uint32_t i = 0; i < x->rank; i++) {
    n += involves_items(e, x->dims[i]);
    n_batch += size_symbol_of(x->dims[i]) == e->graph->ragged_batch;
  }
  return (n == 1 && n_batch == 1) || (n == 0 && !has_ragged_size(e, x));
}

static void declare_output(Elaborator *e, const Ast *node, Value v) {
  const char *name = name_of_result(node);
  Graph *graph = e->graph;
  e->here = node->span;
  if (!name) {
    fail(e, DIAG_INPUT_DECLARATION, "an output needs a name: return NAME = ...");
    return;
  }
  for (size_t i = 0; i < graph->outputs.n; i++) {
    if (strcmp(graph->outputs.items[i].name, name) != 0) continue;
    fail(e, DIAG_REDEFINED, "two outputs are called '%s'; give one another name: return NAME = ...", name);
    return;
  }
  Node *x = tensor_of(e, v, ANY_DTYPE, arena_printf(e->arena, "output '%s'", name), "");
  if (!x) return;
  if (graph->ragged_batch >= 0 && !belongs_to_items(e, x)) {
    fail(e, DIAG_RAGGED, "output '%s' %T has a ragged size, so it needs the axis '%s'", name, x,
         e->sizes->symbols[graph->ragged_batch]);
    return;
  }
  vec_push(graph->arena, &graph->outputs, (GraphOutput){.name = name, .node = x});
}

/* A fault in forward has left no place; nothing is declared then. */
void declare_outputs(Elaborator *e, const Result *result) {
  SrcSpan saved = e->here;
  const Ast *place = result->place;
  if (!place) return;
  if (place->kind == AST_RETURN && place->n_children > 1) {
    const Tuple *tuple = result->value.as.tuple;
    for (uint32_t i = 0; i < place->n_children; i++) {
      declare_output(e, place->children[i], value_tensor(tuple->items[i]));
    }
  } else {
    declare_output(e, place->kind == AST_RETURN ? place->children[0] : place, result->value);
  }
  e->here = saved;
}

// ---- generate ----

/* What a generate block may set. */
static const char *const settings[] = {
#define SETTING_ALL(name) #name,
#define SETTING_NO_FLAG(name) #name,
#define SETTING_NOT_BLOCK(name)
#define SETTING_CONFIG(name)
#define SETTING_C(name)
#define GENERATE_OPTION(name, member, kind, initial, range, accepted, ...) SETTING_##accepted(name)
#define GENERATE_ALIAS(name, member, kind, accepted) SETTING_##accepted(name)
#include "tfm/abi/generate_options.def"
};
enum { N_SETTINGS = sizeof settings / sizeof *settings };

/* Those of them that are lists; a list of one number is none for another. */
static bool takes_list(const char *name) {
  enum { count, limit, real, flag, token, tokens, early, biases, seed, start, words, fallback };
#define GENERATE_OPTION(option, member, kind, initial, range, accepted, ...) \
  if (strcmp(name, #option) == 0) return kind == tokens;
#define GENERATE_ALIAS(option, member, kind, accepted) \
  if (strcmp(name, #option) == 0) return kind == tokens;
#include "tfm/abi/generate_options.def"
  return false;
}

/* The options that generate_options.def accepts in a block. */
static bool is_setting(Elaborator *e, const Ast *node) {
  for (size_t i = 0; i < N_SETTINGS; i++) {
    if (strcmp(settings[i], node->name) == 0) return true;
  }
  fail(e, DIAG_INPUT_DECLARATION, "generate has no setting '%s'%s", node->name,
       nearest_or_all(e, node->name, "has", settings, N_SETTINGS));
  return false;
}

/* Numbers, booleans (as 0 and 1) and, for settings that are lists, lists of integers; `none` and an empty list leave
 * the setting out. The range is checked where all sources of settings meet, in runtime/generate. */
static void declare_setting(Elaborator *e, const Ast *node, Scope *scope) {
  GenerateSetting setting = {.name = node->name};
  e->here = node->span;
  if (!is_setting(e, node)) return;
  for (size_t i = 0; i < e->graph->generate_settings.n; i++) {
    if (e->graph->generate_settings.items[i].name != node->name) continue;
    fail(e, DIAG_REDEFINED, "the setting '%s' appears twice", node->name);
    return;
  }
  Value v = eval(e, node->children[0], scope);
  if (v.kind == VALUE_NONE || is_poison(v)) return;
  bool is_list = v.kind == VALUE_LIST;
  if (is_list && v.as.list->n == 0) return;
  if (is_list && !takes_list(node->name))
    fail(e, DIAG_KIND, "the setting '%s' must be a number, not %V", node->name, v);
  if (is_number(v)) vec_push(e->arena, &setting.values, number_of(v));
  else if (v.kind == VALUE_BOOL) vec_push(e->arena, &setting.values, v.as.boolean ? 1 : 0);
  else if (!is_list)
    fail(e, DIAG_KIND, "the setting '%s' must be a number%s, not %K", node->name,
         takes_list(node->name) ? " or a list of integers" : "", v);
  for (uint32_t i = 0; is_list && i < v.as.list->n; i++) {
    Value item = v.as.list->items[i];
    if (item.kind == VALUE_INTEGER) vec_push(e->arena, &setting.values, (double)item.as.integer);
    else fail(e, DIAG_KIND, "the setting '%s' must be a list of integers, not %V", node->name, v);
  }
  vec_push(e->graph->arena, &e->graph->generate_settings, setting);
}

/* Only the decoder input may have the size that grows with each token: another input with that size would have to
 * grow too, and nothing says by what. */
static void check_growth(Elaborator *e, const Node *target) {
  int32_t time = size_symbol_of(target->dims[1]);
  if (time < 0) {
    fail(e, DIAG_INPUT_DECLARATION, "generate: '%s' %T must have a run-time size as its second axis", target->attr.name,
         target);
    return;
  }
  for (size_t i = 0; i < e->graph->inputs.n; i++) {
    Node *x = e->graph->inputs.items[i];
    for (uint32_t k = 0; k < x->rank && x != target; k++) {
      if (!size_involves(x->dims[k], (uint32_t)time)) continue;
      fail(e, DIAG_INPUT_DECLARATION, "generate: input '%s' has the size '%s' too, which grows with '%s'", x->attr.name,
           e->sizes->symbols[time], target->attr.name);
      break;
    }
  }
}

/* What a model that writes reads beside its tokens goes item by item into every run, so all of it must be there. */
static void check_defaults(Elaborator *e) {
  for (size_t i = 0; i < e->graph->inputs.n; i++)
    if (e->graph->inputs.items[i]->attr.has_default)
      fail(e, DIAG_INPUT_DECLARATION, "generate: input '%s' has a default; a model that generates needs all its inputs",
           e->graph->inputs.items[i]->attr.name);
}

/* The names are stored even after an error here; the graph is not used then. */
void declare_generate(Elaborator *e, const Module *model) {
  const Ast *node = model->generate;
  const Graph *graph = e->graph;
  Node *target = NULL, *logits = NULL;
  if (!node) return;
  SrcSpan saved = e->here;
  e->here = node->span;
  for (size_t i = 0; i < graph->inputs.n; i++) {
    if (strcmp(graph->inputs.items[i]->attr.name, node->name) == 0) target = graph->inputs.items[i];
  }
  for (size_t i = 0; i < graph->outputs.n; i++) {
    if (strcmp(graph->outputs.items[i].name, node->text) == 0) logits = graph->outputs.items[i].node;
  }
  if (!target || target->dtype != DTYPE_I32 || target->rank != 2) {
    fail(e, DIAG_INPUT_DECLARATION, "generate: '%s' must be an input i32[batch, time]", node->name);
  } else if (!logits || logits->dtype != DTYPE_F32 || logits->rank != 3) {
    fail(e, DIAG_INPUT_DECLARATION, "generate: '%s' must be an output f32[batch, time, vocab]", node->text);
  } else {
    check_growth(e, target);
    check_defaults(e);
  }
  e->graph->generate_input = node->name;
  e->graph->generate_output = node->text;
  for (uint32_t i = 0; i < node->n_children; i++) declare_setting(e, node->children[i], model->scope);
  e->here = saved;
}
