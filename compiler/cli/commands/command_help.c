/* tfmc help: what the tables of verbs, options, environment variables and diagnostics say, as text.
 *
 * In: a verb, the code of a diagnostic, or nothing. Out: text on stdout. An unknown name is an error that suggests the
 * nearest one. Nothing here is written by hand that a table knows. */
#include "cli/commands/command_help.h"

#include <ctype.h>
#include <string.h>

#include "cli/commands/commands.h"

static const struct {
  const char *name, *line;
} variables[] = {
#define VARIABLE(name, line) {name, line},
#include "cli/environment.def"
};

static const struct {
  const char *code, *line;
} exit_codes[] = {
#define EXIT_CODE(code, line) {code, line},
#include "cli/exit_codes.def"
};

void help_usage(StrBuf *out) {
  strbuf_add(out, "tfmc compiles Transformer models written in .tfm and runs them.\n\n"
                  "usage: tfmc VERB [FILE] [options]\n\n");
  for (int i = 0; i < N_VERBS; i++) {
    const VerbInfo *info = &verb_table[i];
    if (verb_is_listed(i)) strbuf_printf(out, "  %-8s %-20s %s\n", info->name, info->arguments, info->line);
  }
  strbuf_add(out, "\n`tfmc help VERB` lists the options of a command; `tfmc help E0206` explains the message with\n"
                  "that code; `tfmc --version` prints the version.\n\nExit codes:\n");
  for (size_t i = 0; i < sizeof exit_codes / sizeof *exit_codes; i++)
    strbuf_printf(out, "  %-15s %s\n", exit_codes[i].code, exit_codes[i].line);
  strbuf_add(out, "\nEnvironment:\n");
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
    strbuf_printf(out, "  %-15s %s\n", variables[i].name, variables[i].line);
}

// ---- one command ----

enum { HELP_COLUMN = 30 };

/* The help begins in column 30, or on a line of its own after a long spelling. */
static void add_option(StrBuf *out, Option option) {
  const OptionInfo *info = &option_table[option];
  size_t begin = out->length;
  strbuf_printf(out, "  %s", option_usage(out->arena, option));
  if (out->length - begin + 2 > HELP_COLUMN) {
    strbuf_add_char(out, '\n');
    begin = out->length;
  }
  while (out->length - begin < HELP_COLUMN) strbuf_add_char(out, ' ');
  strbuf_add(out, info->help);
  if (info->kind == KIND_MANY) strbuf_add(out, "; may be repeated");
  strbuf_add_char(out, '\n');
}

static void add_stages(StrBuf *out) {
  for (int i = 0; i < N_STAGES; i++) strbuf_printf(out, "  %-14s %s\n", stage_table[i].name, stage_table[i].line);
}

void help_verb(StrBuf *out, Verb verb) {
  const VerbInfo *info = &verb_table[verb];
  strbuf_printf(out, "tfmc %s: %s\n\n", info->name, info->line);
  strbuf_printf(out, "usage: tfmc %s %s [options]\n\n", info->name, info->arguments);
  strbuf_add(out, info->details);
  if (verb == VERB_DUMP) add_stages(out);
  if (*info->details) strbuf_add_char(out, '\n');
  for (int i = 0; i < N_OPTIONS; i++)
    if (option_table[i].verbs & 1u << verb) add_option(out, (Option)i);
}

// ---- one diagnostic ----

static const char *in_case(Arena *arena, const char *text, int (*convert)(int)) {
  char *copy = arena_strdup(arena, text);
  for (char *c = copy; *c; c++) *c = (char)convert((unsigned char)*c);
  return copy;
}

/* "e0206", "W0215": a letter and digits. */
static bool is_code(const char *text) { return isalpha((unsigned char)*text) && isdigit((unsigned char)text[1]); }

/* Text in lines of at most 88 columns, broken at spaces. A word that is longer stays whole. */
static void add_paragraph(StrBuf *out, const char *text) {
  enum { COLUMNS = 88 };
  size_t column = 0;
  for (const char *word = text; *word; word += strspn(word, " ")) {
    size_t length = strcspn(word, " ");
    const char *space = column == 0 ? "" : column + 1 + length > COLUMNS ? "\n" : " ";
    column = *space == ' ' ? column + 1 + length : length;
    strbuf_add(out, space);
    strbuf_add_n(out, word, length);
    word += length;
  }
  strbuf_add_char(out, '\n');
}

/* Lines of an example, each after `margin`. */
static void add_lines(StrBuf *out, const char *margin, const char *text) {
  for (const char *line = text; *line;) {
    size_t length = strcspn(line, "\n");
    strbuf_add(out, margin);
    strbuf_add_n(out, line, length);
    strbuf_add_char(out, '\n');
    line += length + (line[length] == '\n');
  }
}

/* The model and the command of the example are what a test runs, so the example is certain to raise the diagnostic. */
static void help_code(StrBuf *out, const DiagInfo *info) {
  strbuf_printf(out, "%s: %s\n\n", info->id, info->line);
  add_paragraph(out, info->explanation);
  strbuf_add(out, "\nExample:\n");
  if (*info->model) {
    add_lines(out, "  ", info->model);
    strbuf_add_char(out, '\n');
  }
  add_lines(out, "  $ ", info->command);
  strbuf_add(out, "\nWhat to do:\n");
  add_paragraph(out, info->cure);
  if (info->severity == DIAG_WARNING) strbuf_add(out, "\nThis is a warning: the command goes on.\n");
  else strbuf_printf(out, "\nIf this is the first error, the command ends with %d.\n", info->exit_code);
}

static void explain_code(Session *session, StrBuf *out, const char *name) {
  const char *ids[N_DIAG_CODES], *wanted = in_case(session->arena, name, toupper);
  for (int i = 0; i < N_DIAG_CODES; i++) {
    ids[i] = diag_table[i].id;
    if (strcmp(ids[i], wanted) != 0) continue;
    help_code(out, &diag_table[i]);
    return;
  }
  const char *nearest = diag_nearest(wanted, ids, N_DIAG_CODES);
  diag_error_at(&session->diag, NULL, DIAG_USAGE, "no message has the code '%s'%s%s%s", name,
                nearest ? ", did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
}

static void explain_verb(Session *session, StrBuf *out, const char *name) {
  const char *wanted = in_case(session->arena, name, tolower);
  Verb verb = verb_find(wanted);
  if (verb != N_VERBS) {
    help_verb(out, verb);
    return;
  }
  const char *nearest = verb_nearest(wanted);
  const char *advice = nearest ? arena_printf(session->arena, ", did you mean '%s'?", nearest)
                               : "; `tfmc help` lists them";
  diag_error_at(&session->diag, NULL, DIAG_USAGE, "there is no command '%s'%s", name, advice);
}

// ---- the command ----

void command_help(Session *session) {
  StrBuf text = strbuf_new(session->arena);
  const char *name = session->options.files.n ? session->options.files.items[0] : NULL;
  if (!name) help_usage(&text);
  else if (is_code(name)) explain_code(session, &text, name);
  else explain_verb(session, &text, name);
  session_print(&text);
}
