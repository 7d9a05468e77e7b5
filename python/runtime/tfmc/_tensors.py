"""Safetensors files of this package and its commands: arrays in, arrays out.

For files that were written here; the compiler reads those of others and says what is wrong with them.
"""
import json

import numpy as np

NARROW = {"bf16": "BF16", "f16": "F16"}
SAVED = {"float32": "F32", "int32": "I32", "int64": "I64", "bool": "BOOL"}
READ = {saved: dtype for dtype, saved in SAVED.items()}


def narrow(array, form):
    """An f32 array that bf16 or f16 holds exactly, in its bits."""
    if form == "f16":
        return array.astype(np.float16).view(np.uint16)
    return (np.ascontiguousarray(array).view(np.uint32) >> 16).astype(np.uint16)


def write_tensors(path, tensors, metadata=None, forms={}):
    """forms: of arrays that are bits (narrow), by name."""
    write_parts(path, {name: (NARROW[forms[name]] if name in forms else SAVED[array.dtype.name], array.shape, array)
                       for name, array in tensors.items()}, metadata)


def write_parts(path, parts, metadata=None):
    """parts: name -> (type, shape, array), as `mapped` has them."""
    header, at = ({"__metadata__": metadata} if metadata else {}), 0
    for name, (dtype, shape, array) in parts.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, _, array in parts.values():
            file.write(np.ascontiguousarray(array).data if array.size else b"")


def _widened(data, dtype):
    if dtype == "BF16":
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
    if dtype == "F16":
        return np.frombuffer(data, np.float16).astype(np.float32)
    return np.frombuffer(data, READ[dtype])


def mapped(path):
    """name -> (type, shape, bytes) of each tensor, which stays in the file."""
    data = np.memmap(path, np.uint8, "r")
    n = 8 + int.from_bytes(bytes(data[:8]), "little")
    found = {}
    for name, info in json.loads(bytes(data[8:n])).items():
        if name != "__metadata__":
            begin, end = info["data_offsets"]
            found[name] = info["dtype"], tuple(info["shape"]), data[n + begin:n + end]
    return found


def read_tensors(path):
    return {name: _widened(bytes(data), dtype).reshape(shape) for name, (dtype, shape, data) in mapped(path).items()}
