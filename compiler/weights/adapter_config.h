/* adapter_config.json of peft: of which modules an adapter is, and how far it counts.
 *
 * In: the folder. Out: answers about modules by their names, as peft gives them. Patterns are Python's regular
 * expressions, of which those are taken that POSIX has too (\d, (?:...) and lazy repetitions among them). Refused: what
 * is no LoRA, keys that adapter_keys.def does not have, other patterns. */
#ifndef TFM_WEIGHTS_ADAPTER_CONFIG_H
#define TFM_WEIGHTS_ADAPTER_CONFIG_H

#include <jansson.h>

#include "diag/diag.h"

typedef struct AdapterConfig {
  const char *path;
  json_t *json; /* the caller's to release */
  bool fan_in_fan_out;
} AdapterConfig;

typedef struct AdapterScale {
  int64_t rank;
  double factor;
} AdapterScale;

/* False after an error. */
bool adapter_config_read(Arena *arena, Diag *diag, const char *folder, AdapterConfig *config);
/* Whether target_modules names the module, and exclude_modules does not. False too after an error of a pattern. */
bool adapter_names_module(Arena *arena, Diag *diag, const AdapterConfig *config, const char *module);
AdapterScale adapter_scale(Arena *arena, Diag *diag, const AdapterConfig *config, const char *module);

#endif
