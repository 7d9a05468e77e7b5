/* Attention: its run, and the sizes and operands of a step that attention over caches (decode/loops/paged_attention.c)
 * needs too. */
#ifndef TFM_RUNTIME_STEP_ATTENTION_H
#define TFM_RUNTIME_STEP_ATTENTION_H

#include "steps/attention_strip.h"

/* Keys and values are in memory; `int8` NULL: in f32. attention_bytes: of scratch. */
void attention_run(Walker *walker, const tfm_step *step, const Int8Attention *int8);
int64_t attention_bytes(const tfm_context *context, const tfm_step *step, const Int8Attention *int8);

Attention attention_describe(const tfm_context *context, const tfm_step *step);
void attention_choose_outputs(const tfm_context *context, const tfm_step *step, Attention *attention);
/* One past the last key of an item that is not padding. Keys behind it are never read. */
int64_t attention_last_key(const tfm_context *context, const Attention *attention, int64_t item);

#endif
