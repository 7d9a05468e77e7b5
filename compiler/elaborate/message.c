/* Message: the text of a fault, put together from a format and values. */
#include "elaborate/message.h"

#include "base/check.h"
#include "elaborate/primitives.h"

// ---- building ----

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

static void add_shape(Message *m, Node *node) {
  add_sizes(m, node->rank, node->dims);
  if (m->n_concerned < MAX_CONCERNED) m->concerned[m->n_concerned++] = node;
}

static void add_kind(Message *m, Value v) {
  strbuf_add(&m->text, value_kind_text(v.kind));
  if (v.kind != VALUE_TENSOR) return;
  strbuf_printf(&m->text, " %s", dtype_names[v.as.tensor->dtype]);
  add_shape(m, v.as.tensor);
}

void message_add_value(Message *m, Value v) {
  switch (v.kind) {
    case VALUE_BOOL: strbuf_add(&m->text, v.as.boolean ? "true" : "false"); break;
    case VALUE_INTEGER: strbuf_printf(&m->text, "%lld", (long long)v.as.integer); break;
    case VALUE_NUMBER: strbuf_printf(&m->text, "%g", v.as.number); break;
    case VALUE_SIZE: message_add_size(m, v.as.size, true); break;
    case VALUE_STRING: strbuf_add(&m->text, v.as.string); break;
    case VALUE_LIST: add_sizes(m, v.as.list->n, v.as.list->items); break;
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

const char *message_text(const Message *m) {
  StrBuf out = strbuf_new(m->arena);
  for (size_t i = 0; i < m->parts.n; i++) {
    strbuf_add(&out, m->parts.items[i].text);
    size_print(&out, m->sizes, m->parts.items[i].size);
  }
  strbuf_add(&out, m->text.text);
  return out.text;
}
