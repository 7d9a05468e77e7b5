/* New positions go into the pages of caches.
 *
 * In: keys or values of the new tokens of each row. Out: the same in pages. A unit is what one row writes into one
 * page. Nothing is shared between units: a page that is written belongs to one row. Refuses nothing. */
#include "decode/cache_pages.h"
#include "steps/items.h"
#include "steps/walker.h"

typedef struct Append {
  const tfm_append_step *step;
  const Operand *x;
  int64_t rows, fresh, past, pages; /* pages: that a row writes to */
  Items blocks;                     /* of columns: all their axes but the last */
  int64_t columns;                  /* of the last */
  tfm_page_writer *write;
} Append;

/* Sizes of the step. A row writes `fresh` positions, which may begin and end in the middle of a page. */
static Append append_of(const tfm_context *context, const tfm_step *step) {
  const tfm_append_step *info = &context->program->appends[step->index];
  Append a = {.step = info,
              .x = &operands_of(context, step)->append.x,
              .rows = value_of(context, info->dims[0]),
              .fresh = value_of(context, info->dims[1]),
              .past = value_of(context, info->past),
              .columns = info->rank > 2 ? value_of(context, info->dims[info->rank - 1]) : 1};
  if (info->rank > 3) a.blocks = items_of(context, info->dims + 2, info->rank - 3);
  if (a.fresh > 0) a.pages = (a.past + a.fresh - 1) / TFM_CACHE_PAGE - a.past / TFM_CACHE_PAGE + 1;
  return a;
}

/* The positions of one row that lie in one page, for all columns. */
static void write_unit(const RunPart *part, const Append *a, int64_t row, int64_t page) {
  const tfm_context *context = part->context;
  const tfm_append_step *info = a->step;
  int64_t first = greatest_of(a->past, page * TFM_CACHE_PAGE);
  int64_t end = least_of(a->past + a->fresh, (page + 1) * TFM_CACHE_PAGE);
  const tfm_cache *cache = &context->program->caches[info->cache];
  const PageSlice slice = {.cache = cache,
                           .context = context,
                           .page = part->own[row][page],
                           .floats = context->program->own_page_floats,
                           .first = first - page * TFM_CACHE_PAGE,
                           .n = end - first};
  const char *x = operand_address(context, a->x) + row * a->x->strides[0] + (first - a->past) * a->x->strides[1];
  int64_t column_stride = info->rank > 2 ? a->x->strides[info->rank - 1] : (int64_t)sizeof(float);
  const int64_t blocks = items_count(&a->blocks);
  for (int64_t block = 0; block < blocks; block++) {
    const char *source = x + items_offset(&a->blocks, a->x->strides + 2, block);
    a->write(&slice, block * a->columns, a->columns, source, a->x->strides[1], column_stride);
  }
}

/* Writes the new positions; units are divided evenly, since all cost the same. */
static void append(const Walker *walker, const tfm_step *step, tfm_page_writer *write) {
  const tfm_context *context = walker->context;
  Append a = append_of(context, step);
  a.write = write;
  if (a.rows <= 0 || a.pages <= 0) return;
  int64_t units = a.rows * a.pages, first = units * walker->thread / walker->threads,
          end = units * (walker->thread + 1) / walker->threads;
  for (int64_t unit = first; unit < end; unit++)
    write_unit(walker->part, &a, unit / a.pages, a.past / TFM_CACHE_PAGE + unit % a.pages);
}

void step_append(Walker *walker, const tfm_step *step) { append(walker, step, page_write); }
void step_append_int8(Walker *walker, const tfm_step *step) { append(walker, step, page_write_int8); }
