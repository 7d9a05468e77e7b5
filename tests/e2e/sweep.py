"""Long runs over many cases that can be cut off and taken up again, shared by cross.py, cross_train.py, cross_tfmc.py and
wasm.py.

Options of those scripts: --log=FILE remembers what passed, by the bytes of the programs that were tried, and a later run
with the same programs leaves it out; --minutes=N begins no case after so long, and those that come first use as many
different words of the language as can be; --part=2/3 takes the second of three shares of the cases. What passed before and
what was not begun is said, each in a line of its own, and is not among the 'N passed, N failed' of this run.
"""
import hashlib
import os
import pathlib
import re
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "goldens"))
import check  # noqa: E402

WORDS = re.compile(r"[A-Za-z_]\w*")


def option(argv, name):
    return next((a.split("=", 1)[1] for a in argv if a.startswith(f"--{name}=")), None)


def by_words(cases):
    """The same cases, each next one that which has most words that none before it has."""
    words = {folder: set(WORDS.findall(pathlib.Path(folder, "model.tfm").read_text())) | set(map(str, spec.get("options", [])))
             | set(spec.get("generate", {})) | set(spec.get("train", {})) for folder, spec in cases}
    left, seen, ordered = list(cases), set(), []
    while left:
        best = max(left, key=lambda case: len(words[case[0]] - seen))
        left.remove(best)
        ordered.append(best)
        seen |= words[best[0]]
    return ordered


class Tally(check.Tally):
    """check.Tally with the options above; `programs` are what is tried."""

    def __init__(self, argv, *programs):
        super().__init__("-v" in argv)
        self.minutes, self.file = option(argv, "minutes"), option(argv, "log")
        self.part = option(argv, "part") or "1/1"
        self.end_at = time.monotonic() + 60 * float(self.minutes) if self.minutes else None
        self.n_before, self.n_left = 0, 0
        self.key = hashlib.sha256(b"".join(pathlib.Path(p).read_bytes() for p in programs)).hexdigest()[:16] if self.file else ""

    def cases(self, roots, concerned):
        found = list(super().cases(roots, concerned))
        part, of = map(int, self.part.split("/"))
        return (by_words(found) if self.minutes else found)[part - 1::of]

    def before(self):
        """What has passed, in processes beside this one too."""
        lines = pathlib.Path(self.file).read_text().splitlines() if self.file and os.path.exists(self.file) else []
        return {line.partition(" ")[2] for line in lines if line.startswith(self.key)}

    def add(self, name, trial, *args):
        if name in self.before():
            self.n_before += 1
            return
        if self.end_at and time.monotonic() > self.end_at:
            self.n_left += 1
            return
        n = self.passed
        super().add(name, trial, *args)
        if self.file and self.passed > n:
            with open(self.file, "a") as file:
                file.write(f"{self.key} {name}\n")

    def end(self):
        if self.n_before:
            print(f"passed before, and not tried again: {self.n_before}")
        if self.n_left:
            print(f"not run: {self.n_left} of {self.n_left + self.n_before + self.passed + self.failed}: {self.minutes} minutes were over")
        return super().end()
