/* tfmc import: the folder of a checkpoint, or a GGUF file, in, a .tfm file out.
 *
 * What is written was elaborated, and its weights compared with those of the folder: a file that appears can be
 * compiled. Refused besides what import.h refuses: sizes of config.json that contradict the weights, tensors that
 * nothing reads. */
#include <string.h>
#include <sys/stat.h>

#include "cli/commands/commands.h"
#include "cli/generation_settings.h"
#include "cli/cli_model.h"
#include "import/account.h"
#include "import/family_list.h"
#include "import/import.h"
#include "import/json_file.h"
#include "import/sentence.h"
#include "weights/gguf.h"

typedef struct Imported {
  Session *session;
  const Folder *folder;
  const ImportOptions *options;
  ImportValues values;
  StrBuf text;
  Graph *graph; /* of the text */
} Imported;

static Graph *elaborated(Session *session, Diag *diag, const StrBuf *text) {
  const ElaborateOptions options = {0};
  ParsedProgram *program =
      parse_text(session->arena, &session->names, diag, "the imported model", text->text, text->length);
  return program ? elaborate(session->arena, &session->names, diag, program, &options) : NULL;
}

/* Adds the names of the weights that a graph reads. */
static void add_needed(Arena *arena, Graph *graph, Map *names) {
  const NodeList needed = needed_weights(arena, graph);
  for (size_t i = 0; i < needed.nodes.n; i++) map_put(names, needed.nodes.items[i]->attr.name, NULL);
}

/* The names of the weights that a model made for some tasks reads. */
typedef struct OtherTasks {
  Map any; /* of one of them at least; the value: of how many, as a pointer */
  size_t n;
} OtherTasks;

/* What the model reads when it is made for its other tasks; what does not become a model is not counted. */
static OtherTasks other_tasks(const Imported *i) {
  Arena *arena = i->session->arena;
  const Texts tasks = family_tasks(arena, i->values.family);
  OtherTasks others = {.any = map_new(arena)};
  for (size_t k = 0; k < tasks.n; k++) {
    if (strcmp(tasks.items[k], import_task(&i->values)) == 0) continue;
    const ImportValues values = import_with_task(arena, &i->values, tasks.items[k]);
    StrBuf text = strbuf_new(arena);
    Diag unheard = diag_new(arena);
    import_write(&text, &values, i->folder, i->options);
    Graph *graph = elaborated(i->session, &unheard, &text);
    if (!graph) continue;
    Map names = map_new(arena);
    add_needed(arena, graph, &names);
    others.n++;
    for (size_t m = 0; m < names.n; m++)
      map_put(&others.any, names.items[m].key, (char *)map_get(&others.any, names.items[m].key) + 1);
  }
  return others;
}

/* False after an error: a tensor that nothing reads. */
static bool accounts_for_tensors(const Imported *i, const Map *used, const Map *of_others) {
  Diag *diag = &i->session->diag;
  const json_t *names = i->folder->names;
  const bool is_stated = i->options->task || json_is_string(json_object_get(names, "architecture")) ||
                         sentence_param(json_object_get(names, "sentence"));
  const TensorUse use = {used, &i->values.copies, of_others, is_stated};
  account_for_tensors(i->session->arena, diag, i->values.family, i->folder, &use);
  return !diag_has_errors(diag);
}

/* A task that was asked for, of whose head the checkpoint lacks a weight: a single message in place of one for each. A
 * weight that all tasks read is the body's. False after it. */
static bool has_head(const Imported *i, const Map *used, const OtherTasks *others) {
  for (size_t k = 0; i->options->task && others->n && k < used->n; k++) {
    const char *name = used->items[k].key;
    if ((uintptr_t)map_get(&others->any, name) == others->n || weight_set_find(i->folder->weights, name)) continue;
    diag_error_at(&i->session->diag, i->folder->weights->path, DIAG_CHECKPOINT,
                  "--task %s: the checkpoint has no such head: there is no tensor \"%s\"", i->options->task, name);
    return false;
  }
  return true;
}

/* False after an error. */
static bool fits_weights(Imported *i) {
  Session *session = i->session;
  const WeightCheck check = {session->arena, &session->diag, "", false, true};
  Map used = map_new(session->arena);
  i->graph = elaborated(session, &session->diag, &i->text);
  if (!i->graph) return false;
  add_needed(session->arena, i->graph, &used);
  const TensorUse alone = {&used, &i->values.copies, NULL, false};
  const bool asks_others = i->options->task || has_unread_tensors(session->arena, i->values.family, i->folder, &alone);
  OtherTasks others = {.any = map_new(session->arena)};
  if (asks_others) others = other_tasks(i);
  if (!has_head(i, &used, &others)) return false;
  weight_set_check(&check, i->graph, i->folder->weights);
  return !diag_has_errors(&session->diag) && accounts_for_tensors(i, &used, &others.any);
}

/* What the block makes of it must run: the ids of a generate block are read as a run reads them. */
static bool can_generate(const Imported *i) {
  GenerationSettings settings;
  return !i->graph->generate_input || generation_settings_of_block(i->session, i->graph, &settings);
}

static void write_model(Session *session, const Family *family, Folder *folder, const ImportOptions *options) {
  Imported i = {.session = session, .folder = folder, .options = options, .text = strbuf_new(session->arena)};
  if (!folder_open_weights(session->arena, &session->diag, folder)) return;
  if (import_evaluate(session->arena, &session->diag, family, folder, options, &i.values)) {
    import_write(&i.text, &i.values, folder, options);
    if (fits_weights(&i)) {
      if (can_generate(&i)) session_write(session, &i.text);
    } else if (*i.values.lacking) {
      diag_warning_at(&session->diag, folder->config_path, DIAG_CHECKPOINT_KEY,
                      "these keys are missing, and the family's defaults may be what does not fit: %s",
                      i.values.lacking);
    }
  }
  import_note_family(&session->diag, family);
  json_decref(i.values.owned);
}

/* The weights are then BASE+ADAPTER, as --weights takes them. */
static void add_adapters(Session *session, Folder *folder) {
  const OptionValues *adapters = &session->options.values[OPTION_ADAPTER];
  for (size_t i = 0; i < adapters->texts.n; i++) {
    const char *path = adapters->texts.items[i];
    if (!file_exists(folder_file(session->arena, path, "adapter_config.json")))
      diag_error_at(&session->diag, path, DIAG_FILE, "there is no adapter_config.json: this is no adapter of peft");
    folder->weights_path = arena_printf(session->arena, "%s+%s", folder->weights_path, path);
  }
}

/* Everything that can be refused without the weights is refused before they are opened: they may be what a user has not
 * downloaded yet. */
static void import_folder(Session *session, const char *path) {
  Map ignored = map_new(session->arena);
  const ImportOptions options = {option_text(&session->options, OPTION_TASK, NULL),
                                 option_given(&session->options, OPTION_STRICT), TFM_VERSION};
  const OptionValues *names = &session->options.values[OPTION_IGNORE];
  for (size_t i = 0; i < names->texts.n; i++) map_put(&ignored, names->texts.items[i], NULL);
  Folder *folder = folder_open(session->arena, &session->diag, path, &ignored);
  if (!folder) return;
  add_adapters(session, folder);
  const char *named = option_text(&session->options, OPTION_FAMILY, NULL);
  Family *family = family_choose(session->arena, &session->names, &session->diag, folder, named);
  if (family && import_check(session->arena, &session->diag, family, folder, &options))
    write_model(session, family, folder, &options);
  else if (family)
    import_note_family(&session->diag, family);
  if (!family && !named && json_object_get(folder->config, "auto_map"))
    diag_error_at(&session->diag, folder->config_path, DIAG_CHECKPOINT,
                  "\"auto_map\": the model is Python code of its own, which is not run here; in Python, "
                  "tfmc.from_torch takes its module");
  folder_close(folder);
}

/* People name the config itself. What is missing altogether is reported when its config.json is read. */
static bool is_folder(Session *session, const char *path) {
  struct stat status;
  if (stat(path, &status) != 0 || S_ISDIR(status.st_mode) || is_gguf(path)) return true;
  diag_error_at(&session->diag, path, DIAG_USAGE,
                "this is a file, and no GGUF file; name the folder that holds config.json and the weights");
  return false;
}

/* A slip must not cost the config. */
static bool check_output(Session *session, const char *folder) {
  const char *output = option_text(&session->options, OPTION_OUTPUT, NULL);
  const char *inputs[] = {arena_printf(session->arena, "%s/config.json", folder),
                          weight_set_path(session->arena, folder), option_text(&session->options, OPTION_FAMILY, NULL)};
  return !output || session_check_output(session, output, inputs, sizeof inputs / sizeof *inputs);
}

void command_import(Session *session) {
  if (option_given(&session->options, OPTION_LIST)) {
    if (session->options.files.n) {
      diag_error_at(&session->diag, NULL, DIAG_USAGE, "--list is of no folder: leave '%s' out",
                    session->options.files.items[0]);
      return;
    }
    StrBuf list = strbuf_new(session->arena);
    if (option_given(&session->options, OPTION_JSON))
      family_list_json(&list);
    else
      family_list_lines(&list);
    session_print(&list);
    return;
  }
  if (option_given(&session->options, OPTION_JSON)) {
    diag_error_at(&session->diag, NULL, DIAG_USAGE, "--json is for --list: what import writes is a model");
    return;
  }
  if (!session->options.files.n) {
    diag_error_at(&session->diag, NULL, DIAG_USAGE, "tfmc import needs the folder of a checkpoint, or --list");
    return;
  }
  const char *folder = session->options.files.items[0];
  if (is_folder(session, folder) && check_output(session, folder)) import_folder(session, folder);
}
