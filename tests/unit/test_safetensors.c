/* The reader and the writer of safetensors files; the numbers name the kinds of malformed files. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tfm/abi/half.h"
#include "weight_files.h"
#include "weights/weight_set.h"

#define ONE "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}"

static bool raw_refused(const void *bytes, size_t size, const char *text) {
  Bench bench = bench_new();
  bench_write(&bench, bytes, size);
  TensorFile *file = safetensors_open(bench.arena, &bench.diag, bench.path);
  bool right = !file && bench.diag.n_errors == 1 && strstr(first_message(&bench.diag), text);
  if (!right) fprintf(stderr, "wanted \"%s\", got \"%s\"\n", text, first_message(&bench.diag));
  tensor_file_close(file);
  bench_destroy(&bench);
  return right;
}

Test(safetensors, W01_files_shorter_than_the_length) {
  for (size_t size = 0; size < 8; size++) cr_assert(raw_refused("\2\0\0\0\0\0\0", size, "too small for the header length"));
}

Test(safetensors, W02_lengths_of_the_header) {
  cr_assert(raw_refused("\0\0\0\0\0\0\0\0", 8, "expected '{'"));
  cr_assert(raw_refused("\0\0\0\0\0\0\0\0{}", 10, "expected '{'"));
  cr_assert(raw_refused("\3\0\0\0\0\0\0\0{}", 10, "only 2 bytes follow"));
  cr_assert(raw_refused("\1\xe1\xf5\5\0\0\0\0{}", 10, "at most 100,000,000")); /* 100,000,001 */
  cr_assert(raw_refused("\0\xe1\xf5\5\0\0\0\0{}", 10, "only 2 bytes follow")); /* 100,000,000 */
  cr_assert(raw_refused("\0\0\0\0\0\0\0\x80{}", 10, "at most 100,000,000"));   /* 2^63 */
  cr_assert(raw_refused("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, "at most 100,000,000"));
}

Test(safetensors, W02_files_of_another_kind) {
  cr_assert(raw_refused("PK\3\4\0\0\10\10", 8, "this is a file of torch.save"));
  cr_assert(raw_refused("PK\3\4\0\0\10\10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\7\0\0\0ids.npy", 37, "this is a .npz archive"));
  cr_assert(raw_refused("PK\3\4\0\0\10\10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\10\0\0\0data.pkl", 38, "this is a file of torch.save"));
  cr_assert(raw_refused("\x80\2\x8a\nl\xfc\x9c""F", 8, "this is a file of torch.save"));
  cr_assert(raw_refused("\x93NUMPY\1\0", 8, "this is a .npy file"));
  cr_assert(raw_refused("GGUF\3\0\0\0", 8, "this is a GGUF file"));
  cr_assert(raw_refused("version https://", 16, "git lfs pull"));
}

Test(safetensors, W03_headers_that_are_no_JSON_object) {
  cr_assert(safetensors_refused("[]", 0, "header byte 0: expected '{'"));
  cr_assert(safetensors_refused("1", 0, "expected '{'"));
  cr_assert(safetensors_refused("\"a\"", 0, "expected '{'"));
  cr_assert(safetensors_refused("null", 0, "expected '{'"));
  cr_assert(safetensors_refused("{", 0, "the end of the header"));
  cr_assert(safetensors_refused("{,}", 0, "expected a string"));
  cr_assert(safetensors_refused("{} x", 0, "header byte 3: bytes after"));
  cr_assert(safetensors_refused("{}{}", 0, "bytes after"));
  cr_assert(safetensors_refused("{\"\xff\":{}}", 0, "not UTF-8"));
  cr_assert(safetensors_refused("{\"\xc0\x80\":{}}", 0, "not UTF-8"));     /* overlong */
  cr_assert(safetensors_refused("{\"\xed\xa0\x80\":{}}", 0, "not UTF-8")); /* a surrogate */
  cr_assert(safetensors_refused("{\"\\ud800\":{}}", 0, "lone surrogate"));
  cr_assert(safetensors_refused("{\"\\udc00\":{}}", 0, "lone surrogate"));
  cr_assert(safetensors_refused("{\"\\x\":{}}", 0, "escape that JSON does not have"));
  cr_assert(safetensors_refused("{\"\\u12g4\":{}}", 0, "four hexadecimal digits"));
  cr_assert(safetensors_refused("{\"a", 0, "without an end"));
  cr_assert(safetensors_accepted("{} \n\t\r", 0));
}

Test(safetensors, W04_blanks_before_the_brace) {
  cr_assert(safetensors_accepted(" \n\t" ONE, 8));
  cr_assert(safetensors_accepted("  { \"a\" : { \"dtype\" : \"F32\" , \"shape\" : [ 2 ] , \"data_offsets\" : [ 0 , 8 ] } } ", 8));
}

Test(safetensors, W05_duplicate_keys) {
  const char *entry = "{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}";
  char header[512];
  snprintf(header, sizeof header, "{\"a\":%s,\"a\":%s}", entry, entry);
  cr_assert(safetensors_refused(header, 0, "header byte 54: duplicate key \"a\", which stands at byte 1 too"));
  snprintf(header, sizeof header, "{\"a\":%s,\"\\u0061\":%s}", entry, entry);
  cr_assert(safetensors_refused(header, 0, "duplicate key \"a\""));
  snprintf(header, sizeof header, "{\"__metadata__\":{},\"a\":%s,\"__metadata__\":{}}", entry);
  cr_assert(safetensors_refused(header, 0, "duplicate key \"__metadata__\""));
  cr_assert(safetensors_refused("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0,
                                "tensor \"a\": duplicate key \"dtype\""));
  cr_assert(safetensors_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"\\u0073hape\":[0],\"data_offsets\":[0,0]}}", 0,
                                "duplicate key \"shape\""));
  cr_assert(safetensors_refused("{\"__metadata__\":{\"k\":\"1\",\"\\u006b\":\"2\"}}", 0, "duplicate key \"k\" in __metadata__"));
}

Test(safetensors, W06_deep_and_wide_headers) {
  Bench bench = bench_new();
  StrBuf text = strbuf_new(bench.arena);
  clock_t begin = clock();
  strbuf_add(&text, "{\"a\":");
  for (int i = 0; i < 1000000; i++) strbuf_add_char(&text, '{');
  bench_write_safetensors(&bench, text.text, text.length, 0);
  cr_assert_null(safetensors_open(bench.arena, &bench.diag, bench.path));
  cr_assert(strstr(first_message(&bench.diag), "expected a string, found '{'"));
  bench_destroy(&bench);

  bench = bench_new();
  text = strbuf_new(bench.arena);
  for (int i = 0; i <= SAFETENSORS_MAX_TENSORS; i++)
    strbuf_printf(&text, "%c\"%x\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}", i ? ',' : '{', (unsigned)i);
  strbuf_add_char(&text, '}');
  bench_write_safetensors(&bench, text.text, text.length, 0);
  cr_assert_null(safetensors_open(bench.arena, &bench.diag, bench.path));
  cr_assert(strstr(first_message(&bench.diag), "more than 1,000,000 tensors"));
  bench_destroy(&bench);
  cr_assert_lt((double)(clock() - begin) / CLOCKS_PER_SEC, 30.0);
}

static bool offsets_refused(const char *offsets, const char *text) {
  char header[256];
  snprintf(header, sizeof header, "{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":%s}}", offsets);
  return safetensors_refused(header, 8, text);
}

Test(safetensors, W07_offsets) {
  cr_assert(offsets_refused("[8,0]", "tensor \"a\": offsets [8, 0) run backwards"));
  cr_assert(offsets_refused("[-1,8]", "expected a whole number"));
  cr_assert(offsets_refused("[0.0,8]", "not written as a whole number"));
  cr_assert(offsets_refused("[0,8e0]", "not written as a whole number"));
  cr_assert(offsets_refused("[\"0\",8]", "expected a whole number"));
  cr_assert(offsets_refused("[0,8,8]", "data_offsets has 3 numbers"));
  cr_assert(offsets_refused("[0]", "data_offsets has 1 numbers"));
  cr_assert(offsets_refused("[]", "data_offsets has 0 numbers"));
  cr_assert(offsets_refused("[0,9223372036854775808]", "larger than 2^63 - 1"));
  cr_assert(offsets_refused("[0,9]", "end after the data, which has 8 bytes"));
  cr_assert(offsets_refused("[9,9223372036854775807]", "end after the data"));
  cr_assert(offsets_refused("[00,8]", "leading zero"));
  cr_assert(offsets_refused("[0,8,]", "expected a whole number"));
  cr_assert(offsets_refused("{}", "expected '['"));
}

#define BYTES(name, from, to) "\"" name "\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[" #from "," #to "]}"

Test(safetensors, W08_tensors_tile_the_data) {
  cr_assert(safetensors_accepted("{" BYTES("b", 4, 8) "," BYTES("a", 0, 4) "}", 8));
  cr_assert(safetensors_refused("{" BYTES("a", 0, 4) "," BYTES("b", 2, 6) "}", 6, "tensor \"b\": offsets [2, 6) overlap \"a\""));
  cr_assert(safetensors_refused("{" BYTES("a", 0, 4) "," BYTES("b", 0, 4) "}", 4, "overlap"));
  cr_assert(safetensors_refused("{" BYTES("a", 0, 4) "," BYTES("b", 5, 9) "}", 9, "tensor \"b\": a hole of 1 bytes"));
  cr_assert(safetensors_refused("{" BYTES("a", 1, 5) "}", 5, "a hole of 1 bytes"));
  cr_assert(safetensors_refused("{" BYTES("a", 0, 4) "}", 5, "end at byte 4 of the data, but the file has 5"));
  cr_assert(safetensors_refused("{}", 1, "end at byte 0"));
}

Test(safetensors, W09_shape_and_size) {
  cr_assert(safetensors_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", 8, "F32[3] takes 96 bits"));
  cr_assert(safetensors_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0, "overflows"));
  cr_assert(safetensors_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 0, "overflows"));
  cr_assert(safetensors_accepted("{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4));
  cr_assert(safetensors_accepted("{\"z\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[0,0]},"
                                 "\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                                 "\"y\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,4]}}", 4));
  cr_assert(safetensors_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "tensor \"a\" has no data_offsets"));
  cr_assert(safetensors_refused("{\"a\":{}}", 0, "tensor \"a\" has no dtype"));
  cr_assert(safetensors_refused("{\"a\":{\"shape\":3}}", 0, "expected '['"));
  cr_assert(safetensors_refused("{\"a\":[]}", 0, "expected '{'"));
  cr_assert(safetensors_refused("{\"a\":{\"stride\":[1]}}", 0, "unknown key \"stride\""));
}

Test(safetensors, W10_types) {
  cr_assert(safetensors_accepted("{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[8],\"data_offsets\":[0,8]}}", 8));
  cr_assert(safetensors_accepted("{\"a\":{\"dtype\":\"C64\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8));
  cr_assert(safetensors_accepted("{\"a\":{\"dtype\":\"F4\",\"shape\":[16],\"data_offsets\":[0,8]}}", 8));
  cr_assert(safetensors_refused("{\"a\":{\"dtype\":\"F4\",\"shape\":[15],\"data_offsets\":[0,8]}}", 8, "takes 60 bits"));
  cr_assert(safetensors_refused("{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,8]}}", 8, "expected a string"));
  /* A type of tomorrow is no fault of the file; a model that asks for the tensor is told (tests/e2e). */
  cr_assert(safetensors_accepted("{\"a\":{\"dtype\":\"F128\",\"shape\":[1],\"data_offsets\":[0,16]}}", 16));
  cr_assert_not(can_convert(FILE_F64, DTYPE_F32));
  cr_assert_not(can_convert(FILE_UNKNOWN, DTYPE_F32));
}

Test(safetensors, W11_metadata) {
  cr_assert(safetensors_accepted("{\"__metadata__\":{\"format\":\"pt\",\"note\":\"a\\nb\"}}", 0));
  cr_assert(safetensors_refused("{\"__metadata__\":{\"n\":1}}", 0, "__metadata__ \"n\": expected a string"));
  cr_assert(safetensors_refused("{\"__metadata__\":[]}", 0, "must be an object of strings"));
  cr_assert(safetensors_refused("{\"__metadata__\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "expected a string"));
}

Test(safetensors, W12_data_at_odd_addresses) {
  Bench bench = bench_new();
  const char *header = "{\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                       "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[1,9]},"
                       "\"h\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[9,13]} }";
  bench_write_safetensors(&bench, header, strlen(header), 13);
  TensorFile *file = safetensors_open(bench.arena, &bench.diag, bench.path);
  cr_assert_not_null(file);
  float a[2], h[2], expected;
  cr_assert(tensor_file_read(file, &bench.diag, tensor_file_find(file, "a"), DTYPE_F32, a));
  cr_assert(tensor_file_read(file, &bench.diag, tensor_file_find(file, "h"), DTYPE_F32, h));
  memcpy(&expected, "\1\2\3\4", 4);
  cr_assert_eq(a[0], expected);
  cr_assert_eq(h[1], f16_to_f32(0x0c0b));
  float parts[2] = {0, 7};
  cr_assert(tensor_file_read_part(file, &bench.diag, (FileTensorPart){tensor_file_find(file, "a"), 1, 1}, DTYPE_F32, parts));
  cr_assert_eq(memcmp(&parts[0], &a[1], 4), 0);
  cr_assert(tensor_file_read_part(file, &bench.diag, (FileTensorPart){tensor_file_find(file, "h"), 1, 1}, DTYPE_F32, parts));
  cr_assert_eq(parts[0], h[1]);
  cr_assert_eq(parts[1], 7, "what follows a part is not written");
  tensor_file_close(file);
  bench_destroy(&bench);
}

Test(safetensors, W13_special_values_are_counted) {
  Bench bench = bench_new();
  float values[6] = {NAN, INFINITY, -INFINITY, 0x1p-130f, 0.0f, 1.0f};
  Tensor tensor = {DTYPE_F32, 1, {6}, values};
  const char *name = "w";
  cr_assert(safetensors_write(&bench.diag, bench.path, &name, &tensor, 1));
  TensorFile *file = safetensors_open(bench.arena, &bench.diag, bench.path);
  SpecialCounts counts;
  cr_assert(tensor_file_count(file, &bench.diag, tensor_file_find(file, "w"), &counts));
  cr_assert_eq(counts.nan, 1);
  cr_assert_eq(counts.infinite, 2);
  cr_assert_eq(counts.subnormal, 1);
  tensor_file_close(file);
  bench_destroy(&bench);
}

/* The value of a half by its definition. */
static double half_value(unsigned bits) {
  unsigned exponent = bits >> 10 & 31, mantissa = bits & 1023;
  double magnitude = exponent == 0    ? ldexp(mantissa, -24)
                     : exponent < 31  ? ldexp(1024 + mantissa, (int)exponent - 25)
                     : mantissa == 0  ? INFINITY
                                      : NAN;
  return bits >> 15 ? -magnitude : magnitude;
}

Test(safetensors, W14_every_half) {
  for (unsigned bits = 0; bits < 65536; bits++) {
    double wanted = half_value(bits);
    float got = f16_to_f32((uint16_t)bits), wide = bf16_to_f32((uint16_t)bits);
    cr_assert(isnan(wanted) ? isnan(got) : (double)got == wanted && !signbit(got) == !signbit(wanted), "half %04x", bits);
    uint32_t raw;
    memcpy(&raw, &wide, 4);
    cr_assert_eq(raw, bits << 16, "bfloat %04x", bits);
  }
  cr_assert_eq(f16_to_f32(0x7bff), 65504.0f);
}

Test(safetensors, W15_integers_must_fit) {
  Bench bench = bench_new();
  int64_t ids[3] = {-2147483648ll, 2147483647, 2147483648ll};
  const char *header = "{\"i\":{\"dtype\":\"I64\",\"shape\":[3],\"data_offsets\":[0,24]},"
                       "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[24,26]}}";
  StrBuf text = strbuf_new(bench.arena);
  uint64_t length = strlen(header);
  strbuf_add_n(&text, (const char *)&length, 8);
  strbuf_add(&text, header);
  strbuf_add_n(&text, (const char *)ids, sizeof ids);
  strbuf_add_n(&text, "\1\2", 2);
  bench_write(&bench, text.text, text.length);
  TensorFile *file = safetensors_open(bench.arena, &bench.diag, bench.path);
  int32_t narrow[3];
  unsigned char bools[2];
  cr_assert_not(tensor_file_read(file, &bench.diag, tensor_file_find(file, "i"), DTYPE_I32, narrow));
  cr_assert(strstr(first_message(&bench.diag), "element 2 is 2147483648, which is no i32"));
  cr_assert_not(tensor_file_read(file, &bench.diag, tensor_file_find(file, "b"), DTYPE_BOOL, bools));
  cr_assert(strstr(bench.diag.messages.items[1].text, "element 1 is 2, which is no bool"));
  tensor_file_close(file);
  bench_destroy(&bench);
}

Test(safetensors, W19_every_prefix_and_every_bit) {
  Bench whole = bench_new();
  const char *header = "{\"__metadata__\":{\"k\":\"v\"}," BYTES("a", 0, 4) "," BYTES("b\\u00e9", 4, 8) "}";
  bench_write_safetensors(&whole, header, strlen(header), 8);
  char bytes[512];
  FILE *from = fopen(whole.path, "rb");
  size_t size = fread(bytes, 1, sizeof bytes, from);
  fclose(from);
  for (size_t n = 0; n < size; n++) {
    Bench bench = bench_new();
    bench_write(&bench, bytes, n);
    cr_assert_null(safetensors_open(bench.arena, &bench.diag, bench.path), "prefix of %zu bytes", n);
    cr_assert_eq(bench.diag.n_errors, 1);
    bench_destroy(&bench);
  }
  for (size_t bit = 0; bit < 8 * (size - 8); bit++) {
    Bench bench = bench_new();
    bytes[bit / 8] ^= (char)(1 << bit % 8);
    bench_write(&bench, bytes, size);
    bytes[bit / 8] ^= (char)(1 << bit % 8);
    TensorFile *file = safetensors_open(bench.arena, &bench.diag, bench.path);
    cr_assert_eq(file == NULL, bench.diag.n_errors == 1, "bit %zu", bit);
    tensor_file_close(file);
    bench_destroy(&bench);
  }
  bench_destroy(&whole);
}

Test(safetensors, W21_names) {
  StrBuf header = strbuf_new(arena_create());
  cr_assert(safetensors_refused("{\"\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0, "an empty name"));
  cr_assert(safetensors_refused("{\"a\\u0000b\":{}}", 0, "control byte 0x00 in a name"));
  cr_assert(safetensors_refused("{\"a\\nb\":{}}", 0, "control byte 0x0a in a name"));
  cr_assert(safetensors_refused("{\"a\nb\":{}}", 0, "control byte 0x0a in a string"));
  cr_assert(safetensors_accepted("{\"a/b c\\\"\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0));
  for (int length = 4096; length <= 4097; length++) {
    header.length = 0;
    strbuf_add(&header, "{\"");
    for (int i = 0; i < length; i++) strbuf_add_char(&header, 'n');
    strbuf_add(&header, "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}");
    cr_assert(length == 4096 ? safetensors_accepted(header.text, 0) : safetensors_refused(header.text, 0, "at most 4,096"));
  }
  arena_destroy(header.arena);
}

static float read_one(Bench *bench, const TensorFile *tensors, const char *name, bool *good) {
  float value = -1;
  *good = tensor_file_read(tensors, &bench->diag, tensor_file_find(tensors, name), DTYPE_F32, &value);
  return value;
}

/* Nothing is mapped: what others do to the file is an error or other numbers, never a signal. */
Test(safetensors, W18_files_changed_while_they_are_open) {
  Bench bench = bench_new();
  const char *header = "{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
                       "\"b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[4,8]}}";
  bool good;
  bench_write_safetensors(&bench, header, strlen(header), 8);
  TensorFile *tensors = safetensors_open(bench.arena, &bench.diag, bench.path);
  cr_assert_not_null(tensors);
  read_one(&bench, tensors, "b", &good);
  cr_assert(good);
  FILE *file = fopen(bench.path, "r+b"); /* overwritten, its header too */
  for (size_t i = 0; i < 8 + strlen(header); i++) fputc('x', file);
  fwrite(&(float){3}, 4, 1, file);
  fclose(file);
  cr_assert_eq(read_one(&bench, tensors, "a", &good), 3.0f);
  cr_assert(good);
  cr_assert_eq(truncate(bench.path, (off_t)(8 + strlen(header) + 4)), 0);
  cr_assert_eq(read_one(&bench, tensors, "a", &good), 3.0f);
  read_one(&bench, tensors, "b", &good);
  cr_assert_not(good);
  cr_assert_eq(bench.diag.n_errors, 1);
  cr_assert_eq(truncate(bench.path, 0), 0);
  read_one(&bench, tensors, "a", &good);
  cr_assert_not(good);
  tensor_file_close(tensors);
  bench_destroy(&bench);
}

/* 4.5 GB of zeroes that take no room on the disk: the last elements lie beyond 2^32 bytes and 2^30 elements. */
Test(safetensors, W23_large_tensors) {
  Bench bench = bench_new();
  const char *header = "{\"a\":{\"dtype\":\"F32\",\"shape\":[1125000000],\"data_offsets\":[0,4500000000]},"
                       "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4500000000,4500000004]}}";
  bench_write_safetensors(&bench, header, strlen(header), 0);
  off_t end = (off_t)(8 + strlen(header)) + 4500000004ll;
  cr_assert_eq(truncate(bench.path, end), 0);
  FILE *file = fopen(bench.path, "r+b");
  float value = 7;
  fseeko(file, end - 4, SEEK_SET);
  fwrite(&value, 4, 1, file);
  fclose(file);
  TensorFile *tensors = safetensors_open(bench.arena, &bench.diag, bench.path);
  cr_assert_not_null(tensors);
  value = 0;
  cr_assert(tensor_file_read(tensors, &bench.diag, tensor_file_find(tensors, "b"), DTYPE_F32, &value));
  cr_assert_eq(value, 7.0f);
  tensor_file_close(tensors);
  bench_destroy(&bench);
}

// ---- writing ----

Test(safetensors_writer, what_is_written_is_read) {
  Bench bench = bench_new();
  float f[3] = {1.5f, -0.0f, NAN};
  int32_t i[2] = {INT32_MIN, 7};
  uint8_t b[3] = {1, 0, 1};
  const char *names[] = {"flags \"x\"", "f", "empty", "i", "scalar"};
  Tensor tensors[] = {{DTYPE_BOOL, 1, {3}, b}, {DTYPE_F32, 2, {3, 1}, f}, {DTYPE_F32, 2, {0, 5}, f},
                      {DTYPE_I32, 1, {2}, i},  {DTYPE_F32, 0, {0}, f}};
  cr_assert(safetensors_write(&bench.diag, bench.path, names, tensors, 5));
  TensorFile *file = safetensors_open(bench.arena, &bench.diag, bench.path);
  cr_assert_not_null(file, "%s", first_message(&bench.diag));
  cr_assert_eq(file->data_begin % 8, 0);
  for (int k = 0; k < 5; k++) {
    const FileTensor *tensor = tensor_file_find(file, names[k]);
    cr_assert_not_null(tensor);
    cr_assert_eq(tensor->rank, tensors[k].rank);
    size_t bytes = (size_t)tensor_elements(&tensors[k]) * dtype_bytes[tensors[k].dtype];
    char read[16];
    cr_assert(tensor_file_read(file, &bench.diag, tensor, tensors[k].dtype, read));
    cr_assert_eq(memcmp(read, tensors[k].data, bytes), 0);
    if (tensors[k].dtype != DTYPE_BOOL) cr_assert_eq((file->data_begin + tensor->begin) % 4, 0);
  }
  tensor_file_close(file);
  bench_destroy(&bench);
}

Test(safetensors_writer, a_file_that_cannot_be_written) {
  Bench bench = bench_new();
  float value = 1;
  Tensor tensor = {DTYPE_F32, 1, {1}, &value};
  const char *name = "w";
  cr_assert_not(safetensors_write(&bench.diag, "/nowhere/at/all/x.safetensors", &name, &tensor, 1));
  cr_assert_eq(bench.diag.exit_code, 3);
  cr_assert_not(safetensors_write(&bench.diag, "/tmp", &name, &tensor, 1));
  bench_destroy(&bench);
}
