/* Report: the text of a fault, the checks that every run makes, and how deep calls may nest.
 *
 * In: a format of elaborator.h with its values, or a condition. Out: a message of the Diag with notes about the
 * tensors it shows and the calls that led there, or, where only a run can decide, a check of the graph whose text is
 * filled in with the sizes of that run. The same fault in the same place of the user's files is reported once. */
#include "elaborate/elaborator.h"

#include <stdarg.h>
#include <string.h>

#include "base/check.h"
#include "base/checked_size.h"
#include "elaborate/elaborate_eval.h"
#include "elaborate/primitives.h"

// ---- the text of a message ----

/* A message with more shapes than this shows the rest without a note. */
enum { MAX_CONCERNED = 4 };

/* Text, and for a check of the run the sizes that the run fills in. */
typedef struct Message {
  Arena *arena;
  SizeTable *sizes;
  VEC(CheckPart) parts; /* each ends with a size */
  StrBuf text;          /* after the last part */
  Node *concerned[MAX_CONCERNED]; /* tensors whose shapes are shown: a note says where they were declared */
  uint32_t n_concerned;
} Message;

/* Appends a size: a constant as text, another one as a part that is filled in later. `named`: a run prints "time =
 * 7", else "7". */
static void add_size(Message *m, const Size *size, bool named) {
  int64_t value;
  if (size_is_const(size, &value)) {
    strbuf_printf(&m->text, "%lld", (long long)value);
    return;
  }
  vec_push(m->arena, &m->parts, (CheckPart){m->text.text, size, named});
  m->text = strbuf_new(m->arena);
}

static void add_sizes(Message *m, uint32_t n, const Size *const *sizes) {
  strbuf_add_char(&m->text, '[');
  for (uint32_t i = 0; i < n; i++) {
    if (i) strbuf_add(&m->text, ", ");
    add_size(m, sizes[i], true);
  }
  strbuf_add_char(&m->text, ']');
}

/* A tensor whose shape is shown is remembered, so that a note can say where it was declared. */
static void add_shape(Message *m, Node *node) {
  add_sizes(m, node->rank, node->dims);
  if (m->n_concerned < MAX_CONCERNED) m->concerned[m->n_concerned++] = node;
}

/* What a value is; for a tensor also its type and shape. */
static void add_kind(Message *m, Value v) {
  strbuf_add(&m->text, value_kind_text(v.kind));
  if (v.kind == VALUE_LIST) strbuf_printf(&m->text, " of %u", v.as.list->n);
  if (v.kind != VALUE_TENSOR) return;
  strbuf_printf(&m->text, " %s", dtype_names[v.as.tensor->dtype]);
  add_shape(m, v.as.tensor);
}

/* A longer list shows its beginning. */
enum { MAX_ELEMENTS_SHOWN = 16 };

static void add_value(Message *m, Value v);

static void add_list(Message *m, const List *list) {
  strbuf_add_char(&m->text, '[');
  for (uint32_t i = 0; i < list->n && i <= MAX_ELEMENTS_SHOWN; i++) {
    if (i) strbuf_add(&m->text, ", ");
    if (i < MAX_ELEMENTS_SHOWN) add_value(m, list->items[i]);
    else strbuf_add(&m->text, "...");
  }
  strbuf_add_char(&m->text, ']');
}

/* What a value says. Kinds without a short text, such as modules, are described. */
static void add_value(Message *m, Value v) {
  switch (v.kind) {
    case VALUE_BOOL: strbuf_add(&m->text, v.as.boolean ? "true" : "false"); break;
    case VALUE_INTEGER: strbuf_printf(&m->text, "%lld", (long long)v.as.integer); break;
    case VALUE_NUMBER: strbuf_printf(&m->text, "%g", v.as.number); break;
    case VALUE_SIZE: add_size(m, v.as.size, true); break;
    case VALUE_STRING: strbuf_add(&m->text, v.as.string); break;
    case VALUE_LIST: add_list(m, v.as.list); break;
    case VALUE_PRIMITIVE: strbuf_add(&m->text, v.as.primitive->name); break;
    case VALUE_FUNCTION: strbuf_add(&m->text, v.as.function->name); break;
    case VALUE_LAYER: strbuf_add(&m->text, v.as.layer->name); break;
    default: add_kind(m, v);
  }
}

static void add_shapes(Message *m, uint32_t n, Node *const *nodes) {
  for (uint32_t i = 0; i < n; i++) {
    if (i) strbuf_add(&m->text, " and ");
    add_shape(m, nodes[i]);
  }
}

/* One directive; the list of them is in elaborator.h. `args` is passed by address because va_arg on a copy would not
 * advance it. */
static void add_argument(Message *m, char directive, va_list *args) {
  switch (directive) {
    case 's': strbuf_add(&m->text, va_arg(*args, const char *)); break;
    case 'd': strbuf_printf(&m->text, "%d", va_arg(*args, int)); break;
    case 'D': strbuf_printf(&m->text, "%lld", (long long)va_arg(*args, int64_t)); break;
    case 'Z': add_size(m, va_arg(*args, const Size *), true); break;
    case 'V': add_value(m, va_arg(*args, Value)); break;
    case 'K': add_kind(m, va_arg(*args, Value)); break;
    case 'T': add_shape(m, va_arg(*args, Node *)); break;
    case 'J': {
      uint32_t n = va_arg(*args, uint32_t);
      add_shapes(m, n, va_arg(*args, Node *const *));
      break;
    }
    case 'L': {
      const SizeList *list = va_arg(*args, const SizeList *);
      add_sizes(m, list->n, list->items);
      break;
    }
    default: UNREACHABLE("%%%c in the format of a message", directive);
  }
}

static Message message_new(Elaborator *e) {
  return (Message){.arena = e->arena, .sizes = e->sizes, .text = strbuf_new(e->arena)};
}

static Message message_format(Elaborator *e, const char *format, va_list *args) {
  Message m = message_new(e);
  for (const char *c = format; *c; c++) {
    if (*c != '%') strbuf_add_char(&m.text, *c);
    else add_argument(&m, *++c, args);
  }
  return m;
}

/* The whole text, with sizes as polynomials: for messages of the compiler itself. */
static const char *message_text(const Message *m) {
  StrBuf out = strbuf_new(m->arena);
  for (size_t i = 0; i < m->parts.n; i++) {
    strbuf_add(&out, m->parts.items[i].text);
    size_print(&out, m->sizes, m->parts.items[i].size);
  }
  strbuf_add(&out, m->text.text);
  return out.text;
}

// ---- reporting ----

/* A fault in a layer is met again in every module of it; span is in the user's files. */
static bool is_new(Elaborator *e, SrcSpan span, DiagCode code, const char *text) {
  /* One call may lack several arguments; else what is wrong in one place is one fault. */
  const char *key = arena_printf(e->arena, "%s:%u:%d:%s", span.source ? span.source->path : "", span.begin, (int)code,
                                 code == DIAG_ARGUMENT ? text : "");
  if (map_has(&e->reported, key)) return false;
  map_put(&e->reported, key, NULL);
  return true;
}

/* Notes where the weights and inputs among the tensors shown were declared, each once and not if the message points
 * there anyway. */
static void note_declarations(Elaborator *e, const Message *m, SrcSpan at) {
  for (uint32_t i = 0; i < m->n_concerned; i++) {
    const Node *node = m->concerned[i];
    if (node->op != OP_WEIGHT && node->op != OP_INPUT) continue;
    const SrcSpan place = origin_place(&node->origin);
    bool seen = place.source == at.source && place.begin == at.begin;
    for (uint32_t k = 0; k < i; k++) seen |= m->concerned[k] == node;
    if (seen) continue;
    StrBuf shape = strbuf_new(e->arena);
    node_print_shape(&shape, e->sizes, node);
    diag_note(e->diag, place, "%s '%s' is declared %s here", node->op == OP_WEIGHT ? "weight" : "input",
              node->attr.name, shape.text);
  }
}

/* Adds the message unless its fault is known. After a limit nothing more is evaluated: every further step would run
 * into it again. */
static Value report(Elaborator *e, SrcSpan span, DiagCode code, const Message *m, SrcSpan other, const char *note) {
  const char *text = message_text(m);
  const Origin origin = {.span = span, .frame = e->frame};
  const SrcSpan place = origin_place(&origin);
  if (e->stopped || !is_new(e, place, code, text)) return POISON;
  diag_error(e->diag, place, code, "%s", text);
  if (note) diag_note(e->diag, other, "%s", note);
  note_declarations(e, m, place);
  origin_note_calls(e->diag, &origin);
  e->stopped = e->diag->n_errors > DIAG_MAX_ERRORS || code == DIAG_LIMIT;
  return POISON;
}

Value fail(Elaborator *e, DiagCode code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  Message m = message_format(e, format, &args);
  va_end(args);
  return report(e, e->here, code, &m, NO_SPAN, NULL);
}

Value fail_at(Elaborator *e, SrcSpan span, DiagCode code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  Message m = message_format(e, format, &args);
  va_end(args);
  return report(e, span, code, &m, NO_SPAN, NULL);
}

Value fail_with_note(Elaborator *e, SrcSpan span, DiagCode code, SrcSpan other, const char *note, const char *format,
                     ...) {
  va_list args;
  va_start(args, format);
  Message m = message_format(e, format, &args);
  va_end(args);
  return report(e, span, code, &m, other, note);
}

const char *did_you_mean(Elaborator *e, const char *nearest) {
  return nearest ? arena_printf(e->arena, ", did you mean '%s'?", nearest) : "";
}

const char *listed(Elaborator *e, const char *const *words, size_t n) {
  StrBuf text = strbuf_new(e->arena);
  for (size_t i = 0; i < n; i++) strbuf_printf(&text, "%s%s", i ? ", " : "", words[i]);
  return text.text;
}

const char *nearest_or_all(Elaborator *e, const char *name, const char *verb, const char *const *words, size_t n) {
  const char *nearest = diag_nearest(name, words, n);
  if (nearest) return did_you_mean(e, nearest);
  return arena_printf(e->arena, "; it %s %s", verb, n ? listed(e, words, n) : "none");
}

// ---- conditions ----

/* A quotient in the term, that is, its last factor if that is one; NULL: there is none. */
static const SizeFloor *quotient_in(const SizeTable *sizes, const SizeTerm *term) {
  uint8_t last = term->degree ? term->symbols[term->degree - 1] : 0;
  return last < SIZE_MAX_SYMBOLS ? NULL : &sizes->floors[last - SIZE_MAX_SYMBOLS];
}

/* A bound of size * k, where k divides the quotient in the term: p // k is at most p / k, which a negative term needs,
 * and at least (p - k + 1) / k. What stays behind, the other factors of the term, is not negative. NULL: too large. */
static const Size *without_quotient(SizeTable *sizes, const Size *size, const SizeTerm *term) {
  const SizeFloor *quotient = quotient_in(sizes, term);
  const Size *k = size_const(sizes, quotient->divisor), *product = size_const(sizes, term->coefficient);
  for (uint8_t i = 0; i + 1 < term->degree && product; i++) {
    uint8_t symbol = term->symbols[i];
    const Size *factor = symbol < SIZE_MAX_SYMBOLS ? size_symbol(sizes, sizes->symbols[symbol]) : NULL;
    product = factor ? size_mul(sizes, product, factor) : NULL;
  }
  const Size *bound = quotient->numerator;
  if (term->coefficient > 0) bound = size_sub(sizes, bound, size_const(sizes, quotient->divisor - 1));
  const Size *whole = size_floor_div(sizes, quotient->numerator, quotient->divisor);
  const Size *taken = product ? size_mul(sizes, product, whole) : NULL;
  const Size *rest = taken ? size_sub(sizes, size, taken) : NULL;
  const Size *scaled = rest ? size_mul(sizes, rest, k) : NULL;
  const Size *added = scaled && bound ? size_mul(sizes, product, bound) : NULL;
  return added ? size_add(sizes, scaled, added) : NULL;
}

/* Whether a size is never negative, as far as its coefficients tell: sizes and quotients are never negative, and
 * quotients are followed by their bounds, of negative terms first. */
static bool is_never_negative(SizeTable *sizes, const Size *size) {
  int64_t scale = 1; /* by which the size was multiplied: being whole, it is not negative above -1 */
  for (int round = 0; size && round < 16; round++) {
    const SizeTerm *worst = NULL;
    bool is_negative = false;
    for (uint32_t i = 0; i < size->n_terms; i++) {
      const SizeTerm *term = &size->terms[i];
      is_negative |= term->coefficient < (term->degree ? 0 : 1 - scale);
      bool is_worse = !worst || (worst->coefficient > 0 && term->coefficient < 0);
      if (quotient_in(sizes, term) && is_worse) worst = term;
    }
    if (!is_negative || !worst) return !is_negative;
    if (!checked_mul(scale, quotient_in(sizes, worst)->divisor, &scale)) return false;
    size = without_quotient(sizes, size, worst);
  }
  return false;
}

/* Whether a comparison holds for all sizes: `0 <= time` and `time // 2 <= time` need no check of a run. */
static bool always_holds(Elaborator *e, const Cond *c) {
  if (c->kind != COND_COMPARE || (c->op != OP_LE && c->op != OP_GE)) return false;
  return is_never_negative(
      e->sizes, c->op == OP_LE ? size_sub(e->sizes, c->right, c->left) : size_sub(e->sizes, c->left, c->right));
}

/* Counts the comparisons of a condition down; false if there are more than `*budget`. The budget also bounds the
 * recursion. */
static bool fits(const Cond *c, uint32_t *budget) {
  if (!*budget) return false;
  (*budget)--;
  if (c->kind == COND_COMPARE) return true;
  return fits(c->a, budget) && (!c->b || fits(c->b, budget));
}

/* Whether the graph checks this comparison already; it is remembered if not. Every use of two sizes that must be
 * equal asks again, hence the memory. */
static bool is_checked(Elaborator *e, const Cond *c) {
  if (c->kind != COND_COMPARE) return false;
  struct { const Size *left, *right; uint64_t op; } key = {c->left, c->right, c->op};
  if (map_find(&e->checked, &key, sizeof key)) return true;
  map_put_n(&e->checked, &key, sizeof key, NULL);
  return false;
}

/* A requirement of what is checked already, because an operation before it needs it, says that it is meant. */
static void note_stated(Elaborator *e, Value condition) {
  if (condition.kind != VALUE_CONDITION || condition.as.condition->kind != COND_COMPARE) return;
  const Cond *c = condition.as.condition;
  for (size_t i = 0; i < e->graph->checks.n; i++) {
    Check *check = &e->graph->checks.items[i];
    const Cond *known = check->condition;
    if (known->kind == COND_COMPARE && known->op == c->op && known->left == c->left && known->right == c->right)
      check->is_stated = true;
  }
}

/* Adds a check to the graph. What follows the last size becomes a part without a size. */
static bool add_check(Elaborator *e, const Cond *condition, DiagCode code, Message *m) {
  uint32_t budget = MAX_CONDITION;
  if (!fits(condition, &budget) || e->graph->checks.n >= MAX_CHECKS) {
    fail(e, DIAG_LIMIT, "more than %d conditions on run-time sizes, or one with more than %d comparisons",
         (int)MAX_CHECKS, (int)MAX_CONDITION);
    return false;
  }
  if (m->text.length) vec_push(m->arena, &m->parts, (CheckPart){m->text.text, NULL, false});
  Check check = {.condition = condition, .origin = origin_of(e), .is_stated = code == DIAG_REQUIRE};
  for (size_t i = 0; i < m->parts.n; i++) vec_push(m->arena, &check.message, m->parts.items[i]);
  vec_push(e->graph->arena, &e->graph->checks, check);
  return true;
}

/* What is known without a message, so that none is formatted in the common case; `*result` is set then. */
static bool is_settled(Elaborator *e, Value condition, bool *result) {
  *result = condition.kind == VALUE_BOOL && condition.as.boolean;
  if (*result) return true;
  if (condition.kind != VALUE_CONDITION) return false;
  return *result = always_holds(e, condition.as.condition) || is_checked(e, condition.as.condition);
}

/* The rest of `need`: the condition is false, poison, or for the run to decide. */
static bool settle(Elaborator *e, Value condition, DiagCode code, Message *m) {
  if (condition.kind == VALUE_CONDITION) return add_check(e, condition.as.condition, code, m);
  if (is_poison(condition)) fail(e, DIAG_LIMIT, "a size is too large to be computed");
  else report(e, e->here, code, m, NO_SPAN, NULL);
  return false;
}

bool need(Elaborator *e, Value condition, DiagCode code, const char *format, ...) {
  bool result;
  if (is_settled(e, condition, &result)) return result;
  va_list args;
  va_start(args, format);
  Message m = message_format(e, format, &args);
  va_end(args);
  return settle(e, condition, code, &m);
}

/* Sizes are unique, so equal pointers settle most calls. NULL is a size that was too large. */
bool need_same(Elaborator *e, const Size *a, const Size *b, const char *format, ...) {
  if (a && a == b) return true;
  bool result;
  Value condition = a && b ? value_compare(e->arena, e->sizes, OP_EQ, a, b) : POISON;
  if (is_settled(e, condition, &result)) return result;
  va_list args;
  va_start(args, format);
  Message m = message_format(e, format, &args);
  va_end(args);
  return settle(e, condition, DIAG_SHAPE, &m);
}

// ---- require ----

static bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

/* The length of "{name}" at `text`, 0 if there is none: other braces stand for themselves. */
static size_t placeholder(const char *text) {
  if (text[0] != '{' || !is_name_start(text[1])) return 0;
  size_t n = 2;
  while (is_name_start(text[n]) || (text[n] >= '0' && text[n] <= '9')) n++;
  return text[n] == '}' ? n + 1 : 0;
}

/* Puts in the value of a name. A run-time size stands without its name, because the text of the model says what it
 * is. */
static bool fill(Elaborator *e, Message *m, const char *name, const Scope *scope) {
  Binding *binding = scope_search(scope, name);
  if (!binding) {
    const char *nearest = scope_nearest(e->arena, scope, name);
    fail(e, DIAG_UNKNOWN_NAME, "unknown name '%s' in the text of require%s", name, did_you_mean(e, nearest));
    return false;
  }
  if (is_poison(binding->value)) return false;
  if (binding->value.kind == VALUE_SIZE) add_size(m, binding->value.as.size, false);
  else add_value(m, binding->value);
  return true;
}

static bool fill_text(Elaborator *e, Message *m, const char *text, const Scope *scope) {
  for (size_t n; *text; text += n) {
    n = placeholder(text);
    if (n && !fill(e, m, map_intern(e->names, text + 1, n - 2), scope)) return false;
    if (n) continue;
    strbuf_add_char(&m->text, *text);
    n = 1;
  }
  return true;
}

/* The text is read before the condition is looked at, so an unknown name in it is found even if the requirement
 * holds. */
bool need_required(Elaborator *e, Value condition, const char *text, const Scope *scope) {
  Message m = message_new(e);
  if (!fill_text(e, &m, text, scope)) return false;
  bool result;
  if (!is_settled(e, condition, &result)) return settle(e, condition, DIAG_REQUIRE, &m);
  note_stated(e, condition);
  return result;
}

const char *filled_text(Elaborator *e, const char *text, const Scope *scope) {
  Message m = message_new(e);
  if (!fill_text(e, &m, text, scope)) return NULL;
  if (!m.parts.n) return m.text.text ? m.text.text : "";
  fail(e, DIAG_KIND, "the text of a requirement of values cannot have a run-time size in it");
  return NULL;
}

/* A path is known when compiling: an integer or a text goes in, nothing else. */
const char *filled_path(Elaborator *e, const char *text, const Scope *scope) {
  Message m = message_new(e);
  for (size_t n; *text; text += n) {
    n = placeholder(text);
    if (!n) {
      strbuf_add_char(&m.text, *text);
      n = 1;
      continue;
    }
    const char *name = map_intern(e->names, text + 1, n - 2);
    Value v = name_value(e, name, scope);
    if (is_poison(v)) return NULL;
    if (v.kind != VALUE_INTEGER && v.kind != VALUE_STRING) {
      fail(e, DIAG_KIND, "'%s' in a path must be an integer or a text, not %K", name, v);
      return NULL;
    }
    add_value(&m, v);
  }
  return m.text.text;
}

// ---- calls ----

/* Bounds the time of elaboration: nested repetitions multiply, so a short text can ask for any amount of work. */
bool count_step(Elaborator *e) {
  if (e->stopped) return false;
  if (++e->n_steps <= MAX_STEPS) return true;
  fail(e, DIAG_LIMIT, "the model takes more than %d steps to elaborate", (int)MAX_STEPS);
  return false;
}

/* Frames live in the arena: origins of nodes point to them after the call has ended. */
bool enter_call(Elaborator *e, SrcSpan span, const char *name, const Module *module) {
  if (e->stopped) return false;
  if (e->call_depth >= MAX_CALL_DEPTH) {
    fail(e, DIAG_LIMIT, "calls are nested deeper than %d", (int)MAX_CALL_DEPTH);
    return false;
  }
  e->call_depth++;
  Frame *frame = ARENA_NEW(e->arena, Frame);
  *frame = (Frame){e->frame, span, name, module ? module->shown : ""};
  e->frame = frame;
  return true;
}

/* Back to the frame of the caller. */
void leave_call(Elaborator *e) {
  e->call_depth--;
  e->frame = e->frame->caller;
}

Origin origin_of(const Elaborator *e) {
  return (Origin){.span = e->here, .path = e->module ? e->module->shown : "", .frame = e->frame};
}

// ---- names of PyTorch ----

typedef struct TorchName {
  const char *name, *hint;
} TorchName;

static const TorchName torch_names[] = {
#define TORCH_NAME(name, hint) {name, hint},
#define TORCH_ARGUMENT(name, hint)
#include "elaborate/torch_names.def"
    {NULL, NULL},
};

static const TorchName torch_arguments[] = {
#define TORCH_NAME(name, hint)
#define TORCH_ARGUMENT(name, hint) {name, hint},
#include "elaborate/torch_names.def"
    {NULL, NULL},
};

/* The row of a name in a table that ends with NULL. */
static const char *hint_of(const TorchName *row, const char *name) {
  while (row->name && strcmp(row->name, name) != 0) row++;
  return row->hint;
}

const char *torch_name_hint(const char *name) { return hint_of(torch_names, name); }

const char *torch_argument_hint(const char *name) { return hint_of(torch_arguments, name); }
