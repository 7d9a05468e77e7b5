#!/usr/bin/env python3
"""tfmc generate: what is refused, and what seems to be wrong and isn't (I19 to I27 of the catalogue of bad inputs). Each test
three times: with what earlier tokens gave kept, computed anew for each token, and of compiled libraries.

usage: test_generate_refusals.py TFMC          Needs numpy, safetensors. The last line is 'N passed, N failed'.
"""
import atexit
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import numpy as np
from generating import MASKED, PROMPTS, TFMC, Case, anew, language, main, translator

LIBRARIES = tempfile.mkdtemp()
atexit.register(shutil.rmtree, LIBRARIES)


class Refusals(Case):
    """I19 to I25: one option is out of its range."""

    def test_ranges(self):
        nan = '{"%s": NaN}'
        for config, says in [({"num_beams": 0}, "num_beams"), ({"num_beams": -1}, "num_beams"), ({"num_beams": 21}, "20 tokens"),
                             ({"num_beams": 2000}, "1024"), ({"num_return_sequences": 2}, "num_return_sequences"),
                             ({"top_k": -1}, "top_k"), ({"top_p": 0}, "top_p"), ({"top_p": 1.1}, "top_p"),
                             ({"temperature": -1}, "temperature"), (nan % "temperature", "config.json"),
                             ({"eos_token_id": 20}, "eos_token_id"), ({"eos_token_id": [2, -1]}, "eos_token_id"),
                             ({"pad_token_id": 20}, "pad_token_id"), ({"length_penalty": 1e999}, "config.json"),
                             ({"min_new_tokens": 12}, "min_new_tokens"), ({"max_new_tokens": 0}, "max_new_tokens"),
                             ({"max_length": 3}, "max_length is 3"), ({"min_length": 13}, "min_length"),
                             ({"repetition_penalty": 0}, "repetition_penalty"), ({"suppress_tokens": [20]}, "suppress_tokens"),
                             ({"suppress_tokens": list(range(20))}, "every token is forbidden"),
                             ({"num_beams": 2, "do_sample": True}, "do_sample"), ({"decoder_start_token_id": -5}, "start token")]:
            with self.subTest(config=config):
                inputs = None if "start" in says else {"ids": PROMPTS}
                self.refused(language(), inputs, config=config, says=says)

    def test_sizes_that_a_loop_must_choose(self):
        self.refused(language(batch="3"), None, says="the number of rows must be a run-time size, or 1")
        other = language(time="time], x: f32[batch, 1, other").replace("= head(hidden), hidden", "= x * sum(head(hidden), keepdim = true)")
        self.refused(other, {"ids": PROMPTS, "x": np.ones((2, 1, 4), np.float32)}, says="the number of tokens must be known when the model is compiled")

    def test_I19_as_many_beams_as_tokens(self):
        rows = self.rows(language(), {"ids": PROMPTS}, "--num-beams=20", "--num-return-sequences=20")
        self.assertEqual(len(rows), 40)
        self.assertEqual(len(set(map(tuple, rows))), 40)

    def test_I19_one_token(self):
        source = language().replace("vocab = 20", "vocab = 1").replace("bos = 3  eos = end", "bos = 0")
        self.assertEqual(self.rows(source, None, "--max-length=4"), [[0, 0, 0, 0]])
        self.refused(source, None, "--num-beams=2", says="only 1 tokens")

    def test_I20_all_tokens(self):
        drawn = self.rows(language(), {"ids": PROMPTS}, "--do-sample")
        self.assertEqual(self.rows(language(), {"ids": PROMPTS}, "--do-sample", "--top-k=99", "--top-p=1"), drawn)

    def test_I21_every_beam_ends_at_once(self):
        every = "--eos-token-id=" + ",".join(map(str, range(20)))
        for stopping in ("false", "true", "never"):
            rows = self.rows(language(), {"ids": PROMPTS}, every, "--num-beams=3", "--num-return-sequences=3",
                             "--early-stopping=" + stopping)
            self.assertEqual([len(row) for row in rows], [4] * 6)
        self.refused(language(), {"ids": PROMPTS}, every, "--num-beams=3", "--min-new-tokens=9", says="every token is forbidden")

    def test_I21_one_row_ends_long_before_another(self):
        rows = self.rows(language(), {"ids": PROMPTS}, "--eos-token-id=[]")
        alone = set(rows[0][3:]) - set(rows[1][3:])
        end = next(iter(alone), None)
        self.assertIsNotNone(end, rows)
        found = self.rows(language(), {"ids": PROMPTS}, f"--eos-token-id={end}")
        self.assertEqual(found, [rows[0][:rows[0].index(end, 3) + 1], rows[1]])

    def test_I22_all_scores_are_equal(self):
        source = language().replace("logits = head(hidden)", "logits = 0 * head(hidden)")
        self.assertEqual(self.rows(source, {"ids": PROMPTS}, "--max-length=5"), [[5, 6, 7, 0, 0], [8, 9, 4, 0, 0]])
        for penalty in ("0", "-1", "1e9"):
            rows = self.rows(source, {"ids": PROMPTS}, "--num-beams=3", "--num-return-sequences=3", "--max-length=5",
                             "--eos-token-id=[]", "--length-penalty=" + penalty)
            self.assertEqual([row[3:] for row in rows], [[0, 0], [0, 1], [0, 2]] * 2)

    def test_I23_prompts_and_limits(self):
        self.refused(language(), {"ids": PROMPTS}, "--max-length=2", says="max_length is 2")
        self.refused(language(), {"ids": PROMPTS}, "--max-length=5", "--min-new-tokens=3", says="min_new_tokens is 3")
        self.assertEqual(len(self.rows(language(), {"ids": PROMPTS}, "--max-length=4")[0]), 4)

    def test_I23_longer_than_the_model(self):
        """A table of 8 positions: the limit of the model speaks where a row reaches it, whatever max_length says."""
        source = language().replace("embed(ids) ->", "embed(ids) + table.weight[positions(ids, 1)] ->")
        source = source.replace("head = ", "table = Embedding(8, d)\n  head = ")
        self.assertEqual(len(self.rows(source, {"ids": PROMPTS}, "--max-length=9")[0]), 9)
        self.assertEqual(len(self.rows(source, {"ids": PROMPTS}, "--max-length=9", "--num-beams=2")[0]), 9)
        cure = "max_length 8 (--max-length 8) ends rows before"
        says = ["error: time = 9 positions, but the table has 8 rows: its legal range is [0, 8)", cure]
        self.refused(source, {"ids": PROMPTS}, "--max-length=10", says=says)
        self.refused(source, {"ids": PROMPTS}, "--max-length=1000", "--num-beams=2", says=says)
        self.refused(source, {"ids": PROMPTS}, "--max-new-tokens=100", "--eos-token-id=[]", says=says)
        if type(self) is Refusals:  # libraries have one engine
            for way in (["--recompute"], ["--engine=reference"], ["--engine=reference", "--recompute"]):
                self.refused(source, {"ids": PROMPTS}, "--max-new-tokens=100", *way, says=says)
        self.assertEqual(len(self.rows(source, {"ids": PROMPTS}, "--max-length=8", "--eos-token-id=[]")[0]), 8)  # the cure
        too_long = {"ids": np.zeros((1, 9), np.int32)}  # no length of rows is a cure for a prompt
        self.refused(source, too_long, says="9 positions, but the table has 8 rows: its legal range is [0, 8) [E0506]\n")
        layer = source.replace("table.weight[positions(ids, 1)]", "table(positions(ids, 1))")
        self.refused(layer, {"ids": PROMPTS}, "--max-length=10", says=["m.tfm:8:27: " + says[0], cure])  # the user's line

    def test_I23_the_message_names_the_length(self):
        """A table that is cut: "time", as the model has it, whoever computes it and whatever is kept."""
        for time in ("time", "ragged time"):
            source = language(time=time).replace("embed(ids) ->", "embed(ids) + table[:shape(ids, 1)] ->")
            source = source.replace("head = ", "weight table: [8, d]\n  head = ")
            for beams in ("--num-beams=1", "--num-beams=2"):
                self.refused(source, {"ids": PROMPTS}, "--max-length=10", "--eos-token-id=[]", beams,
                             says=["error: the slice 0 : time = 9 is not within an axis of 8",
                                   "max_length 8 (--max-length 8) ends rows before"])

    def test_I23_tokens_that_the_model_cannot_read(self):
        """It scores more tokens than it has rows for: the message speaks of an input that nobody gave."""
        source = language().replace("embed = Embedding(vocab, d)", "embed = Embedding(5, d)")
        for beams in ("--num-beams=1", "--num-beams=2"):
            self.refused(source, None, "--suppress-tokens=0,1,2,3,4", beams,
                         says=('input "ids"[', "legal range is [0, 5)", "the tokens that were chosen for it"))
        self.refused(source, None, "--decoder-start-token-id=7", says=("= 7, legal range", "what a row begins with"))

    def test_I24_scores_that_are_none_later(self):
        """Positions from 4 on give no scores: the message says for which token."""
        for bad, says in (("-inf", "token 5 are all -inf"), ("inf - inf", "token 5 are not finite")):
            late = f"logits = where((positions(ids, 1) > 3)[:, none], {bad}, head(hidden))"
            source = language().replace("logits = head(hidden)", late)
            self.assertEqual(len(self.rows(source, {"ids": PROMPTS}, "--max-length=5")[0]), 5)
            for beams in ("1", "3"):
                self.refused(source, {"ids": PROMPTS}, "--num-beams", beams, says=says)

    def test_I27_sources_of_their_own_lengths(self):
        """Lengths that are none; what is wrong with one item's own part of the inputs; what stands behind it does not matter."""
        source = translator("ragged source", "batch, 2", "scale[:, none]").replace(
            ", tgt: i32[batch, time]) {", ', tgt: i32[batch, time]) {\n    require source < 4, "{source} of {batch} are too many"', 1)
        self.assertIn("require", source)
        src = np.array([[5, 6, 7, -1], [8, 9, 1000, 1000]], np.int32)
        given = {"src": src, "scale": np.ones((2, 2), np.float32), "source.lengths": np.array([3, 2], np.int32)}
        for options in ((), ("--num-beams=3",)):
            self.rows(source, given, *options)
            for lengths, says in (([3, 5], "'source.lengths' has a length of 5, but source is 4"),
                                  ([-1, 2], "'source.lengths' has a length of -1, but source is 4"),
                                  ([3, 4], "4 of 1 are too many"), ([3, 3], "= 1000, legal range is ["), ([3], "batch of")):
                self.refused(source, {**given, "source.lengths": np.array(lengths, np.int32)}, *options, says=says)
            self.refused(source, {**given, "source.lengths": np.array([3, 2], np.float32)}, *options, says="i32")
            self.refused(source, {**given, "source.lengths": np.array([[3], [2]], np.int32)}, *options, says="i32")
            self.refused(source, {"src": src, "scale": given["scale"]}, *options, says="4 of 1 are too many")

    def test_I27_sources(self):
        """No source, a source that is longer than its mask, and one that the model has no positions for."""
        mask = np.ones((2, 4), np.int32)
        src = np.array([[5, 6, 7, 8], [8, 9, 0, 0]], np.int32)
        for options in ((), ("--num-beams=3",)):
            whole = self.rows(MASKED, {"src": src, "mask": mask}, *options)
            self.assertEqual([len(row) for row in whole], [8, 8])
            none = self.rows(MASKED, {"src": src[:, :0], "mask": mask[:, :0]}, *options)
            self.assertEqual(none, self.rows(MASKED, {"src": src, "mask": 0 * mask}, *options))
        self.refused(MASKED, {"src": src, "mask": mask[:, :3]}, says="source")
        self.refused(MASKED, {"src": src, "mask": mask[:1]}, says="batch")
        self.refused(MASKED, {"src": np.ones((1, 7), np.int32), "mask": np.ones((1, 7), np.int32)}, says="6")

    def test_I21_ends(self):
        self.assertEqual([len(row) for row in self.rows(language(), {"ids": PROMPTS}, "--eos-token-id", ",".join(map(str, range(20))))],
                         [4, 4])
        self.assertEqual([len(row) for row in self.rows(language(), {"ids": PROMPTS}, "--eos-token-id=[]")], [12, 12])

    def test_I24_scores_that_are_none(self):
        for bad, says in (("-inf", "all -inf"), ("inf - inf", "not finite")):
            source = language().replace("logits = head(hidden)", f"logits = where(head(hidden) < inf, {bad}, 0.0) + 0 * head(hidden)")
            self.refused(source, None, says=says)
            self.refused(source, None, "--num-beams=2", says=says)


class RefusalsOfLibraries(Refusals):
    def model(self):
        with open(self.path("m.tfm"), "rb") as file:
            library = os.path.join(LIBRARIES, "lib" + hashlib.sha256(file.read()).hexdigest()[:16] + ".so")
        if not os.path.exists(library):
            subprocess.run([TFMC, "compile", self.path("m.tfm"), "-o", library, "-q"], check=True)
        return library


RefusalsAnew = anew(Refusals)


if __name__ == "__main__":
    sys.exit(main())
