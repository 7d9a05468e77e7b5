"""Attention and memory of recent papers as people write them: random features, entropy with thresholds, gates that forget, blocks
that are chosen, streams that are mixed, splines, hashes of several tokens, losses of paths; for test_torch_idioms.py.
"""
import math

from idioms_table import floats, idiom, ids, nn, torch

F = nn.functional if nn else None
BT, B = {0: "batch", 1: "time"}, {0: "batch"}


def heads_of(x, n):
    b, t, d = x.shape
    return x.reshape(b, t, n, d // n).transpose(1, 2)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class MixtureOfSoftmaxes(nn.Module):
    """Several softmaxes over the words, mixed by a prior of each place."""
    def __init__(self):
        super().__init__()
        self.prior, self.latent, self.words = nn.Linear(8, 3, bias=False), nn.Sequential(nn.Linear(8, 24), nn.Tanh()), nn.Linear(8, 11)

    def forward(self, x):
        latent = self.latent(x).view(-1, 8)
        prior = F.softmax(self.prior(x).contiguous().view(-1, 3), -1)
        prob = F.softmax(self.words(latent), -1).view(-1, 3, 11)
        prob = (prob * prior.unsqueeze(2).expand_as(prob)).sum(1)
        return torch.log(prob.add_(1e-8)).view(x.size(0), -1, 11)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class RandomFeatures(nn.Module):
    """Attention by positive features of a projection that is a buffer, with its stabilizer; causal by sums."""
    def __init__(self, causal=True):
        super().__init__()
        self.qkv, self.causal = nn.Linear(8, 24), causal
        self.register_buffer("projection_matrix", torch.linalg.qr(torch.randn(4, 4))[0].repeat(2, 1) * 2.0)

    def features(self, data, is_query, eps=1e-4):
        normalizer, ratio = data.shape[-1] ** -0.25, self.projection_matrix.shape[0] ** -0.5
        projection = self.projection_matrix[None, None].expand(*data.shape[:2], -1, -1)
        dash = torch.einsum("...id,...jd->...ij", normalizer * data, projection)
        diag = ((data ** 2).sum(dim=-1) / 2.0 * normalizer ** 2).unsqueeze(dim=-1)
        stabilizer = torch.amax(dash, dim=-1, keepdim=True).detach() if is_query else torch.amax(dash, dim=(-1, -2), keepdim=True).detach()
        return ratio * (torch.exp(dash - diag - stabilizer) + eps)

    def forward(self, x):
        q, k, v = (heads_of(y, 2) for y in self.qkv(x).chunk(3, -1))
        q, k = self.features(q, True), self.features(k, False)
        context = torch.einsum("...nd,...ne->...nde", k, v).cumsum(dim=-3)
        inverse = 1.0 / torch.einsum("...nd,...nd->...n", q, k.cumsum(dim=-2) + 1e-6)
        return torch.einsum("...nde,...nd,...n->...ne", context, q, inverse).transpose(1, 2).flatten(2)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class AssociativeMemory(nn.Module):
    """Patterns are retrieved in three updates of the state, with one learned sharpness for each head."""
    def __init__(self, updates=3):
        super().__init__()
        self.patterns, self.norm = nn.Parameter(torch.randn(2, 6, 4)), nn.LayerNorm(4, elementwise_affine=False)
        self.beta, self.updates = nn.Parameter(torch.tensor([0.7, 1.3])), updates

    def forward(self, x):
        xi, keys = self.norm(heads_of(x, 2)), self.norm(self.patterns)
        while self.updates > 0:
            for _ in range(self.updates):
                xi = torch.softmax(self.beta[None, :, None, None] * (xi @ keys.mT), dim=-1) @ keys
            break
        return xi.permute(0, 2, 1, 3).flatten(-2)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class MixedStreams(nn.Module):
    """Residual streams whose mixing is made doubly stochastic by turns, in logarithms."""
    def __init__(self, streams=4):
        super().__init__()
        self.mix = nn.Parameter(torch.randn(streams, streams))
        self.read, self.put = nn.Parameter(torch.randn(streams)), nn.Parameter(torch.randn(streams))
        self.layers = nn.ModuleList(nn.Sequential(nn.RMSNorm(8), nn.Linear(8, 8), nn.SiLU()) for _ in range(2))

    def forward(self, x):
        streams = x.unsqueeze(-2).repeat_interleave(self.mix.shape[0], dim=-2)
        for layer in self.layers:
            log = self.mix
            for _ in range(5):
                log = log - torch.logsumexp(log, dim=-1, keepdim=True)
                log = log - torch.logsumexp(log, dim=-2, keepdim=True)
            y = layer(torch.einsum("s,btsd->btd", self.read.softmax(0), streams))
            streams = torch.einsum("sr,btrd->btsd", log.exp(), streams) + self.put.sigmoid()[:, None] * y[..., None, :]
        return streams.mean(dim=-2)


@idiom(lambda b, t: {"x": floats(b, t, 4)}, {"x": BT})
class BiasOfDistances(nn.Module):
    """A small network gives the bias of a distance, in logarithms and relative to the place; and a kernel with two numbers a head."""
    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(1, 6), nn.ReLU(), nn.Linear(6, 2))
        self.c, self.initial, self.eps = nn.Parameter(torch.tensor(0.1)), nn.Parameter(torch.tensor(3.0), requires_grad=False), 1e-6
        self.p, self.a = nn.Parameter(torch.rand(2, 1, 1)), nn.Parameter(torch.rand(2, 1, 1))

    def forward(self, x):
        t = x.size(1)
        places = torch.arange(t, device=x.device).to(x.dtype)
        far = places[:, None] - places[None, :]
        threshold = torch.abs(self.initial * 0.5)
        normalizer = torch.log(torch.abs(self.c * torch.clamp(places[:, None], min=threshold)) + 1)
        log = torch.log(torch.abs(self.c * far) + 1)
        fire = self.mlp((log / (normalizer + self.eps)).unsqueeze(-1)).permute(2, 0, 1)
        self_p, self_a = self.p.clamp(min=0.01), self.a.clamp(min=0.01)
        kernel = -self_p * torch.log(1 + self_a * torch.tril(far))
        scores = heads_of(x, 2) @ heads_of(x, 2).transpose(-2, -1) + fire + kernel
        return scores.masked_fill(far.lt(0), float("-inf")).softmax(-1)


@idiom(lambda b, t: {"x": floats(b, t, 16), "position_ids": ids(3, b, t, high=9)}, {"x": BT, "position_ids": {1: "batch", 2: "time"}})
class SectionsOfRotary(nn.Module):
    """Three positions a token, each for a section of the angles, taken in turns from a list."""
    def __init__(self):
        super().__init__()
        self.register_buffer("inv_freq", 1.0 / 100.0 ** (torch.arange(0, 8, 2).float() / 8), persistent=False)
        self.section = [1, 1, 2]

    def forward(self, x, position_ids):
        inv = self.inv_freq[None, None, :, None].float().expand(3, position_ids.shape[1], -1, 1)
        freqs = (inv @ position_ids[:, :, None, :].float()).transpose(2, 3)
        emb = torch.cat((freqs, freqs), dim=-1)
        cos, sin = emb.cos(), emb.sin()
        section = self.section * 2
        cos, sin = (torch.cat([m[i % 3] for i, m in enumerate(y.split(section, dim=-1))], dim=-1).unsqueeze(1) for y in (cos, sin))
        q = heads_of(x, 2)
        return q * cos + torch.cat((-q[..., 4:], q[..., :4]), -1) * sin


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class ScoresConvolved(nn.Module):
    """Scores of several queries and keys are mixed by a convolution over both, hidden before it by 0 and behind it by -inf."""
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 2, (3, 5), groups=2, bias=False)
        self.qkv = nn.Linear(8, 24)

    def forward(self, x):
        t = x.shape[1]
        q, k, v = map(lambda y: heads_of(y, 2), self.qkv(x).tensor_split(3, dim=-1))
        hidden = torch.ones(t, t, dtype=torch.bool, device=x.device).triu_(1)
        scores = (q @ k.transpose(2, 3)).div(math.sqrt(q.size(-1))).masked_fill(hidden, 0.0)
        scores = self.conv(F.pad(scores, (2, 2, 2, 0)))
        return (scores.masked_fill_(hidden, float("-inf")).softmax(-1) @ v).transpose(1, 2).reshape_as(x)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class Forgetting(nn.Module):
    """Gates that forget, as sums of their logarithms between query and key."""
    def __init__(self):
        super().__init__()
        self.qkv, self.gate = nn.Linear(8, 24), nn.Linear(8, 2)

    def forward(self, x):
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 2, 4).permute(2, 0, 3, 1, 4)
        log = F.logsigmoid(self.gate(x).float()).transpose(-1, -2)
        total = torch.cumsum(log, dim=-1)
        bias = (total[..., :, None] - total[..., None, :]).tril_()
        return F.scaled_dot_product_attention(q, k, v, attn_mask=torch.where(torch.ones_like(bias).tril() > 0, bias, -torch.inf).to(q.dtype))


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class StickBreaking(nn.Module):
    """What is left of a stick, from the nearest key on: a sum from the right, by turning around."""
    def forward(self, x):
        q, k = heads_of(x, 2), heads_of(x.tanh(), 2)
        logits = q.matmul(k.transpose(-1, -2)) / 2
        mask = torch.tril(torch.ones_like(logits[0, 0]), -1).bool()
        log_beta, log_rest = F.logsigmoid(logits), F.logsigmoid(-logits).masked_fill(~mask, 0)
        after = log_rest.flip(-1).cumsum(-1).flip(-1) - log_rest
        return torch.where(mask, (log_beta + after).exp(), torch.zeros((), dtype=x.dtype)) @ heads_of(x, 2)


@idiom(lambda b, t: {"x": floats(b, t, 6)}, {"x": BT})
class ThresholdByHalving(nn.Module):
    """A softmax with zeros, whose threshold is found by halving an interval."""
    def __init__(self, alpha=1.5, steps=24):
        super().__init__()
        self.alpha, self.steps = alpha, steps

    def forward(self, x):
        alpha, d = self.alpha, x.shape[-1]
        x = x * (alpha - 1)
        most, _ = x.max(dim=-1, keepdim=True)
        low, high = most - 1, most - (1 / d) ** (alpha - 1)

        def p(tau):
            return torch.clamp(x - tau, min=0) ** (1 / (alpha - 1))
        f_low, dm = p(low).sum(-1) - 1, high - low
        for _ in range(self.steps):
            dm = dm / 2
            middle = low + dm
            f_middle = p(middle).sum(-1) - 1
            low = torch.where((f_middle * f_low >= 0).unsqueeze(-1), middle, low)
        made = p(low)
        return made / made.sum(dim=-1).unsqueeze(-1)


@idiom(lambda b, t: {"x": floats(b, 12, 8)}, {"x": B})
class ChosenBlocks(nn.Module):
    """Each query reads the two blocks of keys whose means it likes best."""
    def __init__(self, block=3, n=2):
        super().__init__()
        self.block, self.n, self.qkv = block, n, nn.Linear(8, 24)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        k, v = (y.unflatten(1, (-1, self.block)) for y in (k, v))
        best = (q @ k.mean(2).transpose(1, 2)).topk(self.n, dim=-1).indices
        index = best[..., None, None].expand(-1, -1, -1, self.block, d)
        k, v = (y[:, None].expand(-1, t, -1, -1, -1).gather(2, index).flatten(2, 3) for y in (k, v))
        return torch.einsum("btk,btkd->btd", torch.einsum("btd,btkd->btk", q, k).softmax(-1), v)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class CosinesOfPlaces(nn.Module):
    """Linear attention whose features are weighed by a cosine and a sine of the place, of a length that the run has."""
    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = F.relu(x), F.relu(x.roll(1, -1)), x.flip(-1)
        index = (math.pi / 2 * torch.arange(1, t + 1)).reshape(1, -1, 1).to(x)
        q_, k_ = (torch.cat([y * torch.sin(index / t), y * torch.cos(index / t)], dim=-1) for y in (q, k))
        kv = torch.einsum("nld,nlm->ndm", k_, v)
        z = 1 / torch.clamp_min(torch.einsum("nld,nd->nl", q_, torch.sum(k_, axis=1)), 1e-6)
        return torch.einsum("nld,ndm,nl->nlm", q_, kv, z)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT}, refused=("idioms_recent.py:", "logcumsumexp"))
class GatesInLogarithms(nn.Module):
    """A recurrence without its loop: sums of logarithms, and the logarithm of sums of powers along time."""
    def __init__(self):
        super().__init__()
        self.z, self.h = nn.Linear(8, 5), nn.Linear(8, 5)

    def forward(self, x):
        k, hidden = self.z(x), self.h(x)
        log_z, log_rest = -F.softplus(-k), -F.softplus(k)
        log_h = torch.where(hidden >= 0, (F.relu(hidden) + 0.5).log(), -F.softplus(-hidden))
        a = torch.cumsum(log_rest, dim=1)
        return (a + torch.logcumsumexp(log_z + log_h - a, dim=1)).exp()


@idiom(lambda b, t: {"x": floats(b, t, 3)}, {"x": BT})
class Splines(nn.Module):
    """A layer of splines on a grid, by the recursion of their orders, beside a plain activation."""
    def __init__(self, order=3, steps=5):
        super().__init__()
        h = 2 / steps
        self.order = order
        grid = torch.arange(-order, steps + order + 1) * h - 1
        self.register_buffer("grid", grid.expand(3, -1).contiguous())
        self.base_weight, self.spline_weight = nn.Parameter(torch.randn(4, 3)), nn.Parameter(torch.randn(4, 3, steps + order))

    def bases(self, x):
        grid, x = self.grid, x.unsqueeze(-1)
        bases = ((x >= grid[:, :-1]) & (x < grid[:, 1:])).to(x.dtype)
        for k in range(1, self.order + 1):
            bases = ((x - grid[:, : -(k + 1)]) / (grid[:, k:-1] - grid[:, : -(k + 1)]) * bases[:, :, :-1]
                     + (grid[:, k + 1:] - x) / (grid[:, k + 1:] - grid[:, 1:(-k)]) * bases[:, :, 1:])
        return bases.contiguous()

    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, 3)
        y = F.linear(F.silu(x), self.base_weight) + F.linear(self.bases(x).view(x.size(0), -1), self.spline_weight.view(4, -1))
        return y.reshape(*shape[:-1], 4)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class ProductKeys(nn.Module):
    """The best of pairs of keys, as sums of the best of each half; values are read where they are."""
    def __init__(self, n=5, k=3):
        super().__init__()
        self.n, self.k, self.keys, self.values = n, k, nn.Parameter(torch.randn(2, n, 4)), nn.EmbeddingBag(n * n, 6, mode="sum")

    def forward(self, x):
        b, t, _ = x.shape
        q = x.reshape(b * t, 2, 4)
        scores, indices = torch.einsum("bhd,hnd->bhn", q, self.keys).topk(self.k, dim=-1)
        (s1, s2), (i1, i2) = scores.unbind(1), indices.unbind(1)
        every = (s1.unsqueeze(2) + s2.unsqueeze(1)).view(b * t, -1)
        places = (i1.unsqueeze(2) * self.n + i2.unsqueeze(1)).view(b * t, -1)
        best, chosen = every.topk(self.k, dim=-1)
        return self.values(places.gather(-1, chosen), per_sample_weights=best.softmax(-1)).view(b, t, -1)


@idiom(lambda b, t: {"x": floats(b, t, 4)}, {"x": BT})
class FiniteScalars(nn.Module):
    """Numbers rounded to few levels of each column, their index in one code, and codes of signs."""
    def __init__(self, levels=(8, 5, 5, 4)):
        super().__init__()
        self.register_buffer("levels", torch.tensor(levels, dtype=torch.int32), persistent=False)
        self.register_buffer("basis", torch.cumprod(torch.tensor([1, *levels[:-1]]), dim=0, dtype=torch.int32), persistent=False)
        self.register_buffer("mask", 2 ** torch.arange(3, -1, -1))

    def bound(self, z, eps=1e-3):
        half = (self.levels - 1) * (1 - eps) / 2
        offset = torch.where(self.levels % 2 == 0, 0.5, 0.0)
        shift = (offset / half).tan()
        return (z + shift).tanh() * half - offset

    def forward(self, x):
        z = self.bound(x)
        quantized = z + (z.round() - z).detach()
        half = self.levels // 2
        codes = quantized / half
        index = ((codes * half + half) * self.basis).sum(dim=-1).to(torch.int32)
        signs = torch.where(x > 0, torch.ones_like(x), -torch.ones_like(x))
        return codes, index, ((signs > 0).int() * self.mask.int()).sum(dim=-1), (index.unsqueeze(-1) // self.basis) % self.levels


@idiom(lambda b, t: {"ids": ids(b, t, high=50)}, {"ids": BT}, refused=("idioms_recent.py:", "bits of integers"))
class HashesOfTokens(nn.Module):
    """Rows for pairs and triples of tokens: products with odd numbers, joined by exclusive or, by a prime."""
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(p, 4) for p in (101, 103))
        self.multipliers = [10007, 30011, 50021]

    def forward(self, ids):
        shifted = [F.pad(ids, (k, 0), value=0)[:, :ids.shape[1]] if k else ids for k in range(3)]
        made, mix = [], shifted[0] * self.multipliers[0]
        for k, table in enumerate(self.tables, 1):
            mix = torch.bitwise_xor(mix, shifted[k] * self.multipliers[k])
            made.append(table(mix % table.num_embeddings))
        return torch.cat(made, dim=-1)


@idiom(lambda b, t: {"x": floats(b, 6, 4), "mask": torch.arange(6)[None] < torch.arange(2, 2 + b)[:, None].clamp(max=6)},
       {"x": B, "mask": B})
class SumsOverPaths(nn.Module):
    """The logarithm of the sum over all paths of labels, and the best path's score, step by step."""
    def __init__(self):
        super().__init__()
        self.start, self.end, self.transitions = nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(4, 4))

    def forward(self, x, mask):
        emissions, mask = x.transpose(0, 1), mask.transpose(0, 1)
        score = best = self.start + emissions[0]
        for i in range(1, emissions.size(0)):
            step = self.transitions + emissions[i].unsqueeze(1)
            score = torch.where(mask[i].unsqueeze(1), torch.logsumexp(score.unsqueeze(2) + step, dim=1), score)
            best = torch.where(mask[i].unsqueeze(1), (best.unsqueeze(2) + step).max(dim=1)[0], best)
        return torch.logsumexp(score + self.end, dim=1), (best + self.end).max(dim=1)


@idiom(lambda b, t: {"x": floats(b, t, 5)}, {"x": BT})
class HeadsAndLabels(nn.Module):
    """Scores of each word for each head, for every label, by one product of three with ones behind the words."""
    def __init__(self):
        super().__init__()
        self.arc, self.label = nn.Parameter(torch.randn(1, 6, 5)), nn.Parameter(torch.randn(3, 6, 6))

    def forward(self, x):
        ones = torch.cat((x, torch.ones_like(x[..., :1])), -1)
        arcs = torch.einsum("bxi,oij,byj->boxy", ones, self.arc, x).squeeze(1)
        labels = torch.einsum(ones, [0, 1, 2], self.label, [3, 2, 4], ones, [0, 5, 4], [0, 1, 5, 3])
        return arcs.masked_fill(torch.eye(x.shape[1], dtype=torch.bool), -1e4), labels


@idiom(lambda b, t: {"x": floats(b, 4, 6)}, {"x": B})
class TrainedWhileRead(nn.Module):
    """A linear memory that takes a step of its own gradient at each place."""
    def __init__(self):
        super().__init__()
        self.w, self.lr, self.kvq = nn.Parameter(torch.randn(6, 6) * 0.3), nn.Parameter(torch.tensor(-1.0)), nn.Linear(6, 18)

    def forward(self, x):
        k, v, q = self.kvq(x).split([6, 6, 6], dim=2)
        w, out = self.w.expand(x.shape[0], -1, -1).clone(), []
        for kt, vt, qt in zip(k.unbind(1), v.unbind(1), q.unbind(1)):
            error = torch.bmm(kt.unsqueeze(1), w).squeeze(1) - vt
            w = w - self.lr.sigmoid() * 0.1 * torch.einsum("bi,bj->bij", kt, error)
            out.append(torch.bmm(qt.unsqueeze(1), w))
        return torch.cat(out, dim=1)


@idiom(lambda b, t: {"x": floats(b, t, 6)}, {"x": BT})
class OnTheSphere(nn.Module):
    """Weights and states of length 1, and steps from one to the other."""
    def __init__(self):
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(6, 6, bias=False) for _ in range(2))
        self.alpha = nn.ParameterList(nn.Parameter(torch.full((6,), 0.05 * (i + 1))) for i in range(2))
        self.scale = nn.Parameter(torch.ones(6) * 6 ** -0.5)

    def forward(self, x):
        h = F.normalize(x, p=2.0, dim=-1)
        for linear, alpha in zip(self.linears, self.alpha):
            y = F.normalize(F.linear(h, F.normalize(linear.weight, dim=1)).relu() + 0.1 * h, dim=-1)
            h = F.normalize(torch.lerp(h, y, alpha.abs() * 6), dim=-1)
        return h * (self.scale * math.sqrt(6))


@idiom(lambda b, t: {"x": floats(b, t, 4)}, {"x": BT})
class MaskMadeOnce(nn.Module):
    """A mask that is made where it is missing or too small, and kept for the next call."""
    def __init__(self):
        super().__init__()
        self._mask = None

    def mask(self, n):
        if self._mask is None or self._mask.shape[0] < n:
            self._mask = torch.triu(torch.full((n, n), float("-inf")), 1)
        return self._mask[:n, :n]

    def forward(self, x):
        return (x @ x.transpose(1, 2) + self.mask(x.size(1))).softmax(-1) @ x


@idiom(lambda b, t: {"x": floats(b, 16, 4)}, {"x": B})
class DownAndBack(nn.Module):
    """Halved on the way down and doubled on the way back, with what was left on a list taken from its end."""
    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList(nn.Conv1d(4, 4, 3, padding=1) for _ in range(2))
        self.up = nn.ModuleDict({f"stage{i}": nn.ConvTranspose1d(8, 4, 2, stride=2) for i in range(2)})

    def forward(self, x):
        x, left = x.transpose(1, 2), []
        for conv in self.down:
            x = F.gelu(conv(x))
            left.append(x)
            x = F.avg_pool1d(x, 2)
        for i, name in reversed(list(enumerate(self.up))):
            skip = left.pop()
            x = self.up[name](torch.cat((x, F.interpolate(skip, size=x.shape[-1], mode="nearest")), dim=1)) + skip
        return x.mT


@idiom(lambda b, t: {"x": floats(b, t, 5), "y": floats(b, 3, 5, seed=8)}, {"x": BT, "y": B}, refused=("idioms_recent.py:", "acosh"))
class ScoresOfTheBall(nn.Module):
    """Attention by distances of the hyperbolic ball, and of Gaussians."""
    def forward(self, x, y):
        x, y = (z / (1 + z.norm(dim=-1, keepdim=True)) * 0.9 for z in (x, y))
        far = torch.cdist(x, y).square()
        arg = 1 + 2 * far / ((1 - x.pow(2).sum(-1)).unsqueeze(-1) * (1 - y.pow(2).sum(-1)).unsqueeze(-2))
        ball = torch.acosh(arg.clamp_min(1 + 1e-5))
        return torch.softmax(-ball, -1) @ y, torch.exp(-0.5 * far / 0.3 ** 2)


@idiom(lambda b, t: {"x": floats(b, t, 6)}, {"x": BT})
class ProductsOfSmallMatrices(nn.Module):
    """Weights as products of Kronecker, on a diagonal of blocks, of low rank and in a chain."""
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(2, 2)), nn.Parameter(torch.randn(3, 3))
        self.blocks = nn.ParameterList(nn.Parameter(torch.randn(3, 3)) for _ in range(2))
        self.u, self.v, self.d = nn.Parameter(torch.randn(6, 2)), nn.Parameter(torch.randn(2, 6)), nn.Parameter(torch.randn(6))

    def forward(self, x):
        y = x @ torch.kron(self.a, self.b) + F.linear(x, torch.block_diag(*self.blocks))
        y = y + torch.linalg.multi_dot([self.u, self.v, torch.diag(self.d)]).matmul(x.unsqueeze(-1)).squeeze(-1)
        return y + torch.tensordot(x, torch.outer(self.d, self.u[:, 0]), dims=([-1], [0]))


@idiom(lambda b, t: {"x": floats(b, t, 6)}, {"x": BT}, refused=("idioms_recent.py:", "became the constant"))
class EnsembleByMapping(nn.Module):
    """Members of an ensemble as one stack of parameters, called by mapping over it."""
    def __init__(self):
        super().__init__()
        members = [nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2)) for _ in range(3)]
        parameters, _ = torch.func.stack_module_state(members)
        self.base, self.names = [members[0]], list(parameters)
        self.stacked = nn.ParameterList(p.detach() for p in parameters.values())

    def forward(self, x):
        def call(parameters, x):
            return torch.func.functional_call(self.base[0], parameters, (x,))
        made = torch.vmap(call, in_dims=(0, None))(dict(zip(self.names, self.stacked)), x)
        return made.mean(0), made.var(0, unbiased=False)


@idiom(lambda b, t: {"x": floats(b, t, 6)}, {"x": BT})
class LayersWeighed(nn.Module):
    """Layers that share one block, called through hooks that change arguments and results, mixed by learned shares."""
    def __init__(self):
        super().__init__()
        self.block = nn.Linear(6, 6)
        self.shares, self.gamma = nn.Parameter(torch.tensor([0.3, -0.2, 0.9, 0.1])), nn.Parameter(torch.ones(1))
        self.block.register_forward_pre_hook(lambda module, args: (F.layer_norm(args[0], (6,)),))
        self.block.register_forward_hook(lambda module, args, made: made + args[0])

    def forward(self, x):
        states = [x]
        for step in range(3):
            states.append(torch.tanh(self.block(states[-1] + step)))
        return self.gamma * torch.stack([s * h for s, h in zip(self.shares.softmax(0), states)]).sum(0)


@idiom(lambda b, t: {"x": floats(b, t, 4)}, {"x": BT})
class ScanByProducts(nn.Module):
    """A selective state, its decays as products along time, in chunks of the whole."""
    def __init__(self):
        super().__init__()
        self.log_a = nn.Parameter(torch.log(torch.arange(1, 4).float()).repeat(4, 1))
        self.project, self.d = nn.Linear(4, 10), nn.Parameter(torch.ones(4))

    def forward(self, x):
        dt, b, c = self.project(x).split([4, 3, 3], dim=-1)
        dt, a = F.softplus(dt), -torch.exp(self.log_a.float())
        da = torch.einsum("bld,dn->bldn", dt, a)
        total = da.cumsum(1)
        decay = torch.exp((total[:, :, None] - total[:, None]).clamp(max=0))
        keep = torch.ones(x.shape[1], x.shape[1]).tril()[None, :, :, None, None]
        states = torch.einsum("btsdn,bsd,bsn,bsd->btdn", decay * keep, dt, b, x)
        return torch.einsum("btdn,btn->btd", states, c) + x * self.d
