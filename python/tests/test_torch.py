"""Modules of torch as models: torch.nn's Transformer classes and classes of transformers against eager torch, at the
traced sizes and at others; what is refused, and how. Not run without torch (and transformers, for its classes).
"""
import collections
import os
import re
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import numpy as np

import tfmc
from support import Case

try:
    import torch
    from torch import nn
except ImportError:
    torch = None
try:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import transformers as hf
    hf.logging.set_verbosity_error()
except ImportError:
    hf = None

BT = {0: "batch", 1: "time"}
SMALL = dict(vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
             max_position_embeddings=64)


def ids(rows, columns, seed=3):
    return torch.randint(3, 60, (rows, columns), generator=torch.Generator().manual_seed(seed))


def floats(*shape, seed=5):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def numbers(value):
    return value.numpy().astype(np.int32) if value.dtype == torch.int64 else value.numpy()


def prepared(make):
    """A module with weights that make attention choose, in eval mode."""
    torch.manual_seed(1)
    module = make().eval()
    with torch.no_grad():
        for weight in module.parameters():
            weight.copy_(weight + 0.1 * torch.randn_like(weight) if weight.ndim == 1 else weight * 2)
    return module


def dump(text, *options):
    with tempfile.NamedTemporaryFile("w", suffix=".tfm") as file:
        file.write(text)
        file.flush()
        command = [os.environ.get("TFM_COMPILER", "tfmc"), "dump", *options, file.name]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"{' '.join(options)}: {done.stderr}\n{text}")
    return done.stdout


def nodes(text):
    """The nodes of a text's graph, each as what it is and what its operands are: how many there are of each."""
    known, found = {}, collections.Counter()
    for line in dump(text, "--stage=graph").splitlines():
        names, _, said = line.strip().partition(" = ")
        said = re.sub(r"%\d+", lambda m: known[m[0]], said or names)
        found[hash(said)] += 1
        for i, name in enumerate(names.split(", ")):
            known[name] = f"{hash(said)}.{i}"
    return found


class Case(Case):
    def exported(self, module, inputs, **named):
        """from_torch, whose text has the graph of the one with a statement an operation, node for node."""
        from tfmc import _export
        writers, write = [], _export.Writer.write
        with mock.patch.object(_export.Writer, "write", lambda w, *a: writers.append(w) or write(w, *a)):
            source = tfmc.from_torch(module, inputs, **named)
        self.assertEqual(nodes(source.text), nodes(writers[0].flat(*writers[0].frame[3:])))
        return source

    def same(self, make, *calls, sizes, **named):
        """The module, compiled with the first call's inputs, gives at each call what eager torch gives; the model."""
        module = prepared(make)
        source = self.exported(module, calls[0], sizes=sizes, **named)
        model = tfmc.compile(source, on_message=lambda message: self.fail(str(message)))
        for inputs in calls:
            with torch.no_grad():
                expected = module(**inputs)
            expected = expected if isinstance(expected, torch.Tensor) else next(
                v for v in (expected.values() if isinstance(expected, dict) else expected) if v is not None)
            result = model.run({name: numbers(value) for name, value in inputs.items()})
            got, wanted = next(iter(result.values())), expected.numpy()
            self.assertEqual(got.shape, wanted.shape)
            worst = np.abs(got.astype(float) - wanted).max() / max(1, np.abs(wanted).max())
            self.assertLessEqual(worst, 1e-5)
        return source, model

    def fused(self, source):
        """No attention is left as products and a softmax."""
        dump(source.text, "--stage=fused", "--require-fusion=attention")


@unittest.skipIf(torch is None, "no torch")
class Modules(Case):
    def test_multilayer_perceptron(self):
        def make():
            return nn.Sequential(nn.Embedding(60, 8), nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3))
        source, model = self.same(make, dict(input=ids(2, 9)), dict(input=ids(4, 5)), sizes=dict(input=BT), outputs=["y"])
        self.assertEqual(model.sizes, ("batch", "time"))
        self.assertEqual(list(model.outputs), ["y"])
        self.assertEqual(sorted(source.weights), ["0.weight", "1.bias", "1.weight", "3.bias", "3.weight", "4.bias", "4.weight"])

    def test_encoder_layers(self):
        for options in (dict(), dict(norm_first=True, activation="gelu"), dict(bias=False)):
            with self.subTest(options):
                self.fused(self.same(lambda: nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, **options),
                                     dict(src=floats(2, 9, 32)), dict(src=floats(3, 5, 32)), sizes=dict(src=BT))[0])

    def test_encoder_with_padding(self):
        def padding(rows, columns):
            return torch.arange(columns)[None] >= torch.arange(columns, columns - rows, -1)[:, None]
        def make():  # not the way with nested tensors, which gives zeros at padding
            layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
            return nn.TransformerEncoder(layer, 3, nn.LayerNorm(32), enable_nested_tensor=False)
        self.fused(self.same(
            make, *(dict(src=floats(r, c, 32), src_key_padding_mask=padding(r, c)) for r, c in ((2, 9), (3, 7))),
            sizes=dict(src=BT, src_key_padding_mask=BT))[0])

    def test_decoder(self):
        class Causal(nn.Module):
            def __init__(self):
                super().__init__()
                self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(32, 4, 64, batch_first=True), 2)

            def forward(self, tgt, memory):
                mask = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1])
                return self.decoder(tgt, memory, tgt_mask=mask, tgt_is_causal=True)
        source, _ = self.same(Causal, dict(tgt=floats(2, 5, 32), memory=floats(2, 9, 32)),
                              dict(tgt=floats(3, 7, 32), memory=floats(3, 4, 32)),
                              sizes=dict(tgt=BT, memory={0: "batch", 1: "source"}))
        self.fused(source)

    def test_decoder_layer(self):
        self.same(lambda: nn.TransformerDecoderLayer(32, 4, 64, batch_first=True),
                  dict(tgt=floats(2, 5, 32), memory=floats(2, 9, 32)),
                  dict(tgt=floats(3, 7, 32), memory=floats(3, 4, 32)),
                  sizes=dict(tgt=BT, memory={0: "batch", 1: "source"}))

    def test_transformer_with_a_mask(self):
        class Seq(nn.Module):
            def __init__(self):
                super().__init__()
                self.e, self.o = nn.Embedding(60, 32), nn.Linear(32, 60)
                self.t = nn.Transformer(32, 4, 2, 2, 64, batch_first=True)

            def forward(self, src, tgt):
                mask = torch.triu(torch.full((tgt.shape[1], tgt.shape[1]), float("-inf")), 1)
                return self.o(self.t(self.e(src), self.e(tgt), tgt_mask=mask))
        source, _ = self.same(Seq, dict(src=ids(2, 7), tgt=ids(2, 5)), dict(src=ids(3, 4), tgt=ids(3, 6)),
                              sizes=dict(src={0: "batch", 1: "source"}, tgt=BT))
        self.fused(source)

    def test_multihead_attention(self):
        for options in (dict(), dict(kdim=16, vdim=24), dict(bias=False)):
            keys, values = options.get("kdim", 32), options.get("vdim", 32)
            with self.subTest(options):
                self.same(lambda: nn.MultiheadAttention(32, 4, batch_first=True, **options),
                          *(dict(query=floats(b, t, 32), key=floats(b, s, keys, seed=6), value=floats(b, s, values, seed=7))
                            for b, t, s in ((2, 5, 9), (3, 7, 4))),
                          sizes=dict(query=BT, key={0: "batch", 1: "source"}, value={0: "batch", 1: "source"}))

    def test_attention_as_tutorials_write_it(self):
        class Own(nn.Module):
            def __init__(self):
                super().__init__()
                self.q, self.k, self.v, self.o = (nn.Linear(32, 32) for _ in range(4))

            def forward(self, x, mask):
                b, t, d = x.shape
                q, k, v = (f(x).view(b, t, 4, 8).permute(0, 2, 1, 3) for f in (self.q, self.k, self.v))
                e = torch.matmul(q, k.permute(0, 1, 3, 2)) / 8 ** 0.5
                e = e.masked_fill(mask[:, None, None] == 0, -1e10)
                return self.o(torch.matmul(torch.softmax(e, -1), v).permute(0, 2, 1, 3).contiguous().view(b, t, d))
        mask = torch.ones(2, 9, dtype=torch.long)
        mask[1, 6:] = 0
        self.fused(self.same(Own, dict(x=floats(2, 9, 32), mask=mask), dict(x=floats(2, 4, 32), mask=mask[:, 3:7]),
                             sizes=dict(x=BT, mask=BT))[0])

    def test_attention_with_heads_in_the_batch(self):
        """bmm over batch * heads, and masks, biases and distances that come before, after or between views."""
        def mask_between(q, k, v, mask, x):
            b, h, t, _ = q.shape
            q, k, v = (y.reshape(b * h, -1, 8) for y in (q * 8 ** -0.5, k, v))
            e = torch.bmm(q, k.transpose(1, 2)).view(b, h, t, t) + mask[:, None, None]
            return torch.bmm(torch.softmax(e.view(b * h, t, t), -1), v)

        def scores_on_a_bias(q, k, v, mask, x):
            b, h, t, _ = q.shape
            q, k, v = (y.reshape(b * h, -1, 8) for y in (q, k, v))
            slopes = torch.tensor([0.1, 0.3, 0.6, 1.0])[None, :, None].expand(b, h, 1).reshape(b * h, 1, 1)
            e = torch.baddbmm(torch.arange(t)[None, None] * slopes, q, k.transpose(1, 2), alpha=8 ** -0.5)
            return torch.bmm(torch.softmax(e.view(b, h, t, t) + mask[:, None, None], -1).view(b * h, t, t), v)

        def gathered(q, k, v, mask, x):
            b, h, t, _ = q.shape
            places = x[:1, :3].mean((0, 1)).view(4, 1, 8).repeat(1, 5, 1).repeat(b, 1, 1)
            q, k, v = (y.reshape(b * h, -1, 8) for y in (q, k, v))
            ids = (torch.arange(t)[:, None] - torch.arange(t)[None]).clamp(-2, 2) + 2
            e = torch.bmm(q, k.transpose(1, 2)) / 8 ** 0.5
            e = e + torch.gather(q @ places.transpose(1, 2), -1, ids[None].expand(b * h, t, t))
            return torch.softmax(e.view(b, h, t, t) + mask[:, None, None], -1).view(b * h, t, t) @ v

        class Own(nn.Module):
            def __init__(self, attention):
                super().__init__()
                self.attention = attention
                self.q, self.k, self.v, self.o = (nn.Linear(32, 32) for _ in range(4))

            def forward(self, x, mask):
                b, t, d = x.shape
                q, k, v = (f(x).view(b, t, 4, 8).transpose(1, 2) for f in (self.q, self.k, self.v))
                return self.o(self.attention(q, k, v, mask, x).view(b, 4, t, 8).transpose(1, 2).reshape(b, t, d))
        mask = torch.zeros(2, 9)
        mask[1, 6:] = -1e30
        for attention in (mask_between, scores_on_a_bias, gathered):
            with self.subTest(attention.__name__):
                self.fused(self.same(lambda: Own(attention), dict(x=floats(2, 9, 32), mask=mask), dict(x=floats(2, 4, 32), mask=mask[:, 3:7]),
                                     sizes=dict(x=BT, mask=BT))[0])

    def test_operations(self):
        """Rows of the table that the models above do not use."""
        class Many(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("order", torch.tensor([3, 0, 2]))
                self.register_buffer("keep", torch.tensor([True, False, True]))
                self.conv = nn.Conv1d(6, 6, 3, padding=1)
                self.scale = nn.Parameter(torch.tensor([1.5]))

            def forward(self, x, ids):
                t = x.shape[1]
                y = self.conv(x.transpose(1, 2)).transpose(1, 2) * self.scale
                y = y + nn.functional.pad(x[:, 1:], (0, 0, 0, 1)) - x.roll(1, 1) + x.flip(1) * t
                a, b = y.chunk(2, -1)
                c = torch.where(self.keep, a.clamp(-1, 1), b.abs() ** 1.5) + torch.cumsum(a, 1) / (t ** 0.5)
                d = y[..., self.order] * y.amax(-1, keepdim=True) - y.max(1, keepdim=True).values.mean()
                e = (ids.cumsum(1) * 2 % 7 // 2).float()[..., None] + (ids > 1.5)[..., None] * 2 + torch.arange(t)[:, None]
                rows = torch.arange(x.shape[0])
                last = y[rows, (ids > 30).sum(1) * 0 + 1]
                top = y.topk(2, -1).values.sum(-1, keepdim=True) + y.repeat_interleave(2, 1)[:, ::2, :1] * y.std(-1).mean() * 0
                return c + d + e + last[:, None, :3] + top + torch.gather(y, 1, ids[..., None] % 2).tanh() + y.argmax(-1)[..., None]
        self.same(Many, dict(x=floats(2, 9, 6), ids=ids(2, 9)), dict(x=floats(4, 5, 6), ids=ids(4, 5)),
                  sizes=dict(x=BT, ids=BT))

    def test_parentheses_that_say_nothing(self):
        from tfmc._layers import bare
        for text, wanted in (
                ("((a + b)) * c", "(a + b) * c"), ("(a * b) + (c - d)", "a * b + (c - d)"), ("(a - b) - (c - d)", "a - b - (c - d)"),
                ("(x @ y) * 0.5", "x @ y * 0.5"), ("x * (a @ b)", "x * (a @ b)"), ("f((x), (y + 1))", "f(x, y + 1)"),
                ("(x + y)[:, none]", "(x + y)[:, none]"), ("(f(x))[n]", "f(x)[n]"), ("-(a + b) * c", "-(a + b) * c"),
                ("(-x) ** 2.0", "(-x) ** 2.0"), ("(a ** b) ** c", "(a ** b) ** c"), ("a + (-1.0)", "a + (-1.0)"),
                ("(a < b) and (c < d)", "a < b and c < d"), ("(a < b) == c", "(a < b) == c"), ("(a or b) and c", "(a or b) and c"),
                ("not (a and b)", "not (a and b)"), ("not (not a)", "not (not a)"),
                ("rsqrt((a * b) + 1e-06)", "rsqrt(a * b + 1e-06)"),
                ("(f(x, axis = 1) + c) * d", "(f(x, axis = 1) + c) * d"), ("model_(x + y)", "model_(x + y)"),
                ("(5 * h)(x, y)", "(5 * h)(x, y)"), ("if (a) == b then (c) else (d + e)", "if a == b then c else d + e"),
                ("x[(a + b):(c)]", "x[a + b:c]"), ("where(m, (a @ b) * 2.0, (-inf))", "where(m, a @ b * 2.0, -inf)")):
            self.assertEqual(bare(text), wanted)

    def test_places_and_masks_without_their_first_axes(self):
        """Integers and booleans are written without axes of 1 in front, and have them wherever something looks at them."""
        class Places(nn.Module):
            def __init__(self, which):
                super().__init__()
                self.which = which

            def forward(self, x):
                b, t, d = x.shape
                i = torch.arange(t)[None, None]
                j, true = torch.arange(t)[None, :, None], torch.ones(1, 1, 1, dtype=torch.bool)
                mask = (i <= j) & (i >= 0) & true & (j > i - 3)
                far = torch.minimum((i - j).abs(), torch.full((1, t, t), 2))
                return (i, i + j, mask, far.float() + x[..., :1], torch.cat([i, j.transpose(1, 2)], 1),
                        torch.where(mask, x @ x.transpose(1, 2), 0.0), i[0] * 2, i.expand(b, 3, t), (i - j)[:, 1:, :2] + 1,
                        far.view(t, t), x[:, :, :1] * (mask & (x[..., :1] > 0)), j[..., 0] + i[:, 0], mask.sum(-1), ~mask[0],
                        torch.zeros(1, t, 1) + i, (far == torch.full((1, 1, 1), 2)).float().mean() * x,
                        torch.zeros(1, 1, 1, dtype=torch.bool) & mask, true | mask)[self.which]
        for which in range(18):
            with self.subTest(which):
                self.same(lambda: Places(which), dict(x=floats(2, 9, 4)), dict(x=floats(3, 5, 4)), sizes=dict(x=BT), outputs=["y"])

    def test_positions_in_f32(self):
        """Places along an axis that have become f32 stay f32 where a part of them is taken."""
        class Scaled(nn.Module):
            def forward(self, x):
                places = torch.arange(12).float()[None]
                return x * (places[:, :5] - 1)[:, :, None]
        self.same(Scaled, dict(x=floats(2, 5, 4)), dict(x=floats(3, 5, 4)), sizes=dict(x={0: "batch"}), outputs=["y"])

    def test_rms_norm_by_hand(self):
        """It is written as rms_norm where that is what it computes."""
        class Norm(nn.Module):
            def __init__(self, **named):
                super().__init__()
                self.weight, self.named = nn.Parameter(floats(4)), named

            def forward(self, x):
                mean = x.pow(2).mean(-1, keepdim=True)
                return self.weight * (x * torch.rsqrt(torch.add(mean, 0.5, **self.named)))
        for named, wanted in ({}, True), (dict(alpha=2), False):
            source, _ = self.same(lambda: Norm(**named), dict(x=floats(2, 5, 4)), dict(x=floats(3, 6, 4)), sizes=dict(x=BT),
                                  outputs=["y"])
            self.assertEqual("rms_norm(" in source.text or "RMSNorm(" in source.text, wanted, source.text)

    def test_places_that_values_decide(self):
        class Sorted(nn.Module):
            def forward(self, x, ids):
                zeros = torch.zeros_like(x)
                high, at = x.sort(-1, descending=True)
                low, _ = x.sort(1)
                chosen = zeros.scatter(-1, ids, 1.0) + zeros.scatter(1, ids[:, :1] % 3, x[:, 1:])
                weights, best = x.softmax(-1).topk(2, -1)
                routed = torch.zeros_like(x).scatter(-1, best, weights)
                return (high + at + low + chosen + x.scatter_add(2, ids, 2 * x) + routed + x.argsort(-1)
                        + x.argmax(-1, keepdim=True) + torch.cat([nn.functional.glu(x)] * 2, -1)
                        + (ids * 0).scatter(-1, ids, ids * 7))
        self.same(Sorted, dict(x=floats(2, 3, 6), ids=ids(2, 18).view(2, 3, 6) % 6),
                  dict(x=floats(4, 3, 6), ids=ids(4, 18).view(4, 3, 6) % 6), sizes=dict(x={0: "n"}, ids={0: "n"}))

    def test_einsum(self):
        class Products(nn.Module):
            def __init__(self):
                super().__init__()
                self.w = nn.Parameter(torch.randn(3, 4, 5))

            def forward(self, x, y):
                scores = torch.einsum("bihd,bjhd->bhij", x, y)
                mixed = torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), y)
                return (torch.einsum("bihd,hde->bie", mixed, self.w) + torch.einsum("...d,...d->...", x, x).sum(2)[..., None]
                        + torch.einsum("bihd,hde,bihd->bie", x, self.w, mixed) + torch.einsum("ijkl", x).sum((2, 3))[..., None]
                        + torch.einsum("bihd,kde->be", x, self.w)[:, None] + torch.einsum("bihd->b", y)[:, None, None]
                        + torch.einsum("bi,h->bhi", x[:, :, 0, 0], self.w[:, 0, 0]).sum(1)[..., None])
        source, _ = self.same(Products, dict(x=floats(2, 5, 3, 4), y=floats(2, 7, 3, 4)),
                              dict(x=floats(3, 4, 3, 4), y=floats(3, 6, 3, 4)), sizes=dict(x=BT, y={0: "batch", 1: "keys"}))
        self.fused(source)
        self.assertIn("einsum with a diagonal", str(Refusals("refuses").refuses(
            lambda self, x: torch.einsum("ii->i", x[:4, :4]), "diagonal", inputs={"x": floats(4, 4)}, sizes={})))

    def test_convolutions_that_overlap(self):
        self.same(lambda: nn.Sequential(nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.GELU(), nn.Conv2d(4, 6, (3, 2), groups=2)),
                  dict(input=floats(2, 3, 9, 8)), dict(input=floats(3, 3, 9, 8)), sizes=dict(input={0: "batch"}))
        self.same(lambda: nn.Sequential(nn.Conv1d(4, 6, 5, padding="same"), nn.Tanh(), nn.Conv1d(6, 6, 3, dilation=2, groups=6)),
                  dict(input=floats(2, 4, 12)), dict(input=floats(3, 4, 9)), sizes=dict(input={0: "batch", 2: "time"}))

    def test_shared_weights_and_ways_by_size(self):
        class Tied(nn.Module):
            def __init__(self):
                super().__init__()
                self.e, self.o = nn.Embedding(60, 8), nn.Linear(8, 60, bias=False)
                self.o.weight = self.e.weight

            def forward(self, ids):
                hidden = self.e(ids)
                return self.o(hidden + 1 if ids.shape[1] > 3 else hidden)
        source, model = self.same(Tied, dict(ids=ids(2, 6)), dict(ids=ids(3, 4)), sizes=dict(ids=BT))
        self.assertEqual(list(source.weights), ["e.weight"])
        self.refused(tfmc.InputError, "another way for time < 4", model, numbers(ids(2, 3)))

    def test_ways_by_two_sizes(self):
        class Ways(nn.Module):
            def forward(self, x, y):
                return x.sum(0) - y.sum(0) if x.shape[0] > y.shape[0] else x.sum(0) + y.sum(0)
        _, model = self.same(Ways, dict(x=floats(5, 4), y=floats(3, 4)), dict(x=floats(9, 4), y=floats(2, 4)),
                             sizes=dict(x={0: "n"}, y={0: "m"}))
        self.refused(tfmc.InputError, "another way", model, x=floats(3, 4).numpy(), y=floats(3, 4).numpy())

    def test_indices_and_bounds_that_torch_fills_in(self):
        class Filled(nn.Module):
            def forward(self, x, last):
                return nn.functional.hardtanh(x)[torch.arange(x.shape[0]), last] + x[last % 2, last]
        self.same(Filled, dict(x=floats(3, 5, 4), last=torch.tensor([-1, 4, 0])),
                  dict(x=floats(2, 7, 4), last=torch.tensor([3, -7])), sizes=dict(x=BT, last={0: "batch"}))

    def test_layers_and_repetitions(self):
        """Equal modules are one layer, numbers that differ its config; those in a row a repetition."""
        class Half(nn.Module):
            def __init__(self, d, n):
                super().__init__()
                self.linear, self.scale = nn.Linear(d, n), nn.Parameter(torch.ones(n))

            def forward(self, x):
                return torch.tanh(torch.sin(torch.cos(torch.tanh(self.linear(x))))) * self.scale  # more than a caller takes in

        class Block(nn.Module):
            def __init__(self, d):
                super().__init__()
                self.up, self.down, self.act = Half(d, 2 * d), Half(2 * d, d), nn.GELU()

            def forward(self, x, gate):
                return x + self.act(self.down(self.up(x))) * gate

        class Net(nn.Module):
            def __init__(self, depth):
                super().__init__()
                self.layer = nn.ModuleList(Block(8) for _ in range(depth))
                self.again, self.net = Block(8), nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))

            def forward(self, gate, x):
                for part in self.layer:
                    x = part(x, gate=gate)
                for _ in range(3):
                    x = self.again(x, gate)
                return self.net(x) @ self.layer[1].up.linear.weight.t()
        texts = []
        for depth in (2, 5):
            source, _ = self.same(lambda: Net(depth), dict(gate=floats(2, 1), x=floats(2, 8)),
                                  dict(gate=floats(3, 1), x=floats(3, 8)), sizes=dict(gate={0: "n"}, x={0: "n"}))
            self.assertEqual(len(source.weights), 6 * depth + 6 + 4)
            texts.append(source.text.replace(f"layers = {depth} * ", "layers = N * "))
        self.assertEqual(*texts)
        for line in ("layer Half(d, d_2) {", "up = Half(8, 16)", "down = Half(16, 8)", "linear_ = Linear(d, d_2) as \"linear\"",
                     "layers = N * Block() as \"layer\"", "net = 2 * Linear(8, 8)", "(3 * again)(",
                     "layers[1].up.linear_.weight"):
            self.assertIn(line, texts[0])

    def test_small_modules_and_general_ones(self):
        """Small modules stand where they are called, but for elements of lists of their class; calls of one class that
        differ in which arguments are equal are one layer."""
        class Mix(nn.Module):
            def __init__(self):
                super().__init__()
                self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

            def forward(self, x, y):
                z = torch.tanh(self.one(x)) + torch.sin(self.two(y))
                return torch.cos(z) * 0.5 + torch.tanh(z)

        class Small(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner, self.scale = nn.Linear(4, 4), nn.Parameter(torch.ones(4))

            def forward(self, x):
                return torch.tanh(self.inner(x)) * self.scale

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.mix, self.other, self.few = Mix(), Mix(), nn.ModuleList(Small() for _ in range(3))
                self.first, self.last = Small(), Small()

            def forward(self, x, y):
                x = self.other(self.mix(self.first(x), y), y)
                x = self.mix(x, x)
                for few in self.few:
                    x = few(x)
                return self.last(x)

        class Once(Net):
            def forward(self, x, y):
                return self.last(self.mix(self.first(x), y)) + self.other(y, y)
        for make in (Net, Once):
            source, _ = self.same(make, dict(x=floats(2, 4), y=floats(2, 4)), dict(x=floats(3, 4), y=floats(3, 4)),
                                  sizes=dict(x={0: "n"}, y={0: "n"}))
            self.assertEqual(source.text.count("layer Mix {"), 1, source.text)
            self.assertIn("mix(z, z)" if make is Net else "other(y, y)", source.text)
            self.assertEqual(source.text.count("layer Small {"), int(make is Net), source.text)
        self.assertIn('first_inner = Linear(4, 4) as "first.inner"', source.text)
        self.assertIn('weight last_scale: [4] as "last.scale"', source.text)

    def test_names_that_mean_something(self):
        """Classes, members and inputs that are called like words of the language, or like each other."""
        class layer(nn.Module):
            def __init__(self):
                super().__init__()
                for name in ("then", "model", "größe", "x", "mask", "time", "weight"):
                    self.add_module(name, nn.Linear(4, 4))
                self.relu = nn.ReLU()

            def forward(self, x, mask):
                for part in self.children():
                    x = part(x)
                return torch.relu(x) * mask[..., None]

        class Linear(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b_c, self.mask = layer(), layer(), layer()
                self.b = nn.ModuleDict({"c": nn.Linear(4, 4), "softmax": nn.Linear(4, 4)})

            def forward(self, x, mask):
                return torch.softmax(self.b["softmax"](self.b["c"](self.mask(self.b_c(self.a(x, mask), mask), mask))), -1)
        source, _ = self.same(Linear, dict(x=floats(2, 3, 4), mask=floats(2, 3)), dict(x=floats(4, 5, 4), mask=floats(4, 5)),
                              sizes=dict(x=BT, mask=BT), name="Own")
        self.assertIn("a.größe.bias", source.weights)

    def test_layers_that_take_turns(self):
        """Elements of a list whose arguments alternate are a loop; in which what it names stays as it is."""
        class Part(nn.Module):
            def __init__(self, scale):
                super().__init__()
                self.linear, self.scale = nn.Linear(4, 4), scale

            def forward(self, x, near, far=None):
                return (self.linear(x) + near) * self.scale + (0 if far is None else far)

        class Net(nn.Module):
            def __init__(self, first):
                super().__init__()
                self.parts, self.first = nn.ModuleList(Part(2 + i) for i in range(6 + first)), first

            def forward(self, x, y):
                a, b = torch.tanh(y), torch.sin(y + 1)
                for i, part in enumerate(self.parts):
                    x = part(x, a, y) if i < self.first else part(x, b if i % 3 == 2 else a)
                return x + b
        for first in (0, 1):
            source, _ = self.same(lambda: Net(first), *(dict(x=floats(n, 4), y=floats(n, 4, seed=6)) for n in (2, 3)),
                                  sizes=dict(x={0: "n"}, y={0: "n"}))
            place, turn = (r"i \+ 1", 1) if first else ("i", 2)
            self.assertRegex(source.text, rf"for i in 6 {{ (\w) = parts\[{place}\]\(\1, if i % 3 == {turn} then \w+ else \w+\)")

    def test_layers_called_in_between_and_by_others(self):
        """What is no call of its own becomes part of its caller: lines that lie apart, modules of somebody else."""
        class Part(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

            def forward(self, x, other):
                return torch.relu(self.a(x)) + other(self.b(x)) + other.weight.sum(), self.a(x).max(-1).values

        class Whole(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second, self.lent = Part(), Part(), nn.Linear(4, 4)

            def forward(self, x):
                y, top = self.first(x, self.lent)
                z, _ = self.second(y * top[:, None], self.lent)
                return z - y.topk(2, -1).values.sum(-1, keepdim=True), top
        source, _ = self.same(Whole, dict(x=floats(3, 4)), dict(x=floats(5, 4)), sizes=dict(x={0: "n"}))
        self.assertEqual(len(source.weights), 10)

    def test_outputs(self):
        class Two(nn.Module):
            def forward(self, x):
                return {"mean": x.mean(-1), "most": x.max(-1).values, "none": None}
        module, x = Two().eval(), floats(3, 5)
        model = tfmc.compile(tfmc.from_torch(module, dict(x=x), sizes=dict(x={0: "n"})))
        self.assertEqual(list(model.outputs), ["mean", "most"])
        model = tfmc.compile(tfmc.from_torch(module, dict(x=x), sizes=dict(x={0: "n"}), outputs=["most"]))
        np.testing.assert_array_equal(model(x.numpy()), x.max(-1).values.numpy())
        self.refused(tfmc.CompileError, "names 3, the module returns 2: mean, most", tfmc.from_torch, module, dict(x=x),
                     sizes=dict(x={0: "n"}), outputs=["a", "b", "c"])


@unittest.skipIf(torch is None, "no torch")
class Verifying(Case):
    """verify_torch: the same module, one with a weight changed, one changed after it was compiled, models of others."""

    def made(self, shift=None):
        module = prepared(lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 3,
                                                        nn.LayerNorm(16), enable_nested_tensor=False))
        if shift:
            with torch.no_grad():
                module.get_parameter(shift)[0] += 0.1
        return module

    def test_equal_modules_and_one_changed_weight(self):
        inputs = dict(src=floats(2, 5, 16))
        module = self.made()
        model = tfmc.compile(self.exported(module, inputs, sizes=dict(src=BT)))
        for other in (inputs, dict(src=floats(3, 7, 16))):
            found = tfmc.verify_torch(model, module, other)
            self.assertTrue(found and found.same and found.module is None, found)
            self.assertIn("agree", found.text)
        for weight, named in (("layers.1.linear2.bias", "layers.1.linear2"), ("norm.weight", "norm"),
                              ("layers.2.norm1.bias", "layers.2.norm1"), ("layers.0.linear1.weight", "layers.0.linear1"),
                              ("layers.1.self_attn.in_proj_bias", "layers.1.self_attn")):
            with self.subTest(weight):
                found = tfmc.verify_torch(model, self.made(shift=weight), inputs)
                self.assertFalse(found)
                self.assertEqual(found.module, named, found.text)
                self.assertGreater(found.distance, 1e-4)
                self.assertIn("the first module that differs is " + named, found.text)
        self.assertTrue(tfmc.verify_torch(model, self.made(shift="norm.bias"), inputs, tolerance=1.0))

    def test_modules_of_other_operations(self):
        """The weights are equal, what is done with them is not."""
        inputs, module = dict(src=floats(2, 5, 16)), self.made()
        model = tfmc.compile(self.exported(module, inputs, sizes=dict(src=BT)))
        module.layers[1].norm2.eps = 0.5
        self.assertEqual(tfmc.verify_torch(model, module, inputs).module, "layers.1.norm2")
        module.layers[1].norm2.eps = 1e-5
        self.assertTrue(tfmc.verify_torch(model, module, inputs))

    def test_modules_that_are_called_twice(self):
        class Twice(nn.Module):
            def __init__(self):
                super().__init__()
                self.part, self.last = nn.Linear(4, 4), nn.Linear(4, 4)

            def forward(self, x):
                return {"y": self.last(torch.relu(self.part(self.part(x)))), "x": x}
        module, inputs = prepared(Twice), dict(x=floats(3, 4))
        model = tfmc.compile(self.exported(module, inputs, sizes=dict(x={0: "n"})))
        self.assertTrue(tfmc.verify_torch(model, module, inputs))
        other = prepared(Twice)
        with torch.no_grad():
            other.last.bias += 0.5
        self.assertEqual(tfmc.verify_torch(model, other, inputs).module, "last")
        with torch.no_grad():
            other.part.bias += 0.5
        self.assertEqual(tfmc.verify_torch(model, other, inputs).module, "part")

    def test_changed_in_place_and_sources_of_others(self):
        module, inputs = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).eval(), dict(input=floats(3, 4))
        source = self.exported(module, inputs, sizes=dict(input={0: "n"}))
        model, text = tfmc.compile(source), tfmc.compile(source.text, weights=source.weights)
        with torch.no_grad():
            module[1].bias += 0.5
        found = tfmc.verify_torch(model, module, inputs)
        self.assertEqual((found.same, found.module), (False, "1"))
        self.assertIn("1.bias was changed after the model was made", found.text)
        found = tfmc.verify_torch(text, module, inputs)
        self.assertEqual((found.same, found.module), (False, None))
        self.assertIn("no module can be named", found.text)
        self.refused(tfmc.UsageError, "not a str", tfmc.verify_torch, model, "module", inputs)


@unittest.skipIf(torch is None, "no torch")
class Refusals(Case):
    def refuses(self, forward, words, inputs=None, sizes=None, kind=tfmc.CompileError, **named):
        class Given(nn.Module):
            def __init__(self):
                super().__init__()
                self.part = nn.Linear(4, 4)
        Given.forward = forward
        inputs = {"x": floats(3, 4)} if inputs is None else inputs
        return self.refused(kind, words, tfmc.from_torch, Given().eval(), inputs,
                            sizes={"x": {0: "n"}} if sizes is None else sizes, **named)

    def test_T01_an_operation_without_counterpart(self):
        class Sorted(nn.Module):
            def forward(self, x):
                return torch.linalg.inv(x[:, :, None] + x[:, None])

        class Whole(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.Sequential(nn.Linear(4, 4), Sorted())

            def forward(self, x):
                return self.layers(x)
        self.refused(tfmc.CompileError, ["aten.linalg_inv", "in layers.1 (Sorted)", "test_torch.py:", "write it with others"],
                     tfmc.from_torch, Whole().eval(), dict(x=floats(3, 4)), sizes=dict(x={0: "n"}))
        self.refuses(lambda self, x: x[x > 0], "cannot")
        self.refuses(lambda self, x: x.double() * 2, ["float64", "leave out the autocast, or the conversion"])

    def test_T01_dropouts_that_are_on_in_eval_mode(self):
        self.refuses(lambda self, x: nn.functional.dropout(x, 0.5), ["dropout", "training=self.training"])
        self.refuses(lambda self, x: nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.1),
                     ["dropout", "dropout_p = 0.0"])

    def test_T01_branches_on_values(self):
        self.refuses(lambda self, x: x + 1 if x.sum() > 0 else x, ["torch.export cannot export", "torch.where"])

    def test_T02_a_size_that_became_constant(self):
        self.refuses(lambda self, x: x + torch.zeros(3, 4), ["x: the size 'n' (axis 0) became the constant 3", "Take it out"])

    def test_T02_sizes_that_must_be_equal(self):
        self.refuses(lambda self, x, y: x + y, ["'n' and 'm' to be equal", "one name"],
                     inputs=dict(x=floats(3, 4), y=floats(3, 4)), sizes=dict(x={0: "n"}, y={0: "m"}))

    def test_T03_an_output_that_is_no_tensor(self):
        self.refuses(lambda self, x: (x, 3), ["output", "int 3", "tensors alone"])
        self.refuses(lambda self, x: None, "returns no tensor")

    def test_T04_training_mode(self):
        module = nn.Sequential(nn.Linear(4, 4), nn.Dropout()).eval()
        module[1].train()
        self.refused(tfmc.UsageError, ["1 (Dropout) is in training mode", "module.eval()"], tfmc.from_torch, module,
                     dict(input=floats(3, 4)), sizes={})

    def test_T05_weights_on_meta(self):
        with torch.device("meta"):
            module = nn.Linear(4, 4)
        self.refused(tfmc.UsageError, ["weight is on the device meta", "load the weights"], tfmc.from_torch, module.eval(),
                     dict(input=floats(3, 4)), sizes={})

    def test_calls_that_are_wrong(self):
        def same(self, x):
            return x
        usage = dict(kind=tfmc.UsageError)
        self.refuses(same, "no tensor of inputs=", sizes={"y": {0: "n"}}, **usage)
        self.refuses(same, "axes are 0 to 1", sizes={"x": {2: "n"}}, **usage)
        self.refuses(same, "is no name", sizes={"x": {0: "2 n"}}, **usage)
        self.refuses(same, "has a meaning", sizes={"x": {0: "sum"}}, **usage)
        self.refuses(same, "is 3 in x and 4 in x", sizes={"x": {0: "n", 1: "n"}}, **usage)
        self.refuses(same, "2 or more", inputs={"x": floats(1, 4)}, **usage)
        self.refuses(same, "float16", inputs={"x": floats(3, 4).half()}, **usage)
        self.refused(tfmc.UsageError, "not a str", tfmc.from_torch, "module", {}, sizes={})

    def test_torch_is_imported_when_it_is_called(self):
        code = "import sys, tfmc; assert 'torch' not in sys.modules"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        subprocess.run([sys.executable, "-c", code], check=True, env=environment)


class Names(Case):
    """Inputs are parameters of forward; needs no torch."""

    def test_names_that_forward_has_not_or_lacks(self):
        from tfmc._torch import _check_names

        class Plain:
            def forward(self, ids, mask=None, *, more):
                pass

        class Any:
            def forward(self, ids, **rest):
                pass

        class Nothing:
            def forward(self):
                pass

        for module, names, words in ((Plain(), ("input", "more"), ["'input'", "forward has not", "Plain.forward are ids, mask, more"]),
                                     (Plain(), ("ids", "more", "id"), ["'id'", "forward has not"]),
                                     (Plain(), ("ids", "self", "more"), ["'self'", "forward has not"]),
                                     (Plain(), ("ids", "mask"), ["lacks 'more'", "ids, mask, more"]),
                                     (Plain(), (), "lacks 'ids'"),
                                     (Any(), ("input",), "lacks 'ids'"),
                                     (Nothing(), ("x",), ["'x'", "Nothing.forward are none"])):
            with self.subTest(names=names):
                self.refused(tfmc.UsageError, words, _check_names, module, dict.fromkeys(names))
        for module, names in ((Plain(), ("ids", "more")), (Plain(), ("more", "mask", "ids")), (Any(), ("ids", "input")), (Nothing(), ())):
            _check_names(module, dict.fromkeys(names))

    @unittest.skipIf(torch is None, "no torch")
    def test_from_torch_says_it_before_it_exports(self):
        for inputs, words in (({"ids": ids(2, 3)}, "'ids', which forward has not: the parameters of Embedding.forward are input"),
                              ({}, "lacks 'input'")):
            error = self.refused(tfmc.UsageError, words, tfmc.from_torch, nn.Embedding(60, 4).eval(), inputs, sizes={})
            self.assertNotIn("torch.where", str(error))


def first(make, key):
    """A module of transformers that returns one tensor."""
    class First(nn.Module):
        def __init__(self):
            super().__init__()
            self.m = make()
            self.m.config.use_cache = False

        def forward(self, **inputs):
            return self.m(**inputs, return_dict=True)[key]
    return First


@unittest.skipIf(torch is None or hf is None, "no torch with transformers")
class Transformers(Case):
    """Classes of transformers, from configurations."""

    def encoder(self, make, padding=True):
        mask = torch.ones(2, 9, dtype=torch.long)
        mask[1, 6 if padding else 9:] = 0
        source, _ = self.same(first(make, "last_hidden_state"), dict(input_ids=ids(2, 9), attention_mask=mask),
                              dict(input_ids=ids(3, 7), attention_mask=torch.ones(3, 7, dtype=torch.long)),
                              sizes=dict(input_ids=BT, attention_mask=BT))
        self.fused(source)

    def causal(self, make):
        source, model = self.same(first(make, "logits"), dict(input_ids=ids(2, 9)), dict(input_ids=ids(3, 7)),
                                  sizes=dict(input_ids=BT), outputs=["logits"],
                                  generate="input_ids from logits { bos = 1  eos = 2 }")
        self.assertTrue(model.generation.incremental, model.generation.reason)
        self.fused(source)

    def translator(self, make):
        mask = torch.ones(2, 9, dtype=torch.long)
        source = {0: "batch", 1: "source"}
        source, _ = self.same(first(make, "logits"),
                              dict(input_ids=ids(2, 9), attention_mask=mask, decoder_input_ids=ids(2, 5)),
                              dict(input_ids=ids(2, 7), attention_mask=mask[:, 2:], decoder_input_ids=ids(2, 6)),
                              sizes=dict(input_ids=source, attention_mask=source, decoder_input_ids=BT))
        self.fused(source)

    def test_texts_are_a_page(self):
        """Whatever the number of layers, a text has at most 80 lines."""
        for make, names in (
                (lambda n: hf.BertModel(hf.BertConfig(**{**SMALL, "num_hidden_layers": n})),
                 ["layers = 5 * BertLayer() as", "self = BertSelfAttention()", 'intermediate_dense = Linear(32, 64) as "intermediate.dense"']),
                (lambda n: hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=60, n_embd=32, n_layer=n, n_head=4, n_positions=64)),
                 ["h = 5 * GPT2Block()", "c_attn = Conv1D(32, 96)", "forward(x: f32[batch, time, d]) = x @ weight + bias", "split_heads(x[..., :32], 4)", "linear(transformer(input_ids), transformer.wte.weight)"]),
                (lambda n: hf.LlamaForCausalLM(hf.LlamaConfig(**{**SMALL, "num_hidden_layers": n}, num_key_value_heads=2)),
                 ["layers = 5 * LlamaDecoderLayer()", 'gate_proj = Linear(32, 64, bias = false) as "mlp.gate_proj"', "embed_tokens = Embedding(60, 32)",
                  "norm = RMSNorm(32)", "cosine: f32[1, time, 8], sine: f32[1, time, 8]"])):
            module = prepared(lambda: make(5))
            module.config.use_cache = False
            text = self.exported(module, dict(input_ids=ids(2, 9)), sizes=dict(input_ids=BT),
                                 outputs=["last_hidden_state"] if "Bert" in names[0] else ["logits"]).text
            self.assertLessEqual(text.count("\n"), 60, text)
            for name in names:
                self.assertIn(name, text)

    def test_bert(self):
        for how in ("eager", "sdpa"):
            self.encoder(lambda: hf.BertModel(hf.BertConfig(**SMALL, attn_implementation=how)))

    def test_distilbert(self):
        self.encoder(lambda: hf.DistilBertModel(hf.DistilBertConfig(vocab_size=60, dim=32, n_layers=2, n_heads=4, hidden_dim=64)))

    def test_roberta(self):
        self.encoder(lambda: hf.RobertaModel(hf.RobertaConfig(**SMALL)))

    def test_electra(self):
        self.encoder(lambda: hf.ElectraModel(hf.ElectraConfig(**SMALL, embedding_size=16)))

    def test_albert(self):
        self.encoder(lambda: hf.AlbertModel(hf.AlbertConfig(**SMALL, embedding_size=16)))

    def test_mpnet(self):
        self.encoder(lambda: hf.MPNetModel(hf.MPNetConfig(**SMALL)))

    def test_modernbert(self):
        self.encoder(lambda: hf.ModernBertModel(hf.ModernBertConfig(
            **SMALL, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2)))

    def test_deberta_v2(self):
        """Its queries at padding see no key: zeros here, the mean of all values there."""
        for more in (dict(), dict(share_att_key=True, norm_rel_ebd="layer_norm", position_biased_input=False, type_vocab_size=0)):
            self.encoder(lambda: hf.DebertaV2Model(hf.DebertaV2Config(
                **SMALL, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8, **more)), padding=False)

    def test_texts_of_translators(self):
        """What the first layer computes for all is computed before them: then layers are equal, however many there are."""
        def t5(n):
            return hf.T5ForConditionalGeneration(hf.T5Config(vocab_size=60, d_model=32, d_kv=8, d_ff=64, num_layers=n, num_heads=4))

        def bart(n):
            return hf.BartForConditionalGeneration(hf.BartConfig(
                vocab_size=60, d_model=32, encoder_layers=n, decoder_layers=n, encoder_attention_heads=4,
                decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=40))
        source, bias = {0: "batch", 1: "source"}, "block.0.layer.0.SelfAttention.relative_attention_bias"
        for make, lines, names in (
                (t5, 85, ["block = 5 * T5Block()", f'relative_attention_bias = Embedding(32, 4) as "{bias}"',
                          "block(shared_weight[input_ids], mask, x)", "minimum(arange(time) - arange(time)[:, none], 0)",
                          'EncDecAttention = T5Attention() as "layer.1.EncDecAttention"', "x + SelfAttention(z, z, mask, y)",
                          'layer_norm_1 = RMSNorm(32) as "layer.1.layer_norm"']),
                (bart, 76, ["layers = 5 * BartEncoderLayer()", "layers = 5 * BartDecoderLayer()", "self_attn(x, x, mask)",
                            "encoder_attn(x, y, other)", 'encoder = BartEncoder() as "m.model.encoder"'])):
            text = self.exported(prepared(first(lambda: make(5), "logits")),
                                 dict(input_ids=ids(2, 9), attention_mask=torch.ones(2, 9, dtype=torch.long), decoder_input_ids=ids(2, 5)),
                                 sizes=dict(input_ids=source, attention_mask=source, decoder_input_ids=BT)).text
            self.assertLessEqual(text.count("\n"), lines, text)
            self.assertLessEqual(max(map(len, text.splitlines())), 130, text)
            self.assertEqual(text.count("Attention {"), 1, text)
            for name in [*names, "mask = expand(arange(time) <= arange(time)[:, none], [batch, 1, time, time])",
                         "expand((attention_mask != 0)[:, none, none, :], [batch, 1, source, source])"]:
                self.assertIn(name, text)
            for noise in ("full([]", "* 1.0", "none][", ">= 0", "transpose(reshape", "T5LayerNorm", "i32(full"):
                self.assertNotIn(noise, text)

    def test_t5_encoder(self):
        self.encoder(lambda: hf.T5EncoderModel(hf.T5Config(vocab_size=60, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)))

    def test_gpt2(self):
        self.causal(lambda: hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=60, n_embd=32, n_layer=2, n_head=4, n_positions=64)))

    def test_gpt_neox(self):
        self.causal(lambda: hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**SMALL)))

    def test_opt(self):
        self.causal(lambda: hf.OPTForCausalLM(hf.OPTConfig(vocab_size=60, hidden_size=32, ffn_dim=64, num_hidden_layers=2, num_attention_heads=4,
                                                           max_position_embeddings=64, word_embed_proj_dim=32)))

    def test_llama(self):
        self.causal(lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**SMALL, num_key_value_heads=2)))

    def test_mistral(self):
        self.causal(lambda: hf.MistralForCausalLM(hf.MistralConfig(**SMALL, num_key_value_heads=2, sliding_window=5)))

    def test_qwen2(self):
        self.causal(lambda: hf.Qwen2ForCausalLM(hf.Qwen2Config(**SMALL, num_key_value_heads=2)))

    def test_qwen3(self):
        self.causal(lambda: hf.Qwen3ForCausalLM(hf.Qwen3Config(**SMALL, num_key_value_heads=2, head_dim=8)))

    def test_gemma3(self):
        self.causal(lambda: hf.Gemma3ForCausalLM(hf.Gemma3TextConfig(**SMALL, num_key_value_heads=2, head_dim=8, sliding_window=5)))

    def test_phi3(self):
        self.causal(lambda: hf.Phi3ForCausalLM(hf.Phi3Config(**SMALL, num_key_value_heads=2, pad_token_id=0)))

    def test_t5(self):
        self.translator(lambda: hf.T5ForConditionalGeneration(hf.T5Config(
            vocab_size=60, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)))

    def test_bart(self):
        self.translator(lambda: hf.BartForConditionalGeneration(hf.BartConfig(
            vocab_size=60, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=40)))

    def test_vit(self):
        source, _ = self.same(
            first(lambda: hf.ViTModel(hf.ViTConfig(image_size=32, patch_size=8, hidden_size=32, num_hidden_layers=2,
                                                   num_attention_heads=4, intermediate_size=64)), "last_hidden_state"),
            dict(pixel_values=floats(2, 3, 32, 32)), dict(pixel_values=floats(3, 3, 32, 32)),
            sizes=dict(pixel_values={0: "batch"}))
        self.fused(source)


if __name__ == "__main__":
    unittest.main()
