#include "aot/emit_decoding.h"

#include <stddef.h>

#include "aot/blob.h"
#include "aot/emit_program.h"

/* An array without pointers. */
static LLVMValueRef plain(Arena *arena, LLVMModuleRef module, const char *name, const void *items, size_t bytes) {
  Blob blob = blob_new(arena, module);
  return blob_finish(&blob, name, items, bytes);
}

LLVMValueRef emit_decoding(Arena *arena, LLVMModuleRef module, const DecodingPlan *plan, const char *suffix) {
  const tfm_decoding *d = &plan->decoding;
  const tfm_program *step = &plan->step->program;
  Blob top = blob_new(arena, module);
  blob_pointer(&top, offsetof(tfm_decoding, source), plan->source ? emit_program(arena, module, plan->source, suffix) : NULL);
  blob_pointer(&top, offsetof(tfm_decoding, step), emit_program(arena, module, plan->step, suffix));
  blob_pointer(&top, offsetof(tfm_decoding, inputs),
               plain(arena, module, "step_inputs", d->inputs, step->n_inputs * sizeof *d->inputs));
  blob_pointer(&top, offsetof(tfm_decoding, sizes),
               plain(arena, module, "step_sizes", d->sizes, step->n_symbols * sizeof *d->sizes));
  blob_pointer(&top, offsetof(tfm_decoding, cache_sources),
               plain(arena, module, "cache_sources", d->cache_sources, step->n_caches * sizeof *d->cache_sources));
  blob_pointer(&top, offsetof(tfm_decoding, ragged),
               d->ragged ? plain(arena, module, "ragged_sizes", d->ragged, plan->source->program.n_symbols) : NULL);
  return blob_finish(&top, "decoding", d, sizeof *d);
}

static LLVMValueRef tokens(Arena *arena, LLVMModuleRef module, const tfm_token_list *list) {
  return plain(arena, module, "tokens", list->tokens, list->n * sizeof *list->tokens);
}

LLVMValueRef emit_generation(Arena *arena, LLVMModuleRef module, const tfm_generation *generation,
                             const tfm_program *forward) {
  const tfm_generate_options *defaults = &generation->defaults;
  const size_t base = offsetof(tfm_generation, defaults), list = offsetof(tfm_token_list, tokens);
  Blob top = blob_new(arena, module);
  blob_pointer(&top, offsetof(tfm_generation, item_axes),
               plain(arena, module, "item_axes", generation->item_axes, forward->n_inputs));
  const size_t bytes = forward->n_symbols * sizeof *generation->lengths;
  blob_pointer(&top, offsetof(tfm_generation, lengths),
               generation->lengths ? plain(arena, module, "args_lengths", generation->lengths, bytes) : NULL);
  blob_pointer(&top, base + offsetof(tfm_generate_options, eos_token_ids) + list,
               tokens(arena, module, &defaults->eos_token_ids));
  blob_pointer(&top, base + offsetof(tfm_generate_options, suppress_tokens) + list,
               tokens(arena, module, &defaults->suppress_tokens));
  return blob_finish(&top, "generation", generation, sizeof *generation);
}
