/* A judge of GGUF files: see oracle_gguf.h. It is written from the format's description (docs/gguf.md of ggml) and the
 * reader's stated limits, not from the reader.
 *
 * In: the bytes of a file. Out: whether a reader must accept them. It allocates nothing. */
#include "oracle_gguf.h"

#include <string.h>

typedef unsigned __int128 Wide; /* sums and products of 64-bit numbers */

typedef struct Span { /* a name, or the data of a tensor */
  Wide begin, end;
  bool is_known; /* where it ends */
} Span;

typedef struct File {
  const uint8_t *data;
  size_t size, at;
  bool bad; /* stays set */
} File;

/* A file of 8 KiB, which is what the fuzzer makes, has fewer entries; others are left to the reader alone. */
enum { MOST = 4096 };

static uint64_t number(File *f, unsigned bytes) {
  uint64_t value = 0;
  if (f->size - f->at < bytes) f->bad = true;
  for (unsigned i = 0; i < bytes && !f->bad; i++) value |= (uint64_t)f->data[f->at++] << 8 * i;
  return value;
}

static void skip(File *f, Wide bytes) {
  if (bytes > f->size - f->at)
    f->bad = true;
  else
    f->at += (size_t)bytes;
}

/* How many bytes of UTF-8 begin here; 0: none do. */
static size_t utf8(const uint8_t *s, size_t n) {
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  size_t length = s[0] < 0x80                   ? 1
                  : s[0] >= 0xc0 && s[0] < 0xe0 ? 2
                  : s[0] >= 0xe0 && s[0] < 0xf0 ? 3
                  : s[0] >= 0xf0 && s[0] < 0xf8 ? 4
                                                : 0;
  if (length < 2) return length;
  uint32_t code = s[0] & (0x7fu >> length);
  if (length > n) return 0;
  for (size_t i = 1; i < length; i++) {
    if (s[i] >> 6 != 2) return 0;
    code = code << 6 | (s[i] & 63);
  }
  return code < least[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? 0 : length;
}

static Span name(File *f) {
  uint64_t length = number(f, 8);
  size_t begin = f->at;
  skip(f, length);
  if (f->bad || length == 0 || length > 4096) f->bad = true;
  for (size_t i = begin, n; !f->bad && i < f->at; i += n) {
    n = utf8(f->data + i, f->at - i);
    if (!n || f->data[i] < 32 || f->data[i] == 127) f->bad = true;
    if (!n) break;
  }
  return (Span){begin, f->at, true};
}

static bool is(const File *f, Span s, const char *text) {
  return s.end - s.begin == strlen(text) && memcmp(f->data + s.begin, text, strlen(text)) == 0;
}

static bool same(const File *f, Span a, Span b) {
  return a.end - a.begin == b.end - b.begin &&
         memcmp(f->data + a.begin, f->data + b.begin, (size_t)(a.end - a.begin)) == 0;
}

static bool add_unique(const File *f, Span *all, size_t n, Span added) {
  for (size_t i = 0; i < n; i++)
    if (same(f, all[i], added)) return false;
  all[n] = added;
  return true;
}

/* One byte of a type that has no fixed size counts for nothing. */
static unsigned width(uint64_t type) {
  return type == 0 || type == 1 || type == 7 ? 1
         : type == 2 || type == 3            ? 2
         : type >= 4 && type <= 6            ? 4
         : type >= 10 && type <= 12          ? 8
                                             : 0;
}

static void value(File *f, uint64_t type, unsigned depth) {
  if (type > 12)
    f->bad = true;
  else if (type == 8)
    skip(f, number(f, 8));
  else if (type != 9)
    skip(f, width(type));
  else {
    uint64_t of = number(f, 4), n = number(f, 8);
    if (f->bad || of > 12 || depth > 8)
      f->bad = true;
    else if (width(of))
      skip(f, (Wide)n * width(of));
    else
      for (uint64_t i = 0; i < n && !f->bad; i++) value(f, of, depth + 1);
  }
}

static void keys(File *f, uint64_t n, uint64_t *alignment) {
  static Span names[MOST];
  for (uint64_t i = 0; i < n && !f->bad; i++) {
    Span key = name(f);
    uint64_t type = number(f, 4), of = 0;
    size_t begin = f->at;
    if (f->bad || !add_unique(f, names, i, key))
      f->bad = true;
    else
      value(f, type, 0);
    if (f->bad) return;
    for (unsigned k = width(type); k-- > 0;) of = of << 8 | f->data[begin + k];
    if (is(f, key, "split.count") && (type == 2 || type == 4) && of > 1) f->bad = true;
    if (!is(f, key, "general.alignment") || !width(type)) continue;
    if (type != 4 || of == 0 || (of & (of - 1))) f->bad = true;
    *alignment = of;
  }
}

/* What ggml calls a type: elements of a block, bytes of it; 0: unknown. */
static void block_of(uint64_t type, unsigned *elements, unsigned *bytes) {
  static const unsigned sizes[][3] = {{0, 1, 4},      {1, 1, 2},      {2, 32, 18},    {3, 32, 20},    {6, 32, 22},
                                      {7, 32, 24},    {8, 32, 34},    {10, 256, 84},  {11, 256, 110}, {12, 256, 144},
                                      {13, 256, 176}, {14, 256, 210}, {16, 256, 66},  {17, 256, 74},  {18, 256, 98},
                                      {19, 256, 50},  {20, 32, 18},   {21, 256, 110}, {22, 256, 82},  {23, 256, 136},
                                      {24, 1, 1},     {25, 1, 2},     {26, 1, 4},     {27, 1, 8},     {28, 1, 8},
                                      {29, 256, 56},  {30, 1, 2},     {34, 256, 54},  {35, 256, 66},  {39, 32, 17}};
  *elements = *bytes = 0;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    if (sizes[i][0] == type) *elements = sizes[i][1], *bytes = sizes[i][2];
}

/* The elements are counted from the fastest dim on, in which order a 0 hides what the dims after it would overflow. */
static Span tensor(File *f, uint64_t alignment) {
  uint64_t rank = number(f, 4), dims[8] = {1};
  Wide elements = 1;
  if (rank > 8) f->bad = true;
  for (uint64_t i = 0; i < rank && !f->bad; i++) {
    dims[i] = number(f, 8);
    elements *= dims[i];
    if (dims[i] > INT64_MAX || elements > INT64_MAX) f->bad = true;
  }
  unsigned in_block, bytes;
  block_of(number(f, 4), &in_block, &bytes);
  uint64_t begin = number(f, 8);
  if (f->bad || begin % alignment || begin > INT64_MAX || (in_block && dims[0] % in_block)) f->bad = true;
  Wide size = in_block ? elements / in_block * bytes : 0;
  if (size > INT64_MAX || begin + size > INT64_MAX) f->bad = true;
  return (Span){begin, begin + size, in_block != 0};
}

/* Nothing overlaps, and what ends nearest before a tensor is nearer than the alignment, or of unknown length. */
static bool is_tiled(const Span *all, size_t n, uint64_t alignment, Wide size) {
  for (size_t i = 0; i < n; i++) {
    Wide before = 0;
    bool is_near = all[i].begin < alignment;
    if (all[i].end > size) return false;
    for (size_t k = 0; k < n; k++) {
      if (k == i) continue;
      bool is_before = all[k].begin < all[i].begin ||
                       (all[k].begin == all[i].begin && all[k].end <= all[i].end && (all[k].end < all[i].end || k < i));
      if (!is_before) continue;
      if (all[k].end > all[i].begin) return false;
      if (all[k].end > before) before = all[k].end;
    }
    for (size_t k = 0; k < n; k++) {
      bool is_last = k != i && all[k].end == before && all[k].begin <= all[i].begin;
      if (is_last && (!all[k].is_known || all[i].begin - before < alignment)) is_near = true;
    }
    if (!is_near) return false;
  }
  return true;
}

bool oracle_gguf(const uint8_t *data, size_t size) {
  static Span names[MOST], places[MOST];
  File f = {data, size, 0, false};
  if (size < 24 || memcmp(data, "GGUF", 4) != 0 || (data[4] != 2 && data[4] != 3) || data[5] || data[6] || data[7])
    return false;
  f.at = 8;
  uint64_t n_tensors = number(&f, 8), n_keys = number(&f, 8), alignment = 32;
  if (n_tensors > size / 8 || n_keys > size / 8) return false;
  keys(&f, n_keys, &alignment);
  for (uint64_t i = 0; i < n_tensors && !f.bad; i++) {
    Span own = name(&f);
    if (f.bad || !add_unique(&f, names, i, own)) return false;
    places[i] = tensor(&f, alignment);
  }
  if (f.bad) return false;
  Wide begin = ((Wide)f.at + alignment - 1) / alignment * alignment;
  return is_tiled(places, n_tensors, alignment, begin > size ? 0 : size - begin);
}
