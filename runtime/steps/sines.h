/* The columns of one position of a table of sines, for TOGETHER angles at a time, in functions that machine/wide.h
 * marks; step_table.c includes this once for each width. The operations are the same for all, without FMA, so the bits
 * are too. */
#define JOINED(name, n) name##_##n
#define NAMED(name, n) JOINED(name, n)
#define MARKED NAMED(TARGET, TOGETHER)
#define Angles NAMED(Angles, TOGETHER)
#define AngleBits NAMED(AngleBits, TOGETHER)
#define Results NAMED(Results, TOGETHER)
#define CHOOSE(mask, yes, no) (((yes) & (mask)) | ((no) & ~(mask)))
typedef double Angles __attribute__((vector_size(TOGETHER * 8)));
typedef uint64_t AngleBits __attribute__((vector_size(TOGETHER * 8)));
typedef float Results __attribute__((vector_size(TOGETHER * 4)));

/* The highest bit says whether the f32 nearest to the number could be another one for an error of 2^-43: the bits that
 * f32 leaves out, 29 of them, lie near their middle. */
#define MIDDLE ((uint64_t)1 << 28)
#define NEAR ((uint64_t)512)
#define IS_DOUBTFUL(bits) ((((bits) + (MIDDLE + NEAR)) & (2 * MIDDLE - 1)) - 2 * NEAR)

/* c[0] + c[1] x + ... + c[n - 1] x^(n - 1). Vectors are no arguments, which would differ between targets. */
MARKED static inline void NAMED(polynomial, TOGETHER)(const Angles *x, const double *c, int n, Angles *sum) {
  *sum = *x * 0 + c[n - 1];
  for (int i = n - 2; i >= 0; i--) *sum = *sum * *x + c[i];
}

/* The sines and cosines, each rounded to f32, by polynomials of the angle less a multiple of pi/2. Their errors stay
 * below 2^-48 of the result: the first two pieces of pi/2 times q are exact, so what is left has an error of 2^-52 of
 * itself. The highest bit of `refused`: an angle is too large for that, or as good as a multiple, or a result lies so
 * near to the middle between two f32 that sin and cos of the C library must decide. So the f32 are theirs. */
MARKED static inline void NAMED(fast_sines, TOGETHER)(const double *rates, double position, float *sine, float *cosine,
                                                      uint64_t *refused) {
  static const double odd[] = {-0x1.5555555555555p-3, 0x1.1111111110bb1p-7,   -0x1.a01a019e8357dp-13,
                               0x1.71de37961e4c6p-19, -0x1.ae600a926c89ap-26, 0x1.5e0af186af739p-33};
  static const double even[] = {0x1.5555555555437p-5, -0x1.6c16c16b612abp-10, 0x1.a019ff534c684p-16,
                                -0x1.27e25f0776cc1p-22, 0x1.1c81a3b8d462fp-29};
  const uint64_t magnitude = INT64_MAX;
  Angles angle, sum;
  memcpy(&angle, rates, sizeof angle);
  angle *= position;
  Angles shifted = angle * 0x1.45f306dc9c883p-1 + 0x1.8p52, q = shifted - 0x1.8p52;
  Angles r = angle - q * 0x1.921fb544p+0 - q * 0x1.0b4611a6p-34 - q * 0x1.3198a2e037074p-69, square = r * r;
  AngleBits quadrant = (AngleBits)shifted, is_odd = -(quadrant & 1);
  NAMED(polynomial, TOGETHER)(&square, odd, 6, &sum);
  AngleBits small = (AngleBits)(r + r * (sum * square));
  NAMED(polynomial, TOGETHER)(&square, even, 5, &sum);
  AngleBits large = (AngleBits)(1 - square * 0.5 + square * square * sum);
  AngleBits s = CHOOSE(is_odd, large, small) ^ ((quadrant & 2) << 62);
  AngleBits c = CHOOSE(is_odd, small, large) ^ (((quadrant + 1) & 2) << 62);
  Angles left = (Angles)((AngleBits)r & magnitude), size = (Angles)((AngleBits)angle & magnitude);
  AngleBits no = ((AngleBits)(left < 0x1p-20) & (AngleBits)(q != 0)) | (AngleBits)(left < 0x1p-100);
  no |= ~(AngleBits)(size < 0x1p20) | IS_DOUBTFUL(s) | IS_DOUBTFUL(c);
  Results sines = __builtin_convertvector((Angles)s, Results), cosines = __builtin_convertvector((Angles)c, Results);
  memcpy(sine, &sines, sizeof sines);
  memcpy(cosine, &cosines, sizeof cosines);
  memcpy(refused, &no, sizeof no);
}

/* The columns of one position: rotary has all cosines, then all sines; sinusoid all sines, then all cosines, or
 * pairs. */
MARKED void NAMED(table_fill, TOGETHER)(const tfm_table_step *table, const double *rates, double position, char *row) {
  const int64_t angles = angles_of(table), apart = table->interleaved && !table->rotary ? 2 : 1;
  char *sines = row + (table->rotary ? angles : 0) * 4;
  char *cosines = row + (table->rotary ? 0 : apart == 2 ? 1 : angles) * 4;
  const int64_t n_cosines = table->rotary ? angles : table->d / 2;
  for (int64_t i = 0; i < angles; i += TOGETHER) {
    float sine[TOGETHER], cosine[TOGETHER];
    uint64_t refused[TOGETHER], any = 0;
    NAMED(fast_sines, TOGETHER)(rates + i, position, sine, cosine, refused);
    for (int j = 0; j < TOGETHER; j++) any |= refused[j];
    for (int j = 0; any >> 63 && j < TOGETHER; j++)
      if (refused[j] >> 63) {
        const double angle = position * rates[i + j];
        sine[j] = (float)double_sin(angle), cosine[j] = (float)double_cos(angle);
      }
    const int64_t n = least_of(TOGETHER, angles - i), m = least_of(TOGETHER, n_cosines - i);
    if (m == TOGETHER && apart == 2) {
      float pairs[2 * TOGETHER];
      for (int j = 0; j < TOGETHER; j++) pairs[2 * j] = sine[j], pairs[2 * j + 1] = cosine[j];
      memcpy(row + 2 * i * 4, pairs, sizeof pairs);
      continue;
    }
    for (int64_t j = 0; j < n; j++) memcpy(sines + apart * (i + j) * 4, &sine[j], 4);
    for (int64_t j = 0; j < m; j++) memcpy(cosines + apart * (i + j) * 4, &cosine[j], 4);
  }
}

#undef TOGETHER
#undef JOINED
#undef NAMED
#undef MARKED
#undef Angles
#undef AngleBits
#undef Results
#undef CHOOSE
#undef MIDDLE
#undef NEAR
#undef IS_DOUBTFUL
