/* In: the graphs of a model that trains, as a library. Out: their plans, and how the library makes its packed weights
 * of its parameters, without a compiler. See training_library.h. */
#include "train/training_library.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "engines/weight_source.h"
#include "train/training_tables.h"
#include "train/weight_inputs.h"

_Static_assert((int)RECIPE_MAX_FACTORS == (int)(sizeof((tfm_packed_piece *)NULL)->factors / sizeof(float)) &&
                   (int)TFM_PACKING_GRAPHS == (int)N_TRAINING_PLANS - (int)TRAINING_PACKING,
               "the runtime's tables have room for what the compiler knows");

// ---- packing ----

typedef struct Packing {
  const CompileRequest *request;
  const tfm_training *training;
  tfm_packing *made;
  VEC(tfm_packed_constant) constants;
  VEC(tfm_packed_tensor) tensors;
  VEC(tfm_packed_piece) pieces;
  VEC(uint64_t) places;
  VEC(uint8_t) bytes;
  VEC(const WeightRecipe *) computed; /* of the plan that is looked at */
} Packing;

static Arena *arena_of(const Packing *p) { return p->request->arena; }

// ---- what a recipe is made of ----

static bool finds_weight(Map *seen, const Node *node) {
  if (node->op == OP_WEIGHT) return true;
  if (map_find(seen, &node, sizeof node)) return false;
  map_put_n(seen, &node, sizeof node, NULL);
  for (size_t i = 0; i < node->inputs.n; i++)
    if (finds_weight(seen, node->inputs.items[i])) return true;
  return false;
}

static bool depends_on_weights(Arena *arena, const Node *node) {
  Map seen = map_new(arena);
  return finds_weight(&seen, node);
}

static uint32_t parameter_of(const Packing *p, const char *name) {
  uint32_t i = 0;
  while (i < p->training->n_parameters && strcmp(p->training->parameters[i].path, name) != 0) i++;
  CHECK(i < p->training->n_parameters, "a weight of the model that training does not have");
  return i;
}

// ---- copies of rows ----

static void add_tensor(Packing *p, const WeightRecipe *recipe, int64_t columns, uint32_t n_pieces) {
  const tfm_packed_tensor tensor = {.offset = recipe->offset,
                                    .columns = columns,
                                    .width = recipe->layout == WEIGHT_PANELS ? recipe->width : 0,
                                    .first_piece = (uint32_t)p->pieces.n,
                                    .n_pieces = n_pieces};
  vec_push(arena_of(p), &p->tensors, tensor);
}

static void add_piece(Packing *p, const RecipePiece *from) {
  tfm_packed_piece piece = {.rows = from->rows,
                            .first = from->first,
                            .row_stride = from->row_stride,
                            .column_stride = from->column_stride,
                            .source = TFM_PIECE_NUMBER,
                            .n_factors = from->n_factors};
  memcpy(piece.factors, from->factors, from->n_factors * sizeof *piece.factors);
  if (from->weight)
    piece.source = parameter_of(p, from->weight);
  else
    piece.number = *from->data; /* a constant has strides of 0 */
  vec_push(arena_of(p), &p->pieces, piece);
}

/* False: it is not made of rows of weights. */
static bool add_rows(Packing *p, const WeightRecipe *recipe) {
  RecipeRows rows;
  if (!recipe_rows(arena_of(p), recipe->node, &rows)) return false;
  for (size_t i = 0; i < rows.pieces.n; i++)
    if (rows.pieces.items[i].rounding != TFM_FORM_F32) return false;
  add_tensor(p, recipe, rows.columns, (uint32_t)rows.pieces.n);
  for (size_t i = 0; i < rows.pieces.n; i++) add_piece(p, &rows.pieces.items[i]);
  return true;
}

// ---- constants ----

/* They are packed here and now. The rest of the block is never touched. */
static bool add_constants(Packing *p, const Plan *plan) {
  Plan only = *plan;
  only.recipes.n = only.recipes.cap = 0;
  only.recipes.items = NULL;
  for (size_t i = 0; i < plan->recipes.n; i++) {
    const WeightRecipe *recipe = &plan->recipes.items[i];
    if (!recipe->is_shared && recipe->bytes && !depends_on_weights(arena_of(p), recipe->node))
      vec_push(arena_of(p), &only.recipes, *recipe);
  }
  if (!only.recipes.n) return true;
  char *packed = calloc(1, p->made->bytes);
  const bool good = packed && pack_weights(p->request->diag, &only, &(WeightReader){0}, packed);
  for (size_t i = 0; i < only.recipes.n && good; i++) {
    const WeightRecipe *recipe = &only.recipes.items[i];
    vec_push(arena_of(p), &p->constants, (tfm_packed_constant){recipe->offset, recipe->bytes, p->bytes.n});
    for (uint64_t k = 0; k < recipe->bytes; k++) vec_push(arena_of(p), &p->bytes, (uint8_t)packed[recipe->offset + k]);
  }
  if (!packed) diag_error_at(p->request->diag, NULL, DIAG_MEMORY, "not enough memory to pack constants");
  free(packed);
  return good;
}

// ---- what is computed ----

static int64_t numbers_of(const Node *node) {
  int64_t n = 1, dim = 1;
  for (uint32_t i = 0; i < node->rank; i++) n *= size_is_const(node->dims[i], &dim) ? dim : 1;
  return n;
}

/* A result that lies as the graph gives it goes where it belongs; others behind the packed weights first. */
static void add_computed(Packing *p, const WeightRecipe *recipe) {
  enum { ALIGN = 64 };
  uint64_t place = recipe->offset;
  if (recipe->layout == WEIGHT_PANELS) {
    const Node *node = recipe->node;
    int64_t columns = 1;
    place = (p->made->bytes + ALIGN - 1) / ALIGN * ALIGN;
    p->made->bytes = place + (uint64_t)numbers_of(node) * sizeof(float);
    if (node->rank > 1) size_is_const(node->dims[node->rank - 1u], &columns);
    add_tensor(p, recipe, columns, 1);
    const tfm_packed_piece piece = {.rows = columns ? numbers_of(node) / columns : 0,
                                    .first = (int64_t)(place / sizeof(float)),
                                    .row_stride = columns,
                                    .column_stride = 1,
                                    .source = TFM_PIECE_MADE};
    vec_push(arena_of(p), &p->pieces, piece);
  }
  vec_push(arena_of(p), &p->places, place);
  vec_push(arena_of(p), &p->computed, recipe);
}

/* Nodes of a copy have the ids of the graph that was copied. */
static Node *find_node(const Graph *graph, uint32_t id) {
  Node *node = graph->first;
  while (node && node->id != id) node = node->next;
  CHECK(node, "a copy of a graph without one of its nodes");
  return node;
}

/* The graph of the values of these recipes, whose inputs are parameters and nothing else. */
static Graph *graph_of(Packing *p, const Plan *plan) {
  Graph *graph = graph_clone(arena_of(p), plan->graph);
  graph->outputs.n = 0;
  graph->checks.n = 0;
  graph->generate_input = graph->generate_output = NULL;
  for (size_t i = 0; i < p->computed.n; i++) {
    Node *node = find_node(graph, p->computed.items[i]->node->id);
    vec_push(graph->arena, &graph->outputs, (GraphOutput){.name = arena_printf(arena_of(p), "w%zu", i), .node = node});
  }
  train_delete_unneeded(graph);
  graph_delete_inputs(graph);
  train_free_weights(arena_of(p), NULL, graph);
  graph_renumber(graph);
  return graph;
}

static bool add_packing_graph(Packing *p, uint32_t number, const Plan *plan, TrainingModel *model) {
  if (!p->computed.n) return true;
  Graph *graph = graph_of(p, plan);
  CompileRequest silent = *p->request;
  silent.report = NULL;
  if (!compile_fuse(&silent, graph, NULL)) return false;
  graph->is_portable = true;
  tfm_train_input *inputs = ARENA_ARRAY(arena_of(p), tfm_train_input, graph->inputs.n);
  for (size_t i = 0; i < graph->inputs.n; i++)
    inputs[i] =
        (tfm_train_input){TFM_FROM_PARAMETER, parameter_of(p, graph->inputs.items[i]->attr.name + strlen("weight."))};
  model->table->packing_graphs[number] = (tfm_train_graph){
      .inputs = inputs, .n_inputs = (uint32_t)graph->inputs.n, .n_outputs = (uint32_t)graph->outputs.n};
  model->graphs[TRAINING_PACKING + number] = graph;
  return true;
}

// ---- the whole ----

static bool add_plan(Packing *p, uint32_t number, const Plan *plan, TrainingModel *model) {
  if (!add_constants(p, plan)) return false;
  p->computed.n = 0;
  for (size_t i = 0; i < plan->recipes.n; i++) {
    const WeightRecipe *recipe = &plan->recipes.items[i];
    if (recipe->is_shared || !recipe->bytes || !depends_on_weights(arena_of(p), recipe->node)) continue;
    if (recipe->form != TFM_FORM_F32) p->made->refused = "the model keeps weights in fewer bits than f32";
    if (!p->made->refused && !add_rows(p, recipe)) add_computed(p, recipe);
  }
  return add_packing_graph(p, number, plan, model);
}

/* How a library that trains makes the packed weights of its model, without a compiler: which numbers of which
 * parameters go where (tfm_packing); constants of the text as bytes; graphs for the few weights that the model computes
 * of others. Where weights are kept in fewer bits, the table says that they cannot be made. `plans` are those of any
 * instruction set, since all have one layout. */
static bool add_packing(const CompileRequest *request, const LibraryPlans *plans, TrainingModel *model) {
  Packing p = {.request = request, .training = model->table, .made = ARENA_NEW(request->arena, tfm_packing)};
  const PlanList list = library_plan_list(plans);
  bool good = true;
  p.made->bytes = list.plans[0]->program.weights_bytes;
  for (uint32_t i = 0; i < list.n && good; i++) good = add_plan(&p, i, list.plans[i], model);
  p.made->constants = p.constants.items;
  p.made->n_constants = (uint32_t)p.constants.n;
  p.made->bytes_of_constants = p.bytes.items;
  p.made->tensors = p.tensors.items;
  p.made->n_tensors = (uint32_t)p.tensors.n;
  p.made->pieces = p.pieces.items;
  p.made->places = p.places.items;
  model->table->packing = p.made;
  return good;
}

// ---- for libraries ----

static void list_graphs(const TrainGraphs *of, Graph **graphs) {
  graphs[TRAINING_STEP] = of->gradients;
  graphs[TRAINING_COUNTS] = of->counts;
  if (!of->cut) return;
  graphs[TRAINING_VECTORS] = of->cut->vectors;
  graphs[TRAINING_WHOLE] = of->cut->mixture;
  graphs[TRAINING_BACK] = of->cut->back;
}

bool training_model_make(const CompileRequest *request, TrainGraphs *step, TrainGraphs *evaluation,
                         TrainingModel *model) {
  *model = (TrainingModel){.table = training_make(request->arena, step, evaluation)};
  Graph *graphs[TRAINING_PACKING] = {NULL};
  list_graphs(step, graphs + TRAINING_STEP);
  list_graphs(evaluation, graphs + TRAINING_EVALUATE);
  CompileRequest silent = *request; /* the report is of what the model computes */
  silent.report = NULL;
  for (uint32_t i = 0; i < TRAINING_PACKING; i++) {
    if (graphs[i] && !compile_fuse(&silent, graphs[i], NULL)) return false;
    if (graphs[i]) graphs[i]->is_portable = true;
    model->graphs[i] = graphs[i];
  }
  return true;
}

static bool plan_training(const CompileRequest *request, const TrainingModel *model, LibraryPlans *plans) {
  for (uint32_t i = 0; i < N_TRAINING_PLANS; i++) {
    LibraryPlans alone;
    if (!model->graphs[i]) continue;
    if (!compile_plans(request, model->graphs[i], NULL, &alone)) return false;
    plans->training[i] = alone.forward;
  }
  return true;
}

/* The packed constants of these plans, in the arena; NULL where there are none. Weights are inputs of these graphs:
 * what is packed depends on nothing but the text. */
static bool pack_constants(const CompileRequest *request, const LibraryPlans *plans, const void **weights) {
  const WeightRequest none = {.check = {.arena = request->arena, .diag = request->diag}, .is_random = true};
  WeightSource *source = weight_source_open(&none, plans->training[TRAINING_STEP]->graph);
  bool good = source != NULL;
  for (uint32_t i = 0; i < N_TRAINING_PLANS && good; i++) {
    const LibraryPlans alone = {.forward = plans->training[i]};
    if (!alone.forward || !alone.forward->program.weights_bytes) continue;
    CompileRequest packing = *request;
    packing.weights = weight_source_reader(source);
    char *packed = compile_pack(&packing, &alone);
    good = packed != NULL;
    if (good) weights[i] = arena_copy(request->arena, packed, alone.forward->program.weights_bytes);
    free(packed);
  }
  weight_source_close(source);
  return good;
}

// ---- plans of a library ----

/* Only plans and kernels differ between instruction sets; the constants that training needs are the same for all. */
bool training_plans(const CompileRequest *given, const LibraryModel *model, TrainingModel *training, PlansOfSets made,
                    TrainingParts *parts) {
  CompileRequest request = *given;
  parts->table = training->table;
  for (uint32_t i = 0; i < made.n; i++) {
    request.target = made.sets[i];
    if (!library_model_plan(&request, model, &made.plans[i])) return false;
    if (!training->table) continue;
    if (!i && !add_packing(&request, made.plans, training)) return false;
    if (!plan_training(&request, training, &made.plans[i])) return false;
  }
  return !training->table || pack_constants(&request, made.plans, parts->weights);
}
