#include "driver/engine_compiled.h"

#include <string.h>

static DiagCode code_of(const tfm_error *error) {
  static const DiagCode of_status[] = {[TFM_E_INPUT] = DIAG_RUN_CHECK,
                                       [TFM_E_USAGE] = DIAG_RUN_CHECK,
                                       [TFM_E_ENV] = DIAG_TOOL,
                                       [TFM_E_NOMEM] = DIAG_MEMORY};
  static const DiagCode of_reason[] = {[TFM_REASON_TYPE] = DIAG_INPUT_TYPE,
                                       [TFM_REASON_SHAPE] = DIAG_INPUT_SHAPE,
                                       [TFM_REASON_VALUE] = DIAG_INPUT_VALUE,
                                       [TFM_REASON_CHECK] = DIAG_RUN_CHECK,
                                       [TFM_REASON_ARITHMETIC] = DIAG_RUN_ARITHMETIC};
  if (error->reason != TFM_REASON_OTHER) return of_reason[error->reason];
  return error->status <= TFM_E_NOMEM ? of_status[error->status] : DIAG_TOOL;
}

void compiled_report(Session *session, const tfm_error *error) {
  diag_error_at(&session->diag, error->place ? error->place : "run", code_of(error), "%s", error->message);
}

tfm_context_options compiled_options(Session *session) {
  return (tfm_context_options){.struct_size = sizeof(tfm_context_options),
                               .threads = (int32_t)option_count(&session->options, OPTION_THREADS, 0)};
}

/* The inputs in the order of the program; one that was left out has no data. */
static tfm_value *order_inputs(Arena *arena, const tfm_program *program, const EvalInputs *inputs) {
  tfm_value *values = ARENA_ARRAY(arena, tfm_value, program->n_inputs);
  for (uint32_t i = 0; i < program->n_inputs; i++)
    for (uint32_t k = 0; k < inputs->n; k++)
      if (strcmp(program->inputs[i].name, inputs->names[k]) == 0)
        values[i] = (tfm_value){inputs->tensors[k].data, (int32_t)inputs->tensors[k].dtype,
                                (int32_t)inputs->tensors[k].rank, inputs->tensors[k].dims};
  return values;
}

static bool fits(const Tensor *tensor, DType dtype, int32_t rank, const int64_t *dims) {
  return tensor->data && tensor->dtype == dtype && tensor->rank == (uint32_t)rank &&
         memcmp(tensor->dims, dims, (size_t)rank * sizeof *dims) == 0;
}

static void make_outputs(const Engine *base, Tensor *outputs, tfm_value *values) {
  const tfm_program *program = base->program;
  for (uint32_t i = 0; i < program->n_outputs; i++) {
    int32_t rank;
    const int64_t *dims = tfm_context_output_dims(base->context, i, &rank);
    DType dtype = (DType)program->outputs[i].dtype;
    if (!base->reuses_outputs || !fits(&outputs[i], dtype, rank, dims))
      outputs[i] = *tensor_new(base->session->arena, dtype, (uint32_t)rank, dims);
    values[i] = (tfm_value){outputs[i].data, (int32_t)outputs[i].dtype, rank, outputs[i].dims};
  }
}

bool compiled_run(Engine *base, const EvalInputs *inputs, Tensor *outputs) {
  Arena *arena = base->session->arena;
  const tfm_program *program = base->program;
  tfm_error error;
  const tfm_value *in = order_inputs(arena, program, inputs);
  tfm_value *out = ARENA_ARRAY(arena, tfm_value, program->n_outputs);
  tfm_status status = tfm_context_bind(base->context, in, &error);
  if (status == TFM_OK) {
    make_outputs(base, outputs, out);
    status = tfm_context_run(base->context, in, out, &error);
  }
  if (status != TFM_OK) compiled_report(base->session, &error);
  return status == TFM_OK;
}
