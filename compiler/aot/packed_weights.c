/* Packed weights of a library: their layout, the kernels that its programs share, and the .tfmw file. See
 * packed_weights.h. */
#include "aot/packed_weights.h"

#include <stdio.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "aot/library_file.h"
#include "plan/plan_memory.h"
#include "weights/files.h"

// ---- layout ----

static void hash(const void *bytes, size_t size, uint8_t digest[16]) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes, size));
  memcpy(digest, canonical.digest, 16);
}

/* The decoding step comes first: it is bound by reading its weights, and those that it has to itself then lie
 * together. */
PlanList library_plan_list(const LibraryPlans *plans) {
  PlanList list = {0};
  if (plans->decoding) list.plans[list.n++] = plans->decoding->step;
  if (plans->decoding && plans->decoding->encoder) list.plans[list.n++] = plans->decoding->encoder;
  if (plans->forward) list.plans[list.n++] = plans->forward;
  return list;
}

// ---- kernels ----

/* The tiles of a step that are worth code of their own: of one row, and of so many rows that a product of more rows
 * takes them. Others are for 2, 3 or 7 rows in all. */
static void keep_tiles(Map *kept, const Plan *plan, const uint32_t *tiles, uint32_t tile_rows, bool keeps_low) {
  for (uint32_t rows = 1; rows <= tile_rows; rows++)
    if (tiles[rows] != TFM_NONE && (keeps_low || rows == 1 || rows > 3 || 2 * rows > tile_rows))
      map_put(kept, plan->kernels.items[tiles[rows]].name, (void *)(uintptr_t)1);
}

/* Of attention with one query, which is known before, only the tile of one row runs. Values that are not finite have
 * the slow way (pv_exact_tiles), which gives the same bits. */
static void keep_attention(Map *kept, const Plan *plan, const tfm_attention_step *step) {
  const uint32_t rows = step->dims[step->rank - 2] == 1 ? 1 : step->tile_rows; /* size 1 is the number 1 */
  keep_tiles(kept, plan, step->qk_tiles, rows, step->k_cache != TFM_NONE);
  keep_tiles(kept, plan, step->pv_tiles, rows, step->k_cache != TFM_NONE);
}

static void keep_attention_grad(Map *kept, const Plan *plan, const tfm_attention_grad_step *step) {
  const uint32_t *const tiles[] = {step->qk_tiles, step->gv_tiles, step->q_tiles, step->k_tiles, step->v_tiles};
  for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) keep_tiles(kept, plan, tiles[i], step->tile_rows, false);
  keep_tiles(kept, plan, step->qk_tiles + TFM_NARROW_TILES, step->narrow_rows, false);
  keep_tiles(kept, plan, step->gv_tiles + TFM_NARROW_TILES, step->narrow_rows, false);
}

static void keep_what_is_used(Map *kept, const Plan *plan, bool trains) {
  const tfm_program *program = &plan->program;
  for (uint32_t i = 0; i < plan->n_steps[TFM_STEP_GEMM]; i++)
    keep_tiles(kept, plan, program->gemms[i].tiles, program->gemms[i].tile_rows, true);
  for (uint32_t i = 0; i < plan->n_steps[TFM_STEP_MATMUL]; i++)
    keep_tiles(kept, plan, program->matmuls[i].tiles, program->matmuls[i].tile_rows, !trains);
  for (uint32_t i = 0; i < plan->n_steps[TFM_STEP_ATTENTION]; i++)
    keep_attention(kept, plan, &program->attentions[i]);
  for (uint32_t i = 0; i < plan->n_steps[TFM_STEP_ATTENTION_GRAD]; i++)
    keep_attention_grad(kept, plan, &program->attention_grads[i]);
}

/* The text of the tile of one row, for which the distance of rows means nothing. */
static const char *text_of_tile(Arena *arena, const KernelSpec *spec) {
  KernelSpec of_one_row = *spec;
  StrBuf text = strbuf_new(arena);
  of_one_row.rows = 1;
  of_one_row.a_stride = 0;
  of_one_row.of_one_row = NULL;
  kernel_spec_print(&text, &of_one_row);
  return text.text;
}

static bool is_float_tile(const KernelSpec *spec) {
  return spec->family == KERNEL_TILE && spec->b_form == TFM_FORM_F32;
}

/* A library that trains has the tiles of four programs. Those that are not kept call the tile of one row, so a tile
 * takes 0.1 KB in place of 2; and there is one tile of one row for all distances. */
static void shrink_tiles(Plan *all, const Map *kept) {
  Map of_one_row = map_new(all->arena);
  for (size_t i = 0; i < all->kernels.n; i++) {
    const PlannedKernel *kernel = &all->kernels.items[i];
    const char *text = text_of_tile(all->arena, &kernel->spec);
    if (is_float_tile(&kernel->spec) && kernel->spec.rows == 1 && !map_has(&of_one_row, text))
      map_put(&of_one_row, text, (void *)(uintptr_t)kernel->name);
  }
  for (size_t i = 0; i < all->kernels.n; i++) {
    PlannedKernel *kernel = &all->kernels.items[i];
    if (!is_float_tile(&kernel->spec) || (kernel->spec.rows > 1 && map_has(kept, kernel->name))) continue;
    const char *row = map_get(&of_one_row, text_of_tile(all->arena, &kernel->spec));
    if (row && strcmp(row, kernel->name) != 0) kernel->spec.of_one_row = row;
  }
}

typedef struct AllPlans { /* that a library has: list, then those that train */
  Plan *items[sizeof((PlanList){0}.plans) / sizeof(Plan *) + N_TRAINING_PLANS];
  uint32_t n;
} AllPlans;

static AllPlans all_plans(const LibraryPlans *plans) {
  const PlanList list = library_plan_list(plans);
  AllPlans all = {0};
  for (uint32_t i = 0; i < list.n; i++) all.items[all.n++] = list.plans[i];
  for (uint32_t i = 0; i < N_TRAINING_PLANS; i++)
    if (plans->training[i]) all.items[all.n++] = plans->training[i];
  return all;
}

/* A tile that one plan cuts and another one does not (plan/program.c) is the one that can be cut, for both of them. */
static void share_tiles(Arena *arena, Plan *plan, const Map *names) {
  for (size_t i = 0; i < plan->kernels.n; i++) {
    PlannedKernel *kernel = &plan->kernels.items[i];
    if (!kernel->spec.has_all_columns) continue;
    KernelSpec cut = kernel->spec;
    cut.has_all_columns = false;
    const char *name = kernel_name(arena, &cut);
    if (map_has(names, name)) *kernel = (PlannedKernel){.spec = cut, .name = name, .may_be_cut = true};
  }
}

static void share_all_tiles(Arena *arena, const AllPlans *plans) {
  Map names = map_new(arena);
  for (uint32_t i = 0; i < plans->n; i++)
    for (size_t k = 0; k < plans->items[i]->kernels.n; k++)
      map_put(&names, plans->items[i]->kernels.items[k].name, NULL);
  for (uint32_t i = 0; i < plans->n; i++) share_tiles(arena, plans->items[i], &names);
}

Plan library_kernels(Arena *arena, const LibraryPlans *plans) {
  const PlanList list = library_plan_list(plans);
  const AllPlans shared = all_plans(plans);
  share_all_tiles(arena, &shared);
  Plan all = {.arena = arena, .graph = plans->forward->graph, .target = plans->forward->target};
  for (uint32_t i = 0; i < shared.n; i++)
    for (size_t k = 0; k < shared.items[i]->kernels.n; k++)
      vec_push(arena, &all.kernels, shared.items[i]->kernels.items[k]);
  if (!plans->training[TRAINING_STEP]) return all;
  Map kept = map_new(arena);
  for (uint32_t i = 0; i < list.n; i++) keep_what_is_used(&kept, list.plans[i], false);
  for (uint32_t i = 0; i < N_TRAINING_PLANS; i++)
    if (plans->training[i]) keep_what_is_used(&kept, plans->training[i], true);
  shrink_tiles(&all, &kept);
  return all;
}

/* A recipe that shares the bytes of another one (plan/plan_memory.h) adds nothing to the file. */
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

// ---- the file of packed weights ----

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
  return file_begins_with(arena, path, TFM_WEIGHTS_MAGIC, sizeof TFM_WEIGHTS_MAGIC);
}
