/* What every part of a generation uses: its memory and refusals, rows of tokens that grow, and the result. In: options,
 * tokens. Out: rows, a tfm_generated. Refused: what there is no memory for.
 *
 * Memory comes from the C library, not from a context's allocator: tfm_generate knows no context, and its result is
 * freed by tfm_generated_free alone. */
#include <stdlib.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/allocate.h"
#include "generate/generation_state.h"

// ---- memory and errors ----

/* The blocks are listed in the generation, which frees all of them at its end, also after an error. */
void *generation_allocate(Generation *g, int64_t count, size_t size) {
  void *block = zeroed_items(count > 0 ? count : 1, size);
  if (block) g->blocks[g->n_blocks++] = block;
  return block;
}

tfm_status generation_no_memory(Generation *g) {
  return tfm_fail(g->error, TFM_E_NOMEM, TFM_REASON_OTHER, NULL, "not enough memory for generation");
}

tfm_status generation_refuse(Generation *g, const char *format, ...) {
  char text[256];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return tfm_fail(g->error, TFM_E_INPUT, TFM_REASON_VALUE, NULL, "%s", text);
}

void generation_tell(Generation *g, int64_t item, int32_t token) {
  const tfm_generate_options *o = &g->options;
  if (!o->on_token) return;
  generation_enter_caller(g);
  if (o->on_token(o->on_token_user, item, token)) g->is_stopped = true;
  generation_leave_caller(g);
}

int64_t generation_first_length(const Generation *g) {
  enum { ROOM = 4096 }; /* new tokens; max_length may be 2^31 without meaning it */
  int64_t longest = g->widest + 1;
  for (int64_t i = 0; i < g->n_items; i++) longest = g->items[i].limit > longest ? g->items[i].limit : longest;
  return longest < g->widest + ROOM ? longest : g->widest + ROOM;
}

bool token_rows_make(TokenRows *rows, int64_t n, int64_t length) {
  int64_t elements;
  *rows = (TokenRows){NULL, n > 0 ? n : 1, length};
  if (__builtin_mul_overflow(rows->n, rows->stride, &elements)) return false;
  rows->tokens = zeroed_items(elements, sizeof *rows->tokens);
  return rows->tokens != NULL;
}

/* Doubles the room, so that the cost of copying stays in proportion to the tokens. */
bool token_rows_reserve(TokenRows *rows, int64_t length) {
  if (length <= rows->stride || !rows->tokens) return true;
  TokenRows wider;
  if (!token_rows_make(&wider, rows->n, 2 * length)) return false;
  for (int64_t i = 0; i < rows->n; i++)
    memcpy(token_row(&wider, i), token_row(rows, i), (size_t)rows->stride * sizeof *rows->tokens);
  free(rows->tokens);
  *rows = wider;
  return true;
}

void token_rows_free(TokenRows *rows) { free(rows->tokens); }

void generation_copy_prompt(const Generation *g, int64_t item, int32_t *row) {
  const int32_t *prompt = g->prompts->tokens + item * g->prompts->width;
  memcpy(row, prompt, (size_t)g->items[item].start * sizeof *row);
}

/* Lists of ends have one or two tokens. */
bool generation_is_eos(const Generation *g, int64_t token) {
  for (uint64_t i = 0; i < g->options.eos_token_ids.n; i++)
    if (g->options.eos_token_ids.tokens[i] == token) return true;
  return false;
}

// ---- refusals ----

tfm_status generation_refuse_scores(Generation *g, int64_t row, bool are_numbers) {
  return generation_refuse(g, "row %lld: the logits of token %lld are %s", (long long)g->row_items[row],
                           (long long)g->row_lengths[row], are_numbers ? "all -inf" : "not finite");
}

tfm_status generation_refuse_row(Generation *g, int64_t item, int64_t length) {
  return generation_refuse(g, "row %lld: every token is forbidden as token %lld", (long long)item, (long long)length);
}

// ---- the result ----

/* One element more than needed, because calloc of nothing may return NULL. What was made before a failure is freed by
 * tfm_generate. */
tfm_status generated_make(Generation *g, tfm_generated *generated, int64_t n, int64_t width, bool has_scores) {
  int64_t elements;
  if (__builtin_mul_overflow(n, width, &elements) || elements == INT64_MAX) return generation_no_memory(g);
  generated->sequences = zeroed_items(elements + 1, sizeof *generated->sequences);
  generated->lengths = zeroed_items(n + 1, sizeof *generated->lengths);
  generated->scores = has_scores ? zeroed_items(n + 1, sizeof *generated->scores) : NULL;
  const bool of_tokens = g->options.return_token_scores;
  generated->token_scores = of_tokens ? zeroed_items(elements + 1, sizeof *generated->token_scores) : NULL;
  if (!generated->sequences || !generated->lengths || (has_scores && !generated->scores) ||
      (of_tokens && !generated->token_scores))
    return generation_no_memory(g);
  for (int64_t i = 0; i < elements; i++) generated->sequences[i] = g->pad;
  generated->n = n;
  generated->width = width;
  return TFM_OK;
}

void tfm_generated_free(tfm_generated *generated) {
  if (!generated) return;
  free(generated->sequences);
  free(generated->lengths);
  free(generated->scores);
  free(generated->token_scores);
  *generated = (tfm_generated){0};
}
