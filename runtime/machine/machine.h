/* The machine that this code is compiled for, the family of its CPU in one header each: what it is called, how its
 * floating-point mode is set, how a thread waits, how a line is fetched to be written, whether it reads ahead. Who
 * needs an instruction that not all machines have asks here; no other header or file of the runtime names a family. */
#ifndef TFM_RUNTIME_MACHINE_H
#define TFM_RUNTIME_MACHINE_H

#if defined(__x86_64__)
#include "machine/x86.h"
#elif defined(__wasm32__)
#define MACHINE_FAMILY WASM32 /* else nothing is known: there is no mode to set, and one thread */
#include "machine/portable.h"
#elif defined(__aarch64__)
#include "machine/aarch64.h"
#elif defined(__riscv_flen) && __riscv_xlen == 64
#include "machine/riscv64.h"
#else
#include "machine/portable.h"
#endif

#endif
