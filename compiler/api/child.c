#define _GNU_SOURCE /* pipe2, posix_spawn_file_actions_addclosefrom_np */
#include "api/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "api/fault.h"
#include "api/nameless.h"

extern char **environ;

enum { CHILD_LIFE = CHILD_TENSORS + 1, CHILD_DESCRIPTORS, MOST_WAIT_MS = 100 };

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
  snprintf(what, sizeof what, "the compiler '%.250s' cannot be started (the variable TFM_COMPILER can name it)", compiler);
  return fault_of_system(error, failed == ENOMEM ? TFM_E_NOMEM : TFM_E_ENV, failed, what);
}

// ---- waiting for it ----

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Whether the child is gone; then `end` says how. */
static bool has_ended(pid_t child, int flags, ChildEnd *end) {
  pid_t got;
  do got = waitpid(child, &end->wait_status, flags);
  while (got < 0 && errno == EINTR);
  end->is_known = got == child;
  return got != 0;
}

/* The pipe wakes us at once; a copy of its writing end in a process that this one forked meanwhile would keep it open,
 * so the child itself is asked now and then too. */
static void wait_for(pid_t child, int life, int64_t deadline_ms, ChildEnd *end) {
  int64_t begin = now_ms();
  for (;;) {
    int64_t left = deadline_ms ? deadline_ms - (now_ms() - begin) : MOST_WAIT_MS;
    if (left <= 0) break;
    struct pollfd event = {.fd = life};
    if (poll(&event, 1, (int)(left < MOST_WAIT_MS ? left : MOST_WAIT_MS)) > 0) {
      has_ended(child, 0, end);
      return;
    }
    if (has_ended(child, WNOHANG, end)) return;
  }
  end->was_too_slow = true;
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
  if (status == TFM_OK) wait_for(child, life[0], options->deadline_ms, end);
  close(life[0]);
  return status;
}
