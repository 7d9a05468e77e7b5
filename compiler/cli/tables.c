/* In: the tables that the compiler is made of. Out: each as a Markdown table, the same bytes each time, for docs/. A
 * test compares the documents with what is printed here. */
#include "cli/tables.h"

#include <ctype.h>
#include <string.h>

#include "cli/cli_options.h"
#include "graph/graph.h"
#include "passes/passes.h"
#include "plan/kernel_spec.h"
#include "target/target.h"

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

void table_of_commands(StrBuf *out) {
  begin_table(out, "command | what it does");
  for (int verb = 0; verb < N_VERBS; verb++) {
    const VerbInfo *info = &verb_table[verb];
    if (verb_is_listed(verb)) ROW(arena_printf(out->arena, "tfmc %s %s", info->name, info->arguments), info->line);
  }
}

void table_of_exit_codes(StrBuf *out) {
  begin_table(out, "exit code | meaning");
#define EXIT_CODE(code, meaning) ROW(code, meaning);
#include "cli/exit_codes.def"
}

void table_of_options(StrBuf *out) {
  begin_table(out, "option | meaning | commands");
  for (int i = 0; i < N_OPTIONS; i++) {
    const OptionInfo *info = &option_table[i];
    const char *commands = commands_of(out->arena, info->verbs);
    if (!*commands) continue; /* of commands that are not listed */
    const char *more = info->kind == KIND_MANY ? "; may be repeated" : "";
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
#include "cli/environment.def"
}

static const struct {
  const char *name, *member, *kind, *initial, *range, *accepted, *help;
} settings[] = {
#define BETWEEN(least, most) #least " to " #most
#define FROM(least) #least " or greater"
#define ABOVE(least) "greater than " #least
#define ABOVE_TO(least, most) "greater than " #least ", " #most " at most"
#define ANY ""
#define GENERATE_OPTION(name, member, kind, initial, range, accepted, needs, flag, argument, help, comment) \
  {#name, #member, #kind, #initial, range, #accepted, help},
#define GENERATE_ALIAS(name, member, kind, accepted) {#name, #member, #kind, "", "", "ALIAS_" #accepted, ""},
#include "tfm/abi/generate_options.def"
};

/* Where an option can be set: the block, a config, the command line, the C struct. */
static const char *where_accepted(const char *accepted) {
  static const char *const rows[][2] = {{"ALL", "block, config, flag, C"}, {"NOT_BLOCK", "config, flag, C"},
                                        {"NO_FLAG", "block, config, C"},   {"CONFIG", "config, C"},
                                        {"C", "C"},                        {"ALIAS_ALL", "block, config"},
                                        {"ALIAS_CONFIG", "config"}};
  size_t i = 0;
  while (strcmp(rows[i][0], accepted) != 0) i++;
  return rows[i][1];
}

static const char *shown_default(const char *kind, const char *initial) {
  bool is_list = strcmp(kind, "tokens") == 0, is_token = strcmp(kind, "token") == 0 || strcmp(kind, "start") == 0;
  if (is_list || is_token || strcmp(initial, "-1") == 0) return "";
  return strcmp(kind, "early") == 0 ? "false" : initial;
}

static bool is_alias(size_t setting) { return strncmp(settings[setting].accepted, "ALIAS", 5) == 0; }

/* An alias is another name of the option with the same member. The start token is no member of the struct; the rows
 * that set it all name struct_size, so they find one another too. */
static const char *help_of_alias(Arena *arena, size_t alias) {
  size_t i = 0;
  while (is_alias(i) || strcmp(settings[i].member, settings[alias].member) != 0) i++;
  return arena_printf(arena, "the same as `%s`", settings[i].name);
}

void table_of_generate_options(StrBuf *out) {
  begin_table(out, "name | type | default | range | where | meaning");
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
    const char *kind = settings[i].kind, *help = settings[i].help;
    const bool is_start = strcmp(kind, "start") == 0 || strcmp(kind, "fallback") == 0;
    const bool is_early = strcmp(kind, "early") == 0;
    if (is_alias(i)) help = help_of_alias(out->arena, i);
    ROW(settings[i].name, is_start ? "token" : kind, shown_default(kind, settings[i].initial),
        is_early ? "false, true or never" : settings[i].range, where_accepted(settings[i].accepted), help);
  }
}

void table_of_diagnostics(StrBuf *out) {
  begin_table(out, "code | exit code | what it is about | what to do");
  for (int i = 0; i < N_DIAG_CODES; i++) {
    const DiagInfo *info = &diag_table[i];
    const char *exit_code = arena_printf(out->arena, "%d", info->exit_code);
    ROW(info->id, info->severity == DIAG_WARNING ? "warning" : exit_code, info->line, info->cure);
  }
}

// ---- the compiler ----

/* "2 f32 or i32", "1 to 3 f32"; the type is that of the first operand, or of all if the operation is pointwise. */
static const char *operands_of(Arena *arena, const OpInfo *op) {
  static const char *const types[] = {[TYPES_F32] = "f32",   [TYPES_I32] = "i32",
                                      [TYPES_BOOL] = "bool", [TYPES_NUMBER] = "f32 or i32",
                                      [TYPES_ANY] = "of any type"};
  if (op->most == 0) return "";
  if (op->most < 0) return arena_printf(arena, "%d or more %s", op->least, types[op->takes]);
  if (op->most != op->least) return arena_printf(arena, "%d to %d %s", op->least, op->most, types[op->takes]);
  return arena_printf(arena, "%d %s", op->least, types[op->takes]);
}

static const char *attributes_of(Arena *arena, OpKind op) {
  StrBuf list = strbuf_new(arena);
  for (Attribute i = 0; i < N_ATTRIBUTES; i++)
    if (op_has_attribute(op, i)) strbuf_printf(&list, "%s%s", list.length ? ", " : "", attribute_table[i].name);
  return list.text;
}

void table_of_ops(StrBuf *out) {
  static const char *const categories[] = {
      [CATEGORY_SOURCE] = "source",   [CATEGORY_UNARY] = "unary",       [CATEGORY_BINARY] = "binary",
      [CATEGORY_TERNARY] = "ternary", [CATEGORY_VIEW] = "view",         [CATEGORY_REDUCE] = "reduction",
      [CATEGORY_OTHER] = "other",     [CATEGORY_CONTRACT] = "contraction"};
  begin_table(out, "operation | category | operands | attributes | meaning");
  for (OpKind i = 0; i < N_OPS; i++) {
    const OpInfo *op = &op_table[i];
    ROW(op->name, categories[op->category], operands_of(out->arena, op), attributes_of(out->arena, i), op->line);
  }
}

void table_of_primitives(StrBuf *out) {
  begin_table(out, "primitive | what it does");
#define OPERATOR(forms, line) ROW(forms, line);
#define PRIMITIVE(name, parameters, function, line) ROW(#name "(" parameters ")", line);
#include "elaborate/primitives.def"
}

void table_of_torch_names(StrBuf *out) {
  begin_table(out, "in PyTorch | here");
#define TORCH_NAME(name, hint) ROW(name, hint);
#define TORCH_ARGUMENT(name, hint) ROW(name " = ...", hint);
#include "elaborate/torch_names.def"
}

static const char *properties(StrBuf *out, const char *flags) { return words_of_flags(out->arena, flags, "PROP_"); }

void table_of_passes(StrBuf *out) {
  begin_table(out, "pass | needs | gives | breaks | runs | what it does");
#define PASS(function, name, needs, gives, breaks, least, line) \
  ROW(name, properties(out, #needs), properties(out, #gives), properties(out, #breaks), least ? "-O2" : "always", line);
#include "passes/passes.def"
}

void table_of_fusions(StrBuf *out) {
  begin_table(out, "fusion | pattern | pass | what it is good for");
  for (int i = 0; i < N_FUSIONS; i++) {
    const FusionInfo *fusion = &fusion_table[i];
    ROW(fusion->name, fusion->pattern, fusion->pass, fusion->line);
  }
}

void table_of_kernels(StrBuf *out) {
  begin_table(out, "family | function (tfm/abi/kernels.h) | what it computes");
  for (int i = 0; i < N_KERNEL_FAMILIES; i++)
    ROW(kernel_families[i].name, kernel_families[i].function, kernel_families[i].line);
}

void table_of_forms(StrBuf *out) {
  static const char *const of_kind[] = {[TFM_KIND_FLOAT] = "of f32", [TFM_KIND_INTEGER] = "of whole numbers",
                                        [TFM_KIND_MIXED] = "of whole numbers in groups"};
  begin_table(out, "form | products | bits of a number | what it is");
#define FORM(ENUM, name, KIND, bits, together, group, each, beside, SCALE, lane, turn, unit, line) \
  ROW(#name, of_kind[TFM_KIND_##KIND], #bits, line);
#include "tfm/abi/forms.def"
}

static const char *tiles(Arena *arena, const TargetInfo *target) {
  StrBuf list = strbuf_new(arena);
  for (size_t i = 0; i < sizeof target->gemm_tiles / sizeof *target->gemm_tiles && target->gemm_tiles[i].rows; i++)
    strbuf_printf(&list, "%s%d x %d", i ? ", " : "", target->gemm_tiles[i].rows, target->gemm_tiles[i].width);
  return list.text;
}

void table_of_targets(StrBuf *out) {
  begin_table(out, "instruction set | floats in a register | multiply-add | tiles of products");
  for (const TargetInfo *target = targets; target->name; target++)
    ROW(target->name, arena_printf(out->arena, "%u", target->vector_floats),
        target->has_fma ? "fused" : "rounded twice", tiles(out->arena, target));
}

void table_of_tuning(StrBuf *out) {
  begin_table(out, "number | value | unit | how it was found | twice as much");
#define TUNING(name, value, unit, found, twice) ROW(#name, #value, unit, found, twice);
#include "tfm/abi/tuning_x86.def"
#define TUNING(name, value, unit, found, twice) ROW(#name, #value, unit, found, twice);
#include "kernels/kernel_tuning.def"
}

void table_of_explore_data(StrBuf *out) {
  begin_table(out, "member | what | meaning");
#define DATA(where, what, meaning) ROW(where, what, meaning);
#include "explore/data.def"
}
