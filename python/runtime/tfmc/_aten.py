"""The table of ATen operations: how each is written as an expression of a .tfm text. Here those that compute;
_aten_places.py has those that move elements, and completes the table.

What comes in is a node of an exported graph with its arguments, and the Writer of _export.py that knows the names of
values and the sizes; what goes out is the text of one expression. An operation with several results names them itself
and gives None. Refuses by w.no(...) what the language cannot say.
"""
import math

import torch

WHOLE = (torch.int64, torch.int32, torch.uint8)
EXACT = 1 << 24  # integers that f32 holds
ATEN = {}  # name of the operation, without its overload -> function(writer, node, *arguments)


def aten(*names):
    def enter(function):
        ATEN.update(dict.fromkeys(names, function))
        return function
    return enter


def plain(text):
    """An operation of tensors alone, whatever else its arguments say."""
    return lambda w, node, *xs, **named: text.format(*(w.text(x) for x in xs))


def of_floats(text, of_integers="{0}"):
    """A function of one number of f32, as which it takes integers and booleans; of_integers: if the result is of integers."""
    def write(w, node, x, *rest, **named):
        return of_integers.format(w.text(x)) if node.meta["val"].dtype in WHOLE else text.format(w.cast(x, torch.float32))
    return write


for name in "exp log sqrt rsqrt sin cos tanh sigmoid erf silu floor ceil mish relu6 selu hardswish".split():
    ATEN[name] = of_floats(name + "({0})")
ATEN["relu"] = of_floats("relu({0})", "maximum({0}, 0)")
for name in "contiguous clone detach_ alias lift_fresh_copy alias_copy lift_fresh".split():
    ATEN[name] = plain("{0}")
ATEN.update(linear=lambda w, node, *xs: f"linear({', '.join(w.text(x) for x in xs if x is not None)})",
            hardsigmoid=plain("hardsigmoid({0})"), log_sigmoid=plain("logsigmoid({0})"), sign=plain("sign({0})"),
            sgn=plain("sign({0})"), square=plain("{0} * {0}"), reciprocal=of_floats("1.0 / {0}"))


@aten("detach")
def detached(w, node, x):
    """Of what depends on no trained weight: the same value."""
    return f"stop_gradient({w.text(x)})" if w.signature.has_gradient(x) else w.text(x)


@aten("neg", "negative")
def negated(w, node, x):
    return in_bytes(node, f"-{w.text(x)}")


@aten("logical_not", "bitwise_not")
def inverted(w, node, x):
    if w.dtype(x) == torch.bool:
        return f"not {w.text(x)}"
    if node.meta["val"].dtype == torch.bool:
        return f"not {w.cast(x, torch.bool)}"
    return f"{'255' if w.dtype(x) == torch.uint8 else '-1'} - {w.text(x)}"


def in_bytes(node, text):
    """A result in the range of its type: of bytes modulo 256."""
    return f"({text}) % 256" if node.meta["val"].dtype == torch.uint8 else text


@aten("dropout", "feature_dropout", "native_dropout")
def dropped(w, node, x, probability, train):
    if train and probability:
        w.no("a dropout that is on although the module is in eval mode, so that each call has another result",
             "give functional.dropout training=self.training, and make an nn.Dropout in __init__, where eval() reaches it; "
             "or leave it out by from_torch(..., dropout=False)")
    return w.text(x)


def full_of(shape, value, kind):
    """A tensor of one number, in the type `kind`; sizes are texts. A number of f32 may be a text."""
    dims = f"[{', '.join(map(str, shape))}]"
    if kind == torch.bool:
        return f"full({dims}, {float(bool(value))!r}) != 0.0"
    if kind in WHOLE:
        small = abs(value) <= EXACT
        return f"i32(full({dims}, {float(value if small else 0)!r}))" + ("" if small else f" + {value}" if value > 0 else f" - {-value}")
    return f"full({dims}, {value})"


def expanded(w, value, kind, shape):
    text = w.cast(value, kind)
    if kind == torch.bool and value in w.uniform:
        text = str(bool(w.uniform[value])).lower()
    if w.dtype(value) is None or not w.rank(value):  # a number, or a tensor of one
        if text in ("true", "false"):  # known when compiling, so no tensor
            return f"full([{', '.join(shape)}], {float(text == 'true')}) != 0.0"
        made = w.as_kind(f"full([{', '.join(shape)}], 0.0)", torch.float32, kind)
        return text if not shape and w.dtype(value) is not None else f"where({made}, {text}, {text})" if (
            kind == torch.bool) else f"{made} + {text}"
    return text if w.shape(value) == shape else f"expand({text}, [{', '.join(shape)}])"


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
        if sign == "*" and (found := rms(w, x, y) or rms(w, y, x)):
            return found
        left, right = w.cast(x, kind), w.cast(y, kind)
        if is_number(y, 1 if sign in "*/" else None if kind == torch.float32 else 0):
            return left
        return in_bytes(node, f"{left} {sign} {right}" + ("" if alpha == 1 else f" * {w.cast(alpha, kind)}"))
    return write


def rms(w, weight, x):
    """weight * (x * rsqrt(mean(x**2) + eps)), or None."""
    def made_by(node, name):
        node = w.origin(node)
        return node.args if isinstance(node, torch.fx.Node) and w.operation(node) == name and not node.kwargs else None
    product = made_by(x, "mul")
    if w.dtype(weight) != torch.float32 or w.rank(weight) != 1 or not product:
        return None
    for of, scale in (product, product[::-1]):
        total = made_by(scale, "rsqrt")
        total = total and made_by(total[0], "add")
        mean = total and isinstance(total[1], float) and made_by(total[0], "mean")
        square = mean and mean[2:] == (True,) and made_by(mean[0], "pow")
        if square and w.origin(square[0]) is w.origin(of) and square[1] == 2 and w.shape(weight) == w.shape(of)[-1:] and (
                [w.axis(of, a) for a in mean[1]] == [w.rank(of) - 1]):
            return f"rms_norm({w.text(w.origin(of))}, {w.text(weight)}, {total[1]!r})"
    return None


def is_number(value, wanted):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == wanted


def divided(w, node, x, y, rounding):
    kind = node.meta["val"].dtype
    left, right = w.cast(x, kind), w.cast(y, kind)
    if kind in WHOLE and rounding == "floor":
        return f"{left} // {right}"
    if kind in WHOLE:  # towards 0: one more where the floor is below
        return f"{left} // {right} + i32({left} // {right} < 0 and {left} % {right} != 0)"
    if rounding == "trunc":
        return f"trunc({left} / {right})"
    by, rest = tensor(w, y), f"fmod({tensor(w, x)}, {tensor(w, y)})"
    near = f"round(({left} - {rest}) / {right}) - f32(sign({rest}) * sign({by}) < 0)"
    far = f"stop_gradient({left} / {right} + where({by} == 0, 0, 0 * {left}))"  # has nothing behind the point, or is not finite
    return f"where(abs({left} / {right}) < 16777216, {near}, {far})"


def tensor(w, y):
    """An f32 operand as a tensor."""
    made = w.cast(y, torch.float32)
    return made if w.dtype(y) is not None else f"full([], {made})"


def compared(sign):
    def write(w, node, x, y):
        kind = promoted(w, x, y)
        kind = torch.int64 if kind == torch.bool else kind
        return f"{w.cast(x, kind)} {sign} {w.cast(y, kind)}"
    return write


def logical(sign):
    def write(w, node, x, y):
        if node.meta["val"].dtype != torch.bool:
            if not is_binary(w, x) or not is_binary(w, y):
                w.no("an operation on the bits of integers", "use comparisons and booleans")
            kind = node.meta["val"].dtype
            return f"{'minimum' if sign == 'and' else 'maximum'}({w.cast(x, kind)}, {w.cast(y, kind)})"
        for one, other in ((x, y), (y, x)):
            known = one if not isinstance(one, torch.fx.Node) else w.uniform.get(one)
            if known is None or other in w.uniform:
                continue
            if bool(known) != (sign == "and"):  # whatever the other says
                w.low[node] = 0
                w.uniform[node] = bool(known)
                return full_of(w.shape(node), known, torch.bool)
            same = w.shape(other) == w.shape(node)
            w.low[node] = w.low.get(other, 0) if same else 0
            made = w.cast(other, torch.bool)
            return made if same else f"expand({made}, [{', '.join(w.shape(node))}])"
        return f"{w.cast(x, torch.bool)} {sign} {w.cast(y, torch.bool)}"
    return write


def is_binary(w, x):
    """Whether integers are known to be 0 or 1: they were booleans, or are made of such."""
    if not isinstance(x, torch.fx.Node):
        return x in (0, 1)
    op = w.operation(x)
    if w.dtype(x) == torch.bool or x in w.uniform and w.uniform[x] in (0, 1):
        return True
    if w.dtype(x) not in (*WHOLE, torch.float32):
        return False
    if op in ("sub", "rsub"):  # 1 - x
        one, other = x.args[:2] if op == "sub" else x.args[1::-1]
        return one == 1 and not x.kwargs and is_binary(w, other)
    known = w.kinds.get(x.name)
    if known and known.kind.name in ("BUFFER", "CONSTANT_TENSOR"):
        return bool(((w.state[known.target] == 0) | (w.state[known.target] == 1)).all())
    if op in ("_to_copy", "to", "clone", "detach", "expand", "view", "reshape", "unsqueeze", "squeeze", "slice", "select",
              "transpose", "permute", "contiguous", "alias", "tril", "triu", "type_as", "lift_fresh_copy"):
        return is_binary(w, x.args[0])
    return op in (*AND, *OR, "mul", "maximum", "minimum") and all(is_binary(w, a) for a in x.args[:2])


AND, OR = ("bitwise_and", "logical_and", "__and__"), ("bitwise_or", "logical_or", "__or__")
ATEN.update(add=arithmetic("+"), sub=arithmetic("-"), mul=arithmetic("*"), div=arithmetic("/"),
            rsub=lambda w, node, x, y, alpha=1: arithmetic("-")(w, node, y, x, alpha),
            floor_divide=lambda w, node, x, y: divided(w, node, x, y, "floor"))
ATEN.update({name: compared(sign) for name, sign in dict(eq="==", ne="!=", lt="<", gt=">", le="<=", ge=">=").items()})
ATEN.update({name: logical("and") for name in AND})
ATEN.update({name: logical("or") for name in OR})


@aten("maximum", "minimum", "fmax", "fmin")
def extreme(w, node, x, y):
    name = "maximum" if "max" in node.target.__name__ else "minimum"
    kind = node.meta["val"].dtype
    if kind == torch.bool:
        return logical("or" if name == "maximum" else "and")(w, node, x, y)
    x, y = w.cast(x, kind), w.cast(y, kind)
    made = f"{name}({x}, {y})"
    ignores = node.target.__name__.startswith("f") and kind == torch.float32  # NaN, if the other is a number
    return f"where({x} != {x}, {y}, where({y} != {y}, {x}, {made}))" if ignores else made


@aten("remainder")
def remainder(w, node, x, y):
    kind = node.meta["val"].dtype
    left, right = w.cast(x, kind), w.cast(y, kind)
    if is_number(y, 1) and kind == torch.float32:
        return f"{left} - floor({left})"
    return f"{left} % {right}" if kind in WHOLE else f"remainder({tensor(w, x)}, {tensor(w, y)})"


@aten("round")
def rounded(w, node, x, decimals=0):
    if w.dtype(x) in WHOLE:
        return w.text(x)
    if not decimals:
        return f"round({w.text(x)})"
    factor = 10.0 ** abs(decimals)
    return f"round({w.text(x)} * {factor!r}) / {factor!r}" if decimals > 0 else f"round({w.text(x)} / {factor!r}) * {factor!r}"


@aten("abs")
def absolute(w, node, x):
    return f"abs({w.text(x)})" if w.dtype(x) == torch.float32 else f"maximum({w.text(x)}, -{w.text(x)})"


@aten("pow")
def power(w, node, x, y):
    kind = node.meta["val"].dtype
    if kind in WHOLE and isinstance(x, int) and w.dtype(y) is not None and 0 < w.bounds.value(node)[1] <= EXACT:
        return f"i32(round({w.text(float(x))} ** f32({w.text(y)})))"
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
    bounds = [min if low is None else low, max if high is None else high]
    if kind == torch.float32 and all(v is None or w.dtype(v) is None for v in bounds):  # where x is a number's, no gradient
        return f"clamp({text}, {', '.join('none' if v is None else w.cast(v, kind) for v in bounds)})".replace(", none)", ")")
    for bound, function in ((min if low is None else low, "maximum"), (max if high is None else high, "minimum")):
        text = text if bound is None else f"{function}({text}, {w.cast(bound, kind)})"
    return text


@aten("gelu")
def gelu(w, node, x, approximate="none"):
    return f"{'gelu' if approximate == 'none' else 'gelu_tanh'}({w.text(x)})"


@aten("leaky_relu", "elu", "softplus")
def activation(w, node, x, *numbers):
    name = node.target.__name__.split(".")[0]
    if name == "elu" and len(numbers) > 1:
        return elu(w, x, *numbers)
    if len(numbers) > 1 and numbers[1] != 20:
        w.no(f"{name} with {len(numbers)} numbers", "write it with exp")
    return f"{name}({', '.join(map(w.text, (x, *numbers[:1])))})"


def elu(w, x, alpha=1.0, scale=1.0, inner=1.0):
    alpha, scale, inner = map(float, (alpha, scale, inner))
    low = f"expm1(minimum({w.text(x)}, 0.0)" + (f" * {w.text(inner)})" if inner != 1 else ")")
    made = f"where({w.text(x)} > 0.0, {w.text(x)}, {low}{f' * {w.text(alpha)}' if alpha != 1 else ''})"
    return made if scale == 1 else f"{made} * {w.text(scale)}"


@aten("to", "_to_copy", "type_as")
def converted(w, node, x, *rest, **named):
    made, kind = w.cast(x, node.meta["val"].dtype), node.meta["val"].dtype
    if kind == torch.uint8 and w.dtype(x) not in (torch.bool, kind) and not is_binary(w, x):
        return f"({made}) % 256"
    return made


@aten("where")
def where(w, node, c, x=None, y=None):
    if x is None:
        w.no("torch.where of one tensor, whose result's size depends on values", "give it the two tensors to choose of")
    kind = node.meta["val"].dtype
    if c in w.uniform:
        w.spread, w.low[node] = False, 0
        return expanded(w, x if w.uniform[c] else y, kind, w.shape(node))
    if kind in WHOLE and all(w.dtype(v) is None or v in w.scalars or w.spread and v in w.numbers for v in (x, y)):
        return chosen(w, w.text(c), f"i32(full([], 0.0)) + {w.cast(x, kind)}", w.cast(y, kind), kind)  # else numbers are f32
    return chosen(w, w.text(c), w.cast(x, kind), w.cast(y, kind), kind)


def chosen(w, c, x, y, kind):
    """Texts of one kind by a condition. Booleans that are known when compiling are no tensors, and none are chosen of."""
    if kind != torch.bool:
        return f"where({c}, {x}, {y})"
    if x in ("true", "false") and y in ("true", "false"):
        return f"({c}) or not ({c})" if x == y == "true" else f"({c}) and not ({c})" if x == y else f"{'' if x == 'true' else 'not '}({c})"
    if x in ("true", "false"):
        return f"({c}) or {y}" if x == "true" else f"not ({c}) and {y}"
    if y in ("true", "false"):
        return f"not ({c}) or {x}" if y == "true" else f"({c}) and {x}"
    return f"({c}) and {x} or not ({c}) and {y}"


@aten("masked_fill")
def masked_fill(w, node, x, mask, value):
    return where(w, node, mask, value, x)


# ---- products, norms, attention ----

@aten("matmul", "bmm", "mm", "mv", "dot", "vdot", "inner")
def matmul(w, node, x, y):
    """Vectors are matrices of one row or column, whose axis goes again."""
    if node.meta["val"].dtype != torch.float32:
        w.no("a product of matrices of integers", "convert them with .float()")
    left = w.text(x) if w.rank(x) > 1 else f"({w.text(x)})[none]"
    right = w.text(y) if w.rank(y) > 1 else f"({w.text(y)})[:, none]"
    if min(w.rank(x), w.rank(y)) > 1:
        return f"{left} @ {right}"
    marks = [":"] * (max(w.rank(x), w.rank(y), 2) - 2) + ["0" if w.rank(v) == 1 else ":" for v in (x, y)]
    return f"({left} @ {right})[{', '.join(marks)}]"


@aten("addmm", "baddbmm")
def addmm(w, node, c, x, y, beta=1, alpha=1):
    product = f"{w.text(x)} @ {w.text(y)}" if alpha == 1 else f"({w.text(x)} @ {w.text(y)}) * {w.text(float(alpha))}"
    if beta == 0:
        return product
    return f"{product} + {w.text(c)}" + ("" if beta == 1 else f" * {w.text(float(beta))}")


@aten("embedding")
def embedding(w, node, table, ids, padding=-1, *rest):
    if padding is not None and padding >= 0:
        return f"embedding({w.text(table)}, {w.given(ids)}, {padding})"
    return f"{w.text(table)}[{w.given(ids)}]"


@aten("layer_norm")
def layer_norm(w, node, x, shape, weight=None, bias=None, eps=1e-5, *rest):
    if len(shape) > 1:  # as one axis
        size = " * ".join(w.factor(w.size(n)) for n in shape)
        apart = ", ".join([*w.shape(x)[:-len(shape)], size])
        weight, bias = (w.text(v) if v is None else f"reshape({w.text(v)}, [{size}])" for v in (weight, bias))
        return f"reshape(layer_norm(reshape({w.text(x)}, [{apart}]), {weight}, {bias}, {eps!r}), [{', '.join(w.shape(x))}])"
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
    made = f"batch_norm({', '.join(map(w.text, (x, mean, variance, weight, bias, eps)))})"
    if not isinstance(node.meta["val"], (tuple, list)):
        return made
    w.names[f"{node.name}.0"] = f"t_{node.name}_0"
    w.say(made, {f"t_{node.name}_0": node.meta["val"][0]})


@aten("softmax", "_softmax", "log_softmax", "_log_softmax")
def softmax(w, node, x, axis, *rest, **named):
    name = "log_softmax" if "log" in node.target.__name__ else "softmax"
    last = name == "softmax" and w.axis(x, axis) == w.rank(x) - 1
    return f"{name}({w.cast(x, torch.float32)}{'' if last else f', {axis}'})"


@aten("scaled_dot_product_attention")
def attention(w, node, q, k, v, mask=None, dropout=0.0, is_causal=False, scale=None, enable_gqa=False):
    if dropout:
        w.no("attention with a dropout that is on", "give it dropout_p = 0.0 where the module is in eval mode, or leave it "
             "out by from_torch(..., dropout=False)")
    query, key, value = w.text(q), w.text(k), w.text(v)
    if enable_gqa and w.shape(q)[-3] != w.shape(k)[-3]:  # each head of keys is that of several queries in a row
        key, value = (repeated(w, x, int(w.shape(q)[-3]) // int(w.shape(x)[-3])) for x in (k, v))
    scale = 1 / math.sqrt(q.meta["val"].shape[-1]) if scale is None else scale
    scores = f"({query} @ transpose({key}, -1, -2))" + (f" * {w.text(float(scale))}" if scale != 1 else "")
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


ATEN.update(sum=reduction("sum"), mean=reduction("mean"), any=reduction("any"), all=reduction("all"),
            logsumexp=reduction("logsumexp"))


def shared(w, function, x, axes, keepdim):
    """The greatest or smallest over axes, whose equal elements share the gradient, whichever axes they differ in."""
    axes = list(range(w.rank(x))) if axes in (None, []) else [axes] if isinstance(axes, int) else axes
    axes, kind = sorted(w.axis(x, a) for a in axes), w.dtype(x)
    if kind == torch.bool:
        return reduced(w, {"amax": "any", "amin": "all"}[function], x, axes, keepdim, kind)
    if len(axes) < 2 or kind != torch.float32:
        return reduced(w, function, x, axes, keepdim, kind)
    shape, rest = w.shape(x), [a for a in range(w.rank(x)) if a not in axes]
    together = [*(shape[a] for a in rest), " * ".join(w.factor(shape[a]) for a in axes)]
    text = w.text(x) if rest + axes == sorted(rest + axes) else w.permuted(x, rest + axes)
    text = f"{function}(reshape({text}, [{', '.join(together)}]), -1)"
    return f"reshape({text}, [{', '.join('1' if a in axes else n for a, n in enumerate(shape))}])" if keepdim else text


ATEN.update({name: lambda w, node, x, axes=None, keepdim=False, name=name: shared(w, name, x, axes, keepdim)
             for name in ("amax", "amin")})


@aten("var", "std")
def variance(w, node, x, axes=None, unbiased=True, keepdim=False, *, correction=None):
    if isinstance(axes, bool):  # of all elements: the overload without axes
        axes, unbiased = None, axes
    axes = list(range(w.rank(x))) if axes in (None, []) else [axes] if isinstance(axes, int) else axes
    axes = sorted((w.axis(x, a) for a in axes), reverse=True)
    less, mean, n = int(unbiased) if correction is None else correction, w.text(x), [w.shape(x)[a] for a in axes]
    for axis in axes:
        mean = f"mean({mean}, {axis}, true)"
    away = f"({w.text(x)} - {mean})"
    made = f"{away} * {away}"
    for axis in axes:
        made = f"sum({made}, {axis}, {w.text(bool(keepdim))})"
    made = f"{made} / f32({' * '.join(map(w.factor, n))} - {less})"
    if not node.target.__name__.startswith("std"):
        return made
    square = f"t_{node.name}_square"  # a row of equal elements has no gradient, where sqrt would have an infinite one
    w.say(made, {square: node.meta["val"]})
    return f"where({square} == 0.0, 0.0, sqrt(where({square} == 0.0, 1.0, {square})))"


@aten("max", "min")
def greatest(w, node, x, axis=None, keepdim=False):
    function = node.target.__name__[:3]
    if isinstance(axis, torch.fx.Node):
        return extreme(w, node, x, axis)
    if axis is None:
        return shared(w, "a" + function, x, None, False)
    is_flag = w.dtype(x) == torch.bool
    w.result(node, 0, shared(w, "a" + function, x, axis, keepdim) if is_flag else reduced(w, function, x, axis, keepdim, w.dtype(x)))
    marks = ", ".join([":"] * w.axis(x, axis) + ["none"]) if keepdim else ""
    at = argmax(w, x, axis, function)
    w.result(node, 1, f"({at})[{marks}]" if keepdim else at)


def argmax(w, x, axis, function="max"):
    """The place of the first greatest, or smallest, element along an axis."""
    if w.dtype(x) == torch.float32:
        return f"argmax({w.text(x) if function == 'max' else '-' + w.text(x)}, {axis})"
    text, axis = w.cast(x, torch.int64), w.axis(x, axis)
    n, marks = w.factor(w.shape(x)[axis]), ", none" * (w.rank(x) - axis - 1)
    hit = f"{text} == {function}({text}, {axis}, true)"
    return f"{n} - max(where({hit}, ({n} - arange({n}))[:{marks}], 0), {axis})"


@aten("cumsum")
def cumsum(w, node, x, axis, **named):
    if x in w.uniform:  # positions, counted in a mask of ones: generation keeps caches
        axis, kind = w.axis(x, axis), node.meta["val"].dtype
        marks = ", ".join(":" if a == axis else "none" for a in range(w.rank(x)))
        counted = w.as_kind(f"((arange({w.shape(x)[axis]}) + 1)[{marks}])", torch.int64, kind)
        return f"expand({counted} * {w.cast(w.uniform[x], kind)}, [{', '.join(w.shape(node))}])"
    return f"cumsum({w.cast(x, node.meta['val'].dtype)}, {axis})"
