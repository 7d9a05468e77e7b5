"""Modules with what people write around their layers: caches as inputs, masks kept by length, state by functions, asserts,
checkpoints, autocast, options of attention, tables of several kinds, results in integers and booleans; for
test_torch_idioms.py.
"""
import collections
import functools
import math
import warnings

from idioms_table import floats, idiom, ids, nn, torch

F = nn.functional if nn else None
BT, B = {0: "batch", 1: "time"}, {0: "batch"}


@idiom(lambda b, t: {"ids": ids(b, t)}, {"ids": BT})
class Predictions(nn.Module):
    """Classes, counts, flags and positions beside the logits, each in its type."""
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(20, 8, padding_idx=0), nn.Linear(8, 5)
        self.register_buffer("version", torch.tensor(3))

    def forward(self, ids):
        logits = self.head(self.embed(ids))
        tags = torch.where(ids.eq(1), -100, logits.argmax(-1))
        good = (tags >= 0) & True
        return {"logits": logits, "tags": tags, "good": good, "count": good.sum(1), "any": good.any(), "version": self.version,
                "ends": torch.where(good, ids.size(1), 0).amax(1), "share": good.float().mean(), "binary": torch.where(good, 1, 0)}


@idiom(lambda b, t: {"x": floats(b, t, 8), "past": (floats(b, 2, 5, 4, seed=1), floats(b, 2, 5, 4, seed=2))},
       {"x": BT, "past_0": B, "past_1": B})
class KeyValueInputs(nn.Module):
    """Keys and values of before are inputs, those of now too are results; the mask begins behind what was before."""
    def __init__(self):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x, past=None):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        q, k, v = (y.view(B, T, 2, C // 2).transpose(1, 2) for y in (q, k, v))
        if past is not None:
            k, v = torch.cat((past[0], k), dim=-2), torch.cat((past[1], v), dim=-2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        S = k.size(-2)
        mask = torch.tril(torch.ones(S, S, dtype=torch.bool))[S - T:S, :S]
        att = att.masked_fill(~mask, torch.finfo(att.dtype).min).softmax(-1)
        return self.c_proj((att @ v).transpose(1, 2).contiguous().view(B, T, C)), (k, v)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class MaskOfLength(nn.Module):
    """A mask that a function keeps for each length, and a table that is not saved."""
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.randn(16, 8), persistent=False)
        self.made = {}

    @functools.lru_cache(maxsize=4)
    def far(self, n):
        return torch.full((n, n), float("-inf")).triu(diagonal=1)

    def forward(self, x):
        assert x.ndim == 3, "x must be [batch, time, d]"
        if not torch.jit.is_scripting() and x.shape[-1] != 8:
            warnings.warn("another width")
        if "rate" not in self.made:
            self.made["rate"] = torch.arange(8) / 8
        x = x + self.table[: x.shape[1]] * self.made["rate"]
        return (x @ x.mT / x.shape[-1] ** 0.5).softmax(-1) @ x + self.far(8).exp()[0]


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class Checkpointed(nn.Module):
    """Blocks through torch.utils.checkpoint and within autocast that is off; a block that is called twice."""
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU())
        self.again = nn.ModuleDict({"up": nn.Linear(8, 16), "down": nn.Linear(16, 8)})

    def forward(self, x):
        from torch.utils.checkpoint import checkpoint
        x = x + checkpoint(self.block, x, use_reentrant=False)
        x = x + self.block(x)
        with torch.autocast("cpu", enabled=False):
            for key in self.again:
                x = self.again[key](x)
        with torch.no_grad():
            scale = x.detach().abs().amax()
        return x / scale


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class ByFunctionalCall(nn.Module):
    """Layers called with weights of another: functional_call, vmap over heads, F.linear with a slice of a weight."""
    def __init__(self):
        super().__init__()
        self.base, self.delta = nn.Linear(8, 8), nn.Parameter(torch.randn(8, 8) * 0.1)
        self.heads = nn.Parameter(torch.randn(3, 8, 4))

    def forward(self, x):
        y = torch.func.functional_call(self.base, {"weight": self.base.weight + self.delta, "bias": self.base.bias}, (x,))
        z = torch.vmap(lambda w: torch.tanh(y @ w))(self.heads)
        return z.permute(1, 2, 0, 3).flatten(2), F.linear(y, self.base.weight[:4], self.base.bias[4:])


@idiom(lambda b, t: {"src": floats(b, 6, 8), "tgt": floats(b, t, 8, seed=2), "pad": torch.arange(6)[None] >= 6 - torch.arange(b)[:, None] % 4},
       {"src": B, "tgt": BT, "pad": B})
class WholeTransformer(nn.Module):
    """nn.Transformer with norms first, without biases, with its own mask and the padding of both memories."""
    def __init__(self):
        super().__init__()
        self.model = nn.Transformer(8, 2, 1, 2, 16, dropout=0.1, activation=F.gelu, batch_first=True, norm_first=True, bias=False)

    def forward(self, src, tgt, pad):
        mask = self.model.generate_square_subsequent_mask(tgt.size(1))
        return self.model(src, tgt, tgt_mask=mask, src_key_padding_mask=pad, memory_key_padding_mask=pad, tgt_is_causal=True)


@idiom(lambda b, t: {"tgt": floats(t, b, 8), "memory": floats(5, b, 8, seed=4)}, {"tgt": {0: "time", 1: "batch"}, "memory": {1: "batch"}})
class DecoderOfPositions(nn.Module):
    """Detection: learned queries are added to queries and keys, not to values; time comes first."""
    def __init__(self):
        super().__init__()
        self.self_attn, self.cross = nn.MultiheadAttention(8, 2), nn.MultiheadAttention(8, 2, bias=False, add_zero_attn=True)
        self.where, self.norms = nn.Embedding(5, 8), nn.ModuleList(nn.LayerNorm(8) for _ in range(2))
        self.boxes = nn.Sequential(*(m for _ in range(2) for m in (nn.Linear(8, 8), nn.ReLU(inplace=True))), nn.Linear(8, 4))

    @staticmethod
    def with_pos(x, pos=None):
        return x if pos is None else x + pos

    def forward(self, tgt, memory):
        pos = self.where.weight.unsqueeze(1).repeat(1, tgt.shape[1], 1)
        q = k = self.with_pos(tgt)
        tgt = self.norms[0](tgt + self.self_attn(q, k, value=tgt)[0])
        more, weights = self.cross(query=tgt, key=self.with_pos(memory, pos), value=memory, average_attn_weights=False)
        tgt = self.norms[1](tgt + more)
        boxes = self.boxes(tgt).sigmoid()
        cx, cy, w, h = boxes.unbind(-1)
        corners = torch.stack([cx - 0.5 * w, cy - 0.5 * h, cx + 0.5 * w, cy + 0.5 * h], dim=-1)
        return {"boxes": boxes.transpose(0, 1), "corners": corners, "area": (corners[..., 2:] - corners[..., :2]).clamp(min=0).prod(-1),
                "weights": weights}


@idiom(lambda b, t: {"ids": ids(b, t)}, {"ids": BT}, refused=("table", "idioms_written.py:"))
class TableOfBoundedRows(nn.Module):
    """max_norm changes the rows of the table that a call reads: the next one computes with them."""
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20, 8, max_norm=1.0)

    def forward(self, ids):
        return self.table(ids).mean(1)


@idiom(lambda b, t: {"ids": ids(b, t), "kinds": ids(b, seed=8, high=4)}, {"ids": BT, "kinds": B})
class TablesOfKinds(nn.Module):
    """sparse=True, scale_grad_by_freq, from_pretrained, EmbeddingBag over a matrix, a table that is cut, one in two parts."""
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Embedding(20, 6, sparse=True), nn.Embedding(20, 6, scale_grad_by_freq=True, padding_idx=2)
        self.c = nn.Embedding.from_pretrained(torch.randn(20, 6), freeze=True)
        self.bag = nn.EmbeddingBag(20, 6, mode="max")
        self.low, self.high = nn.Embedding(10, 6), nn.Embedding(10, 6)

    def forward(self, ids, kinds):
        x = self.a(ids) + self.b(ids) * self.c(ids)
        x += self.a.weight[:4][kinds % 4][:, None]
        low = ids < 10
        two = torch.where(low[..., None], self.low(ids.clamp(max=9)), self.high((ids - 10).clamp_min(0)))
        return torch.hstack([x.mean(1), self.bag(ids), two.sum(dim=1), self.a.weight[kinds]])


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class SmallLayers(nn.Module):
    """Layers that few use: bilinear, PReLU by channel, softmin, channel shuffles, unflatten, cosine similarity, an identity."""
    def __init__(self):
        super().__init__()
        self.pair, self.slope, self.soft = nn.Bilinear(8, 8, 6), nn.PReLU(6), nn.Softmin(dim=-1)
        self.apart, self.cos, self.same = nn.Unflatten(-1, (2, 3)), nn.CosineSimilarity(dim=-1, eps=1e-6), nn.Identity(8)
        self.act = nn.ModuleList([nn.Hardtanh(-0.5, 0.5), nn.Softshrink(0.1), nn.Tanhshrink(), nn.LogSigmoid(), nn.Softsign(), nn.CELU(0.7)])

    def forward(self, x):
        y = self.slope(self.pair(x, x.flip(-1)).transpose(1, 2)).transpose(1, 2)
        for act in self.act:
            y = y + act(y)
        z = self.apart(self.soft(y))
        return self.same(z).mean(-1), self.cos(x, x.roll(1, dims=1)), z.transpose(2, 3).reshape(*y.shape)


Cache = collections.namedtuple("Cache", ["state", "step"])


@idiom(lambda b, t: {"x": floats(b, t, 8), "state": floats(b, 8), "step": torch.arange(b)}, {"x": BT, "state": B, "step": B})
class StateIsPassed(nn.Module):
    """A state goes in and comes out in a named tuple, its step counted in integers."""
    def __init__(self):
        super().__init__()
        self.decay, self.mix = nn.Parameter(torch.rand(8)), nn.Linear(8, 8)

    def forward(self, x, state, step):
        rate = torch.sigmoid(self.decay)
        powers = rate ** torch.arange(x.shape[1], 0, -1)[:, None]
        after = state * rate ** x.shape[1] + (x * powers / rate * (1 - rate)).sum(1)
        return self.mix(after), Cache(state=after, step=step + x.shape[1])


@idiom(lambda b, t: {"ids": ids(b, t), "labels": torch.where(ids(b, t, seed=7) > 14, -100, ids(b, t, seed=7))}, {"ids": BT, "labels": BT})
class ShiftedLoss(nn.Module):
    """Labels one further than logits, of which -100 do not count; perplexity and accuracy beside the loss."""
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.lm_head = nn.Linear(8, 20, bias=False)
        self.lm_head.weight = self.embed.weight

    def forward(self, ids, labels=None):
        logits = self.lm_head(torch.tanh(self.embed(ids)))
        loss = None
        if labels is not None:
            shift_logits, shift_labels = logits[..., :-1, :].contiguous(), labels[..., 1:].contiguous()
            loss = F.cross_entropy(shift_logits.view(-1, shift_logits.size(-1)), shift_labels.view(-1), ignore_index=-100)
        valid = shift_labels != -100
        right = (shift_logits.argmax(-1) == shift_labels) & valid
        return loss, loss.exp(), right.sum() / valid.sum().clamp(min=1), right.sum(), logits


@idiom(lambda b, t: {"x": floats(b, t, 8), "mask": ids(b, t, high=4) > 1}, {"x": BT, "mask": BT})
class PrenormBlockDict(nn.Module):
    """Layers made by a dict of functions, kept in a list of lists, called by *args and **kwargs."""
    def __init__(self):
        super().__init__()
        makers = dict(attn=lambda: nn.MultiheadAttention(8, 2, batch_first=True, kdim=8, vdim=8),
                      ff=lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU6(), nn.Linear(16, 8)))
        self.layers = nn.ModuleList([])
        for kind in ("attn", "ff") * 2:
            self.layers.append(nn.ModuleList([nn.LayerNorm(8, eps=1e-6, elementwise_affine=kind == "ff"), makers[kind]()]))

    def run(self, layer, x, *args, **kwargs):
        out = layer(x, *args, **kwargs)
        return out[0] if isinstance(out, tuple) else out

    def forward(self, x, mask):
        hidden = (x,)
        for norm, layer in self.layers:
            y = norm(x)
            is_attention = isinstance(layer, nn.MultiheadAttention)
            more = dict(key_padding_mask=~mask & (torch.arange(mask.size(1)) > 0), need_weights=False) if is_attention else {}
            x = x + self.run(layer, y, *((y, y) if more else ()), **more)
            hidden += (x,)
        return x, torch.stack(hidden[-2:]).mean(0)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class WritesInPlace(nn.Module):
    """Buffers of results that are filled piece by piece, swaps of halves, where with out of place and masked_fill_."""
    def forward(self, x):
        y = torch.empty_like(x)
        y.copy_(x).mul_(2).add_(1)
        y[..., :4], y[..., 4:] = x[..., 4:], -x[..., :4]
        y[:, 0] = 0
        y[:, -1, ::2] -= 1
        z = x.new_zeros(x.shape[0], x.shape[1] + 2, 8)
        z[:, 1:-1] = y
        z[:, [0, -1]] = 7.0
        z.masked_fill_(z > 3, -1).clamp_(-2, 2)
        a, b = z.split(4, dim=-1)
        a *= b
        z[z < -1.5] = 0.25
        return z, a.sum(-1), z.square_().sum(dim=(1, 2))


@idiom(lambda b, n: {"x": floats(b, 3, 8, 8)}, {"x": B}, ((2, 1), (3, 1)))
class ScalesOfImage(nn.Module):
    """A stem, windows by unfold and back by fold, channels normed at each place, a mean over places, classes in order."""
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, kernel_size=2, stride=2)
        self.norm, self.head = nn.LayerNorm(4, eps=1e-6), nn.Linear(4, 3)
        self.gamma = nn.Parameter(1e-1 * torch.ones(4))

    def forward(self, x):
        x = self.stem(x)
        x = x + self.gamma[:, None, None] * self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        windows = x.unfold(2, 2, 2).unfold(3, 2, 2)
        best = windows.flatten(-2).max(-1)[0]
        x = F.adaptive_avg_pool2d(x, 1).flatten(1) + best.mean([-2, -1])
        probs = self.head(x).softmax(-1)
        top, at = probs.topk(2)
        return {"probs": top, "classes": at, "sure": top[:, 0].gt(0.5)}


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class Einopses(nn.Module):
    """Shapes by names, as a function of one's own parses them: splits, merges, means."""
    @staticmethod
    def rearrange(x, pattern, **sizes):
        left, right = (side.split() for side in pattern.replace("(", " ( ").replace(")", " ) ").split("->"))
        names, dims, group, at = [], [], None, 0
        for word in left:
            if word == "(":
                group = []
            elif word == ")":
                known = math.prod(sizes[n] for n in group if n in sizes)
                dims += [sizes.get(n, x.shape[at] // known) for n in group]
                names, group, at = names + group, None, at + 1
            elif group is not None:
                group.append(word)
            else:
                names, dims, at = [*names, word], [*dims, x.shape[at]], at + 1
        x = x.reshape(dims)
        order = [word for word in right if word not in "()"]
        x = x.permute([names.index(n) for n in order])
        shape, group, by = [], None, dict(zip(names, dims))
        for word in right:
            if word == "(":
                group = 1
            elif word == ")":
                shape, group = [*shape, group], None
            elif group is not None:
                group *= by[word]
            else:
                shape.append(by[word])
        return x.reshape(shape)

    def forward(self, x):
        heads = self.rearrange(x, "b n (h d) -> b h n d", h=2)
        mixed = torch.einsum("b h i d, b h j d -> b h i j", heads, heads).softmax(dim=-1)
        y = self.rearrange(mixed @ heads, "b h n d -> b n (d h)")
        return y, self.rearrange(y, "b n (q r) -> (b n) r q", q=4)


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class ProductsOfMany(nn.Module):
    """Kronecker and outer products, traces, cumulative products and sums backwards, chained products."""
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(2, 2)), nn.Parameter(torch.randn(4, 4))

    def forward(self, x):
        w = torch.kron(self.a, self.b)
        y = torch.linalg.multi_dot([w, w.T, w]) if hasattr(torch.linalg, "multi_dot") else w @ w.T @ w
        s = torch.cumsum(x.flip(1), dim=1).flip(1)
        p = torch.cumprod(torch.sigmoid(x), dim=-1)
        return F.linear(s, y), p.diagonal(dim1=-1, dim2=-2).sum(-1) if p.ndim == 2 else p, torch.outer(self.a.flatten(), self.b[0]).trace() * x.mean()


@idiom(lambda b, t: {"x": floats(b, t, 8), "t": torch.arange(b) * 10}, {"x": BT, "t": B})
class Timesteps(nn.Module):
    """Steps as sines, an odd width padded, classes dropped by a mask, a guided mixture of two halves of the batch."""
    def __init__(self, dim=9):
        super().__init__()
        self.dim, self.mlp = dim, nn.Sequential(nn.Linear(dim, 8), nn.SiLU(), nn.Linear(8, 16))
        nn.init.zeros_(self.mlp[-1].bias)

    def forward(self, x, t):
        half = self.dim // 2
        freqs = torch.exp(-math.log(10000) * torch.arange(start=0, end=half) / half).to(device=t.device)
        args = t[:, None].to(x) * freqs[None]
        emb = torch.cat([torch.cos(args), torch.sin(args)], dim=-1)
        if self.dim % 2:
            emb = torch.cat([emb, torch.zeros_like(emb[:, :1])], dim=-1)
        shift, scale = self.mlp(emb).chunk(2, dim=1)
        y = F.layer_norm(x, (8,), eps=1e-6) * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)
        with_it, without = y[:, ::2].mean(1), y[:, 1::2].mean(1)
        return without + 1.5 * (with_it - without)


@idiom(lambda b, t: {"ids": ids(b, t), "type_ids": None, "position_ids": None}, {"ids": BT})
class Optionals(nn.Module):
    """Inputs that are not given are made: positions from a buffer, types of zeros, a mask of ones of the ids' device."""
    def __init__(self):
        super().__init__()
        self.word, self.pos, self.kind = nn.Embedding(20, 8), nn.Embedding(32, 8), nn.Embedding(2, 8)
        self.register_buffer("position_ids", torch.arange(32).expand((1, -1)), persistent=False)
        self.register_buffer("token_type_ids", torch.zeros(1, 32, dtype=torch.long), persistent=False)
        self.norm = nn.LayerNorm(8, eps=1e-12)

    def forward(self, ids, type_ids=None, position_ids=None, mask=None):
        shape = ids.size()
        length = shape[1]
        if position_ids is None:
            position_ids = self.position_ids[:, 0:length]
        if type_ids is None:
            type_ids = self.token_type_ids[:, :length].expand(shape[0], length)
        if mask is None:
            mask = torch.ones(shape, device=ids.device)
        x = self.norm(self.word(ids) + self.pos(position_ids) + self.kind(type_ids))
        wide = mask[:, None, None, :].to(dtype=x.dtype)
        scores = (x[:, None] @ x[:, None].transpose(-1, -2)) / math.sqrt(8) + (1.0 - wide) * torch.finfo(x.dtype).min
        return nn.functional.dropout(scores.softmax(-1), p=0.1, training=self.training) @ x[:, None]


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class WindowOfKeys(nn.Module):
    """Chunks of a padded sequence that see themselves and the one before; what was padded is cut off."""
    def forward(self, x, w=4):
        b, n, d = x.shape
        lacks = (w - n % w) % w
        x = F.pad(x, (0, 0, 0, lacks), value=0.0)
        blocks = x.reshape(b, -1, w, d)
        before = F.pad(blocks, (0, 0, 0, 0, 1, 0))[:, :-1]
        keys = torch.cat([before, blocks], dim=2)
        scores = torch.einsum("bnid,bnjd->bnij", blocks, keys) * d ** -0.5
        i, j = torch.arange(w)[:, None] + w, torch.arange(2 * w)[None]
        scores = scores.masked_fill((j > i) | (i - j > w), -torch.finfo(scores.dtype).max)
        return torch.einsum("bnij,bnjd->bnid", scores.softmax(-1), keys).reshape(b, -1, d)[:, :n]


@idiom(lambda b, t: {"x": floats(b, t, 8), "at": ids(b, 3, high=4)}, {"x": BT, "at": B})
class PlacesOfSpans(nn.Module):
    """Rows at ids of each item by gather, by an index of two lists, by one_hot and by take_along_dim, all the same; ids as results."""
    def forward(self, x, at):
        a = x.gather(1, at.unsqueeze(-1).expand(-1, -1, x.size(-1)))
        b = x[torch.arange(x.size(0)).unsqueeze(1), at]
        c = F.one_hot(at, num_classes=4).to(x.dtype) @ x[:, :4]
        d = torch.take_along_dim(x, at[..., None], dim=1)
        first, last = at.min(1).values, at.max(1).values
        return a + b + c + d, last - first + 1, (at[:, 1:] - at[:, :-1]).clamp(min=0), at.float().mean(-1).round().int(), at // 2, at % 2 == 0


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class NumbersOfModule(nn.Module):
    """Buffers without axes of every type, in sums, comparisons, wheres, as results and as parts of lists."""
    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.tensor(1000))
        self.register_buffer("ready", torch.tensor(True))
        self.register_buffer("scale", torch.tensor(0.5))
        self.plain, self.start = torch.tensor(3), torch.tensor(2.0)

    def forward(self, x):
        y = torch.where(self.ready, x * self.scale, x)
        y = y.masked_fill(~self.ready, 0.0) / self.start.sqrt()
        far = (x.abs() > self.plain) | ~self.ready
        places = torch.stack([self.plain, self.steps, y.argmax()])
        return y, far, places, self.steps + x.shape[1], self.plain.float() / 2, torch.cat([self.plain.view(1), y[:, 0].argmax(-1)]), self.ready


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class FeatureMaps(nn.Module):
    """Positive features of random directions that a buffer keeps, sums of keys by running sums, a stabilizer."""
    def __init__(self):
        super().__init__()
        q, _ = torch.linalg.qr(torch.randn(8, 8))
        self.register_buffer("proj", q * math.sqrt(8))

    def features(self, x, is_query):
        u = x * 8 ** -0.25 @ self.proj.T
        off = (x ** 2).sum(-1, keepdim=True) / (2 * 8 ** 0.5)
        top = u.amax(dim=-1, keepdim=True) if is_query else torch.amax(u, dim=(-1, -2), keepdim=True)
        return torch.exp(u - off - top.detach()) + 1e-4

    def forward(self, x):
        q, k = self.features(x, True), self.features(x, False)
        kv = torch.einsum("bnm,bnd->bnmd", k, x).cumsum(dim=1)
        return torch.einsum("bnm,bnmd->bnd", q, kv) / (q * k.cumsum(1)).sum(-1, keepdim=True)


@idiom(lambda b, t: {"a": floats(b, 8), "b": floats(b, 8, seed=9)}, {"a": B, "b": B}, ((3, 1), (2, 1), (5, 1)))
class PairLoss(nn.Module):
    """Both directions of a batch of pairs with its own labels, a temperature that is kept below a bound, and hard negatives."""
    def __init__(self):
        super().__init__()
        self.logit_scale = nn.Parameter(torch.ones([]) * math.log(1 / 0.07))

    def forward(self, a, b):
        a, b = a / a.norm(dim=-1, keepdim=True), b / b.norm(p=2, dim=-1, keepdim=True)
        scale = self.logit_scale.clamp(max=math.log(100)).exp()
        logits = scale * a @ b.t()
        labels = torch.arange(len(logits) if False else logits.shape[0])
        loss = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2
        own = torch.eye(logits.size(0), dtype=torch.bool)
        hard = logits.masked_fill(own, float("-inf")).max(dim=1)
        return loss, hard.values, hard.indices, (logits.argmax(1) == labels).float().mean()


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class LearnedQueries(nn.Module):
    """Options of attention: keys and values of other widths, added biases, zeros, weights that are not averaged, no batch."""
    def __init__(self):
        super().__init__()
        self.query = nn.Parameter(torch.randn(1, 3, 12))
        self.a = nn.MultiheadAttention(12, 3, kdim=8, vdim=4, add_bias_kv=True, batch_first=True)
        self.b = nn.MultiheadAttention(8, 4, bias=False, add_zero_attn=True, batch_first=True)

    def forward(self, x):
        y, w = self.a(self.query.expand(x.shape[0], -1, -1), x, x[..., :4], average_attn_weights=False)
        z, v = self.b(x[0], x[0], x[0])
        own, none = self.b(x, x, x, need_weights=False, is_causal=True, attn_mask=torch.triu(torch.ones(x.size(1), x.size(1)), 1).bool())
        return y, w, z, v, own


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class GatedByConfig(nn.Module):
    """Layers chosen by a config object, activations by name, properties, class attributes, a parent's forward."""
    class Parent(nn.Module):
        scale = 0.5

        def __init__(self, config):
            super().__init__()
            self.config, self.act_fn = config, getattr(F, config["act"])
            for i in range(config["depth"]):
                setattr(self, f"layer_{i}", nn.Linear(8, 8, bias=config.get("bias", True)))

        @property
        def layers(self):
            return [getattr(self, f"layer_{i}") for i in range(self.config["depth"])]

        def forward(self, x):
            for layer in self.layers:
                x = x + self.scale * self.act_fn(layer(x))
            return x

    class Child(Parent):
        scale = 0.25

        def forward(self, x):
            y = super().forward(x)
            return y if self.config.get("plain") else y + x.mean(dim=-1, keepdim=True)

    def __init__(self):
        super().__init__()
        self.inner = self.Child({"act": "silu", "depth": 2, "bias": False})

    def forward(self, x):
        return self.inner(x)


@idiom(lambda b, t: {"x": floats(b, t, 6)}, {"x": BT})
class WholePowers(nn.Module):
    """Integers of arange under powers, divisions and remainders; tables of them as f32 and as places."""
    def forward(self, x):
        n = x.shape[1]
        i = torch.arange(n)
        bits = (i[:, None] // 2 ** torch.arange(4)) % 2
        gray = bits[:, 1:] != bits[:, :-1]
        even, half = i[::2], torch.div(i, 2, rounding_mode="trunc")
        tri = (i * (i + 1)) // 2
        return x * (1 + bits[:, :1]), bits, gray, even, half, tri % 7, (i.float() / max(n - 1, 1)).pow(2), i.unsqueeze(0).repeat(x.shape[0], 1)


@idiom(lambda b, t: {"x": floats(b, t, 8), "lengths": torch.arange(b) % 3 + 2}, {"x": BT, "lengths": B}, refused=("idioms_written.py:",))
class PackedSequence(nn.Module):
    """Rows packed by their lengths for a recurrent layer."""
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(8, 4, batch_first=True)

    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, _ = self.rnn(packed)
        return nn.utils.rnn.pad_packed_sequence(out, batch_first=True)[0]


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT}, refused=("idioms_written.py:",))
class CountsOfValues(nn.Module):
    """How often each of the values occurs: as many as there are different ones."""
    def forward(self, x):
        values, counts = torch.unique(x.argmax(-1), return_counts=True)
        return values * counts


@idiom(lambda b, t: {"x": floats(b, t, 8), "mask": ids(b, t, high=4) > 1}, {"x": BT, "mask": BT})
class BooleanAlgebra(nn.Module):
    """Masks joined by all operators, counted, compared with numbers, turned into numbers and back, as results."""
    def forward(self, x, mask):
        pos = x.mean(-1) > 0
        both, either, one = mask & pos, mask | pos, mask ^ pos
        none = ~either & torch.ones_like(mask)
        share = (both.sum(-1) / mask.sum(-1).clamp(min=1)).nan_to_num()
        few = both.sum(1, keepdim=True) < 2
        picked = mask.to(torch.int) * 2 + pos.to(torch.int)
        first = both.int().argmax(-1)
        running = mask.long().cumsum(-1) * mask
        return one, none, share, few | both.all(-1, keepdim=True), picked, first, running, torch.logical_xor(mask, pos).any(-1), mask == pos


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class Quantized(nn.Module):
    """Rounding with a straight-through gradient, scales per channel, codes as integers and bits of them packed into one."""
    def forward(self, x):
        scale = x.detach().abs().amax(dim=(0, 1)).clamp(min=1e-5) / 7
        code = torch.clamp(torch.round(x / scale), -8, 7)
        y = x + (code * scale - x).detach()
        whole = code.to(torch.int32) + 8
        packed = (whole[..., 0::2] * 16 + whole[..., 1::2]).sum(-1)
        return y, whole, packed, whole.float().sub(8) * scale
