"""Rows of the table of ATen operations that put values at places which integers name: scatter and what reduces so.

Rules are those of _aten.py. Each place of the result looks for the indices that name it: those of one value, the last
one, or all of them. Refused are products, and indices that leave out a part of the axes along which they do not count.
"""
import torch

from ._aten import aten, chosen
from ._fold import Type

LEAST = {torch.float32: "-inf", torch.int64: "(-2147483647 - 1)", torch.int32: "(-2147483647 - 1)"}
MOST = {torch.float32: "inf", torch.int64: "2147483647", torch.int32: "2147483647"}


class Places:
    """Texts about the places of x along `axis`: with one axis more, that of the indices, before theirs."""

    def __init__(self, w, x, axis, ids):
        self.w, self.x, self.axis, n = w, x, axis, w.shape(x)[axis]
        after = ", ".join(["none"] * (w.rank(x) - axis - 1))
        self.spread = f"[{', '.join([':'] * (axis + 1) + ['none'])}]"
        self.others = f"[:, {after}]" if after else ""
        low, high = w.bounds.value(ids)
        at = w.text(ids)
        if low < 0 or not n.isdigit() or high >= int(n):
            at = f"arange({n})[{at}]"  # an index beyond the end is an error of the run, as it is in torch
        if w.rank(ids) < w.rank(x):  # one index for all of the other axes
            at = f"({at})[{', '.join(['none'] * axis + [':'] + ['none'] * (w.rank(x) - axis - 1))}]"
        self.hit = f"{at}{self.spread} == arange({n}){self.others}"

    def given(self, value, ids):
        """The values, as many as indices: torch leaves out more."""
        w = self.w
        shape = w.shape(ids) if w.rank(ids) == w.rank(value) else w.shape(value)
        marks = [":" if n == m else f":{m}" for n, m in zip(w.shape(value), shape)]
        return w.text(value) + (f"[{', '.join(marks)}]" if set(marks) != {":"} else "")

    def those(self, value, ids, other):
        """The values where an index names the place, else a number."""
        return f"where({self.hit}, ({self.given(value, ids)}){self.spread}, {other})"


def placed(w, x, axis, ids):
    axis = w.axis(x, axis)
    if w.rank(ids) == w.rank(x) and any(a != axis and n != m for a, (n, m) in enumerate(zip(w.shape(x), w.shape(ids)))):
        w.no("a scatter into a part of the other axes", "slice before")
    return Places(w, x, axis, ids)


@aten("scatter", "scatter_add")
def scatter(w, node, x, axis, ids, value, reduce=None):
    if reduce is not None:
        value = value if w.dtype(value) is not None else w.no("a scatter of a number that reduces", "use scatter_add")
        return reduced(w, placed(w, x, axis, ids), ids, value, {"add": "sum"}.get(reduce, reduce), True)
    places, kind = placed(w, x, axis, ids), w.dtype(x)
    axis = places.axis
    if w.dtype(value) is None:
        return chosen(w, f"any({places.hit}, {axis})", w.cast(value, kind), w.text(x), kind)
    if node.target.__name__.startswith("scatter_add"):
        return reduced(w, places, ids, value, "sum", True)
    after = ", ".join(["none"] * (w.rank(x) - axis - 1))
    order = f"arange({w.shape(ids)[axis]})" + (f"[:, none{', ' + after if after else ''}]")
    w.say(f"max(where({places.hit}, {order}, -1), {axis})", {f"t_{node.name}_last": Type("i32", w.shape(x))})
    last = f"t_{node.name}_last"
    return f"where({last} >= 0, gather({places.given(value, ids)}, maximum({last}, 0), {axis}), {w.text(x)})"


@aten("scatter_reduce", "index_reduce")
def scatter_reduce(w, node, x, axis, ids, value, reduce, include_self=True):
    return reduced(w, placed(w, x, axis, ids), ids, value, reduce, include_self)


def reduced(w, places, ids, value, reduce, with_self):
    """with_self: what stands at a place counts, too; else it stays only where no index names the place."""
    x, axis, kind = places.x, places.axis, w.dtype(places.x)
    before, named = w.text(x), f"any({places.hit}, {axis})"
    if kind not in LEAST or reduce not in ("sum", "mean", "amax", "amin"):
        w.no(f"a scatter that reduces by {reduce}" if kind in LEAST else "a scatter of booleans that reduces",
             "use sum, mean, amax or amin of numbers, or write it with where")
    if reduce in ("amax", "amin"):
        those = places.those(value, ids, (LEAST if reduce == "amax" else MOST)[kind])
        if with_self:  # one maximum of all, so that the gradient is shared as in torch
            one = f"({before})[{', '.join([':'] * axis + ['none'])}]" if axis else f"({before})[none]"
            return f"{reduce}(concat({one}, {those}, axis = {axis}), {axis})"
        return f"where({named}, {reduce}({those}, {axis}), {before})"
    zero = w.cast(0, kind)
    total = f"sum({places.those(value, ids, zero)}, {axis})"
    if with_self:
        total = f"{before} + {total}"
    if reduce == "sum":
        return total if with_self else f"where({named}, {total}, {before})"
    count = f"sum({'f32' if kind == torch.float32 else 'i32'}({places.hit}), {axis})"
    over = "/" if kind == torch.float32 else "//"  # of integers torch rounds down
    if with_self:
        return f"({total}) {over} ({count} + {w.cast(1, kind)})"
    return f"where({named}, {total} {over} maximum({count}, {w.cast(1, kind)}), {before})"
