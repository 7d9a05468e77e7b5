/* Report: faults, checks of every run, the text of `require`, and how deep calls nest.
 *
 * A fault is reported once: with the tensors it is about, if they were declared, and the calls that led there. */
#include "elaborate/message.h"

// ---- reporting ----

/* A fault in a layer is met again in every module of it. Faults in the standard layers are told apart by the place in
 * the user's files that led there. */
static bool is_new(Elaborator *e, SrcSpan span, DiagCode code, const char *text) {
  const Frame *frame = e->frame;
  while (frame && span.source == e->std_source) {
    span = frame->span;
    frame = frame->caller;
  }
  /* One call may lack several arguments; else what is wrong in one place is one fault. */
  const char *key = arena_printf(e->arena, "%s:%u:%d:%s", span.source ? span.source->path : "", span.begin, (int)code,
                                 code == DIAG_ARGUMENT ? text : "");
  if (map_has(&e->reported, key)) return false;
  map_put(&e->reported, key, NULL);
  return true;
}

static void note_declarations(Elaborator *e, const Message *m, SrcSpan span) {
  for (uint32_t i = 0; i < m->n_concerned; i++) {
    const Node *node = m->concerned[i];
    if (node->op != OP_WEIGHT && node->op != OP_INPUT) continue;
    bool seen = node->origin.span.source == span.source && node->origin.span.begin == span.begin;
    for (uint32_t k = 0; k < i; k++) seen |= m->concerned[k] == node;
    if (seen) continue;
    StrBuf shape = strbuf_new(e->arena);
    node_print_shape(&shape, e->sizes, node);
    diag_note(e->diag, node->origin.span, "%s '%s' is declared %s here", node->op == OP_WEIGHT ? "weight" : "input",
              node->attr.name, shape.text);
  }
}

static Value report(Elaborator *e, SrcSpan span, DiagCode code, const Message *m, SrcSpan other, const char *note) {
  const char *text = message_text(m);
  if (e->stopped || !is_new(e, span, code, text)) return POISON;
  diag_error(e->diag, span, code, "%s", text);
  if (note) diag_note(e->diag, other, "%s", note);
  note_declarations(e, m, span);
  uint32_t n = 0; /* the outermost frame is the model itself */
  for (const Frame *frame = e->frame; frame && frame->caller && n < MAX_NOTES; frame = frame->caller, n++) {
    diag_note(e->diag, frame->span, "in %s, called here", frame->name);
  }
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

// ---- conditions ----

/* Sizes are never negative: `0 <= time` always holds. */
static bool always_holds(Elaborator *e, const Cond *c) {
  if (c->kind != COND_COMPARE || (c->op != OP_LE && c->op != OP_GE)) return false;
  const Size *difference =
      c->op == OP_LE ? size_sub(e->sizes, c->right, c->left) : size_sub(e->sizes, c->left, c->right);
  for (uint32_t i = 0; difference && i < difference->n_terms; i++) {
    if (difference->terms[i].coefficient < 0) return false;
  }
  return difference != NULL;
}

/* False if there are more than `*budget` comparisons. */
static bool fits(const Cond *c, uint32_t *budget) {
  if (!*budget) return false;
  (*budget)--;
  if (c->kind == COND_COMPARE) return true;
  return fits(c->a, budget) && (!c->b || fits(c->b, budget));
}

/* Whether the check stands in the graph already; remembered if it does not. */
static bool is_checked(Elaborator *e, const Cond *c) {
  if (c->kind != COND_COMPARE) return false;
  struct { const Size *left, *right; uint64_t op; } key = {c->left, c->right, c->op};
  if (map_find(&e->checked, &key, sizeof key)) return true;
  map_put_n(&e->checked, &key, sizeof key, NULL);
  return false;
}

static bool add_check(Elaborator *e, const Cond *condition, Message *m) {
  uint32_t budget = MAX_CONDITION;
  if (!fits(condition, &budget) || e->graph->checks.n >= MAX_CHECKS) {
    fail(e, DIAG_LIMIT, "too many conditions on run-time sizes");
    return false;
  }
  if (m->text.length) vec_push(m->arena, &m->parts, (CheckPart){m->text.text, NULL, false});
  Check check = {.condition = condition, .origin = origin_of(e)};
  for (size_t i = 0; i < m->parts.n; i++) vec_push(m->arena, &check.message, m->parts.items[i]);
  vec_push(e->graph->arena, &e->graph->checks, check);
  return true;
}

/* What is known without a message: `*result` is set. */
static bool is_settled(Elaborator *e, Value condition, bool *result) {
  *result = condition.kind == VALUE_BOOL && condition.as.boolean;
  if (*result) return true;
  if (condition.kind != VALUE_CONDITION) return false;
  return *result = always_holds(e, condition.as.condition) || is_checked(e, condition.as.condition);
}

static bool settle(Elaborator *e, Value condition, DiagCode code, Message *m) {
  if (condition.kind == VALUE_CONDITION) return add_check(e, condition.as.condition, m);
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

/* The length of "{name}" at `text`, or 0. */
static size_t placeholder(const char *text) {
  if (text[0] != '{' || !is_name_start(text[1])) return 0;
  size_t n = 2;
  while (is_name_start(text[n]) || (text[n] >= '0' && text[n] <= '9')) n++;
  return text[n] == '}' ? n + 1 : 0;
}

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

bool need_required(Elaborator *e, Value condition, const char *text, const Scope *scope) {
  Message m = message_new(e);
  for (size_t n; *text; text += n) {
    n = placeholder(text);
    if (n && !fill(e, &m, map_intern(e->names, text + 1, n - 2), scope)) return false;
    if (n) continue;
    strbuf_add_char(&m.text, *text);
    n = 1;
  }
  bool result;
  if (is_settled(e, condition, &result)) return result;
  return settle(e, condition, DIAG_REQUIRE, &m);
}

// ---- calls ----

bool count_step(Elaborator *e) {
  if (e->stopped) return false;
  if (++e->n_steps <= MAX_STEPS) return true;
  fail(e, DIAG_LIMIT, "the model takes more than %d steps to elaborate", (int)MAX_STEPS);
  return false;
}

bool enter_call(Elaborator *e, SrcSpan span, const char *name) {
  if (e->stopped) return false;
  if (e->call_depth >= MAX_CALL_DEPTH) {
    fail(e, DIAG_LIMIT, "calls are nested deeper than %d", (int)MAX_CALL_DEPTH);
    return false;
  }
  e->call_depth++;
  Frame *frame = ARENA_NEW(e->arena, Frame);
  *frame = (Frame){e->frame, span, name};
  e->frame = frame;
  return true;
}

void leave_call(Elaborator *e) {
  e->call_depth--;
  e->frame = e->frame->caller;
}

Origin origin_of(const Elaborator *e) {
  return (Origin){.span = e->here, .path = e->module ? e->module->path : "", .frame = e->frame};
}
