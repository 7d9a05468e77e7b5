/* Guesses of a row's next tokens: what is guessed where a row repeats itself, how the account ends guesses that fail, how
 * many pay, and what steps cost. The server's rule is the same (python/serve/tests/test_serve_guesses.py). */
#include <criterion/criterion.h>
#include <string.h>

#include "generate/guesses.h"

enum { MOST = 600 };

typedef struct Text {
  int32_t tokens[MOST + MOST_GUESSES], values[MOST + MOST_GUESSES];
  GuessedRow row;
  Guesser guesser;
} Text;

static void begin(Text *text, const int32_t *prompt, int64_t n) {
  *text = (Text){.row.length = n};
  text->row.tokens = text->tokens, text->row.values = text->values;
  memcpy(text->tokens, prompt, (size_t)n * sizeof *prompt);
  guesser_begin(&text->guesser, n);
}

/* The row goes on with these tokens. */
static void add(Text *text, const int32_t *tokens, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    guesser_add(&text->guesser, &text->row, tokens[i]);
    text->tokens[text->row.length++] = tokens[i];
  }
}

#define BEGIN(text, ...) begin(text, (const int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t))
#define ADD(text, ...) add(text, (const int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

static void guesses_are(Text *text, int64_t most, const int32_t *wanted, int64_t n) {
  cr_assert_eq(guesser_guess(&text->guesser, &text->row, most), n);
  for (int64_t i = 0; i < n; i++) cr_assert_eq(text->tokens[text->row.length + i], wanted[i], "guess %d", (int)i);
}

#define GUESSES(text, most, ...) \
  guesses_are(text, most, (const int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

Test(runtime_guesses, what_followed_before_follows) {
  Text text;
  BEGIN(&text, 1, 2, 3, 4, 5, 9, 2, 3);
  GUESSES(&text, 3, 4, 5, 9);
  cr_assert_eq(guesser_guess(&text.guesser, &text.row, 0), 0);
  BEGIN(&text, 1, 2, 3, 7, 8, 2, 3, 9, 1, 2, 3); /* more tokens agree with the earlier place */
  GUESSES(&text, 1, 7);
  BEGIN(&text, 5, 6, 5, 6); /* behind its end a repetition goes on */
  GUESSES(&text, 5, 5, 6, 5, 6, 5);
  BEGIN(&text, 1, 2, 3, 4);
  cr_assert_eq(guesser_guess(&text.guesser, &text.row, 4), 0);
}

/* A list whose records have other values: 1 2 V 3 4 5 6. */
Test(runtime_guesses, go_on_behind_a_value) {
  Text text;
  BEGIN(&text, 1, 2, 70, 3, 4, 5, 6, 1, 2);
  GUESSES(&text, 2, 70, 3);
  ADD(&text, 80); /* another value, as long as the first */
  GUESSES(&text, 4, 3, 4, 5, 6);
  ADD(&text, 3, 4, 5, 6, 1, 2);
  guesser_guess(&text.guesser, &text.row, 3);
  cr_assert_lt(guesser_rate(&text.guesser, 0), guesser_rate(&text.guesser, 1), "a value stands there");
  BEGIN(&text, 1, 2, 70, 3, 4, 5, 6, 1, 2);
  guesser_guess(&text.guesser, &text.row, 2);
  ADD(&text, 80, 81, 3); /* a longer one: found again behind it */
  GUESSES(&text, 3, 4, 5, 6);
}

/* Guesses that are never right cost no more than what a row has at first and gets for its tokens, whatever the price. */
Test(runtime_guesses, that_fail_cost_a_bounded_part) {
  for (double price = 0.05; price < 4; price *= 3) {
    Text text;
    BEGIN(&text, 1, 2, 1, 2);
    double cost = 0;
    for (int i = 0; i < 400; i++) {
      const int64_t n = guesser_guess(&text.guesser, &text.row, 4);
      cost += price * (double)n / 4;
      guesser_learn(&text.guesser, n, 0, price / 4);
      ADD(&text, 3 + i % 2 * 5, 1, 2); /* the last two tokens always stood there before */
      text.row.length -= 3 * (text.row.length > MOST - 10);
    }
    cr_assert_lt(cost, 0.5 + 0.015 * 1204 + price, "%g", price);
    cr_assert_gt(cost, 1);
  }
}

Test(runtime_guesses, that_are_right_go_on) {
  Text text;
  BEGIN(&text, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2);
  int64_t steps = 0;
  while (text.row.length < 400) {
    const int64_t n = guesser_guess(&text.guesser, &text.row, 7);
    int32_t next[8];
    for (int64_t i = 0; i <= n; i++) next[i] = (int32_t)((text.row.length + i) % 8) + 1;
    add(&text, next, n + 1);
    guesser_learn(&text.guesser, n, n, 0.1);
    steps++;
  }
  cr_assert_lt(steps, 60);
}

Test(runtime_guesses, costs_of_steps) {
  double seconds[40] = {0};
  StepCosts costs = {seconds, 39};
  cr_assert_eq(costs_of(&costs, 1), 0);
  cr_assert_eq(costs_price(&costs, 1, 3), 0);
  costs_learn(&costs, 1, 10);
  cr_assert_float_eq(costs_of(&costs, 12), 20, 1e-9); /* nothing is known of others: a tenth a token */
  costs_learn(&costs, 5, 12);
  cr_assert_float_eq(costs_of(&costs, 3), 11, 1e-9);
  cr_assert_float_eq(costs_of(&costs, 9), 14, 1e-9);
  cr_assert_float_eq(4 * costs_price(&costs, 1, 4), 0.2, 1e-9);
  costs_learn(&costs, 9, 1000); /* a moment in which the machine had other work */
  cr_assert_lt(costs_of(&costs, 9), 29);
  for (int i = 0; i < 200; i++) costs_learn(&costs, 9, 14);
  cr_assert_float_eq(costs_of(&costs, 9), 14, 0.5);
  costs_learn(&costs, 40, 1);
  costs_learn(&costs, 3, 0); /* a clock that stands still */
  cr_assert_gt(costs_of(&costs, 3), 0);
}
