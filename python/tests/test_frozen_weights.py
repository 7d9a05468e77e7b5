"""Weights that are not trained, in 16 bits: training, files and models are those of the rounded numbers; checkpoints of a
model with adapters are without its base, and refuse another."""
import json
import unittest

import numpy as np

import tfmc
from support import Case

TEXT = """model M(v = 40, d = 24) {
  embed = Embedding(v, d)
  up    = Linear(d, 2 * d)
  down  = Linear(2 * d, d)
  head  = Linear(d, v)
  adapt ["up", "down"] { rank = 2  dropout = 0.1 }
  forward(ids: i32[batch, time]) {
    return logits = head(embed(ids) + down(gelu(up(embed(ids)))))
  }
  fn objective(ids: i32[batch, time], labels: i32[batch, time]) {
    return loss = cross_entropy(forward(ids), labels, ignore_index = 0)
  }
  train objective { optimizer = "adamw"  lr = 1e-2 }
}
"""
PAIRS = """model P(v = 40, d = 24) {
  embed = Embedding(v, d)
  up    = Linear(d, d)
  adapt ["up"] { rank = 2 }
  fn encode(ids) = normalize(mean(up(embed(ids)), axis = 1))
  forward(ids: i32[batch, time]) { return vector = encode(ids) }
  fn objective(asked: i32[batch, time], said: i32[batch, time]) {
    return loss = cross_entropy(encode(asked) @ transpose(encode(said), 0, 1) * 20, positions(asked, axis = 0))
  }
  train objective { optimizer = "sgd"  lr = 0.1 }
}
"""
SHAPES = {"embed.weight": (40, 24), "up.weight": (48, 24), "up.bias": (48,), "down.weight": (24, 48), "down.bias": (24,),
          "head.weight": (40, 24), "head.bias": (40,)}


def rounded(array):
    """The nearest bf16, of two that are equally near the even one."""
    if array.ndim < 2:
        return array
    bits = array.view(np.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) & np.uint32(0xffff0000)).view(np.float32)


class Frozen(Case):
    def setUp(self):
        random = np.random.default_rng(3)
        self.base = {path: random.normal(0, 0.2, shape).astype(np.float32) for path, shape in SHAPES.items()}
        self.rounded = {path: rounded(array) for path, array in self.base.items()}
        ids = random.integers(1, 40, (6, 8, 5)).astype(np.int32)
        self.batches = [{"ids": row, "labels": (row * 3) % 40} for row in ids]

    def trainer(self, weights=None, frozen="bf16", **more):
        return tfmc.Trainer(TEXT, weights=self.base if weights is None else weights, frozen=frozen, seed=2, threads=1, **more)

    def test_rounded_numbers_are_the_weights(self):
        own, wide = self.trainer(), self.trainer(self.rounded, "f32")
        for batch in self.batches:
            self.assertEqual(own.step(batch), wide.step(batch))
        self.assertEqual(own.evaluate(self.batches[0]), wide.evaluate(self.batches[0]))
        for path, array in own.weights().items():
            self.assertTrue(np.array_equal(array, wide.weight(path)), path)
        self.assertEqual(own._narrow, {path: "bf16" for path in SHAPES if len(SHAPES[path]) > 1})
        with self.assertRaises(ValueError):
            own.weight("up.weight")[0, 0] = 1
        one, other = (trainer.model()(self.batches[0]["ids"]) for trainer in (own, wide))
        self.assertTrue(np.array_equal(one, other))
        state = own.state_dict()
        own.load_state_dict({**state, "up.weight": self.base["up.weight"] * 3})
        self.assertTrue(np.array_equal(own.weight("up.weight"), rounded(self.base["up.weight"] * 3)))

    def test_checkpoints_belong_to_their_base(self):
        folder = self.folder()
        one = self.trainer()
        for batch in self.batches[:3]:
            one.step(batch)
        step = one.save(folder)
        self.assertLess((step / "state.tfmt").stat().st_size, 12 * sum(one.weight(p).size for p in one.trained) + 2000)
        again = tfmc.Trainer.resume(folder, TEXT, weights=self.base, frozen="bf16", threads=1)
        wide = tfmc.Trainer.resume(folder, TEXT, weights=self.rounded, frozen="f32", threads=1)
        for batch in self.batches[3:]:
            made = one.step(batch)
            self.assertEqual(again.step(batch), made)
            self.assertEqual(wide.step(batch), made)
        other = {**self.base, "down.weight": self.base["down.weight"] + 1}
        self.refused(tfmc.EnvError, "another 'down.weight'", tfmc.Trainer.resume, folder, TEXT, weights=other, frozen="bf16")
        self.refused(tfmc.EnvError, "another 'embed.weight'", tfmc.Trainer.resume, folder, TEXT, frozen="bf16")

    def test_fit_goes_on(self):
        rows = [{"ids": row.tolist(), "labels": ((row * 3) % 40).tolist()} for batch in self.batches for row in batch["ids"]]
        made = {}
        for name, steps in (("whole", (8,)), ("cut", (4, 8))):
            folder = self.folder()
            for n in steps:
                trainer = self.trainer()
                trainer.fit(rows, steps=n, batch_items=8, out=folder, resume=True)
            made[name] = trainer.weights()
            names = tfmc._tensors.read_tensors(f"{folder}/weights.safetensors")
            self.assertEqual(set(names), set(trainer.trained))
            self.assertEqual(json.loads(open(f"{folder}/adapter/adapter_config.json").read())["r"], 2)
        for path, array in made["whole"].items():
            self.assertTrue(np.array_equal(array, made["cut"][path]), path)

    def test_adapters_and_items_that_are_mixed_in_parts(self):
        asked, said = (np.random.default_rng(i).integers(0, 40, (6, 4)).astype(np.int32) for i in (1, 2))
        weights = {path: self.base[path] for path in ("embed.weight",)} | {"up.weight": self.base["up.weight"][:24],
                                                                            "up.bias": self.base["up.bias"][:24]}
        whole, cut = (tfmc.Trainer(PAIRS, weights=weights, frozen="bf16", seed=2, threads=1) for _ in range(2))
        self.assertEqual(set(whole.trained), {"up.lora_A.weight", "up.lora_B.weight"})
        for _ in range(4):
            one = whole.step(asked=asked, said=said)
            parts = [{"asked": asked[i:j], "said": said[i:j]} for i, j in ((0, 2), (2, 5), (5, 6))]
            other = cut.step(parts=parts)
            self.assertLess(abs(one.loss - other.loss), 1e-6 * one.loss)
            self.assertLess(abs(one.norm - other.norm), 1e-5 * one.norm)
        for path in whole._paths:
            self.assertLess(np.abs(whole.weight(path) - cut.weight(path)).max(), 1e-6, path)


if __name__ == "__main__":
    unittest.main()
