/* Progress: what takes long, on stderr, when that is a terminal and the work takes more than half a second. */
#ifndef TFM_DRIVER_PROGRESS_H
#define TFM_DRIVER_PROGRESS_H

#include "driver/session.h"

typedef struct Progress Progress;

/* NULL when nothing is to be shown; the functions below ignore it then. `what`: "packing weights". */
Progress *progress_begin(Session *session, const char *what);
/* `done` of `all`; any thread may call it. */
void progress_set(Progress *progress, size_t done, size_t all);
/* Takes the line away. */
void progress_end(Progress *progress);

#endif
