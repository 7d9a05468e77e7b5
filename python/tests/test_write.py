"""Decoder.write: rows that are written together, with guesses and in pieces, against generate of each alone."""
import os
import random
import unittest

import numpy as np

import tfmc
from support import Case, resident
from test_generate import Checkpoint


def random_options(choose, vocab):
    options = {"eos_token_id": [choose.randrange(vocab) for _ in range(choose.randrange(3))]}
    if choose.random() < 0.3:
        options["repetition_penalty"] = choose.choice([0.5, 1.3, 2.0])
    if choose.random() < 0.3:
        options["no_repeat_ngram_size"] = choose.randint(1, 3)
    if choose.random() < 0.3:
        options["min_new_tokens"] = choose.randint(0, 2)
    if choose.random() < 0.3:
        options["suppress_tokens"] = [choose.randrange(vocab) for _ in range(5)]
    if choose.random() < 0.6:
        options.update(do_sample=True, temperature=choose.choice([0.5, 1.0, 1.7]), top_k=choose.choice([0, 5]),
                       top_p=choose.choice([1.0, 0.8]))
    return options


class Writing(Case):
    @classmethod
    def setUpClass(cls):
        cls.model = Checkpoint("gpt2").model
        cls.vocab = cls.model.generation.vocab

    def alone(self, prompt, limit, seed, options):
        return self.model.generate([prompt], max_length=limit, seed=seed, **options)[0].tolist()

    def step(self, decoder, running, choose):
        """One call for all that run: pieces of prompts, and guesses of which some are right."""
        rows = []
        for row, (chooser, wanted) in running.items():
            left = chooser.length - decoder.length(row)
            if left > 1 and choose.random() < 0.5:
                rows.append((row, chooser, choose.randint(1, left - 1)))
                continue
            guesses = wanted[chooser.length:chooser.length + choose.randint(0, 4)]
            if choose.random() < 0.4:
                guesses = guesses[:1] + [choose.randrange(self.vocab) for _ in range(choose.randint(0, 3))]
            rows.append((row, chooser, left, guesses))
        for (row, chooser, *_), (tokens, error) in zip(rows, decoder.write(rows)):
            wanted = running[row][1]
            self.assertIsNone(error)
            self.assertEqual(chooser.ids(), wanted[:chooser.length])
            self.assertEqual(list(tokens), chooser.ids(chooser.length - len(tokens)))
            if chooser.length == len(wanted):
                decoder.leave(row)
                del running[row]

    def test_generate_writes_the_same_with_guesses(self):
        choose, steps = random.Random(5), []
        for guesses in range(1, 16):
            options = random_options(choose, self.vocab)
            prompts = [[choose.randrange(self.vocab) for _ in range(3)] * choose.randint(1, 3) for _ in range(choose.randint(1, 3))]
            wanted = self.model.generate(prompts, max_new_tokens=20, seed=guesses, **options)
            got = self.model.generate(prompts, max_new_tokens=20, seed=guesses, guesses=guesses, **options)
            self.assertEqual(got.padded.tolist(), wanted.padded.tolist())
            self.assertEqual(got.lengths.tolist(), wanted.lengths.tolist())
            stream = self.model.stream(prompts[:1], max_new_tokens=20, seed=guesses, guesses=guesses, **options)
            steps += [token.token for token in stream]
            self.assertEqual(stream.generated[0].tolist(), wanted[0].tolist())
        self.assertGreater(len(steps), 100)
        with self.assertRaisesRegex(tfmc.InputError, "guesses is 2 and num_beams 3: tokens of beams are not guessed"):
            self.model.generate([[1]], num_beams=3, guesses=2)
        with self.assertRaisesRegex(tfmc.InputError, "guesses"):
            self.model.generate([[1]], guesses=-2)

    def test_rows_together_are_those_of_generate_alone(self):
        choose, ended = random.Random(3), 0
        with self.model.decoder(max_rows=5, max_length=16, step_kept=12) as decoder:
            running = {}
            while ended < 60 or running:
                while len(running) < 5 and ended < 60:
                    prompt = [choose.randrange(self.vocab) for _ in range(choose.randint(1, 9))]
                    limit, seed, options = len(prompt) + choose.randint(3, 7), ended, random_options(choose, self.vocab)
                    ended += 1
                    wanted = self.alone(prompt, limit, seed, options)
                    running[decoder.join()] = self.model.chooser(prompt, limit=limit, seed=seed, **options), wanted
                self.step(decoder, running, choose)

    def test_probabilities_are_of_the_logits_as_given(self):
        scored = self.model.generate([[1, 2, 3]], max_new_tokens=5, return_token_scores=True)
        with self.model.decoder(max_rows=1, max_length=16) as decoder:
            row, found = decoder.join(), []
            chooser = self.model.chooser([1, 2, 3], limit=8, logprobs=3)
            while chooser.length < len(scored[0]):
                ((chosen, error),) = decoder.write([(row, chooser)])
                found += chosen
        self.assertEqual([token for token, *_ in found], scored[0][3:].tolist())
        for (token, logprob, top), score in zip(found, scored.token_scores[0][3:]):
            self.assertAlmostEqual(logprob, float(score), places=5)
            self.assertEqual(top[0], (token, logprob))
            self.assertEqual(sorted(top, key=lambda pair: -pair[1]), list(top))

    def test_one_rows_error_is_its_own(self):
        with self.model.decoder(max_rows=2, max_length=16) as decoder:
            good, bad = decoder.join(), decoder.join()
            rows = [(good, self.model.chooser([1, 2], limit=9)),
                    (bad, self.model.chooser([1, 2], limit=9, suppress_tokens=range(self.vocab)))]
            (tokens, none), (nothing, error) = decoder.write(rows)
            self.assertEqual((len(tokens), none, nothing), (1, None, ()))
            self.assertIsInstance(error, tfmc.InputError)
            self.assertIn("every token is forbidden", str(error))
            self.assertEqual((decoder.length(good), decoder.length(bad)), (2, 2))

    def test_masks_say_which_tokens_may_be_chosen(self):
        """Of each choice its own, behind right and wrong guesses, as tokens that are suppressed are not chosen."""
        choose, words = random.Random(5), (self.vocab + 31) // 32
        for seed in range(40):
            allowed = [sorted(choose.sample(range(self.vocab), choose.randint(1, 6))) for _ in range(6)]
            masks = [sum(1 << token for token in one).to_bytes(4 * words, "little") for one in allowed]
            options = {"do_sample": seed % 2 == 1, "eos_token_id": [], "seed": seed}
            wanted = self.model.chooser([1, 2, 3], limit=9, **options)
            with self.model.decoder(max_rows=1, max_length=16) as decoder:
                row = decoder.join()
                for mask in masks:
                    decoder.write([(row, wanted, -1, None, mask)])
            self.assertTrue(all(token in one for token, one in zip(wanted.ids(3), allowed)), seed)
            found = self.model.chooser([1, 2, 3], limit=9, **options)
            with self.model.decoder(max_rows=1, max_length=16, step_kept=8) as decoder:
                row = decoder.join()
                while (at := found.length - 3) < 6:
                    guesses = wanted.ids(found.length)[:choose.randint(0, 3)][:5 - at]
                    if guesses and choose.random() < 0.4:
                        guesses[-1] = choose.randrange(self.vocab)
                    decoder.write([(row, found, -1, guesses, b"".join(masks[at:at + len(guesses) + 1]))])
            self.assertEqual(found.ids(), wanted.ids())

    def test_refused_masks(self):
        with self.model.decoder(max_rows=1, max_length=16) as decoder:
            row, chooser = decoder.join(), self.model.chooser([1, 2, 3], limit=9)
            mask = bytes(4 * ((self.vocab + 31) // 32))
            self.refused(TypeError, "bytes", decoder.write, [(row, chooser, 3, None, bytearray(mask))])
            self.refused(tfmc.InputError, "1 bytes", decoder.write, [(row, chooser, 3, None, b"a")])
            self.refused(tfmc.InputError, "2 choices", decoder.write, [(row, chooser, 3, [1], mask)])
            self.refused(tfmc.UsageError, "to its end", decoder.write, [(row, chooser, 2, None, mask)])
            (tokens, error), = decoder.write([(row, chooser, 3, None, mask)])
            self.assertEqual(tokens, ())
            self.assertIn("every token is forbidden", str(error))

    def test_refusals(self):
        made, vocab = self.model.chooser, self.vocab
        self.refused(tfmc.InputError, ["token 1", str(vocab)], made, [1, vocab], limit=9)
        self.refused(tfmc.InputError, "-1 is no id", made, [-1], limit=9)
        self.refused(tfmc.InputError, "the prompt is empty", made, [], limit=9)
        self.refused(tfmc.InputError, "max_length is 2", made, [1, 2], limit=2)
        self.refused(tfmc.InputError, "top_p is 3", made, [1], limit=4, top_p=3)
        self.refused(tfmc.UsageError, "num_beams", made, [1], limit=4, num_beams=2)
        self.refused(tfmc.UsageError, "nothing", made, [1], limit=4, nothing=1)
        self.refused(tfmc.UsageError, "is an input", made, [1], limit=4, input_ids=[1])
        self.refused(tfmc.InputError, "likeliest", made, [1], limit=4, logprobs=vocab + 1)
        with self.model.decoder(max_rows=2, max_length=16) as decoder:
            row, other = decoder.join(), decoder.join()
            chooser = made([1, 2, 3], limit=9)
            write = decoder.write
            self.refused(tfmc.UsageError, "tuples", write, [row])
            self.refused(TypeError, "", write, [(row, row)])
            self.refused(tfmc.InputError, "no row 7", write, [(7, chooser)])
            self.refused(tfmc.InputError, "its text has 3", write, [(row, chooser, 4)])
            self.refused(tfmc.InputError, "its text has 3", write, [(row, chooser, 0)])
            self.refused(tfmc.UsageError, "to its end", write, [(row, chooser, 2, [1])])
            self.refused(tfmc.InputError, "is no id", write, [(row, chooser, 3, [vocab])])
            self.refused(tfmc.InputError, "16 guesses", write, [(row, chooser, 3, [1] * 16)])
            self.refused(tfmc.UsageError, "is in use", write, [(row, chooser), (other, chooser)])
            self.refused(tfmc.InputError, "is there twice", write, [(row, chooser), (row, made([1], limit=3))])
            self.assertEqual(len(write([(row, chooser)])[0][0]), 1)  # nothing of all that has changed it
            self.assertEqual(chooser.ids(), self.alone([1, 2, 3], 4, 0, {}))
            decoder.truncate(row, 0)
            self.assertEqual(len(write([(row, made(chooser.ids(), limit=16), None or 4, [])])[0][0]), 1)
        self.refused(tfmc.UsageError, "the decoder is closed", write, [(row, chooser)])
        sources = {name: value for name, value in Checkpoint("marian").inputs.items() if name != "decoder_input_ids"}
        self.refused(tfmc.UsageError, "sources come later", Checkpoint("marian").model.decoder, max_rows=1, max_length=9,
                     cache_bytes=5, **sources)

    def test_pages_that_are_used_up(self):
        with self.model.decoder(max_rows=4, max_length=16, cache_bytes=1) as decoder:
            row = decoder.join()
            self.assertEqual(decoder.pages(16), (1, 0))
            self.refused(tfmc.OutOfMemory, "pages of caches", decoder.write, [(row, self.model.chooser([1], limit=4))])

    def test_nothing_is_left_behind(self):
        def some(n):
            for _ in range(n):
                with self.model.decoder(max_rows=2, max_length=16) as decoder:
                    chooser = self.model.chooser([1] * 9, limit=16, logprobs=4, suppress_tokens=range(20), eos_token_id=[3])
                    decoder.write([(decoder.join(), chooser, 9, [1, 2])])
        some(100)
        before = resident()
        some(400)
        if "TFM_SANITIZED" not in os.environ:
            self.assertLess(resident() - before, 4 << 20)


class Sources(Case):
    """Rows of an encoder-decoder, whose sources are added and dropped while others are decoded."""

    def test_rows_of_sources_that_come_and_go(self):
        choose = random.Random(4)
        for kind in ("t5", "m2m_100"):
            model = Checkpoint(kind).model
            vocab, names = model.generation.vocab, model._sources()

            def inputs(ids):
                given = {"input_ids": np.array([ids], np.int32), "attention_mask": np.ones((1, len(ids)), np.int32)}
                return [given[name] for name in names]
            with model.decoder(max_rows=6, max_length=16, step_rows=6, items=3, source_length=12) as decoder:
                running, begun = {}, 0
                while begun < 30 or running:
                    while len(running) < 3 and begun < 30:
                        ids = [choose.randrange(3, vocab) for _ in range(choose.randint(1, 12))]
                        biases = {choose.randrange(vocab): choose.choice((-3, 2, 5)) for _ in range(choose.randrange(4))}
                        options = {"logit_bias": biases, "seed": begun, "do_sample": choose.random() < 0.5, "eos_token_id": []}
                        wanted = model.generate(**dict(zip(names, inputs(ids))), max_new_tokens=choose.randint(1, 9), **options)
                        start = model.generate(**dict(zip(names, inputs(ids))), max_new_tokens=1)[0][:1].tolist()
                        item = decoder.add_source(*inputs(ids))
                        chooser = model.chooser(start, limit=len(wanted[0]), **options)
                        running[decoder.join(item)] = item, chooser, wanted[0].tolist()
                        begun += 1
                    decoder.write([(row, chooser) for row, (_, chooser, _) in running.items()])
                    for row, (item, chooser, wanted) in list(running.items()):
                        self.assertEqual(chooser.ids(), wanted[:chooser.length], kind)
                        if chooser.length == len(wanted):
                            with self.assertRaises(tfmc.InputError):  # a row reads it
                                decoder.drop_source(item)
                            decoder.leave(row)
                            decoder.drop_source(item)
                            del running[row]

    def test_what_is_refused(self):
        model = Checkpoint("t5").model
        one = np.ones((1, 4), np.int32)
        with model.decoder(max_rows=2, max_length=8, items=1, source_length=6) as decoder:
            for given, error in (((one,), tfmc.UsageError), ((np.ones((1, 7), np.int32),) * 2, tfmc.InputError)):
                with self.assertRaises(error):
                    decoder.add_source(*given)
            with self.assertRaises(tfmc.InputError):
                decoder.join(0)
            decoder.join(decoder.add_source(one, one))
            with self.assertRaises(tfmc.InputError):  # there is room for one
                decoder.add_source(one, one)
            with self.assertRaises(tfmc.InputError):
                decoder.drop_source(5)
        with self.assertRaises(tfmc.UsageError):
            Checkpoint("gpt2").model.decoder(max_rows=2, max_length=8, items=1, source_length=6)
        for biases in ([1], {"a": 1}, {1: "a"}, {10 ** 6: 1}, {1: 1e9}, {1: float("nan")}):
            with self.assertRaises(tfmc.Error):
                model.chooser([0], limit=4, logit_bias=biases)


if __name__ == "__main__":
    unittest.main()
