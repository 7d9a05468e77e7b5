/* Fuzz target: any bytes as a text that `tfmc fmt` lays out. What must hold: tests/support/format_check.h. */
#include "format_check.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  Arena *arena = arena_create();
  unsigned laid_out = 0;
  const char *fault = format_fault(arena, (const char *)bytes, size, &laid_out);
  if (fault) fuzz_fail(fault, arena_strndup(arena, (const char *)bytes, size), "");
  arena_destroy(arena);
  return 0;
}
