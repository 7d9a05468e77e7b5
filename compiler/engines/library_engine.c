/* The engine that runs a compiled library, or a .tfmm file.
 *
 * In: the library of the settings, and weights: the .tfmw file beside it, those embedded in it, a .tfmw file of
 * --weights, or tensors of --weights; a .tfmm file has its own. Out: the outputs of its forward. Tensors are packed
 * into a file without a name, which the runtime maps like any other .tfmw file and which goes away with this process.
 * Refuses weights of another layout, and a CPU that none of the library's instruction sets suits. */
#define _GNU_SOURCE /* memfd_create */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "codegen/codegen.h"
#include "engines/engine.h"
#include "aot/packed_weights.h"
#include "tfm/abi/weights_file.h"
#include "weights/files.h"

typedef struct LibraryEngine {
  Engine base;
  OpenLibrary library;
} LibraryEngine;

/* The context holds pointers into the model, so it goes first. */
static void destroy(Engine *base) {
  LibraryEngine *engine = (LibraryEngine *)base;
  tfm_context_destroy(base->context);
  library_close(&engine->library);
}

// ---- weights that are packed now ----

/* The file is mapped shared and packed in place: the weights exist once, not in a buffer and in the file. */
static bool pack_into(const EngineSettings *settings, const LibraryPlans *plans, WeightSource *weights, int fd,
                      size_t bytes) {
  const LibraryFile *library = settings->library;
  char *map =
      ftruncate(fd, (off_t)bytes) == 0 ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  if (map == MAP_FAILED) {
    diag_error_at(settings->compile.diag, NULL, DIAG_MEMORY, "%zu bytes of weights: %s", bytes, strerror(errno));
    return false;
  }
  char *packed = map + TFM_WEIGHTS_HEADER_BYTES;
  CompileRequest request = settings->compile;
  request.weights = weight_source_reader(weights);
  bool done = compile_pack_to(&request, plans, packed);
  if (done) weights_file_header(map, library->prefix, library->layout, packed, plans->forward->program.weights_bytes);
  munmap(map, bytes);
  return done;
}

/* Returns the descriptor of a .tfmw file in memory, or -1 after an error. The library's own text is planned again,
 * because only plans tell where each weight lies. */
static int pack_nameless(const EngineSettings *settings, Graph *graph, WeightSource *weights) {
  LibraryPlans plans;
  if (!library_plans_again(&settings->compile, settings->library, settings->text, graph, settings->version, &plans))
    return -1;
  int fd = memfd_create("tfmw", MFD_CLOEXEC);
  if (fd < 0)
    diag_error_at(settings->compile.diag, NULL, DIAG_TOOL, "a file in memory cannot be made: %s", strerror(errno));
  else if (pack_into(settings, &plans, weights, fd, TFM_WEIGHTS_HEADER_BYTES + plans.forward->program.weights_bytes))
    return fd;
  if (fd >= 0) close(fd);
  return -1;
}

// ---- weights that were packed before ----

/* Messages of the runtime about weight files name the file themselves. */
static bool refuse(const EngineSettings *settings, const char *message) {
  diag_error_at(settings->compile.diag, NULL, DIAG_LIBRARY, "%s", message); /* it names the file */
  return false;
}

/* Whether the file is there, whole as far as its header tells, and laid out as the library expects. The runtime would
 * refuse it as well, but could not say which models the two belong to. */
static bool check_packed(const EngineSettings *settings, const char *path) {
  const LibraryFile *library = settings->library;
  InFile file;
  tfm_weights_header header;
  tfm_error error;
  if (!in_file_open(&file, settings->compile.diag, path)) {
    diag_note(settings->compile.diag, NO_SPAN,
              "%s needs weights: make them with `tfmc pack`, or name a file with --weights", library->path);
    return false;
  }
  in_file_close(&file);
  if (tfm_weights_file_read(path, &header, &error) != TFM_OK) return refuse(settings, error.message);
  if (memcmp(header.layout, library->layout, sizeof header.layout) == 0) return true;
  Arena *arena = settings->compile.arena;
  return refuse(settings, arena_printf(arena,
                                       "%s was packed for the model %s with the layout %s; %s has the model %s and "
                                       "wants the layout %s: `tfmc pack %s` makes the file of this one",
                                       path, header.model, layout_text(arena, header.layout), library->path,
                                       library->prefix, layout_text(arena, library->layout), library->path));
}

/* Returns the path that the runtime is to open; "" if the library needs none, because its weights are embedded or it
 * has none. NULL after an error. */
static const char *find_packed(const EngineSettings *settings, const WeightSource *weights) {
  const LibraryFile *library = settings->library;
  const char *path = weights->packed_path;
  if (!path && (library->weights_embedded || !library->weights_bytes)) return "";
  if (!path) path = file_beside(settings->compile.arena, library->path, ".tfmw");
  return check_packed(settings, path) ? path : NULL;
}

// ---- making it ----

/* Says it in the same words as for a .tfm file. The sets are stored from the best to the least, so the last one
 * decides whether any can run. A set that this compiler does not know is left for the runtime to judge. */
static bool check_cpu(const EngineSettings *settings) {
  const LibraryFile *library = settings->library;
  const TargetInfo *least = target_find(library->instruction_sets[library->n_instruction_sets - 1]);
  const char *why = least ? host_refuses(settings->compile.arena, least) : NULL;
  if (why) diag_error_at(settings->compile.diag, library->path, DIAG_CPU, "%s", why);
  return !why;
}

static tfm_model *open_model(const EngineSettings *settings, const char *weights) {
  tfm_error error = {0};
  tfm_model *model;
  if (tfm_model_open(settings->library->path, weights, &model, &error) == TFM_OK) return model;
  error.place = settings->library->path;
  report_runtime_error(settings->compile.diag, &error);
  return NULL;
}

/* A descriptor is handed over as a path below /proc/self/fd; once the runtime has mapped the file, the descriptor is
 * no longer needed. */
static tfm_model *open_shared(const EngineSettings *settings, Graph *graph, WeightSource *weights) {
  int fd = weights->is_packed ? -1 : pack_nameless(settings, graph, weights);
  if (!weights->is_packed && fd < 0) return NULL;
  const char *path =
      fd < 0 ? find_packed(settings, weights) : arena_printf(settings->compile.arena, "/proc/self/fd/%d", fd);
  tfm_model *model = path ? open_model(settings, *path ? path : NULL) : NULL;
  if (fd >= 0) close(fd); /* it is mapped */
  return model;
}

static tfm_model *open_one_file(const EngineSettings *settings, OpenLibrary *library) {
  tfm_error error = {0};
  if (tfm_model_map(settings->library->path, &library->file, &error) == TFM_OK)
    return tfm_compiled_model(library->file);
  error.place = settings->library->path;
  report_runtime_error(settings->compile.diag, &error);
  return NULL;
}

bool library_open(const EngineSettings *settings, Graph *graph, WeightSource *weights, OpenLibrary *library) {
  *library = (OpenLibrary){0};
  if (!check_cpu(settings)) return false;
  library->model =
      settings->library->is_one_file ? open_one_file(settings, library) : open_shared(settings, graph, weights);
  return library->model != NULL;
}

void library_close(OpenLibrary *library) {
  if (library->file)
    tfm_compiled_free(library->file); /* the model is its own */
  else
    tfm_model_close(library->model);
}

static bool make_context(LibraryEngine *engine, const EngineSettings *settings) {
  tfm_error error;
  tfm_context_options options = context_options(settings);
  engine->base.program = tfm_model_program(engine->library.model);
  if (tfm_model_context(engine->library.model, &options, &engine->base.context, &error) == TFM_OK) return true;
  error.place = settings->library->path;
  report_runtime_error(settings->compile.diag, &error);
  return false;
}

/* destroy() serves for a half-made engine, too: NULL members are ignored. */
static Engine *create(const EngineSettings *settings, Graph *graph, WeightSource *weights) {
  LibraryEngine *engine = ARENA_NEW(settings->compile.arena, LibraryEngine);
  if (library_open(settings, graph, weights, &engine->library) && make_context(engine, settings))
    return &engine->base;
  destroy(&engine->base);
  return NULL;
}

const EngineKind engine_library = {"library", create, compiled_run, destroy};
