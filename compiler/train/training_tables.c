/* In: graphs of an objective. Out: tables of its weights, masks, inputs and results. See training_tables.h. */
#include "train/training_tables.h"

#include <string.h>

#include "base/check.h"
#include "aot/args_layout.h"
#include "tfm/abi/forms.h"
#include "train/adapter_text.h"

_Static_assert((int)TFM_INITIAL_NONE == (int)N_INITIALS && (int)TFM_INITIAL_NORMAL == (int)INITIAL_NORMAL &&
                   (int)TFM_OPTIMIZER_ADAMW == (int)OPTIMIZER_ADAMW &&
                   (int)TFM_SCHEDULE_INVERSE_SQRT == (int)SCHEDULE_INVERSE_SQRT,
               "the runtime counts kinds as the elaborator does");

// ---- weights ----

/* Trained ones begin at multiples of 16 numbers, frozen ones of 64 bytes. */
static void place_parameter(tfm_training *training, tfm_parameter *p) {
  enum { FLOATS = 16, BYTES = 64 };
  const uint64_t n = (uint64_t)p->elements, bytes = n * (uint64_t)tfm_form_element_bytes(p->form);
  p->offset = p->gradient == TFM_NONE ? training->frozen_bytes : training->floats;
  if (p->gradient == TFM_NONE) training->frozen_bytes += (bytes + BYTES - 1) / BYTES * BYTES;
  else training->floats += (n + FLOATS - 1) / FLOATS * FLOATS;
}

static void add_parameters(Arena *arena, tfm_training *training, const TrainGraphs *graphs) {
  const Objective *objective = graphs->objective;
  tfm_parameter *parameters = ARENA_ARRAY(arena, tfm_parameter, graphs->parameters.n);
  for (size_t i = 0; i < graphs->parameters.n; i++) {
    const Parameter *p = &graphs->parameters.items[i];
    const Initial *initial = map_get(&objective->initials, p->path);
    parameters[i] = (tfm_parameter){.path = p->path,
                                    .elements = p->elements,
                                    .initial = {.kind = TFM_INITIAL_NONE},
                                    .gradient = p->gradient == NO_OUTPUT ? TFM_NONE : p->gradient,
                                    .rank = (uint8_t)p->rank,
                                    .form = (uint8_t)p->form,
                                    .rate = rate_factor(&objective->settings.rates, p->path, 1),
                                    .decays = !patterns_match(&objective->settings.no_decay, p->path)};
    if (initial) parameters[i].initial = (tfm_initial){(uint32_t)initial->kind, initial->a, initial->b};
    memcpy(parameters[i].dims, p->dims, sizeof p->dims);
    place_parameter(training, &parameters[i]);
  }
  training->base_is_apart = objective->adapters != NULL || objective->settings.saved == SAVED_TRAINED;
  adapter_describe(arena, graphs, training, parameters);
  training->parameters = parameters;
  training->n_parameters = (uint32_t)graphs->parameters.n;
}

static void set_settings(tfm_training *training, const TrainSettings *s) {
  training->optimizer = (uint32_t)s->optimizer;
  training->settings = (tfm_train_settings){.struct_size = sizeof training->settings,
                                            .lr = s->lr,
                                            .beta1 = s->beta1,
                                            .beta2 = s->beta2,
                                            .eps = s->eps,
                                            .weight_decay = s->weight_decay,
                                            .momentum = s->momentum,
                                            .clip_norm = s->clip_norm,
                                            .warmup = s->warmup,
                                            .steps = s->steps,
                                            .final_lr = s->final_lr,
                                            .model_size = s->model_size,
                                            .gamma = s->gamma,
                                            .schedule = (int32_t)s->schedule,
                                            .nesterov = s->nesterov};
}

// ---- dropout ----

/* The axis that counts items is the first that they divide into a number that is known. */
static tfm_dropout dropout_of(const DropoutMask *mask, const Node *input, SizeTable *sizes, int32_t batch) {
  enum { UNKNOWN = 1 << 20 };
  tfm_dropout dropout = {.p = mask->p, .number = mask->number, .rank = input->rank, .item_axis = TFM_NONE};
  const Size *items = batch >= 0 ? size_symbol(sizes, sizes->symbols[batch]) : NULL;
  for (uint32_t i = 0; i < input->rank; i++) {
    int64_t number = UNKNOWN, per_item = 1;
    const bool is_found = dropout.item_axis != TFM_NONE;
    const Size *each = items && !is_found ? size_div(sizes, input->dims[i], items) : NULL;
    if (each && size_is_const(each, &per_item)) {
      dropout.item_axis = i;
      dropout.per_item = (uint32_t)per_item;
    }
    size_is_const(input->dims[i], &number);
    dropout.fold[i] = (uint32_t)number;
  }
  return dropout;
}

static void add_dropouts(Arena *arena, tfm_training *training, const TrainGraphs *graphs) {
  const Objective *objective = graphs->objective;
  tfm_dropout *dropouts = ARENA_ARRAY(arena, tfm_dropout, objective->masks.n);
  const Graph *graph = graphs->gradients;
  for (size_t i = 0; i < objective->masks.n; i++)
    dropouts[i] = dropout_of(&objective->masks.items[i], graph->inputs.items[graphs->n_inputs + i], graph->sizes,
                             objective->batch);
  training->dropouts = dropouts;
  training->n_dropouts = (uint32_t)objective->masks.n;
}

// ---- graphs ----

static tfm_train_input find_parameter(const tfm_training *training, const TrainGraphs *graphs, const char *input) {
  uint32_t i = 0, number = 0;
  while (strcmp(graphs->parameters.items[i].input, input) != 0) i++;
  while (number < training->n_parameters &&
         strcmp(training->parameters[number].path, graphs->parameters.items[i].path) != 0)
    number++;
  CHECK(number < training->n_parameters, "a weight of the evaluation that training does not have");
  return (tfm_train_input){TFM_FROM_PARAMETER, number};
}

/* The value of the cut that an input stands for; its source is TFM_NONE if it is none. */
static tfm_train_input cut_input(const CutGraphs *cut, const char *name, uint32_t source) {
  Arena *arena = arena_create();
  uint32_t i = 0;
  while (i < cut->cut.values.n && strcmp(cut_name(arena, i), name) != 0) i++;
  arena_destroy(arena);
  return (tfm_train_input){i < cut->cut.values.n ? source : (uint32_t)TFM_NONE, i};
}

/* Inputs are the objective's, masks of dropout, the cotangents of the loss, weights. */
static tfm_train_input input_of(const tfm_training *training, const TrainGraphs *graphs, const Graph *graph,
                                uint32_t i) {
  const uint32_t n = graphs->n_inputs, masks = n + (uint32_t)graphs->objective->masks.n;
  if (i < n) return (tfm_train_input){TFM_FROM_BATCH, i};
  if (i < masks) return (tfm_train_input){TFM_FROM_DROPOUT, i - n};
  const char *name = graph->inputs.items[i]->attr.name;
  for (uint32_t k = 0; k < graphs->seeds.n; k++)
    if (strcmp(graphs->seeds.items[k], name) == 0) return (tfm_train_input){TFM_FROM_SEED, k};
  if (graphs->cut) {
    const tfm_train_input value = cut_input(graphs->cut, name, TFM_FROM_COTANGENT);
    if (value.source != TFM_NONE) return value;
  }
  return find_parameter(training, graphs, name);
}

static tfm_train_graph describe(Arena *arena, const tfm_training *training, const TrainGraphs *graphs,
                                const Graph *graph) {
  if (!graph) return (tfm_train_graph){0};
  tfm_train_input *inputs = ARENA_ARRAY(arena, tfm_train_input, graph->inputs.n);
  tfm_train_graph made = {
      .inputs = inputs, .n_inputs = (uint32_t)graph->inputs.n, .n_outputs = (uint32_t)graph->outputs.n};
  for (uint32_t i = 0; i < made.n_inputs; i++) {
    inputs[i] = input_of(training, graphs, graph, i);
    made.draws |= inputs[i].source == TFM_FROM_DROPOUT && graph->inputs.items[i]->users.n > 0;
  }
  return made;
}

// ---- mixtures ----

static bool is_input_name(const Graph *graph, uint32_t i, const char *name) {
  return strcmp(graph->inputs.items[i]->attr.name, name) == 0;
}

/* Inputs of the mixture are values of the cut, masks and weights; it has no others of a batch. */
static tfm_train_input mixture_input(const tfm_training *training, const TrainGraphs *graphs, const char *name) {
  const tfm_train_input value = cut_input(graphs->cut, name, TFM_FROM_CUT);
  const uint32_t n = graphs->n_inputs, n_masks = (uint32_t)graphs->objective->masks.n;
  if (value.source != TFM_NONE) return value;
  for (uint32_t i = 0; i < n_masks; i++)
    if (is_input_name(graphs->gradients, n + i, name)) return (tfm_train_input){TFM_FROM_DROPOUT, i};
  return find_parameter(training, graphs, name);
}

static tfm_train_graph describe_mixture(Arena *arena, const tfm_training *training, const TrainGraphs *graphs) {
  const Graph *graph = graphs->cut->mixture;
  tfm_train_input *inputs = ARENA_ARRAY(arena, tfm_train_input, graph->inputs.n + 1);
  tfm_train_graph made = {
      .inputs = inputs, .n_inputs = (uint32_t)graph->inputs.n, .n_outputs = (uint32_t)graph->outputs.n};
  for (uint32_t i = 0; i < made.n_inputs; i++) {
    inputs[i] = mixture_input(training, graphs, graph->inputs.items[i]->attr.name);
    made.draws |= inputs[i].source == TFM_FROM_DROPOUT;
  }
  return made;
}

static const uint32_t *gradients_of(Arena *arena, const tfm_training *training, const CutGradient *items, size_t n) {
  uint32_t *outputs = ARENA_ARRAY(arena, uint32_t, training->n_parameters + 1);
  for (uint32_t i = 0; i < training->n_parameters; i++) {
    outputs[i] = TFM_NONE;
    for (size_t k = 0; k < n; k++)
      if (strcmp(items[k].path, training->parameters[i].path) == 0) outputs[i] = items[k].output;
  }
  return outputs;
}

static tfm_train_mixture mixture_of(Arena *arena, const tfm_training *training, const TrainGraphs *graphs) {
  const CutGraphs *cut = graphs->cut;
  if (!cut) return (tfm_train_mixture){0};
  const size_t n = cut->cut.values.n;
  tfm_train_cut *cuts = ARENA_ARRAY(arena, tfm_train_cut, n + 1);
  uint32_t output = (uint32_t)graphs->results.n;
  for (size_t i = 0; i < n; i++) {
    const CutValue *value = &cut->cut.values.items[i];
    cuts[i] = (tfm_train_cut){value->axis < 0 ? TFM_NONE : (uint32_t)value->axis, TFM_NONE};
    if (graphs->seeds.n && value->has_gradient) cuts[i].cotangent = output++;
  }
  return (tfm_train_mixture){
      .cuts = cuts,
      .gradients = gradients_of(arena, training, cut->of_mixture.items, cut->of_mixture.n),
      .back_gradients = gradients_of(arena, training, cut->of_back.items, cut->of_back.n),
      .vectors = describe(arena, training, graphs, cut->vectors),
      .whole = describe_mixture(arena, training, graphs),
      .back = describe(arena, training, graphs, cut->back),
      .sizes = cut->sizes,
      .n_cuts = (uint32_t)n};
}

// ---- objectives ----

static uint32_t number_or_none(uint32_t number) { return number == NO_OUTPUT ? TFM_NONE : number; }

static const tfm_formula_step *steps_of(Arena *arena, const TrainGraphs *graphs) {
  tfm_formula_step *steps = ARENA_ARRAY(arena, tfm_formula_step, graphs->steps.n);
  for (size_t i = 0; i < graphs->steps.n; i++) {
    const ResultStep *step = &graphs->steps.items[i];
    steps[i] = (tfm_formula_step){.number = step->number, .op = step->op};
    memcpy(steps[i].operands, step->operands, sizeof steps[i].operands);
  }
  return steps;
}

/* NULL where no output counts once. */
static const uint8_t *once_of(const uint8_t *items, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (items[i]) return items;
  return NULL;
}

static tfm_objective objective_of(Arena *arena, const tfm_training *training, const TrainGraphs *graphs) {
  tfm_objective made = {.n_results = (uint32_t)graphs->results.n,
                        .n_tops = (uint32_t)graphs->tops_once.n,
                        .n_steps = (uint32_t)graphs->steps.n};
  for (size_t i = 0; i < graphs->results.n; i++) made.n_parts += (uint32_t)graphs->results.items[i].parts.n;
  tfm_train_result *results = ARENA_ARRAY(arena, tfm_train_result, made.n_results);
  tfm_result_part *parts = ARENA_ARRAY(arena, tfm_result_part, made.n_parts);
  uint32_t n = 0;
  for (uint32_t i = 0; i < made.n_results; i++) {
    const ResultParts *result = &graphs->results.items[i];
    results[i] = (tfm_train_result){result->name, n, (uint32_t)result->parts.n};
    for (size_t k = 0; k < result->parts.n; k++) {
      const ResultPart *part = &result->parts.items[k];
      parts[n++] = (tfm_result_part){part->factor, number_or_none(part->top), number_or_none(part->bottom),
                                     number_or_none(part->formula), number_or_none(part->slope)};
    }
  }
  made.results = results;
  made.parts = parts;
  made.steps = steps_of(arena, graphs);
  made.tops_once = once_of(graphs->tops_once.items, graphs->tops_once.n);
  made.bottoms_once = once_of(graphs->bottoms_once.items, graphs->bottoms_once.n);
  made.tops = describe(arena, training, graphs, graphs->gradients);
  made.bottoms = describe(arena, training, graphs, graphs->counts);
  made.mixture = mixture_of(arena, training, graphs);
  return made;
}

// ---- the whole ----

static const char *place_of(Arena *arena, SrcSpan span) {
  if (!span.source) return NULL;
  const SrcPlace place = source_place(span.source, span.begin);
  return arena_printf(arena, "%s:%u:%u", span.source->name, place.line, place.column);
}

/* Of the args struct of the objective, which has sizes and inputs alone. */
static void place_args(Arena *arena, tfm_training *training) {
  const uint32_t counts[N_ARGS_PER] = {[PER_SYMBOL] = training->n_sizes, [PER_INPUT] = training->n_inputs};
  const ArgsMembers members = args_members(arena, counts, NULL);
  uint32_t *sizes = ARENA_ARRAY(arena, uint32_t, training->n_sizes);
  uint32_t *inputs = ARENA_ARRAY(arena, uint32_t, training->n_inputs);
  for (uint32_t i = 0; i < members.n; i++) {
    if (members.items[i].group == ARGS_symbols) sizes[members.items[i].index] = args_offset(i);
    if (members.items[i].group == ARGS_inputs) inputs[members.items[i].index] = args_offset(i);
  }
  training->sizes = sizes;
  training->inputs = inputs;
  training->args_size = args_offset(members.n);
}

tfm_training *training_make(Arena *arena, const TrainGraphs *step, const TrainGraphs *evaluation) {
  const TrainGraphs *either = step ? step : evaluation;
  tfm_training *training = ARENA_NEW(arena, tfm_training);
  const int32_t batch = either->objective->batch;
  add_parameters(arena, training, either);
  set_settings(training, &either->objective->settings);
  if (either->whole && !either->cut) training->whole_why = train_graphs_whole(arena, either);
  if (either->whole && !either->cut) training->whole = place_of(arena, either->whole->where);
  training->mixer = either->cut ? tfm_mixer_of_items : NULL;
  training->optimize = training->optimizer == TFM_OPTIMIZER_SGD ? tfm_optimize_sgd : tfm_optimize_adam;
  training->average_share = either->objective->settings.average;
  training->average = training->average_share > 0 ? tfm_average_weights : NULL;
  training->model = either->model;
  training->batch = batch < 0 ? TFM_NONE : (uint32_t)batch;
  training->n_inputs = either->n_inputs;
  training->n_sizes = either->gradients->sizes->n_symbols;
  training->n_seeds = (uint32_t)either->seeds.n;
  place_args(arena, training);
  if (step) add_dropouts(arena, training, step);
  if (step) training->step = objective_of(arena, training, step);
  if (evaluation) training->evaluation = objective_of(arena, training, evaluation);
  if (training->step.n_steps || training->evaluation.n_steps) training->formulas = tfm_walk_formulas;
  return training;
}
