/* Running the compiler: in a child process, or in this one for callers that asked for it.
 *
 * In: a request. Out: how the compiler ended, and its outcome: a status, or the parts (parts.h) that it made. A
 * child gets nothing else of this process: no other open file, no blocked or handled signal. The compiler in this
 * process is a library of its own, which brings LLVM with it. */
#ifndef TFM_API_RUN_H
#define TFM_API_RUN_H

#include <stdbool.h>

#include "api/parts.h"
#include "api/request.h"

typedef struct ChildEnd {
  bool is_known;     /* false: this process lets the system forget its children, so nobody knows */
  int wait_status;   /* as of waitpid */
  bool was_too_slow; /* it was stopped after the deadline */
  bool was_stopped;  /* the caller wanted it no longer */
} ChildEnd;

/* Runs `compiler`, a path or a name to be looked up in PATH, to its end. TFM_E_ENV if it cannot be started. */
tfm_status child_run(const char *compiler, const Request *request, const tfm_compile_options *options, ChildEnd *end,
                     tfm_error *error);

/* What the library of the compiler exports as tfm_worker: `tfmc worker` with these arguments, reading and writing
 * these files. Returns the exit code of the command. */
typedef int (*WorkerFunction)(int n_arguments, char **arguments, int text, int output, int messages);

/* Runs the compiler in this process, on a thread of its own. TFM_E_ENV if its library cannot be loaded; once loaded,
 * it stays. */
tfm_status in_process_run(const Request *request, int *exit_code, tfm_error *error);

enum { MOST_PATH = 4096 }; /* bytes of a path */

/* Whether the parts are whole, and every range of the header lies within them. Their version is not looked at. */
bool parts_are_whole(const Mapping *parts);
/* What stands in `hash` of the header of a .tfmm file with these parts; never 0. */
uint64_t parts_hash(const Mapping *parts);

/* Maps a .tfmm file: whole, undamaged and of this version. The message of an error names the file. */
tfm_status parts_map(const char *path, Mapping *parts, tfm_error *error);

/* The path of a file of this installation from its place as seen from libtfm; "" if it is too long. */
void installed_path(const char *relative, char *path, size_t size);

/* Passes the messages on to the caller. On TFM_OK `parts` is mapped, and every range of its header lies within it. */
tfm_status outcome_read(const Request *request, const tfm_compile_options *options, const ChildEnd *end, Mapping *parts,
                        tfm_error *error);

#endif
