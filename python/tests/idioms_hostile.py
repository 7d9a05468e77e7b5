"""Modules that use what is easily taken for something else: sums of booleans, integers of few bits, remainders of negative
numbers, ties, halves, rows that are masked whole, types that results get from numbers, sizes within formulas, results
that are written in place; for test_torch_idioms.py.
"""
import collections
import itertools
import math

from idioms_table import floats, idiom, ids, nn, torch

F = nn.functional if nn else None
BT, B = {0: "batch", 1: "time"}, {0: "batch"}


@idiom(lambda b, t: {"a": ids(b, t, high=4) > 1, "b": ids(b, t, seed=8, high=4) > 2}, {"a": BT, "b": BT})
class SumsOfFlags(nn.Module):
    """+ and * of booleans are or and and; with a number they are numbers; sums and running sums count."""
    def forward(self, a, b):
        either, both = a + b, a * b
        return (either, both, a + 1, a * 2.0, (a + b + a).float(), a.sum(1), a.cumsum(1), a.float().mean(1), -a.int(), a.max(1).values, b.min(1, keepdim=True).values, a.max(1).indices,
                a > b, a.int() - b.int(), (a + b).sum(), a.logical_not().int() + b, torch.where(a, b, a).long())


@idiom(lambda b, t: {"ids": ids(b, t) - 10}, {"ids": BT})
class RemaindersOfNegatives(nn.Module):
    """floor and trunc, of integers and of numbers, by positive and negative divisors."""
    def forward(self, ids):
        x = ids.float() / 3
        return (ids % 4, ids % -4, ids // 4, ids // -3, torch.fmod(ids, 4), torch.fmod(ids, -3), torch.remainder(ids, 7),
                torch.div(ids, 3, rounding_mode="trunc"), torch.div(ids, 3, rounding_mode="floor"), ids / 4, x % 0.75, x // 0.75, torch.fmod(x, -0.75),
                torch.div(x, 0.7, rounding_mode="trunc"), ids.abs() % 3, (-ids) // 2, 7 - ids % 3, torch.floor_divide(ids, 5))


@idiom(lambda b, t: {"ids": ids(b, t) - 10}, {"ids": BT}, refused=("bits of integers", "idioms_hostile.py:"))
class BitsOfIntegers(nn.Module):
    """Shifts, masks of bits and complements, of negative numbers too."""
    def forward(self, ids):
        return ids & 3, ids | 4, ids ^ 5, ~ids, ids << 2, ids >> 1, (ids.unsqueeze(-1) >> torch.arange(4)) & 1, ((ids & 7) == 3).int()


@idiom(lambda b, t: {"x": floats(b, t, 6)}, {"x": BT})
class HalvesAreEven(nn.Module):
    """round goes to the even number, as do decimals; floor, ceil, trunc and frac of negative numbers; codes as integers."""
    def forward(self, x):
        h = (x * 4).round() / 2
        return h.round(), torch.round(-h), h.floor(), h.ceil(), h.trunc(), h.frac(), h.int(), h.long() % 3, h.sign(), h.round().to(torch.int32) // 2


@idiom(lambda b, t: {"ids": ids(b, t)}, {"ids": BT}, refused=("idioms_hostile.py:",))
class ShortIntegersWrap(nn.Module):
    """Products of 16 bits wrap in torch."""
    def forward(self, ids):
        return (ids.to(torch.int16) * 5000).float()


@idiom(lambda b, t: {"ids": ids(b, t)}, {"ids": BT}, refused=("idioms_hostile.py:",))
class LargestInteger(nn.Module):
    """The place of the first of some ids, by the largest integer where there is none."""
    def forward(self, ids):
        at = torch.arange(ids.shape[1]).expand_as(ids)
        return at.masked_fill(ids < 10, torch.iinfo(torch.int64).max).min(1).values


@idiom(lambda b, t: {"x": floats(b, t, 8), "mask": torch.arange(t)[None] < torch.arange(b)[:, None] % t}, {"x": BT, "mask": BT})
class RowsMaskedWhole(nn.Module):
    """All keys of the first item are masked: uniform with a large number, 0 by nan_to_num with -inf, by a product, by a maximum."""
    def forward(self, x, mask):
        s = x @ x.transpose(1, 2) / math.sqrt(8)
        key = mask[:, None]
        a = s.masked_fill(~key, -1e9).softmax(-1)
        b = s.masked_fill(~key, float("-inf")).softmax(-1).nan_to_num(0.0)
        c = s.masked_fill(~key, torch.finfo(torch.float16).min).softmax(-1) * key
        d = (s + (1.0 - key.to(s.dtype)) * torch.finfo(s.dtype).min).softmax(-1)
        e = (s.exp() * key) / (s.exp() * key).sum(-1, keepdim=True).clamp(min=1e-9)
        pooled = (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)
        top = x.masked_fill(~mask[..., None], -torch.inf).amax(1)
        return a @ x, b @ x, c, d, e, pooled, top, torch.where(mask.any(1, keepdim=True), pooled, 0.0)


@idiom(lambda b, t: {"x": floats(b, t, 4), "ids": ids(b, t)}, {"x": BT, "ids": BT})
class WhereOfNumbers(nn.Module):
    """What type and shape `where` and its relatives have: numbers, tensors without axes, integers beside floats."""
    def forward(self, x, ids):
        c = ids > 9
        zero = torch.tensor(0.0)
        return (torch.where(c, 1, 0), torch.where(c, 1.0, 0.0), torch.where(c, ids, -100), torch.where(c[..., None], x, zero), torch.where(c[..., None], zero, x),
                torch.where(c, ids, 0.5), torch.where(c, True, False), x.where(x > 0, -1), torch.where(x > 0, x, x * 0.1), ids.where(c, ids.new_zeros(())),
                torch.where(c, float("-inf"), 0.0), torch.where(c, ids.float(), ids), torch.where(c[:, :1], x[..., 0], x[:, :1, 0]))


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class QuarterOfHeads(nn.Module):
    """scaled_dot_product_attention with fewer heads of keys, a scale, masks that are added or broadcast, values of another width."""
    def __init__(self):
        super().__init__()
        self.q, self.kv = nn.Linear(8, 16), nn.Linear(8, 8)

    def forward(self, x):
        b, t, _ = x.shape
        q = self.q(x).view(b, t, 4, 4).transpose(1, 2)
        k, v = self.kv(x).view(b, t, 2, 2, 2).unbind(-1)
        k, v = (torch.cat([y, y], -1).transpose(1, 2) for y in (k, v))
        bias = -torch.arange(t).sub(torch.arange(t)[:, None]).abs().to(x.dtype)
        keep = torch.ones(t, t, dtype=torch.bool).tril()
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        c = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=0.3, enable_gqa=True)
        d = F.scaled_dot_product_attention(q[:, :2], k, v[..., :3], attn_mask=keep[None, None])
        return a.transpose(1, 2).flatten(2), c, d, F.scaled_dot_product_attention(q[:, 0], k[:, 0], v[:, 0], dropout_p=0.0)


@idiom(lambda b, t: {"src": floats(t, b, 8), "pad": torch.arange(t)[None] >= t - torch.arange(b)[:, None] % 3}, {"src": {0: "time", 1: "batch"}, "pad": BT})
class StackWithoutNested(nn.Module):
    """nn.TransformerEncoder with time first, a last norm, a mask of numbers beside the padding."""
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", norm_first=False)
        self.encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(8), enable_nested_tensor=False)

    def forward(self, src, pad):
        mask = nn.Transformer.generate_square_subsequent_mask(src.size(0))
        far = torch.zeros_like(pad, dtype=torch.float32).masked_fill(pad, float("-inf"))
        return self.encoder(src, mask=mask, src_key_padding_mask=far), self.encoder(src, src_key_padding_mask=pad)


@idiom(lambda b, t: {"x": floats(b, t, 6)}, {"x": BT})
class Parametrized(nn.Module):
    """Weights that functions make: symmetric, skewed and exponential, by parametrize; a norm by another dim; a shared one."""
    class Symmetric(nn.Module):
        def forward(self, w):
            return w.triu() + w.triu(1).transpose(-1, -2)

    class Positive(nn.Module):
        def forward(self, w):
            return F.softplus(w)

    def __init__(self):
        super().__init__()
        from torch.nn.utils import parametrizations, parametrize
        self.a, self.b, self.c = nn.Linear(6, 6), nn.Linear(6, 6, bias=False), nn.Conv1d(6, 6, 3, padding=1)
        parametrize.register_parametrization(self.a, "weight", self.Symmetric())
        parametrize.register_parametrization(self.b, "weight", self.Positive())
        parametrizations.weight_norm(self.c, dim=1)

    def forward(self, x):
        y = self.b(self.a(x)) + F.linear(x, self.a.weight.t())
        return self.c(y.transpose(1, 2)).transpose(1, 2)


@idiom(lambda b, t: {"x": floats(b, t, 8), "at": ids(b, t, high=6)}, {"x": BT, "at": BT})
class PlacesWritten(nn.Module):
    """index_add, index_copy, index_fill, scatter of numbers and with reductions, index_put with accumulation, put of repeated ids."""
    def forward(self, x, at):
        z = torch.zeros(x.shape[0], 7, 8)
        where = at[..., None].expand(-1, -1, 8)
        mean = z.scatter_reduce(1, where, x, "mean", include_self=False)
        top = z.scatter_reduce(1, where, x, "amax", include_self=True)
        total = z.scatter_add(1, where, x)
        one = torch.zeros(x.shape[0], 7).scatter(1, at, 1.0)
        fixed = torch.tensor([1, 3])
        y = x.index_fill(2, fixed, -1.0)
        y = y.index_copy(2, torch.tensor([0, 5]), x[..., :2]).index_add(2, fixed, x[..., :2], alpha=2)
        rows = torch.arange(x.shape[0])[:, None].expand_as(at)
        put = z.index_put((rows, at), x, accumulate=True)
        return mean, top, total, one, y, put, x.index_select(-1, torch.tensor([7, 0, 7]))


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class ShapesOfManyNames(nn.Module):
    """Views by all their names: unflatten, movedim, swapaxes, tile, expand_as, narrow, select, hsplit, ravel, view_as, atleast_3d."""
    def forward(self, x):
        y = x.unflatten(-1, (2, -1)).movedim(-2, 1).swapaxes(0, 1)
        a, b = torch.hsplit(x.flatten(0, 1), 2)
        c = x.narrow(-1, 2, 4).tile(1, 1, 2).view_as(x)
        d = x.select(1, -1)[:, None].expand_as(x) + x.roll((1, -2), dims=(1, 2)) + x.flip(-1, 1)
        e, f, *_ = x.split([3, 1, 4], dim=-1)
        g = torch.stack(x.unbind(-1)[::3], -1).broadcast_to(2, *x.shape[:2], 3)
        return y, a * b, c, d, e + f, g, x.ravel()[:5], x.mT.T.reshape(-1, 8), torch.atleast_3d(x[0]), torch.dstack([x, x])[:, :, ::5], x.rot90(1, (1, 2))


@idiom(lambda b, t: {"x": floats(b, t, 5, 5)}, {"x": BT})
class LettersOfEinsum(nn.Module):
    """Dots, sums left out, ellipses within, outer products, capital letters."""
    def forward(self, x):
        e = torch.einsum
        return (e("...ij->...ji", x), e("btij,btkj->btik", x, x), e("btij->j", x), e("bTij,bSij->bTS", x, x),
                e("...i,...i->...", x, x), e("bti,btj->btij", x[..., 0], x[..., 1]), e("btij,jk,kl->btil", x, x[0, 0], x[0, 0]), e("btij,ij", x, x[0, 0]))


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class EdgesOfRows(nn.Module):
    """Padding that repeats, mirrors and goes round; negative and uneven padding; differences along an axis."""
    def forward(self, x):
        y = x.transpose(1, 2)
        return (F.pad(y, (2, 1), mode="replicate"), F.pad(y, (1, 2), mode="reflect"), F.pad(y, (2, 0), mode="circular"), F.pad(x, (0, 0, -1, 1), value=2.0),
                torch.diff(x, dim=1), torch.diff(x, dim=-1, prepend=x[..., :1]), F.pad(x, (-1, -2, 0, 3)), nn.ReflectionPad1d(1)(y), nn.ConstantPad1d((1, 0), -3.0)(y))


@idiom(lambda b, t: {"x": floats(b, 6, t + 3)}, {"x": {0: "batch", 2: "time"}})
class NormsOfChannels(nn.Module):
    """Norms in evaluation: batch norms without weights and without statistics, groups, instances that track, an RMS without eps."""
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.BatchNorm1d(6, affine=False), nn.BatchNorm1d(6, eps=1e-3)
        self.c, self.d = nn.GroupNorm(3, 6, affine=False), nn.InstanceNorm1d(6, affine=True, track_running_stats=True)
        self.e, self.f, self.g = nn.LayerNorm(6, bias=False), nn.RMSNorm(6), nn.LayerNorm([6], elementwise_affine=False)
        for norm in (self.a, self.b, self.d):
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)

    def forward(self, x):
        y = x.transpose(1, 2)
        return self.a(x), self.b(x), self.b(x[..., 0]), self.c(x), self.d(x), self.e(y), self.f(y), self.g(y)


@idiom(lambda b, t: {"x": floats(b, 4, 12)}, {"x": B}, ((2, 1), (3, 1)))
class ConvolutionsOfRows(nn.Module):
    """Strides, gaps, groups, "same", transposed, pooled with ceil_mode, padded means, a known number of parts."""
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv1d(4, 6, 3, stride=2, padding=1), nn.Conv1d(4, 4, 3, padding="same", dilation=2, groups=2)
        self.c, self.d = nn.Conv1d(4, 8, 5, padding=2, groups=4, bias=False), nn.ConvTranspose1d(4, 3, 4, stride=2, padding=1)
        self.e = nn.Conv1d(4, 4, 3, padding=1, padding_mode="replicate")

    def forward(self, x):
        return (self.a(x), self.b(x), self.c(x), self.d(x), self.e(x), F.avg_pool1d(x, 3, 2, padding=1), F.avg_pool1d(x, 3, 2, padding=1, count_include_pad=False),
                F.max_pool1d(x, 2, 2), F.adaptive_avg_pool1d(x, 1), F.lp_pool1d(x, 2, 2))


@idiom(lambda b, t: {"x": floats(b, t, 6)}, {"x": BT})
class NumbersOfSizes(nn.Module):
    """Sizes in formulas: roots, logarithms, quotients rounded up, in loops over what is known, as parts of tensors."""
    def forward(self, x):
        b, t, d = x.shape
        scale = 1 / math.sqrt(d)
        up = -(-t // 2)
        return x * scale, x[:, :up], x[:, t // 3:], torch.full((b, t), t / 2), torch.arange(t, 0, -1) / t, torch.ones(t) * b, x.sum(1) / t, torch.tensor(
            [d, d * 2]), x.new_full((2,), d), torch.arange(0, 1, 0.25)


@idiom(lambda b, t: {"x": floats(b, t, 6), "mask": ids(b, t, high=4) > 1}, {"x": BT, "mask": BT}, refused=("idioms_hostile.py:",))
class BranchOnValues(nn.Module):
    """What most masks decide: whether any is 0."""
    def forward(self, x, mask):
        if mask.all():
            return x.mean(1)
        return (x * mask[..., None]).sum(1)


@idiom(lambda b, t: {"ids": ids(b, t, high=5)}, {"ids": BT}, refused=("idioms_hostile.py:",))
class ClassesOfValues(nn.Module):
    """one_hot without a number of classes takes the greatest."""
    def forward(self, ids):
        return F.one_hot(ids).float()


@idiom(lambda b, t: {"x": floats(b, t, 6)}, {"x": BT})
class MathOfEdges(nn.Module):
    """Functions near what they cannot take: xlogy of 0, bounds that are tensors, logarithms of sums of powers far below 0."""
    def forward(self, x):
        p, z = x.sigmoid(), torch.where(x > 0, x, 0.0)
        return (torch.xlogy(z, z), torch.lerp(x, z, 0.3), torch.lerp(x, z, p), x.clamp(min=z - 1, max=p), torch.clip(x, max=0.5),
                torch.logaddexp(x, z), torch.rsqrt(p), torch.reciprocal(p), torch.square(x), F.softplus(x * 30), F.logsigmoid(x * 40),
                F.mish(x * 9), F.softplus(x - 20) * 1e8)


@idiom(lambda b, t: {"x": floats(b, t, 6)}, {"x": BT})
class ProductsWithFactors(nn.Module):
    """add, sub, addmm, baddbmm, addbmm, addcdiv, addcmul, addmv, addr, all with their alpha and beta."""
    def __init__(self):
        super().__init__()
        self.w, self.b = nn.Parameter(torch.randn(6, 6)), nn.Parameter(torch.randn(6))

    def forward(self, x):
        y, s = x.flatten(0, 1), x @ x.mT
        return (torch.add(x, x, alpha=2), torch.sub(x, 1, alpha=3), torch.rsub(x, 2), torch.addmm(self.b, y, self.w, beta=0.5, alpha=2), torch.baddbmm(s, x, x.mT, beta=0, alpha=0.3),
                torch.addcdiv(x, x, x.exp(), value=0.5), torch.addcmul(x, x, x, value=-1), torch.addmv(y[:, 0], y, self.b, alpha=2), torch.addr(self.w, self.b, self.b, beta=0.1),
                torch.inner(x, self.b), torch.tensordot(x, self.w, dims=([2], [1])), y.mm(self.w).mm(self.w))


@idiom(lambda b, t: {"x": floats(b, t, 6)}, {"x": BT})
class MeansOfAllKinds(nn.Module):
    """Reductions: several axes, none, types that are asked for, corrections, norms of every order, quantiles, indices of ties."""
    def forward(self, x):
        h = (x * 2).round()
        v, m = torch.var_mean(x, dim=-1, correction=0)
        s, n = torch.std_mean(x, dim=(1, 2))
        return (v, m, s, n, x.norm(), x.norm(p=1, dim=-1), x.norm(float("inf"), dim=1), torch.linalg.vector_norm(x, ord=3, dim=-1), h.argmax(-1), h.argmin(1), h.max(-1).indices,
                torch.sort(h, dim=-1, stable=True).indices, torch.argsort(h, dim=-1, descending=True, stable=True), h.sum(), (h > 0).all(-1), (h > 1).any(), h.prod(-1),
                x.median(-1).values, x.aminmax(dim=-1).max, x.logsumexp((1, 2)), x.std(), x.var(1, unbiased=False),
                x.mean((0, 1)), h.int().sum(-1) // 2)


@idiom(lambda b, t: {"ids": ids(b, t, high=12) % 9}, {"ids": BT})
class PositionsOfTokens(nn.Module):
    """Positions that count real tokens, from 2 on or from 1 where there is none; the last real token; segments by separators."""
    def __init__(self):
        super().__init__()
        self.word, self.pos, self.seg = nn.Embedding(12, 6, padding_idx=0), nn.Embedding(40, 6, padding_idx=1), nn.Embedding(3, 6)

    def forward(self, ids):
        mask = ids.ne(0)
        pos = (torch.cumsum(mask, dim=1) * mask).long() + 1
        left = (mask.long().cumsum(-1) - 1).masked_fill_(mask == 0, 1)
        seg = (torch.cumsum((ids == 3).long(), 1) - (ids == 3).long()).clamp(max=2)
        h = self.word(ids) + self.pos(pos) + self.seg(seg) + self.pos(left)
        last = (mask * torch.arange(ids.shape[1])).argmax(1)
        lengths = mask.sum(-1)
        return h[torch.arange(ids.shape[0]), last], h.gather(1, (lengths.clamp(min=1) - 1).view(-1, 1, 1).expand(-1, 1, 6)).squeeze(1), pos, left, seg, h[:, -1], lengths


Result = collections.namedtuple("Result", "last hidden state cache pooled")


@idiom(lambda b, t: {"x": floats(b, t, 6), "mask": None, "state": {"h": floats(b, 6), "c": [floats(b, 6, seed=1)]}}, {"x": BT, "state_h": B, "state_c_0": B})
class KeywordsAndStates(nn.Module):
    """Flags and None by keyword alone, a dict with a list as a state, tuples that lack what was not asked for."""
    def __init__(self):
        super().__init__()
        self.l, self.eps = nn.Linear(6, 6), 1e-3

    def forward(self, x, *, mask=None, state=None, output_hidden=True, use_cache: bool = False, **unused):
        hidden = (x,) if output_hidden else None
        y = self.l(x) if mask is None else self.l(x) * mask
        h = state["h"] * self.eps + y.mean(1) + state["c"][0]
        return Result(last=y, hidden=hidden + (y,), state={"h": h, "c": [h.tanh()]}, cache=None if not use_cache else h, pooled=h)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class WidthsOfNumbers(nn.Module):
    """Buffers of half, softmax in double, casts that come back, type_as, a table of halves that is made wide."""
    def __init__(self):
        super().__init__()
        self.register_buffer("few", torch.arange(8).to(torch.float16))
        self.l = nn.Linear(8, 8)

    def forward(self, x):
        y = self.l(x) + self.few.type_as(x)
        p = torch.softmax(y, dim=-1, dtype=torch.float32).type_as(x)
        return y, p, x.to(torch.float32).type(x.dtype), torch.arange(8, dtype=torch.float32) + y[0, 0]


@idiom(lambda b, t: {"x": floats(b, t, 6)}, {"x": BT})
class WrittenStepByStep(nn.Module):
    """A list that becomes a tensor, an output that is filled by a loop, views that change what they view, swaps, +=, clones that do not."""
    def forward(self, x):
        kept = x.clone()
        out = torch.zeros_like(x)
        for i, j in itertools.product(range(2), range(3)):
            out[..., i * 3 + j] = x[..., j * 2 + i] * (i + 1)
        half = out[..., :3]
        half += 1
        half[half < 0] = 0.0
        out[:, 0, 1], out[:, 0, 2] = out[:, 0, 2].clone(), out[:, 0, 1].clone()
        row = out.view(-1)
        row[:2] = 5.0
        kept.transpose(1, 2)[:, 0] *= 3
        rows = [out[:, k % 1] for k in range(4)]
        rows.append(rows.pop(0) * 2)
        return out, kept, torch.stack(rows, dim=1), x - kept


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class IndicesOfTriangles(nn.Module):
    """Pairs of a known number of features by triu_indices and tril_indices, products, buckets on both sides."""
    def __init__(self):
        super().__init__()
        self.register_buffer("edges", torch.tensor([-1.0, 0.0, 0.5, 1.5]))

    def forward(self, x):
        i, j = torch.triu_indices(8, 8, offset=1)
        pairs = x[..., i] * x[..., j]
        lower = (x[:, :, None] * x[..., None]).flatten(2)
        a, b = torch.bucketize(x, self.edges), torch.bucketize(x, self.edges, right=True)
        mesh = torch.stack(torch.meshgrid(torch.arange(2), torch.arange(3), indexing="ij"), -1).view(-1, 2)
        return pairs, lower, a, b, x[..., mesh[:, 0] + mesh[:, 1]], torch.cartesian_prod(torch.arange(2), torch.arange(2))


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class TopOfRows(nn.Module):
    """Best and least k, thresholds by kthvalue, top-p by sorted running sums put back in place, masks of the best."""
    def forward(self, x):
        v, at = x.topk(3, dim=-1)
        low = x.topk(2, largest=False).values
        cut = x.masked_fill(x < v[..., -1:], -torch.inf).softmax(-1)
        logits, order = torch.sort(x, descending=True)
        gone = logits.softmax(-1).cumsum(-1) > 0.8
        gone[..., 1:] = gone[..., :-1].clone()
        gone[..., 0] = False
        nucleus = x.masked_fill(gone.scatter(-1, order, gone), float("-inf"))
        return v, at, low, cut, nucleus.softmax(-1), x.kthvalue(2, dim=-1).values, torch.zeros_like(x).scatter(-1, at, v)


@idiom(lambda b, t: {"x": floats(b, t, 8), "y": floats(b, t, 8, seed=1), "at": ids(b, t, high=8)}, {"x": BT, "y": BT, "at": BT})
class LossesOfKinds(nn.Module):
    """Losses with all their options: targets as probabilities, smoothing with weights, logs of targets, reductions that differ."""
    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.rand(8) + 0.5)

    def forward(self, x, y, at):
        z, p = x.transpose(1, 2), y.softmax(-1)
        hard = at.masked_fill(at > 5, -100)
        return (F.cross_entropy(z, hard, weight=self.weight), F.cross_entropy(x.flatten(0, 1), p.flatten(0, 1)), F.cross_entropy(z, hard, reduction="none"),
                F.nll_loss(z.log_softmax(1), hard, reduction="sum"), F.kl_div(x.log_softmax(-1), p, reduction="batchmean"), F.kl_div(x.log_softmax(-1), y.log_softmax(-1), log_target=True),
                F.binary_cross_entropy_with_logits(x, p, pos_weight=self.weight), F.smooth_l1_loss(x, y, beta=0.5), F.huber_loss(x, y, delta=0.7),
                F.triplet_margin_loss(x, y, x.roll(1, 1)), F.margin_ranking_loss(x, y, x.sign()),
                F.multi_margin_loss(x[:, 0], at[:, 0]), F.multilabel_soft_margin_loss(x[:, 0], (p[:, 0] > 0.1).float()), F.poisson_nll_loss(x, p), F.soft_margin_loss(x, y.sign()))


@idiom(lambda b, t: {"x": floats(b, 4, 6, 6)}, {"x": B}, ((2, 1), (3, 1)))
class ImagesInParts(nn.Module):
    """Images: shuffled pixels and back, patches by reshapes, means of places, nearest and bilinear sizes, softmax over both axes."""
    def __init__(self):
        super().__init__()
        self.up, self.down, self.c = nn.PixelShuffle(2), nn.PixelUnshuffle(2), nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.norm = nn.GroupNorm(2, 4)

    def forward(self, x):
        b = x.shape[0]
        patches = x.reshape(b, 4, 3, 2, 3, 2).permute(0, 2, 4, 3, 5, 1).reshape(b, 9, 16)
        attention = x.flatten(2).softmax(-1).view_as(x)
        return (self.up(x), self.down(self.c(x)), patches, (attention * x).sum((2, 3)), F.interpolate(x, scale_factor=2, mode="nearest"), self.norm(x), F.avg_pool2d(x, 2), F.max_pool2d(x, 3, 1, 1),
                F.interpolate(x, size=(3, 3), mode="bilinear", align_corners=False), x.mean((-2, -1), keepdim=True), F.unfold(x, 2, stride=2), F.adaptive_avg_pool2d(x, 2), nn.ChannelShuffle(2)(x))
