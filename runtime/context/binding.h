/* What binding a context consists of, and what lockstep runs need of it: sizes (sizes.c), inputs (context_inputs.c),
 * inputs that are left out (defaults.c), the checks of the model (checks.c), the workspace (workspace.c), operands and
 * threads (operands.c). context.c calls them in this order. Sets of sizes are words of 64 bits, in which sizes from
 * number 63 on share a bit: they are then evaluated a little too often. */
#ifndef TFM_RUNTIME_BINDING_H
#define TFM_RUNTIME_BINDING_H

#include "context/context_state.h"

#define ALL_SYMBOLS UINT64_MAX
static inline uint64_t symbol_bit(uint32_t symbol) { return (uint64_t)1 << least_of(symbol, 63); }

// ---- sizes.c ----

/* Which of these sizes differ from those of the context. */
uint64_t sizes_changed(const tfm_context *context, const int64_t *symbols);
/* Finds out on which sizes each polynomial depends: once, when the context is made. */
void sizes_find_symbols(tfm_context *context);
/* Values of the polynomials that depend on changed sizes, and the scalars made of them. False on overflow. */
bool sizes_evaluate(tfm_context *context, uint64_t changed);

// ---- context_inputs.c ----

/* inputs_read checks types, ranks and pointers; inputs_bind_symbols reads the sizes from the dims. */
tfm_status inputs_read(const tfm_context *context, const tfm_value *inputs, tfm_error *error);
bool inputs_same_as_bound(const tfm_context *context, const tfm_value *inputs);
tfm_status inputs_bind_symbols(tfm_context *context, const tfm_value *inputs, tfm_error *error);
/* The dims of all inputs as the values of the sizes say; refused if one is negative or an input is too large. */
tfm_status inputs_set_dims(tfm_context *context, tfm_error *error);
/* Every dimension must be what the polynomial says; an input that is left out gets these dims. */
tfm_status inputs_check_dims(tfm_context *context, const tfm_value *inputs, tfm_error *error);

// ---- defaults.c ----

/* Whether an input has a default and no data. One without elements needs none, and is given: its shape is checked. */
bool input_is_left_out(const tfm_program *program, uint32_t input, const tfm_value *values);
/* Bytes of the workspace for the inputs that may be left out; -1: too many to count. */
int64_t inputs_default_bytes(const tfm_context *context);
/* Gives those that are left out in this run an address there, filled with the default. */
void inputs_place_defaults(tfm_context *context);

// ---- checks.c ----

/* The checks of the model for the values of the sizes; the first that fails gives its message. */
tfm_status checks_hold(tfm_context *context, tfm_error *error);

/* Ids that are inputs, before anything is computed. */
tfm_status ids_check_inputs(const tfm_context *context, const tfm_value *inputs, tfm_error *error);
/* Whether n i32, of any alignment, are all in [least, limit). */
bool ids_within(const char *ids, int64_t n, int32_t least, int64_t limit);
/* "[2,0,5]" for element number `element` of a row-major tensor; nothing for a scalar. */
void ids_print_coordinates(char *text, size_t size, const int64_t *dims, int32_t rank, int64_t element);

// ---- workspace.c ----

/* Places the buffers of so many runs and makes room for them and the scratch of all threads. */
tfm_status memory_plan(tfm_context *context, int64_t scratch_bytes, int64_t runs, tfm_error *error);
void memory_release(tfm_context *context);
/* Bytes of a buffer for the sizes that are set; -1: they are out of range. */
int64_t memory_buffer_bytes(const tfm_context *context, uint32_t buffer);
/* Bytes of workspace, or -1; makes no room. */
int64_t memory_measure(tfm_context *context, int64_t scratch_bytes, int64_t runs);

// ---- operands.c ----

/* Addresses and strides of the operands that depend on sizes that changed (operands_stale); threads of all steps. */
void resolve_prepare(tfm_context *context); /* once, when the context is made: results of steps, sizes of operands */
void resolve_operands(tfm_context *context);
void resolve_threads(tfm_context *context);
/* Whether a step with so much work (StepState.work) is worth all threads; how many threads a run is worth that has so
 * much work in such steps. */
bool resolve_is_parallel(const tfm_context *context, int64_t work);
int32_t resolve_active(const tfm_context *context, int64_t work);

#endif
