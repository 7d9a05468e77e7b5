/* In: a .tfm file, instruction sets, sizes of inputs to begin with. Out: the data of its page, see explored_model.h. */
#include "cli/commands/explored_model.h"

#include <stdlib.h>
#include <string.h>

#include "cli/cli_model.h"

enum { MAX_TARGETS = 4 };

// ---- targets and sizes ----

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

static bool choose_sizes(Session *session, const Graph *graph, const ExploreSizes *given, ExploreRequest *request) {
  const OptionValues *options = &session->options.values[OPTION_SIZES];
  ExploreSizes sizes = given ? *given : (ExploreSizes){0};
  for (size_t i = 0; i < options->texts.n; i++)
    if (!read_sizes(session, graph, options->texts.items[i], &sizes)) return false;
  request->sizes = sizes.items;
  request->n_sizes = (uint32_t)sizes.n;
  return true;
}

ExploreSizes explored_sizes_of_inputs(Session *session, const Graph *graph, const EvalInputs *inputs) {
  ExploreSizes sizes = {0};
  for (size_t i = 0; i < graph->inputs.n; i++) {
    const Node *input = graph->inputs.items[i];
    for (uint32_t k = 0; k < inputs->n; k++) {
      if (strcmp(inputs->names[k], input->attr.name) != 0 || inputs->tensors[k].rank != input->rank) continue;
      for (uint32_t axis = 0; axis < input->rank; axis++) {
        const int32_t symbol = size_symbol_of(input->dims[axis]);
        if (symbol < 0) continue;
        const char *name = graph->sizes->symbols[symbol];
        vec_push(session->arena, &sizes,
                 (ExploreSize){arena_strdup(session->arena, name), inputs->tensors[k].dims[axis]});
      }
    }
  }
  return sizes;
}

// ---- the model ----

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

json_t *explored_model(Session *session, bool is_for_comparison, const ExploreSizes *sizes) {
  Graph *graph = model_load(session);
  if (!graph || !session_note_weights(session, graph)) return NULL;
  ExploreRequest request = {.compile = compile_request(session, NULL),
                            .is_for_comparison = is_for_comparison,
                            .version = TFM_VERSION,
                            .program = session->model->program,
                            .objective = model_objective(session, true)};
  if (diag_has_errors(&session->diag)) return NULL;
  request.command = command_text(session, request.program);
  request.threads = (int32_t)option_count(&session->options, OPTION_THREADS, (uint64_t)host_info(session->arena).cpus);
  if (!choose_targets(session, &request) || !choose_sizes(session, graph, sizes, &request)) return NULL;
  request.compile.target = request.targets[0];
  return explore_data(&request, graph);
}
