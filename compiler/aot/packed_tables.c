/* Runs of new bytes and of old ones, found by a hash of the next few bytes. See packed_tables.h.
 *
 * Tables of a gradient are long: a step for each operation of each layer, where hardly more than numbers of buffers
 * differ from those of the layer before. As differences from item to item even these are often the same. */
#include "aot/packed_tables.h"

#include <string.h>

#include "base/check.h"

enum {
  LEAST = TFM_LEAST_RUN, /* bytes of an old run: fewer take more room than they save */
  HASHES = 1 << 16,      /* a power of two */
  MOST_TRIED = 64,       /* places that begin alike */
  LONG_ENOUGH = 2048,    /* of a run: no longer one is looked for */
  PLACES = 8,            /* offsets of tables, and of texts in items, are multiples of this */
  MOST_TEXTS = 63        /* places of an item that have a bit */
};

PackedTables packed_tables_new(Arena *arena) {
  return (PackedTables){.arena = arena, .texts = strbuf_new(arena), .places = map_new(arena),
                        .numbers = map_new(arena)};
}

uint64_t packed_text(size_t offset) {
  CHECK(offset % PLACES == 0 && offset < MOST_TEXTS * PLACES, "a text at %zu of a packed item", offset);
  return UINT64_C(1) << offset / PLACES;
}

static uint32_t place_of_text(PackedTables *to, const char *text) {
  if (!text) return 0;
  if (!map_has(&to->places, text)) {
    map_put(&to->places, text, (void *)(to->texts.length + 1));
    strbuf_add_n(&to->texts, text, strlen(text) + 1);
  }
  return (uint32_t)(uintptr_t)map_get(&to->places, text);
}

static uint32_t number_of_function(PackedTables *to, const char *name) {
  if (!name) return 0;
  if (!map_has(&to->numbers, name)) {
    vec_push(to->arena, &to->functions, name);
    map_put(&to->numbers, name, (void *)to->functions.n);
  }
  return (uint32_t)(uintptr_t)map_get(&to->numbers, name);
}

/* The items with places of texts where pointers were. */
static const char *with_places(PackedTables *to, const PackedItems *table) {
  char *items = arena_copy(to->arena, table->items, table->n * table->size);
  for (size_t at = 0; table->texts >> at / PLACES; at += PLACES) {
    if (!(table->texts >> at / PLACES & 1)) continue;
    for (size_t i = at; i < table->n * table->size; i += table->size) {
      const char *text;
      memcpy(&text, items + i, sizeof text);
      const uint64_t place = place_of_text(to, text);
      memcpy(items + i, &place, sizeof place);
    }
  }
  return items;
}

static void add_words(PackedTables *to, const tfm_packed_table *kind, const char *items, size_t n) {
  while (to->bytes.n % PLACES) vec_push(to->arena, &to->bytes, 0);
  tfm_packed_table table = *kind;
  table.offset = to->bytes.n;
  table.bytes = n * table.stride;
  vec_push(to->arena, &to->tables, table);
  for (size_t at = 0; at < table.bytes; at += sizeof(uint32_t)) {
    uint32_t word, before = 0;
    memcpy(&word, items + at, sizeof word);
    if (at >= table.stride) memcpy(&before, items + at - table.stride, sizeof before);
    word -= before;
    for (int shift = 0; shift < 32; shift += 8) vec_push(to->arena, &to->bytes, (uint8_t)(word >> shift));
  }
}

void pack_table(PackedTables *to, size_t member, PackedItems table) {
  const tfm_packed_table kind = {.member = (uint32_t)member, .stride = (uint32_t)table.size, .texts = table.texts};
  if (table.n) add_words(to, &kind, table.texts ? with_places(to, &table) : table.items, table.n);
}

/* The kind says how wide the pointers are, and what `place_of` finds places of. */
static void pack_pointers(PackedTables *to, const tfm_packed_table *kind, const char *const *names, size_t n,
                          uint32_t (*place_of)(PackedTables *to, const char *name)) {
  char *places = ARENA_ARRAY(to->arena, char, n * kind->stride + 1);
  for (size_t i = 0; i < n; i++) {
    const uint32_t place = place_of(to, names[i]);
    memcpy(places + i * kind->stride, &place, sizeof place);
  }
  if (n) add_words(to, kind, places, n);
}

void pack_texts(PackedTables *to, size_t member, const char *const *texts, size_t n, size_t bytes) {
  const tfm_packed_table kind = {.member = (uint32_t)member, .stride = (uint32_t)bytes, .texts = packed_text(0)};
  pack_pointers(to, &kind, texts, n, place_of_text);
}

void pack_functions(PackedTables *to, size_t member, const char *const *names, size_t n, size_t bytes) {
  const tfm_packed_table kind = {.member = (uint32_t)member, .stride = (uint32_t)bytes, .texts = TFM_PACKED_FUNCTIONS};
  pack_pointers(to, &kind, names, n, number_of_function);
}

// ---- runs ----

typedef struct Runs {
  Arena *arena;
  const uint8_t *bytes;
  size_t n;
  uint32_t *newest, *before; /* places by the hash of what begins there, plus 1: the last one; the one before each */
  PackedBytes out;
} Runs;

static uint32_t hash_at(const Runs *runs, size_t at) {
  uint32_t h = 0;
  for (int i = 0; i < LEAST; i++) h = (h ^ runs->bytes[at + (size_t)i]) * 0x9E3779B1u;
  return (h ^ h >> 16) % HASHES;
}

static void remember(Runs *runs, size_t at) {
  if (at + LEAST > runs->n) return;
  uint32_t *newest = &runs->newest[hash_at(runs, at)];
  runs->before[at] = *newest;
  *newest = (uint32_t)at + 1;
}

/* How many bytes at `at` stood before, and where. */
static size_t longest(const Runs *runs, size_t at, size_t *from) {
  size_t best = 0;
  if (at + LEAST > runs->n) return 0;
  uint32_t place = runs->newest[hash_at(runs, at)];
  for (int tried = 0; place && tried < MOST_TRIED && best < LONG_ENOUGH; tried++, place = runs->before[place - 1]) {
    size_t n = 0;
    while (at + n < runs->n && runs->bytes[place - 1 + n] == runs->bytes[at + n]) n++;
    if (n > best) best = n, *from = place - 1;
  }
  return best;
}

static void write_number(Runs *runs, size_t number) {
  for (; number >= 128; number >>= 7) vec_push(runs->arena, &runs->out, (uint8_t)(number | 128));
  vec_push(runs->arena, &runs->out, (uint8_t)number);
}

static size_t at_most(size_t n, size_t most) { return n < most ? n : most; }

/* The new bytes from `from` to `end`, and the old ones behind them, `back` bytes back; n_old 0: there are none. */
static void write_run(Runs *runs, size_t from, size_t end, size_t n_old, size_t back) {
  const size_t n_new = end - from, old = n_old ? n_old - LEAST : 0;
  const size_t told_new = at_most(n_new, TFM_MOST_NEW), told_old = at_most(old, TFM_MOST_OLD);
  vec_push(runs->arena, &runs->out, (uint8_t)(told_new << TFM_NEW_SHIFT | told_old));
  if (told_new == TFM_MOST_NEW) write_number(runs, n_new - told_new);
  for (; from < end; from++) vec_push(runs->arena, &runs->out, runs->bytes[from]);
  if (!n_old) return;
  if (told_old == TFM_MOST_OLD) write_number(runs, old - told_old);
  write_number(runs, back);
}

static void write_runs(Runs *runs) {
  size_t at = 0, written = 0, from = 0;
  while (at < runs->n) {
    const size_t n = longest(runs, at, &from);
    if (n < LEAST) {
      remember(runs, at++);
      continue;
    }
    write_run(runs, written, at, n, at - from);
    for (size_t i = 0; i < n; i++) remember(runs, at + i);
    at += n;
    written = at;
  }
  if (written < runs->n) write_run(runs, written, runs->n, 0, 0);
}

PackedBytes pack_tables(PackedTables *t, tfm_packed_tables *made) {
  const size_t head = t->tables.n * sizeof *t->tables.items, texts = head + t->bytes.n;
  for (size_t i = 0; i < t->tables.n; i++) t->tables.items[i].offset += head;
  Runs runs = {.arena = t->arena, .n = texts + t->texts.length};
  uint8_t *bytes = ARENA_ARRAY(t->arena, uint8_t, runs.n + 1);
  if (head) memcpy(bytes, t->tables.items, head);
  if (t->bytes.n) memcpy(bytes + head, t->bytes.items, t->bytes.n);
  if (t->texts.length) memcpy(bytes + texts, t->texts.text, t->texts.length);
  runs.bytes = bytes;
  runs.newest = ARENA_ARRAY(t->arena, uint32_t, HASHES);
  runs.before = ARENA_ARRAY(t->arena, uint32_t, runs.n + 1);
  write_runs(&runs);
  made->bytes = runs.n; /* nothing else: its padding is emitted too */
  made->texts = texts;
  made->n_tables = (uint32_t)t->tables.n;
  return runs.out;
}
