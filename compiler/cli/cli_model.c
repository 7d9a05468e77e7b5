/* From the command line to what the layers below take: graphs, requests, engine settings, weights. See cli_model.h.
 *
 * A compiled library carries the text of its model, so most commands treat it as a .tfm file whose definitions, passes
 * and target are fixed already; options that would choose them again are refused. */
#include "cli/cli_model.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "aot/description.h"
#include "aot/emit_library.h"
#include "aot/library_file.h"
#include "cli/generation_settings.h"
#include "codegen/codegen.h"
#include "compile/compile_model.h"
#include "compile/quantize.h"

// ---- the graph of the command line ----

ParsedProgram *model_parse(Session *session) {
  if (session->text)
    return parse_text(session->arena, &session->names, &session->diag, session->options.files.items[0], session->text,
                      session->text_size);
  return parse_program(session->arena, &session->names, &session->diag, session->options.files.items[0]);
}

/* Splits each -D at its first "="; the expression behind it is for the elaborator. False after an error. */
static bool read_definitions(Session *session, ElaborateOptions *options) {
  const OptionValues *values = &session->options.values[OPTION_DEFINE];
  Definition *definitions = ARENA_ARRAY(session->arena, Definition, values->texts.n);
  Map seen = map_new(session->arena);
  for (size_t i = 0; i < values->texts.n; i++) {
    const char *text = values->texts.items[i], *equals = strchr(text, '=');
    if (!equals || equals == text) {
      diag_error_at(&session->diag, NULL, DIAG_DEFINE, "-D %s: expected NAME=VALUE", text);
      return false;
    }
    definitions[i] = (Definition){arena_strndup(session->arena, text, (size_t)(equals - text)), equals + 1};
    if (map_has(&seen, definitions[i].name)) {
      diag_error_at(&session->diag, NULL, DIAG_DEFINE, "-D %s: '%s' is given twice", text, definitions[i].name);
      return false;
    }
    map_put(&seen, definitions[i].name, NULL);
  }
  options->definitions = definitions;
  options->n_definitions = (uint32_t)values->texts.n;
  return true;
}

static bool read_file(Session *session, ModelText *text) {
  text->options.model = option_text(&session->options, OPTION_MODEL, NULL);
  text->options.weights_prefix = option_text(&session->options, OPTION_WEIGHTS_PREFIX, NULL);
  text->passes = passes_options(&session->options);
  text->quantize = session->options.values[OPTION_QUANTIZE].texts.items;
  text->n_quantize = (uint32_t)session->options.values[OPTION_QUANTIZE].texts.n;
  return read_definitions(session, &text->options) && (text->program = model_parse(session));
}

// ---- from a library ----

bool names_library(Session *session, const char *path) {
  return is_library_file(session->arena, path) || is_one_file(session->arena, path);
}

LibraryFile *library_of_file(Session *session, const char *path) {
  return is_one_file(session->arena, path) ? one_file_open(session->arena, &session->diag, path)
                                           : library_file_open(session->arena, &session->diag, path);
}

/* What was decided when the library was made cannot be chosen again; ignoring such an option would mislead. */
static bool check_fixed(Session *session) {
  static const Option fixed[] = {OPTION_DEFINE, OPTION_MODEL,    OPTION_WEIGHTS_PREFIX, OPTION_ENGINE,
                                 OPTION_MARCH,  OPTION_OPTIMIZE, OPTION_REPORT,         OPTION_REQUIRE_FUSION,
                                 OPTION_ONLY,   OPTION_DISABLE,  OPTION_STOP_AFTER,     OPTION_QUANTIZE,
                                 OPTION_PRINT_AFTER, OPTION_DUMP_DIR, OPTION_TIME_PASSES};
  for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
    if (option_given(&session->options, fixed[i]))
      option_error(&session->diag, fixed[i], "this was fixed when the library was compiled: leave it out");
  return !diag_has_errors(&session->diag);
}

/* An error in the text of a library means that the language has changed since it was made: the message names both
 * versions. */
static bool read_library(Session *session, ModelText *text) {
  LibraryFile *library = session->library = library_of_file(session, session->options.files.items[0]);
  if (!library || !check_fixed(session)) return false;
  const json_t *source = json_object_get(library->description, "source");
  if (!json_is_object(source)) {
    diag_error_at(&session->diag, library->path, DIAG_LIBRARY,
                  "compiled with --strip-source, the %s does not contain the model's source, which `tfmc %s` needs: "
                  "name the .tfm file instead of it",
                  library->is_one_file ? "file" : "library",
                  verb_table[session->options.verb].name);
    return false;
  }
  if (model_text_read(session->arena, &session->names, &session->diag, source, text)) return true;
  diag_error_at(&session->diag, library->path, DIAG_LIBRARY,
                "the model in it cannot be read by tfmc " TFM_VERSION "; the library was made by tfmc %s",
                library->version);
  return false;
}

/* Some commands accept a library; for the others the file is parsed, and the message says what is wrong with it as a
 * text. */
Graph *model_load(Session *session) {
  bool may_be_library = verb_takes_library(session->options.verb) && !session->text;
  bool is_library = may_be_library && names_library(session, session->options.files.items[0]);
  ModelText *text = ARENA_NEW(session->arena, ModelText);
  const char *purpose = arena_set_purpose(session->arena, "while reading the model");
  bool is_read = is_library ? read_library(session, text) : read_file(session, text);
  if (is_read) session->model = text;
  Graph *graph =
      is_read ? elaborate(session->arena, &session->names, &session->diag, text->program, &text->options) : NULL;
  arena_set_purpose(session->arena, purpose);
  if (!graph || !quantize_weights(graph, &session->diag, text->quantize, text->n_quantize)) return NULL;
  if (stored_read(graph, text->stored)) return graph;
  diag_error_at(&session->diag, session->options.files.items[0], DIAG_LIBRARY, "what it says of its weights is broken");
  return NULL;
}

/* The words that some settings are chosen from may stand without the quotes of the language, which a shell takes. */
static const char *with_quotes(Session *session, const char *name, const char *value) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_-";
  const bool is_word = *value && value[strspn(value, letters)] == 0 && strcmp(value, "none") != 0;
  return is_word && setting_is_word(name) ? arena_printf(session->arena, "\"%s\"", value) : value;
}

/* Splits each --set at its first "=". False after an error. */
static bool read_settings(Session *session, ElaborateOptions *options) {
  const OptionValues *values = &session->options.values[OPTION_SET];
  Definition *settings = ARENA_ARRAY(session->arena, Definition, values->texts.n);
  for (size_t i = 0; i < values->texts.n; i++) {
    const char *text = values->texts.items[i], *equals = strchr(text, '=');
    if (!equals || equals == text) {
      option_error(&session->diag, OPTION_SET, "%s: expected NAME=VALUE", text);
      return false;
    }
    const char *name = arena_strndup(session->arena, text, (size_t)(equals - text));
    settings[i] = (Definition){name, with_quotes(session, name, equals + 1)};
  }
  options->settings = settings;
  options->n_settings = (uint32_t)values->texts.n;
  return true;
}

static Objective *find_objective(Session *session, bool is_training) {
  ModelText *text = ARENA_NEW(session->arena, ModelText);
  if (session->model)
    *text = *session->model;
  else if (!read_file(session, text))
    return NULL;
  session->model = text;
  if (!read_settings(session, &text->options)) return NULL;
  text->options.is_training = is_training;
  return elaborate_objective(session->arena, &session->names, &session->diag, text->program, &text->options);
}

Objective *model_objective(Session *session, bool is_training) {
  Objective *objective = find_objective(session, is_training);
  return objective && objective->name ? objective : NULL;
}

Objective *training_objective(Session *session, bool is_training) {
  Objective *objective = find_objective(session, is_training);
  if (!objective || objective->name) return objective;
  diag_error_at(&session->diag, session->options.files.items[0], DIAG_INPUT_DECLARATION,
                "model %s has no train block: 'train NAME { }' names the function that is its objective",
                objective->graph->name);
  return NULL;
}

// ---- passes ----

PassOptions passes_options(const Options *options) {
  const OptionValues *only = &options->values[OPTION_ONLY], *disabled = &options->values[OPTION_DISABLE];
  return (PassOptions){.level = option_is(options, OPTION_OPTIMIZE, "2", "2") ? 2 : 0,
                       .only = only->texts.items,
                       .n_only = (uint32_t)only->texts.n,
                       .disabled = disabled->texts.items,
                       .n_disabled = (uint32_t)disabled->texts.n,
                       .stop_after = option_text(options, OPTION_STOP_AFTER, NULL),
                       .print_after = option_text(options, OPTION_PRINT_AFTER, NULL),
                       .print_to = stdout,
                       .recompute = option_is(options, OPTION_GRADIENT_VALUES, "cheap", "none")    ? RECOMPUTE_NONE
                                    : option_is(options, OPTION_GRADIENT_VALUES, "cheap", "layer") ? RECOMPUTE_LAYER
                                                                                                   : RECOMPUTE_CHEAP,
                       .time_passes = option_given(options, OPTION_TIME_PASSES),
                       .dump_dir = option_text(options, OPTION_DUMP_DIR, NULL)};
}

/* Every fusion that is missing is reported, not only the first. */
bool report_passes(Session *session, Graph *graph, const PassLog *log) {
  const Options *options = &session->options;
  if (option_given(options, OPTION_REPORT)) {
    StrBuf report = strbuf_new(session->arena);
    passes_report(&report, graph, log);
    session_print(&report);
  }
  bool all_there = true;
  const OptionValues *required = &options->values[OPTION_REQUIRE_FUSION];
  for (size_t i = 0; i < required->texts.n; i++)
    all_there = passes_require(&session->diag, log, required->texts.items[i]) && all_there;
  return all_there;
}

static bool report(void *context, Graph *graph, const PassLog *log) { return report_passes(context, graph, log); }

/* Records of the passes are asked for only when an option wants them. */
CompileRequest compile_request(Session *session, WeightSource *weights) {
  const Options *options = &session->options;
  PassOptions passes = session->library ? session->model->passes : passes_options(options);
  passes.names = session->names_of_nodes;
  passes.shows_changes = passes.names && option_given(options, OPTION_DIFF);
  const bool is_reported = option_given(options, OPTION_REPORT) || option_given(options, OPTION_REQUIRE_FUSION);
  return (CompileRequest){.arena = session->arena,
                          .diag = &session->diag,
                          .passes = passes,
                          .report = is_reported ? report : NULL,
                          .report_context = session,
                          .weights = weights ? weight_source_reader(weights) : (WeightReader){0}};
}

Derivation *derive_for_report(Session *session, const Graph *graph) {
  const CompileRequest request = compile_request(session, NULL);
  const bool is_reported = option_given(&session->options, OPTION_REPORT) && graph->generate_input;
  return is_reported ? compile_derive(&request, graph) : NULL;
}

/* The settings of the block become the defaults of the library's functions. */
bool make_library_model(Session *session, Graph *graph, LibraryModel *model) {
  const CompileRequest request = compile_request(session, NULL);
  tfm_generation *generation = generation_of(session->arena, graph);
  GenerationSettings settings;
  if (generation) {
    if (!generation_settings_of_block(session, graph, &settings)) return false;
    generation->defaults = settings.options;
    generation->bos = settings.start;
  }
  *model = (LibraryModel){.graph = graph, .generation = generation};
  return library_model_make(&request, model);
}

bool plans_of_library(Session *session, Graph *graph, LibraryPlans *plans) {
  const CompileRequest request = compile_request(session, NULL);
  return library_plans_again(&request, session->library, session->model, graph, TFM_VERSION, plans);
}

bool run_passes(Session *session, Graph *graph) {
  const CompileRequest request = compile_request(session, NULL);
  return compile_fuse(&request, graph, derive_for_report(session, graph));
}

// ---- engines ----

EngineSettings *engine_settings(Session *session) {
  const Options *options = &session->options;
  EngineSettings *settings = ARENA_NEW(session->arena, EngineSettings);
  *settings = (EngineSettings){.compile = compile_request(session, NULL),
                               .march = option_text(options, OPTION_MARCH, "native"),
                               .threads = (int32_t)option_count(options, OPTION_THREADS, 0),
                               .derived = session->derived,
                               .library = session->library,
                               .text = session->model,
                               .version = TFM_VERSION,
                               .print = option_given(options, OPTION_REPORT) ? session_print : NULL};
  return settings;
}

/* --report tells how the incremental form came about, so the native engine derives it for the report even if this
 * command only runs the model. */
Engine *session_engine_of(Session *session, const EngineKind *kind, Graph *graph, WeightSource *weights) {
  EngineSettings *settings = engine_settings(session);
  if (!settings->derived && kind == &engine_native) settings->derived = derive_for_report(session, graph);
  return engine_create(kind, settings, graph, weights);
}

const EngineKind *session_engine_kind(const Session *session) {
  if (session->library) return &engine_library;
  return option_is(&session->options, OPTION_ENGINE, "native", "native") ? &engine_native : &engine_reference;
}

bool report_no_passes(Session *session, Graph *graph) {
  const PassLog none = {.arena = session->arena};
  return report_passes(session, graph, &none);
}

/* The interpreter runs no passes: that is all there is to report of it. */
Engine *session_engine(Session *session, Graph *graph, WeightSource *weights) {
  const EngineKind *kind = session_engine_kind(session);
  if (kind == &engine_reference && !report_no_passes(session, graph)) return NULL;
  return session_engine_of(session, kind, graph, weights);
}

Engine *session_engine_again(Session *session, Graph *graph, WeightSource *weights) {
  EngineSettings *settings = engine_settings(session);
  settings->compile.report = NULL;
  return engine_create(session_engine_kind(session), settings, graph, weights);
}

WeightCheck session_weight_check(Session *session) {
  return (WeightCheck){.arena = session->arena,
                       .diag = &session->diag,
                       .prefix = option_text(&session->options, OPTION_WEIGHTS_PREFIX, ""),
                       .rejects_nonfinite = option_given(&session->options, OPTION_REJECT_NONFINITE)};
}

/* A library remembers which weights the file had in 16 bits: that decides how others are packed for it. */
static void note_types(Session *session, const WeightSource *weights, Graph *graph) {
  if (session->library) return;
  ModelText *text = arena_copy(session->arena, session->model, sizeof *text);
  weight_set_note_types(weights->set, graph);
  text->stored = stored_write(session->arena, graph);
  session->model = text;
}

/* A .tfmm file computes with its own weights alone. check compares others with the model in it, and verify gives those
 * that they were made from to the interpreter. */
static bool check_own_weights(Session *session) {
  static const struct {
    Option option;
    unsigned verbs; /* that take it */
  } others[] = {{OPTION_WEIGHTS, V_CHECK | V_VERIFY}, {OPTION_RANDOM_WEIGHTS, V_CHECK}};
  if (!session->library || !session->library->is_one_file) return true;
  for (size_t i = 0; i < 2; i++)
    if (option_given(&session->options, others[i].option) && !(others[i].verbs & 1u << session->options.verb))
      option_error(&session->diag, others[i].option,
                   "a .tfmm file holds its weights: leave this out, or name the .tfm file");
  return !diag_has_errors(&session->diag);
}

WeightSource *session_weights(Session *session, Graph *graph) {
  const Options *options = &session->options;
  if (!check_own_weights(session)) return NULL;
  const WeightRequest request = {
      .check = session_weight_check(session),
      .path = option_text(options, OPTION_WEIGHTS, NULL),
      .is_random = option_given(options, OPTION_RANDOM_WEIGHTS),
      .seed = option_count(options, OPTION_RANDOM_WEIGHTS, 0),
      .may_be_packed = session->library && verb_takes_packed_weights(options->verb)};
  WeightSource *weights = weight_source_open(&request, graph);
  if (weights) note_types(session, weights, graph);
  return weights;
}

bool session_note_weights(Session *session, Graph *graph) {
  if (!option_given(&session->options, OPTION_WEIGHTS)) return true;
  WeightSource *weights = session_weights(session, graph);
  weight_source_close(weights);
  return weights != NULL;
}

// ---- this machine ----

const TargetInfo *host_choose_target(Session *session, bool must_run) {
  return compile_target(&session->diag, option_text(&session->options, OPTION_MARCH, "native"), must_run);
}

HostInfo host_info(Arena *arena) {
  return (HostInfo){host_cpu_name(arena), host_target(), (int)sysconf(_SC_NPROCESSORS_ONLN)};
}

const char *host_missing(Arena *arena, const TargetInfo *target) { return host_why_not(arena, target); }
