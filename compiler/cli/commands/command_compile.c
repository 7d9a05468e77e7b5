/* tfmc compile and tfmc pack: a model as a shared library with its C header, and its weights in the form that the
 * library maps.
 *
 * In: a .tfm file, instruction sets, weights. Out: libNAME.so, NAME.h and NAME.tfmw, each of them complete or not at
 * all; or a .tfmm file, an object, LLVM IR or assembly. Refuses to overwrite a file that it reads. */
#include <stdlib.h>
#include <string.h>

#include "aot/aot.h"
#include "aot/runtime_archives.h"
#include "cli/commands/commands.h"
#include "cli/commands/compile_modules.h"
#include "cli/cli_model.h"
#include "cli/cli_training.h"
#include "cli/worker.h"
#include "codegen/codegen.h"
#include "engines/weight_source.h"
#include "weights/files.h"

enum { MAX_TARGETS = 8 };

typedef struct Compilation {
  Session *session;
  const char *output, *header, *weights_path; /* what is written; weights_path NULL: no weights */
  const TargetInfo *targets[MAX_TARGETS];     /* the best first */
  LibraryModel model;
  TrainingModel training; /* without --training: zeroes */
  TrainingParts trains;
  LibraryPlans plans[MAX_TARGETS];
  uint32_t n_targets;
  ModulePaths modules; /* instead of a library and its header, where the code goes into modules */
  char *packed;
  bool embeds;
  bool is_one_file; /* the output is a .tfmm file: code and weights, for libtfm and Python */
} Compilation;

// ---- what is to be made ----

static const char *emitted(const Compilation *c) { return option_text(&c->session->options, OPTION_EMIT, "lib"); }

static bool makes_object(const Compilation *c) {
  return option_given(&c->session->options, OPTION_OBJECT) || strcmp(emitted(c), "obj") == 0;
}

/* Targets are kept from the best to the least, each once: a library tries its sets in this order when it is opened.
 * The table of targets goes from the least to the most, so addresses compare. */
static bool add_target(Compilation *c, const char *name) {
  const TargetInfo *target = compile_target(&c->session->diag, name, false);
  if (!target) return false;
  uint32_t place = 0;
  while (place < c->n_targets && c->targets[place] > target) place++; /* the table goes from the least to the most */
  if (place < c->n_targets && c->targets[place] == target) return true;
  memmove(c->targets + place + 1, c->targets + place, (c->n_targets - place) * sizeof *c->targets);
  c->targets[place] = target;
  c->n_targets++;
  return true;
}

/* The family of --target; TFM_FAMILY_ANY: it was not given. False after an error. */
static bool choose_family(Compilation *c, tfm_family *family) {
  const char *triple = option_text(&c->session->options, OPTION_TARGET, NULL);
  const FamilyInfo *info = triple ? family_find(triple) : family_info(TFM_FAMILY_ANY);
  if (info) {
    *family = info->family;
    return true;
  }
  StrBuf list = strbuf_new(c->session->arena);
  for (info = cpu_families; info->family != TFM_FAMILY_ANY; info++)
    strbuf_printf(&list, "%s%s", list.length ? ", " : "", info->triple);
  option_error(&c->session->diag, OPTION_TARGET,
               "unknown target '%s'; there are %s; other 32-bit and big-endian machines are not supported", triple,
               list.text);
  return false;
}

/* What is made when -march does not say: for other CPUs of the family too, since a library is usually made to be
 * copied. "native" would be a trap. */
static const char *usual_march(Arena *arena, tfm_family family) {
  if (family_makes_modules(family)) return modules_usual_march(arena);
  if (family == TFM_FAMILY_ANY) family = cpu_family();
  return target_for_libraries(family == TFM_FAMILY_ANY ? targets[0].family : family)->name;
}

/* All instruction sets must be of one family, for which there is a runtime unless code alone is made. */
static bool check_family(Compilation *c, tfm_family family) {
  Session *session = c->session;
  RuntimeArchive runtime;
  if (family == TFM_FAMILY_ANY) family = c->targets[0]->family;
  for (uint32_t i = 0; i < c->n_targets; i++) {
    const TargetInfo *target = c->targets[i], *other = c->targets[i ? 0 : c->n_targets - 1];
    if (target->family == family) continue;
    if (option_given(&session->options, OPTION_TARGET))
      option_error(&session->diag, OPTION_MARCH, "%s is code for %s, not for %s", target->name,
                   target_family(target)->triple, family_info(family)->triple);
    else
      option_error(&session->diag, OPTION_MARCH, "a library holds code for one kind of machine: %s is %s, %s is %s",
                   target->name, target_family(target)->name, other->name, target_family(other)->name);
    return false;
  }
  if (family != cpu_family() && option_given(&session->options, OPTION_TRAINING)) {
    option_error(&session->diag, OPTION_TRAINING, "libraries that train are made for this machine, not for %s",
                 family_info(family)->triple);
    return false;
  }
  return strcmp(emitted(c), "lib") != 0 || makes_object(c) || runtime_of_family(&session->diag, family, &runtime);
}

/* -march takes a list. */
static bool choose_targets(Compilation *c) {
  tfm_family family;
  if (!choose_family(c, &family)) return false;
  const char *given = option_text(&c->session->options, OPTION_MARCH, usual_march(c->session->arena, family));
  char *names = arena_strdup(c->session->arena, given);
  for (char *rest = NULL, *name = strtok_r(names, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
    if (c->n_targets == MAX_TARGETS) {
      option_error(&c->session->diag, OPTION_MARCH, "more than %d instruction sets", MAX_TARGETS);
      return false;
    }
    if (!add_target(c, name)) return false;
  }
  if (!c->n_targets) option_error(&c->session->diag, OPTION_MARCH, "no instruction set");
  return c->n_targets > 0 && check_family(c, family);
}

static bool ends_in(const char *text, const char *end) {
  const size_t n = strlen(text), m = strlen(end);
  return n >= m && strcmp(text + n - m, end) == 0;
}

static bool makes_modules(const Compilation *c) {
  return family_makes_modules(c->targets[0]->family) && (strcmp(emitted(c), "lib") == 0 || makes_object(c));
}

static bool is_for_this_machine(const Compilation *c) { return c->targets[0]->family == cpu_family(); }

/* A .tfmm file holds the objects of one instruction set, as libtfm loads them. */
static bool choose_one_file(Compilation *c) {
  Session *session = c->session;
  const char *inputs[] = {session->options.files.items[0], option_text(&session->options, OPTION_WEIGHTS, NULL)};
  c->is_one_file = true;
  if (c->n_targets > 1)
    option_error(&session->diag, OPTION_MARCH, "a .tfmm file holds the code of one instruction set");
  else if (!is_for_this_machine(c))
    option_error(&session->diag, OPTION_OUTPUT,
                 "a .tfmm file holds code for this machine, not for %s: make a library, -o libNAME.so",
                 target_family(c->targets[0])->triple);
  else if (option_given(&session->options, OPTION_OBJECT) || strcmp(emitted(c), "lib") != 0)
    option_error(&session->diag, OPTION_EMIT, "code alone is not a .tfmm file: name the output otherwise");
  else if (option_given(&session->options, OPTION_TRAINING))
    option_error(&session->diag, OPTION_TRAINING,
                 "a .tfmm file that trains is made by libtfm (tfm_compiled_save): make a library, -o libNAME.so");
  else
    return session_check_output(session, c->output, inputs, inputs[1] ? 2 : 1);
  return false;
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
  if (makes_modules(c) && !modules_choose_files(session, (ModuleTargets){c->targets, c->n_targets}, &c->modules))
    return false;
  if (ends_in(c->output, ".tfmm")) return choose_one_file(c);
  if (makes_object(c) && !is_for_this_machine(c) && !option_given(&session->options, OPTION_CC)) {
    const char *triple = target_family(c->targets[0])->triple;
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
  const PlansOfSets made = {c->targets, c->plans, c->n_targets};
  return make_library_model(session, graph, &c->model) &&
         (!option_given(&session->options, OPTION_TRAINING) || training_of_library(session, &c->training)) &&
         training_plans(&request, &c->model, &c->training, made, &c->trains);
}

static const char *base_name(const char *path) { return strrchr(path, '/') ? strrchr(path, '/') + 1 : path; }

/* One line on stdout, for people and for build logs; --quiet leaves it out. */
static void say_what_was_made(const Compilation *c) {
  StrBuf text = strbuf_new(c->session->arena);
  strbuf_printf(&text, "%s: for", makes_modules(c) ? c->modules.loader : c->output);
  for (uint32_t i = 0; i < c->n_targets; i++) strbuf_printf(&text, "%s %s", i ? "," : "", c->targets[i]->name);
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
  if (code_text(&session->diag, &kernels, strcmp(emitted(c), "asm") == 0, &text))
    publish_file(session, c->output, (Bytes){text.text, text.length});
}

/* NULL: the library is written without a C compiler. An object is always made by one: who links it has one. That of
 * this machine makes nothing for others. */
static const char *compiler_of(const Compilation *c) {
  const char *given = option_text(&c->session->options, OPTION_CC, NULL);
  if (given) return strcmp(given, "none") == 0 && !makes_object(c) ? NULL : given;
  if (!is_for_this_machine(c)) return NULL;
  return makes_object(c) || compiler_is_there("cc") ? "cc" : NULL;
}

static bool write_weights(const Compilation *c) {
  const CompileRequest compile = compile_request(c->session, NULL);
  return !c->weights_path || library_write_weights(&compile, &c->plans[0], c->weights_path, c->packed);
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
                              .n_plans = c->n_targets,
                              .version = TFM_VERSION,
                              .text = is_stripped ? NULL : session->model,
                              .generation = c->model.generation,
                              .not_incremental = c->model.not_incremental,
                              .ragged = c->model.ragged,
                              .ragged_sources = c->model.ragged_sources,
                              .weights = c->embeds ? c->packed : NULL,
                              .training = c->trains.table ? &c->trains : NULL};
  if (makes_modules(c)) {
    write_modules(c, &parts);
    return;
  }
  const char *compiler = compiler_of(c);
  Bytes code = makes_object(c) ? aot_object(session->arena, &session->diag, &parts, compiler)
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
  if (strcmp(emitted(c), "llvm") == 0 || strcmp(emitted(c), "asm") == 0) write_code(c);
  else write_library(c);
}

void command_compile(Session *session) {
  Compilation c = {.session = session};
  if (!choose_targets(&c) || !choose_files(&c)) return;
  Graph *graph = model_load(session);
  if (!graph) return;
  bool packs = choose_weights(&c, graph);
  if (c.is_one_file && !packs) {
    option_error(&session->diag, OPTION_WEIGHTS, "missing: a .tfmm file holds the weights too");
    return;
  }
  WeightSource *weights = packs ? session_weights(session, graph) : NULL;
  if (!packs || weights) make(&c, graph, weights);
  weight_source_close(weights);
  free(c.packed);
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
