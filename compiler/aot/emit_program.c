#include "aot/emit_program.h"

#include <stddef.h>
#include <string.h>

#include "aot/blob.h"

typedef struct Emission {
  Arena *arena;
  LLVMModuleRef module;
  const tfm_program *program;
  Blob top; /* the tfm_program itself; its pointers are added in the order of its members */
} Emission;

// ---- arrays without pointers, and with a text at one or two places ----

static void plain(Emission *e, size_t member, const char *name, const void *items, size_t bytes) {
  Blob blob = blob_new(e->arena, e->module);
  blob_pointer(&e->top, member, blob_finish(&blob, name, items, bytes));
}

/* `count` items of `size` bytes, each with a const char * at `offset`. */
static void with_text(Emission *e, size_t member, const char *name, const void *items, size_t count, size_t size,
                      size_t offset) {
  Blob blob = blob_new(e->arena, e->module);
  for (size_t i = 0; i < count; i++) {
    const char *text;
    memcpy(&text, (const char *)items + i * size + offset, sizeof text);
    blob_text(&blob, i * size + offset, text);
  }
  blob_pointer(&e->top, member, blob_finish(&blob, name, items, count * size));
}

static void tensors(Emission *e, size_t member, const char *name, const tfm_tensor_info *items, size_t count) {
  Blob blob = blob_new(e->arena, e->module);
  for (size_t i = 0; i < count; i++) {
    blob_text(&blob, i * sizeof *items + offsetof(tfm_tensor_info, name), items[i].name);
    blob_text(&blob, i * sizeof *items + offsetof(tfm_tensor_info, shape), items[i].shape);
  }
  blob_pointer(&e->top, member, blob_finish(&blob, name, items, count * sizeof *items));
}

static void texts(Emission *e, size_t member, const char *name, const char *const *items, size_t count) {
  Blob blob = blob_new(e->arena, e->module);
  for (size_t i = 0; i < count; i++) blob_text(&blob, i * sizeof *items, items[i]);
  blob_pointer(&e->top, member, blob_finish(&blob, name, items, count * sizeof *items));
}

static void kernels(Emission *e, size_t member, const Plan *plan, const char *suffix) {
  LLVMContextRef context = LLVMGetModuleContext(e->module);
  LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(context), NULL, 0, false);
  void **nothing = ARENA_ARRAY(e->arena, void *, plan->kernels.n);
  Blob blob = blob_new(e->arena, e->module);
  for (size_t i = 0; i < plan->kernels.n; i++) {
    const char *name = arena_printf(e->arena, "%s%s", plan->kernels.items[i].name, suffix);
    LLVMValueRef function = LLVMGetNamedFunction(e->module, name);
    if (!function) function = LLVMAddFunction(e->module, name, type);
    LLVMSetVisibility(function, LLVMHiddenVisibility);
    blob_pointer(&blob, i * sizeof *nothing, function);
  }
  blob_pointer(&e->top, member, blob_finish(&blob, "kernels", nothing, plan->kernels.n * sizeof *nothing));
}

// ---- how long the arrays are whose lengths the program does not hold ----

typedef struct Lengths {
  size_t terms, conditions, parts, steps[TFM_STEP_APPEND + 1];
} Lengths;

static Lengths measure(const tfm_program *p) {
  Lengths n = {0};
  for (uint32_t i = 0; i < p->n_polynomials; i++) {
    size_t end = p->polynomials[i].first_term + p->polynomials[i].n_terms;
    if (end > n.terms) n.terms = end;
  }
  for (uint32_t i = 0; i < p->n_checks; i++) {
    size_t conditions = p->checks[i].first_condition + p->checks[i].n_conditions;
    size_t parts = p->checks[i].first_part + p->checks[i].n_parts;
    if (conditions > n.conditions) n.conditions = conditions;
    if (parts > n.parts) n.parts = parts;
  }
  for (uint32_t i = 0; i < p->n_steps; i++) {
    size_t end = p->steps[i].index + 1;
    if (end > n.steps[p->steps[i].kind]) n.steps[p->steps[i].kind] = end;
  }
  return n;
}

// ---- the program ----

#define MEMBER(field) offsetof(tfm_program, field)
#define PLAIN(field, count) plain(e, MEMBER(field), #field, p->field, (count) * sizeof *p->field)
#define WITH_TEXT(field, count, Type, text) \
  with_text(e, MEMBER(field), #field, p->field, (count), sizeof(Type), offsetof(Type, text))

static void emit_tables(Emission *e, const Plan *plan, const char *suffix) {
  const tfm_program *p = e->program;
  Lengths n = measure(p);
  texts(e, MEMBER(symbols), "symbols", p->symbols, p->n_symbols);
  PLAIN(terms, n.terms);
  PLAIN(polynomials, p->n_polynomials);
  tensors(e, MEMBER(inputs), "inputs", p->inputs, p->n_inputs);
  tensors(e, MEMBER(outputs), "outputs", p->outputs, p->n_outputs);
  WITH_TEXT(checks, p->n_checks, tfm_check, place);
  PLAIN(conditions, n.conditions);
  WITH_TEXT(parts, n.parts, tfm_message_part, text);
  WITH_TEXT(id_limits, p->n_id_limits, tfm_id_limit, place);
  PLAIN(weights, p->n_weights);
  PLAIN(buffers, p->n_buffers);
  kernels(e, MEMBER(kernels), plan, suffix);
  WITH_TEXT(steps, p->n_steps, tfm_step, name);
  PLAIN(operands, p->n_operands);
  PLAIN(needed, p->n_needed);
  PLAIN(rows, n.steps[TFM_STEP_ROW]);
  PLAIN(gemms, n.steps[TFM_STEP_GEMM]);
  PLAIN(matmuls, n.steps[TFM_STEP_MATMUL]);
  PLAIN(attentions, n.steps[TFM_STEP_ATTENTION]);
  PLAIN(tables, n.steps[TFM_STEP_TABLE]);
  WITH_TEXT(ids, n.steps[TFM_STEP_CHECK_IDS], tfm_ids_step, place);
  PLAIN(appends, n.steps[TFM_STEP_APPEND]);
  PLAIN(caches, p->n_caches);
}

LLVMValueRef emit_program(Arena *arena, LLVMModuleRef module, const Plan *plan, const char *suffix) {
  tfm_program copy = plan->program;
  copy.n_kernels = (uint32_t)plan->kernels.n;
  Emission e = {.arena = arena, .module = module, .program = &copy, .top = blob_new(arena, module)};
  blob_text(&e.top, MEMBER(name), copy.name);
  blob_text(&e.top, MEMBER(isa), copy.isa);
  emit_tables(&e, plan, suffix);
  return blob_finish(&e.top, "program", &copy, sizeof copy);
}
