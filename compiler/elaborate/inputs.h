/* Inputs: what a model's forward takes and gives: inputs, run-time sizes, ragged sizes, outputs, the generate block. */
#ifndef TFM_ELABORATE_INPUTS_H
#define TFM_ELABORATE_INPUTS_H

#include "elaborate/call.h"

/* INPUT nodes for the parameters of forward, by name in *arguments. False after an error. */
bool declare_inputs(Elaborator *e, Module *model, Arguments *arguments);
/* The results of forward as outputs of the graph. */
void declare_outputs(Elaborator *e, const Result *result);
/* The generate block, if the model has one, against inputs and outputs. */
void declare_generate(Elaborator *e, const Module *model);

#endif
