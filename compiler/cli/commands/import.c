/* tfmc import: the folder of a checkpoint in, a .tfm file out.
 *
 * What is written was elaborated, and its weights compared with those of the folder: a file that appears can be
 * compiled. Refused besides what import.h refuses: sizes of config.json that contradict the weights. */
#include <string.h>
#include <sys/stat.h>

#include "cli/commands/commands.h"
#include "cli/model.h"
#include "import/import.h"

/* False after an error. */
static bool fits_weights(Session *session, const StrBuf *text, const Folder *folder) {
  const ElaborateOptions options = {0};
  ParsedProgram *program =
      parse_text(session->arena, &session->names, &session->diag, "the imported model", text->text, text->length);
  Graph *graph = program ? elaborate(session->arena, &session->names, &session->diag, program, &options) : NULL;
  if (!graph) return false;
  const WeightCheck check = {session->arena, &session->diag, "", false};
  weight_set_check(&check, graph, folder->weights);
  return !diag_has_errors(&session->diag);
}

static void write_model(Session *session, const Family *family, const Folder *folder) {
  const ImportOptions options = {option_text(&session->options, OPTION_TASK, NULL),
                                 option_given(&session->options, OPTION_STRICT), TFM_VERSION};
  ImportValues values;
  StrBuf text = strbuf_new(session->arena);
  if (import_evaluate(session->arena, &session->diag, family, folder, &options, &values)) {
    import_write(&text, &values, folder, &options);
    if (fits_weights(session, &text, folder))
      session_write(session, &text);
    else if (*values.lacking)
      diag_warning_at(&session->diag, folder->config_path, DIAG_CHECKPOINT_KEY,
                      "these keys are missing, and the family's defaults may be what does not fit: %s", values.lacking);
  }
  json_decref(values.owned);
}

static void import_folder(Session *session, const char *path) {
  Folder *folder = folder_open(session->arena, &session->diag, path);
  if (!folder) return;
  const char *type = json_string_value(json_object_get(folder->config, "model_type"));
  const char *named = option_text(&session->options, OPTION_FAMILY, NULL);
  Family *family = family_choose(session->arena, &session->names, &session->diag, type, named, folder->config_path);
  if (family)
    write_model(session, family, folder);
  else if (!named && json_object_get(folder->config, "auto_map"))
    diag_error_at(&session->diag, folder->config_path, DIAG_CHECKPOINT,
                  "\"auto_map\": the model is Python code of its own, which is not run here; in Python, "
                  "tfmc.from_torch takes its module");
  folder_close(folder);
}

/* People name the config itself. What is missing altogether is reported when its config.json is read. */
static bool is_folder(Session *session, const char *path) {
  struct stat status;
  if (stat(path, &status) != 0 || S_ISDIR(status.st_mode)) return true;
  diag_error_at(&session->diag, path, DIAG_USAGE,
                "this is a file; name the folder that holds config.json and the weights");
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
    StrBuf list = strbuf_new(session->arena);
    family_list(session->arena, &list);
    session_print(&list);
    return;
  }
  if (!session->options.files.n) {
    diag_error_at(&session->diag, NULL, DIAG_USAGE, "tfmc import needs the folder of a checkpoint, or --list");
    return;
  }
  const char *folder = session->options.files.items[0];
  if (is_folder(session, folder) && check_output(session, folder)) import_folder(session, folder);
}
