/* tfm/abi/weights_file.h: the form of a .tfmw file, packed weights that libraries map. C99.
 *
 *   4096 bytes: tfm_weights_header, then zeroes | the packed weights, as tfm_program.weights places them
 *
 * Numbers are in the byte order of the machine that wrote them; `byte_order` tells which. The file ends with the
 * weights. The header has a page of its own so that the mapped weights are aligned to pages. */
#ifndef TFM_WEIGHTS_FILE_H
#define TFM_WEIGHTS_FILE_H

#include <stdint.h>

#include "tfm/types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TFM_WEIGHTS_HEADER_BYTES = 4096, TFM_WEIGHTS_VERSION = 1, TFM_WEIGHTS_MODEL_BYTES = 256 };
#define TFM_WEIGHTS_MAGIC "TFMWGHT" /* with its NUL: 8 bytes */
#define TFM_WEIGHTS_BYTE_ORDER 0x01020304u

typedef struct tfm_weights_header {
  char magic[8];
  uint32_t byte_order, version;
  uint8_t layout[16];  /* tfm_library.layout: a library takes only weights that were packed with its own */
  uint64_t bytes;      /* of the weights: the file's size less TFM_WEIGHTS_HEADER_BYTES */
  uint8_t content[16]; /* XXH3-128, canonical form, of the weights */
  char model[TFM_WEIGHTS_MODEL_BYTES]; /* prefix of the functions of its libraries; ends with a NUL; cut if longer */
  uint8_t header[16];  /* XXH3-128 of the 4096 bytes with this member zero */
} tfm_weights_header;

/* Reads and checks the header of a file; *header is set on success only. TFM_E_ENV: the file cannot be read, is no
 * .tfmw file of this version and byte order, does not have the header's own hash, or is longer or shorter than the
 * header says. */
tfm_status tfm_weights_file_read(const char *path, tfm_weights_header *header, tfm_error *error);
/* The same, and the weights must have the hash in the header. All of them are read, which takes as long as the disk
 * needs. */
tfm_status tfm_weights_file_check(const char *path, tfm_weights_header *header, tfm_error *error);

#ifdef __cplusplus
}
#endif
#endif
