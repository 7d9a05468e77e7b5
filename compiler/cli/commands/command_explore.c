/* tfmc explore: a page that shows what the compiler made of a model.
 *
 * * In: a .tfm file, instruction sets, sizes of inputs to begin with. Out: one HTML file, or its data as JSON. The data
 * hold nothing of this machine but its number of threads, and no time unless --profile measures some, so that the same
 * command gives the same bytes. Refused: sizes of inputs that the model does not have, and options of measuring without
 * --profile. */
#include <jansson.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli_model.h"
#include "cli/commands/commands.h"
#include "cli/commands/explored_runs.h"
#include "explore/explore.h"

enum { MAX_TARGETS = 4 };

extern char **environ;

// ---- what is asked for ----

static bool add_target(Session *session, const TargetInfo **chosen, uint32_t *n, const char *name) {
  const TargetInfo *target = compile_target(&session->diag, name, false);
  for (uint32_t i = 0; target && i < *n; i++)
    if (chosen[i] == target) return true;
  if (target && *n == MAX_TARGETS)
    option_error(&session->diag, OPTION_MARCH, "more than %d instruction sets", MAX_TARGETS);
  else if (target)
    chosen[(*n)++] = target;
  return target && !diag_has_errors(&session->diag);
}

static bool choose_targets(Session *session, ExploreRequest *request) {
  const TargetInfo **chosen = ARENA_ARRAY(session->arena, const TargetInfo *, MAX_TARGETS);
  char *names = arena_strdup(session->arena, option_text(&session->options, OPTION_MARCH, "native,x86-64-v3"));
  for (char *rest = NULL, *name = strtok_r(names, ",", &rest); name; name = strtok_r(NULL, ",", &rest))
    if (!add_target(session, chosen, &request->n_targets, name)) return false;
  if (!request->n_targets) option_error(&session->diag, OPTION_MARCH, "no instruction set");
  request->targets = chosen;
  return request->n_targets > 0;
}

static const Node *input_named(const Graph *graph, const char *name, size_t length) {
  for (size_t i = 0; i < graph->inputs.n; i++) {
    const char *known = graph->inputs.items[i]->attr.name;
    if (strncmp(known, name, length) == 0 && !known[length]) return graph->inputs.items[i];
  }
  return NULL;
}

typedef VEC(ExploreSize) ExploreSizes;

/* "ids=1x128": each dim that is a size and nothing else says what that size is. */
static bool read_sizes(Session *session, const Graph *graph, const char *text, ExploreSizes *sizes) {
  const char *equals = strchr(text, '=');
  const Node *input = equals ? input_named(graph, text, (size_t)(equals - text)) : NULL;
  if (!input) {
    option_error(&session->diag, OPTION_SIZES, "%s: expected NAME=2x7 with an input of the model", text);
    return false;
  }
  const char *at = equals + 1;
  for (uint32_t axis = 0; axis < input->rank; axis++) {
    char *end;
    const long long value = strtoll(at, &end, 10);
    const int32_t symbol = size_symbol_of(input->dims[axis]);
    const bool ends_well = axis + 1 < input->rank ? *end == 'x' : !*end;
    if (end == at || value < 1 || value > INT32_MAX || !ends_well) {
      option_error(&session->diag, OPTION_SIZES, "%s: expected %u sizes from 1 on, with x between them", text,
                   (unsigned)input->rank);
      return false;
    }
    if (symbol >= 0)
      vec_push(session->arena, sizes, (ExploreSize){graph->sizes->symbols[symbol], value});
    at = end + 1;
  }
  return true;
}

static bool choose_sizes(Session *session, const Graph *graph, ExploreRequest *request) {
  const OptionValues *given = &session->options.values[OPTION_SIZES];
  ExploreSizes sizes = {0};
  for (size_t i = 0; i < given->texts.n; i++)
    if (!read_sizes(session, graph, given->texts.items[i], &sizes)) return false;
  request->sizes = sizes.items;
  request->n_sizes = (uint32_t)sizes.n;
  return true;
}

static const char *main_file(const ParsedProgram *program) {
  for (size_t i = 0; i < program->files.n; i++)
    if (program->files.items[i].is_main) return program->files.items[i].source->name;
  return "model.tfm";
}

static const char *file_of_path(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

/* What was asked for, without folders of this machine. */
static const char *command_text(const Session *session, const ParsedProgram *program) {
  static const Option shown[] = {OPTION_DEFINE, OPTION_MODEL, OPTION_MARCH, OPTION_QUANTIZE, OPTION_OPTIMIZE,
                                 OPTION_THREADS, OPTION_SIZES, OPTION_MEASURE, OPTION_OTHER_MODEL,
                                 OPTION_OTHER_OPTIONS};
  StrBuf text = strbuf_new(session->arena);
  strbuf_printf(&text, "tfmc explore %s", main_file(program));
  for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
    const OptionValues *values = &session->options.values[shown[i]];
    const char *spelling = option_spelling(session->arena, shown[i]);
    const bool has_equals = strncmp(spelling, "--", 2) == 0 || shown[i] == OPTION_MARCH;
    for (size_t k = 0; k < values->texts.n; k++)
      strbuf_printf(&text, " %s%s%s", spelling, !*values->texts.items[k] ? "" : has_equals ? "=" : " ",
                    shown[i] == OPTION_OTHER_MODEL ? file_of_path(values->texts.items[k]) : values->texts.items[k]);
  }
  return text.text;
}

/* A weight that a file has in 16 bits is packed, and fused, in another way than one of 32. */
static bool note_weights(Session *session, Graph *graph) {
  if (!option_given(&session->options, OPTION_WEIGHTS)) return true;
  WeightSource *weights = session_weights(session, graph);
  weight_source_close(weights);
  return weights != NULL;
}

static json_t *data_of_model(Session *session, bool is_for_comparison) {
  Graph *graph = model_load(session);
  if (!graph || !note_weights(session, graph)) return NULL;
  ExploreRequest request = {.compile = compile_request(session, NULL),
                            .is_for_comparison = is_for_comparison,
                            .version = TFM_VERSION,
                            .program = session->model->program,
                            .objective = model_objective(session, true)};
  if (diag_has_errors(&session->diag)) return NULL;
  request.command = command_text(session, request.program);
  request.threads = (int32_t)option_count(&session->options, OPTION_THREADS, (uint64_t)host_info(session->arena).cpus);
  if (!choose_targets(session, &request) || !choose_sizes(session, graph, &request)) return NULL;
  request.compile.target = request.targets[0];
  return explore_data(&request, graph);
}

// ---- the other model ----

/* Words are separated by spaces. */
static bool read_other_options(Session *session, const char *file, Options *options) {
  const OptionValues *given = &session->options.values[OPTION_OTHER_OPTIONS];
  VEC(char *) words = {0};
  char program[] = "tfmc", verb[] = "explore";
  vec_push(session->arena, &words, program);
  vec_push(session->arena, &words, verb);
  vec_push(session->arena, &words, arena_strdup(session->arena, file));
  for (size_t i = 0; i < given->texts.n; i++) {
    char *text = arena_strdup(session->arena, given->texts.items[i]);
    for (char *rest = NULL, *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
      vec_push(session->arena, &words, word);
  }
  vec_push(session->arena, &words, NULL);
  if (!options_parse(session->arena, &session->diag, (int)words.n - 1, words.items, options)) return false;
  static const Option taken[] = {OPTION_DEFINE,   OPTION_MODEL,   OPTION_WEIGHTS, OPTION_WEIGHTS_PREFIX,
                                 OPTION_QUANTIZE, OPTION_OPTIMIZE, OPTION_MARCH,  OPTION_SIZES};
  for (Option option = 0; option < N_OPTIONS; option++) {
    bool is_taken = !option_given(options, option);
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) is_taken = is_taken || taken[i] == option;
    if (!is_taken) option_error(&session->diag, OPTION_OTHER_OPTIONS, "another model has no %s of its own",
                                option_spelling(session->arena, option));
  }
  if (options->files.n != 1) option_error(&session->diag, OPTION_OTHER_OPTIONS, "options alone, no file");
  return !diag_has_errors(&session->diag);
}

/* Loads the other model as a command of its own would, with the options of this one that it does not have itself. */
static json_t *data_of_other(Session *session) {
  Session other = {.arena = session->arena, .diag = session->diag, .names = map_new(session->arena)};
  const char *file = option_text(&session->options, OPTION_OTHER_MODEL, NULL);
  json_t *data = NULL;
  if (read_other_options(session, file, &other.options)) {
    for (Option option = 0; option < N_OPTIONS; option++)
      if (!option_given(&other.options, option) && option != OPTION_OTHER_MODEL && option != OPTION_OTHER_OPTIONS)
        other.options.values[option] = session->options.values[option];
    other.diag = session->diag;
    data = data_of_model(&other, true);
    session->diag = other.diag;
  }
  return data;
}

static bool check_measuring(Session *session) {
  static const Option measuring[] = {OPTION_RANDOM_WEIGHTS, OPTION_ITERATIONS, OPTION_WARMUP};
  if (option_given(&session->options, OPTION_MEASURE)) return true;
  for (size_t i = 0; i < sizeof measuring / sizeof *measuring; i++)
    if (option_given(&session->options, measuring[i]))
      option_error(&session->diag, measuring[i], "nothing is measured without --profile");
  return !diag_has_errors(&session->diag);
}

static json_t *all_data(Session *session) {
  const bool compares = option_given(&session->options, OPTION_OTHER_MODEL);
  if (!compares && option_given(&session->options, OPTION_OTHER_OPTIONS)) {
    option_error(&session->diag, OPTION_OTHER_OPTIONS, "there is no --compare");
    return NULL;
  }
  if (!check_measuring(session)) return NULL;
  json_t *data = data_of_model(session, false);
  if (data && option_given(&session->options, OPTION_MEASURE) && !explored_runs_add(session, data)) {
    json_decref(data);
    return NULL;
  }
  if (!data || !compares) return data;
  json_t *other = data_of_other(session);
  if (other) explore_compare(session->arena, data, other);
  else json_decref(data);
  json_decref(other);
  return other ? data : NULL;
}

// ---- where it goes ----

/* "models/bert.tfm" -> "bert.html", here */
static const char *default_output(Session *session) {
  const char *file = session->options.files.items[0], *slash = strrchr(file, '/');
  const char *name = slash ? slash + 1 : file, *dot = strrchr(name, '.');
  return arena_printf(session->arena, "%.*s.html", dot && dot > name ? (int)(dot - name) : (int)strlen(name), name);
}

static void open_in_browser(Session *session, const char *path) {
  pid_t pid;
  char program[] = "xdg-open", *arguments[] = {program, arena_strdup(session->arena, path), NULL};
  const int error = posix_spawnp(&pid, program, NULL, NULL, arguments, environ);
  if (error) diag_error_at(&session->diag, NULL, DIAG_TOOL, "cannot run `xdg-open`: %s", strerror(error));
}

static bool is_page(const Session *session) {
  return option_is(&session->options, OPTION_EXPLORE_FORMAT, "html", "html");
}

/* A page without -o gets a name; data go to stdout. False after an error. */
static bool choose_output(Session *session) {
  const Options *options = &session->options;
  if (is_page(session) && !option_given(options, OPTION_OUTPUT))
    vec_push(session->arena, &session->options.values[OPTION_OUTPUT].texts, default_output(session));
  if (!is_page(session) && option_given(options, OPTION_OPEN)) {
    option_error(&session->diag, OPTION_OPEN, "data are no page: leave out --format=json");
    return false;
  }
  const char *output = option_text(options, OPTION_OUTPUT, NULL);
  const char *read[] = {options->files.items[0], option_text(options, OPTION_WEIGHTS, NULL)};
  return !output || session_check_output(session, output, read, 2);
}

void command_explore(Session *session) {
  if (!choose_output(session)) return;
  json_t *data = all_data(session);
  if (!data) return;
  StrBuf text = strbuf_new(session->arena);
  if (is_page(session)) {
    const char *title = json_string_value(json_object_get(data, "model"));
    explore_page(&text, data, arena_printf(session->arena, "%s - tfmc explore", title));
  } else {
    explore_print(&text, data);
    strbuf_add_char(&text, '\n');
  }
  json_decref(data);
  session_write(session, &text);
  if (session->wrote_output && option_given(&session->options, OPTION_OPEN))
    open_in_browser(session, option_text(&session->options, OPTION_OUTPUT, NULL));
}
