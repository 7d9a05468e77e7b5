/* Parts: what `tfmc worker` makes of a model for the program that started it: one file with objects and packed
 * weights. tfm_compiled_save keeps it as a .tfmm file.
 *
 * PartsHeader, zeroes up to PARTS_ALIGNMENT | the ranges, each at a multiple of PARTS_ALIGNMENT
 *
 * The file holds plain numbers and no pointers. Both sides are of the same version of tfmc, which the header says, and
 * on the same machine, so byte order and layout need no conversion. The header is written last: without its magic word
 * the file is incomplete. */
#ifndef TFM_API_PARTS_H
#define TFM_API_PARTS_H

#include <stdint.h>

enum {
  PARTS_FORM = 7,
  PARTS_ALIGNMENT = 4096,
  PARTS_MAX_OBJECTS = 4,
  PARTS_VERSION_BYTES = 32,
  PARTS_MESSAGE_BYTES = 512
};
#define PARTS_MAGIC "TFMPART" /* with its NUL: 8 bytes */

typedef struct PartsRange {
  uint64_t offset, size;
} PartsRange;

typedef struct PartsHeader {
  char magic[8];
  uint32_t form;
  int32_t exit_code;                  /* of the command; unless it is 0 there is nothing but the message */
  char version[PARTS_VERSION_BYTES];  /* of tfmc */
  char message[PARTS_MESSAGE_BYTES];  /* the first error */
  PartsRange symbol;                  /* name of the function that returns the tfm_library, or the tfm_training of a
                                         model that trains, with its NUL */
  PartsRange weights;                 /* what would be a .tfmw file; of a model that trains: weights to begin with, as
                                         the block of its trainer that has those that are trained, or nothing */
  PartsRange frozen;                  /* with these, the block of those that are not */
  uint32_t n_objects, trains;
  PartsRange drawn;                   /* with these, a byte for each parameter of the trainer: 1: its numbers here mean
                                         nothing, the trainer draws them, by its seed; or no bytes */
  PartsRange objects[PARTS_MAX_OBJECTS];
  uint64_t hash; /* of a .tfmm file: parts_hash; else 0 */
} PartsHeader;

#endif
