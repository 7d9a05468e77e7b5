/* In: the graph of a model that is to become a library, or the text that an existing library carries. Out: its forms
 * after the passes, plans for one instruction set, and the file of its packed weights.
 *
 * Packed weights depend on the plans, not on the instruction set: every set that a library contains has the same
 * layout, and its fingerprint (library_layout) is stored in the library and in the file, which are refused if they
 * differ. */
#include "compile/library_model.h"

#include <string.h>

#include "aot/emit_library.h"
#include "api/api_run.h"
#include "base/check.h"
#include "graph/graph.h"

// ---- ragged sizes ----

/* The elaborator accepts a ragged size only if an input has it, so the search always ends. */
static const Node *input_with(const Graph *graph, uint32_t symbol) {
  for (size_t i = 0; i < graph->inputs.n; i++)
    for (uint32_t axis = 0; axis < graph->inputs.items[i]->rank; axis++)
      if (size_involves(graph->inputs.items[i]->dims[axis], symbol)) return graph->inputs.items[i];
  UNREACHABLE("a ragged size that no input has");
}

/* In a library the function forward runs a whole batch with ordinary sizes; the functions that write tokens take a
 * length for each row, and a size for each item of the encoder. The model remembers which sizes were ragged,
 * which the passes forget. A ragged model that writes nothing has no such functions and is refused. */
static bool serve_ragged(const CompileRequest *request, LibraryModel *model) {
  Graph *graph = model->graph;
  const SizeTable *sizes = graph->sizes;
  bool *of_sources = ARENA_ARRAY(request->arena, bool, sizes->n_symbols);
  for (uint32_t i = 0; i < sizes->n_symbols; i++) {
    if (!graph->ragged[i]) continue;
    if (!model->generation || model->generation->batch != (uint32_t)graph->ragged_batch) {
      diag_error(request->diag, input_with(graph, i)->origin.span, DIAG_LIMIT,
                 "a library cannot take items with '%s' of their own: ragged sizes in libraries are for models that "
                 "write rows for them, with a generate block; 'tfmc run' takes this model as it is",
                 sizes->symbols[i]);
      return false;
    }
    if (model->generation->length == i) {
      model->ragged = sizes->symbols[i];
    } else {
      of_sources[i] = true;
      model->ragged_sources = of_sources;
    }
  }
  return true;
}

// ---- the model ----

/* The text goes into the description of the library and into its header, so it names the file as the model knows it:
 * where the source lay on the machine that compiled it is nobody's business and would make two builds differ. */
static const char *why_not(Arena *arena, const LibraryModel *model) {
  const Incremental *incremental = &model->incremental;
  if (incremental->step || !incremental->reason) return NULL;
  const SrcSpan span = origin_place(&incremental->origin);
  const char *path = incremental->origin.path;
  if (!span.source) return incremental->reason;
  SrcPlace place = source_place(span.source, span.begin);
  return arena_printf(arena, "%s (%s:%u:%u%s%s)", incremental->reason, span.source->name, place.line, place.column,
                      *path ? ", " : "", path);
}

/* The incremental form is derived before the passes: it needs to know which sizes were ragged. A model
 * without a generate block has none, and nothing to report about it. */
bool library_model_make(const CompileRequest *request, LibraryModel *model) {
  Derivation *derived = model->generation ? compile_derive(request, model->graph) : NULL;
  if (derived && !compile_fuse_parts(request, derived, DERIVED_NONE)) return false;
  if (derived) model->incremental = derived->parts;
  if (!serve_ragged(request, model)) return false;
  model->not_incremental = why_not(request->arena, model);
  return compile_fuse(request, model->graph, derived);
}

// ---- plans ----

/* Places in plans end up in the library (they are what a run-time error names), so they must not depend on the folder
 * in which the model lay: the graphs are marked before they are planned. */
bool library_model_plan(const CompileRequest *request, const LibraryModel *model, LibraryPlans *plans) {
  Graph *const graphs[] = {model->graph, model->incremental.encoder, model->incremental.step};
  for (size_t i = 0; i < 3; i++)
    if (graphs[i]) graphs[i]->is_portable = true;
  return compile_plans(request, model->graph, &model->incremental, plans);
}

/* Weights can be packed by a later tfmc than the one that made the library, as long as both plan the same layout;
 * otherwise the offsets that the library's code reads from would be wrong. Any instruction set of the library serves,
 * since all have one layout. */
bool library_plans_again(const CompileRequest *request, const LibraryFile *library, const ModelText *text, Graph *graph,
                         const char *version, LibraryPlans *plans) {
  CompileRequest again = *request;
  LibraryModel model = {.graph = graph, .generation = generation_of(request->arena, graph)};
  again.target = target_find(library->instruction_sets[0]);
  again.passes = text->passes;
  bool done = again.target && library_model_make(&again, &model) && library_model_plan(&again, &model, plans);
  uint8_t layout[16] = {0};
  if (done) library_layout(request->arena, plans, layout);
  if (done && memcmp(layout, library->layout, sizeof layout) == 0) return true;
  if (!diag_has_errors(request->diag))
    diag_error_at(request->diag, library->path, DIAG_LIBRARY,
                  "tfmc %s packs weights in another way than tfmc %s, which made the library: compile it again",
                  version, library->version);
  return false;
}

// ---- files of code and weights ----

bool is_one_file(Arena *arena, const char *path) {
  const size_t length = strlen(path), ending = strlen(ONE_FILE_ENDING);
  return (length > ending && strcmp(path + length - ending, ONE_FILE_ENDING) == 0) ||
         file_begins_with(arena, path, PARTS_MAGIC, sizeof PARTS_MAGIC);
}

/* The description lies in one of the objects; which one is the worker's affair. */
static const char *description_in(Arena *arena, Diag *diag, const InFile *file, const PartsHeader *header) {
  const char *text = NULL;
  size_t size;
  for (uint32_t i = 0; !text && i < header->n_objects; i++) {
    const InFile object = in_file_part(file, (int64_t)header->objects[i].offset, (int64_t)header->objects[i].size);
    text = elf_section(arena, diag, &object, LIBRARY_SECTION, &size);
  }
  return text;
}

/* libtfm's own check comes first: nobody could tell what code would do of which a byte has changed. */
static LibraryFile *read_one_file(Arena *arena, Diag *diag, const InFile *file) {
  Mapping parts;
  tfm_error error;
  if (parts_map(file->path, &parts, &error) != TFM_OK) {
    diag_error_at(diag, NULL, DIAG_LIBRARY, "%s", error.message); /* it names the file */
    return NULL;
  }
  const int n_errors = diag->n_errors;
  const char *text = description_in(arena, diag, file, (const PartsHeader *)(const void *)parts.data);
  mapping_free(&parts);
  LibraryFile *library = diag->n_errors == n_errors ? library_file_read(arena, diag, file->path, text) : NULL;
  if (library) library->is_one_file = library->weights_embedded = true;
  return library;
}

LibraryFile *one_file_open(Arena *arena, Diag *diag, const char *path) {
  InFile file;
  if (!in_file_open(&file, diag, path)) return NULL;
  LibraryFile *library = read_one_file(arena, diag, &file);
  in_file_close(&file);
  return library;
}

// ---- files of weights ----

/* "lib" and the ending are removed, so that libname.so, name.h and name.tfmw stand together as a C programmer expects
 * them. A name that is nothing but "lib" or an ending stays whole. */
const char *file_beside(Arena *arena, const char *output, const char *ending) {
  if (strcmp(output, "/dev/null") == 0) return output; /* what belongs to it is thrown away with it */
  const char *slash = strrchr(output, '/'), *base = slash ? slash + 1 : output;
  size_t folder = (size_t)(base - output);
  if (strncmp(base, "lib", 3) == 0 && base[3]) base += 3;
  const char *dot = strrchr(base, '.');
  size_t length = dot && dot != base ? (size_t)(dot - base) : strlen(base);
  return arena_printf(arena, "%.*s%.*s%s", (int)folder, output, (int)length, base, ending);
}

/* The file is complete or absent (weights/files.h), so a process that maps it never sees half of it. */
bool library_write_weights(const CompileRequest *request, const LibraryPlans *plans, const char *path,
                           const char *packed) {
  const tfm_program *program = &plans->forward->program;
  uint8_t layout[16];
  library_layout(request->arena, plans, layout);
  return weights_file_write(request->diag, path, model_prefix(request->arena, program->name), layout, packed,
                            program->weights_bytes);
}
