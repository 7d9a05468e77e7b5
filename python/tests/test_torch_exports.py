"""What an export says of values beside their operations: which are results and state, which weights are trained, which
integers fit, which numbers are infinite, what inputs are called; and that from_torch compares what it writes. Not run
without torch.
"""
import os
import subprocess
import tempfile
import unittest
from unittest import mock

import numpy as np

import tfmc
from support import Case
from torch_cases import compared, floats, ids, module_of, nn, torch

if torch is not None:
    from torch.nn import functional as F

N = {0: "n"}
LOWEST = -3.4028234663852886e38


def given(forward, *inputs):
    """A module with this forward, and members of all kinds."""
    class Given(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.table = nn.Linear(4, 4), nn.Embedding(1009, 4)
            self.scale = nn.Parameter(torch.tensor(0.7))
            self.frozen = nn.Parameter(floats(4, seed=1), requires_grad=False)
            self.register_buffer("shift", floats(4, seed=2))
            self.register_buffer("count", torch.tensor(0))
            self.register_buffer("average", torch.zeros(4))
            self.register_buffer("hidden", floats(40, seed=3), persistent=False)
            self.root, self.number, self.few = torch.sqrt(torch.FloatTensor([8])), torch.tensor(3.0), torch.tensor([0.1, 0.3, 2.0, 1.0])
            self.many, self.calls = floats(40, seed=4), 0
    Given.forward = forward
    torch.manual_seed(0)
    return Given().eval()


class ExportCase(Case):
    def text_of(self, forward, inputs=None, sizes=None, **named):
        return tfmc.from_torch(given(forward), {"x": floats(3, 4)} if inputs is None else inputs,
                               sizes={"x": N} if sizes is None else sizes, **named)

    def right(self, forward, *calls, sizes=None, **named):
        return compared(given(forward), calls or ({"x": floats(3, 4)}, {"x": floats(5, 4, seed=9)}), sizes or {"x": N}, **named)

    def refuses(self, words, forward, inputs=None, sizes=None, kind=tfmc.CompileError, **named):
        return self.refused(kind, words, self.text_of, forward, inputs, sizes, **named)


@unittest.skipIf(torch is None, "no torch")
class Results(ExportCase):
    def test_changed_inputs_and_counters_are_no_outputs(self):
        def forward(self, x):
            x += 1
            self.count += 1
            self.average.mul_(0.9).add_(x.mean(0) * 0.1)
            return self.linear(x)
        module, x = given(forward), floats(3, 4)
        for named in ({}, {"outputs": ["y"]}):
            source = tfmc.from_torch(module, {"x": x}, sizes={"x": N}, **named)
            model = tfmc.compile(source)
            self.assertEqual(list(model.outputs), named.get("outputs", ["output0"]))
            np.testing.assert_allclose(model(x.numpy()), module.linear(x + 1).detach().numpy(), atol=1e-5)
        self.assertEqual((module.count, module.average.abs().sum()), (0, 0))  # as they were, and x, too
        np.testing.assert_array_equal(x, floats(3, 4))

    def test_changes_within_a_call_are_right(self):
        def overwritten(self, x):
            self.average.copy_(x.mean(0))
            y = x * 2
            y += self.average
            y[:, 1].mul_(3)
            return self.linear(y), y
        self.right(overwritten)

    def test_state_is_refused(self):
        def average(self, x):
            self.average.mul_(0.9).add_(x.mean(0) * 0.1)
            return self.linear(x) + self.average

        def counted(self, x):
            self.count += 1
            return x * self.count

        def parameter(self, x):
            self.scale += 1
            return x * self.scale
        for forward, name in (average, "average"), (counted, "count"), (parameter, "scale"):
            self.refuses([f"changes {name} in each call", "no state"], forward)
        self.right(lambda self, x: (self.average.add_(1), x * 2)[1])

    def test_names_of_outputs(self):
        source = self.text_of(lambda self, x: {"in": x + 1, "a b": x + 2, "mean": x.mean(-1), "x": x})
        self.assertEqual(list(tfmc.compile(source).outputs), ["output0", "output1", "mean", "x"])
        self.refuses("has a meaning", lambda self, x: x, outputs=["if"], kind=tfmc.UsageError)


@unittest.skipIf(torch is None, "no torch")
class Weights(ExportCase):
    def checked(self, source, loss="mean(mean(forward(x)))"):
        """What `tfmc check` says of the text with an objective."""
        text = source.text.rstrip().removesuffix("}")
        text += f"  fn objective(x: f32[n, 4]) {{ return loss = {loss} }}\n  train objective {{ lr = 1e-3 }}\n}}\n"
        with tempfile.NamedTemporaryFile("w", suffix=".tfm") as file:
            file.write(text)
            file.flush()
            done = subprocess.run([os.environ.get("TFM_COMPILER", "tfmc"), "check", file.name], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr + text)
        return done.stdout

    def test_parameters_alone_are_trained(self):
        def forward(self, x):
            y = self.linear(x) * self.scale + self.shift + self.frozen + self.hidden[:4] + self.many[:4]
            return y / self.root + self.number * self.few
        source = self.right(forward)
        self.assertIn("trained: 3 of 7 tensors, 21 numbers", self.checked(source))  # linear's two, and scale
        self.assertIn("weight scale: []", source.text)
        self.assertIn("/ 2.8284270763397217", source.text)
        self.assertEqual(sorted(source.weights), ["frozen", "hidden", "linear.bias", "linear.weight", "many", "scale", "shift"])
        self.assertEqual(sorted(source.constants), ["hidden", "many"])

    def test_frozen_modules_and_shared_ones(self):
        class Two(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
                self.c = nn.Linear(4, 4, bias=False)
                self.c.weight = self.a.weight
                self.norm = nn.BatchNorm1d(4)
                for weight in self.b.parameters():
                    weight.requires_grad = False

            def forward(self, x):
                return self.norm(torch.relu(self.c(torch.relu(self.b(torch.relu(self.a(x)))))))
        source = compared(Two().eval(), ({"x": floats(3, 4)}, {"x": floats(5, 4)}), {"x": N})
        self.assertIn("trained: 4 of 8 tensors", self.checked(source))

    def test_weights_go_back(self):
        """Names that are shared, buffers that the text has not and constants that the module has not."""
        class Own(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
                self.out, self.scale = nn.Linear(4, 4, bias=False), torch.sqrt(torch.FloatTensor([4]))
                self.out.weight = self.net[0].weight
                self.register_buffer("mask", torch.ones(3, 3, dtype=torch.bool).tril())
                self.many = floats(50)

            def forward(self, x):
                return self.out(self.net(x)) / self.scale + self.many[:4]
        source = tfmc.from_torch(Own().eval(), {"x": floats(3, 4)}, sizes={"x": N})
        weights = {name: value + 1 for name, value in source.weights.items()}
        other = Own()
        other.load_state_dict(source.state_dict(weights), strict=True)
        np.testing.assert_array_equal(other.out.weight.detach(), weights["net.0.weight"])
        np.testing.assert_array_equal(other.net[1].running_mean, weights["net.1.running_mean"])
        self.assertEqual(source.constants, ("many",))
        self.refused(tfmc.UsageError, "'other' is none", source.state_dict, {**weights, "other": weights["many"]})
        self.refused(tfmc.UsageError, "missing", source.state_dict, {})

    def test_numbers_of_a_module_are_no_weights(self):
        plain = given(lambda self, x: self.linear(x) / self.root)
        source = tfmc.from_torch(plain, {"x": floats(3, 4)}, sizes={"x": N})
        self.assertEqual(sorted(source.weights), ["linear.bias", "linear.weight"])
        plain.linear.load_state_dict({k.removeprefix("linear."): v for k, v in source.weights.items()}, strict=True)

    def test_names_of_weights_begin_with_no_digit(self):
        class Head(nn.Module):
            def __init__(self):
                super().__init__()
                self.head = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.BatchNorm1d(6), nn.Linear(6, 2))
                self.heads = nn.ModuleList(nn.Sequential(nn.BatchNorm1d(2), nn.PReLU(2)) for _ in range(2))

            def forward(self, x):
                x = self.head(x)
                return self.heads[0](x) + F.linear(x, self.heads[1][0].running_var.expand(2, 2)) + self.head[2].weight[:2]
        compared(Head().eval(), ({"x": floats(3, 4)}, {"x": floats(5, 4)}), {"x": N})

    def test_norms_of_a_sequence(self):
        compared(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, 1)).eval(),
                 ({"input": floats(3, 4)}, {"input": floats(5, 4)}), {"input": N})


@unittest.skipIf(torch is None, "no torch")
class Numbers(ExportCase):
    def test_the_least_number_in_arithmetic_is_itself(self):
        least = torch.finfo(torch.float32).min if torch is not None else 0
        for forward in (lambda x: torch.softmax(x + (1.0 - (x > 0).float()) * least, -1),
                        lambda x: torch.where(x > 0, x, least),
                        lambda x: torch.full((4,), least) * (x > 0) + x,
                        lambda x: torch.softmax(x + torch.triu(torch.full((4, 4), least), 1)[0] * (x > 9), -1),
                        lambda x: torch.maximum(x, torch.tensor(least)) + x.clamp(min=least, max=-least),
                        lambda x: torch.softmax(torch.where(x > 0, x, -least), -1),
                        lambda x: x.masked_fill(x > 0, float("inf")) * 1.0):
            source = compared(module_of(forward), ({"x": floats(3, 4)}, {"x": floats(5, 4, seed=7)}), {"x": N})
            self.assertNotIn("* (-inf)", source.text)

    def test_the_least_number_that_masks_scores_is_minus_infinity(self):
        def where(x):
            return torch.softmax(torch.where(x > 0.5, torch.finfo(x.dtype).min, x), -1) @ x.T

        def added(x):
            mask = torch.full((1, 4), torch.finfo(x.dtype).min).masked_fill(x[:1] < 0.5, 0)
            return torch.softmax(x + mask, -1)
        for forward in where, added:
            source = compared(module_of(forward), ({"x": floats(3, 4)},), {"x": N})
            self.assertIn("-inf", source.text)


@unittest.skipIf(torch is None, "no torch")
class Integers(ExportCase):
    SIZES = {"i": {0: "n", 1: "m"}} if torch is not None else None

    def looked_up(self, forward, *values, high=900):
        class Look(nn.Module):
            def __init__(self):
                super().__init__()
                self.table = nn.Embedding(1009, 4)

            def forward(self, i):
                return forward(self, i)
        torch.manual_seed(0)
        calls = [{"i": ids(3, 5, high=high)}, *({"i": torch.tensor(value)} for value in values)]
        return compared(Look().eval(), calls, self.SIZES)

    def test_hashes_of_ids_are_exact(self):
        far = [[2_000_000_000, -7, 0], [5, 2_147_483_647, 1]]
        self.looked_up(lambda self, i: self.table(i * 1000003 % 1009), far)
        self.looked_up(lambda self, i: self.table((i * 50000 + i) % 997), far)
        self.looked_up(lambda self, i: self.table((i[:, 1:] * 31 * 31 - i[:, :-1] * 2 ** 31 + 7) % 1009), far)

    def test_positions_and_ids_are_as_they_were(self):
        def forward(self, i):
            return self.table(i + 1) + self.table(torch.arange(i.shape[1]) + i[:, :1] * 0) + self.table((i - 2).abs())
        source = self.looked_up(lambda self, i: self.table(i + 1) + self.table(torch.arange(i.shape[1])))
        self.assertNotIn("//", source.text)
        self.looked_up(forward)

    def test_integers_of_no_known_range_have_a_bound(self):
        """Which the text refuses to leave, and which is wide enough for the example."""
        source = self.looked_up(lambda self, i: (i.cumsum(1) - 1, 1 - i, i.sum(1), i * 3))
        model = tfmc.compile(source)
        self.refused(tfmc.InputError, ('input "i"[0,0] = 2000000000, legal range is [-', "computed with i would not fit in 32 bits"),
                     model, np.full((2, 2), 2_000_000_000, np.int32))
        self.assertIn("would not fit in 32 bits", source.text)
        for forward in (lambda i: i * 1000003, lambda i: (i * 1000003) // 7 + 1, lambda i: i ** 4, lambda i: i + 3_000_000_000,
                        lambda i: i.masked_fill(i > 3, torch.iinfo(torch.int64).max), lambda i: (i * 40000).cumsum(1)):
            self.refused(tfmc.CompileError, "32 bits", tfmc.from_torch, module_of(forward), {"i": ids(3, 5) * 20000}, sizes=self.SIZES)
        self.refused(tfmc.CompileError, "input i has integers", tfmc.from_torch, module_of(lambda i: i > 3),
                     {"i": ids(3, 5) * 2 ** 31}, sizes=self.SIZES)

    def test_floats_that_become_integers(self):
        large = {"x": torch.tensor([[3e9, -3e9, 0.5, 7.9], [1e17, -1e17, 2.0 ** 31, -5.5]])}
        small = {"x": floats(3, 4)}
        for forward in (lambda x: (x * 10).long().clamp(0, 9), lambda x: x.long() > 5, lambda x: (x.sigmoid() * 10).long() + 3,
                        lambda x: torch.where(x.long() < 0, 0, 1)):
            compared(module_of(forward), (small, large), {"x": N})
        self.refused(tfmc.CompileError, ("made of floats", "do not fit in 32 bits", "in the module"), tfmc.from_torch,
                     module_of(lambda x: (x * 1e10).long()), small, sizes={"x": N})
        for forward in (lambda x: x.long() % 7, lambda x: x.long() + 1, lambda x: x.long(), lambda x: x.long().float()):
            source = compared(module_of(forward), (small,), {"x": N})
            self.refused(tfmc.InputError, ("an f32 that becomes an integer", "is beyond"), tfmc.compile(source), large["x"].numpy())

    def test_floats_that_become_integers_by_line(self):
        class Rounded(nn.Module):
            def forward(self, x):
                return x.long() + 1
        source = compared(Rounded().eval(), ({"x": floats(3, 4)},), {"x": N})
        model, large = tfmc.compile(source), np.full((3, 4), 3e9, np.float32)
        for run in (lambda: model(large), lambda: model.run({"x": large})):
            self.refused(tfmc.InputError, ("in the module (Rounded)", "test_torch_exports.py:", "is beyond"), run)
        self.assertIn("in the module (Rounded), test_torch_exports.py:", source.text.split("model ")[0])


@unittest.skipIf(torch is None, "no torch")
class Names(ExportCase):
    def test_inputs_that_are_called_like_functions(self):
        def forward(pad, max, sum, shape, t_len, w_x, padding, axis, stride):
            y = F.pad(pad, (1, 0))[:, :4] + max.max(-1, keepdim=True).values + sum.sum(-1, keepdim=True)
            return y * shape + t_len.mean() + w_x + padding + axis - stride, pad
        names = forward.__code__.co_varnames[:9]
        calls = [{name: floats(n, 4, seed=i) for i, name in enumerate(names)} for n in (3, 5)]
        source = compared(module_of(forward), calls, {name: N for name in names})
        self.assertEqual(list(tfmc.compile(source).inputs), list(names))
        self.assertTrue(tfmc.compile(tfmc.from_torch(module_of(forward), calls[0], sizes={name: N for name in names}, fold=False)))

    def test_words_of_the_language_are_refused(self):
        made = {}
        exec("def forward(weight): return weight + 1", made)
        self.refused(tfmc.UsageError, ["'weight' has a meaning", "another parameter"], tfmc.from_torch,
                     module_of(made["forward"]), {"weight": floats(3, 4)}, sizes={"weight": N})

    def test_inputs_that_forward_has_not(self):
        self.refused(tfmc.UsageError, ["names 'x'", "Linear.forward are input"], tfmc.from_torch, nn.Linear(4, 4).eval(),
                     {"x": floats(3, 4)}, sizes={"x": N})
        self.refused(tfmc.UsageError, ["lacks 'input2'", "input1, input2"], tfmc.from_torch, nn.Bilinear(4, 4, 2).eval(),
                     {"input1": floats(3, 4)}, sizes={"input1": N})


@unittest.skipIf(torch is None, "no torch")
class Messages(ExportCase):
    def test_advice_fits_the_error(self):
        advice = "write it with torch.where"
        self.refuses(advice, lambda self, x: x if x.sum() > 0 else -x)
        for forward in (lambda self, x: x.no_such_method(), lambda self, x: x @ x, lambda self, x: x.view(-1, 5)):
            self.assertNotIn(advice, str(self.refuses("cannot export", forward)))

    def test_conditions_without_values(self):
        self.refuses("torch.where", lambda self, x: x[torch.where(x.sum(-1) > 0)[0]])

    def test_recurrent_layers_and_scripts(self):
        for kind in nn.LSTM, nn.GRU:
            class Own(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.recurrent = kind(4, 4, batch_first=True)

                def forward(self, x):
                    return self.recurrent(x)[0]
            line = Own.forward.__code__.co_firstlineno + 1
            self.refused(tfmc.CompileError, [f"recurrent ({kind.__name__})", f"test_torch_exports.py:{line}"], tfmc.from_torch,
                         Own().eval(), {"x": floats(2, 5, 4)}, sizes={"x": {0: "n", 1: "time"}})
        script = torch.jit.script(nn.Linear(4, 4).eval())
        self.refused(tfmc.UsageError, "nn.Module that it was made of", tfmc.from_torch, script, {"input": floats(3, 4)}, sizes={})

    def test_unknown_operations_are_not_said_to_be_missing_in_the_language(self):
        message = str(self.refuses("linalg_inv", lambda self, x: torch.linalg.inv(x.T @ x)))
        self.assertIn("does not know how to write it", message)


@unittest.skipIf(torch is None, "no torch")
class Compared(ExportCase):
    """A text that is wrong is found by from_torch itself."""

    def wrong(self, words, row, text, forward=None, **named):
        """Refuses, with words, a text whose row of the table for an operation is another one."""
        from tfmc._aten_table import ATEN
        with mock.patch.dict(ATEN, {row: text}):
            return self.refuses(words, forward or self.block, **named)

    @staticmethod
    def block(self, x):
        return self.linear(F.gelu(self.table.weight[:4, :4] @ self.linear(x).T).T)

    def test_a_wrong_row_is_found(self):
        self.wrong(["first module that differs", "linear"], "linear", lambda w, node, x, *rest: f"linear({w.text(x)}, {w.text(rest[0])})")
        self.wrong("the output output0 differs", "gelu", lambda w, node, x, **k: f"gelu_tanh({w.text(x)})",
                   lambda self, x: F.gelu(x * 2))
        self.wrong("infinite or NaN", "log", lambda w, node, x: f"log(maximum({w.text(x)}, 0.0001))", lambda self, x: torch.log(x))

    def test_the_first_of_several_modules_is_named(self):
        class Block(nn.Module):
            def __init__(self, act):
                super().__init__()
                self.up, self.act = nn.Linear(4, 4), act

            def forward(self, x):
                return x + self.act(self.up(x))

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.blocks = nn.ModuleList([Block(nn.ReLU()), Block(nn.ReLU()), Block(nn.GELU()), Block(nn.ReLU())])

            def forward(self, x):
                for block in self.blocks:
                    x = block(x)
                return x
        from tfmc._aten_table import ATEN
        with mock.patch.dict(ATEN, {"gelu": lambda w, node, x, **k: f"gelu_tanh({w.text(x)})"}):
            self.refused(tfmc.CompileError, ["blocks.2", "by 0.0"], tfmc.from_torch, Net().eval(), {"x": floats(3, 4) * 2}, sizes={"x": N})

    def test_another_size_is_tried(self):
        self.wrong("for n = 4", "mean", lambda w, node, x, axes: f"sum({w.text(x)}, 0) / 3.0", lambda self, x: x.mean([0]) + 1)
        self.wrong(["fails for n = 4", "where the module gives a result"], "neg", lambda w, node, x: f"-{w.text(x)}[:, none][:, 0] + full([3, 4], 0.0)",
                   lambda self, x: -x)

    def test_sizes_that_the_module_does_not_take(self):
        self.right(lambda self, x: x + self.shift[:x.shape[0], None], {"x": floats(4, 4)}, {"x": floats(2, 4)})

    def test_what_a_module_decides_anew_is_found(self):
        def forward(self, x):
            self.calls += 1
            return x * self.calls
        self.refuses("its forward changes Given.calls", forward)

    def test_a_text_that_is_no_program_is_refused(self):
        self.wrong("the text fails at the example", "sin", lambda w, node, x: f"sine({w.text(x)})", lambda self, x: torch.sin(x))

    def test_it_may_be_left_out(self):
        from tfmc import _check
        from tfmc._aten_table import ATEN
        with mock.patch.dict(ATEN, {"sin": lambda w, node, x: f"cos({w.text(x)})"}):
            source = self.text_of(lambda self, x: torch.sin(x), check=False)
        self.assertTrue(source.text.startswith("# not compared with the module: check=False\n"), source.text)
        self.assertNotIn("not compared", self.text_of(lambda self, x: torch.sin(x)).text)
        with mock.patch.object(_check, "MOST", 1):
            self.assertIn("# not compared with the module: the example takes", self.text_of(lambda self, x: self.linear(x)).text)
        with mock.patch.object(_check, "INTERPRETED", 1):  # then by compiled code
            self.assertNotIn("not compared", self.text_of(lambda self, x: self.linear(x)).text)


if __name__ == "__main__":
    unittest.main()
