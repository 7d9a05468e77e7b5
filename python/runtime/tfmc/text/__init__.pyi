import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

from . import Model

BATCH_TOKENS: int
UNLIMITED: int

def load_tokenizer(folder: str | os.PathLike[str]) -> Any: ...

class Embedder:
    model: Model
    folder: Path
    tokenizer: Any
    dimension: int
    max_length: int
    batch_tokens: int
    prompts: dict[str, str]
    default_prompt: str | None
    def __init__(self, model: Model | str | os.PathLike[str], *, folder: str | os.PathLike[str] | None = None,
                 max_length: int | None = None, batch_tokens: int = ..., **options: Any) -> None: ...
    def tokens(self, texts: Sequence[str], *, truncate: bool = True) -> list[list[int]]: ...
    def encode(self, sentences: str | Sequence[str], prompt_name: str | None = None, prompt: str | None = None,
               batch_size: int | None = None, show_progress_bar: bool | None = None, *, normalize: bool | None = None,
               normalize_embeddings: bool | None = None, truncate: bool = True, convert_to_numpy: bool = True,
               convert_to_tensor: bool = False) -> Any: ...
    def __call__(self, sentences: str | Sequence[str], prompt_name: str | None = None, prompt: str | None = None,
                 batch_size: int | None = None, show_progress_bar: bool | None = None, *, normalize: bool | None = None,
                 normalize_embeddings: bool | None = None, truncate: bool = True, convert_to_numpy: bool = True,
                 convert_to_tensor: bool = False) -> Any: ...

class Writer:
    model: Model
    folder: Path
    tokenizer: Any
    def __init__(self, model: Model | str | os.PathLike[str], *, folder: str | os.PathLike[str] | None = None,
                 **options: Any) -> None: ...
    @overload
    def generate(self, texts: str, **options: Any) -> str: ...
    @overload
    def generate(self, texts: Sequence[str], **options: Any) -> list[str]: ...
    def stream(self, text: str, **options: Any) -> Iterator[str]: ...
