#include "aot/names.h"

#include <ctype.h>
#include <string.h>

#include "base/map.h"

static const char *const reserved[] = {
    "struct_size", "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern",
    "float", "for", "goto", "if", "inline", "int", "long", "register", "restrict", "return", "short", "signed", "sizeof",
    "static", "struct", "switch", "typedef", "union", "unsigned", "void", "volatile", "while", "_Bool", "_Complex",
    "_Imaginary", "_Alignas", "_Alignof", "_Atomic", "_Generic", "_Noreturn", "_Static_assert", "_Thread_local", "alignas",
    "alignof", "and", "and_eq", "asm", "bitand", "bitor", "bool", "catch", "char16_t", "char32_t", "char8_t", "class",
    "co_await", "co_return", "co_yield", "compl", "concept", "const_cast", "consteval", "constexpr", "constinit", "decltype",
    "delete", "dynamic_cast", "explicit", "export", "false", "friend", "mutable", "namespace", "new", "noexcept", "not",
    "not_eq", "nullptr", "operator", "or", "or_eq", "private", "protected", "public", "reinterpret_cast", "requires",
    "static_assert", "static_cast", "template", "this", "thread_local", "throw", "true", "try", "typeid", "typename", "using",
    "virtual", "wchar_t", "xor", "xor_eq", "linux", "unix", "i386", "NULL", "EOF", "errno", "int8_t", "uint8_t", "int32_t",
    "int64_t", "size_t"};

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
  bool ours = strncmp(prefix, "tfm", 3) == 0 && (!prefix[3] || prefix[3] == '_'); /* the runtime's own types */
  return ours ? arena_printf(arena, "model_%s", prefix) : prefix;
}

/* Whether the header, or one that it includes, may have a macro of this name. */
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

/* `name`, with underscores behind it until it is free; one that begins with an underscore gets a letter before it. */
static const char *take(Arena *arena, Map *taken, const char *name) {
  if (name[0] == '_') name = arena_printf(arena, "m%s", name);
  if (may_be_macro(name)) name = arena_printf(arena, "%s_", name);
  while (map_has(taken, name)) name = arena_printf(arena, "%s_", name);
  map_put(taken, name, NULL);
  return name;
}

ArgsNames args_names(Arena *arena, const tfm_program *program, const bool *ragged) {
  Map taken = map_new(arena);
  for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++) map_put(&taken, reserved[i], NULL);
  ArgsNames names = {.prefix = model_prefix(arena, program->name)};
  names.symbols = ARENA_ARRAY(arena, const char *, program->n_symbols);
  names.inputs = ARENA_ARRAY(arena, const char *, program->n_inputs);
  names.outputs = ARENA_ARRAY(arena, const char *, program->n_outputs);
  names.capacities = ARENA_ARRAY(arena, const char *, program->n_outputs);
  for (uint32_t i = 0; i < program->n_symbols; i++) names.symbols[i] = take(arena, &taken, program->symbols[i]);
  for (uint32_t i = 0; i < program->n_inputs; i++) names.inputs[i] = take(arena, &taken, program->inputs[i].name);
  for (uint32_t i = 0; i < program->n_outputs; i++) names.outputs[i] = take(arena, &taken, program->outputs[i].name);
  for (uint32_t i = 0; i < program->n_outputs; i++)
    names.capacities[i] = take(arena, &taken, arena_printf(arena, "%s_capacity", names.outputs[i]));
  names.lengths = ARENA_ARRAY(arena, const char *, program->n_symbols);
  for (uint32_t i = 0; ragged && i < program->n_symbols; i++)
    if (ragged[i]) names.lengths[i] = take(arena, &taken, arena_printf(arena, "%s_lengths", names.symbols[i]));
  return names;
}
