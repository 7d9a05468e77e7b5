/* What pads the items of a batch, as a file of data says it: its metadata NAME.pad.
 *
 * In: a safetensors file, the inputs of an objective. Out: the number that pads each. Refused, with the key: what is no
 * number, a number that is none of the input's type, an id that its table does not have, what is not finite where it is
 * multiplied, an input in which items do not differ, two files that say two things, and a NAME that is neither an input
 * nor a tensor of the file. */
#ifndef TFM_TRAIN_PADDING_H
#define TFM_TRAIN_PADDING_H

#include "train/data_set.h"

/* False after an error. */
bool padding_read(const DataSet *data, const TensorFile *file);

#endif
