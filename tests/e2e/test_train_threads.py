#!/usr/bin/env python3
"""Training by many threads: trainers beside each other, disturbed by threads that save, evaluate and cancel, and threads that are
ranks (host/train_threads.c). Each learns what a trainer with one thread learns, bit by bit. The model is an object (tfmc
compile -c) in one program; the runtime is compiled from its source, so that sanitizers can watch it.

usage: test_train_threads.py TFMC SOURCE [--runs=1] [--sanitize=thread]...
Needs Python's own library and a C compiler (clang-14 with --sanitize). The last line is 'N passed, N failed'.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

from runtime_files import runtime_files

# Attention with dropout and without, padding, a causal mask, a layer with states and a shift, and a table that is an output
# layer too; masks and products are large enough to be shared by threads.
MODEL = """model Pupil(vocab = 60, d = 32) {
  embed  = Embedding(vocab, d)
  first  = EncoderLayer(d, 4, 128, dropout = 0.1)
  second = EncoderLayer(d, 4, 128)
  keys   = Linear(d, d)
  rates  = Linear(d, 4)

  fn heads(x) = split_heads(x, 4)
  fn remembered(x) {
    k = normalize(heads(keys(x)))
    r = heads(sigmoid(rates(x)))
    return merge_heads(linear_attention(heads(shift(x, 1)), k, heads(x), decay = r, beta = r))
  }
  forward(ids: i32[batch, time]) {
    hidden = second(first(embed(ids), src_key_padding_mask = ids == 0), is_causal = true)
    return logits = linear(hidden + remembered(hidden), embed.weight)
  }
  fn objective(ids: i32[batch, time], labels: i32[batch, time]) {
    return loss = cross_entropy(forward(ids), labels, ignore_index = 0)
  }
  train objective { optimizer = "adamw"  lr = 1e-2  clip_norm = 1 }
}
"""


def build(tfmc, source, work, sanitizers):
    """The program; the runtime's files in it, compiled by the same compiler."""
    (work / "pupil.tfm").write_text(MODEL)
    subprocess.run([tfmc, "compile", "--training", "-c", "pupil.tfm", "-o", "pupil.o"], cwd=work, check=True, capture_output=True, text=True)
    compiler = "clang-14" if sanitizers else os.environ.get("CC", "cc")
    flags = ["-std=gnu17", "-O1", "-g", "-ffp-contract=off", "-Wall", "-Wextra", *(f"-fsanitize={s}" for s in sanitizers)]
    flags += ["-fno-sanitize-recover=all"] if "undefined" in sanitizers else []
    subprocess.run([compiler, *flags, "-D_GNU_SOURCE", "-I", work, "-I", source / "runtime" / "include", "-I",
                    pathlib.Path(tfmc).parent / "generated" / "include", "-I", source / "runtime",
                    source / "tests" / "e2e" / "host" / "train_threads.c", *runtime_files(source),
                    work / "pupil.o", "-o", work / "train_threads", "-lm", "-lpthread", "-ldl"], check=True, capture_output=True, text=True)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("tfmc", type=os.path.abspath)
    options.add_argument("source", type=lambda path: pathlib.Path(path).resolve())
    options.add_argument("--runs", default="1")
    options.add_argument("--sanitize", action="append", default=[])
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        try:
            build(given.tfmc, given.source, work, given.sanitize)
            for number in range(6):  # where the callers save
                (work / str(number)).mkdir()
            done = subprocess.run([work / "train_threads", given.runs, work], capture_output=True, text=True, timeout=1800)
            said, good = done.stdout + done.stderr, done.returncode == 0 and not done.stdout and not done.stderr
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            said, good = f"{error.cmd}: {error.stderr}", False
    if not good:
        print("FAIL", said[:5000])
    print("1 passed, 0 failed" if good else "0 passed, 1 failed")
    return not good


if __name__ == "__main__":
    sys.exit(main())
