#!/usr/bin/env python3
"""A process that times steps of training beside other engines, by the protocol of bench/README.md.

usage: training_worker.py TFMC W7 FOLDER [--march=SET]

FOLDER holds weights.safetensors and for each case CASE.json ("weights": what stands before the names of its weights,
"batch", "length", "dropout") and the inputs of the objective as CASE.NAME.i32. A step is forward, backward and AdamW on
one batch; `out` takes five from the weights of FOLDER and writes their losses, then the weights by name, as f32. Threads:
PEERS_THREADS, else 2. Needs Python's own library alone.
"""
import array
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from trainer_library import TrainerLibrary

MODELS = pathlib.Path(__file__).resolve().parent / "models" / "training.tfm"
# by the prefix of the weights: the model, how many sizes its objective has, its inputs
WORKS = {"nmt.": ("Translator", 3, ("src", "tgt", "labels")), "gpt.": ("Language", 2, ("ids", "labels")),
         "cls.": ("Classifier", 2, ("ids", "labels"))}
STEPS = 5


class Case:
    """A library, and a trainer that begins with the weights of the folder."""

    def __init__(self, tfmc, folder, name, work, march):
        self.said = json.loads((folder / f"{name}.json").read_text())
        self.prefix, made = self.said["weights"], work / name
        model, n_sizes, inputs = WORKS[self.prefix]
        made.mkdir()
        defines = {"drop": self.said["dropout"]} if model == "Translator" else {}
        self.library = TrainerLibrary(tfmc, MODELS, made, defines, [f"--model={model}", f"--weights-prefix={self.prefix}"],
                                      march)
        self.names = names_in(folder / "weights.safetensors", self.prefix)
        subprocess.run([tfmc, "pack", "--training", self.library.path, "--weights", folder / "weights.safetensors",
                        "--quiet", "-o", made / "start.tfmt"], check=True)
        sizes = [self.said["batch"], *[self.said["length"]] * (n_sizes - 1)]
        tensors = [array.array("i", (folder / f"{name}.{one}.i32").read_bytes()) for one in inputs]
        self.library.begin(sizes, tensors, int(os.environ.get("PEERS_THREADS", "2")), made / "start.tfmt")

    def out(self, path):
        """Dropout is random: no other engine has its numbers."""
        losses = [self.library.step() for _ in range(STEPS)]
        if not self.said["dropout"]:
            with open(path, "wb") as file:
                array.array("f", losses).tofile(file)
                for name in self.names:
                    array.array("f", self.library.weight(name)).tofile(file)
        return "@ok"

    def go(self, warm, n):
        for _ in range(int(warm)):
            self.library.step()
        times = []
        for _ in range(int(n)):
            begin = time.monotonic()
            self.library.step()
            times.append(time.monotonic() - begin)
        return " ".join(["@times", *(f"{seconds:.9f}" for seconds in times)])


def names_in(path, prefix):
    """The names in a safetensors file that begin so, in order."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return sorted(name for name in header if name.startswith(prefix))


def main():
    march = sys.argv.pop().removeprefix("--march=") if sys.argv[-1].startswith("--march=") else "native"
    if len(sys.argv) != 4 or sys.argv[2] != "W7":
        sys.exit("usage: training_worker.py TFMC W7 FOLDER [--march=SET]")
    tfmc, folder, cases = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[3]), {}
    with tempfile.TemporaryDirectory() as work:
        print("@ready", flush=True)
        for line in sys.stdin:
            if line.startswith("quit"):
                break
            try:
                command, *rest = line.split()
                if command == "drop":
                    cases.pop(rest[0], None)
                    print("@ok", flush=True)
                    continue
                if rest[0] not in cases:
                    cases[rest[0]] = Case(tfmc, folder, rest[0], pathlib.Path(work), march)
                print(getattr(cases[rest[0]], {"out": "out", "go": "go"}[command])(*rest[1:]), flush=True)
            except (OSError, LookupError, ValueError, RuntimeError, subprocess.CalledProcessError) as error:
                print(f"@fail {error}".replace("\n", " "), flush=True)


if __name__ == "__main__":
    main()
