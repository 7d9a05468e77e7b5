/* Threads that call compiled models at once. Comes behind the header of a model, which has tfm_error. */
#ifndef TFM_TESTS_CALLERS_H
#define TFM_TESTS_CALLERS_H

#include <pthread.h>
#include <stdio.h>

typedef struct Caller {
  pthread_t thread;
  int number, runs;
  int failed; /* what the thread sets: how many of its runs */
  tfm_error error;
} Caller;

/* Starts n threads, each with its Caller, and waits for them; gives how many runs have failed. */
static inline int run_callers(Caller *callers, int n, int runs, void *(*call)(void *caller)) {
  int failed = 0;
  for (int i = 0; i < n; i++) {
    callers[i] = (Caller){.number = i, .runs = runs};
    if (pthread_create(&callers[i].thread, NULL, call, &callers[i])) return 1;
  }
  for (int i = 0; i < n; i++) {
    pthread_join(callers[i].thread, NULL);
    if (callers[i].failed) fprintf(stderr, "caller %d: other results; %s\n", i, callers[i].error.message);
    failed += callers[i].failed;
  }
  return failed;
}

#endif
