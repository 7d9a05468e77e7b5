#!/usr/bin/env python3
"""--quantize=q4g32 to q4g128a8, groups of whole numbers of 4 bits with a scale and a zero point: what a weight becomes is the
definition, here in numpy; products with rows of f32 have the bits of the same numbers in f32, and those with rows of 8 bits are
the definition to the bit, by every engine, for any number of rows and threads, on every instruction set and in libraries.

usage: test_q4.py TFMC          The last line is 'N passed, N failed'.
"""
import pathlib
import sys

import numpy as np
from safetensors.numpy import save_file

import tally
from few_bits import FewBits, sets_of_host, whole_rows

GROUPS = (32, 64, 128)


def rounded(numbers, bits):
    """The nearest number of so many bits, of two equally near ones the even one."""
    mantissa, power = np.frexp(np.asarray(numbers, np.float64))
    return np.ldexp(np.rint(np.ldexp(mantissa, bits)), power - bits)


def q4(rows, group, of_groups=None):
    """Of rows that are in no groups of few bits: multiples of an eighth of the greatest number. of_groups gets steps and scales."""
    parts = rows.astype(np.float64).reshape(rows.shape[0], -1, group)
    greatest = np.take_along_axis(parts, np.abs(parts).argmax(axis=2, keepdims=True), 2)
    scale = rounded(np.abs(greatest) / 8, 11)
    empty = scale < 2.0 ** -100
    steps = np.rint((parts.astype(np.float32) / np.where(empty, 1, scale).astype(np.float32)).astype(np.float32)).astype(np.float64)
    steps = np.where(empty, 0, np.where(greatest < 0, np.clip(steps, -8, 7), np.clip(steps, -7, 8)))
    scale = np.where(empty, 0, scale)
    if of_groups is not None:
        of_groups.extend((steps.reshape(rows.shape), np.repeat(scale[:, :, 0], group // 32, axis=1)))
    return rounded(steps * scale, 11).reshape(rows.shape).astype(np.float32)


def product(x, steps, scales):
    """x times rows of steps, x in groups of 32 whole numbers: every operation one of f32, group after group."""
    out = np.zeros((x.shape[0], steps.shape[0]), np.float32)
    for g in range(scales.shape[1]):
        q, scale = whole_rows(x[:, 32 * g:32 * g + 32])
        sums = (q @ steps[:, 32 * g:32 * g + 32].T).astype(np.float32)
        out = out + sums * scale * (2 * scales[:, g]).astype(np.float32)
        assert out.dtype == np.float32
    return out


class Q4(FewBits):
    short, long = 384, 4352  # sums of whole blocks and of parts of one

    @classmethod
    def put_edges(cls, up):
        up[3, 128:256] = 0
        up[5, 256:384] *= 2.0 ** -110

    def test_products_are_those_of_the_numbers(self):
        """Of the same numbers in f32, to the bit, also where the file has them in f32 and they are found to be in groups."""
        for group in GROUPS:
            form = f"q4g{group}"
            numbers = {name: q4(value, group) if name in ("up.weight", "long.weight") else value for name, value in self.weights.items()}
            save_file(numbers, self.folder / "numbers.safetensors")
            self.tfm("compile", "m.tfm", "--weights=w.safetensors", f"--quantize=odd=f32,up={form},long={form}", "-march=x86-64-v3",
                     "-o", "libm.so")
            rules = f"f32,up={form},long={form}"
            for rows in 40, 1:
                for where in ([], ["-march=x86-64"], ["--engine=reference"]) if group == 64 or rows == 1 else ([],):
                    plain = self.outputs("m.tfm", rows, *where, weights="numbers.safetensors")
                    cases = [("m.tfm", "w.safetensors", where), ("m.tfm", "numbers.safetensors", where)]
                    if not where:
                        cases += [("m.tfm", "w.safetensors", ["--threads=1"]), ("libm.so", "", [])]
                        cases += [("m.tfm", "w.safetensors", [f"-march={s}"]) for s in sets_of_host()]
                    for what, weights, options in cases:
                        with self.subTest(form=form, rows=rows, what=what, weights=weights, options=options):
                            got = self.outputs(what, rows, *options, form=rules, weights=weights)
                            for name in got:
                                np.testing.assert_array_equal(got[name], plain[name])

    def test_products_of_rows_in_8_bits(self):
        x = self.hard_rows()
        self.write({"x": x, "wide": self.inputs["wide"]})
        for group in GROUPS:
            form, wanted = f"q4g{group}a8", {}
            self.tfm("compile", "m.tfm", "--weights=w.safetensors", f"--quantize={form}", "-march=x86-64-v3", "-o", "libm.so")
            for out, given, w in [("y", x, "up"), ("far", self.inputs["wide"], "long")]:
                of_groups = []
                q4(self.weights[f"{w}.weight"], group, of_groups)
                with np.errstate(under="ignore"):
                    wanted[out] = product(given, *of_groups) + self.weights[f"{w}.bias"]
            for rows in 40, 3:
                for what, *where in (["m.tfm", "--threads=1"], ["libm.so"], ["m.tfm", "-march=x86-64"],
                                     ["m.tfm", "--engine=reference"], *(["m.tfm", f"-march={s}"] for s in sets_of_host())):
                    with self.subTest(form=form, rows=rows, what=what, where=where):
                        got = self.outputs(what, rows, *where, form=form)
                        for name, exact in wanted.items():
                            np.testing.assert_array_equal(got[name], exact[:rows])
            exact = self.inputs["wide"].astype(np.float64) @ q4(self.weights["long.weight"], group).astype(np.float64).T
            off = wanted["far"] - self.weights["long.bias"] - exact
            self.assertLess(np.sqrt((off ** 2).mean() / (exact ** 2).mean()), 0.006)

    def test_what_is_said(self):
        for form in "q4g128", "q4g128a8":
            said = self.tfm("dump", "m.tfm", "--stage=plan", "--report", f"--quantize={form}")
            self.assertRegex(said, rf"{form} +2 products")
            self.assertIn("int8           1 products", said)
            self.assertIn(f"in {form} panels", said)

    def test_what_is_too_large(self):
        for number, words in (np.inf, "has inf as element 0"), (2e30, "is too large for its scale"):
            changed = {name: value.copy() for name, value in self.weights.items()}
            changed["up.weight"][0, 0] = number
            save_file(changed, self.folder / "w.safetensors")
            said = self.tfm("run", "m.tfm", "--weights=w.safetensors", "--quantize=q4g32", "--inputs=x1.safetensors", "-o",
                            "no.safetensors", code=1)
            self.assertIn('weight "up.weight"', said)
            self.assertIn(words, said)
            self.assertFalse((self.folder / "no.safetensors").exists())


if __name__ == "__main__":
    FewBits.tfmc = str(pathlib.Path(sys.argv.pop(1)).resolve())
    sys.exit(tally.run())
