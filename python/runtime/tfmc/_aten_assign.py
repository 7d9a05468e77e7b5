"""Assignments to parts of a tensor, which the export makes operations that give the whole with the part replaced.

Rules are those of _aten.py. Refused are assignments of several values to elements that booleans choose.
"""
import sympy
import torch

from ._aten import aten
from ._aten_einsum import moved
from ._aten_index import as_rows
from ._aten_places import expanded, filled, same
from ._fold import Type
from ._sizes import expression, spelled


WHOLE_ANEW = {"copy", "copy_", "fill", "fill_", "zero", "zero_", "zeros_like", "ones_like", "full_like", "new_zeros",
              "new_ones", "new_full", "empty_like", "new_empty"}  # of these the first argument is a shape alone


def read_by(node):
    """The operands whose values an operation reads."""
    name = getattr(node.target, "__name__", str(node.target)).split(".")[0]
    return [x for x in node.all_input_nodes if name not in WHOLE_ANEW or x is not node.args[0]]


@aten("empty", "empty_like", "new_empty", "empty_permuted", "empty_strided", "new_empty_strided")
def empty(w, node, *args, **named):
    """What stands there before anything is assigned: zeros."""
    return filled(w, node, 0)


@aten("copy", "copy_")
def copied(w, node, x, value, *rest):
    """The value in place of x, in its type and shape."""
    return expanded(w, value, node.meta["val"].dtype, w.shape(node))


@aten("fill", "zero", "fill_", "zero_")
def filling(w, node, x, value=0):
    if not isinstance(value, torch.fx.Node):
        return filled(w, node, value)
    return expanded(w, value, node.meta["val"].dtype, w.shape(node))


@aten("slice_scatter")
def slice_scatter(w, node, x, value, axis=0, start=None, end=None, step=1):
    axis = w.axis(x, axis)
    n, m = (expression(v.meta["val"].shape[axis]) for v in (x, value))
    if w.shape(value) == w.shape(x):
        return same(w, node, value) if w.dtype(x) == w.dtype(value) else w.cast(value, w.dtype(x))
    if m == 0:
        return same(w, node, x)
    start = expression(0 if start is None else start)
    start = n + start if start.is_Integer and start < 0 else start
    start = sympy.Integer(0) if start.is_Integer and start < 0 else start  # before the first one: torch cuts
    value = w.cast(value, w.dtype(x))
    if step == 1:
        return replaced(w, x, value, axis, start, start + m)
    if n.is_Integer and n % step == 0 and start < step and m == n // step:
        return interleaved(w, x, value, axis, int(start), step)
    return scattered(w, x, value, axis, (start, step, m))


def replaced(w, x, value, axis, start, end):
    """The value between what stands before and after it."""
    parts = [w.at(x, axis, f":{spelled(w, start)}")] if start != 0 else []
    parts += [value] + ([w.at(x, axis, f"{spelled(w, end)}:")] if sympy.expand(
        end - expression(x.meta["val"].shape[axis])) != 0 else [])
    return f"concat({', '.join(parts)}, axis = {axis})" if len(parts) > 1 else value


def interleaved(w, x, value, axis, start, step):
    """Every step-th element: one of the columns of x with its axis as rows of step."""
    shape = w.shape(x)
    apart = [*shape[:axis], str(int(shape[axis]) // step), str(step), *shape[axis + 1:]]
    grouped, before = f"reshape({w.text(x)}, [{', '.join(apart)}])", ", ".join([":"] * (axis + 1))
    parts = [f"{grouped}[{before}, :{start}]"] if start else []
    parts.append(f"({value})[{before}, none]")
    parts += [f"{grouped}[{before}, {start + 1}:]"] if start + 1 < step else []
    return f"reshape(concat({', '.join(parts)}, axis = {axis + 1}), [{', '.join(shape)}])"


def scattered(w, x, value, axis, places):
    """Every element looks whether it is one of those that are assigned."""
    start, step, m = places
    first, n = spelled(w, start), w.shape(x)[axis]
    away = f"(arange({n}) - {w.factor(first)})" if start != 0 else f"arange({n})"
    hit = f"{away} >= 0 and {away} < {spelled(w, m * step)} and {away} % {step} == 0"
    at = f"minimum(maximum({away} // {step}, 0), {spelled(w, m - 1)})"
    after = ", ".join([":"] + ["none"] * (w.rank(x) - axis - 1))
    value = f"({value})[{at}]" if axis == 0 else f"transpose(transpose({value}, 0, {axis})[{at}], 0, {axis})"
    return f"where(({hit})[{after}], {value}, {w.text(x)})"


@aten("select_scatter")
def select_scatter(w, node, x, value, axis, i):
    axis = w.axis(x, axis)
    n, i = expression(x.meta["val"].shape[axis]), expression(i)
    i = n + i if i.is_Integer and i < 0 else i
    value = f"({w.cast(value, w.dtype(x))})[{', '.join([':'] * axis + ['none'])}]"
    return replaced(w, x, value, axis, i, i + 1)


@aten("index_put", "_unsafe_index_put", "index_put_")
def index_put(w, node, x, indices, values, accumulate=False):
    given = [(axis, i) for axis, i in enumerate(indices) if i is not None]
    kind = node.meta["val"].dtype
    if w.dtype(given[0][1]) == torch.bool:
        return masked(w, x, given, values, accumulate)
    rows, at, rest = as_rows(w, x, given)
    axes, dims = [axis for axis, _ in given], w.shape(x)
    spread = broadcast(w, [i for _, i in given])
    many, n = " * ".join(map(w.factor, spread)) or "1", " * ".join(w.factor(dims[a]) for a in axes)
    names = [f"i{k}" for k in range(len(spread))]
    first = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    order = [a for a in rest if a < first] + names + [a for a in rest if a >= first]
    shape = [dims[a] if isinstance(a, int) else spread[int(a[1:])] for a in order]
    given_values = moved(f"({expanded(w, values, kind, shape)})", order, names + rest)
    given_values = f"reshape({given_values}, [{', '.join([many, *(dims[a] for a in rest)])}])"
    at = at if len(spread) == 1 else f"reshape({at}, [{many}])"
    at = f"arange({n})[{at}]"  # an index beyond the end is an error of the run
    marks, numel = ", none" * len(rest), Type("i32", [n])
    hit = f"({at})[none, :] == arange({n})[:, none]"
    if accumulate:
        made = f"{rows} + sum(where(({hit})[:, :{marks}], ({given_values})[none], {w.cast(0, kind)}), 1)"
    else:
        last = f"t_{node.name}_last"
        w.say(f"max(where({hit}, arange({many}), -1), 1)", {last: numel})
        made = f"where(({last} >= 0)[:{marks}], ({given_values})[maximum({last}, 0)], {rows})"
    if len(axes) > 1:
        made = f"reshape({made}, [{', '.join(dims[a] for a in axes + rest)}])"
    return moved(f"({made})", axes + rest, range(len(dims)))


def broadcast(w, tensors):
    """The shape of tensors together."""
    shapes = [w.shape(x)[::-1] for x in tensors]
    return [next((s[k] for s in shapes if k < len(s) and s[k] != "1"), "1") for k in range(max(map(len, shapes)))][::-1]


def masked(w, x, given, values, accumulate):
    """One number, or one value of the axes behind, where a mask is true, whose axes are those of x from the given one on."""
    (axis, mask), kind = given[0], w.dtype(x)
    more = max(0, w.rank(values) - (w.rank(x) - axis - w.rank(mask)))
    if len(given) > 1 or any(n != "1" for n in w.shape(values)[:more]):
        w.no("an assignment of several values to what booleans choose", "use torch.where")
    marks = ", ".join([":"] * w.rank(mask) + ["none"] * (w.rank(x) - axis - w.rank(mask)))
    value = w.cast(values, kind)
    value = f"({value})[{', '.join(['0'] * more)}]" if more else value
    value = f"{w.text(x)} + {value}" if accumulate else value
    return f"where(({w.text(mask)})[{marks}], {value}, {w.text(x)})"


@aten("as_strided")
def as_strided(w, node, x, shape, strides, offset=None):
    """Elements of a tensor whose elements lie in order, by their numbers."""
    value = x.meta["val"]
    if not all(isinstance(n, int) for n in [*value.shape, *shape, *strides]) or not value.is_contiguous() or (
            value.storage_offset() or w.operation(x) in ("slice", "select", "transpose", "permute", "expand")):
        w.no("as_strided of a tensor of a size that runs choose, or that is a part of another", "use slices, or unfold")
    at = " + ".join([f"(arange({n}) * {step})" + (f"[:{', none' * (len(shape) - 1 - i)}]" if i < len(shape) - 1 else "")
                     for i, (n, step) in enumerate(zip(shape, strides))] + ([str(offset)] if offset else []))
    return f"reshape({w.text(x)}, [{value.numel()}])[{at or '0'}]"
