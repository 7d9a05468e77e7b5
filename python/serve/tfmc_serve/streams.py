"""Answers that are sent while they are computed: server-sent events.

An error that comes when the answer has begun is an event of its own, and the end without [DONE].
"""
from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
from .asgi import Receive, Scope, Send
from .errors import Fault, Gone

DONE, PING = b"data: [DONE]\n\n", b": ping\n\n"
HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store"),
           (b"x-accel-buffering", b"no")]
log = logging.getLogger("tfmc_serve")


def event(content: Any) -> bytes:
    return b"data: " + orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n\n"


class EventStream:
    """An ASGI application that sends what an iterator gives: objects, or None for a sign of life."""

    def __init__(self, events: AsyncIterator[Any], ended: Callable[[], None], internal: Callable[[], Fault]) -> None:
        self._events, self._ended, self._internal = events, ended, internal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})
            async for data in self._parts(scope):
                await send({"type": "http.response.body", "body": data, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._ended()

    async def _parts(self, scope: Scope) -> AsyncIterator[bytes]:
        try:
            async for content in self._events:
                yield PING if content is None else event(content)
            yield DONE
        except Gone:
            raise
        except Fault as fault:
            scope["tfmc"].fault = fault.message
            yield event(fault.body(scope["path"]))
        except Exception:
            log.exception("%s: %s", scope["tfmc"].id, scope["path"])
            yield event(self._internal().body(scope["path"]))
