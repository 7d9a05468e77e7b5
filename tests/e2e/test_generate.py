#!/usr/bin/env python3
"""tfmc generate: what begins a row, options and where they come from, results, the same tokens whatever the batch, the
threads and the form of the inputs. All of it twice: with what earlier tokens gave kept, and computed anew for each token.

usage: test_generate.py TFMC          Needs numpy, safetensors. The last line is 'N passed, N failed'.
"""
import os
import re
import subprocess
import sys
import numpy as np
from safetensors.numpy import load_file, save_file
from generating import MASKED, PROMPTS, SILENT, TFMC, Case, anew, language, main, translator


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

    def test_sources_of_their_own_lengths(self):
        """The scores of an item to the last bit, whatever the others, their number and the threads are; its padding is never read."""
        lengths = np.array([4, 2, 4, 0, 3, 7, 2], np.int32)
        src = np.array([[3 + (5 * i + j) % 8 if j < n else 2 ** 31 - 1 for j in range(7)] for i, n in enumerate(lengths)], np.int32)
        scale = np.array([[i % 3 - 0.5, i / 4] for i in range(7)], np.float32)
        source, plain = translator("ragged source", "batch, 2", "scale[:, none]"), translator("source", "batch, 2", "scale[:, none]")

        def written(model, inputs, *options):
            out = self.path("out.safetensors")
            proc = self.tfmc(model, inputs, "-q", "--return-token-scores", "-o", out, *options)
            self.assertEqual((proc.returncode, proc.stderr), (0, ""))
            result = load_file(out)
            return [(tokens.tobytes(), scores.tobytes()) for tokens, scores in zip(result["sequences"], result["token_scores"])]
        for beams in ("1", "3"):
            options = ("--num-beams", beams, "--eos-token-id=[]")
            alone = [written(plain, {"src": src[i:i + 1, :n], "scale": scale[i:i + 1]}, *options)[0] for i, n in enumerate(lengths)]
            for items in (range(7), [6, 1, 3], [5]):
                given = {"src": src[items], "scale": scale[items], "source.lengths": lengths[items]}
                for threads in ("1", "2", "4"):
                    self.assertEqual(written(source, given, "--threads", threads, *options), [alone[i] for i in items])

    def test_a_source_shorter_than_the_batch_whose_first_axis_is_its_positions(self):
        source = translator("source", "batch", "scale[:, none, none]").replace("src: i32[batch, source]", "src: i32[source, batch]")
        source = source.replace("embed(src)", "embed(transpose(src, 0, 1))")
        src, scale = np.array([[5, 8, 9], [6, 7, 3]], np.int32), np.array([1, 2, -1], np.float32)
        alone = [self.rows(source, {"src": src[:, i:i + 1], "scale": scale[i:i + 1]})[0] for i in range(3)]
        self.assertEqual(self.rows(source, {"src": src, "scale": scale}), alone)

    def test_sources(self):
        src, scale = np.array([[5, 6, 7, 8], [8, 9, 0, 0]], np.int32), np.array([[1], [2], [3], [-1]], np.float32)
        plain = translator("source", "batch * 2, 1", "reshape(scale, [shape(src, 0), 1, 2])")
        ragged = translator("ragged source", "batch, 2", "scale[:, none]")
        for options in ((), ("--num-beams", "4")):
            wanted = [self.rows(plain, {"src": src[:1], "scale": scale[:2]}, *options)[0],
                      self.rows(plain, {"src": src[1:, :2], "scale": scale[2:]}, *options)[0]]
            given = {"src": src, "scale": scale.reshape(2, 2), "source.lengths": np.array([4, 2], np.int32)}
            self.assertEqual(self.rows(ragged, given, *options), wanted)
            self.assertEqual(self.rows(ragged, given, "--engine=reference", *options), wanted)
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
        proc = self.tfmc(language(), None, config={"temprature": 2, "penalty_alpha": 0.6, "typical_p": 1.0})
        self.assertEqual(proc.returncode, 1, proc.stderr)
        self.assertIn('did you mean "temperature"', proc.stderr)
        self.assertIn('"penalty_alpha": it is no option of generation here', proc.stderr)
        self.assertNotIn("typical_p", proc.stderr)

    def test_configs_that_are_none(self):
        self.refused(language(), None, config='{"num_beams": 2', says="config.json")
        self.refused(language(), None, config="[1]", says="JSON object")
        self.refused(language(), None, config={"num_beams": "2"}, says="num_beams must be a whole number")
        self.refused(language(), None, config={"bad_words_ids": [[1, 2]]}, says="one id each")
        self.refused(language(), None, config={"early_stopping": "soon"}, says="early_stopping")
        self.refused(language(), None, "--generation-config", self.path("none.json"), code=3)
        self.refused(language(), None, "--num-beams", "x", code=2, says="--num-beams")
        for limit in "max_new_tokens", "max_length":  # in C -1 says that none is given
            self.refused(language(), None, config={limit: -1}, says=f"{limit} must be 1 or more")
            flag = "--" + limit.replace("_", "-")
            self.refused(language(), None, flag + "=-1", code=2, says=f"{flag} must be 1 or more")
        self.refused(language(), None, "--output", self.path("m.tfm"), code=2)

    def test_flags_without_effect(self):
        """A warning names them; configs of other people's models are full of them and say nothing."""
        said = lambda *options, **kw: [line for line in self.tfmc(language(), None, *options, **kw).stderr.splitlines() if "effect" in line]
        for flag, needs in (("--temperature=0.5", "--do-sample"), ("--top-k=3", "--do-sample"), ("--top-p=0.9", "--do-sample"),
                            ("--length-penalty=2", "--num-beams"), ("--early-stopping=never", "--num-beams")):
            self.assertEqual(said(flag), [f"tfmc: warning: {flag.split('=')[0]} has no effect without {needs} [W0215]"])
            self.assertEqual(said(flag, needs if needs == "--do-sample" else "--num-beams=2"), [])
        self.assertEqual(said("--temperature=0"), [])
        self.assertEqual(said("--top-k=3", config={"do_sample": True}), [])
        self.assertEqual(said(config={"temperature": 0.5, "top_k": 3, "length_penalty": 2}), [])

    def test_speed_is_said_on_stderr(self):
        proc = self.tfmc(language(), {"ids": PROMPTS})
        self.assertRegex(proc.stderr, r"^18 new tokens in [1-9][0-9.]* (µs|ms|s), [0-9.]+ tokens/s\n$")

    def test_memory_is_reported(self):
        printed = self.tfmc(language(), {"ids": PROMPTS}, "--report").stdout.splitlines()
        memory = [line for line in printed if line.startswith("memory: ")]
        if self.PATH:
            self.assertEqual(memory, [])
            return
        page = 2 * 2 * 16 * 16 * 4 + 128  # keys and values of two layers, 16 columns, 16 positions
        self.assertEqual(memory[1], f"memory: 16 tokens of a row {page} bytes, a row of 12 tokens {page}")
        self.assertRegex(memory[2], r"^memory: room for 2 rows of 12 tokens, with workspaces: [0-9]+ bytes$")
        self.assertGreater(int(memory[2].split()[-2]), 2 * page)

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

    def test_files_that_are_a_slip(self):
        """Names of other kinds of files, two results in one file, the weights that a library would read."""
        def refused(says, *files):
            flags = [word for file in files for word in ("-o", file)]
            proc = self.tfmc(language(), {"ids": PROMPTS}, "--num-beams=2", *flags)
            self.assertEqual((proc.returncode, proc.stdout), (2, ""), proc.stderr)
            self.assertIn(says, proc.stderr)
        x, y = self.path("x.npy"), self.path("y.safetensors")
        refused("a .npy file has one output", x)
        refused(f"one output goes to sequences=@{x}", "sequences=" + x)
        refused("one output goes to a .npy file", "sequences=@" + y)
        refused(f"{x} is named twice", "sequences=@" + x, "scores=@" + x)
        other = self.path("other")
        refused(f"{other} is named twice", "sequences=@" + other, other)
        with open(other, "w"):
            os.symlink(other, self.path("link"))
        refused("link is named twice", "sequences=@" + other, self.path("link"))
        self.assertEqual(os.listdir(self.folder.name).count("x.npy"), 0)

    def test_weights_beside_a_library_are_no_output(self):
        self.tfmc(language(), {"ids": PROMPTS})
        library, packed = self.path("libm.so"), self.path("m.tfmw")
        weights = self.path("w.safetensors")
        listed = subprocess.run([TFMC, "check", "-v", self.model()], capture_output=True, text=True, check=True).stdout
        shapes = re.findall(r"^  (\S+) +f32\[(.*)\]$", listed[listed.index("weights:"):], re.MULTILINE)
        save_file({name: np.full([int(n) for n in dims.split(", ")], 0.1, np.float32) for name, dims in shapes}, weights)
        subprocess.run([TFMC, "compile", self.model(), "-o", library, "--weights", weights, "-q"], check=True)
        for verb in ("generate", "run"):
            proc = subprocess.run([TFMC, verb, library, "--inputs", self.path("in.safetensors"), "-o", packed], capture_output=True, text=True)
            self.assertEqual(proc.returncode, 2)
            self.assertIn("would overwrite", proc.stderr)
        proc = subprocess.run([TFMC, "generate", library, "--inputs", self.path("in.safetensors"), "-q"], capture_output=True, text=True)
        self.assertEqual((proc.returncode, len(proc.stdout.splitlines())), (0, 2), proc.stderr)

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


BeginningsAnew, OptionsAnew, OutputsAnew, SamplingAnew = map(anew, (Beginnings, Options, Outputs, Sampling))


if __name__ == "__main__":
    sys.exit(main())
