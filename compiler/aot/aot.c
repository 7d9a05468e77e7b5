/* In: the parts of a library. Out: objects, linked or not; code as text. See aot.h. */
#include "aot/aot.h"

#include <string.h>

#include "aot/elf_library.h"
#include "aot/emit_library.h"
#include "aot/header.h"
#include "aot/wasm_module.h"
#include "base/check.h"
#include "codegen/codegen.h"
#include "kernels/kernel_module.h"

/* The parts with the names that forward has for its args. */
static LibraryParts named(Arena *arena, const LibraryParts *parts) {
  const ArgsNames names = args_names(arena, &parts->plans[0].forward->program, parts->ragged_sources);
  LibraryParts whole = *parts;
  whole.names = arena_copy(arena, &names, sizeof names);
  return whole;
}

/* Returns the object code of a module, which this consumes. NULL data after an error. The bytes are copied to the
 * arena, because LLVM's buffer would have to be freed by everyone who drops them. */
static Bytes object_of(Arena *arena, Diag *diag, LLVMModuleRef module, const TargetInfo *target) {
  Bytes bytes = {0};
  LLVMTargetMachineRef machine = target_machine(diag, target);
  LLVMMemoryBufferRef buffer = machine ? emit_object(diag, module, machine, false) : NULL;
  if (buffer) {
    bytes.size = LLVMGetBufferSize(buffer);
    bytes.data = arena_copy(arena, LLVMGetBufferStart(buffer), bytes.size);
    LLVMDisposeMemoryBuffer(buffer);
  }
  LLVMDisposeModule(module);
  if (machine) LLVMDisposeTargetMachine(machine);
  return bytes;
}

/* A library holds the kernels of several instruction sets, and equal specs have equal names, so the suffix makes the
 * names differ. */
static LLVMModuleRef suffixed_kernels(Arena *arena, LLVMContextRef context, const Plan *kernels, const char *suffix) {
  LLVMModuleRef module = kernels_module(context, kernels);
  for (LLVMValueRef f = LLVMGetFirstFunction(module); f; f = LLVMGetNextFunction(f)) {
    if (LLVMIsDeclaration(f)) continue;
    size_t length;
    const char *name = LLVMGetValueName2(f, &length);
    const char *suffixed = arena_printf(arena, "%.*s%s", (int)length, name, suffix);
    LLVMSetValueName2(f, suffixed, length + strlen(suffix));
  }
  return module;
}

/* The object of the kernels of all programs of an instruction set: of the same ones in the cache, or a new one. */
static Bytes object_of_kernels(Arena *arena, Diag *diag, LLVMContextRef context, const LibraryPlans *plans,
                               const CodeCache *cache) {
  const Plan kernels = library_kernels(arena, plans);
  const char *suffix = library_kernel_suffix(arena, plans->forward);
  const CacheKey key = cache_key(&kernels, suffix);
  Bytes object = {0};
  if (cache) object.data = cache_read(arena, cache, &key, &object.size);
  if (object.data) return object;
  object = object_of(arena, diag, suffixed_kernels(arena, context, &kernels, suffix), plans->forward->target);
  if (cache && object.data) {
    cache_write(cache, &key, object.data, object.size);
    cache_limit(cache);
  }
  return object;
}

/* The object of what is neither kernel nor of one instruction set. It runs before the CPU is known, so it is generated
 * for the baseline: it must not contain an instruction that the CPU may lack. A module has one instruction set. */
static Bytes object_for_any(Arena *arena, Diag *diag, const LibraryParts *parts, LLVMModuleRef module) {
  const TargetInfo *target = parts->plans[0].forward->target;
  const bool is_module = family_makes_modules(target->family);
  return object_of(arena, diag, module, is_module ? target : target_baseline(target));
}

/* Each object is generated for its own instruction set. */
const Bytes *aot_objects(Arena *arena, Diag *diag, const LibraryParts *parts) {
  Bytes *objects = ARENA_ARRAY(arena, Bytes, parts->n_plans + 1);
  LLVMContextRef context = LLVMContextCreate();
  bool ok = true;
  for (uint32_t i = 0; ok && i < parts->n_plans; i++) {
    objects[i] = object_of_kernels(arena, diag, context, &parts->plans[i], parts->cache);
    ok = objects[i].data != NULL;
  }
  if (ok) {
    const LibraryParts whole = named(arena, parts);
    objects[parts->n_plans] = object_for_any(arena, diag, parts, emit_library(arena, context, &whole));
    ok = objects[parts->n_plans].data != NULL;
  }
  LLVMContextDispose(context);
  return ok ? objects : NULL;
}

Bytes aot_library(Arena *arena, Diag *diag, const LibraryParts *parts, const char *compiler, const char *soname) {
  const uint32_t n = parts->n_plans + 1;
  const Bytes *objects = aot_objects(arena, diag, parts);
  if (!objects) return (Bytes){0};
  const char *prefix = model_prefix(arena, parts->plans[0].forward->program.name);
  if (!compiler) return elf_library(arena, diag, prefix, soname, objects, n);
  return link_library(arena, diag, compiler, prefix, soname, (BytesList){objects, n});
}

Bytes aot_module(Arena *arena, Diag *diag, const LibraryParts *parts) {
  CHECK(parts->n_plans == 1, "a module of %u instruction sets", parts->n_plans);
  const Bytes *objects = aot_objects(arena, diag, parts);
  return objects ? wasm_module(arena, diag, (BytesList){objects, parts->n_plans + 1}) : (Bytes){0};
}

void aot_module_texts(StrBuf *loader, StrBuf *types, const LibraryParts *parts, const ModuleFiles *files) {
  const LibraryParts whole = named(loader->arena, parts);
  write_module_loader(loader, &whole, files);
  write_module_types(types, &whole);
}

Bytes aot_object(Arena *arena, Diag *diag, const LibraryParts *parts, const char *compiler) {
  const Bytes *objects = aot_objects(arena, diag, parts);
  return objects ? link_object(arena, diag, compiler, objects, parts->n_plans + 1) : (Bytes){0};
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
