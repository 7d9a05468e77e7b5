"""Models that translate: a checkpoint's folder, its tokenizer, texts as rows of ids.

Rows whose next token is the likeliest are written by the scheduler, with the rows of all requests; their sources are
encoded when they are admitted. Beams are searched by a thread of their own: what waits with like options, together.
Either way a translation is that of `tfmc.text.Translator` alone.
"""
from __future__ import annotations

import asyncio
import importlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import tfmc
import tfmc.text

from .errors import Fault
from .pieces import Piece
from .texts import Place, opened, quantized
from .writers import NO_SETTINGS, NOT_TAKEN

_folder: Any = importlib.import_module("tfmc.text._folder")
_options: dict[str, str] = importlib.import_module("tfmc._generate").OPTIONS
MOST_TOKENS = 512  # of a source, or of a translation, where neither the folder nor --max-length says it
MOST_BEAMS = 16
BEAM_ROWS = 32     # rows of the search at a time


class ServedTranslator:
    """One model that translates. Its methods may be called by any thread."""
    kind = "translate"

    def __init__(self, place: Place, pool: tfmc.Pool, max_length: int | None, quantize: str | None) -> None:
        self.name, self.folder, self.quantize = place.name, place.folder, quantize
        source, options = opened(place, pool, quantize=quantize)
        positions = _folder.positions(place.folder)
        if positions is not None and max_length is not None and max_length > positions:
            raise ValueError(f"{place.folder}: the model has {positions} positions, and --max-length is {max_length}")
        self.max_length: int = max_length or positions or MOST_TOKENS  # of a source
        self.row_length: int = positions or MOST_TOKENS                # of a translation
        self._made: Any = tfmc.text.Translator(source, folder=place.folder, max_length=self.max_length, **options)
        self.model: Any = self._made.model
        generation: Any = self.model.generation
        if not generation.incremental:
            raise ValueError(f"{place.folder}: rows of this model cannot be continued one token at a time: "
                             f"{generation.reason}")
        self.vocab: int = generation.vocab
        self.dtype = quantized(quantize, _folder.read(place.folder, "config.json"))
        self._read_settings()

    def _read_settings(self) -> None:
        """Of the folder, and what every translation begins with."""
        given: dict[str, Any] = self._made.defaults.get("config", {})
        self.settings_of_folder = {name: value for name, value in given.items() if value is not None and
                                   name not in NOT_TAKEN and _options.get(name, "ignored") not in NO_SETTINGS}
        self.beams: int = given.get("num_beams") or 1
        one = {name: np.ones((1, 1), np.int32) for name in self.model.inputs if name != self.model.generation.input}
        row = self.model.generate(**one, **{**self._made.defaults, "num_beams": 1, "max_new_tokens": 1})[0]
        self.start: list[int] = row[:-1].tolist()
        wanted = self._made.defaults.get("max_new_tokens") or given.get("max_new_tokens")
        most = self.row_length - len(self.start)
        self.new_tokens: int = min(most, wanted or (given.get("max_length") or self.row_length) - len(self.start))
        self.ends = frozenset(self.model.chooser(self.start, limit=self.row_length, config=self.settings_of_folder,
                                                 num_beams=1).ends())
        self.sources: tuple[str, ...] = self.model._sources()

    def encode(self, texts: list[str], target: str | None, source: str | None, truncate: bool) -> tuple[list[list[int]],
                                                                                                      dict[str, Any]]:
        """(rows of ids, options of generation)"""
        try:
            texts, options = self._made._begin(texts, source, target, "")
            rows, reasons = self._made._rows(texts, source, truncate)
        except tfmc.Error as error:
            raise Fault("invalid", str(error).removeprefix(f"{self.folder}: ").partition(";")[0]) from None
        except Exception as error:  # of the tokenizer
            raise Fault("tokenizer", f"the tokenizer does not take this text: {str(error)[:200]}") from None
        for i, reason in reasons.items():
            raise Fault("invalid", f"text[{i}]: {reason}; \"truncate\": true cuts it", "text")
        return rows, options

    def source_of(self, row: list[int]) -> list[Any]:
        """What the encoder takes of one source."""
        inputs = {"input_ids": np.array([row], np.int32), "attention_mask": np.ones((1, len(row)), np.int32)}
        return [inputs[name] for name in self.sources]

    def decode(self, ids: list[int]) -> str:
        text: str = self._made.tokens.decode(ids)
        return text

    def search(self, rows: list[list[int]], options: dict[str, Any]) -> list[list[int]]:
        """The best beams of these sources."""
        ids, mask = _folder.padded(rows)
        made = self.model.generate(input_ids=ids, attention_mask=mask, **{**self._made.defaults, **options})
        return [np.asarray(row).tolist() for row in made]

    def settings(self) -> dict[str, Any]:
        """As /info and /v1/models show them."""
        return {"kind": self.kind, "max_length": self.max_length, "vocab": self.vocab, "quantize": self.quantize,
                "weights_bytes": self.model.weights_bytes, "ends": sorted(self.ends), "num_beams": self.beams,
                "settings": self.settings_of_folder}


class Ids:
    """In place of the text of a row: translations are decoded whole."""

    def __init__(self, ends: frozenset[int]) -> None:
        self.ends = ends

    def add(self, choice: int, tokens: list[Any], is_last: bool) -> Piece:
        for n, token in enumerate(tokens, 1):
            if token in self.ends:
                return Piece(choice, "", tokens[:n], "stop", None)
        return Piece(choice, "", tokens, "length" if is_last else None, None)


class Search:
    """Sources whose beams are wanted, with one set of options."""

    def __init__(self, rows: list[list[int]], options: dict[str, Any], future: asyncio.Future[list[list[int]]]) -> None:
        self.rows, self.options, self.future = rows, options, future
        self.cancelled = False


class Searcher:
    """The thread that searches beams. put() is for the thread of the event loop."""

    def __init__(self, served: ServedTranslator, loop: asyncio.AbstractEventLoop,
                 died: Callable[[BaseException], None]) -> None:
        self._served, self._loop, self._died = served, loop, died
        self._changed, self._ended = threading.Condition(), False
        self._waiting: deque[Search] = deque()
        self._live: set[Search] = set()  # of the event loop
        self._thread = threading.Thread(target=self._work, name=f"searcher of {served.name}", daemon=True)
        self._thread.start()

    def put(self, rows: list[list[int]], options: dict[str, Any]) -> Search:
        search = Search(rows, options, self._loop.create_future())
        self._live.add(search)
        search.future.add_done_callback(lambda _: self._live.discard(search))
        with self._changed:
            self._waiting.append(search)
            self._changed.notify()
        return search

    def cancel_all(self, fault: Fault) -> None:
        for search in list(self._live):
            search.cancelled = True
            if not search.future.done():
                search.future.set_exception(fault)

    def stop(self) -> bool:
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._thread.join(5)
        return not self._thread.is_alive()

    def _take(self) -> list[Search]:
        """What waits longest, and what waits with the same options, as many rows as are searched at a time."""
        first = self._waiting.popleft()
        run, beams = [first], len(first.rows) * int(first.options["num_beams"])
        for other in list(self._waiting):
            more = len(other.rows) * int(other.options["num_beams"])
            if other.options == first.options and beams + more <= BEAM_ROWS:
                self._waiting.remove(other)
                run.append(other)
                beams += more
        return [search for search in run if not search.cancelled]

    def _work(self) -> None:
        try:
            while True:
                with self._changed:
                    while not self._waiting and not self._ended:
                        self._changed.wait()
                    if self._ended:
                        return
                    run = self._take()
                for search, made in zip(run, self._search(run)):
                    self._loop.call_soon_threadsafe(hand_over, search, made)
        except RuntimeError:  # of a loop that has ended: nobody waits
            pass
        except BaseException as error:
            self._died(error)

    def _search(self, run: list[Search]) -> list[list[list[int]] | Exception]:
        """A run that fails is repeated request by request; of one, as many rows as are searched at a time."""
        if not run:
            return []
        rows = [row for search in run for row in search.rows]
        size = max(1, BEAM_ROWS // int(run[0].options["num_beams"]))
        made: list[list[int]] = []
        try:
            for first in range(0, len(rows), size):
                if all(search.cancelled for search in run):
                    break
                made += self._served.search(rows[first:first + size], run[0].options)
        except tfmc.Error as error:
            return [error] if len(run) == 1 else [found for search in run for found in self._search([search])]
        found: list[list[list[int]] | Exception] = []
        for search in run:
            found.append(made[:len(search.rows)])
            made = made[len(search.rows):]
        return found


def hand_over(search: Search, made: list[list[int]] | Exception) -> None:
    """On the event loop."""
    if search.future.done():
        return
    if isinstance(made, Exception):
        search.future.set_exception(made)
    else:
        search.future.set_result(made)
