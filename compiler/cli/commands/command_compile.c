/* tfmc compile and tfmc pack: a model as a shared library with its C header, and its weights in the form that the
 * library maps.
 *
 * In: a .tfm file, instruction sets, weights. Out: libNAME.so, NAME.h and NAME.tfmw, each of them complete or not at
 * all; or a .tfmm file, an object, LLVM IR or assembly. Refuses to overwrite a file that it reads. */
#include <stdlib.h>
#include <string.h>

#include "aot/aot.h"
#include "cli/cli_model.h"
#include "cli/cli_training.h"
#include "cli/commands/commands.h"
#include "cli/compile_machines.h"
#include "cli/compile_targets.h"
#include "cli/worker.h"
#include "codegen/codegen.h"
#include "engines/weight_source.h"
#include "weights/files.h"

typedef struct Compilation {
  Session *session;
  const char *output, *header, *weights_path; /* what is written; weights_path NULL: no weights */
  CompileTargets targets;
  LibraryModel model;
  TrainingModel training; /* without --training: zeroes */
  TrainingParts trains;
  LibraryPlans plans[MAX_SETS]; /* of each instruction set */
  ModulePaths modules;          /* instead of a library and its header, where the code goes into modules */
  MachineFiles *machines;       /* instead of all of these, where --target is a list; else NULL */
  char *packed;
  bool embeds;
  bool is_one_file; /* the output is a .tfmm file: code and weights, for libtfm and Python */
} Compilation;

// ---- what is to be made ----

static bool ends_in(const char *text, const char *end) {
  const size_t n = strlen(text), m = strlen(end);
  return n >= m && strcmp(text + n - m, end) == 0;
}

static bool makes_modules(const Compilation *c) {
  return family_makes_modules(c->targets.sets[0]->family) &&
         (strcmp(emitted_kind(c->session), "lib") == 0 || emits_command(c->session) || emits_object(c->session));
}

static bool is_for_this_machine(const Compilation *c) { return c->targets.sets[0]->family == cpu_family(); }

/* A .tfmm file holds the objects of one instruction set, as libtfm loads them. */
static bool choose_one_file(Compilation *c) {
  Session *session = c->session;
  const char *inputs[] = {session->options.files.items[0], option_text(&session->options, OPTION_WEIGHTS, NULL)};
  c->is_one_file = true;
  if (c->targets.n > 1)
    option_error(&session->diag, OPTION_MARCH, "a .tfmm file holds the code of one instruction set");
  else if (option_given(&session->options, OPTION_OBJECT) || strcmp(emitted_kind(c->session), "lib") != 0)
    option_error(&session->diag, OPTION_EMIT, "code alone is not a .tfmm file: name the output otherwise");
  else if (option_given(&session->options, OPTION_EMBED_WEIGHTS) || option_given(&session->options, OPTION_CC))
    option_error(&session->diag, option_given(&session->options, OPTION_CC) ? OPTION_CC : OPTION_EMBED_WEIGHTS,
                 "a .tfmm file always holds its weights, and is not linked: leave this out");
  else if (option_given(&session->options, OPTION_TRAINING))
    option_error(&session->diag, OPTION_TRAINING,
                 "a .tfmm file that trains is made by libtfm (tfm_compiled_save): make a library, -o libNAME.so");
  else
    return session_check_output(session, c->output, inputs, inputs[1] ? 2 : 1);
  return false;
}

/* For several machines -o names a folder. */
static bool choose_folder(Compilation *c) {
  const Options *options = &c->session->options;
  const bool embeds = option_given(options, OPTION_EMBED_WEIGHTS), has_weights = option_given(options, OPTION_WEIGHTS);
  if (embeds && !has_weights)
    option_error(&c->session->diag, OPTION_EMBED_WEIGHTS, "needs --weights");
  else
    c->machines = machines_choose_files(c->session, &c->targets);
  if (c->machines && has_weights && !embeds) c->weights_path = c->machines->weights;
  return c->machines;
}

/* All three files are checked before anything is compiled, so a folder that cannot be written is found in
 * milliseconds. */
static bool choose_files(Compilation *c) {
  Session *session = c->session;
  Arena *arena = session->arena;
  c->output = option_text(&session->options, OPTION_OUTPUT, NULL);
  if (!c->output) {
    option_error(&session->diag, OPTION_OUTPUT, "missing: name the library with -o libNAME.so");
    return false;
  }
  if (c->targets.n_machines > 1) return choose_folder(c);
  const ModuleTargets sets = {c->targets.sets, c->targets.n};
  if (makes_modules(c) && !modules_choose_files(session, c->output, sets, &c->modules)) return false;
  if (ends_in(c->output, ".tfmm")) return choose_one_file(c);
  if (emits_object(c->session) && !is_for_this_machine(c) && !option_given(&session->options, OPTION_CC)) {
    const char *triple = target_family(c->targets.sets[0])->triple;
    option_error(&session->diag, OPTION_CC, "missing: an object for %s is linked by a C compiler for it, as %s-gcc is",
                 triple, triple);
    return false;
  }
  const char *weights = option_text(&session->options, OPTION_WEIGHTS, NULL);
  const char *inputs[] = {session->options.files.items[0], weights};
  c->header = file_beside(arena, c->output, ".h");
  bool embed = option_given(&session->options, OPTION_EMBED_WEIGHTS);
  const char *code = makes_modules(c) ? c->modules.loader : c->output;
  if (weights && !embed) c->weights_path = file_beside(arena, code, ".tfmw");
  if (embed && !weights) {
    option_error(&session->diag, OPTION_EMBED_WEIGHTS, "needs --weights");
    return false;
  }
  const char *written[] = {c->weights_path, c->output, c->header};
  for (size_t i = 0; i < (makes_modules(c) ? 1 : 3); i++)
    if (written[i] && !session_check_output(session, written[i], inputs, weights ? 2 : 1)) return false;
  return true;
}

// ---- making it ----

/* One derivation and one fusion serve all instruction sets. */
static bool make_plans(Compilation *c, Graph *graph) {
  Session *session = c->session;
  const CompileRequest request = compile_request(session, NULL);
  const PlansOfSets made = {c->targets.sets, c->plans, c->targets.n};
  return make_library_model(session, graph, &c->model) &&
         (!option_given(&session->options, OPTION_TRAINING) || training_of_library(session, &c->training)) &&
         training_plans(&request, &c->model, &c->training, made, &c->trains);
}

static const char *base_name(const char *path) { return strrchr(path, '/') ? strrchr(path, '/') + 1 : path; }

/* One line on stdout, for people and for build logs; --quiet leaves it out. */
static void say_what_was_made(const Compilation *c) {
  StrBuf text = strbuf_new(c->session->arena);
  strbuf_printf(&text, "%s: for", !makes_modules(c) ? c->output : c->modules.made);
  for (uint32_t i = 0; i < c->targets.n; i++) strbuf_printf(&text, "%s %s", i ? "," : "", c->targets.sets[i]->name);
  if (c->is_one_file)
    strbuf_add(&text, "; code and weights, for tfmc " TFM_VERSION);
  else if (!makes_modules(c))
    strbuf_printf(&text, "; header %s", c->header);
  if (c->weights_path) strbuf_printf(&text, "; weights %s", c->weights_path);
  strbuf_add_char(&text, '\n');
  session_print(&text);
}

/* LLVM IR or assembly of the best instruction set, in place of a library. */
static void write_code(Compilation *c) {
  Session *session = c->session;
  StrBuf text = strbuf_new(session->arena);
  const Plan kernels = library_kernels(session->arena, &c->plans[0]);
  if (code_text(&session->diag, &kernels, strcmp(emitted_kind(c->session), "asm") == 0, &text))
    publish_file(session, c->output, (Bytes){text.text, text.length});
}

/* NULL: the library is written without a C compiler. An object is always made by one: who links it has one. That of
 * this machine makes nothing for others, and of a list of machines all libraries are made in the same way. */
static const char *compiler_of(const Compilation *c) {
  const char *given = option_text(&c->session->options, OPTION_CC, NULL);
  if (given) return strcmp(given, "none") == 0 && !emits_object(c->session) ? NULL : given;
  if (c->machines || !is_for_this_machine(c)) return NULL;
  return emits_object(c->session) || compiler_is_there("cc") ? "cc" : NULL;
}

static bool write_weights(const Compilation *c) {
  const CompileRequest compile = compile_request(c->session, NULL);
  return !c->weights_path || library_write_weights(&compile, &c->plans[0], c->weights_path, c->packed);
}

static void write_machines(const Compilation *c, const LibraryParts *parts) {
  if (write_weights(c) && machines_write(c->session, parts, &c->targets, c->machines) &&
      !option_given(&c->session->options, OPTION_QUIET))
    machines_say(c->session, &c->targets, c->machines, c->weights_path);
}

static void write_modules(const Compilation *c, const LibraryParts *parts) {
  if (write_weights(c) && modules_write(c->session, parts, &c->modules) &&
      !option_given(&c->session->options, OPTION_QUIET))
    say_what_was_made(c);
}

/* The weights are written first and the library last: whoever finds the library finds everything that belongs to it. */
static void write_library(Compilation *c) {
  Session *session = c->session;
  const bool is_stripped = option_given(&session->options, OPTION_STRIP_SOURCE);
  const LibraryParts parts = {.plans = c->plans,
                              .n_plans = c->targets.n,
                              .version = TFM_VERSION,
                              .cache = cache_of_user(session->arena),
                              .text = is_stripped ? NULL : session->model,
                              .generation = c->model.generation,
                              .not_incremental = c->model.not_incremental,
                              .ragged = c->model.ragged,
                              .ragged_sources = c->model.ragged_sources,
                              .weights = c->embeds ? c->packed : NULL,
                              .training = c->trains.table ? &c->trains : NULL};
  if (c->machines || makes_modules(c)) {
    (c->machines ? write_machines : write_modules)(c, &parts);
    return;
  }
  const char *compiler = compiler_of(c);
  Bytes code = emits_object(c->session)
                   ? aot_object(session->arena, &session->diag, &parts, compiler)
                   : aot_library(session->arena, &session->diag, &parts, compiler, base_name(c->output));
  StrBuf header = strbuf_new(session->arena);
  aot_header(&header, &parts);
  bool weights = !code.data || write_weights(c);
  if (code.data && weights && publish_file(session, c->header, (Bytes){header.text, header.length}) &&
      publish_file(session, c->output, code) && !option_given(&session->options, OPTION_QUIET))
    say_what_was_made(c);
}

/* Returns whether weights are packed now. A model without any has only constants of its text to pack; they go into the
 * library, which needs no file then. */
static bool choose_weights(Compilation *c, Graph *graph) {
  bool has_weights = needed_weights(c->session->arena, graph).nodes.n > 0;
  c->embeds = !has_weights || option_given(&c->session->options, OPTION_EMBED_WEIGHTS);
  if (!has_weights) c->weights_path = NULL;
  return !has_weights || option_given(&c->session->options, OPTION_WEIGHTS);
}

static void make_one_file(Compilation *c, WeightSource *weights) {
  if (worker_save(c->session, &c->model, &c->plans[0], weights, c->output) &&
      !option_given(&c->session->options, OPTION_QUIET))
    say_what_was_made(c);
}

static void make(Compilation *c, Graph *graph, WeightSource *weights) {
  if (!make_plans(c, graph)) return;
  if (c->is_one_file) {
    make_one_file(c, weights);
    return;
  }
  const CompileRequest request = compile_request(c->session, weights);
  if (weights && !(c->packed = compile_pack(&request, &c->plans[0]))) return;
  if (strcmp(emitted_kind(c->session), "llvm") == 0 || strcmp(emitted_kind(c->session), "asm") == 0)
    write_code(c);
  else
    write_library(c);
}

static void load_and_make(Compilation *c) {
  Session *session = c->session;
  Graph *graph = model_load(session);
  if (!graph) return;
  bool packs = choose_weights(c, graph);
  if (c->is_one_file && !packs) {
    option_error(&session->diag, OPTION_WEIGHTS, "missing: a .tfmm file holds the weights too");
    return;
  }
  WeightSource *weights = packs ? session_weights(session, graph) : NULL;
  if (!packs || weights) make(c, graph, weights);
  weight_source_close(weights);
  free(c->packed);
}

void command_compile(Session *session) {
  Compilation c = {.session = session};
  if (!choose_compile_targets(session, &c.targets) || !choose_files(&c)) return;
  load_and_make(&c);
  if (c.machines && !session->wrote_output) machines_remove_folders(&c.targets, c.machines);
}

// ---- tfmc pack ----

/* Every instruction set has the same layout of weights, so for a .tfm file that of this CPU serves. */
static bool plans_to_pack(Session *session, Graph *graph, LibraryPlans *plans) {
  LibraryModel model;
  CompileRequest request = compile_request(session, NULL);
  if (session->library) return plans_of_library(session, graph, plans);
  request.target = host_target();
  return make_library_model(session, graph, &model) && library_model_plan(&request, &model, plans);
}

/* The file is the same as the one that `tfmc compile --weights` writes. */
static void pack(Session *session, Graph *graph, WeightSource *weights, const char *path) {
  LibraryPlans plans;
  const CompileRequest request = compile_request(session, weights);
  char *packed = plans_to_pack(session, graph, &plans) ? compile_pack(&request, &plans) : NULL;
  if (packed && library_write_weights(&request, &plans, path, packed)) {
    session->wrote_output = true;
    StrBuf text = strbuf_new(session->arena);
    strbuf_printf(&text, "%s: %llu bytes of weights\n", path, (unsigned long long)plans.forward->program.weights_bytes);
    if (!option_given(&session->options, OPTION_QUIET)) session_print(&text);
  }
  free(packed);
}

/* A state for a library that trains: nothing is compiled, and any optimizer may go on from it. */
static void pack_state(Session *session, const char *path) {
  Training t = {.session = session};
  const TrainingWish wish = {.is_training = true, .fills = true, .only_weights = true};
  if (!model_load(session)) return;
  if (training_begin(&t, session, &wish) && trainer_write_start(t.trainer, path)) {
    session->wrote_output = true;
    StrBuf text = strbuf_new(session->arena);
    strbuf_printf(&text, "%s: %zu weights to begin with\n", path, t.graphs->parameters.n);
    if (!option_given(&session->options, OPTION_QUIET)) session_print(&text);
  }
  trainer_free(t.trainer);
}

void command_pack(Session *session) {
  const char *file = session->options.files.items[0], *given = option_text(&session->options, OPTION_WEIGHTS, NULL);
  const bool trains = option_given(&session->options, OPTION_TRAINING);
  const char *path =
      option_text(&session->options, OPTION_OUTPUT, file_beside(session->arena, file, trains ? ".tfmt" : ".tfmw"));
  const Option of_training[] = {OPTION_NEW, OPTION_SEED};
  for (size_t i = 0; i < 2; i++)
    if (!trains && option_given(&session->options, of_training[i]))
      option_error(&session->diag, of_training[i], "it goes with --training");
  if (diag_has_errors(&session->diag)) return;
  if (!given) {
    option_error(&session->diag, OPTION_WEIGHTS, "missing: name the file with the weights to pack");
    return;
  }
  if (!session_check_output(session, path, (const char *[]){file, given}, 2)) return;
  if (trains) {
    pack_state(session, path);
    return;
  }
  Graph *graph = model_load(session);
  WeightSource *weights = graph ? session_weights(session, graph) : NULL;
  if (weights) pack(session, graph, weights, path);
  weight_source_close(weights);
}
