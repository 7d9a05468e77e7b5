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
  tfm_weights_header header = {.magic = TFM_WEIGHTS_MAGIC, .byte_order = TFM_WEIGHTS_BYTE_ORDER,
                               .version = TFM_WEIGHTS_VERSION, .bytes = bytes};
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

/* What is wrong with the header, or NULL. */
static const char *header_fault(char *page, const tfm_weights_header *header, int64_t size) {
  uint8_t expected[16];
  tfm_weights_header copy = *header;
  if (header->byte_order != TFM_WEIGHTS_BYTE_ORDER) return "it was written on a machine of another byte order";
  if (header->version != TFM_WEIGHTS_VERSION) return "its version is unknown to this tfmc";
  memset(copy.header, 0, sizeof copy.header);
  memcpy(page, &copy, sizeof copy);
  hash(page, TFM_WEIGHTS_HEADER_BYTES, expected);
  if (memcmp(expected, header->header, sizeof expected) != 0) return "its header is damaged";
  if (header->bytes != (uint64_t)size - TFM_WEIGHTS_HEADER_BYTES) return "it is cut off or has something behind its end";
  return NULL;
}

static bool hash_content(Diag *diag, const InFile *file, uint64_t bytes, uint8_t digest[16]) {
  enum { PIECE = 1 << 20 };
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  char *piece = arena_alloc(diag->arena, PIECE);
  for (uint64_t done = 0; done < bytes;) {
    size_t n = bytes - done < PIECE ? (size_t)(bytes - done) : PIECE;
    if (!in_file_read(file, diag, (int64_t)(TFM_WEIGHTS_HEADER_BYTES + done), piece, n)) return false;
    XXH3_128bits_update(&state, piece, n);
    done += n;
  }
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state));
  memcpy(digest, canonical.digest, 16);
  return true;
}

static bool check(Arena *arena, Diag *diag, const InFile *file, tfm_weights_header *header) {
  char *page = arena_alloc(arena, TFM_WEIGHTS_HEADER_BYTES);
  uint8_t content[16];
  const char *fault = "it is shorter than a header";
  if (file->size >= TFM_WEIGHTS_HEADER_BYTES) {
    if (!in_file_read(file, diag, 0, page, TFM_WEIGHTS_HEADER_BYTES)) return false;
    memcpy(header, page, sizeof *header);
    fault = header_fault(page, header, file->size);
  }
  if (!fault) {
    if (!hash_content(diag, file, header->bytes, content)) return false;
    if (memcmp(content, header->content, sizeof content) != 0) fault = "its weights are not those that were packed: a byte was changed";
  }
  if (fault) diag_error_at(diag, file->path, DIAG_LIBRARY, "%s", fault);
  return !fault;
}

bool weights_file_check(Arena *arena, Diag *diag, const char *path, tfm_weights_header *header) {
  InFile file;
  if (!in_file_open(&file, diag, path, true)) return false;
  bool good = check(arena, diag, &file, header);
  in_file_close(&file);
  return good;
}
