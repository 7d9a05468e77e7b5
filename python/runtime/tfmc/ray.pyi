import os
from typing import Any

class Embedder:
    embedder: Any
    column: str
    output: str
    options: dict[str, Any]
    def __init__(self, model: str | os.PathLike[str], *, tokenizer: str | os.PathLike[str] | None = None,
                 column: str = "text", output: str = "embedding", threads: int = 1, batch_tokens: int | None = None,
                 **options: Any) -> None: ...
    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]: ...
