/* Weight files made by hand for tests; see weight_files.h. A test aborts if its temporary file cannot be written:
 * that says nothing about the readers. */
#include "weight_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The file exists from here on, empty, so that no other process takes its name. */
Bench bench_new(void) {
  Bench bench = {.arena = arena_create()};
  bench.diag = diag_new(bench.arena);
  int fd = mkstemp(temporary_name(bench.path, "tfm-test"));
  if (fd < 0) abort();
  close(fd);
  return bench;
}

void bench_destroy(Bench *bench) {
  unlink(bench->path);
  arena_destroy(bench->arena);
}

void bench_write(Bench *bench, const void *bytes, size_t size) {
  FILE *file = fopen(bench->path, "wb");
  if (!file || fwrite(bytes, 1, size, file) != size || fclose(file) != 0) abort();
}

/* The length of the header is 8 bytes, little endian, and need not be true: tests of lengths that lie pass another. */
void bench_write_safetensors(Bench *bench, const char *header, size_t header_size, size_t data_size) {
  StrBuf text = strbuf_new(bench->arena);
  for (int i = 0; i < 8; i++) strbuf_add_char(&text, (char)((uint64_t)header_size >> 8 * i));
  strbuf_add_n(&text, header, header_size);
  for (size_t i = 0; i < data_size; i++) strbuf_add_char(&text, (char)i);
  bench_write(bench, text.text, text.length);
}

/* Version 1 has 2 bytes for the length of the header, later ones 4. */
void bench_write_npy(Bench *bench, int version, const char *header, size_t data_size) {
  StrBuf text = strbuf_new(bench->arena);
  size_t size = strlen(header) + 1;
  strbuf_add_n(&text, "\x93NUMPY", 6);
  strbuf_add_char(&text, (char)version);
  strbuf_add_char(&text, 0);
  for (int i = 0; i < (version == 1 ? 2 : 4); i++) strbuf_add_char(&text, (char)(size >> 8 * i));
  strbuf_add(&text, header);
  strbuf_add_char(&text, '\n');
  for (size_t i = 0; i < data_size; i++) strbuf_add_char(&text, 0);
  bench_write(bench, text.text, text.length);
}

// ---- verdicts ----

/* Whether the file opens; it is closed again at once. */
static bool open_safetensors(Bench *bench, const char *header, size_t data_size) {
  bench_write_safetensors(bench, header, strlen(header), data_size);
  TensorFile *file = safetensors_open(bench->arena, &bench->diag, bench->path);
  tensor_file_close(file);
  return file != NULL;
}

static bool open_npy(Bench *bench, int version, const char *header, size_t data_size) {
  NpyFile npy;
  bench_write_npy(bench, version, header, data_size);
  bool opened = npy_open(&npy, &bench->diag, bench->path);
  if (opened) npy_close(&npy);
  return opened;
}

/* One message that contains the text, and exit code 1: anything else is printed and wrong. */
static bool is_refusal(const Bench *bench, bool opened, const char *text) {
  bool right = !opened && bench->diag.n_errors == 1 && bench->diag.exit_code == 1 &&
               strstr(first_message(&bench->diag), text);
  if (!right) fprintf(stderr, "wanted \"%s\"; opened %d, message \"%s\"\n", text, opened, first_message(&bench->diag));
  return right;
}

static bool is_acceptance(const Bench *bench, bool opened) {
  if (!opened) fprintf(stderr, "refused: %s\n", first_message(&bench->diag));
  return opened && bench->diag.messages.n == 0;
}

bool safetensors_refused(const char *header, size_t data_size, const char *text) {
  Bench bench = bench_new();
  bool right = is_refusal(&bench, open_safetensors(&bench, header, data_size), text);
  bench_destroy(&bench);
  return right;
}

bool safetensors_accepted(const char *header, size_t data_size) {
  Bench bench = bench_new();
  bool right = is_acceptance(&bench, open_safetensors(&bench, header, data_size));
  bench_destroy(&bench);
  return right;
}

bool npy_refused(int version, const char *header, size_t data_size, const char *text) {
  Bench bench = bench_new();
  bool right = is_refusal(&bench, open_npy(&bench, version, header, data_size), text);
  bench_destroy(&bench);
  return right;
}

bool npy_accepted(int version, const char *header, size_t data_size) {
  Bench bench = bench_new();
  bool right = is_acceptance(&bench, open_npy(&bench, version, header, data_size));
  bench_destroy(&bench);
  return right;
}
