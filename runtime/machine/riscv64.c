/* The features of a RISC-V CPU, and the functions that gcc calls where RV64GC has no instruction. In: what the system
 * says (riscv_hwprobe, AT_HWCAP), and the registers vlenb and vtype. Out: bits of features_riscv64.def.
 *
 * Systems before Linux 6.4 do not know riscv_hwprobe, and on some of them V stands for version 0.7 of vectors, whose
 * code is another one: there the CPU is asked for a type of vectors that version 0.7 refuses. Nothing is executed that
 * a CPU without vectors lacks. */
#define _DEFAULT_SOURCE /* syscall */
#include "tfm/abi/cpu.h"

#if defined(__riscv) && __riscv_xlen == 64
#include <stdbool.h>
#include <stddef.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "machine/riscv64.h"

enum { SYS_RISCV_HWPROBE = 258, KEY_EXTENSIONS = 4, HAS_V = 1 << 2, HWCAP_V = 1 << ('V' - 'A') };

/* vsetvli t0, zero, e8, m1, ta, ma: bits that version 0.7 has no meaning for, so that it sets the highest bit of vtype.
 * As a number, since code for vectors is not what this file is compiled for. */
static bool has_version_1(void) {
  int64_t type;
  __asm__ volatile(".4byte 0x0c0072d7\n\tcsrr %0, 0xc21" : "=r"(type) : : "t0");
  return type >= 0;
}

static bool has_vectors(void) {
  struct {
    int64_t key;
    uint64_t value;
  } pair = {.key = KEY_EXTENSIONS};
  if (syscall(SYS_RISCV_HWPROBE, &pair, 1, 0, NULL, 0) == 0)
    return pair.key == KEY_EXTENSIONS && pair.value & HAS_V;
  return getauxval(AT_HWCAP) & HWCAP_V && has_version_1();
}

uint32_t cpu_features(void) {
  enum { BYTES_OF_256 = 32 };
  uint64_t bytes;
  if (!has_vectors()) return 0;
  __asm__ volatile("csrr %0, 0xc22" : "=r"(bytes)); /* vlenb */
  return CPU_RISCV_V | (bytes >= BYTES_OF_256 ? CPU_RISCV_ZVL256B : 0);
}

// ---- what gcc calls: they would be of libgcc, which libraries do not link ----

#define OF_GCC __attribute__((visibility("hidden")))
OF_GCC int __ctzdi2(uint64_t x);
OF_GCC int __clzdi2(uint64_t x);
OF_GCC uint32_t __bswapsi2(uint32_t x);
OF_GCC uint64_t __bswapdi2(uint64_t x);

/* Of 0 there is no answer. */
int __ctzdi2(uint64_t x) {
  int n = 0;
  for (int half = 32; half; half /= 2) {
    if (x & ((UINT64_C(1) << half) - 1)) continue;
    n += half;
    x >>= half;
  }
  return n;
}

int __clzdi2(uint64_t x) {
  int n = 0;
  for (int half = 32; half; half /= 2) {
    if (x >> (64 - half)) continue;
    n += half;
    x <<= half;
  }
  return n;
}

uint64_t __bswapdi2(uint64_t x) {
  x = (x & UINT64_C(0x00ff00ff00ff00ff)) << 8 | (x >> 8 & UINT64_C(0x00ff00ff00ff00ff));
  x = (x & UINT64_C(0x0000ffff0000ffff)) << 16 | (x >> 16 & UINT64_C(0x0000ffff0000ffff));
  return x << 32 | x >> 32;
}

uint32_t __bswapsi2(uint32_t x) { return (uint32_t)(__bswapdi2(x) >> 32); }
#endif
