/* A model: the program of a library that this CPU can run, and its weights. Constant once it is open, but for the number of
 * those who need it: it ends with the last of them, so that a program that closes it before its contexts does no harm. */
#ifndef TFM_RUNTIME_MODEL_H
#define TFM_RUNTIME_MODEL_H

#include <stdatomic.h>

#include "weights_file.h"

struct tfm_model {
  const tfm_library *library;
  const tfm_program *program;
  const tfm_decoding *decoding; /* NULL: the model is not incremental */
  Weights weights;
  void *handle;           /* of the loaded library; NULL: somebody else loaded it */
  int (*unload)(void *handle);
  _Atomic uint32_t users; /* whoever opened it, and its contexts */
};

/* The first program of the library that this CPU can run. */
tfm_status model_choose(const tfm_library *library, uint32_t features, const tfm_program **program, tfm_error *error);

void model_keep(tfm_model *model);
void model_release(tfm_model *model);

#endif
