/* Relocations: the rows of relocations.def, found and done.
 *
 * In: a family and the type of an entry; a value and the place where it is written. Out: the row; the bytes. Refused: a
 * type without a row (NULL), a value that its bytes cannot hold (false). In a header of its own, because libtfm loads
 * objects without the rest of the compiler. */
#ifndef TFM_TARGET_RELOCATIONS_H
#define TFM_TARGET_RELOCATIONS_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "tfm/abi/cpu.h"

typedef enum RelocationKind { RELOCATION_DIRECT, RELOCATION_SLOT } RelocationKind;

typedef struct Relocation {
  tfm_family family;
  uint32_t type;
  RelocationKind kind;
  uint8_t width; /* bytes that are written */
  bool is_relative;
} Relocation;

typedef struct LibraryRelocations {
  tfm_family family;
  uint32_t relative, symbolic, slot; /* types for the dynamic linker */
  char stub[8 + 1];
  uint8_t place_in_stub;
  uint32_t stub_type;
  int64_t stub_addend;
} LibraryRelocations;

static inline const Relocation *relocation_find(tfm_family family, uint64_t type) {
  enum { ABSOLUTE = false, RELATIVE = true };
  static const Relocation rows[] = {
#define LIBRARY(...)
#define RELOCATION(Family, Type, Kind, bytes, relative) {TFM_FAMILY_##Family, Type, RELOCATION_##Kind, bytes, relative},
#include "target/relocations.def"
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (rows[i].family == family && rows[i].type == type) return &rows[i];
  return NULL;
}

/* `value` is an address with the addend, `place` the address at which the bytes will be, `at` where they are now. They
 * go through memcpy, since nothing promises alignment. False: they cannot hold the value. */
static inline bool relocation_write(const Relocation *row, uint64_t value, uint64_t place, char *at) {
  const int64_t written = (int64_t)(row->is_relative ? value - place : value);
  const int32_t narrow = (int32_t)written;
  if (row->width == sizeof written) {
    memcpy(at, &written, sizeof written);
    return true;
  }
  memcpy(at, &narrow, sizeof narrow);
  return narrow == written;
}

/* NULL: tfmc cannot write libraries for the family. */
static inline const LibraryRelocations *library_relocations(tfm_family family) {
  static const LibraryRelocations rows[] = {
#define LIBRARY(Family, ...) {TFM_FAMILY_##Family, __VA_ARGS__},
#define RELOCATION(...)
#include "target/relocations.def"
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (rows[i].family == family) return &rows[i];
  return NULL;
}

/* The family whose ELF files say `machine`; TFM_FAMILY_ANY: none. */
static inline tfm_family family_of_elf(uint16_t machine) {
#define FAMILY(name, number, text, elf, ...) \
  if (machine == elf) return TFM_FAMILY_##name;
#include "tfm/abi/families.def"
  return TFM_FAMILY_ANY;
}

#endif
