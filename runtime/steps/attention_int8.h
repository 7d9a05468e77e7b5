/* Attention in whole numbers of 8 bits: what it has in common in memory and over caches. See attention_int8.c. */
#ifndef TFM_RUNTIME_ATTENTION_INT8_H
#define TFM_RUNTIME_ATTENTION_INT8_H

#include "steps/attention_strip.h"

typedef struct Int8Scratch {    /* of one thread, behind what f32 needs */
  int64_t q, weights, row, work; /* floats from its beginning: rows of a strip, rows of keys or values, ... */
  int64_t q_floats, weights_floats, row_floats; /* of one row */
  int64_t floats;
} Int8Scratch;
Int8Scratch int8_scratch(const tfm_attention_step *step);
/* The queries of a strip as whole numbers, s.q_floats apart, in scratch. */
const float *int8_queries(const AttentionStrip *strip, const Int8Scratch *s);
/* to[rows][columns] += from, a strip. */
void int8_add_rows(float *to, int64_t stride, const float *from, int64_t rows, int64_t columns);
/* Four rows of bytes become columns of a panel `width` wide: n times four bytes of each, 128 too large. */
void int8_put_keys(const char *const *rows, int64_t n, int64_t width, float *column);
/* Bytes of four rows go together, column by column: `columns` of them, a multiple of 8. */
void int8_interleave(const char *const *rows, int64_t columns, char *to);

#endif
