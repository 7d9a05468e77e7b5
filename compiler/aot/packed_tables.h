/* Tables of a program, or of what a library trains for, as few bytes: tfm_packed_tables, where their form is described.
 *
 * In: arrays of structs without pointers. Out: bytes that runtime/train/programs.c unpacks. Refuses nothing. */
#ifndef TFM_AOT_PACKED_TABLES_H
#define TFM_AOT_PACKED_TABLES_H

#include "base/vec.h"
#include "tfm/abi/packed_program.h"

typedef VEC(uint8_t) PackedBytes;

typedef struct PackedTables { /* that are being put together */
  Arena *arena;
  VEC(tfm_packed_table) tables;
  PackedBytes bytes; /* of the tables so far, each a difference */
} PackedTables;

/* Adds `count` items of `size` bytes, a multiple of four, which the pointer at `member` of their struct names. */
void pack_table(PackedTables *to, size_t member, const void *items, size_t count, size_t size);
/* Ends it: returns the packed bytes, and writes how much comes out. */
PackedBytes pack_tables(PackedTables *tables, tfm_packed_tables *made);

#endif
