/* In: attributes of nodes, by the types of attributes.def. Out: their text, and their part of what makes nodes equal.
 * See attributes.h. What an attribute has of its own, beside its type, stands here with its name. */
#include "graph/attributes.h"

#include <stddef.h>
#include <string.h>

#include "graph/text.h"

typedef struct AttributeRow {
  AttributeType type;
  size_t offset, bytes; /* of the member in NodeAttr */
} AttributeRow;

static const AttributeRow rows[N_ATTRIBUTES] = {
#define ATTRIBUTE(Enum, text, form, type, member) \
  [ATTRIBUTE_##Enum] = {ATTRIBUTE_IS_##type, offsetof(NodeAttr, member), sizeof((NodeAttr *)NULL)->member},
#include "graph/attributes.def"
};

AttributeType attribute_type(Attribute attribute) { return rows[attribute].type; }

void *attribute_member(NodeAttr *attr, Attribute attribute) { return (char *)attr + rows[attribute].offset; }

const void *attribute_value(const NodeAttr *attr, Attribute attribute) {
  return (const char *)attr + rows[attribute].offset;
}

// ---- text ----

void sizes_print(StrBuf *out, const SizeTable *table, uint32_t n, const Size *const *sizes) {
  strbuf_add_char(out, '[');
  for (uint32_t i = 0; i < n; i++) {
    if (i) strbuf_add(out, ", ");
    if (sizes[i]) size_print(out, table, sizes[i]);
    else strbuf_add_char(out, '?');
  }
  strbuf_add_char(out, ']');
}

static void print_axes(StrBuf *out, uint32_t n, const uint8_t *axes) {
  strbuf_add_char(out, '[');
  for (uint32_t i = 0; i < n; i++) strbuf_printf(out, "%s%u", i ? ", " : "", axes[i]);
  strbuf_add_char(out, ']');
}

void node_print_value(StrBuf *out, const Node *node) {
  if (node->dtype == DTYPE_F32) print_f32(out, node->attr.number);
  else if (node->dtype == DTYPE_BOOL) strbuf_add(out, node->attr.integer ? "true" : "false");
  else strbuf_printf(out, "%lld", (long long)node->attr.integer);
}

bool attribute_is_left_out(const NodeAttr *attr, Attribute attribute) {
  const void *member = attribute_value(attr, attribute);
  switch (attribute_type(attribute)) {
    case ATTRIBUTE_IS_FLAG:
    case ATTRIBUTE_IS_DEFAULT: return !*(const bool *)member;
    case ATTRIBUTE_IS_TEXT:
    case ATTRIBUTE_IS_RANGE: return !*(const char *const *)member;
    case ATTRIBUTE_IS_SIZE: return !*(const Size *const *)member;
    case ATTRIBUTE_IS_EXPR: return !*(Expr *const *)member;
    case ATTRIBUTE_IS_STORED: return *(const Stored *)member == STORED_ANY;
    case ATTRIBUTE_IS_FORM: return *(const tfm_form *)member == TFM_FORM_F32;
    case ATTRIBUTE_IS_ROWS: return !attr->rows_mask || attr->rows_are_steps;
    case ATTRIBUTE_IS_STEPS: return !attr->rows_are_steps;
    default: return false;
  }
}

void role_print(StrBuf *out, Role role) {
  if (role.kind == ROLE_NONE) return;
  strbuf_printf(out, " as %s", role_table[role.kind].text);
  if (role_table[role.kind].is_numbered) strbuf_printf(out, " %u", role.number);
}

static void print_text(StrBuf *out, const NodeAttr *attr, const char *text) {
  strbuf_add_quoted(out, text);
  role_print(out, attr->role);
}

static void print_range(StrBuf *out, const NodeAttr *attr) {
  strbuf_printf(out, "[%d, %d] ", attr->least, attr->most);
  strbuf_add_quoted(out, attr->range_text);
}

static void print_rows(StrBuf *out, const NodeAttr *attr) {
  strbuf_printf(out, "%s$%u%s", attr->rows_where ? "" : "not ", attr->rows_mask - 1u, attr->rows_zero ? " else 0" : "");
}

static void print_expr(StrBuf *out, const SizeTable *table, const Expr *expr) {
  strbuf_add(out, "{ ");
  expr_print(out, table, expr);
  strbuf_add(out, " }");
}

void attribute_print(StrBuf *out, const SizeTable *table, const Node *node, Attribute attribute) {
  const NodeAttr *attr = &node->attr;
  const void *member = attribute_value(attr, attribute);
  switch (attribute_type(attribute)) {
    case ATTRIBUTE_IS_FLAG: strbuf_add(out, "true"); break; /* left out if it is false */
    case ATTRIBUTE_IS_F64: print_f64(out, *(const double *)member); break;
    case ATTRIBUTE_IS_AXIS: strbuf_printf(out, "%d", *(const int32_t *)member); break;
    case ATTRIBUTE_IS_AXES: print_axes(out, node->rank, member); break;
    case ATTRIBUTE_IS_OPERATION: strbuf_add(out, op_table[*(const OpKind *)member].name); break;
    case ATTRIBUTE_IS_STORED: strbuf_add(out, stored_table[*(const Stored *)member].name); break;
    case ATTRIBUTE_IS_FORM: strbuf_add(out, tfm_form_name(*(const tfm_form *)member)); break;
    case ATTRIBUTE_IS_TEXT: print_text(out, attr, *(const char *const *)member); break;
    case ATTRIBUTE_IS_VALUE:
    case ATTRIBUTE_IS_DEFAULT: node_print_value(out, node); break;
    case ATTRIBUTE_IS_RANGE: print_range(out, attr); break;
    case ATTRIBUTE_IS_SIZE: size_print(out, table, *(const Size *const *)member); break;
    case ATTRIBUTE_IS_STARTS: sizes_print(out, table, node->rank, member); break;
    case ATTRIBUTE_IS_SHAPE: sizes_print(out, table, attr->rank_in, member); break;
    case ATTRIBUTE_IS_ROWS:
    case ATTRIBUTE_IS_STEPS: print_rows(out, attr); break;
    case ATTRIBUTE_IS_EXPR: print_expr(out, table, *(Expr *const *)member); break;
    case N_ATTRIBUTE_TYPES: break;
  }
}

// ---- what makes nodes equal ----

static void add_rows(StrBuf *key, const NodeAttr *attr) {
  const uint8_t bytes[] = {attr->rows_mask, attr->rows_where, attr->rows_zero};
  strbuf_add_n(key, (const char *)bytes, sizeof bytes);
}

static void add_bounds(StrBuf *key, const NodeAttr *attr) {
  const int32_t bounds[] = {attr->least, attr->most};
  strbuf_add_n(key, (const char *)bounds, sizeof bounds);
}

/* The length stands before the text, so that what follows is not taken for a part of it. */
static void add_text(StrBuf *key, const char *text) {
  const size_t length = text ? strlen(text) + 1 : 0;
  strbuf_add_n(key, (const char *)&length, sizeof length);
  if (text) strbuf_add_n(key, text, length);
}

void attributes_add_key(StrBuf *key, const NodeAttr *attr) {
  for (Attribute i = 0; i < N_ATTRIBUTES; i++) {
    const AttributeType type = attribute_type(i);
    const void *member = attribute_value(attr, i);
    if (type == ATTRIBUTE_IS_TEXT || type == ATTRIBUTE_IS_RANGE) add_text(key, *(const char *const *)member);
    else strbuf_add_n(key, member, rows[i].bytes);
    if (type == ATTRIBUTE_IS_VALUE) strbuf_add_n(key, (const char *)&attr->integer, sizeof attr->integer);
    if (type == ATTRIBUTE_IS_RANGE) add_bounds(key, attr);
    if (type == ATTRIBUTE_IS_ROWS) add_rows(key, attr);
  }
}

// ---- forms ----

void attributes_take_forms(NodeAttr *attr, const NodeAttr *from) {
  for (Attribute i = 0; i < N_ATTRIBUTES; i++)
    if (attribute_type(i) == ATTRIBUTE_IS_FORM)
      *(tfm_form *)attribute_member(attr, i) = *(const tfm_form *)attribute_value(from, i);
}
