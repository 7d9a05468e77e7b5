"""Models with states: rows are continued at their ends and at snapshots of prompts; answers are those of their rows alone."""
import unittest

import tfmc
from servers import Case, Inside, Process, library, place

from tfmc_serve.scheduler import FIRST_MARK

PROMPT = [8 + i % 13 for i in range(50)]


class States(Case):
    kind, options = "states", {"max_rows": 8}

    @classmethod
    def setUpClass(cls):
        cls.server = cls.started(Inside(cls.kind, **cls.options))

    @property
    def scheduler(self):
        return self.server.service.schedulers[self.kind]

    def ask(self, prompt, n=1, tokens=3, **more):
        """(the ids of each choice, tokens that were not read again)"""
        made = self.client.post("/v1/completions", {"prompt": prompt, "max_tokens": tokens, "seed": 1, "n": n, "return_token_ids": True,
                                                    "ignore_eos": True, **more})
        self.assertEqual(made.status, 200, made)
        drawn = {"do_sample": True, "seed": 1} if more.get("temperature", 1) else {}
        rows = library(self.kind).model.generate([prompt] * n, max_new_tokens=tokens, eos_token_id=[], **drawn)
        found = [choice["token_ids"] for choice in made.json["choices"]]
        self.assertEqual(found, [row[len(prompt):].tolist() for row in rows])
        self.assertLessEqual(self.scheduler.rows_kept, 8)
        return found, made.json["usage"]["prompt_tokens_details"]["cached_tokens"]

    def test_prompts_conversations_and_long_beginnings(self):
        prompt = PROMPT[::-1]
        (answer,), cached = self.ask(prompt)
        self.assertEqual(cached, 0)
        self.assertEqual(self.ask(prompt)[1], len(prompt) - 1)
        self.assertEqual(self.ask(prompt + [9, 9])[1], len(prompt) - 1)
        self.assertEqual(self.ask(prompt + answer + [9])[1], len(prompt) + len(answer) - 1)
        self.assertEqual(self.ask(prompt[:20] + [4] * 20)[1], 0)  # inside of what it has read a row has no state
        self.assertEqual(self.ask([5] * 10)[1], 0)
        self.assertEqual(self.ask([5] * 10)[1], 0)                # less than a page is not kept
        long = [3 + i * i % 17 for i in range(2 * FIRST_MARK + 100)]
        self.assertEqual(self.ask(long)[1], 0)
        self.assertEqual(self.ask(long[:FIRST_MARK + 60] + [4] * 9)[1], FIRST_MARK)
        self.assertEqual(self.ask(long[:-9] + [4])[1], 2 * FIRST_MARK)

    def test_choices_of_one_prompt(self):
        for number in range(2):
            self.ask([6 + number] * 40, n=3)
        self.ask([6, 9] * 20, n=4, tokens=5)

    def test_guesses(self):
        for number in range(4):
            self.ask([3, 4, 5, 6 + number] * 10, tokens=20, temperature=0)

    def test_more_prompts_than_rows(self):
        for number in range(20):
            self.ask([4 + number % 19] * (17 + 2 * number), n=1 + number % 2)
        self.assertEqual(self.scheduler.rows_running, 0)


class Guessing(States):
    options = {"max_rows": 8, "speculate": 4}


class Alone(States):
    """Without attention: there are no pages."""
    kind = "scan"


class Without(States):
    options = {"max_rows": 8, "prefixes": "off"}

    def test_prompts_conversations_and_long_beginnings(self):
        for _ in range(3):
            self.assertEqual(self.ask(PROMPT)[1], 0)
        self.assertEqual(self.scheduler.rows_kept, 0)


class Limits(unittest.TestCase):
    def test_states_count_in_cache_bytes(self):
        model = library("scan").model
        with self.assertRaisesRegex(tfmc.OutOfMemory, "states of 16 rows take [0-9]+ bytes, and there are 70000 for all caches") as refused:
            model.decoder(max_rows=16, max_length=64, cache_bytes=70000)
        states = int(str(refused.exception).split("take ")[1].split()[0])
        model.decoder(max_rows=16, max_length=64, cache_bytes=states + 1).close()

    def test_a_server_without_room_for_states_says_which_options_help(self):
        with self.assertRaisesRegex(AssertionError, "states of 16 rows take .*--cache-bytes says how much there is, --max-rows for how many rows"):
            Process(place("scan"), "--max-rows=8", "--cache-bytes=70000").close()


if __name__ == "__main__":
    unittest.main()
