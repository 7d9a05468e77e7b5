/* The file of packed weights, .tfmw, as the compiler writes it; its form is in tfm/weights_file.h.
 *
 * In: packed weights and the layout that they have. Out: a file that appears complete or not at all. Reading
 * it is the runtime's. */
#ifndef TFM_AOT_WEIGHTS_FILE_H
#define TFM_AOT_WEIGHTS_FILE_H

#include "diag/diag.h"
#include "tfm/weights_file.h"

/* The TFM_WEIGHTS_HEADER_BYTES before the weights. */
void weights_file_header(char *page, const char *model, const uint8_t layout[16], const void *packed, uint64_t bytes);
/* `model` is the prefix of the library's functions. False after an error. */
bool weights_file_write(Diag *diag, const char *path, const char *model, const uint8_t layout[16], const void *packed,
                        uint64_t bytes);

/* Whether a file can be read and begins as .tfmw files do. Reports nothing. */
bool is_packed_file(Arena *arena, const char *path);

#endif
