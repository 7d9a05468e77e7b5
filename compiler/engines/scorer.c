/* Groups of rows, and the scorer that computes whole rows for each token. See scorer.h.
 *
 * This is the slow way: every call runs the model on all tokens of every row. It serves models without an incremental
 * form and --recompute, and it is what the incremental form is compared with in tests, because it computes by the
 * definition. */
#include "engines/scorer.h"

#include <string.h>

#include "weights/safetensors.h"

// ---- rows that go together ----

/* Quadratic in the rows of a call, of which there are at most some hundreds; every row ends up in exactly one group,
 * and the groups keep the order of their first rows, so results do not depend on hashing. */
bool row_groups_run(Arena *arena, const tfm_step_rows *call, const RowGrouping *grouping) {
  bool *is_taken = ARENA_ARRAY(arena, bool, call->n);
  RowGroup group = {.call = call, .numbers = ARENA_ARRAY(arena, int64_t, call->n)};
  for (int64_t first = 0; first < call->n; first++) {
    if (is_taken[first]) continue;
    group.n = group.longest = 0;
    for (int64_t i = first; i < call->n; i++) {
      if (is_taken[i] || (i > first && !grouping->fits(grouping->context, call, first, i))) continue;
      is_taken[i] = true;
      group.numbers[group.n++] = i;
      if (call->lengths[i] > group.longest) group.longest = call->lengths[i];
    }
    if (!grouping->run(grouping->context, &group)) return false;
  }
  return true;
}

Tensor parts_gather(Arena *arena, const Tensor *from, int64_t items, uint32_t axis, const RowGroup *group) {
  Tensor to = parts_tensor(arena, from, items, group->n, axis);
  for (int64_t i = 0; i < group->n; i++)
    parts_copy((TensorPart){&to, i, group->n}, (TensorPart){from, group->call->items[group->numbers[i]], items}, axis);
  return to;
}

/* Rows that are shorter than the longest end in zeros: a legal id, whose results nobody reads. */
Tensor group_tokens(Arena *arena, const RowGroup *group, int64_t past) {
  const int64_t width = group->longest - past;
  Tensor tensor = *tensor_new(arena, DTYPE_I32, 2, (int64_t[]){group->n, width});
  for (int64_t i = 0; i < group->n; i++)
    memcpy((int32_t *)tensor.data + i * width, group->call->tokens[group->numbers[i]] + past,
           (size_t)(group->call->lengths[group->numbers[i]] - past) * sizeof(int32_t));
  return tensor;
}

// ---- the model ----

static const Node *find_input(const Graph *graph, const char *name) {
  for (size_t i = 0; i < graph->inputs.n; i++)
    if (strcmp(graph->inputs.items[i]->attr.name, name) == 0) return graph->inputs.items[i];
  return NULL;
}

/* graph_verify made sure that the output of the generate block exists. */
static void find_output(Scorer *s, const Graph *graph) {
  s->n_outputs = graph->outputs.n;
  while (strcmp(graph->outputs.items[s->output].name, graph->generate_output) != 0) s->output++;
}

static bool refuse_model(Scorer *s, const char *what) {
  diag_error_at(s->diag, "generate", DIAG_INPUT_DECLARATION, "%s", what);
  return false;
}

/* `batch` gets -1 for a model that takes one row at a time. What is refused here cannot be generated with at all: the
 * loop must be able to choose how many rows there are and how long they are. */
static bool read_model(Scorer *s, const Graph *graph, const Node *decoder_input, int32_t *batch, int32_t *time) {
  find_output(s, graph);
  *batch = size_symbol_of(decoder_input->dims[0]);
  *time = size_symbol_of(decoder_input->dims[1]);
  s->is_single = size_equals(decoder_input->dims[0], 1);
  if (*batch < 0 && !s->is_single) return refuse_model(s, "the number of rows must be a run-time size, or 1");
  if (*time < 0) return refuse_model(s, "the length of the rows must be a run-time size");
  if (!size_is_const(graph->outputs.items[s->output].node->dims[2], &s->vocab))
    return refuse_model(s, "the number of tokens must be known when the model is compiled");
  if (graph->ragged[*time]) s->lengths = arena_printf(s->arena, "%s.lengths", graph->sizes->symbols[*time]);
  return true;
}

// ---- the inputs ----

/* The engine would find it, too, but only in the first step, with the shape of a step that the user never wrote. */
static bool check_rank(Scorer *s, const Graph *graph, const Node *node, const Tensor *tensor) {
  if (tensor->rank == node->rank) return true;
  StrBuf got = strbuf_new(s->arena), wanted = strbuf_new(s->arena);
  print_dims(&got, tensor->dims, tensor->rank);
  node_print_shape(&wanted, graph->sizes, node);
  diag_error_at(s->diag, "run", DIAG_INPUT_SHAPE, "input \"%s\": shape %s, the model wants %s",
                node->attr.name, got.text, wanted.text);
  return false;
}

/* The first axis that is the batch and nothing else fixes the number of items; every other axis must agree with it.
 * An axis that merely contains the batch (batch * heads) must be a multiple of it. False after an error, and also, in
 * the first round, if the batch is not known yet. */
static bool take_batch(Scorer *s, const char *name, int64_t dim, bool is_exact) {
  if (s->batch < 0 && is_exact) s->batch = dim;
  if (s->batch < 0 || (is_exact ? dim == s->batch : s->batch && dim % s->batch == 0)) return true;
  diag_error_at(s->diag, "run", DIAG_INPUT_SHAPE,
                "input \"%s\" has a batch of %lld, another input one of %lld", name, (long long)dim,
                (long long)s->batch);
  return false;
}

/* Sorts one input: the decoder input and its lengths are what rows begin with; all others go into every run, cut by
 * item. */
static bool take_input(Scorer *s, const Graph *graph, const EvalInputs *inputs, uint32_t i, int32_t batch) {
  ScorerInput input = {.name = inputs->names[i], .tensor = inputs->tensors[i]};
  const Node *node = find_input(graph, input.name);
  bool is_given = true;
  if (node && !check_rank(s, graph, node, &input.tensor)) return false;
  for (uint32_t axis = 0; axis < input.tensor.rank && batch >= 0; axis++) {
    input.of_batch[axis] = node ? size_involves(node->dims[axis], (uint32_t)batch) : axis == 0;
    bool is_exact = !node || size_symbol_of(node->dims[axis]) == batch;
    if (input.of_batch[axis]) is_given &= take_batch(s, input.name, input.tensor.dims[axis], is_exact);
  }
  if (strcmp(input.name, s->decoder_input) == 0) s->prompt = &inputs->tensors[i];
  else if (s->lengths && strcmp(input.name, s->lengths) == 0) s->prompt_lengths = &inputs->tensors[i];
  else vec_push(s->arena, &s->inputs, input);
  return is_given;
}

/* Two rounds: an input such as f32[batch * heads, n] can only be checked when a later input has told the batch. */
static bool take_inputs(Scorer *s, const Graph *graph, const EvalInputs *inputs, int32_t batch) {
  s->batch = s->is_single ? 1 : -1;
  for (int round = 0; round < 2; round++) { /* the second time with a batch that is known */
    s->inputs.n = 0;
    for (uint32_t i = 0; i < inputs->n; i++)
      if (!take_input(s, graph, inputs, i, batch)) return false;
  }
  if (s->batch < 0) s->batch = 1;
  const Tensor *lengths = s->prompt_lengths;
  if (!lengths || (s->prompt && lengths->rank == 1 && lengths->dims[0] == s->prompt->dims[0])) return true;
  if (s->prompt)
    diag_error_at(s->diag, "run", DIAG_INPUT_SHAPE,
                  "input \"%s\" must have a length for each of the %lld rows of \"%s\"", s->lengths,
                  (long long)s->prompt->dims[0], s->decoder_input);
  else
    diag_error_at(s->diag, "run", DIAG_INPUT_MISSING, "input \"%s\" is not given, only its lengths",
                  s->decoder_input);
  return false;
}

/* A second output is the logsumexp of incremental_add_logsumexp; the outputs of a library are those of its model,
 * whatever their number. */
Scorer *scorer_new(const EngineSettings *settings, const Graph *graph, const EvalInputs *inputs) {
  Scorer *s = ARENA_NEW(settings->compile.arena, Scorer);
  const Node *decoder_input = find_input(graph, graph->generate_input);
  int32_t batch, time;
  s->arena = settings->compile.arena;
  s->diag = settings->compile.diag;
  s->decoder_input = graph->generate_input;
  s->is_decoder = graph->inputs.n == 1;
  if (!read_model(s, graph, decoder_input, &batch, &time) || !take_inputs(s, graph, inputs, batch)) return NULL;
  s->gives_logsumexp = !settings->library && s->n_outputs == 2;
  s->scratch = arena_create();
  return s;
}

EvalInputs scorer_inputs(const Scorer *s) {
  uint32_t n = (uint32_t)s->inputs.n;
  const char **names = ARENA_ARRAY(s->arena, const char *, n);
  Tensor *tensors = ARENA_ARRAY(s->arena, Tensor, n);
  for (uint32_t i = 0; i < n; i++) {
    names[i] = s->inputs.items[i].name;
    tensors[i] = s->inputs.items[i].tensor;
  }
  return (EvalInputs){names, tensors, n};
}

void scorer_destroy(Scorer *scorer) {
  if (scorer) arena_destroy(scorer->scratch);
}

// ---- one run ----

typedef struct Call {
  Scorer *scorer;
  float *logits, *logsumexp; /* of its rows; logsumexp: NULL, not wanted */
} Call;

/* If the rows are all items in their order, as in greedy search, the tensor that was given serves as it is. */
static Tensor gather(Scorer *s, const ScorerInput *input, const RowGroup *rows) {
  Tensor tensor = input->tensor;
  bool is_whole = rows->n == s->batch; /* as it was given */
  for (int64_t i = 0; i < rows->n && is_whole; i++) is_whole = rows->call->items[rows->numbers[i]] == i;
  for (uint32_t axis = 0; axis < tensor.rank && !is_whole; axis++)
    if (input->of_batch[axis]) tensor = parts_gather(s->scratch, &tensor, s->batch, axis, rows);
  return tensor;
}

/* The lengths of the rows of a group, for a decoder input whose length is ragged. */
static Tensor lengths_tensor(Scorer *s, const RowGroup *rows) {
  Tensor tensor = *tensor_new(s->scratch, DTYPE_I32, 1, &rows->n);
  for (int64_t i = 0; i < rows->n; i++) ((int32_t *)tensor.data)[i] = (int32_t)rows->call->lengths[rows->numbers[i]];
  return tensor;
}

/* The inputs of the encoder cut to the rows, then the tokens, then their lengths: in the scratch arena, which the
 * next call resets. */
EvalInputs scorer_row_inputs(Scorer *s, const RowGroup *rows) {
  uint32_t n = (uint32_t)s->inputs.n;
  const char **names = ARENA_ARRAY(s->scratch, const char *, n + 2);
  Tensor *tensors = ARENA_ARRAY(s->scratch, Tensor, n + 2);
  for (uint32_t i = 0; i < n; i++) {
    names[i] = s->inputs.items[i].name;
    tensors[i] = gather(s, &s->inputs.items[i], rows);
  }
  names[n] = s->decoder_input;
  tensors[n++] = group_tokens(s->scratch, rows, 0);
  if (s->lengths) {
    names[n] = s->lengths;
    tensors[n++] = lengths_tensor(s, rows);
  }
  return (EvalInputs){names, tensors, n};
}

/* Copies the logits of the last position of each row. Where the model gives a position for each token of a ragged
 * batch, the last one is that of the row's own length; a model that reduces over time gives a single position. */
static bool take_logits(const Call *call, const RowGroup *rows, const Tensor *outputs) {
  Scorer *s = call->scorer;
  const Tensor *output = &outputs[s->output], *sums = &outputs[s->n_outputs - 1];
  if (output->dims[0] != rows->n || output->dims[1] < 1 || output->dims[2] != s->vocab) {
    StrBuf shape = strbuf_new(s->arena);
    print_dims(&shape, output->dims, output->rank);
    return refuse_model(s, arena_printf(s->arena, "the logits of %lld rows have the shape %s",
                                        (long long)rows->n, shape.text));
  }
  for (int64_t i = 0; i < rows->n; i++) {
    int64_t number = rows->numbers[i], length = rows->call->lengths[number];
    int64_t last = s->lengths && output->dims[1] == rows->longest ? length - 1 : output->dims[1] - 1;
    memcpy(call->logits + number * s->vocab, (const float *)output->data + (i * output->dims[1] + last) * s->vocab,
           (size_t)s->vocab * sizeof *call->logits);
    if (call->logsumexp) call->logsumexp[number] = ((const float *)sums->data)[i * output->dims[1] + last];
  }
  return true;
}

/* What an engine allocates in a run is of no use after it. */
static bool run(void *context, const RowGroup *rows) {
  const Call *call = context;
  Scorer *s = call->scorer;
  EvalInputs inputs = scorer_row_inputs(s, rows);
  Tensor *outputs = ARENA_ARRAY(s->scratch, Tensor, s->n_outputs);
  return engine_run(s->engine, s->scratch, &inputs, outputs) && take_logits(call, rows, outputs);
}

// ---- a call ----

/* Rows of different lengths can share a run only if the model knows that its rows are ragged: padding would change
 * the results otherwise. */
bool scorer_fits(const Scorer *s, const tfm_step_rows *rows, int64_t a, int64_t b) {
  return !s->is_single && (s->lengths || rows->lengths[a] == rows->lengths[b]);
}

static bool fits(const void *context, const tfm_step_rows *rows, int64_t a, int64_t b) {
  return scorer_fits(((const Call *)context)->scorer, rows, a, b);
}

/* The message is in the diag already; the runtime only has to learn that it must stop. */
static tfm_status logits_of(void *context, const tfm_step_rows *rows, float *logits, float *logsumexp,
                            tfm_error *error) {
  Call call = {context, logits, logsumexp};
  arena_reset(call.scorer->scratch);
  if (row_groups_run(call.scorer->scratch, rows, &(RowGrouping){&call, fits, run})) return TFM_OK;
  *error = (tfm_error){.status = TFM_E_INPUT};
  return TFM_E_INPUT;
}

tfm_generate_model scorer_model(Scorer *scorer) {
  return (tfm_generate_model){
      .vocab = scorer->vocab, .user = scorer, .logits = logits_of, .gives_logsumexp = scorer->gives_logsumexp};
}
