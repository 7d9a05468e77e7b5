"""What tfmc makes of the folder of a checkpoint: outputs and tokens, or a refusal.

The reference interpreter computes, because it needs no time to compile; what the compiled code computes is compared in
test_models.py. A result that comes with a warning counts as one without.
"""
import json
import subprocess

import numpy as np
from safetensors.numpy import load_file, save_file

import checkpoint

SECONDS = 60
NEW_TOKENS = 6


class Refused(Exception):
    """tfmc ends with a message. `late`: import did not see it."""

    def __init__(self, text, late=False):
        super().__init__(text)
        self.late = late


class Crash(Exception):
    """tfmc ends in another way than with a message."""


def call(tfmc, *args, late=True):
    """`tfmc`: the path of the binary, or a Server of fork_server.py."""
    if hasattr(tfmc, "run"):
        done = tfmc.run(*args)
    else:
        done = subprocess.run([tfmc, *map(str, args)], capture_output=True, text=True, timeout=SECONDS)
    if done.returncode not in (0, 1, 2, 3) or "internal error" in done.stderr or done.returncode and "error" not in done.stderr:
        raise Crash(f"tfmc {args[0]} ends with {done.returncode}: {done.stderr[-500:]}")
    if done.returncode:
        raise Refused(done.stderr, late)
    return done.stdout


def write(folder, files, tensors):
    for path in sorted(folder.rglob("*.json")):
        path.unlink()
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    if tensors is not None:
        for path in folder.glob("*/model.safetensors"):
            path.unlink()
        checkpoint.save(tensors, folder)


class Ours:
    """Runs tfmc on a folder; results of the same text and tensors are kept."""

    def __init__(self, tfmc, folder, options=()):
        self.tfmc, self.folder, self.options, self.kept = tfmc, folder, list(options), {}
        self.text = folder / "model.tfm"

    def model(self):
        return [self.text, "--weights", self.folder, "-q", "--threads", 1, "--engine=reference", *self.options]

    def imported(self):
        self.text.unlink(missing_ok=True)
        call(self.tfmc, "import", self.folder, "-o", self.text, late=False)
        return self.text.read_text()

    def once(self, key, make):
        if key not in self.kept:
            try:
                self.kept[key] = make()
            except Refused as refusal:
                self.kept[key] = refusal
        if isinstance(self.kept[key], Refused):
            raise self.kept[key]
        return self.kept[key]

    def outputs(self, inputs, tensors_key=None):
        key = (self.imported(), tensors_key)

        def make():
            save_file(inputs, self.folder / "in.safetensors")
            call(self.tfmc, "run", *self.model(), "--inputs", self.folder / "in.safetensors", "-o", self.folder / "out.safetensors")
            return load_file(self.folder / "out.safetensors")
        return self.once(key, make)

    def tokens(self, inputs):
        """Greedily, or as the files of the folder say."""
        key = (self.imported(), "tokens")

        def make():
            save_file(inputs, self.folder / "start.safetensors")
            call(self.tfmc, "generate", *self.model(), "--inputs", self.folder / "start.safetensors", "--max-new-tokens", NEW_TOKENS, "--temperature", 0,
                 "-o", self.folder / "tokens.safetensors")
            return load_file(self.folder / "tokens.safetensors")["sequences"].tolist()
        return self.once(key, make)
