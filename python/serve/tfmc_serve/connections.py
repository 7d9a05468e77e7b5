"""HTTP/1.1 on a connection, by httptools: requests in, in their order, and answers out.

Heads, bodies, times, and numbers of connections have limits. Refused with a status of their own, after the answers that
are still owed: what is no HTTP (400), large heads (431), heads and bodies that come too slowly (408), too many connections
(503). A client that reads nothing of its answer loses its connection. Times are looked at twice a second for all
connections together, so a request arms no timer.
"""
from __future__ import annotations

import asyncio
import logging
import time
import urllib.parse
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import httptools
import orjson

from .exchanges import STATUS_LINE, Exchange, date

HEAD_BYTES, HEADERS, HEAD_SECONDS, BODY_SECONDS = 16 * 1024, 64, 10.0, 60.0
CONNECTIONS, UNREAD_SECONDS = 1024, 60.0
KEEP_ALIVE = 65.0  # seconds that an idle connection stays: longer than proxies keep theirs
LOOK = 0.5         # seconds between two looks at the times
log = logging.getLogger("tfmc_serve")


# what decides how a request is read: in two of one name others may see another than is seen here
ONCE = (b"host", b"authorization", b"content-type", b"content-encoding", b"expect", b"x-request-id", b"origin")


class TooMuch(Exception):
    """A head that is beyond the limits."""


class Wrong(Exception):
    """A head that is HTTP, and is not taken."""


class Owner(Protocol):
    """What a connection needs of its server."""
    connections: set[Connection]
    open: set[Exchange]
    loop: Any
    most_body: int

    def begin(self, exchange: Exchange, connection: Connection) -> None: ...


IDLE, HEAD, BODY = range(3)  # what of a request has begun and is not all there


class Connection(asyncio.Protocol):
    """One client's."""
    head_seconds, body_seconds, unread_seconds, connections_most = HEAD_SECONDS, BODY_SECONDS, UNREAD_SECONDS, CONNECTIONS
    keep_seconds = KEEP_ALIVE

    def __init__(self, owner: Owner) -> None:
        self.owner, self._parser = owner, httptools.HttpRequestParser(self)
        self._transport: Any = None
        self._exchange: Exchange | None = None        # the one that is being answered
        self._waiting: deque[Exchange] = deque()      # those behind it
        self._arriving: Exchange | None = None        # the one whose body is not all there
        self._refusal: tuple[int, str] | None = None  # for when what is owed has been answered
        self._is_last, self._in_head, self._has_begun, self._head_bytes, self._field_bytes = False, False, False, 0, 0
        self._url, self._fields, self._n_fields = b"", dict[bytes, bytes](), 0
        self._wrong = ""                              # why a head is refused, if it is not by its size
        self._phase, self._due = IDLE, 0.0            # when it is late; 0: never
        self._drain: asyncio.Future[None] | None = None
        self._unread: tuple[float, int] | None = None  # when, and of how many bytes, something must have been read

    # ---- asyncio's calls ----

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.owner.connections.add(self)
        self._due = time.monotonic() + self.head_seconds
        if len(self.owner.connections) > self.connections_most:
            self._refuse(503, "there are too many connections")

    def connection_lost(self, error: Exception | None) -> None:
        self.owner.connections.discard(self)
        for exchange in (self._exchange, self._arriving, *self._waiting):
            if exchange is not None:
                exchange.lost()
        self._waiting.clear()
        if self._drain is not None and not self._drain.done():
            self._drain.set_result(None)

    def data_received(self, data: bytes) -> None:
        is_over = self._refusal is not None or (self._is_last and self._arriving is None)
        if self._transport.is_closing() or is_over:
            return
        was_in_head, self._has_begun = self._in_head, False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._ends_here()  # nothing else is spoken here: the request is answered as it is
        except httptools.HttpParserError:
            if not self._is_last or self._in_head or self._arriving is not None:
                self._refuse(*self._fault())
            return
        if was_in_head and self._in_head and not self._has_begun:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._refuse(*self._fault())
                return
        self._set_time()

    def pause_writing(self) -> None:
        """More waits for the client than the transport takes."""
        self._drain = self.owner.loop.create_future()
        self._watch_reader()

    def resume_writing(self) -> None:
        if self._drain is not None and not self._drain.done():
            self._drain.set_result(None)
        self._drain = None
        self._watch_reader()

    # ---- the parser's calls ----

    def on_message_begin(self) -> None:
        self._in_head, self._has_begun, self._head_bytes, self._field_bytes = True, True, 0, 0
        self._url, self._fields, self._n_fields = b"", {}, 0

    def on_url(self, url: bytes) -> None:
        self._url += url
        if len(self._url) > HEAD_BYTES:
            self._head_bytes = HEAD_BYTES + 1
            raise TooMuch

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name in self._fields and name in ONCE:
            self._wrong = f"the field {name.decode()} stands twice in the head of a request"
            raise Wrong
        self._fields.setdefault(name, value)
        self._n_fields += 1
        self._field_bytes += len(name) + len(value)
        if self._n_fields > HEADERS or self._field_bytes > HEAD_BYTES:
            self._head_bytes = HEAD_BYTES + 1
            raise TooMuch

    def on_headers_complete(self) -> None:
        path = httptools.parse_url(self._url).path.decode("ascii")
        version = self._parser.get_http_version()
        self._check_head(version)
        keeps = version != "1.0" and self._parser.should_keep_alive()
        made = Exchange(self, self._parser.get_method().decode("ascii"), urllib.parse.unquote(path) if "%" in path else path,
                        self._fields, version, keeps, self.owner.most_body)
        self._in_head, self._arriving, self._is_last = False, made, not keeps
        if self._exchange is None:
            self._exchange = made
            self.owner.begin(made, self)
        else:
            self._transport.pause_reading()
            self._waiting.append(made)

    def _check_head(self, version: str) -> None:
        fields = self._fields
        if version not in ("1.1", "1.0"):
            self._wrong = "HTTP/1.1 is spoken here"
        elif version == "1.1" and b"host" not in fields:
            self._wrong = "the head of a request has no field host"
        elif self._parser.should_upgrade() and (b"content-length" in fields or b"transfer-encoding" in fields):
            self._wrong = "nothing else than HTTP/1.1 is spoken here: leave out the field upgrade"
        if self._wrong:
            raise Wrong

    def on_body(self, body: bytes) -> None:
        if self._arriving is not None:
            self._arriving.got(body)

    def on_message_complete(self) -> None:
        arrived, self._arriving, self._phase = self._arriving, None, IDLE
        if arrived is not None:
            arrived.got_all()

    # ---- for exchanges ----

    def write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    @property
    def is_full(self) -> bool:
        """More waits for the client than the transport takes."""
        return self._drain is not None and not self._drain.done()

    async def drained(self) -> None:
        while self._drain is not None and not self._drain.done():
            await asyncio.shield(self._drain)  # others may wait for it, too

    def answered(self, exchange: Exchange) -> None:
        """The next request has its turn, or what is owed besides."""
        self.owner.open.discard(exchange)
        if exchange is not self._exchange:
            return
        self._exchange = None
        self._watch_reader()
        if not exchange.keeps:
            self._transport.close()
        elif self._waiting:
            self._exchange = self._waiting.popleft()
            if not self._waiting and self._refusal is None:
                self._transport.resume_reading()
            self.owner.begin(self._exchange, self)
        elif self._refusal is not None:
            self._refuse(*self._refusal)
        elif self._arriving is None and not self._in_head:
            self._due = time.monotonic() + self.keep_seconds

    def _ends_here(self) -> None:
        """No request follows those that are there."""
        self._is_last = True
        last = self._waiting[-1] if self._waiting else self._exchange
        if last is not None:
            last.keeps = False

    # ---- times ----

    def _set_time(self) -> None:
        """By when the rest of what has begun must be there. What is idle was told when it began to be."""
        phase = HEAD if self._in_head else BODY if self._arriving is not None else IDLE
        if phase != self._phase:
            self._due = time.monotonic() + (self.head_seconds if phase == HEAD else self.body_seconds)
        elif phase == IDLE and self._exchange is not None:
            self._due = 0.0
        self._phase = phase

    def look(self, now: float) -> None:
        """Whether something is late."""
        if self._due and now > self._due:
            self._due = 0.0
            if self._waiting:  # nothing is read then: it is not the client that is late
                self._due = now + self.body_seconds
            elif self._in_head or (self._arriving is not None and self._arriving is self._exchange):
                self._refuse(408, "the request did not come in time")
            else:
                self._transport.close()  # between two requests, or while what nobody wants is read
        if self._unread is not None and now > self._unread[0]:
            if self._transport.get_write_buffer_size() >= self._unread[1]:
                self._transport.abort()
            self._watch_reader()

    def _watch_reader(self) -> None:
        """Of what waits for the client something must have been read in a while."""
        unread = self._transport.get_write_buffer_size()
        self._unread = (time.monotonic() + self.unread_seconds, unread) if unread else None

    # ---- ends ----

    def _fault(self) -> tuple[int, str]:
        if self._head_bytes > HEAD_BYTES:
            return 431, f"the head of a request may have {HEADERS} fields and {HEAD_BYTES} bytes"
        return 400, self._wrong or "this is no HTTP request"

    def _refuse(self, status: int, message: str) -> None:
        """In place of the request that arrives, once those before it have been answered."""
        self._refusal = status, message
        if self._arriving is not None and self._arriving in self._waiting:
            self._waiting.remove(self._arriving)
        owed = self._exchange
        if owed is not None and not (owed is self._arriving and not owed.status):
            self._transport.pause_reading()
            return
        body = orjson.dumps({"error": message, "error_type": "Validation"})
        self.write(STATUS_LINE[status] + date() + b"content-type: application/json\r\nconnection: close\r\n"
                   b"content-length: %d\r\n\r\n" % len(body) + body)
        self._transport.close()

    def shut(self) -> None:
        """When the server ends: an idle connection at once, others with their answer."""
        if self._exchange is None:
            self._transport.close()
        else:
            self._ends_here()

    def abort(self) -> None:
        self._transport.abort()


class Server:
    """An application, called with each exchange, on sockets that listen. `most_body`: bytes of a body."""

    def __init__(self, app: Callable[[Exchange], Awaitable[None]], most_body: int,
                 connection: type[Connection] = Connection) -> None:
        self.connections: set[Connection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.open: set[Exchange] = set()  # that have begun and are not answered
        self.loop: Any = None
        self.most_body, self._app, self.connection = most_body, app, connection
        self._asked_to_end = asyncio.Event()
        self._looks: asyncio.TimerHandle | None = None

    async def serve(self, listening: Any, last_seconds: float) -> None:
        """Until end() is called; then what is being answered has so many seconds."""
        self.loop = asyncio.get_running_loop()
        server = await self.loop.create_server(lambda: self.connection(self), sock=listening, backlog=2048)
        self._look()
        await self._asked_to_end.wait()
        server.close()
        for connection in list(self.connections):
            connection.shut()
        until = time.monotonic() + last_seconds
        while (self.connections or self.tasks) and time.monotonic() < until:
            await asyncio.sleep(0.01)
        for task in list(self.tasks):
            task.cancel()
        for connection in list(self.connections):
            connection.abort()
        if self._looks is not None:
            self._looks.cancel()
        await asyncio.sleep(0)

    def end(self) -> None:
        self._asked_to_end.set()

    def begin(self, exchange: Exchange, connection: Connection) -> None:
        self.open.add(exchange)
        task = self.loop.create_task(self._answer(exchange, connection))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _answer(self, exchange: Exchange, connection: Connection) -> None:
        try:
            if connection.is_full:  # of answers before, which the client does not read
                await connection.drained()
            await self._app(exchange)
        except Exception:
            log.exception("a request failed")
        finally:
            self.open.discard(exchange)
            if not exchange.is_answered and not exchange.gone:
                exchange.cut()

    def _look(self) -> None:
        now = time.monotonic()
        for connection in list(self.connections):
            connection.look(now)
        self._looks = self.loop.call_later(LOOK, self._look)
