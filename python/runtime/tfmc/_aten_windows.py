"""Windows along axes: pooling, unfold, padding of every mode, transposed convolutions.

Rules are those of _aten.py. Refused are ceil_mode, dilated pooling, and pieces of an axis whose size runs choose.
"""
import torch

from ._aten import aten
from ._aten_einsum import moved


def one(value, i=0):
    """The number for an axis of an option that is a number or a list."""
    return value if isinstance(value, int) else value[0] if len(value) == 1 else value[i]


def before_last(text, rank, write):
    """What `write` does with the last axis, done with the one before it."""
    return f"transpose({write(f'transpose({text}, -1, -2)')}, -1, -2)"


def pooled(w, name, options, ceil, more=""):
    if ceil:
        w.no("pooling with ceil_mode", "pad before")
    size, stride, padding = options
    step = one(stride, 0) if stride not in (None, []) else one(size)
    return lambda text: f"{name}({text}, {one(size)}, {step}, {one(padding)}{more})"


@aten("avg_pool1d", "avg_pool2d")
def avg_pool(w, node, x, size, stride=None, padding=0, ceil=False, count=True, divisor=None):
    text, two = w.text(x), node.target.__name__.startswith("avg_pool2d")
    if divisor is not None or two and not count and any(p for p in [padding] if p not in (0, [0], [0, 0])):
        w.no("this pooling's divisor", "leave out divisor_override and count_include_pad")
    more = "" if count else ", false"
    pick = [[one(v, i) if v not in (None, []) else None for v in (size, stride, padding)] for i in range(2)]
    if two:
        text = before_last(text, w.rank(x), pooled(w, "avg_pool1d", pick[0], ceil))
    return pooled(w, "avg_pool1d", pick[int(two)], ceil, more)(text)


@aten("max_pool1d", "max_pool2d")
def max_pool(w, node, x, size, stride=None, padding=0, dilation=1, ceil=False):
    text, two = w.text(x), node.target.__name__.startswith("max_pool2d")
    if any(one(dilation, i) != 1 for i in range(2)):
        w.no("dilated pooling", "use slices")
    pick = [[one(v, i) if v not in (None, []) else None for v in (size, stride, padding)] for i in range(2)]
    text = pooled(w, "max_pool1d", pick[int(two)], ceil)(text)  # rows first: the first of equal ones has the gradient
    return before_last(text, w.rank(x), pooled(w, "max_pool1d", pick[0], ceil)) if two else text


@aten("adaptive_avg_pool1d", "adaptive_avg_pool2d", "_adaptive_avg_pool2d", "adaptive_max_pool1d", "adaptive_max_pool2d")
def adaptive_pool(w, node, x, sizes):
    """Each output is that of a piece; pieces differ by one if the axis is no multiple."""
    function, text = "max" if "max" in node.target.__name__ else "mean", w.text(x)

    def pieces(n, m):
        if m == 1:
            return lambda part: f"{function}({part}, -1, true)"
        if not isinstance(n, int):
            w.no("an adaptive pooling of an axis whose size runs choose", "pool to 1, or use avg_pool1d")
        spans = [(i * n // m, -(-(i + 1) * n // m)) for i in range(m)]
        return lambda part: "concat(" + ", ".join(f"{function}(({part})[..., {a}:{b}], -1, true)" for a, b in spans) + ")"
    shape, made = x.meta["val"].shape, node.meta["val"]
    value = made[0] if isinstance(made, (tuple, list)) else made
    text = pieces(shape[-1], value.shape[-1])(text)
    if "2d" in node.target.__name__:
        text = before_last(text, w.rank(x), pieces(shape[-2], value.shape[-2]))
    if value is made:
        return text
    w.result(node, 0, text)
    return None


@aten("unfold")
def unfold(w, node, x, axis, size, step):
    return f"unfold({w.text(x)}, {w.axis(x, axis)}, {w.text(size)}, {w.text(step)})"


# ---- padding ----

@aten("pad", "constant_pad_nd", "_pad_circular", "reflection_pad1d", "reflection_pad2d", "replication_pad1d",
      "replication_pad2d")
def pad(w, node, x, widths, *rest):
    name = node.target.__name__.split(".")[0]
    mode = {"_pad_circular": "circular", "reflection_pad1d": "reflect", "reflection_pad2d": "reflect",
            "replication_pad1d": "replicate", "replication_pad2d": "replicate"}.get(name, "constant")
    if rest and isinstance(rest[0], str):
        mode, rest = rest[0], rest[1:]
    if mode != "constant":
        return repeated_ends(w, x, mode, widths)
    value, kind = (rest[0] if rest and rest[0] is not None else 0.0), node.meta["val"].dtype
    text = w.cast(x, torch.float32)
    if any(isinstance(n, int) and n < 0 for n in widths):  # negative widths cut
        text = f"({text})[{', '.join(cuts(w, x, widths))}]"
        widths = [max(n, 0) if isinstance(n, int) else n for n in widths]
    if any(n != 0 for n in widths if isinstance(n, int)) or not all(isinstance(n, int) for n in widths):
        text = f"pad({text}, [{', '.join(map(w.text, widths))}], {w.text(float(value))})"
    return w.as_kind(text, torch.float32, kind)


def cuts(w, x, widths):
    marks = [":"] * w.rank(x)
    for i in range(len(widths) // 2):
        before, after = (-n if isinstance(n, int) and n < 0 else 0 for n in widths[2 * i:2 * i + 2])
        marks[w.rank(x) - 1 - i] = f"{before or ''}:{-after if after else ''}"
    return marks


def repeated_ends(w, x, mode, widths):
    text, rank = w.text(x), w.rank(x)
    for i in range(len(widths) // 2):
        axis, (before, after) = rank - 1 - i, widths[2 * i:2 * i + 2]
        if not all(isinstance(n, int) and n >= 0 for n in (before, after)):
            w.no(f"padding by {mode} with widths that are negative or that runs choose", 'use mode="constant"')
        n, lead = w.factor(w.shape(x)[axis]), "".join([":, "] * axis)
        parts = [part for part in ends(mode, n, before, after) if part]
        made = [text if part == ":" else f"flip(({text})[{lead}{part[1:]}], {axis})" if part[0] == "~"
                else f"expand(({text})[{lead}{part[1:]}], [{', '.join(['-1'] * axis + [str(count)] + ['-1'] * (rank - axis - 1))}])"
                if part[0] == "*" else f"({text})[{lead}{part}]"
                for part, count in zip(parts, counts(before, after))]
        text = f"concat({', '.join(made)}, axis = {axis})" if len(made) > 1 else made[0]
    return text


def counts(before, after):
    return ([before] if before else []) + [0] + ([after] if after else [])


def ends(mode, n, before, after):
    """What stands before, in and behind an axis of n: slices, `~` for those turned round, `*` for one repeated."""
    if mode == "circular":
        return f"{n} - {before}:" if before else "", ":", f":{after}" if after else ""
    if mode == "reflect":
        return (f"~1:{before + 1}" if before else "", ":", f"~{n} - {after + 1}:{n} - 1" if after else "")
    return ("*:1" if before else "", ":", f"*{n} - 1:" if after else "")


# ---- transposed convolutions ----

@aten("conv_transpose1d")
def conv_transpose1d(w, node, x, weight, bias=None, stride=1, padding=0, more=0, groups=1, dilation=1):
    if groups != 1 or w.rank(x) != 3:
        w.no("a transposed convolution of groups, or of one item", "use groups=1 and a batch")
    numbers = ", ".join(str(one(v)) for v in (stride, padding, more, dilation))
    return f"conv_transpose1d({w.text(x)}, {w.text(weight)}, {w.text(bias)}, {numbers})"


@aten("conv_transpose2d")
def conv_transpose2d(w, node, x, weight, bias=None, stride=1, padding=0, more=0, groups=1, dilation=1):
    """Kernels as large as the stride (upsampling in U-Nets) are a product and a reshape."""
    kernel, s = weight.meta["val"].shape[2:], [one(stride, i) for i in range(2)]
    plain = all(one(padding, i) == 0 and one(more, i) == 0 and one(dilation, i) == 1 and s[i] == kernel[i] for i in range(2))
    if not plain or groups != 1 or w.rank(x) != 4:
        w.no("a transposed convolution in two directions whose windows overlap", "use a kernel as large as the stride")
    batch, channels, rows, columns = w.shape(x)
    out = w.shape(weight)[1]
    lines = moved(w.text(x), range(4), [0, 2, 3, 1])
    wide = f"{lines} @ reshape({w.text(weight)}, [{channels}, {int(out) * kernel[0] * kernel[1]}])"
    apart = f"reshape({wide}, [{batch}, {rows}, {columns}, {out}, {kernel[0]}, {kernel[1]}])"
    made = f"reshape({moved(apart, range(6), [0, 3, 1, 4, 2, 5])}, [{', '.join(w.shape(node))}])"
    return made if bias is None else f"{made} + {w.text(bias)}[:, none, none]"
