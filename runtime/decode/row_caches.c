/* The memory of what rows computed: pages of keys and values, and caches that are tensors (flat blocks).
 *
 * In: rows with the tokens that they get, keep or lose. Out: pages that a run may write. Rows that continue the same
 * row share pages and blocks. A shared page is copied by the first row that writes to it, and the last row that has it
 * writes in place. Refused: lengths at which a row has no states any more; a step whose pages do not suffice, before
 * anything is computed (if there is room for all rows at their longest that never happens).
 *
 * A flat block holds all caches of a row that are tensors (DecoderRow.flat), its states among them. Each step writes
 * another one, and of a model with states the row keeps the one from before its last step:
 *
 *                                            flat   next_flat   before
 *   a row of 5 tokens                        A      -           E
 *   a step of 3 begins                       A      -           -       caches_forget_before drops E
 *   its runs read A and write B              A      B           -       caches_take_next
 *   it has succeeded                         B      -           A       caches_finish_row; without states A is dropped
 *   it has failed                            A      -           -
 *   the row of 8 is cut to 5                 A      -           -       with states, by reference; without, B is cut
 *
 * A fork of the row has references to the same blocks, which are counted as pages are. */
#include <string.h>

#include "base/allocate.h"
#include "decode/decoder_memory.h"
#include "decode/row_caches.h"
#include "tfm/abi/drivers.h"

// ---- room ----

/* Whether a row writes any cache into pages of its own. */
static bool has_own_pages(const tfm_decoding *decoding) {
  for (uint32_t i = 0; i < decoding->step->n_caches; i++)
    if (!decoding->step->caches[i].of_encoder) return true;
  return false;
}

static bool has_states(const tfm_decoding *decoding) {
  for (uint32_t i = 0; i < decoding->step->n_inputs; i++)
    if (input_is_state(decoding, i)) return true;
  return false;
}

static int64_t own_page_bytes(const tfm_decoder *decoder) {
  return cache_page_bytes(decoder->decoding->step->own_page_floats);
}

/* Called twice, to learn the size and to place. Two lists of pages for each row: its own and that of the spare row. */
static float **place_cache_tables(Caches *caches, const tfm_decoder *decoder, int64_t pages, Layout *layout) {
  const int64_t rows = decoder->rows.most;
  float **lists = layout_take(layout, 2 * rows * caches->pages_per_row, sizeof *lists);
  char *own_arrays = layout_take(layout, page_pool_array_bytes(pages), 1);
  char *flat_arrays = layout_take(layout, page_pool_array_bytes(2 * rows), 1);
  if (!layout->block) return NULL;
  page_pool_place(&caches->own, caches->own_block.memory, own_page_bytes(decoder), pages, own_arrays);
  page_pool_place(&caches->flat, caches->flat_block.memory, caches->flat_bytes, 2 * rows, flat_arrays);
  return lists;
}

/* A pool whose memory goes forgets which of its pages were cleared. */
static bool reserve_pool(const tfm_decoder *decoder, PagePool *pool, DecoderBlock *block, int64_t bytes) {
  if (bytes > block->bytes) pool->memory = NULL;
  return decoder_reserve_block(decoder, block, bytes);
}

/* States count in cache_bytes: what those of all rows take is no longer there for pages. */
static tfm_status take_states(const tfm_decoder *decoder, int64_t flat, uint64_t *cache_bytes, tfm_error *error) {
  if (!*cache_bytes || !decoder->caches.has_states) return TFM_OK;
  if ((uint64_t)flat >= *cache_bytes)
    return tfm_refuse(error, TFM_E_NOMEM, "states of %lld rows take %lld bytes, and there are %llu for all caches",
                      (long long)decoder->rows.most, (long long)flat, (unsigned long long)*cache_bytes);
  *cache_bytes -= (uint64_t)flat;
  return TFM_OK;
}

/* Pages of all rows, or what fits into cache_bytes if that is less. */
static int64_t own_pages(const tfm_decoder *decoder, uint64_t cache_bytes) {
  const int64_t all = decoder->rows.most * decoder->caches.pages_per_row;
  const uint64_t fit = cache_bytes / (uint64_t)greatest_of(1, own_page_bytes(decoder));
  return cache_bytes && fit < (uint64_t)all ? (int64_t)fit : all;
}

/* Twice the flat blocks of all rows: while a step is under way each row has its old caches and the next ones, and of a
 * model with states behind it too. */
tfm_status caches_reserve(tfm_decoder *decoder, const CacheSizes *sizes, float ***lists, tfm_error *error) {
  Caches *caches = &decoder->caches;
  const int64_t rows = decoder->rows.most;
  uint64_t cache_bytes = sizes->cache_bytes;
  int64_t bytes, flat;
  caches->longest = sizes->longest;
  caches->pages_per_row = has_own_pages(decoder->decoding) ? ceil_div(sizes->longest, TFM_CACHE_PAGE) : 0;
  caches->flat_bytes = sizes->flat_bytes;
  caches->has_states = has_states(decoder->decoding);
  if (caches->flat_bytes < 0 || !size_product(&flat, 2 * rows, caches->flat_bytes))
    return tfm_no_memory(error, "the longest row");
  tfm_status status = take_states(decoder, flat, &cache_bytes, error);
  if (status) return status;
  const int64_t pages = own_pages(decoder, cache_bytes);
  if (pages >= UINT32_MAX || !size_product(&bytes, pages, own_page_bytes(decoder)) ||
      !reserve_pool(decoder, &caches->own, &caches->own_block, bytes) ||
      !reserve_pool(decoder, &caches->flat, &caches->flat_block, flat))
    return tfm_refuse(error, TFM_E_NOMEM, "no memory for the caches of %lld rows of %lld tokens", (long long)rows,
                      (long long)sizes->longest);
  Layout layout = {0};
  place_cache_tables(caches, decoder, pages, &layout);
  if (layout.bytes < 0 || !decoder_reserve_block(decoder, &caches->tables, layout.bytes))
    return tfm_no_memory(error, "the tables of a decoder");
  layout = (Layout){.block = caches->tables.memory};
  *lists = place_cache_tables(caches, decoder, pages, &layout);
  return TFM_OK;
}

int64_t tfm_decoder_pages(const tfm_decoder *decoder, int64_t tokens, int64_t *left) {
  const bool begun = decoder && decoder->begun;
  if (left) *left = begun ? page_pool_left(&decoder->caches.own) : 0;
  return begun && decoder->caches.pages_per_row ? ceil_div(greatest_of(0, tokens), TFM_CACHE_PAGE) : 0;
}

// ---- rows ----

void caches_copy_row(tfm_decoder *decoder, DecoderRow *row, const DecoderRow *from) {
  Caches *caches = &decoder->caches;
  row->flat = from->flat;
  row->before = from->before;
  row->before_length = from->before_length;
  if (row->flat) page_keep(&caches->flat, row->flat);
  if (row->before) page_keep(&caches->flat, row->before);
  page_list_copy(&caches->own, &row->own, &from->own);
}

static void drop_flat(tfm_decoder *decoder, char **flat) {
  if (*flat) page_drop(&decoder->caches.flat, *flat);
  *flat = NULL;
}

// ---- states ----

/* Whether the row still has what it kept at this length. */
static bool keeps(const tfm_decoder *decoder, const DecoderRow *row, int64_t length) {
  return length == 0 || length == row->length || !decoder->caches.has_states ||
         (row->before && length == row->before_length);
}

int64_t caches_keep(const tfm_decoder *decoder, const DecoderRow *row, int64_t length) {
  if (length >= row->length) return row->length;
  if (!decoder->caches.has_states) return length;
  return row->before && length >= row->before_length ? row->before_length : 0;
}

void caches_forget_before(tfm_decoder *decoder, DecoderRow *row) {
  drop_flat(decoder, &row->before);
  row->before_length = 0;
}

/* The row has again what it had before its last step. */
static void return_to_before(tfm_decoder *decoder, DecoderRow *row) {
  drop_flat(decoder, &row->flat);
  row->flat = row->before;
  row->before = NULL;
  row->before_length = 0;
}

static tfm_status refuse_kept(const tfm_decoder *decoder, const DecoderRow *row, int64_t length, tfm_error *error) {
  const long long number = row - decoder->rows.row, all = row->length, asked = length;
  if (row->before)
    return tfm_refuse(error, TFM_E_INPUT,
                      "row %lld of %lld tokens keeps states, so it can be cut to 0 or %lld, not to %lld; fork a row "
                      "where you want to return", number, all, (long long)row->before_length, asked);
  return tfm_refuse(error, TFM_E_INPUT,
                    "row %lld of %lld tokens keeps states, so it can be cut to 0, not to %lld; fork a row where you "
                    "want to return", number, all, asked);
}

// ---- cutting ----

/* Keeps the first `length` positions of a cache that is a tensor [outer][past][inner]; strides are in bytes. memmove,
 * because `to` may be `from`: each part moves towards the front. */
static void cut_flat(const tfm_decoder *decoder, uint32_t input, char *to, const char *from, int64_t past,
                     int64_t length) {
  const tfm_tensor_info *info = &decoder->decoding->step->inputs[input];
  const int64_t *dims = decoder->step->binding.input_dims + (size_t)input * TFM_MAX_RANK;
  const uint32_t axis = decoder->decoding->inputs[input].past_axis;
  int64_t outer = 1, inner = dtype_size(info->dtype);
  for (uint32_t i = 0; i < info->rank; i++) {
    int64_t dim = dims[i];
    if (i < axis) outer *= dim;
    if (i > axis) inner *= dim;
  }
  to += decoder->staging.inputs[input].flat_offset;
  from += decoder->staging.inputs[input].flat_offset;
  for (int64_t i = 0; i < outer; i++)
    memmove(to + i * length * inner, from + i * past * inner, (size_t)(length * inner));
}

/* Dims of a cache with `past` positions are needed, so the sizes of the row are set first. A block that other rows
 * share is replaced by one of its own. */
static tfm_status cut_block(tfm_decoder *decoder, DecoderRow *row, int64_t length, tfm_error *error) {
  const RunSizes sizes = {group_of_row(decoder, row), 1, row->length, 1, 1};
  tfm_status status = context_set_symbols(decoder->step, decoder_set_sizes(decoder, &sizes), error);
  if (status) return status;
  char *from = row->flat;
  const bool shared = page_is_shared(&decoder->caches.flat, from);
  if (shared) row->flat = page_take(&decoder->caches.flat);
  for (uint32_t i = 0; i < decoder->decoding->step->n_inputs; i++)
    if (input_is_flat_cache(decoder->decoding, i)) cut_flat(decoder, i, row->flat, from, row->length, length);
  if (shared) page_drop(&decoder->caches.flat, from);
  return TFM_OK;
}

/* A row without tokens needs no block. */
tfm_status caches_cut_flat(tfm_decoder *decoder, DecoderRow *row, int64_t length, tfm_error *error) {
  if (!keeps(decoder, row, length)) return refuse_kept(decoder, row, length, error);
  if (length == 0) {
    drop_flat(decoder, &row->flat);
    caches_forget_before(decoder, row);
  } else if (decoder->caches.has_states && length < row->length) {
    return_to_before(decoder, row);
  } else if (row->flat && length < row->length) {
    return cut_block(decoder, row, length, error);
  }
  return TFM_OK;
}

tfm_status caches_cut_row(tfm_decoder *decoder, DecoderRow *row, int64_t length, tfm_error *error) {
  tfm_flat_cutter *const cut = decoder->decoding->step->drivers->cut_flat;
  const tfm_status status = cut ? cut(decoder, row, length, error) : TFM_OK;
  if (!status) page_list_cut(&decoder->caches.own, &row->own, length);
  return status;
}

// ---- steps ----

/* Only a pool that is smaller than all rows can lack pages. Each row is counted as if it had to copy a shared page,
 * also the last one that has it. */
static tfm_status check_pages(const tfm_decoder *decoder, int64_t n, const tfm_decoder_row *parts, tfm_error *error) {
  const PagePool *pool = &decoder->caches.own;
  const int64_t left = page_pool_left(pool);
  if (pool->n_pages >= decoder->rows.most * decoder->caches.pages_per_row) return TFM_OK;
  int64_t needed = 0;
  for (int64_t i = 0; i < n; i++) {
    const DecoderRow *row = &decoder->rows.row[parts[i].row];
    needed += page_list_needs(pool, &row->own, row->length, row->length + parts[i].n_tokens);
  }
  if (needed <= left) return TFM_OK;
  return tfm_refuse(error, TFM_E_NOMEM, "the step needs %lld pages of caches, and %lld are free", (long long)needed,
                    (long long)left);
}

/* Pages are made writable before the runs, by one thread; then nothing in the runs changes the pools. */
tfm_status caches_extend(tfm_decoder *decoder, int64_t n, const tfm_decoder_row *parts, tfm_error *error) {
  Caches *caches = &decoder->caches;
  if (!caches->pages_per_row) return TFM_OK;
  tfm_status status = check_pages(decoder, n, parts, error);
  for (int64_t i = 0; i < n && !status; i++) {
    DecoderRow *row = &decoder->rows.row[parts[i].row];
    page_list_extend(&caches->own, &row->own, row->length, row->length + parts[i].n_tokens);
  }
  return status;
}

void caches_take_next(tfm_decoder *decoder, DecoderRow *row) {
  if (!row->next_flat) row->next_flat = page_take(&decoder->caches.flat);
}

/* After a failure the pages beyond the row's length are given back. What was written in its last page behind the length
 * has no meaning. */
void caches_finish_row(tfm_decoder *decoder, DecoderRow *row, bool succeeded) {
  if (succeeded && row->next_flat) {
    if (decoder->caches.has_states) row->before = row->flat, row->before_length = row->flat ? row->length : 0;
    else drop_flat(decoder, &row->flat);
    row->flat = row->next_flat;
  } else if (!succeeded) {
    drop_flat(decoder, &row->next_flat);
    page_list_cut(&decoder->caches.own, &row->own, row->length);
  }
  row->next_flat = NULL;
}
