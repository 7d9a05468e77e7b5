/* The runs of `tfmc explore --profile`.
 *
 * In: the data of a page, and the command line that made them. Out: in the data, the median time of each step of a run
 * with the sizes that the page begins with; whole runs with these and with stops near them; what a probe of the machine
 * says of the same minute. Inputs are random, and so are weights unless a file is given. Refused: what a run refuses,
 * and an instruction set that this CPU does not have. Only the program `whole` is measured. */
#include "cli/commands/explored_runs.h"

#include <stdio.h>
#include <string.h>

#include "cli/cli_inputs.h"
#include "cli/cli_model.h"
#include "cli/commands/command_bench.h"
#include "measure/profile.h"

typedef struct RunSizes { /* values of the sizes of the program, in its order */
  int64_t *values;
  const EvalInputs *inputs;
} RunSizes;

typedef struct Measuring {
  Session session; /* of its own: with random weights, and the first instruction set of the page alone */
  json_t *data;
  const json_t *program, *sizes;
  Graph *graph;
  size_t n_outputs;
  VEC(RunSizes) runs; /* the first has the sizes of the page */
} Measuring;

static void set_option(Session *session, Option option, const char *text) {
  OptionValues *values = &session->options.values[option];
  *values = (OptionValues){0};
  if (text) vec_push(session->arena, &values->texts, text);
}

// ---- what is run ----

/* The values of the graph's sizes, which are the program's by name. */
static void values_of_graph(const Measuring *m, const int64_t *values, int64_t *symbols) {
  for (uint32_t i = 0; i < m->graph->sizes->n_symbols; i++)
    for (size_t k = 0; k < json_array_size(m->sizes); k++) {
      const char *name = json_string_value(json_object_get(json_array_get(m->sizes, k), "name"));
      if (strcmp(name, m->graph->sizes->symbols[i]) == 0) symbols[i] = values[k];
    }
}

/* "2x7"; NULL if a size does not follow. */
static const char *dims_text(const Measuring *m, const Node *input, const int64_t *symbols) {
  StrBuf text = strbuf_new(m->session.arena);
  for (uint32_t axis = 0; axis < input->rank; axis++) {
    int64_t value;
    if (!size_value(input->dims[axis], symbols, &value)) return NULL;
    strbuf_printf(&text, "%s%lld", axis ? "x" : "", (long long)value);
  }
  return input->rank ? text.text : "scalar";
}

/* False after an error. */
static bool add_run(Measuring *m, int64_t *values) {
  Session *session = &m->session;
  int64_t symbols[SIZE_MAX_SYMBOLS] = {0};
  values_of_graph(m, values, symbols);
  set_option(session, OPTION_INPUT, NULL);
  for (size_t i = 0; i < m->graph->inputs.n; i++) {
    const Node *input = m->graph->inputs.items[i];
    const char *dims = dims_text(m, input, symbols);
    if (dims && !input->attr.has_default)
      vec_push(session->arena, &session->options.values[OPTION_INPUT].texts,
               arena_printf(session->arena, "%s=%s", input->attr.name, dims));
  }
  const RunSizes run = {values, inputs_load(session, m->graph)};
  if (!run.inputs) return false;
  vec_push(session->arena, &m->runs, run);
  return true;
}

static int64_t stop_of(const json_t *size, size_t at) {
  return json_integer_value(json_array_get(json_object_get(size, "stops"), at));
}

/* Whether the checks of the model allow these stops: only then they have a workspace. */
static bool is_allowed(const Measuring *m, const size_t *at) {
  StrBuf key = strbuf_new(m->session.arena);
  for (size_t i = 0; i < json_array_size(m->sizes); i++) strbuf_printf(&key, "%s%zu", i ? "," : "", at[i]);
  return json_object_get(json_object_get(json_object_get(m->program, "workspace"), "1"), key.text) != NULL;
}

/* The sizes that the page begins with; then for each size the two stops before and the one behind. */
static bool choose_runs(Measuring *m) {
  enum { BEFORE = 2, BEHIND = 1 };
  Arena *arena = m->session.arena;
  const size_t n = json_array_size(m->sizes);
  size_t *at = ARENA_ARRAY(arena, size_t, n + 1);
  int64_t *values = ARENA_ARRAY(arena, int64_t, n + 1);
  for (size_t i = 0; i < n; i++) {
    const json_t *size = json_array_get(m->sizes, i);
    values[i] = json_integer_value(json_object_get(size, "default"));
    while (at[i] + 1 < json_array_size(json_object_get(size, "stops")) && stop_of(size, at[i]) < values[i]) at[i]++;
  }
  if (!add_run(m, values)) return false;
  for (size_t i = 0; i < n; i++) {
    const json_t *size = json_array_get(m->sizes, i);
    const size_t chosen = at[i], first = chosen > BEFORE ? chosen - BEFORE : 0;
    for (at[i] = first; at[i] <= chosen + BEHIND && at[i] < json_array_size(json_object_get(size, "stops")); at[i]++) {
      if (at[i] == chosen || !is_allowed(m, at)) continue;
      int64_t *own = ARENA_ARRAY(arena, int64_t, n + 1);
      memcpy(own, values, n * sizeof *own);
      own[i] = stop_of(size, at[i]);
      if (!add_run(m, own)) return false;
    }
    at[i] = chosen;
  }
  return true;
}

// ---- what is measured ----

/* The steps that were measured have to be those of the page, one by one. */
static bool note_steps(Measuring *m, const Profile *profile) {
  const json_t *steps = json_object_get(m->program, "steps");
  bool is_same = json_array_size(steps) == profile->steps.n;
  for (size_t i = 0; is_same && i < profile->steps.n; i++) {
    const json_t *step = json_array_get(steps, i);
    const json_t *module = json_array_get(json_object_get(m->data, "modules"),
                                          (size_t)json_integer_value(json_object_get(step, "module")));
    const char *path = json_string_value(json_object_get(module, "path"));
    is_same = strcmp(path, profile->steps.items[i].path) == 0 || !*profile->steps.items[i].path;
    json_object_set_new(json_array_get(steps, i), "measured",
                        json_real(profile->steps.items[i].microseconds * 1e3));
  }
  if (!is_same)
    option_error(&m->session.diag, OPTION_MEASURE, "what runs has other steps than what is shown: with --weights both "
                                                   "know what types the file has");
  return is_same;
}

static bool measure_steps(Measuring *m, Engine *engine) {
  Runs runs = runs_of(&m->session, engine, m->runs.items[0].inputs, m->n_outputs);
  runs.nanoseconds = ARENA_ARRAY(m->session.arena, uint64_t, runs.iterations * engine->program->n_steps);
  if (!runs_measure(&runs, NULL)) return false;
  tfm_context_profile(engine->context, NULL);
  return note_steps(m, profile_new(m->session.arena, engine->program, runs.nanoseconds, runs.iterations,
                                   tfm_context_threads(engine->context), "run"));
}

static bool measure_run(Measuring *m, Engine *engine, const RunSizes *sizes, Bench *bench, json_t *list) {
  Runs runs = runs_of(&m->session, engine, sizes->inputs, m->n_outputs);
  if (!runs_measure(&runs, bench)) return false;
  json_t *values = json_array();
  for (size_t i = 0; i < json_array_size(m->sizes); i++)
    json_array_append_new(values, json_integer((json_int_t)sizes->values[i]));
  json_array_append_new(list, json_pack("{s:o, s:i, s:f, s:f}", "sizes", values, "runs", (int)bench->n,
                                        "median_seconds", bench->seconds[bench->n / 2], "least_seconds",
                                        bench->seconds[0]));
  return true;
}

/* Four digits: a probe does not know more, and people have to read it. */
static json_t *rounded(double value) {
  char text[32];
  snprintf(text, sizeof text, "%.3e", value);
  return json_real(number_read(text));
}

static void note_machine(Measuring *m, const Bench *bench) {
  json_t *machine = json_object_get(m->data, "machine");
  if (bench->most.flops <= 0) return;
  json_object_set_new(machine, "flop_per_second", rounded(bench->most.flops));
  json_object_set_new(machine, "int8_flop_per_second", rounded(bench->most.whole));
  json_object_set_new(machine, "bytes_per_second", rounded(bench->most.bytes));
  json_object_set_new(machine, "measured", json_true());
}

/* The probe follows on the runs with the sizes of the page, and the steps on it. */
static bool measure(Measuring *m, Engine *engine) {
  json_t *list = json_array();
  bool done = true;
  for (size_t i = 0; done && i < m->runs.n; i++) {
    Bench bench = {.model = engine->program->name};
    done = measure_run(m, engine, &m->runs.items[i], &bench, list);
    if (!done || i) continue;
    const json_int_t threads = json_integer_value(json_object_get(json_object_get(m->data, "machine"), "threads"));
    bench_probe(m->session.arena, engine->program, m->runs.items[i].inputs, (int)threads, &bench);
    note_machine(m, &bench);
    done = measure_steps(m, engine);
  }
  json_object_set_new(m->data, "runs", list);
  return done;
}

// ---- the whole ----

static bool run_model(Measuring *m) {
  Session *session = &m->session;
  m->graph = model_load(session);
  WeightSource *weights = m->graph ? session_weights(session, m->graph) : NULL;
  bool done = false;
  if (weights && choose_runs(m)) {
    m->n_outputs = m->graph->outputs.n;
    Engine *engine = session_engine(session, m->graph, weights);
    if (engine) {
      engine->reuses_outputs = true;
      done = measure(m, engine);
    }
    engine_destroy(engine);
  }
  weight_source_close(weights);
  return done;
}

static Measuring measuring_of(Session *session, json_t *data) {
  Measuring m = {.session = *session, .data = data};
  m.session.names = map_new(session->arena);
  m.program = json_array_get(json_object_get(data, "programs"), 0);
  m.sizes = json_object_get(m.program, "sizes");
  return m;
}

bool explored_runs_of(Session *session, json_t *data, Engine *engine, const EvalInputs *inputs) {
  Measuring m = measuring_of(session, data);
  const size_t n = json_array_size(m.sizes);
  RunSizes given = {ARENA_ARRAY(session->arena, int64_t, n + 1), inputs};
  for (size_t i = 0; i < n; i++)
    given.values[i] = json_integer_value(json_object_get(json_array_get(m.sizes, i), "default"));
  m.n_outputs = engine->program->n_outputs;
  vec_push(session->arena, &m.runs, given);
  engine->reuses_outputs = true;
  const bool done = measure(&m, engine);
  if (!done) session->diag = m.session.diag;
  return done;
}

bool explored_runs_add(Session *session, json_t *data) {
  Measuring m = measuring_of(session, data);
  const bool has_weights = option_given(&session->options, OPTION_WEIGHTS);
  if (!has_weights && !option_given(&session->options, OPTION_RANDOM_WEIGHTS))
    set_option(&m.session, OPTION_RANDOM_WEIGHTS, "1");
  set_option(&m.session, OPTION_MARCH, json_string_value(json_object_get(json_object_get(data, "machine"), "isa")));
  const bool done = run_model(&m);
  if (!done) session->diag = m.session.diag; /* else there are only warnings, which were given already */
  return done;
}
