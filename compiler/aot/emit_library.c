/* In: the parts of a library. Out: a module of constants and small functions. See emit_library.h. */
#include "aot/emit_library.h"

#include <stddef.h>
#include <string.h>

#include "aot/description.h"
#include "aot/emit_module.h"
#include "aot/emit_program.h"
#include "aot/library_file.h"
#include "aot/packed_tables.h"
#include "base/check.h"

// ---- the generate block ----

static uint32_t symbol_of(const Size *size) {
  int32_t symbol = size_symbol_of(size);
  return symbol < 0 ? TFM_NONE : (uint32_t)symbol;
}

/* The name is one of the graph's: the elaborator has checked the generate block. */
static uint32_t input_named(const Graph *graph, const char *name) {
  uint32_t i = 0;
  while (strcmp(graph->inputs.items[i]->attr.name, name) != 0) i++;
  return i;
}

static uint32_t output_named(const Graph *graph, const char *name) {
  uint32_t i = 0;
  while (strcmp(graph->outputs.items[i].name, name) != 0) i++;
  return i;
}

/* For every input a bit per axis that is the batch: the runtime gathers rows along these. */
static const uint8_t *find_item_axes(Arena *arena, const Graph *graph, uint32_t batch) {
  uint8_t *axes = ARENA_ARRAY(arena, uint8_t, graph->inputs.n);
  for (size_t i = 0; i < graph->inputs.n && batch != TFM_NONE; i++)
    for (uint32_t axis = 0; axis < graph->inputs.items[i]->rank; axis++)
      if (size_involves(graph->inputs.items[i]->dims[axis], batch)) axes[i] |= (uint8_t)(1u << axis);
  return axes;
}

tfm_generation *generation_of(Arena *arena, const Graph *graph) {
  if (!graph->generate_input) return NULL;
  tfm_generation *made = ARENA_NEW(arena, tfm_generation);
  made->tokens = input_named(graph, graph->generate_input);
  made->scores = output_named(graph, graph->generate_output);
  const Node *tokens = graph->inputs.items[made->tokens], *scores = graph->outputs.items[made->scores].node;
  made->batch = symbol_of(tokens->dims[0]);
  made->length = symbol_of(tokens->dims[1]);
  made->bos = TFM_NO_TOKEN;
  made->item_axes = find_item_axes(arena, graph, made->batch);
  bool has_rows = made->batch != TFM_NONE || size_equals(tokens->dims[0], 1);
  bool is_known = has_rows && made->length != TFM_NONE && size_is_const(scores->dims[2], &made->vocab);
  return is_known ? made : NULL;
}

// ---- exported functions ----

typedef struct FunctionInfo {
  const char *suffix, *runtime;
  int gets; /* LIBRARY, TRAINING: a constant before the other arguments */
  LibraryKind least;
  const char *result, *arguments;
} FunctionInfo;

enum { PLAIN, LIBRARY, TRAINING };

static const FunctionInfo functions[] = {
#define FUNCTION(suffix, runtime, kind, least, result, parameters, arguments, comment) \
  {#suffix, #runtime, kind, LIBRARY_##least, result, arguments},
#include "aot/library_functions.def"
};

const char *library_kernel_suffix(Arena *arena, const Plan *forward) {
  if (family_makes_modules(forward->target->family)) return "";
  char *suffix = arena_printf(arena, ".%s.%s", model_prefix(arena, forward->program.name), forward->target->name);
  for (char *c = suffix; *c; c++)
    if (*c == '-') *c = '_';
  return suffix;
}

/* Pointers, int32_t, and everything else 64 bits wide: the calling convention needs no more than that of an
 * argument. */
static LLVMTypeRef type_of(LLVMContextRef context, char letter) {
  if (letter == 'p') return LLVMPointerTypeInContext(context, 0);
  return letter == 'w' ? LLVMInt32TypeInContext(context) : LLVMInt64TypeInContext(context);
}

static LLVMTypeRef result_of(LLVMContextRef context, const char *result) {
  if (strcmp(result, "void") == 0) return LLVMVoidTypeInContext(context);
  return type_of(context, strcmp(result, "tfm_status") == 0 ? 'w' : strcmp(result, "int64_t") == 0 ? 'i' : 'p');
}

/* <prefix>_<suffix>: passes its arguments on to the runtime, behind the library or its training if that function takes
 * it. A tail call, so a profile shows the runtime's function alone. The runtime's function is hidden: two libraries in
 * one process each have a runtime of their own. */
static void emit_wrapper(Arena *arena, LLVMModuleRef module, const char *prefix, const FunctionInfo *info,
                         LLVMValueRef constant) {
  LLVMContextRef context = LLVMGetModuleContext(module);
  unsigned n = (unsigned)strlen(info->arguments), first = info->gets != PLAIN;
  LLVMTypeRef types[8] = {LLVMPointerTypeInContext(context, 0)};
  for (unsigned i = 0; i < n; i++) types[first + i] = type_of(context, info->arguments[i]);
  LLVMTypeRef result = result_of(context, info->result);
  LLVMTypeRef inner_type = LLVMFunctionType(result, types, first + n, false);
  LLVMTypeRef outer_type = LLVMFunctionType(result, types + first, n, false);
  LLVMValueRef inner = LLVMAddFunction(module, info->runtime, inner_type);
  LLVMSetVisibility(inner, LLVMHiddenVisibility);
  LLVMValueRef outer = LLVMAddFunction(module, arena_printf(arena, "%s_%s", prefix, info->suffix), outer_type);
  LLVMBuilderRef builder = LLVMCreateBuilderInContext(context);
  LLVMPositionBuilderAtEnd(builder, LLVMAppendBasicBlockInContext(context, outer, ""));
  LLVMValueRef arguments[8] = {constant};
  for (unsigned i = 0; i < n; i++) arguments[first + i] = LLVMGetParam(outer, i);
  LLVMValueRef call = LLVMBuildCall2(builder, inner_type, inner, arguments, first + n, "");
  LLVMSetTailCall(call, true);
  if (LLVMGetTypeKind(result) == LLVMVoidTypeKind) LLVMBuildRetVoid(builder);
  else LLVMBuildRet(builder, call);
  LLVMDisposeBuilder(builder);
}

// ---- the tfm_library ----

/* Offsets of the members of each group of the args struct, which the runtime reads without knowing the model's
 * header. */
static void emit_args(Blob *top, const ArgsNames *names) {
  static const size_t places[N_ARGS_GROUPS] = {
#define ARGS(group, per, which, name, text, number) offsetof(tfm_args_layout, group),
#include "tfm/abi/args.def"
  };
  const ArgsMembers members = names->members;
  for (ArgsGroup group = 0; group < N_ARGS_GROUPS; group++) {
    uint32_t *offsets = ARENA_ARRAY(top->arena, uint32_t, names->n[group]), n = 0;
    for (uint32_t i = 0; i < members.n; i++)
      if (members.items[i].group == group) offsets[members.items[i].index] = args_offset(i), n++;
    const size_t bytes = n ? names->n[group] * sizeof *offsets : 0;
    blob_pointer(top, offsetof(tfm_library, args) + places[group],
                 n ? blob_plain(top->arena, top->module, "args_offsets", offsets, bytes) : NULL);
  }
}

/* One pointer per instruction set, and their tables. `decodings` is NULL if the model has no incremental form. */
typedef struct Programs {
  LLVMValueRef programs, decodings, packed;
} Programs;

/* Of all programs of an instruction set. */
static DriverSet drivers_of(const LibraryPlans *plans) {
  const DecodingPlan *decoding = plans->decoding;
  DriverSet drivers = plan_drivers(plans->forward);
  if (decoding) drivers |= plan_drivers(decoding->step);
  if (decoding && decoding->encoder) drivers |= plan_drivers(decoding->encoder);
  for (uint32_t i = 0; i < N_TRAINING_PLANS; i++)
    if (plans->training[i]) drivers |= plan_drivers(plans->training[i]);
  return drivers;
}

/* Of instruction set number `i`. */
static ProgramFunctions functions_of(Arena *arena, LLVMModuleRef module, const LibraryParts *parts, uint32_t i) {
  ProgramFunctions made = {.module = module, .suffix = library_kernel_suffix(arena, parts->plans[i].forward)};
  for (uint32_t k = 0; k < parts->n_plans; k++) made.drivers |= drivers_of(&parts->plans[k]);
  return made;
}

static Programs emit_programs(Arena *arena, LLVMModuleRef module, const LibraryParts *parts) {
  void **nothing = ARENA_ARRAY(arena, void *, parts->n_plans);
  const size_t bytes = parts->n_plans * sizeof *nothing;
  tfm_packed_tables *tables = ARENA_ARRAY(arena, tfm_packed_tables, parts->n_plans);
  Blob programs = blob_new(arena, module), decodings = blob_new(arena, module), packed = blob_new(arena, module);
  for (uint32_t i = 0; i < parts->n_plans; i++) {
    const LibraryPlans *plans = &parts->plans[i];
    const ProgramFunctions of = functions_of(arena, module, parts, i);
    PackedTables packing = packed_tables_new(arena);
    blob_pointer(&programs, i * sizeof *nothing,
                 emit_program(&packing, offsetof(tfm_model_programs, forward), plans->forward, &of));
    if (plans->decoding)
      blob_pointer(&decodings, i * sizeof *nothing, emit_decoding(&packing, plans->decoding, &of));
    emit_packed_tables(&packed, i * sizeof *tables, &packing, &tables[i]);
  }
  Programs made = {.programs = blob_finish(&programs, "programs", nothing, bytes)};
  made.packed = blob_finish(&packed, "packed", tables, parts->n_plans * sizeof *tables);
  if (parts->plans[0].decoding) made.decodings = blob_finish(&decodings, "decodings", nothing, bytes);
  return made;
}

static LLVMValueRef emit_weights(Arena *arena, LLVMModuleRef module, const LibraryParts *parts) {
  if (!parts->weights) return NULL;
  return blob_weights(arena, module, "weights", parts->weights, parts->plans[0].forward->program.weights_bytes);
}

static LLVMValueRef emit_tfm_library(Arena *arena, LLVMModuleRef module, const LibraryParts *parts) {
  const tfm_program *p = &parts->plans[0].forward->program;
  tfm_library library = {.abi = TFM_LIBRARY_ABI, .n_programs = parts->n_plans};
  library.args.struct_size = args_offset(parts->names->members.n);
  library.args.number = args_number(arena, p, parts->names);
  library_layout(arena, &parts->plans[0], library.layout);
  const Programs programs = emit_programs(arena, module, parts);
  Blob top = blob_new(arena, module);
  blob_text(&top, offsetof(tfm_library, model), parts->names->prefix);
  blob_text(&top, offsetof(tfm_library, version), parts->version);
  blob_pointer(&top, offsetof(tfm_library, programs), programs.programs);
  emit_args(&top, parts->names);
  blob_pointer(&top, offsetof(tfm_library, weights), emit_weights(arena, module, parts));
  LLVMValueRef description = module_text(module, describe_library(arena, parts));
  LLVMSetUnnamedAddress(description, LLVMNoUnnamedAddr); /* else LLVM may merge it with other texts, elsewhere */
  LLVMSetSection(description, LIBRARY_SECTION);
  blob_pointer(&top, offsetof(tfm_library, description), description);
  blob_pointer(&top, offsetof(tfm_library, generation),
               parts->generation ? emit_generation(arena, module, parts->generation, p) : NULL);
  blob_pointer(&top, offsetof(tfm_library, decodings), programs.decodings);
  blob_pointer(&top, offsetof(tfm_library, packed), programs.packed);
  return blob_finish(&top, "library", &library, sizeof library);
}

// ---- training: pointers of a struct are added in the order of its members, which blob_pointer checks ----

typedef struct Training {
  Arena *arena;
  LLVMModuleRef module;
  const LibraryParts *parts;
  const tfm_training *table;
  Blob top;
  PackedTables tables;
} Training;

static LLVMValueRef plain(const Training *e, const char *name, const void *items, size_t bytes) {
  return blob_plain(e->arena, e->module, name, items, bytes);
}

/* Structs that begin with a text. */
static LLVMValueRef named(const Training *e, const char *name, const void *items, size_t n, size_t size) {
  Blob blob = blob_new(e->arena, e->module);
  for (size_t i = 0; i < n; i++) {
    const char *text;
    memcpy(&text, (const char *)items + i * size, sizeof text);
    blob_text(&blob, i * size, text);
  }
  return blob_finish(&blob, name, items, n * size);
}

/* Names of steps are for profiles, those of weights and masks for messages: nobody sees them here, and each would be a
 * text and a relocation. */
static Plan without_names(const Training *e, const Plan *plan, uint32_t n_named) {
  Plan copy = *plan;
  tfm_program *p = &copy.program;
  tfm_step *steps = arena_copy(e->arena, p->steps, p->n_steps * sizeof *steps);
  tfm_tensor_info *inputs = arena_copy(e->arena, p->inputs, p->n_inputs * sizeof *inputs);
  tfm_tensor_info *outputs = arena_copy(e->arena, p->outputs, p->n_outputs * sizeof *outputs);
  for (uint32_t i = 0; i < p->n_steps; i++) steps[i].name = NULL;
  for (uint32_t i = n_named; i < p->n_inputs; i++) inputs[i].name = inputs[i].shape = NULL;
  for (uint32_t i = 0; i < p->n_outputs; i++) outputs[i].name = outputs[i].shape = NULL;
  p->steps = steps;
  p->inputs = inputs;
  p->outputs = outputs;
  return copy;
}

/* One program for each instruction set. The trainer gives sizes and inputs by their numbers in the graph, so a program
 * must not have others. */
static LLVMValueRef programs(const Training *e, uint32_t which, const tfm_train_graph *graph) {
  const LibraryParts *parts = e->parts;
  tfm_packed_tables *made = ARENA_ARRAY(e->arena, tfm_packed_tables, parts->n_plans);
  Blob blob = blob_new(e->arena, e->module);
  for (uint32_t i = 0; i < parts->n_plans; i++) {
    const Plan *plan = parts->plans[i].training[which];
    CHECK((which >= TRAINING_PACKING || plan->program.n_symbols == e->table->n_sizes) &&
              plan->program.n_inputs == graph->n_inputs && plan->program.n_outputs == graph->n_outputs,
          "a program of training that differs from its graph");
    const ProgramFunctions of = functions_of(e->arena, e->module, parts, i);
    const bool is_whole = which == TRAINING_WHOLE || which == TRAINING_EVALUATE_WHOLE; /* inputs are no caller's */
    const uint32_t n_named = which >= TRAINING_PACKING || is_whole ? 0 : e->table->n_inputs;
    const Plan bare = without_names(e, plan, n_named);
    emit_packed_program(&blob, i * sizeof *made, &bare, &of, &made[i]);
  }
  return blob_finish(&blob, "packed_programs", made, parts->n_plans * sizeof *made);
}

/* Constants that are nothing but zeroes take no room in the file. */
static LLVMValueRef constants(const Training *e, const void *bytes, uint64_t size) {
  const char *data = bytes;
  if (!size) return NULL;
  if (data[0] || memcmp(data, data + 1, size - 1) != 0)
    return blob_weights(e->arena, e->module, "train_constants", bytes, size);
  LLVMContextRef context = LLVMGetModuleContext(e->module);
  LLVMValueRef zeroes = LLVMAddGlobal(e->module, LLVMArrayType2(LLVMInt8TypeInContext(context), size), "train_zeroes");
  LLVMSetInitializer(zeroes, LLVMConstNull(LLVMGlobalGetValueType(zeroes)));
  LLVMSetLinkage(zeroes, LLVMPrivateLinkage);
  LLVMSetAlignment(zeroes, 64);
  return zeroes;
}

/* A packed table, of a struct that lies at `base` of the tfm_training and behind. In place of its pointer is NULL. */
static void add_table(Training *e, Blob *blob, size_t base, size_t offset, PackedItems table) {
  blob_pointer(blob, offset, NULL);
  pack_table(&e->tables, base + offset, table);
}

/* The members of a graph, which lies at `offset` of the tfm_training. */
static void add_graph(Training *e, size_t offset, uint32_t which, const tfm_train_graph *graph) {
  if (!graph->n_outputs) return;
  const uint64_t bytes = e->parts->plans[0].training[which]->program.weights_bytes;
  const size_t inputs = offset + offsetof(tfm_train_graph, inputs);
  add_table(e, &e->top, 0, inputs, (PackedItems){graph->inputs, graph->n_inputs, sizeof *graph->inputs, 0});
  blob_pointer(&e->top, offset + offsetof(tfm_train_graph, programs), programs(e, which, graph));
  blob_pointer(&e->top, offset + offsetof(tfm_train_graph, weights),
               constants(e, e->parts->training->weights[which], bytes));
}

/* Results that mix items, of batches in parts. */
static void add_mixture(Training *e, size_t offset, uint32_t which, const tfm_train_mixture *m) {
  const size_t n = m->n_cuts ? e->table->n_parameters : 0;
  add_table(e, &e->top, 0, offset + offsetof(tfm_train_mixture, cuts),
            (PackedItems){m->cuts, m->n_cuts, sizeof *m->cuts, 0});
  add_table(e, &e->top, 0, offset + offsetof(tfm_train_mixture, gradients),
            (PackedItems){m->gradients, n, sizeof *m->gradients, 0});
  add_table(e, &e->top, 0, offset + offsetof(tfm_train_mixture, back_gradients),
            (PackedItems){m->back_gradients, n, sizeof *m->back_gradients, 0});
  add_graph(e, offset + offsetof(tfm_train_mixture, vectors), which + TRAINING_VECTORS, &m->vectors);
  add_graph(e, offset + offsetof(tfm_train_mixture, whole), which + TRAINING_WHOLE, &m->whole);
  add_graph(e, offset + offsetof(tfm_train_mixture, back), which + TRAINING_BACK, &m->back);
}

static void add_objective(Training *e, size_t offset, uint32_t which, const tfm_objective *objective) {
  blob_pointer(&e->top, offset + offsetof(tfm_objective, results),
               named(e, "train_results", objective->results, objective->n_results, sizeof *objective->results));
  blob_pointer(&e->top, offset + offsetof(tfm_objective, parts),
               plain(e, "train_parts", objective->parts, objective->n_parts * sizeof *objective->parts));
  blob_pointer(&e->top, offset + offsetof(tfm_objective, steps),
               plain(e, "train_steps", objective->steps, objective->n_steps * sizeof *objective->steps));
  blob_pointer(&e->top, offset + offsetof(tfm_objective, tops_once),
               plain(e, "train_once", objective->tops_once, objective->tops_once ? objective->n_tops : 0));
  blob_pointer(
      &e->top, offset + offsetof(tfm_objective, bottoms_once),
      plain(e, "train_once", objective->bottoms_once, objective->bottoms_once ? objective->bottoms.n_outputs : 0));
  add_graph(e, offset + offsetof(tfm_objective, tops), which, &objective->tops);
  add_graph(e, offset + offsetof(tfm_objective, bottoms), which + TRAINING_COUNTS, &objective->bottoms);
  add_mixture(e, offset + offsetof(tfm_objective, mixture), which, &objective->mixture);
}

/* How the model's own weights are packed. */
static LLVMValueRef emit_packing(Training *e, const tfm_packing *p) {
  Blob top = blob_new(e->arena, e->module);
  uint64_t n_bytes = 0, n_places = 0, n_pieces = 0;
  for (uint32_t i = 0; i < p->n_constants; i++) n_bytes += p->constants[i].bytes;
  for (uint32_t i = 0; i < p->n_tensors; i++) n_pieces += p->tensors[i].n_pieces;
  for (uint32_t i = 0; i < TFM_PACKING_GRAPHS; i++) n_places += e->table->packing_graphs[i].n_outputs;
#define TABLE(member, n)                                                       \
  add_table(e, &top, sizeof(tfm_training), offsetof(tfm_packing, member), \
            (PackedItems){p->member, (n), sizeof *p->member, 0})
  TABLE(constants, p->n_constants);
  blob_pointer(&top, offsetof(tfm_packing, bytes_of_constants),
               plain(e, "packing_bytes_of_constants", p->bytes_of_constants, n_bytes));
  TABLE(tensors, p->n_tensors);
  TABLE(pieces, n_pieces);
  TABLE(places, n_places);
#undef TABLE
  blob_text(&top, offsetof(tfm_packing, refused), p->refused);
  return blob_finish(&top, "packing", p, sizeof *p);
}

/* What only some trainers need: the linker leaves out what no table points to. */
static void point_to_functions(Blob *top, LLVMModuleRef module, const tfm_training *t) {
  blob_pointer(top, offsetof(tfm_training, mixer),
               t->mixer ? runtime_function(module, "tfm_mixer_of_items") : NULL);
  blob_pointer(top, offsetof(tfm_training, formulas),
               t->formulas ? runtime_function(module, "tfm_walk_formulas") : NULL);
  blob_pointer(top, offsetof(tfm_training, optimize),
               runtime_function(module, t->optimizer == TFM_OPTIMIZER_SGD ? "tfm_optimize_sgd" : "tfm_optimize_adam"));
  blob_pointer(top, offsetof(tfm_training, average),
               t->average ? runtime_function(module, "tfm_average_weights") : NULL);
}

static LLVMValueRef emit_training(Arena *arena, LLVMModuleRef module, const LibraryParts *parts, LLVMValueRef library) {
  tfm_training made = *parts->training->table;
  made.args_number = objective_number(arena, parts);
  const tfm_training *t = &made;
  Training e = {.arena = arena,
                .module = module,
                .parts = parts,
                .table = t,
                .top = blob_new(arena, module),
                .tables = packed_tables_new(arena)};
  blob_pointer(&e.top, offsetof(tfm_training, library), library);
  add_table(&e, &e.top, 0, offsetof(tfm_training, parameters),
            (PackedItems){t->parameters, t->n_parameters, sizeof *t->parameters,
                          packed_text(offsetof(tfm_parameter, path))});
  add_table(&e, &e.top, 0, offsetof(tfm_training, dropouts),
            (PackedItems){t->dropouts, t->n_dropouts, sizeof *t->dropouts, 0});
  blob_pointer(&e.top, offsetof(tfm_training, sizes),
               plain(&e, "objective_sizes", t->sizes, t->n_sizes * sizeof *t->sizes));
  blob_pointer(&e.top, offsetof(tfm_training, inputs),
               plain(&e, "objective_inputs", t->inputs, t->n_inputs * sizeof *t->inputs));
  point_to_functions(&e.top, module, t);
  blob_text(&e.top, offsetof(tfm_training, whole), t->whole);
  blob_text(&e.top, offsetof(tfm_training, whole_why), t->whole_why);
  blob_text(&e.top, offsetof(tfm_training, adapter), t->adapter);
  blob_text(&e.top, offsetof(tfm_training, no_adapter), t->no_adapter);
  add_objective(&e, offsetof(tfm_training, step), TRAINING_STEP, &t->step);
  add_objective(&e, offsetof(tfm_training, evaluation), TRAINING_EVALUATE, &t->evaluation);
  for (uint32_t i = 0; i < TFM_PACKING_GRAPHS; i++)
    add_graph(&e, offsetof(tfm_training, packing_graphs) + i * sizeof *t->packing_graphs, TRAINING_PACKING + i,
              &t->packing_graphs[i]);
  blob_pointer(&e.top, offsetof(tfm_training, packing), emit_packing(&e, t->packing));
  emit_packed_tables(&e.top, offsetof(tfm_training, tables), &e.tables, &made.tables);
  return blob_finish(&e.top, "training", t, sizeof *t);
}

// ---- the module ----

static void emit_functions_of_module(Arena *arena, LLVMModuleRef module, const LibraryParts *parts) {
  const char *prefix = parts->names->prefix;
  for (const ModuleFunction *own = module_functions; own->suffix; own++) {
    const FunctionInfo info = {own->suffix, own->runtime, PLAIN, LIBRARY_ANY, own->result, own->arguments};
    emit_wrapper(arena, module, prefix, &info, NULL);
  }
  emit_fused(module, arena_printf(arena, "%s_fused", prefix), parts->plans[0].forward->target);
}

LLVMModuleRef emit_library(Arena *arena, LLVMContextRef context, const LibraryParts *parts) {
  LLVMModuleRef module = LLVMModuleCreateWithNameInContext("library", context);
  const bool is_module = family_makes_modules(parts->plans[0].forward->target->family);
  if (is_module) module_set_pointers(module);
  LLVMValueRef library = emit_tfm_library(arena, module, parts);
  if (parts->is_command) {
    emit_command(module, library, parts->weights ? NULL : parts->weights_beside);
    return module;
  }
  LLVMValueRef training = parts->training ? emit_training(arena, module, parts, library) : NULL;
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
    if (library_has(parts, functions[i].least) && (!is_module || module_has(functions[i].suffix, parts->weights)))
      emit_wrapper(arena, module, parts->names->prefix, &functions[i],
                   functions[i].gets == TRAINING ? training : library);
  if (is_module) emit_functions_of_module(arena, module, parts);
  return module;
}
