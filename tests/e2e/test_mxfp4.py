#!/usr/bin/env python3
"""--quantize=mxfp4 and mxfp4a8: what a weight becomes is the format's definition, here in numpy; products are those of its
numbers, by every engine; the bits are the same for any number of rows and threads, with AVX2 and with AVX-512, and in
libraries. Of mxfp4a8 the product is the definition to the bit, without FMA too.

usage: test_mxfp4.py TFMC          The last line is 'N passed, N failed'.
"""
import pathlib
import sys

import numpy as np
from safetensors.numpy import save_file

import tally
from few_bits import FewBits, sets_of_host, whole_rows

NUMBERS = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def number(x):
    """The nearest number of 4 bits, of two equally near ones the one with an even mantissa."""
    distance = np.abs(NUMBERS - min(abs(x), 6.0))
    nearest = np.flatnonzero(distance == distance.min())
    return np.copysign(NUMBERS[nearest[0] if len(nearest) == 1 or nearest[0] % 2 == 0 else nearest[1]], x)


def mxfp4(rows, powers=None):
    out = np.zeros(rows.shape)
    for r in range(rows.shape[0]):
        for begin in range(0, rows.shape[1], 32):
            group = rows[r, begin:begin + 32].astype(np.float64)
            greatest = np.abs(group).max()
            power = 2.0 ** (np.floor(np.log2(greatest)) - 2) if greatest else 1.0
            out[r, begin:begin + 32] = [number(x / power) * power for x in group]
            if powers is not None:
                powers[r, begin // 32] = power
    return out


def product(x, w):
    """x times rows of w, x in groups of 32 whole numbers: every operation one of f32, group after group; an FMA by a power of
    two, whose sum is all but exact in long double."""
    powers = np.zeros((w.shape[0], w.shape[1] // 32))
    w, out = mxfp4(w, powers), np.zeros((x.shape[0], w.shape[0]), np.float32)
    for g in range(powers.shape[1]):
        q, scale = whole_rows(x[:, 32 * g:32 * g + 32])
        twice = 2 * w[:, 32 * g:32 * g + 32] / powers[:, g:g + 1]
        sums = (q @ twice.T).astype(np.float32)
        out = (out.astype(np.longdouble) + (sums * scale).astype(np.longdouble) * powers[:, g]).astype(np.float32)
        assert out.dtype == np.float32
    return out


class Mxfp4(FewBits):
    short, long = 96, 4256  # sums of whole blocks of four groups and of parts of one

    @classmethod
    def put_edges(cls, up):
        up[3, 32:64] = 0
        up[4, :32] = 0
        up[4, :9] = [6, 5, 3.5, 2.5, 1.75, 1.25, 0.75, 0.25, 7.5]  # ties, and more than the greatest number
        up[5, 64:96] *= 2.0 ** -100

    def test_products_are_those_of_the_numbers(self):
        self.tfm("compile", "m.tfm", "--weights=w.safetensors", "--quantize=mxfp4", "-march=x86-64-v3", "-o", "libm.so")
        wanted = {out: self.inputs[x].astype(np.float64) @ mxfp4(self.weights[f"{w}.weight"]).T + self.weights[f"{w}.bias"]
                  for out, x, w in [("y", "x", "up"), ("far", "wide", "long")]}
        first = None
        for rows in 40, 3, 1:
            for what, *where in (["m.tfm"], ["m.tfm", "--threads=1"], ["m.tfm", "-march=x86-64-v3"], ["libm.so"],
                                 ["m.tfm", "-march=x86-64"], ["m.tfm", "--engine=reference"]):
                with self.subTest(rows=rows, what=what, where=where):
                    got = self.outputs(what, rows, *where, form="mxfp4")
                    first = first or got
                    for name, exact in wanted.items():
                        self.assertLess(np.abs(got[name] - exact[:rows]).max() / np.abs(exact).max(), 2e-6)
                    if where[:1] not in (["--engine=reference"], ["-march=x86-64"]):
                        self.assertEqual({name: got[name].tobytes() for name in got},
                                         {name: first[name][:rows].tobytes() for name in got})

    def test_products_of_rows_in_8_bits(self):
        x = self.hard_rows()
        self.write({"x": x, "wide": self.inputs["wide"]})
        self.tfm("compile", "m.tfm", "--weights=w.safetensors", "--quantize=mxfp4a8", "-march=x86-64-v3", "-o", "libm.so")
        with np.errstate(under="ignore"):
            wanted = {out: product(x, self.weights[f"{w}.weight"]) + self.weights[f"{w}.bias"]
                      for out, x, w in [("y", x, "up"), ("far", self.inputs["wide"], "long")]}
        self.assertTrue(np.isnan(wanted["y"][[6, 39]]).all() and np.isfinite(wanted["y"][:6]).all())
        for rows in 40, 3, 1:
            for what, *where in (["m.tfm"], ["m.tfm", "--threads=1"], ["libm.so"], ["m.tfm", "-O0"],
                                 ["m.tfm", "-march=x86-64"], ["m.tfm", "--engine=reference"], *(["m.tfm", f"-march={s}"] for s in sets_of_host())):
                with self.subTest(rows=rows, what=what, where=where):
                    got = self.outputs(what, rows, *where, form="mxfp4a8")
                    for name, exact in wanted.items():
                        np.testing.assert_array_equal(got[name], exact[:rows])
        exact = self.inputs["wide"].astype(np.float64) @ mxfp4(self.weights["long.weight"]).T
        off = wanted["far"] - self.weights["long.bias"] - exact
        self.assertLess(np.sqrt((off ** 2).mean() / (exact ** 2).mean()), 0.006)

    def test_what_is_said_of_rows_in_8_bits(self):
        said = self.tfm("dump", "m.tfm", "--stage=plan", "--report", "--quantize=mxfp4a8")
        self.assertIn("mxfp4a8        2 products", said)
        self.assertIn("in mxfp4a8 panels", said)
        said = self.tfm("run", "m.tfm", "--quantize=mxfp4a9", "--weights=w.safetensors", "--inputs=x1.safetensors", code=2)
        self.assertIn("mxfp4, mxfp4a8", said)

    def test_what_is_said(self):
        said = self.tfm("dump", "m.tfm", "--stage=plan", "--report", "--quantize=mxfp4")
        self.assertIn("mxfp4          2 products", said)
        self.assertIn("int8           1 products", said)
        self.assertIn("in mxfp4 panels", said)

    def test_what_is_not_finite(self):
        changed = {name: value.copy() for name, value in self.weights.items()}
        changed["up.weight"][0, 0] = np.inf
        save_file(changed, self.folder / "w.safetensors")
        said = self.tfm("run", "m.tfm", "--weights=w.safetensors", "--quantize=mxfp4", "--inputs=x1.safetensors", "-o", "no.safetensors",
                        code=1)
        self.assertIn('weight "up.weight" has inf as element 0', said)
        self.assertFalse((self.folder / "no.safetensors").exists())


if __name__ == "__main__":
    FewBits.tfmc = str(pathlib.Path(sys.argv.pop(1)).resolve())
    sys.exit(tally.run())
