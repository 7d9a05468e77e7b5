#include "aot/blob.h"

#include <stdbool.h>
#include <string.h>

#include "base/check.h"

static LLVMContextRef context_of(LLVMModuleRef module) { return LLVMGetModuleContext(module); }

LLVMValueRef module_null(LLVMModuleRef module) {
  return LLVMConstNull(LLVMPointerTypeInContext(context_of(module), 0));
}

static LLVMValueRef add_constant(LLVMModuleRef module, const char *name, LLVMValueRef value, unsigned alignment) {
  LLVMValueRef global = LLVMAddGlobal(module, LLVMTypeOf(value), name);
  LLVMSetInitializer(global, value);
  LLVMSetGlobalConstant(global, true);
  LLVMSetLinkage(global, LLVMPrivateLinkage);
  LLVMSetAlignment(global, alignment);
  return global;
}

LLVMValueRef module_text(LLVMModuleRef module, const char *text) {
  LLVMValueRef value = LLVMConstStringInContext(context_of(module), text, (unsigned)strlen(text), false);
  LLVMValueRef global = add_constant(module, "text", value, 1);
  LLVMSetUnnamedAddress(global, LLVMGlobalUnnamedAddr);
  return global;
}

Blob blob_new(Arena *arena, LLVMModuleRef module) { return (Blob){.arena = arena, .module = module}; }

void blob_pointer(Blob *blob, size_t offset, LLVMValueRef value) {
  CHECK(!blob->pointers.n || blob->pointers.items[blob->pointers.n - 1].offset < offset, "pointers of a blob out of order");
  vec_push(blob->arena, &blob->pointers, (BlobPointer){offset, value ? value : module_null(blob->module)});
}

void blob_text(Blob *blob, size_t offset, const char *text) {
  blob_pointer(blob, offset, text ? module_text(blob->module, text) : NULL);
}

LLVMValueRef blob_finish(Blob *blob, const char *name, const void *bytes, size_t size) {
  if (!size) return module_null(blob->module);
  LLVMContextRef context = context_of(blob->module);
  VEC(LLVMValueRef) parts = {0};
  size_t at = 0;
  for (size_t i = 0; i <= blob->pointers.n; i++) {
    size_t end = i < blob->pointers.n ? blob->pointers.items[i].offset : size;
    if (end > at)
      vec_push(blob->arena, &parts,
               LLVMConstStringInContext(context, (const char *)bytes + at, (unsigned)(end - at), true));
    if (i < blob->pointers.n) vec_push(blob->arena, &parts, blob->pointers.items[i].value);
    at = end + sizeof(void *);
  }
  LLVMValueRef value = LLVMConstStructInContext(context, parts.items, (unsigned)parts.n, true);
  return add_constant(blob->module, name, value, 64);
}
