/* Roofline: how much work a run is, and how fast it could be at best.
 *
 * In: a program, the dims of its inputs or the values of its sizes, what the machine can do. Out: the arithmetic of
 * matrix products, attention and linear attention as they are executed, the packed weights and the caches they read,
 * and the sum over the steps of whichever takes longer, computing or reading. Activations count as free, and so does
 * everything else. */
#ifndef TFM_MEASURE_ROOFLINE_H
#define TFM_MEASURE_ROOFLINE_H

#include "graph/eval.h"
#include "measure/probe.h"
#include "tfm/abi/program.h"

typedef struct Work {
  double flops, whole;              /* of one run; those of them that are of whole numbers (int8, int4) */
  double weight_bytes, cache_bytes; /* of one run; every row reads caches of its own */
} Work;

typedef struct WorkTerm { /* the factor times these sizes of the program */
  double factor;
  uint8_t n;
  tfm_size sizes[TFM_MAX_RANK + 1];
} WorkTerm;

typedef struct StepWork { /* as Work, for any sizes */
  WorkTerm flops, cache_bytes;
  double weight_bytes;
  bool is_whole;  /* all arithmetic is of whole numbers */
  bool is_causal; /* if the last two sizes of `flops`, queries and keys, are equal, half of the pairs do not count */
} StepWork;

/* What a step does in a run; nothing for those of preparation. The sum over the steps is roofline_work. */
StepWork roofline_step(const tfm_program *program, const tfm_step *step);

/* `dims`: one per input of the program, in its order; NULL for one that was left out. */
double roofline_step_flops(const tfm_program *program, const tfm_step *step, const int64_t *const *dims);
Work roofline_work(const tfm_program *program, const int64_t *const *dims);
double roofline_seconds(const tfm_program *program, const int64_t *const *dims, const Probe *most);

/* The same where some sizes follow from no input, as the number of earlier positions. `symbols`: the values of the
 * program's sizes, in its order. */
Work roofline_work_at(const tfm_program *program, const int64_t *symbols);
double roofline_seconds_at(const tfm_program *program, const int64_t *symbols, const Probe *most);

/* The same of one step. */
double roofline_step_flops_at(const tfm_program *program, const tfm_step *step, const int64_t *symbols);
double roofline_step_seconds_at(const tfm_program *program, const tfm_step *step, const int64_t *symbols,
                                const Probe *most);

/* What such a machine does per second of the arithmetic of `work`, its types mixed as they are there. */
double roofline_rate(const Work *work, const Probe *most);

/* How many products a node is whose sums run over the last axis of its first input; 0: it is none. */
uint32_t roofline_products(const Node *node);
/* The multiplications and additions of all matrix products of a graph (two for each multiply-add), as the model is
 * written, padding and masked keys included, with the sizes of these inputs. */
double roofline_flops_written(const Graph *graph, const EvalInputs *inputs);

#endif
