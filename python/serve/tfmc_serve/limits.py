"""What a client may send: JSON in a body, and keys. Sizes and times of heads and bodies are in connections.py."""
from __future__ import annotations

import contextlib
import json
import logging
import os
import pathlib
from typing import Any

import orjson

from .errors import Fault
from .exchanges import Exchange, TooLarge

LEAST_KEY = 32  # characters
log = logging.getLogger("tfmc_serve")


# ---- bodies ----

async def read_body(exchange: Exchange, most: int) -> Any:
    """The JSON of a request. Counted while it arrives: no more than `most` bytes are ever kept."""
    check_kind(exchange)
    try:
        body = await exchange.body()
    except TooLarge:
        raise too_large(most) from None
    if not body:
        raise Fault("json", "the body is empty; it is a JSON object")
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Fault("json", f"the body is no JSON: {error}") from None
    if body.count(b":") != _count_members(content):  # a text may have colons, so this is no proof
        with contextlib.suppress(RecursionError):  # too deep, which is refused later
            json.loads(body, object_pairs_hook=_refuse_twice)
    return content


def _count_members(content: Any) -> int:
    """Of all objects. Of two with the same name only one is left by then."""
    members, waiting = 0, [content]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            members += len(value)
        if isinstance(value, (dict, list)):
            items = value.values() if isinstance(value, dict) else value
            waiting += [item for item in items if isinstance(item, (dict, list))]
    return members


def _refuse_twice(members: list[tuple[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for name, value in members:
        if name in content:
            raise Fault("json", f"{name!r} stands twice in an object of the body")
        content[name] = value
    return content


def check_kind(exchange: Exchange) -> None:
    """A page of another origin may send anything else than JSON without being asked: nothing else is taken."""
    given = exchange.field(b"content-type")
    if given == "application/json" and b"content-encoding" not in exchange.fields:
        return
    kind, _, settings = given.partition(";")
    charset = settings.strip().lower()
    if kind.strip().lower() != "application/json" or charset not in ("", "charset=utf-8", 'charset="utf-8"'):
        raise Fault("encoding", "content-type: application/json, in UTF-8, is expected")
    if exchange.field(b"content-encoding").lower() not in ("", "identity"):
        raise Fault("encoding", "content-encoding: bodies are taken as they are, not compressed")


def too_large(most: int) -> Fault:
    return Fault("too_large", f"the body has more than {most} bytes (--max-body)")


# ---- keys ----

def digest(key: str) -> bytes:
    import hashlib  # OpenSSL comes with it, which a server without keys need not have
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


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
        import hmac
        given, found = digest(key), None
        for name, known in self._keys:
            if hmac.compare_digest(given, known):
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
        keys.append((parts[0], digest(parts[1])))
    if not keys:
        raise ValueError(f"{path}: there are no keys in it")
    return keys
