/* A request to the compiler: an argument list and files in memory, no pointers into this process.
 *
 * In: the caller's options. Out: what a child process, or the compiler in this one, is given. Options that contradict
 * each other, and weights without a name, a known type or a sound size, are refused. */
#ifndef TFM_API_REQUEST_H
#define TFM_API_REQUEST_H

#include <stddef.h>

#include "tfm/compile.h"

// ---- what went wrong, on its way to the caller's tfm_error ----

/* Fills `error` (may be NULL) and returns `status`. */
tfm_status api_fault(tfm_error *error, tfm_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same with the text of an error number of the system behind it. */
tfm_status fault_of_system(tfm_error *error, tfm_status status, int number, const char *what);

// ---- nameless files: memory that another process can read and write ----

enum { FIRST_DESCRIPTOR = 10 }; /* of ours: they never stand where the child's are put */

/* A new empty file; -1 after a fault. Not inherited. */
int nameless_create(tfm_error *error);
/* Appends to any file: 0, or the error number. The process survives a limit on the size of files. */
int file_write(int file, const void *bytes, size_t size);
/* Appends. */
tfm_status nameless_write(int file, const void *bytes, size_t size, tfm_error *error);

typedef struct Mapping {
  const char *data; /* read-only; NULL: nothing */
  size_t size;
} Mapping;

/* Maps the whole file, which nobody can change any more. An empty file gives data NULL, which is no fault. */
tfm_status nameless_map(int file, Mapping *mapping, tfm_error *error);
void mapping_free(Mapping *mapping);

// ---- weights in the caller's memory, as a safetensors file ----

/* Appends them to a nameless file. Refuses names and types that are NULL or unknown, negative sizes, sizes over all
 * memory. What the model needs of them is checked by the compiler. */
tfm_status tensors_write(int file, const tfm_tensor *tensors, size_t n, tfm_error *error);

// ---- the request ----

typedef struct Request {
  char **arguments;     /* of `tfmc worker`, the command's name first, NULL last */
  int n_arguments;
  char weights[32];     /* the path under which the compiler finds weights that were given in memory */
  char memory_limit[24];
  int text, tensors;    /* nameless files: the source text; weights given in memory, -1: none */
  int output, messages; /* nameless files for the parts, and for messages as lines of JSON */
} Request;

/* A request for `options`, which are checked. On failure there is nothing to free. */
tfm_status request_create(const tfm_compile_options *options, Request *request, tfm_error *error);
void request_free(Request *request);

enum { CHILD_TENSORS = 3 /* the descriptor of `tensors` in a child */ };

#endif
