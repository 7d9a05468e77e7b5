/* TrainGraphs: what a step of training computes, as graphs that engines run.
 *
 * In: an objective. Out: the graph of its results and gradients, and the graph of what they are divided by. Weights are
 * inputs of both, since they change from step to step; so are the cotangents of the loss, because a divisor is the sum
 * over all batches of a step. Refuses what cannot be differentiated, losses that no weight reaches, and divisors that
 * depend on weights where there are several batches. */
#ifndef TFM_TRAIN_GRAPHS_H
#define TFM_TRAIN_GRAPHS_H

#include "elaborate/objective.h"
#include "passes/differentiate.h"

#define NO_OUTPUT UINT32_MAX

typedef struct ResultPart {
  double factor;
  const char *what; /* of people: "sum at 10:19 / sum at 10:19" */
  uint32_t top;    /* output of the gradients */
  uint32_t bottom; /* output of the counts; NO_OUTPUT: the divisor is 1 */
} ResultPart;

typedef struct ResultParts { /* a result of the objective: the sum of factor * top / bottom */
  const char *name;
  VEC(ResultPart) parts;
} ResultParts;

typedef struct Parameter {
  const char *path, *input; /* of the weight; of the INPUT that stands for it */
  uint32_t rank;
  int64_t dims[MAX_RANK], elements;
  uint32_t gradient; /* output of the gradients; NO_OUTPUT: it is not trained */
  bool is_reached;   /* the objective depends on it; else it is only kept with the others */
} Parameter;

typedef struct TrainGraphs {
  const Objective *objective;
  Graph *gradients, *counts; /* counts NULL: nothing is divided by */
  uint32_t n_inputs;         /* those of the objective, the first of either graph */
  VEC(ResultParts) results;  /* the loss first */
  VEC(Parameter) parameters; /* all weights of the model */
  VEC(const char *) seeds;   /* the inputs with the cotangents of the parts of the loss; empty: no gradients */
  uint64_t model;            /* hash of the objective's graph: states of another do not fit */
  SrcSpan whole;             /* a divisor of the loss depends on weights here; no source: none does */
} TrainGraphs;

/* `has_gradients`: else only the results. The objective's graph is used up. NULL after an error. */
TrainGraphs *train_graphs(Arena *arena, Diag *diag, Objective *objective, bool has_gradients);
/* Weights become inputs "weight.PATH": nothing that depends on them may be computed before a run. */
void train_free_weights(Arena *arena, Graph *graph);
/* Deletes what no output needs, but for inputs: a rule may compute what it does not use. */
void train_delete_unneeded(Graph *graph);
/* What each result is made of, and how much is trained, for people. */
void train_graphs_print(StrBuf *out, const TrainGraphs *graphs);

#endif
