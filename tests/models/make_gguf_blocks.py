#!/usr/bin/env python3
"""usage: make_gguf_blocks.py gguf_blocks.json

Writes two blocks of each block type of GGUF that is read, of random bytes with scales of several sizes, and the bits of the f32
numbers that the Python package gguf makes of them. Needs gguf and numpy.
"""
import json
import sys

import gguf
import numpy as np

HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2],
          "Q5_K": [0, 2], "Q6_K": [208]}  # where a block has numbers of f16


def main(path):
    made, random = {}, np.random.default_rng(11)
    for name, places in HALVES.items():
        kind = gguf.GGMLQuantizationType[name]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        rows = random.integers(0, 256, (2, size), dtype=np.uint8)
        for place in places:
            rows[:, place:place + 2] = (random.standard_normal(2) * [1e-3, 30]).astype(np.float16)[:, None].view(np.uint8)
        values = gguf.quants.dequantize(rows, kind).astype(np.float32)
        made[name] = {"number": int(kind), "elements": elements, "bytes": rows.tobytes().hex(), "values": values.tobytes().hex()}
    with open(path, "w") as file:
        json.dump(made, file, indent=0)
        file.write("\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
