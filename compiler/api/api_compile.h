/* What tfm_compile makes, for the files that make it (api_compile.c) and train it (api_training.c). */
#ifndef TFM_API_API_COMPILE_H
#define TFM_API_API_COMPILE_H

#include "api/api_run.h"
#include "api/objects.h"
#include "tfm/abi/library.h"
#include "tfm/abi/trainer_weights.h"

struct tfm_compiled {
  Mapping parts; /* the packed weights stay in it */
  int file;      /* that it is of, where trainers map frozen weights of it too; 0: it is closed */
  LoadedCode code;
  tfm_model *model;             /* NULL: it trains */
  const tfm_training *training; /* NULL: it does not */
  int is_released;              /* weights to begin with are not there any more */
};

static inline const PartsHeader *parts_header(const Mapping *parts) {
  return (const PartsHeader *)(const void *)parts->data;
}

/* Writes the parts as a .tfmm file, which is whole or absent. */
tfm_status parts_save(const Mapping *parts, const char *path, tfm_error *error);

#endif
