"""Answers that are sent while they are computed: server-sent events.

An error that comes when the answer has begun is an event of its own, and the end without [DONE].
"""
from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import orjson

from .errors import Fault, Gone
from .exchanges import Exchange, Fields

DONE, PING = b"data: [DONE]\n\n", b": ping\n\n"
HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store"),
           (b"x-accel-buffering", b"no")]
log = logging.getLogger("tfmc_serve")


def event(content: Any) -> bytes:
    return b"data: " + orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n\n"


class EventStream:
    """An answer that is what an iterator gives: objects, or None for a sign of life."""

    def __init__(self, events: AsyncIterator[Any], ended: Callable[[], None], internal: Callable[[], Fault]) -> None:
        self._events, self._ended, self._internal = events, ended, internal

    async def send(self, exchange: Exchange, fields: Fields) -> None:
        try:
            exchange.begin(200, [*HEADERS, *fields])
            async with contextlib.aclosing(self._parts(exchange)) as parts:
                async for data in parts:
                    await exchange.write(data)
            exchange.end()
        finally:
            self._ended()

    async def _parts(self, exchange: Exchange) -> AsyncGenerator[bytes, None]:
        try:
            async for content in self._events:
                yield PING if content is None else event(content)
            yield DONE
        except Gone:
            raise
        except Fault as fault:
            exchange.record.fault = fault.message
            yield event(fault.body(exchange.path))
        except Exception:
            log.exception("%s: %s", exchange.record.id, exchange.path)
            yield event(self._internal().body(exchange.path))
