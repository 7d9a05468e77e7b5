/* In: a model's parts and several machines. Out: a folder with a library for each. See compile_machines.h. */
#include "cli/compile_machines.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "weights/files.h"

// ---- names ----

/* "models/minilm.tfm" is "minilm". */
static const char *stem_of(Arena *arena, const char *path) {
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *end = strrchr(name, '.');
  return strcmp(path, "-") == 0 ? "model"
                                : arena_strndup(arena, name, end && end > name ? (size_t)(end - name) : strlen(name));
}

static bool is_refused(Session *session, const char *output) {
  const Options *options = &session->options;
  static const char *const files[] = {".so", ".tfmm", ".wasm", ".o"};
  const char *end = strrchr(output, '.');
  if (emits_object(session) || strcmp(emitted_kind(session), "lib") != 0)
    option_error(&session->diag, OPTION_EMIT, "code alone is made for one machine: name one with --target");
  else if (option_given(options, OPTION_CC))
    option_error(&session->diag, OPTION_CC, "a C compiler links for one machine: name one with --target");
  for (size_t i = 0; end && i < sizeof files / sizeof *files; i++)
    if (strcmp(end, files[i]) == 0)
      option_error(&session->diag, OPTION_OUTPUT, "several machines: -o names a folder, which gets a library for each");
  return diag_has_errors(&session->diag);
}

/* A folder may be there. */
static bool make_folder(Session *session, const char *path, bool *made) {
  struct stat now;
  *made = mkdir(path, 0777) == 0;
  if (*made) return true;
  const int why = errno;
  if (why == EEXIST && stat(path, &now) == 0 && S_ISDIR(now.st_mode)) return true;
  diag_error_at(&session->diag, path, DIAG_FILE, "cannot make the folder: %s",
                why == EEXIST ? "there is a file of this name" : strerror(why));
  return false;
}

static bool check_file(Session *session, const char *path) {
  const char *inputs[] = {session->options.files.items[0], option_text(&session->options, OPTION_WEIGHTS, NULL)};
  return session_check_output(session, path, inputs, 2);
}

static bool choose_one(Session *session, const CompileTargets *chosen, uint32_t i, MachineFiles *files) {
  const CompileMachine *machine = &chosen->machines[i];
  const char *name = stem_of(session->arena, session->options.files.items[0]);
  MachineFile *file = &files->each[i];
  file->folder = arena_printf(session->arena, "%s/%s", files->folder, machine->info->triple);
  file->library = arena_printf(session->arena, "%s/lib%s.so", file->folder, name);
  file->has_modules = family_makes_modules(machine->info->family);
  if (!make_folder(session, file->folder, &file->made_folder)) return false;
  if (!file->has_modules) return check_file(session, file->library);
  const char *modules = arena_printf(session->arena, "%s/%s", file->folder, name);
  file->modules.weights = arena_printf(session->arena, "../%s.tfmw", name);
  return modules_choose_files(session, modules, (ModuleTargets){chosen->sets + machine->first, machine->n},
                              &file->modules);
}

MachineFiles *machines_choose_files(Session *session, const CompileTargets *chosen) {
  const char *name = stem_of(session->arena, session->options.files.items[0]);
  MachineFiles *files = ARENA_NEW(session->arena, MachineFiles);
  *files = (MachineFiles){.folder = option_text(&session->options, OPTION_OUTPUT, "")};
  if (is_refused(session, files->folder)) return NULL;
  files->header = arena_printf(session->arena, "%s/%s.h", files->folder, name);
  files->weights = arena_printf(session->arena, "%s/%s.tfmw", files->folder, name);
  bool is_right = make_folder(session, files->folder, &files->made_folder) && check_file(session, files->header) &&
                  check_file(session, files->weights);
  for (uint32_t i = 0; i < chosen->n_machines; i++) is_right = is_right && choose_one(session, chosen, i, files);
  if (is_right) return files;
  machines_remove_folders(chosen, files);
  return NULL;
}

void machines_remove_folders(const CompileTargets *chosen, const MachineFiles *files) {
  for (uint32_t i = 0; i < chosen->n_machines; i++)
    if (files->each[i].made_folder) rmdir(files->each[i].folder);
  if (files->made_folder) rmdir(files->folder);
}

// ---- files ----

static LibraryParts parts_of(LibraryParts parts, const CompileMachine *machine) {
  parts.plans += machine->first;
  parts.n_plans = machine->n;
  return parts;
}

/* Everything that goes into libraries is made before the first file is written. */
bool machines_write(Session *session, const LibraryParts *parts, const CompileTargets *chosen,
                    const MachineFiles *files) {
  Bytes code[MAX_MACHINES] = {{0}};
  StrBuf header = strbuf_new(session->arena);
  for (uint32_t i = 0; i < chosen->n_machines; i++) {
    const LibraryParts one = parts_of(*parts, &chosen->machines[i]);
    if (files->each[i].has_modules) continue;
    code[i] = aot_library(session->arena, &session->diag, &one, NULL, strrchr(files->each[i].library, '/') + 1);
    if (!code[i].data) return false;
  }
  aot_header(&header, parts);
  if (!publish_file(session, files->header, (Bytes){header.text, header.length})) return false;
  for (uint32_t i = 0; i < chosen->n_machines; i++) {
    const LibraryParts one = parts_of(*parts, &chosen->machines[i]);
    if (files->each[i].has_modules ? !modules_write(session, &one, &files->each[i].modules)
                                   : !publish_file(session, files->each[i].library, code[i]))
      return false;
  }
  return true;
}

void machines_say(Session *session, const CompileTargets *chosen, const MachineFiles *files, bool has_weights) {
  StrBuf text = strbuf_new(session->arena);
  for (uint32_t i = 0; i < chosen->n_machines; i++) {
    const CompileMachine *machine = &chosen->machines[i];
    const MachineFile *file = &files->each[i];
    strbuf_printf(&text, "%s: for", file->has_modules ? file->modules.loader : file->library);
    for (uint32_t set = 0; set < machine->n; set++)
      strbuf_printf(&text, "%s %s", set ? "," : "", chosen->sets[machine->first + set]->name);
    strbuf_add_char(&text, '\n');
  }
  strbuf_printf(&text, "%s: the header of all", files->header);
  if (has_weights) strbuf_printf(&text, "; weights %s", files->weights);
  strbuf_add_char(&text, '\n');
  session_print(&text);
}
