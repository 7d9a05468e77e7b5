/* In: a Plan. Out: its drawing, for `dump --format=...`: an item for each step, and an edge for each value from the
 * step that wrote it to one that reads it. */
#include <string.h>

#include "plan/plan.h"

// ---- what a step reads and writes ----

void plan_visit_operands(const Plan *plan, const tfm_step *info, OperandVisit *visit, void *context) {
  const tfm_program *program = &plan->program;
  switch ((tfm_step_kind)info->kind) {
#define READ(member, axes) visit(context, &step->member, false);
#define WRITE(member, axes) visit(context, &step->member, true);
#define WRITE_IF(flag, member, axes) \
  if (step->flag) WRITE(member, axes)
#define CACHED(cache, member, axes) \
  if (step->cache == TFM_NONE) READ(member, axes)
#define READ_LIST(from)                                \
  for (uint32_t i = (from); i < step->n_operands; i++) \
    visit(context, &program->operands[step->first_operand + i], false);
#define WRITE_LIST()                                                   \
  visit(context, &program->operands[step->first_operand], true); \
  READ_LIST(1)
#define MASK(axes) \
  if (step->live) visit(context, &program->live[step->live - 1].mask, false);
#define TEXT(member)
#define STEP(KIND, name, array, fields, operands)                 \
  case TFM_STEP_##KIND: {                                         \
    const tfm_##name##_step *step = &program->array[info->index]; \
    operands                                                      \
  } break;
#include "tfm/abi/steps.def"
  }
}

// ---- the drawing ----

typedef struct PlanDrawing {
  const Plan *plan;
  Drawing *drawing;
  int64_t *inputs, *outputs, *buffers; /* the item that wrote the value last; -1: none did */
} PlanDrawing;

/* One more than is needed, so that a program without inputs has an array too. */
static int64_t *no_items(Arena *arena, uint32_t n) {
  int64_t *items = ARENA_ARRAY(arena, int64_t, n + 1);
  for (uint32_t i = 0; i < n; i++) items[i] = -1;
  return items;
}

/* Returns where the item that wrote this memory last is noted; NULL for weights and sizes, which no step writes. */
static int64_t *writer_of(const PlanDrawing *d, const tfm_operand *operand) {
  if (operand->space == TFM_SPACE_INPUT) return &d->inputs[operand->index];
  if (operand->space == TFM_SPACE_OUTPUT) return &d->outputs[operand->index];
  return operand->space == TFM_SPACE_BUFFER ? &d->buffers[operand->index] : NULL;
}

/* Returns what the arrow between two steps says: type and shape of what flows along it. */
static const char *flow_of(const PlanDrawing *d, const tfm_operand *operand) {
  const tfm_program *program = &d->plan->program;
  if (operand->space == TFM_SPACE_INPUT) return program->inputs[operand->index].shape;
  if (operand->space == TFM_SPACE_OUTPUT) return program->outputs[operand->index].shape;
  StrBuf text = strbuf_new(d->plan->arena);
  strbuf_printf(&text, "%s ", dtype_names[program->buffers[operand->index].dtype]);
  plan_print_size(&text, d->plan, program->buffers[operand->index].elements);
  return text.text;
}

/* An edge leads from the step that wrote the memory last to the step that reads it. Buffers share memory in a run, but
 * not in the plan, so the last writer is the right one. */
static void draw_operand(const PlanDrawing *d, uint32_t item, const tfm_operand *operand, bool is_written) {
  int64_t *writer = writer_of(d, operand);
  if (!writer) return;
  if (is_written) *writer = item;
  else if (*writer >= 0 && *writer < item) drawing_add_edge(d->drawing, (uint32_t)*writer, item, flow_of(d, operand));
}

typedef struct StepItem {
  const PlanDrawing *d;
  uint32_t item;
  bool written; /* what is drawn now: all that the step writes, or all that it reads */
} StepItem;

static void draw_use(void *context, const tfm_operand *operand, bool is_written) {
  const StepItem *step = context;
  if (is_written == step->written) draw_operand(step->d, step->item, operand, is_written);
}

/* Adds the item of a step, "gemm encoder.layer.0.output": the operation, and the module it belongs to. */
static void draw_step(const PlanDrawing *d, const tfm_step *step) {
  const char *space = strchr(step->name, ' '), *path = space ? space + 1 : "";
  const char *label = space ? arena_strndup(d->plan->arena, step->name, (size_t)(space - step->name)) : step->name;
  uint32_t item = drawing_add_item(d->drawing, DRAW_OPERATION, label, path);
  plan_visit_operands(d->plan, step, draw_use, &(StepItem){d, item, false}); /* first: it may write what it read */
  plan_visit_operands(d->plan, step, draw_use, &(StepItem){d, item, true});
}

Drawing *drawing_of_plan(const Plan *plan) {
  const tfm_program *program = &plan->program;
  PlanDrawing d = {.plan = plan, .drawing = drawing_new(plan->arena, program->name)};
  d.inputs = no_items(plan->arena, program->n_inputs);
  d.outputs = no_items(plan->arena, program->n_outputs);
  d.buffers = no_items(plan->arena, program->n_buffers);
  for (uint32_t i = 0; i < program->n_inputs; i++)
    d.inputs[i] = drawing_add_item(d.drawing, DRAW_PORT, text_shown(plan->arena, program->inputs[i].name), "");
  for (size_t i = 0; i < plan->recipes.n; i++) {
    const Node *node = plan->recipes.items[i].node;
    StrBuf text = strbuf_new(plan->arena);
    strbuf_add(&text, "packed ");
    node_print_shape(&text, plan->graph->sizes, node);
    const double floats = (double)(plan->recipes.items[i].bytes / sizeof(float));
    drawing_add_weight(d.drawing, node->origin.path, text.text, floats);
  }
  for (uint32_t i = 0; i < program->n_steps; i++) draw_step(&d, &program->steps[i]);
  for (uint32_t i = 0; i < program->n_outputs; i++) {
    uint32_t item = drawing_add_item(d.drawing, DRAW_PORT, text_shown(plan->arena, program->outputs[i].name), "");
    draw_operand(&d, item, &(tfm_operand){.space = TFM_SPACE_OUTPUT, .index = i}, false);
  }
  return d.drawing;
}
