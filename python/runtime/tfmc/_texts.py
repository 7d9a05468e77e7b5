"""Running texts with weights and inputs from memory, by the command, for who compares what they give.

What comes in are tensors of torch and arrays; they go through safetensors files in a folder that is gone in the end.
Errors are those of the command.
"""
import os

from . import _find
from ._tensors import read_tensors, write_tensors


class Texts:
    """`with Texts(weights) as texts`: weights are written once, for all texts that are run."""

    def __init__(self, weights):
        self.weights = weights

    def __enter__(self):
        import tempfile
        self.folder = tempfile.TemporaryDirectory(prefix="tfmc-")
        write_tensors(self.path("weights"), {name: value.numpy() for name, value in self.weights.items()})
        return self

    def __exit__(self, *error):
        self.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, f"{name}.safetensors")

    def run(self, text, inputs, *more):
        """What a text gives, by name; by the reference interpreter unless `more` says otherwise."""
        write_tensors(self.path("inputs"), inputs)
        _find.command(["run", "-q", *(more or ["--engine=reference"]), f"--weights={self.path('weights')}",
                       f"--inputs={self.path('inputs')}", f"--output={self.path('outputs')}", _find.TEXT], text=text)
        return read_tensors(self.path("outputs"))
