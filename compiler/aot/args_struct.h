/* Args struct: what a compiled library's functions take, as C sees it: names, the struct in the header, its number.
 *
 * In: a program and which of its sizes are ragged. Out, in the arena: names that are distinct, are no keywords of C
 * or C++ and clash with nothing that the header itself uses; the struct, whose members and texts are the rows of
 * tfm/abi/args.def. Refuses nothing: every model has a name that can be made into C. */
#ifndef TFM_AOT_ARGS_STRUCT_H
#define TFM_AOT_ARGS_STRUCT_H

#include "base/strbuf.h"
#include "aot/args_layout.h"
#include "tfm/abi/program.h"

typedef struct ArgsNames {
  const char *prefix; /* of every exported function: "translator" */
  const char **of[N_ARGS_GROUPS]; /* of the members, by the number of the symbol, input or output; NULL: it has none */
  uint32_t n[N_ARGS_GROUPS];
  ArgsMembers members;
} ArgsNames;

/* "SentenceEncoder" gives "sentence_encoder", "GPT2" gives "gpt2". */
const char *model_prefix(Arena *arena, const char *model);
/* `ragged` says for every symbol whether items of a batch have their own length of it; NULL: none is ragged. A program
 * without outputs is that of an objective, which has no members of the run either. */
ArgsNames args_names(Arena *arena, const tfm_program *program, const bool *ragged);

/* The struct <prefix>_<suffix>, without what a comment before it says. `batch`: the symbol of the batch, or TFM_NONE.
 * */
void args_print(StrBuf *out, const tfm_program *program, const ArgsNames *names, const char *suffix, uint32_t batch);
/* What a header hands to a library (tfm_args_layout.number): equal exactly for structs with the same members in the
 * same order, of the same types. `names` are those of the program. */
uint64_t args_number(Arena *arena, const tfm_program *program, const ArgsNames *names);

#endif
