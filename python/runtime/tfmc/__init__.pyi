import builtins
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Never, Protocol, final, overload

import numpy as np
from numpy.typing import NDArray

from . import corpus as corpus, text as text

__version__: str
__all__ = ["Cancelled", "Chooser", "CompileError", "CompileWarning", "Decoder", "Description", "Diagnostic", "Diverged", "EnvError",
           "Error", "Event", "Fit", "Generated", "Generation", "InputError", "InternalError", "Model", "OutOfMemory", "Pool", "Source",
           "Step", "TensorType", "Token", "TokenStream", "Trainer", "UsageError", "Verified", "build", "check", "compile",
           "from_pretrained", "from_torch", "import_model", "load", "lora", "verify_torch"]

class _DLPack(Protocol):
    def __dlpack__(self, *args: Any, **named: Any) -> Any: ...
    def __dlpack_device__(self) -> Any: ...

# An array of numpy's, anything with the buffer protocol or DLPack, or (nested) lists of numbers.
_ArrayLike = NDArray[Any] | np.generic | memoryview | _DLPack | Sequence[Any] | int | float | bool
_ConfigValue = int | float | bool | str | None
_Weights = str | os.PathLike[str] | Mapping[str, Any]

class Diagnostic(NamedTuple):
    severity: str
    code: str
    text: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None
    notes: tuple[Diagnostic, ...] = ()
    @property
    def place(self) -> str | None: ...

class Error(Exception):
    status: str
    def __init__(self, message: str = "", *, reason: str = "other", place: str | None = None,
                 diagnostics: Sequence[Diagnostic] = ()) -> None: ...
    reason: str
    place: str | None
    diagnostics: tuple[Diagnostic, ...]

class InputError(Error, ValueError): ...
class CompileError(InputError): ...
class UsageError(Error, TypeError): ...
class EnvError(Error, OSError): ...
class OutOfMemory(Error, MemoryError): ...
class Cancelled(Error): ...
class Diverged(Error, ArithmeticError):
    step: int | None
    first: str | None
    checkpoint: pathlib.Path | None
class InternalError(Error, RuntimeError): ...
class CompileWarning(UserWarning): ...

class TensorType(NamedTuple):
    dtype: str
    shape: tuple[int | str, ...]
    default: int | float | bool | None = None

@final
class Pool:
    def __new__(cls, threads: int | None = None) -> Pool: ...
    @property
    def threads(self) -> int: ...

class Source:
    text: str
    weights: _Weights | None
    name: str
    constants: tuple[str, ...]
    def __init__(self, text: str, weights: _Weights | None = None, name: str = "<text>") -> None: ...
    def state_dict(self, weights: Mapping[str, Any]) -> dict[str, Any]: ...
    def write(self, folder: str | os.PathLike[str]) -> pathlib.Path: ...

class Token(NamedTuple):
    item: int
    token: int

class Generation(NamedTuple):
    input: str
    output: str
    vocab: int
    incremental: bool
    reason: str | None
    bytes_per_token: int | None

class Generated(Sequence[NDArray[np.int32]]):
    padded: NDArray[np.int32]
    lengths: NDArray[np.int64]
    scores: NDArray[np.float32] | None
    token_scores: NDArray[np.float32] | None
    n_tokens: int
    def __init__(self, padded: NDArray[np.int32], lengths: NDArray[np.int64], scores: NDArray[np.float32] | None,
                 token_scores: NDArray[np.float32] | None, n_tokens: int) -> None: ...
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, row: int) -> NDArray[np.int32]: ...
    @overload
    def __getitem__(self, row: slice) -> list[NDArray[np.int32]]: ...

class TokenStream(Iterator[Token]):
    generated: Generated | None
    def __init__(self, work: Callable[[Callable[[int, int], object]], Generated]) -> None: ...
    def __iter__(self) -> TokenStream: ...
    def __next__(self) -> Token: ...
    def close(self) -> None: ...
    def __enter__(self) -> TokenStream: ...
    def __exit__(self, *error: object) -> None: ...

@final
class Decoder:
    def join(self, item: int = 0) -> int: ...
    def leave(self, row: int) -> None: ...
    def fork(self, row: int) -> int: ...
    def truncate(self, row: int, length: int) -> None: ...
    def keeps(self, row: int, length: int) -> int: ...
    def length(self, row: int) -> int: ...
    def reorder(self, parents: Sequence[int]) -> None: ...
    def step(self, rows: Sequence[tuple[int, _ArrayLike]], *, kept: int = 1) -> NDArray[np.float32]: ...
    # Of each row (row, chooser[, n[, guesses[, masks]]]): its chosen tokens (with logprobs: (id, logprob, ((id, logprob), ...))),
    # and its own error.
    def write(self, rows: Sequence[tuple[int, Chooser] | tuple[int, Chooser, int] |
                                   tuple[int, Chooser, int, Sequence[int] | None] |
                                   tuple[int, Chooser, int, Sequence[int] | None, bytes | None]], /) -> list[tuple[tuple[Any, ...], Error | None]]: ...
    def add_source(self, *inputs: _ArrayLike) -> int: ...
    def drop_source(self, item: int, /) -> None: ...
    def pages(self, tokens: int, /) -> tuple[int, int]: ...
    def close(self) -> None: ...
    def __enter__(self) -> Decoder: ...
    def __exit__(self, *error: object) -> None: ...

@final
class Chooser:
    @property
    def length(self) -> int: ...
    @property
    def limit(self) -> int: ...
    def ids(self, first: int = 0, /) -> list[int]: ...
    def ends(self) -> list[int]: ...

class Description:
    name: str
    inputs: Mapping[str, TensorType]
    outputs: Mapping[str, TensorType]
    weights: Mapping[str, TensorType]
    conditions: tuple[str, ...]
    sizes: tuple[str, ...]
    def __init__(self, name: str, inputs: Mapping[str, TensorType], outputs: Mapping[str, TensorType],
                 conditions: tuple[str, ...], weights: Mapping[str, TensorType]) -> None: ...

# What generate and stream take beside their own parameters: options of generation, and the model's other inputs.
_Prompts = _ArrayLike | Sequence[Sequence[int]] | None
_GenerationConfig = str | os.PathLike[str] | Mapping[str, Any] | None

class Model:
    folder: pathlib.Path  # of models from from_pretrained
    source: Source | None
    def __init__(self, *args: Never, **named: Never) -> None: ...  # made by compile and load
    generation: Generation | None
    name: str
    sizes: tuple[str, ...]
    march: str
    weights_bytes: int
    inputs: Mapping[str, TensorType]
    outputs: Mapping[str, TensorType]
    @property
    def closed(self) -> bool: ...
    def __call__(self, *inputs: _ArrayLike, **named: _ArrayLike) -> Any: ...
    def run(self, inputs: Mapping[str, _ArrayLike], *, outputs: Sequence[str] | None = None,
            out: Mapping[str, Any] | None = None) -> dict[str, NDArray[Any]]: ...
    def generate(self, prompts: _Prompts = None, *, config: _GenerationConfig = None,
                 on_token: Callable[[int, int], object] | None = None,
                 on_scores: Callable[[int, NDArray[np.int32], NDArray[np.float32]], object] | None = None,
                 **options_and_inputs: Any) -> Generated: ...
    def stream(self, prompts: _Prompts = None, *, config: _GenerationConfig = None,
               on_scores: Callable[[int, NDArray[np.int32], NDArray[np.float32]], object] | None = None,
               **options_and_inputs: Any) -> TokenStream: ...
    def decoder(self, *, max_rows: int, max_length: int, step_rows: int = 0, step_kept: int = 0, cache_bytes: int = 0,
                items: int = 0, source_length: int = 0, **sources: _ArrayLike) -> Decoder: ...
    def chooser(self, prompt: Sequence[int], *, limit: int, config: _GenerationConfig = None, seed: int = 0,
                number: int = 0, logprobs: int | None = None, **options: Any) -> Chooser: ...
    def save(self, path: str | os.PathLike[str]) -> pathlib.Path: ...
    def dump(self, stage: str = "fused") -> str: ...
    def report(self) -> str: ...
    def profile(self, inputs: Mapping[str, _ArrayLike | str] | None = None, /, *, iterations: int = 20,
                decode: bool = False, **named: _ArrayLike | str) -> str: ...
    def reserve(self, **sizes: int) -> None: ...
    def workspace_bytes(self, **sizes: int) -> int: ...
    def close(self) -> None: ...
    def __enter__(self) -> Model: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None: ...

def compile(source: str | os.PathLike[str] | Source, *, weights: _Weights | None = None, weights_prefix: str = "",
            model: str | None = None, march: str | None = None, quantize: str | Sequence[str] | None = None,
            threads: int | None = None, pool: Pool | None = None, in_process: bool = False,
            deadline: float | None = None, memory_limit: int | None = None, compiler: str | None = None,
            on_message: Callable[[Diagnostic], object] | None = None, config: Mapping[str, _ConfigValue] = {},
            **more_config: _ConfigValue) -> Model: ...
def load(path: str | os.PathLike[str], *, weights: str | os.PathLike[str] | None = None, threads: int | None = None,
         pool: Pool | None = None) -> Model: ...
def check(source: str | os.PathLike[str] | Source, *, weights: str | os.PathLike[str] | None = None,
          weights_prefix: str = "", model: str | None = None, compiler: str | None = None,
          on_message: Callable[[Diagnostic], object] | None = None, config: Mapping[str, _ConfigValue] = {},
          **more_config: _ConfigValue) -> Description: ...
def build(source: str | os.PathLike[str] | Source, output: str | os.PathLike[str], *,
          weights: str | os.PathLike[str] | None = None, weights_prefix: str = "", model: str | None = None,
          march: str | Sequence[str] = ("x86-64-v3",), quantize: str | Sequence[str] | None = None,
          embed_weights: bool = False, compiler: str | None = None,
          on_message: Callable[[Diagnostic], object] | None = None, config: Mapping[str, _ConfigValue] = {},
          **more_config: _ConfigValue) -> pathlib.Path: ...
def lora(source: str | os.PathLike[str] | Source, rank: int | None = None, alpha: float | None = None,
         targets: str | Sequence[str] | None = None, *, dropout: float | None = None, rslora: bool | None = None,
         also: str | Sequence[str] | None = None, ranks: Mapping[str, int] | None = None,
         alphas: Mapping[str, float] | None = None, adapter: str | os.PathLike[str] | None = None) -> Source: ...
def import_model(folder: str | os.PathLike[str], output: str | os.PathLike[str] | None = None, *,
                 task: str | None = None, family: str | os.PathLike[str] | None = None, strict: bool = False,
                 ignore: Sequence[str] = (),
                 adapter: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
                 compiler: str | None = None, on_message: Callable[[Diagnostic], object] | None = None) -> Source: ...
def from_pretrained(folder: str | os.PathLike[str], *, task: str | None = None,
                    family: str | os.PathLike[str] | None = None, ignore: Sequence[str] = (),
                    adapter: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
                    threads: int | None = None, pool: Pool | None = None,
                    march: str | None = None, quantize: str | Sequence[str] | None = None,
                    deadline: float | None = None, compiler: str | None = None,
                    on_message: Callable[[Diagnostic], object] | None = None, config: Mapping[str, _ConfigValue] = {},
                    **more_config: _ConfigValue) -> Model: ...
# module: a torch.nn.Module; torch is no dependency, so that its types are not named here.
def from_torch(module: Any, inputs: Mapping[str, Any], *, sizes: Mapping[str, Mapping[int, str]],
               outputs: Sequence[str] | None = None, generate: str | None = None, name: str = "Model",
               fold: bool = True, check: bool = True, dropout: bool = True, training: bool = False,
               targets: Mapping[str, Any] | None = None, loss: Callable[..., Any] | str | None = None,
               metrics: Mapping[str, Callable[..., Any]] | None = None,
               ranges: Mapping[str, tuple[int, int]] | None = None) -> Source: ...

class Verified:
    same: bool
    distance: float
    module: str | None
    text: str
    def __init__(self, distance: float, tolerance: float, module: str | None, text: str) -> None: ...
    def __bool__(self) -> bool: ...

def verify_torch(model: Model, module: Any, inputs: Mapping[str, Any], *, tolerance: float = 1e-5) -> Verified: ...

class Step(NamedTuple):
    step: int
    loss: float
    norm: float
    rate: float
    results: dict[str, float]
    skipped: bool = False

class Event(dict[str, Any]):
    trainer: Trainer
    def __init__(self, record: Mapping[str, Any], trainer: Trainer) -> None: ...
    @property
    def kind(self) -> str: ...
    @property
    def step(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def results(self) -> dict[str, float]: ...

class Fit(NamedTuple):
    best: dict[str, Any] | None
    history: list[dict[str, Any]]
    seconds: float
    skipped: int
    stopped: str
    folder: pathlib.Path | None

# Columns, rows, data sets of torch or datasets (which are no dependencies), files.
_Items = Any
_Batch = Mapping[str, _ArrayLike]
_Setting = int | float | bool | str | None | Sequence[str | float | Sequence[str | float]]

class Trainer:
    source: Source | None
    inputs: dict[str, TensorType]
    results: tuple[str, ...]
    trained: tuple[str, ...]
    settings: dict[str, Any]
    epoch: int
    memory: int | None
    has_average: bool
    @property
    def state_bytes(self) -> int: ...
    def __init__(self, source: str | os.PathLike[str] | Source, *, weights: _Weights | None = None,
                 new: str | Sequence[str] = (), objective: str | None = None, settings: Mapping[str, _Setting] = {},
                 seed: int = 0, threads: int | None = None, pool: Pool | None = None, memory: int | None = None,
                 recompute: str | None = None, shards: int = 1, group: object = None, march: str | None = None,
                 compiler: str | None = None, config: Mapping[str, _ConfigValue] = {},
                 on_message: Callable[[Diagnostic], object] | None = None, **more_settings: _Setting) -> None: ...
    @classmethod
    def resume(cls, folder: str | os.PathLike[str], source: str | os.PathLike[str] | Source, *,
               weights: _Weights | None = None, objective: str | None = None, settings: Mapping[str, _Setting] = {}, threads: int | None = None,
               pool: Pool | None = None, memory: int | None = None, recompute: str | None = None, shards: int = 1,
               group: object = None, march: str | None = None, compiler: str | None = None,
               config: Mapping[str, _ConfigValue] = {}, on_message: Callable[[Diagnostic], object] | None = None,
               **more_settings: _Setting) -> Trainer: ...
    def step(self, batch: _Batch | None = None, /, *, parts: Sequence[_Batch] | None = None,
             **named: _ArrayLike) -> Step: ...
    def gradients(self, batch: _Batch | None = None, /, *, parts: Sequence[_Batch] | None = None, dropout: bool = True,
                  **named: _ArrayLike) -> dict[str, NDArray[np.float32]]: ...
    def update(self, gradients: Mapping[str, Any] | None = None) -> Step: ...
    def evaluate(self, data: _Items | None = None, /, *, parts: Sequence[_Batch] | None = None,
                 batch_items: int | None = None, batch_tokens: int | None = None, pad: Mapping[str, int | float] | None = None,
                 average: bool = False, **named: _ArrayLike) -> dict[str, float]: ...
    seed: int | None
    def fit(self, train: _Items, valid: _Items | None = None, *, out: str | os.PathLike[str] | None = None,
            resume: bool = False, metric: Callable[[Trainer], float | Mapping[str, float]] | None = None,
            callbacks: Sequence[Callable[[Event], object]] = (), progress: bool | None = None,
            pad: Mapping[str, int | float] | None = None, skip_long: bool = False, epochs: int | None = None,
            steps: int | None = None, batch_items: int | None = None, batch_tokens: int | None = None,
            part_tokens: int | None = None, pool: int | None = None, valid_every: int | None = None,
            save_every: int | None = None, log_every: int | None = None, keep: int | None = None,
            patience: int | None = None, memory: int | None = None, empty_batches: str | None = None,
            recompute: str | None = None, order: str | None = None, best: str | None = None) -> Fit: ...
    @property
    def steps(self) -> int: ...
    def bytes(self, **sizes: int) -> int: ...
    def weight(self, path: str) -> NDArray[np.float32]: ...
    def gradient(self, path: str) -> NDArray[np.float32]: ...
    def weights(self, *, average: bool = False) -> dict[str, NDArray[np.float32]]: ...
    def state_dict(self, *, average: bool = False) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None: ...
    def to_torch(self, module: Any, strict: bool = True, *, average: bool = False) -> None: ...
    def save(self, folder: str | os.PathLike[str], note: builtins.bytes | None = None) -> pathlib.Path: ...
    def save_compiled(self, path: str | os.PathLike[str]) -> pathlib.Path: ...
    @property
    def has_adapter(self) -> bool: ...
    def save_adapter(self, folder: str | os.PathLike[str],
                     base: str | os.PathLike[str] | None = None) -> pathlib.Path: ...
    @property
    def note(self) -> builtins.bytes | None: ...
    def model(self, *, average: bool = False, quantize: str | Sequence[str] | None = None, threads: int | None = None,
              pool: Pool | None = None) -> Model: ...
