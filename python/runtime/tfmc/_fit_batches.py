"""Trainer.fit on batches that a program makes, such as those of a DataLoader: steps in this process, in their order.

In: a trainer; batches that can be gone through again in each epoch (a DataLoader, or any other iterable), as dicts by the
names of the objective's inputs or as tuples in their order; for `valid` such batches too. Out: the folder of a run with
checkpoints, a log, and the best weights; a note in each checkpoint holds a hash of the batches that were used. Refused:
batches with other names than the inputs, NaN, a run that is resumed with other batches, an iterator for more than one
epoch, options that are about items.
"""
import collections.abc
import contextlib
import fcntl
import hashlib
import json
import math
import os
import pathlib
import shutil
import signal
import struct
import sys
import threading
import time
import warnings

import numpy as np

from . import _arrays, _items, _judging, _nested, _options, _progress, _tensors
from ._errors import EnvError, InputError, UsageError
from ._model import CompileWarning
from ._trainer import NO_LABEL, STEP, Fit, _state_in, newest_checkpoint

OPTIONS = ("epochs", "steps", "valid_every", "save_every", "log_every", "keep", "patience", "empty_batches", "best")
# Of a checkpoint: a mark, the seed, the epoch and its batches that are done, how many were left out in all, hashes of the
# settings and of all batches.
NOTE = struct.Struct("<8sQQQQ32s32s")
MARK = b"batches1"


def is_first(trainer):
    """Of several processes one writes."""
    return trainer._group is None or trainer._group.rank == 0


def is_base_apart(trainer):
    """Whether what is saved of the model is what is trained, as of one with adapters."""
    return trainer._base_is_apart()


def write_weights(trainer, path, only_trained=False):
    paths = trainer.trained if only_trained else trainer._paths
    forms = {name: form for name, form in trainer._narrow.items() if name in paths}
    weights = {name: _tensors.narrow(trainer.weight(name), forms[name]) if name in forms else trainer.weight(name)
               for name in paths}
    _tensors.write_tensors(path, weights, forms=forms)


def has_batches(data):
    return isinstance(data, collections.abc.Iterable) and not _items.has_items(data)


def row_of(batch, inputs, where):
    """The batch as arrays by name. Values that are no arrays, other names and NaN are refused with the batch's number."""
    if isinstance(batch, collections.abc.Mapping):
        batch = _nested.flat(batch, inputs)
        unknown = [name for name in batch if name not in inputs]
        missing = [name for name in inputs if name not in batch]
        if unknown or missing:
            said = f'holds "{unknown[0]}", which is no input' if unknown else f'has no "{missing[0]}"'
            raise InputError(f"{where} {said}; the inputs of the objective are {', '.join(inputs)}")
        values = [batch[name] for name in inputs]
    elif isinstance(batch, (tuple, list)) and len(batch) == len(inputs):
        values = list(batch)
    else:
        said = f" of {len(batch)}" if isinstance(batch, (tuple, list)) else ""
        raise InputError(f"{where} is of type {type(batch).__name__}{said}, not a dict, nor a tuple with a value for each of "
                         f"{', '.join(inputs)}")
    row = {}
    for (name, kind), value in zip(inputs.items(), values):
        if value is None:
            raise InputError(f'{where}: input "{name}" is None', reason="type")
        try:
            row[name] = _arrays.convert(value, kind.dtype, name, str(kind))
        except (InputError, UsageError) as error:
            raise InputError(f"{where}: {error}", reason=error.reason) from None
        if row[name].dtype.kind == "f" and np.isnan(row[name]).any():
            at = [int(i) for i in np.argwhere(np.isnan(row[name]))[0]]
            raise InputError(f'{where}: input "{name}"{at} is NaN', reason="value")
    return row


class _Batches:
    """Epochs of batches, with a hash of all that were taken."""

    def __init__(self, data, inputs):
        self.data, self.inputs, self.is_once = data, inputs, isinstance(data, collections.abc.Iterator)
        self.hash, self.epoch, self.at, self.source = hashlib.sha256(), 0, 0, None

    def next(self):
        """The next batch; None: the epoch has ended."""
        if self.source is None:
            if self.epoch and self.is_once:
                raise UsageError("train gives its batches once, and the run needs another epoch of them: give what can be gone "
                                 "through again, such as a DataLoader, or fewer steps")
            self.source = iter(self.data)
        try:
            batch = next(self.source)
        except StopIteration:
            if not self.at:
                raise InputError(f"train gives no batch in epoch {self.epoch}") from None
            self.epoch, self.at, self.source = self.epoch + 1, 0, None
            return None
        row = row_of(batch, self.inputs, f"batch {self.at} of epoch {self.epoch}")
        self.at += 1
        for name, array in row.items():
            self.hash.update(f"{name} {array.dtype.str} {array.shape} ".encode() + array.tobytes())
        return row

    def skip(self, epoch, at, digest):
        """Goes to where a run was, past the batches that it has used."""
        while (self.epoch, self.at) < (epoch, at):
            self.next()
        if (self.epoch, self.at, self.hash.digest()) != (epoch, at, digest):
            raise InputError("train gives other batches than it gave to the run that is resumed: seed the generator that "
                             "orders them, or begin a run in another folder")


class _Log:
    def __init__(self, folder, trainer, callbacks, progress):
        self.path = None if folder is None else folder / "log.jsonl"
        self.writes = folder is not None and is_first(trainer)
        self.trainer, self.callbacks, self.progress = trainer, callbacks, progress
        self.history, self.begun, self.stops = [], time.monotonic(), False

    def take_up(self):
        """The lines of a run that is resumed, up to where it goes on; what was written after its checkpoint goes."""
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.is_file() else []
        for line in lines:
            try:
                record = json.loads(line)
            except ValueError:  # of a program that was killed while it wrote
                continue
            if record["step"] <= self.trainer.steps:
                self.history.append(record)
        self.begun -= max((r["seconds"] for r in self.history), default=0.0)
        if not self.writes:
            return
        new = self.path.with_suffix(".new")
        new.write_text("".join(json.dumps(r) + "\n" for r in self.history), encoding="utf-8")
        os.replace(new, self.path)

    def record(self, kind, epoch, results, **more):
        numbers = {name: value if math.isfinite(value) else None for name, value in results.items()}
        return {"kind": kind, "step": self.trainer.steps, "epoch": epoch, **numbers, **more,
                "seconds": round(time.monotonic() - self.begun, 3)}

    def put(self, record):
        self.history.append(record)
        if self.writes:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        if self.progress:
            _progress.show(record)
        for callback in self.callbacks:
            self.stops |= callback(_judging.Event(record, self.trainer)) is True


class _Run:
    """One run. What a checkpoint says of its batches is as of the last step, whatever was taken since."""

    def __init__(self, trainer, train, valid, folder, metric, log, given):
        self.trainer, self.valid, self.folder, self.metric, self.log, self.given = trainer, valid, folder, metric, log, given
        self.batches = _Batches(train, trainer.inputs)
        self.skipped, self.stopped, self.asked, self.saved = 0, None, False, None
        self.averages, self.best = trainer.has_average, given.get("best")
        self.settings = hashlib.sha256(repr((trainer.settings, trainer._made and trainer._made["shards"], *([self.best] if self.best else []))).encode()).digest()
        self.commit()

    def number(self, name, default=None):
        value = self.given.get(name)
        return default if value is None else value

    # ---- checkpoints ----

    def commit(self):
        self.note = NOTE.pack(MARK, self.trainer.seed or 0, self.batches.epoch, self.batches.at, self.skipped, self.settings,
                              self.batches.hash.digest())

    def save(self):
        if self.folder is None:
            return
        self.saved = self.trainer.steps
        if not is_first(self.trainer):
            return
        self.trainer.save(self.folder, self.note)
        self.log.put(self.log.record("checkpoint", self.batches.epoch, {}))
        for old in sorted(self.folder.glob("step-" + "[0-9]" * 8))[:-self.number("keep", 3)]:
            shutil.rmtree(old)
        if self.valid is None:
            self.keep_weights()

    def keep_weights(self):
        """The best weights, or the newest if nothing is validated, at the top of the folder."""
        if not is_first(self.trainer):
            return
        new = self.folder / "weights.new"
        write_weights(self.trainer, new, is_base_apart(self.trainer))
        os.replace(new, self.folder / "weights.safetensors")
        if self.averages:
            with self.trainer._averaged():
                write_weights(self.trainer, new, is_base_apart(self.trainer))
            os.replace(new, self.folder / "average.safetensors")
        if self.trainer.has_adapter:
            self.trainer.save_adapter(self.folder / "adapter")

    def take_up(self):
        """The trainer and the batches as they were at the newest checkpoint."""
        note = self.trainer._take(_state_in(self.folder), 0)
        if note is None or len(note) != NOTE.size or not note.startswith(MARK):
            raise InputError(f"{self.folder}: this is a run over items, not over batches of a program: give fit its items, or "
                             "another folder")
        _, seed, epoch, at, self.skipped, settings, digest = NOTE.unpack(note)
        for is_other, what in ((seed != self.trainer.seed, "seed"), (settings != self.settings, "settings of the train block")):
            if is_other:
                raise InputError(f"{self.folder}: this run has another {what}" if what == "seed" else
                                 f"{self.folder}: this run has other {what}")
        self.log.take_up()
        self.trainer.epoch = epoch
        self.batches.skip(epoch, at, digest)
        self.commit()
        self.saved = self.trainer.steps
        if self.valid is None:  # the program may have been killed before they were written
            self.keep_weights()
        self.look_back()

    # ---- validations ----

    def validated(self):
        return [r for r in self.log.history if r["kind"] == "valid"]

    def look_back(self):
        """Ends the run if the last validations were no better."""
        judged = [_judging.rating(r, self.best) for r in self.validated()]
        if self.number("patience") and judged and len(judged) - 1 - judged.index(max(judged)) >= self.given["patience"]:
            self.stopped = "patience"

    def validate(self):
        done = self.validated()
        if done and done[-1]["step"] == self.trainer.steps:
            return
        parts = [row_of(batch, self.trainer.inputs, f"batch {i} of valid") for i, batch in enumerate(self.valid)]
        if not parts:
            raise InputError("valid gives no batch")
        with self.trainer._averaged(self.averages):
            results, more = self.trainer.evaluate(parts=parts), {}
            if self.metric is not None:
                more = _judging.scores_of(self.metric, self.trainer, self.best)
                group = self.trainer._group
                if group is not None:
                    data = np.array(list(more.values()), np.float64).tobytes()
                    more = dict(zip(more, np.frombuffer(group.of_first(data), np.float64).tolist()))
        record = self.log.record("valid", self.batches.epoch, results, **more)
        rating = _judging.rating(record, self.best)
        if self.folder is not None and all(_judging.rating(r, self.best) < rating for r in done):
            self.keep_weights()
        self.log.put(record)
        self.look_back()

    # ---- steps ----

    def is_over(self):
        return self.stopped or self.asked or self.log.stops or self.trainer.steps >= self.number("steps", math.inf) or (
            self.batches.epoch >= self.number("epochs", math.inf))

    def step(self):
        """One batch, or the end of an epoch."""
        row, every = self.batches.next(), self.number("valid_every")
        if row is None:
            self.trainer.epoch = self.batches.epoch
            self.commit()
            if self.valid is not None and not every:
                self.validate()
            return
        where = f"batch {self.batches.at - 1} of epoch {self.batches.epoch}"
        try:
            result = self.trainer._do(STEP, self.trainer._parts(row, None, {}))
        except InputError as error:
            if NO_LABEL not in str(error) or self.number("empty_batches") != "skip":
                raise InputError(f"{where}: {error}", reason=error.reason, place=error.place) from None
            self.skipped += 1
            self.commit()
            return
        self.commit()
        if result.step % self.number("log_every", 10) == 0:
            self.log.put(self.log.record("step", self.batches.epoch, result.results, lr=result.rate, norm=result.norm))
        if every and self.valid is not None and result.step % every == 0:
            self.validate()
        if self.number("save_every") and result.step % self.given["save_every"] == 0:
            self.save()

    def interrupted(self, number, frame):
        """The first signal ends the run after its step, the second at once."""
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    @contextlib.contextmanager
    def listening(self):
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        old = signal.signal(signal.SIGINT, self.interrupted)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, old)

    def agree(self):
        """Ranks take the same batches, and one that was asked to stop stops all."""
        group = self.trainer._group
        if group is None:
            return
        if not group.are_alike(self.batches.hash.digest()):
            raise InputError("the ranks take other batches than each other: each gives all of them, in the same order")
        self.asked, self.log.stops = group.any(self.asked), group.any(self.log.stops)

    def steps(self):
        while not self.is_over():
            self.step()
            self.agree()
        if self.skipped and not self.trainer.steps:
            raise InputError("no label counts in any batch")
        if not self.asked and not self.log.stops and self.valid is not None:
            self.validate()
        self.stopped = self.stopped or ("signal" if self.asked else "callback" if self.log.stops else "end")

    def run(self):
        """The weights of the last step are kept, also before an error is raised."""
        try:
            self.steps()
        except KeyboardInterrupt:
            raise
        except BaseException:
            self.save_last()
            raise
        self.save_last()

    def save_last(self):
        if self.trainer.steps and self.saved != self.trainer.steps:
            self.save()


def _check(trainer, train, valid, given, metric):
    _judging.refuse_average(given)
    for name, value in given.items():
        if name not in OPTIONS:
            raise UsageError(f"{name}= is for items; train gives batches, for which fit has {', '.join(OPTIONS)}")
        if name == "best":
            _judging.check(trainer, value, valid, metric)
        elif name == "empty_batches":
            _options.word(name, value, "skip", "error")
        elif value is not None:
            _options.whole(name, value)
    if not (given.get("epochs") or given.get("steps")):
        raise UsageError("fit needs epochs= or steps= for batches of a program")
    if valid is None and (metric is not None or given.get("patience") or given.get("valid_every")):
        raise UsageError("metric, patience and valid_every are for a run with valid=")
    if valid is not None and (not has_batches(valid) or isinstance(valid, collections.abc.Iterator)):
        raise UsageError("train gives batches: valid= must give batches too, each time that it is gone through, as a DataLoader "
                         "does")


@contextlib.contextmanager
def _locked(folder):
    """The folder of a run, which one process uses at a time; None: none, or that of another rank."""
    if folder is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise EnvError(f"{folder}: another process trains in this folder") from None
        yield
    finally:
        os.close(lock)


def fit(trainer, train, valid, out, resume, metric, callbacks, progress, given):
    _check(trainer, train, valid, given, metric)
    if resume and out is None:
        raise UsageError("resume=True goes on with the run in out=, which is not given")
    folder = None if out is None else pathlib.Path(out)
    is_begun = folder is not None and newest_checkpoint(folder) is not None
    goes_on = bool(resume) and is_begun
    if trainer.steps and not goes_on:
        raise UsageError(f"the trainer has done {trainer.steps} steps: fit begins with a new one, or goes on with the run in out= "
                         "(resume=True)")
    if is_begun and not goes_on:
        raise EnvError(f"{folder} holds a run: resume=True goes on with it")
    if goes_on and trainer.seed is None:
        raise UsageError("the trainer was resumed: fit goes on with a run by Trainer(source, seed=...) and resume=True")
    log = _Log(folder, trainer, tuple(callbacks), sys.stderr.isatty() if progress is None else progress)
    run = _Run(trainer, train, valid, folder, metric, log, given)
    with _locked(folder if is_first(trainer) else None), run.listening():
        if folder is not None and (why := trainer._no_adapter()) is not None:
            warnings.warn(f"{folder}: there will be no folder adapter: {why}", CompileWarning, stacklevel=4)
        if goes_on:
            run.take_up()
        elif folder is not None:  # a program that was killed before its first checkpoint left lines of steps that are gone
            log.take_up()
        run.run()
    if log.progress:
        sys.stderr.write("\r\033[K")
    best = max(run.validated(), key=lambda record: _judging.rating(record, run.best), default=None)
    return Fit(best, log.history, max((r["seconds"] for r in log.history), default=0.0), run.skipped, run.stopped, folder)
