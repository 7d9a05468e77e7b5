/* CPUs: their families, and what one of a family may have beyond what all of it have. There is one detection, that of
 * runtime/machine, which the compiler asks too: what it compiles for this machine, this machine opens. */
#ifndef TFM_ABI_CPU_H
#define TFM_ABI_CPU_H

#include <stdint.h>

/* Weight files and tables of programs are little-endian, and have pointers in 8 bytes; modules of WebAssembly alone
 * make room for that themselves. */
#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tfm: big-endian machines are not supported"
#endif
#if UINTPTR_MAX < UINT64_MAX && !defined(__wasm__)
#error "tfm: 32-bit machines are not supported"
#endif

typedef enum tfm_family {
  TFM_FAMILY_ANY, /* code that a C compiler made for the machine on which it is */
#define FAMILY(name, number, ...) TFM_FAMILY_##name = number,
#include "tfm/abi/families.def"
} tfm_family;

enum {
#define FEATURE(name, bit, ...) CPU_##name = 1 << bit,
#include "tfm/abi/features_x86.def"
#define FEATURE(name, bit, ...) CPU_##name = 1 << bit,
#include "tfm/abi/features_aarch64.def"
#define FEATURE(name, bit, ...) CPU_##name = 1 << bit,
#include "tfm/abi/features_riscv64.def"
  CPU_AMX = CPU_AMX_TILE | CPU_AMX_INT8
};

/* Of this machine; TFM_FAMILY_ANY: one that no code is made for. */
tfm_family cpu_family(void);
/* The bits of features that this CPU has and the system lets programs use: for tile registers it is asked to. */
uint32_t cpu_features(void);

/* How many threads to make when the caller asks for `asked`; 0 or less: TFM_NUM_THREADS, else the CPUs this process
 * may use. */
int32_t pool_threads_wanted(int32_t asked);

#endif
