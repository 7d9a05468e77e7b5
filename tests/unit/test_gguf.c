/* The reader of GGUF files: what it accepts, what it refuses and how it says so, and values of every type. The files are
 * written here byte by byte. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "tfm/abi/half.h"
#include "weight_files.h"
#include "weights/gguf.h"

/* The numbers of the format. */
enum { V_U8 = 0, V_I8 = 1, V_U16 = 2, V_U32 = 4, V_F32 = 6, V_BOOL = 7, V_TEXT = 8, V_LIST = 9, V_U64 = 10, V_I64 = 11, V_F64 = 12 };
enum { T_F32 = 0, T_F16 = 1, T_Q4_0 = 2, T_Q8_0 = 8, T_Q4_K = 12, T_Q5_K = 13, T_Q6_K = 14, T_BF16 = 30 };

// ---- writing ----

static void put(StrBuf *out, const void *bytes, size_t n) { strbuf_add_n(out, bytes, n); }
static void put_u16(StrBuf *out, uint16_t number) { put(out, &number, 2); }
static void put_u32(StrBuf *out, uint32_t number) { put(out, &number, 4); }
static void put_u64(StrBuf *out, uint64_t number) { put(out, &number, 8); }

static void put_text(StrBuf *out, const char *text) {
  put_u64(out, strlen(text));
  strbuf_add(out, text);
}

static void put_start(StrBuf *out, uint32_t version, uint64_t n_tensors, uint64_t n_keys) {
  strbuf_add(out, "GGUF");
  put_u32(out, version);
  put_u64(out, n_tensors);
  put_u64(out, n_keys);
}

static void put_key(StrBuf *out, const char *name, uint32_t type) {
  put_text(out, name);
  put_u32(out, type);
}

static void put_tensor(StrBuf *out, const char *name, uint32_t type, uint32_t rank, const uint64_t *dims, uint64_t offset) {
  put_text(out, name);
  put_u32(out, rank);
  for (uint32_t i = 0; i < rank; i++) put_u64(out, dims[i]);
  put_u32(out, type);
  put_u64(out, offset);
}

static void put_vector(StrBuf *out, const char *name, uint32_t type, uint64_t n, uint64_t offset) {
  put_tensor(out, name, type, 1, &n, offset);
}

static void pad(StrBuf *out, size_t alignment) {
  while (out->length % alignment) strbuf_add_char(out, 0);
}

static void put_zeroes(StrBuf *out, size_t n) {
  while (n--) strbuf_add_char(out, 0);
}

// ---- verdicts ----

static TensorFile *opened(Bench *bench, const StrBuf *bytes) {
  bench_write(bench, bytes->text, bytes->length);
  cr_assert(bytes->length < 4 || is_gguf(bench->path) == (memcmp(bytes->text, "GGUF", 4) == 0));
  return gguf_open(bench->arena, &bench->diag, bench->path);
}

#define REFUSED(bytes, words)                                                                        \
  do {                                                                                               \
    Bench bench_ = bench_new();                                                                      \
    cr_expect_null(opened(&bench_, &(bytes)));                                                       \
    cr_expect(bench_.diag.n_errors == 1 && bench_.diag.messages.items[0].code == DIAG_GGUF &&        \
                  strstr(first_message(&bench_.diag), words),                                        \
              "wanted \"%s\", got \"%s\"", words, bench_.diag.n_errors ? first_message(&bench_.diag) : "nothing"); \
    bench_destroy(&bench_);                                                                          \
  } while (0)

static bool accepted(const StrBuf *bytes) {
  Bench bench = bench_new();
  TensorFile *file = opened(&bench, bytes);
  if (!file) fprintf(stderr, "refused: %s\n", first_message(&bench.diag));
  tensor_file_close(file);
  bench_destroy(&bench);
  return file != NULL;
}

static Arena *arena;
static StrBuf bytes;

static void begin(void) {
  arena = arena_create();
  bytes = strbuf_new(arena);
}

static void end(void) { arena_destroy(arena); }

static void again(void) { bytes = strbuf_new(arena); }

TestSuite(gguf, .init = begin, .fini = end);

// ---- the head ----

Test(gguf, versions) {
  for (uint32_t version = 2; version <= 3; version++) {
    again();
    put_start(&bytes, version, 0, 0);
    cr_expect(accepted(&bytes));
  }
  static const struct {
    uint32_t version;
    const char *text;
  } others[] = {{0, "byte 4: version 0; versions 2 and 3 are read"},
                {1, "byte 4: version 1; versions 2 and 3 are read"},
                {4, "byte 4: version 4; versions 2 and 3 are read"},
                {0x03000000, "byte 4: the file is in big endian"}};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    again();
    put_start(&bytes, others[i].version, 0, 0);
    REFUSED(bytes, others[i].text);
  }
}

Test(gguf, numbers_of_entries) {
  put_start(&bytes, 3, 1000001, 0);
  REFUSED(bytes, "byte 8: 1000001 tensors; at most 1,000,000 are allowed");
  again();
  put_start(&bytes, 3, 0, UINT64_MAX);
  REFUSED(bytes, "byte 16: 18446744073709551615 keys; at most 1,000,000 are allowed");
  again();
  put_start(&bytes, 3, 0, 1000000);
  REFUSED(bytes, "byte 24: a key takes 8 bytes, but only 0 follow; is the file cut off?");
}

/* Every type of value, single and as a list, and lists of lists; what is wanted of each is that the next key is found. */
static void put_values(StrBuf *out) {
  static const unsigned sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  for (uint32_t type = 0; type <= V_F64; type++) {
    if (!sizes[type]) continue;
    put_key(out, arena_printf(arena, "one.%u", type), type);
    for (unsigned i = 0; i < sizes[type]; i++) strbuf_add_char(out, (char)(type == V_BOOL ? 1 : 0xfe));
    put_key(out, arena_printf(arena, "list.%u", type), V_LIST);
    put_u32(out, type);
    put_u64(out, 3);
    for (unsigned i = 0; i < 3 * sizes[type]; i++) strbuf_add_char(out, 1);
  }
  put_key(out, "text", V_TEXT);
  put_text(out, "a \xc3\xa9");
  put_key(out, "texts", V_LIST);
  put_u32(out, V_TEXT);
  put_u64(out, 2);
  put_text(out, "");
  put_text(out, "two");
  put_key(out, "lists", V_LIST);
  put_u32(out, V_LIST);
  put_u64(out, 2);
  for (int i = 0; i < 2; i++) {
    put_u32(out, V_U16);
    put_u64(out, 1);
    put_u16(out, 7);
  }
}

Test(gguf, keys_of_all_types) {
  put_start(&bytes, 3, 1, 2 * 11 + 3);
  put_values(&bytes);
  put_vector(&bytes, "w", T_F32, 1, 0);
  pad(&bytes, 32);
  put(&bytes, &(float){7}, 4);
  Bench bench = bench_new();
  TensorFile *file = opened(&bench, &bytes);
  cr_assert_not_null(file, "%s", first_message(&bench.diag));
  float value;
  cr_assert(tensor_file_read(file, &bench.diag, tensor_file_find(file, "w"), DTYPE_F32, &value));
  cr_expect_eq(value, 7);
  static const char *const wanted[][2] = {
      {"one.0", "254"}, {"one.1", "-2"}, {"one.2", "65278"}, {"one.3", "-258"}, {"one.5", "-16843010"}, {"one.7", "true"},
      {"one.10", "18374403900871474942"}, {"one.11", "-72340172838076674"}, {"text", "a \xc3\xa9"}};
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    const char *found = NULL;
    for (size_t k = 0; k < file->metadata.n; k++)
      if (strcmp(file->metadata.items[k].key, wanted[i][0]) == 0) found = file->metadata.items[k].value;
    cr_expect(found && strcmp(found, wanted[i][1]) == 0, "%s is %s", wanted[i][0], found);
  }
  tensor_file_close(file);
  bench_destroy(&bench);
}

Test(gguf, values_that_lie) {
  put_start(&bytes, 3, 0, 1);
  put_key(&bytes, "k", 13);
  REFUSED(bytes, "key \"k\" has a value of the unknown type 13");
  static const struct {
    uint32_t type;
    uint64_t n;
  } lists[] = {{V_U64, UINT64_MAX}, {V_U64, 1ull << 61}, {V_TEXT, UINT64_MAX}, {V_LIST, UINT64_MAX}, {V_U8, 1}};
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
    again();
    put_start(&bytes, 3, 0, 1);
    put_key(&bytes, "k", V_LIST);
    put_u32(&bytes, lists[i].type);
    put_u64(&bytes, lists[i].n);
    REFUSED(bytes, "key \"k\" takes ");
  }
  again();
  put_start(&bytes, 3, 0, 1);
  put_key(&bytes, "k", V_TEXT);
  put_u64(&bytes, UINT64_MAX);
  REFUSED(bytes, "key \"k\" takes 18446744073709551615 bytes, but only 0 follow");
  again();
  put_start(&bytes, 3, 0, 1);
  put_key(&bytes, "k", V_LIST);
  for (int i = 0; i < 20; i++) {
    put_u32(&bytes, V_LIST);
    put_u64(&bytes, 1);
  }
  REFUSED(bytes, "key \"k\": arrays are nested deeper than 8");
}

Test(gguf, names_of_keys_and_tensors) {
  put_start(&bytes, 3, 0, 2);
  for (int i = 0; i < 2; i++) {
    put_key(&bytes, "k", V_BOOL);
    strbuf_add_char(&bytes, 1);
  }
  REFUSED(bytes, "byte 38: the key \"k\" stands twice");
  static const char *const names[][2] = {
      {"", "a tensor: an empty name"}, {"a\nb", "control byte 0x0a in a name"}, {"\x7f", "control byte 0x7f"}, {"\xc0\x80", "a name is not UTF-8"}};
  for (size_t i = 0; i < 4; i++) {
    again();
    put_start(&bytes, 3, 1, 0);
    put_vector(&bytes, names[i][0], T_F32, 0, 0);
    REFUSED(bytes, names[i][1]);
  }
  for (size_t length = 4096; length <= 4097; length++) {
    again();
    put_start(&bytes, 3, 1, 0);
    char *name = arena_alloc(arena, length + 1);
    memset(name, 'x', length);
    name[length] = 0;
    put_vector(&bytes, name, T_F32, 0, 0);
    if (length == 4096) cr_expect(accepted(&bytes));
    else REFUSED(bytes, "a name of 4097 bytes; at most 4,096 are allowed");
  }
  again();
  put_start(&bytes, 3, 2, 0);
  put_vector(&bytes, "same", T_F32, 0, 0);
  put_vector(&bytes, "same", T_F32, 0, 0);
  REFUSED(bytes, "byte 60: duplicate tensor \"same\", which stands at byte 24 too");
}

/* A file with one key of U32 and two tensors of 4 bytes. */
static void put_aligned(uint32_t alignment, uint64_t first, uint64_t second, size_t n_data) {
  again();
  put_start(&bytes, 3, 2, 1);
  put_key(&bytes, "general.alignment", V_U32);
  put_u32(&bytes, alignment);
  put_vector(&bytes, "a", T_F32, 1, first);
  put_vector(&bytes, "b", T_F32, 1, second);
  if (alignment) pad(&bytes, alignment);
  put_zeroes(&bytes, n_data);
}

Test(gguf, alignment_and_places) {
  put_aligned(8, 0, 8, 12);
  cr_expect(accepted(&bytes));
  put_aligned(8, 8, 0, 12); /* in any order */
  cr_expect(accepted(&bytes));
  put_aligned(1, 0, 4, 8);
  cr_expect(accepted(&bytes));
  put_aligned(8, 0, 8, 99); /* anything may follow */
  cr_expect(accepted(&bytes));
  put_aligned(0, 0, 0, 0);
  REFUSED(bytes, "byte 24: general.alignment is not a power of two, as a U32");
  put_aligned(12, 0, 12, 16);
  REFUSED(bytes, "general.alignment is not a power of two");
  put_aligned(8, 0, 4, 8);
  REFUSED(bytes, "tensor \"b\": offset 4 is no multiple of the alignment, 8");
  put_aligned(8, 0, 0, 8);
  REFUSED(bytes, "tensor \"b\": offsets [0, 4) overlap \"a\", which ends at 4");
  put_aligned(8, 0, 16, 24);
  REFUSED(bytes, "tensor \"b\": a hole of 12 bytes before offset 16");
  put_aligned(8, 8, 16, 24);
  REFUSED(bytes, "tensor \"a\": a hole of 8 bytes before offset 8");
  put_aligned(8, 0, 8, 11);
  REFUSED(bytes, "tensor \"b\": offsets [8, 12) end after the data, which has 11 bytes; is the file cut off?");
  put_aligned(8, 0, INT64_MAX - 7, 12);
  REFUSED(bytes, "end after the data");
  put_aligned(8, 0, (uint64_t)INT64_MAX + 1, 12);
  REFUSED(bytes, "tensor \"b\": its end overflows");
  put_aligned(1, 0, INT64_MAX, 12);
  REFUSED(bytes, "tensor \"b\": its end overflows");
  again();
  put_start(&bytes, 3, 0, 1);
  put_key(&bytes, "general.alignment", V_U64);
  put_u64(&bytes, 32);
  REFUSED(bytes, "general.alignment is not a power of two, as a U32");
}

Test(gguf, one_part_of_several) {
  put_start(&bytes, 3, 0, 1);
  put_key(&bytes, "split.count", V_U16);
  put_u16(&bytes, 3);
  REFUSED(bytes, "this is one of 3 parts of a model; `llama-gguf-split --merge");
  again();
  put_start(&bytes, 3, 0, 1);
  put_key(&bytes, "split.count", V_U16);
  put_u16(&bytes, 1);
  cr_expect(accepted(&bytes));
}

// ---- shapes ----

Test(gguf, shapes_that_lie) {
  static const struct {
    uint32_t type, rank;
    uint64_t dims[9];
    const char *text;
  } cases[] = {{T_F32, 9, {1, 1, 1, 1, 1, 1, 1, 1, 1}, "tensor \"w\" has 9 axes; at most 8 are allowed"},
               {T_F32, UINT32_MAX, {1}, "has 4294967295 axes"},
               {T_F32, 2, {1ull << 32, 1ull << 32}, "tensor \"w\": the product of its shape overflows"},
               {T_F32, 1, {1ull << 62}, "tensor \"w\": the product of its shape overflows"},
               {T_F32, 1, {UINT64_MAX}, "tensor \"w\": the product of its shape overflows"},
               {T_F32, 2, {0, 1ull << 63}, "tensor \"w\": the product of its shape overflows"},
               {T_Q8_0, 1, {(uint64_t)INT64_MAX - 31}, "tensor \"w\": the product of its shape overflows"},
               {T_Q8_0, 2, {33, 32}, "tensor \"w\": rows of 33 numbers are no whole blocks of Q8_0, which have 32"},
               {T_Q6_K, 2, {32, 256}, "tensor \"w\": rows of 32 numbers are no whole blocks of Q6_K, which have 256"},
               {T_Q8_0, 0, {0}, "tensor \"w\": rows of 1 numbers are no whole blocks"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    again();
    put_start(&bytes, 3, 1, 0);
    put_text(&bytes, "w");
    put_u32(&bytes, cases[i].rank);
    for (uint32_t k = 0; k < cases[i].rank && k < 9; k++) put_u64(&bytes, cases[i].dims[k]);
    put_u32(&bytes, cases[i].type);
    put_u64(&bytes, 0);
    REFUSED(bytes, cases[i].text);
  }
}

/* An unknown type has no size: it may be followed by anything, and the others are read. */
Test(gguf, dims_are_turned_round_and_unknown_types_pass) {
  put_start(&bytes, 2, 3, 0);
  put_tensor(&bytes, "w", T_F32, 3, (uint64_t[]){4, 3, 2}, 0);
  put_vector(&bytes, "strange", 999, 5, 96);
  put_vector(&bytes, "scalar", T_F32, 1, 4096);
  pad(&bytes, 32);
  put_zeroes(&bytes, 4096);
  put(&bytes, &(float){3}, 4);
  Bench bench = bench_new();
  TensorFile *file = opened(&bench, &bytes);
  cr_assert_not_null(file, "%s", first_message(&bench.diag));
  const FileTensor *w = tensor_file_find(file, "w"), *strange = tensor_file_find(file, "strange");
  cr_expect(w->rank == 3 && w->dims[0] == 2 && w->dims[1] == 3 && w->dims[2] == 4 && w->elements == 24);
  cr_expect_str_eq(strange->dtype_name, "number 999 of GGUF");
  cr_expect_not(can_convert(strange->dtype, DTYPE_F32));
  float value;
  cr_assert(tensor_file_read(file, &bench.diag, tensor_file_find(file, "scalar"), DTYPE_F32, &value));
  cr_expect_eq(value, 3);
  tensor_file_close(file);
  bench_destroy(&bench);
}

// ---- values ----

/* Reads parts of a tensor "w" that begin and end within blocks; they must be those of the whole. */
static void check_values(uint32_t type, uint64_t n, const void *blocks, size_t size, const float *wanted) {
  again();
  put_start(&bytes, 3, 1, 0);
  put_vector(&bytes, "w", type, n, 0);
  pad(&bytes, 32);
  put(&bytes, blocks, size);
  Bench bench = bench_new();
  TensorFile *file = opened(&bench, &bytes);
  cr_assert_not_null(file, "%s", first_message(&bench.diag));
  const FileTensor *w = tensor_file_find(file, "w");
  float *values = ARENA_ARRAY(arena, float, n + 1);
  cr_assert(tensor_file_read(file, &bench.diag, w, DTYPE_F32, values));
  for (uint64_t i = 0; i < n; i++) cr_assert_eq(values[i], wanted[i], "%llu of type %u: %g, not %g", (unsigned long long)i, type, (double)values[i], (double)wanted[i]);
  for (int64_t first = 0; first < (int64_t)n; first += 7)
    for (int64_t length = 0; length <= 70 && first + length <= (int64_t)n; length += 5) {
      values[length] = -99;
      cr_assert(tensor_file_read_part(file, &bench.diag, (FileTensorPart){w, first, length}, DTYPE_F32, values));
      cr_assert_eq(memcmp(values, wanted + first, (size_t)length * 4), 0, "[%lld, +%lld)", (long long)first, (long long)length);
      cr_assert_eq(values[length], -99);
    }
  tensor_file_close(file);
  bench_destroy(&bench);
}

static void put_half(unsigned char *to, float value) {
  const uint16_t half = f32_to_f16(value);
  memcpy(to, &half, 2);
}

Test(gguf, values_of_16_bits_and_blocks_of_32) {
  enum { N = 64 };
  float wanted[N];
  uint16_t halves[N];
  for (int i = 0; i < N; i++) wanted[i] = (float)(i - 20) * 0.125f;
  for (int i = 0; i < N; i++) halves[i] = f32_to_f16(wanted[i]);
  check_values(T_F16, N, halves, sizeof halves, wanted);
  for (int i = 0; i < N; i++) halves[i] = f32_to_bf16(wanted[i]);
  check_values(T_BF16, N, halves, sizeof halves, wanted);
  check_values(T_F32, N, wanted, sizeof wanted, wanted);
  unsigned char q8[2][34], q4[2][18];
  for (int block = 0; block < 2; block++) {
    const float d = block ? -0.75f : 0.0625f;
    put_half(q8[block], d);
    for (int i = 0; i < 32; i++) wanted[32 * block + i] = d * (float)(int8_t)(q8[block][2 + i] = (unsigned char)(i * 37 - 128));
  }
  check_values(T_Q8_0, N, q8, sizeof q8, wanted);
  for (int block = 0; block < 2; block++) {
    const float d = block ? 3.0f : -0.5f;
    put_half(q4[block], d);
    for (int i = 0; i < 16; i++) {
      const int low = (i + block) % 16, high = (5 * i + 3) % 16;
      q4[block][2 + i] = (unsigned char)(low | high << 4);
      wanted[32 * block + i] = d * (float)(low - 8);
      wanted[32 * block + 16 + i] = d * (float)(high - 8);
    }
  }
  check_values(T_Q4_0, N, q4, sizeof q4, wanted);
}

/* The blocks are packed here from their numbers, which is the other way than the reader goes. */
Test(gguf, values_of_blocks_of_256) {
  enum { N = 512 };
  float wanted[N];
  unsigned char q4[2][144] = {{0}}, q6[2][210] = {{0}};
  for (int block = 0; block < 2; block++) {
    const float d = block ? 0.5f : 0.0078125f, least = block ? -0.25f : 1.5f;
    put_half(q4[block], d);
    put_half(q4[block] + 2, least);
    unsigned char *packed = q4[block] + 4;
    for (int g = 0; g < 8; g++) {
      const int scale = (g * 23 + 11 * block + 40) % 64, minimum = (g * 29 + 50) % 64;
      if (g < 4) {
        packed[g] |= (unsigned char)scale;
        packed[g + 4] |= (unsigned char)minimum;
      } else {
        packed[g + 4] |= (unsigned char)((scale % 16) | (minimum % 16) << 4);
        packed[g - 4] |= (unsigned char)(scale / 16 << 6);
        packed[g] |= (unsigned char)(minimum / 16 << 6);
      }
      for (int i = 0; i < 32; i++) {
        const int q = (i * 7 + g) % 16;
        q4[block][16 + g / 2 * 32 + i] |= (unsigned char)(q << g % 2 * 4);
        wanted[256 * block + 32 * g + i] = d * (float)scale * (float)q - least * (float)minimum;
      }
    }
  }
  check_values(T_Q4_K, N, q4, sizeof q4, wanted);
  for (int block = 0; block < 2; block++) {
    const float d = block ? -1.25f : 0.00390625f;
    put_half(q6[block] + 208, d);
    for (int i = 0; i < 16; i++) q6[block][192 + i] = (unsigned char)(i * 31 - 100);
    for (int i = 0; i < 256; i++) {
      const int q = (i * 11 + block) % 64, half = i / 128, quarter = i % 128 / 32, at = i % 32;
      q6[block][64 * half + (quarter & 1) * 32 + at] |= (unsigned char)(q % 16 << (quarter & 2) * 2);
      q6[block][128 + 32 * half + at] |= (unsigned char)(q / 16 << 2 * quarter);
      wanted[256 * block + i] = d * (float)(int8_t)q6[block][192 + i / 16] * (float)(q - 32);
    }
  }
  check_values(T_Q6_K, N, q6, sizeof q6, wanted);
}

/* More than a piece of the file that is read at a time. */
Test(gguf, long_tensors) {
  enum { BLOCKS = 40000 };
  unsigned char *blocks = arena_alloc(arena, BLOCKS * 34);
  float *wanted = ARENA_ARRAY(arena, float, BLOCKS * 32);
  for (int block = 0; block < BLOCKS; block++) {
    put_half(blocks + 34 * block, 0.25f);
    for (int i = 0; i < 32; i++) wanted[32 * block + i] = 0.25f * (float)(int8_t)(blocks[34 * block + 2 + i] = (unsigned char)(block * 7 + i));
  }
  put_start(&bytes, 3, 1, 0);
  put_vector(&bytes, "w", T_Q8_0, BLOCKS * 32, 0);
  pad(&bytes, 32);
  put(&bytes, blocks, BLOCKS * 34);
  Bench bench = bench_new();
  TensorFile *file = opened(&bench, &bytes);
  cr_assert_not_null(file, "%s", first_message(&bench.diag));
  float *values = ARENA_ARRAY(arena, float, BLOCKS * 32);
  const FileTensor *w = tensor_file_find(file, "w");
  cr_assert(tensor_file_read_part(file, &bench.diag, (FileTensorPart){w, 5, BLOCKS * 32 - 9}, DTYPE_F32, values));
  cr_expect_eq(memcmp(values, wanted + 5, (BLOCKS * 32 - 9) * 4), 0);
  SpecialCounts counts;
  cr_assert(tensor_file_count(file, &bench.diag, w, &counts));
  cr_expect(!counts.nan && !counts.infinite && !counts.subnormal);
  tensor_file_close(file);
  bench_destroy(&bench);
}

// ---- every byte ----

Test(gguf, every_prefix_and_every_bit) {
  put_start(&bytes, 3, 2, 3);
  put_key(&bytes, "general.alignment", V_U32);
  put_u32(&bytes, 16);
  put_key(&bytes, "text", V_TEXT);
  put_text(&bytes, "abc");
  put_key(&bytes, "list", V_LIST);
  put_u32(&bytes, V_TEXT);
  put_u64(&bytes, 1);
  put_text(&bytes, "x");
  put_tensor(&bytes, "a", T_Q8_0, 2, (uint64_t[]){32, 1}, 0);
  put_vector(&bytes, "b", T_F32, 1, 48);
  const size_t head = bytes.length;
  pad(&bytes, 16);
  put_zeroes(&bytes, 52);
  cr_assert(accepted(&bytes));
  for (size_t n = 0; n < bytes.length; n++) {
    Bench bench = bench_new();
    bench_write(&bench, bytes.text, n);
    cr_assert_null(gguf_open(bench.arena, &bench.diag, bench.path), "prefix of %zu bytes", n);
    cr_assert_eq(bench.diag.n_errors, 1);
    bench_destroy(&bench);
  }
  for (size_t bit = 0; bit < 8 * head; bit++) {
    Bench bench = bench_new();
    bytes.text[bit / 8] ^= (char)(1 << bit % 8);
    TensorFile *file = opened(&bench, &bytes);
    bytes.text[bit / 8] ^= (char)(1 << bit % 8);
    cr_assert_eq(file == NULL, bench.diag.n_errors == 1, "bit %zu", bit);
    tensor_file_close(file);
    bench_destroy(&bench);
  }
}
