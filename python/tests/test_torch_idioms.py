"""Modules as people write them (the tables of idioms_*.py): each is right against torch in double at its example and at
other sizes, or refused with a message that has the line of the module; and some are trained beside torch. Not run
without torch.
"""
import copy
import importlib
import os
import pathlib
import subprocess
import unittest

import tfmc
from support import Case
from torch_cases import compared, nn, torch

if torch is not None:
    for name in ("attention", "corners", "fields", "flags", "forms", "hostile", "inputs", "layers", "losses", "modern", "parts", "public", "recent", "routes", "shapes", "signals", "sizes", "written"):
        importlib.import_module(f"idioms_{name}")
    from idioms_table import IDIOMS
    from safetensors.torch import load_file, save_file
    from torch_cases import floats


@unittest.skipIf(torch is None, "no torch")
class Idioms(Case):
    """A test of each module: they take minutes, nearly all of it torch.export's, and say which is being tried."""
    def tried(self, idiom):
        torch.manual_seed(1)
        module = idiom.make().eval()
        calls = [idiom.inputs(*shape) for shape in idiom.shapes]
        if idiom.refused:
            self.refused(tfmc.CompileError, idiom.refused, tfmc.from_torch, module, calls[0], sizes=idiom.sizes)
        else:
            compared(module, calls, idiom.sizes, idiom.tolerance)


for _idiom in IDIOMS if torch is not None else ():
    _name = f"test_{_idiom.make.__name__}" + ("_is_refused" if _idiom.refused else "")
    assert not hasattr(Idioms, _name), f"two idioms are {_name[5:]}"
    setattr(Idioms, _name, lambda self, idiom=_idiom: self.tried(idiom))


@unittest.skipIf(torch is None, "no torch")
class Trained(Case):
    """Steps of SGD beside torch in double: which weights get a gradient, and which gradient."""
    OBJECTIVE = """
  fn objective({head}) {{
    y = forward({names})
    return loss = sum(sum(reshape(sin(y), [shape(y, 0), -1])))
  }}
  train objective {{ optimizer = "sgd"  lr = {lr} }}
}}
"""

    def same(self, module, inputs, sizes, steps=3, lr=0.001):
        source = tfmc.from_torch(module, inputs, sizes=sizes, outputs=["y"], fold=False)
        head = source.text.split("  forward(")[1].split(") {")[0]
        text = source.text.removesuffix("\n}\n") + self.OBJECTIVE.format(head=head, names=", ".join(inputs), lr=lr)
        folder = pathlib.Path(self.folder())
        (folder / "model.tfm").write_text(text)
        save_file({name: w.contiguous() for name, w in source.weights.items()}, folder / "w.safetensors")
        save_file({name: v.int() if v.dtype == torch.int64 else v for name, v in inputs.items()}, folder / "b.safetensors")
        command = [os.environ.get("TFM_COMPILER", "tfmc"), "train", "model.tfm", "--weights", "w.safetensors", "--batches", "b.safetensors",
                   f"--steps={steps}", "-o", "out.safetensors"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, f"{done.stderr}\n{text}")
        got, exact = load_file(folder / "out.safetensors"), copy.deepcopy(module).double()
        optimizer = torch.optim.SGD([p for p in exact.parameters() if p.requires_grad], lr=lr)
        for _ in range(steps):
            torch.set_default_dtype(torch.float64)
            try:
                y = exact(**{name: v.double() if v.dtype == torch.float32 else v for name, v in inputs.items()})
            finally:
                torch.set_default_dtype(torch.float32)
            optimizer.zero_grad()
            y.sin().sum().backward()
            optimizer.step()
        moved = 0
        for name, w in exact.named_parameters():
            moved = max(moved, (w.detach() - module.get_parameter(name).double()).abs().max())
            away = (got["after." + name].double() - w.detach()).abs().max() / w.detach().abs().max().clamp(min=1)
            self.assertLessEqual(float(away), 1e-5, f"{name}\n{text}")
        self.assertGreater(float(moved), 1e-4)

    def test_modules(self):
        class Padding(nn.Module):
            def __init__(self):
                super().__init__()
                self.table, self.head = nn.Embedding(20, 6, padding_idx=3), nn.Linear(6, 4)

            def forward(self, at):
                return self.head(self.table(at)) + nn.functional.embedding(at % 4, self.head.weight, padding_idx=1).sum(-1, keepdim=True)

        class Assigned(nn.Module):
            def __init__(self):
                super().__init__()
                self.w, self.v = nn.Parameter(torch.randn(7, 6)), nn.Parameter(torch.randn(6))

            def forward(self, x):
                y = x * self.w
                y[:, ::2] = self.v * 2
                y[:, [-1, 0]] = x[:, [1, -2]] * self.v
                y[:, :, 1:3] *= 3
                z = nn.functional.normalize(y, dim=-1) + torch.log1p(y.abs()) + nn.functional.cosine_similarity(y, x * self.v, dim=-1)[..., None]
                return z + (y @ self.v)[..., None] + nn.functional.elu(y) + y[:, [-1]]
        cases = [(Padding, dict(at=torch.tensor([[3, 5, 3, 1, 9], [2, 1, 3, 3, 5]])), {"at": {0: "batch"}}),
                 (Assigned, dict(x=floats(3, 7, 6)), {"x": {0: "batch"}})]
        chosen = ("RotatedHalves", "NormedQueries", "ShiftedWindows", "Graph", "LowRank")
        cases += [(i.make, i.inputs(*i.shapes[0]), i.sizes) for i in IDIOMS if i.make.__name__ in chosen]
        for make, inputs, sizes in cases:
            with self.subTest(make.__name__):
                torch.manual_seed(1)
                self.same(make().eval(), inputs, sizes)


if __name__ == "__main__":
    unittest.main()
