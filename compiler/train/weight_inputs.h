/* What graphs of training have in common: weights are inputs of them, and they hold nothing that they do not need. */
#ifndef TFM_TRAIN_WEIGHT_INPUTS_H
#define TFM_TRAIN_WEIGHT_INPUTS_H

#include "elaborate/objective.h"

/* What a weight is kept in: matrices that are not trained may have 16 bits. */
tfm_form train_kept_form(const Objective *objective, const Node *weight);
/* Weights become inputs "weight.PATH": nothing that depends on them may be computed before a run. They are given in the
 * form that they are kept in; without an objective in f32. */
void train_free_weights(Arena *arena, const Objective *objective, Graph *graph);
/* Deletes what no output needs, but for inputs: a rule may compute what it does not use. */
void train_delete_unneeded(Graph *graph);
/* Deletes inputs that no node reads. */
void train_delete_unread_inputs(Graph *graph);
/* Of what a graph of parts requires of sizes: what is about the number of items, and of no operation that it has, is
 * for the mixture to check. */
void train_drop_checks(Graph *graph, int32_t batch);

#endif
