"""Trainers: the bits of `tfmc train`, halves of steps, weights by name, checkpoints, models, and what is refused."""
import os
import pathlib
import pickle
import signal
import subprocess
import threading
import time

import numpy as np

import tfmc
from tfmc._find import compiler
from support import ONE, Case, python, resident

TINY = """model Tiny(d = 4) {
  embed = Embedding(7, d)
  norm = LayerNorm(d)
  head = Linear(d, 7)
  forward(ids: i32[batch, time]) { return logits = ids -> embed -> Dropout(0.1) -> norm -> head }
  fn objective(ids: i32[batch, time], labels: i32[batch, time]) {
    logits = forward(ids)
    return loss = cross_entropy(logits, labels, ignore_index = 0), right = sum(sum(f32(argmax(logits) == labels)))
  }
  %s
}
"""
TRAIN = 'train objective { lr = 0.05  clip_norm = 1  schedule = "cosine"  warmup = 2  steps = 9 }'
BATCHES = [{"ids": np.array(ids, np.int32), "labels": np.array(labels, np.int32)} for ids, labels in (
    ([[1, 2, 3], [4, 5, 6]], [[2, 3, 4], [5, 6, 1]]), ([[3, 1, 0]], [[1, 3, 0]]), ([[5, 5], [2, 6], [1, 0]], [[6, 1], [3, 0], [2, 0]]))]
BIG = """model Big(d = 1024) {
  a = Linear(d, d)
  b = Linear(d, d)
  forward(x: f32[batch, d]) { return y = x -> a -> relu -> b }
  fn objective(x: f32[batch, d]) { y = forward(x)  return loss = mean(mean((y - x) * (y - x))) }
  train objective { lr = 0.001 }
}
"""


def tiny(**named):
    return tfmc.Trainer(TINY % TRAIN, **named)


def tensors(path):
    """A safetensors file, read without the package."""
    import json
    data = pathlib.Path(path).read_bytes()
    n = int.from_bytes(data[:8], "little")
    kinds = {"F32": np.float32, "F64": np.float64, "I64": np.int64}
    read = {}
    for name, info in json.loads(data[8:8 + n]).items():
        begin, end = info.get("data_offsets", (0, 0))
        if name != "__metadata__":
            read[name] = np.frombuffer(data[8 + n + begin:8 + n + end], kinds[info["dtype"]]).reshape(info["shape"])
    return read


def write(path, arrays):
    """A safetensors file with arrays of any type, written without the package."""
    import json
    header, at = {}, 0
    for name, array in arrays.items():
        kind = {"float32": "F32", "int32": "I32", "int64": "I64", "bool": "BOOL"}[array.dtype.name]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(len(text).to_bytes(8, "little") + text + b"".join(a.tobytes() for a in arrays.values()))


def train(folder, text, batches, *options):
    """What `tfmc train` makes of these batches, in turn: the tensors of its -o."""
    source, data, out = (pathlib.Path(folder) / name for name in ("model.tfm", "batches.safetensors", "out.safetensors"))
    source.write_text(text)
    write(data, {f"{name}@{i}": array for i, batch in enumerate(batches) for name, array in batch.items()})
    subprocess.run([compiler(), "train", source, "--batches", data, "-o", out, "--gradients", *options], check=True,
                   capture_output=True)
    return tensors(out)


class Bits(Case):
    def same(self, trainer, wanted):
        for path, array in trainer.weights().items():
            np.testing.assert_array_equal(array.view(np.uint32), wanted[f"after.{path}"].view(np.uint32), path)

    def test_steps_have_the_bits_of_the_command(self):
        for train_block, more in ((TRAIN, []), ('train objective { optimizer = "sgd"  lr = 0.1  momentum = 0.9 }', []),
                                  ('train objective { lr = 0.01  freeze = ["embed.*"]  no_decay = ["*.bias"] }', ["lr=0.02"])):
            wanted = train(self.folder(), TINY % train_block, BATCHES, "--steps=7", "--seed=7", *(f"--set={s}" for s in more))
            for threads in (1, 2):
                settings = {"settings": {"lr": 0.02}} if more else {}
                trainer = tfmc.Trainer(TINY % train_block, seed=7, threads=threads, **settings)
                done = [trainer.step(BATCHES[i % 3]) for i in range(7)]
                self.same(trainer, wanted)
                for name, numbers in (("losses", [s.loss for s in done]), ("norms", [s.norm for s in done]),
                                      ("rates", [s.rate for s in done])):
                    np.testing.assert_array_equal(np.float32(numbers), wanted[name], name)
                self.assertEqual([s.step for s in done], list(range(1, 8)))
                self.assertEqual(list(done[0].results), ["loss", "right"])

    def test_parts_count_as_one_batch(self):
        wanted = train(self.folder(), TINY % TRAIN, BATCHES, "--steps=4", "--seed=3", "--accumulate=3")
        trainer = tiny(seed=3)
        for _ in range(4):
            trainer.step(parts=BATCHES)
        self.same(trainer, wanted)

    def test_halves_of_a_step(self):
        wanted = train(self.folder(), TINY % TRAIN, BATCHES[:1], "--steps=1", "--seed=3")
        whole, halves = tiny(seed=3), tiny(seed=3)
        whole.step(BATCHES[0])
        gradients = halves.gradients(**BATCHES[0])
        for path, array in gradients.items():
            np.testing.assert_array_equal(array, wanted[f"grad.{path}"], path)
        self.assertEqual(halves.steps, 0)
        self.assertEqual(halves.update().step, 1)
        for path in whole.weights():
            np.testing.assert_array_equal(whole.weight(path), halves.weight(path))
        self.refused(tfmc.UsageError, "gradients", halves.update)
        before = halves.weights()
        halves.gradients(BATCHES[0])
        halves.update({path: np.zeros_like(a) for path, a in gradients.items()})
        self.assertFalse(all((before[p] == halves.weight(p)).all() for p in before))  # moments go on
        halves.gradients(BATCHES[0])
        self.refused(tfmc.InputError, "the gradient of head.bias is [3], expected [7]", halves.update, {"head.bias": np.zeros(3)})

    def test_types_of_batches(self):
        """What a call of a model takes, a step takes: i64 ids, lists, arrays with gaps."""
        expected = tiny(seed=1).step(BATCHES[0])
        for change in (lambda a: a.astype(np.int64), lambda a: a.tolist(), lambda a: np.asfortranarray(a), lambda a: memoryview(a)):
            self.assertEqual(tiny(seed=1).step({name: change(a) for name, a in BATCHES[0].items()}), expected)

    def test_evaluation_has_no_dropout_and_changes_nothing(self):
        trainer = tiny(seed=2)
        before = trainer.weights()
        results = trainer.evaluate(BATCHES[0])
        self.assertEqual(results, trainer.evaluate(**BATCHES[0]))
        self.assertEqual(list(results), ["loss", "right"])
        logits = trainer.model()(BATCHES[0]["ids"]).astype(np.float64)
        scores = np.log(np.exp(logits).sum(-1)) - np.take_along_axis(logits, BATCHES[0]["labels"][..., None], -1)[..., 0]
        self.assertAlmostEqual(results["loss"], scores.mean(), 6)
        for path, array in before.items():
            np.testing.assert_array_equal(array, trainer.weight(path))
        whole = trainer.evaluate(parts=BATCHES)
        counts = [(b["labels"] != 0).sum() for b in BATCHES]
        self.assertAlmostEqual(whole["loss"], sum(trainer.evaluate(b)["loss"] * n for b, n in zip(BATCHES, counts)) / sum(counts), 6)


class Weights(Case):
    def test_load_state_dict_is_strict_both_ways(self):
        trainer, other = tiny(seed=1), tiny(seed=2)
        state = other.state_dict()
        self.assertEqual(list(state), ["embed.weight", "norm.weight", "norm.bias", "head.weight", "head.bias"])
        before = trainer.weights()
        wrong = [({k: v for k, v in state.items() if k != "norm.bias"}, "the weight 'norm.bias' is missing"),
                 ({**state, "more": state["head.bias"]}, "there is no weight 'more'"),
                 ({**state, "head.bias": np.zeros(8, np.float32)}, "the weight head.bias is [8], expected [7]"),
                 ({**state, "head.bias": np.zeros((1, 7), np.float32)}, "the weight head.bias is [1, 7], expected [7]"),
                 ({**state, "head.bias": np.zeros(7)}, "the weight head.bias is float64, expected float32"),
                 ({**state, "head.bias": np.zeros(7, np.int32)}, "the weight head.bias is int32")]
        for given, words in wrong:
            self.refused(tfmc.InputError, words, trainer.load_state_dict, given)
            for path, array in before.items():
                np.testing.assert_array_equal(array, trainer.weight(path))
        trainer.load_state_dict({"norm.bias": state["norm.bias"], "more": 3}, strict=False)
        trainer.load_state_dict(state)
        for path, array in state.items():
            np.testing.assert_array_equal(array, trainer.weight(path))

    def test_state_dict_is_a_copy_and_weight_is_the_memory(self):
        trainer = tiny(seed=1)
        copy, own = trainer.state_dict()["head.bias"], trainer.weight("head.bias")
        trainer.step(BATCHES[0])
        self.assertFalse(np.array_equal(copy, own))
        own[:] = 0
        np.testing.assert_array_equal(trainer.state_dict()["head.bias"], np.zeros(7))
        del trainer
        own[:] = 1  # it keeps the trainer alive
        np.testing.assert_array_equal(own, np.ones(7))

    def test_weights_to_begin_with(self):
        state = tiny(seed=5).state_dict()
        trainer = tiny(weights=state, seed=1)
        for path, array in state.items():
            np.testing.assert_array_equal(array, trainer.weight(path))
        source = tfmc.Source(TINY % TRAIN, state)
        np.testing.assert_array_equal(tfmc.Trainer(source).weight("head.weight"), state["head.weight"])
        self.refused(tfmc.CompileError, "norm.bias", tiny, weights={k: v for k, v in state.items() if k != "norm.bias"})

    def test_what_is_frozen_is_not_trained(self):
        trainer = tiny(freeze=["embed.*", "norm.*"])
        self.assertEqual(trainer.trained, ("head.weight", "head.bias"))
        before = trainer.weights()
        self.assertEqual(list(trainer.gradients(BATCHES[0])), ["head.weight", "head.bias"])
        trainer.update()
        changed = [p for p in before if not np.array_equal(before[p], trainer.weight(p))]
        self.assertEqual(changed, ["head.weight", "head.bias"])
        self.refused(tfmc.InputError, "no trained weight 'norm.bias'", trainer.gradient, "norm.bias")
        self.refused(tfmc.InputError, "no weight 'x'", trainer.weight, "x")

    def test_the_model_keeps_its_weights(self):
        trainer = tiny(seed=1)
        model = trainer.model()
        before = model(BATCHES[0]["ids"])
        compiled = tfmc.compile(TINY % TRAIN, weights=trainer.weights())
        np.testing.assert_array_equal(before, compiled(BATCHES[0]["ids"]))
        trainer.step(BATCHES[0])
        np.testing.assert_array_equal(before, model(BATCHES[0]["ids"]))
        self.assertFalse(np.array_equal(before, trainer.model()(BATCHES[0]["ids"])))
        self.refused(tfmc.UsageError, "weights=trainer.state_dict()", model.save, "x.tfmm")
        self.refused(tfmc.UsageError, "belongs to a trainer", pickle.dumps, model)
        del trainer
        np.testing.assert_array_equal(before, model(BATCHES[0]["ids"]))


class Checkpoints(Case):
    def test_resuming_has_the_bits_of_going_on(self):
        folder = pathlib.Path(self.folder())
        trainer = tiny(seed=4)
        for i in range(3):
            trainer.step(BATCHES[i])
        path = trainer.save(folder / "run", note=b"a\0b")
        self.assertEqual((path.name, sorted(p.name for p in path.iterdir())), ("step-00000003", ["state.tfmt", "weights.safetensors"]))
        later = [trainer.step(b) for b in BATCHES]
        for place in (path, path / "state.tfmt", folder / "run"):
            again = tfmc.Trainer.resume(place, TINY % TRAIN, threads=1)
            self.assertEqual((again.steps, again.note), (3, b"a\0b"))
            self.assertEqual([again.step(b) for b in BATCHES], later)
        for name, array in tensors(path / "weights.safetensors").items():
            self.assertEqual(array.dtype, np.float32, name)
        self.refused(tfmc.EnvError, "another model", tfmc.Trainer.resume, path, TINY % TRAIN, config={"d": 8})
        self.refused(tfmc.EnvError, "holds no checkpoint", tfmc.Trainer.resume, folder, TINY % TRAIN)
        damaged = bytearray((path / "state.tfmt").read_bytes())
        damaged[len(damaged) // 2] ^= 1
        (path / "state.tfmt").write_bytes(damaged)
        self.refused(tfmc.EnvError, "damaged", tfmc.Trainer.resume, path, TINY % TRAIN)
        self.refused(tfmc.UsageError, "not bytes", trainer.save, folder, note="text")

    def test_a_checkpoint_of_the_command(self):
        folder = pathlib.Path(self.folder())
        (folder / "model.tfm").write_text(TINY % TRAIN)
        write(folder / "data.safetensors", {"ids": np.arange(1, 7, dtype=np.int32), "ids.lengths": np.array([3, 3], np.int32),
                                            "labels": np.arange(6, 0, -1).astype(np.int32), "labels.lengths": np.array([3, 3], np.int32)})
        subprocess.run([compiler(), "train", folder / "model.tfm", "--data", folder / "data.safetensors", "--out", folder / "run",
                        "--steps=4", "--batch-items=2"], check=True, capture_output=True)
        trainer = tfmc.Trainer.resume(folder / "run", folder / "model.tfm")
        self.assertEqual((trainer.steps, trainer.note), (4, None))
        for path, array in tensors(folder / "run/weights.safetensors").items():
            np.testing.assert_array_equal(array, trainer.weight(path))
        trainer.step(BATCHES[0])

    def test_what_was_compiled_before(self):
        folder = pathlib.Path(self.folder())
        (folder / "model.tfm").write_text(TINY % TRAIN)
        expected = [tiny(seed=4).step(b) for b in BATCHES[:1]]
        subprocess.run([compiler(), "compile", "--training", folder / "model.tfm", "-o", folder / "libmodel.so"], check=True, capture_output=True)
        self.assertEqual(tiny().save_compiled(folder / "model.tfmm"), folder / "model.tfmm")
        self.refused(tfmc.UsageError, "copy its file", tfmc.Trainer(folder / "libmodel.so").save_compiled, folder / "x.tfmm")
        for name in ("model.tfmm", "libmodel.so"):
            self.assertEqual([tfmc.Trainer(folder / name, seed=4).step(b) for b in BATCHES[:1]], expected)
            self.refused(tfmc.UsageError, "settings= is for texts", tfmc.Trainer, folder / name, lr=0.1)
        self.refused(tfmc.EnvError, "tfmc.Trainer", tfmc.load, folder / "model.tfmm")
        (folder / "one.tfm").write_text(ONE)
        for name in ("one.tfmm", "libone.so"):
            tfmc.build(tfmc.Source(ONE), folder / name, weights=None) if name.endswith("so") else tfmc.compile(
                ONE, weights={"product.weight": np.zeros((4, 4), np.float32)}).save(folder / name)
            self.refused(tfmc.EnvError, "compiled without --training", tfmc.Trainer, folder / name)


class Settings(Case):
    def test_settings_take_the_place_of_the_block(self):
        trainer = tiny(lr=1e-4, schedule="linear", betas=(0.8, 0.9), no_decay=["*.bias"], steps=20, clip_norm=None)
        found = {name: trainer.settings[name] for name in ("lr", "schedule", "betas", "steps", "clip_norm", "warmup")}
        self.assertEqual(found, {"lr": 1e-4, "schedule": "linear", "betas": (0.8, 0.9), "steps": 20, "clip_norm": 0, "warmup": 2})
        for settings, words in (({"lr": -1}, "lr"), ({"optimiser": "adam"}, "optimiser"), ({"schedule": "circle"}, "circle"),
                                ({"gamma": 0.5}, "gamma"), ({"freeze": ["nothing.*"]}, "nothing.*")):
            self.refused(tfmc.CompileError, words, tiny, **settings)
        self.refused(tfmc.UsageError, "the setting lr is of type dict", tiny, lr={})

    def test_an_objective_of_its_own(self):
        text = TINY % ""
        self.refused(tfmc.CompileError, "no train block", tfmc.Trainer, text)
        trainer = tfmc.Trainer(text, objective="""
          fn twice(ids: i32[batch, time], labels: i32[batch, time]) { return loss = 2.0 * cross_entropy(forward(ids), labels) }
          train twice { }""", lr=0.01)
        self.assertEqual(trainer.results, ("loss",))
        self.refused(tfmc.UsageError, "last brace", tfmc.Trainer, "fn f(x) { return x }\nweight w", objective="train f { }")

    def test_sizes_and_memory(self):
        trainer = tiny()
        self.assertGreater(trainer.bytes(batch=64, time=100), trainer.bytes(batch=1, time=2))
        self.refused(tfmc.UsageError, "the sizes are batch, time", trainer.bytes, batch=3)


class Refusals(Case):
    def test_batches_that_are_wrong_change_nothing(self):
        trainer = tiny(seed=1)
        before, batch = trainer.weights(), BATCHES[0]
        wrong = [(tfmc.UsageError, {"ids": batch["ids"]}, 'missing is input "labels"'),
                 (tfmc.UsageError, {**batch, "more": 1}, 'there is no input "more"'),
                 (tfmc.InputError, {**batch, "ids": np.full((2, 3), 7)}, "7"),
                 (tfmc.InputError, {**batch, "labels": np.full((2, 3), 7)}, "7"),
                 (tfmc.InputError, {**batch, "labels": np.ones((2, 4), int)}, "time"),
                 (tfmc.InputError, {**batch, "ids": np.ones((2, 3), np.float32)}, "float32"),
                 (tfmc.InputError, {**batch, "labels": np.zeros((2, 3), int)}, "counts"),
                 (tfmc.InputError, {**batch, "ids": np.full((2, 3), 1 << 40)}, "does not fit")]
        for kind, given, words in wrong:
            calls = (trainer.step, trainer.gradients, trainer.evaluate)
            for call in calls[words == "counts":]:  # such a step is skipped: test_trainer_options
                with self.subTest(words=words, call=call.__name__):
                    self.refused(kind, words, call, given)
        self.refused(tfmc.UsageError, "not both", trainer.step, batch, parts=[batch])
        self.refused(tfmc.UsageError, "no parts", trainer.step, parts=[])
        self.assertEqual(trainer.steps, 0)
        for path, array in before.items():
            np.testing.assert_array_equal(array, trainer.weight(path))
        trainer.step(batch)

    def test_a_step_that_is_not_finite(self):
        trainer = tfmc.Trainer(BIG, config={"d": 8})
        trainer.weight("a.bias")[:] = np.inf
        error = self.refused(tfmc.Diverged, "", trainer.step, x=np.ones((2, 8), np.float32))
        self.assertIsInstance(error, ArithmeticError)
        self.assertEqual((error.status, error.step, trainer.steps), ("diverged", 1, 0))

    def test_trainers_are_not_pickled_and_seeds_have_a_range(self):
        self.refused(tfmc.UsageError, "save() it", pickle.dumps, tiny())
        for seed in (-1, 1 << 64):
            self.refused(tfmc.UsageError, "seed is", tiny, seed=seed)

    def test_one_thread_at_a_time(self):
        trainer, x = tfmc.Trainer(BIG), np.ones((512, 1024), np.float32)
        begun, errors = threading.Barrier(2), []

        def work():
            begun.wait()
            for _ in range(3):
                try:
                    trainer.step(x=x)
                except tfmc.UsageError as error:
                    errors.append(str(error))
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(trainer.steps, 6 - len(errors))
        self.assertEqual(set(errors) - {"another thread is using this trainer"}, set())

    def test_interrupting_a_step(self):
        """Ctrl-C: the weights are as before. A handler that does not raise: the step is done."""
        trainer, x = tfmc.Trainer(BIG, seed=1), np.random.default_rng(1).normal(size=(6000, 1024)).astype(np.float32)
        interrupted = 0
        trainer.step(x=x)
        began = time.monotonic()
        trainer.step(x=x)
        half, before = (time.monotonic() - began) / 2, trainer.weights()
        for k in range(40):  # until one comes in the middle of a step
            steps = trainer.steps
            timer = threading.Timer(half * (1 + k % 4) / 3, os.kill, (os.getpid(), signal.SIGINT))
            try:
                timer.start()
                trainer.step(x=x)
                timer.join()
            except KeyboardInterrupt:
                if trainer.steps == steps:
                    interrupted = 1
                    break
            before = trainer.weights()
        self.assertTrue(interrupted)
        for path, array in before.items():
            np.testing.assert_array_equal(array, trainer.weight(path))
        seen, usual = [], signal.signal(signal.SIGINT, lambda *_: seen.append(1))
        try:
            timer = threading.Timer(half, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            trainer.step(x=x)
            timer.join()
        finally:
            signal.signal(signal.SIGINT, usual)
        self.assertEqual((seen, trainer.steps), ([1], steps + 1))

    def test_in_the_child_of_a_fork(self):
        """Its threads stayed behind: refused, and nothing hangs."""
        print(python(f"""
import os, sys, numpy as np, tfmc
trainer = tfmc.Trainer({BIG!r}, config={{"d": 8}}, threads=2)
x = np.ones((2, 8), np.float32)
trainer.step(x=x)
if os.fork() == 0:
    try:
        trainer.step(x=x)
    except tfmc.UsageError as error:
        ok = "make a trainer in the child" in str(error)
        tfmc.Trainer({BIG!r}, config={{"d": 8}}).step(x=x)
        del trainer
        os._exit(0 if ok else 3)
    os._exit(4)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
trainer.step(x=x)
"""))

    def test_steps_leave_nothing_behind(self):
        trainer = tiny(threads=1)
        for _ in range(200):
            trainer.step(BATCHES[0])
        before = resident()
        for i in range(10000):
            trainer.step(BATCHES[i % 3])
        for i in range(20):
            trainer.model()(BATCHES[0]["ids"])
            trainer.weight("head.bias")
        self.assertLess(resident() - before, 4 << 20)
