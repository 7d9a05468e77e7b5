/* The page: data, script and style in one file that asks for nothing from outside.
 *
 * In: the data as JSON. Out: HTML. The policy of the page allows its own script and style by their hashes and nothing
 * else, so no text of a model can become a script, whatever it holds; of the data every `<` is escaped, so that none
 * can end the element that they are in. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "explore/explore.h"
#include "explore/explorer.h"

/* Made by cmake/page.cmake from the files of page/. */
extern const char explore_script[], explore_style[], explore_body[];
extern const char *const explore_script_hash, *const explore_style_hash;

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

// ---- the page ----

static unsigned digit(char c) { return (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10); }

/* Policies have hashes in base64; CMake gives them as hexadecimal digits. */
static void add_hash(StrBuf *out, const char *name, const char *digits) {
  unsigned char bytes[32];
  for (size_t i = 0; i < sizeof bytes; i++)
    bytes[i] = (unsigned char)(digit(digits[2 * i]) << 4 | digit(digits[2 * i + 1]));
  strbuf_printf(out, "; %s 'sha256-", name);
  base64_add(out, bytes, sizeof bytes);
  strbuf_add_char(out, '\'');
}

static void add_escaped(StrBuf *out, const char *text) {
  for (; *text; text++) {
    if (*text == '<') strbuf_add(out, "&lt;");
    else if (*text == '&') strbuf_add(out, "&amp;");
    else strbuf_add_char(out, *text);
  }
}

void explore_print(StrBuf *out, const struct json_t *data) {
  char *text = json_dumps(data, JSON_COMPACT | JSON_REAL_PRECISION(17));
  if (!text) out_of_memory("for the page", 0);
  for (const char *at = text; *at;) {
    const size_t n = strcspn(at, "<");
    strbuf_add_n(out, at, n);
    at += n;
    if (*at) strbuf_add(out, "\\u003c"), at++;
  }
  free(text);
}

void explore_page(StrBuf *out, const struct json_t *data, const char *title) {
  strbuf_add(out, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                  "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'");
  add_hash(out, "script-src", explore_script_hash);
  add_hash(out, "style-src", explore_style_hash);
  strbuf_add(out, "\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>");
  add_escaped(out, title);
  strbuf_add(out, "</title>\n<style>");
  strbuf_add(out, explore_style);
  strbuf_add(out, "</style></head>\n");
  strbuf_add(out, explore_body);
  strbuf_add(out, "<script type=\"application/json\" id=\"tfm-data\">");
  explore_print(out, data);
  strbuf_add(out, "</script>\n<script>");
  strbuf_add(out, explore_script);
  strbuf_add(out, "</script></body></html>\n");
}
