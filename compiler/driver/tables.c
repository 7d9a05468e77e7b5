/* In: the tables that the compiler is made of. Out: each as a Markdown table, the same bytes each time, for docs/. A
 * test compares the documents with what is printed here. */
#include "driver/tables.h"

#include <ctype.h>
#include <string.h>

#include "driver/options.h"
#include "graph/graph.h"

// ---- rows and cells ----

/* The text of a cell: a bar would end it, and so would a line. */
static void add_cell_text(StrBuf *out, const char *text) {
  for (const char *c = text; *c; c++) {
    if (*c == '|') strbuf_add(out, "\\|");
    else strbuf_add_char(out, *c == '\n' ? ' ' : *c);
  }
}

/* `cells` ends with NULL. The first one is code. */
static void add_row(StrBuf *out, const char *const *cells) {
  strbuf_add(out, "| `");
  add_cell_text(out, cells[0]);
  strbuf_add(out, "` |");
  for (size_t i = 1; cells[i]; i++) {
    strbuf_add(out, *cells[i] ? " " : "");
    add_cell_text(out, cells[i]);
    strbuf_add(out, " |");
  }
  strbuf_add_char(out, '\n');
}

#define ROW(...) add_row(out, (const char *const[]){__VA_ARGS__, NULL})

/* `titles`: what stands above the columns, a bar between each. */
static void begin_table(StrBuf *out, const char *titles) {
  strbuf_printf(out, "| %s |\n|---|", titles);
  for (const char *c = titles; *c; c++)
    if (*c == '|') strbuf_add(out, "---|");
  strbuf_add_char(out, '\n');
}

/* "PROP_CANONICAL | PROP_MASKS", as a table says it in C, as "canonical, masks"; "0" as nothing. */
static const char *words_of_flags(Arena *arena, const char *flags, const char *prefix) {
  StrBuf words = strbuf_new(arena);
  for (const char *c = strcmp(flags, "0") == 0 ? "" : flags; *c;) {
    if (strncmp(c, prefix, strlen(prefix)) == 0) c += strlen(prefix);
    else if (strncmp(c, " | ", 3) == 0) strbuf_add(&words, ", "), c += 3;
    else strbuf_add_char(&words, (char)tolower((unsigned char)*c++));
  }
  return words.text;
}

// ---- the command line ----

static const char *commands_of(Arena *arena, unsigned verbs) {
  StrBuf list = strbuf_new(arena);
  bool all = true;
  for (int verb = 0; verb < N_VERBS; verb++) {
    if (!verb_is_listed(verb)) continue;
    if (verbs & 1u << verb) strbuf_printf(&list, "%s%s", list.length ? ", " : "", verb_table[verb].name);
    else all = false;
  }
  return all ? "all" : list.text;
}

void table_of_options(StrBuf *out) {
  begin_table(out, "option | meaning | commands");
  for (int i = 0; i < N_OPTIONS; i++) {
    const OptionInfo *info = &option_table[i];
    const char *commands = commands_of(out->arena, info->verbs);
    if (!*commands) continue; /* of commands that are not listed */
    const char *more = info->kind == KIND_MANY ? "; more than once if need be" : "";
    ROW(option_usage(out->arena, (Option)i), arena_printf(out->arena, "%s%s", info->help, more), commands);
  }
}

void table_of_stages(StrBuf *out) {
  begin_table(out, "stage | what is printed");
  for (int i = 0; i < N_STAGES; i++) ROW(stage_table[i].name, stage_table[i].line);
}

void table_of_environment(StrBuf *out) {
  begin_table(out, "variable | meaning");
#define VARIABLE(name, what) ROW(name, what);
#include "driver/environment.def"
}

static const struct {
  const char *name, *kind;
} settings[] = {
#define SETTING(name, kind, member) {name, #kind},
#include "driver/generation_settings.def"
};

static const char *help_of_flag(Arena *arena, const char *name) {
  for (int i = 0; i < N_OPTIONS; i++) {
    if (!option_table[i].name) continue;
    char *flag = arena_strdup(arena, option_table[i].name);
    for (char *c = flag; *c; c++)
      if (*c == '-') *c = '_';
    if (strcmp(flag, name) == 0) return option_table[i].help;
  }
  return "";
}

void table_of_generate_options(StrBuf *out) {
  begin_table(out, "name | type | meaning");
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
    ROW(settings[i].name, settings[i].kind, help_of_flag(out->arena, settings[i].name));
}

void table_of_diagnostics(StrBuf *out) {
  begin_table(out, "code | exit code | what it is about");
#define DIAG(Enum, id, exit_code, line) ROW(id, #exit_code, line);
#include "diag/diag_codes.def"
}

// ---- the compiler ----

static const char *count_of_operands(Arena *arena, const OpInfo *op) {
  if (op->most < 0) return arena_printf(arena, "%d or more", op->least);
  if (op->most != op->least) return arena_printf(arena, "%d to %d", op->least, op->most);
  return arena_printf(arena, "%d", op->least);
}

void table_of_ops(StrBuf *out) {
  static const char *const categories[] = {
      [CATEGORY_SOURCE] = "source",   [CATEGORY_UNARY] = "unary",       [CATEGORY_BINARY] = "binary",
      [CATEGORY_TERNARY] = "ternary", [CATEGORY_VIEW] = "view",         [CATEGORY_REDUCE] = "reduction",
      [CATEGORY_OTHER] = "other",     [CATEGORY_CONTRACT] = "contraction"};
  begin_table(out, "operation | category | operands | meaning");
  for (int i = 0; i < N_OPS; i++) {
    const OpInfo *op = &op_table[i];
    ROW(op->name, categories[op->category], count_of_operands(out->arena, op), op->line);
  }
}

void table_of_primitives(StrBuf *out) {
  begin_table(out, "function | meaning");
#define PRIMITIVE(name, parameters, function, line) ROW(#name "(" parameters ")", line);
#include "elaborate/primitives.def"
}

static const char *properties(StrBuf *out, const char *flags) { return words_of_flags(out->arena, flags, "PROP_"); }

void table_of_passes(StrBuf *out) {
  begin_table(out, "pass | needs | gives | breaks | runs | what it does");
#define PASS(function, name, needs, gives, breaks, least, line) \
  ROW(name, properties(out, #needs), properties(out, #gives), properties(out, #breaks), least ? "-O2" : "always", line);
#include "passes/passes.def"
}
