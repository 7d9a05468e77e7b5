#!/usr/bin/env python3
"""usage: translate.py TFMC FOLDER [OPTION ...]

Translates lines of standard input with a Marian checkpoint: FOLDER holds config.json, model.safetensors, vocab.json and
source.spm as Hugging Face publishes them for OPUS-MT (and generation_config.json, if there is one). OPTIONs are those of
`tfmc generate`: --num-beams=4. Tokens are made here, all arithmetic is `tfmc generate`.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import numpy as np
from safetensors.numpy import save_file
import pieces

MODEL = pathlib.Path(__file__).with_name("marian.tfm")
SIZES = {"vocab": "vocab_size", "d": "d_model", "heads": "encoder_attention_heads", "ffn": "encoder_ffn_dim",
         "encoder_depth": "encoder_layers", "decoder_depth": "decoder_layers", "start": "decoder_start_token_id",
         "end": "eos_token_id", "pad": "pad_token_id"}
ACTIVATIONS = {"swish": "silu", "silu": "silu", "relu": "relu", "gelu": "gelu"}


class Vocabulary:
    """Text to ids and back. A line may begin with >>code<<, the language wanted, if the model has several."""

    def __init__(self, folder, end):
        self.ids = json.loads((folder / "vocab.json").read_text())
        self.names = {number: name for name, number in self.ids.items()}
        self.split, self.end = pieces.tokenizer(folder / "source.spm"), end

    def encode(self, line):
        code, text = re.fullmatch(r"(>>[^<]*<<)?(.*)", line.strip()).groups()
        names = [code] * bool(code) + self.split.encode(text).tokens
        return [self.ids.get(name, self.ids["<unk>"]) for name in names] + [self.end]

    def decode(self, ids, special):
        return "".join(self.names[i] for i in ids if i not in special).replace("▁", " ").strip()


def inputs(rows):
    """Rows of token ids, padded on the right."""
    mask = np.arange(max(map(len, rows))) < np.array([[len(row)] for row in rows])
    ids = np.zeros(mask.shape, np.int32)
    ids[mask] = np.concatenate(rows)
    return {"input_ids": ids, "attention_mask": mask.astype(np.int32)}


def main(tfmc, folder, *options):
    folder = pathlib.Path(folder)
    config = json.loads((folder / "config.json").read_text())
    found = {name: config[key] for name, key in SIZES.items()} | {"activation": ACTIVATIONS[config["activation_function"]]}
    vocabulary = Vocabulary(folder, found["end"])
    rows = [vocabulary.encode(line) for line in sys.stdin]
    if not rows:
        return 0
    more = folder / "generation_config.json"
    with tempfile.TemporaryDirectory() as scratch:
        save_file(inputs(rows), f"{scratch}/sentences.safetensors")
        command = [tfmc, "generate", MODEL, *(f"-D{name}={value}" for name, value in found.items()), "--quiet",
                   "--weights", folder / "model.safetensors", "--inputs", f"{scratch}/sentences.safetensors",
                   *(["--generation-config", more] if more.exists() else []), *options]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    for line in done.stdout.splitlines():
        print(vocabulary.decode(json.loads(line), {found[name] for name in ("start", "end", "pad")}))
    return done.returncode


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
