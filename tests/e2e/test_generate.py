#!/usr/bin/env python3
"""tfmc generate: what begins a row, options and where they come from, what is refused (I19 to I27 of the catalogue of bad
inputs), the same tokens whatever the batch, the threads and the form of the inputs. All of it twice: with what earlier
tokens gave kept, and computed anew for each token.

usage: test_generate.py TFMC          Needs numpy, safetensors. The last line is 'N passed, N failed'.
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest
import numpy as np
from safetensors.numpy import load_file, save_file

TFMC = None

LANGUAGE = """
model Language(vocab = 20, d = 16, end = 2) {
  embed = Embedding(vocab, d)
  encoder = Encoder(d, 2, 2, 32)
  head = Linear(d, vocab)
  forward(ids: i32[BATCH, TIME]) {
    hidden = embed(ids) -> encoder(is_causal = true)
    return logits = head(hidden), hidden
  }
  generate ids from logits { bos = 3  eos = end  pad = 0  max_length = 12 }
}
"""

TRANSLATOR = """
model Translator(vocab = 20, d = 16) {
  embed = Embedding(vocab, d)
  transformer = Transformer(d, 2, 1, 1, 32)
  head = Linear(d, vocab)
  forward(src: i32[batch, SOURCE], scale: f32[SCALE], tgt: i32[batch, time]) {
    factors = FACTORS
    memory = embed(src) * mean(factors, keepdim = true)
    logits = transformer(memory, embed(tgt), tgt_is_causal = true) -> head
    return logits
  }
  generate tgt from logits { bos = 1  eos = 2  pad = 0  max_length = 12 }
}
"""

MASKED = """
model Masked(vocab = 20, d = 16) {
  embed = Embedding(vocab, d)
  table = Embedding(6, d)
  decoder = Decoder(d, 2, 1, 32)
  head = Linear(d, vocab)
  forward(src: i32[batch, source], mask: i32[batch, source], tgt: i32[batch, time]) {
    memory = embed(src) + table.weight[positions(src, 1)]
    hidden, own, weights = decoder(embed(tgt), memory, tgt_is_causal = true, memory_key_padding_mask = mask == 0)
    return logits = head(hidden), weights
  }
  generate tgt from logits { bos = 1  pad = 0  max_length = 8 }
}
"""

SILENT = "model Silent() { forward(x: f32[batch]) { return y = x } }"


def language(batch="batch", time="time"):
    return LANGUAGE.replace("BATCH", batch).replace("TIME", time)


def translator(source, scale, factors):
    return TRANSLATOR.replace("SOURCE", source).replace("SCALE", scale).replace("FACTORS", factors)


class Case(unittest.TestCase):
    PATH = ()

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def tfmc(self, source, inputs, *options, config=None):
        with open(self.path("m.tfm"), "w") as file:
            file.write(source)
        arguments = [TFMC, "generate", self.path("m.tfm"), "--random-weights", "7"]
        if inputs is not None:
            save_file({k: np.ascontiguousarray(v) for k, v in inputs.items()}, self.path("in.safetensors"))
            arguments += ["--inputs", self.path("in.safetensors")]
        if config is not None:
            with open(self.path("config.json"), "w") as file:
                file.write(config if isinstance(config, str) else json.dumps(config))
            arguments += ["--generation-config", self.path("config.json")]
        return subprocess.run([*arguments, *self.PATH, *options], capture_output=True, text=True, timeout=120)

    def rows(self, source, inputs, *options, config=None):
        """The rows that are printed."""
        proc = self.tfmc(source, inputs, "-q", *options, config=config)
        self.assertEqual((proc.returncode, proc.stderr), (0, ""))
        return [json.loads(line) for line in proc.stdout.splitlines()]

    def refused(self, source, inputs, *options, config=None, code=1, says=()):
        out = self.path("refused.safetensors")
        proc = self.tfmc(source, inputs, "--output", out, *options, config=config)
        self.assertEqual(proc.returncode, code, proc.stderr)
        self.assertFalse(os.path.exists(out))
        self.assertEqual(proc.stdout, "")
        for word in [says] if isinstance(says, str) else says:
            self.assertIn(word, proc.stderr)


PROMPTS = np.array([[5, 6, 7], [8, 9, 4]], np.int32)


class Beginnings(Case):
    def test_start_token(self):
        rows = self.rows(language(), None)
        self.assertEqual((len(rows), rows[0][0], len(rows[0])), (1, 3, 12))
        self.assertEqual(self.rows(language(), None, "--decoder-start-token-id", "5")[0][0], 5)
        self.assertEqual(self.rows(language(), None, config={"bos_token_id": 6})[0][0], 6)

    def test_nothing_to_begin_with(self):
        self.refused(language().replace("bos = 3", ""), None, says='give the input "ids"')

    def test_prompt(self):
        for row, prompt in zip(self.rows(language(), {"ids": PROMPTS}), PROMPTS):
            self.assertEqual(row[:3], list(prompt))

    def test_rows_do_not_depend_on_the_batch_or_its_form(self):
        for options in ((), ("--num-beams", "3"), ("--repetition-penalty", "1.5")):
            alone = [self.rows(language(), {"ids": PROMPTS[i:i + 1]}, *options)[0] for i in range(2)]
            for source in (language(), language(batch="1"), language(time="ragged time")):
                self.assertEqual(self.rows(source, {"ids": PROMPTS}, *options), alone)
            self.assertEqual(self.rows(language(), {"ids": PROMPTS}, "--threads=1", *options), alone)

    def test_ragged_prompts(self):
        padded = np.array([[5, 6, 7], [8, 9, 1000]], np.int32)
        inputs = {"ids": padded, "time.lengths": np.array([3, 2], np.int32)}
        for options in ((), ("--num-beams", "3", "--num-return-sequences", "2")):
            wanted = self.rows(language(), {"ids": padded[:1]}, *options) + self.rows(language(), {"ids": padded[1:, :2]}, *options)
            for engine in ("native", "reference"):
                self.assertEqual(self.rows(language(time="ragged time"), inputs, f"--engine={engine}", *options), wanted)
        self.refused(language(time="ragged time"), {"time.lengths": np.array([3], np.int32)}, says="is not given, only its lengths")

    def test_sources(self):
        src, scale = np.array([[5, 6, 7, 8], [8, 9, 0, 0]], np.int32), np.array([[1], [2], [3], [-1]], np.float32)
        plain = translator("source", "batch * 2, 1", "reshape(scale, [shape(src, 0), 1, 2])")
        ragged = translator("ragged source", "batch, 2", "scale[:, none]")
        for options in ((), ("--num-beams", "4")):
            wanted = [self.rows(plain, {"src": src[:1], "scale": scale[:2]}, *options)[0],
                      self.rows(plain, {"src": src[1:, :2], "scale": scale[2:]}, *options)[0]]
            given = {"src": src, "scale": scale.reshape(2, 2), "source.lengths": np.array([4, 2], np.int32)}
            self.assertEqual(self.rows(ragged, given, *options), wanted)
        prefix = {"src": src, "scale": scale, "tgt": np.array([[1, 7], [1, 8]], np.int32)}
        self.assertEqual([row[:2] for row in self.rows(plain, prefix)], [[1, 7], [1, 8]])
        self.refused(plain, {**prefix, "tgt": prefix["tgt"][:1]}, says="batch of")
        self.refused(plain, {"src": src, "scale": scale[:3]}, says='"scale"')
        self.refused(plain, {"src": src[0], "scale": scale}, says="shape [4]")
        self.refused(plain, {"src": src}, says='"scale"')

    def test_no_rows_and_no_tokens(self):
        out = self.path("out.safetensors")
        proc = self.tfmc(language(), {"ids": PROMPTS[:0]}, "--output", out)
        self.assertEqual(proc.returncode, 0, proc.stderr)
        self.assertEqual(load_file(out)["sequences"].shape, (0, 3))
        self.refused(language(), {"ids": PROMPTS[:, :0]}, says="the prompt is empty")

    def test_ids_and_shapes_of_prompts(self):
        self.refused(language(), {"ids": np.array([[5, 99]], np.int32)}, says=('"ids"[0,1] = 99', "[0, 20)"))
        self.refused(language(), {"ids": PROMPTS[0]}, says="shape [3]")

    def test_models_that_do_not_write(self):
        self.refused(SILENT, None, says="no generate block")


class Options(Case):
    def test_later_ones_win(self):
        length = lambda *options, **kw: len(self.rows(language(), {"ids": PROMPTS}, *options, **kw)[0])
        self.assertEqual(length(), 12)
        self.assertEqual(length(config={"max_length": 8}), 8)
        self.assertEqual(length(config={"max_new_tokens": 4, "max_length": 9}), 7)
        self.assertEqual(length("--max-length=10", config={"max_new_tokens": 4}), 10)
        self.assertEqual(length("--max-new-tokens", "2", config={"max_new_tokens": 4}), 5)

    def test_flags_mean_what_a_config_means(self):
        config = {"num_beams": 3, "num_return_sequences": 2, "length_penalty": -0.5, "early_stopping": "never",
                  "suppress_tokens": [4, 5], "eos_token_id": [2, 7], "min_new_tokens": 2, "no_repeat_ngram_size": 2,
                  "forced_eos_token_id": 7, "repetition_penalty": 1.1}
        flags = []
        for name, value in config.items():
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            flags += ["--" + name.replace("_", "-"), text]
        rows = self.rows(language(), {"ids": PROMPTS}, config=config)
        self.assertEqual(self.rows(language(), {"ids": PROMPTS}, *flags), rows)
        self.assertEqual(len(rows), 4)

    def test_names_of_other_configs(self):
        rows = self.rows(language(), None, "--suppress-tokens=18", "--max-length=5")
        config = {"bad_words_ids": [[18], [2]], "max_length": 5, "top_k": None, "transformers_version": "5.23"}
        self.assertEqual(self.rows(language(), None, config=config), rows)
        proc = self.tfmc(language(), None, config={"temprature": 2, "penalty_alpha": 0.6})
        self.assertEqual(proc.returncode, 0, proc.stderr)
        self.assertIn('did you mean "temperature"', proc.stderr)
        self.assertIn('"penalty_alpha" is no option', proc.stderr)

    def test_configs_that_are_none(self):
        self.refused(language(), None, config='{"num_beams": 2', says="config.json")
        self.refused(language(), None, config="[1]", says="JSON object")
        self.refused(language(), None, config={"num_beams": "2"}, says="num_beams must be a whole number")
        self.refused(language(), None, config={"bad_words_ids": [[1, 2]]}, says="one id each")
        self.refused(language(), None, config={"early_stopping": "soon"}, says="early_stopping")
        self.refused(language(), None, "--generation-config", self.path("none.json"), code=3)
        self.refused(language(), None, "--num-beams", "x", code=2, says="--num-beams")
        self.refused(language(), None, "--output", self.path("m.tfm"), code=2)

    def test_speed_is_said_on_stderr(self):
        proc = self.tfmc(language(), {"ids": PROMPTS})
        self.assertRegex(proc.stderr, r"^18 new tokens in [0-9.]+ s, [0-9.]+ tokens/s\n$")

    def test_output(self):
        out = self.path("out.safetensors")
        self.assertEqual(self.tfmc(language(), {"ids": PROMPTS}, "--num-beams=2", "--output", out).returncode, 0)
        found = load_file(out)
        self.assertEqual((found["sequences"].dtype, found["scores"].dtype), (np.int32, np.float32))
        self.assertEqual(found["scores"].shape, (2,))
        files = ["-o", "sequences=@" + self.path("s.npy"), "-o", "scores=@" + self.path("x.npy")]
        self.assertEqual(self.tfmc(language(), {"ids": PROMPTS}, "--num-beams=2", *files).returncode, 0)
        np.testing.assert_array_equal(np.load(self.path("s.npy")), found["sequences"])
        np.testing.assert_array_equal(np.load(self.path("x.npy")), found["scores"])
        proc = self.tfmc(language(), {"ids": PROMPTS}, "-o", "scores=@" + self.path("y.npy"))
        self.assertEqual(proc.returncode, 2)
        self.assertIn('this generation has no output "scores"', proc.stderr)
        self.assertFalse(os.path.exists(self.path("y.npy")))

    def test_scores_of_tokens(self):
        out = self.path("out.safetensors")
        for beams in (1, 3):
            proc = self.tfmc(language(), {"ids": PROMPTS}, f"--num-beams={beams}", "--return-token-scores", "--output", out)
            self.assertEqual(proc.returncode, 0, proc.stderr)
            found = load_file(out)
            scores = found["token_scores"]
            self.assertEqual(scores.shape, found["sequences"].shape)
            self.assertTrue((scores[:, :3] == 0).all() and (scores[:, 3:] <= 0).all() and (scores[:, 3] < 0).all())
            if beams > 1:
                new = (scores != 0).sum(1)
                np.testing.assert_allclose(scores.sum(1) / new, found["scores"], atol=1e-5)


class Outputs(Case):
    def test_attention_weights_of_what_was_written(self):
        inputs = {"src": np.array([[5, 6, 7], [8, 9, 0]], np.int32), "mask": np.array([[1, 1, 1], [1, 1, 0]], np.int32)}
        written, weights = self.path("tokens.npy"), self.path("weights.npy")
        proc = self.tfmc(MASKED, inputs, "--num-beams=3", "-o", "sequences=@" + written)
        self.assertEqual(proc.returncode, 0, proc.stderr)
        subprocess.run([TFMC, "run", self.path("m.tfm"), "--random-weights", "7", "--inputs", self.path("in.safetensors"),
                        "--input", "tgt=@" + written, "-o", "weights=@" + weights], check=True)
        found = np.load(weights)
        self.assertEqual(found.shape, (1, 2, 2, np.load(written).shape[1], 3))
        np.testing.assert_allclose(found.sum(-1), 1, atol=1e-5)
        self.assertTrue((found[:, 1, ..., 2] == 0).all())


class Sampling(Case):
    def test_the_seed_decides(self):
        draw = lambda seed, *more: self.rows(language(), {"ids": PROMPTS}, "--do-sample", f"--seed={seed}", *more)
        self.assertEqual(draw(1), draw(1, "--threads=1"))
        self.assertNotEqual(draw(1), draw(2))
        self.assertEqual(draw(1, "--temperature=0"), self.rows(language(), {"ids": PROMPTS}))
        self.assertEqual(draw(1, "--top-k=1"), self.rows(language(), {"ids": PROMPTS}))

    def test_first_step(self):
        out = self.path("out.safetensors")
        proc = self.tfmc(language(), {"ids": PROMPTS}, "--do-sample", "--top-k=5", "--first-step-probabilities", "--output", out)
        self.assertEqual(proc.returncode, 0, proc.stderr)
        found = load_file(out)
        self.assertEqual(list(found), ["probabilities"])
        np.testing.assert_allclose(found["probabilities"].sum(1), 1, atol=1e-6)
        self.assertEqual((found["probabilities"] > 0).sum(1).tolist(), [5, 5])


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
        self.refused(source, {"ids": PROMPTS}, "--max-length=10", says="8")
        self.refused(source, {"ids": PROMPTS}, "--max-length=1000", "--num-beams=2", says="8")
        self.refused(source, {"ids": np.zeros((1, 9), np.int32)}, says="8")

    def test_I24_scores_that_are_none_later(self):
        """Positions from 4 on give no scores: the message says for which token."""
        for bad, says in (("-inf", "token 5 are all -inf"), ("inf - inf", "token 5 are not finite")):
            late = f"logits = where((positions(ids, 1) > 3)[:, none], {bad}, head(hidden))"
            source = language().replace("logits = head(hidden)", late)
            self.assertEqual(len(self.rows(source, {"ids": PROMPTS}, "--max-length=5")[0]), 5)
            for beams in ("1", "3"):
                self.refused(source, {"ids": PROMPTS}, "--num-beams", beams, says=says)

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


def anew(case):
    """The same tests without the incremental form."""
    return type(case.__name__ + "Anew", (case,), {"PATH": ("--recompute",)})


BeginningsAnew, OptionsAnew, OutputsAnew, SamplingAnew, RefusalsAnew = map(anew, (Beginnings, Options, Outputs, Sampling, Refusals))


def main():
    global TFMC
    TFMC = os.path.abspath(sys.argv.pop(1))
    result = unittest.main(exit=False, verbosity=1).result
    bad = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - bad} passed, {bad} failed")
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
