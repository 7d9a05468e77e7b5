/* Siblings: projections of one input become one, and so do the rotations of its heads.
 *
 * In: projections of the same tensor, queries, keys and values above all. Out: one product with the weights behind
 * each other, of which the siblings are slices. Refused where a weight is used elsewhere in another way: it would be
 * copied. */
#include <string.h>

#include "graph/attributes.h"
#include "passes/match.h"

// ---- fuse-qkv ----

/* Sibling projections of one input become one.
 *
 *   %4 = linear %x, %wq                   %4 = concat %wq, %wk, %wv, axis=0        static: the weight's recipe
 *   %5 = add %4, %bq                      %5 = linear %x, %4
 *   %6 = linear %x, %wk          ->       %6 = add %5, (concat %bq, (full 0.0), %bv, axis=0)
 *   %7 = linear %x, %wv                   %7 = slice %6, starts=[0, 0, 0]          views: q, k, v
 *   %8 = add %7, %bv                      ...
 *
 * Legal:
 *   1. siblings have the same input, weights that are known before any run, and biases of one axis or none;
 *   2. they belong together: they feed the same attention, or, where there is none, stand in the same module;
 *   3. what becomes of each is used through views: a projection with an activation or a gate keeps it as an epilogue,
 *      which saves more than merging; outputs of the model are not merged, they would be copied;
 *   4. every other use of the weights is merged in the same way, else they would be packed twice.
 * A column of a product depends on its own row of the weight alone, and its sum runs over k in the same order whichever
 * columns stand beside it; so merging keeps the bits. A sibling without a bias gets zeros, and x + 0 is x but for -0.
 * Pays: one pass over the input, fewer barriers. K and V of the memory in a decoder are siblings too. */

typedef struct Sibling {
  Node *linear, *result; /* result: the ADD of the bias, or the linear */
  Node *bias;            /* NULL */
  const Node *attention; /* NULL */
  int32_t group;         /* -1: alone */
  int32_t next;          /* the next of its group; -1: the last */
} Sibling;

typedef struct Siblings {
  Pass *pass;
  VEC(Sibling) items;
  VEC(int32_t) firsts; /* of each group: its first sibling */
  /* By the id of a linear: its sibling; -1: none. A layer that is applied n times gives 3 n siblings whose weights have
   * n users each: looking one of them up must not take a walk over all. */
  int32_t *of_node;
} Siblings;

// ---- what may be merged ----

static bool is_bias(Pass *pass, const Node *bias, const Node *linear) {
  return bias->rank == 1 && bias->dims[0] == dim_from_end(linear, 0) && match_is_static(pass, bias);
}

/* linear + bias, in either order; the bias or NULL. */
static Node *bias_of(Pass *pass, const Node *linear, const Node *add) {
  if (!add || add->op != OP_ADD) return NULL;
  for (unsigned i = 0; i < 2; i++)
    if (add->inputs.items[i] == linear && is_bias(pass, add->inputs.items[1 - i], linear))
      return add->inputs.items[1 - i];
  return NULL;
}

static bool has_pointwise_user(const Node *node) {
  for (size_t i = 0; i < node->users.n; i++)
    if (op_is_pointwise(node->users.items[i]->op)) return true;
  return false;
}

/* Operations that may stand between a projection and its attention: views, rotations, norms of heads, appended keys. */
static bool carries(const Node *node) {
  return op_table[node->op].category == CATEGORY_VIEW || node->op == OP_ROTARY || node->op == OP_CONCAT ||
         node->op == OP_LAYER_NORM || node->op == OP_RMS_NORM;
}

/* The nearest attention that is computed from the projection; NULL: none within the limit, which bounds the walk. */
static const Node *attention_fed_by(Pass *pass, const Node *result) {
  enum { MAX_LOOKED_AT = 64 };
  VEC(const Node *) pending = {0};
  vec_push(pass->scratch, &pending, result);
  for (size_t i = 0; i < pending.n && i < MAX_LOOKED_AT; i++)
    for (size_t j = 0; j < pending.items[i]->users.n; j++) {
      const Node *user = pending.items[i]->users.items[j];
      if (user->op == OP_ATTENTION) return user;
      if (carries(user)) vec_push(pass->scratch, &pending, user);
    }
  return NULL;
}

static void add_if_mergeable(Siblings *s, Node *linear) {
  Pass *pass = s->pass;
  if (linear->attr.expr || !match_is_static(pass, linear->inputs.items[1]) || match_is_static(pass, linear)) return;
  Sibling sibling = {.linear = linear, .result = linear, .group = -1, .next = -1};
  Node *user = match_only_user(pass, linear);
  sibling.bias = bias_of(pass, linear, user);
  if (sibling.bias) sibling.result = user;
  if (has_pointwise_user(sibling.result) || graph_is_output(pass->graph, sibling.result)) return;
  sibling.attention = attention_fed_by(pass, sibling.result);
  s->of_node[linear->id] = (int32_t)s->items.n;
  vec_push(pass->scratch, &s->items, sibling);
}

// ---- groups ----

/* Without an attention the module path decides: gate and up of one feed-forward, not projections of two layers that
 * happen to read the same tensor. */
static bool belong_together(const Sibling *a, const Sibling *b) {
  if (a->linear->inputs.items[0] != b->linear->inputs.items[0] || a->attention != b->attention) return false;
  const NodeAttr *of_a = &a->linear->attr, *of_b = &b->linear->attr;
  if (of_a->form != of_b->form) return false;
  return a->attention || match_sibling_paths(a->linear->origin.path, b->linear->origin.path);
}

/* Siblings join the group of the first that they belong to. Only those of one input are compared. */
static void form_groups(Siblings *s) {
  Map last_of_input = map_new(s->pass->scratch); /* address of an input -> its latest sibling, counted from 1 */
  int32_t *before = ARENA_ARRAY(s->pass->scratch, int32_t, s->items.n + 1);
  int32_t *last = ARENA_ARRAY(s->pass->scratch, int32_t, s->items.n + 1); /* of a group */
  for (int32_t i = 0; i < (int32_t)s->items.n; i++) {
    Sibling *sibling = &s->items.items[i];
    const Node *input = sibling->linear->inputs.items[0];
    const MapEntry *known = map_find(&last_of_input, &input, sizeof input);
    before[i] = known ? (int32_t)(intptr_t)known->value - 1 : -1;
    map_put_n(&last_of_input, &input, sizeof input, (void *)(intptr_t)(i + 1));
    int32_t first = -1;
    for (int32_t other = before[i]; other >= 0; other = before[other])
      if (belong_together(&s->items.items[other], sibling)) first = other;
    if (first < 0) continue;
    Sibling *a = &s->items.items[first];
    if (a->group < 0) {
      a->group = (int32_t)s->firsts.n;
      last[a->group] = first;
      vec_push(s->pass->scratch, &s->firsts, first);
    }
    sibling->group = a->group;
    s->items.items[last[a->group]].next = i;
    last[a->group] = i;
  }
}

/* The member after the i-th sibling, or the first of the group if *i is -1; NULL: no more. */
static const Sibling *next_member(const Siblings *s, int32_t *i, int32_t group) {
  *i = *i < 0 ? s->firsts.items[group] : s->items.items[*i].next;
  return *i < 0 ? NULL : &s->items.items[*i];
}

/* Whether two groups merge the same weights and biases in the same order: then they can share one packed weight. */
static bool same_weights(const Siblings *s, int32_t a, int32_t b) {
  int32_t i = -1, j = -1;
  const Sibling *x, *y;
  do {
    x = next_member(s, &i, a);
    y = next_member(s, &j, b);
    if (x && y && (x->linear->inputs.items[1] != y->linear->inputs.items[1] || x->bias != y->bias)) return false;
  } while (x && y);
  return x == y;
}

// ---- the other users of the weights ----

typedef struct Asked {
  const Siblings *siblings;
  int32_t group;
} Asked;

static bool merged_alike(const void *context, const Node *user, const Node *as) {
  const Asked *asked = context;
  int32_t number = asked->siblings->of_node[user->id];
  const Sibling *other = number < 0 ? NULL : &asked->siblings->items.items[number];
  if (!other || other->group < 0 || user->inputs.items[1] != as) return false;
  return other->group == asked->group || same_weights(asked->siblings, other->group, asked->group);
}

static bool weights_agree(const Siblings *s, int32_t group) {
  Asked asked = {s, group};
  const Sibling *member;
  for (int32_t i = -1; (member = next_member(s, &i, group));) {
    WeightRegion region = weight_region(member->linear->inputs.items[1], 0, -1);
    if (!weight_uses_agree(s->pass, &region, merged_alike, &asked)) return false;
  }
  return true;
}

/* For every group whether its weights agree. Groups of the same weights, such as those of a layer that is applied many
 * times, have the same answer, which is found once: the uses of their weights are as many as the groups. */
static const bool *find_agreement(const Siblings *s) {
  Arena *arena = s->pass->scratch;
  Map groups = map_new(arena); /* address of the first weight -> the first group that has it, counted from 1 */
  bool *agreed = ARENA_ARRAY(arena, bool, s->firsts.n + 1);
  for (int32_t group = 0; group < (int32_t)s->firsts.n; group++) {
    const Node *weight = s->items.items[s->firsts.items[group]].linear->inputs.items[1];
    const MapEntry *known = map_find(&groups, &weight, sizeof weight);
    int32_t earlier = known ? (int32_t)(intptr_t)known->value - 1 : -1;
    if (earlier < 0) map_put_n(&groups, &weight, sizeof weight, (void *)(intptr_t)(group + 1));
    bool is_known = earlier >= 0 && same_weights(s, earlier, group);
    agreed[group] = is_known ? agreed[earlier] : weights_agree(s, group);
  }
  return agreed;
}

// ---- the merged projection ----

/* The biases behind each other, zeros where a member has none; NULL: no member has one. */
static Node *merged_bias(const Siblings *s, Builder *b, int32_t group) {
  VEC(Node *) parts = {0};
  bool any = false;
  const Sibling *member;
  for (int32_t i = -1; (member = next_member(s, &i, group));) any |= member->bias != NULL;
  if (!any) return NULL;
  for (int32_t i = -1; (member = next_member(s, &i, group));) {
    Node *zeros = member->bias ? NULL : build_full(b, 0, 1, &member->linear->inputs.items[1]->dims[0]);
    vec_push(s->pass->scratch, &parts, member->bias ? member->bias : zeros);
  }
  return build_concat(b, (uint32_t)parts.n, parts.items, 0);
}

/* Replaces the members by slices of one projection. */
static void merge(const Siblings *s, int32_t group) {
  Pass *pass = s->pass;
  VEC(Node *) weights = {0};
  const Sibling *member, *first = NULL;
  for (int32_t i = -1; (member = next_member(s, &i, group));) {
    if (!first) first = member;
    vec_push(pass->scratch, &weights, member->linear->inputs.items[1]);
  }
  Builder b = pass_builder(pass, first->linear, first->linear);
  Node *weight = build_concat(&b, (uint32_t)weights.n, weights.items, 0);
  Node *merged = build_linear(&b, first->linear->inputs.items[0], weight);
  attributes_take_forms(&merged->attr, &first->linear->attr);
  Node *bias = merged_bias(s, &b, group);
  if (bias) merged = build_binary(&b, OP_ADD, merged, bias);
  pass_record(pass, FUSION_QKV, true, first->linear, "%zu projections of one input as one", weights.n);
  int64_t column = 0, n;
  for (int32_t i = -1; (member = next_member(s, &i, group)); column += n) {
    size_is_const(dim_from_end(member->linear, 0), &n);
    Builder here = pass_builder(pass, first->linear, member->linear);
    graph_replace_uses(pass->graph, member->result, match_slice(&here, merged, merged->rank - 1u, column, n));
  }
  for (int32_t i = -1; (member = next_member(s, &i, group));) match_delete_unused(pass, member->result);
}

bool pass_fuse_qkv(Pass *pass) {
  Siblings s = {.pass = pass, .of_node = ARENA_ARRAY(pass->scratch, int32_t, pass->graph->next_id + 1)};
  memset(s.of_node, -1, (pass->graph->next_id + 1) * sizeof *s.of_node);
  for (Node *node = pass->graph->first; node; node = node->next)
    if (node->op == OP_LINEAR) add_if_mergeable(&s, node);
  form_groups(&s);
  const int32_t n_groups = (int32_t)s.firsts.n;
  const bool *agreed = find_agreement(&s);
  bool changed = false;
  for (int32_t group = 0; group < n_groups; group++) {
    int32_t i = -1;
    if (agreed[group]) merge(&s, group);
    else pass_record(pass, FUSION_QKV, false, next_member(&s, &i, group)->linear,
                     "a weight is used elsewhere too, it would be packed twice");
    changed |= agreed[group];
  }
  if (changed) match_sort(pass);
  return changed;
}

// ---- fuse-rotary ----

/* Rotations of neighbouring heads become one.
 *
 *   %4 = slice %p : [b, t, 4*h]                              %4 = slice %p : [b, t, 6*h]
 *   %5 = rotary (permute (reshape %4 : [b, t, 4, h])), %pos  %5 = rotary (permute (reshape %4 : [b, t, 6, h])), %pos
 *   %6 = slice %p : [b, t, 2*h], right behind                %6 = slice %5 : heads 0 to 4
 *   %7 = rotary (permute (reshape %6 : [b, t, 2, h])), %pos  %7 = slice %5 : heads 4 to 6
 *
 * Legal:
 *   1. both are columns of one tensor, one right behind the other, split into heads of one width in the same way;
 *   2. positions, base and layout are the same, and the positions are those of every head.
 * A rotation works on each head alone, so the bits stay.
 * Runs behind fuse-qkv, which made queries and keys columns of one tensor. Pays: one operation less per layer. */

typedef struct Rotation {
  Node *rotary;
  const Node *permute, *reshape, *slice; /* from the heads back to the columns */
  int64_t from, columns, heads;
} Rotation;

static bool only_last_axis_is_cut(const Node *slice) {
  const Node *x = slice->inputs.items[0];
  return !memcmp(slice->dims, x->dims, (slice->rank - 1u) * sizeof *slice->dims);
}

/* [..., t, n*h] -> [..., t, n, h] */
static bool splits_last_axis(const Node *reshape) {
  const Node *x = reshape->inputs.items[0];
  return reshape->rank == x->rank + 1 && !memcmp(reshape->dims, x->dims, (x->rank - 1u) * sizeof *x->dims);
}

/* Fills in `r` if the operand is permute(reshape(slice)) as above, with sizes that are known. */
static bool match_rotation(Node *rotary, Rotation *r) {
  r->rotary = rotary;
  r->permute = rotary->inputs.items[0];
  if (r->permute->op != OP_PERMUTE || r->permute->rank < 4) return false;
  r->reshape = r->permute->inputs.items[0];
  uint32_t rank = r->permute->rank;
  if (r->reshape->op != OP_RESHAPE || !splits_last_axis(r->reshape)) return false;
  if (r->permute->attr.axes[rank - 3] != rank - 2 || r->permute->attr.axes[rank - 1] != rank - 1) return false;
  r->slice = r->reshape->inputs.items[0];
  if (r->slice->op != OP_SLICE || !only_last_axis_is_cut(r->slice)) return false;
  const Node *pos = rotary->inputs.items[1];
  bool per_head = pos->rank >= 2 && !dim_is_one(dim_from_end(pos, 1));
  return !per_head && size_is_const(r->slice->attr.starts[r->slice->rank - 1], &r->from) &&
         size_is_const(dim_from_end(r->slice, 0), &r->columns) && size_is_const(dim_from_end(r->reshape, 1), &r->heads);
}

/* Whether b's columns begin where a's end and everything else is the same. */
static bool is_behind(const Rotation *a, const Rotation *b) {
  const Node *x = a->rotary, *y = b->rotary;
  return a->slice->inputs.items[0] == b->slice->inputs.items[0] && a->from + a->columns == b->from &&
         dim_from_end(x, 0) == dim_from_end(y, 0) && x->inputs.items[1] == y->inputs.items[1] &&
         x->attr.base == y->attr.base && x->attr.interleaved == y->attr.interleaved && x->rank == y->rank &&
         !memcmp(a->permute->attr.axes, b->permute->attr.axes, x->rank);
}

static void merge_rotations(Pass *pass, const Rotation *a, const Rotation *b, Node *before) {
  Builder build = pass_builder(pass, before, a->rotary);
  Node *packed = a->slice->inputs.items[0];
  Node *columns = match_slice(&build, packed, packed->rank - 1u, a->from, a->columns + b->columns);
  const Size *dims[MAX_RANK];
  memcpy(dims, a->reshape->dims, sizeof dims);
  uint32_t rank = a->reshape->rank;
  dims[rank - 2] = size_const(pass->graph->sizes, a->heads + b->heads);
  Node *heads = build_permute(&build, build_reshape(&build, columns, rank, dims), a->permute->attr.axes);
  Node *rotated =
      build_rotary(&build, heads, a->rotary->inputs.items[1], a->rotary->attr.base, a->rotary->attr.interleaved);
  Node *first = match_slice(&build, rotated, rank - 3u, 0, a->heads);
  Node *second = match_slice(&build, rotated, rank - 3u, a->heads, b->heads);
  match_replace(pass, a->rotary, first);
  match_replace(pass, b->rotary, second);
}

bool pass_fuse_rotary(Pass *pass) {
  VEC(Rotation) found = {0};
  Rotation rotation;
  for (Node *node = pass->graph->first; node; node = node->next)
    if (node->op == OP_ROTARY && match_rotation(node, &rotation)) vec_push(pass->scratch, &found, rotation);
  bool changed = false;
  for (size_t i = 0; i < found.n; i++) {
    for (size_t j = 0; j < found.n; j++) {
      const Rotation *a = &found.items[i], *b = &found.items[j];
      if (a->rotary->deleted || b->rotary->deleted || !is_behind(a, b)) continue;
      merge_rotations(pass, a, b, i < j ? a->rotary : b->rotary);
      changed = true;
    }
  }
  return changed;
}
