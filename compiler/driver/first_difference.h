/* Where compiled code first departs from the reference interpreter. */
#ifndef TFM_DRIVER_FIRST_DIFFERENCE_H
#define TFM_DRIVER_FIRST_DIFFERENCE_H

#include "driver/engine.h"

/* Names the first operation of the graph, in the order of computation, whose value differs (a note to the newest
 * message). Each operation that is tried is compiled as an output of its own, fused with what stands before it. */
void report_first_difference(Session *session, Graph *graph, WeightSource *weights, const EvalInputs *inputs);

#endif
