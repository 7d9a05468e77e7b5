"""Faults: what is answered instead of a result, in the words of the route that was asked.

A message names the member and what helps; never a path, a line of Python or what another client sent.
"""
from __future__ import annotations

from typing import Any, NamedTuple


class Kind(NamedTuple):
    status: int  # on OpenAI's routes
    tei: int     # on the others
    type: str
    error_type: str


KINDS = {
    "invalid": Kind(400, 422, "invalid_request_error", "Validation"),
    "json": Kind(400, 422, "invalid_request_error", "Validation"),
    "tokenizer": Kind(400, 422, "invalid_request_error", "Tokenizer"),
    "wrong_kind": Kind(400, 424, "invalid_request_error", "Backend"),
    "key": Kind(401, 401, "authentication_error", "Validation"),
    "route": Kind(404, 404, "not_found_error", "Validation"),
    "model_not_found": Kind(404, 404, "not_found_error", "Validation"),
    "method": Kind(405, 405, "invalid_request_error", "Validation"),
    "too_large": Kind(413, 413, "invalid_request_error", "Validation"),
    "encoding": Kind(415, 415, "invalid_request_error", "Validation"),
    "overloaded": Kind(429, 429, "rate_limit_error", "Overloaded"),
    "internal": Kind(500, 500, "server_error", "Backend"),
    "not_ready": Kind(503, 503, "server_error", "Unhealthy"),
    "time": Kind(504, 504, "timeout_error", "Backend"),
}


class Fault(Exception):
    """An error that is answered. `kind`: a key of KINDS; `param`: the member that is wrong."""

    def __init__(self, kind: str, message: str, param: str | None = None, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.kind, self.message, self.param, self.headers = kind, message, param, headers or {}

    def status(self, path: str) -> int:
        return KINDS[self.kind].status if is_openai(path) else KINDS[self.kind].tei

    def body(self, path: str) -> dict[str, Any]:
        kind = KINDS[self.kind]
        if is_openai(path):
            return {"error": {"message": self.message, "type": kind.type, "param": self.param, "code": self.kind}}
        return {"error": self.message, "error_type": kind.error_type}


class Gone(Exception):
    """The client has closed its connection: nobody reads an answer."""


def is_openai(path: str) -> bool:
    return path.startswith(("/v1/", "/v2/"))
