"""Trainer's memory=, recompute=, new=, average=, evaluations of data sets, gradients without dropout, steps without labels."""
import pathlib

import numpy as np

import tfmc
from support import Case, resident
from test_fit import ITEMS, TRAIN, Table, as_file, trainer
from test_trainer import BATCHES, TINY, tensors, tiny

WIDE = """model Wide(d = 256) {
  a = Linear(d, 4 * d)
  b = Linear(4 * d, d)
  forward(x: f32[batch, d]) { return y = x -> a -> gelu -> b }
  fn objective(x: f32[batch, d]) { y = forward(x)  return loss = mean(mean((y - x) * (y - x))) }
  train objective { lr = 0.001 }
}
"""
X = np.random.default_rng(3).normal(size=(64, 256)).astype(np.float32)


class Memory(Case):
    def test_steps_keep_to_a_bound(self):
        free = tfmc.Trainer(WIDE, seed=1)
        whole, state = free.bytes(batch=64), free.state_bytes
        self.assertLess(state, whole)
        bound = free.bytes(batch=12)
        cut = tfmc.Trainer(WIDE, seed=1, memory=bound)
        self.assertEqual(cut.memory, bound)
        one, other = free.step(x=X), cut.step(x=X)
        self.assertAlmostEqual(one.loss, other.loss, 6)
        for path in free.trained:
            np.testing.assert_allclose(free.weight(path), cut.weight(path), atol=1e-6)
        self.assertAlmostEqual(free.evaluate(x=X)["loss"], cut.evaluate(x=X)["loss"], 6)
        from tfmc import _room
        parts = _room.fitting(cut, ((X,),))
        self.assertGreater(len(parts), 2)
        np.testing.assert_array_equal(np.concatenate([part[0] for part in parts]), X)
        self.assertTrue(all(cut._bytes((part[0].shape,)) <= bound for part in parts))

    def test_negatives_come_from_the_whole_batch(self):
        text = """model Pairs(d = 16) {
          a = Linear(d, 512)
          b = Linear(512, d)
          forward(x: f32[batch, d]) { return y = x -> a -> gelu -> b }
          fn objective(x: f32[batch, d], z: f32[batch, d]) {
            return loss = multiple_negatives_ranking_loss(forward(x), forward(z))
          }
          train objective { lr = 0.01 }
        }"""
        x, z = X[:, :16], X[:, 16:32]
        free = tfmc.Trainer(text, seed=1)
        needed = free._mixture_bytes(((64, 16), (64, 16))) + free.bytes(batch=10)
        self.assertGreater(needed, free.bytes(batch=10))
        self.assertLess(needed, free.bytes(batch=64))
        cut = tfmc.Trainer(text, seed=1, memory=needed)
        self.assertLess(abs(free.step(x=x, z=z).loss - cut.step(x=x, z=z).loss), 1e-5)

    def test_bounds_that_are_too_small(self):
        state = tfmc.Trainer(WIDE).state_bytes
        self.refused(tfmc.UsageError, f"take {state} bytes", tfmc.Trainer, WIDE, memory=state - 1)
        self.refused(tfmc.InputError, "an item of this batch takes", tfmc.Trainer(WIDE, memory=state + 8).step, x=X)
        for wrong in (0, 1.5, True, "1G"):
            self.refused(tfmc.UsageError, f"memory is {wrong!r}", tfmc.Trainer, WIDE, memory=wrong)
        self.refused(tfmc.InputError, "expected", tfmc.Trainer(WIDE, memory=1 << 30).step, x=X[0])

    def test_recompute_has_the_same_bits(self):
        results = {}
        for word in (None, "none", "cheap", "layer"):
            run = tiny(seed=2, recompute=word)
            run.step(BATCHES[0])
            results[word] = b"".join(array.tobytes() for array in run.weights().values())
        self.assertEqual(len(set(results.values())), 1)
        self.refused(tfmc.UsageError, "recompute is 'all'", tiny, recompute="all")

    def test_weights_that_it_began_with_are_freed(self):
        text = "model Big(d = 3000) { a = Linear(d, d)  forward(x: f32[batch, d]) { return y = a(x) }\n" \
               "fn objective(x: f32[batch, d]) { return loss = mean(mean(forward(x))) }\n" \
               'train objective { optimizer = "sgd"  lr = 1e-3 } }'
        weights = {"a.weight": np.ones((3000, 3000), np.float32), "a.bias": np.zeros(3000, np.float32)}
        before = resident()
        run = tfmc.Trainer(text, weights=weights)
        self.assertLess(resident() - before, 1.6 * 36e6)  # once, not twice
        folder = pathlib.Path(self.folder())
        run.step(x=np.ones((2, 3000), np.float32))
        again = tfmc.Trainer(run.save_compiled(folder / "x.tfmm"))
        np.testing.assert_array_equal(again.weight("a.weight"), run.weight("a.weight"))
        self.assertFalse(np.array_equal(again.weight("a.weight"), weights["a.weight"]))
        self.assertEqual(again.steps, 0)


class Odd(Case):
    """What is no path, name, number or word of any kind is refused with the option's name."""

    def test_texts_that_no_file_is_called(self):
        run, text = tiny(), TINY % TRAIN
        for wrong in ("", "\0", "a\0b"):
            for name, call in (("compiler", lambda w: tiny(compiler=w)), ("folder", run.save), ("folder", run.save_adapter), ("path", run.save_compiled),
                               ("folder", lambda w: tfmc.Trainer.resume(w, text)), ("data", run.evaluate), ("train", run.fit),
                               ("out", lambda w: run.fit(ITEMS, out=w, epochs=1, batch_items=4))):
                with self.subTest(name=name, wrong=wrong):
                    self.refused(tfmc.UsageError, f"{name} is {wrong!r}, which no file is called", call, wrong)
        self.refused(tfmc.UsageError, "the source is '\\x00'", tfmc.Trainer, "\0")

    def test_words_and_names(self):
        run = tiny()
        for name in ("batch_items", "batch_tokens"):
            self.refused(tfmc.UsageError, f"{name} is", run.evaluate, ITEMS, **{name: "\0"})
        for name in ("empty_batches", "epochs", "keep", "log_every", "memory", "order", "recompute"):
            self.refused(tfmc.UsageError, f"{name}", run.fit, ITEMS, out=pathlib.Path(self.folder()) / "r", **{"batch_items": 4, name: "\0"})
        for call in (run.weight, run.gradient):
            self.refused(tfmc.InputError, "there is no", call, "a\0b")
        self.refused(tfmc.UsageError, "weights= names 3", tiny, weights={3: np.zeros(4, np.float32)})
        self.refused(tfmc.UsageError, "the size batch is", run.bytes, batch=1 << 70, time=3)


class New(Case):
    def test_new_weights_have_their_initial_values(self):
        state = tiny(seed=5).state_dict()
        given = {name: value for name, value in state.items() if not name.startswith("head.")}
        run, fresh = tiny(weights=given, new=["head.*"], seed=8), tiny(seed=8)
        for path in run.weights():
            np.testing.assert_array_equal(run.weight(path), (fresh if path.startswith("head.") else tiny(seed=5)).weight(path))
        whole = tiny(weights=state, new="head.*", seed=8)
        np.testing.assert_array_equal(whole.weight("head.weight"), fresh.weight("head.weight"))
        self.refused(tfmc.CompileError, "head", tiny, weights=given)
        self.refused(tfmc.UsageError, 'no weight of the objective is called "tail.*"', tiny, weights=state, new=["tail.*"])
        self.refused(tfmc.UsageError, "without any all of them are new", tiny, new=["head.*"])
        self.refused(tfmc.UsageError, "new are patterns of paths", tiny, weights=state, new=[3])


class Chosen(Case):
    """Settings that choose weights by patterns."""

    def test_rates(self):
        """A step has, for each weight, the bits of a step with its own learning rate; of two patterns the later one counts."""
        for more in ({}, {"optimizer": "sgd", "momentum": 0.9, "weight_decay": 0.1}, {"clip_norm": 0.01}):
            made = {}
            for name, lr, rates in (("all", 0.01, [["*", 7], ["head.*", 3], ["head.bias", 0.5]]), (7, 0.01 * 7, []), (3, 0.01 * 3, []), (0.5, 0.01 * 0.5, [])):
                trainer = tfmc.Trainer(TINY % TRAIN, seed=1, settings={"schedule": None, "warmup": None, "steps": None, **more}, lr=lr, rates=rates)
                trainer.step(BATCHES[0])
                made[name] = trainer.weights()
            for path, array in made["all"].items():
                factor = 0.5 if path == "head.bias" else 3 if path == "head.weight" else 7
                np.testing.assert_array_equal(array, made[factor][path], f"{path} {more}")
                self.assertFalse(np.array_equal(array, made[3 if factor != 3 else 7][path]))

    def test_train_only_is_the_other_side_of_freeze(self):
        only, frozen = (tfmc.Trainer(TINY % TRAIN, seed=1, **s) for s in ({"train_only": ["head.*", "norm.bias"]}, {"freeze": ["embed.*", "norm.weight"]}))
        self.assertEqual(only.trained, ("norm.bias", "head.weight", "head.bias"))
        for _ in range(3):
            self.assertEqual(only.step(BATCHES[0]), frozen.step(BATCHES[0]))
        for path, array in only.weights().items():
            np.testing.assert_array_equal(array, frozen.weight(path), path)
        both = tfmc.Trainer(TINY % TRAIN, train_only=["head.*", "norm.bias"], freeze=["head.bias"])
        self.assertEqual(both.trained, ("norm.bias", "head.weight"))

    def test_runs_know_them(self):
        """A run goes on with the same rates alone."""
        folder = pathlib.Path(self.folder())
        items = [{"ids": [1, 2], "labels": [2, 3]}] * 4
        run = {"batch_items": 2, "out": folder / "run"}
        tfmc.Trainer(TINY % TRAIN, rates=[["head.*", 3]]).fit(items, epochs=1, **run)
        for wrong in ({}, {"rates": [["head.*", 2]]}, {"rates": [["head.*", 3]], "train_only": ["head.*"]}):
            self.refused(tfmc.Error, "", tfmc.Trainer(TINY % TRAIN, **wrong).fit, items, epochs=2, resume=True, **run)
        self.assertEqual(tfmc.Trainer(TINY % TRAIN, rates=[["head.*", 3]]).fit(items, epochs=2, resume=True, **run).stopped, "end")

    def test_what_is_refused(self):
        for settings, words in (({"rates": [["none.*", 2]]}, 'rates: no weight that is trained matches "none.*"'),
                                ({"rates": [["head.*", 2]], "freeze": ["head.*"]}, "no weight that is trained"),
                                ({"rates": [["head.*", 0]]}, "greater than 0"), ({"rates": ["head.*"]}, "list of patterns with their numbers"),
                                ({"rates": [["head.*", 1, 2]]}, "list of patterns with their numbers"), ({"rates": 3}, "list of patterns"),
                                ({"train_only": ["none.*"]}, 'train_only: no weight that is trained matches "none.*"'),
                                ({"train_only": ["head.bias"], "freeze": ["head.*"]}, "train_only"), ({"train_only": "head"}, "train_only"),
                                ({"train_only": []}, "nothing would be trained: leave it out, or write none")):
            with self.subTest(words=words):
                self.refused(tfmc.CompileError, words, tfmc.Trainer, TINY % TRAIN, **settings)


class Kinds(Case):
    def test_of_another_kind(self):
        """They are errors of tfmc's that name the option, and not what Python says of what it was used for."""
        pair, run = np.array([1, 2]), tiny()
        for name, values in {"weights": (3, 1.5, True, [], pair, ("a", 1)), "recompute": (pair, ["cheap"]), "shards": (10**30, 0, 1.5),
                             **dict.fromkeys(("lr", "schedule", "clip_norm", "optimizer"), (pair, object()))}.items():
            for value in values:
                with self.subTest(name, value=value):
                    self.refused(tfmc.UsageError, name, tiny, **{name: value})
        for value in (3, True, [None], ("a", 1), pair, object()):
            self.refused(tfmc.UsageError, "quantize is", run.model, quantize=value)
        self.refused(tfmc.UsageError, "epoch is", setattr, run, "epoch", 10**30)

    def test_modules_that_are_none(self):
        try:
            import torch  # noqa: F401
        except ImportError:
            self.skipTest("without torch")
        for value in (None, 3, {}, "module", np.array([1, 2])):
            self.refused(tfmc.UsageError, "module is of type", tiny().to_torch, value)


class Average(Case):
    def test_the_mean_is_that_of_the_formula(self):
        run = tiny(seed=3, average=0.5)
        self.assertTrue(run.has_average)
        mean, double = run.weights(), {p: w.astype(np.float64) for p, w in run.weights().items()}
        for path, array in run.weights(average=True).items():
            np.testing.assert_array_equal(array, mean[path])  # before the first step
        for step in range(1, 8):
            run.step(BATCHES[step % 3])
            share = 1 - min(0.5, (step + 1) / (step + 10))
            for path in double:
                double[path] += share * (run.weight(path) - double[path])
        now = run.weights()
        for path, array in run.weights(average=True).items():
            np.testing.assert_allclose(array, double[path], atol=1e-6)
            np.testing.assert_array_equal(run.weight(path), now[path])  # they are where they were
        self.assertFalse(np.array_equal(now["head.weight"], run.state_dict(average=True)["head.weight"]))
        plain = tiny(seed=3)
        for step in range(1, 8):
            plain.step(BATCHES[step % 3])
        np.testing.assert_array_equal(plain.weight("head.weight"), now["head.weight"])  # training does not look at it
        x = BATCHES[0]["ids"]
        np.testing.assert_array_equal(run.model(average=True)(x), tfmc.compile(TINY % TRAIN, weights=run.weights(average=True))(x))
        self.assertNotEqual(run.evaluate(BATCHES[0]), run.evaluate(BATCHES[0], average=True))

    def test_checkpoints_hold_it(self):
        folder, run, other = pathlib.Path(self.folder()), tiny(seed=3, average=0.9), tiny(seed=3, average=0.9)
        for step in range(5):
            run.step(BATCHES[step % 3])
            if step < 2:
                other.step(BATCHES[step % 3])
        path = other.save(folder)
        saved = tensors(path / "average.safetensors")
        self.assertEqual({n: a.tobytes() for n, a in saved.items()}, {n: a.tobytes() for n, a in other.weights(average=True).items()})
        again = tfmc.Trainer.resume(folder, TINY % TRAIN_OF_TINY, average=0.9)
        for step in range(2, 5):
            again.step(BATCHES[step % 3])
        for path in run.weights():
            np.testing.assert_array_equal(run.weights(average=True)[path], again.weights(average=True)[path])
        begun = tfmc.Trainer.resume(folder, TINY % TRAIN_OF_TINY)
        self.assertFalse(begun.has_average)
        self.refused(tfmc.UsageError, "average=0.999", begun.model, average=True)
        self.refused(tfmc.CompileError, ["average", "[0, 1)"], tiny, average=1.5)


class Evaluations(Case):
    def test_a_data_set_is_the_whole_of_its_items(self):
        run = trainer()
        parts = [{name: rows[None] for name, rows in item.items()} for item in ITEMS]
        whole = run.evaluate(parts=parts)
        columns = {name: [item[name] for item in ITEMS] for name in ("ids", "labels")}
        folder = pathlib.Path(self.folder())
        as_file(folder / "x.safetensors", ITEMS)
        for data, more in ((ITEMS, {}), (ITEMS, {"batch_items": 5}), (columns, {"batch_tokens": 40}), (Table(columns), {}),
                           ([tuple(item.values()) for item in ITEMS], {}), (folder / "x.safetensors", {}), (iter(parts), {})):
            found = run.evaluate(data, **more)
            self.assertEqual(list(found), ["loss", "right"])
            for name in whole:
                self.assertAlmostEqual(found[name], whole[name], 5)
        self.refused(tfmc.UsageError, "are for items", run.evaluate, parts[0], pad={"ids": 0})
        self.refused(tfmc.UsageError, "as they are", run.evaluate, iter(parts), batch_items=2)
        self.refused(tfmc.InputError, "no items", run.evaluate, [])
        path = run.save_compiled(folder / "x.tfmm")
        self.refused(tfmc.UsageError, "takes batches alone", tfmc.Trainer(path).evaluate, ITEMS)

    def test_gradients_without_dropout(self):
        run = tiny(seed=2)
        with_dropout = {p: g.copy() for p, g in run.gradients(BATCHES[0]).items()}
        found = run.gradients(BATCHES[0], dropout=False)
        text = (TINY % TRAIN_OF_TINY).replace("-> Dropout(0.1) ", "")
        plain = tfmc.Trainer(text, weights=run.weights()).gradients(BATCHES[0])
        for path in plain:
            np.testing.assert_array_equal(found[path], plain[path])
        self.assertFalse(np.array_equal(found["head.weight"], with_dropout["head.weight"]))
        run.gradients(BATCHES[0])
        run.update(found)
        again = run.gradients(BATCHES[0], dropout=False)
        self.assertFalse(np.array_equal(found["head.weight"], again["head.weight"]))  # those of now
        other = tiny(seed=2, dropout=False)
        self.assertEqual(other.step(BATCHES[0]).loss, np.float32(tiny(seed=2).evaluate(BATCHES[0])["loss"]))

    def test_a_step_without_labels_is_skipped(self):
        run = tiny(seed=2)
        before = run.weights()
        result = run.step(ids=[[1, 2]], labels=[[0, 0]])
        self.assertTrue(result.skipped and np.isnan(result.loss) and list(result.results) == ["loss", "right"])
        self.assertEqual((result.step, run.steps), (0, 0))
        for path, array in before.items():
            np.testing.assert_array_equal(array, run.weight(path))
        done = run.step(BATCHES[0])
        self.assertEqual((done.skipped, done.step), (False, 1))
        self.assertEqual(done, tiny(seed=2).step(BATCHES[0]))

    def test_a_model_of_fewer_bits(self):
        run = tfmc.Trainer(WIDE, seed=1)
        run.step(x=X)
        wanted = tfmc.compile(WIDE, weights=run.weights(), quantize="int8")(X)
        np.testing.assert_array_equal(run.model(quantize="int8")(X), wanted)


TRAIN_OF_TINY = 'train objective { lr = 0.05  clip_norm = 1  schedule = "cosine"  warmup = 2  steps = 9 }'

if __name__ == "__main__":
    import unittest
    unittest.main()
