/* In: a condition on sizes, and the text of its fault. Out: nothing if it always holds; the fault if it never does;
 * else a check of the graph that every run makes. */
#include <string.h>

#include "base/check.h"
#include "base/checked_size.h"
#include "elaborate/elaborate_eval.h"
#include "elaborate/report.h"

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
  else message_report(e, e->here, code, m, NO_SPAN, NULL);
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
  if (binding->value.kind == VALUE_SIZE) message_add_size(m, binding->value.as.size, false);
  else message_add_value(m, binding->value);
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

static void add_element(Message *m, Value v) {
  if (v.kind == VALUE_STRING) strbuf_add_quoted(&m->text, v.as.string);
  if (v.kind == VALUE_PRIMITIVE || v.kind == VALUE_FUNCTION) strbuf_add(&m->text, "the function ");
  if (v.kind != VALUE_STRING) message_add_value(m, v);
}

bool need_element(Elaborator *e, const Ast *place, Value x, const List *list) {
  enum { MAX_SHOWN = 24 };
  Message m = message_new(e);
  strbuf_add_n(&m.text, place->span.source->text + place->span.begin, place->span.end - place->span.begin);
  strbuf_add(&m.text, " must be one of [");
  for (uint32_t i = 0; i < list->n && i < MAX_SHOWN; i++) {
    if (i) strbuf_add(&m.text, ", ");
    add_element(&m, list->items[i]);
  }
  strbuf_add(&m.text, list->n > MAX_SHOWN ? ", ...], not " : "], not ");
  add_element(&m, x);
  return settle(e, value_bool(false), DIAG_REQUIRE, &m);
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
    message_add_value(&m, v);
  }
  return m.text.text;
}
