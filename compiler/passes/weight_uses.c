/* In: a region of a weight. Out: whether all nodes that use some of it agree to what is planned. */
#include "passes/weight_uses.h"

static bool is_view(const Node *node) { return op_table[node->op].category == CATEGORY_VIEW; }

static WeightRegion whole(Node *node) {
  WeightRegion region = {.root = node};
  for (uint32_t i = 0; i < node->rank; i++) size_is_const(node->dims[i], &region.to[i]);
  return region;
}

/* The region of the view's operand that a region of the view is. A reshape gives up: all of the operand. */
static WeightRegion behind(const WeightRegion *region) {
  const Node *view = region->root;
  WeightRegion result = whole(view->inputs.items[0]);
  if (view->op == OP_RESHAPE) return result;
  for (uint32_t i = 0; i < view->rank; i++) {
    int64_t start = 0;
    uint32_t axis = view->op == OP_PERMUTE ? view->attr.axes[i] : i;
    if (view->op == OP_SLICE) size_is_const(view->attr.starts[i], &start);
    result.from[axis] = region->from[i] + start;
    result.to[axis] = region->to[i] + start;
  }
  return result;
}

WeightRegion weight_region(Node *node, int64_t from, int64_t to) {
  WeightRegion region = whole(node);
  if (to >= 0) {
    region.from[0] = from;
    region.to[0] = to;
  }
  while (is_view(region.root)) region = behind(&region);
  return region;
}

bool weight_region_equal(const WeightRegion *a, const WeightRegion *b) {
  if (a->root != b->root) return false;
  for (uint32_t i = 0; i < a->root->rank; i++)
    if (a->from[i] != b->from[i] || a->to[i] != b->to[i]) return false;
  return true;
}

static bool overlap(const WeightRegion *a, const WeightRegion *b) {
  for (uint32_t i = 0; i < a->root->rank; i++)
    if (a->from[i] >= b->to[i] || b->from[i] >= a->to[i]) return false;
  return true;
}

bool weight_uses_agree(Pass *pass, const WeightRegion *region, WeightAgrees *agrees, const void *context) {
  VEC(Node *) views = {0};
  vec_push(pass->scratch, &views, region->root);
  for (size_t i = 0; i < views.n; i++) {
    Node *view = views.items[i];
    WeightRegion seen = weight_region(view, 0, -1);
    if (!overlap(region, &seen)) continue;
    if (graph_is_output(pass->graph, view)) return false;
    for (size_t j = 0; j < view->users.n; j++) {
      Node *user = view->users.items[j];
      if (is_view(user)) vec_push(pass->scratch, &views, user);
      else if (!agrees(context, user, view)) return false;
    }
  }
  return true;
}
