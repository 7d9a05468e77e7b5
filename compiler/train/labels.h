/* Labels: what pads an input of --data whose labels a cross_entropy leaves out.
 *
 * In: the inputs of an objective and what else reads them. Out: for each the number that pads it, where the data do not
 * say one (the metadata NAME.pad): the ignore_index of the cross_entropy that reads it, else 0. Refused, where items
 * differ in length, so that something is padded: two cross_entropies that leave out different numbers; a number other
 * than 0 where something else reads the input too and would take it for a value. A warning: a cross_entropy that counts
 * every label, padding among them. */
#ifndef TFM_TRAIN_LABELS_H
#define TFM_TRAIN_LABELS_H

#include "train/data_set.h"

/* False after an error. */
bool labels_find_padding(const DataSet *data, DataInput *input);

#endif
