#!/usr/bin/env python3
"""docs/machines.md and docs/web.md, followed to the letter.

usage: test_machine_pages.py TFMC

The commands of both pages run in their order, in a folder that holds a small model; each file that a page names must be
there then, the tables must be those of the compiler, the messages those that are said. The page's script runs in Chromium and
in node 22, its command for wasmtime by the Python package of that name. What is missing (a runtime of another machine, qemu,
wasmtime, Chromium, node 22) is said and not counted. With TFM_LONG=1 tfmc is built for arm64, as machines.md says, and
tests of its pages of 4, 16 and 64 KB run. The last line is 'N passed, N failed'.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

import tally
import test_cli
from test_library_cli import Case

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent / "goldens"))
MACHINES, WEB = (ROOT / "docs" / name for name in ("machines.md", "web.md"))
try:
    import chromium
    import cross
    import numpy as np
    import test_wasi
    import test_web
    import wasm
    from safetensors.numpy import load_file, save_file
    MISSING = None
except ImportError as missing:
    MISSING = f"no {missing.name} (Python)"
# What web.md's script runs, as small as can be: the embedding has 384 numbers.
MODEL = """model MiniLM(vocab = 8000, d = 384) {
  word = Embedding(vocab, d)
  forward(input_ids: i32[batch, time], attention_mask: i32[batch, time]) {
    return embedding = sum(where((attention_mask != 0)[:, :, none], word(input_ids), 0), axis = 1)
  }
}
"""
WEIGHTS = ["--weights", "model.safetensors"]
PAGE = """<!doctype html><title>page</title><script type=module>
const said = [];
console.log = (...words) => said.push(words.map(word => ArrayBuffer.isView(word) ? [word.constructor.name, [...word]] : word));
window.addEventListener('error', e => fetch('/done', { method: 'POST', body: JSON.stringify({ failed: e.message }) }));
try { await import('./page.mjs'); } catch (e) { said.push(`${e}`); }
await fetch('/done', { method: 'POST', body: JSON.stringify(said) });
</script>"""


def commands(page):
    """Lines of commands, as the page has them."""
    return [line.strip() for line in page.read_text().splitlines() if re.match(r"    (tfmc|wasmtime|scripts)\b", line)]


def table(page, head):
    """Rows of the table whose first line begins so."""
    lines = page.read_text().splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith(head))
    end = next(i for i in range(begin, len(lines)) if not lines[i].startswith("|"))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in [lines[begin], *lines[begin + 2:end]]]


def quoted(text):
    return re.findall(r"`([^`]+)`", text)


@unittest.skipIf(MISSING, MISSING)
class Page(Case):
    def setUp(self):
        super().setUp()
        self.path("model.tfm").write_text(MODEL)
        numbers = np.random.default_rng(1).normal(0, 1, (8000, 384)).astype(np.float32)
        save_file({"word.weight": numbers}, self.path("model.safetensors"))
        save_file({"input_ids": np.array([[101, 7592, 2088, 102]], np.int32), "attention_mask": np.ones((1, 4), np.int32)},
                  self.path("in.safetensors"))
        self.held = [cross.HOME, *cross.triples()]

    def needs(self, *triples):
        missing = [triple for triple in triples if triple not in self.held]
        if missing:
            self.skipTest(f"tfmc holds no runtime for {missing[0]}")

    def follow(self, command):
        return self.tfmc(*command.split()[1:])

    def run_here(self, library, *options):
        self.tfmc("run", library, *options, "--inputs", "in.safetensors", "--output", "here.safetensors")
        return load_file(self.path("here.safetensors"))["embedding"]


class Machines(Page):
    def test_commands(self):
        several = next(c for c in commands(MACHINES) if "," in c)
        self.needs(*re.search("--target=(\\S+)", several)[1].split(","))
        for command in (c for c in commands(MACHINES) if c.startswith("tfmc compile") and c != several):
            self.follow(command)
            self.tfmc("info", "libmodel.so")
            files = self.bytes("model.h"), self.bytes("model.tfmw")
        self.follow(several)
        self.assertEqual(files, (self.bytes("out/model.h"), self.bytes("out/model.tfmw")), "the same for all machines")
        for name in re.findall(r"`(out/[^`]*\.so)`", MACHINES.read_text()):
            self.assertTrue(self.path(name).exists(), name)
        want = self.run_here("out/x86_64-linux-gnu/libmodel.so", "--weights", "out/model.tfmw")
        self.assertEqual(want.shape, (1, 384))
        self.several_elsewhere(want)

    def several_elsewhere(self, want):
        """The library for AArch64 under qemu, and the module by the loader's place of the weights."""
        there = cross.Machine("aarch64-linux-gnu", self.folder.name, [])
        if there.lacks:
            print(f"not run: the library for AArch64: {there.lacks}")
            return
        case = cross.Case(self.folder.name, {}, self.folder.name)
        case.inputs = load_file(self.path("in.safetensors"))
        about = json.loads(self.tfmc("info", "out/x86_64-linux-gnu/libmodel.so", "--json").out)
        case.prepare(about)
        out = str(self.path("out.bytes"))
        library = self.path("out/aarch64-linux-gnu/libmodel.so")
        ran = there.run(library, about["prefix"], self.path("out/model.tfmw"), *case.arguments(out, 2))
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        self.assertEqual(pathlib.Path(out).read_bytes(), want.tobytes())
        self.assertIn('"../model.tfmw"', self.path("out/wasm32/model.mjs").read_text())

    @unittest.skipUnless(os.environ.get("TFM_LONG"), "TFM_LONG=1 runs it")
    def test_minilm_from_one_run_of_the_compiler(self):
        """The published weights: one header, one file of weights, and of all machines the bits of x86-64-v3; m.wasm has x86-64's."""
        self.needs("wasm32", "aarch64-linux-gnu")
        if test_web.lacking()["weights"]:
            self.skipTest("no build/weights (scripts/fetch-weights.sh)")
        model, weights = ROOT / "examples/minilm/minilm.tfm", ["--weights", test_web.MINILM / "model.safetensors"]
        self.tfmc("compile", model, "--target=x86_64-linux-gnu,aarch64-linux-gnu,wasm32", *weights, "-q", "-o", "out")
        self.tfmc("compile", model, "-march=x86-64", *weights, "-q", "-o", "plain.so")
        out, tmp = self.path("out"), self.folder.name
        self.assertEqual({p.name for p in out.iterdir() if p.is_file()}, {"minilm.h", "minilm.tfmw"})
        self.assertEqual(self.bytes("plain.tfmw"), (out / "minilm.tfmw").read_bytes())
        machines = {triple: cross.Machine(triple, tmp, []) for triple in (cross.HOME, "aarch64-linux-gnu")}
        for triple, machine in machines.items():
            self.assertFalse(machine.lacks, triple)
        case, random = cross.Case(tmp, {}, tmp), np.random.default_rng(1)
        lengths = np.arange(1, 41, 5)[:, None]
        case.inputs = {"input_ids": random.integers(0, 30522, (8, 40), np.int32), "attention_mask": (np.arange(40) < lengths).astype(np.int32)}
        about = json.loads(self.tfmc("info", "plain.so", "--json").out)
        case.prepare(about)

        def bits(machine, file, *rest):
            ran = machine.run(str(file), about["prefix"], str(out / "minilm.tfmw"), *case.arguments(str(self.path("bits")), *rest))
            self.assertEqual((ran.returncode, ran.stderr), (0, ""), file)
            return self.bytes("bits")
        engine = wasm.Engine(False)
        plain, fused = bits(machines[cross.HOME], self.path("plain.so"), 1), bits(machines[cross.HOME], out / cross.HOME / "libminilm.so", 2)
        self.assertNotEqual(plain, fused)
        self.assertEqual(bits(machines["aarch64-linux-gnu"], out / "aarch64-linux-gnu/libminilm.so", 2), fused)
        self.assertEqual(bits(engine, out / "wasm32/minilm.wasm", 1), plain)
        self.assertEqual(bits(engine, out / "wasm32/minilm-relaxed.wasm", 1), fused)

    def test_what_there_is(self):
        rows = {row[0]: row[1:] for row in table(MACHINES, "| | x86-64")}
        triples = [quoted(cell)[0] for cell in rows["`--target`"]]
        self.assertEqual(triples, [cross.HOME, *cross.CHOICES])
        for triple, cell in list(zip(triples, rows["instruction sets (`-march`)"]))[1:]:
            self.assertEqual(set(quoted(cell)), set(cross.CHOICES[triple][0].split(",")), triple)
            for march in quoted(cell):
                self.tfmc("dump", "model.tfm", "--stage=asm", f"-march={march}")

    def test_messages(self):
        said = re.sub(r"\s+", " ", MACHINES.read_text())
        self.assertIn("`-march=armv8-a,x86-64-v3` is refused", said)
        self.compile("-march=armv8-a,x86-64-v3", code=2, says="a library holds code for one kind of machine: armv8-a is aarch64, "
                     "x86-64-v3 is x86_64")
        lacks = {feature for _, _, refused in cross.CHOICES.values() for _, _, feature in refused}
        for feature in re.findall("this CPU lacks (\\w+)", said):
            self.assertIn(feature, lacks)  # cross.py --choices sees that it is said

    def test_which_runtimes(self):
        line = next(s.strip() for s in MACHINES.read_text().splitlines() if s.startswith("    libraries for: "))
        self.needs(*line.removeprefix("libraries for: ").split(", "))
        self.assertIn(line, self.tfmc("info").out.splitlines())

    @unittest.skipUnless(os.environ.get("TFM_LONG"), "TFM_LONG=1 builds tfmc for arm64")
    def test_a_tfmc_for_arm64(self):
        command = next(c for c in commands(MACHINES) if c.startswith("scripts/cross-build.sh"))
        made = subprocess.run(command.split(), cwd=ROOT, capture_output=True, text=True)
        if made.returncode == 77:
            self.skipTest(made.stdout.strip())
        self.assertEqual(made.returncode, 0, made.stderr)
        tfmc, emulator = ROOT / "build/arm64/tfmc", shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
        self.assertTrue(emulator)
        want = self.run_here("model.tfm", "-march=x86-64-v3", *WEIGHTS)
        for page in (4096, 16384, 65536):
            start = emulator, "-p", page, "-L", ROOT / "build/sysroot/arm64", tfmc
            self.shell(*start, "compile", "model.tfm", *WEIGHTS, "-q", "-o", "there.tfmm")
            for model in (["model.tfm", *WEIGHTS], ["there.tfmm"]):
                self.shell(*start, "run", *model, "--inputs", "in.safetensors", "-o", "got")
                self.assertEqual(load_file(self.path("got"))["embedding"].tobytes(), want.tobytes(), f"{model[0]}, pages of {page}")


class Web(Page):
    def setUp(self):
        super().setUp()
        self.needs(wasm.TRIPLE)
        self.lacks = test_web.lacking()

    def site(self):
        self.path("site").mkdir()
        self.follow(next(c for c in commands(WEB) if c.endswith("-o site/m")))
        return self.path("site")

    def script(self):
        return re.search(r"```js\n(.*?)```", WEB.read_text(), re.DOTALL)[1]

    def want(self):
        return self.run_here("model.tfm", "-march=x86-64", *WEIGHTS)

    def test_six_files(self):
        site, rows = self.site(), table(WEB, "| file | what it is")
        self.assertEqual({path.name for path in site.iterdir()}, {name for row in rows[1:] for name in quoted(row[0])})
        self.follow(next(c for c in commands(WEB) if c.endswith("-o m") and "--emit" in c))
        self.assertEqual({p.name for p in pathlib.Path(self.folder.name).glob("m*.wasm")}, {"m.wasm", "m-relaxed.wasm"})

    def test_options_and_members_are_typed(self):
        types = (self.site() / "m.d.ts").read_text()
        for name, *_ in table(WEB, "| option |")[1:]:
            self.assertRegex(types, rf"\b{quoted(name)[0]}\?:")
        for member in set(re.findall(r"model\.(\w+)", WEB.read_text())) - {"tfm", "safetensors", "tfmw", "generate"}:
            self.assertRegex(types, rf"\b{member}\b")

    def test_the_script_in_chromium(self):
        if self.lacks["chromium"]:
            self.skipTest(self.lacks["chromium"])
        site = self.site()
        (site / "page.mjs").write_text(self.script())
        (site / "page.html").write_text(PAGE)
        *progress, (dims, (kind, numbers)) = chromium.said_by(site, "page.html")
        self.assertEqual((progress[-1], dims, kind), ([1], [1, 384], "Float32Array"))
        self.assertEqual(np.array(numbers, np.float32).tobytes(), self.want().tobytes())

    def test_the_script_in_node(self):
        if self.lacks["node"]:
            self.skipTest(self.lacks["node"])
        site = self.site()
        (site / "page.mjs").write_text(self.script())
        said = self.shell("node", site / "page.mjs").splitlines()
        self.assertTrue(any(line.startswith("[ 1, 384 ] Float32Array(384)") for line in said), said)

    def test_the_command_for_wasmtime(self):
        if self.lacks["wasmtime"]:
            self.skipTest(self.lacks["wasmtime"])
        self.follow(next(c for c in commands(WEB) if c.endswith("-o m") and "--emit" in c))
        ran = next(c for c in commands(WEB) if c.startswith("wasmtime run --dir=. m.wasm"))
        command = test_wasi.Command(self.path("m.wasm"), pathlib.Path(self.folder.name))
        self.assertEqual(command(*ran.split()[4:]), (0, b"", ""))
        self.assertEqual(load_file(self.path("out.safetensors"))["embedding"].tobytes(), self.want().tobytes())


if __name__ == "__main__":
    TFMC = test_cli.TFMC = os.path.abspath(sys.argv.pop(1))
    if not MISSING:
        cross.TFMC = TFMC
    sys.exit(tally.run())
