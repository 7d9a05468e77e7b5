#!/usr/bin/env python3
"""Libraries for other machines as programs meet them: pages of several sizes, floating-point modes of the caller, a backtrace
from a callback.

usage: test_cross_host.py TFMC

Programs are compiled by TRIPLE-gcc and run under qemu. What is missing is said and not counted. The last line is
'N passed, N failed'.
"""
import atexit
import functools
import json
import os
import pathlib
import sys
import tempfile
import unittest.mock

import tally
import test_cli
from test_library_cli import Case, HOST, STRICT

HERE = pathlib.Path(__file__).resolve().parent
GOLDENS = HERE.parent / "goldens"
sys.path.insert(0, str(GOLDENS))
import cross  # noqa: E402
import cross_train  # noqa: E402

PAGES = {"aarch64-linux-gnu": (4096, 16384, 65536)}  # RISC-V has pages of 4 KB
MODES = ("nearest", "up", "down", "zero", "flush")
ROUNDINGS = "0123"  # places in host/training.c's `modes`
WRITES = """model M(vocab = 20, d = 16) {
  words = Embedding(vocab, d)
  body = Transformer(d, 2, 1, 2, 32)
  forward(src: i32[batch, source], tgt: i32[batch, time]) {
    return logits = linear(body(words(src), words(tgt), tgt_is_causal = true), words.weight)
  }
  generate tgt from logits { bos = 1  eos = [2, 3]  max_length = 12 }
}
"""


@functools.cache
def machine_of(triple):
    """With cross_run, which is compiled once for all tests."""
    made = tempfile.TemporaryDirectory()
    atexit.register(made.cleanup)
    return cross.Machine(triple, made.name, [])


class Machines(Case):
    def machines(self, *triples):
        """Those of the triples (all that tfmc has runtimes for) that programs run on here."""
        there = [machine_of(t) for t in cross.triples(cross.MODULES) if t in triples or not triples]
        for machine in there:
            if machine.lacks:
                print(f"not run: {self.id().rpartition('.')[2]}: {machine.triple}: {machine.lacks}")
        there = [machine for machine in there if not machine.lacks]
        if not there:
            self.skipTest("no other machine")
        return there

    def prepared(self, name, machine):
        """A case, its library for a machine and what the call takes."""
        spec = json.loads((GOLDENS / name / "case.json").read_text())
        tmp = tempfile.mkdtemp(dir=self.folder.name)
        case = cross.Case(str(GOLDENS / name), spec, tmp)
        at_home = machine.triple == cross.HOME
        library = case.compile("it", f"-march={cross.FUSED}" if at_home else f"--target={machine.triple}")
        about = json.loads(cross.call(cross.TFMC, "info", library, "--json").stdout)
        case.prepare(about)
        return lambda on=machine: case.run(on, library, about, 2)

    def home(self):
        return machine_of(cross.HOME)


class Pages(Machines):
    def paged(self):
        """Machines whose pages can be chosen: later releases of qemu have those of this machine, and say so."""
        found = []
        for machine in self.machines(*PAGES):
            if "cannot change host page size" in cross.call(*machine.start, "-p", 65536, machine.program).stderr:
                print(f"not run: pages of other sizes: {os.path.basename(machine.emulator)} has those of this machine (7.2 has others)")
            else:
                found.append(machine)
        return found or self.skipTest("no pages of other sizes")

    def test_pages_of_every_size(self):
        for machine in self.paged():
            want, run = self.prepared("encoder-stack", self.home())(), self.prepared("encoder-stack", machine)
            for bytes_of_page in PAGES[machine.triple]:
                paged = machine.on("max")
                paged.start = [*paged.start, "-p", str(bytes_of_page)]
                self.assertEqual(cross.differ(want, run(paged)), 0, f"{machine.triple}, pages of {bytes_of_page}")

    def test_large_pages_refuse_what_is_aligned_to_small_ones(self):
        """Else the test above would say nothing."""
        for machine in self.paged():
            self.path("one.c").write_text("int one = 1;\nint two(void) { return one; }\n")
            self.shell(f"{machine.triple}-gcc", "-shared", "-fPIC", "-nostdlib", "-Wl,-z,max-page-size=4096", "one.c", "-o", "libone.so")
            said = {size: cross.call(*machine.start, "-p", size, machine.program, self.path("libone.so"), "m", "-").stderr
                    for size in (4096, 65536)}
            self.assertIn("m_open", said[4096])  # it was loaded, and is no model
            self.assertIn("page-aligned", said[65536])


class Modes(Machines):
    def test_one_hash_in_every_mode_which_is_put_back(self):
        for name in ("encoder-stack", "gen-gpt2-beam"):
            want = self.prepared(name, self.home())()
            for machine in (self.home(), *self.machines()):
                run = self.prepared(name, machine)
                for mode in MODES:
                    os.environ["CROSS_MODE"] = mode
                    try:
                        self.assertEqual(cross.differ(want, run()), 0, f"{name} on {machine.triple}, {mode}")
                    finally:
                        del os.environ["CROSS_MODE"]

    def test_training_in_every_rounding_mode_which_is_put_back(self):
        folder = GOLDENS / "train/train-mha-causal"
        spec = json.loads((folder / "case.json").read_text())
        call, mode = cross_train.call_of(spec)
        libraries = [cross_train.made(folder, spec, pathlib.Path(tempfile.mkdtemp(dir=self.folder.name), "it"), machine,
                                      [f"-march={cross.FUSED}" if machine.triple == cross.HOME else f"--target={machine.triple}"])
                     for machine in (self.home(), *self.machines())]
        want = libraries[0].run(*call, 2, mode)
        for library in libraries:
            for rounding in ROUNDINGS:
                with unittest.mock.patch.dict(os.environ, ROUNDING=rounding):
                    got = library.run(*call, 2, mode)
                self.assertEqual({name: cross.differ(values.tobytes(), got[name].tobytes()) for name, values in want.items()},
                                 dict.fromkeys(got, 0), f"{library.compiler}, rounding {rounding}")


class Callbacks(Machines):
    def test_a_backtrace_from_a_callback_reaches_main(self):
        self.path("model.tfm").write_text(WRITES)
        self.save_weights("w.safetensors", 1)
        for machine in self.machines():
            for linking in ([], [f"--cc={machine.triple}-gcc"]):
                self.compile_with_weights(f"--target={machine.triple}", *linking)
                self.shell(f"{machine.triple}-gcc", "-std=gnu11", *STRICT, "-funwind-tables", "-I.", HOST / "unwind.c", "-o", "unwind",
                           "./libm.so", "-Wl,-rpath,.")
                self.assertEqual(self.shell(*machine.start, "./unwind", "m.tfmw"), "main is reached\n", f"{machine.triple} {linking}")


if __name__ == "__main__":
    cross.TFMC = cross_train.trained.TFMC = test_cli.TFMC = os.path.abspath(sys.argv.pop(1))
    sys.exit(tally.run())
