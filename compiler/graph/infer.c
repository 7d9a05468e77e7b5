/* From a node to the type of its result: the entry, and the shape rules of products and of fused nodes.
 *
 * In: a node. Out: its type, or what is wrong: the number or type of inputs, shapes that do not agree, an expression
 * whose leaves do not fit the domain it is computed over. The rules of the other operations are in infer_rules.c. Types
 * are written into the caller's memory; texts of faults and new sizes belong to the size table's arena. */
#include "graph/infer.h"

#include <string.h>

static const Node *input(const Infer *in, uint32_t i) { return in->node->inputs.items[i]; }

static bool is_matrix(const Node *x) { return x->dtype == DTYPE_F32 && x->rank >= 2; }

static const Size *from_last(const Node *x, uint32_t i) { return x->dims[x->rank - i]; }

/* Broadcasts the axes before the last two. */
static bool broadcast_lead(const Infer *in, NodeType *into, const Node *x) {
  return infer_broadcast(in->sizes, into, x->rank - 2u, (const Size *const *)x->dims);
}

static void append(NodeType *type, const Size *dim) { type->dims[type->rank++] = dim; }

// ---- expressions ----

typedef struct Body {
  SizeTable *sizes;
  const Node *node;
  const NodeType *domain;
  bool acc;
} Body;

/* The ids have a row of the domain each, so they broadcast to it without its last axis. */
static const char *gather_fault(const Body *body, const Expr *expr) {
  if (expr->input >= body->node->inputs.n || expr->ids >= body->node->inputs.n) return "there is no such input";
  const Node *table = body->node->inputs.items[expr->input], *ids = body->node->inputs.items[expr->ids];
  const NodeType *domain = body->domain;
  bool kinds_fit = table->rank == 2 && ids->dtype == DTYPE_I32 && domain->rank > 0;
  if (!kinds_fit) return "gather needs a table of two axes and i32 ids";
  if (expr->dtype != table->dtype) return "gather has another type than its table";
  NodeType rows = *domain;
  rows.rank--;
  bool fits = infer_broadcasts_to(body->sizes, ids->rank, (const Size *const *)ids->dims, &rows) &&
              size_may_equal(body->sizes, table->dims[1], domain->dims[domain->rank - 1]);
  return fits ? NULL : "table or ids of gather do not fit the shape that is computed";
}

static const char *input_fault(const Body *body, const Expr *expr) {
  if (expr->input >= body->node->inputs.n) return "there is no such input";
  const Node *x = body->node->inputs.items[expr->input];
  if (x->dtype != expr->dtype) return "the input has another type";
  bool fits = infer_broadcasts_to(body->sizes, x->rank, (const Size *const *)x->dims, body->domain);
  return fits ? NULL : "the input does not broadcast to the shape that is computed";
}

/* An expression has the types that its operations give, as nodes do. */
static const char *op_fault(const Expr *expr) {
  DType args[3], result;
  if (!op_is_pointwise(expr->op) || (int)expr->n_args != op_table[expr->op].most) return "it is no pointwise operation";
  for (uint32_t i = 0; i < expr->n_args; i++) args[i] = expr->args[i]->dtype;
  const char *fault = op_pointwise_type(expr->op, args, &result);
  return fault || result == expr->dtype ? fault : "it has another type";
}

static const char *leaf_fault(const Body *body, const Expr *expr) {
  switch (expr->kind) {
    case EXPR_OP: return op_fault(expr);
    case EXPR_ACC: return !body->acc ? "there is no acc here" : expr->dtype != DTYPE_F32 ? "acc is f32" : NULL;
    case EXPR_INPUT: return input_fault(body, expr);
    case EXPR_CONST: return expr->dtype == DTYPE_I32 && expr->integer != (int32_t)expr->integer ? "it is no i32" : NULL;
    case EXPR_SIZE: return !expr->size || expr->dtype == DTYPE_BOOL ? "a size is f32 or i32" : NULL;
    case EXPR_INDEX: return expr->axis >= body->domain->rank ? "there is no such axis" : NULL;
    case EXPR_GATHER: return gather_fault(body, expr);
  }
  return "unknown kind of expression";
}

/* NULL if the expression can be computed over `domain`, else the fault. `acc`: whether it may use acc. */
static const char *infer_expr(SizeTable *sizes, const Node *node, const NodeType *domain, bool acc) {
  Body body = {.sizes = sizes, .node = node, .domain = domain, .acc = acc};
  Arena *scratch = arena_create();
  ExprList list = expr_list(scratch, node->attr.expr);
  const char *fault = NULL;
  uint32_t i = 0;
  for (; i < list.n && !fault; i++) fault = leaf_fault(&body, list.items[i]);
  if (fault) {
    StrBuf out = strbuf_new(sizes->arena);
    strbuf_printf(&out, "%s: ", fault);
    expr_print(&out, sizes, list.items[i - 1]);
    fault = out.text;
  } else if (list.n > EXPR_MAX_OPERATIONS) {
    fault = "the expression has too many operations";
  }
  arena_destroy(scratch);
  return fault;
}

/* The rule of an expression after acc of this shape: `type` gets its type, the shape stays. */
static const char *infer_epilogue(const Infer *in, const NodeType *domain) {
  if (!in->node->attr.expr) return NULL;
  in->type->dtype = in->node->attr.expr->dtype;
  return infer_expr(in->sizes, in->node, domain, true);
}

// ---- products ----

/* [..., m, k] times [..., k, n]. A vector must be reshaped first: rank 1 is refused. */
static const char *infer_matrix_product(const Infer *in) {
  const Node *x = input(in, 0), *y = input(in, 1);
  NodeType type = {.dtype = DTYPE_F32};
  bool fits = is_matrix(x) && is_matrix(y) && size_may_equal(in->sizes, from_last(x, 1), from_last(y, 2)) &&
              broadcast_lead(in, &type, x) && broadcast_lead(in, &type, y);
  if (!fits) return "it needs f32 [..., m, k] and [..., k, n] whose other axes agree";
  if (in->node->inputs.n > 2u + (in->node->attr.rows_mask != 0) && !in->node->attr.expr)
    return "it has operands but no expression";
  append(&type, from_last(x, 2));
  append(&type, from_last(y, 1));
  *in->type = type;
  return infer_epilogue(in, &type);
}

/* The mask of live rows is an input too, but no operand of an expression. */
static const char *infer_linear(const Infer *in) {
  const Node *x = input(in, 0), *w = input(in, 1);
  bool fits = x->rank >= 1 && is_matrix(w) && w->rank == 2 &&
              size_may_equal(in->sizes, from_last(x, 1), w->dims[1]);
  if (!fits) return "it needs f32 [..., k] and [n, k]";
  if (in->node->inputs.n > 2u + (in->node->attr.rows_mask != 0) && !in->node->attr.expr)
    return "it has operands but no expression";
  NodeType type = type_of(x);
  type.dims[type.rank - 1] = w->dims[0];
  *in->type = type;
  return infer_epilogue(in, &type);
}

/* All but the columns of an operand, into the type of the result, whose last axis so far is t; a t of 1 broadcasts. */
static bool takes_steps(const Infer *in, NodeType *type, const Node *x) {
  return is_matrix(x) && infer_broadcast(in->sizes, type, x->rank - 1u, (const Size *const *)x->dims);
}

static bool has_columns(const Node *x, const Size *all) {
  return size_equals(from_last(x, 1), 1) || from_last(x, 1) == all;
}

/* A state for each item of the result. */
static const char *initial_fault(const Infer *in, const NodeType *result, const Node *initial) {
  const Size *n = from_last(input(in, 1), 1), *d = from_last(input(in, 2), 1);
  bool fits = initial->dtype == DTYPE_F32 && initial->rank == result->rank && from_last(initial, 2) == n &&
              from_last(initial, 1) == d;
  for (uint32_t i = 0; fits && i + 2u < result->rank; i++)
    fits = size_may_equal(in->sizes, initial->dims[i], result->dims[i]);
  return fits ? NULL : "initial must be f32 [..., n, d] with the leading axes of the result";
}

/* The shape of the result, from the operands that have steps. */
static const char *linear_attention_type(const Infer *in, NodeType *result) {
  const Node *q = input(in, 0), *k = input(in, 1), *v = input(in, 2);
  const uint32_t n_fixed = 3u + in->node->attr.has_decay, n_stepped = n_fixed + in->node->attr.has_beta;
  NodeType type = {.dtype = DTYPE_F32};
  int64_t n, d;
  bool fits = is_matrix(q) && is_matrix(k) && is_matrix(v) && from_last(q, 1) == from_last(k, 1) &&
              size_may_equal(in->sizes, from_last(q, 2), from_last(k, 2)) &&
              size_may_equal(in->sizes, from_last(k, 2), from_last(v, 2));
  for (uint32_t i = 0; i < n_stepped && fits; i++) fits = takes_steps(in, &type, input(in, i));
  if (!fits) return "it needs f32 q, k [..., t, n] and v [..., t, d] whose other axes agree";
  if (!size_is_const(from_last(k, 1), &n) || !size_is_const(from_last(v, 1), &d) || n < 1 || d < 1)
    return "n and d must be numbers of 1 or more";
  fits = (!in->node->attr.has_decay || has_columns(input(in, 3), from_last(k, 1))) &&
         (!in->node->attr.has_beta || has_columns(input(in, n_fixed), from_last(v, 1)));
  if (!fits) return "decay has 1 or n columns, beta 1 or d";
  append(&type, from_last(v, 1));
  *result = type;
  return NULL;
}

static const char *infer_linear_attention(const Infer *in) {
  const NodeAttr *attr = &in->node->attr;
  const uint32_t n_stepped = 3u + attr->has_decay + attr->has_beta;
  if (in->node->inputs.n != n_stepped + attr->has_initial) return "decay, beta and initial are operands if it has them";
  const char *fault = linear_attention_type(in, in->type);
  return fault || !attr->has_initial ? fault : initial_fault(in, in->type, input(in, n_stepped));
}

static const char *infer_linear_attention_state(const Infer *in) {
  const Node *of = input(in, 0);
  if (of->op != OP_LINEAR_ATTENTION) return "its input must be a linear_attention";
  *in->type = type_of(of);
  in->type->dims[in->type->rank - 2] = from_last(of->inputs.items[1], 1);
  return NULL;
}

static const char *infer_linear_attention_grad(const Infer *in) {
  const uint32_t n_stepped = 3u + in->node->attr.has_decay + in->node->attr.has_beta;
  if (in->node->inputs.n != n_stepped + 1) return "decay and beta are operands if it has them, and g is the last one";
  const char *fault = linear_attention_type(in, in->type);
  if (fault) return fault;
  const Node *g = input(in, n_stepped);
  bool fits = g->dtype == DTYPE_F32 && g->rank == in->type->rank;
  for (uint32_t i = 0; fits && i < g->rank; i++) fits = size_may_equal(in->sizes, g->dims[i], in->type->dims[i]);
  if (!fits) return "g must have the shape of the result of the linear_attention";
  in->type->dims[in->type->rank - 1] = from_last(input(in, 1), 1);
  return NULL;
}

/* The columns of an operand, with a row for each item and step of the result. */
static const char *infer_linear_attention_grad_part(const Infer *in) {
  const Node *grad = input(in, 0);
  if (grad->op != OP_LINEAR_ATTENTION_GRAD) return "its input must be a linear_attention_grad";
  const OpKind op = in->node->op;
  const bool is_decay = op == OP_LINEAR_ATTENTION_GRAD_DECAY, is_beta = op == OP_LINEAR_ATTENTION_GRAD_BETA;
  if ((is_decay && !grad->attr.has_decay) || (is_beta && !grad->attr.has_beta)) return "its input has no such operand";
  const uint32_t of = is_beta ? 3u + grad->attr.has_decay : is_decay ? 3 : op == OP_LINEAR_ATTENTION_GRAD_V ? 2 : 1;
  *in->type = type_of(grad);
  in->type->dims[in->type->rank - 1] = from_last(grad->inputs.items[of], 1);
  return NULL;
}

// ---- attention ----

/* The shape of the scores, [lead..., t, s]: the leading axes of queries, keys and values broadcast together. */
static const char *score_domain(const Infer *in, NodeType *domain) {
  const Node *q = input(in, 0), *k = input(in, 1), *v = input(in, 2);
  *domain = (NodeType){.dtype = DTYPE_F32};
  bool fits = is_matrix(q) && is_matrix(k) && is_matrix(v) && broadcast_lead(in, domain, q) &&
              broadcast_lead(in, domain, k) && broadcast_lead(in, domain, v) &&
              size_may_equal(in->sizes, from_last(q, 1), from_last(k, 1)) &&
              size_may_equal(in->sizes, from_last(k, 2), from_last(v, 2));
  if (!fits) return "it needs f32 q [..., t, h], k [..., s, h], v [..., s, e] whose other axes agree";
  append(domain, from_last(q, 2));
  append(domain, from_last(k, 2));
  return NULL;
}

static const char *infer_attention(const Infer *in) {
  NodeType domain;
  const char *fault = score_domain(in, &domain);
  if (fault) return fault;
  fault = infer_epilogue(in, &domain);
  if (!fault && in->type->dtype != DTYPE_F32) fault = "the scores must be f32";
  *in->type = domain;
  in->type->dims[domain.rank - 1] = from_last(input(in, 2), 1);
  return fault;
}

/* The shape of the scores; the attention that keeps them is the only possible input. */
static const char *infer_attention_weights(const Infer *in) {
  if (input(in, 0)->op != OP_ATTENTION) return "its input must be an attention";
  Infer of = {.sizes = in->sizes, .node = input(in, 0), .type = in->type};
  return score_domain(&of, in->type);
}

/* Both terms of an attention_kept are of the scores' shape. */
static const char *infer_attention_kept(const Infer *in) {
  Expr *terms[ATTENTION_TERMS];
  if (!expr_attention_terms(in->node->attr.expr, ATTENTION_BACK, terms))
    return "its expression must be a sum of two terms in f32";
  return infer_attention(in);
}

/* The three terms of an attention_grad are of the scores' shape, and so is their sum, which nobody takes. */
static const char *infer_attention_grad(const Infer *in) {
  NodeType domain;
  const char *fault = score_domain(in, &domain);
  if (fault) return fault;
  const Node *g = input(in, 3);
  Expr *terms[ATTENTION_TERMS];
  if (!is_matrix(g) || g->rank != domain.rank ||
      !size_may_equal(in->sizes, from_last(g, 2), domain.dims[domain.rank - 2]) ||
      !size_may_equal(in->sizes, from_last(g, 1), from_last(input(in, 2), 1)))
    return "g must have the shape of the attention's result";
  if (!expr_attention_terms(in->node->attr.expr, ATTENTION_TERMS, terms))
    return "its expression must be a sum of three terms in f32";
  fault = infer_epilogue(in, &domain);
  *in->type = domain;
  in->type->dims[domain.rank - 1] = from_last(input(in, 0), 1);
  return fault;
}

static const char *infer_attention_grad_part(const Infer *in) {
  const Node *grad = input(in, 0);
  if (grad->op != OP_ATTENTION_GRAD) return "its input must be an attention_grad";
  Infer of = {.sizes = in->sizes, .node = grad, .type = in->type};
  const char *fault = score_domain(&of, in->type);
  if (fault) return fault;
  const uint8_t rank = in->type->rank;
  in->type->dims[rank - 2] = in->type->dims[rank - 1];
  in->type->dims[rank - 1] = from_last(grad->inputs.items[in->node->op == OP_ATTENTION_GRAD_K ? 1 : 2], 1);
  return NULL;
}

// ---- expressions with a shape of their own ----

/* For nodes whose domain is not that of a product: there is no acc, and the sizes are the node's own word. */
static const char *expr_over(const Infer *in, const NodeType *domain) {
  if (!in->node->attr.expr) return "it has no expression";
  for (uint32_t i = 0; i < domain->rank; i++) {
    int64_t value;
    bool negative = domain->dims[i] && size_is_const(domain->dims[i], &value) && value < 0;
    if (!domain->dims[i] || negative) return "a size is missing or negative";
  }
  return infer_expr(in->sizes, in->node, domain, false);
}

static const char *infer_pointwise_node(const Infer *in) {
  const char *fault = expr_over(in, in->type);
  if (!fault) in->type->dtype = in->node->attr.expr->dtype;
  return fault;
}

/* The gradient of a norm, or of log_softmax, by rows: x has the shape of the result, w that of a row. */
static const char *infer_row_grad(const Infer *in) {
  const NodeAttr *attr = &in->node->attr;
  const bool is_norm = attr->reduction == OP_LAYER_NORM || attr->reduction == OP_RMS_NORM;
  if (!is_norm && (attr->reduction != OP_LOG_SOFTMAX || attr->has_weight))
    return "reduction must be layer_norm, rms_norm, or log_softmax without a weight";
  const char *fault = expr_over(in, in->type);
  if (fault) return fault;
  const size_t n = in->node->inputs.n, n_fixed = 1u + attr->has_weight;
  if (attr->expr->dtype != DTYPE_F32 || in->type->rank < 1 || n < n_fixed) return "a row of numbers is missing";
  const Node *x = input(in, n - n_fixed), *w = input(in, n - 1);
  bool fits = x->dtype == DTYPE_F32 && x->rank == in->type->rank;
  for (uint32_t i = 0; fits && i < x->rank; i++) fits = size_may_equal(in->sizes, x->dims[i], in->type->dims[i]);
  if (!fits) return "x must have the shape of the result";
  fits = !attr->has_weight || (w->dtype == DTYPE_F32 && w->rank == 1 &&
                               size_may_equal(in->sizes, w->dims[0], in->type->dims[in->type->rank - 1]));
  return fits ? NULL : "the weight must be a row";
}

static const char *infer_row_grad_w(const Infer *in) {
  const Node *grad = input(in, 0);
  if (grad->op != OP_ROW_GRAD || grad->attr.reduction == OP_LOG_SOFTMAX)
    return "its input must be a row_grad of a norm";
  *in->type = type_of(grad);
  return NULL;
}

static const char *infer_norm_node(const Infer *in) {
  OpKind norm = in->node->attr.reduction;
  if (norm != OP_LAYER_NORM && norm != OP_RMS_NORM) return "reduction must be layer_norm or rms_norm";
  const char *fault = expr_over(in, in->type);
  if (fault) return fault;
  if (in->node->attr.expr->dtype != DTYPE_F32) return "what is normalized must be f32";
  size_t n_weights = (size_t)in->node->attr.has_weight + in->node->attr.has_bias;
  if (in->node->inputs.n < n_weights) return "weight or bias are missing";
  return infer_norm_weights(in, norm, (uint32_t)(in->node->inputs.n - n_weights));
}

/* The domain is the shape of the expression before the reduction; the node's own dims are the result's. */
static const char *infer_reduce_node(const Infer *in) {
  OpKind reduction = in->node->attr.reduction;
  bool is_softmax = reduction == OP_SOFTMAX || reduction == OP_LOG_SOFTMAX;
  if (op_table[reduction].category != CATEGORY_REDUCE && !is_softmax) return "unknown reduction";
  NodeType domain = {.rank = in->node->attr.rank_in};
  memcpy(domain.dims, in->node->attr.dims_in, sizeof domain.dims);
  const char *fault = expr_over(in, &domain);
  if (fault) return fault;
  domain.dtype = in->node->attr.expr->dtype;
  if (!op_takes(reduction, domain.dtype)) return op_takes_fault(reduction);
  return infer_reduction(in, reduction, &domain);
}

// ---- domains ----

const char *infer_domain(SizeTable *sizes, const Node *node, NodeType *domain) {
  Infer in = {.sizes = sizes, .node = node, .type = domain};
  *domain = type_of(node);
  if (node->op == OP_ATTENTION || node->op == OP_ATTENTION_KEPT || node->op == OP_ATTENTION_GRAD)
    return score_domain(&in, domain);
  if (node->op == OP_REDUCE) {
    domain->rank = node->attr.rank_in;
    memcpy(domain->dims, node->attr.dims_in, sizeof domain->dims);
  }
  return NULL;
}

// ---- all operations ----

typedef const char *(*Rule)(const Infer *);

static const Rule rules[N_OPS] = {
#define OP(Enum, text, category, least, most, takes, gives, shape, ...) [OP_##Enum] = infer_##shape,
#include "graph/ops.def"
};

/* Separate from infer_node, because the rules index the inputs without a look at their number. */
const char *infer_arity(SizeTable *sizes, const Node *node) {
  const OpInfo *info = &op_table[node->op];
  Infer in = {.sizes = sizes, .node = node};
  bool fits = (info->least < 0 || node->inputs.n >= (size_t)info->least) &&
              (info->most < 0 || node->inputs.n <= (size_t)info->most);
  return fits ? NULL : infer_fault(&in, "it has %zu inputs", node->inputs.n);
}

/* The mask of the steps of a product's sums: bool over its leading axes and k. */
static const char *infer_steps(const Infer *in, const Node *mask) {
  NodeType steps = *in->type;
  steps.rank--;
  steps.dims[steps.rank - 1] = from_last(input(in, 0), 1);
  bool fits = mask->dtype == DTYPE_BOOL &&
              infer_broadcasts_to(in->sizes, mask->rank, (const Size *const *)mask->dims, &steps);
  return fits ? NULL : "the mask of its steps must be a bool that broadcasts to them";
}

/* The mask of the live rows: bool over all axes but the last. */
static const char *infer_rows(const Infer *in) {
  if (!in->node->attr.rows_mask) return NULL;
  if (in->node->attr.rows_mask > in->node->inputs.n) return "the mask of its rows is none of its inputs";
  const Node *mask = in->node->inputs.items[in->node->attr.rows_mask - 1];
  if (in->node->attr.rows_are_steps) return infer_steps(in, mask);
  NodeType rows = *in->type;
  if (rows.dtype != DTYPE_F32 || rows.rank < 2) return "only an f32 result of two or more axes has rows";
  rows.rank--;
  bool fits = mask->dtype == DTYPE_BOOL &&
              infer_broadcasts_to(in->sizes, mask->rank, (const Size *const *)mask->dims, &rows);
  return fits ? NULL : "the mask of its rows must be a bool that broadcasts to them";
}

/* What the node is rounded to, or computed in. */
static const char *infer_form(const Infer *in) {
  const tfm_form form = in->node->attr.form;
  if (!op_has_attribute(in->node->op, ATTRIBUTE_FORM)) return NULL;
  if (in->node->op == OP_ROUND_TO) return form == TFM_FORM_F32 ? "it needs a form to round to" : NULL;
  if (form == TFM_FORM_F32 || form == TFM_FORM_INT8) return NULL;
  if (in->node->op != OP_LINEAR) return "attention is computed in f32 or int8";
  return tfm_form_has_scales(form) ? NULL : "its form is that of w, which round_to gives";
}

const char *infer_node(SizeTable *sizes, const Node *node, NodeType *type) {
  *type = type_of(node);
  Infer in = {.sizes = sizes, .node = node, .type = type};
  bool checks_first = node->inputs.n > 0 && !op_is_pointwise(node->op); /* those check all their operands */
  DType first = checks_first ? node->inputs.items[0]->dtype : DTYPE_F32;
  const char *fault = checks_first && !op_takes(node->op, first) ? op_takes_fault(node->op) : NULL;
  if (!fault) fault = rules[node->op](&in);
  if (checks_first) type->dtype = op_gives(node->op, first, type->dtype);
  if (!fault) fault = infer_rows(&in);
  if (!fault) fault = infer_form(&in);
  return fault ? infer_fault(&in, "%s: %s", op_table[node->op].name, fault) : NULL;
}
