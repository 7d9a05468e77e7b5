/* tfm/types.h: the types that tfm.h and the headers of compiled models share. C99 and C++.
 *
 * The text between the guards is also pasted into generated headers, which stand alone; whichever comes first wins.
 * Structs that begin with struct_size may grow at their end: a caller that was compiled earlier passes a shorter
 * one. */
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
  TFM_E_INPUT = 1,     /* an input, size, id or option was refused: other data may succeed */
  TFM_E_USAGE = 2,     /* the function was called wrongly: the calling program has a mistake */
  TFM_E_ENV = 3,       /* a file, the CPU, the system or a version does not fit */
  TFM_E_NOMEM = 4,     /* there is not enough memory */
  TFM_E_CANCELLED = 6, /* tfm_context_cancel, tfm_decoder_cancel or tfm_trainer_cancel ended the call */
  TFM_E_DIVERGED = 7,  /* a loss or a gradient of training is not finite: the weights are as before */
  TFM_E_INTERNAL = 70  /* a mistake of the runtime or the compiler */
} tfm_status;

typedef enum tfm_reason { /* what an error is about, finer than the status */
  TFM_REASON_OTHER,
  TFM_REASON_TYPE,      /* an input has another type than the model's */
  TFM_REASON_SHAPE,     /* an input has another shape, or two inputs disagree about a size */
  TFM_REASON_VALUE,     /* an id or an option lies outside its range */
  TFM_REASON_CHECK,     /* a check of the model failed */
  TFM_REASON_ARITHMETIC /* integer division by zero */
} tfm_reason;

typedef struct tfm_error {
  tfm_status status;
  char message[512]; /* English, without a newline; ends with a NUL; cut if longer */
  tfm_reason reason;
  const char *place; /* "model.tfm:12:5": static text of the program, valid as long as it is; NULL: no place is known */
} tfm_error;

struct tfm_program;
struct tfm_library;

typedef struct tfm_model tfm_model;     /* a program and its weights: constant, shared by any number of contexts */
typedef struct tfm_context tfm_context; /* sizes, workspace, threads: one caller at a time */
typedef struct tfm_pool tfm_pool;       /* threads that contexts of several models take turns to use */

/* Where a context gets all its memory but the stacks of its threads. The caller sets both functions or neither;
 * neither: the C library and mmap. They are called while a context is made, bound, begun or ended, by the thread that
 * makes that call. */
typedef struct tfm_allocator {
  /* Memory of `bytes` bytes at a multiple of `alignment`, a power of two; it need not be cleared. NULL: there is
   * none. */
  void *(*allocate)(void *user, size_t bytes, size_t alignment);
  void (*release)(void *user, void *memory, size_t bytes); /* `bytes` as given to allocate */
  void *user;
} tfm_allocator;

typedef struct tfm_context_options {
  size_t struct_size; /* sizeof(tfm_context_options); 0: that of the first version */
  int32_t threads;    /* with the caller; 0: TFM_NUM_THREADS, else the CPUs this process may use (affinity, quota) */
  int32_t spin_us;    /* microseconds that idle threads spin before they sleep; 0: TFM_SPIN_US, else 200; < 0: none */
  tfm_pool *pool;     /* NULL: threads of its own. With a pool, `threads` is not read. It must outlive its contexts */
  tfm_allocator allocator;                      /* zeroes: the C library */
  void (*log)(void *user, const char *message); /* NULL: silent. Called while a context is made, never in a run */
  void *log_user;
} tfm_context_options;

typedef struct tfm_value { /* a tensor of the caller's: row-major, without gaps, of any alignment */
  void *data;          /* NULL if there are no elements, or if an output is not wanted; inputs are never written */
  int32_t dtype;       /* tfm_dtype of program.h: 0 f32, 1 i32, 2 bool (one byte, 0 or 1) */
  int32_t rank;        /* 0: a scalar, whose dims may be NULL */
  const int64_t *dims; /* [rank], none negative */
} tfm_value;

#ifdef __cplusplus
}
#endif
#endif
