import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Protocol, final

import numpy as np
from numpy.typing import NDArray

__version__: str
__all__ = ["Cancelled", "CompileError", "CompileWarning", "Diagnostic", "EnvError", "Error", "InputError",
           "InternalError", "Model", "OutOfMemory", "Pool", "Source", "TensorType", "UsageError", "compile", "load"]

class _DLPack(Protocol):
    def __dlpack__(self, *args: Any, **named: Any) -> Any: ...
    def __dlpack_device__(self) -> Any: ...

# An array of numpy's, anything with the buffer protocol or DLPack, or (nested) lists of numbers.
ArrayLike = NDArray[Any] | np.generic | memoryview | _DLPack | Sequence[Any] | int | float | bool
ConfigValue = int | float | bool | str | None
Weights = str | os.PathLike[str] | Mapping[str, Any]

class Diagnostic:
    severity: str
    code: str
    text: str
    file: str | None
    line: int | None
    column: int | None
    end_line: int | None
    end_column: int | None
    notes: tuple[Diagnostic, ...]
    @property
    def place(self) -> str | None: ...

class Error(Exception):
    status: str
    reason: str
    place: str | None
    diagnostics: tuple[Diagnostic, ...]

class InputError(Error, ValueError): ...
class CompileError(InputError): ...
class UsageError(Error, TypeError): ...
class EnvError(Error, OSError): ...  # type: ignore[misc]
class OutOfMemory(Error, MemoryError): ...
class Cancelled(Error): ...
class InternalError(Error, RuntimeError): ...
class CompileWarning(UserWarning): ...

class TensorType(NamedTuple):
    dtype: str
    shape: tuple[int | str, ...]

@final
class Pool:
    def __new__(cls, threads: int | None = None) -> Pool: ...
    @property
    def threads(self) -> int: ...

class Source:
    text: str
    weights: Weights | None
    name: str
    def __init__(self, text: str, weights: Weights | None = None, name: str = "<text>") -> None: ...
    def write(self, folder: str | os.PathLike[str]) -> pathlib.Path: ...

class Model:
    name: str
    sizes: tuple[str, ...]
    march: str
    weights_bytes: int
    inputs: Mapping[str, TensorType]
    outputs: Mapping[str, TensorType]
    @property
    def closed(self) -> bool: ...
    def __call__(self, *inputs: ArrayLike, **named: ArrayLike) -> Any: ...
    def run(self, inputs: Mapping[str, ArrayLike], *, outputs: Sequence[str] | None = None,
            out: Mapping[str, Any] | None = None) -> dict[str, NDArray[Any]]: ...
    def reserve(self, **sizes: int) -> None: ...
    def workspace_bytes(self, **sizes: int) -> int: ...
    def close(self) -> None: ...
    def __enter__(self) -> Model: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None: ...

def compile(source: str | os.PathLike[str] | Source, *, weights: Weights | None = None, weights_prefix: str = "",
            model: str | None = None, march: str | None = None, quantize: str | Sequence[str] | None = None,
            threads: int | None = None, pool: Pool | None = None, in_process: bool = False,
            deadline: float | None = None, memory_limit: int | None = None, compiler: str | None = None,
            on_message: Callable[[Diagnostic], object] | None = None, config: Mapping[str, ConfigValue] = {},
            **more_config: ConfigValue) -> Model: ...
def load(path: str | os.PathLike[str], *, weights: str | os.PathLike[str] | None = None, threads: int | None = None,
         pool: Pool | None = None) -> Model: ...
