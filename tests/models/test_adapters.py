#!/usr/bin/env python3
"""usage: test_adapters.py TFMC CASES

Adapters of peft: a base with one gives the bytes that a folder of the merged weights gives, which are computed here in double;
keys, tensors and ways to begin that are refused. The last line is 'N passed, N failed' of unittest.
"""
import json
import math

import numpy as np
from safetensors.numpy import load_file, save_file

import import_case
from import_case import ImportCase

CONFIG = {"peft_type": "LORA", "r": 2, "lora_alpha": 3, "target_modules": ["q_proj", "down_proj"], "bias": "none",
          "fan_in_fan_out": False, "use_rslora": False, "rank_pattern": {}, "alpha_pattern": {}, "task_type": "CAUSAL_LM",
          "init_lora_weights": True, "lora_dropout": 0.1, "modules_to_save": None, "use_dora": False, "peft_version": "0.21.2"}


class Adapters(ImportCase):
    def setUp(self):
        super().setUp()
        self.adapter, self.merged = self.folder / "adapter", self.folder / "merged"
        self.adapter.mkdir()
        self.merged.mkdir()

    def put(self, tensors, config):
        (self.adapter / "adapter_config.json").write_text(json.dumps(config))
        save_file(tensors, self.adapter / "adapter_model.safetensors")

    def begin(self, name="llama", modules=("self_attn.q_proj", "mlp.down_proj"), ranks={}, **config):
        """An adapter of the modules of every layer; [(module, a, b)]."""
        self.take(name)
        self.base = load_file(self.folder / "model.safetensors")
        made, tensors, parts = np.random.default_rng(7), {}, []
        for name, weight in self.base.items():
            module = name.removesuffix(".weight")
            part = next((m for m in modules if module.endswith(m)), None)
            if not part:
                continue
            rank = ranks.get(part, config.get("r", 2))
            n, k = weight.shape[::-1] if config.get("fan_in_fan_out") else weight.shape
            a, b = (made.standard_normal(shape).astype(np.float32) for shape in ((rank, k), (n, rank)))
            parts.append((module, a, b))
            tensors[f"base_model.model.{module}.lora_A.weight"] = a
            tensors[f"base_model.model.{module}.lora_B.weight"] = b
        self.assertTrue(parts)
        self.tensors, self.config = tensors, CONFIG | config
        self.put(self.tensors, self.config)
        return parts

    def outputs(self, weights, *options, source=None):
        inputs, model, out = (self.folder / name for name in ("inputs.safetensors", "made.tfm", "out.safetensors"))
        save_file({n: np.array(v, np.int32) for n, v in self.case["inputs"].items()}, inputs)
        self.tfmc(source or weights, *options, "-o", model)
        self.tfmc(model, "--weights", weights, "--inputs", inputs, "-o", out, verb="run")
        return {name: array.tobytes() for name, array in load_file(out).items()}

    def test_an_adapter_beside_the_model(self):
        """transformers computes with both: whoever imports the folder alone would get other numbers."""
        self.begin()
        wanted = self.outputs(f"{self.folder}+{self.adapter}", source=self.folder)
        for path in list(self.adapter.iterdir()):
            path.rename(self.folder / path.name)
        (self.folder / "made.tfm").unlink()
        said = self.tfmc(self.folder, "-o", self.folder / "made.tfm", code=1, says=["adapter_config.json: error: an adapter lies beside"]).stderr
        self.assertIn(f"--adapter {self.folder}", said)
        self.assertEqual(self.outputs(f"{self.folder}+{self.folder}", "--adapter", self.folder, source=self.folder), wanted)

    def check(self, parts, scale, turned=False, whole={}):
        """`scale`: of a module."""
        tensors = dict(self.base)
        for module, a, b in parts:
            delta = np.zeros((b.shape[0], a.shape[1]))
            for k in range(a.shape[0]):  # in this order
                delta += b[:, k, None].astype(np.float64) * a[None, k].astype(np.float64)
            name = f"{module}.weight"
            tensors[name] = (tensors[name] + scale(module) * (delta.T if turned else delta)).astype(np.float32)
        save_file(tensors | whole, self.merged / "model.safetensors")
        (self.merged / "config.json").write_text((self.folder / "config.json").read_text())
        wanted = self.outputs(self.merged)
        self.assertEqual(self.outputs(f"{self.folder}+{self.adapter}", "--adapter", self.adapter, source=self.folder), wanted)
        self.assertNotEqual(self.outputs(self.folder), wanted)

    def test_low_rank_changes(self):
        self.check(self.begin(enable_lora=None, merge_weights=False), lambda module: 3 / 2)  # keys of peft 0.2

    def test_scales_of_rslora(self):
        self.check(self.begin(use_rslora=True), lambda module: 3 / math.sqrt(2))

    def test_ranks_and_alphas_of_modules(self):
        """The first pattern that matches counts, as peft takes them."""
        parts = self.begin(ranks={"mlp.down_proj": 1}, rank_pattern={r"layers\.\d+\.mlp\.(?:up|down)_proj": 1},
                           alpha_pattern={"0.self_attn.q_proj": 8, "q_proj": 5})
        alphas = {"mlp": 3, "self_attn": 5}
        self.check(parts, lambda module: 8 / 2 if ".0.self_attn" in module else alphas[module.split(".")[3]] / (1 if "mlp" in module else 2))

    def test_expressions_for_modules(self):
        self.check(self.begin(target_modules=r"model\.layers\.[01]\.(self_attn\.q|mlp\.down)_proj"), lambda module: 1.5)
        self.check(self.begin(target_modules=r".*?\.(?:q|down)_proj"), lambda module: 1.5)
        self.check(self.begin(target_modules="all-linear"), lambda module: 1.5)

    def test_weights_that_lie_the_other_way(self):
        self.check(self.begin("gpt2", ["attn.c_attn", "attn.c_proj"], fan_in_fan_out=True, target_modules=["c_attn", "c_proj"]),
                   lambda module: 1.5, turned=True)

    def test_tensors_that_are_kept_whole(self):
        parts, name = self.begin(), "model.norm.weight"
        whole = {name: np.full(self.base[name].shape, 1.25, np.float32)}
        self.put(self.tensors | {f"base_model.model.{n}": v for n, v in whole.items()}, self.config)
        self.check(parts, lambda module: 1.5, whole=whole)

    def test_a_table_of_words_that_is_kept_whole(self):
        """In peft a head that is tied to it keeps the numbers of the base, whether the base's file has it or not."""
        name, head = "model.embed_tokens.weight", "lm_head.weight"
        parts = self.begin("llama_tied")
        table = {name: np.linspace(-1, 1, self.base[name].size, dtype=np.float32).reshape(self.base[name].shape)}
        self.put(self.tensors | {f"base_model.model.{n}": v for n, v in table.items()}, self.config)
        self.tfmc(self.folder, "--adapter", self.adapter, code=1, says=[f'"{head}"'])
        self.base[head] = self.base[name].copy()
        save_file(self.base, self.folder / "model.safetensors")
        self.check(parts, lambda module: 1.5, whole=table)

    def test_a_model_of_the_base_alone(self):
        """It may not read what the adapter changes."""
        self.begin("llama_tied")
        self.base["lm_head.weight"] = self.base["model.embed_tokens.weight"].copy()
        save_file(self.base, self.folder / "model.safetensors")
        rows, columns = self.base["lm_head.weight"].shape
        pair = {"A": np.ones((2, columns), np.float32), "B": np.ones((rows, 2), np.float32)}
        self.put(self.tensors | {f"base_model.model.lm_head.lora_{half}.weight": v for half, v in pair.items()},
                 self.config | {"target_modules": ["q_proj", "down_proj", "lm_head"]})
        inputs, model, both = self.folder / "inputs.safetensors", self.folder / "made.tfm", f"{self.folder}+{self.adapter}"
        save_file({n: np.array(v, np.int32) for n, v in self.case["inputs"].items()}, inputs)
        for options, count in (((), 1), (("--adapter", self.adapter), 0)):
            self.tfmc(self.folder, *options, "-o", model)
            said = self.tfmc(model, "--weights", both, "--inputs", inputs, "-o", self.folder / "out.safetensors", verb="run").stderr
            self.assertEqual(said.count('changes "lm_head.weight", which the model does not read'), count, said)

    def test_what_is_not_read_is_counted(self):
        """Of changes that a model does not read some are listed, and the others counted."""
        self.begin("llama_tied")
        self.base |= {f"extra.{i}.weight": np.ones((3, 4), np.float32) for i in range(23)}
        save_file(self.base, self.folder / "model.safetensors")
        pairs = {f"base_model.model.extra.{i}.lora_{half}.weight": v for i in range(23)
                 for half, v in (("A", np.ones((2, 4), np.float32)), ("B", np.ones((3, 2), np.float32)))}
        inputs, model = self.folder / "inputs.safetensors", self.folder / "made.tfm"
        save_file({n: np.array(v, np.int32) for n, v in self.case["inputs"].items()}, inputs)
        self.tfmc(self.folder, "--ignore", "extra.*", "-o", model)
        self.put(self.tensors | pairs, self.config | {"target_modules": ["q_proj", "down_proj", *map(str, range(23))]})
        said = self.tfmc(model, "--weights", f"{self.folder}+{self.adapter}", "--inputs", inputs, "-o", self.folder / "out.safetensors",
                         verb="run").stderr
        self.assertEqual(said.count("which the model does not read"), 20, said)
        self.assertIn("3 more tensors of this kind", said)

    def test_two_adapters(self):
        self.begin()
        both = f"{self.folder}+{self.adapter}+{self.adapter}"
        twice = self.outputs(both, "--adapter", self.adapter, "--adapter", self.adapter, source=self.folder)
        self.assertNotEqual(twice, self.outputs(f"{self.folder}+{self.adapter}", source=self.folder))

    def refused_adapter(self, *says):
        target = self.folder / "never.tfm"
        self.tfmc(self.folder, "--adapter", self.adapter, "-o", target, code=1, says=["adapter_", "no output written", *says])
        self.assertFalse(target.exists())

    def test_refused_keys(self):
        self.begin()
        for key, value, says in (("use_dora", True, '"use_dora" is true'), ("peft_type", "LOHA", '"peft_type" is LOHA'),
                                 ("peft_type", None, "peft_type"), ("scale_of_dreams", 3, 'nothing reads "scale_of_dreams" (3)'),
                                 ("lora_bias", True, "lora_bias"), ("layers_to_transform", [0], "layers_to_transform"),
                                 ("init_lora_weights", "pissa", "init_lora_weights"), ("r", 0, '"r"'), ("r", "2", '"r"'), ("r", 4, "the rank of its module is 4"),
                                 ("lora_alpha", "3", "lora_alpha"), ("target_modules", ["k_proj"], "target_modules does not name"),
                                 ("target_modules", None, "target_modules"), ("exclude_modules", ["q_proj"], "does not name"),
                                 ("alpha_pattern", {r"(?=q)q_proj": 3}, "is not understood"), ("rank_pattern", {"q_proj": 0}, "rank_pattern"),
                                 ("use_rslora", 1, "use_rslora"), ("trainable_token_indices", [1], "trainable_token_indices"),
                                 ("enable_lora", [True, False, True], "enable_lora")):
            with self.subTest(key=key, value=value):
                self.put(self.tensors, self.config | {key: value})
                self.refused_adapter(says)

    def test_refused_tensors(self):
        self.begin()
        first = next(iter(self.tensors))
        for change, says in (({first: None}, "there is no lora_"), ({first: self.tensors[first][:, 1:].copy()}, "its change is"),
                             ({first: np.full_like(self.tensors[first], np.nan)}, "is not finite"),
                             ({"base_model.model.strange.lora_A.weight": self.tensors[first]}, "there is no lora_B"),
                             ({"base_model.model.model.embed_tokens.lora_embedding_A": self.tensors[first]}, "is none of a LoRA"),
                             ({first.replace("base_model.model.", ""): self.tensors[first]}, "is none of a LoRA"),
                             ({"base_model.model.model.norm.weight": np.ones(3, np.float32)}, "and the base has"),
                             ({"base_model.model.model.strange.weight": np.ones(3, np.float32)}, "nothing reads the tensor")):
            with self.subTest(says=says):
                tensors = {name: array for name, array in (self.tensors | change).items() if array is not None}
                self.put(tensors, self.config)
                target = self.folder / "never.tfm"
                self.tfmc(self.folder, "--adapter", self.adapter, "-o", target, code=1, says=[says])
                self.assertFalse(target.exists())
        self.tfmc(self.folder, "--adapter", self.merged, code=3, says="no adapter of peft")
        (self.adapter / "adapter_model.safetensors").unlink()
        self.refused_adapter("there is no such file")
        (self.adapter / "adapter_config.json").write_text("{")
        self.refused_adapter("JSON")

    def test_square_weights_of_a_config_that_does_not_hold(self):
        """GPT-2's c_proj is square: what says how it lies must hold for the others."""
        self.begin("gpt2", ["attn.c_attn", "attn.c_proj"], fan_in_fan_out=True, target_modules=["c_attn", "c_proj"])
        self.put(self.tensors, self.config | {"fan_in_fan_out": False})
        self.refused_adapter("is square", "fan_in_fan_out")


if __name__ == "__main__":
    import_case.main()
