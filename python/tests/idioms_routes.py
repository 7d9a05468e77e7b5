"""Parts that send tokens somewhere, as people write them: routers of experts, pointers, copies, graphs, segments, sparse
maxima, hierarchies, and newer schemes of positions; for test_torch_idioms.py.
"""
import math

from idioms_table import floats, idiom, ids, nn, torch

F = nn.functional if nn else None
BT, B = {0: "batch", 1: "time"}, {0: "batch"}


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class CapacityRouter(nn.Module):
    """One expert a token; the place in its queue by a running sum of one-hots, tokens beyond the capacity pass by."""
    def __init__(self):
        super().__init__()
        self.router, self.w1, self.w2 = nn.Linear(8, 3), nn.Parameter(torch.randn(3, 8, 16) * 0.3), nn.Parameter(torch.randn(3, 16, 8) * 0.3)

    def forward(self, x, capacity=4):
        flat = x.reshape(-1, x.shape[-1])
        probs = self.router(flat).softmax(-1)
        gate, expert = probs.max(-1)
        hot = F.one_hot(expert, 3)
        place = (hot.cumsum(0) * hot).sum(-1) - 1
        kept = place < capacity
        dispatch = hot.to(x)[..., None] * F.one_hot(place.clamp(max=capacity - 1), capacity).to(x)[:, None] * kept[:, None, None]
        inputs = torch.einsum("nec,nd->ecd", dispatch, flat)
        out = torch.einsum("ech,ehd->ecd", F.gelu(torch.einsum("ecd,edh->ech", inputs, self.w1)), self.w2)
        y = torch.einsum("nec,ecd->nd", dispatch * gate[:, None, None], out)
        share = hot.to(x).mean(0)
        return (flat + y).view_as(x), 3 * (share * probs.mean(0)).sum()


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class BalancedRouter(nn.Module):
    """Scores that are normalized along both axes in turns, in logarithms."""
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(8, 4, bias=False)

    def forward(self, x):
        scores = self.router(x)
        for _ in range(5):
            scores = scores - torch.logsumexp(scores, dim=1, keepdim=True)
            scores = scores - scores.logsumexp(-1, keepdim=True)
        weight, at = scores.exp().topk(2)
        return torch.zeros_like(scores).scatter(-1, at, weight / weight.sum(-1, keepdim=True))


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class ExpertsChoose(nn.Module):
    """Each expert takes its best tokens and adds its results at their places."""
    def __init__(self):
        super().__init__()
        self.router, self.experts = nn.Linear(8, 2), nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 8)) for _ in range(2))

    def forward(self, x):
        gates = self.router(x).softmax(-1)
        y = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            weight, at = gates[..., i].topk(3, dim=1)
            at = at.unsqueeze(-1).expand(-1, -1, x.size(-1))
            y = y.scatter_add(1, at, expert(torch.gather(x, 1, at)) * weight.unsqueeze(-1))
        return x + y


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class DepthRouter(nn.Module):
    """A block for the best tokens alone; the others pass by."""
    def __init__(self):
        super().__init__()
        self.score, self.block = nn.Linear(8, 1), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)

    def forward(self, x):
        weight, at = torch.topk(self.score(x).squeeze(-1), k=3)
        rows = at[..., None].expand(-1, -1, x.shape[-1])
        chosen = x.gather(1, rows)
        return x.scatter(1, rows, chosen + self.block(chosen) * torch.sigmoid(weight).unsqueeze(-1))


@idiom(lambda b, t: {"points": torch.rand(b, t, 2, generator=torch.Generator().manual_seed(t))}, {"points": BT})
class Pointer(nn.Module):
    """Steps that point at a place each, none twice: the log probabilities and the tour."""
    def __init__(self):
        super().__init__()
        self.embed, self.key, self.query, self.v = nn.Linear(2, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Parameter(torch.randn(8))
        self.start = nn.Parameter(torch.randn(8))

    def forward(self, points):
        x = self.embed(points)
        keys, state = self.key(x), self.start.expand(x.size(0), -1)
        seen, probs, tour = torch.zeros(x.shape[:2], dtype=torch.bool), [], []
        for _ in range(3):
            scores = torch.tanh(keys + self.query(state).unsqueeze(1)) @ self.v
            logp = scores.masked_fill(seen, float("-inf")).log_softmax(-1)
            at = logp.argmax(-1)
            probs.append(logp.gather(1, at[:, None]).squeeze(1))
            tour.append(at)
            seen = seen.scatter(1, at.unsqueeze(1), True)
            state = x[torch.arange(x.size(0)), at]
        return torch.stack(probs, 1), torch.stack(tour, 1)


@idiom(lambda b, t: {"source": ids(b, t, high=12), "hidden": floats(b, 4, 8)}, {"source": BT, "hidden": B})
class CopyOrWrite(nn.Module):
    """Probabilities of words, mixed with those of words of the source, which are added where they occur."""
    def __init__(self):
        super().__init__()
        self.embed, self.out, self.gate = nn.Embedding(12, 8), nn.Linear(8, 12), nn.Linear(16, 1)

    def forward(self, source, hidden):
        memory = self.embed(source)
        attention = F.softmax(torch.bmm(hidden, memory.mT).masked_fill(source.eq(0).unsqueeze(1), -1e9), dim=-1)
        context = torch.bmm(attention, memory)
        p = torch.sigmoid(self.gate(torch.cat([hidden, context], -1)))
        written = p * self.out(hidden).softmax(-1)
        at = source.unsqueeze(1).expand(-1, hidden.size(1), -1)
        return torch.log(written.scatter_add(2, at, (1 - p) * attention) + 1e-12)


@idiom(lambda b, t: {"words": ids(b, 4, t, high=15) * (torch.arange(4)[None, :, None] < 3)}, {"words": {0: "batch", 2: "time"}})
class Hierarchy(nn.Module):
    """Words to sentences to a document; padded words and sentences without words are left out."""
    def __init__(self):
        super().__init__()
        self.embed, self.word, self.query = nn.Embedding(16, 8, padding_idx=0), nn.Linear(8, 8), nn.Parameter(torch.randn(8))
        self.sentence, self.of_sentences, self.out = nn.Linear(8, 8), nn.Parameter(torch.randn(8, 1)), nn.Linear(8, 3)

    def forward(self, words):
        b, s, t = words.shape
        flat = words.view(b * s, t)
        x = self.embed(flat)
        scores = (torch.tanh(self.word(x)) @ self.query).masked_fill(flat == 0, -1e4)
        sentences = (scores.softmax(-1).unsqueeze(1) @ x).view(b, s, -1)
        empty = (words != 0).sum(-1) == 0
        weights = (torch.tanh(self.sentence(sentences)) @ self.of_sentences).squeeze(-1).masked_fill(empty, float("-inf")).softmax(-1)
        return self.out((weights.unsqueeze(-1) * sentences).sum(1)), weights


@idiom(lambda b, t: {"x": floats(b, t, 8), "segments": ids(b, t, high=5) - 1}, {"x": BT, "segments": BT})
class SegmentMeans(nn.Module):
    """Means and maxima of the tokens of each segment, zeros for segments without any."""
    def forward(self, x, segments):
        at = segments.unsqueeze(-1).expand_as(x)
        empty = x.new_zeros(x.size(0), 4, x.size(2))
        mean = empty.scatter_reduce(1, at, x, reduce="mean", include_self=False)
        return torch.cat([mean, torch.scatter_reduce(empty, 1, at, x, "amax", include_self=False)], -1).gather(
            1, segments.unsqueeze(-1).expand(-1, -1, 16))


@idiom(lambda n, e: {"x": floats(n, 8), "links": torch.stack([(ids(e, high=30) - 1) % n, (ids(e, seed=9, high=30) - 1) % n])},
       {"x": {0: "nodes"}, "links": {1: "edges"}}, ((5, 9), (7, 4), (3, 12)))
class EdgeAttention(nn.Module):
    """Softmax over the edges that enter a node, with the greatest score of each taken off first."""
    def __init__(self):
        super().__init__()
        self.lin, self.att = nn.Linear(8, 6, bias=False), nn.Parameter(torch.randn(12))

    def forward(self, x, links):
        source, target = links
        h, n = self.lin(x), x.size(0)
        score = F.leaky_relu(torch.cat([h[source], h[target]], -1) @ self.att, 0.2)
        greatest = torch.full((n,), -1e9).scatter_reduce(0, target, score, reduce="amax")
        p = torch.exp(score - greatest[target])
        total = torch.zeros(n).index_add(0, target, p)
        return torch.zeros_like(h).index_add_(0, target, h[source] * (p / (total[target] + 1e-16)).unsqueeze(-1))


@idiom(lambda b, t: {"x": floats(b, t, 16)}, {"x": BT})
class DecayedRotary(nn.Module):
    """Rotary positions with scales that grow for queries and fall for keys."""
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.register_buffer("scale", (torch.arange(0, 8, 2) + 0.4 * 8) / (1.4 * 8))

    def turned(self, x, downscale):
        n, d = x.shape[-2:]
        power = torch.arange(-(n // 2), n - n // 2).to(self.scale).div(16)[:, None]
        scale = (self.scale ** (-power if downscale else power)).repeat_interleave(2, -1)
        angle = torch.outer(torch.arange(n, dtype=torch.float), 1 / 10000 ** (torch.arange(0, d, 2) / d)).repeat_interleave(2, -1)
        odd = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
        return (x * angle.cos() + odd * angle.sin()) * scale

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        scores = self.turned(q, False) @ self.turned(k, True).transpose(-1, -2) / math.sqrt(8)
        later = torch.ones(x.size(1), x.size(1), dtype=torch.bool).triu(1)
        return (scores.masked_fill(later, float("-inf")).softmax(-1) @ v).transpose(1, 2).flatten(2)


@idiom(lambda b, n: {"x": floats(b, 12, 16)}, {"x": B}, ((2, 1), (4, 1)))
class GridRotary(nn.Module):
    """Rotary positions of rows for one half of the columns and of columns for the other, by a mesh."""
    def forward(self, x):
        i, j = torch.meshgrid(torch.arange(3), torch.arange(4), indexing="ij")
        rates = 100.0 ** (-torch.arange(0, 4, dtype=torch.float32) / 4)
        angles = torch.cat([i.flatten()[:, None] * rates, j.flatten()[:, None] * rates], -1)
        a, b = x.chunk(2, -1)
        return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class CountedPositions(nn.Module):
    """Positions that the content counts, from behind, between two rows of a table."""
    def __init__(self):
        super().__init__()
        self.q, self.k, self.table = nn.Linear(8, 8), nn.Linear(8, 8), nn.Parameter(torch.randn(8, 5))

    def forward(self, x):
        q, k, n = self.q(x), self.k(x), x.shape[1]
        mask = torch.triu(torch.full((n, n), -1e4), 1)
        scores = q @ k.transpose(-2, -1) + mask
        places = torch.sigmoid(scores).flip(-1).cumsum(dim=-1).flip(-1).clamp(max=4)
        high, low = places.ceil().long(), places.floor().long()
        each = q @ self.table
        w = places - low
        return (scores + each.gather(-1, high) * w + each.gather(-1, low) * (1 - w)).softmax(-1) @ x


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class LogarithmicBias(nn.Module):
    """A learned bias of the logarithm of the distance for each head, and one by a small net of it."""
    def __init__(self):
        super().__init__()
        self.p, self.a = nn.Parameter(torch.rand(2, 1, 1)), nn.Parameter(torch.rand(2, 1, 1))
        self.net, self.c = nn.Sequential(nn.Linear(1, 4), nn.ReLU(), nn.Linear(4, 2)), nn.Parameter(torch.tensor(0.1))

    def forward(self, x):
        n = x.size(1)
        at = torch.arange(n, device=x.device)
        far = (at[:, None] - at[None, :]).abs().to(x.dtype)
        bias = -self.p.abs().clamp(min=1e-2) * torch.log(1 + self.a.abs() * far)
        over = torch.log(self.c.abs() * torch.maximum(at, torch.tensor(2)).to(x.dtype) + 1)[:, None, None]
        more = self.net(torch.log(self.c.abs() * far.unsqueeze(-1) + 1) / over).permute(2, 0, 1)
        heads = x.view(x.size(0), n, 2, 4).transpose(1, 2)
        return ((heads @ heads.mT) / 2 + bias + more).softmax(-1) @ heads


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class DecayedRetention(nn.Module):
    """Products without a softmax, below a matrix of powers of a rate for each head, normalized by groups."""
    def __init__(self):
        super().__init__()
        self.qkv, self.norm = nn.Linear(8, 24, bias=False), nn.GroupNorm(2, 8, affine=False)
        self.register_buffer("gamma", 1 - torch.exp(torch.linspace(math.log(1 / 4), math.log(1 / 16), 2)))

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = (part.view(b, n, 2, 4).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        apart = torch.arange(n).unsqueeze(1) - torch.arange(n).unsqueeze(0)
        decay = (self.gamma[:, None, None] ** apart.float()).nan_to_num() * (apart >= 0)
        decay = decay / decay.sum(-1, keepdim=True).sqrt()
        y = (q @ k.mT * decay) @ v
        return self.norm(y.transpose(1, 2).reshape(b * n, 8)).view(b, n, 8)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class Difference(nn.Module):
    """Two maps of attention, one taken off the other by a learned share."""
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, 8, bias=False) for _ in range(3))
        self.a, self.b, self.c, self.d = (nn.Parameter(torch.randn(4) * 0.1) for _ in range(4))
        self.norm = nn.RMSNorm(8, elementwise_affine=False)

    def forward(self, x, start=0.8 - 0.6 * math.exp(-0.3)):
        b, n, _ = x.shape
        q, k = (part(x).view(b, n, 2, 4).transpose(1, 2) for part in (self.q, self.k))
        weights = F.softmax(torch.matmul(q * 0.5, k.transpose(-1, -2)) + torch.full((n, n), float("-inf")).triu(1), -1)
        share = torch.exp(torch.sum(self.a * self.b, -1)) - torch.exp((self.c * self.d).sum()) + start
        first, second = weights.unbind(1)
        return self.norm((first - share * second) @ self.v(x)) * (1 - start)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class BestKeysOnly(nn.Module):
    """Each query sees its best keys: scores below the last of them are masked."""
    def forward(self, x):
        scores = x @ x.transpose(1, 2) / 8 ** 0.5
        least = scores.topk(3, dim=-1).values[..., -1:]
        return torch.where(scores < least, torch.finfo(scores.dtype).min, scores).softmax(-1) @ x


@idiom(lambda b, n: {"x": floats(b, n, 7)}, {"x": BT})
class SparseMaximum(nn.Module):
    """Probabilities that are exactly 0 below a threshold, by a sort and running sums."""
    def forward(self, x):
        z, _ = torch.sort(x, dim=-1, descending=True)
        total, k = z.cumsum(-1) - 1, torch.arange(1, 8, dtype=x.dtype)
        n = (k * z > total).sum(-1, keepdim=True)
        return torch.clamp(x - total.gather(-1, n - 1) / n.to(x.dtype), min=0)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class Arcs(nn.Module):
    """Scores of heads and of labels of pairs, bilinear with a column of ones; spans that end before they begin are masked."""
    def __init__(self):
        super().__init__()
        self.head, self.tail = nn.Linear(8, 6), nn.Linear(8, 6)
        self.arc, self.label = nn.Parameter(torch.randn(7, 6)), nn.Parameter(torch.randn(3, 7, 7))

    def forward(self, x):
        h, d = F.leaky_relu(self.head(x), 0.1), F.leaky_relu(self.tail(x), 0.1)
        ones = torch.ones_like(h[..., :1])
        h1, d1 = torch.cat((h, ones), -1), torch.cat((d, ones), -1)
        arcs = d1 @ self.arc @ h.transpose(1, 2)
        labels = torch.einsum("bxi,oij,byj->bxyo", d1, self.label, h1)
        best = arcs.diagonal_scatter(torch.full(x.shape[:2], -1e9), dim1=1, dim2=2).argmax(-1)
        at = best[:, :, None, None].expand(-1, -1, 1, 3)
        return arcs.masked_fill(torch.ones(x.size(1), x.size(1)).tril(-1).bool(), -1e9), labels.gather(2, at).squeeze(2), best


@idiom(lambda b, t: {"x": floats(b, t, 8), "slots": floats(b, 3, 8, seed=11)}, {"x": BT, "slots": B})
class Slots(nn.Module):
    """Slots that compete for the inputs, for a few rounds with a cell of a recurrent net."""
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, 8, bias=False) for _ in range(3))
        self.cell, self.norm, self.of_slots = nn.GRUCell(8, 8), nn.LayerNorm(8), nn.LayerNorm(8)

    def forward(self, x, slots):
        x = self.norm(x)
        k, v = self.k(x), self.v(x)
        for _ in range(2):
            before = slots
            attention = torch.einsum("bid,bjd->bij", self.q(self.of_slots(slots)), k).mul(8 ** -0.5).softmax(dim=1) + 1e-8
            attention = attention / attention.sum(dim=-1, keepdim=True)
            slots = self.cell((attention @ v).reshape(-1, 8), before.reshape(-1, 8)).reshape(before.shape)
        return slots


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class LightConvolution(nn.Module):
    """Kernels that each place makes for itself, normalized, over windows that end there."""
    def __init__(self):
        super().__init__()
        self.kernel, self.gate = nn.Linear(8, 2 * 3), nn.Linear(8, 16)

    def forward(self, x):
        y = F.glu(self.gate(x))
        weights = self.kernel(y).view(*x.shape[:2], 2, 3).softmax(-1)
        windows = F.pad(y, (0, 0, 2, 0)).unfold(1, 3, 1)
        return torch.einsum("bthk,bthck->bthc", weights, windows.unflatten(2, (2, 4))).flatten(2)


@idiom(lambda b, t: {"x": floats(b, t, 8), "mask": (torch.arange(t)[None] < torch.arange(3, 3 + b)[:, None]).float()},
       {"x": BT, "mask": BT})
class StatisticsPooling(nn.Module):
    """Weighted mean and deviation over time, a generalized mean, and residuals to centres."""
    def __init__(self):
        super().__init__()
        self.att, self.p = nn.Sequential(nn.Conv1d(8, 4, 1), nn.Tanh(), nn.Conv1d(4, 8, 1)), nn.Parameter(torch.ones(1) * 3)
        self.centres, self.assign = nn.Parameter(torch.rand(2, 8)), nn.Conv1d(8, 2, 1)

    def forward(self, x, mask):
        x, mask = x.transpose(1, 2), mask.unsqueeze(1)
        w = self.att(x).masked_fill(mask == 0, -1e9).softmax(2)
        mean = (w * x).sum(2)
        std = torch.sqrt(((w * x ** 2).sum(2) - mean ** 2).clamp(min=1e-4))
        gem = ((x.clamp(min=1e-6).pow(self.p) * mask).sum(-1) / mask.sum(-1)).pow(1.0 / self.p)
        soft = F.softmax(self.assign(x), dim=1) * mask
        rest = (soft.unsqueeze(2) * (x.unsqueeze(1) - self.centres[None, :, :, None])).sum(-1)
        return torch.cat((mean, std, gem, F.normalize(F.normalize(rest, dim=2).flatten(1), dim=1)), dim=1)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class LatentKeys(nn.Module):
    """Keys and values from a narrow vector; a part of each key that all heads share has the positions."""
    def __init__(self):
        super().__init__()
        self.down, self.norm, self.up = nn.Linear(8, 4 + 2), nn.RMSNorm(4), nn.Linear(4, 2 * (3 + 4))
        self.q, self.o = nn.Linear(8, 2 * 5), nn.Linear(8, 8)

    def turned(self, x, at):
        angle = at[:, None] * 0.5
        a, b = x.unbind(-1)
        return torch.stack((a * angle.cos().squeeze(-1) - b * angle.sin().squeeze(-1), b * angle.cos().squeeze(-1) + a * angle.sin().squeeze(-1)), -1)

    def forward(self, x):
        b, n, _ = x.shape
        at = torch.arange(n, dtype=x.dtype)
        latent, shared = self.down(x).split([4, 2], dim=-1)
        k, v = self.up(self.norm(latent)).view(b, n, 2, 7).transpose(1, 2).split([3, 4], -1)
        q, q_at = self.q(x).view(b, n, 2, 5).transpose(1, 2).split((3, 2), dim=-1)
        k_at = self.turned(shared.unsqueeze(1), at).expand(-1, 2, -1, -1)
        query, key = torch.cat((q, self.turned(q_at, at)), -1), torch.cat((k, k_at), -1)
        return self.o(F.scaled_dot_product_attention(query, key, v, is_causal=True, scale=5 ** -0.5).transpose(1, 2).reshape(b, n, -1))


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT}, ((3, 8), (2, 12), (5, 16)))
class Funnel(nn.Module):
    """Time pooled by 4 behind a shift that keeps later places out, and repeated to its length."""
    def forward(self, x):
        b, n, d = x.shape
        moved = F.pad(x, (0, 0, 3, 0))[:, :n]
        short = moved.reshape(b, n // 4, 4, d).mean(2)
        return x + torch.repeat_interleave(torch.tanh(short), 4, dim=1)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT}, refused=("randn", "idioms_routes.py:"))
class HashedBuckets(nn.Module):
    """Tokens in the order of their buckets, which random turns decide."""
    def forward(self, x):
        turns = torch.randn(8, 4)
        buckets = torch.argmax(torch.cat([x @ turns, -(x @ turns)], -1), -1)
        order = buckets.argsort(-1)
        return x.gather(1, order.unsqueeze(-1).expand_as(x))
