"""The table of ATen operations: how each is written as an expression of a .tfm text.

What comes in is a node of an exported graph with its arguments, and the Writer of _export.py that knows the names of
values and the sizes; what goes out is the text of one expression. An operation with several results names them itself
and gives None. Refuses by w.no(...) what the language cannot say.
"""
import math

import torch

WHOLE = (torch.int64, torch.int32)
ATEN = {}  # name of the operation, without its overload -> function(writer, node, *arguments)


def aten(*names):
    def enter(function):
        ATEN.update(dict.fromkeys(names, function))
        return function
    return enter


def plain(text):
    """An operation of tensors alone, whatever else its arguments say."""
    return lambda w, node, *xs, **named: text.format(*(w.text(x) for x in xs))


for name in "exp log sqrt rsqrt sin cos tanh sigmoid erf relu silu floor ceil round mish relu6 selu hardswish".split():
    ATEN[name] = plain(name + "({0})")
for name in "contiguous clone detach detach_ alias lift_fresh_copy alias_copy lift_fresh".split():
    ATEN[name] = plain("{0}")
ATEN.update(dict.fromkeys(("matmul", "bmm", "mm"), plain("{0} @ {1}")))
ATEN.update(linear=lambda w, node, *xs: f"linear({', '.join(w.text(x) for x in xs if x is not None)})",
            hardsigmoid=plain("hardsigmoid({0})"), log_sigmoid=plain("logsigmoid({0})"), sign=plain("sign({0})"),
            sgn=plain("sign({0})"), logical_not=plain("not {0}"), bitwise_not=plain("not {0}"), neg=plain("-{0}"),
            square=plain("{0} * {0}"), reciprocal=plain("1.0 / {0}"), expm1=plain("exp({0}) - 1.0"))


@aten("dropout", "feature_dropout", "native_dropout")
def dropped(w, node, x, probability, train):
    if train and probability:
        w.no("a dropout that is on although the module is in eval mode",
             "give functional.dropout training=self.training")
    return w.text(x)


# ---- elementwise ----

def promoted(w, x, y):
    """The type in which torch computes x op y."""
    kinds = [w.dtype(v) for v in (x, y) if w.dtype(v) is not None]
    kind = torch.promote_types(*kinds) if len(kinds) == 2 else kinds[0]
    number = y if w.dtype(y) is None else x if w.dtype(x) is None else None
    if isinstance(number, (float, torch.SymFloat)) and kind != torch.float32:
        return torch.float32
    return torch.int64 if kind == torch.bool and isinstance(number, int) and not isinstance(number, bool) else kind


def arithmetic(sign):
    def write(w, node, x, y, alpha=1, rounding_mode=None):
        kind = node.meta["val"].dtype
        if kind == torch.bool:
            return f"{w.cast(x, kind)} {'and' if sign == '*' else 'or'} {w.cast(y, kind)}"
        if rounding_mode is not None:
            return divided(w, node, x, y, rounding_mode)
        left, right = w.cast(x, kind), w.cast(y, kind)
        return f"{left} {sign} {right}" if alpha == 1 else f"{left} {sign} {right} * {w.cast(alpha, kind)}"
    return write


def divided(w, node, x, y, rounding):
    kind = node.meta["val"].dtype
    if kind in WHOLE:
        if rounding != "floor":
            w.no("a division of integers that rounds to zero", 'use rounding_mode="floor"')
        return f"{w.cast(x, kind)} // {w.cast(y, kind)}"
    if rounding != "floor":
        w.no("a division that rounds to zero", "use torch.floor")
    return f"floor({w.cast(x, kind)} / {w.cast(y, kind)})"


def compared(sign):
    def write(w, node, x, y):
        kind = promoted(w, x, y)
        kind = torch.int64 if kind == torch.bool else kind
        return f"{w.cast(x, kind)} {sign} {w.cast(y, kind)}"
    return write


def logical(sign):
    def write(w, node, x, y):
        if node.meta["val"].dtype != torch.bool:
            w.no("an operation on the bits of integers", "use comparisons and booleans")
        return f"{w.cast(x, torch.bool)} {sign} {w.cast(y, torch.bool)}"
    return write


ATEN.update(add=arithmetic("+"), sub=arithmetic("-"), mul=arithmetic("*"), div=arithmetic("/"),
            rsub=lambda w, node, x, y, alpha=1: arithmetic("-")(w, node, y, x, alpha),
            floor_divide=lambda w, node, x, y: divided(w, node, x, y, "floor"))
ATEN.update({name: compared(sign) for name, sign in dict(eq="==", ne="!=", lt="<", gt=">", le="<=", ge=">=").items()})
ATEN.update({name: logical("and") for name in ("bitwise_and", "logical_and", "__and__")})
ATEN.update({name: logical("or") for name in ("bitwise_or", "logical_or", "__or__")})


@aten("maximum", "minimum", "fmax", "fmin")
def extreme(w, node, x, y):
    name = "maximum" if "max" in node.target.__name__ else "minimum"
    kind = node.meta["val"].dtype
    return f"{name}({w.cast(x, kind)}, {w.cast(y, kind)})"


@aten("remainder")
def remainder(w, node, x, y):
    kind = node.meta["val"].dtype
    left, right = w.cast(x, kind), w.cast(y, kind)
    return f"{left} % {right}" if kind in WHOLE else f"{left} - {right} * floor({left} / {right})"


@aten("abs")
def absolute(w, node, x):
    return f"abs({w.text(x)})" if w.dtype(x) == torch.float32 else f"maximum({w.text(x)}, -{w.text(x)})"


@aten("pow")
def power(w, node, x, y):
    kind = node.meta["val"].dtype
    if kind in WHOLE and not (isinstance(y, int) and y >= 0):
        w.no("a power of integers with a tensor", "convert the base with .float()")
    return f"{w.cast(x, kind)} ** {w.cast(y, kind)}"


@aten("hardtanh")
def hardtanh(w, node, x, low=-1, high=1):
    return clamp(w, node, x, low, high)


@aten("clamp", "clamp_min", "clamp_max")
def clamp(w, node, x, low=None, high=None, *, min=None, max=None):
    if "clamp_max" in node.target.__name__:
        low, high = None, low
    kind, text = node.meta["val"].dtype, w.cast(x, node.meta["val"].dtype)
    for bound, function in ((min if low is None else low, "maximum"), (max if high is None else high, "minimum")):
        text = text if bound is None else f"{function}({text}, {w.cast(bound, kind)})"
    return text


@aten("gelu")
def gelu(w, node, x, approximate="none"):
    return f"{'gelu' if approximate == 'none' else 'gelu_tanh'}({w.text(x)})"


@aten("leaky_relu", "elu", "softplus")
def activation(w, node, x, *numbers):
    name = node.target.__name__.split(".")[0]
    if len(numbers) > 1 and (name != "softplus" or numbers[1] != 20):
        w.no(f"{name} with {len(numbers)} numbers", "write it with exp")
    return f"{name}({', '.join(map(w.text, (x, *numbers[:1])))})"


@aten("to", "_to_copy", "type_as")
def converted(w, node, x, *rest, **named):
    return w.cast(x, node.meta["val"].dtype)


@aten("where")
def where(w, node, c, x=None, y=None):
    if x is None:
        w.no("torch.where of one tensor, whose result's size depends on values", "give it the two tensors to choose of")
    kind = node.meta["val"].dtype
    if kind == torch.bool:
        return f"{w.text(c)} and {w.cast(x, kind)} or not {w.text(c)} and {w.cast(y, kind)}"
    return f"where({w.text(c)}, {w.cast(x, kind)}, {w.cast(y, kind)})"


@aten("masked_fill")
def masked_fill(w, node, x, mask, value):
    return where(w, node, mask, value, x)


# ---- products, norms, attention ----

@aten("addmm", "baddbmm")
def addmm(w, node, c, x, y, beta=1, alpha=1):
    product = f"{w.text(x)} @ {w.text(y)}" if alpha == 1 else f"({w.text(x)} @ {w.text(y)}) * {w.text(float(alpha))}"
    if beta == 0:
        return product
    return f"{product} + {w.text(c)}" + ("" if beta == 1 else f" * {w.text(float(beta))}")


@aten("einsum")
def einsum(w, node, *rest):
    w.no("torch.einsum", "write it with @ and transpose")


@aten("embedding")
def embedding(w, node, table, ids, *rest):
    return f"{w.text(table)}[{w.text(ids)}]"


@aten("layer_norm")
def layer_norm(w, node, x, shape, weight=None, bias=None, eps=1e-5, *rest):
    one_axis(w, shape)
    return f"layer_norm({w.text(x)}, {w.text(weight)}, {w.text(bias)}, {eps!r})"


@aten("rms_norm")
def rms_norm(w, node, x, shape, weight=None, eps=None):
    one_axis(w, shape)
    return f"rms_norm({w.text(x)}, {w.text(weight)}, {torch.finfo(torch.float32).eps if eps is None else eps!r})"


def one_axis(w, shape):
    if len(shape) != 1:
        w.no(f"a norm over the last {len(shape)} axes", "flatten them before")


@aten("group_norm")
def group_norm(w, node, x, groups, weight=None, bias=None, eps=1e-5, *rest):
    return f"group_norm({w.text(x)}, {groups}, {w.text(weight)}, {w.text(bias)}, {eps!r})"


@aten("batch_norm", "_native_batch_norm_legit_no_training")
def batch_norm(w, node, x, weight, bias, mean, variance, *rest):
    eps = next(v for v in reversed(rest) if isinstance(v, float))
    w.result(node, 0, f"batch_norm({', '.join(map(w.text, (x, mean, variance, weight, bias, eps)))})")
    return None if isinstance(node.meta["val"], (tuple, list)) else w.names[f"{node.name}.0"]


@aten("softmax", "_softmax", "log_softmax", "_log_softmax")
def softmax(w, node, x, axis, *rest, **named):
    name = "log_softmax" if "log" in node.target.__name__ else "softmax"
    return f"{name}({w.cast(x, torch.float32)}, {axis})"


@aten("scaled_dot_product_attention")
def attention(w, node, q, k, v, mask=None, dropout=0.0, is_causal=False, scale=None, enable_gqa=False):
    if dropout:
        w.no("attention with a dropout that is on", "give it dropout_p = 0.0 where the module is in eval mode")
    query, key, value = w.text(q), w.text(k), w.text(v)
    if enable_gqa and w.shape(q)[-3] != w.shape(k)[-3]:  # each head of keys is that of several queries in a row
        key, value = (repeated(w, x, int(w.shape(q)[-3]) // int(w.shape(x)[-3])) for x in (k, v))
    scale = 1 / math.sqrt(q.meta["val"].shape[-1]) if scale is None else scale
    scores = f"({query} @ transpose({key}, -1, -2)) * {w.text(float(scale))}"
    if is_causal:
        scores = f"where(causal_mask({query}, {key}), -inf, {scores})"
    if mask is not None and w.dtype(mask) == torch.bool:
        scores = f"where({w.text(mask)}, {scores}, -inf)"
    elif mask is not None:
        scores = f"{scores} + {w.text(mask)}"
    return f"softmax({scores}) @ {value}"


def repeated(w, x, times):
    *lead, heads, n, width = w.shape(x)
    apart = ", ".join([*lead, heads, str(times), n, width])
    marks = ", ".join([":"] * (len(lead) + 1) + ["none"])
    together = ", ".join([*lead, str(int(heads) * times), n, width])
    return f"reshape(expand({w.text(x)}[{marks}], [{apart}]), [{together}])"


@aten("conv1d", "conv2d")
def convolution(w, node, x, weight, bias=None, stride=(1,), padding=(0,), dilation=(1,), groups=1):
    name = node.target.__name__.split(".")[0]
    options = {"stride": stride, "padding": padding, "dilation": dilation}

    def number(value):
        if isinstance(value, str):
            return f'"{value}"'
        if isinstance(value, int) or len(set(value)) == 1:
            return str(value if isinstance(value, int) else value[0])
        return str(list(value))
    said = "".join(f", {key} = {number(value)}" for key, value in options.items())
    return f"{name}({w.text(x)}, {w.text(weight)}, {w.text(bias)}{said}, groups = {groups})"


# ---- reductions ----

def reduced(w, function, x, axes, keepdim, kind):
    text = w.cast(x, kind)
    axes = list(range(w.rank(x))) if axes in (None, []) else [axes] if isinstance(axes, int) else axes
    for axis in sorted((w.axis(x, a) for a in axes), reverse=True):
        text = f"{function}({text}, {axis}, {w.text(bool(keepdim))})"
    return text


def reduction(function):
    return lambda w, node, x, axes=None, keepdim=False, **named: reduced(
        w, function, x, axes, keepdim, node.meta["val"].dtype)


ATEN.update(sum=reduction("sum"), mean=reduction("mean"), amax=reduction("max"), amin=reduction("min"),
            any=reduction("any"), all=reduction("all"), logsumexp=reduction("logsumexp"))


@aten("var", "std")
def variance(w, node, x, axes=None, unbiased=True, keepdim=False, *, correction=None):
    axis = axes[0] if isinstance(axes, (list, tuple)) and len(axes) == 1 else axes
    if not isinstance(axis, int):
        w.no("a variance over several axes", "flatten them before")
    less = int(unbiased) if correction is None else correction
    n, away = w.shape(x)[w.axis(x, axis)], f"({w.text(x)} - mean({w.text(x)}, {axis}, true))"
    made = f"sum({away} * {away}, {axis}, {w.text(bool(keepdim))}) / f32({w.factor(n)} - {less})"
    return f"sqrt({made})" if node.target.__name__.startswith("std") else made


@aten("max", "min")
def greatest(w, node, x, axis=None, keepdim=False):
    function = node.target.__name__[:3]
    if isinstance(axis, torch.fx.Node):
        return f"{function}imum({w.text(x)}, {w.text(axis)})"
    if axis is None:
        return reduced(w, function, x, None, False, w.dtype(x))
    w.result(node, 0, reduced(w, function, x, axis, keepdim, w.dtype(x)))
    marks = ", ".join([":"] * w.axis(x, axis) + ["none"]) if keepdim else ""
    at = f"argmax({w.text(x) if function == 'max' else '-' + w.text(x)}, {axis})"
    w.result(node, 1, f"({at})[{marks}]" if keepdim else at)


@aten("argmax")
def argmax(w, node, x, axis=None, keepdim=False):
    if axis is None or keepdim:
        w.no("argmax without an axis, or that keeps it", "give dim=, and unsqueeze its result")
    return f"argmax({w.text(x)}, {axis})"


@aten("cumsum")
def cumsum(w, node, x, axis, **named):
    if x in w.uniform:  # positions, counted in a mask of ones: generation keeps caches
        axis, kind = w.axis(x, axis), node.meta["val"].dtype
        marks = ", ".join(":" if a == axis else "none" for a in range(w.rank(x)))
        counted = w.as_kind(f"((arange({w.shape(x)[axis]}) + 1)[{marks}])", torch.int64, kind)
        return f"expand({counted} * {w.cast(w.uniform[x], kind)}, [{', '.join(w.shape(node))}])"
    return f"cumsum({w.cast(x, node.meta['val'].dtype)}, {axis})"


@aten("topk")
def topk(w, node, x, k, axis=-1, largest=True, *rest):
    if not largest:
        w.no("topk of the smallest", "negate what it looks at")
    w.lines.append(f"    t_{node.name}_0, t_{node.name}_1 = topk({w.text(x)}, {w.text(k)}, {axis})")
    w.names[f"{node.name}.0"], w.names[f"{node.name}.1"] = f"t_{node.name}_0", f"t_{node.name}_1"


# ---- shapes and places ----

@aten("view", "reshape", "_unsafe_view", "flatten", "unflatten", "view_as", "reshape_as", "_reshape_alias")
def view(w, node, x, *rest):
    return f"reshape({w.text(x)}, [{', '.join(w.shape(node))}])"


@aten("expand", "expand_as")
def expand(w, node, x, *rest, **named):
    return w.text(x) if w.shape(x) == w.shape(node) else f"expand({w.text(x)}, [{', '.join(w.shape(node))}])"


@aten("transpose", "swapaxes")
def transpose(w, node, x, i, j):
    return f"transpose({w.text(x)}, {i}, {j})"


@aten("t", "numpy_T", "mT")
def turned(w, node, x):
    return f"transpose({w.text(x)}, -2, -1)" if w.rank(x) >= 2 else w.text(x)


@aten("permute")
def permute(w, node, x, order):
    return w.permuted(x, [w.axis(x, n) for n in order])


@aten("unsqueeze")
def unsqueeze(w, node, x, axis):
    return w.at(x, w.axis(node, axis), "none")


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
        return w.text(x)
    first = "" if start in (None, 0) else w.text(start)
    whole = end is None or isinstance(end, int) and (end > 1 << 62 or isinstance(n, int) and end >= n)
    last = "" if whole else w.text(end)
    if isinstance(start, int) and isinstance(n, int) and start < -n:
        first = ""
    return w.at(x, axis, f"{first}:{last}" + ("" if step == 1 else f":{step}"))


@aten("select")
def select(w, node, x, axis, i):
    return w.at(x, w.axis(x, axis), w.text(i))


@aten("split", "split_with_sizes", "chunk", "tensor_split")
def split(w, node, x, widths, axis=0):
    axis, place = w.axis(x, axis), 0
    for i, part in enumerate(node.meta["val"]):
        if not isinstance(part.shape[axis], int):
            w.no("a split of a size that is known when running alone", "use slices")
        w.result(node, i, w.at(x, axis, f"{place}:{place + part.shape[axis]}"))
        place += part.shape[axis]


@aten("unbind")
def unbind(w, node, x, axis=0):
    for i in range(len(node.meta["val"])):
        w.result(node, i, w.at(x, w.axis(x, axis), str(i)))


@aten("cat", "concat")
def cat(w, node, xs, axis=0):
    kind = node.meta["val"].dtype
    xs = [x for x in xs if tuple(x.meta["val"].shape) != (0,)]
    return f"concat({', '.join(w.cast(x, kind) for x in xs)}, axis = {axis})"


@aten("stack")
def stack(w, node, xs, axis=0):
    return f"stack({', '.join(map(w.text, xs))}, axis = {axis})"


@aten("repeat_interleave")
def repeat_interleave(w, node, x, times, axis=None, **named):
    if not isinstance(times, int) or axis is None:
        w.no("repeat_interleave with a tensor, or without an axis", "give a number and dim=")
    axis, shape = w.axis(x, axis), w.shape(x)
    apart = ", ".join([*shape[:axis + 1], str(times), *shape[axis + 1:]])
    return f"reshape(expand({w.at(x, axis + 1, 'none')}, [{apart}]), [{', '.join(w.shape(node))}])"


@aten("repeat")
def repeat(w, node, x, times):
    shape = ["1"] * (len(times) - w.rank(x)) + w.shape(x)
    before = ", ".join(f"1, {n}" for n in shape)
    after = ", ".join(f"{w.text(t)}, {n}" for t, n in zip(times, shape))
    return f"reshape(expand(reshape({w.text(x)}, [{before}]), [{after}]), [{', '.join(w.shape(node))}])"


@aten("roll", "flip")
def rolled(w, node, x, *numbers):
    lists = [[n] if isinstance(n, int) else list(n) for n in numbers]
    name, text = node.target.__name__.split(".")[0], w.text(x)
    if name == "roll" and len(lists) < 2:
        w.no("roll without axes", "give dims=")
    for each in zip(*lists):
        text = f"{name}({text}, {', '.join(map(w.text, each))})"
    return text


@aten("pad", "constant_pad_nd")
def pad(w, node, x, widths, *rest):
    if rest and isinstance(rest[0], str):
        if rest[0] != "constant":
            w.no(f"padding by {rest[0]}", 'use mode="constant"')
        rest = rest[1:]
    value = rest[0] if rest and rest[0] is not None else 0.0
    made = f"pad({w.cast(x, torch.float32)}, [{', '.join(map(w.text, widths))}], {w.text(float(value))})"
    return w.as_kind(made, torch.float32, node.meta["val"].dtype)


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


@aten("index_select")
def index_select(w, node, x, axis, ids):
    return taken(w, x, w.axis(x, axis), ids)


def taken(w, x, axis, ids):
    """Elements along one axis by a row of ids: that axis comes to the front and goes back."""
    if axis == 0:
        return f"{w.text(x)}[{w.text(ids)}]"
    return f"transpose(transpose({w.text(x)}, 0, {axis})[{w.text(ids)}], 0, {axis})"


@aten("index")
def index(w, node, x, indices):
    given = [i for i in indices if i is not None]
    if any(w.dtype(i) == torch.bool for i in given):
        w.no("an index by booleans, whose result's size depends on values", "use torch.where")
    if len(given) == 1 and (indices[0] is not None or w.rank(given[0]) == 1):
        return taken(w, x, len(indices) - 1, given[0])
    if len(given) == len(indices) == w.rank(x) and all(i in w.iota for i in given):
        made = places(w, node, x, given)
        if made:
            return made
    if len(given) == len(indices):  # x[i, j]: rows of x with its first axes as one
        shape, at = w.shape(x), "0"
        for n, i in zip(map(w.factor, shape), given):
            from_end = "" if i in w.iota else f" + i32({w.text(i)} < 0) * {n}"
            at = f"({at}) * {n} + {w.text(i)}{from_end}" if at != "0" else f"{w.text(i)}{from_end}"
        first = " * ".join(map(w.factor, shape[:len(given)]))
        return f"reshape({w.text(x)}, [{', '.join([first, *shape[len(given):]])}])[{at}]"
    w.no("an index with tensors for axes that are not the first", "permute them to the front before")


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


# ---- tensors from nothing ----

@aten("arange")
def arange(w, node, *args, **named):
    start, step = (args[0] if len(args) > 1 else 0), (args[2] if len(args) > 2 else 1)
    kind, made = node.meta["val"].dtype, f"arange({w.shape(node)[0]})"
    made = w.as_kind(made, torch.int64, kind)
    made = made if step == 1 else f"{made} * {w.cast(step, kind)}"
    return made if start == 0 else f"{made} + {w.cast(start, kind)}"


def filled(w, node, value):
    kind = node.meta["val"].dtype
    return w.as_kind(f"full([{', '.join(w.shape(node))}], {w.text(float(value))})", torch.float32, kind)


@aten("full", "new_full", "full_like")
def full(w, node, x, *rest, **named):
    if isinstance(rest[-1], torch.fx.Node):
        w.no("a tensor filled with a value", "use expand")
    return filled(w, node, rest[-1])


ATEN.update(dict.fromkeys(("zeros", "new_zeros", "zeros_like"), lambda w, node, *a, **k: filled(w, node, 0)))
ATEN.update(dict.fromkeys(("ones", "new_ones", "ones_like"), lambda w, node, *a, **k: filled(w, node, 1)))
ATEN["scalar_tensor"] = lambda w, node, value, **k: w.cast(value, node.meta["val"].dtype)
