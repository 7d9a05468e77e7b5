/* The compiler is run, in a child process or in this one, and what it left behind becomes a status or the parts. See
 * api_run.h.
 *
 * Every way to end is told apart: a result, a refusal with its message, too little memory, a deadline, a crash, a
 * program that is no tfmc. The message says which, because the host's log is all that a user of libtfm ever sees. */
#define _GNU_SOURCE /* pipe2, posix_spawn_file_actions_addclosefrom_np, dladdr, memmem */
#include "api/api_run.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

// ---- a child process ----

extern char **environ;

enum { CHILD_LIFE = CHILD_TENSORS + 1, CHILD_DESCRIPTORS, MOST_WAIT_MS = 50 };

/* A pipe whose writing end only the child has: the reading end tells when it is gone. */
static tfm_status make_life_line(int line[2], tfm_error *error) {
  int low[2];
  if (pipe2(low, O_CLOEXEC)) return fault_of_system(error, TFM_E_ENV, errno, "no pipe can be made");
  for (int i = 0; i < 2; i++) {
    line[i] = fcntl(low[i], F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR);
    close(low[i]);
  }
  if (line[0] >= 0 && line[1] >= 0) return TFM_OK;
  tfm_status status = fault_of_system(error, TFM_E_ENV, errno, "no pipe can be made");
  for (int i = 0; i < 2; i++)
    if (line[i] >= 0) close(line[i]);
  return status;
}

// ---- starting it ----

/* Descriptors below CHILD_DESCRIPTORS are the request's; all others are closed in the child, whatever the host has
 * open. 0, or an error number. */
static int describe_files(const Request *request, int life, posix_spawn_file_actions_t *actions) {
  const int files[CHILD_DESCRIPTORS] = {request->text, request->output, request->messages, request->tensors, life};
  int failed = posix_spawn_file_actions_init(actions);
  if (failed) return failed;
  for (int i = 0; !failed && i < CHILD_DESCRIPTORS; i++)
    if (files[i] >= 0) failed = posix_spawn_file_actions_adddup2(actions, files[i], i);
  if (!failed) failed = posix_spawn_file_actions_addclosefrom_np(actions, CHILD_DESCRIPTORS);
  if (failed) posix_spawn_file_actions_destroy(actions);
  return failed;
}

/* The child begins with no signal blocked or ignored: an ignored SIGCHLD or a blocked SIGTERM of the host must not be
 * inherited. */
static int describe_signals(posix_spawnattr_t *attributes) {
  int failed = posix_spawnattr_init(attributes);
  if (failed) return failed;
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(attributes, &none);
  posix_spawnattr_setsigdefault(attributes, &all);
  posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  return 0;
}

/* posix_spawnp and not fork: it copies no page tables of a large host, and it is safe among threads. */
static tfm_status start(const char *compiler, const Request *request, int life, pid_t *child, tfm_error *error) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  int failed = describe_files(request, life, &actions);
  if (!failed) {
    failed = describe_signals(&attributes);
    if (!failed) {
      failed = posix_spawnp(child, compiler, &actions, &attributes, request->arguments, environ);
      posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
  }
  if (!failed) return TFM_OK;
  char what[400];
  snprintf(what, sizeof what, "the compiler '%.250s' cannot be started (the variable TFM_COMPILER can name it)",
           compiler);
  return fault_of_system(error, failed == ENOMEM ? TFM_E_NOMEM : TFM_E_ENV, failed, what);
}

// ---- waiting for it ----

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Whether the child is gone; then `end` says how. A host that ignores SIGCHLD has its children forgotten by the
 * system; waitpid fails then, which also means that the child is gone. */
static bool has_ended(pid_t child, int flags, ChildEnd *end) {
  pid_t got;
  do got = waitpid(child, &end->wait_status, flags);
  while (got < 0 && errno == EINTR);
  end->is_known = got == child;
  return got != 0;
}

/* The pipe wakes us at once when the child ends. If this process forked meanwhile, that other child holds a copy of
 * the writing end and keeps the pipe open, so the compiler itself is asked every MOST_WAIT_MS, too. So is the caller,
 * and at once after a signal, which ends poll. */
static void wait_for(pid_t child, int life, const tfm_compile_options *options, ChildEnd *end) {
  const int64_t begin = now_ms(), deadline_ms = options->deadline_ms;
  while (!(end->was_stopped = options->stop && options->stop(options->stop_user))) {
    int64_t left = deadline_ms ? deadline_ms - (now_ms() - begin) : MOST_WAIT_MS;
    end->was_too_slow = left <= 0;
    if (end->was_too_slow) break;
    struct pollfd event = {.fd = life};
    if (poll(&event, 1, (int)(left < MOST_WAIT_MS ? left : MOST_WAIT_MS)) > 0) {
      has_ended(child, 0, end);
      return;
    }
    if (has_ended(child, WNOHANG, end)) return;
  }
  kill(child, SIGKILL);
  has_ended(child, 0, end);
}

tfm_status child_run(const char *compiler, const Request *request, const tfm_compile_options *options, ChildEnd *end,
                     tfm_error *error) {
  *end = (ChildEnd){0};
  int life[2];
  tfm_status status = make_life_line(life, error);
  if (status != TFM_OK) return status;
  pid_t child;
  status = start(compiler, request, life[1], &child, error);
  close(life[1]);
  if (status == TFM_OK) wait_for(child, life[0], options, end);
  close(life[0]);
  return status;
}

// ---- this process ----

/* dladdr on a function of this library gives the file that it was loaded from; the rest of the installation is found
 * from there, so an installation can be moved. */
void installed_path(const char *relative, char *path, size_t size) {
  tfm_status (*function)(const tfm_compile_options *, tfm_compiled **, tfm_error *) = tfm_compile;
  void *own;
  memcpy(&own, &function, sizeof own);
  Dl_info info;
  const char *slash = dladdr(own, &info) && info.dli_fname ? strrchr(info.dli_fname, '/') : NULL;
  int folder = slash ? (int)(slash - info.dli_fname) : 1;
  int length = snprintf(path, size, "%.*s/%s", folder, slash ? info.dli_fname : ".", relative);
  if (length < 0 || (size_t)length >= size) *path = '\0';
}

/* RTLD_LOCAL keeps the symbols of LLVM away from the host, which may have an LLVM of its own; RTLD_NODELETE keeps it
 * loaded, because LLVM cannot be unloaded safely. */
tfm_status in_process_run(const Request *request, int *exit_code, tfm_error *error) {
  char path[MOST_PATH];
  installed_path(TFM_WORKER_FROM_LIBRARY, path, sizeof path);
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  void *symbol = library ? dlsym(library, "tfm_worker") : NULL;
  if (!symbol) return api_fault(error, TFM_E_ENV, "the compiler cannot be loaded into this process: %s", dlerror());
  WorkerFunction worker;
  memcpy(&worker, &symbol, sizeof worker);
  *exit_code = worker(request->n_arguments, request->arguments, request->text, request->output, request->messages);
  return TFM_OK;
}

// ---- the outcome ----

enum { EXIT_MODEL = 1, EXIT_USAGE = 2, EXIT_ENVIRONMENT = 3, EXIT_MEMORY = 4, LAST_LINE = 300 };

// ---- messages ----

/* The line lies in a mapping that must not be written, and the caller wants a C string, so it is copied. */
static tfm_status pass_on(const tfm_compile_options *options, const char *line, size_t length, tfm_error *error) {
  char *copy = malloc(length + 1);
  if (!copy) return api_fault(error, TFM_E_NOMEM, "not enough memory for the compiler's messages");
  memcpy(copy, line, length);
  copy[length] = '\0';
  options->message(options->message_user, copy);
  free(copy);
  return TFM_OK;
}

/* Each line of JSON goes to the caller. `last` gets the last line of any other kind: what LLVM, the loader or a
 * sanitizer print before they end the process. */
static tfm_status read_messages(const Mapping *messages, const tfm_compile_options *options, char last[LAST_LINE],
                                tfm_error *error) {
  const char *at = messages->data, *end = at ? at + messages->size : at;
  tfm_status status = TFM_OK;
  while (status == TFM_OK && at < end) {
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    const char *stop = newline ? newline : end;
    if (*at == '{' && options->message) status = pass_on(options, at, (size_t)(stop - at), error);
    else if (*at != '{' && stop > at)
      snprintf(last, LAST_LINE, "%.*s", (int)(stop - at < LAST_LINE ? stop - at : LAST_LINE), at);
    at = stop + 1;
  }
  return status;
}

// ---- how it ended ----

/* A failing allocation shows in different words, depending on who met it: tfmc, the C++ runtime of LLVM, the loader. */
static bool is_about_memory(const Mapping *messages) {
  static const char *const words[] = {"out of memory", "bad_alloc", "Cannot allocate memory", "failed to map segment"};
  for (size_t i = 0; messages->data && i < sizeof words / sizeof *words; i++)
    if (memmem(messages->data, messages->size, words[i], strlen(words[i]))) return true;
  return false;
}

/* The status of a child that left no complete header, most specific reason first. SIGKILL comes from the OOM killer:
 * the deadline was ruled out before. */
static tfm_status untimely(const ChildEnd *end, const Mapping *messages, const char *last, tfm_error *error) {
  int code = end->is_known && WIFEXITED(end->wait_status) ? WEXITSTATUS(end->wait_status) : -1;
  int sign = end->is_known && WIFSIGNALED(end->wait_status) ? WTERMSIG(end->wait_status) : 0;
  const char *separator = *last ? ": " : "";
  if (code == EXIT_MEMORY || is_about_memory(messages))
    return api_fault(error, TFM_E_NOMEM, "not enough memory for compiling%s%s", separator, last);
  if (sign == SIGKILL)
    return api_fault(error, TFM_E_NOMEM, "the compiler was killed, probably because the system ran out of memory");
  if (code == EXIT_ENVIRONMENT)
    return api_fault(error, TFM_E_ENV, "the compiler could not write its result%s%s", separator, last);
  if (code == EXIT_USAGE)
    return api_fault(error, TFM_E_USAGE, "the compiler refuses the request: %.400s",
                     messages->data ? messages->data : "");
  if (sign) return api_fault(error, TFM_E_INTERNAL, "the compiler died of signal %d%s%s", sign, separator, last);
  return api_fault(error, TFM_E_INTERNAL, "the compiler ended with %d and without a result%s%s", code, separator, last);
}

static tfm_status status_of(int32_t exit_code) {
  static const tfm_status statuses[] = {[EXIT_MODEL] = TFM_E_INPUT, [EXIT_USAGE] = TFM_E_USAGE,
                                        [EXIT_ENVIRONMENT] = TFM_E_ENV, [EXIT_MEMORY] = TFM_E_NOMEM};
  return exit_code >= EXIT_MODEL && exit_code <= EXIT_MEMORY ? statuses[exit_code] : TFM_E_INTERNAL;
}

// ---- the parts ----

static bool is_within(const Mapping *parts, const PartsRange *range) {
  return range->offset % PARTS_ALIGNMENT == 0 && range->offset <= parts->size &&
         range->size <= parts->size - range->offset;
}

/* The texts of the header are used as C strings, so each must have its NUL. */
static bool is_whole(const Mapping *parts) {
  const PartsHeader *header = (const PartsHeader *)(const void *)parts->data;
  return parts->size >= sizeof *header && memcmp(header->magic, PARTS_MAGIC, sizeof header->magic) == 0 &&
         memchr(header->message, '\0', sizeof header->message) && memchr(header->version, '\0', sizeof header->version);
}

static bool ranges_are_sound(const Mapping *parts, const PartsHeader *header) {
  if (header->n_objects > PARTS_MAX_OBJECTS || !is_within(parts, &header->symbol) ||
      !is_within(parts, &header->weights) || !is_within(parts, &header->frozen) || !is_within(parts, &header->drawn))
    return false;
  for (uint32_t i = 0; i < header->n_objects; i++)
    if (!is_within(parts, &header->objects[i])) return false;
  return header->symbol.size && parts->data[header->symbol.offset + header->symbol.size - 1] == '\0';
}

bool parts_are_whole(const Mapping *parts) {
  return is_whole(parts) && ranges_are_sound(parts, (const PartsHeader *)(const void *)parts->data);
}

/* XXH3 of the whole file but this number: damaged code would crash the process, and a damaged weight would give other
 * results without a word. It reads some 10 GB a second. */
uint64_t parts_hash(const Mapping *parts) {
  const size_t at = offsetof(PartsHeader, hash), behind = at + sizeof(uint64_t);
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  XXH3_64bits_update(&state, parts->data, at);
  XXH3_64bits_update(&state, parts->data + behind, parts->size - behind);
  return XXH3_64bits_digest(&state) | 1; /* 0 stands for none */
}

/* The version is compared before anything else is read: the layout of the parts may change with every version. */
static tfm_status judge(const Mapping *parts, tfm_error *error) {
  const PartsHeader *header = (const PartsHeader *)(const void *)parts->data;
  if (header->form != PARTS_FORM || strcmp(header->version, TFM_VERSION) != 0)
    return api_fault(error, TFM_E_ENV, "the compiler is tfmc %s, this library is libtfm " TFM_VERSION, header->version);
  if (header->exit_code) return api_fault(error, status_of(header->exit_code), "%s", header->message);
  if (!ranges_are_sound(parts, header))
    return api_fault(error, TFM_E_INTERNAL, "the compiler left an incomplete result");
  return TFM_OK;
}

tfm_status outcome_read(const Request *request, const tfm_compile_options *options, const ChildEnd *end, Mapping *parts,
                        tfm_error *error) {
  Mapping messages = {0};
  char last[LAST_LINE] = "";
  *parts = (Mapping){0};
  tfm_status status = nameless_map(request->messages, &messages, error);
  if (status == TFM_OK) status = read_messages(&messages, options, last, error);
  if (status == TFM_OK && end->was_too_slow)
    status = api_fault(error, TFM_E_CANCELLED, "compiling took longer than %lld ms", (long long)options->deadline_ms);
  if (status == TFM_OK && end->was_stopped) status = api_fault(error, TFM_E_CANCELLED, "compiling was stopped");
  if (status == TFM_OK) status = nameless_map(request->output, parts, error);
  if (status == TFM_OK) status = is_whole(parts) ? judge(parts, error) : untimely(end, &messages, last, error);
  if (status != TFM_OK) mapping_free(parts);
  mapping_free(&messages);
  return status;
}
