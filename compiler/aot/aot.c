/* In: the parts of a library. Out: objects, linked or not; code as text. See aot.h. */
#include "aot/aot.h"

#include <string.h>

#include "aot/elf_library.h"
#include "aot/elf_merge.h"
#include "aot/emit_library.h"
#include "aot/header.h"
#include "aot/wasm_module.h"
#include "base/check.h"
#include "codegen/codegen.h"
#include "jit/kernel_objects.h"
#include "kernels/kernel_module.h"

typedef VEC(Bytes) ObjectList;

/* The parts with the names that forward has for its args. */
static LibraryParts named(Arena *arena, const LibraryParts *parts) {
  const ArgsNames names = args_names(arena, &parts->plans[0].forward->program, parts->ragged_sources);
  LibraryParts whole = *parts;
  whole.names = arena_copy(arena, &names, sizeof names);
  return whole;
}

/* A library holds the kernels of several instruction sets, and equal specs have equal names, so an ending makes the
 * names differ; a module has one set. Objects with kernels for modules are a list, since nothing joins them. */
static bool add_kernels(Arena *arena, Diag *diag, const LibraryPlans *plans, const CodeCache *cache, ObjectList *list) {
  const Plan kernels = library_kernels(arena, plans);
  const BytesList parts = kernel_objects(arena, diag, &kernels, cache);
  if (!parts.items) return false;
  if (!parts.n || family_makes_modules(plans->forward->target->family)) {
    for (size_t i = 0; i < parts.n; i++) vec_push(arena, list, parts.items[i]);
    return true;
  }
  const Bytes object = elf_merge(arena, diag, parts, library_kernel_suffix(arena, plans->forward));
  vec_push(arena, list, object);
  return object.data != NULL;
}

/* The object of what is neither kernel nor of one instruction set. It runs before the CPU is known, so it is generated
 * for the baseline: it must not contain an instruction that the CPU may lack. A module has one instruction set. */
static Bytes object_for_any(Arena *arena, Diag *diag, const LibraryParts *parts, LLVMModuleRef module) {
  const TargetInfo *target = parts->plans[0].forward->target;
  const bool is_module = family_makes_modules(target->family);
  LLVMTargetMachineRef machine = target_machine(diag, is_module ? target : target_baseline(target));
  if (!machine) return LLVMDisposeModule(module), (Bytes){0};
  const Bytes bytes = object_bytes(arena, diag, module, machine);
  LLVMDisposeTargetMachine(machine);
  return bytes;
}

/* Each object is generated for its own instruction set. */
BytesList aot_objects(Arena *arena, Diag *diag, const LibraryParts *parts) {
  ObjectList list = {0};
  for (uint32_t i = 0; i < parts->n_plans; i++)
    if (!add_kernels(arena, diag, &parts->plans[i], parts->cache, &list)) return (BytesList){0};
  const LibraryParts whole = named(arena, parts);
  LLVMContextRef context = LLVMContextCreate();
  const Bytes rest = object_for_any(arena, diag, parts, emit_library(arena, context, &whole));
  LLVMContextDispose(context);
  vec_push(arena, &list, rest);
  return rest.data ? (BytesList){list.items, list.n} : (BytesList){0};
}

Bytes aot_library(Arena *arena, Diag *diag, const LibraryParts *parts, const char *compiler, const char *soname) {
  const BytesList objects = aot_objects(arena, diag, parts);
  if (!objects.items) return (Bytes){0};
  const char *prefix = model_prefix(arena, parts->plans[0].forward->program.name);
  if (!compiler) return elf_library(arena, diag, prefix, soname, objects.items, objects.n);
  return link_library(arena, diag, compiler, prefix, soname, objects);
}

Bytes aot_module(Arena *arena, Diag *diag, const LibraryParts *parts) {
  CHECK(parts->n_plans == 1, "a module of %u instruction sets", parts->n_plans);
  const BytesList objects = aot_objects(arena, diag, parts);
  return objects.items ? wasm_module(arena, diag, objects) : (Bytes){0};
}

void aot_module_texts(StrBuf *loader, StrBuf *types, const LibraryParts *parts, const ModuleFiles *files) {
  const LibraryParts whole = named(loader->arena, parts);
  write_module_loader(loader, &whole, files);
  write_module_types(types, &whole);
}

Bytes aot_object(Arena *arena, Diag *diag, const LibraryParts *parts, const char *compiler) {
  const BytesList objects = aot_objects(arena, diag, parts);
  return objects.items ? link_object(arena, diag, compiler, objects.items, objects.n) : (Bytes){0};
}

void aot_header(StrBuf *out, const LibraryParts *parts) {
  const LibraryParts whole = named(out->arena, parts);
  write_header(out, &whole);
}

// ---- code as text ----

static bool add_assembly(Diag *diag, LLVMModuleRef module, const TargetInfo *target, StrBuf *text) {
  LLVMTargetMachineRef machine = target_machine(diag, target);
  if (!machine) return false;
  LLVMMemoryBufferRef buffer = emit_object(diag, module, machine, true);
  if (buffer) {
    strbuf_add_n(text, LLVMGetBufferStart(buffer), LLVMGetBufferSize(buffer));
    LLVMDisposeMemoryBuffer(buffer);
  }
  LLVMDisposeTargetMachine(machine);
  return buffer != NULL;
}

/* IR and assembly are those of one plan, without a suffix: they are for reading. */
bool code_text(Diag *diag, const Plan *plan, bool assembly, StrBuf *text) {
  LLVMContextRef context = LLVMContextCreate();
  LLVMModuleRef module = kernels_module(context, plan);
  bool done = true;
  if (assembly) {
    done = add_assembly(diag, module, plan->target, text);
  } else {
    char *ir = LLVMPrintModuleToString(module);
    strbuf_add(text, ir);
    LLVMDisposeMessage(ir);
  }
  LLVMDisposeModule(module);
  LLVMContextDispose(context);
  return done;
}
