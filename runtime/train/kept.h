/* Numbers as a trainer keeps them: in f32, or weights that are not trained in 16 bits.
 *
 * In: a form, TFM_FORM_F32, _BF16 or _F16, and numbers in it. Out: the f32 of one of them, exactly. Refuses nothing. */
#ifndef TFM_TRAIN_KEPT_H
#define TFM_TRAIN_KEPT_H

#include "tfm/abi/forms.h"
#include "tfm/abi/half.h"

static inline float kept_number(uint32_t form, const void *numbers, int64_t i) {
  switch (form) {
    case TFM_FORM_BF16: return bf16_to_f32(((const uint16_t *)numbers)[i]);
    case TFM_FORM_F16: return f16_to_f32(((const uint16_t *)numbers)[i]);
    default: return ((const float *)numbers)[i];
  }
}

/* n numbers from number `first` on. */
static inline void kept_read(uint32_t form, const void *numbers, int64_t first, int64_t n, float *to) {
  for (int64_t i = 0; i < n; i++) to[i] = kept_number(form, numbers, first + i);
}

#endif
