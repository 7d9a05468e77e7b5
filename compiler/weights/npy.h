/* Npy: one tensor in a file, as NumPy writes it.
 *
 *   \x93NUMPY | version 1, 2 or 3 | length | {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } | the data
 *
 * In: a path. Out: shape and type, then the elements, into memory of the caller. The header may hold this one
 * dictionary and no other Python. Refuses headers over 10,000 bytes (NumPy's own limit), types other than
 * little-endian f4, i4, i8, b1 and u1, column-major order, shapes that do not account for exactly the bytes that
 * follow, and archives (.npz). */
#ifndef TFM_WEIGHTS_NPY_H
#define TFM_WEIGHTS_NPY_H

#include "graph/eval.h"
#include "weights/convert.h"
#include "weights/files.h"

enum {
  NPY_MAX_HEADER = 10000, /* NumPy's default for files that are not trusted; a shape of 32 axes takes about 700 bytes */
  NPY_MAX_RANK = 32       /* NumPy's */
};

typedef struct NpyFile {
  InFile file;
  FileDType dtype;
  uint32_t rank;
  int64_t dims[NPY_MAX_RANK];
  int64_t elements;
  int64_t data_begin;
} NpyFile;

/* False after an error; otherwise the caller must close it. */
bool npy_open(NpyFile *npy, Diag *diag, const char *path);
void npy_close(NpyFile *npy);
/* Reads all elements into `out` as f32, i32 or bool; can_convert must have said yes. False after an error. */
bool npy_read(const NpyFile *npy, Diag *diag, DType dtype, void *out);
/* The file is complete or absent. False after an error. */
bool npy_write(Diag *diag, const char *path, const Tensor *tensor);

#endif
