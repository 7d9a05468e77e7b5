"""A job: the parts of a corpus that are not done yet, given to workers until all are.

The folder of the output holds part-NNNNNN.parquet (or .jsonl), one for each part, and _job with what is kept beside
them: job.json (files and settings), probe.json (what its model computes), errors (rows without a result, a file a
part), errors.jsonl (all of those), summary.json. A part is done if its file is there; nothing else says so.

Refused: another job's folder, a model that computes other bits than the one that the job began with.
"""
import collections
import contextlib
import json
import os
import pathlib
import time

from .._errors import EnvError, InputError, UsageError
from . import _parts, _worker
from ._engines import ENGINES
from ._progress import Progress

VERSION = 2
PATIENCE = 30  # seconds without a worker that is ready, after which it is said what they wait for

Summary = collections.namedtuple(
    "Summary", "output parts done skipped failed rows tokens errors seconds workers deaths")


# ---- what the job is ----

def _agreement(settings, files):
    """What calls of one job must have in common."""
    decided = {name: getattr(settings, name) for name in _worker.DECIDE}
    return {"version": VERSION, **decided, "keep": list(settings.keep), "files": [list(file) for file in files]}


def _read(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise EnvError(f"{path}: {error}") from None


class Job:
    """One call of embed or translate."""

    def __init__(self, settings, inputs, output, share, retries, max_errors, progress):
        self.settings, self.output, self.share = settings, pathlib.Path(output), share
        self.retries, self.max_errors = retries, max_errors
        self.suffix = ".parquet" if settings.format == "parquet" else ".jsonl"
        self.folder = self.output / "_job"
        with self._in_folder():
            self._agree_on_files(inputs)
        self.todo = collections.deque(part for part in self.mine if not self._is_done(part))
        self.done = {"parts": 0, "rows": 0, "tokens": 0, "deaths": 0}
        self.skipped = len(self.mine) - len(self.todo)
        self.tries, self.failed, self.flying = collections.Counter(), {}, 0
        self.errors = self._count_errors()  # of earlier calls too
        self.progress = Progress(len(self.mine), self.skipped, progress)

    def _agree_on_files(self, inputs):
        """The list of the parts: that of the job, if it has begun; a call with other files or settings is refused."""
        made = any(self.output.glob("part-*"))  # before job.json is looked for, which every job writes first
        known, paths = _read(self.folder / "job.json"), _parts.paths(inputs)
        if known is None:
            if made:
                raise InputError(f"{self.output}: there are parts of a job, but no {self.folder / 'job.json'} that "
                                 "says of which; the output needs a folder of its own")
            known = self._begin(paths)
        files = [_parts.File(*file) for file in known["files"]]
        wanted = _agreement(self.settings, files)
        other = [name for name in wanted if known.get(name) != wanted[name]]
        if [file.path for file in files] != paths:
            other.append("inputs")
        if other and not made and not (self.folder / "probe.json").exists():
            known, other = self._begin(paths, replaces=True), []  # of a job that never had a model: nobody is bound by it
            files = [_parts.File(*file) for file in known["files"]]
        self.known = known
        if other:
            raise InputError(f"{self.output}: another job writes here; it has other {', '.join(other)} "
                             f"({self.folder / 'job.json'}); give the same again, or another folder")
        self.mine = _parts.parts_of(files, self.settings.part_bytes)
        if self.share is not None:
            self.mine = self.mine[self.share[0]::self.share[1]]

    def _begin(self, paths, replaces=False):
        files = self._described(paths)
        self.folder.mkdir(parents=True, exist_ok=True)
        path, text = self.folder / "job.json", json.dumps(_agreement(self.settings, files)).encode()
        if replaces:
            with _parts.whole(path) as file:
                file.write(text)
        else:
            _parts.put(path, text)
        return _read(path)

    def _described(self, paths):
        """The files of a job that begins, whose metadata are looked at for what would make every part fail."""
        home = os.path.realpath(self.output)
        for path in paths:
            if os.path.realpath(os.path.dirname(path)) == home:
                raise InputError(f"{self.output}: {path} is an input and lies in the folder of the output, which needs "
                                 "one of its own")
        columns = list(dict.fromkeys([self.settings.column, *self.settings.keep]))
        files = [_parts.describe(path, columns, self.settings.column) for path in paths]
        if self.settings.keep and any(file.kind == "text" for file in files):
            raise UsageError("lines of text have no columns that could be kept")
        _parts.check_lines(files, columns)
        if self.settings.format == "parquet":
            _parts.need_pyarrow()
        return files

    def _is_done(self, part):
        return (self.output / _parts.output_name(part, self.suffix)).exists()

    @contextlib.contextmanager
    def _in_folder(self):
        """What the system refuses here, it refuses of the folder of the output."""
        try:
            yield
        except OSError as error:
            raise EnvError(f"{self.output}: {error}") from None

    def _agree_on_bits(self, probe):
        """Parts by machines or models that compute other bits may not stand side by side."""
        path = self.folder / "probe.json"
        if _read(path) is None:
            with self._in_folder():
                _parts.put(path, json.dumps(probe).encode())
        if _read(self.folder / "job.json") != self.known:
            raise InputError(f"{self.output}: another job has begun here meanwhile ({self.folder / 'job.json'})")
        if _read(path) != probe:
            raise EnvError(f"{self.output}: the model computes other bits here than where the job began: it is another "
                           f"model or tokenizer, or this machine has no fused multiply-add ({path})")

    # ---- the way through the parts ----

    def run(self, engine, workers):
        start, workers = time.monotonic(), min(workers, len(self.todo))
        self._clean()
        if self.todo:
            running = ENGINES[engine](self.settings, self.output, workers)
            try:
                workers = running.workers
                self.progress.begin(workers)
                self._go(running)
            finally:
                running.close()
                self._clean()
                self.progress.end()
        return self._end(time.monotonic() - start, workers)

    def _clean(self):
        with self._in_folder():
            for folder in (self.output, self.folder, self.folder / "errors"):
                _parts.clean(folder)

    def _go(self, engine):
        begun = time.monotonic()
        while self.todo or self.flying:
            while self.todo and engine.free():
                part = self.todo.popleft()
                if self._is_done(part):  # by another job, meanwhile
                    self.skipped += 1
                    self.errors += _count_lines(self._errors_of(part))
                    self.progress.skip()
                    continue
                self.flying += 1
                engine.begin(part)
            if self.flying or self.todo:
                self._on(engine.wait(1.0))
            if not self.progress.is_begun and time.monotonic() - begun > PATIENCE:
                self.progress.wait(engine.waits_for())
            self.progress.show()

    def _on(self, event):
        kind, part, value = event
        self.flying -= part is not None
        if kind == "ready":
            self._agree_on_bits(value)
            self.progress.ready()
        elif kind == "done":
            for name, number in (("parts", 1), ("rows", value.rows), ("tokens", value.tokens)):
                self.done[name] += number
            self.progress.add(value)
            self.errors += value.errors
            if value.errors and self.max_errors is not None and self.errors > self.max_errors:
                raise InputError(f"{self.output}: {self.errors} rows have no result, and max_errors is "
                                 f"{self.max_errors}: {self._collect_errors()}")
        elif kind == "returned":
            self.todo.appendleft(part)
        elif kind in ("fatal", "refused"):
            raise EnvError(f"{self.output}: {value}" if kind == "fatal" else f"no worker can begin: {value}")
        elif kind in ("failed", "died"):
            self.done["deaths"] += kind == "died"
            if part is not None:
                self._again(part, value if kind == "failed" else f"the worker died ({value})")

    def _again(self, part, reason):
        self.tries[part] += 1
        if self.tries[part] <= self.retries:
            self.todo.append(part)
        else:
            self.failed[part] = reason
            self.progress.skip()

    # ---- errors and the end ----

    def _error_files(self):
        """Those of parts that are done: a part whose worker died between its errors and its rows says them again."""
        found = sorted((self.folder / "errors").glob("part-*.jsonl"))
        return [path for path in found if (self.output / path.with_suffix(self.suffix).name).exists()]

    def _count_errors(self):
        return sum(map(_count_lines, self._error_files()))

    def _errors_of(self, part):
        return self.folder / "errors" / _parts.output_name(part, ".jsonl")

    def _collect_errors(self):
        """Writes errors.jsonl anew until no other call has added to it meanwhile; whoever comes last has all."""
        path, files = self.folder / "errors.jsonl", None
        while files != (found := self._error_files()):
            files = found
            with self._in_folder(), _parts.whole(path) as file:
                for part in files:
                    file.write(part.read_bytes())
        return path

    def _end(self, seconds, workers):
        self._collect_errors()
        summary = Summary(str(self.output), len(self.mine), self.done["parts"], self.skipped, len(self.failed),
                          self.done["rows"], self.done["tokens"], self._count_errors(), round(seconds, 3), workers,
                          self.done["deaths"])
        name = "summary.json" if self.share is None else f"summary-{self.share[0]}-of-{self.share[1]}.json"
        with self._in_folder(), _parts.whole(self.folder / name) as file:
            failed = [{"part": part.number, "path": part.path, "place": part.place, "reason": reason}
                      for part, reason in self.failed.items()]
            file.write(json.dumps({**summary._asdict(), "failed_parts": failed}, indent=1).encode() + b"\n")
        if self.failed:
            part, reason = next(iter(self.failed.items()))
            raise EnvError(f"{len(self.failed)} of {len(self.mine)} parts failed {self.retries + 1} times; part "
                           f"{part.number} ({part.path}, {_where(part)}): {reason}")
        return summary


def _count_lines(path):
    try:
        return path.read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def _where(part):
    if part.kind != "parquet":
        return f"bytes {part.begin} to {part.end}"
    return f"row group {part.place}, rows {part.begin} to {part.end}"
