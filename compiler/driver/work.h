/* Work: how much arithmetic a model asks for with the sizes of some inputs. */
#ifndef TFM_DRIVER_WORK_H
#define TFM_DRIVER_WORK_H

#include "graph/eval.h"

/* Multiplications and additions of all matrix products (two for each multiply-add), as the model is written, padding
 * and masked keys included. */
double work_flops(const Graph *graph, const EvalInputs *inputs);

#endif
