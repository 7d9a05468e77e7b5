"""Images, series, speech, tables and graphs as people write them, one small module each: for test_torch_idioms.py."""
import math

from idioms_table import floats, idiom, ids, nn, torch

F = nn.functional if nn else None
BT, B = {0: "batch", 1: "time"}, {0: "batch"}
IMAGES = ((2, 8), (3, 8))


def image(b, n):
    return {"x": floats(b, 3, n, n)}


@idiom(lambda b, t: {"x": floats(b, t, 3)}, {"x": BT})
class ReversibleNorm(nn.Module):
    """A series without its mean and scale, which its forecast gets back."""
    def __init__(self):
        super().__init__()
        self.w, self.b, self.lin = nn.Parameter(torch.ones(3) * 1.5), nn.Parameter(torch.zeros(3) + 0.1), nn.Linear(3, 3)

    def forward(self, x):
        mean = torch.mean(x, dim=1, keepdim=True).detach()
        std = torch.sqrt(torch.var(x, dim=1, keepdim=True, unbiased=False) + 1e-5).detach()
        y = self.lin((x - mean) / std * self.w + self.b)
        return (y - self.b) / (self.w + 1e-10) * std + mean


@idiom(lambda b, t: {"x": floats(b, t, 3)}, {"x": BT})
class Decomposition(nn.Module):
    """A moving average with repeated ends, and what is left."""
    def __init__(self):
        super().__init__()
        self.avg = nn.AvgPool1d(kernel_size=5, stride=1, padding=0)

    def forward(self, x):
        front, end = x[:, 0:1, :].repeat(1, 2, 1), x[:, -1:, :].repeat(1, (5 - 1) // 2, 1)
        trend = self.avg(torch.cat([front, x, end], dim=1).permute(0, 2, 1)).permute(0, 2, 1)
        return x - trend, trend


@idiom(lambda b, t: {"x": floats(b, t, 3)}, {"x": BT})
class TokensByCircles(nn.Module):
    """A convolution whose padding goes round, and one that halves the length."""
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(3, 8, 3, padding=1, padding_mode="circular", bias=False)
        self.down, self.norm, self.pool = nn.Conv1d(8, 8, 3, padding=2, padding_mode="circular"), nn.BatchNorm1d(8), nn.MaxPool1d(3, 2, 1)

    def forward(self, x):
        x = self.conv(x.permute(0, 2, 1)).transpose(1, 2)
        return self.pool(F.elu(self.norm(self.down(x.permute(0, 2, 1))))).transpose(1, 2)


@idiom(lambda b: {"x": floats(b, 16, 3)}, {"x": B}, ((3,), (2,), (5,)))
class Patches(nn.Module):
    """Patches of a series that overlap, each embedded; a head over all of them."""
    def __init__(self):
        super().__init__()
        self.pad, self.emb, self.head = nn.ReplicationPad1d((0, 2)), nn.Linear(4, 8), nn.Linear(8 * 8, 5)

    def forward(self, x):
        z = self.pad(x.permute(0, 2, 1)).unfold(dimension=-1, size=4, step=2)
        z = self.emb(z)
        u = torch.reshape(z, (z.shape[0] * z.shape[1], z.shape[2], z.shape[3]))
        u = u + F.scaled_dot_product_attention(u, u, u)
        z = torch.reshape(u, (-1, x.shape[2], u.shape[-2], u.shape[-1])).permute(0, 1, 3, 2)
        return self.head(z.flatten(start_dim=-2)).permute(0, 2, 1)


@idiom(lambda b, t: {"x": floats(b, t, 3)}, {"x": BT})
class RunTimePatches(nn.Module):
    """Patches whose number a run chooses."""
    def forward(self, x):
        return x.unfold(1, 4, 2).mean(-1), x.unfold(1, 3, 1).amax(-1)


@idiom(lambda b: {"x": floats(b, 12, 3)}, {"x": B}, ((3,), (2,)))
class TwoLinears(nn.Module):
    """Trend and rest of a series, each by one linear map over time."""
    def __init__(self):
        super().__init__()
        self.avg, self.a, self.b = nn.AvgPool1d(3, 1, 1, count_include_pad=False), nn.Linear(12, 4), nn.Linear(12, 4)

    def forward(self, x):
        trend = self.avg(x.transpose(1, 2))
        return (self.a(x.transpose(1, 2) - trend) + self.b(trend)).transpose(1, 2)


@idiom(lambda b, t: {"x": floats(b, 4, t)}, {"x": {0: "batch", 2: "time"}})
class CausalConvolutions(nn.Module):
    """Dilated convolutions with padding on both sides, of which the end is cut off."""
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv1d(4, 4, 3, padding=2), nn.Conv1d(4, 4, 3, padding=4, dilation=2)

    def forward(self, x):
        y = F.relu(self.a(x)[:, :, :-2].contiguous())
        return F.relu(self.b(y)[..., :-4] + x)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class ConvolutionModule(nn.Module):
    """Pointwise, gated, depthwise, normed: the convolution of speech models."""
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(8, 16, 1), nn.GLU(dim=1), nn.Conv1d(8, 8, 5, padding="same", groups=8), nn.BatchNorm1d(8), nn.SiLU(), nn.Conv1d(8, 8, 1))
        self.norm = nn.LayerNorm(8)

    def forward(self, x):
        return x + self.net(self.norm(x).transpose(1, 2)).transpose(1, 2)


@idiom(lambda b: image(b, 8), {"x": B}, ((2,), (3,)))
class ShiftedWindows(nn.Module):
    """Windows of an image that is rolled, with a table of biases by distances, and the mask of what the roll brought."""
    def __init__(self):
        super().__init__()
        self.table, self.qkv = nn.Parameter(torch.randn(49, 1) * 0.1), nn.Linear(3, 9)
        coords = torch.stack(torch.meshgrid([torch.arange(4), torch.arange(4)], indexing="ij")).flatten(1)
        away = (coords[:, :, None] - coords[:, None, :]).permute(1, 2, 0).contiguous()
        away[:, :, 0] += 3
        away[:, :, 1] += 3
        away[:, :, 0] *= 7
        self.register_buffer("index", away.sum(-1))
        place = torch.zeros((1, 8, 8, 1))
        for n, h in enumerate((slice(0, -4), slice(-4, -2), slice(-2, None))):
            for m, w in enumerate((slice(0, -4), slice(-4, -2), slice(-2, None))):
                place[:, h, w, :] = 3 * n + m
        windows = self.windows(place).view(-1, 16)
        mask = windows.unsqueeze(1) - windows.unsqueeze(2)
        self.register_buffer("mask", mask.masked_fill(mask != 0, -100.0).masked_fill(mask == 0, 0.0))

    def windows(self, x):
        b, h, w, c = x.shape
        return x.view(b, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, 16, c)

    def forward(self, x):
        x = torch.roll(x.permute(0, 2, 3, 1), shifts=(-2, -2), dims=(1, 2))
        q, k, v = self.qkv(self.windows(x)).chunk(3, -1)
        bias = self.table[self.index.view(-1)].view(16, 16, -1).permute(2, 0, 1).contiguous()
        attn = q @ k.transpose(-2, -1) + bias
        attn = attn.view(-1, 4, 16, 16) + self.mask.unsqueeze(0)
        y = attn.view(-1, 16, 16).softmax(-1) @ v
        y = y.view(-1, 2, 2, 4, 4, 3).permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, 8, 8, 3)
        return torch.roll(y, shifts=(2, 2), dims=(1, 2))


@idiom(lambda b: image(b, 8), {"x": B}, ((2,), (3,)))
class PatchTokens(nn.Module):
    """Patches by a convolution, a class token and positions; the head reads the class."""
    def __init__(self):
        super().__init__()
        self.proj, self.cls, self.pos = nn.Conv2d(3, 8, 4, 4), nn.Parameter(torch.zeros(1, 1, 8) + 0.1), nn.Parameter(torch.randn(1, 5, 8))
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 4)

    def forward(self, x):
        x = self.proj(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls.expand(x.shape[0], -1, -1), x), dim=1) + self.pos
        x = x + F.scaled_dot_product_attention(x, x, x)
        return self.head(self.norm(x)[:, 0])


@idiom(lambda b: image(b, 8), {"x": B}, ((2,), (3,)))
class Merging(nn.Module):
    """Every other row and column, four ways, side by side; and the same by pixel_unshuffle."""
    def __init__(self):
        super().__init__()
        self.reduce = nn.Linear(12, 6, bias=False)

    def forward(self, x):
        y = x.permute(0, 2, 3, 1)
        y = torch.cat([y[:, 0::2, 0::2], y[:, 1::2, 0::2], y[:, 0::2, 1::2], y[:, 1::2, 1::2]], -1)
        return self.reduce(y), F.pixel_unshuffle(x, 2)


@idiom(lambda b: image(b, 8), {"x": B}, ((2,), (3,)))
class Blocks(nn.Module):
    """A depthwise block with a norm over channels and a scale, a gate of channels, pooling to one."""
    def __init__(self):
        super().__init__()
        self.dw, self.norm, self.up, self.down = nn.Conv2d(3, 3, 3, padding=1, groups=3), nn.LayerNorm(3), nn.Linear(3, 12), nn.Linear(12, 3)
        self.gamma, self.fc, self.pool = nn.Parameter(0.1 * torch.ones(3)), nn.Conv2d(3, 3, 1), nn.AdaptiveAvgPool2d(1)

    def forward(self, x):
        y = self.norm(self.dw(x).permute(0, 2, 3, 1))
        y = x + (self.gamma * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)
        y = y * torch.sigmoid(self.fc(y.mean((2, 3), keepdim=True)))
        u = y.mean(1, keepdim=True)
        s = (y - u).pow(2).mean(1, keepdim=True)
        return torch.flatten(self.pool((y - u) / torch.sqrt(s + 1e-6)), 1)


@idiom(lambda b: image(b, 8), {"x": B}, ((2,), (3,)))
class DownAndUp(nn.Module):
    """Pooling down, a transposed convolution up, the other side beside it; enlarged by the nearest pixel too."""
    def __init__(self):
        super().__init__()
        self.down, self.up, self.out = nn.Conv2d(3, 6, 3, padding=1), nn.ConvTranspose2d(6, 3, 2, stride=2), nn.Conv2d(6, 2, 1)

    def forward(self, x):
        y = self.down(F.max_pool2d(x, 2))
        return self.out(torch.cat([x, self.up(y)], dim=1)), F.interpolate(y, scale_factor=2, mode="nearest")


@idiom(lambda b: image(b, 8), {"x": B}, ((2,), (3,)))
class UnfoldedAttention(nn.Module):
    """Each pixel's neighbourhood by unfold."""
    def forward(self, x):
        near = F.unfold(x, 3, padding=1).view(x.shape[0], 3, 9, 64)
        scores = (near * x.view(x.shape[0], 3, 1, 64)).sum(1).softmax(1)
        return (near * scores.unsqueeze(1)).sum(2).view_as(x)


@idiom(lambda b: {"mask": floats(b, 4, 6) > 1}, {"mask": B}, ((2,), (3,)))
class SinePositions(nn.Module):
    """Positions of the pixels that are not padding, as sines and cosines side by side."""
    def forward(self, mask):
        y = (~mask).cumsum(1, dtype=torch.float32)
        y = y / (y[:, -1:, :] + 1e-6) * 2 * math.pi
        dim = torch.arange(4, dtype=torch.float32)
        dim = 100 ** (2 * torch.div(dim, 2, rounding_mode="floor") / 4)
        pos = y[:, :, :, None] / dim
        return torch.stack((pos[..., 0::2].sin(), pos[..., 1::2].cos()), dim=4).flatten(3).permute(0, 3, 1, 2)


@idiom(lambda b: {"x_cat": ids(b, 3, high=5), "x_num": floats(b, 2)}, {"x_cat": B, "x_num": B}, ((4,), (3,)))
class Columns(nn.Module):
    """Categories with offsets into one table, numbers normed, a head with a norm over the batch."""
    def __init__(self):
        super().__init__()
        self.register_buffer("offset", F.pad(torch.tensor([5, 5, 5]), (1, 0), value=1).cumsum(dim=-1)[:-1])
        self.emb, self.norm, self.attn = nn.Embedding(17, 8), nn.LayerNorm(2), nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Sequential(nn.Linear(26, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x_cat, x_num):
        x = self.emb(x_cat + self.offset)
        x = (x + self.attn(x, x, x)[0]).flatten(1)
        return self.head(torch.cat((x, self.norm(x_num)), dim=-1))


@idiom(lambda b: {"x": floats(b, 5)}, {"x": B}, ((4,), (3,)))
class FeatureTokens(nn.Module):
    """A token for each number, a class token in front, rows that are read at the end."""
    def __init__(self):
        super().__init__()
        self.w, self.b, self.cls = nn.Parameter(torch.randn(5, 8)), nn.Parameter(torch.randn(5, 8)), nn.Parameter(torch.randn(8))

    def forward(self, x):
        x = self.w[None] * x[..., None] + self.b[None]
        x = torch.cat([x, self.cls.view(1, -1).expand(x.shape[0], 1, -1)], dim=1)
        y = F.relu(x) @ x.mT
        return (y.softmax(-1) @ x)[:, -1]


@idiom(lambda b, t: {"ids": ids(b, t)}, {"ids": BT})
class Bags(nn.Module):
    """Means, sums and greatest of rows, by EmbeddingBag and with offsets; padding is not counted."""
    def __init__(self):
        super().__init__()
        self.mean, self.most, self.bag = nn.EmbeddingBag(20, 6), nn.EmbeddingBag(20, 6, mode="max"), nn.EmbeddingBag(20, 6, mode="sum")
        self.emb = nn.Embedding(20, 6, padding_idx=1)
        self.register_buffer("offsets", torch.tensor([0, 2, 2, 3]))

    def forward(self, ids):
        rows = self.emb(ids)
        return self.mean(ids), self.most(ids), self.bag(ids[:, 0], self.offsets[:2] * 0 + torch.arange(2)), rows.sum(1) / (ids != 1).sum(1, keepdim=True).clamp(min=1)


@idiom(lambda b: {"text": ids(b), "offsets": torch.tensor([0, 2, 2, 5])}, {"text": {0: "n"}}, ((9,), (7,)))
class TextAndOffsets(nn.Module):
    """All texts in one row, with the places where each begins."""
    def __init__(self):
        super().__init__()
        self.bag, self.fc = nn.EmbeddingBag(20, 6, mode="mean"), nn.Linear(6, 3)

    def forward(self, text, offsets):
        return self.fc(self.bag(text, offsets))


@idiom(lambda b, t: {"ids": ids(b, t)}, {"ids": BT})
class WindowsOfWords(nn.Module):
    """Convolutions of several widths over words, the greatest of each over time."""
    def __init__(self):
        super().__init__()
        self.emb, self.convs, self.fc = nn.Embedding(20, 6), nn.ModuleList(nn.Conv2d(1, 4, (k, 6)) for k in (2, 3)), nn.Linear(8, 3)

    def forward(self, ids):
        x = self.emb(ids).unsqueeze(1)
        x = [F.relu(conv(x)).squeeze(3) for conv in self.convs]
        return self.fc(torch.cat([torch.max(i, dim=2)[0] for i in x], 1))


@idiom(lambda n: {"x": floats(n, 6), "adj": (floats(n, n, seed=2) > 0).float()}, {"x": {0: "n"}, "adj": {0: "n", 1: "n"}}, ((5,), (7,)))
class Graph(nn.Module):
    """A graph's convolution with normed edges, and attention over edges."""
    def __init__(self):
        super().__init__()
        self.lin, self.a = nn.Linear(6, 6), nn.Parameter(torch.randn(12, 1))

    def forward(self, x, adj):
        adj = ((adj + adj.t()) > 0).float() + torch.eye(adj.shape[0])
        d = adj.sum(1).pow(-0.5)
        d = d.masked_fill(torch.isinf(d), 0.0)
        h = self.lin(x)
        e = F.leaky_relu(h @ self.a[:6] + (h @ self.a[6:]).T, 0.2)
        weights = torch.softmax(torch.where(adj > 0, e, -9e15 * torch.ones_like(e)), dim=1)
        return (d[:, None] * adj * d[None]) @ h + F.elu(weights @ h)


@idiom(lambda b: {"x": floats(b, 8, 6)}, {"x": B}, ((3,), (2,)))
class Mixer(nn.Module):
    """Maps over tokens and over channels; a gate by the other half over tokens."""
    def __init__(self):
        super().__init__()
        self.tokens, self.channels, self.norm, self.spatial = nn.Linear(8, 8), nn.Linear(6, 12), nn.LayerNorm(6), nn.Conv1d(8, 8, 1)

    def forward(self, x):
        x = x + self.tokens(self.norm(x).transpose(1, 2)).transpose(1, 2)
        u, v = self.channels(x).chunk(2, dim=-1)
        return x + u * self.spatial(F.layer_norm(v, v.shape[-1:]))


@idiom(lambda b: {"x": floats(b, 6, 4)}, {"x": B}, ((3,), (2,)))
class Recurrent(nn.Module):
    """A cell over a known number of steps, with gates written out."""
    def __init__(self):
        super().__init__()
        self.cell, self.lstm = nn.GRUCell(4, 5), nn.LSTMCell(4, 5)

    def forward(self, x):
        h = x.new_zeros(x.size(0), 5)
        hx, cx = torch.zeros(x.size(0), 5), torch.zeros(x.size(0), 5)
        out = []
        for i in range(x.size(1)):
            h = self.cell(x[:, i], h)
            hx, cx = self.lstm(x[:, i], (hx, cx))
            out.append(h + hx)
        return torch.stack(out, 1)


@idiom(lambda b, t: {"x": floats(b, t, 4)}, {"x": BT}, refused="recurrent")
class RecurrentRunTime(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 5, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0]


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class Sampled(nn.Module):
    """A grid of places between pixels."""
    def forward(self, x):
        grid = torch.tanh(x[:, :, None, :2])
        return F.grid_sample(x[:, None], grid, align_corners=False)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class Landmarks(nn.Module):
    """Means of chunks as landmarks, sums along gated runs, the highway of two."""
    def __init__(self):
        super().__init__()
        self.t, self.h = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        a, b = torch.tensor_split(x, 2, dim=2)
        gate = torch.sigmoid(self.t(x) - 2.0)
        y = torch.lerp(x, torch.relu(self.h(x)), gate)
        decay = torch.exp(torch.cumsum(F.logsigmoid(a), dim=1))
        return y, decay * torch.cumsum(b / (decay + 1e-3), dim=1)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class LowRank(nn.Module):
    """A frozen map and a small one beside it; a weight by direction and length; gates of experts by one_hot."""
    def __init__(self):
        super().__init__()
        self.base, self.a, self.b = nn.Linear(8, 8), nn.Parameter(torch.randn(2, 8)), nn.Parameter(torch.randn(8, 2))
        self.v, self.g = nn.Parameter(torch.randn(8, 8)), nn.Parameter(torch.ones(8, 1))
        self.base.requires_grad_(False)

    def forward(self, x):
        y = self.base(x) + (x @ self.a.T @ self.b.T) * (16 / 2)
        w = self.g * self.v / torch.linalg.norm(self.v, dim=1, keepdim=True)
        return F.linear(y, w) * F.one_hot(y.argmax(-1), 8)


@idiom(lambda b, t: {"x": floats(b, t, 8), "y": floats(b, t, 8, seed=7)}, {"x": BT, "y": {0: "batch", 1: "other"}}, ((3, 7), (2, 5)))
class BothWays(nn.Module):
    """Two sequences that attend to each other through one matrix of similarities."""
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(24))

    def forward(self, x, y):
        t, j = x.size(1), y.size(1)
        s = torch.cat([x.unsqueeze(2).expand(-1, -1, j, -1), y.unsqueeze(1).expand(-1, t, -1, -1), x.unsqueeze(2) * y.unsqueeze(1)], 3) @ self.w
        c = torch.bmm(s.softmax(2), y)
        q = torch.bmm(s.max(dim=2)[0].softmax(1).unsqueeze(1), x).expand(-1, t, -1)
        return torch.cat([x, c, x * c, x * q], dim=2)


@idiom(lambda b, t: {"h": floats(b, t, 8), "at": ids(b, 2, high=4)}, {"h": BT, "at": B})
class MaskedWords(nn.Module):
    """The positions that were masked, gathered and decoded with the table of words."""
    def __init__(self):
        super().__init__()
        self.emb, self.bias, self.ln = nn.Embedding(20, 8), nn.Parameter(torch.zeros(20)), nn.LayerNorm(8)

    def forward(self, h, at):
        picked = torch.gather(h, 1, at[:, :, None].expand(-1, -1, h.size(-1)))
        rows = h.reshape(-1, 8)[(at + torch.arange(h.shape[0])[:, None] * h.shape[1]).view(-1)]
        return F.linear(self.ln(F.gelu(picked)), self.emb.weight) + self.bias, rows


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class Pieces(nn.Module):
    """Halves of a sequence whose length a run chooses, stochastic depth that is off, and dropout."""
    def __init__(self):
        super().__init__()
        self.drop, self.mix = nn.Dropout(0.3), nn.Linear(8, 8)

    def forward(self, x):
        first, rest = x[:, : x.shape[1] // 2], x[:, x.shape[1] // 2:]
        both = torch.cat([rest, first], 1)
        return self.drop(self.mix(both)), x.chunk(2, dim=1)[0].mean(1)
