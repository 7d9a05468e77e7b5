"""Random .tfm programs for the differential test: each is a valid model whose pieces are drawn from what the compiler
fuses (attention in many spellings, projections, feed-forwards, norms, embeddings), from near misses of those patterns,
from plain primitives with odd sizes, and from the words of version 1.1 (pieces.py).

    generate.py SEED            prints the program and its inputs

program(seed) gives (source, inputs): inputs is {name: (dtype, shape, limit)}; an i32 input is drawn from [0, limit),
a bool input is true with probability `limit`.
"""
import random
import sys
from pieces import PIECES, picture

ACTIVATIONS = ["relu", "gelu", "gelu_tanh", "quick_gelu", "silu", "tanh", "sigmoid"]
ODD_WIDTHS = [3, 5, 8, 12, 17, 24, 31, 32, 48, 50, 64, 80, 96]


class Program:
    """One model under construction: its layers' text, members, statements of forward, inputs."""

    def __init__(self, rng):
        self.rng = rng
        self.layers, self.members, self.body, self.outputs = [], [], [], []
        self.inputs, self.functions = {}, []
        self.batch, self.time = rng.choice([1, 1, 2, 3, 5]), rng.choice([1, 2, 3, 7, 9, 16, 17, 33])
        self.source = rng.choice([1, 4, 6, 15, 18])
        self.heads = rng.choice([1, 2, 3, 4])
        self.head = rng.choice([2, 4, 6, 8, 16, 20, 32])
        self.d = self.heads * self.head
        self.count = 0

    def name(self, stem):
        self.count += 1
        return f"{stem}{self.count}"

    def say(self, line):
        self.body.append(line)

    def member(self, stem, made):
        name = self.name(stem)
        self.members.append(f"{name} = {made}")
        return name

    def input(self, name, dtype, sizes, limit=None):
        """Declares an input; `sizes` are texts: run-time sizes or numbers."""
        known = {"batch": self.batch, "time": self.time, "source": self.source}
        if name not in self.inputs:
            self.inputs[name] = (dtype, sizes, [known.get(s, None) if s in known else int(s) for s in sizes], limit)
        return name

    def text(self):
        params = ", ".join(f"{n}: {t}[{', '.join(s)}]" for n, (t, s, _, _) in self.inputs.items())
        lines = self.layers + [f"model Random {{"] + [f"  {m}" for m in self.members]
        lines += [f"  forward({params}) {{"] + [f"    {b}" for b in self.body]
        lines += [f"    return {', '.join(self.outputs)}", "  }", "}"]
        return "\n".join(lines) + "\n"


# --- Where hidden states come from --------------------------------------------------------------------------------

def start(p):
    """The first hidden states x: f32[batch, time, d]."""
    kind = p.rng.randrange(5)
    if kind == 0 and p.rng.random() < 0.3:
        x, p.time = picture(p)
        return x
    if kind == 0:
        p.input("x", "f32", ["batch", "time", str(p.d)])
        return "x"
    vocab = p.rng.choice([7, 40, 101])
    p.input("ids", "i32", ["batch", "time"], vocab)
    table = p.member("embed", f"Embedding({vocab}, {p.d})")
    x = p.name("h")
    if kind == 1:
        p.say(f"{x} = {table}(ids) * sqrt({p.d}) -> PositionalEncoding({p.d})")
    elif kind == 2:
        places = p.member("places", f"Embedding(64, {p.d})")
        norm = p.member("norm", f"LayerNorm({p.d})")
        p.say(f"{x} = {norm}({table}(ids) + {places}(positions(ids, 1)))")
    elif kind == 3:
        layout = p.rng.choice(["interleaved", "concatenated"])
        p.say(f'{x} = {table}(ids) * 0.5 + sinusoid(positions(ids, 1), {p.d}, layout = "{layout}")')
    else:
        segment = p.member("segment", f"Embedding(2, {p.d})")
        p.say(f"{x} = {table}(ids) + {segment}.weight[1]")
    return x


def memory(p):
    """Hidden states of another sequence: f32[batch, source, d]."""
    p.input("memory", "f32", ["batch", "source", str(p.d)])
    return "memory"


# --- Attention in many spellings ----------------------------------------------------------------------------------

def attention_layer(p):
    """A written attention layer; returns (name, whether it takes a mask argument 'pad' and 'bias')."""
    r, name = p.rng, p.name("Attention")
    heads, d = p.heads, p.d
    bias = r.choice(["true", "true", "false"])
    lines = [f"layer {name}() {{"]
    packed = r.random() < 0.25
    if packed:
        lines.append(f"  qkv = Linear({d}, {3 * d}, bias = {bias})")
    else:
        lines += [f"  wq = Linear({d}, {d}, bias = {bias})", f"  wk = Linear({d}, {d}, bias = {bias})",
                  f"  wv = Linear({d}, {d}, bias = {r.choice(['true', bias])})"]
    lines.append(f"  wo = Linear({d}, {d}, bias = {bias})")
    lines.append("  forward(x, y, pad = none, extra = none) {")
    if packed:
        lines += ["    packed = qkv(x)", f"    q = packed[..., :{d}] -> split_heads({heads})",
                  f"    k = packed[..., {d}:{2 * d}] -> split_heads({heads})", f"    v = packed[..., {2 * d}:] -> split_heads({heads})"]
    else:
        lines += [f"    q = split_heads(wq(x), {heads})", f"    k = split_heads(wk(y), {heads})", f"    v = split_heads(wv(y), {heads})"]
    if p.head % 2 == 0 and r.random() < 0.2 and packed:
        layout = r.choice(["half", "interleaved"])
        lines += [f'    q = rotary(q, positions(x, 1), layout = "{layout}")', f'    k = rotary(k, positions(x, 1), layout = "{layout}")']
    scale = r.choice([f"/ sqrt({p.head})", f"* {1 / p.head ** 0.5:.6f}", f"/ {p.head ** 0.5:.5f}", ""])
    if scale and r.random() < 0.3:
        lines.append(f"    q = q {scale}")
        scale = ""
    lines.append(f"    s = q @ transpose(k, {r.choice(['-1, -2', '-2, -1', '2, 3'])}) {scale if r.random() < 0.7 else ''}".rstrip())
    fill = r.choice(["-inf", "-inf", "-1e10", "-1e9"])
    steps = []
    if r.random() < 0.5:
        steps.append(f"    if pad != none {{ s = where(pad[:, none, none, :], {fill}, s) }}")
    else:
        steps.append("    if pad != none { s = s + where(pad, -inf, 0)[:, none, none, :] }")
    if r.random() < 0.4:
        steps.append(f"    s = where(causal_mask(q, k), {fill}, s)")
    if r.random() < 0.2:
        steps.append("    s = tanh(s / 20) * 20")
    if r.random() < 0.2:
        steps.append("    s = s - abs(f32(positions(x, 1)[:, none] - positions(y, 1))) * 0.1")
    if r.random() < 0.2:
        steps.append("    if extra != none { s = s + extra }")
    r.shuffle(steps)
    lines += steps
    near_miss = r.random()
    lines.append("    a = softmax(s)")
    if near_miss < 0.1:        # the probabilities are changed before they are used
        lines.append("    a = a * 0.5")
    lines.append("    o = merge_heads(a @ v)")
    if near_miss > 0.9:        # the scores have another use
        lines.append("    o = o + mean(mean(where(s > -1000, s, 0), axis = -1, keepdim = true), axis = 1)")
    lines.append("    return wo(o), a")
    lines += ["  }", "}"]
    p.layers += lines
    return name, packed


def attend(p, x):
    """x after an attention with its residual, in one of the orders of the norm."""
    r = p.rng
    kind = r.randrange(8)
    masks = []
    if kind < 5:
        layer, packed = attention_layer(p)
        made = p.member("attention", f"{layer}()")
        cross = not packed and r.random() < 0.3
        y = memory(p) if cross else x
        if r.random() < 0.5:
            pad = p.input("memory_pad" if cross else "pad", "bool", ["batch", "source" if cross else "time"], 0.3)
            masks.append(f"pad = {pad}")
        if r.random() < 0.3 and not cross:
            masks.append(f"extra = {p.input('scores_bias', 'f32', ['time', 'time'])}")
        call = ", ".join(["{x}", y if cross else "{x}"] + masks)
    elif kind < 7:
        option = r.choice(["", "", ", add_bias_kv = true", ", add_zero_attn = true", ", bias = false"])
        made = p.member("attention", f"MultiheadAttention({p.d}, {p.heads}{option})")
        if r.random() < 0.4:
            masks.append(f"key_padding_mask = {p.input('pad', 'bool', ['batch', 'time'], 0.3)}")
        if r.random() < 0.3:
            masks.append(f"attn_mask = {p.input('scores_bias', 'f32', ['time', 'time'])}")
        if r.random() < 0.3:
            masks.append("is_causal = true")
        call = ", ".join(["{x}"] + masks)
    else:
        groups = r.choice([1, 2])
        made = grouped(p, groups)
        call = "{x}"
    return residual(p, x, made, call, attention=kind < 7)


def grouped(p, groups):
    """Several query heads to a key, as in Llama."""
    name, kv, h = p.name("Grouped"), p.heads, p.head
    q_width = kv * groups * h
    p.layers += [
        f"layer {name}() {{", f"  wq = Linear({p.d}, {q_width}, bias = false)", f"  wk = Linear({p.d}, {kv * h}, bias = false)",
        f"  wv = Linear({p.d}, {kv * h}, bias = false)", f"  wo = Linear({q_width}, {p.d}, bias = false)", "  forward(x) {",
        "    batch = shape(x, 0)", "    time = shape(x, 1)",
        f"    q = reshape(split_heads(wq(x), {kv * groups}), [batch, {kv}, {groups}, time, {h}])",
        f"    k = split_heads(wk(x), {kv})", f"    v = split_heads(wv(x), {kv})",
        f"    s = q @ transpose(k, -1, -2)[:, :, none] / sqrt({h})",
        "    a = softmax(where(causal_mask(q, k), -inf, s))",
        f"    return wo(merge_heads(reshape(a @ v[:, :, none], [batch, {kv * groups}, time, {h}])))", "  }", "}"]
    return p.member("grouped", f"{name}()")


def residual(p, x, made, call, attention=False):
    """x + f(norm(x)) or norm(x + f(x))."""
    r, out = p.rng, p.name("h")
    norm = p.member("norm", f"{r.choice(['LayerNorm', 'LayerNorm', 'RMSNorm'])}({p.d})")
    inner = f"{norm}({x})" if r.random() < 0.5 else x
    fed = p.name("f")
    p.say(f"{fed} = {inner}")
    result = p.name("r")
    if attention and r.random() < 0.25:
        maps = p.name("maps")
        p.say(f"{result}, {maps} = {made}({call.format(x=fed)})")
        p.outputs.append(r.choice([maps, f"mean_{maps} = mean({maps}, axis = 1)"]))
    else:
        p.say(f"{result} = {made}({call.format(x=fed)})")
    sum_ = f"{x} + {result}" if r.random() < 0.8 else f"{result} + {x}"
    p.say(f"{out} = {sum_}" if inner != x else f"{out} = {norm}({sum_})")
    return out


# --- The rest of a layer ------------------------------------------------------------------------------------------

def feed_forward(p, x):
    r, name = p.rng, p.name("FeedForward")
    width, bias = r.choice(ODD_WIDTHS), r.choice(["true", "false"])
    activation = r.choice(ACTIVATIONS)
    lines = [f"layer {name}() {{", f"  up = Linear({p.d}, {width}, bias = {bias})", f"  down = Linear({width}, {p.d}, bias = {bias})"]
    if r.random() < 0.3:
        lines += [f"  gate = Linear({p.d}, {width}, bias = {bias})",
                  f"  forward(x) = down({activation}(gate(x)) * up(x))", "}"]
    elif r.random() < 0.2:
        lines += ["  forward(x) {", "    y = up(x)", f"    return down({activation}(y) + 0.1 * y)", "  }", "}"]
    else:
        lines += [f"  forward(x) = x -> up -> {activation} -> down", "}"]
    p.layers += lines
    return residual(p, x, p.member("feed", f"{name}()"), "{x}")


def standard(p, x):
    """A repeated standard layer."""
    r, out = p.rng, p.name("h")
    depth, activation = r.choice([1, 2, 2, 3]), r.choice(["relu", "gelu", "silu"])
    first = r.choice(["true", "false"])
    if r.random() < 0.7:
        made = p.member("layers", f"{depth} * EncoderLayer({p.d}, {p.heads}, {r.choice(ODD_WIDTHS)}, {activation}, norm_first = {first})")
        masks = []
        if r.random() < 0.4:
            masks.append(f"src_key_padding_mask = {p.input('pad', 'bool', ['batch', 'time'], 0.3)}")
        if r.random() < 0.4:
            masks.append("is_causal = true")
        p.say(f"{out} = {made}({', '.join([x] + masks)})")
    else:
        made = p.member("layers", f"{depth} * DecoderLayer({p.d}, {p.heads}, {r.choice(ODD_WIDTHS)}, {activation}, norm_first = {first})")
        p.say(f"{out} = {made}({x}, {memory(p)}, tgt_is_causal = true)")
    return out


def plain(p, x):
    """Primitives on their own: what fuses with nothing, or nearly."""
    r, out, t = p.rng, p.name("h"), p.name("t")
    d, half = p.d, p.d // 2
    kind = r.randrange(10)
    if kind == 0 and half:
        p.say(f"{out} = concat({x}[..., {half}:], {x}[..., :{half}])")
    elif kind == 1:
        p.say(f"{out} = {x} - mean({x}, keepdim = true) + max({x}, axis = 1, keepdim = true) * 0.1")
    elif kind == 2:
        p.say(f"{out} = softmax({x}, axis = {r.choice([1, 2, -1])}) + {x}")
    elif kind == 3:
        p.say(f"{t} = transpose({x}, 0, 1)")
        p.say(f"{out} = transpose({t} * 0.5 + tanh({t}), 0, 1)")
    elif kind == 4:
        p.say(f"{t} = reshape({x}, [shape({x}, 0) * shape({x}, 1), {d}])")
        p.say(f"{out} = reshape({t} + where({t} > 0, {t}, 0.1 * {t}), [shape({x}, 0), shape({x}, 1), {d}])")
    elif kind == 5:
        p.say(f"{t} = sum({x} * {x}, keepdim = true)")
        p.say(f"{out} = {x} * rsqrt({t} + 1)")
    elif kind == 6:
        p.say(f"{t} = {x} @ transpose({x}, 1, 2) / {d}")
        p.say(f"{out} = {x} + tanh({t}) @ {x}")
    elif kind == 7:
        w = p.member("scale", f"LayerNorm({d})")
        p.say(f"{out} = ({x} + {w}.bias) * ({w}.weight + 1) / 2")
    elif kind == 8:
        p.say(f"{t} = stack({x}, {x} * 2, axis = 1)")
        p.say(f"{out} = {t}[:, 0] + {t}[:, 1] * 0.25")
    else:
        p.say(f"{out} = where(positions({x}, 1)[:, none] % 2 == 0, {x}, -{x})")
    return out


def finish(p, x):
    """Outputs of several forms."""
    r = p.rng
    kind = r.randrange(7)
    if kind == 0:
        p.outputs.append(f"hidden = {x}")
    elif kind == 1:
        head = p.member("head", f"Linear({p.d}, {r.choice(ODD_WIDTHS)})")
        p.outputs.append(f"scores = {head}({x}[:, 0])")
    elif kind == 2:
        head = p.member("head", f"Linear({p.d}, {r.choice(ODD_WIDTHS)}, bias = false)")
        p.outputs.append(f"logits = log_softmax({head}({x}))")
    elif kind == 3:
        pad = p.input("pad", "bool", ["batch", "time"], 0.3)
        p.outputs.append(f"pooled = sum(where({pad}[:, :, none], 0, {x}), axis = 1)")
    elif kind == 4:
        p.outputs += [f"last = {x}[:, -1]", f"largest = max({x})", f"smallest = min({x}, axis = 1)"]
    elif kind == 5:
        p.outputs += [f"hidden = {x} * 2 + 1", f"again = {x}"]
    else:
        p.outputs.append(f"average = mean({x}, axis = 1)")


def program(seed):
    """(source text, {input: (dtype, shape, limit)})"""
    p = Program(random.Random(seed))
    x = start(p)
    for _ in range(p.rng.choice([1, 1, 2, 2, 3])):
        old = [attend, attend, attend, feed_forward, feed_forward, standard, plain]
        x = p.rng.choice(old if p.rng.random() < 0.5 else PIECES)(p, x)
    finish(p, x)
    inputs = {n: (t, shape, limit) for n, (t, _, shape, limit) in p.inputs.items()}
    return p.text(), inputs


if __name__ == "__main__":
    source, given = program(int(sys.argv[1]))
    print(source, end="")
    for item in given.items():
        print("#", *item)
