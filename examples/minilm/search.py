#!/usr/bin/env python3
"""usage: search.py TFMC WEIGHTS TOKENIZER SENTENCES

Embeds each line of SENTENCES with the model beside this file, then reads searches, one a line, and prints the nearest
sentences. Tokens are made here; all arithmetic of the model is `tfmc run`.
"""
import pathlib
import subprocess
import sys
import tempfile
import numpy as np
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

MODEL = pathlib.Path(__file__).with_name("minilm.tfm")
NEAREST = 3


class Embedder:
    def __init__(self, tfmc, weights, tokenizer):
        self.command = [tfmc, "run", MODEL, "--weights", weights]
        self.tokenizer = Tokenizer.from_file(tokenizer)
        self.tokenizer.enable_truncation(256)
        self.tokenizer.enable_padding()

    def __call__(self, texts):
        """f32 [texts, 384], rows of length 1."""
        encoded = self.tokenizer.encode_batch(texts)
        inputs = {"input_ids": np.array([e.ids for e in encoded], np.int32),
                  "attention_mask": np.array([e.attention_mask for e in encoded], np.int32)}
        with tempfile.TemporaryDirectory() as folder:
            given, made = f"{folder}/tokens.safetensors", f"{folder}/embeddings.safetensors"
            save_file(inputs, given)
            subprocess.run([*self.command, "--inputs", given, "--output", made], check=True)
            return load_file(made)["embedding"]


def lines(stream):
    """The searches: asked for on a terminal, else read."""
    while True:
        if stream.isatty():
            print("\nsearch (an empty line ends): ", end="", flush=True)
        line = stream.readline().strip()
        if not line:
            return
        yield line


def main(tfmc, weights, tokenizer, path):
    embed = Embedder(tfmc, weights, tokenizer)
    sentences = pathlib.Path(path).read_text().splitlines()
    known = embed(sentences)
    print(f"{len(sentences)} sentences are embedded, {known.shape[1]} numbers each")
    for question in lines(sys.stdin):
        likeness = known @ embed([question])[0]
        print(f"\n{question}")
        for i in np.argsort(-likeness)[:NEAREST]:
            print(f"  {likeness[i]:.2f}  {sentences[i]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
