"""What goes in and comes out in forms that people use: optional and keyword inputs, nested tuples and dicts, other types of
numbers, sizes of two names, results that are inputs (see idioms_table.py).
"""
import math
import typing

from idioms_table import floats, idiom, ids, nn, torch

F = nn.functional if nn else None
BT, B = {0: "batch", 1: "time"}, {0: "batch"}


@idiom(lambda b, t: {"input_ids": ids(b, t), "attention_mask": (floats(b, t) > -1).long()}, {"input_ids": BT, "attention_mask": BT})
class OptionalInputs(nn.Module):
    """Most inputs are None; positions come from the mask by cumsum."""
    def __init__(self):
        super().__init__()
        self.words, self.places, self.kinds = nn.Embedding(20, 8), nn.Embedding(40, 8), nn.Embedding(2, 8)

    def forward(self, input_ids: typing.Optional[typing.Any] = None, attention_mask=None, token_type_ids=None, position_ids=None,
                inputs_embeds=None, output_hidden_states: bool = False, return_dict=None, **kwargs):
        if input_ids is not None and inputs_embeds is not None:
            raise ValueError("both")
        if position_ids is None:
            position_ids = attention_mask.long().cumsum(-1) - 1
            position_ids.masked_fill_(attention_mask == 0, 1)
        if token_type_ids is None:
            token_type_ids = torch.zeros(input_ids.size(), dtype=torch.long, device=input_ids.device)
        h = self.words(input_ids) + self.places(position_ids) + self.kinds(token_type_ids)
        mask = attention_mask.unsqueeze(-1).expand(h.size()).float()
        pooled = torch.sum(h * mask, 1) / torch.clamp(mask.sum(1), min=1e-9)
        return {"hidden": h, "pooled": F.normalize(pooled, p=2, dim=1), "last": h[torch.arange(h.shape[0]), attention_mask.sum(-1) - 1],
                "states": (h,) if output_hidden_states else None}


@idiom(lambda b, s, t: {"source": floats(b, s, 8), "target": floats(b, t, 8, seed=9), "lengths": torch.arange(1, b + 1)},
       {"source": {0: "batch", 1: "s"}, "target": {0: "batch", 1: "t"}, "lengths": B}, ((3, 7, 4), (2, 4, 9), (4, 5, 5)))
class TwoSequences(nn.Module):
    """Cross attention of two lengths with a mask made of the number of tokens, outer sums, distances, and a causal one."""
    def __init__(self):
        super().__init__()
        self.q, self.kv = nn.Linear(8, 8), nn.Linear(8, 16)

    def forward(self, source, target, lengths):
        seen = torch.arange(source.size(1), device=source.device)[None, :] < lengths[:, None].clamp(max=source.size(1))
        q = self.q(target)
        k, v = torch.tensor_split(self.kv(source), 2, dim=-1)
        y = F.scaled_dot_product_attention(q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1), attn_mask=seen[:, None, None, :])[:, 0]
        z = F.scaled_dot_product_attention(target, target, target, is_causal=True)
        away = torch.cdist(target, source)
        scores = torch.tanh(q.unsqueeze(2) + k.unsqueeze(1)).sum(-1) / source.size(1) ** 0.5
        return y + z, away.min(dim=-1).values, scores.masked_fill(~seen.unsqueeze(1), -1e4).log_softmax(-1).exp()


@idiom(lambda b, t: {"x": floats(b, t, 8), "lengths": torch.tensor([2, 4, 1, 3, 2][:b], dtype=torch.int32), "flags": ids(b, high=3) > 1},
       {"x": BT, "lengths": B, "flags": B})
class TypesOfNumbers(nn.Module):
    """int32 lengths, booleans in arithmetic, comparisons that are summed, where of mixed types, parts by type."""
    def forward(self, x, lengths, flags):
        at = torch.arange(x.shape[1], dtype=torch.int32)
        mask = at.unsqueeze(0) < lengths.unsqueeze(1)
        count = mask.sum(1)
        mean = (x * mask.unsqueeze(-1)).sum(1) / count.unsqueeze(-1)
        y = torch.where(flags[:, None], mean, -mean) + flags.unsqueeze(-1) * 2
        share = lengths / x.shape[1] + lengths // 2 + lengths % 3 - (-lengths).div(2, rounding_mode="trunc")
        return y, share, (x > 0).all(-1), (x > 1).any(dim=1), flags ^ (lengths > 2), count.float().rsqrt(), x.sign().int() + lengths[:, None, None]


@idiom(lambda b, t: {"batch": {"tokens": ids(b, t), "extra": [floats(b, 4), (floats(b, t, 2, seed=6),)]}, "temperature": 0.7},
       {"batch_tokens": BT, "batch_extra_0": B, "batch_extra_1_0": BT})
class NestedInputs(nn.Module):
    """A dict with a list with a tuple, and a number."""
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20, 4)

    def forward(self, batch, temperature=1.0):
        return (self.table(batch["tokens"]) / temperature + batch["extra"][0][:, None]).sum(-1) + batch["extra"][1][0].prod(-1)


@idiom(lambda b, t: {"x": floats(b, t), "X": floats(b, t, seed=8), "tokenIds": ids(b, t)}, {"x": BT, "X": BT, "tokenIds": BT})
class CapitalNames(nn.Module):
    """Names that differ in capitals alone."""
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20, 4)

    def forward(self, x, X, tokenIds):
        return self.table(tokenIds) * X[..., None], x - X, tokenIds + 1


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT})
class NestedResults(nn.Module):
    """Tuples within tuples and dicts, a result twice, a result that is an input, one that is a constant."""
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
        self.register_buffer("steps", torch.arange(4.0))

    def forward(self, x):
        states = ()
        for layer in self.layers:
            h = layer(x if not states else states[-1][0])
            states = states + ((h, h.mean(-1)),)
        return states, {"first": states[0][0], "x": x, "steps": self.steps * 2}, [h.relu() for h, _ in states]


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": BT}, refused="the module changes mean in each call")
class StateInForward(nn.Module):
    """A cache that grows in forward."""
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x.mean((0, 1))
        return x - self.mean


@idiom(lambda b, t: {"x": floats(b, t, 8), "kind": ids(b, high=4)}, {"x": BT, "kind": B})
class ComplexParts(nn.Module):
    """Rotary by complex numbers with positions that differ by item; magnitude and angle."""
    def forward(self, x, kind):
        freqs = 1.0 / (100.0 ** (torch.arange(0, 8, 2)[:4].float() / 8))
        angles = torch.outer(torch.arange(40).float(), freqs)
        cis = torch.polar(torch.ones_like(angles), angles)
        at = torch.arange(x.shape[1]) + kind[:, None]
        z = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2)) * cis[at]
        return torch.view_as_real(z).flatten(2).type_as(x), z.abs(), z.conj().real


@idiom(lambda n: {"x": floats(n, 6)}, {"x": {0: "n"}}, ((5,), (1,), (9,)))
class OneItem(nn.Module):
    """Squeezes and means that must not take the run's size for one; a size of 1 in a run."""
    def forward(self, x):
        y = x.unsqueeze(1).squeeze(1).unsqueeze(0).squeeze(0)
        return y.mean(0, keepdim=True).expand_as(x) - x, y.T @ y / max(1, 3), x.reshape(1, -1, 6)[0].softmax(0), x.amax((0, 1)), x.view(-1).sum()


@idiom(lambda b, t: {"x": floats(b, t, 8), "mask": (floats(b, t) > 0.2)}, {"x": BT, "mask": BT}, refused=("idioms_inputs.py:",))
class ChosenRows(nn.Module):
    """As many rows as a mask has."""
    def forward(self, x, mask):
        return x[mask].mean(0)


@idiom(lambda b, t: {"x": floats(b, t, 8), "mask": (floats(b, t) > 0.2)}, {"x": BT, "mask": BT})
class MaskedAssignment(nn.Module):
    """Assignments where a mask is, of numbers and of a row; wheres of wheres; nan_to_num."""
    def __init__(self):
        super().__init__()
        self.mask_token = nn.Parameter(torch.randn(8))

    def forward(self, x, mask):
        y = x.clone()
        y[mask] = self.mask_token
        y[~mask, 2:5] = torch.tensor([[1.0, 2.0, 3.0]])
        y[x > 1.5] = 0.0
        z = torch.where(mask[..., None], torch.where(y > 0, y, -float("inf")), torch.tensor(float("nan")))
        w = mask.unsqueeze(-1).to(x.dtype)
        return y, torch.nan_to_num(z, nan=0.0, posinf=1.0, neginf=-1.0), w * self.mask_token + (1 - w) * x, (x * w).sum(1) / w.sum(1).clamp_min(1)


@idiom(lambda b, t: {"x": floats(b, t, 12)}, {"x": BT})
class ShapesByNames(nn.Module):
    """Reshapes as of einops, by sizes in tuples, -1, flatten, unflatten, chunk, stack, tile, movedim, swapaxes, split sizes."""
    def forward(self, x):
        b, t, d = x.size()
        h = 3
        y = x.reshape(b, t, h, d // h).permute(0, 2, 1, 3).contiguous().view(b * h, t, d // h)
        z = y.unflatten(0, (-1, h)).swapaxes(1, 2).reshape(*x.shape[:2], -1)
        parts = torch.split(x, [2, 4, 6], dim=-1)
        w = torch.cat([p.mean(-1, keepdim=True).tile(1, 1, 2) for p in parts], dim=2)
        u = torch.stack(x.unbind(-1)[:3], dim=1).movedim(1, -1) + x.chunk(4, -1)[2]
        v = x.view(b, t, 2, 6).transpose(-1, -2).flatten(start_dim=-2)[..., ::5]
        return z - x, w, u, v, x.new_zeros(b, 1, d) + x[:, :1], torch.concat((x[:, -1:], x[:, :-1]), 1), x.expand(2, *x.shape).sum(0)


@idiom(lambda b, t: {"ids": ids(b, t), "weights": floats(b, t, seed=2), "n": torch.tensor(3)}, {"ids": BT, "weights": BT})
class NumbersAlone(nn.Module):
    """A number without axes, which scales floats and integers."""
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20, 4)

    def forward(self, ids, weights, n):
        return self.table(ids) * weights.unsqueeze(-1) * n, ids * n


@idiom(lambda b, t: {"x": floats(b, t, 8)}, {"x": {0: "batch", 1: "time"}})
class NamesOfTheText(nn.Module):
    """Parts and weights with names that the text's own values, weights and numbers have while it is written."""
    NAMES = ("k_0", "t_add", "t_linear", "w_k_0_weight", "w_0", "d_2", "x")

    class Part(nn.Module):
        def __init__(self):
            super().__init__()
            self.k_0, self.t_mul, self.w_scale = nn.Linear(8, 8), nn.Linear(8, 8), nn.Parameter(torch.randn(8))
            self.scale = nn.Parameter(torch.randn(8))

        def forward(self, x, y):
            return self.t_mul(self.k_0(x) * 3 + y) * self.w_scale + self.scale

    def __init__(self):
        super().__init__()
        for name in self.NAMES:
            self.add_module(name, nn.Linear(8, 8))
        self.parts, self.k_1, self.t_mul = nn.ModuleList([self.Part(), self.Part()]), self.Part(), self.Part()

    def forward(self, x):
        y = x
        for name in self.NAMES:
            y = y + getattr(self, name)(y) * 0.5
        for part in self.parts:
            x = part(x, y).tanh()
        return self.t_mul(self.k_1(x, y + 1), y)


@idiom(lambda b, t: {"i": ids(b, t), "flag": ids(b, t, high=3) > 1}, {"i": BT, "flag": BT})
class FunctionsOfIntegers(nn.Module):
    """Integers and booleans where f32 is computed, and functions that leave integers what they are."""
    def forward(self, i, flag):
        n = i - 10
        of_all = [torch.exp(n.clamp(max=3)), torch.sqrt(n.abs()), i.log(), i.rsqrt(), n.sigmoid(), n.sin(), n.cos(), n.tanh(), torch.erf(n),
                  torch.log1p(i), torch.expm1(n.clamp(max=2)), i.log2(), i.log10(), n.clamp(-2, 2).sinh(), n.clamp(-2, 2).cosh(), i.reciprocal(), n.tan()]
        kept = [n.relu(), n.floor(), n.ceil(), n.round(), n.trunc(), torch.nan_to_num(n), n.isnan(), n.isfinite(), n.isinf()]
        return (*of_all, *kept, flag.exp(), flag.sigmoid(), torch.sqrt(flag), torch.where(flag, i.log(), 0))
