/* Sources of a Decoder's rows that come and go while others are decoded.
 *
 * In: the inputs of the encoder program, in its order, for one item or some. Out: the number of the first item. Refused:
 * what arrays_read and tfm/decode.h refuse. */
#include "core.h"

#include <string.h>

/* decoder.add_source(*inputs) */
PyObject *decoder_add_source(PyObject *object, PyObject *given) {
  DecoderObject *self = (DecoderObject *)object;
  if (!decoder_enter(self)) return NULL;
  const tfm_program *encoder = tfm_model_decoding(self->model->model)->encoder;
  const uint32_t n = encoder ? encoder->n_inputs : 0;
  PyObject *objects[MOST_TENSORS], *result = NULL;
  Array arrays[MOST_TENSORS];
  tfm_value values[MOST_TENSORS];
  Slot copies = {0}; /* only its scratch is used */
  tfm_error error;
  int64_t item = -1;
  if (!encoder || PyTuple_Size(given) != (Py_ssize_t)n) {
    decoder_leave(self);
    return raise_status(TFM_E_USAGE, "a source has %d inputs, not %d", (int)n, (int)PyTuple_Size(given));
  }
  for (uint32_t i = 0; i < n; i++) {
    objects[i] = PyTuple_GetItem(given, i);
    arrays[i].held = false;
  }
  if (arrays_read(&copies, arrays, objects, encoder->inputs, n)) {
    tfm_status status;
    for (uint32_t i = 0; i < n; i++) values[i] = arrays[i].value;
    Py_BEGIN_ALLOW_THREADS status = tfm_decoder_add_source(self->decoder, values, NULL, &item, &error);
    Py_END_ALLOW_THREADS
    result = status ? raise_error(&error) : PyLong_FromLongLong(item);
  }
  for (uint32_t i = 0; i < n; i++) array_release(&arrays[i]);
  free(copies.scratch);
  decoder_leave(self);
  return result;
}

PyObject *decoder_drop_source(PyObject *object, PyObject *args) {
  DecoderObject *self = (DecoderObject *)object;
  long long item;
  tfm_error error;
  if (!PyArg_ParseTuple(args, "L:drop_source", &item) || !decoder_enter(self)) return NULL;
  const tfm_status status = tfm_decoder_drop_source(self->decoder, item, &error);
  decoder_leave(self);
  if (status) return raise_error(&error);
  Py_RETURN_NONE;
}
