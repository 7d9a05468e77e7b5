"""Items to train on: data of Python as the safetensors files that `tfmc train` reads.

In: columns (a dict of arrays, or of lists of rows; a datasets.Dataset), rows (a list of dicts or of tuples, a Dataset of
torch with a length), or the paths of files. Out: a file with the tensors, and lengths where items differ. Refused: missing
and unknown columns, columns of different length, rows of different kinds; what is in them is checked by the command.
"""
import collections.abc
import os
import numbers
import pathlib

import numpy as np

from . import _arrays, _nested, _options
from ._errors import InputError, UsageError
from ._tensors import write_tensors


def is_path(data):
    return isinstance(data, (str, os.PathLike))


def has_items(data):
    """Whether these are items that fit() puts into batches itself; else they are batches that an iterator gives."""
    if is_path(data) or isinstance(data, (collections.abc.Mapping, list, tuple)) or hasattr(data, "column_names"):
        return True
    return hasattr(data, "__getitem__") and hasattr(data, "__len__") and not hasattr(data, "batch_sampler")


def _columns(data, inputs):
    """name -> the values of all items."""
    if isinstance(data, collections.abc.Mapping):
        return dict(_nested.flat(data, inputs))
    if hasattr(data, "column_names"):  # datasets.Dataset
        if unknown := [name for name in data.column_names if name not in inputs]:
            raise InputError(f'the data set has a column "{unknown[0]}", which is no input of the objective: give fit '
                             f'data.select_columns([{", ".join(map(repr, inputs))}])')
        return {name: data[name] for name in data.column_names}
    if not len(data):
        raise InputError("there are no items to train on")
    rows = [_nested.flat(row, inputs) if isinstance(row, collections.abc.Mapping) else row for row in (data[i] for i in range(len(data)))]
    first = rows[0]
    if isinstance(first, collections.abc.Mapping):
        for number, row in enumerate(rows):
            if not isinstance(row, collections.abc.Mapping) or set(row) != set(first):
                raise InputError(f"item {number} has other names than item 0, {', '.join(map(str, first))}")
        return {name: [row[name] for row in rows] for name in first}
    for number, row in enumerate(rows):
        if not isinstance(row, (tuple, list)) or len(row) != len(inputs):
            raise InputError(f"item {number} is of type {type(row).__name__}, not a dict, nor a tuple with a value for each of "
                             f"{', '.join(inputs)}")
    return {name: [row[i] for row in rows] for i, name in enumerate(inputs)}


def _array(value, kind, name, number=None):
    try:
        array = _arrays.convert(value, kind.dtype, name, str(kind))
    except (InputError, UsageError) as error:
        raise error if number is None else type(error)(f"item {number}: {error}", reason=error.reason) from None
    return array


def _stacked(values, kind, name):
    """A column whose items are of one size."""
    if isinstance(values, np.ndarray) or hasattr(values, "__dlpack__"):
        return {name: _array(values, kind, name)}
    rows = [_array(value, kind, name, number) for number, value in enumerate(values)]
    for number, row in enumerate(rows):
        if row.shape != rows[0].shape:
            raise InputError(f'item {number} of "{name}" is {list(row.shape)}, item 0 is {list(rows[0].shape)}', reason="shape")
    return {name: np.stack(rows)}


def _joined(values, kind, name):
    """A column whose items have lengths of their own: one behind the other."""
    rows = [_array(value, kind, name, number) for number, value in enumerate(values)]
    rank = len(kind.shape) - 1
    for number, row in enumerate(rows):
        if row.ndim != rank or row.shape[1:] != rows[0].shape[1:]:
            raise InputError(f'item {number} of "{name}" is {list(row.shape)}; the input is {kind}, of items one behind the other',
                             reason="shape")
    dtype = np.result_type(*{row.dtype for row in rows})
    return {name: np.concatenate([row.astype(dtype, copy=False) for row in rows]),
            f"{name}.lengths": np.array([len(row) for row in rows], np.int64)}


def write_items(path, data, inputs, pad=None):
    """Writes the items for the objective's inputs (name -> TensorType)."""
    pad = _options.mapping("pad", {} if pad is None else pad, "a dict of numbers by the inputs' names")
    columns = _columns(data, inputs)
    missing = [name for name in inputs if name not in columns]
    if missing:
        raise InputError(f'the data have no column "{missing[0]}"; the inputs of the objective are {", ".join(inputs)}')
    unknown = [name for name in (*columns, *pad) if name not in inputs]
    if unknown:
        raise InputError(f'the objective has no input "{unknown[0]}"; its inputs are {", ".join(inputs)}')
    for name, value in pad.items():
        if isinstance(value, bool) or not isinstance(value, numbers.Real):  # numpy's too
            raise UsageError(f'pad has {value!r} for "{name}", which is no number')
    for name in inputs:
        if not hasattr(columns[name], "__len__"):
            raise UsageError(f'the column "{name}" is of type {type(columns[name]).__name__}, not an array nor a list of rows')
    counts = {name: len(columns[name]) for name in inputs}
    if len(set(counts.values())) > 1:
        raise InputError("the columns have different numbers of items: "
                         + ", ".join(f"{n} of {name}" for name, n in counts.items()), reason="shape")
    if not next(iter(counts.values()), 1):
        raise InputError("there are no items to train on")
    tensors = {}
    for name, kind in inputs.items():
        varies = len(kind.shape) > 1 and isinstance(kind.shape[1], str)
        tensors |= (_joined if varies else _stacked)(columns[name], kind, name)
    write_tensors(path, tensors, {f"{name}.pad": str(value) for name, value in pad.items()})
    return pathlib.Path(path)
