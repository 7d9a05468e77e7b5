#include "driver/worker.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aot/aot.h"
#include "aot/packed_weights.h"
#include "api/parts.h"
#include "driver/host.h"
#include "driver/passes_options.h"
#include "tfm/weights_file.h"

typedef struct Worker {
  Session *session;
  int output;
  TargetInfo target;
  LibraryModel model;
  LibraryPlans plans;
  WeightSource *weights; /* NULL after an error */
  PartsHeader header;
} Worker;

static bool fail(Worker *w, const char *what) {
  diag_error_at(&w->session->diag, NULL, DIAG_FILE, "%s: %s", what, strerror(errno));
  return false;
}

// ---- what comes in ----

/* The text that stands for the file. */
static bool read_text(Worker *w, int text) {
  const Options *options = &w->session->options;
  if (options->files.n < 2) return true;
  struct stat status;
  if (fstat(text, &status)) return fail(w, "the source text cannot be read");
  size_t size = (size_t)status.st_size;
  char *bytes = arena_alloc(w->session->arena, size + 1);
  if (pread(text, bytes, size, 0) != (ssize_t)size) return fail(w, "the source text cannot be read");
  w->session->text = bytes;
  w->session->text_size = size;
  return true;
}

static bool make_plans(Worker *w) {
  Session *session = w->session;
  Graph *graph = model_load(session);
  if (!graph) return false;
  w->weights = session_weights(session, graph);
  CompileRequest request = compile_request(session, NULL);
  request.target = &w->target;
  return w->weights && make_library_model(session, graph, &w->model) && library_model_plan(&request, &w->model, &w->plans);
}

// ---- what goes out ----

static bool write_at(Worker *w, const void *bytes, size_t size, uint64_t offset) {
  for (const char *from = bytes; size;) {
    ssize_t n = pwrite(w->output, from, size, (off_t)offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return fail(w, "the result cannot be written");
    from += n;
    offset += (uint64_t)n;
    size -= (size_t)n;
  }
  return true;
}

/* The range that begins at `offset`; the next one can begin where it ends. */
static PartsRange range_at(uint64_t *offset, uint64_t size) {
  PartsRange range = {*offset, size};
  *offset += (size + PARTS_ALIGNMENT - 1) / PARTS_ALIGNMENT * PARTS_ALIGNMENT;
  return range;
}

static bool write_objects(Worker *w, uint64_t *offset) {
  Session *session = w->session;
  AotRequest request = {.plans = &w->plans, .n_plans = 1, .version = TFM_VERSION, .generation = w->model.generation,
                        .not_incremental = w->model.not_incremental, .ragged = w->model.ragged,
                        .ragged_sources = w->model.ragged_sources};
  const Bytes *objects = aot_objects(session->arena, &session->diag, &request);
  w->header.n_objects = objects ? 2 : 0;
  bool ok = objects != NULL;
  for (uint32_t i = 0; ok && i < w->header.n_objects; i++) {
    w->header.objects[i] = range_at(offset, objects[i].size);
    ok = write_at(w, objects[i].data, objects[i].size, w->header.objects[i].offset);
  }
  return ok;
}

/* Packs into the file itself: the weights are in memory once. */
static bool write_weights(Worker *w, uint64_t *offset) {
  Session *session = w->session;
  const tfm_program *program = &w->plans.forward->program;
  uint64_t bytes = program->weights_bytes;
  w->header.weights = range_at(offset, TFM_WEIGHTS_HEADER_BYTES + bytes);
  size_t size = w->header.weights.size;
  if (ftruncate(w->output, (off_t)*offset)) return fail(w, "the result cannot be written");
  char *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, w->output, (off_t)w->header.weights.offset);
  if (page == MAP_FAILED) {
    diag_error_at(&session->diag, NULL, DIAG_MEMORY, "not enough memory for %zu bytes of weights", size);
    return false;
  }
  char *packed = page + TFM_WEIGHTS_HEADER_BYTES;
  const CompileRequest request = compile_request(session, w->weights);
  bool ok = compile_pack_to(&request, &w->plans, packed);
  uint8_t layout[16];
  library_layout(session->arena, &w->plans, layout);
  if (ok) weights_file_header(page, model_prefix(session->arena, program->name), layout, packed, bytes);
  munmap(page, size);
  return ok;
}

static bool write_parts(Worker *w) {
  Arena *arena = w->session->arena;
  uint64_t offset = PARTS_ALIGNMENT;
  const char *symbol = arena_printf(arena, "%s_program", model_prefix(arena, w->plans.forward->program.name));
  w->header.symbol = range_at(&offset, strlen(symbol) + 1);
  return write_at(w, symbol, strlen(symbol) + 1, w->header.symbol.offset) && write_objects(w, &offset) &&
         write_weights(w, &offset);
}

/* "model.tfm:3:7: unknown name 'x' [E0202]" */
static void print_message(Worker *w, char *out, size_t size) {
  Arena *arena = w->session->arena;
  const Diag *diag = &w->session->diag;
  size_t i = 0;
  while (i < diag->messages.n && diag->messages.items[i].severity != DIAG_ERROR) i++;
  if (i == diag->messages.n) return;
  const DiagMessage *message = &diag->messages.items[i];
  const char *place = message->place ? arena_printf(arena, "%s: ", message->place) : "";
  if (message->span.source) {
    SrcPlace at = source_place(message->span.source, message->span.begin);
    place = arena_printf(arena, "%s:%u:%u: ", message->span.source->path, at.line, at.column);
  }
  snprintf(out, size, "%s%s [%s]", place, message->text, diag_id(message->code));
}

/* Weights in memory have no name of their own. */
static void rename_weights(Session *session) {
  const char *path = option_text(&session->options, OPTION_WEIGHTS, "");
  if (strncmp(path, "/proc/self/fd/", 14) != 0) return;
  for (size_t i = 0; i < session->diag.messages.n; i++) {
    DiagMessage *message = &session->diag.messages.items[i];
    if (message->place && strcmp(message->place, path) == 0) message->place = "weights";
  }
}

void worker_run(Session *session, int text, int output, const char *features) {
  Worker w = {.session = session, .output = output};
  const TargetInfo *target = host_choose_target(session, true);
  if (target) {
    w.target = *target;
    if (features) w.target.llvm_features = features;
  }
  bool ok = target && read_text(&w, text) && make_plans(&w) && write_parts(&w);
  weight_source_close(w.weights);
  rename_weights(session);
  if (!ok) w.header = (PartsHeader){.exit_code = session->diag.exit_code};
  memcpy(w.header.magic, PARTS_MAGIC, sizeof w.header.magic);
  w.header.form = PARTS_FORM;
  snprintf(w.header.version, sizeof w.header.version, "%s", TFM_VERSION);
  if (!ok) print_message(&w, w.header.message, sizeof w.header.message);
  write_at(&w, &w.header, sizeof w.header, 0); /* last: who finds it finds all */
}
