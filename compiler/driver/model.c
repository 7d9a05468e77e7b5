#include "driver/model.h"

#include <string.h>

#include "elaborate/elaborate.h"

ParsedProgram *model_parse(Session *session) {
  return parse_program(session->arena, &session->names, &session->diag, session->options.files.items[0]);
}

/* "name=expression" of each -D. */
static bool read_definitions(Session *session, ElaborateOptions *options) {
  const OptionValues *values = &session->options.values[OPTION_DEFINE];
  Definition *definitions = ARENA_ARRAY(session->arena, Definition, values->texts.n);
  Map seen = map_new(session->arena);
  for (size_t i = 0; i < values->texts.n; i++) {
    const char *text = values->texts.items[i], *equals = strchr(text, '=');
    if (!equals || equals == text) {
      diag_error_at(&session->diag, NULL, DIAG_DEFINE, "-D %s: expected NAME=VALUE", text);
      return false;
    }
    definitions[i] = (Definition){arena_strndup(session->arena, text, (size_t)(equals - text)), equals + 1};
    if (map_has(&seen, definitions[i].name)) {
      diag_error_at(&session->diag, NULL, DIAG_DEFINE, "-D %s: '%s' is given twice", text, definitions[i].name);
      return false;
    }
    map_put(&seen, definitions[i].name, NULL);
  }
  options->definitions = definitions;
  options->n_definitions = (uint32_t)values->texts.n;
  return true;
}

Graph *model_load(Session *session) {
  ElaborateOptions options = {.model = option_text(&session->options, OPTION_MODEL, NULL),
                              .weights_prefix = option_text(&session->options, OPTION_WEIGHTS_PREFIX, NULL)};
  if (!read_definitions(session, &options)) return NULL;
  ParsedProgram *program = model_parse(session);
  if (!program) return NULL;
  return elaborate(session->arena, &session->names, &session->diag, program, &options);
}

NodeList model_needed_weights(Arena *arena, Graph *graph) {
  graph_renumber(graph);
  bool *needed = ARENA_ARRAY(arena, bool, graph_count(graph));
  for (size_t i = 0; i < graph->outputs.n; i++) needed[graph->outputs.items[i].node->id] = true;
  for (const Node *node = graph->last; node; node = node->prev)
    for (size_t i = 0; needed[node->id] && i < node->inputs.n; i++) needed[node->inputs.items[i]->id] = true;
  NodeList list = {0};
  for (Node *node = graph->first; node; node = node->next)
    if (node->op == OP_WEIGHT && needed[node->id]) vec_push(arena, &list.nodes, node);
  return list;
}
