/* In: programs and decodings with pointers into this process. Out: constants of a module. See emit_program.h. */
#include "aot/emit_program.h"

#include <llvm-c/Target.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "aot/packed_tables.h"
#include "base/check.h"
#include "kernels/kernel_module.h"
#include "tfm/abi/drivers.h"

static LLVMContextRef context_of(LLVMModuleRef module) { return LLVMGetModuleContext(module); }

LLVMValueRef module_null(LLVMModuleRef module) {
  return LLVMConstNull(LLVMPointerTypeInContext(context_of(module), 0));
}

/* Private: no symbol of the library names its tables. */
static LLVMValueRef add_constant(LLVMModuleRef module, const char *name, LLVMValueRef value, unsigned alignment) {
  LLVMValueRef global = LLVMAddGlobal(module, LLVMTypeOf(value), name);
  LLVMSetInitializer(global, value);
  LLVMSetGlobalConstant(global, true);
  LLVMSetLinkage(global, LLVMPrivateLinkage);
  LLVMSetAlignment(global, alignment);
  return global;
}

/* Equal texts may share memory (unnamed_addr), since nothing compares their addresses. */
LLVMValueRef module_text(LLVMModuleRef module, const char *text) {
  LLVMValueRef value = LLVMConstStringInContext(context_of(module), text, (unsigned)strlen(text), false);
  LLVMValueRef global = add_constant(module, "text", value, 1);
  LLVMSetUnnamedAddress(global, LLVMGlobalUnnamedAddr);
  return global;
}

Blob blob_new(Arena *arena, LLVMModuleRef module) { return (Blob){.arena = arena, .module = module}; }

/* Pointers come in the order of their offsets, because the constant is put together from front to back. */
void blob_pointer(Blob *blob, size_t offset, LLVMValueRef value) {
  CHECK(!blob->pointers.n || blob->pointers.items[blob->pointers.n - 1].offset < offset,
        "pointers of a blob out of order");
  vec_push(blob->arena, &blob->pointers, (BlobPointer){offset, value ? value : module_null(blob->module)});
}

void blob_text(Blob *blob, size_t offset, const char *text) {
  blob_pointer(blob, offset, text ? module_text(blob->module, text) : NULL);
}

/* What is behind a pointer in its place of 8 bytes: nothing, or, where pointers are narrower, the zeroes of a slot
 * (tfm/abi/slot.h); a blob of nothing but pointers is one of the machine's. */
static LLVMValueRef rest_of_slot(const Blob *blob, size_t size) {
  const unsigned bytes = LLVMPointerSize(LLVMGetModuleDataLayout(blob->module));
  const bool are_slots = blob->pointers.n * sizeof(void *) != size;
  if (bytes == sizeof(void *) || !are_slots) return NULL;
  return LLVMConstNull(LLVMArrayType2(LLVMInt8TypeInContext(context_of(blob->module)), sizeof(void *) - bytes));
}

/* A packed struct of byte strings and pointers: LLVM adds no padding of its own, so every byte lies where C put it. It
 * is aligned as its members need it, and no more: a library has dozens of these. */
LLVMValueRef blob_finish(Blob *blob, const char *name, const void *bytes, size_t size) {
  if (!size) return module_null(blob->module);
  LLVMContextRef context = context_of(blob->module);
  LLVMValueRef rest = rest_of_slot(blob, size);
  VEC(LLVMValueRef) parts = {0};
  size_t at = 0;
  for (size_t i = 0; i <= blob->pointers.n; i++) {
    size_t end = i < blob->pointers.n ? blob->pointers.items[i].offset : size;
    if (end > at)
      vec_push(blob->arena, &parts,
               LLVMConstStringInContext(context, (const char *)bytes + at, (unsigned)(end - at), true));
    if (i < blob->pointers.n) vec_push(blob->arena, &parts, blob->pointers.items[i].value);
    if (i < blob->pointers.n && rest) vec_push(blob->arena, &parts, rest);
    at = end + sizeof(void *);
  }
  LLVMValueRef value = LLVMConstStructInContext(context, parts.items, (unsigned)parts.n, true);
  return add_constant(blob->module, name, value, sizeof(uint64_t));
}

LLVMValueRef blob_plain(Arena *arena, LLVMModuleRef module, const char *name, const void *bytes, size_t size) {
  Blob blob = blob_new(arena, module);
  return blob_finish(&blob, name, bytes, size);
}

LLVMValueRef blob_weights(Arena *arena, LLVMModuleRef module, const char *name, const void *bytes, size_t size) {
  LLVMValueRef made = blob_plain(arena, module, name, bytes, size);
  if (size) LLVMSetAlignment(made, 64);
  return made;
}

// ---- arrays of a program, which are packed, and its kernels ----

typedef struct Emission {
  Arena *arena;
  const ProgramFunctions *of;
  tfm_program *program; /* a copy, with pointers into this process */
  Blob top; /* the tfm_program itself; its pointers are added in the order of its members */
  PackedTables *packed;
  size_t base; /* of the tfm_program in the struct that tables are unpacked for */
} Emission;

static void table(Emission *e, size_t member, PackedItems items) {
  pack_table(e->packed, e->base + member, items);
  blob_pointer(&e->top, member, NULL);
}

static size_t pointer_bytes(const Emission *e) { return LLVMPointerSize(LLVMGetModuleDataLayout(e->of->module)); }

static void symbols(Emission *e, size_t member) {
  pack_texts(e->packed, e->base + member, e->program->symbols, e->program->n_symbols, pointer_bytes(e));
  blob_pointer(&e->top, member, NULL);
}

static void functions(Emission *e, size_t member, const char *const *names, size_t n) {
  pack_functions(e->packed, e->base + member, names, n, pointer_bytes(e));
  blob_pointer(&e->top, member, NULL);
}

/* Kernels are declared here with their types, though only their addresses are taken: some linkers compare types. */
static void kernels(Emission *e, size_t member, const Plan *plan) {
  LLVMModuleRef module = e->of->module;
  const char **names = ARENA_ARRAY(e->arena, const char *, plan->kernels.n);
  for (size_t i = 0; i < plan->kernels.n; i++) {
    const PlannedKernel *kernel = &plan->kernels.items[i];
    names[i] = arena_printf(e->arena, "%s%s", kernel->name, e->of->suffix);
    if (LLVMGetNamedFunction(module, names[i])) continue;
    LLVMTypeRef type = kernel_function_type(context_of(module), kernel->spec.family);
    LLVMSetVisibility(LLVMAddFunction(module, names[i], type), LLVMHiddenVisibility);
  }
  functions(e, member, names, plan->kernels.n);
}

// ---- lengths that the program does not hold, found from the largest index into each array ----

typedef struct Lengths {
  size_t terms, conditions, parts;
} Lengths;

/* Some arrays have no count in the program, because the runtime reaches them only by indexes; the largest index says
 * how long they are. */
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
  for (uint32_t i = 0; i < p->n_id_limits; i++) {
    const size_t parts = p->id_limits[i].first_part + p->id_limits[i].n_parts;
    if (parts > n.parts) n.parts = parts;
  }
  return n;
}

// ---- the program ----

#define MEMBER(field) offsetof(tfm_program, field)
#define TABLE(field, count, texts) table(e, MEMBER(field), (PackedItems){p->field, (count), sizeof *p->field, (texts)})
#define PLAIN(field, count) TABLE(field, count, 0)
#define WITH_TEXT(field, count, Type, text) TABLE(field, count, packed_text(offsetof(Type, text)))
#define TENSORS(field, count) \
  TABLE(field, count, packed_text(offsetof(tfm_tensor_info, name)) | packed_text(offsetof(tfm_tensor_info, shape)))

/* The steps of each kind. */
static void steps(Emission *e, const Plan *plan) {
  const tfm_program *p = e->program;
#define READ(member, axes)
#define WRITE(member, axes)
#define WRITE_IF(flag, member, axes)
#define CACHED(cache, member, axes)
#define READ_LIST(from)
#define WRITE_LIST()
#define MASK(axes)
#define TEXT(member) | packed_text(offsetof(Step, member))
#define STEP(KIND, name, array, fields, operands)                                                     \
  {                                                                                                   \
    typedef tfm_##name##_step Step;                                                                   \
    const PackedItems of_kind = {p->array, plan->n_steps[TFM_STEP_##KIND], sizeof(Step), 0 operands}; \
    table(e, MEMBER(array), of_kind);                                                                 \
  }
#include "tfm/abi/steps.def"
}

// ---- the drivers ----

LLVMValueRef runtime_function(LLVMModuleRef module, const char *name) {
  LLVMValueRef known = LLVMGetNamedFunction(module, name);
  if (known) return known;
  LLVMTypeRef pointer = LLVMPointerTypeInContext(LLVMGetModuleContext(module), 0);
  LLVMValueRef function = LLVMAddFunction(module, name, LLVMFunctionType(pointer, NULL, 0, false));
  LLVMSetVisibility(function, LLVMHiddenVisibility);
  return function;
}

/* A tfm_drivers, which is nothing but pointers. */
static void drivers(Emission *e, size_t member) {
  enum { N_FUNCTIONS = sizeof(tfm_drivers) / sizeof(void *) };
  const char *names[N_FUNCTIONS] = {0};
#define PLACE_OF(function, number, place) \
  if (e->of->drivers >> TFM_DRIVER_##number & 1) names[offsetof(tfm_drivers, place) / sizeof(void *)] = #function;
#define DRIVER(NAME, function) PLACE_OF(function, NAME, of_step[TFM_DRIVER_##NAME].run)
#define SCRATCH_DRIVER(NAME, function, of_scratch) \
  DRIVER(NAME, function)                           \
  PLACE_OF(of_scratch, NAME, of_step[TFM_DRIVER_##NAME].scratch)
#define PART(NAME, Type, member, function) PLACE_OF(function, NAME, member)
#include "tfm/abi/drivers.def"
#undef PLACE_OF
  functions(e, member, names, N_FUNCTIONS);
}

// ---- all of it ----

/* In the order of the members of tfm_program, which blob_pointer checks. */
static void emit_tables(Emission *e, const Plan *plan) {
  const tfm_program *p = e->program;
  Lengths n = measure(p);
  symbols(e, MEMBER(symbols));
  PLAIN(terms, n.terms);
  PLAIN(polynomials, p->n_polynomials);
  PLAIN(floors, p->n_floors);
  TENSORS(inputs, p->n_inputs);
  TENSORS(outputs, p->n_outputs);
  WITH_TEXT(checks, p->n_checks, tfm_check, place);
  PLAIN(conditions, n.conditions);
  WITH_TEXT(parts, n.parts, tfm_message_part, text);
  WITH_TEXT(id_limits, p->n_id_limits, tfm_id_limit, place);
  WITH_TEXT(fault_places, p->n_fault_places, tfm_fault_place, place);
  PLAIN(weights, p->n_weights);
  PLAIN(buffers, p->n_buffers);
  kernels(e, MEMBER(kernels), plan);
  WITH_TEXT(steps, p->n_steps, tfm_step, name);
  PLAIN(operands, p->n_operands);
  PLAIN(live, p->n_live);
  PLAIN(row_chains, p->n_row_chains);
  steps(e, plan);
  PLAIN(caches, p->n_caches);
  drivers(e, MEMBER(drivers));
}

static Emission emission_new(PackedTables *packed, const Plan *plan, const ProgramFunctions *of) {
  tfm_program *copy = arena_copy(packed->arena, &plan->program, sizeof plan->program);
  copy->n_kernels = (uint32_t)plan->kernels.n;
  return (Emission){.arena = packed->arena,
                    .of = of,
                    .program = copy,
                    .top = blob_new(packed->arena, of->module),
                    .packed = packed};
}

LLVMValueRef emit_program(PackedTables *packed, size_t base, const Plan *plan, const ProgramFunctions *of) {
  Emission e = emission_new(packed, plan, of);
  e.base = base;
  blob_text(&e.top, MEMBER(name), e.program->name);
  blob_text(&e.top, MEMBER(isa), e.program->isa);
  emit_tables(&e, plan);
  return blob_finish(&e.top, "program", e.program, sizeof *e.program);
}

/* How far functions are from this constant: no relocations of a loader. A module has no such distances. */
static LLVMValueRef places_of_functions(const Blob *blob, const PackedTables *packed) {
  LLVMModuleRef module = blob->module;
  LLVMContextRef context = context_of(module);
  const size_t n = packed->functions.n;
  const bool are_pointers = LLVMPointerSize(LLVMGetModuleDataLayout(module)) == sizeof(int32_t);
  LLVMTypeRef word = LLVMInt32TypeInContext(context), number = LLVMInt64TypeInContext(context);
  LLVMTypeRef type = are_pointers ? LLVMPointerTypeInContext(context, 0) : word;
  LLVMValueRef *places = ARENA_ARRAY(blob->arena, LLVMValueRef, n);
  LLVMValueRef made = add_constant(module, "functions", LLVMConstNull(LLVMArrayType2(type, n)), sizeof(int32_t));
  for (size_t i = 0; i < n; i++) {
    places[i] = runtime_function(module, packed->functions.items[i]);
    if (are_pointers) continue;
    LLVMValueRef from = LLVMConstPtrToInt(made, number);
    places[i] = LLVMConstTrunc(LLVMConstSub(LLVMConstPtrToInt(places[i], number), from), word);
  }
  LLVMSetInitializer(made, LLVMConstArray2(type, places, n));
  return made;
}

void emit_packed_tables(Blob *blob, size_t offset, PackedTables *packed, tfm_packed_tables *made) {
  const PackedBytes bytes = pack_tables(packed, made);
  blob_pointer(blob, offset + offsetof(tfm_packed_tables, packed),
               blob_plain(blob->arena, blob->module, "packed_tables", bytes.items, bytes.n));
  blob_pointer(blob, offset + offsetof(tfm_packed_tables, functions),
               packed->functions.n ? places_of_functions(blob, packed) : NULL);
}

void emit_packed_program(Blob *blob, size_t offset, const Plan *plan, const ProgramFunctions *of,
                         tfm_packed_tables *made) {
  PackedTables tables = packed_tables_new(blob->arena);
  Emission e = emission_new(&tables, plan, of);
  emit_tables(&e, plan);
  tfm_program *program = e.program;
  for (size_t i = 0; i < e.top.pointers.n; i++)
    memset((char *)program + e.top.pointers.items[i].offset, 0, sizeof(void *));
  pack_table(&tables, TFM_PACKED_ITSELF,
             (PackedItems){program, 1, sizeof *program, packed_text(MEMBER(name)) | packed_text(MEMBER(isa))});
  emit_packed_tables(blob, offset, &tables, made);
}

// ---- decoding and generation ----

#define PLACE(member) offsetof(tfm_model_programs, member)

/* Pointers in the order of the members of tfm_decoding. */
LLVMValueRef emit_decoding(PackedTables *packed, const DecodingPlan *plan, const ProgramFunctions *of) {
  const tfm_decoding *d = &plan->decoding;
  const tfm_program *step = &plan->step->program;
  Blob top = blob_new(packed->arena, of->module);
  blob_pointer(&top, offsetof(tfm_decoding, encoder),
               plan->encoder ? emit_program(packed, PLACE(encoder), plan->encoder, of) : NULL);
  blob_pointer(&top, offsetof(tfm_decoding, step), emit_program(packed, PLACE(step), plan->step, of));
#define TABLE_OF_DECODING(member, n)                                                               \
  pack_table(packed, PLACE(decoding.member), (PackedItems){d->member, (n), sizeof *d->member, 0}); \
  blob_pointer(&top, offsetof(tfm_decoding, member), NULL);
  TABLE_OF_DECODING(inputs, step->n_inputs)
  TABLE_OF_DECODING(sizes, step->n_symbols)
  TABLE_OF_DECODING(cache_encoded, step->n_caches)
#undef TABLE_OF_DECODING
  const size_t n_ragged = d->ragged ? plan->encoder->program.n_symbols : 0;
  blob_pointer(&top, offsetof(tfm_decoding, ragged),
               n_ragged ? blob_plain(packed->arena, of->module, "ragged_sizes", d->ragged, n_ragged) : NULL);
  return blob_finish(&top, "decoding", d, sizeof *d);
}

static LLVMValueRef token_list(Arena *arena, LLVMModuleRef module, const tfm_token_list *list) {
  return blob_plain(arena, module, "tokens", list->tokens, list->n * sizeof *list->tokens);
}

LLVMValueRef emit_generation(Arena *arena, LLVMModuleRef module, const tfm_generation *generation,
                             const tfm_program *forward) {
  Blob top = blob_new(arena, module);
  blob_pointer(&top, offsetof(tfm_generation, item_axes),
               blob_plain(arena, module, "item_axes", generation->item_axes, forward->n_inputs));
#define POINTER_OF_tokens(member)                                          \
  blob_pointer(&top, offsetof(tfm_generation, defaults.member.tokens), \
               token_list(arena, module, &generation->defaults.member));
#define POINTER_OF_biases(member) /* no block has any */
#define POINTER_OF_count(member)
#define POINTER_OF_limit(member)
#define POINTER_OF_real(member)
#define POINTER_OF_flag(member)
#define POINTER_OF_token(member)
#define POINTER_OF_early(member)
#define POINTER_OF_seed(member)
#define POINTER_OF_start(member)
#define GENERATE_OPTION(name, member, kind, ...) POINTER_OF_##kind(member)
#include "tfm/abi/generate_options.def"
  return blob_finish(&top, "generation", generation, sizeof *generation);
}
