"""Transformer models, compiled to native code for the CPU: compile or load one, call it with arrays.

    model = tfmc.compile("tagger.tfm", weights="tagger.safetensors", depth=3)
    scores = model(ids=np.array([[5, 81, 32, 7, 499]], np.int32))
"""
from . import _core
from ._commands import Description, build, check, from_pretrained, import_model
from ._core import Chooser, Decoder, Pool
from ._errors import (Cancelled, CompileError, Diagnostic, Diverged, EnvError, Error, InputError, InternalError, OutOfMemory,
                      UsageError)
from ._generate import Generated, Generation, Token, TokenStream
from ._judging import Event
from ._lora import lora
from ._model import CompileWarning, Model, TensorType, compile, load
from ._source import Source
from ._torch import from_torch
from ._trainer import Fit, Step, Trainer
from ._verify import Verified, verify_torch

__version__ = _core.version()


def __getattr__(name):
    """tfmc.text and tfmc.corpus are there without an import of their own, and are loaded when they are first used."""
    if name in ("text", "corpus"):
        import importlib
        return importlib.import_module(f"tfmc.{name}")
    raise AttributeError(f"module 'tfmc' has no attribute {name!r}")


__all__ = ["Cancelled", "Chooser", "CompileError", "CompileWarning", "Decoder", "Description", "Diagnostic", "Diverged",
           "EnvError", "Error", "Event", "Fit", "Generated", "Generation", "InputError", "InternalError", "Model", "OutOfMemory", "Pool", "Source",
           "Step", "TensorType", "Token", "TokenStream", "Trainer", "UsageError", "Verified", "build", "check", "compile",
           "from_pretrained", "from_torch", "import_model", "load", "lora", "verify_torch"]
