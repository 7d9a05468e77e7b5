"""Parts of models for ranking, speech, forecasting, graphs of knowledge and sets as people write them: estimates of
kernels, splines, scans by products, losses over sorted scores, convolutions that stand in for states;
for test_torch_idioms.py.
"""
import math

from idioms_table import floats, idiom, ids, nn, torch

F = nn.functional if nn else None
BT, B = {0: "batch", 1: "time"}, {0: "batch"}


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class KernelEstimate(nn.Module):
    """Softmax attention by random features, made stable by the greatest of each."""
    def __init__(self):
        super().__init__()
        self.to_qkv = nn.Linear(8, 24, bias=False)
        self.register_buffer("projection", torch.randn(10, 8))

    def features(self, data, is_query, eps=1e-4):
        normalizer = data.shape[-1] ** -0.25
        ratio = self.projection.shape[0] ** -0.5
        dash = torch.einsum("bid,jd->bij", normalizer * data, self.projection)
        diag = (torch.sum(data ** 2, dim=-1) / 2.0 * (normalizer ** 2)).unsqueeze(dim=-1)
        most = torch.amax(dash, dim=-1, keepdim=True) if is_query else torch.amax(dash, dim=(-1, -2), keepdim=True)
        return ratio * (torch.exp(dash - diag - most) + eps)

    def forward(self, x):
        q, k, v = self.to_qkv(x).chunk(3, dim=-1)
        q, k = self.features(q, True), self.features(k, False)
        d_inv = 1.0 / torch.einsum("bnd,bd->bn", q, k.sum(dim=-2))
        return torch.einsum("bde,bnd,bn->bne", torch.einsum("bnd,bne->bde", k, v), q, d_inv)


@idiom(lambda b, t: {"frames": floats(b, t, 6), "labels": ids(b, 4)}, {"frames": BT, "labels": B})
class Joiner(nn.Module):
    """A transducer's joint network: every frame with every label."""
    def __init__(self):
        super().__init__()
        self.frames_out, self.embed = nn.Linear(6, 12), nn.Embedding(20, 12)
        self.out = nn.Sequential(nn.Tanh(), nn.Dropout(0.1), nn.Linear(12, 21))

    def forward(self, frames, labels):
        labels = F.pad(labels, (1, 0), value=0)
        joint = self.frames_out(frames).unsqueeze(2) + self.embed(labels).unsqueeze(1)
        return F.log_softmax(self.out(joint), dim=-1)


@idiom(lambda b, t: {"emissions": floats(b, 6, 5), "tags": ids(b, 6, high=5), "mask": torch.arange(6) < torch.tensor([[6], [3], [1], [5], [2]])[:b]},
       {"emissions": B, "tags": B, "mask": B})
class Chains(nn.Module):
    """A conditional random field of a known length, a mask for each row."""
    def __init__(self):
        super().__init__()
        self.start, self.stop = nn.Parameter(torch.randn(5)), nn.Parameter(torch.randn(5))
        self.transitions = nn.Parameter(torch.randn(5, 5))

    def forward(self, emissions, tags, mask):
        alpha = self.start + emissions[:, 0]
        score = self.start[tags[:, 0]] + emissions[:, 0].gather(1, tags[:, :1]).squeeze(1)
        for i in range(1, emissions.size(1)):
            inner = alpha.unsqueeze(2) + self.transitions + emissions[:, i].unsqueeze(1)
            alpha = torch.where(mask[:, i].unsqueeze(1), torch.logsumexp(inner, dim=1), alpha)
            step = self.transitions[tags[:, i - 1], tags[:, i]] + emissions[torch.arange(emissions.size(0)), i, tags[:, i]]
            score += step * mask[:, i]
        last = tags.gather(1, mask.long().sum(1, keepdim=True) - 1).squeeze(1)
        return torch.logsumexp(alpha + self.stop, dim=1) - score - self.stop[last]


@idiom(lambda b, t: {"x": floats(b, t, 4)}, {"x": BT})
class MovingState(nn.Module):
    """A damped moving average of every channel as a convolution by powers of what was learned, in a window."""
    def __init__(self, width=5):
        super().__init__()
        self.p, self.q = nn.Parameter(torch.randn(4, 3)), nn.Parameter(torch.randn(4, 3))
        self.gamma, self.omega, self.width = nn.Parameter(torch.randn(4, 3)), nn.Parameter(torch.randn(4)), width

    def kernel(self):
        p, q = torch.sigmoid(self.p), 1.0 - torch.sigmoid(self.p) * torch.sigmoid(self.q)
        powers = torch.arange(self.width).to(p).view(1, 1, self.width) * torch.log(q).unsqueeze(-1)
        return torch.einsum("dnl,dn->dl", p.unsqueeze(-1) * torch.exp(powers), self.gamma * math.sqrt(1.0 / 3))

    def forward(self, x):
        y = F.conv1d(F.pad(x.transpose(1, 2), (self.width - 1, 0)), self.kernel().flip(-1).unsqueeze(1), groups=4)
        return F.silu(y.transpose(1, 2) + x * self.omega)


@idiom(lambda b, t: {"x": floats(b, t, 8), "mask": floats(b, t) > -0.3}, {"x": BT, "mask": BT})
class PooledByAttention(nn.Module):
    """Seeds attend to a set; a set of nothing gives nothing."""
    def __init__(self):
        super().__init__()
        self.seeds = nn.Parameter(torch.randn(1, 2, 8))
        self.q, self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(4))
        self.norm = nn.LayerNorm(8)

    def forward(self, x, mask):
        q = self.q(self.seeds).repeat(x.size(0), 1, 1)
        q_, k_, v_ = (torch.cat(m.split(4, 2), 0) for m in (q, self.k(x), self.v(x)))
        scores = q_.bmm(k_.transpose(1, 2)) / math.sqrt(8)
        scores = scores.masked_fill(~mask.repeat(2, 1).unsqueeze(1), -float("inf"))
        a = torch.nan_to_num(torch.softmax(scores, 2))
        out = torch.cat((q_ + a.bmm(v_)).split(x.size(0), 0), 2)
        return self.norm(out + F.relu(self.o(out)))


@idiom(lambda b, t: {"x": floats(b, t, 6)}, {"x": BT})
class Residuals(nn.Module):
    """Distances to centres by soft assignment, each normalized, then all."""
    def __init__(self):
        super().__init__()
        self.assign = nn.Conv1d(6, 4, 1, bias=False)
        self.centroids = nn.Parameter(torch.rand(4, 6))

    def forward(self, x):
        x = F.normalize(x.permute(0, 2, 1), p=2, dim=1)
        soft = F.softmax(self.assign(x), dim=1)
        residual = x.expand(4, -1, -1, -1).permute(1, 0, 2, 3) - \
            self.centroids.expand(x.size(-1), -1, -1).permute(1, 2, 0).unsqueeze(0)
        residual = residual * soft.unsqueeze(2)
        vlad = F.normalize(residual.sum(dim=-1), p=2, dim=2).view(x.size(0), -1)
        return F.normalize(vlad, p=2, dim=1)


@idiom(lambda b, t: {"features": floats(b, 8), "label": ids(b, high=6)}, {"features": B, "label": B}, ((3, 1), (5, 1)))
class AngularMargin(nn.Module):
    """ArcFace: a margin on the angle of the right class, by one_hot."""
    def __init__(self, s=16.0, m=0.3):
        super().__init__()
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(6, 8)))
        self.s, self.cos_m, self.sin_m = s, math.cos(m), math.sin(m)
        self.th, self.mm = math.cos(math.pi - m), math.sin(math.pi - m) * m

    def forward(self, features, label):
        cosine = F.linear(F.normalize(features), F.normalize(self.weight))
        sine = torch.sqrt((1.0 - torch.pow(cosine, 2)).clamp(0, 1))
        phi = torch.where(cosine > self.th, cosine * self.cos_m - sine * self.sin_m, cosine - self.mm)
        one_hot = torch.zeros(cosine.size(), device=features.device)
        one_hot.scatter_(1, label.view(-1, 1).long(), 1)
        return ((one_hot * phi) + ((1.0 - one_hot) * cosine)) * self.s


@idiom(lambda b, t: {"logits": floats(b, t), "labels": ids(b, t, high=3) - 1}, {"logits": BT, "labels": BT}, refused=("a sort", "idioms_parts.py:"))
@idiom(lambda b, t: {"logits": floats(b, t), "labels": ids(b, t, high=3) - 1}, {"logits": B, "labels": B}, ((3, 8), (5, 8)))
class SortedHinge(nn.Module):
    """Lovász's hinge: errors in order, weighted by what the intersection over union loses."""
    def forward(self, logits, labels):
        signs = 2.0 * labels.float() - 1.0
        errors, perm = torch.sort(1.0 - logits * signs, dim=1, descending=True)
        truth = labels.float().gather(1, perm)
        gts = truth.sum(1, keepdim=True)
        jaccard = 1.0 - (gts - truth.cumsum(1)) / (gts + (1 - truth).cumsum(1))
        jaccard = torch.cat([jaccard[:, :1], jaccard[:, 1:] - jaccard[:, :-1]], dim=1)
        return (F.relu(errors) * jaccard).sum(1)


@idiom(lambda b, t: {"scores": floats(b, t), "relevance": floats(b, t, seed=8)}, {"scores": BT, "relevance": BT}, refused=("a sort", "idioms_parts.py:"))
@idiom(lambda b, t: {"scores": floats(b, t), "relevance": floats(b, t, seed=8)}, {"scores": B, "relevance": B}, ((3, 8), (5, 8)))
class Listwise(nn.Module):
    """ListMLE: the log of sums from the end, in the order of what is relevant."""
    def forward(self, scores, relevance):
        order = relevance.argsort(dim=-1, descending=True)
        ranked = torch.gather(scores, 1, order)
        most, _ = ranked.max(dim=1, keepdim=True)
        sums = torch.cumsum((ranked - most).exp().flip(dims=[1]), dim=1).flip(dims=[1])
        return (torch.log(sums + 1e-10) - (ranked - most)).mean(dim=1)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class CosineScores(nn.Module):
    """Queries and keys of length 1 by a scale that is learned as a logarithm and bounded."""
    def __init__(self):
        super().__init__()
        self.logit_scale = nn.Parameter(torch.log(10 * torch.ones((2, 1, 1))))
        self.qkv = nn.Linear(8, 24, bias=False)
        self.q_bias, self.v_bias = nn.Parameter(torch.randn(8)), nn.Parameter(torch.randn(8))

    def forward(self, x):
        B_, N, C = x.shape
        bias = torch.cat((self.q_bias, torch.zeros_like(self.v_bias, requires_grad=False), self.v_bias))
        qkv = F.linear(input=x, weight=self.qkv.weight, bias=bias).reshape(B_, N, 3, 2, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        attn = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
        attn = attn * torch.clamp(self.logit_scale, max=math.log(1.0 / 0.01)).exp()
        return (attn.softmax(-1) @ v).transpose(1, 2).reshape(B_, N, C)


@idiom(lambda b, t: {"x": floats(b, 3)}, {"x": B}, ((3, 1), (4, 1)))
class PiecewiseNumbers(nn.Module):
    """Numbers of a table as how far they are through each of their bins."""
    def __init__(self):
        super().__init__()
        edges = torch.sort(torch.randn(3, 5), dim=1).values
        self.register_buffer("left", edges[:, :-1])
        self.register_buffer("width", edges.diff(dim=1))
        self.weight = nn.Parameter(torch.randn(3, 4, 6))

    def forward(self, x):
        z = (x[..., None] - self.left) / self.width
        z = torch.cat([z[..., :1].clamp_max(1.0), z[..., 1:-1].clamp(0.0, 1.0), z[..., -1:].clamp_min(0.0)], dim=-1)
        return F.relu((z[..., None, :] @ self.weight).squeeze(-2))


@idiom(lambda b, t: {"x": floats(b, t)}, {"x": BT})
class Buckets(nn.Module):
    """Numbers by the bucket that they fall in."""
    def __init__(self):
        super().__init__()
        self.register_buffer("boundaries", torch.linspace(-1.5, 1.5, 7))
        self.embed = nn.Embedding(8, 4)

    def forward(self, x):
        return self.embed(torch.bucketize(x, self.boundaries)) + self.embed(torch.bucketize(x, self.boundaries, right=True))


@idiom(lambda b, t: {"head": ids(b), "relation": ids(b, high=7), "tail": ids(b, seed=9)}, {"head": B, "relation": B, "tail": B}, ((3, 1), (5, 1)))
class Rotations(nn.Module):
    """RotatE and ComplEx: complex numbers of a graph of knowledge as halves."""
    def __init__(self):
        super().__init__()
        self.entity, self.relation = nn.Parameter(torch.rand(20, 8) - 0.5), nn.Parameter(torch.rand(8, 4) - 0.5)

    def forward(self, head, relation, tail):
        head = torch.index_select(self.entity, dim=0, index=head).unsqueeze(1)
        phase = torch.index_select(self.relation, dim=0, index=relation).unsqueeze(1) / (0.5 / math.pi)
        tail = torch.index_select(self.entity, dim=0, index=tail).unsqueeze(1)
        (re_h, im_h), (re_t, im_t) = torch.chunk(head, 2, dim=2), torch.chunk(tail, 2, dim=2)
        re_r, im_r = torch.cos(phase), torch.sin(phase)
        score = torch.stack([re_h * re_r - im_h * im_r - re_t, re_h * im_r + im_h * re_r - im_t], dim=0).norm(dim=0)
        return 6.0 - score.sum(dim=2), (re_h * re_r * re_t + im_h * re_r * im_t).sum(-1)


@idiom(lambda b, t: {"query": floats(b, 1, 4), "facts": floats(b, t, 4, seed=7), "lengths": torch.tensor([2, t, 1, 3, 1])[:b]},
       {"query": B, "facts": BT, "lengths": B})
class Interest(nn.Module):
    """What one did before, weighted by what is offered now; lengths as a mask."""
    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(16, 6), nn.PReLU(), nn.Linear(6, 1))

    def forward(self, query, facts, lengths):
        queries = query.expand(-1, facts.size(1), -1)
        score = self.mlp(torch.cat([queries, facts, queries - facts, queries * facts], dim=-1)).transpose(1, 2)
        mask = (torch.arange(facts.size(1), device=facts.device)[None, :] < lengths[:, None]).unsqueeze(1)
        score = torch.where(mask, score, torch.zeros_like(score))
        return torch.matmul(score, facts).squeeze(1)


@idiom(lambda b, t: {"x": floats(b, 8, t)}, {"x": {0: "batch", 2: "time"}})
class Upsampled(nn.Module):
    """Channels become time, and time channels."""
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 8, 3, padding=1)

    def forward(self, x):
        b, c, t = x.size()
        x = x.view(b, c // 2, 2, t).permute(0, 1, 3, 2).contiguous().view(b, c // 2, t * 2)
        y = F.leaky_relu(self.conv(x), 0.2)
        return y.unflatten(2, (t, 2)).movedim(-1, 1).flatten(1, 2)


@idiom(lambda b, t: {"x": floats(b, t, 4)}, {"x": BT})
class DilatedGates(nn.Module):
    """Gated convolutions of growing reach whose ways out are added up."""
    def __init__(self):
        super().__init__()
        self.filters = nn.ModuleList([nn.Conv1d(4, 4, 2, dilation=2 ** i) for i in range(3)])
        self.gates = nn.ModuleList([nn.Conv1d(4, 4, 2, dilation=2 ** i) for i in range(3)])
        self.residual = nn.ModuleList([nn.Conv1d(4, 4, 1) for _ in range(3)])
        self.skip = nn.ModuleList([nn.Conv1d(4, 6, 1) for _ in range(3)])

    def forward(self, x):
        x, skips = x.transpose(-1, -2), 0
        for f, g, r, s in zip(self.filters, self.gates, self.residual, self.skip):
            padded = nn.ConstantPad1d((f.dilation[0] * (f.kernel_size[0] - 1), 0), 0.0)(x)
            z = torch.tanh(f(padded)) * torch.sigmoid(g(padded))
            skips = skips + s(z)
            x = (r(z) + x) * math.sqrt(0.5)
        return F.relu(skips).mT


@idiom(lambda b, t: {"energy": floats(b, t), "before": floats(b, t, seed=6).softmax(-1)}, {"energy": BT, "before": BT},
       refused=("a product along an axis whose size runs choose", "idioms_parts.py:"))
@idiom(lambda b, t: {"energy": floats(b, t), "before": floats(b, t, seed=6).softmax(-1)}, {"energy": B, "before": B}, ((3, 6), (5, 6)))
class Monotonic(nn.Module):
    """Attention that only moves on: sums by exclusive products."""
    def forward(self, energy, before):
        p = torch.sigmoid(energy)
        ones = torch.ones_like(p[:, :1])
        passed = torch.cumprod(torch.cat([ones, 1 - p[:, :-1]], dim=1), dim=1)
        return p * passed * torch.cumsum(before / torch.clamp(passed, 1e-6, 1.0), dim=1)


@idiom(lambda b, t: {"times": floats(b, t).abs().cumsum(1), "values": floats(b, t, 3)}, {"times": BT, "values": BT})
class Gaps(nn.Module):
    """Events at uneven times: sines with learned periods, and what has passed since."""
    def __init__(self):
        super().__init__()
        self.linear, self.periodic = nn.Linear(1, 1), nn.Linear(1, 4)
        self.decay, self.out = nn.Parameter(torch.randn(3)), nn.Linear(8, 5)

    def forward(self, times, values):
        gaps = torch.diff(times, dim=1, prepend=times[:, :1])
        slots = torch.log1p(gaps).unsqueeze(-1)
        time = torch.cat([self.linear(slots), torch.sin(self.periodic(slots))], -1)
        kept = values * torch.exp(-F.softplus(self.decay) * gaps.unsqueeze(-1))
        return self.out(torch.cat((kept, time), -1))


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class StridedAndNear(nn.Module):
    """A sparse mask that is made of where queries and keys stand."""
    def forward(self, x):
        t = x.shape[1]
        i, j = torch.meshgrid(torch.arange(t), torch.arange(t), indexing="ij")
        allowed = torch.logical_and(i >= j, torch.logical_or((i - j) < 2, torch.remainder(j, 3) == 2))
        bias = torch.zeros(t, t, dtype=x.dtype).masked_fill(allowed.logical_not(), torch.finfo(x.dtype).min)
        return F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], attn_mask=bias).squeeze(1)


@idiom(lambda b, t: {"ids": ids(b, t)}, {"ids": BT})
class LayersMixed(nn.Module):
    """A weight for each layer's states, their scale, and states that are normed by what is not padding."""
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 6, padding_idx=0)
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
        self.scalars = nn.ParameterList([nn.Parameter(torch.randn(1)) for _ in range(4)])
        self.gamma = nn.Parameter(torch.tensor([1.5]))

    def forward(self, ids):
        states = [self.embed(ids)]
        for layer in self.layers:
            states.append(torch.tanh(layer(states[-1])))
        mask = (ids % 5 != 0).float().unsqueeze(-1)
        weights = torch.split(F.softmax(torch.cat([p for p in self.scalars]), dim=0), split_size_or_sections=1)
        total = []
        for w, s in zip(weights, states):
            masked = s * mask
            mean = masked.sum((1, 2), keepdim=True) / (mask.sum((1, 2), keepdim=True) * 6).clamp_min(1)
            variance = (((masked - mean) * mask) ** 2).sum((1, 2), keepdim=True) / (mask.sum((1, 2), keepdim=True) * 6).clamp_min(1)
            total.append(w * (s - mean) / torch.sqrt(variance + 1e-12))
        return self.gamma * sum(total)


@idiom(lambda b, t: {"x": floats(b, t), "pi": floats(b, 3), "mu": floats(b, 3, seed=2), "sigma": floats(b, 3, seed=4)},
       {"x": BT, "pi": B, "mu": B, "sigma": B})
class MixtureOfNormals(nn.Module):
    """The density of a mixture, by torch's own distributions."""
    def forward(self, x, pi, mu, sigma):
        normal = torch.distributions.Normal(mu[:, None], F.softplus(sigma)[:, None] + 1e-3, validate_args=False)
        return -torch.logsumexp(normal.log_prob(x[..., None]) + pi.log_softmax(-1)[:, None], dim=-1)


@idiom(lambda b, t: {"x": floats(b, t, 4)}, {"x": BT})
class NearestByDistance(nn.Module):
    """cdist to a codebook, its nearest, and what is far."""
    def __init__(self):
        super().__init__()
        self.codebook = nn.Embedding(9, 4)

    def forward(self, x):
        distances = torch.cdist(x, self.codebook.weight[None].expand(x.shape[0], -1, -1), p=2)
        nearest = distances.argmin(dim=-1)
        quantized = self.codebook(nearest)
        return x + (quantized - x).detach(), nearest, F.mse_loss(quantized, x, reduction="none").mean(-1)


@idiom(lambda b, t: {"tokens": ids(b, t, high=4)}, {"tokens": BT})
class Repeats(nn.Module):
    """What is no repeat and no blank, and its place among those that stay."""
    def forward(self, tokens):
        changed = torch.ones_like(tokens, dtype=torch.bool)
        changed[:, 1:] = tokens[:, 1:] != tokens[:, :-1]
        keep = changed & tokens.ne(1)
        place = keep.long().cumsum(1) - 1
        return torch.where(keep, place, place.new_full((), -1)), keep.sum(1), keep.any(1), (~keep).all(dim=1)
