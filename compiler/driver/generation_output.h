/* GenerationOutput: what `tfmc generate` has written, to files or as JSON lines. */
#ifndef TFM_DRIVER_GENERATION_OUTPUT_H
#define TFM_DRIVER_GENERATION_OUTPUT_H

#include "driver/returned_outputs.h"

/* Whether there will be what --output names. */
bool generation_output_check_names(Session *session, const tfm_generate_options *options, const ReturnedOutputs *returned);
void generation_output_rows(Session *session, const tfm_generated *generated, const ReturnedOutputs *returned);
void generation_output_probabilities(Session *session, int64_t n, int64_t vocab, float *probabilities);

#endif
