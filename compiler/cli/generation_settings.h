/* GenerationSettings: the options of generation, from the model's generate block, --generation-config and flags.
 *
 * A later one of these wins over an earlier one; a later length limit replaces both limits of the earlier sources.
 * Unknown names in a config are a warning. Whether the values are in their range is for the runtime to say. Lists live
 * in the session's arena. */
#ifndef TFM_CLI_GENERATION_SETTINGS_H
#define TFM_CLI_GENERATION_SETTINGS_H

#include "cli/session.h"
#include "graph/graph.h"
#include "tfm/generate.h"

typedef struct GenerationSettings {
  tfm_generate_options options;
  int64_t start; /* the token that rows begin with; TFM_NO_TOKEN: none */
} GenerationSettings;

/* False after an error. The lists of the options live in the session's arena. `is_decoder`: the model has no source, so
 * that bos_token_id of a config is what its rows begin with. */
bool generation_settings_read(Session *session, const Graph *graph, bool is_decoder, GenerationSettings *settings);

/* Those of the block alone: what a library's functions begin from. False after an error. */
bool generation_settings_of_block(Session *session, const Graph *graph, GenerationSettings *settings);

#endif
