"""Trainer.fit: a run over items, as `tfmc train` does it, in a process of its own.

In: a trainer, items (_items.py), options of the command under its names. Out: the folder of the run, which is the
command's to the byte, and the trainer as the run ended. The command is stopped by signals only, so that it ends with a
checkpoint; if this process is killed, it stops likewise. Refused: a trainer that has done steps already. Batches
of a program, such as a DataLoader's, are _fit_batches.py's.
"""
import contextlib
import ctypes
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
import warnings

from . import _errors, _find, _fit_batches, _items, _judging, _lora, _options, _progress, _source, _tensors
from ._errors import EnvError, InputError, UsageError
from ._model import CompileWarning
from ._trainer import Fit, newest_checkpoint

LOOK = 0.05  # seconds between two looks at a run


# option of fit -> option of the command
OPTIONS = {"epochs": "epochs", "steps": "steps", "batch_items": "batch-items", "batch_tokens": "batch-tokens",
           "part_tokens": "part-tokens", "pool": "pool", "valid_every": "valid-every", "save_every": "save-every",
           "log_every": "log-every", "keep": "keep", "patience": "early-stopping", "memory": "memory",
           "empty_batches": "empty-batches", "recompute": "recompute", "order": "order", "best": "best"}


class _Scores:
    """metric=: the command asks a shell for a score, which this process computes."""

    def __init__(self, folder, trainer, metric, best):
        self.asked, self.answers, self.trainer, self.metric = folder / "asked", folder / "answers", trainer, metric
        self.best, self.numbers = best, {}  # numbers: step -> what the metric gave
        os.mkfifo(self.asked)
        os.mkfifo(self.answers)
        # Opened for both, so that neither waits for a shell that may have ended.
        self.file, self.out = (os.open(path, os.O_RDWR | os.O_NONBLOCK) for path in (self.asked, self.answers))
        self.text = b""

    def command(self):
        asked, answers = (shlex.quote(str(path)) for path in (self.asked, self.answers))
        # No program of PATH, and no echo, which may take a backslash in a path for more than that.
        return f"""printf '%s\\n' "$TFM_STEP $TFM_WEIGHTS" > {asked} && read -r answer < {answers} && printf '%s\\n' "$answer\""""

    def look(self):
        """Answers a question, if there is one."""
        try:
            self.text += os.read(self.file, 1 << 16)
        except BlockingIOError:
            return
        if not self.text.endswith(b"\n"):
            return
        step, _, path = os.fsdecode(self.text[:-1]).partition(" ")
        answer, self.text = "", b""
        try:
            for name, array in _tensors.read_tensors(path).items():
                self.trainer._set(name, array)
            found = self.numbers[int(step)] = _judging.scores_of(self.metric, self.trainer, self.best)
            is_apart = _judging.is_of_metric(self.trainer, self.best)
            answer = repr(_judging.rating(found, self.best) if is_apart else found.get("score", next(iter(found.values()))))
        finally:
            os.write(self.out, f"{answer}\n".encode("ascii"))

    def close(self):
        os.close(self.file)
        os.close(self.out)


def _die_with_parent():
    """What the child does before it is the command: its parent's death is a signal to stop, with a checkpoint."""
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def ask():
        libc.prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os._exit(1)
    return ask


def _records(path, seen):
    """The lines of the log from line `seen` on."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().split("\n")[:-1]
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines[seen:]]


class _Run:
    def __init__(self, arguments, folder, callbacks, scores, progress, trainer):
        self.folder, self.callbacks, self.scores, self.progress, self.trainer = folder, callbacks, scores, progress, trainer
        self.numbers = scores.numbers if scores else {}
        self.log = folder / "log.jsonl"
        self.seen, self.shown, self.stopped, self.fault = len(_records(self.log, 0)), False, None, None
        self.messages = tempfile.TemporaryFile()
        self.output = tempfile.TemporaryFile()
        self.child = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=self.output, stderr=self.messages,
                                      start_new_session=True, preexec_fn=_die_with_parent())

    def records(self, seen):
        """The lines of the log from line `seen` on, with what a metric gave."""
        found = _records(self.log, seen)
        for record in found:
            if record["kind"] == "valid":
                record.update(self.numbers.get(record["step"], {}))
        return found

    def _stop(self, why):
        """The command ends after its step, with a checkpoint."""
        if self.stopped is None:
            self.stopped = why
            self.child.send_signal(signal.SIGINT)

    def _tell(self):
        for record in self.records(self.seen):
            self.seen += 1
            if self.progress:
                _progress.show(record)
                self.shown = True
            for callback in self.callbacks:
                if callback(_judging.Event(record, self.trainer)) is True:
                    self._stop("callback")

    def _look(self):
        try:
            if self.scores:
                self.scores.look()
            self._tell()
        except Exception as error:  # of a callback or a metric: raised when the run has ended
            self.fault, self.callbacks, self.scores = error, (), None
            self._stop("fault")

    def wait(self):
        """The exit code of the command. A second interruption kills it."""
        while True:
            try:
                try:
                    code = self.child.wait(LOOK)
                except subprocess.TimeoutExpired:
                    self._look()
                    continue
                self._look()
                break
            except KeyboardInterrupt:
                if self.stopped == "signal":
                    self.child.kill()
                    self.child.wait()
                    raise
                self._stop("signal")
        if self.shown:
            sys.stderr.write("\r\033[K")
        return code

    def said(self):
        self.messages.seek(0)
        return self.messages.read().decode(errors="replace").splitlines()


def _arguments(trainer, folder, given, flags):
    options = trainer._made
    path, text = options["path"], options["text"]
    if text is not None:
        path = folder / "model.tfm"
        path.write_text(text, encoding="utf-8")
    arguments = [_find.compiler(options["compiler"]), "train", "--diagnostics=json", f"--seed={trainer.seed}",
                 f"--shards={options['shards']}"]
    arguments += [f"-march={options['march']}"] if options["march"] else []
    arguments += [f"--threads={trainer._pool.threads}"] if trainer._pool.threads else []
    for definition in _source.definitions(options["config"]):
        arguments += ["-D", definition]
    arguments += [f"--set={setting}" for setting in options["settings"]]
    arguments += [f"--{OPTIONS[name]}={_options.argument(name, value)}" for name, value in given.items() if value is not None]
    return [*arguments, *flags, "--", os.fspath(path)]


def data_files(trainer, data, path, pad, word):
    """The files of the items."""
    if isinstance(data, (list, tuple)) and data and all(map(_items.is_path, data)):
        return [os.fspath(_options.path(word, file)) for file in data]
    if _items.is_path(data):
        return [os.fspath(_options.path(word, data))]
    if not _items.has_items(data):
        raise UsageError(f"{word} is of type {type(data).__name__}: fit takes items (columns, a list of rows, a data set with a "
                         "length, files), or batches for both train and valid, such as a DataLoader's")
    return [os.fspath(_items.write_items(path, data, trainer.inputs, pad))]


def _is_begun(out):
    return newest_checkpoint(out) is not None


def _check_folder(out, given, are_batches, is_first):
    # Of a group the first rank writes: the others need no folder. Without one, a run over items still says when it has saved,
    # and the trainer is as it was then after an error.
    for name in ("keep", "save_every") if are_batches else ("keep",):
        if out is None and is_first and given.get(name) is not None:
            raise UsageError(f"{name}= is for the checkpoints in out=, which is not given")
    if out is not None:
        _options.path("out", out)


def _check(resume, metric, callbacks, progress, skip_long):
    """What both kinds of data have."""
    for name, value in (("resume", resume), ("skip_long", skip_long), ("progress", False if progress is None else progress)):
        _options.flag(name, value)
    _options.function("metric", metric)
    if not isinstance(callbacks, (list, tuple)):
        raise UsageError(f"callbacks is of type {type(callbacks).__name__}, not a list of functions")
    for callback in callbacks:
        if not callable(callback):
            raise UsageError(f"callbacks holds {callback!r:.60}, which is no function")


def fit(trainer, train, valid, out, resume, metric, callbacks, progress, pad, skip_long, given):
    _check_folder(out, given, _fit_batches.has_batches(train), _fit_batches.is_first(trainer))
    _check(resume, metric, callbacks, progress, skip_long)
    if _fit_batches.has_batches(train):
        if pad is not None or skip_long:
            raise UsageError("pad and skip_long are for items: batches of a program are as they are")
        return _fit_batches.fit(trainer, train, valid, out, resume, metric, callbacks, progress, given)
    if trainer._group is not None:
        raise UsageError("fit over items is a run of one process: give a trainer with group= batches, such as a DataLoader's, all of "
                         "them on each rank")
    if trainer._made is None:
        raise UsageError("the trainer is of a compiled file: fit is for texts")
    if trainer.seed is None:
        raise UsageError("the trainer was resumed: fit goes on with a run by Trainer(source, seed=...) and resume=True")
    _judging.refuse_average(given)
    unknown = [name for name in given if name not in OPTIONS]
    if unknown:
        raise UsageError(f"fit has no option {unknown[0]!r}; there are {', '.join(OPTIONS)}")
    if resume and out is None:
        raise UsageError("resume=True goes on with the run in out=, which is not given")
    if valid is None and (metric is not None or given.get("patience")):
        raise UsageError("metric and patience are for a run with valid=")
    if None not in (trainer.memory, given.get("memory")) and given["memory"] != trainer.memory:
        raise UsageError(f"memory={given['memory']!r:.40}, but the trainer's is {trainer.memory}: one of them is enough")
    best = given.get("best")
    _judging.check(trainer, best, valid, metric)
    judged_by = "score" if _judging.is_of_metric(trainer, best) else best
    given = {"memory": trainer.memory, "recompute": trainer._made["recompute"],
             **{name: value for name, value in given.items() if value is not None}, "best": judged_by}
    with tempfile.TemporaryDirectory(prefix="tfmc-") as made:
        made = pathlib.Path(made)
        folder = made / "run" if out is None else pathlib.Path(out)
        goes_on = resume and _is_begun(folder)
        if trainer.steps and not goes_on:
            raise UsageError(f"the trainer has done {trainer.steps} steps: fit begins with a new one, or goes on with the run in "
                             "out= (resume=True)")
        flags = [f"--data={file}" for file in data_files(trainer, train, made / "train.safetensors", pad, "train")]
        if valid is not None:
            files = data_files(trainer, valid, made / "valid.safetensors", pad, "valid")
            if len(files) != 1:
                raise UsageError("valid= is one file")
            flags.append(f"--valid={files[0]}")
        if goes_on:
            flags.append("--resume")
        if not goes_on or len(trainer.trained) < len(trainer._paths):
            _fit_batches.write_weights(trainer, made / "begin.safetensors")  # the base, too, of a run that goes on
            flags.append(f"--weights={made / 'begin.safetensors'}")
        flags += [f"--out={folder}", *(["--skip-long"] if skip_long else [])]
        scores = _Scores(made, trainer, metric, best) if metric is not None else None
        with contextlib.closing(scores) if scores else contextlib.nullcontext():
            flags += [f"--valid-command={scores.command()}"] if scores else []
            progress = sys.stderr.isatty() if progress is None else progress
            run = _Run(_arguments(trainer, made, given, flags), folder, tuple(callbacks), scores, progress, trainer)
            _wait(run)
        return _end(run, out, given)


def _wait(run):
    try:
        run.code = run.wait()
    finally:
        if run.child.poll() is None:  # an exception of a signal's handler
            run.child.send_signal(signal.SIGTERM)
            run.child.wait()


def _end(run, out, given):
    """The trainer as the run ended, also after an error."""
    trainer, folder, history, judged_by = run.trainer, run.folder, run.records(0), given["best"]
    if _is_begun(folder):
        newest = [r for r in history if r["kind"] == "checkpoint"]
        _lora.name_base(folder / "adapter", trainer.source)
        state = newest_checkpoint(folder) / "state.tfmt"
        trainer._take(state, newest[-1]["epoch"] if newest else 0)
    if run.fault is not None:
        raise run.fault
    messages = _errors.diagnostics(run.said())
    # Before its first step and behind its last one the command does not listen: the signal itself ends it.
    ended_by = (128 + signal.SIGINT, 128 + signal.SIGTERM, -signal.SIGINT, -signal.SIGTERM)
    stopped = run.stopped if run.code in ended_by else None
    if run.code and stopped is None:
        raise _failed(run, messages, trainer, out is not None)
    for message in messages:
        if trainer._on_message:
            trainer._on_message(message)
        else:
            warnings.warn(_errors.render([message]), CompileWarning, stacklevel=4)
    valid = [r for r in history if r["kind"] == "valid"]
    best = max(valid, key=lambda record: _judging.rating(record, judged_by or "-loss"), default=None)
    skipped = sum(r.get("left_out", 0) for r in history)
    seconds = max((r["seconds"] for r in history), default=0.0)
    why = stopped or _why(valid, given.get("patience"), judged_by)
    return Fit(best, history, seconds, skipped, why, None if out is None else folder)


def _why(valid, patience, best):
    """Whether the run ended because its last validations were no better."""
    judged = [_judging.rating(record, best) for record in valid]
    stale = len(judged) - 1 - judged.index(max(judged)) if judged else 0
    return "patience" if patience and stale >= patience else "end"


def _failed(run, messages, trainer, is_kept):
    errors = [m for m in messages if m.severity == "error"]
    text = _errors.render(errors) if errors else f"tfmc train ended with {run.code}: " + "\n".join(run.said()[-5:])
    kind = _errors.Diverged if "diverged" in text else {**_find.EXITS, 1: InputError}.get(run.code, EnvError)
    error = kind(text, place=errors[0].place if errors else None, diagnostics=messages)
    if kind is _errors.Diverged:
        error.step = trainer.steps + 1
        notes = [note.text for message in errors for note in message.notes]
        error.first = next((text for text in notes if "not finite" in text), None)
        error.checkpoint = newest_checkpoint(run.folder) if is_kept else None
    return error
