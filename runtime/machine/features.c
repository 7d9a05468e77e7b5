/* In: masks of features, as compiled programs hold them. Out: the family of this machine; the name of what is missing.
 * Refuses nothing. The rows of a family (tfm/abi/features_x86.def) say what its bits are called; how they are found is
 * its file's. */
#include "machine/features.h"

#include <stddef.h>

#include "machine/machine.h"

#define FAMILY_NAMED(name) TFM_FAMILY_##name
#define FAMILY_OF(name) FAMILY_NAMED(name)

tfm_family cpu_family(void) { return FAMILY_OF(MACHINE_FAMILY); }

#ifdef MACHINE_FEATURES
/* By bit, in place: a table of pointers would cost every library a relocation for each. */
static const char names[][12] = {
#define FEATURE(name, bit, text, ...) [bit] = text,
#include MACHINE_FEATURES
};

const char *cpu_missing(uint32_t needed, uint32_t features) {
  const uint32_t missing = needed & ~features;
  if (!missing) return NULL;
  const size_t bit = (size_t)__builtin_ctz(missing);
  return bit < sizeof names / sizeof *names ? names[bit] : "what this runtime does not know";
}
#else
uint32_t cpu_features(void) { return 0; }

const char *cpu_missing(uint32_t needed, uint32_t features) {
  return needed & ~features ? "what this runtime does not know" : NULL;
}
#endif
