#!/usr/bin/env python3
"""usage: write.py TFMC FOLDER [OPTION ...]

Continues texts, one a line of standard input, with a GPT-2 checkpoint: FOLDER holds config.json, model.safetensors and
tokenizer.json as Hugging Face publishes them. OPTIONs are those of `tfmc generate`: --max-new-tokens=40 --num-beams=4, or
--do-sample --top-k=50 --seed=1. Tokens are made here, all arithmetic is `tfmc generate`.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file
from tokenizers import Tokenizer

MODEL = pathlib.Path(__file__).with_name("gpt2.tfm")
SIZES = {"vocab": "vocab_size", "d": "n_embd", "heads": "n_head", "depth": "n_layer", "max_positions": "n_positions"}


def definitions(folder):
    """The checkpoint's sizes, and whether its names begin with "transformer."."""
    config = json.loads((folder / "config.json").read_text())
    found = {name: config[key] for name, key in SIZES.items()}
    with safe_open(folder / "model.safetensors", "numpy") as weights:
        found["prefixed"] = str(any(name.startswith("transformer.") for name in weights.keys())).lower()
    return [f"-D{name}={value}" for name, value in found.items()]


def inputs(rows):
    """Rows of token ids, side by side with their lengths."""
    ids = np.zeros((len(rows), max(map(len, rows))), np.int32)
    for row, tokens in zip(ids, rows):
        row[:len(tokens)] = tokens
    return {"input_ids": ids, "time.lengths": np.array([len(row) for row in rows], np.int32)}


def main(tfmc, folder, *options):
    folder = pathlib.Path(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    rows = [tokenizer.encode(line.rstrip("\n")).ids for line in sys.stdin]
    if not rows or not all(rows):
        sys.exit("write.py: each line must have a text to be continued")
    with tempfile.TemporaryDirectory() as scratch:
        save_file(inputs(rows), f"{scratch}/prompts.safetensors")
        command = [tfmc, "generate", MODEL, *definitions(folder), "--weights", folder / "model.safetensors",
                   "--inputs", f"{scratch}/prompts.safetensors", *options]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    for line in done.stdout.splitlines():
        print(tokenizer.decode(json.loads(line)))
    return done.returncode


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
