/* Experts: what is computed for all rows, and weighed with 0 in most of them, is computed for the others only.
 *
 *   %4 = slice %gate, starts=[0, 0, e]      %m = ne (permute %gate), 0.0                of all experts at once
 *   %5 = linear %x, %w                      %p, %b, %c = places %m, before %m, take %m, %p
 *   %6 = relu %5                      ->    %5 = linear (gather %x, %p[e]), %w          the rows of e, then the others
 *   %7 = linear %6, %v                      %7 = where %c[e], (linear (relu %5), %v), 0.0
 *   %8 = mul %4, %7                         %8 = where %m[e], (mul %4, (gather %7, %b[e])), 0.0
 *
 * where(c, f(x), 0.0), with a condition for each row, is taken in the same way. live-rows then finds that nothing reads
 * the rows which were not chosen, so products compute the chosen ones, and read no weights where there are none.
 *
 * Legal:
 *   1. a row of f(x) is made of the same row of x alone: the operations between keep rows apart (narrow_rows.h);
 *   2. nothing else uses f(x) nor what it is made of, back to values that others use too: those stay as they are;
 *   3. the weight is one number for each row.
 * In each run the weight itself decides which rows are left out: those where it is 0, which a NaN is not. The bits of a
 * row do not depend on its place, and a chosen row is multiplied and added as before. A row that is left out gives +0
 * where it gave 0 * f(x): the same but for -0, and for infinity and NaN in f(x), which no longer show. That is why only
 * weights are taken that come from comparing what topk or argmax gave: they say what was chosen.
 * Pays: k experts of n cost k / n of the arithmetic and, for few rows, of the weights that are read. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "passes/match.h"
#include "passes/narrow_rows.h"

/* What went into a value, as far as it tells weights and experts. */
enum {
  HAS_CHOSEN = 1, /* what topk or argmax gave: indices, or the greatest */
  HAS_CHOICE = 2, /* a comparison of these: which of them */
  HAS_PRODUCT = 4
};

typedef struct Routing {          /* the rows of all experts that one tensor of weights decides about */
  const Node *weights;            /* [..., n], f32 or bool */
  bool where;                     /* of bool weights: rows are chosen where they are this */
  Node *mask;                     /* [n, rows]: true where a row is chosen */
  Node *places, *before, *chosen; /* chosen: the mask in the order of places */
} Routing;

typedef struct Term { /* weight * expert, or where(weight, expert, 0.0) */
  Node *node, *weight, *expert;
  bool where; /* of a bool weight: the expert counts where it is this */
} Term;

typedef struct Routes {
  Pass *pass;
  uint32_t known; /* ids below it are of nodes that stood in the graph when the pass began */
  uint8_t *has;   /* by id */
  VEC(Routing) routings;
  /* Of the term that is looked at: */
  Term term;
  uint32_t *uses;      /* by id: by operations of the expert */
  Node **routed;       /* by id: the same value, with the rows in the order of the routing */
  VEC(Node *) inside;  /* the operations of the expert */
  VEC(Node *) touched; /* these and their operands */
  uint32_t n_products;
} Routes;

// ---- what went into a value ----

static bool is_comparison(OpKind op) { return op >= OP_EQ && op <= OP_GE; }

static uint8_t has_of(const Routes *r, const Node *node) {
  return node->id < r->known ? r->has[node->id] : HAS_PRODUCT; /* new nodes are terms that were found */
}

/* Arithmetic makes something else of what was chosen, and a norm or a softmax of a choice. */
static uint8_t find_has(const Routes *r, const Node *node) {
  const OpCategory category = op_table[node->op].category;
  if (node->op == OP_TOPK || node->op == OP_ARGMAX) return HAS_CHOSEN;
  if (category == CATEGORY_CONTRACT) return HAS_PRODUCT;
  uint8_t has = 0;
  for (size_t i = 0; i < node->inputs.n; i++) has |= has_of(r, node->inputs.items[i]);
  if (is_comparison(node->op)) return has & (HAS_CHOSEN | HAS_CHOICE) ? HAS_CHOICE : 0;
  if (op_is_pointwise(node->op))
    return node->dtype == DTYPE_F32 && node->op != OP_TO_F32 ? has & (HAS_CHOICE | HAS_PRODUCT) : has;
  bool keeps = category == CATEGORY_VIEW || category == CATEGORY_REDUCE || node->op == OP_CONCAT || node->op == OP_TAKE;
  return keeps ? has : has & HAS_PRODUCT;
}

// ---- terms ----

/* Whether x is an expert and weight its weight, but for the shape of the weight. */
static bool is_weighed(const Routes *r, const Node *weight, const Node *x) {
  bool is_wide = x->rank && !dim_is_one(dim_from_end(x, 0));
  return has_of(r, weight) & HAS_CHOICE && has_of(r, x) & HAS_PRODUCT && is_wide &&
         (!weight->rank || dim_is_one(dim_from_end(weight, 0)));
}

static bool is_zero(const Node *node) {
  double number;
  return match_number(node, &number) && number == 0 && !signbit(number);
}

/* False: the node is no term. */
static bool find_term(const Routes *r, Node *node, Term *term) {
  if (node->dtype != DTYPE_F32 || (node->op != OP_MUL && node->op != OP_WHERE)) return false;
  Node *const *inputs = node->inputs.items;
  for (uint32_t i = 0; i < 2; i++) {
    uint32_t expert = node->op == OP_MUL ? i : i + 1, weight = node->op == OP_MUL ? 1 - i : 0;
    if (!is_weighed(r, inputs[weight], inputs[expert])) continue;
    if (node->op == OP_WHERE && !is_zero(inputs[2 - i])) continue;
    *term =
        (Term){.node = node, .weight = inputs[weight], .expert = inputs[expert], .where = node->op == OP_MUL || i == 0};
    return true;
  }
  return false;
}

/* Whether all axes but the last are the rows of the term. */
static bool has_rows(const Routes *r, const Node *x) {
  const Node *node = r->term.node;
  bool same = x->rank >= node->rank - 1u;
  for (uint32_t i = 0; i + 1u < node->rank && same; i++) same = x->dims[i] == node->dims[i];
  return same;
}

// ---- the operations of an expert ----

/* Whether each row of the result is made of the rows of the operands that have rows, and of all of the others. */
static bool keeps_rows_apart(const Routes *r, const Node *node) {
  int32_t *axes = ARENA_ARRAY(r->pass->scratch, int32_t, node->inputs.n);
  if (!has_rows(r, node)) return false;
  for (uint32_t axis = 0; axis + 1u < r->term.node->rank; axis++) {
    if (dim_is_one(node->dims[axis])) continue;
    if (!narrow_axes(r->pass->graph->sizes, node, axis, axes)) return false;
    for (size_t i = 0; i < node->inputs.n; i++)
      if (axes[i] != (has_rows(r, node->inputs.items[i]) ? (int32_t)axis : -1)) return false;
  }
  return true;
}

/* Takes the node in if all its uses are within the expert and it keeps rows apart. */
static void take_in(Routes *r, Node *node) {
  bool is_alone = r->uses[node->id] == node->users.n && !graph_is_output(r->pass->graph, node);
  if (!is_alone || match_is_static(r->pass, node) || !keeps_rows_apart(r, node)) return;
  vec_push(r->pass->scratch, &r->inside, node);
  r->n_products += op_table[node->op].category == CATEGORY_CONTRACT;
}

static void touch(Routes *r, Node *node) {
  if (node->id >= r->known) return; /* a term that was found before */
  if (!r->uses[node->id]++) vec_push(r->pass->scratch, &r->touched, node);
  take_in(r, node);
}

/* From the result back to values that others use too, or in which rows are not apart. */
static void find_operations(Routes *r) {
  r->inside.n = r->touched.n = 0;
  r->n_products = 0;
  touch(r, r->term.expert);
  for (size_t i = 0; i < r->inside.n; i++)
    for (size_t j = 0; j < r->inside.items[i]->inputs.n; j++) touch(r, r->inside.items[i]->inputs.items[j]);
}

static void forget_operations(Routes *r) {
  for (size_t i = 0; i < r->touched.n; i++) {
    r->uses[r->touched.items[i]->id] = 0;
    r->routed[r->touched.items[i]->id] = NULL;
  }
}

/* Why an expert has no product: what has one was not taken in. */
static void refuse(Routes *r) {
  const Term *term = &r->term;
  for (size_t i = 0; i < r->touched.n; i++) {
    const Node *node = r->touched.items[i];
    if (!(has_of(r, node) & HAS_PRODUCT)) continue;
    if (r->uses[node->id] < node->users.n || graph_is_output(r->pass->graph, node))
      pass_record(r->pass, FUSION_EXPERTS, false, term->expert,
                  "what it computes is used elsewhere too, so all rows are needed");
    else if (!keeps_rows_apart(r, node))
      pass_record(r->pass, FUSION_EXPERTS, false, term->expert, "%s does not keep the rows apart that %s weighs",
                  op_table[node->op].name, op_table[term->node->op].name);
  }
}

// ---- which rows ----

/* The weights of all experts, if this one's is a column of theirs; else its own. */
static Node *weights_of(const Routes *r, const Size *rows, int64_t *column) {
  Node *weight = r->term.weight;
  while (weight->op == OP_RESHAPE) weight = weight->inputs.items[0];
  *column = 0;
  if (weight->op != OP_SLICE) return r->term.weight;
  Node *all = weight->inputs.items[0];
  uint32_t last = all->rank - 1u;
  const Size *product = size_const(r->pass->graph->sizes, 1);
  int64_t n;
  for (uint32_t i = 0; i < last && product; i++) {
    if (all->dims[i] != weight->dims[i]) return r->term.weight;
    product = size_mul(r->pass->graph->sizes, product, all->dims[i]);
  }
  bool is_column = product == rows && dim_is_one(weight->dims[last]) && size_is_const(all->dims[last], &n) &&
                   size_is_const(weight->attr.starts[last], column);
  return is_column ? all : r->term.weight;
}

/* The weights as [n, rows], true where a row is chosen. */
static Node *chosen_rows(const Routes *r, Builder *b, Node *weights, const Size *rows, const Size *n) {
  const Size *dims[] = {rows, n};
  Node *mask = match_swap_last_two(b, match_reshape(b, weights, 2, dims));
  if (mask->dtype == DTYPE_F32) return build_binary(b, OP_NE, mask, build_scalar(b, DTYPE_F32, 0, 0));
  return r->term.where ? mask : build_unary(b, OP_NOT, mask);
}

static const Routing *routing_of(Routes *r, Builder *b, Node *weights, const Size *rows) {
  for (size_t i = 0; i < r->routings.n; i++) {
    const Routing *known = &r->routings.items[i];
    if (known->weights == weights && known->where == r->term.where) return known;
  }
  const Size *n = weights == r->term.weight ? size_const(r->pass->graph->sizes, 1) : dim_from_end(weights, 0);
  Node *mask = chosen_rows(r, b, weights, rows, n);
  Routing routing = {.weights = weights, .where = r->term.where, .mask = mask};
  routing.places = build_places(b, OP_PLACES, mask, 1);
  routing.before = build_places(b, OP_BEFORE, mask, 1);
  routing.chosen = build_take(b, mask, routing.places, 1);
  vec_push(r->pass->scratch, &r->routings, routing);
  return &r->routings.items[r->routings.n - 1];
}

// ---- the expert on its rows ----

/* The shape of x with the rows as one axis, behind axes of 1, so that all axes keep their numbers. */
static void routed_dims(const Routes *r, const Node *x, const Size *rows, const Size **dims) {
  uint32_t row = r->term.node->rank - 2u;
  for (uint32_t i = 0; i < x->rank; i++)
    dims[i] = i > row ? x->dims[i] : i == row ? rows : size_const(r->pass->graph->sizes, 1);
}

/* A value that has rows and is computed for all of them; gathered in the order of `places`, [1, ..., rows]. */
static Node *gathered(const Routes *r, Builder *b, Node *x, const Size *rows, Node *places) {
  SizeTable *sizes = r->pass->graph->sizes;
  const Size *width = size_const(sizes, 1), *dims[MAX_RANK];
  for (uint32_t i = r->term.node->rank - 1u; i < x->rank; i++) width = size_mul(sizes, width, x->dims[i]);
  double number;
  routed_dims(r, x, rows, dims);
  if (match_number(x, &number)) return build_full(b, number, x->rank, dims);
  Node *table = match_reshape(b, x, 2, (const Size *const[]){rows, width});
  return match_reshape(b, build_gather(b, table, places), x->rank, dims);
}

static Node *routed_operand(Routes *r, Builder *b, Node *x, const Size *rows, Node *places) {
  if (!has_rows(r, x)) return x;
  if (x->id >= r->known) return gathered(r, b, x, rows, places);
  if (!r->routed[x->id]) r->routed[x->id] = gathered(r, b, x, rows, places);
  return r->routed[x->id];
}

static int by_id(const void *a, const void *b) {
  const Node *x = *(Node *const *)a, *y = *(Node *const *)b;
  return x->id < y->id ? -1 : x->id > y->id;
}

/* The operations once more, on rows in the order of `places`. They stand in the list in the order of their ids. */
static Node *routed_expert(Routes *r, Builder *b, const Size *rows, Node *places) {
  Graph *graph = r->pass->graph;
  qsort(r->inside.items, r->inside.n, sizeof *r->inside.items, by_id);
  for (size_t i = 0; i < r->inside.n; i++) {
    const Node *node = r->inside.items[i];
    Node **operands = ARENA_ARRAY(r->pass->scratch, Node *, node->inputs.n);
    const Size *dims[MAX_RANK];
    for (size_t j = 0; j < node->inputs.n; j++) operands[j] = routed_operand(r, b, node->inputs.items[j], rows, places);
    routed_dims(r, node, rows, dims);
    Node *by = graph_add(graph, b->before, node->op, node->dtype, node->rank, dims, (uint32_t)node->inputs.n, operands,
                         node->origin);
    by->attr = node->attr;
    r->routed[node->id] = by;
  }
  return r->routed[r->term.expert->id];
}

/* Row number `i` of a value [n, rows], in another shape. */
static Node *row_of(Builder *b, Node *all, int64_t i, uint32_t rank, const Size *const *dims) {
  return match_reshape(b, match_slice(b, all, 0, i, 1), rank, dims);
}

/* What stands in the term's place. */
static Node *routed_term(Routes *r, Builder *b, const Size *rows) {
  const Term *term = &r->term;
  int64_t column;
  uint32_t rank = term->node->rank;
  Node *weights = weights_of(r, rows, &column), *zero = build_scalar(b, DTYPE_F32, 0, 0);
  const Routing *routing = routing_of(r, b, weights, rows);
  const Size *dims[MAX_RANK];
  routed_dims(r, term->node, rows, dims);
  const Size *mask_dims[MAX_RANK], *one = size_const(r->pass->graph->sizes, 1);
  memcpy(mask_dims, term->node->dims, rank * sizeof *mask_dims);
  dims[rank - 1] = mask_dims[rank - 1] = one;
  Node *result = routed_expert(r, b, rows, row_of(b, routing->places, column, rank - 1, dims));
  result = build_where(b, row_of(b, routing->chosen, column, rank, dims), result, zero);
  result = match_reshape(b, result, 2, (const Size *const[]){rows, dim_from_end(term->expert, 0)});
  result = build_gather(b, result, row_of(b, routing->before, column, rank - 1, (const Size *const *)term->node->dims));
  if (term->node->op == OP_WHERE)
    return build_where(b, term->weight, term->where ? result : zero, term->where ? zero : result);
  Node *mask = row_of(b, routing->mask, column, rank, mask_dims);
  return build_where(b, mask, build_binary(b, OP_MUL, term->weight, result), zero);
}

static bool route(Routes *r) {
  Term *term = &r->term;
  const Size *rows = size_const(r->pass->graph->sizes, 1);
  for (uint32_t i = 0; i + 1u < term->node->rank && rows; i++)
    rows = size_mul(r->pass->graph->sizes, rows, term->node->dims[i]);
  if (!rows) return false;
  if (!has_rows(r, term->weight) || term->weight->rank != term->node->rank || term->node->rank < 2 ||
      !node_same_shape(term->node, term->expert)) {
    pass_record(r->pass, FUSION_EXPERTS, false, term->expert, "its weight is not one number for each of its rows");
    return false;
  }
  find_operations(r);
  if (r->n_products) {
    Builder b = pass_builder(r->pass, term->node, term->node);
    Node *by = routed_term(r, &b, rows);
    pass_record(r->pass, FUSION_EXPERTS, true, term->expert, "computed only for rows in which its weight is not 0");
    forget_operations(r);
    match_replace(r->pass, term->node, by);
    return true;
  }
  refuse(r);
  forget_operations(r);
  return false;
}

bool pass_route_experts(Pass *pass) {
  Graph *graph = pass->graph;
  Routes r = {.pass = pass,
              .known = graph->next_id,
              .has = ARENA_ARRAY(pass->scratch, uint8_t, graph->next_id),
              .uses = ARENA_ARRAY(pass->scratch, uint32_t, graph->next_id),
              .routed = ARENA_ARRAY(pass->scratch, Node *, graph->next_id)};
  bool changed = false;
  for (Node *node = graph->first, *next; node; node = next) {
    next = node->next;
    if (node->id >= r.known) continue;
    bool is_term = find_term(&r, node, &r.term);
    r.has[node->id] = is_term ? HAS_PRODUCT : find_has(&r, node);
    if (is_term) changed |= route(&r);
  }
  return changed;
}
