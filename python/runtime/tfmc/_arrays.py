"""Arrays in: what the extension does not read by itself becomes an array of numpy's that it can read."""
import sys

import numpy as np

from ._errors import InputError, UsageError

F32, I32, BOOL = np.dtype(np.float32), np.dtype(np.int32), np.dtype(np.bool_)
I64, U8 = np.dtype(np.int64), np.dtype(np.uint8)
TYPES = {"f32": F32, "i32": I32, "bool": BOOL}
PLAIN = (list, tuple, int, float, bool)


def _array_of(value, name):
    """Anything with numbers as an array, in a type of its own choice."""
    if isinstance(value, (np.ndarray, np.generic) + PLAIN):
        return np.asarray(value)
    try:
        return np.asarray(memoryview(value))
    except TypeError:
        pass
    if hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    raise UsageError(f'input "{name}" is of type {type(value).__name__}, not an array')


def convert(value, dtype, name, shape):
    """`value` as an array in C order of the type `dtype`; for "i32" also i64, whose numbers the caller checks."""
    wanted = TYPES[dtype]
    try:
        array = _array_of(value, name)
    except (UsageError, MemoryError):
        raise
    except Exception as error:  # whatever the exporter raises
        raise InputError(f'input "{name}" cannot be read as an array: {error}', reason="type") from error
    given = array.dtype
    native = given.newbyteorder("=")
    if isinstance(value, PLAIN):  # a list has no type: its numbers only have to be of the right kind
        kinds = {"f32": "fiu", "i32": "iu", "bool": "b"}[dtype]
        if given.kind in kinds or array.size == 0:
            native = I64 if dtype == "i32" else wanted
            given = native
    if native != wanted and not (dtype == "i32" and native == I64):
        cure = f"x.astype(np.{wanted.name})" if given.kind in "fiub" else "numbers"
        raise InputError(f'input "{name}" is {given.name}, expected {shape}: give {cure}', reason="type")
    return np.asarray(array, dtype=native, order="C")


STORED = {"float32": "F32", "float16": "F16", "float64": "F64", "int64": "I64", "int32": "I32", "uint8": "U8", "bool": "BOOL"}


def weight(name, value):
    """(name, type as in safetensors, dims, buffer) of a weight that is given in memory."""
    if not isinstance(name, str):
        raise UsageError(f"weights= names {name!r:.60}, which is no text")
    kind = getattr(value, "dtype", None)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        value = value.detach().cpu().contiguous()
        kind = "bfloat16" if value.dtype == torch.bfloat16 else None
        value = (value.view(torch.int16) if kind else value).numpy()
    array = np.asarray(value, order="C")
    if str(kind) == "bfloat16":  # numpy has no such type: the bits are enough
        return name.encode(), b"BF16", array.shape, array.view(np.uint16) if array.ndim else array.reshape(1).view(np.uint16)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype.name not in STORED:
        raise InputError(f'weight "{name}" is {array.dtype.name}; weights are float32, float16 or bfloat16', reason="type")
    return name.encode(), STORED[array.dtype.name].encode(), array.shape, array
