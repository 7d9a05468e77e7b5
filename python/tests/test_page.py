"""docs/python.md: the code that begins the page, with the model that it names, which docs/library.md shows.

Other blocks need a checkpoint or PyTorch. Left out where the pages are not beside the tests, as in a wheel's trial."""
import pathlib
import re
import tempfile
import unittest

import numpy as np

import tfmc
from support import save_file

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"


@unittest.skipUnless((DOCS / "python.md").exists(), "the pages are not here")
class Page(unittest.TestCase):
    def test_the_first_code_runs(self):
        text = re.search(r"```tfm\n# tagger.tfm\n(.*?)^```$", (DOCS / "library.md").read_text(), re.M | re.S)[1]
        code = re.search(r"```python\n(.*?)^```$", (DOCS / "python.md").read_text(), re.M | re.S)[1]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            (path / "tagger.tfm").write_text(text)
            random = np.random.default_rng(1)
            shapes = {name: tensor.shape for name, tensor in tfmc.check(text).weights.items()}
            save_file({name: random.normal(0, 0.05, shape).astype(np.float32) for name, shape in shapes.items()},
                      path / "tagger.safetensors")
            found = {}
            exec(re.sub(r'"(tagger\.\w+)"', rf'"{folder}/\1"', code), found)
            shape = re.search(r"scores = .*# f32 \[(.*)\]", code)[1]
            self.assertEqual(found["scores"].shape, tuple(map(int, shape.split(", "))))


if __name__ == "__main__":
    unittest.main()
