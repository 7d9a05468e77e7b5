"""What does a part: a model, opened once, that reads the part's rows and writes its output.

Refused: models of another kind than the task's, compiled models without a tokenizer's folder.
"""
import collections
import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import tempfile
import time

import numpy as np

from .. import _core
from .._commands import from_pretrained
from .._errors import EnvError, UsageError
from .._model import load
from . import _parts

# What a worker is made of. Those of DECIDE change the bytes of the output, and calls of one job have them in common.
Settings = collections.namedtuple(
    "Settings", "task model tokenizer column keep format part_bytes truncate options batch_tokens threads")
DECIDE = ("task", "column", "keep", "format", "part_bytes", "truncate", "options")
COLUMNS = {"embed": "embedding", "translate": "translation"}

Counts = collections.namedtuple("Counts", "rows tokens errors seconds")


# ---- the model ----

def _machine():
    """What compiled code depends on: machines that share a home may have other instruction sets."""
    with contextlib.suppress(OSError):
        for line in open("/proc/cpuinfo", encoding="utf-8"):
            if line.startswith("flags"):
                return line
    return ""


def _key(folder):
    """A name for what the folder's model is compiled to here."""
    files = sorted(p for p in folder.rglob("*") if p.suffix in (".json", ".safetensors"))
    facts = [str(folder), _core.version(), _machine(),
             *(f"{p} {p.stat().st_size} {p.stat().st_mtime_ns}" for p in files)]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:32]


def cache_folder():
    """Where models are kept that were compiled from folders: TFMC_CORPUS_CACHE, else in the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    for place in (os.environ.get("TFMC_CORPUS_CACHE") or os.path.join(home, "tfmc", "corpus"),
                  os.path.join(tempfile.gettempdir(), f"tfmc-corpus-{os.getuid()}")):
        with contextlib.suppress(OSError):
            os.makedirs(place, mode=0o700, exist_ok=True)
            if os.access(place, os.W_OK) and os.stat(place).st_uid == os.getuid():  # code of others is not run
                return pathlib.Path(place)
    raise EnvError("there is no folder for compiled models that can be written; TFMC_CORPUS_CACHE names one")


def _open_compiled(folder, threads):
    """The model of a checkpoint's folder, compiled by the first who asks on this machine; the others wait for it."""
    folder = pathlib.Path(folder).resolve()
    path = cache_folder() / f"{_key(folder)}.tfmm"
    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with contextlib.suppress(EnvError):  # there is none yet, or one of another build, or half of one
            return load(path, threads=threads)
        with from_pretrained(folder) as model:
            model.save(path)
    return load(path, threads=threads)


def open_model(path, tokenizer, threads):
    """(model, folder of the tokenizer) of a checkpoint's folder, or of a compiled model with the folder beside it."""
    path = pathlib.Path(path)
    if path.is_dir():
        return _open_compiled(path, threads), tokenizer or path
    if not path.exists():
        raise EnvError(f"{path}: there is no such folder or file; the model is a checkpoint's folder, as "
                       "save_pretrained or SentenceTransformer(NAME).save(FOLDER) writes it, or a .tfmm file")
    if tokenizer is None:
        raise UsageError(f"{path}: a compiled model does not know its checkpoint: give tokenizer=, the folder of "
                         "tokenizer.json")
    return load(path, threads=threads), tokenizer


def limit_tokenizers(threads):
    """Tokenizers of this process work with the threads of the model; it must be said before the first one works."""
    os.environ.setdefault("RAYON_NUM_THREADS", str(threads))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true" if threads > 1 else "false")


# ---- rows ----

PROBES = ["A probe.", "It stands for all texts: 0123456789 \u00e4\u00f6\u00fc \u4e2d\u6587.", "long " * 2000]


class Worker:
    """Does parts, one at a time. It needs nothing of the engine that calls it."""

    def __init__(self, settings):
        from .. import text  # needs tokenizers
        self.settings = settings
        model, folder = open_model(settings.model, settings.tokenizer, settings.threads)
        given = {} if settings.batch_tokens is None else {"batch_tokens": settings.batch_tokens}
        kind = text.Embedder if settings.task == "embed" else text.Translator
        self.maker = kind(model, folder=folder, **given)
        self.suffix = ".parquet" if settings.format == "parquet" else ".jsonl"

    def probe(self):
        """A name for what this model computes here: the result of a few texts. Equal bits give equal names."""
        count = 3 if self.settings.task == "embed" else 2
        options = self.settings.options if count == 3 else {**self.settings.options, "max_new_tokens": 8}
        values, _, _ = self._make(PROBES[:count], {}, True, options)
        data = values.tobytes() if count == 3 else json.dumps(values).encode()
        return hashlib.sha256(data).hexdigest()[:32]

    def run(self, part, output):
        """Reads a part and writes its file to the folder `output`, its rows without a result to _job/errors there."""
        start, output, settings = time.monotonic(), pathlib.Path(output), self.settings
        rows = _parts.read(part, settings.column, settings.keep)
        values, reasons, tokens = self._make(rows.texts, rows.reasons, settings.truncate, settings.options)
        if reasons:
            errors = output / "_job" / "errors"
            errors.mkdir(exist_ok=True)
            with _parts.whole(errors / _parts.output_name(part, ".jsonl")) as file:
                for row in sorted(reasons):
                    record = {"part": part.number, "row": row, "path": part.path, "place": part.place,
                              "reason": reasons[row]}
                    file.write(json.dumps(record).encode() + b"\n")
        _parts.write(output / _parts.output_name(part, self.suffix), rows, COLUMNS[settings.task], values, reasons)
        return Counts(len(rows.texts), tokens, len(reasons), time.monotonic() - start)

    def _make(self, texts, reasons, truncate, options):
        """(values of all rows, reasons of those without one, tokens)"""
        reasons = dict(reasons)
        for row, text in enumerate(texts):
            if row not in reasons and (why := _why_not(text)):
                reasons[row] = why
        good = [row for row in range(len(texts)) if row not in reasons]
        made, why, tokens = self._of_texts([texts[row] for row in good], truncate, options)
        for place, reason in why.items():
            reasons[good[place]] = reason
        if isinstance(made, np.ndarray):
            values = np.zeros((len(texts), made.shape[1]), np.float32)
            values[good] = made
        else:
            values = [None] * len(texts)
            for place, row in enumerate(good):
                values[row] = made[place]
        return values, reasons, tokens

    def _of_texts(self, texts, truncate, options):
        """(values, place -> why there is none, tokens) of texts that are strings"""
        each = self.maker.encode_each if self.settings.task == "embed" else self.maker.translate_each
        return each(texts, truncate=truncate, **options)


def _why_not(text):
    """Why a row's value is no text that can be computed; None: it is one."""
    if text is None:
        return "the text is null"
    if not isinstance(text, str):
        return f"the text is of type {type(text).__name__}"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "the text has half of a surrogate pair"
    return None


def check(settings):
    """Wrong settings are refused before a part is begun."""
    if settings.task not in COLUMNS:
        raise UsageError(f"the task is one of {', '.join(COLUMNS)}, not {settings.task!r}")
    if settings.format not in ("parquet", "jsonl"):
        raise UsageError(f"the format is parquet or jsonl, not {settings.format!r}")
    if COLUMNS[settings.task] in settings.keep:
        raise UsageError(f"the column \"{COLUMNS[settings.task]}\" is the one that is made; it cannot be kept too")
    batch_tokens = 1 if settings.batch_tokens is None else settings.batch_tokens
    if min(settings.part_bytes, settings.threads, batch_tokens) < 1:
        raise UsageError("part_bytes, threads and batch_tokens are 1 or more")
