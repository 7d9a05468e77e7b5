"""The second half of the table of ATen operations: shapes, places of elements, and tensors made from nothing.

Rules are those of _aten.py. ATEN is complete once this is imported.
"""
import sympy
import torch

from ._aten import ATEN, aten, expanded, full_of, is_number
from ._sizes import expression, spelled

# ---- shapes and places ----

def same(w, node, x):
    """One more name of a value."""
    w.low[node] = w.low.get(x, 0)
    if x in w.marks:
        w.marks[node] = w.marks[x]
    return w.names[x.name]


@aten("view", "reshape", "_unsafe_view", "flatten", "unflatten", "view_as", "reshape_as", "_reshape_alias")
def view(w, node, x, *rest):
    shape, of = w.shape(node), w.origin(x)
    if w.shape(x) == shape:
        return same(w, node, x)
    if w.operation(of) == "addmm" and not of.kwargs and w.shape(of)[1:] == shape[-1:]:  # rows of a matrix of all rows
        rows = of.args[1].args[0] if w.operation(of.args[1]) in ("view", "reshape") else of.args[1]
        if w.shape(rows)[:-1] == shape[:-1] and w.shape(rows)[-1] == w.shape(of.args[1])[-1]:
            return f"{w.text(rows)} @ {w.text(of.args[2])} + {w.text(of.args[0])}"
    if turns_heads(w, of) and [*w.shape(of)[:-2], product(w.shape(of)[-2:])] == shape:
        return f"merge_heads({w.text(of.args[0])})"
    return f"reshape({w.text(x)}, [{', '.join(shape)}])"


def product(dims):
    return str(int(dims[0]) * int(dims[1])) if all(d.isdigit() for d in dims) else None


def turns_heads(w, node):
    """Whether a transpose exchanges the second and the third of the last three axes."""
    rank, order = w.rank(node), list(range(w.rank(node)))
    if rank < 3 or w.operation(node) not in ("transpose", "swapaxes", "permute"):
        return False
    order[rank - 3:rank - 1] = order[rank - 2], order[rank - 3]
    if w.operation(node) == "permute":
        return [w.axis(node, a) for a in node.args[1]] == order
    return sorted(w.axis(node, a) for a in node.args[1:3]) == [rank - 3, rank - 2]


def heads_of(w, node):
    """The text of a transpose that brings heads to the front of the places, or None."""
    of = w.origin(node.args[0])
    if turns_heads(w, node) and w.operation(of) in ("view", "reshape") and w.rank(of.args[0]) == w.rank(node) - 1:
        *lead, heads, width = w.shape(of)
        if w.shape(of.args[0]) == [*lead, product([heads, width])]:
            return f"split_heads({w.text(of.args[0])}, {heads})"
    return None


@aten("expand", "expand_as")
def expand(w, node, x, *rest, **named):
    if not w.rank(x):
        return expanded(w, x, w.dtype(x), w.shape(node))
    return same(w, node, x) if w.shape(x) == w.shape(node) else f"expand({w.names[x.name]}, [{', '.join(w.shape(node))}])"


@aten("transpose", "swapaxes")
def transpose(w, node, x, i, j):
    return heads_of(w, node) or f"transpose({w.text(x)}, {i}, {j})"


@aten("t", "numpy_T", "mT")
def turned(w, node, x):
    return f"transpose({w.text(x)}, -2, -1)" if w.rank(x) >= 2 else w.text(x)


@aten("permute")
def permute(w, node, x, order):
    return heads_of(w, node) or w.permuted(x, [w.axis(x, n) for n in order])


@aten("unsqueeze")
def unsqueeze(w, node, x, axis):
    axis, less = w.axis(node, axis), w.low.get(x, 0)
    if w.dtype(x) == torch.float32 or not less and axis:
        return w.at(x, axis, "none")
    w.low[node] = less + (axis <= less)
    name, marks = w.marks.get(x, (w.names[x.name], [":"] * (w.rank(x) - less)))
    if axis > less:
        marks = [*marks[:axis - less], "none", *marks[axis - less:]]
    if "none" in marks:
        w.marks[node] = name, marks
        return f"{name}[{', '.join(marks)}]"
    return name


@aten("squeeze")
def squeeze(w, node, x, axis=None):
    if not isinstance(axis, int):
        return view(w, node, x)
    axis = w.axis(x, axis)
    return w.at(x, axis, "0") if w.shape(x)[axis] == "1" else w.text(x)


@aten("slice")
def cut(w, node, x, axis=0, start=None, end=None, step=1):
    axis = w.axis(x, axis)
    n = x.meta["val"].shape[axis]
    if w.shape(node)[axis] == w.shape(x)[axis]:
        return same(w, node, x)
    if w.iota.get(x) == axis and start in (None, 0) and step == 1 and w.dtype(x) != torch.float32:
        w.low[node], w.marks[node] = axis, (f"arange({w.shape(node)[axis]})", [":"] + ["none"] * (w.rank(x) - axis - 1))
        name, marks = w.marks[node]
        return f"{name}[{', '.join(marks)}]" if marks[1:] else name
    first = "" if start in (None, 0) else w.text(start)
    whole = end is None or isinstance(end, int) and (end > 1 << 62 or isinstance(n, int) and end >= n)
    whole = whole or isinstance(end, int) and end > 0 and step == 1 and beyond(w, node, x, axis, start)
    last = "" if whole else w.text(end)
    if isinstance(start, int) and isinstance(n, int) and start < -n:
        first = ""
    return w.at(x, axis, f"{first}:{last}" + ("" if step == 1 else f":{step}"))


def beyond(w, node, x, axis, start):
    """Whether a slice ends where the axis does, which torch cuts; that it does so for this size is a condition."""
    start = expression(0 if start is None else start)
    if start.is_Integer and start < 0:
        return False
    n, m = (expression(v.meta["val"].shape[axis]) for v in (x, node))
    return sympy.expand(n - start - m) == 0


@aten("select")
def select(w, node, x, axis, i):
    return w.at(x, w.axis(x, axis), w.text(i))


@aten("split", "split_with_sizes", "chunk", "tensor_split", "unsafe_split", "unsafe_chunk")
def split(w, node, x, widths, axis=0):
    axis, place, parts = w.axis(x, axis), sympy.Integer(0), node.meta["val"]
    n = expression(x.meta["val"].shape[axis])
    if not n.is_Integer and not isinstance(widths, (list, tuple)):  # the export has this many parts
        width = expression(widths) if w.operation(node) == "split" else expression(parts[0].shape[axis])
        for less, sign in ((1, "<"), (0, ">=")):
            low = spelled(w, sympy.expand((len(parts) - less) * width))
            w.conditions.setdefault(f"{low} {sign} {spelled(w, n)}")
    for i, part in enumerate(parts):
        end = sympy.expand(place + expression(part.shape[axis]))
        last = "" if i == len(parts) - 1 else spelled(w, end)
        w.result(node, i, w.at(x, axis, f"{spelled(w, place) if place != 0 else ''}:{last}"))
        place = end


@aten("unbind")
def unbind(w, node, x, axis=0):
    for i in range(len(node.meta["val"])):
        w.result(node, i, w.at(x, w.axis(x, axis), str(i)))


@aten("cat", "concat")
def cat(w, node, xs, axis=0):
    kind = node.meta["val"].dtype
    xs = [x for x in xs if tuple(x.meta["val"].shape) != (0,) and w.shape(x)[axis] != "0"] or xs[:1]
    parts = [w.cast(x, kind) for x in xs]
    return f"concat({', '.join(parts)}, axis = {axis})" if len(parts) > 1 else parts[0]


@aten("stack")
def stack(w, node, xs, axis=0):
    return f"stack({', '.join(w.cast(x, node.meta['val'].dtype) for x in xs)}, axis = {axis})"


@aten("repeat_interleave")
def repeat_interleave(w, node, x, times, axis=None, **named):
    if not isinstance(times, int):
        w.no("repeat_interleave with a tensor", "give a number")
    if axis is None:  # of all elements
        n = spelled(w, sympy.expand(expression(node.meta["val"].shape[0]) / times))
        return f"reshape(expand(reshape({w.text(x)}, [{n}])[:, none], [{n}, {times}]), [{', '.join(w.shape(node))}])"
    axis, shape = w.axis(x, axis), w.shape(x)
    apart = ", ".join([*shape[:axis + 1], str(times), *shape[axis + 1:]])
    return f"reshape(expand({w.at(x, axis + 1, 'none')}, [{apart}]), [{', '.join(w.shape(node))}])"


@aten("repeat")
def repeat(w, node, x, times):
    marks, apart, extra = [], [], len(times) - w.rank(x)
    for i, (t, n) in enumerate(zip(map(w.text, times), ["1"] * extra + w.shape(x))):
        if i >= extra and t != "1" and n != "1":  # an axis of its own before the one that is repeated
            marks.append("none")
            apart.append(t)
        marks.append(":" if i >= extra else "none")
        apart.append(t if n == "1" else n)
    while marks and marks[-1] == ":":
        marks.pop()
    text = f"{w.text(x)}[{', '.join(marks)}]" if marks else w.text(x)
    text = text if all(t == 1 for t in times) else f"expand({text}, [{', '.join(apart)}])"
    return text if apart == w.shape(node) else f"reshape({text}, [{', '.join(w.shape(node))}])"


@aten("roll", "flip")
def rolled(w, node, x, *numbers):
    lists = [[n] if isinstance(n, int) else list(n) for n in numbers]
    name, text = node.target.__name__.split(".")[0], w.text(x)
    if name == "roll" and len(lists) < 2:
        w.no("roll without axes", "give dims=")
    for each in zip(*lists):
        text = f"{name}({text}, {', '.join(map(w.text, each))})"
    return text


@aten("tril", "triu")
def triangle(w, node, x, diagonal=0):
    rows, columns = w.shape(x)[-2:]
    sign = ">=" if "tril" in node.target.__name__ else "<="
    kept = f"arange({rows})[:, none] + {w.text(diagonal)} {sign} arange({columns})[none, :]"
    kind = w.dtype(x)
    return f"({kept}) and {w.text(x)}" if kind == torch.bool else f"where({kept}, {w.text(x)}, {w.cast(0, kind)})"


@aten("gather")
def gather(w, node, x, axis, ids, **named):
    if x in w.uniform:
        return filled(w, node, w.uniform[x])
    # torch leaves out what lies beyond the indices along the other axes
    axis, pairs = w.axis(x, axis), enumerate(zip(w.shape(x), w.shape(ids)))
    marks = [":" if n == m or a == axis else f":{m}" for a, (n, m) in pairs]
    part = f"[{', '.join(marks)}]" if set(marks) != {":"} else ""
    return f"gather({w.text(x)}{part}, {w.text(ids)}, {axis})"


# ---- tensors from nothing ----

@aten("arange")
def arange(w, node, *args, **named):
    start, step = (args[0] if len(args) > 1 else 0), (args[2] if len(args) > 2 else 1)
    kind, made = node.meta["val"].dtype, f"arange({w.shape(node)[0]})"
    made = w.as_kind(made, torch.int64, kind)
    made = made if step == 1 else f"{made} * {w.cast(step, kind)}"
    return made if is_number(start, 0) else f"{made} + {w.cast(start, kind)}"


def filled(w, node, value):
    kind = node.meta["val"].dtype
    return full_of(w.shape(node), w.text(float(value)) if kind == torch.float32 else int(value), kind)


@aten("full", "new_full", "full_like")
def full(w, node, x, *rest, **named):
    value = w.scalars.get(rest[-1], rest[-1])
    return expanded(w, value, node.meta["val"].dtype, w.shape(node)) if isinstance(value, torch.fx.Node) else filled(w, node, value)


ATEN.update(dict.fromkeys(("zeros", "new_zeros", "zeros_like"), lambda w, node, *a, **k: filled(w, node, 0)))
ATEN.update(dict.fromkeys(("ones", "new_ones", "ones_like"), lambda w, node, *a, **k: filled(w, node, 1)))


@aten("scalar_tensor")
def scalar_tensor(w, node, value, **named):
    return expanded(w, value, torch.bool, []) if node.meta["val"].dtype == torch.bool else w.cast(value, node.meta["val"].dtype)


# ---- gates ----

@aten("glu")
def glu(w, node, x, axis=-1):
    return f"glu({w.text(x)}, {axis})"
