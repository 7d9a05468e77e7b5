#include "aot/weights_file.h"

#include <stdio.h>
#include <string.h>

#include "weights/in_file.h"
#include "weights/out_file.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

static void hash(const void *bytes, size_t size, uint8_t digest[16]) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes, size));
  memcpy(digest, canonical.digest, 16);
}

void weights_file_header(char *page, const char *model, const uint8_t layout[16], const void *packed, uint64_t bytes) {
  memset(page, 0, TFM_WEIGHTS_HEADER_BYTES);
  tfm_weights_header header = {
      .magic = TFM_WEIGHTS_MAGIC, .byte_order = TFM_WEIGHTS_BYTE_ORDER, .version = TFM_WEIGHTS_VERSION, .bytes = bytes};
  memcpy(header.layout, layout, sizeof header.layout);
  snprintf(header.model, sizeof header.model, "%s", model);
  hash(packed, bytes, header.content);
  memcpy(page, &header, sizeof header);
  hash(page, TFM_WEIGHTS_HEADER_BYTES, header.header);
  memcpy(page, &header, sizeof header);
}

bool weights_file_write(Diag *diag, const char *path, const char *model, const uint8_t layout[16], const void *packed,
                        uint64_t bytes) {
  char page[TFM_WEIGHTS_HEADER_BYTES];
  weights_file_header(page, model, layout, packed, bytes);
  OutFile *file = ARENA_NEW(diag->arena, OutFile);
  if (!out_file_open(file, diag, path)) return false;
  out_file_write(file, page, sizeof page);
  out_file_write(file, packed, bytes);
  return out_file_commit(file);
}

// ---- reading ----

bool is_packed_file(Arena *arena, const char *path) {
  Diag silent = diag_new(arena);
  InFile file;
  char magic[sizeof TFM_WEIGHTS_MAGIC];
  if (!in_file_open(&file, &silent, path, true)) return false;
  bool is_packed = file.size >= (int64_t)sizeof magic && in_file_read(&file, &silent, 0, magic, sizeof magic) &&
                   memcmp(magic, TFM_WEIGHTS_MAGIC, sizeof magic) == 0;
  in_file_close(&file);
  return is_packed;
}
