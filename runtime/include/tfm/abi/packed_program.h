/* Tables of a library: those of its programs, and of its tfm_training.
 *
 * They are packed, for they are long, and much of them is the same from layer to layer. Their bytes come in runs, of
 * new ones and of ones that stood there before. A run begins with a byte: its upper two bits say how many new bytes
 * there are, 3 that a number is to be added; the others how many old ones follow, less TFM_LEAST_RUN, 63 likewise. Then
 * come the new ones and how far back the old ones begin; the last run has no old ones, and does not say so. Numbers are
 * in seven bits at a time, the lowest first. What comes out begins with the descriptions of the tables; a table is
 * words, and each stands for the difference to the word `stride` bytes before it. Behind the tables are their texts,
 * each with its NUL: a pointer in a constant takes 32 bytes, of which 24 say that it is one. So functions, kernels and
 * drivers, are told by how far they are from where that is told, 4 bytes that no loader has to change.
 * compiler/aot/packed_tables.c packs, runtime/library/unpack.c unpacks. */
#ifndef TFM_PACKED_PROGRAM_H
#define TFM_PACKED_PROGRAM_H

#include "tfm/abi/program.h"

enum { TFM_LEAST_RUN = 5, TFM_NEW_SHIFT = 6, TFM_MOST_NEW = 3, TFM_MOST_OLD = 63 };
#define TFM_PACKED_ITSELF UINT32_MAX
#define TFM_PACKED_FUNCTIONS (UINT64_C(1) << 63) /* in place of `texts`: items are pointers to functions */

typedef struct tfm_packed_table {
  /* Offset in the struct of the pointer to it; TFM_PACKED_ITSELF, only of the last one: it is the struct. */
  uint32_t member;
  uint32_t stride;        /* of its items */
  uint64_t offset, bytes; /* from the beginning of what comes out; offsets are multiples of 8 */
  /* Bit i: 8 i bytes from the beginning of each item is a pointer to a text; a word in its place is 0 for NULL, else 1
   * more than where the text stands among the texts. Of a function it is 1 more than its number. */
  uint64_t texts;
} tfm_packed_table;

typedef struct tfm_packed_tables {
  TFM_SLOT(const uint8_t *packed);
  /* By number: bytes from the first of these to the function; where pointers have 4 bytes, the pointer. */
  TFM_SLOT(const int32_t *functions);
  uint64_t bytes; /* of what comes out */
  uint64_t texts; /* where they begin there */
  uint32_t n_tables;
} tfm_packed_tables;

/* What a model runs, of one instruction set: its programs are much alike, so their tables are packed together. */
typedef struct tfm_model_programs {
  tfm_program forward, step, encoder;
  tfm_decoding decoding;
} tfm_model_programs;

#endif
