/* The incremental form of a model that writes, ready to be planned. */
#ifndef TFM_DRIVER_INCREMENTAL_H
#define TFM_DRIVER_INCREMENTAL_H

#include "driver/session.h"
#include "passes/incremental.h"

/* Derived from the graph as the elaborator made it, then run through the passes that the options ask for, or those that
 * session->library was made with. `step` is NULL for a model that is not incremental or has no generate block. False after
 * an error. */
bool make_incremental(Session *session, const Graph *graph, Incremental *made);

#endif
