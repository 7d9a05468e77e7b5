/* tfm/types.h: the types that tfm.h and the headers of compiled models share. C99 and C++.
 *
 * The text between the guards is also pasted into generated headers, which stand alone; whichever comes first wins. */
#ifndef TFM_TYPES_H
#define TFM_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef TFM_API
#define TFM_API __attribute__((visibility("default")))
#endif

typedef enum tfm_status {
  TFM_OK = 0,
  TFM_E_INPUT = 1,    /* an input, size, id or mask was rejected */
  TFM_E_USAGE = 2,    /* the function was called wrongly */
  TFM_E_ENV = 3,      /* file, CPU feature, version */
  TFM_E_NOMEM = 4,    /* memory */
  TFM_E_CANCELLED = 6, /* tfm_context_cancel */
  TFM_E_INTERNAL = 70
} tfm_status;

typedef enum tfm_reason { /* what an error is about, finer than the status */
  TFM_REASON_OTHER,
  TFM_REASON_TYPE,       /* an input of another type */
  TFM_REASON_SHAPE,      /* an input of another shape, or sizes that differ */
  TFM_REASON_VALUE,      /* an id out of its range */
  TFM_REASON_CHECK,      /* a check of the model */
  TFM_REASON_ARITHMETIC  /* integer division by zero */
} tfm_reason;

typedef struct tfm_error {
  tfm_status status;
  char message[512]; /* ends with a NUL; cut if longer */
  tfm_reason reason;
  const char *place; /* "model.tfm:12:5", the program's text; NULL: none */
} tfm_error;

struct tfm_program;
struct tfm_library;

typedef struct tfm_model tfm_model;     /* a program and its weights: constant, shared by any number of contexts */
typedef struct tfm_context tfm_context; /* sizes, workspace, threads: one caller at a time */
typedef struct tfm_pool tfm_pool;       /* threads that contexts of several models take turns to use */

typedef struct tfm_allocator { /* all memory of a context but the stacks of its threads; both functions or neither */
  void *(*allocate)(void *user, size_t bytes, size_t alignment); /* NULL: not enough memory */
  void (*release)(void *user, void *memory, size_t bytes);
  void *user;
} tfm_allocator;

typedef struct tfm_context_options {
  size_t struct_size; /* sizeof(tfm_context_options); 0: that of the first version */
  int32_t threads;    /* 0: TFM_NUM_THREADS, else the CPUs this process may use (affinity, cgroup quota) */
  int32_t spin_us;    /* how long idle threads spin before they sleep; 0: TFM_SPIN_US, else 200; negative: not at all */
  tfm_pool *pool;     /* NULL: threads of its own. A pool must outlive its contexts */
  tfm_allocator allocator;
  void (*log)(void *user, const char *message); /* NULL: silent. Called while making a context, never in a run */
  void *log_user;
} tfm_context_options;

typedef struct tfm_value { /* a tensor of the caller: row-major, any alignment */
  void *data;
  int32_t dtype; /* tfm_dtype of program.h: 0 f32, 1 i32, 2 bool (one byte, 0 or 1) */
  int32_t rank;
  const int64_t *dims;
} tfm_value;

#ifdef __cplusplus
}
#endif
#endif
