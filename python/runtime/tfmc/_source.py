"""What can be compiled: a file, a text, or a text that a checkpoint was imported as."""
import os
import pathlib

from . import _options
from ._errors import UsageError


class Source:
    """A model's text, and the weights that belong to it (a path, or None)."""

    def __init__(self, text, weights=None, name="<text>"):
        self.text, self.weights, self.name = text, weights, name
        self.probed, self.probes, self.versions = None, (), {}  # of from_torch, for verify_torch
        self.state, self.constants, self.dropout = {}, (), True
        self.adapts = False  # the text has adapters (lora)
        self.base_is_apart = False  # of a module that peft wrapped: checkpoints hold what is trained
        self.guards = {}  # where f32 become integers that have a bound -> the bound

    def explained(self, error):
        """An error of a run, with what the text refuses by a division by zero."""
        if error.reason != "arithmetic" or not self.guards:
            return error
        said = "; or ".join(f"{place}, is beyond {bound}" for place, bound in self.guards.items())
        return type(error)(f"an f32 that becomes an integer {said}: what is computed with it would not fit in 32 bits ({error})",
                           reason="value", place=error.place)

    def state_dict(self, weights):
        """The state_dict of the module that from_torch took, with these weights, such as those of a trained text: what
        the text does not use is as it was, as are buffers of integers, tensors with several names have all of them, and weights
        that are none of the module's state (`constants`) are left out."""
        if not self.state:
            raise UsageError("this source was not made by from_torch")
        if self.adapts:
            raise UsageError("the text has adapters, which the module has not: Trainer.save_adapter writes them for peft, and "
                             "Trainer.weights gives all weights")
        names = {kept for kept in self.state.values() if isinstance(kept, str)}
        unknown = [name for name in weights if name not in names and name not in self.constants and name not in self.state]
        missing = [name for name in names if name not in weights]
        if unknown or missing:
            raise UsageError(f"the weight {unknown[0]!r} is none of this source" if unknown
                             else f"the weight {missing[0]!r} is missing")
        return {name: weights[kept] if isinstance(kept, str) else kept for name, kept in self.state.items()}

    def write(self, folder):
        """Writes model.tfm into the folder, which is made if it is not there; returns the file's path."""
        path = pathlib.Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        path /= "model.tfm"
        path.write_text(self.text, encoding="utf-8")
        return path

    def __repr__(self):
        return f"<tfmc.Source {self.name}: {self.text.count(chr(10))} lines>"


def read(source):
    """(path, text) of a source, one of them None. A str without a newline and without a brace is a path."""
    if isinstance(source, Source):
        return None, source.text
    if isinstance(source, os.PathLike) or (isinstance(source, str) and "\n" not in source and "{" not in source):
        return os.fspath(_options.path("the source", source)), None
    if isinstance(source, str):
        return None, source
    raise UsageError(f"the source is of type {type(source).__name__}, not a path, a text or a tfmc.Source")


def _expression(name, value):
    """A value of the configuration as an expression of the language."""
    if isinstance(value, str):
        return value
    if value is None:
        return "none"
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 and not isinstance(value, (bool, int, float)):
        value = value.item()  # a number of numpy's
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    raise UsageError(f"the configuration's {name} is of type {type(value).__name__}, not a number, a flag, a text or None")


def definitions(config):
    return [f"{name}={_expression(name, value)}" for name, value in config.items()]
