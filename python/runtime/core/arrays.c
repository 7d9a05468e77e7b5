/* Arrays of the caller: read where they lie if that is safe, else copied once.
 *
 * In: any object. What has the buffer protocol, the wanted type and no gaps is taken as it is; all else goes through
 * tfmc._arrays.convert, which knows numpy, DLPack and lists. Out: a tfm_value whose memory cannot go away before
 * array_release. Refused: other types (the message has the cure), whole numbers beyond 32 bits, buffers whose shape
 * and length contradict each other, outputs that are read-only or have another shape. */
#include "core.h"

#include <stdio.h>
#include <string.h>

// ---- types ----

/* The type of the elements in the letters of tfm_dtype and i64: 'f', 'i', '?', 'l'; 0: another one. Letters for sizes
 * and byte order may stand first; this code runs on little-endian machines only. */
static char kind_of(const Py_buffer *view) {
  const char *format = view->format;
  if (!format) return 0;
  if (*format && strchr("@=<^", *format)) format++;
  if (!*format || format[1]) return 0;
  if (*format == 'f' && view->itemsize == 4) return 'f';
  if (*format == '?' && view->itemsize == 1) return '?';
  if ((*format == 'i' || *format == 'l') && view->itemsize == 4) return 'i';
  return (*format == 'l' || *format == 'q') && view->itemsize == 8 ? 'l' : 0;
}

static const char *const dtype_names[] = {"f32", "i32", "bool"};

static bool fits(char kind, uint8_t dtype) { return kind == "fi?"[dtype] || (kind == 'l' && dtype == TFM_I32); }

/* Takes the shape; false, without an exception, if the exporter says what cannot be. */
static bool read_shape(Array *array) {
  const Py_buffer *view = &array->view;
  if (view->ndim < 0 || view->ndim > TFM_MAX_RANK || (view->ndim && !view->shape)) return false;
  int64_t bytes = view->itemsize;
  for (int i = 0; i < view->ndim; i++) {
    array->dims[i] = view->shape[i];
    if (view->shape[i] < 0 || __builtin_mul_overflow(bytes, (int64_t)view->shape[i], &bytes)) return false;
  }
  return bytes == view->len && (!bytes || view->buf);
}

// ---- inputs ----

/* True: the array is held and is of the wanted type. Exceptions are cleared: convert has the better message. */
static bool take(Array *array, PyObject *object, uint8_t dtype) {
  if (PyObject_GetBuffer(object, &array->view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)) {
    PyErr_Clear();
    return false;
  }
  array->held = true;
  array->kind = kind_of(&array->view);
  if (fits(array->kind, dtype) && read_shape(array)) return true;
  array_release(array);
  return false;
}

/* A signal's exception must not be taken for that of the exporter. */
bool array_read(Array *array, PyObject *object, const tfm_tensor_info *info) {
  if (!take(array, object, info->dtype)) {
    PyObject *made = PyObject_CallFunction(shared.convert, "Osss", object, dtype_names[info->dtype], info->name,
                                           info->shape);
    if (!made) return false;
    bool ok = take(array, made, info->dtype);
    Py_DECREF(made); /* the view holds it */
    if (!ok) return raise_status(TFM_E_USAGE, "input \"%s\" cannot be read", info->name), false;
  }
  array->value = (tfm_value){array->view.buf, info->dtype, array->view.ndim, array->dims};
  return true;
}

static int64_t elements_of(const Array *array) {
  return array->view.itemsize ? array->view.len / array->view.itemsize : 0;
}

size_t array_copy_bytes(const Array *array) {
  if (array->kind == 'f') return 0;
  size_t bytes = (size_t)elements_of(array) * (array->kind == '?' ? 1 : 4);
  return (bytes + 63) & ~(size_t)63;
}

/* The accumulated bits tell whether any number lies outside, without a branch in the loop. */
static bool copy_narrowed(const Array *array, int32_t *to, const tfm_tensor_info *info) {
  const char *from = array->view.buf;
  const int64_t n = elements_of(array);
  int64_t outside = 0, number;
  for (int64_t i = 0; i < n; i++) {
    memcpy(&number, from + i * 8, 8);
    to[i] = (int32_t)number;
    outside |= number ^ to[i];
  }
  for (int64_t i = 0; outside && i < n; i++) {
    memcpy(&number, from + i * 8, 8);
    if (number == (int32_t)number) continue;
    tfm_error error = {.status = TFM_E_INPUT, .reason = TFM_REASON_VALUE};
    snprintf(error.message, sizeof error.message, "input \"%s\": %lld does not fit into i32", info->name,
             (long long)number);
    return raise_error(&error), false;
  }
  return true;
}

bool array_copy(Array *array, char *to, const tfm_tensor_info *info) {
  const unsigned char *from = array->view.buf;
  const int64_t n = elements_of(array);
  array->value.data = n ? to : NULL;
  if (array->kind == 'l') return copy_narrowed(array, (int32_t *)(void *)to, info);
  if (array->kind == 'i' && n) memcpy(to, from, (size_t)n * 4);
  for (int64_t i = 0; array->kind == '?' && i < n; i++) to[i] = from[i] != 0; /* views may hold any byte */
  return true;
}

void array_release(Array *array) {
  if (array->held) PyBuffer_Release(&array->view);
  array->held = false;
}

bool arrays_read(Slot *slot, Array *arrays, PyObject *const *objects, const tfm_tensor_info *infos, uint32_t n) {
  size_t bytes = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (!objects[i]) continue;
    if (!array_read(&arrays[i], objects[i], &infos[i])) return false;
    bytes += array_copy_bytes(&arrays[i]);
  }
  if (!slot_reserve(slot, bytes)) return false;
  char *to = slot->scratch;
  for (uint32_t i = 0; i < n; i++) {
    if (!objects[i] || arrays[i].kind == 'f') continue;
    if (!array_copy(&arrays[i], to, &infos[i])) return false;
    to += array_copy_bytes(&arrays[i]);
  }
  return true;
}

// ---- outputs ----

static PyObject *shape_of(int32_t rank, const int64_t *dims) {
  PyObject *shape = PyTuple_New(rank);
  for (int32_t i = 0; shape && i < rank; i++) {
    PyObject *dim = PyLong_FromLongLong(dims[i]);
    if (!dim) return Py_DECREF(shape), NULL;
    PyTuple_SetItem(shape, i, dim);
  }
  return shape;
}

enum { LARGE_BYTES = 4096, LINE_BYTES = 64 }; /* from here on a line of the cache more costs nothing */

/* numpy aligns to 16 bytes; large arrays begin at a line of the cache, in bytes that belong to another array. */
static PyObject *new_large(PyObject *shape, PyObject *type, int64_t bytes) {
  PyObject *size = PyLong_FromLongLong(bytes + LINE_BYTES);
  PyObject *base = size ? PyObject_CallFunctionObjArgs(shared.empty, size, shared.u8, NULL) : NULL;
  PyObject *made = NULL;
  Py_buffer view;
  Py_XDECREF(size);
  if (base && !PyObject_GetBuffer(base, &view, PyBUF_SIMPLE)) {
    const long skipped = (long)(-(uintptr_t)view.buf % LINE_BYTES);
    PyBuffer_Release(&view);
    made = PyObject_CallFunction(shared.ndarray, "OOOl", shape, type, base, skipped);
  }
  Py_XDECREF(base);
  return made;
}

/* A product that is too large is left to numpy, which says so. */
static bool is_large(int dtype, int32_t rank, const int64_t *dims, int64_t *bytes) {
  *bytes = dtype < 0 ? 8 : dtype == TFM_BOOL ? 1 : 4;
  for (int32_t i = 0; i < rank; i++)
    if (__builtin_mul_overflow(*bytes, dims[i], bytes)) return false;
  return *bytes >= LARGE_BYTES && *bytes < INT64_MAX - LINE_BYTES;
}

PyObject *array_new(Array *array, int dtype, int32_t rank, const int64_t *dims) {
  PyObject *shape = shape_of(rank, dims);
  if (!shape) return NULL;
  int64_t bytes;
  PyObject *type = dtype < 0 ? shared.i64 : shared.dtypes[dtype];
  PyObject *made = is_large(dtype, rank, dims, &bytes) ? new_large(shape, type, bytes)
                                                       : PyObject_CallFunctionObjArgs(shared.empty, shape, type, NULL);
  Py_DECREF(shape);
  if (!made) return NULL;
  if (PyObject_GetBuffer(made, &array->view, PyBUF_WRITABLE)) return Py_DECREF(made), NULL;
  array->held = true;
  array->value = (tfm_value){array->view.buf, dtype, rank, dims};
  return made;
}

static bool same_shape(const Array *array, int32_t rank, const int64_t *dims) {
  return array->view.ndim == rank && (!rank || !memcmp(array->dims, dims, sizeof *dims * (size_t)rank));
}

bool array_read_output(Array *array, PyObject *object, const tfm_tensor_info *info, const int64_t *dims) {
  if (PyObject_GetBuffer(object, &array->view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | PyBUF_WRITABLE)) {
    PyErr_Clear();
    return raise_status(TFM_E_USAGE, "out[\"%s\"] is no array that can be written to, in C order", info->name), false;
  }
  array->held = true;
  array->kind = kind_of(&array->view);
  if (array->kind == "fi?"[info->dtype] && read_shape(array) && same_shape(array, info->rank, dims)) {
    array->value = (tfm_value){array->view.buf, info->dtype, info->rank, array->dims};
    return true;
  }
  PyObject *shape = shape_of(info->rank, dims);
  if (shape) raise_status(TFM_E_USAGE, "out[\"%s\"] is not what these inputs give: %s %R, in native byte order",
                          info->name, dtype_names[info->dtype], shape);
  Py_XDECREF(shape);
  return false;
}
