"""Attention and language models as people write them, one small module each: a table for test_torch_idioms.py."""
import math

from idioms_table import floats, idiom, ids, nn, torch

F = nn.functional if nn else None
BT = {0: "batch", 1: "time"}


def heads(x, n):
    return x.view(*x.shape[:-1], n, x.shape[-1] // n).transpose(1, 2)


def merged(x):
    return x.transpose(1, 2).contiguous().view(x.shape[0], x.shape[2], -1)


@idiom(lambda b, t: {"idx": ids(b, t)}, {"idx": BT})
class LastLogits(nn.Module):
    """The last position alone, chosen by a list; causal mask in a buffer; tied head."""
    def __init__(self):
        super().__init__()
        self.wte, self.wpe, self.qkv, self.out = nn.Embedding(20, 16), nn.Embedding(12, 16), nn.Linear(16, 48), nn.Linear(16, 16)
        self.ln, self.head = nn.LayerNorm(16), nn.Linear(16, 20, bias=False)
        self.head.weight = self.wte.weight
        self.register_buffer("bias", torch.tril(torch.ones(12, 12)).view(1, 1, 12, 12))

    def forward(self, idx):
        b, t = idx.size()
        x = self.wte(idx) + self.wpe(torch.arange(0, t, dtype=torch.long, device=idx.device))
        q, k, v = (heads(y, 4) for y in self.qkv(self.ln(x)).split(16, dim=2))
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :t, :t] == 0, float("-inf"))
        x = x + self.out(merged(F.softmax(att, dim=-1) @ v))
        return self.head(x[:, [-1], :])


@idiom(lambda b, t: {"idx": ids(b, t), "targets": ids(b, t, seed=9)}, {"idx": BT, "targets": BT})
class LossInside(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.head = nn.Embedding(20, 8), nn.Linear(8, 20)

    def forward(self, idx, targets):
        logits = self.head(self.emb(idx).cumsum(1))
        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=3)
        return logits, loss


@idiom(lambda b, t: {"x": floats(b, t, 16)}, {"x": BT})
class LinearBiases(nn.Module):
    """Distances times slopes, added to causal scores."""
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.register_buffer("slopes", torch.tensor([2 ** (-8 * (i + 1) / 4) for i in range(4)]).view(4, 1, 1))

    def forward(self, x):
        q, k, v = (heads(y, 4) for y in self.qkv(x).chunk(3, -1))
        i, j = torch.arange(x.shape[1])[:, None], torch.arange(x.shape[1])[None]
        scores = q @ k.mT / 2 - self.slopes * (i - j).abs()
        return merged(scores.masked_fill(j > i, float("-inf")).softmax(-1) @ v)


@idiom(lambda b, t: {"x": floats(b, t, 16)}, {"x": BT})
class RotatedHalves(nn.Module):
    """Rotary positions by turning halves, grouped keys repeated, RMS norms, gated feed-forward."""
    def __init__(self):
        super().__init__()
        self.q, self.kv, self.o = nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False)
        self.norm, self.gate, self.down = nn.Parameter(torch.ones(16)), nn.Linear(16, 48, bias=False), nn.Linear(24, 16)
        self.register_buffer("inv_freq", 1.0 / (10000 ** (torch.arange(0, 4, 2).float() / 4)))

    def turned(self, x, cos, sin):
        a, b = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-b, a), dim=-1) * sin

    def forward(self, x):
        y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.norm
        freqs = torch.outer(torch.arange(x.shape[1]).float(), self.inv_freq)
        cos, sin = torch.cat((freqs, freqs), -1).cos(), torch.cat((freqs, freqs), -1).sin()
        q, (k, v) = heads(self.q(y), 4), (heads(z, 2) for z in self.kv(y).chunk(2, -1))
        k, v = (torch.repeat_interleave(z, 2, dim=1) for z in (k, v))
        x = x + self.o(merged(F.scaled_dot_product_attention(self.turned(q, cos, sin), self.turned(k, cos, sin), v, is_causal=True)))
        a, b = self.gate(x).chunk(2, -1)
        return x + self.down(F.silu(a) * b)


@idiom(lambda b, t: {"x": floats(b, t, 2, 8)}, {"x": BT})
class ComplexRotary(nn.Module):
    """Pairs as complex numbers, turned by a table of them."""
    def __init__(self):
        super().__init__()
        freqs = 1.0 / (10000.0 ** (torch.arange(0, 8, 2)[:4].float() / 8))
        self.freqs_cis = torch.polar(torch.ones(16, 4), torch.outer(torch.arange(16).float(), freqs))

    def forward(self, x):
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        freqs = self.freqs_cis[:x.shape[1]].view(1, x.shape[1], 1, 4)
        return torch.view_as_real(pairs * freqs).flatten(3).type_as(x)


@idiom(lambda b, t: {"x": floats(b, t, 16)}, {"x": BT})
class ComplexRotaryMade(nn.Module):
    """The same with the table made in forward."""
    def forward(self, x):
        angles = torch.outer(torch.arange(x.shape[1]), 1.0 / (100.0 ** (torch.arange(0, 16, 2).float() / 16)))
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)[None]).flatten(-2)


@idiom(lambda b, t: {"x": floats(b, t, 16)}, {"x": BT})
class NormedQueries(nn.Module):
    """Queries and keys of length 1, with a temperature that is learned for each head."""
    def __init__(self):
        super().__init__()
        self.qkv, self.scale = nn.Linear(16, 48), nn.Parameter(torch.log(10 * torch.ones((4, 1, 1))))

    def forward(self, x):
        q, k, v = self.qkv(x).reshape(x.shape[0], x.shape[1], 3, 4, 4).permute(2, 0, 3, 1, 4).unbind(0)
        scores = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
        scores = scores * torch.clamp(self.scale, max=math.log(100.0)).exp()
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


@idiom(lambda b, t: {"x": floats(b, t, 16)}, {"x": BT})
class WindowAndSinks(nn.Module):
    """A sliding window, the first keys always seen, memory keys in front, heads mixed before the softmax."""
    def __init__(self):
        super().__init__()
        self.qkv, self.mix, self.mem = nn.Linear(16, 48), nn.Conv2d(4, 4, 1, bias=False), nn.Parameter(torch.randn(2, 4, 3, 4))

    def forward(self, x):
        q, k, v = (heads(y, 4) for y in self.qkv(x).chunk(3, dim=-1))
        mk, mv = (m.unsqueeze(0).expand(x.shape[0], -1, -1, -1) for m in self.mem)
        k, v = torch.cat((mk, k), dim=-2), torch.cat((mv, v), dim=-2)
        i = torch.arange(q.shape[-2])[:, None]
        j = torch.arange(k.shape[-2])[None] - 3
        keep = (j <= i) & ((i - j < 4) | (j < 1))
        scores = torch.einsum("bhid,bhjd->bhij", q, k) * 0.5
        scores = self.mix(scores).masked_fill(~keep, -torch.finfo(scores.dtype).max)
        return merged(scores.softmax(dim=-1) @ v)


@idiom(lambda b, t: {"x": floats(b, t, 16)}, {"x": BT})
class BucketedDistances(nn.Module):
    """Distances in buckets that grow, looked up for each head."""
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(8, 4)

    def forward(self, x):
        t = x.shape[1]
        away = torch.arange(t)[None, :] - torch.arange(t)[:, None]
        side = (away > 0).to(torch.long) * 4
        away = torch.abs(away)
        far = 2 + (torch.log(away.float() / 2) / math.log(10 / 2) * 2).to(torch.long)
        far = torch.min(far, torch.full_like(far, 3))
        bias = self.table(side + torch.where(away < 2, away, far)).permute([2, 0, 1]).unsqueeze(0)
        q = heads(x, 4)
        return merged((q @ q.transpose(3, 2) + bias).softmax(-1) @ q)


@idiom(lambda b, t: {"h": floats(b, t, 8), "attention_mask": (floats(b, t) > -0.5).long()}, {"h": BT, "attention_mask": BT})
class ExtendedMask(nn.Module):
    """The mask of models after BERT: what is hidden gets the least number added."""
    def forward(self, h, attention_mask):
        extended = (1.0 - attention_mask[:, None, None, :].to(torch.float32)) * -10000.0
        q = heads(h, 2)
        return merged(torch.softmax(q @ q.transpose(-1, -2) / 2 + extended, dim=-1) @ q)


@idiom(lambda b, t: {"x": floats(b, t, 8), "mask": (floats(b, t) > -0.5).long()}, {"x": BT, "mask": BT})
class Pooled(nn.Module):
    """Mean, greatest, last and first token over a mask, and attention by one learned vector."""
    def __init__(self):
        super().__init__()
        self.v, self.proj = nn.Parameter(torch.randn(8)), nn.Linear(8, 8)

    def forward(self, x, mask):
        wide = mask.unsqueeze(-1).expand(x.size()).float()
        mean = torch.sum(x * wide, 1) / torch.clamp(wide.sum(1), min=1e-9)
        top = x.masked_fill(wide == 0, -1e9).max(1)[0]
        last = x[torch.arange(x.shape[0], device=x.device), (mask.sum(1) - 1).clamp(min=0)]
        scores = torch.tanh(self.proj(x)) @ self.v
        weights = scores.masked_fill(mask == 0, -1e9).softmax(1)
        by_vector = torch.bmm(weights.unsqueeze(1), x).squeeze(1)
        return mean, top, last, by_vector, F.normalize(mean, p=2, dim=1), x[:, 0]


@idiom(lambda b, t: {"src": ids(b, t) * (floats(b, t) > -1).long()}, {"src": BT})
class TutorialMasks(nn.Module):
    """Masks by .data.eq(0) and of numpy's triangle in bytes; a norm that is made in forward."""
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(20, 8)

    def forward(self, src):
        import numpy as np
        pad = src.data.eq(0).unsqueeze(1).expand(src.size(0), src.size(1), src.size(1))
        later = np.triu(np.ones([src.size(0), src.size(1), src.size(1)]), k=1)
        mask = torch.gt(pad + torch.from_numpy(later).byte(), 0)
        x = self.emb(src)
        scores = torch.matmul(x, x.transpose(-1, -2)) / np.sqrt(8)
        scores.masked_fill_(mask, -1e9)
        context = torch.matmul(nn.Softmax(dim=-1)(scores), x)
        return nn.LayerNorm(8).to(x.device)(context + x)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class PositionsByStrides(nn.Module):
    """Sines and cosines written into every other column, in a buffer and in forward."""
    def __init__(self):
        super().__init__()
        pe = torch.zeros(1, 32, 8)
        place = torch.arange(32, dtype=torch.float32).reshape(-1, 1) / torch.pow(10000, torch.arange(0, 8, 2, dtype=torch.float32) / 8)
        pe[:, :, 0::2], pe[:, :, 1::2] = torch.sin(place), torch.cos(place)
        self.register_buffer("pe", pe)

    def forward(self, x):
        pe = torch.zeros(x.size(1), 8)
        position = torch.arange(0, x.size(1)).unsqueeze(1)
        div = torch.exp(torch.arange(0, 8, 2) * -(math.log(10000.0) / 8))
        pe[:, 0::2] = torch.sin(position * div)
        pe[:, 1::2] = torch.cos(position * div)
        return x + pe + self.pe[:, :x.shape[1], :].to(x.device)


@idiom(lambda b, t: {"q": floats(b, t, 8), "r": floats(t, 8, seed=8)}, {"q": BT, "r": {0: "time"}})
class RelativeShift(nn.Module):
    """Scores of distances, shifted row by row through a pad and a view."""
    def forward(self, q, r):
        scores = torch.einsum("bid,jd->bij", q, r)
        b, t, _ = scores.shape
        shifted = F.pad(scores, (1, 0)).view(b, t + 1, t)[:, 1:].reshape(b, t, t)
        return shifted.tril()


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class LinearAttention(nn.Module):
    """By elu + 1, without a softmax; causal by running sums."""
    def forward(self, x):
        q, k = F.elu(x) + 1, F.elu(x.flip(-1)) + 1
        kv = torch.cumsum(torch.einsum("btd,bte->btde", k, x), 1)
        return torch.einsum("btd,btde->bte", q, kv) / (torch.einsum("btd,btd->bt", q, k.cumsum(1)).unsqueeze(-1) + 1e-6)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class Latents(nn.Module):
    """A few learned queries read a sequence of any length."""
    def __init__(self):
        super().__init__()
        self.latents, self.norm = nn.Parameter(torch.randn(3, 8)), nn.LayerNorm(8)
        self.attn = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        latents = self.latents.unsqueeze(0).repeat(x.shape[0], 1, 1)
        latents = latents + self.attn(self.norm(latents), x, x, need_weights=False)[0]
        return latents.mean(dim=1), latents.flatten(1)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class DenseExperts(nn.Module):
    """The two best of four experts, whose gates are put at their places."""
    def __init__(self):
        super().__init__()
        self.gate, self.experts = nn.Linear(8, 4, bias=False), nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x):
        weights, chosen = torch.topk(F.softmax(self.gate(x), dim=-1), 2, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        mask = F.one_hot(chosen, num_classes=4)
        gates = (mask * weights.unsqueeze(-1)).sum(-2)
        return sum(gates[..., i:i + 1] * expert(x) for i, expert in enumerate(self.experts))


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT}, refused="idioms_attention.py")
class ExpertsByIndex(nn.Module):
    """Rows of each expert found by where: their number depends on values."""
    def __init__(self):
        super().__init__()
        self.gate, self.experts = nn.Linear(8, 4), nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x):
        flat = x.view(-1, 8)
        best, out = self.gate(flat).argmax(-1), torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
            rows, = torch.where(best == i)
            out.index_add_(0, rows, expert(flat[rows]))
        return out


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class TokenShift(nn.Module):
    """What came before, by a pad of which one side is negative; gates mix the two."""
    def __init__(self):
        super().__init__()
        self.shift, self.mix = nn.ZeroPad2d((0, 0, 1, -1)), nn.Parameter(torch.rand(1, 1, 8))

    def forward(self, x):
        before = self.shift(x)
        k = x * self.mix + before * (1 - self.mix)
        return torch.square(torch.relu(k)) * torch.sigmoid(F.pad(x, (0, 0, 2, -2)))


@idiom(lambda b, t: {"x": floats(b, t, 8), "y": floats(b, t, 8, seed=6)}, {"x": BT, "y": BT})
class Contrastive(nn.Module):
    """Similarities of normed means times a scale, with the loss over both directions."""
    def __init__(self):
        super().__init__()
        self.logit_scale = nn.Parameter(torch.ones([]) * math.log(1 / 0.07))

    def forward(self, x, y):
        x, y = x.mean(1), y.mean(1)
        x, y = x / x.norm(dim=1, keepdim=True), y / y.norm(dim=-1, keepdim=True)
        logits = self.logit_scale.exp() * x @ y.t()
        labels = torch.arange(x.shape[0], device=x.device)
        loss = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2
        return logits, loss, F.cosine_similarity(x, y), torch.diagonal(logits)[:1]


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class Codebook(nn.Module):
    """The nearest of learned vectors, by distances written out and by cdist."""
    def __init__(self):
        super().__init__()
        self.codes = nn.Embedding(10, 8)

    def forward(self, x):
        flat, w = x.reshape(-1, 8), self.codes.weight
        away = flat.pow(2).sum(1, keepdim=True) + w.pow(2).sum(1) - 2 * flat @ w.t()
        nearest = away.argmin(dim=1)
        q = self.codes(nearest).view(x.shape)
        return x + (q - x).detach(), nearest, torch.cdist(flat, w).argmin(-1), F.mse_loss(q.detach(), x)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT}, refused="idioms_attention.py")
class ScaleByItem(nn.Module):
    def forward(self, x):
        return x / x.abs().max().item()


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT}, refused="idioms_attention.py")
class Spectrum(nn.Module):
    def forward(self, x):
        return torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real
