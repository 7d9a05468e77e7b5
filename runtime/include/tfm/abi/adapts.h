/* tfm/abi/adapts.h: adapters of a model that is trained (`adapt`). C99.
 *
 * `adapter` of a tfm_training is the text of peft's adapter_config.json from its second key on; the first is the base;
 * `no_adapter` says why there can be no such file; if both are NULL, the model has no adapters. `adapts` of a parameter
 * says how it stands in adapter_model.safetensors. tfm_trainer_save_adapter (tfm.h) writes both files. */
#ifndef TFM_ABI_ADAPTS_H
#define TFM_ABI_ADAPTS_H

#include "tfm/tfm.h"

/* PAIR: it is A or B of an adapter; WHOLE: it is of a module that is trained beside them. */
typedef enum tfm_adapts { TFM_ADAPTS_NOT, TFM_ADAPTS_PAIR, TFM_ADAPTS_WHOLE } tfm_adapts;

#endif
