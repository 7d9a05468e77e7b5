"""Random models that write, for the test of incremental decoding.

    causal_models.py SEED       prints a model, its inputs and whether it may be made incremental

causal_model(seed) gives a CausalModel: `source` (text), `inputs` {name: (dtype, shape, limit)}, `options` of `tfmc generate`,
`near_miss`: None, or what is wrong with it: then some position sees what comes after it, or the length of its row.
"""
import random
import sys

ACTIVATIONS = ["relu", "gelu", "gelu_tanh", "silu", "tanh"]


class CausalModel:
    def __init__(self, seed):
        r = self.rng = random.Random(seed)
        self.near_miss = r.choice(list(NEAR_MISSES)) if seed % 4 == 3 else None
        self.heads, self.head = r.choice([1, 2, 3, 4]), r.choice([2, 4, 6, 8])
        self.d, self.vocab = self.heads * self.head, r.choice([7, 11, 18])
        self.has_source = r.random() < 0.4
        self.ragged = not self.has_source and r.random() < 0.2
        if self.near_miss == "a state goes along the batch":
            self.ragged = False  # items of a ragged batch are computed alone: there is none
        self.pads = not self.ragged and r.random() < 0.4
        self.where, self.kind = r.choice(["learned", "table", "sinusoid", "rotary", "alibi", "buckets", "none"]), None
        self.layers, self.members, self.body, self.count = [], [], [], 0
        self.build()
        self.options = self.choose_options()

    # --- parts ---

    def name(self, stem):
        self.count += 1
        return f"{stem}{self.count}"

    def member(self, stem, made):
        name = self.name(stem)
        self.members.append(f"{name} = {made}")
        return name

    def say(self, line):
        self.body.append(line)

    # --- what is masked ---

    def later(self, q="x", k="x", axis=1):
        """A mask [t, t], true where the key comes later, in one of its spellings."""
        forms = [f"causal_mask({q}, {k})", f"causal_mask({q}, {k})",
                 f"(positions({k}, {axis}) > positions({q}, {axis})[:, none])",
                 f"(not (positions({k}, {axis}) <= positions({q}, {axis})[:, none]))",
                 f"(positions({q}, {axis})[:, none] - positions({k}, {axis}) < 0)"]
        window = f"({self.rng.choice(forms)} or positions({q}, {axis})[:, none] - positions({k}, {axis}) > {self.rng.choice([1, 2, 5])})"
        return window if self.rng.random() < 0.2 else self.rng.choice(forms)

    def hide(self, scores, pad, fill="-inf"):
        """The statement that masks scores [batch, heads, t, t], and those of grouped heads."""
        mask, r = self.later(), self.rng
        pad = " or pad" if pad else ""
        if r.random() < 0.3 and fill == "-inf":
            return f"{scores} = {scores} + where({mask}{pad}, -inf, 0)"
        if pad and r.random() < 0.3:
            return f"{scores} = where(pad, {fill}, where({mask}, {fill}, {scores}))"
        return f"{scores} = where({mask}{pad}, {fill}, {scores})"

    # --- attention of the rows on themselves ---

    def projections(self, groups, lines, members):
        """q, k, v: [batch, heads, t, head], keys and values for groups of heads."""
        r, bias = self.rng, self.rng.choice(["true", "false"])
        width = groups * self.head
        if groups == self.heads and r.random() < 0.4:
            members.append(f"  qkv = Linear({self.d}, {3 * self.d}, bias = {bias})")
            lines += ["    packed = qkv(x)", f"    q = packed[..., :{self.d}] -> split_heads({self.heads})",
                      f"    k = packed[..., {self.d}:{2 * self.d}] -> split_heads({self.heads})",
                      f"    v = packed[..., {2 * self.d}:] -> split_heads({self.heads})"]
        else:
            members += [f"  wq = Linear({self.d}, {self.d}, bias = {bias})", f"  wk = Linear({self.d}, {width}, bias = {bias})",
                        f"  wv = Linear({self.d}, {width})"]
            lines += [f"    q = split_heads(wq(x), {self.heads})", f"    k = split_heads(wk(x), {groups})",
                      f"    v = split_heads(wv(x), {groups})"]
        if self.where == "rotary":
            layout = r.choice(["half", "interleaved"])
            lines += [f'    q = rotary(q, positions(x, 1), layout = "{layout}")', f'    k = rotary(k, positions(x, 1), layout = "{layout}")']

    def scale(self, lines):
        r, factor = self.rng, f"{self.head ** -0.5:.7f}"
        if r.random() < 0.3:
            lines.append(r.choice([f"    q = q * {factor}", f"    k = k * {factor}", f"    k = k / {self.head ** 0.5:.7f}"]))
            return ""
        return r.choice([f" * {factor}", f" / sqrt({self.head})"])

    def normalized(self, lines, fill_known):
        """The probabilities a of masked scores s."""
        if fill_known and self.rng.random() < 0.2:  # softmax written out
            lines += ["    e = exp(s - max(s, keepdim = true))", "    a = e / sum(e, keepdim = true)"]
        else:
            lines.append("    a = softmax(s)")

    def self_attention(self, groups, miss=None):
        name, members, lines = self.name("Attention"), [], []
        self.projections(groups, lines, members)
        scale = self.scale(lines)
        share = self.heads // groups
        if groups != self.heads:
            lines += ["    batch = shape(x, 0)", "    time = shape(x, 1)",
                      f"    q = reshape(q, [batch, {groups}, {share}, time, {self.head}])",
                      "    k = k[:, :, none]", "    v = v[:, :, none]"]
        lines.append(f"    s = q @ transpose(k, -1, -2){scale}")
        if self.rng.random() < 0.15:
            lines.append("    s = tanh(s / 10) * 10")
        if self.where == "buckets":
            table = f"bias{len(members)}"
            members.append(f"  {table} = Embedding(6, {self.heads})")
            lines += ["    far = maximum(minimum(positions(x, 1)[:, none] - positions(x, 1), 5), 0)",
                      f"    near = transpose(transpose({table}(far), 0, 2), 1, 2)",
                      f"    s = s + {'reshape(near, [%d, %d, time, time])' % (groups, share) if groups != self.heads else 'near'}"]
        if self.where == "alibi":
            lines.append("    s = s + f32(positions(x, 1) - positions(x, 1)[:, none]) * 0.25")
        lines += ["    " + NEAR_MISSES[miss] if miss else "    " + self.hide("s", self.pads)]
        self.normalized(lines, not self.pads and not miss)
        if groups == self.heads and self.rng.random() < 0.1:
            members.append(f"  mix = Linear({self.heads}, {self.heads}, bias = false)")
            lines.append("    a = transpose(mix(transpose(a, 1, 3)), 1, 3)")
        lines.append("    o = a @ v")
        if groups != self.heads:
            lines.append(f"    o = reshape(o, [batch, {self.heads}, time, {self.head}])")
        argument = ", pad" if self.pads else ""
        self.layers += [f"layer {name}() {{"] + members + [f"  wo = Linear({self.d}, {self.d})", f"  forward(x{argument}) {{"]
        if self.pads and groups != self.heads:
            self.layers.append("    pad = pad[:, none]")
        self.layers += lines + ["    return wo(merge_heads(o))", "  }", "}"]
        return self.member("attention", f"{name}()"), "({x}, hidden)" if self.pads else "({x})"

    def linear_attention(self):
        """sum over earlier positions of phi(q) phi(k) v, each row divided by its sum."""
        name, r = self.name("Linear"), self.rng
        phi = r.choice(["relu", "exp", "sigmoid"])
        where = f"where({self.later()}, 0, {phi}(q) @ transpose({phi}(k), -1, -2))"
        if r.random() < 0.3:
            where = f"f32(not {self.later()}) * ({phi}(q) @ transpose({phi}(k), -1, -2))"
        self.layers += [
            f"layer {name}Attention() {{", f"  wq = Linear({self.d}, {self.d})", f"  wk = Linear({self.d}, {self.d})",
            f"  wv = Linear({self.d}, {self.d})", "  forward(x) {", f"    q = split_heads(wq(x), {self.heads})",
            f"    k = split_heads(wk(x), {self.heads})", f"    v = split_heads(wv(x), {self.heads})", f"    s = {where}",
            "    return merge_heads(s @ v / (sum(s, keepdim = true) + 1))", "  }", "}"]
        return self.member("linear", f"{name}Attention()"), "({x})"

    def recurrence(self):
        """A state that goes from position to position, often behind a convolution, a shift or running sums."""
        name, r = self.name("State"), self.rng
        n, m = r.choice([1, 3, 8]), r.choice([2, 5, 16, 33])
        members = [f"  wq = Linear({self.d}, {self.heads * n})", f"  wv = Linear({self.d}, {self.heads * m})",
                   f"  out = Linear({self.heads * m}, {self.d})"]
        lines = [r.choice(["u = x", "u = silu(conv(x))", "u = silu(conv(x))", f"u = x + shift(x, {r.choice([1, 2, 7])}, axis = 1) * 0.5"])]
        if "conv" in lines[0]:
            members.append(f"  conv = CausalConv1d({self.d}, {r.choice([2, 3, 4])}, dilation = {r.choice([1, 1, 2])})")
        if not self.ragged and r.random() < 0.2:
            lines.append("u = u + cumsum(u, 1) * 0.05")
        shared = r.random() < 0.3
        members.append(f"  wk = Linear({self.d}, {n if shared else self.heads * n})")
        lines += [f"q = split_heads(wq(u), {self.heads})", "k = wk(u)[:, none]" if shared else f"k = split_heads(wk(u), {self.heads})",
                  "k = k * rsqrt(sum(k * k, keepdim = true) + 0.1)", f"v = split_heads(wv(u), {self.heads})"]
        named = []
        for factor, each in (("decay", n), ("beta", m)):
            if r.random() < 0.6:
                columns = r.choice([1, each])
                members.append(f"  w{factor} = Linear({self.d}, {self.heads * columns})")
                lines.append(f"{factor} = sigmoid(split_heads(w{factor}(u), {self.heads}) + {r.choice(['0', '2'])})")
                named.append(f", {factor} = {factor}")
        lines.append(f"y = linear_attention(q, k, v{''.join(named)})")
        if r.random() < 0.3:
            lines.append("y = y * rsqrt(mean(y * y, keepdim = true) + 1e-3)")
        self.layers += [f"layer {name}() {{"] + members + ["  forward(x) {"] + [f"    {line}" for line in lines]
        self.layers += ["    return out(merge_heads(y))", "  }", "}"]
        return self.member("state", f"{name}()"), "({x})"

    def attention(self):
        r = self.rng
        if r.random() < 0.3:
            return self.recurrence()
        if r.random() < 0.25:
            return self.linear_attention()
        groups = r.choice([g for g in range(1, self.heads + 1) if self.heads % g == 0])
        return self.self_attention(groups)

    # --- the rest of a layer ---

    def cross_attention(self):
        if self.rng.random() < 0.5:
            made = self.member("cross", f"MultiheadAttention({self.d}, {self.heads})")
            return made, "({x}, memory, key_padding_mask = src_pad)" if self.rng.random() < 0.6 else "({x}, memory)"
        name = self.name("Cross")
        factor = self.rng.choice([" * 0.4", ""])
        self.layers += [
            f"layer {name}() {{", f"  wq = Linear({self.d}, {self.d})", f"  wk = Linear({self.d}, {self.d})",
            f"  wv = Linear({self.d}, {self.d})", "  forward(x, y, pad) {", f"    q = split_heads(wq(x), {self.heads})",
            f"    k = split_heads(wk(y){factor}, {self.heads})", f"    v = split_heads(wv(y), {self.heads})",
            "    s = where(pad[:, none, none, :], -inf, q @ transpose(k, -1, -2))", "    return merge_heads(softmax(s) @ v)", "  }", "}"]
        return self.member("cross", f"{name}()"), "({x}, memory, src_pad)"

    def feed_forward(self):
        name, width, f = self.name("Feed"), self.rng.choice([5, 12, 24]), self.rng.choice(ACTIVATIONS)
        gate = self.rng.random() < 0.3
        self.layers += [f"layer {name}() {{", f"  up = Linear({self.d}, {width})", f"  down = Linear({width}, {self.d})"]
        self.layers += [f"  gate = Linear({self.d}, {width})", f"  forward(x) = down({f}(gate(x)) * up(x))", "}"] if gate else \
                       [f"  forward(x) = x -> up -> {f} -> down", "}"] if self.ragged or self.rng.random() < 0.8 else \
                       ["  forward(x) {", f"    y = reshape(x, [shape(x, 0) * shape(x, 1), {self.d}]) -> up -> {f} -> down",
                        f"    return reshape(y, [shape(x, 0), shape(x, 1), {self.d}])", "  }", "}"]
        return self.member("feed", f"{name}()"), "({x})"

    def residual(self, x, made, call):
        r, out, fed = self.rng, self.name("h"), self.name("f")
        norm = self.member("norm", f"{r.choice(['LayerNorm', 'RMSNorm'])}({self.d})")
        before = r.random() < 0.6
        self.say(f"{fed} = {made}{call.format(x=f'{norm}({x})' if before else x)}")
        self.say(f"{out} = {x} + {fed}" if before else f"{out} = {norm}({x} + {fed})")
        return out

    def parallel(self, x):
        """Attention and feed-forward of the same norm."""
        norm, out = self.member("norm", f"LayerNorm({self.d})"), self.name("h")
        (attention, call), (feed, _) = self.attention(), self.feed_forward()
        y = self.name("f")
        self.say(f"{y} = {norm}({x})")
        self.say(f"{out} = {x} + {attention}{call.format(x=y)} + {feed}({y})")
        return out

    def standard(self, x):
        """Layers as nn.TransformerEncoderLayer and nn.TransformerDecoderLayer."""
        out, first, depth = self.name("h"), self.rng.choice(["true", "false"]), self.rng.choice([1, 2])
        pad = ", {}_key_padding_mask = pad_ids" if self.pads else ""
        if self.has_source and self.rng.random() < 0.6:
            made = self.member("layers", f"{depth} * DecoderLayer({self.d}, {self.heads}, 16, norm_first = {first})")
            self.say(f"{out} = {made}({x}, memory, tgt_is_causal = true, memory_key_padding_mask = src_pad{pad.format('tgt')})")
        else:
            made = self.member("layers", f"{depth} * EncoderLayer({self.d}, {self.heads}, 16, norm_first = {first})")
            self.say(f"{out} = {made}({x}, is_causal = true{pad.format('src')})")
        return out

    def layer(self, x):
        if self.rng.random() < 0.25:
            return self.standard(x)
        if self.rng.random() < 0.25:
            return self.parallel(x)
        x = self.residual(x, *self.attention())
        if self.has_source:
            x = self.residual(x, *self.cross_attention())
        return self.residual(x, *self.feed_forward())

    # --- the whole ---

    def start(self):
        r = self.rng
        table = self.member("embed", f"Embedding({self.vocab}, {self.d})")
        self.say(f"x = {table}(ids) * {r.choice(['1', '2', f'sqrt({self.d})'])}")
        if self.where == "learned":
            places = self.member("places", f"Embedding(64, {self.d})")
            self.say(f"x = x + {places}(positions(ids, 1){r.choice(['', ' + 2'])})")
        elif self.where == "table":
            places = self.member("places", f"Embedding(64, {self.d})")
            self.say(f"x = x + {places}.weight[{r.choice([':shape(ids, 1)', '3:3 + shape(ids, 1)'])}]")
        elif self.where == "sinusoid":
            self.say(f"x = x -> PositionalEncoding({self.d})")
        if self.pads:
            self.say("pad_ids = ids == 0")
            self.say("hidden = pad_ids[:, none, none, :]")
        return "x"

    def read_source(self):
        table = self.member("source_embed", f"Embedding(13, {self.d})")
        encoder = self.member("encoder", f"EncoderLayer({self.d}, {self.heads}, 16)")
        self.say("src_pad = src == 0")
        self.say(f"memory = {encoder}({table}(src) -> PositionalEncoding({self.d}), src_key_padding_mask = src_pad)")
        if self.rng.random() < 0.25:  # a state along the source belongs to the item, not to its rows
            self.say(f"memory = memory + {self.recurrence()[0]}(memory)")

    def miss(self, x):
        """What makes the model not incremental, among its layers."""
        if self.near_miss is None:
            return x
        if NEAR_MISSES[self.near_miss].startswith("s ="):
            return self.residual(x, *self.self_attention(self.heads, self.near_miss))
        out = self.name("h")
        self.say(NEAR_MISSES[self.near_miss].format(x=x, out=out, d=self.d))
        return out

    def build(self):
        r = self.rng
        if self.has_source:
            self.read_source()
        x = self.start()
        depth = r.choice([1, 1, 2, 3])
        for _ in range(depth):
            x = self.layer(x)
        x = self.miss(x)
        if self.near_miss and r.random() < 0.5:
            x = self.layer(x)
        columns = self.d
        if not self.ragged and r.random() < 0.1:
            columns = r.choice([self.d, self.d // 2])
            self.say(f"{x} = {x}[:, -1:, {self.d - columns}:]")
        head = self.member("head", f"Linear({columns}, {self.vocab})")
        scores = f"{head}(LayerNorm({columns})({x})) * 2"
        self.say(f"logits = {f'log_softmax({scores})' if r.random() < 0.2 else scores}")

    def choose_options(self):
        r = self.rng
        options = ["--max-new-tokens", str(r.choice([2, 6, 12])), "--pad-token-id", "0"]
        if r.random() < 0.5:
            options += ["--num-beams", str(r.choice([2, 3, 4]))]
        if r.random() < 0.5:
            options += ["--eos-token-id", "2"]
        return options

    @property
    def source(self):
        time = "ragged time" if self.ragged else "time"
        source = "src: i32[batch, source], " if self.has_source else ""
        lines = self.layers + ["model Random {"] + [f"  {m}" for m in self.members]
        lines += [f"  forward({source}ids: i32[batch, {time}]) {{"] + [f"    {b}" for b in self.body] + ["    return logits", "  }"]
        return "\n".join(lines + ["  generate ids from logits { bos = 1  pad = 0 }", "}"]) + "\n"

    @property
    def inputs(self):
        r = random.Random(self.count)
        batch, length = r.choice([1, 2, 3]), r.choice([1, 2, 5])
        inputs = {"ids": ("i32", [batch, length], self.vocab)}
        if self.has_source:
            inputs["src"] = ("i32", [batch, r.choice([1, 4, 7])], 13)
        if self.ragged:
            inputs["time.lengths"] = ("lengths", [batch], length)
        return inputs


# What must be refused. A statement on the scores s of an attention, or on hidden states.
NEAR_MISSES = {
    "position t sees t + 1": "s = where(positions(x, 1) > positions(x, 1)[:, none] + 1, -inf, s)",
    "the mask is turned round": "s = where(causal_mask(x, x), s, -inf)",
    "no mask": "s = s + 0.5",
    "the fill is finite": "s = where(causal_mask(x, x), -1e9, s)",
    "the fill is 0": "s = where(causal_mask(x, x), 0, s)",
    "masked or, not and": "s = where(causal_mask(x, x) and positions(x, 1) > 2, -inf, s)",
    "softmax over queries": "s = softmax(where(causal_mask(x, x), -inf, s), axis = -2)",
    "blocks of positions": "s = where(positions(x, 1) // 2 > (positions(x, 1) // 2)[:, none], -inf, s)",
    "the length in the mask": "s = where(causal_mask(x, x) or positions(x, 1) > shape(x, 1) - 2, -inf, s)",
    "mean over time": "{out} = {x} + mean({x}, axis = 1, keepdim = true)",
    "largest over time": "{out} = {x} + max({x}, axis = 1, keepdim = true)",
    "sum over time": "{out} = {x} + 0.1 * sum({x}, axis = 1, keepdim = true)",
    "the length as a number": "{out} = {x} + {x} * shape({x}, 1) * 0.1",
    "rows move back": "{out} = {x} + shift({x}, -1, axis = 1)",
    "a state goes along the batch": "{out} = {x} + transpose(linear_attention(transpose({x}, 0, 1), transpose({x}, 0, 1) * 0.1, transpose({x}, 0, 1)), 0, 1)",
    "rows are shifted": "{out} = {x} + concat({x}[:, 1:], {x}[:, :1], axis = 1)",
    "places from the end": "{out} = {x} * (1 + 0.1 * f32(positions({x}, 1) - shape({x}, 1) + 1))[:, none]",
    "softmax over time": "{out} = {x} + softmax({x}, axis = 1)",
    "product over time": "{out} = {x} + tanh(transpose({x}, 1, 2) @ {x})[:, 0][:, none]",
    "rows as columns": "{out} = {x} + reshape(transpose({x}, 1, 2), [shape({x}, 0), shape({x}, 1), {d}])",
}


def causal_model(seed):
    return CausalModel(seed)


if __name__ == "__main__":
    model = causal_model(int(sys.argv[1]))
    print(model.source, end="")
    print("#", model.inputs, model.options, model.near_miss or "may be incremental")
