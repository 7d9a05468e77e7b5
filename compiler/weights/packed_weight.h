/* Packed weight: a weight that a file keeps as whole numbers of few bits, several to a word, with what makes numbers of
 * them beside it.
 *
 * In: the tensors MODULE.qweight, .qzeros, .scales, .g_idx (GPTQ, AWQ), WEIGHT_packed, _scale, _shape, _zero_point
 * (compressed-tensors) or WEIGHT_blocks, _scales (MXFP4), and the config that says how words are laid out. Out: the
 * numbers that the library which wrote them makes of them, to the bit: (q - zero point) times the scale, rounded to the
 * type of the scale. Refused: what lacks a part, parts of other shapes or types, columns of compressed-tensors in
 * another order, zero points of 0 in GPTQ's first format, which libraries write in different ways. */
#ifndef TFM_WEIGHTS_PACKED_WEIGHT_H
#define TFM_WEIGHTS_PACKED_WEIGHT_H

#include "weights/packed_config.h"
#include "weights/tensor_file.h"

typedef enum PackedRole {
  PACKED_WORDS,
  PACKED_SCALES,
  PACKED_ZEROS,
  PACKED_ORDER,
  PACKED_SHAPE,
  N_PACKED_ROLES
} PackedRole;

/* What stands beside the words, by their method: their own ending, and those of their parts; NULL: it has none. */
typedef struct PackedNames {
  const char *weight; /* what stands in place of the words' ending in the weight's name */
  const char *endings[N_PACKED_ROLES];
} PackedNames;

extern const PackedNames packed_names[];

typedef struct PackedPart {
  const TensorFile *file;
  const FileTensor *tensor; /* NULL: there is none */
} PackedPart;

/* The numbers of the weight that was read last, which are kept until another is read: words hold rows that lie apart
 * in the weight. One for each set of weights. */
typedef struct PackedCache {
  Arena *arena; /* NULL: nothing was read */
  const struct PackedWeight *owner;
  uint32_t *words;
  float *scales;
  int32_t *zeros; /* words again, or whole numbers; NULL: there are none */
  int32_t *order; /* the group of each column */
} PackedCache;

typedef struct PackedWeight {
  const char *name;
  PackedConfig config;
  PackedPart parts[N_PACKED_ROLES];
  PackedCache *cache;
  int64_t rows, columns, groups; /* of the weight as PyTorch has it: [out, in] */
  int64_t whole_groups;          /* so many columns, or a divisor of it, are of one group; 1 if not those beside it */
  int64_t experts;               /* of MXFP4: [experts, columns, rows]; of others 1 */
} PackedWeight;

/* The method whose words have this name, and how much of it is the ending; PACKED_NONE: it is no name of words. GPTQ
 * and AWQ have the same names. */
PackedMethod packed_method(const char *name, size_t *ending);
/* Checks the parts, and sets the shape of `tensor` and its type. NULL, or why it is not read. */
const char *packed_weight_check(Arena *arena, Diag *diag, PackedWeight *weight, FileTensor *tensor);
/* Elements [first, first + n). False after an error. */
bool packed_weight_read(const PackedWeight *weight, Diag *diag, int64_t first, int64_t n, float *out);
void packed_cache_close(PackedCache *cache);

#endif
