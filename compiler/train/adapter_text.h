/* What peft's config says of the adapters of a model.
 *
 * In: the graphs of an objective whose model has a line `adapt`. Out: the text of adapter_config.json without its first
 * key, the base; which weights stand in adapter_model.safetensors. Refused, with the reason: adapters of weights that
 * are called otherwise than MODULE.weight, and weights trained beside them that belong to no module of their own. */
#ifndef TFM_TRAIN_ADAPTER_TEXT_H
#define TFM_TRAIN_ADAPTER_TEXT_H

#include "tfm/abi/train_tables.h"
#include "train/graphs.h"

/* Sets training->adapter or no_adapter, and which parameters (the table's, in the order of the graphs') adapt. */
void adapter_describe(Arena *arena, const TrainGraphs *graphs, tfm_training *training, tfm_parameter *parameters);
/* The base that the config in a folder names; NULL: there is none, or no config. */
const char *adapter_base(Arena *arena, const char *folder);

#endif
