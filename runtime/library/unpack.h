/* Tables of a library, which are packed in it (abi/packed_program.h). */
#ifndef TFM_RUNTIME_UNPACK_H
#define TFM_RUNTIME_UNPACK_H

#include "tfm/abi/packed_program.h"

/* Unpacks to `start`, where packed->bytes are; pointers of the struct `whole` name the tables then. */
void tables_unpack(const tfm_packed_tables *packed, char *start, char *whole);

#endif
