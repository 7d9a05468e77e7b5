/* In: a program, and the parts of a library. Out: C names and a C header. See header.h. The header is an interface
 * that users compile against: what is written here changes only by adding. */
#include "aot/header.h"

#include <ctype.h>
#include <string.h>

#include "base/hash.h"
#include "base/map.h"

/* runtime/include/tfm/types.h, generate_types.h and train_types.h, embedded by the build */
extern const char types_h[], generate_types_h[], train_types_h[];

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

/* Sizes take their names first, then inputs, then outputs: the earlier a name is given out, the less it depends on the
 * others. */
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

static const char *const c_types[] = {[TFM_F32] = "float", [TFM_I32] = "int32_t", [TFM_BOOL] = "uint8_t"};

/* Appends `text` with every %m replaced by the prefix. */
static void add_text(StrBuf *out, const char *text, const char *prefix) {
  for (const char *mark; (mark = strstr(text, "%m")); text = mark + 2) {
    strbuf_add_n(out, text, (size_t)(mark - text));
    strbuf_add(out, prefix);
  }
  strbuf_add(out, text);
}

static const char *upper(Arena *arena, const char *text) {
  char *copy = arena_strdup(arena, text);
  for (char *c = copy; *c; c++) *c = (char)toupper((unsigned char)*c);
  return copy;
}

LibraryKind library_kind(const LibraryParts *parts) {
  if (!parts->generation) return LIBRARY_ANY;
  return parts->plans[0].decoding ? LIBRARY_DECODES : LIBRARY_WRITES;
}

bool library_has(const LibraryParts *parts, LibraryKind least) {
  return least == LIBRARY_TRAINS ? parts->training != NULL : least <= library_kind(parts);
}

// ---- the args struct ----

/* Says which ids an input may hold, "; ids in [0, 30522)", where that is a number. The runtime checks it in any
 * case. */
static void add_limit(StrBuf *out, const tfm_program *p, uint32_t input) {
  for (uint32_t i = 0; i < p->n_id_limits; i++) {
    if (p->id_limits[i].input != input) continue;
    const tfm_polynomial *limit = &p->polynomials[p->id_limits[i].limit];
    if (limit->n_terms == 1 && p->terms[limit->first_term].degree == 0)
      strbuf_printf(out, "; ids in [0, %lld)", (long long)p->terms[limit->first_term].coefficient);
  }
}

/* "; NULL: 0 everywhere". */
static void add_default(StrBuf *out, const tfm_tensor_info *input) {
  float number;
  memcpy(&number, &input->fill, sizeof number);
  if (input->dtype == TFM_F32) strbuf_printf(out, "; NULL: %.9g everywhere", (double)number);
  else strbuf_printf(out, "; NULL: %d everywhere", (int)(int32_t)input->fill);
}

static void add_inputs(StrBuf *out, const tfm_program *p, uint32_t n, const ArgsNames *names) {
  for (uint32_t i = 0; i < n; i++) {
    const tfm_tensor_info *input = &p->inputs[i];
    strbuf_printf(out, "  const %s *%s; /* %s", c_types[input->dtype], names->inputs[i], input->shape);
    add_limit(out, p, i);
    if (input->has_default) add_default(out, input);
    if (input->dtype == TFM_BOOL) strbuf_add(out, "; a byte each, 0 or 1; in an attention mask 1 means: not allowed");
    strbuf_add(out, " */\n");
  }
}

/* Every output has a capacity beside it, so that a wrong size is an error and not an overflow. */
static void add_outputs(StrBuf *out, const LibraryParts *parts) {
  const tfm_program *p = &parts->plans[0].forward->program;
  for (uint32_t i = 0; i < p->n_outputs; i++) {
    strbuf_printf(out, "  %s *%s; /* %s; NULL: not wanted */\n", c_types[p->outputs[i].dtype], parts->names->outputs[i],
                  p->outputs[i].shape);
    strbuf_printf(out, "  int64_t %s; /* elements that %s has room for; 0: enough, on the caller's word */\n",
                  parts->names->capacities[i], parts->names->outputs[i]);
  }
}

/* What it means in C that the generated length is ragged. */
static void add_ragged(StrBuf *out, const LibraryParts *parts) {
  strbuf_printf(out, "\n *\n * Rows have their own lengths, for \"%s\" is ragged in the model: ", parts->ragged);
  add_text(out, library_kind(parts) == LIBRARY_DECODES ? "%m_generate and %m_step take" : "%m_generate takes",
           parts->names->prefix);
  strbuf_printf(out,
                " any at once.\n * The rows of one call of %s_forward all have the length `%s`; those of another "
                "length are another call.",
                parts->names->prefix, parts->names->symbols[parts->generation->length]);
}

/* The same for other ragged sizes, which are listed as "`source` and `words`". */
static void add_ragged_sources(StrBuf *out, const LibraryParts *parts) {
  const ArgsNames *names = parts->names;
  const char *separator = "";
  strbuf_add(out, "\n *\n * Items have their own ");
  for (uint32_t i = 0; i < parts->plans[0].forward->program.n_symbols; i++) {
    if (!parts->ragged_sources[i]) continue;
    strbuf_printf(out, "%s`%s`", separator, names->symbols[i]);
    separator = " and ";
  }
  strbuf_printf(
      out,
      ": what stands behind the length of an item in its inputs is never read.\n * %s_forward takes items that "
      "all have the same, in other calls others.",
      names->prefix);
}

/* Lengths come last, so that a size which becomes ragged moves no other member of the struct. */
static void add_lengths(StrBuf *out, const LibraryParts *parts) {
  const ArgsNames *names = parts->names;
  for (uint32_t i = 0; i < parts->plans[0].forward->program.n_symbols; i++)
    if (names->lengths[i])
      strbuf_printf(out, "  const int64_t *%s; /* [%s], at most %s each; NULL: that of all */\n", names->lengths[i],
                    names->symbols[parts->generation->batch], names->symbols[i]);
}

static void add_args(StrBuf *out, const LibraryParts *parts) {
  const tfm_program *p = &parts->plans[0].forward->program;
  const char *prefix = parts->names->prefix;
  strbuf_add(
      out,
      "/* What a run takes and gives. Tensors are row-major and may have any alignment. Outputs must not overlap\n"
      " * inputs or each other.");
  if (parts->ragged) add_ragged(out, parts);
  if (parts->ragged_sources) add_ragged_sources(out, parts);
  strbuf_printf(out, " */\ntypedef struct %s_args {\n", prefix);
  strbuf_printf(out, "  size_t struct_size; /* sizeof(%s_args), or 0 */\n", prefix);
  for (uint32_t i = 0; i < p->n_symbols; i++) strbuf_printf(out, "  int64_t %s;\n", parts->names->symbols[i]);
  add_inputs(out, p, p->n_inputs, parts->names);
  add_outputs(out, parts);
  add_lengths(out, parts);
  strbuf_printf(out, "} %s_args;\n\n", prefix);
}

/* The inputs of the objective are the first of the program that computes its gradients; masks, weights and cotangents
 * are the trainer's. */
static void add_objective(StrBuf *out, const LibraryParts *parts) {
  const char *prefix = parts->names->prefix;
  tfm_program p = parts->plans[0].training[TRAINING_STEP]->program;
  p.n_inputs = parts->training->table->n_inputs;
  p.n_outputs = 0;
  const ArgsNames names = args_names(out->arena, &p, NULL);
  strbuf_printf(out,
                "/* What a part of a step takes: some items, and the sizes that they have. */\n"
                "typedef struct %s_objective_args {\n"
                "  size_t struct_size; /* sizeof(%s_objective_args), or 0 */\n",
                prefix, prefix);
  for (uint32_t i = 0; i < p.n_symbols; i++) strbuf_printf(out, "  int64_t %s;\n", names.symbols[i]);
  add_inputs(out, &p, p.n_inputs, &names);
  strbuf_printf(out, "} %s_objective_args;\n\n", prefix);
  strbuf_printf(out,
                "typedef struct %s_trainer %s_trainer; /* weights, gradients, moments: one caller at a time */\n\n",
                prefix, prefix);
}

// ---- the number of the structs ----

static void add_tensors(StrBuf *out, const tfm_tensor_info *tensors, uint32_t n, const char *const *names) {
  for (uint32_t i = 0; i < n; i++)
    strbuf_printf(out, "%s %s %s;", names[i], c_types[tensors[i].dtype], tensors[i].shape);
}

static void add_members(StrBuf *out, const tfm_program *p, uint32_t n_inputs, const ArgsNames *names) {
  for (uint32_t i = 0; i < p->n_symbols; i++) strbuf_printf(out, "%s;", names->symbols[i]);
  add_tensors(out, p->inputs, n_inputs, names->inputs);
  add_tensors(out, p->outputs, p->n_outputs, names->outputs);
  for (uint32_t i = 0; i < p->n_symbols; i++)
    if (names->lengths[i]) strbuf_printf(out, "%s;", names->lengths[i]);
}

/* Comments of the header do not count, so its wording may change. The structs that all headers share (tfm_decoder_row,
 * options) are those of the interface with this number. */
uint64_t args_number(Arena *arena, const tfm_program *program, uint32_t n_inputs, const ArgsNames *names) {
  StrBuf text = strbuf_new(arena);
  strbuf_printf(&text, "%d;", TFM_LIBRARY_ABI);
  add_members(&text, program, n_inputs, names);
  return hash_bytes(HASH_BEGIN, text.text, text.length);
}

uint64_t objective_number(Arena *arena, const LibraryParts *parts) {
  tfm_program program = parts->plans[0].training[TRAINING_STEP]->program;
  program.n_outputs = 0;
  program.n_inputs = parts->training->table->n_inputs;
  const ArgsNames names = args_names(arena, &program, NULL);
  return args_number(arena, &program, program.n_inputs, &names);
}

/* Macros, so that programs say what they always said; what looks functions up by their names finds these, too. */
static void add_numbers(StrBuf *out, const LibraryParts *parts, const char *guard) {
  const char *prefix = parts->names->prefix;
  const tfm_program *program = &parts->plans[0].forward->program;
  strbuf_printf(out,
                "\n/* The members of %s_args, their order, types and names, as a number. */\n"
                "#define %s_LAYOUT UINT64_C(0x%016llx)\n"
                "#define %s_open(weights_path, model, error) %s_open_as(%s_LAYOUT, weights_path, model, error)\n"
                "#define %s_open_memory(weights, bytes, model, error) \\\n"
                "  %s_open_memory_as(%s_LAYOUT, weights, bytes, model, error)\n",
                prefix, guard,
                (unsigned long long)args_number(out->arena, program, program->n_inputs, parts->names), prefix, prefix,
                guard, prefix, prefix, guard);
  if (!parts->training) return;
  strbuf_printf(out,
                "#define %s_OBJECTIVE_LAYOUT UINT64_C(0x%016llx)\n"
                "#define %s_trainer_new(state, options, trainer, error) \\\n"
                "  %s_trainer_new_as(%s_OBJECTIVE_LAYOUT, state, options, trainer, error)\n",
                guard, (unsigned long long)objective_number(out->arena, parts), prefix, prefix, guard);
}

// ---- functions ----

/* Says why the functions of decoding are missing. The reason may quote a file name, and that may hold the end of a
 * comment. */
static void add_reason(StrBuf *out, const LibraryParts *parts) {
  strbuf_printf(out, "/* Nothing is cached between tokens, so there is no %s_begin: ", parts->names->prefix);
  for (const char *c = parts->not_incremental ? parts->not_incremental : ""; *c; c++) {
    strbuf_add_char(out, *c);
    if (c[0] == '*' && c[1] == '/') strbuf_add_char(out, ' ');
  }
  strbuf_add(out, ". */\n");
}

static void add_functions(StrBuf *out, const LibraryParts *parts) {
  static const struct {
    const char *suffix;
    LibraryKind least;
    const char *result, *parameters, *comment;
  } functions[] = {
#define FUNCTION(suffix, runtime, kind, least, result, parameters, arguments, comment) \
  {#suffix, LIBRARY_##least, result, parameters, comment},
#include "aot/library_functions.def"
  };
  const char *prefix = parts->names->prefix;
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    if (!library_has(parts, functions[i].least)) continue;
    strbuf_add(out, "/* ");
    add_text(out, functions[i].comment, prefix);
    strbuf_printf(out, " */\n%s%s%s_%s(", functions[i].result, strchr(functions[i].result, '*') ? "" : " ", prefix,
                  functions[i].suffix);
    add_text(out, functions[i].parameters, prefix);
    strbuf_add(out, ");\n");
  }
  if (library_kind(parts) == LIBRARY_WRITES) add_reason(out, parts);
}

void write_header(StrBuf *out, const LibraryParts *parts) {
  const char *prefix = parts->names->prefix, *guard = upper(out->arena, prefix);
  strbuf_printf(
      out,
      "/* The model %s as a C library, functions %s_... Made by tfmc %s.\n *\n"
      " * Every function that can fail returns a tfm_status and fills the tfm_error, which may be NULL. Nothing here\n"
      " * prints, exits or keeps global state. A model may be used by any number of threads, a context by one at a\n"
      " * time. Link with the library and -lm -lpthread. */\n",
      parts->plans[0].forward->program.name, prefix, parts->version);
  strbuf_printf(out, "#ifndef %s_MODEL_H\n#define %s_MODEL_H\n\n", guard, guard);
  strbuf_add(out, types_h);
  if (library_kind(parts) != LIBRARY_ANY) strbuf_add(out, generate_types_h);
  /* Without the include before its guard: those types have been pasted. */
  if (parts->training) strbuf_add(out, strstr(train_types_h, "#ifndef TFM_TRAIN_TYPES_H"));
  strbuf_printf(out, "\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n"
                     "typedef struct %s_model %s_model;     /* code and weights */\n"
                     "typedef struct %s_context %s_context; /* what one caller runs it with */\n\n",
                prefix, prefix, prefix, prefix);
  if (parts->generation)
    strbuf_printf(out, "#define %s_VOCAB %lld /* tokens: the length of a row of logits */\n\n", guard,
                  (long long)parts->generation->vocab);
  add_args(out, parts);
  if (parts->training) add_objective(out, parts);
  add_functions(out, parts);
  add_numbers(out, parts, guard);
  strbuf_printf(out, "\n#ifdef __cplusplus\n}\n#endif\n#endif\n");
}
