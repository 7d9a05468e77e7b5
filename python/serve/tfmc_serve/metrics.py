"""What /metrics shows. Names are part of the interface: they are only added to. Seconds; counters end in _total.

Out: the text format of Prometheus, 0.0.4. Numbers are kept here, and read when somebody asks for them.
"""
from __future__ import annotations

import bisect
import itertools
import os
import threading
from collections.abc import Callable, Iterator

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
TOKEN_SECONDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5)
POWERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
Labels = tuple[tuple[str, str], ...]  # names and values, sorted by the names


def labelled(name: str, labels: Labels) -> str:
    def escaped(value: str) -> str:
        return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return name + ("{" + ",".join(f'{key}="{escaped(value)}"' for key, value in labels) + "}" if labels else "")


def shown(value: float) -> str:
    return "+Inf" if value == float("inf") else repr(float(value))


class Family:
    """Numbers of one name, one for each set of labels."""
    kind = "counter"

    def __init__(self, name: str, about: str) -> None:
        self.name, self.about = name, about
        self.values: dict[Labels, float] = {}

    def samples(self) -> Iterator[tuple[str, float]]:
        for labels, value in list(self.values.items()):
            yield labelled(self.name, labels), value

    def lines(self) -> Iterator[str]:
        yield f"# HELP {self.name} {self.about}"
        yield f"# TYPE {self.name} {self.kind}"
        for name, value in self.samples():
            yield f"{name} {shown(value)}"


class Gauge(Family):
    """Numbers that go up and down: set, or asked for when they are shown."""
    kind = "gauge"

    def __init__(self, name: str, about: str, read: Callable[[], float] | None = None) -> None:
        super().__init__(name, about)
        self.read = read

    def samples(self) -> Iterator[tuple[str, float]]:
        if self.read is not None:
            yield self.name, self.read()
        yield from super().samples()


class Buckets:
    """How many observations were at most so large."""
    __slots__ = ("counts", "sum")

    def __init__(self, bounds: int) -> None:
        self.counts, self.sum = [0] * (bounds + 1), 0.0


class Histogram(Family):
    kind = "histogram"

    def __init__(self, name: str, about: str, bounds: tuple[float, ...]) -> None:
        super().__init__(name, about)
        self.bounds, self.buckets = bounds, dict[Labels, Buckets]()

    def observe(self, value: float, labels: Labels = ()) -> None:
        """With the lock of the metrics."""
        buckets = self.buckets.get(labels)
        if buckets is None:
            buckets = self.buckets[labels] = Buckets(len(self.bounds))
        buckets.counts[bisect.bisect_left(self.bounds, value)] += 1
        buckets.sum += value

    def samples(self) -> Iterator[tuple[str, float]]:
        for labels, buckets in list(self.buckets.items()):
            totals = list(itertools.accumulate(buckets.counts))
            for bound, total in zip((*map(repr, map(float, self.bounds)), "+Inf"), totals):
                yield labelled(f"{self.name}_bucket", tuple(sorted((*labels, ("le", bound))))), total
            yield labelled(f"{self.name}_count", labels), totals[-1]
            yield labelled(f"{self.name}_sum", labels), buckets.sum


def process_numbers() -> Iterator[tuple[str, str, float]]:
    """(name, kind, value) of this process, where the system tells."""
    try:
        with open("/proc/self/stat", encoding="ascii") as file:
            parts = file.read().rpartition(")")[2].split()
        with open("/proc/stat", encoding="ascii") as file:
            booted = float(next(line for line in file if line.startswith("btime ")).split()[1])
        with open("/proc/self/limits", encoding="ascii") as file:
            most = next(line for line in file if line.startswith("Max open files")).split()[3]
        opened = len(os.listdir("/proc/self/fd"))
    except (OSError, StopIteration):
        return
    ticks = os.sysconf("SC_CLK_TCK")
    yield "process_virtual_memory_bytes", "gauge", float(parts[20])
    yield "process_resident_memory_bytes", "gauge", float(parts[21]) * os.sysconf("SC_PAGE_SIZE")
    yield "process_start_time_seconds", "gauge", booted + float(parts[19]) / ticks
    yield "process_cpu_seconds_total", "counter", (float(parts[11]) + float(parts[12])) / ticks
    yield "process_open_fds", "gauge", float(opened)
    yield "process_max_fds", "gauge", float("inf") if most == "unlimited" else float(most)


class Metrics:
    """One set for a server; methods may be called by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests = Family("tfmc_requests_total", "Requests that were answered")
        self._request_seconds = Histogram("tfmc_request_seconds", "From the head of a request to its answer", SECONDS)
        self._phases = Histogram("tfmc_phase_seconds", "Parts of requests: tokenize; wait, of a row for its run; prompt, a "
                                 "run; write, a step of rows that write", SECONDS)
        self._rows = Histogram("tfmc_batch_rows", "Rows of a run or step", POWERS)
        self._tokens = Histogram("tfmc_batch_tokens", "Tokens of a run or step, without padding", POWERS)
        self._steps = Histogram("tfmc_step_seconds", "Of a run or step", SECONDS)
        self._first = Histogram("tfmc_first_token_seconds", "From the arrival of a request to its first token", SECONDS)
        self._token = Histogram("tfmc_token_seconds", "Of a request: time after its first token / tokens", TOKEN_SECONDS)
        self._gauges = [Gauge("tfmc_waiting", "Rows that wait"),
                        Gauge("tfmc_rows_running", "Rows that are being computed"),
                        Gauge("tfmc_rows_kept", "Rows that nobody writes, kept for their beginnings"),
                        Gauge("tfmc_cache_bytes", "Of caches that rows take")]
        self._counts = Family("tfmc_tokens_total", "Tokens: prompt, that were read; truncated, that were cut off; cached, of "
                              "prompts that were known; written; guessed; right, of those guessed")
        self._gone = Family("tfmc_gone_total", "Requests that ended without their answer")
        self._models = Gauge("tfmc_model_info", "1 for each model")
        self._families = (self._requests, self._request_seconds, self._phases, self._rows, self._tokens, self._steps,
                          self._first, self._token, *self._gauges, self._counts, self._gone, self._models)
        for phase in ("tokenize", "wait", "prompt", "write"):
            self._phases.buckets[(("phase", phase),)] = Buckets(len(SECONDS))
        for kind in ("prompt", "truncated", "cached", "written", "guessed", "right"):
            self._counts.values[(("kind", kind),)] = 0
        for histogram in (self._rows, self._tokens, self._steps, self._first, self._token):
            histogram.buckets[()] = Buckets(len(histogram.bounds))

    def watch(self, waiting: Callable[[], float], running: Callable[[], float], kept: Callable[[], float],
              cache: Callable[[], float]) -> None:
        for gauge, function in zip(self._gauges, (waiting, running, kept, cache)):
            gauge.read = function

    def model(self, name: str, kind: str, quantize: str) -> None:
        self._models.values[("kind", kind), ("model", name), ("quantize", quantize)] = 1

    def phase(self, phase: str, seconds: float) -> None:
        with self._lock:
            self._phases.observe(seconds, (("phase", phase),))

    def waited(self, seconds: list[float]) -> None:
        """Rows of a run."""
        with self._lock:
            for each in seconds:
                self._phases.observe(each, (("phase", "wait"),))

    def ran(self, rows: int, tokens: int, seconds: float) -> None:
        self.stepped(rows, tokens, tokens, seconds)

    def stepped(self, rows: int, tokens: int, prompt: int, seconds: float) -> None:
        """A run, or a step of rows that write, of which so many tokens are of prompts."""
        with self._lock:
            self._rows.observe(rows)
            self._tokens.observe(tokens)
            self._steps.observe(seconds)
            self._phases.observe(seconds, (("phase", "prompt" if prompt else "write"),))
            self._add(self._counts, (("kind", "prompt"),), prompt)

    def counted(self, kind: str, tokens: int) -> None:
        if tokens:
            with self._lock:
                self._add(self._counts, (("kind", kind),), tokens)

    def first_token(self, seconds: float) -> None:
        with self._lock:
            self._first.observe(seconds)

    def tokens_took(self, seconds: float) -> None:
        with self._lock:
            self._token.observe(seconds)

    def truncated(self, tokens: int) -> None:
        self.counted("truncated", tokens)

    def answered(self, route: str, model: str, code: int, seconds: float) -> None:
        with self._lock:
            self._add(self._requests, (("code", str(code)), ("model", model), ("route", route)), 1)
            self._request_seconds.observe(seconds, (("route", route),))

    def gone(self, why: str) -> None:
        with self._lock:
            self._add(self._gone, (("why", why),), 1)

    @staticmethod
    def _add(family: Family, labels: Labels, number: float) -> None:
        family.values[labels] = family.values.get(labels, 0) + number

    def text(self) -> bytes:
        with self._lock:
            lines = [line for family in self._families for line in family.lines()]
        for name, kind, value in process_numbers():
            about = name.partition("_")[2].replace("_", " ")
            lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}", f"{name} {shown(value)}"]
        return ("\n".join(lines) + "\n").encode()
