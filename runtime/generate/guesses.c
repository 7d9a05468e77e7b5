/* Guesses of a row's next tokens: see guesses.h. Nothing is refused and no memory is taken. */
#include "generate/guesses.h"

#include <string.h>

enum {
  LONGEST = 4, SHORTEST = 2, /* tokens at the end of a row that are looked for */
  WINDOW = 12,               /* tokens behind the place where a row left what it repeated: there it may come back */
  DEEPEST = 6,               /* tokens that agree, by which first guesses are told apart: kinds 0 to DEEPEST */
  NEXT = DEEPEST + 1,        /* a guess behind another one */
  VALUE = DEEPEST + 2        /* one where a value stands */
};

/* Steps that guesses may cost at first, and more for each token; of those saved so many may be lost again. */
static const double begins = 0.5, part_of_step = 0.015, most_saved = 4;
/* How likely a guess is right before any is known. Below the least rates none would ever be tried again. */
static const double first_rates[GUESS_KINDS] = {0.2, 0.5, 0.3, 0.5, 0.6, 0.7, 0.8, 0.75, 0.2};
static const double least_rate = 0.05, least_next = 0.3, decay = 0.1;
/* Of a change of a step's time so much counts for steps of its size, and for others: as rows grow, all steps do. */
static const double own_part = 0.1, others_part = 0.07;
/* What a token more costs as long as steps of one size alone are known: 1 / (tokens_of_a_step + size). */
static const double tokens_of_a_step = 10;

static double least_of(double a, double b) { return a < b ? a : b; }

// ---- where a row repeats itself ----

/* When the row goes on with this token. What stands a little behind the place where they parted is taken up there, as
 * after another value; until then one token is taken to stand for another. */
static Track track_behind(Track track, const GuessedRow *row, int32_t token) {
  if (!track.place) return track;
  if (row->tokens[track.place] == token) return (Track){.place = track.place + 1, .agreed = track.agreed + 1};
  const int64_t parted = track.lost ? track.parted : track.place, lost = track.lost + 1;
  for (int64_t place = parted; place < row->length && place < parted + WINDOW; place++)
    if (row->tokens[place] == token) return (Track){.place = place + 1, .agreed = 1};
  const bool goes_on = lost <= WINDOW && parted + lost < row->length;
  return goes_on ? (Track){parted + lost, 0, parted, lost} : (Track){0};
}

/* The place behind the last occurrence of the row's last `n` tokens, but that at its end; 0: there is none. */
static int64_t place_behind(const GuessedRow *row, int64_t n) {
  const int32_t *end = row->tokens + row->length - n;
  for (int64_t place = row->length - 1; place >= n; place--)
    if (row->tokens[place - 1] == end[n - 1] && !memcmp(row->tokens + place - n, end, (size_t)n * sizeof *end))
      return place;
  return 0;
}

/* How many tokens before a place are the last ones of the row. */
static int64_t agreed_before(const GuessedRow *row, int64_t place) {
  int64_t n = 0;
  while (n < place && n < DEEPEST && row->tokens[place - 1 - n] == row->tokens[row->length - 1 - n]) n++;
  return n;
}

/* The longest known end, unless more tokens agree where the row repeats itself already. */
static void find_track(Track *track, const GuessedRow *row) {
  for (int64_t n = row->length < LONGEST ? row->length : LONGEST; n >= SHORTEST; n--) {
    const int64_t place = place_behind(row, n);
    if (place && track->agreed < n) *track = (Track){.place = place, .agreed = agreed_before(row, place)};
    if (place) return;
  }
}

// ---- guesses of a row ----

void guesser_begin(Guesser *guesser, int64_t length) {
  *guesser = (Guesser){.saved = least_of(most_saved, begins + part_of_step * (double)length)};
  memcpy(guesser->rates, first_rates, sizeof first_rates);
}

void guesser_add(Guesser *guesser, const GuessedRow *row, int32_t token) {
  const int64_t place = guesser->track.place;
  row->values[row->length] = place && row->tokens[place] != token;
  guesser->track = track_behind(guesser->track, row, token);
  guesser->saved = least_of(most_saved, guesser->saved + part_of_step);
}

/* Behind the end of the row the guesses themselves go on, as in a repetition. */
int64_t guesser_guess(Guesser *guesser, const GuessedRow *row, int64_t most) {
  if (most < 1 || guesser->saved <= 0) return 0;
  find_track(&guesser->track, row);
  const Track *track = &guesser->track;
  if (!track->place) return 0;
  const int64_t first = track->agreed < DEEPEST ? track->agreed : DEEPEST;
  for (int64_t i = 0; i < most; i++) {
    const int64_t place = track->place + i;
    row->tokens[row->length + i] = row->tokens[place];
    guesser->kinds[i] = (uint8_t)(place < row->length && row->values[place] ? VALUE : i ? NEXT : first);
  }
  return most;
}

double guesser_rate(const Guesser *guesser, int64_t i) { return guesser->rates[guesser->kinds[i]]; }

void guesser_learn(Guesser *guesser, int64_t guessed, int64_t right, double price) {
  if (!guessed) return;
  for (int64_t i = 0; i < guessed && i <= right; i++) {
    const uint8_t kind = guesser->kinds[i];
    const double rate = guesser->rates[kind] + decay * ((i < right ? 1 : 0) - guesser->rates[kind]);
    const double least = kind == NEXT ? least_next : least_rate;
    guesser->rates[kind] = rate > least ? rate : least;
  }
  guesser->saved = least_of(most_saved, guesser->saved + (double)right - price * (double)guessed);
}

// ---- what steps cost ----

void costs_learn(StepCosts *costs, int64_t tokens, double seconds) {
  if (tokens > costs->most || seconds <= 0) return;
  const double before = costs_of(costs, tokens), change = before > 0 ? least_of(seconds / before, 2) - 1 : 0;
  if (costs->seconds[tokens] <= 0) { /* at most twice what was expected: a moment in which the machine had other work */
    costs->seconds[tokens] = before > 0 ? before * (1 + change) : seconds;
    return;
  }
  for (int64_t n = 0; n <= costs->most; n++) costs->seconds[n] *= 1 + change * (n == tokens ? own_part : others_part);
}

/* The nearest known size on a side; -1: there is none. */
static int64_t known_size(const StepCosts *costs, int64_t from, int64_t way) {
  for (int64_t n = from; n >= 0 && n <= costs->most; n += way)
    if (costs->seconds[n] > 0) return n;
  return -1;
}

double costs_of(const StepCosts *costs, int64_t tokens) {
  int64_t a = known_size(costs, tokens, -1), b = known_size(costs, tokens, 1);
  if (a == tokens) return costs->seconds[a];
  if (a < 0 && b < 0) return 0;
  if (a < 0) a = b, b = known_size(costs, a + 1, 1);
  if (b < 0) b = a, a = known_size(costs, b - 1, -1);
  if (a < 0 || b < 0) { /* one size alone */
    const int64_t known = a < 0 ? b : a;
    return costs->seconds[known] * (tokens_of_a_step + (double)tokens) / (tokens_of_a_step + (double)known);
  }
  const double slope = (costs->seconds[b] - costs->seconds[a]) / (double)(b - a), least = costs->seconds[a] / 4;
  const double found = costs->seconds[a] + (slope > 0 ? slope : 0) * (double)(tokens - a);
  return found > least ? found : least;
}

double costs_price(const StepCosts *costs, int64_t rows, int64_t guesses) {
  const double without = costs_of(costs, rows), with = costs_of(costs, rows + guesses);
  return without > 0 && with > without && guesses ? (double)rows * (with / without - 1) / (double)guesses : 0;
}
