"""The batcher: rows of all requests in, runs of rows of about the same length through the models.

A free worker takes the oldest row and fills a run with waiting rows of its model and about its length; there is no timer,
so runs grow with the load. A single row of a client that is alone is computed where it is asked for. Numbers of a row do not depend on the run that it is in, so rows may be put together as it
suits, and equal rows that wait together are computed once. Of one request at most half of a run is taken while others
wait. Rows of a request that was cancelled leave before they are computed.
"""
from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from .metrics import Metrics
from .texts import Floats, Row

_folder: Any = importlib.import_module("tfmc.text._folder")
RUN_TOKENS = 512            # of a run: enough for a thread, and what it writes stays in its cache
LEAST_CELLS: int = _folder.LEAST_CELLS  # a run of fewer takes as long as with these, so padding up to them costs nothing
ALONE, AT_ONCE_SECONDS = 16, 0.01  # when a row is computed at once: after so many requests that came alone; by its time
STUCK = 30.0                # seconds after which a run that has not ended is reported
log = logging.getLogger("tfmc_serve")


class Computes(Protocol):
    """What the batcher needs of a served model."""
    name: str
    width: int
    model: Any

    def inputs(self, rows: list[Row]) -> dict[str, Any]: ...


class RowFailed(Exception):
    """The model did not compute a row; the reason is in the log."""


class Job:
    """The rows of a request. `numbers`: f32 [rows, width], complete when `future` is done."""

    def __init__(self, served: Computes, rows: list[Row], future: asyncio.Future[None]) -> None:
        self.served, self.future, self.rows = served, future, rows
        self.numbers: Floats = np.empty((len(rows), served.width), np.float32)
        self.left, self.done, self.put_at = len(rows), False, 0.0
        self.waiting: dict[Waiting, None] = {}  # rows that wait as this job's
        self.attached: list[Waiting] = []       # rows that wait as another's, or did
        self.error: Exception | None = None


class Waiting:
    """A row that waits, with everybody who wants its numbers: (job, number of the row in it)."""
    __slots__ = ("row", "owner", "wanted")

    def __init__(self, row: Row, owner: Job, number: int) -> None:
        self.row, self.owner, self.wanted = row, owner, [(owner, number)]


class Queue:
    """The waiting rows of one model: by length, then by job, in order of arrival."""

    def __init__(self) -> None:
        self.lengths: dict[int, dict[Job, deque[Waiting]]] = {}
        self.same: dict[bytes, Waiting] = {}

    def put(self, waiting: Waiting) -> None:
        jobs = self.lengths.setdefault(len(waiting.row.ids), {})
        jobs.setdefault(waiting.owner, deque()).append(waiting)
        waiting.owner.waiting[waiting] = None
        self.same[waiting.row.key] = waiting

    def remove(self, waiting: Waiting) -> None:
        length = len(waiting.row.ids)
        jobs = self.lengths[length]
        jobs[waiting.owner].remove(waiting)
        if not jobs[waiting.owner]:
            del jobs[waiting.owner]
        if not jobs:
            del self.lengths[length]
        del waiting.owner.waiting[waiting]
        del self.same[waiting.row.key]

    def fill(self, first: Waiting, shared: bool) -> list[Waiting]:
        """A run with this row; `shared`: no job may have more than half of it."""
        run, longest = [first], len(first.row.ids)
        tokens, taken = longest, {first.owner: longest}
        self.remove(first)
        reach = max(longest // 5, LEAST_CELLS - longest)
        near = [n for n in self.lengths if abs(n - longest) <= reach]
        for length in sorted(near, key=lambda n: abs(n - len(first.row.ids))):
            most = RUN_TOKENS // 2 if shared else RUN_TOKENS
            for job, rows in list(self.lengths[length].items()):
                while rows and taken.get(job, 0) + length <= most:
                    cells = (len(run) + 1) * max(longest, length)
                    if cells > RUN_TOKENS or (cells > LEAST_CELLS and 10 * cells > 11 * (tokens + length)):
                        break
                    longest, tokens = max(longest, length), tokens + length
                    taken[job] = taken.get(job, 0) + length
                    run.append(rows[0])
                    self.remove(rows[0])
        return run


class Batcher:
    """The queue and its workers. put() and cancel() are for the thread of the event loop."""

    def __init__(self, workers: int, loop: asyncio.AbstractEventLoop, metrics: Metrics,
                 died: Callable[[BaseException], None]) -> None:
        self._loop, self._metrics, self._died = loop, metrics, died
        self._changed = threading.Condition()
        self._queues: dict[Computes, Queue] = {}
        self._jobs: dict[Job, None] = {}  # those with rows that wait as theirs, in order of arrival
        self._running: dict[int, float] = {}  # worker: when its run began
        self._live: dict[Job, None] = {}      # those that are not done
        self._ended = False
        self.tokens_waiting = self.rows_waiting = self.rows_running = 0
        self._row_seconds: dict[Computes, float] = {}  # of a row alone, of late
        self.alone = 0  # requests, one after the other, beside which there was no other
        self.seconds_per_token = 0.0  # of the whole server, measured; 0: not yet
        self._workers = [threading.Thread(target=self._work, args=(i,), name=f"worker {i}", daemon=True)
                         for i in range(workers)]

    def start(self) -> None:
        for worker in self._workers:
            worker.start()

    def stop(self, seconds: float = 1.0) -> bool:
        """Ends the workers after their runs; whether all have ended in that time."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        until = time.monotonic() + seconds
        for worker in self._workers:
            worker.join(max(0.0, until - time.monotonic()))
        return not any(worker.is_alive() for worker in self._workers)

    def put(self, served: Computes, rows: list[Row]) -> Job:
        job = Job(served, rows, self._loop.create_future())
        job.put_at = time.monotonic()
        with self._changed:
            self._live[job] = None
            queue = self._queues.setdefault(served, Queue())
            for i, row in enumerate(rows):
                twin = queue.same.get(row.key)
                if twin is not None:
                    twin.wanted.append((job, i))
                    job.attached.append(twin)
                    continue
                queue.put(Waiting(row, job, i))
                self._count(1, len(row.ids))
            if job.waiting:
                self._jobs[job] = None
            self._changed.notify(min(len(job.waiting), len(self._workers)))
        return job

    def cancel(self, job: Job) -> None:
        """Its rows leave, unless others want them too."""
        with self._changed:
            if not job.done:
                self._drop(job)
        if not job.future.done():
            job.future.cancel()

    def cancel_all(self, error: Exception) -> None:
        """Ends every job with an error."""
        with self._changed:
            jobs = list(self._live)
            for job in jobs:
                self._drop(job)
        for job in jobs:
            if not job.future.done():
                job.future.set_exception(error)

    def stuck(self) -> list[int]:
        """The workers whose run should have ended long ago, if rows wait."""
        with self._changed:
            late = time.monotonic() - STUCK
            return [worker for worker, began in self._running.items() if began < late] if self.rows_waiting else []

    def seconds_of_work(self) -> float:
        """How long what waits will take."""
        return self.tokens_waiting * self.seconds_per_token

    def at_once(self, served: Computes, row: Row) -> Any:
        """The numbers of a row whose request is the only one, computed here, on the event loop: two changes of threads
        take longer than all else beside the model. None: others come at the same time now and then, or it would keep the
        loop for long."""
        if self.alone < ALONE or max(self._row_seconds.get(served, 1.0), len(row.ids) * self.seconds_per_token) > AT_ONCE_SECONDS:
            return None
        with self._changed:
            if self._jobs or self._running:
                return None
        began = time.monotonic()
        numbers = self._numbers(served, [row], True)
        self._loop.call_soon(self._ran, served, 1, len(row.ids), time.monotonic() - began, True)  # behind the answer
        return numbers[0]

    # ---- with the lock ----

    def _count(self, rows: int, tokens: int) -> None:
        self.rows_waiting += rows
        self.tokens_waiting += tokens

    def _drop(self, job: Job) -> None:
        job.done = True
        del self._live[job]
        queue = self._queues[job.served]
        self._jobs.pop(job, None)
        for waiting in list(job.waiting):
            queue.remove(waiting)
            waiting.wanted = [(other, i) for other, i in waiting.wanted if other is not job]
            if waiting.wanted:
                waiting.owner = waiting.wanted[0][0]
                queue.put(waiting)
                self._jobs[waiting.owner] = None
            else:
                self._count(-1, -len(waiting.row.ids))
        for waiting in job.attached:
            waiting.wanted = [(other, i) for other, i in waiting.wanted if other is not job]
        job.attached.clear()

    def _take(self) -> tuple[Computes, list[Waiting], bool]:
        """The next run, and whether it is the only work that there is."""
        job = next(iter(self._jobs))
        served, queue = job.served, self._queues[job.served]
        run = queue.fill(next(iter(job.waiting)), shared=len(self._jobs) > 1)
        for waiting in run:
            if not waiting.owner.waiting:
                self._jobs.pop(waiting.owner, None)
        self._count(-len(run), -sum(len(waiting.row.ids) for waiting in run))
        return served, run, not self._jobs and not self._running

    # ---- the workers ----

    def _work(self, number: int) -> None:
        try:
            while True:
                with self._changed:
                    while not self._jobs and not self._ended:
                        self._changed.wait()
                    if self._ended:
                        return
                    served, run, alone = self._take()
                    self._running[number] = time.monotonic()
                    self.rows_running += len(run)
                self._compute(number, served, run, alone)
        except BaseException as error:
            self._died(error)

    def _compute(self, number: int, served: Computes, run: list[Waiting], alone: bool) -> None:
        """The run of a worker, which is over before anybody hears of it: who asks again at once gets all threads."""
        began = time.monotonic()
        for waiting in run:
            self._metrics.phase("wait", began - waiting.owner.put_at)
        numbers: list[Any] = self._numbers(served, [waiting.row for waiting in run], alone)
        self._ran(served, len(run), sum(len(waiting.row.ids) for waiting in run), time.monotonic() - began, alone)
        finished: list[Job] = []
        with self._changed:
            del self._running[number]
            self.rows_running -= len(run)
            for waiting, row in zip(run, numbers):
                for job, i in waiting.wanted:
                    if job.done:
                        continue
                    job.left -= 1
                    if isinstance(row, RowFailed):
                        job.error = row
                        self._drop(job)
                        finished.append(job)
                        continue
                    job.numbers[i] = row
                    if not job.left:
                        job.done = True
                        job.attached.clear()  # they name the job: else both stayed until cycles are looked for
                        del self._live[job]
                        finished.append(job)
        if finished:
            with contextlib.suppress(RuntimeError):  # of a loop that has ended: nobody waits
                self._loop.call_soon_threadsafe(hand_over, finished)

    def _ran(self, served: Computes, rows: int, tokens: int, seconds: float, alone: bool) -> None:
        """What is to be known of a run; at most twice what was known: a machine that stood still is not a slow one."""
        self._metrics.ran(rows, tokens, seconds)
        if alone and rows == 1:
            before = self._row_seconds.get(served, seconds)
            self._row_seconds[served] = 0.8 * before + 0.2 * min(seconds, 2 * before)
        if tokens >= RUN_TOKENS // 4 or not self.seconds_per_token:
            found = (seconds if alone else seconds / len(self._workers)) / max(tokens, 1)
            before = self.seconds_per_token or found
            self.seconds_per_token = 0.8 * before + 0.2 * min(found, 2 * before)

    def _numbers(self, served: Computes, rows: list[Row], alone: bool) -> list[Any]:
        """The numbers of each row, or why it has none: a run that fails is repeated row by row."""
        try:
            call = served.model if alone and len(self._workers) > 1 else served.model._call_alone
            made = call(**served.inputs(rows))
        except Exception as error:
            if len(rows) == 1:
                log.exception("%s: a row of %d tokens failed", served.name, len(rows[0].ids))
                return [RowFailed(str(error))]
            return [self._numbers(served, [row], False)[0] for row in rows]
        finite = np.isfinite(made).all(axis=1)
        return [row if good else RowFailed("its numbers are not finite") for row, good in zip(made, finite)]


def hand_over(jobs: list[Job]) -> None:
    """Wakes those who wait, on the event loop."""
    for job in jobs:
        if not job.future.done():
            if job.error is not None:
                job.future.set_exception(job.error)
            else:
                job.future.set_result(None)
