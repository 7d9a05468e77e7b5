#!/usr/bin/env python3
"""Models as commands of WASI (tfmc compile --target=wasm32 --emit=wasi), in wasmtime: what they compute and generate against
`tfmc run` and `tfmc generate` for x86-64, to the bit; files that are damaged; what they and the compiler refuse.

usage: test_wasi.py TFMC

Without wasmtime (a Python package), numpy and safetensors, or a runtime for wasm32, it says so and nothing is counted. The
last line is 'N passed, N failed'.
"""
import json
import os
import pathlib
import random
import sys
import unittest

import tally
import test_cli
from test_library_cli import Case

HERE = pathlib.Path(__file__).resolve().parent
GOLDENS = HERE.parent / "goldens"
try:
    import cross
    import wasmtime
    from safetensors.numpy import save_file
    MISSING = None
except ImportError as missing:
    cross, MISSING = None, f"no {missing.name} (Python)"

MOST_IMPORTS, DAMAGES = 8, 120


class Command:
    """A module, and calls of it with a folder that is '.' to it."""
    engine, compiled = None, {}

    def __init__(self, path, folder):
        Command.engine = Command.engine or wasmtime.Engine()
        data = path.read_bytes()
        if data not in Command.compiled:  # which takes longer than most calls
            Command.compiled[data] = wasmtime.Module(Command.engine, data)
        self.module, self.folder = Command.compiled[data], folder

    def __call__(self, *words, given=None):
        """The exit code, and what went to standard output and standard error."""
        store, linker, wasi = wasmtime.Store(Command.engine), wasmtime.Linker(Command.engine), wasmtime.WasiConfig()
        linker.define_wasi()
        wasi.argv = ["m.wasm", *map(str, words)]
        wasi.preopen_dir(str(self.folder), ".")
        out, err = self.folder / "stdout", self.folder / "stderr"
        wasi.stdout_file, wasi.stderr_file = str(out), str(err)
        if given:
            wasi.stdin_file = str(given)
        store.set_wasi(wasi)
        code = None
        try:
            linker.instantiate(store, self.module).exports(store)["_start"](store)
        except wasmtime.ExitTrap as end:
            code = end.code
        return code, out.read_bytes(), err.read_text()


@unittest.skipIf(MISSING, MISSING)
class Wasi(Case):
    def setUp(self):
        super().setUp()
        if cross.MODULES not in cross.triples():
            self.skipTest("tfmc holds no runtime for wasm32")

    def golden(self, name, of=GOLDENS):
        """A golden case in the folder: its spec and what the compiler needs for it."""
        folder = of / name
        spec = json.loads((folder / "case.json").read_text())
        case = cross.Case(str(folder), spec, self.folder.name)
        return folder, spec, case

    def command(self, case, folder, *options):
        self.tfmc("compile", folder / "model.tfm", *case.options, "--target=wasm32", "--emit=wasi", "-q", "-o", "m", *options)
        return Command(self.path("m.wasm"), pathlib.Path(self.folder.name))

    def same(self, want, got):
        want, got = cross.load_file(self.path(want)), cross.load_file(self.path(got))
        self.assertLessEqual(set(want), set(got))
        for name, numbers in want.items():
            self.assertEqual((got[name].shape, got[name].dtype), (numbers.shape, numbers.dtype), name)
            self.assertEqual(cross.differ(numbers.tobytes(), got[name].tobytes()), 0, name)

    def test_runs_have_the_bits_of_x86_64(self):
        for name in ("encoder-stack", "mha-masked-rows", "q8-encoder", "prim-pointwise"):
            folder, _, case = self.golden(name)
            command = self.command(case, folder)
            self.assertEqual({i.module for i in command.module.imports}, {"wasi_snapshot_preview1"})
            self.assertLessEqual(len(command.module.imports), MOST_IMPORTS)
            self.assertEqual([e.name for e in command.module.exports], ["memory", "_start"])
            self.tfmc("run", folder / "model.tfm", *case.options, "-march=x86-64", "--inputs", folder / "inputs.safetensors",
                      "-o", "want.safetensors")
            self.path("in.safetensors").write_bytes((folder / "inputs.safetensors").read_bytes())
            self.assertEqual(command("in.safetensors", "got.safetensors"), (0, b"", ""), name)
            self.same("want.safetensors", "got.safetensors")

    def test_standard_input_and_output_and_embedded_weights(self):
        folder, _, case = self.golden("encoder-stack")
        self.tfmc("run", folder / "model.tfm", *case.options, "-march=x86-64", "--inputs", folder / "inputs.safetensors",
                  "-o", "want.safetensors")
        command = self.command(case, folder, "--embed-weights")
        self.assertFalse(self.path("m.tfmw").exists())
        code, out, err = command("-", "-", given=folder / "inputs.safetensors")
        self.assertEqual((code, err), (0, ""))
        self.path("got.safetensors").write_bytes(out)
        self.same("want.safetensors", "got.safetensors")

    def test_generation(self):
        """Beams with scores; the options of the case, and a list of tokens."""
        for name in ("gen-gpt2-beam", "gen-gpt2-greedy"):
            if not (GOLDENS / name).exists():
                continue
            folder, spec, case = self.golden(name)
            command = self.command(case, folder)
            self.path("g.json").write_text(json.dumps(spec["generate"]))
            self.tfmc("generate", folder / "model.tfm", *case.options, "-march=x86-64", "--inputs", folder / "inputs.safetensors",
                      "--generation-config", "g.json", "-o", "want.safetensors")
            self.path("in.safetensors").write_bytes((folder / "inputs.safetensors").read_bytes())
            options = [f"{k}={cross.text_of(v)}" for k, v in spec["generate"].items()]
            self.assertEqual(command("--generate", "in.safetensors", "got.safetensors", *options), (0, b"", ""))
            self.same("want.safetensors", "got.safetensors")
            for options, says in ((["temperature=0.7x"], "a number"), (["num_beams=a"], "a whole number"),
                                  (["nothing=1"], "no option of generation"), (["do_sample=1"], "true or false"),
                                  (["max_new_tokens=-1"], "max_new_tokens must be 1 or more"), (["num_beams=2,3"], "a whole number"),
                                  (["max_length=-1"], "max_length must be 1 or more"), (["seed=-1"], "a seed is 0 or more"),
                                  (["temperature=."], "a number"), (["temperature=1e4294967296"], "a number")):
                code, _, err = command("--generate", "in.safetensors", "got.safetensors", *options)
                self.assertEqual(code, 2, err)
                self.assertIn(says, err)

    def test_a_limit_replaces_that_of_the_block(self):
        folder, _, case = self.golden("gen-gpt2-greedy")
        self.path("model.tfm").write_text((folder / "model.tfm").read_text().replace("max_length = 40", "max_new_tokens = 9"))
        command = self.command(case, self.path("."))
        self.assertEqual(self.generate(command, {"input_ids": cross.np.array([[3, 4, 5]], cross.np.int32)},
                                       "max_length=7")["sequences"].shape, (1, 7))

    def generate(self, command, inputs, *options):
        self.save(inputs)
        self.assertEqual(command("--generate", "in.safetensors", "got.safetensors", *options), (0, b"", ""))
        return cross.load_file(self.path("got.safetensors"))

    def save(self, inputs):
        save_file(inputs, self.path("in.safetensors"))

    def test_sources_of_their_own_lengths(self):
        folder, spec, case = self.golden("gen-strided-source", GOLDENS.parent / "cases")
        command = self.command(case, folder)
        self.path("g.json").write_text(json.dumps(spec["generate"]))
        self.tfmc("generate", folder / "model.tfm", *case.options, "-march=x86-64", "--inputs", folder / "inputs.safetensors",
                  "--generation-config", "g.json", "-o", "want.safetensors")
        options = [f"{k}={cross.text_of(v)}" for k, v in spec["generate"].items() if k != "decoder_start_token_id"]
        inputs = {name: cross.np.ascontiguousarray(values) for name, values in case.inputs.items()}
        self.generate(command, inputs, *options)
        self.same("want.safetensors", "got.safetensors")
        lengths = inputs["source.lengths"]
        for wrong, says in ((lengths[:2], "is another tensor than i32[3]"), (lengths + 100, "source.lengths' has a length of"),
                            (lengths.astype(cross.np.float32), "is another tensor than i32[3]")):
            self.save({**inputs, "source.lengths": wrong})
            code, _, err = command("--generate", "in.safetensors", "got.safetensors")
            self.assertEqual(code, 1, err)
            self.assertIn(says, err)

    def test_prompts_of_their_own_lengths_and_biases(self):
        folder, _, case = self.golden("gen-gpt2-greedy")
        command, rng = self.command(case, folder), cross.np.random.default_rng(3)
        ids, lengths = rng.integers(1, 60, (3, 5), dtype=cross.np.int32), [5, 3, 4]
        options = ["max_new_tokens=6", "eos_token_id=0"]
        got = self.generate(command, {"input_ids": ids, "time.lengths": cross.np.array(lengths, cross.np.int32)}, *options)
        for i, n in enumerate(lengths):
            alone = self.generate(command, {"input_ids": ids[i:i + 1, :n].copy()}, *options)
            n_alone = alone["lengths"][0]
            self.assertEqual(got["lengths"][i], n_alone)
            self.assertEqual(got["sequences"][i, :n_alone].tolist(), alone["sequences"][0, :n_alone].tolist())
        prompts = {"input_ids": ids}
        usual = self.generate(command, prompts, *options)["sequences"]
        first = sorted(set(usual[:, 5].tolist()))
        without = self.generate(command, prompts, *options, "suppress_tokens=" + ",".join(map(str, first)))["sequences"]
        biased = self.generate(command, prompts, *options, "logit_bias=" + ",".join(f"{t}:-1000" for t in first))["sequences"]
        self.assertEqual(biased.tolist(), without.tolist())
        self.assertNotEqual(biased.tolist(), usual.tolist())
        for option, says in (("logit_bias=3", "a token, a colon and a number"), ("logit_bias=3:x", "a number"),
                             ("logit_bias=3:1,", "a token, a colon and a number"), ("logit_bias=99:1", "logit_bias"),
                             ("logit_bias=3:2000", "logit_bias"), ("decoder_start_token_id=1", "is their prompt")):
            code, _, err = command("--generate", "in.safetensors", "got.safetensors", option)
            self.assertIn(code, (1, 2), err)
            self.assertIn(says, err)
        self.save({"input_ids": ids, "batch.lengths": cross.np.array(lengths, cross.np.int32)})
        self.assertIn('"batch.lengths" is no input', command("--generate", "in.safetensors", "got.safetensors")[2])

    def test_refusals_of_a_command(self):
        folder, _, case = self.golden("encoder-stack")
        command = self.command(case, folder)
        good = (folder / "inputs.safetensors").read_bytes()
        self.path("in.safetensors").write_bytes(good)
        weights = self.path("m.tfmw").read_bytes()
        for words, code, says in ((["in.safetensors"], 2, "usage: "), (["no", "out"], 3, "no cannot be opened"),
                                  (["in.safetensors", "out", "batch=3x"], 2, "a whole number"),
                                  (["in.safetensors", "out", "rows=3"], 2, "no size of the model"),
                                  (["--generate", "in.safetensors", "out"], 2, "no generate block"),
                                  (["in.safetensors", "out", "--weights=none"], 3, "none cannot be opened"),
                                  (["in.safetensors", "no/out"], 3, "no/out cannot be opened")):
            got, _, err = command(*words)
            self.assertEqual(got, code, f"{words}: {err}")
            self.assertIn(says, err)
        self.path("m.tfmw").write_bytes(weights[:len(weights) // 2])
        got, _, err = command("in.safetensors", "out")
        self.assertIn(got, (1, 3), err)
        self.path("m.tfmw").write_bytes(weights)
        rng, ended = random.Random(5), set()
        for i in range(DAMAGES):
            data = bytearray(good[:rng.randrange(len(good))] if i % 3 == 0 else good)
            for _ in range(rng.randrange(1, 4)):
                at = rng.randrange(min(len(data), 400) or 1)
                if data:
                    data[at] = rng.randrange(256)
            self.path("in.safetensors").write_bytes(data)
            got, _, err = command("in.safetensors", "out")
            self.assertIn(got, (0, 1, 2, 4), f"{i}: {err}")
            self.assertEqual(got != 0, err != "")
            ended.add(got)
        self.assertIn(1, ended)

    def test_what_the_compiler_refuses(self):
        for options, says in ((["--emit=wasi"], "a command of WASI is a module: --target=wasm32"),
                              (["--emit=wasi", "--target=aarch64-linux-gnu"], "a command of WASI is a module"),
                              (["--emit=wasi", "--target=wasm32", "--cc=cc"], "written by tfmc itself")):
            self.compile(*options, out="x", code=2, says=says)
        self.assertFalse(self.path("x.wasm").exists())


if __name__ == "__main__":
    test_cli.TFMC = os.path.abspath(sys.argv.pop(1))
    if cross:
        cross.TFMC = test_cli.TFMC
    sys.exit(tally.run())
