/* Guesses of a row's next tokens from the row itself: what followed when its last tokens stood in it before.
 *
 * In: a row. Out: tokens that may follow. Nothing is refused, and a guess decides nothing: the loop chooses each token
 * as if there were none, and forgets those that were wrong. */
#include <string.h>

#include "generate/generation_state.h"

enum {
  LONGEST = 4, SHORTEST = 2, /* tokens at the end of the row that are looked for */
  MOST_FAILED = 3,           /* steps without a right guess, after which it rests */
  REST = 16                  /* tokens */
};

/* The place behind the last occurrence of the row's last `n` tokens, but that at its end; 0: there is none. */
static int64_t place_behind(const int32_t *row, int64_t length, int64_t n) {
  const int32_t *end = row + length - n;
  for (int64_t place = length - 1; place >= n; place--)
    if (row[place - 1] == row[length - 1] && memcmp(row + place - n, end, (size_t)n * sizeof *row) == 0) return place;
  return 0;
}

/* Behind the end of the row the guesses themselves go on, as in a repetition. */
int64_t row_guess(const RowGuesses *guesses, int32_t *row, int64_t length, int64_t most) {
  if (length < guesses->pause) return 0;
  for (int64_t n = LONGEST; n >= SHORTEST; n--) {
    const int64_t place = place_behind(row, length, n);
    for (int64_t i = 0; place && i < most; i++) row[length + i] = row[place + i];
    if (place) return most > 0 ? most : 0;
  }
  return 0;
}

void row_guesses_learn(RowGuesses *guesses, int64_t guessed, int64_t right, int64_t length) {
  if (!guessed) return;
  guesses->failed = right ? 0 : guesses->failed + 1;
  if (guesses->failed < MOST_FAILED) return;
  *guesses = (RowGuesses){.pause = length + REST};
}
