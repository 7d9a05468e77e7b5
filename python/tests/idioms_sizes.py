"""Modules that cut a size that a run chooses into parts and join it again (see idioms_table.py). The parts are written as
numbers, as quotients of sizes, and as -1.
"""
import math

from idioms_table import floats, idiom, nn, torch

N = {"x": {0: "n"}}
EVEN = ((8, 4), (6, 4), (12, 4))


def rows(n, d):
    return {"x": floats(n, d)}


@idiom(rows, N, EVEN)
class Pairs(nn.Module):
    """Rows in twos, by -1."""
    def forward(self, x):
        return x.view(-1, 2, 4)


@idiom(rows, N, EVEN)
class Halves(nn.Module):
    """Rows in twos, by half of their number; and what of it is left for -1."""
    def forward(self, x):
        return x.view(x.shape[0] // 2, 2, 4).transpose(1, 2), x.view(x.shape[0] // 2, -1).softmax(-1)


@idiom(rows, N, EVEN)
class Wide(nn.Module):
    """Two rows are one of twice the width, and go through a layer of this width."""
    def __init__(self):
        super().__init__()
        self.merge = nn.Linear(8, 4)

    def forward(self, x):
        return self.merge(x.reshape(-1, 8)) + x.unflatten(0, (-1, 2)).mean(1)


@idiom(rows, N, ((12, 4), (24, 4), (36, 4)))
class Nested(nn.Module):
    """Parts of parts."""
    def forward(self, x):
        return x.view(-1, 2, 4).view(-1, 3, 2, 4).sum(2), x.view(x.shape[0] // 4, 4, 4).amax(1)


@idiom(lambda b, t: {"x": floats(b, t, 4)}, {"x": {0: "batch", 1: "time"}}, ((3, 8), (2, 6), (5, 12)))
class Strides(nn.Module):
    """Neighbours of a sequence side by side, with all rows of the batch in one axis and apart."""
    def forward(self, x):
        b, t, d = x.shape
        return x.view(b, t // 2, 2 * d), x.reshape(b * (t // 2), -1), x.view(b, -1, 2, d)[:, :, 0]


@idiom(rows, N, ((9, 4), (7, 4), (5, 4)))
class AllButOne(nn.Module):
    """The first row stands for itself."""
    def forward(self, x):
        return x[1:].view(-1, 2, 4) + x[0]


@idiom(rows, N, EVEN)
class Quotient(nn.Module):
    """A number that sizes make, the same for all sizes that are taken."""
    def forward(self, x):
        return x * (x.shape[0] // (x.shape[0] // 2))


@idiom(rows, N, EVEN, refused=("the size n // ", "idioms_sizes.py:"))
class Uneven(nn.Module):
    """A quotient that no polynomial of the size gives."""
    def forward(self, x):
        return x * (x.shape[0] // (x.shape[0] // 3 + 1))


@idiom(rows, N, EVEN, refused=("a dropout that is on", "idioms_sizes.py:", "__init__"))
class LateDropout(nn.Module):
    """eval() does not reach a module that is made in forward."""
    def forward(self, x):
        return nn.Dropout(0.1)(x)


@idiom(rows, N, EVEN)
class LateDropoutOfNothing(nn.Module):
    """A dropout of p = 0 changes nothing."""
    def forward(self, x):
        return torch.relu(nn.Dropout(0.0)(x))


@idiom(lambda n, d: {"w": floats(d, n + 1), "x": floats(d, n, seed=6), "y": floats(2 * n)}, {"w": {1: "more"}, "x": {1: "n"}, "y": {0: "twice"}}, EVEN)
class OneMore(nn.Module):
    """Sizes that must be another one and a number, and twice another, have names of their own, and come before it."""
    def forward(self, w, x, y):
        return (w[:, 1:] + x) * w.shape[1] + y.view(2, -1).sum(0)


@idiom(lambda n, d: {"w": floats(d, n + 8), "x": floats(d, n), "y": floats(2 * n)}, {"w": {1: "other"}, "x": {1: "n"}, "y": {0: "other"}}, EVEN,
       refused=("the size 'other' is also", "give that another name"))
class OneNameForTwo(nn.Module):
    """The same, by one name, which both have in the example alone."""
    def forward(self, w, x, y):
        return (w[:, 8:] + x).sum(0) + y.view(2, -1).sum(0)


@idiom(lambda b, t: {"x": floats(b, t, 4)}, {"x": {0: "batch", 1: "time"}}, ((3, 8), (2, 7), (1, 1), (2, 5)))
class WholeFractions(nn.Module):
    """Sizes by ceil and floor of quotients, and ranges of fractions as TransformerXL writes them."""
    def forward(self, x):
        t = x.shape[1]
        down, up = torch.arange(t - 1, -1, -1.0), torch.arange(0.0, t)
        return (x[:, :math.ceil(t / 4)], torch.arange(math.floor(t / 3) + 1), x * down[:, None] + up[:, None], torch.arange(0.0, t, 0.5),
                torch.arange(1 - t, t, 1.0), torch.arange(1, t + 1, 2.0))


@idiom(lambda b, t: {"x": floats(b, t, 4)}, {"x": {0: "batch", 1: "time"}}, ((3, 8), (2, 7), (1, 1), (2, 5)))
class Spaced(nn.Module):
    """Places between -1 and 1, as Perceiver has them, as many as there are steps; or between ends that are sizes."""
    def forward(self, x):
        t = x.shape[1]
        places = torch.linspace(-1.0, 1.0, steps=t)
        return (x * places[:, None], x * torch.linspace(0.5 / t, 1 - 0.5 / t, t)[:, None], torch.linspace(0, t - 1, 3), torch.linspace(2, 7, t + 1),
                x * torch.linspace(x.mean(), x.max(), t)[:, None])


@idiom(lambda b, t: {"x": floats(b, t, 4)}, {"x": {0: "batch", 1: "time"}}, refused=["linspace of int64", "idioms_sizes.py:", "arange"])
class SpacedIntegers(nn.Module):
    def forward(self, x):
        return x * torch.linspace(0, 9, x.shape[1], dtype=torch.long)[:, None]


@idiom(lambda b, t: {"x": floats(b, t, 4)}, {"x": {0: "batch", 1: "time"}}, refused=["linspace in int64", "idioms_sizes.py:"])
class SpacedConstants(nn.Module):
    def forward(self, x):
        return x * torch.linspace(0, 9, 4, dtype=torch.long)
