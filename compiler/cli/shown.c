/* In: the options. Out: graphs and plans of stages. See shown.h for what is refused.
 *
 * Stages before the passes have a report too, which says that nothing was fused. */
#include "cli/shown.h"

#include "compile/compile_model.h"
#include "train/graphs.h"

/* --stage was checked against the same table, so the search ends. */
const StageInfo *shown_stage(const Session *session) {
  const StageInfo *stage = stage_table;
  while (!option_is(&session->options, OPTION_STAGE, "graph", stage->name)) stage++;
  return stage;
}

const Plan *shown_plan(Session *session, Graph *graph) {
  const TargetInfo *target = host_choose_target(session, false);
  return target ? plan_graph(session->arena, &session->diag, graph, target) : NULL;
}

// ---- the incremental form ----

/* Says why the incremental form or its encoder is missing, with the calls that lead to the operation that prevents
 * it. */
static void refuse_part(Session *session, const Incremental *parts) {
  if (parts->step) {
    diag_error_at(&session->diag, verb_table[session->options.verb].name, DIAG_REQUIRED_FUSION,
                  "a step reads nothing that depends on other inputs alone");
    return;
  }
  origin_error(&session->diag, &parts->origin, DIAG_REQUIRED_FUSION, "the model is not incremental: %s",
               parts->reason);
}

/* NULL, with an error, if there is none. */
static Graph *graph_of_part(Session *session, const Graph *model, const StageInfo *stage) {
  const CompileRequest request = compile_request(session, NULL);
  Derivation *derived = compile_derive(&request, model);
  const DerivedPart wanted = stage->part == PART_ENCODER ? DERIVED_ENCODER : DERIVED_STEP;
  Graph *part = wanted == DERIVED_ENCODER ? derived->parts.encoder : derived->parts.step;
  bool done = true;
  if (part && stage->form != FORM_GRAPH) done = compile_fuse_parts(&request, derived, wanted);
  else report_passes(session, part ? part : graph_clone(session->arena, model), &derived->log);
  if (!part) refuse_part(session, &derived->parts);
  return done ? part : NULL;
}

// ---- all ----

static Graph *gradients(Session *session) {
  Objective *objective = training_objective(session, true);
  const TrainGraphs *graphs = objective ? train_graphs(session->arena, &session->diag, objective, true) : NULL;
  return graphs ? graphs->gradients : NULL;
}

Graph *shown_graph(Session *session, const StageInfo *stage) {
  Graph *graph = model_load(session);
  if (!graph || !session_note_weights(session, graph)) return NULL;
  if (stage->part == PART_ENCODER || stage->part == PART_STEP) return graph_of_part(session, graph, stage);
  if (stage->part == PART_TRAINING) graph = gradients(session);
  if (!graph) return NULL;
  if (stage->form != FORM_GRAPH) return run_passes(session, graph) ? graph : NULL;
  report_no_passes(session, graph);
  return graph;
}
