#!/usr/bin/env python3
"""Sixteen threads on four compiled models at once, bit by bit what one thread gives; runs that allocate nothing (H08, H14,
H15). The models are objects (tfmc compile -c) in one program; the runtime is compiled from its source, so that sanitizers
can watch it.

usage: test_library_threads.py TFMC SOURCE [--runs=2000] [--alone=20000] [--sanitize=thread]...
Needs Python's own library and a C compiler (clang-14 with --sanitize). The last line is 'N passed, N failed'.
"""
import argparse
import array
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

from runtime_files import runtime_files

# The first and the third are worth a second thread when there are many rows.
MODELS = {
    "one": ("up = Linear(16, 1000)\n down = Linear(1000, 16)", "y = x -> up -> gelu -> down",
            {"up.weight": [1000, 16], "up.bias": [1000], "down.weight": [16, 1000], "down.bias": [16]}),
    "two": ("norm = LayerNorm(16)", "y = softmax(norm(x)) * x", {"norm.weight": [16], "norm.bias": [16]}),
    "three": ("block = EncoderLayer(16, 2, 700)", "y = block(x[none], is_causal = true)[0]",
              {f"block.{k}": v for k, v in {"self_attn.in_proj_weight": [48, 16], "self_attn.in_proj_bias": [48],
               "self_attn.out_proj.weight": [16, 16], "self_attn.out_proj.bias": [16], "linear1.weight": [700, 16],
               "linear1.bias": [700], "linear2.weight": [16, 700], "linear2.bias": [16], "norm1.weight": [16],
               "norm1.bias": [16], "norm2.weight": [16], "norm2.bias": [16]}.items()}),
    "four": ("table = Embedding(16, 16)", "y = table(argmax(x)) + tanh(x) * sum(x, keepdim = true)", {"table.weight": [16, 16]}),
}


def save(path, shapes):
    """A safetensors file of random numbers."""
    header, data, numbers = {}, b"", random.Random(5)
    for name, shape in shapes.items():
        n = 1
        for dim in shape:
            n *= dim
        raw = array.array("f", (numbers.uniform(-0.5, 0.5) for _ in range(n))).tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def make_objects(tfmc):
    for name, (members, result, shapes) in MODELS.items():
        with open(f"{name}.tfm", "w") as f:
            f.write(f"model {name.capitalize()} {{\n {members}\n forward(x: f32[rows, 16]) {{ return {result} }}\n}}\n")
        save(f"{name}.safetensors", shapes)
        subprocess.run([tfmc, "compile", f"{name}.tfm", "-c", "-o", f"{name}.o", "--embed-weights", "--weights", f"{name}.safetensors"],
                       check=True, capture_output=True, text=True)


def build(tfmc, source, sanitizers):
    """The program; the runtime's files in it, compiled by the same compiler."""
    compiler = "clang-14" if sanitizers else os.environ.get("CC", "cc")
    flags = ["-std=gnu17", "-O1", "-g", "-ffp-contract=off", "-Wall", "-Wextra", *(f"-fsanitize={s}" for s in sanitizers)]
    flags += ["-fno-sanitize-recover=all"] if "undefined" in sanitizers else []
    wraps = ",".join(f"--wrap={name}" for name in ("malloc", "calloc", "aligned_alloc"))
    subprocess.run([compiler, *flags, "-D_GNU_SOURCE", "-I.", "-I", f"{source}/runtime/include",
                    "-I", f"{os.path.dirname(tfmc)}/generated/include",
                    f"-I{source}/runtime",
                    f"{source}/tests/e2e/host/many_models.c", *runtime_files(source),
                    *(f"{name}.o" for name in MODELS), "-o", "many", "-lm", "-lpthread", "-ldl", f"-Wl,{wraps}"],
                   check=True, capture_output=True, text=True)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("tfmc")
    options.add_argument("source")
    options.add_argument("--runs", default="2000")
    options.add_argument("--alone", default="20000")
    options.add_argument("--sanitize", action="append", default=[])
    given = options.parse_args()
    tfmc, source = os.path.abspath(given.tfmc), os.path.abspath(given.source)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            make_objects(tfmc)
            build(tfmc, source, given.sanitize)
            proc = subprocess.run(["./many", given.runs, given.alone], capture_output=True, text=True, timeout=900)
            said, good = proc.stdout + proc.stderr, proc.returncode == 0 and not proc.stdout and not proc.stderr
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            said, good = f"{error.cmd}: {error.stderr}", False
        os.chdir("/")
    if not good:
        print("FAIL", said[:5000])
    print("1 passed, 0 failed" if good else "0 passed, 1 failed")
    return not good


if __name__ == "__main__":
    sys.exit(main())
