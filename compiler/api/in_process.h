/* The compiler in this process, for callers that asked for it: a library of its own, which brings LLVM with it. */
#ifndef TFM_API_IN_PROCESS_H
#define TFM_API_IN_PROCESS_H

#include "api/request.h"

/* What that library exports as tfm_worker: `tfmc worker` with these arguments, reading and writing these files. Returns
 * the exit code of the command. */
typedef int (*WorkerFunction)(int n_arguments, char **arguments, int text, int output, int messages);

/* TFM_E_ENV if there is no such library. It stays loaded. */
tfm_status in_process_run(const Request *request, int *exit_code, tfm_error *error);

/* The path of a file of this installation from its place as seen from libtfm; "" if it is too long. */
void installed_path(const char *relative, char *path, size_t size);

#endif
