#define _GNU_SOURCE /* dl_iterate_phdr, madvise */
/* In: a process that has made code. Out: the same process without the pages of LLVM's code and without what its heap
 * holds free. See compiler_memory.h.
 *
 * The object that holds LLVM is found by the address of one of its functions: the library, or this program if LLVM is
 * linked into it. Its pages that are as they are in the file are given back, and come from there when something is
 * called after all. Pages that the loader or the program wrote would be lost: writable segments stay, and so does an
 * object into whose code the loader wrote. Nothing is refused: where nothing can be given back, all stays. */
#include "jit/compiler_memory.h"

#include <link.h>
#include <llvm-c/Core.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/* Whether a segment of the object holds the address. */
static bool is_in_object(const struct dl_phdr_info *object, uintptr_t address) {
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
    if (segment->p_type == PT_LOAD && address - (object->dlpi_addr + segment->p_vaddr) < segment->p_memsz) return true;
  }
  return false;
}

/* Whether the loader wrote into its code: such pages are not those of the file. */
static bool has_changed_text(const struct dl_phdr_info *object) {
  for (int i = 0; i < object->dlpi_phnum; i++) {
    if (object->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    const ElfW(Dyn) *entry = (const ElfW(Dyn) *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
    for (; entry->d_tag != DT_NULL; entry++)
      if (entry->d_tag == DT_TEXTREL || (entry->d_tag == DT_FLAGS && (entry->d_un.d_val & DF_TEXTREL))) return true;
  }
  return false;
}

/* Called for each object of the process until it returns 1. */
static int give_back_object(struct dl_phdr_info *object, size_t size, void *context) {
  (void)size;
  const uintptr_t page = *(const uintptr_t *)context;
  if (!is_in_object(object, (uintptr_t)&LLVMContextCreate)) return 0;
  if (has_changed_text(object)) return 1;
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
    if (segment->p_type != PT_LOAD || (segment->p_flags & PF_W)) continue;
    const uintptr_t start = (object->dlpi_addr + segment->p_vaddr) / page * page;
    const uintptr_t end = object->dlpi_addr + segment->p_vaddr + segment->p_filesz;
    madvise((void *)start, end - start, MADV_DONTNEED);
  }
  return 1;
}

void compiler_give_back_memory(void) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  dl_iterate_phdr(give_back_object, &page);
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}
