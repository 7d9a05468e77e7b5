/* Modules: layers with a configuration.
 *
 * In: a layer and its config values (a template), the path it gets. Out: a module with its members (members.c) under
 * that path. A layer that is applied without a name makes one module for each place in the text. Refuses layers that
 * contain themselves and more modules than MAX_MODULES.
 *
 * A template is not yet a module because it has no path: it gets one where it is bound to a name, given as a config
 * value, or applied. */
#include "elaborate/modules.h"

#include <ctype.h>
#include <string.h>

#include "base/check.h"
#include "elaborate/elaborate_call.h"
#include "elaborate/elaborate_eval.h"
#include "elaborate/lists.h"
#include "elaborate/report.h"
#include "elaborate/objective.h"
#include "elaborate/tensors.h"

/* Templates given to templates as config values; making them recurses once per level. */
enum { MAX_TEMPLATE_DEPTH = 256 };

/* Reports every parameter that appears twice. */
bool parameters_differ(Elaborator *e, const char *what, const Ast *params) {
  Map seen = map_new(e->arena);
  bool good = true;
  for (uint32_t i = 0; i < params->n_children; i++) {
    const Ast *param = params->children[i];
    const Ast *other = map_get(&seen, param->name);
    if (other) {
      fail_with_note(e, param->span, DIAG_REDEFINED, (OtherPlace){other->span, "the first one is here"},
                     "%s '%s' appears twice", what, param->name);
      good = false;
    }
    map_put(&seen, param->name, (void *)param);
  }
  return good;
}

// ---- configuration ----

/* The expression of the last -D for the name, NULL if there is none. Names are interned. */
static const Ast *override_of(const Overrides *overrides, const char *name) {
  const Ast *found = NULL; /* the last -D wins */
  for (size_t i = 0; overrides && i < overrides->items.n; i++) {
    if (overrides->items.items[i].name == name) found = overrides->items.items[i].expression;
  }
  return found;
}

/* The value of one config parameter: -D, then the argument, then the default, which may use the parameters before it.
 */
static Value config_value(Elaborator *e, const Template *t, const Ast *param, Value given,
                          const Overrides *overrides) {
  const Ast *override = override_of(overrides, param->name);
  if (param->children[0]) {
    return fail_at(e, param->children[0]->span, DIAG_KIND,
                   "a config value has no type: write its name alone, or NAME = default");
  }
  if (override) return eval(e, override, t->config);
  if (given.kind != VALUE_MISSING) return given;
  if (param->children[1]) return eval(e, param->children[1], t->config);
  const OtherPlace declared = {param->span, "the config value is declared here"};
  return fail_with_note(e, t->place->span, DIAG_ARGUMENT, declared,
                        "%s needs a value for '%s'%s%s%s", t->layer->name, param->name, overrides ? ": -D " : "",
                        overrides ? param->name : "", overrides ? "=..." : "");
}

/* How deep templates are nested in a value. */
static uint32_t depth_of(Value v) {
  return v.kind == VALUE_TEMPLATE ? v.as.template->depth : v.kind == VALUE_LIST ? v.as.list->depth : 0;
}

/* All config values are evaluated even after an error in one. The depth is kept with the template, so the limit needs
 * no walk. */
Value configure(Elaborator *e, Layer *layer, const Arguments *arguments, const Ast *place, const Overrides *overrides) {
  const Ast *params = layer->ast->children[0];
  Value *values = ARENA_ARRAY(e->arena, Value, params->n_children);
  if (!bind_arguments(e, layer->name, params->n_children, parameter_names(e, params), arguments, values)) return POISON;
  Template *t = ARENA_NEW(e->arena, Template);
  bool good = true;
  *t = (Template){.place = place, .layer = layer, .config = scope_new(e->arena, layer->scope, NULL)};
  t->is_in_loop = e->n_loops > 0;
  for (uint32_t i = 0; i < params->n_children; i++) {
    const Ast *param = params->children[i];
    Value v = config_value(e, t, param, values[i], overrides);
    if (depth_of(v) >= t->depth) t->depth = depth_of(v) + 1;
    scope_put(e->arena, t->config, param->name, v)->span = param->span;
    show_value(e, param, v);
    good &= !is_poison(v);
  }
  if (t->depth > MAX_TEMPLATE_DEPTH)
    return fail(e, DIAG_LIMIT, "modules are nested deeper than %d", (int)MAX_TEMPLATE_DEPTH);
  return good ? (Value){VALUE_TEMPLATE, {.template = t}} : POISON;
}

// ---- making ----

const char *join_path(Elaborator *e, const char *a, const char *b) {
  return !*a ? b : !*b ? a : arena_printf(e->arena, "%s.%s", a, b);
}

/* What stands below a list's path: the number of an element, or what `as` puts in its place. */
const char *list_path(Elaborator *e, const List *list, uint32_t i) {
  return list->paths && list->paths[i] ? list->paths[i] : arena_printf(e->arena, "%u", i);
}

/* Modules path.0, path.1, ...: the naming of torch.nn.ModuleList. What is no new module stays as it is. */
static Value make_list(Elaborator *e, const List *list, const char *path) {
  Value *items = arena_copy(e->arena, list->items, list->n * sizeof *list->items);
  for (uint32_t i = 0; i < list->n; i++) {
    if (!is_new_module(items[i])) continue;
    items[i] = make_new_modules(e, items[i], join_path(e, path, list_path(e, list, i)));
    if (is_poison(items[i])) return POISON;
  }
  return list_value(e, list->n, items, NULL);
}

/* n * Layer(...): the same as a list of n such. */
static Value make_repetition(Elaborator *e, const Template *t, const char *path) {
  const List *list = list_of(e, (Value){VALUE_TEMPLATE, {.template = t}});
  return list ? make_list(e, list, path) : POISON;
}

/* The modules of a value that has some without a name, under the path. */
Value make_new_modules(Elaborator *e, Value v, const char *path) {
  return v.kind == VALUE_LIST ? make_list(e, v.as.list, path) : make_module(e, v.as.template, path);
}

/* Whether two values are the very same new module or list. */
static bool is_same_new(Value a, Value b) {
  if (a.kind != b.kind) return false;
  return a.kind == VALUE_LIST ? a.as.list == b.as.list : a.kind == VALUE_TEMPLATE && a.as.template == b.as.template;
}

/* Copies the config values into the scope of the module and makes the modules among them. Each gets the name of its
 * config value as path, and one that was given under two names is made once, under the first. */
static bool make_config(Elaborator *e, Module *m, const Scope *config) {
  for (size_t i = 0; i < config->bindings.n; i++) {
    const Binding *b = &config->bindings.items[i];
    Value v = b->value;
    if (is_new_module(v)) {
      size_t first = 0;
      while (!is_same_new(config->bindings.items[first].value, v)) first++;
      if (first < i) v = m->scope->bindings.items[first].value;
      else {
        v = make_new_modules(e, v, join_path(e, m->path, b->name));
        map_put(&m->parts, b->name, ARENA_NEW(e->arena, PathPart));
      }
      if (is_poison(v)) return false;
    }
    scope_put(e->arena, m->scope, b->name, v)->span = b->span;
  }
  return true;
}

/* Whether the layer is among those whose text led here: making it would never end. */
static bool is_recursion(const Elaborator *e, const Layer *layer) {
  const Module *m = e->module;
  while (m && m->layer != layer) m = m->maker;
  return m != NULL;
}

static Value report_recursion(Elaborator *e, const Template *t) {
  const Layer *layer = t->layer;
  StrBuf chain = strbuf_new(e->arena);
  const Module *m = e->module;
  for (; m->layer != layer; m = m->maker) {
    char *inner = chain.text;
    chain = strbuf_new(e->arena);
    strbuf_printf(&chain, "%s -> %s", m->layer->name, inner);
  }
  return fail_with_note(e, t->place->span, DIAG_RECURSION, (OtherPlace){layer->ast->span, "it is defined here"},
                        "recursion: layer %s contains itself: %s -> %s%s", layer->name, layer->name, chain.text,
                        layer->name);
}

/* Evaluates config values and members; false if that could not even begin. A module with faulty members is still a
 * module, so its other members can be used. */
static bool fill_module(Elaborator *e, Module *m, const Template *t) {
  Module *saved = e->module;
  Layer *layer = t->layer;
  int errors = e->diag->n_errors;
  bool good = make_config(e, m, t->config);
  uint32_t n_loops = e->n_loops;
  if (!good || !enter_call(e, t->place->span, arena_printf(e->arena, "layer %s", layer->name), e->module)) return false;
  e->module = m;
  e->n_loops = 0;
  run_members(e, layer->ast->children[1], m);
  e->n_loops = n_loops;
  e->module = saved;
  leave_call(e);
  m->is_faulty = errors != e->diag->n_errors;
  return !e->stopped;
}

static const char *config_text(Elaborator *e, Value v) {
  Message m = message_new(e);
  if (v.kind == VALUE_MODULE) return v.as.module->layer->name;
  message_add_value(&m, v);
  for (size_t i = m.parts.n; i-- > 0;) { /* sizes of a run, by name */
    StrBuf size = strbuf_new(e->arena);
    size_print(&size, e->sizes, m.parts.items[i].size);
    m.text.text = arena_printf(e->arena, "%s%s%s", m.parts.items[i].text, size.text, m.text.text);
  }
  return text_shown(e->arena, m.text.text);
}

/* For whoever looks into the model. */
static void note_module(Elaborator *e, const Module *m, const Template *t) {
  const size_t n = t->config->bindings.n;
  const char **config = ARENA_ARRAY(e->arena, const char *, 2 * n);
  for (size_t i = 0; i < n; i++) {
    config[2 * i] = t->config->bindings.items[i].name;
    config[2 * i + 1] = config_text(e, m->scope->bindings.items[i].value);
  }
  vec_push(e->arena, &e->graph->notes.modules,
           (GraphModule){m->shown, t->layer->name, t->layer->ast->span, (uint32_t)n, config});
}

/* The module of a template under a path; a template without a layer is a repetition. */
Value make_module(Elaborator *e, const Template *t, const char *path) {
  if (e->stopped) return POISON;
  if (++e->n_modules > MAX_MODULES) return fail(e, DIAG_LIMIT, "the model has more than %d modules", (int)MAX_MODULES);
  if (!t->layer) return make_repetition(e, t, path);
  if (is_recursion(e, t->layer)) return report_recursion(e, t);
  Module *m = ARENA_NEW(e->arena, Module);
  m->layer = t->layer;
  m->maker = e->module;
  m->path = path;
  m->shown = text_shown(e->arena, path);
  m->scope = scope_new(e->arena, t->layer->scope, m);
  m->parts = map_new(e->arena);
  m->weights = map_new(e->arena);
  m->inline_modules = map_new(e->arena);
  if (!fill_module(e, m, t)) return POISON;
  note_module(e, m, t);
  return (Value){VALUE_MODULE, {.module = m}};
}

// ---- modules made where they are applied ----

/* A module made where it is applied, with the template it was made of. */
typedef struct InlineModule {
  const Template *template;
  Value module;
} InlineModule;

/* EncoderLayer -> encoder_layer, RMSNorm -> rms_norm. */
static const char *snake_case(Elaborator *e, const char *name) {
  StrBuf out = strbuf_new(e->arena);
  for (size_t i = 0; name[i]; i++) {
    unsigned char c = (unsigned char)name[i], before = i ? (unsigned char)name[i - 1] : 0;
    bool begins = isupper(c) && (islower(before) || isdigit(before) ||
                                 (isupper(before) && islower((unsigned char)name[i + 1])));
    if (begins) strbuf_add_char(&out, '_');
    strbuf_add_char(&out, (char)tolower(c));
  }
  return out.text;
}

/* Makes the module under its layer's name in snake case, followed by _2, _3, ... from the second on. The numbering
 * follows the order of the text, so paths of weights do not change when something is added after them. Members
 * declare their names first, and a clash with one is refused rather than numbered. */
static Value make_inline(Elaborator *e, const Template *t, Module *owner) {
  const Template *innermost = t;
  while (!innermost->layer) innermost = innermost->inner;
  const char *base = snake_case(e, innermost->layer->name), *name = base;
  PathPart *first = map_get(&owner->parts, base), *taken = first;
  while (taken && taken->is_inline) {
    name = arena_printf(e->arena, "%s_%d", base, ++first->n_same);
    taken = map_get(&owner->parts, name);
  }
  if (taken) {
    return fail(e, DIAG_REDEFINED, "the path '%s' of this module is that of a member: give the module a name", name);
  }
  PathPart *part = ARENA_NEW(e->arena, PathPart);
  *part = (PathPart){.is_inline = true, .n_same = 1};
  map_put(&owner->parts, name, part);
  return make_module(e, t, join_path(e, owner->path, name));
}

/* One module for each place in the text and each module that holds it: a function that is called twice applies the
 * same weights twice. Should the configuration differ between the calls, the weights would too, so that is refused. */
Value inline_module(Elaborator *e, const Template *t, Scope *scope) {
  Module *owner = scope->module;
  if (!owner) {
    return fail(e, DIAG_KIND,
                "a module is applied here, but no layer holds it: apply it in a function or forward of a layer");
  }
  if (t->is_in_loop) {
    return fail(e, DIAG_KIND,
                "a module made here would be one for all rounds of 'for': make a list of modules a member");
  }
  MapEntry *entry = map_find(&owner->inline_modules, &t->place, sizeof t->place);
  if (!entry) {
    InlineModule *made = ARENA_NEW(e->arena, InlineModule);
    *made = (InlineModule){t, make_inline(e, t, owner)};
    map_put_n(&owner->inline_modules, &t->place, sizeof t->place, made);
    return made->module;
  }
  const InlineModule *made = entry->value;
  if (templates_equal(made->template, t)) return made->module;
  return fail(e, DIAG_REDEFINED,
              "a module with another configuration was made here before: give the two modules names");
}
