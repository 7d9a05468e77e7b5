/* Philox4x32-10 for TOGETHER counters at a time, in functions for TARGET; formulas.c includes this once for each width.
 * A word lies in 64 bits: MULTIPLY, an instruction of x86, looks at the low half alone. */
#define JOINED(name, n) name##_##n
#define NAMED(name, n) JOINED(name, n)
#define Words NAMED(Words, TOGETHER)
#define Halves NAMED(Halves, TOGETHER)
typedef uint64_t Words __attribute__((vector_size(TOGETHER * 8)));
typedef uint32_t Halves __attribute__((vector_size(TOGETHER * 4)));

/* What is kept of n groups of four elements, a byte each. The arrays have room for a multiple of TOGETHER. */
TARGET static void NAMED(draw_groups, TOGETHER)(const MaskDrawing *d, const Groups *groups, int64_t n, uint32_t *kept) {
  const Words p_factor = (Words){0} + 0xD2511F53u, q_factor = (Words){0} + 0xCD9E8D57u, low = (Words){0} + UINT32_MAX;
  for (int64_t at = 0; at < n; at += TOGETHER) {
    Halves column, row, item;
    memcpy(&column, &groups->column[at], sizeof column);
    memcpy(&row, &groups->row[at], sizeof row);
    memcpy(&item, &groups->item[at], sizeof item);
    Words a = __builtin_convertvector(column, Words), b = __builtin_convertvector(row, Words);
    Words c = __builtin_convertvector(item, Words), e = (Words){0} + d->place.step;
    uint32_t k[2] = {d->key[0], d->key[1]};
#pragma GCC unroll 10
    for (int round = 0; round < 10; round++) {
      const Words p = MULTIPLY(a, p_factor), q = MULTIPLY(c, q_factor);
      a = (q >> 32) ^ b ^ k[0];
      b = q;
      c = (p >> 32) ^ e ^ k[1];
      e = p;
      k[0] += 0x9E3779B9u;
      k[1] += 0xBB67AE85u;
    }
    /* What is below the limit borrows from the high half, all of it: so each word says its byte. */
    const Words left_out = (((a & low) - d->limit) & (uint64_t)1 << 32) | (((b & low) - d->limit) & (uint64_t)1 << 40) |
                           (((c & low) - d->limit) & (uint64_t)1 << 48) | (((e & low) - d->limit) & (uint64_t)1 << 56);
    const Halves bytes = __builtin_convertvector(left_out >> 32, Halves) ^ 0x01010101u;
    memcpy(kept + at, &bytes, sizeof bytes);
  }
}

#undef TOGETHER
#undef TARGET
#undef MULTIPLY
#undef JOINED
#undef NAMED
#undef Words
#undef Halves
