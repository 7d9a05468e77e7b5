/* Names in C of what a model calls its sizes, inputs and outputs.
 *
 * In: a program. Out: the prefix of the library's functions and one member of the args struct for each; different names
 * stay different, C and C++ keywords and the header's own words are avoided. */
#ifndef TFM_AOT_NAMES_H
#define TFM_AOT_NAMES_H

#include <stdbool.h>

#include "base/arena.h"
#include "tfm/program.h"

typedef struct ArgsNames {
  const char *prefix;         /* "translator" */
  const char **symbols;       /* n_symbols */
  const char **inputs;        /* n_inputs */
  const char **outputs;       /* n_outputs */
  const char **capacities;    /* n_outputs */
  const char **lengths;       /* n_symbols; NULL: the size is not ragged, or the length of what the model writes */
} ArgsNames;

/* "SentenceEncoder" gives "sentence_encoder", "GPT2" "gpt2". */
const char *model_prefix(Arena *arena, const char *model);
ArgsNames args_names(Arena *arena, const tfm_program *program, const bool *ragged); /* ragged: by symbol, or NULL */

#endif
