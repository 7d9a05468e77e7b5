/* The dictionary in the header of an .npy file. */
#ifndef TFM_WEIGHTS_NPY_HEADER_H
#define TFM_WEIGHTS_NPY_HEADER_H

#include "weights/npy.h"

/* Sets dtype, rank and dims from the text of the header. False after an error. */
bool npy_read_dictionary(NpyFile *npy, Diag *diag, const char *text, size_t size);

#endif
