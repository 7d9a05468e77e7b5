/* In: static values. Out: the form that holds their elements. See stored.h.
 *
 * Numbers of MXFP4 stand for themselves only with the power of their block, 32 neighbours along one axis of the weight:
 * a product can keep them so if its sums run along that axis, and whatever moved the weight left blocks whole and in
 * their order. Each number alone is exact in bf16. */
#include "graph/stored.h"

#include "graph/graph.h"
#include "tfm/abi/kernels.h"

const char *const stored_names[N_STORED] = {"", "f32", "bf16", "f16", "mxfp4"};

bool node_moves_elements(const Node *node) {
  return op_table[node->op].category == CATEGORY_VIEW || node->op == OP_CONCAT || node->op == OP_EVERY;
}

tfm_form node_form(const Node *node) {
  static const tfm_form of_file[N_STORED] = {TFM_FORM_F32, TFM_FORM_F32, TFM_FORM_BF16, TFM_FORM_F16, TFM_FORM_BF16};
  if (node->op == OP_ROUND_TO) return tfm_form_has_scales(node->attr.form) ? TFM_FORM_F32 : node->attr.form;
  if (node->op == OP_WEIGHT || (node->op == OP_INPUT && node->dtype == DTYPE_F32)) return of_file[node->attr.stored];
  if (!node_moves_elements(node)) return TFM_FORM_F32;
  const tfm_form form = node_form(node->inputs.items[0]);
  for (size_t i = 1; i < node->inputs.n; i++)
    if (node_form(node->inputs.items[i]) != form) return TFM_FORM_F32;
  return form;
}

// ---- blocks ----

static bool has_blocks(const Node *node, uint32_t axis);

static bool is_whole(const Size *size) {
  int64_t n;
  return size_is_const(size, &n) && n % TFM_GROUP == 0;
}

/* The product of the axes before `axis`; -1: it is not known. */
static int64_t elements_before(const Node *node, uint32_t axis) {
  int64_t product = 1, n;
  for (uint32_t i = 0; i < axis; i++) {
    if (!size_is_const(node->dims[i], &n)) return -1;
    product *= n;
  }
  return product;
}

/* The axis of what is reshaped that becomes `axis` as it is. */
static bool reshaped_has_blocks(const Node *node, uint32_t axis) {
  const Node *from = node->inputs.items[0];
  const int64_t before = elements_before(node, axis);
  for (uint32_t i = 0; i < from->rank && before >= 0; i++)
    if (from->dims[i] == node->dims[axis] && elements_before(from, i) == before) return has_blocks(from, i);
  return false;
}

static bool joined_has_blocks(const Node *node, uint32_t axis) {
  for (size_t i = 0; i < node->inputs.n; i++) {
    const Node *part = node->inputs.items[i];
    if (!is_whole(part->dims[axis]) || !has_blocks(part, axis)) return false;
  }
  return node->inputs.n > 0;
}

/* Whether the elements of each 32 neighbours along the axis, from the first on, are those of a block of the file. */
static bool has_blocks(const Node *node, uint32_t axis) {
  if (!is_whole(node->dims[axis])) return false;
  switch (node->op) {
    case OP_WEIGHT: return node->attr.stored == STORED_MXFP4 && node->rank >= 2 && axis == node->rank - 2u;
    case OP_SLICE: return is_whole(node->attr.starts[axis]) && has_blocks(node->inputs.items[0], axis);
    case OP_EVERY: return (uint32_t)node->attr.axis != axis && has_blocks(node->inputs.items[0], axis);
    case OP_PERMUTE: return has_blocks(node->inputs.items[0], node->attr.axes[axis]);
    case OP_RESHAPE: return reshaped_has_blocks(node, axis);
    case OP_CONCAT: return joined_has_blocks(node, axis);
    default: return false;
  }
}

tfm_form node_product_form(const Node *product) {
  const Node *w = product->inputs.items[1];
  int64_t k = 0;
  if (product->attr.form == TFM_FORM_F32)
    return product->op == OP_LINEAR && has_blocks(w, 1) ? TFM_FORM_MXFP4 : node_form(w);
  size_is_const(w->dims[w->rank - 1u], &k);
  return tfm_form_of_row(product->attr.form, k);
}
