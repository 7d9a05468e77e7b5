"""adapt, the line of the language for adapters, beside peft in double: losses, A and B after 50 steps; peft reads what is
written and training goes on from what peft wrote; Trainer, fit and tfmc train write the same files; a run, in which base and
adapters are one weight, gives what they give apart. Not run without torch, transformers and peft."""
import copy
import importlib.util
import json
import os
import pathlib
import subprocess
import unittest

import numpy as np

import tfmc
from support import Case
from test_torch_lora import gpt2, ids, llama, loss_of
from torch_cases import nn, torch

STEPS = 50
OBJECTIVE = """
  fn objective(ids: i32[batch, time], labels: i32[batch, time]) {
    return loss = cross_entropy(forward(INPUTS), labels, ignore_index = -100)
  }
  train objective { optimizer = "adam"  lr = 5e-3 }
"""


def batch(step):
    return {"ids": ids(step % 2).numpy().astype(np.int32), "labels": ids(step % 2 + 100).numpy().astype(np.int32)}


@unittest.skipUnless(torch and importlib.util.find_spec("peft") and importlib.util.find_spec("transformers"),
                     "not run: torch, peft or transformers are missing")
class Lines(Case):
    def base(self, made, folder):
        """A checkpoint, and its text with an objective."""
        torch.manual_seed(4)
        made().save_pretrained(folder)
        source = tfmc.import_model(folder, on_message=lambda message: None)
        source.text = tfmc._trainer.with_objective(source.text, OBJECTIVE.replace("INPUTS", "ids"))
        return source

    def adapted(self, made, folder, seed=6, **settings):
        """By peft, of the checkpoint; B is as peft begins it, 0."""
        import peft
        torch.manual_seed(seed)
        base = made()
        base.load_state_dict(type(base).from_pretrained(folder).state_dict())
        return peft.get_peft_model(base, peft.LoraConfig(task_type="CAUSAL_LM", **settings))

    def beside(self, adapted, dtype):
        module = copy.deepcopy(adapted).to(dtype).eval()
        optimizer = torch.optim.Adam([p for p in module.parameters() if p.requires_grad], lr=5e-3)
        losses = []
        for step in range(STEPS):
            loss = loss_of(module(input_ids=ids(step % 2)).logits, ids(step % 2 + 100))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        return np.array(losses), module

    def distances(self, weights, exact):
        """How far adapters are from those of peft, A and B of all modules together."""
        found, n = 0.0, 0
        for name, weight in exact.named_parameters():
            if weight.requires_grad:
                path = name.removeprefix("base_model.model.").replace(".default", "").replace(".modules_to_save", "")
                found = max(found, np.abs(weights(path) - weight.detach().numpy()).max())
                n += 1
        self.assertGreater(n, 3)
        return found

    def check(self, made, **settings):
        folder = pathlib.Path(self.folder())
        source = self.base(made, folder / "base")
        adapted = self.adapted(made, folder / "base", **settings)
        adapted.save_pretrained(folder / "begin")
        losses, exact = self.beside(adapted, torch.float64)
        own, single = self.beside(adapted, torch.float32)
        trainer = tfmc.Trainer(tfmc.lora(source, adapter=folder / "begin"), seed=1)
        trains = [n for n, w in adapted.named_parameters() if w.requires_grad]
        self.assertEqual(len(trainer.trained), len(trains))
        got = np.array([trainer.step(batch(s)).loss for s in range(STEPS)])
        self.assertLess(losses[-1], losses[0] - 0.1)
        self.assertLess(np.abs(got - losses).max(), max(4 * np.abs(own - losses).max(), 2e-6))
        single = dict(single.named_parameters())
        by_torch = max(np.abs(single[n].detach().numpy() - w.detach().numpy()).max() for n, w in exact.named_parameters() if w.requires_grad)
        self.assertLess(self.distances(trainer.weight, exact), max(4 * by_torch, 1e-5))
        self.check_written(trainer, folder, made, exact)
        return folder, source, trainer

    def check_written(self, trainer, folder, made, exact):
        """peft reads the files, a run merges them, and import merges them: all the same results."""
        import peft
        trainer.save_adapter(folder / "out")
        config = json.loads((folder / "out/adapter_config.json").read_text())
        self.assertEqual(config["base_model_name_or_path"], str(folder / "base"))
        base = made()
        base.load_state_dict(type(base).from_pretrained(folder / "base").state_dict())
        again = peft.PeftModel.from_pretrained(base, folder / "out")
        own = dict(again.named_parameters())
        for name, weight in exact.named_parameters():
            if weight.requires_grad:
                path = name.removeprefix("base_model.model.").replace(".default", "").replace(".modules_to_save", "")
                self.assertTrue(np.array_equal(own[name].detach().numpy(), trainer.weight(path)), name)
        with torch.no_grad():
            wanted = again.double().eval()(input_ids=ids(9)).logits.numpy()
        most, x = np.abs(wanted).max(), ids(9).numpy().astype(np.int32)
        merged = tfmc.from_pretrained(folder / "base", adapter=folder / "out", on_message=lambda message: None)
        for model in (trainer.model(), merged):
            np.testing.assert_allclose(model(x), wanted, atol=1e-5 * most)
        apart = trainer.evaluate(ids=x, labels=batch(0)["labels"])["loss"]
        self.assertAlmostEqual(apart, float(loss_of(torch.from_numpy(np.array(trainer.model()(x))), ids(100))), 5)

    def test_llama(self):
        self.check(llama, r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"])

    def test_all_products_with_the_root_of_the_rank(self):
        self.check(llama, r=3, lora_alpha=5, target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
                   use_rslora=True)

    def test_a_head_that_is_trained_whole(self):
        self.check(llama, r=2, target_modules=["o_proj"], modules_to_save=["lm_head"])

    def test_ranks_and_alphas_of_some_modules(self):
        """peft's patterns in both directions; a module that no pattern names has the common ones."""
        settings = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"], "rank_pattern": {"v_proj": 2, r".*\.0\.self_attn\.q_proj": 6},
                    "alpha_pattern": {r"layers\.1\.self_attn\.v_proj": 3}}
        for more in ({}, {"use_rslora": True}):
            folder, _, _ = self.check(llama, **settings, **more)
            written = json.loads((folder / "out/adapter_config.json").read_text())
            self.assertEqual(written["rank_pattern"], {"model.layers.0.self_attn.q_proj": 6, "model.layers.0.self_attn.v_proj": 2,
                                                       "model.layers.1.self_attn.v_proj": 2})
            self.assertEqual(written["alpha_pattern"], {"model.layers.1.self_attn.v_proj": 3})

    def test_ranks_by_patterns(self):
        source = self.base(llama, pathlib.Path(self.folder()) / "base")
        trainer = tfmc.Trainer(tfmc.lora(source, rank=4, targets=["*.q_proj", "*.v_proj"], ranks={"*.v_proj": 2}, alphas={"*.1.*": 3}), seed=1)
        shapes = {path: trainer.weight(path).shape[0] for path in trainer.trained if "lora_A" in path}
        self.assertEqual(set(shapes.values()), {2, 4})
        self.assertTrue(all((rank == 2) == ("v_proj" in path) for path, rank in shapes.items()))
        for settings, words in (({"ranks": {"*.x": 2}}, 'no module with an adapter matches "*.x" of ranks'), ({"ranks": {"*.v_proj": 1.5}}, "whole number"),
                                ({"alphas": {"*.v_proj": 0}}, "greater than 0")):
            self.refused(tfmc.CompileError, words, tfmc.Trainer, tfmc.lora(source, targets=["*.v_proj"], **settings))
        for settings in ({"ranks": 3}, {"ranks": {3: 3}}, {"alphas": {"*": [1]}}):
            self.refused(tfmc.UsageError, "alphas" if "alphas" in settings else "ranks", tfmc.lora, source, targets=["*.v_proj"], **settings)

    def test_gpt2(self):
        """Its modules have their weights the other way round."""
        self.check(gpt2, r=2, target_modules=["c_attn", "c_fc"], fan_in_fan_out=True)

    def test_trainer_fit_and_command_write_the_same_files(self):
        folder = pathlib.Path(self.folder())
        source = tfmc.lora(self.base(llama, folder / "base"), rank=4, targets=["*.q_proj", "*.v_proj"], dropout=0.1)
        rows = [{name: value[i] for name, value in batch(s).items()} for s in range(2) for i in range(3)]
        options = {"steps": 6, "batch_items": 3}
        trainer = tfmc.Trainer(source, seed=3)
        trainer.fit(rows, out=folder / "fit", **options)
        begun = tfmc.Trainer(source, seed=3)
        start = begun.weights()
        self.assertTrue(all(not value.any() for path, value in start.items() if "lora_B" in path))
        (folder / "m.tfm").write_text(source.text)
        tfmc._tensors.write_tensors(folder / "d.safetensors", {
            name: np.concatenate([row[name] for row in rows]) if name != "n" else 0 for name in rows[0]} | {
            f"{name}.lengths": np.full(len(rows), 7, np.int32) for name in rows[0]})
        subprocess.run([os.environ.get("TFM_COMPILER", "tfmc"), "train", folder / "m.tfm", f"--weights={folder / 'base'}", "--seed=3", "-q",
                        f"--data={folder / 'd.safetensors'}", f"--out={folder / 'run'}", "--steps=6", "--batch-items=3"], check=True, timeout=600)
        trainer.save_adapter(folder / "own")
        for name in ("adapter_model.safetensors", "adapter_config.json"):
            wanted = (folder / "own" / name).read_bytes()
            for run in ("fit", "run"):
                if name.endswith("json"):
                    self.assertEqual(json.loads((folder / run / "adapter" / name).read_text()), json.loads(wanted))
                else:
                    self.assertEqual((folder / run / "adapter" / name).read_bytes(), wanted)
        self.assertEqual((folder / "fit/weights.safetensors").read_bytes(), (folder / "run/weights.safetensors").read_bytes())

    def test_fit_over_batches_and_resumed(self):
        """A loader's batches; the adapter beside the weights is the newest, also of a run that goes on."""
        folder = pathlib.Path(self.folder())
        source = tfmc.lora(self.base(llama, folder / "base"), rank=2, targets="*.o_proj")
        for steps in (2, 4):
            trainer = tfmc.Trainer(source, seed=3)
            trainer.fit((batch(s) for s in range(4)), steps=steps, out=folder / "run", resume=True)
            trainer.save_adapter(folder / "own")
            for name in ("adapter_model.safetensors", "adapter_config.json"):
                self.assertEqual((folder / "run/adapter" / name).read_bytes(), (folder / "own" / name).read_bytes())

    def test_what_is_refused(self):
        folder = pathlib.Path(self.folder())
        source = self.base(llama, folder / "base")
        with self.assertRaisesRegex(tfmc.UsageError, "targets="):
            tfmc.lora(source)
        with self.assertRaisesRegex(tfmc.UsageError, "patterns"):
            tfmc.lora(source, targets=[3])
        with self.assertRaisesRegex(tfmc.CompileError, r'matches no weight .*; there are .*q_proj'):
            tfmc.Trainer(tfmc.lora(source, targets=["*.query"]))
        with self.assertRaisesRegex(tfmc.CompileError, "only one adapt block"):
            tfmc.Trainer(tfmc.lora(tfmc.lora(source, targets=["*.q_proj"]), targets=["*.k_proj"]))
        with self.assertRaisesRegex(tfmc.EnvError, "no adapter of peft"):
            tfmc.lora(source, adapter=folder)
        with self.assertRaisesRegex(tfmc.UsageError, "no adapters"):
            tfmc.Trainer(source).save_adapter(folder / "none")
        self.assertFalse((folder / "none").exists())
        self.adapted(llama, folder / "base", r=4, target_modules=["q_proj", "v_proj"]).save_pretrained(folder / "two")
        with self.assertRaisesRegex(tfmc.CompileError, "names no such weight"):
            tfmc.Trainer(tfmc.lora(source, adapter=folder / "two", targets=["*.q_proj"]))
        with self.assertRaisesRegex(tfmc.CompileError, "it counts 2 times"):
            tfmc.Trainer(tfmc.lora(source, adapter=folder / "two", alpha=4))
        with self.assertRaisesRegex(tfmc.CompileError, r"shape \[4, 32\], the model wants \[8, 32\]"):
            tfmc.Trainer(tfmc.lora(source, adapter=folder / "two", rank=8, alpha=16))
        with self.assertRaisesRegex(tfmc.UsageError, "of a module with an adapter"):
            linear = "model M { up = Linear(4, 4) forward(x: f32[n, 4]) { return y = up(x) } fn objective(x: f32[n, 4]) "
            linear += "{ return loss = sum(sum(forward(x))) } train objective { lr = 1 } }"
            tfmc.Trainer(tfmc.lora(tfmc.Source(linear), targets="up", also=["up.bias"]),
                         weights={"up.weight": np.eye(4, dtype=np.float32), "up.bias": np.zeros(4, np.float32)}).save_adapter(folder / "none")


if __name__ == "__main__":
    unittest.main()
