"""Folders of AWQ, GPTQ and compressed-tensors in 4 bits beside transformers, whose modules get the numbers that the libraries
make of the packed ones: outputs within 1e-5, weights in 4 bits and in about as many bytes. Not run without torch and
transformers."""
import functools
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import numpy as np
from safetensors.numpy import load_file

from torch_cases import torch

VOCAB = 60
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def words(numbers, order=None):
    """Runs of eight neighbours of the last axis as words."""
    runs = numbers.reshape(numbers.shape[0], -1, 8).long()
    runs = runs[:, :, order] if order else runs
    packed = sum(runs[:, :, i] << 4 * i for i in range(8))
    return torch.where(packed >= 2 ** 31, packed - 2 ** 32, packed).to(torch.int32)


class Layout:
    """How a method keeps a weight [n, k] of whole numbers q, zero points and scales [n, groups], and its config."""

    def __init__(self, method, group, dtype, symmetric=False, turned=False, second=False):
        self.method, self.group, self.dtype = method, group, dtype
        self.symmetric, self.turned, self.second = symmetric, turned, second

    def config(self):
        if self.method == "awq":
            return {"quant_method": "awq", "bits": 4, "group_size": self.group, "version": "gemm", "zero_point": True}
        if self.method == "gptq":
            more = {"checkpoint_format": "gptq_v2"} if self.second else {}
            return {"quant_method": "gptq", "bits": 4, "group_size": self.group, "desc_act": self.turned, "sym": self.symmetric} | more
        weights = {"num_bits": 4, "type": "int", "symmetric": self.symmetric, "strategy": "group" if self.group > 0 else "channel",
                   "group_size": self.group if self.group > 0 else None}
        return {"quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed",
                "ignore": ["lm_head"], "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}

    def pack(self, name, shape, random):
        """Tensors of the folder, and the weight that the library makes of them."""
        n, k = shape
        size = self.group if self.group > 0 else k
        groups = -(-k // size)
        q = torch.from_numpy(random.integers(0, 16, (n, k)))
        zeros = torch.full((n, groups), 8) if self.symmetric else torch.from_numpy(random.integers(1, 16, (n, groups)))
        scale = torch.from_numpy(random.uniform(0.002, 0.02, (n, groups))).to(self.dtype)
        index = torch.arange(k) // size
        if self.turned:
            index = index[torch.from_numpy(random.permutation(k))]
        value = (q - zeros[:, index]).to(self.dtype) * scale[:, index]
        stem = name.removesuffix(".weight")
        if self.method == "awq":
            return {f"{stem}.qweight": words(q.T, AWQ_ORDER), f"{stem}.qzeros": words(zeros.T, AWQ_ORDER),
                    f"{stem}.scales": scale.T.contiguous()}, value
        if self.method == "gptq":
            return {f"{stem}.qweight": words(q).T.contiguous(), f"{stem}.qzeros": words(zeros.T - int(not self.second)),
                    f"{stem}.scales": scale.T.contiguous(), f"{stem}.g_idx": index.to(torch.int32)}, value
        tensors = {f"{name}_packed": words(q), f"{name}_scale": scale, f"{name}_shape": torch.tensor([n, k])}
        return tensors if self.symmetric else tensors | {f"{name}_zero_point": words(zeros.T).T.contiguous()}, value


LAYOUTS = {  # and what products keep each in
    "AWQ, groups of 32": (Layout("awq", 32, torch.float16), "q4g32"),
    "AWQ, groups of 128": (Layout("awq", 128, torch.float16), "q4g128"),
    "GPTQ, symmetric": (Layout("gptq", 64, torch.float16, symmetric=True), "q4g64"),
    "GPTQ, zero points": (Layout("gptq", 128, torch.float16), "q4g128"),
    "GPTQ, all columns": (Layout("gptq", -1, torch.float16), "q4g128"),
    "GPTQ, second format": (Layout("gptq", 32, torch.bfloat16, second=True), "q4g32"),
    "GPTQ, act-order": (Layout("gptq", 32, torch.float16, turned=True), "f16"),
    "compressed-tensors, symmetric": (Layout("compressed-tensors", 128, torch.bfloat16, symmetric=True), "q4g128"),
    "compressed-tensors, zero points": (Layout("compressed-tensors", 32, torch.bfloat16), "q4g32"),
    "compressed-tensors, rows": (Layout("compressed-tensors", -1, torch.float16, symmetric=True), "q4g128"),
} if torch else {}
BITS = {"q4g32": 5, "q4g64": 4.5, "q4g128": 4.25, "f16": 16}


@functools.cache
def classes():
    import transformers as hf
    sizes = dict(vocab_size=VOCAB, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=False)
    return {"llama": hf.LlamaForCausalLM(hf.LlamaConfig(**sizes)), "qwen2": hf.Qwen2ForCausalLM(hf.Qwen2Config(**sizes)),
            "heads of 96": hf.Qwen3ForCausalLM(hf.Qwen3Config(**sizes, head_dim=96))}


@unittest.skipUnless(torch and importlib.util.find_spec("transformers"), "not run: torch or transformers are missing")
class Packed(unittest.TestCase):
    def tfmc(self, *args):
        done = subprocess.run([os.environ["TFM_COMPILER"], *map(str, args)], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout + done.stderr

    def folder_of(self, model, layout):
        """The folder of the model with packed layers; the model itself gets their numbers."""
        from safetensors.torch import save_file
        random, kept, state = np.random.default_rng(5), {}, model.state_dict()
        for name, tensor in state.items():
            if re.search(r"_proj\.weight$", name):
                tensors, value = layout.pack(name, tensor.shape, random)
                kept |= tensors
                state[name] = value.float()
            else:
                state[name] = kept[name] = tensor if "norm" in name else torch.from_numpy(random.normal(size=tensor.shape)).float()
        model.load_state_dict(state)
        model.save_pretrained(self.folder)
        config = json.loads((self.folder / "config.json").read_text())
        (self.folder / "config.json").write_text(json.dumps(config | {"quantization_config": layout.config()}))
        save_file({name: tensor.contiguous() for name, tensor in kept.items()}, self.folder / "model.safetensors")
        return sum(t.numel() for n, t in state.items() if n.endswith("_proj.weight"))

    def test_outputs_are_those_of_the_numbers(self):
        from safetensors.torch import save_file
        for (kind, model), (name, (layout, form)) in ((m, x) for m in classes().items() for x in LAYOUTS.items()):
            with self.subTest(kind=kind, name=name), tempfile.TemporaryDirectory() as folder:
                self.folder = pathlib.Path(folder)
                packed = self.folder_of(model.eval().float(), layout)
                ids = torch.from_numpy(np.random.default_rng(6).integers(3, VOCAB, (2, 9)))
                with torch.no_grad():
                    wanted = model(input_ids=ids).logits.numpy()
                self.tfmc("import", self.folder, "-o", "m.tfm", "--strict")
                inputs = {"input_ids": ids.to(torch.int32)}
                save_file(inputs, self.folder / "x.safetensors")
                for options in [], ["-march=x86-64"], ["--engine=reference"]:
                    self.tfmc("run", "m.tfm", "--weights", self.folder, "--inputs=x.safetensors", "-o", "y.safetensors", *options)
                    got = load_file(self.folder / "y.safetensors")["logits"].reshape(wanted.shape)
                    self.assertLess(np.abs(got - wanted).max() / np.abs(wanted).max(), 1e-5)
                report = self.tfmc("check", "m.tfm", "--weights", self.folder)
                room = float(re.search(r"room +([\d.]+) MB", report)[1]) * 1e6 - 4 * VOCAB * 128
                self.assertRegex(report, rf"\n  {form} +14 products")
                self.assertAlmostEqual(room / packed, BITS[form] / 8, delta=0.002)


if __name__ == "__main__":
    unittest.main()
