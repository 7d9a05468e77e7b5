"""The scheduler of a model that writes: one thread, one decoder, rows of all requests in every step.

A turn: rows that ended or whose client is gone leave; rows that wait are admitted in the order of their arrival, as far as
rows and pages allow; one call of Decoder.write computes a token of every row that writes, with its guesses, and pieces of
the prompts that are being read; what came out is handed to the event loop. Nothing of that changes what a row gets: its
tokens are those of `generate` alone.
"""
from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import tfmc

from .errors import Fault
from .grammar import Follower, GrammarGuesser, shown
from .guesses import MOST, PLAIN_PRICE, Costs, Guesser, share
from .metrics import Metrics
from .pieces import Piece, Text
from .prefixes import PAGE, Prefixes
from .scoring import Scoring
from .shapes import SHAPES
from .translators import Ids, ServedTranslator
from .writers import ServedWriter

STEP_TOKENS = 512     # of a step: enough to read the weights once for many rows
LEAST_PIECE = 16      # tokens of prompts in a step, however long it takes
FIRST_MARK = 512      # tokens of a prompt behind which a model with states has its first snapshot; then twice as many
MOST_PIECES = 1024    # that wait for a client before it counts as one that reads nothing
STUCK = 30.0          # seconds after which a step that has not ended is reported
log = logging.getLogger("tfmc_serve")


def option_named(message: str) -> str | None:
    """The member of a request that a refusal of the runtime begins with."""
    name = message.replace("min_new_tokens", "min_tokens").partition(" ")[0].rstrip(":")
    return name if name in SHAPES["completions"] else None


class Job:
    """The rows of a request. Its pieces are read on the event loop: `changed` is set when there are more."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.rows: list[Row] = []
        self.pieces: deque[Piece] = deque()
        self.changed, self.left = asyncio.Event(), 0
        self.fault: Fault | None = None
        self.cancelled = False
        self.put_at = time.monotonic()
        self.first_at = 0.0
        self.cached = 0  # tokens of its prompts that were not computed again

    def deliver(self, pieces: list[Piece], fault: Fault | None) -> None:
        """On the event loop."""
        self.pieces.extend(pieces)
        self.left -= sum(piece.finish is not None for piece in pieces)
        self.fault = self.fault or fault
        if len(self.pieces) > MOST_PIECES and not self.cancelled:
            self.cancelled, self.fault = True, Fault("time", "the client does not read what is written")
        self.changed.set()


class Row:
    """A choice of a request. `leader`: the row of the same prompt that reads it; the others continue copies of it."""

    source: list[Any] | None = None  # what the encoder takes, of a translation
    item = 0                        # its number
    scoring: Scoring | None = None  # while its prompt is read one token after the other
    ends_with_prompt = False        # nothing is written

    def __init__(self, job: Job, index: int, chooser: Any, text: Text | Ids, prompt: list[int], leader: Row | None,
                 follower: Follower | None = None) -> None:
        self.follower = follower  # of its grammar
        self.job, self.index, self.chooser, self.text, self.prompt = job, index, chooser, text, prompt
        self.leader, self.number, self.read, self.pages = leader, -1, 0, 0
        self.has_read = False  # the prompt, or ended before
        self.guesser: Guesser | None = None


class Part(NamedTuple):
    """What a step does with a row."""
    row: Row
    n: int  # tokens of its text
    guesses: list[int]
    masks: bytes | None = None  # of the tokens that a grammar allows


class Scheduler:
    """put() and cancel() are for the thread of the event loop."""

    def __init__(self, served: ServedWriter | ServedTranslator, options: Any, loop: asyncio.AbstractEventLoop, metrics: Metrics,
                 died: Callable[[BaseException], None]) -> None:
        self.served, self._loop, self._metrics, self._died = served, loop, metrics, died
        self._most_rows, self._step_seconds = options.max_rows, options.step_ms / 1000
        self._weighs, self._most_guesses = options.speculate < 0, MOST if options.speculate < 0 else options.speculate
        self._shares = options.prefixes == "shared"
        sources: dict[str, int] = {}
        if isinstance(served, ServedTranslator):  # whose rows begin with nothing of their own
            sources = {"items": self._most_rows, "source_length": served.max_length}
        self._keeps = options.prefixes != "off" and not sources
        try:
            self.decoder = served.model.decoder(
                max_rows=2 * self._most_rows, max_length=served.row_length, step_rows=self._most_rows,
                step_kept=self._most_rows + self._most_guesses, cache_bytes=options.cache_bytes, **sources)
        except tfmc.OutOfMemory as error:
            raise tfmc.OutOfMemory(f"{served.name}: {error}; --cache-bytes says how much there is, "
                                   "--max-rows for how many rows") from None
        self.pages_all: int = self.decoder.pages(0)[1]  # 0: the model has states alone
        self._has_states = False  # rows go back to few lengths (warm_up)
        self._changed = threading.Condition()
        self._live: set[Job] = set()  # of the event loop
        self._arrived: list[Job] = []
        self._waiting: deque[Row] = deque()
        self._running: list[Row] = []
        self._prefixes, self._costs = Prefixes(), Costs()
        self._pages_promised, self._pages_left = 0, self.pages_all
        self._token_seconds = 0.0     # of a token of a prompt, measured; 0: not yet
        self._row_seconds = 0.0       # of a step of rows that write
        self._ended = False
        self._step_began: float | None = None
        self._outbox: dict[Job, list[Piece]] = {}
        self._faults: dict[Job, Fault] = {}
        self._thread = threading.Thread(target=self._work, name=f"writer of {served.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    # ---- on the event loop ----

    def chooser(self, prompt: list[int], limit: int, seed: int, number: int, logprobs: int | None,
                options: dict[str, Any]) -> Any:
        """Refuses what the options are wrong in, before anything waits."""
        try:
            return self.served.model.chooser(prompt, limit=limit, config=self.served.settings_of_folder, seed=seed,
                                             number=number, logprobs=logprobs, **options)
        except (tfmc.InputError, tfmc.UsageError) as error:
            raise Fault("invalid", str(error), option_named(str(error))) from None

    def put(self, job: Job) -> None:
        for row in job.rows:
            if self._need(row) > self.pages_all:
                raise Fault("invalid", f"a row of {row.chooser.limit} tokens does not fit into the caches (--cache-bytes); "
                            "max_tokens and a shorter prompt help", "max_tokens")
        job.left = len(job.rows)
        self._live.add(job)
        with self._changed:
            self._arrived.append(job)
            self._changed.notify()

    def cancel(self, job: Job) -> None:
        """Its rows leave before the next step, if it has not ended. Every job comes here in the end."""
        self._live.discard(job)
        with self._changed:
            job.cancelled, job.rows = True, []  # they name the job: else both stayed until cycles are looked for
            self._changed.notify()

    def cancel_all(self, fault: Fault) -> None:
        for job in list(self._live):
            job.deliver([], fault)
            self.cancel(job)

    def stop(self) -> bool:
        with self._changed:
            self._ended = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join(5)
        return not self._thread.is_alive()

    def stuck(self) -> bool:
        began = self._step_began
        return began is not None and began < time.monotonic() - STUCK

    @property
    def rows_running(self) -> int:
        return len(self._running)

    @property
    def rows_waiting(self) -> int:
        return len(self._waiting) + sum(len(job.rows) for job in list(self._arrived))

    @property
    def cache_bytes(self) -> float:
        """Of the pages that rows have, by the bytes of a token."""
        pages = self.pages_all - self._pages_left
        return float(pages * PAGE * (self.served.model.generation.bytes_per_token or 0))

    @property
    def rows_kept(self) -> int:
        return len(self._prefixes)

    def seconds_of_work(self) -> float:
        """How long what waits will take, by the measured speed."""
        rows = [*list(self._waiting), *(row for job in list(self._arrived) for row in job.rows)]
        steps: float = sum(row.chooser.limit - len(row.prompt) for row in rows) / self._most_rows
        return steps * self._row_seconds + self._token_seconds * sum(len(row.prompt) for row in rows if row.leader is None)

    # ---- the thread ----

    def _work(self) -> None:
        try:
            while True:
                with self._changed:
                    while not (self._arrived or self._waiting or self._running or self._ended):
                        self._changed.wait()
                    if self._ended:
                        return
                    arrived, self._arrived = self._arrived, []
                    self._waiting.extend(row for job in arrived for row in job.rows)
                self._turn()
        except BaseException as error:
            self._died(error)

    def _turn(self) -> None:
        for row in [row for row in self._running if row.job.cancelled]:
            self._leave(row)
        for row in [row for row in self._waiting if row.job.cancelled]:
            self._waiting.remove(row)
            row.has_read = True
        self._admit()
        if self._running:
            self._step()
        self._pages_left = self.decoder.pages(0)[1]
        self._hand_over()

    # ---- rows that come and go ----

    def _need(self, row: Row) -> int:
        """Pages at its greatest length, and a shared one that it may have to copy."""
        limit: int = row.chooser.limit
        return math.ceil(limit / PAGE) + 1 if self.pages_all else 0

    def _admit(self) -> None:
        """In order; but of one key only half of the rows while others wait, and no copy before its prompt was read."""
        passed = 0
        while passed < len(self._waiting) and len(self._running) < self._most_rows:
            row = self._waiting[passed]
            if (row.leader is not None and not row.leader.has_read) or self._has_enough(row.job.owner):
                passed += 1
                continue
            row.pages = self._need(row)
            if self._pages_promised + row.pages > self.pages_all:
                return
            del self._waiting[passed]
            self._join(row)

    def _has_enough(self, owner: str) -> bool:
        own = sum(row.job.owner == owner for row in self._running)
        return own >= max(1, self._most_rows // 2) and any(row.job.owner != owner for row in self._waiting)

    def _join(self, row: Row) -> None:
        """With the longest beginning that is known already."""
        found = self._known(row)
        if row.source is not None and not self._add_source(row):
            return
        if found is None:
            row.number, row.read = self.decoder.join(row.item), 0
        else:
            source, known = found
            row.number = self.decoder.fork(source)
            row.read = self.decoder.keeps(row.number, min(known, len(row.prompt) - 1))
            self.decoder.truncate(row.number, row.read)
            if row.leader is None:
                row.job.cached += row.read
                self._metrics.counted("cached", row.read)
        self._pages_promised += row.pages
        self._running.append(row)
        self._metrics.phase("wait", time.monotonic() - row.job.put_at)

    def _add_source(self, row: Row) -> bool:
        """False: it failed, which ends its request."""
        assert row.source is not None
        try:
            row.item = self.decoder.add_source(*row.source)
        except tfmc.Error as error:
            log.error("%s: a source failed: %s", self.served.name, error)
            self._faults[row.job] = Fault("internal", "this is a mistake of the server's; its log has more")
            row.job.cancelled = row.has_read = True
            return False
        return True

    def _known(self, row: Row) -> tuple[int, int] | None:
        leader = row.leader
        if self._has_states and self._keeps and row.scoring is None:  # such rows are continued at their end alone
            return self._prefixes.find_whole(self._owner(row), row.prompt)
        if leader is not None and leader in self._running and leader.read >= len(row.prompt):
            return leader.number, len(row.prompt)
        if not self._keeps or row.scoring is not None:
            return None
        return self._prefixes.find(self._owner(row), row.prompt)

    def _owner(self, row: Row) -> str:
        return "" if self._shares else row.job.owner

    def _leave(self, row: Row) -> None:
        """What it has computed stays as long as there is room."""
        self._running.remove(row)
        self._pages_promised -= row.pages
        row.has_read = True
        if self._keeps and row.read >= PAGE:
            self._prefixes.add(self._owner(row), row.number, row.chooser.ids()[:row.read])
            if self._prefixes.keep(row.number):
                while len(self._prefixes) > self._most_rows:
                    self._drop_oldest()
                return
        self._prefixes.forget(row.number)
        self.decoder.leave(row.number)
        if row.source is not None:
            self.decoder.drop_source(row.item)

    def _next_mark(self, row: Row) -> int:
        """Where the row's next step ends at the latest: at snapshots of its prompt, the last of them before the last
        token, so that the same prompt begins there. A model without states has none, for its rows can be cut."""
        last, mark = len(row.prompt) - 1, FIRST_MARK
        if not self._has_states or not self._keeps or row.read >= last or last < PAGE:
            length: int = row.chooser.length
            return length
        while mark <= row.read:
            mark *= 2
        return min(mark, last)

    def _snapshot(self, row: Row) -> None:
        """The row has read a piece of its prompt: what it has now stays for others, if it is at a mark."""
        last = len(row.prompt) - 1
        is_mark = row.read % FIRST_MARK == 0 and (row.read // FIRST_MARK).bit_count() == 1
        if not self._has_states or not self._keeps or not PAGE <= row.read <= last or not (is_mark or row.read == last):
            return
        owner, ids = self._owner(row), row.prompt[:row.read]
        known = self._prefixes.find_whole(owner, row.prompt)
        if known is not None and known[1] == row.read:
            return
        while len(self._prefixes) >= self._most_rows:
            self._drop_oldest()
        copy = self.decoder.fork(row.number)
        self._prefixes.add(owner, copy, ids)
        self._prefixes.keep(copy)

    def _drop_oldest(self) -> bool:
        row = self._prefixes.oldest()
        if row is not None:
            self.decoder.leave(row)
        return row is not None

    # ---- a step ----

    def _pieces(self, readers: list[Row], tokens: int) -> list[int]:
        """How many tokens of each prompt: half of them of the oldest."""
        sizes = []
        for i, row in enumerate(readers):
            most = tokens if i or len(readers) == 1 else max(1, tokens // 2)
            sizes.append(max(0, min(most, self._next_mark(row) - row.read)))
            tokens -= sizes[-1]
        return sizes

    def _plan(self) -> list[Part]:
        writers = [row for row in self._running if row.chooser.length - row.read == 1]
        readers = [row for row in self._running if row.chooser.length - row.read > 1 and row.scoring is None]
        guesses: list[list[int]] = [[] for _ in writers]
        if writers and self._most_guesses and not (readers and self._weighs):
            guesses = share(self._costs if self._weighs else None, [self._guesser(row) for row in writers],
                            [row.chooser.limit - row.chooser.length - 1 for row in writers], self._most_guesses)
        plan = [Part(row, 1, guess) for row, guess in zip(writers, guesses)]
        room = STEP_TOKENS - sum(1 + len(guess) for guess in guesses)
        if writers and readers:
            by_time = int(self._step_seconds / self._token_seconds) if self._token_seconds else room
            room = max(LEAST_PIECE, min(room, by_time))
        plan += [Part(row, n, []) for row, n in zip(readers, self._pieces(readers, room)) if n]
        return plan + self._scored()

    def _scored(self) -> list[Part]:
        """Prompts whose tokens' probabilities are wanted: a few tokens of each, since logits of all are computed."""
        made = []
        scored = [row for row in self._running if row.scoring is not None]
        for row in scored:
            assert row.scoring is not None
            guesses = row.scoring.guesses(MOST // len(scored))
            made.append(Part(row, 1, guesses, row.scoring.masks(guesses)))
        return made

    def _guesser(self, row: Row) -> Guesser:
        """Made when guesses are first wanted; it sees all tokens of the row."""
        if row.guesser is None:
            row.guesser = Guesser() if row.follower is None else GrammarGuesser(row.follower)
            row.guesser.add(row.chooser.ids())
        return row.guesser

    def _step(self) -> None:
        plan = self._masked(self._plan())
        if not plan:
            return
        began = self._step_began = time.monotonic()
        results = self._write(plan)
        seconds = time.monotonic() - began
        self._step_began = None
        tokens = sum(part.n + len(part.guesses) for part in plan)
        prompt = sum(part.n for part in plan if part.n > 1)
        self._metrics.stepped(len(plan), tokens, prompt, seconds)
        self._measure(len(plan), tokens, prompt, seconds)
        price = self._price(plan)
        for part, (chosen, error) in zip(plan, results):
            self._take(part, list(chosen), error, price)

    def _masked(self, plan: list[Part]) -> list[Part]:
        """With the masks of rows whose next token a grammar restricts. A row whose grammar fails leaves."""
        made = []
        for part in plan:
            row = part.row
            if row.scoring is None and row.follower is not None and row.chooser.length - row.read == part.n:
                try:
                    part = part._replace(masks=row.follower.masks(part.guesses))
                except ValueError as error:
                    self._fail_grammar(row, error)
                    continue
            made.append(part)
        return made

    def _measure(self, rows: int, tokens: int, prompt: int, seconds: float) -> None:
        """One step counts at most twice what was known: a machine that stood still is not a slow one."""
        if not prompt:
            self._costs.learn(tokens, seconds)
            before = self._row_seconds or seconds
            self._row_seconds = 0.9 * before + 0.1 * min(seconds, 2 * before)
        elif prompt >= LEAST_PIECE:
            of_rows = self._row_seconds if rows > 1 else 0.0
            found = max(seconds - of_rows, seconds / 4) / prompt
            before = self._token_seconds or found
            self._token_seconds = 0.8 * before + 0.2 * min(found, 2 * before)

    def _price(self, plan: list[Part]) -> float:
        """Of a guess, in steps of a row."""
        guesses = sum(len(part.guesses) for part in plan)
        if not guesses:
            return 0.0
        if not self._weighs:
            return PLAIN_PRICE * sum(bool(part.guesses) for part in plan) / guesses
        return self._costs.price(len(plan), guesses) / guesses

    def _write(self, plan: list[Part]) -> list[tuple[Any, Exception | None]]:
        """A step that fails as a whole is repeated row by row, so that one row's fault is its own."""
        wanted = sum((part.row.read + part.n + len(part.guesses)) // PAGE - part.row.read // PAGE + 2 for part in plan)
        while self.pages_all and self.decoder.pages(0)[1] < wanted and self._drop_oldest():
            pass
        made: list[tuple[Any, Exception | None]] = []
        try:
            made = self.decoder.write([(part.row.number, (part.row.scoring or part.row).chooser, part.n,
                                        part.guesses or None, part.masks) for part in plan])
        except tfmc.Error as error:
            if len(plan) == 1:
                return [((), error)]
            log.error("%s: a step of %d rows failed, and is repeated row by row: %s", self.served.name, len(plan), error)
            for part in plan:
                made += self._write([part])
        return made

    def _take(self, part: Part, chosen: list[Any], error: Exception | None, price: float) -> None:
        """price: of a guess."""
        row, guessed, job = part.row, len(part.guesses), part.row.job
        if error is not None:
            row.read = self.decoder.length(row.number)
            self._fail(row, error)
            return
        if row.scoring is not None:
            self._take_scores(row, row.scoring, chosen)
            return
        if not chosen:
            row.read += part.n
            self._snapshot(row)
            return
        row.read = self.decoder.length(row.number)  # a row with states reads what was guessed rightly beside a fault again
        if not row.has_read:
            row.has_read = True
            if self._keeps:
                self._prefixes.add(self._owner(row), row.number, row.prompt)
        if not job.first_at:
            job.first_at = time.monotonic()
            self._metrics.first_token(job.first_at - job.put_at)
        ids = [token if isinstance(token, int) else token[0] for token in chosen]
        if row.follower is not None:
            try:
                row.follower.take(ids, row.text.ends)
            except ValueError as problem:
                self._fail_grammar(row, problem)
                return
        if row.guesser is not None:
            row.guesser.add(ids)
            row.guesser.learn(guessed, len(chosen) - 1, price * guessed)
        piece = row.text.add(row.index, chosen, row.chooser.length >= row.chooser.limit)
        self._metrics.counted("written", len(piece.tokens))
        self._metrics.counted("guessed", guessed)
        self._metrics.counted("right", len(chosen) - 1 if guessed else 0)
        self._outbox.setdefault(job, []).append(piece)
        if piece.finish is not None:
            self._leave(row)

    def _take_scores(self, row: Row, scoring: Scoring, chosen: list[Any]) -> None:
        row.read = scoring.chooser.length - 1
        scoring.scores += chosen
        self._metrics.counted("prompt", len(chosen))
        if not scoring.is_done:
            return
        row.scoring = None
        finish = "length" if row.ends_with_prompt else None
        self._outbox.setdefault(row.job, []).append(Piece(row.index, "", [], finish, None, scoring.scores))
        if finish:
            self._leave(row)

    def _fail(self, row: Row, error: Exception) -> None:
        """One row's fault ends its request. That every token is forbidden is the fault of its options."""
        if isinstance(error, tfmc.InputError) and "forbidden" in str(error):
            self._faults[row.job] = Fault("invalid", str(error))
        else:
            log.error("%s: a row of %d tokens failed: %s", self.served.name, row.chooser.length, error)
            self._faults[row.job] = Fault("internal", "this is a mistake of the server's, or numbers of the model that are "
                                          "not finite; its log has more")
        row.job.cancelled = True
        self._leave(row)

    def _fail_grammar(self, row: Row, error: ValueError) -> None:
        """What it costs to follow a grammar is known only while it is followed."""
        self._faults[row.job] = Fault("invalid", f"the grammar takes too much work: {shown(str(error))}")
        row.job.cancelled = True
        self._leave(row)

    def _hand_over(self) -> None:
        """All of a turn in one call."""
        if not self._outbox and not self._faults:
            return
        jobs = [(job, self._outbox.get(job, []), self._faults.get(job)) for job in {**self._outbox, **self._faults}]
        self._outbox, self._faults = {}, {}

        def deliver() -> None:
            for job, pieces, fault in jobs:
                job.deliver(pieces, fault)
        with contextlib.suppress(RuntimeError):  # of a loop that has ended: nobody waits
            self._loop.call_soon_threadsafe(deliver)

    # ---- before the first request ----

    def _measure_steps(self, row: int, chooser: Any, tokens: int) -> None:
        """The first of a size may be slow, and others where the machine had other work."""
        made = []
        for _ in range(3):
            if chooser.limit - chooser.length <= tokens:
                break
            began, n = time.monotonic(), chooser.length - self.decoder.length(row)  # with states more than 1: they go back
            self.decoder.write([(row, chooser, n, [0] * (tokens - 1))])
            made.append((time.monotonic() - began, n + tokens - 1))
        if made:
            seconds, size = min(made)
            self._costs.learn(size, seconds)

    def warm_up(self) -> None:
        """Before start(): what steps of some sizes cost, one row alone."""
        translates = isinstance(self.served, ServedTranslator)
        length = min(64 if not translates else 1, self.served.row_length - MOST - 2)
        if length < 1:
            return
        chooser = self.served.model.chooser([0] * length, limit=self.served.row_length, eos_token_id=[], num_beams=1)
        item = 0
        if isinstance(self.served, ServedTranslator):
            item = self.decoder.add_source(*self.served.source_of([0] * min(16, self.served.max_length)))
        row = self.decoder.join(item)
        began = time.monotonic()
        self.decoder.write([(row, chooser)])
        if length >= LEAST_PIECE:
            self._token_seconds = (time.monotonic() - began) / length
        if length > 1:
            self._has_states = self.decoder.keeps(row, length - 1) < length - 1
        for tokens in (1, 2, 3, 5, 8, 12, 1 + MOST):
            if tokens <= 1 + self._most_guesses:
                self._measure_steps(row, chooser, tokens)
        self._row_seconds = self._costs.of(1)
        self.decoder.leave(row)
        if translates:
            self.decoder.drop_source(item)
