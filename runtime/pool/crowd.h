/* Crowd: whether other work has the CPUs of a pool's threads.
 *
 * In: of each run how long it took, how long its threads waited for each other, and how often the system has taken a
 * CPU from the caller. Out: whether runs are the caller's alone for now. On a machine that others use too, a barrier
 * waits for whichever thread has no CPU, and several threads can be many times slower than one; no number depends on
 * how many there are.
 *
 * Threads that wait for more than half of the time that a run takes give little: alone, the caller does in less than
 * twice the time what they do, and if it shares its CPU with others it waits for nobody. That alone is no proof, since
 * steps may be too uneven for several threads; but where CPUs are idle nobody takes one from the caller, and nothing
 * changes. After a rest all threads are tried again; each rest in a row is twice as long, so that trying costs little
 * where others stay. */
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

/* ns */
static const int64_t crowd_between_judgements = 20000000, crowd_first_rest = 200000000, crowd_longest_rest = 3200000000;

/* Of a run of several threads. True: it is time to judge. */
static inline bool crowd_note(Crowd *crowd, int32_t threads, int64_t lasted, int64_t waited) {
  crowd->lasted += lasted * (threads - 1);
  crowd->waited += waited;
  return crowd->lasted >= crowd_between_judgements;
}

/* `interrupted`: how often the caller has lost its CPU, ever. */
static inline void crowd_judge(Crowd *crowd, int64_t now, int64_t interrupted) {
  const bool is_crowded = crowd->waited > crowd->lasted / 2 && interrupted - crowd->interrupted >= 2;
  crowd->rest = !is_crowded ? 0 : crowd->rest ? crowd->rest * 2 : crowd_first_rest;
  if (crowd->rest > crowd_longest_rest) crowd->rest = crowd_longest_rest;
  crowd->alone_until = is_crowded ? now + crowd->rest : 0;
  crowd->lasted = crowd->waited = 0;
  crowd->interrupted = interrupted;
}

/* The threads of the next run, of as many as it is worth. */
static inline int32_t crowd_threads(Crowd *crowd, int32_t worth, int64_t now) {
  if (crowd->alone_until && now < crowd->alone_until) return 1;
  crowd->alone_until = 0;
  return worth;
}

#endif
