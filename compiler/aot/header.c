#include "aot/header.h"

#include <ctype.h>
#include <string.h>

/* runtime/include/tfm/types.h and generate_types.h, embedded */
extern const char types_h[], generate_types_h[];

static const char *const c_types[] = {[TFM_F32] = "float", [TFM_I32] = "int32_t", [TFM_BOOL] = "uint8_t"};

/* `text` with every %m replaced by the prefix. */
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

// ---- the args struct ----

/* Which ids an input may hold: "; ids in [0, 30522)". */
static void add_limit(StrBuf *out, const tfm_program *p, uint32_t input) {
  for (uint32_t i = 0; i < p->n_id_limits; i++) {
    if (p->id_limits[i].input != input) continue;
    const tfm_polynomial *limit = &p->polynomials[p->id_limits[i].limit];
    if (limit->n_terms == 1 && p->terms[limit->first_term].degree == 0)
      strbuf_printf(out, "; ids in [0, %lld)", (long long)p->terms[limit->first_term].coefficient);
  }
}

static void add_inputs(StrBuf *out, const LibraryParts *parts) {
  const tfm_program *p = &parts->plans[0].forward->program;
  for (uint32_t i = 0; i < p->n_inputs; i++) {
    const tfm_tensor_info *input = &p->inputs[i];
    strbuf_printf(out, "  const %s *%s; /* %s", c_types[input->dtype], parts->names->inputs[i], input->shape);
    add_limit(out, p, i);
    if (input->dtype == TFM_BOOL) strbuf_add(out, "; a byte each, 0 or 1; in an attention mask 1 means: not allowed");
    strbuf_add(out, " */\n");
  }
}

static void add_outputs(StrBuf *out, const LibraryParts *parts) {
  const tfm_program *p = &parts->plans[0].forward->program;
  for (uint32_t i = 0; i < p->n_outputs; i++) {
    strbuf_printf(out, "  %s *%s; /* %s; NULL: not wanted */\n", c_types[p->outputs[i].dtype], parts->names->outputs[i],
                  p->outputs[i].shape);
    strbuf_printf(out, "  int64_t %s; /* elements that %s has room for; 0: enough, on the caller's word */\n",
                  parts->names->capacities[i], parts->names->outputs[i]);
  }
}

/* What became of the ragged size. */
static void add_ragged(StrBuf *out, const LibraryParts *parts) {
  strbuf_printf(out, "\n *\n * Rows have their own lengths, for \"%s\" is ragged in the model: ", parts->ragged);
  add_text(out, library_kind(parts) == LIBRARY_DECODES ? "%m_generate and %m_step take" : "%m_generate takes",
           parts->names->prefix);
  strbuf_printf(out, " any at once.\n * The rows of one call of %s_forward all have the length `%s`; those of another "
                     "length are another call.", parts->names->prefix, parts->names->symbols[parts->generation->length]);
}

/* "source", or "source and words". */
static void add_ragged_sources(StrBuf *out, const LibraryParts *parts) {
  const ArgsNames *names = parts->names;
  const char *separator = "";
  strbuf_add(out, "\n *\n * Items have their own ");
  for (uint32_t i = 0; i < parts->plans[0].forward->program.n_symbols; i++) {
    if (!parts->ragged_sources[i]) continue;
    strbuf_printf(out, "%s`%s`", separator, names->symbols[i]);
    separator = " and ";
  }
  strbuf_printf(out, ": what stands behind the length of an item in its inputs is never read.\n * %s_forward takes items that "
                     "all have the same, in other calls others.", names->prefix);
}

/* Behind all other members. */
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
  strbuf_add(out, "/* What a run takes and gives. Tensors are row-major and may have any alignment. Outputs must not overlap\n"
                  " * inputs or each other.");
  if (parts->ragged) add_ragged(out, parts);
  if (parts->ragged_sources) add_ragged_sources(out, parts);
  strbuf_printf(out, " */\ntypedef struct %s_args {\n", prefix);
  strbuf_printf(out, "  size_t struct_size; /* sizeof(%s_args), or 0 */\n", prefix);
  for (uint32_t i = 0; i < p->n_symbols; i++) strbuf_printf(out, "  int64_t %s;\n", parts->names->symbols[i]);
  add_inputs(out, parts);
  add_outputs(out, parts);
  add_lengths(out, parts);
  strbuf_printf(out, "} %s_args;\n\n", prefix);
}

// ---- functions ----

/* Why functions are missing. The name of a file may hold what ends a comment. */
static void add_reason(StrBuf *out, const LibraryParts *parts) {
  strbuf_printf(out, "/* Nothing is kept between tokens, so there is no %s_begin: ", parts->names->prefix);
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
    if (functions[i].least > library_kind(parts)) continue;
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
  strbuf_printf(out, "/* %s.h: the model %s as a C library. Made by tfmc %s.\n *\n"
                     " * Every function that can fail returns a tfm_status and fills the tfm_error, which may be NULL. Nothing here\n"
                     " * prints, exits or keeps global state. A model may be used by any number of threads, a context by one at a\n"
                     " * time. Link with the library and -lm -lpthread. */\n",
                prefix, parts->plans[0].forward->program.name, parts->version);
  strbuf_printf(out, "#ifndef %s_MODEL_H\n#define %s_MODEL_H\n\n", guard, guard);
  strbuf_add(out, types_h);
  if (library_kind(parts) != LIBRARY_ANY) strbuf_add(out, generate_types_h);
  strbuf_printf(out, "\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n"
                     "typedef struct %s_model %s_model;     /* code and weights */\n"
                     "typedef struct %s_context %s_context; /* what one caller runs it with */\n\n",
                prefix, prefix, prefix, prefix);
  if (parts->generation)
    strbuf_printf(out, "#define %s_VOCAB %lld /* tokens: what a row of scores has */\n\n", guard, (long long)parts->generation->vocab);
  add_args(out, parts);
  add_functions(out, parts);
  strbuf_printf(out, "\n#ifdef __cplusplus\n}\n#endif\n#endif\n");
}
