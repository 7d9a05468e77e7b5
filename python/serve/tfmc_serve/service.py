"""What the routes share: models, batcher, metrics, keys, the state of the server, and a request on its way.

States: "loading NAME", "ready", "ending". A request takes these steps: its body is read and checked, its texts become
rows (on the event loop, or beside it if they are long), the batcher computes the rows, and the answer is written.
"""
from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import logging
import math
import os
import pathlib
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
import tfmc
from . import batcher
from .errors import Fault, Gone
from .grammar import SECONDS, Grammar, Grammars
from .limits import Client, Keys
from .metrics import Metrics
from .pieces import Piece
from .scheduler import Job, Scheduler
from .texts import LONG, ROUTES, Encoded, Floats, Place, Row, Served, kind_of
from .translators import Searcher, ServedTranslator
from .writers import ServedWriter

T = TypeVar("T")
TOKENIZERS = 2  # threads for long texts
PING_SECONDS = 15.0  # after which a stream without news gives a sign of life
AnyServed = Served | ServedWriter | ServedTranslator
log = logging.getLogger("tfmc_serve")


@dataclass(frozen=True)
class Options:
    """As the command reads them; each is an option of the same name."""
    places: tuple[Place, ...]
    host: str = "127.0.0.1"
    port: int = 8080
    fd: int | None = None
    threads: int | None = None
    quantize: str | None = None
    max_length: int | None = None
    max_waiting: int = 512
    max_inputs: int = 256
    max_body: int = 2_000_000
    timeout: float = 300.0
    api_key_file: pathlib.Path | None = None
    metrics_port: int | None = None
    origin: str | None = None
    grace: float = 30.0
    max_rows: int = 32
    cache_bytes: int = 0  # 0: a quarter of the machine's memory
    step_ms: float = 100.0
    speculate: int = -1  # guesses of a step at most; -1: as many as pay
    prefixes: str = "on"
    log: str = "text"
    check: bool = False


class Answer(NamedTuple):
    """What is written as JSON, or the events of a stream."""
    content: Any
    events: AsyncIterator[Any] | None = None


@dataclass
class Record:
    """Of one request, for the log and the metrics."""
    id: str
    key: str = ""
    model: str = ""
    rows: int = 0
    tokens: int = 0
    fault: str = ""
    extra: dict[str, Any] = field(default_factory=dict)


def version() -> str:
    for name in ("tfmc-serve", "tfmc-runtime"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "0"


def end_process(error: BaseException) -> None:
    """Half a server is worse than none: whoever started it starts it anew."""
    log.critical("a worker ended: %r", error)
    logging.shutdown()
    os._exit(70)


class Service:
    """The server without its sockets. start() needs a running event loop."""

    def __init__(self, options: Options, died: Callable[[BaseException], None] = end_process) -> None:
        self.options, self._died = options, died
        self.keys = Keys(options.api_key_file) if options.api_key_file is not None else None
        self.metrics = Metrics()
        self.models: dict[str, AnyServed] = {}
        self.schedulers: dict[str, Scheduler] = {}  # of models that write, and of those that translate
        self.searchers: dict[str, Searcher] = {}    # of models that translate
        self.state, self.started_at = "loading", int(time.time())
        self.threads = options.threads or len(os.sched_getaffinity(0))
        self.pool = tfmc.Pool(self.threads)
        self.executor = ThreadPoolExecutor(TOKENIZERS, "tokenizer")
        self.version = version()
        self.batcher: Any = None
        self.inside = self.waiting = 0  # requests: that are answered now; of these, that want something computed
        self._nobody: asyncio.Event | None = None
        self._loader: threading.Thread | None = None

    # ---- beginning and end ----

    def start(self) -> None:
        self.batcher = batcher.Batcher(self.threads, asyncio.get_running_loop(), self.metrics, self._died)
        def total(name: str, more: str = "") -> Callable[[], float]:
            return lambda: sum(getattr(one, name) for one in self.schedulers.values()) + (
                getattr(self.batcher, more) if more else 0)
        self.metrics.watch(total("rows_waiting", "rows_waiting"), total("rows_running", "rows_running"), total("rows_kept"),
                           total("cache_bytes"))
        self.batcher.start()

    async def load(self) -> None:
        """Opens all models and computes once with each."""
        for place in self.options.places:
            self.state = f"loading {place.name}"
            if place.name in self.models:
                raise ValueError(f"two models are called {place.name}; NAME:FOLDER gives another name")
            began = time.monotonic()
            served = await self._open(place)
            await self.add(served)
            log.info("%s: %s, loaded in %.2f s", served.name, served.kind, time.monotonic() - began)
        self.state = "ready"

    def _open(self, place: Place) -> asyncio.Future[AnyServed]:
        """By a thread of its own, which the end of the process does not wait for. A model that writes computes here, too."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[AnyServed] = loop.create_future()

        def end(made: AnyServed | Exception) -> None:
            if not future.done():
                future.set_exception(made) if isinstance(made, Exception) else future.set_result(made)

        def work() -> None:
            made: AnyServed | Exception
            try:
                kind = place.kind or kind_of(place.folder)
                if kind in ("write", "translate"):
                    make = ServedWriter if kind == "write" else ServedTranslator
                    made = make(place, self.pool, self.options.max_length, self.options.quantize)
                    scheduler = Scheduler(made, self.options, loop, self.metrics, self._died)
                    scheduler.warm_up()
                    self.schedulers[made.name] = scheduler
                else:
                    made = Served(place, self.pool, self.options.max_length, self.options.quantize)
            except Exception as error:
                made = error
            with contextlib.suppress(RuntimeError):  # of a loop that has ended
                loop.call_soon_threadsafe(end, made)
        self._loader = threading.Thread(target=work, name="loader", daemon=True)
        self._loader.start()
        return future

    async def add(self, served: AnyServed) -> None:
        """One row, then a full run, whose time tells how much work fits into --timeout."""
        if not isinstance(served, Served):
            self.schedulers[served.name].start()
            if isinstance(served, ServedTranslator):
                self.searchers[served.name] = Searcher(served, asyncio.get_running_loop(), self._died)
        else:
            await self._compute_once(served)
        self.models[served.name] = served
        self.metrics.model(served.name, served.kind, served.quantize or "none")

    async def _compute_once(self, served: Served) -> None:
        length = min(32, served.max_length)
        for count in (1, max(1, batcher.RUN_TOKENS // length)):
            rows = [Row([i % served.vocab] * length, [0] * length) for i in range(count)]
            await self.batcher.put(served, rows).future

    async def end(self, grace: float) -> None:
        """Lets what runs end in this time, and ends the rest with an error."""
        self.state = "ending"
        if self.inside:
            self._nobody = asyncio.Event()
            try:
                await asyncio.wait_for(self._nobody.wait(), grace)
            except TimeoutError:
                self.metrics.gone("ending")
                self.batcher.cancel_all(Fault("not_ready", "the server is ending"))
                for scheduler in self.schedulers.values():
                    scheduler.cancel_all(Fault("not_ready", "the server is ending"))
                for searcher in self.searchers.values():
                    searcher.cancel_all(Fault("not_ready", "the server is ending"))
                await asyncio.sleep(0)

    def enter(self) -> None:
        self.inside += 1

    def leave(self) -> None:
        self.inside -= 1
        if not self.inside and self._nobody is not None:
            self._nobody.set()

    def close(self) -> bool:
        """Whether all threads have ended."""
        self.executor.shutdown(wait=False, cancel_futures=True)
        threads = [*self.executor._threads, *([] if self._loader is None else [self._loader])]
        stopped = self.batcher is None or self.batcher.stop()
        for stop in [one.stop for one in self.schedulers.values()] + [one.stop for one in self.searchers.values()]:
            stopped = stop() and stopped
        return stopped and not any(thread.is_alive() for thread in threads)

    # ---- what requests need ----

    def check_ready(self) -> None:
        if self.state != "ready":
            raise Fault("not_ready", f"the server is {self.state}", headers={"retry-after": "5"})

    def admit(self) -> None:
        if self.waiting >= self.options.max_waiting:
            raise self.overloaded(f"{self.waiting} requests wait (--max-waiting)")

    def seconds_of_work(self) -> float:
        found: float = self.batcher.seconds_of_work()
        return max([found, *(scheduler.seconds_of_work() for scheduler in self.schedulers.values())])

    def stuck(self) -> str | None:
        """What has computed for too long while others wait."""
        workers = self.batcher.stuck() if self.batcher is not None else []
        if workers:
            return f"worker {workers[0]}"
        return next((f"the writer of {name}" for name, one in self.schedulers.items() if one.stuck()), None)

    def overloaded(self, why: str) -> Fault:
        self.metrics.gone("overloaded")
        seconds = max(1, math.ceil(self.seconds_of_work()))
        return Fault("overloaded", f"{why}; try again in {seconds} s", headers={"retry-after": str(seconds)})

    def pick(self, name: str | None, kinds: tuple[str, ...]) -> AnyServed:
        """The model of a request: the one with this name, or the first of the first of these kinds that there is."""
        if name is None:
            found = next((served for kind in kinds for served in self.models.values() if served.kind == kind), None)
            if found is None:
                raise Fault("wrong_kind", f"no model here is of the kind {' or '.join(kinds)}; /v1/models lists them")
            return found
        served = self.models.get(name)
        if served is None:
            raise Fault("model_not_found", f"there is no model {name[:100]!r}; /v1/models lists them", "model")
        if served.kind not in kinds:
            raise Fault("wrong_kind", f"model: {served.name} is of the kind {served.kind}, which "
                        f"POST {ROUTES[served.kind]} is for", "model")
        return served


@dataclass
class Call:
    """A request whose body was read. `asked`: its members; `deadline`: by time.monotonic()."""
    service: Service
    client: Client
    record: Record
    asked: dict[str, Any]
    served: Any
    deadline: float

    @property
    def scheduler(self) -> Scheduler:
        return self.service.schedulers[self.served.name]

    @property
    def searcher(self) -> Searcher:
        return self.service.searchers[self.served.name]

    async def tokenizing(self, work: Callable[[], T], characters: int) -> T:
        """work(), beside the event loop if there is much to do."""
        began = time.monotonic()
        if characters <= LONG:
            made = work()
        else:
            made = await self.until_deadline(asyncio.get_running_loop().run_in_executor(self.service.executor, work))
        self.service.metrics.phase("tokenize", time.monotonic() - began)
        return made

    async def compiling(self, grammars: Grammars, wanted: Grammar, ends: tuple[int, ...]) -> Any:
        """A grammar, beside the event loop and for a while only."""
        loop, executor = asyncio.get_running_loop(), self.service.executor
        await self.until_deadline(loop.run_in_executor(executor, grammars.prepare, wanted, ends))
        work = loop.run_in_executor(executor, grammars.compile, wanted, ends)
        try:
            return await asyncio.wait_for(work, SECONDS)
        except TimeoutError:
            raise wanted.wrong(f"compiling it takes more than {SECONDS:g} s") from None

    async def encode(self, texts: list[Any], where: str, truncate: bool, side: str = "right",
                     count: bool = False) -> Encoded:
        def work() -> Encoded:
            made: Encoded = self.served.encode(texts, where, truncate, side, count)
            return made
        characters = sum(len(text) if not isinstance(text, tuple) else len(text[0]) + len(text[1]) for text in texts)
        encoded = await self.tokenizing(work, characters)
        self.record.rows, self.record.tokens = len(encoded.rows), encoded.tokens
        self.service.metrics.truncated(encoded.truncated)
        return encoded

    async def compute(self, encoded: Encoded) -> Floats:
        """f32 [rows, width]. A client that goes takes its rows with it."""
        service = self.service
        waits = service.batcher.seconds_of_work()
        if waits and waits + encoded.tokens * service.batcher.seconds_per_token > service.options.timeout:
            raise service.overloaded("what waits takes longer than --timeout")
        service.batcher.alone = service.batcher.alone + 1 if self.client.is_alone else 0
        made = service.batcher.at_once(self.served, encoded.rows[0]) if len(encoded.rows) == 1 else None
        if made is None:
            job = service.batcher.put(self.served, encoded.rows)
            try:
                await self.until_deadline(job.future)
            except batcher.RowFailed as error:
                made = error
            finally:
                service.batcher.cancel(job)
        if isinstance(made, batcher.RowFailed):
            log.error("%s: %s: %s", self.record.id, self.served.name, made)
            raise internal(self.record.id)
        return np.asarray(job.numbers if made is None else made[None])

    def put(self, job: Job) -> None:
        """Rows for a model that writes."""
        waits = self.scheduler.seconds_of_work()
        if waits > self.service.options.timeout:
            raise self.service.overloaded("what waits takes longer than --timeout")
        self.scheduler.put(job)

    async def follow(self, job: Job) -> AsyncIterator[list[Piece] | None]:
        """What its rows gain, until all have ended; None after a while without news. A client that goes takes its rows
        with it."""
        self.client.on_gone(job.changed.set)
        written = 0
        try:
            while job.left or job.pieces or job.fault is not None:
                if job.fault is not None:
                    raise self._of(job.fault)
                if job.pieces:
                    some, job.pieces = list(job.pieces), type(job.pieces)()
                    written += sum(len(piece.tokens) for piece in some)
                    yield some
                elif not await self._news(job):
                    yield None
            if written > 1:
                self.service.metrics.tokens_took((time.monotonic() - job.first_at) / (written - 1))
        finally:
            self.client.off_gone(job.changed.set)
            self.scheduler.cancel(job)

    async def _news(self, job: Job) -> bool:
        """Waits for them; False after a while without any."""
        if self.client.has_gone:
            raise Gone
        job.changed.clear()
        left = self.deadline - time.monotonic()
        timer = asyncio.get_running_loop().call_later(max(0.0, min(PING_SECONDS, left)), job.changed.set)
        try:
            await job.changed.wait()
        finally:
            timer.cancel()
        if self.client.has_gone:
            raise Gone
        if job.pieces or job.fault is not None:
            return True
        if left <= PING_SECONDS:
            raise self._late()
        return False

    def _of(self, fault: Fault) -> Fault:
        return internal(self.record.id) if fault.kind == "internal" else fault

    def _late(self) -> Fault:
        self.service.metrics.gone("time")
        return Fault("time", f"it was not computed within {self.service.options.timeout:g} s (--timeout)")

    async def until_deadline(self, wanted: asyncio.Future[T]) -> T:
        """Its result. It is cancelled when the client goes, and when the time is over."""
        is_late = False

        def end() -> None:
            nonlocal is_late
            is_late = wanted.cancel()
        timer = asyncio.get_running_loop().call_later(max(0.0, self.deadline - time.monotonic()), end)
        self.client.on_gone(wanted.cancel)
        try:
            return await wanted
        except asyncio.CancelledError:
            if self.client.has_gone:
                raise Gone from None
            if is_late:
                raise self._late() from None
            raise
        finally:
            timer.cancel()
            self.client.off_gone(wanted.cancel)


def internal(request_id: str) -> Fault:
    return Fault("internal", f"this is a mistake of the server's; its log has more under {request_id}")
