/* Model: from the file and the options to the graph. The file is a .tfm file or, since a library
 * carries the text of its model, a compiled library. */
#ifndef TFM_DRIVER_MODEL_H
#define TFM_DRIVER_MODEL_H

#include "driver/session.h"
#include "graph/graph.h"
#include "parse/include.h"

/* The program that the first file of the command line holds. NULL after an error. */
ParsedProgram *model_parse(Session *session);
/* Its graph, elaborated with -D, --model and --weights-prefix. If the file is a compiled library (and the verb is one of
 * V_LIBRARY), the graph of the model in it, and session->library. NULL after an error. */
Graph *model_load(Session *session);

#endif
