"""einsum as products of two at a time, sums and transposes.

Rules are those of _aten.py. Refused are diagonals, axes of 1 that are repeated, and integers alone.
"""
import torch

from ._aten import aten


@aten("einsum")
def einsum(w, node, equation, xs, **named):
    """Products of two at a time, from the left: what both have and later ones lack is contracted by @."""
    takes, arrow, gives = equation.replace(" ", "").partition("->")
    takes = takes.split(",")
    many = max((w.rank(x) - len(t.replace("...", "")) for t, x in zip(takes, xs) if "..." in t), default=0)
    more = [chr(0x391 + i) for i in range(many)]  # letters for the axes that `...` stands for

    def letters(text, rank):
        n = rank - len(text.replace("...", ""))
        return text.replace("...", "".join(more[len(more) - n:]))
    takes = [letters(t, w.rank(x)) for t, x in zip(takes, xs)]
    if not arrow:
        used = "".join(takes)
        gives = "".join(more) + "".join(sorted(c for c in set(used) if used.count(c) == 1 and c not in more))
    gives = gives.replace("...", "".join(more))
    sizes = {}
    for axes, x in zip(takes, xs):
        if len(set(axes)) != len(axes):
            w.no("an einsum with a diagonal", "multiply by an identity before")
        for c, n in zip(axes, w.shape(x)):
            if sizes.setdefault(c, n) != n:
                w.no("an einsum with an axis of 1 that is repeated", "expand it before")
    kind = node.meta["val"].dtype
    if kind != torch.float32:
        w.no("an einsum of integers", "convert one with .float()")
    axes, text = takes[0], w.cast(xs[0], kind)
    for i in range(1, len(xs)):
        left = set("".join(takes[i + 1:]) + gives)
        axes, text = multiplied(sizes, axes, text, takes[i], w.cast(xs[i], kind), left)
    axes, text = summed(axes, text, set(gives))
    return moved(text, axes, gives)


def moved(text, axes, wanted):
    """`transpose`s that bring axes from one order into another."""
    axes = list(axes)
    for i, c in enumerate(wanted):
        j = axes.index(c)
        if i != j:
            text = f"transpose({text}, {i}, {j})"
            axes[i], axes[j] = axes[j], axes[i]
    return text


def summed(axes, text, kept):
    for i in reversed(range(len(axes))):
        if axes[i] not in kept:
            text, axes = f"sum({text}, {i})", axes[:i] + axes[i + 1:]
    return axes, text


def multiplied(sizes, a, x, b, y, left):
    """(axes, text) of the product: [both, of a, of b]; axes that one alone has and nobody wants are summed before."""
    a, x = summed(a, x, left | set(b))
    b, y = summed(b, y, left | set(a))
    both = [c for c in a if c in b and c in left]
    inner = [c for c in a if c in b and c not in left]
    rows, columns = [c for c in a if c not in b], [c for c in b if c not in a]

    def shaped(text, axes, order, groups):
        """The axes in this order, each group as one."""
        text = moved(text, axes, order)
        if all(len(group) == 1 for group in groups):
            return text
        dims = [sizes[c] for c in both] + [" * ".join(f"({sizes[c]})" for c in group) or "1" for group in groups]
        return f"reshape({text}, [{', '.join(dims)}])"
    x = shaped(x, a, both + rows + inner, (rows, inner))
    y = shaped(y, b, both + inner + columns, (inner, columns))
    text, made = f"({x} @ {y})", both + rows + columns
    if len(rows) != 1 or len(columns) != 1:
        text = f"reshape({text}, [{', '.join(sizes[c] for c in made)}])"
    return "".join(made), text
