#include "driver/options.h"

#include <popt.h>
#include <stdlib.h>
#include <string.h>

#include "driver/option_values.h"

const StageInfo stage_table[N_STAGES] = {
#define STAGE(name, part, form, line) {name, PART_##part, FORM_##form, line},
#include "driver/stages.def"
};

/* The rule of --stage, behind its first character. */
static const char stage_names[] =
#define STAGE(name, part, form, line) "|" name
#include "driver/stages.def"
    ;

const OptionInfo option_table[N_OPTIONS] = {
#define OPTION(Enum, letter, name, kind, argument, rule, verbs, help) \
  [OPTION_##Enum] = {letter, name, KIND_##kind, argument, rule, verbs, help},
#include "driver/options.def"
};

const VerbInfo verb_table[N_VERBS] = {
#define VERB(Enum, name, arguments, least, most, line, details) \
  [VERB_##Enum] = {#name, arguments, least, most, line, details},
#include "driver/verbs.def"
};

Verb verb_find(const char *name) {
  int verb = 0;
  while (verb < N_VERBS && strcmp(name, verb_table[verb].name) != 0) verb++;
  return (Verb)verb;
}

static bool is_one_dash(Option option) { return option_table[option].letter == '-'; }

const char *option_spelling(Arena *arena, Option option) {
  const OptionInfo *info = &option_table[option];
  if (!info->name) return arena_printf(arena, "-%c", info->letter);
  return arena_printf(arena, "%s%s", is_one_dash(option) ? "-" : "--", info->name);
}

// ---- the verb ----

static void unknown_verb(Arena *arena, Diag *diag, const char *name) {
  const char *names[N_VERBS];
  size_t n = 0;
  StrBuf list = strbuf_new(arena);
  for (int i = 0; i < N_VERBS; i++) {
    if (!verb_is_listed(i)) continue;
    strbuf_printf(&list, "%s%s", n ? " " : "", verb_table[i].name);
    names[n++] = verb_table[i].name;
  }
  const char *nearest = diag_nearest(name, names, n);
  if (nearest)
    diag_error_at(diag, NULL, DIAG_USAGE, "unknown command '%s', did you mean '%s'?", name, nearest);
  else
    diag_error_at(diag, NULL, DIAG_USAGE, "unknown command '%s'; there are: %s", name, list.text);
}

static bool read_verb(Arena *arena, Diag *diag, const char *text, Options *options) {
  options->wants_version = strcmp(text, "--version") == 0;
  if (options->wants_version) return true;
  bool wants_help = strcmp(text, "--help") == 0 || strcmp(text, "-h") == 0;
  options->verb = wants_help ? VERB_HELP : verb_find(text);
  if (options->verb != N_VERBS) return true;
  options->verb = VERB_HELP;
  if (*text == '-')
    diag_error_at(diag, NULL, DIAG_USAGE, "a command must come before '%s'; `tfmc help` lists them", text);
  else
    unknown_verb(arena, diag, text);
  return false;
}

// ---- options ----

/* The options of the verb first: of several rows with one name its own is found. */
static void fill_popt_table(struct poptOption table[N_OPTIONS + 1], Verb verb) {
  int n = 0;
  for (int pass = 0; pass < 2 * N_OPTIONS; pass++) {
    int i = pass % N_OPTIONS;
    const OptionInfo *info = &option_table[i];
    if ((pass < N_OPTIONS) != (info->verbs >> verb & 1)) continue;
    unsigned kind = info->kind == KIND_FLAG ? POPT_ARG_NONE : POPT_ARG_STRING;
    if (is_one_dash((Option)i)) kind |= POPT_ARGFLAG_ONEDASH;
    table[n++] = (struct poptOption){.longName = info->name,
                                     .shortName = is_one_dash((Option)i) ? '\0' : info->letter,
                                     .argInfo = kind,
                                     .val = i + 1};
  }
  table[N_OPTIONS] = (struct poptOption){0};
}

/* The name that is listed, of a word that has several. */
static const char *listed_name(Option option, const char *text) {
  static const char *const stage_aliases[][2] = {
#define STAGE(name, part, form, line)
#define STAGE_ALIAS(other, name) {other, name},
#include "driver/stages.def"
  };
  for (size_t i = 0; option == OPTION_STAGE && i < sizeof stage_aliases / sizeof *stage_aliases; i++)
    if (strcmp(text, stage_aliases[i][0]) == 0) return stage_aliases[i][1];
  return text;
}

static void take_option(Arena *arena, Diag *diag, Options *options, Option option, const char *text) {
  const OptionInfo *info = &option_table[option];
  OptionValues *values = &options->values[option];
  if (!(info->verbs & 1u << options->verb))
    option_error(diag, option, "`tfmc %s` has no such option", verb_table[options->verb].name);
  else if (values->texts.n && info->kind != KIND_MANY)
    option_error(diag, option, "given twice");
  else if (info->kind == KIND_FLAG || option_check(diag, option, text))
    vec_push(arena, &values->texts, arena_strdup(arena, text));
}

static void unknown_option(Diag *diag, const char *text, Verb verb) {
  const char *names[N_OPTIONS];
  size_t n = 0, length = strcspn(text, "=");
  for (int i = 0; i < N_OPTIONS; i++)
    if (option_table[i].verbs & 1u << verb) names[n++] = option_spelling(diag->arena, (Option)i);
  const char *nearest = diag_nearest(arena_strndup(diag->arena, text, length), names, n);
  if (nearest)
    diag_error_at(diag, NULL, DIAG_USAGE, "unknown option %s, did you mean %s?", text, nearest);
  else
    diag_error_at(diag, NULL, DIAG_USAGE, "unknown option %s; `tfmc help %s` lists them", text, verb_table[verb].name);
}

static void bad_option(Diag *diag, poptContext context, int error, Verb verb) {
  const char *text = poptBadOption(context, POPT_BADOPTION_NOALIAS);
  if (error == POPT_ERROR_BADOPT) unknown_option(diag, text, verb);
  else if (error == POPT_ERROR_NOARG) diag_error_at(diag, NULL, DIAG_USAGE, "%s wants an argument", text);
  else diag_error_at(diag, NULL, DIAG_USAGE, "%s: %s", text, poptStrerror(error));
}

static void check_files(Diag *diag, const Options *options) {
  const VerbInfo *verb = &verb_table[options->verb];
  if (options->files.n < verb->least)
    diag_error_at(diag, NULL, DIAG_USAGE, "`tfmc %s` wants %s", verb->name, verb->arguments);
  else if (options->files.n > verb->most)
    diag_error_at(diag, NULL, DIAG_USAGE, "one argument too many: '%s'; `tfmc %s` takes %s",
                  options->files.items[verb->most], verb->name, verb->arguments);
}

bool options_parse(Arena *arena, Diag *diag, int argc, char **argv, Options *options) {
  *options = (Options){.verb = VERB_HELP};
  if (argc < 2) {
    diag_error_at(diag, NULL, DIAG_USAGE, "a command is wanted");
    return false;
  }
  if (!read_verb(arena, diag, argv[1], options)) return false;
  struct poptOption table[N_OPTIONS + 1];
  fill_popt_table(table, options->verb);
  /* The context takes the verb for the program's name and passes over it. */
  poptContext context = poptGetContext("tfmc", argc - 1, (const char **)argv + 1, table, 0);
  if (!context) out_of_memory();
  for (int found; (found = poptGetNextOpt(context)) != -1;) {
    if (found < 0) {
      bad_option(diag, context, found, options->verb);
      break;
    }
    char *text = poptGetOptArg(context);
    take_option(arena, diag, options, (Option)(found - 1), listed_name((Option)(found - 1), text ? text : ""));
    free(text);
  }
  for (const char *file; (file = poptGetArg(context));) vec_push(arena, &options->files, arena_strdup(arena, file));
  poptFreeContext(context);
  if (!diag_has_errors(diag) && !option_given(options, OPTION_HELP)) check_files(diag, options);
  return !diag_has_errors(diag);
}
