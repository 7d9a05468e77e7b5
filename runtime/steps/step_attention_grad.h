/* Attention grad: the functions of its step, which programs of gradients point to. See step_attention_grad.c. */
#ifndef TFM_RUNTIME_STEP_ATTENTION_GRAD_H
#define TFM_RUNTIME_STEP_ATTENTION_GRAD_H

#include "steps/walker.h"

struct tfm_attention_grad {
  void (*run)(Walker *walker, const tfm_step *step);
  int64_t (*scratch_bytes)(const tfm_context *context, const tfm_step *step);
};

#endif
