/* Generative models for bench-compare: rows of tokens from rows of tokens. Nothing is freed: the program measures one
 * model and ends. */
#ifndef TFM_BENCH_WRITER_H
#define TFM_BENCH_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "elaborate/elaborate.h"
#include "target/target.h"

typedef struct Writer Writer;

typedef struct WriterModel {
  const char *file;
  int64_t start; /* the token that rows begin with; -1: they begin with what is given */
  int64_t end;   /* the token that is not chosen before the number of new tokens is reached */
  const Definition *definitions;
  uint32_t n_definitions;
} WriterModel;

typedef struct WriterRules { /* of --march and --quantize */
  const TargetInfo *target;
  const char *const *texts;
  uint32_t n;
} WriterRules;

typedef struct WriterCase {
  int64_t batch, length, beams, new_tokens;
  const int32_t *ids;     /* [batch][length]: what is translated, or continued */
  const int64_t *lengths; /* [batch]: tokens of each prompt, of which the rest is not read; of what is translated: unused */
} WriterCase;

/* Compiles the model, with the weights of FOLDER/weights.safetensors; NULL after printing why not. It lives as long as
 * the program. */
Writer *writer_create(const WriterModel *model, const char *folder, int32_t threads, const WriterRules *rules);
/* Everything that a row of ids costs; tokens[batch][new_tokens]. False after printing why not. */
bool writer_run(Writer *writer, const WriterCase *item, int32_t *tokens);

#endif
