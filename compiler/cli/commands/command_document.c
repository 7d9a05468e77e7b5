/* tfmc document: what the installation and the pages in docs/ take from the tables. Not meant for users.
 *
 * In: the tables of verbs, options, environment variables and diagnostics. Out: the manual page in the man macros of
 * roff, scripts that complete the command line in bash, zsh and fish, or a table (tables.c); the same bytes each time,
 * without a date, so that builds can be reproduced and documents compared. */
#include <string.h>

#include "cli/commands/commands.h"
#include "cli/tables.h"
#include "target/target.h"

static bool has_letter(Option option) { return option_table[option].letter && option_table[option].letter != '-'; }

// ---- the manual page: roff ----

/* Escapes text for roff: hyphens stay hyphens, no line is taken for a request, and what stands between two ` is bold.
 * A line may be broken after a |, since lists of choices can be longer than one. */
static void add_text(StrBuf *out, const char *text) {
  bool begins_line = true, is_bold = false;
  for (const char *c = text; *c; c++) {
    if (begins_line && (*c == '.' || *c == '\'')) strbuf_add(out, "\\&");
    begins_line = *c == '\n';
    if (*c == '-') strbuf_add(out, "\\-");
    else if (*c == '\\') strbuf_add(out, "\\e");
    else if (*c == '|') strbuf_add(out, "|\\:");
    else if (*c == '`') strbuf_add(out, (is_bold = !is_bold) ? "\\fB" : "\\fR");
    else strbuf_add_char(out, *c);
  }
}

static void add_line(StrBuf *out, const char *macro, const char *text) {
  strbuf_add(out, macro);
  add_text(out, text);
  strbuf_add_char(out, '\n');
}

// ---- the manual page: commands ----

static void add_stages(StrBuf *out) {
  for (int i = 0; i < N_STAGES; i++) {
    add_line(out, ".TP\n.B ", stage_table[i].name);
    add_line(out, "", stage_table[i].line);
  }
}

/* The line of a verb begins with a small letter in lists; here it is a sentence. */
static void add_man_verb(StrBuf *out, int verb) {
  const VerbInfo *info = &verb_table[verb];
  strbuf_printf(out, ".SS tfmc %s\n", info->name);
  strbuf_printf(out, ".B tfmc %s\n", info->name);
  strbuf_add(out, "\\fI");
  add_text(out, info->arguments);
  strbuf_add(out, "\\fR [options]\n.PP\n");
  StrBuf line = strbuf_new(out->arena);
  strbuf_printf(&line, "%c%s.", *info->line - 'a' + 'A', info->line + 1);
  add_line(out, "", line.text);
  if (*info->details) add_text(out, info->details);
  if (verb == VERB_DUMP) add_stages(out);
}

// ---- the manual page: options ----

static void add_spelling(StrBuf *out, Option option) {
  const OptionInfo *info = &option_table[option];
  const char *argument = info->kind == KIND_CHOICE ? info->rule : info->argument;
  StrBuf names = strbuf_new(out->arena);
  if (has_letter(option)) strbuf_printf(&names, "-%c%s", info->letter, info->name ? ", " : "");
  if (info->name) strbuf_add(&names, option_spelling(out->arena, option));
  strbuf_add(out, "\\fB");
  add_text(out, names.text);
  strbuf_add(out, "\\fR");
  if (*argument) {
    strbuf_add(out, has_letter(option) ? " \\fI" : "=\\fI");
    add_text(out, argument);
    strbuf_add(out, "\\fR");
  }
  strbuf_add_char(out, '\n');
}

/* An option that every listed command takes needs no list. */
static void add_verbs_of(StrBuf *out, Option option) {
  unsigned listed = 0, verbs = option_table[option].verbs;
  for (int verb = 0; verb < N_VERBS; verb++) listed |= verb_is_listed(verb) ? 1u << verb : 0;
  if ((verbs & listed) == listed) return;
  const char *separator = "\nCommands: ";
  for (int verb = 0; verb < N_VERBS; verb++) {
    if (!(verbs & listed & 1u << verb)) continue;
    strbuf_printf(out, "%s%s", separator, verb_table[verb].name);
    separator = ", ";
  }
  strbuf_add_char(out, '.');
}

static void add_man_option(StrBuf *out, Option option) {
  const OptionInfo *info = &option_table[option];
  strbuf_add(out, ".TP\n");
  add_spelling(out, option);
  StrBuf line = strbuf_new(out->arena);
  bool is_letter = *info->help >= 'a' && *info->help <= 'z';
  strbuf_printf(&line, "%c%s.", is_letter ? *info->help - 'a' + 'A' : *info->help, info->help + 1);
  add_text(out, line.text);
  if (info->kind == KIND_MANY) strbuf_add(out, "\nMay be repeated.");
  add_verbs_of(out, option);
  strbuf_add_char(out, '\n');
}

// ---- the manual page ----

/* A section of short terms, each with what it means. */
typedef struct Term {
  const char *term, *meaning;
} Term;

static const Term exit_codes[] = {
#define EXIT_CODE(code, meaning) {code, meaning},
#include "cli/exit_codes.def"
};
static const Term variables[] = {
#define VARIABLE(name, meaning) {name, meaning},
#include "cli/environment.def"
};

static void add_terms(StrBuf *out, const char *title, const Term *terms, size_t n) {
  strbuf_printf(out, ".SH %s\n", title);
  for (size_t i = 0; i < n; i++) {
    strbuf_printf(out, ".TP\n.B %s\n", terms[i].term);
    add_line(out, "", terms[i].meaning);
  }
}

static void add_diagnostics(StrBuf *out) {
  strbuf_add(out, ".SH DIAGNOSTICS\n");
  add_text(out, "`tfmc help CODE` shows an example of each and says more.\n");
  for (int i = 0; i < N_DIAG_CODES; i++) {
    strbuf_printf(out, ".TP\n.B %s\n", diag_table[i].id);
    add_line(out, "", diag_table[i].line);
  }
}

static void document_man(StrBuf *out) {
  strbuf_add(out, ".TH TFMC 1 \"\" \"tfmc " TFM_VERSION "\" \"User Commands\"\n.ad l\n.SH NAME\n"
                  "tfmc \\- compile and run Transformer models\n"
                  ".SH SYNOPSIS\n.B tfmc\n.I VERB\n[\\fIFILE\\fR] [options]\n"
                  ".br\n.B tfmc help\n[\\fIVERB|CODE\\fR]\n.SH DESCRIPTION\n"
                  "tfmc compiles Transformer models written in .tfm, a language of layers, to native code, and runs "
                  "them.\n"
                  ".SH COMMANDS\n");
  for (int i = 0; i < N_VERBS; i++)
    if (verb_is_listed(i)) add_man_verb(out, i);
  strbuf_add(out, ".SH OPTIONS\n");
  for (int i = 0; i < N_OPTIONS; i++) add_man_option(out, (Option)i);
  add_diagnostics(out);
  add_terms(out, "EXIT STATUS", exit_codes, sizeof exit_codes / sizeof *exit_codes);
  add_terms(out, "ENVIRONMENT", variables, sizeof variables / sizeof *variables);
  strbuf_add(out, ".SH EXAMPLES\n.EX\ntfmc check model.tfm \\-\\-weights w.safetensors\n"
                  "tfmc run model.tfm \\-\\-weights w.safetensors \\-\\-inputs in.safetensors\n"
                  "tfmc compile model.tfm \\-\\-weights w.safetensors \\-o libmodel.so\n.EE\n");
}

// ---- completion ----

/* The words that an option takes, separated by spaces: those of a CHOICE, or the instruction sets; "" if the value is
 * free. */
static const char *option_words(Arena *arena, Option option) {
  StrBuf words = strbuf_new(arena);
  if (option == OPTION_MARCH) {
    strbuf_add(&words, "native");
    for (const TargetInfo *target = targets; target->name; target++) strbuf_printf(&words, " %s", target->name);
  } else if (option_table[option].kind == KIND_CHOICE) {
    for (const char *c = option_table[option].rule; *c; c++) strbuf_add_char(&words, *c == '|' ? ' ' : *c);
  }
  return words.text;
}

/* Whether the shell should complete file names. */
static bool option_names_file(Option option) {
  const char *argument = option_table[option].argument;
  return strncmp(argument, "FILE", 4) == 0 || strncmp(argument, "FOLDER", 6) == 0;
}

static void add_verbs(StrBuf *out) {
  const char *separator = "";
  for (int i = 0; i < N_VERBS; i++) {
    if (!verb_is_listed(i)) continue;
    strbuf_printf(out, "%s%s", separator, verb_table[i].name);
    separator = " ";
  }
}

// ---- completion in bash ----

static void add_bash_words(StrBuf *out) {
  for (int i = 0; i < N_OPTIONS; i++) {
    const char *words = option_words(out->arena, (Option)i);
    if (!*words) continue;
    strbuf_add(out, "    ");
    if (has_letter((Option)i)) strbuf_printf(out, "-%c%s", option_table[i].letter, option_table[i].name ? "|" : "");
    if (option_table[i].name) strbuf_add(out, option_spelling(out->arena, (Option)i));
    strbuf_printf(out, ") COMPREPLY=($(compgen -W \"%s\" -- \"$word\")); return ;;\n", words);
  }
}

static void add_bash_options(StrBuf *out) {
  for (int verb = 0; verb < N_VERBS; verb++) {
    if (!verb_is_listed(verb)) continue;
    strbuf_printf(out, "    %s) options=\"", verb_table[verb].name);
    for (int i = 0; i < N_OPTIONS; i++) {
      if (!(option_table[i].verbs & 1u << verb)) continue;
      if (has_letter((Option)i)) strbuf_printf(out, "-%c ", option_table[i].letter);
      if (option_table[i].name) strbuf_printf(out, "%s ", option_spelling(out->arena, (Option)i));
    }
    out->text[--out->length] = '\0'; /* the last space; every verb has options */
    strbuf_add(out, "\" ;;\n");
  }
}

/* bash splits --option=word at "=" into three words, so the option stands two words back. */
static void document_bash(StrBuf *out) {
  strbuf_add(out, "# Completion of tfmc for bash; made by tfmc " TFM_VERSION " from its tables.\n"
                  "_tfmc() {\n"
                  "  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]}\n"
                  "  local options=\n"
                  "  COMPREPLY=()\n"
                  "  # --option=word comes as three words\n"
                  "  if [ \"$word\" = \"=\" ]; then word=\n"
                  "  elif [ \"$previous\" = \"=\" ]; then previous=${COMP_WORDS[COMP_CWORD-2]}\n"
                  "  fi\n"
                  "  if [ \"$COMP_CWORD\" = 1 ] || [ \"$verb\" = help ]; then\n"
                  "    COMPREPLY=($(compgen -W \"");
  add_verbs(out);
  strbuf_add(out, "\" -- \"$word\"))\n    return\n  fi\n  case $previous in\n");
  add_bash_words(out);
  strbuf_add(out, "  esac\n"
                  "  case $word in\n"
                  "    -*) ;;\n"
                  "    *) COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n"
                  "  esac\n"
                  "  case $verb in\n");
  add_bash_options(out);
  strbuf_add(out, "  esac\n"
                  "  COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n"
                  "}\n"
                  "complete -o filenames -F _tfmc tfmc\n");
}

// ---- completion in zsh ----

/* Text within single quotes and brackets of an _arguments specification of zsh: both levels have special characters. */
static void add_quoted(StrBuf *out, const char *text) {
  for (const char *c = text; *c; c++) {
    if (*c == '\'') {
      strbuf_add(out, "'\\''");
      continue;
    }
    if (*c == '[' || *c == ']' || *c == ':' || *c == '\\') strbuf_add_char(out, '\\');
    strbuf_add_char(out, *c);
  }
}

/* "*" before an option lets it be completed again. `joint`: what stands between the option and its value, "=" or
 * "+". */
static void add_zsh_option(StrBuf *out, Option option, const char *spelling, const char *joint) {
  const OptionInfo *info = &option_table[option];
  bool takes = info->kind != KIND_FLAG;
  strbuf_printf(out, "        '%s%s%s[", info->kind == KIND_MANY ? "*" : "", spelling, takes ? joint : "");
  add_quoted(out, info->help);
  strbuf_add_char(out, ']');
  if (takes) {
    const char *words = option_words(out->arena, option);
    strbuf_add_char(out, ':');
    add_quoted(out, *info->argument ? info->argument : "word");
    strbuf_add_char(out, ':');
    if (*words) strbuf_printf(out, "(%s)", words);
    else if (option_names_file(option)) strbuf_add(out, "_files");
  }
  strbuf_add(out, "' \\\n");
}

static void add_zsh_verb(StrBuf *out, int verb) {
  strbuf_printf(out, "    %s)\n      _arguments \\\n", verb_table[verb].name);
  for (int i = 0; i < N_OPTIONS; i++) {
    if (!(option_table[i].verbs & 1u << verb)) continue;
    char letter[] = {'-', option_table[i].letter, '\0'};
    if (has_letter((Option)i)) add_zsh_option(out, (Option)i, letter, "+");
    if (option_table[i].name) add_zsh_option(out, (Option)i, option_spelling(out->arena, (Option)i), "=");
  }
  strbuf_add(out, "        '*:file:_files'\n      ;;\n");
}

static void document_zsh(StrBuf *out) {
  strbuf_add(out, "#compdef tfmc\n# Completion of tfmc for zsh; made by tfmc " TFM_VERSION " from its tables.\n"
                  "_tfmc() {\n  local -a verbs\n  verbs=(\n");
  for (int i = 0; i < N_VERBS; i++) {
    if (!verb_is_listed(i)) continue;
    strbuf_printf(out, "    '%s:", verb_table[i].name);
    add_quoted(out, verb_table[i].line);
    strbuf_add(out, "'\n");
  }
  strbuf_add(out, "  )\n"
                  "  if (( CURRENT == 2 )); then\n"
                  "    _describe command verbs\n"
                  "    return\n"
                  "  fi\n"
                  "  local verb=$words[2]\n"
                  "  shift words\n"
                  "  (( CURRENT-- ))\n"
                  "  case $verb in\n");
  for (int i = 0; i < N_VERBS; i++)
    if (verb_is_listed(i)) add_zsh_verb(out, i);
  strbuf_add(out, "  esac\n}\n_tfmc \"$@\"\n");
}

// ---- completion in fish ----

/* Text between single quotes. */
static void add_fish_text(StrBuf *out, const char *text) {
  strbuf_add_char(out, '\'');
  for (const char *c = text; *c; c++) {
    if (*c == '\'' || *c == '\\') strbuf_add_char(out, '\\');
    strbuf_add_char(out, *c);
  }
  strbuf_add_char(out, '\'');
}

static void add_fish_option(StrBuf *out, Option option) {
  const OptionInfo *info = &option_table[option];
  const char *words = option_words(out->arena, option);
  strbuf_add(out, "complete -c tfmc -n '__fish_seen_subcommand_from");
  for (int verb = 0; verb < N_VERBS; verb++)
    if (verb_is_listed(verb) && info->verbs & 1u << verb) strbuf_printf(out, " %s", verb_table[verb].name);
  strbuf_add_char(out, '\'');
  if (has_letter(option)) strbuf_printf(out, " -s %c", info->letter);
  if (info->name) strbuf_printf(out, " -%c %s", info->letter == '-' ? 'o' : 'l', info->name);
  if (info->kind != KIND_FLAG) strbuf_add(out, option_names_file(option) ? " -r -F" : " -x");
  if (*words) strbuf_printf(out, " -a '%s'", words);
  strbuf_add(out, " -d ");
  add_fish_text(out, info->help);
  strbuf_add_char(out, '\n');
}

static void document_fish(StrBuf *out) {
  strbuf_add(out, "# Completion of tfmc for fish; made by tfmc " TFM_VERSION " from its tables.\n");
  for (int i = 0; i < N_VERBS; i++) {
    if (!verb_is_listed(i)) continue;
    strbuf_printf(out, "complete -c tfmc -n __fish_use_subcommand -f -a %s -d ", verb_table[i].name);
    add_fish_text(out, verb_table[i].line);
    strbuf_add_char(out, '\n');
  }
  strbuf_add(out, "complete -c tfmc -n '__fish_seen_subcommand_from help' -f -a '");
  add_verbs(out);
  strbuf_add(out, "'\n");
  for (int i = 0; i < N_OPTIONS; i++) add_fish_option(out, (Option)i);
}

// ---- the command ----

static const struct {
  const char *name;
  void (*write)(StrBuf *);
} documents[] = {
    {"man", document_man},
    {"bash", document_bash},
    {"zsh", document_zsh},
    {"fish", document_fish},
    {"options", table_of_options},
    {"commands", table_of_commands},
    {"exit-codes", table_of_exit_codes},
    {"stages", table_of_stages},
    {"environment", table_of_environment},
    {"generate-options", table_of_generate_options},
    {"diagnostics", table_of_diagnostics},
    {"primitives", table_of_primitives},
    {"torch-names", table_of_torch_names},
    {"ops", table_of_ops},
    {"passes", table_of_passes},
    {"fusions", table_of_fusions},
    {"kernels", table_of_kernels},
    {"targets", table_of_targets},
};

void command_document(Session *session) {
  const char *name = session->options.files.items[0];
  StrBuf text = strbuf_new(session->arena), names = strbuf_new(session->arena);
  for (size_t i = 0; i < sizeof documents / sizeof *documents; i++) {
    strbuf_printf(&names, "%s%s", i ? ", " : "", documents[i].name);
    if (strcmp(documents[i].name, name) == 0) documents[i].write(&text);
  }
  if (!text.length)
    diag_error_at(&session->diag, NULL, DIAG_USAGE, "there is no document '%s'; there are %s", name, names.text);
  session_print(&text);
}
