"""Modules whose flags and defaults say what is computed: of attention, tables by bags, scatters, running operations, einsum,
norms in eval, losses, pads, products of no weight; for test_torch_idioms.py.
"""
import math

from idioms_table import floats, idiom, ids, nn, torch

F = nn.functional if nn else None
BT, B = {0: "batch", 1: "time"}, {0: "batch"}


@idiom(lambda b, t: {"x": floats(b, t, 24)}, {"x": BT})
class AxesByName(nn.Module):
    """What einops writes: axes taken apart and put together in other orders, repeated, reduced."""
    def forward(self, x):
        b, t, _ = x.shape
        heads = x.reshape(b, t, 2, 3, 4).permute(2, 0, 3, 1, 4)                        # b t (k h d) -> k b h t d
        pixels = x.reshape(b, t, 2, 3, 4).permute(0, 4, 1, 2, 3).reshape(b, 4, t * 2, 3)
        again = x[:, :, None].expand(b, t, 3, 24).reshape(b, t * 3, 24)
        tiled = x[:, None].expand(b, 3, t, 24).reshape(b * 3, t, 24)
        return (heads[0], heads[1].flatten(2), pixels, again.amax(-1), tiled.mean(1), x.unflatten(-1, (4, 6)).amin(2),
                x.reshape(b, -1).std(1, correction=0), x.transpose(0, 1).contiguous().view(t * b, 24)[:, ::5])


@idiom(lambda b, t: {"x": floats(b, t), "at": ids(b, 6, high=7) - 3, "v": floats(b, 6, seed=8)}, {"x": BT, "at": B, "v": B})
class PutAtPlaces(nn.Module):
    """Places that come several times and count from the end: added up, or the last one stays where all are alike."""
    def forward(self, x, at, v):
        rows = torch.arange(x.shape[0])[:, None]
        added = x.clone().index_put_((rows, at), v, accumulate=True)
        same = x.index_put((rows, at), torch.tensor(2.5))
        y = x.clone()
        y[rows, at] += 1.0                                                              # once for each place
        return added, same, y, x.index_put((rows, at % 3), v[:, :1] * 0 + 3.0)


@idiom(lambda b, t: {"x": floats(b, t), "at": ids(b, t, high=4), "v": floats(b, t, seed=8)}, {"x": BT, "at": BT, "v": BT})
class ReducedInPlaces(nn.Module):
    """scatter_reduce by each of its words, with and without what stands there."""
    def forward(self, x, at, v):
        made = [torch.scatter_reduce(x, 1, at, v, reduce=word, include_self=own) for word in ("sum", "amax", "amin", "mean")
                for own in (True, False)]
        counts = torch.zeros_like(x).scatter_add_(1, at, torch.ones_like(v))
        return (*made, counts)


@idiom(lambda b, t: {"x": (floats(b, t, 5) * 2).round()}, {"x": BT})
class RunningOfAllKinds(nn.Module):
    """Running extremes with their places among equal ones, running sums from behind and along other axes, differences."""
    def forward(self, x):
        high, low = torch.cummax(x.transpose(1, 2), -1), torch.cummin(x, -1)
        return (high.values, high.indices, low.values, low.indices, x.cumsum(0), x.cumsum(-1), x.flip(1).cumsum(1).flip(1),
                (x / 4).cumprod(-1), x.cumsum(1) - x, torch.diff(x, dim=1), torch.diff(x, dim=-1, n=2),
                torch.diff(x, dim=-1, prepend=x[..., :1] * 0))


@idiom(lambda b, t: {"x": floats(b, t, 6)}, {"x": BT})
class HiddenBuffers(nn.Module):
    """Buffers that are not saved, of integers and of flags, one that is None, one that is a parameter's other view."""
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(6, 6)
        self.register_buffer("scale", torch.linspace(0.5, 2, 6), persistent=False)
        self.register_buffer("order", torch.tensor([5, 3, 1, 0, 2, 4]), persistent=False)
        self.register_buffer("kept", torch.tensor([True, False, True, True, False, True]))
        self.register_buffer("absent", None)
        self.register_buffer("steps", torch.tensor(7))

    def forward(self, x):
        y = self.lin(x)[..., self.order] * self.scale
        y = y.masked_fill(~self.kept, 0.5) if self.absent is None else y + self.absent
        return y / self.steps, torch.where(self.kept, y, x) @ self.lin.weight.t()


@idiom(lambda b, t: {"x": floats(b, t, 6)}, {"x": BT})
class WeightsMadeOfWeights(nn.Module):
    """Norms of weights by rows, by columns and whole, in both spellings; orthogonal ones; one of one's own."""
    class Even(nn.Module):
        def forward(self, w):
            return w - w.mean(0, keepdim=True)

    def __init__(self):
        super().__init__()
        norm = nn.utils.parametrizations.weight_norm
        self.rows, self.columns, self.whole = norm(nn.Linear(6, 5)), norm(nn.Linear(6, 5), dim=1), norm(nn.Linear(6, 5), dim=None)
        self.old = torch.nn.utils.weight_norm(nn.Linear(6, 4))
        self.spun = nn.utils.parametrizations.orthogonal(nn.Linear(6, 6, bias=False), use_trivialization=False)
        self.own = nn.Linear(6, 5)
        nn.utils.parametrize.register_parametrization(self.own, "weight", self.Even())

    def forward(self, x):
        return self.rows(x), self.columns(x), self.whole(x), self.old(x), self.own(x) + self.rows.weight.sum()


@idiom(lambda b, t: {"x": floats(b, t, 8), "y": floats(b, 5, 6, seed=2)}, {"x": BT, "y": B})
class FlagsOfAttention(nn.Module):
    """Keys and values of other widths, a learned key, a zero key, weights of each head, time first, a mask for each head."""
    def __init__(self):
        super().__init__()
        self.a = nn.MultiheadAttention(8, 2, kdim=6, vdim=6, batch_first=True)
        self.b = nn.MultiheadAttention(8, 4, add_bias_kv=True, add_zero_attn=True, batch_first=True)
        self.c = nn.MultiheadAttention(8, 2, bias=False)

    def forward(self, x, y):
        b, t, _ = x.shape
        one, weights = self.a(x, y, y, average_attn_weights=False)
        two, mean = self.b(x, x, x, key_padding_mask=torch.arange(t).expand(b, t) > 2)
        future = torch.ones(t, t, dtype=torch.bool).triu(1)
        three, _ = self.c(x.transpose(0, 1), x.transpose(0, 1), x.transpose(0, 1), attn_mask=future, is_causal=True, need_weights=False)
        four, _ = self.c(x.transpose(0, 1), x.transpose(0, 1), x.transpose(0, 1), attn_mask=x.mean(-1).repeat_interleave(2, 0)[:, None].expand(2 * b, t, t))
        return one, weights, two, mean, three, four


@idiom(lambda b, t: {"x": floats(b, t, 12), "seen": torch.rand(b, t, generator=torch.Generator().manual_seed(4)) > 0.4}, {"x": BT, "seen": BT})
class FlagsOfProducts(nn.Module):
    """scale, is_causal with fewer queries and with more, groups of queries, rows of a bool mask that see nothing, three axes."""
    def forward(self, x, seen):
        b, t, _ = x.shape
        q, k = x.view(b, t, 4, 3).transpose(1, 2), x.view(b, t, 2, 6).transpose(1, 2)[..., :3]
        sdpa = F.scaled_dot_product_attention
        mask = seen[:, None, None].expand(b, 1, t, t) & (torch.arange(t)[:, None] > 0)
        return (sdpa(q, q, q, scale=0.25), sdpa(q[:, :, 2:], q, q, is_causal=True), sdpa(q, q[:, :, 1:], q[:, :, 1:], is_causal=True),
                sdpa(q, k, k, enable_gqa=True, scale=1.0), sdpa(q, k, k + 1, attn_mask=(x[..., 0] * 2)[:, None, None], enable_gqa=True),
                torch.nan_to_num(sdpa(q, q, q, attn_mask=mask)), sdpa(x, x, x[..., :5]), sdpa(q, q, q, attn_mask=x[:, None, :, :1]))


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT}, refused=("idioms_flags.py:",))
class DroppedInProducts(nn.Module):
    """A rate that a function is given counts in eval, too."""
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x, dropout_p=0.5)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT}, refused=("idioms_flags.py:",))
class DroppedByFunction(nn.Module):
    """F.dropout without its flag drops in eval."""
    def forward(self, x):
        return F.dropout(x, 0.3)


@idiom(lambda b, t: {"ids": ids(b, t), "w": floats(b, t)}, {"ids": BT, "w": BT})
class BagsByFlags(nn.Module):
    """Sums, means and maxima of rows, with weights of their own."""
    def __init__(self):
        super().__init__()
        self.total, self.mean, self.most = (nn.EmbeddingBag(20, 5, mode=mode) for mode in ("sum", "mean", "max"))
        self.plain = nn.EmbeddingBag(20, 4)

    def forward(self, ids, w):
        return self.total(ids, per_sample_weights=w), self.mean(ids), self.most(ids), self.plain(ids)


@idiom(lambda b, t: {"x": floats(b, t, 4), "other": floats(b, t, 4, seed=9)}, {"x": BT, "other": BT})
class FilledByOrder(nn.Module):
    """index_fill, index_copy, take_along_dim, gather and scatter by an order."""
    def __init__(self):
        super().__init__()
        self.register_buffer("at", torch.tensor([3, 1]))

    def forward(self, x, other):
        order = x.argsort(-1, descending=True)
        return (x.index_fill(-1, self.at, -2.0), x.index_copy(-1, self.at, other[..., :2]), torch.take_along_dim(x, order, -1),
                x.gather(-1, order.flip(-1)), x.scatter(-1, order[..., :1], 9.0), other.gather(-1, other.argsort(-1)),
                torch.take_along_dim(other, x.argmax(1, keepdim=True), 1), x.index_select(2, self.at))


@idiom(lambda b, t: {"x": floats(b, t, 6)}, {"x": BT}, refused=("an index by booleans", "idioms_flags.py:"))
class KeptByFlags(nn.Module):
    """Columns of a mask that is a buffer."""
    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.tensor([True, False, True, True, False, True]))

    def forward(self, x):
        return x[..., self.kept]


@idiom(lambda b, t: {"ids": ids(b, t)}, {"ids": BT}, refused=("padding_idx", "idioms_flags.py:"))
class BagsWithPadding(nn.Module):
    """Padding counts for no mean."""
    def __init__(self):
        super().__init__()
        self.mean = nn.EmbeddingBag(20, 5, mode="mean", padding_idx=3)

    def forward(self, ids):
        return self.mean(ids)


@idiom(lambda b, t: {"x": floats(b, t, 4), "mask": torch.rand(b, t, 4, generator=torch.Generator().manual_seed(4)) > 0.5, "v": floats(b, t, 4, seed=8)},
       {"x": BT, "mask": BT, "v": BT}, refused=("masked_scatter", "idioms_flags.py:"))
class ScatteredByMask(nn.Module):
    """masked_scatter takes the source's elements one after the other, in the order of all axes."""
    def forward(self, x, mask, v):
        return x.masked_scatter(mask, v), x.masked_scatter(mask[..., :1], v)


@idiom(lambda b, t: {"x": floats(b, t, 4)}, {"x": BT})
class TurnedAround(nn.Module):
    """roll over several axes; flips, quarter turns."""
    def forward(self, x):
        return (torch.roll(x, (1, -2), (1, 2)), torch.roll(x[0, 0], 3, 0), torch.roll(x, 3, 1), x.roll(-1, -1), x.flip((1, 2)), x.fliplr(),
                torch.rot90(x, 1, (1, 2)), torch.rot90(x, 2, (1, 2)), torch.rot90(x, -1, (2, 1)), torch.roll(x.flatten(1), 5, -1))


@idiom(lambda b, t: {"x": floats(b, t, 4)}, {"x": BT}, shapes=((3, 8), (2, 12), (5, 4)))
class WindowsPutBack(nn.Module):
    """Windows that overlap, and what fold adds up of them again."""
    def forward(self, x):
        windows = x.unfold(1, 4, 2)
        columns = F.unfold(x[:, None], (2, 2), stride=(2, 2))
        return windows.sum(-1), windows[..., ::2].mean((1, 2)), columns, F.unfold(x[:, None], 3, padding=1, dilation=2).amax(1)


@idiom(lambda b, t: {"x": floats(b, t, 4), "s": floats(b, 4, 4, seed=2)}, {"x": BT, "s": B})
class LettersOfAllKinds(nn.Module):
    """Sums over letters that are dropped, results in the order of the alphabet, ellipses that broadcast."""
    def __init__(self):
        super().__init__()
        self.w, self.u = nn.Parameter(torch.randn(2, 4, 3)), nn.Parameter(torch.randn(4, 5))

    def forward(self, x, s):
        e = torch.einsum
        return (e("bji", s), e("tbc->", x), e("btc->c", x), e("cb,ab", self.u.t(), s[0]),
                e("...i,ij", x, self.u), e("b...i,hij->bh...j", x, self.w), e("btc,bsc,bsd->btd", x, x, s[:, :1].expand(-1, x.shape[1], -1)),
                e("bij,bjk,bkl->bil", s, s, s), e("i,j->ij", self.u[:, 0], self.u[0]), e(x, [0, 1, 2], self.u, [2, 3], [0, 3, 1]), e("bij->bji", s))


@idiom(lambda b, t: {"x": (floats(b, t) * 4).round() / 2}, {"x": BT})
class NumbersInBins(nn.Module):
    """Numbers that lie on a border belong right or left of it; borders of each row."""
    def __init__(self):
        super().__init__()
        self.register_buffer("borders", torch.tensor([-1.5, -0.5, 0.0, 0.5, 2.0]))
        self.table = nn.Embedding(6, 3)

    def forward(self, x):
        left, right = torch.bucketize(x, self.borders), torch.bucketize(x, self.borders, right=True)
        rows = self.borders + x[:, :1]
        return left, right, torch.searchsorted(self.borders, x, side="right"), torch.searchsorted(rows, x), torch.searchsorted(rows, x, right=True), self.table(left)


@idiom(lambda b, t: {"x": floats(b, t, 5)}, {"x": BT}, refused=("idioms_flags.py:",))
class StatisticsOfTheBatch(nn.Module):
    """A norm that keeps no statistics takes those of the batch, in eval, too: of all items together."""
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(5, track_running_stats=False)

    def forward(self, x):
        return self.norm(x.transpose(1, 2))


@idiom(lambda b, t: {"x": floats(b, 6, t)}, {"x": {0: "batch", 2: "time"}})
class NormsOfKinds(nn.Module):
    """Norms of instances with statistics that were kept, without weights, over two axes, of neighbours, eps of the type."""
    def __init__(self):
        super().__init__()
        self.kept, self.free = nn.InstanceNorm1d(6, affine=True, track_running_stats=True), nn.InstanceNorm1d(6)
        self.kept.running_mean.uniform_(-1, 1)
        self.kept.running_var.uniform_(0.5, 2)
        self.batch = nn.BatchNorm1d(6, affine=False, eps=1e-3)
        self.batch.running_mean.uniform_(-1, 1)
        self.group, self.near = nn.GroupNorm(3, 6, affine=False), nn.LocalResponseNorm(3)
        self.two, self.root = nn.LayerNorm((3, 2), bias=False), nn.RMSNorm(6)

    def forward(self, x):
        rows = x.transpose(1, 2)
        return (self.kept(x), self.free(x), self.batch(x), self.group(x), self.near(x), self.two(rows.unflatten(-1, (3, 2))), self.root(rows),
                F.layer_norm(rows, (6,)), F.normalize(x, p=1, dim=1), F.normalize(x, dim=2, eps=0.5))


@idiom(lambda b, t: {"x": floats(b, t, 5)}, {"x": BT})
class SumsWithFactors(nn.Module):
    """beta and alpha of sums of products; a factor of 0 leaves out what is NaN."""
    def __init__(self):
        super().__init__()
        self.w, self.b = nn.Parameter(torch.randn(5, 4)), nn.Parameter(torch.full((4,), math.nan))
        self.c = nn.Parameter(torch.randn(4))

    def forward(self, x):
        rows = x.flatten(0, 1)
        return (torch.addmm(self.b, rows, self.w, beta=0), torch.addmm(self.c, rows, self.w, beta=0.5, alpha=2),
                torch.baddbmm(x @ x.transpose(1, 2), x, x.transpose(1, 2), beta=-1, alpha=0.5), torch.addcmul(x, x, x, value=-0.5),
                torch.addcdiv(x, x, x.abs() + 1, value=2), torch.lerp(x, x * 2, 0.3), torch.sub(x, x, alpha=3), torch.rsub(x, 1, alpha=2))


@idiom(lambda b, t: {"x": floats(b, 4, t), "y": floats(b, 4, t, seed=3)}, {"x": {0: "batch", 2: "time"}, "y": {0: "batch", 2: "time"}}, shapes=((3, 8), (2, 12), (5, 6)))
class Borders(nn.Module):
    """What stands beyond the borders: mirrored, repeated, gone round, cut away."""
    def forward(self, x, y):
        return (F.pad(x, (2, 1), mode="reflect"), F.pad(x, (2, 3), mode="replicate"), F.pad(x, (3, 1), mode="circular"), F.pad(x, (-1, 2), value=0.5),
                F.pad(x, (1, -2, -1, 1)), F.pad(torch.stack((x, y), 1), (1, 2, 1, 1), mode="reflect"), F.pad(torch.stack((x, y), 1), (0, 1, 2, 0), mode="replicate"),
                F.conv1d(F.pad(x, (1, 1), mode="circular"), x.new_ones(2, 4, 3)))


@idiom(lambda b, t: {"x": floats(b, 4, t)}, {"x": {0: "batch", 2: "time"}}, shapes=((3, 8), (2, 12), (5, 6)))
class PoolsByFlags(nn.Module):
    """Pools with padding that counts or not, that reach beyond the end, of distances, of uneven parts."""
    def forward(self, x):
        image = x[:, None]
        return (F.avg_pool1d(x, 3, 2, padding=1), F.avg_pool1d(x, 3, 2, padding=1, count_include_pad=False), F.max_pool1d(x, 3, 2, dilation=1, padding=1),
                F.lp_pool1d(x.abs(), 2, 2), F.avg_pool2d(image, 2, ceil_mode=False), F.max_pool2d(image, 2, return_indices=False),
                F.adaptive_avg_pool1d(x.transpose(1, 2), 3), F.adaptive_max_pool1d(x.transpose(1, 2), 2), F.adaptive_avg_pool2d(image, 1), F.avg_pool2d(image, (4, 1)))


@idiom(lambda b, t: {"x": floats(b, t, 6), "classes": ids(b, t, high=6) - 1}, {"x": BT, "classes": BT})
class LossesByFlags(nn.Module):
    """Weights of classes, classes that do not count, smoothed ones, probabilities as a target, sums and means of each kind."""
    def __init__(self):
        super().__init__()
        self.register_buffer("w", torch.tensor([0.5, 1, 2, 1, 0.2, 3]))

    def forward(self, x, classes):
        rows, flat = x.flatten(0, 1), classes.flatten()
        soft = x.softmax(-1)
        return (F.cross_entropy(rows, flat, weight=self.w, ignore_index=2), F.cross_entropy(rows, flat, label_smoothing=0.1),
                F.cross_entropy(x.transpose(1, 2), classes, reduction="none"), F.cross_entropy(rows, soft.flatten(0, 1).roll(1, -1)),
                F.kl_div(soft.log(), soft.roll(1, 1), reduction="batchmean"), F.kl_div(soft.log(), soft.log().roll(1, 1), reduction="sum", log_target=True),
                F.binary_cross_entropy_with_logits(x, soft, pos_weight=self.w), F.nll_loss(soft.log().flatten(0, 1), flat, reduction="sum", ignore_index=0),
                F.smooth_l1_loss(x, soft, beta=0.3), F.huber_loss(x, soft, delta=0.3), F.soft_margin_loss(x, soft.sign()))


@idiom(lambda b, t: {"x": (floats(b, t, 5) * 2).round() / 2}, {"x": BT})
class OrderAmongEqual(nn.Module):
    """Which of equal numbers is first: of maxima with places, of stable orders, of medians, of the k-th."""
    def forward(self, x):
        return (x.max(1).indices, x.min(-1).indices, x.argmax(-1), x.argmin(1, keepdim=True), torch.sort(x, dim=-1, stable=True).indices,
                torch.sort(x, dim=-1, descending=True, stable=True).indices, x.median(-1).values, x.kthvalue(2, -1).values, x.topk(3, -1).values,
                x.topk(2, 1, largest=False).values, x.aminmax(dim=-1).max, x.flatten(1).max(1).values, x.count_nonzero(-1))


@idiom(lambda b, t: {"x": floats(b, t, 6)}, {"x": BT})
class ListsApart(nn.Module):
    """Indices in two places of a bracket put their axis first; lists and numbers among slices."""
    def forward(self, x):
        y = x.unflatten(-1, (2, 3))
        return (y[:, [0, 1], :, [2, 0]], y[:, :, [0, 1], [2, 0]], y[[0, 1]], x[:, [0, -1]], x[..., [5, 0, 0]], y[:, 1:, [1], :],
                y[:, -1, ..., [1]], x[:, None, -2:, ::2], y[0, [1, 0], 1], x[:, torch.tensor([[0, 1], [2, 0]])], y[:, [0, 1], None, [0, 1]])


@idiom(lambda b, t: {"x": floats(b, t, 6)}, {"x": BT})
class CutInParts(nn.Module):
    """Parts that are not alike, diagonals put into planes, products of all pairs, triangles."""
    def forward(self, x):
        a, c, d = x.split([1, 2, 3], -1)
        parts = x.chunk(4, -1)                                                          # 2, 2, 2: three of them
        pieces = x.tensor_split((1, 4), -1)
        return (a * d, c, parts[2], len(parts) * x, pieces[1], pieces[2], x.unbind(-1)[4], x.narrow(-1, -2, 2), x.select(-1, -3), x.movedim(1, 0),
                x.swapaxes(0, 2), torch.diag_embed(a[..., 0]), x[:, :4, :4].tril(-1), x[:, :3, :3].triu(1), torch.cartesian_prod(x[0, 0], x[0, 1]),
                torch.kron(x[0, :2], x[0, :2]), torch.linalg.cross(d, d.roll(1, -1)), torch.tensordot(x, x[0, :2], dims=([2], [1])), torch.outer(x[0, 0], x[0, 1]))


@idiom(lambda b, t: {"x": floats(b, t, 4)}, {"x": BT})
class CalledWithOthers(nn.Module):
    """A part called with parameters that are not its own: made from others, and scaled."""
    def __init__(self):
        super().__init__()
        self.part, self.other = nn.Sequential(nn.Linear(4, 8), nn.GELU("tanh"), nn.Linear(8, 4)), nn.Linear(4, 8)

    def forward(self, x):
        call = torch.func.functional_call
        own = dict(self.part.named_parameters())
        mixed = {**own, "0.weight": self.other.weight * 0.5 + own["0.weight"], "0.bias": own["0.bias"] * 0}
        return call(self.part, mixed, (x,)), self.part(x), call(self.part, {"2.weight": own["0.weight"].t()}, (x,))


@idiom(lambda b, t: {"x": floats(b, t, 4)}, {"x": BT})
class NumbersOfEdges(nn.Module):
    """nan_to_num with its own numbers, a lower bound above the upper, signs, decimals, logarithms of sums, where of numbers."""
    def forward(self, x):
        odd = x.sqrt()
        return (odd.nan_to_num(1.5), (x / 0).nan_to_num(0, 7.0, -6.0), x.clamp(0.5, -0.5), torch.clamp(x, min=x.mean(-1, keepdim=True)), torch.clamp(x, max=x[..., :1], min=None),
                torch.round(x, decimals=2), torch.logaddexp(x, -x), torch.xlogy(x.relu(), x.relu()),
                torch.where(x > 0, 1.0, -0.5), x.isnan() | odd.isnan(), torch.threshold(x, 0.2, -3.0))


@idiom(lambda b, t: {"x": floats(b, 3, t, 6)}, {"x": {0: "batch", 2: "time"}}, shapes=((3, 6), (2, 8), (5, 4)))
class ImagesScaled(nn.Module):
    """The nearest pixel by both rules, twice and three times as large."""
    def forward(self, x):
        up = F.interpolate
        return (up(x, scale_factor=2), up(x, scale_factor=2, mode="nearest-exact"), up(x, size=(x.shape[2] * 3, 5)), F.pixel_shuffle(x.reshape(x.shape[0], 3, -1, 2, 3).permute(0, 1, 3, 2, 4).flatten(1, 2)[:, :4], 2),
                F.channel_shuffle(torch.cat((x, x), 1), 2))
