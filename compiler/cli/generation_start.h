/* GenerationStart: what generation needs before anything is compiled for it: the model, its weights, its inputs, and
 * what the rows begin with.
 *
 * In: the command line. Out: a scorer, and the prompts. Refused: a model without a generate block, inputs and weights
 * that do not fit, a model with nothing to begin with. */
#ifndef TFM_CLI_GENERATION_START_H
#define TFM_CLI_GENERATION_START_H

#include "cli/generation_output.h"
#include "cli/generation_settings.h"
#include "engines/scorer.h"

typedef struct GenerationStart {
  Session *session;
  Graph *graph; /* its first output: the logits */
  ReturnedOutputs returned;
  WeightSource *weights;
  Scorer *scorer;
  tfm_prompts prompts;
} GenerationStart;

/* All but the prompts. False after an error; generation_close is to be called in both cases. */
bool generation_load(Session *session, GenerationStart *start);
/* What the rows begin with: the decoder input if it was given, else the start token. False after an error. */
bool generation_make_prompts(GenerationStart *start, const GenerationSettings *settings);
void generation_close(GenerationStart *start);

#endif
