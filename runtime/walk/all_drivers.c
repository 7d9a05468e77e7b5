/* The table of all drivers, for a process that has the whole runtime: programs that are made in it, and tests.
 * Libraries have a table of their own, and this file is not linked into them. In: the rows of drivers.def. Out: a table
 * with all of them. Refuses nothing. */
#include "tfm/abi/drivers.h"

#include <stddef.h>

const tfm_drivers tfm_all_drivers = {
    .of_step =
        {
#define DRIVER(NAME, run) {run, NULL},
#define SCRATCH_DRIVER(NAME, run, scratch) {run, scratch},
#define PART(NAME, Type, member, function)
#include "tfm/abi/drivers.def"
        },
#define DRIVER(NAME, run)
#define SCRATCH_DRIVER(NAME, run, scratch)
#define PART(NAME, Type, member, function) .member = function,
#include "tfm/abi/drivers.def"
};
