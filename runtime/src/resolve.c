/* After sizes are bound: addresses and strides of all operands, and how many threads each step is worth. */
#include "steps.h"

enum {
  NS_WORTH_A_SHARE = 150,   /* of a step, per thread: one that has less is done by thread 0 alone */
  NS_WORTH_A_THREAD = 12000 /* work of a run per thread that is woken for it */
};

static void set_place(const tfm_context *context, const tfm_operand *source, Operand *operand) {
  int64_t offset = value_of(context, source->offset) * operand->bytes;
  operand->slot = -1;
  if (source->index == TFM_NONE) return; /* the tile itself, whose address each call brings */
  switch ((tfm_space)source->space) {
    case TFM_SPACE_INPUT: operand->slot = (int32_t)source->index; break;
    case TFM_SPACE_OUTPUT: operand->slot = (int32_t)(context->program->n_inputs + source->index); break;
    case TFM_SPACE_WEIGHT:
      operand->address = (uintptr_t)context->weights + context->program->weights[source->index].offset;
      break;
    case TFM_SPACE_BUFFER:
      operand->address = (uintptr_t)context->workspace + (uintptr_t)context->buffer_offsets[source->index];
      break;
    case TFM_SPACE_SIZE:
      operand->address = source->dtype == TFM_F32 ? (uintptr_t)&context->values_f32[source->index]
                                                  : (uintptr_t)&context->values_i32[source->index];
      return;
  }
  operand->address += (uintptr_t)offset;
}

static Operand resolve(const tfm_context *context, const tfm_operand *source) {
  Operand operand = {.bytes = dtype_size(source->dtype), .gathered = source->gathered};
  set_place(context, source, &operand);
  for (int axis = 0; axis < TFM_MAX_RANK; axis++)
    operand.strides[axis] = value_of(context, source->strides[axis]) * operand.bytes;
  return operand;
}

static const tfm_operand *mask_of(const tfm_program *program, uint32_t needed) {
  return needed ? &program->needed[needed - 1].mask : NULL;
}

/* The operands that a step holds itself, in their places; NULL: it has none there. */
static void operands_of(const tfm_program *program, const tfm_step *step, const tfm_operand *sources[STEP_OPERANDS]) {
  for (int i = 0; i < STEP_OPERANDS; i++) sources[i] = NULL;
  switch ((tfm_step_kind)step->kind) {
    case TFM_STEP_ROW: sources[STEP_MASK] = mask_of(program, program->rows[step->index].needed); break;
    case TFM_STEP_GEMM:
      sources[0] = &program->gemms[step->index].a;
      sources[1] = &program->gemms[step->index].c;
      sources[STEP_MASK] = mask_of(program, program->gemms[step->index].needed);
      break;
    case TFM_STEP_MATMUL:
      sources[0] = &program->matmuls[step->index].x;
      sources[1] = &program->matmuls[step->index].y;
      sources[2] = &program->matmuls[step->index].c;
      break;
    case TFM_STEP_ATTENTION: {
      const tfm_attention_step *attention = &program->attentions[step->index];
      sources[0] = &attention->q;
      sources[1] = &attention->k;
      sources[2] = &attention->v;
      sources[3] = &attention->c;
      sources[4] = attention->has_weights ? &attention->weights : NULL;
      sources[STEP_MASK] = mask_of(program, attention->needed);
      break;
    }
    case TFM_STEP_TABLE:
      sources[0] = &program->tables[step->index].positions;
      sources[1] = &program->tables[step->index].c;
      break;
    case TFM_STEP_CHECK_IDS: sources[0] = &program->ids[step->index].ids; break;
    case TFM_STEP_APPEND: sources[0] = &program->appends[step->index].x; break;
  }
}

/* An operand of a buffer depends on sizes by way of its place too; buffers that move make all operands stale. */
static uint64_t symbols_of(const tfm_context *context, const tfm_operand *source) {
  uint64_t symbols = context->value_symbols[source->offset];
  for (int axis = 0; axis < TFM_MAX_RANK; axis++) symbols |= context->value_symbols[source->strides[axis]];
  return symbols;
}

void resolve_find_symbols(tfm_context *context) {
  const tfm_program *program = context->program;
  for (uint32_t i = 0; i < program->n_operands; i++)
    context->operand_symbols[i] = symbols_of(context, &program->operands[i]);
  for (uint32_t i = 0; i < program->n_steps; i++) {
    const tfm_operand *sources[STEP_OPERANDS];
    operands_of(program, &program->steps[i], sources);
    for (int k = 0; k < STEP_OPERANDS; k++)
      if (sources[k]) context->step_symbols[i] |= symbols_of(context, sources[k]);
  }
}

static void resolve_step(tfm_context *context, uint32_t number) {
  const tfm_operand *sources[STEP_OPERANDS];
  operands_of(context->program, &context->program->steps[number], sources);
  for (int i = 0; i < STEP_OPERANDS; i++)
    if (sources[i]) context->step_operands[(size_t)number * STEP_OPERANDS + (size_t)i] = resolve(context, sources[i]);
}

void resolve_operands(tfm_context *context) {
  uint64_t stale = context->operands_stale;
  bool all = stale == ALL_SYMBOLS;
  for (uint32_t i = 0; i < context->program->n_operands; i++)
    if (all || context->operand_symbols[i] & stale)
      context->operands[i] = resolve(context, &context->program->operands[i]);
  for (uint32_t i = 0; i < context->program->n_steps; i++)
    if (all || context->step_symbols[i] & stale) resolve_step(context, i);
  context->operands_stale = 0;
}

bool resolve_is_parallel(const tfm_context *context, int64_t work) {
  return work >= NS_WORTH_A_SHARE * (int64_t)context->threads;
}

int32_t resolve_active(const tfm_context *context, int64_t work) {
  return (int32_t)greatest_of(1, least_of(context->threads, work / NS_WORTH_A_THREAD));
}

void resolve_threads(tfm_context *context) {
  const tfm_program *program = context->program;
  int64_t total = 0;
  uint32_t next_gemm = TFM_NONE;
  for (uint32_t i = program->n_steps; i-- > 0;) {
    StepState *state = &context->steps[i];
    state->work = value_of(context, program->steps[i].work);
    state->parallel = resolve_is_parallel(context, state->work);
    state->next_gemm = next_gemm;
    if (program->steps[i].kind == TFM_STEP_GEMM) next_gemm = i;
    if (state->parallel && __builtin_add_overflow(total, state->work, &total)) total = INT64_MAX;
  }
  context->active = resolve_active(context, total);
}
