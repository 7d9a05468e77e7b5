/* Blocks: long texts of a page, compressed, and bytes as text of a page. Private to explore/. */
#ifndef TFM_EXPLORE_PAGE_BLOCKS_H
#define TFM_EXPLORE_PAGE_BLOCKS_H

#include <jansson.h>
#include <stdbool.h>

#include "base/strbuf.h"

/* Appends bytes as base64, with `=` at the end where it needs them. */
void base64_add(StrBuf *out, const unsigned char *bytes, size_t size);
/* Appends the text to the list, as raw deflate in base64. Returns its number there. */
int block_add(json_t *blocks, const StrBuf *text);

#endif
