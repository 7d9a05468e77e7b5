/* The manual page in the man macros of roff.
 *
 * In: the tables of verbs, options, environment variables and diagnostics. Out: the text of tfmc.1. Refuses nothing. */
#include "cli/documents.h"

#include <string.h>

#include "cli/commands/commands.h"

static bool has_letter(Option option) { return option_table[option].letter && option_table[option].letter != '-'; }

// ---- roff ----

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

// ---- commands ----

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

// ---- options ----

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

void document_man(StrBuf *out) {
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
