/* The worker as a function of a library of its own, for callers of libtfm that want no child process.
 *
 * Nothing of the caller's thread is used or changed: the work is done by a thread with a large stack, the C locale, the
 * default modes of floating point, and all signals blocked. */
#define _GNU_SOURCE /* newlocale, uselocale */
#include <fenv.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "diag/render.h"
#include "driver/worker.h"

enum { STACK_BYTES = 64 << 20, EXIT_MEMORY = 4 };

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
