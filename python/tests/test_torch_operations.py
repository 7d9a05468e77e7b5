"""Operations of torch, one function each, through from_torch: right against torch in double at the example and at other
sizes, or refused with words that name the operation. Not run without torch.
"""
import unittest

import numpy as np
import tfmc
from support import Case
from torch_cases import compared, floats, ids, module_of, torch

if torch is not None:
    from torch.nn import functional as F

BT = {0: "batch", 1: "time"}
ROWS = {"x": BT}


def set_static(x):
    y = x.clone()
    y[:, 1:3] = 0
    y[:, -1] = x[:, 0]
    y[0] = 7.0
    y[:, :2, 1:3] = x[:, :2, 2:4]
    return y


def set_strided(x):
    y = torch.zeros(x.shape[1], 6)
    y[:, 0::2] = torch.sin(x[0, :, :3])
    y[:, 1::2] = torch.cos(x[0, :, 3:])
    z = torch.zeros(7, 5)
    z[1::3] = x[0, 0, :5]
    z[:, 1:4:2] = 2.0
    return y * x + z.sum()


def set_strided_run_time(x):
    y = x * 2
    y[:, ::2] = 1.0
    y[:, 1::3] = x[:, 1::3] - 1
    return y


def set_by_copies(x):
    y = torch.empty_like(x)
    y.copy_(x[:1])
    y[:, 1].fill_(3)
    y[..., 2].zero_()
    y[:, :, :2] += 1
    y[:, 0].mul_(2)
    return y


def set_by_positions(x):
    y = torch.zeros_like(x)
    y[:, [0, 2]] = x[:, [1, -1]]
    y[:, :, [-1]] = 5.0
    y[[0, 1], [1, 0]] = x[0, :2]
    z = x.clone()
    z[:, torch.arange(3), torch.tensor([2, 0, 1])] = 0.5
    return y + z


def set_by_positions_adding(x):
    y = x.clone()
    y.index_put_((torch.tensor([0, 1, 0]),), x[:1], accumulate=True)
    return y.index_add(1, torch.tensor([1, 1, 0]), x[:, :3]).index_fill(2, torch.tensor([0, -1]), 2.0)


def set_by_booleans(x, keep):
    y = x.clone()
    y[keep] = 0.0
    y[:, keep[0]] = 2.0
    y[x > 1] = -1.0
    return y


def scattered_slices(x):
    y = torch.slice_scatter(x, x[:, 1:3] * 2, 1, 0, 2)
    return torch.select_scatter(y, x[:, 0], 1, -1)


def lists(x):
    return (x[:, [-1], :] + x[:, [-1, 0, 1]] * 2)[:, [2, 1, 0]] - x[:, [-2]] + x[:, :3][:, :, [5, 1, 0, 0, -1, 2]]


def run_time_indices(x, at):
    rows = torch.arange(x.shape[0])
    return x[rows, at] + x[rows, :, at] .sum(1, keepdim=True) + x[at % 2 - 1][:, at].sum((1, 2))[:, None]


def many_axes(x):
    i, j = torch.tensor([0, -1])[:, None], torch.tensor([2, 0, -3])
    return x[:, i, j].sum(1) + x[i, :, j].sum((0, 2)) + x.transpose(0, 1)[1:3, i[:, 0]].sum()


def vectors(x):
    v, w = x[0, 0], x[0, 1]
    return x @ v + (w @ x.transpose(1, 2)) + torch.dot(v, w) + torch.mv(x[0], v)[:1] + v @ w + (v @ x[0].t()).sum() + torch.outer(v, w).sum()


def negative_padding(x):
    return F.pad(x, (-1, 2, 1, -2)).sum(1) + F.pad(x, (-2, -1)).sum((1, 2))[:, None]


def cut_beyond(x):
    return x[:, 2:6].sum(1) + x[:, -9:].sum(1) + x[:, :100].sum(1) + x[:, :, 3:99].sum((1, 2))[:, None]


def least_of_sizes(x):
    n = min(x.shape[1], 6)
    return x[:, :n].sum(1) + x[:, -n:].mean(1) + torch.arange(max(n, 2)).sum()


def chunks(x):
    a, b = x.chunk(2, 1)
    return a.sum(1) - b.sum(1) + x[:, x.shape[1] // 2:].mean(1)


def detached(x):
    return x.data.eq(0) | ~(x.detach().data > 0)


def made_in_forward(x):
    return torch.nn.LayerNorm(6)(x) + torch.nn.LayerNorm(6).to(x.device)(x * 2) + torch.nn.GroupNorm(2, x.shape[2])(x.transpose(1, 2)).transpose(1, 2)


def bytes_as_masks(x):
    n = x.shape[1]
    low = torch.triu(torch.ones(n, n), 1).byte()
    pad = (x[:, :, 0] > 0).byte().unsqueeze(1)
    mask = torch.gt(pad + low, 0)
    both = (pad & low) | (1 - pad)
    return x @ x.transpose(1, 2).masked_fill(mask, -3.0) [:, :6, :] * 0 + 1 if False else (
        (x @ x.transpose(1, 2)).masked_fill(mask, -3.0) + both.bool() * 2.0 + (both ^ 1 if False else ~both).float() + (low - 1).float())


def byte_arithmetic(x):
    b = (x * 40).abs().byte()
    return (b + 250).float() + (b * b).int() - (-b).long() + (b - 3) + (~b).float() + b.float().sum()


def norms(x):
    n = F.normalize(x, dim=-1) + F.normalize(x, p=1, dim=1) + F.normalize(x, p=float("inf"), dim=2)
    return (n + x.norm() + x.norm(dim=1, keepdim=True) + torch.linalg.norm(x, dim=-1, keepdim=True) + x.norm(p=3, dim=2)[..., None]
            + torch.linalg.vector_norm(x, dim=(1, 2))[:, None, None])


def similarities(x):
    y = x.flip(1)
    return (F.cosine_similarity(x, y, dim=-1) + F.cosine_similarity(x[:, :, None], y[:, None], dim=3).sum(1)
            + F.pairwise_distance(x, y) + torch.cdist(x, y).sum(2))


def one_hots(x):
    at = x.argmax(-1)
    return F.one_hot(at, 6) * 2 + F.one_hot(at).float() * x if False else F.one_hot(at, 6) * 2 + F.one_hot(at, 6).float() * x


def extremes(x):
    low = x.topk(2, 1, largest=False)
    kth = x.kthvalue(2, dim=2)
    whole = (x * 3).long()
    return (x.argmin(-1) + x.argmin(1, keepdim=True).sum(-1) + low.values.sum((1, 2))[:, None] + low.indices.sum((1, 2))[:, None]
            + kth.values + kth.indices + x.argmax() + whole.argmax(1).sum(1)[:, None] + whole.min(2).indices + (whole == whole.max(2, keepdim=True).values).sum(2)
            + x.median(2).values + whole.max(1).values.sum(1)[:, None])


def not_numbers(x):
    y = torch.where(x > 1, float("inf"), x).where(x > -1, torch.full_like(x, float("-inf"))) * torch.where(x.abs() < 0.2, 0.0, 1.0)
    return y.isnan(), y.isinf(), y.isfinite(), torch.nan_to_num(y, 5.0, 7.0, -7.0), torch.logical_xor(y > 0, x > 0.5), (y > 0) ^ (x > 0)


def remainders(x):
    y = x.roll(1, 1) + 0.01
    k = (x * 7).long()
    return (torch.fmod(x * 50, y) * 0 + torch.fmod(x * 5, 0.7), torch.fmod(x * 5, -0.7), torch.remainder(x * 5, 0.7), x % 1.0, (x * 9) % 2.0,
            torch.fmod(k, 3), torch.fmod(k, -3), k % 3, torch.div(k, 2, rounding_mode="trunc"), torch.div(x * 5, 0.7, rounding_mode="floor"),
            torch.div(x * 5, 0.7, rounding_mode="trunc"), x * 5 // 0.7, torch.trunc(x * 1e6), x.frac(), torch.div(k, -2, rounding_mode="trunc"))


def near_zero(x):
    y = x * 1e-5
    return (torch.log1p(y) * 1e5, torch.expm1(y) * 1e5, torch.exp2(x * 9), torch.sinh(y) * 1e5, torch.cosh(x), torch.log2(x.abs()), torch.log10(x.abs()),
            F.elu(y) * 1e5, F.celu(x, 0.5), F.selu(x), F.elu(x, 1.5), torch.tan(x), torch.logaddexp(x, -x), torch.xlogy(x, x.abs()))


def products(x):
    return torch.addcmul(x, x, x.flip(1), value=0.5) + torch.addcdiv(x, x, x.abs() + 1, value=2) + torch.lerp(x, -x, 0.3) + x @ torch.eye(6)


def stacks(x):
    return torch.hstack((x, x)).sum(1) + torch.vstack((x, x))[:1].sum((0, 1)) + torch.dstack((x, x)).sum((1, 2))[:, None] + torch.column_stack((x[0], x[0])).sum()


def norms_of_layers(x):
    w = torch.arange(30.0).view(5, 6) / 30
    return F.layer_norm(x[:, :5], (5, 6), w, w * 2) + F.instance_norm(x.transpose(1, 2)).transpose(1, 2)[:, :5] + F.layer_norm(x[:, :5], (5, 6))


def losses(x, y):
    labels = (y[:, :, 0] > 0).long()
    logits = x.transpose(1, 2)
    weight = torch.tensor([1.0, 2.0, 0.5, 1.0, 1.0, 3.0])
    p = torch.sigmoid(x)
    return (F.mse_loss(x, y), F.l1_loss(x, y), F.smooth_l1_loss(x, y), F.huber_loss(x, y, delta=0.5), F.binary_cross_entropy(p, torch.sigmoid(y)),
            F.binary_cross_entropy_with_logits(x, torch.sigmoid(y)), F.cross_entropy(logits, labels), F.cross_entropy(logits, labels, weight=weight),
            F.cross_entropy(logits, labels, ignore_index=1, reduction="sum"), F.cross_entropy(logits, labels, label_smoothing=0.1),
            F.nll_loss(F.log_softmax(logits, 1), labels), F.cross_entropy(logits, torch.softmax(y, 2).transpose(1, 2)),
            F.kl_div(torch.log_softmax(x, -1), torch.softmax(y, -1), reduction="batchmean"), F.mse_loss(x, y, reduction="none"),
            F.cosine_embedding_loss(x[:, 0], y[:, 0], torch.ones(x.shape[0])), F.triplet_margin_loss(x[:, 0], y[:, 0], y[:, 1]),
            F.soft_margin_loss(x, torch.ones_like(x)), F.hinge_embedding_loss(x, torch.ones_like(x)))


def pools(x):
    y = x.transpose(1, 2)
    return (F.avg_pool1d(y, 3, 1, 1) + F.max_pool1d(y, 3, 1, 1) + F.avg_pool1d(y, 3, 1, 1, count_include_pad=False) + F.adaptive_avg_pool1d(y, 1)
            + F.adaptive_max_pool1d(y, 1), F.avg_pool1d(y, 3), F.max_pool1d(y, 2), F.adaptive_avg_pool1d(x, 4), F.adaptive_avg_pool1d(x, 3))


def pools_in_two(x):
    y = x[:, None].expand(-1, 2, -1, -1)
    return F.avg_pool2d(y, 2), F.max_pool2d(y, (2, 3), 1, 1), F.adaptive_avg_pool2d(y, 1), F.adaptive_avg_pool2d(y, (1, 4))


def windows(x):
    return x.unfold(1, 4, 2), x.unfold(-1, 3, 1), x.unfold(1, 2, 2)


def paddings(x):
    y = x.transpose(1, 2)
    return [F.pad(y, (2, 3), mode=mode) for mode in ("circular", "reflect", "replicate")] + [F.pad(y[:, :, :4, None].expand(-1, -1, -1, 4), (1, 0, 2, 1), mode="reflect")]


def transposed_convolutions(x):
    y, w = x.transpose(1, 2), torch.arange(6 * 2 * 3.0).view(6, 2, 3) / 36
    return (F.conv_transpose1d(y, w), F.conv_transpose1d(y, w, torch.ones(2), stride=2, padding=1, output_padding=1), F.conv_transpose1d(y, w, dilation=2),
            F.conv_transpose2d(y[:, :, :4, None].expand(-1, -1, -1, 3), torch.arange(6 * 2 * 4.0).view(6, 2, 2, 2) / 48, torch.ones(2), stride=2))


def booleans_that_are_known(x):
    """True and False given among tensors of booleans, by number and as tensors of no axis; extremes of booleans."""
    m, at = x > 0, (x * 2).long() % 6
    return (m.masked_fill(x > 1, False), m.masked_fill(x < -1, True), torch.where(m, True, x < -1), torch.where(m, x > 1, False),
            torch.where(m, False, x < 1), torch.where(m, True, False), m.scatter(2, at, True), m.scatter(2, at, False),
            torch.zeros_like(m).scatter_(2, at[..., :1], True), m[0].index_put((torch.arange(2), torch.tensor([0, 1])), torch.tensor(True)),
            torch.maximum(m, x > 1), torch.minimum(m, x < 1), torch.where(m, torch.tensor(True), x < -1))


def scattered(x):
    """Sums, means and extremes at places, with and without what stands there; places that nothing names, equal numbers."""
    at, one = (x * 2).long() % 5, torch.tensor([4, 0, 4, 2, 4, 1])
    y, n = x[..., :5] * 2, at % 3
    made = []
    for reduce in ("sum", "mean", "amax", "amin"):
        for include_self in (True, False):
            made += [y.scatter_reduce(2, at, x, reduce, include_self=include_self),
                     x.scatter_reduce(1, at[:, :2] % 2, x.round()[:, :2], reduce, include_self=include_self) if x.shape[1] == 2 else x,
                     n.scatter_reduce(2, n, at - 2, reduce, include_self=include_self)]
    for reduce in ("mean", "amax", "amin"):
        made += [y.index_reduce(2, one, x, reduce, include_self=False), y.index_reduce(2, one, x, reduce)]
    return *made, y.scatter(2, at, x, reduce="add"), torch.zeros_like(y).scatter_reduce_(-1, at, x.exp(), "sum")


def enlarged(x):
    return F.interpolate(x, scale_factor=2, mode="nearest"), F.interpolate(x, size=9, mode="linear"), F.interpolate(x[:, None, :4], size=(8, 12), mode="bilinear"), F.interpolate(x, size=4, mode="nearest")


def unfolded_images(x):
    return F.unfold(x[:, :4].reshape(-1, 1, 4, 6), (2, 3), stride=(2, 3)), F.pixel_shuffle(x[:, :4, :, None], 2)


def strided_views(x):
    y = x[:, :4].contiguous() * 1
    return y[0].as_strided((3, 4), (6, 1)) if False else y.sum(0).as_strided((3, 2, 2), (6, 2, 1), 1)


def integers_in_order(x):
    """What f32 holds is ordered as f32: bytes, booleans, remainders, and places of places."""
    at = (x * 2).long() % 6
    falling, where = at.sort(dim=-1, descending=True, stable=True)
    order = x.argsort(2)
    return (falling, where, at.sort(dim=-1, stable=True).values - 1, order.argsort(-1), (x > 0).sort(dim=-1, stable=True).values, at.topk(2).values,
            torch.topk(at - 3, 3, largest=False).values, at.kthvalue(2, 2).values, at.median(-1, keepdim=True).values, order.sort(-1).indices,
            (at - 3).to(torch.uint8).sort(dim=-1, stable=True).values)


def others(x):
    return (x.diagonal(0, 1, 2).sum(1), x[:, :3].prod(1), (x > 0).count_nonzero(1), torch.linspace(0, 1, 5) + x[:, :1, :5], x.movedim(1, 2).sum(2),
            x.narrow(1, 1, 2), x.tile(2)[..., :12], x.swapaxes(1, 2).sum(2), x.aminmax(dim=2).max,
            torch.std_mean(x, 2)[0], F.softmin(x, -1), F.tanhshrink(x), F.hardshrink(x), F.softshrink(x), F.threshold(x, 0.1, 2.0), F.prelu(x, torch.tensor([0.2])),
            torch.trace(x[0, :2, :2]), x.diff(dim=1), torch.heaviside(x, torch.tensor(0.5)), x.std(), x.std(unbiased=False), x.var(False), x.var((1, 2)), torch.meshgrid(x[0, 0], x[0, 1], indexing="ij")[0])


SAME = [
    (set_static, ROWS), (set_strided, ROWS), (set_strided_run_time, ROWS), (set_by_copies, ROWS), (set_by_positions, ROWS),
    (set_by_positions_adding, ROWS), (set_by_booleans, {"x": BT, "keep": BT}), (scattered_slices, ROWS), (scattered, ROWS), (booleans_that_are_known, ROWS), (lists, ROWS),
    (run_time_indices, {"x": {1: "time"}}), (many_axes, ROWS), (vectors, ROWS), (negative_padding, ROWS), (chunks, ROWS),
    (detached, ROWS), (made_in_forward, ROWS), (bytes_as_masks, ROWS), (byte_arithmetic, ROWS), (norms, ROWS),
    (similarities, ROWS), (one_hots, ROWS), (extremes, ROWS), (not_numbers, ROWS), (remainders, ROWS), (near_zero, ROWS),
    (products, ROWS), (stacks, ROWS), (norms_of_layers, ROWS), (losses, {"x": BT, "y": BT}), (pools, ROWS), (pools_in_two, ROWS),
    (windows, ROWS), (paddings, ROWS), (transposed_convolutions, ROWS), (enlarged, {"x": {0: "batch"}}),
    (unfolded_images, {"x": {0: "batch"}}), (strided_views, {"x": {0: "batch"}}), (integers_in_order, ROWS), (others, ROWS),
]


def inputs_of(function, sizes, batch, time):
    made = {}
    for i, name in enumerate(function.__code__.co_varnames[:function.__code__.co_argcount]):
        made[name] = floats(batch, time, 6, seed=5 + i) if name in "xy" else floats(batch, time) > 0 if name == "keep" else (
            torch.tensor([-1, 0, 3, -4, 2, 1]))
    return made


def shapes_of(sizes):
    moving = set(sizes["x"].values())
    if moving == {"time"}:
        return (6, 5), (6, 8)
    return ((2, 5), (3, 5)) if moving == {"batch"} else ((3, 7), (2, 10), (5, 9))


@unittest.skipIf(torch is None, "no torch")
class Operations(Case):
    def test_operations(self):
        for function, sizes in SAME:
            with self.subTest(function.__name__):
                calls = [inputs_of(function, sizes, *shape) for shape in shapes_of(sizes)]
                if function is run_time_indices:
                    calls = [{**call, "x": call["x"][..., :5]} for call in calls]
                compared(module_of(function), calls, sizes)


@unittest.skipIf(torch is None, "no torch")
class Divisions(Case):
    """By 0, of and by what is not finite, of what has no room for a fraction: f32 as torch has it."""

    def test_whole_quotients(self):
        ends = torch.tensor([0.0, -0.0, 1, -1, 5, -5, 3.5, 0.1, 0.3, 1e9, 1e12, -1e20, 1e-20, float("inf"), -float("inf"), float("nan")])
        x, y = ends.repeat_interleave(len(ends)), ends.repeat(len(ends))
        for function in (lambda x, y: x // y, lambda x, y: torch.div(x, y, rounding_mode="floor"), lambda x, y: torch.div(x, y, rounding_mode="trunc")):
            model = tfmc.compile(tfmc.from_torch(module_of(function), {"x": torch.tensor([7.0, 8]), "y": torch.tensor([2.0, 3])}, sizes={"x": {0: "n"}, "y": {0: "n"}}))
            found = list(model.run({"x": x.numpy(), "y": y.numpy()}).values())[0]
            np.testing.assert_allclose(found, function(x, y).numpy(), rtol=2e-7)

    def test_numbers_and_scalars(self):
        for function in (lambda x: 7 // x, lambda x: 5.5 % x, lambda x: torch.fmod(x, 2.5), lambda x: x // 2):
            for example in (torch.tensor([2.0, -3, 0.7]), torch.tensor(0.7)):
                model = tfmc.compile(tfmc.from_torch(module_of(function), {"x": example}, sizes={}))
                found = list(model.run({"x": example.numpy()}).values())[0]
                self.assertEqual(found.shape, tuple(example.shape))
                np.testing.assert_allclose(found, function(example).numpy(), rtol=1e-6)


@unittest.skipIf(torch is None, "no torch")
class Conditions(Case):
    """What holds for the example's side of a size alone is a condition of every run."""

    def conditional(self, function, good, bad, words):
        calls = [{"x": floats(*shape)} for shape in good]
        source = compared(module_of(function), calls, ROWS)
        model = tfmc.compile(source)
        for shape in bad:
            self.refused(tfmc.InputError, words, model, floats(*shape).numpy())

    def test_slices_that_end_with_the_axis(self):
        self.conditional(lambda x: x[:, 2:6].sum(1), [(2, 5, 6), (3, 4, 6)], [(2, 9, 6)], "no more than 5 for time")
        self.conditional(lambda x: x[:, 2:6].sum(1), [(2, 8, 6), (3, 9, 6)], [(2, 4, 6)], "time")

    def test_the_least_of_two_sizes(self):
        self.conditional(lambda x: x[:, :min(x.shape[1], 6)].sum(1), [(2, 5, 6), (3, 4, 6)], [(2, 9, 6)], "another way")
        self.conditional(lambda x: x[:, :min(x.shape[1], 6)].sum(1), [(2, 8, 6), (3, 9, 6)], [(2, 5, 6)], "another way")

    def test_how_many_chunks_there_are(self):
        self.conditional(lambda x: torch.stack([part.sum(1) for part in x.chunk(3, 1)]), [(2, 7, 6), (3, 9, 6)], [(2, 4, 6)], "another way")


    def test_indices_beyond_the_end(self):
        """torch raises; the run refuses them, whether they are read or assigned."""
        for function in (lambda x, at: x[at], lambda x, at: x.index_put((at,), x[:1] * 0), lambda x, at: x.scatter(0, at[:, None].expand(-1, 6), 1.0)):
            inputs = {"x": floats(5, 6), "at": torch.tensor([0, 3])}
            model = tfmc.compile(tfmc.from_torch(module_of(function), inputs, sizes={"x": {0: "n"}}))
            model(inputs["x"].numpy(), at=[0, 4])
            self.refused(tfmc.InputError, "legal range", model, inputs["x"].numpy(), at=[0, 5])


@unittest.skipIf(torch is None, "no torch")
class Refused(Case):
    def test_operations_by_name_and_line(self):
        for function, words in (
                (lambda x: x * x.max().item(), "item()"), (lambda x: x[x > 0].sum(), "booleans"),
                (lambda x: torch.masked_select(x, x > 0), "masked_select"), (lambda x: x.nonzero(), "nonzero"),
                (lambda x: x + torch.rand_like(x), "rand_like"), (lambda x: torch.nn.Linear(6, 3)(x), "uniform"),
                (lambda x: (x * 3).long() & 3, "bits"), (lambda x: torch.atan2(x, x + 1), "atan2"),
                (lambda x: F.avg_pool1d(x, 4, ceil_mode=True), "ceil_mode"), (lambda x: x.sort(1).values, "sort"),
                (lambda x: F.adaptive_avg_pool1d(x.transpose(1, 2), 3), "adaptive pooling"),
                (lambda x: x.t().as_strided((2, 2), (1, 2)) if x.ndim == 2 else x.as_strided((2, 2), (1, 2)), "as_strided"),
                (lambda x: torch.fft.rfft(x).abs(), "fft"), (lambda x: x.topk(4, sorted=False).values, "topk(sorted=False)"),
                (lambda x: x.scatter_reduce(2, (x > 0).long(), x, "prod"), "reduces by prod"),
                (lambda x: x.scatter(2, (x > 0).long(), x, reduce="multiply"), "reduces by multiply"),
                (lambda x: x.scatter_reduce(2, (x > 0).long()[:, :2], x, "sum"), "a part of the other axes"),
                (lambda x: F.cross_entropy(x[:, 0], x[:, 0].argmax(1), reduction="none").exp().mean(), "reduction"), (lambda x: (x * 2).long().topk(2).values, "topk of integers that may be beyond 2**24"),
                (lambda x: torch.native_layer_norm(x, (6,), None, None, 1e-5)[1], "result 1 of aten.native_layer_norm"),
                (lambda x: (x * 2).long().sort(-1).values, "sort of integers that may be beyond 2**24")):
            with self.subTest(words):
                said = self.refused(tfmc.CompileError, words, tfmc.from_torch, module_of(function), {"x": floats(3, 7, 6)}, sizes=ROWS)
                self.assertIn(words, str(said))


if __name__ == "__main__":
    unittest.main()
