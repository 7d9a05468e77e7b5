/* Flow: from which steps a step gets what it reads, for the map of a plan.
 *
 * In: a plan and the list `steps` that was made of it. Out: in each step `inputs`, the steps before it that wrote the
 * buffers it reads, and by name the inputs and outputs of the program that it reads and writes, as operations have
 * them. Refuses nothing. */
#include <string.h>

#include "explore/explorer.h"

typedef VEC(uint32_t) Writers;

typedef struct Flow {
  Explorer *x;
  const Plan *plan;
  Writers *writers; /* by buffer: the steps so far that wrote it */
  json_t *inputs, *reads, *gives; /* of the step that is looked at */
  uint32_t *written;              /* by step + 1: the last step that has it among its inputs */
  uint32_t step;
  VEC(uint32_t) own; /* buffers that this step writes: readers behind it get them */
} Flow;

static void add_name(Flow *flow, json_t *list, const char *name) {
  size_t i;
  json_t *known;
  json_array_foreach(list, i, known)
    if (strcmp(json_string_value(known), name) == 0) return;
  json_array_append_new(list, explorer_text(flow->x, name));
}

static void add_writers(Flow *flow, uint32_t buffer) {
  for (size_t i = 0; i < flow->writers[buffer].n; i++) {
    const uint32_t from = flow->writers[buffer].items[i];
    if (flow->written[from] == flow->step + 1) continue;
    flow->written[from] = flow->step + 1;
    json_array_append_new(flow->inputs, json_integer(from));
  }
}

static void visit(void *context, const tfm_operand *operand, bool is_written) {
  Flow *flow = context;
  const tfm_program *program = &flow->plan->program;
  if (operand->space == TFM_SPACE_INPUT) add_name(flow, flow->reads, program->inputs[operand->index].name);
  if (operand->space == TFM_SPACE_OUTPUT && is_written)
    add_name(flow, flow->gives, program->outputs[operand->index].name);
  if (operand->space != TFM_SPACE_BUFFER) return;
  if (is_written) vec_push(flow->x->arena, &flow->own, operand->index);
  else add_writers(flow, operand->index);
}

static void note_written(Flow *flow) {
  for (size_t i = 0; i < flow->own.n; i++) {
    Writers *writers = &flow->writers[flow->own.items[i]];
    if (!writers->n || writers->items[writers->n - 1] != flow->step)
      vec_push(flow->x->arena, writers, flow->step);
  }
  flow->own.n = 0;
}

void explorer_add_flow(Explorer *x, const Plan *plan, json_t *steps) {
  Flow flow = {.x = x, .plan = plan};
  flow.writers = arena_array(x->arena, plan->program.n_buffers + 1, sizeof *flow.writers);
  flow.written = ARENA_ARRAY(x->arena, uint32_t, plan->program.n_steps + 1);
  for (uint32_t i = 0; i < plan->program.n_steps; i++) {
    flow.step = i;
    flow.inputs = json_array();
    flow.reads = json_array();
    flow.gives = json_array();
    plan_visit_operands(plan, &plan->program.steps[i], visit, &flow);
    note_written(&flow);
    json_t *step = json_array_get(steps, i);
    json_object_set_new(step, "inputs", flow.inputs);
    if (json_array_size(flow.reads)) json_object_set(step, "reads", flow.reads);
    if (json_array_size(flow.gives)) json_object_set(step, "gives", flow.gives);
    json_decref(flow.reads);
    json_decref(flow.gives);
  }
}
