/* The JSON header of a safetensors file: what it says of each tensor, and whether that is consistent.
 *
 * In: the file and the length of its header. Out: its tensors and metadata, in the arena. Refuses whatever
 * safetensors.h lists; one message says what, and at which byte of the header. */
#ifndef TFM_WEIGHTS_SAFETENSORS_HEADER_H
#define TFM_WEIGHTS_SAFETENSORS_HEADER_H

#include "weights/json_cursor.h"
#include "weights/safetensors.h"

/* Fills tensors, metadata and by_name of `file`, whose data_begin and data_size are set. False after an error. */
bool safetensors_read_header(Arena *arena, Diag *diag, TensorFile *file, int64_t header_size);
#endif
