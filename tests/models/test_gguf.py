#!/usr/bin/env python3
"""usage: test_gguf.py TFMC CASES

GGUF files as checkpoints: those that gguf_file.py writes of the cases give the bytes that the folders of safetensors with the
same numbers give; keys, architectures and files that are refused. The last line is 'N passed, N failed' of unittest.
"""
import json
import pathlib
import random

import numpy as np
from safetensors.numpy import load_file, save_file

import gguf_file
import import_case
from import_case import ImportCase


class Files(ImportCase):
    def gguf(self, name, kind="F32", change=None):
        """A GGUF file of a case, and a folder whose tensors are what it holds."""
        config = self.take(name)
        path = self.folder / "model.gguf"
        held = gguf_file.write(path, config, load_file(self.folder / "model.safetensors"), kind, change)
        save_file(held, self.folder / "model.safetensors")
        return path

    def ids(self):
        inputs = {n: np.array(v, np.int32) for n, v in self.case["inputs"].items()}
        save_file(inputs, self.folder / "inputs.safetensors")
        return self.folder / "inputs.safetensors"

    def outputs(self, weights, *options):
        model, made = self.folder / "made.tfm", self.folder / "out.safetensors"
        self.tfmc(weights, "-o", model, *options)
        self.tfmc(model, "--weights", weights, "--inputs", self.ids(), "-o", made, verb="run")
        return {name: array.tobytes() for name, array in load_file(made).items()}

    def same(self, name, kind="F32", *options):
        path = self.gguf(name, kind)
        self.assertEqual(self.outputs(path, *options), self.outputs(self.folder), (name, kind))
        return path

    def test_files_of_f32(self):
        for name in ("llama", "llama_tied", "llama_linear", "llama_yarn", "qwen2", "qwen3", "llama_biases"):
            with self.subTest(name=name):
                self.same(name, "F32", *(["--strict"] if name in ("llama", "llama_tied") else []))

    def test_files_of_fewer_bits(self):
        """Rows of q and k come back in order, whatever they are kept in."""
        for kind in ("F16", "BF16"):
            self.same("llama", kind)
        wide = self.take("llama") | {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2,
                                     "head_dim": 16}
        shapes = {"q": (64, 64), "k": (32, 64), "v": (32, 64), "o": (64, 64), "gate": (96, 64), "up": (96, 64), "down": (64, 96)}
        made = np.random.default_rng(5)
        tensors = {name: array for name, array in load_file(self.folder / "model.safetensors").items()}
        for name, array in tensors.items():
            part = next((p for p in shapes if f".{p}_proj." in name), None)
            shape = shapes[part] if part else (array.shape[0], 64) if array.ndim == 2 else (64,)
            tensors[name] = made.standard_normal(shape).astype(np.float32) * np.float32(0.2)
        self.write(wide)
        for kind in ("Q8_0", "Q4_0"):
            path = self.folder / "model.gguf"
            save_file(gguf_file.write(path, wide, tensors, kind), self.folder / "model.safetensors")
            self.assertEqual(self.outputs(path), self.outputs(self.folder), kind)

    def test_blocks_have_the_numbers_of_their_format(self):
        """To the bit those that the package gguf gives (make_gguf_blocks.py)."""
        blocks = json.loads((pathlib.Path(__file__).parent / "gguf_blocks.json").read_text())
        model, path, made = (self.folder / name for name in ("m.tfm", "w.gguf", "out.safetensors"))
        for name, block in blocks.items():
            n = 2 * block["elements"]
            gguf_file.TYPES[name] = block["number"]
            path.write_bytes(gguf_file.pack({}, {"w": (name, [2, n // 2], bytes.fromhex(block["bytes"]))}))
            model.write_text(f"model M() {{ weight w: [2, {n // 2}]  forward(x: f32[2, {n // 2}]) {{ y = w * x return y }} }}")
            save_file({"x": np.ones((2, n // 2), np.float32)}, self.folder / "x.safetensors")
            self.tfmc(model, "--weights", path, "--inputs", self.folder / "x.safetensors", "-o", made, verb="run")
            self.assertEqual(load_file(made)["y"].tobytes(), bytes.fromhex(block["values"]), name)

    def test_positions_of_llama_3(self):
        """They stand in a tensor, whose numbers say which factor it is."""
        config = self.take("llama3")
        for factor in (8.0, 32.0):
            rotation = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": factor, "low_freq_factor": 1.0,
                        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
            config["rope_parameters"] = rotation
            self.write(config)
            path = self.folder / "model.gguf"
            gguf_file.write(path, config, load_file(self.folder / "model.safetensors"))
            self.assertEqual(self.outputs(path), self.outputs(self.folder), factor)
        rotation["low_freq_factor"] = 2.0
        gguf_file.write(path, config, load_file(self.folder / "model.safetensors"))
        self.tfmc(path, code=1, says="rope_freqs.weight\" has other factors")

    def test_scaling_as_llama_cpp_takes_it(self):
        """A factor without a type is linear; a type without a factor, or with one of 0, scales nothing."""
        for change, scaling in (({"factor": 4.0}, ("linear", 4.0)), ({"type": "linear"}, None), ({"type": "none", "factor": 4.0}, None),
                                ({"type": "linear", "factor": 0.0}, None), ({"factor": 0.0}, None)):
            with self.subTest(change=change):
                path = self.gguf("llama", change={f"llama.rope.scaling.{key}": value for key, value in change.items()})
                config = self.case["files"]["config.json"]
                if scaling:
                    config = config | {"rope_parameters": config["rope_parameters"] | dict(zip(("rope_type", "factor"), scaling))}
                self.write(config)
                self.assertEqual(self.outputs(path), self.outputs(self.folder))

    def test_two_kinds_of_scaling(self):
        """llama.cpp turns by both; a model here has one."""
        config, path = self.take("llama3"), self.folder / "model.gguf"
        config["rope_parameters"] = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
                                     "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
        for change in ({"factor": 2.0}, {"type": "linear", "factor": 2.0}, {"type": "yarn", "factor": 2.0}):
            gguf_file.write(path, config, load_file(self.folder / "model.safetensors"),
                            change={f"llama.rope.scaling.{key}": value for key, value in change.items()})
            self.tfmc(path, code=1, says="stands beside positions that are scaled")

    def test_tokens(self):
        """Those of the folder, and each end token ends a text."""
        path = self.gguf("llama")
        model, rows = self.folder / "made.tfm", {}
        for weights in (path, self.folder):
            self.tfmc(weights, "-o", model)
            for beams in (1, 3):
                made = self.tfmc(model, "--weights", weights, "--inputs", self.ids(), f"--num-beams={beams}", "--max-new-tokens=6",
                                 verb="generate").stdout
                self.assertEqual(rows.setdefault(beams, made), made)
        path = self.gguf("llama", change={"tokenizer.ggml.eot_token_id": 7, "tokenizer.ggml.eos_token_id": 5})
        self.assertIn("eos = [5, 7]", self.tfmc(path).stdout)
        path = self.gguf("llama", change={"tokenizer.ggml.eos_token_id": 10**6})
        self.tfmc(path, code=1, says=['"tokenizer.ggml.eos_token_id" is 1000000', "no row of the table"])

    def test_keys(self):
        for key, value, says in (("general.architecture", "mamba", "general.architecture is \"mamba\"; llama, qwen2, qwen3"),
                                 ("general.architecture", None, "general.architecture is missing"),
                                 ("llama.block_count", None, '"llama.block_count" is missing'),
                                 ("llama.block_count", "many", '"llama.block_count" is many, which is not a whole number'),
                                 ("llama.block_count", ["1"], '"llama.block_count" (a list)'),
                                 ("llama.attention.head_count", 0, "is 0"),
                                 ("llama.embedding_length", 3, None),
                                 ("llama.attention.layer_norm_rms_epsilon", float("nan"), "which is not a number"),
                                 ("llama.expert_count", 4, "mixtures of experts"),
                                 ("llama.rope.dimension_count", 2, "heads are turned whole"),
                                 ("llama.attention.value_length", 2, "values are as wide as keys"),
                                 ("llama.vocab_size", 7, "so many rows has the table of words"),
                                 ("llama.attention.sliding_window", 4, "windows are read from safetensors"),
                                 ("llama.attention.causal", False, '"llama.attention.causal" is false'),
                                 ("llama.rope.scaling.type", "longrope", 'is "longrope"; none, linear and yarn'),
                                 ("llama.rope.scaling.attn_factor", 1.5, "is 1.5, not 1"),
                                 ("llama.logit_scale", 2.0, 'nothing reads "llama.logit_scale" (2)')):
            with self.subTest(key=key, value=value):
                path, target = self.gguf("llama", change={key: value}), self.folder / "never.tfm"
                self.tfmc(path, "-o", target, code=1, says=["model.gguf", "no output written"] + ([says] if says else []))
                self.assertFalse(target.exists())
        self.tfmc(self.gguf("llama", change={"llama.logit_scale": 2.0}), "--ignore", "llama.logit_scale")
        self.tfmc(self.gguf("llama", change={"llama.block_count": 1}), code=1, says="nothing reads the tensors")

    def test_damaged_files(self):
        """Cut off anywhere, or with any byte changed: a model that fits the file, or a message; never both, never a crash."""
        path = self.gguf("llama")
        whole, choose = path.read_bytes(), random.Random(3)
        head = whole.index(b"blk.0") + 4000
        for cut in [*range(0, 64, 7), *(choose.randrange(len(whole)) for _ in range(20))]:
            path.write_bytes(whole[:cut])
            self.ends_well(path, {1, 2})
        for _ in range(60):
            at = choose.randrange(head)
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << choose.randrange(8)]) + whole[at + 1:])
            self.ends_well(path, {0, 1})

    def ends_well(self, path, codes):
        target = self.folder / "never.tfm"
        done = self.tfmc(path, "-o", target, code=None)
        self.assertIn(done.returncode, codes, done.stderr)
        self.assertEqual(target.exists(), done.returncode == 0)
        target.unlink(missing_ok=True)

    def test_a_folder_of_one(self):
        path = self.gguf("llama")
        (self.folder / "config.json").unlink()
        self.tfmc(self.folder, code=1, says=['"model.gguf" is a GGUF file', f"tfmc import {path}"])
        before = path.read_bytes()
        self.tfmc(path, "-o", path, code=None)
        self.assertEqual(path.read_bytes(), before)


if __name__ == "__main__":
    import_case.main()
