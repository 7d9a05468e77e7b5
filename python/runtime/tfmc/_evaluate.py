"""Trainer.evaluate on a data set: the results of the objective over all of its items.

In: a trainer; items as fit() takes them, which `tfmc evaluate` puts into batches by their lengths, in a process of its own;
or batches that a program makes, which are parts of one evaluation here. Out: results by name. Items' are rounded to f32.
Refused: what is neither, a trainer of several processes with items, options that are for items.
"""
import collections.abc
import os
import pathlib
import tempfile

from . import _find, _fit, _fit_batches, _options, _source, _tensors
from ._errors import UsageError
from ._trainer import EVALUATE


def is_data(data, batch_items, batch_tokens):
    """Whether this is a data set. A dict is a batch, unless it is said how many of its items make one."""
    if isinstance(data, collections.abc.Mapping):
        return (batch_items, batch_tokens) != (None, None)
    return data is not None


def _of_batches(trainer, data):
    parts = [_fit_batches.row_of(batch, trainer.inputs, f"batch {i} of the data") for i, batch in enumerate(data)]
    if not parts:
        raise UsageError("the data give no batch")
    return trainer._do(EVALUATE, trainer._parts(None, parts, {})).results


def _arguments(trainer, folder, batch_items, batch_tokens):
    made = trainer._made
    arguments = ["evaluate", *([f"-march={made['march']}"] if made["march"] else []),
                 *([f"--threads={trainer._pool.threads}"] if trainer._pool.threads else []),
                 *(f"--set={setting}" for setting in made["settings"])]
    for definition in _source.definitions(made["config"]):
        arguments += ["-D", definition]
    for option, value in (("batch-items", batch_items), ("batch-tokens", batch_tokens)):
        if value is not None:
            arguments.append(f"--{option}={_options.argument(option.replace('-', '_'), value)}")
    return [*arguments, f"--weights={folder / 'weights.safetensors'}", f"--output={folder / 'results.safetensors'}", "--"]


def evaluate(trainer, data, batch_items, batch_tokens, pad):
    if _fit_batches.has_batches(data):
        if (batch_items, batch_tokens, pad) != (None, None, None):
            raise UsageError("batch_items, batch_tokens and pad are for items: batches of a program are as they are")
        return _of_batches(trainer, data)
    if trainer._made is None:
        raise UsageError("the trainer is of a compiled file, which takes batches alone: items are for texts")
    if trainer._group is not None:
        raise UsageError("items are evaluated by one process: give a trainer with group= batches, such as a DataLoader's")
    with tempfile.TemporaryDirectory(prefix="tfmc-") as folder:
        folder, text = pathlib.Path(folder), trainer._made["text"]
        _fit_batches.write_weights(trainer, folder / "weights.safetensors")
        arguments = _arguments(trainer, folder, batch_items, batch_tokens)
        arguments[1:1] = [f"--data={file}" for file in _fit.data_files(trainer, data, folder / "items.safetensors", pad, "data")]
        _find.command([*arguments, _find.TEXT if text is not None else os.fspath(trainer._made["path"])],
                      given=trainer._made["compiler"], text=text, on_message=trainer._on_message)
        found = _tensors.read_tensors(folder / "results.safetensors")
        return {name: float(found[name]) for name in trainer.results}
