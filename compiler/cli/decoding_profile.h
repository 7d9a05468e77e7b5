/* DecodingProfile: where the time of a decoding step goes.
 *
 * In: a generative model that has an incremental form, its weights and inputs, a prompt. Out: the steps of its step
 * program with the median of their times, over as many new tokens as --iterations says; the prompt and --warmup tokens
 * come before. Each row of the prompt gets a token in each step, as in greedy decoding, and no token ends a row.
 * Refused: the reference interpreter, models that do not generate, models that run whole for each token. */
#ifndef TFM_CLI_DECODING_PROFILE_H
#define TFM_CLI_DECODING_PROFILE_H

#include "cli/session.h"
#include "measure/profile.h"

/* NULL after an error. */
Profile *decoding_profile(Session *session);

#endif
