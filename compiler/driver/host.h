/* Which instruction set code is made for, and how many threads run it. */
#ifndef TFM_DRIVER_HOST_H
#define TFM_DRIVER_HOST_H

#include "driver/session.h"
#include "target/target.h"

/* The target of -march=. `must_run`: this CPU has to be able to run it. NULL after an error. */
const TargetInfo *host_choose_target(Session *session, bool must_run);

typedef struct HostInfo {
  const char *cpu;
  const TargetInfo *target; /* the best that it can run */
  int cpus;
} HostInfo;

HostInfo host_info(Arena *arena);
/* What the host lacks to run code for `target`, or NULL. */
const char *host_missing(const TargetInfo *target);

#endif
