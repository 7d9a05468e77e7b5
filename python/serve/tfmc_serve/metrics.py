"""What /metrics shows. Names are part of the interface: they are only added to. Seconds; counters end in _total."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
TOKEN_SECONDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5)
POWERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """One set for a server; methods may be called by any thread."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        where: dict[str, Any] = {"registry": self.registry}
        ProcessCollector(registry=self.registry)
        self._requests = Counter("tfmc_requests", "Requests that were answered", ["route", "model", "code"], **where)
        self._request_seconds = Histogram("tfmc_request_seconds", "From the head of a request to its answer", ["route"],
                                          buckets=SECONDS, **where)
        phases = Histogram("tfmc_phase_seconds", "Parts of requests: tokenize; wait, of a row for its run; prompt, a run; "
                           "write, a step of rows that write", ["phase"], buckets=SECONDS, **where)
        self._phases = {phase: phases.labels(phase) for phase in ("tokenize", "wait", "prompt", "write")}
        self._rows = Histogram("tfmc_batch_rows", "Rows of a run or step", buckets=POWERS, **where)
        self._tokens = Histogram("tfmc_batch_tokens", "Tokens of a run or step, without padding", buckets=POWERS, **where)
        self._steps = Histogram("tfmc_step_seconds", "Of a run or step", buckets=SECONDS, **where)
        self._first = Histogram("tfmc_first_token_seconds", "From the arrival of a request to its first token",
                                buckets=SECONDS, **where)
        self._token = Histogram("tfmc_token_seconds", "Of a request: time after its first token / tokens",
                                buckets=TOKEN_SECONDS, **where)
        self._waiting = Gauge("tfmc_waiting", "Rows that wait", **where)
        self._running = Gauge("tfmc_rows_running", "Rows that are being computed", **where)
        self._kept = Gauge("tfmc_rows_kept", "Rows that nobody writes, kept for their beginnings", **where)
        self._cache = Gauge("tfmc_cache_bytes", "Of caches that rows take", **where)
        kinds = Counter("tfmc_tokens", "Tokens: prompt, that were read; truncated, that were cut off; cached, of prompts that "
                        "were known; written; guessed; right, of those guessed", ["kind"], **where)
        self._counts = {kind: kinds.labels(kind)
                        for kind in ("prompt", "truncated", "cached", "written", "guessed", "right")}
        self._gone = Counter("tfmc_gone", "Requests that ended without their answer", ["why"], **where)
        self._models = Gauge("tfmc_model_info", "1 for each model", ["model", "kind", "quantize"], **where)

    def watch(self, waiting: Callable[[], float], running: Callable[[], float], kept: Callable[[], float],
              cache: Callable[[], float]) -> None:
        for gauge, function in ((self._waiting, waiting), (self._running, running), (self._kept, kept),
                                (self._cache, cache)):
            gauge.set_function(function)

    def model(self, name: str, kind: str, quantize: str) -> None:
        self._models.labels(name, kind, quantize).set(1)

    def phase(self, phase: str, seconds: float) -> None:
        self._phases[phase].observe(seconds)

    def ran(self, rows: int, tokens: int, seconds: float) -> None:
        self._rows.observe(rows)
        self._tokens.observe(tokens)
        self._steps.observe(seconds)
        self._phases["prompt"].observe(seconds)
        self._counts["prompt"].inc(tokens)

    def stepped(self, rows: int, tokens: int, prompt: int, seconds: float) -> None:
        """A step of rows that write, of which so many tokens are of prompts."""
        self._rows.observe(rows)
        self._tokens.observe(tokens)
        self._steps.observe(seconds)
        self._phases["prompt" if prompt else "write"].observe(seconds)
        self._counts["prompt"].inc(prompt)

    def counted(self, kind: str, tokens: int) -> None:
        self._counts[kind].inc(tokens)

    def first_token(self, seconds: float) -> None:
        self._first.observe(seconds)

    def tokens_took(self, seconds: float) -> None:
        self._token.observe(seconds)

    def truncated(self, tokens: int) -> None:
        self._counts["truncated"].inc(tokens)

    def answered(self, route: str, model: str, code: int, seconds: float) -> None:
        self._requests.labels(route, model, str(code)).inc()
        self._request_seconds.labels(route).observe(seconds)

    def gone(self, why: str) -> None:
        self._gone.labels(why).inc()

    def text(self) -> bytes:
        return generate_latest(self.registry)
