#define _GNU_SOURCE /* memfd_create, mkostemp */
/* In: objects in memory. Out: what the C compiler links from them. See link.h. A C compiler is used and not a linker,
 * because it knows where the system's libraries are. */
#include "aot/link.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "aot/runtime_archives.h"
#include "base/whole_io.h"
#include "target/relocations.h"

extern char **environ;

enum { MAX_LINES = 12, MAX_LINE = 400 }; /* of the compiler's messages: the first faults are those that matter */

typedef struct Linking {
  Arena *arena;
  Diag *diag;
  const char *compiler;
  VEC(char *) arguments;
  VEC(int) files; /* descriptors that the compiler inherits */
} Linking;

static bool fail(Linking *l, const char *what) {
  diag_error_at(l->diag, NULL, DIAG_TOOL, "%s: %s", what, strerror(errno));
  return false;
}

static void argument(Linking *l, const char *text) { vec_push(l->arena, &l->arguments, arena_strdup(l->arena, text)); }

// ---- what the compiler reads ----

/* Puts bytes into a file without a name and returns its path for the compiler, or NULL. The descriptor is inherited
 * (no close-on-exec), so /proc/self/fd/N means the same file in the child. */
static const char *nameless_file(Linking *l, Bytes bytes) {
  int fd = memfd_create("tfmc", 0);
  if (fd >= 0) vec_push(l->arena, &l->files, fd);
  if (fd >= 0 && write_all(fd, bytes.data, bytes.size)) return arena_printf(l->arena, "/proc/self/fd/%d", fd);
  fail(l, "a temporary file cannot be written");
  return NULL;
}

static bool add_files(Linking *l, const Bytes *files, size_t n) {
  for (size_t i = 0; i < n; i++) {
    const char *path = nameless_file(l, files[i]);
    if (!path) return false;
    argument(l, path);
  }
  return true;
}

static void close_files(Linking *l) {
  for (size_t i = 0; i < l->files.n; i++) close(l->files.items[i]);
}

// ---- running it ----

/* Returns what a file holds, from its beginning; NULL data if it cannot be read. */
static Bytes read_whole(Arena *arena, int fd) {
  struct stat info;
  if (fstat(fd, &info) || info.st_size < 0) return (Bytes){0};
  size_t size = (size_t)info.st_size, done = 0;
  char *data = arena_alloc(arena, size + 1);
  for (ssize_t n; done < size; done += (size_t)n)
    if ((n = pread(fd, data + done, size - done, (off_t)done)) <= 0) return (Bytes){0};
  return (Bytes){data, size};
}

/* Starts the compiler with the signal mask that this process had before it held interruptions back. */
static bool start(Linking *l, int messages, const sigset_t *signals, pid_t *child) {
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, signals);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, messages, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, messages, STDERR_FILENO);
  vec_push(l->arena, &l->arguments, NULL);
  errno = posix_spawnp(child, l->compiler, &actions, &attributes, l->arguments.items, environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (!errno) return true;
  diag_error_at(l->diag, NULL, DIAG_TOOL,
                "the C compiler '%s' cannot be started: %s (it links the library; choose one with --cc, or "
                "--cc=none for a library that tfmc writes itself)",
                l->compiler, strerror(errno));
  return false;
}

/* Shows the first lines that the compiler printed, each as a note. */
static void note_lines(Linking *l, Bytes text) {
  const char *at = text.data, *end = at ? at + text.size : at;
  for (int i = 0; i < MAX_LINES && at < end; i++) {
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    const char *stop = newline ? newline : end;
    diag_note(l->diag, NO_SPAN, "%.*s", stop - at > MAX_LINE ? MAX_LINE : (int)(stop - at), at);
    at = stop + 1;
  }
}

/* Runs the compiler to its end. Its messages go to memory and are shown only if it fails. */
static bool run(Linking *l, const sigset_t *signals) {
  int messages = memfd_create("tfmc messages", MFD_CLOEXEC), status = 0;
  pid_t child;
  if (messages < 0) return fail(l, "a temporary file cannot be made");
  bool ended = start(l, messages, signals, &child);
  while (ended && waitpid(child, &status, 0) < 0) ended = errno == EINTR;
  bool ok = ended && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (ended && !ok) {
    Bytes text = read_whole(l->arena, messages);
    diag_error_at(l->diag, NULL, DIAG_TOOL, "the C compiler '%s' could not link the library", l->compiler);
    note_lines(l, text);
    diag_note(l->diag, NO_SPAN, "with --cc=none tfmc writes the library itself");
  }
  close(messages);
  return ok;
}

/* Links into a temporary file and reads it. The linker needs a file with a name: it may replace or map what it writes.
 * Interruptions are blocked here until the file has been removed, but not in the child: one from the terminal ends the
 * child at once, and this process a moment later. */
static Bytes run_to_bytes(Linking *l) {
  const char *folder = getenv("TMPDIR");
  char *path = arena_printf(l->arena, "%s/tfmc-XXXXXX", folder && *folder ? folder : "/tmp");
  sigset_t interruptions, before;
  sigemptyset(&interruptions);
  sigaddset(&interruptions, SIGINT);
  sigaddset(&interruptions, SIGTERM);
  sigaddset(&interruptions, SIGHUP);
  sigprocmask(SIG_BLOCK, &interruptions, &before);
  Bytes result = {0};
  int fd = mkostemp(path, O_CLOEXEC);
  if (fd < 0) fail(l, "no temporary file can be made");
  else close(fd);
  argument(l, "-o");
  argument(l, path);
  if (fd >= 0 && run(l, &before)) {
    int out = open(path, O_RDONLY | O_CLOEXEC);
    if (out >= 0) result = read_whole(l->arena, out);
    if (!result.data) fail(l, path);
    if (out >= 0) close(out);
  }
  if (fd >= 0) unlink(path);
  sigprocmask(SIG_SETMASK, &before, NULL);
  return result;
}

// ---- libraries and objects ----

bool compiler_is_there(const char *name) {
  const char *folders = getenv("PATH");
  for (const char *at = folders ? folders : "/bin:/usr/bin"; *at; at += *at == ':') {
    char path[4096];
    const int length = (int)strcspn(at, ":");
    const int n = snprintf(path, sizeof path, "%.*s/%s", length, at, name);
    struct stat info;
    if (length && n < (int)sizeof path && access(path, X_OK) == 0 && !stat(path, &info) && S_ISREG(info.st_mode))
      return true;
    at += length;
  }
  return false;
}

static Linking begin(Arena *arena, Diag *diag, const char *compiler) {
  Linking l = {.arena = arena, .diag = diag, .compiler = compiler};
  argument(&l, compiler);
  return l;
}

Bytes link_library(Arena *arena, Diag *diag, const char *compiler, const char *prefix, const char *soname,
                   BytesList objects) {
  /* relro, now: pointers are relocated when the library is loaded, and are read-only from then on. noexecstack: no
   * page is writable and executable. noseparate-code: code and tables share pages, instead of up to three pages of
   * padding
   * between them. gc-sections: only what the exported functions reach of the runtime. build-id=none: equal input
   * gives equal
   * bytes. nostartfiles: the library has no constructors. no-undefined: a missing symbol is an error now and not on the
   * user's machine. */
  static const char *const flags[] = {"-shared",
                                      "-s",
                                      "-nostartfiles",
                                      "-Wl,-z,relro,-z,now,-z,noexecstack,--as-needed",
                                      "-Wl,-z,noseparate-code",
                                      "-Wl,--gc-sections",
                                      "-Wl,--build-id=none",
                                      "-Wl,--no-undefined"};
  const Elf64_Ehdr *elf = objects.items[0].data;
  RuntimeArchive runtime;
  if (!runtime_of_family(diag, family_of_elf(elf->e_machine), &runtime)) return (Bytes){0};
  Linking l = begin(arena, diag, compiler);
  for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) argument(&l, flags[i]);
  argument(&l, arena_printf(arena, "-Wl,-soname,%s", soname));
  const char *script = arena_printf(arena, "{ global: %s_*; local: *; };\n", prefix);
  const char *script_path = nameless_file(&l, (Bytes){script, strlen(script)});
  if (script_path) argument(&l, arena_printf(arena, "-Wl,--version-script=%s", script_path));
  Bytes result = {0};
  if (script_path && add_files(&l, objects.items, objects.n) && add_files(&l, &runtime.objects, 1)) {
    argument(&l, "-lpthread");
    result = run_to_bytes(&l);
  }
  close_files(&l);
  return result;
}

Bytes link_object(Arena *arena, Diag *diag, const char *compiler, const Bytes *objects, size_t n_objects) {
  Linking l = begin(arena, diag, compiler);
  argument(&l, "-r");
  argument(&l, "-nostdlib");
  Bytes result = {0};
  if (add_files(&l, objects, n_objects)) result = run_to_bytes(&l);
  close_files(&l);
  return result;
}
