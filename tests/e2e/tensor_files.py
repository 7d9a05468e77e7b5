"""safetensors files for the tests, with the standard library alone."""
import array
import json
import struct

KINDS = {"F32": "f", "F64": "d", "I32": "i", "I64": "q", "U8": "B", "BOOL": "B", "BF16": "H", "F16": "H"}


def write_tensors(path, tensors, metadata=None):
    """tensors: {name: (dtype, shape, numbers)}; the bytes of a tensor may stand in place of its numbers."""
    header, data = {"__metadata__": metadata} if metadata else {}, b""
    for name, (dtype, shape, content) in tensors.items():
        content = content if isinstance(content, bytes) else array.array(KINDS[dtype], content).tobytes()
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_tensors(path):
    """{name: (dtype, shape, numbers)}; the numbers are an array.array, those of 16 bits are their bits."""
    content = path.read_bytes()
    begin = 8 + struct.unpack("<Q", content[:8])[0]
    tensors = {}
    for name, entry in json.loads(content[8:begin]).items():
        if name != "__metadata__":
            first, end = entry["data_offsets"]
            numbers = array.array(KINDS[entry["dtype"]], content[begin + first:begin + end])
            tensors[name] = entry["dtype"], entry["shape"], numbers
    return tensors
