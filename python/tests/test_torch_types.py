"""Types of what from_torch writes: results are f32, integers or booleans as the module's are; numbers without axes, which
constants of a module are, may stand wherever a tensor may; integers are compared exactly; and what forward keeps for its
next call is not left with tensors of the export. Not run without torch.
"""
import functools
import unittest
from unittest import mock

import tfmc
from support import Case
from torch_cases import compared, floats, nn, torch

F = nn.functional if nn else None
KEPT = {}

# name -> a function of a module with the buffers n, b, v and of x [batch, 5].
MADE = dict(
    count=lambda s, x: (x > 0).sum(-1),
    nonzero=lambda s, x: torch.count_nonzero(x, -1),
    zeros=lambda s, x: torch.zeros(3, dtype=torch.long),
    ones=lambda s, x: torch.ones(2, 2, dtype=torch.bool),
    new_zeros=lambda s, x: x.new_zeros(x.shape[0], dtype=torch.bool),
    full=lambda s, x: torch.full((2,), 3),
    big=lambda s, x: torch.full((3,), 50000001),
    of_size=lambda s, x: torch.full((2, 3), x.shape[0]),
    arange=lambda s, x: torch.arange(x.shape[0]),
    floats=lambda s, x: torch.arange(4.0),
    eye=lambda s, x: torch.eye(3, dtype=torch.bool),
    triangle=lambda s, x: torch.ones(3, 3, dtype=torch.long).tril(),
    zero=lambda s, x: torch.zeros(()),
    least=lambda s, x: torch.tensor(float("-inf")),
    repeated=lambda s, x: torch.arange(2).repeat_interleave(3),
    twice=lambda s, x: x.repeat_interleave(2),
    powers=lambda s, x: 2 ** torch.arange(5))
CHOSEN = dict(
    numbers=lambda s, x: torch.where(x > 0, 1, 0),
    others=lambda s, x: torch.where(x > 0, -100, 7),
    booleans=lambda s, x: torch.where(x > 0, True, False),
    fractions=lambda s, x: torch.where(x > 0, 1.0, 0.0),
    big=lambda s, x: torch.where(x > 0, 50000001, 3),
    size=lambda s, x: torch.where(x > 0, x.shape[0], 0),
    buffer=lambda s, x: torch.where(x > 0, s.n, 0),
    known=lambda s, x: torch.where(s.b, x, -x),
    never=lambda s, x: torch.where(torch.tensor(False), x, 0.0),
    masked=lambda s, x: x.masked_fill(s.b, 0.0),
    unmasked=lambda s, x: x.masked_fill(torch.tensor(False), 0.0),
    of_sum=lambda s, x: torch.where(x.sum() > 0, 1, 2),
    mixed=lambda s, x: torch.where(x > 0, x, s.n),
    ids=lambda s, x: x.argmax(-1).masked_fill(x[:, 0] > 0, 7),
    flag=lambda s, x: torch.where(s.b, s.n, 2))
LOGIC = dict(
    less=lambda s, x: x < 0,
    both=lambda s, x: (x > 0) & True,
    either=lambda s, x: s.b | (x > 0),
    never=lambda s, x: (x > 0) & torch.tensor(False),
    first=lambda s, x: torch.tensor(False) | (x > 0),
    other=lambda s, x: (x > 0) ^ s.b,
    product=lambda s, x: (x > 0) * (x < 1),
    total=lambda s, x: (x > 0) + (x < 1),
    no=lambda s, x: ~s.b,
    logical=lambda s, x: torch.logical_not(x),
    any_of=lambda s, x: (x > 0).any(-1),
    all_of=lambda s, x: (x > 0).all(),
    same=lambda s, x: x == x,
    finite=lambda s, x: x.isfinite(),
    bytes=lambda s, x: (x > 0).to(torch.uint8) * 200 + 100,
    bits=lambda s, x: (x > 0).long() & (x < 1).long(),
    constants=lambda s, x: s.b & torch.tensor(False))
NUMBERS = dict(
    n=lambda s, x: s.n,
    b=lambda s, x: s.b,
    v=lambda s, x: s.v,
    more=lambda s, x: s.n + 1,
    equal=lambda s, x: s.n == 5,
    by_size=lambda s, x: s.n * x.shape[0],
    negative=lambda s, x: -s.n + x.argmax(-1),
    quotient=lambda s, x: s.n // 2,
    ratio=lambda s, x: s.n / 2,
    kind=lambda s, x: s.n.float(),
    axes=lambda s, x: s.n[None],
    view=lambda s, x: s.n.view(1, 1),
    stacked=lambda s, x: torch.stack([s.n, x.argmax()]),
    joined=lambda s, x: torch.cat([s.n.view(1), x.argmax(-1)]),
    parts=lambda s, x: torch.stack([torch.tensor(1.0), x.sum()]),
    spread=lambda s, x: s.n.expand(x.shape[0]),
    most=lambda s, x: torch.maximum(s.n, x.argmax(-1)),
    bound=lambda s, x: x.clamp(max=s.n),
    power=lambda s, x: x ** torch.tensor(2.0),
    base=lambda s, x: torch.tensor(2.0) ** x,
    root=lambda s, x: x / torch.sqrt(torch.tensor(8.0)),
    above=lambda s, x: x > s.n,
    row=lambda s, x: F.embedding(s.n - 4, x.t()),
    remainder=lambda s, x: x.argmax(-1) % s.n,
    sum_of=lambda s, x: s.v.sum(),
    mean=lambda s, x: s.v.float().mean(),
    cents=lambda s, x: x.round(decimals=2),
    tens=lambda s, x: (x * 30).round(decimals=-1),
    whole=lambda s, x: x.round(),
    outer=lambda s, x: torch.einsum("i,j->ij", torch.arange(3), x[0]))


@unittest.skipIf(torch is None, "no torch")
class Types(Case):
    def of(self, functions):
        class Module(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("n", torch.tensor(5))
                self.register_buffer("b", torch.tensor(True))
                self.register_buffer("v", torch.tensor([3, 4, 7]))

            def forward(self, x):
                return {name: function(self, x) for name, function in functions.items()}
        compared(Module().eval(), [{"x": floats(n, 5)} for n in (3, 2, 6)], {"x": {0: "batch"}})

    def test_tensors_made(self):
        self.of(MADE)

    def test_chosen(self):
        self.of(CHOSEN)

    def test_logic(self):
        self.of(LOGIC)

    def test_numbers(self):
        self.of(NUMBERS)

    def refused_row(self, operation, row, *words):
        """What is refused where a row of the table is wrong."""
        from tfmc._aten_table import ATEN

        class Places(nn.Module):
            def forward(self, x):
                return x, torch.argmax(x, -1) * 0 + 50000000, torch.gt(x, 0)
        with mock.patch.dict(ATEN, {operation: row}):
            self.refused(tfmc.CompileError, words, tfmc.from_torch, Places().eval(), {"x": floats(3, 5)}, sizes={})

    def test_another_type_is_refused(self):
        self.refused_row("add", lambda w, node, x, y: "full([3], 50000000.0)",
                         "the output output1 is f32 in the text, and integers in the module", "test_torch_types.py:")
        self.refused_row("gt", lambda w, node, x, y: f"i32({w.text(x)} > 0.0)",
                         "the output output2 is integers in the text, and bool in the module", "test_torch_types.py:")

    def test_integers_are_exact(self):
        self.refused_row("add", lambda w, node, x, y: "i32(full([3], 0.0)) + 50000001", "the output output1 differs")

    def test_verify_torch_says_types(self):
        class Best(nn.Module):
            def __init__(self, kind):
                super().__init__()
                self.kind = kind

            def forward(self, x):
                return x.argmax(-1).to(self.kind), x > 0
        given = {"x": floats(3, 5)}
        model = tfmc.compile(tfmc.from_torch(Best(torch.int64).eval(), given, sizes={}))
        self.assertTrue(tfmc.verify_torch(model, Best(torch.int64), given).same)
        found = tfmc.verify_torch(model, Best(torch.float32), given)
        self.assertFalse(found)
        self.assertEqual(found.text, "the output output0 is int32, and float32 in the module")

    def test_products_of_integers_are_refused(self):
        class Product(nn.Module):
            def forward(self, x):
                return x @ x.mT
        self.refused(tfmc.CompileError, ["a product of matrices of integers", ".float()", "test_torch_types.py:"], tfmc.from_torch, Product().eval(),
                     {"x": torch.arange(6).view(2, 3)}, sizes={})


@functools.lru_cache(maxsize=None)
def of_function(n):
    return torch.arange(float(n))


@unittest.skipIf(torch is None, "no torch")
class Kept(Case):
    """Tables that forward makes once: the module computes afterwards as before, and again."""
    def test_tables_that_forward_keeps(self):
        class Keeps(nn.Module):
            def __init__(self):
                super().__init__()
                self.mask, self.made, self.list = None, {}, []

            @functools.lru_cache(maxsize=2)
            def row(self, n):
                return torch.ones(n) / 2

            def forward(self, x):
                n = x.shape[1]
                if self.mask is None or self.mask.shape[0] < n:
                    self.mask = torch.full((n, n), float("-inf")).triu(1)
                if "rate" not in self.made:
                    self.made["rate"] = torch.arange(8) / 8
                if not self.list:
                    self.list.append(torch.arange(8.0))
                if "shift" not in KEPT:
                    KEPT["shift"] = torch.arange(8) * 0.5
                y = x * self.made["rate"] + self.list[0] + KEPT["shift"] + self.row(8) + of_function(8)
                return (y @ y.mT / 1000 + self.mask[:n, :n]).softmax(-1) @ y
        module, inputs = Keeps().eval(), [{"x": floats(3, n, 8)} for n in (7, 4, 11)]
        compared(module, inputs, {"x": {0: "batch", 1: "time"}})
        self.assertEqual({type(v) for v in (module.mask, module.made["rate"], *module.list, KEPT["shift"], module.row(8))}, {torch.Tensor})
        wanted = Keeps().eval()(inputs[0]["x"])
        self.assertTrue(torch.equal(module(inputs[0]["x"]), wanted))

    def test_a_cache_by_sizes_is_refused(self):
        class BySize(nn.Module):
            def forward(self, x):
                return x * of_function(x.shape[1])
        self.refused(tfmc.CompileError, ["cannot be a key", "test_torch_types.py:"], tfmc.from_torch, BySize().eval(), {"x": floats(3, 7)},
                     sizes={"x": {1: "time"}})


if __name__ == "__main__":
    unittest.main()
