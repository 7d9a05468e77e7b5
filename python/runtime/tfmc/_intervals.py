"""The interval of the values of a node of an exported program, by those of its operands: integers, and what becomes
integers.

What comes in are nodes in order, bounds of sizes and of integers of which nothing is known; what goes out is the least
and the greatest value, in exact integers, or infinities. Nothing is refused. What is not known of a float is ANY.
"""
import math
import operator

import torch
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from ._aten import WHOLE

LEAST, MOST = -1 << 31, (1 << 31) - 1
ANY, TRUTH = (-math.inf, math.inf), (0, 1)
SAME = set("""contiguous clone alias detach detach_ lift_fresh lift_fresh_copy view reshape _unsafe_view expand permute
transpose t slice select unsqueeze squeeze flatten flip roll repeat repeat_interleave gather index index_select amax amin
split split_with_sizes chunk tensor_split unbind dropout unfold movedim sort topk max min cummax cummin mode kthvalue take_along_dim
median copy_ expand_as view_as reshape_as narrow diagonal as_strided round floor ceil trunc embedding""".split())
PLACES = {"argmax", "argmin", "argsort", "sort.1", "topk.1", "max.1", "min.1", "cummax.1", "cummin.1", "kthvalue.1",
          "median.1", "mode.1"}
COMPARED = set("""eq ne lt gt le ge logical_and logical_or logical_not logical_xor any all isnan isinf isfinite one_hot
sigmoid hardsigmoid softmax _softmax signbit""".split())
def corners(function, x, y):
    made = [function(a, b) for a in x for b in y]
    return ANY if any(value != value for value in made) else (min(made), max(made))


def times(a, b):
    return 0 if a == 0 or b == 0 else a * b  # 0 * inf: an interval that ends at 0


def together(*intervals):
    return min(low for low, _ in intervals), max(high for _, high in intervals)


def logarithm(x):
    return math.log(x) if 0 < x < math.inf else x if x > 0 else -104.0  # of the least f32; log(0) is no integer anyhow


class Intervals:
    """sizes, bound: the greatest size, and of integers of which nothing is known, or None; named: symbols of sizes that
    integers depend on."""

    def __init__(self, writer):
        self.writer, self.bounded, self.named = writer, {}, set()
        self.begin(MOST, None)

    def begin(self, sizes, bound):
        self.sizes, self.bound, self.known = sizes, bound, {}
        self.conversions, self.used = set(), {}

    def value(self, x):
        if isinstance(x, (int, float)):
            return x, x
        if isinstance(x, torch.SymInt):
            return self.of_size(x)
        if isinstance(x, torch.fx.Node):
            return self.known.get(x, ANY)
        return ANY

    def of_size(self, n):
        if isinstance(n, int):
            return n, n
        expression = n.node.expr
        self.named.update(map(str, expression.free_symbols))
        if (expression, self.sizes) not in self.bounded:
            ranges = {symbol: ValueRanges(1, self.sizes) for symbol in expression.free_symbols}
            found = bound_sympy(expression, ranges)
            self.bounded[expression, self.sizes] = int(found.lower), int(found.upper)
        return self.bounded[expression, self.sizes]

    def count(self, x, axes):
        """The greatest number of elements that a sum over axes has."""
        shape, n = x.meta["val"].shape, 1
        axes = range(len(shape)) if axes in (None, []) else [axes] if isinstance(axes, int) else axes
        for axis in axes:
            n *= self.of_size(shape[axis])[1] if len(shape) else 1
        return n

    def of(self, node):
        """The interval of a node's elements."""
        made, op, args = node.meta.get("val"), self.writer.operation(node), node.args
        if node.op == "placeholder":
            return self.of_placeholder(node)
        if isinstance(made, (torch.SymInt, int)):
            return self.of_size(made)
        if op in COMPARED or isinstance(made, torch.Tensor) and made.dtype == torch.bool:
            return TRUTH
        if node.target is operator.getitem:
            return self.of_part(node)
        if self.writer.dtype(node) == torch.uint8:
            return 0, 255  # what is computed is taken modulo 256
        if op in PLACES:
            axis = (list(args[1:2]) or [node.kwargs.get("dim", -1 if op == "argsort" else None)])[0]
            return 0, max(self.count(args[0], axis) - 1, 0)
        found = getattr(self, "of_" + op.strip("_"), None)
        if found:
            return found(node, *args, **node.kwargs)
        if op in SAME and args and isinstance(args[0], torch.fx.Node):
            return self.value(args[0])
        return (LEAST, MOST) if self.writer.dtype(node) in WHOLE else ANY

    def of_part(self, node):
        source, i = node.args
        op = self.writer.operation(source)
        if f"{op}.{i}" in PLACES:
            axis = (list(source.args[2 if op in ("topk", "kthvalue") else 1:][:1]) or [source.kwargs.get("dim", -1)])[0]
            return 0, max(self.count(source.args[0], axis) - 1, 0)
        return self.value(source.args[0]) if op in SAME else ANY

    def of_placeholder(self, node):
        spec, value = self.writer.kinds[node.name], node.meta["val"]
        if spec.kind.name != "USER_INPUT":
            tensor = self.writer.state[spec.target]
            if tensor.dtype in WHOLE and tensor.numel():
                return int(tensor.min()), int(tensor.max())
            return (tensor.item(),) * 2 if tensor.ndim == 0 and not self.writer.signature.is_kept(spec) else ANY
        if not isinstance(value, torch.Tensor) or value.dtype not in WHOLE:
            return TRUTH if isinstance(value, torch.Tensor) and value.dtype == torch.bool else ANY
        low, high = self.writer.ranges.get(node.name, (LEAST, MOST))
        if value.dtype == torch.uint8:
            return max(low, 0), min(high, 255)
        if node in self.tables:
            least, most = self.tables[node]
            return max(low, least), min(high, most)
        if node.name in self.writer.ranges:
            return low, high
        return self.source(node, (LEAST, MOST))

    def source(self, node, otherwise):
        if self.bound is None:
            return otherwise
        self.used[node] = True
        return -self.bound, self.bound

    # ---- operations ----

    def of_arange(self, node, *args, **named):
        start, step = (args[0] if len(args) > 1 else 0), (args[2] if len(args) > 2 else 1)
        first, end, step = self.value(start), self.value(args[1] if len(args) > 1 else args[0]), self.value(step)
        return together(first, (end[0] - 1, end[1] - 1)) if step[0] > 0 else together(first, (end[0] + 1, end[1] + 1))

    def of_full(self, node, *args, **named):
        return self.value(args[-1])

    of_full_like = of_new_full = of_fill = of_full

    def of_scalar_tensor(self, node, x, **named):
        return self.value(x)

    def of_zeros(self, node, *args, **named):
        return 0, 0

    of_zeros_like = of_new_zeros = of_zeros

    def of_ones(self, node, *args, **named):
        return 1, 1

    of_ones_like = of_new_ones = of_ones

    def of_add(self, node, x, y, alpha=1):
        (a, b), (c, d) = self.value(x), corners(times, self.value(y), self.value(alpha))
        return (a + c, b + d) if a + c == a + c and b + d == b + d else ANY

    def of_sub(self, node, x, y, alpha=1):
        (a, b), (c, d) = self.value(x), corners(times, self.value(y), self.value(alpha))
        return (a - d, b - c) if a - d == a - d and b - c == b - c else ANY

    def of_rsub(self, node, x, y, alpha=1):
        return self.of_sub(node, y, x, alpha)

    def of_mul(self, node, x, y):
        made = corners(times, self.value(x), self.value(y))
        return (max(made[0], 0), made[1]) if x is y else made

    def of_square(self, node, x):
        return self.of_mul(node, x, x)

    def of_neg(self, node, x):
        low, high = self.value(x)
        return -high, -low

    def of_abs(self, node, x):
        low, high = self.value(x)
        return max(low, -high, 0), max(abs(low), abs(high))

    def of_sign(self, node, x):
        return -1, 1

    of_sgn = of_tanh = of_sin = of_cos = of_erf = of_sign

    def of_pow(self, node, x, y):
        low, high = self.value(x)
        if isinstance(x, int) and x > 0 and not isinstance(y, int):
            least, most = self.value(y)
            return (x ** int(least), x ** int(most)) if 0 <= least and most <= 31 else ANY
        if not isinstance(y, int) or y < 0 or max(abs(low), abs(high)) == math.inf:
            return ANY
        return (0 if y % 2 == 0 else min(low ** y, 0), max(low ** y, high ** y))

    def of_div(self, node, x, y, rounding_mode=None):
        x, y = self.value(x), self.value(y)
        if y[0] <= 0 <= y[1]:
            most = max(abs(x[0]), abs(x[1]))
            return (-most, most) if rounding_mode else ANY
        made = corners(lambda a, b: (a / b if abs(a) < math.inf or abs(b) < math.inf else math.nan), x, y)
        if rounding_mode and abs(made[0]) + abs(made[1]) < math.inf:
            return math.floor(made[0]), math.ceil(made[1])
        return made

    def of_floor_divide(self, node, x, y):
        return self.of_div(node, x, y, "floor")

    def of_remainder(self, node, x, y):
        (low, high), (first, last) = self.value(x), self.value(y)
        if first > 0 and 0 <= low and high < first:
            return low, high
        return min(first + 1, 0), max(last - 1, 0)

    def of_fmod(self, node, x, y):
        most = max(map(abs, self.value(y)))
        return -most, most

    def of_where(self, node, c, x=None, y=None):
        if x is None:
            return 0, MOST
        (low, high), limit = self.value(x), self.limit_of(c, x)
        return together((min(low, limit), min(high, limit)), self.value(y))

    def limit_of(self, condition, x):
        """The greatest x for which `x < number` or `x <= number` is true, if the condition is one."""
        op = self.writer.operation(condition)
        if op not in ("lt", "le") or not isinstance(condition.args[1], int):
            return math.inf
        same = self.writer.origin(condition.args[0]) is self.writer.origin(x)
        return condition.args[1] - (op == "lt") if same else math.inf

    def of_masked_fill(self, node, x, mask, value):
        return together(self.value(x), self.value(value))

    def of_cat(self, node, xs, axis=0):
        return together(*map(self.value, xs))

    of_concat = of_stack = of_cat

    def of_scatter(self, node, x, axis, ids, value, **named):
        return together(self.value(x), self.value(value))

    def of_slice_scatter(self, node, x, value, *rest, **named):
        return together(self.value(x), self.value(value))

    of_select_scatter = of_slice_scatter

    def of_index_put(self, node, x, indices, value, accumulate=False):
        return together(self.value(x), self.value(value)) if not accumulate else ANY

    def of_copy(self, node, x, value, *rest):
        return self.value(value)

    def of_scatter_add(self, node, x, axis, ids, value):
        return self.summed(value, ids, axis, self.value(x))

    def of_scatter_reduce(self, node, x, axis, ids, value, reduce, include_self=True):
        if reduce == "prod":
            return ANY
        most = self.of_scatter_add(node, x, axis, ids, value) if reduce in ("sum", "mean") else (0, 0)
        return together(self.value(x), self.value(value), most)

    of_index_reduce = of_scatter_reduce

    def summed(self, x, over, axes, start=(0, 0)):
        (low, high), n = self.value(x), self.count(over, axes)
        return start[0] + times(min(low, 0), n), start[1] + times(max(high, 0), n)

    def of_sum(self, node, x, axes=None, keepdim=False, **named):
        return self.summed(x, x, axes)

    def of_cumsum(self, node, x, axis, **named):
        return together(self.summed(x, x, axis), self.value(x))

    def of_mean(self, node, x, *rest, **named):
        return self.value(x)

    def of_maximum(self, node, x, y):
        x, y = self.value(x), self.value(y)
        return max(x[0], y[0]), max(x[1], y[1])

    def of_minimum(self, node, x, y):
        x, y = self.value(x), self.value(y)
        return min(x[0], y[0]), min(x[1], y[1])

    def of_max(self, node, x, axis=None, *rest):
        return self.of_maximum(node, x, axis) if isinstance(axis, torch.fx.Node) else self.value(x)

    def of_min(self, node, x, axis=None, *rest):
        return self.of_minimum(node, x, axis) if isinstance(axis, torch.fx.Node) else self.value(x)

    def of_clamp(self, node, x, low=None, high=None, **named):
        if "clamp_max" in node.target.__name__:
            low, high = None, low
        least, most = self.value(x)
        for bound in (low, named.get("min")):
            if bound is not None:
                least, most = max(least, self.value(bound)[0]), max(most, self.value(bound)[1])
        for bound in (high, named.get("max")):
            if bound is not None:
                least, most = min(least, self.value(bound)[0]), min(most, self.value(bound)[1])
        return least, most

    of_clamp_min = of_clamp_max = of_clamp

    def of_pad(self, node, x, widths, *rest):
        number = next((v for v in reversed(rest) if isinstance(v, (int, float))), 0)
        return together(self.value(x), (number, number))

    of_constant_pad_nd = of_pad

    def of_tril(self, node, x, *rest):
        return together(self.value(x), (0, 0))

    of_triu = of_tril

    def of_log(self, node, x):
        low, high = self.value(x)
        return logarithm(low), logarithm(high)

    def of_sqrt(self, node, x):
        low, high = self.value(x)
        return (math.sqrt(max(low, 0)), math.sqrt(high)) if 0 <= high < math.inf else ANY

    def of_relu(self, node, x):
        low, high = self.value(x)
        return max(low, 0), max(high, 0)

    def of_to(self, node, x, *rest, **named):
        low, high = self.value(x)
        if self.writer.dtype(node) not in WHOLE or self.writer.dtype(x) != torch.float32:
            return low, high
        if LEAST <= low and high <= 2147483520:
            return math.ceil(low), math.floor(high)
        self.conversions.add(node)
        if not self.is_computed_with(node):
            return LEAST, MOST
        return self.source(node, ANY)

    of_to_copy = of_to
    of_type_as = of_to
