/* Weight files made by hand for tests, and what their readers say of them. Every verdict opens a bench of its own, so
 * files and messages of one case do not reach the next. */
#ifndef TFM_TESTS_WEIGHT_FILES_H
#define TFM_TESTS_WEIGHT_FILES_H

#include "base/strbuf.h"
#include "first_message.h"
#include "temporary.h"
#include "weights/npy.h"
#include "weights/safetensors.h"

typedef struct Bench { /* what one test needs */
  Arena *arena;
  Diag diag;
  char path[TEMPORARY_BYTES]; /* of a temporary file */
} Bench;

Bench bench_new(void);
void bench_destroy(Bench *bench); /* removes the file */

void bench_write(Bench *bench, const void *bytes, size_t size);
/* A safetensors file: the length of the header, the header, then `data_size` bytes 0, 1, 2 ... */
void bench_write_safetensors(Bench *bench, const char *header, size_t header_size, size_t data_size);
/* An npy file of a version with this header (padded with a newline) and `data_size` bytes of zeroes. */
void bench_write_npy(Bench *bench, int version, const char *header, size_t data_size);

/* Whether the file is refused with a message that contains `text` and the exit code 1. */
bool safetensors_refused(const char *header, size_t data_size, const char *text);
bool safetensors_accepted(const char *header, size_t data_size);
bool npy_refused(int version, const char *header, size_t data_size, const char *text);
bool npy_accepted(int version, const char *header, size_t data_size);

#endif
