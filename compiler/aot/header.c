/* In: the parts of a library. Out: a C header. See header.h. The header is an interface
 * that users compile against: what is written here changes only by adding. */
#include "aot/header.h"

#include <ctype.h>
#include <string.h>

/* runtime/include/tfm/types.h, generate_types.h and train_types.h, embedded by the build */
extern const char types_h[], generate_types_h[], train_types_h[];

// ---- texts ----

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

/* What it means in C that the generated length is ragged. */
static void add_ragged(StrBuf *out, const LibraryParts *parts) {
  strbuf_printf(out, "\n *\n * Rows have their own lengths, for \"%s\" is ragged in the model: ", parts->ragged);
  add_text(out, library_kind(parts) == LIBRARY_DECODES ? "%m_generate and %m_step take" : "%m_generate takes",
           parts->names->prefix);
  strbuf_printf(out,
                " any at once.\n * The rows of one call of %s_forward all have the length `%s`; those of another "
                "length are another call.",
                parts->names->prefix, parts->names->of[ARGS_symbols][parts->generation->length]);
}

/* The same for other ragged sizes, which are listed as "`source` and `words`". */
static void add_ragged_sources(StrBuf *out, const LibraryParts *parts) {
  const ArgsNames *names = parts->names;
  const char *separator = "";
  strbuf_add(out, "\n *\n * Items have their own ");
  for (uint32_t i = 0; i < parts->plans[0].forward->program.n_symbols; i++) {
    if (!parts->ragged_sources[i]) continue;
    strbuf_printf(out, "%s`%s`", separator, names->of[ARGS_symbols][i]);
    separator = " and ";
  }
  strbuf_printf(
      out,
      ": what stands behind the length of an item in its inputs is never read.\n * %s_forward takes items that "
      "all have the same, in other calls others.",
      names->prefix);
}

static void add_args(StrBuf *out, const LibraryParts *parts) {
  const tfm_program *p = &parts->plans[0].forward->program;
  strbuf_add(
      out,
      "/* What a run takes and gives. Tensors are row-major and may have any alignment. Outputs must not overlap\n"
      " * inputs or each other.");
  if (parts->ragged) add_ragged(out, parts);
  if (parts->ragged_sources) add_ragged_sources(out, parts);
  strbuf_add(out, " */\n");
  args_print(out, p, parts->names, "args", parts->generation ? parts->generation->batch : TFM_NONE);
}

/* The inputs of the objective are the first of the program that computes its gradients; masks, weights and cotangents
 * are the trainer's. */
static tfm_program program_of_objective(const LibraryParts *parts) {
  tfm_program p = parts->plans[0].training[TRAINING_STEP]->program;
  p.n_inputs = parts->training->table->n_inputs;
  p.n_outputs = 0;
  return p;
}

static void add_objective(StrBuf *out, const LibraryParts *parts) {
  const char *prefix = parts->names->prefix;
  const tfm_program p = program_of_objective(parts);
  const ArgsNames names = args_names(out->arena, &p, NULL);
  strbuf_add(out, "/* What a part of a step takes: some items, and the sizes that they have. */\n");
  args_print(out, &p, &names, "objective_args", TFM_NONE);
  strbuf_printf(out,
                "typedef struct %s_trainer %s_trainer; /* weights, gradients, moments: one caller at a time */\n\n",
                prefix, prefix);
}

uint64_t objective_number(Arena *arena, const LibraryParts *parts) {
  const tfm_program p = program_of_objective(parts);
  const ArgsNames names = args_names(arena, &p, NULL);
  return args_number(arena, &p, &names);
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
                (unsigned long long)args_number(out->arena, program, parts->names), prefix, prefix,
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
      " * time. Link with the library and -lpthread. */\n",
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
