"""Random models for gradients.py, with kinks and with values of many shapes.

Model(rng) has `text(patterns)`, the model with its objective, and `inputs`, {name: (dtype, shape, limit)} with sizes as texts
or numbers. The objective is made of pieces (gradient_pieces.py): weights and tables that several operations share, masks of
other shapes, what jumps or has a kink, views, look-ups, reductions, attention; of layers that are repeated, layers of torch.nn
and experts. With `patterns` it has a metric that changes whenever some element gets to the other side of a kink or a jump:
points with the same pattern lie on the same smooth piece.

`is_random` says that the objective has dropout, or a stop_gradient: its slopes are not what the gradient says.
"""
import re

from gradient_pieces import D, HEADS, MARKS, ROWS, Scope, Value, broadcast, listed


def weighed(terms):
    """Their sum, each with a factor of its own: an element that jumps changes several, which must not cancel."""
    return " + ".join(f"{1 + 0.61 * i:.2f} * {term}" for i, term in enumerate(terms))


class Model:
    def __init__(self, rng):
        self.rng, self.inputs, self.layers, self.members = rng, {"x": ("f32", ("batch", "time", D), 1.5)}, [], []
        self.is_exact, self.is_random = rng.random() < 0.9, False
        self.objective = Scope(self, "h")
        main = self.objective
        main.inputs = ["x"]
        main.values.append(Value("x", ("batch", "time", D), 1.5))
        shape = rng.choice([(D,), (1, D), (ROWS, D), (1, 1, D), (1,), (3, 1)])
        main.values.append(Value(main.weight(*shape), shape, 0.7, True))
        for _ in range(rng.randint(2, 9)):
            if rng.random() < 0.15:
                rng.choice([self.repeated, self.repeated, self.standard, self.experts])()
            else:
                main.step()
        self.losses = []
        while len(self.losses) < rng.randint(1, 3) or (self.unread() and len(self.losses) < 5):
            self.losses.append(self.loss())

    def unread(self):
        """Values that depend on weights and that nothing reads yet."""
        main = self.objective
        read = set(re.findall(r"\w+", " ".join([line.split(" = ", 1)[1] for line in main.lines] + self.losses)))
        return [v for v in main.values if v.depends and v.name not in read]

    def hidden(self):
        main = self.objective
        return main.pick(lambda s: s == ("batch", "time", D))

    def repeated(self):
        """A layer of its own, several times, with one module or several."""
        r, main, name, member = self.rng, self.objective, f"Layer{len(self.layers)}", f"layers{len(self.layers)}"
        v, scope = self.hidden(), Scope(self, "y")
        scope.values.append(Value("x", v.shape, v.size, True))
        for _ in range(r.randint(1, 4)):
            scope.step()
        fit = [u for u in scope.values[1:] if broadcast(u.shape, v.shape) == v.shape]
        made = r.choice(fit[-2:]).name if fit else f"linear(x, {scope.weight(D, D)})"
        scope.out = r.choice([f"layer_norm(x + {made}, none, none, 1e-2)", f"tanh(x + {made})", f"x * 0.5 + 0.3 * tanh({made})"])
        n = r.choice([1, 2, 3])
        self.members += [f"  {member} = {n} * {name}()"] if r.random() < 0.7 else [f"  m{member} = {name}()", f"  {member} = {n} * m{member}"]
        self.layers.append((name, scope))
        main.inputs += [i for i in scope.inputs if i not in main.inputs]
        made = main.let(f"{member}({', '.join([v.name] + scope.inputs)})", v.shape, 1.5, True)
        if scope.terms:
            main.calls.append(made.name)

    def standard(self):
        """A layer of torch.nn; smooth, for its kinks are out of reach."""
        r, main, v = self.rng, self.objective, self.hidden()
        member, act, first = f"std{len(self.members)}", r.choice(["gelu", "silu", "tanh"]), r.choice(["false", "true"])
        mask = r.choice(["", "", ", is_causal = true", f", src_key_padding_mask = {main.input('bool', ('batch', 'time'))}"])
        form = r.randrange(3)
        if form == 0:
            self.members.append(f"  {member} = Encoder({D}, {HEADS}, 2, 7, {act}, norm_first = {first}, dropout = 0)")
            main.let(f"{member}({v.name}{mask})", v.shape, 2, True)
        elif form == 1:
            self.members.append(f"  {member} = 2 * DecoderLayer({D}, {HEADS}, 7, {act}, norm_first = {first}, dropout = 0)")
            main.let(f"{member}({v.name}, {self.hidden().name}, tgt_is_causal = true)", v.shape, 2, True)
        else:
            self.members.append(f"  {member} = MultiheadAttention({D}, {HEADS}, add_bias_kv = {r.choice(['true', 'false'])}, dropout = 0)")
            main.let(f"{member}({v.name}{mask.replace('src_', '')})", v.shape, 2, True)

    def experts(self):
        """The best of some experts, weighed."""
        r, main, v = self.rng, self.objective, self.hidden()
        i, n, k = len(main.lines), r.choice([2, 3]), r.choice([1, 2])
        gate, pairs = main.weight(n, D), [(main.weight(5, D), main.weight(D, 5)) for _ in range(n)]
        main.lines += [f"p{i}, chosen{i} = topk(softmax(linear({v.name}, {gate})), {k})",
                       f"g{i} = sum((p{i} / sum(p{i}, keepdim = true))[..., none] * one_hot(chosen{i}, {n}), axis = -2)"]
        main.terms.append(f"mark_ids(chosen{i})")
        act = r.choice(["silu", "gelu", "tanh"])
        terms = [f"g{i}[..., {e}:{e + 1}] * linear({act}(linear({v.name}, {a})), {b})" for e, (a, b) in enumerate(pairs)]
        main.let(" + ".join(terms) if r.random() < 0.5 else f"sum([{', '.join(terms)}])", v.shape, v.size)

    def loss(self):
        """A number made of a value."""
        r, main = self.rng, self.objective
        v = r.choice(self.unread() or [main.pick()])
        classes = len(v.shape) > 1 and isinstance(v.shape[-1], int) and v.shape[-1] > 1
        if classes and r.random() < 0.35:
            labels = main.input("i32", v.shape[:-1], v.shape[-1])
            more = r.choice(["", ", ignore_index = 0", ", label_smoothing = 0.2", ", reduction = \"sum\"", ", ignore_index = 0, reduction = \"none\""])
            text, rank = f"cross_entropy({v.name}, {labels}{more})", len(v.shape) - 1 if "none" in more else 0
            return self.down(text, v.shape[:-1], rank)
        o = main.operand(v.shape)
        text, shape = r.choice([(f"{v.name} * {o.name}", broadcast(v.shape, o.shape)), (f"{v.name} * {v.name}", v.shape), (v.name, v.shape)])
        if r.random() < 0.4:
            mask, s = main.mask(shape)
            shape = broadcast(shape, s)
            text = r.choice([f"where({mask}, {text}, 0)", f"({text}) * f32({mask})"])
            if r.random() < 0.4:
                return f"{self.down(text, shape, len(shape))} / ({self.down(f'f32({mask})', s, len(s), 'sum')} + 1)"
        return self.down(text, shape, len(shape))

    def down(self, text, shape, rank, word=None):
        """Sums and means until no axis is left; sums are made smaller."""
        for i in range(rank):
            text = f"{word or self.rng.choice(['sum', 'mean', 'mean'])}({text})"
        sums = text.count("sum(") if not word else 0
        return f"{text} * {0.2 ** min(sums, 3):.3g}" if sums and rank else text

    def text(self, patterns):
        lines = [MARKS] if patterns else []
        for name, scope in self.layers:
            known = "".join(f", {i}" for i in scope.inputs)
            result = scope.out + (", " + weighed(scope.terms) if patterns and scope.terms else "")
            body = "\n".join("    " + line for line in scope.lines)
            lines.append(f"layer {name}() {{\n" + "\n".join(scope.weight_lines()) + f"\n  forward(x: f32[batch, time, {D}]{known}) {{\n{body}\n"
                         f"    return {result}\n  }}\n}}")
        main, terms = self.objective, list(self.objective.terms)
        body = []
        for line in main.lines:
            name = line.split(" ")[0]
            if patterns and name in main.calls:
                terms.append(f"sum(reshape(k_{name}, [-1]))")
                line = line.replace(name, f"{name}, k_{name}", 1)
            body.append("    " + line)
        inputs = ", ".join(f"{n}: {t}[{', '.join(map(str, s))}]" for n, (t, s, _) in self.inputs.items())
        pattern = f",\n           pattern = {weighed(terms) or 'sum(sum(sum(x)))'}" if patterns else ""
        lines.append("model M {\n" + "\n".join(main.weight_lines() + self.members) + f"\n  forward(x: f32[n]) {{ return out = x }}\n"
                     f"  fn objective({inputs}) {{\n" + "\n".join(body) + f"\n    return loss = {' + '.join(f'({p})' for p in self.losses)}"
                     f"{pattern}\n  }}\n  train objective {{ optimizer = \"sgd\"  lr = 1 }}\n}}\n")
        return "\n".join(lines)
