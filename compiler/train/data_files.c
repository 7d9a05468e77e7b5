/* In: safetensors files. Out: the items that they hold, checked. Refused, with the file and the
 * tensor: tensors that are missing, of another shape or type, lengths that do not fit, ids and numbers that no run may
 * have. See data.h. */
#include "train/data.h"
#include "train/padding.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked_size.h"
#include "base/hash.h"
#include "train/labels.h"
#include "weights/safetensors.h"

static Arena *arena_of(const DataSet *data) { return data->request.arena; }
static Diag *diag_of(const DataSet *data) { return data->request.diag; }
static const char *name_of(const DataInput *input) { return input->node->attr.name; }

// ---- the tensors of a file ----

/* The shape that the tensor of an input must have: "i32[*, 64]". */
static const char *wanted(const DataSet *data, const DataInput *input) {
  StrBuf out = strbuf_new(arena_of(data));
  strbuf_printf(&out, "%s[%s", dtype_names[input->node->dtype], input->symbol >= 0 ? "sum of the lengths" : "items");
  for (uint32_t i = input->symbol >= 0 ? 2 : 1; i < input->node->rank; i++) {
    strbuf_add(&out, ", ");
    size_print(&out, data->request.graph->sizes, input->node->dims[i]);
  }
  strbuf_add_char(&out, ']');
  return out.text;
}

static bool has_shape(const DataInput *input, const FileTensor *tensor) {
  const uint32_t skipped = input->symbol >= 0 ? 1 : 0;
  if (tensor->rank + skipped != input->node->rank) return false;
  for (uint32_t i = 1; i < tensor->rank; i++)
    if (!size_equals(input->node->dims[i + skipped], tensor->dims[i])) return false;
  return true;
}

static void report_shape(const DataSet *data, const char *path, const DataInput *input, const FileTensor *tensor) {
  StrBuf shape = strbuf_new(arena_of(data));
  print_dims(&shape, tensor->dims, tensor->rank);
  diag_error_at(diag_of(data), path, DIAG_INPUT_SHAPE, "input \"%s\": shape %s, the data must be %s%s", name_of(input),
                shape.text, wanted(data, input), input->symbol >= 0 ? ", the items one behind the other" : "");
}

/* NULL after an error. */
static const FileTensor *find_tensor(const DataSet *data, const TensorFile *file, const DataInput *input) {
  const char *path = file->file.path, *name = name_of(input);
  const FileTensor *tensor = tensor_file_find(file, name);
  if (!tensor) {
    diag_error_at(diag_of(data), path, DIAG_INPUT_MISSING, "input \"%s\": %s is not there", name, wanted(data, input));
    return NULL;
  }
  const DType dtype = input->node->dtype;
  const bool is_type = can_convert(tensor->dtype, dtype) && (dtype != DTYPE_F32 || tensor->dtype == FILE_F32);
  if (!is_type)
    diag_error_at(diag_of(data), path, DIAG_INPUT_TYPE, "input \"%s\": type %s, the objective wants %s", name,
                  tensor->dtype_name, dtype_names[dtype]);
  else if (!has_shape(input, tensor))
    report_shape(data, path, input, tensor);
  else
    return tensor;
  return NULL;
}

typedef struct Items { /* of one input in one file */
  int64_t n;
  int64_t *starts, *lengths;
} Items;

static Items *items_new(const DataSet *data, int64_t n) {
  Items *items = ARENA_NEW(arena_of(data), Items);
  *items = (Items){n, ARENA_ARRAY(arena_of(data), int64_t, n + 1), ARENA_ARRAY(arena_of(data), int64_t, n + 1)};
  return items;
}

/* Windows of T + 1 places that begin every T: the last of one is the first of the next, as labels want it. */
static Items *cut_windows(const DataSet *data, int64_t places) {
  const int64_t width = data->request.window;
  Items *items = items_new(data, places > width ? (places - 1) / width : 0);
  for (int64_t i = 0; i < items->n; i++) {
    items->starts[i] = i * width;
    items->lengths[i] = width + 1;
  }
  return items;
}

/* NULL after an error. */
static Items *read_lengths(const DataSet *data, const TensorFile *file, const DataInput *input, int64_t places) {
  const char *path = file->file.path;
  const char *name = arena_printf(arena_of(data), "%s.lengths", name_of(input));
  const FileTensor *tensor = tensor_file_find(file, name);
  if (!tensor && data->request.window) return cut_windows(data, places);
  if (!tensor || tensor->rank != 1 || !can_convert(tensor->dtype, DTYPE_I32)) {
    diag_error_at(diag_of(data), path, tensor ? DIAG_INPUT_SHAPE : DIAG_INPUT_MISSING,
                  "\"%s\": i32[items] is needed, how long each item of \"%s\" is%s", name, name_of(input),
                  tensor ? "" : "; or --window for one long text");
    return NULL;
  }
  Items *items = items_new(data, tensor->elements);
  int32_t *lengths = ARENA_ARRAY(arena_of(data), int32_t, tensor->elements + 1);
  if (!tensor_file_read(file, diag_of(data), tensor, DTYPE_I32, lengths)) return NULL;
  int64_t sum = 0;
  for (int64_t i = 0; i < items->n; i++) {
    items->starts[i] = sum;
    items->lengths[i] = lengths[i];
    sum += lengths[i];
    if (lengths[i] >= 0) continue;
    diag_error_at(diag_of(data), path, DIAG_INPUT_VALUE, "\"%s\": item %lld has the length %d", name, (long long)i,
                  lengths[i]);
    return NULL;
  }
  if (sum == places) return items;
  diag_error_at(diag_of(data), path, DIAG_INPUT_SHAPE, "\"%s\": the lengths add up to %lld, but \"%s\" has %lld", name,
                (long long)sum, name_of(input), (long long)places);
  return NULL;
}

static Items *items_of(const DataSet *data, const TensorFile *file, const DataInput *input) {
  const FileTensor *tensor = find_tensor(data, file, input);
  if (!tensor) return NULL;
  if (input->symbol >= 0) return read_lengths(data, file, input, tensor->dims[0]);
  Items *items = items_new(data, tensor->dims[0]);
  for (int64_t i = 0; i < items->n; i++) items->starts[i] = i;
  return items;
}

/* Inputs have as many items as each other; those that share a size, the same lengths. */
static bool agree(const DataSet *data, const char *path, Items *const *of) {
  for (uint32_t i = 0; i < data->request.n_inputs; i++) {
    for (uint32_t k = 0; k < i; k++) {
      const DataInput *a = &data->inputs[k], *b = &data->inputs[i];
      if (of[k]->n != of[i]->n) {
        diag_error_at(diag_of(data), path, DIAG_INPUT_SHAPE, "\"%s\" has %lld items, \"%s\" has %lld", name_of(a),
                      (long long)of[k]->n, name_of(b), (long long)of[i]->n);
        return false;
      }
      for (int64_t item = 0; a->symbol >= 0 && a->symbol == b->symbol && item < of[i]->n; item++) {
        if (of[k]->lengths[item] == of[i]->lengths[item]) continue;
        diag_error_at(diag_of(data), path, DIAG_INPUT_SHAPE,
                      "item %lld: \"%s\" has the length %lld, \"%s\" %lld, but both are the size '%s'", (long long)item,
                      name_of(a), (long long)of[k]->lengths[item], name_of(b), (long long)of[i]->lengths[item],
                      data->request.graph->sizes->symbols[a->symbol]);
        return false;
      }
    }
  }
  return true;
}

// ---- what the tensors hold ----

/* The item that has this element of the tensor. */
static int64_t item_with(const DataInput *input, const Items *items, int64_t element) {
  const int64_t place = element / input->numbers;
  int64_t item = 0;
  while (item + 1 < items->n && items->starts[item + 1] <= place) item++;
  return item;
}

/* Elements first .. first + n - 1 of an input. */
typedef struct Piece {
  const DataSet *data;
  const TensorFile *file;
  const DataInput *input;
  const Items *items;
  int64_t first, n;
} Piece;

static int64_t item_of(const Piece *p, int64_t i) { return item_with(p->input, p->items, p->first + i); }

/* Where within its item an element stands. */
static long long place_of(const Piece *p, int64_t i) {
  return (long long)((p->first + i) / p->input->numbers - p->items->starts[item_of(p, i)]);
}

static bool check_ids(const Piece *p, const int32_t *ids) {
  const DataInput *input = p->input;
  for (int64_t i = 0; i < p->n && input->limit >= 0; i++) {
    if ((ids[i] >= 0 && ids[i] < input->limit) || (input->has_ignored && ids[i] == input->ignored)) continue;
    diag_error_at(diag_of(p->data), p->file->file.path, DIAG_INPUT_VALUE,
                  "\"%s\": item %lld holds the id %d at place %lld; ids must be in 0..%lld", name_of(input),
                  (long long)item_of(p, i), ids[i], place_of(p, i), (long long)input->limit - 1);
    return false;
  }
  return true;
}

static bool check_numbers(const Piece *p, const float *numbers) {
  for (int64_t i = 0; i < p->n; i++) {
    if (isfinite(numbers[i]) || (p->input->may_be_infinite && isinf(numbers[i]))) continue;
    const char *what = isnan(numbers[i]) ? "nan" : numbers[i] > 0 ? "inf" : "-inf";
    diag_error_at(diag_of(p->data), p->file->file.path, DIAG_INPUT_VALUE,
                  "\"%s\": item %lld holds %s at place %lld: numbers of an input must be finite", name_of(p->input),
                  (long long)item_of(p, i), what, place_of(p, i));
    return false;
  }
  return true;
}

/* A part of a tensor. What needs no conversion comes straight from the file. */
bool data_read_part(const DataSet *data, const TensorFile *file, const DataInput *input, int64_t first, int64_t n,
                    void *to) {
  static const FileDType same[N_DTYPES] = {[DTYPE_F32] = FILE_F32, [DTYPE_I32] = FILE_I32};
  const FileTensor *tensor = tensor_file_find(file, name_of(input));
  const DType dtype = input->node->dtype;
  const int64_t bytes = (int64_t)dtype_bytes[dtype];
  if (dtype == DTYPE_BOOL || tensor->dtype != same[dtype])
    return tensor_file_read_part(file, diag_of(data), (FileTensorPart){tensor, first, n}, dtype, to);
  return in_file_read(&file->file, diag_of(data), file->data_begin + tensor->begin + first * bytes, to,
                      (size_t)(n * bytes));
}

/* Every number is read once, so that nothing is found out in the middle of a run. */
static bool scan(DataSet *data, const TensorFile *file, const DataInput *input, const Items *items) {
  enum { PIECE = 1 << 16 };
  Arena *arena = arena_create();
  const FileTensor *tensor = tensor_file_find(file, name_of(input));
  const DType dtype = input->node->dtype;
  void *piece = arena_array(arena, PIECE, dtype_bytes[dtype]);
  bool good = true;
  data->hash = hash_bytes(data->hash, name_of(input), strlen(name_of(input)) + 1);
  for (int64_t i = 0; i < items->n; i++) {
    const int64_t extent[] = {items->starts[i], items->lengths[i]};
    data->hash = hash_bytes(data->hash, extent, sizeof extent);
  }
  for (int64_t first = 0; first < tensor->elements && good; first += PIECE) {
    const int64_t n = tensor->elements - first < PIECE ? tensor->elements - first : PIECE;
    const Piece read = {data, file, input, items, first, n};
    good = data_read_part(data, file, input, first, n, piece) && (dtype != DTYPE_I32 || check_ids(&read, piece)) &&
           (dtype != DTYPE_F32 || check_numbers(&read, piece));
    data->hash = hash_bytes(data->hash, piece, (size_t)n * dtype_bytes[dtype]);
  }
  arena_destroy(arena);
  return good;
}

static int64_t *joined(const DataSet *data, const int64_t *a, const int64_t *b, int64_t n) {
  int64_t *all = ARENA_ARRAY(arena_of(data), int64_t, data->n_items + n + 1);
  if (data->n_items) memcpy(all, a, (size_t)data->n_items * sizeof *all);
  if (n) memcpy(all + data->n_items, b, (size_t)n * sizeof *all);
  return all;
}

bool data_add_file(DataSet *data, const char *path) {
  const uint32_t n = data->request.n_inputs;
  TensorFile *file = safetensors_open(arena_of(data), diag_of(data), path);
  if (!file) return false;
  vec_push(arena_of(data), &data->files, file);
  vec_push(arena_of(data), &data->firsts, data->n_items);
  vec_push(arena_of(data), &data->begins, data->n_items);
  Items **of = ARENA_ARRAY(arena_of(data), Items *, n + 1);
  bool good = true;
  for (uint32_t i = 0; i < n; i++) {
    of[i] = items_of(data, file, &data->inputs[i]);
    good = good && of[i];
  }
  if (!good || !n || !agree(data, path, of) || !padding_read(data, file)) return false;
  for (uint32_t i = 0; i < n; i++) {
    DataInput *input = &data->inputs[i];
    if (!scan(data, file, input, of[i])) return false;
    input->starts = joined(data, input->starts, of[i]->starts, of[i]->n);
    input->lengths = joined(data, input->lengths, of[i]->lengths, of[i]->n);
  }
  data->n_items += of[0]->n;
  return true;
}
