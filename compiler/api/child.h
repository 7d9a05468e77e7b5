/* The compiler in a child process.
 *
 * In: a request. Out: how the child ended; what it made is in the files of the request. The child gets nothing else of
 * this process: no other open file, no blocked or handled signal. */
#ifndef TFM_API_CHILD_H
#define TFM_API_CHILD_H

#include <stdbool.h>

#include "api/request.h"

typedef struct ChildEnd {
  bool is_known;     /* false: this process lets the system forget its children, so nobody knows */
  int wait_status;   /* as of waitpid */
  bool was_too_slow; /* it was stopped after the deadline */
} ChildEnd;

/* Runs `compiler`, a path or a name to be looked up in PATH, to its end. TFM_E_ENV if it cannot be started. */
tfm_status child_run(const char *compiler, const Request *request, const tfm_compile_options *options, ChildEnd *end,
                     tfm_error *error);

#endif
