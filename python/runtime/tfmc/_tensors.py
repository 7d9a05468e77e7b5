"""Safetensors files of this package and its commands: arrays in, arrays out.

For files that were written here; the compiler reads those of others and says what is wrong with them.
"""
import json

import numpy as np

SAVED = {"float32": "F32", "int32": "I32", "int64": "I64", "bool": "BOOL"}
READ = {saved: dtype for dtype, saved in SAVED.items()}


def write_tensors(path, tensors, metadata=None):
    header, at = ({"__metadata__": metadata} if metadata else {}), 0
    for name, array in tensors.items():
        header[name] = {"dtype": SAVED[array.dtype.name], "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).data if array.size else b"")


def read_tensors(path):
    data = np.memmap(path, np.uint8, "r")
    n = 8 + int.from_bytes(bytes(data[:8]), "little")
    found = {}
    for name, info in json.loads(bytes(data[8:n])).items():
        if name != "__metadata__":
            begin, end = info["data_offsets"]
            found[name] = np.frombuffer(bytes(data[n + begin:n + end]), READ[info["dtype"]]).reshape(info["shape"])
    return found
