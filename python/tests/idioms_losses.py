"""Masks, heads and losses as people write them, one small module each: for test_torch_idioms.py."""
from idioms_table import floats, idiom, ids, nn, torch

F = nn.functional if nn else None
BT, B = {0: "batch", 1: "time"}, {0: "batch"}


@idiom(lambda b, t: {"h": floats(b, t, 8), "mask": (floats(b, t) > -1.5).long()}, {"h": BT, "mask": BT})
class LeastNumberMask(nn.Module):
    """1 - mask times the least number, added to scores."""
    def forward(self, h, mask):
        extended = (1.0 - mask[:, None, :].to(h.dtype)) * torch.finfo(torch.float32).min
        return torch.softmax(h @ h.mT + extended, dim=-1) @ h


@idiom(lambda b: {"x": floats(b, 8), "target": ids(b, high=6)}, {"x": B, "target": B}, ((4,), (7,)))
class SmoothedLabels(nn.Module):
    """Shares of classes by fill and scatter, the one for padding set to 0, against log probabilities."""
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(8, 6)

    def forward(self, x, target):
        scores = F.log_softmax(self.lin(x), -1)
        shares = scores.data.clone()
        shares.fill_(0.1 / (6 - 2))
        shares.scatter_(1, target.data.unsqueeze(1), 0.9)
        shares[:, 0] = 0
        return F.kl_div(scores, shares, reduction="sum"), -(scores * shares).sum(-1)


@idiom(lambda b: {"x": floats(b, 8), "target": ids(b, high=6)}, {"x": B, "target": B}, ((4,), (7,)))
class Margins(nn.Module):
    """Cosines with class vectors, less a margin for the right one; and a focal loss."""
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(6, 8))

    def forward(self, x, target):
        cosine = F.linear(F.normalize(x), F.normalize(self.w))
        hot = torch.zeros_like(cosine)
        hot.scatter_(1, target.view(-1, 1).long(), 1)
        logits = 8.0 * (hot * (cosine - 0.3) + (1.0 - hot) * cosine)
        ce = F.cross_entropy(logits, target, reduction="none")
        p = torch.exp(-ce)
        return logits, ((1 - p) ** 2 * ce).mean()


@idiom(lambda b: {"x": floats(b, 8), "y": floats(b, 8, seed=8)}, {"x": B, "y": B}, ((4,), (6,)))
class TwoViews(nn.Module):
    """Two views of each item among all others, of which the item itself is masked."""
    def forward(self, x, y):
        z = F.normalize(torch.cat([x, y], dim=0), dim=1)
        sim = (z @ z.t()) / 0.5
        n = x.shape[0]
        sim = sim.masked_fill(torch.eye(2 * n, dtype=torch.bool), float("-inf"))
        target = torch.cat([torch.arange(n, 2 * n), torch.arange(0, n)])
        return F.cross_entropy(sim, target)


@idiom(lambda b: {"a": floats(b, 8), "p": floats(b, 8, seed=8), "n": floats(b, 8, seed=9)}, {"a": B, "p": B, "n": B}, ((4,), (6,)))
class Triplets(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 8), nn.PReLU(), nn.Linear(8, 4))

    def forward(self, a, p, n):
        a, p, n = self.net(a), self.net(p), self.net(n)
        near, far = F.pairwise_distance(a, p), F.pairwise_distance(a, n)
        return torch.relu(near - far + 1.0).mean(), torch.norm(a - p, dim=1), F.triplet_margin_loss(a, p, n)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class GatedUnits(nn.Module):
    """Feed-forward gates of several kinds, normed over two axes."""
    def __init__(self):
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(8, 32), nn.Linear(16, 8), nn.LayerNorm((4, 2))

    def forward(self, x):
        a, b = self.up(x).tensor_split(2, dim=-1)
        y = self.down(F.gelu(a, approximate="tanh") * b + F.mish(b) * torch.celu(a))
        return self.norm(y.unflatten(-1, (4, 2))).flatten(-2) + x


@idiom(lambda b, t: {"x": floats(b, t, 4), "lengths": torch.tensor([3, t, 2])[:b]}, {"x": BT, "lengths": {0: "batch"}}, ((3, 7), (2, 9)))
class Lengths(nn.Module):
    """A mask made of lengths; results by name; the last state before the padding."""
    def forward(self, x, lengths):
        keep = torch.arange(x.size(1))[None, :] < lengths[:, None]
        mean = (x * keep.unsqueeze(-1)).sum(1) / lengths[:, None]
        last = x[torch.arange(x.size(0)), lengths - 1]
        return mean, last, x.masked_fill(~keep[..., None], 0.0)
