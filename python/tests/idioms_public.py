"""Parts of public models as their authors write them: splits of fused projections, masks that are added, tables cut to a
length, blocks that are shared, norms that widen their numbers, attention by the newest calls of torch; for
test_torch_idioms.py.
"""
import math
import warnings

from idioms_table import floats, idiom, ids, nn, torch

F = nn.functional if nn else None
BT, B = {0: "batch", 1: "time"}, {0: "batch"}


@idiom(lambda b, t: {"x": floats(b, t, 16)}, {"x": BT})
class FusedByGroups(nn.Module):
    """Queries, a key and a value of each group in one projection, taken apart by `[-2]` in a list, keys broadcast."""
    def __init__(self):
        super().__init__()
        self.query_key_value, self.dense = nn.Linear(16, 2 * (2 + 2) * 4), nn.Linear(16, 16, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        qkv = self.query_key_value(x).view(b, t, -1, 4, 4)
        query, key, value = qkv[:, :, :, :-2], qkv[:, :, :, [-2]], qkv[:, :, :, [-1]]
        key, value = torch.broadcast_to(key, query.shape), torch.broadcast_to(value, query.shape)
        query, key, value = [y.flatten(2, 3).transpose(1, 2).reshape(b, 4, t, 4) for y in (query, key, value)]
        y = F.scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=True if t > 1 else False, scale=0.3)
        return self.dense(y.view(b, 4, t, 4).permute(0, 2, 1, 3).reshape(b, t, 16))


@idiom(lambda b, t: {"x": floats(b, t, 8), "attention_mask": torch.arange(t)[None] >= torch.arange(b)[:, None] % 3}, {"x": BT, "attention_mask": BT})
class BothMasksAdded(nn.Module):
    """A causal mask and one of padding on the left, each of the least number, added: rows that see nothing have -inf
    alone, and the greater of that and the least number is taken. Softmax in f32."""
    def forward(self, x, attention_mask):
        b, t, d = x.shape
        least = torch.finfo(torch.float32).min
        causal = torch.full((t, t), torch.tensor(least))
        cond = torch.arange(causal.size(-1))
        causal.masked_fill_(cond < (cond + 1).view(causal.size(-1), 1), 0)
        causal = causal.to(x.dtype)[None, None, :, :].expand(b, 1, t, t)
        inverted = 1.0 - attention_mask[:, None, None, :].expand(b, 1, t, t).to(x.dtype)
        padding = inverted.masked_fill(inverted.to(torch.bool), least)
        q = (x * d ** -0.5).view(b, t, 2, -1).transpose(1, 2).reshape(b * 2, t, -1)
        scores = torch.bmm(q, q.transpose(1, 2)).view(b, 2, t, t) + (padding + causal)
        scores = torch.max(scores, torch.tensor(least)).view(b * 2, t, t)
        weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(x.dtype)
        return torch.bmm(weights, q).view(b, 2, t, -1).transpose(1, 2).reshape(b, t, d)


@idiom(lambda b, t: {"ids": ids(b, t), "past_key_values": ((floats(b, 2, 5, 4), floats(b, 2, 5, 4, seed=6)),) * 2},
       {"ids": BT, **{f"past_key_values_{i}_{j}": B for i in range(2) for j in range(2)}})
class TriangleCutToLength(nn.Module):
    """A triangle kept for the greatest length and cut for the steps that are new, caches as tuples of pairs, a head that
    is tied after its making and by its own name."""
    def __init__(self):
        super().__init__()
        self.wte, self.wpe, self.blocks = nn.Embedding(20, 8), nn.Embedding(24, 8), nn.ModuleList(nn.Linear(8, 24) for _ in range(2))
        self.register_buffer("bias", torch.tril(torch.ones((24, 24), dtype=torch.uint8)).view(1, 1, 24, 24), persistent=False)
        self.register_buffer("masked_bias", torch.tensor(-1e4), persistent=False)
        self.lm_head = nn.Linear(8, 20, bias=False)
        self.lm_head.weight = self.wte.weight
        self.apply(lambda m: m.weight.data.normal_(0, 0.2) if isinstance(m, nn.Linear) else None)

    def forward(self, ids, past_key_values):
        b, t = ids.size()
        before = past_key_values[0][0].size(-2)
        h = self.wte(ids.view(-1, t)) + self.wpe(torch.arange(before, t + before, dtype=torch.long).unsqueeze(0))
        presents = ()
        for block, past in zip(self.blocks, past_key_values):
            q, k, v = (y.view(b, t, 2, 4).permute(0, 2, 1, 3) for y in block(h).split(8, dim=2))
            k, v = torch.cat((past[0], k), dim=-2), torch.cat((past[1], v), dim=-2)
            presents += ((k, v),)
            w = torch.matmul(q, k.transpose(-1, -2)) / (float(v.size(-1)) ** 0.5)
            nd, ns = w.size(-2), w.size(-1)
            w = torch.where(self.bias[:, :, ns - nd:ns, :ns].bool(), w, self.masked_bias.to(w.dtype))
            h = h + torch.matmul(nn.Softmax(dim=-1)(w), v).permute(0, 2, 1, 3).contiguous().view(b, t, 8)
        return self.lm_head(h), presents


@idiom(lambda b, t: {"ids": ids(b, t)}, {"ids": BT})
class SharedBlocks(nn.Module):
    """One block in several places of a list, another registered under two names, a table used transposed, and whether a
    part is there is asked of the module."""
    def __init__(self):
        super().__init__()
        block = nn.ModuleDict({"norm": nn.LayerNorm(8, bias=False), "up": nn.Linear(8, 16), "down": nn.Linear(16, 8, bias=False)})
        self.groups, self.shared = nn.ModuleList([block] * 3), nn.Embedding(20, 8)
        self.encoder_tokens = self.shared
        self.final = self.first = nn.LayerNorm(8, elementwise_affine=False)
        self.register_parameter("scale", None)
        self.register_buffer("steps", torch.arange(3.0) + 1, persistent=False)

    def forward(self, ids):
        h = self.first(self.encoder_tokens(ids)) * (self.shared.embedding_dim ** 0.5)
        for i, block in enumerate(self.groups):
            h = h + block["down"](F.gelu(block["up"](block["norm"](h)), approximate="tanh")) / self.steps[i]
        if self.scale is not None:
            h = h * self.scale
        return self.final(h).matmul(self.shared.weight.transpose(0, 1)), hasattr(self, "scale") and h.amax(-1)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT}, ((3, 7), (2, 5), (5, 8)))
class RatesByLength(nn.Module):
    """Rotary rates that change beyond a length: the model has the side of the example, and requires it."""
    def forward(self, x):
        t, base = x.shape[1], 100.0
        if t > 8:
            base = base * ((2.0 * t / 8) - (2.0 - 1)) ** (8 / (8 - 2))
        inv = 1.0 / (base ** (torch.arange(0, 8, 2).float() / 8))
        freqs = torch.outer(torch.arange(t).float(), inv)
        emb = torch.cat((freqs, freqs), dim=-1)
        return x * emb.cos() + torch.cat((-x[..., 4:], x[..., :4]), dim=-1) * emb.sin()


@idiom(lambda b, t: {"x": floats(b, t, 8), "gate": floats(b, t, 8, seed=2)}, {"x": BT, "gate": BT})
class NormsThatWiden(nn.Module):
    """RMS norms that compute in f32 and come back: with 1 + weight, in groups behind a gate, with a mean taken off and no
    bias, of l2 norms, and by functions with and without an epsilon."""
    def __init__(self):
        super().__init__()
        self.weight, self.g, self.gain = nn.Parameter(torch.randn(8)), nn.Parameter(torch.randn(8)), nn.Parameter(torch.tensor(1.3))

    def forward(self, x, gate):
        kept = x.dtype
        h = x.to(torch.float32)
        a = (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6) * (1.0 + self.weight.float())).type_as(x)
        h = h * F.silu(gate.to(torch.float32))
        h = h.view(*h.shape[:-1], -1, 4)
        h = (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).flatten(-2)
        c = self.weight * h.to(kept)
        h = x.float()
        h = (h - h.mean(-1, keepdim=True)) * torch.rsqrt((h - h.mean(-1, keepdim=True)).pow(2).mean(-1, keepdim=True) + 1e-5)
        d = (self.g.to(torch.float32) * h).to(kept)
        norm = torch.linalg.norm(x, dim=-1, keepdim=True) * (x.shape[-1] ** -0.5)
        e = x / norm.clamp(min=1e-5) * self.g
        f = F.normalize(x, dim=-1) * self.gain * math.sqrt(8)
        return a, c, d, e, f, F.rms_norm(x, (8,)), F.layer_norm(x, (8,), weight=self.weight), F.rms_norm(x, [8], self.g, eps=1e-3)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class SkipsAcrossLayers(nn.Module):
    """What the first layers give goes into the last ones: slices of a ModuleList, a list used as a stack, the middle by
    its number."""
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(5))
        self.skips = nn.ModuleList([nn.Linear(16, 8) if i > 2 else nn.Identity() for i in range(5)])

    def forward(self, x):
        kept, half = [], len(self.blocks) // 2
        for block in self.blocks[:half]:
            x = x + block(x)
            kept.append(x)
        x = self.blocks[half](x)
        for block, skip in zip(self.blocks[half + 1:], self.skips[half + 1:]):
            x = block(skip(torch.cat([x, kept.pop()], dim=-1)))
        assert not kept
        return x, sum(p.square().sum() for p in self.blocks[-1].parameters())


@idiom(lambda b, t: {"x": floats(b, t, 8), "valid": floats(b, t) > -1}, {"x": BT, "valid": BT})
class SetsOfPoints(nn.Module):
    """Heads are put into the batch by split and cat; learned points that see the set, and the set that sees them."""
    def __init__(self):
        super().__init__()
        self.points, self.seeds = nn.Parameter(torch.randn(1, 4, 8)), nn.Parameter(torch.randn(1, 2, 8))
        self.parts = nn.ModuleList(nn.ModuleList(nn.Linear(8, 8) for _ in range(4)) for _ in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(8) for _ in range(3))

    def attend(self, n, q, k, hidden=None):
        fq, fk, fv, fo = self.parts[n]
        q, k, v = fq(q), fk(k), fv(k)
        q_, k_, v_ = (torch.cat(y.split(8 // 2, 2), 0) for y in (q, k, v))
        a = q_.bmm(k_.transpose(1, 2)) / math.sqrt(8)
        if hidden is not None:
            a = a.masked_fill_(hidden.repeat(2, 1).unsqueeze(1), float("-inf"))
        o = torch.cat((q_ + torch.softmax(a, 2).nan_to_num(0.0).bmm(v_)).split(q.size(0), 0), 2)
        return self.norms[n](o + F.relu(fo(o)))

    def forward(self, x, valid):
        h = self.attend(0, self.points.repeat(x.size(0), 1, 1), x, ~valid)
        x = self.attend(1, x, h)
        return x, self.attend(2, self.seeds.repeat(x.size(0), 1, 1), x, valid.logical_not())


@idiom(lambda b, t: {"labels": torch.where(ids(b, t) > 12, -100, ids(b, t, seed=8))}, {"labels": BT})
class ShiftedRight(nn.Module):
    """The decoder's ids from its labels, in place, and the loss over both as rows."""
    def __init__(self):
        super().__init__()
        self.emb, self.head = nn.Embedding(20, 8, padding_idx=1), nn.Linear(8, 20)
        self.register_buffer("final_logits_bias", torch.randn(1, 20))

    def forward(self, labels):
        shifted = labels.new_zeros(labels.shape)
        shifted[:, 1:] = labels[:, :-1].clone()
        shifted[:, 0] = 2
        shifted.masked_fill_(shifted == -100, 1)
        logits = self.head(self.emb(shifted)) + self.final_logits_bias
        loss = nn.CrossEntropyLoss()(logits.view(-1, 20), labels.view(-1))
        return loss, logits, shifted, (shifted != 1).sum(dim=1) - 1


@idiom(lambda b: {"x": floats(b, 12, 4)}, {"x": B}, ((3,), (2,)), refused=("idioms_public.py:", "as_strided"))
class OverlappingChunks(nn.Module):
    """Windows that overlap, as strides over memory."""
    def forward(self, x):
        x = x.view(x.size(0), 3, 4, 4)
        size, stride = list(x.size()), list(x.stride())
        size[1], size[2], stride[1] = size[1] * 2 - 1, size[2] * 2, stride[1] // 2
        size[2] = 4
        return x.as_strided(size=size, stride=stride)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT}, ((3, 7), (2, 12), (5, 6)))
class RelativeByPadding(nn.Module):
    """Relative positions to absolute ones and back by padding and views, vectors of a window padded for what is far."""
    def __init__(self):
        super().__init__()
        self.emb_k, self.emb_v = nn.Parameter(torch.randn(1, 5, 4)), nn.Parameter(torch.randn(1, 5, 4))

    def cut(self, emb, t):
        return F.pad(emb, [0, 0, t - 3, t - 3])

    def forward(self, x):
        b, t, _ = x.shape
        q = x.view(b, t, 2, 4).transpose(1, 2)
        keys, values = self.cut(self.emb_k, t), self.cut(self.emb_v, t)
        rel = torch.matmul(q, keys.unsqueeze(0).transpose(-2, -1))
        rel = F.pad(rel, [0, 1]).view(b, 2, t * 2 * t)
        rel = F.pad(rel, [0, t - 1]).view(b, 2, t + 1, 2 * t - 1)[:, :, :t, t - 1:]
        p = torch.softmax(torch.matmul(q / 2.0, q.transpose(-2, -1)) + rel, dim=-1)
        w = F.pad(p, [0, t - 1]).view(b, 2, t ** 2 + t * (t - 1))
        w = F.pad(w, [t, 0]).view(b, 2, t, 2 * t)[:, :, :, 1:]
        return (torch.matmul(p, q) + torch.matmul(w, values.unsqueeze(0))).transpose(1, 2).contiguous().view(b, t, 8)


@idiom(lambda b: {"x": floats(b, 12, 2, 4), "dt": floats(b, 12, 2, seed=3)}, {"x": B, "dt": B}, ((3,), (2,)))
class ChunkedStates(nn.Module):
    """A state space as products within chunks and between them, decays by sums of segments."""
    @staticmethod
    def segsum(x):
        n = x.size(-1)
        x = x[..., None].expand(*x.size(), n)
        x = x.masked_fill(~torch.tril(torch.ones(n, n, dtype=torch.bool), diagonal=-1), 0)
        total = torch.cumsum(x, dim=-2)
        return total.masked_fill(~torch.tril(torch.ones(n, n, dtype=torch.bool), diagonal=0), -torch.inf)

    def forward(self, x, dt):
        a = -F.softplus(dt)
        x, a, k = (y.reshape(y.shape[0], 3, 4, *y.shape[2:]) for y in (x, a, x.roll(1, 1)))
        a = a.permute(0, 3, 1, 2)
        acs = torch.cumsum(a, dim=-1)
        inner = torch.einsum("bclhn,bcshn,bhcls,bcshp->bclhp", x, k, torch.exp(self.segsum(a)), x)
        states = torch.einsum("bclhn,bhcl,bclhp->bchpn", k, torch.exp(acs[:, :, :, -1:] - acs), x)
        states = torch.cat([torch.zeros_like(states[:, :1]), states], dim=1)
        decay = torch.exp(self.segsum(F.pad(acs[:, :, :, -1], (1, 0))))
        states = torch.einsum("bhzc,bchpn->bzhpn", decay, states)
        outer = torch.einsum("bclhn,bchpn,bhcl->bclhp", x, states[:, :-1], torch.exp(acs))
        return (inner + outer).flatten(1, 2), states[:, -1]


def scripted(x: "torch.Tensor", y: "torch.Tensor"):
    return x * torch.sigmoid(1.702 * x) + y.unsqueeze(1)


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    gated = torch.jit.script(scripted) if nn else None


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class ScriptedParts(nn.Module):
    """Functions that torch.jit.script made, called in forward."""
    def forward(self, x):
        return gated(x, x.mean(1))


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT}, refused=("idioms_public.py:", "leave out the autocast"))
class Autocast(nn.Module):
    """Products in bfloat16 within autocast: other numbers than in f32."""
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.a(x)
        return self.b(y.float())


@idiom(lambda b, t: {"x": floats(b, 2, t, 4)}, {"x": {0: "batch", 2: "time"}})
class KernelsChosen(nn.Module):
    """Attention under a context that chooses its kernel."""
    def forward(self, x):
        from torch.nn.attention import SDPBackend, sdpa_kernel
        with sdpa_kernel([SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION]):
            return F.scaled_dot_product_attention(x, x, x.flip(-1), is_causal=True)


@idiom(lambda b, t: {"x": floats(b, 2, t, 4)}, {"x": {0: "batch", 2: "time"}}, refused=("idioms_public.py:", "flex_attention"))
class FlexAttention(nn.Module):
    """Scores by a function, the newest call."""
    def forward(self, x):
        from torch.nn.attention.flex_attention import flex_attention
        return flex_attention(x, x, x, score_mod=lambda score, b, h, q, k: torch.where(q >= k, score + (k - q) * 0.5, -float("inf")))
