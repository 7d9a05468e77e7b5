"""How much is guessed, by a price of steps and without a model: what pays is guessed, and what does not is soon left."""
import random
import unittest

import servers  # noqa: F401  (finds the package)
from tfmc_serve.guesses import FAILED, FEW, PAUSE, Costs, Guesser, share

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
        row.learn(len(guesses), right)
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

    def test_after_failures_a_row_tries_few_and_more_when_it_is_right(self):
        row, repeated = Guesser(), [7, 8, 9, 4] * 8
        row.add(repeated)
        self.assertEqual(len(row.guess(15)), FEW)
        row.learn(FEW, FEW)
        self.assertEqual(row.guess(15), (repeated * 2)[:15])
        for _ in range(FAILED):
            self.assertTrue(row.guess(15))
            row.learn(15, 0)
        self.assertEqual(row.guess(15), [])
        row.add(repeated[:PAUSE - 1])
        self.assertEqual(row.guess(15), [])
        row.add(repeated[PAUSE - 1:PAUSE])
        self.assertEqual(len(row.guess(15)), FEW)


if __name__ == "__main__":
    unittest.main()
