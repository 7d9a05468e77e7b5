/* In: a library's request for WebAssembly. Out: modules, their loader and its types. See compile_modules.h. */
#include "cli/compile_modules.h"

#include <string.h>

#include "compile/library_model.h"
#include "weights/files.h"

bool publish_file(Session *session, const char *path, Bytes bytes) {
  OutFile *file = ARENA_NEW(session->arena, OutFile);
  if (!out_file_open(file, &session->diag, path)) return false;
  out_file_write(file, bytes.data, bytes.size);
  if (!out_file_commit(file)) return false;
  session->wrote_output = true;
  return true;
}

const char *modules_usual_march(Arena *arena) {
  StrBuf list = strbuf_new(arena);
  for (const TargetInfo *row = targets; row->name; row++)
    if (family_makes_modules(row->family)) strbuf_printf(&list, "%s%s", list.length ? "," : "", row->name);
  return list.text;
}

bool emits_command(const Session *session) { return option_is(&session->options, OPTION_EMIT, "lib", "wasi"); }

// ---- names ----

/* "out/m" and "out/m.wasm" name the same files. */
static const char *path_with(Session *session, const char *output, const char *ending) {
  const size_t n = strlen(output), m = strlen(".wasm");
  const bool has_ending = n > m && strcmp(output + n - m, ".wasm") == 0;
  return arena_printf(session->arena, "%.*s%s", (int)(has_ending ? n - m : n), output, ending);
}

static const char *base_of(const char *path) {
  const char *slash = path ? strrchr(path, '/') : NULL;
  return slash ? slash + 1 : path;
}

static bool is_refused(Session *session, const char *output) {
  const Options *options = &session->options;
  const char *end = strrchr(base_of(output), '.');
  if (strcmp(option_text(options, OPTION_CC, "none"), "none") != 0)
    option_error(&session->diag, OPTION_CC, "modules for wasm32 are written by tfmc itself");
  else if (option_given(options, OPTION_OBJECT) || strcmp(option_text(options, OPTION_EMIT, "lib"), "obj") == 0)
    option_error(&session->diag, OPTION_EMIT, "objects for wasm32 are not made: name the modules with -o NAME");
  else if (end && (strcmp(end, ".so") == 0 || strcmp(end, ".tfmm") == 0))
    option_error(&session->diag, OPTION_OUTPUT,
                 "code for wasm32 goes into modules, NAME.wasm beside NAME.mjs: -o NAME");
  else
    return false;
  return true;
}

bool modules_choose_files(Session *session, const char *output, ModuleTargets chosen, ModulePaths *paths) {
  if (is_refused(session, output)) return false;
  for (uint32_t i = 0; i < chosen.n; i++) {
    const bool is_relaxed = chosen.items[i]->fma_of_register;
    const char *path = path_with(session, output, is_relaxed ? "-relaxed.wasm" : ".wasm");
    *(is_relaxed ? &paths->relaxed : &paths->plain) = path;
  }
  paths->loader = path_with(session, output, ".mjs"); /* of a command what its weights are called after */
  paths->made = emits_command(session) ? (paths->plain ? paths->plain : paths->relaxed) : paths->loader;
  if (!emits_command(session)) {
    paths->types = path_with(session, output, ".d.ts");
    paths->types_of_loader = path_with(session, output, ".d.mts");
  }
  const char *inputs[] = {session->options.files.items[0], option_text(&session->options, OPTION_WEIGHTS, NULL)};
  const char *written[] = {paths->plain, paths->relaxed, paths->made, paths->types, paths->types_of_loader};
  for (size_t i = 0; i < sizeof written / sizeof *written; i++)
    if (written[i] && !session_check_output(session, written[i], inputs, inputs[1] ? 2 : 1)) return false;
  return true;
}

// ---- files ----

/* Each module holds the code of one instruction set. */
static bool write_one(Session *session, LibraryParts parts, const LibraryPlans *plans, const ModulePaths *paths) {
  parts.plans = plans;
  parts.n_plans = 1;
  const bool is_relaxed = plans->forward->target->fma_of_register;
  const Bytes module = aot_module(session->arena, &session->diag, &parts);
  return module.data && publish_file(session, is_relaxed ? paths->relaxed : paths->plain, module);
}

/* TypeScript looks for the types of './NAME.mjs' in NAME.d.mts, and for those of './NAME' in NAME.d.ts. */
static bool write_types(Session *session, const ModulePaths *paths, const StrBuf *types) {
  const char *name = base_of(paths->types);
  const int n = (int)(strlen(name) - strlen(".d.ts"));
  StrBuf same = strbuf_new(session->arena);
  strbuf_add(&same, "export * from ");
  strbuf_add_json(&same, arena_printf(session->arena, "./%.*s.js", n, name));
  strbuf_add(&same, ";\n");
  return publish_file(session, paths->types, (Bytes){types->text, types->length}) &&
         publish_file(session, paths->types_of_loader, (Bytes){same.text, same.length});
}

/* The weights are expected beside the loader, also where `tfmc pack` makes them later. */
bool modules_write(Session *session, const LibraryParts *parts, const ModulePaths *paths) {
  StrBuf loader = strbuf_new(session->arena), types = strbuf_new(session->arena);
  const char *beside = base_of(file_beside(session->arena, paths->loader, ".tfmw"));
  const ModuleFiles files = {base_of(paths->plain), base_of(paths->relaxed),
                             parts->weights ? NULL : (paths->weights ? paths->weights : beside)};
  LibraryParts each = *parts;
  each.is_command = emits_command(session);
  each.weights_beside = beside;
  for (uint32_t i = 0; i < parts->n_plans; i++)
    if (!write_one(session, each, &parts->plans[i], paths)) return false;
  if (each.is_command) return true;
  aot_module_texts(&loader, &types, parts, &files);
  return write_types(session, paths, &types) &&
         publish_file(session, paths->loader, (Bytes){loader.text, loader.length});
}
