/* In: a program. Out: C names for what the model calls its sizes, inputs and outputs, and the struct that has them. See
 * args_struct.h. The struct is an interface that users compile against: it changes only by adding. */
#include "aot/args_struct.h"

#include <ctype.h>
#include <string.h>

#include "base/hash.h"
#include "base/map.h"
#include "tfm/abi/library.h"

// ---- names ----

/* Words that no member of the args struct may have: keywords of C and C++, what the header itself uses, and macros that
 * compilers define without being asked. */
static const char *const reserved[] = {
    "struct_size", "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else",
    "enum", "extern", "float", "for", "goto", "if", "inline", "int", "long", "register", "restrict", "return",
    "short", "signed", "sizeof", "static", "struct", "switch", "typedef", "union", "unsigned", "void", "volatile",
    "while", "_Bool", "_Complex", "_Imaginary", "_Alignas", "_Alignof", "_Atomic", "_Generic", "_Noreturn",
    "_Static_assert", "_Thread_local", "alignas", "alignof", "and", "and_eq", "asm", "bitand", "bitor", "bool",
    "catch", "char16_t", "char32_t", "char8_t", "class", "co_await", "co_return", "co_yield", "compl", "concept",
    "const_cast", "consteval", "constexpr", "constinit", "decltype", "delete", "dynamic_cast", "explicit",
    "export", "false", "friend", "mutable", "namespace", "new", "noexcept", "not", "not_eq", "nullptr",
    "operator", "or", "or_eq", "private", "protected", "public", "reinterpret_cast", "requires", "static_assert",
    "static_cast", "template", "this", "thread_local", "throw", "true", "try", "typeid", "typename", "using",
    "virtual", "wchar_t", "xor", "xor_eq", "linux", "unix", "i386", "NULL", "EOF", "errno", "int8_t", "uint8_t",
    "int32_t", "int64_t", "size_t"};

/* Turns a name in CamelCase into snake_case. A word begins at a capital after a small letter or a digit, and at the
 * last capital of several before a small letter. The runtime's own prefix is left to the runtime. */
const char *model_prefix(Arena *arena, const char *model) {
  size_t length = strlen(model), n = 0;
  char *prefix = arena_alloc(arena, 2 * length + 1);
  for (size_t i = 0; i < length; i++) {
    bool upper = isupper((unsigned char)model[i]);
    bool after_lower = i && (islower((unsigned char)model[i - 1]) || isdigit((unsigned char)model[i - 1]));
    bool before_lower = i && isupper((unsigned char)model[i - 1]) && islower((unsigned char)model[i + 1]);
    if (upper && (after_lower || before_lower)) prefix[n++] = '_';
    prefix[n++] = (char)tolower((unsigned char)model[i]);
  }
  bool ours = strncmp(prefix, "tfm", 3) == 0 && (!prefix[3] || prefix[3] == '_'); /* the runtime's own prefix */
  return ours ? arena_printf(arena, "model_%s", prefix) : prefix;
}

/* Whether a header that ours includes may define a macro of this name, which would replace a member's name. */
static bool may_be_macro(const char *name) {
  static const char *const endings[] = {"_MAX", "_MIN", "_C"};
  size_t length = strlen(name);
  if (strncmp(name, "TFM_", 4) == 0) return true;
  for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
    size_t n = strlen(endings[i]);
    if (length > n && strcmp(name + length - n, endings[i]) == 0) return true;
  }
  return false;
}

/* Returns `name` with underscores appended until nobody else has it. C reserves names that begin with an underscore,
 * so those get a letter in front. */
static const char *take(Arena *arena, Map *taken, const char *name) {
  if (name[0] == '_') name = arena_printf(arena, "m%s", name);
  if (may_be_macro(name)) name = arena_printf(arena, "%s_", name);
  while (map_has(taken, name)) name = arena_printf(arena, "%s_", name);
  map_put(taken, name, NULL);
  return name;
}

/* What has the members of a group. */
static const char *text_of(const tfm_program *program, ArgsPer per, uint32_t i) {
  if (per == PER_SYMBOL) return program->symbols[i];
  if (per == PER_RUN) return "";
  return per == PER_INPUT ? program->inputs[i].name : program->outputs[i].name;
}

/* The first group that counts the same: its names stand for what has the members. */
static ArgsGroup first_of(ArgsPer per) {
  ArgsGroup group = 0;
  while (args_rows[group].per != per) group++;
  return group;
}

/* The name by the rule of the group, as yet without regard to others. */
static const char *wanted_name(Arena *arena, const tfm_program *program, const ArgsNames *names, ArgsMember member) {
  const ArgsRow *row = &args_rows[member.group];
  const ArgsGroup first = first_of(row->per);
  const char *mark = strstr(row->name, "%n");
  const char *owner = first == member.group ? text_of(program, row->per, member.index) : names->of[first][member.index];
  return mark ? arena_printf(arena, "%.*s%s%s", (int)(mark - row->name), row->name, owner, mark + 2) : row->name;
}

/* Fixed names come first, then those of sizes, of inputs, of outputs: the earlier a name is given out, the less it
 * depends on the others. */
ArgsNames args_names(Arena *arena, const tfm_program *program, const bool *ragged) {
  const uint32_t counts[] = {[PER_RUN] = program->n_outputs > 0, [PER_SYMBOL] = program->n_symbols,
                             [PER_INPUT] = program->n_inputs, [PER_OUTPUT] = program->n_outputs};
  Map taken = map_new(arena);
  for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++) map_put(&taken, reserved[i], NULL);
  ArgsNames names = {.prefix = model_prefix(arena, program->name), .members = args_members(arena, counts, ragged)};
  for (ArgsGroup group = 0; group < N_ARGS_GROUPS; group++) {
    names.n[group] = counts[args_rows[group].per];
    names.of[group] = ARENA_ARRAY(arena, const char *, names.n[group]);
    if (args_rows[group].per != PER_RUN || !counts[PER_RUN]) continue;
    names.of[group][0] = args_rows[group].name;
    map_put(&taken, args_rows[group].name, NULL);
  }
  for (ArgsGroup group = 0; group < N_ARGS_GROUPS; group++)
    for (uint32_t i = 0; i < names.members.n; i++) {
      const ArgsMember member = names.members.items[i];
      if (member.group != group || args_rows[group].per == PER_RUN) continue;
      names.of[group][member.index] = take(arena, &taken, wanted_name(arena, program, &names, member));
    }
  return names;
}

// ---- texts of the rows ----

static const char *const c_types[] = {[TFM_F32] = "float", [TFM_I32] = "int32_t", [TFM_BOOL] = "uint8_t"};

/* Says which ids an input may hold, "; ids in [0, 30522)", where that is a number. The runtime checks it in any
 * case. */
static void add_limit(StrBuf *out, const tfm_program *p, uint32_t input) {
  for (uint32_t i = 0; i < p->n_id_limits; i++) {
    if (p->id_limits[i].input != input) continue;
    const tfm_polynomial *limit = &p->polynomials[p->id_limits[i].limit];
    if (limit->n_terms == 1 && p->terms[limit->first_term].degree == 0)
      strbuf_printf(out, "; %s in [%d, %lld)", p->id_limits[i].n_parts ? "elements" : "ids", p->id_limits[i].least,
                    (long long)p->terms[limit->first_term].coefficient);
  }
}

/* "; NULL: 0 everywhere". */
static void add_default(StrBuf *out, const tfm_tensor_info *input) {
  float number;
  memcpy(&number, &input->fill, sizeof number);
  if (input->dtype == TFM_F32) strbuf_printf(out, "; NULL: %.9g everywhere", (double)number);
  else strbuf_printf(out, "; NULL: %d everywhere", (int)(int32_t)input->fill);
}

/* What a mark of a text stands for, besides the names. */
static void add_tensor(StrBuf *out, const tfm_program *p, ArgsMember member, char mark) {
  const bool is_input = args_rows[member.group].per == PER_INPUT;
  const tfm_tensor_info *tensor = is_input ? &p->inputs[member.index] : &p->outputs[member.index];
  if (mark == 't') strbuf_add(out, c_types[tensor->dtype]);
  if (mark == 's') strbuf_add(out, tensor->shape);
  if (mark != 'd') return;
  add_limit(out, p, member.index);
  if (tensor->has_default) add_default(out, tensor);
  if (tensor->dtype == TFM_BOOL) strbuf_add(out, "; a byte each, 0 or 1; in an attention mask 1 means: not allowed");
}

static void add_row_text(StrBuf *out, const char *text, const tfm_program *p, const ArgsNames *names, ArgsMember member,
                         uint32_t batch) {
  for (; *text; text++) {
    if (*text != '%') strbuf_add_char(out, *text);
    else if (*++text == 'm') strbuf_add(out, names->of[member.group][member.index]);
    else if (*text == 'n') strbuf_add(out, names->of[first_of(args_rows[member.group].per)][member.index]);
    else if (*text == 'b') strbuf_add(out, batch == TFM_NONE ? "1" : names->of[ARGS_symbols][batch]);
    else add_tensor(out, p, member, *text);
  }
}

void args_print(StrBuf *out, const tfm_program *program, const ArgsNames *names, const char *suffix, uint32_t batch) {
  const char *prefix = names->prefix;
  strbuf_printf(out, "typedef struct %s_%s {\n", prefix, suffix);
  strbuf_printf(out, "  size_t struct_size; /* sizeof(%s_%s), or 0 */\n", prefix, suffix);
  for (uint32_t i = 0; i < names->members.n; i++) {
    const ArgsMember member = names->members.items[i];
    strbuf_add(out, "  ");
    add_row_text(out, args_rows[member.group].text, program, names, member, batch);
    strbuf_add_char(out, '\n');
  }
  strbuf_printf(out, "} %s_%s;\n\n", prefix, suffix);
}

/* Comments of the header do not count, so its wording may change. */
uint64_t args_number(Arena *arena, const tfm_program *program, const ArgsNames *names) {
  StrBuf text = strbuf_new(arena);
  strbuf_printf(&text, "%d;", TFM_LIBRARY_ABI);
  for (uint32_t i = 0; i < names->members.n; i++) {
    const ArgsMember member = names->members.items[i];
    add_row_text(&text, args_rows[member.group].number, program, names, member, TFM_NONE);
  }
  return hash_bytes(HASH_BEGIN, text.text, text.length);
}
