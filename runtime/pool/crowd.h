/* Crowd: whether other work has the CPUs of a pool's threads.
 *
 * In: of each run how long it took, how long its threads waited for each other, and how often one of them lost its CPU
 * while it waited. Out: whether runs are the caller's alone for now. On a machine that others use too, a barrier waits
 * for whichever thread has no CPU, and several threads can be many times slower than one; no number depends on how many
 * there are.
 *
 * Threads give little if they wait so long that the caller alone would take less than one and a half times as long
 * for what they do; and if it shares its CPU with others it waits for nobody. That alone is no proof, since steps may
 * be too uneven for several threads; but a thread that waits gives its CPU to whoever wants it, and where CPUs are idle
 * nobody does, and nothing changes. After a rest all threads are tried again; each rest in a row is twice as long, so
 * that trying costs little where others stay. No system is asked: a run makes no calls but those that wait. */
#ifndef TFM_RUNTIME_CROWD_H
#define TFM_RUNTIME_CROWD_H

#include <stdbool.h>
#include <stdint.h>

#include "machine/tuning.h"

typedef struct Waits { /* of a thread in a run, or of all */
  int64_t ns;
  int32_t lost; /* how often somebody else had its CPU while it waited */
} Waits;

typedef struct Crowd {
  int64_t lasted, worked; /* ns since the last judgement: of runs; of all their threads, but for waiting */
  int64_t lost;           /* the CPU, since then */
  int64_t alone_until;    /* ns of the clock; 0: runs have all their threads */
  int64_t rest;           /* ns that the caller was alone last; 0: it was not */
} Crowd;

static const int64_t crowd_ns_of_ms = 1000000;

/* Of a run of several threads. True: it is time to judge. */
static inline bool crowd_note(Crowd *crowd, int32_t threads, int64_t lasted, Waits waits) {
  crowd->lasted += lasted;
  crowd->worked += lasted * threads - waits.ns;
  crowd->lost += waits.lost;
  return crowd->lasted >= NS_OF_A_JUDGEMENT;
}

static inline void crowd_judge(Crowd *crowd, int64_t now) {
  const bool is_crowded = 2 * crowd->worked < 3 * crowd->lasted && crowd->lost >= 2;
  crowd->rest = !is_crowded ? 0 : crowd->rest ? crowd->rest * 2 : MS_ALONE_FIRST * crowd_ns_of_ms;
  if (crowd->rest > MS_ALONE_LONGEST * crowd_ns_of_ms) crowd->rest = MS_ALONE_LONGEST * crowd_ns_of_ms;
  crowd->alone_until = is_crowded ? now + crowd->rest : 0;
  crowd->lasted = crowd->worked = crowd->lost = 0;
}

/* The threads of the next run, of as many as it is worth. */
static inline int32_t crowd_threads(Crowd *crowd, int32_t worth, int64_t now) {
  if (crowd->alone_until && now < crowd->alone_until) return 1;
  crowd->alone_until = 0;
  return worth;
}

#endif
