#!/usr/bin/env python3
"""Compiled libraries and the command line: pack, run, check, verify, bench, profile, info; what a library is to a C program.

usage: test_library_cli.py TFMC [unittest arguments]

Needs Python's own library and a C compiler; valgrind for one test, which says so where there is none. The numbers (A01 ...)
name the kinds of faults.
"""
import ctypes
import json
import math
import os
import pathlib
import random
import re
import resource
import shutil
import struct
import subprocess
import sys
import unittest

import tally
import test_cli
from test_cli import MODEL, load, save

HOST = pathlib.Path(__file__).resolve().parent / "host"
STRICT = ["-Wall", "-Wextra", "-pedantic", "-Werror"]
RUN = ["--inputs", "in.safetensors"]


class Case(test_cli.Case):
    linking = []  # options of every compile
    compiled = {}  # what a compile said and wrote, by its words and all files that were there: tests begin alike

    def contents(self):
        root = pathlib.Path(self.folder.name)
        return {str(p.relative_to(root)): (p.read_bytes(), p.stat().st_mode) for p in root.rglob("*") if p.is_file()}

    def compile(self, *args, model="model.tfm", out="libm.so", **kwargs):
        words = ["compile", model, "-o", out, *(() if out.endswith(".tfmm") else self.linking), *args]
        if kwargs or any(os.path.isabs(str(word)) for word in words):
            return self.tfmc(*words, **kwargs)
        before = self.contents()
        key = tuple(map(str, words)), tuple(sorted(before.items()))
        if key not in self.compiled:
            said = self.tfmc(*words)
            self.compiled[key] = said, {name: file for name, file in self.contents().items() if before.get(name) != file}
            return said
        said, written = self.compiled[key]
        for name, (data, mode) in written.items():
            self.path(name).parent.mkdir(parents=True, exist_ok=True)
            self.path(name).unlink(missing_ok=True)
            self.path(name).write_bytes(data)
            self.path(name).chmod(mode & 0o7777)
        return said

    def compile_with_weights(self, *args, **kwargs):
        return self.compile("--weights", "w.safetensors", *args, **kwargs)

    def save_weights(self, name, seed):
        listed, numbers = self.tfmc("check", "-v", "model.tfm").out, random.Random(seed)
        shapes = re.findall(r"^  (\S+) +f32\[(.*)\]$", listed[listed.index("weights:"):], re.MULTILINE)
        dims = {path: [int(n) for n in shape.split(", ")] for path, shape in shapes}
        save(self.path(name), {path: ("F32", shape, [numbers.uniform(-0.5, 0.5) for _ in range(math.prod(shape))])
                               for path, shape in dims.items()})

    def shell(self, *command, code=0, **kwargs):
        proc = subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=self.folder.name, timeout=300, **kwargs)
        self.assertEqual(proc.returncode, code, f"{command}: {proc.stdout}{proc.stderr}")
        return proc.stdout

    def bytes(self, name):
        return self.path(name).read_bytes()


class Pack(Case):
    def test_pack_makes_what_compile_makes(self):
        self.compile_with_weights()
        wanted = self.bytes("m.tfmw")
        self.path("m.tfmw").unlink()
        self.compile()
        self.assertFalse(self.path("m.tfmw").exists())
        self.tfmc("run", "libm.so", *RUN, code=3, says=["m.tfmw", "tfmc pack"])
        self.assertIn("m.tfmw", self.tfmc("pack", "libm.so", "--weights", "w.safetensors").out)
        self.assertEqual(self.bytes("m.tfmw"), wanted)
        self.tfmc("pack", "libm.so", "--weights", "w.safetensors", "-o", "other.tfmw", "-q")
        self.tfmc("pack", "model.tfm", "--weights", "w.safetensors", "-o", "again.tfmw")
        self.assertEqual(self.bytes("other.tfmw"), wanted)
        self.assertEqual(self.bytes("again.tfmw"), wanted)

    def test_the_library_has_the_model_in_it(self):
        self.path("sub/parts").mkdir(parents=True)
        self.path("sub/parts/head.tfm").write_text("layer Head(n) { l = Linear(n, 2)\n forward(x) = l(x) }")
        self.path("sub/model.tfm").write_text(
            'include "parts/head.tfm"\nmodel A { forward(x: f32[batch, 1]) { return y = x } }\n'
            "model M(n = 4, act = gelu) { up = Head(n)\n forward(x: f32[batch, n]) { return y = act(up(x)) } }")
        weights = {"p.up.l.weight": ("F32", [2, 3], [1, 2, 3, 4, 5, 6]), "p.up.l.bias": ("F32", [2], [1, -1])}
        save(self.path("w.safetensors"), weights)
        save(self.path("in.safetensors"), {"x": ("F32", [1, 3], [1, 0, 2])})
        options = ["-Dn=3", "-D", "act=relu", "--model=M", "--weights-prefix=p.", "-O0", "--disable=fuse-epilogues"]
        plain = self.tfmc("run", "sub/model.tfm", "--weights", "w.safetensors", *RUN, *options[:-1], "-o", "want").out
        self.assertEqual(plain, "")
        self.compile(*options, model="sub/model.tfm")
        shutil.rmtree(self.path("sub"))
        self.tfmc("pack", "libm.so", "--weights", "w.safetensors")
        self.tfmc("run", "libm.so", *RUN, "-o", "out")
        self.assertEqual(load(self.path("out"))["y"], ("F32", [1, 2], [8, 15]))
        self.assertEqual(self.bytes("out"), self.bytes("want"))
        self.assertNotIn(os.fsencode(self.folder.name), self.bytes("libm.so"))

    def test_faults(self):
        self.compile()
        self.tfmc("pack", "libm.so", code=2, says="--weights")
        self.tfmc("pack", "libm.so", "--weights", "none", code=3, says="none")
        self.tfmc("pack", "libm.so", "--weights", "w.safetensors", "-o", "libm.so", code=2, says="would overwrite")
        self.tfmc("pack", "libm.so", "--weights", "w.safetensors", "-o", "w.safetensors", code=2, says="would overwrite")
        self.tfmc("pack", "libm.so", "--weights", "w.safetensors", "-o", "none/x", code=3, says="none/x")
        save(self.path("few.safetensors"), {"up.bias": ("F32", [2], [1, 2])})
        self.tfmc("pack", "libm.so", "--weights", "few.safetensors", code=1, says="up.weight")
        self.tfmc("pack", "libm.so", "--weights", "w.safetensors", "-Dn=3", code=2, says="--define")
        self.assertFalse(self.path("m.tfmw").exists())

    def test_a_library_of_another_compiler(self):
        """The layout that the library has is not the one that its plan gives: as if tfmc had changed."""
        self.compile_with_weights()
        raw = self.bytes("libm.so")
        layout = re.search(rb'"layout":"([0-9a-f]{32})"', raw).group(1)
        self.path("libm.so").write_bytes(raw.replace(layout, b"0" * 32))
        self.tfmc("pack", "libm.so", "--weights", "w.safetensors", code=1, says=["made the library", "tfmc 0."])


class OneFile(Case):
    """-o NAME.tfmm: code and weights in one file. The Python package's own tests of it are in test_file.py."""

    def test_it_is_written_alone(self):
        said = self.compile_with_weights(out="m.tfmm").out
        self.assertIn("m.tfmm: for x86-64-v3; code and weights, for tfmc ", said)
        self.assertEqual(self.files(), ["in.safetensors", "m.tfmm", "model.tfm", "w.safetensors"])
        before = self.bytes("m.tfmm")
        self.assertEqual(self.compile_with_weights("-q", out="m.tfmm").out, "")
        self.assertEqual(self.bytes("m.tfmm"), before)
        self.path("plain.tfm").write_text("model M { forward(x: f32[n, 3]) { return y = x * 2 } }")
        self.tfmc("compile", "plain.tfm", "-o", "plain.tfmm", "-march=native")

    def test_refused(self):
        before = self.files()
        self.compile(out="m.tfmm", code=2, says=["--weights", "a .tfmm file holds the weights too"])
        self.compile_with_weights("-march=x86-64-v3,x86-64-v4", out="m.tfmm", code=2, says="one instruction set")
        for option in ("-c", "--emit=asm", "--emit=obj"):
            self.compile_with_weights(option, out="m.tfmm", code=2, says="code alone is not a .tfmm file")
        self.compile_with_weights(out="none/m.tfmm", code=3, says="none/m.tfmm")
        os.symlink("w.safetensors", self.path("link.tfmm"))
        self.compile_with_weights(out="link.tfmm", code=2, says="would overwrite")
        self.path("link.tfmm").unlink()
        save(self.path("few.safetensors"), {"up.bias": ("F32", [2], [1, 2])})
        self.compile("--weights", "few.safetensors", out="m.tfmm", code=1, says="up.weight")
        self.path("few.safetensors").unlink()
        self.assertEqual(self.files(), before)

    def test_run_as_a_library(self):
        want = self.run_model().out
        for march in "x86-64", "x86-64-v3", "native":
            self.compile_with_weights(f"-march={march}", out="m.tfmm")
            self.assertEqual(self.tfmc("run", "m.tfmm", *RUN).out, want if march != "x86-64" else self.run_model("-march=x86-64").out)
        self.path("m.tfmm").rename(self.path("called.otherwise"))
        self.assertEqual(self.tfmc("run", "called.otherwise", *RUN, "-o", "g.safetensors").out, "")
        self.run_model("-o", "want.safetensors")
        self.assertEqual(self.bytes("g.safetensors"), self.bytes("want.safetensors"))
        self.compile_with_weights(out="m.tfmm")
        self.tfmc("verify", "m.tfmm", *RUN, "--golden", "g.safetensors")
        self.tfmc("verify", "m.tfmm", *RUN, "--weights", "w.safetensors")
        self.assertIn("has all of them", self.tfmc("check", "m.tfmm", "--weights", "w.safetensors").out)
        for verb in "bench", "profile":
            self.assertIn("M: ", self.tfmc(verb, "m.tfmm", *RUN, "--iterations=1", "--warmup=0").out)
        for verb, option in [("run", "--weights=w.safetensors"), ("bench", "--random-weights=1"), ("verify", "--random-weights=1"),
                             ("pack", "--weights=w.safetensors")]:
            self.tfmc(verb, "m.tfmm", *(RUN if verb != "pack" else []), option, code=2, says=["a .tfmm file holds its weights", "leave this out"])
        self.tfmc("run", "m.tfmm", *RUN, "-Dn=3", code=2, says="this was fixed")
        self.tfmc("run", "m.tfmm", *RUN, "-o", "m.tfmm", code=2, says="would overwrite")

    def test_info(self):
        self.compile_with_weights(out="m.tfmm")
        for words in ["the model M, made by tfmc 0.", "code and weights in one file", ", in the file\n", "source: in the file, as text: model.tfm;"]:
            self.assertIn(words, self.tfmc("info", "m.tfmm").out)
        self.assertEqual(json.loads(self.tfmc("info", "m.tfmm", "--json").out)["instruction_sets"], ["x86-64-v3"])
        self.compile_with_weights("--strip-source", out="m.tfmm")
        self.assertNotIn(b"forward(", self.bytes("m.tfmm"))
        self.assertIn("source: not in the file", self.tfmc("info", "m.tfmm").out)
        self.tfmc("run", "m.tfmm", *RUN, code=1, says=["--strip-source, the file does not contain", "name the .tfm file"])

    def test_files_that_cannot_be_run(self):
        self.compile_with_weights(out="m.tfmm")
        whole = self.bytes("m.tfmm")
        code = whole.index(b"\x7fELF") + 70
        for name, data, says in [("empty", b"", "is no .tfmm file"), ("foreign", b"PK" + whole[2:], "is no .tfmm file"),
                                 ("cut", whole[:5000], "is damaged or was cut off"), ("short", whole[:-1], "is damaged or was cut off"),
                                 ("longer", whole + b"x", "is damaged or was cut off"),
                                 ("changed", whole[:code] + bytes([whole[code] ^ 1]) + whole[code + 1:], "is damaged or was cut off"),
                                 ("other", whole.replace(b"0.1.0\0", b"0.0.9\0", 1), "was made by tfmc 0.0.9, this is")]:
            self.path(f"{name}.tfmm").write_bytes(data)
            for verb in "run", "info", "check":
                self.tfmc(verb, f"{name}.tfmm", code=1, says=f"{name}.tfmm {says}")
        self.tfmc("run", "none.tfmm", code=3, says="none.tfmm: error: cannot open the file")
        os.mkdir(self.path("folder.tfmm"))
        self.tfmc("run", "folder.tfmm", code=3, says="it is a folder")

    def test_another_cpu(self):
        lacking = re.findall(r"-march=(\S+) cannot run here: the CPU lacks (.*)", self.tfmc("info").out)
        if not lacking:
            self.skipTest("this CPU runs the code of every instruction set")
        march, feature = lacking[-1]
        self.compile_with_weights(f"-march={march}", out="m.tfmm")
        self.assertIn(f"cannot run here: the CPU lacks {feature}", self.tfmc("info", "m.tfmm").out)
        self.tfmc("run", "m.tfmm", *RUN, code=3, says=f"this CPU cannot run {march} code: it lacks {feature}")

    def test_a_write_that_fails_leaves_what_was_there(self):
        self.path("m.tfmm").write_text("old")
        before = self.files()
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
        proc = subprocess.run([test_cli.TFMC, "compile", "model.tfm", "--weights", "w.safetensors", "-o", "m.tfmm"],
                              cwd=self.folder.name, preexec_fn=limit, capture_output=True, text=True)
        self.assertEqual(proc.returncode, 3, proc.stderr)
        self.assertIn("File too large", proc.stderr)
        self.assertEqual((self.bytes("m.tfmm"), self.files()), (b"old", before))


class Run(Case):
    def test_the_same_as_the_model(self):
        self.compile_with_weights("-march=native")
        for args in [(), ("--threads=1",), ("--threads=3",), ("-v",), ("-q",)]:
            self.assertEqual(self.tfmc("run", "libm.so", *RUN, *args).out, self.run_model(*args).out)
        self.tfmc("run", "libm.so", *RUN, "-o", "a.safetensors")
        self.run_model("-o", "b.safetensors")
        self.assertEqual(self.bytes("a.safetensors"), self.bytes("b.safetensors"))
        self.tfmc("run", "libm.so", *RUN, "-o", "y=@y.npy")
        self.run_model("-o", "y=@want.npy")
        self.assertEqual(self.bytes("y.npy"), self.bytes("want.npy"))
        shown = [self.tfmc("run", file, "--input=x=5x3", "--input=ids=5", "--seed=4", *more).out
                 for file, more in [("libm.so", []), ("model.tfm", ["--weights", "w.safetensors"])]]
        self.assertEqual(*shown)

    def test_weights(self):
        self.compile_with_weights()
        want = self.tfmc("run", "libm.so", *RUN).out
        self.path("m.tfmw").rename(self.path("elsewhere"))
        self.assertEqual(self.tfmc("run", "libm.so", *RUN, "--weights", "elsewhere").out, want)
        self.assertEqual(self.tfmc("run", "libm.so", *RUN, "--weights", "w.safetensors").out, want)
        self.path("i.json").write_text('{"weight_map": {"up.weight": "w.safetensors", "up.bias": "w.safetensors"}}')
        self.assertEqual(self.tfmc("run", "libm.so", *RUN, "--weights", "i.json").out, want)
        self.assertEqual(self.tfmc("run", "libm.so", *RUN, "--random-weights=3").out,
                         self.tfmc("run", "model.tfm", *RUN, "--random-weights=3", "-march=x86-64-v3").out)
        self.compile_with_weights("--embed-weights", out="libe.so")
        self.assertFalse(self.path("e.tfmw").exists())
        self.assertEqual(self.tfmc("run", "libe.so", *RUN).out, want)
        self.tfmc("run", "libm.so", *RUN, "--weights", "none", code=3, says="none")
        self.tfmc("run", "model.tfm", *RUN, "--weights", "elsewhere", code=1, says="packed weights")
        self.tfmc("pack", "libm.so", "--weights", "elsewhere", code=1, says="packed weights")

    def test_constants_need_no_file(self):
        self.path("c.tfm").write_text("model C { forward(x: f32[b, 4]) { return y = x + sinusoid(positions(x, 1), 4)[0] } }")
        self.compile(model="c.tfm", out="libc.so")
        self.assertFalse(self.path("c.tfmw").exists())
        self.assertEqual(self.tfmc("run", "libc.so", "--input=x=2x4").out, self.tfmc("run", "c.tfm", "--input=x=2x4").out)

    def test_messages_of_inputs(self):
        self.compile_with_weights()
        for args in [("--input=x=1x3",), ("--input=x=1x4", "--input=ids=1"), ("--input=x=1x3", "--input=ids=2"),
                     ("--input=z=1",), ("--input=x=3", "--input=ids=1")]:
            texts = [self.tfmc("run", file, *more, *args, code=1).err
                     for file, more in [("libm.so", []), ("model.tfm", ["--weights", "w.safetensors"])]]
            self.assertEqual(*texts)
        self.tfmc("run", "libm.so", *RUN, "-o", "q=@q.npy", code=2, says='no output "q"')
        self.tfmc("run", "libm.so", *RUN, "-o", "libm.so", code=2, says="would overwrite")

    def test_checks_name_the_text_of_the_model(self):
        self.path("model.tfm").write_text('model M { forward(x: f32[b, t]) { require t < 3, "t is {t}"\n return y = x } }')
        self.compile(model=str(self.path("model.tfm")))
        self.tfmc("run", "libm.so", "--input=x=1x3", code=1, says=["model.tfm:1:", "t is 3"])

    def test_what_is_fixed(self):
        self.compile_with_weights()
        for option in ["-Dn=3", "--model=M", "--weights-prefix=p", "-march=x86-64-v3", "-O0", "--engine=reference", "--report",
                       "--require-fusion=attention"]:
            self.tfmc("run", "libm.so", *RUN, option, code=2, says="this was fixed when the library was compiled")

    def test_other_verbs(self):
        self.compile_with_weights()
        self.assertIn("has all of them", self.tfmc("check", "libm.so", "--weights", "w.safetensors").out)
        self.tfmc("run", "model.tfm", "--weights", "w.safetensors", *RUN, "-o", "g.safetensors")
        self.tfmc("verify", "libm.so", *RUN, "--golden", "g.safetensors")
        self.tfmc("verify", "libm.so", *RUN, "--weights", "w.safetensors")
        self.tfmc("verify", "libm.so", *RUN, code=2, says="--weights")
        self.tfmc("dump", "libm.so", code=1)


class Damage(Case):
    def setUp(self):
        super().setUp()
        self.compile_with_weights()

    def test_A02_weights_of_something_else(self):
        self.path("other.tfm").write_text(MODEL.replace("model M", "model Other").replace("Linear(n, 2)", "Linear(n, 3)"))
        save(self.path("o.safetensors"), {"up.weight": ("F32", [3, 3], [0] * 9), "up.bias": ("F32", [3], [0] * 3)})
        self.compile("--weights", "o.safetensors", model="other.tfm", out="libother.so")
        self.tfmc("run", "libm.so", *RUN, "--weights", "other.tfmw", code=1, says=["other.tfmw was packed for the model other", "layout"])

    def test_W19_W22_damaged_weights(self):
        whole = self.bytes("m.tfmw")
        for name, raw in {"empty": b"", "short": whole[:100], "page": whole[:4096], "cut": whole[:-1], "long": whole + b"x",
                          "version": whole[:12] + b"\x09" + whole[13:], "order": whole[:8] + whole[11:7:-1] + whole[12:],
                          "model": whole[:70] + b"q" + whole[71:], "hash": whole[:320] + b"qqqq" + whole[324:]}.items():
            self.path("m.tfmw").write_bytes(raw)
            self.tfmc("run", "libm.so", *RUN, code=1, says="m.tfmw")
            self.tfmc("info", "m.tfmw", code=1, says="m.tfmw")
        for at in range(8, 328, 5):
            raw = bytearray(whole)
            raw[at] ^= 1 << at % 8
            self.path("m.tfmw").write_bytes(raw)
            self.tfmc("info", "m.tfmw", code=1, says="m.tfmw")

    def test_W17_weights_replaced_while_they_are_used(self):
        library = ctypes.CDLL(str(self.path("libm.so")))
        model, context = ctypes.c_void_p(), ctypes.c_void_p()
        self.assertEqual(library.m_open(str(self.path("m.tfmw")).encode(), ctypes.byref(model), None), 0)
        self.assertEqual(library.m_context_new(model, None, ctypes.byref(context), None), 0)
        save(self.path("w2.safetensors"), {"up.weight": ("F32", [2, 3], [0] * 6), "up.bias": ("F32", [2], [0, 0])})
        self.tfmc("pack", "libm.so", "--weights", "w2.safetensors")
        x, ids, y = (ctypes.c_float * 3)(1, 0, 2), (ctypes.c_int32 * 1)(3), (ctypes.c_float * 2)()
        members = re.findall(r"^  [^/;]*?(\w+);", self.path("m.h").read_text().split("typedef struct m_args {")[1], re.M)
        values = {"batch": 1, "x": ctypes.addressof(x), "ids": ctypes.addressof(ids), "y": ctypes.addressof(y)}
        args = (ctypes.c_int64 * 16)(*(values.get(name, 0) for name in members))
        self.assertEqual(library.m_forward(context, args, None), 0)
        self.assertEqual(list(y), [8, 15])
        library.m_context_free(context)
        library.m_close(model)
        self.assertIn("0 0", self.tfmc("run", "libm.so", *RUN).out)

    def test_A08_changed_weights(self):
        raw = bytearray(self.bytes("m.tfmw"))
        self.tfmc("info", "m.tfmw")
        raw[4096] ^= 1
        self.path("m.tfmw").write_bytes(raw)
        self.tfmc("info", "m.tfmw", code=1, says="hash")

    def test_weights_that_are_no_files(self):
        os.mkfifo(self.path("pipe"))
        for name in ["pipe", ".", "/dev/zero"]:
            self.tfmc("run", "libm.so", *RUN, "--weights", name, code=3, says=name)
            self.path("m.tfmw").unlink()
            os.symlink(name, self.path("m.tfmw"))
            self.tfmc("run", "libm.so", *RUN, code=3, says="m.tfmw")

    def test_no_library_of_ours(self):
        raw = self.bytes("libm.so")
        for name, content in {"head": raw[:4], "cut": raw[:2000], "objects": pathlib.Path(sys.executable).read_bytes()[:100000]}.items():
            self.path("libm.so").write_bytes(content)
            for verb in ["run", "info"]:
                self.tfmc(verb, "libm.so", code=1, says="no library made by `tfmc compile`")

    def test_headers_of_elf_files(self):
        """Every byte of the ELF header and of the section table changed: a message or none, never a crash."""
        raw = bytearray(self.bytes("libm.so"))
        (table,) = struct.unpack_from("<Q", raw, 0x28)
        for at in [*range(4, 64), *range(table, len(raw), 23)]:
            for value in (0, 0x7F, 0xFF):
                changed = raw.copy()
                changed[at] = value
                self.path("x.so").write_bytes(changed)
                proc = subprocess.run([test_cli.TFMC, "info", "x.so"], cwd=self.folder.name, capture_output=True, timeout=60)
                self.assertIn(proc.returncode, (0, 1), f"byte {at} = {value}: {proc.stderr}")

    def test_a_description_that_is_damaged(self):
        raw = self.bytes("libm.so")
        for old, new in [(b'"files":[{', b'"flies":[{'), (b'"prefix":', b'"prefex":'), (b'{"model":', b'["model":'),
                         (b"forward(x: f32", b"forwart(x: f32")]:
            self.assertIn(old, raw)
            self.path("x.so").write_bytes(raw.replace(old, new))
            self.tfmc("run", "x.so", *RUN, "--weights", "m.tfmw", code=1, says="x.so")


class Info(Case):
    def test_library(self):
        self.compile_with_weights("-march=x86-64-v3,x86-64")
        text = self.tfmc("info", "libm.so").out
        for word in ["the model M", "m_...", "f32[batch, 3]", "i32[batch]", "x86-64-v3", "x86-64 ", "from m.tfmw"]:
            self.assertIn(word, text)
        about = json.loads(self.tfmc("info", "libm.so", "--json").out)
        self.assertEqual((about["model"], about["prefix"], about["instruction_sets"]), ("M", "m", ["x86-64-v3", "x86-64"]))
        self.assertEqual(about["inputs"][0], {"name": "x", "type": "f32[batch, 3]", "member": "x"})
        self.assertIs(about["source"], True)
        self.assertIn("source: in the library, as text: model.tfm; tfmc compile --strip-source leaves it out\n", text)
        self.path("m.tfmw").unlink()
        self.assertIn("which is not there", self.tfmc("info", "libm.so").out)

    def test_source_left_out(self):
        """The text is in a library unless it is stripped; a stripped one is the same to a program, but not to tfmc."""
        self.path("model.tfm").write_text("# private words\n" + self.path("model.tfm").read_text())
        self.compile_with_weights()
        self.assertIn(b"private words", self.bytes("libm.so"))
        header, weights = self.bytes("m.h"), self.bytes("m.tfmw")
        for options, name in ([[], "libm.so"], [["-c"], "m.o"], [["--embed-weights"], "libm.so"]):
            self.path("m.tfmw").unlink(missing_ok=True)
            self.compile_with_weights("--strip-source", *options, out=name)
            raw = self.bytes(name)
            for text in (b"private words", b"forward(", b"model M"):
                self.assertNotIn(text, raw, options)
            self.assertEqual(self.bytes("m.h"), header)
            if options != ["--embed-weights"]:
                self.assertEqual(self.bytes("m.tfmw"), weights)
            told = self.tfmc("info", name).out
            self.assertIn("the model M", told)
            self.assertIn("source: not in the library\n", told)
            self.assertIs(json.loads(self.tfmc("info", name, "--json").out)["source"], False)
        for verb in ["run", "check", "verify", "bench", "profile"]:
            self.tfmc(verb, "libm.so", code=1, says=["libm.so", "--strip-source", f"`tfmc {verb}`", "name the .tfm file"])
        self.tfmc("pack", "libm.so", "--weights", "w.safetensors", code=1, says=["--strip-source", "name the .tfm file"])
        self.tfmc("pack", "model.tfm", "--weights", "w.safetensors", "-o", "again.tfmw")
        self.assertEqual(self.bytes("again.tfmw"), weights)

    def test_object(self):
        self.compile("-c", out="m.o")
        self.assertIn("the model M", self.tfmc("info", "m.o").out)

    def test_weights(self):
        self.compile_with_weights()
        layout = json.loads(self.tfmc("info", "libm.so", "--json").out)["layout"]
        about = json.loads(self.tfmc("info", "m.tfmw", "--json").out)
        self.assertEqual((about["model"], about["layout"]), ("m", layout))
        self.assertEqual(about["weights_bytes"] + 4096, len(self.bytes("m.tfmw")))
        self.assertIn(layout, self.tfmc("info", "m.tfmw").out)


class Measuring(Case):
    LAYERS = "model L { layers = 2 * EncoderLayer(16, 2, 32)\n forward(x: f32[b, t, 16]) { return y = layers(x) } }"

    def setUp(self):
        super().setUp()
        self.path("l.tfm").write_text(self.LAYERS)
        self.compile(model="l.tfm", out="libl.so")
        self.given = ["--random-weights=1", "--input=x=2x5x16", "--iterations=3", "--warmup=1"]

    def test_bench(self):
        for file in ["libl.so", "l.tfm"]:
            about = json.loads(self.tfmc("bench", file, "--json", *self.given).out)
            self.assertEqual((about["model"], about["runs"]), ("L", 3))
            self.assertGreater(about["flop"], 0)
            self.assertEqual(about["int8_flop"], 0)
        about = json.loads(self.tfmc("bench", "l.tfm", "--json", "--quantize=int8", *self.given).out)
        self.assertEqual(about["int8_flop"], about["flop"])
        self.assertGreater(about["machine_int8_flop_per_second"], 0)
        self.tfmc("bench", "libl.so", "--input=x=2x5x16", code=3, says="tfmc pack")

    def test_profile_table(self):
        for file in ["libl.so", "l.tfm"]:
            text = self.tfmc("profile", file, *self.given).out
            for word in ["L: ", "a run takes", "median of 3,", "operations", "modules", "steps", "layers.0.linear1", "layers.1.self_attn", "attention"]:
                self.assertIn(word, text)
            for word in ["linear int8", "attention int8"]:
                self.assertNotIn(word, text)
        text = self.tfmc("profile", "l.tfm", *self.given, "--quantize=int8,layers.0.linear1=f32").out
        for word in ["attention int8 layers.1.self_attn", "linear int8 layers.0.linear2", "linear layers.0.linear1"]:
            self.assertIn(word, text)
        self.tfmc("profile", "l.tfm", *self.given, "--engine=reference", code=2, says="--engine")
        self.tfmc("profile", "l.tfm", *self.given, "--format=dot", code=2, says="table, chrome or html")
        self.tfmc("graph", "l.tfm", "--format=html", code=2, says="dot, svg, png or pdf")

    WRITER = """model Writer(vocab = 30, d = 16) {
  embed = Embedding(vocab, d)
  encoder = Encoder(d, 2, 2, 32)
  head = Linear(d, vocab)
  forward(ids: i32[batch, time]) { return logits = embed(ids) -> encoder(is_causal = true) -> head }
  generate ids from logits { bos = 1  eos = 2 }
}
"""

    def test_profile_of_decoding(self):
        self.path("w.tfm").write_text(self.WRITER)
        self.compile(model="w.tfm", out="libw.so")
        given = ["--random-weights=1", "--decode", "--iterations=5", "--warmup=2"]
        steps = self.tfmc("dump", "w.tfm", "--stage=step-plan").out
        for file in ["libw.so", "w.tfm"]:
            for rows in (1, 4):
                text = self.tfmc("profile", file, *given, f"--input=ids={rows}x7").out
                for word in [f"a decoding step of {rows} row{'s' * (rows > 1)} takes ", "median of 5,", "layers.1.self_attn", "head"]:
                    self.assertIn(word, text)
                listed = text.split("\nsteps\n")[1].splitlines()[1:]
                self.assertGreater(len(listed), 5)
                self.assertGreater(sum(float(line.split()[0]) for line in listed), 0)
                for line in listed:
                    self.assertIn(line.split()[2], steps, "the steps are those of the step program")
        events = json.loads(self.tfmc("profile", "w.tfm", *given, "--format=chrome").out)["traceEvents"]
        self.assertIn("0", {e["name"] for e in events if e["cat"] == "module"})
        self.tfmc("profile", "w.tfm", *given, "--engine=reference", code=2, says="--engine")
        self.tfmc("profile", "w.tfm", *given, "--input=ids=0x7", code=2, says="no rows")
        self.tfmc("profile", "l.tfm", *self.given, "--decode", code=1, says="no generate block")
        self.path("whole.tfm").write_text(self.WRITER.replace("is_causal = true", "is_causal = false"))
        self.tfmc("profile", "whole.tfm", *given, "--input=ids=1x7", code=2, says=["--decode", "no incremental form", "generate --report"])
        self.assertIn("later ones are not masked", self.tfmc("generate", "whole.tfm", "--random-weights=1", "--report", "--max-new-tokens=1").out)

    def test_profile_trace(self):
        self.tfmc("profile", "libl.so", *self.given, "--format=chrome", "-o", "trace.json")
        trace = json.loads(self.path("trace.json").read_text())
        events = trace["traceEvents"]
        steps = [e for e in events if e["cat"] == "step"]
        self.assertTrue({"L", "layers", "0", "1"} <= {e["name"] for e in events if e["cat"] == "module"})
        self.assertEqual({e["ph"] for e in events}, {"X"})
        self.assertAlmostEqual(sum(e["dur"] for e in steps), events[0]["dur"], places=2)
        for before, after in zip(steps, steps[1:]):
            self.assertAlmostEqual(before["ts"] + before["dur"], after["ts"], places=2)

    def test_profile_trace_says_what_a_step_computes_and_where_it_stands(self):
        for file in "l.tfm", "libl.so":
            events = json.loads(self.tfmc("profile", file, *self.given, "--format=chrome").out)["traceEvents"]
            steps = [e["args"] for e in events if e["cat"] == "step"]
            bench = json.loads(self.tfmc("bench", file, *self.given, "--json").out)
            self.assertEqual(sum(step["flop"] for step in steps), bench["flop"])
            self.assertEqual(["lines" in step for step in steps], [file == "l.tfm"] * len(steps))
        path = self.path("l.tfm")
        texts = path.read_text().splitlines()
        steps = [e["args"] for e in json.loads(self.tfmc("profile", path, *self.given, "--format=chrome").out)["traceEvents"]
                 if e["cat"] == "step"]
        self.assertTrue(any(step["shapes"] and step["shapes"][0].startswith("f32[") for step in steps))
        own = {int(line.split(":")[1]) for step in steps for line in step["lines"] if line.startswith("l.tfm:")}
        self.assertTrue(own and max(own) <= len(texts))

    def test_profile_page(self):
        page = self.tfmc("profile", "libl.so", *self.given, "--format=html").out
        self.assertTrue(page.startswith("<!DOCTYPE html>") and page.endswith("</html>\n"))
        self.assertIn("layers.1", page)
        self.assertNotRegex(page, r"(src|href)=|https?:")
        self.path("odd.tfm").write_text('model O { l = Linear(4, 4) as "<b>&"\n forward(x: f32[b, 4]) { return y = l(x) } }')
        page = self.tfmc("profile", "odd.tfm", "--random-weights=1", "--input=x=2x4", "--format=html", "--iterations=2").out
        self.assertNotIn("<b>", page)
        data = json.loads(page.split('id="tfm-data">')[1].split("</script>")[0])
        self.assertEqual((data["format"], data["view"], data["runs"][0]["sizes"]), ("tfmc-explore", "steps", [2]))
        self.assertTrue(all("measured" in step for step in data["programs"][0]["steps"]))


class Reproducible(Case):
    def test_A09(self):
        made = []
        for number, (zone, language, mask) in enumerate([("UTC", "C", 0o22), ("Asia/Tokyo", "tr_TR.UTF-8", 0o77)]):
            folder = self.path(f"d{number}" + "x" * 20 * number)
            (folder / "tmp").mkdir(parents=True)
            for name in ["model.tfm", "w.safetensors"]:
                shutil.copy(self.path(name), folder / name)
            env = os.environ | {"TZ": zone, "LC_ALL": language, "HOME": str(folder), "USER": f"u{number}", "TMPDIR": str(folder / "tmp"),
                                "SOURCE_DATE_EPOCH": str(number), "TFM_CACHE_DIR": ""}
            model = folder / "model.tfm" if number else "model.tfm"
            run = lambda *args: subprocess.run([test_cli.TFMC, *map(str, args)], cwd=folder, env=env, check=True, capture_output=True,
                                               preexec_fn=lambda: os.umask(mask))
            run("compile", model, "--weights", folder / "w.safetensors", "-o", folder / "libm.so", "-march=x86-64-v3,x86-64-v4")
            run("compile", model, "-c", "-o", "m.o")
            run("pack", folder / "libm.so", "--weights", "w.safetensors", "-o", "packed.tfmw")
            made.append({name: (folder / name).read_bytes() for name in ["libm.so", "m.h", "m.tfmw", "m.o", "packed.tfmw"]})
        for name in made[0]:
            self.assertEqual(made[0][name], made[1][name], name)
        self.assertEqual(made[0]["m.tfmw"], made[0]["packed.tfmw"])
        for trace in [os.fsencode(self.folder.name), b"/work", b"/tmp", b"/home", b"/usr"]:
            self.assertNotIn(trace, made[0]["libm.so"])

    def test_kernels_from_the_cache(self):
        """The bytes are those without a cache, whatever is in it; only damaged and missing entries are made anew."""
        cache = self.path("cache")
        entries = lambda: {p: (p.read_bytes(), p.stat().st_ino) for p in cache.iterdir()}

        def made(folder, *options):
            self.tfmc("compile", "model.tfm", "-o", "libm.so", "-march=x86-64-v3,x86-64", *options,
                      env=os.environ | {"TFM_CACHE_DIR": str(folder)})
            return self.path("libm.so").read_bytes()
        alone = made("")
        self.assertEqual(made(cache), alone)
        first = entries()
        self.assertGreater(len(first), 4, "parts of each instruction set")
        self.assertEqual(made(cache), alone)
        self.assertEqual(entries(), first)
        damaged = min(first)
        damaged.write_bytes(first[damaged][0][:100] + b"x" + first[damaged][0][101:])
        self.assertEqual(made(cache), alone)
        self.assertEqual({p: data for p, (data, _) in entries().items()}, {p: data for p, (data, _) in first.items()})
        self.path("model.tfm").write_text(self.path("model.tfm").read_text().replace("model ", "model Other", 1))
        made(cache)
        self.assertEqual(set(entries()), set(first), "a model of another name has the same kernels")
        self.tfmc("run", "-march=x86-64", "model.tfm", "--weights", "w.safetensors", *RUN, env=os.environ | {"TFM_CACHE_DIR": str(cache)})
        self.assertLess(len(set(entries()) - set(first)), len(first) / 2, "most of what is run is what is compiled")


class Host(Case):
    """A library in a C program."""

    def cc(self, source, out, *args, **kwargs):
        self.shell("cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I.", HOST / source, "-o", out, *args, **kwargs)

    def test_exports_and_needs(self):
        self.compile_with_weights()
        names = [line.split()[-1] for line in self.shell("nm", "-D", "--defined-only", "libm.so").splitlines()]
        self.assertTrue(names and all(name.startswith("m_") for name in names), names)
        needed = re.findall(r"NEEDED.*\[(.*)\]", self.shell("readelf", "-d", "libm.so"))
        self.assertTrue(set(needed) <= {"libc.so.6", "libm.so.6", "libpthread.so.0"}, needed)

    def test_A03_two_models(self):
        self.compile_with_weights()
        self.path("o.tfm").write_text("model Other { up = Linear(3, 3)\n forward(x: f32[batch, 3]) { return y = up(x) } }")
        save(self.path("o.safetensors"), {"up.weight": ("F32", [3, 3], [1, 0, 0, 0, 2, 0, 0, 0, 3]), "up.bias": ("F32", [3], [0, 0, 1])})
        self.compile("--weights", "o.safetensors", model="o.tfm", out="libother.so")
        shutil.copy(self.path("libm.so"), self.path("copy.so"))
        self.cc("two_models.c", "two", "-ldl")
        out = self.shell("./two", "./libm.so", "m.tfmw", "./libother.so", "other.tfmw", "./copy.so")
        self.assertEqual(out, "8 15 7 14\n1 4 10\n")

    def test_A04_open_and_close(self):
        self.compile_with_weights()
        self.cc("repeat.c", "repeat", "-ldl")
        self.shell("./repeat", "./libm.so", "m.tfmw", "1000")

    def test_A01_a_cpu_that_lacks_features(self):
        self.compile_with_weights("-march=x86-64-v4")
        self.cc("open_only.c", "open", "./libm.so", "-Wl,-rpath,$ORIGIN")
        if not shutil.which("valgrind"):  # its CPU has no AVX-512
            print("not run: A01 on a CPU without AVX-512 (there is no valgrind)")
            self.skipTest("there is no valgrind")
        proc = subprocess.run(["valgrind", "-q", "./open", "m.tfmw"], cwd=self.folder.name, capture_output=True, text=True)
        self.assertEqual(proc.returncode, 3, proc.stdout + proc.stderr)
        self.assertRegex(proc.stdout, "(?i)avx512|avx-512")
        proc = subprocess.run(["valgrind", "-q", test_cli.TFMC, "run", "libm.so", *RUN], cwd=self.folder.name, capture_output=True, text=True)
        self.assertEqual(proc.returncode, 3, proc.stdout + proc.stderr)
        self.assertRegex(proc.stderr, "cannot run x86-64-v4 code: it lacks (?i:avx)")

    def test_A02_another_abi(self):
        """The number in the library is one that this runtime does not have."""
        self.compile_with_weights()
        raw = bytearray(self.bytes("libm.so"))
        library = ctypes.CDLL(str(self.path("libm.so")))
        library.m_program.restype = ctypes.c_void_p
        address = library.m_program()
        mappings = pathlib.Path("/proc/self/maps").read_text().splitlines()
        base = min(int(line.split("-")[0], 16) for line in mappings if line.endswith(str(self.path("libm.so"))))
        (segments, size, n) = struct.unpack_from("<Q", raw, 0x20)[0], *struct.unpack_from("<HH", raw, 0x36)
        for i in range(n):
            kind, _, offset, virtual, _, length = struct.unpack_from("<IIQQQQ", raw, segments + i * size)
            if kind == 1 and virtual <= address - base < virtual + length:
                at = address - base - virtual + offset
        header = (HOST.parents[2] / "runtime/include/tfm/abi/library.h").read_text()
        self.assertEqual(struct.unpack_from("<I", raw, at)[0], int(re.search(r"TFM_LIBRARY_ABI = (\d+)", header)[1]))
        struct.pack_into("<I", raw, at, 99)
        self.path("liba.so").write_bytes(raw)
        self.tfmc("run", "liba.so", *RUN, "--weights", "m.tfmw", code=3, says="liba.so")

    def test_A02_args_of_another_version(self):
        self.compile_with_weights()
        library = ctypes.CDLL(str(self.path("libm.so")))
        model, context = ctypes.c_void_p(), ctypes.c_void_p()
        self.assertEqual(library.m_open(str(self.path("m.tfmw")).encode(), ctypes.byref(model), None), 0)
        self.assertEqual(library.m_context_new(model, None, ctypes.byref(context), None), 0)
        error = ctypes.create_string_buffer(1024)
        args = (ctypes.c_int64 * 16)(24)
        self.assertEqual(library.m_forward(context, args, error), 2)
        self.assertIn(b"struct_size", error.raw)
        library.m_context_free(context)
        library.m_close(model)

    def test_size_of_a_large_model(self):
        layers = "model B(v = 30522, d = 768) { e = Embedding(v, d)\n p = Embedding(512, d)\n n = LayerNorm(d)\n"
        layers += " l = 12 * EncoderLayer(d, 12, 3072, gelu)\n forward(ids: i32[b, t]) {\n"
        layers += " return y = l(n(e(ids) + p(positions(ids, 1))), src_key_padding_mask = ids == 0) } }"
        self.path("b.tfm").write_text(layers)
        self.compile(model="b.tfm", out="libb.so")
        self.assertLess(len(self.bytes("libb.so")), 200_000)

    def test_size_of_a_library_that_trains(self):
        """Layers that are alike take little room: their tables are packed, and their kernels are the same."""
        def size(layers, v=45, d=64, heads=4, wide=128):
            text = f"model T(v = {v}, d = {d}, n = {layers}) {{ e = Embedding(v, d)\n net = Transformer(d, {heads}, n, n, {wide})\n"
            text += " h = Linear(d, v)\n forward(x: i32[b, s], y: i32[b, t]) { z = h(net(e(x), e(y), tgt_is_causal = true))"
            text += " return z }\n fn loss(x: i32[b, s], y: i32[b, t], labels: i32[b, t]) {"
            text += " return loss = cross_entropy(forward(x, y), labels) }\n train loss { lr = 1 } }"
            self.path("t.tfm").write_text(text)
            self.compile("--training", "-march=x86-64-v3", model="t.tfm", out="libt.so")
            return len(self.bytes("libt.so"))
        two = size(2)
        self.assertLess(two, 350_000)
        self.assertLess(size(6) - two, 4 * 15_000)
        self.assertLess(size(6, 32000, 512, 8, 2048), 400_000)  # Transformer-base


class Headers(Case):
    def check_header(self, name):
        self.path("h.c").write_text(f'#include "{name}"\n#include "{name}"\nint main(void) {{ return 0; }}\n')
        shutil.copy(self.path("h.c"), self.path("h.cc"))
        self.shell("cc", "-std=c99", *STRICT, "-fsyntax-only", "h.c")
        self.shell("c++", "-std=c++17", *STRICT, "-fsyntax-only", "h.cc")

    def test_plain(self):
        self.compile()
        self.check_header("m.h")
        self.path("h.c").write_text('#include "m.h"\nint main(void) { m_args a = {.batch = 2}; return (int)a.batch - 2; }\n')
        self.shell("cc", "-std=c99", *STRICT, "h.c", "-o", "h")
        self.shell("./h")

    def test_D23_hostile_names(self):
        names = ["int", "class", "this", "struct_size", "NULL", "errno", "linux", "unix", "y_capacity", "y_", "int64_t", "size_t",
                 "TFM_API", "INT64_MAX", "SIZE_MAX", "TFM_TYPES_H", "offsetof", "_Bool", "_x", "m_x", "__init", "and_eq", "bool",
                 "batch", "batch_", "tfm_error", "tfm_context", "class_args", "x", "X"]
        inputs = ", ".join(f"{name}: f32[batch, size{i}]" for i, name in enumerate(names[:-5]) if name not in ("batch", "batch_"))
        total = " + ".join(f"sum({name})" for name in names[:-5] if name not in ("batch", "batch_"))
        for model in ["class", "Tfm", "TfmError", "int", "X__", "A" * 200]:
            self.path("h.tfm").write_text(
                f"model {model} {{ forward({inputs}, batch_: f32[batch, int_], float: i32[batch, batch]) {{\n"
                f" return y = {total}, y_ = batch_ * 2, double = float, y_capacity_ = batch_, const = float + 1 }} }}")
            self.compile(model="h.tfm", out="libh.so")
            self.check_header("h.h")
            text = self.path("h.h").read_text()
            members = re.findall(r"^  [^/;]*?(\w+);", text[text.index("_args {"):text.index("_args;")], re.M)
            self.assertEqual(len(members), len(set(members)))

    def test_the_first_line_names_no_file(self):
        """-o says what the header is called."""
        self.compile(out="libanother.so")
        self.assertTrue(self.path("another.h").read_text().startswith("/* The model M as a C library, functions m_..."))

    def test_weights_of_the_same_model_in_another_precision(self):
        self.compile_with_weights("--quantize=bf16")
        self.path("m.tfmw").rename(self.path("other.tfmw"))
        self.compile()
        self.tfmc("run", "libm.so", *RUN, "--weights", "other.tfmw", code=1, says=["other.tfmw was packed for the model m", "`tfmc pack libm.so` makes the file of this one"])

    def test_a_program_with_the_header_of_another_text(self):
        """A program is refused by a library whose args have other members, or the same in another order."""
        self.path("host.c").write_text("""#include <stdio.h>
#include "m.h"
int main(void) {
  float x[3] = {1, 2, 3}, y[3] = {0};
  m_model *model = 0;
  m_context *context = 0;
  tfm_error error;
  if (m_open(0, &model, &error) || m_context_new(model, 0, &context, &error) ||
      m_forward(context, &(m_args){.batch = 3, .x = x, .b = x, .y = y}, &error)) {
    puts(error.message);
    return 3;
  }
  printf("%g\\n", y[2]);
  return 0;
}
""")
        text = "model M {{ forward({}) {{ return y = x - {} }} }}"
        self.path("m.tfm").write_text(text.format("x: f32[batch], b: f32[batch]", "2 * b"))
        self.compile(model="m.tfm")
        self.shell("cc", "-std=c99", *STRICT, "host.c", "-o", "host", "-L.", "-lm", "-Wl,-rpath,$ORIGIN", "./libm.so", "-lpthread")
        self.assertEqual(self.shell("./host"), "-3\n")
        for inputs, more, code in [("x: f32[batch], b: f32[batch], c: f32[batch]", "b - c", 3), ("b: f32[batch], x: f32[batch]", "2 * b", 3),
                                   ("x: f32[batch], b: f32[batch, 2]", "b[:, 0]", 3), ("x: f32[batch], b: i32[batch]", "f32(b)", 3),
                                   ("x: f32[batch], b: f32[batch]", "4 * b", 0)]:
            self.path("m.tfm").write_text(text.format(inputs, more))
            self.compile(model="m.tfm")
            self.assertIn("compile it again" if code else "-9", self.shell("./host", code=code), inputs)

    def test_the_two_headers_of_two_models(self):
        self.compile()
        self.path("o.tfm").write_text("model Other { forward(x: f32[batch]) { return y = x } }")
        self.compile(model="o.tfm", out="libother.so")
        self.path("h.c").write_text('#include "m.h"\n#include "other.h"\nint main(void) { return 0; }\n')
        self.shell("cc", "-std=c99", *STRICT, "-fsyntax-only", "h.c")
        self.shell("c++", "-x", "c++", "-std=c++17", *STRICT, "-fsyntax-only", "h.c")


class Generation(Case):
    """Libraries with three programs: the model, its source, its step."""
    GENERATE = ["--inputs", "src.safetensors", "--num-beams", "3", "-q"]

    def setUp(self):
        super().setUp()
        self.path("model.tfm").write_text("""model M(vocab = 20, d = 16) {
  words = Embedding(vocab, d)
  body = Transformer(d, 2, 1, 2, 32)
  forward(src: i32[batch, source], tgt: i32[batch, time]) {
    return logits = linear(body(words(src), words(tgt), tgt_is_causal = true), words.weight)
  }
  generate tgt from logits { bos = 1  eos = [2, 3]  max_length = 12 }
}
""")
        save(self.path("src.safetensors"), {"src": ("I32", [2, 3], [4, 5, 6, 7, 8, 9])})
        self.save_weights("w.safetensors", 1)
        self.wanted = self.generate("model.tfm", "--weights", "w.safetensors")

    def generate(self, model, *args, **kwargs):
        return self.tfmc("generate", model, *self.GENERATE, *args, **kwargs).out

    def test_all_ways_to_its_weights(self):
        self.compile_with_weights()
        self.assertEqual(self.generate("libm.so"), self.wanted)
        self.assertEqual(self.generate("libm.so", "--recompute"), self.wanted)
        packed = self.bytes("m.tfmw")
        self.compile("-march=x86-64,x86-64-v3")
        self.tfmc("pack", "libm.so", "--weights", "w.safetensors")
        self.assertEqual(self.bytes("m.tfmw"), packed)
        self.tfmc("pack", "model.tfm", "--weights", "w.safetensors", "-o", "again.tfmw")
        self.assertEqual(self.bytes("again.tfmw"), packed)
        self.path("m.tfmw").rename(self.path("there.tfmw"))
        self.assertEqual(self.generate("libm.so", "--weights", "there.tfmw"), self.wanted)
        self.assertEqual(self.generate("libm.so", "--weights", "w.safetensors"), self.wanted)
        self.compile_with_weights("--embed-weights", out="libwhole.so")
        self.assertEqual(self.generate("libwhole.so"), self.wanted)
        self.assertFalse(self.path("whole.tfmw").exists())
        self.compile_with_weights(out="m.tfmm")
        self.assertEqual(self.generate("m.tfmm"), self.wanted)
        self.assertEqual(self.generate("m.tfmm", "--recompute"), self.wanted)
        self.assertIn("a decoding step of 2 rows", self.tfmc("profile", "m.tfmm", "--decode", "--input=src=2x3", "--input=tgt=2x2", "--iterations=2").out)
        self.save_weights("v.safetensors", 2)
        self.assertNotEqual(self.generate("libm.so", "--weights", "v.safetensors"), self.wanted)

    def test_a_backtrace_from_a_callback(self):
        self.compile_with_weights()
        self.shell("cc", "-std=gnu11", *STRICT, "-I.", HOST / "unwind.c", "-o", "unwind", "./libm.so", "-Wl,-rpath,.")
        self.assertEqual(self.shell("./unwind", "m.tfmw"), "main is reached\n")
        self.assertIn("GNU_EH_FRAME", self.shell("readelf", "-lW", "libm.so"))

    def test_each_instruction_set_writes_the_same(self):
        for march in "x86-64", "x86-64-v3", "native":
            self.compile_with_weights(f"-march={march}")
            self.assertEqual(self.generate("libm.so"), self.wanted)

    def test_weights_are_shared(self):
        self.compile_with_weights()
        self.path("plain.tfm").write_text(re.sub("generate.*", "", self.path("model.tfm").read_text()))
        self.compile_with_weights(model="plain.tfm", out="libplain.so")
        self.assertLess(len(self.bytes("m.tfmw")), 1.3 * len(self.bytes("plain.tfmw")))
        self.tfmc("generate", "libm.so", "--weights", "plain.tfmw", *self.GENERATE, code=1, says=["layout"])
        self.tfmc("generate", "libplain.so", *self.GENERATE, code=1, says=["no generate block"])

    def test_info(self):
        self.compile_with_weights()
        self.assertIn("writes: tgt from logits\n  incremental; keeps 256 bytes for each token of a row, 256 for each position of a source",
                      self.tfmc("info", "libm.so").out)
        told = json.loads(self.tfmc("info", "libm.so", "--json").out)["generate"]
        self.assertEqual((told["input"], told["output"], told["incremental"]), ("tgt", "logits", True))
        self.path("model.tfm").write_text(self.path("model.tfm").read_text().replace("words(tgt),", "words(tgt) + mean(words(tgt), axis = 1, keepdim = true),"))
        self.compile_with_weights()
        self.assertIn("not incremental, the whole model runs for each token: mean over", self.tfmc("info", "libm.so").out)
        self.assertEqual(self.generate("libm.so"), self.generate("model.tfm", "--weights", "w.safetensors"))


RAGGED = """model M(vocab = 20, d = 16) {
  words = Embedding(vocab, d)
  body = Encoder(d, 2, 1, 32)
  forward(src: i32[batch, SOURCE], tgt: i32[batch, ragged time]) {
    require batch < 2, "each item is alone"
    return logits = linear(ROWS -> body(is_causal = true), words.weight), size = f32(src[:, 0])
  }
  GENERATE
}
"""


def ragged(source="2", rows="words(tgt)", generate="generate tgt from logits { bos = 1  eos = 2  max_length = 12 }"):
    return RAGGED.replace("SOURCE", source).replace("ROWS", rows).replace("GENERATE", generate)


class Ragged(Case):
    """A model whose rows have their own lengths."""
    IN = ["--inputs", "rows.safetensors", "-q"]

    def setUp(self):
        super().setUp()
        self.enterContext(tally.compiled_once())  # the model runs many times
        self.write(ragged())
        self.save_weights("w.safetensors", 1)
        save(self.path("rows.safetensors"), {"src": ("I32", [3, 2], [1, 2, 3, 4, 5, 6]), "time.lengths": ("I32", [3], [2, 4, 1]),
                                             "tgt": ("I32", [3, 4], [5, 6, 99, 99, 7, 8, 9, 10, 11, -1, -1, -1])})

    def write(self, source):
        self.path("model.tfm").write_text(source)

    def expect_the_same(self):
        """By every verb that takes a library or a model, with steps and without."""
        self.compile_with_weights()
        self.tfmc("pack", "libm.so", "--weights", "w.safetensors", "-o", "again.tfmw", "-q")
        self.assertEqual(self.bytes("again.tfmw"), self.bytes("m.tfmw"))
        for model, options in [("libm.so", []), ("libm.so", ["--weights", "w.safetensors"]), ("model.tfm", ["--weights", "w.safetensors"])]:
            self.tfmc("run", model, *self.IN, *options, "-o", f"{model}.safetensors")
            self.assertEqual(self.bytes(f"{model}.safetensors"), self.bytes("libm.so.safetensors"))
            self.tfmc("verify", model, *self.IN, *options, "--golden", "libm.so.safetensors")
            for more in [], ["--num-beams=3"], ["--recompute"]:
                rows = self.tfmc("generate", model, *self.IN, *options, *more).out
                self.assertEqual(rows, self.tfmc("generate", "model.tfm", "--weights", "w.safetensors", *self.IN, *more).out)
                self.assertEqual([json.loads(row)[:n] for row, n in zip(rows.splitlines(), (2, 4, 1))], [[5, 6], [7, 8, 9, 10], [11]])
        logits = load(self.path("libm.so.safetensors"))["logits"][2]
        self.assertEqual([any(logits[20 * i:20 * i + 20]) for i in range(12)], [True, True, False, False] + [True] * 5 + [False] * 3)

    def test_the_same_as_the_model(self):
        self.expect_the_same()
        self.write(ragged(rows="words(tgt) + mean(words(tgt), axis = 1, keepdim = true)"))
        self.expect_the_same()

    def test_info(self):
        own = "  rows have their own lengths; those of one call of forward have the same, time\n"
        self.compile_with_weights()
        told = self.tfmc("info", "libm.so").out
        self.assertIn(f"writes: tgt from logits\n{own}  incremental; keeps 128 bytes for each token of a row\n", told)
        self.assertEqual(json.loads(self.tfmc("info", "libm.so", "--json").out)["generate"]["ragged"], "time")
        self.assertIn('"time" is ragged in the model: m_generate and m_step take any at once', self.path("m.h").read_text())
        self.write(ragged().replace("ragged ", ""))
        self.compile_with_weights()
        self.assertNotIn("lengths", self.tfmc("info", "libm.so").out)
        self.assertNotIn("ragged", json.loads(self.tfmc("info", "libm.so", "--json").out)["generate"])
        self.assertNotIn("ragged", self.path("m.h").read_text())

    def test_why_nothing_is_kept(self):
        """The reason, the user's own line, the module: as --report has them."""
        whole = "  not incremental, the whole model runs for each token: "
        for source, reason in [
                (ragged(rows="words(tgt) + mean(words(tgt), axis = 1, keepdim = true)"),
                 "mean over all positions: it changes with every token that follows (model.tfm:6:41)"),
                (ragged().replace("Encoder(d, 2, 1, 32)", "MultiheadAttention(d, 2, add_bias_kv = true)").replace(
                    "words(tgt) -> body(is_causal = true)", "body(words(tgt), words(tgt), words(tgt), is_causal = true)"),
                 "extra keys are appended to the key axis, which is of size time + 1: positions can only be followed on an axis of "
                 "size time (model.tfm:6:28, body)"),
                (ragged().replace("is_causal = true", "src_mask = f32(causal_mask(tgt[..., none], tgt[..., none], axis = 1)) * -1e9"),
                 "softmax over positions whose later ones are not masked by -inf: the mask adds -1e+09, a finite number; with -inf, "
                 "or where(mask, -inf, scores), the model is incremental (model.tfm:6:42, body.layers.0.self_attn)")]:
            self.write(source)
            self.compile()
            self.assertIn(whole + reason + "\n", self.tfmc("info", "libm.so").out)
            self.assertIn(f"/* Nothing is cached between tokens, so there is no m_begin: {reason}. */", self.path("m.h").read_text())

    def test_sources(self):
        """A source that what is written depends on, with steps and without, and one that only another output does."""
        own = "  items have their own source, in C source_lengths; those of one call of forward have the same\n"
        read = "words(tgt) + sum(words(src), axis = 1, keepdim = true)"
        for rows in read, read + " + mean(words(tgt), axis = 1, keepdim = true)", "words(tgt)":
            self.write(ragged(source="ragged source", rows=rows))
            save(self.path("rows.safetensors"), {
                "src": ("I32", [3, 3], [1, 2, 3, 4, 99, 99, 5, 6, -1]), "source.lengths": ("I32", [3], [3, 1, 2]),
                "tgt": ("I32", [3, 4], [5, 6, 99, 99, 7, 8, 9, 10, 11, -1, -1, -1]), "time.lengths": ("I32", [3], [2, 4, 1])})
            self.expect_the_same()
            self.assertIn(own, self.tfmc("info", "libm.so").out)
            told = json.loads(self.tfmc("info", "libm.so", "--json").out)["generate"]
            self.assertEqual((told["ragged"], told["ragged_sources"]), ("time", [{"name": "source", "member": "source_lengths"}]))
            bad = ([3, 4, 1], "'source.lengths' has a length of 4, but source is 3"), ([3, 2, 1], "= 99, legal range is")
            for lengths, says in bad if read in rows else bad[:1]:
                save(self.path("bad.safetensors"), {"src": ("I32", [3, 3], [1, 2, 3, 4, 99, 99, 5, 6, -1]), "source.lengths": ("I32", [3], lengths)})
                self.tfmc("generate", "libm.so", "--inputs", "bad.safetensors", code=1, says=[says])
        self.write(ragged(source="ragged source", rows=read).replace("ragged time", "time"))
        self.compile_with_weights()
        self.assertIn(own, self.tfmc("info", "libm.so").out)
        self.assertNotIn("Rows have their own lengths", self.path("m.h").read_text())

    def test_other_ragged_sizes_are_refused(self):
        for source, place, name, text in [
                (ragged(source="ragged source", generate=""), "4:11", "source", "src"),
                (ragged(generate=""), "4:31", "time", "tgt"),
                (ragged(generate="").replace("ragged time", "time").replace("SOURCE", "").replace("[batch, 2]", "[batch, ragged n]"),
                 "4:11", "n", "src")]:
            self.write(source)
            for command in ["compile", "model.tfm", "-o", "none.so"], ["compile", "-c", "model.tfm", "-o", "none.o"]:
                self.tfmc(*command, code=1, says=[
                    f"model.tfm:{place}: error: a library cannot take items with '{name}' of their own: ragged sizes in libraries are for "
                    "models that write rows for them, with a generate block; 'tfmc run' takes this model as it is [E0213]\n",
                    f"^{'~' * (len(text) - 1)}\n"])
            self.assertFalse(self.path("none.so").exists() or self.path("none.h").exists())
            self.tfmc("dump", "--stage=plan", "model.tfm")


NONE = ["--cc=none"]


class HostWithoutLinker(Host):
    linking = NONE


class GenerationWithoutLinker(Generation):
    linking = NONE


class RaggedWithoutLinker(Ragged):
    linking = NONE


class WithoutLinker(Case):
    """Libraries that tfmc writes itself, beside those that the C compiler links."""

    def setUp(self):
        super().setUp()
        self.path("none.tfm").write_text("model None { forward(x: f32[n, 3]) { return y = softmax(exp(x) + f32(positions(x, 1))) } }")
        self.path("writer.tfm").write_text(test_cli.WRITER)
        self.path("rows.tfm").write_text(ragged())

    def symbols(self, library):
        """Names with the versions of functions outside, but no places."""
        lines = self.shell("nm", "-D", "--with-symbol-versions", library).splitlines()
        return sorted(" ".join(line.split()[-2:]) for line in lines)

    def needed(self, library):
        return sorted(re.findall(r"NEEDED.*\[(.*)\]|SONAME.*\[(.*)\]", self.shell("readelf", "-d", library)))

    def test_sizes(self):
        """Tables of programs and their texts are packed, and stand there once."""
        for model, most, options in (("bench/models/nmt.tfm", 276_000, []),
                                     ("examples/dates/dates.tfm", 411_000, ["--training"])):
            self.path("m.tfm").write_bytes((HOST.parents[2] / model).read_bytes())
            self.compile("-march=x86-64-v3", *NONE, *options, model="m.tfm", out="libm.so")
            self.assertLess(len(self.bytes("libm.so")), most, model)

    def expect_an_equal_library(self, *options, model="model.tfm"):
        for name, linking in (("linked", []), ("written", NONE)):
            self.path(name).mkdir(exist_ok=True)
            self.compile(*options, *linking, model=model, out=f"{name}/libm.so")
        linked, written = "linked/libm.so", "written/libm.so"
        self.assertEqual(self.symbols(written), self.symbols(linked))
        self.assertEqual(self.needed(written), self.needed(linked))
        self.assertLess(len(self.bytes(written)), 1.1 * len(self.bytes(linked)))
        for beside in {"m.h", "m.tfmw"} & set(os.listdir(self.path("linked"))):
            self.assertEqual(self.bytes(f"written/{beside}"), self.bytes(f"linked/{beside}"), beside)
        self.assertNotIn("not found", self.shell("ldd", "-r", written) + self.shell("ldd", written))
        self.assertEqual(self.shell("readelf", "--all", written, env=os.environ | {"LC_ALL": "C"}).count("Warning"), 0)
        return linked, written

    def test_every_kind_of_library(self):
        weights = ["--weights", "w.safetensors"]
        for options in ([], weights, [*weights, "--embed-weights"], [*weights, "-march=x86-64-v3,x86-64-v4"],
                        [*weights, "-march=x86-64", "--strip-source"], [*weights, "--quantize=int8"]):
            with self.subTest(options):
                linked, written = self.expect_an_equal_library(*options)
                if weights[0] in options and options[-1] != "--strip-source" and "x86-64-v4" not in options[-1]:
                    for library in linked, written:
                        self.tfmc("run", library, *RUN, "-o", f"{library}.out")
                    self.assertEqual(self.bytes(f"{linked}.out"), self.bytes(f"{written}.out"))
        for model in "none.tfm", "writer.tfm", "rows.tfm":
            self.expect_an_equal_library(model=model)

    def test_other_tools_take_it(self):
        _, written = self.expect_an_equal_library("--weights", "w.safetensors")
        self.tfmc("run", written, *RUN, "-o", "before")
        self.shell("strip", written)
        self.tfmc("run", written, *RUN, "-o", "after")
        self.assertEqual(self.bytes("before"), self.bytes("after"))
        self.assertTrue(re.search("<m_forward(@@Base)?>:", self.shell("objdump", "-d", written)))
        if shutil.which("gdb"):
            self.assertIn("m_forward", self.shell("gdb", "-q", "-batch", "-nx", "-ex", "info functions m_forward", written))
        if shutil.which("eu-elflint"):
            self.shell("eu-elflint", "--gnu-ld", written)

    def test_pages_are_never_writable_and_executable(self):
        _, written = self.expect_an_equal_library("--weights", "w.safetensors")
        library = ctypes.CDLL(str(self.path(written)))
        library.m_version.restype = ctypes.c_char_p
        self.assertRegex(library.m_version(), rb"^\d+\.\d+\.\d+$")
        maps = [line.split() for line in pathlib.Path("/proc/self/maps").read_text().splitlines()
                if line.endswith(str(self.path(written)))]
        self.assertTrue(maps)
        self.assertFalse([line for line in maps if "wx" in line[1]])
        size, start = os.path.getsize(self.path(written)), min(int(line[0].split("-")[0], 16) for line in maps)
        dynamic = int(re.search(r"\.dynamic +DYNAMIC +([0-9a-f]+)", self.shell("readelf", "-SW", written))[1], 16)
        holds = [line[1] for line in maps if int(line[0].split("-")[0], 16) <= start + dynamic < int(line[0].split("-")[1], 16)]
        self.assertEqual(holds, ["r--p"], f"what the dynamic linker filled is read-only: {maps}, {size} bytes")

    def test_the_same_input_gives_the_same_bytes(self):
        made = set()
        for folder in ("a", "longer-name"):
            self.path(folder).mkdir()
            self.compile_with_weights("--cc=none", "-march=x86-64-v3,x86-64-v4", out=f"{folder}/libm.so")
            made.add(self.bytes(f"{folder}/libm.so"))
        self.assertEqual(len(made), 1)

    def test_where_no_compiler_is(self):
        self.path("bin").mkdir()
        self.path("dir/cc").mkdir(parents=True)  # a folder is no program
        for path in ("", "bin", str(self.path("bin")), f"{self.path('none')}:{self.path('dir')}"):
            self.compile_with_weights(env={"PATH": path})
            self.tfmc("run", "libm.so", *RUN)
        self.compile("--cc=cc", code=3, says=["the C compiler 'cc' cannot be started", "--cc=none"], env={"PATH": ""})
        self.compile("-c", out="m.o", code=3, says="cannot be started", env={"PATH": ""})
        self.path("bin/cc").write_text("#!/bin/sh\necho no crt here >&2\nexit 1\n")
        self.path("bin/cc").chmod(0o755)
        self.compile(code=3, says=["no crt here", "--cc=none"], env={"PATH": f"{self.path('bin')}:{os.environ['PATH']}"})


if __name__ == "__main__":
    test_cli.TFMC = os.path.abspath(sys.argv.pop(1))
    unittest.main()
