"""Parts of newer models as people write them: rotary forms, gates, relative positions, mixtures, diffusion, recommenders,
with keyword-only inputs, dataclasses, nested lists and changes in place; for test_torch_idioms.py.
"""
import dataclasses
import math
import typing

from idioms_table import floats, idiom, ids, nn, torch

F = nn.functional if nn else None
BT, B = {0: "batch", 1: "time"}, {0: "batch"}


@idiom(lambda b, t: {"x": floats(b, t, 16)}, {"x": BT})
class InterleavedRotary(nn.Module):
    """Neighbours turned as pairs, cosines and sines repeated for both; a part of each head stays."""
    def __init__(self):
        super().__init__()
        inv = 1.0 / (10000 ** (torch.arange(0, 6, 2).float() / 6))
        self.register_buffer("inv_freq", inv, persistent=False)

    @staticmethod
    def rotate_every_two(x):
        x1, x2 = x[..., ::2], x[..., 1::2]
        return torch.stack((-x2, x1), dim=-1).flatten(-2)

    def forward(self, x):
        b, t, d = x.shape
        q = x.reshape(b, t, 2, d // 2).transpose(1, 2)
        freqs = torch.einsum("i,j->ij", torch.arange(t, device=x.device).type_as(self.inv_freq), self.inv_freq)
        cos, sin = (f.repeat_interleave(2, dim=-1)[None, None] for f in (freqs.cos(), freqs.sin()))
        turned, kept = q[..., :6], q[..., 6:]
        q = torch.cat((turned * cos + self.rotate_every_two(turned) * sin, kept), dim=-1)
        return q.transpose(1, 2).reshape(b, t, d)


@idiom(lambda b, t: {"x": floats(b, t, 8), "position_ids": ids(b, t, high=9)}, {"x": BT, "position_ids": BT})
class ScaledRotary(nn.Module):
    """Frequencies of which the low ones are divided and those between mixed, by positions that are given."""
    def __init__(self):
        super().__init__()
        inv = 1.0 / (500.0 ** (torch.arange(0, 8, 2, dtype=torch.int64).float() / 8))
        wave = 2 * math.pi / inv
        scaled = torch.where(wave > 40.0, inv / 8, inv)
        smooth = (64 / wave - 1) / 3
        between = ~(wave < 16.0) * ~(wave > 40.0)
        self.register_buffer("inv_freq", torch.where(between, (1 - smooth) * scaled / 8 + smooth * scaled, scaled))

    @torch.no_grad()
    def angles(self, x, position_ids):
        inv = self.inv_freq[None, :, None].float().expand(position_ids.shape[0], -1, 1).to(x.device)
        freqs = (inv.float() @ position_ids[:, None, :].float()).transpose(1, 2)
        emb = torch.cat((freqs, freqs), dim=-1)
        return emb.cos().to(dtype=x.dtype), emb.sin().to(dtype=x.dtype)

    def forward(self, x, position_ids):
        cos, sin = self.angles(x, position_ids)
        half = x.shape[-1] // 2
        return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


@idiom(lambda b, t: {"x": floats(b, t, 16)}, {"x": BT})
class QueryGroups(nn.Module):
    """Few heads of keys for groups of queries, with sinks in the softmax and a cap on scores."""
    def __init__(self):
        super().__init__()
        self.q, self.kv, self.sinks = nn.Linear(16, 16), nn.Linear(16, 8), nn.Parameter(torch.randn(4))

    def forward(self, x):
        b, t, _ = x.shape
        q = self.q(x).view(b, t, 2, 2, 4)
        k, v = self.kv(x).view(b, t, 2, 2, 2).permute(2, 0, 1, 3, 4).reshape(2, b, t, 4).chunk(2, dim=0)
        k, v = (y.squeeze(0).view(b, t, 2, 2).repeat(1, 1, 1, 2) for y in (k, v))
        scores = torch.einsum("bqhgd,bkhd->bhgqk", q, k) * 0.5
        scores = 5.0 * torch.tanh(scores / 5.0)
        scores = scores + torch.triu(scores.new_full((t, t), -float("inf")), diagonal=1)
        sinks = self.sinks.reshape(2, 2, 1, 1).expand(b, -1, -1, t, -1)
        weights = torch.softmax(torch.cat([scores, sinks], dim=-1), dim=-1)[..., :-1]
        return torch.einsum("bhgqk,bkhd->bqhgd", weights, v).reshape(b, t, -1)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class SlopesOfHeads(nn.Module):
    """Linear biases whose slopes come from a recursive function, as a list."""
    def __init__(self):
        super().__init__()
        def slopes(n):
            start = 2 ** (-(2 ** -(math.log2(n) - 3)))
            return [start * start ** i for i in range(n)]
        self.register_buffer("slopes", torch.Tensor(slopes(4)), persistent=False)

    def forward(self, x):
        b, t, d = x.size()
        q = x.view(b, t, 4, d // 4).permute(0, 2, 1, 3)
        bias = self.slopes.unsqueeze(1).unsqueeze(1) * torch.arange(t).unsqueeze(0).unsqueeze(0).expand(4, -1, -1)
        scores = torch.baddbmm(bias.repeat(b, 1, 1), q.reshape(b * 4, t, -1), q.reshape(b * 4, t, -1).transpose(1, 2), beta=1.0, alpha=0.7)
        mask = torch.ones(t, t, dtype=torch.bool).triu(1)
        return torch.masked_fill(scores.view(b, 4, t, t), mask, torch.finfo(scores.dtype).min).softmax(dim=-1)


@idiom(lambda b, t: {"x": floats(b, t, 8), "mask": floats(b, t) > -1}, {"x": BT, "mask": BT})
class LinearAttentionMasked(nn.Module):
    """Kernels of softmaxes over features and over positions, values of what is hidden filled with 0."""
    def __init__(self):
        super().__init__()
        self.to_qkv, self.out = nn.Linear(8, 24, bias=False), nn.Linear(8, 8)

    def forward(self, x, *, mask=None):
        b, n, d = x.shape
        q, k, v = map(lambda y: y.reshape(b, n, 2, 4).transpose(1, 2), self.to_qkv(x).chunk(3, dim=-1))
        if mask is not None:
            mask = mask[:, None, :, None]
            k = k.masked_fill(~mask, -torch.finfo(k.dtype).max)
            v = v.masked_fill(~mask, 0.0)
            del mask
        q, k = q.softmax(dim=-1) * 0.5, k.softmax(dim=-2)
        context = torch.einsum("bhnd,bhne->bhde", k, v)
        return self.out(torch.einsum("bhnd,bhde->bhne", q, context).transpose(1, 2).reshape(b, n, d))


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class StepsOfGates(nn.Module):
    """Gated units one after the other, written into lists, with residuals that are scaled by learned numbers."""
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.ModuleList([nn.LayerNorm(8), nn.Linear(8, 32), nn.Linear(16, 8)]) for _ in range(3)])
        self.scales = nn.ParameterList([nn.Parameter(torch.full((1,), 0.3 * (i + 1))) for i in range(3)])

    def forward(self, x):
        hidden: typing.List[torch.Tensor] = []
        for (norm, up, down), scale in zip(self.layers, self.scales):
            value, gate = up(norm(x)).chunk(2, dim=-1)
            x = x + scale * down(F.gelu(gate) * value)
            hidden.append(x)
        return torch.stack(hidden).mean(0), hidden[::2][-1], sum(h.pow(2).mean() for h in hidden)


@dataclasses.dataclass
class Output:
    logits: typing.Any
    states: typing.Any = None


if torch is not None:
    torch.utils._pytree.register_dataclass(Output)


@idiom(lambda b, t: {"input_ids": ids(b, t), "attention_mask": (floats(b, t) > -1).long()}, {"input_ids": BT, "attention_mask": BT})
class KeywordsAndDataclass(nn.Module):
    """Inputs by keyword alone, **kwargs passed on, a dataclass as the result, masks of 1 and 0."""
    def __init__(self):
        super().__init__()
        self.emb, self.block, self.head = nn.Embedding(20, 8, padding_idx=0), nn.Linear(8, 8), nn.Linear(8, 20, bias=False)

    def _block(self, h, *, scale=1.0, **kwargs):
        return self.block(h) * scale + kwargs.get("more", 0.0)

    def forward(self, input_ids=None, attention_mask=None, **kwargs):
        h = self.emb(input_ids)
        extended = attention_mask[:, None, :].to(dtype=h.dtype)
        extended = (1.0 - extended) * torch.finfo(h.dtype).min
        probs = nn.functional.softmax(torch.baddbmm(extended.expand(-1, h.shape[1], -1), h, h.transpose(1, 2)), dim=-1)
        h = self._block(probs @ h, scale=0.5, more=1.0)
        return Output(logits=self.head(h), states=h).logits


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class TopTwoExperts(nn.Module):
    """Gates by topk and scatter into zeros, all experts at once by einsum, with a loss that balances them."""
    def __init__(self):
        super().__init__()
        self.gate, self.w1, self.w2 = nn.Linear(8, 4, bias=False), nn.Parameter(torch.randn(4, 8, 16) * 0.3), nn.Parameter(torch.randn(4, 16, 8) * 0.3)

    def forward(self, x):
        logits = self.gate(x)
        top, at = logits.topk(2, dim=-1)
        gates = torch.zeros_like(logits).scatter_(-1, at, top.softmax(dim=-1))
        h = F.silu(torch.einsum("btd,edh->bteh", x, self.w1))
        y = torch.einsum("bteh,ehd,bte->btd", h, self.w2, gates)
        probs = logits.softmax(-1)
        density = (gates > 0).float().mean(dim=(0, 1))
        return y, (density * probs.mean((0, 1))).sum() * 4, torch.logsumexp(logits, dim=-1).square().mean()


@idiom(lambda b: {"x": floats(b, 4, 8, 8), "t": ids(b, high=100)}, {"x": B, "t": B}, ((2,), (3,)))
class DiffusionBlock(nn.Module):
    """Steps as sines and cosines, shift and scale of a group norm, a residual of two convolutions."""
    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 16))
        self.norm1, self.conv1 = nn.GroupNorm(2, 4), nn.Conv2d(4, 8, 3, padding=1)
        self.norm2, self.conv2, self.skip = nn.GroupNorm(4, 8, affine=False), nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(4, 8, 1)

    def forward(self, x, t):
        half = 4
        freqs = torch.exp(-math.log(10000) * torch.arange(start=0, end=half, dtype=torch.float32) / half).to(device=t.device)
        args = t[:, None].float() * freqs[None]
        emb = self.mlp(torch.cat([torch.cos(args), torch.sin(args)], dim=-1).to(x.dtype))
        while len(emb.shape) < len(x.shape):
            emb = emb[..., None]
        scale, shift = torch.chunk(emb, 2, dim=1)
        h = self.conv1(F.silu(self.norm1(x)))
        h = self.norm2(h) * (1 + scale) + shift
        return (self.skip(x) + self.conv2(F.silu(h))) / math.sqrt(2)


@idiom(lambda b, t: {"x": floats(b, t, 8), "c": floats(b, 8, seed=9)}, {"x": BT, "c": B})
class AdaptiveNorm(nn.Module):
    """A norm without weights, changed by six vectors of a condition."""
    def __init__(self):
        super().__init__()
        self.norm, self.ada, self.fc = nn.LayerNorm(8, elementwise_affine=False, eps=1e-6), nn.Sequential(nn.SiLU(), nn.Linear(8, 48)), nn.Linear(8, 8)

    def forward(self, x, c):
        a, b, g, d, e, h = self.ada(c).chunk(6, dim=1)
        def modulate(y, shift, scale):
            return y * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)
        y = modulate(self.norm(x), a, b)
        x = x + g.unsqueeze(1) * F.scaled_dot_product_attention(y[:, None], y[:, None], y[:, None]).squeeze(1)
        return x + h.unsqueeze(1) * self.fc(modulate(self.norm(x), d, e))


@idiom(lambda b: {"user": ids(b, high=10), "items": ids(b, 6, seed=4, high=15), "target": ids(b, seed=5, high=15)}, {"user": B, "items": B, "target": B}, ((4,), (3,)))
class Recommender(nn.Module):
    """A history read by the target, crosses of all pairs of fields, deep and wide parts."""
    def __init__(self):
        super().__init__()
        self.users, self.items, self.wide = nn.Embedding(10, 6), nn.Embedding(15, 6, padding_idx=0), nn.Embedding(15, 1)
        self.unit, self.deep = nn.Sequential(nn.Linear(24, 8), nn.PReLU(), nn.Linear(8, 1)), nn.Sequential(nn.Linear(18, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, user, items, target):
        u, h, q = self.users(user), self.items(items), self.items(target)
        wide = q.unsqueeze(1).expand_as(h)
        scores = self.unit(torch.cat([wide, h, wide - h, wide * h], dim=-1)).squeeze(-1)
        scores = torch.where(items == 0, torch.full_like(scores, -2.0 ** 32 + 1), scores)
        pooled = torch.bmm(scores.softmax(1)[:, None], h).squeeze(1)
        fields = torch.stack([u, pooled, q], dim=1)
        fm = 0.5 * (fields.sum(1).pow(2) - fields.pow(2).sum(1)).sum(1, keepdim=True)
        rows, columns = zip(*[(i, j) for i in range(3) for j in range(i + 1, 3)])
        crosses = (fields[:, list(rows)] * fields[:, list(columns)]).sum(-1)
        return torch.sigmoid(self.wide(target) + fm + self.deep(fields.flatten(1)) + crosses.sum(1, keepdim=True)).squeeze(-1)


@idiom(lambda b: {"x": floats(b, 12, 3), "mark": ids(b, 12, 2, high=7)}, {"x": B, "mark": B}, ((3,), (2,)))
class InvertedSeries(nn.Module):
    """Each variable is a token; statistics are taken off and put back; marks are embedded by columns."""
    def __init__(self):
        super().__init__()
        self.emb, self.hours, self.attn, self.out = nn.Linear(12, 8), nn.Embedding(7, 4), nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 5)
        self.mark = nn.Linear(12, 8)

    def forward(self, x, mark):
        means = x.mean(1, keepdim=True).detach()
        x = x - means
        std = torch.sqrt(torch.var(x, dim=1, keepdim=True, unbiased=False) + 1e-5)
        x /= std
        tokens = torch.cat([self.emb(x.permute(0, 2, 1)), self.mark((self.hours(mark[..., 0]) + self.hours(mark[:, :, 1])).permute(0, 2, 1))], 1)
        y, weights = self.attn(tokens, tokens, tokens, average_attn_weights=False)
        y = self.out(y + tokens).permute(0, 2, 1)[:, :, :x.shape[-1]]
        return y * std[:, 0, :].unsqueeze(1).repeat(1, 5, 1) + means[:, 0, :].unsqueeze(1).repeat(1, 5, 1), weights


@idiom(lambda b: {"wave": floats(b, 64)}, {"wave": B}, ((2,), (3,)))
class Filters(nn.Module):
    """Frames of a wave by unfold, windowed, through bases of cosines and sines, as logarithms of mel bands, normed."""
    def __init__(self):
        super().__init__()
        n = torch.arange(16).float()
        angles = 2 * math.pi * torch.outer(torch.arange(9).float(), n) / 16
        self.register_buffer("real", torch.cos(angles) * torch.hann_window(16))
        self.register_buffer("imag", -torch.sin(angles) * torch.hann_window(16))
        self.register_buffer("mel", torch.rand(9, 5))

    def forward(self, wave):
        wave = torch.cat([wave[:, :1], wave[:, 1:] - 0.97 * wave[:, :-1]], dim=1)
        padded = F.pad(wave.unsqueeze(1), (8, 8), mode="reflect").squeeze(1)
        frames = padded.unfold(-1, 16, 8)
        power = (frames @ self.real.T) ** 2 + (frames @ self.imag.T) ** 2
        mel = torch.clamp(power @ self.mel, min=1e-10).log10()
        mel = torch.maximum(mel, mel.amax(dim=(1, 2), keepdim=True) - 8.0)
        return ((mel + 4.0) / 4.0).transpose(1, 2), (mel - mel.mean(1, keepdim=True)) / (mel.std(1, keepdim=True) + 1e-5)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class RelativeKeys(nn.Module):
    """Vectors of clipped distances added to keys and to values."""
    def __init__(self):
        super().__init__()
        self.qkv, self.keys, self.values = nn.Linear(8, 24), nn.Parameter(torch.randn(7, 4) * 0.3), nn.Embedding(7, 4)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, 2, 4).transpose(1, 2) for y in self.qkv(x).split(8, -1))
        place = torch.arange(t, device=x.device)
        away = torch.clamp(place[None, :] - place[:, None], -3, 3) + 3
        rk = self.keys[away]
        scores = (torch.matmul(q, k.transpose(-1, -2)) + torch.einsum("bhid,ijd->bhij", q, rk)) / 2.0
        p = scores.softmax(-1)
        return (p @ v + torch.einsum("bhij,ijd->bhid", p, self.values(away))).transpose(1, 2).flatten(-2)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class DisentangledPositions(nn.Module):
    """Distances in buckets of logarithms, gathered from scores of contents with positions, both ways."""
    def __init__(self):
        super().__init__()
        self.rel, self.q, self.k = nn.Embedding(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        b, t, _ = x.shape
        i = torch.arange(t)
        away = i[:, None] - i[None, :]
        mid = 2
        sign = torch.sign(away)
        near = torch.where((away < mid) & (away > -mid), torch.tensor(mid - 1).type_as(away), torch.abs(away))
        log = torch.ceil(torch.log(near / mid) / math.log(7.5 / mid) * (mid - 1)) + mid
        bucket = torch.where(near <= mid, away.type_as(log), log * sign).long()
        at = torch.clamp(bucket + 4, 0, 7)
        c2p = torch.gather(self.q(x) @ self.rel.weight.T, -1, at[None].expand(b, t, t))
        p2c = torch.gather(self.k(x) @ self.rel.weight.T, -1, at[None].expand(b, t, t)).transpose(-1, -2)
        return ((self.q(x) @ self.k(x).mT + c2p + p2c) / math.sqrt(24)).softmax(-1) @ x


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class StateSpace(nn.Module):
    """A causal convolution, gates, a scan as sums of decays over all earlier steps."""
    def __init__(self):
        super().__init__()
        self.inp, self.conv, self.dt, self.out = nn.Linear(8, 16), nn.Conv1d(8, 8, 4, groups=8, padding=3), nn.Linear(8, 8), nn.Linear(8, 8)
        self.A_log, self.D = nn.Parameter(torch.log(torch.arange(1, 9).float())), nn.Parameter(torch.ones(8))

    def forward(self, x):
        t = x.shape[1]
        y, z = self.inp(x).chunk(2, dim=-1)
        y = F.silu(self.conv(y.transpose(1, 2))[..., :t].transpose(1, 2))
        dt = F.softplus(self.dt(y))
        decay = torch.cumsum(dt * -torch.exp(self.A_log), dim=1)
        seen = torch.tril(torch.ones(t, t, dtype=torch.bool))
        weights = torch.exp((decay[:, :, None] - decay[:, None]).masked_fill(~seen[None, :, :, None], -torch.inf))
        h = torch.einsum("bijd,bjd->bid", weights, dt * y)
        return self.out((h + self.D * y) * F.silu(z))


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class ShiftedMixes(nn.Module):
    """Channels mixed with those of the position before, kept in a list by a loop over names of parameters."""
    def __init__(self):
        super().__init__()
        self.mix = nn.ParameterDict({name: nn.Parameter(torch.rand(8)) for name in ("r", "k", "v")})
        self.proj = nn.ModuleDict({name: nn.Linear(8, 8, bias=False) for name in ("r", "k", "v")})
        self.time_decay, self.ln = nn.Parameter(torch.randn(8)), nn.GroupNorm(2, 8)

    def forward(self, x):
        before = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], dim=1)
        r, k, v = (self.proj[n](torch.lerp(before, x, self.mix[n])) for n in ("r", "k", "v"))
        t = x.size(1)
        away = (torch.arange(t)[:, None] - torch.arange(t)[None, :]).clamp(min=0)
        w = torch.exp(-torch.exp(self.time_decay))[None, None] ** away[..., None]
        w = w * torch.ones(t, t).tril()[..., None]
        k = k - k.max(dim=1, keepdim=True).values
        top = torch.einsum("ijd,bjd->bid", w, k.exp() * v)
        low = torch.einsum("ijd,bjd->bid", w, k.exp())
        y = torch.sigmoid(r) * top / (low + 1e-6)
        return self.ln(y.reshape(-1, 8)).view_as(y)


@idiom(lambda b, t: {"x": floats(b, t, 8), "lengths": torch.tensor([t, 3, 2])[:b]}, {"x": BT, "lengths": B}, ((3, 7), (2, 5)))
class LengthsOfParts(nn.Module):
    """Masks of lengths, ones put at ends, pooling by attention with statistics, as speaker models do it."""
    def __init__(self):
        super().__init__()
        self.tdnn, self.att = nn.Conv1d(8, 8, 3, padding="same", dilation=2), nn.Sequential(nn.Conv1d(24, 4, 1), nn.ReLU(), nn.BatchNorm1d(4), nn.Tanh(), nn.Conv1d(4, 8, 1))

    def forward(self, x, lengths):
        h = F.relu(self.tdnn(x.transpose(1, 2)))
        mask = (torch.arange(h.size(2)).expand(lengths.size(0), h.size(2)) < lengths.unsqueeze(1)).unsqueeze(1).to(h.dtype)
        total = mask.sum(dim=2, keepdim=True)
        mean = (h * mask / total).sum(2)
        std = torch.sqrt(((h - mean.unsqueeze(2)).pow(2) * mask / total).sum(2).clamp(1e-8))
        rows = torch.cat([h, mean.unsqueeze(2).repeat(1, 1, h.shape[2]), std.unsqueeze(2).repeat(1, 1, h.shape[2])], dim=1)
        att = F.softmax(self.att(rows).masked_fill(mask == 0, float("-inf")), dim=2)
        ends = torch.zeros(x.shape[:2]).index_put((torch.arange(x.shape[0]), lengths - 1), torch.tensor(1.0))
        return torch.cat([(att * h).sum(2), std], dim=1), ends.cumsum(1)


@idiom(lambda b: {"x": floats(b, 3, 16, 16)}, {"x": B}, ((2,), (3,)))
class Pyramid(nn.Module):
    """Maps of several sizes brought together by interpolation, a sum over a list, outputs in a dict."""
    def __init__(self):
        super().__init__()
        self.stages = nn.ModuleList([nn.Sequential(nn.Conv2d(3 if i == 0 else 4, 4, 3, 2, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU6(inplace=True)) for i in range(3)])
        self.lateral, self.head = nn.ModuleList([nn.Conv2d(4, 4, 1) for _ in range(3)]), nn.Conv2d(4, 2, 3, padding=1)

    def forward(self, x):
        maps = []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        y = self.lateral[-1](maps[-1])
        found = {"p2": self.head(y)}
        for i in (1, 0):
            y = F.interpolate(y, size=maps[i].shape[-2:], mode="nearest") + self.lateral[i](maps[i])
            found[f"p{i}"] = self.head(y)
        up = F.interpolate(found["p2"], scale_factor=2, mode="bilinear", align_corners=False)
        return found["p0"], found["p1"], found["p2"].flatten(2).transpose(1, 2), up


@idiom(lambda b: {"x": floats(b, 8, 6, 6)}, {"x": B}, ((2,), (3,)))
class Gates(nn.Module):
    """Channels weighed by pooling, and by a convolution over channels; places by means and greatest."""
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.eca, self.spatial = nn.Conv2d(8, 2, 1), nn.Conv2d(2, 8, 1), nn.Conv1d(1, 1, 3, padding=1, bias=False), nn.Conv2d(2, 1, 3, padding=1)

    def forward(self, x):
        s = x.mean((2, 3), keepdim=True)
        x = x * F.hardsigmoid(self.fc2(F.relu(self.fc1(s), inplace=True)))
        y = self.eca(F.adaptive_avg_pool2d(x, 1).squeeze(-1).transpose(-1, -2)).transpose(-1, -2).unsqueeze(-1)
        x = x * y.sigmoid().expand_as(x)
        both = torch.cat([x.mean(1, keepdim=True), x.max(1, keepdim=True)[0]], dim=1)
        x = x * torch.sigmoid(self.spatial(both))
        return x.flatten(2).amax(-1), F.adaptive_max_pool2d(x, (2, 2)), x.std(dim=(2, 3))


@idiom(lambda b: {"x": floats(b, 4, 8, 8)}, {"x": B}, ((2,), (3,)))
class GridAndBlocks(nn.Module):
    """Attention within blocks and over a grid of an image, by reshapes as einops writes them, with a drop path."""
    def __init__(self):
        super().__init__()
        self.qkv, self.norm, self.ls = nn.Linear(4, 12), nn.LayerNorm(4), nn.Parameter(torch.full((4,), 0.1))

    def attend(self, x):
        q, k, v = self.qkv(self.norm(x)).reshape(*x.shape[:-1], 3, 2, 2).movedim(-3, 0).transpose(-3, -2).unbind(0)
        return F.scaled_dot_product_attention(q, k, v).transpose(-3, -2).flatten(-2)

    def forward(self, x):
        b, c, h, w = x.shape
        y = x.permute(0, 2, 3, 1)
        blocks = y.reshape(b, h // 4, 4, w // 4, 4, c).swapaxes(2, 3).reshape(b, -1, 16, c)
        blocks = blocks + self.ls * self.attend(blocks)
        y = blocks.reshape(b, h // 4, w // 4, 4, 4, c).swapaxes(2, 3).reshape(b, h, w, c)
        grid = y.view(b, 4, h // 4, 4, w // 4, c).permute(0, 2, 4, 1, 3, 5).flatten(3, 4).flatten(1, 2)
        grid = grid + self.ls * self.attend(grid)
        y = grid.unflatten(1, (h // 4, w // 4)).unflatten(3, (4, 4)).permute(0, 3, 1, 4, 2, 5).reshape(b, h, w, c)
        return y.permute(0, 3, 1, 2)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class StraightThrough(nn.Module):
    """Codes by the smallest distance and by levels, whose gradients go around them; a target that is not trained."""
    def __init__(self):
        super().__init__()
        self.codes, self.proj, self.teacher = nn.Parameter(torch.randn(6, 8)), nn.Linear(8, 8), nn.Linear(8, 8)
        self.register_buffer("levels", torch.tensor([3.0, 5.0, 7.0, 3.0, 5.0, 7.0, 3.0, 5.0]))

    def forward(self, x):
        z = self.proj(x)
        with torch.no_grad():
            away = torch.cdist(z.flatten(0, 1), self.codes)
            nearest = away.argmin(-1).view(x.shape[:2])
            target = F.normalize(self.teacher(x), dim=-1)
        q = self.codes[nearest]
        loss = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())
        bounded = torch.tanh(z) * (self.levels - 1) / 2
        rounded = bounded + (torch.round(bounded) - bounded).detach()
        return z + (q - z).detach(), loss, rounded, 2 - 2 * (F.normalize(z, dim=-1) * target).sum(-1)


@idiom(lambda b, t: {"ids": ids(b, t), "segments": ids(b, t, seed=2, high=3) - 1}, {"ids": BT, "segments": BT})
class Segments(nn.Module):
    """Documents in one row that do not see each other, positions that begin anew, last places by argmax."""
    def __init__(self):
        super().__init__()
        self.emb, self.pos = nn.Embedding(20, 8), nn.Embedding(16, 8)

    def forward(self, ids, segments):
        t = ids.shape[1]
        begins = torch.cat([torch.ones_like(segments[:, :1]), (segments[:, 1:] != segments[:, :-1]).long()], dim=1)
        number = begins.cumsum(1)
        place = torch.arange(t)[None] - torch.cummax(torch.arange(t)[None] * begins, dim=1)[0]
        x = self.emb(ids) + self.pos(place)
        same = (number[:, :, None] == number[:, None, :]) & torch.ones(t, t).tril().bool()
        y = F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], attn_mask=same[:, None]).squeeze(1)
        return y, y[torch.arange(y.shape[0]), (ids == ids.max(-1, keepdim=True)[0]).int().argmax(-1)]


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class InPlaceParts(nn.Module):
    """Parts of results written one by one into a tensor that was empty."""
    def forward(self, x):
        out = torch.empty_like(x)
        out[..., :4] = x[..., 4:].neg()
        out[..., 4:] = x[..., :4]
        out[:, 0] = 0.0
        out[:, 1:, ::3] += 1
        out[..., -1].mul_(2).add_(x[..., 0])
        y = x.new_zeros(x.shape[0], x.shape[1] + 2, 8)
        y[:, 1:-1] = out
        y[:, -1, :2] = x[:, 0, :2].relu_()
        return out, y, x.clone().fill_diagonal_(0.0) if x.ndim == 2 else y.clamp_(-1, 1)


@idiom(lambda b: {"x": floats(b, 6), "cat": ids(b, 2, high=4)}, {"x": B, "cat": B}, ((5,), (4,)))
class SelectedFeatures(nn.Module):
    """Steps that choose columns by sparse gates, with what was used before taken off; ghost norms of halves are not."""
    def __init__(self):
        super().__init__()
        self.embs = nn.ModuleList([nn.Embedding(n, d) for n, d in ((4, 2), (5, 3))])
        self.bn, self.att, self.feat = nn.BatchNorm1d(11, momentum=0.02), nn.ModuleList([nn.Linear(4, 11) for _ in range(2)]), nn.ModuleList([nn.Linear(11, 16) for _ in range(3)])

    @staticmethod
    def sparsemax(z):
        s, _ = torch.sort(z, dim=-1, descending=True)
        k = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype)
        total = torch.cumsum(s, -1)
        support = (1 + k * s) > total
        n = support.sum(-1, keepdim=True)
        tau = (total.gather(-1, n - 1) - 1) / n.to(z.dtype)
        return torch.clamp(z - tau, min=0.0)

    def forward(self, x, cat):
        x = torch.cat([x] + [emb(cat[:, i].long()) for i, emb in enumerate(self.embs)], dim=1)
        x = self.bn(x)
        prior, out, loss = torch.ones_like(x), 0, 0.0
        a = F.glu(self.feat[0](x))[:, 4:]
        for att, feat in zip(self.att, self.feat[1:]):
            m = self.sparsemax(att(a) * prior)
            loss = loss + torch.mean(torch.sum(m * torch.log(m + 1e-15), dim=1))
            prior = prior * (1.3 - m)
            d, a = F.glu(feat(m * x)).split([4, 4], dim=1)
            out = out + F.relu(d)
        return out, loss / 2


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class Hyper(nn.Module):
    """Streams beside each other, mixed by learned matrices, with dynamic weights."""
    def __init__(self):
        super().__init__()
        self.alpha, self.beta, self.norm, self.dyn = nn.Parameter(torch.eye(3) + 0.1), nn.Parameter(torch.ones(3)), nn.RMSNorm(8), nn.Parameter(torch.randn(8, 3) * 0.1)
        self.branch = nn.Linear(8, 8)

    def forward(self, x):
        streams = x.unsqueeze(-2).expand(*x.shape[:-1], 3, x.shape[-1]).contiguous()
        for _ in range(2):
            w = self.alpha + torch.tanh(self.norm(streams) @ self.dyn)
            mixed = torch.einsum("...sd,...st->...td", streams, w)
            y = self.branch(mixed[..., 0, :])
            streams = mixed + self.beta[:, None] * y[..., None, :]
        return streams.sum(dim=-2), streams[..., 0, :], streams.flatten(-2)


@idiom(lambda b, t: {"tokens": ids(b, t, high=16), "mask": (floats(b, t) > -1).to(torch.uint8)}, {"tokens": BT, "mask": BT})
class BytesOfTokens(nn.Module):
    """Bits of ids by division, hashes of neighbours, a mask of bytes, one hot of pairs."""
    def __init__(self):
        super().__init__()
        self.table, self.bits = nn.Embedding(31, 6), nn.Linear(4, 6)

    def forward(self, tokens, mask):
        bits = torch.stack([(tokens // 2 ** i) % 2 for i in range(4)], dim=-1).to(self.bits.weight.dtype)
        before = F.pad(tokens, (1, 0))[:, :-1]
        mixed = (tokens * 7 + before * 13) % 31
        h = self.bits(bits * 2 - 1) + self.table(mixed)
        h = h * mask.unsqueeze(-1) + (1 - mask).unsqueeze(-1).to(h.dtype) * h.mean(-1, keepdim=True)
        pairs = F.one_hot(tokens % 3, 3).unsqueeze(-1) * F.one_hot(before % 2, 2).unsqueeze(-2)
        return h, pairs.flatten(-2).to(h.dtype).mean(1)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT}, refused=("idioms_modern.py:", "a size that runs choose"))
class RecurrentHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.rnn = nn.Linear(8, 8), nn.GRU(8, 4, num_layers=2, batch_first=True, bidirectional=True)

    def forward(self, x):
        h = self.body(x)
        h, last = self.rnn(h)
        return h.mean(1), last[-1]


@idiom(lambda b: {"x": floats(b, 5, 8)}, {"x": B}, ((3,), (2,)))
class RecurrentOfKnownLength(nn.Module):
    """Layers both ways over a known number of steps."""
    def __init__(self):
        super().__init__()
        self.rnn, self.lstm = nn.GRU(8, 4, num_layers=2, batch_first=True, bidirectional=True), nn.LSTM(8, 4, proj_size=2)

    def forward(self, x):
        h, last = self.rnn(x)
        y, (hn, cn) = self.lstm(x.transpose(0, 1))
        return h, last[-1], y, hn, cn


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT}, refused=("idioms_modern.py:",))
class Halting(nn.Module):
    """Repeats until all have had enough: a loop that values end."""
    def __init__(self):
        super().__init__()
        self.step, self.halt = nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, x):
        p = torch.zeros(x.shape[:2])
        while (p < 0.9).any():
            x = torch.tanh(self.step(x))
            p = p + torch.sigmoid(self.halt(x)).squeeze(-1)
        return x


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT}, refused=("became the constant 7", "idioms_modern.py:"))
class FixedTime(nn.Module):
    """A weight over time, which fixes how long a sequence is."""
    def __init__(self):
        super().__init__()
        self.time = nn.Linear(7, 7)

    def forward(self, x):
        return self.time(x.transpose(1, 2)).transpose(1, 2)


@idiom(lambda b, t: {"x": floats(b, t, 8), "lengths": torch.tensor([t, 3, 2])[:b]}, {"x": BT, "lengths": B}, ((3, 7),), refused=("became the constant 3", "idioms_modern.py:"))
class LengthByLen(nn.Module):
    """len() of a tensor is a number of Python: the size of the example."""
    def forward(self, x, lengths):
        return x.masked_fill((torch.arange(x.size(1)).expand(len(lengths), -1) >= lengths[:, None])[..., None], 0.0)
