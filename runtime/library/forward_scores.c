/* Logits of the next token from the whole model, run on whole rows; see forward_scores.h.
 *
 * Refused: an input whose batch cannot be divided into items, and logits of another shape than the generate block
 * promises. */
#include "library/forward_scores.h"

#include <string.h>

#include "base/allocate.h"

typedef struct Group { /* rows of a call that are run together: they have one length, their items the same sizes */
  const tfm_step_rows *call;
  int64_t *numbers, n, length;
} Group;

// ---- memory ----

static int64_t value_bytes(const tfm_value *value) {
  int64_t bytes = dtype_size((uint8_t)value->dtype);
  for (int32_t axis = 0; axis < value->rank; axis++) bytes *= value->dims[axis];
  return bytes;
}

/* A block of at least so many bytes, half as many again so that growing rows do not allocate at each token. Its
 * contents are lost. */
static bool make_room(const ForwardScores *f, Block *block, uint64_t bytes) {
  if (bytes <= block->bytes) return true;
  const tfm_allocator *allocator = &f->context->allocator;
  release(allocator, block->memory, block->bytes);
  *block = (Block){0};
  block->memory = allocate(allocator, bytes + bytes / 2, ALIGNMENT);
  if (block->memory) block->bytes = (size_t)(bytes + bytes / 2);
  return block->memory != NULL;
}

void forward_scores_free(ForwardScores *f) {
  release(&f->context->allocator, f->values.memory, f->values.bytes);
  release(&f->context->allocator, f->order.memory, f->order.bytes);
}

static tfm_status scores_no_memory(tfm_error *error) {
  return tfm_fail(error, TFM_E_NOMEM, TFM_REASON_OTHER, NULL, "not enough memory for generation");
}

// ---- inputs ----

typedef struct Gather { /* the items of a group's rows, from an input as it was given */
  const Group *group;
  const tfm_value *from;
  const int64_t *dims; /* of the copy: at most those of `from`, but for axes that hold items */
  uint8_t item_axes;
  int32_t plain_axes;  /* the last axes, which hold no items and are copied whole, begin here */
  int64_t batch;
  int64_t strides[TFM_MAX_RANK + 1]; /* bytes; [rank]: of an element */
} Gather;

static char *copy_bytes(char *to, const char *from, int64_t bytes) {
  memcpy(to, from, (size_t)bytes);
  return to + bytes;
}

/* Copies what lies below one index of the axes before `axis`, and returns where the copy ends. An axis that holds
 * items has dims[axis] / batch indexes for each, which are copied for the items of the group's rows. */
static char *copy_axis(const Gather *g, int32_t axis, const char *from, char *to) {
  if (axis >= g->plain_axes) return copy_bytes(to, from, g->strides[axis]);
  const int64_t stride = g->strides[axis + 1];
  if (!(g->item_axes >> axis & 1)) {
    for (int64_t i = 0; i < g->dims[axis]; i++) to = copy_axis(g, axis + 1, from + i * stride, to);
    return to;
  }
  const int64_t part = g->batch ? g->from->dims[axis] / g->batch : 0;
  for (int64_t i = 0; i < g->group->n; i++) {
    const char *item = from + g->group->call->items[g->group->numbers[i]] * part * stride;
    for (int64_t k = 0; k < part; k++) to = copy_axis(g, axis + 1, item + k * stride, to);
  }
  return to;
}

/* The last axes that hold no items and are not cut are copied as one piece. */
static void gather_group(const ForwardScores *f, const Group *group, uint32_t input, char *to) {
  const tfm_value *from = &f->inputs[input];
  Gather g = {.group = group,
              .from = from,
              .dims = f->context->given[input].dims,
              .item_axes = f->generation->item_axes[input],
              .plain_axes = from->rank,
              .batch = f->batch};
  g.strides[from->rank] = dtype_size((uint8_t)from->dtype);
  for (int32_t axis = from->rank - 1; axis >= 0; axis--) {
    g.strides[axis] = g.strides[axis + 1] * from->dims[axis];
    const bool is_plain = g.plain_axes == axis + 1 && !(g.item_axes >> axis & 1) && g.dims[axis] == from->dims[axis];
    if (is_plain) g.plain_axes = axis;
  }
  if (value_bytes(from)) copy_axis(&g, 0, from->data, to);
}

/* The size that the item of a row has. */
static int64_t size_of(const ForwardScores *f, const tfm_step_rows *call, int64_t row, uint32_t symbol) {
  return f->lengths[symbol] ? f->lengths[symbol][call->items[row]] : f->sizes[symbol];
}

/* Whether the items of the group have all that the inputs have, so that nothing must be cut. */
static bool has_sizes_of_inputs(const ForwardScores *f, const Group *group) {
  for (uint32_t i = 0; i < f->context->program->n_symbols; i++)
    if (size_of(f, group->call, group->numbers[0], i) != f->sizes[i]) return false;
  return true;
}

/* Whether the rows are all items, one after the other: then the caller's inputs are used as they are. */
static bool is_whole(const ForwardScores *f, const Group *group) {
  bool whole = group->n == f->batch && has_sizes_of_inputs(f, group);
  for (int64_t i = 0; i < group->n && whole; i++) whole = group->call->items[group->numbers[i]] == i;
  return whole;
}

/* Whether the dims that the run needs can be taken from the input item by item. */
static bool can_be_gathered(const ForwardScores *f, const Group *group, uint32_t input, const int64_t *dims) {
  const tfm_value *from = &f->inputs[input];
  for (int32_t axis = 0; axis < from->rank; axis++) {
    bool holds_items = f->generation->item_axes[input] >> axis & 1;
    int64_t part = holds_items && f->batch ? from->dims[axis] / f->batch : 0;
    if (holds_items && (part * f->batch != from->dims[axis] || part * group->n != dims[axis])) return false;
    if (!holds_items && from->dims[axis] < dims[axis]) return false;
  }
  return true;
}

static void write_tokens(const Group *group, int32_t *to) {
  for (int64_t i = 0; i < group->n; i++)
    memcpy(to + i * group->length, group->call->tokens[group->numbers[i]], (size_t)group->length * sizeof *to);
}

// ---- one run ----

/* Binds the context to the sizes of the group; a model may compute its output's shape from sizes in any way, so it is
 * checked. */
static tfm_status bind_group(ForwardScores *f, const Group *group, tfm_error *error) {
  tfm_context *context = f->context;
  for (uint32_t i = 0; i < context->program->n_symbols; i++)
    context->asked[i] = size_of(f, group->call, group->numbers[0], i);
  if (f->generation->batch != TFM_NONE) context->asked[f->generation->batch] = group->n;
  context->asked[f->generation->length] = group->length;
  tfm_status status = context_bind_symbols(context, context->asked, error);
  if (status) return status;
  const int64_t *dims = tfm_context_output_dims(context, f->generation->scores, NULL);
  if (dims[0] != group->n || dims[1] < 1 || dims[2] != f->generation->vocab)
    return tfm_fail(error, TFM_E_INPUT, TFM_REASON_SHAPE, NULL,
                    "the logits of %lld rows have the shape [%lld, %lld, %lld]",
                    (long long)group->n, (long long)dims[0], (long long)dims[1], (long long)dims[2]);
  return TFM_OK;
}

/* Whether a value of a run needs memory of the adapter: tokens, gathered inputs, the logits. */
static bool is_own(const ForwardScores *f, uint32_t i, bool whole) {
  const uint32_t n_inputs = f->context->program->n_inputs;
  if (i >= n_inputs) return i == n_inputs + f->generation->scores;
  return i == f->generation->tokens || (!whole && f->generation->item_axes[i]);
}

/* Lists the values of a run in context->given, its own without memory yet, and adds up their bytes. */
static tfm_status list_values(ForwardScores *f, const Group *group, bool whole, uint64_t *bytes, tfm_error *error) {
  const tfm_context *context = f->context;
  const uint32_t n_inputs = context->program->n_inputs, n = n_inputs + context->program->n_outputs;
  *bytes = 0;
  for (uint32_t i = 0; i < n; i++) {
    bool is_input = i < n_inputs;
    const tfm_tensor_info *info = is_input ? &context->program->inputs[i] : &context->program->outputs[i - n_inputs];
    const int64_t *dims = is_input ? context->binding.input_dims + (size_t)i * TFM_MAX_RANK
                                   : context->binding.output_dims + (size_t)(i - n_inputs) * TFM_MAX_RANK;
    tfm_value *value = &context->given[i];
    *value = (tfm_value){
        .data = is_input ? f->inputs[i].data : NULL, .dtype = info->dtype, .rank = info->rank, .dims = dims};
    if (!is_own(f, i, whole)) continue;
    *bytes += (uint64_t)round_up(value_bytes(value), ALIGNMENT);
    if (is_input && i != f->generation->tokens && !can_be_gathered(f, group, i, dims))
      return tfm_fail(error, TFM_E_INPUT, TFM_REASON_SHAPE, NULL, "input \"%s\" cannot be divided into %lld items",
                      info->name, (long long)f->batch);
  }
  return TFM_OK;
}

static void fill_values(ForwardScores *f, const Group *group, bool whole) {
  const uint32_t n_inputs = f->context->program->n_inputs, n = n_inputs + f->context->program->n_outputs;
  char *at = f->values.memory;
  for (uint32_t i = 0; i < n; i++) {
    tfm_value *value = &f->context->given[i];
    if (!is_own(f, i, whole)) continue;
    value->data = at;
    at += round_up(value_bytes(value), ALIGNMENT);
    if (i == f->generation->tokens) write_tokens(group, value->data);
    else if (i < n_inputs) gather_group(f, group, i, value->data);
  }
}

/* Only the last position of each row is the next token's. */
static void take_scores(const ForwardScores *f, const Group *group, float *scores) {
  const int64_t vocab = f->generation->vocab;
  const tfm_value *output = &f->context->given[f->context->program->n_inputs + f->generation->scores];
  for (int64_t i = 0; i < group->n; i++)
    memcpy(scores + group->numbers[i] * vocab, (const float *)output->data + ((i + 1) * output->dims[1] - 1) * vocab,
           (size_t)vocab * sizeof *scores);
}

static tfm_status run_group(ForwardScores *f, const Group *group, float *scores, tfm_error *error) {
  tfm_context *context = f->context;
  const bool whole = is_whole(f, group);
  uint64_t bytes;
  tfm_status status = bind_group(f, group, error);
  if (!status) status = list_values(f, group, whole, &bytes, error);
  if (status) return status;
  if (!make_room(f, &f->values, bytes)) return scores_no_memory(error);
  fill_values(f, group, whole);
  status = tfm_context_run(context, context->given, context->given + context->program->n_inputs, error);
  if (!status) take_scores(f, group, scores);
  return status;
}

// ---- a call ----

static int order_of(int64_t a, int64_t b) { return (a > b) - (a < b); }

/* Orders rows by length, then by sizes; 0: the rows can be run together. */
static int compare_rows(const ForwardScores *f, const tfm_step_rows *call, int64_t a, int64_t b) {
  int order = order_of(call->lengths[a], call->lengths[b]);
  for (uint32_t i = 0; i < f->context->program->n_symbols && !order; i++)
    order = order_of(size_of(f, call, a, i), size_of(f, call, b, i));
  return order;
}

/* The numbers of the rows: those that can be run together are neighbours, and otherwise keep their order. An insertion
 * sort: calls have few rows, mostly in order. */
static void sort(const ForwardScores *f, const tfm_step_rows *call, int64_t *order) {
  for (int64_t i = 0; i < call->n; i++) {
    int64_t place = i;
    for (; place > 0 && compare_rows(f, call, order[place - 1], i) > 0; place--) order[place] = order[place - 1];
    order[place] = i;
  }
}

/* Without a size that counts the batch each row is a run of its own. */
static tfm_status scores_of(void *user, const tfm_step_rows *call, float *scores, float *logsumexp, tfm_error *error) {
  (void)logsumexp; /* not given */
  ForwardScores *f = user;
  if (!make_room(f, &f->order, (size_t)call->n * sizeof(int64_t))) return scores_no_memory(error);
  int64_t *order = (int64_t *)(void *)f->order.memory;
  sort(f, call, order);
  tfm_status status = TFM_OK;
  for (int64_t first = 0, end; first < call->n && !status; first = end) {
    const int64_t length = call->lengths[order[first]];
    for (end = first + 1; end < call->n && compare_rows(f, call, order[end], order[first]) == 0; end++)
      if (f->generation->batch == TFM_NONE) break;
    status = run_group(f, &(Group){call, order + first, end - first, length}, scores, error);
  }
  return status;
}

tfm_generate_model forward_scores_model(ForwardScores *forward) {
  return (tfm_generate_model){.vocab = forward->generation->vocab, .user = forward, .logits = scores_of};
}
