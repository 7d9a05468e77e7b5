/* Constant factors move into weights: they are packed once, the products run always.
 *
 *   %4 = linear %x, %w                       %5 = mul %w, 0.125          static: part of the weight's recipe
 *   %5 = attention ... mul(acc, 0.125)       %4 = linear %x, %5
 *   %6 = mul (linear %x, %w), 0.5            %6 = linear %x, (mul %w, 0.5)
 *   %7 = mul (gather %table, %ids), 22.6     %7 = gather (mul %table, 22.6), %ids
 *
 * Legal:
 *   1. the factor lies on all that the projection makes (or, where q is a part of the columns, on all of that part),
 *      through views and rotations that nobody else uses; a bias between is scaled too;
 *   2. every use of these rows of the weight agrees, else the weight would be copied: then the factor stays where it
 *      is, in an expression;
 *   3. the factor is a normal number: the results differ by one rounding. A power of two, such as 1/8 of heads 64 wide,
 *      changes none.
 * A factor that lies on no projection is recorded for attention alone: elsewhere it costs nothing in an epilogue.
 * Runs before siblings are merged, so that in a merged projection only the rows of q are scaled. */
#include <math.h>

#include "passes/match.h"

/* A factor and the weight that could take it. All are collected before any is applied, because whether one may be
 * depends on the others: a shared weight moves only if all its users want the same factor. */
typedef struct FoldCandidate {
  Node *scaled;       /* MUL by the factor, or an ATTENTION whose acc is multiplied by it */
  Node *linear;       /* LINEAR, or GATHER from a table */
  Node *add;          /* the bias: NULL or ADD */
  uint32_t bias_input;
  int64_t from, to;   /* columns of the projection; to = -1: all */
  double factor;
  WeightRegion region;
  bool agreed;
  int32_t next_of_linear, next_of_add; /* the candidate before that has the same; -1: none */
} FoldCandidate;

typedef struct FoldedTensor {
  const Node *tensor;
  int64_t from, to;
  double factor;
  Node *folded;
} FoldedTensor;

typedef struct Folding {
  Pass *pass;
  VEC(FoldCandidate) candidates;
  int32_t *of_linear, *of_add; /* by the id of a node: its last candidate; -1: none */
  VEC(FoldedTensor) folded; /* what was scaled already: shared weights are scaled once */
} Folding;

// ---- a factor that was found: the weight and bias are scaled in a static subgraph, the factor goes ----

/* Rows [from, to) times the factor; the scaled tensor stands right behind the old one, before all of its users. */
static Node *scaled_rows(Pass *pass, Node *tensor, const FoldCandidate *c) {
  Builder b = pass_builder(pass, tensor->next, tensor);
  int64_t rows;
  size_is_const(tensor->dims[0], &rows);
  int64_t from = c->to < 0 ? 0 : c->from, to = c->to < 0 ? rows : c->to;
  Node *part = match_slice(&b, tensor, 0, from, to - from);
  Node *product = build_binary(&b, OP_MUL, part, build_scalar(&b, DTYPE_F32, c->factor, 0));
  Node *parts[3];
  uint32_t n = 0;
  if (from > 0) parts[n++] = match_slice(&b, tensor, 0, 0, from);
  parts[n++] = product;
  if (to < rows) parts[n++] = match_slice(&b, tensor, 0, to, rows - to);
  return n == 1 ? product : build_concat(&b, n, parts, 0);
}

/* The scaled tensor, made once for each tensor, range of rows and factor. */
static Node *folded(Folding *f, Node *tensor, const FoldCandidate *c) {
  for (size_t i = 0; i < f->folded.n; i++) {
    const FoldedTensor *known = &f->folded.items[i];
    if (known->tensor == tensor && known->from == c->from && known->to == c->to && known->factor == c->factor)
      return known->folded;
  }
  FoldedTensor result = {tensor, c->from, c->to, c->factor, scaled_rows(f->pass, tensor, c)};
  vec_push(f->pass->scratch, &f->folded, result);
  return result.folded;
}

/* acc * factor -> acc. factor_of_acc made sure that every use of acc is such a product. */
static Expr *without_factor(Pass *pass, const Expr *expr) {
  Arena *arena = pass->graph->arena;
  ExprList list = expr_list(pass->scratch, expr);
  Expr **copies = ARENA_ARRAY(pass->scratch, Expr *, list.n);
  for (uint32_t i = 0; i < list.n; i++) {
    const Expr *old = list.items[i];
    bool product = old->n_args && old->args[0]->kind == EXPR_ACC;
    copies[i] = product ? expr_acc(arena) : arena_copy(arena, old, sizeof *old);
    for (uint32_t j = 0; j < copies[i]->n_args; j++) copies[i]->args[j] = copies[list.args[j][i]];
  }
  return copies[list.n - 1];
}

/* Scales weight and bias, and takes the factor out: (x wT + b) f = x (w f)T + b f. */
static void fold_apply(Folding *f, const FoldCandidate *c) {
  Pass *pass = f->pass;
  uint32_t weight = c->linear->op == OP_GATHER ? 0 : 1;
  graph_set_input(c->linear, weight, folded(f, c->linear->inputs.items[weight], c));
  if (c->add) graph_set_input(c->add, c->bias_input, folded(f, c->add->inputs.items[c->bias_input], c));
  pass_record(pass, FUSION_WEIGHT_FOLD, true, c->scaled, "the factor %g is in the weight of %s", c->factor,
              op_table[c->linear->op].name);
  if (c->scaled->op == OP_ATTENTION) {
    Expr *expr = without_factor(pass, c->scaled->attr.expr);
    c->scaled->attr.expr = expr->kind == EXPR_ACC ? NULL : expr;
    return;
  }
  match_replace(pass, c->scaled, c->scaled->inputs.items[0]);
}

// ---- which projections ----

static bool is_static_bias(Pass *pass, const Node *bias, const Node *linear) {
  return match_is_static(pass, bias) && bias->rank == 1 && bias->dims[0] == dim_from_end(linear, 0);
}

/* linear, or linear + bias; false if it is anything else. */
static bool match_projection(Pass *pass, Node *node, FoldCandidate *c) {
  c->add = NULL;
  c->linear = node;
  if (node->op == OP_ADD) {
    Node *x = node->inputs.items[0], *y = node->inputs.items[1];
    bool bias_left = y->op == OP_LINEAR && x->op != OP_LINEAR;
    c->add = node;
    c->bias_input = bias_left ? 0 : 1;
    c->linear = bias_left ? y : x;
    if (c->linear->op != OP_LINEAR || match_only_user(pass, c->linear) != node) return false;
    if (!is_static_bias(pass, node->inputs.items[c->bias_input], c->linear)) return false;
  }
  if (c->linear->op != OP_LINEAR || c->linear->attr.expr) return false;
  return match_is_static(pass, c->linear->inputs.items[1]);
}

/* The columns alone: rows that no slice has are used by nobody. */
static bool columns_of_slice(const Node *slice, int64_t *from, int64_t *to) {
  int64_t length;
  uint32_t last = slice->rank - 1u;
  if (!size_is_const(slice->attr.starts[last], from) || !size_is_const(slice->dims[last], &length)) return false;
  *to = *from + length;
  return true;
}

/* A part of a packed projection: every other use is a slice of other columns. */
static bool match_part(Pass *pass, Node *slice, FoldCandidate *c) {
  Node *packed = slice->inputs.items[0];
  int64_t from, to;
  if (!columns_of_slice(slice, &from, &to) || graph_is_output(pass->graph, packed)) return false;
  for (size_t i = 0; i < packed->users.n; i++) {
    Node *other = packed->users.items[i];
    int64_t other_from, other_to;
    if (other == slice) continue;
    if (other->op != OP_SLICE || !columns_of_slice(other, &other_from, &other_to)) return false;
    if (other_from < to && from < other_to) return false;
  }
  if (!match_projection(pass, packed, c)) return false;
  c->from = from;
  c->to = to;
  return true;
}

/* One use, not just one user: the attention of x with itself uses x three times, and only q may be scaled. */
static bool used_once_by(const Pass *pass, const Node *node, const Node *user) {
  return node->users.n == 1 && match_only_user(pass, node) == user;
}

/* Why the factor on `node` cannot move to a weight; NULL if it can: then the candidate is complete. */
static const char *match_source(Pass *pass, Node *node, const Node *user, FoldCandidate *c) {
  c->from = 0;
  c->to = -1;
  for (;;) {
    if (node->op == OP_SLICE && used_once_by(pass, node, user) && match_part(pass, node, c)) return NULL;
    if (!used_once_by(pass, node, user)) return "what it lies on is used elsewhere too";
    /* A rotation is linear: rotating what is scaled gives what is rotated, scaled. */
    if (op_table[node->op].category != CATEGORY_VIEW && node->op != OP_ROTARY) break;
    user = node;
    node = node->inputs.items[0];
  }
  if (node->op == OP_GATHER && match_is_static(pass, node->inputs.items[0])) {
    c->linear = node;
    return NULL;
  }
  return match_projection(pass, node, c) ? NULL : "what it lies on is no projection by a weight";
}

// ---- which factors ----

static bool is_moderate(double number) { return fabs(number) >= 0x1p-60 && fabs(number) <= 0x1p60; }

/* The factor on acc, if every use of acc is this product with it. */
static bool factor_of_acc(Pass *pass, const Expr *expr, double *factor) {
  if (!expr) return false;
  ExprList list = expr_list(pass->scratch, expr);
  bool found = false;
  for (uint32_t i = 0; i < list.n; i++) {
    const Expr *op = list.items[i];
    for (uint32_t j = 0; j < op->n_args; j++) {
      if (op->args[j]->kind != EXPR_ACC) continue;
      bool product = op->op == OP_MUL && j == 0 && op->args[1]->kind == EXPR_CONST;
      if (!product || (found && op->args[1]->number != *factor)) return false;
      *factor = op->args[1]->number;
      found = true;
    }
  }
  return found && is_moderate(*factor);
}

/* With the factor a weight would have to be kept in f32. A rule for 16 bits asks for these; what a file happens to
 * store so must have the results of f32, which a factor keeps wherever it stands if it is a power of two. Of 4 bits f32
 * would be eight times as much. */
static bool stays_in_16_bits(const Node *weight, double factor) {
  int exponent;
  if (weight->op == OP_ROUND_TO && !tfm_form_has_scales(weight->attr.form)) return true;
  if (weight->op == OP_WEIGHT && stored_table[weight->attr.stored].axis) return true;
  return weight->op == OP_WEIGHT && node_form(weight) != TFM_FORM_F32 && fabs(frexp(factor, &exponent)) == 0.5;
}

static void add_candidate(Folding *f, Node *scaled, Node *source, double factor) {
  FoldCandidate c = {.scaled = scaled, .factor = factor};
  const char *reason = match_source(f->pass, source, scaled, &c);
  if (reason) {
    if (scaled->op == OP_ATTENTION)
      pass_record(f->pass, FUSION_WEIGHT_FOLD, false, scaled, "the factor %g stays on the scores: %s", factor, reason);
    return;
  }
  uint32_t weight = c.linear->op == OP_GATHER ? 0 : 1;
  c.region = weight_region(c.linear->inputs.items[weight], c.from, c.to);
  if (c.linear->attr.form != TFM_FORM_F32) {
    pass_record(f->pass, FUSION_WEIGHT_FOLD, false, scaled,
                "the factor %g stays in an expression: the weight has 8 bits", factor);
    return;
  }
  if (weight == 1 && stays_in_16_bits(c.region.root, factor)) {
    pass_record(f->pass, FUSION_WEIGHT_FOLD, false, scaled,
                "the factor %g stays in an expression: the weight has 16 bits", factor);
    return;
  }
  /* A row gains little, and the whole table would be packed twice. */
  if (c.linear->op == OP_GATHER && c.region.root->attr.is_shared) return;
  vec_push(f->pass->scratch, &f->candidates, c);
}

static void find_candidates(Folding *f) {
  double factor;
  for (Node *node = f->pass->graph->first; node; node = node->next) {
    if (node->op == OP_ATTENTION && factor_of_acc(f->pass, node->attr.expr, &factor))
      add_candidate(f, node, node->inputs.items[0], factor);
    if (node->op == OP_MUL && node->dtype == DTYPE_F32 && match_number(node->inputs.items[1], &factor) &&
        is_moderate(factor) && node_same_shape(node, node->inputs.items[0]))
      add_candidate(f, node, node->inputs.items[0], factor);
  }
}

// ---- whether the weight's users agree ----

/* Candidates by the ids of their nodes: a weight that is used n times has n candidates, and each of them asks for the
 * candidates of all its users. */
typedef struct Asked {
  const Folding *folding;
  const FoldCandidate *candidate;
} Asked;

static void index_candidates(Folding *f) {
  const size_t n = f->pass->graph->next_id;
  f->of_linear = ARENA_ARRAY(f->pass->scratch, int32_t, n + 1);
  f->of_add = ARENA_ARRAY(f->pass->scratch, int32_t, n + 1);
  for (size_t i = 0; i <= n; i++) f->of_linear[i] = f->of_add[i] = -1;
  for (int32_t i = 0; i < (int32_t)f->candidates.n; i++) {
    FoldCandidate *c = &f->candidates.items[i];
    c->next_of_linear = f->of_linear[c->linear->id];
    f->of_linear[c->linear->id] = i;
    if (!c->add) continue;
    c->next_of_add = f->of_add[c->add->id];
    f->of_add[c->add->id] = i;
  }
}

/* Whether another user of these rows is a candidate for the same factor on the same rows. */
static bool agrees(const void *context, const Node *user, const Node *as) {
  const Asked *asked = context;
  const FoldCandidate *candidates = asked->folding->candidates.items;
  for (int32_t i = asked->folding->of_linear[user->id]; i >= 0; i = candidates[i].next_of_linear)
    if (user->inputs.items[user->op == OP_GATHER ? 0 : 1] == as && candidates[i].factor == asked->candidate->factor &&
        weight_region_equal(&candidates[i].region, &asked->candidate->region))
      return true;
  return false;
}

static bool bias_agrees(const void *context, const Node *user, const Node *as) {
  const Asked *asked = context;
  const FoldCandidate *candidates = asked->folding->candidates.items;
  for (int32_t i = asked->folding->of_add[user->id]; i >= 0; i = candidates[i].next_of_add) {
    const FoldCandidate *other = &candidates[i];
    if (user->inputs.items[other->bias_input] == as && other->from == asked->candidate->from &&
        other->to == asked->candidate->to && other->factor == asked->candidate->factor)
      return true;
  }
  return false;
}

/* The weight must agree, and the bias if there is one: both are scaled, or neither. */
static bool all_agree(Folding *f, const FoldCandidate *c) {
  Asked asked = {f, c};
  if (!weight_uses_agree(f->pass, &c->region, agrees, &asked)) return false;
  if (!c->add) return true;
  WeightRegion bias = weight_region(c->add->inputs.items[c->bias_input], c->from, c->to);
  return weight_uses_agree(f->pass, &bias, bias_agrees, &asked);
}

bool pass_fold_weights(Pass *pass) {
  Folding f = {.pass = pass};
  find_candidates(&f);
  index_candidates(&f);
  for (size_t i = 0; i < f.candidates.n; i++) f.candidates.items[i].agreed = all_agree(&f, &f.candidates.items[i]);
  bool changed = false;
  for (size_t i = 0; i < f.candidates.n; i++) {
    const FoldCandidate *c = &f.candidates.items[i];
    if (c->agreed) {
      fold_apply(&f, c);
      changed = true;
    } else {
      pass_record(pass, FUSION_WEIGHT_FOLD, false, c->scaled,
                  "the factor %g stays in an expression: the weight is used elsewhere too",
                  c->factor);
    }
  }
  return changed;
}
