/* The caches of a processor, and how many processors this process may use. */
#ifndef TFM_RUNTIME_PROCESSORS_H
#define TFM_RUNTIME_PROCESSORS_H

#include <stdint.h>

/* Bytes of the data cache of level 1 or 2 of one core. It is asked for once; where the system does not say, or says
 * what cannot be, it is that of a usual server. The answer decides in which order products are computed, never what
 * they give. */
int64_t cpu_cache_bytes(int level);

enum { MOST_CPUS = 1023 }; /* that are counted */

/* How many CPUs this process may use: affinity mask and quota of its control groups; at least 1. */
int32_t cpus_available(void);
/* `cpus`, or fewer if a control group allows fewer. `list` is the file that names the groups of the process, `root` the
 * folder of their limits; the tests give files of their own. */
int32_t cpus_of_control_groups(const char *list, const char *root, int32_t cpus);

#endif
