/* The inner loops of the probe, one per instruction set. `lanes`: floats in a vector, 4, 8 or 16; the CPU must have it. */
#ifndef TFM_DRIVER_PROBE_LOOPS_H
#define TFM_DRIVER_PROBE_LOOPS_H

#include <stddef.h>
#include <stdint.h>

enum { PROBE_CHAINS = 12, PROBE_LINE = 512 };

/* n steps of PROBE_CHAINS independent chains of vector multiply-adds. The results keep compilers from dropping the work. */
float probe_chains(uint32_t lanes, int64_t n);
/* Reads `size` bytes, a multiple of PROBE_LINE, once, in order; `bytes` is 64-byte aligned. */
uint64_t probe_read(uint32_t lanes, const char *bytes, size_t size);

#endif
