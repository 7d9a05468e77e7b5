import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

__all__ = ["Counts", "PART_BYTES", "Part", "Settings", "Summary", "Worker", "embed", "parts", "translate"]

_Path = str | os.PathLike[str]
_Inputs = _Path | Sequence[_Path]
_Progress = bool | Callable[[dict[str, Any]], None]

PART_BYTES: int

class Part(NamedTuple):
    number: int
    path: str
    kind: str
    place: int
    begin: int
    end: int
    size: int

class Counts(NamedTuple):
    rows: int
    tokens: int
    errors: int
    seconds: float

class Settings(NamedTuple):
    task: str
    model: str
    tokenizer: str | None
    column: str
    keep: tuple[str, ...]
    format: str
    part_bytes: int
    truncate: bool
    options: dict[str, Any]
    batch_tokens: int | None
    threads: int

class Summary(NamedTuple):
    output: str
    parts: int
    done: int
    skipped: int
    failed: int
    rows: int
    tokens: int
    errors: int
    seconds: float
    workers: int
    deaths: int

class Worker:
    settings: Settings
    maker: Any
    suffix: str
    def __init__(self, settings: Settings) -> None: ...
    def probe(self) -> str: ...
    def run(self, part: Part, output: _Path) -> Counts: ...

def parts(inputs: _Inputs, *, columns: Sequence[str] = (), part_bytes: int = ...) -> list[Part]: ...
def embed(inputs: _Inputs, output: _Path, *, model: _Path, tokenizer: _Path | None = None, column: str = "text",
          keep: str | Sequence[str] = (), prompt: str | None = None, prompt_name: str | None = None,
          normalize: bool | None = None, truncate: bool = True, format: str | None = None, part_bytes: int = ...,
          batch_tokens: int | None = None, threads: int = 1, engine: str | None = None, workers: int | None = None,
          part: str | None = None, retries: int = 2, max_errors: int | None = None,
          progress: _Progress = True) -> Summary: ...
def translate(inputs: _Inputs, output: _Path, *, model: _Path, tokenizer: _Path | None = None, column: str = "text",
              keep: str | Sequence[str] = (), target: str | None = None, source: str | None = None,
              prompt: str | None = None, truncate: bool = False, format: str | None = None, part_bytes: int = ...,
              batch_tokens: int | None = None, threads: int = 1, engine: str | None = None, workers: int | None = None,
              part: str | None = None, retries: int = 2, max_errors: int | None = None, progress: _Progress = True,
              **options: Any) -> Summary: ...
