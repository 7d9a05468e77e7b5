"""Compiling, calling, running and closing models, and the errors of each."""
import ctypes
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import threading
import unittest
import warnings

import numpy as np

import tfmc
from support import (IDS, KEEP, ONE, ONE_WEIGHTS, PAIR, PAIR_WEIGHTS, X, Case, one, pair, pair_expected, python,
                     resident, save_file, weights)


class Calls(Case):
    def test_outputs_by_place_and_by_name(self):
        y, kept = pair_expected()
        for result in (pair()(X, IDS, KEEP), pair()(keep=KEEP, x=X, ids=IDS), pair()(X, keep=KEEP, ids=IDS)):
            np.testing.assert_allclose(result.y, y, atol=1e-5)
            np.testing.assert_array_equal(result.kept, kept)
            self.assertEqual((result.y.dtype, result.kept.dtype), (np.float32, np.int32))

    def test_one_output_is_the_array(self):
        np.testing.assert_allclose(one()(X), X @ ONE_WEIGHTS["product.weight"].T, atol=1e-5)

    def test_another_size_each_call(self):
        for n in (1, 70, 3, 0, 200):
            x = np.ones((n, 4), np.float32)
            self.assertEqual(one()(x).shape, (n, 4))

    def test_what_a_model_says_of_itself(self):
        model = pair()
        self.assertEqual((model.name, model.sizes), ("Pair", ("n",)))
        self.assertEqual(model.inputs["x"], tfmc.TensorType("f32", ("n", 4)))
        self.assertEqual(str(model.outputs["y"]), "f32[n, 3]")
        self.assertEqual(list(model.inputs), ["x", "ids", "keep"])
        self.assertIn("ids: i32[n]", repr(model))
        self.assertTrue(model.march.startswith("x86-64"))
        self.assertGreaterEqual(model.weights_bytes, 4 * (9 * 4 + 3 * 4 + 3))
        self.assertEqual(tfmc.__version__, tfmc._core.version())

    def test_run_gives_what_is_wanted(self):
        given = {"x": X, "ids": IDS, "keep": KEEP}
        self.assertEqual(list(pair().run(given)), ["y", "kept"])
        self.assertEqual(list(pair().run(given, outputs=["kept"])), ["kept"])
        y = np.zeros((5, 3), np.float32)
        results = pair().run(given, out={"y": y}, outputs=["kept"])
        self.assertIs(results["y"], y)
        np.testing.assert_array_equal(y, pair()(X, IDS, KEEP).y)

    def test_inputs_that_do_not_fit_by_name(self):
        self.refused(tfmc.UsageError, 'input "ids" is missing', pair(), X, keep=KEEP)
        self.refused(tfmc.UsageError, 'no input "idx"', pair(), X, IDS, idx=KEEP)
        self.refused(tfmc.UsageError, 'input "x" is given by its place and by its name', pair(), X, IDS, KEEP, x=X)
        self.refused(tfmc.UsageError, "4 inputs are given, the model has 3", pair(), X, IDS, KEEP, X)
        self.refused(tfmc.UsageError, 'no output "z"', pair().run, {"x": X, "ids": IDS, "keep": KEEP}, outputs=["z"])
        self.refused(tfmc.UsageError, 'missing is input "ids"', pair().run, {"x": X, "keep": KEEP})
        self.refused(TypeError, "tfmc.compile", tfmc.Model)

    def test_shapes_and_ids(self):
        error = self.refused(tfmc.InputError, 'n is 5 in input "x" but 4', pair(), X, IDS[:4], KEEP)
        self.assertEqual((error.reason, error.status), ("shape", "input"))
        self.assertIsInstance(error, ValueError)
        self.refused(tfmc.InputError, 'input "x" has 1 axis, expected 2', pair(), X[0], IDS, KEEP)
        self.refused(tfmc.InputError, "axis 1 is 3, expected 4", one(), X[:, :3])
        error = self.refused(tfmc.InputError, "9", pair(), X, IDS + 1, KEEP)
        self.assertEqual(error.reason, "value")
        self.assertRegex(error.place, r"<text>:\d+")
        np.testing.assert_array_equal(pair()(X, IDS, KEEP).kept, pair_expected()[1])  # as usable as before

    def test_out_must_fit(self):
        given, y = {"x": X, "ids": IDS, "keep": KEEP}, np.zeros((5, 3), np.float32)
        for wrong in (y[:4], y.astype(np.float64), y.T, [0], y.astype(">f4")):
            self.refused(tfmc.UsageError, 'out["y"]', pair().run, given, out={"y": wrong})
        y.flags.writeable = False
        self.refused(tfmc.UsageError, 'out["y"]', pair().run, given, out={"y": y})
        both = np.zeros((9, 4), np.float32)
        self.refused(tfmc.UsageError, 'out["y"] overlaps input "x"', one().run, {"x": both[:5]}, out={"y": both[4:]})

    def test_reserve_and_workspace(self):
        one().reserve(n=100)
        self.assertGreaterEqual(one().workspace_bytes(n=100), 0)
        self.refused(tfmc.UsageError, "the sizes are n, not m", one().reserve, m=3)
        self.refused(tfmc.InputError, "", one().workspace_bytes, n=-1)

    def test_close_ends_a_model(self):
        with tfmc.compile(ONE, weights=ONE_WEIGHTS) as model:
            model(X)
        self.assertTrue(model.closed)
        self.refused(tfmc.UsageError, "closed", model, X)
        self.refused(tfmc.UsageError, "closed", pickle.dumps, model)
        model.close()

    def test_pools(self):
        pool = tfmc.Pool(2)
        expected = one()(X)
        for threads in ({"pool": pool}, {"pool": pool}, {"threads": 1}, {"threads": 3}):
            np.testing.assert_array_equal(tfmc.compile(ONE, weights=ONE_WEIGHTS, **threads)(X), expected)
        self.assertEqual(pool.threads, 2)
        self.refused(tfmc.UsageError, "both", tfmc.compile, ONE, weights=ONE_WEIGHTS, pool=pool, threads=2)
        self.refused(tfmc.UsageError, "threads is -1", tfmc.Pool, -1)


class Compiling(Case):
    def test_files_and_configurations(self):
        folder = pathlib.Path(self.folder())
        (folder / "one.tfm").write_text(ONE)
        save_file(ONE_WEIGHTS, folder / "one.safetensors")
        expected = one()(X)
        for source in (folder / "one.tfm", str(folder / "one.tfm"), tfmc.Source(ONE, folder / "one.safetensors")):
            np.testing.assert_array_equal(tfmc.compile(source, weights=folder / "one.safetensors")(X), expected)
        wide = {"product.weight": np.ones((6, 6), np.float32)}
        for config in ({"d": 6}, {"config": {"d": 6}}, {"config": {"d": 5}, "d": "3 + 3"}, {"d": np.int64(6)}):
            self.assertEqual(tfmc.compile(ONE, weights=wide, **config).inputs["x"].shape, ("n", 6))
        written = tfmc.Source(ONE).write(folder / "new")
        self.assertEqual(written.read_text(), ONE)

    def test_weights_in_memory(self):
        for kind in (np.float16, np.dtype(">f4"), np.float32):
            w = {"product.weight": ONE_WEIGHTS["product.weight"].astype(np.float16).astype(kind)}
            result = tfmc.compile(ONE, weights=w)(X)
            np.testing.assert_allclose(result, X @ w["product.weight"].astype(np.float32).T, atol=1e-5)
        fortran = {"product.weight": np.asfortranarray(ONE_WEIGHTS["product.weight"])}
        np.testing.assert_array_equal(tfmc.compile(ONE, weights=fortran)(X), one()(X))
        self.refused(tfmc.InputError, 'weight "product.weight" is complex64', tfmc.compile, ONE,
                     weights={"product.weight": np.zeros((4, 4), np.complex64)})

    def test_errors_have_places_and_say_what_the_command_says(self):
        folder = pathlib.Path(self.folder())
        path = folder / "bad.tfm"
        path.write_text(ONE.replace("product(x)", "produkt(x)"))
        error = self.refused(tfmc.CompileError, "unknown", tfmc.compile, path, weights=ONE_WEIGHTS)
        self.assertEqual(error.place, f"{path}:4:9")
        first = error.diagnostics[0]
        self.assertEqual((first.severity, first.code, first.line, first.column), ("error", "E0202", 4, 9))
        command = subprocess.run([tfmc._find.compiler(), "check", "-q", str(path)], capture_output=True, text=True)
        self.assertEqual(str(error).splitlines(), command.stderr.splitlines()[:-1])  # but for "1 error"
        copy = pickle.loads(pickle.dumps(error))
        self.assertEqual((type(copy), str(copy), copy.place, copy.diagnostics),
                         (tfmc.CompileError, str(error), error.place, error.diagnostics))

    def test_what_is_wrong_with_weights_and_files(self):
        self.refused(tfmc.UsageError, "give weights=", tfmc.compile, ONE, weights={})
        self.refused(tfmc.UsageError, "give weights=", tfmc.compile, ONE)
        self.refused(tfmc.CompileError, 'no tensor "product.weight"', tfmc.compile, ONE, weights={"w": X})
        self.refused(tfmc.CompileError, "product.weight", tfmc.compile, ONE, weights={"product.weight": X})
        self.refused(OSError, "nowhere.tfm", tfmc.compile, "nowhere.tfm")
        self.refused(tfmc.EnvError, "nowhere", tfmc.compile, ONE, weights="nowhere.safetensors")
        self.refused(tfmc.UsageError, "the source is of type int", tfmc.compile, 3)
        self.refused(tfmc.UsageError, "d is of type list", tfmc.compile, ONE, weights=ONE_WEIGHTS, d=[4])
        self.refused(tfmc.CompileError, "E0", tfmc.compile, ONE, weights=ONE_WEIGHTS, depth=4)
        self.refused(tfmc.EnvError, "cannot be started", tfmc.compile, ONE, weights=ONE_WEIGHTS, compiler="/no/tfmc")
        self.refused(tfmc.Cancelled, "longer than", tfmc.compile, ONE, weights=ONE_WEIGHTS, deadline=0.001)

    def test_warnings_reach_the_caller(self):
        more = {**ONE_WEIGHTS, "spare.weight": np.zeros((4, 4), np.float32)}
        text = ONE.replace("  forward", "  spare = Linear(d, d, bias = false)\n  forward")
        seen = []
        tfmc.compile(text, weights=more, on_message=seen.append)
        self.assertTrue(seen and all(m.severity == "warning" for m in seen))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            tfmc.compile(text, weights=more)
        self.assertEqual([w.category for w in caught], [tfmc.CompileWarning] * len(seen))
        self.assertEqual(caught[0].filename, __file__)

        def fails(message):
            raise RuntimeError("mine")
        self.refused(RuntimeError, "mine", tfmc.compile, text, weights=more, on_message=fails)


class Inspecting(Case):
    """dump, report and profile run the command on what the model was made from."""

    def test_stages_and_what_was_fused(self):
        model = pair()
        self.assertIn("gather", model.dump())
        self.assertNotEqual(model.dump("graph"), model.dump())
        self.assertIn(model.march.split("-vnni")[0], model.dump("plan"))
        self.assertIn("epilogue", model.report())
        self.refused(tfmc.UsageError, "--stage", model.dump, "none")

    def test_configuration_and_weights_are_the_models_own(self):
        folder = pathlib.Path(self.folder())
        (folder / "pair.tfm").write_text(PAIR)
        save_file(PAIR_WEIGHTS, folder / "pair.safetensors")
        model = tfmc.compile(folder / "pair.tfm", weights=folder / "pair.safetensors", threads=1, quantize="f32")
        self.assertIn("f32[n, 4]", model.dump("graph"))
        self.assertIn("Pair", model.dump("ast"))
        self.assertIn("fma", model.dump("llvm"))
        wide = tfmc.compile(ONE, weights={"product.weight": np.zeros((7, 7), np.float32)}, d=7)
        self.assertIn("f32[n, 7]", wide.dump("graph"))
        for inputs in ({"x": X, "ids": IDS.tolist(), "keep": KEEP}, {"x": "5x4", "ids": "5", "keep": "5"}):
            said = model.profile(iterations=2, **inputs)
            self.assertRegex(said, r"Pair: a run takes [\d.]+ .s in \d+ steps, median of 2, .*, 1 thread")
        self.assertIn("One: a run takes", wide.profile({"x": np.ones((2, 7))}, iterations=1))

    def test_refused(self):
        model = pair()
        self.refused(tfmc.UsageError, "no input \"z\"", model.profile, z=X)
        self.refused(tfmc.InputError, "ids", model.profile, x=X, ids=IDS + 9, keep=KEEP)
        loaded = tfmc.load(model.save(pathlib.Path(self.folder()) / "pair.tfmm"))
        for call in (loaded.dump, loaded.report, loaded.profile):
            self.refused(tfmc.UsageError, "its source is not known", call)
        with tfmc.compile(ONE, weights=ONE_WEIGHTS) as closed:
            pass
        self.refused(tfmc.UsageError, "the model is closed", closed.report)

    def test_steps_of_decoding(self):
        writer = tfmc.compile("""model Writer(vocab = 20, d = 8) {
  words = Embedding(vocab, d)
  body = Encoder(d, 2, 1, 16)
  forward(ids: i32[batch, time]) { return logits = linear(words(ids) -> body(is_causal = true), words.weight) }
  generate ids from logits { bos = 1  eos = 2  pad = 0 }
}
""", weights=weights({"words.weight": (20, 8), "body.layers.0.self_attn.in_proj_weight": (24, 8),
                      "body.layers.0.self_attn.in_proj_bias": (24,), "body.layers.0.self_attn.out_proj.weight": (8, 8),
                      "body.layers.0.self_attn.out_proj.bias": (8,), "body.layers.0.linear1.weight": (16, 8),
                      "body.layers.0.linear1.bias": (16,), "body.layers.0.linear2.weight": (8, 16),
                      "body.layers.0.linear2.bias": (8,), **{f"body.layers.0.norm{i}.{part}": (8,) for i in (1, 2)
                                                             for part in ("weight", "bias")}}))
        self.assertIn("step", writer.dump("step-plan"))
        self.assertIn("a decoding step of 1 row takes", writer.profile(ids=[[3, 4]], decode=True, iterations=1))


class Libraries(Case):
    def library(self):
        folder = pathlib.Path(self.folder())
        (folder / "one.tfm").write_text(ONE)
        save_file(ONE_WEIGHTS, folder / "w.safetensors")
        subprocess.run([tfmc._find.compiler(), "compile", "-q", folder / "one.tfm", "--weights", folder / "w.safetensors",
                        "-o", folder / "libone.so"], check=True)
        return folder

    @unittest.skipUnless(shutil.which("cc"), "tfmc compile links with a C compiler")
    def test_a_library_is_loaded_with_its_weights(self):
        folder = self.library()
        model = tfmc.load(folder / "libone.so")
        np.testing.assert_array_equal(model(X), one()(X))
        (folder / "one.tfmw").rename(folder / "other.tfmw")
        self.refused(tfmc.EnvError, "one.tfmw", tfmc.load, folder / "libone.so")
        other = tfmc.load(folder / "libone.so", weights=folder / "other.tfmw", threads=1)
        np.testing.assert_array_equal(other(X), one()(X))
        copy = pickle.loads(pickle.dumps(other))
        np.testing.assert_array_equal(copy(X), one()(X))
        self.assertIs(pickle.loads(pickle.dumps(other)), copy)  # one a process
        data = pickle.dumps(other)
        copy.close()
        (folder / "other.tfmw").unlink()
        self.refused(tfmc.EnvError, "other.tfmw", pickle.loads, data)
        self.refused(tfmc.EnvError, "nowhere.so", tfmc.load, folder / "nowhere.so")
        (folder / "text.so").write_text("no library")
        self.refused(tfmc.EnvError, "no shared library", tfmc.load, folder / "text.so")


class Processes(Case):
    def test_a_compiled_model_pickles_as_its_source(self):
        folder = pathlib.Path(self.folder())
        save_file(ONE_WEIGHTS, folder / "w.safetensors")
        model = tfmc.compile(ONE, weights=folder / "w.safetensors")
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(model))(X), one()(X))
        self.refused(tfmc.UsageError, "save() it first", pickle.dumps, one())
        data = pickle.dumps(model).replace(tfmc.__version__.encode(), b"9" * len(tfmc.__version__))
        self.refused(tfmc.EnvError, "made by tfmc 9", pickle.loads, data)

    def test_forks_compute_on(self):
        model, expected = one(), one()(X)
        stop = threading.Event()

        def keep_running():
            while not stop.is_set():
                model(np.ones((300, 4), np.float32))
        threads = [threading.Thread(target=keep_running) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(5):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # that there are threads is the point
                    child = os.fork()
                if child == 0:
                    good = np.array_equal(model(X), expected) and np.array_equal(pair()(X, IDS, KEEP).y, pair()(X, IDS, KEEP).y)
                    model.close()
                    os._exit(0 if good else 1)
                self.assertEqual(os.waitpid(child, 0)[1], 0)
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def test_an_interpreter_may_end_while_calls_run(self):
        python("""
import threading, numpy as np, tfmc
from support import ONE, ONE_WEIGHTS
model = tfmc.compile(ONE, weights=ONE_WEIGHTS)
def work():
    while True: model(np.ones((20000, 4), np.float32))
for _ in range(4): threading.Thread(target=work, daemon=True).start()
""")

    def test_subinterpreters_are_refused(self):
        try:
            import _xxsubinterpreters as interpreters
        except ImportError:
            self.skipTest("this Python has no such module")
        python("""
import _xxsubinterpreters as interpreters, sys
i = interpreters.create()
try: interpreters.run_string(i, "import sys; sys.path[:] = %r; import tfmc" % sys.path)
except interpreters.RunFailedError as error: assert "subinterpreter" in str(error), error
else: raise SystemExit("it was imported")
""")

    def test_importing_needs_nothing_but_numpy(self):
        python("""
import numpy, sys
before = set(sys.modules)
import tfmc
heavy = {"importlib.metadata", "torch", "asyncio", "socket", "multiprocessing"}
assert not heavy & (set(sys.modules) - before), heavy & set(sys.modules)
""")


class Threads(Case):
    def test_many_threads_one_model(self):
        model, expected, wrong = pair(), pair()(X, IDS, KEEP), []

        def work():
            for _ in range(300):
                result = model(X, IDS, KEEP)
                if not (np.array_equal(result.y, expected.y) and np.array_equal(result.kept, expected.kept)):
                    wrong.append(result)
        threads = [threading.Thread(target=work) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_many_threads_on_models_that_have_threads(self):
        text, shape = ONE.replace("d = 4", "d = 128"), (128, 128)
        models = [tfmc.compile(text, weights=weights({"product.weight": shape}, seed), threads=2) for seed in range(4)]
        x, wrong = weights({"x": shape})["x"], []
        expected = [model(x) for model in models]

        def work(number):
            for call in range(50 if "TFM_SANITIZED" in os.environ else 2000):
                chosen = (number + call) % 4
                if not np.array_equal(models[chosen](x), expected[chosen]):
                    wrong.append((number, call))
        threads = [threading.Thread(target=work, args=[number]) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_ids_are_copied_before_they_are_used(self):
        ids, stop, model = np.zeros(3000, np.int32), threading.Event(), pair()
        x, keep = np.ones((3000, 4), np.float32), np.ones(3000, np.bool_)

        def write():
            while not stop.is_set():
                ids[:] = 2**31 - 1
                ids[:] = 3
        thread = threading.Thread(target=write)
        thread.start()
        try:
            for _ in range(300):
                try:
                    self.assertLessEqual(set(np.unique(model(x, ids, keep).kept)), {0, 3})
                except tfmc.InputError:
                    pass  # the copy held a wrong id, and was checked
        finally:
            stop.set()
            thread.join()

    def test_close_waits_for_calls(self):
        model = tfmc.compile(ONE, weights=ONE_WEIGHTS)
        x, ends, begun = np.ones((50000, 4), np.float32), [], threading.Barrier(5)

        def work():
            begun.wait()
            try:
                for _ in range(10 ** 6):  # closed long before, however late this one gets a processor
                    model(x)
            except tfmc.UsageError as error:
                ends.append(str(error))
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        begun.wait()
        model.close()
        for thread in threads:
            thread.join()
        self.assertEqual(ends, ["the model is closed"] * 4)

    def test_the_gil_is_free_while_a_model_runs(self):
        model = tfmc.compile(ONE.replace("d = 4", "d = 512"), weights={"product.weight": np.ones((512, 512), np.float32)},
                             threads=1)
        x, seen, go = np.ones((4096, 512), np.float32), [], threading.Event()
        model(x)
        thread = threading.Thread(target=lambda: go.wait() and seen.append("it ran"))
        thread.start()
        interval = sys.getswitchinterval()
        try:
            sys.setswitchinterval(1000)  # only who gives the GIL up lets the other thread run
            go.set()
            before = list(seen)
            for _ in range(1000):  # the other one may have to wait for a processor
                if not seen:
                    model(x)
            during = list(seen)
        finally:
            sys.setswitchinterval(interval)
            thread.join()
        self.assertEqual((before, during), ([], ["it ran"]))


@unittest.skipIf("TFM_SANITIZED" in os.environ, "a sanitizer keeps memory of its own")
class Leaks(Case):
    def test_calls_and_errors_keep_nothing(self):
        model, x = pair(), np.ones((500, 4), np.float32)
        ids, keep = np.ones(500, np.int64), np.ones(500, np.bool_)
        ctypes.CDLL(None).malloc_trim(0)

        def rounds(n):
            for _ in range(n):
                model(x, ids, keep)
                for wrong in ((x, ids, keep[:3]), (x.T, ids, keep), (x, ids + 10, keep), (x, ids), (x, "a", keep)):
                    try:
                        model(*wrong)
                    except tfmc.Error:
                        pass
        rounds(200)
        before, descriptors = resident(), len(os.listdir("/proc/self/fd"))
        rounds(1000)
        self.assertLess(resident() - before, 1 << 20)
        self.assertEqual(len(os.listdir("/proc/self/fd")), descriptors)

    def test_models_are_given_back(self):
        def rounds(n):
            for _ in range(n):
                tfmc.compile(ONE, weights=ONE_WEIGHTS, threads=2)(X)
        rounds(3)
        before = len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
        with open("/proc/self/maps") as file:
            mapped = len(file.readlines())
        rounds(6)
        self.assertEqual((len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))), before)
        with open("/proc/self/maps") as file:
            self.assertLess(len(file.readlines()), mapped + 6)


if __name__ == "__main__":
    unittest.main()
