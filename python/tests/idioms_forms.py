"""Masks, attention, rotary angles, gates, routers, statistics and distances as people write them, with inputs and outputs
of several kinds; for test_torch_idioms.py.
"""
import collections
import math
from typing import Optional

from idioms_table import floats, idiom, ids, nn, torch

F = nn.functional if nn else None
BT, B = {0: "batch", 1: "time"}, {0: "batch"}


@idiom(lambda b, t: {"x": floats(b, t, 8), "lengths": torch.randint(1, t + 1, (b,), generator=torch.Generator().manual_seed(1))},
       {"x": BT, "lengths": B})
class PackedMask(nn.Module):
    """key_padding_mask made of lengths, attn_mask causal float, MHA need_weights False."""
    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)

    def forward(self, x, lengths):
        t = x.size(1)
        pad = torch.arange(t)[None, :] >= lengths[:, None]
        causal = nn.Transformer.generate_square_subsequent_mask(t)
        y, _ = self.attn(x, x, x, key_padding_mask=pad.float().masked_fill(pad, float("-inf")), attn_mask=causal, need_weights=False)
        y = self.norm(x + y).masked_fill(pad.unsqueeze(-1), 0)
        return y.sum(1) / lengths.clamp(min=1).unsqueeze(-1)


@idiom(lambda b, t: {"x": floats(b, t, 8), "mask": ids(b, t, high=3) == 5}, {"x": BT, "mask": BT})
class EncoderStackNormFirst(nn.Module):
    """Layers with norms first and a norm behind them."""
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(8), enable_nested_tensor=False)

    def forward(self, x, mask):
        return self.enc(x, src_key_padding_mask=mask)


@idiom(lambda b, t: {"x": floats(b, t, 8), "mask": floats(b, t) > -0.7}, {"x": BT, "mask": BT})
class MhaMasksBoth(nn.Module):
    """attn_mask of 3 dims (b*h), average weights returned."""
    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(8, 2, batch_first=True, kdim=8, vdim=8)

    def forward(self, x, mask):
        b, t, _ = x.shape
        keep = mask | (torch.arange(t) == 0)
        m3 = (keep[:, None, :] & torch.ones(t, t).tril().bool()).repeat_interleave(2, dim=0)
        y, w = self.attn(x, x, x, attn_mask=~m3)
        _, w2 = self.attn(x, x, x, attn_mask=~m3, average_attn_weights=False)
        return y, w, w2.amax(1)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class ComplexRope(nn.Module):
    """Angles as complex numbers of a buffer, one part conjugated."""
    def __init__(self):
        super().__init__()
        freqs = 1.0 / (10000.0 ** (torch.arange(0, 4, 2).float() / 4))
        t = torch.arange(32)
        self.register_buffer("freqs_cis", torch.polar(torch.ones(32, 2), torch.outer(t, freqs)))
        self.wq = nn.Linear(8, 8, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        q = self.wq(x).view(b, t, 2, 4)
        qc = torch.view_as_complex(q.float().reshape(*q.shape[:-1], -1, 2))
        f = self.freqs_cis[:t].view(1, t, 1, -1)
        return torch.view_as_real(qc * f.conj()).flatten(3).type_as(x).reshape(b, t, -1)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class RelBiasT5Like(nn.Module):
    """Relative bias by clamp + embedding, added to SDPA as attn_mask."""
    def __init__(self):
        super().__init__()
        self.bias = nn.Embedding(9, 2)
        self.qkv = nn.Linear(8, 24)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        p = torch.arange(t)
        rel = (p[None] - p[:, None]).clamp(-4, 4) + 4
        bias = self.bias(rel).permute(2, 0, 1).unsqueeze(0)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=0.3)
        return out.transpose(1, 2).contiguous().view(b, t, d)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class SinusoidalInForward(nn.Module):
    """Positions made in forward by strided assignment."""
    def forward(self, x):
        t, d = x.size(1), x.size(2)
        pe = torch.zeros(t, d)
        pos = torch.arange(0, t, dtype=torch.float).unsqueeze(1)
        div = torch.exp(torch.arange(0, d, 2).float() * (-math.log(10000.0) / d))
        pe[:, 0::2] = torch.sin(pos * div)
        pe[:, 1::2] = torch.cos(pos * div)
        return x * math.sqrt(d) + pe.unsqueeze(0)


@idiom(lambda b, t: {"ids": ids(b, t)}, {"ids": BT})
class TiedWeightNormedHead(nn.Module):
    """A tied head, a weight with weight norm, F.glu, the log probability of each id."""
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(20, 8, padding_idx=0)
        self.proj = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))
        self.head = nn.Linear(8, 20, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, ids):
        h = self.emb(ids)
        h = F.glu(torch.cat([h, self.proj(h)], -1)) * 2
        return F.log_softmax(self.head(h), -1).gather(-1, ids.unsqueeze(-1)).squeeze(-1)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class GluVariants(nn.Module):
    """SwiGLU, GEGLU and squared ReLU from one product."""
    def __init__(self):
        super().__init__()
        self.w = nn.Linear(8, 48)
        self.o = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])

    def forward(self, x):
        a, b, c, d, e, f = self.w(x).split(8, -1)
        ys = [F.silu(a) * b, F.gelu(c, approximate="tanh") * d, F.relu(e).pow(2) * f.sigmoid()]
        return sum(o(y) for o, y in zip(self.o, ys)) / len(ys)


@idiom(lambda b, t: {"x": floats(b, t, 6)}, {"x": BT}, shapes=((3, 9), (2, 12), (5, 7)))
class ConvFront(nn.Module):
    """Conv1d front end with stride, BatchNorm1d, max pooling; mean and max at the end."""
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(6, 8, 3, stride=2, padding=1), nn.BatchNorm1d(8), nn.ReLU(inplace=True),
                                  nn.MaxPool1d(2, stride=1), nn.Conv1d(8, 8, 3, padding="same", dilation=2, groups=2))

    def forward(self, x):
        y = self.conv(x.transpose(1, 2))
        return torch.cat([y.mean(-1), y.amax(dim=2), F.adaptive_max_pool1d(y, 1).squeeze(-1)], dim=1)


Out = collections.namedtuple("Out", ["logits", "hidden", "aux"])


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class NamedTupleOut(nn.Module):
    """A named tuple with a dict in it; an optional input that is not given."""
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 3)

    def forward(self, x, scale: Optional[torch.Tensor] = None, return_hidden: bool = True):
        h = self.l(x)
        if scale is not None:
            h = h * scale
        aux = {"mean": h.mean(), "top": h.topk(2, dim=-1).indices}
        return Out(h.softmax(-1), h if return_hidden else None, aux)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class MovesOfElements(nn.Module):
    """roll, flip, cumsum, cumprod, unbind, chunk, stack, narrow, movedim, swapaxes, tile."""
    def forward(self, x):
        a = torch.roll(x, shifts=(1, -2), dims=(1, 2))
        b = x.flip([1]).cumsum(1).flip([1])
        c, d = x.chunk(2, dim=-1)
        e = torch.stack(torch.unbind(c, -1), dim=1).movedim(1, -1).swapaxes(1, 2).mT
        g = torch.cumprod(torch.tanh(d) + 1.5, dim=-1)
        h = x.narrow(1, 1, x.size(1) - 1)
        return a, b, e.tile(1, 1, 2) + torch.cat([g, g], -1), h.diff(dim=1)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class RoutedTopK(nn.Module):
    """The two best of four experts by einsum and bmm, and the loss of their load."""
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(8, 4)
        self.w1 = nn.Parameter(torch.randn(4, 8, 6) * 0.3)
        self.w2 = nn.Parameter(torch.randn(4, 6, 8) * 0.3)

    def forward(self, x):
        b, t, d = x.shape
        x = x.reshape(-1, d)
        probs = F.softmax(self.gate(x), dim=-1, dtype=torch.float).to(x.dtype)
        w, sel = torch.topk(probs, 2, dim=-1)
        w /= w.sum(-1, keepdim=True)
        mask = F.one_hot(sel, num_classes=4).type_as(w)
        full = torch.einsum("nk,nke->ne", w, mask)
        h = torch.einsum("nd,edf->enf", x, self.w1)
        y = torch.bmm(F.silu(h), self.w2)
        load = mask.sum(1).mean(0)
        return torch.einsum("ne,end->nd", full, y).view(b, t, d), (load * probs.mean(0)).sum() * 4


@idiom(lambda b, t: {"x": floats(b, t, 4), "to": ids(b, t, high=6)}, {"x": BT, "to": BT})
class IndexAdds(nn.Module):
    """Sums by index_add and scatter_add, with the batch in the index."""
    def forward(self, x, to):
        b, t, d = x.shape
        out = x.new_zeros(b * 6, d)
        flat = (to + 6 * torch.arange(b)[:, None]).view(-1)
        out = out.index_add(0, flat, x.reshape(-1, d))
        count = torch.zeros(b * 6).scatter_add_(0, flat, torch.ones_like(flat, dtype=x.dtype))
        mean = out / count.clamp_min(1)[:, None]
        return mean.view(b, 6, d), count.view(b, 6), count.sum()


@idiom(lambda b, t: {"x": floats(b, t)}, {"x": BT})
class SearchBuckets(nn.Module):
    """bucketize, searchsorted and one_hot of a number."""
    def __init__(self):
        super().__init__()
        self.register_buffer("edges", torch.tensor([-1.0, -0.3, 0.2, 0.9]))
        self.emb = nn.Embedding(5, 3)

    def forward(self, x):
        at = torch.bucketize(x, self.edges, right=True)
        also = torch.searchsorted(self.edges, x.contiguous())
        return self.emb(at) + self.emb.weight[also], (at != also).sum(-1), F.one_hot(at, 5).float().mean(1)


@idiom(lambda b, t: {"x": ids(b, t, high=50)}, {"x": BT})
class IntegerArithmetic(nn.Module):
    """// and % of negative numbers, div with a mode, fmod, where and bits."""
    def forward(self, x):
        a = (x - 25) // 4
        b = (x - 25) % 4
        c = torch.div(x - 25, 4, rounding_mode="trunc")
        d = torch.fmod(x - 25, 4)
        e = x * 2 + 1
        f = torch.where(x % 2 == 0, x // 2, 3 * x + 1)
        return a + b * 100, c, d, e, f.float().mean(-1), x.to(torch.float32) / 3, (-7 // x.clamp(1)), torch.bitwise_and((x > 3).int(), (x < 9).int())


@idiom(lambda b, t: {"x": floats(b, t), "y": floats(b, t, seed=9)}, {"x": BT, "y": BT})
class BoolsAndNans(nn.Module):
    """nan_to_num, clamp between tensors, operators of bools, any, all, isfinite."""
    def forward(self, x, y):
        z = torch.where(x > 0, x / (x > 0.5).float(), y)
        z = torch.nan_to_num(z, nan=0.0, posinf=5.0, neginf=-5.0)
        lo, hi = torch.minimum(x, y), torch.maximum(x, y)
        m = (x > 0) & ~(y > 0) | (x.abs() < 0.1)
        n = torch.logical_xor(x > 0, y > 0).any(1)
        return torch.clamp(z, lo, hi), m.float().sum(1), n, (x > y).all(dim=-1, keepdim=True), x.isfinite().sum(), torch.isclose(x, x + 1e-9).long().sum(1)


@idiom(lambda b, t: {"x": floats(b, t, 6)}, {"x": BT})
class Statistics(nn.Module):
    """var_mean, std with a correction, norms of several orders."""
    def forward(self, x):
        v, m = torch.var_mean(x, dim=1, correction=0)
        s = x.std(dim=(1, 2), unbiased=True, keepdim=True)
        q = x.norm(p=3, dim=-1)
        r = torch.linalg.vector_norm(x, ord=1, dim=-1)
        w = x.norm(p=float("inf"), dim=-1)
        return (x - m[:, None]) / (v[:, None] + 1e-5).sqrt() + s, q, r, w, x.norm(dim=(1, 2)), torch.linalg.norm(x, dim=-1)


@idiom(lambda b, t: {"x": floats(b, t, 6), "y": floats(b, 5, 6, seed=4)}, {"x": BT, "y": B})
class Distances(nn.Module):
    """cdist, baddbmm, pairwise_distance, rows of what is nearest."""
    def forward(self, x, y):
        d2 = torch.cdist(x, y)
        d1 = torch.cdist(x, y, p=1.0)
        a = torch.baddbmm(d1, x, y.transpose(1, 2), beta=0.5, alpha=2.0)
        s = F.pairwise_distance(x[:, 0], y[:, 0])
        near = d2.argmin(-1)
        return d2, a, s, torch.gather(y, 1, near.unsqueeze(-1).expand(-1, -1, y.size(-1)))


@idiom(lambda b, t: {"x": floats(b, 3, t, t)}, {"x": {0: "batch", 2: "side", 3: "side"}}, shapes=((2, 8), (3, 12), (1 + 1, 4)))
class PatchRearrange(nn.Module):
    """b c (h p) (w q) -> b (h w) (p q c), as einops does it."""
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(12, 5)
        self.cls = nn.Parameter(torch.randn(1, 1, 5))

    def forward(self, x):
        b, c, h, w = x.shape
        y = x.reshape(b, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 3, 5, 1).reshape(b, (h // 2) * (w // 2), 2 * 2 * c)
        y = torch.cat((self.cls.expand(b, -1, -1), self.l(y)), dim=1)
        return y[:, 0], y[:, 1:].mean(dim=1)


@idiom(lambda b, t: {"batch": {"ids": ids(b, t), "mask": floats(b, t) > -1, "extra": [floats(b, 4), floats(b, 4, seed=2)]}},
       {"batch_ids": BT, "batch_mask": BT, "batch_extra_0": B, "batch_extra_1": B})
class DictInput(nn.Module):
    """A dict with a list in it, and keywords that are not given."""
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(20, 4)

    def forward(self, batch, **kwargs):
        h = self.emb(batch["ids"])
        m = batch["mask"].unsqueeze(-1).to(h.dtype)
        pooled = (h * m).sum(1) / m.sum(1).clamp(min=1e-9)
        for e in batch["extra"]:
            pooled = pooled + e
        return {"pooled": F.normalize(pooled, p=2, dim=1), **{"n": batch["mask"].sum(-1)}}
