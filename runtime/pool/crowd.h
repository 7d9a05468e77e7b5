/* Crowd: whether other work has the CPUs of a pool's threads.
 *
 * In: of each run how long it took, how long its threads waited for each other, and how often the system has taken a
 * CPU from the caller. Out: whether runs are the caller's alone for now. On a machine that others use too, a barrier
 * waits for whichever thread has no CPU, and several threads can be many times slower than one; no number depends on how
 * many there are. On a machine with idle CPUs nobody is interrupted, and nothing changes. */
#ifndef TFM_RUNTIME_CROWD_H
#define TFM_RUNTIME_CROWD_H

#include <stdbool.h>
#include <stdint.h>

typedef struct Crowd {
  int64_t lasted, waited; /* ns since the last judgement: of runs, for each thread but one; of waiting */
  int64_t interrupted;    /* then */
  int64_t alone_until;    /* ns of the clock; 0: runs have all their threads */
  int64_t rest;           /* ns that the caller was alone last; 0: it was not */
} Crowd;

/* Of a run of several threads. True: it is time to judge. */
bool crowd_note(Crowd *crowd, int32_t threads, int64_t lasted, int64_t waited);
/* `interrupted`: how often the caller has lost its CPU, ever. */
void crowd_judge(Crowd *crowd, int64_t now, int64_t interrupted);
/* The threads of the next run, of as many as it is worth. */
int32_t crowd_threads(Crowd *crowd, int32_t worth, int64_t now);

#endif
