/* The features of an AArch64 CPU. In: the rows of features_aarch64.def, and what the system says in the auxiliary
 * vector, which names what all CPUs of the machine have. Out: their bits. Refuses nothing. */
#include "tfm/abi/cpu.h"

#if defined(__aarch64__)
#include <stddef.h>
#include <sys/auxv.h>

uint32_t cpu_features(void) {
  static const struct {
    uint32_t feature;
    uint8_t entry, bit;
  } rows[] = {
#define FEATURE(name, feature, text, llvm, entry, bit) {CPU_##name, entry, bit},
#include "tfm/abi/features_aarch64.def"
  };
  uint32_t features = 0;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (getauxval(rows[i].entry) >> rows[i].bit & 1) features |= rows[i].feature;
  return features;
}
#endif
