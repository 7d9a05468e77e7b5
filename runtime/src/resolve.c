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

/* The operands that a step holds itself, in the order of its StepOperands. */
typedef struct Roles {
  uint32_t n;
  const tfm_operand *sources[MOST_STEP_OPERANDS]; /* NULL: the step has none in this role */
  bool is_written[MOST_STEP_OPERANDS];
  uint32_t written_list; /* in the program's operands: the step's list, whose first is written; TFM_NONE: none is */
} Roles;

#define READ(member, axes)
#define WRITE(member, axes) +1
#define WRITE_IF(flag, member, axes) +1
#define CACHED(cache, member, axes)
#define MASK(axes)
#define READ_LIST(from)
#define WRITE_LIST() +1
#define TEXT(member)
#define STEP(KIND, name, array, scratch, print, operands) \
  _Static_assert(0 operands <= MOST_RESULTS, "more results than StepState holds");
#include "tfm/steps.def"

static void add_role(Roles *roles, const tfm_operand *source, bool is_written) {
  roles->sources[roles->n] = source;
  roles->is_written[roles->n++] = is_written;
}

static Roles roles_of(const tfm_program *program, const tfm_step *info) {
  Roles roles = {.written_list = TFM_NONE};
  switch ((tfm_step_kind)info->kind) {
#define READ(member, axes) add_role(&roles, &step->member, false);
#define WRITE(member, axes) add_role(&roles, &step->member, true);
#define WRITE_IF(flag, member, axes) add_role(&roles, step->flag ? &step->member : NULL, true);
#define CACHED(cache, member, axes) READ(member, axes)
#define MASK(axes) add_role(&roles, mask_of(program, step->needed), false);
#define READ_LIST(from)
#define WRITE_LIST() roles.written_list = step->first_operand;
#define TEXT(member)
#define STEP(KIND, name, array, scratch, print, operands)              \
  case TFM_STEP_##KIND: {                                               \
    const tfm_##name##_step *step = &program->array[info->index];       \
    operands                                                            \
  } break;
#include "tfm/steps.def"
  }
  return roles;
}

/* An operand of a buffer depends on sizes by way of its place too; buffers that move make all operands stale. */
static uint64_t symbols_of(const tfm_context *context, const tfm_operand *source) {
  uint64_t symbols = context->value_symbols[source->offset];
  for (int axis = 0; axis < TFM_MAX_RANK; axis++) symbols |= context->value_symbols[source->strides[axis]];
  return symbols;
}

/* Where a step's own operands are resolved, one behind the other. */
static Operand *operands_at(const tfm_context *context, uint32_t step) {
  return (Operand *)&context->step_operands[step];
}

static void prepare_step(tfm_context *context, uint32_t number) {
  const Roles roles = roles_of(context->program, &context->program->steps[number]);
  const Operand **results = context->steps[number].results;
  int n = 0;
  if (roles.written_list != TFM_NONE) results[n++] = &context->operands[roles.written_list];
  for (uint32_t i = 0; i < roles.n; i++) {
    if (!roles.sources[i]) continue;
    context->step_symbols[number] |= symbols_of(context, roles.sources[i]);
    if (roles.is_written[i]) results[n++] = operands_at(context, number) + i;
  }
}

void resolve_prepare(tfm_context *context) {
  const tfm_program *program = context->program;
  for (uint32_t i = 0; i < program->n_operands; i++)
    context->operand_symbols[i] = symbols_of(context, &program->operands[i]);
  for (uint32_t i = 0; i < program->n_steps; i++) prepare_step(context, i);
}

static void resolve_step(tfm_context *context, uint32_t number) {
  const Roles roles = roles_of(context->program, &context->program->steps[number]);
  for (uint32_t i = 0; i < roles.n; i++)
    if (roles.sources[i]) operands_at(context, number)[i] = resolve(context, roles.sources[i]);
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
