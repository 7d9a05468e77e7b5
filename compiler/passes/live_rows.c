/* Live rows: rows that a mask takes out before anything reads them are not computed.
 *
 *   %4 = linear %0, %w : [b, t, 8]                         %4 = linear %0, %w, %m, rows=$2 : [b, t, 8]
 *   %5 = norm %4, ... : [b, t, 8]                    ->    %5 = norm %4, %m, ..., rows=$1 : [b, t, 8]
 *   %6 = pointwise %m1, %5, { where($0, $1, 0.0) }         %6 = pointwise %m1, %5, { where($0, $1, 0.0) }
 *
 * Legal: nothing reads the other rows. What is read where:
 *   1. an output of the model is read everywhere; where(m, x, y) reads x only where m is true, y only where it is
 *      false;
 *   2. products with weights, norms, pointwise work and views read those rows of their operands that are live in their
 *      own result;
 *   3. attention reads keys and values only where no mask that is the same for all queries makes their score -inf (a
 *      finite fill leaves a weight, which may count), and the queries whose result is live;
 *   4. several users read the union of what each reads: of conjunctions of masks, what they have in common;
 *   5. ids are all read, and what can fail does so for all rows, as before.
 * A product or pointwise work that ends in where(m, y, 0.0) leaves rows out too, and is 0 there: rows=$2 else 0.
 * An attention weight of 0 takes nothing from its value, even from infinity or NaN (docs/decisions/0002-bits.md), so
 * what is not computed cannot be seen in a result. The sum of m * x is no selection: 0 times infinity would be seen.
 *
 * The analysis is a data flow from the outputs to the inputs. RowSet over-approximates the rows that are read:
 * forgetting a mask is always safe and only computes more. The interpreter fills dead rows with NaN, so that a wrong
 * answer shows.
 * Pays: sentences of different lengths, padded to the longest, cost what their real tokens do. */
#include <math.h>
#include <string.h>

#include "graph/infer.h"
#include "passes/live_row_rules.h"
#include "passes/zero_rows.h"

// ---- what fits ----

/* Whether the mask says something about rows of these axes. One that is itself computed from the node, or stands behind
 * it, would come too late. */
static bool fits(LiveRows *r, const Node *node, const RowMask *mask, uint32_t rank, const Size *const *dims) {
  for (uint32_t i = 0, at = 0; i < mask->n_axes; i++, at++) {
    const uint32_t axis = mask->axes[i];
    while (mask->node && at < mask->node->rank && dim_is_one(mask->node->dims[at])) at++;
    const bool in_order = axis < rank && (i == 0 || axis > mask->axes[i - 1]);
    if (!in_order || (mask->node && mask->node->dims[at] != dims[axis])) return false;
  }
  return !mask->node || !r->trains || (mask->node->id < node->id && !match_depends(r->pass, mask->node, node));
}

/* The set without what does not fit. */
static RowSet fitting(LiveRows *r, const Node *node, const RowSet *rows, uint32_t rank, const Size *const *dims) {
  RowSet fit = ROWS_NONE;
  if (rows->all) return ROWS_ALL;
  for (uint32_t i = 0; i < rows->n; i++) {
    RowSet term = {.n = 1};
    for (uint32_t j = 0; j < rows->terms[i].n; j++)
      if (fits(r, node, &rows->terms[i].masks[j], rank, dims))
        term.terms[0].masks[term.terms[0].n++] = rows->terms[i].masks[j];
    if (term.terms[0].n == 0) return ROWS_ALL;
    fit = rows_union(r->most, &fit, &term);
  }
  return fit;
}

static bool is_product(const Node *node) { return node->op == OP_MATMUL || node->op == OP_MATMUL_FUSED; }

/* The kernels that can leave rows out. A value that no input reaches is computed once, so there is nothing to save. */
static bool can_skip_rows(const LiveRows *r, const Node *node) {
  enum { MOST_INPUTS = 200 }; /* rows_mask is a byte */
  if (node->dtype != DTYPE_F32 || node->rank < 2 || node->inputs.n > MOST_INPUTS) return false;
  if (!r->has_input[node->id]) return false;
  if (node->op == OP_LINEAR) return !r->has_input[node->inputs.items[1]->id];
  if (node->op == OP_NORM || node->op == OP_POINTWISE || node->op == OP_ATTENTION) return true;
  if (!r->trains) return false;
  if (node->op == OP_REDUCE) return node->rank == node->attr.rank_in && node->attr.axis + 1 == node->rank;
  return is_product(node) || node->op == OP_ROW_GRAD || node->op == OP_ATTENTION_KEPT || node->op == OP_ATTENTION_GRAD;
}

// ---- choices, where there are gradients ----

/* Masks are read whole. */
static void make_choice(LiveRows *r, const Node *node, const RowSet *rows, uint32_t rank, const Size *const *dims) {
  Choice *choice = &r->choices[node->id];
  choice->is_made = true;
  choice->rows = *rows;
  choice->rank = rank;
  memcpy(choice->dims, dims, rank * sizeof *dims);
  for (uint32_t i = 0; i < rows->n; i++)
    for (uint32_t j = 0; j < rows->terms[i].n; j++)
      if (rows->terms[i].masks[j].node) r->needs[rows->terms[i].masks[j].node->id] = ROWS_ALL;
}

static bool choose_steps(LiveRows *r, const Node *node) {
  ProductSteps steps;
  if (!is_product(node) || node->attr.form != TFM_FORM_F32 || !zero_steps(&r->zero, node, &steps)) return false;
  const RowSet rows = fitting(r, node, &steps.rows, steps.rank, steps.dims);
  bool has_steps = false;
  for (uint32_t i = steps.n_lead; i < steps.rank; i++) has_steps |= rows_have_axis(&rows, i);
  if (!has_steps || !rows_are_some(&rows)) return false;
  make_choice(r, node, &rows, steps.rank, steps.dims);
  r->choices[node->id].are_steps = true;
  r->choices[node->id].steps = steps;
  return true;
}

/* What is read and may differ from 0. Queries of attention_grad also give something to keys, whoever reads them. */
static void choose_rows(LiveRows *r, const Node *node) {
  const RowSet *need = &r->needs[node->id], *nonzero = &r->zero.nonzero[node->id];
  const RowSet wanted = node->op == OP_ATTENTION_GRAD ? *nonzero : rows_both(r->most, need, nonzero);
  if (dim_is_one(node->dims[node->rank - 1])) return;
  const RowSet rows = fitting(r, node, &wanted, node->rank - 1u, (const Size *const *)node->dims);
  if (!rows_are_some(&rows)) return;
  make_choice(r, node, &rows, node->rank - 1u, (const Size *const *)node->dims);
  r->choices[node->id].is_zero = !rows_within(need, &rows);
}

static void choose(LiveRows *r, const Node *node) {
  const RowSet *need = &r->needs[node->id];
  if (rows_are_none(need) || !can_skip_rows(r, node) || live_rows_can_fail(r->pass->scratch, node->attr.expr)) return;
  if (!choose_steps(r, node)) choose_rows(r, node);
}

// ---- analysis ----

/* What is computed of a node, which its operands must have: rows that are 0 are not. */
static const RowSet *computed(const LiveRows *r, const Node *node) {
  const bool is_chosen = r->trains && r->choices[node->id].is_made && !r->choices[node->id].are_steps;
  return is_chosen ? &r->choices[node->id].rows : &r->needs[node->id];
}

static void find_needs(LiveRows *r) {
  const Graph *graph = r->pass->graph;
  for (size_t i = 0; i < graph->outputs.n; i++) r->needs[graph->outputs.items[i].node->id] = ROWS_ALL;
  for (const Node *node = graph->last; node; node = node->prev) {
    RowSet *operands = ARENA_ARRAY(r->pass->scratch, RowSet, node->inputs.n);
    if (live_rows_can_fail(r->pass->scratch, node->attr.expr)) r->needs[node->id] = ROWS_ALL;
    if (r->trains) choose(r, node);
    live_rows_of_operands(r, node, computed(r, node), operands);
    for (size_t i = 0; i < node->inputs.n; i++) {
      RowSet *of = &r->needs[node->inputs.items[i]->id];
      *of = rows_union(r->most, of, &operands[i]);
    }
  }
}

static void find_inputs(LiveRows *r) {
  for (const Node *node = r->pass->graph->first; node; node = node->next) {
    r->has_input[node->id] = node->op == OP_INPUT;
    for (size_t i = 0; i < node->inputs.n; i++) r->has_input[node->id] |= r->has_input[node->inputs.items[i]->id];
  }
}

// ---- masks ----

/* The mask becomes an input: the last, but before x and the weights of a norm. */
static void set_mask(LiveRows *r, Node *node, Node *mask, bool where) {
  size_t n = node->inputs.n, fixed = 0;
  if (node->op == OP_NORM) fixed = (size_t)(node->attr.has_weight + node->attr.has_bias);
  if (node->op == OP_ROW_GRAD) fixed = 1u + node->attr.has_weight;
  const size_t at = n - fixed;
  Node **inputs = ARENA_ARRAY(r->pass->scratch, Node *, n + 1);
  memcpy(inputs, node->inputs.items, at * sizeof *inputs);
  inputs[at] = mask;
  memcpy(inputs + at + 1, node->inputs.items + at, (n - at) * sizeof *inputs);
  graph_set_inputs(r->pass->graph, node, (uint32_t)n + 1, inputs);
  node->attr.rows_mask = (uint8_t)(at + 1);
  node->attr.rows_where = where;
}

static void record(LiveRows *r, const Node *node, const Node *mask, bool where) {
  const bool is_attention = node->op == OP_ATTENTION_KEPT || node->op == OP_ATTENTION_GRAD;
  if (op_table[node->op].category != CATEGORY_CONTRACT && !is_attention) return;
  StrBuf shape = strbuf_new(r->pass->scratch);
  node_print_shape(&shape, r->pass->graph->sizes, mask);
  const char *holds = where ? "true" : "false";
  if (node->attr.rows_are_steps)
    pass_record(r->pass, FUSION_LIVE_ROWS, true, node,
                "only terms of sums where the mask %s is %s are added: the others are 0", shape.text, holds);
  else
    pass_record(r->pass, FUSION_LIVE_ROWS, true, node, "only rows where the mask %s is %s are computed: %s", shape.text,
                holds, node->attr.rows_zero && r->trains ? "the others are 0" : "nothing reads the others");
}

// ---- what becomes of it ----

static bool is_zero(const Expr *expr) {
  return expr->kind == EXPR_CONST && expr->dtype == DTYPE_F32 && expr->number == 0 && !signbit(expr->number);
}

/* The rows outside of which the node is 0 by its own expression. -0 does not count: the rows are filled with +0. */
static RowSet need_unless_zero(const LiveRows *r, const Node *node) {
  const Expr *expr = node->attr.expr;
  if ((node->op != OP_LINEAR && node->op != OP_POINTWISE) || !expr || expr->kind != EXPR_OP || expr->op != OP_WHERE)
    return ROWS_ALL;
  bool holds = is_zero(expr->args[2]);
  if (!holds && !is_zero(expr->args[1])) return ROWS_ALL;
  NodeType domain = type_of(node);
  return rows_of_condition(r->most, node, &domain, expr->args[0], holds, domain.rank - 1);
}

/* Without gradients: the first of the masks that says which rows of the node are to be computed. */
static bool first_mask(LiveRows *r, const Node *node, const RowSet *need, RowSet *rows) {
  const Size *const *dims = (const Size *const *)node->dims;
  const uint32_t rank = node->rank - 1u;
  for (uint32_t i = 0; i < need->n && i < 1; i++)
    for (uint32_t j = 0; j < need->terms[i].n; j++) {
      const RowMask *mask = &need->terms[i].masks[j];
      if (!fits(r, node, mask, rank, dims) || !rows_tell_all(node, mask, rank, dims) ||
          match_depends(r->pass, mask->node, node))
        continue;
      *rows = (RowSet){.n = 1, .terms = {{.n = 1, .masks = {*mask}}}};
      return true;
    }
  return false;
}

static bool skip_rows(LiveRows *r, Node *node) {
  if (!can_skip_rows(r, node) || dim_is_one(node->dims[node->rank - 1])) return false;
  RowSet need = r->needs[node->id], rows;
  bool is_zero = need.all && !live_rows_can_fail(r->pass->scratch, node->attr.expr), where;
  if (is_zero) need = need_unless_zero(r, node);
  if (!first_mask(r, node, &need, &rows)) return false;
  Node *mask = rows_as_mask(&r->masks, node, &rows, node->rank - 1u, (const Size *const *)node->dims, &where);
  set_mask(r, node, mask, where);
  node->attr.rows_zero = is_zero;
  record(r, node, mask, where);
  return true;
}

/* Of a product whose steps are chosen: over [..., k], or [k] where they are the same for all items. */
static Node *mask_of_steps(LiveRows *r, Node *node, const Choice *choice, bool *where) {
  const uint32_t n_lead = choice->steps.n_lead;
  bool is_shared = true;
  int32_t axes[MAX_RANK];
  for (uint32_t i = 0; i < choice->rank; i++) {
    is_shared &= i >= n_lead || !rows_have_axis(&choice->rows, i);
    axes[i] = (int32_t)i - (int32_t)n_lead;
  }
  const uint32_t skipped = is_shared ? n_lead : 0;
  const RowSet rows = is_shared ? rows_map(r->most, &choice->rows, axes) : choice->rows;
  Node *mask = rows_as_mask(&r->masks, node, &rows, choice->rank - skipped, choice->dims + skipped, where);
  const Size *dims[MAX_RANK];
  const uint32_t rank = node->rank - 1u - skipped;
  memcpy(dims, choice->dims, n_lead * sizeof *dims);
  dims[rank - 1] = node->inputs.items[0]->dims[node->inputs.items[0]->rank - 1];
  return rows_mask_view(&r->masks, mask, rank, dims);
}

static bool apply_choice(LiveRows *r, Node *node) {
  const Choice *choice = &r->choices[node->id];
  bool where;
  if (!choice->is_made) return false;
  Node *mask = choice->are_steps ? mask_of_steps(r, node, choice, &where)
                                 : rows_as_mask(&r->masks, node, &choice->rows, choice->rank, choice->dims, &where);
  set_mask(r, node, mask, where);
  node->attr.rows_are_steps = choice->are_steps;
  node->attr.rows_zero = choice->is_zero;
  record(r, node, mask, where);
  return true;
}

// ---- the pass ----

bool pass_live_rows(Pass *pass) {
  Graph *graph = pass->graph;
  LiveRows r = {.pass = pass,
                .most = 1,
                .trains = match_has_gradients(graph),
                .needs = ARENA_ARRAY(pass->scratch, RowSet, graph->next_id),
                .has_input = ARENA_ARRAY(pass->scratch, bool, graph->next_id),
                .masks = {.pass = pass}};
  find_inputs(&r);
  if (r.trains) {
    r.most = ROWS_MOST_TERMS;
    r.masks.needs_order = true;
    r.choices = ARENA_ARRAY(pass->scratch, Choice, graph->next_id);
    r.zero = zero_rows_find(pass);
  }
  find_needs(&r);
  uint32_t known = graph->next_id;
  bool changed = false;
  for (Node *node = graph->first; node; node = node->next)
    if (node->id < known) changed |= r.trains ? apply_choice(&r, node) : skip_rows(&r, node);
  if (changed) match_sort(pass);
  return changed;
}
