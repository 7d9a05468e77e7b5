"""Gradients of what from_torch writes, against torch in double, where they are easily wrong: equal elements, bounds that
are hit exactly, rows of zeros and without variance, branches that are not taken, and values that torch.no_grad, detach
and .data cut off. Not run without torch.
"""
import os
import pathlib
import subprocess
import unittest

import numpy as np

import tfmc
from support import Case
from torch_cases import nn, torch

if torch is not None:
    from safetensors.torch import load_file, save_file
    F = nn.functional
    AT = torch.tensor([[0, 1, 1, 0, 4, 4], [2, 2, 2, 2, 2, 2], [5, 4, 3, 2, 1, 0], [0, 1, 2, 3, 4, 5]])
    VALUES = torch.tensor([[1.0, 3, 3, 2, -1, 0], [0, 0, 0, 0, 0, 0], [6, 6, -3, 3, 1, 1], [-1, -1, 20, -2, 0.5, 0.5]])


def without_gradient(w):
    with torch.no_grad():
        return w * 3


TABLE = {
    "amax": lambda w: w.amax(-1),
    "amin, kept axis": lambda w: w.amin(0, keepdim=True),
    "amax of two axes": lambda w: w.amax((0, 1)),
    "amax of axes that are apart": lambda w: w.view(2, 2, 6).amax((0, 2)),
    "amax of axes that are apart, kept": lambda w: w.view(2, 2, 6).amax((0, 2), keepdim=True),
    "max of all": lambda w: w.max() + w.min(),
    "max along an axis": lambda w: w.max(1).values,
    "aminmax": lambda w: w.aminmax(dim=1).max + w.aminmax(dim=1).min,
    "greatest norm": lambda w: torch.linalg.vector_norm(w, float("inf"), dim=1),
    "smallest norm": lambda w: torch.linalg.vector_norm(w, -float("inf"), dim=1),
    "norm of zeros": lambda w: w.norm(dim=1),
    "clamp": lambda w: w.clamp(0, 3),
    "clamp below": lambda w: w.clamp(min=0),
    "clamp above": lambda w: torch.clamp_max(w, 1),
    "clamp by tensors": lambda w: torch.clamp(w, torch.zeros(6), torch.full((6,), 3.0)),
    "hardtanh": lambda w: F.hardtanh(w),
    "relu6": lambda w: F.relu6(w),
    "maximum": lambda w: torch.maximum(w, w.flip(1)),
    "fmin": lambda w: torch.fmin(w, w.flip(0)),
    "max_pool1d": lambda w: F.max_pool1d(w[None], 2, 1),
    "max_pool2d": lambda w: F.max_pool2d(w[None, None], 2, 1),
    "adaptive_max_pool2d": lambda w: F.adaptive_max_pool2d(w[None], (2, 3)),
    "std of a row without variance": lambda w: w.std(1),
    "logaddexp": lambda w: torch.logaddexp(w, w.flip(1)),
    "sinc": lambda w: torch.sinc(w),
    "elu, selu and celu where exp overflows": lambda w: F.elu(w * 30) + F.selu(w * 50) + F.celu(w * 50, 1.5),
    "softplus and its relatives where exp overflows": lambda w: F.softplus(w * 40) + F.logsigmoid(w * 40) + F.mish(w * 20) + F.gelu(w * 20),
    "cosine and length of rows of zeros": lambda w: F.cosine_similarity(w, w.flip(0), dim=1) + F.normalize(w, dim=1).sum(1),
    "distances of equal rows": lambda w: torch.cdist(w, w).sum() + F.pairwise_distance(w, w.flip(1)),
    "sinh and cosh": lambda w: torch.sinh(w * 0.3) + torch.cosh(w * 0.3),
    "xlogy": lambda w: torch.xlogy(w, w.abs() + 0.5) + torch.xlogy(w.detach(), w.abs() + 0.1),
    "products with zeros": lambda w: w.prod(1),
    "binary_cross_entropy": lambda w: F.binary_cross_entropy(torch.clamp(w, 0, 1), w.new_full((4, 6), 0.3), reduction="none"),
    "cumprod": lambda w: (w + 0.5).cumprod(1),
    **{f"scatter by {reduce}, {'with' if own else 'without'} itself": lambda w, reduce=reduce, own=own:
       (w * 1).scatter_reduce(1, AT, w.flip(0), reduce, include_self=own) for reduce in ("sum", "mean", "amax", "amin") for own in (True, False)},
    "detach": lambda w: w * w.detach(),
    "data": lambda w: w * torch.exp(w.data * 0.1),
    "no_grad": lambda w: w * without_gradient(w) + w,
    "straight through": lambda w: w + (torch.round(w * 0.7) - w).detach(),
}


@unittest.skipIf(torch is None, "no torch")
class Gradients(Case):
    def gradients(self, module, x):
        """path -> gradient in the first step of training, by tfmc."""
        source = tfmc.from_torch(module, {"x": x}, sizes={}, outputs=["y"])
        text = source.text.removesuffix("\n}\n") + """
  fn objective(x: f32[3]) { return loss = forward(x) }
  train objective { optimizer = "sgd"  lr = 0.001 }
}
"""
        folder = pathlib.Path(self.folder())
        (folder / "model.tfm").write_text(text)
        save_file({name: w.contiguous() for name, w in source.weights.items()}, folder / "w.safetensors")
        save_file({"x": x}, folder / "b.safetensors")
        command = [os.path.abspath(os.environ["TFM_COMPILER"]) if "TFM_COMPILER" in os.environ else "tfmc", "train", "model.tfm",
                   "--weights", "w.safetensors", "--batches", "b.safetensors", "--steps=1", "--gradients", "-o", "out.safetensors"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, f"{done.stderr}\n{text}")
        return {name[5:]: value.double().numpy() for name, value in load_file(folder / "out.safetensors").items() if name[:5] == "grad."}

    def test_gradients_are_those_of_torch(self):
        functions = list(TABLE.values())

        class Sum(nn.Module):
            def __init__(self):
                super().__init__()
                for i in range(len(functions)):
                    self.register_parameter(f"w{i}", nn.Parameter(VALUES.clone()))

            def forward(self, x):
                total = x.sum() * 0
                for i, function in enumerate(functions):
                    y = function(getattr(self, f"w{i}"))
                    total = total + (y * torch.cos(torch.arange(y.numel(), dtype=y.dtype).reshape(y.shape) + 1)).sum()
                return total
        module, x = Sum().eval(), torch.randn(3)
        got, exact = self.gradients(module, x), Sum().double()
        exact(x.double()).backward()
        for i, name in enumerate(TABLE):
            with self.subTest(name):
                np.testing.assert_allclose(got[f"w{i}"], getattr(exact, f"w{i}").grad.numpy(), rtol=1e-4, atol=1e-5)

    def test_an_example_that_shows_nothing(self):
        """Where the module is right already, rounding is all that gradients are: the example is at fault, not the text."""
        class Tied(nn.Module):
            def __init__(self):
                super().__init__()
                self.table = nn.Embedding(9, 24)
                nn.init.eye_(self.table.weight).data.mul_(5)  # probabilities of 1 - 1e-10, which f32 does not have

            def forward(self, ids):
                return self.table(ids) @ self.table.weight.T
        ids, named = torch.tensor([[5, 8, 2], [7, 1, 3]]), {0: "batch", 1: "time"}
        given = {"sizes": {"ids": named, "labels": named}, "training": True,
                 "loss": lambda logits, labels: F.cross_entropy(logits.flatten(0, 1), labels.flatten())}
        self.refused(tfmc.CompileError, ["shows nothing", "labels that are not its inputs"], tfmc.from_torch, Tied().eval(), {"ids": ids},
                     targets={"labels": ids}, **given)
        tfmc.from_torch(Tied().eval(), {"ids": ids}, targets={"labels": ids.roll(1, 1)}, **given)

    def test_numbers_beside_nan(self):
        class Least(nn.Module):
            def forward(self, x, y):
                return torch.fmax(x, y), torch.fmin(x, y), torch.maximum(x, y), F.max_pool1d(x[None], 2)
        x, y = torch.tensor([1.0, float("nan"), 2.0, float("nan")]), torch.tensor([float("nan"), 3.0, 1.0, float("nan")])
        model = tfmc.compile(tfmc.from_torch(Least().eval(), {"x": x, "y": y}, sizes={}))
        for got, wanted in zip(model.run({"x": x.numpy(), "y": y.numpy()}).values(), Least()(x, y)):
            np.testing.assert_array_equal(got, wanted.numpy())


if __name__ == "__main__":
    unittest.main()
