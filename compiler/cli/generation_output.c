/* What `tfmc generate` has written: the checks of the names before, the outputs of the model that go with the rows,
 * and the files or lines at the end. See generation_output.h.
 *
 * Outputs of --return-output come from one more run on the finished rows, of the whole model as `tfmc run` would
 * compile it, so they have its bits; the step program does not compute them. */
#include "cli/generation_output.h"

#include <inttypes.h>
#include <string.h>

#include "cli/cli_model.h"
#include "cli/outputs.h"

// ---- the outputs that --return-output names ----

/* The place of a name in a list, n if it is not there. */
static uint32_t find_name(const char *const *names, size_t n, const char *name) {
  uint32_t i = 0;
  while (i < n && strcmp(names[i], name) != 0) i++;
  return i;
}

bool is_generations_own(const char *name) {
  static const char *const own[] = {"sequences", "scores", "token_scores"};
  return find_name(own, sizeof own / sizeof *own, name) < sizeof own / sizeof *own;
}

/* Returns whether the name was refused, with a message. */
static bool refuse_name(Session *session, const ReturnedOutputs *returned, const char *name) {
  Diag *diag = &session->diag;
  if (find_name(returned->names, returned->n, name) < returned->n) {
    option_error(diag, OPTION_RETURN_OUTPUT, "\"%s\" is named twice", name);
  } else if (find_name(returned->outputs, returned->n_outputs, name) == returned->n_outputs) {
    StrBuf list = strbuf_new(session->arena);
    for (size_t i = 0; i < returned->n_outputs; i++) strbuf_printf(&list, "%s%s", i ? ", " : "", returned->outputs[i]);
    option_error(diag, OPTION_RETURN_OUTPUT, "the model has no output \"%s\"; it has %s", name, list.text);
  } else if (is_generations_own(name)) {
    option_error(diag, OPTION_RETURN_OUTPUT,
                 "generation has a result called \"%s\" itself: give the output of the model another name", name);
  } else {
    return false;
  }
  return true;
}

/* Without a file there is nowhere to put the outputs; the probabilities of the first token are known before any row is
 * written. */
static bool check_options(Session *session) {
  if (!option_given(&session->options, OPTION_OUTPUT))
    option_error(&session->diag, OPTION_RETURN_OUTPUT, "goes to files: name one with --output");
  else if (option_given(&session->options, OPTION_FIRST_STEP_PROBABILITIES))
    option_error(&session->diag, OPTION_RETURN_OUTPUT, "cannot be used with --first-step-probabilities");
  return !diag_has_errors(&session->diag);
}

/* The graph is copied as it is now, with all outputs; generation goes on with a smaller one. */
bool returned_outputs_read(Session *session, const Graph *graph, ReturnedOutputs *returned) {
  const OptionValues *asked = &session->options.values[OPTION_RETURN_OUTPUT];
  Arena *arena = session->arena;
  *returned = (ReturnedOutputs){.n_outputs = graph->outputs.n,
                                .outputs = ARENA_ARRAY(arena, const char *, graph->outputs.n),
                                .names = ARENA_ARRAY(arena, const char *, asked->texts.n),
                                .numbers = ARENA_ARRAY(arena, uint32_t, asked->texts.n),
                                .axes = ARENA_ARRAY(arena, uint32_t, asked->texts.n),
                                .tensors = ARENA_ARRAY(arena, Tensor, asked->texts.n)};
  for (size_t i = 0; i < graph->outputs.n; i++) returned->outputs[i] = graph->outputs.items[i].name;
  if (!asked->texts.n) return true;
  if (!check_options(session)) return false;
  for (size_t i = 0; i < asked->texts.n; i++) {
    const char *name = asked->texts.items[i];
    if (refuse_name(session, returned, name)) continue;
    returned->numbers[returned->n] = find_name(returned->outputs, returned->n_outputs, name);
    returned->names[returned->n++] = name;
  }
  returned->graph = graph_clone(arena, graph);
  return !diag_has_errors(&session->diag);
}

// ---- where the rows lie in them ----

/* The one axis that is the batch and nothing else; of a model that takes one row, the one axis that is 1. False if
 * there is none or more than one: it would be a guess which of them holds the rows. */
static bool find_axis(const Node *output, int32_t batch, uint32_t *axis) {
  uint32_t n = 0, n_rows = 0;
  for (uint32_t i = 0; i < output->rank; i++) {
    bool has_rows = batch < 0 ? size_equals(output->dims[i], 1) : size_symbol_of(output->dims[i]) == batch;
    n += batch < 0 ? has_rows : size_involves(output->dims[i], (uint32_t)batch);
    n_rows += has_rows;
    if (has_rows) *axis = i;
  }
  return n == 1 && n_rows == 1;
}

static void refuse_axes(Session *session, const Graph *graph, const GraphOutput *output, int32_t batch) {
  StrBuf shape = strbuf_new(session->arena);
  node_print_shape(&shape, graph->sizes, output->node);
  const char *wanted = "where the model takes one row, exactly one axis must be 1";
  if (batch >= 0)
    wanted = arena_printf(session->arena, "exactly one axis must be `%s`, and no other depend on it",
                          graph->sizes->symbols[batch]);
  option_error(&session->diag, OPTION_RETURN_OUTPUT,
               "the parts of \"%s\", %s, that belong to the rows cannot be joined: %s", output->name, shape.text,
               wanted);
}

/* An output that does not depend on the rows can be returned if there is a single row: `axes` is its rank then. */
bool returned_outputs_place(Session *session, ReturnedOutputs *returned, bool is_one_row) {
  const Graph *graph = returned->graph;
  if (!graph) return true;
  int32_t batch = -1;
  for (size_t i = 0; i < graph->inputs.n; i++)
    if (strcmp(graph->inputs.items[i]->attr.name, graph->generate_input) == 0)
      batch = size_symbol_of(graph->inputs.items[i]->dims[0]);
  for (uint32_t i = 0; i < returned->n; i++) {
    const GraphOutput *output = &graph->outputs.items[returned->numbers[i]];
    if (batch < 0 && is_one_row) returned->axes[i] = output->node->rank;
    else if (!find_axis(output->node, batch, &returned->axes[i])) refuse_axes(session, graph, output, batch);
  }
  return !diag_has_errors(&session->diag);
}

// ---- their values, from a run on what was written ----

typedef struct Run {
  Session *session;
  ReturnedOutputs *returned;
  Scorer *scorer;
  Engine *engine;
  int64_t n_rows;
  const int64_t *places; /* of the rows of the call among those that were written */
  bool has_tensors;      /* the first group, which has the longest row, was computed */
} Run;

typedef struct Part { /* what one row has of an output */
  const Tensor *from, *to;
  uint32_t axis; /* of the rows */
  int64_t from_row, to_row;
} Part;

/* Copies the part below a position of the axes before `axis`; `from` and `to` are row-major numbers of that position.
 * Only the axis of the rows has a fixed index on each side; along all others the part is copied into the beginning of
 * the whole, which is longer where another row is. */
static void copy_below(const Part *part, uint32_t axis, int64_t from, int64_t to) {
  const uint32_t rank = part->from->rank;
  const int64_t n = axis < rank ? part->from->dims[axis] : 1;
  if (axis == part->axis && axis < rank) {
    copy_below(part, axis + 1, from * n + part->from_row, to * part->to->dims[axis] + part->to_row);
  } else if (axis + 1 < rank) {
    for (int64_t i = 0; i < n; i++) copy_below(part, axis + 1, from * n + i, to * part->to->dims[axis] + i);
  } else {
    const int64_t bytes = dtype_bytes[part->from->dtype], width = axis < rank ? part->to->dims[axis] : 1;
    char *at = (char *)part->to->data + to * width * bytes;
    if (n) memcpy(at, (const char *)part->from->data + from * n * bytes, (size_t)(n * bytes));
  }
}

/* The first group has the longest row, so its dims are those of the whole; arena memory is zero, and zero is what
 * follows a shorter row. */
static void make_tensor(const Run *run, uint32_t i, const Tensor *longest) {
  int64_t dims[MAX_RANK];
  memcpy(dims, longest->dims, sizeof dims);
  if (run->returned->axes[i] < longest->rank) dims[run->returned->axes[i]] = run->n_rows;
  run->returned->tensors[i] = *tensor_new(run->session->arena, longest->dtype, longest->rank, dims);
}

/* A shorter row usually has a smaller part. A model can do otherwise (by a size such as 10 - time), and then there is
 * no common shape. */
static bool check_fits(const Run *run, uint32_t i, const Tensor *output) {
  const Tensor *whole = &run->returned->tensors[i];
  for (uint32_t axis = 0; axis < output->rank; axis++) {
    if (axis == run->returned->axes[i] || output->dims[axis] <= whole->dims[axis]) continue;
    StrBuf shape = strbuf_new(run->session->arena);
    print_dims(&shape, output->dims, output->rank);
    option_error(&run->session->diag, OPTION_RETURN_OUTPUT,
                 "what rows have of \"%s\" cannot be put together: %s of a shorter row is more than a longer one has",
                 run->returned->names[i], shape.text);
    return false;
  }
  return true;
}

/* Puts the parts of the rows of a group into the whole tensors. */
static bool take(const Run *run, const RowGroup *rows, const Tensor *outputs) {
  for (uint32_t i = 0; i < run->returned->n; i++) {
    const Tensor *output = &outputs[run->returned->numbers[i]];
    if (!run->has_tensors) make_tensor(run, i, output);
    if (!check_fits(run, i, output)) return false;
    for (int64_t row = 0; row < rows->n; row++) {
      const int64_t to_row = run->places[rows->numbers[row]];
      const Part part = {output, &run->returned->tensors[i], run->returned->axes[i], row, to_row};
      copy_below(&part, 0, 0, 0);
    }
  }
  return true;
}

/* The scratch arena is reset between groups: what a group computed has been copied. */
static bool run_group(void *context, const RowGroup *rows) {
  Run *run = context;
  Arena *scratch = run->scorer->scratch;
  arena_reset(scratch);
  const EvalInputs inputs = scorer_row_inputs(run->scorer, rows);
  Tensor *outputs = ARENA_ARRAY(scratch, Tensor, run->returned->n_outputs);
  bool done = engine_run(run->engine, scratch, &inputs, outputs) && take(run, rows, outputs);
  run->has_tensors = true;
  return done;
}

static bool fits(const void *context, const tfm_step_rows *rows, int64_t a, int64_t b) {
  return scorer_fits(((const Run *)context)->scorer, rows, a, b);
}

/* The finished rows as a call for logits would have them. The longest comes first, because the tensors get their size
 * from it. */
static tfm_step_rows make_call(Run *run, const tfm_generated *generated) {
  Arena *arena = run->session->arena;
  const int64_t n = generated->n, per_item = run->scorer->batch ? n / run->scorer->batch : 1;
  int64_t *places = ARENA_ARRAY(arena, int64_t, n), *lengths = ARENA_ARRAY(arena, int64_t, n);
  int64_t *items = ARENA_ARRAY(arena, int64_t, n), longest = 0;
  const int32_t **tokens = ARENA_ARRAY(arena, const int32_t *, n);
  for (int64_t i = 0; i < n; i++)
    if (generated->lengths[i] > generated->lengths[longest]) longest = i;
  for (int64_t i = 0; i < n; i++) {
    int64_t place = places[i] = i == 0 ? longest : i == longest ? 0 : i;
    lengths[i] = generated->lengths[place];
    items[i] = run->scorer->is_single ? 0 : place / per_item;
    tokens[i] = generated->sequences + place * generated->width;
  }
  run->places = places;
  return (tfm_step_rows){.n = n, .tokens = tokens, .lengths = lengths, .items = items};
}

/* Without rows the model still runs once, on an empty batch, so that the outputs have their shapes. */
static bool run_rows(Run *run, const tfm_generated *generated) {
  const tfm_step_rows call = make_call(run, generated);
  if (call.n == 0) return run_group(run, &(RowGroup){.call = &call, .longest = generated->width});
  return row_groups_run(run->session->arena, &call, &(RowGrouping){run, fits, run_group});
}

bool returned_outputs_compute(Session *session, ReturnedOutputs *returned, Scorer *scorer, WeightSource *weights,
                              const tfm_generated *generated) {
  if (!returned->graph) return true;
  Run run = {.session = session, .returned = returned, .scorer = scorer, .n_rows = generated->n};
  run.engine = session_engine_again(run.session, returned->graph, weights);
  bool done = run.engine && run_rows(&run, generated);
  engine_destroy(run.engine);
  if (!done) diag_note(&run.session->diag, NO_SPAN, "in the run on the finished rows, which --return-output asks for");
  return done;
}

// ---- tensors by their names ----

enum { MOST_OWN_TENSORS = 3 };

typedef struct Written { /* tensors by their names */
  const char **names;
  Tensor *tensors;
  uint32_t n;
} Written;

static Written written_new(Session *session, const ReturnedOutputs *returned) {
  const size_t most = MOST_OWN_TENSORS + returned->n;
  return (Written){ARENA_ARRAY(session->arena, const char *, most), ARENA_ARRAY(session->arena, Tensor, most), 0};
}

static void add(Written *written, const char *name, Tensor tensor) {
  written->names[written->n] = name;
  written->tensors[written->n++] = tensor;
}

static bool is_among(const char *name, const Written *written) {
  for (uint32_t i = 0; i < written->n; i++)
    if (strcmp(written->names[i], name) == 0) return true;
  return false;
}

// ---- what --output names ----

/* An output of the model that --output names and nobody asked for is a slip with an obvious cure, so the message gives
 * it. */
static bool check_asked_for(Session *session, const ReturnedOutputs *returned, const Written *written) {
  for (size_t i = 0; i < returned->n_outputs; i++) {
    const char *name = returned->outputs[i];
    if (outputs_names_one(session, name) && !is_among(name, written) && !is_generations_own(name))
      option_error(&session->diag, OPTION_OUTPUT, "\"%s\" is an output of the model: --return-output=%s adds it", name,
                   name);
  }
  return !diag_has_errors(&session->diag);
}

bool generation_output_check_names(Session *session, const tfm_generate_options *options,
                                   const ReturnedOutputs *returned) {
  const Tensor none = {0};
  Written written = written_new(session, returned);
  if (option_given(&session->options, OPTION_FIRST_STEP_PROBABILITIES)) {
    add(&written, "probabilities", none);
  } else {
    add(&written, "sequences", none);
    if (options->num_beams > 1) add(&written, "scores", none);
    if (options->return_token_scores) add(&written, "token_scores", none);
    for (uint32_t i = 0; i < returned->n; i++) add(&written, returned->names[i], none);
  }
  return check_asked_for(session, returned, &written) &&
         outputs_check_named(session, "this generation", written.names, written.n);
}

// ---- writing ----

/* A JSON list on a line for each row, without padding. */
static void print_rows(Session *session, const tfm_generated *generated) {
  StrBuf text = strbuf_new(session->arena);
  for (int64_t i = 0; i < generated->n; i++) {
    for (int64_t t = 0; t < generated->lengths[i]; t++)
      strbuf_printf(&text, "%s%" PRId32, t ? ", " : "[", generated->sequences[i * generated->width + t]);
    strbuf_add(&text, "]\n");
  }
  session_print(&text);
}

/* The order of the tensors is the order in a safetensors file. */
void generation_output_rows(Session *session, const tfm_generated *generated, const ReturnedOutputs *returned) {
  const int64_t n = generated->n, width = generated->width;
  Written written = written_new(session, returned);
  add(&written, "sequences", (Tensor){.dtype = DTYPE_I32, .rank = 2, .dims = {n, width}, .data = generated->sequences});
  if (generated->scores)
    add(&written, "scores", (Tensor){.dtype = DTYPE_F32, .rank = 1, .dims = {n}, .data = generated->scores});
  if (generated->token_scores)
    add(&written, "token_scores",
        (Tensor){.dtype = DTYPE_F32, .rank = 2, .dims = {n, width}, .data = generated->token_scores});
  for (uint32_t i = 0; i < returned->n; i++) add(&written, returned->names[i], returned->tensors[i]);
  if (option_given(&session->options, OPTION_OUTPUT))
    outputs_write_named(session, written.names, written.tensors, written.n);
  else print_rows(session, generated);
}

void generation_output_probabilities(Session *session, int64_t n, int64_t vocab, float *probabilities) {
  const char *const names[] = {"probabilities"};
  const Tensor tensor = {.dtype = DTYPE_F32, .rank = 2, .dims = {n, vocab}, .data = probabilities};
  if (option_given(&session->options, OPTION_OUTPUT)) {
    outputs_write_named(session, names, &tensor, 1);
    return;
  }
  StrBuf text = strbuf_new(session->arena);
  for (int64_t i = 0; i < n; i++) {
    for (int64_t t = 0; t < vocab; t++)
      strbuf_printf(&text, "%s%.9g", t ? ", " : "[", (double)probabilities[i * vocab + t]);
    strbuf_add(&text, "]\n");
  }
  session_print(&text);
}
