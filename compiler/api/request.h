/* A request to the compiler: an argument list and files in memory, no pointers into this process. */
#ifndef TFM_API_REQUEST_H
#define TFM_API_REQUEST_H

#include "tfm/compile.h"

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
