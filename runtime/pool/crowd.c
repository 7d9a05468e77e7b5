/* Whether other work has the CPUs. See crowd.h.
 *
 * Threads that wait for more than half of the time that a run takes give little: alone, the caller does in less than
 * twice the time what they do, and if it shares its CPU with others it waits for nobody. That alone is no proof, since
 * steps may be too uneven for several threads; but where CPUs are idle nobody takes one from the caller. After a rest all
 * threads are tried again; each rest in a row is twice as long, so that trying costs little where others stay. */
#include "pool/crowd.h"

#define MS INT64_C(1000000)

static const int64_t between_judgements = 20 * MS, first_rest = 200 * MS, longest_rest = 3200 * MS;

bool crowd_note(Crowd *crowd, int32_t threads, int64_t lasted, int64_t waited) {
  crowd->lasted += lasted * (threads - 1);
  crowd->waited += waited;
  return crowd->lasted >= between_judgements;
}

void crowd_judge(Crowd *crowd, int64_t now, int64_t interrupted) {
  const bool is_crowded = crowd->waited > crowd->lasted / 2 && interrupted - crowd->interrupted >= 2;
  crowd->rest = !is_crowded ? 0 : crowd->rest ? crowd->rest * 2 : first_rest;
  if (crowd->rest > longest_rest) crowd->rest = longest_rest;
  crowd->alone_until = is_crowded ? now + crowd->rest : 0;
  crowd->lasted = crowd->waited = 0;
  crowd->interrupted = interrupted;
}

int32_t crowd_threads(Crowd *crowd, int32_t worth, int64_t now) {
  if (crowd->alone_until && now < crowd->alone_until) return 1;
  crowd->alone_until = 0;
  return worth;
}
