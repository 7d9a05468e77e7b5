/* Builds the step graph and the encoder graph.
 *
 * In: the model, and the forms in which the step needs each node (uses.c). Out: the two graphs, in the arena of the
 * result. Their operations are the model's, in the model's order, on other sizes: an axis of the length becomes `fresh`
 * where only new positions are needed and `past + fresh` where it is needed whole. Only what counts positions is
 * written anew, since the first new position of a step is `past`, not 0. Refused: sizes that become too large as
 * polynomials.
 *
 * Because no operation is replaced by another one, each element is computed by the same operation from the same
 * operands as in the whole model; sound.c shows that the operands that are missing are neutral. So a step gives the
 * model's bits wherever the kernels' order of summation does not depend on the length, which
 * docs/decisions/0002-bits.md requires. */
#include <string.h>

#include "incremental/incremental_states.h"

// ---- sizes and checks in another graph ----

/* A size, a condition or a message of the model, with another size in place of each symbol. */

// ---- checks ----

static bool cond_has(const Cond *cond, uint32_t symbol) {
  if (!cond) return false;
  if (cond->kind == COND_COMPARE) return size_involves(cond->left, symbol) || size_involves(cond->right, symbol);
  return cond_has(cond->a, symbol) || cond_has(cond->b, symbol);
}

/* The condition in the sizes of the other graph; NULL: a size is too large. */
static const Cond *map_cond(Arena *arena, const SizeMap *map, const Cond *cond) {
  Cond *copy = arena_copy(arena, cond, sizeof *cond);
  if (cond->kind == COND_COMPARE) {
    copy->left = step_size(map, cond->left);
    copy->right = step_size(map, cond->right);
    return copy->left && copy->right ? copy : NULL;
  }
  copy->a = map_cond(arena, map, cond->a);
  copy->b = cond->b ? map_cond(arena, map, cond->b) : NULL;
  return copy->a && (copy->b || !cond->b) ? copy : NULL;
}

/* A message keeps the name that the model gives a size: "time = 13", never "time.past + time.fresh = 13". A size that
 * the other graph cannot express is left out. */
static CheckPart map_part(Arena *arena, const SizeTable *from, const SizeMap *map, CheckPart part) {
  const Size *size = part.size ? step_size(map, part.size) : NULL;
  if (!size || !part.named) return (CheckPart){.text = part.text, .size = size};
  StrBuf text = strbuf_new(arena);
  strbuf_add(&text, part.text ? part.text : "");
  size_print(&text, from, part.size);
  strbuf_add(&text, " = ");
  return (CheckPart){.text = text.text, .size = size};
}

static bool map_check(const SizeTable *from, Graph *to, const SizeMap *map, const Check *check) {
  Check copy = {.condition = map_cond(to->arena, map, check->condition), .origin = check->origin};
  for (size_t i = 0; i < check->message.n; i++)
    vec_push(to->arena, &copy.message, map_part(to->arena, from, map, check->message.items[i]));
  if (copy.condition) vec_push(to->arena, &to->checks, copy);
  return copy.condition != NULL;
}

/* Adds the checks of the model that are about the length (to the step), or those that are not (to the encoder, where
 * they fail before any token is generated). False: a size is too large. */
static bool map_checks(const Cut *cut, Graph *to, const SizeMap *map, bool about_length) {
  for (size_t i = 0; i < cut->graph->checks.n; i++) {
    const Check *check = &cut->graph->checks.items[i];
    if (cond_has(check->condition, cut->time) != about_length) continue;
    if (!map_check(cut->graph->sizes, to, map, check)) return false;
  }
  return true;
}

const char logsumexp_name[] = "logsumexp";

static const Node *input(const Node *node, size_t i) { return node->inputs.items[i]; }

// ---- sizes of a use ----

// ---- what counts positions ----

/* The positions along an axis: from 0, or from `past` where the axis is needed for the new ones alone. */
static Node *axis_positions(const Stepper *s, Builder *b, const Node *node, uint8_t whole, uint32_t axis,
                            const Size *dim) {
  Node *positions = build_positions(b, dim);
  if (!step_is_new(s, node, whole, axis)) return positions;
  return build_binary(b, OP_ADD, positions, build_size(b, DTYPE_I32, s->past));
}

/* A causal mask compares coordinates, and those of an axis of new positions begin at `past`. The operation itself knows
 * only coordinates from 0, so it is written out as column > row; with both axes whole it can stay. */
static Node *build_later(const Stepper *s, Builder *b, const Node *node, const Use *use, const Size *const *dims) {
  if (!step_is_new(s, node, use->whole, 0) && !step_is_new(s, node, use->whole, 1))
    return build_causal_mask(b, dims[0], dims[1]);
  const Size *one = size_const(s->graph->sizes, 1);
  Node *rows = axis_positions(s, b, node, use->whole, 0, dims[0]);
  Node *columns = axis_positions(s, b, node, use->whole, 1, dims[1]);
  rows = build_reshape(b, rows, 2, (const Size *const[]){dims[0], one}); /* a statement each fixes the nodes' order */
  columns = build_reshape(b, columns, 2, (const Size *const[]){one, dims[1]});
  return build_binary(b, OP_GT, columns, rows);
}

/* A slice of a table to the length (learned positions) takes row t for position t, so the rows of new positions start
 * at `past`. A slice of an axis of the length itself starts at 0 on what is new, since its operand is new too. */
static bool shift_starts(const Stepper *s, const Node *node, const Use *use, NodeAttr *attr) {
  for (uint32_t axis = 0; axis < node->rank && node->op == OP_SLICE; axis++) {
    if (!step_is_new(s, node, use->whole, axis) || is_length(s->cut, input(node, 0)->dims[axis])) continue;
    attr->starts[axis] = size_add(s->graph->sizes, attr->starts[axis], s->past);
    if (!attr->starts[axis]) return false;
  }
  return true;
}

// ---- one use ----

/* The model's operation on the step's operands. NULL: a size is too large. */
static Node *build_computed(Stepper *s, Builder *b, const Node *node, const Use *use, const Size *const *dims) {
  if (node == s->cut->tokens) return s->inputs[node->id];
  if (node->op == OP_POSITIONS) return axis_positions(s, b, node, use->whole, 0, dims[0]);
  if (node->op == OP_CAUSAL_MASK) return build_later(s, b, node, use, dims);
  NodeAttr attr = node->attr;
  if (!step_attr(&s->map, &attr) || !shift_starts(s, node, use, &attr)) return NULL;
  Node **operands = ARENA_ARRAY(s->cut->scratch, Node *, node->inputs.n);
  for (size_t i = 0; i < node->inputs.n; i++) operands[i] = step_operand(s, node, i, use);
  return step_copy(s->graph, node, &attr, dims, operands);
}

static uint32_t first_axis(uint8_t axes) { return (uint32_t)__builtin_ctz(axes); }

/* The cache with the new positions behind it. Every whole use shares one concat, so the planner can see that the output
 * is the input grown in place. */
static Node *build_cached(Stepper *s, Builder *b, const Node *node, const Use *use) {
  Node *parts[] = {s->earlier[node->id], find_use(s->cut, node, 0, false)->node};
  if (!s->caches[node->id]) s->caches[node->id] = build_concat(b, 2, parts, (int32_t)first_axis(use->whole));
  return s->caches[node->id];
}

/* The new positions of a value that is computed whole along an axis of its own. */
static Node *build_cut(const Stepper *s, Builder *b, const Node *node, const Use *use, const Size *const *dims) {
  const Size *starts[MAX_RANK];
  const uint8_t whole = use->whole | least_whole(s->cut, node);
  for (uint32_t axis = 0; axis < node->rank; axis++) {
    const bool is_cut = step_is_new(s, node, use->whole, axis) && whole & 1u << axis;
    starts[axis] = is_cut ? s->past : size_const(s->graph->sizes, 0);
  }
  return build_slice(b, find_use(s->cut, node, whole, use->bare)->node, starts, dims);
}

static bool build_use(Stepper *s, const Node *node, Use *use) {
  Builder b = {.graph = s->graph, .origin = node->origin};
  const Size *dims[MAX_RANK];
  if (!step_dims(s, node, use->whole, dims)) return false;
  switch (use->form) {
    case USE_COMPUTED: use->node = build_computed(s, &b, node, use, dims); break;
    case USE_CARRIED: use->node = build_carried(s, &b, node, use, dims); break;
    case USE_CACHED: use->node = build_cached(s, &b, node, use); break;
    case USE_READ: use->node = s->inputs[node->id]; break;
    case USE_CUT: use->node = build_cut(s, &b, node, use, dims); break;
  }
  return use->node != NULL;
}

/* A cached or cut use is made of another use of the same node, so the forms are built in this order. */
static bool build_uses(Stepper *s, const Node *node) {
  static const UseForm order[] = {USE_COMPUTED, USE_CARRIED, USE_READ, USE_CACHED, USE_CUT};
  Uses *uses = &s->cut->uses[node->id];
  for (size_t form = 0; form < sizeof order / sizeof *order; form++)
    for (size_t i = uses->items.n; i-- > 0;)
      if (uses->items.items[i].form == order[form] && !build_use(s, node, &uses->items.items[i])) return false;
  return true;
}

// ---- inputs and outputs ----

static const Use *cached_use(const Cut *cut, const Node *node) {
  const Uses *uses = &cut->uses[node->id];
  for (size_t i = 0; i < uses->items.n; i++)
    if (uses->items.items[i].form == USE_CACHED) return &uses->items.items[i];
  return NULL;
}

/* The inputs in the order of the interface: tokens, encoded values, caches, states. The numbers of the roles are handed
 * out here, in the order of the list; build_encoder counts its outputs in the same order. */
static bool add_inputs(Stepper *s, Incremental *result) {
  Cut *cut = s->cut;
  const Size *dims[MAX_RANK];
  if (!step_dims(s, cut->tokens, 0, dims)) return false;
  s->inputs[cut->tokens->id] = step_input(s, cut->tokens, (Role){ROLE_TOKENS, 0}, dims);
  for (const Node *node = cut->graph->first; node; node = node->next) {
    if (!cut->is_read[node->id]) continue;
    if (!step_dims(s, node, 0, dims)) return false;
    s->inputs[node->id] = step_input(s, node, (Role){ROLE_ENCODED, result->n_encoded++}, dims);
  }
  for (const Node *node = cut->graph->first; node; node = node->next) {
    const Use *use = cached_use(cut, node);
    if (!use) continue;
    if (!step_dims(s, node, 0, dims)) return false;
    dims[first_axis(use->whole)] = s->past;
    s->earlier[node->id] = step_input(s, node, (Role){ROLE_CACHE, result->n_caches++}, dims);
  }
  return add_states(s, result);
}

static void add_output(Graph *graph, const char *name, Node *node, Role role) {
  vec_push(graph->arena, &graph->outputs, (GraphOutput){name, node, role});
}

/* log(sum(exp(x))) along the last axis, shifted by the maximum so that no power overflows: the largest is exactly 1. */
static Node *build_logsumexp(Builder *b, Node *x) {
  Node *largest = build_reduce(b, OP_MAX, x, (int32_t)x->rank - 1, true);
  Node *powers = build_unary(b, OP_EXP, build_binary(b, OP_SUB, x, largest));
  Node *sum = build_unary(b, OP_LOG, build_reduce(b, OP_SUM, powers, (int32_t)x->rank - 1, false));
  return build_binary(b, OP_ADD, sum, build_reshape(b, largest, sum->rank, (const Size *const *)sum->dims));
}

void incremental_add_logsumexp(Graph *graph) {
  Node *logits = graph->outputs.items[0].node;
  Builder b = {.graph = graph, .origin = logits->origin};
  add_output(graph, logsumexp_name, build_logsumexp(&b, logits), (Role){0});
}

/* The logits are sliced before logsumexp, so that neither is computed for positions that nobody asked for. */
static void add_outputs(Stepper *s) {
  const Cut *cut = s->cut;
  SizeTable *sizes = s->graph->sizes;
  Builder b = {.graph = s->graph, .origin = cut->logits->origin};
  Node *logits = find_use(cut, cut->logits, 0, false)->node;
  const Size *zero = size_const(sizes, 0), *start = size_sub(sizes, s->fresh, s->kept);
  logits = build_slice(&b, logits, (const Size *const[]){zero, start, zero},
                       (const Size *const[]){logits->dims[0], s->kept, logits->dims[2]});
  add_output(s->graph, cut->graph->generate_output, logits, (Role){ROLE_LOGITS, 0});
  add_output(s->graph, logsumexp_name, build_logsumexp(&b, logits), (Role){ROLE_LOGSUMEXP, 0});
  for (const Node *node = cut->graph->first; node; node = node->next)
    if (s->caches[node->id]) {
      const NodeAttr *input = &s->earlier[node->id]->attr;
      add_output(s->graph, input->name, s->caches[node->id], input->role);
    }
  for (const Carried *c = s->first; c; c = c->next)
    add_output(s->graph, c->input->attr.name, c->output, c->input->attr.role);
}

// ---- sizes of the step, and its own check ----

/* Declares the model's sizes but the length in another graph. False: there are too many. */
static bool add_sizes(const Cut *cut, Graph *to, SizeMap *map) {
  const SizeTable *from = cut->graph->sizes;
  for (uint32_t i = 0; i < from->n_symbols; i++) {
    if (i == cut->time) continue;
    map->of[i] = size_symbol(map->to, arena_strdup(map->to->arena, from->symbols[i]));
    if (!map->of[i]) return false;
    if ((int32_t)i == cut->batch) to->size_roles[ROLE_ROWS] = size_symbol_of(map->of[i]);
  }
  return true;
}

/* Declares "time.past" and the like. The name is for people; readers go by the role. NULL: there are too many sizes. */
static const Size *part_of_length(const Stepper *s, SizeRole role) {
  const char *length = s->cut->graph->sizes->symbols[s->cut->time];
  const char *name = arena_printf(s->graph->arena, "%s.%s", length, size_role_names[role]);
  const Size *size = size_symbol(s->graph->sizes, name);
  if (size) s->graph->size_roles[role] = size_symbol_of(size);
  return size;
}

static bool add_step_sizes(Stepper *s) {
  s->map.to = s->graph->sizes;
  if (!add_sizes(s->cut, s->graph, &s->map)) return false;
  s->past = part_of_length(s, ROLE_PAST);
  s->fresh = part_of_length(s, ROLE_FRESH);
  s->kept = part_of_length(s, ROLE_KEPT);
  if (!s->past || !s->fresh || !s->kept) return false;
  s->of_new = s->map;
  s->of_new.of[s->cut->time] = s->fresh;
  return (s->map.of[s->cut->time] = size_add(s->graph->sizes, s->past, s->fresh)) != NULL;
}

/* The caller of a step says for how many positions it wants logits; these must be among the new ones. */
static void check_kept(Stepper *s) {
  Arena *arena = s->graph->arena;
  Cond *cond = ARENA_NEW(arena, Cond);
  *cond = (Cond){.kind = COND_COMPARE, .op = OP_LE, .left = s->kept, .right = s->fresh};
  Check check = {.condition = cond, .origin = s->cut->tokens->origin};
  vec_push(arena, &check.message, (CheckPart){.text = "logits are wanted for ", .size = s->kept});
  vec_push(arena, &check.message, (CheckPart){.text = " new positions of ", .size = s->fresh});
  vec_push(arena, &s->graph->checks, check);
}

// ---- the graphs ----

bool build_step(Cut *cut, Incremental *result) {
  Stepper s = {.cut = cut, .graph = graph_new(cut->arena, cut->graph->name)};
  s.inputs = ARENA_ARRAY(cut->scratch, Node *, cut->graph->next_id);
  s.earlier = ARENA_ARRAY(cut->scratch, Node *, cut->graph->next_id);
  s.caches = ARENA_ARRAY(cut->scratch, Node *, cut->graph->next_id);
  s.states = ARENA_ARRAY(cut->scratch, Carried *, cut->graph->next_id);
  s.windows = ARENA_ARRAY(cut->scratch, Carried *, cut->graph->next_id);
  if (!add_step_sizes(&s) || !add_inputs(&s, result)) return false;
  for (const Node *node = cut->graph->first; node; node = node->next)
    if (!build_uses(&s, node)) return false;
  add_outputs(&s);
  check_kept(&s);
  result->step = s.graph;
  return map_checks(cut, s.graph, &s.map, true);
}

/* The encoder computes what does not depend on tokens or length, so its nodes are plain copies. */
static bool copy_to_encoder(Cut *cut, const SizeMap *map, Graph *graph, const Node *node, Node **copies) {
  const Size *dims[MAX_RANK];
  NodeAttr attr = node->attr;
  for (uint32_t axis = 0; axis < node->rank; axis++)
    if (!(dims[axis] = step_size(map, node->dims[axis]))) return false;
  if (!step_attr(map, &attr)) return false;
  Node **operands = ARENA_ARRAY(cut->scratch, Node *, node->inputs.n);
  for (size_t i = 0; i < node->inputs.n; i++) operands[i] = copies[input(node, i)->id];
  copies[node->id] = step_copy(graph, node, &attr, dims, operands);
  return true;
}

/* Every input of the model but the tokens stays an input, in its order, used or not: that is what the user passes. */
static bool copy_inputs(Cut *cut, const SizeMap *map, Graph *graph, Node **copies) {
  for (size_t i = 0; i < cut->graph->inputs.n; i++) {
    const Node *node = cut->graph->inputs.items[i];
    if (node != cut->tokens && !copy_to_encoder(cut, map, graph, node, copies)) return false;
  }
  return true;
}

bool build_encoder(Cut *cut, Incremental *result) {
  Graph *graph = graph_new(cut->arena, cut->graph->name);
  SizeMap map = {.to = graph->sizes};
  Node **copies = ARENA_ARRAY(cut->scratch, Node *, cut->graph->next_id);
  if (!add_sizes(cut, graph, &map) || !copy_inputs(cut, &map, graph, copies)) return false;
  for (const Node *node = cut->graph->first; node; node = node->next)
    if (cut->of_encoder[node->id] && node->op != OP_INPUT && !copy_to_encoder(cut, &map, graph, node, copies))
      return false;
  Role role = {ROLE_ENCODED, 0};
  for (const Node *node = cut->graph->first; node; node = node->next) {
    if (!cut->is_read[node->id]) continue;
    add_output(graph, step_name(graph->arena, role), copies[node->id], role);
    role.number++;
  }
  result->encoder = graph;
  return map_checks(cut, graph, &map, false);
}
