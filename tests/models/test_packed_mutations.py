#!/usr/bin/env python3
"""usage: test_packed_mutations.py TFMC CASES [--thin N]

Folders of AWQ, GPTQ and compressed-tensors (packed_llama.py) with one thing changed: each key of `quantization_config` gone, none
or of other values; each tensor of two weights gone, renamed, of another type or shape, or with other numbers; tensors that nobody
knows. tfmc must write what the folder with these numbers in f32 writes, or refuse. --thin N: every Nth of them. The last line is
'N passed, N failed'.
"""
import copy
import json
import sys
import tempfile

THIN = int(sys.argv.pop(sys.argv.index("--thin") + 1)) if "--thin" in sys.argv else 1
if "--thin" in sys.argv:
    sys.argv.remove("--thin")

import collections
import pathlib
import subprocess

import numpy as np
from safetensors.numpy import save_file

import packed_llama
from import_case import CASES, TFMC

WEIGHTS = ("model.layers.0.self_attn.q_proj.weight", "model.layers.1.mlp.down_proj.weight")
VALUES = {"bits": [2, 3, 8, "4", 4.0], "num_bits": [2, 3, 8, "4"], "group_size": [16, 64, 128, -1, 0, "32"], "version": ["gemv", "exllama", "GEMM"],
          "zero_point": [False], "desc_act": [True], "sym": [True], "symmetric": [True], "strategy": ["channel", "tensor", "block", "token"],
          "type": ["float"], "format": ["int-quantized", "marlin-24", "dense", "nvfp4-pack-quantized"], "quant_method": ["gptq", "awq", "compressed-tensors", "bitsandbytes", "fp8"],
          "quantization_status": ["initialized", "frozen"], "kv_cache_scheme": [{"num_bits": 8}], "ignore": [[]],
          "input_activations": [{"num_bits": 8, "type": "int"}], "targets": [["Embedding"]]}
UNKNOWN = {"awq": {"modules_to_not_convert": [["q_proj"]], "backend": ["llm-awq", "exllama"], "do_fuse": [True], "w_bit": [8], "q_group_size": [64]},
           "gptq": {"checkpoint_format": ["gptq", "marlin", "gptq_v2"], "dynamic": [{"+:.*q_proj": {"bits": 8}}], "pack_dtype": ["int8"],
                    "is_marlin_format": [True], "true_sequential": [False], "lm_head": [True], "meta": [{"quantizer": "x"}],
                    "static_groups": [True], "damp_percent": [0.1], "modules_in_block_to_quantize": [[["self_attn.q_proj"]]]},
           "compressed-tensors": {"sparsity_config": [{"format": "sparse-24-bitmask"}, {"format": "marlin-24"}], "transform_config": [{"config_groups": {"u": {}}}],
                                  "global_compression_ratio": [1.5]}}
SCHEME = {"actorder": ["group", "weight", "static"], "observer": ["mse"], "dynamic": [True], "block_structure": ["2x2"]}


def changed(config, path, value):
    made = copy.deepcopy(config)
    at = made
    for key in path[:-1]:
        at = at[key]
    if value is Ellipsis:
        at.pop(path[-1])
    else:
        at[path[-1]] = value
    return made


def paths(config, before=()):
    for key, value in config.items():
        yield (*before, key)
        if isinstance(value, dict):
            yield from paths(value, (*before, key))


def of_config(method, config):
    for path in paths(config):
        for value in [..., None, *VALUES.get(path[-1], [])]:
            yield f"{'.'.join(path)} {'gone' if value is ... else value}", changed(config, path, value)
    for key, values in UNKNOWN[method].items():
        for value in values:
            yield f"{key} {value}", config | {key: value}
    if method == "compressed-tensors":
        for key, values in SCHEME.items():
            for value in values:
                yield f"weights.{key} {value}", changed(config, ("config_groups", "group_0", "weights", key), value)


def of_tensors(tensors):
    """The tensors, and whether numbers alone are others."""
    random = np.random.default_rng(1)
    stems = [w.removesuffix(".weight") + "." for w in WEIGHTS]
    for name, array in tensors.items():
        if not name.startswith(tuple(stems)):
            continue
        rest = {n: a for n, a in tensors.items() if n != name}
        yield f"{name} gone", rest, name.endswith("g_idx")  # without it groups follow each other
        yield f"{name} renamed", rest | {name + "s": array}, False
        yield f"{name} as f32", rest | {name: array.astype(np.float32)}, name.endswith(("scales", "scale"))
        yield f"{name} as i64", rest | {name: array.astype(np.int64)}, name.endswith("shape")
        yield f"{name} turned", rest | {name: array.T[:, ::-1].copy() if array.ndim == 2 and array.shape[0] != array.shape[1] else array[:-1]}, False
        yield f"{name} shorter", rest | {name: array[:-1].copy()}, False
        yield f"{name} flat", rest | {name: array.reshape(-1).copy()}, array.ndim == 1
        if array.dtype == np.int32 and not name.endswith("g_idx"):
            yield f"{name} with other numbers", rest | {name: random.integers(-2 ** 31, 2 ** 31, array.shape).astype(np.int32)}, True
        if array.dtype == np.float16:
            yield f"{name} with other numbers", rest | {name: (array * np.float16(1.7)).astype(np.float16)}, True
            yield f"{name} negative", rest | {name: -array}, True
            yield f"{name} small", rest | {name: (array * np.float16(2 ** -12)).astype(np.float16)}, True
            yield f"{name} zero", rest | {name: array * np.float16(0)}, True
            yield f"{name} not finite", rest | {name: np.where(array == array.max(), np.float16(np.inf), array)}, False
        if name.endswith("g_idx"):
            yield f"{name} in another order", rest | {name: random.permutation(array)}, True
            yield f"{name} too large", rest | {name: array + 1}, False
            yield f"{name} negative", rest | {name: -array}, False
        yield f"beside {name} another", tensors | {name + "_more": array}, False


class Folder:
    def __init__(self, place):
        self.place, self.case = place, json.loads((CASES / "llama.json").read_text())
        self.config = self.case["files"]["config.json"] | packed_llama.SHAPE
        save_file({n: np.array(v, np.int32) for n, v in self.case["inputs"].items()}, place / "inputs.safetensors")

    def written(self, tensors, quantization):
        """The bytes of the outputs; None: refused."""
        more = {"quantization_config": quantization} if quantization is not None else {}
        (self.place / "config.json").write_text(json.dumps(self.config | more))
        save_file(tensors, self.place / "model.safetensors")
        (self.place / "m.tfm").unlink(missing_ok=True)
        for args in (["import", self.place, "-o", self.place / "m.tfm"],
                     ["run", self.place / "m.tfm", "--weights", self.place, "--inputs", self.place / "inputs.safetensors", "-o",
                      self.place / "y.safetensors"]):
            done = subprocess.run([TFMC, *map(str, args)], capture_output=True, text=True)
            if done.returncode not in (0, 1) or "internal error" in done.stderr:
                raise RuntimeError(done.stderr)
            if done.returncode:
                return None, done.stderr
        return (self.place / "y.safetensors").read_bytes(), done.stderr


def mutations(method, tensors):
    config = packed_llama.CONFIGS[method]
    for name, given in of_config(method, config):
        yield name, tensors, given, True
    for name, given, counts in of_tensors(tensors):
        yield name, given, config, counts


def check(folder, method, seen):
    shapes = folder.case["weights"]
    plain, packed = packed_llama.make(method, shapes)
    base, _ = folder.written(plain, None)
    passed, again = folder.written(packed, packed_llama.CONFIGS[method]), folder.written(plain, None)
    assert base and passed[0] == base == again[0], passed[1]
    for i, (name, tensors, config, counts) in enumerate(mutations(method, packed)):
        if i % THIN:
            continue
        got, said = folder.written(tensors, config)
        if got is None:
            seen["refused"] += 1
            if len(said.strip().splitlines()) > 9:
                print(f"{method}: {name}: a long message\n{said}")
            continue
        wanted = base
        given = plain
        if config.get("checkpoint_format") == "gptq_v2":
            given = plain | {w: packed_llama.weight(method, w, tensors, second=True) for w in plain if packed_llama.is_packed(w)}
        elif counts and tensors is not packed and not name.endswith("g_idx gone"):
            given = plain | {w: packed_llama.weight(method, w, tensors) for w in WEIGHTS}
        if given is not plain:
            wanted, _ = folder.written(given, None)
        kind = "equal" if got == wanted and counts else "silent"
        seen[kind] += 1
        if kind == "silent":
            print(f"{method}: {name}: silent{', and as before' if got == base else ''}")


def main():
    seen = collections.Counter()
    for method in packed_llama.CONFIGS:
        with tempfile.TemporaryDirectory() as place:
            check(Folder(pathlib.Path(place)), method, seen)
    print(dict(seen))
    print(f"{seen['equal'] + seen['refused']} passed, {seen['silent']} failed")
    sys.exit(seen["silent"] != 0 or not seen["equal"] or not seen["refused"])


if __name__ == "__main__":
    main()
