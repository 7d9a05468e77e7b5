/* In: a fused graph and a target. Out: a Plan. See plan.h.
 *
 * 1. Find out which nodes are live, static (weights), or depend on run-time sizes alone (prepared once per size).
 * 2. Add the steps of the live nodes in list order, then the copies to the outputs.
 * 3. Turn everything that was collected into the program. */
#include "plan/plan.h"

#include "base/check.h"
#include "plan/caches.h"
#include "plan/plan_live.h"
#include "plan/row_chains.h"

typedef void (*PlanNode)(Planner *p, const Node *node);

/* The column `code` of the operations that have steps of their own. */
#define plan_ON_USE NULL
#define plan_LOWERED NULL
#define PLAN_SOURCE(code) NULL
#define PLAN_UNARY(code) NULL
#define PLAN_BINARY(code) NULL
#define PLAN_TERNARY(code) NULL
#define PLAN_VIEW(code) plan_##code
#define PLAN_REDUCE(code) plan_##code
#define PLAN_CONTRACT(code) plan_##code
#define PLAN_OTHER(code) plan_##code
static const PlanNode plan_node[N_OPS] = {
#define OP(Enum, text, category, least, most, takes, gives, shape, eval, code, ...) [OP_##Enum] = PLAN_##category(code),
#include "graph/ops.def"
};

// ---- what there is to do ----

/* Marks what the outputs need. Running sums need no mask, which is their first input. The inputs of a static node are
 * not needed at run time: packing has used them by then. */
static void mark_live(Planner *p, size_t n, const GraphOutput *outputs) {
  for (const Node *node = p->graph->first; node; node = node->next) p->values[node->id].is_live = false;
  for (size_t i = 0; i < n; i++) p->values[outputs[i].node->id].is_live = true;
  for (const Node *node = p->graph->last; node; node = node->prev) {
    const Value *value = &p->values[node->id];
    if (!value->is_live || value->is_static) continue;
    for (size_t i = plan_is_triangle(p, node); i < node->inputs.n; i++)
      p->values[node->inputs.items[i]->id].is_live = true;
  }
}

/* Notes for each value which outputs need it, so that a run which wants some outputs skips the steps of the others.
 * There are 64 bits; outputs from number 63 on share the last. What is appended to a cache serves all steps that
 * follow, so it is computed whatever is wanted now. */
static void find_outputs_served(Planner *p) {
  for (size_t i = 0; i < p->outputs.n; i++)
    p->values[p->outputs.items[i].node->id].serves |= (uint64_t)1 << (i < 63 ? i : 63);
  for (const Node *node = p->graph->last; node; node = node->prev) {
    Value *value = &p->values[node->id];
    if (!value->is_live) continue;
    if (caches_has(p, node)) value->serves = ALL_RUNS;
    for (size_t i = 0; i < node->inputs.n; i++) p->values[node->inputs.items[i]->id].serves |= value->serves;
  }
}

static bool has_gather(const Node *node) {
  if (!node->attr.expr) return false;
  Arena *scratch = arena_create();
  ExprList list = expr_list(scratch, node->attr.expr);
  bool found = false;
  for (uint32_t i = 0; i < list.n; i++) found |= list.items[i]->kind == EXPR_GATHER;
  arena_destroy(scratch);
  return found;
}

/* Whether the node depends on run-time sizes alone, so that its value is computed when sizes change and not in each
 * run. A prepared value holds memory of its own for as long as the context lives; products stay out, because what they
 * compute is worth recomputing rather than holding. Gathers stay out because their ids are checked in every run. */
static bool is_prepare(const Planner *p, const Node *node) {
  bool may_be = op_table[node->op].category == CATEGORY_VIEW || node->op == OP_POINTWISE || node->op == OP_CONCAT ||
                node->op == OP_SINUSOID || node->op == OP_ROTARY_TABLE || node->op == OP_REDUCE || node->op == OP_NORM;
  if (!may_be || p->values[node->id].is_static || has_gather(node)) return false;
  for (size_t i = 0; i < node->inputs.n; i++)
    if (!p->values[node->inputs.items[i]->id].is_prepare) return false;
  return true;
}

/* The list order of nodes is topological, so every input has been classified when its user is. */
static void classify(Planner *p) {
  const bool *is_static = graph_static_flags(p->arena, p->graph);
  for (const Node *node = p->graph->first; node; node = node->next) {
    p->values[node->id].is_static = is_static[node->id];
    p->values[node->id].is_prepare = is_prepare(p, node);
  }
  mark_live(p, p->graph->outputs.n, p->graph->outputs.items);
}

/* Returns the last live node that can report a fault, or NULL. Later nodes may write straight into the caller's
 * outputs. */
static const Node *last_that_can_fail(Planner *p) {
  for (const Node *node = p->graph->last; node; node = node->prev) {
    const Value *value = &p->values[node->id];
    if (value->is_live && !value->is_static && plan_can_fail(p, node)) return node;
  }
  return NULL;
}

/* Which passes run is for users to say; without their help the passes leave nothing that no step computes. */
static bool refuse_node(Planner *p, const Node *node) {
  const char *name = op_table[node->op].name;
  CHECK(p->graph->is_half_lowered, "%s is no operation of a fused graph", name);
  diag_error(p->diag, origin_place(&node->origin), DIAG_PASS_LEFT_OUT,
             "%s has no step: a pass that lowers it was left out by --only, --disable or --stop-after", name);
  return false;
}

/* Views, inputs and second results have no step of their own: the steps that use or write them resolve them. */
static bool plan_nodes(Planner *p) {
  const Node *last = last_that_can_fail(p);
  for (const Node *node = p->graph->first; node && !diag_has_errors(p->diag); node = node->next) {
    const Value *value = &p->values[node->id];
    bool is_resolved_on_use =
        op_table[node->op].category == CATEGORY_VIEW || node->op == OP_INPUT || op_is_part(node->op);
    if (!value->is_live || value->is_static || is_resolved_on_use) continue;
    if (!plan_node[node->op]) return refuse_node(p, node);
    p->node = node;
    p->prepare = value->is_prepare;
    p->may_write_outputs = !last || node->id > last->id;
    if (!p->may_write_outputs) p->first_safe_step = (uint32_t)p->steps.n + 1;
    /* Before the step: the mask may need a copy. */
    if (node->attr.rows_mask) plan_view(p, node->inputs.items[node->attr.rows_mask - 1]);
    plan_node[node->op](p, node);
    if (p->math.overflowed) plan_limit(p, "a size of this value is too large for the runtime");
  }
  return !diag_has_errors(p->diag);
}

// ---- gradients ----

enum { GOES_ON = 1, BEGINS_ANEW = 2, IS_ADDED_TO = 4, IS_HALF = 8 }; /* half: of a sum, between runs */

static void note_writer(uint8_t *found, const tfm_operand *c, uint8_t what) {
  if (c->space == TFM_SPACE_OUTPUT) found[c->index] |= what;
}

/* What the steps that write outputs do in a run that goes on. Rows that are added to a product follow what it does. */
static uint8_t *find_writers(const Planner *p) {
  uint8_t *found = ARENA_ARRAY(p->arena, uint8_t, p->outputs.n);
  for (size_t i = 0; i < p->matmuls.n; i++)
    note_writer(found, &p->matmuls.items[i].c, !p->matmuls.items[i].in_order                       ? BEGINS_ANEW
                                               : p->matmuls.items[i].direct == TFM_DIRECT_ONE_ROW ? GOES_ON | IS_HALF
                                                                                                   : GOES_ON);
  for (size_t i = 0; i < p->alongs.n; i++) {
    const tfm_along_step *along = &p->alongs.items[i];
    const bool is_scatter = along->what == TFM_ALONG_SCATTER && along->accumulate != TFM_ACCUMULATE_ANEW;
    note_writer(found, &along->c, !is_scatter                                        ? BEGINS_ANEW
                                    : along->accumulate == TFM_ACCUMULATE_GOES_ON ? GOES_ON
                                                                                   : IS_ADDED_TO);
  }
  for (size_t i = 0; i < p->rows.n; i++)
    note_writer(found, &p->operands.items[p->rows.items[i].first_operand], BEGINS_ANEW);
  for (size_t i = 0; i < p->gemms.n; i++) note_writer(found, &p->gemms.items[i].c, BEGINS_ANEW);
  for (size_t i = 0; i < p->attentions.n; i++) note_writer(found, &p->attentions.items[i].c, BEGINS_ANEW);
  for (size_t i = 0; i < p->attention_grads.n; i++) {
    note_writer(found, &p->attention_grads.items[i].c, BEGINS_ANEW);
    if (p->attention_grads.items[i].is_forward) continue;
    note_writer(found, &p->attention_grads.items[i].dk, BEGINS_ANEW);
    note_writer(found, &p->attention_grads.items[i].dv, BEGINS_ANEW);
  }
  for (size_t i = 0; i < p->states.n; i++) note_writer(found, &p->states.items[i].c, BEGINS_ANEW);
  for (size_t i = 0; i < p->state_grads.n; i++) {
    const tfm_state_grad_step *step = &p->state_grads.items[i];
    const tfm_operand *const results[] = {&step->c, &step->dk, &step->dv, &step->ddecay, &step->dbeta};
    for (size_t j = 0; j < sizeof results / sizeof *results; j++) note_writer(found, results[j], BEGINS_ANEW);
  }
  for (size_t i = 0; i < p->tables.n; i++) note_writer(found, &p->tables.items[i].c, BEGINS_ANEW);
  return found;
}

/* A gradient goes on only if every step that writes it does, and none adds to a half of a number. */
static bool can_go_on(uint8_t found) {
  return (found & GOES_ON) && !(found & BEGINS_ANEW) && (found & (IS_ADDED_TO | IS_HALF)) != (IS_ADDED_TO | IS_HALF);
}

static void settle_gradients(Planner *p, tfm_tensor_info *outputs) {
  const uint8_t *found = find_writers(p);
  for (size_t i = 0; i < p->outputs.n; i++) outputs[i].goes_on = can_go_on(found[i]);
  for (size_t i = 0; i < p->matmuls.n; i++) {
    tfm_matmul_step *step = &p->matmuls.items[i];
    if (step->in_order && outputs[step->c.index].goes_on) step->in_order = TFM_ORDER_GOES_ON;
  }
  for (size_t i = 0; i < p->alongs.n; i++) {
    tfm_along_step *step = &p->alongs.items[i];
    const bool may_go_on = step->what == TFM_ALONG_SCATTER && step->accumulate == TFM_ACCUMULATE_GOES_ON;
    if (may_go_on && !outputs[step->c.index].goes_on) step->accumulate = TFM_ACCUMULATE_ANEW;
  }
}

// ---- the program ----

static void describe_tensors(Planner *p) {
  tfm_program *program = &p->plan->program;
  program->n_inputs = (uint32_t)p->inputs.n;
  program->n_outputs = (uint32_t)p->outputs.n;
  tfm_tensor_info *inputs = ARENA_ARRAY(p->arena, tfm_tensor_info, program->n_inputs);
  tfm_tensor_info *outputs = ARENA_ARRAY(p->arena, tfm_tensor_info, program->n_outputs);
  Role *input_roles = ARENA_ARRAY(p->arena, Role, program->n_inputs);
  Role *output_roles = ARENA_ARRAY(p->arena, Role, program->n_outputs);
  for (uint32_t i = 0; i < program->n_inputs; i++) {
    const Node *node = p->inputs.items[i];
    inputs[i] = plan_tensor_info(p, node->attr.name, node);
    input_roles[i] = node->attr.role;
  }
  for (uint32_t i = 0; i < program->n_outputs; i++) {
    const GraphOutput *output = &p->outputs.items[i];
    outputs[i] = plan_tensor_info(p, output->name, output->node);
    outputs[i].stand_in = p->stand_ins[i];
    output_roles[i] = output->role;
  }
  settle_gradients(p, outputs);
  program->inputs = inputs;
  program->outputs = outputs;
  p->plan->input_roles = input_roles;
  p->plan->output_roles = output_roles;
}

static const tfm_weight *weights_of(Planner *p) {
  tfm_weight *weights = ARENA_ARRAY(p->arena, tfm_weight, p->plan->recipes.n);
  for (size_t i = 0; i < p->plan->recipes.n; i++)
    weights[i] = (tfm_weight){p->plan->recipes.items[i].offset, p->plan->recipes.items[i].bytes};
  return weights;
}

/* Sizes, and what a run checks before it computes anything. */
static void fill_sizes(const Planner *p, tfm_program *program) {
  program->n_symbols = p->math.table->n_symbols;
  program->symbols = p->math.table->symbols;
  program->n_polynomials = (uint32_t)p->polynomial_list.n;
  program->terms = p->terms.items;
  program->polynomials = p->polynomial_list.items;
  program->n_floors = (uint32_t)p->floors.n;
  program->floors = p->floors.items;
  program->n_checks = (uint32_t)p->checks.n;
  program->checks = p->checks.items;
  program->conditions = p->conditions.items;
  program->parts = p->parts.items;
  program->n_id_limits = (uint32_t)p->id_limits.n;
  program->id_limits = p->id_limits.items;
}

static void fill_program(Planner *p) {
  tfm_program *program = &p->plan->program;
  program->version = TFM_PROGRAM_VERSION;
  program->name = p->graph->name;
  program->isa = p->target->name;
  program->family = (uint8_t)p->target->family;
  program->features = p->target->features;
  fill_sizes(p, program);
  program->n_fault_places = (uint32_t)p->fault_places.n;
  program->fault_places = p->fault_places.items;
  program->n_weights = (uint32_t)p->plan->recipes.n;
  program->weights = weights_of(p);
  program->weights_bytes += 64; /* a tile may load a vector that reaches past the last panel; nothing of it is used */
  program->n_buffers = (uint32_t)p->buffers.n;
  program->buffers = p->buffers.items;
  program->n_kernels = (uint32_t)p->plan->kernels.n;
  program->n_steps = (uint32_t)p->steps.n;
  program->steps = p->steps.items;
  program->n_operands = (uint32_t)p->operands.n;
  program->operands = p->operands.items;
  program->n_live = (uint32_t)p->live.n;
  program->live = p->live.items;
  program->n_row_chains = (uint32_t)p->row_chains.n;
  program->row_chains = p->row_chains.items;
#define STEP(KIND, name, array, ...) \
  program->array = p->array.items;   \
  p->plan->n_steps[TFM_STEP_##KIND] = (uint32_t)p->array.n;
#include "tfm/abi/steps.def"
  program->n_caches = (uint32_t)p->caches.n;
  program->caches = p->caches.items;
}

static Planner planner_new(Arena *arena, Diag *diag, Graph *graph, const TargetInfo *target) {
  Planner p = {.arena = arena, .diag = diag, .graph = graph, .target = target, .math = size_math(graph->sizes),
               .polynomials = map_new(arena), .kernels = map_new(arena), .recipes = map_new(arena),
               .id_checks = map_new(arena)};
  p.plan = ARENA_NEW(arena, Plan);
  p.plan->arena = arena;
  p.plan->graph = graph;
  p.plan->target = target;
  p.values = ARENA_ARRAY(arena, Value, graph->next_id);
  return p;
}

/* The polynomials 0 and 1 come first, because the runtime knows them by number. Liveness is computed twice:
 * caches_find needs to know which users are live, and what lies in pages is then no output any more. */
Plan *plan_graph(Arena *arena, Diag *diag, Graph *graph, const TargetInfo *target) {
  CHECK(graph->ragged_batch < 0, "items of different sizes have no plan in common");
  graph_renumber(graph);
  Planner p = planner_new(arena, diag, graph, target);
  plan_size(&p, p.math.zero);
  plan_size(&p, p.math.one);
  classify(&p);
  caches_find(&p);
  mark_live(&p, p.outputs.n, p.outputs.items);
  find_outputs_served(&p);
  p.stand_ins = ARENA_ARRAY(arena, uint32_t, p.outputs.n);
  if (!plan_nodes(&p)) return NULL;
  plan_outputs(&p);
  plan_checks(&p);
  plan_ranges(&p);
  describe_tensors(&p);
  if (p.math.overflowed) plan_limit(&p, "a size of this model is too large for the runtime");
  if (diag_has_errors(diag)) return NULL;
  live_settle(&p);
  plan_whole_tiles(&p);
  find_row_chains(&p);
  plan_fault_places(&p);
  fill_program(&p);
  return p.plan;
}

_Static_assert(TFM_ALL_DRIVERS <= 64, "a bit for each driver");

/* Of tables of sines: as wide as the runtime's vectors of doubles are for the target (machine_vector_bytes). */
static tfm_driver_number filler_of(const TargetInfo *target) {
  const uint32_t doubles = target_wide_doubles(target);
  return doubles == 8 ? TFM_DRIVER_FILL_8 : doubles == 4 ? TFM_DRIVER_FILL_4 : TFM_DRIVER_FILL_2;
}

DriverSet plan_drivers(const Plan *plan) {
  const tfm_program *p = &plan->program;
  const DriverSet of_chains = driver_bit(TFM_DRIVER_PLAN_CHAINS) | driver_bit(TFM_DRIVER_TAKE_CHAIN);
  const DriverSet of_flat_caches =
      driver_bit(TFM_DRIVER_CUT_FLAT) | driver_bit(TFM_DRIVER_GATHER_FLAT) | driver_bit(TFM_DRIVER_TAKE_FLAT);
  DriverSet drivers = p->n_row_chains ? of_chains : 0;
  for (uint32_t i = 0; i < p->n_steps; i++) drivers |= driver_bit(tfm_driver_of(p, &p->steps[i]));
  for (uint32_t i = 0; i < p->n_caches; i++)
    if (p->caches[i].of_encoder && p->caches[i].form == TFM_FORM_INT8)
      drivers |= driver_bit(TFM_DRIVER_WRITE_INT8);
  if (drivers >> TFM_DRIVER_TABLE & 1) drivers |= driver_bit(filler_of(plan->target));
  for (uint32_t i = 0; i < p->n_inputs; i++)
    if (role_goes_on(plan->input_roles[i])) drivers |= of_flat_caches;
  return drivers;
}
