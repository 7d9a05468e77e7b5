/* In: a step graph. Out: its caches. See caches.h.
 *
 * The value that lies in pages is concat(cache N, new positions), or the input encoded N. To learn whether attention
 * can read it there, its views are followed with the ordinary arithmetic of layouts, over a memory that no page has:
 * columns side by side, and for positions and rows two strides that are marks. The marks are powers of two far above
 * any number of columns, so a sum or product of a mark with anything else is recognisable, and a view that mixes them
 * (a reshape that merges positions with columns, say) loses its mark and is rejected. A view that keeps each mark on
 * the axis where attention expects it can be read in pages. */
#include "plan/caches.h"

#include <string.h>

#include "base/check.h"
#include "plan/cost.h"

/* A position has at most MAX_COLUMNS floats, so every stride within the columns stays below POSITION_MARK, which
 * is_readable relies on. Both marks leave room in an i64 for a product with any sensible size. */
enum { MAX_COLUMNS = 1 << 20 };
static const int64_t POSITION_MARK = (int64_t)1 << 30, ROW_MARK = (int64_t)1 << 45;

struct PagedValue {
  const Node *node;  /* the value: CONCAT or INPUT */
  const Node *input; /* cache N or encoded N */
  bool of_encoder;
  uint32_t number;
  int32_t row_axis;       /* -1: the step has one row */
  uint32_t position_axis;
  int64_t columns;
  View base;
  uint32_t caches[2]; /* by tfm_cache_kind; TFM_NONE: not read as such */
};

// ---- candidates ----

/* The number of rows of the step is the first axis of its tokens. */
static const Size *rows_of_step(const Planner *p) {
  const Node *tokens = graph_input_with(p->graph, (Role){ROLE_TOKENS, 0});
  return tokens ? tokens->dims[0] : NULL;
}

/* Finds the axis of the rows and lays the columns side by side. False if a page cannot hold the value: pages
 * know one row axis and one position axis, and have a static number of columns. */
static bool lay_out(Planner *p, const Size *rows, PagedValue *value) {
  const Node *node = value->node;
  if (node->dtype != DTYPE_F32 || !rows) return false;
  value->row_axis = -1;
  for (uint32_t i = 0; i < node->rank && value->row_axis < 0; i++)
    if (i != value->position_axis && node->dims[i] == rows && !size_equals(rows, 1)) value->row_axis = (int32_t)i;
  if (value->row_axis < 0 && !size_equals(rows, 1)) return false;
  View view = {.space = TFM_SPACE_SIZE, .dtype = DTYPE_F32, .rank = node->rank, .offset = p->math.zero};
  value->columns = 1;
  for (uint32_t i = node->rank; i-- > 0;) {
    int64_t stride = (int32_t)i == value->row_axis ? ROW_MARK : POSITION_MARK, dim;
    if ((int32_t)i != value->row_axis && i != value->position_axis) {
      stride = value->columns;
      if (!size_is_const(node->dims[i], &dim) || dim < 1 || dim > MAX_COLUMNS / value->columns) return false;
      value->columns *= dim;
    }
    view.dims[i] = node->dims[i];
    view.strides[i] = size_equals(node->dims[i], 1) ? p->math.zero : math_const(&p->math, stride);
  }
  value->base = view;
  return true;
}

/* Returns the only live user of a cache if it joins the cache with new positions. Any other user would need the
 * earlier positions as a tensor, and so would the caller if the cache itself were an output. */
static const Node *joined(const Planner *p, const Node *input) {
  const Node *only = NULL;
  for (size_t i = 0; i < input->users.n; i++) {
    const Node *user = input->users.items[i];
    if (!p->values[user->id].is_live) continue;
    if (only) return NULL;
    only = user;
  }
  bool is_join = only && only->op == OP_CONCAT && only->inputs.n == 2 && only->inputs.items[0] == input &&
                 only->inputs.items[1] != input;
  return is_join && !graph_is_output(p->graph, input) ? only : NULL;
}

/* Whether the input is a cache, or a value of the encoder, that pages could hold. Whether its users can read pages is
 * decided later, by drop_unreadable. */
static bool is_candidate(Planner *p, const Size *rows, const Node *input, PagedValue *value) {
  const Role role = input->attr.role;
  const bool of_encoder = role.kind == ROLE_ENCODED;
  *value = (PagedValue){
      .input = input, .of_encoder = of_encoder, .number = role.number, .caches = {TFM_NONE, TFM_NONE}};
  if (!p->values[input->id].is_live || (role.kind != ROLE_CACHE && !of_encoder)) return false;
  value->node = of_encoder ? input : joined(p, input);
  if (!value->node) return false;
  value->position_axis = of_encoder ? 1 : (uint32_t)value->node->attr.axis;
  if (of_encoder && value->node->rank < 3) return false;
  bool fits = lay_out(p, rows, value);
  return fits && (!of_encoder || value->row_axis <= 0); /* encoded values lie as [items, positions, columns] */
}

// ---- views ----

/* Computes the view of `node` over the imagined memory of `value`. False if strides cannot express it, or if the node
 * is computed from something else. */
static bool follow(Planner *p, const PagedValue *value, const Node *node, View *view) {
  if (node == value->node) {
    *view = value->base;
    return true;
  }
  if (op_table[node->op].category != CATEGORY_VIEW || !follow(p, value, node->inputs.items[0], view)) return false;
  const Size *const *dims = (const Size *const *)node->dims;
  if (node->op == OP_RESHAPE) return view_reshape(&p->math, view, node->rank, dims, view);
  *view = node->op == OP_PERMUTE ? view_permute(view, node->attr.axes)
                                 : view_slice(&p->math, view, (const Size *const *)node->attr.starts, dims);
  return true;
}

static bool has_stride(const View *view, uint32_t axis, int64_t stride) {
  return size_equals(view->dims[axis], 1) || size_equals(view->strides[axis], stride);
}

/* Whether the view is [rows, ..., positions, columns]: each mark on its own axis and nowhere else, and everything that
 * the remaining axes can reach within the columns of one position. The sum of all last offsets proves the latter. */
static bool is_readable(const PagedValue *value, const Node *attention, const View *view) {
  uint32_t rank = view->rank, position = rank - 2;
  bool has_rows = value->row_axis >= 0;
  if (rank != attention->rank || rank < 3) return false;
  if (view->dims[position] != value->node->dims[value->position_axis]) return false;
  if (!has_stride(view, position, POSITION_MARK) || !has_stride(view, rank - 1, 1)) return false;
  if (has_rows && (attention->dims[0] != value->node->dims[value->row_axis] || view->dims[0] != attention->dims[0] ||
                   !has_stride(view, 0, ROW_MARK)))
    return false;
  int64_t last, dim, stride;
  if (!size_is_const(view->offset, &last)) return false;
  for (uint32_t i = has_rows; i < rank; i++) {
    if (i == position) continue;
    if (!size_is_const(view->dims[i], &dim) || !size_is_const(view->strides[i], &stride) || stride >= POSITION_MARK)
      return false;
    last += (dim - 1) * stride;
  }
  return last < value->columns;
}

static PagedValue *value_of_view(const Planner *p, const Node *node) {
  node = node_behind_views(node);
  for (size_t i = 0; i < p->paged.n; i++)
    if (p->paged.items[i].node == node) return &p->paged.items[i];
  return NULL;
}

// ---- which of the candidates lie in pages ----

/* The form of the caches that an attention reads: the one in which it computes. */
static tfm_form form_of_caches(const Node *attention) { return attention->attr.form; }

/* Forms with scales round a head's columns together, so a page has heads of that many, one behind the other, and what
 * is appended comes as whole heads. */
static bool has_heads(const PagedValue *value, const View *view) {
  const Node *node = value->node;
  int64_t head, number, last = 1;
  if (!size_is_const(view->dims[view->rank - 1], &head) || head < 1 || head > TFM_WHOLE_HEAD) return false;
  if (!size_is_const(view->offset, &number) || number % head != 0) return false;
  for (uint32_t i = value->row_axis >= 0; i + 2 < view->rank; i++)
    if (!size_is_const(view->strides[i], &number) || number % head != 0) return false;
  for (uint32_t i = 0; i < node->rank; i++)
    if ((int32_t)i != value->row_axis && i != value->position_axis && !size_equals(node->dims[i], 1))
      size_is_const(node->dims[i], &last); /* columns are static (lay_out) */
  return last % head == 0 && value->columns % head == 0;
}

/* Both the keys and the values must lie in pages of the same kind, because the runtime walks one list of pages per
 * attention and row. */
static bool attention_reads_pages(Planner *p, const Node *attention) {
  const PagedValue *values[2];
  if (!size_is_const(attention->inputs.items[0]->dims[attention->inputs.items[0]->rank - 1], NULL)) return false;
  for (uint32_t i = 0; i < 2; i++) {
    const Node *node = attention->inputs.items[1 + i];
    View view;
    values[i] = value_of_view(p, node);
    if (!values[i] || !follow(p, values[i], node, &view) || !is_readable(values[i], attention, &view)) return false;
    if (tfm_form_has_scales(form_of_caches(attention)) && !has_heads(values[i], &view)) return false;
  }
  return values[0]->of_encoder == values[1]->of_encoder;
}

/* Whether every use of the node, a view of a candidate, reads it as keys or values in pages. An operand of the score
 * expression (input 3 and later) is read as a tensor and so rules pages out. */
static bool only_pages_read(Planner *p, const Node *node) {
  for (size_t i = 0; i < node->users.n; i++) {
    const Node *user = node->users.items[i];
    if (!p->values[user->id].is_live) continue;
    if (op_table[user->op].category == CATEGORY_VIEW) {
      if (graph_is_output(p->graph, user) || !only_pages_read(p, user)) return false;
      continue;
    }
    if (user->op != OP_ATTENTION || user->inputs.items[0] == node || !attention_reads_pages(p, user)) return false;
    for (size_t k = 3; k < user->inputs.n; k++)
      if (user->inputs.items[k] == node) return false;
  }
  return true;
}

/* The columns of a head that are rounded together in caches; 0: they are as they were computed. */
static int64_t rounded_head(const Node *attention, uint32_t input) {
  const Node *node = attention->inputs.items[input];
  int64_t head = 0;
  if (tfm_form_has_scales(form_of_caches(attention))) size_is_const(node->dims[node->rank - 1], &head);
  return head;
}

/* Whether all attentions that read the value as keys, and all that read it as values, want one form of it. */
static bool readers_agree(const Planner *p, const PagedValue *value) {
  int64_t heads[2] = {-1, -1};
  for (const Node *node = p->graph->first; node; node = node->next) {
    if (node->op != OP_ATTENTION || !p->values[node->id].is_live) continue;
    for (uint32_t i = 0; i < 2; i++) {
      const int64_t head = rounded_head(node, 1 + i);
      if (value_of_view(p, node->inputs.items[1 + i]) != value) continue;
      if (heads[i] >= 0 && heads[i] != head) return false;
      heads[i] = head;
    }
  }
  return true;
}

/* The graph gives the joined value as an output so that the caller can hand it in again. That output disappears with
 * the cache; an output under any other role needs the tensor. */
static bool only_own_outputs(const Planner *p, const PagedValue *value) {
  for (size_t i = 0; i < p->graph->outputs.n; i++) {
    const GraphOutput *output = &p->graph->outputs.items[i];
    if (output->node == value->node && !role_is(output->role, value->input->attr.role)) return false;
  }
  return true;
}

/* A value that one attention cannot read in pages takes the other value of that attention with it, so values are
 * dropped until nothing changes. Each turn drops one, so this ends. */
static void drop_unreadable(Planner *p) {
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 0; i < p->paged.n; i++) {
      const PagedValue *value = &p->paged.items[i];
      if (only_own_outputs(p, value) && only_pages_read(p, value->node) && readers_agree(p, value)) continue;
      memmove(p->paged.items + i, p->paged.items + i + 1, (p->paged.n - i - 1) * sizeof *p->paged.items);
      p->paged.n--;
      changed = true;
      break;
    }
  }
}

// ---- the caches ----

/* Keys and values are two caches even of the same value, because a page of keys is transposed ([columns][page], a
 * panel that tiles read as it lies) and a page of values is not. */
static void add_cache(Planner *p, const Node *attention, tfm_cache_kind kind) {
  const uint32_t input = kind == TFM_CACHE_KEYS ? 1 : 2;
  PagedValue *value = value_of_view(p, attention->inputs.items[input]);
  if (value->caches[kind] != TFM_NONE) return;
  int64_t *floats = value->of_encoder ? &p->plan->program.encoder_page_floats : &p->plan->program.own_page_floats;
  tfm_cache cache = {.kind = (uint8_t)kind,
                     .of_encoder = value->of_encoder,
                     .form = (uint8_t)form_of_caches(attention),
                     .number = value->number,
                     .columns = value->columns,
                     .head = 1,
                     .stride = kind == TFM_CACHE_KEYS ? TFM_CACHE_PAGE : 1,
                     .offset = *floats,
                     .round = TFM_NONE};
  if (tfm_form_has_scales(cache.form)) {
    cache.head = (uint16_t)rounded_head(attention, input);
    cache.stride = (uint16_t)tfm_head_floats(cache.form, kind == TFM_CACHE_KEYS, cache.head);
    cache.round = plan_kernel(p, &(KernelSpec){.family = KERNEL_QUANTIZE, .k = cache.head, .as_bytes = true});
  }
  *floats += tfm_cache_floats(&cache);
  value->caches[kind] = (uint32_t)p->caches.n;
  vec_push(p->arena, &p->caches, cache);
}

/* A tile of values loads whole vectors, so it may read past the last column of the last position of a page. A line of
 * room behind each page (TFM_CACHE_PAGE floats) keeps that within memory of ours; what is read there is never
 * stored. */
static void add_caches(Planner *p) {
  for (const Node *node = p->graph->first; node; node = node->next) {
    if (node->op != OP_ATTENTION || !caches_serve(p, node)) continue;
    add_cache(p, node, TFM_CACHE_KEYS);
    add_cache(p, node, TFM_CACHE_VALUES);
  }
  tfm_program *program = &p->plan->program;
  if (program->own_page_floats) program->own_page_floats += TFM_CACHE_PAGE;
  if (program->encoder_page_floats) program->encoder_page_floats += TFM_CACHE_PAGE;
}

static bool is_paged_input(const Planner *p, const Node *input) {
  for (size_t i = 0; i < p->paged.n; i++)
    if (p->paged.items[i].input == input) return true;
  return false;
}

static bool is_paged_output(const Planner *p, const GraphOutput *output) {
  for (size_t i = 0; i < p->paged.n; i++)
    if (p->paged.items[i].node == output->node) return true;
  return false;
}

/* Whatever lies in pages is no tensor that the caller binds. */
static void choose_tensors(Planner *p) {
  for (size_t i = 0; i < p->graph->inputs.n; i++)
    if (!is_paged_input(p, p->graph->inputs.items[i])) vec_push(p->arena, &p->inputs, p->graph->inputs.items[i]);
  for (size_t i = 0; i < p->graph->outputs.n; i++)
    if (!is_paged_output(p, &p->graph->outputs.items[i])) vec_push(p->arena, &p->outputs, p->graph->outputs.items[i]);
}

void caches_find(Planner *p) {
  const Size *rows = rows_of_step(p);
  PagedValue value;
  for (const Node *node = p->graph->first; node; node = node->next)
    if (node->op == OP_INPUT && is_candidate(p, rows, node, &value)) vec_push(p->arena, &p->paged, value);
  drop_unreadable(p);
  add_caches(p);
  choose_tensors(p);
}

// ---- questions of the planner ----

bool caches_has(const Planner *p, const Node *node) {
  for (size_t i = 0; i < p->paged.n; i++)
    if (p->paged.items[i].node == node) return true;
  return false;
}

bool caches_serve(const Planner *p, const Node *attention) {
  return p->values[attention->id].is_live && value_of_view(p, attention->inputs.items[1]) &&
         value_of_view(p, attention->inputs.items[2]);
}

/* Counts heads in place of columns. What is left over by the division is nothing, but for the marks (has_heads). */
static void count_heads(Planner *p, View *view, int64_t head) {
  int64_t columns;
  if (size_is_const(view->offset, &columns)) view->offset = math_const(&p->math, columns / head);
  for (uint32_t i = 0; i + 2 < view->rank; i++)
    if (size_is_const(view->strides[i], &columns) && columns < POSITION_MARK)
      view->strides[i] = math_const(&p->math, columns / head);
}

CacheView caches_view(Planner *p, const Node *attention, uint32_t input) {
  const Node *node = attention->inputs.items[input];
  const PagedValue *value = value_of_view(p, node);
  const tfm_cache_kind kind = input == 1 ? TFM_CACHE_KEYS : TFM_CACHE_VALUES;
  CacheView result = {.cache = value->caches[kind], .row_floats = value->columns};
  bool followed = follow(p, value, node, &result.view);
  CHECK(followed && result.cache != TFM_NONE, "an attention that does not read pages");
  if (tfm_form_has_scales(form_of_caches(attention))) count_heads(p, &result.view, rounded_head(attention, input));
  return result;
}

// ---- appending ----

/* Orders the axes of new positions as the append step walks them: rows, positions, then the columns as they lie in a
 * page. */
static View in_order(Planner *p, const PagedValue *value, const View *view) {
  View ordered = *view;
  ordered.rank = 0;
  const Size *row = value->row_axis < 0 ? p->math.one : view->dims[value->row_axis];
  const Size *stride = value->row_axis < 0 ? p->math.zero : view->strides[value->row_axis];
  ordered.dims[ordered.rank] = row;
  ordered.strides[ordered.rank++] = stride;
  ordered.dims[ordered.rank] = view->dims[value->position_axis];
  ordered.strides[ordered.rank++] = view->strides[value->position_axis];
  for (uint32_t i = 0; i < view->rank; i++) {
    if ((int32_t)i == value->row_axis || i == value->position_axis || size_equals(view->dims[i], 1)) continue;
    ordered.dims[ordered.rank] = view->dims[i];
    ordered.strides[ordered.rank++] = view->strides[i];
  }
  return ordered;
}

void caches_append(Planner *p, const Node *concat, const View *fresh) {
  const PagedValue *value = value_of_view(p, concat);
  const View x = in_order(p, value, fresh);
  for (uint32_t kind = 0; kind < 2; kind++) {
    if (value->caches[kind] == TFM_NONE) continue;
    tfm_append_step step = {.cache = value->caches[kind], .rank = (uint8_t)x.rank,
                            .past = plan_size(p, value->input->dims[value->position_axis]), .x = plan_operand(p, &x)};
    for (uint32_t i = 0; i < x.rank; i++) {
      step.dims[i] = plan_size(p, x.dims[i]);
      step.x.strides[i] = plan_size(p, x.strides[i]);
    }
    vec_push(p->arena, &p->appends, step);
    const Size *elements = math_product(&p->math, x.rank, x.dims);
    plan_step(p, TFM_STEP_APPEND, p->appends.n - 1, cost_append(p, elements), "append");
  }
}
