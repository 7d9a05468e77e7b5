/* The reader and the writer of npy files; the numbers name the kinds of malformed files. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "weight_files.h"

#define TWO "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }"

static bool raw_refused(const void *bytes, size_t size, const char *text) {
  Bench bench = bench_new();
  NpyFile npy;
  bench_write(&bench, bytes, size);
  bool right = !npy_open(&npy, &bench.diag, bench.path) && bench.diag.n_errors == 1 &&
               strstr(first_message(&bench.diag), text);
  if (!right) fprintf(stderr, "wanted \"%s\", got \"%s\"\n", text, first_message(&bench.diag));
  bench_destroy(&bench);
  return right;
}

Test(npy, N01_magic_version_length) {
  cr_assert(raw_refused("", 0, "no .npy file"));
  cr_assert(raw_refused("\x93NUMPY\1\0\1", 9, "no .npy file"));
  cr_assert(raw_refused("\x93NUMPX\1\0\2\0{}", 12, "no .npy file"));
  cr_assert(raw_refused("\x93NUMPY\0\0\2\0{}", 12, "version 0.0"));
  cr_assert(raw_refused("\x93NUMPY\4\0\2\0\0\0{}", 14, "version 4.0"));
  cr_assert(raw_refused("\x93NUMPY\xff\0\2\0\0\0{}", 14, "version 255.0"));
  cr_assert(raw_refused("\x93NUMPY\1\1\2\0{}", 12, "version 1.1"));
  cr_assert(raw_refused("\x93NUMPY\1\0\x11\x27{}", 12, "the header length is 10001"));
  cr_assert(raw_refused("\x93NUMPY\1\0\3\0{}", 12, "the header length is 3"));
  cr_assert(raw_refused("\x93NUMPY\2\0\xff\xff\xff\xff{}", 14, "the header length is 4294967295"));
  for (int version = 1; version <= 3; version++) cr_assert(npy_accepted(version, TWO, 8));
}

static bool type_refused(const char *descr, const char *text) {
  char header[256];
  snprintf(header, sizeof header, "{'descr': %s, 'fortran_order': False, 'shape': (2,), }", descr);
  return npy_refused(1, header, 8, text);
}

Test(npy, N02_types) {
  cr_assert(type_refused("'|O'", "Python objects are not supported"));
  cr_assert(type_refused("'>f4'", "big-endian"));
  cr_assert(type_refused("'<f2'", "not supported; there are <f4"));
  cr_assert(type_refused("'<f8'", "not supported"));
  cr_assert(type_refused("'<U4'", "not supported"));
  cr_assert(type_refused("'<c8'", "not supported"));
  cr_assert(type_refused("[('a', '<f4')]", "structured type"));
  cr_assert(type_refused("''", "not supported"));
  cr_assert(type_refused("7", "expected a string"));
}

Test(npy, N03_only_one_dictionary) {
  cr_assert(npy_refused(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,) + (3,), }", 8, "expected ',' or '}'"));
  cr_assert(npy_refused(1, "{'descr': '<f4' 'fortran_order': False, 'shape': (2,), }", 8, "expected ',' or '}'"));
  cr_assert(npy_refused(1, "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 8, "stands twice"));
  cr_assert(npy_refused(1, "dict(descr='<f4')", 8, "expected '{'"));
  cr_assert(npy_refused(1, TWO TWO, 8, "bytes after the dictionary"));
  cr_assert(npy_refused(1, "{'descr': '<f4', 'fortran_order': False}", 8, "has no 'shape'"));
  cr_assert(npy_refused(1, "{'descr': '<f4', 'order': False}", 8, "unknown key"));
  cr_assert(npy_refused(1, "{'descr': '\\x3cf4'}", 8, "escape"));
  cr_assert(npy_refused(1, "{'descr", 8, "without an end"));
  cr_assert(npy_refused(1, "{'descr': '<f4', 'fortran_order': 0, 'shape': (2,), }", 8, "True or False"));
  cr_assert(npy_accepted(1, "{'shape':(2,),'descr':\"<f4\",'fortran_order':False}  ", 8));

  char deep[9000];
  memset(deep, '(', sizeof deep);
  memcpy(deep, "{'shape': ", 10);
  deep[sizeof deep - 1] = '\0';
  cr_assert(npy_refused(1, deep, 8, "expected a dimension"));
}

Test(npy, N04_column_major) {
  cr_assert(npy_refused(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 1), }", 8, "column-major"));
  cr_assert(npy_accepted(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (2,), }", 8));
}

static bool shape_refused(const char *shape, size_t data_size, const char *text) {
  char header[256];
  snprintf(header, sizeof header, "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }", shape);
  return npy_refused(1, header, data_size, text);
}

Test(npy, N05_shapes) {
  cr_assert(shape_refused("(300000000,)", 8, "does not take the 8 bytes"));
  cr_assert(shape_refused("(65536, 65536)", 8, "does not take the 8 bytes"));
  cr_assert(shape_refused("(18446744073709551616,)", 8, "over 2^63 - 1"));
  cr_assert(shape_refused("(4294967296, 4294967296)", 8, "overflows"));
  cr_assert(shape_refused("(4611686018427387904,)", 0, "does not take the 0 bytes"));
  cr_assert(shape_refused("(-2,)", 8, "expected a dimension"));
  cr_assert(shape_refused("(2.0,)", 8, "expected ',' or ')'"));
  cr_assert(shape_refused("(02,)", 8, "leading zero"));
  cr_assert(shape_refused("(2)", 8, "a tuple of one ends with a comma"));
  cr_assert(shape_refused("[2]", 8, "expected the shape, a tuple"));
  cr_assert(shape_refused("(2", 8, "expected a dimension"));
  cr_assert(shape_refused("(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2)", 8, "more than 32"));
}

Test(npy, N06_a_small_file_that_claims_much) { cr_assert(shape_refused("(8589934592,)", 0, "does not take the 0 bytes")); }

Test(npy, N07_extra_and_missing_bytes) {
  cr_assert(npy_refused(1, TWO, 7, "does not take the 7 bytes"));
  cr_assert(npy_refused(1, TWO, 9, "does not take the 9 bytes"));
  cr_assert(npy_refused(1, TWO, 0, "does not take the 0 bytes"));
  cr_assert(raw_refused("PK\3\4 an archive", 15, ".npz archives are not supported"));
  cr_assert(npy_accepted(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (), }", 4));
  cr_assert(npy_accepted(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 3), }", 0));
}

/* No element, whatever the product of the other dimensions is and wherever the 0 stands. */
Test(npy, N08_empty_shapes_of_huge_dimensions) {
  static const char *const shapes[] = {"(0, 4611686018427387904, 4)", "(4611686018427387904, 4, 0)",
                                       "(4611686018427387904, 0, 4)"};
  for (int i = 0; i < 3; i++) {
    char header[256];
    snprintf(header, sizeof header, "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }", shapes[i]);
    cr_expect(npy_accepted(1, header, 0));
    cr_expect(npy_refused(1, header, 8, "does not take the 8 bytes"));
  }
}

/* Behind what is converted stands a guard, which stays as it was. */
Test(npy, a_conversion_writes_its_elements_and_no_more) {
  enum { MOST = 9, BYTES = 4 * MOST, GUARD = 0xa5 };
  static const unsigned char zeroes[8 * MOST];
  for (int from = 0; from < FILE_Q4_0; from++) { /* blocks have values at 0: test_gguf.c */
    for (int to = DTYPE_F32; to <= DTYPE_BOOL; to++) {
      for (size_t n = 0; n < MOST && can_convert((FileDType)from, (DType)to); n++) {
        unsigned char out[BYTES];
        int64_t value;
        memset(out, GUARD, sizeof out);
        cr_assert_eq(convert_elements((FileDType)from, (DType)to, n, zeroes, out, &value), n);
        for (size_t i = 0; i < sizeof out; i++)
          cr_expect_eq(out[i], i < n * dtype_bytes[to] ? 0 : GUARD, "%zu of %s: byte %zu", n, file_dtype_names[from],
                       i);
      }
    }
  }
}

Test(npy, every_prefix) {
  Bench whole = bench_new();
  bench_write_npy(&whole, 1, TWO, 8);
  char bytes[256];
  FILE *from = fopen(whole.path, "rb");
  size_t size = fread(bytes, 1, sizeof bytes, from);
  fclose(from);
  for (size_t n = 0; n < size; n++) {
    Bench bench = bench_new();
    NpyFile npy;
    bench_write(&bench, bytes, n);
    cr_assert_not(npy_open(&npy, &bench.diag, bench.path));
    cr_assert_eq(bench.diag.n_errors, 1);
    bench_destroy(&bench);
  }
  bench_destroy(&whole);
}

Test(npy, what_is_written_is_read) {
  float f[6] = {1, 2, 3, -4, 0.5f, 6};
  int32_t i[2] = {-1, 7};
  uint8_t b[1] = {1};
  Tensor tensors[] = {{DTYPE_F32, 2, {2, 3}, f}, {DTYPE_I32, 1, {2}, i}, {DTYPE_BOOL, 0, {0}, b}, {DTYPE_F32, 3, {1, 0, 2}, f}};
  for (int k = 0; k < 4; k++) {
    Bench bench = bench_new();
    NpyFile npy;
    char read[24];
    cr_assert(npy_write(&bench.diag, bench.path, &tensors[k]));
    cr_assert(npy_open(&npy, &bench.diag, bench.path), "%s", first_message(&bench.diag));
    cr_assert_eq(npy.data_begin % 64, 0);
    cr_assert_eq(npy.rank, tensors[k].rank);
    cr_assert(npy_read(&npy, &bench.diag, tensors[k].dtype, read));
    cr_assert_eq(memcmp(read, tensors[k].data, (size_t)npy.elements * dtype_bytes[tensors[k].dtype]), 0);
    npy_close(&npy);
    bench_destroy(&bench);
  }
}
