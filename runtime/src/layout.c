#include "layout.h"

#include "context.h"

void *layout_take(Layout *layout, int64_t n, int64_t size) {
  char *place = layout->block ? layout->block + layout->bytes : NULL;
  int64_t bytes;
  bool fits = layout->bytes >= 0 && size_product(&bytes, n, size) &&
              !__builtin_add_overflow(layout->bytes, round_up(bytes, ALIGNMENT), &layout->bytes);
  if (!fits) layout->bytes = -1;
  return place;
}
