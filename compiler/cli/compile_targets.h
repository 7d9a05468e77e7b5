/* Targets of `tfmc compile`: the machines of --target and the instruction sets of -march.
 *
 * In: the command line. Out: machines, each with its instruction sets, of which a library is made for each machine.
 * Refused: unknown names, code of two kinds of machines in one library, machines without a runtime in this tfmc,
 * training in modules. */
#ifndef TFM_CLI_COMPILE_TARGETS_H
#define TFM_CLI_COMPILE_TARGETS_H

#include "cli/session.h"
#include "target/target.h"

enum {
  MAX_SETS_OF_LIBRARY = 8,
  MAX_MACHINES = 0
#define FAMILY(...) +1
#include "tfm/abi/families.def"
  ,
  MAX_SETS = MAX_SETS_OF_LIBRARY * MAX_MACHINES
};

typedef struct CompileMachine {
  const FamilyInfo *info;
  uint32_t first, n; /* its instruction sets */
} CompileMachine;

typedef struct CompileTargets {
  const TargetInfo *sets[MAX_SETS]; /* those of a machine together, the best of them first */
  uint32_t n;
  CompileMachine machines[MAX_MACHINES];
  uint32_t n_machines; /* more than one: --target is a list */
} CompileTargets;

/* What --emit asks for, "lib" if it is not given. */
const char *emitted_kind(const Session *session);
/* Whether an object is asked for, which users link themselves. */
bool emits_object(const Session *session);
/* False after an error. */
bool choose_compile_targets(Session *session, CompileTargets *chosen);

#endif
