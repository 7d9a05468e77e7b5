/* ValidCommand: what --valid-command says about the weights of a step, such as a BLEU score.
 *
 * In: a line for the shell, which finds TFM_WEIGHTS, a safetensors file, and TFM_STEP in its environment. Out: the
 * number on the last line of what it prints. Refused: a command that fails, or whose last line holds no number; the run
 * goes on. */
#ifndef TFM_TRAIN_VALID_COMMAND_H
#define TFM_TRAIN_VALID_COMMAND_H

#include <stdint.h>

#include "base/arena.h"

/* NULL: *score is the number. Else why there is none, in `arena`. */
const char *valid_command_run(Arena *arena, const char *command, const char *weights, int64_t step, double *score);

#endif
