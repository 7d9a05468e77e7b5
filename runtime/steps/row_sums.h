/* Sums of one_row.c for TOGETHER columns at a time, in functions that machine/wide.h marks; it includes this once for
 * each width. Products are exact in f64, so the bits are the same for all. */
#define JOINED(name, n) name##_##n
#define NAMED(name, n) JOINED(name, n)
#define MARKED NAMED(TARGET, TOGETHER)
#define Numbers NAMED(Numbers, TOGETHER)
#define Doubles NAMED(Doubles, TOGETHER)
typedef float Numbers __attribute__((vector_size(TOGETHER * 4)));
typedef double Doubles __attribute__((vector_size(TOGETHER * 8)));

/* Steps from k on, ROWS at a time, as far as there are so many before `end`; returns the next one. */
MARKED static int64_t NAMED(add_rows, TOGETHER)(OneRow *row, int64_t k, int64_t end) {
  const int64_t step = row->y_step, whole = row->columns & -(int64_t)TOGETHER;
  for (; k + ROWS <= end; k += ROWS) {
    const char *x = row->x + k * row->x_step, *y = row->y + k * step;
    const double a = f64_at(x), b = f64_at(x + row->x_step);
    const double c = f64_at(x + 2 * row->x_step), d = f64_at(x + 3 * row->x_step);
    for (int64_t j = 0; j < whole; j += TOGETHER, y += sizeof(Numbers)) {
      Doubles sums;
      Numbers of_a, of_b, of_c, of_d;
      memcpy(&sums, row->sums + j, sizeof sums);
      memcpy(&of_a, y, sizeof of_a);
      memcpy(&of_b, y + step, sizeof of_b);
      memcpy(&of_c, y + 2 * step, sizeof of_c);
      memcpy(&of_d, y + 3 * step, sizeof of_d);
      sums += a * NAMED(DOUBLES, TOGETHER)(of_a);
      sums += b * NAMED(DOUBLES, TOGETHER)(of_b);
      sums += c * NAMED(DOUBLES, TOGETHER)(of_c);
      sums += d * NAMED(DOUBLES, TOGETHER)(of_d);
      memcpy(row->sums + j, &sums, sizeof sums);
    }
    for (int64_t j = whole; j < row->columns; j++, y += sizeof(float)) {
      row->sums[j] += a * f64_at(y);
      row->sums[j] += b * f64_at(y + step);
      row->sums[j] += c * f64_at(y + 2 * step);
      row->sums[j] += d * f64_at(y + 3 * step);
    }
  }
  return k;
}

#undef TOGETHER
#undef JOINED
#undef NAMED
#undef MARKED
#undef Numbers
#undef Doubles
