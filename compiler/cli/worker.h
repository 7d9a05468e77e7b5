/* Worker: compiles for libtfm, whatever process it runs in.
 *
 * In: the options of `tfmc worker`, and a file with the source text or the path of one. Out: the parts (api/parts.h) in
 * a file, complete with their header or, after an error, a header with the first message. */
#ifndef TFM_CLI_WORKER_H
#define TFM_CLI_WORKER_H

#include "cli/cli_model.h"
#include "cli/session.h"

/* `text` and `output` are open files; `text` is read if the second argument of the command is "-". `features` are asked
 * for in place of the target's; NULL: the target's own. */
void worker_run(Session *session, int text, int output, const char *features);

/* Writes a .tfmm file: what the worker makes of these plans, with a hash. The file is whole or as it was. False after
 * an error. */
bool worker_save(Session *session, const LibraryModel *model, const LibraryPlans *plans, WeightSource *weights,
                 const char *path);

/* `tfmc worker` with these arguments, in this process; see WorkerFunction in api/api_run.h. Returns its exit code. */
__attribute__((visibility("default"))) int tfm_worker(int n_arguments, char **arguments, int text, int output,
                                                      int messages);

#endif
