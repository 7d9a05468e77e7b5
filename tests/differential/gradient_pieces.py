"""Pieces of random objectives (gradient_models.py): a pool of values, and operations that take some of it and add to it.

Shapes are tuples of numbers and of sizes of a run as texts: they broadcast with each other in every axis. Each piece says what
its kinks and jumps are, as terms of which every sign counts. Numbers are kept small, so that no model overflows.
"""
import collections
import re

D, HEADS, ROWS = 6, 2, 9
MOST = {"batch": 4, "time": 7}
Value = collections.namedtuple("Value", "name shape size depends", defaults=[False])
# size: how large its numbers may be, roughly; depends: on a weight

# The pattern of signs, or of ids, as one number.
MARKS = """fn mark(u) {
  v = reshape(u, [-1])
  p = f32(positions(v, 0))
  return sum(where(v > 0, sin(p * 1.7 + 1), where(v < 0, cos(p * 2.3 + 2), 0)))
}
fn mark_ids(u) {
  v = f32(reshape(u, [-1]))
  return sum(v * sin(f32(positions(v, 0)) * 1.7 + 1))
}
"""
SMOOTH = ["tanh(X)", "sigmoid(X)", "sin(X)", "cos(X)", "erf(X)", "gelu(X)", "gelu_tanh(X)", "silu(X)", "quick_gelu(X)",
          "exp(tanh(X))", "log(X * X + 1)", "sqrt(X * X + 1)", "rsqrt(X * X + 1)", "(tanh(X) ** 2 + 1) ** 1.5", "tanh(X) ** 3",
          "X * X * 0.3", "softplus(X)", "mish(X)", "logsigmoid(X)", "-X"]
# with the terms whose signs say on which side of a kink an element is; of a floor every number counts
KINKS = [("abs(X)", ["X"]), ("clamp(X, -0.5, 0.4)", ["X + 0.5", "X - 0.4"]),
         ("leaky_relu(X, 0.2)", ["X"]), ("elu(X)", ["X"]), ("relu6(X * 4) * 0.5", ["X", "X - 1.5"]),
         ("hardswish(X * 3)", ["X + 1", "X - 1"]), ("hardsigmoid(X * 3)", ["X + 1", "X - 1"]), ("sign(X) * X", ["X"]),
         ("maximum(X, 0.1)", ["X - 0.1"]), ("minimum(-X, 0.2)", ["X + 0.2"]), ("relu(X) ** 2", ["X"]),
         ("where(X > 0.2, X * X, 0.3 * X)", ["X - 0.2"]), ("where(X < -0.3, 0.0, X)", ["X + 0.3"]),
         ("where(not (X > 0) or X > 1, 0.5, X)", ["X", "X - 1"]), ("X * f32(X > 0.1)", ["X - 0.1"]),
         ("floor(X * 2) * 0.3 + X", ["floor(X * 2)"]),
         ("masked_fill(X, X < -0.4, 1)", ["X + 0.4"]), ("maximum(minimum(X, 0.5), -0.6)", ["X - 0.5", "X + 0.6"]),
         ("relu(X - 0.1) - relu(-X - 0.2)", ["X - 0.1", "X + 0.2"])]


def count(shape):
    n = 1
    for dim in shape:
        n *= eval(str(dim), {}, MOST)
    return n


def broadcast(*shapes):
    """The common shape, or None."""
    out = []
    for i in range(1, max(map(len, shapes)) + 1):
        dims = {s[-i] for s in shapes if len(s) >= i} - {1}
        if len(dims) > 1:
            return None
        out.append(dims.pop() if dims else 1)
    return tuple(reversed(out))


def listed(shape):
    return "[" + ", ".join(map(str, shape)) + "]"


class Scope:
    """The body of a function: the objective's, or that of a layer's forward."""

    def __init__(self, model, stem):
        self.model, self.rng, self.stem = model, model.rng, stem
        self.values, self.lines, self.weights, self.inputs, self.terms, self.calls = [], [], {}, [], [], []

    def let(self, text, shape, size=1.0, is_module=False):
        name = f"{self.stem}{len(self.lines)}"
        if size > 4:
            text, size = f"({text}) * {2 / size:.3g}", 2.0
        depends = {v.name for v in self.values if v.depends} | self.weights.keys()
        self.lines.append(f"{name} = {text}")
        self.values.append(Value(name, tuple(shape), size, not depends.isdisjoint(re.findall(r"\w+", text)) or is_module))
        return self.values[-1]

    def pick(self, fits=lambda shape: True):
        """A value, more often one that was made late and depends on weights."""
        fit = [v for v in self.values if fits(v.shape)]
        fit = [v for v in fit if v.depends and self.rng.random() < 0.7] or fit
        return fit[max(self.rng.randrange(len(fit)), self.rng.randrange(len(fit)))] if fit else None

    def kink(self, *terms):
        self.terms += [f"mark_ids({t})" if t.startswith("floor(") else f"mark({t})" for t in terms]

    def weight(self, *shape):
        """A weight of that shape, maybe one that is used already."""
        old = [n for n, s in self.weights.items() if s == shape]
        if old and self.rng.random() < 0.35:
            return self.rng.choice(old)
        name = f"w{len(self.weights)}"
        self.weights[name] = shape
        return name

    def input(self, dtype, shape, limit=1.5):
        old = [n for n in self.inputs if self.model.inputs[n] == (dtype, tuple(shape), limit)]
        if old and self.rng.random() < 0.4:
            return self.rng.choice(old)
        name = f"{dtype[0]}{len(self.model.inputs)}"
        self.model.inputs[name] = dtype, tuple(shape), limit
        self.inputs.append(name)
        return name

    def beside(self, shape, grow=0.3):
        """A shape that broadcasts with `shape`; axes of 1 and in front may grow."""
        r = self.rng
        dims = [(1 if r.random() < 0.35 else dim) if dim != 1 else
                r.choice(["batch", "time", D, 2, 3]) if r.random() < grow else 1 for dim in shape]
        if r.random() < 0.25:
            dims = dims[r.randint(0, len(dims)):]
        elif len(shape) < 3 and r.random() < grow:
            dims = [r.choice(["batch", "time", 2])] + dims
        return tuple(dims) if count(broadcast(shape, dims)) <= 1600 else tuple(shape)

    def mask(self, shape):
        """A condition and its shape, which broadcasts with `shape`."""
        r, s = self.rng, self.beside(shape, 0.6)
        form = r.randrange(9)
        if form == 0 and s:
            v = self.pick(lambda t: broadcast(t, s) == s)
            if v:
                at = r.choice([-0.2, 0.1, 0.3])
                self.kink(f"{v.name} - {at}" if at > 0 else f"{v.name} + {-at}")
                return f"{v.name} {r.choice(['>', '<', '>=', '<='])} {at}", v.shape
        if form == 1:
            return f"{self.input('f32', s)} > {r.choice([0, 0.5])}", s
        if form == 2 and len(s) == 2 and s[0] == s[1] and s[0] != 1:
            return f"positions(x, 1) > positions(x, 1)[:, none]" if s[0] == "time" else f"not {self.input('bool', s)}", s
        if form == 3:
            t = self.beside(s, 0)
            return f"({self.input('bool', s)} {r.choice(['and', 'or'])} {r.choice(['', 'not '])}{self.input('bool', t)})", broadcast(s, t)
        if form == 4:
            return f"{self.input('i32', s, 5)} {r.choice(['==', '!=', '>'])} 2", s
        return r.choice(["", "", "not "]) + self.input("bool", s), s

    def operand(self, shape):
        """Something that broadcasts with `shape`: a value, a weight or an input."""
        r = self.rng
        v = self.pick(lambda s: broadcast(s, shape) and count(broadcast(s, shape)) <= 1600) if r.random() < 0.5 else None
        if v:
            return v
        s = self.beside(shape)
        if r.random() < 0.7:
            s = tuple(1 if isinstance(d, str) else d for d in s)
            return Value(self.weight(*s), s, 0.7, True) if s else Value(f"{self.weight(1)}[0]", (), 0.7, True)
        return Value(self.input("f32", s), s, 1.5)

    def activated(self, v):
        """A function of v, as a text, and how large it is: relu more often than others, because passes know it."""
        if self.rng.random() < 0.3:
            self.kink(v.name)
            return f"relu({v.name})", v.size
        if self.rng.random() < 0.3:
            return f"({self.rng.choice(SMOOTH).replace('X', v.name)})", max(1.0, v.size)
        text, terms = self.rng.choice(KINKS)
        self.kink(*(t.replace("X", v.name) for t in terms))
        return f"({text.replace('X', v.name)})", max(1.0, v.size * (v.size if "X * X" in text or "** 2" in text else 1))

    # --- operations: each adds values, or nothing if none fits ---

    def unary(self):
        v = self.pick()
        text, size = self.activated(v)
        self.let(text, v.shape, size)

    def binary(self):
        v, r = self.pick(), self.rng
        o = self.operand(v.shape)
        a, b, shape = v.name, o.name, broadcast(v.shape, o.shape)
        form = r.randrange(9)
        if form < 3:
            self.kink(f"{a} - {b}")
            self.let(r.choice(["maximum({a}, {b})", "minimum({b}, {a})", "where({a} > {b}, {a} * 0.5, {b})", "max([{a}, {b}])",
                               "where({b} <= {a}, {b}, {a} * {a})"]).format(a=a, b=b), shape, v.size * v.size + o.size)
        elif form == 3:
            self.let(f"{a} / ({b} * {b} + 1)", shape, v.size)
        elif form == 4:
            self.kink(a)
            self.let(f"(abs({a}) + 0.5) ** tanh({b})", shape, v.size + 1)
        else:
            text, size = self.activated(v) if r.random() < 0.3 else (a, v.size)
            sign = r.choice("+-**")
            self.let(f"{b} {sign} {text}", shape, size * o.size if sign == "*" else size + o.size)

    def masked(self):
        """where, dropout and its like, with masks of other shapes."""
        r = self.rng
        v = r.random() < 0.5 and self.pick(lambda s: 1 in s) or self.pick()
        mask, shape = self.mask(v.shape)
        form, factor = r.randrange(11), r.choice(["", " * 2", " * 1.25", " * 1.25", " * 0.5"])
        text, size = self.activated(v) if r.random() < 0.6 else (v.name, v.size)
        shape = broadcast(shape, v.shape)
        if form < 5:
            self.let(f"where({mask}, {text}{factor}, 0)", shape, size * 2)
        elif form == 5:
            self.let(f"where({mask}, 0.0, {text})", shape, size)
        elif form == 6:
            o = self.operand(shape)
            self.let(f"where({mask}, {text}, {o.name})", broadcast(shape, o.shape), size + o.size)
        elif form == 7:
            o = self.operand(shape)
            self.let(f"where({mask}, {o.name}, {text}{factor})", broadcast(shape, o.shape), 2 * size + o.size)
        elif form == 8:
            self.let(f"{text} * f32({mask}){factor}", shape, size * 2)
        elif form == 9 and not self.model.is_exact:
            self.randomly(text, v, size)
        else:
            self.let(f"dropout({text}, 0.0) + masked_fill({v.name}, {mask}, 0.3)", shape, size + v.size)

    def dropped(self):
        """A function of a value, multiplied and left where a mask says, as dropout does; the mask makes axes of 1 larger."""
        r = self.rng
        v = self.pick(lambda s: 1 in s)
        if v:
            shape = tuple(r.choice(["batch", "time", D, 2, 3]) if dim == 1 and r.random() < 0.7 else dim for dim in v.shape)
            if count(shape) <= 1600:
                text, size = self.activated(v)
                self.let(f"where({self.input('bool', shape)}, {text} * {r.choice(['1.25', '2', '1', '0.5'])}, 0)", shape, 2 * size)

    def randomly(self, text, v, size):
        self.model.is_random = True
        self.let(self.rng.choice([f"dropout({text}, 0.3)", f"stop_gradient({text}) + {v.name}", f"dropout({text}, 0.5) * 0.7"]),
                 v.shape, size * 2 + v.size)

    def reduced(self):
        v, r = self.pick(lambda s: len(s) > 0), self.rng
        axis, keep = r.randrange(len(v.shape)), r.random() < 0.5
        left = v.shape[:axis] + ((1,) if keep else ()) + v.shape[axis + 1:]
        said, word = f"{axis - len(v.shape) if r.random() < 0.5 else axis}, {str(keep).lower()}", r.choice(["sum", "mean", "max", "min", "max", "min", "logsumexp"])
        if word in ("max", "min"):
            self.terms.append(f"mark_ids(argmax({'-' if word == 'min' else ''}{v.name}, {axis}))")
        self.let(f"{word}({v.name}, {said})", left, v.size * 2 if word in ("sum", "logsumexp") else v.size)

    def along(self):
        v, r = self.pick(lambda s: len(s) > 0), self.rng
        axis = r.randrange(len(v.shape))
        last = len(v.shape) - 1
        form = r.randrange(9)
        if form == 0 and isinstance(v.shape[axis], int):
            k, t = r.randint(1, v.shape[axis]), f"t{len(self.lines)}"
            shape = v.shape[:axis] + (k,) + v.shape[axis + 1:]
            self.lines.append(f"{t}, at_{t} = topk({v.name}, {k}, {axis})")
            self.terms.append(f"mark_ids(at_{t})")
            self.let(r.choice([t, f"{t} + gather({v.name}, at_{t}, axis = {axis}) * 0.5"]), shape, 1.5 * v.size)
        elif form == 1:
            self.terms.append(f"mark_ids(argmax({v.name}, {axis}))")
            at = f"argmax({v.name}, {axis})"
            dims = [1 if i == axis else d for i, d in enumerate(v.shape)]
            o = self.pick(lambda s: s == v.shape)
            self.let(f"gather({o.name}, reshape({at}, {listed(dims)}), axis = {axis})", dims, o.size)
        else:
            word = r.choice(["softmax(X, axis = A) * 2", "log_softmax(X, axis = A) * 0.5", "cumsum(X, axis = A) * 0.4", "shift(X, 1, axis = A) * 2", "shift(X, -2, axis = A)", "flip(X, axis = A)",
                             "X - mean(X, A, true)", "X / sqrt(sum(X * X, A, true) + 0.1)",
                             "softmax(where(M, -inf, X), axis = A)", "layer_norm(X, W, B, 1e-2)", "rms_norm(X, W, 1e-2)"])
            if "norm(" in word and isinstance(v.shape[last], int) or "_norm" not in word or "log_softmax" in word:
                shape = v.shape
                if "M" in word:
                    mask, s = self.mask(v.shape)
                    shape = broadcast(s, v.shape)
                    axis += len(shape) - len(v.shape)
                    word = word.replace("M", mask)
                if "W" in word:
                    word = word.replace("W", r.choice(["none", self.weight(v.shape[last])])).replace("B", r.choice(["none", self.weight(v.shape[last])]))
                self.let(word.replace("X", v.name).replace("A", str(axis)), shape, v.size)

    def view(self):
        """Slices, axes that change places, become one or are put together."""
        v, r = self.pick(lambda s: len(s) > 0), self.rng
        n, name = len(v.shape), v.name
        axis = r.randrange(n)
        dim, before, after = v.shape[axis], list(v.shape[:axis]), list(v.shape[axis + 1:])
        at = lambda s: f"{name}[{', '.join([':'] * axis + [s])}]"
        form = r.randrange(12)
        if form == 0 and n > 1:
            i, j = r.sample(range(n), 2)
            shape = list(v.shape)
            shape[i], shape[j] = shape[j], shape[i]
            self.let(f"transpose({name}, {i}, {j})", shape, v.size)
        elif form == 1 and n > 1:
            i = r.randrange(n - 1)
            a, b = v.shape[i:i + 2]
            one = a * b if isinstance(a, int) and isinstance(b, int) else b if a == 1 else a if b == 1 else f"{a} * {b}"
            self.let(f"reshape({name}, {listed(v.shape[:i] + (one,) + v.shape[i + 2:])})", v.shape[:i] + (one,) + v.shape[i + 2:], v.size)
        elif form == 2 and dim in (6, 12) and n < 4:
            part = r.choice([2, 3])
            shape = before + [dim // part, part] + after
            self.let(f"reshape({name}, {listed(shape)})", shape, v.size)
        elif form == 3 and isinstance(dim, int) and dim > 1:
            a = r.randrange(dim)
            b = r.randint(a + 1, dim)
            self.let(at(f"{a}:{b}"), before + [b - a] + after, v.size)
        elif form == 4 and isinstance(dim, int) and dim > 2:
            a, s = r.choice([0, 1]), r.choice([2, 3])
            self.let(at(f"{a}::{s}"), before + [len(range(a, dim, s))] + after, v.size)
        elif form == 5:
            self.let(at(str(r.choice([0, -1]))), before + after, v.size)
        elif form == 6 and dim == "time":
            text, shape = r.choice([("1:", "time - 1"), (":-1", "time - 1"), (":1", 1), ("1:3", 2)])
            self.let(at(text), before + [shape] + after, v.size)
        elif form == 7:
            o = self.pick(lambda s: s == v.shape)
            if isinstance(dim, int) and dim < 7:
                self.let(f"concat({name}, {o.name}, axis = {axis})", before + [2 * dim] + after, max(v.size, o.size))
            else:
                self.let(f"concat({name}[{':, ' * axis}1:], {o.name}[{':, ' * axis}:1], axis = {axis})", v.shape, max(v.size, o.size))
        elif form == 8 and n < 4:
            o = self.pick(lambda s: s == v.shape)
            self.let(f"stack({name}, {o.name}, axis = {axis})", before + [2, dim] + after, max(v.size, o.size))
        elif form == 9 and n < 4:
            self.let(at("none"), before + [1, dim] + after, v.size)
        elif form == 10:
            s = broadcast(v.shape, self.beside(v.shape, 0.8))
            self.let(f"expand({name}, {listed(s)})", s, v.size)
        elif isinstance(dim, int) and dim < 7:
            self.let(f"concat({at('1:')}, {at(':1')}, axis = {axis})" if dim > 1 else f"concat({name}, {name}, axis = {axis})",
                     before + [dim if dim > 1 else 2] + after, v.size)

    def look_up(self):
        """Rows of tables, elements along an axis."""
        r = self.rng
        form = r.randrange(5)
        v = self.pick(lambda s: len(s) > 0 and isinstance(s[0], int)) if form == 0 else None
        if v:
            s = self.beside(("batch", "time") if len(v.shape) < 3 else ("batch",))
            self.let(f"{v.name}[{self.input('i32', s, v.shape[0])}]", s + v.shape[1:], v.size)
        elif form == 1:
            self.let(f"{self.weight(ROWS, D)}[positions(x, 1) + {r.choice([0, 2])}]", ("time", D), 0.7)
        elif form == 2:
            self.let(f"one_hot({self.input('i32', ('batch', 'time'), ROWS)}, {ROWS}) @ {self.weight(ROWS, D)}", ("batch", "time", D), 0.7)
        elif form == 3:
            v = self.pick(lambda s: len(s) > 0)
            axes = [i for i, dim in enumerate(v.shape) if isinstance(dim, int)]
            if axes:
                axis = r.choice(axes)
                s = [r.choice([1, 2, 3]) if i == axis else (1 if r.random() < 0.4 else dim) for i, dim in enumerate(v.shape)]
                shape = [s[i] if i == axis else dim for i, dim in enumerate(v.shape)]
                self.let(f"gather({v.name}, {self.input('i32', s, v.shape[axis])}, axis = {axis})", shape, v.size)
        else:
            s = self.beside(("batch", "time"))
            ids = self.input("i32", s, ROWS)
            self.let(f"{self.weight(ROWS, D)}[{ids}]" + r.choice(["", f" + {self.weight(ROWS, D)}[{ids} * 5 % {ROWS}]"]), s + (D,), 1)

    def product(self):
        v, r = self.pick(lambda s: len(s) > 0 and isinstance(s[-1], int) and s[-1] <= 12), self.rng
        if not v:
            return
        n, form = v.shape[-1], r.randrange(6)
        o = self.pick(lambda s: len(s) > 1 and s[-1] == n and broadcast(s[:-2], v.shape[:-2]) is not None) if form == 0 and len(v.shape) > 1 else None
        if o:
            front = broadcast(v.shape[:-2], o.shape[:-2])
            if count(front + (v.shape[-2], o.shape[-2])) <= 1600:
                self.let(f"{v.name} @ transpose({o.name}, -1, -2) * 0.5", front + (v.shape[-2], o.shape[-2]), v.size * o.size)
            return
        width = r.choice([n, D, D, 2, 5])
        text, size = self.activated(v) if r.random() < 0.3 else (v.name, v.size)
        if form < 3:
            self.let(f"linear({text}, {self.weight(width, n)}{r.choice(['', ', ' + self.weight(width)])})", v.shape[:-1] + (width,), size * 1.5)
        elif form == 3 and len(v.shape) > 1:
            self.let(f"{text} @ {self.weight(n, width)}", v.shape[:-1] + (width,), size * 1.5)
        elif form == 4:
            w, b = self.weight(10, n), self.weight(10)
            h = self.let(f"linear({text}, {w}, {b})", v.shape[:-1] + (10,), size * 1.5)
            text, size = self.activated(h)
            self.let(f"linear({text}, {self.weight(width, 10)}, {self.weight(width)})", v.shape[:-1] + (width,), size * 1.5)
        else:
            w = self.weight(n, n)
            self.let(f"linear(linear({text}, {w}), {r.choice(['', '-'])}{w})", v.shape, size * 2)

    def attention(self):
        v, r = self.pick(lambda s: s == ("batch", "time", D)), self.rng
        if not v:
            return
        o = self.pick(lambda s: s == v.shape) if r.random() < 0.3 else v
        side = lambda u: f"split_heads({r.choice([f'linear({u.name}, {self.weight(D, D)})', f'linear({u.name}, {self.weight(D, D)}, {self.weight(D)})', u.name])}, {HEADS})"
        key, value = side(o), side(o)
        if r.random() < 0.2:  # keys and values that heads share
            key = value = f"linear({o.name}, {self.weight(D // HEADS, D)})[:, none]"
        scores = f"{side(v)} @ transpose({key}, -1, -2) * {r.choice(['0.5', '0.6', '1'])}"
        grid = ("batch", HEADS, "time", "time")
        more = r.choice(["", "", f" + {self.weight(HEADS, 1, 1)}", f" + {self.input('f32', self.beside(grid, 0))}",
                         f" * {self.weight(HEADS, 1, 1)}"])
        s = f"s{len(self.lines)}"
        self.lines.append(f"{s} = {scores}{more}")
        for _ in range(r.randrange(3)):
            mask = r.choice([f"causal_mask({v.name}, {o.name})", f"{self.input('bool', ('batch', 'time'))}[:, none, none, :]",
                             self.input("bool", self.beside(grid, 0)), self.input("bool", ("batch", 1, "time", "time"))])
            self.lines.append(f"{s} = where({mask}, {r.choice(['-inf', '-inf', '-1e10'])}, {s})")
        self.lines.append(f"p{s} = softmax({s})")
        if r.random() < 0.3:
            self.lines.append(f"p{s} = where({self.input('bool', self.beside(grid, 0))}, p{s} * 1.25, 0)")
        if r.random() < 0.15:
            self.values.append(Value(f"p{s}", grid, 1.25, True))
        self.let(f"merge_heads(p{s} @ {value})", v.shape, 1.5, True)

    def recurrence(self):
        """A state from step to step, with keys of their own for each head, or keys and factors that heads share."""
        v, r = self.pick(lambda s: s == ("batch", "time", D)), self.rng
        if not v:
            return
        line = lambda: r.choice([v.name, f"linear({v.name}, {self.weight(D, D)})"])
        heads = lambda: f"split_heads({line()}, {HEADS})"
        shared = lambda: f"linear({v.name}, {self.weight(D // HEADS, D)})[:, none]"
        number = lambda: f"transpose(linear({v.name}, {self.weight(HEADS, D)}), 1, 2)[..., none]"
        factor = lambda: f"sigmoid({r.choice([number, heads, shared, lambda: self.weight(HEADS, 1, 1), lambda: self.weight(1, D // HEADS)])()})"
        k = f"k{len(self.lines)}"
        self.lines.append(f"{k} = {r.choice([heads, shared])()}")
        named = r.choice(["", f", decay = {factor()}", f", beta = {factor()}", f", {factor()}, {factor()}", f", {factor()}, {factor()}"])
        q = r.choice([k, heads(), shared()])
        self.let(f"merge_heads(linear_attention({q}, {k} * rsqrt(sum({k} * {k}, keepdim = true) + 0.5), {heads()}{named})) * 0.5",
                 v.shape, 1.5, True)

    def convolution(self):
        v, r = self.pick(lambda s: s == ("batch", "time", D)), self.rng
        if v:
            k, groups = r.choice([1, 3]), r.choice([1, 1, 2, D])
            self.let(f"transpose(conv1d(transpose({v.name}, 1, 2), {self.weight(D, D // groups, k)}, padding = {k // 2}, groups = {groups}), 1, 2)",
                     v.shape, v.size * 1.5)

    def residual(self):
        v = self.pick(lambda s: s == ("batch", "time", D))
        o = self.pick(lambda s: s == ("batch", "time", D))
        if v:
            self.let(f"{v.name} + {o.name}", v.shape, v.size + o.size)

    def rotated(self):
        v, r = self.pick(lambda s: len(s) == 3 and s[1:] == ("time", D)), self.rng
        if v:
            self.let(f"rotary({v.name}, positions(x, 1){r.choice(['', ', layout = ' + chr(34) + 'interleaved' + chr(34)])})", v.shape, v.size)

    def step(self):
        names = ["unary", "binary", "binary", "masked", "masked", "masked", "dropped", "reduced", "reduced", "along", "view", "view", "look_up", "product",
                 "product", "attention", "recurrence", "convolution", "residual", "rotated"]
        before = len(self.lines)
        while len(self.lines) == before:
            getattr(self, self.rng.choice(names))()

    def weight_lines(self):
        return [f"  weight {n}: {listed(s)} = uniform(-0.7, 0.7)" for n, s in self.weights.items()]
