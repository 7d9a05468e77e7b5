/* In: words of few bits, scales, zero points. Out: numbers. See packed_weight.h.
 *
 * q of row o and column i of a weight [rows, columns], `per` numbers to a word, the lowest bits first:
 *   compressed-tensors   number i % per of word [o][i / per]; less 2^(bits-1)
 *   GPTQ                 number i % per of word [i / per][o]
 *   AWQ                  word [i][o / 8]; within it the columns 0, 2, 4, 6, 1, 3, 5, 7 follow each other
 *   MXFP4                byte [expert][o][i / 2], the low half first; a sign, two bits of exponent, one of mantissa
 * Scales and zero points are by [row][group] in compressed-tensors, by [group][row] in GPTQ and AWQ. */
#include "weights/packed_weight.h"

#include <string.h>

#include "tfm/abi/half.h"

const PackedNames packed_names[] = {
    [PACKED_COMPRESSED] = {"", {"_packed", "_scale", "_zero_point", "_g_idx", "_shape"}},
    [PACKED_GPTQ] = {".weight", {".qweight", ".scales", ".qzeros", ".g_idx", NULL}},
    [PACKED_GPTQ_V2] = {".weight", {".qweight", ".scales", ".qzeros", ".g_idx", NULL}},
    [PACKED_AWQ] = {".weight", {".qweight", ".scales", ".qzeros", NULL, NULL}},
    [PACKED_MXFP4] = {"", {"_blocks", "_scales", NULL, NULL, NULL}},
};

PackedMethod packed_method(const char *name, size_t *ending) {
  static const PackedMethod methods[] = {PACKED_COMPRESSED, PACKED_GPTQ, PACKED_MXFP4};
  const size_t length = strlen(name);
  for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
    const char *words = packed_names[methods[i]].endings[PACKED_WORDS];
    *ending = strlen(words);
    if (length > *ending && strcmp(name + length - *ending, words) == 0) return methods[i];
  }
  return PACKED_NONE;
}

// ---- shapes ----

static int64_t words_for(int64_t n, int bits) { return n / (32 / bits) + (n % (32 / bits) != 0); }

static bool has_shape(const FileTensor *tensor, FileDType dtype, int64_t rows, int64_t columns) {
  return tensor->dtype == dtype && tensor->rank == 2 && tensor->dims[0] == rows && tensor->dims[1] == columns;
}

static const char *shape_fault(Arena *arena, const FileTensor *tensor) {
  StrBuf shape = strbuf_new(arena);
  print_dims(&shape, tensor->dims, tensor->rank);
  return arena_printf(arena, "\"%s\", %s %s, does not fit what stands beside it", tensor->name, tensor->dtype_name,
                      shape.text);
}

static const FileTensor *part(const PackedWeight *w, PackedRole role) { return w->parts[role].tensor; }

static void *bytes_of(Arena *arena, Diag *diag, const PackedPart *from) {
  const size_t size = (size_t)(from->tensor->end - from->tensor->begin);
  void *bytes = arena_alloc(arena, size);
  const int64_t at = from->file->data_begin + from->tensor->begin;
  return in_file_read(&from->file->file, diag, at, bytes, size) ? bytes : NULL;
}

/* Whether each group, of the config's size, is whole or the last. */
static bool has_groups(const PackedWeight *w) {
  const int64_t size = w->config.group > 0 ? w->config.group : w->columns;
  return w->groups == w->columns / size + (w->columns % size != 0);
}

/* compressed-tensors: the shape is a tensor of its own, because a row ends within a word. */
static const char *check_compressed(Arena *arena, Diag *diag, PackedWeight *w) {
  const FileTensor *shape = part(w, PACKED_SHAPE), *words = part(w, PACKED_WORDS), *scales = part(w, PACKED_SCALES);
  const FileTensor *zeros = part(w, PACKED_ZEROS);
  int32_t dims[2] = {0, 0};
  if (!can_convert(shape->dtype, DTYPE_I32) || shape->rank != 1 || shape->dims[0] != 2)
    return shape_fault(arena, shape);
  if (!tensor_file_read(w->parts[PACKED_SHAPE].file, diag, shape, DTYPE_I32, dims)) return shape_fault(arena, shape);
  if (part(w, PACKED_ORDER))
    return arena_printf(arena, "its columns are in another order (\"%s\"), which is not read",
                        part(w, PACKED_ORDER)->name);
  if (dims[0] <= 0 || dims[1] <= 0) return shape_fault(arena, shape);
  w->rows = dims[0];
  w->columns = dims[1];
  if (!has_shape(words, FILE_I32, w->rows, words_for(w->columns, w->config.bits))) return shape_fault(arena, words);
  const bool is_single = scales->rank < 2 && scales->elements == 1;
  if (scales->rank > 2 || (!is_single && (scales->dims[0] != w->rows || scales->elements % w->rows)))
    return shape_fault(arena, scales);
  w->groups = is_single ? 0 : scales->elements / w->rows;
  if (!is_single && (!w->groups || w->columns % w->groups || (w->config.group && !has_groups(w))))
    return shape_fault(arena, scales);
  if (!is_single && w->config.group > 0 && w->groups * w->config.group != w->columns) return shape_fault(arena, scales);
  if (zeros && (is_single || !(has_shape(zeros, FILE_I8, w->rows, w->groups) ||
                               has_shape(zeros, FILE_I32, words_for(w->rows, w->config.bits), w->groups))))
    return shape_fault(arena, zeros);
  return NULL;
}

static const char *check_by_columns(Arena *arena, PackedWeight *w) {
  const FileTensor *words = part(w, PACKED_WORDS), *scales = part(w, PACKED_SCALES), *zeros = part(w, PACKED_ZEROS);
  const FileTensor *order = part(w, PACKED_ORDER);
  const int per = 32 / w->config.bits;
  if (words->rank != 2 || words->dtype != FILE_I32 || !words->elements) return shape_fault(arena, words);
  const bool is_awq = w->config.method == PACKED_AWQ;
  if (words->dims[!is_awq ? 0 : 1] > INT32_MAX / per) return shape_fault(arena, words);
  w->rows = words->dims[1] * (is_awq ? per : 1);
  w->columns = words->dims[0] * (is_awq ? 1 : per);
  if (scales->rank != 2 || scales->dims[1] != w->rows || !scales->dims[0]) return shape_fault(arena, scales);
  w->groups = scales->dims[0];
  if (!has_shape(zeros, FILE_I32, w->groups, words_for(w->rows, w->config.bits))) return shape_fault(arena, zeros);
  if (order && (order->dtype != FILE_I32 || order->rank != 1 || order->dims[0] != w->columns))
    return shape_fault(arena, order);
  if ((!order || w->config.group) && !has_groups(w)) return shape_fault(arena, scales);
  return NULL;
}

static const char *check_blocks(Arena *arena, PackedWeight *w) {
  enum { BLOCK_BYTES = 16 };
  const FileTensor *words = part(w, PACKED_WORDS), *scales = part(w, PACKED_SCALES);
  if (words->rank != 4 || words->dtype != FILE_U8 || words->dims[3] != BLOCK_BYTES) return shape_fault(arena, words);
  if (scales->rank != 3 || scales->dtype != FILE_U8 || memcmp(scales->dims, words->dims, 3 * sizeof *words->dims) != 0)
    return shape_fault(arena, scales);
  w->experts = words->dims[0];
  w->rows = words->dims[1];
  w->groups = words->dims[2];
  w->columns = 2 * BLOCK_BYTES * w->groups;
  return NULL;
}

/* Columns of a group, unless a tensor says which those are. */
static int64_t size_of_group(const PackedWeight *w) {
  if (w->config.method == PACKED_COMPRESSED) return w->groups ? w->columns / w->groups : w->columns;
  return w->config.group > 0 && w->config.group < w->columns ? w->config.group : w->columns;
}

/* Whether columns are in the order of their groups; false too if that cannot be read, which is said when they are. */
static bool is_in_order(Arena *arena, const PackedWeight *w, int64_t size) {
  const FileTensor *order = part(w, PACKED_ORDER);
  if (!order) return true;
  Diag quiet = diag_new(arena);
  int32_t *groups = ARENA_ARRAY(arena, int32_t, w->columns);
  if (!tensor_file_read(w->parts[PACKED_ORDER].file, &quiet, order, DTYPE_I32, groups)) return false;
  for (int64_t i = 0; i < w->columns; i++)
    if (groups[i] != i / size) return false;
  return true;
}

/* Whether zero points that are bytes are such as 4 bits have, which others always are. */
static bool has_usual_zeros(Arena *arena, const PackedWeight *w) {
  enum { MOST = 8 };
  const FileTensor *tensor = part(w, PACKED_ZEROS);
  if (!tensor || tensor->dtype != FILE_I8) return true;
  Diag quiet = diag_new(arena);
  const int8_t *zeros = bytes_of(arena, &quiet, &w->parts[PACKED_ZEROS]);
  for (int64_t i = 0; zeros && i < tensor->elements; i++)
    if (zeros[i] < -MOST || zeros[i] > MOST) return false;
  return zeros != NULL;
}

/* Of 4 bits alone, as forms have none of others. */
static int64_t whole_groups(Arena *arena, const PackedWeight *w) {
  int64_t a = size_of_group(w), b = w->columns;
  if (w->config.method == PACKED_MXFP4 || w->config.bits != 4) return 1;
  if (!is_in_order(arena, w, a) || !has_usual_zeros(arena, w)) return 1;
  for (int64_t rest; (rest = b % a); b = a, a = rest) continue;
  return a;
}

static const char *missing_part(Arena *arena, const PackedWeight *w) {
  for (PackedRole role = 0; role < N_PACKED_ROLES; role++) {
    const bool may_lack =
        role == PACKED_ORDER ? !w->config.needs_order : role == PACKED_ZEROS && !w->config.needs_zeros;
    const char *ending = packed_names[w->config.method].endings[role];
    if (ending && !may_lack && !part(w, role))
      return arena_printf(arena, "there is no tensor with the ending \"%s\" beside it", ending);
  }
  return NULL;
}

const char *packed_weight_check(Arena *arena, Diag *diag, PackedWeight *w, FileTensor *tensor) {
  const char *fault = w->config.fault ? w->config.fault : missing_part(arena, w);
  if (fault) return fault;
  const FileTensor *scales = part(w, PACKED_SCALES);
  const bool is_blocks = w->config.method == PACKED_MXFP4;
  w->experts = 1;
  if (is_blocks) fault = check_blocks(arena, w);
  else if (w->config.method == PACKED_COMPRESSED) fault = check_compressed(arena, diag, w);
  else fault = check_by_columns(arena, w);
  const FileDType dtype = is_blocks ? FILE_BF16 : scales->dtype;
  if (!fault && dtype != FILE_F16 && dtype != FILE_BF16 && dtype != FILE_F32) fault = shape_fault(arena, scales);
  if (fault) return fault;
  int64_t *dims = ARENA_ARRAY(arena, int64_t, 3);
  tensor->rank = 0;
  if (is_blocks) dims[tensor->rank++] = w->experts;
  dims[tensor->rank++] = is_blocks ? w->columns : w->rows;
  dims[tensor->rank++] = is_blocks ? w->rows : w->columns;
  tensor->dims = dims;
  tensor->elements = w->experts * w->rows * w->columns;
  tensor->dtype = dtype;
  tensor->dtype_name = file_dtype_names[dtype];
  w->whole_groups = whole_groups(arena, w);
  return NULL;
}

// ---- loading ----

/* GPTQ's g_idx, or groups one after the other. NULL after an error. */
static int32_t *load_order(const PackedWeight *w, Diag *diag, Arena *arena) {
  const FileTensor *order = part(w, PACKED_ORDER);
  int32_t *groups = ARENA_ARRAY(arena, int32_t, w->columns);
  const int64_t size = size_of_group(w);
  for (int64_t i = 0; i < w->columns; i++) groups[i] = w->groups ? (int32_t)(i / size) : 0;
  if (!order) return groups;
  if (!tensor_file_read(w->parts[PACKED_ORDER].file, diag, order, DTYPE_I32, groups)) return NULL;
  for (int64_t i = 0; i < w->columns; i++)
    if (groups[i] < 0 || groups[i] >= w->groups) {
      diag_error_at(diag, w->parts[PACKED_ORDER].file->file.path, DIAG_SAFETENSORS,
                    "tensor \"%s\": column %lld is of group %d, and there are %lld", order->name, (long long)i,
                    groups[i], (long long)w->groups);
      return NULL;
    }
  return groups;
}

static int32_t number_in(const uint32_t *words, int64_t at, int bits) {
  const int shift = bits == 2 ? 4 : bits == 4 ? 3 : 2; /* of the numbers in a word */
  const unsigned place = (unsigned)(at & ((1 << shift) - 1));
  return (int32_t)(words[at >> shift] >> place * (unsigned)bits & ((1u << bits) - 1));
}

static int awq_place(int64_t column) { return (int)(column % 8 / 2 + column % 2 * 4); }

/* Zero points as whole numbers, with the offset of compressed-tensors. */
static int32_t zero_at(const PackedWeight *w, const void *kept, int64_t group, int64_t row) {
  const int bits = w->config.bits, per = 32 / bits, offset = 1 << (bits - 1);
  const int64_t in_row = words_for(w->rows, bits);
  const uint32_t *words = kept;
  switch (w->config.method) {
    case PACKED_COMPRESSED:
      if (part(w, PACKED_ZEROS)->dtype == FILE_I8)
        return ((const int8_t *)kept)[row * w->groups + group] + offset;
      return number_in(words + row / per * w->groups + group, row % per, bits);
    case PACKED_AWQ: return number_in(words + group * in_row + row / 8, awq_place(row), bits);
    case PACKED_GPTQ: return number_in(words + group * in_row, row, bits) + 1;
    default: return number_in(words + group * in_row, row, bits);
  }
}

static bool load_zeros(const PackedWeight *w, Diag *diag, PackedCache *cache) {
  const FileTensor *tensor = part(w, PACKED_ZEROS);
  const int64_t groups = w->groups ? w->groups : 1;
  cache->zeros = ARENA_ARRAY(cache->arena, int32_t, groups * w->rows);
  const void *kept = tensor ? bytes_of(cache->arena, diag, &w->parts[PACKED_ZEROS]) : NULL;
  if (tensor && !kept) return false;
  for (int64_t g = 0; g < groups; g++)
    for (int64_t o = 0; o < w->rows; o++) {
      const int32_t none = 1 << (w->config.bits - 1), zero = tensor ? zero_at(w, kept, g, o) : none;
      if (w->config.no_zeros && zero != none) {
        diag_error_at(diag, w->parts[PACKED_ZEROS].file->file.path, DIAG_SAFETENSORS,
                      "tensor \"%s\": row %lld, group %lld has a zero point, and the config says that weights are "
                      "symmetric",
                      tensor->name, (long long)o, (long long)g);
        return false;
      }
      if (w->config.method == PACKED_GPTQ && zero == 1 << w->config.bits) {
        diag_error_at(diag, w->parts[PACKED_ZEROS].file->file.path, DIAG_SAFETENSORS,
                      "tensor \"%s\": the zero point of row %lld, group %lld is 0, which libraries write in different "
                      "ways in this format of GPTQ; the format gptq_v2 is clear",
                      tensor->name, (long long)o, (long long)g);
        return false;
      }
      cache->zeros[g * w->rows + o] = zero;
    }
  return true;
}

static bool load_scales(const PackedWeight *w, Diag *diag, PackedCache *cache) {
  const PackedPart *from = &w->parts[PACKED_SCALES];
  const int64_t groups = w->groups ? w->groups : 1, n = groups * w->rows;
  float *scales = ARENA_ARRAY(cache->arena, float, n);
  cache->scales = scales;
  if (w->config.method != PACKED_COMPRESSED) return tensor_file_read(from->file, diag, from->tensor, DTYPE_F32, scales);
  float *by_rows = ARENA_ARRAY(cache->arena, float, n);
  if (!tensor_file_read(from->file, diag, from->tensor, DTYPE_F32, by_rows)) return false;
  for (int64_t g = 0; g < groups; g++)
    for (int64_t o = 0; o < w->rows; o++) scales[g * w->rows + o] = by_rows[w->groups ? o * groups + g : 0];
  return true;
}

/* Of a scale of MXFP4 the greatest number is no power of two. */
static bool load_powers(const PackedWeight *w, Diag *diag, PackedCache *cache) {
  const PackedPart *from = &w->parts[PACKED_SCALES];
  const unsigned char *bytes = bytes_of(cache->arena, diag, from);
  cache->scales = ARENA_ARRAY(cache->arena, float, from->tensor->elements);
  for (int64_t i = 0; bytes && i < from->tensor->elements; i++) {
    if (bytes[i] == 255) {
      diag_error_at(diag, from->file->file.path, DIAG_SAFETENSORS, "tensor \"%s\": scale %lld is 255, which is NaN",
                    from->tensor->name, (long long)i);
      return false;
    }
    cache->scales[i] = bytes[i] ? half_float_of((uint32_t)bytes[i] << 23) : 0x1p-127f;
  }
  return bytes != NULL;
}

static bool load(const PackedWeight *w, Diag *diag) {
  PackedCache *cache = w->cache;
  if (cache->owner == w) return true;
  if (!cache->arena) cache->arena = arena_create();
  arena_reset(cache->arena);
  cache->owner = NULL;
  cache->words = bytes_of(cache->arena, diag, &w->parts[PACKED_WORDS]);
  if (!cache->words) return false;
  if (w->config.method == PACKED_MXFP4) {
    if (!load_powers(w, diag, cache)) return false;
  } else {
    cache->order = load_order(w, diag, cache->arena);
    if (!cache->order || !load_scales(w, diag, cache) || !load_zeros(w, diag, cache)) return false;
  }
  cache->owner = w;
  return true;
}

void packed_cache_close(PackedCache *cache) { arena_destroy(cache->arena); }

// ---- numbers ----

static int32_t quantum(const PackedWeight *w, int64_t row, int64_t column) {
  const int bits = w->config.bits, per = 32 / bits;
  const uint32_t *words = w->cache->words;
  switch (w->config.method) {
    case PACKED_COMPRESSED: return number_in(words + row * words_for(w->columns, bits), column, bits);
    case PACKED_AWQ: return number_in(words + column * (w->rows / 8) + row / 8, awq_place(row), bits);
    default: return number_in(words + column / per * w->rows + row, column % per, bits);
  }
}

/* As the libraries compute it: in the type of the scale. */
static float rounded(FileDType type, float value) {
  if (type == FILE_F16) return f16_to_f32(f32_to_f16(value));
  return type == FILE_BF16 ? bf16_to_f32(f32_to_bf16(value)) : value;
}

static float value_at(const PackedWeight *w, int64_t row, int64_t column) {
  const PackedCache *cache = w->cache;
  const int64_t at = cache->order[column] * w->rows + row;
  const int32_t steps = quantum(w, row, column) - cache->zeros[at];
  return rounded(part(w, PACKED_SCALES)->dtype, (float)steps * cache->scales[at]);
}

/* A number of MXFP4: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives, times a power of two. */
static float value_in_block(const PackedWeight *w, int64_t expert, int64_t row, int64_t column) {
  static const float numbers[] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                  -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
  const int64_t line = expert * w->rows + row;
  const unsigned char pair = ((const unsigned char *)w->cache->words)[(line * w->columns + column) / 2];
  return numbers[column % 2 ? pair >> 4 : pair & 15] * w->cache->scales[line * w->groups + column / 32];
}

bool packed_weight_read(const PackedWeight *w, Diag *diag, int64_t first, int64_t n, float *out) {
  if (n && !load(w, diag)) return false;
  const bool is_blocks = w->config.method == PACKED_MXFP4;
  const int64_t width = is_blocks ? w->rows : w->columns;
  for (int64_t i = 0; i < n; i++) {
    const int64_t line = (first + i) / width, at = (first + i) % width;
    out[i] = is_blocks ? value_in_block(w, line / w->columns, at, line % w->columns) : value_at(w, line, at);
  }
  return true;
}
