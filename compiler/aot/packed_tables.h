/* Tables of programs, or of what a library trains for, as few bytes: tfm_packed_tables, where their form is described.
 *
 * In: arrays of structs that hold no pointers but to texts, arrays of names of functions. Out: bytes that
 * runtime/library/unpack.c unpacks. Refuses nothing. */
#ifndef TFM_AOT_PACKED_TABLES_H
#define TFM_AOT_PACKED_TABLES_H

#include "base/map.h"
#include "base/strbuf.h"
#include "base/vec.h"
#include "tfm/abi/packed_program.h"

typedef VEC(uint8_t) PackedBytes;

typedef struct PackedTables { /* that are being put together */
  Arena *arena;
  VEC(tfm_packed_table) tables;
  PackedBytes bytes;           /* of the tables so far, each a difference */
  StrBuf texts;                /* of all tables, each once */
  Map places;                  /* of each text in `texts`, plus 1 */
  VEC(const char *) functions; /* their names, each once, by number */
  Map numbers;                 /* of each function, plus 1 */
} PackedTables;

typedef struct PackedItems {
  const void *items;
  size_t n, size; /* bytes of each, a multiple of four */
  uint64_t texts; /* of a tfm_packed_table */
} PackedItems;

PackedTables packed_tables_new(Arena *arena);
/* The bit of a text that a pointer at `offset` of each item names. */
uint64_t packed_text(size_t offset);
/* Adds a table, which the pointer at `member` of its struct names; none if it has no items. */
void pack_table(PackedTables *to, size_t member, PackedItems table);
/* The same for an array of pointers to texts, of `bytes` each where it is unpacked. */
void pack_texts(PackedTables *to, size_t member, const char *const *texts, size_t n, size_t bytes);
/* The same for an array of pointers to functions; NULL: there is none. */
void pack_functions(PackedTables *to, size_t member, const char *const *names, size_t n, size_t bytes);
/* Ends it: returns the packed bytes, and writes how much comes out. */
PackedBytes pack_tables(PackedTables *tables, tfm_packed_tables *made);

#endif
