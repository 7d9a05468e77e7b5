/* The worker: compiles for libtfm. What comes in and goes out is said in worker.h.
 *
 * It runs as `tfmc worker`, in a process of its own that libtfm starts, or as a function of tfm-worker.so, in the
 * process of the caller. The result is a file of parts (api/parts.h) whose header is written last, so whoever started
 * the worker never takes half a result for a whole one, however it ended. */
#define _GNU_SOURCE /* newlocale, uselocale, prctl's constants */
#include "cli/worker.h"

#include <errno.h>
#include <fenv.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aot/aot.h"
#include "aot/packed_weights.h"
#include "api/parts.h"
#include "api/api_run.h"
#include "base/check.h"
#include "cli/commands/commands.h"
#include "cli/cli_model.h"
#include "cli/cli_training.h"
#include "diag/render.h"
#include "tfm/abi/weights_file.h"
#include "weights/files.h"

typedef struct Worker {
  Session *session;
  int output;
  TargetInfo target;
  LibraryModel model;
  LibraryPlans plans;
  TrainingModel training; /* without --training: zeroes */
  TrainingParts trains;
  WeightSource *weights; /* NULL: none are packed */
  PartsHeader header;
} Worker;

static bool fail(Worker *w, const char *what) {
  diag_error_at(&w->session->diag, NULL, DIAG_FILE, "%s: %s", what, strerror(errno));
  return false;
}

// ---- what comes in ----

/* Reads the text that stands for the file, if there is one. pread: the position of the descriptor is shared with the
 * process that made it. */
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

/* The same way as `tfmc compile`, for one instruction set. */
static bool make_plans(Worker *w) {
  Session *session = w->session;
  Graph *graph = model_load(session);
  if (!graph) return false;
  const bool trains = option_given(&session->options, OPTION_TRAINING);
  const TargetInfo *target = &w->target;
  const CompileRequest request = compile_request(session, NULL);
  if (!trains && !(w->weights = session_weights(session, graph))) return false;
  return make_library_model(session, graph, &w->model) && (!trains || training_of_library(session, &w->training)) &&
         training_plans(&request, &w->model, &w->training, (PlansOfSets){&target, &w->plans, 1}, &w->trains);
}

// ---- what goes out ----

/* Writes all bytes or fails; a signal may interrupt a write, and a full disk may shorten it. */
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

/* The range that begins at `offset`; the next one can begin where it ends. An empty one is nowhere: the file may end
 * before. */
static PartsRange range_at(uint64_t *offset, uint64_t size) {
  if (!size) return (PartsRange){0, 0};
  PartsRange range = {*offset, size};
  *offset += (size + PARTS_ALIGNMENT - 1) / PARTS_ALIGNMENT * PARTS_ALIGNMENT;
  return range;
}

static bool write_objects(Worker *w, uint64_t *offset) {
  Session *session = w->session;
  const bool is_stripped = option_given(&session->options, OPTION_STRIP_SOURCE);
  const LibraryParts parts = {.plans = &w->plans, .n_plans = 1, .version = TFM_VERSION,
                              .cache = cache_of_user(session->arena),
                              .text = is_stripped ? NULL : session->model,
                              .generation = w->model.generation,
                              .not_incremental = w->model.not_incremental, .ragged = w->model.ragged,
                              .ragged_sources = w->model.ragged_sources,
                              .training = w->trains.table ? &w->trains : NULL};
  const BytesList objects = aot_objects(session->arena, &session->diag, &parts);
  CHECK(objects.n <= PARTS_MAX_OBJECTS, "%zu objects", objects.n);
  w->header.n_objects = (uint32_t)objects.n;
  bool ok = objects.items != NULL;
  for (uint32_t i = 0; ok && i < w->header.n_objects; i++) {
    w->header.objects[i] = range_at(offset, objects.items[i].size);
    ok = write_at(w, objects.items[i].data, objects.items[i].size, w->header.objects[i].offset);
  }
  return ok;
}

/* The weights are packed into the file itself, through a shared mapping, so they are in memory once. */
static bool write_weights(Worker *w, uint64_t *offset) {
  Session *session = w->session;
  const tfm_program *program = &w->plans.forward->program;
  uint64_t bytes = program->weights_bytes;
  w->header.weights = range_at(offset, TFM_WEIGHTS_HEADER_BYTES + bytes);
  size_t size = w->header.weights.size;
  if (ftruncate(w->output, (off_t)*offset)) return fail(w, "the result cannot be written");
  const size_t before = w->header.weights.offset % (size_t)sysconf(_SC_PAGESIZE); /* pages may be larger than ranges' */
  char *pages = mmap(NULL, before + size, PROT_READ | PROT_WRITE, MAP_SHARED, w->output,
                     (off_t)(w->header.weights.offset - before));
  if (pages == MAP_FAILED) {
    diag_error_at(&session->diag, NULL, DIAG_MEMORY, "not enough memory for %zu bytes of weights", size);
    return false;
  }
  char *page = pages + before, *packed = page + TFM_WEIGHTS_HEADER_BYTES;
  const CompileRequest request = compile_request(session, w->weights);
  bool ok = compile_pack_to(&request, &w->plans, packed);
  uint8_t layout[16];
  library_layout(session->arena, &w->plans, layout);
  if (ok) weights_file_header(page, model_prefix(session->arena, program->name), layout, packed, bytes);
  munmap(pages, before + size);
  return ok;
}

/* The weights that training begins with, if there are any, as blocks of a trainer. Nothing is compiled for it. */
static bool write_beginning(Worker *w, uint64_t *offset) {
  Training t = {.session = w->session};
  const TrainingWish wish = {.is_training = true, .fills = true, .only_weights = true};
  w->header.trains = 1;
  if (!option_given(&w->session->options, OPTION_WEIGHTS)) return true;
  bool ok = training_begin(&t, w->session, &wish);
  const uint8_t *drawn = ok ? training_drawn(&t) : NULL;
  if (ok) {
    const tfm_trainer_weights all = tfm_trainer_all_weights(trainer_made(t.trainer));
    w->header.weights = range_at(offset, all.trained_bytes);
    w->header.frozen = range_at(offset, all.frozen_bytes);
    ok = write_at(w, all.trained, all.trained_bytes, w->header.weights.offset) &&
         write_at(w, all.frozen, all.frozen_bytes, w->header.frozen.offset);
    if (drawn) w->header.drawn = range_at(offset, t.graphs->parameters.n);
    ok = ok && (!drawn || write_at(w, drawn, t.graphs->parameters.n, w->header.drawn.offset));
  }
  trainer_free(t.trainer);
  return ok;
}

static bool write_parts(Worker *w) {
  Arena *arena = w->session->arena;
  uint64_t offset = PARTS_ALIGNMENT;
  const bool trains = w->trains.table != NULL;
  const char *prefix = model_prefix(arena, w->plans.forward->program.name);
  const char *symbol = arena_printf(arena, "%s_%s", prefix, trains ? "training" : "program");
  w->header.symbol = range_at(&offset, strlen(symbol) + 1);
  return write_at(w, symbol, strlen(symbol) + 1, w->header.symbol.offset) && write_objects(w, &offset) &&
         (trains ? write_beginning(w, &offset) : write_weights(w, &offset));
}

/* The first error in one line: "model.tfm:3:7: unknown name 'x' [E0202]". It has to be enough for a C program that
 * shows nothing else. */
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

/* Weights that were given in memory have no name of their own; their descriptor would mean nothing to the user. */
static void rename_weights(Session *session) {
  const char *path = option_text(&session->options, OPTION_WEIGHTS, "");
  if (strncmp(path, "/proc/self/fd/", 14) != 0) return;
  for (size_t i = 0; i < session->diag.messages.n; i++) {
    DiagMessage *message = &session->diag.messages.items[i];
    if (message->place && strcmp(message->place, path) == 0) message->place = "weights";
  }
}

/* What says that the file is one of parts, and whose. */
static void mark(PartsHeader *header) {
  memcpy(header->magic, PARTS_MAGIC, sizeof header->magic);
  header->form = PARTS_FORM;
  snprintf(header->version, sizeof header->version, "%s", TFM_VERSION);
}

/* After an error the header holds the exit code and the first message, and nothing else. */
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
  mark(&w.header);
  if (!ok) print_message(&w, w.header.message, sizeof w.header.message);
  write_at(&w, &w.header, sizeof w.header, 0); /* last: who finds it finds all */
}

// ---- a .tfmm file ----

/* Copies the parts, from a file in memory, to a file that is there as a whole or not at all. */
static bool copy_parts(Worker *w, const char *path) {
  struct stat info;
  if (fstat(w->output, &info)) return fail(w, "the parts cannot be read");
  void *data = mmap(NULL, (size_t)info.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, w->output, 0);
  if (data == MAP_FAILED) return fail(w, "the parts cannot be mapped");
  const Mapping parts = {data, (size_t)info.st_size};
  memcpy(data, &w->header, sizeof w->header);
  ((PartsHeader *)data)->hash = parts_hash(&parts);
  OutFile *file = ARENA_NEW(w->session->arena, OutFile);
  bool ok = out_file_open(file, &w->session->diag, path);
  if (ok) out_file_write(file, data, parts.size);
  ok = ok && out_file_commit(file);
  munmap(data, parts.size);
  return ok;
}

bool worker_save(Session *session, const LibraryModel *model, const LibraryPlans *plans, WeightSource *weights,
                 const char *path) {
  Worker w = {.session = session,
              .output = memfd_create("tfmm", MFD_CLOEXEC),
              .model = *model,
              .plans = *plans,
              .weights = weights};
  if (w.output < 0) return fail(&w, "a temporary file cannot be made");
  const bool ok = write_parts(&w);
  mark(&w.header);
  session->wrote_output = ok && copy_parts(&w, path);
  close(w.output);
  return session->wrote_output;
}

// ---- tfmc worker: the process ----

/* With TFM_TEST_FATAL in the environment it fails on purpose, for tests of the programs that start it. */

enum { EXIT_MEMORY = 4, LEAST_MEMORY = 64 << 20 };

/* LLVM's C++ code aborts where it cannot even allocate its exception. Whether memory was the reason shows in whether
 * 64 MiB more can be had; only functions that are safe in a signal handler are called. */
static void at_abort(int number) {
  static const char message[] = "out of memory\n";
  if (mmap(NULL, LEAST_MEMORY, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) {
    if (write(STDERR_FILENO, message, sizeof message - 1) > 0) _exit(EXIT_MEMORY);
  }
  signal(number, SIG_DFL);
  raise(number);
}

/* The limit holds from here on: the loader has done its work, so whatever fails now is ours to report. */
static void limit_memory(const Session *session) {
  rlim_t bytes = (rlim_t)option_count(&session->options, OPTION_MEMORY_LIMIT, 0);
  struct rlimit limit = {bytes, bytes};
  if (bytes) setrlimit(RLIMIT_AS, &limit);
  signal(SIGABRT, at_abort);
}

/* The child must not outlive its parent: nobody would be left to read the result. */
void command_worker(Session *session) {
  prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody is left to read the result */
  signal(SIGXFSZ, SIG_IGN); /* a limit on the size of files is an error of the write */
  const char *failure = getenv("TFM_TEST_FATAL"), *features = NULL;
  if (failure && strcmp(failure, "llvm") == 0) features = "-64bit"; /* LLVM ends a process that wants this */
  if (failure && strcmp(failure, "hang") == 0) pause();
  limit_memory(session);
  worker_run(session, STDIN_FILENO, STDOUT_FILENO, features);
}

// ---- the worker as a function of a library of its own, for callers of libtfm that want no child process ----

/* Nothing of the caller's thread is used or changed: the work is done by a thread with a large stack, the C locale, the
 * default modes of floating point, and all signals blocked. */

enum { STACK_BYTES = 64 << 20 };

typedef struct Work {
  int n_arguments;
  char **arguments;
  int text, output, messages;
  int exit_code;
} Work;

static void write_messages(Session *session, int file) {
  StrBuf text = strbuf_new(session->arena);
  render_json(&text, &session->diag);
  for (size_t done = 0; done < text.length;) {
    ssize_t n = write(file, text.text + done, text.length - done);
    if (n <= 0) return;
    done += (size_t)n;
  }
}

static void *do_work(void *context) {
  Work *work = context;
  fesetenv(FE_DFL_ENV);
  locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  uselocale(plain);
  Arena *arena = arena_create();
  Session session = {.arena = arena, .diag = diag_new(arena), .names = map_new(arena)};
  if (options_parse(arena, &session.diag, work->n_arguments, work->arguments, &session.options))
    worker_run(&session, work->text, work->output, NULL);
  write_messages(&session, work->messages);
  work->exit_code = session.diag.exit_code;
  arena_destroy(arena);
  uselocale(LC_GLOBAL_LOCALE);
  freelocale(plain);
  return NULL;
}

/* Waits for the thread to end. Signals are blocked while it is created, because it inherits the mask: no handler of
 * the host may run on it. */
int tfm_worker(int n_arguments, char **arguments, int text, int output, int messages) {
  Work work = {n_arguments, arguments, text, output, messages, EXIT_MEMORY};
  pthread_attr_t attributes;
  pthread_t thread;
  sigset_t all, before;
  sigfillset(&all);
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failed = pthread_create(&thread, &attributes, do_work, &work);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  if (!failed) pthread_join(thread, NULL);
  return work.exit_code;
}
