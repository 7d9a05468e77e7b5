#!/usr/bin/env python3
"""--quantize: the bits are those of a file whose weights were rounded beforehand, wherever they are computed, and with
8 bits the same on every instruction set; weights take half or a quarter of the room; rules mean what they say.

usage: test_quantize.py TFMC          The last line is 'N passed, N failed'.
"""
import json
import math
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

import tally
import tensor_files

# The lengths of sums: longer than a block of k and odd, then even, odd and single ones.
WIDTHS = [801, 100, 7, 3, 2, 1, 50]
MODEL = """model M(vocab = 11) {{
  table = Embedding(vocab, {0})
{1}
  forward(ids: i32[batch, time], x: f32[batch, time, {0}]) {{ return y = (table(ids) + x){2} }}
}}
""".format(WIDTHS[0], "\n".join(f"  l{i} = Linear({k}, {n})" for i, (k, n) in enumerate(zip(WIDTHS, WIDTHS[1:]))),
           "".join(f" -> l{i}" for i in range(len(WIDTHS) - 1)))
# Of products in 4 bits: longer than a block of k, whole groups of 32 and a part of what stands together, no whole groups.
WIDTHS_OF_4 = [4256, 160, 96, 48, 5]
MODEL_OF_4 = """model M {{
{1}
  forward(x: f32[rows, {0}]) {{ return y = x{2} }}
}}
""".format(WIDTHS_OF_4[0], "\n".join(f"  l{i} = Linear({k}, {n})" for i, (k, n) in enumerate(zip(WIDTHS_OF_4, WIDTHS_OF_4[1:]))),
           "".join(f" -> l{i}" for i in range(len(WIDTHS_OF_4) - 1)))
ATTENTION = """model A(h = 16, e = 16) {
  forward(q: f32[b, n, t, h], k: f32[b, n, s, h], v: f32[b, n, s, e]) {
    scores = q @ transpose(k, -1, -2) * 0.3
    return y = softmax(scores) @ v, causal = softmax(where(causal_mask(q, k), -inf, scores)) @ v
  }
}
"""
WITH_WEIGHTS = """model W(h = 16, e = 16) {
  forward(q: f32[b, n, t, h], k: f32[b, n, s, h], v: f32[b, n, s, e]) {
    p = softmax(q @ transpose(k, -1, -2) * 0.3)
    return y = p @ v, p = p
  }
}
"""
MASKED = """model M {
  forward(q: f32[b, t, 16], x: f32[b, s, 16], mask: bool[b, s]) {
    return y = softmax(where(mask[:, none, :], -inf, q @ transpose(x, -1, -2))) @ x
  }
}
"""
NO_ATTENTION = """model N {
  forward(q: f32[b, t, 16], k: f32[b, s, 16]) {
    scores = q @ transpose(k, -1, -2)
    return y = softmax(scores) @ k, scores = scores
  }
}
"""
ROUNDED = [f"l{i}.weight" for i in range(len(WIDTHS) - 1)] + ["table.weight"]
WHERE = [["-march=native"], ["-march=x86-64-v4"], ["-march=x86-64-v3-vnni"], ["-march=x86-64-v3"], ["-march=x86-64"],
         ["--engine=reference"], ["--threads=3"]]


def to_f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def to_bf16(value):
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    half = bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000
    return struct.unpack("<f", struct.pack("<I", half))[0]


def to_f16(value):
    return struct.unpack("<e", struct.pack("<e", value))[0]


ROUND = {"bf16": to_bf16, "f16": to_f16}
PACK = {"f32": lambda values: struct.pack(f"<{len(values)}f", *values),
        "bf16": lambda values: b"".join(struct.pack("<f", v)[2:] for v in values),
        "f16": lambda values: struct.pack(f"<{len(values)}e", *values)}


def tensors(widths=WIDTHS):
    shapes = {"table.weight": [11, widths[0]]}
    for i, (k, n) in enumerate(zip(widths, widths[1:])):
        shapes[f"l{i}.weight"], shapes[f"l{i}.bias"] = [n, k], [n]
    numbers = random.Random(1)
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        yield name, shape, [struct.unpack("<f", struct.pack("<f", numbers.gauss(0, 0.2)))[0] for _ in range(count)]


def write_tensors(path, tensors):
    """`tensors`: {name: (shape, values)} or, with values that are exact in another type, {name: (shape, values, type)}."""
    tensor_files.write_tensors(path, {
        name: (kind[0].upper() if kind else "F32", shape, PACK[kind[0] if kind else "f32"](values))
        for name, (shape, values, *kind) in tensors.items()})


def write_weights(path, change=None):
    write_tensors(path, {name: (shape, [change(v) for v in values] if change and name in ROUNDED else values)
                         for name, shape, values in tensors()})


def runs_here(tfmc):
    """Those of WHERE that this CPU has."""
    said = subprocess.run([tfmc, "info"], capture_output=True, text=True, timeout=60).stdout
    return [where for where in WHERE if f"{where[0]} cannot run here" not in said]


def write_stored(path, shapes, kinds, is_stored):
    """Random numbers of the types that `kinds` names by weight, in these types or, if not `is_stored`, as f32."""
    numbers, tensors = random.Random(7), {}
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        kind = kinds.get(name)
        values = [(ROUND[kind] if kind else to_f32)(numbers.gauss(0, 0.2)) for _ in range(count)]
        tensors[name] = (shape, values, kind) if kind and is_stored else (shape, values)
    write_tensors(path, tensors)


# Heads of 16, whose factor 1/4 changes no bits wherever it is applied, or of 10; a table that is an output layer too.
WRITER = """model W(vocab = 24, d = 64) {
  table = Embedding(vocab, d)
  encoder = Encoder(d, 4, 2, 96, gelu)
  other = Linear(d, d)
  forward(ids: i32[batch, time]) {
    h = encoder(table(ids) * 3.0, is_causal = true)
    return logits = linear(other(h) * 0.5, table.weight)
  }
  generate ids from logits { bos = 1  eos = 2  max_length = 12 }
}
"""


# Keys and values of its own tokens, and of a source whose items have their own lengths.
TRANSLATOR = """model T(vocab = 24, d = 56) {
  table = Embedding(vocab, d)
  encoder = Encoder(d, 4, 1, 64)
  decoder = Decoder(d, 4, 2, 64)
  head = Linear(d, vocab)
  forward(src: i32[batch, source], mask: bool[batch, source], ids: i32[batch, time]) {
    memory = encoder(table(src), src_key_padding_mask = mask)
    h = decoder(table(ids), memory, tgt_is_causal = true, memory_key_padding_mask = mask)
    return logits = head(h)
  }
  generate ids from logits { bos = 1  eos = 2  pad = 0  max_length = 24 }
}
"""


class Trials:
    def __init__(self, tfmc, folder):
        self.tfmc, self.folder, self.passed, self.failed = tfmc, folder, 0, 0
        self.where = runs_here(tfmc)
        self.model = folder / "m.tfm"
        self.model.write_text(MODEL)
        write_weights(folder / "w.safetensors")
        for kind, change in ROUND.items():
            write_weights(folder / f"{kind}.safetensors", change)

    def check(self, name, holds, why=""):
        self.passed, self.failed = self.passed + bool(holds), self.failed + (not holds)
        if not holds:
            print(f"FAIL {name} {why}")

    def tfm(self, *args, code=0):
        done = subprocess.run([self.tfmc, *map(str, args)], capture_output=True, text=True, cwd=self.folder, timeout=300)
        self.check(f"tfmc {' '.join(map(str, args))}", done.returncode == code, f"exit {done.returncode}: {done.stderr}")
        return done.stdout + done.stderr

    def outputs(self, what, weights, rows, *options):
        out = self.folder / "out.safetensors"
        self.tfm("run", what, "--weights", weights, "--input", f"ids={rows}x1", "--input", f"x={rows}x1x{WIDTHS[0]}",
                 "--seed=3", "-o", out, *options)
        return out.read_bytes()

    def same_bits_as_rounded_weights(self):
        for kind in ROUND:
            for where in self.where:
                for rows in [1, 40]:
                    got = self.outputs(self.model, "w.safetensors", rows, f"--quantize={kind}", *where)
                    expected = self.outputs(self.model, f"{kind}.safetensors", rows, *where)
                    self.check(f"bits of {kind}, {rows} rows, {where}", got == expected)
                    plain = self.outputs(self.model, "w.safetensors", rows, *where)
                    self.check(f"{kind} changes results, {where}", got != plain)

    def stored(self, name, model, kinds, *define):
        """Two files of equal numbers, `name`.safetensors of these types, by weight, and `name`.f32.safetensors."""
        said = self.tfm("check", "-v", model, *define)
        found = re.findall(r"^  (\S+) +f32\[([0-9, ]+)\]$", said[said.index("weights:"):], re.M)
        shapes = {weight: [int(n) for n in dims.split(",")] for weight, dims in found}
        of_weights = {weight: kinds[i % len(kinds)] for i, (weight, shape) in enumerate(shapes.items())
                      if len(shape) > 1 and kinds[i % len(kinds)]}
        write_stored(self.folder / f"{name}.safetensors", shapes, of_weights, True)
        write_stored(self.folder / f"{name}.f32.safetensors", shapes, of_weights, False)
        return [f"{name}.safetensors", f"{name}.f32.safetensors"]

    def as_stored(self):
        """What a file has in 16 bits is kept so, and every bit of the results is that of the same numbers as f32."""
        for name, kinds in [("b", ["bf16"]), ("h", ["f16"]), ("mixed", ["bf16", None, "f16", "bf16", "bf16"])]:
            narrow, wide = self.stored(name, self.model, kinds)
            for where in self.where:
                for rows in [1, 40]:
                    self.check(f"bits of a file of {kinds}, {rows} rows, {where}",
                               self.outputs(self.model, narrow, rows, *where) == self.outputs(self.model, wide, rows, *where))
        table = 11 * WIDTHS[0] * 4
        of_f32 = self.packed_bytes("b.f32.safetensors") - table
        for name, least, most, *rule in [("b", 0.45, 0.55), ("h", 0.45, 0.55), ("mixed", 0.6, 0.99),
                                         ("b", 1, 1, "--quantize=f32"), ("b", 0.45, 0.55, "--quantize=f32,as-stored"),
                                         ("b", 0.9, 0.99, "--quantize=l0=f32"), ("b", 0.2, 0.4, "--quantize=int8")]:
            part = (self.packed_bytes(f"{name}.safetensors", *rule) - table) / of_f32
            self.check(f"room of {name} {rule}", least <= part <= most, f"{part} of f32")

    def as_stored_of_whole_models(self):
        """Attention, tied tables, caches: whatever is derived from the model keeps the bits."""
        (self.folder / "a.tfm").write_text(WRITER)
        for d, kinds in [(64, ["bf16"]), (64, ["f16", "bf16", None]), (40, ["f16"]), (40, ["bf16", "bf16", "bf16", "f16"])]:
            files = self.stored("a", "a.tfm", kinds, "-D", f"d={d}")
            for where in [[], ["-O0"], ["-march=x86-64"], ["--engine=reference"]]:
                got = []
                for weights in files:
                    self.tfm("run", "a.tfm", "-D", f"d={d}", "--weights", weights, "--input", "ids=3x9", "-o", "out.safetensors",
                             *where)
                    got.append((self.folder / "out.safetensors").read_bytes())
                self.check(f"bits of {kinds}, {d} wide, {where}", got[0] == got[1])
            for option in [[], ["--num-beams=3"], ["--recompute"], ["--return-output=logits"]]:
                got = []
                for weights in files:
                    self.tfm("generate", "a.tfm", "-D", f"d={d}", "--weights", weights, "--input", "ids=3x4", "-o",
                             "out.safetensors", *option)
                    got.append((self.folder / "out.safetensors").read_bytes())
                self.check(f"generated with {kinds}, {d} wide, {option}", got[0] == got[1])

    def libraries_as_stored(self):
        """A library remembers the types of the file that it was compiled with; without a file they are f32."""
        self.stored("b", self.model, ["bf16"])
        self.tfm("compile", self.model, "-o", "libb.so", "--weights", "b.safetensors")
        made = (self.folder / "b.tfmw").read_bytes()
        expected = self.outputs(self.model, "b.f32.safetensors", 5)
        for weights in ["b.tfmw", "b.safetensors"]:
            self.check(f"library with {weights}", self.outputs("libb.so", weights, 5) == expected)
        for what in ["libb.so", self.model]:
            self.tfm("pack", what, "--weights", "b.safetensors", "-o", "again.tfmw")
            self.check(f"packed again for {what}", (self.folder / "again.tfmw").read_bytes() == made)
        for command in [["pack"], ["check"], ["run", "--input", "ids=1x1", "--input", f"x=1x1x{WIDTHS[0]}"]]:
            said = self.tfm(command[0], "libb.so", "--weights", "b.f32.safetensors", *command[1:], code=1)
            self.check("other types are refused", 'type F32; the library keeps it in the BF16' in said, said)
        self.tfm("verify", "libb.so", "--random-weights=3", "--input", "ids=2x1", "--input", f"x=2x1x{WIDTHS[0]}")
        self.tfm("compile", self.model, "-o", "libp.so")
        self.tfm("pack", "libp.so", "--weights", "b.safetensors", "-o", "p.tfmw")
        self.check("without a file", (self.folder / "p.tfmw").stat().st_size > 1.7 * len(made))
        self.check("library without a file", self.outputs("libp.so", "p.tfmw", 5) == expected)
        self.check("the other's weights", "p.tfmw" in self.tfm("run", "libb.so", "--weights", "p.tfmw", "--input", "ids=1x1",
                                                               "--input", f"x=1x1x{WIDTHS[0]}", code=1))

    def comparing_with_f32(self):
        """What verify prints is what runs of both models give; what costs most is what costs most if left out."""
        inputs = ["--input", "ids=5x1", "--input", f"x=5x1x{WIDTHS[0]}", "--seed=3"]
        y = lambda *rules: read_floats(self.outputs(self.model, "w.safetensors", 5, *rules), "y")
        verify = lambda *more, code=0: self.tfm("verify", self.model, "--weights", "w.safetensors", *inputs, *more, code=code)
        wide = y()
        for rules in [["--quantize=int8"], ["--quantize=bf16", "--quantize=l1=int8,l5=f32"], ["--quantize=l2=f16"]]:
            said, got = verify(*rules, "--compare-with=f32", "-v"), y(*rules)
            table = {line.split()[0]: [float(n) for n in line.split()[1:]] for line in said.splitlines()
                     if not line.startswith(("output", "module"))}
            self.check("columns", [line.split()[0] for line in said.splitlines()] ==
                       ["output", "y", "module", "table", *(f"l{i}" for i in range(len(WIDTHS) - 1))], said)
            rows = [cosine(got[i:i + 50], wide[i:i + 50]) for i in range(0, len(got), 50)]
            expected = [sum(rows) / 5, min(rows), max(abs(a - b) for a, b in zip(got, wide)), distance(got, wide)]
            self.check(f"figures of {rules}", all(abs(a - b) <= 1e-6 + 0.006 * abs(b) for a, b in zip(table["y"], expected)),
                       f"{said}, expected {expected}")
            self.check("the last module is the output", table["l5"] == table["y"], said)
            self.check("the look-up is f32", table["table"] == ([1, 1, 0, 0] if "bf16" not in rules[0] else table["table"]), said)
        said = verify("--quantize=int8", "--sensitivity")
        listed = re.findall(r"^ +(\S+)  (\S+)$", said[said.index("with this alone"):], re.M)
        self.check("all are listed", sorted(name for _, name in listed) == sorted(ROUNDED[:-1]), said)
        for figure, name in listed:
            one = distance(y(f"--quantize=int8,{name}=f32"), wide)
            self.check(f"without {name}", abs(float(figure) - one) < 0.006 * one, f"{figure}, expected {one}")
        self.check("the largest gain first", listed == sorted(listed, key=lambda row: float(row[0])), said)
        self.check("least cosine", "[E0803]" in verify("--quantize=int8", "--compare-with=f32", "--min-cosine=1", code=5))
        self.check("nothing to compare", "fewer bits" in verify("--compare-with=f32", code=2))
        self.check("alone", "--compare-with" in verify("--quantize=int8", "--min-cosine=1", code=2))
        self.check("golden", "compared with the model in f32" in verify("--quantize=int8", "--golden=w.safetensors", "--compare-with=f32", code=2))
        said = self.tfm("verify", "libint8.so", "--weights", "w.safetensors", *inputs, "--compare-with=f32", "--sensitivity", "-v")
        self.check("of a library", said == verify("--quantize=int8", "--compare-with=f32", "--sensitivity", "-v"), said)
        self.check("packed weights", "needs the file" in self.tfm("verify", "libint8.so", "--weights", "int8.tfmw", *inputs,
                                                                  "--compare-with=f32", code=2))

    def comparing_attention_with_f32(self):
        """Attention in 8 bits counts as one, under the name that rules have for it."""
        (self.folder / "s.tfm").write_text("""model S(d = 64) {
  encoder = Encoder(d, 4, 2, 96, gelu)
  forward(x: f32[batch, time, d]) { return y = encoder(x) }
}
""")
        args = ["s.tfm", "--random-weights=4", "--input", "x=2x30x64", "--seed=3"]

        def y(*rules):
            self.tfm("run", *args, "-o", "out.safetensors", *rules)
            return read_floats((self.folder / "out.safetensors").read_bytes(), "y")

        wide = y()
        for rule in ["--quantize=int8", "--quantize=encoder.layers.1.self_attn.attention=int8"]:
            said = self.tfm("verify", *args, rule, "--compare-with=f32", "--sensitivity")
            listed = {name: float(figure) for figure, name in
                      re.findall(r"^ +(\S+)  (\S+)$", said[said.index("with this alone"):], re.M)}
            names = ["encoder.layers.0.self_attn.attention", "encoder.layers.1.self_attn.attention"]
            names = names if rule.endswith("=int8") and "." not in rule else names[1:]
            self.check(f"attention is listed, {rule}", [name for name in names if name in listed] == names, said)
            self.check("nothing else is", len(listed) == (10 if len(names) == 2 else 1), said)
            for name in names:
                one = distance(y(rule, f"--quantize={name}=f32"), wide)
                self.check(f"{rule} without {name}", abs(listed.get(name, -1) - one) <= 0.006 * one, f"{said}, expected {one}")
            whole = distance(y(rule), wide)
            self.check("the distance of all", abs(float(said.splitlines()[1].split()[-1]) - whole) < 0.006 * whole, said)

    def what_is_said(self):
        """check, info and --report name the types, the room and what stays in f32."""
        numbers = sum(k * n for k, n in zip(WIDTHS, WIDTHS[1:]))
        of_l1 = WIDTHS[1] * WIDTHS[2]
        self.stored("h", self.model, ["f16"])
        for command in [["check"], ["dump", "--stage=fused", "--report"]]:
            said = self.tfm(command[0], self.model, *command[1:], "--quantize=int8,l1=f32")
            for line in [f"int8           {len(WIDTHS) - 2} products, {numbers - of_l1} weights",
                         f"f32            1 products, {of_l1} weights", "l1.weight: a rule says so",
                         f"{(numbers + 3 * of_l1) / 1e6:.4g} MB, {4 * numbers / 1e6:.4g} in f32"]:
                self.check(f"{command} says {line}", line in said, said)
        said = self.tfm("check", self.model, "--weights", "h.safetensors")
        self.check("check knows the file", f"f16            {len(WIDTHS) - 1} products" in said, said)
        self.check("nothing of f32", "\nnumbers\n" not in self.tfm("check", self.model, "--weights", "w.safetensors"))
        self.tfm("compile", self.model, "-o", "libsaid.so", "--quantize=int8", "--quantize=l1=bf16,l2=f32")
        said, told = self.tfm("info", "libsaid.so"), json.loads(self.tfm("info", "libsaid.so", "--json"))
        self.check("rules of a library", "compiled with --quantize=int8,l1=bf16,l2=f32\n" in said, said)
        types = told["weights_by_type"]
        self.check("types of a library", list(types) == ["f32", "bf16", "int8"] and sum(types.values()) <= told["weights_bytes"],
                   told)
        self.check("room by type", f"bytes (f32 {types['f32']}, bf16 {types['bf16']}, int8 {types['int8']}), layout" in said, said)
        self.tfm("compile", self.model, "-o", "libsaid.so")
        self.check("no types in f32", "weights_by_type" not in self.tfm("info", "libsaid.so", "--json"))

    def rules_that_change_nothing(self):
        """Each is a warning with its reason; a rule that changes one weight of those that it names is none."""
        unused = self.folder / "unused.tfm"
        unused.write_text("""model U(d = 16) {
  table = Embedding(9, d)
  norm = LayerNorm(d)
  l = Linear(d, d)
  weight e: [2, d, d]
  weight shift: [3, d]
  forward(ids: i32[batch]) { return y = (l(norm(table(ids))) + shift[0])[none] @ e }
}
""")
        for rules, why in [("l.bias=int8", 'no product and no look-up takes "l.bias"'), ("norm=bf16", '"norm.weight"'),
                           ("shift=f16", '"shift"'), ("int8,l.weight=int4,l=int8", '"l.weight=int4" changes nothing: later rules decide'),
                           ("e=int4", 'what takes "e" stays f32; so few bits are for products with a weight of two axes'),
                           ("int8", ""), ("l=int8", ""), ("e=bf16,*=bf16,e=f32", '"e=bf16" changes nothing'), ("table=int4,*.bias=f32", "")]:
            said = self.tfm("check", unused, f"--quantize={rules}")
            self.check(f"{rules} changes nothing", why in said and ("[W0306]" in said) == bool(why), said)
        (self.folder / "none.tfm").write_text(NO_ATTENTION)
        said = self.tfm("check", "none.tfm", "--quantize=attention=int8")
        self.check("no attention", "the attention that it names stays f32" in said, said)

    def packed_bytes(self, weights, *rule):
        self.tfm("pack", self.model, "--weights", weights, "-o", "size.tfmw", *rule)
        return (self.folder / "size.tfmw").stat().st_size

    def libraries(self):
        wide = self.weights_bytes("f32")
        for kind in ROUND:
            packed = self.weights_bytes(kind)
            self.check(f"room of {kind}", packed < 0.52 * wide, f"{packed} of {wide} bytes")
            got = self.outputs(f"lib{kind}.so", f"{kind}.tfmw", 5)
            self.check(f"library of {kind}", got == self.outputs(self.model, f"{kind}.safetensors", 5))
            self.tfm("pack", f"lib{kind}.so", "--weights", "w.safetensors", "-o", "again.tfmw")
            self.check("packed again", (self.folder / "again.tfmw").read_bytes() == (self.folder / f"{kind}.tfmw").read_bytes())
            self.check("fixed", "fixed when the library" in self.tfm("run", f"lib{kind}.so", "--quantize=f32", code=2))

    def int8_has_the_same_bits_everywhere(self):
        """Sums of whole numbers are exact, and nothing in this model is computed but them and additions."""
        for rows in [1, 2, 7, 40]:
            expected = self.outputs(self.model, "w.safetensors", rows, "--quantize=int8", "--engine=reference")
            for where in self.where:
                got = self.outputs(self.model, "w.safetensors", rows, "--quantize=int8", *where)
                self.check(f"bits of int8, {rows} rows, {where}", got == expected)
            self.check("int8 changes results", expected != self.outputs(self.model, "w.safetensors", rows))

    def int8_libraries(self):
        wide, packed = self.weights_bytes("f32"), self.weights_bytes("int8")
        table = 11 * WIDTHS[0] * 4
        self.check("room of int8", packed - table < 0.32 * (wide - table), f"{packed} of {wide} bytes")
        for rows in [1, 40]:
            expected = self.outputs(self.model, "w.safetensors", rows, "--quantize=int8", "--engine=reference")
            self.check("library of int8", self.outputs("libint8.so", "int8.tfmw", rows) == expected)
        said = self.tfm("run", "libint8.so", "--weights", "f32.tfmw", "--input", "ids=1x1", "--input",
                        f"x=1x1x{WIDTHS[0]}", code=1)
        self.check("f32 weights in a library of int8", "f32.tfmw" in said, said)

    def int4(self):
        """As with 8 bits. What it means is in the goldens; here all engines and sets agree, and libraries do."""
        (self.folder / "four.tfm").write_text(MODEL_OF_4)
        write_tensors(self.folder / "four.safetensors",
                      {name: (shape, values) for name, shape, values in tensors(WIDTHS_OF_4) if name != "table.weight"})
        def of(what, weights, rows, *options):
            self.tfm("run", what, "--weights", weights, "--input", f"x={rows}x{WIDTHS_OF_4[0]}", "--seed=3", "-o",
                     "out.safetensors", *options)
            return (self.folder / "out.safetensors").read_bytes()

        self.tfm("compile", "four.tfm", "-o", "libfour.so", "--quantize=int4")
        self.tfm("pack", "libfour.so", "--weights", "four.safetensors", "-o", "four.tfmw")
        said = json.loads(self.tfm("info", "libfour.so", "--json"))["weights_bytes"]
        bits = sum(n * k * (4.25 if k % 32 == 0 else 8) / 8 for k, n in zip(WIDTHS_OF_4, WIDTHS_OF_4[1:]))
        self.check("room of int4", bits < said < 1.03 * bits, f"{said} bytes for {bits}")
        for rows in [1, 3, 40]:
            expected = of("four.tfm", "four.safetensors", rows, "--quantize=int4", "--engine=reference")
            for where in self.where:
                got = of("four.tfm", "four.safetensors", rows, "--quantize=int4", *where)
                self.check(f"bits of int4, {rows} rows, {where}", got == expected)
            self.check("library of int4", of("libfour.so", "four.tfmw", rows) == expected)
            self.check("int4 is not int8", expected != of("four.tfm", "four.safetensors", rows, "--quantize=int8"))
        said = self.tfm("dump", "four.tfm", "--stage=plan", "--report", "--quantize=int4")
        self.check("report of int4", "int4           3 products" in said and "int8           1 products" in said, said)

    def a_tied_table_has_one_form(self):
        """What is looked up is what the product multiplies with; a table that no product uses has 8 bits."""
        for width, form in [(64, "int4"), (48, "int8")]:
            (self.folder / "tied.tfm").write_text(f"""model T {{
  table = Embedding(20, {width})
  forward(ids: i32[n]) {{ x = table(ids)
    return x, y = linear(x, table.weight) }}
}}
""")
            said = self.tfm("dump", "tied.tfm", "--stage=graph", "--quantize=int4")
            self.check(f"a tied table, {width} columns", said.count(f"form={form}") == 2 and "= round_to %" in said, said)
        alone = self.folder / "alone.tfm"
        alone.write_text("model T {\n  table = Embedding(20, 64)\n  forward(ids: i32[n]) { return x = table(ids) }\n}\n")
        self.check("a table alone", "form=int8" in self.tfm("dump", alone, "--stage=graph", "--quantize=table=int4"))

    def tables_are_packed_in_few_bits(self):
        """One that a product uses too is in memory once; 96 rows are two whole panels."""
        tied, alone = self.folder / "tied.tfm", self.folder / "alone.tfm"
        for width in [160, 44]:
            tied.write_text(f"""model T {{
  table = Embedding(96, {width})
  forward(ids: i32[n, m]) {{ x = table(ids)
    return x, y = linear(x, table.weight) }}
}}
""")
            alone.write_text(f"model T {{\n  table = Embedding(96, {width})\n"
                             "  forward(ids: i32[n, m]) { return x = table(ids) + 1 }\n}\n")
            numbers = random.Random(width)
            values = [numbers.gauss(0, 1) for _ in range(96 * width)]
            write_tensors(self.folder / "wide.safetensors", {"table.weight": ([96, width], values)})
            bf16 = [to_bf16(to_f32(value)) for value in values]
            write_tensors(self.folder / "narrow.safetensors", {"table.weight": ([96, width], bf16, "bf16")})
            four = (width + 127) // 128 * 4 + width // 2 + 4 if width % 32 == 0 else width + 4
            for model, rules, room in [(tied, "table=int8", width + 4), (tied, "table=int4", four),
                                       (tied, "bf16", 2 * width), (tied, "f16", 4 * width), (tied, "f32", 8 * width),
                                       (alone, "table=int8", width + 4), (alone, "table=int4", width + 4),
                                       (alone, "bf16", 2 * width), (alone, "f32", 4 * width)]:
                said = self.tfm("pack", model, "--weights", "wide.safetensors", "-o", "size.tfmw", f"--quantize={rules}")
                spare = int(re.search(r"(\d+) bytes of weights", said)[1]) - 96 * room
                self.check(f"room of {model.name} of {width} as {rules}", 0 <= spare <= 64, said)
            for rules in ["table=int8", "table=int4"]:
                for model in [tied, alone]:
                    expected, *got = [self.looked_up(model, "wide.safetensors", f"--quantize={rules}", *where)
                                      for where in [["--engine=reference"], *self.where]]
                    self.check(f"bits of {model.name} of {width} as {rules}", got == [expected] * len(got))
                    self.tfm("compile", model, "-o", "libtable.so", f"--quantize={rules}")
                    self.tfm("pack", model, "--weights", "wide.safetensors", "-o", "table.tfmw", f"--quantize={rules}")
                    self.check(f"library of {model.name} of {width} as {rules}",
                               self.looked_up("libtable.so", "table.tfmw") == expected)
            expected, got = [self.looked_up(tied, "narrow.safetensors", rules) for rules in ["--quantize=f32", "--quantize=bf16"]]
            self.check(f"bits of a tied table of {width} in bf16", got == expected)

    def looked_up(self, model, weights, *options):
        self.tfm("run", model, "--weights", weights, "--input", "ids=3x7", "--seed=5", "-o", "rows.safetensors", *options)
        return (self.folder / "rows.safetensors").read_bytes()

    def int8_refuses_what_is_not_finite(self):
        one = self.folder / "one.tfm"
        one.write_text("model M {\n  l = Linear(1, 1)\n  forward(x: f32[n, 1]) { return y = l(x) }\n}\n")
        for value, code in [(3e38, 0), (float("inf"), 1), (float("nan"), 1)]:
            write_one(self.folder / "one.safetensors", value)
            for where in self.where:
                said = self.tfm("run", one, "--weights", "one.safetensors", "--input", "x=2x1", "--quantize=int8", *where,
                                code=code)
                self.check(f"{value} as int8, {where}", ("has no form of 8 bits" in said) == bool(code), said)

    def the_element_without_a_form_is_named(self):
        """Three products of one x are packed into one panel; the weight and its element are those of the file."""
        qkv = self.folder / "qkv.tfm"
        qkv.write_text("""model M {
  q = Linear(4, 4, bias=false)
  k = Linear(4, 4, bias=false)
  v = Linear(4, 4, bias=false)
  forward(x: f32[n, 4]) { return a = q(x), b = k(x), c = v(x) }
}
""")
        values = [[0.5] * 16 for _ in "qkv"]
        values[1][9] = float("inf")
        write_tensors(self.folder / "qkv.safetensors", {f"{n}.weight": ([4, 4], v) for n, v in zip("qkv", values)})
        said = self.tfm("run", qkv, "--weights", "qkv.safetensors", "--input", "x=2x4", "--quantize=int8", code=1)
        self.check("the element is named", '"k.weight" has inf as element 9, which' in said, said)

    def verify_of_int8(self):
        """Encoders differ by units here and there, and agree as a whole; a tolerance that is set holds for each element."""
        (self.folder / "e.tfm").write_text("""model E(d = 64) {
  encoder = Encoder(d, 4, 6, 256, gelu)
  forward(x: f32[batch, time, d]) { return y = encoder(x) }
}
""")
        args = ["verify", "e.tfm", "--random-weights=1", "--input", "x=8x64x64", "--quantize=int8"]
        self.check("agrees as a whole", "elements agree as a whole" in self.tfm(*args))
        self.check("exactly", "differ" in self.tfm(*args, "--atol=0", "--rtol=0", code=5))

    def int8_of_rows_that_are_left_out(self):
        """Threads share the rows that are not padding, and round them without waiting for one another."""
        (self.folder / "left.tfm").write_text("""model L(d = 32) {
  encoder = Encoder(d, 4, 2, 64)
  forward(x: f32[batch, time, d]) {
    left = x[:, :, 0] > 0.4
    return y = where(left[:, :, none], 0, encoder(x, none, left))
  }
}
""")
        plan = self.tfm("dump", "left.tfm", "--stage=plan", "--quantize=int8")
        steps = re.findall(r"(joined )?quantize .*(?:\n      .*){3}\n      rows where mask", plan)
        self.check("rows are left out", len(steps) == 8 and steps.count("joined ") == 3, plan)

        def run(*options):
            self.tfm("run", "left.tfm", "--random-weights=1", "--input", "x=9x40x32", "--seed=3", "-o", "left.safetensors",
                     "--quantize=int8", *options)
            return read_tensor(self.folder / "left.safetensors", "y")

        for where in [where for where in self.where if where[0].startswith("-march")]:
            one = run("--threads=1", *where)
            for threads in [2, 3, 5]:
                self.check(f"{threads} threads, {where}", run(f"--threads={threads}", *where) == one)

    def int8_of_many_rows(self):
        """Threads take shares of the rows through all steps between two attentions. An item has the same bits alone, where
        threads share columns, whatever lies in memory behind its last row."""
        time, d, lengths = 40, 32, [40, 7, 0, 33, 1, 16, 40, 25, 8]
        (self.folder / "many.tfm").write_text("""model M(d = 32) {
  encoder = Encoder(d, 4, 2, 64)
  head = Linear(d, 8)
  forward(x: f32[batch, time, d]) {
    left = x[:, :, 0] > 1000
    return y = where(left[:, :, none], 0, head(encoder(x, none, left)))
  }
}
""")
        plan = self.tfm("dump", "many.tfm", "--stage=plan", "--quantize=int8")
        self.check("chains of rows", len(re.findall(r"rows may go through steps \d+-\d+ together", plan)) == 3, plan)
        self.check("rows behind the last", plan.count("before the last of each time") == 2, plan)
        rng = random.Random(5)
        items = [[rng.gauss(0, 1) if t < n or k else 2000 for t in range(time) for k in range(d)] for n in lengths]

        def run(chosen, *options):
            write_tensors(self.folder / "many-in.safetensors", {"x": ([len(chosen), time, d], sum(chosen, []))})
            self.tfm("run", "many.tfm", "--random-weights=1", "--inputs=many-in.safetensors", "-o", "many.safetensors",
                     "--quantize=int8", *options)
            return read_tensor(self.folder / "many.safetensors", "y")

        for where in [where for where in self.where if where[0].startswith("-march")]:
            alone = [run([item], "--threads=4", *where) for item in items]
            for threads in [1, 2, 3, 5]:
                self.check(f"{threads} threads, {where}", run(items, f"--threads={threads}", *where) == b"".join(alone))

    def int8_of_other_products(self):
        """x y with a weight [k, n], and a weight of more columns than 32 bits can hold the sums of."""
        (self.folder / "p.tfm").write_text("""model P(k = 48) {
  weight w: [k, 20]
  weight long: [2, 65540]
  forward(x: f32[n, k], z: f32[n, 65540]) { return y = x @ w, u = linear(z, long) }
}
""")
        def of(name, output, *options):
            self.tfm("run", "p.tfm", "--random-weights=2", "--input", "x=5x48", "--input", "z=5x65540", "--seed=3", "-o",
                     f"{name}.safetensors", *options)
            return read_tensor(self.folder / f"{name}.safetensors", output)

        expected = of("reference", "y", "--quantize=w=int8", "--engine=reference")
        for where in self.where:
            self.check(f"x y in int8, {where}", of("native", "y", "--quantize=w=int8", *where) == expected)
        self.check("int8 changes x y", of("plain", "y") != expected)
        said = self.tfm("dump", "p.tfm", "--stage=plan", "--report", "--quantize=int8")
        self.check("report of int8", "int8           1 products, 960 weights" in said, said)
        self.check("reason for f32", "long: sums of 65540 products need more than 32 bits" in said, said)
        self.check("too many columns stay f32", of("long", "u", "--quantize=long=int8") == of("plain", "u"))

    def attention(self, name, input_sizes, *options, of="y"):
        out = self.folder / f"{name}.safetensors"
        out.unlink(missing_ok=True)
        inputs = [word for text in input_sizes for word in ("--input", text)]
        self.tfm("run", f"{name}.tfm", *inputs, "--seed=5", "-o", out, "--quantize=int8", *options)
        return read_tensor(out, of)

    def int8_attention(self):
        """Heads of odd widths, several blocks of keys, a causal mask, one row alone: the sets with FMA have the same bits,
        for any number of threads; the others and the interpreter differ where the exponential rounds otherwise."""
        (self.folder / "a.tfm").write_text(ATTENTION)
        fma = [where for where in self.where if where not in (["-march=x86-64"], ["--engine=reference"])]
        for t, s, h, e in [(5, 3, 1, 1), (9, 70, 13, 40), (7, 1300, 64, 64), (1, 600, 24, 7), (20, 130, 100, 130)]:
            sizes = [f"q=1x2x{t}x{h}", f"k=1x2x{s}x{h}", f"v=1x2x{s}x{e}"]
            defines = ["-D", f"h={h}", "-D", f"e={e}"]
            expected = {of: self.attention("a", sizes, "--engine=reference", *defines, of=of) for of in ["y", "causal"]}
            for of in expected:
                bits = {self.attention("a", sizes, *where, *defines, of=of) for where in fma}
                self.check(f"bits of attention {sizes} {of}", len(bits) == 1)
                plain = self.attention("a", sizes, "--quantize=f32", *defines, of=of)
                self.check(f"int8 changes attention {sizes} {of}", plain not in bits)
                for where in fma[:1] + [["-march=x86-64"]]:
                    far = distance(*map(floats, (self.attention("a", sizes, *where, *defines, of=of), expected[of])))
                    self.check(f"attention {sizes} {of} {where}", far < 2e-4, far)
        said = self.tfm("dump", "a.tfm", "--stage=plan", "--report", "--quantize=int8")
        self.check("report of attention", "0 products, 0 weights, 2 attentions" in said and " e 16 over [b*n, t, s] int8" in said, said)
        said = self.tfm("check", "a.tfm", "--quantize=int8")
        self.check("check of attention", "0 products, 0 weights, 2 attentions" in said, said)

    def int8_attention_with_weights(self):
        """Where nobody wants the weights, tiles multiply the scores by their factor, and the softmax its weights by the
        scales of the values; where they are an output it does not. The results have the same bits, of values and keys
        that are not finite too."""
        (self.folder / "a.tfm").write_text(ATTENTION)
        (self.folder / "w.tfm").write_text(WITH_WEIGHTS)
        plans = {name: self.tfm("dump", f"{name}.tfm", "--stage=plan", "--quantize=int8", "-march=x86-64-v3") for name in "aw"}
        for name, plan in plans.items():
            self.check(f"tiles have the factor, {name}", "\n  times 0x1.333334p-2" in plan, plan)
            self.check(f"no pass multiplies, {name}", plan.count("mul f32") == 1, plan) # that of scale_rows
            self.check(f"who weighs, {name}", ("softmax_block weighed\n" in plan) == (name == "a"), plan)
            self.check(f"who rounds, {name}", (": weigh weighed\n" in plan) == (name == "a"), plan)
        numbers = random.Random(11)
        for t, s, h, e in [(9, 70, 13, 40), (7, 1300, 32, 32), (13, 129, 64, 64)]:
            given = {name: ([1, 2, rows, columns], [numbers.gauss(0, 2) for _ in range(2 * rows * columns)])
                     for name, rows, columns in [("q", t, h), ("k", s, h), ("v", s, e)]}
            for odd in ["", "nan", "inf"]:
                if odd: given["v"][1][5 * e + 3] = given["k"][1][(s + 2) * h] = float(odd)
                write_tensors(self.folder / "given.safetensors", given)
                for where in self.where:
                    outputs = []
                    for name in "aw":
                        out = self.folder / "with.safetensors"
                        self.tfm("run", f"{name}.tfm", "--inputs", "given.safetensors", "-o", out, "--quantize=int8",
                                 "-D", f"h={h}", "-D", f"e={e}", *where)
                        outputs.append(read_tensor(out, "y"))
                    self.check(f"the same with weights {t} {s} {h} {e} {odd} {where}", outputs[0] == outputs[1])

    def int8_attention_of_masked_keys(self):
        """What stands at keys that nobody may see moves nothing, and a row that sees none is zero."""
        (self.folder / "masked.tfm").write_text(MASKED)
        numbers = random.Random(3)
        rows = [[numbers.gauss(0, 1) for _ in range(16)] for _ in range(20)]
        for where in self.where:
            outputs = []
            for odd in [0.0, 1e30, float("nan"), float("inf")]:
                kept = [row if i % 3 else [odd] * 16 for i, row in enumerate(rows)]
                write_tensors(self.folder / "masked.in", {"x": ([1, 20, 16], sum(kept, [])), "q": ([1, 4, 16], sum(rows[:4], []))})
                data = bytearray((self.folder / "masked.in").read_bytes())
                outputs.append(self.masked(data, [i % 3 == 0 for i in range(20)], where))
            self.check(f"masked keys leave no trace, {where}", len(set(outputs)) == 1 and outputs[0] != bytes(len(outputs[0])))
            self.check(f"no keys, {where}", self.masked(data, [True] * 20, where) == bytes(len(outputs[0])))

    def masked(self, data, mask, where):
        """The inputs in the file, and a mask of bools behind them."""
        size = struct.unpack("<Q", data[:8])[0]
        header, body = json.loads(data[8:8 + size]), data[8 + size:]
        header["mask"] = {"dtype": "BOOL", "shape": [1, len(mask)], "data_offsets": [len(body), len(body) + len(mask)]}
        text = json.dumps(header).encode()
        (self.folder / "masked.in.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body + bytes(mask))
        out = self.folder / "masked.out.safetensors"
        self.tfm("run", "masked.tfm", "--inputs", "masked.in.safetensors", "-o", out, "--quantize=int8", *where)
        return read_tensor(out, "y")

    def generated(self, what, inputs, *options, of="sequences"):
        out = self.folder / "generated.safetensors"
        out.unlink(missing_ok=True)
        given = [word for text in inputs for word in ("--input", text)]
        self.tfm("generate", what, "--seed=5", *given, "-o", out, *options)
        return read_tensor(out, of)

    def int8_caches(self):
        """What is kept of earlier positions in 8 bits gives the bits that the whole model gives, over more than a block of
        512 keys too; so do beams that share pages, and prompts that are longer than a run; and it takes less room."""
        (self.folder / "a.tfm").write_text(WRITER.replace("max_length = 12", "max_length = 560"))
        (self.folder / "t.tfm").write_text(TRANSLATOR)
        rule, steps = "--quantize=int8", ["--max-new-tokens=9", "--min-new-tokens=9"]
        works = [("a", ["ids=3x4"], []), ("a", ["ids=1x1"], []), ("a", ["ids=2x541"], []), ("a", ["ids=2x17"], ["--num-beams=4"]),
                 ("a", ["ids=3x15"], ["--do-sample", "--temperature=2"]), ("a", ["ids=2x4"], ["-D", "d=40"]),
                 ("t", ["src=3x21", "mask=3x21"], []), ("t", ["src=2x33", "mask=2x33"], ["--num-beams=3"])]
        for name, inputs, options in works:
            of = "sequences" if "--num-beams" in str(options) else "token_scores"
            more = [rule, "--random-weights=4", *steps, *options] + ([] if of == "sequences" else ["--return-token-scores"])
            whole = self.generated(f"{name}.tfm", inputs, "--recompute", *more, of=of)
            self.check(f"int8 changes what is generated, {name} {inputs} {options}", of == "sequences" or
                       whole != self.generated(f"{name}.tfm", inputs, "--quantize=f32", *more[1:], of=of))
            for where in [where for where in self.where if where != ["--engine=reference"]] + [["--threads=1"]]:
                got, expected = self.generated(f"{name}.tfm", inputs, *where, *more, of=of), whole
                if where == ["-march=x86-64"]: # its sums have other bits
                    expected = self.generated(f"{name}.tfm", inputs, "--recompute", *where, *more, of=of)
                self.check(f"caches in 8 bits, {name} {inputs} {options} {where}", got == expected)
        self.libraries_with_caches()

    def libraries_with_caches(self):
        """A library generates what the process does, and tells how much a token takes."""
        for name, inputs in [("a", ["ids=3x20"]), ("t", ["src=2x9", "mask=2x9"])]:
            weights = self.stored(name, f"{name}.tfm", [None])[0]
            more = ["--return-token-scores", "--max-new-tokens=8"]
            room = {}
            for rule in ["int8", "f32", "int8,*attention=f32"]:
                library = self.folder / f"caches-{name}-{len(rule)}.so"
                self.tfm("compile", f"{name}.tfm", "-o", library, "--weights", weights, f"--quantize={rule}")
                packed = library.with_suffix(".tfmw")
                expected = self.generated(f"{name}.tfm", inputs, "--weights", weights, f"--quantize={rule}", *more, of="token_scores")
                got = self.generated(library, inputs, "--weights", packed, *more, of="token_scores")
                self.check(f"a library with caches of {rule}, {name}", got == expected)
                room[rule] = json.loads(self.tfm("info", library, "--json"))["generate"]
            of_f32, of_int8 = room["f32"]["bytes_per_token"], room["int8"]["bytes_per_token"]
            self.check(f"room of a token, {name}", room["int8,*attention=f32"]["bytes_per_token"] == of_f32)
            heads = 2 * 2 * 4  # keys and values of two layers
            self.check(f"room of a token in 8 bits, {name}", of_int8 == heads * (16 + 4), of_int8)
            self.check(f"room of a token in f32, {name}", of_f32 == heads * 4 * (16 if name == "a" else 14), of_f32)

    def attention_that_is_none(self):
        """Scores that are written out are no attention for the passes: the rule is followed as far as it goes."""
        (self.folder / "n.tfm").write_text(NO_ATTENTION)
        sizes = ["q=1x4x16", "k=1x9x16"]
        for where in self.where:
            plain = self.attention("n", sizes, "--quantize=f32", *where)
            self.check(f"stays f32, {where}", self.attention("n", sizes, *where) == plain)
        said = self.tfm("check", "n.tfm", "--quantize=attention=bf16", code=2)
        self.check("16 bits of attention", "computed in f32 or int8" in said, said)

    def too_large(self):
        one = self.folder / "one.tfm"
        one.write_text("model M {\n  l = Linear(1, 1)\n  forward(x: f32[n, 1]) { return y = l(x) }\n}\n")
        for value, code in [(65504.0, 0), (65519.0, 0), (-65520.0, 1), (float("inf"), 0)]:
            write_one(self.folder / "one.safetensors", value)
            for where in self.where:
                said = self.tfm("run", one, "--weights", "one.safetensors", "--input", "x=2x1", "--quantize=f16", *where,
                                code=code)
                self.check(f"{value} as f16, {where}", ("too large for f16" in said) == bool(code), said)

    def weights_bytes(self, kind):
        self.tfm("compile", self.model, "-o", f"lib{kind}.so", f"--quantize={kind}")
        self.tfm("pack", f"lib{kind}.so", "--weights", "w.safetensors", "-o", f"{kind}.tfmw")
        return json.loads(self.tfm("info", f"lib{kind}.so", "--json"))["weights_bytes"]

    def rules(self):
        plain, bf16 = (self.outputs(self.model, f"{name}.safetensors", 5) for name in ["w", "bf16"])
        for rule, expected in [("bf16,*=f32", plain), ("f16,bf16", bf16), ("l*=bf16,table=bf16", bf16),
                               ("bf16,l0.bias=f32", bf16), ("table.weight=bf16,l?.*=bf16", bf16)]:
            self.check(rule, self.outputs(self.model, "w.safetensors", 5, f"--quantize={rule}") == expected)
        several = self.outputs(self.model, "w.safetensors", 5, "--quantize=bf16", "--quantize=table=f32", "--quantize=l?.*=f32")
        self.check("several options, one after the other", several == plain)
        for rule, message in [("int3", '"int3" is no type of numbers'), ("l9=bf16", '"l9" names no weight of the model'),
                              ("bf16,", '"" is no type'), ("tabel.weight=f16", 'did you mean "table.weight"?')]:
            self.check(rule, message in self.tfm("check", self.model, f"--quantize={rule}", code=2), message)


def read_tensor(path, name):
    return tensor_in(path.read_bytes(), name)


def read_floats(data, name):
    return floats(tensor_in(data, name))


def floats(data):
    return struct.unpack(f"<{len(data) // 4}f", data)


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b)) / math.hypot(*a) / math.hypot(*b)


def floats(data):
    return struct.unpack(f"<{len(data) // 4}f", data)


def distance(a, b):
    """The difference in the mean of squares, relative to b."""
    return math.hypot(*(x - y for x, y in zip(a, b))) / math.hypot(*b)


def tensor_in(data, name):
    size = struct.unpack("<Q", data[:8])[0]
    begin, end = json.loads(data[8:8 + size])[name]["data_offsets"]
    return data[8 + size + begin:8 + size + end]


def write_one(path, value):
    write_tensors(path, {"l.weight": ([1, 1], [value]), "l.bias": ([1], [0.0])})


def main():
    with tempfile.TemporaryDirectory() as folder, tally.compiled_once():  # few models, run with many inputs
        trials = Trials(str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(folder))
        trials.same_bits_as_rounded_weights()
        trials.as_stored()
        trials.as_stored_of_whole_models()
        trials.libraries_as_stored()
        trials.libraries()
        trials.int8_has_the_same_bits_everywhere()
        trials.int8_libraries()
        trials.int4()
        trials.a_tied_table_has_one_form()
        trials.tables_are_packed_in_few_bits()
        trials.comparing_with_f32()
        trials.comparing_attention_with_f32()
        trials.what_is_said()
        trials.rules_that_change_nothing()
        trials.int8_refuses_what_is_not_finite()
        trials.int8_of_rows_that_are_left_out()
        trials.int8_of_many_rows()
        trials.int8_of_other_products()
        trials.the_element_without_a_form_is_named()
        trials.verify_of_int8()
        trials.int8_attention()
        trials.int8_attention_with_weights()
        trials.int8_attention_of_masked_keys()
        trials.int8_caches()
        trials.attention_that_is_none()
        trials.rules()
        trials.too_large()
    print(f"{trials.passed} passed, {trials.failed} failed")
    return trials.failed != 0


if __name__ == "__main__":
    sys.exit(main())
