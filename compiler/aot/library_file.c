/* The files of a library: the library itself, and its packed weights.
 *
 * In: an ELF file, by way of its table of sections; plans and packed bytes. Out: one section, a description; layouts
 * and .tfmw files. See library_file.h and packed_weights.h. Every offset and size of a library is checked against its
 * length before it is used, and every name ends within what was read. */
#include "aot/library_file.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "aot/packed_weights.h"
#include "base/check.h"
#include "plan/plan_memory.h"
#include "weights/files.h"

// ---- sections ----

/* MOST_SECTIONS: e_shnum has 16 bits. MOST_BYTES: a description holds the text of a model, some kilobytes; 256 MB
 * is beyond
 * any. MOST_NAMES: the names of 65,536 sections, 256 bytes each. */
enum { MOST_SECTIONS = 65536, MOST_BYTES = 256 << 20, MOST_NAMES = 16 << 20 };

bool file_begins_with(Arena *arena, const char *path, const char *bytes, size_t n) {
  Diag silent = diag_new(arena);
  InFile file;
  char begin[8];
  CHECK(n <= sizeof begin, "a magic of %zu bytes", n);
  if (!in_file_open(&file, &silent, path)) return false;
  bool is_same =
      file.size >= (int64_t)n && in_file_read(&file, &silent, 0, begin, n) && memcmp(begin, bytes, n) == 0;
  in_file_close(&file);
  return is_same;
}

bool is_elf_file(Arena *arena, const char *path) { return file_begins_with(arena, path, ELFMAG, SELFMAG); }

/* Reads `size` bytes from `offset` on and appends a NUL. NULL if they reach beyond the file or are more than any
 * library of ours has: a damaged table of sections must not make us allocate whatever it says. */
static char *read_range(Arena *arena, Diag *diag, const InFile *file, uint64_t offset, uint64_t size, uint64_t most) {
  uint64_t end = (uint64_t)file->size;
  if (size > most || offset > end || size > end - offset) return NULL;
  char *bytes = arena_alloc(arena, size + 1);
  return in_file_read(file, diag, (int64_t)offset, bytes, size) ? bytes : NULL;
}

/* The table of section names ends with a NUL, because read_range adds one, so strcmp stays within it. A section
 * without bytes in the file (SHT_NOBITS) has nothing to read. */
const char *elf_section(Arena *arena, Diag *diag, const InFile *file, const char *name, size_t *size) {
  const char *head = read_range(arena, diag, file, 0, sizeof(Elf64_Ehdr), sizeof(Elf64_Ehdr));
  if (!head) return NULL;
  Elf64_Ehdr elf;
  memcpy(&elf, head, sizeof elf);
  bool readable = elf.e_ident[EI_CLASS] == ELFCLASS64 && elf.e_ident[EI_DATA] == ELFDATA2LSB &&
                  elf.e_shentsize == sizeof(Elf64_Shdr) && elf.e_shstrndx < elf.e_shnum;
  if (!readable) return NULL;
  uint64_t table_bytes = (uint64_t)elf.e_shnum * sizeof(Elf64_Shdr);
  const char *table = read_range(arena, diag, file, elf.e_shoff, table_bytes, MOST_SECTIONS * sizeof(Elf64_Shdr));
  if (!table) return NULL;
  Elf64_Shdr *sections = arena_copy(arena, table, table_bytes);
  const Elf64_Shdr *texts = &sections[elf.e_shstrndx];
  const char *names = read_range(arena, diag, file, texts->sh_offset, texts->sh_size, MOST_NAMES);
  for (uint32_t i = 0; names && i < elf.e_shnum; i++) {
    const Elf64_Shdr *section = &sections[i];
    if (section->sh_name >= texts->sh_size || strcmp(names + section->sh_name, name) != 0) continue;
    *size = section->sh_size;
    return section->sh_type == SHT_NOBITS
               ? NULL
               : read_range(arena, diag, file, section->sh_offset, section->sh_size, MOST_BYTES);
  }
  return NULL;
}

// ---- descriptions ----

const char *layout_text(Arena *arena, const uint8_t layout[16]) {
  char text[33] = "";
  for (int i = 0; i < 16; i++) snprintf(text + 2 * i, 3, "%02x", layout[i]);
  return arena_strdup(arena, text);
}

/* sscanf meets two hexadecimal digits each time: the text has been checked. */
static bool read_layout(const char *text, uint8_t layout[16]) {
  if (!text || strlen(text) != 32 || strspn(text, "0123456789abcdef") != 32) return false;
  for (int i = 0; i < 16; i++) {
    unsigned byte = 0;
    sscanf(text + 2 * i, "%2x", &byte);
    layout[i] = (uint8_t)byte;
  }
  return true;
}

static const char *text_at(Arena *arena, const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return text ? arena_strdup(arena, text) : NULL;
}

static bool read_instruction_sets(Arena *arena, LibraryFile *library, const json_t *list) {
  library->n_instruction_sets = (uint32_t)json_array_size(list);
  library->instruction_sets = ARENA_ARRAY(arena, const char *, library->n_instruction_sets);
  for (uint32_t i = 0; i < library->n_instruction_sets; i++) {
    const char *name = json_string_value(json_array_get(list, i));
    if (!name) return false;
    library->instruction_sets[i] = arena_strdup(arena, name);
  }
  return library->n_instruction_sets > 0;
}

static bool read_description(Arena *arena, LibraryFile *library, const json_t *json) {
  library->prefix = text_at(arena, json, "prefix");
  library->version = text_at(arena, json, "version");
  library->weights_bytes = (uint64_t)json_integer_value(json_object_get(json, "weights_bytes"));
  library->weights_embedded = json_is_true(json_object_get(json, "weights_embedded"));
  library->is_incremental = json_is_true(json_object_get(json_object_get(json, "generate"), "incremental"));
  return library->prefix && library->version &&
         read_layout(json_string_value(json_object_get(json, "layout")), library->layout) &&
         read_instruction_sets(arena, library, json_object_get(json, "instruction_sets"));
}

LibraryFile *library_file_open(Arena *arena, Diag *diag, const char *path) {
  InFile file;
  if (!in_file_open(&file, diag, path)) return NULL;
  int n_errors = diag->n_errors;
  size_t size = 0;
  const char *text = elf_section(arena, diag, &file, LIBRARY_SECTION, &size);
  in_file_close(&file);
  return diag->n_errors == n_errors ? library_file_read(arena, diag, path, text) : NULL;
}

LibraryFile *library_file_read(Arena *arena, Diag *diag, const char *path, const char *text) {
  LibraryFile *library = ARENA_NEW(arena, LibraryFile);
  library->path = path;
  json_t *json = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
  library->description = json;
  if (json && read_description(arena, library, json)) return library;
  json_decref(json);
  diag_error_at(diag, path, DIAG_LIBRARY, "this is no library made by `tfmc compile`, or a damaged one");
  return NULL;
}

void library_file_close(LibraryFile *library) {
  if (library) json_decref((json_t *)library->description);
}

// ---- layout of packed weights ----

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

Plan library_kernels(Arena *arena, const LibraryPlans *plans) {
  const PlanList list = library_plan_list(plans);
  Plan all = {.arena = arena, .graph = plans->forward->graph, .target = plans->forward->target};
  for (uint32_t i = 0; i < list.n; i++)
    for (size_t k = 0; k < list.plans[i]->kernels.n; k++)
      vec_push(arena, &all.kernels, list.plans[i]->kernels.items[k]);
  for (uint32_t i = 0; i < N_TRAINING_PLANS; i++)
    for (size_t k = 0; plans->training[i] && k < plans->training[i]->kernels.n; k++)
      vec_push(arena, &all.kernels, plans->training[i]->kernels.items[k]);
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
