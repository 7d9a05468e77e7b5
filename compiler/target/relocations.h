/* Relocations: the rows of relocations.def, found and done.
 *
 * In: a family and the type of an entry; a value and the place where it is written. Out: the row; the bytes. Refused: a
 * type without a row (NULL), a value that its field cannot hold (false). In a header of its own, because libtfm loads
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
typedef enum RelocationBase { BASE_ABSOLUTE, BASE_RELATIVE, BASE_PAGES, BASE_LOW } RelocationBase;

/* A field of an instruction: up to two runs of bits, the lower bits of the value in the first. All zeroes: the value is
 * not in an instruction. */
typedef struct InstructionField {
  uint8_t bits, at, high_bits, high_at;
  bool is_signed;
  uint8_t dropped; /* lowest bits of the value that are not written */
} InstructionField;

typedef struct Relocation {
  tfm_family family;
  uint32_t type;
  RelocationKind kind;
  RelocationBase base;
  uint8_t width; /* bytes that are written */
  InstructionField field;
} Relocation;

enum { MOST_STUB_BYTES = 16, MOST_PLACES_IN_STUB = 2 };

typedef struct PlaceInStub {
  uint8_t offset;
  uint32_t type; /* 0: there is no such place */
  int64_t addend;
} PlaceInStub;

typedef struct LibraryRelocations {
  tfm_family family;
  uint32_t relative, symbolic, slot; /* types for the dynamic linker */
  uint32_t page;                     /* bytes of the largest */
  char stub[MOST_STUB_BYTES + 1];
  uint32_t stub_bytes;
  PlaceInStub places[MOST_PLACES_IN_STUB];
} LibraryRelocations;

static inline const Relocation *relocation_find(tfm_family family, uint64_t type) {
#define BYTES(n) .width = n
#define JUMP26(low) .width = 4, .field = {.bits = 26, .is_signed = true, .dropped = low}
#define ADR21(low) .width = 4, .field = {2, 29, 19, 5, .is_signed = true, .dropped = low}
#define LOW12(low) .width = 4, .field = {.bits = 12, .at = 10, .dropped = low}
  static const Relocation rows[] = {
#define LIBRARY(...)
#define RELOCATION(Family, Type, Kind, Base, ...) \
  {TFM_FAMILY_##Family, Type, RELOCATION_##Kind, BASE_##Base, __VA_ARGS__},
#include "target/relocations.def"
  };
#undef BYTES
#undef JUMP26
#undef ADR21
#undef LOW12
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (rows[i].family == family && rows[i].type == type) return &rows[i];
  return NULL;
}

/* Shifts of signed numbers to the right keep the sign (gcc and clang say so). */
static inline int64_t relocation_value(const Relocation *row, uint64_t value, uint64_t place) {
  enum { PAGE_BITS = 12 };
  switch (row->base) {
    case BASE_RELATIVE: return (int64_t)(value - place);
    case BASE_PAGES: return ((int64_t)value >> PAGE_BITS) - ((int64_t)place >> PAGE_BITS);
    case BASE_LOW: return (int64_t)(value & ((1u << PAGE_BITS) - 1));
    case BASE_ABSOLUTE: break;
  }
  return (int64_t)value;
}

/* Bits of the field that the instruction has already are replaced. */
static inline bool field_write(const InstructionField *field, int64_t value, char *at) {
  const int64_t stored = value >> field->dropped;
  const unsigned bits = field->bits + field->high_bits;
  const int64_t most = INT64_C(1) << (field->is_signed ? bits - 1 : bits), least = field->is_signed ? -most : 0;
  const uint32_t low = (uint32_t)((1u << field->bits) - 1), high = (uint32_t)((1u << field->high_bits) - 1);
  uint32_t instruction;
  memcpy(&instruction, at, sizeof instruction);
  instruction &= ~(low << field->at | high << field->high_at);
  instruction |= ((uint32_t)stored & low) << field->at;
  instruction |= ((uint32_t)(stored >> field->bits) & high) << field->high_at;
  memcpy(at, &instruction, sizeof instruction);
  return stored >= least && stored < most && value == stored * (INT64_C(1) << field->dropped);
}

/* `value` is an address with the addend, `place` the address at which the bytes will be, `at` where they are now. They
 * go through memcpy, since nothing promises alignment. False: they cannot hold the value. */
static inline bool relocation_write(const Relocation *row, uint64_t value, uint64_t place, char *at) {
  const int64_t written = relocation_value(row, value, place);
  const int32_t narrow = (int32_t)written;
  if (row->field.bits) return field_write(&row->field, written, at);
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
#define STUB(bytes, n) bytes, n
#define LIBRARY(Family, ...) {TFM_FAMILY_##Family, __VA_ARGS__},
#define RELOCATION(...)
#include "target/relocations.def"
  };
#undef STUB
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
