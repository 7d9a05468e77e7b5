#!/usr/bin/env python3
"""usage: test_unread_shapes.py TFMC CASES

Tensors that a model here does not read, and that the class of transformers makes all the same, must have the shape that it makes:
transformers refuses the folder otherwise. `fits` of a checkpoint block says so. The last line is 'N passed, N failed' of unittest.
"""
import json

import numpy as np
from safetensors.numpy import load_file, save_file

import import_case
from import_case import CASES, ImportCase

FAMILY = """checkpoint "mine" {
  d = size
  require fits(%s), "another width"
}
model M(d = 4) {
  l = Linear(d, d)
  forward(x: f32[n, d]) { return y = l(x) }
}
"""


def other_shapes(array):
    """As mutate.py reshapes a tensor, and wholly other axes."""
    for shape in ([*array.shape[:-1], array.shape[-1] + 1], [array.shape[0] + 2, *array.shape[1:]], [1, *array.shape], [array.size + 1], []):
        yield np.resize(array, shape).astype(np.float32)


class UnreadShapes(ImportCase):
    def refused_for(self, tensors, name, array):
        save_file({**tensors, name: array}, self.folder / "model.safetensors")
        before = ", ".join(map(str, tensors[name].shape))
        self.refused(f'"{name}" is [{", ".join(map(str, array.shape))}], and [{before}] is wanted')

    def test_poolers_of_bodies(self):
        """Sentence vectors and bodies do not read them; one that is not there changes nothing."""
        seen = set()
        for path in sorted(CASES.glob("*.json")):
            case = json.loads(path.read_text())
            architecture = case["files"].get("config.json", {}).get("architectures", [""])[0]
            poolers = [n for n in case["weights"] if n.startswith("pooler.")]
            if not poolers or not architecture.endswith("Model") or architecture.startswith(("ViT", "DeiT", "Beit", "Data2Vec")):
                continue
            self.take(path.stem)
            tensors, vectors = load_file(self.folder / "model.safetensors"), "modules.json" in case["files"]
            seen.add((case["files"]["config.json"]["model_type"], vectors))
            for name in poolers:
                for array in other_shapes(tensors[name]):
                    with self.subTest(case=path.stem, name=name, shape=array.shape):
                        self.refused_for(tensors, name, array)
            if vectors:
                save_file(tensors, self.folder / "model.safetensors")
                whole = self.tfmc(self.folder, "--strict").stdout
                save_file({k: v for k, v in tensors.items() if k not in poolers}, self.folder / "model.safetensors")
                self.assertEqual(self.tfmc(self.folder, "--strict").stdout, whole)
        for kind in ("bert", "albert", "mpnet"):
            self.assertIn((kind, True), seen)
        for kind in ("bert", "roberta", "gte", "jina_embeddings_v3", "mobilebert", "xlm-roberta-xl"):
            self.assertIn((kind, False), seen)

    def test_tokens_that_hide_squares(self):
        """Of encoders of images, with the name of the body before it or without: what training alone reads."""
        seen = set()
        for path in sorted(CASES.glob("*.json")):
            case = json.loads(path.read_text())
            for name in (n for n in case["weights"] if n.endswith("embeddings.mask_token")):
                self.take(path.stem)
                tensors = load_file(self.folder / "model.safetensors")
                seen.add(name.split(".")[0])
                for array in other_shapes(tensors[name]):
                    with self.subTest(case=path.stem, name=name, shape=array.shape):
                        self.refused_for(tensors, name, array)
        self.assertLessEqual({"embeddings", "dinov2", "dinov2_with_registers"}, seen)

    def test_what_fits(self):
        """In the folder: l.weight [4, 4], l.bias [4]."""
        for holds in ('"l.weight", size, 4', '"l.weight", none, 4', '"l.weight", other, size', '"*.bias", 4', '"ghost", 9', '"l.b*", size'):
            self.mine(dict(size=4), FAMILY % holds, options=["--strict"])
        for fails, says in (('"l.weight", size', '"l.weight" is [4, 4], and [4] is wanted'), ('"l.weight", other, 5', "and [?, 5] is wanted"),
                            ('"l.bias", 4, 1', '"l.bias" is [4], and [4, 1] is wanted'), ('"l.*", 4', '"l.weight" is [4, 4]'),
                            ('"l.bias"', '"l.bias" is [4], and [] is wanted')):
            self.mine(dict(size=4), FAMILY % fails, code=1, says=["another width: " + says if says[0] == '"' else says, "the family requires it here"])
        for wrong, says in (("size", "fits takes the name of a weight"), ('"l.bias", "4"', "whole numbers as sizes"), ('"l.bias", 4.0', "whole numbers as sizes")):
            self.mine(dict(size=4), FAMILY % wrong, code=1, says=says)

    def test_sizes_with_a_fraction(self):
        """16.0 is no size: where a whole number is expected, a number of another kind is another value."""
        config = self.take("mobilebert")
        self.tfmc(self.folder, "--strict")
        self.write(config | dict(true_hidden_size=float(config["true_hidden_size"])))
        self.refused('"true_hidden_size" is 16.0; this family computes 16 only')
        family = FAMILY.replace("require fits(%s), \"another width\"", "expect count = 3\n  expect share = 1.0")
        self.mine(dict(size=4, count=3, share=1), family, options=["--strict"])
        self.mine(dict(size=4, count=3.0, share=1), family, code=1, says='"count" is 3.0; this family computes 3 only')


if __name__ == "__main__":
    import_case.main()
