/* arc4random for wheels: libstdc++ calls it where it was built against glibc 2.36, and users' glibc may be older. Only a
 * random seed would come from it, and nothing of ours asks for one. Refused: a system without random numbers. */
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

uint32_t arc4random(void) {
  uint32_t number;
  if (getrandom(&number, sizeof number, 0) != sizeof number) abort();
  return number;
}
