#include "driver/packing.h"

#include <string.h>

#include "aot/header.h"
#include "aot/packed_weights.h"

const char *file_beside(Arena *arena, const char *output, const char *ending) {
  const char *slash = strrchr(output, '/'), *base = slash ? slash + 1 : output;
  size_t folder = (size_t)(base - output);
  if (strncmp(base, "lib", 3) == 0 && base[3]) base += 3;
  const char *dot = strrchr(base, '.');
  size_t length = dot && dot != base ? (size_t)(dot - base) : strlen(base);
  return arena_printf(arena, "%.*s%.*s%s", (int)folder, output, (int)length, base, ending);
}

bool write_packed(Session *session, const LibraryPlans *plans, const char *path, const char *packed) {
  const tfm_program *program = &plans->forward->program;
  uint8_t layout[16];
  library_layout(session->arena, plans, layout);
  return weights_file_write(&session->diag, path, model_prefix(session->arena, program->name), layout, packed,
                            program->weights_bytes);
}
