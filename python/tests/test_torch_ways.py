"""Modules that take another way for other sizes than those of the example, or in a later call: torch.export writes one way
down. The text of from_torch has the condition under which it holds, and a run with other sizes is refused. Not run without torch.
"""
import collections
import dataclasses
import math
import unittest

import tfmc
from support import Case
from torch_cases import compared, floats, nn, numbers, torch

Named = collections.namedtuple("Named", "x y")
BT, TWO = {"x": {0: "batch", 1: "time"}}, {"x": {0: "batch", 1: "t"}, "y": {0: "batch", 1: "u"}}


@dataclasses.dataclass
class Held:
    x: object
    y: object


if torch is not None:
    torch.utils._pytree.register_dataclass(Held)


def module_of(forward):
    return type("Way", (nn.Module,), {"forward": lambda self, x: forward(x)} if forward.__code__.co_argcount == 1 else
                {"forward": lambda self, x, y: forward(x, y)})().eval()


def padded(x):
    n = x.shape[1]
    if n % 8 != 0:
        x = nn.functional.pad(x, (0, 0, 0, 8 - n % 8))
    return x.view(x.shape[0], -1, 8, 4).mean(2)


@unittest.skipIf(torch is None, "no torch")
class Ways(Case):
    def ways(self, forward, sizes, right, refused):
        """right, refused: numbers of rows by input; the first is the example."""
        def call(lengths):
            batch, *lengths = lengths
            return {name: floats(batch, n, 4, seed=i) for i, (name, n) in enumerate(zip("xy", lengths))}
        module = module_of(forward)
        source = compared(module, [call(one) for one in right], sizes)
        model = tfmc.compile(source)
        for one in refused:
            with self.subTest(one):
                self.refused(tfmc.InputError, "the module takes another way", model.run, {k: numbers(v) for k, v in call(one).items()})
        return source

    def test_a_size_of_one(self):
        """torch.export takes sizes for 2 or more."""
        self.ways(lambda x: x.sum(-1).squeeze(), BT, ((3, 7), (2, 5)), ((1, 7), (3, 1), (1, 1)))
        self.ways(lambda x: x * 2 if x.shape[1] == 1 else x * 3, BT, ((3, 7), (1, 5)), ((3, 1), (1, 1)))
        self.ways(lambda x: x.diff(dim=1).sum(1) if x.shape[1] > 1 else x[:, 0], BT, ((3, 7), (1, 5)), ((3, 1),))

    def test_a_size_of_one_as_any_other(self):
        source = self.ways(lambda x: (x - x.mean(1, keepdim=True)).softmax(1), BT, ((3, 7), (1, 5), (3, 1), (1, 1)), ())
        self.assertNotIn("require", source.text)

    def test_multiples(self):
        self.ways(padded, BT, ((2, 5), (2, 9), (1, 15)), ((2, 8), (1, 16)))
        self.ways(lambda x: x.mean(1) if x.shape[1] % 8 else x.sum(1), BT, ((2, 5), (2, 9)), ((2, 8), (1, 16)))
        self.ways(lambda x: x.mean(1) if x.shape[1] % 2 else x.sum(1), BT, ((2, 6), (2, 8)), ((2, 7), (1, 1)))

    def test_fractions_of_sizes(self):
        """Of conditions on them the text has the sizes around the example for which they hold."""
        for forward, right, refused in (
                (lambda x: x * 2 if x.shape[1] / 2 > 3.4 else x * 3, ((3, 7), (2, 9)), ((3, 6), (3, 1))),
                (lambda x: x * 2 if 0.3 * x.shape[1] > 2 else x * 3, ((3, 7), (2, 9)), ((3, 6),)),
                (lambda x: x * 2 if x.shape[1] ** 0.5 > 2.6 else x * 3, ((3, 7), (2, 9)), ((3, 6),)),
                (lambda x: x[:, :int(x.shape[1] * 0.3)] * 2, ((3, 7), (2, 9)), ((3, 6), (3, 10))),
                (lambda x: x * 2 if round(x.shape[1] / 2) == 4 else x * 3, ((3, 7), (2, 9)), ((3, 6), (3, 10))),
                (lambda x: x * 2 if round(x.shape[1] * 0.3) % 2 == 0 else x * 3, ((3, 7), (2, 12), (2, 1)), ((3, 4), (3, 10))),
                (lambda x: x * min(1.0, 5 / x.shape[1]), ((3, 7), (2, 6)), ((3, 4),)),  # the same at 5, where the condition ends
                (lambda x: x * max(1.0, x.shape[1] / 4), ((3, 7), (2, 5)), ((3, 3),)),
                (lambda x: x * 2 if x.shape[1] / x.shape[0] > 1.5 else x * 3, ((3, 7), (4, 7)), ((5, 7), (3, 4)))):
            self.ways(forward, BT, right, refused)
        self.ways(lambda x: x * 2 if math.sqrt(x.shape[0] * x.shape[1]) > 3.5 else x * 3, BT, ((3, 7),), ((3, 4),))  # near ones agree
        self.refused(tfmc.CompileError, ["a branch on 0.7*", "test_torch_ways.py:", "compare whole numbers"], tfmc.from_torch,
                     module_of(lambda x: x * 2 if 0.7 * x.numel() > 50 else x * 3), {"x": floats(3, 7, 4)}, sizes=BT)

    def test_functions_of_fractions_of_sizes(self):
        """The export has the number of the example in place of the fraction, and near sizes give the same."""
        for forward, refused in ((lambda x: x * 2 if math.exp(x.shape[1] / 10) > 1.5 else x * 3, ((3, 6), (3, 4), (3, 30))),
                                 (lambda x: x * 2 if math.log(x.shape[1] * 0.5) > 0.5 else x * 3, ((3, 6), (3, 3))),
                                 (lambda x: x * 2 if math.exp(x.shape[1] // 3) > 7.2 else x * 3, ((3, 5), (3, 9)))):
            self.ways(forward, BT, ((3, 7),), refused)

    def test_fractions_whose_divisor_may_be_negative(self):
        """Multiplied with it, the order would turn round."""
        for forward in (lambda x: x * 2 if x.shape[1] / (x.shape[0] - 5) < -2.5 else x * 3,
                        lambda x: x * 2 if x.shape[1] / (10 - x.shape[0]) < 2.5 else x * 3):
            self.refused(tfmc.CompileError, ["a branch on", "test_torch_ways.py:", "compare whole numbers"], tfmc.from_torch,
                         module_of(forward), {"x": floats(3, 7, 4)}, sizes=BT)

    def test_bits_of_sizes(self):
        for forward, right, refused in (
                (lambda x: x * 2 if x.shape[1] & 1 else x * 3, ((3, 7), (2, 9), (2, 1)), ((3, 6), (3, 2))),
                (lambda x: x * 2 if x.shape[1] & 6 == 6 else x * 3, ((3, 7), (2, 14), (2, 134)), ((3, 5), (3, 8))),
                (lambda x: x * 2 if x.shape[1] & 5 else x * 3, ((3, 7), (2, 9)), ((3, 2), (3, 10)))):
            self.ways(forward, BT, right, refused)
        self.ways(lambda x: torch.cat([x, x[:, :x.shape[1] & 6].sum(1, keepdim=True)], 1), BT, ((3, 7), (2, 5), (2, 11)), ())

    def test_conditions_of_what_is_not_compared(self):
        """With check=False nothing tells which conditions torch has for itself: those are said."""
        def forward(x):
            y = x * 2 if x.shape[1] & 1 else x * 3
            return y + 1 if x.shape[1] / x.shape[0] > 2 else y * 5 if x.shape[1] == 9 else y
        source = tfmc.from_torch(module_of(forward), {"x": floats(3, 7, 4)}, sizes=BT, check=False)
        head = source.text.partition("\n")[0]
        self.assertIn("check=False; whether it takes another way where one of these does not hold was not tried: ", head)
        self.assertIn("batch >= 2, time >= 2", head)
        model = tfmc.compile(source)
        for shape in ((3, 8, 4), (3, 5, 4)):
            self.refused(tfmc.InputError, "the module takes another way", model.run, {"x": floats(*shape).numpy()})
        model.run({"x": floats(4, 9, 4).numpy()})

    def test_conditions_that_only_great_sizes_break(self):
        self.ways(lambda x: x * 2 if x.shape[1] % 512 else x * 3, BT, ((2, 7), (2, 513)), ((2, 512), (2, 1024)))
        self.ways(lambda x: x * 2 if x.shape[1] * x.shape[1] > 40000 else x * 3, BT, ((2, 7), (2, 200)), ((2, 201),))
        self.ways(lambda x: x * 2 if x.shape[1] * 1.0 > 9000.5 else x * 3, BT, ((2, 7), (2, 9000)), ((2, 9001),))

    def test_sizes_that_are_equal(self):
        self.ways(lambda x, y: x.mean(1) + y.mean(1) if x.shape == y.shape else x.mean(1) - y.mean(1), TWO, ((2, 5, 7), (3, 4, 6)),
                  ((2, 6, 6), (3, 4, 4)))
        self.ways(lambda x: x.mean(1) if x.shape[1] != 4 else x.sum(1), BT, ((2, 5), (2, 9), (4, 5)), ((2, 4), (4, 4)))

    def test_what_torch_alone_asks_is_no_condition(self):
        """Views and products ask whether sizes are equal, and have the same results."""
        source = self.ways(lambda x, y: (x @ y.mT).softmax(-1).reshape(x.shape[0], -1), TWO, ((2, 5, 7), (3, 4, 4), (4, 4, 4)), ())
        self.assertNotIn("require", source.text)

    def test_inputs_by_whatever_names(self):
        """What the export says of sizes of keywords, dicts, tuples and dataclasses is of the flat names of the text."""
        def way(x, y):
            return x.mean(1) + y.mean(1) if x.shape[1] > y.shape[1] else x.mean(1) - y.mean(1)
        x, y, short = floats(2, 7, 4), floats(2, 5, 4, seed=1), floats(2, 4, 4)
        t, u = TWO["x"], TWO["y"]
        for forward, inputs, names in (
                (lambda self, **given: way(given["x"], given["y"]), {"x": x, "y": y}, ("x", "y")),
                (lambda self, x, **given: way(x, given["y"]), {"x": x, "y": y}, ("x", "y")),
                (lambda self, b: way(b["a-b"], b["c d"]), {"b": {"a-b": x, "c d": y}}, ("b_a_b", "b_c_d")),
                (lambda self, b: way(b[0], b[1][0]), {"b": (x, [y])}, ("b_0", "b_1_0")),
                (lambda self, b: way(b.x, b.y), {"b": Named(x, y)}, ("b_x", "b_y")),
                (lambda self, b: way(b.x, b.y), {"b": Held(x, y)}, ("b_x", "b_y"))):
            with self.subTest(names):
                module = type("Way", (nn.Module,), {"forward": forward})().eval()
                model = tfmc.compile(tfmc.from_torch(module, inputs, sizes={names[0]: t, names[1]: u}))
                self.refused(tfmc.InputError, "the module takes another way otherwise", model.run, dict(zip(names, (short.numpy(), y.numpy()))))
                model.run(dict(zip(names, (x.numpy(), short.numpy()))))
                fixed = type("Fixed", (nn.Module,), {"forward": lambda self, **given: forward(self, **given) + torch.ones(2)[:, None]})().eval()
                self.refused(tfmc.CompileError, "the size 'batch' (axis 0) became the constant 2", tfmc.from_torch, fixed, inputs,
                             sizes={names[0]: t, names[1]: u})

    def test_the_cure_of_a_size_that_became_a_constant(self):
        module = module_of(lambda x, y: x + y)
        self.refused(tfmc.CompileError, "name axis 1 of y 'time' too if it is this size", tfmc.from_torch, module,
                     {"x": floats(2, 5, 4), "y": floats(2, 5, 4)}, sizes={**BT, "y": {0: "batch"}})

    def test_training(self):
        class Scores(nn.Module):
            def __init__(self):
                super().__init__()
                self.head = nn.Linear(4, 1)

            def forward(self, x):
                return self.head(x).squeeze()
        inputs, targets = {"x": floats(3, 5, 4)}, {"y": floats(3, 5)}
        source = tfmc.from_torch(Scores().eval(), inputs, sizes={**BT, "y": BT["x"]}, training=True, targets=targets,
                                 loss=lambda scores, y: ((scores - y) ** 2).mean())
        trainer = tfmc.Trainer(source, lr=0.1)
        trainer.step(x=inputs["x"].numpy(), y=targets["y"].numpy())
        self.refused(tfmc.InputError, "the module takes another way", trainer.step, x=inputs["x"][:1].numpy(), y=targets["y"][:1].numpy())

    def test_state_of_calls_with_one_size(self):
        """There is no other size at which it would be seen."""
        class Counts(nn.Module):
            calls = 0

            def forward(self, x):
                self.calls += 1
                return x * self.calls

        class Keeps(nn.Module):
            def __init__(self):
                super().__init__()
                self.before = torch.zeros(4)

            def forward(self, x):
                y, self.before = x + self.before, x.mean((0, 1))
                return y

        class Grows(nn.Module):
            def __init__(self):
                super().__init__()
                self.seen = []

            def forward(self, x):
                self.seen.append(1.0)
                return x + len(self.seen)
        for kind, name in ((Counts, "Counts.calls"), (Keeps, "Keeps.before"), (Grows, "Grows.seen")):
            self.refused(tfmc.CompileError, f"its forward changes {name}", tfmc.from_torch, kind().eval(), {"x": floats(2, 3, 4)}, sizes={})

    def test_what_is_kept_and_changes_nothing(self):
        class Cached(nn.Module):
            mask = None

            def forward(self, x):
                if self.mask is None:
                    self.mask = torch.arange(40.0)
                return x + self.mask[:x.shape[1], None]
        compared(Cached().eval(), [{"x": floats(2, 3, 4)}, {"x": floats(1, 9, 4)}], BT)


if __name__ == "__main__":
    unittest.main()
