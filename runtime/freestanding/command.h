/* A model as a command of WASI: what `tfmc compile --emit=wasi` has its `_start` call.
 *
 * NAME INPUTS OUTPUTS [--weights=FILE] [SIZE=N ...]: runs the model
 * NAME --generate INPUTS OUTPUTS [--weights=FILE] [OPTION=VALUE ...]: generates, with options of a generation config
 * and logit_bias=TOKEN:NUMBER,...
 *
 * Of a generation INPUTS may hold SIZE.lengths, i32[items]: of prompts, and of sizes that each item has its own of.
 * INPUTS and OUTPUTS are safetensors files; - is standard input or output. Files lie in the folders that the engine
 * gives. Exit codes are those of tfmc: 1 the model or its inputs, 2 the call, 3 files, 4 memory; a message goes to
 * standard error. */
#ifndef TFM_FREESTANDING_COMMAND_H
#define TFM_FREESTANDING_COMMAND_H

#include <stdbool.h>

#include "tfm/abi/library.h"

/* Runs the command and ends the process. `weights`: the file of weights where none is named; NULL: the library has its
 * own. */
_Noreturn void tfm_command(const tfm_library *library, const char *weights);

// ---- command_files.c ----

typedef struct CommandTensor {
  const char *name; /* `length` characters */
  uint32_t length;
  int32_t dtype, rank;
  int64_t dims[TFM_MAX_RANK];
  char *data;
} CommandTensor;

enum { MOST_COMMAND_TENSORS = 256 };

typedef struct CommandTensors {
  CommandTensor items[MOST_COMMAND_TENSORS];
  uint32_t n;
} CommandTensors;

typedef struct CommandBytes { /* from malloc */
  char *data;
  uint64_t size;
} CommandBytes;

/* Ends the process with a message; `code`: a tfm_status. */
_Noreturn void command_fail(tfm_status code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Files end the process if they cannot be read or written. */
CommandBytes command_read(const char *path);
void command_read_tensors(const char *path, CommandTensors *tensors);
void command_write_tensors(const char *path, const CommandTensors *tensors);
int64_t command_elements(const CommandTensor *tensor);

#endif
