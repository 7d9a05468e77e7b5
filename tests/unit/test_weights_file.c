/* Files of packed weights: written by the compiler, read by the runtime. Every prefix and every flipped bit of the header
 * is refused; flipped bits of the weights are found when asked for. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aot/packed_weights.h"
#include "temporary.h"
#include "tfm/abi/library.h"
#include "tfm/abi/weights_file.h"

enum { BYTES = 192, FILE_BYTES = TFM_WEIGHTS_HEADER_BYTES + BYTES };

static const uint8_t layout[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
static char folder[TEMPORARY_BYTES], path[TEMPORARY_BYTES + 16], other[TEMPORARY_BYTES + 16];
static char packed[BYTES];
static _Alignas(64) char contents[FILE_BYTES + 64];
static tfm_program program;
static const tfm_program *programs[1] = {&program};
static tfm_library library;
static tfm_model *model;
static tfm_error error;

static void write_model(Arena *arena, const char *name) {
  Diag diag = diag_new(arena);
  cr_assert(weights_file_write(&diag, path, name, layout, packed, sizeof packed));
}

static void read_contents(void) {
  FILE *file = fopen(path, "rb");
  cr_assert(file);
  cr_assert_eq(fread(contents, 1, FILE_BYTES + 1, file), FILE_BYTES);
  fclose(file);
}

static void setup(void) {
  cr_assert(mkdtemp(temporary_name(folder, "tfm-weights")));
  snprintf(path, sizeof path, "%s/m.tfmw", folder);
  snprintf(other, sizeof other, "%s/other.tfmw", folder);
  for (int i = 0; i < BYTES; i++) packed[i] = (char)(i * 7 + 1);
  program = (tfm_program){.version = TFM_PROGRAM_VERSION, .name = "m", .isa = "C", .weights_bytes = BYTES};
  library = (tfm_library){.abi = TFM_LIBRARY_ABI, .model = "m", .version = "0", .n_programs = 1, .programs = programs};
  memcpy(library.layout, layout, sizeof layout);
  Arena *arena = arena_create();
  write_model(arena, "m");
  arena_destroy(arena);
  read_contents();
}

static void teardown(void) {
  unlink(path);
  unlink(other);
  rmdir(folder);
}

TestSuite(weights_file, .init = setup, .fini = teardown);

static void write_other(const char *bytes, size_t size) {
  FILE *file = fopen(other, "wb");
  cr_assert(file);
  cr_assert_eq(fwrite(bytes, 1, size, file), size);
  cr_assert_eq(fclose(file), 0);
}

static void refused(const char *file, const char *message) {
  model = (tfm_model *)&library;
  cr_assert_eq(tfm_library_open(&library, file, &model, &error), TFM_E_ENV, "%s is opened", file);
  cr_assert_null(model);
  cr_assert(strstr(error.message, message), "\"%s\" is not in \"%s\"", message, error.message);
}

Test(weights_file, what_was_written_is_mapped) {
  cr_assert_eq(tfm_library_open(&library, path, &model, &error), TFM_OK, "%s", error.message);
  unlink(path); /* what is mapped stays */
  tfm_context *context;
  cr_expect_eq(tfm_library_context_new(model, NULL, &context, &error), TFM_OK, "%s", error.message);
  tfm_context_destroy(context);
  tfm_model_close(model);
}

Test(weights_file, its_form_is_the_published_one) {
  tfm_weights_header header;
  memcpy(&header, contents, sizeof header);
  cr_expect_arr_eq(contents, "TFMWGHT\0\4\3\2\1\1\0\0\0", 16);
  cr_expect_arr_eq(header.layout, layout, 16);
  cr_expect_eq(header.bytes, BYTES);
  cr_expect_str_eq(header.model, "m");
  cr_expect_arr_eq(contents + TFM_WEIGHTS_HEADER_BYTES, packed, BYTES);
  tfm_weights_header read;
  cr_expect_eq(tfm_weights_file_read(path, &read, &error), TFM_OK);
  cr_expect_arr_eq(&read, &header, sizeof header);
  cr_expect_eq(tfm_weights_file_check(path, &read, &error), TFM_OK);
}

Test(weights_file, every_prefix_is_refused) {
  for (size_t size = 0; size < FILE_BYTES; size++) {
    write_other(contents, size);
    refused(other, "");
  }
  write_other(contents, FILE_BYTES + 1);
  refused(other, "longer or shorter");
}

Test(weights_file, every_flipped_bit_of_the_header_is_refused) {
  for (size_t bit = 0; bit < 8 * TFM_WEIGHTS_HEADER_BYTES; bit++) {
    contents[bit / 8] ^= (char)(1 << bit % 8);
    model = (tfm_model *)&library;
    cr_assert_eq(tfm_library_open_memory(&library, contents, FILE_BYTES, &model, &error), TFM_E_ENV, "bit %zu", bit);
    cr_assert_null(model);
    contents[bit / 8] ^= (char)(1 << bit % 8);
  }
}

Test(weights_file, damaged_weights_are_found_on_request) {
  tfm_weights_header header;
  for (size_t byte = TFM_WEIGHTS_HEADER_BYTES; byte < FILE_BYTES; byte++) {
    contents[byte] ^= 16;
    write_other(contents, FILE_BYTES);
    contents[byte] ^= 16;
    cr_assert_eq(tfm_weights_file_read(other, &header, &error), TFM_OK);
    cr_assert_eq(tfm_weights_file_check(other, &header, &error), TFM_E_ENV);
    cr_assert(strstr(error.message, "hash"), "%s", error.message);
  }
}

Test(weights_file, weights_of_another_model_or_size_are_refused) {
  Arena *arena = arena_create();
  library.layout[5] ^= 1;
  refused(path, "of the model \"m\"");
  library.layout[5] ^= 1;
  program.weights_bytes = BYTES + 64;
  refused(path, "of another text or precision");
  program.weights_bytes = BYTES;
  char name[400];
  memset(name, 'n', sizeof name - 1);
  name[sizeof name - 1] = 0;
  write_model(arena, name); /* cut, still good */
  cr_expect_eq(tfm_library_open(&library, path, &model, &error), TFM_OK, "%s", error.message);
  tfm_model_close(model);
  arena_destroy(arena);
}

Test(weights_file, what_is_no_file_is_refused) {
  refused("/nonexistent/m.tfmw", "No such file");
  refused(folder, "no regular file");
  refused("/dev/null", "no regular file");
  cr_assert_eq(mkfifo(other, 0600), 0);
  refused(other, "no regular file");
}

Test(weights_file, weights_in_memory) {
  cr_assert_eq(tfm_library_open_memory(&library, contents, FILE_BYTES, &model, &error), TFM_OK, "%s", error.message);
  tfm_model_close(model);
  cr_expect_eq(tfm_library_open_memory(&library, NULL, FILE_BYTES, &model, &error), TFM_E_USAGE);
  cr_expect_eq(tfm_library_open_memory(&library, contents + 4, FILE_BYTES, &model, &error), TFM_E_USAGE);
  for (size_t size = 0; size < FILE_BYTES; size++)
    cr_assert_eq(tfm_library_open_memory(&library, contents, size, &model, &error), TFM_E_ENV);
}

Test(weights_file, opening_leaves_no_descriptor_and_no_mapping) {
  int before = dup(0);
  close(before);
  for (int i = 0; i < 1000; i++) {
    cr_assert_eq(tfm_library_open(&library, path, &model, &error), TFM_OK);
    tfm_model_close(model);
    refused(folder, "");
  }
  int after = dup(0);
  close(after);
  cr_expect_eq(before, after);
}
