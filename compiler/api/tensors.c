#include "api/tensors.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/fault.h"
#include "api/nameless.h"

/* The types that a tensor in memory may have, and their bytes. */
static const struct {
  const char *name;
  unsigned bytes;
} types[] = {{"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F64", 8}, {"I64", 8}, {"I32", 4}, {"U8", 1}, {"BOOL", 1}};

enum { N_TYPES = sizeof types / sizeof *types, MAX_TENSOR_RANK = 64 };

static const char *type_of(const tfm_tensor *tensor) { return tensor->dtype ? tensor->dtype : "F32"; }

/* -1: no such type, a bad size, or too many bytes. */
static int64_t bytes_of(const tfm_tensor *tensor) {
  int64_t bytes = -1;
  for (int i = 0; i < N_TYPES; i++)
    if (strcmp(type_of(tensor), types[i].name) == 0) bytes = types[i].bytes;
  if (bytes < 0 || tensor->rank < 0 || tensor->rank > MAX_TENSOR_RANK || (tensor->rank && !tensor->dims)) return -1;
  for (int32_t i = 0; i < tensor->rank; i++)
    if (tensor->dims[i] < 0 || __builtin_mul_overflow(bytes, tensor->dims[i], &bytes)) return -1;
  return bytes;
}

static tfm_status check(const tfm_tensor *tensors, size_t n, tfm_error *error) {
  int64_t total = 0;
  for (size_t i = 0; i < n; i++) {
    if (!tensors[i].name) return fault(error, TFM_E_USAGE, "tensor %zu of the weights has no name", i);
    int64_t bytes = bytes_of(&tensors[i]);
    if (bytes < 0 || __builtin_add_overflow(total, bytes, &total))
      return fault(error, TFM_E_USAGE, "weight %s: its type or its dims cannot be used", tensors[i].name);
    if (bytes && !tensors[i].data) return fault(error, TFM_E_USAGE, "weight %s has no data", tensors[i].name);
  }
  return TFM_OK;
}

/* A JSON text; bytes beyond ASCII stay as they are. */
static void print_name(FILE *out, const char *name) {
  fputc('"', out);
  for (const unsigned char *c = (const unsigned char *)name; *c; c++) {
    if (*c == '"' || *c == '\\') fprintf(out, "\\%c", *c);
    else if (*c < 0x20) fprintf(out, "\\u%04x", *c);
    else fputc(*c, out);
  }
  fputc('"', out);
}

static void print_header(FILE *out, const tfm_tensor *tensors, size_t n) {
  int64_t end = 0;
  fputc('{', out);
  for (size_t i = 0; i < n; i++) {
    if (i) fputc(',', out);
    print_name(out, tensors[i].name);
    fprintf(out, ":{\"dtype\":\"%s\",\"shape\":[", type_of(&tensors[i]));
    for (int32_t k = 0; k < tensors[i].rank; k++) fprintf(out, k ? ",%" PRId64 : "%" PRId64, tensors[i].dims[k]);
    fprintf(out, "],\"data_offsets\":[%" PRId64, end);
    end += bytes_of(&tensors[i]);
    fprintf(out, ",%" PRId64 "]}", end);
  }
  fputc('}', out);
}

tfm_status tensors_write(int file, const tfm_tensor *tensors, size_t n, tfm_error *error) {
  tfm_status status = check(tensors, n, error);
  if (status != TFM_OK) return status;
  char *header = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&header, &size);
  if (out) print_header(out, tensors, n);
  bool ok = out && !ferror(out);
  if (out && fclose(out)) ok = false;
  if (!ok) status = fault(error, TFM_E_NOMEM, "not enough memory for the names of the weights");
  unsigned char length[8];
  for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)size >> (8 * i));
  if (status == TFM_OK) status = nameless_write(file, length, sizeof length, error);
  if (status == TFM_OK) status = nameless_write(file, header, size, error);
  for (size_t i = 0; status == TFM_OK && i < n; i++)
    status = nameless_write(file, tensors[i].data, (size_t)bytes_of(&tensors[i]), error);
  free(header);
  return status;
}
