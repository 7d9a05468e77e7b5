#include "driver/library_model.h"

#include <string.h>

#include "aot/description.h"
#include "aot/emit_library.h"
#include "aot/library_file.h"
#include "base/check.h"
#include "driver/generation_settings.h"
#include "driver/incremental.h"
#include "driver/passes_options.h"
#include "graph/uniform.h"
#include "plan/share_weights.h"

// ---- names of files ----

/* Files are called as the model calls them; for `paths`: NULL, or what they were called before. Returns that. */
static const char **rename_files(Session *session, const char **paths) {
  const ParsedProgram *program = session->model->program;
  const char **before = ARENA_ARRAY(session->arena, const char *, program->files.n);
  for (size_t i = 0; i < program->files.n; i++) {
    before[i] = program->files.items[i].source->path;
    program->files.items[i].source->path = paths ? paths[i] : program->files.items[i].name;
  }
  return before;
}

// ---- ragged sizes ----

static const Node *input_with(const Graph *graph, uint32_t symbol) {
  for (size_t i = 0; i < graph->inputs.n; i++)
    for (uint32_t axis = 0; axis < graph->inputs.items[i]->rank; axis++)
      if (size_involves(graph->inputs.items[i]->dims[axis], symbol)) return graph->inputs.items[i];
  UNREACHABLE("a ragged size that no input has");
}

/* What forward runs has ordinary sizes; the functions that write know which were ragged. */
static bool serve_ragged(Session *session, Graph *graph, LibraryModel *model) {
  const SizeTable *sizes = graph->sizes;
  bool *of_sources = ARENA_ARRAY(session->arena, bool, sizes->n_symbols);
  for (uint32_t i = 0; i < sizes->n_symbols; i++) {
    if (!graph->ragged[i]) continue;
    if (!model->generation || model->generation->batch != (uint32_t)graph->ragged_batch) {
      diag_error(&session->diag, input_with(graph, i)->origin.span, DIAG_LIMIT,
                 "a library cannot take items with '%s' of their own: ragged sizes in libraries are for models that write rows "
                 "for them, with a generate block; 'tfmc run' takes this model as it is", sizes->symbols[i]);
      return false;
    }
    if (model->generation->length == i) {
      model->ragged = sizes->symbols[i];
    } else {
      of_sources[i] = true;
      model->ragged_sources = of_sources;
    }
  }
  graph_make_uniform(graph);
  return true;
}

// ---- the model ----

static const char *why_not(Session *session, const Incremental *incremental) {
  if (incremental->step || !incremental->reason) return NULL;
  const SrcSpan span = origin_place(&incremental->origin);
  const char *path = incremental->origin.path;
  if (!span.source) return incremental->reason;
  const char **paths = rename_files(session, NULL);
  SrcPlace place = source_place(span.source, span.begin);
  const char *text =
      arena_printf(session->arena, "%s (%s:%u:%u%s%s)", incremental->reason, span.source->path, place.line, place.column,
                   *path ? ", " : "", path);
  rename_files(session, paths);
  return text;
}

static bool read_block(Session *session, const Graph *graph, LibraryModel *model) {
  tfm_generation *generation = generation_of(session->arena, graph);
  GenerationSettings settings;
  model->generation = generation;
  if (!generation) return true;
  bool is_read = generation_settings_of_block(session, graph, &settings);
  generation->defaults = settings.options;
  generation->bos = settings.start;
  return is_read;
}

bool library_model_make(Session *session, Graph *graph, LibraryModel *model) {
  *model = (LibraryModel){.graph = graph};
  if (!read_block(session, graph, model)) return false;
  if (model->generation && !make_incremental(session, graph, &model->incremental)) return false;
  if (!serve_ragged(session, graph, model)) return false;
  model->not_incremental = why_not(session, &model->incremental);
  return run_passes(session, graph);
}

// ---- plans ----

static bool plan_forms(Session *session, const LibraryModel *model, const TargetInfo *target, LibraryPlans *plans) {
  Diag *diag = &session->diag;
  *plans = (LibraryPlans){.forward = plan_graph(session->arena, diag, model->graph, target)};
  if (!plans->forward || !model->incremental.step) return plans->forward != NULL;
  plans->decoding = plan_decoding(session->arena, diag, &model->incremental, target);
  return plans->decoding != NULL;
}

bool library_model_plan(Session *session, const LibraryModel *model, const TargetInfo *target, LibraryPlans *plans) {
  const char **paths = rename_files(session, NULL);
  bool done = plan_forms(session, model, target, plans);
  rename_files(session, paths); /* for messages */
  if (!done) return false;
  PlanList list = library_plan_list(plans);
  share_weights(session->arena, list.plans, list.n);
  return true;
}

bool plans_of_library(Session *session, Graph *graph, LibraryPlans *plans) {
  const LibraryFile *library = session->library;
  const TargetInfo *target = target_find(library->instruction_sets[0]);
  LibraryModel model;
  bool done = target && library_model_make(session, graph, &model) && library_model_plan(session, &model, target, plans);
  uint8_t layout[16] = {0};
  if (done) library_layout(session->arena, plans, layout);
  if (done && memcmp(layout, library->layout, sizeof layout) == 0) return true;
  if (!diag_has_errors(&session->diag))
    diag_error_at(&session->diag, library->path, DIAG_LIBRARY,
                  "tfmc " TFM_VERSION
                  " packs weights in another way than tfmc %s, which made the library: compile it again",
                  library->version);
  return false;
}
