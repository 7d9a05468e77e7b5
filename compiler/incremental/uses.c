/* Chooses in which forms the step needs each node.
 *
 * In: the model, and the logits that are wanted for new positions. Out: for each node, its uses: which axes are needed
 * whole, and whether the value is computed in the step, from a state too, cached from earlier steps, or read from the
 * encoder. A node may
 * have several uses, such as new queries and all keys of one projection. Refused: a node that is not sound, or that
 * would have to be cached with its batch and length merged.
 *
 * The walk goes from the last node to the first, so that all uses of a node are known when it is met. What is cached
 * lies below views, so that keys and values are cached as the projections make them, and below a conversion or a
 * comparison that would only make it larger. */
#include "incremental/cut.h"

// ---- products that attention will be fused from ----

/* The second product of an attention, which is gone after the fusion too, but is not one of scores. */
static bool weighs_values(const Node *product) {
  return node_behind_views(product->inputs.items[0])->op == OP_SOFTMAX;
}

/* The fusion itself is tried on a copy: an attention is whatever fuse-attention takes, not a pattern that is written
 * down here a second time. A product that is gone afterwards was part of one. Deleted nodes stay in the arena, so their
 * marks can be read after the pass. */
bool find_scores_of_attention(Cut *cut, Diag *diag) {
  static const char *const only[] = {"fuse-attention"};
  const PassOptions options = {.level = 2, .only = only, .n_only = 1};
  Graph *tried = graph_clone(cut->scratch, cut->graph); /* with the same ids */
  VEC(const Node *) products = {0};
  VEC(uint32_t) ids = {0};
  for (const Node *node = tried->first; node; node = node->next) {
    if (node->op != OP_MATMUL || weighs_values(node)) continue;
    vec_push(cut->scratch, &products, node);
    vec_push(cut->scratch, &ids, node->id);
  }
  if (products.n && !passes_run(tried, diag, &options, NULL)) return false;
  for (size_t i = 0; i < products.n; i++) cut->is_scores[ids.items[i]] = products.items[i]->deleted;
  return true;
}

static const Node *input(const Node *node, size_t i) { return node->inputs.items[i]; }

// ---- uses ----

const Use *find_use(const Cut *cut, const Node *node, uint8_t whole, bool bare) {
  const Uses *uses = &cut->uses[node->id];
  for (size_t i = 0; i < uses->items.n; i++)
    if (uses->items.items[i].whole == whole && uses->items.items[i].bare == bare) return &uses->items.items[i];
  return NULL;
}

/* Adds the use unless the node has it already. */
static void need(Cut *cut, const Node *node, uint8_t whole, bool bare) {
  if (find_use(cut, node, whole, bare)) return;
  vec_push(cut->scratch, &cut->uses[node->id].items, (Use){.whole = whole, .bare = bare});
}

/* A constant factor on the keys. The fusion of attention moves it to the scores, so it must find it above the cache:
 * a step that cached scaled keys would round once more than the whole model, and its bits would differ. */
static bool is_factor(const Cut *cut, const Node *node) {
  double number;
  return (node->op == OP_MUL || node->op == OP_DIV) && node_same_shape(node, input(node, 0)) &&
         match_number(input(node, 1), &number) && node->users.n == 1 && !graph_is_output(cut->graph, node);
}

/* A value of the encoder: it needs no token and no position of the decoder. */
static bool is_encoder_value(const Cut *cut, const Node *node) {
  return depends_on(cut, node, ON_INPUTS) && !depends_on(cut, node, ON_TOKENS | ON_LENGTH);
}

/* Begins at the keys of an attention and goes down through views and factors, as long as the value will be stored. */
bool operand_bare(const Cut *cut, const Node *node, size_t operand, const Use *use) {
  const Node *x = input(node, operand);
  bool is_stored = operand_whole(cut, node, operand, use->whole) || is_encoder_value(cut, x);
  if (!is_stored) return false;
  if (node->op == OP_MATMUL) return cut->is_scores[node->id] && operand == 1;
  return use->bare && (op_table[node->op].category == CATEGORY_VIEW || (operand == 0 && is_factor(cut, node)));
}

static void need_operands(Cut *cut, const Node *node, const Use *use) {
  const Use own = *use; /* the list of uses may grow */
  for (size_t i = 0; i < node->inputs.n; i++)
    need(cut, input(node, i), operand_whole(cut, node, i, own.whole), operand_bare(cut, node, i, &own));
}

// ---- what is cached ----

/* The one operand that depends on these; -1: there are more, or none. */
static int only_operand(const Cut *cut, const Node *node, unsigned on) {
  int found = -1;
  for (size_t i = 0; i < node->inputs.n; i++) {
    if (!depends_on(cut, input(node, i), on)) continue;
    if (found >= 0 && input(node, (size_t)found) != input(node, i)) return -1;
    found = (int)i;
  }
  return found;
}

/* The positions of one item lie between those of others on such an axis, so new ones cannot be put behind earlier
 * ones. */
static bool has_merged_axis(const Cut *cut, const Node *node) {
  for (uint32_t axis = 0; axis < node->rank; axis++)
    if (is_merged(cut, node->dims[axis])) return true;
  return false;
}

/* Whether the operand is cached instead, and the node computed from it in every step. That is so for views, which
 * cost nothing; for the factor on keys; and for a conversion or comparison whose operand is no larger than its result:
 * a mask is cached as the ids or truths that it is made of. An f32 operand is never preferred: what makes an f32 from
 * an f32 is work that a cache saves. */
static bool caches_operand(const Cut *cut, const Node *node, unsigned on, bool bare) {
  if (node->op == OP_RESHAPE) return !has_merged_axis(cut, input(node, 0));
  if (node->op == OP_PERMUTE) return true;
  if (bare && is_factor(cut, node)) return true;
  int i = op_is_pointwise(node->op) ? only_operand(cut, node, on) : -1;
  if (i < 0) return false;
  DType dtype = input(node, (size_t)i)->dtype;
  return dtype != DTYPE_F32 && dtype_bytes[dtype] <= dtype_bytes[node->dtype];
}

static unsigned count_axes(uint8_t axes) { return (unsigned)__builtin_popcount(axes); }

/* What depends on no token is computed anew in every step, so it needs no state. */
uint8_t least_whole(const Cut *cut, const Node *node) {
  const int32_t carried = depends_on(cut, node, ON_TOKENS) ? -1 : carried_axis(cut, node);
  bool is_softmax = node->op == OP_SOFTMAX || node->op == OP_LOG_SOFTMAX;
  if (carried >= 0) return (uint8_t)(1u << carried);
  return is_softmax ? length_axes(cut, node) & (uint8_t)(1u << node->attr.axis) : 0;
}

/* Whether the new positions are made of a state. */
static bool is_carried(const Cut *cut, const Node *node, const Use *use) {
  const int32_t axis = carried_axis(cut, node);
  return axis >= 0 && depends_on(cut, node, ON_TOKENS) && !(use->whole & 1u << axis);
}

/* The form of one use, in this order:
 * - a value of the encoder is read, or computed from a smaller one that is read;
 * - a softmax whose own axis the user does not need whole is computed whole and cut, and so is what is carried along
 *   positions without depending on tokens;
 * - what is carried from position to position is made of new positions and a state;
 * - a value that does not depend on the tokens (positions, sizes, weights) is computed for all positions, which is
 *   cheaper than a cache. So is a value with two axes of the length, such as scores: it is made of queries of new rows
 *   and cached keys, and caching it would take the square of the length;
 * - what is left is a value of the tokens that is needed at earlier positions too: it is cached, or what it is made of
 *   is. */
static UseForm form_of(const Cut *cut, const Node *node, const Use *use) {
  const unsigned given = ON_TOKENS | ON_INPUTS;
  if (is_encoder_value(cut, node)) return caches_operand(cut, node, given, use->bare) ? USE_COMPUTED : USE_READ;
  if (least_whole(cut, node) & (uint8_t)~use->whole) return USE_CUT;
  if (is_carried(cut, node, use)) return USE_CARRIED;
  if (!use->whole || !depends_on(cut, node, ON_TOKENS) || count_axes(length_axes(cut, node)) > 1) return USE_COMPUTED;
  return caches_operand(cut, node, ON_TOKENS, use->bare) ? USE_COMPUTED : USE_CACHED;
}

// ---- one node ----

/* Sets the form of use i and asks the operands for what that form needs. A cached value is computed at new positions
 * alone, which is a use of the same node: the loop in find_uses meets it next. */
static void choose_form(Cut *cut, const Node *node, size_t i) {
  Use *use = &cut->uses[node->id].items.items[i];
  use->form = form_of(cut, node, use);
  switch (use->form) {
    case USE_COMPUTED:
    case USE_CARRIED: need_operands(cut, node, use); break;
    case USE_CACHED: need(cut, node, 0, false); break;
    case USE_CUT: need(cut, node, use->whole | least_whole(cut, node), use->bare); break;
    case USE_READ: cut->is_read[node->id] = cut->of_encoder[node->id] = true; break;
  }
}

static bool caches_merged(const Cut *cut, const Node *node) {
  bool is_cached = false;
  for (size_t i = 0; i < cut->uses[node->id].items.n; i++)
    is_cached |= cut->uses[node->id].items.items[i].form == USE_CACHED;
  return is_cached && has_merged_axis(cut, node);
}

/* Soundness is asked of every node that the step or the encoder computes, and of no other: a node that neither needs
 * cannot do harm. */
bool find_uses(Cut *cut) {
  need(cut, cut->logits, 0, false);
  for (const Node *node = cut->graph->last; node; node = node->prev) {
    const Uses *uses = &cut->uses[node->id];
    if (!uses->items.n && !cut->of_encoder[node->id]) continue;
    if (!node_is_sound(cut, node)) return false;
    for (size_t i = 0; i < uses->items.n; i++) choose_form(cut, node, i);
    if (caches_merged(cut, node))
      return cut_refuse(cut, node, "a value would have to be cached on an axis that merges items and positions");
    for (size_t i = 0; i < node->inputs.n && cut->of_encoder[node->id]; i++) cut->of_encoder[input(node, i)->id] = true;
  }
  return true;
}
