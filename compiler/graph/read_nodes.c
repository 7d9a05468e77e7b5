/* In: lines of a graph's text such as "%2 = gather %1, %0 : f32[batch, 8]". Out: their nodes. See read_words.h. */
#include <string.h>

#include "graph/attributes.h"
#include "graph/read_words.h"
#include "graph/text.h"

/* A node while it is being read. */
typedef struct Pending {
  OpKind op;
  NodeAttr attr;
  VEC(Node *) inputs;
  bool seen[N_ATTRIBUTES];
  bool real;        /* VALUE has a point or an exponent */
  bool truth;       /* VALUE is true or false */
  uint32_t n_starts;
  DType dtype;
  uint32_t rank;
  const Size *dims[MAX_RANK];
} Pending;

/* Reads the value of an attribute into its member (attributes.h). */
typedef bool (*ReadAttribute)(GraphReader *, Pending *, void *member);

static bool read_text(GraphReader *r, Pending *p, void *member) {
  if (!scan_string(r->arena, &r->text, (const char **)member)) return graph_read_fault(r, "expected a name in quotes");
  return p->op != OP_INPUT || graph_read_role(r, &p->attr.role);
}

/* The form is remembered, since the type that it must fit comes later (settle_value). */
static bool read_value(GraphReader *r, Pending *p, void *member) {
  double *number = member;
  p->truth = true;
  p->attr.integer = scan_word(&r->text, "true");
  if (p->attr.integer || scan_word(&r->text, "false")) return true;
  p->truth = false;
  p->real = scan_number(&r->text, number);
  if (p->real) return true;
  if (!scan_integer(&r->text, &p->attr.integer)) return graph_read_fault(r, "expected a number, true or false");
  return true;
}

static bool read_default(GraphReader *r, Pending *p, void *member) {
  return (*(bool *)member = read_value(r, p, &p->attr.number));
}

static bool read_bound(GraphReader *r, int32_t *bound) {
  int64_t number;
  if (!scan_integer(&r->text, &number) || number < INT32_MIN || number > INT32_MAX)
    return graph_read_fault(r, "expected an i32");
  *bound = (int32_t)number;
  return true;
}

static bool read_range(GraphReader *r, Pending *p, void *member) {
  if (!graph_read_expect(r, '[') || !read_bound(r, &p->attr.least) || !graph_read_expect(r, ',') ||
      !read_bound(r, &p->attr.most) || !graph_read_expect(r, ']'))
    return false;
  return scan_string(r->arena, &r->text, member) || graph_read_fault(r, "expected a text in quotes");
}

static bool read_node_size(GraphReader *r, Pending *p, void *member) {
  (void)p;
  return (*(const Size **)member = graph_read_size(r)) != NULL;
}

static bool read_starts(GraphReader *r, Pending *p, void *member) { return graph_read_sizes(r, &p->n_starts, member); }

static bool read_axes(GraphReader *r, Pending *p, void *member) {
  (void)p;
  uint8_t *axes = member;
  if (!graph_read_expect(r, '[')) return false;
  if (scan_char(&r->text, ']')) return true;
  uint32_t n = 0;
  do {
    int64_t axis;
    if (n == MAX_RANK || !scan_integer(&r->text, &axis) || axis < 0 || axis >= MAX_RANK) {
      return graph_read_fault(r, "expected at most %d axes from 0", MAX_RANK);
    }
    axes[n++] = (uint8_t)axis;
  } while (scan_char(&r->text, ','));
  return graph_read_expect(r, ']');
}

static bool read_operation(GraphReader *r, Pending *p, void *member) {
  (void)p;
  for (int op = 0; op < N_OPS; op++) {
    if (!scan_word(&r->text, op_table[op].name)) continue;
    *(OpKind *)member = (OpKind)op;
    return true;
  }
  return graph_read_fault(r, "expected the name of a reduction");
}

static bool read_axis(GraphReader *r, Pending *p, void *member) {
  (void)p;
  int64_t axis;
  if (!scan_integer(&r->text, &axis) || axis < 0 || axis >= MAX_RANK)
    return graph_read_fault(r, "expected an axis from 0");
  *(int32_t *)member = (int32_t)axis;
  return true;
}

static bool read_flag(GraphReader *r, Pending *p, void *member) {
  (void)p;
  bool *flag = member;
  *flag = scan_word(&r->text, "true");
  return *flag || scan_word(&r->text, "false") || graph_read_fault(r, "expected true or false");
}

static bool read_stored(GraphReader *r, Pending *p, void *member) {
  (void)p;
  for (Stored stored = STORED_F32; stored < N_STORED; stored++) {
    if (!scan_word(&r->text, stored_table[stored].name)) continue;
    *(Stored *)member = stored;
    return true;
  }
  return graph_read_fault(r, "expected f32, bf16 or f16");
}

static bool read_form(GraphReader *r, Pending *p, void *member) {
  (void)p;
  for (uint8_t form = 0; form < TFM_N_FORMS; form++) {
    if (!scan_word(&r->text, tfm_form_name(form))) continue;
    *(tfm_form *)member = (tfm_form)form;
    return true;
  }
  return graph_read_fault(r, "expected a form of numbers, such as int8");
}

static bool read_double(GraphReader *r, Pending *p, void *member) {
  (void)p;
  int64_t integer;
  if (scan_number(&r->text, member)) return true;
  if (!scan_integer(&r->text, &integer)) return graph_read_fault(r, "expected a number");
  *(double *)member = (double)integer;
  return true;
}

static bool read_shape(GraphReader *r, Pending *p, void *member) {
  uint32_t rank;
  if (!graph_read_sizes(r, &rank, member)) return false;
  p->attr.rank_in = (uint8_t)rank;
  return true;
}

/* "$3", "not $3", "$3 else 0". */
static bool read_rows(GraphReader *r, Pending *p, void *member) {
  (void)member;
  int64_t input;
  p->attr.rows_where = !scan_word(&r->text, "not");
  if (!graph_read_expect(r, '$')) return false;
  if (!scan_integer(&r->text, &input) || input < 0 || input >= (int64_t)p->inputs.n || input >= UINT8_MAX)
    return graph_read_fault(r, "expected the number of an input");
  p->attr.rows_mask = (uint8_t)(input + 1);
  p->attr.rows_zero = scan_word(&r->text, "else");
  return !p->attr.rows_zero || graph_read_expect(r, '0');
}

/* "$3", "not $3". */
static bool read_steps(GraphReader *r, Pending *p, void *member) {
  if (p->seen[ATTRIBUTE_ROWS]) return graph_read_fault(r, "a product has rows or steps that count, not both");
  *(bool *)member = true;
  return read_rows(r, p, NULL);
}

static bool read_expr(GraphReader *r, Pending *p, void *member) {
  if (!graph_read_expect(r, '{')) return false;
  DType *types = ARENA_ARRAY(r->arena, DType, p->inputs.n);
  for (size_t i = 0; i < p->inputs.n; i++) types[i] = p->inputs.items[i]->dtype;
  const char *error;
  Expr *expr = expr_read(r->arena, r->graph->sizes, &r->text, (uint32_t)p->inputs.n, types, &error);
  if (!expr) return graph_read_fault(r, "%s", error);
  *(Expr **)member = expr;
  return graph_read_expect(r, '}');
}

static const ReadAttribute readers[N_ATTRIBUTE_TYPES] = {
    [ATTRIBUTE_IS_FLAG] = read_flag,     [ATTRIBUTE_IS_F64] = read_double,
    [ATTRIBUTE_IS_AXIS] = read_axis,     [ATTRIBUTE_IS_AXES] = read_axes,
    [ATTRIBUTE_IS_STORED] = read_stored, [ATTRIBUTE_IS_OPERATION] = read_operation,
    [ATTRIBUTE_IS_TEXT] = read_text,     [ATTRIBUTE_IS_VALUE] = read_value,
    [ATTRIBUTE_IS_SIZE] = read_node_size, [ATTRIBUTE_IS_DEFAULT] = read_default,
    [ATTRIBUTE_IS_RANGE] = read_range,
    [ATTRIBUTE_IS_STARTS] = read_starts, [ATTRIBUTE_IS_SHAPE] = read_shape,
    [ATTRIBUTE_IS_ROWS] = read_rows,     [ATTRIBUTE_IS_STEPS] = read_steps,
    [ATTRIBUTE_IS_EXPR] = read_expr,     [ATTRIBUTE_IS_FORM] = read_form,
};

// ---- operands and attributes ----

static bool read_attribute(GraphReader *r, Pending *p, Attribute attribute) {
  if (!op_has_attribute(p->op, attribute)) {
    return graph_read_fault(r, "%s has no %s", op_table[p->op].name, attribute_table[attribute].name);
  }
  if (p->seen[attribute]) return graph_read_fault(r, "%s stands twice", attribute_table[attribute].name);
  p->seen[attribute] = true;
  return readers[attribute_type(attribute)](r, p, attribute_member(&p->attr, attribute));
}

/* "axis=2". False, without an error, unless a known name and '=' come next. */
static bool scan_label(GraphReader *r, Attribute *attribute) {
  for (int i = 0; i < N_ATTRIBUTES; i++) {
    const char *rest = r->text;
    if (!scan_word(&rest, attribute_table[i].name) || !scan_char(&rest, '=')) continue;
    r->text = rest;
    *attribute = (Attribute)i;
    return true;
  }
  return false;
}

/* An operand or an attribute. Bare attributes are told apart by their first character, or by what the operation has. */
static bool read_item(GraphReader *r, Pending *p) {
  Attribute attribute;
  scan_blanks(&r->text);
  if (*r->text == '%') {
    Node *input = graph_read_operand(r);
    if (input) vec_push(r->arena, &p->inputs, input);
    return input != NULL;
  }
  if (*r->text == '"') return read_attribute(r, p, ATTRIBUTE_NAME);
  if (*r->text == '{') return read_attribute(r, p, ATTRIBUTE_EXPR);
  if (scan_label(r, &attribute)) return read_attribute(r, p, attribute);
  if (op_has_attribute(p->op, ATTRIBUTE_VALUE)) return read_attribute(r, p, ATTRIBUTE_VALUE);
  if (op_has_attribute(p->op, ATTRIBUTE_SIZE)) return read_attribute(r, p, ATTRIBUTE_SIZE);
  return graph_read_fault(r, "expected an operand or an attribute of %s", op_table[p->op].name);
}

/* scan_word takes whole words, so "gelu" does not match the beginning of "gelu_tanh". */
static bool read_op(GraphReader *r, Pending *p) {
  for (int op = 0; op < N_OPS; op++) {
    if (!scan_word(&r->text, op_table[op].name)) continue;
    p->op = (OpKind)op;
    return true;
  }
  return graph_read_fault(r, "expected an operation");
}

static bool read_type(GraphReader *r, Pending *p) {
  for (int dtype = 0; dtype < N_DTYPES; dtype++) {
    if (!scan_word(&r->text, dtype_names[dtype])) continue;
    p->dtype = (DType)dtype;
    return graph_read_sizes(r, &p->rank, p->dims);
  }
  return graph_read_fault(r, "expected f32, i32 or bool");
}

/* A value comes before the type, so its form is checked afterwards: an f32 may be written as an integer, otherwise the
 * form must be that of the type. */
static bool settle_value(GraphReader *r, Pending *p) {
  if (p->op == OP_FULL && !p->seen[ATTRIBUTE_VALUE]) return graph_read_fault(r, "full needs a value before ':'");
  bool fits = p->dtype == DTYPE_F32 ? !p->truth : p->dtype == DTYPE_I32 ? !p->truth && !p->real : p->truth;
  if (!fits) return graph_read_fault(r, "the value is no %s", dtype_names[p->dtype]);
  if (p->dtype == DTYPE_F32 && !p->real) {
    p->attr.number = (double)p->attr.integer;
    p->attr.integer = 0;
  }
  return true;
}

/* Takes over what was read; the node's origin is its line, so that faults of the verifier point to it. */
static bool add_node(GraphReader *r, Pending *p, int64_t number, uint32_t begin) {
  Origin origin = {.span = {r->source, begin, (uint32_t)(r->text - r->source->text)}, .path = ""};
  Node *node = graph_add(r->graph, NULL, p->op, p->dtype, p->rank, p->dims, (uint32_t)p->inputs.n, p->inputs.items,
                         origin);
  node->attr = p->attr;
  if (p->op == OP_WEIGHT && p->attr.name) map_put(&r->graph->declared_weights, p->attr.name, node);
  map_put_n(&r->nodes, &number, sizeof number, node);
  return true;
}

bool graph_read_node(GraphReader *r) {
  Pending *p = ARENA_NEW(r->arena, Pending);
  uint32_t begin = (uint32_t)(r->text - r->source->text);
  int64_t number;
  if (!graph_read_expect(r, '%')) return false;
  if (!scan_integer(&r->text, &number) || number < 0) return graph_read_fault(r, "expected the number of the node");
  if (map_find(&r->nodes, &number, sizeof number))
    return graph_read_fault(r, "%%%lld is defined twice", (long long)number);
  if (!graph_read_expect(r, '=') || !read_op(r, p)) return false;
  if (!scan_char(&r->text, ':')) {
    do {
      if (!read_item(r, p)) return false;
    } while (scan_char(&r->text, ','));
    if (!graph_read_expect(r, ':')) return false;
  }
  if (!read_type(r, p)) return false;
  if (op_has_attribute(p->op, ATTRIBUTE_NAME) && !p->attr.name) return graph_read_fault(r, "it needs a name in quotes");
  if ((p->op == OP_FULL || p->attr.has_default) && !settle_value(r, p)) return false;
  if (p->op == OP_SLICE && p->n_starts != p->rank) return graph_read_fault(r, "a slice has a start for each axis");
  return add_node(r, p, number, begin);
}
