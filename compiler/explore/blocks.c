/* Blocks: long texts of a page, compressed, and bytes as text.
 *
 * In: text or bytes. Out: raw deflate in base64, which the page unpacks when it is first shown; plain base64. The same
 * text gives the same bytes with the same zlib. Refuses nothing: without memory the process ends, as for an arena. */
#include "explore/blocks.h"

#include <zlib.h>

// ---- base64 ----

void base64_add(StrBuf *out, const unsigned char *bytes, size_t size) {
  static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < size; i += 3) {
    const size_t n = size - i < 3 ? size - i : 3;
    const unsigned second = n > 1 ? bytes[i + 1] : 0, third = n > 2 ? bytes[i + 2] : 0;
    const unsigned word = (unsigned)bytes[i] << 16 | second << 8 | third;
    const char four[4] = {letters[word >> 18], letters[word >> 12 & 63], n > 1 ? letters[word >> 6 & 63] : '=',
                          n > 2 ? letters[word & 63] : '='};
    strbuf_add_n(out, four, sizeof four);
  }
}

// ---- deflate ----

enum { RAW = -MAX_WBITS, MEMORY_LEVEL = 8 };

static size_t deflate_to(unsigned char *room, size_t size, const StrBuf *text) {
  z_stream stream = {.next_in = (unsigned char *)text->text,
                     .avail_in = (unsigned)text->length,
                     .next_out = room,
                     .avail_out = (unsigned)size};
  const int begun = deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, RAW, MEMORY_LEVEL, Z_DEFAULT_STRATEGY);
  if (begun != Z_OK || deflate(&stream, Z_FINISH) != Z_STREAM_END) out_of_memory("for the page", size);
  deflateEnd(&stream);
  return stream.total_out;
}

/* Texts of less than 4 GiB: those of kernels have some kilobytes. */
int block_add(json_t *blocks, const StrBuf *text) {
  const size_t most = compressBound(text->length) + 64;
  unsigned char *room = arena_alloc(text->arena, most);
  StrBuf made = strbuf_new(text->arena);
  base64_add(&made, room, deflate_to(room, most, text));
  json_array_append_new(blocks, json_string(made.text));
  return (int)json_array_size(blocks) - 1;
}
