/* Guesses of a row's next tokens: what followed where it repeats itself, how likely that is right, and an account of
 * what guesses save and cost, in steps.
 *
 * In: the row as it grows, how many guesses were right, what they cost. Out: tokens behind the row. Guesses never
 * change what is written, so how many are made may follow the clock. The rule is the server's (guesses.py there). */
#ifndef TFM_RUNTIME_GUESSES_H
#define TFM_RUNTIME_GUESSES_H

#include <stdbool.h>
#include <stdint.h>

enum { MOST_GUESSES = 15, GUESS_KINDS = 9 };

typedef struct Track { /* where a row repeats itself; a place is below the row's length */
  int64_t place;  /* what stands there is what comes next; 0: nowhere */
  int64_t agreed; /* tokens before it that are the row's last ones; 0: another token stood there, and */
  int64_t parted; /* this is the place where the row left it, */
  int64_t lost;   /* with so many tokens since */
} Track;

typedef struct GuessedRow {
  int32_t *tokens; /* with room for the guesses */
  int32_t *values; /* 1: the token was another one than where the row repeated itself */
  int64_t length;
} GuessedRow;

typedef struct Guesser { /* of one row */
  Track track;
  double rates[GUESS_KINDS]; /* how likely a guess of a kind is right */
  double saved;              /* steps that guesses have saved, less those that they cost */
  uint8_t kinds[MOST_GUESSES]; /* of the latest guesses */
} Guesser;

/* The row is the prompt. */
void guesser_begin(Guesser *guesser, int64_t length);
/* The row is about to get this token. */
void guesser_add(Guesser *guesser, const GuessedRow *row, int32_t token);
/* Writes up to `most` guesses behind the row; how many. */
int64_t guesser_guess(Guesser *guesser, const GuessedRow *row, int64_t most);
/* How likely guess `i` of the latest ones is right, if all before it are. */
double guesser_rate(const Guesser *guesser, int64_t i);
/* How many of the guesses of a step were right; price: what one cost, in steps. */
void guesser_learn(Guesser *guesser, int64_t guessed, int64_t right, double price);

/* Seconds of steps by their tokens, of all rows together: measured while running, a line between and beyond. */
typedef struct StepCosts {
  double *seconds; /* [most + 1]; 0: not known */
  int64_t most;
} StepCosts;

void costs_learn(StepCosts *costs, int64_t tokens, double seconds);
/* 0: none is known. */
double costs_of(const StepCosts *costs, int64_t tokens);
/* Of a guess in a step of so many rows, all of which wait for it, in steps of a row. */
double costs_price(const StepCosts *costs, int64_t rows, int64_t guesses);

#endif
