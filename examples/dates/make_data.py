#!/usr/bin/env python3
"""usage: make_data.py FOLDER [COUNT]

Writes what `tfmc train` reads: COUNT written dates (512,000) of the years that are not held out, to train.safetensors,
and 500 others of those years, to valid.safetensors. `src` holds the ids of all texts, one behind the other, `sentence`
those of the ISO dates with their beginning and end; `src.lengths` and `sentence.lengths` say how long each is. Needs
Python alone.
"""
import array
import json
import pathlib
import struct
import sys
import dates_data as data

SEED, VALID = 1, 500


def write_tensors(path, tensors):
    """tensors: {name: array of 32-bit integers}, each of one axis."""
    header, offset = {}, 0
    for name, numbers in tensors.items():
        size = 4 * len(numbers)
        header[name] = {"dtype": "I32", "shape": [len(numbers)], "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for numbers in tensors.values():
            numbers.tofile(file)


def items(writer, count):
    src, sentence = array.array("i"), array.array("i")
    src_lengths, sentence_lengths = array.array("i"), array.array("i")
    for _ in range(count):
        text, date = writer.pair()
        source, target = data.ids(text), [data.BEGINNING, *data.ids(date), data.END]
        src.extend(source)
        sentence.extend(target)
        src_lengths.append(len(source))
        sentence_lengths.append(len(target))
    return {"src": src, "src.lengths": src_lengths, "sentence": sentence, "sentence.lengths": sentence_lengths}


def main(folder, count=512000):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_tensors(folder / "train.safetensors", items(data.Writer(SEED, held=False), int(count)))
    write_tensors(folder / "valid.safetensors", items(data.Writer(SEED + 1, held=False), VALID))


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(*sys.argv[1:])
