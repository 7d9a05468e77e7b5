/* Philox4x32-10 for TOGETHER counters at a time, by the operations of machine/wide.h; formulas.c includes this once for
 * each width. A word lies in 64 bits, of which MULTIPLY looks at the low half alone. Every loop over sets is unrolled,
 * so that all of them stay in registers. */
#define JOINED(name, n) name##_##n
#define NAMED(name, n) JOINED(name, n)
#define OF_WIDTH(name) NAMED(name, TOGETHER)
#define Words NAMED(Words, TOGETHER)
#define Halves NAMED(Halves, TOGETHER)
typedef uint64_t Words __attribute__((vector_size(TOGETHER * 8)));
typedef uint32_t Halves __attribute__((vector_size(TOGETHER * 4)));

/* What is kept of n groups of four elements, a byte each. The arrays have room for a multiple of TOGETHER * ABREAST:
 * a round is a chain of three instructions, so several sets of counters take each round together. */
OF_WIDTH(TARGET) static void NAMED(draw_groups, TOGETHER)(const MaskDrawing *d, const Groups *groups, int64_t n,
                                                          uint32_t *kept) {
  const Words p_factor = (Words){0} + 0xD2511F53u, q_factor = (Words){0} + 0xCD9E8D57u, low = (Words){0} + UINT32_MAX;
  for (int64_t at = 0; at < n; at += TOGETHER * ABREAST) {
    Words a[ABREAST], b[ABREAST], c[ABREAST], e[ABREAST];
#pragma GCC unroll 4
    for (int i = 0; i < ABREAST; i++) {
      Halves column, row, item;
      memcpy(&column, &groups->column[at + i * TOGETHER], sizeof column);
      memcpy(&row, &groups->row[at + i * TOGETHER], sizeof row);
      memcpy(&item, &groups->item[at + i * TOGETHER], sizeof item);
      a[i] = OF_WIDTH(WIDEN)(column), b[i] = OF_WIDTH(WIDEN)(row), c[i] = OF_WIDTH(WIDEN)(item);
      e[i] = (Words){0} + d->place.step;
    }
#pragma GCC unroll 1
    for (int round = 0; round < ROUNDS; round++) {
      const Words k = (Words){0} + d->keys[round][0], m = (Words){0} + d->keys[round][1];
#pragma GCC unroll 4
      for (int i = 0; i < ABREAST; i++) {
        const Words p = OF_WIDTH(MULTIPLY)(a[i], p_factor), q = OF_WIDTH(MULTIPLY)(c[i], q_factor);
        a[i] = (q >> 32) ^ b[i] ^ k;
        b[i] = q;
        c[i] = (p >> 32) ^ e[i] ^ m;
        e[i] = p;
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < ABREAST; i++) {
      /* What is below the limit borrows from the high half, all of it: so each word says its byte. */
      const Words left_out =
          (((a[i] & low) - d->limit) & (uint64_t)1 << 32) | (((b[i] & low) - d->limit) & (uint64_t)1 << 40) |
          (((c[i] & low) - d->limit) & (uint64_t)1 << 48) | (((e[i] & low) - d->limit) & (uint64_t)1 << 56);
      const Halves bytes = OF_WIDTH(NARROW)(left_out >> 32) ^ 0x01010101u;
      memcpy(kept + at + i * TOGETHER, &bytes, sizeof bytes);
    }
  }
}

#undef TOGETHER
#undef ABREAST
#undef JOINED
#undef NAMED
#undef OF_WIDTH
#undef Words
#undef Halves
