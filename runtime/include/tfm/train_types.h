/* tfm/train_types.h: the types that train.h and the headers of compiled models that train share. C99 and C++.
 *
 * The text between the guards is also pasted into generated headers, which stand alone; whichever comes first wins. */
#include "tfm/types.h"

#ifndef TFM_TRAIN_TYPES_H
#define TFM_TRAIN_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TFM_MAX_RESULTS = 16 };

typedef enum tfm_schedule {
  TFM_SCHEDULE_CONSTANT,
  TFM_SCHEDULE_LINEAR,
  TFM_SCHEDULE_COSINE,
  TFM_SCHEDULE_EXPONENTIAL,
  TFM_SCHEDULE_NOAM,
  TFM_SCHEDULE_INVERSE_SQRT
} tfm_schedule;

typedef struct tfm_train_settings { /* of the train block; the optimizer and the frozen weights are the library's */
  size_t struct_size;
  double lr, beta1, beta2, eps, weight_decay, momentum;
  double clip_norm;                                  /* 0: none */
  double warmup, steps, final_lr, model_size, gamma; /* of the schedule */
  int32_t schedule, nesterov;
} tfm_train_settings;

/* What processes that train together do with each other, called by steps on the thread that called them. Another result
 * than TFM_OK ends the step.
 * tfm_sum: data[n], doubles or floats, become their sums over all ranks (MPI_Allreduce, dist.all_reduce).
 * tfm_exchange: `bytes` bytes go to the rank `peer`, and as many come from it (MPI_Sendrecv). */
typedef tfm_status (*tfm_sum)(void *user, void *data, int64_t n, int32_t is_double);
typedef tfm_status (*tfm_exchange)(void *user, int32_t peer, const void *out, void *in, int64_t bytes);

typedef struct tfm_trainer_options { /* zeroes: the defaults */
  size_t struct_size;                /* sizeof(tfm_trainer_options) */
  uint64_t seed;                     /* of initial values and of dropout */
  int32_t threads;                   /* as in tfm_context_options, like the next three */
  int32_t spin_us;
  tfm_pool *pool;
  tfm_allocator allocator;
  const tfm_train_settings *settings; /* NULL: those of the train block. Read during the call only */
  /* Of several processes with equal options but for `rank`, each calls the same steps with parts of its own. Without
   * `exchange` sums are those of `sum`. With it the result is the same, to the bit, for all numbers of ranks that
   * divide `shards`, a power of two (0: 1): the parts of a rank are shards / ranks runs of equally many. */
  int32_t rank, ranks, shards; /* ranks 0: 1 */
  tfm_sum sum;
  tfm_exchange exchange;
  void *user;
  int32_t fills; /* 1: weights without an initial value are zeroes, which the caller fills in; 0: they are an error */
  /* Of a model with adapters: a state that has its frozen weights, as `tfmc pack --training` makes it. A checkpoint of
   * such a model has its trained weights alone, and is refused with another base than its own. NULL: what the state
   * has, or initial values. */
  const char *base;
} tfm_trainer_options;

typedef struct tfm_step_result {
  size_t struct_size;              /* sizeof(tfm_step_result) */
  int64_t step;                    /* steps that are done, this one included */
  double loss, norm, rate;         /* norm: of all gradients, before clipping */
  double results[TFM_MAX_RESULTS]; /* of the objective, the loss first */
} tfm_step_result;

/* What a trainer has of each weight: itself, its gradient of the last step, before clipping, moments, and its running
 * mean (`average`). */
typedef enum tfm_train_tensor {
  TFM_TENSOR_WEIGHT,
  TFM_TENSOR_GRADIENT,
  TFM_TENSOR_FIRST,
  TFM_TENSOR_SECOND,
  TFM_TENSOR_MEAN
} tfm_train_tensor;

#ifdef __cplusplus
}
#endif
#endif
