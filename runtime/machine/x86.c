/* The features of an x86-64 CPU, from cpuid and xgetbv. In: the rows of features_x86.def. Out: their bits, and whether
 * the CPU reads ahead by itself. Refuses nothing. A feature whose registers the system does not save counts as missing,
 * and so do tile registers that it does not grant. This file and x86.h are the only ones of the runtime that know
 * cpuid, XCR0, MXCSR and prefetchw. */
#define _DEFAULT_SOURCE /* syscall */
#include "tfm/abi/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "machine/x86.h"
#include "tfm/abi/tiles.h"

/* Bits of XCR0, the register sets that the system saves: those of AVX; of AVX-512 too; of tiles. */
enum { SAVES_ALWAYS = 0, SAVES_AVX = 0x6, SAVES_AVX512 = 0xe6, SAVES_TILES = 3 << 17 };

enum { EAX, EBX, ECX, EDX };

static const struct {
  uint32_t leaf, saves;
  uint8_t subleaf, reg, bit, feature;
} rows[] = {
#define FEATURE(name, feature, text, llvm, leaf, subleaf, reg, bit, saves) {leaf, saves, subleaf, reg, bit, feature},
#include "tfm/abi/features_x86.def"
};

static uint32_t saved_registers(void) {
  enum { USES_XSAVE = 1 << 27 };
  uint32_t a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & USES_XSAVE)) return 0;
  __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
  return a;
}

/* Rows of a leaf stand together: cpuid, which traps in a virtual machine, is asked once for each. */
uint32_t cpu_features(void) {
  const uint32_t saved = saved_registers();
  uint32_t features = 0, registers[4] = {0};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const bool is_other = !i || rows[i].leaf != rows[i - 1].leaf || rows[i].subleaf != rows[i - 1].subleaf;
    if (is_other && !__get_cpuid_count(rows[i].leaf, rows[i].subleaf, &registers[EAX], &registers[EBX],
                                       &registers[ECX], &registers[EDX]))
      registers[EAX] = registers[EBX] = registers[ECX] = registers[EDX] = 0;
    if (registers[rows[i].reg] >> rows[i].bit & 1 && (saved & rows[i].saves) == rows[i].saves)
      features |= UINT32_C(1) << rows[i].feature;
  }
  if (features & CPU_AMX && !tfm_tiles_granted()) features &= ~(uint32_t)CPU_AMX;
  return features;
}

/* Zen 5 was measured; families after it are taken to do as well. */
static bool is_zen_5(void) {
  enum { FIRST_FAMILY = 0x1a };
  uint32_t a, b, c, d;
  if (!__get_cpuid(0, &a, &b, &c, &d) || b != signature_AMD_ebx || c != signature_AMD_ecx || d != signature_AMD_edx ||
      !__get_cpuid(1, &a, &b, &c, &d))
    return false;
  return (a >> 8 & 0xf) + (a >> 20 & 0xff) >= FIRST_FAMILY;
}

bool machine_reads_ahead(void) {
  static _Atomic int32_t known; /* 0: not asked yet */
  int32_t answer = atomic_load_explicit(&known, memory_order_relaxed);
  if (!answer) atomic_store_explicit(&known, answer = is_zen_5() ? 1 : -1, memory_order_relaxed);
  return answer > 0;
}
#endif
