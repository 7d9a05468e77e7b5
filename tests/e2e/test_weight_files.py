#!/usr/bin/env python3
"""Weights of GGUF files, and those of safetensors in 8 bits with scales: whatever is computed has the bits that the same
numbers give in f32, in libraries too; messages name the tensor and the way out. The files are packed here, from their
formats.

usage: test_weight_files.py TFMC          The last line is 'N passed, N failed'.
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
from tensor_files import read_tensors, write_tensors

U16, U32, TEXT, LIST = 2, 4, 8, 9
TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 8, "Q4_K": 12, "IQ4_XS": 23, "Q6_K": 14, "BF16": 30}
MODEL = """layer Block(d, hidden) {
  norm = RMSNorm(d, 0.00001)              as "attn_norm"
  up   = Linear(d, hidden, bias = false)  as "ffn_up"
  down = Linear(hidden, d, bias = false)  as "ffn_down"
  forward(x) { return x + down(silu(up(norm(x)))) }
}
model M(vocab = 20, d = 256, hidden = 512, depth = 2) {
  table  = Embedding(vocab, d) as "token_embd"
  layers = [Block(d, hidden) for i in depth] as "blk"
  score  = Linear(d, vocab, bias = false) as "output"
  forward(ids: i32[batch, time]) { return scores = table(ids) -> layers -> score }
}
"""
# Columns from the midst of blocks, alone and joined; a weight that is multiplied from the right.
PARTS = """model P {
  weight w: [64, 256] as "w"
  weight v: [128, 32] as "v"
  forward(x: f32[rows, 128]) {
    left = linear(x[:, :70], w[:, 5:75])
    right = x @ v
    return left = left, right = right, both = linear(x[:, :19], concat(w[:, 33:52], v[:, 3:22], axis = 0)), raw = x[0, 0] * 0 + w
  }
}
"""
# The same heads, whose rows lie as in PyTorch, or as llama.cpp turns those of q and k of Llama.
ROTARY = """model R(d = 64, heads = 4, layout = "half") {{
  query = Linear(d, d, bias = false) as "blk.0.attn_q"
  key   = Linear(d, d, bias = false) as "blk.0.attn_k"
  forward(x: f32[batch, time, d]) {{
    place = positions(x, 1)
    q = rotary(split_heads(query(x), heads), place, layout = "{}")
    k = rotary(split_heads(key(x), heads), place, layout = "{}")
    return scores = q @ transpose(k, -1, -2)
  }}
}}
"""


PAIR = """model S {
  score = Linear(256, 200, bias = false) as "p.score"
  weight v: [200, 256] as "p.score.weight"
  forward(x: f32[rows, 256]) { return y = score(x), part = linear(x[:, :19], v[3:, 120:139]), raw = x[0, 0] * 0 + v }
}
"""


def f8(code):
    """The value of a code of F8_E4M3: bias 7, no infinity."""
    sign, exponent, mantissa = -1 if code >= 128 else 1, code >> 3 & 15, code & 7
    if exponent == 15 and mantissa == 7:
        return math.nan
    return sign * (mantissa * 2.0 ** -9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10))


def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def half(value):
    return struct.unpack("<e", struct.pack("<e", value))[0]


def bf16(value):
    return struct.unpack("<f", struct.pack("<I", struct.unpack("<I", struct.pack("<f", value))[0] & 0xFFFF0000))[0]


# ---- blocks: random ones, and their values, which are exact in double and rounded once ----

def block_q8_0(numbers):
    d, q = half(numbers.gauss(0, 0.003)), [numbers.randint(-128, 127) for _ in range(32)]
    return struct.pack("<e32b", d, *q), [d * i for i in q]


def block_q4_0(numbers):
    d, q = half(numbers.gauss(0, 0.03)), [numbers.randint(0, 15) for _ in range(32)]
    return struct.pack("<e", d) + bytes(q[i] | q[i + 16] << 4 for i in range(16)), [d * (i - 8) for i in q]


def block_q4_k(numbers):
    d, low = half(numbers.gauss(0, 0.0008)), half(numbers.gauss(0, 0.003))
    scales, minima = [[numbers.randint(0, 63) for _ in range(8)] for _ in range(2)]
    q = [[numbers.randint(0, 15) for _ in range(32)] for _ in range(8)]
    packed = [scales[i] | scales[i + 4] >> 4 << 6 for i in range(4)] + [minima[i] | minima[i + 4] >> 4 << 6 for i in range(4)]
    packed += [scales[i] & 15 | (minima[i] & 15) << 4 for i in range(4, 8)]
    pairs = [q[2 * i][j] | q[2 * i + 1][j] << 4 for i in range(4) for j in range(32)]
    values = [f32(d * scales[g] * q[g][j] - low * minima[g]) for g in range(8) for j in range(32)]
    return struct.pack("<ee", d, low) + bytes(packed + pairs), values


def block_q6_k(numbers):
    d, scales = half(numbers.gauss(0, 0.00005)), [numbers.randint(-128, 127) for _ in range(16)]
    q = [numbers.randint(0, 63) for _ in range(256)]
    low = [q[128 * h + 32 * s + j] & 15 | (q[128 * h + 64 + 32 * s + j] & 15) << 4 for h in range(2) for s in range(2) for j in range(32)]
    high = [sum((q[128 * h + 32 * r + j] >> 4) << 2 * r for r in range(4)) for h in range(2) for j in range(32)]
    values = [f32(d * scales[i // 16] * (q[i] - 32)) for i in range(256)]
    return bytes(low + high) + struct.pack("<16be", *scales, d), values


BLOCKS = {"Q8_0": (32, block_q8_0), "Q4_0": (32, block_q4_0), "Q4_K": (256, block_q4_k), "Q6_K": (256, block_q6_k)}
NUMBERS = {"F32": (f32, lambda v: struct.pack("<f", v)), "F16": (half, lambda v: struct.pack("<e", v)),
           "BF16": (bf16, lambda v: struct.pack("<f", v)[2:])}


def random_tensor(kind, n, numbers):
    """The bytes of n numbers of a type, and their values."""
    data, values = [], []
    if kind in NUMBERS:
        rounded, packed = NUMBERS[kind]
        values = [rounded(numbers.gauss(0, 0.1)) for _ in range(n)]
        return b"".join(map(packed, values)), values
    width, block = BLOCKS[kind]
    for _ in range(n // width):
        more = block(numbers)
        data.append(more[0])
        values += more[1]
    return b"".join(data), values


# ---- files ----

def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def write_gguf(path, tensors, alignment=None, version=3):
    """`tensors`: {name: (type, shape of PyTorch, bytes)}."""
    keys = [text("general.architecture") + struct.pack("<I", TEXT) + text("llama"),
            text("tokenizer.ggml.tokens") + struct.pack("<IIQ", LIST, TEXT, 3) + text("a") + text("") + text("é"),
            text("llama.block_count") + struct.pack("<II", U32, 2)]
    if alignment:
        keys.append(text("general.alignment") + struct.pack("<II", U32, alignment))
    alignment = alignment or 32
    head = struct.pack("<4sIQQ", b"GGUF", version, len(tensors), len(keys)) + b"".join(keys)
    data = b""
    for name, (kind, shape, content) in tensors.items():
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), TYPES[kind], len(data))
        data += content + bytes(-len(content) % alignment)
    path.write_bytes(head + bytes(-len(head) % alignment) + data)


def numbers_of(path):
    return {name: list(numbers) for name, (_, _, numbers) in read_tensors(path).items()}


def floats(values):
    return struct.pack(f"<{len(values)}f", *values)


def shapes_of_model(d=256, hidden=512, vocab=20):
    yield "token_embd.weight", [vocab, d]
    for i in range(2):
        yield f"blk.{i}.attn_norm.weight", [d]
        yield f"blk.{i}.ffn_up.weight", [hidden, d]
        yield f"blk.{i}.ffn_down.weight", [d, hidden]
    yield "output.weight", [vocab, d]


class Trials:
    def __init__(self, tfmc, folder):
        self.tfmc, self.folder, self.passed, self.failed = tfmc, folder, 0, 0

    def check(self, name, holds, why=""):
        self.passed += bool(holds)
        self.failed += not holds
        if not holds:
            print(f"FAIL {name}: {why}")

    def tfm(self, *args, code=0):
        done = subprocess.run([self.tfmc, *map(str, args)], capture_output=True, text=True, timeout=300)
        self.check(f"exit code of {args}", done.returncode == code, f"{done.returncode}: {done.stderr}")
        return done.stdout + done.stderr

    def model(self, source, name="m.tfm"):
        path = self.folder / name
        path.write_text(source)
        return path

    def outputs(self, what, weights, size, *options):
        """The bytes of all outputs."""
        path = self.folder / "y.safetensors"
        path.unlink(missing_ok=True)
        self.tfm("run", what, *(["--weights", weights] if weights else []), "--input", size, "--seed=3", "-o", path, *options)
        return path.read_bytes() if path.exists() else None

    def same(self, name, model, one, other, size, *options):
        a, b = (self.outputs(model, weights, size, *options) for weights in (one, other))
        self.check(f"{name} {options}", a is not None and a == b, "the bits differ")
        return a

    # ---- GGUF ----

    def gguf(self, kinds, shapes, **how):
        """The same numbers in GGUF, of a type for each tensor, and in safetensors, where blocks become f32."""
        numbers, ours, others = random.Random(5), {}, {}
        for name, shape in shapes:
            kind = kinds(name) if len(shape) > 1 else "F32"
            content, values = random_tensor(kind, math.prod(shape), numbers)
            ours[name] = (kind, shape, content)
            others[name] = (kind, shape, content) if kind in NUMBERS else ("F32", shape, floats(values))
        paths = self.folder / "w.gguf", self.folder / "w.safetensors"
        write_gguf(paths[0], ours, **how)
        write_tensors(paths[1], others)
        return paths

    def types_of_gguf(self):
        model = self.model(MODEL)
        for kind in [*NUMBERS, *BLOCKS]:
            gguf, safetensors = self.gguf(lambda name: kind, shapes_of_model())
            for options in [[], ["--quantize=int8"], ["--engine=reference"]]:
                self.same(kind, model, gguf, safetensors, "ids=2x3", *options)
            said = self.tfm("check", model, "--weights", gguf, "-v")
            self.check(f"{kind} is whole", "has all of them" in said, said)
            told = [self.tfm("check", model, "--weights", file).split("has all of them")[1:] for file in (gguf, safetensors)]
            if kind == "Q4_0":  # which a form has, and the same numbers in f32 are not said to be of it
                self.check(f"{kind} is kept in 4 bits", re.search(r"q4g32 +5 products", told[0][0]) and "q4g32" not in told[1][0], told)
            else:
                self.check(f"{kind} is kept alike", told[0] == told[1], told)
        mixed = {"token_embd.weight": "Q6_K", "output.weight": "F16", "blk.1.ffn_up.weight": "Q4_K"}
        for how in ({"alignment": 8}, {"alignment": 4096, "version": 2}):
            gguf, safetensors = self.gguf(lambda name: mixed.get(name, "Q8_0"), shapes_of_model(), **how)
            for options in ([], ["--quantize=bf16"], ["--quantize=int4,output=f32"], ["--threads=3"]):
                self.same(f"mixed {how}", model, gguf, safetensors, "ids=2x3", *options)

    def parts_of_blocks(self):
        model = self.model(PARTS)
        for kinds in ("Q8_0", "Q4_0"), ("Q6_K", "Q8_0"), ("Q4_K", "F16"):
            gguf, safetensors = self.gguf(dict(zip("wv", kinds)).get, [("w", [64, 256]), ("v", [128, 32])])
            for options in [[], ["--quantize=int8"], ["--engine=reference"]]:
                self.same(f"parts of {kinds}", model, gguf, safetensors, "x=3x128", *options)
            self.outputs(model, gguf, "x=3x128", "-O0")
            values = random_tensor(kinds[0], 64 * 256, random.Random(5))[1]
            raw = numbers_of(self.folder / "y.safetensors")["raw"]
            self.check(f"values of {kinds[0]}", raw == [f32(v) for v in values], "other values")

    def libraries_of_gguf(self):
        model, library = self.model(MODEL), self.folder / "libm.so"
        gguf, safetensors = self.gguf(lambda name: "Q4_K" if "ffn" in name else "F16", shapes_of_model())
        self.tfm("compile", model, "--weights", gguf, "-o", library)
        whole = self.outputs(model, safetensors, "ids=2x3")
        self.check("a library", self.outputs(library, None, "ids=2x3") == whole, "the bits differ")
        packed = (self.folder / "m.tfmw").read_bytes()
        self.tfm("pack", library, "--weights", safetensors, "-o", self.folder / "again.tfmw")
        self.check("packed weights", (self.folder / "again.tfmw").read_bytes() == packed, "other bytes")

    def rows_of_llama(self):
        """llama.cpp lays the halves of each head of q and k side by side: rows 2i and 2i + 1 were i and i + head / 2."""
        numbers, d, head = random.Random(2), 64, 16
        rows = {name: [[f32(numbers.gauss(0, 0.2)) for _ in range(d)] for _ in range(d)] for name in "qk"}
        turned = {name: [w[h + (i // 2) + (i % 2) * head // 2] for h in range(0, d, head) for i in range(head)]
                  for name, w in rows.items()}
        scores = []
        for layout, weights in ("half", rows), ("interleaved", turned):
            path = self.folder / "r.gguf"
            write_gguf(path, {f"blk.0.attn_{name}.weight": ("F32", [d, d], b"".join(map(floats, w))) for name, w in weights.items()})
            self.outputs(self.model(ROTARY.format(layout, layout)), path, "x=2x5x64")
            scores.append(numbers_of(self.folder / "y.safetensors")["scores"])
        self.check("rows of Llama", all(abs(a - b) < 1e-4 for a, b in zip(*scores)) and max(map(abs, scores[0])) > 0.1,
                   max(abs(a - b) for a, b in zip(*scores)))

    def what_is_said_of_gguf(self):
        model = self.model(MODEL)
        shapes = dict(shapes_of_model())
        gguf, _ = self.gguf(lambda name: "Q8_0", shapes.items())
        told = self.tfm("info", gguf)
        for line in ('Q8_0 "blk.1.ffn_up.weight" [512, 256]', "Q8_0: 6 tensors", 'metadata "general.architecture": "llama"',
                     'metadata "llama.block_count": "2"', "special values: 0 NaN, 0 infinite, 0 subnormal"):
            self.check(f"info says {line}", line in told, told)
        told = json.loads(self.tfm("info", gguf, "--json"))["tensors"]
        self.check("info --json", {"name": "output.weight", "dtype": "Q8_0", "shape": [20, 256]} in told, told)
        content = {name: ("F32", shape, bytes(4 * math.prod(shape))) for name, shape in shapes.items()}
        content["output.weight"] = ("IQ4_XS", [20, 256], bytes(20 * 136))
        write_gguf(gguf, content)
        told = self.tfm("run", model, "--weights", gguf, "--input", "ids=1x1", code=1)
        self.check("a type that is not read", 'tensor "output.weight": type IQ4_XS; of GGUF, F32, F16, BF16, Q4_0 to Q8_0 '
                   "and Q2_K to Q6_K are read; `llama-quantize --allow-requantize FILE NEW_FILE Q8_0` writes such" in told, told)
        content["output.weight"] = ("F32", [256, 20], bytes(20 * 256 * 4))
        del content["blk.1.ffn_up.weight"]
        write_gguf(gguf, content)
        told = self.tfm("check", model, "--weights", gguf, code=1)
        self.check("a shape", "shape [256, 20], the model wants [20, 256] (transposed?)" in told, told)
        self.check("a missing one", 'there is no tensor "blk.1.ffn_up.weight"' in told, told)
        content = dict(content, **{"output.weight": ("Q8_0", [20, 256], struct.pack("<e32b", math.nan, *[1] * 32) * 160)})
        content["blk.1.ffn_up.weight"] = content["blk.0.ffn_up.weight"]
        write_gguf(gguf, content)
        told = self.tfm("check", model, "--weights", gguf, "--reject-nonfinite", code=1)
        self.check("a scale that is NaN", 'tensor "output.weight": 5120 NaN' in told, told)
        gguf.write_bytes(gguf.read_bytes()[:-40000])
        self.check("cut off", "is the file cut off? [E0409]" in self.tfm("info", gguf, code=1), "another message")
        told = self.tfm("run", model, "--random-weights=1", "--inputs", gguf, code=1)
        self.check("inputs are no GGUF", "this is a GGUF file, not a safetensors file" in told, told)

    # ---- 8 bits with scales ----

    def pair(self, kind, scale_name, scale_shape, factor_of, scale_type="F32", more=None):
        """A weight p.score.weight of [200, 256] in 8 bits with a scale of a shape, and the same numbers as f32."""
        numbers, n, k = random.Random(9), 200, 256
        content = bytes(numbers.choice([c for c in range(256) if kind == "I8" or c & 127 != 127]) for _ in range(n * k))
        rounded, packed = NUMBERS[scale_type]
        scales = [rounded(numbers.uniform(0.001, 0.01)) for _ in range(math.prod(scale_shape))]
        value_of = f8 if kind == "F8_E4M3" else lambda c: c - 256 * (c > 127)
        values = [f32(value_of(content[i]) * (scales[factor_of(i // k, i % k)] if scale_name else 1)) for i in range(n * k)]
        scale = {scale_name: (scale_type, scale_shape, b"".join(map(packed, scales)))} if scale_name else {}
        paths = self.folder / "q.safetensors", self.folder / "f.safetensors"
        write_tensors(paths[0], {"p.score.weight": (kind, [n, k], content), **scale, **(more or {})})
        write_tensors(paths[1], {"p.score.weight": ("F32", [n, k], floats(values))})
        return (*paths, values)

    def weights_with_scales(self):
        model, name = self.model(PAIR), "p.score.weight_scale"
        cases = [("F8_E4M3", None, [], None), ("F8_E4M3", name, [], lambda i, j: 0), ("F8_E4M3", name, [1], lambda i, j: 0, "BF16"),
                 ("F8_E4M3", name, [200, 1], lambda i, j: i, "BF16"), ("F8_E4M3", name, [200], lambda i, j: i, "F16"),
                 ("F8_E4M3", name + "_inv", [2, 2], lambda i, j: i // 128 * 2 + j // 128),
                 ("F8_E4M3", name, [200, 8], lambda i, j: i * 8 + j // 32), ("I8", name, [200, 1], lambda i, j: i, "BF16"),
                 ("I8", name, [200, 1], lambda i, j: i), ("I8", name, [1, 1], lambda i, j: 0), ("I8", name, [1], lambda i, j: 0),
                 ("I8", name, [200, 2], lambda i, j: i * 2 + j // 128)]
        for case in cases:
            few, full, values = self.pair(*case)
            for options in [], ["--quantize=int8"], ["--engine=reference"]:
                self.same(f"{case[:3]}", model, few, full, "x=3x256", *options)
            self.outputs(model, few, "x=1x256")
            self.check(f"values of {case[:3]}", numbers_of(self.folder / "y.safetensors")["raw"] == values, "others")
        few, full, _ = self.pair(*cases[3])
        library = self.folder / "libs.so"
        self.tfm("compile", model, "--weights", few, "-o", library, "--quantize=int8")
        self.check("a library", self.outputs(library, None, "x=3x256") == self.outputs(model, full, "x=3x256", "--quantize=int8"),
                   "the bits differ")

    def what_is_said_of_scales(self):
        model, name = self.model(PAIR), "p.score.weight"
        row = [200, 1], lambda i, j: i
        zeros = {f"{name}_zero_point": ("I8", [200, 1], bytes(200))}
        order = {f"{name}_g_idx": ("I32", [256], bytes(1024))}
        for words, case in [
                (f'tensor "{name}": type I8; whole numbers are a weight only with a scale, but there is no "{name}_scale"', ("I8", None, [], None)),
                (f'it is not symmetric ("{name}_zero_point"); what is read is symmetric, in order', ("I8", f"{name}_scale", *row, "F32", zeros)),
                (f'it has its columns in another order ("{name}_g_idx")', ("I8", f"{name}_scale", *row, "F32", order)),
                (f'its scale "{name}_scale" has the shape [100, 1]; one number is read, one for each row',
                 ("I8", f"{name}_scale", [100, 1], lambda i, j: i // 2)),
                ('its scale seems to be "p.score.qscale_weight"; it is read under the name',
                 ("F8_E4M3", "p.score.qscale_weight", [1], lambda i, j: 0)),
                (f'its scale "{name}_scale" has the shape [200, 3]', ("F8_E4M3", f"{name}_scale", [200, 3], lambda i, j: 0))]:
            few, _, _ = self.pair(*case)
            told = self.tfm("run", model, "--weights", few, "--input", "x=1x256", code=1)
            self.check(words, words in told and "[E0405]" in told, told)
        content = {name: ("F8_E4M3", [200, 256], bytes(51200)), f"{name}_scale": ("I32", [1], bytes(4))}
        write_tensors(self.folder / "q.safetensors", content)
        told = self.tfm("check", model, "--weights", self.folder / "q.safetensors", code=1)
        self.check("the type of a scale", f'its scale "{name}_scale" has the type I32; F32, BF16 and F16 are read' in told, told)
        write_tensors(self.folder / "q.safetensors", {f"{name}_packed": ("I32", [200, 32], bytes(25600))})
        told = self.tfm("check", model, "--weights", self.folder / "q.safetensors", code=1)
        self.check("packed ones", f'tensor "{name}": type I32; it is packed, and no "quantization_config"' in told, told)
        more = {"p.score.input_scale": ("F32", [1], bytes(4))}
        few, _, _ = self.pair("F8_E4M3", f"{name}_scale", *row, "F32", more)
        told = self.tfm("check", model, "--weights", few)
        self.check("nothing looks forgotten", "W0406" not in told and "has all of them" in told, told)
        few, _, _ = self.pair("F8_E4M3", None, [], None, "F32", {f"{name}_scale": ("F32", [1], floats([math.inf]))})
        told = self.tfm("check", model, "--weights", few, "--reject-nonfinite", code=1)
        self.check("a scale that is infinite", f'tensor "{name}": 0 NaN and 1 infinite values' in told, told)

    def all(self):
        for trial in (self.weights_with_scales, self.what_is_said_of_scales, self.types_of_gguf, self.parts_of_blocks, self.libraries_of_gguf, self.rows_of_llama,
                      self.what_is_said_of_gguf):
            trial()
        print(f"{self.passed} passed, {self.failed} failed")
        return self.failed


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, tally.compiled_once():  # few models, run with many files
        sys.exit(Trials(sys.argv[1], pathlib.Path(folder)).all() != 0)
