/* In: the text form of a graph (print.c shows it). Out: the graph, or one error with its line and column: the first
 * thing that is not what the grammar expects. The reader accepts anything with the syntax of a graph that uses only
 * what it has defined; whether types and shapes are right is for graph_verify to say. Comments begin with # and may
 * stand wherever blanks may.
 *
 * The sections follow the text from the inside out: words, nodes, checks, the header, statements, the whole. Limits:
 * axes and sizes are counted against MAX_RANK and SIZE_MAX_SYMBOLS, and recursion is bounded (text.c, expr.c), so a
 * hostile text costs no more than its length. All memory is the arena's, also after an error. */
#include <string.h>

#include "graph/attributes.h"
#include "graph/graph.h"
#include "graph/text.h"

typedef struct GraphReader {
  Arena *arena;
  Diag *diag;
  Source *source;
  const char *text; /* what is still to be read of source->text */
  Graph *graph;
  Map nodes; /* number in the text -> Node * */
} GraphReader;

// ---- words ----

/* Reports that something else was expected here, and returns false. The first error ends the reading. */
__attribute__((format(printf, 2, 3))) static bool read_fault(GraphReader *r, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *text = arena_vprintf(r->arena, format, args);
  va_end(args);
  scan_blanks(&r->text);
  uint32_t at = (uint32_t)(r->text - r->source->text);
  diag_error(r->diag, (SrcSpan){r->source, at, at < r->source->size ? at + 1 : at}, DIAG_GRAPH_SYNTAX, "%s", text);
  return false;
}

static bool read_expect(GraphReader *r, char c) { return scan_char(&r->text, c) || read_fault(r, "expected '%c'", c); }

/* A plain name or a quoted string; NULL after an error. */
static const char *read_name(GraphReader *r, const char *what) {
  const char *name;
  size_t length;
  if (scan_name(&r->text, &name, &length)) return arena_strndup(r->arena, name, length);
  if (scan_string(r->arena, &r->text, &name)) return name;
  read_fault(r, "expected %s", what);
  return NULL;
}

static const Size *read_size(GraphReader *r) {
  scan_blanks(&r->text);
  const char *end = r->text;
  const Size *size = size_read(r->graph->sizes, &end);
  if (!size) read_fault(r, "expected a size: integers and declared sizes with +, -, * and // by a number");
  else r->text = end;
  return size;
}

/* "[a, b]": at most MAX_RANK sizes. */
static bool read_sizes(GraphReader *r, uint32_t *n, const Size **sizes) {
  *n = 0;
  if (!read_expect(r, '[')) return false;
  if (scan_char(&r->text, ']')) return true;
  do {
    if (*n == MAX_RANK) return read_fault(r, "more than %d axes", MAX_RANK);
    sizes[*n] = read_size(r);
    if (!sizes[(*n)++]) return false;
  } while (scan_char(&r->text, ','));
  return read_expect(r, ']');
}

/* "as cache 0", or nothing. */
static bool read_role(GraphReader *r, Role *role) {
  if (!scan_word(&r->text, "as")) return true;
  for (int i = ROLE_NONE + 1; i < N_ROLES; i++) {
    if (!scan_word(&r->text, role_table[i].text)) continue;
    int64_t number = 0;
    if (role_table[i].is_numbered && (!scan_integer(&r->text, &number) || number < 0 || number > UINT32_MAX))
      return read_fault(r, "expected the number of the %s", role_table[i].text);
    *role = (Role){(RoleKind)i, (uint32_t)number};
    return true;
  }
  return read_fault(r, "expected a role: tokens, cache, encoded, logits, logsumexp or gradient");
}

/* "%3", a node that an earlier line defined. */
static Node *read_operand(GraphReader *r) {
  const char *begin = r->text;
  int64_t number;
  if (!scan_char(&r->text, '%') || !scan_integer(&r->text, &number)) {
    read_fault(r, "expected a node such as %%3");
    return NULL;
  }
  MapEntry *entry = map_find(&r->nodes, &number, sizeof number);
  if (entry) return entry->value;
  r->text = begin;
  read_fault(r, "%%%lld is not defined before", (long long)number);
  return NULL;
}

// ---- nodes: "%2 = gather %1, %0 : f32[batch, 8]" ----

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
  if (!scan_string(r->arena, &r->text, (const char **)member)) return read_fault(r, "expected a name in quotes");
  return p->op != OP_INPUT || read_role(r, &p->attr.role);
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
  if (!scan_integer(&r->text, &p->attr.integer)) return read_fault(r, "expected a number, true or false");
  return true;
}

static bool read_default(GraphReader *r, Pending *p, void *member) {
  return (*(bool *)member = read_value(r, p, &p->attr.number));
}

static bool read_bound(GraphReader *r, int32_t *bound) {
  int64_t number;
  if (!scan_integer(&r->text, &number) || number < INT32_MIN || number > INT32_MAX)
    return read_fault(r, "expected an i32");
  *bound = (int32_t)number;
  return true;
}

static bool read_range(GraphReader *r, Pending *p, void *member) {
  if (!read_expect(r, '[') || !read_bound(r, &p->attr.least) || !read_expect(r, ',') ||
      !read_bound(r, &p->attr.most) || !read_expect(r, ']'))
    return false;
  return scan_string(r->arena, &r->text, member) || read_fault(r, "expected a text in quotes");
}

static bool read_node_size(GraphReader *r, Pending *p, void *member) {
  (void)p;
  return (*(const Size **)member = read_size(r)) != NULL;
}

static bool read_starts(GraphReader *r, Pending *p, void *member) { return read_sizes(r, &p->n_starts, member); }

static bool read_axes(GraphReader *r, Pending *p, void *member) {
  (void)p;
  uint8_t *axes = member;
  if (!read_expect(r, '[')) return false;
  if (scan_char(&r->text, ']')) return true;
  uint32_t n = 0;
  do {
    int64_t axis;
    if (n == MAX_RANK || !scan_integer(&r->text, &axis) || axis < 0 || axis >= MAX_RANK) {
      return read_fault(r, "expected at most %d axes from 0", MAX_RANK);
    }
    axes[n++] = (uint8_t)axis;
  } while (scan_char(&r->text, ','));
  return read_expect(r, ']');
}

static bool read_operation(GraphReader *r, Pending *p, void *member) {
  (void)p;
  for (int op = 0; op < N_OPS; op++) {
    if (!scan_word(&r->text, op_table[op].name)) continue;
    *(OpKind *)member = (OpKind)op;
    return true;
  }
  return read_fault(r, "expected the name of a reduction");
}

static bool read_axis(GraphReader *r, Pending *p, void *member) {
  (void)p;
  int64_t axis;
  if (!scan_integer(&r->text, &axis) || axis < 0 || axis >= MAX_RANK) return read_fault(r, "expected an axis from 0");
  *(int32_t *)member = (int32_t)axis;
  return true;
}

static bool read_flag(GraphReader *r, Pending *p, void *member) {
  (void)p;
  bool *flag = member;
  *flag = scan_word(&r->text, "true");
  return *flag || scan_word(&r->text, "false") || read_fault(r, "expected true or false");
}

static bool read_stored(GraphReader *r, Pending *p, void *member) {
  (void)p;
  for (Stored stored = STORED_F32; stored < N_STORED; stored++) {
    if (!scan_word(&r->text, stored_names[stored])) continue;
    *(Stored *)member = stored;
    return true;
  }
  return read_fault(r, "expected f32, bf16 or f16");
}

static bool read_double(GraphReader *r, Pending *p, void *member) {
  (void)p;
  int64_t integer;
  if (scan_number(&r->text, member)) return true;
  if (!scan_integer(&r->text, &integer)) return read_fault(r, "expected a number");
  *(double *)member = (double)integer;
  return true;
}

static bool read_shape(GraphReader *r, Pending *p, void *member) {
  uint32_t rank;
  if (!read_sizes(r, &rank, member)) return false;
  p->attr.rank_in = (uint8_t)rank;
  return true;
}

/* "$3", "not $3", "$3 else 0". */
static bool read_rows(GraphReader *r, Pending *p, void *member) {
  (void)member;
  int64_t input;
  p->attr.rows_where = !scan_word(&r->text, "not");
  if (!read_expect(r, '$')) return false;
  if (!scan_integer(&r->text, &input) || input < 0 || input >= (int64_t)p->inputs.n || input >= UINT8_MAX)
    return read_fault(r, "expected the number of an input");
  p->attr.rows_mask = (uint8_t)(input + 1);
  p->attr.rows_zero = scan_word(&r->text, "else");
  return !p->attr.rows_zero || read_expect(r, '0');
}

/* "$3", "not $3". */
static bool read_steps(GraphReader *r, Pending *p, void *member) {
  if (p->seen[ATTRIBUTE_ROWS]) return read_fault(r, "a product has rows or steps that count, not both");
  *(bool *)member = true;
  return read_rows(r, p, NULL);
}

static bool read_expr(GraphReader *r, Pending *p, void *member) {
  if (!read_expect(r, '{')) return false;
  DType *types = ARENA_ARRAY(r->arena, DType, p->inputs.n);
  for (size_t i = 0; i < p->inputs.n; i++) types[i] = p->inputs.items[i]->dtype;
  const char *error;
  Expr *expr = expr_read(r->arena, r->graph->sizes, &r->text, (uint32_t)p->inputs.n, types, &error);
  if (!expr) return read_fault(r, "%s", error);
  *(Expr **)member = expr;
  return read_expect(r, '}');
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
    [ATTRIBUTE_IS_EXPR] = read_expr,
};

// ---- operands and attributes ----

static bool read_attribute(GraphReader *r, Pending *p, Attribute attribute) {
  if (!op_has_attribute(p->op, attribute)) {
    return read_fault(r, "%s has no %s", op_table[p->op].name, attribute_table[attribute].name);
  }
  if (p->seen[attribute]) return read_fault(r, "%s stands twice", attribute_table[attribute].name);
  p->seen[attribute] = true;
  if (!readers[attribute_type(attribute)](r, p, attribute_member(&p->attr, attribute))) return false;
  if (attribute == ATTRIBUTE_INT4) p->attr.is_int8 |= p->attr.is_int4;
  return true;
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
    Node *input = read_operand(r);
    if (input) vec_push(r->arena, &p->inputs, input);
    return input != NULL;
  }
  if (*r->text == '"') return read_attribute(r, p, ATTRIBUTE_NAME);
  if (*r->text == '{') return read_attribute(r, p, ATTRIBUTE_EXPR);
  if (scan_label(r, &attribute)) return read_attribute(r, p, attribute);
  if (op_has_attribute(p->op, ATTRIBUTE_VALUE)) return read_attribute(r, p, ATTRIBUTE_VALUE);
  if (op_has_attribute(p->op, ATTRIBUTE_SIZE)) return read_attribute(r, p, ATTRIBUTE_SIZE);
  return read_fault(r, "expected an operand or an attribute of %s", op_table[p->op].name);
}

/* scan_word takes whole words, so "gelu" does not match the beginning of "gelu_tanh". */
static bool read_op(GraphReader *r, Pending *p) {
  for (int op = 0; op < N_OPS; op++) {
    if (!scan_word(&r->text, op_table[op].name)) continue;
    p->op = (OpKind)op;
    return true;
  }
  return read_fault(r, "expected an operation");
}

static bool read_type(GraphReader *r, Pending *p) {
  for (int dtype = 0; dtype < N_DTYPES; dtype++) {
    if (!scan_word(&r->text, dtype_names[dtype])) continue;
    p->dtype = (DType)dtype;
    return read_sizes(r, &p->rank, p->dims);
  }
  return read_fault(r, "expected f32, i32 or bool");
}

/* A value comes before the type, so its form is checked afterwards: an f32 may be written as an integer, otherwise the
 * form must be that of the type. */
static bool settle_value(GraphReader *r, Pending *p) {
  if (p->op == OP_FULL && !p->seen[ATTRIBUTE_VALUE]) return read_fault(r, "full needs a value before ':'");
  bool fits = p->dtype == DTYPE_F32 ? !p->truth : p->dtype == DTYPE_I32 ? !p->truth && !p->real : p->truth;
  if (!fits) return read_fault(r, "the value is no %s", dtype_names[p->dtype]);
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

/* A node in the order of the text: number, operation, operands and attributes in any order, type. */
static bool read_node(GraphReader *r) {
  Pending *p = ARENA_NEW(r->arena, Pending);
  uint32_t begin = (uint32_t)(r->text - r->source->text);
  int64_t number;
  if (!read_expect(r, '%')) return false;
  if (!scan_integer(&r->text, &number) || number < 0) return read_fault(r, "expected the number of the node");
  if (map_find(&r->nodes, &number, sizeof number)) return read_fault(r, "%%%lld is defined twice", (long long)number);
  if (!read_expect(r, '=') || !read_op(r, p)) return false;
  if (!scan_char(&r->text, ':')) {
    do {
      if (!read_item(r, p)) return false;
    } while (scan_char(&r->text, ','));
    if (!read_expect(r, ':')) return false;
  }
  if (!read_type(r, p)) return false;
  if (op_has_attribute(p->op, ATTRIBUTE_NAME) && !p->attr.name) return read_fault(r, "it needs a name in quotes");
  if ((p->op == OP_FULL || p->attr.has_default) && !settle_value(r, p)) return false;
  if (p->op == OP_SLICE && p->n_starts != p->rank) return read_fault(r, "a slice has a start for each axis");
  return add_node(r, p, number, begin);
}

// ---- checks ----

static bool read_check(GraphReader *r) {
  scan_blanks(&r->text);
  uint32_t begin = (uint32_t)(r->text - r->source->text);
  const char *error;
  Check check = {0};
  if (!check_read(r->arena, r->graph->sizes, &r->text, &check, &error)) return read_fault(r, "%s", error);
  check.origin = (Origin){.span = {r->source, begin, (uint32_t)(r->text - r->source->text)}, .path = ""};
  vec_push(r->arena, &r->graph->checks, check);
  return true;
}

// ---- the header ----

static bool read_size_role(GraphReader *r, const Size *size) {
  for (int i = 0; i < N_SIZE_ROLES; i++) {
    if (!scan_word(&r->text, size_role_names[i])) continue;
    if (r->graph->size_roles[i] >= 0) return read_fault(r, "a second size with the role %s", size_role_names[i]);
    r->graph->size_roles[i] = size_symbol_of(size);
    return true;
  }
  return read_fault(r, "expected the role of a size: rows, past, fresh or kept");
}

static bool read_symbol(GraphReader *r) {
  const char *name;
  size_t length;
  if (!scan_name(&r->text, &name, &length)) return read_fault(r, "expected the name of a size");
  const Size *size = size_symbol(r->graph->sizes, arena_strndup(r->arena, name, length));
  if (!size) return read_fault(r, "more than %d sizes", SIZE_MAX_SYMBOLS);
  return !scan_word(&r->text, "as") || read_size_role(r, size);
}

/* The index of a declared size; -1 after an error. */
static int32_t read_declared(GraphReader *r) {
  for (uint32_t i = 0; i < r->graph->sizes->n_symbols; i++) {
    if (scan_word(&r->text, r->graph->sizes->symbols[i])) return (int32_t)i;
  }
  read_fault(r, "expected a declared size");
  return -1;
}

/* "time, source of batch" */
static bool read_ragged(GraphReader *r) {
  do {
    int32_t symbol = read_declared(r);
    if (symbol < 0) return false;
    r->graph->ragged[symbol] = true;
  } while (scan_char(&r->text, ','));
  if (!scan_word(&r->text, "of")) return read_fault(r, "expected 'of' and the size of the batch");
  r->graph->ragged_batch = read_declared(r);
  return r->graph->ragged_batch >= 0;
}

/* "graph G(sizes batch as rows, time; ragged time of batch) {" */
static bool read_header(GraphReader *r) {
  if (!scan_word(&r->text, "graph")) return read_fault(r, "expected 'graph'");
  const char *name = read_name(r, "the name of the graph");
  if (!name) return false;
  r->graph = graph_new(r->arena, name);
  if (!read_expect(r, '(')) return false;
  if (scan_word(&r->text, "sizes")) {
    do {
      if (!read_symbol(r)) return false;
    } while (scan_char(&r->text, ','));
    if (scan_char(&r->text, ';')) {
      if (!scan_word(&r->text, "ragged")) return read_fault(r, "expected 'ragged'");
      if (!read_ragged(r)) return false;
    }
  }
  return read_expect(r, ')') && read_expect(r, '{');
}

// ---- statements ----

static bool read_output(GraphReader *r) {
  GraphOutput output = {.name = read_name(r, "the name of an output")};
  if (!output.name || !read_role(r, &output.role) || !read_expect(r, '=')) return false;
  output.node = read_operand(r);
  if (output.node) vec_push(r->arena, &r->graph->outputs, output);
  return output.node != NULL;
}

static bool read_setting_value(GraphReader *r, GenerateSetting *setting) {
  double number;
  int64_t integer;
  if (!scan_number(&r->text, &number)) {
    if (!scan_integer(&r->text, &integer)) return read_fault(r, "expected a number");
    number = (double)integer;
  }
  vec_push(r->arena, &setting->values, number);
  return true;
}

static bool read_setting(GraphReader *r) {
  GenerateSetting setting = {.name = read_name(r, "the name of a setting")};
  if (!setting.name || !read_expect(r, '=')) return false;
  if (!scan_char(&r->text, '[')) {
    if (!read_setting_value(r, &setting)) return false;
  } else if (!scan_char(&r->text, ']')) {
    do {
      if (!read_setting_value(r, &setting)) return false;
    } while (scan_char(&r->text, ','));
    if (!read_expect(r, ']')) return false;
  }
  vec_push(r->arena, &r->graph->generate_settings, setting);
  return true;
}

/* "generate ids from y { bos = 1, eos = [2, 3] }"; names and values are checked where they are used. */
static bool read_generate(GraphReader *r) {
  if (r->graph->generate_input) return read_fault(r, "a second generate");
  r->graph->generate_input = read_name(r, "the name of an input");
  if (!r->graph->generate_input) return false;
  if (!scan_word(&r->text, "from")) return read_fault(r, "expected 'from'");
  r->graph->generate_output = read_name(r, "the name of an output");
  if (!r->graph->generate_output || !read_expect(r, '{')) return false;
  if (scan_char(&r->text, '}')) return true;
  do {
    if (!read_setting(r)) return false;
  } while (scan_char(&r->text, ','));
  return read_expect(r, '}');
}

static bool read_statement(GraphReader *r) {
  scan_blanks(&r->text);
  if (*r->text == '%') return read_node(r);
  if (scan_word(&r->text, "output")) return read_output(r);
  if (scan_word(&r->text, "check")) return read_check(r);
  if (scan_word(&r->text, "generate")) return read_generate(r);
  return read_fault(r, "expected a node, 'check', 'output', 'generate' or '}'");
}

Graph *graph_read(Arena *arena, Diag *diag, Source *source) {
  GraphReader r = {.arena = arena, .diag = diag, .source = source, .text = source->text, .nodes = map_new(arena)};
  if (!read_header(&r)) return NULL;
  while (!scan_char(&r.text, '}')) {
    if (!read_statement(&r)) return NULL;
  }
  scan_blanks(&r.text);
  if (r.text != source->text + source->size) {
    read_fault(&r, "expected the end of the text");
    return NULL;
  }
  return r.graph;
}
