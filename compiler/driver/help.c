#include "driver/help.h"

#include <string.h>

static const struct {
  const char *name, *line;
} variables[] = {
#define VARIABLE(name, line) {name, line},
#include "driver/environment.def"
};

void help_usage(StrBuf *out) {
  strbuf_add(out, "tfmc compiles Transformer models written in .tfm and runs them.\n\nusage: tfmc VERB [FILE] [options]\n\n");
  for (int i = 0; i < N_VERBS; i++)
    if (verb_is_listed(i)) strbuf_printf(out, "  %-8s %-20s %s\n", verb_table[i].name, verb_table[i].arguments, verb_table[i].line);
  strbuf_add(out, "\n`tfmc help VERB` lists the options of a command; `tfmc --version` says which version this is.\n"
                  "Ends with 0: done; 1: the model, weights or inputs are wrong; 2: the command line is; 3: files, tools,\n"
                  "CPU; 4: memory; 5: verify found a difference; 70: a fault of tfmc.\n");
  strbuf_add(out, "\nEnvironment:\n");
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
    strbuf_printf(out, "  %-15s %s\n", variables[i].name, variables[i].line);
}

enum { HELP_COLUMN = 30 };

static void add_option(StrBuf *out, Option option) {
  const OptionInfo *info = &option_table[option];
  size_t begin = out->length;
  strbuf_add(out, "  ");
  if (info->letter && info->letter != '-') strbuf_printf(out, "-%c%s", info->letter, info->name ? ", " : "");
  if (info->name) strbuf_printf(out, "%s%s", info->letter == '-' ? "-" : "--", info->name);
  const char *argument = info->kind == KIND_CHOICE ? info->rule : info->argument;
  if (*argument) strbuf_printf(out, "%s%s", info->letter && info->letter != '-' ? (info->name ? " " : "") : "=", argument);
  if (out->length - begin + 2 > HELP_COLUMN) {
    strbuf_add_char(out, '\n');
    begin = out->length;
  }
  while (out->length - begin < HELP_COLUMN) strbuf_add_char(out, ' ');
  strbuf_add(out, info->help);
  if (info->kind == KIND_MANY) strbuf_add(out, "; more than once if need be");
  strbuf_add_char(out, '\n');
}

static void add_stages(StrBuf *out) {
  for (int i = 0; i < N_STAGES; i++) strbuf_printf(out, "  %-14s %s\n", stage_table[i].name, stage_table[i].line);
}

void help_verb(StrBuf *out, Verb verb) {
  const VerbInfo *info = &verb_table[verb];
  strbuf_printf(out, "tfmc %s: %s\n\nusage: tfmc %s %s [options]\n\n", info->name, info->line, info->name, info->arguments);
  strbuf_add(out, info->details);
  if (verb == VERB_DUMP) add_stages(out);
  if (*info->details) strbuf_add_char(out, '\n');
  for (int i = 0; i < N_OPTIONS; i++)
    if (option_table[i].verbs & 1u << verb) add_option(out, (Option)i);
}
