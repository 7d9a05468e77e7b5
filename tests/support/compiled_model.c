/* Programs that tests compile and run; see compiled_model.h. Everything goes through compile/, as it does for the
 * command line and for libtfm. */
#include "compiled_model.h"
#include "workspace.h"

#include <criterion/criterion.h>

#include "first_message.h"

static void good(const Diag *diag, bool condition) { cr_assert(condition, "%s", first_message(diag)); }

/* One that whoever runs the tests names, never that of the user. */
static const CodeCache *cache_of_tests(Arena *arena) {
  return getenv("TFM_CACHE_DIR") ? cache_of_user(arena) : NULL;
}

/* The request names what the test varies and nothing else, so the rest is as a command has it. */
Compiled compiled_forward(Arena *arena, Diag *diag, Graph *graph, const PassOptions *passes, const TargetInfo *target,
                          WeightLookup find, void *context) {
  Compiled made;
  const CompileRequest request = {.arena = arena,
                                  .diag = diag,
                                  .target = target,
                                  .cache = cache_of_tests(arena),
                                  .passes = *passes,
                                  .weights = {.whole = find, .context = context}};
  good(diag, compile_forward(&request, graph, NULL, &made));
  return made;
}

/* A model without an incremental form is a result that tests ask for, so it is no failure here. */
bool compiled_decoding(Compiled *made, Arena *arena, Diag *diag, Graph *graph, const TargetInfo *target,
                       WeightLookup find, void *context) {
  const CompileRequest request = {.arena = arena,
                                  .diag = diag,
                                  .target = target,
                                  .cache = cache_of_tests(arena),
                                  .passes = {.level = 2},
                                  .weights = {.whole = find, .context = context}};
  Derivation *derived = compile_derive(&request, graph);
  *made = (Compiled){0};
  if (!derived->parts.step) return false;
  good(diag, compile_decoder(&request, derived, made));
  return true;
}

int64_t value_elements(const tfm_value *value) {
  int64_t n = 1;
  for (int32_t axis = 0; axis < value->rank; axis++) n *= value->dims[axis];
  return n;
}

/* The shapes come from the plan's own polynomials, evaluated at `symbols`. */
void zero_inputs(Arena *arena, const Plan *plan, const int64_t *symbols, tfm_value *inputs) {
  for (uint32_t i = 0; i < plan->program.n_inputs; i++) {
    const tfm_tensor_info *info = &plan->program.inputs[i];
    int64_t dims[TFM_MAX_RANK];
    for (uint32_t k = 0; k < info->rank; k++) dims[k] = plan_evaluate(plan, info->dims[k], symbols);
    const Tensor *tensor = tensor_new(arena, (DType)info->dtype, info->rank, dims);
    inputs[i] = (tfm_value){tensor->data, info->dtype, info->rank, tensor->dims};
  }
}
