/* What follows from the sizes that a context is bound to: addresses and strides of all operands, and how many threads
 * each step is worth.
 *
 * In: values of the polynomials, offsets of the buffers. Out: RunState.operands, step_operands and the steps' states.
 * An operand is resolved again only if a size that it depends on has changed, or if buffers have moved. Nothing is
 * refused: binding has checked everything before. The roles of a step's operands come from steps.def, so a new kind of
 * step needs no code here. */
#include <stddef.h>

#include "context/binding.h"
#include "context/step_operands.h"
#include "machine/tuning.h"

/* The address, or the caller's slot, of an operand's first element. */
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
      operand->address = (uintptr_t)(context->memory.workspace + context->memory.buffer_offsets[source->index]);
      break;
    case TFM_SPACE_SIZE:
      operand->address = source->dtype == TFM_F32 ? (uintptr_t)&context->binding.values_f32[source->index]
                                                  : (uintptr_t)&context->binding.values_i32[source->index];
      return;
  }
  operand->address += (uintptr_t)offset;
}

/* Strides become bytes, so that the loops over rows need no multiplication by the size of an element. */
static Operand resolve(const tfm_context *context, const tfm_operand *source) {
  const bool is_plain = source->form == TFM_FORM_F32;
  Operand operand = {.bytes = is_plain ? dtype_size(source->dtype) : tfm_form_element_bytes(source->form),
                     .gathered = source->gathered};
  set_place(context, source, &operand);
  for (int axis = 0; axis < TFM_MAX_RANK; axis++)
    operand.strides[axis] = value_of(context, source->strides[axis]) * operand.bytes;
  return operand;
}

typedef enum RoleKind { ROLE_END, ROLE_READ, ROLE_WRITTEN, ROLE_MASK, ROLE_WRITTEN_LIST } RoleKind;

/* An operand that a step holds itself; those of a step follow one another in the order of its StepOperands. */
typedef struct Role {
  uint16_t member; /* where in the step: the operand, or the number of what has it */
  uint8_t flag;    /* where in the step: a byte that is 0 if there is no such operand; 0: there always is */
  uint8_t kind;
} Role;

#define READ(member, axes)
#define WRITE(member, axes) +1
#define WRITE_IF(flag, member, axes) +1
#define CACHED(cache, member, axes)
#define MASK(axes)
#define READ_LIST(from)
#define WRITE_LIST() +1
#define TEXT(member)
#define STEP(KIND, name, array, fields, operands) \
  _Static_assert(0 operands <= MOST_RESULTS, "StepState has no room for so many results");
#include "tfm/abi/steps.def"

/* The roles of a step of this kind, and the step itself. */
static const Role *roles_of(const tfm_program *program, const tfm_step *step, const char **info) {
  switch ((tfm_step_kind)step->kind) {
#define READ(member, axes) {offsetof(Info, member), 0, ROLE_READ},
#define WRITE(member, axes) {offsetof(Info, member), 0, ROLE_WRITTEN},
#define WRITE_IF(flag, member, axes) {offsetof(Info, member), offsetof(Info, flag), ROLE_WRITTEN},
#define CACHED(cache, member, axes) READ(member, axes)
#define MASK(axes) {offsetof(Info, live), 0, ROLE_MASK},
#define READ_LIST(from)
#define WRITE_LIST() {offsetof(Info, first_operand), 0, ROLE_WRITTEN_LIST},
#define TEXT(member)
#define STEP(KIND, name, array, fields, operands)    \
  case TFM_STEP_##KIND: {                                     \
    typedef tfm_##name##_step Info;                           \
    static const Role roles[] = {operands{0, 0, ROLE_END}};   \
    *info = (const char *)&program->array[step->index];       \
    return roles;                                             \
  }
#include "tfm/abi/steps.def"
  }
  return NULL;
}

/* NULL: the step has none in this role. */
static const tfm_operand *source_of(const tfm_program *program, const Role *role, const char *info) {
  if (role->flag && !info[role->flag]) return NULL;
  if (role->kind != ROLE_MASK) return (const tfm_operand *)(info + role->member);
  const uint32_t needed = *(const uint32_t *)(info + role->member);
  return needed ? &program->live[needed - 1].mask : NULL;
}

/* The place of a buffer depends on sizes too, but that needs no bits here: when buffers move, workspace.c marks all
 * operands as stale. */
static uint64_t symbols_of(const tfm_context *context, const tfm_operand *source) {
  uint64_t symbols = context->binding.value_symbols[source->offset];
  for (int axis = 0; axis < TFM_MAX_RANK; axis++) symbols |= context->binding.value_symbols[source->strides[axis]];
  return symbols;
}

/* Where a step's own operands are resolved, one behind the other. */
static Operand *operands_at(const tfm_context *context, uint32_t step) {
  return (Operand *)&context->run.step_operands[step];
}

/* What runs a step, where its results are, and on which sizes its own operands depend. Operands follow one another in
 * the order of the table, one slot for each role that is no list, whether or not the step has it. */
static void prepare_step(tfm_context *context, uint32_t number) {
  const tfm_program *program = context->program;
  const uint32_t driver = tfm_driver_of(program, &program->steps[number]);
  context->run.steps[number].driver = &program->drivers->of_step[driver];
  const Operand **result = context->run.steps[number].results, *operand = operands_at(context, number);
  const char *info;
  for (const Role *role = roles_of(program, &program->steps[number], &info); role->kind != ROLE_END; role++) {
    if (role->kind == ROLE_WRITTEN_LIST) {
      *result++ = &context->run.operands[*(const uint32_t *)(info + role->member)];
      continue;
    }
    const tfm_operand *source = source_of(program, role, info);
    if (source) context->run.step_symbols[number] |= symbols_of(context, source);
    if (source && role->kind == ROLE_WRITTEN) *result++ = operand;
    operand++;
  }
}

void resolve_prepare(tfm_context *context) {
  const tfm_program *program = context->program;
  for (uint32_t i = 0; i < program->n_operands; i++)
    context->run.operand_symbols[i] = symbols_of(context, &program->operands[i]);
  for (uint32_t i = 0; i < program->n_steps; i++) prepare_step(context, i);
}

static void resolve_step(tfm_context *context, uint32_t number) {
  const tfm_program *program = context->program;
  Operand *operand = operands_at(context, number);
  const char *info;
  for (const Role *role = roles_of(program, &program->steps[number], &info); role->kind != ROLE_END; role++) {
    if (role->kind == ROLE_WRITTEN_LIST) continue;
    const tfm_operand *source = source_of(program, role, info);
    if (source) *operand = resolve(context, source);
    operand++;
  }
}

void resolve_operands(tfm_context *context) {
  uint64_t stale = context->run.operands_stale;
  bool all = stale == ALL_SYMBOLS;
  for (uint32_t i = 0; i < context->program->n_operands; i++)
    if (all || context->run.operand_symbols[i] & stale)
      context->run.operands[i] = resolve(context, &context->program->operands[i]);
  for (uint32_t i = 0; i < context->program->n_steps; i++)
    if (all || context->run.step_symbols[i] & stale) resolve_step(context, i);
  context->run.operands_stale = 0;
}

bool resolve_is_parallel(const tfm_context *context, int64_t work) {
  return work >= NS_WORTH_A_SHARE * (int64_t)context->threads;
}

int32_t resolve_active(const tfm_context *context, int64_t work) {
  return (int32_t)greatest_of(1, least_of(context->threads, work / NS_WORTH_A_THREAD));
}

/* next_gemm is chained backwards, so that a gemm can prefetch the weights of the next one. The work of steps that run
 * on one thread does not count: waking a thread does not help them. */
void resolve_threads(tfm_context *context) {
  const tfm_program *program = context->program;
  int64_t total = 0;
  uint32_t next_gemm = TFM_NONE;
  for (uint32_t i = program->n_steps; i-- > 0;) {
    StepState *state = &context->run.steps[i];
    state->work = value_of(context, program->steps[i].work);
    state->parallel = resolve_is_parallel(context, state->work);
    state->next_gemm = next_gemm;
    if (program->steps[i].kind == TFM_STEP_GEMM) next_gemm = i;
    if (i + 1 < program->n_steps && program->steps[i + 1].joined)
      context->run.steps[i + 1].parallel = state->parallel = state->parallel || context->run.steps[i + 1].parallel;
    if (state->parallel && __builtin_add_overflow(total, state->work, &total)) total = INT64_MAX;
  }
  context->run.active = resolve_active(context, total);
}
