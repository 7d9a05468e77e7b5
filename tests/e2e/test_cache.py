#!/usr/bin/env python3
"""The cache of generated code as users meet it: 32 processes at once, damaged entries, folders that are no good.

usage: test_cache.py TFMC          The last line is 'N passed, N failed'.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

MODEL = """model M(d = 24) {
  up = Linear(d, 2 * d)
  norm = LayerNorm(2 * d)
  forward(x: f32[batch, d]) { return y = norm(gelu(up(x))) }
}
"""
PROCESSES = 32


class Tests:
    def __init__(self, tfmc, folder):
        self.tfmc, self.folder = tfmc, pathlib.Path(folder)
        self.passed = self.failed = 0
        (self.folder / "m.tfm").write_text(MODEL)

    def check(self, name, condition):
        self.passed, self.failed = self.passed + bool(condition), self.failed + (not condition)
        if not condition:
            print(f"FAIL {name}")

    def start(self, **environment):
        names = ("TFM_CACHE_DIR", "XDG_CACHE_HOME", "HOME")
        clean = {name: value for name, value in os.environ.items() if name not in names}
        command = [self.tfmc, "run", "m.tfm", "--random-weights=1", "--input=x=3x24", "--threads=1"]
        return subprocess.Popen(command, cwd=self.folder, env=clean | environment, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT)

    def run(self, **environment):
        process = self.start(**environment)
        text = process.communicate()[0]
        return text if process.returncode == 0 else None

    def entries(self, cache="cache"):
        folder = self.folder / cache
        return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.is_dir() else {}

    def all(self):
        wanted = self.run()
        self.check("runs without HOME", wanted)
        processes = [self.start(TFM_CACHE_DIR="cache") for _ in range(PROCESSES)]
        self.check("all processes print the same", all(p.communicate()[0] == wanted for p in processes))
        entries = self.entries()
        self.check("a file for each product and each other kernel", 1 < len(entries) < 10)
        self.check("no file is written again", self.run(TFM_CACHE_DIR="cache") == wanted and self.entries() == entries)
        self.check("the same from the cache", self.run(TFM_CACHE_DIR="cache") == wanted)
        self.damaged(wanted, entries)
        self.folders(wanted)

    def damaged(self, wanted, entries):
        name, good = next(iter(entries.items()))
        middle = len(good) // 2
        flipped = good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1:]
        for what, content in (("cut", good[:middle]), ("empty", b""), ("a bit", flipped)):
            (self.folder / "cache" / name).write_bytes(content)
            self.check(f"damaged: {what}", self.run(TFM_CACHE_DIR="cache") == wanted)
            self.check(f"made again: {what}", self.entries() == entries)

    def folders(self, wanted):
        self.check("switched off", self.run(TFM_CACHE_DIR="", HOME=str(self.folder)) == wanted)
        self.check("nothing written", not (self.folder / ".cache").exists())
        self.check("in HOME", self.run(HOME=str(self.folder)) == wanted and self.entries(".cache/tfmc") == self.entries())
        self.check("XDG_CACHE_HOME", self.run(XDG_CACHE_HOME=str(self.folder / "xdg")) == wanted)
        self.check("in XDG_CACHE_HOME", self.entries("xdg/tfmc") == self.entries())
        (self.folder / "open").mkdir()
        (self.folder / "open").chmod(0o777)
        self.check("anybody may write to it", self.run(TFM_CACHE_DIR="open") == wanted and not self.entries("open"))
        (self.folder / "file").write_text("")
        self.check("a file", self.run(TFM_CACHE_DIR="file/x") == wanted and self.run(TFM_CACHE_DIR="file") == wanted)
        self.check("HOME is no folder", self.run(HOME=str(self.folder / "no/home")) == wanted)
        self.check("no HOME is made", not (self.folder / "no").exists())


def main(tfmc):
    with tempfile.TemporaryDirectory() as folder:
        tests = Tests(os.path.abspath(tfmc), folder)
        tests.all()
    print(f"{tests.passed} passed, {tests.failed} failed")
    return tests.failed != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
