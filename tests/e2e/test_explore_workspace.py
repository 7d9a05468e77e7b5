#!/usr/bin/env python3
"""usage: test_explore_workspace.py TFMC ROOT

The workspace that the page of `tfmc explore` shows is what NAME_workspace_bytes of a compiled library says, at every stop of
the sliders, with one thread and with two, for ten models. A library counts the CPUs that its process may use: two threads are
left out where there is one CPU. The last line is 'N passed, N failed'.
"""
import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np
from safetensors.numpy import save_file

import compiled
import tally

TFMC, ROOT = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
sys.argv[1:] = sys.argv[3:]
MODELS = {"minilm": ("examples/minilm/minilm.tfm", ["depth=1", "vocab=50"]),
          "bert": ("models/bert.tfm", ["depth=1", "vocab=50", "d=64", "heads=4", "ffn=128"]),
          "gpt2": ("models/gpt2.tfm", ["depth=1", "vocab=50"]),
          "llama": ("models/llama.tfm", ["depth=1", "vocab=50", "d=64", "heads=4", "ffn=128"]),
          "t5": ("models/t5.tfm", ["depth=1", "decoder_depth=1", "vocab=50", "d=64", "ffn=128"]),
          "moe": ("models/moe.tfm", ["depth=1", "vocab=50", "d=64", "heads=4", "kv_heads=2", "ffn=64", "max_length=64"]),
          "modernbert": ("models/modernbert.tfm", ["depth=2", "vocab=50"]),
          "dates": ("examples/dates/dates.tfm", []),
          "marian": ("examples/translate/marian.tfm", ["encoder_depth=1", "decoder_depth=1", "vocab=50"]),
          "conv": ("", [])}
CONV = ("model Conv { c = Conv1d(4, 6, 3, stride = 2, padding = 1) f = Linear(6, 3) "
        "forward(x: f32[batch, 4, time]) { return y = softmax(f(transpose(c(x), 1, 2)), axis = -1) } }\n")


def file_of(name, folder):
    text, definitions = MODELS[name]
    if text:
        return ROOT / text, definitions
    file = folder / f"{name}.tfm"
    file.write_text(CONV)
    return file, definitions


def weights_of(data):
    """Zeros for each weight of the model."""
    kinds = {"f32": np.float32, "i32": np.int32, "bool": np.bool_}
    return {weight["name"]: np.zeros([int(n) for n in compiled.sizes_of(weight["shape"])[1]], kinds[weight["dtype"]])
            for module in data["modules"] for weight in module["weights"]}


class Workspace(unittest.TestCase):
    def setUp(self):
        cpus = os.sched_getaffinity(0)
        self.addCleanup(os.sched_setaffinity, 0, cpus)
        self.cpus = sorted(cpus)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def check(self, name):
        file, definitions = file_of(name, self.folder)
        options = ["-march=x86-64-v3", *(word for each in definitions for word in ("-D", each))]
        done = subprocess.run([TFMC, "explore", file, "--format=json", "--threads=2", *options], check=True,
                              capture_output=True, text=True)
        data = json.loads(done.stdout)
        save_file(weights_of(data), self.folder / "w.safetensors")
        path = self.folder / f"lib{name}.so"
        subprocess.run([TFMC, "compile", file, "--weights", self.folder / "w.safetensors", "--embed-weights", "-o", path,
                        *options], check=True, capture_output=True)
        library = compiled.Library(str(TFMC), str(path))
        self.addCleanup(library.close)
        getattr(library.library, f"{library.prefix}_workspace_bytes").restype = ctypes.c_int64
        for threads in range(1, min(2, len(self.cpus)) + 1):
            os.sched_setaffinity(0, self.cpus[:threads])
            self.compare(library, data["programs"][0], threads)

    def compare(self, library, program, threads):
        sizes = program["sizes"]
        counts = [len(size["stops"]) for size in sizes]
        for at in np.ndindex(*counts):
            values = {size["name"]: size["stops"][i] for size, i in zip(sizes, at)}
            said = library.call("workspace_bytes", library.model, library.arguments({}, values, {}))
            shown = program["workspace"][str(threads)].get(",".join(map(str, at)), -1)
            self.assertEqual(shown, said, (threads, values))


for each in MODELS:
    setattr(Workspace, f"test_of_{each}_is_what_its_library_says", lambda self, name=each: self.check(name))

if __name__ == "__main__":
    sys.exit(tally.run())
