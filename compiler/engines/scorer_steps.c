/* The incremental form under the interpreter: generation with --engine=reference, token by token.
 *
 * In: the graphs of the encoder and of a step, the weights, the inputs. Out: the logits of each row. The caches of a
 * row are tensors of its own, kept between calls; rows with as many earlier and as many new tokens are gathered into
 * one evaluation and taken apart again. It shares no code with the compiled decoder, which is the point: the two are
 * compared in tests. */
#include "engines/scorer_steps.h"

#include <string.h>

typedef struct StepInput { /* of the step graph */
  Role role;
  int32_t batch_axis; /* -1: the same for all rows */
} StepInput;

typedef struct Row { /* of the call before */
  int64_t length;
  Tensor *caches; /* by input of the step, each of one row; states too */
} Row;

struct StepScorer {
  Arena *arena;
  Diag *diag;
  Graph *step;
  WeightSource *weights;
  int64_t items, vocab;
  bool is_single;
  StepInput *inputs;  /* of the step, in their order */
  uint32_t n_sizes;
  EvalSize *sizes;    /* of the encoder; room for those of the step behind them */
  Tensor *encoded;    /* by number, all items */
  Row *rows;
  int64_t n_rows;
  Arena *kept, *next; /* what the rows of the call before keep; of this one */
  Arena *scratch;
};

// ---- making it ----

/* The axis along which rows lie, or -1 for a cache that all rows share. */
static int32_t batch_axis(const Graph *step, const Node *input) {
  int32_t batch = step->size_roles[ROLE_ROWS];
  for (uint32_t axis = 0; axis < input->rank && batch >= 0; axis++)
    if (size_involves(input->dims[axis], (uint32_t)batch)) return (int32_t)axis;
  return -1;
}

static void read_step(StepScorer *s) {
  s->inputs = ARENA_ARRAY(s->arena, StepInput, s->step->inputs.n);
  for (size_t i = 0; i < s->step->inputs.n; i++) {
    const Node *node = s->step->inputs.items[i];
    s->inputs[i] = (StepInput){node->attr.role, batch_axis(s->step, node)};
  }
}

/* The sizes of the encoder by their names, as far as its inputs tell them; the evaluation of a step needs them, since
 * no input of a step has them. The size of the batch is the step's own. */
static void read_sizes(StepScorer *s, const Graph *encoder, const EvalInputs *given) {
  s->sizes = ARENA_ARRAY(s->arena, EvalSize, SIZE_MAX_SYMBOLS + 4);
  int32_t batch = s->step->size_roles[ROLE_ROWS];
  const char *rows = batch >= 0 ? s->step->sizes->symbols[batch] : "";
  bool is_known[SIZE_MAX_SYMBOLS] = {false};
  for (size_t i = 0; i < encoder->inputs.n; i++)
    for (uint32_t j = 0; j < given->n; j++)
      for (uint32_t axis = 0; axis < given->tensors[j].rank; axis++) {
        if (strcmp(given->names[j], encoder->inputs.items[i]->attr.name) != 0) continue;
        int32_t symbol = size_symbol_of(encoder->inputs.items[i]->dims[axis]);
        if (symbol < 0 || is_known[symbol] || !strcmp(encoder->sizes->symbols[symbol], rows)) continue;
        is_known[symbol] = true;
        s->sizes[s->n_sizes++] = (EvalSize){encoder->sizes->symbols[symbol], given->tensors[j].dims[axis]};
      }
}

/* The encoder runs once for all items; steps gather from its outputs. */
static bool run_encoder(StepScorer *s, const Scorer *scorer, Graph *encoder) {
  const EvalInputs given = scorer_inputs(scorer);
  s->encoded = ARENA_ARRAY(s->arena, Tensor, encoder->outputs.n);
  const EvalCall whole = {encoder, weight_source_get, s->weights, .inputs = &given};
  if (!graph_eval(s->arena, s->diag, &whole, s->encoded)) return false;
  read_sizes(s, encoder, &given);
  return true;
}

/* Two arenas take turns: one holds the caches that the call before left, the other gets those of this call. Resetting
 * the older one frees what rows that ended have kept. */
StepScorer *step_scorer_new(const Scorer *scorer, const Incremental *parts, WeightSource *weights) {
  Arena *arena = scorer->arena;
  StepScorer *s = ARENA_NEW(arena, StepScorer);
  *s = (StepScorer){.arena = arena,
                    .diag = scorer->diag,
                    .step = parts->step,
                    .weights = weights,
                    .items = scorer->batch,
                    .vocab = scorer->vocab,
                    .is_single = scorer->is_single};
  s->sizes = ARENA_ARRAY(arena, EvalSize, 4);
  read_step(s);
  if (parts->encoder && !run_encoder(s, scorer, parts->encoder)) return NULL;
  s->kept = arena_create();
  s->next = arena_create();
  s->scratch = arena_create();
  return s;
}

void step_scorer_destroy(StepScorer *s) {
  if (!s) return;
  arena_destroy(s->kept);
  arena_destroy(s->next);
  arena_destroy(s->scratch);
}

// ---- a step ----

typedef struct Call { /* of the decoding loop */
  StepScorer *scorer;
  Row *rows;
  float *logits, *logsumexp; /* logsumexp: NULL, not wanted */
} Call;

/* The row of the call before that this one continues. A parent that is not there, or is not shorter, means that the
 * row begins anew: then its whole prompt is fresh. */
static const Row *parent_of(const StepScorer *s, const tfm_step_rows *call, int64_t i) {
  int64_t parent = call->parents[i];
  bool is_there = parent >= 0 && parent < s->n_rows && s->rows[parent].length < call->lengths[i];
  return is_there ? &s->rows[parent] : NULL;
}

static int64_t past_of(const StepScorer *s, const tfm_step_rows *call, int64_t i) {
  const Row *parent = parent_of(s, call, i);
  return parent ? parent->length : 0;
}

/* fits() made sure that all rows of a group have as many earlier tokens. */
static int64_t group_past(const StepScorer *s, const RowGroup *group) {
  return past_of(s, group->call, group->numbers[0]);
}

static Tensor gather_encoded(StepScorer *s, const RowGroup *group, const StepInput *input) {
  const Tensor *whole = &s->encoded[input->role.number];
  return input->batch_axis < 0 ? *whole
                               : parts_gather(s->scratch, whole, s->items, (uint32_t)input->batch_axis, group);
}

static bool goes_on(const StepInput *input) { return role_goes_on(input->role); }

/* The cache of rows without earlier tokens: its axis of positions has length 0, and every other size has its value. A
 * state is all zeros, a running sum of f32 all -0. */
static Tensor empty_cache(StepScorer *s, const RowGroup *group, const Node *node) {
  int64_t values[SIZE_MAX_SYMBOLS] = {0}, dims[MAX_RANK];
  int32_t batch = s->step->size_roles[ROLE_ROWS];
  if (batch >= 0) values[batch] = group->n;
  for (uint32_t j = 0; j < s->step->sizes->n_symbols; j++)
    for (uint32_t i = 0; i < s->n_sizes; i++)
      if (!strcmp(s->sizes[i].name, s->step->sizes->symbols[j])) values[j] = s->sizes[i].value;
  for (uint32_t i = 0; i < node->rank; i++) size_value(node->dims[i], values, &dims[i]);
  Tensor *tensor = tensor_new(s->scratch, node->dtype, node->rank, dims);
  const int64_t n = tensor_elements(tensor);
  if (role_is_state(node->attr.role) && n) memset(tensor->data, 0, (size_t)n * dtype_bytes[node->dtype]);
  if (node->attr.role.kind == ROLE_RUNNING_SUM && node->dtype == DTYPE_F32)
    for (int64_t i = 0; i < n; i++) ((float *)tensor->data)[i] = -0.0f;
  return *tensor;
}

/* Caches are stored by row, so beams can be reordered by changing parents, without copying what nobody continues. */
static Tensor gather_cache(StepScorer *s, const RowGroup *group, size_t i) {
  const StepInput *input = &s->inputs[i];
  if (group_past(s, group) == 0) return empty_cache(s, group, s->step->inputs.items[i]);
  const Tensor *first = &parent_of(s, group->call, group->numbers[0])->caches[i];
  if (input->batch_axis < 0) return *first; /* one row, or the same for all */
  const uint32_t axis = (uint32_t)input->batch_axis;
  Tensor tensor = parts_tensor(s->scratch, first, 1, group->n, axis);
  for (int64_t row = 0; row < group->n; row++)
    parts_copy((TensorPart){&tensor, row, group->n},
               (TensorPart){&parent_of(s, group->call, group->numbers[row])->caches[i], 0, 1}, axis);
  return tensor;
}

static EvalInputs make_inputs(StepScorer *s, const RowGroup *group) {
  uint32_t n = (uint32_t)s->step->inputs.n;
  const char **names = ARENA_ARRAY(s->scratch, const char *, n);
  Tensor *tensors = ARENA_ARRAY(s->scratch, Tensor, n);
  for (uint32_t i = 0; i < n; i++) {
    names[i] = s->step->inputs.items[i]->attr.name;
    if (goes_on(&s->inputs[i])) tensors[i] = gather_cache(s, group, i);
    else if (s->inputs[i].role.kind == ROLE_ENCODED) tensors[i] = gather_encoded(s, group, &s->inputs[i]);
    else tensors[i] = group_tokens(s->scratch, group, group_past(s, group));
  }
  return (EvalInputs){names, tensors, n};
}

/* Takes the outputs of a step apart: each row gets its part of every cache, in the arena of this call. */
static void keep_caches(const Call *call, const RowGroup *group, const Tensor *outputs) {
  StepScorer *s = call->scorer;
  for (int64_t i = 0; i < group->n; i++) {
    Row *row = &call->rows[group->numbers[i]];
    *row = (Row){group->longest, ARENA_ARRAY(s->next, Tensor, s->step->inputs.n)};
    for (size_t j = 0; j < s->step->inputs.n; j++) {
      const StepInput *input = &s->inputs[j];
      if (!goes_on(input)) continue;
      const Tensor *cache = &outputs[graph_output_with(s->step, input->role) - s->step->outputs.items];
      uint32_t axis = input->batch_axis < 0 ? 0 : (uint32_t)input->batch_axis;
      int64_t n = input->batch_axis < 0 ? 1 : group->n;
      row->caches[j] = parts_tensor(s->next, cache, n, 1, axis);
      parts_copy((TensorPart){&row->caches[j], 0, 1}, (TensorPart){cache, n == 1 ? 0 : i, n}, axis);
    }
  }
}

/* The output 0 of a step graph are the logits, output 1 the logsumexp. The sizes that no input fixes are given by
 * role: earlier positions, fresh ones, and one position of logits that is wanted. */
static bool run(void *context, const RowGroup *group) {
  const Call *call = context;
  StepScorer *s = call->scorer;
  const EvalInputs inputs = make_inputs(s, group);
  const int64_t past = group_past(s, group), values[] = {past, group->longest - past, 1};
  static const SizeRole roles[] = {ROLE_PAST, ROLE_FRESH, ROLE_KEPT};
  for (uint32_t i = 0; i < 3; i++)
    s->sizes[s->n_sizes + i] = (EvalSize){s->step->sizes->symbols[s->step->size_roles[roles[i]]], values[i]};
  const EvalOptions options = {.sizes = s->sizes, .n_sizes = s->n_sizes + 3};
  Tensor *outputs = ARENA_ARRAY(s->scratch, Tensor, s->step->outputs.n);
  const EvalCall step = {s->step, weight_source_get, s->weights, &inputs, options};
  if (!graph_eval(s->scratch, s->diag, &step, outputs)) return false;
  for (int64_t i = 0; i < group->n; i++) {
    memcpy(call->logits + group->numbers[i] * s->vocab, (const float *)outputs[0].data + i * s->vocab,
           (size_t)s->vocab * sizeof *call->logits);
    if (call->logsumexp) call->logsumexp[group->numbers[i]] = ((const float *)outputs[1].data)[i];
  }
  keep_caches(call, group, outputs);
  return true;
}

/* Rows run together only with equal lengths and equal pasts: a step has one value for each size. */
static bool fits(const void *context, const tfm_step_rows *rows, int64_t a, int64_t b) {
  const StepScorer *s = ((const Call *)context)->scorer;
  return !s->is_single && rows->lengths[a] == rows->lengths[b] && past_of(s, rows, a) == past_of(s, rows, b);
}

static tfm_status logits_of(void *context, const tfm_step_rows *rows, float *logits, float *logsumexp,
                            tfm_error *error) {
  StepScorer *s = context;
  arena_reset(s->scratch);
  arena_reset(s->next);
  Call call = {s, ARENA_ARRAY(s->next, Row, rows->n), logits, logsumexp};
  if (!row_groups_run(s->scratch, rows, &(RowGrouping){&call, fits, run})) {
    *error = (tfm_error){.status = TFM_E_INPUT};
    return TFM_E_INPUT;
  }
  Arena *kept = s->kept;
  s->kept = s->next;
  s->next = kept;
  s->rows = call.rows;
  s->n_rows = rows->n;
  return TFM_OK;
}

tfm_generate_model step_scorer_model(StepScorer *scorer) {
  return (tfm_generate_model){.vocab = scorer->vocab, .user = scorer, .logits = logits_of, .gives_logsumexp = 1};
}
