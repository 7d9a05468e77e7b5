/* In: argc and argv. Out: the verb, its files, and the checked values of its options. See cli_options.h.
 *
 * The tables of verbs, options and stages come first, then what reads a command line by them: the verb, each value by
 * the kind of its option, and the whole with popt; at the end the functions that read values of valid options, which
 * cannot fail. */
#include "cli/cli_options.h"

#include <popt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const StageInfo stage_table[N_STAGES] = {
#define STAGE(name, part, form, line) {name, PART_##part, FORM_##form, line},
#include "cli/stages.def"
};

/* The rule of --stage, behind its first character. */
static const char stage_names[] =
#define STAGE(name, part, form, line) "|" name
#include "cli/stages.def"
    ;

const OptionInfo option_table[N_OPTIONS] = {
#define OPTION(Enum, letter, name, kind, argument, rule, verbs, help) \
  [OPTION_##Enum] = {letter, name, KIND_##kind, argument, rule, verbs, help},
#include "cli/options.def"
};

const VerbInfo verb_table[N_VERBS] = {
#define VERB(Enum, name, arguments, least, most, takes, output, line, details) \
  [VERB_##Enum] = {#name, arguments, least, most, TAKES_##takes, OUTPUT_##output, line, details},
#include "cli/verbs.def"
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

const char *option_usage(Arena *arena, Option option) {
  const OptionInfo *info = &option_table[option];
  const bool has_letter = info->letter && info->letter != '-';
  const char *argument = info->kind == KIND_CHOICE ? info->rule : info->argument;
  StrBuf text = strbuf_new(arena);
  if (has_letter) strbuf_printf(&text, "-%c%s", info->letter, info->name ? ", " : "");
  if (info->name) strbuf_add(&text, option_spelling(arena, option));
  if (*argument) strbuf_printf(&text, "%s%s", !has_letter ? "=" : info->name ? " " : "", argument);
  return text.text;
}

void option_error(Diag *diag, Option option, const char *format, ...) {
  va_list args;
  va_start(args, format);
  diag_error_at(diag, NULL, DIAG_USAGE, "%s: %s", option_spelling(diag->arena, option),
                arena_vprintf(diag->arena, format, args));
  va_end(args);
}

// ---- the verb ----

const char *verb_nearest(const char *name) {
  const char *names[N_VERBS];
  size_t n = 0;
  for (int i = 0; i < N_VERBS; i++)
    if (verb_is_listed(i)) names[n++] = verb_table[i].name;
  return diag_nearest(name, names, n);
}

/* Suggests the nearest verb, or lists all if none is near. */
static void unknown_verb(Arena *arena, Diag *diag, const char *name) {
  StrBuf list = strbuf_new(arena);
  for (int i = 0; i < N_VERBS; i++)
    if (verb_is_listed(i)) strbuf_printf(&list, "%s%s", list.length ? " " : "", verb_table[i].name);
  const char *nearest = verb_nearest(name);
  if (nearest)
    diag_error_at(diag, NULL, DIAG_USAGE, "unknown command '%s', did you mean '%s'?", name, nearest);
  else
    diag_error_at(diag, NULL, DIAG_USAGE, "unknown command '%s'; there are: %s", name, list.text);
}

/* --help and --version may stand in place of a verb. */
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

// ---- one value ----

/* strtoull would take signs, spaces and other bases. A count consists of digits and nothing else, and it fits into 64
 * bits. */
static bool read_count(const char *text, uint64_t *count) {
  *count = 0;
  for (const char *c = text; *c; c++) {
    if (*c < '0' || *c > '9') return false;
    if (__builtin_mul_overflow(*count, (uint64_t)10, count)) return false;
    if (__builtin_add_overflow(*count, (uint64_t)(*c - '0'), count)) return false;
  }
  return *text != '\0';
}

static bool check_count(Diag *diag, Option option, const char *text) {
  const char *rule = option_table[option].rule, *dots = strstr(rule, "..");
  uint64_t count, least = strtoull(rule, NULL, 10), most = strtoull(dots + 2, NULL, 10);
  if (read_count(text, &count) && count >= least && count <= most) return true;
  option_error(diag, option, "\"%s\" is not a whole number from %llu to %llu", text, (unsigned long long)least,
               (unsigned long long)most);
  return false;
}

/* strtod would take "nan", "inf" and hexadecimal numbers. */
static bool check_number(Diag *diag, Option option, const char *text) {
  char *end;
  double number = strtod(text, &end);
  bool is_plain = *text && strspn(text, "0123456789.eE+-") == strlen(text);
  if (is_plain && !*end && number >= 0 && number < 1e300) return true;
  option_error(diag, option, "\"%s\" is not a number that is 0 or greater", text);
  return false;
}

/* The rule of a CHOICE is its words with bars between them; an error lists them and suggests the nearest. */
static bool check_choice(Diag *diag, Option option, const char *text) {
  const char *rule = option_table[option].rule, *words[16];
  size_t n = 0;
  for (const char *word = rule; n < 16; word++) {
    size_t length = strcspn(word, "|");
    words[n] = arena_strndup(diag->arena, word, length);
    if (strcmp(words[n++], text) == 0) return true;
    word += length;
    if (!*word) break;
  }
  const char *nearest = diag_nearest(text, words, n);
  StrBuf list = strbuf_new(diag->arena);
  for (size_t i = 0; i < n; i++) strbuf_printf(&list, "%s%s", i == 0 ? "" : i + 1 == n ? " or " : ", ", words[i]);
  option_error(diag, option, "\"%s\" is not one of its values: %s%s%s%s", text, list.text,
               nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
  return false;
}

/* Whether a text is a value that the option may have. False after an error. */
static bool check_value(Diag *diag, Option option, const char *text) {
  switch (option_table[option].kind) {
    case KIND_COUNT: return check_count(diag, option, text);
    case KIND_NUMBER: return check_number(diag, option, text);
    case KIND_CHOICE: return check_choice(diag, option, text);
    case KIND_ONCE:
    case KIND_MANY:
      if (*text) return true;
      option_error(diag, option, "its argument is empty");
      return false;
    default: return true;
  }
}

// ---- the command line ----

/* All options are in the table, so that one that belongs to another verb gets a message that says so. Those of the
 * verb come first: popt takes the first row of a name, and several rows may share one (--format). */
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

/* Some words have a second name, which is accepted but not listed: this gives the listed one. */
static const char *listed_name(Option option, const char *text) {
  static const char *const stage_aliases[][2] = {
#define STAGE(name, part, form, line)
#define STAGE_ALIAS(other, name) {other, name},
#include "cli/stages.def"
  };
  for (size_t i = 0; option == OPTION_STAGE && i < sizeof stage_aliases / sizeof *stage_aliases; i++)
    if (strcmp(text, stage_aliases[i][0]) == 0) return stage_aliases[i][1];
  return text;
}

/* A value that is given twice is refused rather than overridden: in a long command line the first one is easily
 * overlooked. */
static void take_option(Arena *arena, Diag *diag, Options *options, Option option, const char *text) {
  const OptionInfo *info = &option_table[option];
  OptionValues *values = &options->values[option];
  if (!(info->verbs & 1u << options->verb))
    option_error(diag, option, "`tfmc %s` has no such option", verb_table[options->verb].name);
  else if (values->texts.n && info->kind != KIND_MANY)
    option_error(diag, option, "given twice");
  else if (info->kind == KIND_FLAG || check_value(diag, option, text))
    vec_push(arena, &values->texts, arena_strdup(arena, text));
}

/* Only options of this verb are suggested; the text after "=" is not part of the name. */
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

/* popt stops at the first error; what follows cannot be understood reliably. */
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

/* Texts are copied into the arena: popt allocates them with malloc. */
bool options_parse(Arena *arena, Diag *diag, int argc, char **argv, Options *options) {
  *options = (Options){.verb = VERB_HELP};
  if (argc < 2) {
    diag_error_at(diag, NULL, DIAG_USAGE, "no command is given");
    return false;
  }
  if (!read_verb(arena, diag, argv[1], options)) return false;
  struct poptOption table[N_OPTIONS + 1];
  fill_popt_table(table, options->verb);
  /* popt takes the verb for the name of the program and skips it. */
  poptContext context = poptGetContext("tfmc", argc - 1, (const char **)argv + 1, table, 0);
  if (!context) out_of_memory("while reading the command line", 0);
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

// ---- what was given ----

bool option_given(const Options *options, Option option) { return options->values[option].texts.n > 0; }

const char *option_text(const Options *options, Option option, const char *otherwise) {
  const OptionValues *values = &options->values[option];
  return values->texts.n ? values->texts.items[values->texts.n - 1] : otherwise;
}

uint64_t option_count(const Options *options, Option option, uint64_t otherwise) {
  const char *text = option_text(options, option, NULL);
  return text ? strtoull(text, NULL, 10) : otherwise;
}

double option_number(const Options *options, Option option, double otherwise) {
  const char *text = option_text(options, option, NULL);
  return text ? strtod(text, NULL) : otherwise;
}

bool option_is(const Options *options, Option option, const char *otherwise, const char *word) {
  const char *text = option_text(options, option, otherwise);
  return text && strcmp(text, word) == 0;
}
