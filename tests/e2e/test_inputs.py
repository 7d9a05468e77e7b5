#!/usr/bin/env python3
"""What a run does with bad and unusual inputs: ids, sizes, masks, NaN (I01 to I10 of the catalogue of bad inputs).

usage: test_inputs.py TFMC          Needs numpy, safetensors. The last line is 'N passed, N failed'.
"""
import os
import subprocess
import sys
import tempfile
import unittest
import numpy as np
from safetensors.numpy import load_file, save_file

import tally

TFMC = None

EMBED = """
model Embed(vocab = 40, d = 32) {
  word  = Embedding(vocab, d)
  place = PositionalEncoding(d, max_len = 20)
  block = EncoderLayer(d, 4, 48)
  forward(ids: i32[batch, time], pad: bool[batch, time]) {
    hidden = word(ids) -> place -> block(src_key_padding_mask = pad)
    return hidden
  }
}
"""

ATTEND = """
model Attend(d = 32) {
  attention = MultiheadAttention(d, 4)
  forward(x: f32[batch, time, d], pad: bool[batch, time], mask: bool[time, time]) {
    y, weights = attention(x, x, x, pad, mask)
    return y, weights
  }
}
"""

MASKS = """
model Masks(d = 16) {
  attention = MultiheadAttention(d, 2)
  forward(x: f32[batch, time, d], pad: bool[batch, time], mask: f32[batch, 1, time, time]) {
    return y = attention(x, x, x, pad, mask)
  }
}
"""

QUOTIENTS = """
model Quotients {
  forward(x: f32[batch, time, 4], y: f32[batch, time // 2, 4], z: f32[(time + 1) // 3 * 2]) {
    t = shape(x, 1)
    require (t - 7) // 3 < 1 or t % 5 == 0, "{t} is too long"
    a = x[:, : t // 2] + y
    return a, b = a[:, : t // 3] * (t // 5), c = sum(z) + 0 * sum(sum(sum(x))), d = full([(t - 1) // 2], 1),
           e = x[:, t // 3 :: 2], f = x[:, :: 3] - t % 3, g = positions(x, 1) // (t // 2 + 1)
  }
}
"""

SQUARES = """
model Squares {
  forward(x: f32[time, 0]) {
    t = shape(x, 0)
    require (t * t) // 3 >= t % 2, "no"
    return y = x
  }
}
"""


RANGES = """
model Ranges {
  table = Embedding(10, 4)
  fn looked_up(at) {
    require at >= -5 and at < 5, "five either way"
    return table(at + 5)
  }
  forward(ids: i32[batch, time], shift: i32[batch] = 0, n: i32[1]) {
    require 3 > shift and -3 <= shift, "shifts are small"
    require n > 0, "n counts"
    require n <= 2 * 2, "to four"
    return y = looked_up(ids), z = (ids + shift[:, none]) * n
  }
}
"""


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.rng = np.random.default_rng(7)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def run_model(self, source, inputs, *options):
        """(exit code, stderr, outputs or None)"""
        with open(self.path("m.tfm"), "w") as f:
            f.write(source)
        save_file({k: np.ascontiguousarray(v) for k, v in inputs.items()}, self.path("in.safetensors"))
        if os.path.exists(self.path("out.safetensors")):
            os.unlink(self.path("out.safetensors"))
        proc = subprocess.run([TFMC, "run", self.path("m.tfm"), "--random-weights", "3", "--inputs", self.path("in.safetensors"),
                               "--output", self.path("out.safetensors"), *options], capture_output=True, text=True, timeout=120)
        written = os.path.exists(self.path("out.safetensors"))
        self.assertEqual(written, proc.returncode == 0, proc.stderr)
        return proc.returncode, proc.stderr, load_file(self.path("out.safetensors")) if written else None

    def good(self, source, inputs, *options):
        code, err, outputs = self.run_model(source, inputs, *options)
        self.assertEqual(code, 0, err)
        return outputs

    def refused(self, source, inputs, *words):
        for engine in ("native", "reference"):
            code, err, _ = self.run_model(source, inputs, f"--engine={engine}")
            self.assertEqual(code, 1, f"{engine}: {err}")
            for word in words:
                self.assertIn(word, err, engine)

    def ids(self, *shape):
        return self.rng.integers(0, 40, shape).astype(np.int32)

    def embed(self, batch, time):
        return {"ids": self.ids(batch, time), "pad": np.zeros((batch, time), bool)}

    def attend(self, batch, time):
        return {"x": self.rng.standard_normal((batch, time, 32)).astype(np.float32), "pad": np.zeros((batch, time), bool),
                "mask": np.zeros((time, time), bool)}

    # ---- ids and sizes ----

    def test_I01_ids_out_of_range(self):
        for bad in (40, 41, -1, -2**31, 2**31 - 1):
            inputs = self.embed(3, 9)
            inputs["ids"][2, 7] = bad
            self.refused(EMBED, inputs, "ids", "[2,7]", str(bad), "[0, 40)")

    def test_I01_wide_ids_are_not_truncated(self):
        inputs = self.embed(3, 9)
        wide = inputs["ids"].astype(np.int64)
        wide[1, 1] = 2**32 + 5
        self.refused(EMBED, inputs | {"ids": wide}, "ids", str(2**32 + 5))

    def test_I02_empty_batch_and_sequence(self):
        for batch, time in ((0, 5), (2, 0), (0, 0)):
            self.assertEqual(self.good(EMBED, self.embed(batch, time))["hidden"].shape, (batch, time, 32))

    def test_I03_sequence_longer_than_the_table(self):
        self.good(EMBED, self.embed(2, 20))
        self.refused(EMBED, self.embed(2, 21), "21", "20")

    # ---- masks ----

    def test_I04_all_keys_masked(self):
        inputs = self.attend(3, 7)
        clean = self.good(ATTEND, inputs)
        inputs["pad"][1] = True
        masked = self.good(ATTEND, inputs)
        self.assertTrue(np.all(masked["weights"][1] == 0))
        self.assertTrue(np.isfinite(masked["y"]).all())
        self.assertTrue(np.all(masked["y"][1] == masked["y"][1][0]))    # the bias of the projection, in every row
        for row in (0, 2):
            self.assertEqual(clean["y"][row].tobytes(), masked["y"][row].tobytes())

    def test_I05_nan_at_masked_keys_stays_there(self):
        inputs = self.attend(2, 18)
        inputs["pad"][:, 11:] = True
        clean = self.good(ATTEND, inputs)
        for poison in (np.nan, np.inf, -np.inf):
            inputs["x"][:, 11:] = poison
            got = self.good(ATTEND, inputs)
            self.assertEqual(clean["y"][:, :11].tobytes(), got["y"][:, :11].tobytes())

    def test_I06_nan_in_one_row_of_a_batch(self):
        inputs = self.attend(3, 9)
        clean = self.good(ATTEND, inputs)
        inputs["x"][1, 4, 3] = np.nan
        got = self.good(ATTEND, inputs)
        self.assertTrue(np.isnan(got["y"][1]).any())
        for row in (0, 2):
            self.assertEqual(clean["y"][row].tobytes(), got["y"][row].tobytes())

    def test_I07_true_means_not_allowed(self):
        inputs = self.attend(1, 6)
        inputs["pad"][0, 4] = True
        inputs["mask"][2, 1] = True
        weights = self.good(ATTEND, inputs)["weights"]
        self.assertTrue(np.all(weights[:, :, :, 4] == 0))
        self.assertTrue(np.all(weights[:, :, 2, 1] == 0))
        self.assertTrue(np.all(np.delete(weights[:, :, 0], 4, axis=-1) > 0))

    def test_I08_numbers_where_a_bool_mask_is_declared(self):
        inputs = self.attend(2, 5)
        for values in (np.zeros((5, 5), np.float32), np.full((5, 5), 0.5, np.float32)):
            self.refused(ATTEND, inputs | {"mask": values}, "mask", "bool")
        self.refused(ATTEND, inputs | {"mask": np.full((5, 5), 2, np.uint8)}, "mask")
        self.good(ATTEND, inputs | {"mask": np.zeros((5, 5), np.uint8)})

    def test_I09_right_padding_keeps_the_bits(self):
        alone = self.embed(1, 9)
        wide = {"ids": np.concatenate([alone["ids"], self.ids(1, 6)], 1), "pad": np.arange(15)[None] >= 9}
        a, b = self.good(EMBED, alone)["hidden"], self.good(EMBED, wide)["hidden"]
        self.assertEqual(a.tobytes(), np.ascontiguousarray(b[:, :9]).tobytes())

    def test_I09_left_padding_agrees_within_tolerance(self):
        x = self.attend(1, 9)
        left = {"x": np.concatenate([np.zeros((1, 4, 32), np.float32), x["x"]], 1), "pad": np.arange(13)[None] < 4,
                "mask": np.zeros((13, 13), bool)}
        a, b = self.good(ATTEND, x)["y"], self.good(ATTEND, left)["y"]
        np.testing.assert_allclose(b[:, 4:], a, atol=1e-5, rtol=1e-5)

    def test_I10_masks_of_other_shapes(self):
        inputs = {"x": self.rng.standard_normal((2, 5, 16)).astype(np.float32), "pad": np.zeros((2, 5), bool),
                  "mask": np.zeros((2, 1, 5, 5), np.float32)}
        self.good(MASKS, inputs)
        self.refused(MASKS, inputs | {"mask": np.zeros((2, 5), np.float32)}, "mask", "[batch, 1, time, time]")
        self.refused(MASKS, inputs | {"mask": np.zeros((2, 1, 5, 6), np.float32)}, "mask", "5", "6")
        self.refused(MASKS, inputs | {"pad": np.zeros((2, 4), bool)}, "4", "5")
        self.refused(MASKS, {k: v for k, v in inputs.items() if k != "mask"}, "mask", "not given")


PADDED = """
model Padded(d = 4) {
  forward(x: f32[batch, time, d], n: f32[more]) {
    y = pad(x, [0, 0, 0, -time - 4 * (-time // 4)])
    return blocks = sum(reshape(y, [batch, shape(y, 1) // 4, 4, d]), 2),
           both = pad(x, [1, 0, shape(n, 0) - 2, shape(n, 0) - 2], 0.5)
  }
}
"""


class Quotients(Case):
    """Sizes that are rounded down."""

    def inputs(self, batch, time):
        x = self.rng.standard_normal((batch, time, 4)).astype(np.float32)
        y = self.rng.standard_normal((batch, time // 2, 4)).astype(np.float32)
        z = self.rng.standard_normal(((time + 1) // 3 * 2,)).astype(np.float32)
        return dict(x=x, y=y, z=z)

    def expected(self, x, y, z):
        batch, time, _ = x.shape
        a = x[:, : time // 2] + y
        return dict(a=a, b=a[:, : time // 3] * np.float32(time // 5), c=z.sum(dtype=np.float64).astype(np.float32),
                    d=np.ones((time - 1) // 2, np.float32), e=x[:, time // 3 :: 2], f=x[:, ::3] - np.float32(time % 3),
                    g=(np.arange(time) // (time // 2 + 1)).astype(np.int32))

    def test_every_small_size(self):
        for time in range(1, 9):
            given = self.inputs(2, time)
            for engine in ("native", "reference"):
                outputs = self.good(QUOTIENTS, given, f"--engine={engine}")
                for name, want in self.expected(**given).items():
                    self.assertEqual(outputs[name].shape, want.shape, (time, name))
                    np.testing.assert_allclose(outputs[name], want, atol=1e-5, err_msg=f"{name}, time {time}")

    def test_other_sizes_are_refused(self):
        given = self.inputs(2, 7)
        self.refused(QUOTIENTS, dict(given, y=given["y"][:, :2]), "E0504", "time//2", "3")
        self.refused(QUOTIENTS, dict(given, z=given["z"][:2]), "E0504", "2*((time + 1)//3)", "4")
        self.refused(QUOTIENTS, self.inputs(1, 11), "11 is too long")
        self.good(QUOTIENTS, self.inputs(1, 15))

    def test_negative_sizes_are_refused(self):
        self.refused(QUOTIENTS, self.inputs(2, 0), "negative size in [(time + 1)//2 - 1 = -1]")

    def test_sizes_beyond_64_bits_are_refused(self):
        self.good(SQUARES, dict(x=np.zeros((2**31, 0), np.float32)))
        self.refused(SQUARES, dict(x=np.zeros((2**33, 0), np.float32)), "too large")

    def test_widths_of_paddings_that_a_run_decides(self):
        for time in range(1, 9):
            x = self.rng.standard_normal((2, time, 4)).astype(np.float32)
            y = np.pad(x, ((0, 0), (0, -time % 4), (0, 0))).reshape(2, -1, 4, 4).sum(2)
            for engine in ("native", "reference"):
                outputs = self.good(PADDED, dict(x=x, n=np.zeros(2 + time % 3, np.float32)), f"--engine={engine}")
                np.testing.assert_allclose(outputs["blocks"], y, atol=1e-5, err_msg=f"time {time}")
                both = np.pad(x, ((0, 0), (time % 3, time % 3), (1, 0)), constant_values=0.5)
                np.testing.assert_array_equal(outputs["both"], both)

    def test_a_negative_width_of_a_padding(self):
        self.refused(PADDED, dict(x=np.zeros((2, 4, 4), np.float32), n=np.zeros(1, np.float32)), "negative size", "more - 2 = -1")


DIVISIONS = """
model Divisions(n = 3) {
  up = Linear(n, n)
  forward(x: i32[batch, n], y: i32[batch, n]) {
    z = up(f32(x // (y + 1)))
    return s = softmax(z * f32(x % y) + f32(x // (y - 3))), q = x % (y - 5)
  }
}
"""


CHECKED = """
model Checked(limit = 3) {
  forward(x: i32[n], y: i32[n], z: i32[n]) {
    below = checked(x, y < limit, "y is below {limit}")
    return w = checked(below, z != 0, "z is not 0") * 2
  }
}
"""


class Checks(Case):
    """What `checked` says of a run is said by every engine and by a library; what holds changes nothing."""

    def ran(self, folder, words, y, z):
        save_file(dict(x=np.array([5, -6], np.int32), y=np.array(y, np.int32), z=np.array(z, np.int32)), os.path.join(folder, "in.safetensors"))
        return subprocess.run([TFMC, "run", *words, "--inputs", "in.safetensors", "-o", "out.safetensors"], cwd=folder, capture_output=True, text=True)

    def test_the_text_is_said(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "c.tfm"), "w") as f:
                f.write(CHECKED)
            subprocess.run([TFMC, "compile", "c.tfm", "-o", "libc_.so"], cwd=folder, check=True, capture_output=True)
            for words in (["c.tfm"], ["c.tfm", "-O0"], ["c.tfm", "--engine=reference"], ["libc_.so"]):
                with self.subTest(words=words):
                    done = self.ran(folder, words, [1, 2], [1, -1])
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertEqual(load_file(os.path.join(folder, "out.safetensors"))["w"].tolist(), [10, -12])
                    done = self.ran(folder, words, [1, 3], [1, 1])
                    self.assertEqual(done.returncode, 1)
                    first = done.stderr.splitlines()[0]
                    self.assertTrue(first.startswith("c.tfm:4:13: error: y is below 3"), first)
                    done = self.ran(folder, words, [1, 2], [0, 1])
                    self.assertEqual(done.returncode, 1)
                    found = done.stderr.splitlines()[0]
                    if "-O0" in words or "--engine=reference" in words:
                        self.assertEqual(found, "c.tfm:5:16: error: z is not 0 [E0506]")
                    self.assertIn("c.tfm:5:16", found)  # one step may compute both


class Divisions(Case):
    """A division by zero has the line where it stands, from every engine and from a library; where a step has several,
    all that it can be."""
    PLACES = {-1: "div.tfm:5:16", 0: "div.tfm:6:32", 3: "div.tfm:6:45", 5: "div.tfm:6:65"}

    def said(self, words, divisor):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "div.tfm"), "w") as f:
                f.write(DIVISIONS)
            y = np.array([[7, 7, 7], [7, divisor, 7]], np.int32)
            save_file(dict(x=np.ones((2, 3), np.int32), y=y), os.path.join(folder, "in.safetensors"))
            save_file({"up.weight": np.eye(3, dtype=np.float32), "up.bias": np.ones(3, np.float32)}, os.path.join(folder, "w.safetensors"))
            weights = ["--weights", "w.safetensors"]
            if words == ["library"]:
                subprocess.run([TFMC, "compile", "div.tfm", "-o", "libdiv.so", *weights], cwd=folder, check=True, capture_output=True)
                words, weights = ["libdiv.so"], []
            done = subprocess.run([TFMC, "run", *words, *weights, "--inputs", "in.safetensors"], cwd=folder, capture_output=True, text=True)
            self.assertEqual(done.returncode, 1, done.stderr)
            return done.stderr.splitlines()[0]

    def test_the_line_is_named(self):
        for divisor, place in self.PLACES.items():
            for words in (["div.tfm"], ["div.tfm", "-O0", "--threads=2"], ["div.tfm", "--engine=reference"], ["library"]):
                with self.subTest(divisor=divisor, words=words):
                    said = self.said(words, divisor)
                    self.assertIn("error: integer division by zero", said)
                    self.assertIn(place, said)
                    if divisor in (-1, 5) or "-O0" in words or "--engine=reference" in words:
                        self.assertEqual(said, f"{place}: error: integer division by zero [E0507]")


class Ranges(Case):
    """Requirements of the elements of inputs."""

    def inputs(self, **changed):
        return {"ids": np.array([[-5, 0, 4], [1, 2, 3]], np.int32), "shift": np.array([-3, 2], np.int32),
                "n": np.array([4], np.int32)} | changed

    BAD = ((dict(ids=np.array([[1, 2, -6]], np.int32), shift=np.array([0], np.int32)), '"ids"[0,2] = -6, legal range is [-5, 5): five either way'),
           (dict(ids=np.array([[1, 2], [5, 2]], np.int32)), '"ids"[1,0] = 5, legal range is [-5, 5): five either way'),
           (dict(ids=np.array([[1, 2], [-2**31, 2**31 - 1]], np.int32)), '"ids"[1,0] = -2147483648'),
           (dict(shift=np.array([0, 3], np.int32)), '"shift"[1] = 3, legal range is [-3, 3): shifts are small'),
           (dict(shift=np.array([0, 2**31 - 1], np.int32)), '"shift"[1] = 2147483647'),
           (dict(n=np.array([0], np.int32)), '"n"[0] = 0, legal range is [1, 5): n counts; to four'))

    def test_elements_within(self):
        for given in self.inputs(), {k: v for k, v in self.inputs().items() if k != "shift"}:
            for engine in "native", "reference":
                z = self.good(RANGES, given, f"--engine={engine}")["z"]
                np.testing.assert_array_equal(z, (given["ids"] + given.get("shift", np.zeros(2, np.int32))[:, None]) * 4)

    def test_elements_beyond(self):
        for changed, said in self.BAD:
            self.refused(RANGES, self.inputs(**changed), "E0505", f"input {said}")

    def test_elements_beyond_in_libraries(self):
        with open(self.path("m.tfm"), "w") as f:
            f.write(RANGES)
        rng = np.random.default_rng(1)
        save_file({"table.weight": rng.standard_normal((10, 4)).astype(np.float32)}, self.path("w.safetensors"))
        options = ["--weights", self.path("w.safetensors")]
        made = subprocess.run([TFMC, "compile", self.path("m.tfm"), *options, "-o", self.path("libm.so")], capture_output=True, text=True)
        self.assertEqual(made.returncode, 0, made.stderr)
        with open(self.path("m.h")) as f:
            self.assertIn("; elements in [-5, 5)", f.read())
        for changed, said in (({}, ""), *self.BAD):
            save_file(self.inputs(**changed), self.path("in.safetensors"))
            done = subprocess.run([TFMC, "run", self.path("libm.so"), "--inputs", self.path("in.safetensors")], capture_output=True, text=True)
            self.assertEqual(done.returncode, 1 if said else 0, done.stderr)
            self.assertIn(said, done.stderr)

    def test_the_graph_in_text_form_has_them(self):
        with open(self.path("m.tfm"), "w") as f:
            f.write(RANGES)
        text = subprocess.run([TFMC, "dump", self.path("m.tfm"), "--stage=graph"], capture_output=True, text=True).stdout
        self.assertIn('input "ids", range=[-5, 4] "five either way" : i32[batch, time]', text)
        with open(self.path("m.graph"), "w") as f:
            f.write(text)
        again = subprocess.run([TFMC, "opt", self.path("m.graph"), "--only=dce"], capture_output=True, text=True)
        self.assertEqual([line for line in again.stdout.splitlines() if "range=" in line],
                         [line for line in text.splitlines() if "range=" in line], again.stderr)

    def test_they_are_shown(self):
        with open(self.path("m.tfm"), "w") as f:
            f.write(RANGES)
        shown = subprocess.run([TFMC, "check", self.path("m.tfm")], capture_output=True, text=True).stdout
        self.assertIn("i32[batch, time], elements in [-5, 5)\n", shown)
        self.assertIn("i32[batch], left out 0 everywhere, elements in [-3, 3)\n", shown)

    def test_random_inputs_are_within(self):
        for low, high in (-5, 5), (3, 4), (-9, -8):
            model = f'model M {{ forward(x: i32[n]) {{\n require x >= {low} and x < {high}, "no"\n return y = f32(x) }} }}'
            with open(self.path("m.tfm"), "w") as f:
                f.write(model)
            done = subprocess.run([TFMC, "bench", self.path("m.tfm"), "--input=x=64", "--iterations=1", "--warmup=0"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    TFMC = os.path.abspath(sys.argv.pop(1))
    sys.exit(tally.run())
