#!/usr/bin/env python3
"""Training in a compiled library, by a C program (host/training.c): every golden case of training gives the bytes that `tfmc
train` gives for it, and those are compared with PyTorch's elsewhere (goldens/check_train.py). What a library that trains depends
on, what it refuses, and that a model without --training stays as it is.

usage: test_train_library.py TFMC SOURCE          The last line is 'N passed, N failed'.
"""
import array
import ctypes
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import tally
import training
from tensor_files import read_tensors, write_tensors
from test_train_data import order
from train_models import TINY

HERE = pathlib.Path(__file__).resolve().parent
CASES = HERE.parent / "goldens" / "train"
MODEL = TINY.replace("p = 0.0", "p = 0.1").replace("SETTINGS", "lr = 0.1")
# Goldens whose models compute packed weights of others: kernels do it in a library, the interpreter does it for `tfmc pack`.
COMPUTED = {"train-decay", "train-delta", "train-linear", "train-pointwise", "train-products", "train-reductions", "train-rows", "train-shifts", "train-views"}


def members_of(header, prefix):
    """The sizes of the args of the objective; name and dims of each input."""
    body = re.search(r"typedef struct %s_objective_args \{(.*?)\}" % prefix, header, re.S)[1]
    sizes = re.findall(r"^  int64_t (\w+);$", body, re.M)
    inputs = re.findall(r"^  const (\w+) \*(\w+); /\* \w+(?:\[(.*?)\])?", body, re.M)
    return sizes, [(kind, name, [d.strip() for d in dims.split(",")] if dims else []) for kind, name, dims in inputs]


def number(x):
    return "INFINITY" if x == float("inf") else "-INFINITY" if x == float("-inf") else float(x).hex() if isinstance(x, float) else str(x)


def batches_text(header, prefix, batches):
    """batches.c: an args struct for each batch; batches: [{name: (shape, numbers)}]"""
    sizes, inputs = members_of(header, prefix)
    rows, most = [], dict.fromkeys(sizes, 0)
    for batch in batches:
        values = dict.fromkeys(sizes, 0)
        fields = []
        for kind, name, dims in inputs:
            shape, numbers = batch[name]
            values.update((d, n) for d, n in zip(dims, shape) if d in values)
            items = ", ".join(map(number, numbers)) or "0"
            fields.append(f".{name} = (const {kind}[]){{{items}}}")
        most = {s: max(most[s], values[s]) for s in sizes}
        rows.append("{" + ", ".join([f".struct_size = sizeof({prefix}_objective_args)"] + [f".{s} = {values[s]}" for s in sizes] + fields) + "}")
    reserve = ", ".join(f".{s} = {n}" for s, n in most.items()) or ".struct_size = 0"
    return (f"#include <math.h>\nstatic const {prefix}_objective_args batches[] = {{\n  " + ",\n  ".join(rows) + "};\n"
            f"int64_t n_batches = {len(rows)};\nstatic const {prefix}_objective_args largest = {{{reserve}}};\n")


class Library:
    """A library that trains, and the program that calls it with these batches, compiled by `compiler` and begun by `start`."""
    compiler, start = "cc", ()

    def __init__(self, work, model, options=(), batches=None, flags=()):
        self.work, self.so, self.program = work, work / "libx.so", work / "training"
        run([TFMC, "compile", "--training", "--quiet", model, "-o", self.so, *options])
        self.header = (work / "x.h").read_text()
        self.prefix = re.search(r"as a C library, functions (\w+)_", self.header)[1]
        if batches is not None:
            self.build(batches, flags)

    def build(self, batches, flags=()):
        (self.work / "batches.c").write_text(batches_text(self.header, self.prefix, batches))
        run([self.compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-O1", f"-DM_(name)={self.prefix}_##name",
             "-include", self.work / "x.h", "-I", self.work, *flags, HERE / "host" / "training.c", "-o", self.program, self.so, "-lm",
             f"-Wl,-rpath,{self.work}"])

    def shapes(self):
        """{path: shape} of the weights"""
        return dict((n, [int(d) for d in dims.split("x")] if dims else [])
                    for n, dims in (line.split(" ") for line in (self.work / "shapes").read_text().splitlines()))

    def run(self, steps=1, accumulate=1, seed=0, threads=1, mode="train", *more):
        """{name: f32 numbers} that the program wrote"""
        for file in self.work.glob("out.*"):
            file.unlink()
        run([*self.start, self.program, self.work, steps, accumulate, seed, threads, mode, *more])
        return {f.name[4:]: array.array("f", f.read_bytes()) for f in self.work.glob("out.*")}


def run(words, **options):
    proc = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=600, **options)
    if proc.returncode:
        raise AssertionError(f"{words[0]}: exit {proc.returncode}: {proc.stderr[:2000]}")
    return proc


def split_batches(tensors):
    """{"ids@1": ...} as a list of {"ids": (shape, numbers)}"""
    batches = {}
    for name, (_, shape, numbers) in tensors.items():
        name, _, k = name.partition("@")
        batches.setdefault(int(k or 0), {})[name] = shape, numbers
    return [batches[k] for k in sorted(batches)]


def batch(ids, labels):
    return {"ids": ([len(ids) // 3, 3], ids), "labels": ([len(ids) // 3, 3], labels)}


class Goldens(unittest.TestCase):
    def case(self, folder, threads):
        spec = json.loads((folder / "case.json").read_text())
        train = spec.get("train", {})
        mode = train.get("mode", "train")
        with tempfile.TemporaryDirectory() as work:
            work = pathlib.Path(work)
            defines = [w for name, value in spec.get("defines", {}).items() for w in ("-D", f"{name}={value}")]
            files = folder / "inputs.safetensors", folder / "weights.safetensors"
            words = [TFMC, "evaluate" if mode == "evaluate" else "train", folder / "model.tfm", "-o", work / "command.safetensors", *defines]
            library = Library(work, folder / "model.tfm", defines)
            library.build(split_batches(read_tensors(files[0])) if files[0].exists() else [])
            if files[0].exists():
                words += ["--batches", files[0]]
            if files[1].exists():
                words += ["--weights", files[1]]
                for name, (_, _, numbers) in read_tensors(files[1]).items():
                    (work / f"weight.{name}").write_bytes(numbers.tobytes())
            steps, accumulate, seed = 0 if mode == "initial" else train.get("steps", 1), train.get("accumulate", 1), train.get("seed", 0)
            if mode != "evaluate":
                words += ["--quiet", "--gradients", "--steps", steps, "--accumulate", accumulate, "--seed", seed]
            run(words)
            wanted = read_tensors(work / "command.safetensors")
            got = library.run(steps, accumulate, seed, threads, mode)
            results = [n for n in wanted if not n.startswith(("after.", "grad.")) and n not in ("losses", "norms", "rates")]
            for name in set(wanted) - set(results) - {"losses", "norms", "rates"}:
                self.assertEqual(got[name].tobytes(), wanted[name][2].tobytes(), name)
            names = [name for name in re.findall(r"(\w+) *=", (folder / "model.tfm").read_text()) if name in results]
            if results:  # in the order of the objective, which a safetensors file does not keep
                self.assertLessEqual({wanted[n][2].tobytes() for n in results}, {got["results"][i:i + 1].tobytes() for i in range(16)}, names)
            self.same_model(library, got, folder.name in COMPUTED)
            self.assertEqual({n for n in got if n.startswith(("after.", "grad."))}, {n for n in wanted if n.startswith(("after.", "grad."))})


    def same_model(self, library, got, is_close):
        """The packed weights of the trainer's model are those that `tfmc pack` makes of the weights it has."""
        weights = {n: ("F32", library.shapes()[n], got["after." + n]) for n in library.shapes() if "after." + n in got}
        if not weights or "packed" not in got:
            return
        write_tensors(library.work / "after.safetensors", weights)
        run([TFMC, "pack", library.so, "--weights", library.work / "after.safetensors", "-o", library.work / "after.tfmw", "--quiet"])
        wanted, packed = (library.work / "after.tfmw").read_bytes()[4096:], got["packed"].tobytes()
        self.assertGreaterEqual(len(packed), len(wanted))
        if is_close:
            for x, y in zip(array.array("f", wanted), got["packed"]):
                self.assertTrue(abs(x - y) <= 1e-6 * (1 + abs(x)) or x == y or x != x and y != y)
        else:
            self.assertEqual(packed[:len(wanted)], wanted)


def add_golden(folder, threads):
    setattr(Goldens, "test_" + folder.name.replace("-", "_"), lambda self: self.case(folder, threads))


for i, case in enumerate(sorted(CASES.glob("train-*"))):
    add_golden(case, 1 + i % 3)


class Trains(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.work = pathlib.Path(self.folder.name)
        (self.work / "m.tfm").write_text(MODEL)

    def test_refusals(self):
        good, ids = [1, 2, 3, 4, 5, 6], [1, 2, 3, 3, 2, 1]
        library = Library(self.work, self.work / "m.tfm", ["-Dp=0.0"], [batch(ids, good), batch(ids, [1, 2, 3, 4, 5, 99]), batch(ids, [0] * 6)],
                          ["-DREFUSALS"])
        library.run(mode="refusals")

    def test_how_the_caller_rounds_changes_nothing(self):
        """Neither initial values nor steps, whose rates, norms and sums are computed on the caller's thread."""
        ids = [(5 * i + i // 7) % 7 for i in range(60)]
        library = Library(self.work, self.work / "m.tfm", (), [batch(ids, ids[::-1])])
        made = []
        for rounding in "0123":
            with unittest.mock.patch.dict(os.environ, ROUNDING=rounding):
                made.append({name: data.tobytes() for name, data in library.run(3, 1, 5, 2).items()})
        self.assertEqual([made[0]] * 4, made)

    def test_threads_sets_and_cuts_change_nothing(self):
        """The bits of 20 steps: threads, an instruction set, a library that was written without a linker."""
        ids = [(5 * i + i // 7) % 7 for i in range(60)]
        whole = [batch(ids, ids[::-1])]
        first = None
        for options in ([], ["-march=x86-64-v3,x86-64-v4"], ["--cc=none"]):
            library = Library(self.work, self.work / "m.tfm", options, whole)
            for threads in (1, 2, 3):
                got = {name: data.tobytes() for name, data in library.run(20, 1, 5, threads).items()}
                first = first or got
                self.assertEqual(got, first, (options, threads))
        library.build([batch(ids[:9], ids[::-1][:9]), batch(ids[9:12], ids[::-1][9:12]), batch(ids[12:], ids[::-1][12:])])
        for name, data in library.run(20, 3, 5, 2).items():
            for x, y in zip(data, array.array("f", first[name])):
                self.assertLess(abs(x - y), 1e-4 * (1 + abs(y)), name)

    def test_the_program_of_the_page(self):
        page = (HERE.parents[1] / "docs" / "training.md").read_text()
        self.tagger()
        (self.work / "train.c").write_text(re.search(r"```c\n(.*?)```", page, re.S)[1])
        run(["cc", "-std=c99", "-Wall", "-Werror", "train.c", "-o", "train", "-L.", "-ltagger", "-lm", "-Wl,-rpath,."], cwd=self.work)
        said = run(["./train"], cwd=self.work).stdout
        self.assertRegex(said, "^step 300: loss [0-9.]+$")
        self.assertLess(float(said.split()[-1]), 0.5)

    def test_states(self):
        """A run that stops after every step ends like one that never does; its weights run; damaged and foreign files are refused."""
        ids = [(5 * i + i // 7) % 7 for i in range(60)]
        library = Library(self.work, self.work / "m.tfm", [], [batch(ids, ids[::-1])])
        whole = {name: data.tobytes() for name, data in library.run(6, 1, 5).items() if name.startswith("after.")}
        stopped = {name: data.tobytes() for name, data in library.run(6, 1, 5, 1, "stops").items() if name.startswith("after.")}
        self.assertEqual(stopped, whole)
        last = self.work / "checkpoints" / "step-00000006"
        written = read_tensors(last / "weights.safetensors")
        self.assertEqual({"after." + n: data.tobytes() for n, (_, _, data) in written.items()}, whole)
        run([TFMC, "pack", library.so, "--weights", last / "weights.safetensors"])
        run([TFMC, "run", library.so, "--input", "ids=2x3", "-o", self.work / "logits.safetensors"])
        state = (last / "state.tfmt").read_bytes()
        bad = self.work / "bad.tfmt"
        for at in (0, 9, 100, 330, len(state) - 1):
            bad.write_bytes(state[:at] + bytes([state[at] ^ 4]) + state[at + 1:])
            with self.assertRaisesRegex(AssertionError, "new: status 3: .*bad.tfmt"):
                library.run(0, 1, 0, 1, "load", bad)
        bad.write_bytes(state[:-70])
        with self.assertRaisesRegex(AssertionError, "new: status 3: .*bad.tfmt"):
            library.run(0, 1, 0, 1, "load", bad)
        other = Library(self.work, self.work / "m.tfm", ["-Dd=8"], [batch(ids, ids[::-1])])
        with self.assertRaisesRegex(AssertionError, "this state is of another model, another -D"):
            other.run(0, 1, 0, 1, "load", last / "state.tfmt")

    def test_a_state_to_begin_with(self):
        """`tfmc pack --training` of a library or its text: weights of a checkpoint, some of them new; any optimizer goes on from it."""
        ids = [(5 * i + i // 7) % 7 for i in range(60)]
        library = Library(self.work, self.work / "m.tfm", ["--set", 'optimizer="sgd"'], [batch(ids, ids[::-1])])
        weights = {"embed.weight": ("F32", [7, 4], [i / 8 for i in range(28)]), "head.bias": ("F32", [7], [i / 4 for i in range(7)])}
        write_tensors(self.work / "w.safetensors", weights)
        pack = [TFMC, "pack", "--training", library.so, "--weights", self.work / "w.safetensors"]
        proc = subprocess.run([str(w) for w in pack], capture_output=True, text=True)
        self.assertEqual(proc.returncode, 1)
        self.assertIn("head.weight", proc.stderr)
        self.assertFalse((self.work / "x.tfmt").exists())
        run([*pack, "--new", "head.weight", "--seed", 7])
        first = library.run(0, 1, 7, 1, "initial")
        got = library.run(0, 1, 0, 1, "load", self.work / "x.tfmt")
        for name, (_, _, numbers) in weights.items():
            self.assertEqual(list(got["after." + name]), numbers)
        self.assertEqual(got["after.head.weight"], first["after.head.weight"])
        run([TFMC, "pack", "--training", self.work / "m.tfm", "--weights", self.work / "w.safetensors", "--new", "head.*", "--seed", 7,
             "-o", self.work / "y.tfmt", "--quiet"])
        adam = Library(self.work, self.work / "m.tfm", [], [batch(ids, ids[::-1])])
        for name, data in weights.items():
            (self.work / f"weight.{name}").write_bytes(array.array("f", data[2]).tobytes())
        (self.work / "weight.head.weight").write_bytes(first["after.head.weight"].tobytes())
        set_by_hand = adam.run(5, 1, 7)
        for file in self.work.glob("weight.*"):
            file.unlink()
        started = adam.run(5, 1, 0, 1, "train", self.work / "x.tfmt")
        self.assertEqual(started, set_by_hand)
        for words in (["--new", "x.*"], ["--strip-nothing"]):
            self.assertNotEqual(subprocess.run([str(w) for w in [*pack, *words]], capture_output=True).returncode, 0)
        proc = subprocess.run([str(w) for w in [TFMC, "pack", library.so, "--weights", self.work / "w.safetensors", "--new", "head.*"]],
                              capture_output=True, text=True)
        self.assertIn("it goes with --training", proc.stderr)

    def test_shards_of_the_command(self):
        """`tfmc train --shards` cuts a batch as the shards of a library's trainer are, which are those of ranks."""
        ids = [(5 * i + i // 7) % 7 for i in range(24)]
        library = Library(self.work, self.work / "m.tfm", ["-Dp=0.3"])
        write_tensors(self.work / "d.safetensors", {"ids": ("I32", [24], ids), "ids.lengths": ("I32", [8], [3] * 8),
                                                    "labels": ("I32", [24], ids[::-1]), "labels.lengths": ("I32", [8], [3] * 8)})
        run([TFMC, "train", self.work / "m.tfm", "-Dp=0.3", "--data", self.work / "d.safetensors", "--out", self.work / "run", "--steps", 1,
             "--batch-items", 8, "--shards", 4, "--seed", 9, "--march=x86-64-v3", "--quiet"])

        class Args(ctypes.Structure):
            _fields_ = [("struct_size", ctypes.c_size_t), ("batch", ctypes.c_int64), ("time", ctypes.c_int64),
                        ("ids", ctypes.c_void_p), ("labels", ctypes.c_void_p)]

        class Options(ctypes.Structure):
            _fields_ = [("struct_size", ctypes.c_size_t), ("seed", ctypes.c_uint64), ("threads", ctypes.c_int32), ("spin", ctypes.c_int32),
                        ("pool", ctypes.c_void_p), ("allocator", ctypes.c_void_p * 3), ("settings", ctypes.c_void_p),
                        ("rank", ctypes.c_int32), ("ranks", ctypes.c_int32), ("shards", ctypes.c_int32), ("hooks", ctypes.c_void_p * 3),
                        ("fills", ctypes.c_int32)]
        items, = order([(3, 3)] * 8, 9, 0, count=8)
        taken = [[x for i in items for x in row[3 * i:3 * i + 3]] for row in (ids, ids[::-1])]
        rows = [(ctypes.c_int32 * 24)(*row) for row in taken]
        parts = (Args * 4)(*(Args(0, 2, 3, *(ctypes.addressof(row) + 24 * i for row in rows)) for i in range(4)))
        lib, error, trainer = ctypes.CDLL(str(library.so)), ctypes.create_string_buffer(1024), ctypes.c_void_p()
        options = Options(ctypes.sizeof(Options), 9, 1, shards=4)
        self.assertEqual(lib.tiny_trainer_new(None, ctypes.byref(options), ctypes.byref(trainer), error), 0)
        self.assertEqual(lib.tiny_trainer_step(trainer, parts, ctypes.c_int64(4), ctypes.c_int64(0), None, error), 0, error.raw[4:200])
        self.assertEqual(lib.tiny_trainer_save(trainer, str(self.work).encode(), None, ctypes.c_int64(0), error), 0)
        lib.tiny_trainer_free(trainer)
        self.assertEqual((self.work / "step-00000001" / "weights.safetensors").read_bytes(),
                         (self.work / "run" / "step-00000001" / "weights.safetensors").read_bytes())

    def test_states_of_the_command(self):
        """A library goes on from a state that `tfmc train` wrote."""
        ids = [(5 * i + i // 7) % 7 for i in range(60)]
        library = Library(self.work, self.work / "m.tfm", [], [batch(ids, ids[::-1])])
        write_tensors(self.work / "data.safetensors", {"ids": ("I32", [60], ids), "ids.lengths": ("I32", [20], [3] * 20),
                                                            "labels": ("I32", [60], ids[::-1]), "labels.lengths": ("I32", [20], [3] * 20)})
        run([TFMC, "train", self.work / "m.tfm", "--data", self.work / "data.safetensors", "--out", self.work / "run", "--steps", 3, "--quiet"])
        written = read_tensors(self.work / "run" / "step-00000003" / "weights.safetensors")
        got = library.run(0, 1, 0, 1, "load", self.work / "run" / "step-00000003" / "state.tfmt")
        self.assertEqual({n: data.tobytes() for n, data in got.items() if n != "packed"}, {"after." + n: data.tobytes() for n, (_, _, data) in written.items()})

    def test_the_model_of_a_trainer(self):
        """It runs as `tfmc run` does with the weights that are saved, keeps its weights while the trainer goes on, and outlives it."""
        ids = [(5 * i + i // 7) % 7 for i in range(6)]
        library = Library(self.work, self.work / "m.tfm")
        write_tensors(self.work / "in.safetensors", {"ids": ("I32", [2, 3], ids)})

        class Args(ctypes.Structure):
            _fields_ = [("struct_size", ctypes.c_size_t), ("batch", ctypes.c_int64), ("time", ctypes.c_int64),
                        ("ids", ctypes.c_void_p), ("other", ctypes.c_void_p), ("room", ctypes.c_int64)]
        lib, error = ctypes.CDLL(str(library.so)), ctypes.create_string_buffer(1024)
        given, out = (ctypes.c_int32 * 6)(*ids), (ctypes.c_float * 42)()
        part = Args(0, 2, 3, ctypes.addressof(given), ctypes.addressof(given))
        trainer, model, context = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        step = lambda: lib.tiny_trainer_step(trainer, ctypes.byref(part), ctypes.c_int64(1), ctypes.c_int64(0), None, error)  # noqa: E731
        self.assertEqual(lib.tiny_trainer_new(None, None, ctypes.byref(trainer), error), 0)
        self.assertEqual(step(), 0)
        self.assertEqual(lib.tiny_trainer_model(trainer, ctypes.byref(model), error), 0)
        self.assertEqual(lib.tiny_trainer_save(trainer, str(self.work).encode(), None, ctypes.c_int64(0), error), 0)
        self.assertEqual(step(), 0)
        lib.tiny_trainer_free(trainer)
        self.assertEqual(lib.tiny_context_new(model, None, ctypes.byref(context), error), 0)
        lib.tiny_close(model)
        args = Args(0, 2, 3, ctypes.addressof(given), ctypes.addressof(out), 42)
        self.assertEqual(lib.tiny_forward(context, ctypes.byref(args), error), 0)
        lib.tiny_context_free(context)
        run([TFMC, "run", self.work / "m.tfm", "--weights", self.work / "step-00000001" / "weights.safetensors", "--inputs",
             self.work / "in.safetensors", "--march=x86-64-v3", "-o", self.work / "out.safetensors"])
        self.assertEqual(bytes(out), read_tensors(self.work / "out.safetensors")["logits"][2].tobytes())

    def test_the_dates_program(self):
        """examples/dates/train.c: the weights of `tfmc train`, byte for byte, over an epoch's end, and a model that writes."""
        dates = HERE.parents[1] / "examples" / "dates"
        run([sys.executable, dates / "make_data.py", self.work / "data", 900])
        run([TFMC, "compile", "--training", "--quiet", dates / "dates.tfm", "-o", self.work / "libdates.so"])
        run(["cc", "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-I", self.work, dates / "train.c", "-L", self.work, "-ldates",
             f"-Wl,-rpath,{self.work}", "-o", self.work / "train"])
        data = self.work / "data" / "train.safetensors"
        run([TFMC, "train", dates / "dates.tfm", "--data", data, "--out", self.work / "run", "--steps", 12, "--seed", 1, "--quiet",
             "--march=x86-64-v3"])
        said = run([self.work / "train", data, 12, self.work / "own"], input="3rd of May 2001\n!\n")
        first, own = (self.work / name / "step-00000012" / "weights.safetensors" for name in ("run", "own"))
        self.assertEqual(first.read_bytes(), own.read_bytes())
        self.assertEqual(len(said.stdout.splitlines()), 2)
        self.assertIn("a date is written with", said.stderr)
        self.assertEqual(subprocess.run([self.work / "train", dates / "dates.c", "1"], capture_output=True).returncode, 1)

    def tagger(self):
        page = (HERE.parents[1] / "docs" / "training.md").read_text()
        (self.work / "tagger.tfm").write_text(re.search(r"```tfm\n(model Tagger.*?)```", page, re.S)[1])
        run([TFMC, "compile", "--training", "--quiet", "tagger.tfm", "-o", "libtagger.so"], cwd=self.work)

    @unittest.skipUnless(os.environ.get("TFM_TORCH"), "TFM_TORCH names no Python with PyTorch")
    def test_ranks_of_gloo(self):
        self.tagger()
        words = [os.environ["TFM_TORCH"], HERE.parents[1] / "examples" / "train_gloo.py", self.work / "libtagger.so"]
        said = [run([*words, n]).stdout for n in (1, 2, 4)]
        self.assertRegex(said[0], "^step 20: loss .*, weights [0-9a-f]{16}$")
        self.assertEqual(said, said[:1] * 3)

    @unittest.skipUnless(shutil.which("mpicc") and shutil.which("mpirun"), "there is no MPI")
    def test_ranks_of_mpi(self):
        """1, 2 and 4 processes have the same weights, to the bit."""
        self.tagger()
        run(["mpicc", "-O2", "-Wall", "-Werror", "-I.", HERE.parents[1] / "examples" / "train_mpi.c", "-L.", "-ltagger", "-lm", "-Wl,-rpath,.",
             "-o", "train_mpi"], cwd=self.work)
        given = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # in containers
        more = ["--oversubscribe"] if "Open MPI" in run(["mpirun", "--version"]).stdout else []
        said = [run(["mpirun", *more, "-n", n, "./train_mpi"], cwd=self.work, env=given).stdout for n in (1, 2, 4)]
        self.assertRegex(said[0], "^step 20: loss [0-9.]+, norm [0-9.]+, weights [0-9a-f]{16}\n$")
        self.assertEqual(said, said[:1] * 3)

    def test_what_a_library_depends_on(self):
        library = Library(self.work, self.work / "m.tfm")
        needed = re.findall(r"NEEDED.*\[(.*)\]", run(["readelf", "-d", library.so]).stdout)
        self.assertLessEqual({re.sub(r"\.so.*", "", n) for n in needed}, {"libc", "libpthread", "ld-linux-x86-64"})
        self.assertLess(library.so.stat().st_size, 400000)

    def test_size(self):
        """Of models of the sizes of those that bench/training.py measures, with the widest tiles; a page more or less is where relocated data begin."""
        for work in ("base", "bert", "004"):
            (self.work / "w.tfm").write_text(training.text_of(training.WORKS[work][0]))
            defines = [word for name, n in training.WORKS[work][3].items() for word in ("-D", f"{name}={n}")]
            run([TFMC, "compile", "--training", "--quiet", "-march=x86-64-v4", *defines, self.work / "w.tfm", "-o", self.work / "libw.so"])
            self.assertLess((self.work / "libw.so").stat().st_size, 432000, work)

    def test_a_model_without_training_stays_as_it_is(self):
        (self.work / "n.tfm").write_text(re.sub(r"  fn objective.*?\n  }\n|  train .*?}\n", "", MODEL, flags=re.S))
        for name in "mn":
            (self.work / f"{name}.tfm").rename(self.work / "x.tfm")
            run([TFMC, "compile", "--strip-source", "--quiet", self.work / "x.tfm", "-o", self.work / "libx.so"])
            (self.work / "libx.so").rename(self.work / f"lib{name}.so")
        self.assertEqual((self.work / "libm.so").read_bytes(), (self.work / "libn.so").read_bytes())
        self.assertNotIn("trainer", (self.work / "x.h").read_text().replace("tfm_trainer_cancel", ""))

    def test_models_that_do_not_train_are_refused(self):
        (self.work / "n.tfm").write_text("model N() {\n  forward(x: f32[n]) { return y = x }\n}\n")
        proc = subprocess.run([TFMC, "compile", "--training", self.work / "n.tfm", "-o", self.work / "libn.so"], capture_output=True, text=True)
        self.assertEqual(proc.returncode, 1)
        self.assertIn("has no train block", proc.stderr)
        self.assertFalse((self.work / "libn.so").exists())


if __name__ == "__main__":
    TFMC = os.path.abspath(sys.argv[1])
    sys.exit(tally.run(argv=sys.argv[:1] + sys.argv[3:]))
