/* In: static values. Out: the form that holds their elements. See stored.h.
 *
 * Numbers of 4 bits stand for themselves only with the scale of their group, neighbours along one axis of the weight:
 * a product can keep them so if its sums run along that axis, and whatever moved the weight left groups whole and in
 * their order. */
#include "graph/stored.h"

#include "graph/graph.h"
#include "tfm/abi/kernels.h"

const StoredRow stored_table[N_STORED] = {
#define STORED(ENUM, name, letter, FORM, PRODUCT, axis, title) \
  {name, letter, TFM_FORM_##FORM, TFM_FORM_##PRODUCT, axis, title},
#include "graph/stored.def"
};

static int64_t group_of(tfm_form form) { return tfm_form_row_of(form)->group; }

Stored stored_in_groups(tfm_form form, int64_t group) {
  Stored best = STORED_ANY;
  for (Stored stored = STORED_F32; stored < N_STORED; stored++) {
    const StoredRow *row = &stored_table[stored], *known = &stored_table[best];
    if (row->form != form || (row->axis && (row->axis != 1 || group % group_of(row->product)))) continue;
    if (!best || group_of(row->product) > group_of(known->product)) best = stored;
  }
  return best == STORED_F32 ? STORED_ANY : best;
}

bool node_moves_elements(const Node *node) {
  return op_table[node->op].category == CATEGORY_VIEW || node->op == OP_CONCAT || node->op == OP_EVERY;
}

tfm_form node_form(const Node *node) {
  if (node->op == OP_ROUND_TO) return tfm_form_has_scales(node->attr.form) ? TFM_FORM_F32 : node->attr.form;
  if (node->op == OP_WEIGHT || (node->op == OP_INPUT && node->dtype == DTYPE_F32))
    return stored_table[node->attr.stored].form;
  if (!node_moves_elements(node)) return TFM_FORM_F32;
  const tfm_form form = node_form(node->inputs.items[0]);
  for (size_t i = 1; i < node->inputs.n; i++)
    if (node_form(node->inputs.items[i]) != form) return TFM_FORM_F32;
  return form;
}

// ---- groups ----

static tfm_form form_along(const Node *node, uint32_t axis);

static bool is_whole(const Size *size, tfm_form form) {
  int64_t n;
  return form != TFM_FORM_F32 && size_is_const(size, &n) && n % group_of(form) == 0;
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
static tfm_form form_of_reshaped(const Node *node, uint32_t axis) {
  const Node *from = node->inputs.items[0];
  const int64_t before = elements_before(node, axis);
  for (uint32_t i = 0; i < from->rank && before >= 0; i++)
    if (from->dims[i] == node->dims[axis] && elements_before(from, i) == before) return form_along(from, i);
  return TFM_FORM_F32;
}

static tfm_form form_of_joined(const Node *node, uint32_t axis) {
  const tfm_form form = node->inputs.n ? form_along(node->inputs.items[0], axis) : TFM_FORM_F32;
  for (size_t i = 1; i < node->inputs.n; i++)
    if (form_along(node->inputs.items[i], axis) != form) return TFM_FORM_F32;
  return form;
}

static tfm_form form_of_weight(const Node *weight, uint32_t axis) {
  const StoredRow *row = &stored_table[weight->attr.stored];
  return row->axis && weight->rank >= 2 && axis == weight->rank - row->axis ? row->product : TFM_FORM_F32;
}

/* The form in groups whose elements, from the first along the axis on, are those of groups of the file; F32: none. */
static tfm_form form_along(const Node *node, uint32_t axis) {
  const Node *from = node->inputs.n ? node->inputs.items[0] : NULL;
  tfm_form form = TFM_FORM_F32;
  switch (node->op) {
    case OP_WEIGHT: form = form_of_weight(node, axis); break;
    case OP_SLICE:
      form = form_along(from, axis);
      if (!is_whole(node->attr.starts[axis], form)) return TFM_FORM_F32;
      break;
    case OP_EVERY: form = (uint32_t)node->attr.axis != axis ? form_along(from, axis) : TFM_FORM_F32; break;
    case OP_PERMUTE: form = form_along(from, node->attr.axes[axis]); break;
    case OP_RESHAPE: form = form_of_reshaped(node, axis); break;
    case OP_CONCAT: form = form_of_joined(node, axis); break;
    default: break;
  }
  return is_whole(node->dims[axis], form) ? form : TFM_FORM_F32;
}

tfm_form node_product_form(const Node *product) {
  const Node *w = product->inputs.items[1];
  int64_t k = 0;
  if (product->attr.form == TFM_FORM_F32) {
    const tfm_form groups = product->op == OP_LINEAR ? form_along(w, 1) : TFM_FORM_F32;
    return groups != TFM_FORM_F32 ? groups : node_form(w);
  }
  size_is_const(w->dims[w->rank - 1u], &k);
  return tfm_form_of_row(product->attr.form, k);
}
