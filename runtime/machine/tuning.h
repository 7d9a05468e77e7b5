/* The numbers that loops of the runtime were tuned with, as constants. There is one page so far, which all families
 * take (tfm/abi/tuning_x86.def); it says of every number its unit, how it was found and what twice as much does. What
 * the compiler assumes of a machine is in compiler/plan/cost.c. Constants of enumerations, so that compilers fold them,
 * and arrays may have them as sizes. */
#ifndef TFM_RUNTIME_TUNING_H
#define TFM_RUNTIME_TUNING_H

#include "machine/machine.h"

enum {
#define TUNING(name, value, ...) name = value,
#include MACHINE_TUNING
};

#endif
