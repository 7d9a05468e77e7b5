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

#include "cli/commands/commands.h"
#include "cli/commands/explored_model.h"
#include "cli/commands/explored_runs.h"
#include "explore/explore.h"

extern char **environ;

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

/* The data, with times if they are wanted; NULL after an error. */
static json_t *measured(Session *session, json_t *data) {
  if (!data || !option_given(&session->options, OPTION_MEASURE) || explored_runs_add(session, data)) return data;
  json_decref(data);
  return NULL;
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
    data = measured(&other, explored_model(&other, true, NULL));
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
  json_t *data = measured(session, explored_model(session, false, NULL));
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
