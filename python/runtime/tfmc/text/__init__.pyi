import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, overload

from .. import Diagnostic, Fit, Model

__all__ = ["BATCH_TOKENS", "Embedder", "MultiVectorEmbedder", "Reranker", "Translator", "UNLIMITED", "Writer", "finetune",
           "load_tokenizer"]

BATCH_TOKENS: int
UNLIMITED: int

def load_tokenizer(folder: str | os.PathLike[str]) -> Any: ...

# data: rows of texts (lists of tuples or dicts), columns, a datasets.Dataset; options: of Trainer.fit, and settings.
def finetune(folder: str | os.PathLike[str], data: Any, *, task: Literal["pairs", "scores", "triplets", "labels", "text"],
             out: str | os.PathLike[str], valid: Any = None, lora: Mapping[str, Any] | None = None, max_tokens: int | None = None,
             loss: str | None = None, labels: Sequence[str] | None = None, pack: bool = False, seed: int = 0,
             resume: bool = False, threads: int | None = None, settings: Mapping[str, Any] = {},
             config: Mapping[str, Any] = {}, compiler: str | None = None,
             on_message: Callable[[Diagnostic], object] | None = None, **options: Any) -> Fit: ...

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
                 max_length: int | None = None, batch_tokens: int | None = ..., truncate: bool | None = True,
                 truncate_dim: int | None = None, **options: Any) -> None: ...
    def tokens(self, texts: Sequence[str], *, truncate: bool | None = None) -> list[list[int]]: ...
    def encode(self, sentences: str | Sequence[str], prompt_name: str | None = None, prompt: str | None = None,
               batch_size: int | None = None, show_progress_bar: bool | None = None, *, normalize: bool | None = None,
               normalize_embeddings: bool | None = None, truncate: bool | None = None, truncate_dim: int | None = None,
               convert_to_numpy: bool = True, convert_to_tensor: bool = False) -> Any: ...
    def encode_query(self, sentences: str | Sequence[str], prompt_name: str | None = None, prompt: str | None = None,
                     *args: Any, **options: Any) -> Any: ...
    def encode_document(self, sentences: str | Sequence[str], prompt_name: str | None = None, prompt: str | None = None,
                        *args: Any, **options: Any) -> Any: ...
    def __call__(self, sentences: str | Sequence[str], prompt_name: str | None = None, prompt: str | None = None,
                 batch_size: int | None = None, show_progress_bar: bool | None = None, *, normalize: bool | None = None,
                 normalize_embeddings: bool | None = None, truncate: bool | None = None, truncate_dim: int | None = None,
                 convert_to_numpy: bool = True, convert_to_tensor: bool = False) -> Any: ...

class MultiVectorEmbedder:
    model: Model
    folder: Path
    tokenizer: Any
    dimension: int
    max_length: int
    batch_tokens: int
    prompts: dict[str, str]
    default_prompt: str | None
    def __init__(self, model: Model | str | os.PathLike[str], *, folder: str | os.PathLike[str] | None = None,
                 max_length: int | None = None, batch_tokens: int | None = ..., truncate: bool | None = True, **options: Any) -> None: ...
    def encode(self, sentences: str | Sequence[str], prompt_name: str | None = None, prompt: str | None = None,
               batch_size: int | None = None, show_progress_bar: bool | None = None, *, task: str | None = None,
               normalize: bool | None = None, normalize_embeddings: bool | None = None,
               truncate: bool | None = None) -> Any: ...
    def encode_query(self, sentences: str | Sequence[str], prompt_name: str | None = None, prompt: str | None = None,
                     *args: Any, **options: Any) -> Any: ...
    def encode_document(self, sentences: str | Sequence[str], prompt_name: str | None = None, prompt: str | None = None,
                        *args: Any, **options: Any) -> Any: ...
    def similarity(self, queries: Any, documents: Any) -> Any: ...

class Reranker:
    model: Model
    folder: Path
    tokenizer: Any
    prompts: dict[str, str]
    default_prompt: str | None
    num_labels: int
    max_length: int
    batch_tokens: int
    activation_fn: Callable[[Any], Any]
    def __init__(self, model: Model | str | os.PathLike[str], *, folder: str | os.PathLike[str] | None = None,
                 max_length: int | None = None, batch_tokens: int | None = ...,
                 activation_fn: Callable[[Any], Any] | None = None, truncate: bool | None = True, **options: Any) -> None: ...
    def predict(self, sentences: Sequence[Sequence[str]] | Sequence[str], batch_size: int | None = None,
                show_progress_bar: bool | None = None, activation_fn: Callable[[Any], Any] | None = None,
                apply_softmax: bool = False, convert_to_numpy: bool = True, convert_to_tensor: bool = False, *,
                truncate: bool | None = None, prompt: str | None = None, prompt_name: str | None = None) -> Any: ...
    def __call__(self, sentences: Sequence[Sequence[str]] | Sequence[str], batch_size: int | None = None,
                 show_progress_bar: bool | None = None, activation_fn: Callable[[Any], Any] | None = None,
                 apply_softmax: bool = False, convert_to_numpy: bool = True, convert_to_tensor: bool = False, *,
                 truncate: bool | None = None, prompt: str | None = None, prompt_name: str | None = None) -> Any: ...
    def rank(self, query: str, documents: Sequence[str], top_k: int | None = None, return_documents: bool = False,
             batch_size: int | None = None, show_progress_bar: bool | None = None,
             activation_fn: Callable[[Any], Any] | None = None, *, truncate: bool | None = None, prompt: str | None = None,
             prompt_name: str | None = None) -> list[dict[str, Any]]: ...

class Translator:
    model: Model
    folder: Path
    tokens: Any
    max_length: int | None
    batch_tokens: int
    defaults: dict[str, Any]
    def __init__(self, model: Model | str | os.PathLike[str], *, folder: str | os.PathLike[str] | None = None,
                 max_length: int | None = None, batch_tokens: int | None = ..., **options: Any) -> None: ...
    @overload
    def translate(self, texts: str, *, target: str | None = None, source: str | None = None, prompt: str = "",
                  truncate: bool = False, **options: Any) -> str: ...
    @overload
    def translate(self, texts: Sequence[str], *, target: str | None = None, source: str | None = None, prompt: str = "",
                  truncate: bool = False, **options: Any) -> list[str]: ...
    @overload
    def __call__(self, texts: str, *, target: str | None = None, source: str | None = None, prompt: str = "",
                 truncate: bool = False, **options: Any) -> str: ...
    @overload
    def __call__(self, texts: Sequence[str], *, target: str | None = None, source: str | None = None, prompt: str = "",
                 truncate: bool = False, **options: Any) -> list[str]: ...

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
    def tokens_of(self, messages: Sequence[Any], *, tools: Sequence[Any] | None = None,
                  chat_template_kwargs: dict[str, Any] | None = None) -> list[int]: ...
    @overload
    def chat(self, messages: Sequence[Any], *, stream: Literal[False] = False, tools: Sequence[Any] | None = None,
             chat_template_kwargs: dict[str, Any] | None = None, **options: Any) -> str: ...
    @overload
    def chat(self, messages: Sequence[Any], *, stream: Literal[True], tools: Sequence[Any] | None = None,
             chat_template_kwargs: dict[str, Any] | None = None, **options: Any) -> Iterator[str]: ...
    def stream_chat(self, messages: Sequence[Any], *, tools: Sequence[Any] | None = None,
                    chat_template_kwargs: dict[str, Any] | None = None, **options: Any) -> Iterator[str]: ...
