/* Packed set: the weights of a set that are packed in few bits, by the names that they have without it.
 *
 * In: a set whose tensors all are there, and its path. Out: an entry for each that is packed, behind the others; its
 * parts are marked. One that cannot be read has a fault that says why: the config says another layout or none, or parts
 * do not fit. */
#ifndef TFM_WEIGHTS_PACKED_SET_H
#define TFM_WEIGHTS_PACKED_SET_H

#include "weights/weight_set.h"

void packed_set_add(Arena *arena, Diag *diag, WeightSet *set, const char *path);

#endif
