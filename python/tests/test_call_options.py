"""Options of Trainer, fit, lora, from_torch and text.finetune: of a wrong type, a wrong value, or against another one. Each is an
error that names the option; none is passed over."""
import importlib.util
import os
import pathlib
import unittest

import numpy as np

import tfmc
from support import Case

TEXT = """model Tiny(vocab = 20, d = 8) {
  embed = Embedding(vocab, d)
  head = Linear(d, vocab)
  forward(ids: i32[batch, time]) { return scores = head(dropout(embed(ids), 0.1)) }
  fn objective(ids: i32[batch, time], labels: i32[batch, time]) {
    return loss = cross_entropy(forward(ids), labels, ignore_index = -100)
  }
  train objective { lr = 0.01 }
}"""
BATCH = {"ids": np.ones((2, 3), np.int32), "labels": np.ones((2, 3), np.int32)}
ITEMS = [{"ids": [1, 2, 3], "labels": [2, 3, 4]}] * 4


class Loader:
    def __iter__(self):
        return iter([BATCH, BATCH])


class Refusals(Case):
    def all_refused(self, call, wrong, *args):
        for name, values in wrong.items():
            for value in values:
                with self.subTest(option=name, value=repr(value)):
                    self.refused(tfmc.UsageError, name, call, *args, **{name: value})


class Options(Refusals):
    def test_trainer(self):
        self.all_refused(tfmc.Trainer, {
            "seed": ("a", 1.5, None, True, -1), "threads": ("a", 1.5, True, -1), "new": (3, None, b"", {"head.*": 2}), "settings": (None, 3, []),
            "shards": (0, "a", 1.5, True, None), "march": (3,), "compiler": (3,), "config": (3, None), "on_message": (3,),
            "weights": ({},), "memory": (0, "1G", True)}, TEXT)
        self.refused(tfmc.UsageError, "lr is given twice", tfmc.Trainer, TEXT, settings={"lr": 1}, lr=2)
        self.refused(tfmc.UsageError, "folder", tfmc.Trainer.resume, 3, TEXT)
        self.assertEqual(tfmc.Trainer(TEXT, seed=np.int64(3)).weights()["head.weight"].tobytes(),
                         tfmc.Trainer(TEXT, seed=3).weights()["head.weight"].tobytes())

    def test_calls_of_a_trainer(self):
        trainer = tfmc.Trainer(TEXT)
        for words, call in (("the batch", lambda: trainer.step(3)), ("the batch", lambda: trainer.step([1])), ("parts", lambda: trainer.step(parts=3)),
                            ("parts", lambda: trainer.step(parts=BATCH)), ('"ids" is given twice', lambda: trainer.step(BATCH, ids=BATCH["ids"])),
                            ("dropout", lambda: trainer.gradients(BATCH, dropout="no")), ("gradients", lambda: trainer.update(3)),
                            ("batch_items", lambda: trainer.evaluate(BATCH, parts=[BATCH], batch_items=0)), ("epoch", lambda: setattr(trainer, "epoch", -1)),
                            ("epoch", lambda: setattr(trainer, "epoch", "a")), ("size batch", lambda: trainer.bytes(batch="a", time=3)),
                            ("path", lambda: trainer.weight(3)), ("state", lambda: trainer.load_state_dict(3)),
                            ("strict", lambda: trainer.load_state_dict({}, strict="no")), ("folder", lambda: trainer.save(3)),
                            ("folder", lambda: trainer.save_adapter(3)), ("pad", lambda: trainer.evaluate(ITEMS, pad=3)),
                            *(("average", lambda call=call: call(average="no")) for call in (trainer.weights, trainer.model, trainer.state_dict)),
                            ("average", lambda: trainer.evaluate(BATCH, average="no"))):
            with self.subTest(words):
                self.refused(tfmc.UsageError, words, call)
        self.assertEqual(trainer.steps, 0)
        trainer.gradients(BATCH, dropout=np.bool_(False))
        whole = trainer.evaluate(parts=[BATCH, BATCH])
        self.assertEqual(trainer.evaluate(parts=(part for part in [BATCH, BATCH])), whole)

    def test_fit(self):
        wrong = {"out": (3, ""), "resume": ("no", 1), "metric": (3,), "callbacks": (3, [3], print, None), "progress": ("x", 3)}
        for train, more in ((ITEMS, {"batch_items": 2}), (Loader(), {})):
            call = lambda **options: tfmc.Trainer(TEXT).fit(train, **{"steps": 1, **more, **options})  # noqa: B023, E731
            self.all_refused(call, wrong)
        call = lambda **options: tfmc.Trainer(TEXT).fit(ITEMS, **{"steps": 1, "batch_items": 2, **options})  # noqa: E731
        call(pad={"ids": np.int64(0)}, skip_long=np.bool_(True))
        self.all_refused(call, {"skip_long": ("no", 3), "pad": (3, {"ids": True})})
        self.all_refused(lambda **options: tfmc.Trainer(TEXT).fit(Loader(), **{"steps": 1, **options}), {"empty_batches": ("no", 3, np.array([1, 2]))})
        self.all_refused(lambda **options: tfmc.Trainer(TEXT).fit(Loader(), **options), {"steps": ("a", 0, 1.5, True), "epochs": (0, "a")})

    def test_lora(self):
        source = tfmc.Source(TEXT)
        self.all_refused(lambda **options: tfmc.lora(source, **{"targets": "head", **options}),
                         {"targets": (3, [3], [""], {"head": 4}), "also": (3, "", b""), "rslora": ("no", 1), "adapter": (3,), "ranks": (3, [], {3: 4}, np.array([1, 2])),
                          "alphas": (["head"], ()), "dropout": (np.array([1, 2]), [0.1])})
        self.refused(tfmc.CompileError, "dropout", tfmc.Trainer, tfmc.lora(source, targets="head", dropout=False))


@unittest.skipUnless(importlib.util.find_spec("torch"), "not run: torch is missing")
class OptionsOfTorch(Refusals):
    def test_from_torch(self):
        import torch
        from torch.nn import functional as F
        module = torch.nn.Sequential(torch.nn.Embedding(20, 8), torch.nn.Linear(8, 20)).eval()
        ids = torch.tensor([[1, 2, 3], [4, 5, 6]])
        axes = {0: "batch", 1: "time"}
        good = {"sizes": {"input": axes, "labels": axes}, "targets": {"labels": ids}, "training": True,
                "loss": lambda y, labels: F.cross_entropy(y.flatten(0, 1), labels.flatten())}
        call = lambda **options: tfmc.from_torch(module, **{"inputs": {"input": ids}, **good, **options})  # noqa: E731
        self.all_refused(call, {
            "inputs": (3, None, [ids]), "sizes": (3, None, {"input": 3}, {"input": ["batch"]}, {"input": {True: "batch"}}), "outputs": (3, "logits", []),
            "generate": (3, ""), "fold": ("no", 3), "check": ("no", 3), "dropout": ("no", 3), "training": ("no", 3), "targets": (3, [ids]),
            "metrics": (3, [print], {"right": 1}, {"right": None}), "ranges": (3,), "name": (3, "a b")})
        self.assertEqual(tfmc.Trainer(call()).results, ("loss",))


@unittest.skipUnless(importlib.util.find_spec("tokenizers"), "not run: tokenizers are missing")
class OptionsOfTexts(Refusals):
    def test_finetune(self):
        folder = pathlib.Path(self.folder())
        (folder / "config.json").write_text("{}")
        rows = [("a", "b")] * 4
        call = lambda **options: tfmc.text.finetune(**{"folder": folder, "data": rows, "task": "pairs", "out": folder / "out", **options})  # noqa: E731
        self.all_refused(call, {"folder": (3,), "out": (3,), "seed": ("a", True, -1), "pack": ("no", 3), "settings": (3, None),
                                "lora": (3, {"rank": 2}, {"targets": ["*"], "rang": 2})})
        for labels in ("ab", 3, ["a", "a"]):
            self.refused(tfmc.UsageError, "labels", call, task="labels", labels=labels)
        self.assertEqual(os.listdir(folder), ["config.json"])


if __name__ == "__main__":
    unittest.main()
