/* In: plans and packed bytes. Out: layouts and .tfmw files. See packed_weights.h. */
#include "aot/packed_weights.h"

#include <stdio.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "plan/memory.h"
#include "weights/files.h"

static void hash(const void *bytes, size_t size, uint8_t digest[16]) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes, size));
  memcpy(digest, canonical.digest, 16);
}

// ---- layout ----

/* The decoding step comes first: it is bound by reading its weights, and those that it has to itself then lie
 * together. */
PlanList library_plan_list(const LibraryPlans *plans) {
  PlanList list = {0};
  if (plans->decoding) list.plans[list.n++] = plans->decoding->step;
  if (plans->decoding && plans->decoding->encoder) list.plans[list.n++] = plans->decoding->encoder;
  if (plans->forward) list.plans[list.n++] = plans->forward;
  return list;
}

Plan library_kernels(Arena *arena, const LibraryPlans *plans) {
  const PlanList list = library_plan_list(plans);
  Plan all = {.arena = arena, .graph = plans->forward->graph, .target = plans->forward->target};
  for (uint32_t i = 0; i < list.n; i++)
    for (size_t k = 0; k < list.plans[i]->kernels.n; k++)
      vec_push(arena, &all.kernels, list.plans[i]->kernels.items[k]);
  return all;
}

/* A recipe that shares the bytes of another one (plan/memory.h) adds nothing to the file. */
static void print_layout(StrBuf *text, const Plan *plan) {
  for (size_t i = 0; i < plan->recipes.n; i++) {
    const WeightRecipe *recipe = &plan->recipes.items[i];
    if (recipe->is_shared) continue;
    strbuf_printf(text, "%llu %llu ", (unsigned long long)recipe->offset, (unsigned long long)recipe->bytes);
    recipe_print(text, plan->graph->sizes, recipe);
    strbuf_add_char(text, '\n');
  }
}

void library_layout(Arena *arena, const LibraryPlans *plans, uint8_t layout[16]) {
  const PlanList list = library_plan_list(plans);
  StrBuf text = strbuf_new(arena);
  for (uint32_t i = 0; i < list.n; i++) print_layout(&text, list.plans[i]);
  hash(text.text, text.length, layout);
}

// ---- the file ----

/* The content is hashed, and then the whole page while its own hash is still 0. The runtime checks them before it uses
 * a file. */
void weights_file_header(char *page, const char *model, const uint8_t layout[16], const void *packed, uint64_t bytes) {
  memset(page, 0, TFM_WEIGHTS_HEADER_BYTES);
  tfm_weights_header header = {
      .magic = TFM_WEIGHTS_MAGIC, .byte_order = TFM_WEIGHTS_BYTE_ORDER, .version = TFM_WEIGHTS_VERSION, .bytes = bytes};
  memcpy(header.layout, layout, sizeof header.layout);
  snprintf(header.model, sizeof header.model, "%s", model);
  hash(packed, bytes, header.content);
  memcpy(page, &header, sizeof header);
  hash(page, TFM_WEIGHTS_HEADER_BYTES, header.header);
  memcpy(page, &header, sizeof header);
}

bool weights_file_write(Diag *diag, const char *path, const char *model, const uint8_t layout[16], const void *packed,
                        uint64_t bytes) {
  char page[TFM_WEIGHTS_HEADER_BYTES];
  weights_file_header(page, model, layout, packed, bytes);
  OutFile *file = ARENA_NEW(diag->arena, OutFile);
  if (!out_file_open(file, diag, path)) return false;
  out_file_write(file, page, sizeof page);
  out_file_write(file, packed, bytes);
  return out_file_commit(file);
}

/* Only the magic is looked at; the runtime checks the rest when it maps the file. */
bool is_packed_file(Arena *arena, const char *path) {
  Diag silent = diag_new(arena);
  InFile file;
  char magic[sizeof TFM_WEIGHTS_MAGIC];
  if (!in_file_open(&file, &silent, path)) return false;
  bool is_packed = file.size >= (int64_t)sizeof magic && in_file_read(&file, &silent, 0, magic, sizeof magic) &&
                   memcmp(magic, TFM_WEIGHTS_MAGIC, sizeof magic) == 0;
  in_file_close(&file);
  return is_packed;
}
