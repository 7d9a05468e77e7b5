#include "driver/model.h"

#include <string.h>

#include "aot/description.h"
#include "aot/library_file.h"
#include "driver/passes_options.h"

ParsedProgram *model_parse(Session *session) {
  if (session->text)
    return parse_text(session->arena, &session->names, &session->diag, session->options.files.items[0], session->text,
                      session->text_size);
  return parse_program(session->arena, &session->names, &session->diag, session->options.files.items[0]);
}

/* "name=expression" of each -D. */
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
  return read_definitions(session, &text->options) && (text->program = model_parse(session));
}

// ---- from a library ----

/* What was decided when the library was made cannot be chosen again. */
static bool check_fixed(Session *session) {
  static const Option fixed[] = {OPTION_DEFINE, OPTION_MODEL,    OPTION_WEIGHTS_PREFIX,
                                 OPTION_ENGINE, OPTION_MARCH,    OPTION_OPTIMIZE,
                                 OPTION_REPORT, OPTION_REQUIRE_FUSION, OPTION_ONLY,
                                 OPTION_DISABLE, OPTION_STOP_AFTER};
  for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
    if (option_given(&session->options, fixed[i]))
      option_error(&session->diag, fixed[i], "a compiled library has no such choice any more: leave it out");
  return !diag_has_errors(&session->diag);
}

static bool read_library(Session *session, ModelText *text) {
  LibraryFile *library = session->library =
      library_file_open(session->arena, &session->diag, session->options.files.items[0]);
  if (!library || !check_fixed(session)) return false;
  const json_t *source = json_object_get(library->description, "source");
  if (model_text_read(session->arena, &session->names, &session->diag, source, text)) return true;
  diag_error_at(&session->diag, library->path, DIAG_LIBRARY,
                "the model in it cannot be read by tfmc " TFM_VERSION "; the library was made by tfmc %s", library->version);
  return false;
}

Graph *model_load(Session *session) {
  bool may_be_library = V_LIBRARY & 1u << session->options.verb && !session->text;
  bool is_library = may_be_library && is_elf_file(session->arena, session->options.files.items[0]);
  ModelText *text = ARENA_NEW(session->arena, ModelText);
  if (!(is_library ? read_library(session, text) : read_file(session, text))) return NULL;
  session->model = text;
  return elaborate(session->arena, &session->names, &session->diag, text->program, &text->options);
}
