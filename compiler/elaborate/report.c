/* Report: the text of a fault, the checks that every run makes, and how deep calls may nest.
 *
 * In: a format of elaborator.h with its values, or a condition. Out: a message of the Diag with notes about the
 * tensors it shows and the calls that led there, or, where only a run can decide, a check of the graph whose text is
 * filled in with the sizes of that run. The same fault in the same place of the user's files is reported once. */
#include "elaborate/elaborator.h"

#include <string.h>

#include "base/check.h"
#include "base/checked_size.h"
#include "elaborate/elaborate_eval.h"
#include "elaborate/report.h"
#include "elaborate/primitives.h"

// ---- the text of a message ----

/* Appends a size: a constant as text, another one as a part that is filled in later. `named`: a run prints "time =
 * 7", else "7". */
void message_add_size(Message *m, const Size *size, bool named) {
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
    message_add_size(m, sizes[i], true);
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

void message_add_value(Message *m, Value v);

static void add_list(Message *m, const List *list) {
  strbuf_add_char(&m->text, '[');
  for (uint32_t i = 0; i < list->n && i <= MAX_ELEMENTS_SHOWN; i++) {
    if (i) strbuf_add(&m->text, ", ");
    if (i < MAX_ELEMENTS_SHOWN) message_add_value(m, list->items[i]);
    else strbuf_add(&m->text, "...");
  }
  strbuf_add_char(&m->text, ']');
}

/* What a value says. Kinds without a short text, such as modules, are described. */
void message_add_value(Message *m, Value v) {
  switch (v.kind) {
    case VALUE_BOOL: strbuf_add(&m->text, v.as.boolean ? "true" : "false"); break;
    case VALUE_INTEGER: strbuf_printf(&m->text, "%lld", (long long)v.as.integer); break;
    case VALUE_NUMBER: strbuf_printf(&m->text, "%g", v.as.number); break;
    case VALUE_SIZE: message_add_size(m, v.as.size, true); break;
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
    case 'Z': message_add_size(m, va_arg(*args, const Size *), true); break;
    case 'V': message_add_value(m, va_arg(*args, Value)); break;
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

Message message_new(Elaborator *e) {
  return (Message){.arena = e->arena, .sizes = e->sizes, .text = strbuf_new(e->arena)};
}

Message message_format(Elaborator *e, const char *format, va_list *args) {
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
Value message_report(Elaborator *e, SrcSpan span, DiagCode code, const Message *m, SrcSpan other, const char *note) {
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
  return message_report(e, e->here, code, &m, NO_SPAN, NULL);
}

Value fail_at(Elaborator *e, SrcSpan span, DiagCode code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  Message m = message_format(e, format, &args);
  va_end(args);
  return message_report(e, span, code, &m, NO_SPAN, NULL);
}

/* Of a text that was reported before: where in the Diag, and how often it was met. */
typedef struct Counted {
  size_t message;
  unsigned n;
} Counted;

/* The text so far is the key, so the count is written behind it anew each time. */
static void count_again(Elaborator *e, const char *text, Counted *counted) {
  DiagMessage *first = &e->diag->messages.items[counted->message];
  first->text = arena_printf(e->diag->arena, "%s (%u times, here first)", text, ++counted->n);
}

Value fail_counted(Elaborator *e, SrcSpan span, DiagCode code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  Message m = message_format(e, format, &args);
  va_end(args);
  const char *text = message_text(&m);
  Counted *counted = map_has(&e->counted, text) ? map_get(&e->counted, text) : NULL;
  if (counted) {
    const Origin origin = {.span = span, .frame = e->frame};
    if (!e->stopped && is_new(e, origin_place(&origin), code, text)) count_again(e, text, counted);
    return POISON;
  }
  const size_t message = e->diag->messages.n;
  message_report(e, span, code, &m, NO_SPAN, NULL);
  if (e->diag->messages.n == message) return POISON;
  counted = ARENA_NEW(e->arena, Counted);
  *counted = (Counted){message, 1};
  map_put(&e->counted, text, counted);
  return POISON;
}

Value fail_with_note(Elaborator *e, SrcSpan span, DiagCode code, OtherPlace other, const char *format, ...) {
  va_list args;
  va_start(args, format);
  Message m = message_format(e, format, &args);
  va_end(args);
  return message_report(e, span, code, &m, other.span, other.note);
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
  return (Origin){.span = e->here, .path = e->module ? e->module->shown : "", .frame = e->frame, .refusal = e->refusal};
}
