#!/usr/bin/env python3
"""Compiled models that write, in C programs: a program's own search beside forward, generate beside a loop of forwards, no
allocation after the first token, many threads, rows of their own lengths (ragged), the header alone. Models are objects (tfmc compile -c) in one program; the
runtime is compiled from its source, so that sanitizers can watch it.

usage: test_library_writing.py TFMC SOURCE [--runs=40] [--sanitize=thread]...
Needs Python's own library and C and C++ compilers (clang-14 with --sanitize). The last line is 'N passed, N failed'.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

import test_cli
from runtime_files import runtime_files
from test_library_threads import save

EMBED = "fn embed(ids) = shared(ids) * sqrt(d) + sinusoid(positions(ids, 1), d)"
MODELS = {
    "translator": f"""model Translator(vocab = 50, d = 32) {{
  shared = Embedding(vocab, d)
  encoder = Encoder(d, 4, 2, 64)
  decoder = Decoder(d, 4, 2, 64)
  {EMBED}
  forward(src: i32[batch, source], tgt: i32[batch, time]) {{
    logits = linear(decoder(embed(tgt), encoder(embed(src)), tgt_is_causal = true), shared.weight)
    return logits
  }}
  generate tgt from logits {{ bos = 1  pad = 0  max_length = 24 }}
}}
""",
    "speaker": f"""model Speaker(vocab = 50, d = 32) {{
  shared = Embedding(vocab, d)
  encoder = Encoder(d, 4, 2, 64, norm = true)
  {EMBED}
  forward(tgt: i32[batch, time]) {{
    logits = linear(embed(tgt) -> encoder(is_causal = true), shared.weight)
    return logits
  }}
  generate tgt from logits {{ bos = 1  eos = [2, 40]  pad = 0 }}
}}
""",
    "averager": f"""model Averager(vocab = 50, d = 32) {{
  shared = Embedding(vocab, d)
  {EMBED}
  forward(tgt: i32[batch, time]) {{
    hidden = embed(tgt)
    logits = linear(hidden + mean(hidden, axis = 1, keepdim = true), shared.weight)
    return logits
  }}
  generate tgt from logits {{ max_length = 10 }}
}}
""",
    "reader": f"""model Reader(vocab = 50, d = 32) {{
  shared = Embedding(vocab, d)
  encoder = Encoder(d, 4, 2, 64)
  decoder = Decoder(d, 4, 2, 64)
  {EMBED}
  forward(src: i32[batch, ragged source], scale: f32[batch, 2], tgt: i32[batch, ragged time]) {{
    require batch < 2, "each item is computed alone, so {{batch}} is 1"
    memory = encoder(embed(src) * sum(scale, axis = 1, keepdim = true)[:, none])
    logits = linear(decoder(embed(tgt), memory, tgt_is_causal = true), shared.weight)
    return logits
  }}
  generate tgt from logits {{ bos = 1  pad = 0  max_length = 24 }}
}}
""",
    "gatherer": f"""model Gatherer(vocab = 50, d = 32) {{
  shared = Embedding(vocab, d)
  {EMBED}
  forward(src: i32[batch, ragged source], tgt: i32[batch, time]) {{
    require batch < 2, "each item is computed alone, so {{batch}} is 1"
    hidden = embed(tgt)
    of_encoder = sum(embed(src), axis = 1, keepdim = true) * 0.3
    logits = linear(hidden + mean(hidden, axis = 1, keepdim = true) + of_encoder, shared.weight)
    return logits
  }}
  generate tgt from logits {{ bos = 1  max_length = 10 }}
}}
""",
    "teller": """model Teller(vocab = 50, d = 32) {
  shared = Embedding(vocab, d)
  encoder = Encoder(d, 4, 2, 64, norm = true)
  weight places: [40, d]
  forward(tgt: i32[batch, ragged time]) {
    require batch < 2, "each row is computed alone, so {batch} is 1"
    hidden = shared(tgt) + places[:shape(tgt, 1)]
    logits = linear(hidden -> encoder(is_causal = true), shared.weight)
    return logits
  }
  generate tgt from logits { bos = 1  eos = 2  pad = 0 }
}
""",
    "hummer": f"""model Hummer(vocab = 50, d = 32) {{
  shared = Embedding(vocab, d)
  {EMBED}
  forward(tgt: i32[batch, ragged time]) {{
    hidden = embed(tgt)
    logits = linear(hidden + mean(hidden, axis = 1, keepdim = true), shared.weight)
    return logits
  }}
  generate tgt from logits {{ bos = 1  pad = 0 }}
}}
""",
    "silent": "model Silent {\n  forward(x: f32[n]) { return y = x * 2 }\n}\n",
}
WRITES = {"generate", "generate_defaults", "generated_free"}
DECODES = {"begin", "join", "leave", "step", "reorder", "truncate", "length", "end"}
RAGGED = {"teller": "teller_generate and teller_step take", "hummer": "hummer_generate takes"}
SOURCES = [[3, 14, 15, 1000, -1, 1000], [26, 27, 28, 29, 30, 31], [1000, 1000, -1, -1, -1, -1], [8, 33, 9, -1, 50, 1000]] # of writing_sources.c
LENGTHS, SCALE = [3, 6, 0, 3], [1, 2, -1, 0.5, 0.25, 3, -2, 1]
READS = "reader", "gatherer"
PROMPTS = [[3, 14, 15, 9, 26], [27, 1000, -1, 1000, 1000], [31, 8, 32, 1000, 1000]] # of writing_ragged.c
STRICT = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"]
passed = failed = 0


def check(good, what):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    if not good:
        print("FAIL", what[:5000])


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=900, **options)


def make_models(tfmc):
    for name, text in MODELS.items():
        with open(f"{name}.tfm", "w") as f:
            f.write(text)
        listed = subprocess.run([tfmc, "check", "-v", f"{name}.tfm"], check=True, capture_output=True, text=True).stdout
        shapes = re.findall(r"^  (\S+) +f32\[(.*)\]$", listed[listed.index("weights:"):], re.MULTILINE)
        options = []
        if shapes:
            save(f"{name}.safetensors", {weight: [int(n) for n in dims.split(", ")] for weight, dims in shapes})
            options = ["--embed-weights", "--weights", f"{name}.safetensors"]
        subprocess.run([tfmc, "compile", f"{name}.tfm", "-c", "-o", f"{name}.o", *options], check=True, capture_output=True, text=True)


def test_headers():
    """Each alone and all together, as C and as C++; functions for what a model can do and no others."""
    for name in [*MODELS, "all"]:
        with open(f"{name}_alone.c", "w") as f:
            f.write("".join(f'#include "{each}.h"\n' for each in (MODELS if name == "all" else [name])))
        check(run("cc", "-std=c99", *STRICT, f"{name}_alone.c").returncode == 0, f"{name}.h as C")
        proc = run("c++", "-std=c++17", *STRICT, "-x", "c++", f"{name}_alone.c")
        check(proc.returncode == 0, f"{name}.h as C++: {proc.stderr}")
    for name, wanted in ("silent", set()), ("averager", WRITES), ("speaker", WRITES | DECODES), ("translator", WRITES | DECODES), \
            ("teller", WRITES | DECODES), ("hummer", WRITES), ("reader", WRITES | DECODES), ("gatherer", WRITES):
        text = open(f"{name}.h").read()
        functions = set(re.findall(rf"\b{name}_(\w+)\(", text))
        check(functions & (WRITES | DECODES) == wanted, f"functions of {name}.h: {sorted(functions)}")
        symbols = set(re.findall(rf" T {name}_(\w+)$", run("nm", f"{name}.o").stdout, re.MULTILINE))
        check(functions == symbols, f"{name}.o defines {sorted(symbols)}")
        check(("TFM_GENERATE_TYPES_H" in text) == bool(wanted), f"types of {name}.h")
    check("no averager_begin: " in open("averager.h").read(), "averager.h says why it has no averager_begin")
    for name in MODELS:
        takes = "reader_generate and reader_step take" if name == "reader" else RAGGED.get(name)
        said = (f"Rows have their own lengths, for \"time\" is ragged in the model: {takes} any at once.\n"
                f" * The rows of one call of {name}_forward all have the length `time`; those of another length are another call.")
        check((said in open(f"{name}.h").read()) == (takes is not None), f"{name}.h on lengths of rows")
        said = ("Items have their own `source`: what stands behind the length of an item in its inputs is never read.\n"
                f" * {name}_forward takes items that all have the same, in other calls others. */")
        member = "  const int64_t *source_lengths; /* [batch], at most source each; NULL: that of all */\n} " + name + "_args;"
        for text in said, member:
            check((text in open(f"{name}.h").read()) == (name in READS), f"{name}.h on lengths of sources")
    check("#define SPEAKER_VOCAB 50" in open("speaker.h").read(), "the number of tokens is in the header")


def compiler_command(tfmc, source, sanitizers):
    compiler = "clang-14" if sanitizers else os.environ.get("CC", "cc")
    flags = ["-std=gnu17", "-O1", "-g", "-ffp-contract=off", "-Wall", "-Wextra", *(f"-fsanitize={s}" for s in sanitizers)]
    flags += ["-fno-sanitize-recover=all"] if "undefined" in sanitizers else []
    return [compiler, *flags, "-D_GNU_SOURCE", "-I.", "-I", f"{source}/runtime/include",
            "-I", f"{os.path.dirname(tfmc)}/generated/include", f"-I{source}/runtime"]


def compile_runtime(command, source):
    """Once for all programs: its objects, which lie here."""
    files = runtime_files(source)
    proc = run(*command, "-c", *files)
    check(proc.returncode == 0, f"the runtime: {proc.stderr}")
    return [os.path.basename(path)[:-1] + "o" for path in files] if proc.returncode == 0 else None


def build(command, source, program, runtime, more=()):
    """more: functions beside those of memory whose calls the program counts."""
    wraps = ",".join(f"--wrap={name}" for name in ("malloc", "calloc", "realloc", "aligned_alloc", *more))
    proc = run(*command, f"{source}/tests/e2e/host/{program}.c", *runtime,
               *(f"{name}.o" for name in MODELS if name != "silent"), "-o", program, "-lm", "-lpthread", "-ldl", f"-Wl,{wraps}")
    check(proc.returncode == 0, f"{program}: {proc.stderr}")
    return proc.returncode == 0


def test_program(*command):
    proc = run(*command)
    check(proc.returncode == 0 and not proc.stdout and not proc.stderr,
          f"{' '.join(command)}: exit {proc.returncode}: {proc.stdout}{proc.stderr}")


def test_ragged(tfmc):
    """What the program writes is what the compiler in the process writes, with steps and whole."""
    test_cli.save("prompts.safetensors", {"tgt": ("I32", [3, 5], sum(PROMPTS, [])), "time.lengths": ("I32", [3], [5, 1, 3])})
    ways = ["--num-beams=1"], ["--num-beams=3", "--num-return-sequences=2"], ["--do-sample", "--seed=7", "--top-k=10"]
    written = []
    for name in RAGGED:
        for options in ways:
            command = [tfmc, "generate", f"{name}.tfm", "--weights", f"{name}.safetensors", "--inputs", "prompts.safetensors",
                       "--max-new-tokens=12", "-q", *options]
            jit = run(*command)
            check(jit.returncode == 0 and jit.stdout == run(*command, "--recompute").stdout, f"{command}: {jit.stderr}")
            written.append(jit.stdout)
    rows = [json.loads(line) for line in "".join(written).splitlines()]
    check(len(rows) == 24 and all(row[:len(row) - 12] in ([3, 14, 15, 9, 26], [27], [31, 8, 32]) for row in rows if 2 not in row),
          f"rows of tfmc generate: {rows}")
    for threads in "1", "2":
        proc = run("./writing_ragged", threads)
        check(proc.returncode == 0 and proc.stdout == "".join(written) and not proc.stderr,
              f"writing_ragged {threads}: exit {proc.returncode}: {proc.stdout}{proc.stderr}, wanted {written}")


def test_sources(tfmc):
    """The same for sources of their own lengths."""
    ways = ["--num-beams=1"], ["--num-beams=3", "--num-return-sequences=2"], ["--do-sample", "--seed=7", "--top-k=10"]
    inputs = {"src": ("I32", [4, 6], sum(SOURCES, [])), "source.lengths": ("I32", [4], LENGTHS)}
    written = []
    for name in READS:
        test_cli.save("sources.safetensors", {**inputs, **({"scale": ("F32", [4, 2], SCALE)} if name == "reader" else {})})
        for options in ways:
            command = [tfmc, "generate", f"{name}.tfm", "--weights", f"{name}.safetensors", "--inputs", "sources.safetensors",
                       "--max-new-tokens=8", "-q", *options]
            jit = run(*command)
            for more in ["--recompute"], ["--engine=reference"]:
                check(jit.returncode == 0 and jit.stdout == run(*command, *more).stdout, f"{command} {more}: {jit.stderr}")
            written.append(jit.stdout)
    rows = "".join(written).splitlines()
    check(len(rows) == 32 and len(set(rows)) > 8, f"rows of tfmc generate: {rows}")
    for threads in "1", "2", "4":
        proc = run("./writing_sources", threads)
        check(proc.returncode == 0 and proc.stdout == "".join(written) and not proc.stderr,
              f"writing_sources {threads}: exit {proc.returncode}: {proc.stdout}{proc.stderr}, wanted {written}")


def test_programs(tfmc, runs, built):
    if built("writing"):
        test_program("./writing", "1")
        test_program("./writing", "2")
    if built("writing_ragged"):
        test_ragged(tfmc)
    if built("writing_sources"):
        test_sources(tfmc)
    if built("writing_guesses", "tfm_decoder_step"):
        test_program("./writing_guesses", "1")
        test_program("./writing_guesses", "2")
    if built("writing_threads"):
        test_program("./writing_threads", runs)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("tfmc")
    options.add_argument("source")
    options.add_argument("--runs", default="40")
    options.add_argument("--sanitize", action="append", default=[])
    given = options.parse_args()
    tfmc, source = os.path.abspath(given.tfmc), os.path.abspath(given.source)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        make_models(tfmc)
        test_headers()
        command = compiler_command(tfmc, source, given.sanitize)
        runtime = compile_runtime(command, source)
        if runtime:
            test_programs(tfmc, given.runs, lambda program, *more: build(command, source, program, runtime, more))
        os.chdir("/")
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
