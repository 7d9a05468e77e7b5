/* tfm/abi/pages.h: how many bytes the pages of caches take (TFM_CACHE_PAGE positions each, tfm/abi/kernels.h), which
 * the runtime takes and the compiler tells. */
#ifndef TFM_ABI_PAGES_H
#define TFM_ABI_PAGES_H

#include <stdint.h>

/* Of one page: its numbers, and one word that the runtime keeps behind them, rounded up to a cache line, so that no two
 * pages share a line. */
static inline int64_t tfm_page_bytes(int64_t floats) {
  const int64_t line = 64, bytes = floats * (int64_t)sizeof(float) + (int64_t)sizeof(uint32_t);
  return (bytes + line - 1) / line * line;
}

#endif
