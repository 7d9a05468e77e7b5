/* Modules: configuration, modules made of templates, paths of what is made in functions. */
#include "elaborate/modules.h"

#include <ctype.h>
#include <string.h>

#include "elaborate/eval.h"
#include "elaborate/members.h"

enum { MAX_TEMPLATE_DEPTH = 256 };

bool parameters_differ(Elaborator *e, const char *what, const Ast *params) {
  Map seen = map_new(e->arena);
  bool good = true;
  for (uint32_t i = 0; i < params->n_children; i++) {
    const Ast *param = params->children[i];
    const Ast *other = map_get(&seen, param->name);
    if (other) {
      fail_with_note(e, param->span, DIAG_REDEFINED, other->span, "the other one", "%s '%s' stands twice", what,
                     param->name);
      good = false;
    }
    map_put(&seen, param->name, (void *)param);
  }
  return good;
}

// ---- configuration ----

static const Ast *override_of(const Overrides *overrides, const char *name) {
  const Ast *found = NULL; /* the last -D wins */
  for (size_t i = 0; overrides && i < overrides->items.n; i++) {
    if (overrides->items.items[i].name == name) found = overrides->items.items[i].expression;
  }
  return found;
}

static Value config_value(Elaborator *e, const Layer *layer, const Ast *param, Value given, const Ast *place,
                          const Overrides *overrides, Scope *scope) {
  const Ast *override = override_of(overrides, param->name);
  if (param->children[0]) return fail_at(e, param->children[0]->span, DIAG_KIND, "a config value has no type");
  if (override) return eval(e, override, scope);
  if (given.kind != VALUE_MISSING) return given;
  if (param->children[1]) return eval(e, param->children[1], scope);
  return fail_with_note(e, place->span, DIAG_ARGUMENT, param->span, "the config value is declared here",
                        "%s needs a value for '%s'%s%s%s", layer->name, param->name, overrides ? ": -D " : "",
                        overrides ? param->name : "", overrides ? "=..." : "");
}

static uint32_t depth_of(Value v) {
  return v.kind == VALUE_TEMPLATE ? v.as.template->depth : 0;
}

Value configure(Elaborator *e, Layer *layer, const Arguments *arguments, const Ast *place, const Overrides *overrides) {
  const Ast *params = layer->ast->children[0];
  Value *values = ARENA_ARRAY(e->arena, Value, params->n_children);
  if (!bind_arguments(e, layer->name, params->n_children, parameter_names(e, params), arguments, values)) return POISON;
  Template *t = ARENA_NEW(e->arena, Template);
  bool good = true;
  *t = (Template){.place = place, .layer = layer, .config = scope_new(e->arena, layer->scope, NULL)};
  for (uint32_t i = 0; i < params->n_children; i++) {
    const Ast *param = params->children[i];
    Value v = config_value(e, layer, param, values[i], place, overrides, t->config);
    if (depth_of(v) >= t->depth) t->depth = depth_of(v) + 1;
    scope_put(e->arena, t->config, param->name, v)->span = param->span;
    good &= !is_poison(v);
  }
  if (t->depth > MAX_TEMPLATE_DEPTH)
    return fail(e, DIAG_LIMIT, "modules are nested deeper than %d", (int)MAX_TEMPLATE_DEPTH);
  return good ? (Value){VALUE_TEMPLATE, {.template = t}} : POISON;
}

// ---- making ----

static Value make_repetition(Elaborator *e, const Template *t, const char *path) {
  if (t->count > MAX_MODULES) return fail(e, DIAG_LIMIT, "the model has more than %d modules", (int)MAX_MODULES);
  Value *modules = ARENA_ARRAY(e->arena, Value, t->count);
  Repetition *r = ARENA_NEW(e->arena, Repetition);
  *r = (Repetition){.count = t->count, .modules = modules, .depth = t->depth};
  for (int64_t i = 0; i < t->count; i++) {
    modules[i] = make_module(e, t->inner, join_path(e, path, arena_printf(e->arena, "%lld", (long long)i)));
    if (is_poison(modules[i])) return POISON;
  }
  return (Value){VALUE_REPETITION, {.repetition = r}};
}

/* A module given as a config value gets that value's name, once however often it was given. */
static bool make_config(Elaborator *e, Module *m, const Scope *config) {
  for (size_t i = 0; i < config->bindings.n; i++) {
    const Binding *b = &config->bindings.items[i];
    Value v = b->value;
    if (v.kind == VALUE_TEMPLATE) {
      size_t first = 0;
      while (config->bindings.items[first].value.kind != VALUE_TEMPLATE ||
             config->bindings.items[first].value.as.template != v.as.template) {
        first++;
      }
      if (first < i) v = m->scope->bindings.items[first].value;
      else {
        v = make_module(e, v.as.template, join_path(e, m->path, b->name));
        map_put(&m->parts, b->name, ARENA_NEW(e->arena, PathPart));
      }
      if (is_poison(v)) return false;
    }
    scope_put(e->arena, m->scope, b->name, v)->span = b->span;
  }
  return true;
}

/* Whether the layer is among those whose text led here: it would make itself. */
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
  return fail_with_note(e, t->place->span, DIAG_RECURSION, layer->ast->span, "it is defined here",
                        "recursion: layer %s contains itself: %s -> %s%s", layer->name, layer->name, chain.text,
                        layer->name);
}

/* Evaluates config values and members; false if it could not be done at all. */
static bool fill_module(Elaborator *e, Module *m, const Template *t) {
  Module *saved = e->module;
  Layer *layer = t->layer;
  int errors = e->diag->n_errors;
  bool good = make_config(e, m, t->config);
  if (!good || !enter_call(e, t->place->span, arena_printf(e->arena, "layer %s", layer->name))) return false;
  e->module = m;
  run_members(e, layer->ast->children[1], m);
  e->module = saved;
  leave_call(e);
  m->is_faulty = errors != e->diag->n_errors;
  return !e->stopped;
}

Value make_module(Elaborator *e, const Template *t, const char *path) {
  if (e->stopped) return POISON;
  if (++e->n_modules > MAX_MODULES) return fail(e, DIAG_LIMIT, "the model has more than %d modules", (int)MAX_MODULES);
  if (!t->layer) return make_repetition(e, t, path);
  if (is_recursion(e, t->layer)) return report_recursion(e, t);
  Module *m = ARENA_NEW(e->arena, Module);
  m->layer = t->layer;
  m->maker = e->module;
  m->path = path;
  m->scope = scope_new(e->arena, t->layer->scope, m);
  m->parts = map_new(e->arena);
  m->weights = map_new(e->arena);
  m->inline_modules = map_new(e->arena);
  return fill_module(e, m, t) ? (Value){VALUE_MODULE, {.module = m}} : POISON;
}

// ---- modules made where they are applied ----

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

Value inline_module(Elaborator *e, const Template *t, Scope *scope) {
  Module *owner = scope->module;
  if (!owner) return fail(e, DIAG_KIND, "a module is applied here, but no layer holds it");
  MapEntry *entry = map_find(&owner->inline_modules, &t->place, sizeof t->place);
  if (!entry) {
    InlineModule *made = ARENA_NEW(e->arena, InlineModule);
    *made = (InlineModule){t, make_inline(e, t, owner)};
    map_put_n(&owner->inline_modules, &t->place, sizeof t->place, made);
    return made->module;
  }
  const InlineModule *made = entry->value;
  if (templates_equal(made->template, t)) return made->module;
  return fail(e, DIAG_REDEFINED, "this place made a module with another configuration before: name the two modules");
}
