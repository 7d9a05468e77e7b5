/* Options of contexts and pools: what the caller gave, else the environment, else what the machine has. */
#ifndef TFM_RUNTIME_OPTIONS_H
#define TFM_RUNTIME_OPTIONS_H

#include "error.h"

typedef struct Options {
  int32_t threads;
  int64_t spin_ns;
  tfm_pool *pool; /* NULL: threads of its own */
  tfm_allocator allocator;
  void (*log)(void *user, const char *message);
  void *log_user;
} Options;

/* `given` may be NULL. Members beyond its struct_size have their default. */
tfm_status options_read(const tfm_context_options *given, Options *options, tfm_error *error);
/* How many threads to make when `asked` for a number; 0 or less: TFM_NUM_THREADS, else the CPUs. */
int32_t options_threads(int32_t asked);
int64_t options_spin_ns(int32_t spin_us);

#endif
