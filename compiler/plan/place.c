/* In: the shape of a result and who uses it. Out: the memory it is written to.
 *
 * Rows of f32 that are 64 floats or longer get 16 floats of space between them, so that rows of a power of two do not
 * fall into one set of the cache. A result whose only user is a view gets the layout that suits the view, and one whose
 * only user is a concat is written into the concat's memory. What is an output and nothing else is written into the
 * caller's memory if nothing can fail from there on. */
#include "plan/caches.h"

uint32_t plan_buffer(Planner *p, DType dtype, const Size *elements) {
  tfm_buffer buffer = {.elements = plan_size(p, elements), .dtype = (uint8_t)dtype, .persistent = p->prepare,
                       .first_step = TFM_NONE};
  vec_push(p->arena, &p->buffers, buffer);
  return (uint32_t)p->buffers.n - 1;
}

static int64_t padded(int64_t n) {
  int64_t whole = (n + 15) / 16 * 16;
  return n >= 64 ? whole + 16 : n >= 16 ? whole : n;
}

static View default_layout(Planner *p, DType dtype, uint32_t rank, const Size *const *dims, const Size **elements) {
  int64_t n;
  const Size *row = NULL;
  if (dtype == DTYPE_F32 && rank >= 2 && size_is_const(dims[rank - 1], &n)) row = math_const(&p->math, padded(n));
  return view_rows(&p->math, dtype, rank, dims, row, elements);
}

View place_default(Planner *p, DType dtype, uint32_t rank, const Size *const *dims) {
  return default_layout(p, dtype, rank, dims, NULL);
}

View place_new(Planner *p, DType dtype, uint32_t rank, const Size *const *dims) {
  const Size *elements;
  View view = default_layout(p, dtype, rank, dims, &elements);
  view.index = plan_buffer(p, dtype, elements);
  return view;
}

bool layout_has_columns(Planner *p, const View *view) {
  (void)p;
  return view_has_contiguous_columns(view);
}

bool layout_has_rows(Planner *p, const View *view) {
  const Size *rows, *stride;
  return view_has_contiguous_columns(view) && view_collapse(&p->math, view, &rows, &stride);
}

// ---- where a user wants a result ----

static uint32_t count_outputs(const Planner *p, const Node *node) {
  uint32_t n = 0;
  for (size_t i = 0; i < p->outputs.n; i++) n += p->outputs.items[i].node == node;
  return n;
}

/* The only live user; NULL if there is none or are several. `n` gets how many uses there are, as an output included. The
 * probabilities of an attention are no use of its result. */
static const Node *only_user(Planner *p, const Node *node, uint32_t *n) {
  const Node *only = NULL;
  *n = 0;
  for (size_t i = 0; i < node->users.n; i++) {
    const Node *user = node->users.items[i];
    if (!p->values[user->id].is_live || user->op == OP_ATTENTION_WEIGHTS) continue;
    only = user;
    ++*n;
  }
  *n += count_outputs(p, node);
  return *n == 1 ? only : NULL;
}

static uint32_t output_number(const Planner *p, const Node *node) {
  uint32_t i = 0;
  while (p->outputs.items[i].node != node) i++;
  return i;
}

/* Whether nothing but pointwise work and reductions reads the value: they take rows as they lie. */
static bool only_rows_read(Planner *p, const Node *node) {
  for (size_t i = 0; i < node->users.n; i++) {
    const Node *user = node->users.items[i];
    if (p->values[user->id].is_live && user->op != OP_POINTWISE && user->op != OP_REDUCE) return false;
  }
  return true;
}

/* A layout and, if it is not in a buffer yet, how much memory it needs. */
typedef struct Place {
  View view;
  const Size *elements; /* NULL: the buffer exists */
  const Size *stand_in; /* in an output that is read too: what its stand-in needs; else NULL */
} Place;

/* Makes the memory that the place needs. */
static void take_place(Planner *p, DType dtype, Place *place) {
  if (place->elements) place->view.index = plan_buffer(p, dtype, place->elements);
  if (place->stand_in) p->stand_ins[place->view.index] = plan_buffer(p, dtype, place->stand_in) + 1;
  place->elements = place->stand_in = NULL;
}

static bool may_be_in_output(Planner *p, const Node *node, bool is_only_output) {
  if (!p->may_write_outputs || p->values[node->id].is_prepare) return false;
  return is_only_output || (count_outputs(p, node) == 1 && only_rows_read(p, node));
}

/* `is_read`: by other steps too, which may be wanted when the output is not. */
static Place place_in_output(Planner *p, const Node *node, bool is_read) {
  const Size *elements;
  View whole = view_rows(&p->math, node->dtype, node->rank, (const Size *const *)node->dims, NULL, &elements);
  whole.space = TFM_SPACE_OUTPUT;
  whole.index = output_number(p, node);
  return (Place){.view = whole, .stand_in = is_read ? elements : NULL};
}

static Place wanted(Planner *p, const Node *node);

/* The part of a concat's memory that is for its input. The concat gets its memory here, before it is planned. */
static Place part_of_concat(Planner *p, const Node *concat, const Node *input) {
  Value *value = &p->values[concat->id];
  if (!value->has_view) {
    Place whole = wanted(p, concat);
    take_place(p, concat->dtype, &whole);
    plan_set_view(p, concat, &whole.view);
  }
  const Size *starts[MAX_RANK];
  for (uint32_t i = 0; i < concat->rank; i++) starts[i] = p->math.zero;
  for (size_t i = 0; concat->inputs.items[i] != input; i++) {
    const Node *before = concat->inputs.items[i];
    starts[concat->attr.axis] = math_add(&p->math, starts[concat->attr.axis], before->dims[concat->attr.axis]);
  }
  return (Place){.view = view_slice(&p->math, &value->view, starts, (const Size *const *)input->dims)};
}

static Place wanted(Planner *p, const Node *node) {
  uint32_t n_uses;
  const Node *user = only_user(p, node, &n_uses);
  if (may_be_in_output(p, node, n_uses == 1 && !user)) return place_in_output(p, node, n_uses > 1);
  bool same_life = user && p->values[user->id].is_prepare == p->values[node->id].is_prepare;
  if (same_life && user->op == OP_CONCAT && !caches_has(p, user)) return part_of_concat(p, user, node);
  if (same_life && user->op == OP_PERMUTE) {
    Place place = wanted(p, user);
    place.view = view_unpermute(&place.view, user->attr.axes);
    return place;
  }
  if (same_life && user->op == OP_RESHAPE) {
    Place place = wanted(p, user);
    if (view_reshape(&p->math, &place.view, node->rank, (const Size *const *)node->dims, &place.view)) return place;
  }
  Place place = {0};
  place.view = default_layout(p, node->dtype, node->rank, (const Size *const *)node->dims, &place.elements);
  return place;
}

View place_result(Planner *p, const Node *node, LayoutTest test, const View *fallback,
                  const Size *fallback_elements) {
  Value *value = &p->values[node->id];
  Place place = {.view = value->view};
  if (!value->has_view) {
    place = wanted(p, node);
    if (!test(p, &place.view)) {
      place = (Place){0};
      if (fallback) place = (Place){.view = *fallback, .elements = fallback_elements};
      else place.view = default_layout(p, node->dtype, node->rank, (const Size *const *)node->dims, &place.elements);
    }
    take_place(p, node->dtype, &place);
    plan_set_view(p, node, &place.view);
  }
  return place.view;
}
