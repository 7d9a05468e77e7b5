"""What a client may send: sizes and times of heads and bodies, numbers of connections, keys.

uvicorn has no limits of its own with httptools, so its protocol is extended by counts and timers. A timer runs only while
a head or a body is on its way: most requests come in one piece.
"""
from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import pathlib
import resource
from asyncio import TimerHandle, Transport
from collections.abc import Callable
from typing import Any

import httptools
import orjson
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from .asgi import Receive, Scope
from .errors import Fault, Gone

HEAD_BYTES, HEADERS, HEAD_SECONDS, BODY_SECONDS = 16 * 1024, 64, 10.0, 60.0
CONNECTIONS, UNREAD_SECONDS = 1024, 60.0
NESTED = 128  # objects and lists inside one another; what reads schemas takes no more either
WATCHERS = 32 # connections of --metrics-port, whatever the others are
SPARE = 96    # descriptors for all but the connections of clients
LEAST_KEY = 32  # characters
log = logging.getLogger("tfmc_serve")


class TooMuch(Exception):
    """A head that is beyond the limits."""


class Client:
    """Whoever has a connection. requests: all of the server that have begun, also those whose turn has not come yet."""

    def __init__(self, requests: set[Any]) -> None:
        self.has_gone, self._requests = False, requests
        self._calls: dict[Callable[[], Any], None] = {}

    @property
    def is_alone(self) -> bool:
        return len(self._requests) == 1

    def on_gone(self, call: Callable[[], Any]) -> None:
        self._calls[call] = None
        if self.has_gone:
            call()

    def off_gone(self, call: Callable[[], Any]) -> None:
        self._calls.pop(call, None)

    def end(self) -> None:
        self.has_gone = True
        for call in list(self._calls):
            call()


def raise_descriptors() -> int:
    """Lets this process have enough files open; how many connections there may be. A shell's 1,024 are too few for as
    many connections: those beyond were closed without a word, and nothing else could be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS + SPARE
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    most = CONNECTIONS if soft == resource.RLIM_INFINITY else max(1, min(CONNECTIONS, soft - SPARE))
    if most < CONNECTIONS:
        log.warning("%d connections at most: this process may have %d files open (ulimit -Hn)", most, soft)
    return most


class LimitedProtocol(HttpToolsProtocol):
    """Answers 431 to large heads, 408 to slow ones and to slow bodies, 503 to too many connections; ends the connection
    of a client that reads nothing of its answer."""

    head_seconds, body_seconds, unread_seconds, connections_most = HEAD_SECONDS, BODY_SECONDS, UNREAD_SECONDS, CONNECTIONS
    _timer: TimerHandle | None = None  # of a head or a body that has begun
    _unread: TimerHandle | None = None
    _timed = (1, False)  # what the timer is for: the message by its number; its body
    _in_head, _in_body, _has_ended, _messages = False, False, False, 0
    _head_bytes, _head_fields, _field_bytes = 0, 0, 0

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._client = Client(self.tasks)
        if len(self.connections) > self.connections_most:
            self._refuse(503, "there are too many connections")
            return
        self._arm(self.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        if self._unread is not None:
            self._unread.cancel()
        super().connection_lost(exc)
        self._client.end()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        went_on, self._has_ended = self._in_head, False
        self._unset_keepalive_if_required()
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self.send_400_response("")
        if self.transport.is_closing():
            return
        if went_on and self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._refuse(431, f"the head of a request may have {HEAD_BYTES} bytes")
                return
        self._time_rest()

    def _parse(self, data: bytes) -> None:
        """The parser takes what follows the wish for another protocol (h2c, as Java's client has it) for that protocol's.
        It is not fulfilled: the head is read again without it, so that the body belongs to the request."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as wish:
            method, version = self.parser.get_method(), self.parser.get_http_version().encode()
            if method == b"CONNECT":
                self.send_400_response("")
                return
            fields = [b"%s: %s\r\n" % (name, b"close" if name == b"connection" else value) for name, value in self.headers
                      if name != b"upgrade" and (name != b"connection" or b"close" in value.lower())]
            self.parser = httptools.HttpRequestParser(self)
            self._parse(b"%s %s HTTP/%s\r\n%s\r\n" % (method, self.url, version, b"".join(fields)) + data[wish.args[0]:])

    def _time_rest(self) -> None:
        """Of a message that is not whole yet. Empty lines, too, must become a head in time."""
        if self._has_ended and not self._in_head and not self._in_body:
            self._disarm()
            return
        timed = self._messages, self._in_body
        if self._timer is None or (timed != self._timed and (self._in_head or self._in_body)):
            self._timed = timed
            self._arm(self.body_seconds if self._in_body else self.head_seconds)

    def send_400_response(self, msg: str) -> None:
        if self._head_fields > HEADERS or self._head_bytes > HEAD_BYTES:
            self._refuse(431, f"the head of a request may have {HEADERS} fields and {HEAD_BYTES} bytes")
        else:
            self._refuse(400, "this is no HTTP request")

    # ---- what the parser reports ----

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"]["client"] = self._client
        self._messages += 1
        self._in_head, self._in_body, self._head_bytes, self._head_fields, self._field_bytes = True, False, 0, 0, 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > HEAD_BYTES:
            self._head_bytes = len(self.url)
            raise TooMuch

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_body:  # what follows a body in pieces counts, but no field of the head comes late
            super().on_header(name, value)
        self._head_fields += 1
        self._field_bytes += len(name) + len(value)
        if self._head_fields > HEADERS or self._field_bytes > HEAD_BYTES:
            self._head_fields = HEADERS + 1
            raise TooMuch

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._in_head, self._in_body = False, True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._in_head, self._in_body, self._has_ended = False, False, True
        super().on_message_complete()
        if not self.pipeline:  # what was too much to be kept has been read; whether the client goes is seen by reading
            self.flow.resume_reading()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.loop.call_soon(self._check_written)  # the loop writes when it turns

    def _check_written(self) -> None:
        unread = self.transport.get_write_buffer_size()
        if unread or self._unread is not None:
            self._watch_reader(unread)

    def pause_writing(self) -> None:
        """In a stream: more waits for the client than the transport takes."""
        super().pause_writing()
        if self._unread is None:
            self._watch_reader(self.transport.get_write_buffer_size())

    # ---- timers ----

    def _arm(self, seconds: float) -> None:
        self._disarm()
        self._timer = self.loop.call_later(seconds, self._late)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        if self.cycle is not None and (self.cycle.response_started or not self._in_body):
            self.transport.close()  # between two requests, or while an answer is read
        else:
            self._refuse(408, "the request did not come in time")

    def _watch_reader(self, unread: int) -> None:
        """Ends a connection whose client has read nothing of what waits for it in a while."""
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        if unread:
            self._unread = self.loop.call_later(self.unread_seconds, self._check_reader, unread)

    def _check_reader(self, before: int) -> None:
        self._unread = None
        now = self.transport.get_write_buffer_size()
        if now >= before:
            self.transport.abort()
        else:
            self._watch_reader(now)

    def _refuse(self, status: int, message: str) -> None:
        self._disarm()
        body = orjson.dumps({"error": message, "error_type": "Validation"})
        self.transport.write(STATUS_LINE[status] + b"content-type: application/json\r\nconnection: close\r\n"
                             b"content-length: %d\r\n\r\n" % len(body) + body)
        self.transport.close()


class WatchingProtocol(LimitedProtocol):
    """Of --metrics-port: it has connections of its own, which clients do not take and which take none of theirs."""

    connections_most = WATCHERS


# ---- bodies ----

async def read_body(scope: Scope, receive: Receive, most: int) -> Any:
    """The JSON of a request. Counted while it arrives: no more than `most` bytes are ever kept."""
    fields = {name: value.decode("latin-1") for name, value in reversed(scope["headers"])}  # of two the first
    check_kind(fields)
    length = fields.get(b"content-length", "")
    if length.isdigit() and int(length) > most:
        raise too_large(most)
    parts, size, goes_on = [], 0, True
    while goes_on:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        size += len(message["body"])
        if size > most:
            raise too_large(most)
        parts.append(message["body"])
        goes_on = message["more_body"]
    if not size:
        raise Fault("json", "the body is empty; it is a JSON object")
    body = b"".join(parts)
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Fault("json", f"the body is no JSON: {error}") from None
    if body.count(b":") != _count_members(content):  # a text may have colons, so this is no proof
        json.loads(body, object_pairs_hook=_refuse_twice)
    return content


def _count_members(content: Any) -> int:
    """Of all objects. Of two with the same name only one is left by then. What is nested too deep is refused: nothing
    behind this calls itself too often."""
    members, level, depth = 0, [content] if isinstance(content, (dict, list)) else [], 0
    while level:
        depth += 1
        if depth > NESTED:
            raise Fault("json", f"the body has more than {NESTED} objects and lists inside one another")
        inside: list[Any] = []
        for value in level:
            members += len(value) if isinstance(value, dict) else 0
            items = value.values() if isinstance(value, dict) else value
            inside += [item for item in items if isinstance(item, (dict, list))]
        level = inside
    return members


def _refuse_twice(members: list[tuple[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for name, value in members:
        if name in content:
            raise Fault("json", f"{name!r} stands twice in an object of the body")
        content[name] = value
    return content


def check_kind(fields: dict[bytes, str]) -> None:
    """A page of another origin may send anything else than JSON without being asked: nothing else is taken."""
    kind, _, settings = fields.get(b"content-type", "").partition(";")
    charset = settings.strip().lower()
    if kind.strip().lower() != "application/json" or charset not in ("", "charset=utf-8", 'charset="utf-8"'):
        raise Fault("encoding", "content-type: application/json, in UTF-8, is expected")
    if fields.get(b"transfer-encoding", "chunked").lower() != "chunked":
        raise Fault("encoding", "transfer-encoding: chunked, and no other, is taken")
    if fields.get(b"content-encoding", "identity").lower() != "identity":
        raise Fault("encoding", "content-encoding: bodies are taken as they are, not compressed")


def too_large(most: int) -> Fault:
    return Fault("too_large", f"the body has more than {most} bytes (--max-body)")


# ---- keys ----

class Keys:
    """The keys of a file with lines NAME KEY. Kept as SHA-256, compared in constant time, never logged."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._keys = read_keys(path)

    def reread(self) -> None:
        """After SIGHUP: a file that is wrong changes nothing."""
        try:
            self._keys = read_keys(self._path)
            log.info("keys: %d", len(self._keys))
        except (OSError, ValueError) as error:
            log.error("the keys are those of before: %s", error)

    def name_of(self, key: str) -> str | None:
        digest, found = hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest(), None
        for name, known in self._keys:
            if hmac.compare_digest(digest, known):
                found = name
        return found


def read_keys(path: pathlib.Path) -> list[tuple[str, bytes]]:
    if os.stat(path).st_mode & 0o077:
        log.warning("%s: others than its owner may read it; chmod 600 helps", path)
    keys = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = line.split()
        if len(parts) != 2:
            raise ValueError(f"{path}:{number}: a line is NAME KEY")
        if len(parts[1]) < LEAST_KEY:
            raise ValueError(f"{path}:{number}: a key has {LEAST_KEY} characters or more")
        keys.append((parts[0], hashlib.sha256(parts[1].encode()).digest()))
    if not keys:
        raise ValueError(f"{path}: there are no keys in it")
    return keys
