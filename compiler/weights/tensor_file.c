/* In: a file of tensors. Out: the elements of one, converted piece by piece. See tensor_file.h. */
#include "weights/tensor_file.h"

#include <string.h>

void tensor_file_close(TensorFile *file) {
  if (file) in_file_close(&file->file);
}

const FileTensor *tensor_file_find(const TensorFile *file, const char *name) { return map_get(&file->by_name, name); }

const char *tensor_file_metadata(const TensorFile *file, const char *key) {
  for (size_t i = 0; i < file->metadata.n; i++)
    if (strcmp(file->metadata.items[i].key, key) == 0) return file->metadata.items[i].value;
  return NULL;
}

/* Elements that need conversion are read in pieces, so that a tensor takes no second copy of itself. */
enum { PIECE_BYTES = 1 << 18 };

typedef struct PieceReader {
  const TensorFile *file;
  Diag *diag;
  const FileTensor *tensor;
  unsigned char *bytes; /* PIECE_BYTES of them */
  int64_t end;          /* of the elements that are read */
  int64_t at;           /* the first element of the piece */
  size_t n;             /* elements in it; 0 at the end */
  size_t skip;          /* elements of its first block that stand before it */
} PieceReader;

/* Moves to the next piece, whose bytes are whole blocks; n is 0 after the last one. */
static bool next_piece(PieceReader *reader) {
  const FileBlock *block = &file_blocks[reader->tensor->dtype];
  reader->at += (int64_t)reader->n;
  reader->n = 0;
  if (reader->at == reader->end) return true;
  int64_t first = reader->at / block->elements, most = PIECE_BYTES / block->bytes;
  int64_t blocks = (reader->end - 1) / block->elements + 1 - first;
  if (blocks > most) blocks = most;
  int64_t end = (first + blocks) * block->elements;
  reader->skip = (size_t)(reader->at % block->elements);
  reader->n = (size_t)((end < reader->end ? end : reader->end) - reader->at);
  return in_file_read(&reader->file->file, reader->diag,
                      reader->file->data_begin + reader->tensor->begin + first * block->bytes, reader->bytes,
                      (size_t)(blocks * block->bytes));
}

static size_t convert_piece(const PieceReader *reader, DType dtype, void *out, int64_t *value) {
  const FileDType from = reader->tensor->dtype;
  if (!convert_has_blocks(from)) return convert_elements(from, dtype, reader->n, reader->bytes, out, value);
  convert_blocks(from, reader->skip, reader->n, reader->bytes, out);
  return reader->n;
}

static bool convert_pieces(PieceReader *reader, DType dtype, unsigned char *out) {
  const FileTensor *tensor = reader->tensor;
  const int64_t first = reader->at;
  for (;;) {
    if (!next_piece(reader)) return false;
    if (!reader->n) return true;
    int64_t value = 0;
    size_t done = convert_piece(reader, dtype, out + (size_t)(reader->at - first) * dtype_bytes[dtype], &value);
    if (done == reader->n) continue;
    diag_error_at(reader->diag, reader->file->file.path, DIAG_SAFETENSORS,
                  "tensor \"%s\": element %lld is %lld, which is no %s", tensor->name,
                  (long long)(reader->at + (int64_t)done), (long long)value,
                  dtype == DTYPE_BOOL ? "bool (0 or 1)" : "i32");
    return false;
  }
}

bool tensor_file_read(const TensorFile *file, Diag *diag, const FileTensor *tensor, DType dtype, void *out) {
  return tensor_file_read_part(file, diag, (FileTensorPart){tensor, 0, tensor->elements}, dtype, out);
}

/* The row of the file that is row `row` of a tensor whose heads are turned: of n rows of a head, those of the first
 * half stand at even places. */
static int64_t turned_row(const FileTensor *tensor, int64_t row) {
  const int64_t n = tensor->dims[0] / tensor->turned_heads, at = row % n, half = n / 2;
  return row - at + (at < half ? 2 * at : 2 * (at - half) + 1);
}

/* Row by row, or what is asked for of one. */
static bool read_turned(const TensorFile *file, Diag *diag, FileTensorPart part, DType dtype, unsigned char *out) {
  FileTensor plain = *part.tensor;
  plain.turned_heads = 0;
  const int64_t length = plain.elements / plain.dims[0];
  for (int64_t at = part.first, end = part.first + part.n; at < end;) {
    const int64_t row = at / length, skipped = at % length;
    const int64_t n = length - skipped < end - at ? length - skipped : end - at;
    const FileTensorPart piece = {&plain, turned_row(part.tensor, row) * length + skipped, n};
    if (!tensor_file_read_part(file, diag, piece, dtype, out)) return false;
    out += (size_t)n * dtype_bytes[dtype];
    at += n;
  }
  return true;
}

bool tensor_file_read_part(const TensorFile *file, Diag *diag, FileTensorPart part, DType dtype, void *out) {
  if (part.tensor->turned_heads) return read_turned(file, diag, part, dtype, out);
  const FileTensor *tensor = part.tensor;
  const int64_t first = part.first, n = part.n;
  /* Elements that need no conversion are read straight to their destination. */
  if (tensor->dtype == FILE_F32 || tensor->dtype == FILE_I32)
    return in_file_read(&file->file, diag, file->data_begin + tensor->begin + first * 4, out, (size_t)n * 4);
  Arena *scratch = arena_create();
  PieceReader reader = {file, diag, tensor, arena_alloc(scratch, PIECE_BYTES), first + n, first, 0, 0};
  bool read = convert_pieces(&reader, dtype, out);
  arena_destroy(scratch);
  return read;
}

// ---- counting ----

/* Subnormals are counted because arithmetic on them may be slow or flushed to zero; f16 has its own smallest normal
 * number. */
static void count(SpecialCounts *counts, const float *values, size_t n, float smallest_normal) {
  for (size_t i = 0; i < n; i++) {
    float magnitude = __builtin_fabsf(values[i]);
    counts->nan += __builtin_isnan(values[i]) != 0;
    counts->infinite += __builtin_isinf(values[i]) != 0;
    counts->subnormal += magnitude > 0 && magnitude < smallest_normal;
  }
}

bool tensor_file_count(const TensorFile *file, Diag *diag, const FileTensor *tensor, SpecialCounts *counts) {
  const FileBlock *block = &file_blocks[tensor->dtype];
  *counts = (SpecialCounts){0};
  Arena *scratch = arena_create();
  PieceReader reader = {file, diag, tensor, arena_alloc(scratch, PIECE_BYTES), tensor->elements, 0, 0, 0};
  float *values = ARENA_ARRAY(scratch, float, (size_t)(PIECE_BYTES / block->bytes * block->elements));
  float smallest_normal = tensor->dtype == FILE_F16 ? 0x1p-14f : 0x1p-126f;
  bool read;
  while ((read = next_piece(&reader)) && reader.n) {
    int64_t value;
    convert_piece(&reader, DTYPE_F32, values, &value);
    count(counts, values, reader.n, smallest_normal);
  }
  arena_destroy(scratch);
  return read;
}
