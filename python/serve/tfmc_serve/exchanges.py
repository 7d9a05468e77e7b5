"""A request and its answer, as an application sees them; what a connection has beside them is in connections.py.

In: the parts of a request as they arrive. Out: the bytes of the answer. Refused: bodies that are too large, as soon as
that is known.
"""
from __future__ import annotations

import asyncio
import http
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .errors import Gone

if TYPE_CHECKING:
    from .connections import Connection

STATUS_LINE = {int(status): b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode()) for status in http.HTTPStatus}
Fields = Sequence[tuple[bytes, bytes]]


class TooLarge(Exception):
    """A body that is beyond the limit."""


class Exchange:
    """A request and its answer: what an application is called with. `path` without the query, decoded; `fields` of the
    head by their names in small letters, of equal ones the first."""
    __slots__ = ("method", "path", "fields", "version", "keeps", "length", "record", "status", "is_answered", "gone",
                 "_connection", "_body", "_size", "_is_whole", "_most", "_expects", "_waiter", "_callbacks", "_chunks")

    def __init__(self, connection: Connection, method: str, path: str, fields: dict[bytes, bytes], version: str,
                 keeps: bool, most: int) -> None:
        self.method, self.path, self.fields, self.version, self.keeps = method, path, fields, version, keeps
        self._connection, self._most, self.length = connection, most, 0
        self.record: Any = None
        self.status, self.is_answered, self.gone = 0, False, False
        self._body: list[bytes] = []
        self._size, self._is_whole, self._expects, self._chunks = 0, False, False, False
        self._waiter: asyncio.Future[None] | None = None
        self._callbacks: list[Callable[[], object]] = []
        length = fields.get(b"content-length", b"")
        if length.isdigit():
            self.length = int(length)
        if fields.get(b"expect", b"").lower() == b"100-continue":
            self._expects = True

    def field(self, name: bytes) -> str:
        """"": there is none."""
        return self.fields.get(name, b"").decode("latin-1")

    @property
    def is_alone(self) -> bool:
        """No other request of this server has begun and is not answered."""
        others = self._connection.owner.open
        return not others or (len(others) == 1 and self in others)

    # ---- the request ----

    async def body(self) -> bytes:
        """All of it. Raises Gone and TooLarge, the latter as soon as it is known."""
        while not self._is_whole or self._size > self._most:
            if self.length > self._most or self._size > self._most:
                raise TooLarge
            if self.gone:
                raise Gone
            if self._expects:
                self._expects = False
                self._connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return b"".join(self._body)

    def on_gone(self, callback: Callable[[], object]) -> None:
        """Called once, when the client goes before it was answered; at once if it has gone."""
        if self.gone:
            callback()
        else:
            self._callbacks.append(callback)

    def off_gone(self, callback: Callable[[], object]) -> None:
        if callback in self._callbacks:
            self._callbacks.remove(callback)

    def got(self, part: bytes) -> None:
        """More of the body; what is beyond the limit, or comes after the answer, is not kept."""
        self._size += len(part)
        if self._size > self._most or self.is_answered:
            self._body.clear()
        else:
            self._body.append(part)
        if self._size > self._most:
            self._wake()

    def got_all(self) -> None:
        self._is_whole, self._expects = True, False
        self._wake()

    def lost(self) -> None:
        if not self.is_answered:
            self.gone = True
            callbacks, self._callbacks = self._callbacks, []
            for callback in callbacks:
                callback()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # ---- the answer ----

    def _head(self, status: int, fields: Fields) -> list[bytes]:
        self.status = status
        made = [STATUS_LINE[status], date()]
        for name, value in fields:
            made += (name, b": ", value, b"\r\n")
        if not self.keeps:
            made.append(b"connection: close\r\n")
        return made

    def answer(self, status: int, fields: Fields, body: bytes) -> None:
        """The whole answer in one piece."""
        made = self._head(status, fields)
        made += (b"content-length: %d\r\n\r\n" % len(body), b"" if self.method == "HEAD" else body)
        self._connection.write(b"".join(made))
        self._end()

    def begin(self, status: int, fields: Fields) -> None:
        """An answer that is sent in parts: in chunks, or, for clients of HTTP/1.0, up to the end of the connection."""
        self._chunks = self.version != "1.0"
        self.keeps = self.keeps and self._chunks
        made = self._head(status, fields)
        made.append(b"transfer-encoding: chunked\r\n\r\n" if self._chunks else b"\r\n")
        self._connection.write(b"".join(made))

    async def write(self, part: bytes) -> None:
        """Waits as long as the client reads too little. Nothing is sent to one that has gone."""
        if self._connection.is_full:
            await self._connection.drained()
        if part:
            self._connection.write(b"%x\r\n%b\r\n" % (len(part), part) if self._chunks else part)

    def end(self) -> None:
        if self._chunks:
            self._connection.write(b"0\r\n\r\n")
        self._end()

    def cut(self) -> None:
        """No more of an answer that has begun."""
        self.keeps = False
        self._end()

    def _end(self) -> None:
        if not self.is_answered:
            self.is_answered = True
            self._callbacks.clear()
            self._body.clear()
            self._connection.answered(self)


_date = (0, b"")


def date() -> bytes:
    global _date
    now = int(time.time())
    if _date[0] != now:
        _date = now, time.strftime("date: %a, %d %b %Y %H:%M:%S GMT\r\n", time.gmtime(now)).encode()
    return _date[1]
