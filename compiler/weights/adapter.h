/* Adapters of peft: low-rank changes of a model's weights, merged when they are read.
 *
 * In: the weights of the base, the folder of an adapter (adapter_config.json, adapter_model.safetensors). Out: the
 * same weights, of which those that the adapter names are W + s B A, summed in double and rounded to f32 once; s is
 * alpha / r, or alpha / sqrt(r) for rslora, by the patterns that the config may have for modules. Tensors that the
 * adapter holds whole (modules_to_save, biases) take the place of the base's. In place of a folder there may be a file,
 * whose tensors take the place of those of their names: what was trained of a base. Refused: other kinds of adapters
 * and of LoRA, keys that are not known, weights of modules that the config does not name, shapes that do not fit the
 * base, a half of a pair, ways to begin that change the base itself. */
#ifndef TFM_WEIGHTS_ADAPTER_H
#define TFM_WEIGHTS_ADAPTER_H

#include "graph/graph.h"
#include "weights/weight_set.h"

/* Merges the adapter of a folder into a set. False after an error. */
bool adapter_add(Arena *arena, Diag *diag, WeightSet *set, const char *folder);
/* For a model with adapters of its own (`adapt`): the newest adapter of the set is no longer merged, but its tensors
 * are found by the names of the model's. False after an error: a weight without one in the model, another scale. */
bool adapter_take_apart(Arena *arena, Diag *diag, WeightSet *set, const Graph *graph);

#endif
