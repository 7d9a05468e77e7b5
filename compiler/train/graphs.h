/* TrainGraphs: what a step of training computes, as graphs that engines run.
 *
 * In: an objective. Out: the graph of its results and gradients, and the graph of what must be known over all batches
 * of a step before gradients are made: divisors, and the sums that a loss is a formula of, such as exp(nll). Weights
 * are inputs of both, since they change from step to step; so are the cotangents of the loss. Refuses what cannot be
 * differentiated and losses that no weight reaches. A result that needs all items at once is marked; with it come
 * graphs for batches in parts (cut_graphs.h), unless there is no cut. */
#ifndef TFM_TRAIN_GRAPHS_H
#define TFM_TRAIN_GRAPHS_H

#include "elaborate/objective.h"
#include "passes/differentiate.h"
#include "train/cut_graphs.h"
#include "train/loss_parts.h"

#define NO_OUTPUT UINT32_MAX

typedef struct ResultPart { /* factor * top / bottom; or factor * top / step; or, without a top, factor * step */
  double factor;
  const char *what; /* of people: "sum at 10:19 / sum at 10:19"; NULL: only a slope */
  uint32_t top;     /* output of the gradients; NO_OUTPUT: none */
  uint32_t bottom;  /* output of the counts; NO_OUTPUT: the divisor is 1 */
  uint32_t formula; /* a step; NO_OUTPUT: none */
  uint32_t slope; /* a step, whose value the top is too: what the loss changes with it is the cotangent of the top, and
                   * the part adds nothing to the loss; NO_OUTPUT: none */
} ResultPart;

typedef struct ResultParts { /* a result of the objective: the sum of its parts */
  const char *name;
  VEC(ResultPart) parts;
  bool is_whole; /* it needs all items of a batch at once: only right if nothing is cut */
  bool divides;  /* because a divisor depends on weights; else items are mixed */
  SrcSpan where; /* there; no source: nothing counts items */
} ResultParts;

typedef struct ResultStep { /* of a formula over sums of items, as tfm_formula_step */
  uint32_t op, operands[TFM_FORMULA_OPERANDS];
  double number;
} ResultStep;

typedef struct Parameter {
  const char *path, *input; /* of the weight; of the INPUT that stands for it */
  uint32_t rank;
  int64_t dims[MAX_RANK], elements;
  uint32_t gradient; /* output of the gradients; NO_OUTPUT: it is not trained */
  tfm_form form;     /* that it is kept in; what is trained is F32 */
  bool is_reached;   /* the objective depends on it; else it is only kept with the others */
} Parameter;

typedef struct TrainGraphs {
  const Objective *objective;
  Graph *gradients, *counts; /* counts NULL: nothing is divided by */
  uint32_t n_inputs;         /* those of the objective, the first of either graph */
  VEC(ResultParts) results;  /* the loss first */
  VEC(ResultStep) steps;     /* of their formulas */
  VEC(uint8_t) tops_once, bottoms_once; /* by output: it is the same in every part, and counts once */
  VEC(Parameter) parameters; /* all weights of the model */
  VEC(const char *) seeds;   /* the inputs with the cotangents of the parts of the loss; empty: no gradients */
  uint64_t model;            /* hash of the objective's graph: states of another do not fit */
  const ResultParts *whole;  /* the first result that needs all items at once; NULL: none does */
  const CutGraphs *cut;      /* how it is computed in parts nevertheless; NULL: it is not */
  const Node *uncut;         /* what refuses a cut */
} TrainGraphs;

/* Why a step may not be cut into parts, for people; `whole` of the graphs is not NULL. */
const char *train_graphs_whole(Arena *arena, const TrainGraphs *graphs);
/* `has_gradients`: else only the results. The objective's graph is used up. NULL after an error. */
TrainGraphs *train_graphs(Arena *arena, Diag *diag, Objective *objective, bool has_gradients);
/* What each result is made of, and how much is trained, for people. */
void train_graphs_print(StrBuf *out, const TrainGraphs *graphs);

#endif
