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

typedef enum RelocationKind { RELOCATION_DIRECT, RELOCATION_SLOT, RELOCATION_PAIRED } RelocationKind;
typedef enum RelocationBase {
  BASE_ABSOLUTE,
  BASE_RELATIVE,
  BASE_PAGES,
  BASE_LOW,
  BASE_SET, /* from here on: one of two addresses whose difference is what remains */
  BASE_ADDED,
  BASE_TAKEN
} RelocationBase;

/* Bits of a value that lie together in an instruction; none: there is no such run. */
typedef struct BitRun {
  uint8_t from, bits, at; /* the lowest in the value; how many; the lowest in the instruction */
} BitRun;

enum { MOST_RUNS = 8, UPPER_BITS_FROM = 12 };

/* A field of an instruction, whose value lies in one run or in several. No runs: the value is not in an instruction. */
typedef struct InstructionField {
  BitRun runs[MOST_RUNS];
  uint8_t bits, dropped; /* of the value; how many of its lowest are not written */
  bool is_signed;
  bool rounds; /* bits from the 12th on are added to lower ones that are signed, so they are those of value + 2^11 */
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
#define FIELD(n, Bits, Dropped, Signed, Rounds, ...) \
  .width = n, .field = {{__VA_ARGS__}, .bits = Bits, .dropped = Dropped, .is_signed = Signed, .rounds = Rounds}
#define BITS6() .width = 1, .field = {.bits = 6}
#define JUMP26(low) FIELD(4, 26 + low, low, true, false, {low, 26, 0})
#define ADR21(low) FIELD(4, 21 + low, low, true, false, {low, 2, 29}, {low + 2, 19, 5})
#define LOW12(low) FIELD(4, 12, low, false, false, {low, 12, 10})
#define UPPER20() FIELD(4, 32, 0, true, true, {12, 20, 12})
#define LOWER12() FIELD(4, 12, 0, false, false, {0, 12, 20})
#define STORE12() FIELD(4, 12, 0, false, false, {0, 5, 7}, {5, 7, 25})
#define UPPER20_LOWER12() FIELD(8, 32, 0, true, true, {12, 20, 12}, {0, 12, 52})
#define BRANCH12() FIELD(4, 13, 1, true, false, {1, 4, 8}, {5, 6, 25}, {11, 1, 7}, {12, 1, 31})
#define JUMP20() FIELD(4, 21, 1, true, false, {1, 10, 21}, {11, 1, 20}, {12, 8, 12}, {20, 1, 31})
#define SHORT_BRANCH8() FIELD(2, 9, 1, true, false, {1, 2, 3}, {3, 2, 10}, {5, 1, 2}, {6, 2, 5}, {8, 1, 12})
#define SHORT_JUMP11()                                                                                              \
  FIELD(2, 12, 1, true, false, {1, 3, 3}, {4, 1, 11}, {5, 1, 2}, {6, 1, 7}, {7, 1, 6}, {8, 2, 9}, {10, 1, 8}, \
        {11, 1, 12})
  static const Relocation rows[] = {
#define LIBRARY(...)
#define RELOCATION(Family, Type, Kind, Base, ...) \
  {TFM_FAMILY_##Family, Type, RELOCATION_##Kind, BASE_##Base, __VA_ARGS__},
#include "target/relocations.def"
  };
#undef BYTES
#undef FIELD
#undef BITS6
#undef JUMP26
#undef ADR21
#undef LOW12
#undef UPPER20
#undef LOWER12
#undef STORE12
#undef UPPER20_LOWER12
#undef BRANCH12
#undef JUMP20
#undef SHORT_BRANCH8
#undef SHORT_JUMP11
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
    default: break;
  }
  return (int64_t)value;
}

/* Bits of the field that the instruction has already are replaced. */
static inline bool field_write(const Relocation *row, int64_t value, char *at) {
  const InstructionField *field = &row->field;
  const int64_t upper = field->rounds ? value + (1 << (UPPER_BITS_FROM - 1)) : value;
  const int64_t most = INT64_C(1) << (field->is_signed ? field->bits - 1 : field->bits);
  uint64_t instruction = 0;
  memcpy(&instruction, at, row->width);
  for (int i = 0; i < MOST_RUNS && field->runs[i].bits; i++) {
    const BitRun run = field->runs[i];
    const uint64_t mask = (UINT64_C(1) << run.bits) - 1;
    const uint64_t taken = (uint64_t)((run.from >= UPPER_BITS_FROM ? upper : value) >> run.from) & mask;
    instruction = (instruction & ~(mask << run.at)) | taken << run.at;
  }
  memcpy(at, &instruction, row->width);
  return upper >= (field->is_signed ? -most : 0) && upper < most && !(value & ((1 << field->dropped) - 1));
}

/* The lowest `bits` of the bytes, or all of them (0), hold a sum so far. */
static inline void difference_write(const Relocation *row, uint64_t value, char *at) {
  const unsigned bits = row->field.bits ? row->field.bits : 8u * row->width;
  const uint64_t mask = bits < 64 ? (UINT64_C(1) << bits) - 1 : UINT64_MAX;
  uint64_t before = 0;
  memcpy(&before, at, row->width);
  if (row->base == BASE_ADDED) value = before + value;
  if (row->base == BASE_TAKEN) value = before - value;
  value = (before & ~mask) | (value & mask);
  memcpy(at, &value, row->width);
}

/* `value` is an address with the addend, `place` the address at which the bytes will be, `at` where they are now. They
 * go through memcpy, since nothing promises alignment. False: they cannot hold the value. */
static inline bool relocation_write(const Relocation *row, uint64_t value, uint64_t place, char *at) {
  const int64_t written = relocation_value(row, value, place);
  const int32_t narrow = (int32_t)written;
  if (row->base >= BASE_SET) return difference_write(row, value, at), true;
  if (row->field.bits) return field_write(row, written, at);
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
