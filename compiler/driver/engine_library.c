/* The code of a compiled library as an engine. Its weights are the .tfmw file beside it, those in it, or those of
 * --weights; what is no .tfmw file is packed into one that has no name and goes away with this process. */
#define _GNU_SOURCE /* memfd_create */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "aot/library_file.h"
#include "aot/packed_weights.h"
#include "driver/engine_compiled.h"
#include "driver/host.h"
#include "driver/packing.h"
#include "driver/passes_options.h"
#include "tfm/weights_file.h"
#include "weights/files.h"

typedef struct LibraryEngine {
  Engine base;
  tfm_model *model;
} LibraryEngine;

static void destroy(Engine *base) {
  LibraryEngine *engine = (LibraryEngine *)base;
  tfm_context_destroy(base->context);
  tfm_model_close(engine->model);
}

// ---- weights that are packed now ----

static bool pack_into(Session *session, const LibraryPlans *plans, WeightSource *weights, int fd, size_t bytes) {
  const LibraryFile *library = session->library;
  char *map =
      ftruncate(fd, (off_t)bytes) == 0 ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  if (map == MAP_FAILED) {
    diag_error_at(&session->diag, NULL, DIAG_MEMORY, "%zu bytes of weights: %s", bytes, strerror(errno));
    return false;
  }
  char *packed = map + TFM_WEIGHTS_HEADER_BYTES;
  const CompileRequest request = compile_request(session, weights);
  bool done = compile_pack_to(&request, plans, packed);
  if (done) weights_file_header(map, library->prefix, library->layout, packed, plans->forward->program.weights_bytes);
  munmap(map, bytes);
  weight_source_release(weights);
  return done;
}

/* The descriptor of a .tfmw file in memory; -1 after an error. */
static int pack_nameless(Session *session, Graph *graph, WeightSource *weights) {
  LibraryPlans plans;
  if (!plans_of_library(session, graph, &plans)) return -1;
  int fd = memfd_create("tfmw", MFD_CLOEXEC);
  if (fd < 0)
    diag_error_at(&session->diag, NULL, DIAG_TOOL, "a file in memory cannot be made: %s", strerror(errno));
  else if (pack_into(session, &plans, weights, fd, TFM_WEIGHTS_HEADER_BYTES + plans.forward->program.weights_bytes))
    return fd;
  if (fd >= 0) close(fd);
  return -1;
}

// ---- weights that were packed before ----

static bool refuse(Session *session, const char *message) {
  diag_error_at(&session->diag, NULL, DIAG_LIBRARY, "%s", message); /* it names the file */
  return false;
}

/* Whether the file is there, whole as far as its header tells, and has the library's layout. */
static bool check_packed(Session *session, const char *path) {
  const LibraryFile *library = session->library;
  InFile file;
  tfm_weights_header header;
  tfm_error error;
  if (!in_file_open(&file, &session->diag, path, true)) {
    diag_note(&session->diag, NO_SPAN, "%s needs weights: make them with `tfmc pack`, or name a file with --weights",
              library->path);
    return false;
  }
  in_file_close(&file);
  if (tfm_weights_file_read(path, &header, &error) != TFM_OK) return refuse(session, error.message);
  if (memcmp(header.layout, library->layout, sizeof header.layout) == 0) return true;
  return refuse(
      session,
      arena_printf(session->arena,
                   "%s was packed for the model %s with the layout %s; %s has the model %s and wants the layout %s",
                   path, header.model, layout_text(session->arena, header.layout), library->path, library->prefix,
                   layout_text(session->arena, library->layout)));
}

/* The file that the runtime will open; "" if it opens none. NULL after an error. */
static const char *find_packed(Session *session, const WeightSource *weights) {
  const LibraryFile *library = session->library;
  const char *path = weights->packed_path;
  if (!path && (library->weights_embedded || !library->weights_bytes)) return "";
  if (!path) path = file_beside(session->arena, library->path, ".tfmw");
  return check_packed(session, path) ? path : NULL;
}

// ---- making it ----

/* The same words as for a .tfm file. What the compiler does not know is left to the runtime. */
static bool check_cpu(Session *session) {
  const LibraryFile *library = session->library;
  const TargetInfo *least = target_find(library->instruction_sets[library->n_instruction_sets - 1]);
  const char *missing = least ? host_missing(least) : NULL;
  if (missing)
    diag_error_at(&session->diag, library->path, DIAG_CPU, "this CPU cannot run %s code: it lacks %s", least->name,
                  missing);
  return !missing;
}

static tfm_model *open_model(Session *session, const char *weights) {
  tfm_error error = {0};
  tfm_model *model;
  if (tfm_model_open(session->library->path, weights, &model, &error) == TFM_OK) return model;
  error.place = session->library->path;
  compiled_report(session, &error);
  return NULL;
}

tfm_model *library_open(Session *session, Graph *graph, WeightSource *weights) {
  if (!check_cpu(session)) return NULL;
  int fd = weights->is_packed ? -1 : pack_nameless(session, graph, weights);
  if (!weights->is_packed && fd < 0) return NULL;
  const char *path = fd < 0 ? find_packed(session, weights) : arena_printf(session->arena, "/proc/self/fd/%d", fd);
  tfm_model *model = path ? open_model(session, *path ? path : NULL) : NULL;
  if (fd >= 0) close(fd); /* it is mapped */
  return model;
}

static bool make_context(LibraryEngine *engine, Session *session) {
  tfm_error error;
  tfm_context_options options = compiled_options(session);
  engine->base.program = tfm_model_program(engine->model);
  if (tfm_model_context(engine->model, &options, &engine->base.context, &error) == TFM_OK) return true;
  error.place = session->library->path;
  compiled_report(session, &error);
  return false;
}

static Engine *create(Session *session, Graph *graph, WeightSource *weights) {
  LibraryEngine *engine = ARENA_NEW(session->arena, LibraryEngine);
  engine->model = library_open(session, graph, weights);
  if (engine->model && make_context(engine, session)) return &engine->base;
  destroy(&engine->base);
  return NULL;
}

const EngineKind engine_library = {"library", create, compiled_run, destroy};
