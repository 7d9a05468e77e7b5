/* Unpacks the tables of a program, of all programs of a model, or of a training.
 *
 * In: runs of bytes, which the compiler packed. Out: tables, and pointers to them, to their texts and to functions.
 * They are the compiler's own and are not checked; nothing is refused. */
#include "library/unpack.h"

#include <string.h>

enum { BYTES_OF_PLACE = 8 }; /* of a pointer: see TFM_SLOT */

static uint64_t unpack_number(const uint8_t **at) {
  uint64_t number = 0;
  for (int shift = 0;; shift += 7) {
    const uint8_t byte = *(*at)++;
    number |= (uint64_t)(byte & 127) << shift;
    if (byte < 128) return number;
  }
}

static uint64_t read_count(const uint8_t **at, uint64_t told, uint64_t most) {
  return told < most ? told : told + unpack_number(at);
}

static void read_runs(const uint8_t *from, uint8_t *to, uint64_t bytes) {
  const uint8_t *end = to + bytes;
  while (to < end) {
    const uint8_t run = *from++;
    uint64_t n = read_count(&from, run >> TFM_NEW_SHIFT, TFM_MOST_NEW);
    memcpy(to, from, n);
    to += n;
    from += n;
    if (to == end) return;
    n = read_count(&from, run & TFM_MOST_OLD, TFM_MOST_OLD) + TFM_LEAST_RUN;
    for (const uint8_t *old = to - unpack_number(&from); n; n--) *to++ = *old++; /* they may overlap */
  }
}

static void add_differences(uint32_t *words, const tfm_packed_table *table) {
  const uint64_t stride = table->stride / sizeof *words, n = table->bytes / sizeof *words;
  for (uint64_t i = stride; i < n; i++) words[i] += words[i - stride];
}

static void point_to_texts(char *items, const tfm_packed_table *table, const char *texts) {
  for (uint32_t at = 0; table->texts >> at / BYTES_OF_PLACE; at += BYTES_OF_PLACE) {
    if (!(table->texts >> at / BYTES_OF_PLACE & 1)) continue;
    for (uint64_t item = at; item < table->bytes; item += table->stride) {
      uint32_t place;
      memcpy(&place, items + item, sizeof place);
      const char *text = place ? texts + place - 1 : NULL;
      memcpy(items + item, &text, sizeof text);
    }
  }
}

static void point_to_functions(char *items, const tfm_packed_table *table, const int32_t *functions) {
  const uintptr_t from = sizeof(void *) == BYTES_OF_PLACE ? (uintptr_t)functions : 0;
  for (uint64_t item = 0; item < table->bytes; item += table->stride) {
    uint32_t place;
    memcpy(&place, items + item, sizeof place);
    const uintptr_t function = place ? from + (uintptr_t)functions[place - 1] : 0;
    memcpy(items + item, &function, sizeof function);
  }
}

void tables_unpack(const tfm_packed_tables *packed, char *start, char *whole) {
  read_runs(packed->packed, (uint8_t *)start, packed->bytes);
  const tfm_packed_table *tables = (const tfm_packed_table *)(const void *)start;
  for (uint32_t i = packed->n_tables; i--;) {
    char *table = start + tables[i].offset;
    add_differences((uint32_t *)(void *)table, &tables[i]);
    if (tables[i].texts == TFM_PACKED_FUNCTIONS)
      point_to_functions(table, &tables[i], packed->functions);
    else
      point_to_texts(table, &tables[i], start + packed->texts);
    if (tables[i].member == TFM_PACKED_ITSELF)
      memcpy(whole, table, tables[i].bytes);
    else
      memcpy(whole + tables[i].member, &table, sizeof table);
  }
}
