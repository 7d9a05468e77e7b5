"""The programs of docs/finetuning.md run as they stand, one after the other, in an empty folder. Not run without torch and
transformers."""
import contextlib
import importlib.util
import io
import os
import pathlib
import re
import unittest
import warnings

import numpy as np

from support import Case

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/finetuning.md"


@unittest.skipIf(any(importlib.util.find_spec(name) is None for name in ("torch", "transformers")), "no torch, no transformers")
@unittest.skipUnless(PAGE.is_file(), "the documents are not here")
class Page(Case):
    def test_the_programs_of_the_page(self):
        folder, before, said, names = self.folder(), os.getcwd(), io.StringIO(), {}
        blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
        os.chdir(folder)
        self.addCleanup(os.chdir, before)
        with contextlib.redirect_stdout(said), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for block in blocks:
                exec(compile(block, str(PAGE), "exec"), names)
        self.assertEqual(len(blocks), 8)
        self.assertIn("[1, 5, 6, 7, 8, 9, 10, 11, 2]", said.getvalue())
        first, best = map(float, said.getvalue().splitlines()[-1].split())
        self.assertLess(best, first)
        import tfmc
        import torch
        ids = torch.tensor([[5, 8, 2, 9]])
        self.assertEqual(tfmc.load("classifier.tfmm")(ids).shape, (1, 3))
        self.assertTrue(pathlib.Path("mine/model.safetensors").is_file())
        again, merged, x = names["again"], names["merged"], np.array([[1, 7, 8, 9]], np.int32)
        self.assertTrue(all(np.array_equal(again.weight(p), names["trainer"].weight(p)) for p in again.trained))
        self.assertEqual(len(again.trained), 8)
        np.testing.assert_allclose(merged(x), again.model()(x), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(merged(x), names["model"](x), atol=5e-3)  # whose base was rounded to bf16
        self.assertEqual(names["vectors"].shape, (2, 32))
        self.assertTrue(pathlib.Path("finetuned/tokenizer.json").is_file())


if __name__ == "__main__":
    unittest.main()
