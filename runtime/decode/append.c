/* New positions go into the pages of caches.
 *
 * In: keys or values of the new tokens of each row. Out: the same in pages. A unit is what one row writes into one
 * page. Nothing is shared between units: a page that is written belongs to one row. Refuses nothing. */
#include "decode/cache_pages.h"
#include "steps/walker.h"

typedef struct Append {
  const tfm_append_step *step;
  const Operand *x;
  int64_t rows, fresh, past, pages; /* pages: that a row writes to */
  int64_t blocks, columns;          /* all axes of columns but the last, as one; the last */
} Append;

/* Sizes of the step. A row writes `fresh` positions, which may begin and end in the middle of a page. */
static Append append_of(const tfm_context *context, const tfm_step *step) {
  const tfm_append_step *info = &context->program->appends[step->index];
  Append a = {.step = info,
              .x = &operands_of(context, step)->append.x,
              .rows = value_of(context, info->dims[0]),
              .fresh = value_of(context, info->dims[1]),
              .past = value_of(context, info->past),
              .blocks = 1,
              .columns = info->rank > 2 ? value_of(context, info->dims[info->rank - 1]) : 1};
  for (int axis = 2; axis < info->rank - 1; axis++) a.blocks *= value_of(context, info->dims[axis]);
  if (a.fresh > 0) a.pages = (a.past + a.fresh - 1) / TFM_CACHE_PAGE - a.past / TFM_CACHE_PAGE + 1;
  return a;
}

/* The positions of one row that lie in one page, for all columns. */
static void write_unit(const tfm_context *context, const Append *a, int64_t row, int64_t page) {
  const tfm_append_step *info = a->step;
  int64_t first = greatest_of(a->past, page * TFM_CACHE_PAGE);
  int64_t end = least_of(a->past + a->fresh, (page + 1) * TFM_CACHE_PAGE);
  const tfm_cache *cache = &context->program->caches[info->cache];
  const PageSlice slice = {.cache = cache,
                           .context = context,
                           .whole = whole_pages_of(context, tfm_cache_form(cache)),
                           .page = context->hooks.caches->own[row][page],
                           .floats = context->program->own_page_floats,
                           .first = first - page * TFM_CACHE_PAGE,
                           .n = end - first};
  const char *x = operand_address(context, a->x) + row * a->x->strides[0] + (first - a->past) * a->x->strides[1];
  int64_t column_stride = info->rank > 2 ? a->x->strides[info->rank - 1] : (int64_t)sizeof(float);
  for (int64_t block = 0; block < a->blocks; block++) {
    const char *source = x;
    int64_t rest = block;
    for (int axis = info->rank - 2; axis >= 2; axis--) {
      int64_t dim = value_of(context, info->dims[axis]);
      source += rest % dim * a->x->strides[axis];
      rest /= dim;
    }
    page_write(&slice, block * a->columns, a->columns, source, a->x->strides[1], column_stride);
  }
}

/* Writes the new positions; units are divided evenly, since all cost the same. */
void cached_append(Walker *walker, const tfm_step *step) {
  const tfm_context *context = walker->context;
  Append a = append_of(context, step);
  if (a.rows <= 0 || a.pages <= 0) return;
  int64_t units = a.rows * a.pages, first = units * walker->thread / walker->threads,
          end = units * (walker->thread + 1) / walker->threads;
  for (int64_t unit = first; unit < end; unit++)
    write_unit(context, &a, unit / a.pages, a.past / TFM_CACHE_PAGE + unit % a.pages);
}
