/* In: results of chains. Out: their sum. See partial_sums.h.
 *
 * A chain of FMAs loses a bit for every four times that it gets longer, and more where all terms have one sign. So k is
 * cut into chains of TFM_CHAIN steps, counted from k = 0, each of which starts from 0, and their results are added in
 * pairs, pairs of pairs and so on. Zeros at the end of k change nothing.
 *
 * What waits is a binary counter: after chain number i there is a block for each bit of i + 1 that is set, the sum of
 * as many chains as the bit says. The block in c is the one of most chains, and the last waiting one of fewest.
 *
 *   chain     c          waiting
 *   0         0
 *   1         0+1
 *   2         0+1        2
 *   3         0+1+2+3
 *   4         0+1+2+3    4 */
#include "steps/partial_sums.h"

#include <string.h>

#include "tfm/abi/program.h"

/* At least one: without any steps it is a chain of zeroes. */
int64_t partial_chains(int64_t k) { return k <= TFM_CHAIN ? 1 : (k - 1) / TFM_CHAIN + 1; }

/* The bits of the last chain's number. */
int64_t partial_levels(int64_t k) {
  int64_t levels = 0;
  for (int64_t last = partial_chains(k) - 1; last > 0; last >>= 1) levels++;
  return levels;
}

int64_t partial_blocks(int64_t chain) {
  int64_t blocks = 0;
  for (; chain; chain &= chain - 1) blocks++;
  return blocks;
}

float *partial_block(const PartialSums *sums, int64_t block, int64_t *stride) {
  *stride = block ? sums->stride : sums->c_stride;
  return block ? sums->waiting + (block - 1) * sums->level : sums->c;
}

float *partial_place(const PartialSums *sums, int64_t chain, int64_t *stride) {
  return partial_block(sums, partial_blocks(chain), stride);
}

/* Vectors are said here: libraries are compiled with -O2, which would make none of a loop of any length. */
typedef float Floats __attribute__((vector_size(16)));
enum { LANES = sizeof(Floats) / sizeof(float) };

static void take_row(float *to, const float *from, int64_t columns, bool adds) {
  int64_t j = 0;
  for (; j + LANES <= columns; j += LANES) {
    Floats sum, more;
    memcpy(&more, from + j, sizeof more);
    if (adds) {
      memcpy(&sum, to + j, sizeof sum);
      more += sum;
    }
    memcpy(to + j, &more, sizeof more);
  }
  for (; j < columns; j++) to[j] = adds ? to[j] + from[j] : from[j];
}

void partial_take(const PartialSums *sums, int64_t block, bool adds) {
  int64_t to_stride, from_stride;
  float *to = partial_block(sums, block - 1, &to_stride);
  const float *from = partial_block(sums, block, &from_stride);
  for (int64_t i = 0; i < sums->rows; i++, to += to_stride, from += from_stride)
    take_row(to, from, sums->columns, adds);
}

/* Blocks of equally many chains become one, as bits are carried. After the last chain all that are left are
 * added, those of fewest chains first, just as if chains of zeros followed. */
void partial_add(const PartialSums *sums, int64_t chain, int64_t chains) {
  int64_t block = partial_blocks(chain);
  for (int64_t carry = chain; carry & 1; carry >>= 1) partial_take(sums, block--, true);
  if (chain + 1 < chains) return;
  while (block > 0) partial_take(sums, block--, true);
}
