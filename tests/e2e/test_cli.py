#!/usr/bin/env python3
"""The command line: arguments, exit codes, files. usage: test_cli.py TFMC [unittest arguments]

Needs nothing but Python's own library. The numbers (C01 ...) name the kinds of faults.
"""
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import unittest

TFMC = None
MODEL = """model M(n = 3) {
  up = Linear(n, 2)
  forward(x: f32[batch, n], ids: i32[batch]) {
    return y = up(x), twice = ids * 2, big = x > 0.5
  }
}
"""
WRITER = """model Writer(vocab = 20, d = 16) {
  embed = Embedding(vocab, d)
  transformer = Transformer(d, 2, 1, 1, 32)
  head = Linear(d, vocab)
  forward(src: i32[batch, source], tgt: i32[batch, time]) {
    logits = transformer(embed(src), embed(tgt), tgt_is_causal = true) -> head
    return logits
  }
  generate tgt from logits { bos = 1  eos = 2 }
}
"""
TYPES = {"F32": "<f", "I32": "<i", "I64": "<q", "U8": "B", "BOOL": "B", "F64": "<d", "BF16": "<H"}


def save(path, tensors):
    """tensors: {name: (type, shape, values)}"""
    header, data = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        raw = b"".join(struct.pack(TYPES[dtype], v) for v in values)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


def load(path):
    raw = pathlib.Path(path).read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    data, tensors = raw[8 + size:], {}
    for name, t in json.loads(raw[8:8 + size]).items():
        begin, end = t["data_offsets"]
        form = TYPES[t["dtype"]]
        tensors[name] = (t["dtype"], t["shape"], [v for (v,) in struct.iter_unpack(form, data[begin:end])])
    return tensors


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path("model.tfm").write_text(MODEL)
        save(self.path("w.safetensors"), {"up.weight": ("F32", [2, 3], [1, 2, 3, 4, 5, 6]), "up.bias": ("F32", [2], [1, -1])})
        save(self.path("in.safetensors"), {"x": ("F32", [1, 3], [1, 0, 2]), "ids": ("I64", [1], [21])})

    def path(self, name):
        return pathlib.Path(self.folder.name) / name

    def tfmc(self, *args, code=0, says=(), **kwargs):
        proc = subprocess.run([TFMC, *map(str, args)], capture_output=True, cwd=self.folder.name, timeout=120, **kwargs)
        proc.out, proc.err = proc.stdout.decode(errors="replace"), proc.stderr.decode(errors="replace")
        self.assertEqual(proc.returncode, code, f"{args[:20]}: {proc.out}{proc.err}")
        for word in [says] if isinstance(says, str) else says:
            self.assertIn(word, proc.err)
        if code == 2:
            self.assertEqual(proc.out, "", "nothing is printed on stdout after a usage error")
        return proc

    def run_model(self, *args, **kwargs):
        return self.tfmc("run", "model.tfm", "--weights", "w.safetensors", "--inputs", "in.safetensors", *args, **kwargs)

    def files(self):
        return sorted(os.listdir(self.folder.name))


class Arguments(Case):
    def test_C01_no_command(self):
        self.assertIn("usage: tfmc", self.tfmc(code=2).err)

    def test_C01_unknown(self):
        self.tfmc("rnu", code=2, says="did you mean 'run'")
        self.tfmc("--verbose", code=2, says="a command must come before")
        self.tfmc("run", code=2, says="`tfmc run` wants FILE.tfm")
        self.tfmc("run", "a", "b", code=2, says="one argument too many: 'b'")
        self.tfmc("run", "--foo", "a", code=2, says="unknown option --foo")
        self.tfmc("run", "--weight", "a", code=2, says="did you mean --weights")
        self.tfmc("run", "-z", "a", code=2, says="unknown option -z")
        self.tfmc("opt", "--weights", "w", "model.tfm", code=2, says="`tfmc opt` has no such option")
        self.tfmc("info", "--golden=x", code=2, says="no such option")
        self.tfmc("help", "rnu", code=2, says="no command 'rnu', did you mean 'run'? [")
        self.tfmc("help", "verfy", code=2, says="did you mean 'verify'?")
        self.tfmc("help", "xyzzyx", code=2, says="no command 'xyzzyx'; `tfmc help` lists them")

    def test_C01_missing_and_unwanted_values(self):
        self.tfmc("run", "model.tfm", "--weights", code=2, says="--weights")
        self.tfmc("run", "model.tfm", "--weights=", code=2, says="its argument is empty")
        self.tfmc("run", "model.tfm", "--report=yes", code=2, says="--report")

    def test_C01_repeated(self):
        self.tfmc("run", "model.tfm", "--threads=1", "--threads=2", code=2, says="--threads: given twice")
        self.tfmc("check", "model.tfm", "-Dn=3", "-D", "n=3", code=1, says="'n' is given twice")

    def test_worker_without_files(self):
        """What libtfm starts says why it can neither read nor write, if its descriptors are pipes."""
        self.tfmc("worker", "model.tfm", "-", input=MODEL.encode(), code=3, says=[
            "the source text cannot be read: Illegal seek", "the result cannot be written: Illegal seek"])

    def test_C01_end_of_options(self):
        self.path("-odd.tfm").write_text(MODEL)
        self.tfmc("check", "-q", "--", "-odd.tfm")
        self.tfmc("check", "./-odd.tfm")

    def test_C01_help_and_version(self):
        for args in [("--help",), ("-h",), ("help",)]:
            proc = self.tfmc(*args)
            self.assertIn("usage: tfmc", proc.out)
            self.assertEqual(proc.err, "")
        self.assertRegex(self.tfmc("--version").out, r"^tfmc \d+\.\d+\.\d+\n$")
        for verb in "check run dump opt graph verify bench info help".split():
            self.assertIn(f"usage: tfmc {verb}", self.tfmc(verb, "--help").out)
            self.assertEqual(self.tfmc(verb, "--help").out, self.tfmc("help", verb).out)
            self.assertEqual(self.tfmc("help", verb.upper()).out, self.tfmc("help", verb).out)

    def test_C01_help_for_a_code(self):
        text = self.tfmc("help", "E0213").out
        self.assertTrue(text.startswith("E0213: "), text)
        for part in ["\nExample:\n  model M {\n", "\n  $ tfmc check model.tfm\n", "\nWhat to do:\n", "ends with 1."]:
            self.assertIn(part, text)
        self.assertLessEqual(max(map(len, text.splitlines())), 90)
        self.assertEqual(self.tfmc("help", "e0213").out, text)
        text = self.tfmc("help", "w0215").out
        self.assertTrue(text.startswith("W0215: "))
        self.assertIn("This is a warning", text)
        self.tfmc("help", "E0299", code=2, says="did you mean 'E02")
        self.tfmc("help", "E9999", code=2, says="no message has the code 'E9999'")

    def test_C02_numbers(self):
        for value in ["0", "-1", "1e9", "4x", "", "18446744073709551616", " 4", "+4", "0x4", "1025"]:
            self.tfmc("run", "model.tfm", f"--threads={value}", code=2, says="--threads")
        self.tfmc("run", "model.tfm", "--threads", "1025", code=2, says="from 1 to 1024")
        self.run_model("--threads=1024")
        for value in ["nan", "-1", "1e999", "x", "1e-5x"]:
            self.tfmc("verify", "model.tfm", f"--atol={value}", code=2, says="--atol")
        self.tfmc("run", "model.tfm", "--seed=18446744073709551616", code=2, says="--seed")

    def test_C03_values_and_conflicts(self):
        self.tfmc("check", "model.tfm", "-march=x86-64-v9", code=2, says=["native", "x86-64-v3", "x86-64-v4"])
        self.path("model.npy").write_bytes(b"\x93NUMPY\1\0")
        self.tfmc("check", "model.npy", code=1, says="hardly a text file")
        self.tfmc("run", "model.tfm", "--engine=fast", code=2, says="native or reference")
        self.tfmc("run", "model.tfm", "-O1", code=2, says="0 or 2")
        self.tfmc("dump", "model.tfm", "--stage=fusd", code=2, says="did you mean fused")
        self.tfmc("dump", "model.tfm", "--stage=step", code=1, says="not incremental: it has no generate block")
        self.run_model("--random-weights=1", code=2, says="exclude each other")
        self.tfmc("run", "model.tfm", "--inputs", "in.safetensors", code=2, says="the model has weights")

    def test_define(self):
        self.tfmc("check", "model.tfm", "-D", "n", code=1, says="expected NAME=VALUE")
        self.tfmc("check", "model.tfm", "-D", "m=4", code=1, says="m")
        self.assertIn("f32[batch, 5]", self.tfmc("check", "model.tfm", "-Dn=5").out)

    def test_C14_no_argv0_and_many_arguments(self):
        self.tfmc("info", *["a"] * 20000, code=2, says="one argument too many")
        program = self.path("exec.py")
        program.write_text("import ctypes, sys\nlibc = ctypes.CDLL(None, use_errno=True)\n"
                           "argv = (ctypes.c_char_p * 1)(None)\nlibc.execv(sys.argv[1].encode(), argv)\nsys.exit(99)\n")
        proc = subprocess.run([sys.executable, program, TFMC], capture_output=True, timeout=60)
        self.assertEqual(proc.returncode, 2, proc.stderr)


class Runs(Case):
    def test_outputs(self):
        self.run_model("--output", "out.safetensors")
        self.assertEqual(load(self.path("out.safetensors")),
                         {"y": ("F32", [1, 2], [8, 15]), "twice": ("I32", [1], [42]), "big": ("BOOL", [1, 3], [1, 0, 1])})
        summary = self.run_model().out
        self.assertIn("y: f32[1, 2]", summary)
        self.assertIn("8 15", summary)
        self.assertIn("true false true", summary)

    def test_reference_agrees(self):
        self.run_model("-o", "a.safetensors")
        self.run_model("-o", "b.safetensors", "--engine=reference")
        self.assertEqual(self.path("a.safetensors").read_bytes(), self.path("b.safetensors").read_bytes())

    def test_one_by_one(self):
        header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), }\n"
        npy = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + struct.pack("<3f", 1, 0, 2)
        self.path("x.npy").write_bytes(npy)
        self.tfmc("run", "model.tfm", "--weights", "w.safetensors", "--input", "x=@x.npy", "--input", "ids=1",
                  "--output", "y=@y.npy", "--output", "big=@big.npy")
        self.assertTrue(self.path("y.npy").read_bytes().endswith(struct.pack("<2f", 8, 15)))
        self.assertTrue(self.path("big.npy").read_bytes().endswith(b"\1\0\1"))

    def test_random(self):
        args = ["run", "model.tfm", "--random-weights=7", "--input", "x=4x3", "--input", "ids=4", "-o"]
        self.tfmc(*args, "a.safetensors")
        self.tfmc(*args, "b.safetensors")
        self.tfmc(*args, "c.safetensors", "--seed=1")
        self.assertEqual(self.path("a.safetensors").read_bytes(), self.path("b.safetensors").read_bytes())
        self.assertNotEqual(self.path("a.safetensors").read_bytes(), self.path("c.safetensors").read_bytes())

    def test_inputs_that_are_wrong(self):
        run = ["run", "model.tfm", "--weights", "w.safetensors", "-o", "out.safetensors"]
        for text, code, says in [("xx=2", 1, 'did you mean "x"'), ("x", 2, "expected NAME"), ("x=2y3", 2, "2x7"),
                                 ("x=@none.npy", 3, "none.npy"), ("x=99999999999", 2, "at most 2147483647"), ("x=", 2, "2x7"),
                                 ("x=1x1x1x1x1x1x1x1x1", 2, "at most 8 axes"), ("x=2000000000x2000000000", 2, "2^40")]:
            self.tfmc(*run, "--input", text, code=code, says=says)
        self.tfmc(*run, "--input=x=1x3", code=1, says=['"ids"', "is not given"])
        self.tfmc(*run, "--input=x=1x3", "--input=x=1x3", "--input=ids=1", code=2, says="given twice")
        self.tfmc(*run, "--input=x=1x4", "--input=ids=1", code=1, says=["4", "3"])
        self.tfmc(*run, "--input=x=1x3", "--input=ids=2", code=1, says="batch")
        self.run_model("--output", "z=@z.npy", code=2, says='no output "z"')
        self.assertEqual(self.files(), ["in.safetensors", "model.tfm", "w.safetensors"])

    def test_ids_that_do_not_fit(self):
        save(self.path("in.safetensors"), {"x": ("F32", [1, 3], [1, 0, 2]), "ids": ("I64", [1], [1 << 31])})
        self.run_model(code=1, says=['"ids"', "2147483648"])
        save(self.path("in.safetensors"), {"x": ("F64", [1, 3], [1, 0, 2]), "ids": ("I32", [1], [1])})
        self.run_model(code=1, says=['"x"', "F64", "f32"])

    def test_verify(self):
        self.run_model("-o", "golden.safetensors")
        base = ["verify", "model.tfm", "--weights", "w.safetensors", "--inputs", "in.safetensors"]
        self.assertIn("y: 2 elements agree", self.tfmc(*base).out)
        self.tfmc(*base, "--golden", "golden.safetensors")
        tensors = load(self.path("golden.safetensors"))
        tensors["y"][2][1] += 0.5
        save(self.path("golden.safetensors"), tensors)
        self.tfmc(*base, "--golden", "golden.safetensors", code=5, says="1 of 2 elements differ, first at [0, 1]: 15, expected 15.5")
        self.tfmc(*base, "--golden", "golden.safetensors", "--atol=1")

    def verify_golden(self, values, *options, dtype="F32", first=1000, **kwargs):
        """verify of y = x, whose x is [first, 0, 3.25], with a file that says `values`."""
        self.path("same.tfm").write_text("model Same { forward(x: f32[n]) { return y = x } }")
        save(self.path("x.safetensors"), {"x": ("F32", [3], [first, 0, 3.25])})
        save(self.path("golden.safetensors"), {"y": (dtype, [3], values)})
        return self.tfmc("verify", "same.tfm", "--inputs", "x.safetensors", "--golden", "golden.safetensors", *options, **kwargs)

    def test_the_tolerance_of_verify_is_relative_to_the_size_of_the_output(self):
        self.assertIn("3 elements agree; the largest difference is 0.008, the largest expected value 1000",
                      self.verify_golden([1000, 0.008, 3.25]).out)
        proc = self.verify_golden([1000, 0.0125, 3.25], code=5, says="1 of 3 elements differ, first at [1]: 0, expected 0.0125")
        for words in ("allowed: 0.01 (--atol), 1e-05 of the largest expected value of this output, 1000",
                      "1e-05 of each expected value (--rtol)"):
            self.assertIn(words, proc.err)
        cure = re.search(r"--atol=(\S+) would accept", proc.err)[1]
        self.assertIn("agree", self.verify_golden([1000, 0.0125, 3.25], f"--atol={cure}").out)
        self.verify_golden([1000, 0.0125, 3.25], f"--atol={float(cure) / 1.2}", code=5, says=f"allowed: {float(cure) / 1.2:.3g} (--atol)")
        self.verify_golden([1000, 1e-6, 3.25], "--atol=0", code=5, says="--atol=")
        for other in float("nan"), 500:
            self.assertNotIn("--atol=", self.verify_golden([1000, other, 3.25], code=5, says="allowed: 0.01 (--atol)").err)

    def test_verify_says_when_the_precision_of_the_file_explains_a_difference(self):
        explains, both = "the file's own precision explains the difference", "either the file is of another model"
        proc = self.verify_golden([1000, 0.0125, 3.25], code=5, says=both)
        self.assertIn("up to 0.0125 from what the reference interpreter computes of this model in double, results in f32 up to 0", proc.err)
        self.assertNotIn("explains", proc.err)
        bf16 = [0x447A, 0, 0x4050]  # 1000, whose neighbours are 996 and 1004, 0, 3.25
        for option in "--engine=native", "--engine=reference":
            self.assertIn("BF16", self.verify_golden(bf16, option, code=5, dtype="BF16", first=1001, says=explains).err)
        self.assertNotIn(explains, self.verify_golden(bf16, code=5, dtype="BF16", first=1007).err)
        for values, options in (([1000, 500, 3.25], ()), ([1000, float("inf"), 3.25], ()), ([1000, 0.0125, 3.25], ("--engine=reference",))):
            proc = self.verify_golden(values, *options, code=5)
            self.assertNotIn("explains", proc.err, values)
            self.assertNotIn(both, proc.err, values)

    def test_verify_does_not_blame_the_file_for_another_model(self):
        """A model that computes another activation is near its own interpreter and far from the file: neither follows."""
        text = "model M {{ weight w: [16, 16]  forward(x: f32[n, 16]) {{ return y = {}(linear(x, w)) }} }}"
        run = ["--random-weights=1", "--input", "x=4x16"]
        for made, used in ("gelu", "gelu_tanh"), ("gelu_tanh", "gelu"), ("gelu", "1.0002 * gelu"):
            self.path("made.tfm").write_text(text.format(made))
            self.path("used.tfm").write_text(text.format(used))
            self.tfmc("run", "made.tfm", *run, "--engine=reference", "-o", "golden.safetensors")
            proc = self.tfmc("verify", "used.tfm", *run, "--golden", "golden.safetensors", code=5)
            self.assertIn("either the file is of another model", proc.err)
            self.assertNotIn("explains", proc.err)

    def test_verify_says_when_rounding_explains_a_difference(self):
        """A few times what f32 loses in this model is what another order may lose."""
        self.path("m.tfm").write_text("model M { weight w: [64, 64]  forward(x: f32[n, 64]) { return y = linear(gelu(linear(x, w)), w) } }")
        run = ["--random-weights=1", "--input", "x=4x64"]
        for more, says in (5e-7, "rounding in f32 explains the difference"), (5e-5, "either the file is of another model"):
            self.tfmc("run", "m.tfm", *run, "--engine=reference", "-o", "golden.safetensors")
            tensors = load(self.path("golden.safetensors"))
            tensors["y"][2][7] += more
            save(self.path("golden.safetensors"), tensors)
            self.tfmc("verify", "m.tfm", *run, "--golden", "golden.safetensors", "--atol=4e-7", "--rtol=0", code=5, says=says)

    def test_verify_warns_of_values_that_are_smaller_than_its_tolerance(self):
        self.path("small.tfm").write_text("model Small { forward(x: f32[n]) { return y = x * 0.000001 } }")
        save(self.path("x.safetensors"), {"x": ("F32", [2], [1, 2])})
        for values, warns in (([1e-6, 2e-6], False), ([1e-6, 3e-6], True), ([0, 0], True)):
            save(self.path("golden.safetensors"), {"y": ("F32", [2], values)})
            proc = self.tfmc("verify", "small.tfm", "--inputs", "x.safetensors", "--golden", "golden.safetensors")
            self.assertEqual("W0802" in proc.err, warns, proc.err)

    def test_bench(self):
        report = json.loads(self.tfmc("bench", "model.tfm", "--random-weights=1", "--input=x=4x3", "--input=ids=4",
                                      "--json", "--iterations=3", "--warmup=0").out)
        self.assertEqual(report["runs"], 3)
        self.assertEqual(report["flop"], 2 * 4 * 3 * 2)
        self.assertGreater(report["median_seconds"], 0)
        self.assertIs(report["counts_rows_left_out"], False)

    def test_figures_of_two_kinds_have_two_names(self):
        """What a run computes and what is written; all weights and those that products read."""
        self.path("m.tfm").write_text("model M { e = Embedding(50, 8)  l = Linear(8, 8)  forward(x: i32[n]) { return y = l(e(x))[:1] } }")
        text = self.tfmc("bench", "m.tfm", "--random-weights=1", "--input=x=4", "--report", "--iterations=1", "--warmup=0", "--threads=1").out
        for line in ["FLOP of a run  128", "model bytes    1888", "GFLOP in matrix products as they are written", "MB of weights that products read"]:
            self.assertIn(line, text)
        self.assertNotRegex(text, "(?m)^  FLOP  |weight bytes")

    def test_bench_says_that_it_counts_rows_which_a_run_leaves_out(self):
        says = "the shares may be more than 100 %"
        for padding, leaves in (("where(m[..., none], 0, h)", True), ("h", False)):
            self.path("pooled.tfm").write_text(
                "model Pooled { weight w: [32, 16] forward(x: f32[b, t, 16], m: bool[b, t]) { h = gelu(linear(x, w)) "
                f"return y = sum({padding}, axis = 1) }} }}")
            given = ["bench", "pooled.tfm", "--random-weights=1", "--input=x=2x8x16", "--input=m=2x8", "--iterations=1"]
            self.assertEqual(says in self.tfmc(*given).out, leaves)
            self.assertIs(json.loads(self.tfmc(*given, "--json").out)["counts_rows_left_out"], leaves)


class Weights(Case):
    def check(self, weights, options=(), **kwargs):
        save(self.path("w.safetensors"), weights)
        return self.tfmc("check", "model.tfm", "--weights", "w.safetensors", *options, **kwargs)

    def test_W15_all_that_does_not_fit_is_listed(self):
        self.check({"up.weight": ("F32", [3, 2], [0] * 6), "up.bais": ("F32", [2], [0] * 2)}, code=1,
                   says=["shape [3, 2], the model wants [2, 3] (transposed?)", '"up.bias"', "up.bais", "2 errors"])
        self.check({"up.weight": ("F64", [2, 3], [0] * 6), "up.bias": ("F32", [3], [0] * 3)}, code=1,
                   says=["type F64; a weight is F32, F16, BF16 or F8_E4M3, or I8 of two axes with a scale [E0405]\n"
                         "model.tfm:2:8: note: the weight is declared here", "shape [3], the model wants [2]"])

    def test_W15_extra(self):
        good = {"up.weight": ("F32", [2, 3], [0] * 6), "up.bias": ("F32", [2], [0] * 2)}
        proc = self.check({**good, "down.x": ("F32", [1], [0]), "up.ids": ("I64", [1], [0])})
        self.assertEqual(proc.err, "")
        self.assertIn("2 tensors that the model does not use", proc.out)
        self.check({**good, "up.scale": ("F32", [1], [0])}, says=["warning", '"up.scale"'])

    def test_prefix(self):
        self.check({"m.up.weight": ("F32", [2, 3], [0] * 6), "m.up.bias": ("F32", [2], [0] * 2)}, code=1,
                   says=["--weights-prefix m.", "and likewise for 1 more", "1 error"])
        self.tfmc("check", "model.tfm", "--weights", "w.safetensors", "--weights-prefix", "m.")
        self.check({"n.m.up.weight": ("F32", [2, 3], [0] * 6), "n.m.up.bias": ("F32", [2], [0] * 2)}, code=1,
                   options=["--weights-prefix", "m."], says="try --weights-prefix n.m.")
        self.check({"up.weight": ("F32", [2, 3], [0] * 6), "up.bias": ("F32", [2], [0] * 2)}, code=1,
                   options=["--weights-prefix", "m."], says="try it without --weights-prefix")
        proc = self.check({"m.up.weight": ("F32", [2, 3], [0] * 6), "up.bias": ("F32", [2], [0] * 2)}, code=1,
                          says=['"up.weight", but "m.up.weight" [E0403]'])
        self.assertNotIn("--weights-prefix", proc.err)  # it would find the one and lose the other

    CLASSIFIER = """model Classifier(n = 2) {
  first = Linear(n, n)
  second = 2 * Linear(n, n)
  head = Linear(n, n)
  forward(x: f32[batch, n]) { return y = x -> first -> second -> head }
}
"""

    def classifier(self, names, *options, text=CLASSIFIER, **kwargs):
        self.path("head.tfm").write_text(text)
        shapes = {"weight": ("F32", [2, 2], [0] * 4), "bias": ("F32", [2], [0] * 2)}
        save(self.path("h.safetensors"), {f"{name}.{part}": shapes[part] for name in names for part in shapes})
        return self.tfmc("check", "head.tfm", "--weights", "h.safetensors", *options, **kwargs)

    def test_head_beside_a_prefixed_trunk(self):
        """With and without --weights-prefix the same advice, and it is followed to the end."""
        names = ["trunk.first", "trunk.second.0", "trunk.second.1", "head"]
        add = 'add `as "trunk.first"` to first, `as "trunk.second"` to second [E0403]'
        self.classifier(names, code=1, says=[f'"first.weight", but "trunk.first.weight", and likewise for 5 more; '
                                             f'no --weights-prefix finds all weights: {add}', "1 error"])
        self.classifier(names, "--weights-prefix=trunk.", code=1,
                        says=['"trunk.head.weight", but "head.weight", and likewise for 1 more', f"leave it out and {add}"])
        cured = self.CLASSIFIER.replace("2 * Linear(n, n)", '2 * Linear(n, n) as "trunk.second"')
        cured = cured.replace("first = Linear(n, n)", 'first = Linear(n, n) as "trunk.first"')
        self.classifier(names, text=cured)
        # What the file has nowhere is told apart and keeps nobody from the advice.
        self.classifier(names[:3] + ["haed"], code=1,
                        says=["try --weights-prefix trunk.", '"head.weight", but "haed.weight"; is the model', "3 errors"])
        # A name that many modules share is no reason for another prefix.
        self.classifier(["a.b.first", "a.first", "a.second.0", "a.second.1", "a.head", "z.head"], code=1,
                        says=["try --weights-prefix a. [", "1 error"])

    def test_missing_weights_are_shown_in_the_model(self):
        """Not in the standard layers; and a head that a checkpoint does not hold is tied to the embedding."""
        self.path("model.tfm").write_text("""model Tied(d = 2) {
  tok  = Embedding(3, d)
  head = Linear(d, 3, bias = false)
  forward(ids: i32[time]) { return y = head(tok(ids)) }
}
""")
        proc = self.check({"tok.weight": ("F32", [3, 2], [0] * 6)}, code=1,
                          says=['no tensor "head.weight"', "model.tfm:3:10: note: the weight is declared here",
                                'note: "tok.weight" has its shape; if the two are tied', "linear(x, EMBEDDING.weight)"])
        self.assertNotIn("<std>", proc.err)
        self.assertNotIn("tied", self.check({"head.weight": ("F32", [3, 2], [0] * 6)}, code=1).err)

    def test_W13_not_finite(self):
        weights = {"up.weight": ("F32", [2, 3], [0] * 5 + [float("nan")]), "up.bias": ("F32", [2], [0, float("inf")])}
        self.check(weights)
        self.tfmc("check", "model.tfm", "--weights", "w.safetensors", "--reject-nonfinite", code=1, says=["1 NaN", "1 infinite"])
        self.assertIn("1 NaN, 1 infinite", self.tfmc("info", "w.safetensors").out)

    def shards(self, weight_map):
        os.makedirs(self.path("s/deep"), exist_ok=True)
        save(self.path("s/a.safetensors"), {"up.weight": ("F32", [2, 3], [1, 2, 3, 4, 5, 6])})
        save(self.path("s/deep/b.safetensors"), {"up.bias": ("F32", [2], [1, -1])})
        self.path("s/index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))

    def test_W20_shards(self):
        self.shards({"up.weight": "a.safetensors", "up.bias": "deep/b.safetensors"})
        self.tfmc("check", "model.tfm", "--weights", "s/index.json")
        self.tfmc("run", "model.tfm", "--weights", "s/index.json", "--inputs", "in.safetensors")

    def test_W20_shards_elsewhere(self):
        for name in ["../w.safetensors", str(self.path("w.safetensors")), "a/../a.safetensors", "./a.safetensors", ""]:
            self.shards({"up.weight": name, "up.bias": "deep/b.safetensors"})
            self.tfmc("check", "model.tfm", "--weights", "s/index.json", code=1, says="must lie in its folder")

    def test_W20_shards_behind_links(self):
        """As the cache of Hugging Face keeps them: snapshots/REV/a.safetensors leads to ../../blobs/HASH."""
        self.shards({"up.weight": "a.safetensors", "up.bias": "dir/b.safetensors"})
        os.makedirs(self.path("blobs"))
        os.rename(self.path("s/a.safetensors"), self.path("blobs/0123"))
        os.symlink("../blobs/0123", self.path("s/a.safetensors"))
        os.symlink(self.path("s/deep"), self.path("s/dir"))
        self.tfmc("run", "model.tfm", "--weights", "s/index.json", "--inputs", "in.safetensors")
        for target in ["s/deep", "s/nothing", "s/a.safetensors"]:  # a folder, nothing, itself
            os.unlink(self.path("s/a.safetensors"))
            os.symlink(self.path(target), self.path("s/a.safetensors"))
            self.tfmc("check", "model.tfm", "--weights", "s/index.json", code=3, says="a.safetensors")

    def test_W20_broken_index(self):
        self.shards({"up.weight": "a.safetensors", "up.bias": "a.safetensors"})
        self.tfmc("check", "model.tfm", "--weights", "s/index.json", code=1, says='"up.bias" is not in "a.safetensors"')
        self.shards({"up.weight": "a.safetensors", "up.bias": "none.safetensors"})
        self.tfmc("check", "model.tfm", "--weights", "s/index.json", code=3, says="none.safetensors")
        for text in ["", "[]", "{", '{"weight_map": []}', '{"weight_map": {"a": 1}}', '{"weight_map": {}, "weight_map": {}}']:
            self.path("s/index.json").write_text(text)
            self.tfmc("check", "model.tfm", "--weights", "s/index.json", code=1)

    def test_W18_truncated_while_read(self):
        self.path("w.safetensors").write_bytes(self.path("w.safetensors").read_bytes()[:-1])
        self.run_model(code=1, says="w.safetensors")


class Conditions(Case):
    """What check says of conditions that every run must meet."""

    ADDED = """layer Add(d) {
  weight pos: [16, d]
  forward(x) { return x + pos }
}
model Added(d = 8) {
  add = 2 * Add(d)
  up = Linear(d, d)
  forward(x: f32[batch, time, d], z: f32[batch, source, d]) {
    y = x -> add
    return a = up(x + z), w = up(z + x), cut = z[:, 1:4], y = y
  }
}
"""

    def check(self, text, *options, **kwargs):
        self.path("c.tfm").write_text(text)
        return self.tfmc("check", "c.tfm", *options, **kwargs)

    def warnings(self, text, *options):
        return [line for line in self.check(text, *options).err.splitlines() if "W0216" in line]

    def test_conditions_are_listed(self):
        out = self.check(self.ADDED.replace("up(x + z), w = up(z + x)", "up(z)")).out
        self.assertRegex(out, r"conditions of every run:\n"
                              r"  time == 16 +c.tfm:3\n"
                              r"  4 <= source +c.tfm:10\n"
                              r"weights: ")
        self.assertNotIn("conditions", self.check(MODEL).out)

    def test_a_size_that_is_bound_is_a_warning(self):
        proc = self.check(self.ADDED)
        self.assertEqual([line for line in proc.err.splitlines() if "W0216" in line], [
            "c.tfm:3:23: warning: every run needs time == 16; otherwise '+': the shapes do not agree: [batch, time, 8] and "
            "[16, 8] [W0216]",
            "c.tfm:10:19: warning: every run needs time == source; otherwise '+': the shapes do not agree: [batch, time, 8] "
            "and [batch, source, 8] [W0216]"])  # z + x, its mirror image, is no third
        self.assertIn("c.tfm:9:14: note: in Add, called here", proc.err)
        self.assertEqual(self.check(self.ADDED, "-q").err, "")
        self.assertEqual(self.warnings(MODEL), [])
        number_first = "model M { weight w: [16] forward(x: f32[time]) { return y = w + x } }"
        self.assertIn("every run needs time == 16;", self.warnings(number_first)[0])

    def test_a_condition_that_is_stated_is_none(self):
        head, tail = self.ADDED.split("    y = x -> add\n")
        stated = "    require time == 16, \"16 positions\"\n    require source == time, \"equal\"\n"
        self.assertEqual(self.warnings(f"{head}{stated}    y = x -> add\n{tail}"), [])
        after = f"{head}    y = x -> add\n    both = x + z\n{stated}{tail}"
        self.assertEqual(self.warnings(after), [])
        self.assertIn("time == 16 ", self.check(after).out)

    def test_models_that_leave_sizes_free_are_quiet(self):
        models = sorted(pathlib.Path(__file__).parent.parent.glob("goldens/models/*.tfm"))
        self.assertGreater(len(models), 20)
        for model in models:
            self.assertNotIn("W0216", self.tfmc("check", model).err, model)


class Fusions(Case):
    """What --report and --require-fusion say of fusions that did not happen."""

    MASKED = """model Masked(d = 8) {
  q = Linear(d, d)
  k = Linear(d, d)
  v = Linear(d, d)
  forward(x: f32[batch, time, d], keep: f32[batch, time, time]) {
    p = softmax(q(x) @ transpose(k(x), -1, -2))
    return y = (p * keep) @ v(x)
  }
}
"""
    # Attention in its encoder alone.
    READER = """model Reader(vocab = 9, d = 8) {
  embed = Embedding(vocab, d)
  encoder = EncoderLayer(d, 2, 16)
  head = Linear(d, vocab)
  forward(src: i32[batch, source], tgt: i32[batch, time]) {
    read, maps = encoder(embed(src))
    return logits = head(embed(tgt) + mean(read, axis = 1, keepdim = true))
  }
  generate tgt from logits { bos = 1 max_new_tokens = 2 }
}
"""

    def dump(self, text, *options, stage="fused", **kwargs):
        self.path("fuse.tfm").write_text(text)
        return self.tfmc("dump", "fuse.tfm", f"--stage={stage}", *options, **kwargs)

    def test_nothing_was_found(self):
        out = self.dump("model M { forward(x: f32[n]) { return y = x } }", "--report").out
        self.assertTrue(out.startswith("fused\n  nothing: the model has none of the patterns"), out)
        out = self.dump(MODEL, "--report", "-O0").out
        self.assertTrue(out.startswith("fused\n  nothing: no pass that fuses has run\n"), out)
        self.assertNotIn("nothing", self.dump(MODEL, "--report").out)

    def test_near_attention_is_explained(self):
        out = self.dump(self.MASKED, "--report").out
        self.assertIn("not fused\n  attention    fuse.tfm:7\n               what softmax gives goes through mul "
                      "before the product with the values\n", out)
        self.dump(self.MASKED, "--require-fusion=attention", code=1,
                  says=["fuse.tfm:7:16: error: attention was asked for but not done: what softmax gives", "E0303"])

    def test_required_but_nowhere(self):
        self.dump(MODEL, "--require-fusion=epilogue")
        for name in "attention", "qkv", "live-rows":
            self.dump(MODEL, f"--require-fusion={name}", code=1,
                      says=f"error: {name} was asked for, but nothing in the model has its pattern: ")
        self.dump(MODEL, "--require-fusion=epilogue", "-O0", code=1, says="fuse-epilogues, has not run")
        self.dump(MODEL, "--require-fusion=epilogue", stage="graph", code=1, says="fuse-epilogues, has not run")
        self.dump(MODEL, "--require-fusion=epilogue", stage="ast", code=2, says="has no graph")
        self.run_model("--require-fusion=epilogue")
        self.run_model("--require-fusion=attention", code=1, says="nothing in the model has its pattern")
        self.run_model("--require-fusion=epilogue", "--engine=reference", code=1, says="has not run")

    def test_required_of_a_model_with_an_encoder(self):
        self.path("reader.tfm").write_text(self.READER)
        command = ["generate", "reader.tfm", "--random-weights=1", "--input=src=1x4", "--return-output=logits",
                   "-o", "out.safetensors"]
        self.tfmc(*command, "--require-fusion=attention")
        self.tfmc(*command, "--require-fusion=live-rows", code=1, says="nothing in the model has its pattern")
        reference = ["--engine=reference", "--require-fusion=attention"]
        self.tfmc(*command, *reference, code=1, says="has not run")
        self.tfmc(*command, *reference, "--recompute", code=1, says="has not run")


class Files(Case):
    def test_C04_output_is_an_input(self):
        os.symlink(self.path("w.safetensors"), self.path("link"))
        os.link(self.path("in.safetensors"), self.path("hard"))
        before = {name: self.path(name).read_bytes() for name in self.files()}
        for name in ["w.safetensors", "./w.safetensors", "in.safetensors", "model.tfm", "link", "hard"]:
            self.run_model("--output", name, code=2, says="would overwrite the input")
            self.run_model("--output", f"y=@{name}", code=2, says="would overwrite the input")
        self.tfmc("dump", "model.tfm", "-o", "model.tfm", code=2, says="would overwrite the input")
        self.assertEqual({name: self.path(name).read_bytes() for name in self.files()}, before)

    def test_C05_output_that_exists(self):
        out = self.path("out.safetensors")
        out.write_text("old")
        out.chmod(0o640)
        self.run_model("-o", "out.safetensors")
        self.assertEqual(stat.S_IMODE(out.stat().st_mode), 0o640)
        self.assertIn("y", load(out))
        os.symlink("out.safetensors", self.path("link.safetensors"))
        out.write_text("old")
        self.run_model("-o", "link.safetensors")
        self.assertTrue(self.path("link.safetensors").is_symlink())
        self.assertIn("y", load(out))

    def test_C05_output_stays_after_an_error(self):
        self.path("out.safetensors").write_text("old")
        self.path("model.tfm").write_text(MODEL.replace("up(x)", "upp(x)"))
        self.run_model("-o", "out.safetensors", code=1)
        self.assertEqual(self.path("out.safetensors").read_text(), "old")

    def test_C06_output_that_cannot_be(self):
        self.path("model.tfm").write_text("this is no model")  # an error of the model would be 1: the file is looked at first
        self.path("sub").mkdir()
        for name in ["none/out", "model.tfm/out", "sub", "n" * 256, "x/" * 2048 + "n", "/proc/out", "/dev/full"]:
            self.run_model("-o", name, code=3, says="cannot write the file")
        if os.getuid() != 0:
            self.path("sub").chmod(0o500)
            self.run_model("-o", "sub/out", code=3, says="Permission denied")
        self.assertEqual(self.files(), ["in.safetensors", "model.tfm", "sub", "w.safetensors"])

    def test_C07_odd_names(self):
        for name in ["a b", "$(touch hit)", "; touch hit", "a\nb", "`x`", "-o", "ü", "x=y"]:
            self.path(name + ".tfm").write_text(MODEL)
            self.tfmc("run", "./" + name + ".tfm", "--random-weights=1", "--input=x=1x3", "--input=ids=1", f"--output=./{name}.out")
            self.assertTrue(self.path(name + ".out").exists())
        raw = os.fsencode(self.folder.name) + b"/\xff.safetensors"
        subprocess.run([TFMC, "run", "model.tfm", "--random-weights=1", "--input=x=1x3", "--input=ids=1", b"--output=" + raw],
                       cwd=self.folder.name, check=True, capture_output=True)
        self.assertTrue(os.path.exists(raw))
        self.assertFalse(self.path("hit").exists())
        self.tfmc("check", "no\x1b[31m.tfm", code=3, says="\\x1b")

    def test_C08_output_that_does_not_arrive(self):
        with open("/dev/full", "w") as full:
            proc = subprocess.run([TFMC, "dump", "model.tfm"], stdout=full, stderr=subprocess.PIPE, cwd=self.folder.name)
        self.assertEqual(proc.returncode, 3, proc.stderr)
        self.assertIn(b"No space left", proc.stderr)
        read, write = os.pipe()
        os.close(read)
        proc = subprocess.run([TFMC, "dump", "model.tfm"], stdout=write, stderr=subprocess.PIPE, cwd=self.folder.name)
        os.close(write)
        self.assertEqual((proc.returncode, proc.stderr), (0, b""), "a reader that has enough, such as head, is no error")
        for closed in [(0,), (1,), (2,), (0, 1, 2)]:
            proc = subprocess.run([TFMC, "run", "model.tfm", "--random-weights=1", "--input=x=1x3", "--input=ids=1", "-o", "o"],
                                  cwd=self.folder.name, preexec_fn=lambda: [os.close(fd) for fd in closed])
            self.assertEqual(proc.returncode, 0, closed)
            self.assertIn("y", load(self.path("o")))

    def test_C08_null_device(self):
        self.run_model("-o", "/dev/null")
        self.run_model("-o", "y=@/dev/null")
        self.tfmc("dump", "model.tfm", "-o", "/dev/null")
        self.tfmc("graph", "model.tfm", "-o", "/dev/null")
        self.tfmc("profile", "model.tfm", "--random-weights=1", "--input=x=1x3", "--input=ids=1", "--iterations=1", "-o", "/dev/null")
        self.tfmc("compile", "model.tfm", "--weights", "w.safetensors", "-o", "/dev/null")
        self.tfmc("pack", "model.tfm", "--weights", "w.safetensors", "-o", "/dev/null")
        self.path("graph").write_text(self.tfmc("dump", "model.tfm").out)
        self.tfmc("opt", "graph", "-o", "/dev/null")
        self.path("writer.tfm").write_text(WRITER)
        self.tfmc("generate", "writer.tfm", "--random-weights=1", "--input=src=1x3", "--max-new-tokens=2", "-o", "/dev/null")
        self.assertTrue(stat.S_ISCHR(os.stat("/dev/null").st_mode))
        self.assertEqual(self.files(), ["graph", "in.safetensors", "model.tfm", "w.safetensors", "writer.tfm"])

    def test_C08_a_full_device(self):
        """The reason is that of the write that failed, however much was written before or after it."""
        self.path("big.tfm").write_text("model B { l = 40 * EncoderLayer(64, 8)\n forward(x: f32[b, t, 64]) { return y = l(x) } }")
        for command in (["dump", "big.tfm", "--stage=plan"], ["dump", "model.tfm"], ["check", "model.tfm"], ["graph", "big.tfm", "--depth=9"]):
            with open("/dev/full", "w") as full:
                proc = subprocess.run([TFMC, *command], cwd=self.folder.name, stdout=full, stderr=subprocess.PIPE, text=True)
            self.assertEqual(proc.returncode, 3, proc.stderr)
            self.assertIn("No space left on device", proc.stderr)

    def test_a_missing_weight_is_no_misspelling_of_one_in_use(self):
        self.path("two.tfm").write_text('model M { weight a: [3] as "blocks.0.gate"\n weight b: [3] as "blocks.1.gate"\n'
                                        " forward(x: f32[3]) { return y = x * a * b } }")
        for there, words, others in ((["blocks.0.gate"], "blocks.1.gate", "misspelt"), (["blocks.0.gate", "blocks.1.gat"], "misspelt", "blocks.0")):
            save(self.path("w.safetensors"), {name: ("F32", [3], [1, 2, 3]) for name in there})
            proc = self.tfmc("run", "two.tfm", "--weights", "w.safetensors", "--input", "x=3", code=1, says=words)
            self.assertNotIn(others, proc.err.split("[E")[0])

    def test_one_value_that_many_weights_take_is_one_message(self):
        """The first place has it, with the number of places; another value has its own."""
        lines = "\n".join(f"  l{i} = Linear(4, d)  t{i} = Embedding(4, e)" for i in range(12))
        self.path("many.tfm").write_text("model M(d = 4, e = 4) {\n" + lines + "\n forward(x: f32[n, 4]) { return y = x } }")
        for options, numbers in ((["-D", "d=-48"], [(-48, 12)]), (["-D", "d=-48", "-D", "e=-3"], [(-48, 12), (-3, 12)])):
            said = self.tfmc("check", "many.tfm", *options, code=1).err
            for value, times in numbers:
                self.assertIn(f"many.tfm:2:{8 if value == -48 else 27}: error: a size of a weight is {value}: it must not be below 0 "
                              f"({times} times, here first) [E0207]", said)
            self.assertEqual(len(re.findall("error: ", said)), len(numbers), said)
        said = self.tfmc("check", str(pathlib.Path(__file__).resolve().parents[2] / "models/bert.tfm"), "-D", "d=-48", code=1).err
        self.assertEqual(re.findall(r"error: (.*) \[E", said), ["a size of a weight is -48: it must not be below 0 (12 times, here first)"])

    def test_C09_a_tool_that_is_missing(self):
        proc = self.tfmc("graph", "model.tfm", "--format=svg", "-o", "m.svg", code=3, says="install graphviz", env={"PATH": ""})
        self.path("bin").mkdir()
        self.path("bin/dot").write_text("#!/bin/sh\necho rubbish\nexit 1\n")
        self.path("bin/dot").chmod(0o755)
        self.tfmc("graph", "model.tfm", "--format=svg", "-o", "m.svg", code=3, says="`dot` failed", env={"PATH": str(self.path("bin"))})
        self.assertFalse(self.path("m.svg").exists())
        self.tfmc("graph", "model.tfm", env={"PATH": ""})

    def test_C10_interrupted(self):
        big = "model B { l = 200 * EncoderLayer(256, 8)\n forward(x: f32[batch, time, 256]) = l(x) }"
        self.path("big.tfm").write_text(big.replace("= l(x)", "{ return y = l(x) }"))
        for number in [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]:
            for delay in [0.05, 0.3]:
                proc = subprocess.Popen([TFMC, "run", "big.tfm", "--random-weights=1", "--input=x=8x128x256", "-o", "out"],
                                        cwd=self.folder.name, stderr=subprocess.DEVNULL)
                try:
                    proc.wait(delay)
                except subprocess.TimeoutExpired:
                    proc.send_signal(number)
                self.assertIn(proc.wait(60), [-number, 0])
                self.assertEqual([f for f in self.files() if f.startswith(".")], [])

    def test_C12_two_at_once(self):
        procs = [subprocess.Popen([TFMC, "run", "model.tfm", "--random-weights=1", "--input=x=64x3", "--input=ids=64", "-o", "out",
                                   f"--seed={seed}"], cwd=self.folder.name) for seed in range(8)]
        self.assertEqual([p.wait(60) for p in procs], [0] * 8)
        self.assertIn("y", load(self.path("out")))

    @unittest.skipIf("thread" in os.environ.get("TFM_SANITIZE", ""), "the limit stops the sanitizer itself")
    def test_C13_file_size_limit(self):
        self.path("out").write_text("old")
        small = lambda: (signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)))
        self.tfmc("run", "model.tfm", "--random-weights=1", "--input=x=999x3", "--input=ids=999", "-o", "out", code=3,
                  says="cannot write", preexec_fn=small)
        self.assertEqual(self.path("out").read_text(), "old")
        self.assertEqual(self.files(), ["in.safetensors", "model.tfm", "out", "w.safetensors"])

    @unittest.skipIf("thread" in os.environ.get("TFM_SANITIZE", ""), "the limit stops the sanitizer itself")
    def test_C13_file_size_limit_is_no_signal(self):
        self.path("out").write_text("old")
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        inputs = ["--random-weights=1", "--input=x=999x3", "--input=ids=999"]
        for command in (["run", "model.tfm", *inputs, "-o", "out"], ["run", "model.tfm", *inputs, "-o", "y=@out"],
                        ["dump", "model.tfm", "-o", "out"], ["graph", "model.tfm", "-o", "out"], ["profile", "model.tfm", *inputs, "-o", "out"],
                        ["compile", "model.tfm", "--weights=w.safetensors", "-o", "out"], ["pack", "model.tfm", "--weights=w.safetensors", "-o", "out"]):
            proc = self.tfmc(*command, code=3, preexec_fn=limit)
            self.assertIn("File too large", proc.err, command)
            self.assertEqual(self.path("out").read_text(), "old")
            self.assertEqual(self.files(), ["in.safetensors", "model.tfm", "out", "w.safetensors"])
        with open(self.path("stdout"), "wb") as out:
            proc = subprocess.run([TFMC, "dump", self.path("model.tfm"), "--stage=plan"], stdout=out, stderr=subprocess.PIPE, preexec_fn=limit)
        self.assertEqual(proc.returncode, 3)
        self.assertIn(b"cannot write to standard output: File too large", proc.stderr)

    @unittest.skipIf(os.environ.get("TFM_SANITIZE"), "the limit stops the sanitizer itself")
    def test_C13_out_of_memory_says_what_for(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
        self.path("cube.tfm").write_text("model Cube { forward(x: f32[n]) { return y = x[:, none, none] + x[:, none] + x } }")
        for command, names in ((["model.tfm", "--input=x=900000000x3", "--input=ids=1"], 'input "x", f32[900000000, 3]: 108000000'),
                               (["model.tfm", "--input=x=1x3", "--input=ids=2000000000"], 'input "ids", i32[2000000000]'),
                               (["cube.tfm", "--input=x=1000"], 'output "y", f32[1000, 1000, 1000]: 40000000'),
                               (["model.tfm", "-Dn=900000000", "--engine=reference", "--input=x=0x900000000", "--input=ids=0"],
                                'weight "up.weight", f32[2, 900000000]')):
            proc = self.tfmc("run", *command, "--random-weights=1", code=4, preexec_fn=limit)
            self.assertIn("out of memory for " + names, proc.err)

    def test_the_limit_of_a_random_input_is_named(self):
        for sizes, names in (("1x2147483648", "a size is at most 2147483647"), ("99999999999999999999", "a size is at most 2147483647"),
                             ("x".join("1" * 20), "an input has at most"), ("2x", "sizes such as 2x7")):
            self.tfmc("run", "model.tfm", "--random-weights=1", f"--input=ids={sizes}", "--input=x=1x3", code=2, says=["ids", names])

    def test_inputs_that_are_no_files(self):
        os.mkfifo(self.path("pipe"))
        for name in ["pipe", ".", "/dev/zero", "none"]:
            self.tfmc("run", "model.tfm", "--weights", name, "--inputs", "in.safetensors", code=3, says=name)
            self.tfmc("info", name, code=3)
        self.tfmc("check", "none.tfm", code=3)


class Texts(Case):
    def test_diagnostics(self):
        self.path("model.tfm").write_text(MODEL.replace("up(x)", "upp(x)"))
        proc = self.tfmc("check", "model.tfm", code=1)
        self.assertIn("model.tfm:4:16: error: ", proc.err)
        self.assertNotIn("\x1b", proc.err)
        self.assertIn("\x1b[", self.tfmc("check", "model.tfm", "--color=always", code=1).err)
        line = self.tfmc("check", "model.tfm", "--diagnostics=json", code=1).err.splitlines()[0]
        message = json.loads(line)
        self.assertEqual((message["severity"], message["line"], message["column"]), ("error", 4, 16))

    def test_quiet(self):
        self.assertEqual(self.tfmc("check", "model.tfm", "-q").out, "")

    def test_stages(self):
        for stage in ["ast", "graph", "fused", "plan", "llvm", "asm"]:
            text = self.tfmc("dump", "model.tfm", f"--stage={stage}").out
            self.assertGreater(len(text), 50, stage)
            self.tfmc("dump", "model.tfm", f"--stage={stage}", "-o", "out.txt")
            self.assertEqual(self.path("out.txt").read_text(), text)

    def test_stages_of_generative_models(self):
        self.path("writer.tfm").write_text(WRITER)
        for other, name in [("source", "encoder"), ("source-fused", "encoder-fused"), ("source-plan", "encoder-plan")]:
            text = self.tfmc("dump", "writer.tfm", f"--stage={name}").out
            self.assertGreater(len(text), 20, name)
            self.assertEqual(self.tfmc("dump", "writer.tfm", f"--stage={other}").out, text)
            self.assertNotIn(other, self.tfmc("help", "dump").out)

    def test_documents(self):
        for name in ["options", "stages", "environment", "generate-options", "diagnostics", "primitives",
                     "torch-names", "ops", "passes", "fusions"]:
            lines = self.tfmc("document", name).out.splitlines()
            bars = [len(re.findall(r"(?<!\\)\|", line)) for line in lines]
            self.assertGreater(len(lines), 7, name)
            self.assertEqual(set(bars), {bars[0]}, name)
            self.assertRegex(lines[1], r"^(\|---)+\|$")
        stages = [line.split("`")[1] for line in self.tfmc("document", "stages").out.splitlines()[2:]]
        for stage in stages:
            self.assertIn(f"  {stage} ", self.tfmc("help", "dump").out)
        self.assertIn("--stage=" + "\\|".join(stages), self.tfmc("document", "options").out)
        self.tfmc("document", "opshuns", code=2, says="there are man, bash, zsh, fish, options")

    def test_C15_opt_reads_what_dump_prints(self):
        graph = self.tfmc("dump", "model.tfm").out
        fused = self.tfmc("dump", "model.tfm", "--stage=fused").out
        self.path("m.graph").write_text(graph)
        self.assertEqual(self.tfmc("opt", "m.graph").out, fused)
        self.assertEqual(self.tfmc("opt", "-", input=graph.encode()).out, fused)
        self.tfmc("opt", "m.graph", "--only=no-such-pass", code=2, says="no-such-pass")
        self.tfmc("opt", "-", input=b"rubbish", code=1)

    def test_the_times_of_passes_add_up(self):
        said = self.tfmc("dump", "model.tfm", "--stage=fused", "--time-passes").out
        passes = re.findall(r"^ *([\d.]+) +(\d+)% +\S+", said, re.M)
        total = float(re.search(r"^ *([\d.]+) +total$", said, re.M)[1])
        self.assertGreater(len(passes), 5)
        self.assertAlmostEqual(sum(float(time) for time, _ in passes), total, delta=0.06 * len(passes))
        for time, share in passes:
            self.assertAlmostEqual(100 * float(time), int(share) * total, delta=0.51 * total + 10)

    def test_compile_says_what_it_made(self):
        for options, weights in [([], ""), (["--weights", "w.safetensors"], "; weights m.tfmw")]:
            said = self.tfmc("compile", "model.tfm", "-o", "libm.so", *options).out
            self.assertRegex(said, rf"^libm\.so: for [\w-]+(, [\w-]+)*; header m\.h{weights}\n$")
            for name in re.findall(r"(?:header|weights) ([^;\s]+)", said):
                self.assertTrue(self.path(name).exists(), name)

    def test_only_factors_and_tables_are_rounded(self):
        self.path("m.tfm").write_text("""model M() {
  q = Linear(4, 4)
  table = Embedding(5, 4)
  weight places: [5, 4]
  weight upper: [2, 4]
  weight lower: [2, 4]
  forward(ids: i32[n], x: f32[5, 4]) {
    a = q(x + places) -> linear(concat(upper, lower, axis = 0))
    return y = table(ids) @ transpose(a, 0, 1)
  }
}
""")
        graph = self.tfmc("dump", "m.tfm", "--quantize=bf16").out
        weights = dict(re.findall(r'(%\d+) = weight "(.*)"', graph))
        rounded = [weights[source] for source in re.findall(r"= round_to (%\d+), form=bf16", graph)]
        self.assertEqual(sorted(rounded), ["lower", "q.weight", "table.weight", "upper"])
        self.assertIn("places", weights.values())

    def test_picture(self):
        self.assertIn("digraph", self.tfmc("graph", "model.tfm").out)

    def test_picture_of_each_stage(self):
        self.path("m.tfm").write_text("model M() { forward(x: f32[batch, 8]) { return y = softmax(exp(x)) } }")
        boxes = {"primitive": ["exp", "softmax"], "fused": ["reduce\\nexp($0)"], "plan": ["softmax"]}
        for options, expected in [([f"--stage={stage}"], names) for stage, names in boxes.items()] + [([], boxes["primitive"])]:
            text = self.tfmc("graph", "m.tfm", "--depth=9", *options).out
            self.assertEqual(re.findall(r'shape=box, style=rounded, label="(.*)"', text), expected)

    def test_experts_of_a_ragged_model_are_shown_as_they_run(self):
        """test_shown.py holds every model against its run; this is the kind that was shown without its fusions."""
        self.path("moe.tfm").write_text("""layer Mixture(d, n, k) {
  router  = Linear(d, n, bias = false)
  experts = [Linear(d, d, bias = false) for e in n]
  forward(x) {
    best, chosen = topk(softmax(router(x)), k)
    weights = sum(best[..., none] * one_hot(chosen, n), axis = -2)
    return sum([weights[..., e, none] * experts[e](x) for e in n])
  }
}
model M(vocab = 30, d = 16) {
  embed = Embedding(vocab, d)
  mix   = Mixture(d, 4, 2)
  head  = Linear(d, vocab)
  forward(ids: i32[batch, ragged time]) { return logits = head(mix(embed(ids))) }
  generate ids from logits { bos = 1  eos = 2 }
}
""")
        self.tfmc("bench", "moe.tfm", "--random-weights=1", "--input=ids=1x8", "--iterations=1", "--warmup=0", "--require-fusion=experts")
        self.tfmc("dump", "moe.tfm", "--stage=fused", "--require-fusion=experts")
        self.assertNotIn("not fused: experts", self.tfmc("dump", "moe.tfm", "--stage=fused", "--report").out)

    def test_picture_of_every_stage_of_dump(self):
        """Graphs and plans are drawn, of the incremental form and of gradients too; texts are refused."""
        trained = "model T { l = Linear(4, 4)\n forward(x: f32[n, 4]) { return y = l(x) }\n fn loss(x: f32[n, 4]) { return e = mean(mean(forward(x))) }\n train loss { lr = 1 } }"
        self.path("trained.tfm").write_text(trained)
        self.path("writer.tfm").write_text(WRITER)
        stages = re.findall(r"^  ([a-z][a-z-]*)  +\S", self.tfmc("dump", "--help").out, re.M)
        self.assertIn("step-plan", stages)
        for stage in stages:
            model = "trained.tfm" if stage.startswith("gradients") else "writer.tfm"
            code = 2 if stage in ("ast", "llvm", "asm") else 0
            dumped = self.tfmc("dump", model, f"--stage={stage}").out
            text = self.tfmc("graph", model, f"--stage={stage}", "--depth=9", code=code, says="is text" if code else ()).out
            if stage.endswith("plan"):
                steps = re.findall(r"^    \d+: ", dumped, re.M)
                self.assertEqual(len(re.findall("shape=box, style=rounded", text)), len(steps), stage)

    def test_names_cannot_forge_lines(self):
        """A line break in a path, in a weight's name or in a file's name is escaped wherever people read it."""
        forged = "x\nforged\n  attention    forged"
        name = forged.replace("\n", "\\n")
        model = ("model M() { l = Linear(4, 4) as \"" + name + "\"\n weight t: [4] = normal(0, 1) as \"" + name + ".t\"\n"
                 "forward(x: f32[n, 4]) { return y = relu(l(relu(x))) * t }\n"
                 "fn loss(x: f32[n, 4]) { return e = mean(mean(forward(x))) }\n train loss { lr = 1 } }")
        self.path("m.tfm").write_text(model)
        self.path("f\nforged.tfm").write_text(model)
        run = ["--random-weights=1", "--input", "x=2x4"]
        once = [*run, "--warmup=0", "--iterations=1"]
        lines = [["dump", f"--stage={s}", "--report"] for s in ("ast", "graph", "fused", "plan", "llvm", "gradients-plan")]
        lines += [["graph", f"--stage={s}", "--depth=9"] for s in ("graph", "fused", "plan")]
        lines += [["check", "-v"], ["check", "-v", "--quantize=int8"],
                  ["dump", "--quantize=int8", "--report"], ["run", *run], ["verify", *run, "--quantize=int8", "--sensitivity"],
                  ["profile", *once, "--report"], ["profile", *once, "--format=chrome"], ["profile", *once, "--format=html"],
                  ["bench", *once, "--report"], ["bench", *once, "--json"], ["compile", "-o", "libf.so", "--report"]]
        for file in ["m.tfm", "f\nforged.tfm"]:
            for verb, *options in lines:
                proc = subprocess.run([TFMC, verb, file, *options], cwd=self.folder.name, capture_output=True, text=True)
                self.assertEqual(proc.returncode, 0, f"{verb} {options}: {proc.stderr}")
                for line in (proc.stdout + proc.stderr).split("\n"):
                    self.assertIsNone(re.match("  attention    forged|forged", line), f"{verb} {options}: {line!r}")
        self.assertNotIn("\n  attention", self.tfmc("info", "libf.so").out)
        self.assertNotIn("forged", [line.split()[0] for line in self.path("f.h").read_text().splitlines() if line.split()])

    @unittest.skipUnless(shutil.which("dot"), "no program `dot`")
    def test_pictures_that_somebody_can_read(self):
        """Less than 2,000 points wide and high: layers of two kinds in turns, a thousand outputs, a long expression."""
        layers = "".join(f"layer {name}(d) {{ l = Linear(d, d)\n forward(x) = {f}(l(x)) }}\n" for name, f in (("A", "relu"), ("B", "gelu")))
        turns = "model M(d = 8) { layers = [if i % 3 == 0 then A(d) else B(d) for i in 96]\n forward(x: f32[n, d]) { for i in 96 { x = layers[i](x) }\n return y = x } }"
        many = "model M { forward(x: f32[n]) { return " + ", ".join(f"y{i} = x * {i}" for i in range(1000)) + " } }"
        wide = "model M { forward(x: f32[n], z: f32[n]) { y = x\n for i in 12 { y = (y + z) * exp(x) }\n return y } }"
        for text in (layers + turns, many, wide):
            self.path("m.tfm").write_text(text)
            for stage, depth in ("primitive", 1), ("primitive", 2), ("fused", 3), ("plan", 2):
                svg = self.tfmc("graph", "m.tfm", f"--stage={stage}", f"--depth={depth}", "--format=svg").out
                width, height = map(int, re.search(r'<svg width="(\d+)pt" height="(\d+)pt"', svg).groups())
                self.assertLess(width, 2000, (text[:60], stage, depth))
                self.assertLess(height, 2000 if text != wide else 9000, (text[:60], stage, depth))

    def test_picture_that_cannot_be_laid_out_with_curves(self):
        self.path("bin").mkdir()
        self.path("bin/dot").write_text('#!/bin/sh\ncase "$*" in *splines=line*) echo "<svg/>";; *) echo "lost edge" >&2; exit 1;; esac\n')
        self.path("bin/dot").chmod(0o755)
        env = {"PATH": str(self.path("bin"))}
        proc = self.tfmc("graph", "model.tfm", "--format=svg", "-o", "m.svg", says="straight lines", env=env)
        self.assertEqual(self.path("m.svg").read_text(), "<svg/>\n")
        self.assertNotIn("lost edge", proc.err)
        proc = self.tfmc("graph", "model.tfm", "--format=svg", "-q", env=env)
        self.assertEqual((proc.out, proc.err), ("<svg/>\n", ""))

    def test_info_of_a_library(self):
        for text, writes in [(MODEL, False), (WRITER, True)]:
            self.path("m.tfm").write_text(text)
            self.tfmc("compile", "m.tfm", "-o", "libm.so")
            out = self.tfmc("info", "libm.so").out
            self.assertEqual("writes:" in out, writes, out)
            self.assertEqual("incremental" in out, writes, out)

    def test_info_of_a_text(self):
        self.tfmc("info", "model.tfm", code=1, says=["this is a text, no safetensors file", "tfmc check"])

    def test_one_of_a_kind_is_singular(self):
        self.path("one.tfm").write_text("model M { weight w: [3]  forward(x: f32[3]) { return y = x * w } }")
        self.assertIn("weights: 1 tensor, 3 numbers", self.tfmc("check", "one.tfm").out)
        self.assertIn(" us in 1 step, median", self.tfmc("profile", "one.tfm", "--random-weights=1", "--input=x=3", "--iterations=1").out)
        save(self.path("w.safetensors"), {"w": ("F32", [1], [1.0])})
        said = self.tfmc("info", "w.safetensors").out
        self.assertIn("w.safetensors: 1 tensor in 1 file", said)
        self.assertIn("F32: 1 tensor, 1 element, 4 bytes", said)

    def test_options_of_generation_from_a_folder(self):
        self.path("writer.tfm").write_text(WRITER)
        self.path("checkpoint").mkdir()
        self.path("checkpoint/generation_config.json").write_text('{"max_new_tokens": 3, "min_new_tokens": 3}')
        out = self.tfmc("generate", "writer.tfm", "--random-weights=1", "--input=src=1x3", "--generation-config", "checkpoint").out
        self.assertEqual(len(json.loads(out)), 4, out)

    def test_info(self):
        self.assertIn("CPU:", self.tfmc("info").out)
        self.assertIn("march", json.loads(self.tfmc("info", "--json").out))
        tensors = json.loads(self.tfmc("info", "w.safetensors", "--json").out)["tensors"]
        self.assertEqual(tensors[0], {"name": "up.weight", "dtype": "F32", "shape": [2, 3]})


if __name__ == "__main__":
    TFMC = os.path.abspath(sys.argv.pop(1))
    unittest.main()
