/* Philox4x32-10 for TOGETHER counters at a time, in functions for TARGET; formulas.c includes this once for each width.
 * A word lies in 64 bits: MULTIPLY, an instruction of x86, looks at the low half alone. WIDEN and NARROW go from words
 * side by side to such ones and back. Every loop over sets is unrolled, so that all of them stay in registers. */
#define JOINED(name, n) name##_##n
#define NAMED(name, n) JOINED(name, n)
#define Words NAMED(Words, TOGETHER)
#define Halves NAMED(Halves, TOGETHER)
#define Lanes NAMED(Lanes, TOGETHER)
typedef uint64_t Words __attribute__((vector_size(TOGETHER * 8)));
typedef uint32_t Halves __attribute__((vector_size(TOGETHER * 4)));
typedef uint32_t Lanes __attribute__((vector_size(TOGETHER * 8)));

/* What is kept of n groups of four elements, a byte each. The arrays have room for a multiple of TOGETHER * ABREAST:
 * a round is a chain of three instructions, so several sets of counters take each round together. */
TARGET static void NAMED(draw_groups, TOGETHER)(const MaskDrawing *d, const Groups *groups, int64_t n, uint32_t *kept) {
  const Words p_factor = (Words){0} + 0xD2511F53u, q_factor = (Words){0} + 0xCD9E8D57u;
  const Lanes limit = (Lanes){0} + d->limit;
  for (int64_t at = 0; at < n; at += TOGETHER * ABREAST) {
    Words a[ABREAST], b[ABREAST], c[ABREAST], e[ABREAST];
#pragma GCC unroll 4
    for (int i = 0; i < ABREAST; i++) {
      Halves column, row, item;
      memcpy(&column, &groups->column[at + i * TOGETHER], sizeof column);
      memcpy(&row, &groups->row[at + i * TOGETHER], sizeof row);
      memcpy(&item, &groups->item[at + i * TOGETHER], sizeof item);
      a[i] = WIDEN(column), b[i] = WIDEN(row), c[i] = WIDEN(item), e[i] = (Words){0} + d->place.step;
    }
#pragma GCC unroll 1
    for (int round = 0; round < ROUNDS; round++) {
      const Words k = (Words){0} + d->keys[round][0], m = (Words){0} + d->keys[round][1];
#pragma GCC unroll 4
      for (int i = 0; i < ABREAST; i++) {
        const Words p = MULTIPLY(a[i], p_factor), q = MULTIPLY(c[i], q_factor);
        a[i] = (q >> 32) ^ b[i] ^ k;
        b[i] = q;
        c[i] = (p >> 32) ^ e[i] ^ m;
        e[i] = p;
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < ABREAST; i++) {
      /* The low halves are words; each says its byte. What the high halves say is left behind by NARROW. */
      const Lanes words[4] = {(Lanes)a[i], (Lanes)b[i], (Lanes)c[i], (Lanes)e[i]};
      Lanes said = {0};
#pragma GCC unroll 4
      for (int word = 0; word < 4; word++) said |= (Lanes)(words[word] >= limit) & 1u << 8 * word;
      const Halves bytes = NARROW((Words)said);
      memcpy(kept + at + i * TOGETHER, &bytes, sizeof bytes);
    }
  }
}

#undef TOGETHER
#undef ABREAST
#undef TARGET
#undef MULTIPLY
#undef WIDEN
#undef NARROW
#undef JOINED
#undef NAMED
#undef Words
#undef Halves
#undef Lanes
