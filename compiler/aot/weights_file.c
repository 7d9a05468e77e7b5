#include "aot/weights_file.h"

#include <stdio.h>
#include <string.h>

#include "tfm/weights_file.h"
#include "weights/out_file.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

static void hash(const void *bytes, size_t size, uint8_t digest[16]) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes, size));
  memcpy(digest, canonical.digest, 16);
}

bool weights_file_write(Diag *diag, const char *path, const char *model, const uint8_t layout[16], const void *packed,
                        uint64_t bytes) {
  char page[TFM_WEIGHTS_HEADER_BYTES] = {0};
  tfm_weights_header header = {.magic = TFM_WEIGHTS_MAGIC, .byte_order = TFM_WEIGHTS_BYTE_ORDER,
                               .version = TFM_WEIGHTS_VERSION, .bytes = bytes};
  memcpy(header.layout, layout, sizeof header.layout);
  snprintf(header.model, sizeof header.model, "%s", model);
  hash(packed, bytes, header.content);
  memcpy(page, &header, sizeof header);
  hash(page, sizeof page, header.header);
  memcpy(page, &header, sizeof header);
  OutFile *file = ARENA_NEW(diag->arena, OutFile);
  if (!out_file_open(file, diag, path)) return false;
  out_file_write(file, page, sizeof page);
  out_file_write(file, packed, bytes);
  return out_file_commit(file);
}
