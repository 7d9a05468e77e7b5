"""The programs of docs/finetuning.md, one for each section, and `mypy --strict`. Not run without mypy, torch and transformers."""
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import unittest

import tfmc
from support import Case

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/finetuning.md"


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
