/* Scripts that complete the command line in bash, zsh and fish.
 *
 * In: the tables of verbs and options. Out: the text of a script. Refuses nothing. */
#include "cli/documents.h"

#include <string.h>

#include "cli/commands/commands.h"
#include "target/target.h"

static bool has_letter(Option option) { return option_table[option].letter && option_table[option].letter != '-'; }

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

// ---- bash ----

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
void document_bash(StrBuf *out) {
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

// ---- zsh ----

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

void document_zsh(StrBuf *out) {
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

// ---- fish ----

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

void document_fish(StrBuf *out) {
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
