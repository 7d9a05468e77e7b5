/* Inputs: what a model's forward takes and gives: inputs, run-time sizes, ragged sizes, outputs, the generate block. */
#ifndef TFM_ELABORATE_INPUTS_H
#define TFM_ELABORATE_INPUTS_H

#include "elaborate/elaborate_call.h"

/* INPUT nodes for the parameters of forward or of an objective, by name in *arguments. False after an error. */
bool declare_inputs(Elaborator *e, Module *model, const Function *entry, Arguments *arguments);
/* The results of forward as outputs of the graph. */
void declare_outputs(Elaborator *e, const Result *result);
/* The objective that the train block of the model names, in place of forward, for e->objective (objective.c). */
void declare_objective(Elaborator *e, Module *model);
/* The generate block, if the model has one, against inputs and outputs. */
void declare_generate(Elaborator *e, const Module *model);

#endif
