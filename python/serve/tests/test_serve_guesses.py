"""How much is guessed, by a price of steps and without a model: what pays is guessed, and what does not is soon left."""
import itertools
import random
import types
import unittest

import servers  # noqa: F401  (finds the package)
from tfmc_serve.grammar import GrammarGuesser
from tfmc_serve.guesses import Costs, Guesser, share

PRICES = {"flat": 0.0, "slow": 0.05, "steep": 0.12}  # of a further token of a step, in steps of one token


def written(prompt, text, price, most=15):
    """(tokens, steps, what they cost) of a row that writes this text"""
    costs, row, at, steps, cost = Costs(), Guesser(), 0, 0, 0.0
    for n in range(1, 17):
        costs.learn(n, 1 + price * (n - 1))
    row.add(prompt)
    while at < len(text):
        guesses = share(costs, [row], [len(text) - at - 1], most)[0]
        right = next((i for i, token in enumerate(guesses) if token != text[at + i]), len(guesses))
        row.add(text[at:at + right + 1])
        row.learn(len(guesses), right, costs.price(1, len(guesses)))
        at, steps, cost = at + right + 1, steps + 1, cost + costs.of(1 + len(guesses))
    return len(text), steps, cost


class Guesses(unittest.TestCase):
    def test_what_is_never_right_costs_little(self):
        """Pairs come again and again, and what follows them is always another token."""
        for name, price in PRICES.items():
            for length in (75, 300, 2000):
                text = [token for i in range(length // 3 + 1) for token in (1, 2, 10 + i)][:length]
                tokens, steps, cost = written([1, 2, 5], text, price)
                self.assertGreater(tokens / cost, 0.95 if length < 100 else 0.97, (name, length))

    def test_random_rows_cost_little(self):
        choose = random.Random(1)
        for name, price in PRICES.items():
            for vocab in (30, 300):
                tokens, steps, cost = written([], [choose.randrange(vocab) for _ in range(1500)], price)
                self.assertGreater(tokens / cost, 0.97, (name, vocab))

    def test_a_text_that_is_written_again_takes_few_steps(self):
        choose = random.Random(2)
        before = [choose.randrange(3000) for _ in range(600)]
        after = [token if choose.random() > 0.01 else 3000 + i for i, token in enumerate(before)]
        for name, price in PRICES.items():
            tokens, steps, cost = written(before, after, price)
            self.assertGreater(tokens / cost, 3, name)

    def test_a_list_of_records_takes_few_steps(self):
        """Twelve tokens of each of 30 records are the same, a name of one to four tokens and a number of two are others."""
        choose, text = random.Random(3), []
        for _ in range(30):
            text += [1, 2, 3, *(choose.randrange(100, 3000) for _ in range(choose.randrange(1, 5))), 4, 5, 6, 7,
                     choose.randrange(100, 3000), choose.randrange(100, 3000), 4, 8, 9, 10, 11]
        for name, least in {"flat": 2.4, "slow": 2.0, "steep": 1.7}.items():
            tokens, steps, cost = written([], text, PRICES[name])
            self.assertGreater(tokens / cost, least, name)

    def test_behind_what_a_grammar_forces_the_row_is_looked_up(self):
        forced, forbidden = [], {99}
        follower = types.SimpleNamespace(forced=lambda: forced, allowed=lambda guesses: list(
            itertools.takewhile(lambda token: token not in forbidden, guesses)))
        row = GrammarGuesser(follower)
        row.add([1, 2, 3, 4, 99, 5])
        self.assertEqual(row.guess(4), [])
        forced = [1, 2]
        self.assertEqual(row.guess(4), [1, 2, 3, 4], "what stood behind 1 and 2")
        self.assertEqual(row.guess(9), [1, 2, 3, 4], "99 is forbidden")
        self.assertEqual(row.guess(1), [1])
        self.assertEqual(len(row.guess(4)), 4)
        hopes = row.hopes(4)
        self.assertGreater(hopes[1], 0.9 * 0.9)
        self.assertLess(hopes[2], hopes[1])
        for _ in range(30):
            row.learn(4, 2, 1.0)
        self.assertEqual(row.guess(4), [1, 2], "forced tokens are guessed whatever the row's own guesses cost")
        self.assertGreater(row.hopes(2)[1], 0.9, "they were right")

    def test_costs_forget_a_slow_moment_and_grow_together(self):
        costs = Costs()
        for tokens in (1, 2, 4):
            costs.learn(tokens, 1.0)
        costs.learn(2, 50.0)
        self.assertLess(costs.of(2), 1.2, "once")
        for _ in range(100):
            costs.learn(1, 2.0)
        self.assertGreater(costs.of(1), 1.9)
        self.assertGreater(costs.of(4), 1.5, "it was not measured again, but rows have grown")
        self.assertLess(costs.price(1, 3), 0.1)
        self.assertEqual(costs.price(2, 2), 2 * max(0.0, costs.of(4) / costs.of(2) - 1))


if __name__ == "__main__":
    unittest.main()
