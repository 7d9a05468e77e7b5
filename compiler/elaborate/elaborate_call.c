/* Call: what happens between the parentheses of a call and the value that comes back.
 *
 * In: a callee (primitive, function, layer, module, list) and its arguments. Out: the value of the call. Arguments are
 * bound to parameters, the types of tensor parameters are matched and give names to sizes, and the body runs
 * (elaborate_statements.c). Refuses missing and unknown arguments, types that do not match, recursion, and functions
 * that end without a result. */
#include "elaborate/elaborate_call.h"

#include <string.h>

#include "base/check.h"
#include "elaborate/elaborate_eval.h"
#include "elaborate/elaborate_statements.h"
#include "elaborate/lists.h"
#include "elaborate/modules.h"
#include "elaborate/operators.h"
#include "elaborate/primitives.h"
#include "elaborate/ranges.h"
#include "elaborate/tensors.h"

// ---- arguments ----

/* All arguments are evaluated even after an error in one, so each reports its own faults. The parser has put those by
 * position first. */
bool eval_arguments(Elaborator *e, const Ast *call, Value first, Scope *scope, Arguments *arguments) {
  bool has_first = first.kind != VALUE_MISSING, good = !is_poison(first);
  *arguments = (Arguments){.items = ARENA_ARRAY(e->arena, Argument, call->n_children)};
  if (has_first) arguments->items[arguments->n++] = (Argument){NULL, first, call->span};
  for (uint32_t i = 1; i < call->n_children; i++) {
    const Ast *arg = call->children[i];
    Argument *argument = &arguments->items[arguments->n++];
    *argument = (Argument){arg->name, eval(e, arg->children[0], scope), arg->span};
    good &= !is_poison(argument->value);
  }
  uint32_t *n = &arguments->n_by_position;
  while (*n < arguments->n && !arguments->items[*n].name) ++*n;
  return good;
}

/* The single argument of a bare pipe, x -> f. */
void arguments_of_one(Elaborator *e, Value value, Arguments *arguments) {
  Argument *item = ARENA_NEW(e->arena, Argument);
  *item = (Argument){NULL, value, e->here};
  *arguments = (Arguments){1, 1, item};
}

const char *const *parameter_names(Elaborator *e, const Ast *params) {
  const char **names = ARENA_ARRAY(e->arena, const char *, params->n_children);
  for (uint32_t i = 0; i < params->n_children; i++) names[i] = params->children[i]->name;
  return names;
}

/* Suggests, in this order: what replaces an argument that PyTorch has, the nearest name, the names there are. */
static Value unknown_argument(Elaborator *e, const char *title, uint32_t n, const char *const *names,
                              const Argument *a) {
  const char *hint = torch_argument_hint(a->name);
  if (hint) return fail_at(e, a->span, DIAG_ARGUMENT, "%s has no argument '%s': %s", title, a->name, hint);
  return fail_at(e, a->span, DIAG_ARGUMENT, "%s has no argument '%s'%s", title, a->name,
                 nearest_or_all(e, a->name, "takes", names, n));
}

/* Names are interned, so they are compared as pointers. An argument beyond the parameters is reported once by its
 * number; the others are still bound, to find faults in their names. */
bool bind_arguments(Elaborator *e, const char *title, uint32_t n, const char *const *names, const Arguments *arguments,
                    Value *values) {
  bool good = true;
  for (uint32_t i = 0; i < n; i++) values[i] = i < arguments->n_by_position ? arguments->items[i].value : MISSING;
  if (arguments->n_by_position > n) {
    fail(e, DIAG_ARGUMENT, "%s takes %d argument%s, not %d", title, (int)n, n == 1 ? "" : "s",
         (int)arguments->n_by_position);
    good = false;
  }
  for (uint32_t k = arguments->n_by_position; k < arguments->n; k++) {
    const Argument *a = &arguments->items[k];
    uint32_t i = 0;
    while (i < n && names[i] != a->name) i++;
    if (i == n) unknown_argument(e, title, n, names, a);
    else if (values[i].kind != VALUE_MISSING) {
      fail_at(e, a->span, DIAG_ARGUMENT, "argument '%s' of %s is given twice", a->name, title);
    } else {
      values[i] = a->value;
      continue;
    }
    good = false;
  }
  return good;
}

// ---- primitives ----

/* A variadic primitive takes all arguments by position; its parameters (axis) can then be given by name only. */
static Value call_primitive(Elaborator *e, const Primitive *p, const Arguments *arguments, const Scope *scope) {
  PrimitiveCall call = {.primitive = p, .scope = scope};
  Arguments bound = *arguments;
  if (p->is_variadic) {
    Value *rest = ARENA_ARRAY(e->arena, Value, arguments->n_by_position);
    for (uint32_t i = 0; i < arguments->n_by_position; i++) rest[i] = arguments->items[i].value;
    call.rest = rest;
    call.n_rest = arguments->n_by_position;
    bound = (Arguments){0, arguments->n - arguments->n_by_position, arguments->items + arguments->n_by_position};
  }
  if (!bind_arguments(e, p->name, p->n_parameters, p->parameters, &bound, call.arguments)) return POISON;
  for (uint32_t i = 0; i < p->n_parameters; i++) {
    call.is_given[i] = call.arguments[i].kind != VALUE_MISSING;
    if (call.is_given[i]) continue;
    if (p->defaults[i].kind == VALUE_MISSING) {
      return fail(e, DIAG_ARGUMENT, "%s needs the argument '%s'", p->name, p->parameters[i]);
    }
    call.arguments[i] = p->defaults[i];
  }
  return p->function(e, &call);
}

// ---- types ----

/* Leaves the last dtype in *dtype after an error; no caller uses it then. */
bool dtype_of(Elaborator *e, const Ast *type, DType *dtype) {
  for (int i = 0; i < N_DTYPES; i++) {
    *dtype = (DType)i;
    if (strcmp(dtype_names[i], type->name) == 0) return true;
  }
  fail_at(e, type->span, DIAG_INPUT_DECLARATION, "'%s' is not a type; there are f32, i32 and bool", type->name);
  return false;
}

/* A name that nothing in the module or function defines. What a file or the language defines does not count: a layer
 * called `batch` elsewhere must not change what a type means. */
const char *free_size(const Ast *dim, const Scope *scope) {
  if (dim->kind != AST_NAME) return NULL;
  for (; scope && !scope->is_file; scope = scope->parent) {
    if (scope_find(scope, dim->name)) return NULL;
  }
  return dim->name;
}

/* One dimension of a typed parameter: its name is bound to the size that the tensor has, or its expression is
 * compared with it. A name in brackets (flag) is always an expression. */
static bool match_size(Elaborator *e, const char *name, Node *x, const Ast *dim, const Size *have, Scope *scope) {
  if (dim->kind == AST_RAGGED) {
    if (!scope->module || !scope->module->layer->is_model) {
      fail_at(e, dim->span, DIAG_INPUT_DECLARATION, "ragged is only for the inputs of a model");
      return false;
    }
    dim = dim->children[0];
  }
  const char *free = free_size(dim, scope);
  if (free && !dim->flag) {
    scope_put(e->arena, scope, free, value_size(have));
    show_value(e, dim, value_size(have));
    return true;
  }
  Value v = eval(e, dim, scope);
  if (is_poison(v)) return false;
  if (!is_size(v)) {
    fail_no_size(e, dim->span, "a size", v);
    return false;
  }
  return need_same(e, size_of(e->sizes, v), have, "argument '%s' has shape %T, its type says %V", name, x, v);
}

/* A typed parameter: dtype, rank and each dimension are checked, and sizes not seen before get their names. Messages
 * point at the type, since that is what the caller broke. */
static bool match_type(Elaborator *e, const Ast *param, Value v, Scope *scope) {
  const Ast *type = param->children[0];
  SrcSpan saved = e->here;
  DType dtype;
  e->here = type->span;
  const char *what = arena_printf(e->arena, "argument '%s'", param->name);
  Node *x = dtype_of(e, type, &dtype) ? tensor_of(e, v, 1u << dtype, what, "") : NULL;
  bool good = x != NULL;
  if (good && x->rank != type->n_children) {
    fail(e, DIAG_SHAPE, "argument '%s' has shape %T, its type has %d %s", param->name, x, (int)type->n_children,
         type->n_children == 1 ? "axis" : "axes");
    good = false;
  }
  for (uint32_t i = 0; good && i < type->n_children; i++) {
    good = match_size(e, param->name, x, type->children[i], x->dims[i], scope);
  }
  e->here = saved;
  return good;
}

// ---- functions ----

/* Reports every missing argument, not just the first. */
static bool has_all(Elaborator *e, const Function *f, const char *title, const Value *values, const Ast *place) {
  const Ast *params = f->ast->children[0];
  bool good = true;
  for (uint32_t i = 0; i < params->n_children; i++) {
    const Ast *param = params->children[i];
    if (values[i].kind != VALUE_MISSING || param->children[1]) continue;
    fail_with_note(e, place->span, DIAG_ARGUMENT, (OtherPlace){param->span, "the parameter is declared here"},
                   "%s needs the argument '%s'", title, param->name);
    good = false;
  }
  return good;
}

/* A size that is called like a parameter means the parameter. */
static bool is_parameter(const Ast *params, const char *name) {
  for (uint32_t i = 0; i < params->n_children; i++)
    if (strcmp(params->children[i]->name, name) == 0) return true;
  return false;
}

/* Binds sizes that stand alone in some type before any type is checked, so that a type may compute with a size that
 * only a later parameter binds: f(x: f32[2 * n], y: f32[n]). */
static void bind_free_sizes(Elaborator *e, const Ast *params, const Value *values, Scope *scope) {
  for (uint32_t i = 0; i < params->n_children; i++) {
    const Ast *type = params->children[i]->children[0];
    if (!type || values[i].kind != VALUE_TENSOR || values[i].as.tensor->rank != type->n_children) continue;
    for (uint32_t k = 0; k < type->n_children; k++) {
      const char *free = type->children[k]->flag ? NULL : free_size(type->children[k], scope);
      if (!free || is_parameter(params, free)) continue;
      show_value(e, type->children[k], value_size(values[i].as.tensor->dims[k]));
      scope_put(e->arena, scope, free, value_size(values[i].as.tensor->dims[k]));
    }
  }
}

/* A number where a tensor is declared is a tensor of the declared shape, as an input of the model that is left out is.
 * Sizes that no argument has bound leave the number as it is, for match_type to refuse. */
static Value default_of(Elaborator *e, const Ast *param, Scope *scope) {
  const Ast *type = param->children[0];
  Value v = eval(e, param->children[1], scope);
  const Size *dims[MAX_RANK];
  DType dtype;
  const bool is_whole = v.kind == VALUE_INTEGER || v.kind == VALUE_BOOL;
  if (!type || !type->n_children || type->n_children > MAX_RANK || !(is_number(v) || is_whole)) return v;
  if (!dtype_of(e, type, &dtype) || (dtype != DTYPE_F32 && (v.kind == VALUE_BOOL) != (dtype == DTYPE_BOOL))) return v;
  if (dtype == DTYPE_F32 ? !is_number(v) : !is_whole) return v;
  for (uint32_t i = 0; i < type->n_children; i++) {
    const Ast *dim = type->children[i]->kind == AST_RAGGED ? type->children[i]->children[0] : type->children[i];
    if (free_size(dim, scope)) return v;
    Value size = eval(e, dim, scope);
    if (!is_size(size)) return v;
    dims[i] = size_of(e->sizes, size);
  }
  if (dtype == DTYPE_F32) return made_value(e, build_full(build_here(e), number_of(v), type->n_children, dims));
  const int64_t number = v.kind == VALUE_BOOL ? v.as.boolean : v.as.integer;
  return made_value(e, build_filled(build_here(e), dtype, number, type->n_children, dims));
}

/* Defaults are evaluated in the scope of the function, after the parameters before them. `none` passes any type: it
 * is how an optional tensor is left out. */
static bool bind_parameters(Elaborator *e, const Function *f, const Value *values, Scope *scope) {
  const Ast *params = f->ast->children[0];
  bind_free_sizes(e, params, values, scope);
  for (uint32_t i = 0; i < params->n_children; i++) {
    const Ast *param = params->children[i];
    Value v = values[i].kind == VALUE_MISSING ? default_of(e, param, scope) : values[i];
    scope_put(e->arena, scope, param->name, v);
    show_value(e, param, v);
    if (is_poison(v)) return false;
    if (param->children[0] && v.kind != VALUE_NONE && !match_type(e, param, v, scope)) return false;
  }
  return true;
}

/* An expression body is its own `return`. */
static Result run_body(Elaborator *e, const Function *f, const char *title, Scope *scope) {
  const Ast *body = f->ast->children[1];
  if (body->kind != AST_BLOCK) return (Result){eval(e, body, scope), body};
  Result result = {MISSING, NULL};
  run_block(e, body, scope, &result);
  if (result.value.kind != VALUE_MISSING) return result;
  result.value = fail_at(e, f->ast->span, DIAG_RESULTS, "%s ends without return; every branch needs one", title);
  return (Result){result.value, NULL};
}

/* Names the cycle: every function between the two calls, outermost first. */
static void report_recursion(Elaborator *e, const Function *f, const char *title) {
  StrBuf chain = strbuf_new(e->arena);
  const Frame *frame = e->frame;
  strbuf_add(&chain, title);
  for (; frame && frame->name != title; frame = frame->caller) {
    char *inner = chain.text;
    chain = strbuf_new(e->arena);
    strbuf_printf(&chain, "%s -> %s", frame->name, inner);
  }
  fail_with_note(e, e->here, DIAG_RECURSION, (OtherPlace){f->ast->span, "it is defined here"},
                 "recursion: %s calls itself: %s -> %s", title, title, chain.text);
}

/* `active` finds recursion at its first repetition, long before MAX_CALL_DEPTH. A function belongs to one module, so
 * two modules of one layer do not count as recursion. The module of the function's scope becomes the current one:
 * names of weights and of inline modules follow the text, not the caller. A function of a file has none: what it
 * computes belongs to the module that calls it. */
Result call_function(Elaborator *e, Function *f, const char *title, const Arguments *arguments, const Ast *place) {
  const Ast *params = f->ast->children[0];
  Result result = {POISON, NULL};
  if (f->active) {
    report_recursion(e, f, title);
    return result;
  }
  Value *values = ARENA_ARRAY(e->arena, Value, params->n_children);
  Module *saved = e->module, *inside = f->scope && f->scope->module ? f->scope->module : saved;
  if (!bind_arguments(e, title, params->n_children, parameter_names(e, params), arguments, values) ||
      !has_all(e, f, title, values, place) || !enter_call(e, place->span, title, inside)) {
    return result;
  }
  SrcSpan here = e->here;
  uint32_t n_loops = e->n_loops;
  Scope *scope = scope_new(e->arena, f->scope, NULL);
  scope_reserve(e->arena, scope, params->n_children);
  e->module = inside;
  e->n_loops = 0;
  f->active = true;
  if (bind_parameters(e, f, values, scope)) result = run_body(e, f, title, scope);
  f->active = false;
  e->n_loops = n_loops;
  e->module = saved;
  e->here = here;
  leave_call(e);
  return result;
}

// ---- apply ----

/* A config value called `positions` hides the function: said where what is called has the name of something outside of
 * the layer that could have been meant. */
static Value fail_call(Elaborator *e, Value f, const Ast *place, const Scope *scope) {
  const Ast *callee = place->kind == AST_CALL ? place->children[0] : place;
  for (; scope && callee->kind == AST_NAME; scope = scope->parent) {
    const Binding *binding = scope_find(scope, callee->name);
    if (!binding || (binding->value.kind != VALUE_PRIMITIVE && binding->value.kind != VALUE_LAYER)) continue;
    return fail(e, DIAG_KIND, "'%s' is %K here, which hides the %s of that name; give it another name", callee->name, f,
                binding->value.kind == VALUE_LAYER ? "layer" : "function");
  }
  return fail(e, DIAG_KIND, "%K cannot be called; functions, layers and modules can", f);
}

/* A template is a module without a name: applying it makes the module on the spot. A module that `require` refused
 * has said why, and one with a faulty member may have lost its forward to that fault; both are poison. */
Value apply(Elaborator *e, Value f, const Arguments *arguments, const Ast *place, Scope *scope) {
  switch (f.kind) {
    case VALUE_POISON: return POISON;
    case VALUE_PRIMITIVE: return call_primitive(e, f.as.primitive, arguments, scope);
    case VALUE_FUNCTION: return call_function(e, f.as.function, f.as.function->name, arguments, place).value;
    case VALUE_LAYER: return configure(e, f.as.layer, arguments, place, NULL);
    case VALUE_TEMPLATE: return apply(e, inline_module(e, f.as.template, scope), arguments, place, scope);
    case VALUE_LIST: return call_list(e, f.as.list, arguments, place, scope);
    case VALUE_MODULE: {
      Module *m = f.as.module;
      if (m->is_refused || (!m->forward && m->is_faulty)) return POISON;
      if (!m->forward) return fail(e, DIAG_KIND, "%s has no forward, so it cannot be called", m->layer->name);
      return call_function(e, m->forward, m->layer->name, arguments, place).value;
    }
    case VALUE_STRING: return fail(e, DIAG_KIND, "%K cannot be called; write the name of a function without quotes", f);
    default: return fail_call(e, f, place, scope);
  }
}
