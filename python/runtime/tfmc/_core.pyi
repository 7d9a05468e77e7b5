# The extension; its public types are in __init__.pyi.
from typing import Any

def __getattr__(name: str) -> Any: ...
