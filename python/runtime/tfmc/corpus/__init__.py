"""Vectors and translations of a corpus: parquet, JSON lines or text in, files of the same parts out.

    tfmc.corpus.embed("reviews.parquet", "vectors", model="all-MiniLM-L6-v2", column="text", keep=["id"], workers=2)
    tfmc.corpus.translate("lines/", "german", model="opus-mt-en-de", num_beams=4)

    python -m tfmc.corpus embed reviews.parquet vectors --model all-MiniLM-L6-v2 --column text --keep id --workers 2

A part of the corpus is done when its file is there; each is written whole or not at all. So the same call goes on where
an earlier one ended, however it ended, and calls on several machines share one output. docs/corpus.md has more.
"""
import os

from .._errors import UsageError
from ._job import Job, Summary
from ._parts import PART_BYTES, Part, parts
from ._worker import Counts, Settings, Worker, check

__all__ = ["Counts", "PART_BYTES", "Part", "Settings", "Summary", "Worker", "embed", "parts", "translate"]


def _share(part):
    """(I, N) of "I/N", counted from 0."""
    first, slash, count = part.partition("/")
    if not (slash and first.isdecimal() and count.isdecimal() and int(first) < int(count)):
        raise UsageError(f"part is \"I/N\" with I from 0 to N - 1, not {part!r}")
    return int(first), int(count)


def _run(task, inputs, output, model, tokenizer, column, keep, format, part_bytes, truncate, options, batch_tokens,
         threads, engine, workers, part, retries, max_errors, progress):
    from ._engines import ENGINES
    from ._parts import paths
    found = paths(inputs)
    if format is None:
        format = "parquet" if all(path.endswith(".parquet") for path in found) else "jsonl"
    keep = (keep,) if isinstance(keep, str) else tuple(keep)
    settings = Settings(task, os.path.abspath(model), None if tokenizer is None else os.path.abspath(tokenizer), column,
                        keep, format, part_bytes, truncate, options, batch_tokens, threads)
    check(settings)
    share = None if part is None else _share(part)
    if engine is None:
        engine = "processes" if share is None or (workers or 1) > 1 else "here"
    if engine not in ENGINES:
        raise UsageError(f"the engine is one of {', '.join(ENGINES)}, not {engine!r}")
    if workers is None:
        workers = 1 if engine == "here" else max(1, len(os.sched_getaffinity(0)) // threads)
    if workers < 1:
        raise UsageError("workers is 1 or more")
    if retries < 0 or (max_errors is not None and max_errors < 0):
        raise UsageError("retries and max_errors are 0 or more")
    return Job(settings, found, output, share, retries, max_errors, progress).run(engine, workers)


def embed(inputs, output, *, model, tokenizer=None, column="text", keep=(), prompt=None, prompt_name=None,
          normalize=None, truncate=True, format=None, part_bytes=PART_BYTES, batch_tokens=None, threads=1, engine=None,
          workers=None, part=None, retries=2, max_errors=None, progress=True):
    """Writes the vectors of a column's texts to the folder `output`, with the columns of `keep`; returns a Summary.

    inputs: files, folders or patterns. model: a sentence encoder's folder, or a .tfmm file with tokenizer=, the folder.
    engine: "processes" (of this machine), "ray", or "here". part="I/N": every N-th part from the I-th on, for calls on
    several machines. A part that fails is tried again `retries` times. Rows that have no vector are null in the output,
    and _job/errors.jsonl says why; more than max_errors of them end the job.
    """
    given = {"prompt": prompt, "prompt_name": prompt_name, "normalize": normalize}
    options = {name: value for name, value in given.items() if value is not None}
    return _run("embed", inputs, output, model, tokenizer, column, keep, format, part_bytes, truncate, options,
                batch_tokens, threads, engine, workers, part, retries, max_errors, progress)


def translate(inputs, output, *, model, tokenizer=None, column="text", keep=(), target=None, source=None, prompt=None,
              truncate=False, format=None, part_bytes=PART_BYTES, batch_tokens=None, threads=1, engine=None,
              workers=None, part=None, retries=2, max_errors=None, progress=True, **options):
    """The same with translations. More options are those of Translator.translate: num_beams, max_new_tokens."""
    given = {"target": target, "source": source, "prompt": prompt}
    options |= {name: value for name, value in given.items() if value is not None}
    return _run("translate", inputs, output, model, tokenizer, column, keep, format, part_bytes, truncate, options,
                batch_tokens, threads, engine, workers, part, retries, max_errors, progress)
