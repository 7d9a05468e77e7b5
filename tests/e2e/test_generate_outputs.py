#!/usr/bin/env python3
"""tfmc generate --return-output: what the model returns for the rows that were written, to the bit what `tfmc run` gives
for each of them alone, with zeros behind the rows that are shorter; and what is refused. Each test four times: with what
earlier tokens gave kept, computed anew for each token, by the reference interpreter, and of compiled libraries.

usage: test_generate_outputs.py TFMC          Needs numpy, safetensors. The last line is 'N passed, N failed'.
"""
import os
import subprocess
import sys
import numpy as np
from safetensors.numpy import load_file, save_file
from generating import MASKED, PROMPTS, TFMC, Case, anew, language, main

SOURCE = {"src": np.array([[5, 6, 7, 4], [8, 9, 11, 0]], np.int32), "mask": np.array([[1, 1, 1, 1], [1, 1, 1, 0]], np.int32)}

RAGGED_SOURCE = """
model Ragged(vocab = 20, d = 16) {
  embed = Embedding(vocab, d)
  decoder = Decoder(d, 2, 2, 32)
  head = Linear(d, vocab)
  forward(src: i32[batch, ragged source], tgt: i32[batch, time]) {
    hidden, own, weights = decoder(embed(tgt), embed(src), tgt_is_causal = true)
    return logits = head(hidden), own, weights
  }
  generate tgt from logits { bos = 1  pad = 0  max_length = 8 }
}
"""


def returning(results):
    """The language model with other outputs beside the logits."""
    return language().replace("logits = head(hidden), hidden", "logits = head(hidden), " + results)


class Outputs:
    def engine(self):
        return [option for option in self.PATH if option.startswith("--engine")]

    def written(self, source, inputs, names, *options):
        """What `generate` writes to one file, each output that is named among it."""
        out = self.path("out.safetensors")
        flags = [flag for name in names for flag in ("--return-output", name)]
        proc = self.tfmc(source, inputs, "-q", "-o", out, *flags, *options)
        self.assertEqual((proc.returncode, proc.stdout, proc.stderr), (0, "", ""))
        return load_file(out)

    def alone(self, inputs, name):
        """One output of `tfmc run` on one row."""
        save_file({k: np.ascontiguousarray(v) for k, v in inputs.items()}, self.path("row.safetensors"))
        subprocess.run([TFMC, "run", self.path("m.tfm"), "--random-weights", "7", "--inputs", self.path("row.safetensors"),
                        "-o", f"{name}=@" + self.path("row.npy"), *self.engine()], check=True)
        return np.load(self.path("row.npy"))

    def check(self, found, inputs, grows, axes, lengths, items):
        """Each row's part of each output: that of a run of its own, then zeros. `axes`: of the rows, by name."""
        sequences = found["sequences"]
        self.assertEqual(len(sequences), len(lengths))
        for i, (row, length, item) in enumerate(zip(sequences, lengths, items)):
            given = {name: value[item:item + 1] for name, value in inputs.items() if name != grows}
            for name, axis in axes.items():
                wanted = self.alone({**given, grows: row[None, :length]}, name)
                part = np.take(found[name], [i], axis)
                inner = part[tuple(slice(n) for n in wanted.shape)]
                self.assertEqual((inner.dtype, inner.tobytes()), (wanted.dtype, wanted.tobytes()), (name, i))
                self.assertEqual(np.count_nonzero(part.view(np.uint8)), np.count_nonzero(inner.copy().view(np.uint8)), (name, i))

    def ends(self, rows, start):
        """An end token that stands in one row before the others come to their end."""
        for end in rows[0][start:-1]:
            if all(end not in row[start:] for row in rows[1:]):
                return end
        self.fail(f"no token of {rows[0]} alone")

    def lengths(self, found, ends, start):
        return [next((t + 1 for t in range(start, len(row)) if row[t] == ends), len(row)) for row in found["sequences"].tolist()]

    def test_attention_weights(self):
        found = self.written(MASKED, SOURCE, ["weights"])
        self.assertEqual(found["weights"].shape, (1, 2, 2, 8, 4))
        np.testing.assert_allclose(found["weights"].sum(-1), 1, atol=1e-5)
        self.assertTrue((found["weights"][:, 1, ..., 3] == 0).all())
        self.check(found, SOURCE, "tgt", {"weights": 1}, [8, 8], [0, 1])

    def test_rows_of_different_lengths_of_beams(self):
        options = ("--num-beams=4", "--num-return-sequences=3")
        rows = self.rows(MASKED, SOURCE, *options)
        for end in sorted({token for row in rows for token in row[1:-1]}):
            found = self.written(MASKED, SOURCE, ["weights", "logits"], f"--eos-token-id={end}", *options)
            lengths = self.lengths(found, end, 1)
            if len(set(lengths)) > 2:
                break
        self.assertGreater(len(set(lengths)), 2)
        self.assertEqual(list(found["scores"].shape), [6])
        self.check(found, SOURCE, "tgt", {"weights": 1, "logits": 0}, lengths, [0, 0, 0, 1, 1, 1])

    def test_every_kind_of_output(self):
        """Numbers of each type, rows on the first axis, on the last, and in between; products and sums of lengths."""
        source = returning("best = argmax(head(hidden)), is_low = ids < 7, turned = transpose(hidden, 0, 2), "
                           "pairs = hidden[:, :, none] + hidden[:, none], twice = reshape(stack(hidden, hidden, axis = 1), "
                           "[shape(ids, 0), 2 * shape(ids, 1), d]), total = sum(f32(ids))")
        axes = {"best": 0, "is_low": 0, "turned": 2, "pairs": 0, "twice": 0, "total": 0, "logits": 0}
        rows = self.rows(source, {"ids": PROMPTS}, "--eos-token-id=[]")
        end = self.ends(rows, 3)
        found = self.written(source, {"ids": PROMPTS}, axes, f"--eos-token-id={end}")
        lengths = self.lengths(found, end, 3)
        self.assertNotEqual(lengths[0], lengths[1])
        self.assertEqual((found["best"].dtype, found["turned"].shape), (np.int32, (16, max(lengths), 2)))
        self.check(found, {}, "ids", axes, lengths, [0, 1])

    def test_one_row_at_a_time(self):
        """A model of one row: its rows are put together where its axis of 1 is; one row alone needs none."""
        source = returning("hidden, plain = hidden[0]").replace("batch", "1")
        found = self.written(source, {"ids": PROMPTS}, ["hidden"])
        self.check(found, {}, "ids", {"hidden": 0}, self.lengths(found, 2, 3), [0, 1])
        found = self.written(source, {"ids": PROMPTS[:1]}, ["plain", "hidden"])
        self.assertEqual(found["plain"].tobytes(), found["hidden"].tobytes())
        self.refused(source, {"ids": PROMPTS}, "--return-output=plain", code=2, says="exactly one axis must be 1")
        self.refused(source, {"ids": PROMPTS[:1]}, "--num-beams=2", "--num-return-sequences=2", "--return-output=plain",
                     code=2, says="exactly one axis must be 1")

    def test_ragged_rows(self):
        source = language(time="ragged time")
        inputs = {"ids": np.array([[5, 6, 7], [8, 9, 1000], [4, 1000, 1000]], np.int32), "time.lengths": np.array([3, 2, 1], np.int32)}
        found = self.written(source, inputs, ["hidden", "logits"], "--eos-token-id=[]", "--max-new-tokens=4")
        self.check(found, {}, "ids", {"hidden": 0, "logits": 0}, [7, 6, 5], [0, 1, 2])

    def test_padding_in_front(self):
        """It is part of a row, as it is for `tfmc run`."""
        prompts = np.array([[0, 0, 7], [8, 9, 4]], np.int32)
        found = self.written(language(), {"ids": prompts}, ["hidden"], "--eos-token-id=[]")
        self.check(found, {}, "ids", {"hidden": 0}, [12, 12], [0, 1])

    def test_nothing_to_begin_with_but_bos(self):
        found = self.written(language(), None, ["hidden"], "--num-beams=3", "--num-return-sequences=3", "--eos-token-id=[]")
        self.check(found, {}, "ids", {"hidden": 0}, [12] * 3, [0] * 3)

    def test_no_rows(self):
        found = self.written(language(), {"ids": PROMPTS[:0]}, ["hidden"])
        self.assertEqual(found["hidden"].shape, (0, 3, 16))

    def test_threads(self):
        options = ("--num-beams=3", "--num-return-sequences=2")
        found = self.written(MASKED, SOURCE, ["weights"], *options)
        again = self.written(MASKED, SOURCE, ["weights"], "--threads=1", *options)
        self.assertEqual(found["weights"].tobytes(), again["weights"].tobytes())

    def test_files(self):
        """One by one, in any order; a file for all holds what is asked for and no more."""
        names = ("sequences", "weights")
        files = [flag for name in names for flag in ("-o", f"{name}=@" + self.path(name + ".npy"))]
        found = self.written(MASKED, SOURCE, ["weights"], *files)
        self.assertEqual(sorted(found), sorted(names))
        for name in names:
            np.testing.assert_array_equal(np.load(self.path(name + ".npy")), found[name])
        self.assertEqual(list(self.written(MASKED, SOURCE, [])), ["sequences"])

    def test_names_that_are_refused(self):
        self.refused(MASKED, SOURCE, "--return-output=weigths", code=2, says='no output "weigths"; it has logits, weights')
        self.refused(MASKED, SOURCE, "--return-output=weights", "--return-output=weights", code=2, says='"weights" is named twice')
        self.refused(MASKED, SOURCE, "--return-output=weights", "--first-step-probabilities", code=2, says="cannot be used with --first-step-probabilities")
        self.refused(MASKED, SOURCE, "-o", "weights=@" + self.path("w.npy"), code=2, says="--return-output=weights adds it")
        for name in ("sequences", "scores", "token_scores"):
            self.refused(returning(name + " = hidden"), None, "--return-output=" + name, code=2, says="another name")
            self.refused(returning(name + " = hidden"), None, "-o", "scores=@" + self.path("w.npy"), code=2,
                         says='this generation has no output "scores"')
        proc = self.tfmc(MASKED, SOURCE, "--return-output=weights")
        self.assertEqual((proc.returncode, proc.stdout), (2, ""))
        self.assertIn("name one with --output", proc.stderr)

    def test_shapes_that_are_refused(self):
        for result in ("x = embed.weight", "x = merge_heads(transpose(hidden[:, none] + hidden[none], 1, 2))",
                       "x = reshape(hidden, [shape(ids, 0) * shape(ids, 1), d])", "x = hidden[:, none] + hidden[none]"):
            self.refused(returning(result), {"ids": PROMPTS}, "--return-output=x", code=2,
                         says=('"x", f32[', "exactly one axis must be `batch`"))

    def test_shorter_rows_that_have_more(self):
        source = returning("x = embed.weight[shape(ids, 1):][none] + 0 * hidden[:, :1, :1]")
        rows = self.rows(source, {"ids": PROMPTS}, "--eos-token-id=[]")
        self.refused(source, {"ids": PROMPTS}, f"--eos-token-id={self.ends(rows, 3)}", "--return-output=x", code=2,
                     says="a shorter row is more than a longer one has")

    def test_a_run_that_fails(self):
        """Every token can be written, but the last cannot be read: no file appears."""
        source = language().replace("embed(ids) ->", "embed(ids) + table.weight[positions(ids, 1)] ->")
        source = source.replace("head = ", "table = Embedding(8, d)\n  head = ")
        self.assertEqual(len(self.rows(source, {"ids": PROMPTS}, "--max-length=9", "--eos-token-id=[]")[0]), 9)
        self.refused(source, {"ids": PROMPTS}, "--max-length=9", "--eos-token-id=[]", "--return-output=hidden",
                     "-o", "hidden=@" + self.path("h.npy"), says=("9 positions, but the table has 8", "the run on the finished rows"))
        self.assertFalse(os.path.exists(self.path("h.npy")))


class OutputsOfCompiler(Outputs, Case):
    """And what libraries do not take."""

    def test_ragged_sources(self):
        inputs = {"src": np.array([[5, 6, 7, 8], [8, 9, 0, 0]], np.int32), "source.lengths": np.array([4, 2], np.int32)}
        options = ("--num-beams=3", "--num-return-sequences=2")
        found = self.written(RAGGED_SOURCE, inputs, ["weights", "own"], *options)
        self.assertEqual(found["weights"].shape, (2, 4, 2, 8, 4))
        self.check(found, inputs, "tgt", {"weights": 1, "own": 1}, [8] * 4, [0, 0, 1, 1])

    def test_weights_of_their_own(self):
        """A weight that the scores do not need is asked for if its output is, and only then."""
        source = returning("other = tail(hidden)").replace("head = ", "tail = Linear(d, 3)\n  head = ")
        self.tfmc(source, None)
        whole = self.path("w.safetensors")
        needed = {"embed.weight": (20, 16), "head.weight": (20, 16), "head.bias": (20,)}
        for layer in range(2):
            at = f"encoder.layers.{layer}."
            needed.update({at + "self_attn.in_proj_weight": (48, 16), at + "self_attn.in_proj_bias": (48,),
                           at + "self_attn.out_proj.weight": (16, 16), at + "self_attn.out_proj.bias": (16,),
                           at + "linear1.weight": (32, 16), at + "linear1.bias": (32,), at + "linear2.weight": (16, 32),
                           at + "linear2.bias": (16,), at + "norm1.weight": (16,), at + "norm1.bias": (16,),
                           at + "norm2.weight": (16,), at + "norm2.bias": (16,)})
        random = np.random.default_rng(1)
        save_file({name: random.normal(0, 0.3, dims).astype(np.float32) for name, dims in needed.items()}, whole)
        command = [TFMC, "generate", self.model(), "--weights", whole, "-o", self.path("o.safetensors"), "-q", *self.PATH]
        self.assertEqual(subprocess.run(command, capture_output=True).returncode, 0)
        proc = subprocess.run([*command, "--return-output=other"], capture_output=True, text=True)
        self.assertEqual(proc.returncode, 1)
        self.assertIn("tail.weight", proc.stderr)


OutputsAnew = anew(OutputsOfCompiler)
OutputsOfReference = type("OutputsOfReference", (OutputsOfCompiler,), {"PATH": ("--engine=reference",)})


class OutputsOfLibraries(Outputs, Case):
    """Rows alone are run by the compiler: the bits of libraries are the same."""

    def model(self):
        library = self.path("libm.so")
        subprocess.run([TFMC, "compile", self.path("m.tfm"), "-o", library, "-q"], check=True)
        return library


if __name__ == "__main__":
    sys.exit(main())
