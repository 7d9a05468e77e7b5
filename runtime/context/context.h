/* The context: making and ending one, binding it to sizes, measuring it. What it consists of is in context_state.h. */
#ifndef TFM_RUNTIME_CONTEXT_H
#define TFM_RUNTIME_CONTEXT_H

#include "context/context_state.h"


/* Options of a context: what the caller gave, else the environment, else what the machine has. */
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

/* Ends a context that has no owner, or whose owner has ended. NULL is ignored. */
void context_end(tfm_context *context);

/* A context without a pool, for its sizes or for lockstep runs. Its arrays are zero. NULL: no memory. */
tfm_context *context_new(const tfm_program *program, const tfm_allocator *allocator, int32_t threads);

/* context_set_inputs reads sizes and dims from inputs without binding them; context_bind_symbols binds sizes, given in
 * the order of the program's symbols. */
tfm_status context_set_inputs(tfm_context *context, const tfm_value *inputs, tfm_error *error);
tfm_status context_bind_symbols(tfm_context *context, const int64_t *symbols, tfm_error *error);
/* The dims of all inputs for these sizes. The context is not bound afterwards: no check is made, no memory is
 * planned. */
tfm_status context_set_symbols(tfm_context *context, const int64_t *symbols, tfm_error *error);
/* The same with the dims of the outputs, after the checks of the model. */
tfm_status context_set_shapes(tfm_context *context, const int64_t *symbols, tfm_error *error);
/* Makes room for so many lockstep runs with these sizes, beside what was reserved before. Nothing is bound
 * afterwards. */
tfm_status context_reserve_symbols(tfm_context *context, const int64_t *symbols, int64_t runs, tfm_error *error);
/* Bytes of scratch that each thread needs for the sizes that are set; -1 if they are too large to count. */
int64_t context_scratch_bytes(const tfm_context *context);
/* Bytes of workspace for these sizes, without making room; -1 if a size is out of range. */
int64_t context_measure(tfm_context *context, const int64_t *symbols);

#endif
