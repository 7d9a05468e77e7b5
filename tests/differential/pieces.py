"""Pieces of random programs (generate.py) in the words of version 1.1 of the language: lists and `for`, paths with
values, functions of files, powers, running sums, topk, gather, expand, steps of slices, convolutions, norms of channels.

Each takes the program and the name of hidden states x: f32[batch, time, d], and gives the name of others. What jumps (floor,
the order of topk, comparisons) is made of inputs alone: values that were computed differ in their last bits.
"""

SMOOTH = [
    "tanh({a})", "sigmoid({a}) * {b}", "{a} * 0.5 + {b} * 0.25", "{a} - tanh({b}) * 0.5", "maximum({a}, {b}) * 0.5",
    "minimum({a}, tanh({b}))", "tanh({a}) ** 2", "tanh({a}) ** 3", "sin({a}) ** 5 * 0.5", "(abs({a}) + 0.5) ** 0.5",
    "(abs({a}) + 1) ** -0.5", "(tanh({a}) + 2) ** -1", "1 / (1 + {a} ** 2)", "(abs(tanh({a})) + 0.25) ** 1.7",
    "2 ** tanh({a})", "(1.5 + sigmoid({a})) ** tanh({b})", "pow(tanh({a}), 2) - 0.5", "clamp({a}, -1, 1)", "clamp({a}, low = -0.5)",
    "softplus({a})", "softplus({a}, beta = 2) * 0.5", "elu({a})", "leaky_relu({a}, 0.2)", "mish({a})", "relu6({a} * 2) * 0.5",
    "hardsigmoid({a})", "hardswish({a})", "selu({a}) * 0.5", "logsigmoid({a})", "sign({a}) * minimum(abs({a}), 0.5)",
    "where({a} > 0, {a}, {b} * 0 - tanh({a}))", "masked_fill({a}, {a} < -1, -1)", "cos({a}) * 0.5", "erf({a})", "relu({a}) ** 2 * 0.1",
]
ACTIVATIONS = ["relu", "gelu", "tanh", "silu", "mish", "hardswish", "softplus", "elu", "relu6", "selu"]


def smooth(r, leaves, depth):
    """A continuous expression of the leaves, elementwise."""
    if depth == 0:
        return r.choice(leaves)
    inner = [smooth(r, leaves, r.randrange(depth)) for _ in range(2)]
    return "(" + r.choice(SMOOTH).format(a=inner[0], b=inner[1]) + ")"


def file_function(p):
    """The name of a function of the file with one argument that is needed; some call those made before."""
    r, name = p.rng, p.name("f")
    leaves = ["x", "x", f"{r.choice(p.functions)}(x)" if p.functions else "x"]
    if r.random() < 0.3:
        p.layers += [f"fn {name}(x, a = {r.choice(['0.5', '1 / 4', '2 ** -1', 'sqrt(2) / 2'])}, shift = none) {{",
                     f"  y = {smooth(r, leaves, 2)} * a", "  if shift != none { y = y + shift }",
                     f"  for i in {r.choice([0, 1, 2, 3])} {{ y = y * 0.75 + tanh(x) * (i + 1) / 8 }}", "  return y", "}"]
    else:
        p.layers.append(f"fn {name}(x, a = {r.choice(['0.5', '1', '-0.25'])}) = {smooth(r, leaves, 2)} * a")
    p.functions.append(name)
    return name


def activation(p):
    return file_function(p) if p.rng.random() < 0.3 else p.rng.choice(ACTIVATIONS)


# --- Lists and loops ----------------------------------------------------------------------------------------------

def place_layer(p):
    """A layer whose config `i` says where it stands; with a second argument that may be left out."""
    r, name, d = p.rng, p.name("Place"), p.d
    w = r.choice([d, 2 * d, 7, 24])
    path = r.choice(["", ' as "up_{i}"', ' as "up.{kind}.{i}"'])
    p.layers += [
        f'layer {name}(i, activation = relu, kind = "a") {{', f"  up = Linear({d}, {w}){path}",
        f"  if i % 2 == {r.randrange(2)} {{ norm = {r.choice(['LayerNorm', 'RMSNorm'])}({d}) }} else {{ norm = none }}",
        f"  down = Linear({w}, {d}, bias = i > 0) as {r.choice([chr(34) + 'down' + chr(34), chr(34) + 'out_{i}.dense' + chr(34)])}",
        "  forward(x, step = none) {", "    y = x", "    if step != none { y = y + step }", "    y = y -> up -> activation -> down",
        "    if norm != none { y = norm(y) }", "    return x + y / (i + 1)", "  }", "}"]
    return name


def place_list(p, n):
    """A member: a list of n layers that differ by their places."""
    r, name = p.rng, place_layer(p)
    chosen = r.choice([f"[{activation(p)}, {activation(p)}][i % 2]", f"if i % 2 == 0 then {activation(p)} else {activation(p)}",
                       activation(p), f"[{', '.join(activation(p) for _ in range(n))}][-1 - i]"])
    item = f"{name}(i, activation = {chosen}, kind = {r.choice(['[' + chr(34) + 'a' + chr(34) + ', ' + chr(34) + 'b' + chr(34) + '][i // 2 % 2]', chr(34) + 'c' + chr(34)])})"
    form = r.randrange(5)
    if form == 0:
        return p.member("places", f"[{item} for i in {n}]" + r.choice(["", ' as "encoder.layer"']))
    if form == 1:
        return p.member("places", f'[{item} as "block_{{i}}" for i in {n}]')
    if form == 2:
        return p.member("places", f"[{item} for i in {[n - 1 - i for i in range(n)]}]")
    if form == 3:
        return p.member("places", f"[{name}(0), {name}(1, tanh)] + [{item} for i in {list(range(2, n))}]")
    first = p.member("ours", f"[{item} for i in {n}]")
    return p.member("places", f"[{first}[i // 2] for i in {n}]")


def differing(p, x):
    """Layers that differ by their place, called whole, in parts, or one by one with arguments of their own."""
    r, out, n = p.rng, p.name("h"), p.rng.choice([2, 3, 4])
    m, k = place_list(p, n), p.rng.randrange(n + 1)
    form = r.randrange(8)
    if form == 0:
        p.say(f"{out} = {m}({x})")
    elif form == 1:
        p.say(f"{out} = {x} -> {m}[:{k}] -> {m}[{k}:]")
    elif form == 2:
        p.say(f"{out} = {m}[{r.choice(['::2', '1::2', '-1:', ':-1'])}]({x})")
    elif form == 3:
        p.say(f"{out} = {m}[-1]({m}[0]({x}))")
    elif form == 4:
        p.say(f"{out} = ({r.choice([1, 2])} * {m}[:2])({x})")
    else:
        hidden = p.name("all")
        steps = p.name("steps")
        p.members.append(f"weight {steps}: [{n}, {p.d}]")
        p.say(f"{out} = {x}")
        p.say(f"{hidden} = []")
        p.say(f"for i in {r.choice([str(n), 'len(' + m + ')'])} {{")
        p.say(f"  {out} = {m}[i]({out}, {steps}[i])" if r.random() < 0.7 else f"  if i % 2 == 0 {{ {out} = {m}[i]({out}) }}")
        p.say(f"  {hidden} = {hidden} + [{out}]")
        p.say("}")
        p.say(f"{out} = " + r.choice([
            f"sum({hidden}) / len({hidden})", f"max({hidden})", f"min([{out}, {hidden}[0]])", f"{out} + {hidden}[0] * 0.5",
            f"concat({hidden}[:2])[..., ::2]", f"stack({hidden})[-1] + stack({hidden}, axis = 2)[:, :, 0]",
            f"sum([{hidden}[i] * (i + 1) / 4 for i in {n}])", f"mean(stack([tanh(y) for y in {hidden}]), axis = 0)"]))
    return out


def windows(p, x):
    """Attention that sees a window in some of the layers; the maps come stacked."""
    r, name, out = p.rng, p.name("Window"), p.name("h")
    heads, d, n = p.heads, p.d, p.rng.choice([2, 3])
    hidden = r.choice(["causal_mask(x)", "causal_mask(q)", "causal_mask(q, k)", "positions(x, 1) > positions(x, 1)[:, none]"])
    p.layers += [
        f"layer {name}(window = none) {{", f"  qkv = Linear({d}, {3 * d})", f"  out = Linear({d}, {d})", f"  norm = LayerNorm({d})",
        "  forward(x) {", "    q, k, v = parts(norm(x))", "    at = positions(x, 1)", f"    unseen = {hidden}",
        "    if window != none { unseen = unseen or at[:, none] - at >= window }",
        f"    a = softmax(where(unseen, -inf, q @ transpose(k, -1, -2) / sqrt({p.head})))",
        "    return x + out(merge_heads(a @ v)), a", "  }", "  fn parts(y) {",
        f"    all = [split_heads(z, {heads}) for z in [qkv(y)[..., i * {d} : (i + 1) * {d}] for i in 3]]",
        "    return all[0], all[1], all[2]", "  }", "}"]
    made = p.member("windows", f"[{name}(window = if i % 2 == {r.randrange(2)} then {r.choice([1, 2, 5])} else none) for i in {n}]")
    if r.random() < 0.4:
        maps = p.name("maps")
        p.say(f"{out}, {maps} = {made}({x})")
        p.outputs.append(r.choice([f"{maps}", f"some_{maps} = {maps}[-1, :, 0]", f"seen_{maps} = max({maps}, axis = 0)"]))
    else:
        p.say(f"{out} = {made}({x})")
    return out


def sequential(p, x):
    """nn.Sequential, and lists in lists."""
    r, out, d, w = p.rng, p.name("h"), p.d, p.rng.choice([5, 16, 33])
    form = r.randrange(3)
    if form == 0:
        parts = [f"Linear({d}, {w})", activation(p), f"LayerNorm({w})", f"Linear({w}, {d}, bias = false)", activation(p)]
        net = p.member("net", "[" + ", ".join(parts[:r.choice([4, 5])]) + "]")
    elif form == 1:
        net = p.member("net", f"[[Linear({d}, {w}), {activation(p)}], [Linear({w}, {d}) as \"last\"]]")
    else:
        name = p.name("Step")
        p.layers.append(f"layer {name}(d) {{ lin = Linear(d, d) as \"\"  forward(x) = x + tanh(lin(x)) }}")
        net = p.member("net", f"[[{name}({d}) for j in 2] for i in 2]")
        p.say(f"{out} = {r.choice(['{x} -> {n}', '{n}[1]({x})', '{n}[0][1]({x})', '{n}[1][:1]({x})']).format(x=x, n=net)}")
        return out
    p.say(f"{out} = {x} + {net}({x})" if r.random() < 0.7 else f"{out} = {x} -> {net}")
    return out


# --- Words for tensors --------------------------------------------------------------------------------------------

def elementwise(p, x):
    r, out = p.rng, p.name("h")
    f = file_function(p)
    p.say(f"{out} = " + r.choice([f"{x} + {f}({x})", f"{x} -> {f}(0.5)", f"{f}({x}) + {f}({x}, a = 0.25)",
                                  smooth(r, [x, f"{f}({x})"], 2), f"{x} + [{f}, tanh][{r.randrange(2)}]({x})"]))
    return out


def along(p, x):
    """Running sums, the greatest, elements along an axis, broadcasting by hand, steps of slices."""
    r, out, t, d = p.rng, p.name("h"), p.name("t"), p.d
    k = r.randrange(1, min(d, 6) + 1)
    kind = r.randrange(14)
    if kind == 0:
        word = r.choice(["cumsum(X A) * 0.125", "shift(X, 1) * 0.5", "shift(X, N A) * 0.5"])
        axis = r.choice(["", ", axis = 1", ", axis = 0", ", axis = 2"])
        p.say(f"{out} = {x} + " + word.replace("X", x).replace(" A", axis).replace("N", str(r.choice([-5, -1, 1, 2, 3, 40, 5000]))))
    elif kind == 1:
        p.say(f"{t}, unused_{t} = topk({x}, {k})")
        p.say(f"{out} = {x} - {t}[..., {r.choice(['0', str(k - 1), '-1'])}, none] * 0.5")
    elif kind == 2:
        p.say(f"{t}, at_{t} = topk({x}, {k})")
        p.say(f"{out} = {x} + sum(gather({x}, at_{t}), keepdim = true) * 0.25 + mean({t}, keepdim = true)")
    elif kind == 3:
        ids = p.input("pick", "i32", ["batch", "time", str(d)], d)
        p.say(f"{out} = {x} + gather({x}, {ids}) * 0.5")
    elif kind == 4:
        p.say(f"{t} = positions({x}, 1) * {r.choice([2, 3, 7])} % shape({x}, 1)")
        p.say(f"{out} = {x} * 0.5 + gather({x}, {t}[none, :, none], axis = 1)")
    elif kind == 5:
        p.say(f"{out} = {x} + expand(max({x}, keepdim = true), [-1, -1, {d}]) * 0.5")
    elif kind == 6:
        p.say(f"{t} = expand(mean({x}, axis = 1, keepdim = true), [{r.choice(['-1', f'shape({x}, 0)'])}, shape({x}, 1), -1])")
        p.say(f"{out} = {x} - {t}")
    elif kind == 7:
        p.say(f"{t} = stack({r.choice(['', '-'])}{x}[..., 1::2], {x}[..., ::2], axis = -1)")
        p.say(f"{out} = {x} + reshape({t}, [shape({x}, 0), -1, {d}]) * 0.5")
    elif kind == 8:
        p.say(f"{t} = concat({x}[..., {d // 2}:{d}:2], {x}[..., :{d // 2}:2])")
        p.say(f"{out} = {x} + mean({t}, keepdim = true) + sum({x}[..., ::3], keepdim = true) / {d}")
    elif kind == 9:
        p.say(f"{t} = reshape({x}, [{r.choice([f'-1, {d}', f'shape({x}, 0), -1'])}])")
        p.say(f"{out} = reshape(tanh({t}) + {t}, [shape({x}, 0), -1, {d}])")
    elif kind == 10:
        p.say(f"{out} = {x} + roll({x}, {r.choice(['1, axis = 1', '-1, axis = 1', str(k), str(-k), '0', '1, axis = 0'])}) * 0.5")
    elif kind == 11:
        p.say(f"{out} = {x} - flip({x}{r.choice(['', ', axis = 1', ', axis = 0'])}) * 0.25")
    elif kind == 12:
        p.say(f"{out} = " + r.choice([f"normalize({x}) * sqrt({d})", f"{x} - logsumexp({x}, keepdim = true)",
                                      f"{x} - logsumexp({x}, axis = 1, keepdim = true)", f"normalize({x}, axis = 1)",
                                      f"{x} + cosine_similarity({x}, roll({x}, 1, axis = 1))[..., none]"]))
    else:
        taps, w = p.name("taps"), r.choice([2, 3, 5])
        p.members.append(f"weight {taps}: [{w}, {d}]")
        p.layers.append(f"fn wide{taps}(x) = pad(x, [0, 0, {w // 2}, {w - 1 - w // 2}])")
        p.say(f"{t} = wide{taps}({x})")
        p.say(f"{out} = {x} + sum([{t}[:, k : k + shape({x}, 1)] * {taps}[k] for k in {w}])")
    return out


def of_inputs(p, x):
    """What jumps: rounding, integers, truths, the order of topk; made of inputs."""
    r, out, t = p.rng, p.name("h"), p.name("t")
    kind = r.randrange(9)
    if kind == 0:
        raw = p.input("raw", "f32", ["batch", "time"])
        p.say(f"{t} = {r.choice(['floor', 'ceil', 'round'])}({raw} * {r.choice([1, 2, 4])})")
        p.say(f"{out} = {x} + {t}[:, :, none] * 0.125")
        if r.random() < 0.5:
            p.outputs.append(f"rounded_{t} = {t}")
    elif kind == 1:
        table, k = p.input("table", "f32", ["batch", "13"]), r.choice([1, 3, 13])
        p.say(f"{t}, at_{t} = topk({table}, {k})")
        p.outputs += [f"at_{t}", f"best_{t} = {t}"]
        p.say(f"{out} = {x} + {t}[:, :1, none] * 0.1")
    elif kind == 2:
        ints = p.input("ints", "i32", ["batch", "time"], 1000)
        p.say(f"{t} = " + r.choice([f"{ints} ** {r.choice([0, 1, 2, 3, 5])} % 7", f"cumsum({ints}, axis = 1) % 5", f"cumsum({ints} * 2000000, axis = 0) % 9",
                                    f"flip({ints}, axis = 1) % 4 - 2", f"-({ints} // 7) % 11", f"sign({ints} - 500)",
                                    f"clamp({ints}, 100, 900) // 100", f"maximum({ints} % 3, {ints} % 5)"]))
        p.say(f"{out} = {x} + f32({t})[..., none] * 0.1")
        p.outputs.append(f"whole_{t} = {t}")
    elif kind == 3:
        ints = p.input("ints", "i32", ["batch", "time"], 1000)
        p.outputs.append(f"total_{t} = " + r.choice([f"sum({ints}, axis = {r.randrange(2)})", f"max({ints}, axis = 1)", f"min({ints}, axis = 0)",
                         f"sum({ints} * 2000003)", f"max({ints}, axis = 1, keepdim = true) - {ints}", f"cumsum({ints} * 999983, axis = 1)",
                         f"sum([{ints}, {ints} // 2, -{ints}])"]))
        p.say(f"{out} = {x} * 0.5")
    elif kind == 4:
        ints = p.input("ints", "i32", ["batch", "time"], 1000)
        w = p.name("codes")
        p.members.append(f"weight {w}: [5, {p.d}]")
        p.say(f"{out} = {x} + one_hot({ints} % {r.choice([5, 7])}, 5) @ {w}")
    elif kind == 5:
        pad = p.input("pad", "bool", ["batch", "time"], 0.3)
        p.say(f"{t} = {r.choice(['any', 'all'])}({pad}, axis = 1{r.choice(['', ', keepdim = true'])})")
        p.outputs.append(f"truth_{t} = {t}")
        p.say(f"{out} = {x} * 0.5")
    elif kind == 6:
        pad = p.input("pad", "bool", ["batch", "time"], 0.3)
        p.say(f"{out} = masked_fill({x}, {pad}[..., none], {r.choice(['0', '-1', '0.5'])})")
    elif kind == 7:
        pad = p.input("pad", "bool", ["batch", "time"], 0.3)
        p.say(f"{t} = mean_pooling({x}{r.choice(['', ', ' + pad])})")
        p.say(f"{out} = {x} + {t}[:, none]")
    else:
        ints = p.input("ints", "i32", ["batch", "time"], 1000)
        p.say(f"{t} = causal_mask({ints}, axis = 1)")
        p.say(f"{out} = {x} + tanh(f32(not {t}) @ {x}) * 0.5")
    return out


def experts(p, x):
    """A mixture of experts in several spellings."""
    r, out, d = p.rng, p.name("h"), p.d
    n, k, w, name = r.choice([2, 3, 4]), r.choice([1, 2]), r.choice([6, 16, 20]), p.name("Expert")
    gated = r.random() < 0.5
    p.layers += [f"layer {name}() {{", f"  w1 = Linear({d}, {w}, bias = {r.choice(['true', 'false'])})", f"  w2 = Linear({w}, {d}, bias = false)"]
    p.layers += [f"  w3 = Linear({d}, {w}, bias = false)", "  forward(x) = w2(silu(w1(x)) * w3(x))", "}"] if gated else [
        f"  forward(x) = w2({r.choice(['relu', 'gelu'])}(w1(x)))", "}"]
    router, made = p.member("router", f"Linear({d}, {n}, bias = false)"), p.member("experts", f"[{name}() for e in {n}]")
    best, chosen, gate = p.name("best"), p.name("chosen"), p.name("gate")
    form = r.randrange(3)
    if form < 2:
        p.say(f"{best}, {chosen} = topk({r.choice(['softmax({})', '{}']).format(f'{router}({x})') if form == 0 else f'softmax({router}({x}))'}, {k})")
        p.say(f"{best} = softmax({best})" if form == 0 else f"{best} = {best} / sum({best}, keepdim = true)")
    if form == 0:
        p.say(f"{gate} = sum({best}[..., none] * one_hot({chosen}, {n}), axis = -2)")
        terms = f"{gate}[..., e, none] * {made}[e]({x})"
    elif form == 1:
        p.say(f"{gate} = [sum(where({chosen} == e, {best}, 0), keepdim = true) for e in {n}]")
        terms = f"{gate}[e] * {made}[e]({x})"
    else:
        p.say(f"{gate} = softmax({router}({x}))")
        terms = f"{made}[e]({x}) * {gate}[..., e : e + 1]"
    p.say(f"{out} = {x} + sum([{terms} for e in {n}])")
    return out


def relative(p, x):
    """Attention whose scores depend on distances: gathered (DeBERTa), looked up (T5), or falling with the distance (ALiBi)."""
    r, name, out, heads, d = p.rng, p.name("Relative"), p.name("h"), p.heads, p.d
    span, kind = r.choice([1, 2, 4]), r.randrange(3)
    lines = [f"layer {name}() {{", f"  query = Linear({d}, {d})", f"  key = Linear({d}, {d})", f"  value = Linear({d}, {d})", f"  norm = LayerNorm({d})"]
    if kind == 0:
        lines.append(f"  weight far: [{2 * span}, {d}]")
    elif kind == 1:
        lines.append(f"  weight far: [{2 * span + 1}, {heads}]")
    lines += ["  forward(x, pad = none) {", *(f"    {n} = split_heads({m}(x), {heads})" for n, m in zip("qkv", ("query", "key", "value"))),
              "    at = positions(x, 1)", f"    s = q @ transpose(k, -1, -2) / sqrt({p.head})"]
    if kind == 0:
        lines += [f"    place = clamp(at[:, none] - at + {span}, 0, {2 * span - 1})[none, none]",
                  f"    s = s + gather(q @ transpose(split_heads(key(far), {heads}), -1, -2), place) * 0.5"]
        if r.random() < 0.5:
            lines += [f"    s = s + transpose(gather(k @ transpose(split_heads(query(far), {heads}), -1, -2), place), -1, -2)"]
    elif kind == 1:
        lines += [f"    s = s + transpose(transpose(far[clamp(at - at[:, none], {-span}, {span}) + {span}], 1, 2), 0, 1)"]
    else:
        slopes = r.choice([f"2 ** (f32(arange({heads}) + 1) * (-8 / {heads}))", f"stack([full([], 2 ** (-(i + 1) / 2)) for i in {heads}])"])
        lines += [f"    s = s + ({slopes})[:, none, none] * f32(at - at[:, none])"]
    if r.random() < 0.4:
        lines.append("    s = masked_fill(s, causal_mask(x), -inf)")
    lines += ["    if pad != none { s = masked_fill(s, pad[:, none, none], -inf) }", "    return norm(x + merge_heads(softmax(s) @ v))", "  }", "}"]
    p.layers += lines
    call = f"{x}, {p.input('pad', 'bool', ['batch', 'time'], 0.3)}" if r.random() < 0.4 else x
    p.say(f"{out} = {p.member('relative', name + '()')}({call})")
    return out


# --- Convolutions and norms of channels -----------------------------------------------------------------------------

def convolution(p, x):
    """A convolution along the positions that keeps their number, with norms of channels and gates."""
    r, name, out, d = p.rng, p.name("Convolved"), p.name("h"), p.d
    kernel, dilation, groups = r.choice([1, 2, 3, 5]), r.choice([1, 1, 2]), r.choice([1, 1, 2, p.heads, d])
    wide = d * (2 if r.random() < 0.3 else 1)
    reach = dilation * (kernel - 1)
    side = r.randrange(3)
    padding = '"same"' if side == 0 else str(reach // 2) if side == 1 and reach % 2 == 0 else "0"
    lines = [f"layer {name}() {{", f"  conv = Conv1d({d}, {wide}, {kernel}, padding = {padding}, dilation = {dilation}, groups = {groups}, "
             f"bias = {r.choice(['true', 'false'])})"]
    norm = r.choice(["none", f"BatchNorm1d({wide})", f"BatchNorm1d({wide}, affine = false)", f"GroupNorm({r.choice([1, 2, wide])}, {wide})"])
    lines += [f"  norm = {norm}"] + (["  gate = GLU(1)"] if wide > d else [])
    lines += ["  forward(x: f32[B, T, d]) {", "    y = transpose(x, 1, 2)"]
    lines += [f"    y = pad(y, [{reach}, 0])"] if padding == "0" and reach else []
    lines += ["    y = conv(y)"] + (["    y = norm(y)"] if norm != "none" else []) + (["    y = gate(y)"] if wide > d else [])
    lines += [f"    return x + transpose({activation(p)}(y), 1, 2)", "  }", "}"]
    p.layers += lines
    p.say(f"{out} = {x} -> {p.member('convolved', name + '()')}")
    return out


def picture(p):
    """Patches of a picture of a size that is known when compiling: (f32[batch, places, d], how many places)."""
    r, d = p.rng, p.d
    channels, high, wide = r.choice([1, 2, 3]), r.choice([4, 6, 9]), r.choice([5, 8])
    image = p.input(p.name("image"), "f32", ["batch", str(channels), str(high), str(wide)])
    kernel = [r.choice([1, 2, 3]), r.choice([1, 2, 3])]
    stride, padding = [r.choice([1, 2, 3]), r.choice([2, 3])], r.choice([0, 1])
    if r.random() < 0.4:
        kernel, stride = [kernel[0]] * 2, [stride[1]] * 2
    given = [str(v[0] if v[0] == v[1] and r.random() < 0.7 else v) for v in (kernel, stride)]
    conv = p.member("patches", f"Conv2d({channels}, {d}, {given[0]}, stride = {given[1]}, padding = {padding})")
    places = [(n + 2 * padding - k) // s + 1 for n, k, s in zip((high, wide), kernel, stride)]
    y = p.name("y")
    p.say(f"{y} = {conv}({image})")
    if r.random() < 0.5:
        deep = p.member("deep", f"Conv2d({d}, {d}, 3, padding = \"same\", groups = {r.choice([d, d, 2])})")
        norm = p.member("norm", r.choice([f"BatchNorm2d({d})", f"GroupNorm(2, {d})"]))
        p.say(f"{y} = {y} + {norm}({deep}({y}))")
    p.say(f"{y} = transpose(reshape({y}, [shape({y}, 0), {d}, -1]), 1, 2)")
    return y, places[0] * places[1]


def beside_picture(p, x):
    r, out = p.rng, p.name("h")
    y, _ = picture(p)
    if r.random() < 0.5:
        p.say(f"{out} = {x} + tanh({y} -> {r.choice(['mean', 'max'])}(axis = 1))[:, none]")
    else:
        made = p.member("cross", f"MultiheadAttention({p.d}, {p.heads})")
        p.say(f"{out} = {x} + {made}({x}, {y}, {y})")
    return out


# --- Run-time sizes that are rounded down ---------------------------------------------------------------------------

def halved(p, x):
    """Every second position, by a slice or a convolution; each position gets what stands over it."""
    r, out, t, d = p.rng, p.name("h"), p.name("t"), p.d
    kind = r.randrange(5)
    if kind < 2:
        conv = p.member("shorter", f"Conv1d({d}, {d}, {r.choice([1, 2, 3])}, stride = 2, padding = 1, groups = {r.choice([1, d])})")
        p.say(f"{t} = {x} -> transpose(1, 2) -> {conv} -> transpose(1, 2)")
    elif kind == 2:
        p.say(f"{t} = {x}[:, ::2]")
    elif kind == 3:
        p.say(f"{t} = {x}[:, : (shape({x}, 1) + 1) // 2] * 0.5")
    else:
        p.say(f"{out} = {x} + concat({x}[:, ::2], {x}[:, 1::2], axis = 1) * 0.5")
        return out
    if r.random() < 0.3:
        p.outputs.append(f"half_{t} = {t}")
    p.say(f"{out} = {x} + gather({t}, (positions({x}, 1) // 2)[none, :, none], axis = 1)")
    return out


def blocks(p, x):
    """Attention within blocks of positions, the last one filled up."""
    r, name, out, w = p.rng, p.name("Blocks"), p.name("h"), p.rng.choice([2, 3, 4])
    p.layers += [f"layer {name}(d = {p.d}, w = {w}) {{", "  qkv = Linear(d, 3 * d)", "  forward(x: f32[B, T, d]) {",
                 "    n = (T + w - 1) // w", "    y = concat(x, full([B, n * w - T, d], 0), axis = 1)",
                 "    q, k, v = parts(qkv(reshape(y, [B, n, w, d])))", f"    a = softmax(q @ transpose(k, -1, -2) / sqrt({p.head}))",
                 "    return x + reshape(merge_heads(a @ v), [B, n * w, d])[:, :T]", "  }",
                 f"  fn parts(y) {{ return {', '.join(f'split_heads(y[..., {i} * d : {i + 1} * d], {p.heads})' for i in range(3))} }}", "}"]
    p.say(f"{out} = {x} -> {p.member('blocks', name + '()')}")
    return out


# --- Rows that are left out -------------------------------------------------------------------------------------------

def padded(p, x):
    """Layers that leave padding out, and whose results are wanted without it; perhaps one of them is an output in between."""
    r, out, t, d = p.rng, p.name("h"), p.name("t"), p.d
    pad, before = p.input("pad", "bool", ["batch", "time"], 0.3), x
    for i in range(r.choice([1, 2, 3])):
        layer = p.member("layer", f"EncoderLayer({d}, {p.heads}, {r.choice([7, 31, 64, 97])}, {r.choice(ACTIVATIONS[:4])}, "
                         f"norm_first = {r.choice(['true', 'false'])})")
        p.say(f"{t}_{i} = {layer}({before}, src_key_padding_mask = {pad})")
        before = f"{t}_{i}"
    if r.random() < 0.5:
        p.outputs.append(f"kept_{t} = " + r.choice([f"where({pad}[..., none], 0, {t}_0)", f"mean_pooling({before}, {pad})"]))
    p.say(f"{out} = " + r.choice([f"where({pad}[..., none], 0, {before})", f"where({pad}[..., none], {x}, {before}) * 0.5",
                                  f"{x} + mean_pooling({before}, {pad})[:, none] * 0.5", f"{x} * 0.5 + tanh({before}[:, :1])"]))
    return out


PIECES = [differing, differing, windows, sequential, elementwise, elementwise, along, along, along, of_inputs, of_inputs, experts,
          relative, convolution, convolution, beside_picture, halved, halved, blocks, padded, padded]
