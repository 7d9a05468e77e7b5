"""A checkpoint of a case: its folder as transformers writes it, with weights that depend on their names alone.

RandomState's stream of normal numbers never changes between versions of numpy, so a case keeps names and shapes, not
numbers. A seed other than 0 gives other numbers, and turned() other inputs.
"""
import json
import zlib

import numpy as np
from safetensors.numpy import save_file


def weight(name, shape, gain, seed=0):
    noise = np.random.RandomState((zlib.crc32(name.encode()) + seed) % 2**32).standard_normal(shape).astype(np.float32)
    if len(shape) > 1:
        return np.float32(gain) * noise
    return np.float32(name.endswith((".weight", ".layer_scalar", ".router.scale"))) + np.float32(0.1) * noise  # scales are near 1


def turned(array):
    """The inputs of the second seed: rows of ids in the other order, numbers along their last axis."""
    return np.flip(array, -1 if array.dtype.kind == "f" else 0).copy()


def save(tensors, folder):
    """model.safetensors; tensors called MODULE/NAME into MODULE/model.safetensors, as sentence transformers have them."""
    parts = {"": {}}
    for name, tensor in tensors.items():
        module, _, inside = name.rpartition("/")
        parts.setdefault(module, {})[inside] = np.array(tensor, order="C")
    for module, inside in parts.items():
        (folder / module).mkdir(exist_ok=True)
        save_file(inside, folder / module / "model.safetensors", metadata={"format": "pt"})


def write(case, folder, seed=0):
    """config.json, generation_config.json and others, model.safetensors, and those of modules."""
    for name, content in case["files"].items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    save({n: weight(n, s, case["gain"], seed) for n, s in case["weights"].items()}, folder)
