"""Elements chosen by tensors of indices: constant ones become slices, negative ones count from the end as in torch.

Rules are those of _aten.py. Refused are indices whose result's size depends on values.
"""
import torch

from ._aten import aten
from ._aten_einsum import moved

MANY = 8  # constant indices that are written one by one


@aten("index_select")
def index_select(w, node, x, axis, ids):
    return chosen(w, x, w.axis(x, axis), ids)


@aten("index", "_unsafe_index")
def index(w, node, x, indices):
    given = [(axis, i) for axis, i in enumerate(indices) if i is not None]
    if any(w.dtype(i) in (torch.bool, torch.uint8) for _, i in given):
        w.no("an index by booleans, whose result's size depends on values", "use torch.where")
    ids, axes = [i for _, i in given], [axis for axis, _ in given]
    if len(given) == 1 and (axes[0] == 0 or w.rank(ids[0]) == 1):
        return chosen(w, x, axes[0], ids[0])
    if len(given) == len(indices) == w.rank(x) and all(i in w.iota for i in ids):
        made = places(w, node, x, ids)
        if made:
            return made
    rows, at, rest = as_rows(w, x, given)
    spread = [f"i{k}" for k in range(max(map(w.rank, ids)))]
    if axes == list(range(axes[0], axes[-1] + 1)):  # the indices' own axes stand where those were that they index
        wanted = [a for a in rest if a < axes[0]] + spread + [a for a in rest if a > axes[0]]
        return moved(f"{rows}[{at}]", spread + rest, wanted)
    return f"{rows}[{at}]"


def as_rows(w, x, given):
    """x with the axes that are indexed in front, as one; the row of each element; the other axes."""
    axes = [axis for axis, _ in given]
    rest, shape, at = [a for a in range(w.rank(x)) if a not in axes], w.shape(x), "0"
    text = w.text(x) if axes + rest == sorted(axes + rest) else w.permuted(x, axes + rest)
    for axis, i in given:
        one = wrapped(w, i, shape[axis])
        at = f"({at}) * {w.factor(shape[axis])} + {one}" if at != "0" else one
    if len(axes) > 1:
        first = " * ".join(w.factor(shape[a]) for a in axes)
        text = f"reshape({text}, [{', '.join([first, *(shape[a] for a in rest)])}])"
    elif not text.isidentifier():
        text = f"({text})"
    return text, at, rest


def constant(w, x):
    """The tensor that a value is whatever the inputs are, or None."""
    x = w.origin(x)
    spec = w.kinds.get(x.name) if isinstance(x, torch.fx.Node) and x.op == "placeholder" else None
    return w.state[spec.target] if spec and spec.kind.name in ("BUFFER", "CONSTANT_TENSOR") else None


def numbered(w, tensor):
    """A row of integers that are known; None for many without a rule."""
    ids = tensor.tolist()
    step = ids[1] - ids[0] if len(ids) > 1 else 0
    if all(b - a == step for a, b in zip(ids, ids[1:])):
        made = f"arange({len(ids)})" + (f" * {w.text(step)}" if step != 1 else "")
        return made + (f" + {w.text(ids[0])}" if ids[0] else "")
    if len(ids) > MANY:
        return None
    return f"i32(concat({', '.join(f'full([1], {i}.0)' for i in ids)}))"


def wrapped(w, i, n):
    """The text of indices of which negative ones count from the end of n."""
    known = constant(w, i)
    if known is not None and known.ndim == 1 and len(known) and n.isdigit():
        made = numbered(w, torch.where(known < 0, known + int(n), known))
        if made:
            return made
    text = w.text(i)
    return text if not_negative(w, i) else f"where({text} < 0, {text} + {w.factor(n)}, {text})"


def not_negative(w, x):
    """Whether no element is negative, as far as the operations say that made them."""
    return x in w.iota or w.bounds.value(x)[0] >= 0


def chosen(w, x, axis, ids):
    """Elements along one axis by one tensor of indices."""
    known, n = constant(w, ids), x.meta["val"].shape[axis]
    if known is not None and known.ndim == 1 and len(known):
        places = [i + n if i < 0 and isinstance(n, int) else i for i in known.tolist()]
        steps = {b - a for a, b in zip(places, places[1:])}
        if len(steps) < 2 and min(steps or {1}) > 0 and (places[0] < 0) == (places[-1] < 0):
            step = min(steps or {1})
            end = places[-1] + 1
            last = "" if end in (0, n) else w.text(end)
            return w.at(x, axis, f"{w.text(places[0]) if places[0] else ''}:{last}" + (f":{step}" if step > 1 else ""))
        if len(places) <= MANY:
            one = [w.at(x, axis, f"{w.text(i)}:{w.text(i + 1) if i != -1 else ''}") for i in places]
            return f"concat({', '.join(one)}, axis = {axis})"
    return taken(w, x, axis, wrapped(w, ids, w.shape(x)[axis]))


def taken(w, x, axis, ids):
    """Elements along one axis by a row of ids: that axis comes to the front and goes back."""
    if axis == 0:
        return f"{w.text(x)}[{ids}]"
    return f"transpose(transpose({w.text(x)}, 0, {axis})[{ids}], 0, {axis})"


def places(w, node, x, given):
    """x[i, j] with i and j the places along axes of their own: x with its axes in other places."""
    rank = w.rank(node)
    axes = [w.iota[i] + rank - w.rank(i) for i in given]
    if len(set(axes)) != len(axes) or any(w.shape(x)[k] != w.shape(node)[a] for k, a in enumerate(axes)):
        return None
    order = sorted(range(len(axes)), key=lambda k: axes[k])
    text = f"({w.permuted(x, order)})[{', '.join(':' if a in axes else 'none' for a in range(rank))}]"
    if all(a in axes or n == 1 for a, n in enumerate(node.meta["val"].shape)):
        return text
    return f"expand({text}, [{', '.join(w.shape(node))}])"
