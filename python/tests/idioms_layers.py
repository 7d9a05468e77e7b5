"""Layers of torch.nn put to unusual use, and parametrizations of their weights (see idioms_table.py)."""
import collections
import functools
import math
import typing

from idioms_table import floats, idiom, ids, nn, torch

F = nn.functional if nn else None
BT, B = {0: "batch", 1: "time"}, {0: "batch"}


@idiom(lambda b, t: {"tgt": floats(b, t, 8), "memory": floats(b, 6, 8, seed=7), "hidden": ids(b, 6, seed=8) > 15},
       {"tgt": BT, "memory": B, "hidden": B})
class DecoderWithPadding(nn.Module):
    """Layers of torch's decoder, first and last norms, causal by its own mask, keys of the memory that are hidden."""
    def __init__(self):
        super().__init__()
        layer = nn.TransformerDecoderLayer(8, 2, 16, activation="gelu", batch_first=True, norm_first=True, dropout=0.1)
        self.decoder = nn.TransformerDecoder(layer, 2, norm=nn.LayerNorm(8))

    def forward(self, tgt, memory, hidden):
        mask = nn.Transformer.generate_square_subsequent_mask(tgt.size(1))
        hidden = hidden.index_fill(1, torch.tensor([0]), False)
        return self.decoder(tgt, memory, tgt_mask=mask, memory_key_padding_mask=hidden, tgt_is_causal=True)


@idiom(lambda b, t: {"x": floats(b, t, 8), "bias": floats(b, t, t, seed=4)}, {"x": BT, "bias": {0: "batch", 1: "time", 2: "time"}})
class AttentionOfTorch(nn.Module):
    """Other widths of keys and values, a float mask for each head, weights averaged and not."""
    def __init__(self):
        super().__init__()
        self.attend = nn.MultiheadAttention(8, 2, kdim=5, vdim=3, batch_first=True, add_bias_kv=True)

    def forward(self, x, bias):
        mask = bias.repeat_interleave(2, dim=0)
        y, weights = self.attend(x, x[..., :5], x[..., 5:], attn_mask=mask, need_weights=True)
        return y, weights, self.attend(x, x[..., :5], x[..., -3:], need_weights=False)[0]


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class NormedWeights(nn.Module):
    """weight_norm of linear layers and convolutions, the old one and the parametrization; symmetric weights."""
    def __init__(self):
        super().__init__()
        class Symmetric(nn.Module):
            def forward(self, w):
                return w.triu() + w.triu(1).transpose(-1, -2)
        self.a = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8), dim=0)
        self.b = nn.utils.parametrizations.weight_norm(nn.Conv1d(8, 8, 3, padding=1, groups=2), dim=None)
        self.c = nn.Linear(8, 8, bias=False)
        nn.utils.parametrize.register_parametrization(self.c, "weight", Symmetric())

    def forward(self, x):
        x = F.mish(self.a(x)) + self.c(x)
        return self.b(x.mT).mT


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class SpectralWeights(nn.Module):
    """In evaluation the vectors of the power iteration stay as they are."""
    def __init__(self):
        super().__init__()
        self.a = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 6))
        self.b = nn.utils.spectral_norm(nn.Linear(6, 4))

    def forward(self, x):
        return self.b(F.leaky_relu(self.a(x), 0.2))


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class LowRankMerged(nn.Module):
    """Adapters with a dict of parts, a scale that is a property, hooks, functools.partial, and modules in a deque."""
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(8, 8)
        self.parts = nn.ModuleDict({"down": nn.Linear(8, 2, bias=False), "up": nn.Linear(2, 8, bias=False)})
        self.rank, self.alpha = 2, 16
        self.acts = collections.deque([functools.partial(F.gelu, approximate="tanh"), torch.tanh])
        self.base.register_forward_hook(lambda module, args, result: result * 2)
        self.parts["up"].register_forward_pre_hook(lambda module, args: (args[0] + 1,))

    @property
    def scaling(self):
        return self.alpha / self.rank

    def forward(self, x):
        y = self.base(x) + self.scaling * self.parts["up"](self.parts["down"](x))
        for act in self.acts:
            y = act(y)
        return y


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class CausalByUnfold(nn.Module):
    """A causal convolution as windows of a padded sequence times a weight; depthwise by a softmax over its taps."""
    def __init__(self):
        super().__init__()
        self.weight, self.taps = nn.Parameter(torch.randn(6, 8, 3) * 0.3), nn.Linear(8, 3 * 2)

    def forward(self, x):
        b, t, c = x.shape
        windows = F.pad(x.transpose(1, 2), (2, 0)).unfold(-1, 3, 1)
        y = torch.einsum("bctk,ock->bto", windows, self.weight)
        taps = self.taps(x).view(b, t, 2, 3).softmax(-1)
        return y, torch.matmul(windows.permute(0, 2, 1, 3).reshape(b, t, 2, 4, 3), taps.unsqueeze(-1)).reshape(b, t, c)


@idiom(lambda b, t: {"x": floats(b, t, 8), "mask": ids(b, t, high=3) > 1}, {"x": BT, "mask": BT})
class SharedKeys(nn.Module):
    """Few keys and values for many queries by repeat_interleave; masks joined by & and logical_or; -inf added."""
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(8, 16), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x, mask):
        b, t, _ = x.shape
        q = self.q(x).view(b, t, 4, 4).transpose(1, 2)
        k, v = (torch.repeat_interleave(m(x).view(b, t, 2, 4), repeats=2, dim=2).transpose(1, 2) for m in (self.k, self.v))
        at = torch.arange(t)
        causal = at[:, None] >= at[None, :]
        near = (at[:, None] - at).abs() < 3
        allowed = causal & near | torch.eye(t, dtype=torch.bool)
        allowed = torch.logical_or(allowed[None] & mask[:, None, :], torch.eye(t).bool())
        bias = torch.zeros(b, 1, t, t).masked_fill_(allowed.logical_not().unsqueeze(1), float("-inf"))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=0.3).transpose(1, 2).flatten(2)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class GroupsOfExperts(nn.Module):
    """Experts chosen within groups, by scores with a bias that only chooses; a loop over experts with masks."""
    def __init__(self):
        super().__init__()
        self.gate, self.experts = nn.Linear(8, 8, bias=False), nn.ModuleList(nn.Linear(8, 8) for _ in range(8))
        self.register_buffer("correction", torch.linspace(-0.1, 0.1, 8))

    def forward(self, x):
        shape = x.shape
        x = x.view(-1, shape[-1])
        scores = self.gate(x).sigmoid()
        choice = scores + self.correction.unsqueeze(0)
        groups = choice.view(-1, 4, 2).topk(2, dim=-1)[0].sum(dim=-1)
        group_at = torch.topk(groups, k=2, dim=-1, sorted=False)[1]
        group_mask = torch.zeros_like(groups)
        group_mask.scatter_(1, group_at, 1)
        score_mask = group_mask.unsqueeze(-1).expand(-1, 4, 2).reshape(-1, 8)
        at = torch.topk(choice.masked_fill(~score_mask.bool(), 0.0), k=3, dim=-1, sorted=False)[1]
        weights = scores.gather(1, at)
        weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-20) * 2.5
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            share = (weights * (at == i)).sum(-1, keepdim=True)
            out += share * expert(x)
        return out.view(*shape)


@idiom(lambda b, t: {"x": floats(b, t, 16)}, {"x": BT})
class BucketsOfBoth(nn.Module):
    """Relative positions in buckets, both ways, with logarithms; the table as a bias of scores."""
    def __init__(self):
        super().__init__()
        self.table, self.q = nn.Embedding(16, 2), nn.Linear(16, 16, bias=False)

    @staticmethod
    def bucket(away, n=16, most=20):
        found = 0
        n //= 2
        found += (away > 0).to(torch.long) * n
        away = torch.abs(away)
        exact = n // 2
        is_small = away < exact
        large = exact + (torch.log(away.float() / exact) / math.log(most / exact) * (n - exact)).to(torch.long)
        large = torch.min(large, torch.full_like(large, n - 1))
        found += torch.where(is_small, away, large)
        return found

    def forward(self, x):
        b, t, _ = x.shape
        context, memory = torch.arange(t, dtype=torch.long)[:, None], torch.arange(t, dtype=torch.long)[None, :]
        bias = self.table(self.bucket(memory - context)).permute([2, 0, 1]).unsqueeze(0)
        q = self.q(x).unflatten(-1, (2, 8)).movedim(2, 1)
        scores = q @ q.mT
        scores += bias
        return F.softmax(scores.float(), dim=-1).type_as(scores) @ q


class Pair(typing.NamedTuple):
    first: typing.Any
    second: typing.Any


@idiom(lambda b, t: {"x": floats(b, t, 6)}, {"x": BT}, ((3, 7), (2, 10), (5, 6)))  # a diagonal of 6, as in the example
class ViewsChanged(nn.Module):
    """What is written through views of a clone, by add_, mul_, copy_, fill_, zero_, clamp_ and index_put_, is seen in it."""
    def forward(self, x):
        y = x.clone()
        first, rest = y[:, 0], y[:, 1:]
        first.zero_()
        rest.mul_(2).add_(x[:, :-1], alpha=0.5)
        y[..., 0].copy_(x.sum(-1))
        y.transpose(0, 1)[-1].clamp_(-0.5, 0.5)
        y.view(-1, 6)[:, 3].fill_(7.0)
        y.select(-1, 4).div_(3)
        y[:, -1, 5] += 1
        y.narrow(2, 1, 2).neg_()
        z = torch.zeros_like(y)
        z.index_put_((torch.tensor([0, 0]), torch.tensor([1, 1])), x[0, :2] * 0 + 3, accumulate=True)
        z.diagonal(dim1=-2, dim2=-1).add_(1)
        return Pair(y, z)


@idiom(lambda b, t: {"x": floats(b, t, 8), "scale": torch.tensor(1.5)}, {"x": BT})
class RunningStatistics(nn.Module):
    """Norms with statistics that evaluation only reads, in three shapes, momentum None, and one without statistics."""
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.BatchNorm1d(8, momentum=None), nn.BatchNorm1d(8, affine=False, eps=1e-3)
        self.c, self.d = nn.InstanceNorm1d(8, affine=True), nn.GroupNorm(1, 8)
        with torch.no_grad():
            self.a.running_mean.copy_(torch.randn(8))
            self.b.running_var.uniform_(0.5, 2)

    def forward(self, x, scale):
        y = x.permute(0, 2, 1)
        return self.a(y) + self.b(x.reshape(-1, 8)).view_as(x).permute(0, 2, 1) * scale, self.c(y), self.d(y)


@idiom(lambda b: {"x": floats(b, 3, 12, 12)}, {"x": B}, ((2,), (3,)))
class ImageEncoder(nn.Module):
    """Inverted bottlenecks with squeeze and excite, strides, pads that are strings, dilation, a mean by two sizes."""
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8), nn.Hardswish(inplace=True))
        self.expand, self.depth = nn.Conv2d(8, 16, 1), nn.Conv2d(16, 16, 3, padding="same", dilation=2, groups=16)
        self.squeeze, self.excite = nn.Conv2d(16, 4, 1), nn.Conv2d(4, 16, 1)
        self.project, self.head = nn.Conv2d(16, 8, 1), nn.Linear(8 * 4, 5)

    def forward(self, x):
        x = self.stem(x)
        y = F.relu6(self.depth(F.silu(self.expand(x), inplace=True)))
        y = y * F.hardsigmoid(self.excite(F.relu(self.squeeze(F.adaptive_avg_pool2d(y, 1)))))
        x = x + self.project(y)
        x = F.max_pool2d(x, 3, stride=2, padding=1)
        return self.head(torch.flatten(F.avg_pool2d(x, (2, 2), stride=1), 1)), F.adaptive_avg_pool2d(x, (1, 1))[..., 0, 0]
