"""Running texts with weights and inputs from memory, by the command, for who compares what they give.

What comes in are tensors of torch and arrays; they go through safetensors files in a folder that is gone in the end.
Errors are those of the command.
"""
import json
import os

import numpy as np

from . import _find

NAMES = {"float32": "F32", "int32": "I32", "bool": "BOOL"}


def _write(path, tensors):
    head, at = {}, 0
    for name, value in tensors.items():
        head[name] = {"dtype": NAMES[value.dtype.name], "shape": value.shape, "data_offsets": [at, at + value.nbytes]}
        at += value.nbytes
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for value in tensors.values():
            file.write(np.ascontiguousarray(value).tobytes())


def _read(path):
    with open(path, "rb") as file:
        data = file.read()
    size = int.from_bytes(data[:8], "little")
    kinds = {name: dtype for dtype, name in NAMES.items()}
    return {name: np.frombuffer(data[8 + size:][slice(*t["data_offsets"])], kinds[t["dtype"]]).reshape(t["shape"])
            for name, t in json.loads(data[8:8 + size]).items() if name != "__metadata__"}


class Texts:
    """`with Texts(weights) as texts`: weights are written once, for all texts that are run."""

    def __init__(self, weights):
        self.weights = weights

    def __enter__(self):
        import tempfile
        self.folder = tempfile.TemporaryDirectory(prefix="tfmc-")
        _write(self.path("weights"), {name: value.numpy() for name, value in self.weights.items()})
        return self

    def __exit__(self, *error):
        self.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, f"{name}.safetensors")

    def run(self, text, inputs, *more):
        """What a text gives, by name; by the reference interpreter unless `more` says otherwise."""
        _write(self.path("inputs"), inputs)
        _find.command(["run", "-q", *(more or ["--engine=reference"]), f"--weights={self.path('weights')}",
                       f"--inputs={self.path('inputs')}", f"--output={self.path('outputs')}", _find.TEXT], text=text)
        return _read(self.path("outputs"))
