"""Functions of numbers, places of extremes and products with vectors: the rows that most models do not need.

Rules are those of _aten.py.
"""
import math

import torch

from ._aten import ATEN, EXACT, WHOLE, argmax, aten, of_floats, shared, tensor

ATEN.update(log1p=of_floats("log1p({0})"), expm1=of_floats("expm1({0})"), isnan=of_floats("{0} != {0}"),
            tan=of_floats("sin({0}) / cos({0})"), isinf=of_floats("abs({0}) == inf"), isfinite=of_floats("abs({0}) < inf"),
            log2=of_floats("log({0}) / 0.6931471805599453"), log10=of_floats("log({0}) / 2.302585092994046"),
            cosh=of_floats("(exp({0}) + exp(-{0})) * 0.5"), sinh=of_floats("(expm1({0}) - expm1(-{0})) * 0.5"))


@aten("exp2")
def exp2(w, node, x):
    return f"2.0 ** {w.cast(x, torch.float32)}"


@aten("celu")
def celu(w, node, x, alpha=1.0):
    text, alpha = w.cast(x, torch.float32), float(alpha)
    return f"elu({text})" if alpha == 1 else f"elu({text} / {alpha!r}) * {alpha!r}"


@aten("sinc", "special_sinc")
def sinc(w, node, x):
    text, angle = w.cast(x, torch.float32), f"t_{node.name}_angle"  # never 0: there the quotient has no gradient
    w.say(f"where({text} == 0.0, 1.0, {text} * {math.pi!r})", {angle: node.meta["val"]})
    return f"where({text} == 0.0, 1.0, sin({angle}) / {angle})"


@aten("trunc", "fix")
def trunc(w, node, x):
    return w.text(x) if w.dtype(x) in WHOLE else f"trunc({w.text(x)})"


@aten("frac")
def frac(w, node, x):
    return f"{w.text(x)} - trunc({w.text(x)})"


@aten("fmod")
def fmod(w, node, x, y):
    kind = node.meta["val"].dtype
    if kind == torch.float32:
        return f"fmod({tensor(w, x)}, {tensor(w, y)})"
    left, right = w.cast(x, kind), w.cast(y, kind)
    rest = f"{left} % {right}"  # its sign is that of the divisor
    sign = str(int(y < 0)) if isinstance(y, int) else f"i32({right} < 0)"
    return f"where({rest} != 0 and i32({left} < 0) != {sign}, {rest} - {right}, {rest})"


@aten("logical_xor", "bitwise_xor", "__xor__")
def xor(w, node, x, y):
    if node.meta["val"].dtype != torch.bool:
        w.no("an operation on the bits of integers", "use comparisons and booleans")
    return " != ".join(f"i32({w.cast(v, torch.bool)})" if w.dtype(v) is not None else str(int(bool(v))) for v in (x, y))


@aten("addcmul", "addcdiv")
def add_product(w, node, c, x, y, value=1):
    kind, sign = node.meta["val"].dtype, "*" if "mul" in node.target.__name__ else "/"
    scale = "" if value == 1 else f"{w.cast(value, kind)} * "
    return f"{w.cast(c, kind)} + {scale}{w.cast(x, kind)} {sign} {w.cast(y, kind)}"


@aten("lerp")
def lerp(w, node, x, y, weight):
    return f"{w.text(x)} + {w.cast(weight, torch.float32)} * ({w.text(y)} - {w.text(x)})"


@aten("nan_to_num")
def nan_to_num(w, node, x, nan=None, high=None, low=None):
    if w.dtype(x) != torch.float32:
        return w.text(x)
    most = torch.finfo(torch.float32).max
    nan, high, low = float(nan or 0), float(most if high is None else high), float(-most if low is None else low)
    text, numbers = w.text(x), [repr(v) if v >= 0 else f"({v!r})" for v in (nan, high, low)]
    return (f"where({text} != {text}, {numbers[0]}, where({text} == inf, {numbers[1]}, "
            f"where({text} == (-inf), {numbers[2]}, {text})))")


@aten("xlogy")
def xlogy(w, node, x, y):
    x, y = (w.cast(v, torch.float32) for v in (x, y))
    # where x is 0 its gradient is still log(y)
    return f"where({y} != {y}, {y}, {x} * log(where({x} == 0.0 and ({y} <= 0.0 or {y} == inf), 1.0, {y})))"


@aten("logaddexp")
def logaddexp(w, node, x, y):
    x, y = w.text(x), w.text(y)
    return f"where({x} == {y}, {x} * 0.5 + {y} * 0.5 + {math.log(2)!r}, maximum({x}, {y}) + log1p(exp(-abs({x} - {y}))))"


# ---- places of extremes ----

@aten("argmax", "argmin")
def extreme_place(w, node, x, axis=None, keepdim=False):
    function = node.target.__name__[3:6]
    if axis is None:
        if w.rank(x) == 1:
            return argmax(w, x, 0, function)
        n = " * ".join(map(w.factor, w.shape(x))) or "1"
        made = f"reshape({w.cast(x, torch.float32 if w.dtype(x) == torch.float32 else torch.int64)}, [{n}])"
        if w.dtype(x) != torch.float32:
            w.no(f"{node.target.__name__[:6]} of integers without an axis", "give dim=, after flatten()")
        return f"argmax({made if function == 'max' else '-' + made}, 0)" + (
            f"[{', '.join(['none'] * w.rank(x))}]" if keepdim else "")
    marks = f"[{', '.join([':'] * w.axis(x, axis) + ['none'])}]" if keepdim else ""
    made = argmax(w, x, axis, function)
    return f"({made}){marks}" if marks else made


def by_order(w, x, places, values):
    """What topk orders of x, what gives a text of such numbers in the type of x, and the tensors of the results: f32 holds
    integers up to 2**24, and these are ordered as it orders them."""
    kind = w.dtype(x)
    if kind in WHOLE and max(map(abs, w.bounds.value(x))) > EXACT:
        w.no(f"{w.operation(w.node)} of integers that may be beyond 2**24", "clamp them, or order what is f32")
    made = [values.to(torch.float32), places]
    return w.as_kind(w.text(x), kind, torch.float32), lambda text: w.as_kind(text, torch.float32, kind), made


@aten("topk")
def topk(w, node, x, k, axis=-1, largest=True, *rest):
    names = [f"t_{node.name}_{i}" for i in range(2)]
    text, back, made = by_order(w, x, node.meta["val"][1], node.meta["val"][0])
    w.say(f"topk({'' if largest else '-'}{text}, {w.text(k)}, {axis})", dict(zip(names, made)))
    w.names.update({f"{node.name}.0": back(names[0] if largest else f"(-{names[0]})"), f"{node.name}.1": names[1]})


@aten("sort", "argsort")
def ordered(w, node, x, *rest, stable=None, dim=None, descending=None):
    """By topk of all; equal ones keep their order, as with stable=True."""
    axis = dim if dim is not None else rest[0] if rest else -1
    falls = descending if descending is not None else rest[1] if len(rest) > 1 else False
    n = w.shape(x)[w.axis(x, axis)]
    if not n.isdigit():
        w.no("a sort along an axis whose size runs choose", "sort along another axis, or use topk")
    names, single = [f"t_{node.name}_{i}" for i in range(2)], w.operation(node) == "argsort"
    values, places = (x.meta["val"], node.meta["val"]) if single else node.meta["val"]
    text, back, made = by_order(w, x, places, values)
    w.say(f"topk({'' if falls else '-'}{text}, {n}, {axis})", dict(zip(names, made)))
    if single:
        return names[1]
    w.names.update({f"{node.name}.0": back(names[0] if falls else f"(-{names[0]})"), f"{node.name}.1": names[1]})


@aten("kthvalue", "median")
def kthvalue(w, node, x, k=None, axis=-1, keepdim=False):
    """The last of the k smallest; of the median, which counts half of them, the lower one."""
    if node.target.__name__.startswith("median"):
        if k is None and not isinstance(node.meta["val"], (tuple, list)):
            w.no("median without an axis", "give dim=, after flatten()")
        k, axis, keepdim = None, -1 if k is None else k, axis if isinstance(axis, bool) else keepdim
    axis, n = w.axis(x, axis), w.shape(x)[w.axis(x, axis)]
    if not n.isdigit():
        w.no("an order along an axis whose size runs choose", "use topk, or another axis")
    k = (int(n) + 1) // 2 if k is None else k
    names, shape = [f"t_{node.name}_{i}" for i in range(2)], x.meta["val"].shape
    many = [v.new_empty([*shape[:axis], k, *shape[axis + 1:]]) for v in node.meta["val"]]
    text, back, made = by_order(w, x, many[1], many[0])
    w.say(f"topk(-{text}, {k}, {axis})", dict(zip(names, made)))
    last = f"[{', '.join([':'] * axis)}{', ' if axis else ''}{f'{k - 1}:' if keepdim else k - 1}]"
    w.names.update({f"{node.name}.0": back(f"(-{names[0]}{last})"), f"{node.name}.1": f"({names[1]}{last})"})


@aten("cummax", "cummin")
def running_extreme(w, node, x, axis):
    """Of all elements up to each: the extreme, and the last place that has it."""
    if w.axis(x, axis) != w.rank(x) - 1 or w.signature.has_gradient(x):
        w.no(f"{w.operation(node)} of what is trained, or along another axis than the last", "transpose before, or use cumsum")
    n, function, names = w.shape(x)[-1], w.operation(node)[3:], [f"t_{node.name}_{i}" for i in range(2)]
    rows, seen = f"({w.text(x)})[..., none, :]", f"arange({n})[:, none] >= arange({n})"
    values, places = node.meta["val"]
    w.say(f"{function}(where({seen}, {rows}, ({w.text(x)})[..., :1][..., none]), -1)", {names[0]: values})
    w.names.update({f"{node.name}.{i}": name for i, name in enumerate(names)})
    if any(user.args[1] == 1 for user in node.users):
        w.say(f"max(where({seen} and {rows} == {names[0]}[..., none], arange({n}), 0), -1)", {names[1]: places})


# ---- made of numbers ----

@aten("eye")
def eye(w, node, *sizes, **named):
    n, m = w.shape(node)
    return w.as_kind(f"arange({n})[:, none] == arange({m})[none, :]", torch.bool, node.meta["val"].dtype)


@aten("one_hot")
def one_hot(w, node, ids, n=-1):
    return f"i32({w.text(ids)}[{', '.join([':'] * w.rank(ids) + ['none'])}] == arange({w.shape(node)[-1]}))"


@aten("diagonal")
def diagonal(w, node, x, offset=0, first=0, second=1):
    a, b = w.axis(x, first), w.axis(x, second)
    rest = [i for i in range(w.rank(x)) if i not in (a, b)]
    n, m, k = w.shape(x)[a], w.shape(x)[b], w.shape(node)[-1]
    rows, columns = (f"arange({k})" + (f" + {less}" if less > 0 else "") for less in (-offset, offset))
    made = f"reshape({w.permuted(x, [a, b, *rest])}, [{', '.join([f'{w.factor(n)} * {w.factor(m)}', *(w.shape(x)[i] for i in rest)])}])"
    made = f"({made})[({rows}) * {w.factor(m)} + {columns}]"
    for i in range(len(rest)):
        made = f"transpose({made}, {i}, {i + 1})"
    return made


@aten("linspace")
def linspace(w, node, start, end, steps, **named):
    kind = node.meta["val"].dtype
    if kind != torch.float32:
        w.no(f"linspace in {str(kind)[6:]}", "make it in __init__, or in f32")
    first, last = w.cast(start, kind), w.cast(end, kind)
    if isinstance(start, (int, float)) and isinstance(end, (int, float)):
        step = w.text((end - start) / max(steps - 1, 1))
    else:
        step = f"(({last} - {first}) / {float(max(steps - 1, 1))})"
    back = f"{last} - f32({steps - 1} - arange({steps})) * {step}"  # as torch: from both ends
    return f"where(arange({steps}) < {steps // 2}, {first} + f32(arange({steps})) * {step}, {back})"


@aten("rrelu_with_noise_functional", "rrelu_with_noise", "rrelu")
def rrelu(w, node, x, *rest, **named):
    """In evaluation mode: the mean of the slopes."""
    rest = rest[1:] if rest and w.dtype(rest[0]) is not None else rest  # without the noise
    known = {"lower": 1 / 8, "upper": 1 / 3, "training": False, **dict(zip(("lower", "upper", "training"), rest)), **named}
    low, high, training = (known[name] for name in ("lower", "upper", "training"))
    if training:
        w.no("rrelu in training mode, which draws slopes at each call", "call eval(), or give it training=self.training")
    made = f"leaky_relu({w.text(x)}, {(low + high) / 2!r})"
    if not isinstance(node.meta["val"], (tuple, list)):
        return made
    w.result(node, 0, made)
    return None


@aten("prod")
def prod(w, node, x, axis=None, keepdim=False, **named):
    axis = axis[0] if isinstance(axis, (list, tuple)) and len(axis) == 1 else axis
    axes = range(w.rank(x)) if axis is None else axis if isinstance(axis, (list, tuple)) else [axis]
    for a in axes:
        if not w.shape(x)[w.axis(x, a)].isdigit():
            w.no("a product along an axis whose size runs choose", "add logarithms")
    if not isinstance(axis, int):
        w.no("a product over several axes", "give one dim=")
    axis, text, n = w.axis(x, axis), w.cast(x, node.meta["val"].dtype), int(w.shape(x)[w.axis(x, axis)])
    before = "".join([":, "] * axis)
    parts = " * ".join(f"({text})[{before}{i}:{i + 1}]" if keepdim else f"({text})[{before}{i}]" for i in range(n))
    return parts or filled_ones(w, node)


def filled_ones(w, node):
    return w.as_kind(f"full([{', '.join(w.shape(node))}], 1.0)", torch.float32, node.meta["val"].dtype)


@aten("count_nonzero")
def count_nonzero(w, node, x, axes=None):
    test = w.text(x) if w.dtype(x) == torch.bool else f"{w.text(x)} != {'0.0' if w.dtype(x) == torch.float32 else '0'}"
    axes = list(range(w.rank(x))) if axes is None else [axes] if isinstance(axes, int) else axes
    made = f"i32({test})"
    for axis in sorted((w.axis(x, a) for a in axes), reverse=True):
        made = f"sum({made}, {axis})"
    return made


@aten("bucketize")
def bucketize(w, node, x, bounds, *, right=False, **named):
    return searchsorted(w, node, bounds, x, right=right)


@aten("searchsorted")
def searchsorted(w, node, bounds, x, *, right=False, side=None, sorter=None, **named):
    """How many bounds are below x, or with right not above it; all if x is NaN, as in torch."""
    if sorter is not None:
        w.no("searchsorted with a sorter", "sort the bounds before")
    kind = torch.promote_types(w.dtype(bounds), torch.float32 if isinstance(x, float) else w.dtype(x) or torch.int32)
    lead = "".join([":, "] * (w.rank(bounds) - 1))
    row = f"({w.cast(bounds, kind)})[{lead}none]" if lead else w.cast(bounds, kind)
    number = w.cast(x, kind) + ("[..., none]" if isinstance(x, torch.fx.Node) and w.rank(x) else "")
    greater = ">" if right or side == "right" else ">="
    return f"sum(i32(not ({row} {greater} {number})), -1)"


@aten("aminmax")
def aminmax(w, node, x, *, dim=None, keepdim=False):
    for i, function in enumerate(("amin", "amax")):
        w.result(node, i, shared(w, function, x, dim, keepdim))


# ---- numbers made of values ----

@aten("item", "_local_scalar_dense")
def item(w, node, x):
    w.no("item(), which makes a number of a tensor's value", "compute with the tensor itself")


@aten("nonzero", "masked_select", "unique", "_unique2", "unique_consecutive", "unique_dim", "bincount")
def of_values(w, node, *args, **named):
    w.no(f"{node.target.__name__.split('.')[0]}, whose result's size depends on values", "use torch.where")


@aten("uniform", "normal_functional", "bernoulli", "rand", "randn", "randint", "rand_like", "randn_like", "randperm",
      "multinomial", "exponential", "random", "normal", "randint_like")
def random(w, node, *args, **named):
    w.no(f"{node.target.__name__.split('.')[0]}, which draws other numbers at each call",
         "make modules and weights in __init__, and give random numbers as inputs")
