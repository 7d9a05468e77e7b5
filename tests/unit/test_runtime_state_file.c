/* Checkpoints of training: every flipped bit and every truncation of the state is refused, what is read back is what was
 * written, and a folder of checkpoints is whole whatever is in it. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tfm/abi/checkpoint.h"

enum { FLOATS = 37, MOST = 2048 };

static char folder[64], path[128];
static float weights[FLOATS], first[FLOATS];
static const char note[] = "a note";
static tfm_error error;

static tfm_state_head head_of(int64_t step) {
  return (tfm_state_head){1, 2, 3, 4, step, 6, 7, INFINITY, 9, 10, {11, 12, -13}, 14.5, 15};
}

static const tfm_state_bytes *blocks(void) {
  static tfm_state_bytes all[TFM_STATE_BLOCKS];
  all[TFM_STATE_WEIGHTS] = (tfm_state_bytes){weights, sizeof weights};
  all[TFM_STATE_FIRST] = (tfm_state_bytes){first, sizeof first};
  all[TFM_STATE_NOTE] = (tfm_state_bytes){note, sizeof note};
  return all;
}

static void setup(void) {
  strcpy(folder, "/tmp/tfm-state-XXXXXX");
  cr_assert(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/s.tfmt", folder);
  for (int i = 0; i < FLOATS; i++) weights[i] = (float)i, first[i] = (float)-i;
}

static void teardown(void) {
  char command[128];
  snprintf(command, sizeof command, "rm -r %s", folder);
  cr_assert_eq(system(command), 0);
}

TestSuite(state_file, .init = setup, .fini = teardown);

static size_t read_file(unsigned char bytes[MOST]) {
  FILE *file = fopen(path, "rb");
  cr_assert(file);
  const size_t n = fread(bytes, 1, MOST, file);
  fclose(file);
  return n;
}

static void write_file(const unsigned char *bytes, size_t n) {
  FILE *file = fopen(path, "wb");
  cr_assert(file);
  cr_assert_eq(fwrite(bytes, 1, n, file), n);
  fclose(file);
}

Test(state_file, gives_back_what_was_written) {
  const tfm_state_head head = head_of(5);
  tfm_state_file file;
  float read[FLOATS];
  char text[sizeof note];
  cr_assert_eq(tfm_state_write(path, &head, blocks(), &error), TFM_OK);
  cr_assert_eq(tfm_state_open(&file, path, &error), TFM_OK, "%s", error.message);
  cr_assert_arr_eq(&file.head, &head, sizeof head);
  cr_assert_eq(file.bytes[TFM_STATE_FIRST], sizeof first);
  cr_assert_eq(file.bytes[TFM_STATE_SECOND], 0);
  cr_assert_eq(tfm_state_read(&file, TFM_STATE_FIRST, read, &error), TFM_OK);
  cr_assert_arr_eq(read, first, sizeof first);
  cr_assert_eq(tfm_state_read(&file, TFM_STATE_NOTE, text, &error), TFM_OK);
  cr_assert_str_eq(text, note);
  tfm_state_close(&file);
  cr_assert_eq(tfm_state_write(path, &head, blocks(), &error), TFM_E_ENV, "it replaced a file");
}

Test(state_file, refuses_every_flipped_bit_and_every_other_length) {
  const tfm_state_head head = head_of(5);
  unsigned char bytes[MOST];
  tfm_state_file file;
  cr_assert_eq(tfm_state_write(path, &head, blocks(), &error), TFM_OK);
  const size_t n = read_file(bytes);
  cr_assert_lt(n, MOST - 64);
  for (size_t bit = 0; bit < 8 * n; bit++) {
    bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    write_file(bytes, n);
    bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    cr_assert_eq(tfm_state_open(&file, path, &error), TFM_E_ENV, "bit %zu was flipped", bit);
    cr_assert_eq(file.fd, -1);
  }
  memset(bytes + n, 0, 64);
  for (size_t length = 0; length < n + 64; length++) {
    write_file(bytes, length);
    cr_assert_eq(tfm_state_open(&file, path, &error), length == n ? TFM_OK : TFM_E_ENV, "%zu of %zu bytes", length, n);
    tfm_state_close(&file);
  }
  unlink(path);
  cr_assert_eq(tfm_state_open(&file, path, &error), TFM_E_ENV);
  cr_assert_eq(tfm_state_open(&file, folder, &error), TFM_E_ENV);
}

static void save(int64_t step) {
  const int64_t dims[] = {FLOATS};
  const tfm_named_tensor tensor = {.name = "a.\"b", .data = weights, .dims = dims, .rank = 1};
  const tfm_state_head head = head_of(step);
  cr_assert_eq(tfm_checkpoint_save(folder, &head, blocks(), (tfm_named_tensors[]){{&tensor, 1}, {NULL, 0}}, &error), TFM_OK, "%s", error.message);
}

static bool exists(const char *name) {
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return access(path, F_OK) == 0;
}

static void expect_latest(const char *name) {
  char latest[256];
  cr_assert_eq(tfm_checkpoint_latest(folder, latest, sizeof latest, &error), TFM_OK);
  snprintf(path, sizeof path, "%s%s%s", *name ? folder : "", *name ? "/" : "", name);
  cr_assert_str_eq(latest, path);
}

Test(state_file, checkpoints_are_found_kept_and_replaced) {
  expect_latest("");
  for (int64_t step = 1; step <= 4; step++) save(step);
  save(4); /* a run that was killed after it had named the folder does the step again */
  expect_latest("step-00000004");
  cr_assert(exists("step-00000001/state.tfmt"));
  snprintf(path, sizeof path, "%s/.step-00000009.77", folder);
  cr_assert_eq(mkdir(path, 0777), 0);
  tfm_checkpoint_tidy(folder, 0);
  cr_assert(!exists(".step-00000009.77"));
  cr_assert(exists("step-00000001"));
  tfm_checkpoint_tidy(folder, 2);
  cr_assert(!exists("step-00000002"));
  cr_assert(exists("step-00000003/weights.safetensors"));
  cr_assert(exists("step-00000004/weights.safetensors"));
  cr_assert(exists("latest"));
  unlink(path);
  expect_latest("step-00000004"); /* without the text, the greatest */
  cr_assert(!exists("latest"));
  FILE *file = fopen(path, "w");
  fputs("../elsewhere\n", file);
  fclose(file);
  char latest[256];
  cr_assert_eq(tfm_checkpoint_latest(folder, latest, sizeof latest, &error), TFM_E_ENV);
}

Test(state_file, a_folder_that_cannot_be_written) {
  const tfm_state_head head = head_of(1);
  snprintf(path, sizeof path, "%s/none", folder);
  cr_assert_eq(tfm_checkpoint_save(path, &head, blocks(), (tfm_named_tensors[2]){{NULL, 0}}, &error), TFM_E_ENV);
  cr_assert(strstr(error.message, "none"));
  cr_assert_eq(tfm_write_tensors(folder, NULL, 0, &error), TFM_E_ENV);
}
