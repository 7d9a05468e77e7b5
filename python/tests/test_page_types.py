"""The package's types: stubs beside what is there, typed.py and the programs of docs/finetuning.md, one for each section, by
`mypy --strict`. Not run without mypy; the programs not without torch and transformers."""
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import unittest

import tfmc
from support import Case

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs/finetuning.md"


@unittest.skipIf(importlib.util.find_spec("mypy") is None, "not run: mypy is missing")
class Stubs(Case):
    """What scripts/wheels.sh asks of the installed package."""

    def by_mypy(self, module, *arguments):
        folder = pathlib.Path(self.folder())
        (folder / "mypy.ini").write_text("[mypy]\nignore_missing_imports = True\n")
        (folder / "unlisted").write_text("tfmc\\.(.*\\.)?_.*\n")
        package = str(pathlib.Path(tfmc.__file__).parents[1])
        done = subprocess.run([sys.executable, "-m", module, *arguments], cwd=folder, capture_output=True, text=True, timeout=600,
                              env={**os.environ, "MYPYPATH": package, "PYTHONPATH": package})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_stubs_are_what_is_there(self):
        self.by_mypy("mypy.stubtest", "tfmc", "--mypy-config-file", "mypy.ini", "--ignore-missing-stub",
                     "--ignore-unused-allowlist", "--allowlist", "unlisted")

    def test_a_program_is_typed(self):
        self.by_mypy("mypy", "--strict", "--config-file=mypy.ini", "--cache-dir=cache", str(HERE / "typed.py"))


@unittest.skipIf(any(importlib.util.find_spec(name) is None for name in ("mypy", "torch", "transformers")),
                 "not run: mypy, torch or transformers are missing")
@unittest.skipUnless(PAGE.is_file(), "not run: the documents are not here")
class Types(Case):
    def check(self, folder, names):
        (folder / "mypy.ini").write_text("[mypy]\nignore_missing_imports = True\n")
        done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--config-file=mypy.ini", "--cache-dir=cache", *names],
                              cwd=folder, capture_output=True, text=True, timeout=600,
                              env={**os.environ, "MYPYPATH": os.pathsep.join([str(pathlib.Path(tfmc.__file__).parents[1])])})
        return done.returncode, done.stdout + done.stderr

    def test_every_program_is_typed(self):
        text, folder = PAGE.read_text(encoding="utf-8"), pathlib.Path(self.folder())
        programs = ["\n".join(re.findall(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)) for section in text.split("\n## ")]
        programs = [program for program in programs if program]
        self.assertEqual(len(programs), 5)
        imports = "".join(re.findall(r"^(?:import|from) .*\n", programs[0], re.MULTILINE))
        for i, program in enumerate(programs):
            (folder / f"program_{i}.py").write_text(program if i == 0 else imports + program)
        code, said = self.check(folder, [f"program_{i}.py" for i in range(5)])
        self.assertEqual(code, 0, said)
        (folder / "wrong.py").write_text(programs[0].replace("lr=3e-3, seed=1", "lr=3e-3, seed=[1]"))
        code, said = self.check(folder, ["wrong.py"])
        self.assertEqual(code, 1, said)
        self.assertIn('Argument "seed" to "Trainer"', said)


if __name__ == "__main__":
    unittest.main()
