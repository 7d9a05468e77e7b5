#include "compiled_model.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "first_message.h"
#include "passes/passes.h"
#include "plan/share_weights.h"
#include "weights/pack.h"

static void good(const Diag *diag, bool condition) { cr_assert(condition, "%s", first_message(diag)); }

char *packed_weights(Arena *arena, Diag *diag, Plan *const *plans, uint32_t n, WeightLookup find, void *context) {
  share_weights(arena, plans, n);
  const size_t bytes = (plans[0]->program.weights_bytes / 64 + 1) * 64;
  char *block = aligned_alloc(64, bytes);
  cr_assert_not_null(block);
  memset(block, 0, bytes);
  for (uint32_t i = 0; i < n && find; i++) good(diag, pack_weights(arena, diag, plans[i], find, context, block));
  return block;
}

Jit *jit_of(Arena *arena, Diag *diag, const Plan *plan) {
  Jit *jit = jit_create(arena, diag, plan, NULL);
  good(diag, jit);
  return jit;
}

void optimize(Diag *diag, Graph *graph) { good(diag, passes_run(graph, diag, &(PassOptions){.level = 2}, NULL)); }

bool decoding_compile(CompiledDecoding *made, Arena *arena, Diag *diag, Graph *graph, const TargetInfo *target,
                      WeightLookup find, void *context) {
  *made = (CompiledDecoding){0};
  const Incremental parts = incremental_derive(arena, diag, graph, NULL);
  if (!parts.step) return false;
  optimize(diag, parts.step);
  if (parts.source) optimize(diag, parts.source);
  const DecodingPlan *plans = made->plans = plan_decoding(arena, diag, &parts, target);
  good(diag, plans);
  made->packed = packed_weights(arena, diag, (Plan *[]){plans->step, plans->source}, plans->source ? 2 : 1, find, context);
  made->decoding = plans->decoding;
  made->step = jit_of(arena, diag, plans->step);
  made->decoding.step = jit_program(made->step);
  if (!plans->source) return true;
  made->source = jit_of(arena, diag, plans->source);
  made->decoding.source = jit_program(made->source);
  return true;
}

void decoding_free(CompiledDecoding *made) {
  jit_destroy(made->source);
  jit_destroy(made->step);
  free(made->packed);
}

int64_t value_elements(const tfm_value *value) {
  int64_t n = 1;
  for (int32_t axis = 0; axis < value->rank; axis++) n *= value->dims[axis];
  return n;
}

void zero_inputs(Arena *arena, const Plan *plan, const int64_t *symbols, tfm_value *inputs) {
  for (uint32_t i = 0; i < plan->program.n_inputs; i++) {
    const tfm_tensor_info *info = &plan->program.inputs[i];
    int64_t dims[TFM_MAX_RANK];
    for (uint32_t k = 0; k < info->rank; k++) dims[k] = plan_evaluate(plan, info->dims[k], symbols);
    const Tensor *tensor = tensor_new(arena, (DType)info->dtype, info->rank, dims);
    inputs[i] = (tfm_value){tensor->data, info->dtype, info->rank, tensor->dims};
  }
}
