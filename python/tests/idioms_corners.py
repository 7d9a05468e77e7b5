"""Corners of operations as people reach them: views of views that are written to, letters with an ellipsis, numbers without
axes as fills and choices, attention whose masks come in several types, norms of groups, sums that run along, rows that are
picked, parts of odd sizes, heads with keys that are padded; for test_torch_idioms.py.
"""
import math

from idioms_table import floats, idiom, ids, nn, torch

F = nn.functional if nn else None
BT, B = {0: "batch", 1: "time"}, {0: "batch"}


@idiom(lambda b, t: {"x": floats(b, t, 12)}, {"x": BT})
class ViewsOfViews(nn.Module):
    """What is written to a part of a part, to a turned part or to one that was cut is seen in the whole, and in what was made of it."""
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(4))

    def forward(self, x):
        y = x * 1.0
        seen = y[..., 4:8]
        left, middle, right = y.chunk(3, dim=-1)
        middle.chunk(2, -1)[1].mul_(3).add_(left[..., 2:])
        y.transpose(1, 2)[:, 0].copy_(right[..., 0] * 2)
        y.view(y.shape[0], y.shape[1], 3, 4)[:, :, 2].select(-1, 1).fill_(0.5)
        seen += self.w
        y[..., 11].neg_()
        y[:, 0, ::5] = y[:, 0, 1::5] - 1
        y[..., 3].clamp_(min=-0.1).sigmoid_()
        y.narrow(-1, 8, 2).masked_fill_(y[..., :2] > 0.3, -2.0)
        z = y.permute(2, 0, 1)
        z[7].zero_()
        z[6, :, 0] += 2
        return y + seen.sum(-1, keepdim=True), middle, z[0]


@idiom(lambda b, t: {"x": floats(b, t, 6), "m": floats(6, 6)}, {"x": BT})
class EllipsisOfLetters(nn.Module):
    """Letters with axes that have none: in front, in the middle, of different number, sums over them, capital letters, lists of numbers."""
    def __init__(self):
        super().__init__()
        self.w, self.v = nn.Parameter(torch.randn(2, 6, 4)), nn.Parameter(torch.randn(1, 3, 6))

    def forward(self, x, m):
        heads = torch.einsum("...d,hde->...he", x, self.w)
        scores = torch.einsum("b i ... e, b j ... e -> b ... i j", heads, heads)
        of_both = torch.einsum("...i,hi->...h", x, self.v[0])
        summed = torch.einsum("b...d->d", x) + torch.einsum("...d->d", x)
        implicit = torch.einsum("b...A,aA", x, m)
        trace = torch.einsum("...ij,ij->...", m.expand(x.shape[0], 6, 6) * x[:, 0, :, None], torch.eye(6))
        diagonal = torch.einsum("bij->bi", x[:, :1].transpose(1, 2) * m)
        numbers = torch.einsum(x, [0, 1, 2], m, [2, 3], [1, 0, 3])
        rest = torch.einsum(x, [0, ..., 5], m, [5, 4], [4, ...])
        return scores, of_both, summed + trace.sum(), implicit, diagonal, numbers, rest


@idiom(lambda b, t: {"x": floats(b, t, 6), "ids": ids(b, t, high=9)}, {"x": BT, "ids": BT})
class FillsWithoutAxes(nn.Module):
    """Numbers without axes as parameters, buffers and constants: fills, choices, bounds, with integers and bools beside floats."""
    def __init__(self):
        super().__init__()
        self.fill, self.low = nn.Parameter(torch.tensor(-3.5)), nn.Parameter(torch.tensor(-0.4))
        self.register_buffer("high", torch.tensor(0.7))
        self.register_buffer("last", torch.tensor(7))

    def forward(self, x, ids):
        y = x.masked_fill(ids.unsqueeze(-1) == self.last, self.fill)
        y = torch.where(x > 0, y, self.fill) + torch.where(ids[..., None] > 3, 1, 0.5)
        whole = torch.where(ids > 3, ids, self.last) + torch.where(ids > 2, 5, ids)
        mixed = torch.where(ids > 4, ids, self.high)
        row, column = x[:, :, :1], x[:, :1]
        both = torch.where((row > 0) & (column < 0), row, column)
        bound = torch.clamp(x, self.low, self.high) + x.clamp(min=column) + torch.maximum(x, self.low).minimum(row)
        flags = torch.where(ids > 5, ids > 2, torch.tensor(True))
        return y, whole, mixed * 2 + ids / self.last, both, bound, flags, x.new_tensor(2.5) * ids, ids * self.high


@idiom(lambda b, t: {"x": floats(b, t, 8), "keep": ids(b, t, high=2)}, {"x": BT, "keep": BT})
class MasksOfManyTypes(nn.Module):
    """scaled_dot_product_attention causal, by bools, by numbers, with rows that see one key alone, and other widths of the values."""
    def __init__(self):
        super().__init__()
        self.qkv, self.v = nn.Linear(8, 24), nn.Linear(8, 10)
        self.slopes = nn.Parameter(torch.tensor([0.5, -0.25]))

    def forward(self, x, keep):
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, 2, 4).transpose(1, 2) for y in self.qkv(x).split(8, -1))
        wide = self.v(x).unflatten(-1, (2, 5)).transpose(1, 2)
        causal = F.scaled_dot_product_attention(q, k, wide, is_causal=True, scale=0.3)
        keys = (keep > 0)[:, None, None, :] | torch.eye(t, dtype=torch.bool)
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=keys & torch.ones(t, t, dtype=torch.bool).tril())
        far = (torch.arange(t)[None, :] - torch.arange(t)[:, None]).abs().to(x.dtype)
        bias = -far * self.slopes.view(1, 2, 1, 1)
        by_numbers = F.scaled_dot_product_attention(q, k, wide, attn_mask=bias.expand(b, -1, -1, -1).masked_fill(~keys, float("-inf")))
        one_row = F.scaled_dot_product_attention(q[:, :, -1:], k, v, attn_mask=(keep > 0)[:, None, None, :].logical_or(far[-1:] == 0))
        shared = F.scaled_dot_product_attention(q, k[:, :1].expand_as(k), v[:, :1].expand_as(v), is_causal=True)
        without_heads = F.scaled_dot_product_attention(x, x, x, attn_mask=torch.zeros(t, t).masked_fill(far > 2, -1e9))
        return causal, seen, by_numbers, one_row, shared, without_heads


@idiom(lambda b, t: {"x": floats(b, 6, t), "image": floats(b, 6, 4, 5)}, {"x": {0: "batch", 2: "time"}, "image": B})
class NormsOfGroups(nn.Module):
    """Groups of one channel and of all, without weights, of two and four axes, with a mean far from 0; RMS without an epsilon."""
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.GroupNorm(3, 6), nn.GroupNorm(6, 6, eps=1e-3), nn.GroupNorm(1, 6, affine=False)
        self.one, self.two = nn.InstanceNorm1d(6, affine=True), nn.InstanceNorm2d(6)
        self.rms, self.layer = nn.RMSNorm(6), nn.LayerNorm([6, 4, 5], bias=False)
        self.batch = nn.BatchNorm2d(6)
        for norm in (self.a, self.b, self.one, self.batch):
            nn.init.normal_(norm.weight), nn.init.normal_(norm.bias)
        self.batch.running_mean.normal_(), self.batch.running_var.uniform_(0.5, 2)

    def forward(self, x, image):
        rows = self.rms(x.transpose(1, 2))
        return (self.a(x + 20) + self.b(x) + self.c(x), self.a(image) + self.two(image) * self.layer(image), self.one(x - 5), rows,
                self.a(rows.reshape(-1, 6)), self.batch(image), F.group_norm(x, 2, self.a.weight),
                F.layer_norm(image, (5,), eps=0.1), F.normalize(image, p=1, dim=1), F.normalize(x, p=math.inf, dim=-1))


@idiom(lambda b, t: {"x": floats(b, t, 5)}, {"x": BT})
class SumsAlong(nn.Module):
    """What runs along an axis: sums, products, greatest and least with their places, logarithms of sums, from behind, of bools, differences."""
    def forward(self, x):
        back = x.flip(1).cumsum(1).flip(1)
        greatest, at = torch.cummax(x, dim=2)
        least, where = x.cummin(dim=-1)
        steps = torch.diff(x, dim=1, prepend=x[:, :1] * 0) + torch.diff(x, dim=-1, n=1, append=x[..., :1])
        places = (x[..., 0] > 0).cumsum(-1) - 1
        before = torch.cumsum(x, 1) - x
        return (back, greatest, at, least, where, steps, places, before, (1 + 0.1 * x).cumprod(-1), torch.exp(x).cumsum(1).log(),
                torch.cumsum(x > 0, 2), x.abs().cumsum(-2).sqrt(), torch.trapezoid(x, dim=-1), torch.cumulative_trapezoid(x, dim=-1))


@idiom(lambda b, t: {"x": floats(b, t, 6), "at": ids(b, 3, high=4)}, {"x": BT, "at": B})
class RowsPicked(nn.Module):
    """gather with fewer places than rows, index_select, take_along_dim that is broadcast, places from behind, numbers put and added by place."""
    def __init__(self):
        super().__init__()
        self.register_buffer("columns", torch.tensor([5, 0, 0, 3]))
        self.table = nn.Parameter(torch.randn(4, 6))

    def forward(self, x, at):
        picked = x.gather(1, at[:, :, None].expand(-1, -1, 6))
        fewer = x.gather(2, at[:, :2, None])
        chosen = x.index_select(-1, self.columns) + x[:, :, self.columns]
        along = torch.take_along_dim(x, at[:, None, :], dim=2) + torch.take_along_dim(self.table[None], at[:, :, None], 1).sum(-1)[:, None]
        behind = x[:, at.new_tensor([-1, -2])] + self.table[at[:, :2] - 4]
        added = torch.zeros_like(x).index_add(2, self.columns, x[..., :4], alpha=0.5)
        put = x.scatter(2, at[:, None, :].expand(-1, x.shape[1], -1), x[..., :3] * 2 + 1) if x.shape[2] < 4 else x.index_copy(2, self.columns[1:2], x[..., 4:5])
        last = x[torch.arange(x.shape[0]), at[:, 0]] + x[torch.arange(x.shape[0])[:, None], at, at].sum(-1, keepdim=True)
        spread = torch.zeros(x.shape[0], 4).scatter_add(1, at, x[:, 0, :3]).scatter_reduce(1, at, x[:, 0, 3:], "amax")
        return picked, fewer, chosen, along, behind, added, put, last, spread, torch.embedding(self.table, at) * at[..., None]


@idiom(lambda b, t: {"x": floats(b, t, 7)}, {"x": BT})
class OddParts(nn.Module):
    """chunk that gives fewer parts than were asked for, a last part that is shorter, lists of sizes, places to cut at, folds and unfolds."""
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(7, 10))

    def forward(self, x):
        parts, wide = x.chunk(4, dim=-1), x @ self.w
        fewer = wide[..., :6].chunk(4, -1)
        a, b, c = wide.split([1, 5, 4], dim=-1)
        cut = torch.tensor_split(wide, 4, dim=-1)
        at = torch.tensor_split(wide, (2, 2, 7), dim=-1)
        pieces = wide.split(4, -1)
        assert [p.shape[-1] for p in parts] == [2, 2, 2, 1] and len(fewer) == 3 and at[1].shape[-1] == 0
        left, right = torch.hsplit(wide[0], 2) if wide.dim() == 3 and wide.shape[1] % 2 < 0 else torch.split(wide[0], 5, -1)
        return (parts[0] * parts[2] + parts[3], sum(fewer), a * b[..., 1:5] - c, torch.cat([p.flip(-1) for p in cut], -1), at[0] + at[2][..., :2],
                torch.cat(at, -1), pieces[2] * 2, left @ right.mT, wide.unfold(-1, 4, 3).sum(2), wide.unflatten(-1, (2, -1)).movedim((2, 3), (0, 1)))


@idiom(lambda b, t, s: {"x": floats(b, t, 8), "y": floats(b, s, 6), "hide": ids(b, s, high=2)},
       {"x": BT, "y": {0: "batch", 1: "keys"}, "hide": {0: "batch", 1: "keys"}}, ((3, 7, 4), (2, 5, 9), (4, 3, 6)))
class HeadsWithPaddedKeys(nn.Module):
    """nn.MultiheadAttention: keys that are padded by bools and by numbers, weights of each head, keys and values of other widths, and
    the last key never hidden."""
    def __init__(self):
        super().__init__()
        self.cross = nn.MultiheadAttention(8, 2, kdim=6, vdim=6, batch_first=True)
        self.own = nn.MultiheadAttention(8, 4, bias=False, add_bias_kv=True)
        self.zero = nn.MultiheadAttention(8, 2, add_zero_attn=True, batch_first=True)
        self.up = nn.Linear(6, 8)

    def forward(self, x, y, hide):
        hidden = (hide > 0) & (torch.arange(y.shape[1]) < y.shape[1] - 1)
        a, weights = self.cross(x, y, y, key_padding_mask=hidden, average_attn_weights=False)
        b, mean = self.cross(x, y, y.flip(1), key_padding_mask=torch.zeros_like(y[..., 0]).masked_fill(hidden, -math.inf), need_weights=True)
        z = self.up(y)
        future = torch.triu(torch.ones(z.shape[1], z.shape[1], dtype=torch.bool), 1)
        c, of_own = self.own(z.transpose(0, 1), z.transpose(0, 1), z.transpose(0, 1), attn_mask=future)
        d, of_zero = self.zero(z, z, z, key_padding_mask=hidden, attn_mask=nn.Transformer.generate_square_subsequent_mask(z.shape[1]),
                               average_attn_weights=False)
        e = self.zero(z, z, z, need_weights=False)[0]
        return a, weights, b, mean, c, of_own, d, of_zero, e


@idiom(lambda b, t: {"x": floats(b, t, 6), "ids": ids(b, t, high=9)}, {"x": BT, "ids": BT})
class TypesThatMix(nn.Module):
    """Bools, integers and floats in one expression: which of them the result is, and what rounding there is."""
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, x, ids):
        flag = x > 0.2
        odd = ids % 2 == 1
        return (flag + flag, flag * odd[..., None], odd + ids, odd * 2.5, (ids - 4) // 3, (4 - ids) % 5, ids * self.scale, ids // 2 - ids % 4,
                -ids / 3, torch.div(ids - 4, 3, rounding_mode="trunc"), torch.fmod(ids - 5, 3), torch.remainder(x, -0.7), x // 0.3, odd.sum(-1),
                flag.float().mean(-1), ids.float().std(-1), (ids > 3).any(-1) ^ odd.all(-1), ~odd, ids.bool() & odd,
                torch.round(x * 2.5), torch.round(x, decimals=1), (x * 3).int() + ids[..., None], (x * 3).trunc().long() * odd[..., None],
                torch.sign(x) * ids[..., None], torch.where(odd[..., None], x, ids[..., None]), torch.cat([x, ids[..., None]], -1), torch.stack([ids, odd], -1),
                ids.clamp(2.5), torch.sum(flag, dim=(0, 2)), torch.prod(1 + ids[:, :2] % 3, 1), ids.max(-1).values - ids.argmin(-1))


@idiom(lambda b, t: {"x": floats(b, t), "ids": ids(b, t, high=9)}, {"x": BT, "ids": BT})
class TypesThatMeet(nn.Module):
    """Operations of several tensors of other types: what is put into a tensor takes its type, the rest what torch promotes to."""
    def forward(self, x, ids):
        flag, put, cut = ids > 4, x.clone(), ids.clone()
        put[:, 0] = ids[:, 1]
        put[:, 1:3] = flag[:, :2]
        cut[:, 0] = (x[:, 0] * 3).clamp(-9, 9)
        cut[:, 1:2] = flag[:, :1]
        put[flag] = 2
        return (put, cut, torch.maximum(ids, x), torch.minimum(x, ids), torch.addcmul(x, ids, x, value=0.5), torch.add(ids, x, alpha=2), torch.sub(ids, x),
                torch.pow(ids, 0.5), x.abs() ** ids, ids < x, flag == ids, torch.clamp(ids, min=x), torch.stack([x, ids], 1),
                torch.stack([ids, flag, flag], 0), torch.cat([flag, ids], 1), torch.column_stack([ids[:, 0], x[:, 0]]), torch.where(flag, flag, x),
                torch.addcdiv(x, x, 1 + ids), flag.int() - x, torch.mul(flag, 0.5), torch.div(ids, ids + 1),
                ids.new_full((2,), 3) * x[0, 0], torch.full_like(ids, 2.7), torch.ones_like(x, dtype=torch.long) + flag)


@idiom(lambda b, t: {"x": floats(b, t, 7)}, {"x": BT})
class MiddlesAndSpreads(nn.Module):
    """Medians of odd and even numbers, quantiles, several extremes at once, spreads with corrections over axes, without what is no number."""
    def forward(self, x):
        holes = x.masked_fill(x > 1.2, math.nan)
        middle, at = x.median(-1)
        least, greatest = torch.aminmax(x, dim=-1)
        spread, mean = torch.var_mean(x, dim=(0, 2), correction=0)
        kept, order = x.sort(dim=-1, descending=True, stable=True)
        return (middle, at, x[..., :6].median(-1).values, greatest - least, spread + mean, x.std(-1, correction=2), x.var(dim=(1, 2), unbiased=False),
                torch.nansum(holes, -1), torch.nan_to_num(holes, 9.0), holes.isnan().sum(-1), kept.diff(dim=-1), order,
                x.kthvalue(3, -1).values, x.norm(dim=(1, 2)), torch.linalg.vector_norm(x, 3, dim=-1), x.logsumexp((1, 2)), torch.amax(x, (0, 2)))


@idiom(lambda b, t: {"x": floats(b, 4, t), "image": floats(b, 4, 6, 6)}, {"x": {0: "batch", 2: "time"}, "image": B}, ((3, 9), (2, 12), (4, 7)))
class EdgesOfFilters(nn.Module):
    """Paddings of all modes, filters of even width that keep the length, filters turned around with groups and holes, images made larger."""
    def __init__(self):
        super().__init__()
        self.same = nn.Conv1d(4, 4, 4, padding="same", dilation=2)
        self.mirrored, self.wrapped = nn.Conv1d(4, 6, 3, padding=2, padding_mode="reflect"), nn.Conv1d(4, 4, 5, padding=3, padding_mode="circular", groups=2)
        self.back = nn.ConvTranspose1d(4, 6, 4, stride=3, padding=1, output_padding=2, dilation=2)
        self.image, self.up = nn.Conv2d(4, 4, (3, 2), stride=(2, 1), padding=(1, 0), groups=4), nn.ConvTranspose2d(4, 2, 2, stride=2, bias=False)

    def forward(self, x, image):
        edges = F.pad(x, (2, 1), mode="replicate") + F.pad(x, (3, 0), value=0.5)
        return (self.same(x), self.mirrored(x), self.wrapped(x), self.back(x), edges, self.image(image), self.up(image), F.pixel_shuffle(image, 2),
                F.max_pool1d(x, 3, stride=2, padding=1), F.avg_pool1d(x, 4, 2, padding=1, count_include_pad=False),
                F.interpolate(image, scale_factor=1.5, mode="bilinear", align_corners=False), F.interpolate(x, scale_factor=2), F.glu(x, 1),
                F.adaptive_avg_pool2d(image, (4, 5)), F.lp_pool1d(x.abs(), 2, 3), F.unfold(image, 3, padding=1, stride=2))


@idiom(lambda b, t: {"x": floats(b, t, 4)}, {"x": {0: "batch", 1: "time"}})
class Mapped(nn.Module):
    """vmap that takes and leaves its axis at other places than the first."""
    def __init__(self):
        super().__init__()
        self.layer, self.w = nn.Linear(4, 4), nn.Parameter(torch.randn(4, 4))

    def forward(self, x):
        each = torch.func.vmap(self.layer, in_dims=1, out_dims=1)(x)
        outer = torch.func.vmap(torch.outer, in_dims=(1, 1), out_dims=1)(x[..., 0], x[..., 1])
        return each, outer, torch.func.vmap(lambda a: (a @ self.w, a.sum(0)), out_dims=(-1, 0))(x)


@idiom(lambda b, t: {"x": floats(b, t, 4)}, {"x": {0: "batch", 1: "time"}})
class RandomSlopes(nn.Module):
    """RReLU in evaluation mode has the mean of its slopes."""
    def __init__(self):
        super().__init__()
        self.act, self.own = nn.RReLU(inplace=True), nn.RReLU(0.1, 0.5)

    def forward(self, x):
        return self.act(x * 2), self.own(x), nn.functional.rrelu(x, upper=0.6)


@idiom(lambda b, t: {"x": floats(b, t, 4)}, {"x": {0: "batch", 1: "time"}}, refused=["rrelu in training mode", "idioms_corners.py:"])
class DrawnSlopes(nn.Module):
    def forward(self, x):
        return nn.functional.rrelu(x, training=True)


@idiom(lambda b, t: {"x": floats(b, t, 4)}, {"x": {0: "batch", 1: "time"}}, refused=["torch.empty", "idioms_corners.py:", "use torch.zeros"])
class Unset(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape)
        y[..., :2] = x[..., :2]
        return y / y


@idiom(lambda b, t: {"x": floats(b, t, 4)}, {"x": {0: "batch", 1: "time"}}, refused=["within the autocast at", "idioms_corners.py:", "leave out the autocast"])
class Cast(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.layer(x)
