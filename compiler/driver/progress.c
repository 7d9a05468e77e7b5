#include "driver/progress.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { FIRST_MILLISECONDS = 500, NEXT_MILLISECONDS = 100, BAR_CELLS = 30 };

struct Progress {
  const char *what;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t ended;
  bool is_ended;
  atomic_size_t done, all;
};

static void draw(Progress *progress, int milliseconds) {
  size_t done = atomic_load(&progress->done), all = atomic_load(&progress->all);
  char bar[BAR_CELLS + 1] = "";
  size_t cells = all ? done * BAR_CELLS / all : 0;
  if (all) {
    memset(bar, ' ', BAR_CELLS);
    memset(bar, '#', cells < BAR_CELLS ? cells : BAR_CELLS);
  }
  if (all) fprintf(stderr, "\r%s [%s] %zu/%zu\033[K", progress->what, bar, done, all);
  else fprintf(stderr, "\r%s, %.1f s\033[K", progress->what, milliseconds / 1000.0);
  fflush(stderr);
}

static struct timespec in_milliseconds(int milliseconds) {
  struct timespec at;
  clock_gettime(CLOCK_REALTIME, &at);
  at.tv_nsec += (long)milliseconds * 1000000;
  at.tv_sec += at.tv_nsec / 1000000000;
  at.tv_nsec %= 1000000000;
  return at;
}

static void *show(void *context) {
  Progress *progress = context;
  int elapsed = 0, wait = FIRST_MILLISECONDS;
  pthread_mutex_lock(&progress->lock);
  while (!progress->is_ended) {
    struct timespec until = in_milliseconds(wait);
    if (pthread_cond_timedwait(&progress->ended, &progress->lock, &until) != ETIMEDOUT) continue;
    elapsed += wait;
    wait = NEXT_MILLISECONDS;
    draw(progress, elapsed);
  }
  pthread_mutex_unlock(&progress->lock);
  if (elapsed) fputs("\r\033[K", stderr);
  return NULL;
}

Progress *progress_begin(Session *session, const char *what) {
  if (option_given(&session->options, OPTION_QUIET) || !isatty(STDERR_FILENO)) return NULL;
  Progress *progress = ARENA_NEW(session->arena, Progress);
  progress->what = what;
  pthread_mutex_init(&progress->lock, NULL);
  pthread_cond_init(&progress->ended, NULL);
  return pthread_create(&progress->thread, NULL, show, progress) == 0 ? progress : NULL;
}

void progress_set(Progress *progress, size_t done, size_t all) {
  if (!progress) return;
  atomic_store(&progress->done, done);
  atomic_store(&progress->all, all);
}

void progress_end(Progress *progress) {
  if (!progress) return;
  pthread_mutex_lock(&progress->lock);
  progress->is_ended = true;
  pthread_cond_signal(&progress->ended);
  pthread_mutex_unlock(&progress->lock);
  pthread_join(progress->thread, NULL);
  pthread_cond_destroy(&progress->ended);
  pthread_mutex_destroy(&progress->lock);
}
