"""Models in one file: saved, mapped, shared, replaced, cut off, foreign; writers that are killed."""
import os
import pathlib
import pickle
import random
import signal
import subprocess
import sys
import time
import unittest

import numpy as np

import tfmc
from tfmc._find import compiler
from support import IDS, KEEP, LONG, ONE, ONE_WEIGHTS, PAIR, PAIR_WEIGHTS, X, Case, one, pair, save_file


class Files(Case):
    def setUp(self):
        self.path = pathlib.Path(self.folder()) / "one.tfmm"

    def test_a_saved_model_is_the_same_model(self):
        for made, arguments in ((one(), (X,)), (pair(), (X, IDS, KEEP))):
            self.assertEqual(made.save(self.path), self.path)
            loaded = tfmc.load(self.path)
            self.assertEqual((loaded.name, loaded.inputs, loaded.outputs, loaded.march),
                             (made.name, made.inputs, made.outputs, made.march))
            for a, b in zip(loaded.run(dict(zip(made.inputs, arguments))).values(),
                            made.run(dict(zip(made.inputs, arguments))).values()):
                np.testing.assert_array_equal(a, b)
        self.assertEqual([f.name for f in self.path.parent.iterdir()], ["one.tfmm"])
        loaded.save(self.path)  # over itself, while it is mapped
        np.testing.assert_array_equal(loaded(X, IDS, KEEP).y, pair()(X, IDS, KEEP).y)
        self.refused(tfmc.UsageError, "holds its weights", tfmc.load, self.path, weights="w.tfmw")

    def test_what_the_command_wrote(self):
        """tfmc compile -o x.tfmm: the bits of the library that it makes of the same model."""
        folder = self.path.parent
        source, weights = folder / "pair.tfm", folder / "pair.safetensors"
        source.write_text(PAIR)
        save_file(PAIR_WEIGHTS, weights)
        for march in ("x86-64-v3", "native"):
            whole = tfmc.load(tfmc.build(source, folder / "pair.tfmm", weights=weights, march=march))
            library = tfmc.load(tfmc.build(source, folder / f"lib{march}.so", weights=weights, march=march))
            self.assertEqual((whole.name, whole.march), (library.name, library.march))
            for a, b in zip(whole(X, IDS, KEEP), library(X, IDS, KEEP), strict=True):
                np.testing.assert_array_equal(a, b)
        self.refused(tfmc.UsageError, "holds the weights too", tfmc.build, source, folder / "pair.tfmm")
        loaded = tfmc.load(pickle.loads(pickle.dumps(whole)).save(self.path))
        np.testing.assert_array_equal(loaded(X, IDS, KEEP).y, whole(X, IDS, KEEP).y)

    def test_the_command_runs_it(self):
        """What Model.save wrote: the bits of the model."""
        one().save(self.path)
        given, out = self.path.parent / "x.safetensors", self.path.parent / "y.npy"
        save_file({"x": X}, given)
        subprocess.run([compiler(), "run", self.path, "--inputs", given, "-o", f"y=@{out}"], check=True)
        np.testing.assert_array_equal(np.load(out), one()(X))

    def test_pickles_by_its_path(self):
        one().save(self.path)
        model = tfmc.load(self.path)
        data = pickle.dumps(model)
        copy = pickle.loads(data)
        self.assertIs(pickle.loads(data), copy)
        np.testing.assert_array_equal(copy(X), one()(X))
        del copy
        pair().save(self.path)
        self.refused(tfmc.EnvError, "another model", pickle.loads, data)
        self.path.unlink()
        self.refused(tfmc.EnvError, "cannot be read", pickle.loads, data)

    def test_processes_share_the_file(self):
        one().save(self.path)
        import multiprocessing
        for way in ("spawn", "forkserver"):
            with multiprocessing.get_context(way).Pool(2) as workers:
                for result in workers.map(tfmc.load(self.path), [X] * 4):
                    np.testing.assert_array_equal(result, one()(X))

    def test_files_that_are_wrong(self):
        one().save(self.path)
        whole = self.path.read_bytes()

        def refused(data, words):
            self.path.write_bytes(data)
            self.refused(tfmc.EnvError, words, tfmc.load, self.path)
        for size in (4096, 8192, len(whole) // 2, len(whole) - 1):
            refused(whole[:size], "is damaged or was cut off")
        refused(b"", "is no .tfmm file")
        refused(b"PK" + whole[2:], "is no .tfmm file")
        refused(whole + b"\0", "is damaged or was cut off")
        refused(whole.replace(tfmc.__version__.encode() + b"\0", b"9.9.9\0", 1), "made by tfmc 9.9.9, this is")
        for at in range(8192, 8192 + 600, 67):
            refused(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1:], "is damaged or was cut off")
        refused(whole[:9] + bytes([whole[9] ^ 1]) + whole[10:], "is damaged, or was made by another build of tfmc")
        self.refused(tfmc.EnvError, "cannot be read", tfmc.load, self.path.parent / "none.tfmm")
        self.refused(tfmc.EnvError, "is no .tfmm file", tfmc.load, self.path.parent)
        self.refused(tfmc.EnvError, "cannot be written", one().save, self.path.parent / "no" / "one.tfmm")
        os.mkfifo(self.path.parent / "pipe.tfmm")
        self.refused(tfmc.EnvError, "is no .tfmm file", tfmc.load, self.path.parent / "pipe.tfmm")

    def test_one_bit_that_is_flipped_anywhere(self):
        """In the header, the code, the weights, and the zeroes between them."""
        one().save(self.path)
        whole = self.path.read_bytes()
        places = [*range(0, 700, 13), *random.Random(1).sample(range(len(whole)), 150), len(whole) - 1]
        for at in places:
            self.path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1:])
            with self.assertRaises(tfmc.EnvError, msg=f"byte {at}"):
                tfmc.load(self.path)
        self.path.write_bytes(whole)
        np.testing.assert_array_equal(tfmc.load(self.path)(X), one()(X))

    def test_replacing_a_mapped_file_does_no_harm(self):
        one().save(self.path)
        model = tfmc.load(self.path)
        pair().save(self.path)
        np.testing.assert_array_equal(model(X), one()(X))
        self.assertEqual(tfmc.load(self.path).name, "Pair")

    def test_a_writer_that_is_killed_leaves_a_whole_file_or_none(self):
        code = """
import sys, numpy as np, tfmc
from support import ONE
model = tfmc.compile(ONE, weights={"product.weight": np.ones((1024, 1024), np.float32)}, d=1024)
print("ready", flush=True)
while True: model.save(sys.argv[1])
"""
        delays = [random.random() * 0.05 for _ in range(100)] if LONG else (0.0, 0.004, 0.011, 0.03)
        for delay in delays:
            child = subprocess.Popen([sys.executable, "-c", code, str(self.path)], stdout=subprocess.PIPE,
                                     env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)})
            child.stdout.readline()
            time.sleep(delay)
            child.send_signal(signal.SIGKILL)
            child.communicate()
            if self.path.exists():
                x = np.ones((1, 1024), np.float32)
                self.assertEqual(tfmc.load(self.path)(x)[0, 0], 1024)

    def test_a_limit_on_files_is_an_error(self):
        import resource
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
            try:
                one().save(self.path)
            except tfmc.EnvError as error:
                os._exit(0 if "File too large" in str(error) and not list(self.path.parent.iterdir()) else 1)
            os._exit(2)
        self.assertEqual(os.waitpid(child, 0)[1], 0)


if __name__ == "__main__":
    unittest.main()
