/* TFM_SLOT: a pointer of a struct that the compiler emits takes 8 bytes on every machine, so that there is one layout
 * of these structs and one emitter. C99; where pointers are narrower, C11. Where they have 8 bytes it is the member
 * itself. Structs and arrays of nothing but pointers have no slots: the emitter gives them the machine's pointers. */
#ifndef TFM_ABI_SLOT_H
#define TFM_ABI_SLOT_H

#include <stdint.h>

#if UINTPTR_MAX == UINT32_MAX
#define TFM_SLOT(declaration) \
  struct {                    \
    _Alignas(8) declaration;  \
  }
#else
#define TFM_SLOT(declaration) declaration
#endif

#endif
