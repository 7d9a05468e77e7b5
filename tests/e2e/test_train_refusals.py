#!/usr/bin/env python3
"""Bad inputs of training, X01 to X25 of its design: which test shows each (TABLE, whose names are looked up), and here those that
no other test shows: weight files that do not fit, a library whose memory ends, whose hooks fail, hang or call back, options of a run
that changed.

usage: test_train_refusals.py TFMC          The last line is 'N passed, N failed'.
"""
import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import tally
from tensor_files import write_tensors
from train_models import TINY

HERE = pathlib.Path(__file__).resolve().parent
GOLDENS, UNIT = "../goldens/train", "../unit/test_runtime_training.c"

# id: what is bad, and where it is shown: a test of a file, or the folder of a golden case
TABLE = {
    "X01": ("a label out of range", [(GOLDENS, "bad-train-label-high"), ("test_train_data.py", "test_data_that_do_not_fit"), ("test_train_library.py", "test_refusals")]),
    "X02": ("a negative label", [(GOLDENS, "bad-train-label-negative"), ("test_train_data.py", "test_labels_that_are_ignored_may_be_anything")]),
    "X03": ("no label counts", [(GOLDENS, "bad-train-labels-none"), ("test_train_library.py", "test_refusals"), (UNIT, "a_step_without_a_divisor_changes_nothing")]),
    "X04": ("a model without train", [(GOLDENS, "bad-train-no-block"), ("test_train.py", "test_a_model_without_train_is_what_it_was"),
                                      ("test_train_library.py", "test_models_that_do_not_train_are_refused")]),
    "X05": ("an unknown function, setting, optimizer, schedule", [(GOLDENS, "bad-train-unknown-function"), (GOLDENS, "bad-train-unknown-setting"),
                                                                  (GOLDENS, "bad-train-unknown-optimizer"), ("test_train_refusals.py", "test_settings")]),
    "X06": ("numbers out of range or NaN", [(GOLDENS, "bad-train-rate"), (GOLDENS, "bad-train-betas"), (GOLDENS, "bad-train-dropout"),
                                            ("test_train_refusals.py", "test_settings"), (UNIT, "settings_out_of_range_are_refused")]),
    "X07": ("a setting that the schedule lacks", [(GOLDENS, "bad-train-warmup-missing"), ("test_train.py", "test_settings")]),
    "X08": ("a loss that is not rank 0, not f32, not reached", [(GOLDENS, "bad-train-loss-shape"), (GOLDENS, "bad-train-loss-type"), (GOLDENS, "bad-train-loss-constant")]),
    "X09": ("items are mixed with an input that a part may have another of", [(GOLDENS, "bad-train-mixing-shared"), (GOLDENS, "bad-train-mixing-pairs")]),
    "X10": ("freeze or no_decay matches nothing; everything is frozen", [(GOLDENS, "bad-train-freeze"), ("test_train.py", "test_settings")]),
    "X11": ("two train blocks, one in a layer", [(GOLDENS, "bad-train-two-blocks"), (GOLDENS, "bad-train-in-layer")]),
    "X12": ("a weight without an initial value", [("test_train.py", "test_weights_without_initial_values"), ("test_train_refusals.py", "test_a_library_without_initial_values")]),
    "X13": ("xavier of one axis", [("../errors/training.tfm", "xavier and kaiming need two axes")]),
    "X14": ("a weight file that does not fit", [("test_train_refusals.py", "test_weight_files"), ("test_train_data.py", "test_some_weights_begin_anew"),
                                                ("test_train_library.py", "test_a_state_to_begin_with")]),
    "X15": ("data that do not fit", [("test_train_data.py", "test_data_that_do_not_fit"), ("test_train_data.py", "test_an_input_without_a_batch")]),
    "X16": ("a loss or norm that is not finite", [("test_train.py", "test_a_loss_that_is_not_finite"), ("test_train_data.py", "test_a_loss_that_is_not_finite"),
                                                  ("test_train_library.py", "test_refusals")]),
    "X17": ("a full disk, a folder that cannot be written, kills", [("test_train_data.py", "test_a_disk_that_is_full"),
                                                                    ("test_train_data.py", "test_a_folder_that_cannot_be_written"),
                                                                    ("test_train_data.py", "test_kills_leave_a_whole_checkpoint")]),
    "X18": ("a folder with another run; resumed with something else", [("test_train_data.py", "test_another_run_is_refused"),
                                                                       ("test_train_data.py", "test_a_run_that_begins_anew_in_part")]),
    "X19": ("a state that is damaged, of another version, of another model", [("test_train_data.py", "test_a_damaged_checkpoint"), ("test_train_library.py", "test_states")]),
    "X20": ("memory: the state, one item", [("test_train_data.py", "test_a_bound_of_memory"), ("test_train_refusals.py", "test_memory_that_ends")]),
    "X21": ("a hook fails or hangs, ranks disagree", [(UNIT, "ranks_that_fail_or_disagree"), ("test_train_refusals.py", "test_hooks")]),
    "X22": ("a trainer used twice at once, beyond its capacity", [("test_train_refusals.py", "test_hooks"), ("test_train_refusals.py", "test_steps_beyond_what_was_reserved")]),
    "X23": ("a ragged objective", [("test_train_refusals.py", "test_settings")]),
    "X24": ("an active path through an operation without a rule", [("test_train.py", "test_operations_without_a_gradient")]),
    "X25": ("another -D between save and load", [("test_train_library.py", "test_states"), ("test_train_data.py", "test_another_run_is_refused")]),
}


class Table(unittest.TestCase):
    def test_every_id_has_its_tests(self):
        self.assertEqual(list(TABLE), [f"X{i:02}" for i in range(1, 26)])
        for name, (_, shown) in TABLE.items():
            for file, what in shown:
                path = HERE / file
                self.assertTrue((path / what).is_dir() if path.is_dir() else what in path.read_text(), (name, file, what))


class Args(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("batch", ctypes.c_int64), ("time", ctypes.c_int64), ("ids", ctypes.c_void_p),
                ("labels", ctypes.c_void_p)]


class Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int32), ("message", ctypes.c_char * 512), ("reason", ctypes.c_int32), ("place", ctypes.c_char_p)]


ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
SUM = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32)


class Options(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("seed", ctypes.c_uint64), ("threads", ctypes.c_int32), ("spin", ctypes.c_int32),
                ("pool", ctypes.c_void_p), ("allocate", ALLOCATE), ("release", RELEASE), ("user", ctypes.c_void_p), ("settings", ctypes.c_void_p),
                ("rank", ctypes.c_int32), ("ranks", ctypes.c_int32), ("shards", ctypes.c_int32), ("sum", SUM), ("exchange", ctypes.c_void_p),
                ("hook_user", ctypes.c_void_p), ("fills", ctypes.c_int32)]


class Trains(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.work = pathlib.Path(self.folder.name)
        self.model()
        ids = [(5 * i + i // 7) % 7 for i in range(6)]
        self.ids, self.labels = (ctypes.c_int32 * 6)(*ids), (ctypes.c_int32 * 6)(*ids[::-1])
        self.part = Args(0, 2, 3, ctypes.addressof(self.ids), ctypes.addressof(self.labels))
        self.error = Error()
        lengths = {f"{name}.lengths": ("I32", [2], [3, 3]) for name in ("ids", "labels")}
        write_tensors(self.work / "d.safetensors", {"ids": ("I32", [6], ids), "labels": ("I32", [6], ids[::-1]), **lengths})

    def model(self, settings="lr = 0.1", change=lambda text: text):
        (self.work / "m.tfm").write_text(change(TINY).replace("SETTINGS", settings))

    def tfmc(self, *args, code=0):
        done = subprocess.run([TFMC, *args], cwd=self.work, capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr

    def library(self):
        self.tfmc("compile", "--training", "--quiet", "m.tfm", "-o", "libm.so")
        return ctypes.CDLL(str(self.work / "libm.so"))

    def new(self, lib, **more):
        trainer, options = ctypes.c_void_p(), Options(ctypes.sizeof(Options), 1, 1, **more)
        return lib.tiny_trainer_new(None, ctypes.byref(options), ctypes.byref(trainer), ctypes.byref(self.error)), trainer

    def step(self, lib, trainer):
        return lib.tiny_trainer_step(trainer, ctypes.byref(self.part), ctypes.c_int64(1), ctypes.c_int64(0), None, ctypes.byref(self.error))

    def weight(self, lib, trainer):
        data = ctypes.POINTER(ctypes.c_float)()
        self.assertEqual(lib.tiny_trainer_tensor(trainer, b"head.weight", 0, ctypes.byref(data), None, None, None), 0)
        return data[:28]

    def test_settings(self):
        for settings, words in [("lr = 0", "lr must be"), ("lr = inf", "lr must be"), ("lr = 0 / 0", "division of 0"), ("eps = 0", "eps must be"),
                                ("warmup = -1", "warmup must be"), ('optimizer = "sgd"  momentum = 1', "momentum must be"),
                                ("weight_decay = -1", "weight_decay must be"), ('schedule = "lin"', "linear"), ('schedule = "linar"', "has no value \"linar\", did you mean 'linear'? ["),
                                ('schedule = "zzz"', 'has no value "zzz"; it has constant, linear, cosine'),
                                ('schedul = "linear"', "has no setting 'schedul', did you mean 'schedule'? ["), ("zzz = 1", "has no setting 'zzz'; it has optimizer, lr,")]:
            self.model(settings)
            self.assertIn(words, self.tfmc("check", "m.tfm", code=1), settings)
        for old, new, words in [("train objective", "train objectve", "did you mean 'objective'"), ("Dropout(p)", "Dropout(1.5)", "p of dropout"),
                                ("ignore_index = 0", "ignore_index = 0, label_smoothing = 1.0", "label_smoothing must lie in [0, 1)"),
                                ("fn objective(ids: i32[batch, time]", "fn objective(ids: i32[batch, ragged time]", "ragged")]:
            self.model(change=lambda text: text.replace(old, new))
            self.assertIn(words, self.tfmc("check", "m.tfm", code=1), new)

    def test_weight_files(self):
        good = {"embed.weight": ("F32", [7, 4], [0.5] * 28), "head.weight": ("F32", [7, 4], [0.5] * 28), "head.bias": ("F32", [7], [0.5] * 7)}
        train = "train", "m.tfm", "--data=d.safetensors", "--out=o", "--steps=1", "--weights=w.safetensors"
        for change, words, more in [({"head.bias": None}, "head.bias", ()), ({"head.bias": ("F32", [8], [0] * 8)}, "head.bias", ()),
                                    ({"head.bias": ("I64", [7], [0] * 7)}, "head.bias", ()),
                                    ({"head.bias": ("F32", [7], [float("nan")] * 7)}, "head.bias", ("--reject-nonfinite",))]:
            write_tensors(self.work / "w.safetensors", {n: t for n, t in {**good, **change}.items() if t})
            self.assertIn(words, self.tfmc(*train, *more, code=1))
            self.assertIn(words, self.tfmc("pack", "--training", "m.tfm", "--weights=w.safetensors", "-o", "s.tfmt", *more, code=1))
            self.assertFalse((self.work / "o").exists() or (self.work / "s.tfmt").exists())
        write_tensors(self.work / "w.safetensors", {**good, "head.more": ("F32", [1], [0])})
        self.assertIn("head.more", self.tfmc(*train))
        self.assertIn("none.safetensors", self.tfmc(*train[:-1], "--weights=none.safetensors", code=3))

    def test_a_library_without_initial_values(self):
        self.model(change=lambda text: text.replace("  head  =", "  weight w: [d]\n  head  =").replace("ids -> embed -> Dropout(p) -> head", "head(embed(ids) * w)"))
        lib = self.library()
        self.assertEqual(self.new(lib)[0], 1)
        self.assertIn(b"'w' has no initial value", self.error.message)
        status, trainer = self.new(lib, fills=1)
        self.assertEqual(status, 0)
        lib.tiny_trainer_free(trainer)

    def test_memory_that_ends(self):
        """Each allocation fails in turn: the call says so, and the next one works as if nothing had happened."""
        lib, libc = self.library(), ctypes.CDLL(None)
        libc.aligned_alloc.restype = ctypes.c_void_p
        libc.free.argtypes = [ctypes.c_void_p]
        left = [0]

        def allocate(user, n, alignment):
            left[0] -= 1
            return libc.aligned_alloc(ctypes.c_size_t(alignment), ctypes.c_size_t(-(-n // alignment) * alignment)) if left[0] >= 0 else None
        hooks = {"allocate": ALLOCATE(allocate), "release": RELEASE(lambda user, memory, n: libc.free(memory))}
        failed = 0
        while True:
            left[0] = failed
            status, trainer = self.new(lib, **hooks)
            if not status:
                break
            self.assertEqual((status, trainer.value), (4, None))
            failed += 1
        self.assertGreater(failed, 2)
        before, failed = self.weight(lib, trainer), 0
        while True:
            left[0] = failed
            status = self.step(lib, trainer)
            if not status:
                break
            self.assertEqual(status, 4, self.error.message)
            self.assertEqual(self.weight(lib, trainer), before)
            failed += 1
        self.assertNotEqual(self.weight(lib, trainer), before)
        left[0] = 100
        lib.tiny_trainer_free(trainer)

    def test_hooks(self):
        """A sum that fails, one that calls the trainer it is called by, one during which the caller cancels: weights are as before."""
        lib, what, inner = self.library(), ["fail"], []

        def add(user, data, n, is_double):
            if what[0] == "again":
                inner.append((self.step(lib, trainer), self.error.message))
            if what[0] == "cancel":
                lib.tiny_trainer_cancel(trainer)
            return 3 if what[0] == "fail" else 0
        status, trainer = self.new(lib, ranks=2, sum=SUM(add))
        self.assertEqual(status, 0)
        keep = self.weight(lib, trainer)
        self.assertEqual(self.step(lib, trainer), 3)
        self.assertIn(b"sum, the function of the caller, failed", self.error.message)
        what[0] = "cancel"
        self.assertEqual(self.step(lib, trainer), 6)
        self.assertEqual(self.weight(lib, trainer), keep)
        what[0] = "again"
        self.assertEqual(self.step(lib, trainer), 0)
        self.assertEqual({status for status, _ in inner}, {2})
        self.assertIn(b"another thread is using this trainer", inner[0][1])
        self.assertNotEqual(self.weight(lib, trainer), keep)
        lib.tiny_trainer_free(trainer)

    def test_steps_beyond_what_was_reserved(self):
        lib = self.library()
        _, trainer = self.new(lib)
        _, other = self.new(lib)
        small = Args(0, 1, 1)
        self.assertEqual(lib.tiny_trainer_reserve(trainer, ctypes.byref(small), ctypes.byref(self.error)), 0)
        for t in (trainer, other):
            self.assertEqual(self.step(lib, t), 0)
        self.assertEqual(self.weight(lib, trainer), self.weight(lib, other))
        lib.tiny_trainer_free(trainer)
        lib.tiny_trainer_free(other)


if __name__ == "__main__":
    TFMC = os.path.abspath(sys.argv.pop(1))
    sys.exit(tally.run())
