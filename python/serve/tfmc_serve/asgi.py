"""What stands between uvicorn and the routes: the names of ASGI's types, and an answer that is sent whole."""
from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Whole:
    """An ASGI application that answers with these bytes."""
    body: bytes
    status: int = 200
    kind: bytes = b"application/json"
    headers: tuple[tuple[bytes, bytes], ...] = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status, "headers": [
            (b"content-type", self.kind), (b"content-length", b"%d" % len(self.body)), *self.headers]})
        await send({"type": "http.response.body", "body": self.body})
