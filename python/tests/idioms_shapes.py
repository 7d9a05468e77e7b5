"""Lists, changes in place, parts and paddings, losses, convolutions and weights as people write them; for
test_torch_idioms.py.
"""
import collections
import dataclasses
import math
from typing import Optional, List, Dict

from idioms_table import floats, idiom, ids, nn, torch

F = nn.functional if nn else None
BT, B = {0: "batch", 1: "time"}, {0: "batch"}


@dataclasses.dataclass
class EncOut:
    hidden: torch.Tensor
    pooled: Optional[torch.Tensor] = None

if hasattr(torch.utils._pytree, "register_dataclass"):
    torch.utils._pytree.register_dataclass(EncOut)


@idiom(lambda b, t: {"x": floats(b, t, 8), "mem": floats(b, 5, 8, seed=2)}, {"x": BT, "mem": B})
class DataclassCross(nn.Module):
    def __init__(self):
        super().__init__()
        self.dec = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True, norm_first=True, activation=F.silu)

    def forward(self, x, mem, mem_mask=None):
        t = x.shape[1]
        m = torch.triu(torch.full((t, t), float("-inf")), diagonal=1)
        h = self.dec(x, mem, tgt_mask=m, memory_key_padding_mask=mem_mask, tgt_is_causal=True)
        return EncOut(h, h[:, -1])


@idiom(lambda b, t: {"x": floats(t, b, 8), "lens": torch.randint(1, t + 1, (b,), generator=torch.Generator().manual_seed(1))},
       {"x": {0: "time", 1: "batch"}, "lens": B})
class TimeFirst(nn.Module):
    """batch_first=False MHA, add_bias_kv, fairseq like."""
    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(8, 2, add_bias_kv=True)
        self.fc = nn.Linear(8, 8)

    def forward(self, x, lens):
        mask = torch.arange(x.size(0))[None].expand(lens.size(0), -1).ge(lens.unsqueeze(1))
        y = self.attn(query=x, key=x, value=x, key_padding_mask=mask, need_weights=False)[0]
        x = x + y
        x = x.transpose(0, 1)
        x[mask] = 0.0
        return self.fc(x).max(dim=1).values


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class AlibiBuffer(nn.Module):
    """A table of linear biases and one of ones below the diagonal, cut to the size."""
    def __init__(self):
        super().__init__()
        slopes = torch.tensor([2 ** (-8 * (i + 1) / 2) for i in range(2)])
        pos = torch.arange(32)
        self.register_buffer("alibi", slopes.view(-1, 1, 1) * -(pos[None, :] - pos[:, None]).abs().float()[None])
        self.register_buffer("tril", torch.tril(torch.ones(32, 32)).view(1, 1, 32, 32))
        self.c_attn = nn.Linear(8, 24)

    def forward(self, x):
        B_, T, C = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        q, k, v = [y.view(B_, T, 2, C // 2).transpose(1, 2) for y in (q, k, v)]
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1))) + self.alibi[:, :T, :T]
        att = att.masked_fill(self.tril[:, :, :T, :T] == 0, float("-inf"))
        y = F.softmax(att, dim=-1, dtype=att.dtype) @ v
        return y.transpose(1, 2).contiguous().view(B_, T, C)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class MeshAndLinspace(nn.Module):
    """Features of a grid."""
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(3, 8)

    def forward(self, x):
        b, t, d = x.shape
        yy, xx = torch.meshgrid(torch.arange(t, dtype=x.dtype), torch.linspace(-1, 1, 4), indexing="ij")
        grid = torch.stack([yy / t, xx, yy * xx], dim=-1).reshape(1, t * 4, 3)
        g = self.l(grid).unflatten(1, (t, 4)).mean(2)
        return x + g.expand(b, -1, -1)


@idiom(lambda b, t: {"x": floats(b, t, 4), "n": ids(t, high=4)}, {"x": BT, "n": {0: "time"}},
       refused=("repeat_interleave with a tensor", "idioms_shapes.py:"))
class RepeatByTensor(nn.Module):
    """Length regulator: each position as often as its duration says (data-dependent)."""
    def forward(self, x, n):
        return torch.repeat_interleave(x, n, dim=1).mean(1)


@idiom(lambda b, t: {"x": floats(b, t, 4), "n": ids(b, t, high=4)}, {"x": BT, "n": BT})
class LengthRegulatorFixed(nn.Module):
    """The same with a fixed number of frames, by cumsum and comparison."""
    def forward(self, x, n):
        ends = n.cumsum(1)
        frames = torch.arange(12)
        at = (frames[None, :, None] >= ends[:, None, :]).sum(-1).clamp(max=x.size(1) - 1)
        return torch.gather(x, 1, at.unsqueeze(-1).expand(-1, -1, x.size(-1))) * (frames[None, :, None] < ends[:, -1:, None])


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class InPlaceChain(nn.Module):
    """What is changed in place, with views of it."""
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 8)
        self.drop = nn.Dropout(0.1, inplace=True)

    def forward(self, x):
        h = self.l(x)
        h.add_(x).mul_(0.5).clamp_(-2, 2)
        res = h.clone()
        h[..., 0] = 0
        h[:, 1:, 1] += h[:, :-1, 2]
        h[:, 0].zero_()
        v = h.view(-1, 8)
        v[:, 3].fill_(1.5)
        h = self.drop(F.relu_(h))
        h -= res.detach()
        return h, res.masked_fill_(res < 0, -1.0)


@idiom(lambda b, t: {"x": floats(b, t, 8), "y": ids(b, t, high=5)}, {"x": BT, "y": BT},
       refused=("weights of classes and label smoothing", "idioms_shapes.py:"))
class LossesMixed(nn.Module):
    """Outputs with losses of several kinds, ignore_index, label smoothing, class weights."""
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 5)
        self.register_buffer("w", torch.tensor([1.0, 2.0, 0.5, 1.0, 3.0]))
        self.ce = nn.CrossEntropyLoss(weight=self.w.clone(), ignore_index=2, label_smoothing=0.1)

    def forward(self, x, y):
        z = self.l(x)
        a = self.ce(z.view(-1, 5), y.view(-1))
        b = F.nll_loss(F.log_softmax(z, -1).transpose(1, 2), y, reduction="none")
        c = F.binary_cross_entropy_with_logits(z, F.one_hot(y, 5).to(z.dtype), pos_weight=self.w, reduction="sum")
        d = F.smooth_l1_loss(z, z.flip(0), beta=0.5) + F.huber_loss(z, z * 2, delta=0.3) + F.kl_div(F.log_softmax(z, -1), F.softmax(z.roll(1, 0), -1), reduction="batchmean")
        return a, b, c, d, F.l1_loss(z[:, 0], z[:, -1])


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT},
       refused=("a scatter into a part", "idioms_shapes.py:"))
class ScatterMasks(nn.Module):
    """Keeps the k best of each row by scatter of ones, sparsemax-like threshold by sort of a fixed axis."""
    def forward(self, x):
        top, at = x.topk(3, dim=-1)
        mask = torch.zeros_like(x).scatter_(-1, at, 1.0).bool()
        kept = x.masked_fill(~mask, float("-inf")).softmax(-1)
        srt, _ = torch.sort(x, dim=-1, descending=True)
        cs = srt.cumsum(-1) - 1
        k = torch.arange(1, 9, dtype=x.dtype)
        support = (srt * k > cs).sum(-1, keepdim=True)
        tau = cs.gather(-1, support - 1) / support
        return kept, (x - tau).clamp(min=0), torch.full_like(x, 0.5).scatter_add(1, at[:, :, :1].clamp(max=1), top[..., :1])


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT},
       refused=("an einsum with a diagonal", "idioms_shapes.py:"))
class EinsumMany(nn.Module):
    """Products by einsum, one of them over a diagonal."""
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(2, 8, 4)), nn.Parameter(torch.randn(4, 4, 3))

    def forward(self, x):
        q = torch.einsum("bld,hdk->bhlk", x, self.a)
        s = torch.einsum("...ik,...jk->...ij", q, q)
        tr = torch.einsum("bhii->bh", s)
        bil = torch.einsum("bhlk,kmo,bhlm->bhlo", q, self.b, q)
        outer = torch.einsum("bi,bj->bij", x[:, 0], x[:, -1])
        return s.softmax(-1), tr, bil, outer, torch.einsum("bld->ld", x), torch.tensordot(x, self.a[0], dims=1), torch.kron(self.a[0, :2], self.a[1, :2]).sum()


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class ScanLoop(nn.Module):
    """A Python loop over a fixed number of steps with GRUCell-like gates; list append and stack."""
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(8, 8)
        self.ln = nn.GroupNorm(2, 8)

    def forward(self, x):
        h = torch.zeros(x.size(0), 8)
        outs: List[torch.Tensor] = []
        for i in range(4):
            h = self.cell(x.mean(1) if i % 2 else x[:, 0], h)
            outs.append(self.ln(h))
        return torch.stack(outs, dim=1), h


@idiom(lambda b, t: {"x": floats(b, t, 8), "q": floats(b, t, 8, seed=3)}, {"x": BT, "q": BT})
class SdpaForms(nn.Module):
    """is_causal, masks of bools and of numbers, groups of queries."""
    def forward(self, x, q):
        b, t, d = x.shape
        k = x.view(b, t, 2, 4).transpose(1, 2)
        g = q.view(b, t, 2, 4).transpose(1, 2)
        a = F.scaled_dot_product_attention(g, k, k, is_causal=True)
        m = torch.ones(t, t, dtype=torch.bool).tril(1)
        c = F.scaled_dot_product_attention(g, k[:, :1], k[:, :1], attn_mask=m, enable_gqa=True)
        e = F.scaled_dot_product_attention(q, x, x, attn_mask=torch.where(m, 0.0, -1e4).to(x.dtype))
        return a.transpose(1, 2).flatten(2), c, e


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class DtypeCasts(nn.Module):
    """Casts to and from integers."""
    def forward(self, x):
        i = (x * 3).to(torch.int32)
        j = x.round().long()
        k = (x > 0).to(x.dtype) + (x > 1).int() + x.sign() * i.float()
        l = i.type_as(x) / 2 + j.to(x)
        return i, j, k, l.trunc(), x.floor() + x.ceil() + x.frac(), torch.floor_divide(x, 0.7), torch.remainder(x, -0.7)


@idiom(lambda b, t: {"feats": [floats(b, t, 4), floats(b, t, 4, seed=2), floats(b, t, 4, seed=3)], "gate": {"a": floats(b, 3), "b": floats(3)}},
       {"feats_0": BT, "feats_1": BT, "feats_2": BT, "gate_a": B})
class ListDictInputs(nn.Module):
    """A list and a dict of tensors."""
    def forward(self, feats: List[torch.Tensor], gate: Dict[str, torch.Tensor], use: bool = True):
        w = (gate["a"] + gate["b"]).softmax(-1)
        y = sum(w[:, i, None, None] * f for i, f in enumerate(feats))
        return y if use else feats[0]


@idiom(lambda b, t: {"x": floats(b, 2, t, t)}, {"x": {0: "batch", 2: "side", 3: "side"}}, shapes=((2, 8), (3, 12), (2, 4)))
class ConvNet2d(nn.Module):
    """ConvNeXt block, LayerNorm over channels by permute, depthwise conv, layer scale, global mean, squeeze and excite."""
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(2, 6, 3, padding=1)
        self.dw = nn.Conv2d(6, 6, 3, padding=1, groups=6)
        self.norm = nn.LayerNorm(6)
        self.pw = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 6))
        self.gamma = nn.Parameter(torch.full((6,), 0.1))
        self.se = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(6, 3, 1), nn.SiLU(), nn.Conv2d(3, 6, 1), nn.Sigmoid())
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        x = self.stem(x)
        y = self.gamma * self.pw(self.norm(self.dw(x).permute(0, 2, 3, 1)))
        x = x + y.permute(0, 3, 1, 2)
        x = F.avg_pool2d(x * self.se(x), 2)
        return self.head(x.flatten(2).mean(-1))


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class WeightTricks(nn.Module):
    """Weight standardised by hand, orthogonal-like skew matrix exponent to the 4th order, LoRA merge, spectral scale, F.linear."""
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(8, 8))
        self.a, self.b = nn.Parameter(torch.randn(2, 8)), nn.Parameter(torch.randn(8, 2))
        self.scale = nn.Parameter(torch.tensor(0.3))

    def forward(self, x):
        w = (self.w - self.w.mean(1, keepdim=True)) / (self.w.std(1, keepdim=True) + 1e-5)
        s = torch.tril(self.w, -1) * 0.1
        s = s - s.T
        e = torch.eye(8) + s + s @ s / 2
        return F.linear(x, w + self.scale.exp() * (self.b @ self.a)) @ e, torch.linalg.matrix_norm(self.w), torch.trace(e), w.diagonal().sum() + torch.diag(self.scale * w[0]).sum()


@idiom(lambda b, t: {"x": floats(b, t, 6), "n": torch.tensor(3)}, {"x": BT})
class NumberInput(nn.Module):
    """A 0-d integer tensor as an input, in comparisons."""
    def forward(self, x, n, alpha: float = 0.5):
        keep = torch.arange(x.size(1)) < n
        return (x * keep[None, :, None]).sum(1) / n * alpha, x[:, :, None].expand(-1, -1, 2, -1).flatten(-2)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class AxisNegatives(nn.Module):
    """Negative axes, indices and steps; median and take_along_dim."""
    def forward(self, x):
        a = x.unsqueeze(-2).squeeze(-2).transpose(-1, -2)
        b = torch.cat([x[:, -1:], x[:, :-1]], dim=-2)
        c = x[:, :, ::3].sum(-1) + x[:, 1:][:, -1, 0].unsqueeze(-1)
        d = x[..., [0, 2, -1]].prod(-1)
        e = x[:, None] - x[:, :, None]
        f = x.index_select(-1, torch.tensor([7, 0])).amin((-1, -2))
        return a, b, c, d, e.abs().sum(-1).logsumexp(-1), f, torch.take_along_dim(x, x.argsort(-1), -1), x.median(-1).values


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class StochasticAndNoise(nn.Module):
    """Drop path, noise and gumbel only while it is trained."""
    def __init__(self):
        super().__init__()
        self.l, self.p = nn.Linear(8, 8), 0.2

    def forward(self, x):
        h = self.l(x)
        if self.training:
            h = h + torch.randn_like(h) * 0.1
            h = h * torch.empty(h.size(0), 1, 1).bernoulli_(1 - self.p) / (1 - self.p)
        return x + F.dropout(h, self.p, self.training) + F.dropout1d(h, 0.1, training=self.training)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class LayerScaleList(nn.Module):
    """ModuleDict, getattr, buffers list, nn.Sequential subclass, forward hooks, enumerate, zip, reversed."""
    def __init__(self):
        super().__init__()
        self.d = nn.ModuleDict({"b": nn.Linear(8, 8), "a": nn.Sequential(collections.OrderedDict(up=nn.Linear(8, 16), act=nn.Hardswish(), down=nn.Linear(16, 8)))})
        for i in range(2):
            self.register_buffer(f"s{i}", torch.randn(8))
        self.d["a"].register_forward_hook(lambda m, i, o: o * 2)

    def forward(self, x):
        hs = []
        for i, (name, m) in enumerate(self.d.items()):
            x = x + m(x) * getattr(self, f"s{i}")
            hs.insert(0, x)
        return {"last": x, "all": tuple(reversed(hs)), "sum": torch.stack(hs).sum(dim=0)}


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class BranchOnSize(nn.Module):
    """Splits in windows with padding to a multiple, by F.pad of what lacks."""
    def forward(self, x):
        b, t, d = x.shape
        lack = -t % 4
        y = F.pad(x, (0, 0, 0, lack))
        y = y.view(b, -1, 4, d)
        y = (y - y.mean(2, keepdim=True)).reshape(b, t + lack, d)[:, :t]
        return y


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT},
       refused=("nonzero_static", "idioms_shapes.py:"))
class PairwiseFeatures(nn.Module):
    """Biaffine: triangular indices over a known number, combinations of fields (factorization machine)."""
    def forward(self, x):
        z = x.mean(1).view(-1, 4, 2)
        i, j = torch.triu_indices(4, 4, offset=1)
        inter = (z[:, i] * z[:, j]).sum(-1)
        s = 0.5 * (z.sum(1).pow(2) - z.pow(2).sum(1)).sum(-1, keepdim=True)
        c = torch.combinations(torch.arange(4), r=2)
        return inter, s, z[:, c[:, 0]].sub(z[:, c[:, 1]]).abs().amax(-1)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT},
       refused=("a recurrent layer over a size", "idioms_shapes.py:"))
class LstmOverFew(nn.Module):
    def __init__(self):
        super().__init__()
        self.r = nn.LSTM(8, 4, batch_first=True, bidirectional=True)

    def forward(self, x):
        y, (h, c) = self.r(x)
        return y, h


@idiom(lambda b, t: {"x": ids(b, t)}, {"x": BT})
class PaddedIds(nn.Module):
    """Mask from ids, positions by cumsum like RoBERTa's, last real token by argmax of a product."""
    def __init__(self):
        super().__init__()
        self.w, self.p = nn.Embedding(20, 8, padding_idx=1), nn.Embedding(40, 8, padding_idx=1)

    def forward(self, x):
        mask = x.ne(1).int()
        pos = (torch.cumsum(mask, dim=1).type_as(mask) * mask).long() + 1
        h = self.w(x) + self.p(pos)
        last = (mask * torch.arange(x.shape[1])).argmax(-1)
        ext = (1.0 - mask[:, None, None, :].to(h.dtype)) * torch.finfo(h.dtype).min
        s = h @ h.transpose(1, 2) + ext.squeeze(1)
        return h[torch.arange(x.shape[0]), last], s.softmax(-1)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class TensorSplitForms(nn.Module):
    """Parts and stacks by the names of NumPy."""
    def forward(self, x):
        a, b, c = torch.tensor_split(x, 3, dim=-1)
        d = torch.hsplit(x[:, 0], 2)
        e = torch.vstack([x[0], x[1]])[:3]
        f = torch.dstack([a[..., :2], b[..., :2]])
        g = torch.block_diag(torch.ones(2, 2), torch.eye(2))
        return a.sum(-1) - b.mean(-1) + c.amax(-1), d[1], e.sum(0), f, x[:, 0, :4] @ g, torch.rot90(x, 1, (1, 2)), x.reshape(-1)[:5].outer(x[0, 0, :3])
