"""What the tests of `tfmc import` share: a folder of a case, the command, and what it must say. The program that is tested and
the folder of the cases are the first two arguments of the test.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from safetensors.numpy import save_file

import checkpoint

TFMC, CASES = sys.argv[1], pathlib.Path(sys.argv[2])


class ImportCase(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)

    def take(self, name, place=CASES):
        self.case = json.loads((place / f"{name}.json").read_text())
        checkpoint.write(self.case, self.folder)
        return self.case["files"]["config.json"]

    def write(self, config):
        (self.folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))

    def tfmc(self, *args, code=0, says=(), verb="import"):
        done = subprocess.run([TFMC, verb, *map(str, args)], capture_output=True, text=True)
        if code is not None:
            self.assertEqual(done.returncode, code, done.stderr)
        for part in [says] if isinstance(says, str) else says:
            self.assertIn(part, done.stderr)
        self.assertNotIn("internal error", done.stderr)
        return done

    def refused(self, *says, options=()):
        """The message names the file; no model appears."""
        target = self.folder / "model.tfm"
        self.tfmc(self.folder, "-o", target, *options, code=1, says=["config.json", "no output written", *says])
        self.assertFalse(target.exists())

    def mine(self, config, family, code=0, says=(), options=()):
        """A family of one's own with the weights l.weight and l.bias; returns the model."""
        self.write(dict(model_type="mine") | config)
        save_file({"l.weight": checkpoint.weight("w", [4, 4], 1), "l.bias": checkpoint.weight("b", [4], 1)},
                  self.folder / "model.safetensors")
        (self.folder / "mine.tfm").write_text(family)
        return self.tfmc(self.folder, "--family", self.folder / "mine.tfm", *options, code=code, says=says).stdout


def main():
    run = unittest.main(argv=sys.argv[:1], exit=False).result
    failed = len({case.id().split(" ")[0] for case, _ in run.failures + run.errors})  # of several subtests one case
    print(f"{run.testsRun - failed} passed, {failed} failed")
    sys.exit(failed != 0)
